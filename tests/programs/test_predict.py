# SPDX-License-Identifier: Apache-2.0
"""lockstep predict with real runs: order, completeness, formats, and where it cannot write."""
import array
import ast
import csv
import json
import math
import os
import random
import signal
import struct
import subprocess
import time
import zlib

from support import BAD_INPUT, DONE, FAILED, INTERRUPTED, LOCKSTEP, USAGE, ProgramTest, main

EXAMPLES = 53  # no multiple of any batch or number of replicas here


def npy(path):
    """A .npy file as (shape, values), read independently of Lockstep; the header as NumPy's format 1.0 has it."""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:16]
    size = struct.unpack("<H", data[8:10])[0]
    header = data[10:10 + size].decode("ascii")
    assert (10 + size) % 64 == 0 and header.endswith("\n"), header
    facts = ast.literal_eval(header.strip())
    assert sorted(facts) == ["descr", "fortran_order", "shape"] and facts["descr"] == "<f4" and not facts["fortran_order"], facts
    values = array.array("f")
    values.frombytes(data[10 + size:])
    assert len(values) == math.prod(facts["shape"]), (len(values), facts)
    return facts["shape"], values


def png(level):
    """An image of 8 x 8 x 3 pixels."""
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", 8, 8, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress((b"\0" + bytes(24 * [level])) * 8)) + chunk(b"IEND", b""))


class PredictTest(ProgramTest):
    def setUp(self):
        super().setUp()
        draw = random.Random(7)
        self.labels = bytes(draw.randrange(10) for _ in range(EXAMPLES))
        pixels = bytes(draw.randrange(256) for _ in range(28 * 28 * EXAMPLES))
        for split, count in (("t10k", EXAMPLES), ("train", EXAMPLES - 20)):
            self.write(split + "-images-idx3-ubyte", struct.pack(">4I", 0x803, count, 28, 28) + pixels[:28 * 28 * count])
            self.write(split + "-labels-idx1-ubyte", struct.pack(">2I", 0x801, count) + self.labels[:count])
        self.data = "--dataset=mnist:dir=" + self.folder

    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content)
        return self.path(name)

    def model(self, *layers):
        json_layers = [{"class_name": name, "config": config} for name, config in layers]
        text = json.dumps({"class_name": "Sequential", "config": {"layers": json_layers}})
        return "--model=" + self.write("model.json", text.encode())

    def predict(self, *options, out="out.npy", expect=DONE):
        outcome = self.lockstep("predict", *options, "--out=" + self.path(out))
        self.assertEqual(outcome.code, expect, outcome.err)
        return npy(self.path(out)) if out.endswith(".npy") and expect == DONE else outcome


class Predictions(PredictTest):
    def bytes_array(self, name, values, *dims):
        header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {dims}, }}".encode()
        header += b" " * (117 - len(header)) + b"\n"
        self.write(name, b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + values)
        return self.path(name)

    def test_predictions_that_are_not_finite_are_counted(self):
        model = self.model(("InputLayer", {"batch_shape": [None, 2], "dtype": "int32"}), ("Embedding", {"input_dim": 3, "output_dim": 2}))
        for ids, says in ((b"\0\1\2\0\1\2\0\0", None), (b"\0\1\2\3\1\2\7\0", "for 2 of 4 examples are not finite")):
            data = "--dataset=arrays:x=" + self.bytes_array("ids.npy", ids, 4, 2)
            err = self.predict(model, "--quiet", data, out="ids.csv").err
            self.assertIn(says, err) if says else self.assertNotIn("finite", err)

    def test_an_id_that_is_no_row_is_named_in_training(self):
        model = self.model(("InputLayer", {"batch_shape": [None, 2], "dtype": "int32"}), ("Embedding", {"input_dim": 3, "output_dim": 2}),
                           ("Flatten", {}), ("Dense", {"units": 2}))
        labels = self.bytes_array("y.npy", b"\0\1\0\1", 4)
        for ids, says in ((b"\0\1\2\0\1\2\0\0", None), (b"\0\1\2\3\1\2\0\0", "an id in the data is not a row of the table")):
            data = f"--dataset=arrays:x={self.bytes_array('ids.npy', ids, 4, 2)},y={labels}"
            outcome = self.lockstep("train", model, data, "--quiet", "--batch=4", "--steps=2")
            self.assertEqual(outcome.code, FAILED if says else DONE, outcome.err)
            self.assertIn(says or "", outcome.err)

    def test_order_and_number_do_not_depend_on_replicas_or_batch(self):
        shape, expected = self.predict(self.data, "--model=cnn-small", "--batch=1", "--replicas=1")
        self.assertEqual(shape, (EXAMPLES, 10))
        for replicas in (1, 2, 3, 5):
            for batch in (2, 7, EXAMPLES, 64):
                found = self.predict(self.data, "--model=cnn-small", f"--batch={batch}", f"--replicas={replicas}")
                self.assertEqual(found[0], shape)
                for i in range(len(expected)):
                    self.assertAlmostEqual(found[1][i], expected[i], delta=1e-6, msg=f"{replicas} replicas, batch {batch}, {i}")

    def test_loss_and_accuracy_of_the_predictions_are_those_of_evaluate(self):
        for options in ((), ("--replicas=3", "--batch=8"), ("--replicas=4", "--batch=5", "--strategy=central-storage")):
            _, values = self.predict(self.data, "--model=mlp", *options)
            rows = [values[10 * i:10 * i + 10] for i in range(EXAMPLES)]
            right = sum(max(range(10), key=row.__getitem__) == label for row, label in zip(rows, self.labels))
            # mlp ends in logits.
            loss = sum(math.log(sum(map(math.exp, row))) - row[label] for row, label in zip(rows, self.labels)) / EXAMPLES
            outcome = self.lockstep("evaluate", self.data, "--model=mlp", *options)
            self.assertEqual(outcome.code, DONE, outcome.err)
            self.assertIn(f"{EXAMPLES} examples", outcome.out)
            self.assertIn(f"loss: {loss:.4f} - accuracy: {right / EXAMPLES:.4f}", outcome.out)

    def test_weights_and_split_are_used(self):
        self.train(self.data, "--model=mlp", "--epochs=2", "--batch=8", "--save-weights=" + self.path("w.safetensors"))
        weights = "--initial-weights=" + self.path("w.safetensors")
        untrained = self.predict(self.data, "--model=mlp")[1]
        test = self.predict(self.data, "--model=mlp", weights)
        train = self.predict(self.data, "--model=mlp", weights, "--split=train")
        self.assertNotEqual(list(untrained), list(test[1]))
        self.assertEqual(train[0], (EXAMPLES - 20, 10))
        for i, value in enumerate(train[1]):  # the training set is the first examples of the test set here
            self.assertAlmostEqual(value, test[1][i], delta=1e-6)

    def test_untrained_weights_are_said(self):
        weights = self.path("w.safetensors")
        self.train(self.data, "--model=mlp", "--steps=1", "--validation=off", "--save-weights=" + weights)
        for command in (("predict", "--out=" + self.path("out.npy")), ("evaluate",)):
            for given in ((), ("--initial-weights=" + weights,)):
                outcome = self.lockstep(*command, self.data, "--model=mlp", *given)
                self.assertEqual(outcome.code, DONE, outcome.err)
                said = [line for line in outcome.err.splitlines() if "weights are untrained" in line]
                self.assertEqual(len(said), 0 if given else 1, outcome.err)

    def test_csv_has_the_same_values_a_line_an_example(self):
        shape, values = self.predict(self.data, "--model=mlp", "--replicas=2")
        self.predict(self.data, "--model=mlp", "--replicas=2", out="out.csv")
        with open(self.path("out.csv")) as file:
            self.assertEqual(next(file), ",".join(f"output_{i}" for i in range(10)) + "\n")
            rows = [[struct.unpack("f", struct.pack("f", float(text)))[0] for text in line.rstrip("\n").split(",")] for line in file]
        self.assertEqual([len(row) for row in rows], [10] * EXAMPLES)
        self.assertEqual([value for row in rows for value in row], list(values))

    def test_csv_names_classes_and_images(self):
        for name, level in (("ant/b.png", 0), ("bee, wild/a.png", 128), ("ant/c.png", 255)):
            os.makedirs(os.path.dirname(self.path("set/" + name)), exist_ok=True)
            self.write("set/" + name, png(level))
        data = "--dataset=images:dir=" + self.path("set")
        model = self.model(("InputLayer", {"batch_shape": [None, 8, 8, 3]}), ("Flatten", {}), ("Dense", {"units": 2}))

        def table(*options):
            self.predict(model, data, "--quiet", *options, out="p.csv")
            with open(self.path("p.csv"), newline="") as file:
                rows = list(csv.DictReader(file))
            for row in rows:  # the class is that of the largest value
                values = {key: float(value) for key, value in row.items() if key not in ("file", "class")}
                self.assertEqual(row.get("class", max(values, key=values.get)), max(values, key=values.get))
            self.assertEqual([row["file"] for row in rows], ["ant/b.png", "ant/c.png", "bee, wild/a.png"])
            return list(rows[0])
        self.assertEqual(table(), ["file", "output_0", "output_1"])
        long = "B" * 70000
        self.write("names", b"A\r\nB\n")
        self.write("blank", b"A\nB\n\r\n \n")
        self.write("long", f"A\n{long}".encode())
        for given, second in (("A,B", "B"), (self.path("names"), "B"), (self.path("blank"), "B"), (self.path("long"), long), ("A," + long, long)):
            self.assertEqual(table("--classes=" + given), ["file", "A", second, "class"])
        self.refused(USAGE, "train", model, data + "/ant", says=("the classes are the folders in dir=",))
        for name, text in (("hole", b"A\n\nB\n"), ("zero", b"A\nB\0\n"), ("empty", b"")):
            self.write(name, text)
        self.train(model, data, "--validation=off", "--save-weights=" + self.path("w.safetensors"))
        self.assertEqual(table("--initial-weights=" + self.path("w.safetensors")), ["file", "ant", "bee, wild", "class"])
        for given, out, code, says in (("A,B,C", "p.csv", USAGE, "3 names, but model"), ("A,A", "p.csv", USAGE, "twice"),
                                       (self.path("none"), "p.csv", BAD_INPUT, "No such file"), ("A,B", "p.npy", USAGE, ".csv"),
                                       ("A,,B", "p.csv", USAGE, "name 2 is empty"), ("A,B,", "p.csv", USAGE, "name 3 is empty"),
                                       (self.path("hole"), "p.csv", USAGE, "line 2 is empty"), (self.path("zero"), "p.csv", BAD_INPUT, "zero byte"),
                                       (self.path("empty"), "p.csv", USAGE, "there is no name"), (self.folder, "p.csv", BAD_INPUT, "directory")):
            self.refused(code, "predict", model, data, "--classes=" + given, "--out=" + self.path(out), says=(says,))

    def test_pixels_that_nothing_scales_are_warned_of(self):
        bright = self.bytes_array("x.npy", bytes(range(64, 192)) * 2, 4, 64)
        dark = self.bytes_array("dark.npy", bytes(range(64)) * 4, 4, 64)
        labels = self.bytes_array("y.npy", b"\0\1\0\1", 4)
        for first, x, warned in ((("Dense", {"units": 2}), bright, True), (("Dense", {"units": 2}), dark, False),
                                 (("Rescaling", {"scale": 0.01}), bright, False), (("BatchNormalization", {}), bright, False)):
            model = self.model(("InputLayer", {"batch_shape": [None, 64]}), ("Reshape", {"target_shape": [64]}), first, ("Dense", {"units": 2}))
            for command in (("predict", "--out=" + self.path("p.npy")), ("train", f"--validation-dataset=arrays:x={x},y={labels}"), ("evaluate",)):
                with self.subTest(first=first[0], x=x, command=command[0]):
                    outcome = self.lockstep(*command, model, f"--dataset=arrays:x={x},y={labels}")
                    self.assertEqual(outcome.code, DONE, outcome.err)
                    self.assertEqual(outcome.err.count("has numbers from 0 to 255"), int(warned), outcome.err)

    def test_arrays_without_labels_are_predicted(self):
        draw = random.Random(3)
        values = array.array("f", (draw.uniform(-1, 1) for _ in range(EXAMPLES * 6)))
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({EXAMPLES}, 6), }}".encode()
        header += b" " * ((-10 - len(header) - 1) % 64) + b"\n"
        self.write("x.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + values.tobytes())
        data = "--dataset=arrays:x=" + self.path("x.npy")
        model = self.model(("InputLayer", {"batch_shape": [None, 6]}), ("Dense", {"units": 2, "activation": "tanh"}))
        shape, expected = self.predict(data, model, "--batch=1")
        self.assertEqual(shape, (EXAMPLES, 2))
        self.assertGreater(max(map(abs, expected)), 0.01)
        for one, other in zip(expected, self.predict(data, model, "--batch=9", "--replicas=4")[1]):
            self.assertAlmostEqual(one, other, delta=1e-6)

    def test_an_image_keeps_its_shape(self):
        model = self.model(("InputLayer", {"batch_shape": [None, 28, 28, 1]}),
                           ("Conv2D", {"filters": 3, "kernel_size": 5, "strides": 3}))
        self.assertEqual(self.predict(self.data, model)[0], (EXAMPLES, 8, 8, 3))

    def test_normalization_takes_its_moving_statistics(self):
        """Else a prediction would depend on the other examples of its share."""
        model = self.model(("InputLayer", {"batch_shape": [None, 28, 28, 1]}), ("Flatten", {}), ("BatchNormalization", {}),
                           ("Dense", {"units": 4}))
        alone, together = (self.predict(self.data, model, f"--batch={batch}")[1] for batch in (1, EXAMPLES))
        for one, other in zip(alone, together):
            self.assertAlmostEqual(one, other, delta=1e-5)

    def test_more_predictions_than_are_kept_in_memory(self):
        """48 MB, of which 16 wait to be written at most."""
        model = self.model(("InputLayer", {"batch_shape": [None, 32, 32, 1]}),
                           ("Conv2D", {"filters": 16, "kernel_size": 3, "padding": "same"}))
        data = "--dataset=synthetic:shape=32x32x1,examples=7510"  # a tenth of them is the test split
        shape, expected = self.predict(data, model, "--batch=100", out="one.npy")
        self.assertEqual(shape, (751, 32, 32, 16))
        found = self.predict(data, model, "--batch=37", "--replicas=3")
        for i in range(0, len(expected), 997):
            self.assertAlmostEqual(found[1][i], expected[i], delta=1e-6)


class Refused(PredictTest):
    def test_where_it_cannot_write_it_says_so_before_it_computes(self):
        for out, code, says in (("/nowhere/at/all/p.npy", FAILED, ("/nowhere/at/all/p.npy", "No such file")),
                                ("/proc/p.csv", FAILED, ("/proc/p.csv",)),
                                (self.path("f.npy"), FAILED, ("f.npy", "a folder")),
                                (self.path("p.txt"), USAGE, ("p.txt", ".npy or .csv")),
                                (self.path(".npy"), DONE, ()),
                                ("", USAGE, (".npy or .csv",))):
            os.makedirs(self.path("f.npy"), exist_ok=True)
            arguments = ("predict", "--quiet", "--model=mlp", self.data, "--out=" + out)
            if code == DONE:
                self.assertEqual(self.lockstep(*arguments).code, DONE)
            else:
                self.refused(code, *arguments, says=says)
        self.refused(USAGE, "predict", "--model=mlp", self.data, says=("--out is missing",))

    def test_a_table_without_labels_is_shown_the_way(self):
        for name, line in (("old.csv", "1,2,3,0\n4,5,6,1\n"), ("new.csv", "1,2,3\n4,5,6\n")):
            with open(self.path(name), "w") as file:
                file.write(20 * line)
        self.lockstep("train", "--quiet", "--model=mlp", "--dataset=csv:file=" + self.path("old.csv"), "--epochs=1", "--save-weights=" + self.path("w.safetensors"))
        for more, code in (("", BAD_INPUT), (",label=none", DONE)):
            outcome = self.lockstep("predict", "--model=mlp", "--initial-weights=" + self.path("w.safetensors"), "--out=" + self.path("p.npy"),
                                    "--dataset=csv:file=" + self.path("new.csv") + more)
            shown = f"if the table has none, write csv:file={self.path('new.csv')},label=none"
            self.assertEqual((outcome.code, outcome.err.count(shown)), (code, int(not more)), outcome.err)
            self.assertEqual(outcome.err.count("the data gives its shape"), int(not more), outcome.err)
        made = self.model(("InputLayer", {"batch_shape": [None, 3]}), ("Dense", {"units": 2}))
        for name, model, weights, says in (("new.csv", made, (), 1), ("old.csv", "--model=mlp", ("--initial-weights=" + self.path("none.safetensors"),), 0),
                                           ("bad.csv", made, (), 0)):
            self.write("bad.csv", b"1,2,3,0\n1,2,x,1\n")
            outcome = self.lockstep("predict", model, *weights, "--out=" + self.path("p.npy"), "--dataset=csv:file=" + self.path(name))
            self.assertEqual((outcome.code, outcome.err.count("the last column was taken")), (BAD_INPUT, says), outcome.err)

    def test_what_it_reads_is_not_replaced(self):
        for path in ("x.npy", "./x.npy", self.path("x.npy")):
            self.write("x.npy", b"data")
            self.refused(USAGE, "predict", "--model=mlp", "--dataset=arrays:y=y.npy,x=" + self.path("x.npy"), "--out=" + path,
                         says=("--out=" + path, "--dataset reads", "another name"))
            with open(self.path("x.npy"), "rb") as file:
                self.assertEqual(file.read(), b"data")

    def test_a_full_disk_is_said_and_leaves_nothing(self):
        folder = self.path("small")
        os.mkdir(folder)
        # A limit on the size of files is what a full disk is to a program.
        done = subprocess.run(["bash", "-c", 'trap "" XFSZ; ulimit -f 1; exec "$0" "$@"', LOCKSTEP, "predict", "--quiet", "--model=mlp",
                               "--dataset=synthetic:shape=28x28x1,examples=2000", "--out=" + folder + "/p.csv"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
        self.assertEqual(done.returncode, FAILED, done.stderr)
        self.assertIn("cannot write '" + folder + "/p.csv': File too large", done.stderr)
        self.assertEqual(os.listdir(folder), [])

    def test_what_was_there_stays_when_something_fails(self):
        path = self.write("p.npy", b"what was there")
        self.write("bad.safetensors", b"no weights")
        outcome = self.lockstep("predict", self.data, "--model=mlp", "--initial-weights=" + self.path("bad.safetensors"), "--out=" + path)
        self.assertNotEqual(outcome.code, DONE)
        with open(path, "rb") as file:
            self.assertEqual(file.read(), b"what was there")

    def test_an_interruption_writes_nothing(self):
        path = self.path("p.csv")
        model = self.model(("InputLayer", {"batch_shape": [None, 64, 64, 1]}),
                           ("Conv2D", {"filters": 8, "kernel_size": 3, "padding": "same"}))
        process = subprocess.Popen([LOCKSTEP, "predict", "--device=reference", model, "--dataset=synthetic:shape=64x64x1,examples=40000",
                                    "--batch=1", "--out=" + path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        begin = time.monotonic()
        while not any(name.endswith(".part") for name in os.listdir(self.folder)) and time.monotonic() < begin + 60:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, INTERRUPTED, err)
        self.assertIn("interrupted; nothing was written", err)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("p.csv")], [])

    def test_data_of_another_shape(self):
        file = os.path.join(os.path.dirname(__file__), "..", "..", "models", "mlp.json")  # by name it would take the shape of the data
        outcome = self.lockstep("predict", "--model=" + file, "--dataset=synthetic:shape=5x5x1", "--out=" + self.path("p.npy"))
        self.assertEqual(outcome.code, 3, outcome.err)
        self.assertFalse(os.path.exists(self.path("p.npy")))


if __name__ == "__main__":
    main()
