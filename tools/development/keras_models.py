#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Keras computes with whole models, as fixtures for tests/programs/test_keras_models.py in tests/data/models.

    KERAS_PYTHON tools/development/keras_models.py [MODEL...]

Needs a Python with current Keras and its backends TensorFlow and JAX. For each model: its JSON as Keras writes it, with
dropout rates set to 0 (NAME.json.gz), and in expected.json Keras's counts of parameters, and from each of the two backends
predictions and the losses of steps of SGD; from TensorFlow also the first loss in float64. Of the small models, NAME.safetensors.gz holds also what the first step added to each
variable, in TensorFlow, and for each the largest difference between the backends.

Weights and inputs are not stored: they come from a formula, which the test knows, too (formula_numbers, variable_values,
input_values; in the test tests/programs/formula_weights.c has it).
"""
import argparse
import gzip
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "models"
APPLICATIONS = {"ResNet50": 64, "ResNet50V2": 64, "VGG16": 64, "MobileNet": 64, "MobileNetV2": 64, "MobileNetV3Small": 64, "DenseNet121": 64,
                "Xception": 96, "InceptionV3": 96, "InceptionResNetV2": 96, "EfficientNetB0": 64, "EfficientNetV2B0": 64, "NASNetMobile": 64,
                "ConvNeXtTiny": 64}
CLASSES, EXAMPLES, STEPS = 10, 8, 3
RATE = 1e-4
# Of kernels. With the usual size the activations of this model grow so much that its gates are all open or shut, and a difference of
# rounding becomes one of per cents, between Keras's backends, too.
GAINS = {"EfficientNetV2B0": 0.85}
# JAX compiles each operation of each shape on its own there, for a quarter of an hour: only predictions and the first loss.
FORWARD_IN_JAX = ("DenseNet121", "InceptionV3", "NASNetMobile", "InceptionResNetV2")
INPUTS = 1000  # the seed of the first input


# ---- The formula ----

def mix(a, b):
    """ls_mix64 of core/plugin/operations.h."""
    import numpy

    with numpy.errstate(over="ignore"):
        z = numpy.uint64(a) + numpy.uint64(0x9E3779B97F4A7C15) * (b + numpy.uint64(1))
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            z = (z ^ (z >> numpy.uint64(shift))) * numpy.uint64(factor)
        return z ^ (z >> numpy.uint64(31))


def formula_numbers(seed, count):
    """Multiples of 2^-23 from -1 to 1: exact in float32."""
    import numpy

    return (mix(seed, numpy.arange(count, dtype=numpy.uint64)) >> numpy.uint64(40)).astype(numpy.float64) * 2.0**-23 - 1


def name_hash(name):
    """FNV-1a of the name that the variable has in Lockstep."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return value


def variable_values(name, shape, gain=1.0):
    """Kernels keep the size of what they are given; everything else is near its first value, and not it."""
    import numpy

    u = formula_numbers(name_hash(name), int(numpy.prod(shape)))
    last = name.split("/")[-1]
    if last in ("gamma", "scale"):
        values = 1 + 0.1 * u
    elif last.endswith("variance"):
        values = 1 + 0.5 * u
    elif len(shape) < 2:
        values = 0.1 * u
    else:
        depthwise = len(shape) == 4 and shape[-1] <= 2
        fan = numpy.prod(shape[:2] if depthwise else shape[:-1], dtype=numpy.int64)
        # Behind the depthwise part of a separable convolution is no activation that halves what it is given.
        values = gain * numpy.sqrt((3 if last == "depthwise_kernel" else 6) / fan) * u if last != "embeddings" else u
    return values.astype(numpy.float32).reshape(shape)


def input_values(index, shape, below, scale):
    """Ids below `below`, or numbers: blocks of 8 x 8 pixels and noise, from 0 to `scale`."""
    import numpy

    count = int(numpy.prod(shape))
    if below:
        return (mix(INPUTS + index, numpy.arange(count, dtype=numpy.uint64)) % numpy.uint64(below)).astype(numpy.int32).reshape(shape)
    values = formula_numbers(INPUTS + index, count).reshape(shape) * 0.25
    if len(shape) == 4:
        n, rows, columns, channels = shape
        blocks = formula_numbers(INPUTS + 500 + index, count // 64).reshape(n, rows // 8, columns // 8, channels) * 0.75
        values += blocks.repeat(8, axis=1).repeat(8, axis=2)
    return ((values + 1) / 2 * scale).astype(numpy.float32)


# ---- Small models ----

def gpt(keras):
    """Two blocks, causal; tokens and positions."""
    layers = keras.layers
    words, length, width = 19, 12, 16
    tokens, positions = keras.Input((length,), dtype="int32", name="tokens"), keras.Input((length,), dtype="int32", name="positions")
    x = layers.Add(name="sum")([layers.Embedding(words, width, name="token_embedding")(tokens),
                                layers.Embedding(length, width, name="position_embedding")(positions)])
    for i in (1, 2):
        a = layers.LayerNormalization(epsilon=1e-5, name=f"norm_{i}a")(x)
        x = x + layers.MultiHeadAttention(2, width // 2, name=f"attention_{i}")(a, a, use_causal_mask=True)
        a = layers.LayerNormalization(epsilon=1e-5, name=f"norm_{i}b")(x)
        a = layers.Dense(width, name=f"down_{i}")(layers.Dense(2 * width, activation="gelu", name=f"up_{i}")(a))
        x = layers.Add(name=f"residual_{i}")([x, layers.Dropout(0.1, name=f"dropout_{i}")(a)])
    scores = layers.Dense(words, name="scores")(layers.LayerNormalization(name="norm")(x))
    return keras.Model([tokens, positions], scores, name="gpt")


def siamese(keras):
    """A model with batch normalization that is called twice."""
    layers = keras.layers
    x = keras.Input((16, 16, 1), name="image")
    y = layers.Conv2D(6, 3, strides=2, activation="relu", name="conv")(x)
    y = layers.BatchNormalization(name="norm")(y)
    y = layers.Dense(8, activation="tanh", name="code")(layers.Flatten(name="flat")(y))
    encoder = keras.Model(x, y, name="encoder")
    left, right = keras.Input((16, 16, 1), name="left"), keras.Input((16, 16, 1), name="right")
    a, b = encoder(left), encoder(right)
    both = layers.Concatenate(name="both")([keras.ops.absolute(a - b), a * b])
    return keras.Model([left, right], layers.Dense(2, name="same")(both), name="siamese")


def inception(keras):
    """Branches side by side, squeeze and excite, layer normalization."""
    layers = keras.layers
    x = keras.Input((16, 16, 3), name="image")
    y = layers.Conv2D(8, 3, padding="same", activation="swish", name="stem")(x)
    one = layers.Conv2D(6, 1, activation="relu", name="one")(y)
    deep = layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2, name="depthwise")(y)
    deep = layers.BatchNormalization(name="norm")(deep)
    apart = layers.SeparableConv2D(6, 5, padding="same", activation="relu", name="separable")(y)
    pool = layers.Conv2D(4, 1, name="pool_conv")(layers.AveragePooling2D(3, strides=1, padding="same", name="pool")(y))
    y = layers.Concatenate(name="join")([one, layers.Activation("hard_silu", name="act")(deep), apart, pool])
    gate = layers.GlobalAveragePooling2D(keepdims=True, name="squeeze")(y)
    gate = layers.Conv2D(4, 1, activation="relu", name="reduce")(gate)
    gate = layers.Conv2D(32, 1, activation="sigmoid", name="expand")(gate)
    y = layers.Multiply(name="excite")([y, gate])
    y = layers.LayerNormalization(epsilon=1e-6, name="layer_norm")(y)
    y = layers.Conv2D(8, 3, strides=2, activation="gelu", name="last")(y)
    y = layers.Dropout(0.3, name="dropout")(layers.GlobalMaxPooling2D(name="global")(y))
    return keras.Model(x, layers.Dense(CLASSES, name="scores")(y), name="inception")


SMALL = {"gpt": gpt, "siamese": siamese, "inception": inception}
SMALL_RATES = {"gpt": 0.1, "siamese": 0.1, "inception": 0.01}  # so that an update is far above the rounding of the variable
BELOW = {"tokens": 19, "positions": 12}


# ---- Keras, in a process for each backend ----

def without_dropout(value):
    if isinstance(value, dict):
        if value.get("class_name") in ("Dropout", "SpatialDropout2D", "StochasticDepth", "MultiHeadAttention"):
            for key in ("rate", "drop_path_rate", "dropout"):
                if key in value["config"]:
                    value["config"][key] = 0.0
        for inner in value.values():
            without_dropout(inner)
    elif isinstance(value, list):
        for inner in value:
            without_dropout(inner)


def load(text):
    import keras
    from keras.src.applications import convnext, inception_resnet_v2

    return keras.models.model_from_json(text, custom_objects={
        "LayerScale": convnext.LayerScale, "StochasticDepth": convnext.StochasticDepth,
        "CustomScaleLayer": inception_resnet_v2.CustomScaleLayer})


def model_json(name):
    import keras

    if name in SMALL:
        made = SMALL[name](keras)
    else:
        size = APPLICATIONS.get(name, 64)
        made = getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3), classes=CLASSES, classifier_activation=None)
    config = json.loads(made.to_json())
    without_dropout(config)
    return json.dumps(config)


def variables(model, prefix=""):
    """(name in Lockstep, variable)."""
    for layer in model.layers:
        if hasattr(layer, "layers"):
            yield from variables(layer, prefix + layer.name + "/")
            continue
        for variable in layer.weights:
            if not variable.path.endswith("/count"):  # of Normalization: not used
                parts = variable.path.split("/")
                name = prefix + "/".join(parts[parts.index(layer.name):])
                yield re.sub(r"/variable_[0-9]+$", "/variable", name), variable  # Keras counts those that LayerScale leaves unnamed


def first_layers(model):
    return [layer.__class__.__name__ for layer in model.layers[:3]]


def forward_in_jax(model, inputs, labels):
    """Predictions and [loss], each compiled as a whole."""
    import jax
    import keras
    import numpy

    trained, others = ([variable.value for variable in part] for part in (model.trainable_variables, model.non_trainable_variables))

    def call(training):
        return jax.jit(lambda a, b, x: model.stateless_call(a, b, x, training=training)[0])(trained, others, inputs)

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(labels, call(True))
    return numpy.asarray(call(False)), [float(loss)]


def prepare(name, model):
    """Gives the model its weights; answers its variables by name."""
    found = dict(variables(model))
    for key, variable in found.items():
        variable.assign(variable_values(key, tuple(variable.shape), GAINS.get(name, 1.0)))
    for layer in model.layers:
        if hasattr(layer, "finalize_state"):
            layer.finalize_state()
    return found


def examples(model):
    """(what the test has to know of the inputs, the inputs, the labels)."""
    import numpy

    # Images as the model expects them: from 0 to 255 where it rescales them itself.
    scale = 255.0 if {"Rescaling", "Normalization"} & set(first_layers(model)) else 1.0
    facts = [{"shape": list(tensor.shape[1:]), "below": BELOW.get(tensor.name, 0), "scale": scale} for tensor in model.inputs]
    inputs = [input_values(i, (EXAMPLES, *fact["shape"]), fact["below"], fact["scale"]) for i, fact in enumerate(facts)]
    outputs = model.outputs[0].shape
    labels = (numpy.arange(EXAMPLES * int(numpy.prod(outputs[1:-1], dtype=int))) % outputs[-1]).astype("i4").reshape((EXAMPLES, *outputs[1:-1]))
    return facts, inputs, labels


def run(name, folder):
    import keras
    import numpy

    with open(folder + "/model.json") as file:
        model = load(file.read())
    found = prepare(name, model)
    facts, inputs, labels = examples(model)
    given = inputs if len(inputs) > 1 else inputs[0]
    if keras.backend.backend() == "jax" and name in FORWARD_IN_JAX:
        logits, losses = forward_in_jax(model, given, labels)
        numpy.savez(f"{folder}/jax.npz", logits=logits, losses=losses)
        return
    logits = numpy.asarray(model(given, training=False))
    sizes = [int(numpy.prod(v.shape)) for v in found.values()]
    trained = sum(int(numpy.prod(v.shape)) for v in model.trainable_variables)
    model.compile(optimizer=keras.optimizers.SGD(SMALL_RATES.get(name, RATE)),
                  loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    losses, updates = [], {}
    for step in range(STEPS):
        before = {key: numpy.array(variable) for key, variable in found.items()}
        model.reset_metrics()  # what train_on_batch answers is a mean since then
        losses.append(float(model.train_on_batch(given, labels)))
        if step == 0 and name in SMALL:
            updates = {key: numpy.array(variable) - before[key] for key, variable in found.items()}
    numpy.savez(f"{folder}/{keras.backend.backend()}.npz", logits=logits, losses=losses,
                facts=json.dumps({"trainable": trained, "total": sum(sizes), "inputs": facts, "keras": keras.__version__}),
                **{"update/" + key: values for key, values in updates.items()})


def first_loss(name, folder):
    """The loss before the first step, in float64: how far rounding takes the backends from it."""
    import keras
    import numpy

    keras.config.set_floatx("float64")
    with open(folder + "/model.json") as file:
        model = load(file.read().replace('"float32"', '"float64"'))
    prepare(name, model)
    _, inputs, labels = examples(model)
    inputs = [values.astype("f8") if values.dtype == "f4" else values for values in inputs]
    outputs = model(inputs if len(inputs) > 1 else inputs[0], training=True)
    loss = float(keras.losses.SparseCategoricalCrossentropy(from_logits=True)(labels, outputs))
    assert "float64" in str(outputs.dtype), outputs.dtype
    with open(folder + "/float64.json", "w") as file:
        json.dump(loss, file)


# ---- The fixtures ----

def in_keras(backend, *arguments):
    environment = dict(os.environ, KERAS_BACKEND=backend, TF_CPP_MIN_LOG_LEVEL="3")
    outcome = subprocess.run([sys.executable, __file__, "--part", *arguments], env=environment, capture_output=True, text=True)
    if outcome.returncode:
        raise SystemExit(outcome.stderr[-3000:])
    return outcome.stdout


def rounded(array):
    import numpy

    return [float(f"{value:.8g}") for value in numpy.asarray(array, dtype=numpy.float64).ravel()]


def safetensors(tensors):
    header, data = {}, b""
    for name, values in tensors.items():
        values = values.astype("<f4")
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [len(data), len(data) + values.nbytes]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def make(name):
    import numpy

    with tempfile.TemporaryDirectory() as folder:
        in_keras("tensorflow", "json", name, folder)
        found = {}
        for backend in ("tensorflow", "jax"):
            in_keras(backend, "run", name, folder)
            found[backend] = numpy.load(f"{folder}/{backend}.npz")
        in_keras("tensorflow", "first_loss", name, folder)
        with open(folder + "/float64.json") as file:
            exact = json.load(file)
        with open(folder + "/model.json", "rb") as file:
            (FOLDER / f"{name}.json.gz").write_bytes(gzip.compress(file.read(), 9, mtime=0))
    flow, jax = found["tensorflow"], found["jax"]
    expected = json.loads(str(flow["facts"]))
    expected["gain"] = GAINS.get(name, 1.0)
    expected["rate"] = SMALL_RATES.get(name, RATE)
    for backend, values in found.items():
        expected[backend] = {"logits": rounded(values["logits"]), "losses": [float(loss) for loss in values["losses"]]}
    expected["float64"] = exact
    updates = {key[len("update/"):]: flow[key] for key in flow.files if key.startswith("update/")}
    if updates:
        (FOLDER / f"{name}.updates.safetensors.gz").write_bytes(gzip.compress(safetensors(updates), 9, mtime=0))
        expected["between"] = {key: float(f"{abs(jax['update/' + key] - values).max():.3g}") for key, values in updates.items()}
    path = FOLDER / "expected.json"
    everything = json.loads(path.read_text()) if path.exists() else {}
    everything[name] = expected
    lines = ",\n".join(f'"{key}": {json.dumps(everything[key])}' for key in sorted(everything))
    path.write_text("{\n" + lines + "\n}\n")
    logits = flow["logits"]
    largest = abs(logits).max()
    spread = abs(logits - logits[:1]).max() / largest  # how far examples differ: what a comparison can see
    between = abs(logits - jax["logits"]).max() / largest
    losses = ", ".join(f"{a:.6f} ({abs(b - a) / abs(a):.0e})" for a, b in zip(flow["losses"], jax["losses"]))
    print(f"{name}: {expected['total']:,} parameters, largest {largest:.3g}, spread {spread:.2g}, backends {between:.1e}; losses {losses}", flush=True)


def part(what, name, folder):
    if what == "json":
        with open(folder + "/model.json", "w") as file:
            file.write(model_json(name))
    else:
        {"run": run, "first_loss": first_loss}[what](name, folder)


def main():
    if sys.argv[1:2] == ["--part"]:
        return part(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[*SMALL, *APPLICATIONS], metavar="MODEL", help="[all]")
    FOLDER.mkdir(exist_ok=True)
    for name in parser.parse_args().models:
        make(name)


if __name__ == "__main__":
    main()
