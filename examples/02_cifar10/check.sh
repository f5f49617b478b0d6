#!/usr/bin/env bash
# The two programs learn the same, and README.md shows their difference as it is. Usage: check.sh FOLDER_OF_PROGRAMS
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$1
if ! diff <(diff -U0 "$here/single.cc" "$here/distributed.cc" | grep '^[+-][^+-]') <(sed -n '/^```diff$/,/^```$/p' "$here/README.md" | grep '^[+-][^+-]'); then
  echo "README.md shows another difference" >&2
  exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
OMP_NUM_THREADS=1 "$bin/example_cifar10_single" "" 150 resnet_tiny | tee single
OMP_NUM_THREADS=1 "$bin/example_cifar10_distributed" "" 150 resnet_tiny >one
cmp single one # a job of one rank does exactly what the plain program does
[ -s cifar10.pt ]
OMP_NUM_THREADS=1 "$bin/horon" run -np 2 "$bin/example_cifar10_distributed" "" 150 resnet_tiny | sed 's/^\[0\] //' | tee two
# Batch norm sees half the samples: near, not equal.
awk 'NR == FNR { first[$2] = $4; next } { last = $4; d = first[$2] - $4; if (d > 0.05 || d < -0.05) { print "far apart: " $0; bad = 1 } n++ } END { exit bad || n != 15 || last > 2.28 }' single two
