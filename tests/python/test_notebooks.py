# SPDX-License-Identifier: Apache-2.0
"""docs/python.md and the notebooks of examples/notebooks: the code of their cells runs in order, as Jupyter runs it, but for the timing of compare, which
takes longest (notebooks_by_jupyter.py has it), and shows what they are kept with, but for its numbers."""
import ast
import contextlib
import doctest
import io
import json
import os
import re
import sys
import unittest.mock

import numpy_python
import numpy
from support import ProgramTest, main, read_json

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
    return read_json(os.path.join(FOLDER, name))["cells"]


def show(value):
    """What Jupyter asks of the value of a cell."""
    if value is None:
        return ""
    return value._repr_html_() if hasattr(value, "_repr_html_") else repr(value)


def run_cell(source, space):
    """Runs a cell; its last expression is its value, which is shown."""
    tree = ast.parse(source)
    last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), space)
    return show(eval(compile(last, "cell", "eval"), space)) if last else ""


class Docstrings(ProgramTest):
    def test_their_examples(self):
        """Each with a model, examples and labels of its own, as docs/python-reference.md shows it."""
        with open(os.path.join(numpy_python.SOURCE, "docs", "python-reference.md"), encoding="utf-8") as file:
            examples = re.findall(r"^###+ `(.*)`\n(?:(?!^#).*\n)*?```pycon\n((?:.*\n)*?)```$", file.read(), re.M)
        self.assertGreaterEqual(len(examples), 15)
        runner = doctest.DocTestRunner(verbose=False)
        for name, text in examples:
            random = numpy.random.default_rng(0)
            space = {"lockstep": lockstep, "layers": lockstep.layers, "ops": lockstep.ops, "y": random.integers(0, 10, 256),
                     "x": random.random((256, 28, 28, 1), dtype="float32"),
                     "model": lockstep.Model("mlp", strategy="ring", replicas=2, device="cpu", threads=1)}
            said = io.StringIO()
            with self.subTest(name), in_folder(self.folder):
                found = runner.run(doctest.DocTestParser().get_doctest(text, space, name, name, 0), out=said.write)
                self.assertEqual(found.failed, 0, said.getvalue())
                self.assertGreater(found.attempted, 0)


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


def kept_of(cell):
    """What the cell is kept with: kinds and texts of its outputs."""
    data = {kind: "".join(text) for output in cell["outputs"] for kind, text in output.get("data", {}).items()}
    return data, "".join("".join(output["text"]) for output in cell["outputs"] if output.get("name") == "stdout")


def without_numbers(text):
    return re.sub(r"[\d.]+(e[+-]?\d+)?", "N", re.sub(r"\s+", "", text))


class Notebooks(ProgramTest):
    def run_notebook(self, name):
        space, shown, out = {"__name__": "__main__"}, [], io.StringIO()
        compare = lockstep.compare
        lockstep.compare = lambda *given, **options: compare(*given, **dict(options, speed_steps=0))
        plots = unittest.mock.MagicMock()  # Matplotlib itself draws in notebooks_by_jupyter.py
        plots.subplots.return_value = (None, [unittest.mock.MagicMock(), unittest.mock.MagicMock()])
        plots.show.return_value = None
        plotting = {"matplotlib": unittest.mock.MagicMock(pyplot=plots), "matplotlib.pyplot": plots}
        try:
            with in_folder(self.folder), contextlib.redirect_stdout(out), unittest.mock.patch.dict(sys.modules, plotting):
                for cell in cells_of(name):
                    if cell["cell_type"] != "code":
                        continue
                    shown.append(run_cell("".join(cell["source"]), space))
                    data, _ = kept_of(cell)
                    if "image/png" in data:
                        plots.show.assert_called_once_with()
                        plots.show.reset_mock()
                    elif "text/html" not in data:
                        kept = without_numbers(data.get("text/plain", ""))
                        self.assertEqual(without_numbers(shown[-1]), kept, cell["id"])
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

    def test_they_are_kept_with_what_they_printed_and_drew(self):
        self.assertEqual(tuple(sorted(os.listdir(FOLDER))), NAMES)
        for name in NAMES:
            code = [cell for cell in cells_of(name) if cell["cell_type"] == "code"]
            self.assertEqual([cell["execution_count"] for cell in code], list(range(1, len(code) + 1)), name)  # run from the top
            outputs = [output for cell in code for output in cell["outputs"]]
            self.assertNotIn("error", [output["output_type"] for output in outputs])
            self.assertNotRegex(json.dumps(outputs), r"/tmp/|/work/|/home/|object at 0x")
            self.assertIn("image/png", [kind for output in outputs for kind in output.get("data", {})], name)
            self.assertLess(os.path.getsize(os.path.join(FOLDER, name)), 400_000)
        page, text = kept_of(next(cell for cell in cells_of("compare.ipynb") if "found  # the page" in "".join(cell["source"])))
        self.assertIn("<iframe srcdoc=", page["text/html"])
        self.assertEqual(text, "")

    def test_a_cell_that_fails_fails_here(self):
        with self.assertRaises(AssertionError):
            run_cell("a = 1\nassert a == 2", {})
        self.assertEqual(run_cell("a = 1\na + 1", {}), "2")


if __name__ == "__main__":
    main()
