# SPDX-License-Identifier: Apache-2.0
"""Models with several outputs beside Keras: predictions, losses and metrics of three steps by any number of replicas."""
import math
import os

from support import BAD_INPUT, DONE, FIXTURES, KERAS_FILES, UNAVAILABLE, USAGE, ProgramTest, main, read_json, write_json
from test_recurrent import floats

FOLDER = os.path.join(FIXTURES, "outputs")
REPLICAS = ((1,), (1, "--device=reference"), (2, "--strategy=ring"), (3, "--strategy=ring"), (2, "--strategy=sharded"), (3, "--strategy=sharded"))
CLOSE = 1e-5  # float32, added up in another order
EXPECTED = read_json(os.path.join(FOLDER, "expected.json"))
MASKS = read_json(os.path.join(FOLDER, "masks.json"))


class BesideKeras(ProgramTest):
    """The files say losses, weights and metrics."""

    def close(self, got, wanted):
        self.assertEqual(len(got), len(wanted))
        self.assertLess(max(abs(a - b) for a, b in zip(got, wanted)), CLOSE, (got, wanted))

    def options(self, name, expected, weights):
        file = os.path.join(FOLDER, name)
        data = [f"x{i if i > 1 else ''}={file}-x{i}.npy" for i in range(1, expected["inputs"] + 1)]
        data += [f"y{i if i > 1 else ''}={file}-y{i}.npy" for i in range(1, expected["targets"] + 1)]
        data += [f"sample_weight={os.path.join(FOLDER, weights)}-weights.npy"] if weights else []
        return (f"--model={file}.keras", f"--initial-weights={file}.keras", "--dataset=arrays:" + ",".join(data))

    def check(self, name, *given):
        if not KERAS_FILES:
            self.skipTest("files of Keras are not built in")
        expected, out = EXPECTED[name], self.path("out.npy")
        options = self.options(name, expected, name if expected["weights"] else None)
        outcome = self.lockstep("predict", *options, "--out=" + out)
        self.assertEqual(outcome.code, DONE, outcome.err)
        self.close(floats(out), expected["predictions"])
        for replicas, *others in REPLICAS:
            with self.subTest(replicas=replicas, others=others):
                report = self.train(*options, *given, "--optimizer=sgd:learning_rate=0.25", "--batch=12", "--epochs=3", "--threads=1",
                                    f"--replicas={replicas}", *others)
                self.assertEqual(len(report["epochs"]), len(expected["steps"]))
                for epoch, logs in zip(report["epochs"], expected["steps"]):
                    self.close([epoch[key] for key in sorted(logs)], [logs[key] for key in sorted(logs)])

    def test_two_heads_on_a_trunk_with_weights_of_losses_and_examples(self):
        self.check("two-heads")

    def test_losses_by_name_of_positions_and_of_the_whole(self):
        self.check("by-name")

    def test_an_inner_output_and_one_without_a_loss(self):
        self.check("inner", "--loss=inner=huber:delta=0.5,outer=mae")  # Keras's file has no delta

    def check_masks(self, name):
        """Also an evaluation by three batches, of the last of which masks leave nothing."""
        if not KERAS_FILES:
            self.skipTest("files of Keras are not built in")
        for case in (case for case in MASKS if case["model"] == name):
            options = self.options(name, case, "masked" if case["weighted"] else None)
            out, evaluated = self.path("out.npy"), self.path("evaluated.json")
            outcome = self.lockstep("predict", *options, "--out=" + out)
            self.assertEqual(outcome.code, DONE, outcome.err)
            self.close(floats(out), case["predictions"])
            for replicas, *others in REPLICAS:
                with self.subTest(weighted=case["weighted"], replicas=replicas, others=others):
                    by = (*options, f"--replicas={replicas}", *others)
                    outcome = self.lockstep("evaluate", *by, "--split=train", "--batch=5", "--report=" + evaluated)
                    self.assertEqual(outcome.code, DONE, outcome.err)
                    found = read_json(evaluated)
                    self.close([found[key] for key in case["names"]], case["evaluated"])
                    report = self.train(*by, "--optimizer=sgd:learning_rate=0.25", "--batch=12", "--epochs=3", "--threads=1", "--validation=off")
                    self.assertEqual(len(report["epochs"]), len(case["trained"]))
                    for epoch, wanted in zip(report["epochs"], case["trained"]):
                        self.close([epoch[key] for key in case["names"]], wanted)

    def test_outputs_under_one_mask_beside_one_without(self):
        self.check_masks("masked-heads")

    def test_outputs_under_masks_of_their_own(self):
        self.check_masks("masked-masks")


def layer(class_name, name, before, **config):
    return {"module": "keras.layers", "class_name": class_name, "name": name, "config": {"name": name, **config},
            "inbound_nodes": [[[one, call, 0, {}] for one, call in before]] if before else []}


class SeveralOutputs(ProgramTest):
    def setUp(self):
        super().setUp()
        model = {"class_name": "Functional", "config": {
            "name": "heads", "layers": [layer("InputLayer", "x", [], batch_shape=[None, 4]), layer("Dense", "trunk", [("x", 0)], units=5),
                                        layer("Dense", "kind", [("trunk", 0)], units=3, activation="softmax"),
                                        layer("Dense", "size", [("trunk", 0)], units=1)],
            "input_layers": [["x", 0, 0]], "output_layers": [["kind", 0, 0], ["size", 0, 0]]}}
        write_json(self.path("heads.json"), model)
        self.write_npy("x.npy", "<f4", [[(i * 7 + k * 3) % 11 / 11 for k in range(4)] for i in range(13)])
        self.write_npy("y.npy", "<i4", [i % 3 for i in range(13)])
        self.write_npy("y2.npy", "<f4", [[i % 5 / 5] for i in range(13)])
        self.model = "--model=" + self.path("heads.json")
        self.data = "--dataset=arrays:" + ",".join(f"{name}={self.path(name + '.npy')}" for name in ("x", "y", "y2"))

    def write_npy(self, name, dtype, rows):
        import array
        import struct
        flat = [value for row in rows for value in (row if isinstance(row, list) else [row])]
        shape = (len(rows), len(rows[0])) if isinstance(rows[0], list) else (len(rows),)
        header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
        header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
        with open(self.path(name), "wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
            array.array("f" if dtype == "<f4" else "i", flat).tofile(file)

    def losses(self, *options):
        report = self.train(self.model, self.data, "--optimizer=sgd:learning_rate=0.1", "--epochs=2", "--batch=13", "--threads=1", *options)
        return report["epochs"]

    def test_the_loss_is_the_sum_of_those_of_the_outputs_each_by_its_weight(self):
        for options, weights in (((), (1, 1)), (("--loss-weights=0.25,3",), (0.25, 3)), (("--loss-weights=size=0",), (1, 0))):
            for epoch in self.losses(*options):
                self.assertAlmostEqual(epoch["loss"], weights[0] * epoch["kind_loss"] + weights[1] * epoch["size_loss"], 5)
                self.assertIn("kind_accuracy", epoch)

    def test_compare_weighs_losses_as_train_does(self):
        given = (self.model, self.data, "--optimizer=sgd:learning_rate=0.1", "--batch=13", "--epochs=1", "--threads=1", "--device=reference",
                 "--validation=off", "--loss-weights=size=0.25", "--seed=3")
        epoch = self.train(*given)["epochs"][0]
        out = self.path("compared.json")
        outcome = self.lockstep("compare", *given, "--strategies=one-device", "--replicas=1", "--quiet", "--report=" + out)
        self.assertEqual(outcome.code, DONE, outcome.err)
        run = read_json(out)["runs"][0]
        self.assertAlmostEqual(run["final_loss"], epoch["loss"], 5)
        self.assertNotAlmostEqual(run["final_loss"], epoch["kind_loss"] + epoch["size_loss"], 2)

    def test_replicas_with_uneven_shares_are_as_one(self):
        options = ("--loss=kind=sparse_categorical_crossentropy,size=huber:delta=0.3", "--metrics=kind=accuracy,size=mae,mse:name=squares",
                   "--loss-weights=kind=2")
        one = self.losses(*options)
        self.assertEqual({key for key in one[0] if key.startswith(("kind_", "size_"))},
                         {"kind_loss", "size_loss", "kind_accuracy", "size_mae", "size_squares"})
        for case in (("--replicas=3", "--strategy=ring"), ("--replicas=3", "--strategy=sharded"), ("--replicas=2", "--microbatches=2"),
                     ("--replicas=2", "--strategy=diloco:steps=1,outer_learning_rate=1,outer_momentum=0")):
            with self.subTest(case=case):
                for a, b in zip(one, self.losses(*options, *case)):
                    for key in ("loss", "kind_loss", "size_loss", "kind_accuracy", "size_mae", "size_squares"):
                        self.assertAlmostEqual(a[key], b[key], 5, key)

    def test_what_does_not_fit_is_refused_by_name(self):
        only = "--dataset=arrays:" + ",".join(f"{name}={self.path(name + '.npy')}" for name in ("x", "y"))
        for options, says in ((("--loss=colour=mse",), ("'colour' is no output", "kind, size")),
                              (("--loss=mse,mse,mse",), ("3 are given", "2 outputs")),
                              (("--loss=kind=mse,mae",), ("name all outputs or none",)),
                              (("--loss=none",), ("one output only",)),
                              (("--metrics=accuracy",), ("say of which one", "kind=accuracy")),
                              (("--loss=kind=sparse_categorical_crossentropy", "--metrics=size=mae"), ("'size' has no loss",)),
                              (("--loss-weights=kind=x",), ("expected a number",)),
                              (("--loss-weights=1",), ("1 are given",)),
                              (("--class-weight=0:2",), ("2 outputs", "sample_weight"))):
            with self.subTest(options=options):
                self.refused(USAGE, "train", self.model, self.data, *options, says=says)
        self.refused(USAGE, "train", self.model, only, says=("1 target", "2 outputs with a loss", "y2=FILE"))
        self.refused(BAD_INPUT, "train", self.model, self.data.replace("y2.npy", "x.npy"), says=("'size'", "field 'y2'"))
        self.refused(USAGE, "train", self.model, self.data.replace("y2=", "y3="), says=("y2 is missing",))

    def masked(self):
        """Options for an output of each word, under a mask, beside one of the whole."""
        write_json(self.path("masked.json"), {"class_name": "Functional", "config": {
            "name": "masked", "layers": [layer("InputLayer", "ids", [], batch_shape=[None, 4], dtype="int32"),
                                         layer("Embedding", "words", [("ids", 0)], input_dim=9, output_dim=5, mask_zero=True),
                                         layer("Dense", "tag", [("words", 0)], units=3, activation="softmax"),
                                         layer("GlobalAveragePooling1D", "mean", [("words", 0)]), layer("Dense", "size", [("mean", 0)], units=1)],
            "input_layers": [["ids", 0, 0]], "output_layers": [["tag", 0, 0], ["size", 0, 0]]}})
        self.write_npy("ids.npy", "<i4", [[1 + (i + k) % 8 if i < 5 or k == 2 else 0 for k in range(4)] for i in range(13)])
        self.write_npy("tags.npy", "<i4", [[(i + k) % 3 for k in range(4)] for i in range(13)])
        fields = [f"{field}={self.path(name + '.npy')}" for field, name in (("x", "ids"), ("y", "tags"), ("y2", "y2"))]
        return "--model=" + self.path("masked.json"), "--dataset=arrays:" + ",".join(fields), "--dataset=arrays:" + ",".join(fields[:2])

    def test_replicas_count_together_what_a_mask_leaves(self):
        self.model, self.data, _ = self.masked()
        keys = ("loss", "tag_loss", "size_loss", "tag_accuracy")
        one = self.losses("--loss-weights=0.5,2")
        for epoch in one:
            self.assertAlmostEqual(epoch["loss"], 0.5 * epoch["tag_loss"] + 2 * epoch["size_loss"], 5)
        for case in (("--replicas=2", "--strategy=ring", "--share=3,1"), ("--replicas=3", "--strategy=sharded"), ("--device=reference",)):
            with self.subTest(case=case):
                for a, b in zip(one, self.losses("--loss-weights=0.5,2", *case), strict=True):
                    for key in keys:
                        self.assertAlmostEqual(a[key], b[key], 5, key)

    def test_the_only_loss_is_under_a_mask_and_has_a_weight(self):
        self.model, _, self.data = self.masked()
        loss = ("--loss=tag=sparse_categorical_crossentropy",)
        once = self.losses(*loss)[0]
        for case in ((), ("--replicas=3", "--strategy=ring")):
            thrice = self.losses(*loss, "--loss-weights=tag=3", *case)[0]
            self.assertAlmostEqual(thrice["loss"], 3 * once["loss"], 5)
            self.assertAlmostEqual(thrice["tag_accuracy"], once["tag_accuracy"], 5)

    def test_a_penalty_is_of_all_examples_whatever_a_mask_leaves_of_them(self):
        """As in Keras a batch has the mean loss of what the mask leaves, by its weight, and the penalty by its examples."""
        model, _, data = self.masked()
        options, weights, out, report = (model, data, "--threads=1", "--batch=5"), *map(self.path, ("weights.safetensors", "out.npy", "report.json"))
        whole = read_json(self.path("masked.json"))
        whole["config"]["layers"], whole["config"]["output_layers"] = whole["config"]["layers"][:3], [["tag", 0, 0]]
        whole["config"]["layers"][2]["config"]["activity_regularizer"] = {"class_name": "L2", "config": {"l2": 0.1}}
        write_json(self.path("masked.json"), whole)
        self.train(*options, "--epochs=1", "--save-weights=" + weights)
        self.assertEqual(self.lockstep("predict", *options, "--initial-weights=" + weights, "--out=" + out).code, DONE)
        tags, batches = floats(out), []
        for begin in (0, 5, 10):
            examples = range(begin, min(begin + 5, 13))
            found = [-math.log(tags[i * 12 + k * 3 + (i + k) % 3]) for i in examples for k in range(4) if i < 5 or k == 2]
            batches.append((len(examples), sum(found) / len(found), 0.1 * sum(value * value for value in tags[begin * 12:examples.stop * 12])))
        for loss_weight, replicas in ((weight, case) for weight in (1, 3) for case in ((), ("--replicas=2", "--strategy=ring"), ("--replicas=3", "--strategy=sharded"))):
            with self.subTest(loss_weight=loss_weight, replicas=replicas):
                outcome = self.lockstep("evaluate", *options, *replicas, "--initial-weights=" + weights, "--split=train",
                                        f"--loss-weights={loss_weight}", "--report=" + report)
                self.assertEqual(outcome.code, DONE, outcome.err)
                self.assertAlmostEqual(read_json(report)["loss"], sum(count * loss_weight * mean + penalty for count, mean, penalty in batches) / 13, 5)

    def test_a_penalty_of_a_layer_on_each_step_is_refused_once(self):
        penalized = {"class_name": "Dense", "config": {"units": 3, "activity_regularizer": {"class_name": "L2", "config": {"l2": 0.1}}}}
        for inside in ({"layer": penalized}, {"layer": {"class_name": "TimeDistributed", "config": {"layer": penalized}}}):
            model = {"class_name": "Sequential", "config": {"layers": [
                {"class_name": "InputLayer", "config": {"batch_shape": [None, 2, 2, 3]}}, {"class_name": "TimeDistributed", "config": {"name": "steps", **inside}}]}}
            write_json(self.path("steps.json"), model)
            self.refused(BAD_INPUT, "train", "--model=" + self.path("steps.json"), self.data, says=("steps", "layer"))

    def test_what_cannot_count_a_whole_batch_is_refused(self):
        model, data, _ = self.masked()
        for code, says, *options in ((USAGE, "--microbatches", "--microbatches=2"), (USAGE, "--reproducible", "--reproducible"),
                                     (UNAVAILABLE, "sharded:stage=2", "--strategy=sharded:stage=3", "--replicas=2")):
            with self.subTest(options=options):
                self.refused(code, "train", model, data, "--device=cpu", "--batch=13", "--epochs=1", *options, says=("has a mask", says))

    def test_the_score_of_one_output_is_that_of_precision_and_recall(self):
        self.write_npy("y2.npy", "<f4", [[i % 2] for i in range(13)])
        metrics = "--metrics=size=f1_score:average=macro,threshold=0.1,precision:thresholds=0.1,recall:thresholds=0.1"
        for case in ((), ("--replicas=3", "--strategy=ring"), ("--device=reference",)):
            for epoch in self.losses(metrics, "--loss=kind=sparse_categorical_crossentropy,size=mse", *case):
                right, found = epoch["size_precision"], epoch["size_recall"]
                self.assertGreater(right * found, 0)
                self.assertAlmostEqual(epoch["size_f1_score"], 2 * right * found / (right + found), 5)
        self.refused(USAGE, "train", self.model, self.data, "--metrics=size=f1_score:average=macro", says=("needs threshold=",))

    def test_an_output_without_a_loss_needs_no_targets(self):
        only = "--dataset=arrays:" + ",".join(f"{name}={self.path(name + '.npy')}" for name in ("x", "y"))
        report = self.train(self.model, only, "--loss=kind=sparse_categorical_crossentropy", "--epochs=1", "--threads=1")
        self.assertEqual([key for key in report["epochs"][0] if key.startswith(("kind_", "size_"))], ["kind_accuracy"])


if __name__ == "__main__":
    main()
