"""PyTorch's DistributedDataParallel over Gloo: ResNet-50 at 32 x 32, batch 64 a process, 2 processes of one thread.

    ddp_peer.py ROUNDS OUT.json      seconds of each round: alone (both train at the same moment, with no messages), together
"""
import json
import os
import sys
import time

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as multiprocessing  # noqa: E402
import torchvision  # noqa: E402


def work(rank, rounds, out):
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank % os.cpu_count()]})
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    dist.init_process_group("gloo", rank=rank, world_size=2)
    images = torch.randn(64, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (64,))

    def stepper(wrap):
        torch.manual_seed(1)
        model = torchvision.models.resnet50(num_classes=10).to(memory_format=torch.channels_last)
        model = wrap(model)
        optimizer = torch.optim.SGD(model.parameters(), 1e-4, momentum=0.9, nesterov=True, weight_decay=5e-4)

        def step():
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        return step

    contenders = {"alone": stepper(lambda model: model), "together": stepper(
        lambda model: torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True))}
    contenders["again"] = contenders["alone"]
    times = {name: [] for name in contenders}
    for round_number in range(-2, rounds):
        for name, step in contenders.items():
            dist.barrier()
            begin = time.perf_counter()
            step()
            if round_number >= 0:
                times[name].append(time.perf_counter() - begin)
    if rank == 0:
        with open(out, "w") as file:
            json.dump(times, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    multiprocessing.spawn(work, (int(sys.argv[1]), sys.argv[2]), 2)
