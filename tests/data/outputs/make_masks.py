# SPDX-License-Identifier: Apache-2.0
"""Writes models beside this file of which some of several outputs have masks, and what Keras makes of them: run with Keras 3 and TensorFlow."""
import json
import os

os.environ["KERAS_BACKEND"] = "tensorflow"
import keras
import numpy as np
from keras import layers as L

keras.utils.set_random_seed(3)
rng = np.random.default_rng(4)
FOLDER = os.path.dirname(os.path.abspath(__file__))
EXAMPLES, STEPS = 12, 6
LENGTHS = [6, 1, 2, 1, 0, 6, 5, 6, 1, 4, 0, 0]  # of the last batch of an evaluation nothing is left


def numbers(*shape):
    return rng.normal(size=(EXAMPLES, *shape)).astype("float32")


def classes(most, *shape):
    return rng.integers(0, most, (EXAMPLES, *shape)).astype("int32")


def words(most):
    ids = 1 + classes(most - 1, STEPS)
    for row, length in zip(ids, LENGTHS):
        row[length:] = 0
    return ids


def heads():
    """Two outputs under one mask and one that has none; all are weighted."""
    ids = keras.Input((STEPS,), dtype="int32", name="ids")
    every = L.GRU(5, return_sequences=True, name="every")(L.Embedding(9, 4, mask_zero=True, name="words")(ids))
    outputs = [L.Dense(3, activation="softmax", name="tag")(every), L.Dense(4, name="kind")(L.LSTM(4, name="last")(every)),
               L.Dense(2, name="size")(every)]
    losses = ["sparse_categorical_crossentropy", keras.losses.SparseCategoricalCrossentropy(from_logits=True), "mean_squared_error"]
    return keras.Model(ids, outputs), [words(9)], [classes(3, STEPS), classes(4), numbers(STEPS, 2)], {
        "loss": losses, "loss_weights": [0.7, 1.5, 0.25], "metrics": [["accuracy"], ["accuracy"], ["mae", "mse"]]}


def masks():
    """Outputs of two masks, a penalty of a kernel, and an output with a mask but without a loss."""
    ids, signals = keras.Input((STEPS,), dtype="int32", name="ids"), keras.Input((4, 3), name="signals")
    said = L.Embedding(7, 3, mask_zero=True, name="words")(ids)
    heard = L.SimpleRNN(4, return_sequences=True, name="heard")(L.Masking(name="masking")(signals))
    outputs = [L.Dense(3, name="word", kernel_regularizer="l2")(said), L.Dense(1, activation="sigmoid", name="tone")(heard),
               L.Dense(2, name="free")(heard)]
    values = numbers(4, 3)
    for i, length in enumerate((4, 4, 1, 2, 0, 3, 4, 0, 1, 2, 2, 4)):
        values[i, length:] = 0
    return keras.Model([ids, signals], outputs), [words(7), values], [numbers(STEPS, 3), classes(2, 4, 1).astype("float32"), numbers(4, 2)], {
        "loss": ["cosine_similarity", "binary_crossentropy", None], "metrics": [["mae"], ["binary_accuracy"], None]}


def rounded(values):
    return [float(f"{float(value):.8g}") for value in values]


weights = rng.random(EXAMPLES).astype("float32") * 2
weights[2] = 0
np.save(f"{FOLDER}/masked-weights.npy", weights)
expected = []
for make in (heads, masks):
    name = "masked-" + make.__name__
    model, x, y, options = make()
    given = x if len(x) > 1 else x[0]
    rows = np.concatenate([np.asarray(one).reshape(EXAMPLES, -1) for one in model(given, training=False)], axis=1)
    model.compile(keras.optimizers.SGD(0.25), **options)
    model.save(f"{FOLDER}/{name}.keras")
    losses = options["loss"]
    for kind, arrays in (("x", x), ("y", [one for one, loss in zip(y, losses) if loss])):
        for i, values in enumerate(arrays):
            np.save(f"{FOLDER}/{name}-{kind}{i + 1}.npy", values)
    for weighted in (False, True):
        model = keras.models.load_model(f"{FOLDER}/{name}.keras")
        model.compile(keras.optimizers.SGD(0.25), run_eagerly=True, **options)
        # The weight of an example is that of each of its steps.
        w = [weights if one.ndim == 1 else weights[:, None] for one in y] if weighted else None
        model.evaluate(given, y, sample_weight=w, batch_size=5, verbose=0)
        evaluated = model.get_metrics_result()
        case = {"model": name, "inputs": len(x), "targets": sum(bool(loss) for loss in losses), "weighted": weighted,
                "predictions": rounded(rows.reshape(-1)), "names": list(evaluated), "evaluated": rounded(evaluated.values()), "trained": []}
        for _ in range(3):
            model.reset_metrics()
            found = model.train_on_batch(given, y, sample_weight=w, return_dict=True)
            case["trained"].append(rounded(found[key] for key in case["names"]))
        expected.append(case)
        print(name, weighted, case["names"], case["evaluated"], case["trained"])
with open(f"{FOLDER}/masks.json", "w") as file:
    file.write("[\n" + ",\n".join(json.dumps(case) for case in expected) + "\n]\n")
