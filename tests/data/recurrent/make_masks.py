# SPDX-License-Identifier: Apache-2.0
"""Writes models whose outputs have masks beside this file, and what Keras makes of them: run with Keras 3 and TensorFlow."""
import json
import os

os.environ["KERAS_BACKEND"] = "tensorflow"
import keras
import numpy as np
from keras import layers as L

keras.utils.set_random_seed(2)
rng = np.random.default_rng(1)
FOLDER = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = 12


def sentences(most, steps):
    x = rng.integers(1, most, (EXAMPLES, steps)).astype("int32")
    for row in x:
        row[rng.integers(1, steps + 1):] = 0
    x[4] = 0
    return x


def tagger():
    model = keras.Sequential([keras.Input((7,), dtype="int32"), L.Embedding(9, 6, mask_zero=True),
                              L.Bidirectional(L.LSTM(5, return_sequences=True)), L.Dense(4, activation="softmax")])
    return model, [sentences(9, 7)], rng.integers(0, 4, (EXAMPLES, 7)).astype("int32")


def translator():
    first, second = keras.Input((6,), dtype="int32"), keras.Input((5,), dtype="int32")
    _, state = L.GRU(8, return_state=True)(L.Embedding(11, 5, mask_zero=True)(first))
    y = L.GRU(8, return_sequences=True)(L.Embedding(7, 5, mask_zero=True)(second), initial_state=state)
    model = keras.Model([first, second], L.Dense(7, activation="softmax")(y))
    return model, [sentences(11, 6), sentences(7, 5)], rng.integers(0, 7, (EXAMPLES, 5)).astype("int32")


def steps():
    model = keras.Sequential([keras.Input((5, 3)), L.Masking(), L.LSTM(4, return_sequences=True), L.Dense(3)])
    x = rng.normal(size=(EXAMPLES, 5, 3)).astype("float32")
    for row in x:
        row[rng.random(5) < 0.4] = 0
    x[10:] = 0  # the last batch of an evaluation: nothing counts
    y = rng.random((EXAMPLES, 5, 3))
    return model, [x], (y / y.sum(-1, keepdims=True)).astype("float32")


def signals():
    model = keras.Sequential([keras.Input((6, 2)), L.Masking(), L.SimpleRNN(3, return_sequences=True), L.Dense(1, activation="sigmoid")])
    x = rng.normal(size=(EXAMPLES, 6, 2)).astype("float32")
    for row in x:
        row[rng.random(6) < 0.4] = 0
    return model, [x], rng.integers(0, 2, (EXAMPLES, 6, 1)).astype("float32")


# Names as Lockstep's; the loss of Keras has the same, with these arguments.
CASES = [
    ("tagger", "sparse_categorical_crossentropy", {}, ["accuracy", "sparse_top_k_categorical_accuracy:k=2"], False),
    ("tagger", "sparse_categorical_crossentropy", {}, ["accuracy"], True),
    ("translator", "sparse_categorical_crossentropy", {}, ["accuracy"], False),
    ("steps", "mean_squared_error", {}, ["mean_absolute_error", "root_mean_squared_error"], False),
    ("steps", "mean_absolute_error", {}, ["mean_squared_error", "cosine_similarity"], True),
    ("steps", "categorical_crossentropy", {"from_logits": True, "label_smoothing": 0.1}, ["categorical_accuracy"], False),
    ("steps", "huber", {"delta": 0.5}, [], False),
    ("signals", "binary_crossentropy", {}, ["binary_accuracy", "precision"], False),
    ("signals", "mean_squared_error", {}, ["binary_accuracy"], True),
]
METRICS = {
    "accuracy": lambda: "accuracy",
    "sparse_top_k_categorical_accuracy:k=2": lambda: keras.metrics.SparseTopKCategoricalAccuracy(k=2),
    "mean_absolute_error": keras.metrics.MeanAbsoluteError,
    "mean_squared_error": keras.metrics.MeanSquaredError,
    "root_mean_squared_error": keras.metrics.RootMeanSquaredError,
    "cosine_similarity": keras.metrics.CosineSimilarity,
    "categorical_accuracy": keras.metrics.CategoricalAccuracy,
    "binary_accuracy": keras.metrics.BinaryAccuracy,
    "precision": keras.metrics.Precision,
}
LOSSES = {
    "sparse_categorical_crossentropy": keras.losses.SparseCategoricalCrossentropy,
    "categorical_crossentropy": keras.losses.CategoricalCrossentropy,
    "binary_crossentropy": keras.losses.BinaryCrossentropy,
    "mean_squared_error": keras.losses.MeanSquaredError,
    "mean_absolute_error": keras.losses.MeanAbsoluteError,
    "huber": keras.losses.Huber,
}


def words(loss, arguments):
    return loss + (":" + ",".join(f"{key}={str(value).lower()}" for key, value in arguments.items()) if arguments else "")



def rounded(values):
    return [float(f"{float(value):.8g}") for value in values]


made, expected = {}, []
for make in (tagger, translator, steps, signals):
    name = make.__name__
    made[name] = make()
    model, x, y = made[name]
    model.save(f"{FOLDER}/masked-{name}.keras")
    for i, values in enumerate(x):
        np.save(f"{FOLDER}/masked-{name}-x{i + 1}.npy", values)
    np.save(f"{FOLDER}/masked-{name}-y.npy", y)
weights = rng.random(EXAMPLES).astype("float32") * 2
weights[2] = 0
np.save(f"{FOLDER}/masked-weights.npy", weights)
for name, loss, arguments, metrics, weighted in CASES:
    model, x, y = made[name]
    model = keras.models.load_model(f"{FOLDER}/masked-{name}.keras")
    model.compile(keras.optimizers.SGD(0.5), loss=LOSSES[loss](**arguments), metrics=[METRICS[metric]() for metric in metrics], run_eagerly=True)
    w = weights[:, None] if weighted else None  # the weight of an example is that of each of its steps
    case = {"model": name, "inputs": len(x), "loss": words(loss, arguments), "metrics": metrics, "weighted": weighted}
    model.evaluate(x, y, sample_weight=w, batch_size=5, verbose=0)
    evaluated = model.get_metrics_result()
    case["names"], case["evaluated"], case["trained"] = list(evaluated), rounded(evaluated.values()), []
    for _ in range(3):
        model.reset_metrics()
        found = model.train_on_batch(x, y, sample_weight=w, return_dict=True)
        case["trained"].append(rounded(found[key] for key in case["names"]))
    expected.append(case)
with open(f"{FOLDER}/masks.json", "w") as file:
    file.write("[\n" + ",\n".join(json.dumps(case) for case in expected) + "\n]\n")
