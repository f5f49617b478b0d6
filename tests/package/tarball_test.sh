#!/usr/bin/env bash
# Packs the build as `make package` does, unpacks it elsewhere and runs it where nothing but the C and C++ run-time libraries
# is installed: a folder that becomes the root. Where that is not allowed, the loader is asked what it would take.
# Usage: tarball_test.sh BUILD_FOLDER
set -euo pipefail
build=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$build" && cpack -G TGZ -B "$work/packed" >"$work/cpack.log") || { cat "$work/cpack.log"; exit 1; }
mkdir "$work/root"
tar xf "$work"/packed/*.tar.gz -C "$work/root"
mv "$work"/root/horon-* "$work/root/package"
package=$work/root/package
for file in doc/horon/{README,cpp,cpp_trainer,train,errors}.md horon/examples/{CMakeLists.txt,02_cifar10/{single,distributed}.cc}; do
  [ -s "$package/share/$file" ] || { echo "$file is missing"; exit 1; }
done
cc -std=c11 -I"$package/include" -I"$here/../.." "$here/../c_api/c_test.c" -o "$package/bin/c_test" -L"$package/lib" -lhoron \
  -Wl,-rpath,'$ORIGIN/../lib' -Wl,--allow-shlib-undefined

# What the machine itself brings; all else must come from the package.
machine='/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s))\.so\.[0-9.]+$'
for file in bin/horon lib/libhoron.so lib/horon/libhoron_gloo.so; do
  ldd "$package/$file" | awk '/=>/ {print $3} /^\t\// {print $1}' | xargs realpath >"$work/loaded"
  if grep -vE "^$package/|$machine" "$work/loaded"; then echo "$file: these are not the package's"; exit 1; fi
  [ "$(grep -c /libgloo "$work/loaded")" = "$([ "$file" = lib/horon/libhoron_gloo.so ] && echo 1 || echo 0)" ]
done
if find "$package/lib/horon" | grep -E "$machine"; then echo "the package brings pieces of the C library"; exit 1; fi

enter=(unshare -m)
[ "$(id -u)" = 0 ] || enter=(unshare -r -m)
if ! "${enter[@]}" mount --rbind /proc /proc 2>"$work/why"; then
  echo "not run with this folder as root: $(cat "$work/why")"
  exit 0
fi
for library in $(ldd "$package/bin/horon" "$package/lib/libhoron.so" | grep -oE "/[^ ]+" | grep -E "$machine" | sort -u); do
  mkdir -p "$work/root$(dirname "$library")"
  cp -L "$library" "$work/root$library"
done
mkdir -p "$work"/root/{proc,dev,tmp}
in_root() {
  "${enter[@]}" sh -c 'mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"' "$work/root" "$@"
}
in_root /package/bin/horon info | tee "$work/info"
grep -q "^kernels " "$work/info"
grep -q "^  gloo *loads: /package/lib/horon/libhoron_gloo.so" "$work/info"
in_root /package/bin/horon run -np 2 /package/bin/c_test | tee "$work/ranks"
[ "$(grep -c "from C" "$work/ranks")" = 2 ]
