# SPDX-License-Identifier: Apache-2.0
"""lockstep.Model against the command `lockstep`, which trains the same to the bit."""
import concurrent.futures
import contextlib
import copy
import gc
import io
import json
import os
import pickle
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest
import weakref

import numpy_python
import numpy
from support import LOCKSTEP, ProgramTest, main, read_json, tensors, write_json

import lockstep
from lockstep import _data, _keras_callbacks, _native, layers, ops

ROUNDING = 1e-6  # relative: sums of gradients in another order
EXAMPLES = 300
COUNTS = (88, 68)  # of objects in tests/data/keras/objects.json, and of those that are taken


def examples(count=EXAMPLES, seed=3):
    random = numpy.random.default_rng(seed)
    return random.random((count, 6, 6, 1), dtype="float32"), random.integers(0, 4, count)


def convolutions():
    return [layers.Input((6, 6, 1)), layers.Conv2D(4, 3, activation="relu"), layers.Flatten(), layers.Dense(4)]


def compile_with(part, given):
    """Compiles with one object of Keras; what it is refused for, or None."""
    name = given["class_name"] if isinstance(given, dict) else type(given).__name__
    model, loss = small(), "sparse_categorical_crossentropy" if name.startswith("Sparse") else "categorical_crossentropy"
    try:
        model.compile(**{"loss": loss + ":from_logits=true", "metrics": "none", part: [given] if part == "metrics" else given})
    except lockstep.UsageError as error:
        return str(error)
    finally:
        model.close()
    return None


def small(**options):
    return lockstep.Sequential(convolutions(), **{"device": "cpu", "threads": 1, "seed": 5, **options})


class LikeKeras:
    """A keras.Model as the package sees it."""

    def __init__(self, save_weights):
        self.save_weights = save_weights

    def to_json(self):
        return json.dumps(layers.sequential_config(convolutions(), "mine"))


class Subclassed(LikeKeras):
    """One whose layers are in a program's `call`."""

    built = False

    def to_json(self):
        return json.dumps({"class_name": "Subclassed", "config": {}})


class Own:
    """A loss or a metric of a program's, for Keras."""

    def get_config(self):
        return {"name": "own"}


class ModelTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.x, self.y = examples()
        for name, array in (("x", self.x), ("y", self.y)):
            numpy.save(self.path(name + ".npy"), array)
        self.arrays = f"arrays:x={self.path('x.npy')},y={self.path('y.npy')}"
        self.model_file = self.path("model.json")
        write_json(self.model_file, layers.sequential_config(convolutions(), "sequential"))

    def command(self, name, *arguments):
        done = self.lockstep(name, f"--model={self.model_file}", *arguments)
        self.assertEqual(done.code, 0, done.err)
        return done

    def assert_same_weights(self, one, other):
        for a, b in zip(one, other):
            self.assertEqual(a.tobytes(), b.tobytes())

    def quiet_fit(self, model, *data, **options):
        return model.fit(*data, verbose=0, **options)


class AsTheCommand(ModelTest):
    def test_fit_on_arrays_equals_train_to_the_bit(self):
        for strategy, replicas in (("one-device", 1), ("ring", 2)):
            with self.subTest(strategy):
                saved = self.path(strategy + ".safetensors")
                report = self.train(f"--model={self.model_file}", f"--dataset={self.arrays}", "--epochs=2", "--batch=32", "--seed=5",
                                    "--device=cpu", "--threads=1", f"--strategy={strategy}", f"--replicas={replicas}", "--optimizer=sgd:momentum=0.9",
                                    "--validation=off", f"--save-weights={saved}")
                model = small(strategy=strategy, replicas=replicas)
                model.compile("sgd:momentum=0.9")
                history = self.quiet_fit(model, self.x, self.y, batch_size=32, epochs=2)
                self.assertEqual(history.losses.tolist(), numpy.array(report["losses"], dtype="float32").tolist())
                numpy.testing.assert_allclose(history.history["accuracy"], [epoch["accuracy"] for epoch in report["epochs"]], rtol=1e-8)
                for variable, values in zip(model.variables, model.get_weights()):
                    shape, expected = tensors(saved)[variable.name]
                    self.assertEqual((list(variable.shape), numpy.array(expected, dtype="float32").tobytes()), (shape, values.tobytes()))

    def test_a_dataset_by_its_text_with_its_validation(self):
        text = "synthetic:shape=6x6x1,classes=4,examples=200"
        report = self.train(f"--model={self.model_file}", f"--dataset={text}", "--epochs=2", "--seed=5", "--device=cpu", "--threads=1")
        model = small()
        history = self.quiet_fit(model, text, validation_data=text, epochs=2)
        self.assertEqual(history.losses.tolist(), numpy.array(report["losses"], dtype="float32").tolist())
        numpy.testing.assert_allclose(history.history["val_loss"], [epoch["val_loss"] for epoch in report["epochs"]], rtol=1e-8)
        with self.assertRaisesRegex(lockstep.UsageError, "y and sample_weight are for arrays"):
            model.fit(text, self.y)

    def test_predict_and_evaluate_equal_the_commands(self):
        model = small()
        model.compile(metrics=["accuracy", "sparse_top_k_categorical_accuracy:k=2"])
        self.quiet_fit(model, self.x, self.y, epochs=2)
        weights, out, report = self.path("w.safetensors"), self.path("out.npy"), self.path("evaluate.json")
        model.save_weights(weights)
        common = (f"--initial-weights={weights}", f"--dataset={self.arrays}", "--device=cpu", "--threads=1")
        self.command("predict", *common, f"--out={out}")
        found = model.predict(self.x)
        self.assertEqual((found.shape, found.dtype), ((EXAMPLES, 4), numpy.float32))
        self.assertEqual(found.tobytes(), numpy.load(out).tobytes())
        self.assertEqual(model.predict_on_batch(self.x[:5]).shape, (5, 4))
        numpy.testing.assert_allclose(model.predict_on_batch(self.x[:5]), found[:5], rtol=1e-5, atol=1e-6)
        self.command("evaluate", *common, "--metrics=accuracy,sparse_top_k_categorical_accuracy:k=2", f"--report={report}")
        expected = read_json(report)
        logs = model.evaluate(self.x, self.y, verbose=0, return_dict=True)
        self.assertEqual(list(logs), ["loss", "accuracy", "sparse_top_k_categorical_accuracy"])
        for name, value in logs.items():
            self.assertAlmostEqual(value, expected[name], delta=1e-7 * abs(value))
        self.assertEqual(model.evaluate(self.x, self.y, verbose=0), list(logs.values()))

    def test_summary_is_the_commands(self):
        lines = []
        small().summary(print_fn=lines.append)
        self.assertEqual("\n".join(lines).strip(), self.command("summary").out.strip())

    def test_two_replicas_under_ring_equal_one(self):
        losses = []
        for options in ({}, {"strategy": "ring", "replicas": 2}):
            model = small(**options)
            self.assertEqual(model.replicas, options.get("replicas", 1))
            losses.append(self.quiet_fit(model, self.x, self.y, batch_size=32, epochs=2).losses)
        numpy.testing.assert_allclose(losses[0], losses[1], rtol=ROUNDING)


class WhatIsAModel(ModelTest):
    def test_a_name_a_file_a_text_and_a_dictionary(self):
        config = layers.sequential_config(convolutions(), "sequential")
        shapes = [variable.shape for variable in small().variables]
        for model in (self.model_file, json.dumps(config), config):
            self.assertEqual([variable.shape for variable in lockstep.Model(model, device="cpu").variables], shapes)
        self.assertEqual(lockstep.Model("cnn", device="cpu").output_shape, (None, 10))

    def test_a_loss_without_metrics_has_none_as_in_keras(self):
        config = layers.sequential_config(convolutions(), "sequential")
        loss = {"loss": "sparse_categorical_crossentropy"}
        for compiled, keys in (({}, {"loss", "accuracy"}), (loss, {"loss"}), ({**loss, "metrics": ["accuracy"]}, {"loss", "accuracy"})):
            model = lockstep.Model({**config, "compile_config": {"optimizer": "sgd", **compiled}}, device="cpu")
            self.assertEqual(model.evaluate(self.x, self.y, verbose=0, return_dict=True).keys(), keys)

    @unittest.skipUnless(os.environ["LOCKSTEP_KERAS_BUILT"] == "true", "built without HDF5")
    def test_an_object_with_the_methods_of_keras_gives_and_takes_weights(self):
        given, taken = small(seed=8), small(seed=9)
        model = lockstep.Model(LikeKeras(given.save_weights), device="cpu")
        self.assert_same_weights(model.get_weights(), given.get_weights())
        model.copy_weights_to(taken)
        self.assert_same_weights(taken.get_weights(), given.get_weights())

    def test_messages_name_the_model_and_no_file_that_is_gone(self):
        def write_nonsense(path):
            with open(path, "wb") as file:
                file.write(b"no HDF5")

        wrong = layers.sequential_config([layers.Input((4,)), layers.Dense(3, activation="rely")], "mine")
        for model, says in ((wrong, "^mine: .*rely"), (json.dumps(wrong), "^mine: .*rely"), ('{"class_name": ', "^model:1:[0-9]+: malformed JSON"),
                            (json.dumps(json.dumps(wrong)), "dumped twice"), ("\ufeff" + json.dumps(wrong), "^mine: .*rely"),
                            ({"class_name": "Sequential", "config": []}, "^model: "), (LikeKeras(write_nonsense), "'model.weights.h5' is damaged")):
            with self.subTest(model), self.assertRaisesRegex(lockstep.LockstepError, says) as caught:
                lockstep.Model(model, device="cpu")
            self.assertNotIn(os.path.join(tempfile.gettempdir(), "lockstep-"), str(caught.exception))
        report = self.path("report.json")
        self.quiet_fit(small(), self.x, self.y, report=report)
        written = read_json(report)
        self.assertEqual((written["model"], written["made"]["command_line"]), ("sequential", sys.argv))
        with self.assertRaisesRegex(lockstep.LockstepError, "the file of the report, too"):
            self.quiet_fit(small(), self.x, self.y, report=report, timeline=os.path.join(os.path.dirname(report), ".", "report.json"))

    def test_warnings_call_arrays_the_data(self):
        model, err = lockstep.Sequential([layers.Input((100,)), layers.Dense(2)], device="cpu", threads=1), io.StringIO()
        with contextlib.redirect_stderr(err):
            self.quiet_fit(model, numpy.full((4, 100), 200, dtype="float32"), numpy.array([0, 1, 0, 1]))
        self.assertRegex(err.getvalue(), "warning: data: the data has numbers from 0 to 255.*'sequential'")
        self.assertNotIn("memory:", err.getvalue())

    def test_an_output_with_several_dimensions(self):
        model = lockstep.Sequential([layers.Input((6, 6, 1)), layers.Conv2D(3, 3)], device="cpu", threads=1)
        self.assertEqual(model.output_shape, (None, 4, 4, 3))
        self.assertEqual(model.predict(self.x).shape, (EXAMPLES, 4, 4, 3))

    def test_a_built_in_model_takes_shape_and_classes_of_the_first_data(self):
        x, y = self.x.reshape(len(self.x), -1)[:30, :4], numpy.arange(30) % 3
        given = lockstep.Model("mlp", device="cpu", data=x)
        for target, loss, outputs in ((y, None, 3), (numpy.eye(3)[y], "categorical_crossentropy", 3), (y.astype(float), "mse", 1)):
            model = lockstep.Model("mlp", device="cpu")
            model.compile("sgd", loss)
            self.quiet_fit(model, x, target)
            self.assertEqual((model.output_shape, model.variables[0].shape), ((None, outputs), given.variables[0].shape))
        with self.assertRaisesRegex(lockstep.InputError, r"expects input 'input_layer' \(None, 4\).*; it takes the shape of the data that it is made with$"):
            self.quiet_fit(model, x[:, :3], y.astype(float))
        for wrong, fails in ((x, y[:3]), ({"pixels": x}, y), (iter(()), None), (self.broken, None)):  # the data after it still shows the shape
            model = lockstep.Model("mlp", device="cpu")
            model.compile("sgd:learning_rate=0.5")
            self.assertEqual(model.learning_rate, 0.5)
            model.learning_rate = 0.25
            with self.assertRaises((lockstep.LockstepError, ZeroDivisionError)):
                model.fit(wrong, fails, verbose=0)
            self.quiet_fit(model, {"input_layer": x}, y)
            self.assertEqual((model.output_shape, model.variables[0].shape, model.learning_rate), ((None, 3), given.variables[0].shape, 0.25))
        known = lockstep.Model("mlp", device="cpu")
        before = known.get_weights()
        with self.assertRaisesRegex(lockstep.InputError, "it takes the shape of the data that it is made with"):
            self.quiet_fit(known, x, y)
        self.assertTrue(all((one == other).all() for one, other in zip(before, known.get_weights())))
        with self.assertRaisesRegex(lockstep.InputError, 'it is for images, model "mlp" takes any shape'):
            self.quiet_fit(lockstep.Model("cnn", device="cpu"), x, y)

    @staticmethod
    def broken():
        yield 1 / 0

    def test_a_sigmoid_without_a_loss_says_which_it_has(self):
        for loss, said in ((None, 1), ("mse", 0), ("binary_crossentropy", 0)):
            model = lockstep.Sequential([layers.Input((4,)), layers.Dense(1, activation="sigmoid")], device="cpu")
            with contextlib.redirect_stderr(io.StringIO()) as err:
                model.compile("adam", loss)
                self.quiet_fit(model, numpy.zeros((8, 4), "float32"), numpy.zeros(8, "float32"))
            self.assertEqual(err.getvalue().count("'sequential' ends with a sigmoid: mean_squared_error"), said, err.getvalue())

    def test_a_model_without_an_input_takes_the_shape_of_the_data(self):
        model = lockstep.Sequential([layers.Flatten(), layers.Dense(4)], device="cpu", data=self.x)
        self.assertEqual(model.variables[0].shape, (36, 4))

    def test_a_model_without_an_input_is_built_by_the_first_data_that_it_gets(self):
        def batches():
            yield self.x, self.y

        def bare():
            return lockstep.Sequential([layers.Flatten(), layers.Dense(4)], device="cpu", threads=1, seed=5)

        whole = lockstep.Sequential([layers.Input((6, 6, 1)), layers.Flatten(), layers.Dense(4)], device="cpu", threads=1, seed=5)
        whole.compile("sgd", metrics=["accuracy"])
        expected = self.quiet_fit(whole, self.x, self.y).losses.tolist()
        for x, y in ((self.x, self.y), (batches, None), (self.arrays, None)):
            model = bare()
            for call in (model.summary, model.get_weights, lambda: model.output_shape, lambda: model.save_weights(self.path("w.safetensors")),
                         lambda: self.quiet_fit(model, iter([(self.x, self.y)]))):
                with self.assertRaisesRegex(lockstep.LockstepError, "shape"):
                    call()
            model.compile("sgd:speed=1")
            for _ in range(2):  # also when the model is built
                with self.assertRaisesRegex(lockstep.UsageError, "speed"):
                    self.quiet_fit(model, x, y)
            model.compile("sgd", metrics=["accuracy"])
            self.assertEqual(self.quiet_fit(model, x, y).losses.tolist(), expected)
            self.assertEqual(model.output_shape, (None, 4))
        for first in (lambda model: model.evaluate(self.x, self.y, verbose=0), lambda model: model.predict(self.x),
                      lambda model: model.train_on_batch(self.x, self.y), lambda model: model.predict_on_batch(self.x)):
            model = bare()
            first(model)
            self.assertEqual(model.variables[0].shape, (36, 4))
        for x, got in ((None, "None"), ({"pixels": self.x}, "a dictionary of pixels: give a list of arrays")):
            with self.assertRaisesRegex(lockstep.InputError, f"expected an array, got {got}"):
                bare().fit(x, self.y)
        bare().close()

    def test_layers_are_added_as_in_keras(self):
        """Also the shape of the input in the first layer."""
        options = {"device": "cpu", "threads": 1, "seed": 5}
        dense = [layers.Dense(8, "relu"), layers.Dense(4)]
        whole = lockstep.Sequential([layers.Input((36,)), *dense], **options)
        x = self.x.reshape(EXAMPLES, 36)
        whole.compile("sgd")
        expected = self.quiet_fit(whole, x, self.y).losses.tolist()
        for given, first in (((), [layers.Input((36,))]), (([layers.Input((36,))],), []), (([],), []), (([layers.Dense(8, "relu", input_shape=(36,)), dense[1]],), None),
                             (([layers.Dense(8, "relu", input_dim=36), dense[1]],), None)):
            model = lockstep.Sequential(*given, **options)
            for layer in [*first, *dense] if first is not None else ():
                model.add(layer)
            model.compile("sgd")
            if given != ([],):  # which the first data builds
                self.assertEqual(model.count_params(), 332)
            self.assertEqual(self.quiet_fit(model, x, self.y).losses.tolist(), expected)
            with self.assertRaisesRegex(lockstep.UsageError, "add: the model is built"):
                model.add(dense[1])
        with self.assertRaisesRegex(lockstep.LockstepError, "the model has 0 layers; expected 1 to 10000"):
            lockstep.Sequential().fit(x, self.y)

    def test_layers_are_called_as_in_keras(self):
        """Two inputs, a branch, a layer in two places, and calls that are for another model."""
        random = numpy.random.default_rng(3)
        a, b = random.random((60, 8), dtype="float32"), random.random((60, 4), dtype="float32")
        left, right, tanh = layers.Input((8,), name="left"), layers.Input((4,)), layers.Dense(8, "tanh")
        twice = tanh(tanh(left))
        joined = layers.Concatenate()([twice, layers.Dense(8)(right)])
        model = lockstep.Model(inputs=[left, right], outputs=layers.Dense(1)(joined - joined * layers.Dense(16)(joined)), name="two", strategy="ring", replicas=2,
                               device="cpu")
        self.assertEqual([layer.name for layer in model.layers],
                         ["left", "input_layer", "dense", "dense_1", "concatenate", "dense_2", "multiply", "subtract", "dense_3"])
        self.assertEqual((model.name, model.count_params()), ("two", 72 + 40 + 272 + 17))
        w = [weight.astype("float64") for weight in model.get_weights()]

        def by_hand(a, b):
            made = numpy.concatenate([numpy.tanh(numpy.tanh(a @ w[0] + w[1]) @ w[0] + w[1]), b @ w[2] + w[3]], axis=1)
            return (made - made * (made @ w[4] + w[5])) @ w[6] + w[7]

        numpy.testing.assert_allclose(model.predict([a, b]), by_hand(a, b), rtol=1e-4, atol=1e-5)
        model.compile("adam", "mse")
        losses = self.quiet_fit(model, [a, b], a.sum(1) + b.sum(1), epochs=3).losses
        self.assertLess(losses[-1], losses[0])
        named = {"input_layer": b, "left": a}  # as Keras takes them, too
        numpy.testing.assert_array_equal(model.predict(named), model.predict([a, b]))
        numpy.testing.assert_array_equal(model.predict_on_batch(named), model.predict_on_batch([a, b]))
        y = a.sum(1) + b.sum(1)
        self.assertEqual(self.quiet_fit(model, named, y, validation_data=(named, y)).history["val_loss"], [model.evaluate([a, b], y, verbose=0)])
        self.assertEqual(self.quiet_fit(model, named, y, validation_split=0.5).examples, [30])
        batched = [({"left": a[at:at + 20], "input_layer": b[at:at + 20]}, y[at:at + 20]) for at in range(0, 60, 20)]
        for steps in ({"validation_data": [named, y]}, {"steps_per_epoch": 3}):  # kept in memory; made while it trains
            before = model.get_weights()
            model.compile("adam", "mse")
            losses = self.quiet_fit(model, named, y, batch_size=20, shuffle=False).losses.tolist()
            model.set_weights(before)
            model.compile("adam", "mse")
            self.assertEqual(self.quiet_fit(model, lambda: iter(batched), batch_size=20, shuffle=False, **steps).losses.tolist(), losses)
        with self.assertRaisesRegex(lockstep.UsageError, "the data has left, right; expected arrays for the inputs left, input_layer$"):
            model.predict({"left": a, "right": b})
        config = {**model._described()["config"], "input_layers": {"z": ["left", 0, 0], "b": ["input_layer", 0, 0]}}
        keyed = lockstep.Model({**model._described(), "config": config}, device="cpu")  # of a dictionary of inputs
        keyed.set_weights(model.get_weights())
        numpy.testing.assert_allclose(keyed.predict({"z": a, "b": b}), model.predict([a, b]), rtol=1e-5)
        for made, count in ((lambda: lockstep.Model(left, tanh(left), device="cpu"), 1), (lambda: lockstep.Sequential([layers.Input((8,)), tanh], device="cpu"), 1),
                            (lambda: lockstep.Model(left, layers.Dense(2)(left), device="cpu"), 0)):
            with contextlib.redirect_stderr(io.StringIO()) as err:
                self.assertEqual(len(made().variables), 2)
            self.assertEqual(err.getvalue().count("lockstep: warning: model: layers are in another model, too: each model has weights of its own; model.set_weights("), count)

        class Gate(ops.Layer):
            def call(self, inputs):
                return inputs[0] * ops.sigmoid(inputs[1])

        self.assertEqual(lockstep.Model(left, Gate()([tanh(left), left]), device="cpu").predict(a).shape, (60, 8))
        steps = layers.Input((5, 8))
        self.assertEqual(lockstep.Model(steps, layers.MultiHeadAttention(2, 4)(steps, value=steps, use_causal_mask=True), device="cpu").output_shape, (None, 5, 8))
        for ask, says in ((lambda: lockstep.Model(left, joined), "the outputs also need InputLayer"), (lambda: lockstep.Model(inputs=left), "by its outputs=, too"),
                          (lambda: lockstep.Model(left, joined, inputs=right), "Model: the inputs are given twice"),
                          (lambda: lockstep.Model("cnn", name="mine"), "by its outputs=, too"), (lambda: lockstep.Model(a, joined), "got ndarray$"),
                          (lambda: lockstep.Model([], joined), "got nothing"), (lambda: lockstep.Model(twice, joined), "expected layers.Input.*got <output of Dense"),
                          (lambda: lockstep.Model([left, right], 3), "outputs: expected what layers returned, or a list of them, got int"),
                          (lambda: left(left), "it is an input"), (lambda: model.layers[2](left), "it tells of a model that is made"),
                          (lambda: twice * 2, "Multiply of 2: expected what a layer returned"), (lambda: lockstep.Sequential([left, twice]), "is no layer")):
            with self.subTest(says), self.assertRaisesRegex(lockstep.UsageError, says) as raised:
                ask()
            self.assertNotIn("\n", str(raised.exception))
        model.close()
        with contextlib.redirect_stderr(io.StringIO()) as err:
            lockstep.Model(left, tanh(left), device="cpu")
        self.assertEqual(err.getvalue(), "")

    def test_trainable_is_an_option_and_no_wish(self):
        frozen = layers.Dense(4)
        frozen.trainable = False
        model = lockstep.Sequential([layers.Input((3,)), frozen, layers.Dense(4)], device="cpu")
        self.assertEqual([variable.trainable for variable in model.variables], [False, False, True, True])
        self.assertEqual([layer.trainable for layer in model.layers], [False, True])
        with self.assertRaisesRegex(lockstep.UsageError, "'dense_1': the model is made already; say trainable=False"):
            model.layers[1].trainable = False

    def test_a_layer_of_a_model_has_its_weights(self):
        model = lockstep.Sequential([layers.Input((3,)), layers.Dense(4, name="dense"), layers.ReLU(), layers.Dense(2, name="dense_1")], device="cpu")
        every = model.get_weights()
        for layer, expected in zip(model.layers, (every[:2], [], every[2:])):
            for one, other in zip(layer.get_weights(), expected):
                numpy.testing.assert_array_equal(one, other)
            self.assertEqual(len(layer.get_weights()), len(expected))
        model.get_layer("dense_1").set_weights([every[2] * 2, every[3] + 1])
        for one, other in zip(model.get_weights(), (*every[:2], every[2] * 2, every[3] + 1)):
            numpy.testing.assert_array_equal(one, other)
        with self.assertRaisesRegex(lockstep.UsageError, "1 weights; layer 'dense' has 2"):
            model.layers[0].set_weights([every[0]])
        with self.assertRaisesRegex(lockstep.UsageError, "before it is in a model"):
            layers.Dense(2).get_weights()

    def test_names_of_keras_say_what_is_here(self):
        model = small()
        model.compile("sgd", run_eagerly=True, steps_per_execution=4, jit_compile=True)
        self.assertTrue((model(self.x[:4]) == model.predict_on_batch(self.x[:4])).all())
        for ask, error, says in ((lambda: model.optimizer, AttributeError, "has no attribute 'optimizer': model.learning_rate"),
                                 (lambda: model.metrics_names, AttributeError, "return_dict=True"), (lambda: model.nothing, AttributeError, "attribute 'nothing'$"),
                                 (lambda: lockstep.optimizers, AttributeError, "'adam:learning_rate=0.01'"), (lambda: lockstep.nothing, AttributeError, "'nothing'$"),
                                 (lambda: lockstep.MirroredStrategy, AttributeError, "strategy='mirrored'"),
                                 (lambda: small(strategy=type("MirroredStrategy", (), {"scope": None})()), lockstep.UnavailableError, "it is `mirrored` here"),
                                 (lambda: lockstep.callbacks.EarlyStopping, AttributeError, "'early_stopping:patience=3'"),
                                 (lambda: model.fit(self.x, self.y, callbacks=[lockstep.Callback]), lockstep.UsageError, "Callback is a class"),
                                 (lambda: layers.Dense(3)(1), lockstep.UsageError, "Dense is called on 1: expected a layers.Input"),
                                 (lambda: type("Own", (layers.Layer,), {}), lockstep.UsageError, "Own: .* class of lockstep.ops.Layer"),
                                 (lambda: model.fit(self.x, self.y, callbacks="model_checkpoint:filepath=a"), lockstep.UnavailableError, "checkpoints='folder' of fit"),
                                 (lambda: model.compile("sgd:learning_rate=cosine"), lockstep.UsageError, "learning_rate_schedule= of compile"),
                                 (lambda: model.save("m.h5"), lockstep.UsageError, "'m.h5': expected a name that ends with .keras"),
                                 (lambda: model.compile("adam:lr=0.01"), lockstep.UsageError, "adam has no option lr; did you mean learning_rate"),
                                 (lambda: model.compile("sgd", Own()), lockstep.UsageError, "loss: expected one of Keras's, got .*; losses and metrics of one's own are functions"),
                                 (lambda: model.compile("sgd", Own), lockstep.UsageError, "; losses and metrics of one's own are functions"),
                                 (lambda: model.compile("sgd", metrics=[Own()]), lockstep.UsageError, "metrics: expected one of Keras's, got .*compose lockstep.ops"),
                                 (lambda: lockstep.Model(Subclassed(None), device="cpu"), lockstep.UsageError, "Subclassed is a class of the program.*functional model"),
                                 (lambda: model(self.x, training=True), lockstep.UsageError, "expected fit, train_on_batch"),
                                 (lambda: model(layers.Dense(3)(layers.Input((3,)))), lockstep.UsageError, "a model is no layer here"),
                                 (lambda: model(layers.Input((3,))), lockstep.UsageError, "a model is no layer here: call its layers"),
                                 (lambda: model([layers.Dense(3)(layers.Input((3,)))]), lockstep.UsageError, "a model is no layer here: call"),
                                 (lambda: lockstep.Sequential([layers.Input((3,)), layers.Layer("Mine")]), lockstep.InputError, "a class of lockstep.ops.Layer, which")):
            with self.subTest(says), self.assertRaisesRegex(error, says):
                ask()
        model.compile("Adam", "SparseCategoricalCrossentropy", ["SparseCategoricalAccuracy", "accuracy"])
        with self.assertRaisesRegex(lockstep.UsageError, "'Adm' is unknown"):
            model.compile("Adm")

    def test_layers_say_what_is_wrong(self):
        with self.assertRaisesRegex(AttributeError, "there is no layer Dens"):
            layers.Dens(3)
        with self.assertRaisesRegex(TypeError, "units is given twice"):
            layers.Dense(3, units=4)
        with self.assertRaisesRegex(TypeError, "takes 1 options by position"):
            layers.Dropout(0.5, 3)
        with self.assertRaisesRegex(lockstep.InputError, "uints: unknown option; did you mean 'units'.*\n.*units: expected a positive integer"):
            lockstep.Sequential([layers.Input((4,)), layers.Dense(uints=3)], device="cpu")

    def test_every_layer_of_the_table_is_known_to_the_library(self):
        for name in layers.POSITIONAL:
            try:
                lockstep.Sequential([layers.Input((4,)), getattr(layers, name)()], device="cpu")
            except lockstep.LockstepError as error:
                self.assertNotIn("unknown", str(error))
                self.assertNotIn("not supported", str(error))

    def test_recurrent_layers_by_name_with_states_and_layers_in_them(self):
        source, target = layers.Input((5,), dtype="int32"), layers.Input((4,), dtype="int32")
        _, *states = layers.Bidirectional(layers.LSTM(3, return_state=True))(layers.Embedding(7, 2, mask_zero=True)(source))
        self.assertEqual(len(states), 4)
        h, c = (layers.Concatenate()(pair) for pair in (states[0::2], states[1::2]))
        steps = layers.LSTM(6, return_sequences=True)(layers.Embedding(9, 2, mask_zero=True)(target), initial_state=[h, c])
        steps = layers.RNN([layers.GRUCell(4), layers.Layer("SimpleRNNCell", units=3)], return_sequences=True)(steps)
        model = lockstep.Model([source, target], layers.TimeDistributed(layers.Dense(9, activation="softmax"))(steps), device="cpu")
        self.assertEqual(sum(variable.size for variable in model.get_weights()),
                         7 * 2 + 2 * 4 * 3 * (2 + 3 + 1) + 9 * 2 + 4 * 6 * (2 + 6 + 1) + 3 * 4 * (6 + 4 + 2) + 3 * (4 + 3 + 1) + 9 * (3 + 1))
        words = numpy.array([[1, 2, 0, 0, 0], [3, 4, 5, 6, 0], [0, 0, 0, 0, 0]], "int32")
        found = model.predict([words, words[:, :4]])
        self.assertEqual(found.shape, (3, 4, 9))
        model.compile("sgd:learning_rate=0.5", "sparse_categorical_crossentropy")
        before = model.evaluate([words, words[:, :4]], words[:, :4], verbose=0)
        left = words[:, :4] != 0
        wanted = -numpy.log(numpy.take_along_axis(found, words[:, :4, None], -1))[..., 0][left].mean()
        self.assertAlmostEqual(before, float(wanted), places=5)
        model.fit([words, words[:, :4]], words[:, :4], batch_size=3, epochs=3, verbose=0)
        self.assertLess(model.evaluate([words, words[:, :4]], words[:, :4], verbose=0), before)

    def test_a_list_of_cells_is_what_keras_makes_of_it(self):
        def made(cell):
            steps, *states = layers.RNN(cell, return_sequences=True, return_state=True)(source := layers.Input((5, 2)))
            return len(states), lockstep.Model(source, steps, device="cpu")

        three = [layers.LSTMCell(4), layers.GRUCell(3, reset_after=False), layers.LSTMCell(2, activation="relu")]
        for cell in (three, tuple(three), layers.StackedRNNCells(three)):
            states, model = made(cell)
            self.assertEqual(states, 5)
            self.assertEqual([variable.name for variable in model.variables if variable.name.endswith("/kernel")],
                             [f"rnn/stacked_rnn_cells/{name}/kernel" for name in ("lstm_cell", "gru_cell", "lstm_cell_1")])
            self.assertEqual(model.predict(numpy.zeros((3, 5, 2), "float32")).shape, (3, 5, 2))
        for wrong, says in (([], "expected a list of cells"), (3 * three[:1], "a cell is in the list twice")):
            with self.assertRaisesRegex(lockstep.UsageError, says):
                layers.RNN(wrong)

    def test_each_object_of_keras_with_its_default_options_is_taken_or_its_class_refused(self):
        written = read_json(os.path.join(numpy_python.SOURCE, "tests", "data", "keras", "objects.json"))
        taken = 0
        for part, objects in written.items():
            for given in objects:
                refusal, name = compile_with(part, given), given["class_name"]
                with self.subTest(part, class_name=name):
                    self.assertRegex(refusal or f"{part}: '{name}' is unknown", f"{part}: '{name}' is (not supported yet|unknown)|average: null gives one score|sparse_y_pred: true is not")
                taken += refusal is None
        self.assertEqual((sum(map(len, written.values())), taken), COUNTS)

    def test_objects_that_look_like_keras(self):
        def of(class_name, module="keras.src.some", /, **config):
            return type(class_name, (), {"__module__": module, "get_config": lambda self: config})()

        schedule = {"module": "keras.optimizers.schedules", "class_name": "CosineDecay", "registered_name": None,
                    "config": {"initial_learning_rate": numpy.float32(0.25), "decay_steps": 100, "alpha": 0.0, "name": "CosineDecay"}}
        model = small()
        model.compile(of("SGD", learning_rate=schedule, momentum=0.9))
        self.assertEqual(model.learning_rate, 0.25)
        model.compile(of("AdamW", name="adamw", learning_rate=0.01, weight_decay=None, use_ema=False, ema_momentum=0.99, amsgrad=True),
                      metrics=["accuracy", "sparse_top_k_categorical_accuracy:k=3,name=three",
                               of("SparseTopKCategoricalAccuracy", name="two", dtype="float32", k=2),
                               of("Recall", name="recall_1", thresholds=[0.25, 0.5])])
        self.assertAlmostEqual(model.learning_rate, 0.01)
        self.assertEqual(list(self.quiet_fit(model, self.x, self.y).history), ["loss", "accuracy", "three", "two", "recall_1_at_0.25", "recall_1_at_0.5"])
        model.compile(metrics="recall:thresholds=0.25:0.5,true_positives:thresholds=0.25,false_negatives:thresholds=0.25")
        seen = {name: values[0] for name, values in self.quiet_fit(model, self.x, self.y).history.items()}
        self.assertAlmostEqual(seen["recall_at_0.25"], seen["true_positives"] / (seen["true_positives"] + seen["false_negatives"]))
        self.assertEqual(seen["true_positives"] + seen["false_negatives"], EXAMPLES)
        with self.assertRaisesRegex(lockstep.UsageError, "recall_at_0.5 is given twice"):
            model.compile(metrics="recall:thresholds=0.5:0.5")
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            model.compile(metrics=[of("AUC", name="my area")])
        self.assertIn("metrics: the name 'my area' is no key of reports", err.getvalue())
        model.compile(metrics=[of("AUC", name="auc", num_thresholds=4, thresholds=[0.1, 0.3]), "auc:thresholds=0.3:0.1,name=again"])
        seen = self.quiet_fit(model, self.x, self.y).history
        self.assertEqual(seen["auc"], seen["again"])
        for loss, says in ((of("KLDivergence", clip=2), "loss.clip: 2 is not supported$"), (of("Huber", "mine"), "expected one of Keras's"),
                           (of("Huber", delta=object()), "object object .* in the options of a layer or an object"), (3, "expected a text"),
                           ("{", "malformed JSON"), ({"class_name": "Dice"}, "'Dice' is not supported yet; supported: sparse")):
            with self.assertRaisesRegex(lockstep.UsageError if loss != "{" else lockstep.InputError, says):
                model.compile(loss=loss)
        with self.assertRaisesRegex(lockstep.UsageError, "delta"):
            model.compile(loss=type("Huber", (), {"__module__": "keras", "get_config": lambda self: {}, "_fn_kwargs": {"delta": -1}})())
        model.compile(loss=type("f", (), {"__module__": "keras.src.losses", "__name__": "mean_squared_error", "__call__": print})())
        model.compile(loss=type("MeanSquaredError", (), {"__module__": "keras.src.losses", "get_config": lambda self: {}}))  # the class
        relu = type("f", (), {"__module__": "keras.src.activations", "__name__": "relu", "__call__": print})()
        model = lockstep.Sequential([layers.Input((4,)), layers.Dense(3, activation=relu, kernel_initializer=of("Constant", value=numpy.float32(0.5)),
                                                                      kernel_regularizer=of("L2", l2=0.25))], device="cpu")
        self.assertEqual(model.layers[0].config["activation"], "relu")
        numpy.testing.assert_array_equal(model.get_weights()[0], numpy.full((4, 3), 0.5))
        model.compile(loss="mean_squared_error")
        self.assertAlmostEqual(model.evaluate(numpy.zeros((5, 4)), numpy.zeros((5, 3)) + 0.5, verbose=0), 0.25 + 0.25 * 12 * 0.25, 6)


class Data(ModelTest):
    def losses(self, x, y, **options):
        return self.quiet_fit(small(), x, y, batch_size=32, **options).losses.tolist()

    def test_arrays_in_other_forms_train_the_same(self):
        expected = self.losses(self.x, self.y)
        wide = numpy.zeros((EXAMPLES, 6, 6, 2), dtype="float32")
        wide[..., :1] = self.x
        for name, x, y in (("float64", self.x.astype("float64"), self.y.astype("uint8")), ("strided", wide[..., :1], self.y.astype("int16")),
                           ("big-endian", self.x.astype(">f4"), self.y[:, None]), ("lists", self.x.tolist(), self.y.tolist()),
                           ("one input", [self.x], self.y.astype("int32"))):
            with self.subTest(name):
                self.assertEqual(self.losses(x, y), expected)
        pixels = (self.x * 255).astype("uint8")
        self.assertEqual(self.losses(pixels, self.y), self.losses(pixels.astype("float32"), self.y))

    def test_whole_numbers_of_any_type_are_classes_where_the_loss_takes_them(self):
        expected = self.losses(self.x, self.y, validation_data=(self.x, self.y))
        for name in ("float16", "float32", "float64", "uint64"):
            y = self.y.astype(name)
            x = self.x.astype("float64" if name == "uint64" else "float32")

            def batches():
                for at in range(0, EXAMPLES, 50):
                    yield x[at:at + 50], y[at:at + 50, None]

            with self.subTest(name):
                self.assertEqual(self.losses(x, y, validation_data=(x, y)), expected)
                self.assertEqual(self.losses(batches, None), expected)
                self.assertEqual(self.losses(batches, None, steps_per_epoch=9, shuffle=False), self.losses(x[:288], y[:288], shuffle=False))
                self.assertEqual(small().train_on_batch(x, y), small().train_on_batch(self.x, self.y))
        half = self.x.astype("float16")
        self.assertEqual(self.losses(half, self.y), self.losses(half.astype("float32"), self.y))
        model = lockstep.Sequential([layers.Input((6, 6, 1)), layers.Flatten(), layers.Dense(1)], device="cpu", threads=1)
        model.compile("sgd", "mean_squared_error")
        self.quiet_fit(model, self.x, self.y + 0.5)  # which are numbers

    def test_the_validation_split_of_a_text_is_validated_on(self):
        cut = self.arrays + ",validation_split=0.25"
        split = self.quiet_fit(small(), cut)
        expected = self.quiet_fit(small(), self.x, self.y, validation_split=0.25)
        self.assertEqual((split.history, split.examples), (expected.history, expected.examples))
        self.assertNotIn("val_loss", self.quiet_fit(small(), self.arrays).history)
        self.assertNotEqual(self.quiet_fit(small(), cut, validation_data=self.arrays).history, expected.history)

    def test_epochs_that_are_numbered_on_and_validated_now_and_then(self):
        class Note(lockstep.Callback):
            def on_epoch_begin(self, epoch, logs):
                seen.append(epoch)

            def on_train_batch_begin(self, batch, logs):
                steps.append(batch)

            def on_epoch_end(self, epoch, logs):
                seen.append(("val_loss" in logs, epoch))

        log, data = self.path("log.csv"), {"validation_data": (self.x, self.y), "batch_size": 100}
        for freq, validated in ((1, [2, 3, 4, 5]), (2, [3, 5]), ([3, numpy.int64(6), 9], [2, 5]), (numpy.array([5]), [4])):
            model, seen, steps = small(), [], []
            self.quiet_fit(model, self.x, self.y, epochs=2, **data)
            history = self.quiet_fit(model, self.x, self.y, initial_epoch=2, epochs=6, validation_freq=freq, validation_batch_size=7,
                                     callbacks=[Note(), "csv_logger:filename=" + log], **data)
            self.assertEqual(history.epoch, [2, 3, 4, 5])
            self.assertEqual(seen, [entry for epoch in range(2, 6) for entry in (epoch, (epoch in validated, epoch))])
            self.assertEqual(steps, 4 * [0, 1, 2])
            self.assertEqual(len(history.history["val_loss"]), len(validated))
            with open(log, encoding="utf-8") as file:
                self.assertEqual([line.split(",")[0] for line in file], ["epoch", "2", "3", "4", "5"])
        whole = self.quiet_fit(small(), self.x, self.y, epochs=6, **data)
        self.assertEqual(history.losses.tolist(), whole.losses.tolist()[6:])
        self.assertEqual(self.quiet_fit(model, self.x, self.y, initial_epoch=3, epochs=3).epoch, [])
        self.assertEqual(self.quiet_fit(model, self.x, self.y, initial_epoch=3, epochs=9, batch_size=100, steps=4).epoch, [3, 4])
        for options, says in (({"validation_freq": 0}, "validation_freq=0"), ({"validation_freq": "2"}, "validation_freq='2'"),
                              ({"validation_freq": []}, r"validation_freq=\[\]"), ({"validation_batch_size": 0}, "validation_batch_size=0"),
                              ({"initial_epoch": 1, "checkpoints": {"folder": self.path("c"), "resume": True}}, "counts its epochs itself"),
                              ({"checkpoints": {"folder": self.path("c"), "name": "ckpt-{epoch}.keras"}}, "name of a file of Keras")):
            with self.assertRaisesRegex(lockstep.UsageError, says):
                model.fit(self.x, self.y, **options)

    def test_what_is_no_array_is_refused(self):
        model = small()
        for x, y, says in ((self.x.astype("complex64"), self.y, "complex64"), (self.x, self.y.astype(str), "dtype <U.*numpy.unique"),
                           (self.x, self.y[:5], "the target has 5 examples"),
                           (self.x[:, :5], self.y, "expects input"), (self.x, self.y + 4, "units; labels begin at 0")):
            with self.assertRaisesRegex(lockstep.InputError, says):
                model.fit(x, y)
        with self.assertRaisesRegex(lockstep.UsageError, "steps_per_epoch= and validation_steps= are for generators"):
            model.fit(self.x, self.y, steps_per_epoch=3)

    def test_several_inputs(self):
        config = {"class_name": "Functional", "config": {"name": "two", "layers": [
            {"class_name": "InputLayer", "name": "a", "config": {"name": "a", "batch_shape": [None, 3]}, "inbound_nodes": []},
            {"class_name": "InputLayer", "name": "b", "config": {"name": "b", "batch_shape": [None, 3]}, "inbound_nodes": []},
            {"class_name": "Subtract", "name": "d", "config": {"name": "d"}, "inbound_nodes": [[["a", 0, 0, {}], ["b", 0, 0, {}]]]}],
            "input_layers": [["a", 0, 0], ["b", 0, 0]], "output_layers": [["d", 0, 0]]}}
        a, b = numpy.float32([[1, 2, 3]]), numpy.float32([[3, 2, 0]])
        self.assertEqual(lockstep.Model(config, device="cpu").predict([a, b]).tolist(), [[-2, 0, 3]])

    def test_validation_and_weights(self):
        at = int(EXAMPLES * 0.75)
        split = self.quiet_fit(small(), self.x, self.y, validation_split=0.25)
        given = self.quiet_fit(small(), self.x[:at], self.y[:at], validation_data=(self.x[at:], self.y[at:]))
        self.assertEqual((split.history, split.losses.tolist()), (given.history, given.losses.tolist()))
        weights = numpy.where(self.y == 1, 3.0, 1.0)
        by_class = self.losses(self.x, self.y, class_weight={1: 3.0})
        self.assertEqual(self.losses(self.x, self.y, sample_weight=weights), by_class)
        self.assertNotEqual(self.losses(self.x, self.y), by_class)
        for part in (0.999, 1.5):
            with self.assertRaises(lockstep.LockstepError):
                small().fit(self.x, self.y, validation_split=part, verbose=0)

    @staticmethod
    def resident():
        with open("/proc/self/status", encoding="utf-8") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) // 1024

    def test_arrays_are_not_copied(self):
        x = numpy.ones((100_000, 250), dtype="float32")  # 95 MiB
        before = self.resident()
        borrowed = _data.from_arrays(x)
        self.assertLess(self.resident() - before, 20)
        same, before = numpy.ones((100_000, 250), dtype="float64"), self.resident()
        copied = _data.from_arrays(same)  # which float32 holds
        self.assertGreater(self.resident() - before, 60)
        borrowed.close()
        copied.close()

    def test_arrays_are_kept_as_long_as_they_are_read(self):
        model, x = small(), self.x.copy()
        gone = weakref.ref(x)
        self.quiet_fit(model, x, self.y)
        del x
        self.assertIsNotNone(gone())
        self.quiet_fit(model, self.x[:50], self.y[:50])
        self.assertIsNone(gone())
        self.assertEqual(len(_data._lent), 1)
        model.close()
        self.assertEqual(len(_data._lent), 0)


class SeveralOutputs(ModelTest):
    """Losses, metrics and arrays as Keras takes them, and what they are by NumPy."""

    def setUp(self):
        super().setUp()
        rng = numpy.random.default_rng(4)
        self.x, self.kinds = rng.normal(size=(11, 6)).astype("float32"), rng.integers(0, 3, 11)
        self.sizes, self.weights = rng.normal(size=(11, 2)).astype("float32"), rng.random(11).astype("float32")
        self.model = self.two()

    def two(self, **options):
        x = layers.Input((6,), name="x")
        trunk = layers.Dense(5, activation="tanh", name="trunk")(x)
        return lockstep.Model(x, [layers.Dense(3, activation="softmax", name="kind")(trunk), layers.Dense(2, name="size")(trunk)],
                              **{"device": "cpu", "threads": 1, "seed": 2, **options})

    def of_numpy(self):
        kinds, sizes = self.model.predict(self.x, verbose=0)
        return -numpy.log(kinds[range(11), self.kinds]), ((sizes - self.sizes) ** 2).mean(1), kinds, sizes

    def test_lists_and_dictionaries_say_the_same(self):
        mine = {"loss": ["sparse_categorical_crossentropy", "mse"], "metrics": [["accuracy"], ["mae", "huber:delta=0.5"]], "loss_weights": [0.3, 2]}
        named = {key: dict(zip(("kind", "size"), value)) for key, value in mine.items()}
        found = []
        for options, y in ((mine, [self.kinds, self.sizes]), (named, {"size": self.sizes, "kind": self.kinds})):
            self.model.compile("sgd", **options)
            logs = self.model.evaluate(self.x, y, verbose=0, return_dict=True)
            kind, size, kinds, sizes = self.of_numpy()
            wanted = {"loss": 0.3 * kind.mean() + 2 * size.mean(), "kind_loss": kind.mean(), "size_loss": size.mean(),
                      "kind_accuracy": (kinds.argmax(1) == self.kinds).mean(), "size_mae": abs(sizes - self.sizes).mean()}
            self.assertEqual(list(logs), [*wanted, "size_huber"])
            for key, value in wanted.items():
                self.assertAlmostEqual(logs[key], float(value), 5, key)
            found.append(self.model.fit(self.x, y, epochs=2, batch_size=11, verbose=0, validation_split=0.3).history)
            self.assertIn("val_size_mae", found[-1])
            self.model = self.two()
        self.assertEqual(*found)
        self.assertEqual(self.model.output_names, ["kind", "size"])
        self.assertEqual(self.model.output_shape, [(None, *one.shape[1:]) for one in self.model.predict(self.x, verbose=0)])

    def test_weights_of_examples_count_in_all_losses(self):
        self.model.compile("sgd", loss=["sparse_categorical_crossentropy", "mse"], loss_weights={"size": numpy.float32(0.5)})
        loss, kind_loss, size_loss = self.model.evaluate(self.x, [self.kinds, self.sizes], sample_weight=self.weights, verbose=0)
        kind, size, _, _ = self.of_numpy()
        self.assertAlmostEqual(kind_loss, float((kind * self.weights).mean()), 5)
        self.assertAlmostEqual(size_loss, float((size * self.weights).mean()), 5)
        self.assertAlmostEqual(loss, kind_loss + 0.5 * size_loss, 5)

    def test_an_output_may_have_no_loss(self):
        for loss, y in ((["sparse_categorical_crossentropy", None], [self.kinds, None]), ({"kind": "sparse_categorical_crossentropy"}, {"kind": self.kinds})):
            self.model.compile("sgd", loss=loss, metrics={"kind": ["accuracy"]})
            loss, accuracy = self.model.train_on_batch(self.x, y)
            self.assertEqual(self.model.evaluate(self.x, y, verbose=0, return_dict=True).keys(), {"loss", "kind_accuracy"})

    def test_a_dictionary_of_outputs_is_one_everywhere(self):
        described = self.model._described()
        described["config"]["output_layers"] = {"what": ["kind", 0, 0], "by": ["size", 0, 0]}
        named = lockstep.Model(described, device="cpu", threads=1, seed=2)
        named.set_weights(self.model.get_weights())
        self.assertEqual((named.output_names, named.output_shape), (["by", "what"], {"what": (None, 3), "by": (None, 2)}))
        self.model.compile("sgd", loss=["sparse_categorical_crossentropy", "mse"], metrics=["accuracy", "mae"])
        named.compile("sgd", loss={"what": "sparse_categorical_crossentropy", "by": "mse"}, metrics={"what": "accuracy", "by": "mae"})
        logs = self.model.fit(self.x, [self.kinds, self.sizes], epochs=2, verbose=0).history
        found = named.fit(self.x, {"what": self.kinds, "by": self.sizes}, epochs=2, verbose=0).history
        numpy.testing.assert_allclose(found.pop("loss"), logs.pop("loss"), rtol=1e-6)
        self.assertEqual(found, {key.replace("kind", "what").replace("size", "by"): values for key, values in logs.items()})
        y = {"what": self.kinds, "by": self.sizes}
        of = named.evaluate(self.x, y, verbose=0, return_dict=True)
        self.assertEqual(named.evaluate(self.x, y, verbose=0), [of[key] for key in ("loss", "what_loss", "by_loss", "by_mae", "what_accuracy")])
        for one, of in (named.predict(self.x, verbose=0), self.model.predict(self.x, verbose=0)), (named.predict_on_batch(self.x), self.model.predict_on_batch(self.x)):
            self.assertEqual(list(one), ["what", "by"])
            for made, wanted in zip(one.values(), of):
                numpy.testing.assert_array_equal(made, wanted)
        x = layers.Input((6,))
        described = lockstep.Model(x, layers.Dense(3, "softmax", name="kind")(x), device="cpu")._described()
        described["config"]["output_layers"] = {"what": ["kind", 0, 0]}
        alone = lockstep.Model(described, device="cpu")
        alone.compile("sgd", loss={"what": "sparse_categorical_crossentropy"})
        self.assertEqual(alone.evaluate(self.x, {"what": self.kinds}, verbose=0), alone.evaluate(self.x, self.kinds, verbose=0))
        self.assertEqual(list(alone.predict(self.x, verbose=0)), ["what"])

    def test_a_layer_makes_two_outputs(self):
        x, z, both = layers.Input((6,), name="x"), layers.Input((6,), name="z"), layers.Dense(2, name="both")
        model = lockstep.Model([x, z], [both(x), both(z)], device="cpu", threads=1, seed=2)
        model.compile("sgd:learning_rate=0.5", loss="mse", loss_weights=[1, 3], metrics="none")
        self.assertEqual(model.output_names, ["both", "both_1"])
        kernel = model.get_weights()[0]
        data, zeros = [self.x, self.x[::-1].copy()], numpy.zeros((11, 2), "float32")
        loss, *_ = model.train_on_batch(data, [zeros, zeros])
        gradient = sum(weight * one.T @ (one @ kernel) for weight, one in zip((1, 3), data)) / 11
        self.assertAlmostEqual(loss, float(4 * ((self.x @ kernel) ** 2).mean()), 4)
        numpy.testing.assert_allclose(model.get_weights()[0], kernel - 0.5 * gradient, atol=1e-5)

    def test_replicas_are_as_one(self):
        found = []
        for options in ({}, {"replicas": 3, "strategy": "ring"}, {"replicas": 3, "strategy": "sharded"}):
            self.model = self.two(**options)
            self.model.compile("sgd:learning_rate=0.1", loss=["sparse_categorical_crossentropy", "mae"], loss_weights=[0.3, 2], metrics=["accuracy", "mse"])
            found.append(self.model.fit(self.x, [self.kinds, self.sizes], epochs=3, batch_size=11, verbose=0).history)
        for other in found[1:]:
            for key, values in found[0].items():
                numpy.testing.assert_allclose(other[key], values, atol=1e-5, err_msg=key)

    def test_what_does_not_fit_is_refused_by_name(self):
        self.model.compile("sgd", loss=["sparse_categorical_crossentropy", "mse"])
        for y, says in (([self.kinds], "2 arrays"), (self.kinds, "kind, size"), ({"kind": self.kinds}, "'size' are missing"),
                        ({"kind": self.kinds, "colour": self.sizes}, "no output 'colour'")):
            with self.assertRaisesRegex(lockstep.UsageError, says):
                self.model.fit(self.x, y, verbose=0)
        for weights in (2.0, ["a", 1], {"size": None}):
            with self.assertRaisesRegex(lockstep.UsageError, "loss_weights=.*expected a list of numbers"):
                self.model.compile("sgd", loss=["sparse_categorical_crossentropy", "mse"], loss_weights=weights)
        with self.assertRaisesRegex(lockstep.UsageError, "sample_weight: expected one array"):
            self.model.fit(self.x, [self.kinds, self.sizes], sample_weight=[self.weights, self.weights], verbose=0)
        with self.assertRaisesRegex(lockstep.UsageError, "2 outputs"):
            self.model.fit(self.x, [self.kinds, self.sizes], class_weight={0: 2.0}, verbose=0)
        with self.assertRaisesRegex(lockstep.UsageError, "targets of one output"):
            self.model.fit(lambda: iter([(self.x, (self.kinds, self.sizes))]), steps_per_epoch=1, verbose=0)


class Generators(ModelTest):
    def batches(self, size=25):
        for at in range(0, EXAMPLES, size):
            yield self.x[at:at + size], self.y[at:at + size]

    def endless(self):
        while True:
            yield from self.batches()

    def test_they_train_as_arrays_that_are_not_shuffled(self):
        expected = self.quiet_fit(small(), self.x, self.y, batch_size=30, epochs=2, shuffle=False).losses.tolist()
        for name, source in (("a function", self.batches), ("an iterator", self.endless())):
            with self.subTest(name):
                history = self.quiet_fit(small(), source, batch_size=30, epochs=2, steps_per_epoch=10)
                self.assertEqual(history.losses.tolist(), expected)
                self.assertEqual(history.examples, [EXAMPLES, EXAMPLES])

    def test_without_a_number_of_steps_all_is_taken_into_memory(self):
        expected = self.quiet_fit(small(), self.x, self.y, batch_size=30, epochs=2)
        found = self.quiet_fit(small(), self.batches(), batch_size=30, epochs=2, validation_data=self.batches)
        self.assertEqual(found.losses.tolist(), expected.losses.tolist())
        self.assertEqual(len(found.history["val_loss"]), 2)
        self.assertEqual(small().predict(x for x, _ in self.batches()).shape, (EXAMPLES, 4))
        self.assertEqual(small().evaluate(self.batches, verbose=0), small().evaluate(self.x, self.y, verbose=0))

    def test_an_iterator_may_end_with_the_training(self):
        for _ in range(5):
            history = self.quiet_fit(small(), iter(list(self.batches())), batch_size=25, epochs=2, steps_per_epoch=6)
            self.assertEqual(history.examples, [150, 150])

    def test_validation_between_epochs(self):
        model = small()
        history = self.quiet_fit(model, self.endless(), batch_size=30, epochs=3, steps_per_epoch=4, validation_data=self.batches,
                                 validation_steps=5)
        self.assertEqual(len(history.history["val_loss"]), 3)
        self.quiet_fit(model, self.endless(), batch_size=30, steps_per_epoch=4)

    def test_numbers_as_targets(self):
        def make():
            while True:
                x = numpy.ones((8, 2))
                yield x, x.sum(axis=1)

        model = lockstep.Sequential([layers.Input((2,)), layers.Dense(1)], device="cpu", threads=1)
        model.compile("sgd:learning_rate=0.1", "mean_squared_error")
        self.assertLess(self.quiet_fit(model, make, batch_size=8, steps_per_epoch=50).losses[-1], 1e-3)

    def test_what_goes_wrong_comes_out_of_fit_and_the_model_goes_on(self):
        def breaks():
            yield self.x[:32], self.y[:32]
            raise KeyError("mine")

        def changes():
            yield self.x[:32], self.y[:32]
            yield self.x[:32, :3], self.y[:32]

        def three():
            yield self.x, self.y, self.y

        def no_class():
            yield self.x[:32], self.y[:32] + 4

        model = small()
        for source, error, says in ((breaks, KeyError, "mine"), (changes, lockstep.InputError, r"batch 2 .* input 0 of shape \(3, 6, 1\) after \(6, 6, 1\)"),
                                    (three, lockstep.UsageError, "tuple of 3"), (no_class, lockstep.InputError, "the classes are 0 to 3"),
                                    (lambda: self.batches(150), lockstep.InputError, "ended after 300 examples")):
            with self.assertRaisesRegex(error, says):
                model.fit(source, batch_size=32, steps_per_epoch=20, verbose=0)
            self.quiet_fit(model, self.x, self.y)

    def test_every_batch_has_the_parts_of_the_first(self):
        x, y = self.x[:32], self.y[:32]
        whole, bare = (x, y), (x, None)
        for batches, says in (([whole, bare, bare], "batch 2 of the generator has no targets; the first batch has some"),
                              ([whole, bare, whole], "batch 2 of the generator has no targets"), ([whole, whole, (x,)], "batch 3 .* no targets"),
                              ([bare, whole, whole], "batch 2 of the generator has targets; the first batch has none"),
                              ([whole, ((x, x), y), whole], "batch 2 of the generator has 2 inputs; the first batch has 1"),
                              ([((x, x), y), whole, whole], "batch 2 of the generator has 1 inputs; the first batch has 2"),
                              ([whole, (x[:, :3], y), whole], r"batch 2 .* has input 0 of shape \(3, 6, 1\) after \(6, 6, 1\)"),
                              ([whole, (x, y[:, None]), whole], r"batch 2 .* has the target of shape \(1,\) after \(\)"),
                              ([whole, whole, (x, y[:31])], r"batch 3 .* has arrays of \[31, 32\] examples"),
                              ([whole, (x[0, 0, 0, 0], y[0])], r"batch 2 .* a single number .* \.batch\(32\)")):
            with self.subTest(says):
                with self.assertRaisesRegex(lockstep.InputError, says):
                    given = _data.Batches(iter(batches))
                    while True:
                        given.take()
                with self.assertRaisesRegex(lockstep.InputError, says):
                    _data.all_of(iter(batches))
        with self.assertRaisesRegex(lockstep.InputError, "batch 2 .* input 0 of uint8 after float32"):
            self.quiet_fit(small(), iter([whole, (x.astype("uint8"), y)]), batch_size=32, steps_per_epoch=2)
        with self.assertRaisesRegex(lockstep.InputError, "batch 2 of the generator has no targets"):
            self.quiet_fit(small(), iter([whole, bare, bare]), batch_size=32, steps_per_epoch=3)

    def test_generators_go_with_the_fit_after_them(self):
        model, alive = small(), []

        def fit(fails=False):
            def batches():
                yield self.x[:32], self.y[:32]
                if fails:
                    raise KeyError("mine")
                while True:
                    yield self.x[32:64], self.y[32:64]
            alive.append(weakref.ref(batches))
            self.quiet_fit(model, batches, batch_size=32, steps_per_epoch=2, validation_data=batches, validation_steps=1)

        def left():
            gc.collect()
            return [which() is not None for which in alive]

        for _ in range(3):
            fit()
        self.assertEqual(left(), [False, False, True])
        with self.assertRaises(KeyError):
            fit(fails=True)
        fit()
        self.assertEqual(left(), 4 * [False] + [True])
        self.quiet_fit(model, self.x, self.y)
        self.assertFalse(any(left()))
        fit()
        model.close()
        self.assertFalse(any(left()))

    def test_a_dataset_of_keras(self):
        class Dataset:
            """As a keras.utils.PyDataset."""

            def __init__(self, x, y, num_batches=12):
                self.x, self.y, self.num_batches, self.ended = x, y, num_batches, 0

            def __getitem__(self, index):
                at = index % 12 * 25
                return self.x[at:at + 25], self.y[at:at + 25]

            def on_epoch_end(self):
                self.ended += 1

        given = Dataset(self.x, self.y)
        expected = self.quiet_fit(small(), self.x, self.y, batch_size=25, epochs=3, shuffle=False).losses.tolist()
        self.assertEqual(self.quiet_fit(small(), given, batch_size=25, epochs=3, steps_per_epoch=12).losses.tolist(), expected)
        self.assertGreaterEqual(given.ended, 2)
        self.assertEqual(small().evaluate(given, verbose=0), small().evaluate(self.x, self.y, verbose=0))
        history = self.quiet_fit(small(), given, validation_data=given, shuffle=False, batch_size=25, epochs=3)
        self.assertEqual((history.losses.tolist(), len(history.history["val_loss"])), (expected, 3))
        endless = Dataset(self.x, self.y, None)
        self.assertEqual(self.quiet_fit(small(), endless, batch_size=25, epochs=3, steps_per_epoch=12).losses.tolist(), expected)
        with self.assertRaisesRegex(lockstep.UsageError, "a Dataset without an end: steps_per_epoch="):
            small().fit(endless)

    def test_a_dataset_of_tensorflow(self):
        class Dataset:
            """As a tf.data.Dataset."""

            def __init__(self, batches, cardinality):
                self.as_numpy_iterator = batches
                self.cardinality = lambda: cardinality

        expected = self.quiet_fit(small(), self.x, self.y, batch_size=25, epochs=2, shuffle=False).losses.tolist()
        for options in ({"steps_per_epoch": 12}, {"shuffle": False}, {"shuffle": False, "batch_size": 25}):
            found = self.quiet_fit(small(), Dataset(self.batches, 12), epochs=2, **options)
            self.assertEqual(found.losses.tolist(), expected)
        with self.assertRaisesRegex(lockstep.UsageError, "without an end"):
            small().fit(Dataset(self.endless, -1))

    def test_an_iterator_cannot_go_back(self):
        batches = _data.Batches(self.endless())
        views = [numpy.empty((40, 6, 6, 1), dtype="float32"), numpy.empty(40, dtype="int32")]
        batches.fill(1, 0, views)
        batches.fill(1, 40, views)
        self.assertEqual(views[1].tolist(), self.y[40:80].tolist())
        with self.assertRaisesRegex(lockstep.InputError, "cannot go back"):
            batches.fill(1, 40, views)
        again = _data.Batches(self.batches)
        again.fill(2, 40, views)
        again.fill(2, 20, views)
        self.assertEqual(views[1].tolist(), self.y[20:60].tolist())


class Callbacks(ModelTest):
    def test_moments_and_their_numbers(self):
        seen = []

        class Mine(lockstep.Callback):
            def on_train_begin(self, logs):
                seen.append(("begin", self.model.variables[0].name))

            def on_epoch_begin(self, epoch, logs):
                seen.append(("epoch", epoch))

            def on_train_batch_end(self, batch, logs):
                seen.append(("batch", batch, sorted(logs)))

            def on_epoch_end(self, epoch, logs):
                seen.append(("end", epoch, sorted(logs)))

            def on_test_end(self, logs):
                seen.append(("test", sorted(logs)))

        model = small()
        history = self.quiet_fit(model, self.x, self.y, batch_size=150, epochs=2, callbacks=[Mine()], validation_data=(self.x, self.y))
        train = ["accuracy", "loss"]
        expected = [("begin", "conv2d/kernel")]
        for epoch in (0, 1):
            validated = sorted(train + ["val_loss", "val_accuracy"])
            expected += [("epoch", epoch), ("batch", 0, train), ("batch", 1, train), ("test", validated), ("end", epoch, validated)]
        self.assertEqual(seen, expected)
        self.assertEqual(history.epoch, [0, 1])
        seen.clear()
        told = lockstep.Callback(on_test_begin=lambda logs: seen.append("test begin"), on_test_end=lambda logs: seen.append(sorted(logs)),
                                 on_predict_batch_end=lambda batch, logs: seen.append(batch))
        model.evaluate(self.x, self.y, callbacks=[told], verbose=0)
        model.predict(self.x, 150, callbacks=[told])
        model.predict(self.x)  # which tells nobody
        self.assertEqual(seen, ["test begin", train, 0, 1])

    def test_a_function_a_text_and_the_end_of_the_training(self):
        epochs = []
        model = small()
        self.quiet_fit(model, self.x, self.y, epochs=9, callbacks=lambda epoch, logs: epochs.append(epoch) or setattr(model, "stop_training", epoch == 1))
        self.assertEqual(epochs, [0, 1])
        history = self.quiet_fit(small(), self.x, self.y, epochs=30, callbacks=["early_stopping:monitor=loss,patience=0,min_delta=100"])
        self.assertEqual(len(history.epoch), 2)
        path = self.path("log.csv")
        self.quiet_fit(model, self.x, self.y, epochs=2, callbacks="csv_logger:filename=" + path)
        with open(path, encoding="utf-8") as file:
            self.assertEqual(len(file.readlines()), 3)

    def test_stop_training_reads_true_until_the_next_fit(self):
        model, seen = small(), []

        def stop(epoch, logs):
            seen.append(model.stop_training)
            model.stop_training = epoch == 1
            seen.append(model.stop_training)

        self.assertIs(model.stop_training, False)
        self.quiet_fit(model, self.x, self.y, epochs=9, callbacks=[stop])
        self.assertEqual(seen, [False, False, False, True])
        self.assertIs(model.stop_training, True)
        model.stop_training = True  # outside of a fit it ends none
        begin = lockstep.Callback(on_train_begin=lambda logs: seen.append(model.stop_training))
        self.assertEqual(len(self.quiet_fit(model, self.x, self.y, epochs=2, callbacks=[begin]).epoch), 2)
        self.assertEqual((seen[-1], model.stop_training), (False, False))
        self.quiet_fit(model, self.x, self.y, epochs=30, callbacks=["early_stopping:monitor=loss,patience=0,min_delta=100"])
        self.assertIs(model.stop_training, True)

    def test_weights_gradients_and_the_learning_rate_between_steps(self):
        model, seen = small(), []

        def look(epoch, logs):
            model.learning_rate = 0.5
            seen.append((model.learning_rate, [array.shape for array in model.get_gradients()]))
            model.set_weights([array * 0 for array in model.get_weights()])
            with self.assertRaisesRegex(lockstep.UsageError, "a callback of model .* call it after fit"):
                model.fit(self.x, self.y)
            with self.assertRaisesRegex(lockstep.UsageError, "cannot close it"):
                model.close()

        self.quiet_fit(model, self.x, self.y, callbacks=[look])
        self.assertEqual(seen, [(0.5, [variable.shape for variable in model.variables])])
        self.assertFalse(any(array.any() for array in model.get_weights()))

    def test_an_exception_comes_out_and_the_model_goes_on(self):
        model = small()
        for moment in ("on_train_begin", "on_epoch_end", "on_train_batch_end", "on_test_begin"):
            def fail(*_):
                raise ArithmeticError(moment)
            with self.assertRaisesRegex(ArithmeticError, moment):
                model.fit(self.x, self.y, validation_split=0.5, callbacks=[lockstep.Callback(**{moment: fail})], verbose=0)
            self.assertEqual(len(self.quiet_fit(model, self.x, self.y).epoch), 1)

    def test_errors_of_a_thread_that_python_has_seen_are_not_kept(self):
        def fail(*_):
            threading.current_thread()  # from then on Python lists it
            raise ArithmeticError
        with self.assertRaises(ArithmeticError):
            small().fit(self.x, self.y, callbacks=[lockstep.Callback(on_train_batch_end=fail)], verbose=0)
        self.assertEqual(_native._kept, [])

    def test_a_function_of_a_batch_may_not_read_weights(self):
        model = small()
        with self.assertRaisesRegex(lockstep.UsageError, "another thread uses this model"):
            model.fit(self.x, self.y, callbacks=[lockstep.Callback(on_train_batch_end=lambda *_: model.get_weights())], verbose=0)

    def test_callbacks_of_keras_that_need_its_model_are_refused(self):
        def of(module, name, base=object):
            return type(name, (base,), {"__module__": module, "on_epoch_end": lambda *_: None})

        for name in _keras_callbacks.HERE:
            if name in (*_keras_callbacks.TEXTS, "BackupAndRestore", "LearningRateScheduler"):
                for own in ("Mine", name):
                    with self.assertRaisesRegex(lockstep.UsageError, f"{name} of Keras needs a keras.Model; here "):
                        small().fit(self.x, self.y, callbacks=of("mine", own, of("keras.src.callbacks.some", name))(), verbose=0)
                continue
            kind = of("keras.src.callbacks.some", name)
            for callbacks in ([kind()], kind(), ["csv_logger", of("mine", "Mine", kind)()]):
                with self.assertRaisesRegex(lockstep.UsageError, f"{name} of Keras needs a keras.Model; here "):
                    small().fit(self.x, self.y, callbacks=callbacks, verbose=0)
            with self.assertRaisesRegex(lockstep.UsageError, name):
                small().evaluate(self.x, self.y, callbacks=kind())
            self.quiet_fit(small(), self.x, self.y, callbacks=of("mine", name)())  # a class of the program's own
        self.quiet_fit(small(), self.x, self.y, callbacks=(of("keras.src.callbacks.csv_logger", "CSVLogger")(),))

    def test_callbacks_of_keras_that_are_ours_by_their_options(self):
        def of(class_name, **values):
            made = type(class_name, (), {"__module__": "keras.src.callbacks.some", "on_epoch_end": lambda *_: None})()
            vars(made).update(values)
            return made

        log, folder, rates = self.path("logs, of mine"), self.path("backup"), []
        board = {"histogram_freq": 1, "write_graph": True, "write_images": False, "write_steps_per_second": True, "update_freq": "epoch",
                 "embeddings_freq": 0, "embeddings_metadata": None, "_should_trace": False}
        plateau = {"monitor": "loss", "factor": 0.5, "patience": 1, "mode": "auto", "min_delta": 100.0, "cooldown": 0, "min_lr": 0, "verbose": 0}
        self.assertEqual(_keras_callbacks.callbacks_of([of("TensorBoard", log_dir=log, **board), of("ReduceLROnPlateau", **plateau)]),
                         [f'tensorboard:log_dir="{log}",histogram_freq=1,write_steps_per_second=true,update_freq=epoch',
                          "reduce_lr_on_plateau:monitor=loss,factor=0.5,patience=1,mode=auto,min_delta=100.0,cooldown=0,min_lr=0"])
        note = lambda epoch, logs: rates.append(model.learning_rate)  # noqa: E731
        model = small()
        self.quiet_fit(model, self.x, self.y, epochs=3, callbacks=[of("TensorBoard", log_dir=self.path("logs"), **board), note,
                                                                   of("ReduceLROnPlateau", **plateau)])
        self.assertEqual([round(rate, 6) for rate in rates], [0.001, 0.001, 0.0005])
        self.assertEqual(sorted(os.listdir(self.path("logs"))), ["train"])
        self.quiet_fit(model, self.x, self.y, epochs=2, callbacks=[of("LearningRateScheduler", schedule=lambda epoch, rate: 0.1 / (epoch + 1)), note])
        self.quiet_fit(model, self.x, self.y, callbacks=[of("LearningRateScheduler", schedule=lambda epoch: 0.25), note])
        self.assertEqual([round(rate, 6) for rate in rates[3:]], [0.1, 0.05, 0.25])
        for name, values, says in (("TensorBoard", {**board, "write_images": True}, "write_images=True"), ("TensorBoard", {**board, "_should_trace": True},
                                   "profile_batch"), ("ModelCheckpoint", {"filepath": "m.keras", "save_freq": 100}, "save_freq=100"),
                                   ("ModelCheckpoint", {"filepath": "m.h5", "save_freq": "epoch"}, "filepath='m.h5'")):
            with self.assertRaisesRegex(lockstep.UsageError, f"{name} of Keras has {says}.* which Lockstep does not do"):
                model.fit(self.x, self.y, callbacks=of(name, log_dir=log, **values) if name == "TensorBoard" else of(name, **values))

        def stop(epoch, logs):
            if epoch == 1 and kept:
                raise ArithmeticError

        whole = self.quiet_fit(small(), self.x, self.y, epochs=4).losses.tolist()
        for kept, delete in ((True, True), (False, False), (False, True)):
            backup = of("BackupAndRestore", backup_dir=folder, save_freq="epoch", double_checkpoint=False, delete_checkpoint=delete)
            model = small()
            with self.assertRaises(ArithmeticError) if kept else contextlib.nullcontext():
                self.quiet_fit(model, self.x, self.y, epochs=4, callbacks=[backup, stop])
            self.assertEqual(any(name.startswith("backup-") for name in os.listdir(folder)), kept or not delete)
            self.assertEqual(model.history().losses.tolist(), whole[:10] if kept else whole)
        with self.assertRaisesRegex(lockstep.UsageError, "not together with another one or with checkpoints="):
            model.fit(self.x, self.y, callbacks=backup, checkpoints=folder)

    def test_what_is_named_instead_works(self):
        model = small()
        model.compile("adam:use_ema=true")
        self.quiet_fit(model, self.x, self.y, validation_split=0.5, checkpoints={"folder": self.path("c"), "resume": True}, callbacks=[
            "reduce_lr_on_plateau:monitor=val_loss,factor=0.1,patience=10", "early_stopping:restore_best_weights=true",
            "tensorboard:log_dir=" + self.path("logs")])

    def test_a_single_callback_needs_no_list(self):
        epochs = []
        one = lockstep.Callback(on_epoch_end=lambda epoch, logs: epochs.append(epoch))
        self.quiet_fit(small(), self.x, self.y, epochs=2, callbacks=one)
        small().predict(self.x, callbacks=lockstep.Callback(on_predict_end=lambda logs: epochs.append("predict")))
        self.assertEqual(epochs, [0, 1, "predict"])

    def test_what_is_no_callback_is_refused(self):
        for callback, error, says in ((object(), TypeError, "is no callback"), ("no_such", lockstep.UnavailableError, "no_such"),
                                      ("early_stopping:patiense=3", lockstep.UsageError, "patience")):
            with self.assertRaisesRegex(error, says):
                small().fit(self.x, self.y, callbacks=[callback])
        with self.assertRaisesRegex(TypeError, "there is no moment 'on_epoch'"):
            lockstep.Callback(on_epoch=print)

    def test_a_line_an_epoch(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            small().fit(self.x, self.y, epochs=2)
            small().evaluate(self.x, self.y)
        self.assertRegex(out.getvalue(), r"^Epoch 1/2 - [\d.]+s - loss: \d\.\d{4} - accuracy: \d\.\d{4}\nEpoch 2/2 - .*\nloss: .* - accuracy: .*\n$")


class GoingOn(ModelTest):
    def test_a_callback_saves_what_its_epoch_ends_with(self):
        class Save(lockstep.Callback):
            def on_epoch_end(_, epoch, logs):
                for suffix in suffixes:
                    (_.model.save if suffix != "weights.h5" else _.model.save_weights)(self.path(f"m{epoch}.{suffix}"))

        suffixes = ["safetensors"] + (["keras", "weights.h5"] if os.environ["LOCKSTEP_KERAS_BUILT"] == "true" else [])
        whole, one = small(), small()
        self.quiet_fit(whole, self.x, self.y, epochs=2, callbacks=Save())
        self.quiet_fit(one, self.x, self.y)
        for suffix in suffixes:
            loaded = small(seed=9)
            loaded.load_weights(self.path("m0." + suffix))
            self.assert_same_weights(loaded.get_weights(), one.get_weights())
        with self.assertRaisesRegex(lockstep.UsageError, "overwrite=False keeps it"):
            one.save(self.path("m0.safetensors"), overwrite=False)
        with open(self.path(f"m1.keras.{os.getpid()}.part"), "w", encoding="utf-8"):  # of a process that died and had this number
            one.save(self.path("m1.keras"))
        with self.assertRaisesRegex(lockstep.UsageError, "another thread uses this model"):
            one.fit(self.x, self.y, callbacks=[lockstep.Callback(on_train_batch_end=lambda *_: one.save(self.path("no.safetensors")))], verbose=0)

    def test_save_and_load_go_on_to_the_bit(self):
        path = self.path("state.safetensors")
        whole = self.quiet_fit(small(), self.x, self.y, epochs=4).losses.tolist()
        first, second = small(), small()
        begin = self.quiet_fit(first, self.x, self.y, epochs=2).losses.tolist()
        first.save(path)
        second.load(path)
        self.assertEqual(begin + self.quiet_fit(second, self.x, self.y, epochs=2).losses.tolist(), whole)

    def test_checkpoints(self):
        folder = self.path("checkpoints")
        whole = self.quiet_fit(small(), self.x, self.y, epochs=4).losses.tolist()
        self.quiet_fit(small(), self.x, self.y, epochs=2, checkpoints=folder)
        model = small()
        with self.assertRaisesRegex(lockstep.UsageError, r"an earlier training; checkpoints={'folder': \.\.\., 'resume': True} continues from the"):
            self.quiet_fit(model, self.x, self.y, epochs=4, checkpoints=folder)
        self.quiet_fit(model, self.x, self.y, epochs=4, checkpoints={"folder": folder, "resume": True})
        self.assertEqual(model.history().losses.tolist(), whole)

    def test_weights_of_a_second_model_whose_layers_are_numbered_on(self):
        def numbered(first, seed=5):
            dense = [layers.Dense(4, name=f"dense_{first + k}" if first + k else "dense") for k in range(11)]
            flat = layers.Flatten(name=f"flatten_{first}")
            made = lockstep.Sequential([layers.Input((6, 6, 1)), flat, *dense], device="cpu", threads=1, seed=seed)
            made.compile("sgd:momentum=0.9")
            return made

        weights, state, folder = self.path("w.safetensors"), self.path("state.safetensors"), self.path("c")
        first = numbered(7)
        self.quiet_fit(first, self.x, self.y, checkpoints=folder)
        first.save_weights(weights)
        first.save(state)
        for number in (0, 3, 95):
            second = numbered(number, seed=9)
            second.load_weights(weights)
            self.assert_same_weights(second.get_weights(), first.get_weights())
            second = numbered(number)
            second.load(state)
            self.quiet_fit(second, self.x, self.y)
            third = numbered(number)
            self.quiet_fit(third, self.x, self.y, epochs=2, checkpoints={"folder": folder, "resume": True})
            self.assert_same_weights(second.get_weights(), third.get_weights())
        for other in ([layers.Dense(4, name=f"dense_{k}") for k in range(3)], [layers.Dense(4, name=f"mine_{k}") for k in range(11)]):
            with self.assertRaisesRegex(lockstep.InputError, "has no tensor '(dense|mine)_0/kernel', which model"):
                lockstep.Sequential([layers.Input((6, 6, 1)), layers.Flatten(), *other], device="cpu").load_weights(weights)

    def test_fits_of_an_epoch_are_as_one(self):
        whole = self.quiet_fit(small(), self.x, self.y, epochs=3).losses.tolist()
        model = small()
        self.assertEqual([loss for _ in range(3) for loss in self.quiet_fit(model, self.x, self.y).losses.tolist()], whole)

    def test_weights_in_and_out(self):
        model, other = small(), small(seed=9)
        other.set_weights(model.get_weights())
        self.assert_same_weights(model.get_weights(), other.get_weights())
        for wrong in (model.get_weights()[:2], [array[..., :1] for array in model.get_weights()]):
            with self.assertRaises(lockstep.UsageError):
                other.set_weights(wrong)
        model.train_on_batch(self.x, self.y)
        for suffix in ("safetensors",) + (("weights.h5", "keras") if os.environ["LOCKSTEP_KERAS_BUILT"] == "true" else ()):
            path = self.path("weights." + suffix)
            model.save_weights(path)
            other.load_weights(path)
            self.assert_same_weights(model.get_weights(), other.get_weights())

    def test_a_step_on_a_batch_is_a_step_of_fit(self):
        model, other = small(), small()
        losses = [model.train_on_batch(self.x[:60], self.y[:60])[0] for _ in range(3)]
        expected = self.quiet_fit(other, self.x[:60], self.y[:60], batch_size=60, epochs=3, shuffle=False).losses
        numpy.testing.assert_allclose(losses, expected, rtol=ROUNDING)
        numpy.testing.assert_allclose(model.test_on_batch(self.x[:60], self.y[:60], return_dict=True)["loss"],
                                      other.evaluate(self.x[:60], self.y[:60], verbose=0)[0], rtol=ROUNDING)


class Progress(ModelTest):
    LINES = r"^Epoch 1/2 - [\d.]+s - loss: [\d.]+ - accuracy: [\d.]+\nEpoch 2/2 - [\d.]+s - loss: [\d.]+ - accuracy: [\d.]+\n$"

    def on_terminal(self, verbose, kind, call="fit"):
        with open(self.path("fit.py"), "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(f"""
                import numpy, lockstep
                model = lockstep.Sequential([lockstep.layers.Input((8,)), lockstep.layers.Dense(4)], device="cpu", threads=1)
                x, y = numpy.ones((256, 8), "float32"), numpy.zeros(256, "int32")
                {"model.fit(x, y, epochs=2," if call == "fit" else "model.evaluate(x, y," if call == "evaluate" else "model.predict(x,"} batch_size=32, verbose={verbose!r})
            """))
        master, slave = self.terminal()
        process = subprocess.Popen([sys.executable, self.path("fit.py")], stdout=slave, stderr=subprocess.PIPE, text=True,
                                   env=dict(os.environ, PYTHONPATH=numpy_python.PACKAGE, TERM=kind))
        os.close(slave)
        shown = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while piece := os.read(master, 65536):
                shown += piece
        os.close(master)
        err = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 0, err)
        return shown.decode().replace("\r\n", "\n")

    def test_a_bar_on_a_terminal_and_lines_where_they_are_asked_for(self):
        for verbose, kind in (("auto", "xterm"), (1, "xterm"), (None, "xterm")):
            shown = self.on_terminal(verbose, kind)
            self.assertRegex(shown, r"^Epoch 1/2\n\r(?s:.*)\r\033\[K8/8 \[={30}\] - [\d.]+ s - .* - loss: [\d.]+ - accuracy: [\d.]+\nEpoch 2/2\n")
            self.assertEqual(shown.count(" examples/s - "), 2, shown)  # the end of an epoch, once each
            self.assertNotIn("Epoch 1/2 -", shown)
        for verbose, kind in ((2, "xterm"), ("auto", "dumb")):
            self.assertRegex(self.on_terminal(verbose, kind), self.LINES)
        self.assertEqual(self.on_terminal(0, "xterm"), "")
        bar = r"^\r\033\[K\d+/8 \[(?s:.*)\r\033\[K8/8 \[={30}\] - [\d.]+ s"
        self.assertRegex(self.on_terminal(1, "xterm", "evaluate"), bar + r" - loss: [\d.]+ - accuracy: [\d.]+\n$")
        self.assertRegex(self.on_terminal(2, "xterm", "evaluate"), r"^loss: [\d.]+ - accuracy: [\d.]+\n$")
        self.assertRegex(self.on_terminal(None, "xterm", "predict"), bar + r"\n$")
        for verbose, kind, call in ((0, "xterm", "evaluate"), (0, "xterm", "predict"), (2, "xterm", "predict"), ("auto", "dumb", "predict")):
            self.assertEqual(self.on_terminal(verbose, kind, call), "")

    def test_lines_elsewhere(self):
        for verbose in ("auto", 1, 2, True, None):
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                small().fit(self.x, self.y, epochs=2, verbose=verbose)
            self.assertRegex(out.getvalue(), self.LINES)
        for call in (lambda model: model.fit(self.x, self.y, verbose=3), lambda model: model.evaluate(self.x, self.y, verbose=3),
                     lambda model: model.predict(self.x, verbose=3)):
            with self.assertRaisesRegex(lockstep.UsageError, "verbose=3: expected 'auto', None, 0, 1 or 2"):
                call(small())


class Reproducible(ModelTest):
    def test_weights_histories_and_scores_have_the_same_bits_for_any_number_of_replicas(self):
        x, y = examples(150)
        results = []
        for strategy, replicas in (("one-device", 1), ("ring", 2), ("central-storage", 3)):
            with contextlib.closing(small(strategy=strategy, replicas=replicas, reproducible=4)) as model:
                model.compile(optimizer="adam")
                history = model.fit(x, y, batch_size=32, epochs=3, validation_split=0.2, verbose=0).history
                results.append((history, model.evaluate(x, y, verbose=0), [weight.tobytes() for weight in model.get_weights()],
                                model.predict(x).tobytes()))
        self.assertEqual(results[1], results[0])
        self.assertEqual(results[2], results[0])

    def test_true_is_the_option_without_a_value(self):
        x, y = examples(100)
        losses = {}
        for shards in (True, 8, 1, False, 0, None):
            with contextlib.closing(small(reproducible=shards)) as model:
                losses[repr(shards)] = list(model.fit(x, y, batch_size=32, verbose=0).losses)
        self.assertEqual(losses["True"], losses["8"])
        self.assertNotEqual(losses["True"], losses["1"])
        self.assertEqual(losses["False"], losses["None"])
        self.assertEqual(losses["0"], losses["None"])
        with contextlib.closing(small(reproducible=True, strategy="ring", replicas=2)) as model:
            self.assertEqual(list(model.fit(x, y, batch_size=32, verbose=0).losses), losses["8"])

    def test_a_batch_of_ones_own_has_the_same_bits(self):
        x, y = examples(75)
        results = []
        for strategy, replicas in (("one-device", 1), ("ring", 2), ("sharded", 3), ("central-storage", 4)):
            with contextlib.closing(small(strategy=strategy, replicas=replicas, reproducible=4)) as model:
                model.compile(optimizer="adam", metrics=["accuracy"])
                steps = [model.train_on_batch(x[at:at + size], y[at:at + size]) for at, size in ((0, 32), (32, 32), (64, 11), (73, 2), (0, 32))]
                results.append((steps, [weight.tobytes() for weight in model.get_weights()]))
        for result in results[1:]:
            self.assertEqual(result, results[0])
        with contextlib.closing(small(reproducible=4)) as model:  # the same as fit
            model.compile(optimizer="adam", metrics=["accuracy"])
            model.fit(x[:64], y[:64], batch_size=32, shuffle=False, verbose=0)
            with contextlib.closing(small(strategy="ring", replicas=2, reproducible=4)) as other:
                other.compile(optimizer="adam", metrics=["accuracy"])
                self.assertEqual([other.train_on_batch(x[at:at + 32], y[at:at + 32])[0] for at in (0, 32)], [step[0] for step in results[0][0][:2]])
                self.assertEqual([weight.tobytes() for weight in model.get_weights()], [weight.tobytes() for weight in other.get_weights()])


class Errors(ModelTest):
    def test_parameters_are_counted_as_keras_does(self):
        dense = lockstep.Sequential([lockstep.layers.Input((4,)), lockstep.layers.Dense(3), lockstep.layers.BatchNormalization()])
        self.assertEqual(dense.count_params(), 4 * 3 + 3 + 4 * 3)

    def test_layers_as_in_keras(self):
        model = small()
        self.assertEqual([(layer.name, layer.class_name) for layer in model.layers],
                         [("conv2d", "Conv2D"), ("flatten", "Flatten"), ("dense", "Dense")])
        self.assertEqual(model.get_layer("dense").config["units"], 4)
        self.assertEqual((model.get_layer(index=0).name, model.get_layer(index=-1).name), ("conv2d", "dense"))
        self.assertEqual(repr(model), "<Sequential name=sequential, layers=3, built=True>")
        model.layers[0].config["filters"] = 9  # a description
        self.assertEqual(model.get_layer(index=0).config["filters"], 4)
        for call, says in ((lambda: model.get_layer("danse"), "no layer 'danse'; there are: conv2d, flatten, dense"),
                           (lambda: model.get_layer(index=3), "no layer 3; the model has 3, numbered from 0"),
                           (model.get_layer, "expected name= or index="), (lambda: model.get_layer("dense", 2), "one of both")):
            with self.assertRaisesRegex(lockstep.UsageError, says):
                call()
        model.close()
        self.assertEqual(repr(model), "<Sequential closed>")
        functional = lockstep.Model("resnet", device="cpu")  # a Functional model has its input among them
        self.assertEqual(functional.get_layer(index=0).class_name, "InputLayer")
        self.assertEqual(len({layer.name for layer in functional.layers}), len(functional.layers))
        late = lockstep.Sequential([layers.Dense(3)], device="cpu")
        self.assertEqual(repr(late), "<Sequential built=False>")
        with self.assertRaisesRegex(lockstep.UsageError, "does not know the shape of its input yet"):
            late.layers

    def test_each_status_is_an_exception(self):
        for make, kind, status in ((lambda: lockstep.Model("no-such"), lockstep.UsageError, 2),
                                   (lambda: lockstep.Model("{\"class_name\": 3}"), lockstep.InputError, 3),
                                   (lambda: lockstep.Model("cnn", strategy="no-such"), lockstep.UnavailableError, 4),
                                   (lambda: lockstep.Model("cnn", precision="float7"), lockstep.UsageError, 2),
                                   (lambda: small().compile("adamm"), lockstep.UsageError, 2)):
            with self.assertRaises(kind) as caught:
                make()
            self.assertEqual(caught.exception.status, status)
            self.assertIsInstance(caught.exception, (lockstep.LockstepError, RuntimeError))
            self.assertEqual(str(caught.exception), caught.exception.message)
            self.assertNotIn("lockstep: error", caught.exception.message)
        self.assertTrue(issubclass(lockstep.UsageError, ValueError))
        for option in ("replica", "python", "stuck"):  # the last two are the package's own
            with self.assertRaisesRegex(TypeError, f"there is no option '{option}'; (did you mean .*=. )?there are: model, .*strategy, .*, topology$"):
                lockstep.Model("cnn", **{option: 0})
        with self.assertRaisesRegex(TypeError, "there is no option 'batch'; did you mean batch_size=. there are: x, y, batch_size, "):
            small().fit(self.x, self.y, batch=3)

    def test_options_are_named_as_arguments(self):
        """The same faults through C: tests/programs/option_words.c, through the command: tests/programs/test_errors.py."""
        for call, says in ((lambda: lockstep.Model("cnn", strategy="rign"), "strategy: "), (lambda: small(precision="float7"), "precision: "),
                           (lambda: small().compile("adamm"), "optimizer: "), (lambda: small().compile(metrics="acuracy"), "metrics: "),
                           (lambda: small().compile(learning_rate_schedule="exponential"), "learning_rate_schedule: "),
                           (lambda: small().fit(self.x, self.y, batch_size=20000000), "batch_size: "),
                           (lambda: lockstep.Model("mlp").fit("fashion"), "data: ")):
            with self.subTest(says), self.assertRaisesRegex(lockstep.LockstepError, "^" + says) as caught:
                call()
            self.assertNotIn("--", str(caught.exception))

    def test_values_that_no_option_takes(self):
        model = small()
        for call in (lambda: small(replicas=-1), lambda: small(seed=numpy.int64(-1)), lambda: small(replicas=1 << 40),
                     lambda: model.fit(self.x, self.y, epochs=-1), lambda: model.fit(self.x, self.y, batch_size=-1),
                     lambda: model.predict(self.x, batch_size=-1), lambda: model.evaluate(self.x, self.y, batch_size=-1),
                     lambda: model.fit(iter([(self.x, self.y)]), steps_per_epoch=-1), lambda: lockstep.Model(5)):
            with self.assertRaises(lockstep.UsageError):
                call()
        for options in ({"strategy": 3}, {"replicas": 2.0}, {"replicas": "2"}):
            with self.assertRaisesRegex(TypeError, next(iter(options))):
                small(**options)

    def test_messages_of_values_that_fit_nothing(self):
        model = small()
        for call, kind, says in (
                (lambda: model.fit(self.x, self.y, class_weight="balanced"), lockstep.UsageError, "class_weight='balanced': expected a dictionary"),
                (lambda: model.fit(self.x, self.y, class_weight={"a": 1}), lockstep.UsageError, "class_weight={'a': 1}: expected a dictionary"),
                (lambda: model.fit(self.x, self.y, class_weight={0.5: 1}), lockstep.UsageError, "expected a dictionary"),
                (lambda: model.fit(self.x, self.y, class_weight={1: None}), lockstep.UsageError, "expected a dictionary"),
                (lambda: model.fit(self.x, self.y, sample_weight=numpy.ones(20)), lockstep.InputError, "sample_weight has 20 examples, but input 0 has"),
                (lambda: model.fit(self.x[:, :5], self.y), lockstep.InputError, r"input 'input_layer' \(None, 6, 6, 1\), but field 'x' of the data is"),
                (lambda: model.fit(self.x, self.y + 9), lockstep.InputError, "^data: the data has 13 classes, but"),
                (lambda: model.fit(self.x), lockstep.UsageError, "^data: the data has no targets"),
                (lambda: model.save_weights(self.path("a.foo")), lockstep.UsageError, r"a\.foo': weights are written as .safetensors"),
                (lambda: model.save_weights(self.path("a.")), lockstep.UsageError, "must end with"),
                (lambda: model.save(self.path("a.json")), lockstep.UsageError, r"a\.json': expected a name that ends with .keras"),
                (lambda: model.save(self.path("a.weights.h5")), lockstep.UsageError, "expected a name that ends with")):
            with self.assertRaisesRegex(kind, says):
                call()
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("a.")], [])
        for size in (0, -1, "32", 32.0):
            for call in (model.fit, model.evaluate, model.predict):
                with self.assertRaisesRegex(lockstep.UsageError, f"batch_size={size!r}: expected a whole number"):
                    call(self.x, **({} if call == model.predict else {"y": self.y}), batch_size=size)
        with self.assertRaisesRegex(TypeError, "option 'epochs': '3' is a str"):
            model.fit(self.x, self.y, epochs="3")
        self.assertEqual(len(model.fit(self.x, self.y, class_weight={numpy.int64(1): 2, "0": 1}, batch_size=numpy.int64(50), verbose=0).losses), 6)

    def test_no_epochs_train_nothing(self):
        model = small()
        before = model.get_weights()
        history = self.quiet_fit(model, self.x, self.y, epochs=0)
        self.assertEqual((history.history, history.epoch, history.losses.tolist()), ({}, [], []))
        self.assert_same_weights(model.get_weights(), before)

    def test_a_model_of_keras_that_is_not_built(self):
        unbuilt = LikeKeras(small().save_weights)
        unbuilt.built = False
        with self.assertRaisesRegex(lockstep.UsageError, "the Keras model is not built"):
            lockstep.Model(unbuilt, device="cpu", data=self.x)
        with self.assertRaisesRegex(lockstep.UsageError, "the Keras model is not built"):
            lockstep.Model(unbuilt, device="cpu").fit("mnist")
        with self.assertRaisesRegex(lockstep.UsageError, "the Keras model is not built"):
            lockstep.compare(unbuilt, "mnist")
        if os.environ["LOCKSTEP_KERAS_BUILT"] == "true":
            unbuilt.build = lambda shape: self.assertEqual(shape, (None, 6, 6, 1))
            self.assertEqual(lockstep.Model(unbuilt, device="cpu").predict(self.x).shape, (EXAMPLES, 4))

    def test_labels_that_are_no_classes(self):
        one_hot = numpy.eye(4)[self.y]
        for y, says in ((self.y + 0.5, "the target: [0-3].5 is no class: labels of the model's loss are whole numbers from 0"),
                        (self.y - 1.0, "the target: -1.0 is no class"), (self.y * numpy.nan, "the target: nan is no class"),
                        (one_hot, "a target for each output, not classes"), (self.y.astype("uint64") << 62, "uint64 is more than int64 holds"),
                        (self.y - 1, "targets below 0, not classes: labels are whole numbers from 0"),
                        (one_hot.astype("int32"), r'one-hot targets are for loss="categorical_crossentropy", as y.astype\("float32"\)')):
            model = small()
            model.compile(loss="sparse_categorical_crossentropy:from_logits=true")
            with self.assertRaisesRegex(lockstep.InputError, says):
                model.fit(self.x, y)
        model.compile(loss="categorical_crossentropy:from_logits=true")
        self.quiet_fit(model, self.x, one_hot.astype("float32"))

    def test_a_model_that_is_closed_says_so(self):
        model = small()
        model.close()
        model.close()
        for call in (lambda: model.fit(self.x, self.y), lambda: model.predict(self.x), lambda: model.replicas, model.get_weights,
                     model.summary, model.history, model.interrupt, lambda: model.output_shape):
            with self.assertRaisesRegex(lockstep.UsageError, "the model is closed"):
                call()
        with concurrent.futures.ThreadPoolExecutor(1) as threads, self.assertRaisesRegex(lockstep.UsageError, "the model is closed"):
            threads.submit(model.predict, self.x).result(30)

    def test_a_forked_child_does_not_wait_for_threads_that_it_lacks(self):
        model = small()
        model.fit(self.x, self.y, verbose=0)
        read, write = os.pipe()
        child = os.fork()
        if not child:
            try:
                model.fit(self.x, self.y, verbose=0)
            except lockstep.UsageError as error:
                os.write(write, str(error).encode())
            del model
            os._exit(3)
        os.close(write)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 3)
        with open(read) as said:
            self.assertIn("a forked process", said.read())
        model.fit(self.x, self.y, verbose=0)

    def test_what_is_no_layer_and_a_split_of_nothing(self):
        for call, says in ((lambda: lockstep.Sequential(["Dense"]), "'Dense' is no layer"),
                           (lambda: lockstep.Sequential([layers.Input((4,)), layers.Dense({3})]), "options of a layer"),
                           (lambda: small().fit(self.x[:3], self.y[:3], validation_split=0.9), "none to train on"),
                           (lambda: small().fit(), "got None")):
            with self.assertRaisesRegex(ValueError, says):
                call()
        self.assertEqual(lockstep.Sequential([layers.Input((4,)), layers.Dense(numpy.int64(3))], device="cpu").output_shape, (None, 3))

    def test_a_loss_that_is_not_finite(self):
        model = small()
        with self.assertRaises(lockstep.LockstepError) as caught:
            model.fit(self.x * numpy.float32("nan"), self.y, verbose=0)
        self.assertEqual(caught.exception.status, 1)
        self.quiet_fit(model, self.x, self.y)

    def test_a_nan_behind_a_convolution_ends_the_epoch(self):
        """oneDNN's ReLU makes 0 of it, so that the loss stays finite."""
        x, y = numpy.random.default_rng(0).random((64, 28, 28, 1), numpy.float32), numpy.zeros(64, numpy.int32)
        x[3, 5, 5, 0] = numpy.nan
        epochs = []
        for options in ({}, {"strategy": "central-storage", "replicas": 2}):
            model = lockstep.Model("cnn", device="cpu", **options)
            model.compile("sgd", "sparse_categorical_crossentropy")
            with self.assertRaisesRegex(lockstep.LockstepError, "'conv2d/kernel' is not finite"):
                model.fit(x, y, batch_size=16, epochs=3, verbose=0, callbacks=[lambda epoch, logs: epochs.append(epoch)])
            model.close()
        self.assertEqual(epochs, [])

    def script(self, text, *arguments, expect=0, **more):
        """A program of its own; what it prints."""
        path = self.path("script.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(text))
        done = subprocess.run([*arguments, sys.executable, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120,
                              env=dict(os.environ, PYTHONPATH=numpy_python.PACKAGE, **more))
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done

    def test_a_plugin_that_hangs_ends_the_program(self):
        done = self.script("""
            import os, lockstep
            model = lockstep.Model("mlp", strategy="hostile:fault=gradient_ready-hang,collective=ring", replicas=2, threads=1, device="reference",
                                   deadline_seconds=2, plugin_path=os.environ["LOCKSTEP_HOSTILE_FOLDER"])
            model.fit("synthetic:examples=128", verbose=0)
            """, expect=5)
        self.assertRegex(done.stderr, r"lockstep: error: .*gradient_ready.*strategy-hostile.* raise deadline_seconds\n")

    def test_daemon_threads_train_when_the_program_ends(self):
        for epochs in (-1, 0, 1, 10**6):
            done = self.script(f"""
                import threading, time, numpy, lockstep, lockstep.model  # here: Python itself may crash where it ends during a thread's import
                L = lockstep.layers

                def train():
                    while {epochs} == 0:
                        begun.set()
                        lockstep.Model("cnn", device="cpu")
                    model = lockstep.Sequential([L.Input((8,)), L.Dense(4)], device="cpu", threads=1, strategy="ring", replicas=2)
                    told = lockstep.Callback(on_epoch_end=lambda epoch, logs: None, on_train_batch_end=lambda batch, logs: begun.set())
                    while {epochs} == -1:
                        model.train_on_batch([[0.5] * 8] * 64, [3] * 64)
                        begun.set()
                    while True:
                        model.fit("synthetic:shape=8,classes=4,examples=640", epochs={epochs}, verbose=0, callbacks=[told])

                begun = threading.Event()
                for _ in range(2):
                    threading.Thread(target=train, daemon=True).start()
                begun.wait()
                """)
            self.assertNotIn("Traceback", done.stderr)

    def test_copies_and_nul_are_refused(self):
        model = small()
        for make in (copy.copy, copy.deepcopy, pickle.dumps):
            with self.assertRaisesRegex(lockstep.UsageError, "a model cannot be copied or pickled: make another one"):
                make(model)
        self.quiet_fit(model, self.x, self.y)
        for call in (lambda: model.save_weights(self.path("a\0b.safetensors")), lambda: model.load(self.path("a.safetensors\0")),
                     lambda: model.compile("sgd\0"), lambda: model.fit("mnist\0"), lambda: lockstep.Model("cnn\0"), lambda: small(strategy="ring\0"),
                     lambda: model.fit(self.x, self.y, checkpoints=self.path("c\0")), lambda: model.fit(self.x, self.y, callbacks="csv_logger\0")):
            with self.assertRaisesRegex(lockstep.UsageError, "NUL character"):
                call()
        self.assertFalse([name for name in os.listdir(self.folder) if name.startswith("a")])

    def test_what_an_exception_says_is_not_printed_too_and_warnings_are(self):
        done = self.script("""
            import lockstep
            try:
                lockstep.Model("no-such")
            except lockstep.UsageError as error:
                print(error)
            lockstep.Model("mlp", device="cpu").fit("synthetic:examples=64", verbose=0)
            """)
        self.assertIn("there is no model 'no-such'", done.stdout)
        self.assertEqual(done.stderr.count("error"), 0, done.stderr)
        self.assertIn("lockstep: warning: synthetic: NOT REAL DATA", done.stderr)

    def test_import_is_cheap(self):
        done = self.script("""
            import sys, time
            begin = time.perf_counter()
            import lockstep
            print(f"import lockstep: {1000 * (time.perf_counter() - begin):.1f} ms")
            assert not {"numpy", "torch", "keras", "tensorflow", "ctypes"} & set(sys.modules), sorted(sys.modules)
            for name in lockstep.__all__:
                assert getattr(lockstep, name) is not None and name in dir(lockstep)
            assert not {"numpy", "torch", "keras", "tensorflow"} & set(sys.modules)
            assert lockstep.__version__ == "0.1.0"
            """)
        print(done.stdout.strip(), flush=True)

    def test_a_library_that_is_not_there_is_said(self):
        done = self.script("""
            import lockstep
            try:
                lockstep.Model("cnn")
            except lockstep.UnavailableError as error:
                print(error)
            """, LOCKSTEP_LIBRARY="/nowhere/liblockstep.so.0")
        self.assertIn("LOCKSTEP_LIBRARY names the file liblockstep.so.0", done.stdout)

    def test_workers_of_a_launcher(self):
        text = """
            import numpy, lockstep
            random = numpy.random.default_rng(3)
            x, y = random.random((120, 8), dtype="float32"), random.integers(0, 4, 120)
            L = lockstep.layers
            model = lockstep.Sequential([L.Input((8,)), L.Dense(4)], strategy="STRATEGY", device="cpu", threads=1, seed=5)
            history = model.fit(x, y, batch_size=40, epochs=2, verbose=0)
            if model.is_chief:
                print(model.replicas, *history.losses, flush=True)
            """
        two = self.script(text.replace("STRATEGY", "multi-worker-mirrored"), LOCKSTEP, "launch", "-n", "2", "--").stdout.split()
        one = self.script(text.replace("STRATEGY", "one-device")).stdout.split()
        self.assertEqual((two[0], one[0], len(two)), ("2", "1", len(one)))
        numpy.testing.assert_allclose([float(loss) for loss in two[1:]], [float(loss) for loss in one[1:]], rtol=ROUNDING)

    def saved_by_two(self, path):
        """What Model.save raises on each of two workers that hold parts of the states."""
        done = self.script("""
            import os, socket, subprocess, sys
            if "LOCKSTEP_RANK" not in os.environ:
                with socket.create_server(("127.0.0.1", 0)) as server:
                    own = dict(os.environ, LOCKSTEP_WORLD_SIZE="2", LOCKSTEP_ADDRESS="127.0.0.1:%d" % server.getsockname()[1])
                workers = [subprocess.Popen([sys.executable, __file__], env=dict(own, LOCKSTEP_RANK=rank)) for rank in "01"]
                sys.exit(max(worker.wait() for worker in workers))
            import numpy, lockstep
            random = numpy.random.default_rng(3)
            x, y = random.random((40, 8), dtype="float32"), random.integers(0, 4, 40)
            L = lockstep.layers
            model = lockstep.Sequential([L.Input((8,)), L.Dense(40), L.Dense(4)], strategy="sharded", device="cpu", threads=1, seed=5)
            model.compile("adam")
            model.fit(x, y, batch_size=40, verbose=0)
            path, said = PATH, "saved"
            try:
                if path:
                    model.save(path)
                elif not model.is_chief:
                    model.fit(x, y, batch_size=40, verbose=0)
            except lockstep.LockstepError as error:
                said = f"{type(error).__name__} {error}".replace("\\n", " ")
            os.write(1, f"SAID {os.environ['LOCKSTEP_RANK']} {said}\\n".encode())
            """.replace("PATH", path))
        lines = sorted(line[line.index("SAID") + 5:] for line in done.stdout.splitlines() if "SAID" in line)
        self.assertEqual([line[0] for line in lines], ["0", "1"], done.stdout + done.stderr)
        return lines

    def test_a_worker_that_cannot_write_its_file_of_states_in_parts(self):
        zero, one = self.saved_by_two(f"[{self.path('zero.safetensors')!r}, '/nowhere/one.safetensors'][not model.is_chief]")
        self.assertIn("worker 1 could not make its file; see its log", zero)
        self.assertNotIn("OutOfMemory", zero)
        self.assertIn("/nowhere/one.safetensors", one)

    def test_a_chief_that_saves_states_in_parts_alone(self):
        zero, _ = self.saved_by_two(f"model.is_chief and {self.path('zero.safetensors')!r}")
        self.assertIn("under strategy 'sharded' all workers save the model at the same place of the program", zero)

    def test_what_one_worker_alone_does_is_refused_by_all(self):
        """What it is given, and what its callbacks set; but it may look."""
        done = self.script("""
            import os, socket, subprocess, sys
            if "LOCKSTEP_RANK" not in os.environ:
                with socket.create_server(("127.0.0.1", 0)) as server:
                    own = dict(os.environ, LOCKSTEP_WORLD_SIZE="2", LOCKSTEP_ADDRESS="127.0.0.1:%d" % server.getsockname()[1])
                workers = [subprocess.Popen([sys.executable, __file__], env=dict(own, LOCKSTEP_RANK=rank)) for rank in "01"]
                sys.exit(max(worker.wait() for worker in workers))
            import numpy, lockstep
            random = numpy.random.default_rng(3)
            x, y = random.random((120, 8), dtype="float32"), random.integers(0, 4, 120)
            L = lockstep.layers

            def weights(model):
                model.set_weights([2 * array for array in model.get_weights()])

            def rate(model):
                model.learning_rate = 0.25

            def fit(alone, before=None, x=x):
                model = lockstep.Sequential([L.Input((8,)), L.Dense(4)], strategy="multi-worker-mirrored", device="cpu", threads=1, seed=5)
                model.compile("sgd:learning_rate=0.5")
                if before and not model.is_chief:
                    before(model)
                callback = alone if isinstance(alone, str) else lambda epoch, logs: alone(model)
                try:
                    model.fit(x, y, batch_size=40, epochs=2, verbose=model.is_chief, callbacks=[] if model.is_chief else [callback])
                    return "done"
                except lockstep.UsageError as error:
                    return str(error)
                finally:
                    model.close()

            said = [fit("reduce_lr_on_plateau:monitor=loss"), fit(rate), fit(weights), fit(print), fit(print, weights)]
            other = x + float(os.environ["LOCKSTEP_RANK"])
            said.append(fit(print, None, other))
            for line in said:  # whole, because both workers write to one pipe
                os.write(1, f"SAID {line}\\n".encode())
            """)
        said = [line[line.index("SAID") + 5:] for line in done.stdout.splitlines() if "SAID" in line]
        self.assertEqual(len(said), 12, done.stdout)
        for text, times in (("worker 1 has callbacks reduce_lr_on_plateau:monitor=loss, but worker 0 has (none)", 2),
                            ("worker 1 has the learning rate 0.25, but worker 0 has 0.5", 2), ("worker 1 has set other variables", 2),
                            ("done", 2), ("worker 1 has other weights than worker 0", 2),
                            ("; load the same on all workers, or seed the numbers: Lockstep shares them out", 2)):
            self.assertEqual(sum(text in line for line in said), times, (text, said))


class Threads(ModelTest):
    def test_models_of_several_threads_at_once(self):
        expected = self.quiet_fit(small(), self.x, self.y, epochs=5).losses.tolist()
        found = {}

        def train(number):
            found[number] = self.quiet_fit(small(), self.x, self.y, epochs=5).losses.tolist()

        threads = [threading.Thread(target=train, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, {number: expected for number in range(3)})

    def test_errors_belong_to_their_thread(self):
        said = {}

        def fail(name):
            for _ in range(20):
                try:
                    lockstep.Model(name)
                except lockstep.UsageError as error:
                    said.setdefault(name, set()).add(f"'{name}'" in str(error))

        threads = [threading.Thread(target=fail, args=(name,)) for name in ("no-one", "no-two", "no-three")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(said, {name: {True} for name in ("no-one", "no-two", "no-three")})

    def test_a_second_thread_is_refused(self):
        model, errors, begun = small(), [], threading.Event()

        def second():
            begun.wait()
            try:
                model.predict(self.x)
            except lockstep.UsageError as error:
                errors.append(str(error))
            model.interrupt()

        thread = threading.Thread(target=second)
        thread.start()
        with self.assertRaises(KeyboardInterrupt):
            model.fit(self.x, self.y, epochs=10**6, verbose=0, callbacks=[lambda *_: begun.set()])
        thread.join()
        self.assertEqual(len(errors), 1)
        self.assertIn("another thread uses this model", errors[0])


if __name__ == "__main__":
    main()
