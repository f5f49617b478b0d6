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
sed -n '/^```cpp$/,/^```$/{/^```/!p}' "$here/../../README.md" >"$work/readme.cc"
cmake -S "$here" -B "$work/build" -DREADME_PROGRAM="$work/readme.cc" -DCMAKE_PREFIX_PATH="$work/moved" -DCMAKE_CXX_FLAGS="$flags" >/dev/null
cmake --build "$work/build" -j2 >/dev/null
"$work/build/hello" | grep -x "1 2 3 on 1 rank"
"$work/moved/bin/horon" run -np 2 "$work/build/readme" | grep -x "\[0\] average of ranks: 0.5"
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
# Documents and examples come along; the examples are built where they were installed, from outside the tree.
share=$work/moved/share
for document in "$here"/../../docs/*.md; do cmp "$document" "$share/doc/horon/$(basename "$document")"; done
cmake -S "$share/horon/examples" -B "$work/examples" -DCMAKE_PREFIX_PATH="$work/moved" -DCMAKE_CXX_FLAGS="$flags" >/dev/null
cmake --build "$work/examples" -j2 >/dev/null
for program in "$work"/examples/example_*; do "$program" --help | grep -q "^usage:"; done
"$work/moved/bin/horon" run -np 2 "$work/examples/example_all_reduce" | grep "average of ranks over shm: 0.5"
[ ! -x "$work/examples/example_c" ] || "$work/moved/bin/horon" run -np 2 "$work/examples/example_c" | grep "step 2: the average is 2.5"
if [ -x "$work/examples/example_trainer" ]; then # LibTorch is here, which has a Gloo of its own
  cd "$work"
  export OMP_NUM_THREADS=1
  HORON_BACKEND=tcp "$work/moved/bin/horon" run -np 2 "$work/examples/example_cifar10_distributed" "" 1 | grep "^\[0\] epoch 1  loss 1\.2"
  ! HORON_BACKEND=gloo "$work/moved/bin/horon" run -np 2 "$work/examples/example_cifar10_distributed" "" 1 >"$work/refused" 2>&1
  grep "gloo: this process has another Gloo already, in .*libtorch_cpu.so; use tcp" "$work/refused"
  "$work/examples/example_cifar10_single" "" 1 | grep "^epoch 1  loss 1\.2"
  "$work/moved/bin/horon" run -np 2 "$work/examples/example_trainer" "$work/mine" | grep "test  *top-1 100.00 %"
  "$work/moved/bin/horon" train --train_samples 64 --batch_size 16 --max_number_of_steps 2 --model_dir "$work/run" | grep "top-1"
  # The CMakeLists.txt that docs/cpp.md shows.
  mkdir "$work/shown"
  sed -n '/^```cmake$/,/^```$/{/^```/!p}' "$share/doc/horon/cpp.md" >"$work/shown/CMakeLists.txt"
  cp "$here/hello.cc" "$work/shown/my_program.cc"
  cmake -S "$work/shown" -B "$work/shown/build" -DCMAKE_PREFIX_PATH="$work/moved" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS="$flags" >/dev/null
  cmake --build "$work/shown/build" >/dev/null
  "$work/shown/build/my_program" | grep -x "1 2 3 on 1 rank"
fi
