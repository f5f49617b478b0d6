"""libhoron.so shows the functions of its header and no others, and still has those of its first day. ARGS: library, repository."""
import re
import subprocess
import sys

library, root = sys.argv[1:]


def declared(path):
    with open(f"{root}/{path}") as file:
        return set(re.findall(r"HORON_C_API [\w\s*]*?\b(horon_\w+)\(", file.read()))


symbols = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
shown = set(re.findall(r" T (\w+)", symbols))
today, first_day = declared("horon/c/horon.h"), declared("tests/c_api/v1/horon/c/horon.h")
assert len(today) > 40, today
assert shown == today, f"differ: {shown ^ today}"
assert first_day <= today, f"gone: {first_day - today}"
soname = subprocess.run(["objdump", "-p", library], capture_output=True, text=True, check=True).stdout
assert "libhoron.so.1\n" in soname, soname
print(f"{len(shown)} functions")
