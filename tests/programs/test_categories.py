# SPDX-License-Identifier: Apache-2.0
"""Categories made of numbers, and an embedding in reverse, beside Keras and with any number of replicas. tests/data/README.md says how
they were made."""
import array
import os

from support import BAD_INPUT, DONE, FAILED, FIXTURES, KERAS_FILES, ProgramTest, main, read_json, write_json
from test_recurrent import CLOSE, floats, layer

FOLDER = os.path.join(FIXTURES, "categories")
CASES = (("--replicas=1", "--device=reference"), ("--replicas=2", "--strategy=ring"), ("--replicas=3", "--strategy=ring"),
         ("--replicas=3", "--strategy=sharded"))
EXPECTED = read_json(os.path.join(FOLDER, "expected.json"))


class BesideKeras(ProgramTest):
    def model(self, name, weights=None):
        if not KERAS_FILES:
            self.skipTest("files of Keras are not built in")
        file = os.path.join(FOLDER, name + ".keras")
        fields = [f"x{i or ''}={FOLDER}/{name}-x{i or 1}.npy" for i in (0, *range(2, EXPECTED[name]["inputs"] + 1))]
        return f"--model={file}", f"--initial-weights={weights or file}", f"--dataset=arrays:{','.join(fields)},y={FOLDER}/{name}-y.npy"

    def losses(self, name, *options, weights=None, epochs=3):
        loss = "--loss=sparse_categorical_crossentropy" + (":from_logits=true" if EXPECTED[name]["logits"] else "")
        report = self.train(*self.model(name, weights), loss, "--optimizer=sgd:learning_rate=0.2", "--batch=13", f"--epochs={epochs}",
                            "--threads=1", "--validation=off", *options)
        return [epoch["loss"] for epoch in report["epochs"]]

    def close(self, got, wanted):
        self.assertEqual(len(got), len(wanted))
        self.assertLess(max(abs(a - b) for a, b in zip(got, wanted)), CLOSE)

    def predictions(self, model, *options):
        out = self.path("out.npy")
        outcome = self.lockstep("predict", *model, "--out=" + out, *options)
        self.assertEqual(outcome.code, DONE, outcome.err)
        return floats(out)

    def test_predictions_are_those_of_keras(self):
        for name, expected in EXPECTED.items():
            for device in ("cpu", "reference"):
                with self.subTest(model=name, device=device):
                    self.close(self.predictions(self.model(name), "--device=" + device), expected["predictions"])

    def test_three_steps_are_those_of_keras_for_any_number_of_replicas(self):
        for name, expected in EXPECTED.items():
            for case in ((), *CASES):
                with self.subTest(model=name, case=case):
                    self.close(self.losses(name, *case), expected["losses"])

    def test_a_trained_model_is_saved_and_read(self):
        for name in EXPECTED:
            with self.subTest(model=name):
                out = self.path(name + ".keras")
                self.losses(name, "--save-weights=" + out)
                _, _, data = self.model(name)
                found = self.predictions((f"--model={out}", f"--initial-weights={out}", data))
                self.assertGreater(max(abs(a - b) for a, b in zip(found, EXPECTED[name]["predictions"])), 10 * CLOSE)
                self.close(self.losses(name, weights=out, epochs=1), self.losses(name, epochs=4)[3:])


class NotInTheTable(ProgramTest):
    def model(self, *layers, dtype="int32"):
        write_json(self.path("model.json"), {"class_name": "Sequential", "config": {"name": "m", "layers": [
            layer("InputLayer", name="input", batch_shape=[None, 3], dtype=dtype), *layers]}})
        return "--model=" + self.path("model.json")

    def data(self, values, code="i", descr="<i4", count=4):
        head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({count}, 3), }}".ljust(117) + "\n"
        with open(self.path("x.npy"), "wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + array.array(code, values).tobytes())
        head = f"{{'descr': '<i4', 'fortran_order': False, 'shape': ({count},), }}".ljust(117) + "\n"
        with open(self.path("y.npy"), "wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + array.array("i", [0, 1] * (count // 2)).tobytes())
        return f"--dataset=arrays:x={self.path('x.npy')},y={self.path('y.npy')}"

    def predicted(self, model, data):
        outcome = self.lockstep("predict", model, data, "--out=" + self.path("out.npy"), "--replicas=1")
        self.assertEqual(outcome.code, DONE, outcome.err)
        return list(floats(self.path("out.npy")))

    def test_what_keras_refuses_is_named_where_it_is_found(self):
        ends = (layer("Flatten", name="f"), layer("Dense", name="d", units=2, activation="softmax"))
        for layers, says in (((layer("IntegerLookup", name="known", vocabulary=[1, 2], num_oov_indices=0, output_mode="one_hot"),),
                              ("known", "a number in the data is not in the vocabulary")),
                             ((layer("CategoryEncoding", name="codes", num_tokens=4, output_mode="count"),), ("codes", "an id in the data is negative"))):
            for device in ("cpu", "reference"):
                with self.subTest(says=says, device=device):
                    self.refused(FAILED, "train", self.model(*layers, *ends), self.data([1, 2, 1, 2, 2, 2, 1, -1, 1, 2, 2, 1]), "--validation=off",
                                 "--batch=4", "--replicas=1", "--device=" + device, says=says)

    def test_whole_numbers_above_those_of_float32(self):
        lookup = layer("IntegerLookup", name="known", vocabulary=[16777216, 16777217, 2147483647, -2147483647, 16777219])
        values = [16777216, 16777217, 16777218, 2147483647, 2147483646, 16777219, -2147483647, -2147483648, 0, 1, 2, 16777217]
        right = [1, 2, 0, 3, 0, 5, 4, 0, 0, 0, 0, 2]
        self.assertEqual(self.predicted(self.model(lookup), self.data(values)), right)
        self.assertEqual(self.predicted(self.model(lookup, dtype="int64"), self.data(values, "q", "<i8")), right)
        self.refused(BAD_INPUT, "predict", self.model(lookup, dtype="int64"), self.data([2**31, *values[1:]], "q", "<i8"), "--out=" + self.path("out.npy"),
                     says=("value 0 is 2147483648", "no int32 holds"))
        self.refused(BAD_INPUT, "predict", self.model(lookup, dtype="float32"), self.data(values), "--out=" + self.path("out.npy"),
                     says=("known", "float32 does not hold all whole numbers above 16777216"))

    def test_numbers_of_a_float_input_are_cut_and_may_be_far_away(self):
        lookup = layer("IntegerLookup", name="known", vocabulary=[-2, 0, 7], num_oov_indices=2)
        found = self.predicted(self.model(lookup, dtype="float32"), self.data([7.9, -2.5, 0.9, -0.9, 8, 9, -3, -4, 3e9, 5, 4, 0], "f", "<f4"))
        self.assertEqual(found, [4, 2, 3, 3, 0, 1, 1, 0, 0, 1, 0, 3])


if __name__ == "__main__":
    main()
