"""`horon run` on one machine: output, the environment, secrets."""
import os
import pty
import re
import select
import signal
import socket
import subprocess
import tempfile
import time

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

    def test_output_of_64_ranks(self):
        before = time.monotonic()
        job = run("-np", "64", RANK, "sum")
        took = time.monotonic() - before
        self.assert_good(job)
        self.assertEqual(job.out.count(f"sum {64 * 65 // 2} of 64 over shm"), 64)
        print(f"64 ranks: {took:.2f} s")
        self.assertLess(took, 5 * SLACK)  # from nothing to the end of their first all-reduce

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

    def test_signals_end_the_job_even_if_nobody_reads_its_output(self):
        job = self.start("-np", "2", "sh", "-c", "yes | head -c 30000000")
        wait_until(lambda: len(job.named("sh")) == 2, 10, "ranks")
        job.process.send_signal(signal.SIGINT)  # nobody reads: it must end all the same
        job.process.send_signal(signal.SIGINT)
        wait_until(lambda: not job.named("sh") and not job.named("yes"), 5, "ranks gone")


class Environment(LaunchTest):
    def test_rank_variables_and_threads(self):
        script = ("echo $HORON_RANK $HORON_SIZE $HORON_LOCAL_RANK $HORON_LOCAL_SIZE $HORON_CROSS_RANK $HORON_CROSS_SIZE "
                  "= $HOROVOD_RANK $HOROVOD_SIZE $HOROVOD_LOCAL_RANK $HOROVOD_LOCAL_SIZE $HOROVOD_CROSS_RANK "
                  "$HOROVOD_CROSS_SIZE threads $OMP_NUM_THREADS")
        cores = len(os.sched_getaffinity(0))
        job = run("-np", "2", "-H", "localhost:1,127.0.0.1:1", "sh", "-c", script, env={"OMP_NUM_THREADS": None})
        self.assertIn(f"[1] 1 2 0 1 1 2 = 1 2 0 1 1 2 threads {cores}\n", job.out)
        for ranks, given, threads in ((cores, None, 1), (cores, "5", 5), (2 * cores, None, 1)):
            job = run("-np", str(ranks), "sh", "-c", script, env={"OMP_NUM_THREADS": given})
            self.assertEqual(job.out.count(f" threads {threads}\n"), ranks, job.out)

    def cores_of_ranks(self, *arguments):
        """The cores that the kernel lets each rank run on."""
        program = "import os; print(*sorted(os.sched_getaffinity(0)))"
        # What nproc would obey changes nothing about binding.
        job = run(*arguments, "python3", "-c", program, env={"OMP_NUM_THREADS": "1"})
        self.assert_good(job)
        lines = [line.split() for line in job.out.splitlines()]
        return [{int(core) for core in words[1:]} for words in sorted(lines, key=lambda words: int(words[0][1:-1]))]

    def test_ranks_are_bound_to_their_share_of_the_cores(self):
        every = os.sched_getaffinity(0)
        if len(every) < 2:
            self.skipTest("one core cannot be shared out")
        for ranks in (2, len(every)):
            shares = self.cores_of_ranks("-np", str(ranks))
            self.assertEqual(len(shares), ranks)
            self.assertEqual(sorted(core for share in shares for core in share), sorted(every))  # each once
            self.assertLessEqual(max(map(len, shares)) - min(map(len, shares)), 1)
        self.assertEqual(self.cores_of_ranks("-np", "2", "--no-bind"), [every] * 2)
        self.assertEqual(self.cores_of_ranks("-np", str(2 * len(every))), [every] * 2 * len(every))
        self.assertEqual(self.cores_of_ranks("-np", "1"), [every])

    def test_uneven_hosts_are_counted_in_c_too(self):
        if "HORON_LIBRARY" not in os.environ:
            self.skipTest("no libhoron.so in this build")
        program = ("import ctypes, os\nlibrary = ctypes.CDLL(os.environ['HORON_LIBRARY'])\nassert library.horon_init() == 0\n"
                   "print('cross', *(getattr(library, 'horon_' + name)(None) for name in ('rank', 'cross_rank', 'cross_size')))\n"
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

    def test_flags_of_horovodrun_are_accepted(self):
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
        self.assertIn(f"[1] 2 7s trace {os.getcwd()}/t.json gloo {64 << 20} {os.getcwd()}/horon-autotune.json", job.out)
        for flag in ("--cycle-time-ms", "--torus-allreduce", "--stall-check"):
            self.assertIn(f"{flag}: nothing to do", job.err)
        self.assertRegex(run("-cb").out, r"\[.\] gloo ")

    def test_variables_for_horovod(self):
        job = run("-np", "3", RANK, "sum", env={"HOROVOD_CYCLE_TIME": "5", "HOROVOD_LOG_LEVEL": "warning"})
        self.assert_good(job)
        self.assertEqual(job.err.count("\n"), 1, job.err)
        self.assertRegex(job.err, r"^\[0\] .*HOROVOD_CYCLE_TIME has no meaning here")
        self.assertIn("HOROVOD_LOG_LEVEL", run("-np", "2", RANK, "sum", env={"HOROVOD_LOG_LEVEL": "loud"}).err)

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
