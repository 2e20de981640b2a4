# SPDX-License-Identifier: Apache-2.0
"""Writes image classifiers with augmentation inside beside this file, and what Keras makes of them: run with Keras 3 and TensorFlow."""
import json
import os

os.environ["KERAS_BACKEND"] = "tensorflow"
import keras
import numpy as np
from keras import layers as L

keras.utils.set_random_seed(2)
rng = np.random.default_rng(0)
FOLDER = os.path.dirname(os.path.abspath(__file__))
SHAPE, CLASSES = (10, 9, 3), 4


def classifier(*changes):
    return keras.Sequential([keras.Input(SHAPE), *changes, L.Conv2D(4, 3, activation="relu"), L.MaxPooling2D(), L.Flatten(),
                             L.Dense(CLASSES, activation="softmax")])


def fixed():
    """Each range is one number, so that what is drawn is known."""
    return classifier(L.Resizing(12, 11), L.Rescaling(1 / 255), L.RandomRotation((0.07, 0.07)), L.RandomZoom((0.1, 0.1), (-0.2, -0.2), fill_mode="nearest"),
                      L.RandomTranslation((0.11, 0.11), (-0.06, -0.06), fill_mode="constant", fill_value=0.3),
                      L.RandomBrightness((0.15, 0.15), value_range=(0, 1)), L.CenterCrop(9, 9))


def drawn():
    """What tutorials have; RandomCrop is not among it, for Keras's own does not crop in predictions."""
    return classifier(L.RandomFlip("horizontal"), L.RandomRotation(0.1), L.RandomZoom(0.2, fill_mode="wrap"), L.RandomTranslation(0.1, 0.1),
                      L.RandomContrast(0.3), L.RandomBrightness(0.2), L.RandomErasing(0.5), L.Rescaling(1 / 255))


def rounded(values):
    return [float(f"{value:.8g}") for value in values]


x = rng.uniform(0, 255, (12, *SHAPE)).astype("float32")
y = rng.integers(0, CLASSES, 12).astype("int32")
np.save(f"{FOLDER}/x.npy", x)
np.save(f"{FOLDER}/y.npy", y)
expected = {}
for make in (fixed, drawn):
    model = make()
    model.save(f"{FOLDER}/{make.__name__}.keras")
    predictions = np.asarray(model(x, training=False)).reshape(-1)
    expected[make.__name__] = {"predictions": rounded(predictions)}
    if make is fixed:
        model.compile(keras.optimizers.SGD(0.1), loss="sparse_categorical_crossentropy", run_eagerly=True)
        expected["fixed"]["losses"] = rounded(float(model.train_on_batch(x, y)) for _ in range(3))
with open(f"{FOLDER}/expected.json", "w") as file:
    json.dump(expected, file, separators=(",", ":"))
    file.write("\n")
