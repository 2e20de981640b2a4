# SPDX-License-Identifier: Apache-2.0
"""Models of keras_layers.py: functions of elements, pairs, scales, parts, padding, permutation, upsampling, reductions."""
import keras
import numpy
from keras import layers, ops
from keras.src.applications.convnext import LayerScale
from keras.src.applications.inception_resnet_v2 import CustomScaleLayer


def model(name, shapes, function, batch=3):
    inputs = [keras.Input(shape, name=f"input_{i}") for i, shape in enumerate(shapes)]
    return name, keras.Model(inputs, function(*inputs)), batch


def dense(x, units=4):
    return layers.Dense(units)(x)


def image(x, filters=4):
    return layers.Conv2D(filters, 1)(x)


def squeeze(x):
    s = layers.GlobalAveragePooling2D(keepdims=True)(x)
    s = layers.Conv2D(2, 1, activation="swish")(s)
    return layers.Multiply()([x, layers.Conv2D(16, 1, activation="hard_sigmoid")(s)])


def models():
    for name in ("selu", "gelu", "silu", "swish", "hard_silu", "hard_swish", "hard_sigmoid", "mish", "log_sigmoid"):
        yield model(f"dense {name}", [(5,)], lambda x, n=name: layers.Dense(6, activation=n)(x * 4.0))
        yield model(f"activation {name}", [(2, 3)], lambda x, n=name: layers.Activation(n)(dense(x)))
    yield model("functions", [(6,)], lambda x: [ops.gelu(dense(x)), ops.gelu(dense(x), approximate=False),
                                                ops.silu(dense(x)), ops.relu6(dense(x) * 5.0), ops.square(dense(x)),
                                                ops.sqrt(ops.square(dense(x)) + 0.5)])
    yield model("add three", [(4,), (4,), (4,)], lambda a, b, c: layers.Add()([dense(a), b, dense(c)]))
    yield model("subtract", [(4,), (4,)], lambda a, b: layers.Subtract()([dense(a), dense(b)]))
    yield model("multiply", [(3, 5), (3, 5)], lambda a, b: layers.Multiply()([dense(a), dense(b)]))
    yield model("multiply itself", [(5,)], lambda a: layers.Multiply()([dense(a)] * 2))
    yield model("multiply of ranks", [(3, 2), (6,)], lambda a, b: layers.Multiply()([dense(a), dense(b)]))
    yield model("average", [(5,), (5,), (5,)], lambda a, b, c: layers.Average()([dense(a), dense(b), dense(c)]))
    yield model("maximum", [(5,), (5,)], lambda a, b: layers.Maximum()([dense(a), dense(b)]))
    yield model("minimum", [(5,), (2, 5)], lambda a, b: layers.Minimum()([dense(a), dense(b)]))
    yield model("squeeze and excite", [(5, 6, 3)], lambda x: squeeze(layers.Conv2D(16, 3)(x)), 2)
    yield model("numbers", [(5,)], lambda x: [dense(x) + 1.5, 2.0 - dense(x), dense(x) * 3.0, dense(x) / 7.0,
                                              1.0 / (ops.square(dense(x)) + 1.0), ops.maximum(dense(x), 0.1),
                                              ops.minimum(0.2, dense(x)), dense(x) - 0.25])
    array = numpy.array([0.5, -1.0, 2.0, 0.25], "float32")
    yield model("arrays", [(3, 5)], lambda x: [dense(x) * array, ops.subtract(array.reshape(1, 1, 4), dense(x)),
                                               dense(x) / array, dense(x) + array.reshape(1, 4)])
    yield model("broadcast of tensors", [(3, 5), (2,)],
                lambda a, b: dense(a) / layers.Reshape((1, 4))(ops.square(dense(b)) + 1.0))
    yield model("rescaling", [(2, 3, 3)], lambda x: layers.Rescaling(1 / 127.5, offset=-1)(image(x)))
    yield model("rescaling by channel", [(2, 3, 3)],
                lambda x: layers.Rescaling([0.5, 2.0, -1.0], offset=[1.0, 0.0, 0.25])(image(x, 3)))
    yield model("normalization", [(2, 3, 3)],
                lambda x: layers.Normalization(mean=[0.5, 0.25, -1.0], variance=[1.0, 0.25, 4.0])(image(x, 3)))
    yield model("normalization of all", [(4,)], lambda x: layers.Normalization(axis=None, mean=0.5, variance=4.0)(dense(x)))
    yield model("normalization back", [(4,)],
                lambda x: layers.Normalization(mean=[1.0, 2.0, 3.0, 4.0], variance=[1.0, 2.0, 3.0, 4.0], invert=True)(dense(x)))
    yield model("normalization with variables", [(2, 3)], lambda x: dense(layers.Normalization()(x)))
    yield model("layer_scale", [(3, 3, 2)], lambda x: LayerScale(0.5, 4)(image(x)))
    yield model("custom_scale_layer", [(4,), (4,)], lambda a, b: CustomScaleLayer(0.17)([dense(a), dense(b)]))
    yield model("concatenate", [(3, 2), (3, 5)], lambda a, b: layers.Concatenate()([dense(a), b, dense(b, 1)]))
    yield model("concatenate rows", [(3, 2), (1, 2)], lambda a, b: layers.Concatenate(axis=1)([dense(a), dense(b)]))
    yield model("concatenate channels", [(3, 4, 2)],
                lambda x: layers.Concatenate(axis=3)([image(x, 16), image(x, 8), image(x, 32)]))
    yield model("concatenate ten", [(3,)], lambda x: ops.concatenate([dense(x, 1 + i % 3) for i in range(10)], axis=-1))
    yield model("cropping2d", [(5, 6, 2)], lambda x: layers.Cropping2D(((1, 0), (2, 1)))(image(x)))
    yield model("zero_padding2d", [(3, 4, 2)],
                lambda x: image(layers.ZeroPadding2D(((1, 2), (0, 3)))(image(x)), 3))
    yield model("zero_padding2d before a convolution", [(4, 4, 2)],
                lambda x: layers.Conv2D(3, 3, strides=2)(layers.ZeroPadding2D(1)(image(x))))
    yield model("permute", [(3, 4, 2)], lambda x: layers.Permute((3, 1, 2))(image(x)))
    yield model("transpose", [(3, 4)], lambda x: ops.transpose(dense(x), (0, 2, 1)))
    yield model("up_sampling2d", [(3, 2, 2)], lambda x: layers.UpSampling2D((2, 3))(image(x)), 2)
    yield model("up_sampling2d bilinear", [(3, 4, 2)],
                lambda x: layers.UpSampling2D((2, 3), interpolation="bilinear")(image(x, 3)), 1)
    yield model("global_average_pooling2d", [(3, 5, 2)], lambda x: layers.GlobalAveragePooling2D()(image(x)))
    yield model("global_max_pooling2d", [(3, 5, 2)], lambda x: layers.GlobalMaxPooling2D()(image(x)))
    yield model("global_max_pooling2d keepdims", [(3, 5, 2)],
                lambda x: layers.GlobalMaxPooling2D(keepdims=True)(layers.ReLU()(image(x))))
    yield model("reductions", [(3, 4, 2)],
                lambda x: [ops.mean(image(x), axis=[1, 2]), ops.sum(image(x), axis=-1), ops.max(image(x), axis=2),
                           ops.mean(image(x), axis=1, keepdims=True)])
    yield model("shapes", [(4, 6)],
                lambda x: [ops.reshape(dense(x), (-1, 2, 8)), dense(x)[:, 1:3, -2:], dense(x)[:, 2],
                           ops.squeeze(ops.expand_dims(dense(x), 1) * 2.0, 1), -dense(x), ops.softmax(dense(x))])
    yield model("random layers outside of training", [(3, 4, 4)],
                lambda x: layers.GaussianNoise(0.5)(layers.SpatialDropout2D(0.5)(x)))
