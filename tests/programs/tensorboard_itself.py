# SPDX-License-Identifier: Apache-2.0
"""TensorBoard itself reads what `lockstep train --tensorboard=` writes.

Needs TensorBoard, here or in another Python (keras_python.py says where it is looked for); without it, everything is skipped.
"""
import os
import sys

try:
    from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator
except ImportError:
    from keras_python import python_with

    other, missing = python_with(("tensorboard",), "TENSORBOARD")
    if missing:
        print(f"SKIP: logs were not given to TensorBoard itself: {missing}")
        sys.exit(77)
    os.execv(other, [other, os.path.abspath(__file__), *sys.argv[1:]])

from support import ProgramTest, main, tensors

EPOCHS = 3


class TensorBoard(ProgramTest):
    def setUp(self):
        super().setUp()
        self.weights = self.path("weights.safetensors")
        self.report = self.train("--model=mlp", "--dataset=synthetic:examples=400", "--batch=50", f"--epochs={EPOCHS}", "--replicas=2",
                                 "--strategy=ring", "--tensorboard=" + self.path("logs"), "--save-weights=" + self.weights)

    def read(self, split, module=event_accumulator):
        found = module.EventAccumulator(self.path("logs/" + split), size_guidance={"scalars": 0, "histograms": 0, "tensors": 0})
        found.Reload()
        return found

    def test_scalars_are_those_of_the_report(self):
        for split, tag, key in (("train", "epoch_loss", "loss"), ("train", "epoch_accuracy", "accuracy"),
                                ("train", "epoch_learning_rate", "learning_rate"), ("train", "epoch_seconds", "seconds"),
                                ("validation", "epoch_loss", "val_loss"), ("validation", "epoch_accuracy", "val_accuracy")):
            with self.subTest(split=split, tag=tag):
                scalars = self.read(split).Scalars(tag)
                self.assertEqual([scalar.step for scalar in scalars], list(range(EPOCHS)))
                for scalar, epoch in zip(scalars, self.report["epochs"]):
                    self.assertAlmostEqual(scalar.value, epoch[key], delta=1e-6 * abs(epoch[key]))

    def test_histograms_are_those_of_the_weights(self):
        train = self.read("train")
        weights = tensors(self.weights)
        self.assertEqual(set(train.Tags()["histograms"]),
                         {name + suffix for name in weights for suffix in ("/histogram", "_grad/histogram")})
        for name, (_, values) in weights.items():
            with self.subTest(name):
                histograms = train.Histograms(name + "/histogram")
                self.assertEqual([histogram.step for histogram in histograms], list(range(EPOCHS)))
                last = histograms[-1].histogram_value
                self.assertEqual((last.num, sum(last.bucket)), (len(values), len(values)))
                self.assertAlmostEqual(last.min, min(values), delta=1e-6)
                self.assertAlmostEqual(last.max, max(values), delta=1e-6)
                self.assertAlmostEqual(last.sum, sum(values), delta=1e-6 * len(values))
                self.assertEqual(list(last.bucket_limit), sorted(last.bucket_limit))

    def test_its_server_reads_the_same(self):
        """The reader of `tensorboard --logdir`, which turns both kinds into tensors."""
        tags = self.read("train", plugin_event_accumulator).Tags()["tensors"]
        for tag in ("epoch_loss", "epoch_steps_per_second", "dense/kernel/histogram"):
            self.assertIn(tag, tags)


if __name__ == "__main__":
    main()
