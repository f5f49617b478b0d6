"""The progress bar under `horon run`: on a terminal, and nowhere else."""
import fcntl
import os
import pty
import re
import struct
import subprocess
import tempfile
import termios
import unittest

from support import HORON, read_terminal

TRAIN = [HORON, "train", "--train_samples", "200", "--batch_size", "50", "--train_epochs", "3", "--model_dir"]
BAR = re.compile(rb"\r\[0\] \[#*\.*\] step (\d+)/12  loss \S+  \S+ images/s")


def on_terminal(*arguments, columns=0):
    """Everything that a terminal gets."""
    child, terminal = pty.fork()
    if child == 0:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24 if columns else 0, columns, 0, 0))
        os.environ["NO_COLOR"] = "1"
        os.execv(HORON, [HORON, *arguments])
    said = read_terminal(terminal)
    os.close(terminal)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, (status, said[-1500:])
    return said


def seen(said):
    """What stands on the screen at the end: a carriage return goes back, what follows overwrites."""
    rows = []
    for row in said.decode().replace("\r\n", "\n").split("\n"):
        shown = ""
        for piece in row.split("\r"):
            shown = piece + shown[len(piece):]
        rows.append(shown.rstrip())
    return rows


class Screen(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.at = lambda name: os.path.join(folder.name, name)

    def test_a_terminal_has_one_bar_that_lines_replace(self):
        said = on_terminal("run", "-np", "2", *TRAIN, self.at("run"))
        self.assertEqual(BAR.findall(said)[-1], b"12", said[-1500:])
        self.assertGreater(len(BAR.findall(said)), 3)
        rows = seen(said)
        self.assertFalse([row for row in rows if "images/s" in row and "steps" not in row], rows)
        self.assertEqual(len([row for row in rows if row.startswith("[0] epoch ")]), 3, rows)
        for row in rows[:-1]:
            self.assertRegex(row, r"^(\[0\]|\d\d:\d\d)", rows)

    def test_a_narrow_terminal_is_not_wrapped(self):
        said = on_terminal("run", "-np", "2", *TRAIN, self.at("run"), columns=40)
        bars = re.findall(rb"\r(\[0\] \[#*\.*\] step[^\r\n]*)", said)
        self.assertGreater(len(bars), 3, said)
        self.assertEqual({len(bar) for bar in bars}, {39})

    def test_errors_replace_the_progress_bar(self):
        script = r"printf '\rten per cent of it'; echo wrong >&2; printf '\r20 %%'; printf '\rdone\n'; printf '\rlast'"
        said = on_terminal("run", "-np", "1", "sh", "-c", script)
        self.assertNotIn("of it", "".join(seen(said)))
        self.assertEqual(sorted(seen(said)), ["", "[0] done", "[0] last", "[0] wrong"], said)

    def test_no_progress_bar_on_a_pipe(self):
        done = subprocess.run([HORON, "run", "-np", "2", *TRAIN, self.at("run")], capture_output=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn(b"\r", done.stdout + done.stderr)
        self.assertEqual(done.stdout.count(b"[0] epoch "), 3)

    def test_no_progress_bar_in_files(self):
        said = on_terminal("run", "-np", "2", "--output-filename", self.at("out"), *TRAIN, self.at("a"))
        self.assertNotRegex(said, BAR)
        log, piped = self.at("log"), self.at("piped")
        line = " ".join(TRAIN)
        on_terminal("run", "-np", "2", "sh", "-c", f"exec {line} {self.at('b')} >{log}.$HORON_RANK")
        on_terminal("run", "-np", "2", "sh", "-c", f"{line} {self.at('c')} | cat >{piped}.$HORON_RANK")
        inner = f"{HORON} run -np 2 {line} {self.at('d')} >{self.at('inner')}"  # a job in a job
        on_terminal("run", "-np", "1", "sh", "-c", inner)
        for path in (os.path.join(self.at("out"), "rank.0", "stdout"), f"{log}.0", f"{piped}.0", self.at("inner")):
            with open(path, "rb") as file:
                text = file.read()
            self.assertIn(b"epoch ", text, path)
            self.assertNotIn(b"\r", text, path)


if __name__ == "__main__":
    unittest.main()
