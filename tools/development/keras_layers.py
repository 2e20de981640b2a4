#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Keras computes with small models, as a fixture for tests/layers/keras_layers.

usage: KERAS_BACKEND=jax python3 tools/development/keras_layers.py LIST [--check]

LIST is the name of a list beside this file: LIST "normalize" is keras_layers_normalize.py, whose function
models() answers (name, model, batch) for each functional keras.Model. An input of dtype int32 whose layer is
called ..._below_N gets ids below N; others get numbers between -1 and 1. Weights and inputs are made by a formula
that the test knows, too. The fixture, tests/layers/keras/LIST.json, holds for each model its JSON, its outputs, and the
gradients of the sum of (outputs times fixed numbers) to each variable that is trained. Of a model with regularizers they are
those of its loss, which the fixture then has: the mean squared error against those numbers, and the penalties.

With --check nothing is written: the results are compared with the fixture, to see how far another backend is from it.
"""
import argparse
import importlib
import json
import os
import pathlib
import re
import sys

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
import numpy  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
FIXTURES = HERE.parents[1] / "tests" / "layers" / "keras"
INPUTS, OUTPUTS = 1000, 2000  # seeds of the numbers; a variable has its index


def mix(a, b):
    """ls_mix64 of core/plugin/operations.h."""
    with numpy.errstate(over="ignore"):
        z = numpy.uint64(a) + numpy.uint64(0x9E3779B97F4A7C15) * (b.astype(numpy.uint64) + numpy.uint64(1))
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            z = (z ^ (z >> numpy.uint64(shift))) * numpy.uint64(factor)
        return z ^ (z >> numpy.uint64(31))


def numbers(seed, shape):
    """Multiples of 2^-23 from -1 to 1: exact in float32."""
    count = int(numpy.prod(shape))
    drawn = (mix(seed, numpy.arange(count)) >> numpy.uint64(40)).astype(numpy.float64)
    return (drawn * 2.0**-23 - 1).astype(numpy.float32).reshape(shape)


def ids(seed, shape, below):
    count = int(numpy.prod(shape))
    return (mix(seed, numpy.arange(count)) % numpy.uint64(below)).astype(numpy.int32).reshape(shape)


def examples(index, tensor, batch):
    shape = (batch,) + tuple(tensor.shape[1:])
    below = re.search(r"_below_([0-9]+)$", tensor._keras_history.operation.name)
    if below:
        values = ids(INPUTS + index, shape, int(below.group(1)))
        return values.astype(keras.backend.standardize_dtype(tensor.dtype)), int(below.group(1))
    return numbers(INPUTS + index, shape), 0


def differentiate(model, inputs, weights):
    """Outputs, and the gradients of sum(outputs * weights), and None; of a model with regularizers, those of its loss, and that."""
    regularized = bool(model.losses)

    def total_of(outputs, losses):
        if regularized:
            return keras.ops.mean((outputs[0] - weights[0]) ** 2) + sum(losses)
        return sum(keras.ops.sum(o * w) for o, w in zip(outputs, weights))

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            outputs = as_list(model(inputs, training=False))
            total = total_of(outputs, model.losses)
        gradients = [tf.convert_to_tensor(g) for g in tape.gradient(total, [v.value for v in model.trainable_variables])]
    else:
        import jax

        def function(trainable, frozen):
            outputs, _, losses = model.stateless_call(trainable, frozen, inputs, training=False, return_losses=True)
            return total_of(as_list(outputs), losses), as_list(outputs)

        trainable = [v.value for v in model.trainable_variables]
        frozen = [v.value for v in model.non_trainable_variables]
        (total, outputs), gradients = jax.value_and_grad(function, has_aux=True)(trainable, frozen)
    loss = float(total) if regularized else None
    return [numpy.asarray(o) for o in outputs], [numpy.asarray(g) for g in gradients], loss


def as_list(value):
    return list(value) if isinstance(value, (list, tuple)) else [value]


def without_noise(value):
    """The JSON without what only fills it: where classes come from, and the shapes that layers were built with."""
    if isinstance(value, dict):
        return {k: without_noise(v) for k, v in value.items() if k not in ("build_config", "compile_config", "quantization_config")}
    return [without_noise(v) for v in value] if isinstance(value, list) else value


def rounded(array):
    return [float(f"{v:.7g}") for v in numpy.asarray(array, dtype=numpy.float64).ravel()]


def describe(name, model, batch):
    weights = [v for v in model.weights if not v.path.endswith("/count")]  # of Normalization: unused
    for i, variable in enumerate(weights):
        values = numpy.float32(0.7) * numbers(i, variable.shape)
        variable.assign(numpy.abs(values) if variable.path.endswith("variance") else values)
    for layer in model.layers:
        if hasattr(layer, "finalize_state"):
            layer.finalize_state()
    drawn = [examples(i, tensor, batch) for i, tensor in enumerate(model.inputs)]
    inputs = [values for values, _ in drawn]
    projections = [numbers(OUTPUTS + i, (batch,) + tuple(o.shape[1:])) for i, o in enumerate(model.outputs)]
    outputs, gradients, loss = differentiate(model, inputs, projections)
    of = {v.path: g for v, g in zip(model.trainable_variables, gradients)}
    return {
        "name": name,
        "batch": batch,
        "model": without_noise(json.loads(model.to_json())),
        "loss": loss,
        "inputs": [{"below": below} for _, below in drawn],
        "variables": [
            {"name": v.path, "shape": list(v.shape), "gradient": rounded(of[v.path]) if v.path in of else None}
            for v in weights
        ],
        "outputs": [{"shape": list(o.shape), "values": rounded(o)} for o in outputs],
    }


def difference(a, b):
    a, b = numpy.asarray(a), numpy.asarray(b)
    return float(numpy.abs(a - b).max() / max(1.0, numpy.abs(a).max()))


def check(fixture, found):
    worst = 0.0
    for old, new in zip(fixture["models"], found, strict=True):
        parts = [difference(a["values"], b["values"]) for a, b in zip(old["outputs"], new["outputs"], strict=True)]
        if old.get("loss") is not None:
            parts.append(difference([old["loss"]], [new["loss"]]))
        for a, b in zip(old["variables"], new["variables"], strict=True):
            if a["gradient"] is not None:
                parts.append(difference(a["gradient"], b["gradient"]))
        print(f"{old['name']}: {max(parts):.2g} of the largest")
        worst = max(worst, *parts)
    print(f"largest difference to the fixture, with {keras.backend.backend()}: {worst:.2g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    sys.path.insert(0, str(HERE))
    models = importlib.import_module(f"keras_layers_{arguments.list}").models()
    found = [describe(name, model, batch) for name, model, batch in models]
    path = FIXTURES / f"{arguments.list}.json"
    if arguments.check:
        check(json.loads(path.read_text()), found)
        return
    lines = ",\n".join(json.dumps(m, separators=(",", ":")) for m in found)
    path.write_text(f'{{"keras":"{keras.__version__}","backend":"{keras.backend.backend()}","models":[\n{lines}\n]}}\n')
    print(f"{path}: {len(found)} models, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
