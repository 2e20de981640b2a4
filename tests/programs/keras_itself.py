# SPDX-License-Identifier: Apache-2.0
"""Files of weights against Keras itself: Keras predicts the same with what Lockstep wrote, and the variables of
keras.applications are found.

Needs Keras (any backend), here or in another Python (keras_python.py says where it is looked for); without it, everything is skipped.
KERAS_MODELS=NAME,NAME takes these of keras.applications, else the table below.
"""
import json
import os
import struct
import subprocess
import sys

try:
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras
except ImportError:
    from keras_python import keras_python

    other, missing = keras_python()
    if missing:
        print(f"SKIP: files of weights were not given to Keras itself: {missing}")
        sys.exit(77)
    os.execv(other, [other, os.path.abspath(__file__), *sys.argv[1:]])

import numpy

from support import DONE, ProgramTest, main

layers = keras.layers
APPLICATIONS = {"ResNet50": 64, "ResNet50V2": 64, "VGG16": 64, "MobileNet": 64, "MobileNetV2": 64, "MobileNetV3Small": 64, "DenseNet121": 64,
                "Xception": 96, "InceptionV3": 96, "InceptionResNetV2": 96, "EfficientNetB0": 64, "EfficientNetV2B0": 64, "NASNetMobile": 64,
                "ConvNeXtTiny": 64}


def variables(layer, prefix=""):
    """(name in Lockstep, variable) of a layer, models inside included."""
    for inner in getattr(layer, "layers", ()):
        if hasattr(inner, "layers"):
            yield from variables(inner, prefix + inner.name + "/")
        else:
            for variable in inner.weights:
                parts = variable.path.split("/")
                yield prefix + "/".join(parts[parts.index(inner.name):]), variable


def randomize(model):
    random = numpy.random.default_rng(7)
    for name, variable in variables(model):
        if "float" in str(variable.dtype):
            variable.assign(random.random(variable.shape) * 0.5 + (0.5 if "variance" in name else -0.25))


def save_expected(model, path):
    header, at, values = {}, 0, []
    for name, variable in variables(model):
        if "float" in str(variable.dtype):
            values.append(numpy.asarray(keras.ops.convert_to_numpy(variable), "<f4"))
            header[name] = {"dtype": "F32", "shape": list(values[-1].shape), "data_offsets": [at, at + values[-1].nbytes]}
            at += values[-1].nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in values:
            file.write(array.tobytes())


class WithKeras(ProgramTest):
    def save(self, model):
        randomize(model)
        for suffix in (".keras", ".weights.h5", ".h5"):
            path = self.path("m" + suffix)
            model.save_weights(path) if suffix == ".weights.h5" else model.save(path)
        with open(self.path("m.json"), "w") as file:
            file.write(model.to_json())

    def convert(self, *arguments):
        outcome = self.lockstep("convert", *arguments)
        self.assertEqual(outcome.code, DONE, outcome.err)

    def check_written(self, *made):
        model = keras.Sequential(made)
        self.save(model)
        examples = numpy.random.default_rng(1).normal(size=(9, *model.input_shape[1:]))
        expected = model.predict(examples, verbose=0)
        for source in ("m.keras", "m.weights.h5", "m.h5"):
            self.convert(source, "between.safetensors", "--model=m.json")
            for name in ("out.weights.h5", "out.keras"):
                for original in (source, "between.safetensors"):
                    with self.subTest(f"{original} to {name}"):
                        self.convert(original, name, "--model=m.json")
                        if name == "out.keras":
                            written = keras.models.load_model(self.path(name))
                        else:
                            written = keras.models.model_from_json(model.to_json())
                            written.load_weights(self.path(name))
                        self.assertTrue(numpy.array_equal(written.predict(examples, verbose=0), expected))

    def test_keras_predicts_the_same_with_what_lockstep_wrote(self):
        self.check_written(keras.Input((12, 12, 2)), layers.Conv2D(4, 3, padding="same"), layers.BatchNormalization(),
                           layers.ReLU(), layers.MaxPooling2D(), layers.Conv2D(4, 3, use_bias=False),
                           layers.BatchNormalization(scale=False), layers.Flatten(), layers.Dropout(0.5), layers.Dense(8, activation="tanh"),
                           layers.Dense(3, activation="softmax"))

    def test_and_with_volumes(self):
        self.check_written(keras.Input((4, 6, 6, 2)), layers.Conv3D(4, 3, padding="same"), layers.BatchNormalization(), layers.ReLU(),
                           layers.Conv3DTranspose(2, 2, strides=2), layers.Conv3D(3, 2, use_bias=False), layers.Flatten(), layers.Dense(3))

    def test_and_with_channels_first(self):
        self.check_written(keras.Input((2, 4, 6, 6)), layers.Conv3D(4, 3, data_format="channels_first"), layers.BatchNormalization(axis=1),
                           layers.ReLU(), layers.Flatten(), layers.Dense(3))

    def test_keras_reads_what_was_trained(self):
        model = keras.Sequential([keras.Input((4, 4, 1)), layers.Flatten(), layers.Dense(10)], name="linear")
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
        self.save(model)
        outcome = self.lockstep("train", "--quiet", "--model=m.keras", "--dataset=synthetic:shape=4x4x1,examples=64", "--steps=3",
                                "--validation=off", "--replicas=2", "--strategy=ring", "--save-weights=trained.keras")
        self.assertEqual(outcome.code, DONE, outcome.err)
        trained = keras.models.load_model(self.path("trained.keras"))
        self.assertFalse(numpy.array_equal(trained.get_weights()[0], model.get_weights()[0]))
        trained.fit(numpy.zeros((4, 4, 4, 1)), numpy.zeros(4), verbose=0)  # it is compiled

    def test_variables_of_keras_applications_are_found(self):
        names = [name for name in os.environ.get("KERAS_MODELS", "").split(",") if name] or list(APPLICATIONS)
        for name in names:
            with self.subTest(name):
                size = APPLICATIONS.get(name, 96)
                model = getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3), classes=10, classifier_activation=None)
                self.save(model)
                save_expected(model, self.path("m.expected.safetensors"))
                done = subprocess.run([os.environ["LOCKSTEP_MATCH_FILES"], "m.json", "m.expected.safetensors", "m.keras", "m.weights.h5", "m.h5"],
                                      cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                print(name, done.stdout, sep="\n", flush=True)
                self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    main()
