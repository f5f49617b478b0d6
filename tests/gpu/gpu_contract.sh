#!/usr/bin/env bash
# The contract on device buffers, on a machine with a GPU: NCCL with one rank, and every other backend with
# several ranks that share the GPU and stage through pinned memory.
# Usage: gpu_contract.sh PREFIX, an installed Horon with bin/horon_contract_rank (and horon_pipeline_gpu, horon_c_gpu) beside bin/horon.
set -uo pipefail
prefix=$1
export LD_LIBRARY_PATH=$prefix/lib/horon:${LD_LIBRARY_PATH:-}
rank_program=$prefix/bin/horon_contract_rank
passed=0 failed=0

job() { # BACKEND RANKS HOSTS CHECKS
  local backend=$1 ranks=$2 hosts=$3 checks=$4 work ok=1 pids=()
  work=$(mktemp -d)
  for ((rank = 0; rank < ranks; rank++)); do
    timeout 120 "$rank_program" --rank "$rank" --size "$ranks" --store "$work/store" --backend "$backend" \
      --hosts "$hosts" --device cuda --checks "$checks" >"$work/$rank.log" 2>&1 &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || ok=0; done
  if [ "$ok" = 1 ]; then passed=$((passed + 1)); echo "ok      $backend $ranks ranks $hosts hosts $checks"
  else failed=$((failed + 1)); echo "FAILED  $backend $ranks ranks $hosts hosts $checks"; tail -n 3 "$work"/*.log; fi
  rm -rf "$work"
}

"$prefix/bin/horon" info
for checks in operations behaviour runtime; do
  job nccl 1 0 "$checks"
  job auto 1 0 "$checks" # nccl: the rank has the GPU for itself
  job auto 2 0 "$checks" # shm: two ranks, one GPU
  job self 1 0 "$checks"
  for ranks in 2 3 4; do job shm "$ranks" 0 "$checks"; done
  job gloo 2 0 "$checks"
  job gloo 4 0 "$checks"
  job hier 4 2 "$checks"
done
if command -v mpirun >/dev/null; then
  work=$(mktemp -d)
    for checks in operations behaviour runtime; do
    if timeout 200 mpirun --allow-run-as-root --oversubscribe -np 2 "$rank_program" --store "$work/$checks" --backend mpi \
      --device cuda --checks "$checks" >"$work/log" 2>&1; then passed=$((passed + 1)); echo "ok      mpi 2 ranks $checks"
    else failed=$((failed + 1)); echo "FAILED  mpi 2 ranks $checks"; tail -n 8 "$work/log"; fi
  done
  rm -rf "$work"
fi
if [ -x "$prefix/bin/horon_pipeline_gpu" ]; then
  if timeout 60 "$prefix/bin/horon_pipeline_gpu"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
fi
if [ -x "$prefix/bin/horon_c_gpu" ]; then
  if LD_LIBRARY_PATH=$prefix/lib:$LD_LIBRARY_PATH timeout 60 "$prefix/bin/horon" run -np 2 "$prefix/bin/horon_c_gpu"
  then passed=$((passed + 1)); else failed=$((failed + 1)); fi
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
