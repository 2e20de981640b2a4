# SPDX-License-Identifier: Apache-2.0
"""Models and weights as users of Keras bring them: docs/models.md and docs/weights.md, whose blocks are run in order, files of other formats,
models' compile configurations, and the shapes of tutorials' models."""
import gzip
import io
import json
import os
import pickle
import re
import shlex
import struct
import subprocess
import sys
import types
import zipfile

from support import BAD_INPUT, DONE, FASHION, KERAS_FILES, LOCKSTEP, UNAVAILABLE, UNTIMED, USAGE, ProgramTest, main, read_json, tensors, write_json

SOURCE = os.environ["LOCKSTEP_SOURCE"]
PAGE = os.path.join(SOURCE, "docs", "models.md")
WEIGHTS_PAGE = os.path.join(SOURCE, "docs", "weights.md")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
SYNTHETIC = "--dataset=synthetic:examples=60"
TRAIN = ("train", "--quiet", SYNTHETIC, "--steps=2", "--validation=off")

SGD = {"module": "keras.optimizers", "class_name": "SGD", "registered_name": None,
       "config": {"name": "SGD", "learning_rate": 0.5, "weight_decay": None, "clipnorm": None, "use_ema": False, "momentum": 0.0,
                  "nesterov": False}}
MSE = {"module": "keras.losses", "class_name": "MeanSquaredError", "registered_name": None,
       "config": {"name": "mean_squared_error", "reduction": "sum_over_batch_size"}}


def layer(class_name, **config):
    return {"module": "keras.layers", "class_name": class_name, "config": config, "registered_name": None}


def sequential(*layers, shape=(28, 28, 1), **more):
    first = layer("InputLayer", batch_shape=[None, *shape], name="input_layer")
    return {"module": "keras", "class_name": "Sequential", "config": {"name": "sequential", "layers": [first, *layers]},
            "registered_name": None, **more}


FLATTEN, DENSE = layer("Flatten", name="flatten"), layer("Dense", name="dense", units=10)


class ModelTest(ProgramTest):
    def write(self, model, name="mine.json"):
        write_json(self.path(name), model)
        return "--model=" + self.path(name)

    def all_refused(self, *arguments, says, code=BAD_INPUT):
        """Each line is an error, and each text of `says` in one of its own."""
        outcome = self.lockstep(*arguments)
        self.assertEqual(outcome.code, code, outcome.err)
        lines = [line for line in outcome.err.splitlines() if "warning" not in line]
        self.assertEqual(len(lines), len(says), outcome.err)
        for line, text in zip(lines, says):
            self.assertTrue(line.startswith("lockstep: error: "), line)
            self.assertIn(text, line)


class Compiled(ModelTest):
    def test_what_the_command_line_leaves_open_is_the_files_in_train_evaluate_and_compare(self):
        model = self.write(sequential(FLATTEN, layer("Dense", name="dense", units=1),
                                      compile_config={"optimizer": SGD, "loss": MSE, "metrics": None}))
        what = "mine.json: from the file's compile_config: "
        loss = "loss mean_squared_error"
        report = self.path("report.json")
        done = self.lockstep("train", SYNTHETIC, "--steps=2", "--validation=off", model, "--report=" + report)
        self.assertEqual(done.code, DONE, done.err)
        self.assertIn(what + "optimizer sgd:learning_rate=0.5,momentum=0,nesterov=off, " + loss + "\n", done.err)
        self.assertEqual(read_json(report)["optimizer"],
                         {"name": "sgd", "learning_rate": 0.5, "momentum": 0.0, "nesterov": False})
        done = self.lockstep("evaluate", model, SYNTHETIC)
        self.assertEqual(done.code, DONE, done.err)
        self.assertIn(what + loss + "\n", done.err)
        self.assertNotIn("accuracy", done.out)
        done = self.lockstep("compare", model, SYNTHETIC, "--strategies=ring", "--steps=2", "--validation=off",
                             UNTIMED, "--report=" + report)
        self.assertEqual(done.err.count(what), 1, done.err)
        self.assertIn("optimizer sgd:learning_rate=0.5", done.err)
        self.assertEqual(read_json(report)["optimizer"], "sgd:learning_rate=0.5,momentum=0,nesterov=off")

    def test_the_command_line_overrides_the_file(self):
        model = self.write(sequential(FLATTEN, DENSE, compile_config={"optimizer": "ftrl", "loss": MSE}))
        report = self.train(model, SYNTHETIC, "--steps=1", "--validation=off", "--optimizer=adam",
                            "--loss=sparse_categorical_crossentropy:from_logits=true")
        self.assertEqual(report["optimizer"]["name"], "adam")

    def test_what_is_not_supported_is_named_with_its_option(self):
        model = self.write(sequential(FLATTEN, DENSE, compile_config={"optimizer": "ftrl", "loss": "dice"}))
        says = ("compile_config.optimizer: 'ftrl' is not supported yet; supported: sgd, adam, adamw, rmsprop, adagrad, adadelta, adamax, nadam, lamb; --optimizer= overrides it",
                "compile_config.loss: 'dice' is not supported yet; supported: ")
        self.all_refused(*TRAIN, model, says=says)
        self.all_refused("compare", model, SYNTHETIC, "--strategies=ring", "--steps=2", says=says)
        self.all_refused("evaluate", model, SYNTHETIC, says=says[1:])  # which uses no optimizer

    def test_a_model_that_is_not_compiled_says_nothing(self):
        done = self.lockstep("evaluate", self.write(sequential(FLATTEN, DENSE, compile_config={})), SYNTHETIC)
        self.assertEqual(done.code, DONE, done.err)
        self.assertNotIn("compile_config", done.err)


class Refused(ModelTest):
    def test_all_problems_are_said_at_once(self):
        model = self.write(sequential(layer("Conv2D", name="c", filters=3, kernel_size=3, activation="celu"),
                                      layer("ConvLSTM2D", name="bn"), layer("RandomHue", name="g"), FLATTEN,
                                      layer("Dense", name="d", units=10, kernel_regularizer=layer("OrthogonalRegularizer", factor=0.1))))
        says = ("layer 'c' (Conv2D): activation: 'celu' is not supported yet; supported: linear, relu,",
                "layer 'bn' (ConvLSTM2D): this layer is not supported: take TimeDistributed(Conv2D)",
                "layer 'g' (RandomHue): this layer is not supported: change the data",
                "layer 'd' (Dense): kernel_regularizer: OrthogonalRegularizer is not supported, and ignoring it would change the loss and the training; set it to null to train without it")
        self.all_refused("summary", model, says=says)
        self.all_refused(*TRAIN, model, says=says)
        self.all_refused("compare", model, SYNTHETIC, "--strategies=ring", "--steps=2", says=says)

    def test_what_only_training_minds(self):
        model = self.write(sequential(FLATTEN, dict(DENSE, config=dict(DENSE["config"], bias_constraint="non_neg"))))
        says = ("layer 'dense' (Dense): bias_constraint: non_neg is not supported, and ignoring it would change the training; set it to null to train without it",)
        for command in ("summary", "evaluate"):
            done = self.lockstep(command, model, SYNTHETIC)
            self.assertEqual(done.code, DONE, done.err)
        self.all_refused(*TRAIN, model, says=says)
        self.all_refused("compare", model, SYNTHETIC, "--strategies=ring", "--steps=2", says=says)

    def test_no_suggestion_is_another_function(self):
        for option, says in (("--optimizer=ftrl", "'ftrl' is not supported yet; supported: sgd, adam"),
                             ("--optimizer=adm", "'adm' is unknown; did you mean 'adam'?"),
                             ("--optimizer=AdamW", "'AdamW' is unknown; did you mean 'adamw'?"),
                             ("--metrics=AUC", "'AUC' is unknown; did you mean 'auc'?"),
                             ("--metrics=none,accuracy", "none cannot be combined with other metrics; leave it out"),
                             ("--loss=tversky", "'tversky' is not supported yet; supported: sparse_categorical_crossentropy,"),
                             ("--loss=dice", "'dice' is not supported yet; supported: sparse_"),
                             ("--metrics=mean_relative_error", "'mean_relative_error' is not supported yet; supported: accuracy, none")):
            outcome = self.refused(USAGE, *TRAIN, "--model=mlp", option, says=(says,))
            if "not supported yet" in says:
                self.assertNotIn("did you mean", outcome.err)

    def test_what_is_excluded_from_weight_decay_in_vain_is_said(self):
        for option, says in (("adamw:exclude_from_weight_decay=bias", None),
                             ("adamw:exclude_from_weight_decay=bias:gama", "no variable of model 'mlp' has 'gama' in its name"),
                             ("adam:exclude_from_weight_decay=bias", "changes nothing, as weight_decay is 0")):
            outcome = self.lockstep(*TRAIN, "--model=mlp", "--optimizer=" + option)
            self.assertEqual(outcome.code, DONE, outcome.err)
            if says:
                self.assertIn("warning: --optimizer: exclude_from_weight_decay=", outcome.err)
                self.assertIn(says, outcome.err)
            else:
                self.assertNotIn("exclude_from_weight_decay", outcome.err)

    def other_files(self):
        archive, header = io.BytesIO(), json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("config.json", "{}")
        return {"a ZIP archive": archive.getvalue(), "an HDF5 file": b"\x89HDF\r\n\x1a\n" + bytes(100),
                "a NumPy array": b"\x93NUMPY\1\0v\0" + bytes(100), "a Python pickle": pickle.dumps([1] * 50, 4),
                "compressed with gzip": gzip.compress(bytes(1000)), "JSON": b'{"class_name": "Sequential", "config": {}}',
                "a safetensors file": struct.pack("<Q", len(header)) + header + bytes(4)}

    def test_files_of_other_formats_are_recognised(self):
        for kind, content in self.other_files().items():
            with self.subTest(kind):
                with open(self.path("file"), "wb") as file:
                    file.write(content)
                keras = kind in ("a ZIP archive", "an HDF5 file")
                if keras and not KERAS_FILES:
                    self.refused(UNAVAILABLE, "summary", "--model=" + self.path("file"), says=("libhdf5-dev", "libzip-dev"))
                    continue
                if keras:  # read by another program; test_keras_files.py
                    self.refused(BAD_INPUT, "summary", "--model=" + self.path("file"), says=(kind.split()[1],))
                    continue
                if kind != "a safetensors file":
                    outcome = self.refused(BAD_INPUT, "evaluate", "--model=mlp", SYNTHETIC, "--initial-weights=" + self.path("file"),
                                           says=("is " + kind, "not a safetensors file", "docs/weights.md"))
                    self.assertNotIn("bytes", outcome.err)
                if kind != "JSON":
                    self.refused(BAD_INPUT, "summary", "--model=" + self.path("file"), says=("is " + kind, "not JSON", "docs/models.md"))
                    self.refused(BAD_INPUT, "summary", "--model=file", says=("is " + kind, "not JSON"))


class Shapes(ModelTest):
    def test_the_models_of_tutorials_take_pictures(self):
        dense = layer("Dense", name="dense", units=10)
        losses = []
        for shape, layers in (((28, 28, 1), (FLATTEN, dense)), ((28, 28), (FLATTEN, dense)), ((784,), (dense,))):
            model = self.write(sequential(*layers, shape=shape))
            losses.append(self.train(model, SYNTHETIC, "--steps=3", "--validation=on")["losses"])
            self.assertEqual(self.lockstep("evaluate", model, SYNTHETIC).code, DONE)
            done = self.lockstep("compare", model, SYNTHETIC, "--strategies=ring", "--steps=2", "--validation=off", UNTIMED)
            self.assertEqual(done.code, DONE, done.err)
        self.assertEqual(losses[0], losses[1])
        self.assertEqual(losses[0], losses[2])

    def test_otherwise_both_shapes_are_named(self):
        model = self.write(sequential(DENSE, shape=(783,)))
        for command in (TRAIN, ("evaluate", SYNTHETIC)):
            self.refused(BAD_INPUT, *command, model, says=("(None, 783)", "(None, 28, 28, 1)"))


# ---- The page ----

class Array:
    """What the page uses of a NumPy array."""

    def __init__(self, values, shape):
        self.values, self.shape, self.nbytes = list(values), tuple(shape), 4 * len(values)

    def astype(self, dtype):
        assert dtype == "<f4", dtype
        return self

    def tobytes(self):
        return struct.pack(f"<{len(self.values)}f", *self.values)

    def reshape(self, shape):
        return Array(self.values, shape)


class Variable:
    """What the page uses of a variable of Keras."""

    def __init__(self, name, values, shape):
        self.name, self.array = name, Array(values, shape)

    def numpy(self):
        return self.array

    def assign(self, array):
        assert array.shape == self.array.shape, (array.shape, self.array.shape)
        self.array = array


class Model:
    """A Sequential model of Keras 3 (names of variables: "kernel") or Keras 2 ("dense/kernel:0")."""

    def __init__(self, config, generation):
        self.config = config
        values = [((7 * i) % 13 - 6) / 100 for i in range(7840)]
        pattern = "{}/{}:0" if generation == 2 else "{1}"
        self.variables = [Variable(pattern.format("dense", "kernel"), values, (784, 10)),
                          Variable(pattern.format("dense", "bias"), [0.5] * 10, (10,))]
        self.layers = [types.SimpleNamespace(name="flatten", weights=[]),
                       types.SimpleNamespace(name="dense", weights=self.variables)]

    def to_json(self):
        return json.dumps(self.config)

    def save_weights(self, path):
        header, data = {}, b""
        for variable in self.variables:
            name = "dense/" + variable.name.split("/")[-1].split(":")[0]
            header[name] = {"dtype": "F32", "shape": list(variable.array.shape), "data_offsets": [len(data), len(data) + variable.array.nbytes]}
            data += variable.array.tobytes()
        text = json.dumps(header).encode()
        with open("between.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + data)
        self.convert("between.safetensors", path)

    def load_weights(self, path):
        self.convert(path, "between.safetensors")
        for name, (shape, values) in tensors("between.safetensors").items():
            variable = next(v for v in self.variables if name.split("/")[1] in v.name)
            variable.assign(Array(values, shape))

    @staticmethod
    def convert(*files):
        """As Keras's own files are written and read by programs/keras_files with Keras."""
        subprocess.run([LOCKSTEP, "convert", *files, "--model=mine.json"], check=True, stderr=subprocess.DEVNULL)


class Page(ModelTest):
    def run_page(self, generation):
        numpy = types.ModuleType("numpy")
        numpy.frombuffer = lambda data, dtype: Array(struct.unpack(f"<{len(data) // 4}f", data), (len(data) // 4,))
        model = Model(sequential(FLATTEN, DENSE, compile_config={"optimizer": SGD, "metrics": ["accuracy"]}), generation)
        before, names = list(model.variables[0].array.values), {"model": model}
        blocks = []
        for page in (PAGE, WEIGHTS_PAGE):
            with open(page, encoding="utf-8") as file:
                blocks += BLOCK.findall(file.read())
        self.assertEqual([language for language, _ in blocks],
                         ["python", "sh", "python", "text", "c", "c", "c", "python", "python", "sh", "python", "py"])
        here = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, here)
        saved = sys.modules.get("numpy")
        sys.modules["numpy"] = numpy
        try:
            for language, text in blocks:
                if language == "python":
                    exec(compile(text, PAGE, "exec"), names)
                for line in text.splitlines() if language == "sh" else []:
                    words = shlex.split(line)
                    more = ["--steps=3", "--validation=off"] if words[1] == "train" else []
                    done = self.lockstep(*words[1:], *more)
                    self.assertEqual(done.code, DONE, (line, done.err))
                    if words[1] == "train":
                        self.assertIn("compile_config: optimizer sgd:learning_rate=0.5", done.err)
        finally:
            sys.modules.pop("numpy")
            if saved:
                sys.modules["numpy"] = saved
        return model, before

    def test_its_blocks_run_in_order_and_weights_go_there_and_back(self):
        self.need(FASHION)
        if not KERAS_FILES:
            self.skipTest("libhdf5 or libzip is not here: the page's .weights.h5 cannot be read")
        for generation in (3, 2):
            with self.subTest(generation):
                model, before = self.run_page(generation)
                start, trained = tensors("start.safetensors"), tensors("trained.safetensors")
                first = ([784, 10], struct.unpack("<7840f", struct.pack("<7840f", *before)))
                for name, expected in (("mine", first), ("trained", start["dense/kernel"])):  # what Lockstep was given, and gave back
                    model.convert(name + ".weights.h5", "found.safetensors")
                    self.assertEqual(tensors("found.safetensors")["dense/kernel"], expected)
                self.assertNotEqual(start["dense/kernel"], first)
                self.assertEqual(sorted(trained), ["dense/bias", "dense/kernel"])
                self.assertNotEqual(start["dense/kernel"], trained["dense/kernel"])
                self.assertEqual(tuple(model.variables[0].array.values), trained["dense/kernel"][1])  # what was loaded

    def test_every_option_of_the_page_is_one(self):
        with open(PAGE, encoding="utf-8") as file:
            commands = re.sub(r"^```text\n.*?^```$", "", file.read(), flags=re.M | re.S)  # without those of other programs
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", commands))
        known = set()
        for command in ("train", "evaluate", "predict", "compare", "summary"):
            known |= set(re.findall(r"--[a-z-]+", self.lockstep(command, "--help=all").out))
        self.assertGreater(len(named), 8)
        self.assertEqual(named - known, set())


if __name__ == "__main__":
    main()
