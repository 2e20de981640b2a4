#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/fitting/loss_scale.json: what Keras's LossScaleOptimizer makes of a small model whose gradients overflow.

Each case is trained for 12 steps of 6 examples, in order. In the steps that are its `faults` one example has the weight infinity,
so that the loss and gradients are not finite. Kept are the loss scale, the number of updates and the weights after each step; of an
average of weights only those that the model has at the end. Keras 3 with the backend TensorFlow is needed:

    KERAS_BACKEND=tensorflow python tools/development/keras_loss_scale.py tests/data/fitting/loss_scale.json
"""

import json
import os
import sys

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
import numpy as np  # noqa: E402

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from keras_fitting import make_optimizer  # noqa: E402

STEPS, BATCH, FEATURES, HIDDEN, UNITS = 12, 6, 5, 4, 3
FAULTY = 3  # which example of a batch: of three replicas that of the second

CASES = [
    dict(optimizer="sgd:learning_rate=0.1,momentum=0.9", initial_scale=32768, growth_steps=2000, faults=[3]),
    dict(optimizer="adam:learning_rate=0.05", initial_scale=1024, growth_steps=3, faults=[4, 5, 9]),
    dict(optimizer="adam:learning_rate=0.05,global_clipnorm=0.1,weight_decay=0.1", initial_scale=1, growth_steps=2, faults=[]),
    dict(optimizer="adamw:learning_rate=0.05,global_clipnorm=0.1", initial_scale=1000, growth_steps=2, faults=[1, 6]),
    dict(optimizer="lamb:learning_rate=0.05,clipnorm=0.1", initial_scale=64, growth_steps=1, faults=[2, 8, 12]),
    dict(optimizer="sgd:learning_rate=0.3,clipvalue=0.05", initial_scale=4, growth_steps=2000, faults=[1, 2, 3, 4, 5],
         schedule="exponential_decay:decay_steps=2,decay_rate=0.5,staircase=true"),
    dict(optimizer="adam:learning_rate=0.05,use_ema=true,ema_momentum=0.8", initial_scale=256, growth_steps=4, faults=[1, 7]),
]


def model_of(weights):
    model = keras.Sequential([
        keras.Input((FEATURES,)), keras.layers.Dense(HIDDEN, activation="tanh"), keras.layers.Dense(UNITS)])
    model.set_weights(weights)
    return model


def flat(model):
    return [float(f"{v:.9g}") for w in model.get_weights() for v in np.asarray(w, "float32").ravel()]


def run(case, x, y, weights):
    model = model_of(weights)
    inner = make_optimizer(case)
    optimizer = keras.optimizers.LossScaleOptimizer(
        inner, initial_scale=case["initial_scale"], dynamic_growth_steps=case["growth_steps"])
    model.compile(optimizer, "mean_squared_error", auto_scale_loss=True)
    scales, updates, steps = [], [], []
    for step in range(1, STEPS + 1):
        part = slice((step - 1) * BATCH, step * BATCH)
        weight = np.ones(BATCH, "float32")
        if step in case["faults"]:
            weight[FAULTY] = np.inf
        model.train_on_batch(x[part], y[part], sample_weight=weight)
        scales.append(float(optimizer.dynamic_scale))
        updates.append(int(inner.iterations))
        steps.append(flat(model))
    optimizer.finalize_variable_values(model.trainable_variables)
    averages = "use_ema" in case["optimizer"]
    return dict(case, scales=scales, updates=updates, weights=[flat(model)] if averages else steps)


def main():
    # As keras_fitting.py: Keras's arithmetic without its roundings.
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    random = np.random.default_rng(17)
    x = random.normal(size=(STEPS * BATCH, FEATURES)).astype("float32").round(3)
    y = random.normal(size=(STEPS * BATCH, UNITS)).astype("float32").round(3)
    weights = [random.normal(size=shape, scale=0.5).astype("float32").round(3)
               for shape in [(FEATURES, HIDDEN), (HIDDEN,), (HIDDEN, UNITS), (UNITS,)]]
    result = dict(batch=BATCH, faulty=FAULTY, x=x.tolist(), y=y.tolist(), initial=[w.ravel().tolist() for w in weights],
                  cases=[run(case, x, y, weights) for case in CASES])
    with open(sys.argv[1], "w", encoding="ascii") as file:
        json.dump(json.loads(json.dumps(result), parse_float=lambda text: float(f"{float(text):.9g}")), file,
                  separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
