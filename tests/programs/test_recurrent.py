# SPDX-License-Identifier: Apache-2.0
"""Recurrent models beside Keras: predictions, and losses of three steps by any number of replicas. tests/data/README.md says how they were made."""
import array
import os
import struct

from support import DONE, FIXTURES, KERAS_FILES, UNAVAILABLE, USAGE, ProgramTest, main, read_json, write_json

FOLDER = os.path.join(FIXTURES, "recurrent")
REPLICAS = ((1,), (2, "--strategy=ring"), (3, "--strategy=ring"), (2, "--strategy=sharded"), (3, "--strategy=sharded"))
CLOSE = 1e-5  # float32, added up in another order
EXPECTED = read_json(os.path.join(FOLDER, "expected.json"))
EXPECTED.update(read_json(os.path.join(FOLDER, "kernels.json")))
MASKS = read_json(os.path.join(FOLDER, "masks.json"))


def floats(path):
    with open(path, "rb") as file:
        data = file.read()
    values = array.array("f")
    values.frombytes(data[10 + struct.unpack("<H", data[8:10])[0]:])
    return values


class BesideKeras(ProgramTest):
    def close(self, got, wanted):
        self.assertEqual(len(got), len(wanted))
        self.assertLess(max(abs(a - b) for a, b in zip(got, wanted)), CLOSE)

    def options(self, name):
        file = os.path.join(FOLDER, name)
        inputs = "".join(f"x{i if i > 1 else ''}={file}-x{i}.npy," for i in range(1, EXPECTED[name]["inputs"] + 1))
        return (f"--model={file}.keras", f"--initial-weights={file}.keras", f"--dataset=arrays:{inputs}y={file}-y.npy", "--device=cpu")

    def check(self, name):
        if not KERAS_FILES:
            self.skipTest("files of Keras are not built in")
        out = self.path("out.npy")
        outcome = self.lockstep("predict", *self.options(name), "--out=" + out)
        self.assertEqual(outcome.code, DONE, outcome.err)
        self.close(floats(out), EXPECTED[name]["predictions"])
        for replicas, *strategy in REPLICAS:
            with self.subTest(replicas=replicas, strategy=strategy):
                report = self.train(*self.options(name), "--loss=" + EXPECTED[name]["loss"], f"--optimizer=sgd:learning_rate={EXPECTED[name].get('rate', 0.5)}",
                                    "--batch=12", "--epochs=3", "--threads=1", f"--replicas={replicas}", *strategy)
                self.close([epoch["loss"] for epoch in report["epochs"]], EXPECTED[name]["losses"])

    def test_two_lstms_one_above_the_other(self):
        self.check("stacked-lstm")

    def test_gated_units_in_both_directions_under_a_mask(self):
        self.check("masked-gru")

    def test_states_of_one_sequence_begin_another(self):
        self.check("seq2seq")

    def test_convolutions_on_each_step(self):
        self.check("cnn-lstm")

    def test_attention_under_masks(self):
        self.check("masked-attention")

    def test_kernels_that_each_step_normalizes(self):
        self.check("spectral")
        for end in ("keras", "weights.h5", "safetensors"):  # the vectors u go with the kernels
            trained, out = self.path("trained." + end), self.path("after.npy")
            self.train(*self.options("spectral"), "--loss=mse", "--optimizer=sgd:learning_rate=0.05", "--batch=12", "--epochs=3",
                       "--threads=1", "--replicas=2", "--save-weights=" + trained)
            options = [one for one in self.options("spectral") if "initial-weights" not in one]
            outcome = self.lockstep("predict", *options, "--initial-weights=" + trained, "--out=" + out)
            self.assertEqual(outcome.code, DONE, outcome.err)
            self.close(floats(out), EXPECTED["spectral"]["after"])

    def test_no_kernel_is_normalized_that_no_replica_has_whole(self):
        if not KERAS_FILES:
            self.skipTest("files of Keras are not built in")
        for strategy in ("sharded:stage=3", "parameter-server", "central-storage"):
            self.refused(UNAVAILABLE, "train", *self.options("spectral"), "--loss=mse", "--batch=12", "--epochs=1", "--replicas=2",
                         "--strategy=" + strategy, says=("SpectralNormalization replaces '", "use mirrored"))


class MaskedOutputs(ProgramTest):
    """Loss and metrics of what a mask leaves, in an evaluation by three batches and in three steps."""

    def options(self, case):
        file = os.path.join(FOLDER, "masked-" + case["model"])
        inputs = "".join(f"x{i if i > 1 else ''}={file}-x{i}.npy," for i in range(1, case["inputs"] + 1))
        weights = f",sample_weight={FOLDER}/masked-weights.npy" if case["weighted"] else ""
        return (f"--model={file}.keras", f"--initial-weights={file}.keras", f"--dataset=arrays:{inputs}y={file}-y.npy{weights}",
                "--device=cpu", "--loss=" + case["loss"], "--metrics=" + (",".join(case["metrics"]) or "none"))

    def close(self, case, got, wanted):
        values = [got[name] for name in case["names"]]
        self.assertLess(max(abs(a - b) for a, b in zip(values, wanted)), CLOSE, (values, wanted))

    def check(self, model):
        if not KERAS_FILES:
            self.skipTest("files of Keras are not built in")
        for case in (case for case in MASKS if case["model"] == model):
            for replicas, *strategy in REPLICAS:
                with self.subTest(loss=case["loss"], weighted=case["weighted"], replicas=replicas, strategy=strategy):
                    by = (*self.options(case), f"--replicas={replicas}", *strategy)
                    out = self.path("evaluated.json")
                    outcome = self.lockstep("evaluate", *by, "--split=train", "--batch=5", "--report=" + out)
                    self.assertEqual(outcome.code, DONE, outcome.err)
                    self.close(case, read_json(out), case["evaluated"])
                    report = self.train(*by, "--optimizer=sgd:learning_rate=0.5", "--batch=12", "--epochs=3", "--threads=1", "--validation=off")
                    for epoch, wanted in zip(report["epochs"], case["trained"]):
                        self.close(case, epoch, wanted)

    def test_classes_of_each_step(self):
        self.check("tagger")

    def test_in_16_bits(self):
        if not KERAS_FILES:
            self.skipTest("files of Keras are not built in")
        case = MASKS[0]
        for precision in ("mixed_bfloat16", "mixed_float16"):
            report = self.train(*self.options(case), "--precision=" + precision, "--optimizer=sgd:learning_rate=0.5", "--batch=12", "--epochs=3",
                                "--threads=1", "--validation=off", "--replicas=2")
            for epoch, wanted in zip(report["epochs"], case["trained"]):
                self.assertLess(abs(epoch["loss"] - wanted[0]), 4e-3, (precision, epoch, wanted))  # 8 bits

    def test_what_does_not_know_masks_is_refused(self):
        if not KERAS_FILES:
            self.skipTest("files of Keras are not built in")
        for code, says, *options in ((USAGE, "--microbatches", "--microbatches=2"), (USAGE, "--reproducible", "--reproducible"),
                                     (UNAVAILABLE, "sharded:stage=2", "--strategy=sharded:stage=3", "--replicas=2")):
            with self.subTest(options=options):
                self.refused(code, "train", *self.options(MASKS[0]), "--batch=12", "--epochs=1", "--validation=off", *options,
                             says=("has a mask", says))

    def test_one_sequence_into_another(self):
        self.check("translator")

    def test_numbers_of_each_step(self):
        self.check("steps")

    def test_two_classes_of_each_step(self):
        self.check("signals")


def layer(class_name, **config):
    return {"module": "keras.layers", "class_name": class_name, "registered_name": None, "config": config}


class Sequential(ProgramTest):
    def write(self, *layers):
        write_json(self.path("model.json"), {"module": "keras", "class_name": "Sequential", "registered_name": None,
                   "config": {"name": "m", "layers": layers}})
        return "--model=" + self.path("model.json")

    def test_layers_on_each_step_may_follow_each_other(self):
        def on_each_step(name, inner):
            return layer("TimeDistributed", name=name, layer=inner)
        model = self.write(layer("InputLayer", name="input", batch_shape=[None, 3, 9, 2]),
                           on_each_step("a", layer("Conv1D", name="c", filters=4, kernel_size=3)),
                           on_each_step("b", layer("Conv1D", name="c", filters=5, kernel_size=2)),
                           on_each_step("d", layer("Bidirectional", name="both", layer=layer("LSTM", name="lstm", units=2))))
        outcome = self.lockstep("summary", model)
        self.assertEqual(outcome.code, DONE, outcome.err)
        self.assertIn("Total params: 201", outcome.out)  # 28 + 45 + 2 (40 + 16 + 8)

    def test_drops_the_same_for_any_number_of_replicas(self):
        cell = layer("GRU", name="gru", units=5, dropout=0.2, recurrent_dropout=0.4, reset_after=False)
        model = self.write(layer("InputLayer", name="input", batch_shape=[None, 7, 3]),
                           layer("LSTM", name="lstm", units=6, dropout=0.3, recurrent_dropout=0.3, return_sequences=True),
                           layer("Bidirectional", name="both", layer=cell), layer("Dense", name="dense", units=2))
        losses = {}
        for case in (("--replicas=1",), ("--replicas=2", "--strategy=ring"), ("--replicas=3", "--strategy=ring"),
                     ("--replicas=3", "--strategy=sharded"), ("--replicas=1", "--device=reference"), ("--replicas=1", "--seed=2")):
            report = self.train(model, "--dataset=synthetic:shape=7x3,outputs=2,classes=0,examples=13",
                                "--loss=mean_squared_error", "--optimizer=sgd:learning_rate=0.1", "--batch=13", "--epochs=3", "--threads=1",
                                "--validation=off", *case)
            losses[case] = [epoch["loss"] for epoch in report["epochs"]]
        first, *others, another = losses.values()
        for case, other in zip(list(losses)[1:], others):
            self.assertLess(max(abs(a - b) for a, b in zip(first, other)), 1e-5, case)
        self.assertGreater(max(abs(a - b) for a, b in zip(first, another)), 1e-4)

    def wide(self):
        """Options of a training in which threads have something to share, with units that no vector divides."""
        model = self.write(layer("InputLayer", name="input", batch_shape=[None, 7, 3]),
                           layer("LSTM", name="lstm", units=37, return_sequences=True, dropout=0.2), layer("SimpleRNN", name="simple", units=31, return_sequences=True),
                           layer("GRU", name="gru", units=29, recurrent_dropout=0.2), layer("Dense", name="dense", units=2))
        return (model, "--dataset=synthetic:shape=7x3,outputs=2,classes=0,examples=60", "--loss=mean_squared_error",
                "--optimizer=sgd:learning_rate=0.1", "--batch=20", "--epochs=2", "--validation=off")

    def test_has_the_same_bits_for_any_number_of_threads(self):
        found = []
        for threads in (1, 2, 3):
            self.train(*self.wide(), f"--threads={threads}", "--save-weights=" + self.path("w.safetensors"))
            with open(self.path("w.safetensors"), "rb") as file:
                found.append(file.read())
        self.assertTrue(found[0] == found[1] == found[2])

    def test_is_trained_in_16_bits(self):
        losses = {}
        for case in (("--device=reference",), *((device, "--precision=mixed_" + half) for half in ("bfloat16", "float16")
                                               for device in ("--device=cpu", "--device=reference"))):
            report = self.train(*self.wide(), "--threads=1", *case)
            losses[case] = [epoch["loss"] for epoch in report["epochs"]]
        exact, *rounded = losses.values()
        for case, other in zip(list(losses)[1:], rounded):
            error = max(abs(a - b) for a, b in zip(exact, other))
            self.assertTrue(0 < error < (4e-3 if "--precision=mixed_bfloat16" in case else 5e-4), (case, exact, other))  # 8 and 11 bits


if __name__ == "__main__":
    main()
