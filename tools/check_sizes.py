#!/usr/bin/env python3
"""Fails if a file, a function or a folder README has outgrown its room.

Limits: header 250 lines, source 500, test 600, function 80, CMakeLists.txt 80, folder README 80.
A class in a header of horon/runtime: 20 member functions, private ones and overloads counted, constructors,
destructors and operators not. Facades, which only hand on, may have more: their names are below.
"""
import pathlib
import re
import sys

LIMITS = {".h": 250, ".cuh": 250, ".cc": 500, ".cu": 500, ".py": 500}
ROOTS = ["horon", "tests", "benchmarks", "examples", "tools", "python"]
FUNCTION_LIMIT = 80
METHOD_LIMIT = 20
METHOD_ROOTS = ["horon/runtime"]
FACADES = {"Runtime", "Session"}


def limit_of(path):
    if path.name == "CMakeLists.txt" or path.name == "README.md":
        return 80
    if path.name.endswith("_test.cc"):
        return 600
    return LIMITS.get(path.suffix)


def long_functions(text):
    """Brace-matched bodies that begin after a ')' or a function qualifier at the end of a line."""
    start = None
    depth_at_start = depth = 0
    for number, line in enumerate(text.splitlines(), 1):
        code = re.sub(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])*\'|//.*', "", line)
        opens = re.search(r"\)\s*(const|noexcept|override|final|\s)*\{\s*$", code)
        if opens and start is None and not re.match(r"\s*(if|for|while|switch|\}|else)", code):
            start, depth_at_start = number, depth
        depth += code.count("{") - code.count("}")
        if start is not None and depth <= depth_at_start:
            if number - start + 1 > FUNCTION_LIMIT:
                yield start, number - start + 1
            start = None


def body_at(text, opening):
    """The text between the brace at `opening` and the one that closes it."""
    depth = 0
    for at in range(opening, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[opening + 1 : at]
    return text[opening + 1 :]


def without_nested(text, opening, closing):
    """`text` with everything between the outermost pairs taken out; the pairs stay."""
    kept, depth = [], 0
    for letter in text:
        depth -= letter == closing
        if depth == 0:
            kept.append(letter)
        depth += letter == opening
    return "".join(kept)


def member_functions(name, body):
    """Names of the member functions that are declared in this body of the class `name`."""
    body = re.sub(r"\b(public|protected|private)\s*:", ";", body)
    # A pair of braces ends a function's body and a nested type; after that of an initialiser comes ';' anyway.
    for declaration in without_nested(body, "{", "}").replace("{}", ";").split(";"):
        declaration = re.sub(r"operator\s*\S+?\s*\(", "operator(", declaration)
        declaration = without_nested(declaration, "<", ">")
        if re.match(r"\s*(using|typedef|friend|static_assert|enum|struct|class)\b", declaration):
            continue
        found = re.match(r"[^=(]*?([~\w]+)\s*\(", declaration)  # no '=' before: no initialiser
        if found and found.group(1) not in {name, "~" + name, "operator", "alignas"}:
            yield found.group(1)


def large_classes(text):
    code = re.sub(r'"(\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/|^\s*#[^\n]*', "", text, flags=re.S | re.M)
    for found in re.finditer(r"\b(?<!enum )(?:class|struct)\s+(?:\w+::)*(\w+)[^;{}()]*\{", code):
        name = found.group(1)
        count = len(list(member_functions(name, body_at(code, found.end() - 1))))
        if name not in FACADES and count > METHOD_LIMIT:
            yield name, count


def violations():
    for root in ROOTS:
        for path in sorted(pathlib.Path(root).rglob("*")) if pathlib.Path(root).is_dir() else []:
            limit = limit_of(path) if path.is_file() else None
            if limit is None:
                continue
            text = path.read_text()
            lines = text.count("\n")
            if lines > limit:
                yield f"{path}: {lines} lines, limit {limit}"
            if path.suffix in {".h", ".cc", ".cu"}:
                for start, length in long_functions(text):
                    yield f"{path}:{start}: function of {length} lines, limit {FUNCTION_LIMIT}"
            if path.suffix == ".h" and any(path.is_relative_to(root) for root in METHOD_ROOTS):
                for name, count in large_classes(text):
                    yield f"{path}: class {name} has {count} member functions, limit {METHOD_LIMIT}"


if __name__ == "__main__":
    bad = list(violations())
    print("\n".join(bad) or "sizes ok")
    sys.exit(bool(bad))
