# SPDX-License-Identifier: Apache-2.0
"""Models of keras_layers.py: normalization, embedding, attention, products, convolutions, PReLU."""
import keras
from keras import layers


def model(name, shapes, function, batch=3):
    """A functional model: function of inputs of these shapes; ("ids", shape, below) or ("int", shape, below) are ids."""
    inputs = []
    for i, shape in enumerate(shapes):
        if shape[0] in ("ids", "int"):
            kind, shape, below = shape
            dtype = "int32" if kind == "int" else "float32"
            inputs.append(keras.Input(shape, dtype=dtype, name=f"input_{i}_below_{below}"))
        else:
            inputs.append(keras.Input(shape, name=f"input_{i}"))
    return name, keras.Model(inputs, function(*inputs)), batch


def dense(x, units=4):
    return layers.Dense(units)(x)


def gpt(ids, positions):
    x = layers.Embedding(11, 8)(ids) + layers.Embedding(6, 8)(positions)
    for _ in range(2):
        y = layers.LayerNormalization(epsilon=1e-5)(x)
        x = x + layers.MultiHeadAttention(2, 4)(y, y, use_causal_mask=True)
        y = layers.LayerNormalization(epsilon=1e-5)(x)
        x = x + dense(layers.Dense(16, activation="tanh")(y), 8)
    return dense(layers.LayerNormalization()(x), 11)


def siamese(left, right):
    tower = layers.Conv1D(4, 3, padding="causal", activation="tanh")
    return keras.ops.matmul(tower(left), layers.Reshape((4, 5))(tower(right)))


def regularized(x):
    x = layers.SeparableConv2D(3, 3, depthwise_regularizer="l2", pointwise_regularizer=keras.regularizers.L1(0.03))(x)
    x = layers.PReLU(alpha_regularizer=keras.regularizers.L1L2(0.01, 0.02))(x)
    x = layers.LayerNormalization(gamma_regularizer="l1", beta_regularizer="l2")(layers.Flatten()(x))
    return layers.Dense(4, kernel_regularizer=keras.regularizers.L2(0.1), bias_regularizer=keras.regularizers.L1L2(0.05, 0.01))(x)


def models():
    norm, group = layers.LayerNormalization, layers.GroupNormalization
    attention = layers.MultiHeadAttention
    yield model("layer_normalization", [(5, 4)], lambda x: norm()(dense(x, 6)))
    yield model("layer_normalization of two axes", [(3, 2, 4)], lambda x: norm(axis=[2, 3], epsilon=1e-5)(dense(x, 3)))
    yield model("layer_normalization without center", [(7,)], lambda x: norm(center=False)(dense(x, 5)))
    yield model("layer_normalization without scale", [(7,)], lambda x: norm(scale=False)(dense(x, 5)))
    yield model("layer_normalization alone", [(7,)], lambda x: norm(scale=False, center=False)(dense(x, 5)))
    yield model("group_normalization", [(3, 4, 2)], lambda x: group(3)(dense(x, 6)))
    yield model("group_normalization by channel", [(5, 2)], lambda x: group(-1, epsilon=1e-5)(dense(x, 3)))
    yield model("group_normalization without scale", [(4,)], lambda x: group(2, scale=False)(dense(x, 6)))
    yield model("embedding of int32", [("int", (5,), 7)], lambda x: layers.Embedding(7, 3)(x))
    yield model("embedding of float32", [("ids", (2, 3), 9)], lambda x: dense(layers.Embedding(9, 4)(x)))
    yield model("attention", [(5, 6)], lambda x: attention(2, 3)(x, x))
    yield model("attention causal", [(6, 4)], lambda x: attention(2, 4)(x, value=x, use_causal_mask=True))
    yield model("attention of three tensors", [(4, 3), (6, 5), (6, 2)],
                lambda q, v, k: attention(3, 2, value_dim=4, output_shape=7, dropout=0.1)(q, v, key=k, training=False))
    yield model("attention causal without bias", [(5, 3), (3, 3)],
                lambda q, v: attention(1, 5, use_bias=False)(query=q, value=v, use_causal_mask=True))
    yield model("attention with dropout", [(5, 6)], lambda x: attention(2, 3, dropout=0.3)(x, x))
    yield model("matmul", [(3, 4), (4, 2)], lambda a, b: keras.ops.matmul(dense(a), dense(b, 3)))
    yield model("matmul of one tensor", [(2, 3, 3)], lambda a: keras.ops.matmul(dense(a, 3), a))
    yield model("conv1d", [(9, 3)], lambda x: layers.Conv1D(4, 3, strides=2, padding="same", activation="relu")(x))
    yield model("conv1d causal", [(7, 2)], lambda x: layers.Conv1D(3, 3, padding="causal", dilation_rate=2)(x))
    yield model("conv1d in groups", [(7, 4)], lambda x: layers.Conv1D(6, 4, groups=2, use_bias=False)(x))
    yield model("depthwise_conv2d", [(6, 5, 3)], lambda x: layers.DepthwiseConv2D(3, depth_multiplier=2)(x))
    yield model("depthwise_conv2d same", [(7, 6, 4)],
                lambda x: layers.DepthwiseConv2D((3, 3), strides=2, padding="same", use_bias=False)(x))
    yield model("separable_conv2d", [(6, 5, 3)],
                lambda x: layers.SeparableConv2D(5, 3, padding="same", depth_multiplier=2, activation="tanh")(x))
    yield model("conv2d_transpose", [(3, 4, 3)], lambda x: layers.Conv2DTranspose(2, 3, strides=2)(x))
    yield model("conv2d_transpose same", [(4, 3, 2)],
                lambda x: layers.Conv2DTranspose(3, (4, 3), strides=2, padding="same", activation="relu")(x))
    yield model("conv2d_transpose of a small window", [(3, 2, 2)],
                lambda x: layers.Conv2DTranspose(2, 2, strides=3, use_bias=False)(x))
    yield model("prelu", [(4, 3)], lambda x: layers.PReLU()(dense(x)))
    yield model("prelu shared", [(3, 4, 2)], lambda x: layers.PReLU(shared_axes=[1, 2])(dense(x, 5)))
    yield model("regularizers", [(6, 5, 2)], regularized)
    yield model("siamese", [(5, 3), (5, 3)], siamese, 2)
    yield model("gpt", [("int", (6,), 11), ("int", (6,), 6)], gpt, 2)
