# SPDX-License-Identifier: Apache-2.0
"""lockstep.Model beside keras.Model: a model of keras.applications with its weights, from Keras to Lockstep and back, and which of them
trains faster.

Needs Python with Keras, TensorFlow and JAX (tests/programs/keras_python.py says where it is looked for); without it, everything is
skipped.
"""
import contextlib
import inspect
import io
import json
import os
import re
import subprocess
import sys

SOURCE = os.environ["LOCKSTEP_SOURCE"]
sys.path[:0] = [os.path.join(SOURCE, "python"), os.path.join(SOURCE, "tests", "programs")]
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

try:
    import jax  # noqa: F401  (both backends are needed below)
    import keras
    import tensorflow  # noqa: F401
except ImportError:
    from keras_python import keras_python

    other, missing = keras_python() if os.environ["LOCKSTEP_KERAS_BUILT"] == "true" else (None, "libhdf5 or libzip is not here")
    if missing:
        print(f"SKIP python/keras: lockstep.Model was not compared with Keras itself: {missing}")
        sys.exit(77)
    os.execv(other, [other, os.path.abspath(__file__), *sys.argv[1:]])

import time

import numpy
from support import LOCKSTEP, ProgramTest, main

import lockstep
from lockstep import ops

NAME = "MobileNetV2"
SIDE, CLASSES, BATCH = 64, 10, 32
SCRIPT = os.path.join(SOURCE, "lab", "fixtures", "keras_applications.py")


def application():
    keras.utils.set_random_seed(4)
    return getattr(keras.applications, NAME)(weights=None, input_shape=(SIDE, SIDE, 3), classes=CLASSES)


def data(count):
    random = numpy.random.default_rng(2)
    return random.random((count, SIDE, SIDE, 3), dtype="float32"), random.integers(0, CLASSES, count)


NEEDS = {"num_classes": 4, "target_class_ids": [0], "initial_learning_rate": 0.1, "decay_steps": 100, "decay_rate": 0.9, "first_decay_steps": 100,
         "boundaries": [10, 20], "values": [0.1, 0.01, 0.001]}
BASES = ("Loss", "Metric", "Optimizer", "LearningRateSchedule", "OptimizerMap", "MultiOptimizer", "Callback", "CallbackList")


def each_object():
    """Each loss, metric, optimizer and schedule of Keras, with its default options: the keyword of `compile`, the object."""
    needs = {**NEEDS, "fn": keras.losses.mean_squared_error, "inner_optimizer": keras.optimizers.SGD()}
    schedules = keras.optimizers.schedules
    for part, place in (("loss", keras.losses), ("metrics", keras.metrics), ("optimizer", keras.optimizers), ("optimizer", schedules)):
        for name, kind in sorted(vars(place).items()):
            if not inspect.isclass(kind) or name in BASES:
                continue
            given = {}
            for option, parameter in inspect.signature(kind.__init__).parameters.items():
                if option != "self" and parameter.default is inspect.Parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
                    given[option] = needs.get(option, 0.5)
            made = kind(**given)
            yield part, keras.optimizers.SGD(made) if place is schedules else made


def more_objects():
    """Those whose options are lists or other objects."""
    decay = keras.optimizers.schedules.CosineDecay(0.1, 20, warmup_target=0.2, warmup_steps=4)
    yield "metrics", keras.metrics.Precision(thresholds=[0.2, 0.3])
    yield "metrics", keras.metrics.Recall(thresholds=[0.25])
    yield "metrics", keras.metrics.FalseNegatives(thresholds=[0.1, 0.5], name="missed")
    yield "metrics", keras.metrics.AUC(curve="PR", num_thresholds=50)
    yield "metrics", keras.metrics.AUC(thresholds=[0.3, 0.22, 0.25], name="area_of_thresholds_that_are_not_even")
    yield "metrics", keras.metrics.AUC(thresholds=numpy.linspace(0.1, 0.9, 9).tolist(), curve="PR")
    yield "loss", keras.losses.CategoricalCrossentropy(from_logits=False, label_smoothing=0.1)
    yield "optimizer", keras.optimizers.Adam(decay, beta_1=0.8)
    yield "optimizer", keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(decay, momentum=0.5), initial_scale=8.0)


def each_callback(folder):
    """Each callback of Keras, with options with which it does something in two epochs."""
    given = {"BackupAndRestore": (os.path.join(folder, "backup"),), "CSVLogger": (os.path.join(folder, "log.csv"),),
             "LearningRateScheduler": (lambda epoch, rate: rate / (1 + epoch),), "ModelCheckpoint": (os.path.join(folder, "best.keras"),),
             "OrbaxCheckpoint": (os.path.join(folder, "orbax"),), "TensorBoard": (os.path.join(folder, "logs"),)}
    for name, kind in sorted(vars(keras.callbacks).items()):
        if inspect.isclass(kind) and name not in BASES:
            options = {"monitor": "loss"} if name in ("EarlyStopping", "ModelCheckpoint", "ReduceLROnPlateau") else {}
            if name == "OrbaxCheckpoint":  # without its library
                yield name, lambda: object.__new__(kind)
            else:
                yield name, lambda: kind(*given.get(name, ()), **options)


def write_objects(path):
    """What test_model.py reads where there is no Keras."""
    written = {}
    for part, given in each_object():
        config = {"name": "given", **getattr(given, "_fn_kwargs", {}), **given.get_config()}
        config["name"] = re.sub(r"_\d+$", "", str(config["name"]))
        one = {"module": type(given).__module__, "class_name": type(given).__name__, "config": config, "registered_name": None}
        written.setdefault(part, []).append(one)
    with open(path, "w", encoding="utf-8") as file:
        lines = [f' {json.dumps(part)}: [\n  ' + ",\n  ".join(json.dumps(one) for one in objects) + "\n ]" for part, objects in written.items()]
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


class EachClass(ProgramTest):
    """Of losses, metrics, optimizers, schedules and callbacks of the Keras that is here: it does what it does in Keras, or one line says what
    there is instead."""

    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(1)
        self.x, self.labels = random.random((60, 8), dtype="float32"), random.integers(0, 4, 60)
        self.fit = dict(batch_size=20, epochs=3, shuffle=False, verbose=0)

    def beside(self, compiled, callback=keras.callbacks.Callback):
        """Trains both; the refusal of ours, or None."""
        made = " ".join(type(one).__name__ for one in (compiled["loss"], *compiled["metrics"]) if not isinstance(one, str))
        keras.utils.set_random_seed(3)
        theirs = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, "sigmoid" if "Binary" in made else "softmax")])
        ours, y = lockstep.Model(theirs, device="cpu", threads=1), self.labels
        if "Sparse" not in made:
            y = numpy.eye(4, dtype="float32")[y]
        try:
            ours.compile(**compiled)
            mine = ours.fit(self.x, y, callbacks=callback(), **self.fit)
        except lockstep.LockstepError as error:
            return str(error)
        theirs.compile(**compiled)
        given = [one for one in [callback()] if not isinstance(one, keras.callbacks.TensorBoard)]  # which needs its package
        its = theirs.fit(self.x, y, callbacks=given, **self.fit)
        for key, values in its.history.items():
            if key == "learning_rate":
                numpy.testing.assert_allclose(mine.learning_rate, values, rtol=1e-5)
            elif numpy.ndim(values[0]):  # of a list of thresholds
                several = [name for name in mine.history if name.startswith(key + "_at_")]
                numpy.testing.assert_allclose(numpy.transpose([mine.history[name] for name in several]), values, rtol=1e-5, atol=1e-6)
            else:
                numpy.testing.assert_allclose(mine.history[key], values, rtol=1e-4, atol=1e-6, err_msg=key)
        for ours_of, theirs_of in zip(ours.get_weights(), theirs.get_weights()):
            numpy.testing.assert_allclose(ours_of, theirs_of, rtol=1e-3, atol=1e-4)
        return None

    def refused_in_one_line(self, refusal, says):
        self.assertNotIn("\n", refusal)
        self.assertRegex(refusal, says)

    def test_losses_metrics_optimizers_and_schedules(self):
        taken = {"loss": 0, "metrics": 0, "optimizer": 0}
        for part, given in (*each_object(), *more_objects()):
            name = type(given).__name__
            loss = "sparse_categorical_crossentropy" if name.startswith("Sparse") else "categorical_crossentropy"
            if "Binary" in name:
                loss = "mean_squared_error"
            elif name.startswith("Sparse"):
                loss = keras.losses.SparseCategoricalCrossentropy()
            compiled = {"optimizer": "sgd", "loss": loss, "metrics": [], part: [given] if part == "metrics" else given}
            with self.subTest(part, class_name=name):
                refusal = self.beside(compiled)
                if refusal:
                    others = "" if part == "optimizer" else "; lockstep.ops composes others$"
                    self.refused_in_one_line(refusal, f"{part}: '{name}' is (not supported yet; supported: \\w+|unknown; did you mean '\\w+').*{others}")
                taken[part] += not refusal
        print(f"Keras {keras.__version__}: of {taken} the values are Keras's", flush=True)

    def test_callbacks(self):
        refused = []
        for name, made in each_callback(self.folder):
            with self.subTest(name):
                refusal = self.beside({"optimizer": keras.optimizers.SGD(0.1), "loss": "categorical_crossentropy", "metrics": []}, made)
                if refusal:
                    self.refused_in_one_line(refusal, f"{name} of Keras needs a keras.Model; here ")
                    refused.append(name)
        self.assertEqual(refused, ["History", "OrbaxCheckpoint", "SwapEMAWeights"])


class Operations(ProgramTest):
    """lockstep.ops beside keras.ops."""

    def test_defaults(self):
        seen = 0
        for name, ours in vars(ops).items():
            if name[0] == "_" or not inspect.isfunction(ours) or ours.__module__ != ops.__name__ or not hasattr(keras.ops, name):
                continue
            theirs = inspect.signature(getattr(keras.ops, name)).parameters
            with self.subTest(name):
                for parameter in inspect.signature(ours).parameters.values():
                    self.assertIn(parameter.name, theirs)
                    if parameter.default is not parameter.empty:
                        self.assertEqual(parameter.default, theirs[parameter.name].default, parameter.name)
                seen += 1
        self.assertGreater(seen, 45)

    def test_values(self):
        """What test_ops.py expects of each of its rows, from keras.ops in the place of lockstep.ops."""
        import test_ops

        of_lockstep = {"activation", "conv", "dense", "one_hot", "reshape", "sum of all"}  # where a row has what Keras has not
        self.addCleanup(setattr, test_ops, "ops", test_ops.ops)
        test_ops.ops = keras.ops
        for row, (compose, expected) in test_ops.EACH.items():
            if row not in of_lockstep:
                with self.subTest(row):
                    found = keras.ops.convert_to_numpy(compose(keras.ops.convert_to_tensor(test_ops.X)))
                    numpy.testing.assert_allclose(found, expected(test_ops.X.astype("float64")), rtol=2e-5, atol=2e-5)


class BesideKeras(ProgramTest):
    def test_it_is_as_near_to_keras_as_its_backends_to_each_other(self):
        done = subprocess.run([sys.executable, SCRIPT, "--lockstep=" + LOCKSTEP, "--python", NAME], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=1800)
        print(done.stdout, flush=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        row = done.stdout.splitlines()[-1]
        self.assertTrue(row.startswith(f"| {NAME} |") and row.count("|") == 7 and "!" not in row, row)

    def test_weights_there_and_back(self):
        theirs, (x, y) = application(), data(64)
        ours = lockstep.Model(theirs)
        self.assertEqual(ours.output_shape, theirs.output_shape)
        self.assertEqual([array.shape for array in ours.get_weights()], [array.shape for array in theirs.get_weights()])
        for mine, its in zip(ours.get_weights(), theirs.get_weights()):
            self.assertEqual(mine.tobytes(), its.tobytes())
        ours.fit(x, y, batch_size=BATCH, verbose=0)
        ours.copy_weights_to(theirs)
        numpy.testing.assert_allclose(ours.predict(x), theirs.predict(x, verbose=0), atol=1e-5)

    def test_keras_loads_a_model_of_called_layers(self):
        random = numpy.random.default_rng(1)
        a, b = random.random((20, 8), dtype="float32"), random.random((20, 4), dtype="float32")
        made = {}
        for layers, model_of in ((lockstep.layers, lockstep.Model), (keras.layers, keras.Model)):
            left, right, twice = layers.Input((8,), name="left"), layers.Input((4,), name="right"), layers.Dense(8, "tanh", name="twice")
            joined = layers.Concatenate(name="joined")([twice(twice(left)), layers.Dense(8, name="other")(right)])
            scores = layers.Dense(1, name="scores")(layers.Subtract()([joined, layers.Multiply()([joined, layers.Dense(16, name="weights")(joined)])]))
            made[layers] = model_of(inputs=[left, right], outputs=scores, name="two")
        ours, theirs = made.values()
        ours.save(self.path("two.keras"))
        ours.copy_weights_to(theirs)
        for model in (theirs, keras.models.load_model(self.path("two.keras"))):
            numpy.testing.assert_allclose(model.predict([a, b], verbose=0), ours.predict([a, b], verbose=0), atol=1e-5)

    def test_what_it_was_compiled_with(self):
        theirs = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
        theirs.compile(keras.optimizers.SGD(0.25, momentum=0.5), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
        self.assertAlmostEqual(self.compiled(lockstep.Model(theirs)).learning_rate, 0.25)
        x, y = numpy.random.default_rng(1).random((60, 8), dtype="float32"), numpy.arange(60) % 4
        ours = lockstep.Model(theirs)
        ours.compile(keras.optimizers.SGD(0.25, momentum=0.5), keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                     [keras.metrics.SparseTopKCategoricalAccuracy(k=2)])
        history = ours.fit(x, y, batch_size=20, epochs=2, shuffle=False, verbose=0)
        expected = theirs.fit(x, y, batch_size=20, epochs=2, shuffle=False, verbose=0)
        numpy.testing.assert_allclose(history.history["loss"], expected.history["loss"], rtol=1e-5)
        with contextlib.redirect_stderr(io.StringIO()) as said:  # of a model whose optimizer has a state
            again = self.compiled(lockstep.Model(theirs))
            again.fit(x, y, batch_size=20, verbose=0)
            again.copy_weights_to(theirs)
        self.assertIn("sequential: from its compile_config: optimizer sgd:learning_rate=0.25", re.sub(r"sequential_\d+", "sequential", said.getvalue()))
        self.assertNotIn("weights.h5", said.getvalue())

    def test_datasets_and_callbacks_of_keras(self):
        x, y = numpy.random.default_rng(1).random((60, 8), dtype="float32"), numpy.arange(60) % 4

        class Batches(keras.utils.PyDataset):
            def __len__(self):
                return 3

            def __getitem__(self, index):
                return x[20 * index:20 * index + 20], y[20 * index:20 * index + 20]

        theirs = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
        theirs.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        fit = dict(batch_size=20, epochs=2, shuffle=False, verbose=0)
        expected = lockstep.Model(theirs).fit(x, y, **fit).losses.tolist()
        whole = tensorflow.data.Dataset.from_tensor_slices((x, y)).batch(20)
        for given in (whole, Batches()):
            for steps in (None, 3):
                self.assertEqual(lockstep.Model(theirs).fit(given, steps_per_epoch=steps, **fit).losses.tolist(), expected)
        self.assertEqual(lockstep.Model(theirs).fit(whole.repeat(), steps_per_epoch=3, **fit).losses.tolist(), expected)
        with self.assertRaisesRegex(lockstep.UsageError, "without an end"):
            lockstep.Model(theirs).fit(whole.repeat(), **fit)
        with self.assertRaisesRegex(lockstep.InputError, "a single number in it"):
            lockstep.Model(theirs).fit(whole.unbatch(), **fit)
        theirs.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
        calls = keras.callbacks
        given = [calls.ModelCheckpoint(self.path("best.keras"), monitor="val_accuracy", save_best_only=True), calls.ReduceLROnPlateau(),
                 calls.ModelCheckpoint(self.path("{epoch}-{val_loss:.1f}.weights.h5"), save_weights_only=True), calls.TerminateOnNaN(),
                 calls.TensorBoard(self.path("logs"), histogram_freq=1), calls.BackupAndRestore(self.path("backup")),
                 calls.EarlyStopping("val_accuracy", patience=9), calls.LearningRateScheduler(lambda epoch, rate: rate / 2),
                 calls.CSVLogger(self.path("log.csv"))]
        lockstep.Model(theirs).fit(x, y, callbacks=given, validation_data=(x, y.astype("float32")), **fit)
        made = sorted(os.listdir(self.folder))
        self.assertRegex(" ".join(made), r"^1-\d.\d.weights.h5 2-\d.\d.weights.h5 backup best.keras log.csv logs$")
        self.assertEqual(os.listdir(self.path("backup")), [".lock"] if os.listdir(self.path("backup")) else [])
        again = lockstep.Model(keras.models.load_model(self.path("best.keras")))
        again.fit(x, y.astype("float32"), initial_epoch=2, validation_data=(x, y), **{**fit, "epochs": 3})
        again.load_weights(self.path(made[1]))
        for callback in (calls.ModelCheckpoint(self.path("m.keras"), save_freq=2), calls.TensorBoard(write_images=True)):
            with self.assertRaisesRegex(lockstep.UsageError, "which Lockstep does not do"):
                lockstep.Model(theirs).fit(x, y, callbacks=callback, **fit)
        unbuilt = keras.Sequential([keras.layers.Dense(4)])
        unbuilt.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        for data in ((x, y), (whole,)):
            self.assertEqual(len(lockstep.Model(keras.models.clone_model(unbuilt)).fit(*data, **fit).losses), 6)
        huber = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
        huber.compile("sgd", keras.losses.Huber(delta=0.01))
        numpy.testing.assert_allclose(lockstep.Model(huber).evaluate(x, y, verbose=0), huber.evaluate(x, y, verbose=0), rtol=1e-5)
        seen = []
        lockstep.Model(theirs).fit(x, y, callbacks=keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(epoch)), **fit)
        self.assertEqual(seen, [0, 1])

    def test_a_loop_beside_one_of_gradient_tape(self):
        random = numpy.random.default_rng(1)
        x, y = random.random((60, 8), dtype="float32"), random.integers(0, 4, 60)
        theirs = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(4)])
        loss_of, optimizer = keras.losses.SparseCategoricalCrossentropy(from_logits=True), keras.optimizers.Adam(0.01)
        ours = lockstep.Model(theirs, strategy="ring", replicas=2)
        ours.compile(optimizer, loss_of)
        strategy = ours.strategy
        dataset = strategy.experimental_distribute_dataset(x, y, batch_size=20, shuffle=False)

        def step(replica):
            loss, gradients = replica.value_and_grad()
            replica.apply_gradients(gradients)
            return loss

        for epoch in range(3):
            for number, batch in enumerate(dataset):
                images, labels = x[20 * number:20 * number + 20], y[20 * number:20 * number + 20]
                with tensorflow.GradientTape() as tape:
                    value = loss_of(labels, theirs(images, training=True))
                optimizer.apply_gradients(zip(tape.gradient(value, theirs.trainable_variables), theirs.trainable_variables))
                self.assertAlmostEqual(strategy.reduce("sum", strategy.run(step, args=(batch,))), float(value), 5)
        for mine, its in zip(ours.get_weights(), theirs.get_weights()):
            numpy.testing.assert_allclose(mine, its, atol=1e-5)

    @staticmethod
    def compiled(model):
        model.compile()
        return model

    def test_the_code_of_the_page(self):
        with open(os.path.join(SOURCE, "docs", "python.md"), encoding="utf-8") as file:
            block = re.search(r"^```py\n(.*?)^```", file.read(), re.M | re.S)[1]
        space = dict(zip("xy", data(64)))
        exec(compile(block, "docs/python.md", "exec"), space)
        self.assertEqual(space["model"].replicas, 2)

    def test_speed(self):
        """Examples a second of `fit`, the two taking turns after a first epoch; no figure is asserted."""
        x, y = data(8 * BATCH)
        theirs = application()
        ours = lockstep.Model(theirs)
        theirs.compile("adam", "sparse_categorical_crossentropy")
        ours.compile("adam", "sparse_categorical_crossentropy")
        seconds = {"keras": [], "lockstep": []}
        for turn in range(4):
            for name, model in (("keras", theirs), ("lockstep", ours)):
                begin = time.perf_counter()
                model.fit(x, y, batch_size=BATCH, epochs=1, verbose=0)
                seconds[name].append(time.perf_counter() - begin)
        speeds = {name: sorted(len(x) / second for second in times[1:]) for name, times in seconds.items()}
        shown = ", ".join(f"{name} {values[1]:.0f} examples/s ({values[0]:.0f} .. {values[-1]:.0f})" for name, values in speeds.items())
        print(f"{NAME}, {SIDE} x {SIDE}, batch {BATCH}, {os.cpu_count()} cores: {shown}; "
              f"ratio {speeds['lockstep'][1] / speeds['keras'][1]:.2f}", flush=True)
        self.assertEqual(len(speeds["lockstep"]), 3)


if __name__ == "__main__":
    if os.environ.get("KERAS_OBJECTS"):
        write_objects(os.environ["KERAS_OBJECTS"])
    main()
