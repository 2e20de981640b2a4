# SPDX-License-Identifier: Apache-2.0
"""docs/python.md and the notebooks of examples/notebooks: the code of their cells runs in order, as Jupyter runs it, but for the timing of compare, which
takes longest (notebooks_by_jupyter.py has it)."""
import ast
import contextlib
import io
import json
import os
import re

import numpy_python
import numpy
from support import ProgramTest, main

import lockstep

FOLDER = os.path.join(numpy_python.SOURCE, "examples", "notebooks")
NAMES = ("compare.ipynb", "train.ipynb")


@contextlib.contextmanager
def in_folder(folder):
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def cells_of(name):
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return json.load(file)["cells"]


def show(value):
    """What Jupyter asks of the value of a cell."""
    return value._repr_html_() if hasattr(value, "_repr_html_") else repr(value)


def run_cell(source, space):
    """Runs a cell; its last expression is its value, which is shown."""
    tree = ast.parse(source)
    last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), space)
    return show(eval(compile(last, "cell", "eval"), space)) if last else ""


class Page(ProgramTest):
    def test_the_code_of_the_page_runs_in_order(self):
        with open(os.path.join(numpy_python.SOURCE, "docs", "python.md"), encoding="utf-8") as file:
            blocks = re.findall(r"^```python\n(.*?)^```", file.read(), re.M | re.S)
        self.assertGreaterEqual(len(blocks), 5)
        random = numpy.random.default_rng(0)
        space = {"x": random.random((200, 28, 28, 1), dtype="float32"), "y": random.integers(0, 10, 200)}
        with in_folder(self.folder), contextlib.redirect_stdout(io.StringIO()) as out:
            for block in blocks:
                run_cell(block, space)
        self.assertIn("Verdict", out.getvalue())
        self.assertEqual(space["scores"].shape, (5, 10))


class Notebooks(ProgramTest):
    def run_notebook(self, name):
        space, shown, out = {"__name__": "__main__"}, [], io.StringIO()
        compare = lockstep.compare
        lockstep.compare = lambda *given, **options: compare(*given, **dict(options, speed_steps=0))
        try:
            with in_folder(self.folder), contextlib.redirect_stdout(out):
                for cell in cells_of(name):
                    if cell["cell_type"] == "code":
                        shown.append(run_cell("".join(cell["source"]), space))
        finally:
            lockstep.compare = compare
        self.assertEqual(os.listdir(self.folder), [])
        return "\n".join(shown), out.getvalue()

    def test_train(self):
        shown, out = self.run_notebook("train.ipynb")
        self.assertIn("conv2d/kernel", shown)
        self.assertRegex(out, r"Epoch 4/4 - .* - val_accuracy: ")

    def test_compare(self):
        shown, out = self.run_notebook("compare.ipynb")
        self.assertIn("<iframe srcdoc=", shown)
        self.assertIn("Verdict", out)

    def test_they_are_kept_without_what_they_printed(self):
        self.assertEqual(tuple(sorted(os.listdir(FOLDER))), NAMES)
        for name in NAMES:
            for cell in cells_of(name):
                self.assertEqual((cell.get("outputs", []), cell.get("execution_count")), ([], None), name)

    def test_a_cell_that_fails_fails_here(self):
        with self.assertRaises(AssertionError):
            run_cell("a = 1\nassert a == 2", {})
        self.assertEqual(run_cell("a = 1\na + 1", {}), "2")


if __name__ == "__main__":
    main()
