#!/usr/bin/env bash
# The program as a person meets it: help, version, bad input, the demo. Usage: cli_test.sh PROGRAM SOURCE_FOLDER
set -euo pipefail
horon=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }

# usage CODE PATTERN ARGUMENTS...: exits with CODE, says one line that matches PATTERN, no stack trace
usage() {
  local want=$1 pattern=$2 code=0
  shift 2
  "$horon" "$@" >"$work/out" 2>"$work/err" || code=$?
  [ "$code" -eq "$want" ] || fail "horon $*: exit code $code, expected $want: $(cat "$work/err")"
  grep -q -e "$pattern" "$work/err" || fail "horon $*: said '$(cat "$work/err")', expected $pattern"
  [ "$(wc -l <"$work/err")" -eq 1 ] || fail "horon $*: more than one line: $(cat "$work/err")"
  [ ! -s "$work/out" ] || fail "horon $*: says more on stdout: $(cat "$work/out")"
}

usage 2 "fly" fly
usage 2 "unknown backend 'shmem'" bench allreduce --backends shmem
usage 2 "unknown type 'f99'" bench allreduce --dtype f99
usage 2 "is not a size" bench allreduce --sizes -5
usage 2 "is not a size" bench allreduce --sizes 10XB
usage 2 "from 1 to 64" bench allreduce --ranks 0
usage 2 "from 1 to 64" bench allreduce --ranks two
usage 2 "unknown MPI" bench allreduce --mpi lam
usage 2 "cannot be opened" bench allreduce --backends raw_mpi --parts /nowhere
usage 2 "--backend: .*--backends floor,shm," bench allreduce --backend mpi
usage 2 "--cross-backend: only hier" bench allreduce --cross-backend gloo
usage 2 "--timeline: not read here" bench allreduce --timeline t
usage 2 "--rendezvous: not read here: these ranks" bench allreduce --rendezvous here:1
usage 2 "--backend: " demo --backend mpi
usage 2 "--bucket-bytes: not read here" demo --bucket-bytes 1MB
usage 2 "is not a duration" demo --timeout soon
usage 2 "unknown setting 'tiemout'" info --config <(echo "tiemout = 5s")
usage 2 "cannot read the settings file" info --config /nowhere/at/all
HORON_HEAP_BYTES=lots usage 2 "HORON_HEAP_BYTES (environment): 'lots' is not a size" info
usage 14 "No such file or directory" bench allreduce --json /nowhere/at/all.json
usage 2 "unexpected\|not expected" info --colour

"$horon" --help >"$work/help"
for word in bench demo info "Exit codes" " 75 " " 18 "; do grep -q -- "$word" "$work/help" || fail "--help lacks '$word'"; done
"$horon" --version | grep -qx "horon [0-9.]*" || fail "--version"
"$horon" info --algorithms | grep -q two_level || fail "info --algorithms"
HORON_TIMEOUT=7s "$horon" info --knobs | grep "timeout *7s *environment" >/dev/null || fail "info --knobs"
HOROVOD_GLOO_TIMEOUT_SECONDS=7 "$horon" info --knobs | grep "timeout *7s *HOROVOD_GLOO_TIMEOUT_SECONDS" >/dev/null || fail "info --knobs"
"$horon" info --knobs-md | diff - "$source/docs/knobs.md" || fail "docs/knobs.md is old: make docs"
"$horon" info | grep -q "mpi_openmpi" || fail "info lists no parts"
kind=$("$horon" info --kind)
[[ $kind =~ ^[A-Za-z0-9]+-[0-9]+-(avx512|avx2|generic)$ ]] || fail "info --kind says '$kind'"
"$horon" info | grep -q "($kind)" || fail "info does not name the kind of CPU"
"$horon" demo -n 3 >"$work/demo"
grep -q "32 MB exact" "$work/demo" || fail "the demo measured nothing: $(cat "$work/demo")"
"$horon" bench allreduce --quick --sizes 4,64KB --ranks 2 --backends shm,shm_f16,shm_bf16,shm_max,raw_gloo \
  --json "$work/b.json" --svg "$work/b.svg" >"$work/bench"
grep -q "($kind), .* cores, caches " "$work/bench" || fail "the benchmark does not name the machine: $(head -1 "$work/bench")"
python3 - "$work" <<'PY'
import json, sys, xml.dom.minidom
record = json.load(open(sys.argv[1] + "/b.json"))
assert set(record) == {"machine", "version", "date", "results", "summary"}, record.keys()
assert record["summary"]["shm_p50_us_64KB"] > 0
assert record["machine"]["kind"].count("-") == 2 and record["machine"]["cpu"], record["machine"]
assert all(cache.endswith("B") for cache in record["machine"]["caches"]), record["machine"]
assert {r["contender"] for r in record["results"]} == {"floor", "shm", "shm_f16", "shm_bf16", "shm_max", "raw_gloo"}
xml.dom.minidom.parse(sys.argv[1] + "/b.svg")
PY
"$horon" bench runtime --quick --bucket-bytes 0 --timeline "$work/t" >"$work/bench"
for file in t.2.0 t.2.1 t.8.7; do
  grep -q '"parameter0"' "$work/$file" || fail "$file does not have each tensor alone"
done
echo "cli ok"
