# SPDX-License-Identifier: Apache-2.0
"""The TensorFlow side of a line of tools/bench-train --all: Keras's own train step on the file that Lockstep trains.

Started by line_peers.py; what it reads and prints is as in torch_line_peer.py.
"""
import argparse
import json
import sys
import time

import keras
import numpy
import tensorflow

CLASSES = 10


def random_data(arguments):
    random = numpy.random.default_rng(1)
    pixels = random.random((arguments.examples, *(int(size) for size in arguments.shape.split("x"))), dtype=numpy.float32)
    data = tensorflow.data.Dataset.from_tensor_slices((pixels, random.integers(0, CLASSES, arguments.examples)))
    return data.repeat().shuffle(arguments.examples).batch(arguments.batch, drop_remainder=True).prefetch(2)


def text_data(arguments):
    numbers = numpy.unique(numpy.fromfile(arguments.text, numpy.uint8), return_inverse=True)[1].reshape(-1).astype(numpy.int32)
    length, places = arguments.length, numpy.tile(numpy.arange(arguments.length, dtype=numpy.int32), (arguments.batch, 1))
    windows = numpy.lib.stride_tricks.sliding_window_view(numbers, length + 1)[::64]
    data = tensorflow.data.Dataset.from_tensor_slices(windows).repeat().shuffle(4096)
    data = data.batch(arguments.batch, drop_remainder=True)
    return data.map(lambda w: ((w[:, :-1], places), w[:, 1:])).prefetch(2)


def read_model(path, precision):
    """All layers in that precision; Keras's guide has the last one in float32, which the loss needs."""
    with open(path) as file:
        document = json.load(file)
    layers = document["config"]["layers"]
    for layer in layers[:-1] if precision != "float32" else []:
        if layer["class_name"] != "InputLayer":
            layer["config"]["dtype"] = precision
    return keras.models.model_from_json(json.dumps(document))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="Keras model JSON")
    parser.add_argument("--jit", type=int, choices=(0, 1), required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--precision", choices=("float32", "mixed_bfloat16"), default="float32")
    parser.add_argument("--shape")
    parser.add_argument("--examples", type=int, default=160)
    parser.add_argument("--text")
    parser.add_argument("--length", type=int)
    arguments = parser.parse_args()
    tensorflow.config.threading.set_intra_op_parallelism_threads(arguments.threads)
    tensorflow.config.threading.set_inter_op_parallelism_threads(1)
    model = read_model(arguments.model, arguments.precision)
    model.compile(optimizer=keras.optimizers.Adam(0.001), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                  jit_compile=bool(arguments.jit))
    model.make_train_function()
    batches = iter(text_data(arguments) if arguments.text else random_data(arguments))

    def steps(count):
        for _ in range(count):
            logs = model.train_function(batches)
        return float(logs["loss"])  # waits for the last step

    loss = steps(3)
    print(json.dumps({"version": "%s, Keras %s" % (tensorflow.__version__, keras.__version__), "loss": loss,
                      "parameters": sum(int(numpy.prod(v.shape)) for v in model.trainable_variables)}), flush=True)
    for line in sys.stdin:
        seconds = json.loads(line)["seconds"]
        steps(1)
        begin, count = time.perf_counter(), 0
        while count < 3 or time.perf_counter() - begin < seconds:
            loss = steps(1)
            count += 1
        print(json.dumps({"seconds": (time.perf_counter() - begin) / count, "steps": count, "loss": loss}), flush=True)


if __name__ == "__main__":
    main()
