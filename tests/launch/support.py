"""What the launch tests share: starting the launcher, finding its processes, hosts made of namespaces."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

BIN = os.environ["HORON_BIN"]
HORON = os.path.join(BIN, "horon")
RANK = os.path.join(BIN, "horon_launch_rank")
MPI_RANK = os.path.join(BIN, "horon_launch_mpi_rank")
SLACK = float(os.environ.get("HORON_TEST_SLACK", "1"))  # sanitizers make everything slower


def wait_until(condition, seconds, what):
    """Polls; the condition may return a value, which is returned."""
    end = time.monotonic() + seconds * SLACK
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.01)


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def processes(test):
    """Ids of processes for which test(pid) holds."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid() and test(int(name)):
            found.append(int(name))
    return found


def is_zombie(pid):
    stat = read(f"/proc/{pid}/stat").decode(errors="replace")
    return not stat or stat[stat.rfind(")") + 2] == "Z"


def comm(pid):
    return read(f"/proc/{pid}/comm").decode(errors="replace").strip()


class Job:
    """One `horon run`. Everything that it starts carries a mark in its environment."""

    def __init__(self, arguments, env=None, prefix=(), **options):
        self.mark = uuid.uuid4().hex
        variables = dict(os.environ, HORON_TEST_MARK=self.mark, **(env or {}))
        variables = {name: value for name, value in variables.items() if value is not None}
        self.process = subprocess.Popen([*prefix, HORON, "run", *arguments], env=variables, text=True,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, start_new_session=True, **options)

    def finish(self, seconds=60):
        try:
            out, err = self.process.communicate(timeout=seconds * SLACK)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
            raise AssertionError(f"still running after {seconds} s\n{out}\n{err}")
        self.out, self.err, self.status = out, err, self.process.returncode
        return self

    def marked(self):
        mark = f"HORON_TEST_MARK={self.mark}".encode()
        return processes(lambda pid: mark in read(f"/proc/{pid}/environ") and not is_zombie(pid))

    def named(self, name):
        return [pid for pid in self.marked() if comm(pid) == name]

    def blocks(self, number):
        """Whether the launcher has taken a signal over."""
        for line in read(f"/proc/{self.process.pid}/status").decode().splitlines():
            if line.startswith("SigBlk") or line.startswith("SigCgt"):
                if int(line.split()[1], 16) >> (number - 1) & 1:
                    return True
        return False

    def wait_for_output(self, text, seconds=20):
        """Reads stdout until a line holds the text."""
        lines = []
        while True:
            line = self.process.stdout.readline()
            if not line:
                raise AssertionError(f"ended before '{text}':\n{''.join(lines)}{self.process.stderr.read()}")
            lines.append(line)
            if text in line:
                return lines

    def close(self):
        for pid in self.marked():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.stdout.close()
        self.process.stderr.close()
        self.process.wait()


def run(*arguments, env=None, seconds=60, **options):
    job = Job(arguments, env, **options)
    try:
        return job.finish(seconds)
    finally:
        job.close()


def why_no_namespaces():
    """Empty if network namespaces and sshd can be used here."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "unshare", "sshd", "ssh", "ssh-keygen", "iptables"):
        if not shutil.which(program, path="/usr/sbin:/sbin:" + os.environ.get("PATH", "")):
            return f"{program} is not installed"
    name = f"horon-try-{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], stderr=subprocess.DEVNULL).returncode:
        return "this machine does not allow network namespaces"
    usable = subprocess.run(["ip", "netns", "exec", name, "true"], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", name])
    return f"no command runs in a network namespace here: {usable.stderr.strip()}" if usable.returncode else ""


def sh(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


class Hosts:
    """Hosts on one machine: a network namespace each, on one bridge, with a host name and an sshd."""
    made_so_far = 0

    def __init__(self, count, names=None, networks=1):
        Hosts.made_so_far += 1
        self.tag = f"h{os.getpid() % 100000}{chr(96 + Hosts.made_so_far)}"
        self.folder = tempfile.mkdtemp(prefix="horon-hosts-")
        self.count = count
        self.names = names or [f"node{i + 1}" for i in range(count)]
        self.sshd = []
        self.made = []
        try:
            for network in range(networks):
                self.make_network(network)
            self.make_keys()
            for i in range(count):
                self.start_sshd(i)
        except Exception:
            self.close()
            raise

    def space(self, i):
        return f"{self.tag}n{i}"

    def address(self, i, network=0):
        return f"10.{77 + network}.0.{i + 1}"

    def make_network(self, network):
        switch = f"{self.tag}s{network}"
        sh("ip", "netns", "add", switch)
        self.made.append(switch)
        sh("ip", "netns", "exec", switch, "ip", "link", "add", "br0", "type", "bridge")
        sh("ip", "netns", "exec", switch, "ip", "link", "set", "br0", "up")
        for i in range(self.count):
            if network == 0:
                sh("ip", "netns", "add", self.space(i))
                self.made.append(self.space(i))
                sh("ip", "netns", "exec", self.space(i), "ip", "link", "set", "lo", "up")
            sh("ip", "link", "add", f"eth{network}", "netns", self.space(i), "type", "veth",
               "peer", f"p{i}", "netns", switch)
            sh("ip", "netns", "exec", switch, "ip", "link", "set", f"p{i}", "master", "br0", "up")
            sh("ip", "netns", "exec", self.space(i), "ip", "addr", "add",
               f"{self.address(i, network)}/24", "dev", f"eth{network}")
            sh("ip", "netns", "exec", self.space(i), "ip", "link", "set", f"eth{network}", "up")

    def path(self, name):
        return os.path.join(self.folder, name)

    def make_keys(self):
        sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.path("user"))
        known = []
        for i in range(self.count):
            sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.path(f"host{i}"))
            key = read(self.path(f"host{i}.pub")).decode().split()
            known.append(f"{self.address(i)},{self.address(i, 1)} {key[0]} {key[1]}\n")
        self.known = known
        self.write_config(known)

    def write_config(self, known):
        with open(self.path("known_hosts"), "w") as file:
            file.writelines(known)
        with open(self.path("ssh_config"), "w") as file:
            file.write(f"UserKnownHostsFile {self.path('known_hosts')}\nGlobalKnownHostsFile /dev/null\n"
                       f"IdentityFile {self.path('user')}\nIdentitiesOnly yes\n")

    def start_sshd(self, i):
        os.makedirs("/run/sshd", exist_ok=True)
        config = self.path(f"sshd{i}")
        with open(config, "w") as file:
            file.write(f"HostKey {self.path(f'host{i}')}\nAuthorizedKeysFile {self.path('user.pub')}\n"
                       "StrictModes no\nPermitRootLogin prohibit-password\nUsePAM no\nPidFile none\n"
                       "PasswordAuthentication no\nMaxStartups 100\nPort 22\nPort 2222\n")
        with open(self.path(f"sshd{i}.log"), "w") as log:
            self.sshd.append(subprocess.Popen([*self.inside(i), "/usr/sbin/sshd", "-D", "-e", "-f", config],
                                              stderr=log, start_new_session=True))
        wait_until(lambda: b"listening" in read(self.path(f"sshd{i}.log")), 10, f"sshd {i}")

    def inside(self, i):
        """Prefix of a command that runs on host i, under its name."""
        return ["ip", "netns", "exec", self.space(i), "unshare", "-u", "sh", "-c",
                f"hostname {self.names[i]}; exec \"$@\"", "sh"]

    def run(self, *arguments, at=0, env=None, seconds=60):
        return run("--ssh-config", self.path("ssh_config"), *arguments, env=env, seconds=seconds,
                   prefix=self.inside(at))

    def job(self, *arguments, at=0, env=None):
        return Job(["--ssh-config", self.path("ssh_config"), *arguments], env, prefix=self.inside(at))

    def pids(self, i):
        return [int(pid) for pid in sh("ip", "netns", "pids", self.space(i)).split()]

    def agents(self):
        """Processes of agents on all hosts."""
        return [pid for i in range(self.count) for pid in self.pids(i)
                if comm(pid) in ("horon-agent", "horon-guard") and not is_zombie(pid)]

    def firewall(self, i, *rule):
        sh("ip", "netns", "exec", self.space(i), "iptables", "-w", *rule)

    def close(self):
        for process in self.sshd:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for space in self.made:
            for pid in sh("ip", "netns", "pids", space).split():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            subprocess.run(["ip", "netns", "del", space], stderr=subprocess.DEVNULL)
        shutil.rmtree(self.folder, ignore_errors=True)


class LaunchTest(unittest.TestCase):
    def assert_good(self, job):
        self.assertEqual(job.status, 0, f"stdout:\n{job.out}\nstderr:\n{job.err}")

    def start(self, *arguments, env=None, **options):
        job = Job(arguments, env, **options)
        self.addCleanup(job.close)
        return job

    def assert_gone(self, job, seconds=5):
        wait_until(lambda: not job.marked(), seconds,
                   f"no process left; there are {[(pid, comm(pid)) for pid in job.marked()]}")


def main():
    """Skips as a whole where the machine lacks something: exit status 77 and the reason."""
    program = unittest.main(exit=False, verbosity=2)
    result = program.result
    if result.skipped and result.testsRun == len(result.skipped):
        print("skipped:", result.skipped[0][1])
        sys.exit(77)
    sys.exit(0 if result.wasSuccessful() else 1)
