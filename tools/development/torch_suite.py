# SPDX-License-Identifier: Apache-2.0
"""Runs PyTorch's own tests of torch.distributed (torch/testing/_internal/distributed/distributed_test.py, as its
test_distributed_spawn.py does) on the CPU with one backend and one world size, and writes how each ended as JSON:

    python torch_suite.py --backend=lockstep --world=2 --json=FILE [--only=REGEX]

Tests that ask for gloo run with the backend in its place (with --in-place-of=mpi those that ask for MPI, as of all_to_all on the
CPU and in small worlds); tests that make a gloo group of their own keep it. Processes are forked from one that has imported
PyTorch, because importing it takes longer than most tests; --start=spawn does as PyTorch.
"""
import argparse
import contextlib
import io
import json
import os
import re
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class StandIn(str):
    """A backend's name that the tests take for another's."""

    place = "gloo"

    def __eq__(self, other):
        return str.__eq__(self, other) or other == self.place

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


def prepare(options):
    """The module of the tests, imported as for the backend in whose place ours is: decorators ask for it at import."""
    folder = tempfile.mkdtemp(prefix="torch-suite-")
    os.mkdir(os.path.join(folder, "barrier"))
    os.environ.update(BACKEND=options.in_place_of, WORLD_SIZE=str(options.world), TEMP_DIR=folder, CUDA_VISIBLE_DEVICES="",
                      DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(options.limit),
                      INIT_METHOD="file://" + os.path.join(folder, "init"))  # some tests want files, none want no files
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.path.insert(0, os.path.join(ROOT, "python"))
    from torch.testing._internal import common_distributed
    from torch.testing._internal.distributed import distributed_test
    common_distributed.TIMEOUT_OVERRIDE.clear()
    StandIn.place = options.in_place_of
    distributed_test.BACKEND = StandIn(options.backend)
    if options.backend == "lockstep":
        import lockstep.torch  # noqa: F401, which makes the backend known
    return distributed_test


def make_class(module, options):
    class Suite(module.TestDistBackend, module.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            if options.start == "spawn":
                self._spawn_processes()
            else:
                import torch.multiprocessing
                self._start_processes(torch.multiprocessing.get_context("fork").Process)

    Suite.__qualname__ = "Suite"
    globals()["Suite"] = Suite  # spawned processes find it by its name
    return Suite


def last_line(text):
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Exit|Interrupt)\b", line)]
    return (errors or lines or [""])[-1][:400]


class Result(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.outcome = ("passed", "", "")

    def addError(self, test, err):
        text = self._exc_info_to_string(err, test)
        self.outcome = ("failed", last_line(text), text)

    addFailure = addError

    def addSkip(self, test, reason):
        self.outcome = ("skipped", reason, "")


def run_one(test):
    """(outcome, reason, text, seconds)"""
    result, begin, output = Result(), time.monotonic(), io.StringIO()
    with contextlib.redirect_stdout(output):
        test.run(result)
    outcome, reason, text = result.outcome
    return outcome, reason, text, round(time.monotonic() - begin, 2)


def run_all(options):
    module = prepare(options)
    suite = make_class(module, options)
    names = [name for name in unittest.TestLoader().getTestCaseNames(suite) if re.search(options.only, name)]
    results = {}
    for name in names:
        outcome, reason, text, seconds = run_one(suite(name))
        results[name] = {"outcome": outcome, "reason": reason, "seconds": seconds}
        print(f"{outcome:8} {seconds:7.2f} s  {name}  {reason}", flush=True)
        if outcome == "failed" and options.verbose:
            print(text, flush=True)
        if options.json:
            write(options, results)
    return results


def write(options, results):
    import torch
    with open(options.json, "w", encoding="utf-8") as file:
        json.dump({"torch": torch.__version__, "backend": options.backend, "world": options.world, "in_place_of": options.in_place_of,
                   "tests": results}, file, indent=1, sort_keys=True)
        file.write("\n")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="lockstep")
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--in-place-of", choices=("gloo", "mpi"), default="gloo")
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--start", choices=("fork", "spawn"), default="fork")
    parser.add_argument("--limit", type=int, default=120, help="seconds a test may take")
    parser.add_argument("--verbose", action="store_true", help="print the traceback of what fails")
    return parser.parse_args()


def main():
    options = parse()
    results = run_all(options)
    outcomes = [one["outcome"] for one in results.values()]
    count = {outcome: outcomes.count(outcome) for outcome in ("passed", "failed", "skipped")}
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped", flush=True)
    return 1 if count["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
