#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the functional models of this folder with real Keras: NAME.json as Keras writes it, and NAME.safetensors with
Keras's outputs and gradients. Inputs and weights are not stored: both sides compute them by the same formula.

    KERAS_BACKEND=jax python3 make.py [NAME...]
"""

import json
import struct
import sys

import jax
import keras
import numpy as np
from keras import layers, ops

BATCH = 4
jax.config.update("jax_default_matmul_precision", "highest")


def formula(name, shape):
    """Element k is sin(0.7 k + the sum of the letters of the name) / 2."""
    count = int(np.prod(shape))
    values = 0.5 * np.sin(0.7 * np.arange(count, dtype=np.float64) + sum(name.encode()))
    return values.astype(np.float32).reshape(shape)


def variables(model, prefix=""):
    """Every variable, with the name that Lockstep has for it."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from variables(layer, f"{prefix}{layer.name}/")
        else:
            for variable in layer.weights:
                yield f"{prefix}{layer.name}/{variable.name}", variable


def residual():
    x = keras.Input((8, 8, 2), name="image")
    a = layers.Conv2D(4, 3, padding="same", activation="relu", name="first")(x)
    b = layers.Conv2D(4, 3, padding="same", name="second")(a)
    c = layers.ReLU(name="rectified")(a + b)
    c = layers.MaxPooling2D(2, name="pool")(c)
    return keras.Model(x, layers.Dense(5, name="scores")(layers.Flatten(name="flat")(c)), name="residual")


def siamese():
    base = keras.Sequential(
        [keras.Input((6,)), layers.Dense(5, activation="tanh", name="one"), layers.Dense(3, name="two")], name="base")
    left, right = keras.Input((6,), name="left"), keras.Input((6,), name="right")
    top = layers.Dense(4, name="top")(ops.maximum(base(left), base(right)))
    return keras.Model([left, right], top, name="siamese")


def shared():
    """A(B(A(B(x)))), whose layers no order of the file has ready one after the other."""
    a, b = layers.Dense(4, activation="tanh", name="a"), layers.Dense(4, activation="sigmoid", name="b")
    x = keras.Input((4,), name="x")
    return keras.Model(x, a(b(a(b(x)))), name="shared")


def nested():
    u, v = keras.Input((4,), name="u"), keras.Input((3,), name="v")
    deep = keras.Sequential([layers.Dense(3, activation="tanh", name="d")], name="deep")
    inner = keras.Model([v, u], [layers.Dense(2, name="p")(u) + layers.Dense(2, name="q")(deep(v)), deep(v)],
                        name="inner")
    x, y = keras.Input((4,), name="x"), keras.Input((3,), name="y")
    first, second = inner([y, x])
    third, fourth = inner([second, x])
    outer = keras.Sequential([keras.Input((2,)), layers.Dense(5, activation="tanh", name="d"),
                              keras.Sequential([layers.Dense(4, name="d")], name="end")], name="outer")
    return keras.Model([x, y], outer(ops.maximum(first, third)) + layers.Dense(4, name="last")(fourth), name="nested")


MODELS = {f.__name__: f for f in (residual, siamese, shared, nested)}


def input_values(tensor, index):
    shape = (BATCH,) + tuple(tensor.shape[1:])
    if tensor.dtype == "int32":
        return (7 * np.arange(int(np.prod(shape))) + 3).astype(np.int32).reshape(shape) % 5
    return formula("input" if index == 0 else f"input_{index}", shape)


def run(model):
    named = dict(variables(model))
    for name, variable in named.items():
        values = formula(name, variable.shape)
        variable.assign(np.abs(values) + 0.5 if "variance" in name else values)
    inputs = [input_values(tensor, i) for i, tensor in enumerate(model.inputs)]
    inputs = inputs[0] if len(inputs) == 1 else inputs
    untrained = [v.value for v in model.non_trainable_variables]

    def forward(trained):
        outputs, _ = model.stateless_call(trained, untrained, inputs, training=False)
        return outputs

    def loss(trained):
        logits = forward(trained)
        labels = np.arange(BATCH) % logits.shape[-1]
        return -jax.numpy.sum(jax.nn.log_softmax(logits)[np.arange(BATCH), labels])

    trained = [v.value for v in model.trainable_variables]
    gradients = jax.grad(loss)(trained)
    tensors = {"output": np.asarray(forward(trained)), "loss": np.asarray(loss(trained)).reshape(1)}
    for name, variable in named.items():
        for candidate, gradient in zip(model.trainable_variables, gradients):
            if candidate is variable:
                tensors["gradient/" + name] = np.asarray(gradient)
    return tensors


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, values in tensors.items():
        values = values.astype("<f4")
        header[name] = {"dtype": "F32", "shape": list(values.shape),
                        "data_offsets": [len(data), len(data) + values.nbytes]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


for name in sys.argv[1:] or MODELS:
    keras.utils.clear_session()
    model = MODELS[name]()
    with open(name + ".json", "w") as file:
        file.write(model.to_json() + "\n")
    write_safetensors(name + ".safetensors", run(model))
