"""The same program started by others: mpirun, srun, TF_CONFIG, by hand. Rank 0 serves the store."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from slurm import Slurm, free_port, why_no_slurm
from support import (HORON, MPI_RANK, RANK, Hosts, LaunchTest, main, read, run, wait_until, why_no_namespaces)

NO_SLURM = why_no_slurm()
NO_SPACES = why_no_namespaces()


def start_all(commands, seconds=40):
    """Runs [(argv, env)] at the same time; [(status, stdout, stderr)]."""
    running = [subprocess.Popen(argv, env=dict(os.environ, **env), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True) for argv, env in commands]
    done = []
    for process in running:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            err += " (killed by the test)"
        done.append((process.returncode, out, err))
    return done


def tf_config(workers, index, role="worker", **more):
    return {"TF_CONFIG": json.dumps({"cluster": {"worker": workers, **more}, "task": {"type": role, "index": index}})}


class Mpi(LaunchTest):
    def setUp(self):
        os.environ["ASAN_OPTIONS"] = "detect_leaks=0"  # MPI's own
        self.addCleanup(os.environ.pop, "ASAN_OPTIONS")

    def check(self, flavour, *arguments):
        if not shutil.which(f"mpirun.{flavour}"):
            self.skipTest(f"mpirun.{flavour} is not installed")
        for backend, name in (("auto", "shm"), ("mpi", "mpi"), ("gloo", "gloo")):
            done = subprocess.run([f"mpirun.{flavour}", "-np", "4", *arguments, RANK, "sum"], capture_output=True, text=True,
                                  timeout=60, env=dict(os.environ, HORON_BACKEND=backend))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout.count(f"sum 10 of 4 over {name}"), 4, done.stdout)
            self.assertIn("rank 3 of 4, started by mpirun", done.stdout)

    def test_open_mpi(self):
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        self.check("openmpi", "--oversubscribe", *root)

    def test_mpich(self):
        self.check("mpich")

    def test_horon_run_mpi_with_a_program_that_calls_both(self):
        if not os.path.exists(MPI_RANK) or not shutil.which("mpirun.openmpi"):
            self.skipTest("Open MPI is not installed")
        with tempfile.TemporaryDirectory() as folder:  # mpirun may be MPICH's by default
            os.symlink(shutil.which("mpirun.openmpi"), folder + "/mpirun")
            job = run("--mpi", "-np", "3", "-x", "CANARY", "sh", "-c",
                      f'echo rank $HORON_RANK/$HOROVOD_SIZE $CANARY; exec {MPI_RANK} mpi',
                      env={"PATH": folder + ":" + os.environ["PATH"], "CANARY": "sings"})
            self.assert_good(job)
            for rank in range(3):
                self.assertIn(f"[{rank}] rank {rank}/3 sings", job.out)
                self.assertIn(f"[{rank}] sum 6 of 3 over shm (mpi rank {rank} of 3)", job.out)
            for _ in range(5):  # mpirun may still be starting its ranks: it leaves them behind then
                job = self.start("--mpi", "-np", "2", "sleep", "1000", env={"PATH": folder + ":" + os.environ["PATH"]})
                wait_until(lambda: len(job.named("sleep")) == 2, 20, "ranks of mpirun")
                job.process.kill()
                job.process.wait()
                self.assert_gone(job)
            job = run("--mpi", "-np", "2", "sh", "-c", "exit 5", env={"PATH": folder + ":" + os.environ["PATH"]})
            self.assertEqual(job.status, 5, job.err)


    def test_the_line_of_a_dry_run_does_the_same_in_a_shell(self):
        for version in ("mpirun (Open MPI) 4.1.4", "HYDRA build details"):
            with self.subTest(version), tempfile.TemporaryDirectory() as folder:
                with open(folder + "/mpirun", "w") as file:  # writes down how it was called
                    file.write(f"#!{sys.executable}\nimport json, os, sys\n"
                               f"if sys.argv[1:] == ['--version']: sys.exit(print({version!r}))\n"
                               "named = {name: os.environ[name] for name in ('HORON_TIMEOUT', 'ODD')}\n"
                               f"json.dump([sys.argv, named], open({folder + '/called'!r}, 'w'))\n")
                os.chmod(folder + "/mpirun", 0o755)
                env = {"PATH": folder + ":" + os.environ["PATH"]}
                odd = "it's $HOME `x` \"y\"\n* \\ #"
                job = ["--mpi", "-np", "2", "--timeout", "5s", "-x", f"ODD={odd}", "./a program", "", odd, "~", "a;b", "--x=1"]
                self.assert_good(run(*job, env=env))
                real = json.loads(read(folder + "/called"))
                line = run("--dry-run", *job, env=env).out
                os.unlink(folder + "/called")
                # The shell that the line is pasted into has only what everybody has.
                subprocess.run(["sh", "-c", line], check=True, env=dict(os.environ, **env), timeout=30)
                self.assertEqual(json.loads(read(folder + "/called")), real)
                self.assertEqual(real[0][-6:], ["./a program", "", odd, "~", "a;b", "--x=1"])

    def test_long_lines_through_open_mpi_are_whole(self):
        if not shutil.which("mpirun.openmpi"):
            self.skipTest("Open MPI is not installed")
        size = 300_000
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(shutil.which("mpirun.openmpi"), folder + "/mpirun")
            job = run("--mpi", "-np", "2", "python3", "-c", f"import os; print(os.environ['HORON_RANK'] * {size})",
                      env={"PATH": folder + ":" + os.environ["PATH"]})
        self.assert_good(job)
        self.assertEqual(sorted(job.out.splitlines()), [f"[{rank}] " + str(rank) * size for rank in range(2)])

    def test_horon_run_mpi_interrupted(self):
        for flavour in ("openmpi", "mpich"):
            program = shutil.which(f"mpirun.{flavour}")
            if not program:
                continue
            with self.subTest(flavour), tempfile.TemporaryDirectory() as folder:
                with open(folder + "/mpirun", "w") as file:
                    file.write(f"#!/bin/sh\nexec {program} \"$@\"\n")
                os.chmod(folder + "/mpirun", 0o755)
                job = self.start("--mpi", "-np", "2", "sleep", "1000", env={"PATH": folder + ":" + os.environ["PATH"]})
                wait_until(lambda: len(job.named("sleep")) == 2, 20, "ranks of mpirun")
                job.process.send_signal(signal.SIGINT)
                job.finish(10)
                self.assertEqual(job.status, 75, job.err)
                self.assert_gone(job, 0.5)


@unittest.skipIf(NO_SLURM, NO_SLURM)
class Srun(LaunchTest):
    @classmethod
    def setUpClass(cls):
        try:
            cls.slurm = Slurm()
        except AssertionError as error:
            raise unittest.SkipTest(f"Slurm does not start here: {error}")

    @classmethod
    def tearDownClass(cls):
        cls.slurm.close()

    def test_four_tasks_find_each_other(self):
        for _ in range(2):
            done = self.slurm.srun("-n", "4", RANK, "sum")
            self.assertEqual(done.returncode, 0, done.stderr + self.slurm.logs())
            self.assertEqual(done.stdout.count("sum 10 of 4 over shm"), 4, done.stdout)
            self.assertIn("rank 2 of 4, started by srun", done.stdout)

    def test_with_a_secret_file(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([HORON, "secret", folder + "/secret"], check=True, stdout=subprocess.DEVNULL)
            done = self.slurm.srun("-n", "2", RANK, "sum", env={"HORON_SECRET_FILE": folder + "/secret"})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout.count("sum 3 of 2"), 2)


class TfConfig(LaunchTest):
    def test_workers_on_loopback_need_nothing_else(self):
        workers = [f"127.0.0.1:{free_port()}" for _ in range(3)]
        done = start_all([([RANK, "sum"], tf_config(workers, i)) for i in range(3)])
        for i, (status, out, err) in enumerate(done):
            self.assertEqual(status, 0, err)
            self.assertIn(f"sum 6 of 3 over shm (rank {i} of 3, worker of TF_CONFIG)", out)

    def test_a_chief_comes_first_and_a_ps_is_no_rank(self):
        chief, worker, server = (f"127.0.0.1:{free_port()}" for _ in range(3))
        more = {"chief": [chief], "ps": [server]}
        done = start_all([([RANK, "sum"], tf_config([worker], 0, "worker", **more)),
                          ([RANK, "sum"], tf_config([worker], 0, "chief", **more)),
                          ([RANK, "sum"], tf_config([worker], 0, "ps", **more))])
        self.assertIn("rank 1 of 2, worker", done[0][1])
        self.assertIn("rank 0 of 2, chief", done[1][1])
        self.assertEqual(done[2][0], 2)
        self.assertIn("only chief and worker take part", done[2][2])

    def test_a_missing_worker_is_named(self):
        workers = [f"127.0.0.1:{free_port()}" for _ in range(3)]
        done = start_all([([RANK, "sum"], dict(tf_config(workers, i), HORON_START_TIMEOUT="1s")) for i in (0, 2)])
        self.assertEqual(done[0][0], 10)
        self.assertIn("rank 1 did not come within 1s", done[0][2])

    @unittest.skipIf(NO_SPACES, NO_SPACES)
    def test_beyond_loopback_a_secret_is_demanded(self):
        hosts = Hosts(2)
        self.addCleanup(hosts.close)
        workers = [f"{hosts.address(i)}:4711" for i in range(2)]
        commands = [([*hosts.inside(i), RANK, "sum"], tf_config(workers, i)) for i in range(2)]
        for status, _, err in start_all(commands):
            self.assertEqual(status, 16, err)
            self.assertIn("horon secret", err)
        secrets = [hosts.path("secret"), hosts.path("other")]
        for path in secrets:
            subprocess.run([HORON, "secret", path], check=True, stdout=subprocess.DEVNULL)
        with_secret = [(argv, dict(env, HORON_SECRET_FILE=secrets[0])) for argv, env in commands]
        for status, out, err in start_all(with_secret):
            self.assertEqual(status, 0, err)
            self.assertIn("sum 3 of 2 over hier(shm+tcp)", out)
        # Yesterday's secret on one host: refused on both, and said so.
        mixed = [(argv, dict(env, HORON_SECRET_FILE=secrets[i], HORON_START_TIMEOUT="2s"))
                 for i, (argv, env) in enumerate(commands)]
        done = start_all(mixed)
        self.assertEqual(done[1][0], 16, done[1][2])
        self.assertIn("the secrets differ", done[1][2])
        self.assertEqual(done[0][0], 10, done[0][2])
        os.chmod(secrets[0], 0o644)
        self.assertIn("can be read by others", start_all([with_secret[0]])[0][2])
        insecure = [(argv, dict(env, HORON_INSECURE="1")) for argv, env in commands]
        for status, out, err in start_all(insecure):
            self.assertEqual(status, 0, err)
        self.assertIn("has no secret: anyone", err + start_all(insecure)[0][2])

    def test_a_taken_port_names_its_owner(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            workers = [f"127.0.0.1:{taken.getsockname()[1]}", f"127.0.0.1:{free_port()}"]
            status, _, err = start_all([([RANK, "sum"], tf_config(workers, 0))])[0]
            self.assertEqual(status, 15, err)
            self.assertIn(f"in use by process {os.getpid()}", err)


class ByHand(LaunchTest):
    def test_rank_size_rendezvous(self):
        where = f"127.0.0.1:{free_port()}"
        done = start_all([([RANK, "sum"], {"HORON_RANK": str(i), "HORON_SIZE": "3", "HORON_RENDEZVOUS": where})
                          for i in (2, 1, 0)])
        for status, out, err in done:
            self.assertEqual(status, 0, err)
            self.assertIn("sum 6 of 3 over shm", out)

    def begin(self, rank, where, folder):
        """One rank of two; all of a job's files are under `folder`."""
        env = dict(os.environ, HORON_RANK=str(rank), HORON_SIZE="2", HORON_RENDEZVOUS=where, TMPDIR=folder)
        env.pop("XDG_RUNTIME_DIR", None)
        process = subprocess.Popen([RANK, "sum"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    @staticmethod
    def secrets(folder):
        """Every text of 64 hexadecimal digits in files below a folder."""
        texts = [read(os.path.join(root, name)).decode() for root, _, names in os.walk(folder) for name in names]
        return {word for text in texts for word in text.split() if re.fullmatch("[0-9a-f]{64}", word)}

    def end_well(self, processes):
        for process in processes:
            out, err = process.communicate(timeout=30)
            self.assertEqual(process.returncode, 0, err)
            self.assertIn("sum 3 of 2", out)

    def test_each_job_has_a_secret_of_its_own(self):
        where = f"127.0.0.1:{free_port()}"
        seen = []
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(2):
                first = self.begin(0, where, folder)
                seen.append(wait_until(lambda: self.secrets(folder), 10, "the secret of a job that waits for rank 1"))
                self.end_well([first, self.begin(1, where, folder)])
                self.assertEqual(self.secrets(folder), set())  # it went when all had come
        self.assertFalse(seen[0] & seen[1])

    def test_what_a_killed_job_left_misleads_nobody(self):
        where = f"127.0.0.1:{free_port()}"
        with tempfile.TemporaryDirectory() as folder:
            killed = self.begin(0, where, folder)
            old = wait_until(lambda: self.secrets(folder), 10, "the secret of a job that waits for rank 1")
            killed.kill()
            killed.wait()
            self.assertEqual(self.secrets(folder), old)
            with socket.create_server(("127.0.0.1", int(where.split(":")[1]))) as nobody:
                early = self.begin(1, where, folder)  # finds the old one, and comes with it
                nobody.settimeout(10)
                nobody.accept()[0].close()
            self.end_well([self.begin(0, where, folder), early])
            self.assertEqual(self.secrets(folder), set())

    def test_a_second_job_at_the_same_address_harms_nobody(self):
        where = f"127.0.0.1:{free_port()}"
        with tempfile.TemporaryDirectory() as folder:
            first = self.begin(0, where, folder)
            wait_until(lambda: self.secrets(folder), 10, "the secret of a job that waits for rank 1")
            second = self.begin(0, where, folder)
            _, err = second.communicate(timeout=30)
            self.assertEqual(second.returncode, 15, err)
            self.end_well([first, self.begin(1, where, folder)])

    def test_a_job_that_fails_to_start_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            env = {"HORON_RANK": "0", "HORON_SIZE": "2", "HORON_RENDEZVOUS": f"127.0.0.1:{free_port()}", "TMPDIR": folder,
                   "HORON_START_TIMEOUT": "300ms", "XDG_RUNTIME_DIR": ""}
            status, _, err = start_all([([RANK, "sum"], env)])[0]
            self.assertEqual(status, 10, err)
            self.assertIn("rank 1 did not come within 300ms", err)
            self.assertEqual(self.secrets(folder), set())
            status, _, err = start_all([([RANK, "sum"], dict(env, HORON_RANK="1"))])[0]
            self.assertEqual(status, 10, err)
            self.assertIn("rank 0 did not come within 300ms", err)

    def test_incomplete_variables_are_an_error(self):
        for env, words in (({"HORON_RANK": "1"}, "go together"),
                           ({"HORON_RANK": "1", "HORON_SIZE": "2"}, "HORON_RENDEZVOUS is not"),
                           ({"HORON_RANK": "2", "HORON_SIZE": "2", "HORON_RENDEZVOUS": "a:1"}, "HORON_RANK"),
                           ({"HORON_RANK": "0", "HORON_SIZE": "2", "HORON_RENDEZVOUS": "a"}, "host:port")):
            status, _, err = start_all([([RANK, "sum"], env)])[0]
            self.assertEqual(status, 2, err)
            self.assertIn(words, err)


if __name__ == "__main__":
    main()
