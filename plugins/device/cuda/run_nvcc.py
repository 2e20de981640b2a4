#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs nvcc and keeps what ptxas says about each kernel: registers, stack, spills, shared memory.

usage: run_nvcc.py FILE NVCC ARGUMENT...
"""
import subprocess
import sys


def is_usage(line):
    return line.startswith("ptxas info") or line.startswith("    ")


def main():
    done = subprocess.run(sys.argv[2:] + ["-Xptxas=-v"], stderr=subprocess.PIPE, text=True, check=False)
    lines = done.stderr.splitlines(keepends=True)
    sys.stderr.writelines(line for line in lines if done.returncode or not is_usage(line))
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.writelines(line for line in lines if is_usage(line))
    return done.returncode


sys.exit(main())
