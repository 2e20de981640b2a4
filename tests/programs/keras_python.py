# SPDX-License-Identifier: Apache-2.0
"""A Python that has Keras and both of its backends, for the long tests: the one that LOCKSTEP_KERAS_PYTHON names, the one that
runs the tests, or a virtual environment in LOCKSTEP_KERAS_FOLDER, made from PyPI once and then kept."""
import os
import subprocess
import sys

PACKAGES = ("keras", "tensorflow", "jax")
MINUTES = 20


def has_keras(python):
    names = ", ".join(PACKAGES)
    check = f"import importlib.util as u, sys; sys.exit(not all(u.find_spec(name) for name in '{names}'.split(', ')))"
    try:
        return subprocess.run([python, "-c", check], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def make_environment(folder):
    """Python of a new virtual environment there, or None and why not."""
    python = os.path.join(folder, "bin", "python")
    install = [python, "-m", "pip", "install", "--disable-pip-version-check", "--retries=1", "--timeout=15", *PACKAGES]
    for name, command in (("venv", [sys.executable, "-m", "venv", folder]), ("pip", install)):
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60 * MINUTES)
        except subprocess.TimeoutExpired:
            return None, f"{name} took more than {MINUTES} minutes"
        if done.returncode:
            return None, f"{name}: {(done.stdout.strip().splitlines() or ['failed'])[-1]}"
    return python, None


def keras_python():
    """(path, None), or (None, the reason)."""
    named = os.environ.get("LOCKSTEP_KERAS_PYTHON")
    if named:
        return (named, None) if has_keras(named) else (None, f"LOCKSTEP_KERAS_PYTHON={named} lacks one of {', '.join(PACKAGES)}")
    if has_keras(sys.executable):
        return sys.executable, None
    folder = os.environ["LOCKSTEP_KERAS_FOLDER"]
    kept = os.path.join(folder, "bin", "python")
    if has_keras(kept):
        return kept, None
    python, reason = make_environment(folder)
    return python, reason and f"{', '.join(PACKAGES)} are not here and could not be had from PyPI: {reason}"
