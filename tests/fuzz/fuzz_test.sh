#!/usr/bin/env bash
# Builds the fuzzers with clang and runs each for a short time, as many at once as there are cores.
#   fuzz_test.sh BUILD_FOLDER [SECONDS]     exit status 77: there is no clang with libFuzzer here
set -euo pipefail
source=$(cd "$(dirname "$0")" && pwd)
build=$1
seconds=${2:-4}
if ! echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
  clang++ -fsanitize=fuzzer,address -x c++ - -o /dev/null 2>/dev/null; then
  echo "skipped: no clang++ with libFuzzer (Debian: clang, libclang-rt-dev)"
  exit 77
fi
cmake -S "$source" -B "$build" -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=None >/dev/null
cmake --build "$build" -j "$(nproc)" >"$build/build.log" || { tail -n 30 "$build/build.log"; exit 1; }
run_one() {  # fuzzer
  name=$(basename "$1")
  mkdir -p "$build/corpus/$name"
  longest=4096
  [ "$name" = fuzz_link ] && longest=70000  # frames that are too long to share a record
  echo "$name: $seconds s"
  "$1" -max_total_time="$seconds" -rss_limit_mb=512 -timeout=5 -max_len=$longest -verbosity=0 \
    -artifact_prefix="$build/$name-" "$build/corpus/$name" 2>"$build/$name.log" || { tail -n 40 "$build/$name.log"; return 1; }
}
export build seconds
export -f run_one
find "$build" -maxdepth 1 -name 'fuzz_*' -type f -executable | sort |
  xargs -P "$(nproc)" -I{} bash -ec 'run_one "$1"' _ {}
