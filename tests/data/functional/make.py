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


def pairs():
    """Operations of two arguments, with broadcast, numbers and arrays."""
    x, y = keras.Input((3, 4), name="x"), keras.Input((4,), name="y")
    a = layers.Dense(4, name="a")(x)
    b = layers.Dense(4, name="b", activation="sigmoid")(y)
    b = ops.expand_dims(b, 1)
    terms = [a + b, a - b, b * a, a / (b + 1.0), ops.maximum(a, b), ops.minimum(b, a), 2.0 - a, a * 3, a / 4, 1.5 / (2 + b * a * a),
             ops.multiply(a, np.arange(1, 5, dtype="float32")), ops.subtract(np.array([[1.0], [2.0], [3.0]], "float32"), a),
             ops.maximum(a, 0.1), ops.divide(np.float32(2), b), ops.power(b, 0.5), b**3, (b * 0.5)**4, a**2, 1 / b, a**1]
    total = terms[0]
    for term in terms[1:]:
        total = total + term * 0.25
    total = ops.matmul(total, np.array([[1, 0.5], [0, 1], [2, -1], [1, 1]], "float32"))
    return keras.Model([x, y], layers.Dense(3, name="top")(layers.Flatten()(total)), name="pairs")


def functions():
    x = keras.Input((6,), name="x")
    a = layers.Dense(5, name="a")(x)
    positive = ops.square(a) + 0.5
    terms = [-a, ops.absolute(a + 0.3), ops.sqrt(positive), ops.rsqrt(positive), ops.reciprocal(positive), ops.exp(a * 0.5),
             ops.tanh(a), ops.sigmoid(a), ops.log_sigmoid(a), ops.relu(a), ops.relu6(a * 9), ops.leaky_relu(a, 0.1),
             ops.elu(a, 0.7), ops.selu(a), ops.gelu(a), ops.gelu(a, approximate=False), ops.silu(a), ops.hard_sigmoid(a * 4),
             ops.hard_silu(a * 4), ops.softplus(a), ops.softsign(a), ops.softmax(a), ops.clip(a, -0.4, 0.6), ops.cast(a, "float32")]
    return keras.Model(x, layers.Dense(3, name="top")(ops.concatenate(terms, axis=-1)), name="functions")


def shapes():
    """Reductions, and what moves elements."""
    x = keras.Input((4, 6), name="x")
    a = layers.Dense(6, name="a")(x)
    b = ops.transpose(a, (0, 2, 1))  # 6 x 4
    first, second, third = ops.split(b, 3, axis=1)
    left, right = ops.split(a, [2], axis=-1)
    parts = [ops.mean(a, axis=1), ops.sum(a, axis=(1, 2), keepdims=True)[:, 0] * 0.1, ops.max(b, axis=-1), ops.min(b, axis=[1]),
             a[:, 0], a[:, -1, 2:5], a[:, 1:3, -2], b[..., 1], ops.squeeze(a[:, 2:3]), a[:, None, 1, ::1][:, 0],
             ops.reshape(first * second, (-1, 8)), ops.reshape(third, (-1, 8)), left[:, :, 0],
             ops.mean(right, axis=-1), ops.sum(ops.stack([a[:, 0], a[:, 1], a[:, 3]], axis=1), axis=1),
             ops.sum(ops.swapaxes(a, 1, 2), axis=-1), ops.sqrt(ops.maximum(ops.sum(ops.square(left), axis=[1, 2], keepdims=False)[:, None], 1e-7))]
    return keras.Model(x, layers.Dense(3, name="top")(ops.concatenate(parts, axis=1)), name="shapes")


MODELS = {f.__name__: f for f in (residual, siamese, shared, nested, pairs, functions, shapes)}


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
