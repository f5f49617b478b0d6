"""Whoever does not have the job's secret can neither join a job, nor stop it, nor read it."""
import os
import re
import resource
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest

from support import RANK, SLACK, LaunchTest, main, read, wait_until

COUNT = 10_000
resource.setrlimit(resource.RLIMIT_NOFILE, (min(20_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) +
                   resource.getrlimit(resource.RLIMIT_NOFILE)[1:])


def listening(pids):
    """Ports on loopback that these processes listen on."""
    sockets = set()
    for pid in pids:
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                sockets.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            pass
    ports = set()
    for line in read("/proc/net/tcp").decode().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
            ports.add(int(words[1].split(":")[1], 16))
    return ports


def client_hello(secret=None):
    """The first bytes of a TLS client that does not know the job's key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


class Recorder:
    """Between a rank and the store: remembers what the rank sent first."""

    def __init__(self, port):
        self.port = port
        self.said = b""
        self.server = socket.create_server(("127.0.0.1", 0))
        self.where = f"127.0.0.1:{self.server.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            client, _ = self.server.accept()
            upstream = socket.create_connection(("127.0.0.1", self.port))
            threading.Thread(target=self.pump, args=(client, upstream, True), daemon=True).start()
            threading.Thread(target=self.pump, args=(upstream, client, False), daemon=True).start()

    def pump(self, source, target, keep):
        while True:
            data = source.recv(65536)
            if not data:
                target.close()
                return
            if keep:
                self.said += data
            target.sendall(data)


def crowd(port, replay):
    """COUNT connections of six kinds, as fast as one process can make them; how many made it."""
    hello = client_hello()
    kinds = [b"", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", os.urandom(700), hello[:20], hello, replay]
    kept, made = [], 0
    for i in range(COUNT):
        connection = socket.socket()
        connection.setblocking(False)
        connection.connect_ex(("127.0.0.1", port))
        kept.append((connection, kinds[i % len(kinds)]))
        if len(kept) >= 500:  # these 500 have had the time to be accepted; say something, go on
            for other, words in kept:
                try:
                    if words:
                        other.send(words)
                    made += 1
                except OSError:
                    pass
            silent = [entry for entry in kept if not entry[1]]
            for other, words in kept:
                if words:
                    other.close()
            kept = silent[-400:]
            crowd.silent.extend(entry[0] for entry in silent[:-400])
    crowd.silent.extend(entry[0] for entry in kept)
    return made


crowd.silent = []


def rss(pid):
    for line in read(f"/proc/{pid}/status").decode().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    return 0


class Unauthenticated(LaunchTest):
    def tearDown(self):
        for connection in crowd.silent:
            connection.close()
        crowd.silent = []

    def test_many_unauthenticated_connections_stop_no_rank_and_a_late_rank_connects_at_once(self):
        with tempfile.TemporaryDirectory() as folder:
            job = self.start("-np", "3", RANK, "late", folder + "/come")
            job.wait_for_output("waiting")
            port = wait_until(lambda: listening([job.process.pid]), 5, "the store's port").pop()
            replay = self.record(folder, port)
            made = crowd(port, replay)
            self.assertGreater(made, COUNT // 2)
            # Still there, silent: the server has thrown most of them out, not waited for them.
            noise = threading.Thread(target=crowd, args=(port, replay))
            noise.start()
            open(folder + "/come", "w").close()
            job.finish(60)
            noise.join()
            self.assert_good(job)
            self.assertEqual(job.out.count("sum 6 of 3"), 3)
            joined = [float(line.split()[-1]) for line in job.out.splitlines() if line.startswith("[1] joined")]
            print(f"the late rank came in within {joined[0]:.3f} s")
            self.assertLess(joined[0], 2 * SLACK)
            self.assertGreater(self.refused(job), COUNT // 2)
            self.assertLess(len(job.err.splitlines()), 200)  # not a line for each
            self.assertNotIn("Traceback", job.err)

    @staticmethod
    def refused(job):
        return sum(int(count) for count in re.findall(r"refused (\d+) unauthenticated connection", job.err))

    def record(self, folder, port):
        """What an honest rank says first, taken from a connection with a secret of its own job."""
        recorder = Recorder(port)
        secret = folder + "/other"
        subprocess.run([os.path.join(os.environ["HORON_BIN"], "horon"), "secret", secret], check=True,
                       stdout=subprocess.DEVNULL)
        done = subprocess.run([RANK, "sum"], capture_output=True, text=True, timeout=30,
                              env=dict(os.environ, HORON_RANK="1", HORON_SIZE="3", HORON_AGENT_ID="x",
                                       HORON_RENDEZVOUS=recorder.where, HORON_SECRET_FILE=secret))
        self.assertEqual(done.returncode, 16, done.stderr)
        self.assertIn("secrets differ", done.stderr)
        self.assertTrue(recorder.said)
        return recorder.said

    def test_a_running_job_does_not_notice(self):
        with tempfile.TemporaryDirectory() as folder:
            # AddressSanitizer keeps what was freed: that would look like growth.
            sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1"
            # Two "hosts" on this machine, so that the ranks have connections between hosts, too.
            job = self.start("-np", "4", "-H", "localhost:2,127.0.0.1:2", RANK, "until", folder + "/stop",
                             env={"ASAN_OPTIONS": sanitizer})
            job.wait_for_output("running")
            launcher = job.process.pid
            store = listening([launcher])
            self.assertEqual(len(store), 1)
            doors = listening(job.marked()) - store
            self.assertEqual(len(doors), 4, "one for each rank")
            before = rss(launcher)
            self.assertGreater(crowd(next(iter(store)), b""), COUNT // 2)
            for door in doors:
                self.assertGreater(crowd(door, os.urandom(100)), COUNT // 2)
            grown = rss(launcher) - before
            print(f"the launcher grew by {grown / 2**20:.1f} MiB")
            self.assertLess(grown, (8 << 20) * SLACK)
            open(folder + "/stop", "w").close()
            job.finish(30)
            self.assert_good(job)
            longest = [float(line.split()[-1]) for line in job.out.splitlines() if "longest" in line]
            self.assertEqual(len(longest), 4)
            print(f"longest all-reduce {max(longest):.3f} s")
            self.assertLess(max(longest), 2 * SLACK)
            self.assertGreater(self.refused(job), COUNT // (2 * SLACK))

    def test_a_recorded_handshake_of_a_member_is_of_no_use(self):
        with tempfile.TemporaryDirectory() as folder:
            job = self.start("-np", "2", RANK, "until", folder + "/stop")
            job.wait_for_output("running")
            port = listening([job.process.pid]).pop()
            recorder = Recorder(port)
            rank = job.named("horon_launch_ra")[0]
            variables = dict(pair.split(b"=", 1) for pair in read(f"/proc/{rank}/environ").split(b"\0") if b"=" in pair)
            # A member of the job that came through the recorder; it waits for peers that never come.
            done = subprocess.run([RANK, "sum"], capture_output=True, text=True, timeout=30,
                                  env=dict(os.environ, HORON_RANK="0", HORON_SIZE="2", HORON_AGENT_ID="y",
                                           HORON_RENDEZVOUS=recorder.where, HORON_START_TIMEOUT="500ms",
                                           HORON_SECRET_FILE=variables[b"HORON_SECRET_FILE"].decode()))
            self.assertEqual(done.returncode, 10, done.stderr)
            self.assertGreater(len(recorder.said), 300)
            for _ in range(20):
                with socket.create_connection(("127.0.0.1", port), timeout=5) as thief:
                    thief.sendall(recorder.said)
                    answer = b""
                    try:
                        while True:
                            piece = thief.recv(65536)
                            if not piece:
                                break
                            answer += piece
                    except ConnectionResetError:
                        pass
                    self.assertLess(len(answer), 400, "only a handshake and its refusal")
            open(folder + "/stop", "w").close()
            self.assert_good(job.finish(20))


if __name__ == "__main__":
    main()
