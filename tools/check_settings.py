#!/usr/bin/env python3
"""A setting that nobody reads is a promise that nobody keeps: every name in the table of horon/base/setting_table.cc must be
asked for somewhere in the sources. The job's as in job_settings.text("backend"), the trainer's as in config.batch_size, or
options.lr_power in horon/optim; giving it a value, handing it on, looking whether it is allowed, or a test does not count."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
root = root if root.is_dir() else root.parent.parent
table = root / "horon/base/setting_table.cc"
rows = re.findall(r'\bSetting\{\s*"(\w+)",\s*k(\w+),', table.read_text())
if len(rows) < 60:
    sys.exit(f"{table}: only {len(rows)} settings found; was the table written in another way?")
asked = {"Job": set(), "trainer": set()}
for source in sorted(root.glob("horon/**/*.cc")):
    if source == table or source.name.endswith("_test.cc") or source.name == "bare_loop.cc":  # LibTorch's own loop reads nothing for us
        continue
    text = re.sub(r"(?ms)^void check_config\(.*?^}$", "", source.read_text())
    asked["Job"].update(re.findall(r'[.>](?:text|bytes|duration|flag|integer)\(\s*"(\w+)"\s*\)', text))
    if source.is_relative_to(root / "horon/optim"):
        asked["trainer"].update(re.findall(r"\boptions\.(\w+)\b", text))
    if source.is_relative_to(root / "horon/train"):
        text = re.sub(r"\.(\w+) = config\.\1\b", "", text)
        asked["trainer"].update(re.findall(r"\b(?:config_?|alone|said)\.(\w+)\b(?!\s*(?:=[^=]|\())", text))
        asked["trainer"].update(re.findall(r'\bget_field\(config_?, "(\w+)"\)', text))
unread = [name for name, scope in rows if name not in asked["Job" if scope == "Job" else "trainer"]]
if unread:
    sys.exit("settings that nobody reads: " + ", ".join(unread))
print(f"{len(rows)} settings ok")
