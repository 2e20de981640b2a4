#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes curves.json: what Keras's EarlyStopping and ReduceLROnPlateau do on curves of a metric.

usage: KERAS_PYTHON make.py

Each case has the name of the callback, its options as `lockstep train --callback=` takes them, the metric's value after
each epoch, and what Keras did: `stopped`, the epoch (from 1) that was the last, 0 where it ran through; `restored`, the
epoch whose weights the model had in the end; `rates`, the learning rate after each epoch.
"""
import json
import os
import pathlib
import random

os.environ.setdefault("KERAS_BACKEND", "jax")
import keras  # noqa: E402

EPOCHS = 14


class Model:
    """As much of a model as the two callbacks look at. Its weights are the number of the epoch."""

    def __init__(self):
        self.stop_training = False
        self.metrics = []
        self.weights = 0
        self.optimizer = keras.optimizers.SGD(0.1)

    def get_weights(self):
        return self.weights

    def set_weights(self, weights):
        self.weights = weights


def run(callback, monitor, curve):
    model = Model()
    rates, last = [], 0
    callback.set_model(model)
    callback.on_train_begin()
    for epoch, value in enumerate(curve):
        model.weights = epoch + 1
        callback.on_epoch_end(epoch, {monitor: value})
        rates.append(float(keras.ops.convert_to_numpy(model.optimizer.learning_rate)))
        if model.stop_training:
            last = epoch + 1
            break
    callback.on_train_end()
    return last, model.weights, rates


def curve(draw):
    """Falls at first, then wanders; some values come twice, and some are barely apart."""
    value, values = 1.0, []
    for _ in range(EPOCHS):
        step = draw.choice([0.0, -0.1, -0.05, -0.001, -1e-5, 0.02, 0.1])
        value = max(0.05, value + step)
        values.append(float(f"{value:.6g}"))
    return values


def main():
    draw = random.Random(7)
    cases = []
    for number in range(40):
        options = {"monitor": draw.choice(["val_loss", "loss"]), "patience": draw.choice([0, 1, 2, 3, 5]),
                   "min_delta": draw.choice([0, 0.001, 0.05]), "mode": draw.choice(["auto", "min", "max"]),
                   "start_from_epoch": draw.choice([0, 0, 3]), "restore_best_weights": draw.choice([True, False])}
        if draw.random() < 0.3:
            options["baseline"] = draw.choice([0.5, 0.8])
        values = curve(draw)
        stopped, restored, _ = run(keras.callbacks.EarlyStopping(**options), options["monitor"], values)
        cases.append({"callback": "early_stopping", "options": options, "curve": values, "stopped": stopped, "restored": restored})
    for number in range(30):
        options = {"monitor": draw.choice(["val_loss", "loss"]), "patience": draw.choice([0, 1, 2, 4]),
                   "factor": draw.choice([0.1, 0.5, 0.3]), "min_delta": draw.choice([0.0001, 0.02, 0]),
                   "mode": draw.choice(["auto", "min", "max"]), "cooldown": draw.choice([0, 1, 3]),
                   "min_lr": draw.choice([0.0, 0.01, 0.1])}
        values = curve(draw)
        _, _, rates = run(keras.callbacks.ReduceLROnPlateau(**options), options["monitor"], values)
        cases.append({"callback": "reduce_lr_on_plateau", "options": options, "curve": values, "rates": rates})
    for case in cases:
        case["options"] = ",".join(f"{key}={str(value).lower()}" for key, value in case["options"].items())
    folder = pathlib.Path(__file__).parent
    with open(folder / "curves.json", "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
    print(f"{len(cases)} cases of Keras {keras.__version__}")


if __name__ == "__main__":
    main()
