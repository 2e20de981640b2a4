#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints figures about the structure of the sources, for developers of Lockstep who compare before and after.

  lines      of what is compiled into liblockstep, of all C and CUDA files, of the tests; comments and blanks count
  laboratory sources of the laboratory (conformance suites, simulation, comparison, bench: what no training needs) that are
             compiled into liblockstep, and the symbols that they define there
  circles    groups of files of core/ that include each other in a circle; x.c and x.h are one file
  operations switches over enum ls_op, and comparisons with its values, in core/ outside of the table of operations, and
             apart from these in the laboratory, wherever that is. Comparisons that follow each other within two lines are one place
  calls      how many function calls below the step's driver a kernel of device cpu is launched, seen by gdb at each
             launch of two steps of cnn under ring: one line for each depth, with an example under --verbose. Needs
             --debug-build, a build without optimisation, which keeps every call

  ./tools/house-figures . build-release
  meson setup build-o0 --buildtype=debug -Dtests=disabled && ninja -C build-o0
  ./tools/house-figures . build-release --debug-build=build-o0 --verbose
"""
import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
SUFFIXES = {".c", ".h", ".cu", ".cuh", ".cpp"}
TABLE = r"core/(graph|device)/operations?\b"  # where the table of operations is: files or a folder
LABORATORY = re.compile(r"core/conformance/|core/collective/(simulate|network)|core/train/networks|"
                        r"core/report/(chart|compar|rows|sentences|suggestions|verdict)|tools/")
OPERATION = re.compile(r"\bLS_OP_[A-Z0-9_]+")
COMPARISON = re.compile(r"[=!]=\s*LS_OP_[A-Z0-9_]+|\bLS_OP_[A-Z0-9_]+\s*[=!]=")


def sources(root):
    """{path from the root: text} of all C and CUDA files of the tree, build folders left out."""
    found = {}
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders
                      if not name.startswith((".", "build")) and not os.path.isdir(os.path.join(folder, name, "meson-private"))]
        for name in files:
            path = pathlib.Path(folder, name)
            if path.suffix in SUFFIXES:
                found[path.relative_to(root).as_posix()] = path.read_text(encoding="utf-8", errors="replace")
    return dict(sorted(found.items()))


def lines(texts):
    return sum(text.count("\n") for text in texts)


# ---- The library ----

def command(*words):
    """What the command writes on stdout."""
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except FileNotFoundError:
        raise SystemExit("house-figures: %s is not on this machine: install it" % words[0]) from None
    if done.returncode:
        raise SystemExit("house-figures: %s failed: %s" % (" ".join(words), done.stderr.strip()))
    return done.stdout


def library_file(build):
    with open(build / "meson-info" / "intro-targets.json") as file:
        targets = json.load(file)
    [target] = [t for t in targets if t["name"] == "lockstep" and t["type"] == "shared library"]
    return os.path.relpath(target["filename"][0], build)


def library_sources(build, tree, root):
    """What is compiled into liblockstep: C files of the tree that ninja needs for it."""
    inputs = command("ninja", "-C", str(build), "-t", "inputs", library_file(build)).splitlines()
    paths = (os.path.relpath(os.path.realpath(build / line), root) for line in inputs)
    return sorted({path for path in paths if path in tree and path.endswith(".c")})


def with_headers(tree, files):
    """The files and all headers of the tree that they include, directly or not."""
    found, waiting = set(), list(files)
    while waiting:
        name = waiting.pop()
        if name in tree and name not in found:
            found.add(name)
            waiting += INCLUDE.findall(tree[name])
    return found


def symbols(path):
    """Functions and data that the object or library defines, beginning with ls_; of an object only what others see."""
    output = command("nm", "--defined-only", str(path))
    kinds = "TDRB" if str(path).endswith(".o") else "TDRBtdrb"
    return {words[2] for words in map(str.split, output.splitlines())
            if len(words) == 3 and words[1] in kinds and words[2].startswith("ls_")}


def laboratory_symbols(build, root):
    """Symbols of the library that objects of the laboratory define."""
    with open(build / "compile_commands.json") as file:
        entries = json.load(file)
    defined = set()
    for entry in entries:
        name = os.path.relpath(os.path.realpath(os.path.join(entry["directory"], entry["file"])), root)
        if LABORATORY.match(name) and (build / entry["output"]).exists():
            defined |= symbols(build / entry["output"])
    return sorted(defined & symbols(build / library_file(build)))


# ---- Circles ----

def unit(path):
    return os.path.splitext(path)[0]


def include_graph(tree, folder):
    """unit -> units that it includes, within the folder."""
    graph = collections.defaultdict(set)
    for name, text in tree.items():
        if name.startswith(folder):
            graph[unit(name)] |= {unit(target) for target in INCLUDE.findall(text)
                                  if target.startswith(folder) and unit(target) != unit(name)}
    return graph


def reachable(graph, start):
    found, waiting = set(), list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += graph.get(name, ())
    return found


def circles(graph):
    """Groups of units each of which reaches every other one."""
    reach = {name: reachable(graph, name) for name in graph}
    groups = {frozenset(other for other in reach[name] if name in reach.get(other, ()))
              for name in graph if name in reach[name]}
    return sorted((sorted(group) for group in groups), key=lambda group: (-len(group), group))


# ---- Operations ----

def code_only(text):
    """The text without comments and strings; lines stay where they are."""
    return NOT_CODE.sub(lambda found: "\n" * found.group().count("\n") + " ", text)


def switches_over_operations(code):
    """Line numbers of `switch` statements with a case of enum ls_op of their own."""
    found = []
    for match in re.finditer(r"\bswitch\s*\(", code):
        depth, own, begin = 0, "", code.index("{", match.end())
        for character in code[begin:]:
            depth += (character == "{") - (character == "}")
            own += character if depth == 1 else ""
            if not depth:
                break
        if re.search(r"\bcase\s+LS_OP_", own):
            found.append(code.count("\n", 0, match.start()) + 1)
    return found


def comparison_places(code):
    """Line numbers where comparisons with values of enum ls_op begin; those within two lines are one place."""
    places, last = [], -10
    for number, line in enumerate(code.splitlines(), 1):
        if COMPARISON.search(line):
            if number - last > 2:
                places.append(number)
            last = number
    return places


def operation_places(tree, table, counts):
    """(switches, comparisons) as ["file:line", ...] in those files for which counts(name) is true, the table left out."""
    result = ([], [])
    for name, text in tree.items():
        if counts(name) and not re.match(table, name):
            code = code_only(text)
            for places, numbers in zip(result, (switches_over_operations(code), comparison_places(code))):
                places += ["%s:%d" % (name, number) for number in numbers]
    return result


# ---- Calls ----

GDB = """set pagination off
set confirm off
set breakpoint pending on
set print frame-arguments none
break {launch}
commands
silent
echo LAUNCH\\n
backtrace 64
continue
end
run
"""


def call_depths(build, driver, launch):
    """{calls below the driver: (launches, the stack of one of them)}"""
    with tempfile.TemporaryDirectory(prefix="house-figures-") as folder:
        script = os.path.join(folder, "script.gdb")
        pathlib.Path(script).write_text(GDB.format(launch=launch))
        said = command("gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-x", script, "--args",
                       str(build / "tools" / "lockstep"), "train", "--model=cnn", "--dataset=fashion-mnist", "--device=cpu",
                       "--strategy=ring", "--replicas=2", "--threads=1", "--steps=2", "--validation=off", "--quiet")
    return depths_of(said, driver)


def depths_of(said, driver):
    found = {}
    for stack in said.split("LAUNCH\n")[1:]:
        names = re.findall(r"^#\d+\s+(?:0x[0-9a-f]+ in )?(\w+) \(.*? at (\S+)", stack, re.MULTILINE)
        depth = next((i for i, (name, _) in enumerate(names) if name == driver), None)
        if depth:
            launches, example = found.get(depth, (0, ["%s %s" % row for row in names[:depth + 1]]))
            found[depth] = (launches + 1, example)
    if not found:
        raise SystemExit("house-figures: gdb saw no launch below %s; --driver= and --launch= name the functions" % driver)
    return dict(sorted(found.items()))


# ---- The command ----

def parse_arguments():
    parser = argparse.ArgumentParser(prog="house-figures", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", metavar="SOURCE", type=pathlib.Path, help="root of the sources")
    parser.add_argument("build", metavar="BUILD", type=pathlib.Path, help="a build folder of them")
    parser.add_argument("--debug-build", metavar="DIR", type=pathlib.Path, help="a build without optimisation; counts calls")
    parser.add_argument("--driver", default="ls_driver_step", help="the step's driver [ls_driver_step]")
    parser.add_argument("--launch", default="cpu_launch", help="what launches a kernel in device cpu [cpu_launch]")
    parser.add_argument("--table", default=TABLE, metavar="REGEX",
                        help="where the table of operations is, from the root [%(default)s]")
    parser.add_argument("--verbose", action="store_true", help="name each file, place and frame")
    options = parser.parse_args()
    for name, needed in (("build", "compile_commands.json"), ("debug_build", "tools/lockstep")):
        folder = getattr(options, name)
        if folder and not (folder / needed).exists():
            parser.error("%s has no %s: give a build folder, and run ninja in it" % (folder, needed))
    return options


def main():
    options = parse_arguments()
    root, build = options.source.resolve(), options.build.resolve()
    tree = sources(root)

    def show(title, value, details=()):
        print("%-58s %s" % (title, value))
        for line in details if options.verbose else ():
            print("    " + line)

    library = library_sources(build, tree, root)
    rooms = collections.Counter()
    for name in library:
        rooms["/".join(name.split("/")[:2])] += lines([tree[name]])
    show("lines of C compiled into liblockstep", lines(tree[name] for name in library),
         ["%-30s %6d" % row for row in sorted(rooms.items())])
    show("  with the headers that these include", lines(tree[name] for name in with_headers(tree, library)))
    show("lines of all C and CUDA files", lines(tree.values()))
    tops = collections.Counter()
    for name, text in tree.items():
        tops[name.split("/")[0] if "/" in name else "(root)"] += lines([text])
    for top, count in sorted(tops.items()):
        show("  " + top, count)
    laboratory = [name for name in library if LABORATORY.match(name)]
    show("lines of the laboratory in liblockstep", lines(tree[name] for name in laboratory), laboratory)
    there = laboratory_symbols(build, root)
    show("symbols of the laboratory in liblockstep", len(there), there)

    groups = circles(include_graph(tree, "core/"))
    show("circles of includes in core", "%d, of %d files" % (len(groups), sum(map(len, groups))),
         [", ".join(group) for group in groups])
    for title, counts in (("in core", lambda name: name.startswith("core/") and not LABORATORY.match(name)),
                          ("in the laboratory", LABORATORY.match)):
        switches, comparisons = operation_places(tree, options.table, counts)
        for kind, places in (("switches over operations " + title, switches),
                             ("places that compare operations " + title, comparisons)):
            show(kind, "%d, in %d files" % (len(places), len({place.split(":")[0] for place in places})), places)
    if options.debug_build:
        depths = call_depths(options.debug_build.resolve(), options.driver, options.launch)
        for depth, (launches, stack) in depths.items():
            show("calls from the driver down to a kernel", "%d (%d launches)" % (depth, launches), stack)
    return 0


if __name__ == "__main__":
    sys.exit(main())
