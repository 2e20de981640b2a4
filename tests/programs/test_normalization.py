# SPDX-License-Identifier: Apache-2.0
"""Batch normalization against Keras: four steps, then predictions (tests/data/normalization, made by make.py there)."""
import json
import math
import os
import struct

from support import DONE, FIXTURES, ProgramTest, main, tensors

FOLDER = os.path.join(FIXTURES, "normalization")
MODEL = "--model=" + os.path.join(FOLDER, "model.json")
EXAMPLES = 64
LOSS = "--loss=sparse_categorical_crossentropy:from_logits=true"
# float32 in another order, of values near 1 over four steps with rate 0.1.
TOLERANCE = 5e-6


def formula(name, count):
    return [0.5 * math.sin(0.7 * k + sum(name.encode())) + ("variance" in name) for k in range(count)]


def write_tensors(path, shapes):
    header, data = {}, b""
    for name, shape in shapes.items():
        values = formula(name, math.prod(shape))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * len(values)]}
        data += struct.pack(f"<{len(values)}f", *values)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


class Normalization(ProgramTest):
    def setUp(self):
        super().setUp()
        self.keras = tensors(os.path.join(FOLDER, "trained.safetensors"))
        pixels = bytes((k * 1103515245 + 12345) >> 16 & 255 for k in range(EXAMPLES * 28 * 28))
        labels = bytes(k * 7 % 10 for k in range(EXAMPLES))
        for split in ("train", "t10k"):
            with open(self.path(split + "-images-idx3-ubyte"), "wb") as file:
                file.write(struct.pack(">4I", 0x803, EXAMPLES, 28, 28) + pixels)
            with open(self.path(split + "-labels-idx1-ubyte"), "wb") as file:
                file.write(struct.pack(">2I", 0x801, EXAMPLES) + labels)
        self.data = "--dataset=mnist:dir=" + self.folder
        self.shapes = {name: shape for name, (shape, _) in self.keras.items() if name != "predictions"}
        write_tensors(self.path("start.safetensors"), self.shapes)

    def check(self, *options):
        self.train(MODEL, self.data, LOSS, "--initial-weights=" + self.path("start.safetensors"), "--shuffle=off", "--batch=16",
                   "--optimizer=sgd:learning_rate=0.1", "--save-weights=" + self.path("end.safetensors"), *options)
        found = tensors(self.path("end.safetensors"))
        self.assertEqual({name: shape for name, (shape, _) in found.items()}, self.shapes)
        moved = 0
        for name in self.shapes:
            begin = formula(name, math.prod(self.shapes[name]))
            for one, other, first in zip(found[name][1], self.keras[name][1], begin):
                self.assertAlmostEqual(one, other, delta=TOLERANCE, msg=name)
                if name.startswith("frozen/"):
                    self.assertAlmostEqual(one, first, delta=1e-7, msg=name)
            moved += max(abs(a - b) for a, b in zip(self.keras[name][1], begin)) > 100 * TOLERANCE
        self.assertGreater(moved, 12)
        self.assertNotIn("shift/gamma", found)
        self.assertNotIn("scale/beta", found)

    def test_four_steps_are_keras_s(self):
        self.check()

    def test_on_the_reference_device_and_under_other_strategies(self):
        for options in (("--device=reference",), ("--strategy=central-storage",), ("--strategy=parameter-server:mode=sync",),
                        ("--strategy=ring",)):
            with self.subTest(options=options):
                self.check("--replicas=1", *options)

    def test_predictions_are_keras_s_whatever_the_replicas(self):
        _, expected = self.keras["predictions"]
        largest = max(map(abs, expected))
        weights = "--initial-weights=" + os.path.join(FOLDER, "trained.safetensors")
        for replicas in (1, 3):
            outcome = self.lockstep("predict", MODEL, self.data, weights, f"--replicas={replicas}", "--batch=7", "--out=" + self.path("p.csv"))
            self.assertEqual(outcome.code, DONE, outcome.err)
            with open(self.path("p.csv")) as file:
                self.assertEqual(next(file).strip().split(",")[0], "output_0")
                found = [float(text) for line in file for text in line.split(",")]
            self.assertEqual(len(found), len(expected))
            for one, other in zip(found, expected):
                self.assertAlmostEqual(one, other, delta=1e-5 * largest)

    def test_the_summary_counts_as_keras_does(self):
        # Of 4 channels each: first and shared have all four vectors, shift lacks gamma, scale beta, frozen is not trained.
        outcome = self.lockstep("summary", MODEL)
        self.assertEqual(outcome.code, DONE, outcome.err)
        total = sum(math.prod(shape) for shape in self.shapes.values())
        statistics = sum(math.prod(shape) for name, shape in self.shapes.items() if "moving" in name or name.startswith("frozen/"))
        for what, count in (("Total params", total), ("Trainable params", total - statistics), ("Non-trainable params", statistics)):
            self.assertIn(f"{what}: {count:,} ", outcome.out)


if __name__ == "__main__":
    main()
