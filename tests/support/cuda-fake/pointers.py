#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes C++ that goes over the members of all structs of a header, so that the fake finds the pointers among them.

usage: pointers.py HEADER FILE
"""
import re
import sys


def main():
    text = re.sub(r"//[^\n]*", "", open(sys.argv[1], encoding="utf-8").read())
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        for name, body in re.findall(r"^struct (\w+) \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
            lines = []
            for declaration in filter(str.strip, body.split(";")):
                first, *others = declaration.split(",")
                lines += [f"    double_member(arguments->{re.findall(r'[A-Za-z_][A-Za-z_0-9]*', part.split('[')[0])[-1]}, reach);"
                          for part in [first, *others]]
            file.write("template <typename function>\nstatic inline void double_pointers(struct " + name
                       + " *arguments, function reach)\n{\n" + "\n".join(lines) + "\n}\n\n")


main()
