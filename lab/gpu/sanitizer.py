# SPDX-License-Identifier: Apache-2.0
"""Checks of tools/gpu-check that another program makes: NVIDIA's compute-sanitizer, and Nsight Compute."""
import csv
import os
import re
import shutil

from checks import read_json
from place import RUN_DEVICE
from runner import OUTPUT_LINES, NotRun, TimeOver, Wrong

FOUND_CODE = 86  # compute-sanitizer ends with that when it has found something
OWN_KERNELS = "cuda_"  # part of the mangled names of our kernels, whose arguments are structs of such names (kernels.h)
# Of the device suite. Racecheck looks at shared memory alone, which kernels use that do these.
SHARING_CASES = ("differs|masked_mean|resample|resize|recolour|metric|batch_normalization|layer_normalization|softmax|cross_entropy|loss|"
                 "penalty|reduce|clip|lamb|gather_rows|attention|measure")
# Not in bfloat16: racecheck ends there with an error of its own ("failed to handle a hardware exception") in a kernel of cuDNN's, in
# which memcheck finds nothing.
SHARING_CONVOLUTIONS = "^conv2d|^float16 conv2d|dense_backward"
LIBRARY_CASES = "conv2d|dense|matmul|attention"
# Own kernels of every kind, the news first; products and convolutions are the libraries'.
OWN_CASES = ("recurrent|differs|masked_mean|draw|resample|resize|recolour|erase|bucket|lookup|encode|metric|loss|"
             "batch_normalization|softmax|cross_entropy|_update|max_pool2d|average_pool2d|dropout|mean_squared|measure|convert|from_bytes|"
             "reshape|average_update|batch_statistics|add|activation|reduce|recording|streams|conv2d|dense_backward|function|gather_rows|"
             "layer_normalization|attention|pad|slice")
REPORTED = re.compile(r"^=+ (Error|Invalid|(Warning: )?Race)", re.MULTILINE)
REFUSALS = ("Device not supported", "not supported on this", "Unable to", "Failed to initialize", "No attachable process",
            "Error: Target application terminated before first instrumented API call")
PROFILED = "train --device=cuda:recording=off --model=cnn --validation=off --replicas=1 --batch=1024 --steps=3".split()
SECTIONS = ("SpeedOfLight", "Occupancy", "LaunchStats")
LONGEST = 5  # kernels that are reported
METRICS = {("GPU Speed Of Light Throughput", "Duration"): "ns", ("GPU Speed Of Light Throughput", "DRAM Throughput"): "memory_percent",
           ("GPU Speed Of Light Throughput", "Compute (SM) Throughput"): "compute_percent", ("Occupancy", "Achieved Occupancy"): "occupancy_percent",
           ("Launch Statistics", "Registers Per Thread"): "registers"}


class Sanitizer:
    """`again`: path of an earlier result, whose failed cases are repeated; may be empty."""

    def __init__(self, place, checks, again):
        self.place, self.checks, self.earlier = place, checks, again

    def tool(self, name):
        nvcc = self.place.found().get("nvcc", "")
        root = os.path.dirname(os.path.dirname(nvcc)) if nvcc else "/nowhere"
        places = [shutil.which(name), os.path.join(root, "bin", name), os.path.join(root, name, name), "/usr/local/cuda/bin/" + name]
        found = next((path for path in places if path and os.access(path, os.X_OK)), None)
        if not found:
            raise NotRun("%s is not here" % name)
        return found

    def watch(self, name, options, summary, cases):
        """The device suite under one of compute-sanitizer's tools, every buffer an allocation of its own; `summary`: of its last line,
        with the number of errors as a group."""
        command = [self.tool("compute-sanitizer"), "--error-exitcode", str(FOUND_CODE), "--report-api-errors", "no", *options,
                   self.place.program(RUN_DEVICE), "cuda:arena=off", cases, "-v"]
        try:
            outcome = self.place.runner.run(command, self.place.suite_environment(), output=os.path.join(self.place.out, name + ".log"))
        except TimeOver as error:
            if REPORTED.search(error.output):
                raise Wrong("it reported something before the time was over", output=report_of(error.output)) from error
            raise NotRun("%s; nothing was reported in the first %d cases" % (error, count_cases(error.output))) from error
        found = re.search(summary, outcome.output)
        refusal = next((line.strip("= ") for line in outcome.output.splitlines()
                        if any(text in line for text in REFUSALS)), None)
        count = count_cases(outcome.output)
        if refusal and not re.search("^passed ", outcome.out, re.MULTILINE):
            raise NotRun("refused on this machine: " + refusal)
        if not found:
            raise Wrong("it gave no summary, exit code %d" % outcome.code, output=outcome.output)
        figures = {"cases": count, "summary": found[0], "command": " ".join(options)}
        if outcome.code or int(found[1]) or not count:
            raise Wrong("%s, %d cases, exit code %d" % (found[0], count, outcome.code), figures, report_of(outcome.output))
        return "%s, %d cases" % (found[0], count), figures

    def only_own(self):
        """The option that watches our own kernels alone: those of the libraries are NVIDIA's, and slow to watch."""
        usage = self.place.said(self.tool("compute-sanitizer"), "--help") or ""
        return [next((name for name in ("--kernel-name", "--kernel-regex", "--filter") if name in usage), "--kernel-name"), "kns=" + OWN_KERNELS]

    def libraries(self):
        """Kernels of cuDNN and cuBLASLt, too: whether they stay within the buffers that we hand them."""
        return self.watch("libraries", ["--tool", "memcheck"], r"ERROR SUMMARY: (\d+) errors?", LIBRARY_CASES)

    def memcheck(self):
        return self.watch("memcheck", ["--tool", "memcheck", *self.only_own()], r"ERROR SUMMARY: (\d+) errors?", OWN_CASES)

    def racecheck(self):
        return self.watch("racecheck", ["--tool", "racecheck", *self.only_own()], r"RACECHECK SUMMARY: (\d+) hazards? displayed[^\n]*",
                          SHARING_CASES)

    def racecheck_convolutions(self):
        """In a process of its own, since a library's kernel may end it."""
        return self.watch("racecheck-convolutions", ["--tool", "racecheck", *self.only_own()],
                          r"RACECHECK SUMMARY: (\d+) hazards? displayed[^\n]*", SHARING_CONVOLUTIONS)

    def again(self):
        """The cases of the device suite that failed in an earlier stage."""
        if not self.earlier:
            raise NotRun("no earlier result was named (--again)")
        suites = [entry for entry in read_json(self.earlier)["checks"] if entry["name"] == "suite"]
        names = [line.split(None, 1)[1].split(":")[0] for entry in suites for line in entry.get("figures", {}).get("lines", ())
                 if line.startswith("FAILED")]
        if not names:
            raise NotRun("no case had failed")
        return self.checks.run_suite("", "|".join(names), "again.log")

    def profiler(self):
        """Nsight Compute on the kernels that take the longest in a step of cnn; --clock-control none leaves the card's clocks alone."""
        ncu = self.tool("ncu")
        command = [ncu, "--clock-control", "none", "--csv", "--page", "details", "--launch-skip", "40", "--launch-count", "60",
                   "--kernel-name-base", "demangled", *(word for name in SECTIONS for word in ("--section", name)),
                   self.place.program(), *PROFILED, "--quiet", "--dataset=" + self.place.dataset]
        outcome = self.place.runner.run(command, self.place.environment, output=os.path.join(self.place.out, "profiler.csv"))
        if "ERR_NVGPUCTRPERM" in outcome.output:
            raise NotRun("counters of the GPU are forbidden to this user")
        if outcome.code:
            raise Wrong(outcome.ending(), output=outcome.output)
        rows = longest(outcome.out)
        if not rows:
            raise Wrong("it profiled no kernel", output=outcome.output)
        return "; ".join("%s: %.0f us, %s %% of the memory's speed, %s %% of the processors'" % (
            row["kernel"][:60], row["microseconds"], row["memory_percent"], row["compute_percent"]) for row in rows), {"kernels": rows}


def longest(table):
    """Of Nsight Compute's CSV: the kernels that took the longest, each by its longest launch."""
    metrics = {}
    lines = table.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    for row in csv.DictReader(lines[begin:]):
        launch = metrics.setdefault(row["ID"], {"kernel": row["Kernel Name"], "grid": row["Grid Size"], "block": row["Block Size"]})
        if (row["Section Name"], row["Metric Name"]) in METRICS:
            launch[METRICS[row["Section Name"], row["Metric Name"]]] = float(row["Metric Value"].replace(",", ""))
    launches = [dict(launch, microseconds=launch["ns"] * 1e-3) for launch in metrics.values() if "ns" in launch]
    best = {}
    for launch in sorted(launches, key=lambda launch: launch["ns"]):
        best[launch["kernel"]] = launch
    return sorted(best.values(), key=lambda launch: -launch["ns"])[:LONGEST]


def report_of(output):
    """The first of what compute-sanitizer or the suite complains about, without the cases that passed."""
    lines = [line for line in output.splitlines() if line.startswith("=") or "FAILED" in line]
    return "\n".join(lines[:OUTPUT_LINES])


def count_cases(output):
    return len(re.findall(r"^(?:passed|FAILED|refused) ", output, re.MULTILINE))
