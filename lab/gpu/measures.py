# SPDX-License-Identifier: Apache-2.0
"""Checks of tools/gpu-check that measure: memory, speed."""
import ctypes
import os
import re
import sys

import bench_gpu
from checks import read_json
from pack import TRAINED
from place import ROOT
from runner import NotRun, TimeOver, Wrong

MOST_HOST_GROWTH = 16 << 20  # bytes of a process: what an allocator may take and keep
DRY_CASES, DRY_MODES = ("mlp:8:float32", "mlp:16:float32"), ("eager",)
RESERVE = 5.0  # seconds of the check that the benchmark does not get: PyTorch's processes end in them


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
    def __init__(self, place, checks, cases=None, device="cuda"):
        self.place, self.checks, self.sizes, self.cases, self.device = place, checks, checks.sizes, cases, device

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

    def speed(self, cases=None, modes=bench_gpu.MODES, rounds=2, seconds=0.3, budget=190.0):
        """Beside PyTorch: these cases ("cnn:64:float32") and modes, so many rounds of windows of so many seconds, in `budget` at most."""
        place, path = self.place, os.path.join(self.place.scratch, "speed.json")
        if os.path.exists(path):
            os.unlink(path)
        if place.double:
            cases, modes, rounds, seconds = DRY_CASES, DRY_MODES, 1, 0.05
        command = [sys.executable, os.path.join(ROOT, "lab", "bench", "bench_train.py"), "--device=cuda", "--json=" + path,
                   "--lockstep=" + place.program(), "--cases=" + ",".join(cases or self.cases or bench_gpu.CASES), "--modes=" + ",".join(modes), "--rounds=%d" % rounds,
                   "--seconds=%g" % seconds, "--budget=%.0f" % min(budget, place.runner.left() - RESERVE),
                   "--data=" + (place.carried("fashion-mnist") or "/usr/share/datasets/fashion-mnist"), "--limit=%d" % TRAINED,
                   "--lockstep-device=" + self.device]
        if place.double:
            command += ["--plugin-path=" + place.double, "--torch-device=cpu", "--limit=32", "--idle=0"]
        wrong = []
        try:
            outcome = place.runner.run(command, place.environment, output=os.path.join(place.out, "speed.log"))
            if outcome.code:
                wrong.append(outcome.ending())
        except TimeOver as error:  # the cases that are done stay
            wrong.append(str(error))
        return self.judge_speed(read_json(path)["rows"] if os.path.exists(path) else [], wrong)

    def speed_first(self):
        return self.speed(bench_gpu.CASES[:4], ("eager", "graph"), rounds=1)

    def speed_large(self):
        """ResNet50 with 224 pixels, and GPTs. Without compilers, which take a minute for the former."""
        cases = self.cases or ("gpt:64:mixed_bfloat16", "gpt768:32:mixed_bfloat16", "resnet50:64:mixed_bfloat16", "gpt:64:float32",
                               "gpt768:32:float32", "resnet50:64:float32")
        return self.speed(cases, ("eager", "graph"), rounds=2, budget=170)

    @staticmethod
    def judge_speed(rows, wrong):
        """Goals are printed only. What Lockstep refuses, and what no time was left for, is no failure either."""
        said, wrong = [], list(wrong)
        for row in rows:
            side, goal = row["sides"]["lockstep"], row["goal"]
            if side["status"] == "measured":
                parts = ["%.2f x %s" % (ratio["median"], name) for name, ratio in row["ratios"].items()] or ["alone"]
                parts += ["goal %.2f x %s" % (goal["wanted"], goal["ratio_to"])] if goal else []
                parts += ["%.0f %% of the roofline" % (100 * row["roofline"]["reached"])] if row["roofline"].get("reached") else []
                said.append("%s: %.0f images/s, %s" % (row["case"], side["images_per_second"]["median"], ", ".join(parts)))
            else:
                excused = side["why"].startswith("exit code 4:") or side["why"] == bench_gpu.NO_TIME
                (said if excused else wrong).append("%s: not measured: %s" % (row["case"], side["why"]))
        figures = {"rows": rows}
        if wrong:
            raise Wrong("; ".join(said + wrong), figures)
        if not any(row["ratios"] for row in rows):
            why = "; ".join(sorted({side["why"] for row in rows for side in row["sides"].values() if side["status"] != "measured"}))
            raise NotRun("nothing of PyTorch was measured: " + why, figures)
        return "; ".join(said), figures
