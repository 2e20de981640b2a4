# SPDX-License-Identifier: Apache-2.0
"""Writes the recurrent models beside this file, and what Keras makes of them: run with Keras 3 and TensorFlow."""
import json
import os

os.environ["KERAS_BACKEND"] = "tensorflow"
import keras
import numpy as np
from keras import layers as L

keras.utils.set_random_seed(1)
rng = np.random.default_rng(0)
FOLDER = os.path.dirname(os.path.abspath(__file__))
CLASSES, SQUARES = "sparse_categorical_crossentropy", "mean_squared_error"


def ids(most, *shape):
    return rng.integers(0, most, shape).astype("int32")


def stacked_lstm():
    model = keras.Sequential([keras.Input((12,), dtype="int32"), L.Embedding(20, 8), L.LSTM(16, return_sequences=True), L.LSTM(16),
                              L.Dense(20, activation="softmax")])
    return model, [ids(20, 12, 12)], ids(20, 12), CLASSES


def masked_gru():
    model = keras.Sequential([keras.Input((10,), dtype="int32"), L.Embedding(9, 6, mask_zero=True),
                              L.Bidirectional(L.GRU(7, return_sequences=True)), L.Bidirectional(L.GRU(5)), L.Dense(3, activation="softmax")])
    x = rng.integers(1, 9, (12, 10)).astype("int32")
    for row in x:
        row[rng.integers(2, 11):] = 0
    return model, [x], ids(3, 12), CLASSES


def seq2seq():
    first, second = keras.Input((6,), dtype="int32"), keras.Input((5,), dtype="int32")
    _, h, c = L.LSTM(8, return_state=True)(L.Embedding(11, 5)(first))
    y = L.LSTM(8, return_sequences=True)(L.Embedding(7, 5)(second), initial_state=[h, c])
    model = keras.Model([first, second], L.Dense(7, activation="softmax")(y))
    return model, [ids(11, 12, 6), ids(7, 12, 5)], ids(7, 12, 5), CLASSES


def cnn_lstm():
    x = keras.Input((4, 8, 8, 1))
    y = L.TimeDistributed(L.Conv2D(4, 3, activation="relu"))(x)
    y = L.TimeDistributed(L.Flatten())(L.TimeDistributed(L.MaxPooling2D())(y))
    model = keras.Model(x, L.Dense(2)(L.LSTM(6)(y)))
    return model, [rng.normal(size=(12, 4, 8, 8, 1)).astype("float32")], rng.normal(size=(12, 2)).astype("float32"), SQUARES


def rounded(values):
    return [float(f"{value:.8g}") for value in values]


expected = {}
for make in (stacked_lstm, masked_gru, seq2seq, cnn_lstm):
    name = make.__name__.replace("_", "-")
    model, x, y, loss = make()
    model.save(f"{FOLDER}/{name}.keras")
    for i, values in enumerate(x):
        np.save(f"{FOLDER}/{name}-x{i + 1}.npy", values)
    np.save(f"{FOLDER}/{name}-y.npy", y)
    predictions = np.asarray(model(x if len(x) > 1 else x[0], training=False)).reshape(-1)
    model.compile(keras.optimizers.SGD(0.5), loss=loss, run_eagerly=True)
    losses = []
    for _ in range(3):
        losses.append(float(model.test_on_batch(x, y)))
        model.train_on_batch(x, y)
    expected[name] = {"loss": loss, "inputs": len(x), "losses": rounded(losses), "predictions": rounded(predictions)}
with open(f"{FOLDER}/expected.json", "w") as file:
    json.dump(expected, file, separators=(",", ":"))
    file.write("\n")
