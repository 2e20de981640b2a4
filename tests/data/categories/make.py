# SPDX-License-Identifier: Apache-2.0
"""Writes models of categories beside this file, and what Keras makes of them: run with Keras 3 and TensorFlow."""
import json
import os

os.environ["KERAS_BACKEND"] = "tensorflow"
import keras
import numpy as np
from keras import layers as L

keras.utils.set_random_seed(4)
rng = np.random.default_rng(3)
FOLDER = os.path.dirname(os.path.abspath(__file__))
EXAMPLES, LARGE = 13, 2**31 - 1


def table():
    """A classifier of rows of a table: numbers with a vocabulary that float32 does not hold, a number in bins, codes."""
    keys, price, codes = keras.Input((2,), dtype="int64"), keras.Input((2,)), keras.Input((3,), dtype="int32")
    known = [16777216, 16777217, LARGE, -LARGE, 5]
    parts = [L.IntegerLookup(vocabulary=known, output_mode="multi_hot", num_oov_indices=2)(keys),
             L.Flatten()(L.Embedding(6, 3)(L.IntegerLookup(vocabulary=known)(keys))),
             L.Rescaling([0.25, 0.5, 1.5, 2.0])(L.IntegerLookup(vocabulary=[1, 2, 3], output_mode="count")(codes)),
             L.Flatten()(L.Discretization(bin_boundaries=[-0.5, 0.25, 1.0], output_mode="one_hot")(price)),
             L.CategoryEncoding(num_tokens=5, output_mode="count")(codes)]
    return keras.Model([keys, price, codes], L.Dense(3, activation="softmax")(L.Dense(6, activation="relu")(L.Concatenate()(parts))))


def adapted():
    """Bins that Keras found."""
    bins = L.Discretization(num_bins=4)
    bins.adapt(rng.normal(size=(500, 1)).astype("float32"))
    x = keras.Input((3,))
    return keras.Model(x, L.Dense(3, activation="softmax")(L.Flatten()(L.Embedding(4, 2)(bins(x)))))


def tied():
    """A language model whose last layer is its first one in reverse."""
    ids = keras.Input((4,), dtype="int32")
    embedding = L.ReversibleEmbedding(7, 5, logit_soft_cap=3.0)
    return keras.Model(ids, embedding(L.Dense(5, activation="tanh")(embedding(ids)), reverse=True))


def not_tied():
    ids = keras.Input((4,), dtype="int32")
    embedding = L.ReversibleEmbedding(7, 5, tie_weights=False)
    return keras.Model(ids, embedding(L.Dense(5, activation="tanh")(embedding(ids)), reverse=True))


def rounded(values):
    return [float(f"{value:.8g}") for value in values]


keys = rng.choice([16777216, 16777217, LARGE, -LARGE, 5, 16777218, -3], (EXAMPLES, 2)).astype("int64")
price, codes = rng.normal(size=(EXAMPLES, 3)).astype("float32"), rng.integers(0, 5, (EXAMPLES, 3)).astype("int32")
ids, classes = rng.integers(0, 7, (EXAMPLES, 4)).astype("int32"), rng.integers(0, 3, EXAMPLES).astype("int32")
following = rng.integers(0, 7, (EXAMPLES, 4)).astype("int32")
DATA = {"table": ([keys, price[:, :2], codes], classes), "adapted": ([price], classes), "tied": ([ids], following), "not_tied": ([ids], following)}
expected = {}
for make in (table, adapted, tied, not_tied):
    name, (inputs, y) = make.__name__, DATA[make.__name__]
    model = make()
    model.save(f"{FOLDER}/{name}.keras")
    for i, x in enumerate(inputs):
        np.save(f"{FOLDER}/{name}-x{i + 1}.npy", x)
    np.save(f"{FOLDER}/{name}-y.npy", y)
    given = inputs if len(inputs) > 1 else inputs[0]
    found = {"predictions": rounded(np.asarray(model(given, training=False)).reshape(-1))}
    logits = name in ("tied", "not_tied")
    model.compile(keras.optimizers.SGD(0.2), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=logits))
    found["losses"] = rounded(float(model.train_on_batch(given, y)) for _ in range(3))
    expected[name] = {"inputs": len(inputs), "logits": logits, **found}
with open(f"{FOLDER}/expected.json", "w") as file:
    json.dump(expected, file, separators=(",", ":"))
    file.write("\n")
