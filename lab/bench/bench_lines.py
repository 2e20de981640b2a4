# SPDX-License-Identifier: Apache-2.0
"""The lines of tools/bench-train --all: training of real models beside the fastest peer, two replicas of one thread
beside one of two, memory, and the loss of the GPT.

A line of a model first tries every set-up of every peer once, and then measures Lockstep and each peer's fastest in
turn. Ratios are taken within a round; the median with the smallest and largest is printed.
"""
import gzip
import json
import os
import re
import statistics
import subprocess
import tempfile
import types

import line_peers
import lockstep_side
import machine
from line_peers import LinePeer, PeerFailed

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
APPLICATIONS = os.path.join(ROOT, "tests", "data", "models")

MODELS = {
    "resnet": {"title": "ResNet of the tutorial, 32 x 32 pixels, batch 64", "file": os.path.join(ROOT, "models", "resnet.json"),
               "batch": 64, "size": 32, "target": 1.3},
    "resnet50": {"title": "ResNet50, 64 x 64 pixels, batch 16", "file": os.path.join(APPLICATIONS, "ResNet50.json.gz"),
                 "batch": 16, "size": 64, "target": 1.5},
    "mobilenet_v2": {"title": "MobileNetV2, 64 x 64 pixels, batch 16",
                     "file": os.path.join(APPLICATIONS, "MobileNetV2.json.gz"), "batch": 16, "size": 64, "target": 1.8},
    "gpt": {"title": "GPT, 4 layers, width 256, context 128, batch 16, tinyshakespeare",
            "file": os.path.join(HERE, "gpt.json"), "batch": 16, "length": 128, "target": 1.2},
}
REPLICAS = {"resnet50-replicas": "resnet50", "gpt-replicas": "gpt"}
TWO, HALF, ONE, AGAIN = "lockstep 2 x 1", "lockstep 2 x 1, half", "lockstep 1 x 2", "lockstep 1 x 2 again"
REPLICAS_TARGET, MEMORY_TARGET, LOSS_TARGET = 0.95, 0.8, 1.9
MEMORY, LOSS = "resnet50-memory", "gpt-loss"
ALL = (*MODELS, *REPLICAS, MEMORY)  # gpt-loss takes minutes, and is no speed
NAMES = (*ALL, LOSS)
EXAMPLES = 160  # of random images, a multiple of the batches
TEXT_STRIDE = 6900  # gives some 160 windows an epoch
FAR_BEHIND = 1.5  # a peer that is so much slower than the fastest is not measured further
STUCK = 10.0  # a set-up that is so much slower than the fastest is started once more
COLLAPSED = 3.0  # a window that is so much slower than the others of its side is discarded
LOSS_COMMAND = ("--replica-batch=16", "--steps=2000", "--optimizer=adamw:learning_rate=0.001,beta_2=0.99,weight_decay=0.1",
                "--learning-rate-schedule=cosine_decay:initial_learning_rate=0,decay_steps=1900,alpha=0.1,"
                "warmup_target=0.001,warmup_steps=100")


def summary(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "values": values}


class Bench:
    """What the lines have in common: options, a folder of the models' files, what is printed meanwhile."""

    def __init__(self, options, progress, folder):
        self.options, self.progress, self.folder = options, progress, folder
        self.lines = {name: {**line, "name": name, "file": self.unpacked(line["file"])} for name, line in MODELS.items()}
        if options.line_model:
            self.lines = {name: {**line, "file": options.line_model} for name, line in self.lines.items()}

    def unpacked(self, path):
        if not path.endswith(".gz"):
            return path
        plain = os.path.join(self.folder, os.path.basename(path)[:-3])
        with gzip.open(path) as source, open(plain, "wb") as target:
            target.write(source.read())
        return plain

    def dataset(self, line):
        if "length" in line:
            return "text:file=%s,length=%d,stride=%d" % (self.options.text, line["length"], TEXT_STRIDE)
        examples = max(EXAMPLES, 10 * line["batch"])
        return "synthetic:shape=%dx%dx3,classes=10,examples=%d" % (line["size"], line["size"], examples)

    def lockstep(self, line, replicas=1, threads=None, replica_batch=None, seconds=None):
        about = types.SimpleNamespace(model=line["file"], dataset=self.dataset(line), strategy=self.options.strategy,
                                      optimizer="adam:learning_rate=0.001", replica_batch=replica_batch or line["batch"])
        return lockstep_side.Lockstep(self.options.lockstep, about, replicas, threads or self.options.threads,
                                      seconds or self.options.seconds)

    def wait(self):
        return machine.wait_until_idle(self.options.idle)


class Rounds:
    """Sides in turn, every other round in the opposite order; seconds of a step."""

    def __init__(self, bench, sides):
        self.bench, self.sides, self.disturbed, self.stolen = bench, sides, 0, 0
        self.seconds = {side: [] for side in sides}
        self.notes = []

    def run(self):
        for number in range(self.bench.options.rounds):
            theft = machine.Theft()
            for side in list(self.sides)[::1 if number % 2 == 0 else -1]:
                self.disturbed += not self.bench.wait()
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

    def run(self, peer, python):
        kind = line_peers.KINDS[peer](peer, python, self.line, self.bench.options)
        for stage in kind.stages():
            self.all(stage(self.best(peer)[1]))
            if not self.best(peer)[1]:
                return


def try_peers(bench, line, expected):
    """{peer: setting} of those worth the rounds, what was tried, and notes."""
    trial = Trial(bench, line, expected)
    for peer in bench.options.peers:
        try:
            trial.run(peer, line_peers.python_of(peer, bench.options, bench.progress))
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
            trial.notes.append("%s (%s) tried only: %.0f ms a step where the fastest peer takes %.0f" % (
                peer, setting["words"], 1e3 * seconds, 1e3 * fastest))
    return kept, [{"peer": x["peer"], "set_up": x["words"], "seconds": s} for s, x in trial.tried], trial.notes


def trained_parameters(program, model):
    done = subprocess.run([program, "summary", "--model=" + model], stdout=subprocess.PIPE, text=True, check=True)
    return int(re.search("^Trainable params: ([0-9,]+)", done.stdout, re.MULTILINE).group(1).replace(",", ""))


def model_line(bench, name):
    line = bench.lines[name]
    own = bench.lockstep(line)
    kept, tried, notes = try_peers(bench, line, trained_parameters(bench.options.lockstep, line["file"]))
    sides = {"lockstep": lambda seed: line["batch"] / own.run(seed)}
    running = {}
    for peer, setting in kept.items():
        try:
            running[peer] = LinePeer(setting, bench.options.peer_deadline)
            sides[peer] = lambda _seed, side=running[peer]: side.run(bench.options.seconds)
        except PeerFailed as error:
            notes.append("%s left out: %s" % (peer, error))
    rounds = Rounds(bench, sides)
    try:
        rounds.run()
    finally:
        for peer in running.values():
            peer.close()
    figures = rounds.figures()
    row = {"line": name, "title": line["title"], "kind": "speed", "target": line["target"], "seconds": figures, "tried": tried,
           "lockstep": own.report["lockstep"], "threads": bench.options.threads, **rounds.about(),
           "peers": {peer: {"version": running[peer].about["version"], "set_up": kept[peer]["words"]} for peer in running},
           "ratios": {peer: rounds.ratio("lockstep", peer) for peer in running if peer in figures}}
    row["notes"] = notes + row["notes"]
    measured = [peer for peer in row["ratios"] if row["ratios"][peer]]
    row["fastest"] = min(measured, key=lambda peer: figures[peer]["median"], default=None)
    row["ratio"] = row["ratios"][row["fastest"]] if row["fastest"] else None
    return row


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
    """Whether the target is met; None where nothing was there to compare with."""
    if row["kind"] == "loss":
        return row["loss"] < row["target"]
    if not row["ratio"]:
        return None
    return row["ratio"]["median"] <= row["target"] if row["kind"] == "memory" else row["ratio"]["median"] >= row["target"]


def spread(values, digits=2, factor=1.0):
    return "%.*f (%.*f - %.*f)" % tuple(x for key in ("median", "min", "max") for x in (digits, factor * values[key]))


def print_row(row):
    print("\n%s" % row["title"])
    for side, values in row.get("seconds", {}).items():
        about = row.get("peers", {}).get(side)
        print("  %-20s %s ms %s%s" % (side, spread(values, 1, 1e3), "for %d examples" % row["batch"] if "batch" in row else "a step",
                                      "  %s: %s" % (about["version"], about["set_up"]) if about else ""))
    for peer, ratio in row.get("ratios", {}).items():
        if ratio:
            print("  ratio to %-11s %s%s" % (peer, spread(ratio), "  the fastest" if peer == row["fastest"] else ""))
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
    if result is not None:
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
        lines += ["| milliseconds of a step | Lockstep | fastest peer | its set-up | ratio | goal |", "|---|---|---|---|---|---|"]
        for row in speed:
            peer = row["fastest"]
            about = "%s, %s: %s" % (PEER_TITLES[peer], row["peers"][peer]["version"], row["peers"][peer]["set_up"]) if peer else "-"
            lines.append("| %s | %s | %s | %s | %s | %.1f |" % (
                row["title"], spread(row["seconds"]["lockstep"], 1, 1e3), spread(row["seconds"][peer], 1, 1e3) if peer else "-",
                about, "**%.2f** (%.2f - %.2f)" % tuple(row["ratio"][key] for key in ("median", "min", "max")) if peer else "-",
                row["target"]))
        lines += ["", "Every peer that was near enough to be measured in the rounds:", "",
                  "| | " + " | ".join(PEER_TITLES.values()) + " |", "|---|" + "---|" * len(PEER_TITLES)]
        for row in speed:
            lines.append("| %s | %s |" % (row["title"], " | ".join(
                "%s, ratio %s" % (spread(row["seconds"][peer], 1, 1e3), spread(row["ratios"][peer])) if row["ratios"].get(peer)
                else tried_only(row, peer) for peer in PEER_TITLES)))
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


def tried_only(row, peer):
    tried = [x["seconds"] for x in row["tried"] if x["peer"] == peer]
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
