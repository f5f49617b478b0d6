"""How programs end: without shutdown, in the middle, with work in flight, after a failure; under horon run and mpirun."""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from itertools import product

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "launch"))
from support import BIN, SLACK, LaunchTest, comm, is_zombie, main, read, wait_until  # noqa: E402

CPP = os.path.join(BIN, "horon_exit_rank")
C = os.path.join(BIN, "horon_exit_c")

# The same through ctypes. `gone` is how long rank 0 took.
PYTHON = f"sys_path = {os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'c_api')!r}" + """
import ctypes, os, sys, threading, time
sys.path.insert(0, sys_path)
from horon_ctypes import F32, I32, Library, buffer_at
mode = sys.argv[1]
horon = Library()
horon.init()
rank = horon.ask("rank")
data = (ctypes.c_float * 1000)()
buffer = buffer_at(ctypes.addressof(data), 1000, F32)

def start(operation, name):
    handle = getattr(horon, operation)(name, buffer)
    assert handle > 0, horon.error()
    return handle

def wait_alone():
    handle = start("all_reduce", b"alone")
    ready.set()
    code = horon.wait(handle)
    print("wait gave", code, horon.error(), flush=True)

pid = ctypes.c_int32(os.getpid())
assert horon.wait(start("all_reduce", b"x")) == 0
assert horon.wait(horon.broadcast(b"pid", buffer_at(ctypes.addressof(pid), 1, I32), 0)) == 0
for line in range(1000):
    print(f"rank {rank} line {line}")
print(f"rank {rank} end")
if mode in ("return", "status"):
    time.sleep(0.3 * rank)
    sys.exit(7 if mode == "status" else 0)
if rank != 0 and mode == "late":
    time.sleep(0.3)
    for name in (b"alone", b""):
        assert horon.wait(start("all_gather", name)) == 0, horon.error()
if rank != 0:
    while os.path.exists(f"/proc/{pid.value}"):
        time.sleep(0.005)
    sys.exit(0)
if mode == "flight":
    start("all_reduce", b"alone"), start("all_gather", b"too")
if mode in ("gather", "late"):
    start("all_gather", b"alone"), start("all_gather", b"")
    horon.shutdown()
if mode == "waiter":
    ready = threading.Event()
    thread = threading.Thread(target=wait_alone)
    thread.start()
    ready.wait()
    horon.shutdown()
    thread.join()
"""


NO_PYTHON = "Python has no sanitizer in it" if os.environ.get("HORON_TEST_SANITIZE") else ""


class Cases(LaunchTest):
    def together(self, check, cases, at_once):
        """check(*case) for each, some at a time: they mostly wait."""
        with ThreadPoolExecutor(at_once) as pool:
            futures = [(case, pool.submit(check, *case)) for case in cases]
        for case, future in futures:
            with self.subTest(case=case):
                future.result()


class Ending(Cases):
    def check(self, *command, status=0, env=None, ranks=2, remarks="the last operations of this rank are in"):
        """Runs it; all its output must be there, and nothing but remarks on stderr if it ended well."""
        before = time.monotonic()
        folder = tempfile.TemporaryDirectory()  # for the last operations
        self.addCleanup(folder.cleanup)
        # What was freed is overwritten at once: whoever still uses it is found out.
        memory = {"MALLOC_PERTURB_": "165", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
        job = self.start("-np", str(ranks), *command, env={"HORON_FLIGHT_FOLDER": folder.name, **memory, **(env or {})})
        job.finish(30)
        took = time.monotonic() - before
        label = f"{' '.join(command[-3:])}: {took:.1f} s\n{job.out[-600:]}\n{job.err}"
        self.assertEqual(job.status, status, label)
        if status == 0:
            others = [line for line in job.err.splitlines() if not re.search(remarks, line)]
            self.assertEqual(others, [], label)
            for rank in range(ranks):  # whoever ended first with an error ends the others
                self.assertIn(f"rank {rank} line 999\n", job.out, label)
                self.assertIn(f"rank {rank} end\n", job.out, label)
        else:
            self.assertRegex(job.out, "rank . end\n")
        self.assertLess(took, 8 * SLACK, label)  # 2 s for work in flight
        return job


class HoronRun(Ending):
    def cpp(self, held, end, backend="auto"):
        # Nothing is closed: a thread of it may just be shaking hands with the launcher.
        more = {"remarks": "unauthenticated connection"} if (held, end) == ("stack", "exit") else {}
        job = self.check(CPP, held, end, "0", status=7 if end == "status" else 0, env={"HORON_BACKEND": backend}, **more)
        if end in ("flight", "thread"):
            self.assertIn("gone after", job.out)

    def c(self, mode, backend="auto"):
        # Left on purpose: what a message given up, a dump or the threads of a fork's parent may still use.
        env = {"HORON_BACKEND": backend, "ASAN_OPTIONS": "detect_leaks=0"}
        job = self.check(C, mode, status=7 if mode == "status" else 0, env=env)
        if mode in ("waiter", "unnamed", "join", "set", "unset"):
            self.assertRegex(job.out, "wait gave 1: .*shutdown")
        if mode == "dump":
            self.assertEqual(job.out.count("read the last operations"), 2)

    def python(self, mode):
        self.check("/usr/bin/python3", "-c", PYTHON, mode, status=7 if mode == "status" else 0)

    def test_a_forked_child_takes_a_place_of_its_own(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([C, "child"], capture_output=True, text=True, timeout=30,
                                  env=dict(os.environ, HORON_FLIGHT_FOLDER=folder))
        self.assertEqual((done.returncode, done.stdout), (0, "both\n"), done.stderr)

    def test_cpp_without_closing(self):
        everywhere = ("stack", "static", "late", "runtime", "comm")
        self.together(self.cpp, product(everywhere, ("return", "exit"), ("auto", "gloo")), 4)
        self.together(self.cpp, product(everywhere, ("status",)), 4)

    def test_cpp_with_work_in_flight(self):
        self.together(self.cpp, product(("stack", "static", "late", "comm"), ("flight", "thread")), 4)

    def test_c_without_shutdown(self):
        self.together(self.c, product(("return", "status", "flight", "thread", "fork", "signals", "dump"),
                                      ("auto", "gloo")), 4)

    def test_c_without_shutdown_has_its_timeline(self):
        with tempfile.TemporaryDirectory() as folder:
            self.check(C, "return", env={"HORON_TIMELINE": folder + "/trace"})
            for rank in range(2):
                lines = [json.loads(line) for line in read(f"{folder}/trace.{rank}").splitlines()]
                self.assertEqual([line.get("name") for line in lines], [None, "x", "pid"])

    def test_c_shutdown_while_something_is_in_flight(self):
        self.together(self.c, product(("waiter", "unnamed", "join", "set", "unset", "gather", "late"), ("auto", "gloo")), 4)

    @unittest.skipIf(NO_PYTHON, NO_PYTHON)
    def test_python_with_ctypes_without_shutdown(self):
        self.together(self.python, product(("return", "status", "flight", "gather", "late", "waiter")), 4)


class Mpirun(Cases):
    """MPI_Finalize waits for all ranks: a good end calls it, a failed job must not."""

    def setUp(self):
        self.env = {"ASAN_OPTIONS": "detect_leaks=0", "HORON_TIMEOUT": "2s", "HORON_STALL_SHUTDOWN_TIME": "2s"}

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

    def stop(self, flavour, victim, backend, *command):
        job = self.begin(flavour, 3, *command, HORON_BACKEND=backend)
        pids = self.pids(job, 3)
        for pid in pids.values():
            self.addCleanup(self.kill, pid)
        os.kill(pids[victim], signal.SIGSTOP)
        return job, [pid for rank, pid in pids.items() if rank != victim]

    def kill(self, pid):
        """Ends it unless mpirun did, or does just now. A descriptor cannot come to mean another process, as a number can."""
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            self.addCleanup(os.close, descriptor)
            if comm(pid).startswith("horon_exit"):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)

    def stopped(self, flavour, held, victim, backend):
        command = [C, "loop"] if held == "c" else [CPP, held, "loop", "0"]
        job, _ = self.stop(flavour, victim, backend, *command)
        _, err = self.finish(job)
        self.assertNotEqual(job.returncode, 0)
        self.assertRegex(err, f"waiting for rank {victim}|rank {victim} does not answer", err)

    def calm(self, flavour, held, backend):
        """Status 0 in spite of the error: mpirun may wait for the stopped rank, but the survivors do not."""
        _, survivors = self.stop(flavour, 1, backend, CPP, held, "calm", "0")
        wait_until(lambda: not any(comm(pid) == "horon_exit_rank" and not is_zombie(pid) for pid in survivors), 15,
                   "the end of the survivors")

    def throws(self, flavour, held, backend, end="throw"):
        job = self.begin(flavour, 2, CPP, held, end, "1", HORON_BACKEND=backend)
        _, err = self.finish(job)
        self.assertIn(job.returncode, (10, 9), err)  # MPICH's may tell instead that it killed the others
        self.assertIn("my own trouble", err)

    def ends_well(self, flavour, held, end, backend):
        command = [C, end] if held == "c" else [CPP, held, end, "0"]
        job = self.begin(flavour, 2, *command, HORON_BACKEND=backend)
        out, err = self.finish(job)
        self.assertEqual((job.returncode, err), (0, ""), out[-600:])
        for rank in range(2):
            self.assertIn(f"rank {rank} end\n", out)

    def test_a_stopped_rank(self):  # rank 0 serves the store
        cases = [("comm", 1, "auto"), ("comm", 1, "gloo"), ("comm", 1, "mpi"), ("stack", 0, "auto"), ("stack", 1, "auto"),
                 ("late", 1, "auto"), ("c", 0, "auto")]
        self.together(self.stopped, [(flavour, *case) for flavour in ("openmpi", "mpich") for case in cases], 2)
        self.together(self.calm, product(("openmpi", "mpich"), ("comm", "late"), ("auto",)), 2)

    def test_a_rank_that_throws(self):
        cases = [("stack", "auto"), ("late", "gloo"), ("comm", "mpi"), ("stack", "auto", "unheard"), ("stack", "mpi", "unheard")]
        self.together(self.throws, [(flavour, *case) for flavour in ("openmpi", "mpich") for case in cases], 2)

    def test_successful_programs_exit_with_their_own_status(self):
        cases = list(product(("stack",), ("exit",), ("auto", "mpi", "gloo")))
        cases += product(("late", "comm", "c"), ("return",), ("auto", "mpi"))
        cases += product(("c",), ("fork",), ("mpi",))  # the child does not end MPI for its parent
        self.together(self.ends_well, [(flavour, *case) for flavour in ("openmpi", "mpich") for case in cases], 2)


if __name__ == "__main__":
    main()
