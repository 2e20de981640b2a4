#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes keras.json: small models with dtype policies as Keras writes them, what they predict, and the losses of their first steps.

Keras 3 with the backend TensorFlow, each operation by itself, so that every result is rounded as its type says:

    KERAS_BACKEND=tensorflow python tests/data/precision/make.py tests/data/precision/keras.json
"""

import json
import os
import sys

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers  # noqa: E402

EXAMPLES, BATCH, EPOCHS, CLASSES, RATE = 16, 8, 2, 3, 0.1


def images(last):
    return keras.Sequential([
        layers.Input((6, 6, 2)), layers.Conv2D(4, 3, padding="same"), layers.BatchNormalization(momentum=0.9),
        layers.Activation("relu"), layers.MaxPooling2D(2), layers.Flatten(), layers.Dense(6, activation="gelu"), *last])


def image_cases(policy):
    keras.config.set_dtype_policy(policy)
    yield f"{policy} images", images([layers.Dense(CLASSES, activation="softmax")])
    yield f"{policy} float32 softmax", images([layers.Dense(CLASSES), layers.Activation("softmax", dtype="float32")])


def tokens(policy):
    """Layers of both kinds, and sums of what they make."""
    keras.config.set_dtype_policy(policy)
    x = ids = layers.Input((5,), dtype="int32")
    x = layers.Embedding(7, 4)(x)
    y = layers.MultiHeadAttention(2, 2)(x, x)
    x = layers.LayerNormalization()(layers.Add()([x, y]))
    x = layers.Dense(4, activation="tanh", dtype="float32")(x) + x
    x = keras.ops.mean(x * 0.5, axis=1)
    return keras.Model(ids, layers.Dense(CLASSES, activation="softmax")(x))


def rounded(values):
    return np.round(np.asarray(values, np.float64), 4).astype(np.float32)


def shown(values):
    return [float(f"{v:.9g}") for v in np.asarray(values, np.float64).ravel()]


def short(config):
    """A model's JSON without what its layers' defaults say."""
    dropped = ("build_config", "quantization_config", "registered_name")
    if isinstance(config, dict):
        return {k: short(v) for k, v in config.items()
                if k not in dropped and not k.endswith(("_initializer", "_regularizer", "_constraint"))}
    return [short(v) for v in config] if isinstance(config, list) else config


def run(name, model, x, labels):
    rng = np.random.default_rng(3)
    weights = [rounded(w + 0.1 * rng.standard_normal(w.shape)) for w in model.get_weights()]
    model.set_weights(weights)
    case = {"name": name, "model": short(json.loads(model.to_json())), "inputs": "ids" if x.ndim == 2 else "images",
            "weights": [[round(float(v), 4) for v in w.ravel()] for w in weights],
            "predictions": shown(keras.ops.convert_to_numpy(keras.ops.cast(model(x, training=False), "float32")))}
    # Without a loss scale, so that gradients of float16 are those of the types alone.
    model.compile(keras.optimizers.SGD(RATE), "sparse_categorical_crossentropy", run_eagerly=True, auto_scale_loss=False)
    case["losses"] = [float(model.train_on_batch(x[i:i + BATCH], labels[i:i + BATCH]))
                      for _ in range(EPOCHS) for i in range(0, EXAMPLES, BATCH)
                      if not model.reset_metrics()]
    case["model"].pop("compile_config", None)
    return case


def main():
    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(2)
    x = rounded(rng.standard_normal((EXAMPLES, 6, 6, 2)))
    ids = rng.integers(0, 7, (EXAMPLES, 5)).astype(np.int32)
    labels = rng.integers(0, CLASSES, EXAMPLES).astype(np.int32)
    cases = []
    for policy in ["mixed_bfloat16", "mixed_float16"]:
        cases += [run(name, model, x, labels) for name, model in image_cases(policy)]
        cases.append(run(f"{policy} tokens", tokens(policy), ids, labels))
    document = {"keras": keras.__version__, "batch": BATCH, "epochs": EPOCHS, "rate": RATE,
                "labels": labels.tolist(), "ids": ids.tolist(), "images": np.round(x.astype(np.float64), 4).tolist(),
                "cases": cases}
    with open(sys.argv[1], "w") as file:
        json.dump(document, file, separators=(",", ":"))
        file.write("\n")


main()
