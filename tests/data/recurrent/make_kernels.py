# SPDX-License-Identifier: Apache-2.0
"""Writes models with kernels that steps normalize, and with attention under masks, beside this file, and what Keras makes of them: run with
Keras 3 and TensorFlow. The losses are those of the training steps, before their updates."""
import json
import os

os.environ["KERAS_BACKEND"] = "tensorflow"
import keras
import numpy as np
from keras import layers as L

keras.utils.set_random_seed(1)
rng = np.random.default_rng(0)
FOLDER = os.path.dirname(os.path.abspath(__file__))


def spectral():
    S = L.SpectralNormalization
    x, words = keras.Input((6, 6, 2)), keras.Input((6,))
    y = S(L.Conv2D(3, 3, activation="tanh", kernel_regularizer=keras.regularizers.L2(0.01)), power_iterations=2)(x)
    y = L.Flatten()(S(L.Conv2DTranspose(2, 2, strides=2))(y))
    z = S(L.Conv1D(3, 2, activation="relu"))(S(L.Embedding(9, 4))(words))
    z = L.Flatten()(S(L.Conv1DTranspose(2, 2, trainable=False))(S(L.DepthwiseConv1D(2))(z)))
    model = keras.Model([x, words], S(L.Dense(2), power_iterations=3, name="last")(L.Concatenate()([y, z])))
    drawn = [rng.normal(size=(12, 6, 6, 2)).astype("float32"), rng.integers(0, 9, (12, 6)).astype("float32")]
    return model, drawn, rng.normal(size=(12, 2)).astype("float32"), "mean_squared_error", 0.05


def masked_attention():
    first, second = keras.Input((7,), dtype="int32"), keras.Input((6,), dtype="int32")
    x, y = L.Embedding(9, 6, mask_zero=True)(first), L.Embedding(5, 6, mask_zero=True)(second)
    y = L.MultiHeadAttention(2, 4)(y, y, use_causal_mask=True)
    y = L.MultiHeadAttention(2, 3)(y, x)
    y = L.GroupQueryAttention(4, 4, 2)(y, L.Embedding(9, 6, mask_zero=True)(first))
    y = L.Attention(use_scale=True)([y, L.Embedding(5, 6, mask_zero=True)(second)])
    y = L.AdditiveAttention()([y, L.Embedding(9, 6)(first)])
    model = keras.Model([first, second], L.Dense(3, activation="softmax")(L.GlobalAveragePooling1D()(y)))
    inputs = [rng.integers(1, 9, (12, 7)).astype("int32"), rng.integers(1, 5, (12, 6)).astype("int32")]
    for one in inputs:
        for row in one:
            row[rng.integers(2, 8):] = 0
    return model, inputs, rng.integers(0, 3, 12).astype("int32"), "sparse_categorical_crossentropy", 0.5


def rounded(values):
    return [float(f"{value:.8g}") for value in np.asarray(values).reshape(-1)]


expected = {}
for make in (spectral, masked_attention):
    name = make.__name__.replace("_", "-")
    model, x, y, loss, rate = make()
    model.save(f"{FOLDER}/{name}.keras")
    for i, values in enumerate(x):
        np.save(f"{FOLDER}/{name}-x{i + 1}.npy", values)
    np.save(f"{FOLDER}/{name}-y.npy", y)
    predictions = rounded(model(x, training=False))
    model.compile(keras.optimizers.SGD(rate), loss=loss, run_eagerly=True)
    losses = []
    for _ in range(3):
        model.reset_metrics()
        losses.append(float(model.train_on_batch(x, y)))
    expected[name] = {"loss": loss, "rate": rate, "inputs": len(x), "losses": rounded(losses), "predictions": predictions,
                      "after": rounded(model(x, training=False))}
with open(f"{FOLDER}/kernels.json", "w") as file:
    json.dump(expected, file, separators=(",", ":"))
    file.write("\n")
