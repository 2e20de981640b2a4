#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints figures about the structure of the sources, for developers of Lockstep who compare before and after.

  lines      of what is compiled into liblockstep, of all C and CUDA files, of the tests; comments and blanks count
  laboratory sources of the laboratory (conformance suites, simulation, comparison, bench: what no training needs) that are
             compiled into liblockstep, and the symbols that they define there
  circles    groups of C files that call each other in a circle, by the symbols of the objects, as the test house/link-circles
             finds them; and groups of files of core/ that include each other in a circle, x.c and x.h being one file
  symbols    external symbols of the library, and how many of them exactly one other file uses, or none outside of the tests
  tables     structs of function pointers in headers of core, those of plugins left out, for which the library has one table only
  guards     code and functions of the objects of core/ whose name begins with guard
  hosts      files that fill a struct ls_strategy_host or struct ls_server_host, that of core/ among them
  functions  lines between the braces, and parameters, of all functions in C files but the tests
  operations switches over enum ls_op, and comparisons with its values, in core/ outside of the table of operations, and
             apart from these in the laboratory, wherever that is. Comparisons that follow each other within two lines are one place
  calls      how many function calls below the step's driver a kernel of the device is launched, seen by gdb at each
             launch of two steps of cnn under ring: one line for each depth, with an example under --verbose. Needs
             --debug-build, a build without optimisation, which keeps every call

  ./tools/house-figures . build-release
  meson setup build-o0 --buildtype=debug -Dtests=disabled && ninja -C build-o0
  ./tools/house-figures . build-release --debug-build=build-o0 --verbose
  LOCKSTEP_PLUGIN_PATH=build-o0/tests/support/cuda-fake CUDA_FAKE_DEVICES=2 ./tools/house-figures . build-release \\
      --debug-build=build-o0 --device=cuda --launch=cuda_launch    # a device that records; needs a build with tests
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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "house"))
import link_circles  # noqa: E402

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


# ---- Symbols ----

LIBRARY = ("core/", "layers/", "datasets/")


def symbol_users(linked):
    """{(symbol, its file): other files that need it, the tests left out} of all external symbols of the library. `linked` is a
    link_circles.Build."""
    users = {}
    for path, names in linked.defined.items():
        if linked.objects[path].startswith(LIBRARY):
            users.update({(name, linked.objects[path]): set() for name in names})
    for (source, target), names in linked.arrows.items():
        for name in names:
            if (name, target) in users:
                users[name, target].add(source)
    return users


# ---- Tables and hosts ----

STRUCT = re.compile(r"^struct (\w+) \{\n(.*?)^\};", re.MULTILINE | re.DOTALL)
POINTER = re.compile(r"\(\*\w+\)\(")


def pointer_tables(tree):
    """{struct: (number of function pointers, files of the library that have a table of it)} of the headers of core, without
    those that plugins implement."""
    found = {}
    for name, text in tree.items():
        if name.startswith("core/") and name.endswith(".h") and not name.startswith("core/plugin/"):
            for struct, body in STRUCT.findall(code_only(text)):
                count = len(POINTER.findall(body))
                if count > 1:
                    found[struct] = (count, sorted(files_with_table(tree, struct, LIBRARY)))
    return found


def files_with_table(tree, struct, folders):
    """C files that fill a struct: `struct x name = {`, `struct x name[] = {` or `(struct x){`."""
    table = re.compile(r"\bstruct %s(?:\)| \**\w+(?:\[\w*\])? =) ?\{" % struct)
    return {name for name, text in tree.items()
            if name.startswith(folders) and name.endswith(".c") and table.search(code_only(text))}


def guard_sizes(linked):
    """(bytes of code, functions) of the objects of core whose name begins with guard."""
    paths = [path for path, source in linked.objects.items() if re.match(r"core/.*/guard\w*\.c$", source)]
    if not paths:
        return 0, 0
    sizes = command("size", *paths).splitlines()[1:]
    functions = [line for line in command("nm", "-P", "--defined-only", *paths).splitlines() if re.match(r"\S+ [tT] ", line)]
    return sum(int(line.split()[0]) for line in sizes), len(functions)


# ---- Functions ----

FUNCTION = re.compile(r"^[A-Za-z_][^\n;={}#]*?\b\w+\(([^{};]*)\)\n\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)


def functions(tree):
    """[(lines between the braces, parameters, "file: head")] of the C files but those of the tests."""
    found = []
    for name, text in tree.items():
        if name.endswith(".c") and not name.startswith("tests/"):
            for match in FUNCTION.finditer(text):
                inside = re.sub(r"\([^()]*\)", "", match.group(1)).strip()
                count = 0 if inside in ("", "void") else inside.count(",") + 1
                found.append((match.group(2).count("\n"), count, "%s: %s" % (name, match.group(0).split("(")[0])))
    return found


def at(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))] if values else 0


# ---- Folders ----

def room_lines(tree):
    """{folder of core: lines of its C files and headers, those of its folders included}"""
    rooms = collections.Counter()
    for name, text in tree.items():
        if re.match(r"core/\w+/", name):
            rooms["/".join(name.split("/")[:2])] += lines([text])
    return rooms


def tracked_lines(root):
    """{top folder: lines of its text files that git tracks}; nothing outside of a repository."""
    done = subprocess.run(["git", "-C", str(root), "ls-files", "-z", "core", "tools", "lab", "tests", "docs"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    found = collections.Counter()
    for name in done.stdout.decode().split("\0"):
        if name and (root / name).is_file():
            data = (root / name).read_bytes()
            found[name.split("/")[0]] += 0 if b"\0" in data else data.count(b"\n")
    return found


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


def call_depths(build, device, driver, launch):
    """{calls below the driver: (launches, the stack of one of them)}"""
    with tempfile.TemporaryDirectory(prefix="house-figures-") as folder:
        script = os.path.join(folder, "script.gdb")
        pathlib.Path(script).write_text(GDB.format(launch=launch))
        said = command("gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-x", script, "--args",
                       str(build / "tools" / "lockstep"), "train", "--model=cnn", "--dataset=fashion-mnist", "--device=" + device,
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
    parser.add_argument("--device", default="cpu", help="the device of which kernels are counted [cpu]")
    parser.add_argument("--driver", default="ls_driver_step", help="the step's driver [ls_driver_step]")
    parser.add_argument("--launch", default="cpu_kernel_launch",
                        help="what launches a kernel in the device [cpu_kernel_launch]")
    parser.add_argument("--table", default=TABLE, metavar="REGEX",
                        help="where the table of operations is, from the root [%(default)s]")
    parser.add_argument("--verbose", action="store_true", help="name each file, place and frame")
    options = parser.parse_args()
    for name, needed in (("build", "compile_commands.json"), ("debug_build", "tools/lockstep")):
        folder = getattr(options, name)
        if folder and not (folder / needed).exists():
            parser.error("%s has no %s: give a build folder, and run ninja in it" % (folder, needed))
    return options


def show_house(show, tree, linked):
    """The cut of the house: circles, symbols, tables, rooms, files, functions."""
    across = [group for group in linked.groups if len(link_circles.folders(group)) > 1]
    show("circles of calls between C files", "%d, of %d files" % (len(linked.groups), sum(map(len, linked.groups))),
         [", ".join(group) for group in linked.groups])
    show("  across folders", len(across), [", ".join(group) for group in across])
    show("  of more than three files", sum(len(group) > 3 for group in linked.groups))
    pointers = linked.pointers()
    other = sorted("%s (%s) in %s" % row for row in pointers if row[1] != row[2])
    show("functions of core that are set as pointers", len({row[:2] for row in pointers}))
    show("  by another file than their own", len(other), other)
    users = symbol_users(linked)
    unused = sorted("%s (%s)" % row for row, files in users.items() if not files)
    show("external symbols of core, layers, datasets", len(users))
    show("  with exactly one other file that uses them", sum(len(files) == 1 for files in users.values()))
    show("  that no other file uses, the tests left out", len(unused), unused)
    tables = {name: row for name, row in pointer_tables(tree).items() if len(row[1]) == 1}
    show("structs of pointers with one table in the library", len(tables),
         ["%s: %d pointers, %s" % (name, count, files[0]) for name, (count, files) in sorted(tables.items())])
    code, count = guard_sizes(linked)
    show("guards", "%d KB of code, %d functions" % (code // 1000, count))
    hosts = sorted(set().union(*(files_with_table(tree, struct, ("core/", "tools/", "tests/"))
                                 for struct in ("ls_strategy_host", "ls_server_host"))))
    show("files that fill a table of the strategy's host", len(hosts), hosts)

    rooms = room_lines(tree)
    show("largest folder of core", "%s, %d lines" % max(((n, c) for n, c in rooms.items()), key=lambda row: row[1]),
         ["%-30s %6d" % row for row in rooms.most_common()])
    show("folders of core above 6000 lines", sum(count > 6000 for count in rooms.values()))
    bases = collections.Counter(os.path.basename(name) for name in tree if name.startswith("core/") and name.endswith(".c"))
    twice = sorted(name for name, count in bases.items() if count > 1)
    show("base names of C files used twice in core", len(twice), twice)
    for title, tests in (("source files above 600 lines, the tests left out", False), ("  of the tests", True)):
        long = {name: lines([text]) for name, text in tree.items() if name.startswith("tests/") == tests and lines([text]) > 600}
        show(title, len(long), ["%-60s %6d" % row for row in sorted(long.items(), key=lambda row: -row[1])])
    strategy = tree.get("core/plugin/strategy.h", "")
    show("core/plugin/strategy.h", "%d lines, %d pointers" % (lines([strategy]), len(POINTER.findall(code_only(strategy)))))
    rows = functions(tree)
    lengths, parameters = [row[0] for row in rows], [row[1] for row in rows]
    show("lines of a function: median, p90, longest", "%d, %d, %d" % (at(lengths, 0.5), at(lengths, 0.9), max(lengths, default=0)),
         ["%4d %s" % (row[0], row[2]) for row in sorted(rows, reverse=True)[:20]])
    show("parameters of a function: median, p90", "%d, %d" % (at(parameters, 0.5), at(parameters, 0.9)))
    show("  functions with more than four", "%.1f %%" % (100 * sum(count > 4 for count in parameters) / max(1, len(rows))))
    show("  functions with more than six", sum(count > 6 for count in parameters),
         ["%d %s" % (row[1], row[2]) for row in rows if row[1] > 6])


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

    show_house(show, tree, link_circles.Build(build, root))
    for top, count in sorted(tracked_lines(root).items()):
        show("lines that git tracks in " + top, count)

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
        depths = call_depths(options.debug_build.resolve(), options.device, options.driver, options.launch)
        for depth, (launches, stack) in depths.items():
            show("calls from the driver down to a kernel", "%d (%d launches)" % (depth, launches), stack)
    return 0


if __name__ == "__main__":
    sys.exit(main())
