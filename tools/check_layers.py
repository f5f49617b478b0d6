#!/usr/bin/env python3
"""Fails if a folder includes a folder that it may not. The table is the architecture."""
import pathlib
import re
import sys

LOWER = ["base", "device", "net", "file", "codec", "comm", "data", "runtime", "ps", "elastic"]
MAY_INCLUDE = {  # folder -> folders it may include (itself is always allowed)
    "base": [],
    "device": ["base"],
    "net": ["base"],
    "file": ["base"],
    "codec": ["base", "device"],
    "comm": ["base", "device", "net"],
    "data": ["base", "device", "file"],
    "runtime": ["base", "device", "net", "codec", "comm"],
    "ps": ["base", "device", "net", "codec"],
    "elastic": ["base", "net"],
    "c": ["base", "device", "net", "codec", "comm", "runtime", "elastic"],
    "launch": ["base", "net", "elastic"],
    "train": LOWER,
    "cli": LOWER + ["launch", "train"],
}
# An outside library stays inside the folder that wraps it.
ONLY_IN = {
    r"(torch|ATen|c10)/": ["train"],
    r"gloo/": ["comm/gloo"],
    r"mpi\.h": ["comm/mpi"],
    r"nccl\.h": ["comm/nccl"],
    r"cuda": ["device/cuda", "comm/nccl", "train/cuda"],
    r"spdlog/": ["base"],
    r"openssl/": ["net", "file"],
    r"nlohmann/": ["net", "runtime", "cli", "train"],
    r"CLI/": ["cli"],
    r"curl/": ["file"],
    r"(jpeglib|png|zlib)\.h": ["data"],
}
SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
OURS = re.compile(r'^\s*#\s*include\s+["<]horon/([a-z_]+)/', re.M)


def violations(root):
    for path in sorted(root.rglob("*")):
        if path.suffix not in SUFFIXES or path.parent == root:
            continue
        inside, text = path.relative_to(root), path.read_text()
        folder = inside.parts[0]
        if folder not in MAY_INCLUDE:
            yield f"{path}: folder '{folder}' is not in the table of layers"
            continue
        for target in OURS.findall(text):
            if target != folder and target not in MAY_INCLUDE[folder]:
                yield f"{path}: {folder} may not include {target}"
        for pattern, homes in ONLY_IN.items():
            used = re.search(r'^\s*#\s*include\s+[<"]' + pattern, text, re.M)
            if used and not any(str(inside.parent).startswith(home) for home in homes):
                yield f"{path}: {used.group(0).strip()}...: only {', '.join(homes)} may"


if __name__ == "__main__":
    bad = list(violations(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "horon")))
    print("\n".join(bad) or "layers ok")
    sys.exit(bool(bad))
