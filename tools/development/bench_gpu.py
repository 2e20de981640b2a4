# SPDX-License-Identifier: Apache-2.0
"""tools/bench-train --device=cuda: Lockstep beside PyTorch on one GPU, in turn, on the same model, batch and precision.

Lockstep is measured as users run it: `lockstep train`, whose examples lie in host memory, are shuffled and gathered there
and sent while the step before computes. PyTorch has all examples on the GPU beforehand (torch_gpu_peer.py
says what else): its input costs it less than Lockstep's does. On both sides the losses of a window are not printed, the last
batch of an epoch is as large as the others, start and first steps do not count.

Busy: how much of a step's time kernels run. Numerator: CUPTI's records of kernels (for Lockstep by kernel_time.c, for PyTorch
by torch.profiler), in runs of their own; denominator: a step of the measured windows, which nobody watches. `kernel_seconds`
counts kernels side by side each, `kernel_union_seconds` once; copies are in neither. `gap_seconds_per_step` is the rest of a
step, in which no kernel runs: launch gaps, and waits for copies.
"""
import glob
import json
import os
import re
import select
import statistics
import subprocess
import sys
import tempfile

import lockstep_side
import machine

HERE = os.path.dirname(os.path.abspath(__file__))
PEER = os.path.join(HERE, "torch_gpu_peer.py")
FINDER = os.path.join(os.path.dirname(os.path.dirname(HERE)), "plugins", "device", "cuda", "find_cuda.py")
MODES = "eager,compile,graph,compile+graph"
BATCHES = "64,1024"
ANSWER_SECONDS = 240.0  # the longest wait for one answer of PyTorch, which may compile
IDLE_SECONDS = 4.0  # the longest wait for a quiet machine
BUSY_STEPS = 200


class NotMeasured(Exception):
    """Why a row has no figures."""


class Peer:
    """One running torch_gpu_peer.py. After __init__ it starts by itself; `wait` says whether it did."""

    def __init__(self, options, mode):
        command = [options.python, PEER, "--mode=" + mode, "--model=" + options.model_file, "--data=" + options.data,
                   "--limit=%d" % options.limit, "--optimizer=" + options.optimizer, "--precision=" + options.precision,
                   "--device=" + options.torch_device] + ["--tf32"] * options.tf32
        self.about, self.step_seconds = {}, 0.0
        try:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        except OSError as error:
            raise NotMeasured("PyTorch: %s" % error) from error

    def answer(self):
        """One line for each command, so none waits in a buffer."""
        if not select.select([self.process.stdout], [], [], ANSWER_SECONDS)[0]:
            self.process.kill()
            raise NotMeasured("PyTorch did not answer in %.0f s" % ANSWER_SECONDS)
        line = self.process.stdout.readline()
        if not line:
            raise NotMeasured("PyTorch ended with code %s (is torch in %s?)" % (self.process.wait(), self.process.args[0]))
        fields = json.loads(line)
        if "failed" in fields:
            raise NotMeasured(fields["failed"])
        return fields

    def tell(self, **command):
        try:
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
        except OSError as error:
            raise NotMeasured("PyTorch ended with code %s" % self.process.wait()) from error

    def wait(self):
        self.about.update(self.answer())

    def build(self, batch):
        self.batch = batch
        self.tell(do="build", batch=batch)

    def built(self):
        self.about.update(self.answer())

    def run(self, seconds):
        self.tell(do="run", seconds=seconds)
        return self.batch / self.answer()["seconds_per_step"]

    def busy(self):
        self.tell(do="busy", steps=BUSY_STEPS)
        return self.answer()

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

    def __init__(self, options):
        device = options.lockstep_device + ":tf32=on" * (options.tf32 and ":" not in options.lockstep_device)
        super().__init__(options.lockstep, options, 1, 1, options.seconds, device=device)

    def command(self, seed, report):
        command = super().command(seed, report) + ["--precision=" + self.options.precision]
        return command + ["--plugin-path=" + self.options.plugin_path] * bool(self.options.plugin_path)

    def records(self, library, epochs):
        """CUPTI's sums over one whole run of so many epochs."""
        with tempfile.TemporaryDirectory() as folder:
            prefix = os.path.join(folder, "kernels")
            self.environment.update(CUDA_INJECTION64_PATH=library, LOCKSTEP_KERNEL_TIME=prefix)
            kept, self.epochs = self.epochs, epochs
            try:
                report = self.train(1)
            finally:
                self.epochs = kept
                del self.environment["CUDA_INJECTION64_PATH"], self.environment["LOCKSTEP_KERNEL_TIME"]
            parts = [lockstep_side.read(path) for path in glob.glob(prefix + ".*")]
            if not parts:
                raise NotMeasured("CUPTI's library was not loaded by the driver, or wrote nothing")
            if any(part["lost"] for part in parts):
                raise NotMeasured("CUPTI lost records")
            return report["steps"], {key: sum(part[key] for part in parts) for key in parts[0]}

    def busy(self, library):
        """Of a long run less a short one, so that start and first steps do not count."""
        steps_of_epoch = self.report["epochs"][0]["steps"]
        least = 1 + -(-50 // steps_of_epoch)
        short_steps, short = self.records(library, least)
        long_steps, long = self.records(library, least + -(-BUSY_STEPS // steps_of_epoch))
        steps = long_steps - short_steps
        if long["kernels"] <= short["kernels"]:
            raise NotMeasured("CUPTI recorded no kernel")
        return {"kernels_per_step": (long["kernels"] - short["kernels"]) / steps,
                "kernel_seconds_per_step": (long["kernel_seconds"] - short["kernel_seconds"]) / steps,
                "kernel_union_seconds_per_step": (long["kernel_union_seconds"] - short["kernel_union_seconds"]) / steps,
                "copies_per_step": (long["copies"] - short["copies"]) / steps,
                "copy_seconds_per_step": (long["copy_seconds"] - short["copy_seconds"]) / steps, "by": "kernel_time.c (CUPTI)"}


def newest(header, name):
    """CUpti_ActivityKernel10: the record of the highest number that the header defines."""
    numbers = [int(number or 0) for number in re.findall(r"\} %s(\d*);" % name, header)]
    if not numbers:
        raise NotMeasured("CUPTI's header has no %s" % name)
    return name + (str(max(numbers)) if max(numbers) else "")


def build_kernel_time(folder, nvidia_root):
    """Path of the library that the driver loads; built from kernel_time.c."""
    found = dict(line.split("=", 1) for line in subprocess.run(
        [sys.executable, FINDER, nvidia_root], capture_output=True, text=True, check=True).stdout.splitlines() if "=" in line)
    includes = [path for path in found["includes"].split(";") if path]
    roots = [os.path.dirname(path) for path in includes]
    roots += [os.path.join(os.path.dirname(root), "cuda_cupti") for root in roots]  # wheels of CUDA 12
    roots += [os.path.join(folder, "nvidia", wheel) for folder in sys.path for wheel in ("cu13", "cuda_cupti")]
    includes += [path for root in roots for path in (os.path.join(root, "extras", "CUPTI", "include"),
                                                     os.path.join(root, "include")) if path not in includes]
    header = next((path for path in includes if os.path.exists(os.path.join(path, "cupti_activity.h"))), None)
    libraries = [file for root in roots for sub in ("lib64", "lib", "extras/CUPTI/lib64")
                 for file in sorted(glob.glob(os.path.join(root, sub, "libcupti.so*")))]
    if not header or not libraries:
        raise NotMeasured("CUPTI is not here (nvidia-cuda-cupti)")
    with open(os.path.join(header, "cupti_activity.h")) as file:
        text = file.read()
    library = os.path.join(folder, "kernel_time.so")
    command = ["cc", "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O2", "-shared", "-fPIC", "-fvisibility=hidden",
               "-DKERNEL_RECORD=" + newest(text, "CUpti_ActivityKernel"),
               "-DMEMCPY_RECORD=" + newest(text, "CUpti_ActivityMemcpy"),
               "-DMEMSET_RECORD=" + newest(text, "CUpti_ActivityMemset"), os.path.join(HERE, "kernel_time.c"), "-o", library]
    for path in includes:
        command += ["-isystem", path]
    command += [libraries[0], "-Wl,-rpath," + os.path.dirname(libraries[0]), "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotMeasured("kernel_time.c did not compile: " + (done.stderr.strip().splitlines() or ["?"])[0])
    return library


def summary(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "values": values}


class Case:
    """One batch size: every side that can, in turn, every other round in the opposite order."""

    def __init__(self, options, batch, peers, progress):
        self.options, self.batch, self.peers, self.progress = options, batch, peers, progress
        self.lockstep, self.rates, self.why, self.disturbed = None, {}, {}, 0

    def open(self):
        running = {name: peer for name, peer in self.peers.items() if not isinstance(peer, NotMeasured)}
        for name, peer in self.peers.items():
            if isinstance(peer, NotMeasured):
                self.why[name] = str(peer)
        for name, peer in running.items():  # all at once: compilers take their time
            self.attempt(name, peer.build, self.batch)
        for name, peer in running.items():
            if name not in self.why:
                self.attempt(name, peer.built)
        self.attempt("lockstep", self.open_lockstep)

    def open_lockstep(self):
        if self.options.pytorch_only:
            raise NotMeasured("--pytorch-only")
        self.options.replica_batch = self.batch
        self.options.dataset = "fashion-mnist:dir=%s,limit=%d" % (self.options.data, whole_batches(self.options, self.batch))
        self.lockstep = Lockstep(self.options)

    def attempt(self, name, call, *arguments):
        """What the call returns; None, and a reason kept, where it does not work."""
        try:
            return call(*arguments)
        except (NotMeasured, lockstep_side.Failed, OSError) as error:
            self.why[name] = str(error)
            return None

    def sides(self):
        sides = {"lockstep": lambda number: self.lockstep.run(number)} if self.lockstep else {}
        sides.update({name: (lambda number, peer=peer: peer.run(self.options.seconds)) for name, peer in self.peers.items()})
        return {name: call for name, call in sides.items() if name not in self.why}

    def run(self):
        for number in range(self.options.rounds):
            names = list(self.sides())
            for name in names if number % 2 == 0 else names[::-1]:
                self.disturbed += not machine.wait_until_idle(IDLE_SECONDS)
                rate = self.attempt(name, self.sides()[name], number + 1)
                if rate is not None:
                    self.rates.setdefault(name, []).append(rate)
            self.progress("  round %d: %s" % (number + 1, ", ".join(
                "%s %.0f" % (name, rates[-1]) for name, rates in self.rates.items())))

    def busy(self, name, library):
        try:
            if name != "lockstep":
                return self.peers[name].busy()
            if isinstance(library, NotMeasured):
                raise library
            return self.lockstep.busy(library)
        except (NotMeasured, lockstep_side.Failed, OSError) as error:
            return {"not_measured": str(error)}

    def side(self, name, library):
        if name in self.why:
            return {"status": "not run", "why": self.why[name]}
        steps = [self.batch / rate for rate in self.rates[name]]
        about = {"set_up": "lockstep train, as users run it"} if name == "lockstep" else self.peers[name].about
        result = {"status": "measured", "images_per_second": summary(self.rates[name]), "step_seconds": summary(steps),
                  "about": dict(about), "kernels": self.busy(name, library)}
        if "kernel_seconds_per_step" in result["kernels"]:
            median = statistics.median(steps)
            result["busy"] = result["kernels"]["kernel_seconds_per_step"] / median
            result["busy_union"] = result["kernels"]["kernel_union_seconds_per_step"] / median
            result["gap_seconds_per_step"] = median - result["kernels"]["kernel_union_seconds_per_step"]
        return result

    def result(self, library):
        names = ["lockstep"] + list(self.peers)
        sides = {name: self.side(name, library) for name in names}
        ratios, measured = {}, [name for name in self.peers if sides[name]["status"] == "measured"]
        for name in measured if sides["lockstep"]["status"] == "measured" else ():
            ratios[name] = summary([a / b for a, b in zip(self.rates["lockstep"], self.rates[name])])
        best = max(measured, key=lambda name: sides[name]["images_per_second"]["median"], default=None)
        return {"case": "%s, batch %d, %s%s" % (
                    self.options.model, self.batch, self.options.precision, " with TF32" * self.options.tf32),
                "model": self.options.model, "replica_batch": self.batch, "precision": self.options.precision, "tf32": self.options.tf32, "sides": sides,
                "ratios": ratios, "best_of_pytorch": best, "disturbed_windows": self.disturbed}


def whole_batches(options, batch):
    """As many examples as fill batches of that size: no side has an odd one."""
    return max(options.limit // batch, 1) * batch


def start_peers(options):
    peers = {}
    for mode in options.modes.split(","):
        try:
            peers[mode] = Peer(options, mode)
        except NotMeasured as error:
            peers[mode] = error
    for mode, peer in peers.items():
        try:
            if isinstance(peer, Peer):
                peer.wait()
        except NotMeasured as error:
            peer.close()
            peers[mode] = error
    return peers


def print_side(name, side):
    if side["status"] != "measured":
        print("  %-14s not run: %s" % (name, side["why"]))
        return
    rate, step = side["images_per_second"], side["step_seconds"]
    print("  %-14s %9.0f images/s (%.0f - %.0f), %.1f us a step" % (
        name, rate["median"], rate["min"], rate["max"], step["median"] * 1e6))
    kernels = side["kernels"]
    if "busy" in side:
        print("  %-14s %.1f kernels a step, %.1f us in all: busy %.3f (side by side once: %.3f), %.1f us without a kernel" % (
            "", kernels["kernels_per_step"], kernels["kernel_seconds_per_step"] * 1e6, side["busy"], side["busy_union"],
            side["gap_seconds_per_step"] * 1e6))
    else:
        print("  %-14s kernels not measured: %s" % ("", kernels["not_measured"]))


def print_result(result, dry):
    print("\n%s%s" % (result["case"], "   DRY RUN, NOT A GPU" if dry else ""))
    for name, side in result["sides"].items():
        print_side(name, side)
    for name, ratio in result["ratios"].items():
        print("  ratio to %-14s %6.2f (%.2f - %.2f)%s" % (name, ratio["median"], ratio["min"], ratio["max"],
                                                         "  PyTorch's best" * (name == result["best_of_pytorch"])))
    if result["disturbed_windows"]:
        print("  %d windows were disturbed by other programs" % result["disturbed_windows"])
    sys.stdout.flush()


def write(options, results):
    """After each case, so that an end by force leaves those that are done."""
    if not options.json:
        return
    with open(options.json + ".part", "w") as file:
        json.dump({"rows": results, "dry_run": options.dry}, file, indent=1)
    os.replace(options.json + ".part", options.json)


def bench(options, progress):
    """All batch sizes of the options; the rows."""
    results = []
    options.dry = options.torch_device != "cuda" or not options.lockstep_device.startswith("cuda") or bool(options.plugin_path)
    with tempfile.TemporaryDirectory() as folder:
        try:
            library = build_kernel_time(folder, options.nvidia_root)
        except (NotMeasured, OSError) as error:
            library = error if isinstance(error, NotMeasured) else NotMeasured(str(error))
        for batch in (int(text) for text in options.batches.split(",")):
            # New processes for each size: the profiler, which is used last, slows down what its process does afterwards.
            progress("%s, batch %d: starting PyTorch: %s" % (options.model, batch, options.modes))
            peers = start_peers(options)
            try:
                case = Case(options, batch, peers, progress)
                case.open()
                case.run()
                results.append(case.result(library))
            finally:
                for peer in peers.values():
                    if isinstance(peer, Peer):
                        peer.close()
            print_result(results[-1], options.dry)
            write(options, results)
    return results
