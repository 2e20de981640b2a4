#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes lab/bench/gpt.json, the GPT of tools/bench-train, with Keras 3:

    gpt_model.py > gpt.json

Four blocks, causal, of width 256 with 4 heads, for windows of 128 of 65 characters (tinyshakespeare): 3.2 million
parameters. Only what differs from Keras's defaults is written; Keras reads the file, too (model_from_json).
"""
import inspect
import json

import keras
from keras import layers

WORDS, LENGTH, WIDTH, HEADS, BLOCKS = 65, 128, 256, 4, 4


def gpt():
    tokens = keras.Input((LENGTH,), dtype="int32", name="tokens")
    positions = keras.Input((LENGTH,), dtype="int32", name="positions")
    x = layers.Add(name="sum")([layers.Embedding(WORDS, WIDTH, name="token_embedding")(tokens),
                                layers.Embedding(LENGTH, WIDTH, name="position_embedding")(positions)])
    for i in range(1, BLOCKS + 1):
        a = layers.LayerNormalization(epsilon=1e-5, name=f"norm_{i}a")(x)
        a = layers.MultiHeadAttention(HEADS, WIDTH // HEADS, name=f"attention_{i}")(a, a, use_causal_mask=True)
        x = layers.Add(name=f"residual_{i}a")([x, a])
        a = layers.LayerNormalization(epsilon=1e-5, name=f"norm_{i}b")(x)
        a = layers.Dense(WIDTH, name=f"down_{i}")(layers.Dense(4 * WIDTH, activation="gelu", name=f"up_{i}")(a))
        x = layers.Add(name=f"residual_{i}b")([x, a])
    x = layers.LayerNormalization(epsilon=1e-5, name="norm")(x)
    return keras.Model([tokens, positions], layers.Dense(WORDS, name="scores")(x), name="gpt")


def default_config(kind, config):
    """What Keras would write for a layer of this kind that was given only its arguments without a default."""
    made = getattr(layers, kind)
    needed = [name for name, parameter in inspect.signature(made.__init__).parameters.items()
              if name in config and parameter.default is inspect.Parameter.empty]
    return made(**{name: config[name] for name in needed}).get_config(), needed


def compact(layer):
    config = layer["config"]
    if layer["class_name"] == "InputLayer":
        kept = {key: config[key] for key in ("batch_shape", "dtype", "name")}
    else:
        defaults, needed = default_config(layer["class_name"], config)
        kept = {key: value for key, value in config.items() if key in needed or key == "name" or defaults.get(key) != value}
    return {"module": "keras.layers", "class_name": layer["class_name"], "config": kept, "registered_name": None,
            "name": layer["name"], "inbound_nodes": layer["inbound_nodes"]}


def main():
    document = json.loads(gpt().to_json())
    config = document["config"]
    rows = ",\n".join("      " + json.dumps(compact(layer)) for layer in config["layers"])
    print('{\n  "module": "keras.src.models.functional",\n  "class_name": "Functional",\n  "config": {\n    "name": "gpt",')
    print('    "layers": [\n%s\n    ],' % rows)
    print('    "input_layers": %s,\n    "output_layers": %s\n  }\n}' % (
        json.dumps(config["input_layers"]), json.dumps(config["output_layers"])))


if __name__ == "__main__":
    main()
