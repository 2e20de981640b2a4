#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the shared library has nothing of the laboratory: no symbol that a static library of a room of tools/ defines.

usage: laboratory.py liblockstep.so ROOM.a...
"""
import subprocess
import sys


def defined(path):
    """The functions and data of the file, local ones of the shared library included: it hides all that is not public."""
    lines = subprocess.run(["nm", "--defined-only", "-P", path], capture_output=True, text=True, check=True).stdout.splitlines()
    fields = [line.split() for line in lines]
    return {field[0] for field in fields if len(field) > 2 and field[0].startswith("ls_") and field[1] in "TDBRtdbr"}


library, rooms = sys.argv[1], sys.argv[2:]
ours = defined(library)
wrong = [f"{library}: {name} is defined in {room}, which the library must not have"
         for room in rooms for name in sorted(defined(room) & ours)]
checked = sum(len(defined(room)) for room in rooms)
if not ours or not checked:
    wrong.append("no symbols were found: nothing was checked (is the library stripped?)")
print("\n".join(wrong) or f"{checked} symbols of {len(rooms)} rooms: none of them is in the library's {len(ours)}")
sys.exit(1 if wrong else 0)
