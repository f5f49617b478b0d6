"""A Slurm of one node, for the time of a test."""
import os
import shutil
import signal
import socket
import subprocess
import tempfile

from support import read, wait_until


def why_no_slurm():
    if os.geteuid() != 0:
        return "slurmd needs root"
    for program in ("slurmctld", "slurmd", "srun", "munged", "sinfo"):
        if not shutil.which(program, path="/usr/sbin:/sbin:" + os.environ.get("PATH", "")):
            return f"{program} is not installed (Debian: slurm-wlm)"
    return ""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Slurm:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="horon-slurm-")
        os.chmod(self.folder, 0o755)
        self.daemons = []
        try:
            self.start_munge()
            self.write_config()
            self.spawn("slurmctld", "-D", "-c")
            self.spawn("slurmd", "-D", "-N", self.node)
            wait_until(self.is_up, 30, f"a node that is idle: {self.sinfo()}\n{self.logs()}")
        except Exception:
            self.close()
            raise

    def path(self, name):
        return os.path.join(self.folder, name)

    @property
    def env(self):
        return dict(os.environ, SLURM_CONF=self.path("slurm.conf"), PATH="/usr/sbin:" + os.environ["PATH"])

    def start_munge(self):
        os.mkdir(self.path("munge"), 0o711)
        with open(self.path("munge/key"), "wb") as file:
            file.write(os.urandom(128))
        os.chmod(self.path("munge/key"), 0o600)
        self.spawn("munged", "--foreground", "--force", "--key-file", self.path("munge/key"),
                   "--socket", self.path("munge/socket"), "--pid-file", self.path("munge/pid"),
                   "--log-file", self.path("munge/log"), "--seed-file", self.path("munge/seed"))
        wait_until(lambda: os.path.exists(self.path("munge/socket")), 10, "munged")

    def write_config(self):
        self.node = socket.gethostname().split(".")[0]
        for name in ("state", "spool"):
            os.mkdir(self.path(name))
        with open(self.path("slurm.conf"), "w") as file:
            file.write(f"""ClusterName=test
SlurmctldHost={self.node}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={self.path('munge/socket')}
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
StateSaveLocation={self.path('state')}
SlurmdSpoolDir={self.path('spool')}
SlurmctldPidFile={self.path('slurmctld.pid')}
SlurmdPidFile={self.path('slurmd.pid')}
SlurmctldLogFile={self.path('slurmctld.log')}
SlurmdLogFile={self.path('slurmd.log')}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
NodeName={self.node} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
""")

    def spawn(self, *command):
        with open(self.path(f"{command[0]}.out"), "w") as log:
            self.daemons.append(subprocess.Popen(command, env=self.env, stdout=log, stderr=subprocess.STDOUT,
                                                 start_new_session=True))

    def sinfo(self):
        done = subprocess.run(["sinfo", "-h", "-o", "%t"], env=self.env, capture_output=True, text=True)
        return done.stdout + done.stderr

    def is_up(self):
        for daemon in self.daemons:
            if daemon.poll() is not None:
                raise AssertionError(f"{daemon.args[0]} ended: {self.logs()}")
        return "idle" in self.sinfo()

    def logs(self):
        return b"\n".join(read(self.path(name))[-2000:] for name in ("slurmctld.log", "slurmd.log", "slurmd.out", "slurmctld.out")).decode()

    def srun(self, *command, env=None):
        return subprocess.run(["srun", *command], env=dict(self.env, **(env or {})), capture_output=True, text=True,
                              timeout=60)

    def close(self):
        for daemon in reversed(self.daemons):
            try:
                os.killpg(daemon.pid, signal.SIGTERM)
                daemon.wait(5)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(daemon.pid, signal.SIGKILL)
                daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
