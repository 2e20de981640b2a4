# SPDX-License-Identifier: Apache-2.0
"""The command `lockstep` of a wheel: `lockstep train ...`, or python3 -m lockstep train ..."""
import ctypes
import json
import os
import sys
from typing import Dict, Iterable

NOT_AVAILABLE = 4  # the exit code of Lockstep for a plugin or library that is not here


def is_here(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def missing(users: Iterable[str]) -> Dict[str, str]:
    """The libraries that are not on this machine, with the Debian packages that have them: {file: package}. The wheel lists what it
    needs; elsewhere nobody does."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libraries.json")
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        libraries = json.load(file)
    return {name: entry["package"] for name, entry in libraries.items() if entry["for"] in users and not is_here(name)}


PARTS = (("device-cpu", "device cpu is left out"), ("keras-files", "files of Keras are neither read nor written"))


def say(kind: str, libraries: Dict[str, str], what: str) -> None:
    names = ", ".join(sorted(libraries))
    packages = " ".join(sorted(set(libraries.values())))
    print(f"lockstep: {kind}{names}: not on this machine; {what}; on Debian: apt-get install {packages}", file=sys.stderr)


def warn_of_parts() -> None:
    """Of what a part needs and is not here: the rest works."""
    for part, what in PARTS:
        lacking = missing([part])
        if lacking:
            say("warning: ", lacking, what)


def main() -> int:
    """The command. What it cannot start without is an error."""
    from ._native import command_path, pkg_config_path

    if sys.argv[1:] == ["--pkg-config-path"]:
        print(pkg_config_path())
        return 0
    needed = missing(["command"])
    if needed:
        say("error: ", needed, "Lockstep cannot start without")
        return NOT_AVAILABLE
    warn_of_parts()
    command = command_path()
    try:
        os.execvp(command, [command, *sys.argv[1:]])
    except OSError as error:
        print(f"lockstep: error: {command}: {error.strerror}; LOCKSTEP_PROGRAM names the command", file=sys.stderr)
    return NOT_AVAILABLE
