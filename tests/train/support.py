"""What the tests of training share: starting runs, and reading what they leave."""
import hashlib
import json
import os
import re
import struct
import subprocess

HORON = os.path.join(os.environ["HORON_BIN"], "horon")
SLACK = int(os.environ.get("HORON_TEST_SLACK", "1"))
SMALL = ["--train_samples", "200", "--batch_size", "48", "--learning_rate", "0.1", "--epochs_between_evals", "0"]
EXACT = SMALL + ["--reduction", "exact", "--logical_shards", "8", "--max_number_of_steps", "12"]


def command(ranks, *arguments):
    launcher = [HORON, "run", "-np", str(ranks)] if ranks > 1 else []
    return [*launcher, HORON, "train", *map(str, arguments)]


def finish(line, code=0, env=None, **more):
    done = subprocess.run(line, capture_output=True, text=True, timeout=120 * SLACK, env={**os.environ, **(env or {})}, **more)
    assert code is None or done.returncode == code, (line, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout + done.stderr


def run(ranks, *arguments, code=0, env=None, what="train"):
    line = command(ranks, *arguments)
    line[line.index("train")] = what
    return finish(line, code, env)


def run_differing(arguments, more, code=None, ranks=2, variable=""):
    """`horon train` on all ranks; rank 1 gets more arguments, and a variable NAME=value, besides."""
    script = f'[ "$HORON_RANK" = 1 ] || exec "$0" train "$@"; exec env {variable} "$0" train "$@" {" ".join(map(str, more))}'
    return finish([HORON, "run", "-np", str(ranks), "sh", "-c", script, HORON, *map(str, arguments)], code)


def read_terminal(terminal, on_piece=lambda said: None):
    """All that comes until its last process is gone; on_piece(said) after each piece."""
    said = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the terminal is gone with its last process
            return said
        if not piece:
            return said
        said += piece
        on_piece(said)


def losses(text):
    return re.findall(r"step (\d+) loss (\S+)", text)


def digest(folder, step):
    with open(os.path.join(folder, f"ckpt-{step:08}", "model.safetensors"), "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def read_log(folder):
    with open(os.path.join(folder, "log.jsonl")) as file:
        return [json.loads(line) for line in file]


def config_of(folder):
    with open(os.path.join(folder, "config.json")) as file:
        return json.load(file)


def checkpoints(folder):
    return sorted(name for name in os.listdir(folder) if name.startswith("ckpt-"))


def tensors(path):
    """A safetensors reader of its own."""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    found = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        raw = data[8 + length + first:8 + length + last]
        found[name] = struct.unpack(f"<{len(raw) // 4}f", raw)
    return found
