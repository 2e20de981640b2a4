# SPDX-License-Identifier: Apache-2.0
"""Imported first by the tests of the Python package: they run in a Python that has NumPy. That is the one that runs them, else the one that
LOCKSTEP_NUMPY_PYTHON names, else Debian's, for which python3-numpy is; without one they are skipped, by name, and counted."""
import importlib.util
import os
import subprocess
import sys

SOURCE = os.environ["LOCKSTEP_SOURCE"]
PACKAGE = os.path.join(SOURCE, "python")


def has_numpy(python):
    try:
        return subprocess.run([python, "-c", "import numpy"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


if importlib.util.find_spec("numpy") is None:
    for python in (os.environ.get("LOCKSTEP_NUMPY_PYTHON", ""), "/usr/bin/python3"):
        if python and has_numpy(python):
            os.execv(python, [python, *sys.argv])
    print(f"SKIP {os.path.basename(sys.argv[0])}: NumPy (package python3-numpy) is not here", flush=True)
    sys.exit(77)

sys.path[:0] = [PACKAGE, os.path.join(SOURCE, "tests", "programs")]
