# SPDX-License-Identifier: Apache-2.0
"""Image classifiers with augmentation inside, beside Keras and with any number of replicas. tests/data/README.md says how they were made."""
import json
import os
import zipfile

from support import DONE, FIXTURES, KERAS_FILES, ProgramTest, main, read_json, write_json
from test_recurrent import CLOSE, REPLICAS, floats, layer

FOLDER = os.path.join(FIXTURES, "augmentation")
DATA = f"--dataset=arrays:x={FOLDER}/x.npy,y={FOLDER}/y.npy"
TRAIN = ("--loss=sparse_categorical_crossentropy", "--epochs=3", "--threads=1", "--validation=off")
RATE = "--optimizer=sgd:learning_rate=0.1"
EXPECTED = read_json(os.path.join(FOLDER, "expected.json"))


class Augmentation(ProgramTest):
    def model(self, name):
        if not KERAS_FILES:
            self.skipTest("files of Keras are not built in")
        file = os.path.join(FOLDER, name + ".keras")
        return (f"--model={file}", f"--initial-weights={file}", DATA)

    def close(self, got, wanted):
        self.assertEqual(len(got), len(wanted))
        self.assertLess(max(abs(a - b) for a, b in zip(got, wanted)), CLOSE)

    def losses(self, *options):
        return [epoch["loss"] for epoch in self.train(*TRAIN, RATE, *options)["epochs"]]

    def test_predictions_are_those_of_keras(self):
        for name, expected in EXPECTED.items():
            with self.subTest(model=name):
                out = self.path("out.npy")
                outcome = self.lockstep("predict", *self.model(name), "--device=cpu", "--out=" + out)
                self.assertEqual(outcome.code, DONE, outcome.err)
                self.close(floats(out), expected["predictions"])

    def test_training_on_known_factors_is_that_of_keras(self):
        for device in ("cpu", "reference"):
            with self.subTest(device=device):
                self.close(self.losses(*self.model("fixed"), "--batch=12", "--device=" + device), EXPECTED["fixed"]["losses"])

    def test_replicas_draw_the_same(self):
        one = self.losses(*self.model("drawn"), "--batch=12")
        for replicas, *strategy in REPLICAS[1:]:
            with self.subTest(replicas=replicas, strategy=strategy):
                self.close(self.losses(*self.model("drawn"), "--batch=12", f"--replicas={replicas}", *strategy), one)
        uneven = [self.losses(*self.model("drawn"), "--batch=7", *case) for case in ((), ("--replicas=3", "--strategy=ring"))]
        self.close(*uneven)
        self.assertGreater(max(abs(a - b) for a, b in zip(one, self.losses(*self.model("drawn"), "--batch=12", "--seed=2"))), 1e-4)

    def test_a_saved_model_keeps_its_layers(self):
        out = self.path("out.keras")
        self.train(*TRAIN, RATE, *self.model("drawn"), "--batch=12", "--save-weights=" + out)
        configs = []
        for path in (os.path.join(FOLDER, "drawn.keras"), out):
            with zipfile.ZipFile(path) as file:
                layers = json.loads(file.read("config.json"))["config"]["layers"]
            configs.append([(one["class_name"], one["config"]) for one in layers if one["class_name"].startswith("Random")])
        self.assertEqual(len(configs[0]), 7)
        self.assertEqual(*configs)

    def crop(self, name, *part):
        """A model whose images of 9 x 8 come from a convolution, so that gradients go through the layer."""
        layers = [layer("InputLayer", name="input", batch_shape=[None, 10, 9, 3]), layer("Rescaling", name="scale", scale=1 / 255),
                  layer("Conv2D", name="conv", filters=3, kernel_size=2), *part,
                  layer("Flatten", name="flatten"), layer("Dense", name="dense", units=4, activation="softmax")]
        write_json(self.path(name), {"class_name": "Sequential", "config": {"name": "m", "layers": layers}})
        return "--model=" + self.path(name), DATA, "--batch=12"

    def test_a_crop_is_random_in_training_only(self):
        model = self.crop("model.json", layer("RandomCrop", name="crop", height=6, width=5, seed=77))
        one = self.losses(*model)
        self.close(self.losses(*model, "--replicas=3", "--strategy=ring"), one)
        self.close(self.losses(*model, "--device=reference"), one)
        still = [epoch["loss"] for epoch in self.train(*TRAIN, *model, "--optimizer=sgd:learning_rate=1e-12")["epochs"]]
        self.assertGreater(max(still) - min(still), 1e-4)  # the weights are the same, the parts are not

    def test_a_crop_of_predictions_has_the_largest_window_of_its_shape(self):
        found = []
        for number, part in enumerate((layer("RandomCrop", name="crop", height=6, width=4, seed=77),
                                       layer("Resizing", name="crop", height=6, width=4, crop_to_aspect_ratio=True))):
            out = self.path(f"{number}.npy")
            outcome = self.lockstep("predict", *self.crop(f"{number}.json", part), "--out=" + out)
            self.assertEqual(outcome.code, DONE, outcome.err)
            found.append(floats(out))
        self.assertEqual(len(found[0]), 12 * 4)
        self.assertEqual(*found)


if __name__ == "__main__":
    main()
