# SPDX-License-Identifier: Apache-2.0
"""Models of keras_layers.py: sequences that are pooled, padded, cropped, repeated."""
import keras
from keras import layers


def model(name, shape, function, batch=3):
    x = keras.Input(shape, name="input_0")
    return name, keras.Model(x, function(x)), batch


def steps(x):
    return layers.Conv1D(3, 1)(x)


def models():
    yield model("max_pooling1d", (7, 2), lambda x: layers.MaxPooling1D()(steps(x)))
    yield model("max_pooling1d same", (7, 2), lambda x: layers.MaxPooling1D(3, strides=2, padding="same")(steps(x)))
    yield model("average_pooling1d", (8, 2), lambda x: layers.AveragePooling1D(3, strides=1)(steps(x)))
    yield model("average_pooling1d same", (8, 2), lambda x: layers.AveragePooling1D(3, padding="same")(steps(x)))
    yield model("global_average_pooling1d", (5, 2), lambda x: layers.GlobalAveragePooling1D()(steps(x)))
    yield model("global_max_pooling1d", (5, 2), lambda x: layers.GlobalMaxPooling1D()(steps(x)))
    yield model("global pooling1d keepdims", (5, 2),
                lambda x: [layers.GlobalMaxPooling1D(keepdims=True)(steps(x)),
                           layers.GlobalAveragePooling1D(keepdims=True)(steps(x))])
    yield model("zero_padding1d", (4, 2), lambda x: steps(layers.ZeroPadding1D((2, 1))(steps(x))))
    yield model("zero_padding1d of both", (4, 2), lambda x: layers.Conv1D(2, 3)(layers.ZeroPadding1D()(steps(x))))
    yield model("cropping1d", (6, 2), lambda x: layers.Cropping1D((1, 2))(steps(x)))
    yield model("cropping1d of both", (6, 2), lambda x: layers.Cropping1D(2)(steps(x)))
    yield model("up_sampling1d", (3, 2), lambda x: layers.UpSampling1D(3)(steps(x)))
    yield model("repeat_vector", (5,), lambda x: steps(layers.RepeatVector(4)(layers.Dense(2)(x))))
    yield model("identity", (5,), lambda x: layers.Dense(2)(layers.Identity()(layers.Dense(3)(x))))
