# SPDX-License-Identifier: Apache-2.0
"""The first program of a tutorial on scaling with tf.distribute, with Lockstep in its place. It has a Flatten that the tutorial forgets, without
which Keras refuses its data, too.

usage: scaling.py DATA [LIMIT]   (mnist/ in the folder DATA)
"""
import os
import sys

import keras
from files import mnist

import lockstep

folder, limit = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None

model = lockstep.Model(keras.Sequential([
    keras.layers.Flatten(input_shape=(28, 28)),
    keras.layers.Dense(512, activation="relu"),
    keras.layers.Dropout(0.2),
    keras.layers.Dense(10, activation="softmax"),
]), strategy="ring", replicas=2)
print("Number of devices: {}".format(model.replicas))
model.compile(loss="sparse_categorical_crossentropy", optimizer=keras.optimizers.Adam(), metrics=["accuracy"])

(x, y), (x_val, y_val) = mnist(os.path.join(folder, "mnist"), limit)
x = x.astype("float32") / 255
x_val = x_val.astype("float32") / 255
model.fit(x, y, epochs=10, validation_data=(x_val, y_val))
