# SPDX-License-Identifier: Apache-2.0
"""The second program of a tutorial on scaling with tf.distribute, with Lockstep in its place: several workers. It has a Flatten that the tutorial
forgets, without which Keras refuses its data, too.

usage: lockstep launch -n 2 -- python3 several_workers.py DATA [LIMIT]   (mnist/ in the folder DATA)
"""
import os
import sys

import keras
import tensorflow as tf
from files import mnist

import lockstep

folder, limit = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None


def build_and_compile_model():
    keras.utils.set_random_seed(1)
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
