"""C and C++ in docs/ is compiled: every block of it stands, line by line, in one of the programs under examples/."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent.parent
programs = {path: path.read_text() for path in sorted(root.glob("examples/**/*.c*"))}
count = 0
wrong = []
for document in sorted((root / "docs").glob("*.md")):
    for block in re.findall(r"(?ms)^```(?:c|cpp)\n(.*?)^```", document.read_text()):
        count += 1
        if not any(block in text for text in programs.values()):
            wrong.append(f"{document.relative_to(root)}: no example has this block:\n{block}")
if count < 3:
    wrong.append(f"{count} block(s): where are the others?")
print("\n".join(wrong) or f"{count} blocks ok")
sys.exit(bool(wrong))
