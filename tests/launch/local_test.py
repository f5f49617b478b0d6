"""`horon run` on one machine: output, failures, signals, the environment, bad input."""
import os
import pty
import re
import select
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from support import HORON, RANK, SLACK, LaunchTest, main, read, run, wait_until


class Output(LaunchTest):
    def test_every_line_is_whole_and_in_order(self):
        script = ('for i in $(seq 300); do echo "$HORON_RANK:$i:' + "x" * 200 + '"; '
                  'echo "$HORON_RANK:$i:e" >&2; done')
        job = run("-np", "8", "sh", "-c", script)
        self.assert_good(job)
        for text, tail in ((job.out, "x" * 200), (job.err, "e")):
            seen = {rank: 0 for rank in range(8)}
            for line in text.splitlines():
                prefix, body = line.split(" ", 1)
                rank, count, rest = body.split(":")
                self.assertEqual(prefix, f"[{rank}]")
                self.assertEqual(rest, tail)
                self.assertEqual(int(count), seen[int(rank)] + 1)
                seen[int(rank)] += 1
            self.assertEqual(set(seen.values()), {300})

    def test_one_rank_and_an_unfinished_line(self):
        job = run("-np", "1", "printf", "no newline")
        self.assert_good(job)
        self.assertEqual(job.out, "[0] no newline\n")

    def test_long_lines_are_whole(self):
        size = 5 << 20
        script = ("import os, sys, time\nrank = os.environ['HORON_RANK']\nout = sys.stdout\n"
                  f"for i in range(64): out.write(rank * ({size} // 64)); out.flush()\n"
                  "out.write('\\nshort\\n')\n")
        job = run("-np", "2", "python3", "-c", script)
        self.assert_good(job)
        lines = job.out.splitlines()
        self.assertEqual(len(lines), 4, [line[:20] for line in lines])
        for rank in range(2):
            self.assertEqual([line for line in lines if line.startswith(f"[{rank}]")],
                             [f"[{rank}] " + str(rank) * size, f"[{rank}] short"])

    def test_a_line_without_end_fills_no_memory(self):
        size = 200_000_000
        job = self.start("-np", "2", "sh", "-c",
                         f"[ $HORON_RANK = 0 ] && head -c {size} /dev/zero | tr '\\0' x; echo; echo end of $HORON_RANK")
        seen = most = 0
        while piece := os.read(job.process.stdout.fileno(), 1 << 20):
            seen += piece.count(b"x")
            peak = re.search(rb"VmHWM:\s*(\d+)", read(f"/proc/{job.process.pid}/status"))
            most = max(most, int(peak[1]) if peak else 0)  # none: it has just ended
        self.assertEqual(seen, size)
        print(f"the launcher grew to {most // 1024} MiB")
        if SLACK == 1:  # a sanitizer keeps what was freed
            self.assertLess(most, 150 << 10)
        job.process.wait(10)
        self.assertEqual(job.process.returncode, 0)

    def test_64_ranks(self):
        before = time.monotonic()
        job = run("-np", "64", RANK, "sum")
        self.assert_good(job)
        self.assertEqual(job.out.count(f"sum {64 * 65 // 2} of 64 over shm"), 64)
        print(f"64 ranks: {time.monotonic() - before:.2f} s")

    def test_files_and_timestamps(self):
        with tempfile.TemporaryDirectory() as folder:
            job = run("-np", "2", "--output-filename", folder + "/logs", "--prefix-output-with-timestamp",
                      "sh", "-c", "echo out; echo err >&2")
            self.assert_good(job)
            self.assertEqual(read(folder + "/logs/rank.1/stdout"), b"out\n")
            self.assertEqual(read(folder + "/logs/rank.0/stderr"), b"err\n")
            self.assertRegex(job.out, r"(?m)^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ \[1\] out$")

    def test_a_full_disk_is_said_once_and_the_job_goes_on(self):
        with tempfile.TemporaryDirectory() as folder:
            if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder],
                                                   stderr=subprocess.DEVNULL).returncode:
                self.skipTest("no tmpfs of a chosen size can be mounted here")
            try:
                job = run("-np", "2", "--output-filename", folder + "/logs", "sh", "-c",
                          "for i in $(seq 3000); do echo $HORON_RANK a line that fills the disk $i; done")
            finally:
                subprocess.run(["umount", folder])
            self.assert_good(job)
            self.assertEqual(job.out.count("a line that fills the disk"), 6000)
            self.assertIn("No space left on device", job.err)
            self.assertLessEqual(len(job.err.splitlines()), 2)

    def test_colour_on_a_terminal_only(self):
        self.assertNotIn("\x1b", run("-np", "2", "echo", "hi").out)
        child, terminal = pty.fork()
        if child == 0:
            os.environ.pop("NO_COLOR", None)
            os.execv(HORON, [HORON, "run", "-np", "2", "echo", "hi"])
        seen = b""
        while b"[1]" not in seen or b"[0]" not in seen:
            self.assertTrue(select.select([terminal], [], [], 10)[0], seen)
            seen += os.read(terminal, 4096)
        os.waitpid(child, 0)
        os.close(terminal)
        self.assertRegex(seen, rb"\x1b\[3\dm\[1\]\x1b\[0m hi")

    def test_a_reader_that_stops_holds_nobody_hostage(self):
        job = self.start("-np", "2", "sh", "-c", "yes | head -c 30000000")
        wait_until(lambda: len(job.named("sh")) == 2, 10, "ranks")
        job.process.send_signal(signal.SIGINT)  # nobody reads: it must end all the same
        job.process.send_signal(signal.SIGINT)
        wait_until(lambda: not job.named("sh") and not job.named("yes"), 5, "ranks gone")


class Failures(LaunchTest):
    def test_the_first_failing_rank_gives_the_exit_code(self):
        job = run("-np", "3", "sh", "-c",
                  'if [ $HORON_RANK = 1 ]; then echo first >&2; echo broken >&2; exit 7; fi; sleep 100', seconds=10)
        self.assertEqual(job.status, 7)
        self.assertIn("rank 1 on localhost ended with status 7", job.err)
        self.assertIn("    broken", job.err)

    def test_others_are_told_and_get_five_seconds(self):
        with tempfile.TemporaryDirectory() as folder:
            before = time.monotonic()
            job = run("-np", "3", "sh", "-c",
                      f'trap "echo told >> {folder}/$HORON_RANK" TERM; touch {folder}/up$HORON_RANK; '
                      f'while [ ! -e {folder}/up1 ] || [ ! -e {folder}/up2 ]; do sleep 0.01; done; '
                      'if [ $HORON_RANK = 0 ]; then kill -9 $$; fi; while true; do sleep 0.1; done')
            took = time.monotonic() - before
            self.assertEqual(job.status, 137)
            self.assertIn("rank 0 on localhost was killed by signal 9 (Killed)", job.err)
            self.assertEqual(read(f"{folder}/1"), b"told\n")
            self.assertEqual(read(f"{folder}/2"), b"told\n")
            self.assertGreater(took, 4.5)

    def test_a_lost_peer_is_not_blamed_on_the_survivor(self):
        job = self.start("-np", "4", RANK, "until", "/nonexistent")
        job.wait_for_output("running")
        wait_until(lambda: len(job.named("horon_launch_ra")) == 4, 10, "ranks")
        ranks = {}
        for pid in job.named("horon_launch_ra"):
            for pair in read(f"/proc/{pid}/environ").split(b"\0"):
                if pair.startswith(b"HORON_RANK="):
                    ranks[int(pair[11:])] = pid
        time.sleep(0.3)
        os.kill(ranks[2], signal.SIGKILL)
        job.finish(10)
        self.assertEqual(job.status, 137, job.err)
        self.assertIn("rank 2 on localhost was killed by signal 9", job.err)

    def test_the_one_that_was_lost_is_heard_out(self):
        job = run("-np", "3", RANK, "leave", seconds=10)
        self.assertEqual(job.status, 3, job.err)
        self.assertIn("rank 1 on localhost ended with status 3", job.err)
        self.assertIn("    the real reason", job.err)

    def test_a_witness_yields_to_whoever_failed_by_itself(self):
        last = 'if [ $HORON_RANK != 1 ]; then exit 10; fi; echo why >&2; '
        for script, status, words in (
                # long after it was told to stop
                (last + 'trap "" TERM; sleep 3; exit 3', 3, "rank 1 on localhost ended with status 3"),
                (last + 'trap "" TERM; sleep 3; kill -9 $$', 137,
                 "rank 1 on localhost was killed by signal 9 (Killed); was the host out of memory?"),
                # as it was told: nobody but the witnesses has anything to say
                (last + 'sleep 100', 10, " on localhost ended with status 10"),
                (last + 'trap "exit 143" TERM; while true; do sleep 0.1; done', 10, " on localhost ended with status 10"),
                (last + 'trap "" TERM; sleep 100', 10, " on localhost ended with status 10")):
            with self.subTest(script):
                job = run("-np", "3", "bash", "-c", script, seconds=15)
                self.assertEqual(job.status, status, job.err)
                self.assertIn(words, job.err)

    def test_a_rank_that_dies_while_it_joins_is_no_stranger(self):
        for i in range(12):  # the others are ended wherever they are: on their way into the store, too
            job = run("-np", "12", "sh", "-c", f"[ $HORON_RANK != 11 ] && exec {RANK} sum; sleep 0.0{i}; exit 7")
            self.assertEqual(job.status, 7, job.err)
            self.assertNotIn("stranger", job.err)

    def test_bad_input_is_one_clear_line(self):
        for arguments, words, status in (
                (["-np", "2", "./no-such-program"], "cannot run './no-such-program'", 15),
                (["-np", "2", "/etc/passwd"], "cannot run '/etc/passwd': Permission denied", 15),
                (["-np", "2", "--workdir", "/no/such/folder", "true"], "working folder /no/such/folder is not there", 15),
                (["-np", "3", "-H", "localhost:2", "true"], "2 slot(s)", 2),
                (["-np", "0", "true"], "--np", 2),
                (["-np", "x", "true"], "--np", 2),
                (["-H", "localhost:4000000", "true"], "column 1", 2),
                (["-np", "2"], "no program to run", 2),
                (["--no-such-flag", "true"], "unknown flag '--no-such-flag'", 2),
                (["--hostfile", "/no/such/file", "true"], "--hostfile: open /no/such/file: No such file", 2),
                (["--config-file", "/no/such/file", "true"], "--config-file: open /no/such/file: No such file", 2),
                (["-x", "NOT_SET_ANYWHERE", "true"], "not set here", 2),
                (["-x", "a b=1", "true"], "not the name of a variable", 2),
                (["--min-np", "2", "true"], "not there yet", 2),
                (["--start-timeout", "soon", "true"], "soon", 2)):
            with self.subTest(arguments):
                job = run(*arguments)
                self.assertEqual(job.status, status, job.err)
                self.assertIn(words, job.err)
                self.assertLessEqual(len(job.err.strip().splitlines()), 2, job.err)


    def test_the_exit_codes_of_the_help_are_those_of_the_docs(self):
        text = subprocess.run([HORON, "--help"], capture_output=True, text=True).stdout
        told = re.findall(r"(?m)^ +(\d+)  (.*)$", text[text.index("Exit codes:"):])
        docs = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "errors.md")
        written = re.findall(r"(?m)^\| (\d+) \| (.*) \|$", read(docs).decode())
        self.assertGreater(len(told), 10)
        self.assertEqual(told, written)


class Environment(LaunchTest):
    def test_place_threads_and_cores(self):
        script = ("echo $HORON_RANK $HORON_SIZE $HORON_LOCAL_RANK $HORON_LOCAL_SIZE $HORON_CROSS_RANK $HORON_CROSS_SIZE "
                  "= $HOROVOD_RANK $HOROVOD_SIZE $HOROVOD_LOCAL_RANK $HOROVOD_LOCAL_SIZE $HOROVOD_CROSS_RANK "
                  "$HOROVOD_CROSS_SIZE threads $OMP_NUM_THREADS cores $(nproc)")
        cores = len(os.sched_getaffinity(0))
        job = run("-np", "2", "-H", "localhost:1,127.0.0.1:1", "sh", "-c", script, env={"OMP_NUM_THREADS": None})
        self.assertIn(f"[1] 1 2 0 1 1 2 = 1 2 0 1 1 2 threads {cores} cores {cores}", job.out)
        job = run("-np", str(cores), "sh", "-c", script, env={"OMP_NUM_THREADS": None})
        self.assertEqual(job.out.count("threads 1 cores 1\n"), cores)
        job = run("-np", str(cores), "--no-bind", "sh", "-c", script, env={"OMP_NUM_THREADS": "5"})
        self.assertEqual(job.out.count(f"threads 5 cores {cores}\n" if cores > 5 else "threads 5 cores "), cores)
        job = run("-np", str(2 * cores), "sh", "-c", script, env={"OMP_NUM_THREADS": None})
        self.assertEqual(job.out.count("threads 1 cores "), 2 * cores)

    def test_uneven_hosts_are_counted_in_c_too(self):
        if "HORON_LIBRARY" not in os.environ:
            self.skipTest("no libhoron.so in this build")
        program = ("import ctypes, os\nlibrary = ctypes.CDLL(os.environ['HORON_LIBRARY'])\nassert library.horon_init() == 0\n"
                   "print('cross', *(getattr(library, 'horon_' + name)() for name in ('rank', 'cross_rank', 'cross_size')))\n"
                   "library.horon_shutdown()\n")
        job = run("-np", "4", "-H", "localhost:3,127.0.0.1:1", "/usr/bin/python3", "-c", program)
        self.assert_good(job)
        for rank in range(4):
            self.assertIn(f"[{rank}] cross {rank} {rank // 3} 2\n", job.out)

    def test_without_a_number_one_rank_for_each_core(self):
        if os.path.exists("/dev/nvidia0"):
            self.skipTest("this machine has GPUs: one rank for each of them")
        self.assertEqual(len(run("echo", "hi").out.splitlines()), len(os.sched_getaffinity(0)))

    def test_any_program_in_any_language(self):
        job = run("-np", "2", "python3", "-c", "import os,sys; print(os.environ['HOROVOD_RANK'], sys.argv[1:])",
                  "-np", "x y", "$(touch /tmp/no)", "--")
        self.assert_good(job)
        self.assertIn("[1] 1 ['-np', 'x y', '$(touch /tmp/no)', '--']", job.out)

    def test_horovodruns_words(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
            config.write("params:\n  fusion_threshold_mb: 32\n  cycle-time-ms: 3\nstall_check:\n  enabled: true\n"
                         "logging:\n  level: WARNING\nverbose: false\nnum_proc: 2\ncontroller: gloo\n")
            config.flush()
            job = run("--config-file", config.name, "--fusion-threshold-mb", "64", "--autotune", "--torus-allreduce",
                      "--timeline-filename", "t.json", "--gloo-timeout-seconds", "7", "--log-level", "TRACE",
                      "--network-interfaces", "lo", "sh", "-c",
                      "echo $HORON_SIZE $HORON_TIMEOUT $HORON_LOG_LEVEL $HORON_TIMELINE $HORON_CROSS_BACKEND $HORON_BUCKET_BYTES "
                      "$HORON_AUTOTUNE_FILE")
        self.assert_good(job)
        self.assertIn(f"[1] 2 7s TRACE {os.getcwd()}/t.json gloo {64 << 20} {os.getcwd()}/horon-autotune.json", job.out)
        for flag in ("--cycle-time-ms", "--torus-allreduce", "--stall-check"):
            self.assertIn(f"{flag}: nothing to do", job.err)
        self.assertIn("Gloo", run("-cb").out)

    def test_backends_are_built_through_the_store(self):
        for backend in ("shm", "gloo"):
            job = run("-np", "3", "--backend", backend, RANK, "sum")
            self.assert_good(job)
            self.assertEqual(job.out.count(f"sum 6 of 3 over {backend}"), 3)

    def test_dry_run_starts_nothing(self):
        job = run("-np", "4", "-H", "localhost:2,far.example:2", "-p", "2222", "-i", "/my/key", "--dry-run", "./prog", "a")
        self.assert_good(job)
        self.assertIn("localhost: rank(s) 0, 1, started here", job.out)
        self.assertIn("far.example: rank(s) 2, 3, by: ssh", job.out)
        self.assertIn("-p 2222 -i /my/key -- far.example exec", job.out)

    def test_as_horonrun(self):
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(HORON, folder + "/horonrun")
            done = subprocess.run([folder + "/horonrun", "-np", "2", "echo", "hi"], capture_output=True, text=True)
            self.assertEqual(sorted(done.stdout.splitlines()), ["[0] hi", "[1] hi"])

    def test_dead_proxies_change_nothing(self):
        dead = {name: "http://192.0.2.1:9" for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY",
                                                        "ALL_PROXY", "all_proxy", "grpc_proxy", "ftp_proxy")}
        job = run("-np", "4", "-H", "localhost:2,127.0.0.1:2", RANK, "sum", env=dead, seconds=10)
        self.assert_good(job)
        self.assertEqual(job.out.count("sum 10 of 4 over hier"), 4)

    def test_a_port_in_use_names_its_owner(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            job = run("-np", "2", "--rendezvous-port", str(taken.getsockname()[1]), "true")
            self.assertEqual(job.status, 15, job.err)
            self.assertIn(f"in use by process {os.getpid()} (python3", job.err)


SLEEPER = "sleep 1000 & (setsid sleep 1001 &) ; echo up; wait"


class NoOrphan(LaunchTest):
    def begin(self):
        # Two agents on this machine, each with a folder.
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        job = self.start("-np", "2", "-H", "localhost:1,127.0.0.1:1", "bash", "-c", SLEEPER, env={"TMPDIR": self.folder})
        wait_until(lambda: len(job.named("sleep")) == 4, 10, "ranks and their children")
        self.assertNotEqual(os.listdir(self.folder), [])
        return job

    def assert_nothing_left(self, job):
        self.assert_gone(job)
        self.assertEqual(os.listdir(self.folder), [])

    def test_launcher_killed(self):
        job = self.begin()
        job.process.kill()
        job.process.wait()
        self.assert_nothing_left(job)

    def test_agent_killed(self):
        job = self.begin()
        os.kill(job.named("horon-agent")[0], signal.SIGKILL)
        job.finish(10)
        self.assertEqual(job.status, 15, job.err)
        self.assertIn("its agent was killed by signal 9", job.err)
        self.assert_nothing_left(job)

    def test_rank_killed(self):
        job = self.begin()
        os.kill(job.named("bash")[0], signal.SIGKILL)
        job.finish(10)
        self.assertEqual(job.status, 137, job.err)
        self.assert_nothing_left(job)

    def test_ranks_that_leave_children_behind(self):
        job = run("-np", "2", "bash", "-c", "sleep 1000 & setsid sleep 1001 & echo done")
        self.assert_good(job)
        self.assert_gone(job, 0.5)

    def test_a_child_that_writes_for_ever(self):
        job = run("-np", "2", "sh", "-c", "yes & yes >&2 & exit 0", seconds=20)
        self.assert_good(job)
        self.assert_gone(job, 0.5)

    def test_nothing_is_left_on_disk(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assert_good(run("-np", "2", RANK, "sum", env={"TMPDIR": folder}))
            self.assertEqual(os.listdir(folder), [])


class Signals(LaunchTest):
    COUNTER = ('trap "echo int >> {0}/$HORON_RANK" INT; trap "echo term >> {0}/$HORON_RANK" TERM; '
               'touch {0}/up$HORON_RANK; while [ ! -e {0}/stop ]; do sleep 0.05; done')

    def test_ctrl_c_on_a_terminal_reaches_each_rank_once(self):
        with tempfile.TemporaryDirectory() as folder:
            child, terminal = pty.fork()
            if child == 0:
                os.execv(HORON, [HORON, "run", "-np", "2", "bash", "-c", self.COUNTER.format(folder)])
            try:
                wait_until(lambda: os.path.exists(folder + "/up0") and os.path.exists(folder + "/up1"), 10, "ranks")
                os.write(terminal, b"\x03")
                wait_until(lambda: read(folder + "/0") and read(folder + "/1"), 5, "the signal")
                time.sleep(0.5)  # a second one would have come by now
                self.assertEqual(read(folder + "/0"), b"int\n")
                self.assertEqual(read(folder + "/1"), b"int\n")
                open(folder + "/stop", "w").close()
                while select.select([terminal], [], [], 5)[0]:  # drain, or the launcher would wait for us
                    try:
                        if not os.read(terminal, 4096):
                            break
                    except OSError:
                        break
                _, status = os.waitpid(child, 0)
                self.assertEqual(os.waitstatus_to_exitcode(status), 75)
            finally:
                os.close(terminal)

    def test_nohup_works(self):
        with tempfile.TemporaryDirectory() as folder:
            job = self.start("-np", "2", "bash", "-c", self.COUNTER.format(folder),
                             preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
            wait_until(lambda: os.path.exists(folder + "/up0") and os.path.exists(folder + "/up1"), 10, "ranks")
            job.process.send_signal(signal.SIGHUP)
            open(folder + "/stop", "w").close()
            self.assert_good(job.finish(10))

    def test_term_once_then_hard(self):
        with tempfile.TemporaryDirectory() as folder:
            job = self.start("-np", "2", "bash", "-c", self.COUNTER.format(folder))
            wait_until(lambda: os.path.exists(folder + "/up0") and os.path.exists(folder + "/up1"), 10, "ranks")
            job.process.terminate()
            wait_until(lambda: read(folder + "/0") and read(folder + "/1"), 5, "the signal")
            self.assertEqual(read(folder + "/0"), b"term\n")
            job.process.terminate()
            job.finish(5)
            self.assertEqual(job.status, 137, job.err)
            self.assertIn("was killed by signal 9 (Killed), sent by horon run", job.err)
            self.assertNotIn("memory", job.err)
            self.assert_gone(job, 2)

    def stop(self, job, number, folder):
        """The first signal: 75 within two seconds, and nothing is left."""
        before = time.monotonic()
        job.process.send_signal(number)
        job.finish(10)
        self.assertEqual(job.status, 75, job.err)
        self.assertLess(time.monotonic() - before, 2 * SLACK)
        self.assert_gone(job, 0.5)
        self.assertEqual(os.listdir(folder), [])

    def test_while_ranks_wait_for_others(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number), tempfile.TemporaryDirectory() as folder:
                job = self.start("-np", "3", RANK, "late", "/nonexistent", env={"TMPDIR": folder})
                job.wait_for_output("waiting")
                wait_until(lambda: self.connections(job) >= 2, 10, "two ranks at the store")
                self.stop(job, number, folder)

    @staticmethod
    def connections(job):
        """How many ranks have come to the store: established connections of the launcher."""
        sockets = set()
        for fd in os.listdir(f"/proc/{job.process.pid}/fd"):
            try:
                sockets.add(os.readlink(f"/proc/{job.process.pid}/fd/{fd}"))
            except OSError:
                pass
        lines = [line.split() for line in read("/proc/net/tcp").decode().splitlines()[1:]]
        return sum(words[3] == "01" and f"socket:[{words[9]}]" in sockets for words in lines)

    def test_while_hosts_are_waited_for(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as programs:
                with open(programs + "/ssh", "w") as file:  # connects to nowhere, for ever
                    file.write("#!/bin/sh\ntouch $0.up\nexec sleep 1000\n")
                os.chmod(programs + "/ssh", 0o755)
                job = self.start("-np", "2", "-H", "localhost:1,192.0.2.7:1", "true",
                                 env={"TMPDIR": folder, "PATH": programs + ":" + os.environ["PATH"]})
                wait_until(lambda: os.path.exists(programs + "/ssh.up"), 10, "ssh")
                self.stop(job, number, folder)

    def test_at_any_moment_of_the_start(self):
        for milliseconds in range(0, 60, 5):
            with self.subTest(milliseconds), tempfile.TemporaryDirectory() as folder:
                job = self.start("-np", "2", "sleep", "1000", env={"TMPDIR": folder})
                wait_until(lambda: b"run" in read(f"/proc/{job.process.pid}/cmdline"), 5, "exec")
                wait_until(lambda: job.blocks(signal.SIGTERM), 5, "a launcher that listens")
                time.sleep(milliseconds / 1000)  # wherever that is
                self.stop(job, signal.SIGTERM, folder)


class Secrets(LaunchTest):
    def test_canary_and_secret_stay_hidden(self):
        canary = "canary-5f1e7a-in-the-coal-mine"
        with tempfile.TemporaryDirectory() as folder:
            job = self.start("-np", "2", "-H", "localhost:1,127.0.0.1:1", "--verbose", "--log-level", "debug", "-x", "CANARY",
                             "--output-filename", folder + "/logs", RANK, "until", folder + "/stop",
                             env={"CANARY": canary, "TMPDIR": folder})
            job.wait_for_output("running")
            secrets = [canary]
            for root, _, files in os.walk(folder):
                for name in files:
                    path = os.path.join(root, name)
                    if name == "secret":
                        secrets.append(read(path).decode().strip())
                        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
                        self.assertEqual(os.stat(root).st_mode & 0o777, 0o700)
            self.assertEqual(len(secrets), 3)
            self.assertEqual(secrets[1], secrets[2])
            for pid in job.marked():
                line = read(f"/proc/{pid}/cmdline").decode(errors="replace")
                for secret in secrets:
                    self.assertNotIn(secret, line)
                self.assertNotIn(secrets[1], read(f"/proc/{pid}/environ").decode(errors="replace"))
            open(folder + "/stop", "w").close()
            job.finish(10)
            self.assert_good(job)
            for secret in secrets:
                self.assertNotIn(secret, job.out + job.err)
                for root, _, files in os.walk(folder):
                    for name in files:
                        self.assertNotIn(secret.encode(), read(os.path.join(root, name)))


if __name__ == "__main__":
    main()
