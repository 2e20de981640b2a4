#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that plugins built earlier still fit: sizes and offsets of all structs of core/plugin, and values of all enumerations.

usage: abi.py ROOT RECORD COMPILER...           compares with the record
       abi.py --write ROOT RECORD COMPILER...   writes the record, after something was added

The record (tests/house/abi.txt) is that of ABI 1.0 on 64-bit Linux. What it has may not change or go; what it does not have yet
is to be written into it. LS_..._COUNT grow, and are not compared.
"""
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile

GROWS = ("_COUNT",)


def reader_of(root):
    path = root / "lab" / "pages" / "reference.py"
    spec = importlib.util.spec_from_file_location("reference", path)
    reference = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode = True
    spec.loader.exec_module(reference)
    return reference


def program_of(root):
    """A C program that prints a line for each struct, field and value."""
    reference = reader_of(root)
    headers = [path for path in reference.public_headers() if path.startswith("core")]
    out = ["#include <stddef.h>", "#include <stdio.h>"] + [f'#include "{path}"' for path in headers] + ["int main(void)", "{"]

    def line(name, *values):
        out.append(f'    printf("{name}{" %lld" * len(values)}\\n", {", ".join(f"(long long)({value})" for value in values)});')

    for path in headers:
        for item in reference.read_header(path):
            parts = [part for part in getattr(item, "parts", []) if isinstance(part, reference.Declaration)]
            if getattr(item, "kind", None) == "struct" and parts:
                line(item.name, f"sizeof({item.name})")
                for name in (name for part in parts for name in part.names):
                    line(f"{item.name}.{name}", f"offsetof({item.name}, {name})", f"sizeof((({item.name} *)0)->{name})")
            elif getattr(item, "kind", None) == "enum":
                for name in (part.name for part in parts if not part.name.endswith(GROWS)):
                    line(name, name)
    return "\n".join(out + ["    return 0;", "}", ""])


def measured(root, compiler):
    with tempfile.TemporaryDirectory() as folder:
        source, binary = os.path.join(folder, "abi.c"), os.path.join(folder, "abi")
        pathlib.Path(source).write_text(program_of(root), encoding="utf-8")
        subprocess.run(compiler + ["-std=c11", "-w", f"-I{root}", source, "-o", binary], check=True)
        return sorted(subprocess.run([binary], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines())


def compare(record, now):
    """What is wrong."""
    old, new = ({re.match(r"(?:struct )?\S+", line)[0]: line for line in lines} for lines in (record, now))
    wrong = [f"{line}: recorded, but is {new.get(name, 'gone')}" for name, line in old.items() if new.get(name) != line]
    return wrong + [f"{line}: new; run tests/house/abi.py --write" for name, line in new.items() if name not in old]


def main(arguments):
    write = arguments[:1] == ["--write"]
    root, record, *compiler = arguments[write:]
    root, record = pathlib.Path(root), pathlib.Path(record)
    if sys.maxsize < 2**32:
        print("SKIP: the record is of a 64-bit machine")
        return 77
    now = measured(root, compiler)
    if write:
        record.write_text("\n".join(now) + "\n", encoding="utf-8")
        return 0
    wrong = compare(record.read_text(encoding="utf-8").splitlines(), now)
    print("\n".join(wrong) or f"{len(now)} sizes, offsets and values are those of ABI 1.0")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
