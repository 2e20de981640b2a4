# SPDX-License-Identifier: Apache-2.0
"""Every option of every subcommand has a row here: a command in which it changes what comes out, or the test that shows
that, and the commands in which it has no effect, with what is said then.

An option without a row fails, and so does a row without an option. Without effect beside another option it is refused
(exit code 2); because of the number of workers, replicas or steps alone it is a warning.
"""
import calendar
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import time

from support import DONE, FAILED, LOCKSTEP, USAGE, ProgramTest, main, read_json

TESTS = os.path.dirname(os.path.abspath(__file__))
TEMPLATE = os.path.join(os.environ["LOCKSTEP_TEMPLATES"], "collective-my-plugin.so")
DATA = "synthetic:examples=40"


class Row:
    """`effect`: options with which the output differs from that of `beside` alone. `seen`: the test that shows the effect
    instead, where it takes several processes, a failure or long. `before`: what makes files for both, options of a first run or a
    function.
    `refused` and `idle`: (options, text of the message) pairs."""

    def __init__(self, effect=(), beside=(), seen=None, before=(), refused=(), idle=()):
        self.effect, self.beside, self.seen, self.before = effect, beside, seen, before
        self.refused, self.idle = refused, idle


ONE_WORKER, ONE_REPLICA = "no effect with one worker", "no effect with one replica"
NO_EPOCH, FEW_STEPS = "no effect with --epochs=0", "no effect in a training of 5 steps"
CHECKPOINTS = ("--checkpoint-dir=ck",)
TWO = ("--replicas=2",)


NO_FOLDER = Row(("--plugin-path=no-such",))


def untrained(option, beside=()):
    return ((option, *beside, "--epochs=0"), NO_EPOCH)


HALF = ("--initial-weights=half.safetensors",)


def write_halves(folder):
    """Weights that are converted, which is said."""
    head = json.dumps({"dense/kernel": {"dtype": "F16", "shape": [784, 1], "data_offsets": [0, 1568]},
                       "dense/bias": {"dtype": "F16", "shape": [1], "data_offsets": [1568, 1570]}}).encode()
    with open(os.path.join(folder, "half.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + bytes(1570))


CLUSTER = {
    "cluster": Row(("--cluster=launch",)),
    "join-deadline": Row(seen="test_worker_ends.py", idle=[(("--join-deadline=5",), ONE_WORKER)]),
    "lost-after": Row(seen="test_worker_ends.py", idle=[(("--lost-after=5",), ONE_WORKER)]),
    "network": Row(("--network=open",), idle=[(("--network=private",), ONE_WORKER)]),
    "insecure": Row(seen="test_workers.py", idle=[(("--insecure",), ONE_WORKER)]),
}
RUN = {
    **CLUSTER,
    "strategy": Row(("--strategy=no-such",)),
    "device": Row(("--device=no-such",)),
    "replicas": Row(("--replicas=0",)),
    "devices": Row(("--devices=0",)),
    "threads": Row(("--threads=0",)),
    "batch": Row(("--batch=0",)),
    "replica-batch": Row(("--replica-batch=0",), refused=[(("--batch=8", "--replica-batch=4"), "exclude each other")]),
    "share": Row(("--share=2,1", *TWO), TWO, idle=[(("--share=2",), ONE_REPLICA)]),
    "precision": Row(("--precision=mixed_bfloat16",)),
    "deadline": Row(seen="test_broken.py"),  # also of one replica: test_own_parts.py
    "plugin-path": NO_FOLDER,
    "quiet": Row(("--quiet",), refused=[(("--quiet", "--verbose"), "exclude each other")]),
    "verbose": Row(("--verbose",)),
}
SHARED = ("batch", "replica-batch")

ROWS = {
    "train": {
        **RUN,
        "model": Row(("--model=mlp-dropout",), ("--model=mlp",)),
        "dataset": Row(("--dataset=synthetic:examples=48",), ("--dataset=" + DATA,)),
        "loss": Row(("--loss=mae",)),
        "loss-weights": Row(("--loss-weights=3",), refused=[(("--loss-weights=1,2",), "2 are given")]),
        "metrics": Row(("--metrics=mae",)),
        "initial-weights": Row(("--initial-weights=w.safetensors",),
                               before=("--seed=7", "--epochs=0", "--save-weights=w.safetensors")),
        "strategy": Row(("--strategy=tree", *TWO), TWO),
        "device": Row(("--device=reference",), ("--device=cpu",)),
        "replicas": Row(TWO),
        "threads": Row(("--threads=2",), ("--threads=1",)),
        "batch": Row(("--batch=10",), ("--batch=8",)),
        "replica-batch": Row(("--replica-batch=5", *TWO), ("--replica-batch=4", *TWO), refused=RUN["replica-batch"].refused),
        "elastic": Row(seen="test_worker_ends.py"),
        "wire": Row(("--wire=bfloat16", *TWO), TWO,
                    idle=[(("--wire=bfloat16",), ONE_REPLICA), untrained("--wire=bfloat16", TWO)]),
        "compress": Row(("--compress=int8:block=64", *TWO), TWO, idle=[
            (("--compress=int8",), ONE_REPLICA), untrained("--compress=int8", TWO)], refused=[
            (("--compress=int8", "--wire=bfloat16", *TWO), "--wire")]),
        "topology": Row(seen="test_topology.py", idle=[
            (("--topology=flat",), ONE_REPLICA), untrained("--topology=flat", TWO)]),
        "reproducible": Row(("--reproducible=4", *TWO), TWO, refused=[
            (("--reproducible", "--microbatches=2"), "--microbatches"), (("--reproducible", "--wire=bfloat16", *TWO), "--wire")]),
        "check-replicas": Row(seen="test_run.py", idle=[
            (("--check-replicas=2",), ONE_REPLICA), (("--check-replicas=9", *TWO), FEW_STEPS),
            untrained("--check-replicas=2", TWO)]),
        "epochs": Row(("--epochs=2",)),
        "steps": Row(("--steps=2",), idle=[(("--steps=9",), "more than the 5 steps of --epochs=1; it needs --epochs=2"), untrained("--steps=2")]),
        "optimizer": Row(("--optimizer=sgd",), idle=[untrained("--optimizer=sgd")]),
        "learning-rate-schedule": Row(("--learning-rate-schedule=cosine_decay:decay_steps=9",),
                                      idle=[untrained("--learning-rate-schedule=cosine_decay:decay_steps=9")]),
        "loss-scale": Row(("--loss-scale=8", "--precision=mixed_float16"), ("--loss-scale=none", "--precision=mixed_float16"),
                          idle=[untrained("--loss-scale=8")]),
        "class-weight": Row(("--class-weight=0:3", "--model=mlp"), ("--model=mlp",),
                            idle=[untrained("--class-weight=0:3", ("--model=mlp",))]),
        "lr-scaling": Row(("--lr-scaling=linear", *TWO), TWO,
                          idle=[(("--lr-scaling=linear",), ONE_REPLICA), untrained("--lr-scaling=linear", TWO)]),
        "microbatches": Row(("--microbatches=9",), idle=[untrained("--microbatches=2")]),
        "accumulate": Row(("--accumulate=2",), idle=[untrained("--accumulate=2")]),
        "seed": Row(("--seed=3",)),
        "shuffle": Row(("--shuffle=off",), idle=[untrained("--shuffle=off")]),
        "validation": Row(("--validation=off",), idle=[untrained("--validation=off")]),
        "validation-dataset": Row(("--validation-dataset=synthetic:examples=9",), refused=[
            (("--validation-dataset=" + DATA, f"--validation={off}"), "exclude each other") for off in ("off", "No", "0")],
            idle=[untrained("--validation-dataset=" + DATA)]),
        "callback": Row(("--callback=csv_logger:filename=a.csv",), refused=[
            (("--callback=csv_logger:filename=a", "--callback=csv_logger:filename=./a"), "name the same file"),
            (("--callback=csv_logger:filename=a", "--timeline=a"), "name the same file"),
            (("--callback=csv_logger:filename=a", "--dataset=csv:file=./a,label=y"), "would replace a file that --dataset reads"),
            (("--callback=tensorboard:log_dir=a", "--tensorboard=a/"), "name the same file")]),
        "checkpoint-dir": Row(CHECKPOINTS, idle=[
            untrained(*CHECKPOINTS), untrained("--checkpoint-dir=ck", ("--tensorboard=ck/", "--callback=tensorboard:log_dir=tb"))], refused=[
            (("--checkpoint-dir=ck", option), "name the same file") for option in ("--timeline=ck", "--callback=csv_logger:filename=ck")]),
        "checkpoint-steps": Row(("--checkpoint-steps=2", *CHECKPOINTS), CHECKPOINTS,
                                refused=[(("--checkpoint-steps=2",), "without --checkpoint-dir")],
                                idle=[(("--checkpoint-steps=9", *CHECKPOINTS), FEW_STEPS)]),
        "checkpoint-seconds": Row(("--checkpoint-seconds=0.000001", *CHECKPOINTS), CHECKPOINTS,
                                  refused=[(("--checkpoint-seconds=2",), "without --checkpoint-dir")]),
        "checkpoint-keep": Row(("--checkpoint-keep=1", "--epochs=2", *CHECKPOINTS), ("--epochs=2", *CHECKPOINTS),
                               refused=[(("--checkpoint-keep=2",), "without --checkpoint-dir")]),
        "checkpoint-best": Row(("--checkpoint-best=loss:max", "--epochs=2", *CHECKPOINTS), ("--epochs=2", *CHECKPOINTS), refused=[
            (("--checkpoint-best=loss",), "without --checkpoint-dir"),
            (("--checkpoint-best=loss", "--checkpoint-steps=2", *CHECKPOINTS), "exclude each other"),
            (("--checkpoint-best=loss", "--checkpoint-seconds=2", *CHECKPOINTS), "exclude each other")]),
        "checkpoint-name": Row(("--checkpoint-name=c-{epoch}", *CHECKPOINTS), CHECKPOINTS,
                               refused=[(("--checkpoint-name=c",), "without --checkpoint-dir")]),
        "resume": Row(("--resume", "--epochs=2", *CHECKPOINTS), ("--epochs=2", *CHECKPOINTS), before=CHECKPOINTS,
                      refused=[(("--resume",), "without --checkpoint-dir")]),
        "tensorboard": Row(("--tensorboard=tb",), idle=[untrained("--tensorboard=tb")]),
        "save-weights": Row(("--save-weights=w.safetensors",)),
        "report": Row(("--report=b.json",), refused=[(("--report=a.json", "--timeline=./a.json"), "name the same file")]),
        "timeline": Row(("--timeline=t.json",)),
        "timeline-steps": Row(("--timeline-steps=2:3", "--timeline=t.json"), ("--timeline=t.json",),
                              refused=[(("--timeline-steps=1:2",), "without --timeline")]),
        "log-every": Row(("--log-every=2",), refused=[(("--log-every=2", "--quiet"), "exclude each other"),
                                                      (("--log-every=2", "--verbose=0"), "exclude each other")],
                         idle=[(("--log-every=9",), FEW_STEPS), untrained("--log-every=2")]),
    },
    "evaluate": {
        **RUN,
        "share": Row(("--share=1,2,3", *TWO), TWO),
        "quiet": Row((*HALF, "--quiet"), HALF, before=write_halves, refused=RUN["quiet"].refused),
        "verbose": Row((*HALF, "--verbose=0"), HALF, before=write_halves),
        "model": Row(("--model=mlp",), ("--model=linear",)),
        "dataset": Row(("--dataset=synthetic:examples=48",), ("--dataset=" + DATA,)),
        "loss": Row(("--loss=mae",)),
        "loss-weights": Row(("--loss-weights=3",)),
        "metrics": Row(("--metrics=mae",)),
        "initial-weights": Row(("--initial-weights=no-such.safetensors",)),
        "split": Row(("--split=train",)),
        "seed": Row(("--seed=3",), refused=[(("--seed=3", "--initial-weights=w.safetensors"), "exclude each other")]),
        "callback": Row(("--callback=csv_logger:filename=a.csv",)),
        "report": Row(("--report=r.json",), refused=[
            (("--report=a", "--dataset=arrays:x=b+./a,y=c"), "would replace a file that --dataset reads"),
            (("--report=a", "--initial-weights=./a"), "would replace a file that --initial-weights reads")]),
    },
    "predict": {
        **RUN,
        "verbose": Row(("--verbose=0",)),
        "model": Row(("--model=mlp",), ("--model=linear",)),
        "dataset": Row(("--dataset=synthetic:examples=48",), ("--dataset=" + DATA,)),
        "initial-weights": Row(("--initial-weights=no-such.safetensors",)),
        "split": Row(("--split=train",)),
        "out": Row(("--out=p.csv",), ("--out=p.npy",)),
        "classes": Row(("--classes=" + ",".join("abcdefghij"), "--out=p.csv"), ("--out=p.csv",),
                       refused=[(("--classes=a,b", "--out=p.npy"), "names are written to .csv files")]),
        "seed": Row(("--seed=3",), refused=[(("--seed=3", "--initial-weights=w.safetensors"), "exclude each other")]),
        "callback": Row(("--callback=csv_logger:filename=a.csv",)),
    },
    "compare": {
        **CLUSTER,
        **{name: Row(seen="test_compare.py") for name in (
            "model", "dataset", "loss", "metrics", "initial-weights", "strategies", "replicas", "threads", "device", "target",
            "epochs", "optimizer", "precision", "loss-scale", "seed", "shuffle", "validation", "round-steps", "speed-steps",
            "deadline", "plugin-path", "html", "quiet", "progress", "batch", "reproducible", "model-name", "dataset-name", "advice")},
        "loss-weights": Row(seen="test_outputs.py"),
        "simulate-network": Row(seen="test_compare.py"),
        "compute-scale": Row(seen="test_compare.py", refused=[
            (("--compute-scale=2",), "--simulate-network"),
            (("--compute-scale=2", "--step-seconds=1", "--simulate-network=flat"), "--step-seconds")]),
        "step-seconds": Row(seen="test_compare.py", refused=[(("--step-seconds=2",), "--simulate-network")]),
        "replica-batch": Row(seen="test_compare.py", refused=RUN["replica-batch"].refused),
        "steps": Row(seen="test_compare.py", idle=[(("--steps=9",), "more than the 1 step of --epochs=1; it needs --epochs=9")]),
        "wire": Row(seen="test_compare.py", idle=[(("--wire=bfloat16", "--replicas=1"), ONE_REPLICA)]),
        "report": Row(seen="test_compare.py", refused=[
            (("--report=a", "--html=./a"), "name the same file"),
            (("--report=a", "--dataset=csv:file=./a,label=y"), "would replace a file that --dataset reads")]),
    },
    "summary": {
        "model": Row(("--model=cnn",), ("--model=mlp",)),
        "dataset": Row(("--dataset=synthetic:shape=7",)),
        "plugin-path": NO_FOLDER,
    },
    "convert": {
        "model": Row(seen="test_keras_files.py"),
        "dataset": Row(seen="test_keras_files.py"),
        "quiet": Row(seen="test_keras_files.py"),
        "plugin-path": Row(seen="test_own_parts.py"),
    },
    "list": {"plugin-path": NO_FOLDER},
    "plugins": {"plugin-path": NO_FOLDER},
    "simulate": {
        "world": Row(("--world=4",)),
        "bytes": Row(("--bytes=1M",)),
        "operation": Row(("--operation=broadcast",)),
        "dtype": Row(("--dtype=float64",)),
        "root": Row(("--root=3", "--operation=broadcast"), ("--operation=broadcast",),
                    refused=[(("--root=3",), "without --operation=broadcast or --operation=reduce")]),
        "network": Row(("--network=internet",)),
        "straggler": Row(("--straggler=1:9",)),
        "jitter": Row(("--jitter=0.5",)),
        "seed": Row(("--seed=3", "--jitter=0.5"), ("--jitter=0.5",), refused=[(("--seed=3",), "without --jitter")]),
        "deadline": Row(("--deadline=0",)),
        "against": Row(seen="test_simulate.py"),
        "in-place": Row(seen="test_simulate.py", refused=[(("--in-place",), "without --against")]),
        "json": Row(("--json=a.json",), refused=[(("--json=a", "--svg=./a"), "name the same file")]),
        "svg": Row(("--svg=a.svg",)),
        "plugin-path": NO_FOLDER,
    },
    "verify": {
        "world": Row(("--world=4",)),
        "count": Row(("--count=9",)),
        "operation": Row(("--operation=broadcast",)),
        "ranks-per-host": Row(("--ranks-per-host=2",), ("--json=a.json",)),
        "draw": Row(("--draw", "--world=3", "--operation=broadcast"), ("--world=3", "--operation=broadcast")),
        "wire": Row(seen="test_verify.py"),
        "element-bytes": Row(("--element-bytes=8",)),
        "deadline": Row(("--deadline=0",)),
        "json": Row(("--json=a.json",)),
        "plugin-path": NO_FOLDER,
    },
    "bench": {
        **CLUSTER,
        **{name: Row(seen="test_bench.py") for name in (
            "replicas", "bytes", "operation", "dtype", "transport", "seconds", "iterations", "warmup",
            "fresh", "pin", "deadline", "json", "svg", "place")},
        "wire": Row(seen="test_bench.py", idle=[
            (("ring", "--wire=bfloat16", "--replicas=1", "--bytes=1K", "--seconds=0"), ONE_REPLICA)]),
        "device": Row(seen="test_nccl.py"),
        "topology": Row(seen="test_topology.py"),
        "plugin-path": Row(seen="test_bench.py"),
        "reduction": Row(seen="test_bench.py", refused=[
            (("--reduction=max", "--operation=broadcast"), "--reduction without --operation=all_reduce or --operation=reduce")]),
        "tune": Row(seen="test_run.py", refused=[(("ring", "--tune=a", "--svg=a"), "name the same file")]),
        "write-network": Row(seen="test_bench.py", refused=[
            (("--write-network=a", option), "beside --write-network without collectives")
            for option in ("--svg=b", "--bytes=1M", "--tune=b", "--fresh")]),
    },
    "launch": {
        **{name: Row(seen="test_launch.py", refused=[((f"--{name}=1", "--make-secret=a"), "exclude each other")]) for name in (
            "workers", "servers", "prefix", "stopped-limit", "restart", "stop-grace", "timeout")},
        "failure-grace": Row(seen="test_launch.py", refused=[(("--failure-grace=1", "--make-secret=a"), "exclude each other")],
                             idle=[(("-n1", "--failure-grace=1", "--", "true"), "no effect with one process")]),
        "make-secret": Row(("--make-secret=a",), ("-n1",)),
    },
    "plugin new": {"kind": Row(seen="test_plugin.py"), "dir": Row(seen="test_plugin.py")},
    "plugin check": {
        **{name: Row(seen="test_plugin.py") for name in ("seed", "filter", "deadline", "json", "quiet")},
        "device": Row(("--device=no-such",), ("--filter=instances",)),
        "plugin-path": NO_FOLDER,
    },
}

# What a command cannot do without; an option of a row takes the place of one here.
NEEDED = {
    "train": ("--model=linear", "--dataset=" + DATA, "--batch=8", "--threads=1", "--report=r.json"),
    "evaluate": ("--model=linear", "--dataset=" + DATA),
    "predict": ("--model=linear", "--dataset=" + DATA, "--out=p.npy"),
    "compare": ("--model=linear", "--dataset=" + DATA, "--strategies=ring", "--speed-steps=0"),
    "summary": ("--model=mlp",), "convert": ("in.safetensors", "out.keras"), "list": ("strategies",), "plugins": (), "plugin check": (TEMPLATE, "--filter=instances"),
    "simulate": ("ring",), "verify": ("ring", "--world=5"), "bench": (), "launch": (),
}
# What differs from run to run, in what is printed and in the report.
TIMES = re.compile(r"\"made\": \{[^}]*\}|[\d.]+ (?:s|ms|examples/s)\b|\"[a-z_]*(?:seconds|bytes|_second)\": ?(?:[-+e\d.]+|\{[^}]*\})")


def name_of(option):
    return option.split("=")[0]


def completed(command, options):
    given = {name_of(option) for option in options}
    if given & {"--batch", "--replica-batch"}:
        given |= {"--batch"}
    return [*command.split(), *(word for word in NEEDED[command] if name_of(word) not in given), *options]


def options_of(command):
    text = subprocess.run([LOCKSTEP, *command.split(), "--help=all"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return set(re.findall(r"^  --([a-z-]+)", text, re.MULTILINE))


def commands():
    """Every subcommand, as --help lists them; those of `plugin` are two words."""
    text = subprocess.run([LOCKSTEP, "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return {*re.findall(r"^  ([a-z]+)  +[a-z]", text, re.MULTILINE), "plugin check", "plugin new"} - {"plugin"}


class Help(ProgramTest):
    def test_is_one_screen_and_names_the_rest(self):
        for command in sorted(commands()):
            with self.subTest(command=command):
                text = self.lockstep(*command.split(), "--help").out
                lines = text.splitlines()
                self.assertTrue(lines[0].startswith("usage: lockstep " + command))
                self.assertEqual([line for line in lines[1:] if len(line) > 80], [])
                self.assertEqual([line for line in lines if line.endswith(" .")], [])
                for option in re.split(r"\n(?=  --|\n)", text):  # whose text may be in several lines
                    self.assertEqual(option.count("("), option.count(")"), option)
                self.assertNotRegex(text, r"(?m)^  --\S+ +as for train$")  # the first screen explains by itself
                if "--help=all" in text:
                    self.assertLessEqual(len(lines) - 2, 24, text)
                    self.assertIn("explains all %d options" % len(options_of(command)), text)
                else:
                    self.assertEqual(set(re.findall(r"^  --([a-z-]+)", text, re.MULTILINE)), options_of(command))
                self.assertEqual(self.lockstep("help", *command.split()).out, text)
        self.refused(USAGE, "train", "--help=most", says=("--help=all",))

    def test_words_that_are_elsewhere_are_shown_the_way(self):
        for words, says in ((("models",), "it is lockstep list models"), (("version",), "it is lockstep --version"), (("tran",), "did you mean 'train'?"),
                            (("launch", "--verbose", "train"), "follow it, as in lockstep launch --workers=2 train"),
                            (("verify", "ring", "--verbose"), "unknown option --verbose; available: ")):
            self.refused(USAGE, *words, says=(says,))

    def test_version_says_what_was_built(self):
        text = self.lockstep("-V").out
        self.assertEqual(self.lockstep("--version").out, text)
        self.assertRegex(text, r"\Alockstep [0-9.]+ \(commit \S+, \w+\)\nbuilt with jansson [0-9.]+, ")


class Made(ProgramTest):
    def test_every_report_says_by_what_it_was_made(self):
        commit = re.search(r"commit (\S+),", self.lockstep("--version").out)[1]
        asked = (("train", "report", "--epochs=1"), ("evaluate", "report"), ("compare", "report", "--steps=2"), ("verify", "json"),
                 ("simulate", "json", "--world=4", "--bytes=64"), ("bench", "json", "ring", "--bytes=64", "--iterations=1"),
                 ("plugin check", "json"))
        for command, option, *more in asked:
            with self.subTest(command=command):
                given = {name_of(word) for word in more}
                words = [LOCKSTEP, *command.split(), *(word for word in NEEDED[command] if name_of(word) not in given | {"--report"}),
                         *more, f"--{option}=made.json"]
                before = int(time.time())
                subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True, cwd=self.folder)
                report = read_json(self.path("made.json"))
                for one in [report, *(run["report"] for run in report.get("runs", ()))]:
                    made = dict(one["made"])
                    self.assertTrue(before <= calendar.timegm(time.strptime(made.pop("date"), "%Y-%m-%dT%H:%M:%SZ")) <= time.time())
                    expected = {"command_line": words, "host": socket.gethostname(), **({} if commit == "unknown" else {"commit": commit})}
                    self.assertEqual(made, expected)


    def test_what_may_be_secret_is_in_no_report(self):
        os.mkdir(self.path("api_token=secret"))
        with open(self.path("api_token=secret/t.csv"), "w", encoding="utf-8") as file:
            file.write(20 * "1,2,0\n3,4,1\n")
        dataset = "--dataset=csv:file=" + self.path("api_token=secret/t.csv")
        for command, *more in (("train", "--epochs=1"), ("evaluate",), ("compare", "--strategies=one-device,ring", "--replicas=2", "--steps=2", "--speed-steps=5",
                                                                       "--html=" + self.path("page.html"))):
            with self.subTest(command=command):
                done = self.lockstep(command, "--model=mlp", dataset, *more, "--report=" + self.path("made.json"))
                self.assertEqual(done.code, DONE, done.err)
                for name in ["made.json", *(["page.html"] if command == "compare" else [])]:
                    with open(self.path(name), encoding="utf-8") as file:
                        text = file.read()
                    self.assertNotIn("secret", text)
                    self.assertIn("api_token=***", text)


class Manual(ProgramTest):
    """Man pages and completions, as the build writes them from the option tables."""

    def setUp(self):
        super().setUp()
        os.mkdir(self.path("manual"))
        self.assertEqual(self.lockstep("--write-manual=" + self.path("manual")).code, DONE)

    def read(self, name):
        with open(self.path("manual/" + name)) as file:
            return file.read()

    def test_a_page_for_each_subcommand_and_in_it_every_option(self):
        pages = {f"lockstep-{name.replace(' ', '-')}.1": name for name in commands()}
        self.assertEqual(set(os.listdir(self.path("manual"))), {*pages, "lockstep.1", "lockstep", "_lockstep", "lockstep.fish"})
        with open(os.path.join(TESTS, "..", "..", "tools", "manual", "meson.build")) as file:
            listed = re.search(r"subcommands = \[(.*?)\]", file.read(), re.DOTALL)[1]
        self.assertEqual({f"lockstep-{name}.1" for name in re.findall(r"'([a-z-]+)'", listed)}, set(pages))
        for page, name in pages.items():
            found = {option.replace("\\-", "-") for option in re.findall(r"^\.TP\n\.BR \\-\\-(\S+)", self.read(page), re.MULTILINE)}
            self.assertEqual(found, options_of(name), page)
            self.assertIn("lockstep " + name, re.sub(r"\\&|\n", "", self.read("lockstep.1").replace("\\-", "-")))
        self.assertEqual(self.lockstep("--write-manual=" + self.path("none")).code, FAILED)

    def test_pages_are_clean(self):
        if not shutil.which("groff"):
            self.skipTest("groff (package groff-base) is not here")
        for page in sorted(os.listdir(self.path("manual"))):
            if page.endswith(".1"):
                done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", self.path("manual/" + page)], capture_output=True, text=True, timeout=60)
                self.assertEqual((done.returncode, done.stderr), (0, ""), page)
        shown = subprocess.run(["groff", "-man", "-Tascii", "-P-c", self.path("manual/lockstep-train.1")], capture_output=True, text=True, timeout=60)
        self.assertIn("--checkpoint-dir=DIR", re.sub(".\b", "", shown.stdout))  # bold letters are struck twice

    def complete(self, *words):
        """What bash offers for the last of the words, which it has taken apart at each equals sign."""
        script = (f". {self.path('manual/lockstep')}; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _lockstep; "
                  "printf '%s\\n' \"${COMPREPLY[@]}\"")
        done = subprocess.run(["bash", "-c", script, "bash", "lockstep", *words], capture_output=True, text=True, timeout=60, cwd=self.folder,
                              env=dict(os.environ, PATH=os.path.dirname(LOCKSTEP) + ":" + os.environ["PATH"]))
        self.assertEqual((done.returncode, done.stderr), (0, ""), words)
        return done.stdout.split()

    def test_bash_completes(self):
        for words, expected in ((("tr",), {"train"}), (("plugin", ""), {"new", "check"}), (("help", "verif"), {"verify"}), (("list", "opt"), {"optimizers"}),
                                (("train", "--opt"), {"--optimizer="}), (("train", "--qu"), {"--quiet"}), (("plugin", "new", "--k"), {"--kind="}),
                                (("train", "--model", "=", "mlp"), {"mlp", "mlp-dropout"}), (("train", "--optimizer", "=", "adam"), {"adam", "adamw", "adamax"}),
                                (("train", "--strategy", "hal"), {"halving-doubling"}), (("train", "--shuffle", "="), {"on", "off"}),
                                (("evaluate", "--dataset", "=", "mni"), {"mnist"}), (("convert", "man"), {"manual"}),
                                (("train", "--initial-weights", "=", "man"), {"manual"}), (("train", "--quiet", "man"), {"manual"})):
            with self.subTest(words=words):
                self.assertEqual(set(self.complete(*words)), expected)

    def test_other_shells_read_theirs(self):
        shells = [(shell, name) for shell, name in (("zsh", "_lockstep"), ("fish", "lockstep.fish")) if shutil.which(shell)]
        if not shells:
            self.skipTest("neither zsh nor fish is here")
        for shell, name in shells:
            done = subprocess.run([shell, "-n", self.path("manual/" + name)], capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (0, ""))


class EveryOption(ProgramTest):
    def test_has_a_row_and_every_row_an_option(self):
        self.assertEqual(commands(), set(ROWS))
        for command, rows in ROWS.items():
            with self.subTest(command=command):
                self.assertEqual(options_of(command), set(rows))

    def test_has_an_effect_in_its_row_or_in_a_test_that_is_there(self):
        for command, rows in ROWS.items():
            for name, row in rows.items():
                with self.subTest(command=command, option=name):
                    self.assertTrue(bool(row.effect) != bool(row.seen))
                    if row.seen:
                        with open(os.path.join(TESTS, row.seen)) as file:
                            self.assertTrue(re.search(rf"--{name}\b", file.read()), row.seen + " does not have it")

    def test_that_has_none_beside_another_is_refused(self):
        for command, rows in ROWS.items():
            for name, row in rows.items():
                for options, says in row.refused:
                    with self.subTest(command=command, option=name, options=options):
                        self.refused(USAGE, *completed(command, options), says=(says, "--" + name))

    def test_that_has_none_in_a_run_of_this_size_is_a_warning(self):
        for command, rows in ROWS.items():
            for name, row in rows.items():
                if command == "evaluate" or (command in ("predict", "compare", "bench") and name in CLUSTER):
                    continue  # rows of train's, or seen there
                for options, says in row.idle:
                    with self.subTest(command=command, option=name, options=options):
                        outcome = self.lockstep(*completed(command, options))
                        self.assertEqual(outcome.code, DONE, outcome.err)
                        self.assertRegex(outcome.err, rf"(?m)^lockstep: warning: usage: (?=.*--{name}\b).*{says}")


class Effects(ProgramTest):
    """Whole runs, with the option and without."""

    def observe(self, command, options, before):
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            if callable(before):
                before(folder)
            elif before:
                outcome = self.lockstep(*completed(command, before), cwd=folder)
                self.assertEqual(outcome.code, DONE, outcome.err)
            outcome = self.lockstep(*completed(command, options), cwd=folder)
            files = sorted(os.path.relpath(os.path.join(where, name.split(".out.")[0]), folder)
                           for where, _, names in os.walk(folder) for name in names)
            contents = []
            for name in {"r.json", "a.csv", "p.npy", "a.json"}.intersection(files):
                with open(os.path.join(folder, name), encoding="latin-1") as file:
                    contents.append(TIMES.sub("", file.read()))
            return outcome.code, TIMES.sub("", outcome.out), sorted(outcome.err.splitlines()), files, contents

    def test_what_comes_out_differs(self):
        for command, rows in ROWS.items():
            for name, row in rows.items():
                if not row.effect or (name in CLUSTER and command != "train"):
                    continue
                with self.subTest(command=command, option=name):
                    without = self.observe(command, row.beside, row.before)
                    self.assertEqual(without, self.observe(command, row.beside, row.before))
                    self.assertNotEqual(without, self.observe(command, row.effect, row.before))


if __name__ == "__main__":
    main()
