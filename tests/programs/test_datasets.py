# SPDX-License-Identifier: Apache-2.0
"""Users' own data: arrays, CIFAR files, texts, and which part of them is validated on."""
import json
import os
import struct
import zlib

from support import BAD_INPUT, DONE, KERAS_FILES, LARGE_DATA, USAGE, ProgramTest, main, read_json, tensors, write_json

TYPES = {"|u1": "B", "<i4": "i", "<i8": "q", "<f4": "f", "<f8": "d"}
EXAMPLES = 30


def pixel(example, place):
    return (example * 37 + place * 11) % 256


def label(example):
    return pixel(example, 0) // 64


KINDS = ["ant", "bee", "cat", "dog"]


def names_of(path):
    """The names of classes that a file of weights has."""
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        return json.loads(json.loads(file.read(size))["__metadata__"]["lockstep_class_names"])


def write_tensors(path, values, metadata):
    """A safetensors file, written independently of Lockstep."""
    header, data = {"__metadata__": metadata}, b""
    for name, (shape, numbers) in values.items():
        begin = len(data)
        data += struct.pack(f"<{len(numbers)}f", *numbers)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


class DatasetTest(ProgramTest):
    def npy(self, name, descr, shape, values):
        header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
        with open(self.path(name), "wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
            file.write(struct.pack(f"<{len(values)}{TYPES[descr]}", *values))
        return self.path(name)

    def arrays(self, descr="<f4", label_descr="<i8"):
        x = self.npy("x.npy", descr, (EXAMPLES, 2, 3), [pixel(i, k) for i in range(EXAMPLES) for k in range(6)])
        y = self.npy("y.npy", label_descr, (EXAMPLES,), [label(i) for i in range(EXAMPLES)])
        return f"--dataset=arrays:x={x},y={y}"

    def losses(self, dataset, *more):
        rate = [] if any(option.startswith("--optimizer") for option in more) else ["--optimizer=sgd:learning_rate=0.00001"]
        return self.train(*more or [self.classifier()], dataset, "--batch=8", "--epochs=2", *rate)

    def text(self, content):
        with open(self.path("text.txt"), "wb") as file:
            file.write(content)
        return "--dataset=text:file=" + self.path("text.txt")

    def reader(self, length, classes):
        """A model that looks at one character at a time."""
        return self.model([length], {"class_name": "Reshape", "config": {"target_shape": [length, 1], "name": "reshape"}}, classes)

    def classifier(self, shape=(2, 3), classes=4):
        return self.model(shape, {"class_name": "Flatten", "config": {"name": "flatten"}}, classes)

    def model(self, shape, layer, classes):
        layers = [{"class_name": "InputLayer", "config": {"batch_shape": [None, *shape], "name": "data"}}, layer,
                  {"class_name": "Dense", "config": {"units": classes, "name": "dense"}}]
        write_json(self.path("model.json"), {"class_name": "Sequential", "config": {"name": "model", "layers": layers}})
        return "--model=" + self.path("model.json")

    def png(self, name, values, side=6):
        def chunk(kind, data):
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        rows = b"".join(b"\0" + bytes(values[side * i:side * (i + 1)]) for i in range(side))
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "wb") as file:
            file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)) +
                       chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))

    def images(self, options="", count=EXAMPLES):
        for i in range(count):
            self.png(f"set/{'ab'[i % 2]}/{i:02}.png", [pixel(i, k) for k in range(36)])
        return "--dataset=images:dir=" + self.path("set") + ",channels=1" + options

    def expect_built(self):
        if "built without libpng" in self.lockstep("train", "--model=linear", self.images()).err:
            self.skipTest("built without libpng")


class Arrays(DatasetTest):
    def test_they_are_trained_on_and_evaluated_whole(self):
        outcome = self.lockstep("train", self.classifier(), self.arrays(), "--batch=8",
                                "--save-weights=" + self.path("w.safetensors"))
        self.assertEqual(outcome.code, DONE, outcome.err)
        self.assertIn("no validation", outcome.err)
        self.assertIn("validation_split=", outcome.err)
        for split in ("train", "test"):
            outcome = self.lockstep("evaluate", self.classifier(), self.arrays(), "--split=" + split,
                                    "--initial-weights=" + self.path("w.safetensors"))
            self.assertEqual(outcome.code, DONE, outcome.err)
            self.assertIn(f"{EXAMPLES} examples", outcome.out)

    def test_every_type_of_the_same_values_gives_the_same_losses(self):
        expected = self.losses(self.arrays())
        self.assertEqual(len(expected["losses"]), 8)
        self.assertEqual(expected["dataset"], "arrays")
        for descr in TYPES:
            report = self.losses(self.arrays(descr, "|u1"))
            self.assertEqual(report["losses"], expected["losses"], descr)

    def test_a_part_is_set_aside_for_validation(self):
        report = self.losses(self.arrays() + ",validation_split=0.3")
        self.assertEqual([epoch["examples"] for epoch in report["epochs"]], [21, 21])
        self.assertTrue(all(epoch["val_loss"] > 0 for epoch in report["epochs"]))
        for split, count in (("train", 21), ("test", 9), ("validation", 9)):
            outcome = self.lockstep("evaluate", self.classifier(), self.arrays() + ",validation_split=0.3", "--split=" + split)
            self.assertIn(f"{count} examples", outcome.out)
        self.refused(USAGE, "evaluate", self.classifier(), self.arrays(), "--split=validation", says=["there is no validation"])

    def evaluated_as_validated(self, names, dataset, *setting):
        """Keys and values that `evaluate --report` has are those of `train`, without their val_."""
        weights, path = self.path("w.safetensors"), self.path("evaluation.json")
        trained = self.train(self.classifier(classes=3), dataset, "--batch=7", "--class-weight=0:2,2:0.5", "--epochs=2",
                             "--optimizer=sgd:learning_rate=0.00001", "--save-weights=" + weights, *setting)["epochs"][-1]
        self.assertEqual([key[4:] for key in trained if key.startswith("val_")], names)
        self.assertEqual([key for key in trained if key in names], names)
        for more in ((), ("--replicas=4", "--batch=3")):
            outcome = self.lockstep("evaluate", self.classifier(classes=3), dataset, "--split=validation", "--report=" + path,
                                    "--initial-weights=" + weights, "--quiet", *setting, *more)
            self.assertEqual(outcome.code, DONE, outcome.err)
            report = read_json(path)
            self.assertEqual(list(report), ["made", "command", "model", "dataset", "split", "examples", "seconds", *names])
            self.assertEqual((report["command"], report["split"], report["examples"]), ("evaluate", "validation", 9))
            for name in names:
                self.assertAlmostEqual(report[name], trained["val_" + name], delta=2e-6 * max(1, abs(report[name])), msg=name)
        return trained

    def test_the_report_of_an_evaluation_has_the_keys_of_training(self):
        weights = self.npy("weights.npy", "<f4", (EXAMPLES,), [0.5 + i % 4 for i in range(EXAMPLES)])
        labels = self.arrays() + ",validation_split=0.3"
        y = self.npy("labels.npy", "<i4", (EXAMPLES,), [i * 7 % 3 for i in range(EXAMPLES)])
        labels = labels.replace(self.path("y.npy"), y)
        several = ("loss", "accuracy", "sparse_top_k_categorical_accuracy", "sparse_categorical_crossentropy")
        setting = ("--loss=sparse_categorical_crossentropy:from_logits=on", "--metrics=accuracy,sparse_top_k_categorical_accuracy:k=2,"
                   "sparse_categorical_crossentropy:from_logits=on")
        plain = self.evaluated_as_validated(list(several), labels, *setting)
        weighted = self.evaluated_as_validated(list(several), labels + ",sample_weight=" + weights, *setting)
        self.assertNotEqual(plain["val_loss"], weighted["val_loss"])
        self.assertEqual(plain["val_accuracy"], weighted["val_accuracy"])  # metrics are not weighted, as in Keras

        targets = self.npy("targets.npy", "<f4", (EXAMPLES, 3), [float(i % 3 == k) for i in range(EXAMPLES) for k in range(3)])
        dataset = labels.replace(y, targets) + ",sample_weight=" + weights
        loss = "--loss=categorical_crossentropy:from_logits=on"
        self.evaluated_as_validated(["loss", "auc", "prc", "precision", "mean_absolute_error"], dataset, loss,
                                    "--metrics=auc,auc:curve=PR,name=prc,precision,mean_absolute_error")
        for metrics, says in (("auc,auc:curve=PR", "auc is given twice; name= gives one of them another key"),
                              ("auc:name=steps", "name=steps: expected letters, digits and underscores, and no key that reports have"),
                              ("auc:name=val_x", "name=val_x: expected"), ("auc:name=a b", "name=a b: expected"),
                              ("auc:name=loss", "loss is given twice"),
                              ("auc:names=x", "Available: name, num_thresholds, curve"),
                              ("auc:thresholds=0.2:x", "needs thresholds from 0 to 1"), ("auc:thresholds=0.2:1.5", "needs thresholds from 0 to 1"),
                              ("auc:thresholds=0.2,num_thresholds=3", "not both"),
                              ("auc:thresholds=" + ":".join(f"0.{i}" for i in range(10, 80)), "up to 64 thresholds that are not even"),
                              ("auc:name=" + "a" * 124, "has 124 letters; a key of reports has at most 123")):
            self.refused(USAGE, "train", self.classifier(classes=3), dataset, loss, "--metrics=" + metrics, says=[says])
        self.refused(USAGE, "evaluate", self.classifier(), labels, "--class-weight=0:1", says=["unknown option --class-weight"])

    def test_the_loss_that_fits_the_labels_is_named(self):
        x = self.arrays().split(",y=")[0]
        for descr, shape, loss, says in (
                ("<f4", (EXAMPLES, 4), [], "a target for each output, not classes (integers from 0): train it with --loss=categorical_cross"),
                ("<f4", (EXAMPLES, 1), [], "has targets, not classes: labels are whole numbers from 0 (of an array: y.astype(\"int32\"))"),
                ("<i4", (EXAMPLES,), ["--loss=categorical_crossentropy"], "; classes are for --loss=sparse_categorical_crossentropy")):
            values = [i % 4 if "i" in descr else 0.5 for i in range(EXAMPLES * (shape[1] if shape[1:] else 1))]
            y = self.npy("other.npy", descr, shape, values)
            self.refused(BAD_INPUT, "train", self.classifier(), f"{x},y={y}", *loss, says=[says])

    def test_weights_of_classes(self):
        self.refused(USAGE, "train", self.classifier(), self.arrays(), "--class-weight=0:1,1:2,0:3", says=["class 0 has two weights"])
        # Keras rounds a target to the nearest class, and 0.5 to the even one.
        targets = self.npy("targets.npy", "<f4", (EXAMPLES, 1), [0.5] * EXAMPLES)
        dataset = self.arrays().replace(self.path("y.npy"), targets)
        setting = (self.classifier(classes=1), "--loss=binary_crossentropy:from_logits=on", "--optimizer=sgd:learning_rate=0.00001")
        plain = self.losses(dataset, *setting)["losses"]
        self.assertEqual(self.losses(dataset, *setting, "--class-weight=1:100")["losses"], plain)
        self.assertNotEqual(self.losses(dataset, *setting, "--class-weight=0:100")["losses"], plain)

    def two_inputs(self, order):
        """Dense layers of inputs of 6 and of 2 values, added; `order` is that of input_layers."""
        sizes = {"left": 6, "right": 2}
        def keras(module, class_name, name, calls, **config):
            return {"module": module, "class_name": class_name, "name": name, "registered_name": None,
                    "config": {"name": name, **config}, "inbound_nodes": calls}

        def call(*names):
            tensors = [{"class_name": "__keras_tensor__",
                        "config": {"shape": [None, 4], "dtype": "float32", "keras_history": [name, 0, 0]}} for name in names]
            return [{"args": tensors, "kwargs": {}}]

        layers = [keras("keras.layers", "InputLayer", name, [], batch_shape=[None, sizes[name]]) for name in sizes]
        layers += [keras("keras.layers", "Dense", f"{name}_dense", call(name), units=4) for name in sizes]
        layers.append(keras("keras.src.ops.numpy", "Add", "add", call("left_dense", "right_dense")))
        write_json(self.path("two.json"), {"module": "keras.src.models.functional", "class_name": "Functional", "config": {
            "name": "two", "layers": layers, "input_layers": [[name, 0, 0] for name in order],
            "output_layers": [["add", 0, 0]]}})
        return "--model=" + self.path("two.json")

    def test_inputs_are_given_in_the_order_of_the_input_layers(self):
        dataset = self.arrays()
        x2 = self.npy("x2.npy", "<f4", (EXAMPLES, 2), [pixel(i, k) / 256 for i in range(EXAMPLES) for k in range(2)])
        sizes = {"left": 6, "right": 2}
        for order in ("left", "right"), ("right", "left"):
            model = self.two_inputs(order)
            first, second = (self.path("x.npy"), x2) if order[0] == "left" else (x2, self.path("x.npy"))
            given = f"--dataset=arrays:x={first},x2={second},y={self.path('y.npy')}"
            report = self.train(model, given, "--batch=8", "--replicas=2", "--optimizer=sgd:learning_rate=0.00001")
            self.assertEqual(report["epochs"][0]["examples"], EXAMPLES)
            self.refused(BAD_INPUT, "train", "--quiet", model, dataset, says=["two.json' has 2 inputs", "has 1 (x)"])
            other = f"--dataset=arrays:x={second},x2={first},y={self.path('y.npy')}"
            found = "2" if order[0] == "left" else "2, 3"
            self.refused(BAD_INPUT, "train", "--quiet", model, other,
                         says=[f"expects input '{order[0]}' (None, {sizes[order[0]]})", "field 'x'", f"is (None, {found})"])

    def test_a_comparison_has_no_validation_target_without_validation(self):
        self.refused(USAGE, "compare", self.classifier(), self.arrays(), "--strategies=ring,tree", "--replicas=2", "--steps=2",
                     "--target=val_loss:1", says=["val_loss is not measured", "validation_split="])

    def test_what_does_not_fit_is_refused(self):
        x = self.arrays().split(":", 1)[1].split(",")[0]
        for command in ("train", "evaluate"):
            quiet = ["--quiet"] if command == "train" else []
            self.refused(USAGE, command, *quiet, self.classifier(), "--dataset=arrays:" + x, says=["has no targets", "y=FILE"])
            self.refused(BAD_INPUT, command, *quiet, self.classifier((7,)), self.arrays(), says=["'x'"])
            self.refused(BAD_INPUT, command, *quiet, self.classifier(), self.arrays() + ",x2=" + self.path("x.npy"),
                         says=["has 1 input,", "has 2 (x, x2)"])
            self.refused(BAD_INPUT, command, *quiet, self.classifier(), self.arrays(label_descr="<f4"), says=["targets, not classes"])
        with open(self.path("x.npy"), "r+b") as file:
            file.truncate(200)
        self.refused(BAD_INPUT, "train", "--quiet", self.classifier(), "--dataset=arrays:" + x, says=["x.npy: too short"])


class Images(DatasetTest):
    """Grey PNG files of one filter type, written here; the reader's own tests compare images with Keras's."""

    def setUp(self):
        super().setUp()
        self.expect_built()

    def test_they_are_trained_on_as_arrays_of_the_same_pixels(self):
        order = list(range(0, EXAMPLES, 2)) + list(range(1, EXAMPLES, 2))
        x = self.npy("x.npy", "|u1", (EXAMPLES, 6, 6, 1), [pixel(i, k) for i in order for k in range(36)])
        y = self.npy("y.npy", "|u1", (EXAMPLES,), [i % 2 for i in order])
        expected = self.losses(f"--dataset=arrays:x={x},y={y}", self.classifier((6, 6, 1), 2))
        for options in (",divisor=1", ",divisor=1,cache=memory", ",divisor=1,cache=" + self.path("cache"), ",divisor=1,resize=6x6"):
            report = self.losses(self.images(options), self.classifier((6, 6, 1), 2))
            self.assertEqual(report["losses"], expected["losses"], options)
        self.assertTrue(os.path.exists(self.path("cache.train")))

    def test_augmented_losses_do_not_depend_on_replicas_and_come_again(self):
        dataset = self.images(",random_flip=horizontal,random_crop=2,random_rotation=0.1,repeat=2")
        model = self.classifier((6, 6, 1), 2)
        expected = self.losses(dataset, model)["losses"]
        self.assertEqual(len(expected), 16)
        self.assertEqual(self.losses(dataset, model)["losses"], expected)
        for more in ("--seed=1",):
            self.assertNotEqual(self.losses(dataset, model, more)["losses"], expected)
        for replicas in (2, 3):
            losses = self.losses(dataset, model, "--strategy=ring", f"--replicas={replicas}")["losses"]
            for ours, theirs in zip(losses, expected):
                self.assertAlmostEqual(ours, theirs, delta=1e-5)

    def test_validation_and_predictions_are_not_augmented(self):
        model = self.classifier((6, 6, 1), 2)
        reports = [self.losses(self.images(",validation_split=0.4" + more), model, "--optimizer=sgd:learning_rate=0")
                   for more in ("", ",random_crop=5,random_translation=0.5")]
        self.assertEqual(*(report["epochs"][0]["val_loss"] for report in reports))
        self.assertNotEqual(*(report["epochs"][0]["loss"] for report in reports))

    def test_damage_ends_the_training_with_the_name_of_the_file(self):
        dataset = self.images()
        name = self.path("set/a/16.png")
        with open(name, "r+b") as file:
            file.truncate(60)
        for more in (["--replicas=1"], ["--replicas=2"], ["--replicas=3", "--strategy=parameter-server:mode=async"]):
            outcome = self.refused(BAD_INPUT, "train", "--quiet", "--validation=off", self.classifier((6, 6, 1), 2), dataset, *more,
                                   says=(name, "damaged PNG: it is cut off"))
            self.assertNotIn("trains its examples", outcome.err)  # another replica could not do better


class Tables(DatasetTest):
    def test_they_are_trained_on_as_arrays_of_the_same_numbers(self):
        with open(self.path("t.csv"), "w") as file:
            file.write("a,b,c,d,e,f,kind\n")
            for i in range(EXAMPLES):
                file.write(",".join(str(pixel(i, k)) for k in range(6)) + f",{'abcd'[label(i)]}\n")
        expected = self.losses(self.arrays())
        self.assertEqual(self.losses("--dataset=csv:file=" + self.path("t.csv"), self.classifier((6,)))["losses"], expected["losses"])

    def test_a_missing_value_is_refused_by_its_line(self):
        with open(self.path("t.csv"), "w") as file:
            file.write("a,b,kind\n1,2,x\n1,,y\n")
        self.refused(BAD_INPUT, "train", "--quiet", "--model=linear", "--dataset=csv:file=" + self.path("t.csv"),
                     says=("t.csv: line 3, column 2 (b)", "missing value"))


class Text(DatasetTest):
    def test_the_vocabulary_is_in_the_report(self):
        dataset = self.text(b"hello,\nworld \xe4\x00" * 20)
        report = self.train(self.reader(5, 12), dataset + ",length=5,stride=2,validation_split=0.25", "--batch=8", "--replicas=2")
        self.assertEqual(report["vocabulary"], ["\\x00", "\n", " ", ",", "d", "e", "h", "l", "o", "r", "w", "\\xe4"])
        self.assertEqual(report["epochs"][0]["examples"], 111)  # of 148: (300 - 6) // 2 + 1
        self.refused(BAD_INPUT, "train", "--quiet", self.reader(5, 11), dataset + ",length=5", says=["12 classes", "11 units"])
        self.refused(BAD_INPUT, "train", "--quiet", self.reader(4, 12), dataset + ",length=5", says=["'x'", "(None, 4)", "(None, 5)"])

    def test_other_data_has_no_vocabulary(self):
        self.assertNotIn("vocabulary", self.losses(self.arrays()))


class Classes(DatasetTest):
    """What a model has learnt keeps its numbers where another set has fewer classes; what it does not know is refused."""

    def table(self, name, kinds):
        with open(self.path(name), "w") as file:
            file.write("a,b,c,kind\n" + "".join(",".join(str(4.0 * (kind == one)) for one in KINDS[:3]) + f",{kind}\n"
                                                for kind in kinds * 4))
        return "csv:label=kind,file=" + self.path(name)

    def folders(self, name, kinds):
        for kind in kinds:
            for i in range(4):
                place = KINDS.index(kind)
                self.png(f"{name}/{kind}/{i}.png", [255 * (place * 3 <= k < place * 3 + 3) for k in range(9)], 3)
        return "images:channels=1,dir=" + self.path(name)

    def letters(self, name, kinds):
        with open(self.path(name), "w") as file:
            file.write("".join(kind[0] for kind in kinds[:-2] + kinds[-2:] * 8))  # after each letter comes the same one
        return "text:length=1,file=" + self.path(name)

    def learner(self, shape):
        layers = [{"module": "keras.layers", "class_name": "InputLayer", "config": {"batch_shape": [None, *shape], "name": "data"}},
                  {"module": "keras.layers", "class_name": "Flatten", "config": {"name": "flatten"}},
                  {"module": "keras.layers", "class_name": "Dense", "config": {"units": 3, "name": "dense"}}]
        if shape == (1,):
            layers[1] = {"module": "keras.layers", "class_name": "Embedding", "config": {"input_dim": 3, "output_dim": 3, "name": "embedding"}}
        write_json(self.path("model.json"), {"module": "keras", "class_name": "Sequential", "config": {"name": "model", "layers": layers}})
        return "--model=" + self.path("model.json")

    def known(self, make, shape):
        """A model learns three classes; it knows the last two by their numbers wherever it meets them."""
        learnt, two, other = make("train", KINDS[:3]), make("two", KINDS[1:3]), make("other", KINDS[2:4])
        weights, model = self.path("w.safetensors"), self.learner(shape)
        rate = ("--optimizer=adam:learning_rate=0.2", "--batch=8")
        report = self.train(model, "--dataset=" + learnt, "--validation-dataset=" + two, "--epochs=20", *rate, "--save-weights=" + weights,
                            "--checkpoint-dir=" + self.path("kept"), "--checkpoint-keep=1")
        self.assertEqual([report["epochs"][-1][name] for name in ("accuracy", "val_accuracy")], [1, 1])
        checkpoint = self.path("kept/" + os.listdir(self.path("kept"))[0])
        files = [weights, checkpoint]
        for suffix in (".weights.h5", ".keras") if KERAS_FILES else ():
            files.append(self.path("w" + suffix))
            self.assertEqual(self.lockstep("convert", weights, files[-1], model).code, DONE)
        for file in files:
            outcome = self.lockstep("evaluate", model, "--dataset=" + two, "--initial-weights=" + file)
            self.assertIn("accuracy: 1.0000", outcome.out, file)
            self.assertNotIn("which class", outcome.err)
        self.refused(BAD_INPUT, "evaluate", model, "--dataset=" + other, "--initial-weights=" + weights,
                     says=("'dog'" if shape != (1,) else "'d'", "none of the 3"))
        # What is learnt further keeps its numbers, and so does what goes on from a checkpoint.
        again = self.path("again.safetensors")
        self.train(model, "--dataset=" + two, "--epochs=1", *rate, "--initial-weights=" + weights, "--save-weights=" + again)
        self.assertIn("accuracy: 1.0000", self.lockstep("evaluate", model, "--dataset=" + learnt, "--initial-weights=" + again).out)
        self.assertEqual(names_of(again), names_of(weights))
        report = self.train(model, "--dataset=" + learnt, "--validation-dataset=" + two, "--epochs=21", *rate, "--resume",
                            "--checkpoint-dir=" + self.path("kept"))
        self.assertEqual(report["epochs"][-1]["val_accuracy"], 1)
        return model, two, other, weights

    def test_of_a_table(self):
        model, two, other, weights = self.known(self.table, (3,))
        self.assertEqual(names_of(weights), KINDS[:3])
        # Labels are not looked at where they are not asked for.
        self.assertEqual(self.lockstep("predict", model, "--dataset=" + other, "--initial-weights=" + weights,
                                       "--out=" + self.path("p.csv")).code, DONE)
        values, plain, damaged = tensors(weights), self.path("plain.safetensors"), self.path("damaged.safetensors")
        write_tensors(plain, values, {})
        outcome = self.lockstep("evaluate", model, "--dataset=" + two, "--initial-weights=" + plain)
        self.assertEqual(outcome.code, DONE)
        self.assertIn("warning: data: the weights of model", outcome.err)
        self.assertIn("numbered from 0 in this order: 'bee', 'cat'", outcome.err)
        with open(self.path("numbers.csv"), "w") as file:
            file.write("a,b,c,kind\n" + "4,0,0,0\n0,4,0,1\n0,0,4,2\n")
        numbers = "csv:label=kind,file=" + self.path("numbers.csv")
        for validation, level in ((two, "warning: data:"), (self.table("train", KINDS[:3]), "lockstep: data:")):
            for epochs in (2, 3):  # also where it goes on from a checkpoint
                outcome = self.lockstep("train", model, "--dataset=" + numbers, "--validation-dataset=" + validation, f"--epochs={epochs}",
                                        "--checkpoint-dir=" + self.path(level), "--resume")
                self.assertEqual((outcome.code, outcome.err.count(f"{level} the weights of model")), (DONE, 1), outcome.err)
        outcome = self.lockstep("train", model, "--dataset=" + two, "--initial-weights=" + plain, "--save-weights=" + damaged)
        self.assertNotIn("in this order", outcome.err)  # it learns these
        self.assertEqual(names_of(damaged), KINDS[1:3])
        for names in ('["ant", "bee", "bee"]', "[]", '["ant", 3]', "{}", "["):
            write_tensors(damaged, values, {"lockstep_class_names": names})
            self.refused(BAD_INPUT, "evaluate", model, "--dataset=" + two, "--initial-weights=" + damaged, says=("lockstep_class_names",))
        write_tensors(damaged, values, {"lockstep_class_names": json.dumps(KINDS)})
        self.refused(BAD_INPUT, "evaluate", model, "--dataset=" + two, "--initial-weights=" + damaged, says=("4 classes", "3 units"))

    def test_of_folders_of_images(self):
        self.expect_built()
        self.known(self.folders, (3, 3, 1))

    def test_of_a_text(self):
        model, two, _, weights = self.known(self.letters, (1,))
        outcome = self.lockstep("predict", model, "--dataset=" + two, "--initial-weights=" + weights, "--out=" + self.path("p.csv"))
        self.assertEqual(outcome.code, DONE, outcome.err)
        with open(self.path("p.csv")) as file:  # x has the numbers of the training, too: c follows b
            names, row = (line.rstrip("\n").split(",") for line in (next(file), next(file)))
        values = [float(value) for value in row[:-1]]
        self.assertEqual((values.index(max(values)), names[-1], row[-1]), (2, "class", names[2]))

    def test_names_that_are_no_text(self):
        with open(self.path("t.csv"), "wb") as file:
            file.write(b"1,\xe4\n2,b\n")
        with open(self.path("one.csv"), "wb") as file:
            file.write(b"1,\xe4\n")
        model, weights = self.classifier((1,), 2), self.path("w.safetensors")
        self.train(model, "--dataset=csv:file=" + self.path("t.csv"), "--save-weights=" + weights)
        self.assertEqual(names_of(weights), ["b", [0xe4]])
        one = self.lockstep("evaluate", model, "--dataset=csv:file=" + self.path("one.csv"), "--initial-weights=" + weights)
        both = self.lockstep("evaluate", model, "--dataset=csv:file=" + self.path("t.csv") + ",limit=1", "--initial-weights=" + weights)
        self.assertEqual(one.out.split(" - ")[2], both.out.split(" - ")[2])


class Cifar(DatasetTest):
    def test_missing_files_are_named(self):
        outcome = self.refused(BAD_INPUT, "train", "--model=linear", "--dataset=cifar10:dir=" + self.folder)
        for name in ("data_batch_1.bin", "data_batch_5.bin", "test_batch.bin"):
            self.assertIn(os.path.join(self.folder, name), outcome.err)
        self.refused(BAD_INPUT, "train", "--model=linear", "--dataset=cifar100:dir=" + self.folder, says=["train.bin", "test.bin"])

    def test_files_that_are_there_are_named_and_read(self):
        with open(self.path("some.bin"), "wb") as file:
            for record in range(20):
                file.write(bytes([record % 10]) + bytes(pixel(record, k) for k in range(3072)))
        dataset = "--dataset=cifar10:dir=" + self.folder + ",train=some.bin+some.bin"
        model = self.classifier((32, 32, 3), 10)
        report = self.losses(dataset + ",test=" + self.path("some.bin"), model)
        self.assertEqual(report["epochs"][0]["examples"], 40)
        self.assertIn("val_loss", report["epochs"][0])
        self.assertEqual(self.losses(dataset + ",validation_split=0.5", model)["epochs"][0]["examples"], 20)

    def test_the_real_ones_are_learnt(self):
        folder = os.path.join(LARGE_DATA, "cifar-10-batches-bin")
        test = os.path.join(LARGE_DATA, "cifar-10-test-first1000", "test_batch_first1000.bin")
        self.need(os.path.join(folder, "data_batch_1.bin"))
        self.need(test)
        report = self.train(self.classifier((32, 32, 3), 10), f"--dataset=cifar10:dir={folder},train=data_batch_1.bin,test={test}",
                            "--optimizer=sgd:learning_rate=0.01", "--epochs=2")
        self.assertGreater(report["epochs"][-1]["val_accuracy"], 0.2)


if __name__ == "__main__":
    main()
