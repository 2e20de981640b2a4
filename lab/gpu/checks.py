# SPDX-License-Identifier: Apache-2.0
"""What tools/gpu-check looks at. Each check is a function that returns (detail, figures), or raises NotRun or Wrong."""
import json
import os
import re
import struct
import sys

from pack import REFERENCE, TRAINED
from place import RUN_DEVICE, RUN_ON_DEVICE
from runner import NotRun, TimeOver, Wrong

LOSS_TOLERANCE = 1e-4  # relative, first ten losses: whatever reduces, against device cpu
# Of halves, and of 81 normalizations one behind the other.
LOSS_TOLERANCES = {"gpt_bfloat16": 5e-3, "cnn_float16": 5e-3, "efficientnet_sgd": 1e-3}
REPLICAS = 4  # virtual ones, on as many GPUs as there are
LOSS_CASES = (("cnn_sgd", "one-device", 1), ("cnn_sgd", "ring", REPLICAS), ("cnn_sgd", "hierarchical-copy", REPLICAS),
              ("cnn_sgd", "nccl", 0), ("gpt_bfloat16", "one-device", 1), ("cnn_float16", "one-device", 1), ("recurrent_adam", "one-device", 1),
              ("masked_adam", "one-device", 1), ("augmented_sgd", "one-device", 1), ("resnet_sgd", "one-device", 1), ("gpt_adamw", "one-device", 1),
              ("efficientnet_sgd", "one-device", 1), ("mlp_adam", "one-device", 1), ("cnn_sgd", "tree", REPLICAS),
              ("cnn_sgd", "direct", REPLICAS))  # 0: one replica a GPU
BENCH_REPLICAS = (2, REPLICAS)
COPY_BANDWIDTH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "copy_bandwidth.py")
# How a case of one replica runs, and whether its bits are those of the first way.
WAYS = {"recording=on": True, "recording=off": True, "recording=on,branches=off": True}
WAYS_OF_ATTENTION = {"recording=on,fused_attention=off": False}
WAYS_OF_MASKS = {"recording=off": True}  # replicas add up within the step what a mask leaves
REDUCING = ("ring", "hierarchical-copy", "tree", "direct")
STRATEGIES = ("one-device", *REDUCING)  # central-storage computes on device cpu, which the kit has not
EPOCHS = 3  # of TRAINED images
SUITE_LINES = 100  # of failed cases, and of slow ones, that are kept


class Sizes:
    """Of the work; small ones for a dry run on the fake, which is some thousand times slower than a GPU."""

    def __init__(self, dry):
        self.epochs_limit = 64 if dry else TRAINED
        self.least_accuracy = 0.0 if dry else 0.85
        self.memory_steps, self.memory_epoch, self.memory_batch = (30, 3, 4) if dry else (10000, 200, 64)
        self.loss_steps = 2 if dry else 10
        self.loss_cases = [("mlp_adam", *case[1:]) for case in LOSS_CASES[:4]] if dry else LOSS_CASES
        self.suite_cases = "softmax" if dry else ""
        self.collectives = ["-short", "collective-ring"] if dry else ["transport-local", *("collective-" + name for name in REDUCING)]
        self.plan_batch = 4 if dry else 64
        self.compare_steps, self.compare_batch = (4, 8) if dry else (60, 256)
        self.compare_options = ["--speed-steps=0"] if dry else []
        self.bench_bytes, self.bench_seconds = ("8,4K", "0.01") if dry else ("8,64K,1M,16M,256M", "0.1")
        self.copy_bytes = 1 << 20 if dry else 1 << 30


def deviations(losses, wanted):
    """Relative; a loss that is missing or no number (null in a report) is infinitely off."""
    losses = [*losses, *[None] * (len(wanted) - len(losses))]
    return [abs(a - b) / abs(b) if a is not None and a == a else float("inf") for a, b in zip(losses, wanted)]


def judge_hashes(report, replicas):
    hashes = report["parameter_hashes"]
    if len(hashes) != replicas or len(set(hashes)) != 1:
        raise Wrong("parameter hashes of %d replicas: %s" % (replicas, " ".join(hashes)))
    return hashes[0]


def judge_row(row, recording):
    judge_recording(row, recording)
    judge_hashes(row, row["replicas"])
    allowed = LOSS_TOLERANCES.get(row["run"], LOSS_TOLERANCE)
    if not row["largest_deviation"] <= allowed:
        raise Wrong("losses part by %.1e, %.0e is allowed" % (row["largest_deviation"], allowed))


def judge_recording(report, expected):
    """Steps that cannot be recorded run as before, which is no proof of a recording."""
    if (expected == "on") != report["recording"].startswith("recorded "):
        raise Wrong("recording=%s: %s" % (expected, report["recording"]))


def telling_lines(output):
    """Of the device suite: failed cases first, which check `again` repeats, then slow ones."""
    lines = output.splitlines()
    failed = [line for line in lines if line.startswith("FAILED")]
    return failed[:SUITE_LINES] + [line for line in lines if "(slow)" in line and line not in failed][:SUITE_LINES]


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


class Checks:
    def __init__(self, place, sizes):
        self.place, self.sizes = place, sizes

    # ---- Does it run ----

    def start(self):
        """The smallest trainings, operation by operation and as CUDA graphs; a failure is repeated with the libraries' own words."""
        rows, wrong = [], []
        self.place.runner.partial = {"rows": rows}
        for model, data in (("mlp", "synthetic"), ("cnn", self.place.dataset)):
            for recording in ("off", "on"):
                name = "%s, recording %s" % (model, recording)
                arguments = ["--model=" + model, "--dataset=" + data, "--validation=off", "--batch=32", "--replicas=1"]
                try:
                    report = self.place.train(*arguments, steps=2 * self.sizes.loss_steps, device="cuda:recording=" + recording)
                    rows.append({"case": name, "recording": report["recording"], "step_seconds": report["step_seconds"],
                                 "startup_seconds": report["startup_seconds"], "losses": report["losses"][:3]})
                    judge_recording(report, recording)
                except Wrong as error:
                    wrong.append("%s: %s" % (name, error))
                    self.ask_libraries(arguments, recording)
        if wrong:
            raise Wrong("; ".join(wrong), {"rows": rows})
        return "; ".join("%s: %s, %.0f us a step" % (row["case"], row["recording"], row["step_seconds"]["median"] * 1e6) for row in rows), {
            "rows": rows}

    def ask_libraries(self, arguments, recording):
        """Every launch by itself, and what cuDNN and cuBLASLt say of it, into a file of the results."""
        log = os.path.join(self.place.out, "start.log")
        said = {"CUDA_LAUNCH_BLOCKING": "1", "CUDNN_LOGLEVEL_DBG": "2", "CUDNN_LOGDEST_DBG": "stderr", "CUBLASLT_LOG_LEVEL": "2"}
        outcome = self.place.lockstep("train", "--verbose", "--device=cuda:recording=" + recording, "--steps=5", *arguments, environment=said)
        with open(log, "a", encoding="utf-8") as file:
            file.write("# train %s recording=%s: %s\n%s\n" % (" ".join(arguments), recording, outcome.ending(), outcome.output[-200000:]))

    # ---- Does it compute ----

    def suite(self):
        """Every case of the device suite against device reference."""
        return self.run_suite("", self.sizes.suite_cases, "suite.log")

    def exact(self):
        """The same with an allocation for each buffer: what reads or writes far behind one ends the process."""
        return self.run_suite(":arena=off", self.sizes.suite_cases, "exact.log")

    def run_suite(self, options, cases, log):
        try:
            outcome = self.place.runner.run([self.place.program(RUN_DEVICE), "cuda" + options, cases, "-v"], self.place.suite_environment(),
                                            output=os.path.join(self.place.out, log))
        except TimeOver as error:
            self.place.runner.partial = {"lines": telling_lines(error.output)}
            raise
        found = re.search(r"^device-cuda\S*: (\d+) passed, (\d+) failed, (\d+) refused, (\d+) on slow code", outcome.out, re.MULTILINE)
        if outcome.code == 77:
            raise NotRun(outcome.last_line())
        if not found:
            raise Wrong("the device suite ended with code %d" % outcome.code, {"lines": telling_lines(outcome.out)}, outcome.output)
        passed, failed, refused, slow = (int(text) for text in found.groups())
        figures = {"passed": passed, "failed": failed, "refused": refused, "on_slow_code": slow,
                   "lines": telling_lines(outcome.out)}
        if outcome.code or failed or not passed:
            raise Wrong("%d cases failed, %d passed" % (failed, passed), figures, "\n".join(figures["lines"]))
        return "%d cases, %d refused, %d on slow code" % (passed, refused, slow), figures

    def losses(self):
        """The first ten as device cpu computed them, whatever reduces, steps replayed as CUDA graphs or not, with a branch or without:
        replicas have the same bits, and so have these ways. Attention composed of products has others."""
        rows, wrong = [], []
        self.place.runner.partial = {"rows": rows}
        for run, strategy, replicas in self.sizes.loss_cases:
            hashes = {}
            for way, same in self.ways_of(run, strategy).items():
                try:
                    row = self.ten_losses(run, strategy, replicas or self.place.gpus, way)
                    rows.append(row)
                    judge_row(row, "off" if "recording=off" in way else "on")
                    if same:
                        hashes[way] = row["parameter_hashes"][0]
                except Wrong as error:
                    wrong.append("%s, %s, %d, %s: %s" % (run, strategy, replicas or self.place.gpus, way, error))
            if len(set(hashes.values())) > 1:
                wrong.append("%s, %s: other bits by the way in which steps run: %s" % (
                    run, strategy, ", ".join("%s %s" % pair for pair in hashes.items())))
        if wrong:
            raise Wrong("; ".join(wrong), {"rows": rows})
        largest = max(rows, key=lambda row: row["largest_deviation"])
        return "%d losses part from device cpu's by %.1e at most (%s, %s); replayed or not, with a branch or not, the same bits" % (
            self.sizes.loss_steps, largest["largest_deviation"], largest["run"], largest["strategy"]), {"rows": rows}

    @staticmethod
    def ways_of(run, strategy):
        if run == "masked_adam":
            return WAYS_OF_MASKS
        ways = dict(WAYS) if strategy == "one-device" else {way: WAYS[way] for way in ("recording=on", "recording=off")}
        return ways | (WAYS_OF_ATTENTION if run.startswith("gpt") else {})

    def ten_losses(self, run, strategy, replicas, way):
        path = self.place.carried("cpu", run + ".json")
        if not path:
            raise Wrong("the kit has no cpu/%s.json" % run)
        recorded = read_json(path)
        arguments = [word.replace("{kit}", self.place.kit) for word in recorded["arguments"] if not word.startswith("--steps=")]
        if recorded["weights"]:
            arguments.append("--initial-weights=" + os.path.join(REFERENCE, recorded["weights"]))
        report = self.place.train(*arguments, "--strategy=" + strategy, "--replicas=%d" % replicas, steps=self.sizes.loss_steps,
                                  device="cuda:" + way)
        row = {"run": run, "strategy": strategy, "replicas": replicas, "way": way}
        row.update((key, report[key]) for key in ("recording", "losses", "parameter_hashes", "step_seconds"))
        row["largest_deviation"] = max(deviations(row["losses"], recorded["losses"][:self.sizes.loss_steps]))
        return row

    def nan(self):
        """A NaN in the first convolution's weights must reach the loss: a library's fused ReLU may make 0 of it."""
        path = os.path.join(self.place.scratch, "nan.safetensors")
        with open(os.path.join(REFERENCE, "cnn_sgd.safetensors"), "rb") as file:
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

    def plans(self):
        """Plans of cuDNN that were timed are kept in a file, and two trainings that take them from it have the same bits."""
        path = os.path.join(self.place.out, "plans.txt")
        if os.path.exists(path):
            os.unlink(path)
        arguments = ("--model=cnn", "--batch=%d" % self.sizes.plan_batch, "--replicas=1", "--validation=off")
        runs, files = [], []
        for device in ("cuda:timing=on,plans=", "cuda:plans=", "cuda:timing=on,plans="):
            report = self.place.train(*arguments, steps=5, device=device + path)
            runs.append((report["losses"], report["parameter_hashes"]))
            with open(path) as file:
                files.append(file.read())
        said = "%d plans in the file" % (files[0].count("\n") - 2)
        if runs.count(runs[0]) != 3 or files.count(files[0]) != 3:
            raise Wrong(said + ", but runs that took them differ, or wrote it anew", {"losses": [losses for losses, _ in runs]})
        return said, {}

    def collectives(self):
        """The suites of collectives and of transport local in memory of the GPU."""
        outcome = self.place.runner.run([self.place.program(RUN_ON_DEVICE), "cuda", *self.sizes.collectives], self.place.suite_environment())
        lines = [line for line in outcome.out.splitlines() if " in memory of " in line]
        if outcome.code or not lines:
            raise Wrong(outcome.ending(), {"lines": lines}, outcome.output)
        return "; ".join(lines), {"lines": lines}

    def refusal(self):
        """Two ranks on one GPU are refused by name, before NCCL does it."""
        replicas = self.place.gpus + 1
        outcome = self.place.lockstep("train", "--quiet", "--device=cuda", "--model=mlp", "--dataset=synthetic", "--steps=2",
                                      "--strategy=nccl", "--replicas=%d" % replicas)
        says = "rank 0 and rank %d are both on GPU 0" % self.place.gpus
        if outcome.code != 4 or says not in outcome.err:
            raise Wrong("expected exit code 4 and '%s': %s" % (says, outcome.ending()), output=outcome.output)
        return outcome.last_line(), {}

    # ---- Whole trainings ----

    def epochs(self):
        limit = ("," if ":" in self.place.dataset else ":") + "limit=%d" % self.sizes.epochs_limit
        report = self.place.train("--model=cnn", "--epochs=%d" % EPOCHS, "--replica-batch=64", "--replicas=1",
                                  "--dataset=" + self.place.dataset + limit)
        last = report["epochs"][-1]
        figures = {key: report[key] for key in ("epochs", "startup_seconds", "device_bytes")}
        detail = "validation accuracy %.4f after %d epochs, %.0f images/s" % (
            last["val_accuracy"], EPOCHS, last["examples_per_second"])
        if not last["val_accuracy"] >= self.sizes.least_accuracy:
            raise Wrong(detail + ", expected %.2f" % self.sizes.least_accuracy, figures)
        return detail, figures

    def compare(self):
        path, strategies = os.path.join(self.place.scratch, "compare.json"), list(STRATEGIES)
        replicas = REPLICAS
        if self.place.gpus > 1:
            strategies, replicas = strategies + ["nccl"], self.place.gpus
        outcome = self.place.lockstep(
            "compare", "--progress", "--model=cnn", "--device=cuda", "--dataset=" + self.place.dataset, "--report=" + path,
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
            path = os.path.join(self.place.scratch, "bench.json")
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
