# SPDX-License-Identifier: Apache-2.0
"""What tools/gpu-check looks at. Each check is a function that returns (detail, figures), or raises NotRun or Wrong."""
import json
import os
import re
import struct
import sys

from runner import NotRun, Wrong

LOSS_TOLERANCE = 1e-3  # relative, to losses of another machine
REPLICA_TOLERANCE = 5e-6  # relative, first ten losses: several replicas against one
TEN_TOLERANCE = 1e-4  # relative, first ten losses of cnn_sgd: any strategy against device cpu
REPLICAS = 4  # virtual ones
TEN_CASES = (("nccl", 1), ("ring", REPLICAS), ("hierarchical-copy", REPLICAS))
BENCH_REPLICAS = (2, REPLICAS)
COPY_BANDWIDTH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "copy_bandwidth.py")
REDUCING = ("ring", "hierarchical-copy", "tree", "direct")
EVERY_STEP = (*REDUCING, "central-storage")


class Sizes:
    """Of the work; small ones for a dry run on the fake, which is some thousand times slower than a GPU."""

    def __init__(self, dry):
        self.reference_steps = 3 if dry else 100
        self.reference_batch = 128
        self.replica_steps, self.replica_batch = (3, 12) if dry else (12, 128)
        self.recording_steps = 4 if dry else 100
        self.epochs_limit = 64 if dry else 60000
        self.least_accuracy = 0.0 if dry else 0.85
        self.memory_steps, self.memory_epoch, self.memory_batch = (30, 3, 4) if dry else (10000, 200, 64)
        self.ten_steps = 3 if dry else 10
        self.compare_steps, self.compare_batch = (4, 8) if dry else (300, 256)
        self.compare_options = ["--speed-steps=0"] if dry else []
        self.bench_bytes, self.bench_seconds = ("8:4K", "0.01") if dry else ("8:256M", "0.1")
        self.copy_bytes = 1 << 20 if dry else 1 << 30


def deviations(losses, wanted):
    """Relative; a loss that is no number (null in a report) is infinitely off."""
    return [abs(a - b) / abs(b) if a is not None and a == a else float("inf") for a, b in zip(losses, wanted)]


def judge_losses(losses, wanted, tolerance, count):
    """The largest relative deviation of the first `count`."""
    if len(losses) < count or len(wanted) < count:
        raise Wrong("%d losses, expected %d" % (min(len(losses), len(wanted)), count))
    off = max(deviations(losses[:count], wanted[:count]))
    if not off <= tolerance:
        raise Wrong("losses part by %.1e, %.0e is allowed" % (off, tolerance),
                    {"losses": losses[:count], "wanted": wanted[:count]})
    return off


def judge_hashes(report, replicas):
    hashes = report["parameter_hashes"]
    if len(hashes) != replicas or len(set(hashes)) != 1:
        raise Wrong("parameter hashes of %d replicas: %s" % (replicas, " ".join(hashes)))
    return hashes[0]


def judge_recording(report, expected):
    """Steps that cannot be recorded run as before, which is no proof of a recording."""
    if (expected == "on") != report["recording"].startswith("recorded "):
        raise Wrong("recording=%s: %s" % (expected, report["recording"]))


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


class Checks:
    def __init__(self, place, sizes, options):
        self.place, self.sizes, self.options = place, sizes, options
        self.one = None  # losses of one replica, for those that compare with it

    # ---- Conformance ----

    def conformance(self):
        environment = self.suite_environment()
        outcome = self.place.runner.run([self.run_device(), "cuda"], environment)
        return self.read_suite(outcome)

    def run_device(self):
        path = self.place.path("tests", "support", "run-device", "run-device")
        if not os.path.exists(path):
            raise NotRun("nothing was built")
        return path

    def suite_environment(self):
        folders = [self.place.double] * bool(self.place.double) + [self.place.path("plugins")]
        return dict(self.place.environment, LOCKSTEP_PLUGIN_PATH=":".join(folders))

    @staticmethod
    def read_suite(outcome):
        found = re.search(r"^device-cuda: (\d+) passed, (\d+) failed, (\d+) refused, (\d+) on slow code", outcome.out,
                          re.MULTILINE)
        if outcome.code == 77:
            raise NotRun(outcome.last_line())
        if not found:
            raise Wrong("the device suite ended with code %d" % outcome.code, output=outcome.output)
        passed, failed, refused, slow = (int(text) for text in found.groups())
        figures = {"passed": passed, "failed": failed, "refused": refused, "on_slow_code": slow,
                   "lines": [line for line in outcome.out.splitlines() if not line.startswith("device-cuda:")][:60]}
        if outcome.code or failed or not passed:
            raise Wrong("%d cases failed, %d passed" % (failed, passed), figures, outcome.output)
        return "%d cases, %d refused, %d on slow code" % (passed, refused, slow), figures

    # ---- Losses ----

    def reference(self):
        """cnn under SGD, from the weights and on the batches that PyTorch trained with."""
        folder = self.place.carried("reference")
        if not folder:
            raise NotRun("the losses that PyTorch recorded were not brought along")
        return self.compare_reference("one-device", 1, folder)

    def compare_reference(self, strategy, replicas, folder):
        steps = self.sizes.reference_steps
        report = self.place.train(
            "--model=cnn", "--optimizer=sgd:learning_rate=0.01", "--batch=%d" % self.sizes.reference_batch, "--shuffle=off",
            "--validation=off", "--strategy=" + strategy, "--replicas=%d" % replicas,
            "--initial-weights=" + os.path.join(folder, "cnn_sgd.safetensors"), steps=steps)
        wanted = read_json(os.path.join(folder, "cnn_sgd.json"))["losses"]
        off = judge_losses(report["losses"], wanted, LOSS_TOLERANCE, steps)
        judge_hashes(report, replicas)
        return "%d losses part from PyTorch's by %.1e at most" % (steps, off), {"largest_deviation": off, "steps": steps}

    def nan(self):
        """A NaN in the first convolution's weights must reach the loss: a library's fused ReLU may make 0 of it."""
        folder = self.place.carried("reference")
        if not folder:
            raise NotRun("the weights that PyTorch began with were not brought along")
        path = self.place.path("gpu-check-nan.safetensors")
        with open(os.path.join(folder, "cnn_sgd.safetensors"), "rb") as file:
            weights = bytearray(file.read())
        header = struct.unpack_from("<Q", weights)[0]
        at = 8 + header + json.loads(weights[8:8 + header])["conv2d/kernel"]["data_offsets"][0]
        struct.pack_into("<f", weights, at, float("nan"))
        with open(path, "wb") as file:
            file.write(weights)
        outcome = self.place.lockstep("train", "--quiet", "--device=cuda", "--model=cnn", "--dataset=" + self.place.dataset, "--steps=1",
                                      "--batch=16", "--replicas=1", "--validation=off", "--initial-weights=" + path)
        said = next((line for line in outcome.err.splitlines() if "the loss is not finite" in line), None)
        if outcome.code != 1 or not said:
            raise Wrong("expected exit code 1 and 'the loss is not finite': " + outcome.ending(), output=outcome.output)
        return said, {}

    def cpu_losses(self):
        """What device cpu computed where the folder was packed."""
        folder = self.place.carried("cpu")
        if not folder:
            raise NotRun("the losses of device cpu were not brought along")
        figures = {}
        for name, count in (("cnn_sgd", self.sizes.reference_steps), ("mlp_adam", min(10, self.sizes.reference_steps))):
            recorded = read_json(os.path.join(folder, name + ".json"))
            arguments = [word for word in recorded["arguments"] if not word.startswith("--steps=")]
            report = self.place.train(*arguments, "--strategy=one-device", "--replicas=1", steps=count)
            figures[name] = {"largest_deviation": judge_losses(report["losses"], recorded["losses"], LOSS_TOLERANCE, count),
                             "steps": count}
        return ", ".join("%s: %d losses by %.1e at most" % (name, row["steps"], row["largest_deviation"])
                         for name, row in figures.items()), figures

    def ten_losses(self):
        """cnn under SGD as device cpu computed it, whatever reduces, steps replayed as CUDA graphs or not: replicas have the same
        bits, and so have replayed steps and others."""
        if not self.place.carried("cpu"):
            raise NotRun("the losses of device cpu were not brought along")
        recorded = read_json(self.place.carried("cpu", "cnn_sgd.json"))
        arguments = [word for word in recorded["arguments"] if not word.startswith("--steps=")]
        rows, wrong, steps = [], [], self.sizes.ten_steps
        for strategy, replicas in TEN_CASES:
            hashes = {}
            for recording in ("on", "off"):
                name = "%s, %d, recording %s" % (strategy, replicas, recording)
                try:
                    report = self.place.train(*arguments, "--strategy=" + strategy, "--replicas=%d" % replicas, steps=steps,
                                              device="cuda:recording=" + recording)
                    rows.append({"strategy": strategy, "replicas": replicas, "recording": report["recording"],
                                 "losses": report["losses"], "parameter_hashes": report["parameter_hashes"]})
                    judge_recording(report, recording)
                    rows[-1]["largest_deviation"] = judge_losses(report["losses"], recorded["losses"], TEN_TOLERANCE, steps)
                    hashes[recording] = judge_hashes(report, replicas)
                except Wrong as error:
                    wrong.append("%s: %s" % (name, error))
            if len(set(hashes.values())) > 1:
                wrong.append("%s: replayed steps have other bits than those that are not" % strategy)
        if wrong:
            raise Wrong("; ".join(wrong), {"rows": rows})
        return "%d losses part from device cpu's by %.1e at most under %s; replayed or not, the same bits" % (
            steps, max(row["largest_deviation"] for row in rows),
            ", ".join("%s (%d)" % case for case in TEN_CASES)), {"rows": rows}

    # ---- Replicas ----

    def run_replicas(self, strategy, replicas):
        return self.place.train("--model=cnn", "--optimizer=sgd:learning_rate=0.01", "--validation=off",
                                "--batch=%d" % self.sizes.replica_batch, "--strategy=" + strategy, "--replicas=%d" % replicas,
                                steps=self.sizes.replica_steps)

    def losses_of_one(self):
        if self.one is None:
            self.one = self.run_replicas("one-device", 1)["losses"]
        return self.one

    def equal_to_one(self, strategy, replicas):
        wanted, count = self.losses_of_one(), min(10, self.sizes.replica_steps)
        report = self.run_replicas(strategy, replicas)
        off = judge_losses(report["losses"], wanted, REPLICA_TOLERANCE, count)
        return {"strategy": strategy, "replicas": replicas, "largest_deviation": off,
                "parameter_hash": judge_hashes(report, replicas)}

    def replicas(self):
        """Four virtual replicas equal one, whatever reduces; twice the same has the same bits."""
        rows, wrong = [], []
        for strategy in EVERY_STEP:
            try:
                rows.append(self.equal_to_one(strategy, REPLICAS))
            except Wrong as error:
                wrong.append("%s: %s" % (strategy, error))
        if wrong:
            raise Wrong("; ".join(wrong), {"rows": rows})
        again = self.equal_to_one("ring", REPLICAS)
        if again["parameter_hash"] != rows[0]["parameter_hash"]:
            raise Wrong("ring: two runs with the same seed have different parameters", {"rows": rows + [again]})
        off, gpus = max(row["largest_deviation"] for row in rows), min(self.place.gpus, REPLICAS)
        return "%d replicas on %d GPU%s under %s equal one to %.1e; hashes equal" % (
            REPLICAS, gpus, "s" * (gpus > 1), ", ".join(EVERY_STEP), off), {"rows": rows}

    def nccl_one(self):
        """NCCL with one rank: all that one GPU can show of it."""
        figures = self.equal_to_one("nccl", 1)
        folder = self.place.carried("reference")
        detail = "one rank equals one device to %.1e" % figures["largest_deviation"]
        if folder:
            text, figures["reference"] = self.compare_reference("nccl", 1, folder)
            detail += "; " + text
        return detail, figures

    def nccl_all(self):
        if self.place.gpus < 2:
            raise NotRun("there is one GPU; NCCL between GPUs needs two")
        figures = self.equal_to_one("nccl", self.place.gpus)
        folder = self.place.carried("reference")
        if folder:
            figures["reference"] = self.compare_reference("nccl", self.place.gpus, folder)[1]
        return "%d ranks equal one device to %.1e; hashes equal" % (self.place.gpus, figures["largest_deviation"]), figures

    def nccl_refusal(self):
        """Two ranks on one GPU are refused by name, before NCCL does it."""
        replicas = self.place.gpus + 1
        outcome = self.place.lockstep("train", "--quiet", "--device=cuda", "--model=mlp", "--dataset=synthetic", "--steps=2",
                                      "--strategy=nccl", "--replicas=%d" % replicas)
        says = "rank 0 and rank %d are both on GPU 0" % self.place.gpus
        if outcome.code != 4 or says not in outcome.err:
            raise Wrong("expected exit code 4 and '%s': %s" % (says, outcome.ending()), output=outcome.output)
        return outcome.last_line(), {}

    # ---- Whole trainings ----

    def recording(self):
        """Steps that are replayed as CUDA graphs give the bits of steps that are not."""
        reports = {}
        for name, recording in (("replayed", "on"), ("not replayed", "off")):
            reports[name] = self.place.train("--model=cnn", "--optimizer=adam", "--validation=off", "--replicas=1",
                                             "--batch=%d" % self.sizes.replica_batch, steps=self.sizes.recording_steps,
                                             device="cuda:recording=" + recording)
            judge_recording(reports[name], recording)
        figures = {name: {key: report[key] for key in ("recording", "parameter_hashes", "step_seconds")}
                   for name, report in reports.items()}
        one, other = (report["parameter_hashes"] for report in reports.values())
        if one != other:
            raise Wrong("parameters differ after %d steps" % self.sizes.recording_steps, figures)
        return "%d steps, %s a step; the same bits" % (self.sizes.recording_steps, ", ".join("%s %.1f us" % (
            name, report["step_seconds"]["median"] * 1e6) for name, report in reports.items())), figures

    def epochs(self):
        limit = ("," if ":" in self.place.dataset else ":") + "limit=%d" % self.sizes.epochs_limit
        report = self.place.train("--model=cnn", "--epochs=2", "--replica-batch=64", "--replicas=1",
                                  "--dataset=" + self.place.dataset + limit)
        last = report["epochs"][-1]
        figures = {key: report[key] for key in ("epochs", "startup_seconds", "device_bytes")}
        detail = "validation accuracy %.4f after 2 epochs, %.0f images/s" % (
            last["val_accuracy"], last["examples_per_second"])
        if not last["val_accuracy"] >= self.sizes.least_accuracy:
            raise Wrong(detail + ", expected %.2f" % self.sizes.least_accuracy, figures)
        return detail, figures

    def compare(self):
        path, strategies = self.place.path("gpu-check-compare.json"), ["one-device", *EVERY_STEP]
        replicas = REPLICAS
        if self.place.gpus > 1:
            strategies, replicas = strategies + ["nccl"], self.place.gpus
        outcome = self.place.lockstep(
            "compare", "--quiet", "--model=cnn", "--device=cuda", "--dataset=" + self.place.dataset, "--report=" + path,
            "--strategies=" + ",".join(strategies), "--replicas=%d" % replicas, "--validation=off",
            "--batch=%d" % self.sizes.compare_batch, "--steps=%d" % self.sizes.compare_steps, *self.sizes.compare_options)
        if outcome.code:
            raise Wrong(outcome.ending(), output=outcome.output)
        report = read_json(path)
        rows = [{key: run.get(key) for key in ("strategy", "replicas", "status", "reason", "examples_per_second",
                                               "max_loss_deviation", "max_parameter_deviation", "replicas_equal")}
                for run in report["runs"]]
        figures = {"runs": rows, "rounding_spread": report.get("rounding_spread"), "verdict": report.get("verdict"),
                   "replicas": replicas}
        bad = [row["strategy"] for row in rows if row["status"] not in ("done", "stopped") or row["replicas_equal"] is False]
        if bad:
            raise Wrong("did not run, or replicas differ: " + ", ".join(bad), figures, outcome.output)
        return "%d strategies, %d replicas, %d steps" % (len(rows), replicas, self.sizes.compare_steps), figures

    def bench(self):
        """Collectives in memory of the GPU, of which every element of the result is looked at, beside what the card copies."""
        copied, rows, tables = self.copy_bandwidth(), [], []
        counts = [*BENCH_REPLICAS] + [self.place.gpus] * (self.place.gpus > 1 and self.place.gpus not in BENCH_REPLICAS)
        for replicas in counts:
            names = list(REDUCING) + ["nccl"] * (1 < replicas <= self.place.gpus)
            path = self.place.path("gpu-check-bench.json")
            outcome = self.place.lockstep(
                "bench", *names, "--device=cuda", "--replicas=%d" % replicas, "--bytes=" + self.sizes.bench_bytes,
                "--seconds=" + self.sizes.bench_seconds, "--place=in", "--json=" + path)
            if outcome.code:
                raise Wrong("%d replicas: %s" % (replicas, outcome.ending()), {"copy": copied, "rows": rows}, outcome.output)
            rows += read_json(path)["rows"]
            tables.append(outcome.out.splitlines())
        for row in rows:  # what all ranks must read and write at least, on one card
            row["least_gb_s"] = 2e-9 * row["replicas"] * row["bytes"] / row["seconds"]
            row["share_of_copy"] = row["least_gb_s"] / copied["gb_s"]
        largest = [row for row in rows if row["bytes"] == max(other["bytes"] for other in rows)]  # more than any cache holds
        best = {count: max((row for row in largest if row["replicas"] == count), key=lambda row: row["least_gb_s"]) for count in counts}
        return "no element is wrong; a copy %.0f GB/s; fastest all-reduce of %d MB: %s" % (
            copied["gb_s"], largest[0]["bytes"] // 1000000, ", ".join("%d ranks %s %.0f GB/s" % (
                count, row["collective"], row["least_gb_s"]) for count, row in best.items())), {
                "copy": copied, "rows": rows, "tables": tables}

    def copy_bandwidth(self):
        library = self.place.runtime_library()
        if not library:
            raise Wrong("there is no library of the CUDA runtime to measure copies with")
        outcome = self.place.runner.run([sys.executable, COPY_BANDWIDTH, library, str(self.sizes.copy_bytes)],
                                        self.place.environment)
        if outcome.code:
            raise Wrong("copies within the GPU: " + outcome.ending(), output=outcome.output)
        return json.loads(outcome.out)
