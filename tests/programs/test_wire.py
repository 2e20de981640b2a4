# SPDX-License-Identifier: Apache-2.0
"""Gradients that travel in 16 bits (`--wire`): replicas stay equal, training goes as in float32, what must not be rounded is
not, and what cannot travel so is refused."""
import struct

from support import DONE, FAILED, USAGE, ProgramTest, main, tensors, write_json

MLP = ("--model=mlp", "--dataset=synthetic:examples=3000", "--batch=315", "--threads=1", "--steps=12", "--seed=3",
       "--validation=off", "--check-replicas=1")
TYPES = ("bfloat16", "float16")


def npy(path, shape, values):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (63 - (len(header) + 10) % 64) + b"\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + struct.pack(f"<{len(values)}f", *values))


def sequential(*layers):
    return {"class_name": "Sequential", "config": {"name": "model", "layers": [
        {"class_name": name, "config": config} for name, config in layers]}}


class Wire(ProgramTest):
    def model(self, *layers):
        write_json(self.path("model.json"), sequential(*layers))
        return "--model=" + self.path("model.json")

    def check(self, whole, report, wire):
        self.assertEqual((whole["wire"], report["wire"]), ("float32", wire))
        self.assertEqual(len(set(report["parameter_hashes"])), 1)
        self.assertNotEqual(report["parameter_hashes"][0], whole["parameter_hashes"][0])
        # Losses and counts of 315 examples travel as they are, and the weights before the first update are the same.
        self.assertEqual(report["losses"][0], whole["losses"][0])
        for one, other in zip(report["losses"], whole["losses"]):
            self.assertLess(abs(one - other), 0.02 * whole["losses"][0])
        self.assertLess(report["losses"][-1], 0.5 * report["losses"][0])

    def test_replicas_stay_equal_and_losses_fall_as_in_float32(self):
        for replicas in ("2", "3"):
            setting = (*MLP, "--strategy=ring", "--replicas=" + replicas)
            whole = self.train(*setting)
            for wire in TYPES:
                with self.subTest(f"{replicas} replicas, {wire}"):
                    report = self.train(*setting, "--wire=" + wire)
                    self.check(whole, report, wire)
                    self.assertLess(report["communication"]["bytes_per_step_per_rank"],
                                    0.51 * whole["communication"]["bytes_per_step_per_rank"])

    def test_every_collective_sends_16_bits(self):
        whole = self.train(*MLP, "--replicas=5", "--strategy=ring")
        for strategy in ("tree", "direct", "halving-doubling", "torus", "two-level", "hierarchical-copy:groups=2", "auto"):
            with self.subTest(strategy):
                self.check(whole, self.train(*MLP, "--replicas=5", "--strategy=" + strategy, "--wire=bfloat16"), "bfloat16")

    def test_moving_statistics_are_not_rounded(self):
        model = self.model(("InputLayer", {"batch_shape": [None, 28, 28, 1]}), ("Flatten", {}), ("Dense", {"units": 9, "name": "dense"}),
                           ("BatchNormalization", {"name": "normal"}), ("Dense", {"units": 10, "name": "scores"}))
        found = {}
        for wire in ("float32", "bfloat16"):
            path = self.path(wire + ".safetensors")
            self.train(model, "--dataset=synthetic:examples=400", "--batch=300", "--replicas=3", "--steps=1", "--validation=off",
                       "--optimizer=sgd:learning_rate=0.1", "--strategy=ring", "--wire=" + wire, "--save-weights=" + path)
            found[wire] = tensors(path)
        for name, (_, values) in found["float32"].items():
            with self.subTest(name):
                same = values == found["bfloat16"][name][1]
                self.assertEqual(same, "moving" in name, name)

    def test_a_gradient_beyond_float16_ends_the_training(self):
        npy(self.path("x.npy"), (8, 2), [float(k % 5) for k in range(16)])
        npy(self.path("y.npy"), (8, 1), [1e7 + k for k in range(8)])
        setting = (self.model(("InputLayer", {"batch_shape": [None, 2]}), ("Dense", {"units": 1, "name": "dense"})),
                   f"--dataset=arrays:x={self.path('x.npy')},y={self.path('y.npy')}", "--loss=mean_squared_error", "--steps=2",
                   "--batch=8", "--replicas=2", "--strategy=ring", "--validation=off", "--quiet")
        self.assertEqual(self.lockstep("train", *setting, "--wire=bfloat16").code, DONE)
        self.refused(FAILED, "train", *setting, "--wire=float16", says=(
            "as float16, bucket 0: rank", "a value beyond 65504, the largest that travels; use --wire=bfloat16 or --wire=float32"))

        # With a loss scale such a step is skipped, and the scale falls until gradients can travel.
        longer = [word for word in setting if word not in ("--quiet", "--steps=2")]
        report = self.train(*longer, "--wire=float16", "--steps=20", "--loss-scale=dynamic:initial_scale=1")
        self.assertTrue(0 < report["skipped_steps"] < 20, report["skipped_steps"])
        self.assertEqual(report["loss_scale"], 2.0 ** -report["skipped_steps"])
        self.assertEqual(len(set(report["parameter_hashes"])), 1)

    def test_what_cannot_travel_so_is_refused(self):
        short = ("train", "--model=mlp", "--dataset=synthetic:examples=64", "--validation=off", "--steps=1", "--quiet")
        for strategy in ("central-storage", "parameter-server"):
            self.refused(USAGE, *short, "--replicas=2", "--strategy=" + strategy, "--wire=float16", says=(
                f"--wire: float16: strategy '{strategy}' sends no gradients through a collective; use mirrored, or float32",))
        self.refused(USAGE, *short, "--wire=int8", says=("--wire: 'int8': expected float32, bfloat16 or float16",))

    def test_one_replica_sends_nothing(self):
        self.assertIsNone(self.train("--model=mlp", "--dataset=synthetic:examples=64", "--validation=off", "--steps=1",
                                     "--wire=bfloat16")["wire"])


if __name__ == "__main__":
    main()
