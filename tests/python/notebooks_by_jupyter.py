# SPDX-License-Identifier: Apache-2.0
"""The notebooks of examples/notebooks, executed by Jupyter's own nbclient (lab/pages/notebooks.py), give what they are kept with, but for
their figures. It comes from PyPI into a virtual environment of the build folder, with NumPy, Matplotlib and a kernel (tests/programs/keras_python.py); where PyPI cannot be reached, everything is skipped, by name."""
import os
import subprocess
import sys

SOURCE = os.environ["LOCKSTEP_SOURCE"]
sys.path[:0] = [os.path.join(SOURCE, "tests", "programs")]

from keras_python import python_with  # noqa: E402
from support import ProgramTest, main, read_json  # noqa: E402

FOLDER = os.path.join(SOURCE, "examples", "notebooks")
SCRIPT = os.path.join(SOURCE, "lab", "pages", "notebooks.py")


def kinds(path):
    """What the cells give, without their figures: kinds of outputs, and where something is written."""
    cells = read_json(path)["cells"]
    return [(cell["id"], sorted({(output["output_type"], output.get("name"), *sorted(output.get("data", {}))) for output in cell["outputs"]}, key=str))
            for cell in cells if cell["cell_type"] == "code"]


class ByJupyter(ProgramTest):
    def test_each_gives_what_it_is_kept_with(self):
        for name in ("train.ipynb", "compare.ipynb"):
            with self.subTest(name):
                kept, made = os.path.join(FOLDER, name), self.path(name)
                done = subprocess.run([PYTHON, SCRIPT, kept, made], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder,
                                      timeout=900, env=dict(os.environ, PYTHONPATH=os.path.join(SOURCE, "python"),
                                                            JUPYTER_PATH=os.path.join(sys.prefix, "share", "jupyter")))
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertEqual(kinds(made), kinds(kept))


if __name__ == "__main__":
    PYTHON, missing = python_with(("nbclient", "ipykernel", "numpy", "matplotlib"), "NOTEBOOK")
    if missing:
        print(f"SKIP python/notebooks, by Jupyter: {missing}")
        sys.exit(77)
    main()
