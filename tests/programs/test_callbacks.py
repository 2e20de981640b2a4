# SPDX-License-Identifier: Apache-2.0
"""lockstep train --callback= and --tensorboard= with real runs: what is restored, written, ended and refused."""
import csv
import os
import struct

from support import DONE, UNAVAILABLE, USAGE, ProgramTest, main

MODEL = ("--model=mlp", "--dataset=synthetic:examples=400", "--batch=50", "--optimizer=sgd:learning_rate=0.05", "--threads=1")
# Stops after its third epoch with the weights of the first: no loss of the data above falls by 100 in an epoch.
STOPPING = "--callback=early_stopping:monitor=loss,min_delta=100,patience=2,restore_best_weights=true"


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    """The records of a file of events, with their checksums looked at."""
    with open(path, "rb") as file:
        data = file.read()
    at, found = 0, []
    while at < len(data):
        length, check = struct.unpack_from("<QI", data, at)
        assert crc32c(data[at:at + 8]) == check
        body = data[at + 12:at + 12 + length]
        assert crc32c(body) == struct.unpack_from("<I", data, at + 12 + length)[0]
        found.append(body)
        at += 16 + length
    return found


def fields(message):
    """A protocol buffer as {number of the field: values}."""
    def varint(at):
        value, shift = 0, 0
        while True:
            byte = message[at]
            value |= (byte & 127) << shift
            at, shift = at + 1, shift + 7
            if byte < 128:
                return value, at
    at, out = 0, {}
    while at < len(message):
        key, at = varint(at)
        kind = key & 7
        if kind == 0:
            value, at = varint(at)
        elif kind == 1:
            value, at = struct.unpack_from("<d", message, at)[0], at + 8
        elif kind == 5:
            value, at = struct.unpack_from("<f", message, at)[0], at + 4
        else:
            assert kind == 2
            length, at = varint(at)
            value, at = message[at:at + length], at + length
        out.setdefault(key >> 3, []).append(value)
    return out


def events(folder):
    """{tag: [(step, scalar or histogram)]} of the one file there."""
    names = os.listdir(folder)
    assert len(names) == 1 and names[0].startswith("events.out.tfevents."), names
    first, *others = records(os.path.join(folder, names[0]))
    assert fields(first)[3] == [b"brain.Event:2"]
    found = {}
    for record in others:
        event = fields(record)
        value = fields(fields(event[5][0])[1][0])
        content = value[2][0] if 2 in value else fields(value[5][0])
        found.setdefault(value[1][0].decode(), []).append((event[2][0], content))
    return found


class Restoring(ProgramTest):
    def weights(self, name, *options):
        report = self.train(*MODEL, *options, "--save-weights=" + self.path(name))
        with open(self.path(name), "rb") as file:
            return report, file.read()

    def test_the_best_weights_come_back_under_every_strategy(self):
        for strategy in ("one-device", "ring", "central-storage", "parameter-server:mode=sync", "hierarchical-copy"):
            with self.subTest(strategy=strategy):
                way = ("--strategy=" + strategy, "--replicas=" + ("1" if strategy == "one-device" else "2"), "--validation=off")
                _, once = self.weights("once.safetensors", *way, "--epochs=1")
                report, restored = self.weights("restored.safetensors", *way, "--epochs=9", STOPPING)
                _, on = self.weights("on.safetensors", *way, "--epochs=3")
                self.assertEqual((report["status"], report["stopped_by"], len(report["epochs"])), ("stopped", "early_stopping", 3))
                self.assertEqual(restored, once)
                self.assertNotEqual(restored, on)

    def test_replicas_that_do_not_wait_restore_too(self):
        report, _ = self.weights("async.safetensors", "--strategy=parameter-server", "--replicas=2", "--epochs=9", STOPPING,
                                 "--validation=off")
        self.assertEqual((report["status"], report["stopped_by"], len(report["epochs"])), ("stopped", "early_stopping", 3))


class Ending(ProgramTest):
    def test_a_training_that_runs_through_was_stopped_by_nobody(self):
        report = self.train(*MODEL, "--epochs=2", "--callback=early_stopping:monitor=loss,patience=5")
        self.assertEqual((report["status"], report["stopped_by"]), ("done", None))

    def test_a_loss_that_is_not_finite_ends_it_or_fails(self):
        wild = ("--model=linear", "--validation=off", "--loss=mse", "--metrics=none", "--optimizer=sgd:learning_rate=1e30", "--batch=50", "--steps=9",
                "--dataset=synthetic:examples=400,shape=4,classes=0,outputs=1")
        outcome = self.lockstep("train", *wild, "--report=" + self.path("r.json"))
        self.assertEqual(outcome.code, 1, outcome.err)
        self.assertIn("the loss is not finite", outcome.err)
        report = self.train(*wild, "--callback=terminate_on_nan", "--save-weights=" + self.path("w.safetensors"))
        self.assertEqual((report["status"], report["stopped_by"]), ("stopped", "terminate_on_nan"))
        self.assertLess(report["steps"], 9)
        steps = str(report["steps"])
        self.train(*wild[:-2], "--steps=" + steps, wild[-1], "--save-weights=" + self.path("before.safetensors"))
        with open(self.path("w.safetensors"), "rb") as one, open(self.path("before.safetensors"), "rb") as other:
            self.assertEqual(one.read(), other.read())

    def test_a_lower_rate_is_used_from_the_next_epoch_on(self):
        report = self.train(*MODEL, "--epochs=3", "--replicas=2", "--strategy=ring",
                            "--callback=reduce_lr_on_plateau:monitor=loss,min_delta=100,patience=1,factor=0.5")
        rates = [epoch["learning_rate"] for epoch in report["epochs"]]
        for rate, expected in zip(rates, (0.05, 0.05, 0.025)):
            self.assertAlmostEqual(rate, expected, delta=1e-8)


class Writing(ProgramTest):
    def test_a_line_of_csv_for_each_epoch(self):
        path = self.path("log.csv")
        report = self.train(*MODEL, "--epochs=3", "--callback=csv_logger:filename=" + path)
        with open(path, newline="", encoding="ascii") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(list(rows[0]), ["epoch", "accuracy", "loss", "val_accuracy", "val_loss"])
        self.assertEqual([row["epoch"] for row in rows], ["0", "1", "2"])
        for row, epoch in zip(rows, report["epochs"]):
            for name in ("loss", "accuracy", "val_loss", "val_accuracy"):
                self.assertAlmostEqual(float(row[name]), epoch[name], delta=1e-7 * abs(epoch[name]))
        self.train(*MODEL, "--epochs=1", "--validation=off", f"--callback=csv_logger:filename={path},append=true")
        with open(path, newline="", encoding="ascii") as file:
            lines = file.read().splitlines()
        self.assertEqual(len(lines), 5)
        self.assertTrue(lines[4].startswith("0,") and lines[4].endswith(",NA,NA"), lines[4])

    def test_a_file_that_cannot_be_written_is_named(self):
        outcome = self.lockstep("train", *MODEL, "--callback=csv_logger:filename=/nowhere/log.csv")
        self.assertEqual(outcome.code, 3, outcome.err)
        self.assertIn("csv_logger: cannot write '/nowhere/log.csv'", outcome.err)

    def test_scalars_and_histograms_for_tensorboard(self):
        report = self.train(*MODEL, "--epochs=2", "--tensorboard=" + self.path("tb,+[1]"),
                            "--callback=tensorboard:update_freq=3,histogram_freq=2,write_grads=on,log_dir=" + self.path("batches"))
        train, validation = events(self.path("tb,+[1]/train")), events(self.path("tb,+[1]/validation"))
        for number, epoch in enumerate(report["epochs"]):
            for tag, found, value in (("epoch_loss", train, epoch["loss"]), ("epoch_accuracy", train, epoch["accuracy"]),
                                      ("epoch_loss", validation, epoch["val_loss"]),
                                      ("epoch_learning_rate", train, epoch["learning_rate"]),
                                      ("epoch_seconds", train, epoch["seconds"])):
                step, scalar = found[tag][number]
                self.assertEqual(step, number)
                self.assertAlmostEqual(scalar, value, delta=1e-6 * abs(value))
        histogram = train["dense/kernel/histogram"][1][1]
        buckets = struct.unpack("<30d", histogram[7][0])
        limits = struct.unpack("<30d", histogram[6][0])
        self.assertEqual(sum(buckets), 784 * 256)
        self.assertEqual(histogram[3][0], 784 * 256)
        self.assertEqual(list(limits), sorted(limits))
        self.assertEqual(limits[-1], histogram[2][0])
        self.assertLess(histogram[1][0], limits[0])
        batches = events(self.path("batches/train"))
        (step, gradients), *others = batches["dense/kernel_grad/histogram"]
        self.assertEqual((step, others), (0, []))  # every second epoch
        self.assertEqual(sum(struct.unpack("<30d", gradients[7][0])), 784 * 256)
        self.assertTrue(gradients[1][0] < 0 < gradients[2][0])
        self.assertEqual([step for step, _ in train["dense/kernel_grad/histogram"]], [0, 1])
        # Where no replica has them, there are none.
        self.train(*MODEL, "--replicas=2", "--strategy=central-storage", "--tensorboard=" + self.path("stores"))
        stores = events(self.path("stores/train"))
        self.assertIn("dense/kernel/histogram", stores)
        self.assertFalse(any("_grad" in tag for tag in stores))
        # 8 steps an epoch: every third of 16.
        self.assertEqual([step for step, _ in events(self.path("batches/train"))["batch_loss"]], [3, 6, 9, 12, 15])


class Refusing(ProgramTest):
    def refused(self, code, says, *options):
        outcome = self.lockstep("train", *MODEL, *options)
        self.assertEqual(outcome.code, code, outcome.err)
        self.assertIn(says, outcome.err)
        self.assertNotIn("Epoch", outcome.out)

    def test_names_and_options(self):
        self.refused(UNAVAILABLE, "early_stopping", "--callback=early_stoping")
        self.refused(USAGE, "patience", "--callback=early_stopping:patience=x")
        self.refused(USAGE, "write_grads=maybe: expected true, false or auto", "--callback=tensorboard:write_grads=maybe")
        self.refused(USAGE, "write_grads needs histogram_freq", "--callback=tensorboard:write_grads=on")
        self.refused(USAGE, "write_grads=on: under this strategy no replica has the sums", "--strategy=central-storage", "--replicas=2",
                     "--callback=tensorboard:histogram_freq=1,write_grads=on,log_dir=" + self.path("never"))
        self.refused(3, "no-such.so", "--callback=./no-such.so")

    def test_a_schedule_leaves_no_rate_to_lower(self):
        self.refused(USAGE, "which decides it", "--learning-rate-schedule=cosine_decay:decay_steps=9", "--callback=reduce_lr_on_plateau")

    def test_a_metric_that_there_is_not_is_a_warning(self):
        outcome = self.lockstep("train", *MODEL, "--epochs=2", "--quiet", "--validation=off", "--callback=early_stopping")
        self.assertEqual(outcome.code, DONE, outcome.err)
        self.assertEqual(outcome.err.count("monitor=val_loss: this training has no such metric"), 1, outcome.err)


if __name__ == "__main__":
    main()
