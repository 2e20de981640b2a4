#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes keras2.json with the Keras 2 that TensorFlow has inside: shared layers, and models inside the model whose calls
Keras 2 counts from 1.

    python3 make_keras2.py
"""

from tensorflow.python import keras
from tensorflow.python.keras import layers

keras.__version__ = "2.12.0"  # TensorFlow's copy has none, and to_json() writes it

x, y = keras.Input((4,), name="x"), keras.Input((4,), name="y")
base = keras.Sequential([keras.Input((4,)), layers.Dense(4, activation="tanh", name="d"), layers.Dense(3, name="e")], name="base")
lazy = keras.Sequential([layers.Dense(4, activation="relu", name="l")], name="lazy")
u = keras.Input((4,), name="u")
inner = keras.Model(u, layers.Dense(4, name="f")(u), name="inner")
shared = layers.Dense(4, name="shared")
one, other = shared(shared(x)), shared(y)
outputs = [base(inner(one)), base(inner(other), training=False), lazy(one), layers.LeakyReLU(name="last")(lazy(other))]
with open("keras2.json", "w") as file:
    file.write(keras.Model([x, y], outputs, name="keras2").to_json() + "\n")
