#!/usr/bin/env python3
"""Fails if a folder or sub-folder includes one that it may not, or a public header includes one that is not public.

The tables are the architecture; docs/architecture.md draws them. A new folder is a line in MAY_INCLUDE, a new sub-folder one in
INSIDE. Neither the tables nor the includes may have a cycle; files (header and source of one name count as one) of a folder neither,
except those of FILE_CYCLES.
"""
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
    "optim": ["base", "device"],
    "report": ["base", "file"],
    "train": LOWER + ["optim", "report"],
    "bench": LOWER + ["launch", "optim", "report", "train"],
    "cli": LOWER + ["launch", "report", "train", "bench"],
}

# Inside a folder: sub-folder -> other sub-folders and headers at the top of that folder that it may include. Headers at the top that
# are in no list are built on the sub-folders (communicator.h, pipeline.h). Tests may include anything of their folder.
WORDS = ["algorithm.h", "exact_sum.h", "failure.h", "request.h", "topology.h", "types.h", "work.h"]
CORE = WORDS + ["arithmetic", "engine"]
INSIDE = {
    "comm": {
        "arithmetic": ["types.h"],
        "engine": WORDS + ["arithmetic"],
        "shared": CORE,
        "p2p": CORE,
        "tcp": CORE + ["p2p"],
        "gloo": CORE + ["p2p"],
        "mpi": CORE + ["p2p"],
        "hier": CORE + ["p2p"],
        "nccl": CORE,
        "start": CORE + ["shared", "p2p", "tcp", "gloo", "mpi", "hier", "nccl"],
    },
    "data": {
        "image": ["dataset.h", "order.h", "random.h"],
        "format": ["dataset.h", "order.h", "parallel.h", "random.h", "image"],
    },
    "device": {"cuda": ["stream.h"]},
    "optim": {"cuda": ["device_math.h", "optimizer_table.h"]},
    "train": {"callback": ["*"], "model": []},
}

# Files of one folder that include each other, each for a reason:
FILE_CYCLES = [
    {"data/format/convert", "data/format/convert_writers"},  # one function per format, in a file of its own for its size
    {"device/pool", "device/stream"},  # open_cuda_runtime() returns a pooled device
    {"file/copy", "file/file"},  # copy() of file.h is a copy of one file
    {"launch/host_link", "launch/job"},  # a link uses the job's plan, the job its links
    {"net/store", "net/store_key"},  # every store checks its keys
    {"runtime/process_set", "runtime/runtime"},  # nested types of Runtime, in a header that programs do not see
    {"train/run_data", "train/run_rank", "train/trainer"},  # Ingredients of trainer.h
]

# An outside library stays inside the folder that wraps it.
ONLY_IN = {
    r"(torch|ATen|c10)/": ["train"],
    r"gloo/": ["comm/gloo", "bench"],
    r"mpi\.h": ["comm/mpi"],
    r"nccl\.h": ["comm/nccl"],
    r"cuda": ["device/cuda", "comm/nccl", "optim/cuda"],
    r"spdlog/": ["base"],
    r"openssl/": ["net", "file"],
    r"nlohmann/": ["net", "runtime", "report", "train", "bench", "cli"],
    r"CLI/": ["cli"],
    r"curl/": ["file"],
    r"(jpeglib|png)\.h": ["data/image"],
    r"zlib\.h": ["data/format"],
}
SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
OURS = re.compile(r'^\s*#\s*include\s+["<](?:horon/)([\w./]+)[">]', re.M)
PUBLIC = "public_headers.txt"
GENERATED = {"base/version.h"}


def sources(root):
    """(path inside the root, text) of all sources in folders."""
    for path in sorted(root.rglob("*")):
        if path.suffix in SUFFIXES and path.parent != root:
            yield path.relative_to(root), path.read_text()


def unit_of(inside):
    """A layer inside a folder: a sub-folder, or a file at the top of the folder, without its suffix."""
    parts = pathlib.PurePath(inside).parts
    return f"{parts[0]}/{parts[1]}" if len(parts) > 2 else f"{parts[0]}/{pathlib.PurePath(parts[1]).stem}"


def may_include_inside(inside, target):
    """Whether a file of a sub-folder may include `target`, of the same folder."""
    folder, own = inside.parts[0], inside.parts[1]
    names = pathlib.PurePath(target).parts
    allowed = INSIDE.get(folder, {}).get(own)
    return allowed is not None and (names[1] == own or names[1] in allowed or (len(names) == 2 and "*" in allowed))


def bad_includes(root):
    for inside, text in sources(root):
        path, folder = root / inside, inside.parts[0]
        if folder not in MAY_INCLUDE:
            yield f"{path}: folder '{folder}' is not in the table of layers"
            continue
        in_sub_folder = len(inside.parts) > 2
        if in_sub_folder and inside.parts[1] not in INSIDE.get(folder, {}):
            yield f"{path}: sub-folder '{folder}/{inside.parts[1]}' is not in the table of layers"
            continue
        for target in OURS.findall(text):
            other = target.split("/")[0]
            if other != folder and other not in MAY_INCLUDE[folder]:
                yield f"{path}: {folder} may not include {other}"
            is_test = inside.name.endswith("_test.cc")
            if other == folder and in_sub_folder and not is_test and not may_include_inside(inside, target):
                yield f"{path}: {folder}/{inside.parts[1]} may not include {target}"
        for pattern, homes in ONLY_IN.items():
            used = re.search(r'^\s*#\s*include\s+[<"]' + pattern, text, re.M)
            if used and not any(str(inside.parent).startswith(home) for home in homes):
                yield f"{path}: {used.group(0).strip()}...: only {', '.join(homes)} may"


def cycles(edges):
    """Sets of nodes that reach each other; edges: node -> nodes."""
    def reached(start):
        found, todo = set(), list(edges.get(start, ()))
        while todo:
            one = todo.pop()
            if one not in found:
                found.add(one)
                todo += edges.get(one, ())
        return found
    all_reached = {node: reached(node) for node in edges}
    seen = set()
    for node in sorted(edges):
        if node in all_reached[node] and node not in seen:
            ring = {one for one in all_reached[node] if node in all_reached.get(one, ())}
            seen |= ring
            yield ring


def bad_cycles(root):
    for table in (MAY_INCLUDE, *INSIDE.values()):
        for ring in cycles(table):
            yield f"the table of layers has a cycle: {', '.join(sorted(ring))}"
    edges, sub_folders = {}, set()
    for inside, text in sources(root):
        if inside.name.endswith("_test.cc"):
            continue
        unit = unit_of(inside)
        if len(inside.parts) > 2:
            sub_folders.add(unit)
        targets = {unit_of(target) for target in OURS.findall(text) if target.split("/")[0] == inside.parts[0]}
        edges.setdefault(unit, set()).update(targets - {unit})
    for ring in cycles(edges):
        if ring & sub_folders:
            yield f"a cycle through a sub-folder of {root}: {', '.join(sorted(ring))}"


def bad_file_cycles(root):
    """Cycles among the files of a folder; header and source of one name are one node."""
    edges = {}
    for inside, text in sources(root):
        if inside.name.endswith("_test.cc"):
            continue
        stem = str(inside.with_suffix(""))
        targets = {str(pathlib.PurePath(target).with_suffix("")) for target in OURS.findall(text)}
        edges.setdefault(stem, set()).update(t for t in targets if t != stem and t.split("/")[0] == inside.parts[0])
    rings = list(cycles(edges))
    for ring in rings:
        if ring not in FILE_CYCLES:
            yield f"files of {root} that include each other: {', '.join(sorted(ring))}"
    for ring in FILE_CYCLES:
        if ring not in rings and all(one in edges for one in ring):
            yield f"FILE_CYCLES: {', '.join(sorted(ring))} is no cycle any more: remove it"


def bad_public(root):
    """The list of public headers is closed under inclusion, and every entry is needed."""
    lists, section = {"For programs": [], "What those": []}, None
    for line in (root / PUBLIC).read_text().splitlines():
        section = next((name for name in lists if line.startswith(f"# {name}")), section)
        if line and not line.startswith("#"):
            lists[section].append(line.removeprefix(f"{root.name}/"))
    public, todo = set(lists["For programs"] + lists["What those"]), list(lists["For programs"])
    needed = set(todo)
    for header in public:
        if header not in GENERATED and not (root / header).is_file():
            yield f"{root / PUBLIC}: there is no {header}"
    while todo:
        header = todo.pop()
        path = root / header
        for target in OURS.findall(path.read_text()) if path.is_file() else []:
            if target not in public:
                yield f"{path}: is public and includes {target}, which is not ({root / PUBLIC})"
            if target not in needed:
                needed.add(target)
                todo.append(target)
    for header in sorted(public - needed):
        yield f"{root / PUBLIC}: no public header includes {header}"


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "horon")
    bad = [*bad_includes(folder), *bad_cycles(folder), *bad_file_cycles(folder), *bad_public(folder)]
    print("\n".join(bad) or "layers ok")
    sys.exit(bool(bad))
