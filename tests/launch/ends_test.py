"""How jobs of `horon run` end on one machine: failures, orphans, signals, bad input."""
import os
import pty
import re
import select
import signal
import subprocess
import tempfile
import time

from support import HORON, RANK, SLACK, LaunchTest, main, read, run, wait_until


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

    def test_the_lost_ranks_own_report_is_waited_for(self):
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

    def test_a_rank_that_dies_while_entering_is_not_logged_as_refused(self):
        for i in range(12):  # the others are ended wherever they are: on their way into the store, too
            job = run("-np", "12", "sh", "-c", f"[ $HORON_RANK != 11 ] && exec {RANK} sum; sleep 0.0{i}; exit 7")
            self.assertEqual(job.status, 7, job.err)
            self.assertNotIn("unauthenticated", job.err)

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
                (["--min-np", "2", "true"], "not implemented yet", 2),
                (["--start-timeout", "soon", "true"], "soon", 2)):
            with self.subTest(arguments):
                job = run(*arguments)
                self.assertEqual(job.status, status, job.err)
                self.assertIn(words, job.err)
                self.assertLessEqual(len(job.err.strip().splitlines()), 2, job.err)


    def test_a_mistake_that_every_rank_finds_is_said_once(self):
        job = run("-np", "8", HORON, "info", "--colour")
        self.assertEqual(job.status, 2, job.err)
        said, verdict = job.err.splitlines()
        self.assertRegex(said, r"^\[\d\] horon: .*--colour")
        self.assertRegex(verdict, r"^horon run: rank \d on localhost ended with status 2$")
        # Where it is not the last word, or not of misuse, everything is shown as it came.
        job = run("-np", "3", "sh", "-c", "echo horon: hm >&2; echo more $HORON_RANK >&2")
        self.assertEqual(sorted(job.err.splitlines()),
                         sorted(line for r in range(3) for line in (f"[{r}] horon: hm", f"[{r}] more {r}")))
        for rank in range(3):
            self.assertLess(job.err.index(f"[{rank}] horon: hm"), job.err.index(f"[{rank}] more"))
        job = run("-np", "3", "sh", "-c", "echo horon: hm >&2")
        self.assertEqual(sorted(job.err.splitlines()), [f"[{r}] horon: hm" for r in range(3)])

    def test_the_exit_codes_of_the_help_are_those_of_the_docs(self):
        text = subprocess.run([HORON, "--help"], capture_output=True, text=True).stdout
        told = re.findall(r"(?m)^ +(\d+)  (.*)$", text[text.index("Exit codes:"):])
        docs = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "errors.md")
        written = re.findall(r"(?m)^\| (\d+) \| (.*) \|$", read(docs).decode())
        self.assertGreater(len(told), 10)
        self.assertEqual(told, written)


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


if __name__ == "__main__":
    main()
