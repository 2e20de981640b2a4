# SPDX-License-Identifier: Apache-2.0
"""Batch normalization with the statistics of all replicas (`synchronized`): what one device computes, under every strategy."""
import json
import math
import struct

from support import DONE, PEER_LOST, UNAVAILABLE, USAGE, ProgramTest, main, tensors

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
        pixels = EXAMPLES * 6 * 6 * 2
        npy(self.path("x.npy"), "<f4", (EXAMPLES, 6, 6, 2), [math.sin(0.37 * k * k + k) + k / pixels for k in range(pixels)])
        npy(self.path("y.npy"), "<i4", (EXAMPLES,), [k * 5 % 3 for k in range(EXAMPLES)])
        for name, synchronized in (("own", False), ("all", True)):
            with open(self.path(name + ".json"), "w") as file:
                json.dump(layer("Sequential", name="model", layers=[
                    layer("InputLayer", batch_shape=[None, 6, 6, 2]),
                    layer("Conv2D", name="conv", filters=4, kernel_size=[3, 3]),
                    layer("BatchNormalization", name="first", synchronized=synchronized, momentum=0.8),
                    layer("Activation", name="relu", activation="relu"),
                    layer("Flatten", name="flat"),
                    layer("Dense", name="dense", units=8),
                    layer("BatchNormalization", name="second", synchronized=synchronized, momentum=0.8),
                    layer("Activation", name="tanh", activation="tanh"),
                    layer("Dense", name="scores", units=3)]), file)

    def run_model(self, name, replicas, strategy, batch=10, *options):
        """Losses, weights afterwards and the report."""
        out = self.path("out.safetensors")
        report = self.train("--model=" + self.path(name + ".json"), f"--dataset=arrays:x={self.path('x.npy')},y={self.path('y.npy')}",
                            "--loss=sparse_categorical_crossentropy:from_logits=true", "--optimizer=sgd:learning_rate=0.01",
                            f"--batch={batch}", "--epochs=4", f"--replicas={replicas}", f"--strategy={strategy}",
                            "--save-weights=" + out, *options)
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
        # 23 examples in batches of 10: on 4 replicas 3 3 2 2, and at the end 1 1 1 0; in batches of 7 on 5 replicas 2 2 1 1 1 and
        # 1 1 0 0 0.
        for batch in (10, 7):
            one = self.run_model("own", 1, "one-device", batch)
            self.check_near(self.run_model("all", 1, "one-device", batch), one)
            for replicas in (2, 4, 5):
                for strategy in REDUCED + STORED:
                    if strategy.startswith("hierarchical") and replicas == 5:
                        strategy = "hierarchical-copy"
                    with self.subTest(batch=batch, replicas=replicas, strategy=strategy):
                        self.check_near(self.run_model("all", replicas, strategy, batch), one)


if __name__ == "__main__":
    main()
