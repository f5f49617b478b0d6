#!/usr/bin/env bash
# examples/03_trainer learns, both ways, on two ranks. Usage: trainer_test.sh FOLDER_OF_PROGRAMS
set -euo pipefail
bin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export OMP_NUM_THREADS=1
for how in train run; do
  "$bin/horon" run -np 2 "$bin/example_trainer" "$how" "$how" | tee said
  grep -q "^\[0\] .* (1282 parameters) on .*: 2000 training samples, 400 to test" said
  grep -q "^\[0\]   test *top-1 100.00 %" said
  [ -s "$how/log.jsonl" ]
done
"$bin/example_trainer" --help | grep -q "^usage: trainer"
code=0
HORON_BACKEND=nonsense "$bin/example_trainer" 2>problem || code=$?
[ "$code" = 2 ] && [ "$(wc -l <problem)" = 1 ] && grep -q "^trainer: .*nonsense" problem
