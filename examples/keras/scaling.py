# SPDX-License-Identifier: Apache-2.0
"""The programs of a tutorial on scaling with tf.distribute, with Lockstep in its place: several devices, then several workers. Both have a
Flatten that the tutorial forgets, without which Keras refuses its data, too.

usage: scaling.py DATA [LIMIT]                                     (mnist/ in the folder DATA)
       lockstep launch -n 2 -- python3 scaling.py DATA [LIMIT]     (two workers)
"""
import os
import sys

import keras
import tensorflow as tf
from files import mnist

import lockstep

folder, limit = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None

model = lockstep.Model(keras.Sequential([
    keras.layers.Flatten(input_shape=(28, 28)),
    keras.layers.Dense(512, activation="relu"),
    keras.layers.Dropout(0.2),
    keras.layers.Dense(10, activation="softmax"),
]), strategy="ring", replicas=2, cluster="none")  # each worker for itself
print("Number of devices: {}".format(model.replicas))
model.compile(loss="sparse_categorical_crossentropy", optimizer=keras.optimizers.Adam(), metrics=["accuracy"])

(x, y), (x_val, y_val) = mnist(os.path.join(folder, "mnist"), limit)
x = x.astype("float32") / 255
x_val = x_val.astype("float32") / 255
model.fit(x, y, epochs=10, validation_data=(x_val, y_val))


def build_and_compile_model():
    model = lockstep.Model(keras.Sequential([
        keras.layers.Flatten(),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dropout(0.2),
        keras.layers.Dense(10),
    ]), strategy="multi-worker-mirrored")
    model.compile(optimizer="adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


(train_images, train_labels), _ = mnist(os.path.join(folder, "mnist"), limit)
train_images = train_images / 255.0
multi_worker_model = build_and_compile_model()
global_batch_size = 64 * multi_worker_model.replicas
train_dataset = tf.data.Dataset.from_tensor_slices((train_images, train_labels))
train_dataset = train_dataset.batch(global_batch_size)
multi_worker_model.fit(train_dataset, epochs=3)
