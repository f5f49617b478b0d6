#!/usr/bin/env bash
# Installs the build into a folder, moves that folder, builds a ten-line program against it, runs both.
# Usage: package_test.sh BUILD_FOLDER CXX_FLAGS
set -euo pipefail
build=$1 flags=${2:-}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/moved"
"$work/moved/bin/horon" --version
"$work/moved/bin/horon" info >"$work/info"
"$work/moved/bin/horonrun" -np 2 sh -c 'echo $HORON_RANK' | sort | grep -x "\[1\] 1"
cmake -S "$here" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/moved" -DCMAKE_CXX_FLAGS="$flags" >/dev/null
cmake --build "$work/build" >/dev/null
"$work/build/hello" | grep -x "1 2 3 on 1 rank"
if [ -x "$work/build/cifar10" ]; then # LibTorch is here: Gloo beside it, in a program that links both
  cd "$work"
  HORON_BACKEND=gloo OMP_NUM_THREADS=1 "$work/moved/bin/horon" run -np 2 "$work/build/cifar10" "" 20 resnet_tiny | tee cifar10.log
  [ "$(grep -c '^\[0\] step .* loss 2\.3' cifar10.log)" = 2 ]
  "$work/moved/bin/horon" train --train_samples 64 --batch_size 16 --max_number_of_steps 2 --model_dir "$work/run" | grep "top-1"
fi
