# SPDX-License-Identifier: Apache-2.0
"""Checks of tools/gpu-check that measure, or that another program makes: memory, speed, compute-sanitizer."""
import ctypes
import os
import re
import shutil
import sys

from checks import read_json
from place import ROOT, said
from runner import NotRun, TimeOver, Wrong

SANITIZER_CODE = 86  # ends with that when it has found something
OWN_KERNELS = "kernels_cu"  # part of the mangled names of our kernels, all of plugins/device/cuda/engine/kernels.cu
SHARING_CASES = "batch_normalization"  # of the device suite: own kernels in which threads of a block share memory
REFUSALS = ("Device not supported", "not supported on this", "Unable to", "Failed to initialize", "No attachable process",
            "Error: Target application terminated before first instrumented API call")
# Issue: ratios to PyTorch on `cnn`, by batch: (to eager, to its best mode, least busy); None: only reported.
GOALS = {64: (3.0, 1.2, None), 1024: (None, 1.0, 0.95)}


class Memory:
    """Bytes in use on GPU 0, by NVML, which needs no context and changes nothing."""

    def __init__(self):
        class Info(ctypes.Structure):
            _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]

        self.info, self.handle = Info(), ctypes.c_void_p()
        try:
            self.library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise NotRun("NVML is not here: %s" % error) from error
        if self.library.nvmlInit_v2() or self.library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.handle)):
            raise NotRun("NVML does not start")

    def used(self):
        if self.library.nvmlDeviceGetMemoryInfo(self.handle, ctypes.byref(self.info)):
            raise NotRun("NVML does not say what memory is in use")
        return self.info.used


class Pretended:
    """In a dry run: always the same."""

    @staticmethod
    def used():
        return 0


class Measures:
    def __init__(self, place, checks, options):
        self.place, self.checks, self.sizes, self.options = place, checks, checks.sizes, options

    # ---- Memory ----

    def memory(self):
        """What is in use at the end of each epoch, from the second one to the end of 10,000 steps."""
        sizes, place = self.sizes, self.place
        memory = Pretended() if place.double else Memory()
        epochs = -(-sizes.memory_steps // sizes.memory_epoch)
        examples, seen = sizes.memory_epoch * sizes.memory_batch, []
        dataset = place.dataset + ("," if ":" in place.dataset else ":") + "limit=%d" % examples

        def look(line):
            if line.startswith("Epoch "):
                seen.append(memory.used())

        outcome = place.lockstep("train", "--device=cuda", "--model=cnn", "--dataset=" + dataset, "--replicas=1",
                                 "--validation=off", "--batch=%d" % sizes.memory_batch, "--epochs=%d" % epochs, on_line=look)
        if outcome.code or len(seen) != epochs:
            raise Wrong("%d epochs of %d, %s" % (len(seen), epochs, outcome.ending()),
                        output=outcome.output)
        growth = seen[-1] - seen[1]
        figures = {"steps": epochs * sizes.memory_epoch, "used_bytes_after_epochs": seen, "growth_bytes": growth}
        if growth > 0:
            raise Wrong("memory in use grew by %d bytes in %d steps" % (growth, figures["steps"]), figures)
        return "no growth from step %d to step %d%s" % (
            2 * sizes.memory_epoch, figures["steps"], " (PRETENDED figures)" if place.double else ""), figures

    # ---- Speed ----

    def speed(self):
        path = self.place.path("gpu-check-speed.json")
        if os.path.exists(path):
            os.unlink(path)
        command = [sys.executable, os.path.join(ROOT, "tools", "development", "bench_train.py"), "--device=cuda", "--json=" + path,
                   "--lockstep=" + self.place.program(), "--nvidia-root=" + self.place.nvidia_root,
                   "--data=" + (self.place.carried("fashion-mnist") or "/usr/share/datasets/fashion-mnist")]
        if self.place.double:
            command += ["--plugin-path=" + self.place.double, "--torch-device=cpu", "--batches=4,8", "--limit=32",
                        "--rounds=1", "--seconds=0.05", "--modes=eager,compile,graph"]
        else:
            command += ["--rounds=5", "--seconds=1"]
        note = ""
        try:
            outcome = self.place.runner.run(command, self.place.environment)
            if outcome.code and not os.path.exists(path):
                raise Wrong(outcome.ending(), output=outcome.output)
        except TimeOver as error:  # the cases that are done stay
            if not os.path.exists(path):
                raise
            note = str(error)
        return self.judge_speed(read_json(path)["rows"], note)

    def judge_speed(self, rows, note):
        missed, said_of = [note] if note else [], []
        for row in rows:
            side = row["sides"]["lockstep"]
            if side["status"] != "measured":
                raise Wrong("Lockstep was not measured: " + side["why"], {"rows": rows})
            said_of.append("batch %d: %s" % (row["replica_batch"], ", ".join(
                "%.2f x %s" % (ratio["median"], name) for name, ratio in row["ratios"].items()) or "no ratio"))
            missed += self.missed_goals(row, side)
        figures = {"rows": rows, "goals": {str(batch): goal for batch, goal in GOALS.items()}}
        if self.place.double:
            return "dry run: " + "; ".join(said_of), figures
        if not any(row["ratios"] for row in rows):
            why = "; ".join(sorted({side["why"] for row in rows for side in row["sides"].values() if side["status"] != "measured"}))
            raise NotRun("nothing of PyTorch was measured: " + why, figures)
        if missed:
            raise Wrong("; ".join(said_of + missed), figures)
        return "; ".join(said_of), figures

    @staticmethod
    def missed_goals(row, side):
        to_eager, to_best, least_busy = GOALS.get(row["replica_batch"], (None, None, None))
        ratios, best = row["ratios"], row["best_of_pytorch"]
        wanted = [(to_eager, "eager", ratios.get("eager")), (to_best, "PyTorch's best (%s)" % best, ratios.get(best))]
        missed = ["%s: %s, expected %.1f" % (name, "%.2f" % ratio["median"] if ratio else "not measured", goal)
                  for goal, name, ratio in wanted if goal and not (ratio and ratio["median"] >= goal)]
        if least_busy and not side.get("busy_union", 0) >= least_busy:
            missed.append("busy %s, expected %.2f" % (
                "%.3f" % side["busy_union"] if "busy_union" in side else "not measured", least_busy))
        return ["batch %d: %s" % (row["replica_batch"], text) for text in missed]

    # ---- compute-sanitizer ----

    def sanitizer(self):
        nvcc = self.place.found().get("nvcc", "")
        root = os.path.dirname(os.path.dirname(nvcc)) if nvcc else "/nowhere"
        places = [shutil.which("compute-sanitizer"), os.path.join(root, "bin", "compute-sanitizer"),
                  os.path.join(root, "compute-sanitizer", "compute-sanitizer"), "/usr/local/cuda/bin/compute-sanitizer"]
        found = next((path for path in places if path and os.access(path, os.X_OK)), None)
        if not found:
            raise NotRun("compute-sanitizer is not here")
        return found

    def under_sanitizer(self, options, summary, cases=""):
        """The device suite under one of its tools; `summary`: of its last line, with the number of errors as a group; `cases`: only
        those with that in their names."""
        command = [self.sanitizer(), "--error-exitcode", str(SANITIZER_CODE), "--report-api-errors", "no", *options,
                   self.checks.run_device(), "cuda", cases, "-v"]
        try:
            outcome = self.place.runner.run(command, self.checks.suite_environment())
        except TimeOver as error:
            if re.search(r"^=+ (Error|Invalid|Race|Warning)", error.output, re.MULTILINE):
                raise Wrong("it reported something before the time was over", output=error.output) from error
            raise NotRun("%s; nothing was reported in the first %d cases" % (error, count_cases(error.output))) from error
        found = re.search(summary, outcome.output)
        refusal = next((line.strip("= ") for line in outcome.output.splitlines()
                        if any(text in line for text in REFUSALS)), None)
        cases = count_cases(outcome.output)
        if refusal and not re.search("^passed ", outcome.out, re.MULTILINE):
            raise NotRun("refused on this machine: " + refusal)
        if not found:
            raise Wrong("it gave no summary, exit code %d" % outcome.code, output=outcome.output)
        figures = {"cases": cases, "summary": found[0], "command": " ".join(options)}
        if outcome.code or int(found[1]):
            raise Wrong("%s, exit code %d" % (found[0], outcome.code), figures, outcome.output)
        return "%s, %d cases" % (found[0], cases), figures

    def memcheck(self):
        return self.under_sanitizer(["--tool", "memcheck"], r"ERROR SUMMARY: (\d+) errors?")

    def racecheck(self):
        """Only on our own kernels, those of the libraries are NVIDIA's and slow to watch; and of those only where threads share memory,
        which is all that this tool looks at."""
        usage = said(self.sanitizer(), "--help") or ""
        option = next((name for name in ("--kernel-name", "--kernel-regex", "--filter") if name in usage), "--kernel-name")
        return self.under_sanitizer(["--tool", "racecheck", option, "kns=" + OWN_KERNELS],
                                    r"RACECHECK SUMMARY: (\d+) hazards? displayed[^\n]*", SHARING_CASES)


def count_cases(output):
    return len(re.findall(r"^(?:passed|FAILED|refused) ", output, re.MULTILINE))
