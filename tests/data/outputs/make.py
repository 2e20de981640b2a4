# SPDX-License-Identifier: Apache-2.0
"""Writes models of several outputs beside this file, and what Keras makes of them: run with Keras 3, TensorFlow and JAX.

Called without arguments it makes models and data with TensorFlow, then calls itself to see how far JAX is from that."""
import json
import os
import subprocess
import sys

AGAIN = sys.argv[1:] == ["again"]
os.environ["KERAS_BACKEND"] = "jax" if AGAIN else "tensorflow"
import keras
import numpy as np
from keras import layers as L

keras.utils.set_random_seed(1)
rng = np.random.default_rng(0)
FOLDER = os.path.dirname(os.path.abspath(__file__))
CLASSES, SQUARES = "sparse_categorical_crossentropy", "mean_squared_error"
EXAMPLES = 12


def numbers(*shape):
    return rng.normal(size=(EXAMPLES, *shape)).astype("float32")


def classes(most, *shape):
    return rng.integers(0, most, (EXAMPLES, *shape)).astype("int32")


def two_heads():
    """A trunk, a head of classes and one of numbers; compiled, so that the file says all of it."""
    x = keras.Input((6,))
    trunk = L.Dense(8, activation="tanh", name="trunk")(L.Dense(7, activation="relu")(x))
    model = keras.Model(x, [L.Dense(3, activation="softmax", name="kind")(trunk), L.Dense(2, name="size")(trunk)])
    return model, [numbers(6)], [classes(3), numbers(2)], {
        "loss": [CLASSES, SQUARES], "loss_weights": [0.3, 2.0], "metrics": [["accuracy"], ["mae", "mse"]]}, numbers() ** 2


def by_name():
    """Sequences: an output of a position each beside one of the whole, as a dictionary."""
    x = keras.Input((5, 4))
    steps = L.Conv1D(6, 3, padding="same", activation="relu", name="steps")(x)
    each = L.Dense(4, name="each")(steps)
    whole = L.Dense(1, activation="sigmoid", name="whole")(L.GlobalAveragePooling1D()(steps))
    return keras.Model(x, [each, whole]), [numbers(5, 4)], [classes(4, 5), classes(2, 1).astype("float32")], {
        "loss": {"each": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "whole": "binary_crossentropy"},
        "loss_weights": {"each": 0.5, "whole": 1.5}, "metrics": {"each": ["sparse_categorical_accuracy"], "whole": ["accuracy"]}}, None


def inner():
    """The output of an inner layer, one behind it, and one without a loss; a penalty of a kernel."""
    x, z = keras.Input((5,)), keras.Input((3,))
    y = L.Dense(4, activation="tanh", name="inner", kernel_regularizer="l2")(L.Concatenate()([x, z]))
    return keras.Model([x, z], [y, L.Dense(2, name="free")(y), L.Dense(3, name="outer")(y)]), [numbers(5), numbers(3)], [
        numbers(4), numbers(2), numbers(3)], {"loss": [keras.losses.Huber(delta=0.5), None, "mae"], "metrics": [["mae"], None, ["mse"]]}, None


def rounded(values):
    return [float(f"{value:.8g}") for value in values]


def steps_of(name, model, x, y, weights):
    """Loss and metrics of three steps, each before it is made."""
    found = []
    for _ in range(3):
        logs = model.test_on_batch(x, y, sample_weight=weights, return_dict=True)
        found.append({key: float(f"{float(value):.8g}") for key, value in logs.items()})
        model.train_on_batch(x, y, sample_weight=weights)
    return found


expected = {}
for make in (two_heads, by_name, inner):
    name = make.__name__.replace("_", "-")
    model, x, y, options, weights = make()
    if AGAIN:
        model.load_weights(f"{FOLDER}/{name}.keras")
    predictions = [np.asarray(one) for one in model(x if len(x) > 1 else x[0], training=False)]
    rows = np.concatenate([one.reshape(EXAMPLES, -1) for one in predictions], axis=1).reshape(-1)
    given = y
    if isinstance(options["loss"], dict):
        given = dict(zip(model.output_names, y))
    model.compile(keras.optimizers.SGD(0.25), **options)
    if not AGAIN:
        model.save(f"{FOLDER}/{name}.keras")
        for kind, arrays in (("x", x), ("y", [one for one, loss in zip(y, options["loss"]) if loss])):
            for i, values in enumerate(arrays):
                np.save(f"{FOLDER}/{name}-{kind}{i + 1}.npy", values)
        if weights is not None:
            np.save(f"{FOLDER}/{name}-weights.npy", weights)
    expected[name] = {"inputs": len(x), "targets": sum(bool(options["loss"][one] if isinstance(options["loss"], dict) else one)
                                                       for one in options["loss"]),
                      "weights": weights is not None, "steps": steps_of(name, model, x if len(x) > 1 else x[0], given, weights),
                      "predictions": rounded(rows)}
if AGAIN:
    print(json.dumps(expected))
    sys.exit()
other = json.loads(subprocess.run([sys.executable, __file__, "again"], capture_output=True, check=True, text=True).stdout.splitlines()[-1])
for name, one in expected.items():
    one["between_backends"] = max(abs(a[key] - b[key]) for a, b in zip(one["steps"], other[name]["steps"]) for key in a)
    print(name, one["between_backends"], one["steps"])
with open(f"{FOLDER}/expected.json", "w") as file:
    json.dump(expected, file, separators=(",", ":"))
    file.write("\n")
