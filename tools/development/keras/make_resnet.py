#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes models/resnet.json anew, with Keras itself (any backend):

    KERAS_BACKEND=jax python3 tools/development/keras/make_resnet.py > models/resnet.json

The file has one layer a line and leaves out what is Keras's default. Keras reads it again before it is printed, and must
come to the same model.
"""
import inspect
import json

import keras

layers = keras.layers


def block(x, filters, stride, projection):
    shortcut = x
    if projection:
        shortcut = layers.BatchNormalization()(layers.Conv2D(filters, 1, strides=stride)(x))
    x = layers.Conv2D(filters, 3, strides=stride, padding="same")(x)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    x = layers.Conv2D(filters, 3, padding="same")(x)
    x = layers.BatchNormalization()(x)
    return layers.ReLU()(layers.add([x, shortcut]))


def resnet():
    inputs = layers.Input((32, 32, 3))
    x = layers.Conv2D(64, 7, strides=2, padding="same")(inputs)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
    for filters, stride in (64, 1), (128, 2), (256, 2):
        x = block(x, filters, stride, projection=True)
        x = block(x, filters, 1, projection=False)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(10)(x), name="resnet")


def default_config(kind, needed):
    """The configuration of a layer of class `kind` that is told only what it needs, and what another default depends on."""
    parameters = inspect.signature(kind.__init__).parameters.values()
    told = {p.name: needed[p.name] for p in parameters if p.name in needed and (p.default is p.empty or p.name == "pool_size")}
    return json.loads(json.dumps(kind(**told).get_config())), told


def short(layer):
    """The layer's entry without what is a default."""
    config = layer["config"]
    if layer["class_name"] != "InputLayer":
        defaults, told = default_config(getattr(layers, layer["class_name"]), config)
        keep = {"name", *told}
        config = {key: value for key, value in config.items() if key in keep or value != defaults.get(key)}
        config.pop("dtype", None)
    else:
        config = {key: config[key] for key in ("batch_shape", "dtype", "name")}
    return {"module": layer["module"], "class_name": layer["class_name"], "config": config, "registered_name": None,
            "name": layer["name"], "inbound_nodes": layer["inbound_nodes"]}


def text(document):
    config = dict(document["config"])
    lines = ",\n".join("      " + json.dumps(short(layer)) for layer in config.pop("layers"))
    rest = "".join(f',\n    "{key}": {json.dumps(config[key])}' for key in ("input_layers", "output_layers"))
    return (f'{{\n  "module": "keras.src.models.functional",\n  "class_name": "Functional",\n  "config": {{\n    "name": "{config["name"]}",\n'
            f'    "layers": [\n{lines}\n    ]{rest}\n  }},\n  "registered_name": null\n}}')


def main():
    keras.backend.clear_session()
    model = resnet()
    written = text(json.loads(model.to_json()))
    again = keras.models.model_from_json(written)
    for ours, theirs in zip(again.layers, model.layers, strict=True):
        assert ours.get_config() == theirs.get_config(), ours.name
        assert ours.output.shape == theirs.output.shape, ours.name
    print(written)


if __name__ == "__main__":
    main()
