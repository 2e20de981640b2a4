# SPDX-License-Identifier: Apache-2.0
"""Files of Keras as users bring them: .keras, .weights.h5 and .h5 as models and weights, written and converted."""
import gzip
import json
import os
import struct
import subprocess
import unittest

from support import BAD_INPUT, DONE, FIXTURES, KERAS_FILES, UNAVAILABLE, USAGE, ProgramTest, main, read_json, tensors, write_json

FILES = os.path.join(FIXTURES, "keras", "files")
DATA = "--dataset=synthetic:shape=4x4x1,examples=50"
TRAIN = ("train", DATA, "--steps=2", "--validation=off")
READABLE = ("small.keras", "small.weights.h5", "small.h5", "small.keras-2.h5", "small.other-names.h5", "small.keras-2.weights-only.h5",
            "small.keras-2.13.weights.h5")


class KerasTest(ProgramTest):
    def setUp(self):
        super().setUp()
        for name in os.listdir(FILES):
            with gzip.open(os.path.join(FILES, name), "rb") as packed, open(self.path(name[:-3]), "wb") as file:
                file.write(packed.read())

    def values(self, name):
        return tensors(self.path(name))

    def structure(self, name):
        """Paths, shapes and values in an HDF5 file, and Keras's names of its layers, as the program for such files hands them over."""
        program = os.path.join(os.environ["LOCKSTEP_BUILD"], "tools", "keras-files", "lockstep-keras-files")
        with open(self.path(name), "rb") as file, open(self.path("raw"), "w+b") as raw:
            # The descriptors 3 and 4 are the program's input and output.
            done = subprocess.run(["sh", "-c", f'exec "$0" read 60 3<&{file.fileno()} 4>&{raw.fileno()}', program], stdout=subprocess.PIPE,
                                  pass_fds=(file.fileno(), raw.fileno()))
        self.assertEqual(done.stdout, b"ok")
        with open(self.path("raw"), "rb") as file:
            texts = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))["__metadata__"]
        return tensors(self.path("raw")), json.loads(texts["names"])

    def done(self, *arguments, **more):
        outcome = self.lockstep(*arguments, **more)
        self.assertEqual(outcome.code, DONE, outcome.err)
        return outcome


@unittest.skipUnless(KERAS_FILES, "the program for files of Keras was not built (libhdf5-dev, libzip-dev)")
class Files(KerasTest):
    def test_every_format_gives_the_same_weights(self):
        expected = self.values("small.expected.safetensors")
        for name in READABLE:
            with self.subTest(name):
                self.done("convert", name, "out.safetensors", "--model=small.json")
                self.assertEqual(self.values("out.safetensors"), expected)

    def test_a_file_with_a_model_needs_no_other(self):
        expected = self.values("small.expected.safetensors")
        for name in ("small.keras", "small.h5"):
            with self.subTest(name):
                self.done("convert", name, "out.safetensors")
                self.assertEqual(self.values("out.safetensors"), expected)
                summary = self.done("summary", "--model=" + name).out
                self.assertIn('Model: "small"', summary)
                self.assertIn("Total params: 177", summary)

    def test_what_is_written_is_read_back(self):
        expected = self.values("small.expected.safetensors")
        for name in ("out.weights.h5", "out.keras"):
            with self.subTest(name):
                self.done("convert", "small.expected.safetensors", name, "--model=small.json")
                self.done("convert", name, "back.safetensors", "--model=small.json")
                self.assertEqual(self.values("back.safetensors"), expected)
        self.done("convert", "out.keras", "again.safetensors")
        self.assertEqual(self.values("again.safetensors"), expected)

    def test_what_is_written_has_the_structure_of_keras(self):
        for name in ("small", "inside"):
            with self.subTest(name):
                self.done("convert", name + ".expected.safetensors", "out.weights.h5", f"--model={name}.keras")
                own, own_names = self.structure("out.weights.h5")
                keras, keras_names = self.structure(name + ".weights.h5")
                self.assertEqual(own, {path: value for path, value in keras.items() if not path.startswith("optimizer/")})
                # Keras also writes groups of layers without variables.
                self.assertEqual(own_names, {group: keras_names[group] for group in own_names})
                self.assertEqual({path.split("/vars/")[0] for path in own} - set(own_names), set())

    def test_a_normalization_is_written_with_its_count(self):
        """Keras's Normalization has three variables; the last, how many examples it has seen, is no weight. With a mean it has none."""
        model = {"module": "keras", "class_name": "Sequential", "registered_name": None, "config": {"name": "adapted", "layers": [
            {"module": "keras.layers", "class_name": name, "registered_name": None, "config": {"name": name.lower(), **config}}
            for name, config in (("InputLayer", {"batch_shape": [None, 4, 4, 1]}), ("Normalization", {"axis": -1}),
                                 ("Rescaling", {"scale": 2}), ("Normalization", {"name": "given", "mean": 0.5, "variance": 2.0}), ("Flatten", {}),
                                 ("Dense", {"units": 10}))]}}
        write_json(self.path("adapted.json"), model)
        self.done(*TRAIN, "--quiet", "--model=adapted.json", "--save-weights=adapted.weights.h5")
        written, _ = self.structure("adapted.weights.h5")
        shapes = {path: value[0] for path, value in written.items() if path.startswith("layers/normalization")}
        self.assertEqual(shapes, {"layers/normalization/vars/0": [1], "layers/normalization/vars/1": [1],
                                  "layers/normalization/vars/2": []})
        self.done("convert", "adapted.weights.h5", "adapted.safetensors", "--model=adapted.json")
        self.assertEqual(sorted(self.values("adapted.safetensors")),
                         ["dense/bias", "dense/kernel", "normalization/mean", "normalization/variance"])

    def test_constants_are_in_no_file(self):
        """Numbers of operations (x / 2, clip) and of a Normalization with given statistics are no weights, as in Keras."""
        def layer(module, name, config, *calls):
            tensors = [{"class_name": "__keras_tensor__", "config": {"shape": [None, 4], "dtype": "float32", "keras_history": [source, 0, 0]}}
                       if isinstance(source, str) else source for source in calls]
            return {"module": module, "class_name": name, "registered_name": None, "config": {"name": name.lower(), **config},
                    "name": name.lower(), "inbound_nodes": [{"args": tensors, "kwargs": {}}] if calls else []}

        layers = [layer("keras.layers", "InputLayer", {"batch_shape": [None, 4]}),
                  layer("keras.layers", "Normalization", {"axis": -1, "mean": [1, 2, 3, 4], "variance": [1, 1, 1, 1]}, "inputlayer"),
                  layer("keras.src.ops.numpy", "Multiply", {}, "normalization", [1.0, 2.0, 3.0, 4.0]),
                  layer("keras.src.ops.numpy", "Divide", {}, 1.0, "multiply"),
                  layer("keras.src.ops.numpy", "Clip", {"x_min": -1.0, "x_max": 1.0}, "divide"),
                  layer("keras.layers", "Dense", {"units": 3}, "clip")]
        write_json(self.path("constants.json"), {"module": "keras", "class_name": "Functional", "registered_name": None,
                   "config": {"name": "constants", "layers": layers, "input_layers": [["inputlayer", 0, 0]],
                              "output_layers": [["dense", 0, 0]]}})
        data = "--dataset=synthetic:shape=4,classes=3,examples=50"
        for name in ("out.weights.h5", "out.keras"):
            with self.subTest(name):
                self.done("train", data, "--steps=2", "--validation=off", "--quiet", "--model=constants.json", "--save-weights=" + name)
                self.done("convert", name, "back.safetensors", "--model=constants.json")
                self.assertEqual(sorted(self.values("back.safetensors")), ["dense/bias", "dense/kernel"])
        self.assertEqual(set(self.structure("out.weights.h5")[0]), {"layers/dense/vars/0", "layers/dense/vars/1"})

    def test_models_inside_models_go_there_and_back(self):
        expected = self.values("inside.expected.safetensors")
        self.assertIn("deep/encoder/batch_normalization_2/moving_mean", expected)
        for source in ("inside.keras", "inside.weights.h5", "inside.h5", "inside.expected.safetensors"):
            for between in ("out.weights.h5", "out.keras"):
                with self.subTest(f"{source} to {between}"):
                    self.done("convert", source, between, "--model=inside.keras")
                    self.done("convert", between, "back.safetensors", "--model=inside.keras")
                    self.assertEqual(self.values("back.safetensors"), expected)

    def test_a_model_on_each_step_goes_there_and_back(self):
        layers = [("InputLayer", {"name": "clips", "batch_shape": [None, 3, 4, 4, 1]}), ("TimeDistributed", {"name": "frames", "layer": {
            "class_name": "Sequential", "config": {"layers": [{"class_name": "Conv2D", "config": {"name": "conv", "filters": 2, "kernel_size": 3}},
                                                              {"class_name": "BatchNormalization", "config": {"name": "norm"}},
                                                              {"class_name": "Flatten", "config": {"name": "flat"}}]}}}),
            ("GRU", {"name": "gru", "units": 2}), ("Dense", {"name": "dense", "units": 10})]
        write_json(self.path("steps.json"), {"module": "keras", "class_name": "Sequential", "registered_name": None, "config": {"layers": [
            {"module": "keras.layers", "class_name": name, "config": config} for name, config in layers]}})
        self.done("train", "--dataset=synthetic:shape=3x4x4x1,examples=50", "--steps=2", "--validation=off", "--quiet", "--model=steps.json",
                  "--save-weights=expected.safetensors")
        expected = self.values("expected.safetensors")
        self.assertIn("frames/sequential/norm/moving_mean", expected)
        for name in ("steps.weights.h5", "steps.keras"):
            with self.subTest(name):
                self.done("convert", "expected.safetensors", name, "--model=steps.json")
                self.done("convert", name, "back.safetensors", "--model=steps.json")
                self.assertEqual(self.values("back.safetensors"), expected)
        inside = "layers/time_distributed/layer/layers/"  # as Keras has it
        self.assertLessEqual({f"{inside}conv2d/vars/0", f"{inside}conv2d/vars/1", *(f"{inside}batch_normalization/vars/{i}" for i in range(4))},
                             set(self.structure("steps.weights.h5")[0]))

    def test_models_begin_with_the_weights_of_their_file(self):
        scores = {}
        for arguments in (("--model=small.keras",), ("--model=small.h5",), ("--model=small.json", "--initial-weights=small.weights.h5"),
                          ("--model=small.json", "--initial-weights=small.expected.safetensors"), ("--model=small.json",)):
            scores[arguments] = self.done("evaluate", "--quiet", DATA, *arguments).out.split(" - ")[2:]
        untrained = scores.pop(("--model=small.json",))
        self.assertEqual(len(set(map(tuple, scores.values()))), 1, scores)
        self.assertNotIn(untrained, scores.values())
        # Weights that are given go before those of the model's file.
        self.done("convert", "small.keras", "zero.safetensors")
        with open(self.path("zero.safetensors"), "r+b") as file:
            header = struct.unpack("<Q", file.read(8))[0]
            file.seek(8 + header)
            file.write(bytes(4 * 177))
        given = self.done("evaluate", "--quiet", DATA, "--model=small.keras", "--initial-weights=zero.safetensors").out
        self.assertIn("loss: 2.3026", given)  # log 10

    def test_the_compile_configuration_of_a_file_is_used(self):
        outcome = self.done(*TRAIN, "--model=small.keras")
        self.assertIn("from the file's compile_config: optimizer sgd:", outcome.err)
        self.assertIn("the state of its optimizer (", outcome.err)
        for command in (("evaluate", DATA), ("predict", DATA, "--out=out.npy"), ("summary",)):  # that need none
            self.assertNotIn("the state of its optimizer", self.done(*command, "--model=small.keras").err)
        outcome = self.done(*TRAIN, "--model=small.h5")
        self.assertIn("learning_rate=0.5,momentum=0.25", outcome.err)

    def test_trained_weights_are_the_same_in_every_format(self):
        for name in ("a.safetensors", "a.weights.h5", "a.keras"):
            self.done(*TRAIN, "--quiet", "--model=small.keras", "--save-weights=" + name)
        expected = self.values("a.safetensors")
        self.assertNotEqual(expected, self.values("small.expected.safetensors"))
        for name in ("a.weights.h5", "a.keras"):
            self.done("convert", name, "back.safetensors", "--model=small.json")
            self.assertEqual(self.values("back.safetensors"), expected)

    def test_layers_without_names_and_inputs_without_shapes_are_written(self):
        model = {"module": "keras", "class_name": "Sequential", "registered_name": None, "config": {"layers": [
            {"module": "keras.layers", "class_name": "Flatten", "config": {}, "registered_name": None},
            {"module": "keras.layers", "class_name": "Dense", "config": {"units": 3, "name": "dense"}, "registered_name": None},
            {"module": "keras.layers", "class_name": "Dense", "config": {"units": 4}, "registered_name": None},
            {"module": "keras.layers", "class_name": "Dense", "config": {"units": 10}, "registered_name": None}]}}
        write_json(self.path("bare.json"), model)
        self.done(*TRAIN, "--quiet", "--model=bare.json", "--save-weights=bare.keras")
        self.done("convert", "bare.keras", "bare.safetensors")
        self.assertEqual(sorted(self.values("bare.safetensors")), 
                         [f"{name}/{variable}" for name in ("dense", "dense_1", "dense_2") for variable in ("bias", "kernel")])

    def test_many_layers_without_names_take_no_time(self):
        """Minutes before names were counted on: each layer's was looked for from the first."""
        count = 1500
        write_json(self.path("many.json"), {"class_name": "Sequential", "config": {"name": "many", "layers": [
            {"class_name": "InputLayer", "config": {"batch_shape": [None, 1]}}, *[{"class_name": "Dense", "config": {"units": 1}}] * count]}})
        names = ["dense" if i == 0 else f"dense_{i}" for i in range(count)]
        header = {f"{name}/{variable}": {"dtype": "F32", "shape": shape, "data_offsets": [4 * at, 4 * at + 4]}
                  for i, name in enumerate(names) for variable, shape, at in (("kernel", [1, 1], 2 * i), ("bias", [1], 2 * i + 1))}
        text = json.dumps(header).encode()
        values = struct.pack(f"<{2 * count}f", *range(2 * count))
        with open(self.path("many.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + values)
        self.done("convert", "many.safetensors", "many.weights.h5", "--model=many.json", timeout=60)
        self.done("convert", "many.weights.h5", "back.safetensors", "--model=many.json", timeout=60)
        self.assertEqual(self.values("back.safetensors"), self.values("many.safetensors"))

    def test_a_prefix_is_found_among_many(self):
        """Each tensor that may be the model's first was followed by a search through all: minutes for a file of a few megabytes."""
        write_json(self.path("one.json"), {"class_name": "Sequential", "config": {"layers": [
            {"class_name": "InputLayer", "config": {"batch_shape": [None, 1]}},
            {"class_name": "Dense", "config": {"name": "dense", "units": 1}}]}})
        for extra, code in (("a7/dense/bias", DONE), ("other/bias", BAD_INPUT)):
            names = [f"a{i}/dense/kernel" for i in range(30000)] + [extra]
            text = json.dumps({name: {"dtype": "F32", "shape": [1] if name == extra else [1, 1], "data_offsets": [4 * i, 4 * i + 4]}
                               for i, name in enumerate(names)}).encode()
            with open(self.path("tower.safetensors"), "wb") as file:
                file.write(struct.pack("<Q", len(text)) + text + struct.pack(f"<{len(names)}f", *range(len(names))))
            outcome = self.lockstep("convert", "tower.safetensors", "one.safetensors", "--model=one.json", timeout=30)
            self.assertEqual(outcome.code, code, outcome.err)
        self.assertEqual(self.values("one.safetensors"), {"dense/kernel": ([1, 1], (7.0,)), "dense/bias": ([1], (30000.0,))})

    def test_other_types_are_converted_with_a_line(self):
        header = {name: {"dtype": "F64", "shape": list(shape)} for name, (shape, _) in self.values("small.expected.safetensors").items()}
        data, at = b"", 0
        for name, (shape, values) in self.values("small.expected.safetensors").items():
            data += struct.pack(f"<{len(values)}d", *values)
            header[name]["data_offsets"] = [at, len(data)]
            at = len(data)
        text = json.dumps(header).encode()
        with open(self.path("wide.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + data)
        outcome = self.done("convert", "wide.safetensors", "out.safetensors", "--model=small.json")
        self.assertIn("6 tensor(s) were converted to float32 (F64)", outcome.err)
        self.assertEqual(self.values("out.safetensors"), self.values("small.expected.safetensors"))
        with open(self.path("wide.safetensors"), "r+b") as file:
            content = file.read().replace(b'"F64"', b'"I64"')
            file.seek(0)
            file.write(content)
        self.refused(BAD_INPUT, "convert", "wide.safetensors", "out.safetensors", "--model=small.json",
                     says=("'conv2d/kernel' is of dtype I64", "floating-point"))

    def test_metadata_of_others_means_nothing(self):
        with open(self.path("small.expected.safetensors"), "rb") as file:
            content = file.read()
        size = struct.unpack("<Q", content[:8])[0]
        text = b'{"__metadata__":{"skipped":"3","layers":"[]","names":"{}","model":"{}"},' + content[9:8 + size]
        with open(self.path("other.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + content[8 + size:])
        outcome = self.done("convert", "other.safetensors", "out.safetensors", "--model=small.json")
        self.assertNotIn("optimizer", outcome.err)
        self.assertEqual(self.values("out.safetensors"), self.values("small.expected.safetensors"))

    def test_shapes_that_differ_are_named_with_both(self):
        model = read_json(self.path("small.json"))
        model["config"]["layers"][-1]["config"]["units"] = 11
        write_json(self.path("wider.json"), model)
        for name in ("small.weights.h5", "small.keras-2.h5"):
            self.refused(BAD_INPUT, "convert", name, "out.safetensors", "--model=wider.json", says=("(4, 10)", "(4, 11)", "'dense/kernel'"))

    def test_what_a_file_has_not_is_named(self):
        self.refused(BAD_INPUT, "convert", "small.weights.h5", "out.safetensors", "--model=mlp",
                     says=("'layers/dense_2/vars'", "layer 'dense_2' (kernel, bias) of model 'mlp'"))
        self.refused(BAD_INPUT, "summary", "--model=small.weights.h5", says=("weights but no model", "--initial-weights="))
        self.assertFalse(os.path.exists(self.path("out.safetensors")))

    def test_wrong_usage_is_named(self):
        self.refused(USAGE, "convert", says=("IN OUT",))
        self.refused(USAGE, "convert", "small.keras", says=("IN OUT",))
        self.refused(USAGE, "convert", "small.keras", "out.h5", says=(".safetensors, .weights.h5 or .keras",))
        self.refused(USAGE, "convert", "small.weights.h5", "out.keras", says=("has no model in it", "--model="))
        self.refused(USAGE, "convert", "small.expected.safetensors", "out.keras", says=("has no model in it",))
        self.refused(BAD_INPUT, "convert", "none.keras", "out.keras", says=("none.keras", "No such file"))
        self.refused(USAGE, *TRAIN, "--model=small.json", "--save-weights=out.h5", says=("--save-weights", ".weights.h5"))
        self.refused(BAD_INPUT, "summary", "--model=none.keras", says=("none.keras",))

    def test_a_model_of_keras_2_is_not_written_as_one_of_keras_3(self):
        self.done("convert", "small.keras-2.h5", "out.weights.h5")
        self.refused(BAD_INPUT, "convert", "small.keras-2.h5", "out.keras", says=("Keras 2's", ".weights.h5"))

    def test_a_file_is_not_converted_onto_itself(self):
        with open(self.path("small.keras"), "rb") as file:
            before = file.read()
        os.link(self.path("small.keras"), self.path("link.keras"))
        for out in ("small.keras", "./small.keras", "link.keras"):
            self.refused(USAGE, "convert", "small.keras", out, says=("'small.keras' is both IN and OUT",))
        with open(self.path("small.keras"), "rb") as file:
            self.assertEqual(file.read(), before)

    def test_empty_files_and_noise_are_named(self):
        for name in ("e.keras", "e.h5", "e.weights.h5"):
            for content, says in ((b"", "is empty"), (b"\xf3noise" * 100, "is damaged or of an unknown kind")):
                with open(self.path(name), "wb") as file:
                    file.write(content)
                for command in (("convert", name, "out.safetensors"), ("summary", "--model=" + name),
                                ("convert", name, "out.safetensors", "--model=small.json")):
                    self.refused(BAD_INPUT, *command, says=(f"'{name}' {says}", "neither HDF5 nor a ZIP archive"))

    def test_damaged_files_are_one_line(self):
        for name in ("small.keras", "small.weights.h5", "small.h5"):
            with open(self.path(name), "r+b") as file:
                file.truncate(os.path.getsize(self.path(name)) // 2)
            self.refused(BAD_INPUT, "convert", name, "out.safetensors", "--model=small.json", says=(name,))

    def test_the_help_teaches(self):
        text = self.done("convert", "--help=all").out
        for word in ("IN OUT", ".safetensors", ".weights.h5", ".keras", "--model=", "Examples:"):
            self.assertIn(word, text)


class Without(KerasTest):
    """As if the program had not been built."""

    def test_it_says_what_to_install(self):
        nowhere = {"LOCKSTEP_KERAS_FILES": self.folder}
        for arguments in (("summary", "--model=small.keras"), (*TRAIN, "--quiet", "--model=small.json", "--initial-weights=small.weights.h5"),
                          (*TRAIN, "--quiet", "--model=small.json", "--save-weights=out.keras"),
                          ("convert", "small.h5", "out.safetensors")):
            with self.subTest(arguments):
                self.refused(UNAVAILABLE, *arguments, says=("libhdf5-dev", "libzip-dev", "safetensors"), environment=nowhere)
        self.assertFalse(os.path.exists(self.path("out.keras")))
        self.done("convert", "small.expected.safetensors", "out.safetensors", "--model=small.json", environment=nowhere)


if __name__ == "__main__":
    main()
