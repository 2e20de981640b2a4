# SPDX-License-Identifier: Apache-2.0
"""Runs the notebooks of examples/notebooks in Jupyter's nbclient, and keeps what they print and show, plots included.

usage: notebooks.py                    writes them where they are
       notebooks.py NOTEBOOK OUT       writes what NOTEBOOK gives to OUT

It needs nbclient, ipykernel, NumPy and Matplotlib; PYTHONPATH=python and LOCKSTEP_LIBRARY name a build.
"""
import os
import sys

import nbformat
from nbclient import NotebookClient

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "examples", "notebooks")


def execute(path, out):
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, kernel_name="python3", record_timing=False).execute()
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}, "language_info": {"name": "python"}}
    nbformat.validate(notebook)
    nbformat.write(notebook, out)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        execute(*sys.argv[1:])
    elif len(sys.argv) == 1:
        for name in sorted(os.listdir(FOLDER)):
            execute(os.path.join(FOLDER, name), os.path.join(FOLDER, name))
    else:
        sys.exit(__doc__.strip())
