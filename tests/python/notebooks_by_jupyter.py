# SPDX-License-Identifier: Apache-2.0
"""The notebooks of examples/notebooks, executed by Jupyter's own nbclient. It comes from PyPI into a virtual environment of the build
folder, with NumPy and a kernel (tests/programs/keras_python.py); where PyPI cannot be reached, everything is skipped, by name."""
import os
import subprocess
import sys

SOURCE = os.environ["LOCKSTEP_SOURCE"]
sys.path[:0] = [os.path.join(SOURCE, "tests", "programs")]

from keras_python import python_with  # noqa: E402
from support import ProgramTest, main  # noqa: E402

FOLDER = os.path.join(SOURCE, "examples", "notebooks")
EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
nbformat.validate(notebook)
NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
for cell in notebook.cells:
    for output in cell.get("outputs", []):
        print(output.get("text", ""), " ".join(output.get("data", {})))
"""


class ByJupyter(ProgramTest):
    def execute(self, name):
        done = subprocess.run([PYTHON, "-c", EXECUTE, os.path.join(FOLDER, name)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              cwd=self.folder, timeout=900, env=dict(os.environ, PYTHONPATH=os.path.join(SOURCE, "python"),
                                                                     JUPYTER_PATH=os.path.join(sys.prefix, "share", "jupyter")))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_train(self):
        self.assertIn("val_accuracy", self.execute("train.ipynb"))

    def test_compare(self):
        out = self.execute("compare.ipynb")
        self.assertIn("text/html", out)
        self.assertIn("Verdict", out)


if __name__ == "__main__":
    PYTHON, missing = python_with(("nbclient", "ipykernel", "numpy"), "NOTEBOOK")
    if missing:
        print(f"SKIP python/notebooks, by Jupyter: {missing}")
        sys.exit(77)
    main()
