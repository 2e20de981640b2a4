# SPDX-License-Identifier: Apache-2.0
"""A Python that has packages of PyPI, for the long tests: the one that a variable names, the one that runs the tests, or a
virtual environment in the build folder, made from PyPI once and then kept. keras_python() is the one with Keras and both of its
backends."""
import os
import subprocess
import sys

MINUTES = 20


def has_packages(python, packages):
    names = ", ".join(packages)
    check = f"import importlib.util as u, sys; sys.exit(not all(u.find_spec(name) for name in '{names}'.split(', ')))"
    try:
        return subprocess.run([python, "-c", check], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def make_environment(folder, packages):
    """Python of a new virtual environment there, or None and why not."""
    python = os.path.join(folder, "bin", "python")
    install = [python, "-m", "pip", "install", "--disable-pip-version-check", "--retries=1", "--timeout=15", *packages]
    for name, command in (("venv", [sys.executable, "-m", "venv", folder]), ("pip", install)):
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60 * MINUTES)
        except subprocess.TimeoutExpired:
            return None, f"{name} took more than {MINUTES} minutes"
        if done.returncode:
            return None, f"{name}: {(done.stdout.strip().splitlines() or ['failed'])[-1]}"
    return python, None


def python_with(packages, what):
    """(path, None), or (None, the reason); the variables are LOCKSTEP_<what>_PYTHON and LOCKSTEP_<what>_FOLDER."""
    variable = f"LOCKSTEP_{what}_PYTHON"
    named = os.environ.get(variable)
    if named:
        return (named, None) if has_packages(named, packages) else (None, f"{variable}={named} lacks one of {', '.join(packages)}")
    if has_packages(sys.executable, packages):
        return sys.executable, None
    folder = os.environ[f"LOCKSTEP_{what}_FOLDER"]
    kept = os.path.join(folder, "bin", "python")
    if has_packages(kept, packages):
        return kept, None
    python, reason = make_environment(folder, packages)
    return python, reason and f"{', '.join(packages)} could not be had from PyPI: {reason}"


def keras_python():
    return python_with(("keras", "tensorflow", "jax"), "KERAS")
