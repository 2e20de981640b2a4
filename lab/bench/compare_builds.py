#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares two build folders of Lockstep, for its own developers: has a restructuring changed nothing?

  --bits   trains the same short runs with both builds and compares every loss, accuracy and parameter hash, to the bit.
           One thread a replica, so that the order of additions does not depend on the machine. Prints one line for
           each run that differs, with the first value that differs. The runs whose name begins with house/ are those
           that a change of the structure must show: weights and checkpoints are compared as files, the examples that
           each replica is given by their hash, and what both builds refuse in the same words is listed.
  --speed  times both builds in turn: steps of training, all-reduce in place, and what a call of ls_fit costs. In every
           other round the new build goes first. A ratio is the old time by the new time of the same round, so above 1
           the new build is faster; printed are the median over the rounds and, in brackets, the quartiles.
  --auto   times collective `auto` in turn with every other collective. The ratio is the time of the best single one
           (that with the least median) by the time of `auto`.

Without any of the three, --bits. The exit code is 1 when bits differ or a run fails, else 0: no speed fails.
Build both folders as releases, with the same compiler; for --speed and --auto, end other programs first.

  git worktree add ../old v0.1 && meson setup ../old/build ../old -Dtests=disabled && ninja -C ../old/build
  meson setup build-release -Dtests=disabled && ninja -C build-release
  ./tools/compare-builds ../old/build build-release --bits --cache=../old/reports
  ./tools/compare-builds ../old/build build-release --bits --only=cnn/ring
  ./tools/compare-builds ../old/build build-release --bits --only=house/ --cache=../old/reports
  ./tools/compare-builds ../old/build build-release --speed --auto --rounds=20 --report=speed.json
"""
import argparse
import concurrent.futures
import gzip
import hashlib
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
from collections import namedtuple

import lockstep_side
import machine

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PATIENCE = 300  # seconds of one program
REFUSED = 2  # exit code of what is asked for and cannot be
RENAMED = {"--slices": "--microbatches"}  # the name in this file -> the name that a later build may have


def program(build):
    return str(build / "tools" / "lockstep")


def run(command, folder=None):
    """What the command wrote on stdout. Failed when it does not end with 0."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=PATIENCE,
                              cwd=folder)
    except subprocess.TimeoutExpired:
        raise lockstep_side.Failed("no end after %d s: %s" % (PATIENCE, " ".join(command))) from None
    if done.returncode:
        raise lockstep_side.Failed("exit code %d: %s" % (done.returncode, first_error(done.stderr)), done.returncode)
    return done.stdout


def first_error(text):
    """The line that says why: of several workers, not that another one has ended."""
    lines = text.strip().splitlines()
    errors = [line for line in lines if " error: " in line and not re.search(r"error: (launch|cluster): ", line)]
    return (errors or lines[-1:] or ["it said nothing"])[0]


def run_for_json(command, option):
    """The JSON that the command writes to the file that `option` names."""
    with tempfile.TemporaryDirectory(prefix="compare-builds-") as folder:
        path = os.path.join(folder, "written.json")
        run(command + [option + path])
        return lockstep_side.read(path)


def train(build, arguments):
    """The report of a run."""
    translated = [renamed(build, argument) for argument in arguments]
    return run_for_json([program(build), "train", "--quiet", "--device=cpu", *translated], "--report=")


def all_options(build):
    """The option that lists all of train's, which was --help once."""
    return "--help=all" if "--help=all" in run([program(build), "train", "--help"]) else "--help"


def renamed(build, argument):
    """The argument under the name that this build knows."""
    name, _, value = argument.partition("=")
    if name in RENAMED and name + "=" not in run([program(build), "train", all_options(build)]):
        return RENAMED[name] + "=" + value
    return argument


def compile_against(build, source, folder):
    """A program of this folder, compiled against the library and the header of a build."""
    with open(build / "meson-info" / "meson-info.json") as file:
        tree = json.load(file)["directories"]["source"]
    target = os.path.join(folder, "%s-%s" % (os.path.splitext(source)[0], build_key(build)))
    run(["cc", "-O2", "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-I" + tree, str(HERE / source), "-o", target,
         str(build / "liblockstep.so"), "-Wl,-rpath," + str(build)])
    return target


# ---- Bits ----

# `kind`: how the steps are made. "train": by the command; "resume": by the command, twice, of which the second goes on where
# the first ended; "loop": by loop_bits.c. The folder of a run is its own; {root} in an argument is the folder of the sources.
Case = namedtuple("Case", "group name steps arguments kind workers", defaults=("train", 1))
SAME, MICROBATCHES = "same bits", "microbatches: may differ"
MODELS = ["cnn", "mlp", "mlp-dropout"]
STRATEGIES = ["ring", "hierarchical-copy", "tree", "central-storage", "parameter-server:mode=sync"]
OPTIMIZERS = {"adam": "adam", "momentum": "sgd:learning_rate=0.05,momentum=0.9"}
STEPS = 40


def case(model, strategy, replicas, optimizer, *more, group=SAME, dataset="fashion-mnist", suffix=""):
    name = "%s/%s/%d/%s%s" % (model, strategy, replicas, optimizer, suffix)
    return Case(group, name, STEPS, [
        "--model=" + model, "--dataset=" + dataset, "--strategy=" + strategy, "--replicas=%d" % replicas, "--threads=1",
        "--batch=100", "--steps=%d" % STEPS, "--optimizer=" + OPTIMIZERS[optimizer],
        *(more or ["--validation=off"])])


def all_cases():
    pairs = [(model, optimizer) for model in MODELS for optimizer in OPTIMIZERS]
    for model, optimizer in pairs:
        yield case(model, "one-device", 1, optimizer)
        for strategy in STRATEGIES:
            for replicas in (1, 2, 3, 4):
                yield case(model, strategy, replicas, optimizer)
    # The first epoch ends with a batch of 50 and an evaluation, the second one begins.
    for model in ("cnn", "mlp-dropout"):
        for strategy in ("ring", "central-storage"):
            for replicas in (2, 3):
                yield case(model, strategy, replicas, "adam", "--validation=on", "--epochs=2", dataset="fashion-mnist:limit=3050",
                           suffix="/two epochs")
    for model, optimizer in pairs:
        yield case(model, "ring", 2, optimizer, "--validation=off", "--slices=2", group=MICROBATCHES,
                   suffix="/2 microbatches")


HOUSE_STRATEGIES = ["one-device", "ring", "hierarchical-copy", "two-level", "central-storage", "parameter-server:mode=sync"]
HOUSE_STEPS, LARGE_STEPS, MOST_LETTERS = 10, 3, 65
HOUSE_WAYS = {"plain": [], "microbatches": ["--microbatches=2"], "loss scale": ["--loss-scale=1024"], "custom loop": None,
              "resume": []}
LARGE_MODELS = {
    "resnet": ["--model=resnet", "--dataset=synthetic:shape=32x32x3,classes=10", "--batch=32"],
    "gpt": ["--model={root}/lab/bench/gpt.json", "--dataset=text:file=letters.txt,length=128", "--batch=4"],
    "mobilenet-v2": ["--model=mobilenet-v2.json", "--dataset=synthetic:shape=64x64x3,classes=10,limit=64",
                     "--batch=8"],
}
FILES = ["--save-weights=weights.safetensors", "--checkpoint-dir=checkpoints"]


def house_case(model, strategy, workers, replicas, way):
    where = "%dx%d" % (workers, replicas) if workers > 1 else "%d" % replicas
    name = "house/%s/%s/%s/%s" % (model, strategy, where, way)
    if HOUSE_WAYS[way] is None:
        return Case(SAME, name, HOUSE_STEPS, [model, "fashion-mnist", strategy, str(replicas), str(HOUSE_STEPS),
                                              "weights.safetensors"], "loop", workers)
    return Case(SAME, name, HOUSE_STEPS, [
        "--model=" + model, "--dataset=fashion-mnist", "--strategy=" + strategy, "--replicas=%d" % replicas, "--threads=1",
        "--batch=100", "--steps=%d" % HOUSE_STEPS, "--validation=off", *FILES, "--checkpoint-steps=%d" % (HOUSE_STEPS // 2),
        *HOUSE_WAYS[way]], "resume" if way == "resume" else "train", workers)


def house_cases():
    for model in ("cnn", "mlp"):
        for strategy in HOUSE_STRATEGIES:
            for workers, replicas in ((1, 1), (1, 2), (1, 3), (1, 4), (2, 2)):
                if strategy != "one-device" or replicas == 1 or workers > 1:
                    yield from (house_case(model, strategy, workers, replicas, way) for way in HOUSE_WAYS)
    for model, arguments in LARGE_MODELS.items():
        for strategy, workers, replicas in (("one-device", 1, 1), ("ring", 1, 2), ("central-storage", 1, 2), ("ring", 2, 2)):
            where = "%dx%d" % (workers, replicas) if workers > 1 else "%d" % replicas
            yield Case(SAME, "house/%s/%s/%s" % (model, strategy, where), LARGE_STEPS, [
                *arguments, "--strategy=" + strategy, "--replicas=%d" % replicas, "--threads=1", "--steps=%d" % LARGE_STEPS,
                "--validation=off", *FILES], "train", workers)


def write_inputs(arguments, folder):
    """The files of the run that are made here: letters for a model of language, and a model that is packed."""
    if any("letters.txt" in argument for argument in arguments):
        letters = [chr(ord("0") + i) for i in range(MOST_LETTERS - 1)] + ["\n"]
        drawn = random.Random(1)
        text = "".join(letters) + "".join(drawn.choice(letters) for _ in range(20000))
        pathlib.Path(folder, "letters.txt").write_text(text)
    if any("mobilenet-v2.json" in argument for argument in arguments):
        packed = ROOT / "tests" / "data" / "models" / "MobileNetV2.json.gz"
        pathlib.Path(folder, "mobilenet-v2.json").write_bytes(gzip.decompress(packed.read_bytes()))


def without_times(value):
    """What a checkpoint says of a training, without what differs from run to run: seconds, and the training's own name."""
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items()
                if "seconds" not in key and key not in ("training", "lockstep_xxh64")}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def file_hash(path):
    """Of a safetensors file: of the tensors, and of what it says about them and the training."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    head = json.loads(data[8:end])
    described = head.get("__metadata__", {}).get("lockstep_training")
    if described:
        head["__metadata__"]["lockstep_training"] = json.loads(described)
    return hashlib.sha256(json.dumps(without_times(head)).encode() + data[end:]).hexdigest()[:16]


def make_report(build, loop, wanted):
    """The report of a run, with a hash of each file that it has written. `loop`: loop_bits.c, compiled for the build."""
    with tempfile.TemporaryDirectory(prefix="compare-builds-") as folder:
        write_inputs(wanted.arguments, folder)
        arguments = [renamed(build, argument.format(root=ROOT)) for argument in wanted.arguments]
        launch = [program(build), "launch", "-n", str(wanted.workers), "--prefix=never", "--"] if wanted.workers > 1 else []
        if wanted.kind == "loop":
            report = json.loads(run([*launch, loop, *arguments], folder))
        else:
            command = [*(launch or [program(build)]), "train", "--quiet", "--device=cpu", *arguments]
            if wanted.kind == "resume":
                half = "--steps=%d" % (wanted.steps // 2)
                run([half if word.startswith("--steps=") else word for word in command], folder)
                command.append("--resume")
            run([*command, "--report=report.json"], folder)
            report = lockstep_side.read(os.path.join(folder, "report.json"))
        report["files"] = {path.relative_to(folder).as_posix(): file_hash(path)
                           for path in sorted(pathlib.Path(folder).rglob("*.safetensors"))}
        return report


def build_key(build):
    """Names what decides the bits of a run: program, library, plugins and models of the build, and the processor."""
    digest = hashlib.sha256()
    files = [build / "tools" / "lockstep", *sorted(build.glob("liblockstep.so")), *sorted((build / "plugins").rglob("*.so")),
             *sorted((build / "models").glob("*.json"))]
    for path in files:
        digest.update(path.relative_to(build).as_posix().encode() + b"\0" + path.read_bytes())
    with open("/proc/cpuinfo") as file:
        digest.update("".join(sorted({line for line in file if line.startswith(("model name", "flags"))})).encode())
    return digest.hexdigest()[:16]


class Reports:
    """The reports of one build. With a cache folder, a run that was made before by the same build is read from there."""

    def __init__(self, build, cache, loop=None):
        self.build, self.loop, self.made = build, loop, 0
        self.folder = pathlib.Path(cache) / build_key(build) if cache else None
        if self.folder:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "build").write_text("%s\n" % build.resolve())

    def get(self, wanted):
        path = self.folder and self.folder / (wanted.name.replace("/", "_").replace(" ", "-") + ".json")
        if path and path.exists():
            cached = json.loads(path.read_text())
            if cached["arguments"] == wanted.arguments:
                return cached["report"]
        report = make_report(self.build, self.loop, wanted)
        self.made += 1
        if path:
            partial = path.with_suffix(".partial")
            partial.write_text(json.dumps({"arguments": wanted.arguments, "report": report}))
            partial.replace(path)
        return report


def values_of(report, wanted):
    """[(name, value)] of all that must stay. A report that lacks losses or hashes proves nothing, and is Failed."""
    steps = wanted.steps
    losses, hashes = report.get("losses") or [], report.get("parameter_hashes") or report.get("examples") or []
    if len(losses) != steps:
        raise lockstep_side.Failed("the report has %d losses, expected %d" % (len(losses), steps))
    if not hashes or None in hashes or None in losses:
        raise lockstep_side.Failed("the report has no parameter_hashes, or a loss that is not finite")
    rows = [("losses[%d]" % i, loss) for i, loss in enumerate(losses)]
    for i, epoch in enumerate(report.get("epochs", [])):
        rows += [("epochs[%d].%s" % (i, key), epoch[key])
                 for key in ("steps", "examples", "loss", "accuracy", "val_loss", "val_accuracy") if key in epoch]
    rows += [("parameter_hashes[%d]" % i, text) for i, text in enumerate(report.get("parameter_hashes", []))]
    rows += [("examples of replica %d" % i, text) for i, text in enumerate(report.get("examples", []))]
    return rows + [("file " + name, text) for name, text in sorted(report.get("files", {}).items())]


def first_difference(old, new, wanted):
    """None, or what differs first. Numbers are compared as doubles, which hold every float32 of a report exactly."""
    old_rows, new_rows = values_of(old, wanted), values_of(new, wanted)
    for (old_name, old_value), (new_name, new_value) in zip(old_rows, new_rows):
        if old_name != new_name:
            return "the old build reports %s where the new one reports %s" % (old_name, new_name)
        if old_value != new_value:
            return "%s was %s, is %s" % (old_name, old_value, new_value)
    if len(old_rows) != len(new_rows):
        return "the old build reports %d values, the new one %d" % (len(old_rows), len(new_rows))
    return None


def compare_case(old, new, wanted):
    """("equal", ""), ("differs", what differs first), ("refused", why both refuse it) or ("failed", why there is nothing to
    compare)."""
    reports, refusals = [], []
    for side, name in ((old, "old"), (new, "new")):
        try:
            report = side.get(wanted)
            values_of(report, wanted)
            reports.append(report)
        except lockstep_side.Failed as failure:
            refusals.append((failure.code, str(failure), name))
    if len(refusals) == 2 and refusals[0][:2] == refusals[1][:2] and refusals[0][0] == REFUSED:
        return "refused", refusals[0][1]
    if refusals:
        return "failed", "the %s build: %s" % (refusals[0][2], refusals[0][1])
    difference = first_difference(*reports, wanted)
    return ("differs", difference) if difference else ("equal", "")


def compare_bits(options):
    """What the report says, and whether all is well: no run failed, and only those that may differ do."""
    cases = [c for c in (*all_cases(), *house_cases()) if options.only in c.name]
    if not cases:
        raise SystemExit("compare-builds: --only=%s: no run has that in its name, such as %s"
                         % (options.only, next(all_cases()).name))
    with tempfile.TemporaryDirectory(prefix="compare-builds-") as folder:
        loops = any(c.kind == "loop" for c in cases)
        old, new = (Reports(build, options.cache, compile_against(build, "loop_bits.c", folder) if loops else None)
                    for build in (options.old, options.new))
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            outcomes = list(zip(cases, pool.map(lambda c: compare_case(old, new, c), cases)))
    return tell_bits(outcomes, old, new)


def tell_bits(outcomes, old, new):
    for group in (SAME, MICROBATCHES):
        rows = [(c.name, *outcome) for c, outcome in outcomes if c.group == group]
        for name, verdict, what in rows:
            if verdict != "equal":
                print("%s: %s: %s" % (verdict, name, what))
        refused = sum(row[1] == "refused" for row in rows)
        if rows:
            print("%s: %d of %d runs equal%s" % (group, sum(row[1] == "equal" for row in rows), len(rows) - refused,
                                                 ", %d refused by both" % refused if refused else ""))
    print("runs made: %d with the old build, %d with the new one" % (old.made, new.made))
    wrong = any(verdict == "failed" or verdict == "differs" and c.group == SAME for c, (verdict, _) in outcomes)
    return {"runs": len(outcomes), "unequal": {c.name: outcome for c, outcome in outcomes if outcome[0] != "equal"}}, not wrong


# ---- Speed ----

TRAINING = {  # name -> arguments; the steps make about half a second
    "cnn, 2 replicas x 1 thread": ["--model=cnn", "--replicas=2", "--threads=1", "--replica-batch=64", "--steps=80"],
    "cnn, 1 replica x 2 threads": ["--model=cnn", "--replicas=1", "--threads=2", "--replica-batch=64", "--steps=160"],
    "mlp batch 32, 2 x 1": ["--model=mlp", "--replicas=2", "--threads=1", "--replica-batch=32", "--steps=1500"],
    "mlp batch 512, 2 x 1": ["--model=mlp", "--replicas=2", "--threads=1", "--replica-batch=512", "--steps=250"],
    "gpt, 2 replicas x 1 thread": [LARGE_MODELS["gpt"][0], "--dataset=text:file={folder}/letters.txt,length=128", "--replicas=2",
                                   "--threads=1", "--replica-batch=2", "--steps=8"],
}
FIT_GOAL, AUTO_GOAL = 1.1, 0.95
SLOWER = 0.985  # below this middle, and an interval wholly below 1, the new build is slower
ALL_REDUCE_SIZES, AUTO_SIZES = "1K,32K,1M,64M", "1K,64K,1M,16M"


def train_seconds(build, arguments, folder):
    strategy = "--strategy=" + ("ring" if "--replicas=2" in arguments else "one-device")
    places = [argument.format(root=ROOT, folder=folder) for argument in arguments]
    dataset = [] if any("--dataset=" in place for place in places) else ["--dataset=fashion-mnist"]
    return train(build, [*dataset, "--validation=off", strategy, *places])["step_seconds"]["median"]


def bench(build, names, sizes, seconds):
    """{(collective, bytes): seconds of a call}"""
    command = [program(build), "bench", *names, "--place=in", "--replicas=2", "--bytes=" + sizes, "--seconds=%g" % seconds]
    written = run_for_json(command, "--json=")
    if not written["passed"]:
        raise lockstep_side.Failed("bench: a result was wrong")
    return {(row["collective"], row["bytes"]): row["seconds"] for row in written["rows"]}


def fit_seconds(executable):
    return json.loads(run([executable, "cnn", "fashion-mnist", "2", "1", "40", "120"]).splitlines()[-1])


def quartiles(values):
    """(low quartile, median, high quartile)"""
    return tuple(statistics.quantiles(values, n=4, method="inclusive")) if len(values) > 1 else (values[0],) * 3


def size_text(size):
    return "%d MiB" % (size >> 20) if size >= 1 << 20 else "%d KiB" % (size >> 10)


def interval(values):
    """(low, high): 95 % of the median, from the order of the values alone (binomial); None: there are too few of them."""
    rank = int((len(values) - 1.96 * len(values) ** 0.5) / 2)
    ordered = sorted(values)
    return (ordered[rank - 1], ordered[-rank]) if rank >= 1 else None


def is_settled(sides, within):
    """Whether the interval of the ratio's median is narrower than plus or minus `within` percent."""
    between = interval(ratios(sides["old"], sides["new"]))
    return between is not None and between[1] - between[0] <= 2 * within / 100


def measure_round(number, measurements, times):
    """Each measurement with both builds, one directly after the other. `times`: name -> "old" or "new" -> [seconds].
    Gives the names of each measurement."""
    names = []
    for measure in measurements:
        for which in ("new", "old") if number % 2 else ("old", "new"):
            measured = measure(which)
            for name, seconds in measured.items():
                times.setdefault(name, {"old": [], "new": []})[which].append(seconds)
        names.append(list(measured))
    return names


def speed_measurements(builds, folder):
    """Functions of "old" or "new" that give {name: seconds}."""
    fits = {which: compile_against(build, "fit_steps.c", folder) for which, build in builds.items()}
    write_inputs(["letters.txt"], folder)
    yield from (lambda which, name=name, arguments=arguments: {name: train_seconds(builds[which], arguments, folder)}
                for name, arguments in TRAINING.items())
    yield from (lambda which, size=size: {"all-reduce, " + size_text(reduced): seconds
                                          for (_, reduced), seconds in bench(builds[which], ["ring"], size, 0.3).items()}
                for size in ALL_REDUCE_SIZES.split(","))
    yield lambda which: {"fit: " + kind: seconds for kind, seconds in fit_seconds(fits[which]).items()}


def auto_measurements(builds):
    yield lambda which: {("auto", size, name): seconds
                         for (name, size), seconds in bench(builds[which], [], AUTO_SIZES, 0.4).items()}


def spread(values):
    low, middle, high = quartiles(values)
    return "%.3f [%.3f - %.3f]" % (middle, low, high)


def unit(seconds):
    return "%.2f us" % (1e6 * seconds) if seconds < 1e-3 else "%.2f ms" % (1e3 * seconds)


def ratios(above, below):
    return [a / b for a, b in zip(above, below)]


def speed_verdict(between, middle, within):
    if between is None or between[1] - between[0] > 2 * within / 100:
        return "not settled"
    return "SLOWER" if between[1] < 1 and middle < SLOWER else "as fast"


def print_speed(times, within):
    rows = []
    print("%-28s %10s %10s  %-30s %6s" % ("median of the rounds", "old", "new", "old time / new time, 95 %", "rounds"))
    for name, sides in times.items():
        if isinstance(name, tuple) or name.startswith("fit: "):
            continue
        values = ratios(sides["old"], sides["new"])
        between, middle = interval(values), statistics.median(values)
        verdict = speed_verdict(between, middle, within)
        print("%-28s %10s %10s  %-30s %6d %s" % (
            name, unit(statistics.median(sides["old"])), unit(statistics.median(sides["new"])),
            "%.3f [%.3f - %.3f]" % (middle, *between) if between else "%.3f" % middle, len(values), verdict))
        rows.append({"name": name, "ratios": values, "interval": between, "verdict": verdict, **sides})
    for which in ("old", "new") if "fit: loop" in times else ():
        loop, long = times["fit: loop"][which], times["fit: long"][which]
        values = ratios(loop, long)
        met = statistics.median(values) <= FIT_GOAL
        print("%-28s %10s %10s  %-24s goal %.2f %s" % (
            "fit of one step, " + which, unit(statistics.median(loop)), unit(statistics.median(long)), spread(values),
            FIT_GOAL, "met" if met else "MISSED"))
        rows.append({"name": "fit of one step by a step of a long fit, " + which, "ratios": values, "goal": FIT_GOAL,
                     "met": met, "loop": loop, "long": long})
    if "fit: loop" in times:
        print("  (fit of one step: cnn, 2 replicas x 1 thread; a step in a loop, a step of a long fit, and their ratio)")
    return rows


def auto_row(which, size, times):
    """`times`: collective -> [seconds by round]. The best single one is that with the least median."""
    singles = {name: values for name, values in times.items() if name != "auto"}
    best = min(singles, key=lambda name: statistics.median(singles[name]))
    values = ratios(singles[best], times["auto"])
    low, middle, high = quartiles(values)
    verdict = "met" if middle >= AUTO_GOAL else "within the spread" if high >= 1 else "MISSED"
    print("auto, %-4s %8s %10s; %-18s %10s  %-24s goal %.2f %s" % (
        which, size_text(size), unit(statistics.median(times["auto"])), best, unit(statistics.median(singles[best])),
        spread(values), AUTO_GOAL, verdict))
    return {"build": which, "bytes": size, "best": best, "ratios": values, "quartiles": [low, middle, high],
            "goal": AUTO_GOAL, "verdict": verdict, "seconds": times}


def print_auto(times):
    rows = []
    for which in ("old", "new"):
        for size in sorted({name[1] for name in times if isinstance(name, tuple)}):
            here = {name[2]: sides[which] for name, sides in times.items()
                    if isinstance(name, tuple) and name[1] == size and sides[which]}
            rows.append(auto_row(which, size, here))
    return rows


def compare_speed(options):
    builds, times, busy, stolen = {"old": options.old, "new": options.new}, {}, 0, 0
    with tempfile.TemporaryDirectory(prefix="compare-builds-") as folder:
        measurements = list(speed_measurements(builds, folder)) if options.speed else []
        measurements += auto_measurements(builds) if options.auto else []
        for number in range(options.rounds):
            busy += not machine.wait_until_idle(options.wait)
            theft = machine.Theft()
            names = measure_round(number, measurements, times)
            stolen += theft.spoils()
            measurements = [measure for measure, of in zip(measurements, names)
                            if not all(is_settled(times[name], options.within) for name in of)]
            print("round %d of %d done, %d measurements go on" % (number + 1, options.rounds, len(measurements)), file=sys.stderr,
                  flush=True)
            if not measurements:
                break
    print("%d rounds; other programs ran before %d of them, the host of this machine took processors away in %d"
          % (number + 1, busy, stolen))
    result = {"rounds": number + 1, "busy_rounds": busy, "stolen_rounds": stolen}
    if options.speed:
        result["speed"] = print_speed(times, options.within)
    if options.auto:
        result["auto"] = print_auto(times)
    return result


# ---- The command ----

def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="compare-builds", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", metavar="OLD", type=pathlib.Path, help="build folder of what must stay as it was")
    parser.add_argument("new", metavar="NEW", type=pathlib.Path, help="build folder of what was changed")
    parser.add_argument("--bits", action="store_true", help="compare losses and parameter hashes")
    parser.add_argument("--speed", action="store_true", help="compare training, all-reduce and the cost of ls_fit")
    parser.add_argument("--auto", action="store_true", help="compare `auto` with the best single collective")
    parser.add_argument("--only", default="", metavar="TEXT",
                        help="--bits: only the runs with TEXT in their name, such as mlp-dropout/tree or /3/adam")
    parser.add_argument("--cache", metavar="DIR",
                        help="--bits: keep the reports there, for each build its own; runs that are there are not made again")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="--bits: runs at the same time [2]")
    parser.add_argument("--rounds", type=int, default=20, metavar="N",
                        help="--speed and --auto: rounds, of about 15 s and 5 s [20]")
    parser.add_argument("--within", type=float, default=1.5, metavar="PERCENT",
                        help="--speed: a measurement ends before the last round when the 95 %% interval of its ratio's median is narrower "
                             "than plus or minus this [1.5]")
    parser.add_argument("--wait", type=float, default=20, metavar="SECONDS",
                        help="before each round, wait up to so long for other programs to end [20]")
    parser.add_argument("--report", metavar="FILE", help="write all that was measured there, as JSON")
    options = parser.parse_args(arguments)
    options.bits = options.bits or not (options.speed or options.auto)
    for name in ("jobs", "rounds"):
        if getattr(options, name) < 1:
            parser.error("--%s must be at least 1" % name)
    for which in ("old", "new"):
        build = getattr(options, which).resolve()
        setattr(options, which, build)
        if not os.access(program(build), os.X_OK):
            parser.error("%s has no program tools/lockstep: give a build folder, and run ninja in it" % build)
    return options


def main(arguments=None):
    options = parse_arguments(arguments)
    result, same = {"old": str(options.old), "new": str(options.new)}, True
    try:
        if options.bits:
            result["bits"], same = compare_bits(options)
        if options.speed or options.auto:
            result.update(compare_speed(options))
    except lockstep_side.Failed as failure:
        raise SystemExit("compare-builds: %s" % failure) from None
    if options.report:
        with open(options.report, "w") as file:
            json.dump(result, file, indent=1)
            file.write("\n")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
