# SPDX-License-Identifier: Apache-2.0
"""tools/bench-train --device=cuda: Lockstep beside PyTorch on one GPU, in turn, on the same models, batches and precisions.

Lockstep is measured as users run it: `lockstep train`, whose examples lie in host memory, are shuffled and gathered there
and sent while the step before computes. PyTorch has all examples on the GPU beforehand (torch_gpu_peer.py
says what else): its input costs it less than Lockstep's does. On both sides the losses of a window are not printed, the last
batch of an epoch is as large as the others, start and first steps do not count.

All processes of PyTorch, one for each precision with and one without a compiler, are started at once and build all cases
first: what is eager in turn, so that trials of layouts and algorithms are not disturbed, what compiles at the same time.
Then one case after the other is measured. A case that device cuda refuses (exit code 4) is not asked of PyTorch. --budget
ends everything in time: what was not done by then is named.

Busy: how much of a step's time kernels run. Numerator: CUPTI's records of kernels (for Lockstep by kernel_time.c, for PyTorch
by torch.profiler, eager and its best mode, when all is measured), in runs of their own; denominator: a step of the measured
windows, which nobody watches. `kernel_seconds` counts kernels side by side each, `kernel_union_seconds` once; copies are in
neither. `gap_seconds_per_step` is the rest of a step, in which no kernel runs: launch gaps, and waits for copies.

Goals, by how busy eager PyTorch keeps the GPU: less than 30 % three times as fast as eager, less than 45 % twice, else at least
0.95 of PyTorch's best mode; and 60 % of the roofline of the step (roofline.py), for which the speed at which the GPU copies its
memory is measured. They are printed and judge nothing.
"""
import argparse
import concurrent.futures
import glob
import gzip
import json
import os
import re
import select
import statistics
import subprocess
import sys
import tempfile
import time

import bench_lines
import kernel_table
import lockstep_side
import machine
import roofline

HERE = os.path.dirname(os.path.abspath(__file__))
FINDER = os.path.join(os.path.dirname(os.path.dirname(HERE)), "plugins", "device", "cuda", "find_cuda.py")
COPY_BANDWIDTH = os.path.join(os.path.dirname(HERE), "gpu", "copy_bandwidth.py")
COPY_BYTES, COPY_SECONDS = 1 << 30, 20.0
PEER = os.path.join(HERE, "torch_gpu_peer.py")
PRECISIONS = ("float32", "tf32", "mixed_bfloat16")
CASES = ("cnn:64:float32", "cnn:1024:float32", "mlp:512:float32", "cnn:1024:mixed_bfloat16", "cnn:1024:tf32",
         "cnn:64:mixed_bfloat16", "mlp:512:mixed_bfloat16", "cnn:64:tf32", "mlp:512:tf32", "resnet:128:float32")
COMPILERS = ("eager", "compile", "compile-max")
MODES = ("eager", "compile", "graph", "compile+graph")
BATCHES = "64,1024"
ANSWER_SECONDS = 240.0  # the longest wait for one answer of PyTorch, which may compile
IDLE_SECONDS = 4.0  # the longest wait for a quiet machine
CASE_SECONDS, BUSY_SECONDS = 6.0, 2.0  # with less than that left, no round is begun, no kernels are recorded
# Of the budget: until when something is begun, and until when its answer is waited for, or the process is given up.
BEGUN, ANSWERED = {"compile": 0.35, "build": 0.6}, {"start": 0.5, "compile": 0.6, "build": 0.7}
BUSY_STEPS = 50
NOISE = {"resnet": (32, 4096), "resnet50": (224, 512)}  # models that are not for Fashion-MNIST: pixels each way, examples
GPTS = {"gpt": 256, "gpt768": 768}  # width, of models that read letters, which are drawn at random
CONTEXT, WINDOWS, STRIDE = 128, 2048, 8
LARGE = ("resnet50", *GPTS)  # of which fewer steps tell as much
RESNET50 = os.path.join(os.path.dirname(os.path.dirname(HERE)), "tests", "data", "models", "ResNet50.json.gz")  # for 64 pixels
PRINTED_KERNELS = 8
ROOFLINE_GOAL = 0.6
NO_TIME = "no time was left"


class NotMeasured(Exception):
    """Why a side has no figures."""


FAILURES = (NotMeasured, lockstep_side.Failed, OSError)


def compiler_of(mode):
    """Modes with the same one share a process."""
    return "eager" if mode == "graph" else mode.partition("+")[0]


class Peer:
    """One running torch_gpu_peer.py. It starts by itself; `wait` says whether it did: if not, `why`."""

    def __init__(self, options, compiler, precision):
        command = [options.python, PEER, "--compiler=" + compiler, "--data=" + options.data, "--limit=%d" % options.limit,
                   "--optimizer=" + options.optimizer, "--precision=" + precision, "--device=" + options.torch_device]
        self.about, self.compiler, self.precision, self.why = {}, compiler, precision, None
        self.modes = [mode for mode in options.modes.split(",") if compiler_of(mode) == compiler]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def answer(self, seconds):
        """One line for each command, so none waits in a buffer."""
        seconds = max(1.0, min(seconds, ANSWER_SECONDS))
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            self.process.kill()
            raise NotMeasured("PyTorch did not answer in %.0f s" % seconds)
        line = self.process.stdout.readline()
        if not line:
            raise NotMeasured("PyTorch ended with code %s (is torch in %s?)" % (self.process.wait(), self.process.args[0]))
        fields = json.loads(line)
        if "failed" in fields:
            raise NotMeasured(fields["failed"])
        return fields

    def wait(self, seconds):
        try:
            self.about = self.answer(seconds)
        except NotMeasured as error:
            self.why = str(error)

    def ask(self, limit, /, **command):
        if self.why:
            raise NotMeasured(self.why)
        try:
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
        except OSError as error:
            raise NotMeasured("PyTorch ended with code %s" % self.process.wait()) from error
        return self.answer(limit)

    def close(self):
        for stream in (self.process.stdin, self.process.stdout):
            try:
                stream.close()
            except OSError:
                pass
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Lockstep(lockstep_side.Lockstep):
    """`lockstep train` on one GPU."""

    def __init__(self, options, case):
        more = ["--precision=" + case.precision.replace("tf32", "float32")]
        more += ["--plugin-path=" + options.plugin_path] * bool(options.plugin_path)
        device = options.lockstep_device + ":tf32=on" * (case.precision == "tf32" and ":" not in options.lockstep_device)
        about = dict(vars(options), model=case.file, replica_batch=case.batch, dataset=case.dataset)
        super().__init__(options.lockstep, argparse.Namespace(**about), 1, 1, options.seconds, device=device, more=more)

    def open(self):
        """One step says whether the device has all operations."""
        self.more.append("--steps=1")
        self.train(1)
        self.more.pop()

    def watch(self, library):
        """What the kernels of a step took, by CUPTI's records of all epochs but the first. Sets how many epochs a window has."""
        kept = self.environment
        with tempfile.TemporaryDirectory() as folder:
            prefix = os.path.join(folder, "kernels")
            self.environment = dict(kept, CUDA_INJECTION64_PATH=library, LOCKSTEP_KERNEL_TIME=prefix)
            try:
                super().open()
            finally:
                self.environment = kept
            parts = [kernel_table.read(path) for path in glob.glob(prefix + ".*")]
        records = max((part[0] for part in parts), key=len, default=[])
        if not records:
            raise NotMeasured("the driver loaded no kernel-time.so, or CUPTI recorded nothing" if os.path.exists(library) else
                              "there is no %s (built where CUPTI is)" % os.path.basename(library))
        steps = [epoch["steps"] for epoch in self.report["epochs"]]
        measured, lost = sum(steps[1:]), sum(lost for _, lost in parts)
        if lost >= measured:  # so one may be missing in each step
            raise NotMeasured("CUPTI lost %d records" % lost)
        try:
            records = kernel_table.last_steps(records, sum(steps), measured)
        except kernel_table.Missing as error:
            raise NotMeasured("CUPTI handed over records of %s" % error) from error
        return dict(kernel_table.table(records, measured, "kernel_time.c (CUPTI)"), lost_records=lost)


def resnet50_file(options):
    """ResNet50 of keras.applications, for 224 pixels."""
    with gzip.open(RESNET50, "rt") as file:
        text = file.read().replace('"batch_shape": [null, 64, 64, 3]', '"batch_shape": [null, 224, 224, 3]')
    path = os.path.join(options.scratch, "resnet50.json")
    with open(path, "w") as file:
        file.write(text)
    return path


def gpt_file(options, name):
    """gpt.json, with another width where that is wanted."""
    path = lockstep_side.model_file(os.path.join(HERE, "gpt.json"))
    made = os.path.join(options.scratch, name + ".json")
    with open(path) as source, open(made, "w") as target:
        target.write(bench_lines.gpt_of_width(source.read(), GPTS[name]))
    return made


def text_file(options, examples):
    """A text of random letters that has so many windows."""
    path = os.path.join(options.scratch, "letters%d.txt" % examples)
    with open(path, "w") as file:
        file.write(bench_lines.random_letters(CONTEXT + 1 + STRIDE * (examples - 1)))
    return path


def summary(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "values": values}


class Case:
    """One model, batch and precision, and what came of it on every side. `why`: of sides without figures."""

    def __init__(self, options, name):
        words = name.split(":")
        if len(words) != 3 or not words[1].isdigit() or words[1] == "0" or words[2] not in PRECISIONS:
            raise SystemExit("bench-train: --cases: %s is no MODEL:BATCH:PRECISION" % name)
        self.name, self.model, self.batch, self.precision = name, words[0], int(words[1]), words[2]
        self.file = self.write_file(options)
        self.pixels, examples = NOISE.get(self.model, (28, WINDOWS if self.model in GPTS else options.limit))
        self.examples = max(examples // self.batch, 1) * self.batch  # no odd batch
        self.dataset = "fashion-mnist:dir=%s,limit=%d" % (options.data, self.examples)
        if self.model in GPTS:
            self.dataset = "text:file=%s,length=%d,stride=%d" % (text_file(options, self.examples), CONTEXT, STRIDE)
        elif self.model in NOISE:
            self.dataset = "synthetic:shape=%dx%dx3,classes=10,examples=%d" % (self.pixels, self.pixels, self.examples)
        self.sides = ["lockstep"] + options.modes.split(",")
        self.lockstep, self.layout, self.disturbed = None, None, 0
        self.rates, self.why, self.about, self.kernels = {}, {}, {"lockstep": {"set_up": "lockstep train, as users run it"}}, {}

    def write_file(self, options):
        """The model's JSON."""
        if self.model == "resnet50":
            return resnet50_file(options)
        return gpt_file(options, self.model) if self.model in GPTS else lockstep_side.model_file(self.model)

    def give_up(self, sides, why):
        for side in sides:
            self.why.setdefault(side, why)

    def open(self, options):
        try:
            if options.pytorch_only:
                raise NotMeasured("--pytorch-only")
            self.lockstep = Lockstep(options, self)
        except FAILURES as error:
            self.why["lockstep"] = str(error)
            if getattr(error, "code", None) == 4:
                self.give_up(self.sides, "Lockstep refuses this case")

    def build(self, peer, do, seconds):
        """`do`: compile or build."""
        modes = [mode for mode in peer.modes if mode not in self.why]
        if not modes:
            return
        try:
            if seconds <= 0:
                raise NotMeasured(NO_TIME)
            answer = peer.ask(seconds, do=do, case=self.name, model=self.file, batch=self.batch, layout=self.layout, modes=modes,
                              pixels=self.pixels, examples=self.examples)
        except FAILURES as error:
            self.give_up(modes, str(error))
            return
        if do == "build":
            self.layout = answer["layout"]
            self.about.update({mode: dict(peer.about, set_up="%s, %s" % (mode, answer["set_up"])) for mode in modes})
            self.why.update({mode: why for mode, why in answer["modes"].items() if why})

    def round(self, number, peers, options):
        """Every side once, every other round in the opposite order; the rates as text."""
        self.disturbed += not machine.wait_until_idle(min(IDLE_SECONDS, machine.idle_seconds))
        sides = [side for side in self.sides if side not in self.why]
        for side in sides if number % 2 == 0 else sides[::-1]:
            try:
                if side == "lockstep":
                    rate = self.lockstep.run(number + 1)
                else:
                    said = peers[side].ask(ANSWER_SECONDS, do="run", case=self.name, mode=side, seconds=options.seconds)
                    rate = self.batch / said["seconds_per_step"]
                self.rates.setdefault(side, []).append(rate)
            except FAILURES as error:
                self.why[side] = str(error)
        return ", ".join("%s %.0f" % (side, self.rates[side][-1]) for side in sides if side in self.rates)

    def best(self):
        """PyTorch's fastest mode."""
        return max((side for side in self.rates if side != "lockstep"), key=lambda side: statistics.median(self.rates[side]), default=None)

    def side(self, side):
        if side not in self.rates:
            return {"status": "not run", "why": self.why.get(side, NO_TIME)}
        steps = [self.batch / rate for rate in self.rates[side]]
        kernels = self.kernels.get(side, {"not_measured": "only for eager and the best mode, or " + NO_TIME})
        result = {"status": "measured", "images_per_second": summary(self.rates[side]), "step_seconds": summary(steps),
                  "about": self.about[side], "kernels": kernels}
        if side in self.why:
            result["ended"] = self.why[side]
        if "not_measured" not in kernels:
            median = statistics.median(steps)
            result.update(busy=kernels["kernel_seconds_per_step"] / median, busy_union=kernels["kernel_union_seconds_per_step"] / median,
                          gap_seconds_per_step=median - kernels["kernel_union_seconds_per_step"])
        return result

    def roofline(self, sides, optimizer, copy_gb_s):
        """The least time of a step, and how much of it Lockstep reaches."""
        try:
            if isinstance(copy_gb_s, NotMeasured):
                raise copy_gb_s
            with open(self.file) as file:
                rows = roofline.kernels(json.load(file), self.precision, optimizer)
        except (NotMeasured, KeyError, ValueError) as error:
            return {"not_known": "%s: %s" % (type(error).__name__, error) if isinstance(error, KeyError) else str(error)}
        rows, seconds = roofline.timed(rows, self.batch, copy_gb_s, roofline.PEAKS[self.precision])
        measured = sides["lockstep"]["status"] == "measured"
        return {"seconds_per_step": seconds, "copy_gb_s": copy_gb_s, "peak_tflops": roofline.PEAKS[self.precision], "wanted": ROOFLINE_GOAL,
                "reached": seconds / sides["lockstep"]["step_seconds"]["median"] if measured else None, "kernels": rows}

    def result(self, optimizer, copy_gb_s):
        sides = {side: self.side(side) for side in self.sides}
        ratios = {side: summary([a / b for a, b in zip(self.rates["lockstep"], self.rates[side])])
                  for side in self.sides[1:] if side in self.rates and "lockstep" in self.rates}
        return {"case": "%s, batch %d, %s" % (self.model, self.batch, self.precision), "model": self.model, "replica_batch": self.batch,
                "precision": self.precision, "sides": sides, "ratios": ratios, "best_of_pytorch": self.best(),
                "goal": self.goal(sides, ratios),
                "roofline": self.roofline(sides, optimizer, copy_gb_s), "disturbed_rounds": self.disturbed}

    def goal(self, sides, ratios):
        """None while it is not known how busy eager PyTorch keeps the GPU."""
        busy = sides.get("eager", {}).get("busy")
        if busy is None or "eager" not in ratios:
            return None
        side, wanted = ("eager", 3.0) if busy < 0.3 else ("eager", 2.0) if busy < 0.45 else (self.best(), 0.95)
        return {"eager_busy": busy, "ratio_to": side, "wanted": wanted, "reached": ratios[side]["median"]}


def case_names(options):
    if options.cases:
        return CASES if options.cases == "gpu" else options.cases.split(",")
    precision = "tf32" if options.tf32 else options.precision
    return ["%s:%s:%s" % (options.model, batch, precision) for batch in options.batches.split(",")]


class Bench:
    """All cases on all sides."""

    def __init__(self, options, progress):
        self.options, self.progress, self.begin = options, progress, time.monotonic()
        self.cases = [Case(options, name) for name in case_names(options)]
        self.peers = []
        self.library = os.path.abspath(options.kernel_time or os.path.join(os.path.dirname(options.lockstep), "kernel-time.so"))
        self.copy_gb_s = options.copy_gb_s or NotMeasured(NO_TIME)
        self.optimizer = "momentum" if "momentum=" in options.optimizer else options.optimizer.partition(":")[0]
        self.dry = options.torch_device != "cuda" or not options.lockstep_device.startswith("cuda") or bool(options.plugin_path)

    def left(self, share=1.0):
        """Seconds until that share of the budget is used."""
        return share * self.options.budget - (time.monotonic() - self.begin)

    def say(self, text):
        self.progress("%6.1f s  %s" % (time.monotonic() - self.begin, text))

    def peers_of(self, precision, compiled):
        return [peer for peer in self.peers if peer.precision == precision and (peer.compiler != "eager") == compiled]

    def measure_copies(self):
        """GB/s that the GPU reads and writes within its memory."""
        if self.dry:
            raise NotMeasured("a dry run")
        said = subprocess.run([sys.executable, FINDER, ""], capture_output=True, text=True, check=False).stdout
        found = re.search("^cudart=(.+)$", said, re.MULTILINE)
        try:
            done = subprocess.run([sys.executable, COPY_BANDWIDTH, found[1] if found else "libcudart.so", str(COPY_BYTES)],
                                  capture_output=True, text=True, timeout=COPY_SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise NotMeasured("copies within the GPU: no end after %.0f s" % COPY_SECONDS) from error
        if done.returncode:
            raise NotMeasured("copies within the GPU: " + (done.stderr.strip().splitlines() or ["it said nothing"])[-1])
        return json.loads(done.stdout)["gb_s"]

    def open(self):
        """While PyTorch starts, Lockstep is asked whether it has the operations of each case."""
        self.say("starting PyTorch (%s)" % self.options.modes)
        compilers = {compiler_of(mode) for mode in self.options.modes.split(",")}
        self.peers = [Peer(self.options, compiler, precision) for compiler in COMPILERS if compiler in compilers
                      for precision in PRECISIONS if any(case.precision == precision for case in self.cases)]
        if not self.options.copy_gb_s:
            try:
                self.copy_gb_s = self.measure_copies()
            except (NotMeasured, OSError) as error:
                self.copy_gb_s = NotMeasured(str(error))
        with concurrent.futures.ThreadPoolExecutor(4) as executor:
            list(executor.map(lambda case: case.open(self.options), self.cases))
        for peer in self.peers:
            peer.wait(self.left(ANSWERED["start"]))

    def build_all(self, peers, do):
        for peer in peers:
            for case in self.cases:
                if case.precision == peer.precision:
                    case.build(peer, do, self.left(ANSWERED[do]) if self.left(BEGUN[do]) > 0 else 0)

    def build(self):
        """Eager first, since it chooses the layouts; compilers work at the same time; then what they made is warmed up in turn."""
        self.say("building")
        with concurrent.futures.ThreadPoolExecutor(max(1, len(self.peers))) as executor:
            compiling = []
            for precision in PRECISIONS:
                self.build_all(self.peers_of(precision, False), "build")
                compiling += [executor.submit(self.build_all, [peer], "compile") for peer in self.peers_of(precision, True)]
            for future in compiling:
                future.result()
        self.say("warming up what was compiled")
        for precision in PRECISIONS:
            self.build_all(self.peers_of(precision, True), "build")

    def measure(self, case):
        peers = {mode: peer for peer in self.peers if peer.precision == case.precision for mode in peer.modes}
        if case.lockstep and self.left() >= CASE_SECONDS:
            case.lockstep.patience = min(ANSWER_SECONDS, self.left())
            case.kernels["lockstep"] = kernels_of(case.lockstep.watch, self.library)
        for number in range(self.options.rounds):
            if self.left() < CASE_SECONDS:
                break
            self.say("%s, round %d: %s" % (case.name, number + 1, case.round(number, peers, self.options)))

    def watch(self):
        """Kernels of PyTorch, eager and in its best mode. All profilers start at once, as that takes seconds."""
        wanted = [(case, mode, peer) for case in self.cases for peer in self.peers if peer.precision == case.precision
                  for mode in peer.modes if mode in case.rates and mode in ("eager", case.best())]
        if not wanted or self.left() < BUSY_SECONDS:
            return
        peers = [peer for peer in self.peers if any(peer is other for _, _, other in wanted)]
        with concurrent.futures.ThreadPoolExecutor(len(peers)) as executor:
            list(executor.map(lambda peer: kernels_of(peer.ask, ANSWER_SECONDS, do="watch"), peers))
        for case, mode, peer in wanted:
            if self.left() >= BUSY_SECONDS:
                case.kernels[mode] = kernels_of(peer.ask, self.left(), do="busy", case=case.name, mode=mode,
                                               steps=BUSY_STEPS // 5 if case.model in LARGE else BUSY_STEPS)
        self.say("kernels of PyTorch recorded")

    def write(self):
        """After each case, so that an end by force leaves those that are done."""
        rows = [case.result(self.optimizer, self.copy_gb_s) for case in self.cases]
        if self.options.json:
            with open(self.options.json + ".part", "w") as file:
                json.dump({"rows": rows, "dry_run": self.dry}, file, indent=1)
            os.replace(self.options.json + ".part", self.options.json)
        return rows

    def run(self):
        try:
            self.open()
            self.build()
            for case in self.cases:
                self.measure(case)
                self.write()
            self.watch()
        finally:
            for peer in self.peers:
                peer.close()
        return self.write()


def kernels_of(call, *arguments, **named):
    try:
        return call(*arguments, **named)
    except FAILURES as error:
        return {"not_measured": str(error)}


def print_side(name, side):
    if side["status"] != "measured":
        print("  %-14s not run: %s" % (name, side["why"]))
        return
    rate, step, kernels = side["images_per_second"], side["step_seconds"], side["kernels"]
    print("  %-14s %9.0f images/s (%.0f - %.0f), %.1f us a step" % (name, rate["median"], rate["min"], rate["max"], step["median"] * 1e6))
    if "not_measured" in kernels:
        print("  %-14s kernels not measured: %s" % ("", kernels["not_measured"]))
        return
    print("  %-14s %.1f kernels a step, %.1f us in all: busy %.3f (side by side once: %.3f), %.1f us without a kernel" % (
        "", kernels["kernels_per_step"], kernels["kernel_seconds_per_step"] * 1e6, side["busy"], side["busy_union"],
        side["gap_seconds_per_step"] * 1e6))
    for row in kernels["longest"][:PRINTED_KERNELS]:
        print("  %-14s   %5.1f x %7.1f us  %s  %s" % ("", row["count"], row["seconds"] / row["count"] * 1e6, row["name"][:70],
                                                     "; ".join(row["shapes"][:1])))


def print_result(result, dry):
    print("\n%s%s" % (result["case"], "   DRY RUN, NOT A GPU" if dry else ""))
    for name, side in result["sides"].items():
        print_side(name, side)
    for name, ratio in result["ratios"].items():
        print("  ratio to %-14s %6.2f (%.2f - %.2f)%s" % (name, ratio["median"], ratio["min"], ratio["max"],
                                                         "  PyTorch's best" * (name == result["best_of_pytorch"])))
    if result["goal"]:
        print("  goal: %.2f x %s, as eager keeps the GPU busy for %.0f %%; reached: %.2f" % (
            result["goal"]["wanted"], result["goal"]["ratio_to"], result["goal"]["eager_busy"] * 100, result["goal"]["reached"]))
    line = result["roofline"]
    if line.get("reached"):
        print("  roofline: %.1f us a step at %.0f GB/s and %.0f TFLOP/s; goal %.2f, reached: %.2f" % (
            line["seconds_per_step"] * 1e6, line["copy_gb_s"], line["peak_tflops"], line["wanted"], line["reached"]))
    if result["disturbed_rounds"]:
        print("  %d rounds were disturbed by other programs" % result["disturbed_rounds"])
    sys.stdout.flush()


def bench(options, progress):
    """All cases of the options; the rows."""
    with tempfile.TemporaryDirectory() as options.scratch:
        made = Bench(options, progress)
        rows = made.run()
    for row in rows:
        print_result(row, made.dry)
    return rows
