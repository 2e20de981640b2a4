# SPDX-License-Identifier: Apache-2.0
"""Recurrent models beside Keras: predictions, and losses of three steps by any number of replicas. tests/data/README.md says how they were made."""
import array
import json
import os
import struct

from support import DONE, FIXTURES, KERAS_FILES, ProgramTest, main

FOLDER = os.path.join(FIXTURES, "recurrent")
REPLICAS = ((1,), (2, "--strategy=ring"), (3, "--strategy=ring"), (2, "--strategy=sharded"), (3, "--strategy=sharded"))
CLOSE = 1e-5  # float32, added up in another order
with open(os.path.join(FOLDER, "expected.json")) as opened:
    EXPECTED = json.load(opened)


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
                report = self.train(*self.options(name), "--loss=" + EXPECTED[name]["loss"], "--optimizer=sgd:learning_rate=0.5",
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


def layer(class_name, **config):
    return {"module": "keras.layers", "class_name": class_name, "registered_name": None, "config": config}


class Sequential(ProgramTest):
    def write(self, *layers):
        with open(self.path("model.json"), "w") as file:
            json.dump({"module": "keras", "class_name": "Sequential", "registered_name": None,
                       "config": {"name": "m", "layers": layers}}, file)
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


if __name__ == "__main__":
    main()
