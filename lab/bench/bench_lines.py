# SPDX-License-Identifier: Apache-2.0
"""The lines of tools/bench-train --all: training of real models in float32 and in mixed_bfloat16 beside the fastest peer
in each, two replicas of one thread beside one of two, memory, and the loss of the GPT.

A line of a model first tries every set-up of every peer once, and then measures Lockstep and each peer's fastest in
turn, in both precisions. Ratios are taken within a round; the median with the smallest and largest is printed.
"""
import gzip
import json
import os
import random
import re
import statistics
import subprocess
import tempfile
import types

import line_peers
import lockstep_side
import machine
import roofline
from line_peers import LinePeer, PeerFailed

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
APPLICATIONS = os.path.join(ROOT, "tests", "data", "models")

PRECISIONS = ("float32", "mixed_bfloat16")
# `float32`: how many times as fast as the fastest peer, both in float32; `halves`: how many times as fast as float32 bfloat16 is,
# where the processor has units for matrices of it (AMX). `like`: what is not said is as there, the peers' set-ups, too.
MODELS = {
    "mlp1024": {"title": "MLP, 3 hidden layers of 1,024, batch 512", "file": os.path.join(HERE, "mlp1024.json"),
                "batch": 512, "shape": "784", "halves": 2.5},
    "resnet": {"title": "ResNet of the tutorial, 32 x 32 pixels, batch 64", "file": os.path.join(ROOT, "models", "resnet.json"),
               "batch": 64, "shape": "32x32x3", "float32": 1.3},
    "resnet50": {"title": "ResNet50, 64 x 64 pixels, batch 16", "file": os.path.join(APPLICATIONS, "ResNet50.json.gz"),
                 "batch": 16, "shape": "64x64x3", "float32": 1.5, "halves": 1.5},
    "mobilenet_v2": {"title": "MobileNetV2, 64 x 64 pixels, batch 16",
                     "file": os.path.join(APPLICATIONS, "MobileNetV2.json.gz"), "batch": 16, "shape": "64x64x3", "float32": 1.8},
    "gpt": {"title": "GPT, 4 layers, width 256, context 128, batch 16, tinyshakespeare",
            "file": os.path.join(HERE, "gpt.json"), "batch": 16, "length": 128, "float32": 1.2, "halves": 2.0},
    "gpt768": {"title": "GPT, 4 layers, width 768, 12 heads, context 128, batch 8, tinyshakespeare",
               "file": os.path.join(HERE, "gpt.json"), "width": 768, "batch": 8, "length": 128, "halves": 2.5},
    "gpt-busy": {"title": "GPT of width 256 beside two busy loops", "like": "gpt", "busy": 2, "float32": 1.0, "any": 1.0, "halves": None},
}
ANY_GOAL = 1.2  # of those with `halves` beside the fastest peer in any precision
HALVES_GOAL = {"amx_bf16": None, "avx512_bf16": 1.0, None: 0.7}  # by what the processor has for bfloat16; None: the line's
REPLICAS = {"resnet50-replicas": "resnet50", "gpt-replicas": "gpt"}
TWO, HALF, ONE, AGAIN = "lockstep 2 x 1", "lockstep 2 x 1, half", "lockstep 1 x 2", "lockstep 1 x 2 again"
REPLICAS_TARGET, MEMORY_TARGET, LOSS_TARGET = 0.95, 0.8, 1.9
MEMORY, LOSS = "resnet50-memory", "gpt-loss"
ALL = (*MODELS, *REPLICAS, MEMORY)  # gpt-loss takes minutes, and is no speed
NAMES = (*ALL, LOSS)
EXAMPLES = 160  # at least, where they are random
TEXT_STRIDE = 6900  # gives some 160 windows an epoch
FAR_BEHIND = 1.5  # a peer that is so much slower than the fastest is not measured further
STUCK = 10.0  # a set-up that is so much slower than the fastest is started once more
COLLAPSED = 3.0  # a window that is so much slower than the others of its side is discarded
LOSS_COMMAND = ("--replica-batch=16", "--steps=2000", "--optimizer=adamw:learning_rate=0.001,beta_2=0.99,weight_decay=0.1",
                "--learning-rate-schedule=cosine_decay:initial_learning_rate=0,decay_steps=1900,alpha=0.1,"
                "warmup_target=0.001,warmup_steps=100")


def summary(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "values": values}


def gpt_of_width(text, width):
    """gpt.json with another width, in heads of 64."""
    numbers = {"256": width, "1024": 4 * width, '"num_heads": 4': '"num_heads": %d' % (width // 64)}
    return re.sub(r'\b(256|1024)\b|"num_heads": 4\b', lambda found: str(numbers[found.group()]), text)


def random_letters(count):
    """A text of so many, with each of gpt.json's 65 in it."""
    letters = [chr(ord("0") + i) for i in range(64)] + ["\n"]
    return "".join(letters) + "".join(random.Random(0).choices(letters, k=count - len(letters)))


class Bench:
    """What the lines have in common: options, a folder of the models' files, what is printed meanwhile."""

    def __init__(self, options, progress, folder):
        self.options, self.progress, self.folder = options, progress, folder
        self.lines = {name: self.line(name) for name in MODELS}
        self.set_ups = dict(options.known_set_ups)
        self.rates = None

    def line(self, name):
        line = {"like": name, **MODELS.get(MODELS[name].get("like"), {}), **MODELS[name]}
        line["examples"] = max(EXAMPLES, 10 * line["batch"])
        line["file"] = self.options.line_model or self.file(name, line)
        return line

    def file(self, name, line):
        """The model's JSON; made in the folder where it is packed, or of another width than that of the file."""
        if not line["file"].endswith(".gz") and "width" not in line:
            return line["file"]
        with (gzip.open if line["file"].endswith(".gz") else open)(line["file"], "rt") as source:
            text = source.read()
        made = os.path.join(self.folder, name + ".json")
        with open(made, "w") as target:
            target.write(gpt_of_width(text, line["width"]) if "width" in line else text)
        return made

    def dataset(self, line):
        if "length" in line:
            return "text:file=%s,length=%d,stride=%d" % (self.options.text, line["length"], TEXT_STRIDE)
        return "synthetic:shape=%s,classes=10,examples=%d" % (line["shape"], line["examples"])

    def lockstep(self, line, replicas=1, threads=None, replica_batch=None, seconds=None, precision="float32"):
        about = types.SimpleNamespace(model=line["file"], dataset=self.dataset(line), strategy=self.options.strategy,
                                      optimizer="adam:learning_rate=0.001", replica_batch=replica_batch or line["batch"])
        return lockstep_side.Lockstep(self.options.lockstep, about, replicas, threads or self.options.threads,
                                      seconds or self.options.seconds, more=["--precision=" + precision])

    def roofline(self, line, precision):
        """The least time of a step, {"seconds"}, by what this machine gives (machine_rates.c), or {"not_known": why}."""
        program = os.path.join(os.path.dirname(self.options.lockstep), "machine-rates")
        try:
            if self.rates is None:
                self.wait()
                milliseconds = max(1, min(150, int(50 * self.options.seconds)))
                said = subprocess.run([program, str(self.options.threads), str(milliseconds)], stdout=subprocess.PIPE, text=True, check=True).stdout
                self.rates = json.loads(said)
            with open(line["file"]) as file:
                kernels = roofline.kernels(json.load(file), precision)
            if not self.rates[precision]:
                raise ValueError("oneDNN has no kernel for products of this type on this processor")
            peak = self.rates[precision]["gflops"] / 1e3
        except (OSError, subprocess.CalledProcessError, ValueError) as error:
            return {"not_known": str(error)}
        return {"seconds": roofline.timed(kernels, line["batch"], self.rates["copy_gb_s"], peak)[1]}

    def wait(self):
        return machine.wait_until_idle(self.options.idle)


class Rounds:
    """Sides in turn, every other round in the opposite order; seconds of a step."""

    def __init__(self, bench, sides, wait=True):
        self.bench, self.sides, self.wait, self.disturbed, self.stolen = bench, sides, wait, 0, 0
        self.seconds = {side: [] for side in sides}
        self.notes = []

    def run(self):
        for number in range(self.bench.options.rounds):
            theft = machine.Theft()
            for side in list(self.sides)[::1 if number % 2 == 0 else -1]:
                self.disturbed += self.wait and not self.bench.wait()
                try:
                    self.seconds[side].append(self.sides[side](number + 1))
                except PeerFailed as error:
                    self.seconds[side].append(None)
                    self.notes.append("%s: round %d has no figure: %s" % (side, number + 1, error))
            self.stolen += theft.spoils()
            self.bench.progress("  round %d: %s ms a step" % (number + 1, ", ".join(
                "%s %s" % (side, "-" if values[-1] is None else "%.1f" % (1e3 * values[-1]))
                for side, values in self.seconds.items())))
        self.discard()

    def discard(self):
        """Rounds of a peer that collapsed, said by number; Lockstep's own always count."""
        for side, values in self.seconds.items():
            measured = [value for value in values if value]
            if side.startswith("lockstep") or not measured:
                continue
            usual = statistics.median(measured)
            for i, value in enumerate(values):
                if value and value > COLLAPSED * usual:
                    values[i] = None
                    self.notes.append("%s: round %d discarded: collapsed to %.0f ms a step" % (side, i + 1, 1e3 * value))

    def figures(self):
        return {side: summary([value for value in values if value]) for side, values in self.seconds.items() if any(values)}

    def ratio(self, above, below):
        """How many times faster `above` is: by round, where both have a figure."""
        ratios = [b / a for a, b in zip(self.seconds[above], self.seconds[below]) if a and b]
        return summary(ratios) if ratios else None

    def about(self):
        return {"rounds": self.bench.options.rounds, "disturbed_windows": self.disturbed, "stolen_rounds": self.stolen,
                "notes": self.notes}


# ---- A model beside its peers ----

class Trial:
    """The set-ups of one peer, each measured once; the fastest stay."""

    def __init__(self, bench, line, expected):
        self.bench, self.line, self.expected, self.tried, self.notes = bench, line, expected, [], []

    def start(self, setting):
        """A running peer that trains as many parameters as Lockstep does."""
        peer = LinePeer(setting, self.bench.options.peer_deadline)
        if self.expected is not None and peer.about["parameters"] != self.expected:
            peer.close()
            raise PeerFailed("trains %d parameters, Lockstep %d" % (peer.about["parameters"], self.expected))
        return peer

    def once(self, setting):
        """Its seconds a step; None, and a note, where it does not run."""
        peer = None
        try:
            peer = self.start(setting)
            self.bench.wait()
            seconds = peer.run(self.bench.options.trial_seconds)
        except PeerFailed as error:
            self.notes.append("%s (%s) left out: %s" % (setting["peer"], setting["words"], error))
            self.bench.progress("  " + self.notes[-1])
            return None
        finally:
            if peer:
                peer.close()
        self.bench.progress("  trying %s: %7.1f ms a step  %s" % (setting["peer"], 1e3 * seconds, setting["words"]))
        return seconds

    def all(self, settings):
        measured = [(self.once(setting), setting) for setting in settings]
        fastest = min([seconds for seconds, _ in measured if seconds] + [seconds for seconds, _ in self.tried], default=None)
        for seconds, setting in measured:
            if seconds and seconds > STUCK * fastest:  # some processes are slow for all of their life
                seconds = min(seconds, self.once(setting) or seconds)
            if seconds:
                self.tried.append((seconds, setting))

    def best(self, peer):
        return min(((s, x) for s, x in self.tried if x["peer"] == peer), key=lambda pair: pair[0], default=(None, None))

    def run(self, peer, python, precision):
        kind = line_peers.KINDS[peer](peer, python, self.line, self.bench.options, precision)
        for stage in kind.stages()[:1 if self.bench.options.quick else None]:
            self.all(stage(self.best(peer)[1]))
            if not self.best(peer)[1]:
                return


def try_peers(bench, line, expected, precision):
    """{peer: setting} of those worth the rounds, what was tried, and notes."""
    trial = Trial(bench, line, expected)
    for peer in bench.options.peers:
        try:
            trial.run(peer, line_peers.python_of(peer, bench.options, bench.progress), precision)
        except PeerFailed as error:
            trial.notes.append("%s left out: %s" % (peer, error))
            bench.progress("  " + trial.notes[-1])
    best = {peer: trial.best(peer) for peer in bench.options.peers}
    fastest = min((seconds for seconds, _ in best.values() if seconds), default=None)
    kept = {}
    for peer, (seconds, setting) in best.items():
        if seconds and seconds <= FAR_BEHIND * fastest:
            kept[peer] = setting
        elif seconds:
            trial.notes.append("%s %s (%s) tried only: %.0f ms a step where the fastest peer takes %.0f" % (
                peer, precision, setting["words"], 1e3 * seconds, 1e3 * fastest))
    return kept, [{"peer": x["peer"], "precision": precision, "set_up": x["words"], "seconds": s} for s, x in trial.tried], trial.notes


def read_set_ups(path):
    """{model: [kept by precision, what was tried, notes]} of an earlier run's --json."""
    rows = lockstep_side.read(path)["rows"] if path else []
    return {row["like"]: (row["kept"], row["tried"], []) for row in rows if row["kind"] == "speed"}


def set_ups(bench, line):
    """The fastest set-ups of the peers for this model, {precision: {peer: setting}}, what was tried, and notes; tried once."""
    known = bench.set_ups.get(line["like"])
    if not known or any(precision not in known[0] for precision in bench.options.precisions):
        expected = trained_parameters(bench.options.lockstep, line["file"])
        found = {precision: try_peers(bench, line, expected, precision) for precision in bench.options.precisions}
        known = ({precision: kept for precision, (kept, _, _) in found.items()}, *(
            [row for three in found.values() for row in three[i]] for i in (1, 2)))
        bench.set_ups[line["like"]] = known
    return known


def trained_parameters(program, model):
    done = subprocess.run([program, "summary", "--model=" + model], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode:
        raise lockstep_side.Failed("exit code %d: %s" % (
            done.returncode, lockstep_side.what_was_wrong(done.stderr.strip().splitlines())), done.returncode)
    return int(re.search("^Trainable params: ([0-9,]+)", done.stdout, re.MULTILINE).group(1).replace(",", ""))


def model_line(bench, name):
    line, options = bench.lines[name], bench.options
    kept, tried, notes = set_ups(bench, line)
    row = {"line": name, "like": line["like"], "title": line["title"], "kind": "speed", "tried": tried, "kept": kept,
           "threads": options.threads, "peers": {},
           "roofline": {precision: bench.roofline(line, precision) for precision in options.precisions}, "rates": bench.rates}
    notes, sides, running = list(notes), {}, []
    with machine.busy(line.get("busy", 0)):
        for precision in options.precisions:
            own = bench.lockstep(line, precision=precision)
            row["lockstep"] = own.report["lockstep"]
            sides["lockstep " + precision] = lambda seed, own=own: line["batch"] / own.run(seed)
        try:
            for precision, peer in ((precision, peer) for precision in options.precisions for peer in kept[precision]):
                side, setting = "%s %s" % (peer, precision), kept[precision][peer]
                try:
                    running.append(LinePeer(setting, options.peer_deadline))
                    sides[side] = lambda _seed, peer=running[-1]: peer.run(options.seconds)
                    row["peers"][side] = {"peer": peer, "version": running[-1].about["version"], "set_up": setting["words"]}
                except PeerFailed as error:
                    notes.append("%s left out: %s" % (side, error))
            rounds = Rounds(bench, sides, wait=not line.get("busy"))
            rounds.run()
        finally:
            for peer in running:
                peer.close()
    row["seconds"] = rounds.figures()
    for precision, least in row["roofline"].items():
        if "seconds" in least:
            least["share"] = least["seconds"] / row["seconds"]["lockstep " + precision]["median"]
    row.update(rounds.about(), comparisons=comparisons(line, rounds), ratios={
        side: rounds.ratio("lockstep " + side.split()[1], side) for side in row["peers"]})
    row["notes"] = notes + row["notes"]
    return row


def comparisons(line, rounds):
    """{what: goal, ratio, and of which sides}: mixed_bfloat16 by float32; Lockstep by the fastest peer, both in float32, and
    both in whatever precision is their fastest."""
    figures = rounds.figures()
    unit = machine.bfloat16_unit()
    halves, single = ("lockstep " + precision for precision in reversed(PRECISIONS))

    def fastest(sides):
        return min((side for side in figures if side in sides), key=lambda side: figures[side]["median"], default=None)

    def compared(above, below, goal):
        ratio = rounds.ratio(above, below) if above and below else None
        return {"above": above, "below": below, "goal": goal, "ratio": ratio} if ratio else None

    own = [side for side in figures if side.startswith("lockstep")]
    peers = [side for side in figures if side not in own]
    has_goal = line.get("halves")
    found = {"halves": compared(*(side if side in own else None for side in (halves, single)),
                                has_goal and (HALVES_GOAL[unit] or line["halves"])),
             "float32": compared(fastest([single]), fastest([side for side in peers if side.endswith(" float32")]), line.get("float32")),
             "any": compared(fastest(own), fastest(peers), line.get("any", ANY_GOAL if has_goal and unit == "amx_bf16" else line.get("float32")))}
    return {what: compared for what, compared in found.items() if compared}


# ---- Two replicas, memory, loss ----

def replicas_line(bench, name):
    """Two replicas of one thread by one of two: each with the batch of the one, and with half of it. And the one by
    itself: the noise of the machine."""
    line = bench.lines[REPLICAS[name]]
    batch = line["batch"]
    one, two, half = bench.lockstep(line, 1, 2), bench.lockstep(line, 2, 1), bench.lockstep(line, 2, 1, batch // 2)
    rounds = Rounds(bench, {TWO: lambda seed: batch / two.run(seed), HALF: lambda seed: batch / half.run(seed),
                            ONE: lambda seed: batch / one.run(seed), AGAIN: lambda seed: batch / one.run(seed)})
    rounds.run()
    return {"line": name, "title": "%s for each replica: two replicas of one thread by one of two" % line["title"],
            "kind": "replicas", "target": REPLICAS_TARGET, "batch": batch, "seconds": rounds.figures(),
            "ratio": rounds.ratio(TWO, ONE), "half": rounds.ratio(HALF, ONE), "noise": rounds.ratio(AGAIN, ONE),
            "lockstep": one.report["lockstep"], "strategy": bench.options.strategy, **rounds.about()}


def peak_of(command):
    """Largest resident memory of a process, bytes; None where it fails."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_maxrss * 1024 if process.returncode == 0 else None


def memory_line(bench):
    """Lockstep's whole process beside what PyTorch takes above `import torch`: the least of its set-ups."""
    line = bench.lines["resnet50"]
    own = bench.lockstep(line, seconds=0.01)
    own.epochs = 1
    with tempfile.TemporaryDirectory() as folder:
        peak = peak_of(own.command(1, os.path.join(folder, "report.json")))
    if peak is None:
        raise lockstep_side.Failed("the run for its memory failed")
    tried, notes, versions = [], [], {}
    for peer in bench.options.peers:
        if line_peers.KINDS[peer] is not line_peers.Torch:
            continue
        try:
            kind = line_peers.Torch(peer, line_peers.python_of(peer, bench.options, bench.progress), line, bench.options)
            environment = peers_environment(peer)
            for layout in kind.layouts():
                setting = kind.setting("eager", layout, "glibc", **environment)
                running = LinePeer(setting, bench.options.peer_deadline)
                running.run(bench.options.trial_seconds)
                memory = running.ask(do="memory")
                versions[peer] = {"version": running.about["version"]}
                running.close()
                tried.append({"peer": peer, "set_up": setting["words"], "bytes": memory["peak"] - memory["imported"], **memory})
                bench.progress("  %s, %s: %.0f MB above the import" % (peer, setting["words"], tried[-1]["bytes"] / 1e6))
        except PeerFailed as error:
            notes.append("%s left out: %s" % (peer, error))
    least = min(tried, key=lambda row: row["bytes"], default=None)
    ratio = peak / least["bytes"] if least else None
    return {"line": MEMORY, "title": "Memory: ResNet50, 64 x 64 pixels, batch 16, Adam", "kind": "memory", "peak": peak,
            "target": MEMORY_TARGET, "tried": tried, "least": least, "ratio": summary([ratio]) if ratio else None,
            "lockstep": own.report["lockstep"], "notes": notes, "peers": versions}


def peers_environment(peer):
    return line_peers.peers.base_environment(line_peers.peers.CORE_TYPES[0]) if peer == "debian" else {}


def loss_line(bench):
    line = bench.lines["gpt"]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "report.json")
        command = [bench.options.lockstep, "train", "--model=" + line["file"],
                   "--dataset=text:file=%s,length=%d,stride=16,validation_split=0.1" % (bench.options.text, line["length"]),
                   "--replicas=1", "--threads=%d" % bench.options.threads, "--quiet", "--report=" + path, *LOSS_COMMAND]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise lockstep_side.Failed("exit code %d: %s" % (
                done.returncode, lockstep_side.what_was_wrong(done.stderr.strip().splitlines())))
        report = lockstep_side.read(path)
    epoch = report["epochs"][-1]
    return {"line": LOSS, "title": "GPT on tinyshakespeare after 2,000 steps: loss on the last tenth of the text, not trained on",
            "kind": "loss", "target": LOSS_TARGET, "loss": epoch["val_loss"], "training_loss": epoch["loss"],
            "steps": report["steps"], "lockstep": report["lockstep"], "notes": []}


# ---- What is printed ----

def met(row):
    """Whether all targets are met; None where nothing was there to compare with."""
    if row["kind"] == "loss":
        return row["loss"] < row["target"]
    if row["kind"] == "speed":
        results = [reached(x) for x in row["comparisons"].values() if x["goal"]]
        return all(results) if results else None
    if not row["ratio"]:
        return None
    return row["ratio"]["median"] <= row["target"] if row["kind"] == "memory" else row["ratio"]["median"] >= row["target"]


def reached(comparison):
    return comparison["ratio"]["median"] >= comparison["goal"]


def spread(values, digits=2, factor=1.0):
    return "%.*f (%.*f - %.*f)" % tuple(x for key in ("median", "min", "max") for x in (digits, factor * values[key]))


COMPARED = {"halves": "mixed_bfloat16 by float32", "float32": "by the fastest peer in float32", "any": "by the fastest peer"}


def print_speed(row):
    for side, values in row["seconds"].items():
        about, least = row["peers"].get(side), row["roofline"].get(side.split()[1], {})
        print("  %-26s %s ms a step  %s" % (side, spread(values, 1, 1e3), "%(version)s: %(set_up)s" % about if about else
                                            "%.0f %% of the roofline (%.1f ms)" % (100 * least["share"], 1e3 * least["seconds"])
                                            if "share" in least else ""))
    for what, x in row["comparisons"].items():
        print("  %-30s %s%s%s" % (COMPARED[what], spread(x["ratio"]), "" if what == "halves" else "  %(above)s, %(below)s" % x,
                                  "  goal %.2f %s" % (x["goal"], "reached" if reached(x) else "NOT reached") if x["goal"] else ""))
    for precision, least in row["roofline"].items():
        if "not_known" in least:
            print("  no roofline in %s: %s" % (precision, least["not_known"]))


def print_row(row):
    print("\n%s" % row["title"])
    if row["kind"] == "speed":
        print_speed(row)
    for side, values in row["seconds"].items() if row["kind"] == "replicas" else ():
        print("  %-20s %s ms for %d examples" % (side, spread(values, 1, 1e3), row["batch"]))
    if row["kind"] == "replicas":
        print("  ratio                %s; of one replica to itself: %s" % (spread(row["ratio"]), spread(row["noise"])))
        print("  with batch %d each    %s: the same examples in a step as one replica has" % (row["batch"] // 2, spread(row["half"])))
    if row["kind"] == "memory":
        print("  lockstep             %.0f MB, the whole process" % (row["peak"] / 1e6))
        for tried in row["tried"]:
            print("  %-20s %.0f MB above the %.0f MB of the import  %s: %s" % (
                tried["peer"], tried["bytes"] / 1e6, tried["imported"] / 1e6, row["peers"][tried["peer"]]["version"],
                tried["set_up"]))
        if row["ratio"]:
            print("  ratio                %.2f" % row["ratio"]["median"])
    if row["kind"] == "loss":
        print("  loss                 %.4f after %d steps; while training, the mean of all steps: %.4f" % (
            row["loss"], row["steps"], row["training_loss"]))
    result = met(row)
    if result is not None and row["kind"] != "speed":
        print("  target %.2f %s" % (row["target"], "reached" if result else "NOT reached"))
    for note in row["notes"]:
        print("  %s" % note)
    if row.get("disturbed_windows"):
        print("  %d windows were disturbed by other programs" % row["disturbed_windows"])
    if row.get("stolen_rounds"):
        print("  in %d rounds the host took processors away" % row["stolen_rounds"])


def markdown(rows):
    """The tables of docs/performance.md."""
    speed = [row for row in rows if row["kind"] == "speed"]
    lines = []
    if speed:
        lines += ["| milliseconds of a step | float32 | mixed_bfloat16 | ratio | goal | share of the roofline |", "|---|---|---|---|---|---|"]
        for row in speed:
            x = row["comparisons"].get("halves")
            lines.append("| %s | %s | %s |" % (row["title"], " | ".join(milliseconds(row, "lockstep " + p) for p in PRECISIONS), " | ".join((
                *bold_ratio(x), ", ".join("%.0f %%" % (100 * least["share"]) for least in row["roofline"].values() if "share" in least) or "-"))))
        lines += ["", "| milliseconds of a step | Lockstep | fastest peer | its set-up | ratio | goal |", "|---|---|---|---|---|---|"]
        for row in speed:
            lines += ["| %s, %s | %s | %s |" % (row["title"], title, cell_of_peer(row, row["comparisons"][what]), " | ".join(
                bold_ratio(row["comparisons"][what]))) for what, title in MARKDOWN.items() if what in row["comparisons"]]
        lines += ["", "Every peer that was near enough to be measured in the rounds, and its time by Lockstep's in the same precision:", "",
                  "| | " + " | ".join(PEER_TITLES.values()) + " |", "|---|" + "---|" * len(PEER_TITLES)]
        for row, precision in ((row, precision) for row in speed for precision in row["roofline"]):
            sides = ["%s %s" % (peer, precision) for peer in PEER_TITLES]
            lines.append("| %s, %s | %s |" % (row["title"], precision, " | ".join(
                "%s, ratio %s" % (milliseconds(row, side), spread(row["ratios"][side])) if row["ratios"].get(side)
                else tried_only(row, side) for side in sides)))
        lines.append("")
    for row in rows:
        if row["kind"] == "replicas":
            lines.append("- %s: %s (goal %.2f). With batch %d for each, so that a step has the same examples: %s. One replica by itself, "
                         "which is the noise of the machine: %s." % (row["title"], spread(row["ratio"]), row["target"],
                                                                     row["batch"] // 2, spread(row["half"]), spread(row["noise"])))
        elif row["kind"] == "memory" and row["least"]:
            lines.append("- %s: Lockstep %.0f MB in all, %s %.0f MB above what `import torch` takes (%s): %.2f (goal %.2f)." % (
                row["title"], row["peak"] / 1e6, PEER_TITLES[row["least"]["peer"]], row["least"]["bytes"] / 1e6,
                row["least"]["set_up"], row["ratio"]["median"], row["target"]))
        elif row["kind"] == "loss":
            lines.append("- %s: %.3f (goal: below %.1f)." % (row["title"], row["loss"], row["target"]))
    return "\n".join(lines)


PEER_TITLES = {"pytorch": "PyTorch of PyPI", "debian": "PyTorch of Debian", "tensorflow": "Keras on TensorFlow"}


MARKDOWN = {"float32": "both in float32", "any": "each in its fastest precision"}


def milliseconds(row, side):
    return spread(row["seconds"][side], 1, 1e3) if side in row["seconds"] else "-"


def bold_ratio(comparison):
    """The cells of a ratio and its goal."""
    if not comparison:
        return "-", "-"
    return ("**%.2f** (%.2f - %.2f)" % tuple(comparison["ratio"][key] for key in ("median", "min", "max")),
            "%.1f" % comparison["goal"] if comparison["goal"] else "-")


def cell_of_peer(row, comparison):
    """The cells of both sides, and of the peer's set-up."""
    about = row["peers"][comparison["below"]]
    return "%s | %s | %s, %s: %s" % (milliseconds(row, comparison["above"]), milliseconds(row, comparison["below"]), "%s %s" % (
        PEER_TITLES[about["peer"]], comparison["below"].split()[1]), about["version"], about["set_up"])


def tried_only(row, side):
    tried = [x["seconds"] for x in row["tried"] if "%(peer)s %(precision)s" % x == side]
    return "%.0f in the trial" % (1e3 * min(tried)) if tried else "-"


def about_this(options):
    """The machine and what was measured: Lockstep's version and, in a clone, its commit."""
    version = subprocess.run([options.lockstep, "--version"], stdout=subprocess.PIPE, text=True, check=False).stdout.strip()
    try:
        commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True, check=False).stdout.strip()
    except OSError:
        commit = ""
    return "%s; %s%s" % (machine.describe(), version, ", commit %s" % commit if commit else "")


def run(options, progress):
    """Rows of the lines that were asked for, printed as they come."""
    rows, about = [], about_this(options)
    print(about)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, progress, folder)
        for name in options.lines:
            progress("%s" % name)
            if name in MODELS:
                row = model_line(bench, name)
            elif name in REPLICAS:
                row = replicas_line(bench, name)
            else:
                row = memory_line(bench) if name == MEMORY else loss_line(bench)
            row["met"] = met(row)
            rows.append(row)
            print_row(row)
    if options.markdown:
        print("\n%s\n\n%s" % (about, markdown(rows)))
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"about": about, "rows": rows}, file, indent=1)
    return rows
