# SPDX-License-Identifier: Apache-2.0
"""Checks of tools/gpu-check that measure: memory, speed."""
import ctypes
import os
import re
import sys

from checks import read_json
from place import ROOT
from runner import NotRun, TimeOver, Wrong

MOST_HOST_GROWTH = 16 << 20  # bytes of a process: what an allocator may take and keep
GOALS = {"cnn": (3.0, 1.2)}  # ratios to PyTorch eager, and to its best mode; other models are only reported
# Model and batches; each check has a precision of its own.
SPEED_CASES, DRY_CASES = (("cnn", "64,1024"), ("mlp", "512")), (("cnn", "4"), ("mlp", "8"))
MODES = ("eager", "compile", "graph", "compile+graph")
LEAST_CASE_SECONDS = 45.0  # with less than that left, none is begun


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


def resident_bytes(process):
    """Of host memory."""
    with open("/proc/%d/status" % process, encoding="utf-8") as file:
        return int(re.search(r"^VmRSS:\s*(\d+) kB", file.read(), re.MULTILINE)[1]) * 1024


class Pretended:
    """In a dry run: always the same."""

    @staticmethod
    def used():
        return 0


class Measures:
    def __init__(self, place, checks):
        self.place, self.checks, self.sizes = place, checks, checks.sizes

    # ---- Memory ----

    def memory(self):
        """What is in use at the end of each epoch, from the second one to the end of 10,000 steps."""
        sizes, place = self.sizes, self.place
        memory = Pretended() if place.double else Memory()
        epochs = -(-sizes.memory_steps // sizes.memory_epoch)
        examples, seen, host = sizes.memory_epoch * sizes.memory_batch, [], []
        dataset = place.dataset + ("," if ":" in place.dataset else ":") + "limit=%d" % examples

        def look(line):
            if line.startswith("Epoch "):
                seen.append(memory.used())
                host.append(resident_bytes(place.runner.process.pid))

        outcome = place.lockstep("train", "--device=cuda", "--model=cnn", "--dataset=" + dataset, "--replicas=1",
                                 "--validation=off", "--batch=%d" % sizes.memory_batch, "--epochs=%d" % epochs, on_line=look)
        if outcome.code or len(seen) != epochs:
            raise Wrong("%d epochs of %d, %s" % (len(seen), epochs, outcome.ending()),
                        output=outcome.output)
        growth, on_host = seen[-1] - seen[1], host[-1] - host[1]
        figures = {"steps": epochs * sizes.memory_epoch, "used_bytes_after_epochs": seen, "growth_bytes": growth,
                   "host_bytes_after_epochs": host, "host_growth_bytes": on_host}
        if growth > 0 or on_host > MOST_HOST_GROWTH:
            raise Wrong("memory in use grew by %d bytes on the GPU and %d on the host in %d steps" % (
                growth, on_host, figures["steps"]), figures)
        return "no growth from step %d to step %d%s" % (
            2 * sizes.memory_epoch, figures["steps"], " (PRETENDED figures)" if place.double else ""), figures

    # ---- Speed ----

    def speed(self, precision="float32", tf32=False):
        rows, missing, runner = [], [], self.place.runner
        for model, batches in DRY_CASES if self.place.double else SPEED_CASES:
            name = "%s, batch %s" % (model, batches)
            if runner.left() < LEAST_CASE_SECONDS:
                missing.append(name + ": no time was left")
                continue
            path = os.path.join(self.place.scratch, "speed.json")
            if os.path.exists(path):
                os.unlink(path)
            try:
                outcome = runner.run(self.speed_command(path, model, batches, precision, tf32), self.place.environment)
                if outcome.code:
                    missing.append("%s: %s" % (name, outcome.ending()))
            except TimeOver as error:  # the batches that are done stay
                missing.append("%s: %s" % (name, error))
            if os.path.exists(path):
                rows += read_json(path)["rows"]
        return self.judge_speed(rows, missing)

    def speed_first(self):
        return self.speed()

    def plans(self):
        """Plans of cuDNN for convolutions, timed beside what its version-7 calls choose."""
        if self.place.double:
            raise NotRun("the fake runs no plans")
        path = os.path.join(self.place.out, "plans.json")
        outcome = self.place.runner.run([self.place.program("tools", "gpu-plans"), "--time",
                                         "--seconds=%d" % (self.place.runner.left() - 5), "--json=" + path], self.place.environment)
        if outcome.code:
            raise Wrong(outcome.ending(), output=outcome.output)
        return outcome.last_line(), {}

    def speed_command(self, path, model, batches, precision, tf32):
        command = [sys.executable, os.path.join(ROOT, "tools", "development", "bench_train.py"), "--device=cuda", "--json=" + path,
                   "--lockstep=" + self.place.program(), "--nvidia-root=" + self.place.nvidia_root, "--model=" + model,
                   "--batches=" + batches, "--precision=" + precision,
                   "--data=" + (self.place.carried("fashion-mnist") or "/usr/share/datasets/fashion-mnist")] + ["--tf32"] * tf32
        if self.place.double:
            return command + ["--plugin-path=" + self.place.double, "--torch-device=cpu", "--limit=32", "--rounds=1",
                              "--seconds=0.05", "--modes=eager"]
        return command + ["--rounds=3", "--seconds=0.5", "--modes=" + ",".join(MODES)]

    def judge_speed(self, rows, missing):
        wrong, said_of = list(missing), []
        for row in rows:
            side = row["sides"]["lockstep"]
            if side["status"] != "measured":
                wrong.append("%s: Lockstep was not measured: %s" % (row["case"], side["why"]))
                continue
            said_of.append("%s: %s" % (row["case"], ", ".join(
                "%.2f x %s" % (ratio["median"], name) for name, ratio in row["ratios"].items()) or "no ratio"))
            wrong += self.missed_goals(row)
        figures = {"rows": rows, "goals": GOALS}
        if self.place.double and not missing:
            return "dry run: " + "; ".join(said_of), figures
        if rows and not any(row["ratios"] for row in rows) and len(said_of) == len(rows):
            why = "; ".join(sorted({side["why"] for row in rows for side in row["sides"].values() if side["status"] != "measured"}))
            raise NotRun("nothing of PyTorch was measured: " + why, figures)
        if wrong:
            raise Wrong("; ".join(said_of + wrong), figures)
        return "; ".join(said_of), figures

    @staticmethod
    def missed_goals(row):
        """Also what a goal cannot be judged without: all of PyTorch's modes, and how busy the GPU is."""
        if row["model"] not in GOALS:
            return []
        to_eager, to_best = GOALS[row["model"]]
        ratios, best, sides = row["ratios"], row["best_of_pytorch"], row["sides"]
        missed = ["%s: %.2f, expected %.1f" % (name, ratios[mode]["median"], goal)
                  for goal, mode, name in ((to_eager, "eager", "eager"), (to_best, best, "PyTorch's best (%s)" % best))
                  if mode in ratios and not ratios[mode]["median"] >= goal]
        missed += ["%s: not measured: %s" % (mode, sides.get(mode, {}).get("why", "not asked for"))
                   for mode in MODES if mode not in ratios]
        missed += ["%s: how busy the GPU is was not measured: %s" % (name, side.get("kernels", {}).get("not_measured", "?"))
                   for name, side in sides.items() if side["status"] == "measured" and "busy_union" not in side]
        return ["%s: %s" % (row["case"], text) for text in missed]
