#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks core/base/option_words.c: each option that a text in core, plugins or layers names has a row and each row is named, what it says
in C is a name of the public headers, and what it says in Python is one of the package.

usage: option_words.py ROOT [--self-test]
"""
import ast
import os
import re
import sys

TABLE = os.path.join("core", "base", "option_words.c")
ROW = re.compile(r'\{"([a-z-]+)",\s*("[^"]*"|NULL),\s*("[^"]*"|NULL),\s*([A-Z]+)\}')
TEXT = re.compile(r'"(?:[^"\\\n]|\\.)*"')
OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*)")
COMMENT = re.compile(r"//[^\n]*")
FOLDERS = ("core", "plugins", "layers", "datasets")
AS_OPTIONS = ("run", "compile", "fit")  # Model, compile and fit take the fields of these structs as **options


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def rows_of(source):
    """Option to its names in C and Python, None for those that only a command has."""
    return {option: None if c == "NULL" else (c.strip('"'), c.strip('"') if python == "NULL" else python.strip('"'), kind)
            for option, c, python, kind in ROW.findall(source)}


def named_in(source):
    """Options that the texts of a C source name. A comment that has quotes may name more."""
    lines = (line for line in source.splitlines() if not COMMENT.match(line.strip()))
    return {option for line in lines for text in TEXT.findall(line) for option in OPTION.findall(text)}


def sources(root):
    for folder in FOLDERS:
        for place, _, files in os.walk(os.path.join(root, folder)):
            for name in files:
                if name.endswith((".c", ".h", ".cu")) and os.path.join(place, name) != os.path.join(root, TABLE):
                    yield os.path.join(place, name)


def fields_of(header):
    """Fields of the structs of options, those of them that calls of Python take as **options, and all that a public header calls by a name."""
    code = COMMENT.sub("", header)
    structs = {name: set(re.findall(r"(\w+)(?=[;,])", fields))
               for name, fields in re.findall(r"struct ls_(\w+)_options \{(.*?)\n\};", code, re.S)}
    return set().union(*structs.values()), set().union(*(structs[name] for name in AS_OPTIONS)), set(re.findall(r"\w+", code))


def python_names(package):
    """Arguments of its public calls, and its public methods."""
    names = set()
    for name in sorted(os.listdir(package)):
        if not name.endswith(".py") or name in ("_declarations.py", "_composition.py"):
            continue
        for node in ast.walk(ast.parse(read(package, name))):
            if isinstance(node, ast.FunctionDef) and (not node.name.startswith("_") or node.name == "__init__"):
                names |= {node.name} | {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
    return names


def problems(rows, named, header, package):
    fields, as_options, words = fields_of(header)
    arguments = python_names(package) | as_options
    for option in sorted(named - set(rows)):
        yield f"a message names --{option}, for which the table has no row"
    for option in sorted(set(rows) - named):
        yield f"no message names --{option}"
    for option, row in sorted(rows.items()):
        if not row:
            continue
        c, python, kind = row
        for word in c.split(" and "):
            if word not in (words if kind in ("CALL", "ARGUMENT") else fields):
                yield f"--{option}: {word} is {'no word' if kind in ('CALL', 'ARGUMENT') else 'no field of options'} of the public header"
        for word in python.split("=")[0].split(" and "):
            if word not in arguments:
                yield f"--{option}: {word} is no argument of the Python package"
        for word in re.findall(r"'(\w+)':", python):
            if word not in fields:
                yield f"--{option}: '{word}' is no field of options of the public header"


root = sys.argv[1]
table, header, package = rows_of(read(root, TABLE)), read(root, "lockstep.h"), os.path.join(root, "python", "lockstep")
if "--self-test" in sys.argv:
    planted = dict(table, stratagem=("strategy", "strategy", "TEXT"), batch=("batches", "batch_sizes", "NUMBER"),
                   resume=("resume", "resume", "SWITCH"), verbose=("verbose", "checkpoints={'verbosely': 1}", "SWITCH"))
    named = named_in('ls_error("--colour", "use --shade=dark"); // "--comment"\n// "--not-this"\n"no--option"') | set(table)
    said = "\n".join(problems(planted, named, header, package))
    wrong = [text for text in ("names --colour", "names --shade", "no message names --stratagem", "--batch: batches is no field",
                               "--batch: batch_sizes is no argument", "--resume: resume is no argument", "--verbose: 'verbosely' is no field")
             if text not in said]
    wrong += [text for text in ("not-this", "--option") if text in said]
    print("\n".join(wrong) or "finds what is planted")
else:
    wrong = list(problems(table, {option for path in sources(root) for option in named_in(read(path))}, header, package))
    print("\n".join(wrong) or f"{len(table)} options, {sum(row is not None for row in table.values())} with words in C and Python")
sys.exit(1 if wrong or not table else 0)
