"""Looks at the machine code of the sums: vectors of the CPU's own width, never through the stack.

usage: machine_code.py OBJECT...   (kernels_generic, kernels_avx2 and kernels_avx512)

A generic vector that is wider than the CPU's compiles all the same, into pieces that travel through
the stack at a fraction of the speed. No result is wrong then, so only the machine code shows it.
"""
import re
import subprocess
import sys

# Object -> (prefix of its widest registers, prefix of half of them). The halves are for f16, which is
# half as wide in memory as in registers.
WIDTHS = {"kernels_generic": ("xmm", None), "kernels_avx2": ("ymm", "xmm"), "kernels_avx512": ("zmm", "ymm")}
LEAST_KERNELS = 23  # sums, minima and maxima of eight types and more: fewer means that none were found

LINE = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$")
NAME = re.compile(r"^[0-9a-f]+ <(.*)>:$")
# One element, or a plain register parked in a vector register.
SCALAR = re.compile(r"^v?(?!p)\w+s[sd]$|^v?mov[dq]$|^v?p(ins|ext)r\w$")
MEMORY = re.compile(r"[-0-9a-fx]*\((%\w+)?(,%\w+(,\d)?)?\)")


def functions(path):
    """Yields (name, [(address, mnemonic, operands)]) of the fused kernels in an object."""
    text = subprocess.run(["objdump", "-d", "-C", "--no-show-raw-insn", path], check=True, capture_output=True,
                          text=True).stdout
    name, body = None, []
    for line in text.splitlines() + ["0 <>:"]:
        header = NAME.match(line)
        if header:
            if name and "reduce_fused<" in name and "[clone" not in name:
                yield re.sub(r".*reduce_fused", "reduce_fused", name).replace(
                    "horon::kernels::(anonymous namespace)::", ""), body
            name, body = header.group(1), []
        elif found := LINE.match(line):
            body.append((int(found.group(1), 16), found.group(2), found.group(3).split("#")[0].split("<")[0].strip()))


def in_loops(body):
    """The instructions between a jump backwards and its target."""
    loops = [(int(operands.split()[0], 16), address) for address, mnemonic, operands in body
             if mnemonic.startswith("j") and re.match(r"^[0-9a-f]+", operands)
             and body[0][0] <= int(operands.split()[0], 16) < address]
    return [one for one in body if any(begin <= one[0] <= end for begin, end in loops)]


def faults(object_name, name, body):
    """Sentences about what is wrong with one kernel."""
    widest, half = WIDTHS[object_name]
    allowed = (widest, half) if "<F16," in name else (widest,)
    has_frame = any(mnemonic == "mov" and operands == "%rsp,%rbp" for _, mnemonic, operands in body)
    stack = ("%rsp", "%rbp") if has_frame else ("%rsp",)
    accesses = 0
    for address, mnemonic, operands in in_loops(body):
        memory = MEMORY.search(operands)
        width = re.search(r"%([xyz]mm)\d", operands)
        if not memory or not width or SCALAR.match(mnemonic):
            continue
        where = f"{object_name}: {name} at {address:x}: {mnemonic} {operands}"
        if memory.group(1) in stack:
            yield f"{where}: a vector goes through the stack"
            continue
        accesses += 1
        if not any(f"%{prefix}" in operands for prefix in allowed):
            yield f"{where}: not {widest}, the CPU's own width"
    if accesses == 0:
        yield f"{object_name}: {name}: no vector is read or written in a loop"


def main():
    wrong, seen = [], 0
    for path in sys.argv[1:]:
        object_name = re.sub(r".*/(\w+)\.cc\.\w+$", r"\1", path)
        if object_name not in WIDTHS:
            continue
        found = list(functions(path))
        if len(found) < LEAST_KERNELS:
            wrong.append(f"{object_name}: only {len(found)} fused kernels were found")
        for name, body in found:
            wrong += faults(object_name, name, body)
        seen += 1
        print(f"{object_name}: {len(found)} kernels")
    if seen != len(WIDTHS):
        wrong.append(f"{seen} of {len(WIDTHS)} objects were given")
    print("\n".join(wrong[:40]))
    if len(wrong) > 40:
        print(f"... and {len(wrong) - 40} more")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
