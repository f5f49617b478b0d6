"""What the documents and the help show can be typed. Every line that begins with `horon` in a block of code, in README.md,
docs/, examples/ and the help, is run here in a folder of its own; NOT_RUN says which are only read, and why. Commands
inside sentences have known flags; settings that are shown have allowed values."""
import functools
import glob
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

BIN = os.environ["HORON_BIN"]
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
DOCUMENTS = sorted(path for pattern in ("README.md", "docs/*.md", "examples/*/README.md", "benchmarks/README.md")
                   for path in glob.glob(os.path.join(ROOT, pattern)))
LINE = re.compile(r"(?:\$ )?((?:[A-Z_]+=\S+ )*)(?:[\w./]+/)?(horon|horonrun) (.*)")
SECONDS = 60

# Beginnings of commands that are not run: their flags must be those of the help.
NOT_RUN = {
    "data download": "needs the network",
}
HIDDEN = ("agent",)  # started by `horon run`; not in the help


def horon(*arguments, **options):
    return subprocess.run([os.path.join(BIN, "horon"), *arguments], text=True, stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=SECONDS, **options)


@functools.lru_cache(None)
def help_of(command):
    done = horon(*command, "--help")
    return done.stdout if done.returncode == 0 else ""


def subcommands(command):
    """The names of the commands below this one, as its help lists them."""
    listed = help_of(command).partition("Subcommands:\n")[2].partition("\n\n")[0]
    return re.findall(r"(?m)^  ([\w-]+)", listed)


def commands(command=()):
    yield command
    for name in subcommands(command):
        yield from commands((*command, name))


def code_lines(path):
    """The lines of a document that stand in a block: fenced, or indented by four after an empty line."""
    fenced = indented = False
    before = ""
    with open(path) as file:
        for line in file:
            if line.startswith("```"):
                fenced = not fenced
            elif fenced:
                yield line
            else:
                indented = line.startswith("    ") and (indented or not before.strip())
                if indented:
                    yield line
            before = line


def examples_in(text):
    """The commands in the lines of a block: as shown, variables before it, words. Explanations are cut off."""
    for line in re.sub(r"\s*\\\n\s*", " ", text).splitlines():  # a backslash: the command goes on
        for piece in line.split("&&"):
            found = LINE.fullmatch(piece.strip())
            if found:
                shown = re.split(r"\s{2,}|\s#\s", found[3].strip())[0]
                words = shlex.split(re.sub(r"\[[^]]*\]", "", shown))  # without the [flags] of a synopsis
                yield piece.strip(), found[1], words if found[2] == "horon" else ["run", *words]


def all_examples():
    for path in DOCUMENTS:
        for example in examples_in("".join(code_lines(path))):
            yield os.path.relpath(path, ROOT), *example
    for command in commands():
        lines = [line for line in help_of(command).splitlines() if line.startswith("  ")]
        for example in examples_in("\n".join(lines)):
            yield f"horon {' '.join(command)} --help", *example


def command_of(words):
    """The leading words that name a command, and the rest."""
    command = ()
    while words and words[0] in subcommands(command):
        command, words = (*command, words[0]), words[1:]
    return command, words


class Examples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)

        def write(name, text):
            path = os.path.join(cls.folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write(text)
            os.chmod(path, 0o755)
        write("program", "#!/bin/sh\n")  # what the documents call ./program
        write("hosts", "a slots=8\nb:8\n")
        write("run1/log.jsonl", '{"epoch": 1, "loss": 2, "test_top1": 0.5, "test_loss": 1}\n')  # a run of `horon train`
        horon("data", "make", "--to", "cifar", "--samples", "500", cwd=cls.folder)  # in place of the real pictures

    def known_flags(self, words, where):
        """The flags exist, also those of a `horon` that another one starts."""
        command, rest = command_of(words)
        known = command or not rest or rest[0].startswith("-") or rest[0] in HIDDEN
        self.assertTrue(known, f"{where}: no such command")
        for i, word in enumerate(rest):
            if word == "horon":
                self.known_flags(rest[i + 1:], where)
                break
            if word in ("./program", "python"):  # what follows are its flags
                break
            flag = word.partition("=")[0]
            if re.fullmatch(r"-\w|-np|--[\w-]+", flag):
                known = re.search(rf"(?m)(^  |,){flag}\b|\({flag} works", help_of(command))
                self.assertTrue(known, f"{where}: no flag {flag}")

    def check(self, where, shown, variables, words):
        env = dict(os.environ, PATH=f"{BIN}:{os.environ['PATH']}",
                   **dict(pair.split("=", 1) for pair in variables.split()))
        if any(" ".join(words).startswith(begin) for begin in NOT_RUN):
            self.known_flags(words, where)
            return
        want = (0, "")
        if words[0] == "run":
            words = [word if word != "..." else "./program" for word in words]
            if "horon" in words:
                self.check(where, shown, variables, words[words.index("horon") + 1:])
            if "-H" in words or "--hostfile" in words or "./program" not in words:
                words = ["run", "--dry-run", *words[1:]]
        elif words[0] in ("train", "evaluate"):  # stops where training would begin; tests/train trains
            env["HORON_PARTS"] = "/nowhere"
            want = (2, "there is no checkpoint" if "--checkpoint_path" in words else "part 'train' cannot be opened")
        done = horon(*words, cwd=self.folder, env=env)
        self.assertEqual(done.returncode, want[0], f"{where}: {shown}\n{done.stderr}")
        self.assertIn(want[1], done.stderr, f"{where}: {shown}")

    def test_every_example_works(self):
        seen = {}
        for where, shown, variables, words in all_examples():
            if (variables, *words) in seen:
                continue
            seen[variables, *words] = where
            with self.subTest(where=where, shown=shown):
                self.check(where, shown, variables, words)
        self.assertGreater(len(seen), 20, "where are the examples?")
        for begin in NOT_RUN:
            self.assertTrue(any(" ".join(words[1:]).startswith(begin) for words in seen), f"no example of {begin}")
        for expected in ("README.md", os.path.join("docs", "launch.md"), os.path.join("docs", "data.md"),
                         os.path.join("docs", "train.md"), "horon run --help"):
            self.assertIn(expected, seen.values())

    def test_commands_in_sentences_have_known_flags(self):
        count = 0
        for path in DOCUMENTS:
            with open(path) as file:
                text = re.sub(r"(?ms)^```.*?^```", "", file.read())
            for span in re.findall(r"`((?:horon|horonrun) [^`]+)`", text):
                count += 1
                where = f"{os.path.relpath(path, ROOT)}: {span}"
                with self.subTest(where=where):
                    program, *words = span.split()
                    self.known_flags(words if program == "horon" else ["run", *words], where)
        self.assertGreater(count, 20, "where are the commands?")

    def allowed(self, name, value, where):
        if name in self.of_job:
            done = horon("info", "--knobs", env=dict(os.environ, **{f"HORON_{name.upper()}": value}))
            self.assertEqual(done.returncode, 0, f"{where}: {name} {value}: {done.stderr}")
        else:  # stops where training would begin
            done = horon("train", f"--{name}={value}", cwd=self.folder, env=dict(os.environ, HORON_TORCH="/nowhere"))
            self.assertIn("HORON_TORCH=/nowhere", done.stderr, f"{where}: {name} {value}")

    def test_values_of_settings(self):
        with open(os.path.join(ROOT, "docs", "knobs.md")) as file:
            rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in file if line.startswith("| `")]
        rows = [row for row in rows if len(row) == 7]  # not the names of other programs
        self.assertGreater(len(rows), 70)
        names = {row[0].strip("`") for row in rows}
        self.of_job = {row[0].strip("`") for row in rows if row[2].startswith("`HORON_")}
        for row in rows:
            name, of_job = row[0], row[0].strip("`") in self.of_job
            default, allowed, text = row[3:6] if of_job else row[2:5]
            values = [default.strip("`"), *re.split(r", or | or |, | to |at least ", allowed.replace("host:port", "here:1234"))]
            values += re.findall(r"\b\w+=\w+(?:,\w+=\w+)*", text) if of_job else []
            for value in set(values) - {""}:
                with self.subTest(name=name, value=value):
                    self.allowed(name.strip("`"), value.removeprefix("stages such as "), "docs/knobs.md")
        shown = re.findall(r"e\.g\. (\S+);", horon("info", "--algorithms").stdout)
        self.assertEqual(len(shown), 1)
        self.allowed("algorithm", shown[0], "horon info --algorithms")
        for path in DOCUMENTS:
            with open(path) as file:
                text = file.read()
            pairs = re.findall(r"`HORON_([A-Z_]+)=([^`\s]+)`", text) + re.findall(r"`(\w+) = (\S+)`", text)
            for name, value in pairs:
                if name.lower() in names and not re.search("[a-z]:port", value):
                    with self.subTest(path=path, name=name, value=value):
                        self.allowed(name.lower(), value, path)


if __name__ == "__main__":
    unittest.main()
