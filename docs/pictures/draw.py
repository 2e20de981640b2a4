#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of the documents into this folder.

usage: draw.py            writes them
       draw.py --check    fails where one is not what this would write, or is not drawn by this
"""
import pathlib
import sys

sys.dont_write_bytecode = True
import house  # noqa: E402
import networks  # noqa: E402
import places  # noqa: E402
import schedules  # noqa: E402

folder = pathlib.Path(__file__).resolve().parent
drawn = {f"{name}.svg": picture.svg() for module in (places, schedules, networks, house) for name, picture in module.pictures()}
if sys.argv[1:] == ["--check"]:
    there = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.svg")}
    wrong = [name for name in sorted(drawn.keys() | there.keys()) if drawn.get(name) != there.get(name)]
    print("\n".join(f"docs/pictures/{name}: is not what docs/pictures/draw.py draws" for name in wrong) or
          f"{len(drawn)} pictures are as they are drawn")
    sys.exit(1 if wrong else 0)
if sys.argv[1:]:
    sys.exit(__doc__.strip())
for name, text in drawn.items():
    (folder / name).write_text(text, encoding="utf-8")
print(f"{len(drawn)} pictures in {folder}")
