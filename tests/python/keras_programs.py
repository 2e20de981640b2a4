# SPDX-License-Identifier: Apache-2.0
"""The programs of Keras's guide and of the MirroredStrategy tutorial in examples/keras, to their last line, and the difference to the originals
that docs/tutorials.md shows.

Needs Python with Keras and TensorFlow (keras_python.py), and MNIST and CIFAR-10; without them they are skipped, by name.
KERAS_PROGRAMS_LIMIT=N takes N examples of each.
"""
import os
import re
import subprocess
import sys

SOURCE = os.environ["LOCKSTEP_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "programs"))

from keras_python import keras_python  # noqa: E402
from support import LARGE_DATA, LOCKSTEP, ProgramTest, main  # noqa: E402

FOLDER = os.path.join(SOURCE, "examples", "keras")
LIMIT = [os.environ["KERAS_PROGRAMS_LIMIT"]] if "KERAS_PROGRAMS_LIMIT" in os.environ else []
EPOCH = re.compile(r"^Epoch (\d+)/(\d+) - [\d.]+s - loss: [\d.]+ - \w*accuracy: ([\d.]+)(?: - val_loss: [\d.]+ - val_\w*accuracy: ([\d.]+))?", re.M)
SECONDS = 3000


class Programs(ProgramTest):
    def setUp(self):
        super().setUp()
        built = os.environ["LOCKSTEP_KERAS_BUILT"] == "true"
        self.python, missing = keras_python() if built else (None, "libhdf5 or libzip is not here")
        data = [name for name in ("mnist", "cifar-10-batches-bin", "cifar-10-test-first1000") if not os.path.isdir(os.path.join(LARGE_DATA, name))]
        if missing or data:
            self.skipTest(f"the programs of examples/keras: {missing or 'there is no ' + ', '.join(data) + ' in the folder test_data'}")

    def run_program(self, name, *before):
        environment = dict(os.environ, PYTHONPATH=os.path.join(SOURCE, "python"), TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
        done = subprocess.run([*before, self.python, os.path.join(FOLDER, name), LARGE_DATA, *LIMIT], cwd=self.folder, env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        print(done.stdout, flush=True)
        said = re.sub(r"^\[0\] ", "", done.stdout, flags=re.M)  # of worker 0, where there are several
        return said, [(int(epoch), int(of), float(value), float(val or 0)) for epoch, of, value, val in EPOCH.findall(said)]

    def test_the_guide_to_several_gpus(self):
        said, epochs = self.run_program("multi_gpu_guide.py")
        self.assertEqual([epoch[:2] for epoch in epochs], [(1, 2), (2, 2), (1, 1), (1, 1)])
        self.assertIn("Number of devices: 2\n", said)
        self.assertRegex(said, r"(?s)Creating a new model\n.*Restoring from ./ckpt/ckpt-1.keras\n")
        self.assertEqual(os.listdir(self.path("ckpt")), ["ckpt-1.keras"])
        self.assertGreater(epochs[3][2], epochs[2][2] + 0.01)  # it goes on from the weights of the run before
        if not LIMIT:
            self.assertGreater(min(epochs[1][3], epochs[3][3]), 0.96)

    def test_the_mirrored_strategy_tutorial(self):
        said, epochs = self.run_program("mirrored_strategy.py")
        self.assertEqual([epoch[:2] for epoch in epochs], [(k, 5) for k in range(1, 6)] + [(k, 10) for k in range(1, 11)])
        self.assertRegex(said, r"one-device training time: [\d.]+ seconds\nring training time: [\d.]+ seconds\n")
        self.assertIn("Total params: 225,034", said)
        runs = os.listdir(self.path(os.path.join("logs", "fit")))
        self.assertEqual(sorted(os.listdir(self.path(os.path.join("logs", "fit", runs[0])))), ["train", "validation"])
        self.assertGreater(epochs[-1][2], 0.8)
        if not LIMIT:
            self.assertGreater(epochs[4][3], 0.985)

    def test_the_custom_loop(self):
        said, _ = self.run_program("custom_loop.py")
        found = [(float(loss), float(share)) for loss, share in re.findall(r"^Epoch \d, Loss: ([\d.]+), Accuracy: ([\d.]+)$", said, re.M)]
        self.assertEqual(len(found), 3)
        if not LIMIT:  # what the tutorial prints, of other first weights and another order
            recorded = [(0.2033, 0.9386), (0.0648, 0.9798), (0.0461, 0.9855)]
            for (loss, share), (its_loss, its_share) in zip(found, recorded):
                self.assertLess(abs(loss - its_loss), 0.03)
                self.assertLess(abs(share - its_share), 0.01)

    def test_scaling(self):
        said, epochs = self.run_program("scaling.py")
        self.assertIn("Number of devices: 2\n", said)
        self.assertEqual([epoch[:2] for epoch in epochs], [(k, 10) for k in range(1, 11)])
        self.assertGreater(epochs[-1][3], 0.8 if LIMIT else 0.975)

    def test_one_worker_and_two(self):
        for launch in ((), (LOCKSTEP, "launch", "-n", "2", "--")):
            _, epochs = self.run_program("several_workers.py", *launch)
            self.assertEqual([epoch[:2] for epoch in epochs], [(k, 3) for k in range(1, 4)])
            self.assertGreater(epochs[-1][2], 0.6 if LIMIT else 0.93)


class Page(ProgramTest):
    def test_what_the_page_adds_is_in_the_programs(self):
        with open(os.path.join(SOURCE, "docs", "tutorials.md"), encoding="utf-8") as file:
            shown = dict(re.findall(r"\[`(\w+\.py)`\]\([^)]*\).*?```diff\n(.*?)```", file.read(), re.S))
        self.assertEqual(sorted(shown), ["custom_loop.py", "mirrored_strategy.py", "multi_gpu_guide.py", "scaling.py", "several_workers.py"])
        for name, diff in shown.items():
            with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
                written = file.read().splitlines()
            lines = {line.strip() for line in written}
            for line in diff.splitlines():
                if not line.startswith(("-", "@")):
                    self.assertIn(line[1:].strip(), lines | {""}, name)
                elif line.startswith("-"):
                    self.assertNotIn(line[1:], written, name)


if __name__ == "__main__":
    main()
