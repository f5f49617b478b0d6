#!/usr/bin/env python3
"""`horon bench allreduce` between two hosts that are network namespaces of this machine, joined by veth, each with a real
sshd; and the time that 8 ranks on both need to their first all-reduce, over tcp and over gloo. As root:

    benchmarks/between_hosts.py [--json FILE] [more flags of horon bench allreduce]

The programs and tests must have been built (make test)."""
import os
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
os.environ.setdefault("HORON_BIN", os.path.join(ROOT, "build/release/bin"))
sys.path.insert(0, os.path.join(ROOT, "tests/launch"))

from support import HORON, RANK, Hosts, why_no_namespaces  # noqa: E402 (needs the path above)

ROUNDS = 7


def measure_start(hosts):
    """Seconds from `horon run` to its end, of a job that does one all-reduce, in turns."""
    spec = f"{hosts.address(0)}:4,{hosts.address(1)}:4"
    times = {"tcp": [], "gloo": []}
    for _ in range(ROUNDS):
        for wire, taken in times.items():
            begun = time.monotonic()
            job = hosts.run("-np", "8", "-H", spec, "--cross-backend", wire, RANK, "sum")
            taken.append(time.monotonic() - begun)
            if job.status != 0:
                sys.exit(job.err)
    for wire, taken in times.items():
        print(f"8 ranks on 2 hosts, start to end, {wire}: median {statistics.median(taken) * 1e3:.0f} ms "
              f"({min(taken) * 1e3:.0f}-{max(taken) * 1e3:.0f})")


def main():
    reason = why_no_namespaces()
    if reason:
        sys.exit(reason)
    hosts = Hosts(2)
    try:
        measure_start(hosts)
        done = subprocess.run([*hosts.inside(0), HORON, "bench", "allreduce", "--hosts",
                               f"{hosts.address(0)},{hosts.address(1)}", "--run-flags",
                               f"--ssh-config {hosts.path('ssh_config')}", *sys.argv[1:]], check=False)
    finally:
        hosts.close()
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
