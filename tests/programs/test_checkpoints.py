# SPDX-License-Identifier: Apache-2.0
"""lockstep train --checkpoint-dir= and --resume with real runs: whatever ends a training, it goes on as if nothing had happened.

With an argument: so many random moments of kill -9, in the long run.
"""
import json
import os
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time

from support import BAD_INPUT, DONE, FIXTURES, INTERRUPTED, LOCKSTEP, TERMINATED, USAGE, ProgramTest, free_ports, main, read_json, tensors, write_json

MOMENTS = int(sys.argv.pop()) if sys.argv[-1].isdigit() else 6
# Dropout, shuffling and an epoch whose last batch is smaller: all that has a place to lose. 7 steps an epoch.
MODEL = ("--model=mlp-dropout", "--dataset=synthetic:examples=330", "--batch=50", "--threads=1")
STRATEGIES = (("one-device", 1), ("ring", 2), ("central-storage", 2), ("parameter-server:mode=sync", 2))


def header(path):
    with open(path, "rb") as file:
        return json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))


class CheckpointTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.dir = self.path("checkpoints")

    def names(self):
        return sorted(set(os.listdir(self.dir)) - {".lock"}) if os.path.isdir(self.dir) else []

    def strategy(self, name, replicas):
        return ("--strategy=" + name, f"--replicas={replicas}")

    def assert_same_training(self, one, other):
        for key in ("parameter_hashes", "losses", "steps"):
            self.assertEqual(one[key], other[key], key)
        self.assertEqual(len(one["epochs"]), len(other["epochs"]))
        for mine, theirs in zip(one["epochs"], other["epochs"]):
            for key in set(mine) - {"seconds", "examples_per_second"}:
                self.assertEqual(mine[key], theirs[key], key)


class GoingOn(CheckpointTest):
    def test_in_the_middle_of_an_epoch_under_every_strategy(self):
        for strategy, replicas in STRATEGIES:
            with self.subTest(strategy=strategy):
                way = self.strategy(strategy, replicas)
                whole = self.train(*MODEL, *way, "--epochs=3")
                self.train(*MODEL, *way, "--epochs=3", "--steps=10", "--checkpoint-dir=" + self.dir)
                report = self.train(*MODEL, *way, "--epochs=3", "--checkpoint-dir=" + self.dir, "--resume")
                self.assertEqual(report["resumed_from_step"], 10)
                self.assertIsNone(whole["resumed_from_step"])
                self.assert_same_training(report, whole)
                shutil.rmtree(self.dir)

    def test_auto_goes_on_with_what_it_chose(self):
        """Another choice would add three gradients in another order."""
        way = (*MODEL, "--strategy=auto:candidates=ring+tree", "--checkpoint-dir=" + self.dir)
        first = self.train(*way, "--epochs=3", "--replicas=3", "--steps=10")
        self.assertEqual(first["tuner"]["source"], "measured")
        report = self.train(*way, "--epochs=3", "--replicas=3", "--resume")
        self.assertEqual((report["resumed_from_step"], report["tuner"]["source"], report["tuner"]["seconds"]), (10, "checkpoint", 0))
        self.assertGreater(len(first["tuner"]["sizes"]), 0)
        self.assertEqual(*([(size["bytes"], size["collective"]) for size in one["tuner"]["sizes"]] for one in (first, report)))
        # What another number of ranks does best is another question.
        self.assertEqual(self.train(*way, "--epochs=4", "--replicas=2", "--resume")["tuner"]["source"], "measured")

    def test_every_optimizer_schedule_and_average_goes_on(self):
        for options in (("--optimizer=sgd:learning_rate=0.1,momentum=0.9",), ("--optimizer=adamw:weight_decay=0.01,use_ema=on,amsgrad=on",),
                        ("--optimizer=adagrad",), ("--optimizer=lamb:global_clipnorm=1",),
                        ("--learning-rate-schedule=cosine_decay:decay_steps=21", "--metrics=accuracy,sparse_top_k_categorical_accuracy:k=3"),
                        ("--loss-scale=dynamic:dynamic_growth_steps=4",), ("--accumulate=2",), ("--class-weight=0:2.5,3:0.5",)):
            with self.subTest(options):
                whole = self.train(*MODEL, *options, "--epochs=3")
                self.train(*MODEL, *options, "--steps=5", "--checkpoint-dir=" + self.dir)
                self.assert_same_training(self.train(*MODEL, *options, "--epochs=3", "--checkpoint-dir=" + self.dir, "--resume"), whole)
                shutil.rmtree(self.dir)

    def test_a_training_that_had_ended_has_its_averages_again(self):
        """Without a step left the replicas compute nothing, and the averages come from the checkpoint."""
        for strategy in ("mirrored", "central-storage", "sharded:stage=3"):
            with self.subTest(strategy):
                way = (*MODEL, *self.strategy(strategy, 2), "--optimizer=adam:use_ema=on", "--epochs=1", "--checkpoint-dir=" + self.dir)
                whole = self.train(*way)
                self.assertEqual(self.train(*way, "--resume")["parameter_hashes"], whole["parameter_hashes"])
                shutil.rmtree(self.dir)

    def test_another_number_of_replicas_and_another_strategy(self):
        plain = ("--model=cnn-small", *MODEL[1:])
        whole = self.train(*plain, "--epochs=3")
        for strategy, replicas in (("ring", 3), ("central-storage", 2)):
            self.train(*plain, "--epochs=3", "--steps=8", "--checkpoint-dir=" + self.dir)
            report = self.train(*plain, "--epochs=3", "--checkpoint-dir=" + self.dir, "--resume", *self.strategy(strategy, replicas))
            self.assertEqual(report["losses"][:8], whole["losses"][:8])
            for one, other in zip(report["losses"][8:18], whole["losses"][8:18]):
                self.assertAlmostEqual(one, other, delta=1e-5 * other)
            shutil.rmtree(self.dir)

    def test_replicas_that_do_not_wait_for_each_other(self):
        way = self.strategy("parameter-server", 3)
        self.train(*MODEL, *way, "--epochs=3", "--steps=10", "--checkpoint-dir=" + self.dir)
        outcome = self.lockstep("train", *MODEL, *way, "--epochs=3", "--checkpoint-dir=" + self.dir, "--resume", "--report=" + self.path("r.json"),
                                timeout=60)
        self.assertEqual(outcome.code, DONE, outcome.err)
        report = read_json(self.path("r.json"))
        self.assertEqual((report["resumed_from_step"], report["steps"], len(report["losses"])), (10, 21, 21))
        self.assertEqual([(epoch["steps"], epoch["examples"]) for epoch in report["epochs"]], [(7, 330)] * 3)
        self.assertEqual(self.names()[-1], "checkpoint-00000021.safetensors")

    def test_another_loss_scale_is_taken_and_counts_the_updates_before(self):
        """A scale that is a power of two changes no bit: neither may the way to it."""
        options = ("--learning-rate-schedule=cosine_decay:decay_steps=21", "--epochs=3")
        whole = self.train(*MODEL, *options)
        for first, then, scale in ((), ("--loss-scale=512",), 512), (("--loss-scale=512",), (), None), (("--loss-scale=512",), ("--loss-scale=64",), 64), \
                ((), ("--loss-scale=dynamic",), 32768), (("--loss-scale=64",), ("--loss-scale=dynamic:dynamic_growth_steps=2",), None):
            with self.subTest(first=first, then=then):
                self.train(*MODEL, *options, *first, "--steps=10", "--checkpoint-dir=" + self.dir)
                report = self.train(*MODEL, *options, *then, "--checkpoint-dir=" + self.dir, "--resume")
                self.assert_same_training(report, whole)
                if scale or not then:
                    self.assertEqual(report["loss_scale"], scale)
                shutil.rmtree(self.dir)

    def test_another_learning_rate_is_not_taken_and_that_is_said(self):
        sgd = ("--optimizer=sgd:learning_rate=0.5", "--optimizer=sgd:learning_rate=0.25")
        whole = self.train(*MODEL, sgd[0], "--epochs=2")
        self.train(*MODEL, sgd[0], "--checkpoint-dir=" + self.dir)
        outcome = self.lockstep("train", *MODEL, sgd[1], "--epochs=2", "--checkpoint-dir=" + self.dir, "--resume", "--report=" + self.path("r.json"))
        self.assertIn("the learning rate is 0.5, as in the checkpoint, not 0.25", outcome.err)
        self.assert_same_training(read_json(self.path("r.json")), whole)

    def test_callbacks_go_on(self):
        stopping = ("--callback=early_stopping:monitor=loss,min_delta=100,patience=4,restore_best_weights=on", "--epochs=9",
                    "--callback=csv_logger:filename=" + self.path("log.csv"),
                    "--callback=reduce_lr_on_plateau:monitor=loss,min_delta=100,patience=2,factor=0.5")
        whole = self.train(*MODEL, *stopping, "--save-weights=" + self.path("whole.safetensors"))
        with open(self.path("log.csv"), encoding="ascii") as file:
            lines = file.read()
        self.assertEqual((whole["stopped_by"], len(whole["epochs"])), ("early_stopping", 5))
        self.train(*MODEL, *stopping, "--steps=17", "--checkpoint-dir=" + self.dir)
        report = self.train(*MODEL, *stopping, "--checkpoint-dir=" + self.dir, "--resume", "--save-weights=" + self.path("w.safetensors"))
        self.assertEqual((report["stopped_by"], len(report["epochs"])), ("early_stopping", 5))
        self.assert_same_training(report, whole)
        with open(self.path("log.csv"), encoding="ascii") as file:
            self.assertEqual(file.read(), lines)
        with open(self.path("w.safetensors"), "rb") as one, open(self.path("whole.safetensors"), "rb") as other:
            self.assertEqual(one.read(), other.read())

    def test_what_early_stopping_has_ended_is_complete_and_more_patience_goes_on(self):
        stopping = "--callback=early_stopping:monitor=loss,min_delta=100,restore_best_weights=on,patience="
        whole = self.train(*MODEL, stopping + "2", "--epochs=9", "--checkpoint-dir=" + self.dir)
        outcome = self.lockstep("train", *MODEL, stopping + "2", "--epochs=9", "--checkpoint-dir=" + self.dir, "--resume", "--report=" + self.path("r.json"))
        self.assertIn("the training is complete: early_stopping ended it after 21 steps", outcome.err)
        report = read_json(self.path("r.json"))
        self.assertEqual((report["stopped_by"], report["status"]), ("early_stopping", whole["status"]))
        self.assert_same_training(report, whole)
        report = self.train(*MODEL, stopping + "4", "--epochs=9", "--checkpoint-dir=" + self.dir, "--resume")
        self.assert_same_training(report, self.train(*MODEL, stopping + "4", "--epochs=9"))

    def test_callbacks_in_another_order_go_on_too(self):
        callbacks = ["--callback=" + name + ":monitor=loss,min_delta=100,patience=" + patience
                     for name, patience in (("early_stopping", "4"), ("reduce_lr_on_plateau", "3"), ("reduce_lr_on_plateau", "2"))]
        whole = self.train(*MODEL, *callbacks, "--epochs=9")
        self.train(*MODEL, *callbacks, "--epochs=9", "--steps=17", "--checkpoint-dir=" + self.dir)
        callbacks.append(callbacks.pop(0))
        self.assert_same_training(self.train(*MODEL, *callbacks, "--epochs=9", "--checkpoint-dir=" + self.dir, "--resume"), whole)

    def test_what_is_complete_is_said(self):
        self.train(*MODEL, "--epochs=2", "--checkpoint-dir=" + self.dir)
        before = {name: os.stat(os.path.join(self.dir, name)).st_mtime_ns for name in self.names()}
        outcome = self.lockstep("train", *MODEL, "--epochs=2", "--checkpoint-dir=" + self.dir, "--resume", "--report=" + self.path("r.json"))
        self.assertEqual(outcome.code, DONE, outcome.err)
        self.assertIn("the training is complete: the checkpoint has all of its 14 steps", outcome.err)
        self.assertEqual((len(read_json(self.path("r.json"))["losses"])), 14)
        self.assertEqual(before, {name: os.stat(os.path.join(self.dir, name)).st_mtime_ns for name in self.names()})

    def test_where_there_is_none_it_begins(self):
        outcome = self.lockstep("train", *MODEL, "--checkpoint-dir=" + self.dir, "--resume")
        self.assertEqual(outcome.code, DONE, outcome.err)
        self.assertIn("no checkpoint in", outcome.err)
        self.assertEqual(self.names(), ["checkpoint-00000007.safetensors"])


class Metrics(CheckpointTest):
    def test_those_of_an_epoch_that_is_resumed_are_the_undisturbed_ones(self):
        """What every replica of every worker has counted is in the checkpoint, and is counted once."""
        draw = random.Random(7)
        top = (*MODEL[:2], "--metrics=accuracy,sparse_top_k_categorical_accuracy:k=3", "--class-weight=0:2.5,3:0.1")
        ways = [(1, *self.strategy("mirrored", 3)), (3, "--replicas=1"), *[(1, *self.strategy(*way)) for way in STRATEGIES], (2, "--replicas=2")]
        whole = {}
        for moment in range(MOMENTS):
            kind = moment % 2, moment // 2 % len(ways)
            workers, *way = ways[kind[1]]
            command = ("launch", "-n", str(workers), "--", "train", *(self.binary(330), top)[kind[0]], "--batch=50", "--threads=1", "--epochs=2",
                       "--validation=off", "--quiet", "--report=" + self.path("report.json"), *way)[0 if workers > 1 else 4:]
            every = () if draw.random() < 0.5 else (f"--checkpoint-steps={draw.randrange(1, 5)}",)
            parts = [("--checkpoint-dir=" + self.dir, *every, f"--steps={draw.randrange(1, 14)}"), ("--checkpoint-dir=" + self.dir, "--resume")]
            with self.subTest(moment=moment, command=command, parts=parts):
                for part in ([] if kind in whole else [()]) + parts:
                    outcome = self.lockstep(*command, *part)
                    self.assertEqual(outcome.code, DONE, outcome.err)
                    report = read_json(self.path("report.json"))
                    whole.setdefault(kind, report)
                self.assert_same_training(report, whole[kind])
                self.assertEqual([epoch["examples"] for epoch in report["epochs"]], [330, 330])
                shutil.rmtree(self.dir)


class Killed(CheckpointTest):
    def test_at_random_moments_nothing_is_lost(self):
        """Every third while a file is being written: its folder has a temporary file then."""
        draw = random.Random(11)
        for moment in range(MOMENTS):
            strategy, replicas = STRATEGIES[moment % len(STRATEGIES)]
            command = (*MODEL, *self.strategy(strategy, replicas), "--epochs=40", "--checkpoint-dir=" + self.dir, "--checkpoint-steps=9",
                       "--validation=off")
            with self.subTest(moment=moment, strategy=strategy):
                process = subprocess.Popen([LOCKSTEP, "train", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                self.addCleanup(process.kill)
                end = time.monotonic() + 60
                while not self.names() and process.poll() is None and time.monotonic() < end:
                    time.sleep(0.001)
                time.sleep(draw.random() * 0.2)
                while moment % 3 == 0 and process.poll() is None and time.monotonic() < end and not any(".tmp" in name for name in self.names()):
                    pass
                process.kill()
                process.wait()
                report = self.train(*command, "--resume")
                if not hasattr(self, strategy):
                    setattr(self, strategy, self.train(*(word for word in command if "checkpoint" not in word)))
                self.assert_same_training(report, getattr(self, strategy))
                self.assertFalse([name for name in self.names() if not name.endswith(".safetensors")], self.names())
                shutil.rmtree(self.dir)

    def test_a_signal_ends_it_with_a_checkpoint(self):
        whole = self.train(*MODEL, "--epochs=300", "--validation=off")
        for number, code in ((signal.SIGTERM, TERMINATED), (signal.SIGINT, INTERRUPTED)):
            command = (*MODEL, "--epochs=300", "--validation=off", "--checkpoint-dir=" + self.dir)
            process = subprocess.Popen([LOCKSTEP, "train", *command, "--report=" + self.path("r.json")], stderr=subprocess.DEVNULL)
            self.addCleanup(process.kill)
            while not self.names() and process.poll() is None:
                time.sleep(0.001)
            process.send_signal(number)
            self.assertEqual(process.wait(60), code)
            report = read_json(self.path("r.json"))
            self.assertEqual(report["status"], "interrupted")
            self.assertIn(f"checkpoint-{report['steps']:08}.safetensors", self.names())
            self.assert_same_training(self.train(*command, "--resume"), whole)
            shutil.rmtree(self.dir)


class Files(CheckpointTest):
    def test_the_newest_three_stay_and_others_where_it_is_asked(self):
        self.train(*MODEL, "--epochs=5", "--checkpoint-dir=" + self.dir)
        self.assertEqual(self.names(), [f"checkpoint-{step:08}.safetensors" for step in (21, 28, 35)])
        shutil.rmtree(self.dir)
        self.train(*MODEL, "--epochs=3", "--checkpoint-dir=" + self.dir, "--checkpoint-steps=4", "--checkpoint-keep=2",
                   "--checkpoint-name={epoch:03}-{step}")
        self.assertEqual(self.names(), ["003-20.safetensors", "003-21.safetensors"])

    def test_a_late_one_of_an_earlier_chief_is_older_than_all_of_its_successors(self):
        """Whatever its step is: a resumed elastic training has the next generation."""
        self.train(*MODEL, "--epochs=3", "--checkpoint-dir=" + self.dir)
        late = os.path.join(self.dir, "checkpoint-00000021.safetensors")
        os.unlink(os.path.join(self.dir, "checkpoint-00000014.safetensors"))
        os.rename(late, self.path("late"))
        elastic = (*MODEL, "--elastic=1:2", "--strategy=ring", "--checkpoint-dir=" + self.dir, "--resume", "--checkpoint-keep=2")
        alone = dict(LOCKSTEP_RANK="0", LOCKSTEP_WORLD_SIZE="1", LOCKSTEP_ADDRESS="127.0.0.1:%d" % free_ports(1)[0])
        self.assertEqual(self.train(*elastic, "--epochs=2", environment=alone)["resumed_from_step"], 7)
        self.assertEqual(self.names(), ["checkpoint-00000007.safetensors", "checkpoint-00000014.generation1.safetensors"])
        os.rename(self.path("late"), late)
        self.assertEqual(self.train(*elastic, "--epochs=3", "--checkpoint-name={epoch}-{loss:.1f}", environment=alone)["resumed_from_step"], 14)
        self.assertRegex(" ".join(self.names()), r"^3-\d\.\d\.generation2\.safetensors checkpoint-00000014\.generation1\.safetensors$")
        open(os.path.join(self.dir, "4-1.0.generation3.safetensors"), "wb").close()
        outcome = self.lockstep("train", *MODEL, "--epochs=3", "--checkpoint-dir=" + self.dir, "--resume")
        self.assertIn("4-1.0.generation3.safetensors' is empty, and cannot be used", outcome.err)
        self.assertIn("the checkpoint has all of its 21 steps", outcome.err)

    def test_the_best_one(self):
        report = self.train(*MODEL, "--epochs=4", "--checkpoint-dir=" + self.dir, "--checkpoint-best=loss:max", "--checkpoint-name={epoch}-{loss:.3f}")
        self.assertEqual(self.names(), [f"1-{report['epochs'][0]['loss']:.3f}.safetensors"])

    def test_the_newest_stays_under_the_name_of_an_older_one(self):
        self.train(*MODEL, "--epochs=3", "--checkpoint-dir=" + self.dir)
        oldest = self.names()[0]
        self.train(*MODEL, "--epochs=4", "--checkpoint-dir=" + self.dir, "--resume", "--checkpoint-keep=1", "--checkpoint-name=" + oldest)
        self.assertEqual(self.names(), [oldest])
        self.assertEqual(self.train(*MODEL, "--epochs=4", "--checkpoint-dir=" + self.dir, "--resume")["resumed_from_step"], 28)

    def test_an_older_one_says_nothing_of_its_training_and_is_replaced(self):
        os.mkdir(self.dir)
        for name in ("last.safetensors", "first.safetensors"):
            shutil.copy(FIXTURES + "/checkpoints/older.safetensors", os.path.join(self.dir, name))
        os.truncate(os.path.join(self.dir, "first.safetensors"), 1000)
        command = ("--model=linear", "--dataset=synthetic:shape=2,classes=3,examples=30", "--batch=10", "--checkpoint-dir=" + self.dir,
                   "--checkpoint-name=last", "--resume")
        for epochs in (2, 3):
            report = self.train(*command, f"--epochs={epochs}")
            self.assertEqual((report["resumed_from_step"], report["steps"]), (3 * epochs - 3, 3 * epochs))
        self.assertEqual(self.names(), ["first.safetensors", "last.safetensors"])

    def test_by_time(self):
        self.train(*MODEL, "--epochs=200", "--validation=off", "--checkpoint-dir=" + self.dir, "--checkpoint-seconds=0.05", "--checkpoint-keep=1000")
        self.assertGreater(len(self.names()), 2)

    def test_it_is_a_file_of_weights_too(self):
        self.train(*MODEL, "--checkpoint-dir=" + self.dir, "--save-weights=" + self.path("w.safetensors"))
        path = os.path.join(self.dir, self.names()[0])
        saved, weights = tensors(path), tensors(self.path("w.safetensors"))
        for name, values in weights.items():
            self.assertEqual(saved[name], values)
        self.assertIn("dense/kernel/optimizer_0", saved)
        outcome = self.lockstep("evaluate", "--model=mlp-dropout", MODEL[1], "--initial-weights=" + path)
        self.assertEqual(outcome.code, DONE, outcome.err)

    def test_a_full_disk_stops_nothing(self):
        """A limit on the size of files stands for the disk: a write beyond it fails."""
        self.train(*MODEL, "--epochs=1", "--checkpoint-dir=" + self.dir)
        good = self.names()
        path = self.path("r.json")

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))
        outcome = self.lockstep("train", *MODEL, "--epochs=3", "--checkpoint-dir=" + self.dir, "--resume", "--report=" + path, preexec_fn=limit)
        self.assertEqual(outcome.code, DONE, outcome.err)
        self.assertIn("File too large", outcome.err)
        self.assertIn("the training goes on, and the last good one is", outcome.err)
        self.assertEqual(self.names(), good)
        self.assertEqual(read_json(path)["status"], "done")


class Refusing(CheckpointTest):
    def refused(self, code, says, *options):
        names = {name: os.lstat(os.path.join(self.dir, name)).st_mtime_ns for name in self.names()}
        outcome = self.lockstep("train", *MODEL, *options)
        self.assertEqual(outcome.code, code, outcome.err)
        for text in (says,) if isinstance(says, str) else says:
            self.assertIn(text, outcome.err)
        self.assertEqual(names, {name: os.lstat(os.path.join(self.dir, name)).st_mtime_ns for name in self.names()})
        return outcome.err

    def test_a_folder_of_an_earlier_training(self):
        self.train(*MODEL, "--checkpoint-dir=" + self.dir)
        self.refused(USAGE, "--resume", "--checkpoint-dir=" + self.dir)

    def test_a_folder_of_a_training_that_runs(self):
        """Also while it is empty; the end of that training, by whatever, makes it free."""
        command = (*MODEL, "--validation=off", "--checkpoint-dir=" + self.dir)
        process = subprocess.Popen([LOCKSTEP, "train", *command, "--epochs=1000000", "--checkpoint-steps=1000000", "--quiet"])
        self.addCleanup(process.kill)
        while not os.path.exists(os.path.join(self.dir, ".lock")) and process.poll() is None:
            time.sleep(0.001)
        time.sleep(0.1)  # the file is there a moment before it is locked
        for options in ((), ("--resume",)):
            self.refused(USAGE, f"another training that is running keeps its checkpoints in '{self.dir}'", "--checkpoint-dir=" + self.dir, *options)
        process.kill()
        process.wait()
        self.train(*command)
        self.assertEqual(self.names(), ["checkpoint-00000007.safetensors"])

    def test_other_metrics_within_an_epoch(self):
        self.train(*MODEL, "--steps=3", "--metrics=accuracy,sparse_top_k_categorical_accuracy:k=3", "--checkpoint-dir=" + self.dir)
        on = ("--checkpoint-dir=" + self.dir, "--resume")
        for metrics in ("accuracy", "accuracy,sparse_top_k_categorical_accuracy:k=3,name=top"):
            err = self.refused(USAGE, "with other metrics; give the same --metrics", *on, "--metrics=" + metrics)
            self.assertNotIn("resuming from", err)  # nothing was taken before it was looked at

    def test_another_model_optimizer_batch_seed_and_data(self):
        self.train(*MODEL, "--checkpoint-dir=" + self.dir)
        on = ("--checkpoint-dir=" + self.dir, "--resume")
        self.refused(USAGE, "optimizer adam", *on, "--optimizer=sgd")
        self.refused(USAGE, "--seed=0", *on, "--seed=1")
        self.refused(USAGE, ("--shuffle=on", "--shuffle=off"), *on, "--shuffle=off")
        for option, value, code, says in ((0, "--model=mlp", BAD_INPUT, "is of another model"), (2, "--batch=40", USAGE, "--batch=50"),
                                          (1, "--dataset=synthetic:examples=331", USAGE, "other data")):
            words = list(MODEL)
            words[option] = value
            outcome = self.lockstep("train", *words, *on)
            self.assertEqual(outcome.code, code, outcome.err)
            self.assertIn(says, outcome.err)

    def test_data_is_known_by_what_it_is(self):
        """Neither by its path nor by how the option is spelled: tables, images, and text."""
        rows = [f"{i % 7 / 4},{i % 5},{'ab'[i % 2]}" for i in range(40)]
        other = rows[:1] + [rows[1][:-1] + "a", rows[2][:-1] + "b"] + rows[3:]  # two labels changed places
        for folder in ("one", "two"):
            os.mkdir(self.path(folder))
            shutil.copytree(FIXTURES + "/images/classes", self.path(f"{folder}/set"))

        def table(lines):
            with open(self.path("one/d.csv"), "w") as file:
                file.write("\n".join(["x,y,kind", *lines, ""]))

        def train(data, model, code=DONE):
            outcome = self.lockstep("train", "--model=" + self.path(model), "--dataset=" + data, "--batch=8", "--quiet", "--resume",
                                    "--checkpoint-dir=" + self.path(model) + ".checkpoints", f"--epochs={next(epochs)}")
            self.assertEqual(outcome.code, code, (data, outcome.err))
            if code:
                self.assertIn("other data", outcome.err)

        for name, shape, layers in (("table", [2], []), ("images", [4, 4, 3], [{"class_name": "Flatten", "config": {}}])):
            layers = [{"class_name": "InputLayer", "config": {"batch_shape": [None, *shape]}}, *layers,
                      {"class_name": "Dense", "config": {"units": 2 if name == "table" else 3}}]
            write_json(self.path(name), {"class_name": "Sequential", "config": {"layers": layers}})
        epochs = iter(range(1, 100))
        table(rows)
        shutil.copy(self.path("one/d.csv"), self.path("two/other-name.csv"))
        train(f"csv:file={self.path('one/d.csv')},label=kind", "table")
        train(f"csv:label=3,file={self.path('two/other-name.csv')}", "table")
        for lines in (other, rows[::-1], rows[:-1]):
            table(lines)
            train(f"csv:file={self.path('one/d.csv')},label=kind", "table", USAGE)
        train(f"images:dir={self.path('one/set')},resize=4x4", "images")
        train(f"images:resize=4x4,cache=memory,dir={self.path('two/set')}/", "images")
        train(f"images:dir={self.path('one/set')},resize=4x4,random_flip=horizontal", "images", USAGE)
        with open(self.path("one/set/b/colours.png"), "ab") as file:
            file.write(b"?")
        train(f"images:dir={self.path('one/set')},resize=4x4", "images", USAGE)

    def test_a_damaged_one_is_named_and_the_one_before_is_taken(self):
        whole = self.train(*MODEL, "--epochs=4")
        self.train(*MODEL, "--epochs=3", "--checkpoint-dir=" + self.dir)
        newest, before = (os.path.join(self.dir, name) for name in reversed(self.names()[-2:]))
        for damage in ("bit", "cut"):
            with open(newest, "r+b") as file:
                if damage == "cut":
                    file.truncate(os.path.getsize(newest) - 1000)
                else:
                    file.seek(-5000, 2)
                    byte = file.read(1)
                    file.seek(-1, 1)
                    file.write(bytes([byte[0] ^ 1]))
            outcome = self.lockstep("train", *MODEL, "--epochs=4", "--checkpoint-dir=" + self.dir, "--resume", "--report=" + self.path("r.json"))
            self.assertEqual(outcome.code, DONE, outcome.err)
            self.assertRegex(outcome.err, re.escape(newest) + r"'? ?(is damaged|cannot be used|:)")
            self.assertIn(f"resuming from '{before}'", outcome.err)
            self.assert_same_training(read_json(self.path("r.json")), whole)
            newest, before = (os.path.join(self.dir, name) for name in reversed(self.names()[-2:]))
        for name in self.names():
            with open(os.path.join(self.dir, name), "r+b") as file:
                file.truncate(5000)
        self.refused(BAD_INPUT, "no checkpoint in", "--checkpoint-dir=" + self.dir, "--resume")

    def unusable(self):
        """What may stand under a checkpoint's name and cannot be read, each with what is said of it."""
        def write(data):
            return lambda path: open(path, "wb").write(data) and None
        return {"empty": (write(b""), "is empty"), "text": (write(b"mine"), "is damaged, or no safetensors file"),
                "head": (write(struct.pack("<Q", 1 << 40) + b"{"), "is damaged, or no safetensors file"),
                "other": (write(struct.pack("<Q", 2) + b"{}"), "is no checkpoint of Lockstep"),
                "directory": (os.mkdir, "is a directory"), "link": (lambda path: os.symlink("nowhere", path), "cannot be opened: No such file"),
                "disk": (lambda path: os.symlink("/proc/self/mem", path), "cannot be read: Input/output error")}

    def test_what_cannot_be_read_is_named_and_never_begins_anew(self):
        for kind, (make, says) in self.unusable().items():
            with self.subTest(kind):
                os.mkdir(self.dir)
                make(path := os.path.join(self.dir, "checkpoint-00000007.safetensors"))
                err = self.refused(BAD_INPUT, ("no checkpoint in", f"'{path}' {says}"), "--checkpoint-dir=" + self.dir, "--resume")
                self.assertEqual(err.count(path), 1, err)
                if kind == "empty":
                    self.refused(USAGE, "holds checkpoints", "--checkpoint-dir=" + self.dir)
                shutil.rmtree(self.dir)

    def test_the_good_one_before_what_cannot_be_read_is_taken(self):
        self.train(*MODEL, "--checkpoint-dir=" + self.dir)
        paths = [os.path.join(self.dir, f"checkpoint-{step:08}.safetensors") for step in range(14, 21)]
        for (make, _), path in zip(self.unusable().values(), paths, strict=True):
            make(path)
        outcome = self.lockstep("train", *MODEL, "--epochs=2", "--checkpoint-dir=" + self.dir, "--resume")
        self.assertEqual(outcome.code, DONE, outcome.err)
        self.assertIn("resuming from", outcome.err)
        for path in paths[1:]:
            self.assertEqual(outcome.err.count(path), 1, outcome.err)
        self.assertIn(f"'{paths[0]}' is not of this training, and is not replaced", outcome.err)
        self.assertEqual(len(self.names()), 8)

    def test_what_may_not_be_read_is_no_new_beginning(self):
        if os.geteuid() != 0:
            become = None
        else:
            def become():
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
        self.train(*MODEL, "--checkpoint-dir=" + self.dir)
        for path, mode in ((self.folder, 0o777), (self.dir, 0o777), (os.path.join(self.dir, ".lock"), 0o666),
                           (path := os.path.join(self.dir, self.names()[0]), 0)):
            os.chmod(path, mode)
        try:
            outcome = self.lockstep("train", *MODEL, "--checkpoint-dir=" + self.dir, "--resume", preexec_fn=become)
        except PermissionError:
            self.skipTest("another user than root may not run " + LOCKSTEP)
        self.assertEqual(outcome.code, BAD_INPUT, outcome.err)
        self.assertIn(f"'{path}' cannot be opened: Permission denied", outcome.err)

    def test_files_of_others_stay_as_they_are(self):
        """Another program's under another name, and another training's: neither is removed by --checkpoint-keep, nor replaced."""
        other = self.path("other")
        self.train(*MODEL, "--seed=1", "--steps=3", "--checkpoint-dir=" + other, "--save-weights=" + self.path("weights.safetensors"))
        self.train(*MODEL, "--checkpoint-dir=" + self.dir)
        strangers = {"weights.safetensors": self.path("weights.safetensors")}
        for name in ("other.safetensors", "checkpoint-00000014.safetensors"):
            strangers[name] = os.path.join(other, "checkpoint-00000003.safetensors")
        for name, path in strangers.items():
            shutil.copy(path, os.path.join(self.dir, name))
        outcome = self.lockstep("train", *MODEL, "--epochs=3", "--checkpoint-keep=1", "--checkpoint-dir=" + self.dir, "--resume")
        self.assertEqual(outcome.code, DONE, outcome.err)
        self.assertIn("weights.safetensors' is no checkpoint of Lockstep; it is left alone", outcome.err)
        self.assertIn("checkpoint-00000014.safetensors' is not of this training, and is not replaced", outcome.err)
        self.assertEqual(self.names(), sorted([*strangers, "checkpoint-00000021.safetensors"]))
        for name, path in strangers.items():
            with open(path, "rb") as one, open(os.path.join(self.dir, name), "rb") as here:
                self.assertEqual(one.read(), here.read(), name)

    def test_a_folder_with_weights_alone_has_no_checkpoint(self):
        self.train(*MODEL, "--save-weights=" + self.path("weights.safetensors"))
        os.mkdir(self.dir)
        shutil.move(self.path("weights.safetensors"), self.dir)
        self.assertIsNone(self.train(*MODEL, "--checkpoint-dir=" + self.dir, "--resume")["resumed_from_step"])

    def test_a_folder_that_cannot_be_written(self):
        self.refused(BAD_INPUT, "cannot create the folder", "--checkpoint-dir=/proc/nowhere")
        with open(self.path("file"), "wb"):
            self.refused(BAD_INPUT, "cannot write in the folder", "--checkpoint-dir=" + self.path("file"))

    def test_options_that_make_no_sense(self):
        on = "--checkpoint-dir=" + self.dir
        for options, says in ((("--resume",), "--resume without --checkpoint-dir"), (("--checkpoint-steps=9",), "without --checkpoint-dir"),
                              ((on, "--checkpoint-name={foo}"), "cannot be a name"), ((on, "--checkpoint-name=a/b"), "cannot be a name"),
                              ((on, "--checkpoint-name={step"), "cannot be a name"), ((on, "--checkpoint-name={step:s}"), "cannot be a name"),
                              ((on, "--checkpoint-name={loss:n}"), "cannot be a name"), ((on, "--checkpoint-name={loss:..2f}"), "cannot be a name"),
                              ((on, "--checkpoint-name={loss:9999999999f}"), "cannot be a name"), ((on, "--checkpoint-best=foo"), "expected a metric"),
                              ((on, "--checkpoint-best=loss:least"), "expected a metric"), ((on, "--checkpoint-seconds=0"), "more than 0"),
                              ((on, "--checkpoint-best=loss", "--checkpoint-steps=2"), "exclude each other"), ((on, "--checkpoint-keep=0"), "keep=0")):
            with self.subTest(options):
                self.refused(USAGE, says, *options)
                self.assertEqual(self.names(), [])


if __name__ == "__main__":
    main()
