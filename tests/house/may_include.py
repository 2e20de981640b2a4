#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks every #include "..." of the tree against the table in docs/architecture.md, and that no row allows what nobody uses.

The table stands between two marks <!-- may-include -->; a row says what a folder may
include beside itself: | core/graph | core/base core/plugin |. A folder stands for all folders below it.
core/attributes.h is open to all. A plugin's own folder is plugins/<kind>/<name>: it shares nothing with the others.

usage: may_include.py ROOT | may_include.py --self-test
"""
import pathlib
import re
import sys
import tempfile

MARKS = re.compile(r"<!--\s*may-include\s*-->(.*?)<!--\s*/?may-include\s*-->", re.DOTALL)
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
SUFFIXES = {".c", ".h", ".cu", ".cuh", ".cc", ".cpp", ".hpp"}
OPEN_TO_ALL = {"core/attributes.h"}


def read_table(text):
    """folder -> set of what it may include."""
    found = MARKS.search(text)
    if not found:
        return {}
    table = {}
    for line in found.group(1).splitlines():
        cells = [cell.strip().replace("`", "") for cell in line.strip().strip("|").split("|")]
        if not line.strip().startswith("|") or len(cells) != 2 or cells[0] == "folder" or set(cells[0]) <= set("-: "):
            continue
        table[cells[0]] = set(cells[1].split())
    return table


def lies_in(path, folder):
    return path == folder or path.startswith(folder + "/")


def row_of(path, table):
    return max((folder for folder in table if lies_in(path, folder)), key=len, default=None)


def own_folder(path, row):
    return "/".join(path.split("/")[:3]) if row == "plugins" else row


def sources(root):
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        top = name.split("/")[0]
        if path.suffix not in SUFFIXES or not path.is_file() or top.startswith("."):
            continue
        if top.startswith("build") or (root / top / "meson-private").is_dir():  # as .gitignore has it, or a build folder
            continue
        yield name, path.read_text(encoding="utf-8", errors="replace")


def violations(root, table):
    """(lines that say what is wrong, number of includes that were checked)."""
    wrong, checked = [], 0
    for name, text in sources(root):
        row = row_of(name, table)
        if row is None and name in OPEN_TO_ALL:
            row, table = name, table | {name: set()}
        if row is None:
            wrong.append(f"{name}: its folder has no row in the table")
            continue
        for target in INCLUDE.findall(text):
            checked += 1
            if not (root / target).is_file():
                wrong.append(f'{name}: "{target}" is no file of the tree, seen from the root')
            elif target not in OPEN_TO_ALL and not any(
                lies_in(target, folder) for folder in table[row] | {own_folder(name, row)}
            ):
                wrong.append(f"{name}: {row} may not include {target}")
    return wrong, checked


def unused(root, table):
    """Lines that name what a row allows and no file of it includes."""
    used = {folder: set() for folder in table}
    for name, text in sources(root):
        row = row_of(name, table)
        for target in INCLUDE.findall(text) if row else ():
            used[row] |= {folder for folder in table[row] if lies_in(target, folder)}
    return [f"{row} may include {folder}, but nothing there does: remove it from the row"
            for row, folders in table.items() for folder in sorted(folders - used[row])]


def check(root):
    page = root / "docs" / "architecture.md"
    table = read_table(page.read_text(encoding="utf-8")) if page.is_file() else {}
    if not table:
        print(f"{page}: no table between two marks <!-- may-include -->")
        return 1
    wrong, checked = violations(root, table)
    wrong += unused(root, table)
    print("\n".join(wrong) or f"{checked} includes, {len(table)} rows: all as the table says")
    return 1 if wrong or not checked else 0


SELF_TEST_TABLE = """text
<!-- may-include -->
| folder | may include |
|---|---|
| core/base | |
| core/graph | core/base |
| plugins | core/plugin |
| core/plugin | |
<!-- /may-include -->
| core/base | core/graph |
"""
SELF_TEST_FILES = {
    "core/attributes.h": "",
    "core/base/log.h": '#include "core/attributes.h"\n#include <stdio.h>\n',
    "core/graph/graph.h": '#include "core/base/log.h"\n#include "core/graph/graph.h"\n',
    "core/plugin/plugin.h": "",
    "plugins/a/b/b.c": '#include "core/plugin/plugin.h"\n#include "plugins/a/b/b.h"\n',
    "plugins/a/b/b.h": "",
    "build/generated.c": '#include "core/base/log.h"\n',
    "build/meson-private/x": "",
}
SELF_TEST_PLANTED = {  # file -> what must be said of it
    "core/base/up.c": ('#include "core/graph/graph.h"\n', "core/base may not include core/graph/graph.h"),
    "core/graph/side.c": (' #  include "core/plugin/plugin.h"\n', "core/graph may not include core/plugin/plugin.h"),
    "core/graph/near.c": ('#include "graph.h"\n', "is no file of the tree"),
    "plugins/a/c/c.c": ('#include "plugins/a/b/b.h"\n', "plugins may not include plugins/a/b/b.h"),
    "plugins/a/d/d.c": ('#include "core/base/log.h"\n', "plugins may not include core/base/log.h"),
    "core/graphics/x.c": ("", "has no row"),
}


def write_files(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def self_test():
    """The check finds nothing in a good tree, and each planted violation in a bad one."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        table = read_table(SELF_TEST_TABLE)
        write_files(root, SELF_TEST_FILES)
        wrong, checked = violations(root, table)
        assert not wrong and checked == 5, (wrong, checked)
        assert not unused(root, table)
        said = unused(root, table | {"core/graph": {"core/base", "core/plugin"}})
        assert len(said) == 1 and said[0].startswith("core/graph may include core/plugin, but"), said
        write_files(root, {name: planted[0] for name, planted in SELF_TEST_PLANTED.items()})
        wrong, _ = violations(root, table)
        assert len(wrong) == len(SELF_TEST_PLANTED), wrong
        for name, (_, message) in SELF_TEST_PLANTED.items():
            assert any(line.startswith(name + ":") and message in line for line in wrong), (name, wrong)
        assert check(root) == 1  # no page, no table
        write_files(root, {"docs/architecture.md": SELF_TEST_TABLE})
        assert check(root) == 1
        for name in SELF_TEST_PLANTED:
            (root / name).unlink()
        assert check(root) == 0
    print(f"{len(SELF_TEST_PLANTED)} planted violations found, none where there is none")
    return 0


if len(sys.argv) != 2:
    sys.exit(__doc__)
sys.exit(self_test() if sys.argv[1] == "--self-test" else check(pathlib.Path(sys.argv[1])))
