# SPDX-License-Identifier: Apache-2.0
"""Makes docs/python-reference.md from the docstrings of the package. A docstring has a text and, each on a line of its own, Args:, Returns:, Raises: and
Example: with what belongs to it indented.

usage: python_reference.py            writes the page
       python_reference.py --check    says whether it is what the docstrings say; a test
"""
import ast
import os
import re
import sys

import reference

SELF = "lab/pages/python_reference.py"
PAGE = os.path.join("docs", "python-reference.md")
PACKAGE = os.path.join(reference.ROOT, "python", "lockstep")
PARTS = ("Args", "Returns", "Raises", "Example")
# Section, where it is called, file, and what of it in which order; None: all that is public.
SECTIONS = (
    ("Models", "lockstep", "model.py", ("Model", "Sequential", "Variable")),
    ("Callbacks", "lockstep", "callbacks.py", ("Callback", "History")),
    ("Training loops", "lockstep.loops", "loops.py", ("Strategy", "DistributedDataset", "Replica")),
    ("Operations", "lockstep.ops", "ops.py", None),
    ("Layers of your own", "lockstep.ops", "_own_parts.py", ("Layer",)),
    ("Layers", "lockstep.layers", "layers.pyi", None),
    ("Compare, verify, simulate, bench", "lockstep", "laboratory.py", ("compare", "Comparison", "verify", "simulate", "bench")),
    ("Errors", "lockstep", "_errors.py", None),
)
# What their names say, or what the text before says of all.
BRIEF = {"ops.py", "layers.pyi"}
HEAD = f"""# Python reference

<!-- Made by {SELF} of the docstrings, in which changes are made. -->

[python.md](python.md) says how to use it. `help(lockstep.Model.fit)` shows the same.
"""


def read(name):
    with open(os.path.join(PACKAGE, name), encoding="utf-8") as file:
        return ast.parse(file.read())


def parts_of(text):
    """{"": the text, "Args": its lines, ...}"""
    parts, name = {"": []}, ""
    for line in text.splitlines():
        head = re.match(r"(\w+):$", line)
        if head and head[1] in PARTS:
            name = head[1]
            parts[name] = []
        else:
            parts[name].append(line)
    return parts


def entries(lines):
    """(name, text) of what is indented: a deeper line goes on."""
    made = []
    for line in lines:
        found = re.match(r"    (\*{0,2}\w+): (.*)$", line)
        if found:
            made.append([found[1], found[2]])
        elif line.strip():
            made[-1][1] += " " + line.strip()
    return made


def parameters(function, is_method):
    arguments = function.args
    names = [one.arg for one in arguments.posonlyargs + arguments.args][is_method:]
    names += ["*" + arguments.vararg.arg] if arguments.vararg else []
    names += [one.arg for one in arguments.kwonlyargs]
    return names + (["**" + arguments.kwarg.arg] if arguments.kwarg else [])


def signature(function, is_method):
    """Without types, which editors show."""
    arguments = ast.parse(ast.unparse(function)).body[0].args
    for one in arguments.posonlyargs + arguments.args + arguments.kwonlyargs + [arguments.vararg, arguments.kwarg]:
        if one:
            one.annotation = None
    arguments.args = arguments.args[is_method:]
    return f"({ast.unparse(arguments)})"


def is_property(function):
    return any(ast.unparse(one) == "property" for one in function.decorator_list)


def is_static(function):
    return any(ast.unparse(one) in ("staticmethod",) for one in function.decorator_list)


class Page:
    def __init__(self):
        self.out, self.wrong = [HEAD], []

    def tell(self, what, text, names, brief=False):
        """What a docstring says, and whether it says it of all parameters."""
        parts = parts_of(text)
        told = [name for name, _ in entries(parts.get("Args", []))]
        if not text:
            self.wrong.append(f"{what} has no docstring")
        if (told or not brief) and told != names:
            self.wrong.append(f"{what}: Args has {', '.join(told) or 'nothing'}; it takes {', '.join(names)}")
        self.out.append(" ".join("\n".join(parts[""]).strip().split("\n")))
        for name in ("Args", "Returns", "Raises"):
            lines = parts.get(name, [])
            if name == "Returns" and lines:
                self.out.append("\nReturns: " + " ".join(line.strip() for line in lines).strip())
            elif lines:
                self.out.append(f"\n{'Raises:' if name == 'Raises' else 'Arguments:'}\n")
                self.out += [f"- `{entry}`: {about}" for entry, about in entries(lines)]
        if "Example" in parts:
            code = "\n".join(line[4:] for line in parts["Example"]).strip("\n")
            self.out.append(f"\n```pycon\n{code}\n```")
        self.out.append("")

    def function(self, where, node, brief):
        self.out.append(f"### `{where}.{node.name}{signature(node, False)}`\n")
        self.tell(f"{where}.{node.name}", ast.get_docstring(node) or "", parameters(node, False), brief)

    def kind(self, where, node):
        functions = [one for one in node.body if isinstance(one, ast.FunctionDef)]
        init = next((one for one in functions if one.name == "__init__"), None)
        text = ast.get_docstring(node) or ""
        shown = init if init and "Args:" in text else None
        self.out.append(f"### `class {where}.{node.name}{signature(shown, True) if shown else ''}`\n")
        self.tell(f"{where}.{node.name}", text, parameters(shown, True) if shown else [])
        for one in functions:
            if one.name.startswith("_"):
                continue
            self.out.append(f"#### `{node.name}.{one.name}{'' if is_property(one) else signature(one, not is_static(one))}`\n")
            if one.name in ("set_model", "reword", "add") or any(ast.unparse(part).endswith(".setter") for part in one.decorator_list):
                self.out.pop()
                continue
            self.tell(f"{where}.{node.name}.{one.name}", ast.get_docstring(one) or "", parameters(one, not is_static(one)))

    def section(self, title, where, file, names):
        tree = read(file)
        self.out.append(f"## {title}\n")
        nodes = {node.name: node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_")}
        if file in BRIEF:
            self.out.append(" ".join((ast.get_docstring(read("layers.py" if file == "layers.pyi" else file)) or "").split("\n\n")[0].split("\n")) + "\n")
        for name in names or nodes:
            node = nodes[name]
            if file == "layers.pyi":
                if isinstance(node, ast.FunctionDef) and node.name[0].isupper():
                    self.out.append(f"- `{name}({', '.join(parameters(node, False))})`: {(ast.get_docstring(node) or '').rstrip('.').split(': ', 1)[-1]}")
            elif isinstance(node, ast.FunctionDef):
                self.function(where, node, file in BRIEF)
            elif names is not None or file == "_errors.py":
                self.kind(where, node)
        self.out.append("")


def check_names(page):
    """`__all__` of the package is what its __init__.py imports, now or when it is asked for, and what the page describes."""
    tree = read("__init__.py")
    exported = next(ast.literal_eval(one.value) for one in tree.body if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "__all__")
    imported = [name.name for one in [*tree.body, *(line for part in tree.body if isinstance(part, ast.If) for line in part.body)]
                if isinstance(one, ast.ImportFrom) and one.level for name in one.names]
    told = []
    for _, where, file, names in SECTIONS:
        module = where.partition(".")[2]
        told += [module] if module else names or [node.name for node in read(file).body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    for what, names in (("what the package imports", imported), ("SECTIONS", told)):
        if set(names) != set(exported):
            page.wrong.append(f"lockstep.__all__ and {what} differ: {', '.join(sorted(set(names) ^ set(exported)))}")


def make():
    page = Page()
    check_names(page)
    for section in SECTIONS:
        page.section(*section)
    if page.wrong:
        raise reference.Wrong("\n".join(page.wrong))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(page.out)).rstrip("\n") + "\n"


if __name__ == "__main__":
    try:
        sys.exit(reference.keep({PAGE: make()}, SELF))
    except reference.Wrong as wrong:
        sys.exit(str(wrong))
