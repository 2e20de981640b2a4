# SPDX-License-Identifier: Apache-2.0
"""Lockstep, as a wheel carries it: the command, the library with its headers, plugins, models and networks, in the folder `prefix`.

    lockstep train --model=cnn --dataset=fashion-mnist
    PKG_CONFIG_PATH=$(python3 -m lockstep --pkg-config-path) pkg-config --cflags --libs lockstep
"""
import ctypes
import json
import os
import sys

__version__ = "@VERSION@"
prefix = os.path.join(os.path.dirname(os.path.abspath(__file__)), "prefix")
command = os.path.join(prefix, "bin", "lockstep")
pkg_config_path = os.path.join(prefix, "@LIBDIR@", "pkgconfig")

NOT_AVAILABLE = 4  # the exit code of Lockstep for a plugin or library that is not here


def is_here(library):
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def missing(users):
    """The libraries that are not on this machine, with the Debian packages that have them: {file: package}."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "libraries.json"), encoding="utf-8") as file:
        libraries = json.load(file)
    return {name: entry["package"] for name, entry in libraries.items() if entry["for"] in users and not is_here(name)}


def say(kind, libraries, what):
    names = ", ".join(sorted(libraries))
    packages = " ".join(sorted(set(libraries.values())))
    print(f"lockstep: {kind}{names}: not on this machine; {what}; on Debian: apt-get install {packages}", file=sys.stderr)


def main():
    """The command. What it cannot start without is an error; of what a part needs there is a warning, and the rest works."""
    if sys.argv[1:] == ["--pkg-config-path"]:
        print(pkg_config_path)
        return 0
    needed = missing(["command"])
    if needed:
        say("error: ", needed, "Lockstep cannot start without")
        return NOT_AVAILABLE
    for part, what in (("device-cpu", "device cpu is left out"), ("keras-files", "files of Keras are neither read nor written")):
        wanted = missing([part])
        if wanted:
            say("warning: ", wanted, what)
    os.execv(command, [command, *sys.argv[1:]])
