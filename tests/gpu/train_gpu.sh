#!/usr/bin/env bash
# Training on a machine with a GPU: updates with the CPU's bits, the same losses as a CPU to rounding, the same bits from run
# to run and, exact, on one and two ranks that share the GPU; resuming.
# Usage: train_gpu.sh PREFIX, an installed Horon with bin/horon_train_gpu beside bin/horon. HORON_TORCH names its LibTorch.
set -uo pipefail
prefix=$1
horon=$prefix/bin/horon
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
say() { if [ "$1" = 0 ]; then echo "ok      $2"; else echo "FAILED  $2"; failed=$((failed + 1)); fi; }
train() { # NAME RANKS ARGUMENTS...
  local name=$1 ranks=$2; shift 2
  timeout 200 "$horon" run -np "$ranks" "$horon" train --train_samples 400 --batch_size 48 --learning_rate 0.02 --max_number_of_steps 12 \
    --epochs_between_evals 0 --hex_loss --model_dir "$work/$name" "$@" >"$work/$name.log" 2>&1 || { tail -n 5 "$work/$name.log"; return 1; }
  grep -o 'step [0-9]* loss .*' "$work/$name.log" >"$work/$name.losses"
}
digest() { sha256sum <"$work/$1/ckpt-00000012/model.safetensors"; }
near() { python3 - "$work/$1.losses" "$work/$2.losses" "$3" <<'PYTHON'
import sys
a, b = ([float.fromhex(line.split()[3]) for line in open(name)] for name in sys.argv[1:3])
worst = max(abs(x - y) / abs(x) for x, y in zip(a, b))
print("        largest relative difference", worst)
sys.exit(len(a) != 12 or len(b) != 12 or worst > float(sys.argv[3]))
PYTHON
}

LD_LIBRARY_PATH=$prefix/lib/horon:${LD_LIBRARY_PATH:-} "$prefix/bin/horon_train_gpu"; say $? "updates and gradients"
train cpu 1 --device cpu --model resnet_v1_20 && train gpu 1 --device cuda --model resnet_v1_20 && near cpu gpu 1e-3; say $? "a GPU's losses are a CPU's"
train again 1 --device cuda --model resnet_v1_20 && [ "$(digest gpu)" = "$(digest again)" ]; say $? "the same bits from run to run"
train lenet1 1 --device cuda --model lenet && train lenet2 2 --device cuda --model lenet && near lenet1 lenet2 1e-4; say $? "two ranks on one GPU"
train exact1 1 --device cuda --reduction exact && train exact2 2 --device cuda --reduction exact && cmp "$work/exact1.losses" "$work/exact2.losses" &&
  [ "$(digest exact1)" = "$(digest exact2)" ]; say $? "exact: the same bits on one and two ranks"
train mirrored 1 --device cuda --reduction exact --distribution_strategy mirrored --num_gpus 2 && [ "$(digest mirrored)" = "$(digest exact1)" ]
say $? "exact: the same bits with two replicas in a process"
train resumed 2 --device cuda --reduction exact --max_number_of_steps 5 && train resumed 1 --device cuda --reduction exact &&
  [ "$(digest resumed)" = "$(digest exact1)" ]; say $? "exact: resumed on another number of ranks"
train adam 1 --device cuda --optimizer adam --learning_rate 0.001 && train adamcpu 1 --device cpu --optimizer adam --learning_rate 0.001 && near adam adamcpu 5e-3
say $? "adam"
train bf16 2 --device cuda --dtype bf16 && train f32 2 --device cuda && near bf16 f32 0.1; say $? "bf16 near f32"
train sync 2 --device cuda --sync_batch_norm --train_samples 480 && train sync1 1 --device cuda --train_samples 480 && near sync sync1 1e-3
say $? "batch norm over two ranks"
echo "$failed failed"
[ "$failed" -eq 0 ]
