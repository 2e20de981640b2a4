# SPDX-License-Identifier: Apache-2.0
"""Which kernels a training step runs, and what they take, from records of CUPTI: (name, begin, end, shape) in seconds."""
import bisect
import collections
import ctypes
import ctypes.util
import json
import statistics

LONGEST = 20  # kernels that are kept by name
COPIES = ("Memcpy", "Memset")  # how their names begin
MARK = "cuda_body_guard"  # in the name of a kernel that each of Lockstep's steps runs once
LEAST_OF_STEP = 0.9  # of the kernels of a step: one that makes floats of bytes runs beside the step before, or beside the one before that


class Missing(Exception):
    """Which records are."""


def union(spans):
    """Length of what (begin, end) pairs cover; where several do, it counts once."""
    covered, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        covered += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return covered


def demangled(names):
    """As in the source where C++'s runtime is here."""
    try:
        function = ctypes.CDLL(ctypes.util.find_library("stdc++") or "libstdc++.so.6").__cxa_demangle
    except (OSError, AttributeError):
        return names
    function.restype = ctypes.c_char_p  # its memory is not freed: a few names
    return [(function(name.encode(), None, None, None) or name.encode()).decode() for name in names]


def read(path):
    """The records that kernel_time.c wrote, and how many it lost."""
    with open(path) as file:
        document = json.load(file)
    names, events = demangled(document["names"]), document["events"]
    origin = min((begin for _, begin, _, _ in events), default=0)  # whole nanoseconds, too many for a float
    return [(names[name], (begin - origin) * 1e-9, (end - origin) * 1e-9, shape) for name, begin, end, shape in events], document["lost"]


def last_steps(records, steps, count):
    """Those of the last `count` of so many steps, each from its mark to the next one."""
    marks = sorted(record[1] for record in records if MARK in record[0])
    if len(marks) < steps:
        raise Missing("%d of %d steps" % (len(marks), steps))
    bounds = marks[-count - 1:]
    kept = [record for record in records if bounds[0] <= record[1] < bounds[-1]]
    kernels = collections.Counter(bisect.bisect(bounds, record[1]) for record in kept if not record[0].startswith(COPIES))
    least, usual = min(kernels.values()), statistics.median(kernels.values())
    if least < LEAST_OF_STEP * usual:
        raise Missing("%d kernels of a step, and %g of most others" % (least, usual))
    return kept


def by_name(kernels, steps):
    """The longest in all: how often and how long in a step, the time before them in which the GPU was idle, and the grids and
    blocks that they were launched with."""
    rows, reached = {}, None
    for name, begin, end, shape in sorted(kernels, key=lambda kernel: kernel[1]):
        row = rows.setdefault(name, {"name": name, "count": 0.0, "seconds": 0.0, "idle_before": 0.0, "shapes": []})
        row["count"] += 1 / steps
        row["seconds"] += (end - begin) / steps
        row["idle_before"] += max(0.0, begin - (begin if reached is None else reached)) / steps
        if shape and shape not in row["shapes"] and len(row["shapes"]) < 4:
            row["shapes"].append(shape)
        reached = end if reached is None else max(reached, end)
    return sorted(rows.values(), key=lambda row: -row["seconds"])[:LONGEST]


def table(records, steps, by):
    """What a step of so many took. `recorded_idle_per_step` is that under CUPTI, which puts gaps between kernels of a graph."""
    kernels = [record for record in records if not record[0].startswith(COPIES)]
    copies = [record for record in records if record[0].startswith(COPIES)]
    spans = [(begin, end) for _, begin, end, _ in kernels]
    covered = union(spans)
    return {"kernels_per_step": len(kernels) / steps, "kernel_seconds_per_step": sum(end - begin for begin, end in spans) / steps,
            "kernel_union_seconds_per_step": covered / steps,
            "recorded_idle_per_step": (max(end for _, end in spans) - min(begin for begin, _ in spans) - covered) / steps,
            "copies_per_step": len(copies) / steps, "copy_seconds_per_step": sum(end - begin for _, begin, end, _ in copies) / steps,
            "longest": by_name(kernels, steps), "by": by}
