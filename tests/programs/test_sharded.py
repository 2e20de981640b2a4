# SPDX-License-Identifier: Apache-2.0
"""Strategy sharded over processes: the bits of mirrored, and checkpoints of states that no process has as a whole."""
import glob
import json
import os
import signal
import subprocess
import time

import engines
from support import DONE, FAILED, INTERRUPTED, LOCKSTEP, PEER_LOST, USAGE, ProgramTest, main, read_json, write_json

DATA = "--dataset=synthetic:shape=28x28x1,classes=10,examples=96"
TRAINING = ("train", "--model=cnn", DATA, "--threads=1", "--seed=3", "--quiet", "--batch=30")
COMPRESS = "--compress=topk:fraction=0.05"  # makes all of a sum, so the same one as under mirrored
MIRRORED = ("--strategy=mirrored:collective=ring", "--replicas=4")


def tiny(inputs, classes):
    """Of so few parameters that rank 0 has the states of all."""
    return ("train", "--model=linear", f"--dataset=synthetic:shape={inputs},classes={classes},examples=40", "--device=cpu", "--batch=8",
            "--threads=1", "--seed=3", "--quiet")


class Sharded(ProgramTest):
    def trained(self, engine, workers, *options, training=TRAINING):
        report, weights = self.path("report.json"), self.path("out.safetensors")
        done = engine.run([LOCKSTEP, *training, "--report=" + report, "--save-weights=" + weights, *engine.options, *options], workers,
                          self.folder)
        self.assertEqual(set(done.codes), {DONE}, done.out + done.err)
        with open(report) as file, open(weights, "rb") as saved:
            return json.load(file)["losses"], saved.read()


class SameBits(Sharded):
    """50 steps, with averages of the weights, which lie in parts, too."""

    def check(self, workers, replicas, *options, stage=1, training=TRAINING):
        options = ("--steps=50", "--epochs=99", "--optimizer=adam:learning_rate=0.002,use_ema=on", *options)
        expected = self.trained(engines.Alone(), 1, MIRRORED[0] + ",bucket=2000", MIRRORED[1], *options, training=training)
        found = self.trained(engines.Launch(), workers, f"--strategy=sharded:stage={stage},bucket=2000", f"--replicas={replicas}", *options,
                             training=training)
        self.assertEqual(len(expected[0]), 50)
        self.assertEqual(found[0], expected[0])
        self.assertTrue(found[1] == expected[1], "the weights differ")

    def test_two_workers_of_two_replicas(self):
        for stage, more in ((1, ()), (2, ()), (3, ()), (2, (COMPRESS,))):
            with self.subTest(stage=stage, more=more):
                self.check(2, 2, *more, stage=stage)

    def test_four_workers(self):
        for more in ((), (COMPRESS,)):
            self.check(4, 1, "--microbatches=2", *more, stage=3)

    def test_layers_that_do_not_learn(self):
        """Some of a model, and all but the last."""
        for frozen, more in (((0, 3), ()), ((0, 1, 3), ()), ((0, 3), (COMPRESS, "--accumulate=2"))):
            layers = [("Conv2D", {"filters": 8, "kernel_size": 3, "use_bias": False}), ("BatchNormalization", {}), ("Flatten", {}),
                      ("Dense", {"units": 24, "activation": "relu"}), ("Dense", {"units": 10, "activation": "softmax"})]
            write_json(self.path("tuned.json"), {"class_name": "Sequential", "config": {"name": "tuned", "layers": [
                {"class_name": "InputLayer", "config": {"batch_shape": [None, 28, 28, 1], "name": "input"}}, *(
                    {"class_name": kind, "config": {"name": f"layer{i}", "trainable": i not in frozen, **config}}
                    for i, (kind, config) in enumerate(layers))]}})
            with self.subTest(frozen=frozen, more=more):
                self.check(2, 2, *more, stage=3, training=("train", "--model=" + self.path("tuned.json"), *TRAINING[2:]))

    def test_evaluate_and_predict(self):
        saved, found = self.path("saved.safetensors"), {}
        self.assertEqual(self.lockstep(*TRAINING, "--save-weights=" + saved).code, DONE)
        common = ("--model=cnn", DATA, "--split=train", "--threads=1", "--quiet", "--batch=10", "--initial-weights=" + saved)
        for strategy, workers in (("mirrored", 1), ("sharded:stage=3,bucket=20000", 1), ("sharded:stage=3,bucket=20000", 2)):
            engine = engines.Launch() if workers > 1 else engines.Alone()
            options = (*common, "--strategy=" + strategy, f"--replicas={4 // workers}")
            report, outputs = self.path("report.json"), self.path("outputs.npy")
            for command in (("evaluate", *options, "--report=" + report), ("predict", *options, "--out=" + outputs)):
                done = engine.run([LOCKSTEP, *command], workers, self.folder)
                self.assertEqual(set(done.codes), {DONE}, done.out + done.err)
            with open(report) as file, open(outputs, "rb") as data:
                found[strategy, workers] = json.load(file)["loss"], data.read()
        self.assertEqual(len(set(found.values())), 1)

    def test_tiles_read_one_small_bucket_each(self):
        for model, shape in (("cnn", "28x28x1"), ("resnet", "32x32x3")):
            training = ("train", "--model=" + model, f"--dataset=synthetic:shape={shape},classes=10,examples=48", "--device=cpu", "--threads=1",
                        "--seed=3", "--quiet", "--batch=16", "--replicas=2")
            expected = self.trained(engines.Alone(), 1, MIRRORED[0] + ",bucket=20000", training=training)
            with self.subTest(model=model):
                found = self.trained(engines.Alone(), 1, "--strategy=sharded:stage=3,bucket=20000", training=training)
                self.assertTrue(found == expected)


class Checkpoints(Sharded):
    def files(self):
        return sorted(glob.glob(self.path("checkpoints/*.safetensors")))

    def kill_after(self, count, command):
        """Starts it, and kills all of its processes at once when it has written so many checkpoints."""
        process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        end = time.monotonic() + 120
        while len(self.files()) < count and process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        code = process.poll()
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()  # until the workers have ended, too, which hold the folder's lock
        self.assertIsNone(code, said)

    def test_a_killed_training_goes_on_in_another_world_and_under_mirrored(self):
        folder = ("--checkpoint-dir=" + self.path("checkpoints"), "--checkpoint-keep=99")
        every = (*folder, "--checkpoint-steps=5")
        options = ("--epochs=10", "--optimizer=adam")  # 40 steps
        whole = self.trained(engines.Alone(), 1, *MIRRORED, *options)
        self.kill_after(3, [LOCKSTEP, "launch", "-n2", "--", LOCKSTEP, *TRAINING, "--strategy=sharded:stage=3", "--replicas=2", "--epochs=999",
                            *every])
        for path in self.files()[3:]:
            os.unlink(path)
        for path in glob.glob(self.path("checkpoints/*.tmp")):
            os.unlink(path)
        self.assertEqual(len(self.files()), 3)
        # The same number of replicas: the bits of the run that nobody killed.
        resumed = self.trained(engines.Alone(), 1, *MIRRORED, *options, *folder, "--resume")
        self.assertEqual(resumed[0], whole[0])
        self.assertTrue(resumed[1] == whole[1], "the weights differ")
        for path in self.files()[3:]:
            os.unlink(path)
        for workers, replicas, stage in ((4, 1, 3), (3, 1, 3), (1, 2, 1)):
            with self.subTest(workers=workers, replicas=replicas, stage=stage):
                engine = engines.Launch() if workers > 1 else engines.Alone()
                found = self.trained(engine, workers, f"--strategy=sharded:stage={stage}", f"--replicas={replicas}", *options, *folder,
                                     "--resume")
                self.assertEqual(len(found[0]), 40)
                if workers * replicas == 4:
                    self.assertEqual(found, whole)
                for one, other in zip(found[0], whole[0]):
                    self.assertAlmostEqual(one, other, delta=0.05 * other)
                for path in self.files()[3:]:
                    os.unlink(path)

    def test_a_model_of_which_rank_0_has_all(self):
        options = ("--optimizer=adam",)
        for training in (tiny(2, 2), tiny(2, 1), tiny(10, 1)):
            whole = self.trained(engines.Alone(), 1, *MIRRORED[:1], "--replicas=3", *options, "--epochs=3", training=training)
            self.assertEqual(len(whole[0]), 15)
            for workers, replicas in ((3, 1), (1, 3)):
                with self.subTest(training=training, workers=workers):
                    folder = "--checkpoint-dir=" + self.path(f"{workers}-{training[2]}")
                    engine = engines.Launch() if workers > 1 else engines.Alone()
                    options_of = ("--strategy=sharded", f"--replicas={replicas}", *options, folder, "--resume")
                    self.trained(engine, workers, *options_of, "--epochs=2", training=training)
                    self.assertEqual(self.trained(engine, workers, *options_of, "--epochs=3", training=training), whole)

    def test_seconds(self):
        """The chief has the clock, and the others hear of it."""
        self.trained(engines.Launch(), 2, "--strategy=sharded", "--epochs=10", "--checkpoint-dir=" + self.path("checkpoints"),
                   "--checkpoint-seconds=0.02", "--checkpoint-keep=99")
        self.assertGreater(len(self.files()), 1)


class Memory(Sharded):
    def test_no_worker_has_a_whole_model_while_the_chief_saves(self):
        """41 MB of weights and 82 of states, of which the largest variable has 4: a copy would be seen. Nor when it goes on.

        Of two runs of `sharded` one may have 24 MB more at its peak than the other, saving or not: so the least of some runs that save
        is held against the most of those that do not.
        """
        layers = [{"class_name": "InputLayer", "config": {"batch_shape": [None, 1000], "name": "input"}}] + [
            {"class_name": "Dense", "config": {"name": f"dense{i}", "units": 1000, "activation": "tanh"}} for i in range(10)] + [
            {"class_name": "Dense", "config": {"name": "out", "units": 2, "activation": "softmax"}}]
        write_json(self.path("wide.json"), {"class_name": "Sequential", "config": {"name": "wide", "layers": layers}})
        peaks = {}
        mirrored, whole, parts = "multi-worker-mirrored", "sharded", "sharded:stage=3"
        for strategy, saves in [(whole, False), (whole, True)] * 3 + [(mirrored, False), (mirrored, True), (parts, False), (parts, True),
                                                                      (parts, "again")]:
            report, runs = self.path("report.json"), peaks.setdefault((strategy, saves), [])
            folder = self.path(f"saved-{strategy[-7:]}-{len(runs)}")
            more = ("--checkpoint-dir=" + folder, "--checkpoint-steps=2", "--resume") if saves else ()
            more += ("--save-weights=" + self.path("out.safetensors"),) if saves and strategy == parts else ()
            done = engines.Launch().run([LOCKSTEP, "train", "--model=" + self.path("wide.json"), "--threads=1", "--seed=3", "--quiet",
                                         "--dataset=synthetic:shape=1000,classes=2,examples=32", "--batch=8",
                                         "--epochs=2", f"--steps={6 if saves == 'again' else 3}",
                                         "--strategy=" + strategy, "--optimizer=adam", "--report=" + report, *more], 2, self.folder)
            self.assertEqual(set(done.codes), {DONE}, done.out + done.err)
            runs.append(read_json(report)["peak_rss_bytes"] / 1e6)
        if "address" not in os.environ.get("LOCKSTEP_SANITIZE", ""):
            for strategy, saves in ((whole, True), (parts, True), (parts, "again")):
                self.assertLess(min(peaks[strategy, saves]), max(peaks[strategy, False]) + 20, peaks)
            self.assertGreater(min(peaks[mirrored, True]), max(peaks[mirrored, False]) + 60, peaks)  # so it would be seen


class Interrupted(Sharded):
    def test_an_evaluation_ends_for_all_workers_soon(self):
        """Of batches for some minutes. One is interrupted, or killed."""
        data = "--dataset=synthetic:shape=28x28x1,classes=10,examples=100000"
        predict = ("predict", "--out=" + self.path("outputs.npy"))
        for command, sent, code, says in ((("evaluate",), signal.SIGINT, INTERRUPTED, "interrupted"), (predict, signal.SIGINT, INTERRUPTED, "interrupted"),
                                          (("evaluate",), signal.SIGKILL, PEER_LOST, "worker 1 was killed by SIGKILL")):
            process = subprocess.Popen([LOCKSTEP, "launch", "-n2", "--", LOCKSTEP, *command, "--model=cnn", data, "--split=train", "--threads=1",
                                        "--batch=2", "--strategy=sharded:stage=3,bucket=20000"], cwd=self.folder,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            workers, end = [], time.monotonic() + 60
            while len(workers) < 2 and time.monotonic() < end:
                time.sleep(0.05)
                with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
                    workers = file.read().split()
            time.sleep(3)
            os.kill(int(workers[1]), sent)
            said, _ = process.communicate(timeout=100)
            self.assertEqual(process.returncode, code, said)
            self.assertIn(says, said)


class Refused(Sharded):
    def test_by_name(self):
        for options, says in ((("--strategy=sharded:stage=2", "--reproducible=4"), "no replica with the gradients of a whole step"),
                              (("--strategy=sharded:stage=3", "--reproducible=4"), "no replica with the gradients of a whole step"),
                              (("--strategy=sharded", "--optimizer=lamb"), "lamb needs the norm of whole variables"),
                              (("--strategy=sharded:stage=4",), "stage")):
            with self.subTest(options=options):
                self.refused(USAGE, *TRAINING, "--replicas=2", *options, says=(says,))

    def test_histograms_of_variables_in_parts(self):
        folder = self.path("board")
        options = ("--strategy=sharded:stage=3", "--steps=2")
        done = engines.Launch().run([LOCKSTEP, *TRAINING, *options, "--tensorboard=" + folder], 2, self.folder)
        self.assertIn(USAGE, done.codes, done.out + done.err)
        self.assertIn("callback: under strategy 'sharded' workers have parts of variables", done.err)
        done = engines.Launch().run([LOCKSTEP, *TRAINING, *options, "--callback=tensorboard:log_dir=" + folder], 2, self.folder)
        self.assertEqual(set(done.codes), {DONE}, done.out + done.err)

    def test_a_wire_that_has_no_effect_is_said(self):
        says = "warning: --wire: no effect: under strategy 'sharded'"
        wide = ("train", "--model=mlp", *TRAINING[2:])
        for training, options, said in ((tiny(2, 2), ("--wire=bfloat16",), True), (tiny(2, 2), (), False), (wide, ("--wire=bfloat16",), False)):
            with self.subTest(training=training, options=options):
                done = self.lockstep(*training, "--strategy=sharded", "--replicas=2", "--steps=1", *options)
                self.assertEqual(done.code, DONE, done.err)
                self.assertEqual(says in done.err, said, done.err)

    def test_memory_that_is_none(self):
        for text in ("-5", "1e30"):
            self.refused(USAGE, *TRAINING, f"--device=cpu:memory={text}", says=("memory",))
        self.refused(FAILED, *(text.replace("=cpu", "=cpu:memory=1000") for text in tiny(2, 1)), says=(" kB of memory left",))

    def test_elastic(self):
        """Also where this model, or this number of workers, has all states on one rank."""
        for training, workers in ((TRAINING, 2), (TRAINING, 1), (tiny(2, 1), 2)):
            with self.subTest(training=training, workers=workers):
                done = engines.Launch().run([LOCKSTEP, *training, "--strategy=sharded", "--elastic=1:2"], workers, self.folder)
                self.assertEqual(set(done.codes), {USAGE}, done.out + done.err)
                self.assertIn("--elastic: under strategy 'sharded' each worker holds a part", done.err)


if __name__ == "__main__":
    main()
