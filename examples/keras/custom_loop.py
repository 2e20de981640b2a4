# SPDX-License-Identifier: Apache-2.0
"""The custom training loop with which the MirroredStrategy tutorial ends, with Lockstep in the place of tf.distribute and tf.GradientTape.

usage: custom_loop.py DATA [LIMIT]   (mnist/ in the folder DATA)
"""
import os
import sys

import keras
import numpy as np
import tensorflow as tf
from files import mnist

import lockstep

folder, limit = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None
REPLICAS = 2
BATCH_SIZE = 64 * REPLICAS

(x_train, y_train), _ = mnist(os.path.join(folder, "mnist"), limit)
x_train = x_train[..., np.newaxis] / 255.0
train_dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train)).shuffle(10000).batch(BATCH_SIZE)

inputs = keras.layers.Input(shape=(28, 28, 1))
x = keras.layers.Conv2D(32, 3, activation="relu")(inputs)
x = keras.layers.MaxPooling2D()(x)
x = keras.layers.Conv2D(64, 3, activation="relu")(x)
x = keras.layers.MaxPooling2D()(x)
x = keras.layers.Flatten()(x)
x = keras.layers.Dense(128, activation="relu")(x)
outputs = keras.layers.Dense(10)(x)
model = lockstep.Model(keras.Model(inputs=inputs, outputs=outputs), strategy="ring", replicas=REPLICAS)
strategy = model.strategy

optimizer = keras.optimizers.Adam()
loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
train_accuracy = keras.metrics.SparseCategoricalAccuracy(name="accuracy")
model.compile(optimizer, loss_fn, [train_accuracy])

train_dist_dataset = strategy.experimental_distribute_dataset(train_dataset)


def train_step(replica):
    loss, gradients = replica.value_and_grad()
    replica.apply_gradients(gradients)
    return loss


def distributed_train_step(dataset_inputs):
    per_replica_losses = strategy.run(train_step, args=(dataset_inputs,))
    return strategy.reduce("sum", per_replica_losses, axis=None)


epochs = 3
for epoch in range(epochs):
    total_loss = 0.0
    num_batches = 0
    train_dist_dataset.reset_metrics()
    for batch in train_dist_dataset:
        total_loss += distributed_train_step(batch)
        num_batches += 1
    train_loss = total_loss / num_batches
    print(f"Epoch {epoch + 1}, Loss: {train_loss:.4f}, Accuracy: {train_dist_dataset.metrics()['accuracy']:.4f}")
