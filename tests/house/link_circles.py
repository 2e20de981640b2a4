#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds groups of C files that call each other in circles, by the symbols of the objects of a build.

usage: link_circles.py BUILD [ROOT]              the test: a circle that allowed_circles.txt does not have fails, and so does a
                                                 file there that is in no circle any more: take its name from the list
       link_circles.py BUILD [ROOT] --list       all groups, in the form of allowed_circles.txt
       link_circles.py BUILD [ROOT] --why FILE   the group of a file (a path or the end of one): who calls what of whom in it,
                                                 which arrows alone keep it together, and which files leave with one file
       link_circles.py BUILD [ROOT] --pointers   each function of core that another file sets as a pointer, with that file; --all: also
                                                 those that only their own file sets, for its tables and callbacks
       link_circles.py --self-test

A file calls another one when its object has an undefined symbol that the object of the other one defines; so parts of one
struct that share an internal.h are seen, too, which no look at includes sees. Calls through pointers are not seen: so the
test also prints how many functions of core are set as pointers, which must not grow to make this test green.
Everything that is compiled is looked at but the tests. ROOT is the folder of the sources; without it, BUILD/meson-info says it.
"""
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ALLOWED = pathlib.Path(__file__).with_name("allowed_circles.txt")


def command(*words):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit("link_circles: %s failed: %s" % (words[0], done.stderr.strip()[-300:]))
    return done.stdout


# ---- The objects ----

def objects_of(build, root):
    """{path of the object: path of its source from the root} of all that is compiled but the tests, and what is not there yet."""
    found, missing = {}, []
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = os.path.relpath(os.path.realpath(os.path.join(entry["directory"], entry["file"])), root)
        if source.startswith(("tests/", "..")):
            continue
        path = os.path.join(entry["directory"], entry["output"])
        if os.path.exists(path):
            found[path] = source
        else:
            missing.append(source)
    return found, missing


def symbols_of(objects):
    """({object: symbols it defines for others}, {object: symbols it needs})"""
    defined, needed = collections.defaultdict(set), collections.defaultdict(set)
    for line in command("nm", "-A", "-P", "--extern-only", *objects).splitlines():
        path, _, rest = line.partition(": ")
        name, kind = rest.split()[:2]
        if kind in "Uwv":
            needed[path].add(name)
        else:
            defined[path].add(name)
    return defined, needed


def resolver(objects, defined):
    """A function (object, symbol) -> source that defines it for this object, or None: first within what is linked together (a
    plugin, a program), then in the static libraries. Those whose path begins like that of the object go first."""
    homes = collections.defaultdict(list)
    for path, names in defined.items():
        for name in names:
            homes[name].append(path)

    def resolve(path, name):
        here = os.path.dirname(path)
        places = [home for home in homes.get(name, ())
                  if os.path.dirname(home) == here or os.path.basename(os.path.dirname(home)).startswith("lib")]
        if not places:
            return None
        best = max(places, key=lambda home: (os.path.dirname(home) == here, len(os.path.commonpath([home, path])), home))
        return objects[best]
    return resolve


def arrows_of(objects, defined, needed):
    """{(source, other source): symbols of the other one that it needs}"""
    resolve, arrows = resolver(objects, defined), collections.defaultdict(set)
    for path, names in needed.items():
        for name in names:
            other = resolve(path, name)
            if other and other != objects[path]:
                arrows[objects[path], other].add(name)
    return arrows


# ---- Circles ----

def components(arrows):
    """Groups of two or more files each of which reaches every other one (Tarjan, without recursion)."""
    graph = collections.defaultdict(set)
    for source, target in arrows:
        graph[source].add(target)
    index, low, stack, on_stack, groups = {}, {}, [], set(), []
    for start in sorted(graph):
        if start in index:
            continue
        work = [(start, iter(sorted(graph[start])))]
        index[start] = low[start] = len(index)
        stack.append(start)
        on_stack.add(start)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(sorted(graph.get(target, ())))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    group = []
                    while not group or group[-1] != node:
                        group.append(stack.pop())
                        on_stack.discard(group[-1])
                    if len(group) > 1:
                        groups.append(sorted(group))
    return sorted(groups, key=lambda group: (-len(group), group))


def within(arrows, group):
    return {pair: names for pair, names in arrows.items() if pair[0] in group and pair[1] in group}


def base(path):
    return os.path.splitext(os.path.basename(path))[0]


def paragraphs(text):
    """[(comment, [names])]"""
    found = []
    for paragraph in text.strip().split("\n\n"):
        lines = paragraph.splitlines()
        names = " ".join(line for line in lines if not line.startswith("#")).split()
        if names:
            found.append((" ".join(line[1:].strip() for line in lines if line.startswith("#")), names))
    return found


def judge(groups, allowed, missing):
    """What is wrong, a line each. A paragraph of which a file has not been compiled here is not asked for."""
    wrong, matched = [], collections.defaultdict(set)
    for group in groups:
        names = {base(path) for path in group}
        fitting = [i for i, (_, row) in enumerate(allowed) if names <= set(row)]
        if fitting:
            matched[min(fitting, key=lambda i: len(allowed[i][1]))] |= names
        else:
            new = sorted(names - {name for _, row in allowed for name in row})
            what = "joins two of them" if not new else "is new" if set(new) == names else "grew by " + " ".join(new)
            wrong.append("a circle %s: %s" % (what, " ".join(group)))
    for i, (_, row) in enumerate(allowed):
        gone = [name for name in row if name not in matched[i]]
        if gone and not set(row) & missing:
            wrong.append("no longer in a circle with the others of their paragraph (%s ...): take from %s: %s"
                         % (row[0], ALLOWED.name, " ".join(gone)))
    return wrong


def asked_for(build, allowed):
    """Without the paragraphs of plugins that this build does not make, such as a device without its libraries."""
    made = {os.path.dirname(source) for source in build.objects.values()}
    return [row for row in allowed if not row[0].startswith("plugins/") or set(row[0].split(", ")) & made]


# ---- Why ----

def explain(arrows, groups, wanted):
    """Text about the group of a file: what an engineer needs who wants to end the circle."""
    fitting = [group for group in groups if any(path == wanted or path.endswith("/" + wanted) or base(path) == wanted
                                                for path in group)]
    if not fitting:
        return "%s is in no circle\n" % wanted
    said = []
    for group in fitting:
        inner = within(arrows, set(group))
        said.append("%d files:" % len(group))
        for path in group:
            left = components(within(inner, set(group) - {path}))
            rest = sum(map(len, left))
            said.append("  %-60s without it: %s" % (path, "%d files, %d groups" % (rest, len(left)) if left else "no circle"))
        said.append("arrows, those with the fewest symbols first; <== when the group falls apart without it:")
        for (source, target), names in sorted(inner.items(), key=lambda row: (len(row[1]), row[0])):
            left = sum(map(len, components({pair: 1 for pair in inner if pair != (source, target)})))
            note = "   <== %d files left" % left if left < len(group) else ""
            said.append("  %s -> %s: %s%s" % (source, target, " ".join(sorted(names)), note))
        said.append("symbols by the number of files of the group that need them:")
        users = collections.defaultdict(set)
        for (source, target), names in inner.items():
            for name in names:
                users[name, target].add(source)
        for (name, target), sources in sorted(users.items(), key=lambda row: (-len(row[1]), row[0])):
            left = sum(map(len, components({pair: 1 for pair, names in inner.items()
                                            if not (pair[1] == target and names == {name})})))
            note = "   <== %d files left without it" % left if left < len(group) else ""
            said.append("  %3d  %s (%s)%s" % (len(sources), name, target, note))
    return "\n".join(said) + "\n"


# ---- Pointers ----

NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
DEFINITION = re.compile(r"^(static )?[A-Za-z_][^\n;={}()#]*?\b(\w+)\([^;{}]*?\)\n\{", re.MULTILINE)
NAME = re.compile(r"(?<!struct )(?<!union )(?<!enum )(?<![\w.>])\b([a-z_]\w*)\b(?!\s*\()")


def pointers_of(texts):
    """{(function, its file, file that uses its name without a call)}: in a table, as an argument, or kept. `texts`: {path: text}"""
    codes = {path: NOT_CODE.sub(" ", text) for path, text in texts.items()}
    own, others, found = collections.defaultdict(set), {}, set()
    for path, code in codes.items():
        for static, name in DEFINITION.findall(code):
            if static:
                own[path].add(name)
            else:
                others[name] = path
    for path, code in codes.items():
        for name in set(NAME.findall(code)):
            if name in own[path]:
                found.add((name, path, path))
            elif name in others:
                found.add((name, others[name], path))
    return found


# ---- The command ----

class Build:
    """All that is asked of a build."""

    def __init__(self, build, root=None):
        self.build = pathlib.Path(build)
        if root is None:
            root = json.loads((self.build / "meson-info" / "meson-info.json").read_text())["directories"]["source"]
        self.root = pathlib.Path(root).resolve()
        self.objects, self.missing = objects_of(self.build, self.root)
        if not self.objects:
            raise SystemExit("link_circles: %s has no objects: run ninja there" % build)
        self.defined, self.needed = symbols_of(self.objects)
        self.arrows = arrows_of(self.objects, self.defined, self.needed)
        self.groups = components(self.arrows)

    def pointers(self):
        """Of the C files of core."""
        return pointers_of({path.relative_to(self.root).as_posix(): path.read_text(encoding="utf-8")
                            for path in sorted(self.root.glob("core/**/*.c"))})


def folders(group):
    return sorted({os.path.dirname(path) for path in group})


def pointers_text(pointers):
    across = {row for row in pointers if row[1] != row[2]}
    return "functions of core that are set as pointers: %d; %d of them by another file than their own" % (
        len({row[:2] for row in pointers}), len(across))


def in_form(groups):
    rows = []
    for group in sorted(groups, key=lambda group: (folders(group), group)):
        rows.append("# " + ", ".join(folders(group)) + "\n" + "\n".join(sorted(base(path) for path in group)))
    return "\n\n".join(rows) + "\n"


def self_test():
    def arrows(*pairs):
        return {tuple(pair.split(">")): {"f"} for pair in pairs}
    ring = arrows("core/a/x.c>core/a/y.c", "core/a/y.c>core/b/z.c", "core/b/z.c>core/a/x.c", "core/a/top.c>core/a/x.c")
    assert components(ring) == [["core/a/x.c", "core/a/y.c", "core/b/z.c"]]
    assert components(arrows("a.c>b.c", "b.c>c.c", "a.c>c.c")) == []
    two = components({**ring, **arrows("p.c>q.c", "q.c>p.c")})
    assert [len(group) for group in two] == [3, 2]
    listed = paragraphs("# a\nx y\nz\n\np q\n")
    assert judge(two, listed, set()) == []
    assert "is new" in judge(two, paragraphs("x y z"), set())[0]
    assert "grew by z" in judge(components(ring), paragraphs("x y"), set())[0]
    assert judge(components(ring), paragraphs("x y z\n\np q"), set())[0].endswith(": p q")
    assert judge(components(ring), paragraphs("x y z w"), set())[0].endswith(": w")
    assert judge(components(ring), paragraphs("x y z\n\np q"), {"q"}) == []
    assert "joins two" in judge([["p.c", "q.c"]], paragraphs("p\n\nq"), set())[0]
    said = explain({**ring, ("core/a/y.c", "core/a/x.c"): {"g", "h"}}, components(ring), "z")
    assert "core/a/x.c -> core/a/y.c: f   <== 0 files left" in said, said
    with tempfile.TemporaryDirectory(prefix="lockstep-test-") as folder:
        sources = {"core/one.c": "int two(void);\nint one(void)\n{\n    return two();\n}\n",
                   "core/two.c": "int one(void);\nstatic int own(void)\n{\n    return 1; // one, two\n}\n"
                                 "int (*const p[])(void) = {one, own};\nint two(void)\n{\n    return one();\n}\n",
                   "core/free.c": "int free_one(void)\n{\n    return 1;\n}\n"}
        entries = []
        for name, text in sources.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            output = "core/libx.a.p/%s.o" % base(name)
            pathlib.Path(folder, output).parent.mkdir(exist_ok=True)
            command("cc", "-fPIC", "-c", str(path), "-o", os.path.join(folder, output))
            entries.append({"directory": folder, "file": name, "output": output})
        entries.append({"directory": folder, "file": "core/late.c", "output": "core/libx.a.p/late.o"})
        pathlib.Path(folder, "compile_commands.json").write_text(json.dumps(entries))
        build = Build(folder, folder)
        assert build.groups == [["core/one.c", "core/two.c"]] and build.missing == ["core/late.c"], build.groups
        assert build.pointers() == {("one", "core/one.c", "core/two.c"), ("own", "core/two.c", "core/two.c")}, build.pointers()
    print("link_circles: finds what is planted")


def main(words):
    if words == ["--self-test"]:
        return self_test()
    options = [word for word in words if word.startswith("--")]
    wanted = words[words.index("--why") + 1] if "--why" in words[:-1] else None
    places = [word for word in words if word not in options and word != wanted]
    if not 1 <= len(places) <= 2:
        raise SystemExit(__doc__)
    build = Build(*places)
    if build.missing:
        print("%d files are not compiled yet, such as %s: what is printed may be too little" % (len(build.missing), build.missing[0]))
    if wanted:
        print(explain(build.arrows, build.groups, wanted), end="")
        return None
    if "--list" in options:
        print(in_form(build.groups), end="")
        return None
    pointers = build.pointers()
    if "--pointers" in options:
        print("\n".join("%s (%s) in %s" % row for row in sorted(pointers) if row[1] != row[2] or "--all" in options))
        return None
    across = [group for group in build.groups if len(folders(group)) > 1]
    print("%d circles of calls, %d files; %d across folders; the largest: %s" % (
        len(build.groups), sum(map(len, build.groups)), len(across), " ".join(str(len(group)) for group in build.groups[:8])))
    print(pointers_text(pointers))
    wrong = judge(build.groups, asked_for(build, paragraphs(ALLOWED.read_text())), {base(source) for source in build.missing})
    print("\n".join(wrong) or "all of them are allowed until somebody ends them")
    if wrong:
        print("link_circles.py BUILD --why FILE says what holds a group together")
    return 1 if wrong else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
