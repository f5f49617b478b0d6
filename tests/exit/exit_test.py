"""How programs end: without shutdown, in the middle, with work in flight, after a failure; under horon run and mpirun."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "launch"))
from support import BIN, SLACK, LaunchTest, main  # noqa: E402

CPP = os.path.join(BIN, "horon_exit_rank")
C = os.path.join(BIN, "horon_exit_c")

# The same through ctypes. `gone` is how long rank 0 took.
PYTHON = """
import ctypes, os, sys, threading, time
mode = sys.argv[1]
library = ctypes.CDLL(os.environ["HORON_LIBRARY"])
for name in ("all_reduce", "all_gather", "broadcast"):
    getattr(library, "horon_" + name).restype = ctypes.c_int64
library.horon_last_error.restype = ctypes.c_char_p
assert library.horon_init() == 0, library.horon_last_error()
rank = library.horon_rank()
data = (ctypes.c_float * 1000)()

def start(operation, name):
    handle = getattr(library, "horon_" + operation)(name, data, ctypes.c_uint64(1000), 7, None)
    assert handle > 0, library.horon_last_error()
    return ctypes.c_int64(handle)

def wait_alone():
    handle = start("all_reduce", b"alone")
    ready.set()
    code = library.horon_wait(handle)
    print("wait gave", code, library.horon_last_error().decode(), flush=True)

pid = ctypes.c_int32(os.getpid())
assert library.horon_wait(start("all_reduce", b"x")) == 0
handle = library.horon_broadcast(b"pid", ctypes.byref(pid), ctypes.c_uint64(1), 3, 0, None)
assert library.horon_wait(ctypes.c_int64(handle)) == 0
for line in range(1000):
    print(f"rank {rank} line {line}")
print(f"rank {rank} end")
if mode in ("return", "status"):
    time.sleep(0.3 * rank)
    sys.exit(7 if mode == "status" else 0)
if rank != 0:
    while os.path.exists(f"/proc/{pid.value}"):
        time.sleep(0.005)
    sys.exit(0)
if mode == "flight":
    start("all_reduce", b"alone"), start("all_gather", b"too")
if mode == "gather":
    start("all_gather", b"alone"), start("all_gather", b"")
    assert library.horon_shutdown() == 0
if mode == "waiter":
    ready = threading.Event()
    thread = threading.Thread(target=wait_alone)
    thread.start()
    ready.wait()
    assert library.horon_shutdown() == 0
    thread.join()
"""


NO_C = "" if os.path.exists(C) else "libhoron.so is not tested with sanitizers"


class Ending(LaunchTest):
    def check(self, *command, status=0, env=None, ranks=2):
        """Runs it; all its output must be there, and nothing on stderr if it ended well."""
        before = time.monotonic()
        folder = tempfile.TemporaryDirectory()  # for the last operations
        self.addCleanup(folder.cleanup)
        job = self.start("-np", str(ranks), *command, env={"HORON_FLIGHT_FOLDER": folder.name, **(env or {})})
        job.finish(30)
        took = time.monotonic() - before
        label = f"{' '.join(command[-3:])}: {took:.1f} s\n{job.out[-600:]}\n{job.err}"
        self.assertEqual(job.status, status, label)
        if status == 0:
            others = [line for line in job.err.splitlines() if "the last operations of this rank are in" not in line]
            self.assertEqual(others, [], label)
            for rank in range(ranks):  # whoever ended first with an error ends the others
                self.assertIn(f"rank {rank} line 999\n", job.out, label)
                self.assertIn(f"rank {rank} end\n", job.out, label)
        else:
            self.assertRegex(job.out, "rank . end\n")
        self.assertLess(took, 8 * SLACK, label)  # 2 s for work in flight
        return job


class HoronRun(Ending):
    def test_cpp_without_closing(self):
        for held in ("stack", "static", "late", "runtime", "comm"):
            for end in ("return", "exit"):
                for backend in ("auto", "gloo"):
                    with self.subTest(held=held, end=end, backend=backend):
                        self.check(CPP, held, end, "0", env={"HORON_BACKEND": backend})
            with self.subTest(held=held):
                self.check(CPP, held, "status", "0", status=7)

    def test_cpp_with_work_in_flight(self):
        for held in ("stack", "static", "late", "comm"):
            for end in ("flight", "thread"):
                with self.subTest(held=held, end=end):
                    job = self.check(CPP, held, end, "0")
                    self.assertIn("gone after", job.out)

    @unittest.skipIf(NO_C, NO_C)
    def test_c_without_shutdown(self):
        for mode in ("return", "flight", "thread", "fork", "signals"):
            for backend in ("auto", "gloo"):
                with self.subTest(mode=mode, backend=backend):
                    self.check(C, mode, env={"HORON_BACKEND": backend})
        self.check(C, "status", status=7)

    @unittest.skipIf(NO_C, NO_C)
    def test_c_shutdown_while_something_is_in_flight(self):
        for mode in ("waiter", "unnamed", "gather"):
            with self.subTest(mode=mode):
                job = self.check(C, mode)
                if mode != "gather":
                    self.assertRegex(job.out, "wait gave 1: .*shutdown")

    @unittest.skipIf(NO_C, NO_C)
    def test_ctypes(self):
        for mode in ("return", "flight", "gather", "waiter"):
            with self.subTest(mode=mode):
                self.check("/usr/bin/python3", "-c", PYTHON, mode)
        self.check("/usr/bin/python3", "-c", PYTHON, "status", status=7)


class Mpirun(LaunchTest):
    """MPI_Finalize waits for all ranks: a good end calls it, a failed job must not."""

    def setUp(self):
        self.env = {"ASAN_OPTIONS": "detect_leaks=0", "HORON_TIMEOUT": "1s", "HORON_STALL_SHUTDOWN_TIME": "1s"}

    def begin(self, flavour, ranks, *command, **env):
        mpirun = shutil.which(f"mpirun.{flavour}")
        if not mpirun:
            self.skipTest(f"mpirun.{flavour} is not installed")
        more = ["--oversubscribe"] if flavour == "openmpi" else []
        if flavour == "openmpi" and os.geteuid() == 0:
            more.append("--allow-run-as-root")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        job = subprocess.Popen([mpirun, "-np", str(ranks), *more, *command], text=True, start_new_session=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                               env=dict(os.environ, **self.env, HORON_FLIGHT_FOLDER=folder.name, **env))
        self.addCleanup(self.end, job)
        return job

    def end(self, job):
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        job.stdout.close()
        job.stderr.close()

    def pids(self, job, ranks):
        found = {}
        while len(found) < ranks:
            line = job.stdout.readline()
            self.assertTrue(line, job.stderr.read() if not line else "")
            words = line.split()
            if "pid" in words:
                found[int(words[1])] = int(words[3])
        return found

    def finish(self, job, seconds=20):
        before = time.monotonic()
        try:
            out, err = job.communicate(timeout=seconds * SLACK)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            out, err = job.communicate()
            raise AssertionError(f"still running after {seconds} s\n{out[-600:]}\n{err}")
        print(f"ended after {time.monotonic() - before:.1f} s with {job.returncode}")
        return out, err

    def check_stopped(self, flavour, held, victim, backend):
        command = [C, "loop"] if held == "c" else [CPP, held, "loop", "0"]
        with self.subTest(flavour=flavour, held=held, victim=victim, backend=backend):
            job = self.begin(flavour, 3, *command, HORON_BACKEND=backend)
            pids = self.pids(job, 3)
            os.kill(pids[victim], signal.SIGSTOP)
            try:
                _, err = self.finish(job)
            finally:  # mpirun ends it, if it ends
                for pid in pids.values():
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
            self.assertNotEqual(job.returncode, 0)
            self.assertRegex(err, f"waiting for rank {victim}|rank {victim} does not answer", err)

    def test_a_stopped_rank(self):
        for flavour in ("openmpi", "mpich"):
            for backend in ("auto", "gloo", "mpi"):
                self.check_stopped(flavour, "comm", 1, backend)
            for victim in (0, 1):  # rank 0 serves the store
                self.check_stopped(flavour, "stack", victim, "auto")
            self.check_stopped(flavour, "late", 1, "auto")
            if not NO_C:
                self.check_stopped(flavour, "c", 0, "auto")

    def test_a_rank_that_throws(self):
        for flavour in ("openmpi", "mpich"):
            for held, backend in (("stack", "auto"), ("late", "gloo"), ("comm", "mpi")):
                with self.subTest(flavour=flavour, held=held, backend=backend):
                    job = self.begin(flavour, 2, CPP, held, "throw", "1", HORON_BACKEND=backend)
                    _, err = self.finish(job)
                    self.assertEqual(job.returncode, 10, err)
                    self.assertIn("my own trouble", err)

    def test_good_ends(self):
        for flavour in ("openmpi", "mpich"):
            for held, end in (("stack", "exit"), ("late", "return"), ("comm", "return"), ("comm", "exit")):
                for backend in ("auto", "mpi", "gloo"):
                    with self.subTest(flavour=flavour, held=held, end=end, backend=backend):
                        job = self.begin(flavour, 2, CPP, held, end, "0", HORON_BACKEND=backend)
                        out, err = self.finish(job)
                        self.assertEqual((job.returncode, err), (0, ""), out[-600:])
                        for rank in range(2):
                            self.assertIn(f"rank {rank} end\n", out)
            if NO_C:
                continue
            with self.subTest(flavour=flavour):
                job = self.begin(flavour, 2, C, "return")
                out, err = self.finish(job)
                self.assertEqual((job.returncode, err), (0, ""), out[-600:])
                self.assertIn("rank 1 end\n", out)


if __name__ == "__main__":
    main()
