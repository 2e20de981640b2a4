# SPDX-License-Identifier: Apache-2.0
"""The notebooks of examples/notebooks: the code of their cells runs in order, as Jupyter runs it."""
import ast
import contextlib
import io
import json
import os

import numpy_python
from support import ProgramTest, main

FOLDER = os.path.join(numpy_python.SOURCE, "examples", "notebooks")
NAMES = ("compare.ipynb", "train.ipynb")


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


class Notebooks(ProgramTest):
    def run_notebook(self, name):
        space, shown, out = {"__name__": "__main__"}, [], io.StringIO()
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            with contextlib.redirect_stdout(out):
                for cell in cells_of(name):
                    if cell["cell_type"] == "code":
                        shown.append(run_cell("".join(cell["source"]), space))
        finally:
            os.chdir(before)
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
