# SPDX-License-Identifier: Apache-2.0
"""README.md, docs/tutorials.md and docs/coming-from.md: every command of them runs, in their order and from an empty folder. And what
models learn from real data, beside PyTorch and in halves, which takes minutes."""
import array
import json
import math
import os
import random
import re
import shlex
import statistics
import struct
import sys

from support import DONE, FASHION, FIXTURES, KERAS_FILES, LARGE_DATA, UNTIMED, ProgramTest, main, read_json, tensors

SOURCE = os.path.dirname(os.path.dirname(FIXTURES))
sys.path.insert(0, os.path.join(SOURCE, "lab", "bench"))
import bench_lines  # noqa: E402

COMMAND = re.compile(r"^    (lockstep .*)$", re.M)
SYNCHRONOUS = ("ring", "central-storage", "parameter-server:mode=sync")


class Page(ProgramTest):
    """On small files in the formats of the data that the page names, of random pixels."""

    def bytes(self, name, content):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "wb") as file:
            file.write(content)

    def make_data(self):
        noise = random.Random(5)
        for split, count in (("train", 300), ("t10k", 40)):
            self.bytes(f"mnist/{split}-images-idx3-ubyte", struct.pack(">4I", 0x803, count, 28, 28) + noise.randbytes(count * 784))
            self.bytes(f"mnist/{split}-labels-idx1-ubyte", struct.pack(">2I", 0x801, count) + bytes(i % 10 for i in range(count)))
        for name in ("test_batch", *(f"data_batch_{i}" for i in range(1, 6))):
            records = (bytes([i % 10]) + noise.randbytes(3072) for i in range(10))
            self.bytes(f"cifar-10-batches-bin/{name}.bin", b"".join(records))
        header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (100, 1), }\n"
        for name in ("x.npy", "y.npy"):
            content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + struct.pack("<100f", *[1.0] * 100)
            with open(self.path(name), "wb") as file:
                file.write(content)

    def test_the_commands_of_the_readme_run_in_order(self):
        self.need(FASHION)
        self.run_page("../README.md", 10)
        for made in ("cnn.safetensors", "run.json", "scores.npy", "compare.html"):
            self.assertTrue(os.path.getsize(self.path(made)), made)

    def test_every_command_of_the_tutorials_runs(self):
        self.run_page("tutorials.md", 12)

    def test_every_command_of_coming_from_runs(self):
        self.run_page("coming-from.md", 11)

    def run_page(self, page, least):
        with open(os.path.join(SOURCE, "docs", page), encoding="utf-8") as file:
            commands = COMMAND.findall(file.read())
        self.assertGreaterEqual(len(commands), least)
        self.make_data()
        for command in commands:
            words = [word for word in shlex.split(command)[1:] if not word.startswith("--steps=")]
            if words[0] in ("train", "launch", "compare"):
                words.append("--steps=2")
            if words[0] == "compare":
                words.append(UNTIMED)
            if words[0] == "bench":
                words = [word for word in words if not word.startswith("--seconds=")] + ["--seconds=0"]
            with self.subTest(command):
                if "fashion-mnist" in command:
                    self.need(FASHION)
                if "fashion-mnist" in command and words[0] in ("train", "launch", "compare"):
                    words.append("--validation=off")
                if ".h5" in command and not KERAS_FILES:
                    self.skipTest("the program for files of Keras was not built")
                done = self.lockstep(*words)
                self.assertEqual(done.code, DONE, done.err)

    def test_with_two_replicas_the_synchronous_strategies_compute_the_same_bits(self):
        self.make_data()
        found = []
        for strategy in SYNCHRONOUS:
            report = self.train("--model=resnet", "--dataset=cifar10:dir=cifar-10-batches-bin", "--replicas=2", "--batch=16",
                                "--steps=3", "--validation=off", f"--strategy={strategy}", "--threads=1",
                                "--save-weights=" + self.path("after.safetensors"))
            found.append((report["losses"], tensors(self.path("after.safetensors"))))
        self.assertEqual(len(found[0][0]), 3)
        for other in found[1:]:
            self.assertEqual(other, found[0])


def scatter(k):
    """A 32-bit number that looks drawn at random, from 32 bits; as in lab/fixtures/resnet_reference.py."""
    k = k * 2654435761 & 0xFFFFFFFF
    k = (k ^ k >> 15) * 2246822519 & 0xFFFFFFFF
    return k ^ k >> 13


def first_weights(shapes):
    """{name: float32 values}: kernels uniform within Keras's limit by a formula, all else as Keras begins."""
    result, k = {}, 0
    for name, shape in shapes:
        count = math.prod(shape)
        if name.endswith("/kernel"):
            limit = math.sqrt(6.0 / (math.prod(shape[:-2]) * (shape[-2] + shape[-1])))
            result[name] = array.array("f", ((scatter(i) / 2**31 - 1.0) * limit for i in range(k, k + count)))
            k += count
        else:
            result[name] = array.array("f", [1.0 if name.endswith(("gamma", "variance")) else 0.0]) * count
    return result


def resnet_shapes():
    """(variable, shape) of models/resnet.json in the order in which its layers are numbered."""
    shapes, channels, number = [], 3, 0

    def convolution(window, filters):
        nonlocal channels, number
        after = f"_{number}" if number else ""
        shapes.append((f"conv2d{after}/kernel", (window, window, channels, filters)))
        shapes.append((f"conv2d{after}/bias", (filters,)))
        shapes.extend((f"batch_normalization{after}/{part}", (filters,)) for part in ("gamma", "beta", "moving_mean", "moving_variance"))
        channels, number = filters, number + 1

    convolution(7, 64)
    for filters in (64, 128, 256):
        before = channels
        convolution(1, filters)  # the short way around the first block
        channels = before
        for _ in range(4):
            convolution(3, filters)
    return shapes + [("dense/kernel", (256, 10)), ("dense/bias", (10,))]


class RealData(ProgramTest):
    """What the tutorials' models learn. The reference is PyTorch's, made by lab/fixtures/resnet_reference.py."""

    SEEDS = 3
    # Losses of the first steps were computed in float64. PyTorch in float32 differs from them by up to 5.4e-5, Lockstep by
    # up to 5.8e-5; a learning rate that is 3 % too large would show.
    STEPS_APART = 2e-4
    # Mean training losses of epochs 2 to 5, over three seeds: single seeds differ by up to 3 % from one another.
    EPOCHS_APART = 0.05
    # Mean test accuracy of the last three epochs: two points, and twice the standard error of the difference. Moving statistics
    # with momentum 0.99 are behind the weights at this rate, under PyTorch, too: the accuracy of a run jumps by several points
    # from epoch to epoch, and one run says little.
    LAST = 3
    POINTS_APART, ERRORS_APART = 0.02, 2.0

    def cifar(self):
        train = os.path.join(LARGE_DATA, "cifar-10-batches-bin", "data_batch_1.bin")
        test = os.path.join(LARGE_DATA, "cifar-10-test-first1000", "test_batch_first1000.bin")
        self.need(train)
        self.need(test)
        return f"--dataset=cifar10:dir={os.path.dirname(train)},train={train},test={test}"

    def reference(self):
        return read_json(os.path.join(FIXTURES, "reference", "resnet_cifar10.json"))

    def write_first_weights(self):
        shapes = dict(resnet_shapes())
        weights, header, at = first_weights(shapes.items()), {}, 0
        for name, values in weights.items():
            header[name] = {"dtype": "F32", "shape": list(shapes[name]), "data_offsets": [at, at + 4 * len(values)]}
            at += 4 * len(values)
        text = json.dumps(header).encode()
        with open(self.path("first.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + b"".join(values.tobytes() for values in weights.values()))
        return "--initial-weights=" + self.path("first.safetensors")

    def test_the_cnn_on_mnist(self):
        folder = os.path.join(LARGE_DATA, "mnist")
        self.need(folder)
        report = self.train("--model=cnn", "--dataset=mnist:dir=" + folder, "--replicas=2", "--strategy=ring", "--epochs=5",
                            timeout=1800)
        self.assertEqual(report["global_batch"], 128)
        self.assertGreaterEqual(report["epochs"][-1]["val_accuracy"], 0.985)

    def test_first_losses_of_the_resnet_and_its_moving_statistics_are_those_of_pytorch(self):
        truth = self.reference()["first_steps"]
        data, weights = self.cifar(), self.write_first_weights()
        for strategy in SYNCHRONOUS:
            with self.subTest(strategy):
                report = self.train("--model=resnet", data, weights, "--shuffle=off", f"--strategy={strategy}",
                                    f"--replicas={truth['replicas']}", f"--batch={truth['batch']}", "--threads=1",
                                    f"--optimizer={truth['optimizer']}", f"--steps={len(truth['losses'])}")
                apart = [abs(ours - theirs) / theirs for ours, theirs in zip(report["losses"], truth["losses"], strict=True)]
                apart.append(abs(report["epochs"][-1]["val_loss"] / truth["val_loss"] - 1))
                self.assertLessEqual(max(apart), self.STEPS_APART, apart)

    def epochs(self, strategy, seed):
        settings = self.reference()["training"]
        report = self.train("--model=resnet", self.cifar(), f"--strategy={strategy}", f"--seed={seed}", "--threads=1",
                            f"--replicas={settings['replicas']}", f"--batch={settings['batch']}", f"--epochs={settings['epochs']}",
                            f"--optimizer={settings['optimizer']}", timeout=3600)
        print(f"resnet, {strategy}, seed {seed}: test accuracy {report['epochs'][-1]['val_accuracy']:.3f}", flush=True)
        return report

    def check_accuracy(self, runs):
        theirs = [value for seed in self.reference()["training"]["seeds"].values() for value in seed["val_accuracy"][-self.LAST:]]
        ours = [epoch["val_accuracy"] for epochs in runs for epoch in epochs[-self.LAST:]]
        # Only the reference says how far the values spread, so runs that jump more do not excuse themselves.
        error = statistics.stdev(theirs) * math.sqrt(1 / len(theirs) + 1 / len(ours))
        apart = statistics.mean(ours) - statistics.mean(theirs)
        said = f"{ours} is on average {apart:+.3f} from PyTorch's {theirs}; standard error {error:.3f}"
        print(said, flush=True)
        self.assertLessEqual(abs(apart), self.POINTS_APART + self.ERRORS_APART * error, said)

    def test_the_resnet_under_ring_and_central_storage_learns_as_under_pytorch(self):
        reports = [self.epochs("ring", seed) for seed in range(self.SEEDS)]
        central = self.epochs("central-storage", 0)
        self.assertEqual(central["losses"], reports[0]["losses"])
        self.assertEqual(central["parameter_hashes"], reports[0]["parameter_hashes"])
        runs = [report["epochs"] for report in reports]
        theirs = self.reference()["training"]["seeds"].values()
        for epoch in range(1, 5):
            ours = statistics.mean(epochs[epoch]["loss"] for epochs in runs)
            truth = statistics.mean(seed["loss"][epoch] for seed in theirs)
            self.assertLessEqual(abs(ours / truth - 1), self.EPOCHS_APART, epoch)
        self.check_accuracy(runs)

    def test_the_resnet_under_parameter_servers_learns_as_under_pytorch(self):
        self.check_accuracy([self.epochs("parameter-server", seed)["epochs"] for seed in range(self.SEEDS)])


class Halves(ProgramTest):
    """What models learn in bfloat16 beside float32, from the same first weights and batches."""

    SEEDS = 3
    # Test accuracy, on average over the seeds; the rate ends near zero, so that the last epoch is no accident.
    POINTS_APART = 0.005
    # Mean loss of the last hundred steps, of each seed.
    LOSSES_APART = 0.01
    LAST = 100

    def both(self, *arguments):
        """The reports of each seed, in float32 and in mixed_bfloat16."""
        return [[self.train(*arguments, f"--precision={precision}", f"--seed={seed}", timeout=3600)
                 for precision in ("float32", "mixed_bfloat16")] for seed in range(self.SEEDS)]

    def test_the_cnn_is_as_accurate(self):
        self.need(FASHION)
        epochs, steps = 5, 5 * (60000 // 64)
        found = self.both("--model=cnn", "--dataset=fashion-mnist", "--batch=64", f"--epochs={epochs}", "--optimizer=adam",
                          f"--learning-rate-schedule=cosine_decay:initial_learning_rate=0.001,decay_steps={steps}")
        accuracies = [[report["epochs"][-1]["val_accuracy"] for report in pair] for pair in found]
        print("cnn, test accuracy in float32 and mixed_bfloat16:", accuracies, flush=True)
        single, halves = (statistics.mean(column) for column in zip(*accuracies))
        self.assertGreater(single, 0.89)
        self.assertLessEqual(abs(halves - single), self.POINTS_APART, accuracies)

    def test_a_gpt_learns_as_much(self):
        text = os.path.join(LARGE_DATA, "tinyshakespeare", "input.txt")
        self.need(text)
        with open(os.path.join(SOURCE, "lab", "bench", "gpt.json")) as file, open(self.path("gpt.json"), "w") as small:
            small.write(bench_lines.gpt_of_width(file.read(), 128))
        found = self.both("--model=" + self.path("gpt.json"), f"--dataset=text:file={text},length=128,stride=16", "--batch=16",
                          "--steps=2000", "--optimizer=adam", "--validation=off")
        losses = [[statistics.mean(report["losses"][-self.LAST:]) for report in pair] for pair in found]
        print("GPT, losses in float32 and mixed_bfloat16:", losses, flush=True)
        for single, halves in losses:
            self.assertLess(single, 2.0)
            self.assertLessEqual(abs(halves / single - 1), self.LOSSES_APART, losses)


if __name__ == "__main__":
    main()
