"""Runtimes in real processes: a stopped rank is named within seconds, SIGUSR1 writes the last operations."""
import os
import re
import signal
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "launch"))
from support import SLACK, LaunchTest, comm, main, read, wait_until  # noqa: E402

PROGRAM = f"sys_path = {os.path.dirname(os.path.abspath(__file__))!r}" + """
import ctypes, os, sys, time
sys.path.insert(0, sys_path)
from horon_ctypes import F32, Library, buffer_at
horon = Library()
horon.init()
data = (ctypes.c_float * 4)(1, 1, 1, 1)
print("pid", os.getpid(), horon.ask("rank"), flush=True)
while True:
    code = horon.wait(horon.all_reduce(b"gradient", buffer_at(ctypes.addressof(data), 4, F32)))
    if code:
        print("over at", time.monotonic(), flush=True)  # one clock for all processes
        print(horon.error(), file=sys.stderr, flush=True)
        sys.exit(code)
    time.sleep(0.002)
"""


class Stalls(LaunchTest):
    def begin(self, size, folder):
        job = self.start("-np", str(size), "/usr/bin/python3", "-c", PROGRAM,
                         env={"HORON_FLIGHT_FOLDER": folder, "HORON_LIBRARY": os.environ["HORON_LIBRARY"]})
        pids = {}
        while len(pids) < size:
            words = job.process.stdout.readline().split()
            pids[int(words[3])] = int(words[2])
        return job, pids

    def test_a_stopped_rank_is_named_and_the_job_ends(self):
        with tempfile.TemporaryDirectory() as folder:
            job, pids = self.begin(3, folder)
            time.sleep(0.3)
            os.kill(pids[1], signal.SIGSTOP)
            before = time.monotonic()
            job.finish(25)  # the launcher waits for the one that cannot be told to stop
            took = [float(at) - before for at in re.findall(r"over at (\S+)", job.out)]
            print("operations ended after", " and ".join(f"{seconds:.2f} s" for seconds in took))
            self.assertEqual(len(took), 2, job.out + job.err)
            self.assertEqual(job.status, 10, job.err)
            self.assertIn("rank 1 does not answer", job.err)
            self.assertLess(max(took), 7 * SLACK)  # 6 s, and one for a machine that is busy
            self.assertIn("gradient", read(os.path.join(folder, sorted(os.listdir(folder))[0])).decode())

    def test_sigusr1_writes_the_last_operations(self):
        with tempfile.TemporaryDirectory() as folder:
            job, pids = self.begin(2, folder)

            def written():  # asked again until there were operations to write about
                os.kill(pids[0], signal.SIGUSR1)
                time.sleep(0.05)
                return any(b"gradient" in read(os.path.join(folder, name)) for name in os.listdir(folder))

            wait_until(written, 10, "the last operations")
            self.assertIsNone(job.process.poll())  # and the job goes on
            job.process.terminate()
            job.finish(20)


if __name__ == "__main__":
    main()
