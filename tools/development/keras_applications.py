#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Lockstep with Keras on whole models: those of keras.applications by name, or any file of model JSON.

  KERAS_PYTHON tools/development/keras_applications.py --lockstep=build/tools/lockstep ResNet50 my-model.json

Needs a Python with current Keras and its backends TensorFlow and JAX. For each model: weights from fixed seeds, moving
statistics that are not trivial, dropout rates set to 0; JSON and .weights.h5 are written by Keras and read by Lockstep.

  predictions  of 32 inputs: the largest difference, by the largest logit
  loss         of the first of three steps of SGD, 8 inputs: relative difference
  update       what the first step did to a variable: the largest difference, by the variable's largest update; the worst
               variable. What one rounding of the variable itself makes counts as none, and a variable is left out if its
               update is below 1e-6 of the model's largest: the gradient of a bias before a batch normalization is zero,
               and its update is rounding.
  losses 2, 3  relative difference, the larger one

Each is followed by the same between Keras's backends, JAX by TensorFlow, in parentheses; each is the largest of all seeds.
One seed is not enough: where an input of a ReLU is within rounding of its kink, that element's gradient is there in one
computation and not in the other, and the layers before it show that; whom it hits is luck.

Prints the rows of the table in docs/models.md. A value is marked ! where it is above its bound, and then the exit
code is 1: predictions 1e-4; the others twice the value in parentheses, the loss at least 1e-5, all at least 1e-6.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

SIZES = {"InceptionV3": 96, "InceptionResNetV2": 96, "Xception": 96}
NAMES = ["ResNet50", "ResNet50V2", "VGG16", "MobileNet", "MobileNetV2", "MobileNetV3Small", "DenseNet121", "Xception", "InceptionV3",
         "InceptionResNetV2", "EfficientNetB0", "EfficientNetV2B0", "NASNetMobile", "ConvNeXtTiny"]
CLASSES, PREDICTED, TRAINED, STEPS, RATE = 10, 32, 8, 3, 1e-4


def without_dropout(value):
    if isinstance(value, dict):
        config = value.get("config", {})
        for key in ("rate", "drop_path_rate"):
            if key in config and value.get("class_name") in ("Dropout", "SpatialDropout2D", "StochasticDepth"):
                config[key] = 0.0
        for inner in value.values():
            without_dropout(inner)
    elif isinstance(value, list):
        for inner in value:
            without_dropout(inner)


def load(path):
    import keras
    from keras.src.applications import convnext, inception_resnet_v2

    own = {"LayerScale": convnext.LayerScale, "StochasticDepth": convnext.StochasticDepth,
           "CustomScaleLayer": inception_resnet_v2.CustomScaleLayer}
    with open(path) as file:
        return keras.models.model_from_json(file.read(), custom_objects=own)


def make(name, folder, seeds):
    """The model's JSON, and weights and data for each seed; run once, with one backend."""
    import keras
    import numpy

    if name.endswith(".json"):
        with open(name) as file:
            text = file.read()
    else:
        size = SIZES.get(name, 64)
        text = getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3), classes=CLASSES,
                                                 classifier_activation=None).to_json()
    model = json.loads(text)
    without_dropout(model)
    with open(folder + "/model.json", "w") as file:
        json.dump(model, file)
    for seed in range(1, seeds + 1):
        keras.utils.set_random_seed(seed)
        model = load(folder + "/model.json")
        draw = numpy.random.default_rng(seed)
        for variable in model.weights:
            if variable.path.endswith("moving_mean"):
                variable.assign(draw.normal(0, 0.1, variable.shape).astype("f4"))
            elif variable.path.endswith("moving_variance"):
                variable.assign(draw.uniform(0.5, 1.5, variable.shape).astype("f4"))
        os.makedirs(f"{folder}/{seed}", exist_ok=True)
        model.save_weights(f"{folder}/{seed}/first.weights.h5")
        for i, tensor in enumerate(model.inputs):
            shape = (PREDICTED,) + tuple(tensor.shape[1:])
            values = (draw.integers(0, 16, shape).astype("i4") if "int" in str(tensor.dtype)
                      else draw.uniform(0, 1, shape).astype("f4"))
            numpy.save(f"{folder}/{seed}/x{i + 1}.npy", values)
            numpy.save(f"{folder}/{seed}/few{i + 1}.npy", values[:TRAINED])
        positions = int(numpy.prod(model.outputs[0].shape[1:-1]))
        classes = int(model.outputs[0].shape[-1])
        labels = (numpy.arange(TRAINED * positions) % classes).astype("i4")
        numpy.save(f"{folder}/{seed}/y.npy", labels.reshape((TRAINED,) + tuple(model.outputs[0].shape[1:-1])))


def inputs_of(folder, name):
    import numpy

    found, i = [], 1
    while os.path.exists(f"{folder}/{name}{i}.npy"):
        found.append(numpy.load(f"{folder}/{name}{i}.npy"))
        i += 1
    return found if len(found) > 1 else found[0]


def run_keras(folder, backend, seeds):
    """Predictions, the three losses, and all variables before and after the first step, as BACKEND.npz of each seed."""
    import keras
    import numpy

    model = load(folder + "/model.json")
    model.compile(optimizer=keras.optimizers.SGD(RATE), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                  jit_compile=False)
    for seed in range(1, seeds + 1):
        here = f"{folder}/{seed}"
        model.load_weights(here + "/first.weights.h5")
        results = {"logits": model.predict(inputs_of(here, "x"), batch_size=PREDICTED, verbose=0),
                   "parameters": model.count_params()}
        results.update({f"before{i}": w for i, w in enumerate(model.get_weights())})
        losses = []
        for step in range(STEPS):
            model.reset_metrics()  # what train_on_batch answers is a mean since then
            losses.append(float(model.train_on_batch(inputs_of(here, "few"), numpy.load(here + "/y.npy"))))
            if step == 0:
                results.update({f"after{i}": w for i, w in enumerate(model.get_weights())})
        numpy.savez(f"{here}/{backend}.npz", losses=losses, **results)


def read_lockstep(folder, seeds):
    """Lockstep's variables after the first step, in the order of Keras, as lockstep.npz of each seed."""
    import numpy

    model = load(folder + "/model.json")
    for seed in range(1, seeds + 1):
        model.load_weights(f"{folder}/{seed}/one.weights.h5")
        numpy.savez(f"{folder}/{seed}/lockstep.npz", **{f"after{i}": w for i, w in enumerate(model.get_weights())})


def run_python(folder, program, seeds):
    """The same as the command, by lockstep.Model in this process: the model and its weights come from a keras.Model, data from memory."""
    import numpy

    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
    os.environ.setdefault("LOCKSTEP_PROGRAM", program)
    import lockstep

    keras_model = load(folder + "/model.json")
    for seed in range(1, seeds + 1):
        here = f"{folder}/{seed}"
        keras_model.load_weights(here + "/first.weights.h5")
        numpy.save(here + "/logits.npy", lockstep.Model(keras_model).predict(inputs_of(here, "x")))
        model = lockstep.Model(keras_model, replicas=1)
        model.compile(f"sgd:learning_rate={RATE}", "sparse_categorical_crossentropy:from_logits=true")
        losses = []
        for step in range(STEPS):
            history = model.fit(inputs_of(here, "few"), numpy.load(here + "/y.npy"), batch_size=TRAINED, shuffle=False, verbose=0)
            losses.extend(history.losses.tolist())
            if step == 0:
                model.save_weights(here + "/one.weights.h5")
        with open(here + "/report.json", "w") as file:
            json.dump({"losses": losses}, file)


def in_keras(backend, *arguments):
    """This script again, with that backend."""
    environment = dict(os.environ, KERAS_BACKEND=backend, TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="1")
    outcome = subprocess.run([sys.executable, __file__, "--part", *arguments], env=environment, capture_output=True, text=True)
    if outcome.returncode:
        raise SystemExit(outcome.stderr[-2000:])


def in_lockstep(program, folder, *arguments):
    command = [program, *arguments, f"--model={folder}/../model.json", f"--initial-weights={folder}/first.weights.h5"]
    outcome = subprocess.run(command, capture_output=True, text=True)
    if outcome.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {outcome.returncode}\n{outcome.stderr[-2000:]}")


def arrays(folder, name, labels):
    fields, i = [], 1
    while os.path.exists(f"{folder}/{name}{i}.npy"):
        fields.append(f"{'x' if i == 1 else f'x{i}'}={folder}/{name}{i}.npy")
        i += 1
    return "--dataset=arrays:" + ",".join(fields + ([f"y={folder}/y.npy"] if labels else []))


def update(first, other):
    """How much the update of a variable differs, by its size; the worst variable."""
    variables = []
    for key in (k for k in other if k.startswith("after")):
        before = first[key.replace("after", "before")]
        if before.size:
            variables.append((abs(first[key] - before).max(), abs(other[key] - first[key]).max(), abs(before).max() * 2.0**-22))
    least = 1e-6 * max(size for size, _, _ in variables)
    return max(difference / size if difference > rounding else 0 for size, difference, rounding in variables if size > least)


def differences(first, other):
    """A column's value each."""
    losses = [abs(other["losses"][i] / first["losses"][i] - 1) for i in range(STEPS)]
    return [abs(other["logits"] - first["logits"]).max() / abs(first["logits"]).max(), losses[0], update(first, other), max(losses[1:])]


def run(name, program, python, folder, seeds):
    if not os.path.exists(f"{folder}/{seeds}/jax.npz"):
        in_keras("tensorflow", "make", name, folder, str(seeds))
        in_keras("tensorflow", "keras", folder, "tensorflow", str(seeds))
        in_keras("jax", "keras", folder, "jax", str(seeds))
    if python:
        in_keras("tensorflow", "python", folder, os.path.abspath(program), str(seeds))
    for seed in range(1, 0 if python else seeds + 1):
        here = f"{folder}/{seed}"
        in_lockstep(program, here, "predict", arrays(here, "x", False), f"--out={here}/logits.npy")
        train = ["train", arrays(here, "few", True), "--loss=sparse_categorical_crossentropy:from_logits=true",
                 f"--optimizer=sgd:learning_rate={RATE}", f"--batch={TRAINED}", "--shuffle=off", "--replicas=1",
                 "--validation=off"]
        in_lockstep(program, here, *train, "--steps=1", f"--save-weights={here}/one.weights.h5")
        in_lockstep(program, here, *train, f"--epochs={STEPS}", f"--report={here}/report.json")
    in_keras("tensorflow", "lockstep", folder, str(seeds))


def print_row(name, folder, seeds):
    """Returns whether all is within the bounds."""
    import numpy

    own, between = [0.0] * 4, [0.0] * 4
    for seed in range(1, seeds + 1):
        here = f"{folder}/{seed}"
        flow, jax, mine = (dict(numpy.load(f"{here}/{part}.npz")) for part in ("tensorflow", "jax", "lockstep"))
        with open(here + "/report.json") as file:
            mine["losses"] = json.load(file)["losses"]
        mine["logits"] = numpy.load(here + "/logits.npy")
        own = numpy.maximum(own, differences(flow, mine))
        between = numpy.maximum(between, differences(flow, jax))
    bounds = [1e-4, max(1e-5, 2 * between[1])] + [max(2 * value, 1e-6) for value in between[2:]]
    columns = [f"{value:.1e}{'' if value <= bound else '!'} ({other:.1e})" for value, bound, other in zip(own, bounds, between)]
    print(f"| {os.path.basename(name)} | {int(flow['parameters']):,} | " + " | ".join(columns) + " |", flush=True)
    return all(own <= bounds)


def main():
    if sys.argv[1:2] == ["--part"]:
        part, arguments = sys.argv[2], sys.argv[3:-1] + [int(sys.argv[-1])]
        {"make": make, "keras": run_keras, "lockstep": read_lockstep, "python": run_python}[part](*arguments)
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default="build/tools/lockstep", help="the program [%(default)s]")
    parser.add_argument("--keep", metavar="DIR", help="keep the files of each model in a folder of its name there, and take what Keras computed "
                                                     "from there, if it is there")
    parser.add_argument("--python", action="store_true", help="use lockstep.Model instead of the program")
    parser.add_argument("--seeds", type=int, default=3, help="[%(default)s]")
    parser.add_argument("models", nargs="*", default=NAMES, metavar="MODEL", help="[the fourteen of docs/models.md]")
    options = parser.parse_args()
    print("| model | parameters | predictions | loss | update | losses 2, 3 |\n|---|---|---|---|---|---|", flush=True)
    good = True
    for name in options.models:
        with tempfile.TemporaryDirectory() as scratch:
            folder = scratch
            if options.keep:
                folder = os.path.join(os.path.abspath(options.keep), os.path.basename(name))
                os.makedirs(folder, exist_ok=True)
            run(name, options.lockstep, options.python, folder, options.seeds)
            good = print_row(name, folder, options.seeds) and good
    sys.exit(not good)


if __name__ == "__main__":
    main()
