#!/usr/bin/env python3
"""Fails if a document or a comment names a file that is not in the tree.

Read: all Markdown, and the comments of sources, scripts and build files. A name is good if a file of the tree has this path, or a path that ends with
it (`comm/engine/header.h`, `header.h`); `docs/adr/0003` stands for the record of that number.
"""
import pathlib
import re
import subprocess
import sys

NAME = re.compile(r"(?<![\w./*$<>{}-])((?:[\w-]+/)*[\w.-]*\w\.(?:h|cc|cu|cuh|md|py|sh|cmake)|(?:[\w-]+/)*CMakeLists\.txt)(?![\w*]|\.\w)")
CPP = {".h", ".cc", ".cu", ".c"}
READ = (".md", ".py", ".sh", ".cmake", "CMakeLists.txt", "Makefile", *CPP)
RECORD = re.compile(r"docs/adr/(\d{4})(?!\d|-)")
FOLDER = re.compile(r"(?<![\w./-])(?!docs/adr/\d)((?:horon|tests|tools|docs|examples|benchmarks|cmake)(?:/[\w-]+)+)/?(?![\w/.*{<-])")
# Names of others, and of files that users or builds make.
OTHERS = {"a_test.cc", "train.py", "my_program.cc", "PREFIX/share/horon/install_libtorch.sh", "tcp/pair.h"}


def tree():
    done = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True)
    return [name for name in done.stdout.splitlines() if pathlib.Path(name).is_file()]


def read_text(name):
    """What people read in this file: all of a document, the comments of a source, line by line."""
    lines = pathlib.Path(name).read_text().splitlines()
    if name.endswith(".md"):
        return lines
    begin = r"(?<!:)//.*" if pathlib.PurePath(name).suffix in CPP else r"(?:^|\s)#.*"
    return [found.group(0) if (found := re.search(begin, line)) else "" for line in lines]


def bad_names(files):
    endings = set()
    for name in files:
        parts = pathlib.PurePath(name).parts
        endings.update("/".join(parts[i:]) for i in range(len(parts)))
        endings.update("/".join(parts[:i]) for i in range(1, len(parts)))
    records = {pathlib.PurePath(name).name[:4] for name in files if name.startswith("docs/adr/")}
    for name in files:
        if not name.endswith(READ) or name.startswith("tests/c_api/v1/"):
            continue
        for number, line in enumerate(read_text(name), 1):
            for found in NAME.findall(line) + FOLDER.findall(line):
                if found not in endings and found not in OTHERS:
                    yield f"{name}:{number}: there is no {found}"
            for found in RECORD.findall(line):
                if found not in records:
                    yield f"{name}:{number}: there is no docs/adr/{found}"


if __name__ == "__main__":
    bad = list(bad_names(tree()))
    print("\n".join(bad) or "names ok")
    sys.exit(bool(bad))
