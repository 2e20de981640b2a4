#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks tests/data: each file has the SHA-256 that the README there says, and all together are small.

usage: data.py ROOT
"""
import hashlib
import pathlib
import re
import sys

MOST_BYTES = 5_000_000

folder = pathlib.Path(sys.argv[1]) / "tests" / "data"
readme = folder / "README.md"
listed = {name: total for total, name in re.findall(r"^    ([0-9a-f]{64})  (\S+)$", readme.read_text(encoding="utf-8"), re.M)}
files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path != readme}
wrong = [f"{name}: the README does not list it" for name in sorted(set(files) - set(listed))]
wrong += [f"{name}: is listed in the README and missing" for name in sorted(set(listed) - set(files))]
wrong += [f"{name}: has another SHA-256 than the README says" for name, content in sorted(files.items())
          if name in listed and hashlib.sha256(content).hexdigest() != listed[name]]
size = sum(map(len, files.values()))
if size > MOST_BYTES:
    wrong.append(f"tests/data has {size} bytes, more than {MOST_BYTES}")
print("\n".join(wrong) or f"{len(files)} files, {size} bytes: as the README says")
sys.exit(1 if wrong or not files else 0)
