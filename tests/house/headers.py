#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles every installed header alone, warnings being errors.

usage: headers.py ROOT STANDARD COMPILER...     (STANDARD: c11 or c++17)
"""
import pathlib
import subprocess
import sys

root, standard, compiler = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
headers = sorted((root / "core" / "plugin").glob("*.h")) + [root / name for name in ("core/attributes.h", "layers.h", "lockstep.h")]
failed = []
for header in headers:
    name = header.relative_to(root).as_posix()
    # Included twice: the guard holds.
    text = f'#include "{name}"\n#include "{name}"\nint main(void);\nint main(void) {{ return 0; }}\n'
    command = compiler + [
        f"-std={standard}", "-x", "c++" if "++" in standard else "c", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
        "-Wno-missing-field-initializers", "-fsyntax-only", f"-I{root}", "-",
    ]
    if subprocess.run(command, input=text, text=True, check=False).returncode:
        failed.append(name)
for name in failed:
    print(f"{name} does not compile alone as {standard}")
print(f"{len(headers) - len(failed)} of {len(headers)} headers compile alone as {standard}")
sys.exit(1 if failed or not headers else 0)
