# SPDX-License-Identifier: Apache-2.0
"""Lockstep's all-reduce beside two bounds, OpenMPI and gloo: float32 sum, in place, same machine, same ranks, in turn.

  two-phase  plain threads: add up the own part, barrier, copy the others' parts (reduce-scatter + all-gather)
  fused      plain threads: add up the own part and write it into all buffers, in one pass
  openmpi    MPI_Allreduce between processes
  openmpi-ucx, openmpi-tcp   the same over loopback: by UCX's TCP, and by OpenMPI's own
  gloo       torch.distributed.all_reduce between processes
  shared-memory, ucx   Lockstep's own, between processes over that transport, by --process-collective
  shared-memory-copied the same, in buffers that the other process cannot map

From 4 KiB up every rank writes its buffer before each call, as gradients are written, outside the time; below that
calls follow each other at once, because a barrier would cost more than the call. A ratio is the other side's time by
Lockstep's in the same round, so above 1 Lockstep is faster; printed are the median over the rounds and, in
brackets, the smallest and largest. Start it as ./tools/bench-collectives.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

import machine

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
FRESH_FROM = 4096
SUFFIXES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
BATCH_SECONDS = 0.002
OWN_SIDES = ("shared-memory", "shared-memory-copied", "ucx")  # Lockstep's, which get ratios, too


def size_of(text):
    factor = SUFFIXES.get(text[-1:], 1)
    return int(text[:-1] if factor > 1 else text) * factor


def size_text(size):
    for suffix in "GMK":
        if size % SUFFIXES[suffix] == 0:
            return "%d %siB" % (size // SUFFIXES[suffix], suffix)
    return "%d B" % size


class Lockstep:
    """All collectives of a round in one process, which times them in turn. `auto` measures in each before it chooses."""

    def __init__(self, options):
        self.options, self.names = options, options.collectives.split(",")
        self.program = os.path.join(options.build, "tools", "lockstep")
        self.chosen = {}

    def measure(self, size):
        with tempfile.TemporaryDirectory() as folder:
            rows = os.path.join(folder, "rows.json")
            command = [self.program, "bench", *self.names, "--place=in",
                       "--replicas=%d" % self.options.replicas, "--bytes=%d" % size, "--json=" + rows,
                       "--seconds=%g" % (self.options.seconds * len(self.names))]
            subprocess.run(command + (["--fresh"] if size >= FRESH_FROM else []), check=True,
                           stdout=subprocess.DEVNULL)
            with open(rows) as file:
                written = json.load(file)
        if not written["passed"]:
            raise SystemExit("bench-collectives: a result was wrong")
        self.chosen[size] = {name: row["algorithm"] for name, row in zip(self.names, written["rows"])}
        return {name: row["seconds"] for name, row in zip(self.names, written["rows"])}


class Side:
    """Processes that answer orders (side.h). One of several answers for itself; their mean counts."""

    def __init__(self, name, commands, seconds):
        self.name, self.seconds = name, seconds
        self.processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                          for command in commands]

    def order(self, size, calls, batches):
        answers = []
        try:
            for process in self.processes:
                process.stdin.write("%d %d %d %d\n" % (size, calls, batches, size >= FRESH_FROM))
                process.stdin.flush()
            answers = [process.stdout.readline() for process in self.processes]
        except BrokenPipeError:
            pass
        if not answers or not all(answers):
            raise SystemExit("bench-collectives: %s ended early; --sides= leaves it out" % self.name)
        return statistics.mean(float(answer) for answer in answers)

    def measure(self, size):
        once = self.order(size, 3, 1)
        calls = max(1, min(10000, int(BATCH_SECONDS / once)))
        return {self.name: self.order(size, calls, max(5, min(1000, int(self.seconds / (calls * once)))))}

    def close(self):
        for process in self.processes:
            try:
                process.stdin.close()
            except BrokenPipeError:
                pass
        for process in self.processes:
            process.wait()


def pinned(command, rank, ranks):
    cores = sorted(os.sched_getaffinity(0))
    return command if ranks > len(cores) else ["taskset", "-c", str(cores[rank])] + command


def start_sides(options, folder):
    ranks = options.replicas
    bounds = os.path.join(options.build, "bounds")
    mpi = os.path.join(options.build, "mpi-side")
    binding = "core" if ranks <= len(os.sched_getaffinity(0)) else "none"
    commands = {
        "two-phase": [[bounds, str(ranks), "two-phase"]],
        "fused": [[bounds, str(ranks), "fused"]],
        "openmpi": [["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", binding, "-n", str(ranks), mpi]],
        "gloo": [pinned([options.python, os.path.join(HERE, "gloo_side.py"), str(rank), str(ranks),
                         os.path.join(folder, "meeting")], rank, ranks) for rank in range(ranks)],
    }
    for transport in ("shared-memory", "ucx"):
        commands[transport] = [[os.path.join(options.build, "tools", "processes-side"), str(ranks), transport,
                                options.process_collective]]
    loopback = {"openmpi-ucx": ["--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices", "any", "-x", "UCX_TLS=tcp,self", "-x", "UCX_NET_DEVICES=lo"],
                "openmpi-tcp": ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]}
    for name, settings in loopback.items():
        commands[name] = [commands["openmpi"][0][:1] + settings + commands["openmpi"][0][1:]]
    commands["shared-memory-copied"] = [commands["shared-memory"][0] + ["copied"]]
    wanted = options.sides.split(",")
    for name in wanted:
        if name not in commands:
            raise SystemExit("bench-collectives: there is no side %s; there are %s" % (name, ", ".join(commands)))
    if any(name.startswith("openmpi") for name in wanted) and not (shutil.which("mpirun") and os.path.exists(mpi)):
        raise SystemExit("bench-collectives: OpenMPI is not here; --sides= leaves it out")
    return [Side(name, commands[name], options.seconds) for name in wanted]


def measure_size(options, size, lockstep, sides):
    """[{side: seconds} of each round]; every other round in the opposite order. And how many were disturbed."""
    rounds, disturbed = [], 0
    for number in range(options.rounds):
        times = {}
        disturbed += not machine.wait_until_idle(options.patience)
        for side in [lockstep, *sides][::1 if number % 2 == 0 else -1]:
            times.update(side.measure(size))
        rounds.append(times)
    return rounds, disturbed


def summary(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def result_of(size, rounds, ours, others, chosen):
    return {"bytes": size, "algorithms": chosen,
            "seconds": {name: summary([times[name] for times in rounds]) for name in rounds[0]},
            "ratios": {name: {other: summary([times[other] / times[name] for times in rounds]) for other in others}
                       for name in ours}}


def print_heading(others):
    print("%-10s %-20s %10s" % ("size", "side", "us") + "".join("  %-22s" % ("by " + other) for other in others))


def print_result(result, ours, others):
    seconds = result["seconds"]
    for other in (name for name in others if name not in ours):
        print("%-10s %-20s %10.2f" % (size_text(result["bytes"]), other, seconds[other]["median"] * 1e6))
    for name in ours:
        algorithm = result["algorithms"].get(name, name)
        label = name if algorithm == name else "%s (%s)" % (name, algorithm)
        line = "%-10s %-20s %10.2f" % (size_text(result["bytes"]), label, seconds[name]["median"] * 1e6)
        for other in others:
            ratio = result["ratios"][name][other]
            line += "  %-22s" % ("%.2f (%.2f - %.2f)" % (ratio["median"], ratio["min"], ratio["max"]))
        print(line.rstrip())
    sys.stdout.flush()


def parse_arguments():
    parser = argparse.ArgumentParser(prog="bench-collectives", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=2, help="ranks on every side [2]")
    parser.add_argument("--bytes", default="8,64,512,4K,32K,256K,1M,4M,16M,64M", help="sizes, with K, M, G")
    parser.add_argument("--collectives", default="auto,ring,hierarchical-copy,direct,halving-doubling,tree",
                        help="Lockstep's, by name")
    parser.add_argument("--sides", default="two-phase,fused,openmpi,gloo,shared-memory", help="what they are set beside")
    parser.add_argument("--process-collective", default="ring", help="of the sides that are Lockstep's [ring]")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.05, help="for each side, size and round [0.05]")
    parser.add_argument("--patience", type=float, default=5.0,
                        help="seconds to wait before each round until the machine is idle [5]")
    parser.add_argument("--build", default=os.path.join(ROOT, "build-bench"),
                        help="a folder with tools/lockstep, tools/processes-side, bounds and mpi-side; given, nothing is built")
    parser.add_argument("--python", default="/usr/bin/python3", help="that has torch, for gloo")
    parser.add_argument("--json", help="writes all figures there")
    return parser.parse_args()


def main():
    options = parse_arguments()
    results, disturbed = [], 0
    with tempfile.TemporaryDirectory() as folder:
        lockstep, sides = Lockstep(options), start_sides(options, folder)
        others = [side.name for side in sides]
        ours = lockstep.names + [name for name in others if name in OWN_SIDES]
        print("%d ranks, %d rounds; load of the machine %.1f" % (options.replicas, options.rounds, os.getloadavg()[0]))
        print_heading(others)
        try:
            for size in (size_of(text) for text in options.bytes.split(",")):
                rounds, more = measure_size(options, size, lockstep, sides)
                disturbed += more
                results.append(result_of(size, rounds, ours, others, lockstep.chosen[size]))
                print_result(results[-1], ours, others)
        finally:
            for side in sides:
                side.close()
    if disturbed:
        print("%d of %d rounds were disturbed by other programs" % (disturbed, options.rounds * len(results)))
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"replicas": options.replicas, "load": os.getloadavg(), "disturbed_rounds": disturbed,
                       "results": results}, file, indent=1)


if __name__ == "__main__":
    main()
