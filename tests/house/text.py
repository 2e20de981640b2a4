#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that sources name their licence, and that no text names a folder of the machine it was written on.

usage: text.py ROOT
"""
import pathlib
import re
import sys

SPDX = "SPDX-License-Identifier: Apache-2.0"
NAMES_ITS_LICENCE = {".c", ".h", ".cu", ".cuh", ".py", ".sh"}
TEXT = NAMES_ITS_LICENCE | {".md", ".build", ".txt", ".json", ".yml", ""}
HOME = re.compile(r"(?<![\w.])/(?:home|root|work|Users)/[A-Za-z]")

root = pathlib.Path(sys.argv[1])
wrong, checked = [], 0
for path in sorted(root.rglob("*")):
    name = path.relative_to(root).as_posix()
    top = name.split("/")[0]
    hidden = top.startswith(".") and top not in {".ci"}
    if path.suffix not in TEXT or not path.is_file() or hidden or "__pycache__" in name:
        continue
    if top.startswith("build") or (root / top / "meson-private").is_dir():  # as .gitignore has it, or a build folder
        continue
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        if path.suffix:
            wrong.append(f"{name}: is not UTF-8")
        continue
    checked += 1
    if path.suffix in NAMES_ITS_LICENCE and not any(SPDX in line for line in lines[:2]):
        wrong.append(f"{name}: does not begin with {SPDX}")
    for number, line in enumerate(lines, 1):
        if HOME.search(line):
            wrong.append(f"{name}:{number}: names a folder of one machine: {line.strip()}")
print("\n".join(wrong) or f"{checked} files: licences are named, no folder of one machine is")
sys.exit(1 if wrong or not checked else 0)
