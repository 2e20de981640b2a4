#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the files of tests/data/keras/files anew, with Keras itself (any backend):

    KERAS_BACKEND=jax python3 tools/development/keras/make_fixtures.py tests/data/keras/files

`small` is a Sequential model that was trained for a step, so that its files hold an optimizer, too. `nested` has models
inside a model, statistics, parts of layers with groups of their own, and layers of a class that are not in the order of their
names. NAME.expected.safetensors has each variable under the name that it has in Lockstep. The h5 files that Keras
does not write any more (Keras 2, Keras 2.13) are made here as those wrote them.
"""
import gzip
import json
import os
import struct
import sys

import h5py
import keras
import numpy

layers = keras.layers


def save_safetensors(path, tensors):
    header, data = {}, b""
    for name, values in tensors:
        values = numpy.asarray(values, "<f4")
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [len(data), len(data) + values.nbytes]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def own_variables(layer, prefix):
    """(name in Lockstep, variable), models inside the model included."""
    if hasattr(layer, "layers"):
        for inner in layer.layers:
            yield from own_variables(inner, prefix + layer.name + "/" if prefix is not None else "")
        return
    for variable in layer.weights:
        parts = variable.path.split("/")
        yield prefix + "/".join(parts[parts.index(layer.name):]), variable


def variables(model):
    for layer in model.layers:
        yield from own_variables(layer, "")


def fill(model):
    """Values that no other element of the model has."""
    start = 0
    for _, variable in variables(model):
        count = int(numpy.prod(variable.shape))
        if "int" in str(variable.dtype):
            continue
        variable.assign((numpy.arange(start, start + count) % 1009 / 64 + start % 7).reshape(variable.shape))
        start += count


def small():
    model = keras.Sequential([keras.Input((4, 4, 1)), layers.Conv2D(3, 2, activation="relu"), layers.Flatten(), layers.Dropout(0.25),
                              layers.Dense(4, activation="relu", name="hidden"), layers.Dense(10, activation="softmax")], name="small")
    model.compile(keras.optimizers.SGD(0.5, momentum=0.25), "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(numpy.zeros((2, 4, 4, 1)), numpy.zeros(2), verbose=0)
    fill(model)
    return model


def nested():
    picture = keras.Input((6, 6, 2), name="picture")
    second = layers.Conv2D(3, 1, name="a_second")
    first = layers.Conv2D(3, 3, padding="same", name="z_first")
    x = layers.BatchNormalization(scale=False, name="normal")(second(first(picture)))
    encoder = keras.Sequential([keras.Input((6, 6, 3)), layers.Conv2D(3, 1), layers.BatchNormalization(), layers.Conv2D(3, 1, use_bias=False)],
                               name="encoder")
    inner = keras.Input((6, 6, 3))
    deep = keras.Model(inner, layers.Add()([encoder(inner), layers.DepthwiseConv2D(1)(inner)]), name="deep")
    x = deep(deep(x))
    x = layers.Reshape((36, 3))(x) + 1.0
    x = layers.MultiHeadAttention(2, 2, name="attention")(x, x)
    x = layers.LayerNormalization(center=False)(x)
    scale = layers.Normalization(name="scale")
    scale.build((None, 36, 3))
    return fill_and_return(keras.Model(picture, layers.Dense(2, name="head")(layers.Flatten()(scale(x))), name="whole"))


def inside():
    """Models inside models, one of them used twice, of layers that Lockstep has."""
    picture = keras.Input((6, 6, 2), name="picture")
    x = layers.BatchNormalization(scale=False)(layers.Conv2D(3, 3, padding="same", name="z_first")(picture))
    encoder = keras.Sequential([keras.Input((6, 6, 3)), layers.Conv2D(3, 1), layers.BatchNormalization(), layers.Conv2D(3, 1, use_bias=False)],
                               name="encoder")
    inner = keras.Input((6, 6, 3))
    deep = keras.Model(inner, layers.BatchNormalization(center=False)(layers.Conv2D(3, 1, name="a_last")(encoder(inner))), name="deep")
    x = layers.Conv2D(2, 1)(deep(deep(x)))
    return fill_and_return(keras.Model(picture, layers.Dense(2, name="head")(layers.Flatten()(x)), name="inside"))


def fill_and_return(model):
    fill(model)
    return model


def expected(model, folder, name):
    save_safetensors(os.path.join(folder, name + ".expected.safetensors"),
                     [(path, variable.numpy()) for path, variable in variables(model) if "int" not in str(variable.dtype)])


def keras_2(model, path, names_of_others=False):
    """A whole model as Keras 2 wrote it: names with ":0", lists of fixed-length texts, layers under names of their own."""
    with h5py.File(path, "w") as file:
        file.attrs["keras_version"] = "2.12.0"
        file.attrs["backend"] = "tensorflow"
        config = json.loads(model.to_json())
        file.attrs["model_config"] = json.dumps({"class_name": "Sequential", "config": config["config"]})
        file.attrs["training_config"] = json.dumps({"loss": "mean_squared_error", "metrics": None, "optimizer_config": {
            "class_name": "SGD", "config": {"name": "SGD", "learning_rate": 0.125, "momentum": 0.0, "nesterov": False}}})
        weights = file.create_group("model_weights")
        called = {layer.name: (f"other_{i}" if names_of_others else layer.name) for i, layer in enumerate(model.layers)}
        weights.attrs["layer_names"] = [called[layer.name].encode() for layer in model.layers]
        for layer in model.layers:
            group = weights.create_group(called[layer.name])
            names = [f"{called[layer.name]}/{variable.name}:0".encode() for variable in layer.weights]
            group.attrs["weight_names"] = names
            for name, variable in zip(names, layer.weights):
                group.create_dataset(name, data=variable.numpy())


def keras_2_weights(model, path):
    """Weights alone, as Keras 2 wrote them: the groups of the layers at the top. Its lists, where they are long, are in parts."""
    with h5py.File(path, "w") as file:
        names = [layer.name.encode() for layer in model.layers]
        file.attrs["layer_names0"], file.attrs["layer_names1"] = names[:2], names[2:]
        for layer in model.layers:
            group = file.create_group(layer.name)
            group.attrs["weight_names"] = [f"{layer.name}/{variable.name}:0".encode() for variable in layer.weights]
            for variable in layer.weights:
                group.create_dataset(f"{layer.name}/{variable.name}:0", data=variable.numpy())


def keras_2_13(model, path):
    """Keras 2.13 kept each layer with weights under two names, of which the second was skipped but counted."""
    with h5py.File(path, "w") as file:
        counts = {}
        for layer in model.layers:
            name = keras.src.utils.naming.to_snake_case(type(layer).__name__)
            count = counts.get(name, -1) + 1
            counts[name] = count + bool(layer.weights)
            group = file.create_group("_layer_checkpoint_dependencies/" + (f"{name}_{count}" if count else name) + "/vars")
            for i, variable in enumerate(layer.weights):
                group[str(i)] = variable.numpy()


def pack(path):
    """HDF5 is mostly empty."""
    with open(path, "rb") as file, gzip.GzipFile(path + ".gz", "wb", mtime=0) as packed:
        packed.write(file.read())
    os.unlink(path)


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    model = small()
    for suffix in (".keras", ".weights.h5", ".h5"):
        path = os.path.join(folder, "small" + suffix)
        model.save_weights(path) if suffix == ".weights.h5" else model.save(path)
    with open(os.path.join(folder, "small.json"), "w") as file:
        file.write(model.to_json())
    expected(model, folder, "small")
    keras_2(model, os.path.join(folder, "small.keras-2.h5"))
    keras_2(model, os.path.join(folder, "small.other-names.h5"), names_of_others=True)
    keras_2_weights(model, os.path.join(folder, "small.keras-2.weights-only.h5"))
    keras_2_13(model, os.path.join(folder, "small.keras-2.13.weights.h5"))
    model = nested()
    model.save_weights(os.path.join(folder, "nested.weights.h5"))
    model.save(os.path.join(folder, "nested.h5"))
    with open(os.path.join(folder, "nested.json"), "w") as file:
        file.write(model.to_json())
    expected(model, folder, "nested")
    model = inside()
    model.save(os.path.join(folder, "inside.keras"))
    model.save_weights(os.path.join(folder, "inside.weights.h5"))
    model.save(os.path.join(folder, "inside.h5"))
    expected(model, folder, "inside")
    for name in os.listdir(folder):
        pack(os.path.join(folder, name))


main()
