#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What nvcc made of our kernels (run_nvcc.py) stays within limits: no stack, no spilled registers, few registers a thread, and shared
memory that every GPU has. A kernel with a stack or spills works, but waits for memory where nobody expects it.

usage: kernel_limits.py FILE ARCHITECTURE... | kernel_limits.py --self-test
"""
import re
import sys

MOST_REGISTERS = 96  # 65,536 of a multiprocessor: blocks of 256 threads fit twice
MOST_REGISTERS_OF = {"4taps": 168}  # namespace taps: they are where its sums are, and its blocks of 128 threads fit three times
MOST_SHARED = 48 << 10  # bytes of a block without asking for more
OWN = "cuda_"  # part of each name, by which tools/gpu-check tells compute-sanitizer what to watch
LEAST_KERNELS = 90  # for each architecture: fewer would mean that the file is read wrongly

ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(\S+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")


def check(lines, architectures, least):
    """Lines that say what is wrong."""
    wrong, name, kernels = [], "", dict.fromkeys(architectures, 0)
    stacks = 0
    for line in lines:
        if found := ENTRY.search(line):
            name = f"{found[1]} for {found[2]}"
            kernels[found[2]] = kernels.get(found[2], 0) + 1
            if OWN not in found[1]:
                wrong.append(f"{name}: its name has no {OWN}, so compute-sanitizer would not watch it")
        if found := STACK.search(line):
            stacks += 1
            if any(int(count) for count in found.groups()):
                wrong.append(f"{name}: {found[0]}")
        most = next((most for part, most in MOST_REGISTERS_OF.items() if part in name), MOST_REGISTERS)
        if (found := USED.search(line)) and int(found[1]) > most:
            wrong.append(f"{name}: {found[1]} registers, at most {most} expected")
        if (found := SHARED.search(line)) and int(found[1]) > MOST_SHARED:
            wrong.append(f"{name}: {found[1]} bytes of shared memory, at most {MOST_SHARED} expected")
    wrong += [f"{architecture}: {count} kernels, at least {least} expected" for architecture, count in kernels.items() if count < least]
    if stacks < sum(kernels.values()):
        wrong.append(f"{sum(kernels.values())} kernels, but only {stacks} lines about their stacks")
    print("\n".join(wrong) or f"{kernels}: no stack, no spills, no more registers or shared memory than expected")
    return wrong


def self_test():
    good = ["ptxas info    : Compiling entry function 'cuda_k' for 'sm_90'\n", "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n",
            "ptxas info    : Used 96 registers, used 1 barriers, 49152 bytes smem\n"]
    assert not check(good, ["sm_90"], 1)
    for old, new in (("0 bytes stack", "8 bytes stack"), ("0 bytes spill stores", "4 bytes spill stores"), ("96", "97"), ("49152", "49153"),
                     ("sm_90", "sm_80"), ("cuda_k", "k"), ("bytes stack frame", "")):
        assert check([line.replace(old, new) for line in good], ["sm_90"], 1), new


if sys.argv[1] == "--self-test":
    self_test()
else:
    with open(sys.argv[1], encoding="utf-8") as usage:
        sys.exit(1 if check(usage, ["sm_" + number for number in sys.argv[2:]], LEAST_KERNELS) else 0)
