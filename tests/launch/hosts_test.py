"""`horon run` over real sshd in network namespaces: three hosts on one machine."""
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
import unittest

from support import (HORON, RANK, SLACK, Hosts, Job, LaunchTest, comm, is_zombie, main, processes, read, run, wait_until,
                     why_no_namespaces)

REASON = why_no_namespaces()
HOSTS = None


def setUpModule():
    global HOSTS
    if not REASON:
        try:
            HOSTS = Hosts(3, names=["same", "same", "other"])
        except RuntimeError as error:
            raise unittest.SkipTest(f"no hosts out of namespaces here: {error}")


def tearDownModule():
    if HOSTS:
        HOSTS.close()


def spec(slots, *numbers):
    return ",".join(f"{HOSTS.address(i)}:{slots}" for i in numbers)


@unittest.skipIf(REASON, REASON)
class ThreeHosts(LaunchTest):
    def test_all_reduce_on_3_hosts_two_of_one_name(self):
        job = HOSTS.run("-np", "6", "-H", spec(2, 0, 1, 2), "sh", "-c",
                        f'echo on $(hostname) $HORON_RANK $HORON_LOCAL_RANK $HORON_CROSS_RANK; exec {RANK} sum')
        self.assert_good(job)
        self.assertEqual(job.out.count("sum 21 of 6 over hier(shm+tcp)"), 6)
        for rank in range(6):
            name = "same" if rank < 4 else "other"
            self.assertIn(f"[{rank}] on {name} {rank} {rank % 2} {rank // 2}\n", job.out)

    def test_uneven_hosts_are_counted_not_slots(self):
        job = HOSTS.run("-np", "4", "-H", f"{HOSTS.address(0)}:3,{HOSTS.address(1)}:1", "sh", "-c",
                        f"echo place $HORON_RANK: $HORON_CROSS_RANK of $HOROVOD_CROSS_SIZE; exec {RANK} topology")
        self.assert_good(job)
        for rank in range(4):
            host = rank // 3
            self.assertIn(f"[{rank}] place {rank}: {host} of 2\n", job.out)
            self.assertIn(f"[{rank}] rank {rank} of 4, local {rank % 3} of {3 - 2 * host}, cross {host} of 2\n", job.out)

    def test_ranks_only_elsewhere(self):
        job = HOSTS.run("-np", "4", "-H", spec(2, 1, 2), RANK, "sum")
        self.assert_good(job)
        self.assertEqual(job.out.count("sum 10 of 4 over hier(shm+tcp)"), 4)

    def test_ssh_to_this_very_host(self):
        job = HOSTS.run("-np", "2", "-H", f"root@{HOSTS.address(0)}:2", RANK, "sum")
        self.assert_good(job)
        self.assertEqual(job.out.count("sum 3 of 2 over shm"), 2)

    def test_variables_and_folder_travel_by_the_rule(self):
        with tempfile.TemporaryDirectory() as folder:
            job = HOSTS.run("-np", "1", "-H", spec(1, 1), "--workdir", folder, "-x", "MINE", "-x", "SET=a b", "sh", "-c",
                            "echo \"$PWD $PYTHONPATH $MINE $SET $AWS_SECRET_ACCESS_KEY.\"",
                            env={"PYTHONPATH": "/p", "MINE": "x'$(y)\"\nz", "AWS_SECRET_ACCESS_KEY": "never"})
            self.assert_good(job)
            self.assertIn(f"{folder} /p x'$(y)\"\n[0] z a b .", job.out)
        job = HOSTS.run("-np", "1", "-H", spec(1, 1), "--workdir", folder, "true")
        self.assertNotEqual(job.status, 0)
        self.assertIn(f"working folder {folder} is not there", job.err)

    def test_the_users_number_of_threads_counts_everywhere(self):
        job = HOSTS.run("-np", "2", "-H", spec(1, 0, 1), "sh", "-c", "echo threads $OMP_NUM_THREADS", env={"OMP_NUM_THREADS": "7"})
        self.assert_good(job)
        self.assertEqual(job.out.count("threads 7\n"), 2, job.out)
        cores = len(os.sched_getaffinity(0))
        job = HOSTS.run("-np", "2", "-H", spec(1, 0, 1), "sh", "-c", "echo threads $OMP_NUM_THREADS", env={"OMP_NUM_THREADS": None})
        self.assertEqual(job.out.count(f"threads {cores}\n"), 2, job.out)

    def test_dead_proxies_change_nothing(self):
        dead = {name: "http://192.0.2.1:9" for name in ("http_proxy", "https_proxy", "ALL_PROXY", "HORON_PROXY")}
        job = HOSTS.run("-np", "2", "-H", spec(1, 0, 1), RANK, "sum", env=dead, seconds=15)
        self.assert_good(job)

    def test_a_dead_rank_elsewhere_is_named(self):
        job = HOSTS.run("-np", "4", "-H", spec(2, 0, 1), "sh", "-c",
                        f"if [ $HORON_RANK = 3 ]; then echo last words >&2; kill -9 $$; fi; exec {RANK} until /no", seconds=20)
        self.assertEqual(job.status, 137, job.err)
        self.assertIn(f"rank 3 on {HOSTS.address(1)} was killed by signal 9", job.err)
        self.assertIn("    last words", job.err)


@unittest.skipIf(REASON, REASON)
class HostsThatFail(LaunchTest):
    def setUp(self):
        self.addCleanup(HOSTS.write_config, HOSTS.known)

    def test_unknown_and_changed_keys(self):
        other = read(HOSTS.path("host0.pub")).decode().split()
        changed = f"{HOSTS.address(2)} {other[0]} {other[1]}\n"
        HOSTS.write_config([changed])
        before = time.monotonic()
        job = HOSTS.run("-np", "3", "-H", spec(1, 0, 1, 2), RANK, "sum")
        self.assertLess(time.monotonic() - before, 5)
        self.assertEqual(job.status, 15, job.err)
        self.assertIn("2 of 3 host(s) failed", job.err)
        self.assertIn(f"{HOSTS.address(1)}: its host key is not known", job.err)
        self.assertIn(f"{HOSTS.address(2)}: its host key has changed", job.err)
        job = HOSTS.run("-np", "2", "-H", spec(1, 0, 2), "--ssh-accept-new", RANK, "sum")
        self.assertIn("its host key has changed", job.err)
        job = HOSTS.run("-np", "2", "-H", spec(1, 0, 1), "--ssh-accept-new", RANK, "sum")
        self.assert_good(job)

    def test_one_report_names_every_host_and_why(self):
        HOSTS.firewall(2, "-I", "INPUT", "-p", "tcp", "--dport", "22", "-j", "DROP")
        self.addCleanup(HOSTS.firewall, 2, "-D", "INPUT", "-p", "tcp", "--dport", "22", "-j", "DROP")
        HOSTS.firewall(1, "-I", "INPUT", "-p", "tcp", "--dport", "22", "-j", "REJECT", "--reject-with", "tcp-reset")
        self.addCleanup(HOSTS.firewall, 1, "-D", "INPUT", "-p", "tcp", "--dport", "22", "-j", "REJECT",
                        "--reject-with", "tcp-reset")
        before = time.monotonic()
        job = HOSTS.run("-np", "4", "-H", spec(1, 0, 1, 2) + ",no-such-host.invalid:1", "--start-timeout", "3", RANK, "sum")
        self.assertLess(time.monotonic() - before, 8)
        self.assertEqual(job.status, 15, job.err)
        self.assertIn("3 of 4 host(s) failed", job.err)
        self.assertIn(f"{HOSTS.address(1)}: connection refused", job.err)
        self.assertIn(f"{HOSTS.address(2)}: timed out", job.err)
        self.assertIn("no-such-host.invalid: no host of that name", job.err)

    def test_an_sshd_that_never_answers(self):
        os.kill(HOSTS.sshd[1].pid, signal.SIGSTOP)
        self.addCleanup(os.kill, HOSTS.sshd[1].pid, signal.SIGCONT)
        before = time.monotonic()
        job = HOSTS.run("-np", "2", "-H", spec(1, 0, 1), "--start-timeout", "2", RANK, "sum")
        self.assertLess(time.monotonic() - before, 7)
        self.assertEqual(job.status, 15, job.err)
        self.assertIn(f"{HOSTS.address(1)}: timed out", job.err)

    def assert_stops(self, job, seconds=2):
        """The first signal while hosts are waited for: 75, at once."""
        before = time.monotonic()
        os.kill([pid for pid in HOSTS.pids(0) if comm(pid) == "horon"][0], signal.SIGINT)
        job.finish(10)
        self.assertEqual(job.status, 75, job.err)
        self.assertLess(time.monotonic() - before, seconds * SLACK)
        self.assert_gone(job, 0.5)
        wait_until(lambda: not HOSTS.agents(), 5, "no agent left")

    def test_interrupted_while_one_of_three_hosts_is_waited_for(self):
        os.kill(HOSTS.sshd[1].pid, signal.SIGSTOP)
        self.addCleanup(os.kill, HOSTS.sshd[1].pid, signal.SIGCONT)
        job = HOSTS.job("-np", "3", "-H", spec(1, 0, 1, 2), RANK, "sum")
        self.addCleanup(job.close)
        wait_until(lambda: len(HOSTS.agents()) == 3, 10, "an agent here, agent and guardian there")
        self.assert_stops(job)
        self.assertIn("interrupted before any rank was started", job.err)

    def test_interrupted_while_a_name_is_looked_up(self):
        HOSTS.firewall(1, "-I", "INPUT", "-p", "udp", "--dport", "53", "-j", "DROP")
        self.addCleanup(HOSTS.firewall, 1, "-D", "INPUT", "-p", "udp", "--dport", "53", "-j", "DROP")
        with open(HOSTS.path("resolv.conf"), "w") as file:
            file.write(f"nameserver {HOSTS.address(1)}\noptions timeout:20 attempts:1\n")
        job = Job(["-np", "1", "-H", "silence.example:1", "true"],
                  prefix=[*HOSTS.inside(0), "unshare", "-m", "sh", "-c",
                          f"mount --bind {HOSTS.path('resolv.conf')} /etc/resolv.conf && exec \"$@\"", "sh"])
        self.addCleanup(job.close)
        wait_until(lambda: b":0035" in b"".join(read(f"/proc/{pid}/net/udp") for pid in HOSTS.pids(0)[:1]), 10,
                   "a question to the name server")
        self.assert_stops(job)

    def test_no_horon_there_or_another_version(self):
        job = HOSTS.run("-np", "1", "-H", spec(1, 1), "--remote-horon", "/no/such/horon", "true")
        self.assertEqual(job.status, 15, job.err)
        self.assertIn("no horon there: '/no/such/horon'", job.err)
        with tempfile.TemporaryDirectory() as folder:
            old = folder + "/horon"
            with open(old, "w") as file:
                file.write("#!/usr/bin/env python3\nimport struct, sys\n"
                           "text = lambda t: struct.pack('<I', len(t)) + t\n"
                           "hello = bytes([0]) + text(b'0.0.1') + text(b'host') + text(b'')\n"
                           "print('welcome to this machine')\nsys.stdout.flush()\n"
                           "sys.stdout.buffer.write(b'\\nHORON-AGENT-1\\n' + struct.pack('<I', len(hello)) + hello)\n"
                           "sys.stdout.flush()\nsys.stdin.read()\n")
            os.chmod(old, 0o755)
            job = HOSTS.run("-np", "1", "-H", spec(1, 1), "--remote-horon", old, "true")
            self.assertEqual(job.status, 15, job.err)
            self.assertIn("horon 0.0.1 is there", job.err)

    def test_a_talkative_login_shell_is_only_noise(self):
        with tempfile.TemporaryDirectory() as folder:
            loud = folder + "/horon"
            with open(loud, "w") as file:
                file.write(f"#!/bin/sh\necho welcome; echo; echo HORON-AGENT-0\nexec {HORON} agent\n")
            os.chmod(loud, 0o755)
            job = HOSTS.run("-np", "2", "-H", spec(1, 0, 1), "--remote-horon", loud, RANK, "sum")
            self.assert_good(job)


@unittest.skipIf(REASON, REASON)
class ThroughMpirun(LaunchTest):
    """`horon run --mpi` over several hosts: three ranks on the first, one on the second."""

    def run_mpi(self, flavour, *arguments, folder):
        program = shutil.which(f"mpirun.{flavour}")
        if not program:
            self.skipTest(f"mpirun.{flavour} is not installed")
        with open(folder + "/mpirun", "w") as file:  # MPICH's looks for its parts where it was called
            file.write(f"#!/bin/sh\nexec {program} \"$@\"\n")
        os.chmod(folder + "/mpirun", 0o755)
        return run("--mpi", "-np", "4", "-H", f"{HOSTS.address(0)}:3,{HOSTS.address(2)}:1", "--network-interfaces", "eth0", *arguments,
                   prefix=HOSTS.inside(0), env={"PATH": folder + ":" + os.environ["PATH"], "OMP_NUM_THREADS": None})

    def check(self, flavour):
        for i in (0, 2):  # only the other port leads to sshd
            rule = ("INPUT", "-p", "tcp", "--dport", "22", "-j", "REJECT", "--reject-with", "tcp-reset")
            HOSTS.firewall(i, "-I", *rule)
            self.addCleanup(HOSTS.firewall, i, "-D", *rule)
        with tempfile.TemporaryDirectory() as folder:
            # No key and no known host in the configuration: those come from flags.
            with open(folder + "/config", "w") as file:
                file.write(f"UserKnownHostsFile {folder}/known\nGlobalKnownHostsFile /dev/null\nIdentitiesOnly yes\n"
                           "IdentityFile /dev/null\nLogLevel ERROR\n")
            job = self.run_mpi(flavour, "--ssh-config", folder + "/config", "-p", "2222", "-i", HOSTS.path("user"),
                               "--ssh-accept-new", "sh", "-c",
                               f"echo place $HORON_RANK: $HORON_CROSS_RANK of $HOROVOD_CROSS_SIZE; exec env ASAN_OPTIONS=detect_leaks=0 {RANK} topology",  # leaks are MPI's own
                               folder=folder)
            self.assert_good(job)
            for rank in range(4):
                host = rank // 3
                self.assertIn(f"[{rank}] place {rank}: {host} of 2\n", job.out)
                self.assertIn(f"[{rank}] rank {rank} of 4, local {rank % 3} of {3 - 2 * host}, cross {host} of 2\n", job.out)

    def test_open_mpi(self):
        self.check("openmpi")

    def test_mpich(self):
        self.check("mpich")

    def test_a_path_that_mpirun_would_cut_is_refused(self):
        for flavour in ("openmpi", "mpich"):
            with self.subTest(flavour), tempfile.TemporaryDirectory() as folder:
                key = folder + "/my own key"
                open(key, "w").close()
                job = self.run_mpi(flavour, "-i", key, "true", folder=folder)
                self.assertEqual(job.status, 2, job.err)
                self.assertEqual(job.err.strip(), f"horon: --mpi: mpirun cannot give ssh an argument with a space: '{key}'")


@unittest.skipIf(REASON, REASON)
class NothingIsLeft(LaunchTest):
    def begin(self):
        script = "sleep 1000 & (setsid sleep 1001 &); echo up; wait"
        job = HOSTS.job("-np", "6", "-H", spec(2, 0, 1, 2), "bash", "-c", script)
        self.addCleanup(job.close)
        wait_until(lambda: len(job.named("sleep")) == 12, 20, "ranks and their children on all hosts")
        return job

    def assert_all_gone(self, job):
        self.assert_gone(job)
        wait_until(lambda: not HOSTS.agents(), 5, "no agent left")

    def elsewhere(self, name):
        return [pid for pid in HOSTS.pids(1) if comm(pid) == name]

    def test_nothing_is_left_when_a_rank_is_killed(self):
        job = self.begin()
        os.kill([pid for pid in HOSTS.pids(1) if comm(pid) == "bash"][0], signal.SIGKILL)
        job.finish(10)
        self.assertEqual(job.status, 137, job.err)
        self.assert_all_gone(job)

    def test_nothing_is_left_when_a_remote_agent_is_killed(self):
        job = self.begin()
        os.kill(self.elsewhere("horon-agent")[0], signal.SIGKILL)
        job.finish(12)
        self.assertEqual(job.status, 15, job.err)
        self.assertIn(f"{HOSTS.address(1)}: its agent", job.err)
        self.assert_all_gone(job)

    def test_nothing_is_left_when_a_remote_guardian_is_killed(self):
        job = self.begin()
        os.kill(self.elsewhere("horon-guard")[0], signal.SIGKILL)
        job.finish(12)
        self.assert_all_gone(job)

    def test_nothing_is_left_when_the_local_agent_is_killed(self):
        job = self.begin()
        os.kill([pid for pid in HOSTS.pids(0) if comm(pid) == "horon-agent"][0], signal.SIGKILL)
        job.finish(12)
        self.assert_all_gone(job)

    def test_nothing_is_left_when_ssh_is_killed(self):
        job = self.begin()
        os.kill(job.named("ssh")[0], signal.SIGKILL)
        job.finish(12)
        self.assertEqual(job.status, 15, job.err)
        self.assert_all_gone(job)

    def test_nothing_is_left_when_the_launcher_is_killed(self):
        job = self.begin()
        os.kill([pid for pid in HOSTS.pids(0) if comm(pid) == "horon"][0], signal.SIGKILL)
        job.process.wait()
        self.assert_all_gone(job)

    def test_nothing_is_left_after_sigterm(self):
        job = self.begin()
        os.kill([pid for pid in HOSTS.pids(0) if comm(pid) == "horon"][0], signal.SIGTERM)
        job.finish(10)
        self.assertEqual(job.status, 75, job.err)
        self.assert_all_gone(job)


@unittest.skipIf(REASON, REASON)
class Networks(LaunchTest):
    def test_two_networks_one_of_them_dead(self):
        hosts = Hosts(2, networks=2)
        self.addCleanup(hosts.close)
        for i in range(2):  # the first network, 10.77, swallows everything
            for chain in ("INPUT", "OUTPUT"):
                hosts.firewall(i, "-A", chain, "-p", "tcp", "-d" if chain == "OUTPUT" else "-s", "10.77.0.0/24", "-j", "DROP")
        targets = f"{hosts.address(0, 1)}:1,{hosts.address(1, 1)}:1"
        job = hosts.run("-np", "2", "-H", targets, "--start-timeout", "5", RANK, "sum", seconds=30)
        self.assert_good(job)
        self.assertEqual(job.out.count("sum 3 of 2 over hier(shm+tcp)"), 2)

    def test_only_the_chosen_addresses_are_listened_on(self):
        with tempfile.TemporaryDirectory() as folder:
            job = HOSTS.job("-np", "3", "-H", spec(1, 0, 1, 2), RANK, "until", folder + "/stop")
            self.addCleanup(job.close)
            job.wait_for_output("running")
            seen = set()
            for i in range(3):
                text = subprocess.run(["ip", "netns", "exec", HOSTS.space(i), "ss", "-Htln"], capture_output=True,
                                      text=True).stdout
                seen |= {(i, line.split()[3].rsplit(":", 1)[0]) for line in text.splitlines()
                         if not line.split()[3].endswith((":22", ":2222"))}  # sshd
            # The store, on the two addresses that ranks use, and each rank, on the address of its host.
            self.assertEqual(seen, {(0, "127.0.0.1")} | {(i, HOSTS.address(i)) for i in range(3)})
            open(folder + "/stop", "w").close()
            self.assert_good(job.finish(10))


def hostile_texts(target):
    """60 texts that would run `touch target` wherever somebody gave them to a shell or to ssh."""
    touch = f"touch {target}"
    texts = [f"$({touch})", f"`{touch}`", f";{touch}", f"&& {touch}", f"| {touch}", f"|| {touch}", f"\n{touch}\n",
             f"-oProxyCommand={touch}", f"-oLocalCommand={touch}", f"-oPermitLocalCommand=yes", f"-F/dev/null -oProxyCommand={touch}",
             f"a -oProxyCommand={touch}", f"a;{touch}", f"a`{touch}`", f"a$({touch})", f"a|{touch}", f"a&{touch}",
             f"'; {touch}; '", f"\"; {touch}; \"", f"\\; {touch}", f"${{IFS}}{touch}", f"$'\\n'{touch}", f">{target}", f"<({touch})",
             f"a>{target}", f"a:1;{touch}", f"a:$({touch})", f"a:1`{touch}`", f"[$({touch})]:1", f"[::1];{touch}",
             f"root@$({touch})", f"-oProxyCommand={touch}@a", f"user`{touch}`@a", f"a@b;{touch}", "%n", "%h", "%%", "a%h",
             f"() {{ :;}}; {touch}", f"a\0{touch}".replace("\0", "\x01"), f"a\r{touch}", f"a\t{touch}", f"../../bin/sh -c '{touch}'",
             f"/bin/sh", f"sh -c '{touch}'", f"!{touch}", f"~/{target}", f"~root", f"*", f"?", f"a{{b,c}}", f"#{touch}", f"a#b",
             f"=(){touch}", f"@({touch})", f"\u202e{touch}", f"a\u00a0{touch}", f"--", f"---{touch}", f"-e sh -c {touch}"]
    assert len(texts) >= 60, len(texts)
    return texts


@unittest.skipIf(REASON, REASON)
class Hostile(LaunchTest):
    def test_60_host_strings(self):
        with tempfile.TemporaryDirectory() as folder:
            target = folder + "/ran"
            for text in hostile_texts(target):
                with self.subTest(text):
                    job = run("-np", "1", f"-H{text}", "--start-timeout", "1", "true", seconds=10)
                    self.assertIn(job.status, (2, 15), f"{job.status} {job.err}")
                    self.assertFalse(os.path.exists(target))
                    hostfile = folder + "/hosts"
                    with open(hostfile, "w") as file:
                        file.write(text + " slots=1\n")
                    job = run("-np", "1", "--hostfile", hostfile, "--start-timeout", "1", "true", seconds=10)
                    self.assertIn(job.status, (2, 15), f"{job.status} {job.err}")
                    self.assertFalse(os.path.exists(target))

    def test_60_values_of_variables_and_arguments(self):
        with tempfile.TemporaryDirectory() as folder:
            target = folder + "/ran"
            texts = hostile_texts(target)
            env = {f"HORON_EVIL_{i}": text for i, text in enumerate(texts)}
            script = ("import os, sys\nfor i, text in enumerate(sys.argv[1:]):\n"
                      "    assert os.environ[f'HORON_EVIL_{i}'] == text, (i, text)\nprint('all the same', len(sys.argv) - 1)\n")
            job = HOSTS.run("-np", "2", "-H", spec(1, 0, 1), "python3", "-c", script, *texts, env=env)
            self.assert_good(job)
            self.assertEqual(job.out.count(f"all the same {len(texts)}"), 2)
            self.assertFalse(os.path.exists(target))


@unittest.skipIf(REASON, REASON)
class Secrets(LaunchTest):
    def test_canary_and_secret_stay_hidden_on_all_hosts(self):
        canary = "canary-77c2-over-ssh"
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            job = HOSTS.job("-np", "3", "-H", spec(1, 0, 1, 2), "--verbose", "-x", "CANARY", RANK, "until", folder + "/stop",
                            env={"CANARY": canary, "HORON_CANARY": canary})
            self.addCleanup(job.close)
            job.wait_for_output("running")
            files = set()
            for pid in job.named("horon_launch_ra"):
                for pair in read(f"/proc/{pid}/environ").split(b"\0"):
                    if pair.startswith(b"HORON_SECRET_FILE="):
                        files.add(pair.split(b"=", 1)[1].decode())
            self.assertEqual(len(files), 3)
            secrets = {read(path).decode().strip() for path in files}
            self.assertEqual(len(secrets), 1)
            secret = secrets.pop()
            for path in files:
                self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
                self.assertEqual(stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode), 0o700)
            for pid in processes(lambda pid: True):
                line = read(f"/proc/{pid}/cmdline").decode(errors="replace")
                self.assertNotIn(canary, line)
                self.assertNotIn(secret, line)
                self.assertNotIn(secret, read(f"/proc/{pid}/environ").decode(errors="replace"))
            open(folder + "/stop", "w").close()
            self.assert_good(job.finish(10))
            self.assertNotIn(canary, job.out + job.err)
            self.assertNotIn(secret, job.out + job.err)
            for path in files:
                self.assertFalse(os.path.exists(path))


if __name__ == "__main__":
    main()
