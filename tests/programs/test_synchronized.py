# SPDX-License-Identifier: Apache-2.0
"""Batch normalization with the statistics of all replicas (`synchronized`): what one device computes, under every strategy."""
import json
import math
import os
import struct

from support import DONE, FAILED, PEER_LOST, USAGE, ProgramTest, main, tensors, write_json

FAULTS = "--plugin-path=" + os.environ["LOCKSTEP_FAULTS"]
EXAMPLES = 23
LOSSES = 10
TOLERANCE = 1e-5
REDUCED = ("ring", "hierarchical-copy:groups=2", "two-level")
STORED = ("central-storage", "parameter-server:mode=sync")


def layer(class_name, **config):
    return {"class_name": class_name, "config": config}


def npy(path, descr, shape, values):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (63 - (len(header) + 10) % 64) + b"\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
        file.write(struct.pack(f"<{len(values)}{descr[1:].replace('f4', 'f').replace('i4', 'i')}", *values))


class Synchronized(ProgramTest):
    def setUp(self):
        super().setUp()
        self.write_data(range(EXAMPLES))
        for name, synchronized in (("own", False), ("all", True)):
            write_json(self.path(name + ".json"), layer("Sequential", name="model", layers=[
                layer("InputLayer", batch_shape=[None, 6, 6, 2]),
                layer("Conv2D", name="conv", filters=4, kernel_size=[3, 3]),
                layer("BatchNormalization", name="first", synchronized=synchronized, momentum=0.8),
                layer("Activation", name="relu", activation="relu"),
                layer("Flatten", name="flat"),
                layer("Dense", name="dense", units=8),
                layer("BatchNormalization", name="second", synchronized=synchronized, momentum=0.8),
                layer("Activation", name="tanh", activation="tanh"),
                layer("Dense", name="scores", units=3)]))

    def write_data(self, order):
        pixels, count = 6 * 6 * 2, EXAMPLES * 6 * 6 * 2
        values = [math.sin(0.37 * k * k + k) + k / count for k in range(count)]
        npy(self.path("x.npy"), "<f4", (EXAMPLES, 6, 6, 2), [v for k in order for v in values[k * pixels:(k + 1) * pixels]])
        npy(self.path("y.npy"), "<i4", (EXAMPLES,), [k * 5 % 3 for k in order])

    def setting(self, name):
        return ("--model=" + self.path(name + ".json"), f"--dataset=arrays:x={self.path('x.npy')},y={self.path('y.npy')}",
                "--loss=sparse_categorical_crossentropy:from_logits=true")

    def run_model(self, name, replicas, strategy, batch=10, *options, epochs=4, workers=1):
        """Losses, weights afterwards and the report. `replicas` are those of a worker."""
        out = self.path("out.safetensors")
        report = self.train(*self.setting(name), "--optimizer=sgd:learning_rate=0.01", f"--batch={batch}", f"--epochs={epochs}",
                            f"--replicas={replicas}", f"--strategy={strategy}", "--save-weights=" + out, *options,
                            under=("launch", f"-n{workers}", "--") if workers > 1 else ())
        with open(out, "rb") as file:
            saved = file.read()
        return report["losses"], tensors(out), report, saved

    def check_near(self, found, expected, tolerance=TOLERANCE):
        self.assertGreaterEqual(len(expected[0]), LOSSES)
        for one, other in zip(found[0][:LOSSES], expected[0][:LOSSES]):
            self.assertAlmostEqual(one, other, delta=tolerance)
        for name, (shape, values) in expected[1].items():
            self.assertEqual(found[1][name][0], shape)
            for one, other in zip(found[1][name][1], values):
                self.assertAlmostEqual(one, other, delta=tolerance, msg=name)

    def test_it_is_one_device_whatever_the_replicas_and_strategy(self):
        # 23 examples in batches of 10: on 4 replicas 3 3 2 2, and at the end 1 1 1 0; in batches of 7: on 2 replicas 4 3 and 1 1, on
        # 5 replicas 2 2 1 1 1 and 1 1 0 0 0.
        for batch, counts in ((10, (4,)), (7, (2, 5))):
            one = self.run_model("own", 1, "one-device", batch)
            self.check_near(self.run_model("all", 1, "one-device", batch), one)
            for replicas in counts:
                for strategy in REDUCED + STORED:
                    if strategy.startswith("hierarchical") and replicas == 5:
                        strategy = "hierarchical-copy"
                    with self.subTest(batch=batch, replicas=replicas, strategy=strategy):
                        self.check_near(self.run_model("all", replicas, strategy, batch), one)

    def test_on_the_reference_device(self):
        one = self.run_model("own", 1, "one-device", 10, "--device=reference")
        self.check_near(self.run_model("all", 5, "ring", 10, "--device=reference"), one)

    def test_a_run_is_the_same_twice_and_on_all_its_replicas(self):
        for name in ("own", "all"):
            for strategy in ("ring", "central-storage", "parameter-server:mode=sync"):
                with self.subTest(name=name, strategy=strategy):
                    first, second = self.run_model(name, 5, strategy), self.run_model(name, 5, strategy)
                    self.assertEqual(first[0], second[0])
                    self.assertEqual(first[3], second[3])
                    hashes = first[2]["parameter_hashes"]
                    self.assertEqual((len(hashes), len(set(hashes))), (5, 1))

    def test_statistics_of_shares_are_saved_and_evaluated_the_same_on_every_replica(self):
        one, own = self.run_model("own", 1, "one-device"), self.run_model("own", 5, "ring")
        self.assertGreater(max(abs(a - b) for a, b in zip(one[0][:LOSSES], own[0][:LOSSES])), 100 * TOLERANCE)
        scores = []
        for replicas in (1, 2, 5):
            done = self.lockstep("evaluate", *self.setting("own"), "--initial-weights=" + self.path("out.safetensors"),
                                 f"--replicas={replicas}", "--batch=10")
            self.assertEqual(done.code, DONE, done.err)
            scores.append(done.out.split(" - ")[2:])  # loss and accuracy
            self.assertEqual(scores[-1], scores[0])
        self.assertIn("loss: ", scores[0][0])

    def test_passes_have_the_examples_of_one_device_whatever_the_replicas(self):
        # Steps of 21 and 2 examples, the latter in passes of 1, 1 and 0; of 23 in passes of 8, 8 and 7; of 20 and 3, in passes of
        # batches that are cut again; and of 10, 10 and 3.
        for batch, passes, epochs in ((7, ("--accumulate=3",), 5), (23, ("--accumulate=3",), 10), (10, ("--accumulate=2", "--microbatches=2"), 5),
                                      (10, ("--microbatches=3",), 4)):
            one = self.run_model("own", 1, "one-device", batch, *passes, epochs=epochs)
            for replicas, strategy, workers in ((1, "one-device", 1), (2, "ring", 1), (3, "central-storage", 1), (4, "parameter-server:mode=sync", 1),
                                                (2, "ring", 2)):
                with self.subTest(batch=batch, passes=passes, replicas=replicas, strategy=strategy, workers=workers):
                    self.check_near(self.run_model("all", replicas, strategy, batch, *passes, epochs=epochs, workers=workers), one)

    def test_passes_are_shared_by_weights(self):
        one = self.run_model("own", 1, "one-device", 10, "--microbatches=3")
        found = self.run_model("all", 2, "ring", 10, "--microbatches=3", "--share=3,1")
        self.check_near(found, one)
        self.assertEqual(found[2]["replica_batches"], [7, 3])  # of passes of 4, 3 and 3 examples

    def test_the_collective_is_named(self):
        for strategy, expected in (("ring", "ring"), ("hierarchical-copy", "hierarchical-copy"), ("two-level", "two-level"),
                                   ("central-storage", "direct"), ("parameter-server:mode=sync", "direct")):
            with self.subTest(strategy=strategy):
                report = self.run_model("all", 2, strategy)[2]
                named = report["synchronized_statistics"]
                self.assertEqual((named["collective"], named["transport"], named["reductions_per_pass"]), (expected, "local", 4))
                self.assertGreater(named["bytes_per_pass_per_rank"], 0)
                self.assertIn(expected, [plugin["name"] for plugin in report["plugins"]])
        for name, replicas, strategy in (("own", 2, "ring"), ("own", 2, "central-storage"), ("all", 1, "one-device")):
            self.assertNotIn("synchronized_statistics", self.run_model(name, replicas, strategy)[2])
        done = self.lockstep("train", *self.setting("all"), "--replicas=2", "--strategy=central-storage", "--steps=1")
        self.assertEqual(done.code, DONE, done.err)
        self.assertIn("strategy central-storage (statistics: direct over local)", done.out)

    def test_strategies_whose_replicas_step_alone_are_refused(self):
        for mode in ("async", "bounded"):
            options = (*self.setting("all"), f"--strategy=parameter-server:mode={mode}", "--batch=10")
            self.refused(USAGE, "train", "--quiet", *options, "--replicas=2",
                         says=("'parameter-server' with these options", "layer 'first'", "synchronized", "parameter-server:mode=sync"))
            self.train(*options, "--replicas=1", "--steps=2")
            self.train(*self.setting("own"), *options[3:], "--replicas=2", "--steps=2")
            done = self.lockstep("evaluate", *self.setting("all"), *options[3:], "--replicas=2")
            self.assertEqual(done.code, DONE, done.err)

    def test_workers_with_server_processes_are_refused(self):
        job = {"cluster": {"worker": ["127.0.0.1:9", "127.0.0.1:10"], "ps": ["127.0.0.1:11"]}, "task": {"type": "worker", "index": 1}}
        self.refused(USAGE, "train", "--quiet", *self.setting("all"), "--strategy=parameter-server", environment={"TF_CONFIG": json.dumps(job)},
                     says=("all.json' normalizes", "synchronized", "server processes"))

    def test_shares_of_a_single_example_are_warned_of(self):
        # The convolution's normalization has 16 positions of an example, the dense layer's one value.
        for name, options, says in (
                ("own", ("--batch=5", "--replicas=3", "--strategy=ring"), "1 of the 3 shares of a batch (5 examples)"),
                ("own", ("--batch=5", "--microbatches=3"), "1 of the 3 shares of a batch (5 examples)"),
                ("own", ("--batch=11",), "1 of the 1 shares of the last batch of an epoch (1 example)"),
                ("own", ("--batch=6", "--replicas=3"), "1 of the 3 shares of the last batch of an epoch (5 examples)"),
                ("own", ("--batch=23", "--replicas=3"), None),
                ("all", ("--batch=5", "--replicas=3"), None)):
            with self.subTest(name=name, options=options):
                done = self.lockstep("train", "--quiet", *self.setting(name), *options, "--epochs=2")
                self.assertEqual(done.code, DONE, done.err)
                said = [line for line in done.err.splitlines() if "single example" in line]
                self.assertEqual(len(said), 1 if says else 0, done.err)
                if says:
                    self.assertIn("layer 'second': " + says, said[0])

    def test_a_hint_does_not_precede_an_error(self):
        setting = self.setting("own")
        done = self.lockstep("train", *setting, "--steps=1")
        self.assertEqual(done.code, DONE, done.err)
        self.assertIn("validation_split=", done.err)
        self.refused(USAGE, "train", *setting, "--replicas=50", says=("--replicas",))
        self.refused(USAGE, "compare", *setting, "--strategies=ring", "--replicas=50", says=("--replicas",))

    def test_a_replica_that_fails_or_hangs_ends_the_run(self):
        for strategy in ("ring", "central-storage", "parameter-server:mode=sync"):
            for after in (100, 107, 113):
                with self.subTest(strategy=strategy, after=after):
                    options = (*self.setting("all"), "--batch=7", "--replicas=5", FAULTS, f"--strategy={strategy}", "--epochs=50")
                    done = self.lockstep("train", "--quiet", *options, f"--device=faulty:after={after}", timeout=30)
                    self.assertEqual(done.code, FAILED, done.err)
                    self.assertIn("the failure that was asked for", done.err)
                    self.assertNotIn("statistics:", done.err)
            if strategy.startswith("parameter-server"):
                continue  # waits in the same place
            with self.subTest(strategy=strategy):
                done = self.lockstep("train", "--quiet", *options, "--device=faulty:after=100,hang=on", "--deadline=1", timeout=30)
                self.assertEqual(done.code, PEER_LOST, done.err)
                self.assertIn("hangs in", done.err)

    def test_a_transport_that_fails_within_the_statistics_ends_the_run(self):
        done = self.lockstep("train", "--quiet", *self.setting("all"), "--batch=7", "--replicas=5", FAULTS, "--epochs=50",
                             "--strategy=ring:transport=faulty,endpoint=1,after=40", timeout=30)
        self.assertEqual(done.code, FAILED, done.err)
        self.assertIn("the failure that was asked for", done.err)


if __name__ == "__main__":
    main()
