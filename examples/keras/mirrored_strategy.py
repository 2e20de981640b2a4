# SPDX-License-Identifier: Apache-2.0
"""The programs of the MirroredStrategy tutorial but for its custom loop (custom_loop.py), with Lockstep in the place of tf.distribute. It
writes logs/ where it runs.

usage: mirrored_strategy.py DATA [LIMIT]   (mnist/, cifar-10-batches-bin/ and cifar-10-test-first1000/ in the folder DATA)
"""
import datetime
import os
import sys
import time

import keras
import numpy as np
import tensorflow as tf
from files import cifar10, mnist
from keras import layers

import lockstep

folder, limit = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None
REPLICAS = 2
print(f"Number of devices: {REPLICAS}")

BATCH_SIZE_PER_REPLICA = 64
BATCH_SIZE = BATCH_SIZE_PER_REPLICA * REPLICAS

(x_train, y_train), (x_test, y_test) = mnist(os.path.join(folder, "mnist"), limit)
x_train, x_test = x_train / 255.0, x_test / 255.0
x_train = x_train[..., np.newaxis]
x_test = x_test[..., np.newaxis]

train_dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train)).shuffle(10000).batch(BATCH_SIZE)
test_dataset = tf.data.Dataset.from_tensor_slices((x_test, y_test)).batch(BATCH_SIZE)


def cnn():
    return keras.Sequential([
        layers.Conv2D(32, 3, activation="relu", input_shape=(28, 28, 1)),
        layers.MaxPooling2D(),
        layers.Conv2D(64, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(128, activation="relu"),
        layers.Dense(10),
    ])


model = lockstep.Model(cnn(), strategy="ring", replicas=REPLICAS)
model.compile(
    optimizer=keras.optimizers.Adam(),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
model.summary()

log_dir = "logs/fit/" + datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
tensorboard_callback = keras.callbacks.TensorBoard(log_dir=log_dir, histogram_freq=1)
history = model.fit(
    train_dataset,
    epochs=5,
    validation_data=test_dataset,
    callbacks=[tensorboard_callback],
)


def measure_training_time(strategy_name, replicas):
    start_time = time.time()
    model = lockstep.Model(cnn(), strategy=strategy_name, replicas=replicas)
    model.compile(
        optimizer=keras.optimizers.Adam(),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    batch_size = BATCH_SIZE_PER_REPLICA * replicas
    train_dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train)).shuffle(10000).batch(batch_size)
    model.fit(train_dataset, epochs=3, verbose=0)
    end_time = time.time()
    print(f"{strategy_name} training time: {end_time - start_time:.2f} seconds")


measure_training_time("one-device", 1)
measure_training_time("ring", REPLICAS)

(x_train, y_train), (x_test, y_test) = cifar10(folder, limit)
x_train = x_train.astype("float32") / 255.0
x_test = x_test.astype("float32") / 255.0
train_dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train)).shuffle(10000).batch(BATCH_SIZE)
test_dataset = tf.data.Dataset.from_tensor_slices((x_test, y_test)).batch(BATCH_SIZE)


def resnet_block(x, filters, kernel_size=3, stride=1, conv_shortcut=False):
    shortcut = x
    if conv_shortcut:
        shortcut = layers.Conv2D(filters, 1, strides=stride)(shortcut)
        shortcut = layers.BatchNormalization()(shortcut)
    x = layers.Conv2D(filters, kernel_size, strides=stride, padding="same")(x)
    x = layers.BatchNormalization()(x)
    x = layers.ReLU()(x)
    x = layers.Conv2D(filters, kernel_size, padding="same")(x)
    x = layers.BatchNormalization()(x)
    x = layers.add([x, shortcut])
    return layers.ReLU()(x)


inputs = layers.Input(shape=(32, 32, 3))
x = layers.Conv2D(64, 7, strides=2, padding="same")(inputs)
x = layers.BatchNormalization()(x)
x = layers.ReLU()(x)
x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
x = resnet_block(x, 64, conv_shortcut=True)
x = resnet_block(x, 64)
x = resnet_block(x, 128, stride=2, conv_shortcut=True)
x = resnet_block(x, 128)
x = resnet_block(x, 256, stride=2, conv_shortcut=True)
x = resnet_block(x, 256)
x = layers.GlobalAveragePooling2D()(x)
outputs = layers.Dense(10)(x)
resnet_model = lockstep.Model(keras.Model(inputs, outputs), strategy="ring", replicas=REPLICAS)
resnet_model.compile(
    optimizer=keras.optimizers.Adam(),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
resnet_history = resnet_model.fit(
    train_dataset,
    epochs=10,
    validation_data=test_dataset,
)
