#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether `lockstep compare` can be believed on this machine: equal strategies compared again and again, or one of which
a replica is slower by a known amount.

    LOCKSTEP_PROGRAM=build-dev/tools/lockstep python3 tests/programs/compare_speed.py --runs=10 --steps=60,800 --busy=1
    LOCKSTEP_PROGRAM=... LOCKSTEP_FAULTS=build-dev/tests/plugins/faults python3 tests/programs/compare_speed.py --slower=10 --least=8

Prints each comparison, and ends with 1 when more than one in twenty of equal strategies were called different; when a
slower one was called faster; or when it was found to be slower in fewer than --least of the runs. Strategy `slow`
(tests/plugins/faults/strategy.c) is the one with the slower replica. Takes minutes: `tools/test --long` runs it.
"""
import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time

LOCKSTEP = os.environ["LOCKSTEP_PROGRAM"]
EQUAL = ["ring", "mirrored", "mirrored:collective=ring"]
PATIENCE = 1800  # seconds of one comparison


@contextlib.contextmanager
def busy(count):
    """So many other processes that compute without end."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def compare(strategies, steps, arguments):
    """The rows of one comparison, and the seconds that it took."""
    with tempfile.TemporaryDirectory(prefix="lockstep-test-") as folder:
        report = os.path.join(folder, "report.json")
        start = time.monotonic()
        done = subprocess.run([LOCKSTEP, "compare", "--quiet", "--model=" + arguments.model, "--dataset=" + arguments.dataset,
                               "--strategies=" + ",".join(strategies), "--replicas=2", f"--steps={steps}", "--report=" + report,
                               *arguments.more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
        if done.returncode != 0:
            sys.exit(f"lockstep compare ended with {done.returncode}: {done.stderr}")
        with open(report) as file:
            return json.load(file), time.monotonic() - start


def show(number, steps, others, seconds, report):
    print(f"run {number}: --steps={steps}{f', beside {others} busy' if others else ''}, {seconds:.1f} s")
    for pair in report["comparisons"]:
        needed = "" if pair["different"] else f", needs {pair['needed_steps']} steps"
        print(f"  {pair['a']} / {pair['b']}: {pair['ratio']:.3f} ({pair['low']:.3f} to {pair['high']:.3f}), p = {pair['p']:.3g}, "
              f"{'DIFFERENT' if pair['different'] else 'not different'}{needed}")
    print("  " + report["verdict"][0], flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, help="comparisons at each of --steps")
    parser.add_argument("--steps", default="60", help="N[,N...]")
    parser.add_argument("--busy", type=int, default=0, help="every second run is made beside so many busy processes")
    parser.add_argument("--slower", type=float, help="percent; without it, all are equal")
    parser.add_argument("--least", type=int, default=0, help="runs of each of --steps that must find the slower one")
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--dataset", default="fashion-mnist")
    parser.add_argument("--more", nargs=argparse.REMAINDER, default=[], help="arguments for compare")
    arguments = parser.parse_args()
    strategies = EQUAL
    if arguments.slower is not None:
        strategies = ["slow:percent=0", f"slow:percent={arguments.slower:g}"]
        arguments.more.append("--plugin-path=" + os.environ["LOCKSTEP_FAULTS"])

    failed, pairs, different = False, 0, 0
    for steps in (int(text) for text in arguments.steps.split(",")):
        found = 0
        for number in range(1, arguments.runs + 1):
            others = arguments.busy if number % 2 == 0 else 0
            with busy(others):
                report, seconds = compare(strategies, steps, arguments)
            show(number, steps, others, seconds, report)
            pairs += len(report["comparisons"])
            different += sum(pair["different"] for pair in report["comparisons"])
            if arguments.slower is not None:
                [pair] = report["comparisons"]
                found += pair["different"] and pair["ratio"] > 1
                failed = failed or (pair["different"] and pair["ratio"] < 1)
        if arguments.slower is not None:
            print(f"--steps={steps}: the one that is {arguments.slower:g} % slower was found in {found} of {arguments.runs} runs")
            failed = failed or found < arguments.least
    if arguments.slower is None:
        print(f"{different} of {pairs} comparisons of equal strategies were called different")
        failed = 20 * different > pairs
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
