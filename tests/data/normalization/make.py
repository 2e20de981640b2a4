#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the model of this folder with real Keras: model.json as Keras writes it, and trained.safetensors with its variables
after four steps of SGD and its predictions then. Examples and first weights are not stored: both sides compute them.

    KERAS_BACKEND=jax python3 make.py
"""

import json
import struct

import jax
import keras
import numpy as np
from keras import layers, ops

EXAMPLES, BATCH, RATE = 64, 16, 0.1
jax.config.update("jax_default_matmul_precision", "highest")


def formula(name, shape):
    """Element k is sin(0.7 k + the sum of the letters of the name) / 2; of a variance 1 more."""
    values = 0.5 * np.sin(0.7 * np.arange(int(np.prod(shape)), dtype=np.float64) + sum(name.encode()))
    return (values + ("variance" in name)).astype(np.float32).reshape(shape)


def pixels():
    count = np.arange(EXAMPLES * 28 * 28, dtype=np.uint64)
    return ((count * np.uint64(1103515245) + np.uint64(12345)) >> np.uint64(16) & np.uint64(255)).astype(np.uint8)


def model():
    """Shared, without scale, without center, and frozen; activations after them and a sum."""
    x = keras.Input((28, 28, 1), name="image")
    a = layers.Conv2D(4, 5, strides=4, use_bias=False, name="stem")(x)
    a = layers.ReLU(name="relu")(layers.BatchNormalization(momentum=0.9, name="first")(a))
    shared = layers.BatchNormalization(momentum=0.8, epsilon=1e-2, name="shared")
    b = shared(layers.Conv2D(4, 3, padding="same", name="left")(a))
    c = shared(layers.Conv2D(4, 1, name="right")(b))
    d = layers.BatchNormalization(scale=False, name="shift")(b + c)
    d = layers.BatchNormalization(center=False, name="scale")(layers.Activation("tanh", name="tanh")(d))
    d = layers.BatchNormalization(trainable=False, name="frozen")(d)
    return keras.Model(x, layers.Dense(10, name="scores")(layers.Flatten(name="flat")(d)), name="normalization")


def write(path, tensors):
    header, data = {}, b""
    for name, values in tensors.items():
        values = np.array(values, dtype="<f4")
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [len(data), len(data) + values.nbytes]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


network = model()
variables = {f"{layer.name}/{variable.name}": variable for layer in network.layers for variable in layer.weights}
for key, variable in variables.items():
    variable.assign(formula(key, variable.shape))
with open("model.json", "w") as file:
    file.write(network.to_json())
images = pixels().reshape(EXAMPLES, 28, 28, 1).astype(np.float32) / 255
labels = np.arange(EXAMPLES) * 7 % 10
network.compile(optimizer=keras.optimizers.SGD(RATE), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
for at in range(0, EXAMPLES, BATCH):
    network.train_on_batch(images[at:at + BATCH], labels[at:at + BATCH])
write("trained.safetensors", {**variables, "predictions": network.predict(images, verbose=0)})
