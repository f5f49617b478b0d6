#!/usr/bin/env bash
# Installs the build into a folder, moves that folder, builds programs against it, runs them and the package's own.
# Usage: package_test.sh BUILD_FOLDER CXX_FLAGS
set -euo pipefail
build=$1 flags=${2:-}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/moved"
"$work/moved/bin/horon" --version
"$work/moved/bin/horon" info | tee "$work/info"
# Every part that the build has loads here, from this package and nowhere else.
"$build/bin/horon" info | sed -n 's|^  \([a-z_]*\) *loads: .*/\(libhoron_[a-z_]*\.so\).*|\1 \2|p' >"$work/parts"
[ -s "$work/parts" ]
while read -r part file; do
  grep -q "^  $part *loads: $work/moved/lib/horon/$file" "$work/info" || { echo "part $part is not the package's"; exit 1; }
done <"$work/parts"
if grep -F "$build/" "$work/info"; then exit 1; fi
"$work/moved/bin/horonrun" -np 2 sh -c 'echo $HORON_RANK' | sort | grep -x "\[1\] 1"
cmake -S "$here" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/moved" -DCMAKE_CXX_FLAGS="$flags" >/dev/null
cmake --build "$work/build" >/dev/null
"$work/build/hello" | grep -x "1 2 3 on 1 rank"
# Under mpirun the part of its MPI is found: by a program that was linked from the package, and by libhoron.so in Python.
for flavour in openmpi mpich; do
  grep -q "^mpi_$flavour " "$work/parts" && mpirun=$(command -v "mpirun.$flavour") || continue
  start=("$mpirun" -np 2)
  if [ "$flavour" = openmpi ]; then
    start+=(--oversubscribe)
    [ "$(id -u)" != 0 ] || start+=(--allow-run-as-root)
  fi
  [ "$("${start[@]}" "$work/build/sum" | grep -c -x "sum 3 of 2")" = 2 ]
  HORON_LIBRARY="$work/moved/lib/libhoron.so" "${start[@]}" /usr/bin/python3 "$here/../c_api/ctypes_test.py" >"$work/ctypes"
  grep "rank 1 of 2: numpy" "$work/ctypes"
done
if [ -x "$work/build/cifar10" ]; then # LibTorch is here: Gloo beside it, in a program that links both
  cd "$work"
  HORON_BACKEND=gloo OMP_NUM_THREADS=1 "$work/moved/bin/horon" run -np 2 "$work/build/cifar10" "" 20 resnet_tiny | tee cifar10.log
  [ "$(grep -c '^\[0\] step .* loss 2\.3' cifar10.log)" = 2 ]
  "$work/moved/bin/horon" train --train_samples 64 --batch_size 16 --max_number_of_steps 2 --model_dir "$work/run" | grep "top-1"
fi
