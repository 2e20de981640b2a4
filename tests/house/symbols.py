#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the dynamic symbols of plugins: none of ours is undefined, and only lockstep_plugin is exported.

usage: symbols.py PLUGIN.so...
"""
import subprocess
import sys

# Names that linkers and instrumented builds add to any shared object.
LINKERS_OWN = {"_init", "_fini", "_edata", "_end", "__bss_start", "__end__", "_bss_end__", "__bss_end__"}
INSTRUMENTS = ("__asan", "__ubsan", "__tsan", "__sanitizer", "__odr_asan", "__gcov", "__llvm")


def symbols(path, which):
    command = ["nm", "-D", "-P", which, path]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[0].split("@")[0] for line in lines if line.strip()}


def problems(path):
    undefined = {name for name in symbols(path, "--undefined-only") if name.startswith(("ls_", "lockstep"))}
    exported = {name for name in symbols(path, "--defined-only") if not name.startswith(INSTRUMENTS)}
    for name in sorted(undefined):
        yield f"{path}: {name} is undefined: a plugin links nothing of ours"
    if "lockstep_plugin" not in exported:
        yield f"{path}: lockstep_plugin is not exported"
    for name in sorted(exported - LINKERS_OWN - {"lockstep_plugin"}):
        yield f"{path}: {name} is exported: a plugin exports lockstep_plugin alone"


wrong = [line for path in sys.argv[1:] for line in problems(path)]
print("\n".join(wrong) or f"{len(sys.argv) - 1} plugins: no undefined symbol of ours, one exported")
sys.exit(1 if wrong or len(sys.argv) < 2 else 0)
