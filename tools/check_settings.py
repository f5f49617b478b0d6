#!/usr/bin/env python3
"""A setting that nobody reads is a promise that nobody keeps: every name in the table of horon/base/knob.cc must be
asked for somewhere in the sources, as in knobs.text("backend")."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
table = root / "horon/base/knob.cc"
names = re.findall(r'\bKnob\{"(\w+)"', table.read_text())
if len(names) < 10:
    sys.exit(f"{table}: only {len(names)} settings found; was the table written in another way?")
read = set()
for source in sorted(root.glob("horon/**/*.cc")):
    if source != table and not source.name.endswith("_test.cc"):
        read.update(re.findall(r'[.>](?:text|bytes|duration|flag|integer)\(\s*"(\w+)"\s*\)', source.read_text()))
unread = [name for name in names if name not in read]
if unread:
    sys.exit("settings that nobody reads: " + ", ".join(unread))
print("settings ok")
