#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares two build folders of Lockstep, for its own developers: has a restructuring changed nothing?

  --bits   trains the same short runs with both builds and compares every loss, accuracy and parameter hash, to the bit.
           One thread a replica, so that the order of additions does not depend on the machine. Prints one line for
           each run that differs, with the first value that differs.
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
  ./tools/compare-builds ../old/build build-release --speed --auto --rounds=20 --report=speed.json
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections import namedtuple

import lockstep_side
import machine

HERE = pathlib.Path(__file__).resolve().parent
PATIENCE = 300  # seconds of one program
RENAMED = {"--slices": "--microbatches"}  # the name in this file -> the name that a later build may have


def program(build):
    return str(build / "tools" / "lockstep")


def run(command):
    """What the command wrote on stdout. Failed when it does not end with 0."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise lockstep_side.Failed("no end after %d s: %s" % (PATIENCE, " ".join(command))) from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        raise lockstep_side.Failed("exit code %d: %s" % (done.returncode, lines[-1]))
    return done.stdout


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


def renamed(build, argument):
    """The argument under the name that this build knows."""
    name, _, value = argument.partition("=")
    if name in RENAMED and name + "=" not in run([program(build), "train", "--help"]):
        return RENAMED[name] + "=" + value
    return argument


# ---- Bits ----

Case = namedtuple("Case", "group name steps arguments")
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


def build_key(build):
    """Names what decides the bits of a run: program, plugins and models of the build, and the processor."""
    digest = hashlib.sha256()
    files = [build / "tools" / "lockstep", *sorted((build / "plugins").rglob("*.so")),
             *sorted((build / "models").glob("*.json"))]
    for path in files:
        digest.update(path.relative_to(build).as_posix().encode() + b"\0" + path.read_bytes())
    with open("/proc/cpuinfo") as file:
        digest.update("".join(sorted({line for line in file if line.startswith(("model name", "flags"))})).encode())
    return digest.hexdigest()[:16]


class Reports:
    """The reports of one build. With a cache folder, a run that was made before by the same build is read from there."""

    def __init__(self, build, cache):
        self.build, self.made = build, 0
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
        report = train(self.build, wanted.arguments)
        self.made += 1
        if path:
            partial = path.with_suffix(".partial")
            partial.write_text(json.dumps({"arguments": wanted.arguments, "report": report}))
            partial.replace(path)
        return report


def values_of(report, steps):
    """[(name, value)] of all that must stay. A report that lacks losses or hashes proves nothing, and is Failed."""
    losses, hashes = report.get("losses") or [], report.get("parameter_hashes") or []
    if len(losses) != steps:
        raise lockstep_side.Failed("the report has %d losses, expected %d" % (len(losses), steps))
    if not hashes or None in hashes or None in losses:
        raise lockstep_side.Failed("the report has no parameter_hashes, or a loss that is not finite")
    rows = [("losses[%d]" % i, loss) for i, loss in enumerate(losses)]
    for i, epoch in enumerate(report["epochs"]):
        rows += [("epochs[%d].%s" % (i, key), epoch[key])
                 for key in ("steps", "examples", "loss", "accuracy", "val_loss", "val_accuracy") if key in epoch]
    return rows + [("parameter_hashes[%d]" % i, text) for i, text in enumerate(hashes)]


def first_difference(old, new, steps):
    """None, or what differs first. Numbers are compared as doubles, which hold every float32 of a report exactly."""
    old_rows, new_rows = values_of(old, steps), values_of(new, steps)
    for (old_name, old_value), (new_name, new_value) in zip(old_rows, new_rows):
        if old_name != new_name:
            return "the old build reports %s where the new one reports %s" % (old_name, new_name)
        if old_value != new_value:
            return "%s was %s, is %s" % (old_name, old_value, new_value)
    if len(old_rows) != len(new_rows):
        return "the old build reports %d values, the new one %d" % (len(old_rows), len(new_rows))
    return None


def compare_case(old, new, wanted):
    """("equal", ""), ("differs", what differs first) or ("failed", why there is nothing to compare)."""
    reports = []
    for side, name in ((old, "old"), (new, "new")):
        try:
            report = side.get(wanted)
            values_of(report, wanted.steps)
        except lockstep_side.Failed as failure:
            return "failed", "the %s build: %s" % (name, failure)
        reports.append(report)
    difference = first_difference(*reports, wanted.steps)
    return ("differs", difference) if difference else ("equal", "")


def compare_bits(options):
    """What the report says, and whether all is well: no run failed, and only those that may differ do."""
    cases = [c for c in all_cases() if options.only in c.name]
    if not cases:
        raise SystemExit("compare-builds: --only=%s: no run has that in its name, such as %s"
                         % (options.only, next(all_cases()).name))
    old, new = Reports(options.old, options.cache), Reports(options.new, options.cache)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        outcomes = list(zip(cases, pool.map(lambda c: compare_case(old, new, c), cases)))
    for group in (SAME, MICROBATCHES):
        rows = [(c.name, *outcome) for c, outcome in outcomes if c.group == group]
        for name, verdict, what in rows:
            if verdict != "equal":
                print("%s: %s: %s" % (verdict, name, what))
        if rows:
            print("%s: %d of %d runs equal" % (group, sum(row[1] == "equal" for row in rows), len(rows)))
    print("runs made: %d with the old build, %d with the new one" % (old.made, new.made))
    wrong = any(verdict == "failed" or verdict == "differs" and c.group == SAME for c, (verdict, _) in outcomes)
    return {"runs": len(cases), "unequal": {c.name: outcome for c, outcome in outcomes if outcome[0] != "equal"}}, not wrong


# ---- Speed ----

TRAINING = {  # name -> arguments; the steps make about half a second
    "cnn, 2 replicas x 1 thread": ["--model=cnn", "--replicas=2", "--threads=1", "--replica-batch=64", "--steps=80"],
    "cnn, 1 replica x 2 threads": ["--model=cnn", "--replicas=1", "--threads=2", "--replica-batch=64", "--steps=160"],
    "mlp batch 32, 2 x 1": ["--model=mlp", "--replicas=2", "--threads=1", "--replica-batch=32", "--steps=1500"],
    "mlp batch 512, 2 x 1": ["--model=mlp", "--replicas=2", "--threads=1", "--replica-batch=512", "--steps=250"],
}
TRAINING_GOAL, ALL_REDUCE_GOAL, FIT_GOAL, AUTO_GOAL = 0.98, 0.97, 1.1, 0.95
ALL_REDUCE_SIZES, AUTO_SIZES = "1K,32K,1M,64M", "1K,64K,1M,16M"


def train_seconds(build, arguments):
    strategy = "--strategy=" + ("ring" if "--replicas=2" in arguments else "one-device")
    return train(build, ["--dataset=fashion-mnist", "--validation=off", strategy, *arguments])["step_seconds"]["median"]


def bench(build, names, sizes, seconds):
    """{(collective, bytes): seconds of a call}"""
    command = [program(build), "bench", *names, "--place=in", "--replicas=2", "--bytes=" + sizes, "--seconds=%g" % seconds]
    written = run_for_json(command, "--json=")
    if not written["passed"]:
        raise lockstep_side.Failed("bench: a result was wrong")
    return {(row["collective"], row["bytes"]): row["seconds"] for row in written["rows"]}


def compile_fit_steps(build, folder):
    """tools/development/fit_steps.c, compiled against the library and the header of a build."""
    with open(build / "meson-info" / "meson-info.json") as file:
        source = json.load(file)["directories"]["source"]
    target = os.path.join(folder, "fit-steps-" + build_key(build))
    run(["cc", "-O2", "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-I" + source, str(HERE / "fit_steps.c"), "-o", target,
         str(build / "liblockstep.so"), "-Wl,-rpath," + str(build)])
    return target


def fit_seconds(executable):
    return json.loads(run([executable, "cnn", "fashion-mnist", "2", "1", "40", "120"]).splitlines()[-1])


def quartiles(values):
    """(low quartile, median, high quartile)"""
    return tuple(statistics.quantiles(values, n=4, method="inclusive")) if len(values) > 1 else (values[0],) * 3


def size_text(size):
    return "%d MiB" % (size >> 20) if size >= 1 << 20 else "%d KiB" % (size >> 10)


def measure_round(number, measurements, times):
    """Each measurement with both builds, one directly after the other. `times`: name -> "old" or "new" -> [seconds]."""
    for measure in measurements:
        for which in ("new", "old") if number % 2 else ("old", "new"):
            for name, seconds in measure(which).items():
                times.setdefault(name, {"old": [], "new": []})[which].append(seconds)


def speed_measurements(builds, folder):
    """Functions of "old" or "new" that give {name: seconds}."""
    fits = {which: compile_fit_steps(build, folder) for which, build in builds.items()}
    yield from (lambda which, name=name, arguments=arguments: {name: train_seconds(builds[which], arguments)}
                for name, arguments in TRAINING.items())
    yield lambda which: {"all-reduce, " + size_text(size): seconds
                         for (_, size), seconds in bench(builds[which], ["ring"], ALL_REDUCE_SIZES, 0.3).items()}
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


def print_speed(times):
    rows = []
    print("%-28s %10s %10s  %-24s" % ("median of the rounds", "old", "new", "old time / new time"))
    for name, sides in times.items():
        if isinstance(name, tuple) or name.startswith("fit: "):
            continue
        goal = ALL_REDUCE_GOAL if name.startswith("all-reduce") else TRAINING_GOAL
        values = ratios(sides["old"], sides["new"])
        met = statistics.median(values) >= goal
        print("%-28s %10s %10s  %-24s goal %.2f %s" % (
            name, unit(statistics.median(sides["old"])), unit(statistics.median(sides["new"])), spread(values), goal,
            "met" if met else "MISSED"))
        rows.append({"name": name, "ratios": values, "goal": goal, "met": met, **sides})
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
            measure_round(number, measurements, times)
            stolen += theft.spoils()
            print("round %d of %d done" % (number + 1, options.rounds), file=sys.stderr, flush=True)
    print("%d rounds; other programs ran before %d of them, the host of this machine took processors away in %d"
          % (options.rounds, busy, stolen))
    result = {"rounds": options.rounds, "busy_rounds": busy, "stolen_rounds": stolen}
    if options.speed:
        result["speed"] = print_speed(times)
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
