"""Connections between hosts: how many, what is encrypted, and what a cut or slow network does."""
import os
import subprocess
import tempfile
import unittest

from support import RANK, Hosts, LaunchTest, main, wait_until, why_no_namespaces

REASON = why_no_namespaces()


def connections(hosts, i):
    """Of each process on host i: how many connections with other hosts' ranks it has."""
    own = hosts.address(i)
    text = subprocess.run(["ip", "netns", "exec", hosts.space(i), "ss", "-Htnp", "state", "established"],
                          capture_output=True, text=True).stdout
    found = {}
    for line in text.splitlines():
        local, peer = (address.rsplit(":", 1)[0] for address in line.split()[2:4])
        if "horon_launch_ra" in line and peer != own and local == own:
            pid = line.split("pid=")[1].split(",")[0]
            found[pid] = found.get(pid, 0) + 1
    return found


@unittest.skipIf(REASON, REASON)
class TwoHosts(LaunchTest):
    @classmethod
    def setUpClass(cls):
        cls.hosts = Hosts(2)
        cls.addClassCleanup(cls.hosts.close)
        cls.targets = f"{cls.hosts.address(0)}:1,{cls.hosts.address(1)}:1"

    def sum(self, **env):
        return self.hosts.run("-np", "2", "-H", self.targets, RANK, "sum", env=env)

    def test_what_is_not_encrypted_is_refused_or_said_once(self):
        with self.subTest("asked for"):
            job = self.sum(HORON_CROSS_BACKEND="gloo", HORON_WIRE="private")
            self.assertEqual(job.status, 2, job.err)
            self.assertIn("--wire private: gloo does not encrypt", job.err)
        with self.subTest("by default"):
            job = self.sum(HORON_CROSS_BACKEND="gloo")
            self.assert_good(job)
            self.assertEqual(job.err.count("gloo does not encrypt"), 1, job.err)
        with self.subTest("not wanted"):
            job = self.sum(HORON_CROSS_BACKEND="gloo", HORON_WIRE="plain")
            self.assert_good(job)
            self.assertNotIn("encrypt", job.err)
        with self.subTest("tcp"):
            job = self.sum(HORON_WIRE="private")
            self.assert_good(job)
            self.assertEqual(job.out.count("over hier(shm+tcp)"), 2)

    def test_a_cut_network_ends_the_job_on_both_hosts(self):
        with tempfile.TemporaryDirectory() as folder:
            # The memory of messages that were given up is left to them: a leak on purpose.
            job = self.hosts.job("-np", "2", "-H", self.targets, RANK, "until", folder + "/never",
                                 env={"HORON_TIMEOUT": "2s", "ASAN_OPTIONS": "detect_leaks=0"})
            self.addCleanup(job.close)
            job.wait_for_output("running")
            ranks = lambda: job.named("horon_launch_ra")
            self.assertEqual(len(ranks()), 2)
            for chain, end in (("INPUT", "-s"), ("OUTPUT", "-d")):
                self.hosts.firewall(1, "-A", chain, end, self.hosts.address(0), "-j", "DROP")
                self.addCleanup(self.hosts.firewall, 1, "-D", chain, end, self.hosts.address(0), "-j", "DROP")
            job.finish(30)
            self.assertEqual(job.status, 10, job.err)
            self.assertIn("rank", job.err)
            wait_until(lambda: not ranks(), 30, "no rank left")

    def test_a_slow_link_is_no_failure(self):
        for i in range(2):
            subprocess.run(["ip", "netns", "exec", self.hosts.space(i), "tc", "qdisc", "add", "dev", "eth0", "root",
                            "tbf", "rate", "5mbit", "burst", "16kb", "latency", "500ms"], check=True)
            self.addCleanup(subprocess.run, ["ip", "netns", "exec", self.hosts.space(i), "tc", "qdisc", "del", "dev",
                                             "eth0", "root"])
        # Four seconds for 2 MB: longer than the time limit, which counts from the last progress.
        job = self.hosts.run("-np", "2", "-H", self.targets, RANK, "large", env={"HORON_TIMEOUT": "2s"})
        self.assert_good(job)
        self.assertEqual(job.out.count("large over hier(shm+tcp)"), 2)


@unittest.skipIf(REASON, REASON)
class ManyRanks(LaunchTest):
    # Eight ranks on each of eight hosts: each has a peer on every other host.
    def test_64_ranks_hold_seven_connections_each(self):
        hosts = Hosts(8)
        self.addCleanup(hosts.close)
        targets = ",".join(f"{hosts.address(i)}:8" for i in range(8))
        with tempfile.TemporaryDirectory() as folder:
            job = hosts.job("-np", "64", "-H", targets, RANK, "until", folder + "/stop")
            self.addCleanup(job.close)
            job.wait_for_output("running", 60)
            wait_until(lambda: len(job.named("horon_launch_ra")) == 64, 30, "64 ranks")
            counts = []
            for i in range(8):
                counts += connections(hosts, i).values()
            self.assertEqual(len(counts), 64)
            # And one with the store, which is on the first host: its own ranks reach that on loopback.
            self.assertLessEqual(max(counts), 8, counts)
            open(folder + "/stop", "w").close()
            self.assert_good(job.finish(60))


if __name__ == "__main__":
    main()
