# SPDX-License-Identifier: Apache-2.0
"""What a run prints and writes: progress, report, weights, interruption, choice of strategy."""
import os
import re
import resource
import select
import signal
import subprocess
import time

from support import BAD_INPUT, DONE, FAILED, FASHION, FIXTURES, INTERRUPTED, LARGE_DATA, LOCKSTEP, TERMINATED, UNAVAILABLE, USAGE, ProgramTest, main, read_json, tensors, write_json

SYNTHETIC = "--dataset=synthetic:examples=400"
ENDLESS = ("train", "--model=mlp", "--dataset=synthetic:examples=2000", "--epochs=1000000", "--validation=off")


class Report(ProgramTest):
    def test_has_every_member_of_the_contract(self):
        report = self.train("--model=cnn", SYNTHETIC, "--strategy=ring", "--replicas=2", "--replica-batch=16", "--seed=7",
                            "--epochs=2", "--threads=1")
        expected = {"lockstep": "0.1.0", "command": "train", "status": "done", "strategy": "mirrored", "collective": "ring",
                    "transport": "local", "device": "cpu", "precision": "float32", "workers": 1, "replicas": 2,
                    "threads_per_replica": 1, "seed": 7, "model": "cnn", "parameters": 225034, "dataset": "synthetic",
                    "global_batch": 32, "replica_batches": [16, 16], "steps": 26, "layout": "master",
                    "optimizer": {"name": "adam", "learning_rate": 0.001, "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7},
                    "loss": "sparse_categorical_crossentropy:from_logits=true", "shuffle": "on", "microbatches": 1}
        for name, value in expected.items():
            self.assertEqual(report[name], value, name)
        self.assertEqual({plugin["kind"] for plugin in report["plugins"]}, {"strategy", "collective", "transport", "device"})
        for plugin in report["plugins"]:
            self.assertEqual(plugin["file"], f"{plugin['kind']}-{plugin['name']}.so")
        self.assertEqual([epoch["epoch"] for epoch in report["epochs"]], [1, 2])
        for epoch in report["epochs"]:
            self.assertEqual((epoch["steps"], epoch["examples"]), (13, 400))
            self.assertAlmostEqual(epoch["examples_per_second"] * epoch["seconds"], 400, delta=0.01)
            for name in ("loss", "accuracy", "val_loss", "val_accuracy", "learning_rate"):
                self.assertIsInstance(epoch[name], float)
        self.assertEqual(len(report["losses"]), 26)
        parts = report["step_seconds"]
        self.assertEqual(set(parts), {"median", "p90", "input", "compute", "communication", "exposed_communication", "update",
                                      "device"})
        self.assertIsNone(parts["device"])  # nobody waits for one that computes on the calling thread
        self.assertGreaterEqual(parts["p90"], parts["median"])
        self.assertGreater(parts["compute"], 0)
        self.assertGreaterEqual(parts["communication"], parts["exposed_communication"])
        buckets = report["communication"]["buckets"]
        self.assertEqual([bucket["algorithm"] for bucket in buckets], ["ring"] * len(buckets))
        self.assertGreaterEqual(sum(bucket["bytes"] for bucket in buckets), 4 * 225034)
        # A ring of two sends each half twice: 2 (n - 1) / n of all bytes.
        self.assertAlmostEqual(report["communication"]["bytes_per_step_per_rank"], sum(b["bytes"] for b in buckets), delta=512)
        self.assertGreater(report["peak_rss_bytes"], 0)
        self.assertGreater(report["startup_seconds"], 0)
        self.assertEqual(len(set(report["parameter_hashes"])), 1)

    def test_the_first_line_says_where_halves_are_slow(self):
        with open("/proc/cpuinfo") as file:
            flags = set(file.read().split())
        short = ("train", "--model=mlp", SYNTHETIC, "--validation=off", "--steps=1", "--replicas=1")
        for precision, limit, slow in (("mixed_bfloat16", "AVX512_CORE", "no unit for bfloat16"), ("mixed_float16", "ALL", "in float16"),
                                       ("mixed_bfloat16", "ALL", None if "avx512_bf16" in flags else "no unit for bfloat16"),
                                       ("float32", "AVX2", None)):
            outcome = self.lockstep(*short, "--precision=" + precision, environment={"ONEDNN_MAX_CPU_ISA": limit})
            self.assertEqual(outcome.code, DONE, outcome.err)
            said = [line for line in outcome.err.splitlines() if line.startswith("lockstep: cpu:")]
            self.assertEqual(len(said), 1 if slow else 0, outcome.err)
            self.assertIn(slow or "", outcome.err)

    def test_names_what_else_decides_the_result(self):
        short = ("--model=mlp", "--dataset=synthetic:examples=100", "--validation=off", "--steps=1")
        report = self.train(*short)
        self.assertEqual([report[name] for name in ("learning_rate_schedule", "class_weight")], [None, None])
        self.assertNotIn("exclude_from_weight_decay", report["optimizer"])
        report = self.train(*short, "--optimizer=adamw:exclude_from_weight_decay=bias:beta", "--class-weight=0:2,1:0.5",
                            "--learning-rate-schedule=cosine_decay:decay_steps=10")
        self.assertEqual(report["optimizer"]["exclude_from_weight_decay"], "bias:beta")
        self.assertEqual(report["learning_rate_schedule"], "cosine_decay:decay_steps=10")
        self.assertEqual(report["class_weight"], "0:2,1:0.5")

    def test_epoch_loss_is_the_mean_of_the_examples(self):
        report = self.train("--model=mlp", "--dataset=synthetic:examples=100", "--batch=64", "--validation=off")
        losses = report["losses"]
        self.assertAlmostEqual(report["epochs"][0]["loss"], (64 * losses[0] + 36 * losses[1]) / 100, places=5)

    def test_steps_end_it_and_say_so(self):
        report = self.train("--model=mlp", SYNTHETIC, "--steps=5", "--epochs=3")
        self.assertEqual((report["status"], report["steps"]), ("stopped", 5))
        report = self.train("--model=mlp", "--dataset=synthetic:examples=320", "--steps=5", "--epochs=1")
        self.assertEqual((report["status"], report["steps"]), ("done", 5))

    def test_no_epochs_train_nothing(self):
        both = []
        for name, limit in (("none", "--epochs=0"), ("still", "--steps=2")):
            weights = self.path(name + ".safetensors")
            report = self.train("--model=mlp", SYNTHETIC, "--optimizer=sgd:learning_rate=0", limit, "--save-weights=" + weights)
            both.append((report["status"], report["steps"], len(report["epochs"]), len(report["losses"]), tensors(weights)))
        self.assertEqual(both[0][:4], ("done", 0, 0, 0))
        self.assertEqual(both[1][:4], ("stopped", 2, 1, 2))
        self.assertEqual(both[0][4], both[1][4])  # with a learning rate of 0 the first weights stay, too

    def test_more_than_a_thousand_losses_are_cut(self):
        report = self.train("--model=linear", "--dataset=synthetic:examples=1100,shape=2,classes=0", "--batch=1", "--validation=off")
        self.assertEqual((report["steps"], len(report["losses"])), (1100, 1000))

    def test_learning_rate_scaling(self):
        for rule, factor in (("none", 1), ("sqrt", 2), ("linear", 4)):
            report = self.train("--model=mlp", SYNTHETIC, "--steps=1", "--replicas=4", "--lr-scaling=" + rule,
                                "--optimizer=sgd:learning_rate=0.01")
            self.assertAlmostEqual(report["optimizer"]["learning_rate"], 0.01 * factor)

    def test_the_seed_decides_everything(self):
        arguments = ("--model=mlp-dropout", SYNTHETIC, "--steps=5", "--threads=1")
        first, again = self.train(*arguments, "--seed=1"), self.train(*arguments, "--seed=1")
        other = self.train(*arguments, "--seed=2")
        self.assertEqual(first["losses"], again["losses"])
        self.assertEqual(first["parameter_hashes"], again["parameter_hashes"])
        self.assertNotEqual(first["losses"], other["losses"])

    def test_shuffle_changes_the_order_alone(self):
        arguments = ("--model=mlp", "--dataset=synthetic:examples=100", "--batch=100", "--steps=1", "--validation=off", "--threads=1")
        losses = [self.train(*arguments, "--shuffle=" + way)["losses"][0] for way in ("on", "off", "10")]
        for loss in losses[1:]:
            self.assertAlmostEqual(loss, losses[0], places=5)
        orders = {tuple(self.train(*arguments[:2], "--batch=10", "--steps=3", "--shuffle=" + way)["losses"])
                  for way in ("on", "off", "10")}
        self.assertEqual(len(orders), 3)


class ValidationDataset(ProgramTest):
    def test_another_dataset_may_be_the_validation(self):
        """Its test split, or all of it where it has one: the figures are those of `evaluate`."""
        for name, slope in (("train", 2), ("other", 3)):
            with open(self.path(name + ".csv"), "w") as file:
                file.write("x,y\n" + "".join(f"{k % 7},{slope * (k % 7) + k % 2}\n" for k in range(60)))
        csv, weights, scores = "csv:label=y,targets=numbers,file=" + self.path("train.csv"), self.path("w.safetensors"), self.path("scores.json")
        for model, train, other in (("linear", csv, "csv:label=y,targets=numbers,file=" + self.path("other.csv")),
                                    ("mlp", "synthetic:examples=100", "synthetic:examples=90,seed=3")):
            with self.subTest(other):
                report = self.train("--model=" + model, "--dataset=" + train, "--validation-dataset=" + other, "--save-weights=" + weights)
                outcome = self.lockstep("evaluate", "--model=" + model, "--dataset=" + other, "--initial-weights=" + weights, "--quiet",
                                        "--report=" + scores)
                self.assertEqual(outcome.code, DONE, outcome.err)
                expected = read_json(scores)["loss"]
                self.assertAlmostEqual(report["epochs"][-1]["val_loss"], expected, delta=1e-5 * expected)
        self.refused(USAGE, "train", "--model=linear", "--dataset=" + csv, "--validation-dataset=" + csv, "--validation=off",
                     says=("--validation-dataset and --validation=off exclude each other",))
        self.refused(USAGE, "train", "--model=linear", "--dataset=" + csv, "--validation-dataset=" + csv, "--report=" + self.path("train.csv"),
                     says=("train.csv",))


class Choice(ProgramTest):
    def ran(self, strategy, *arguments):
        report = self.train("--model=mlp", SYNTHETIC, "--steps=1", "--strategy=" + strategy, *arguments)
        return report["strategy"], report["collective"], report["transport"], report["options"]

    def test_a_strategy_a_collective_or_a_transport_by_name(self):
        self.assertEqual(self.ran("one-device")[:3], ("one-device", None, None))
        for name in ("ring", "mirrored", "mirrored:collective=ring", "ring:transport=local"):
            self.assertEqual(self.ran(name, "--replicas=2")[:3], ("mirrored", "ring", "local"))
        self.assertEqual(self.ran("local", "--replicas=2")[:3], ("mirrored", "auto", "local"))
        self.assertEqual(self.ran("hierarchical-copy", "--replicas=2")[:3], ("mirrored", "hierarchical-copy", "local"))

    def with_four(self, strategy, *arguments):
        return self.train("--model=mlp", SYNTHETIC, "--steps=3", "--replicas=4", "--threads=1", "--shuffle=off",
                          "--strategy=" + strategy, *arguments)

    def test_auto_says_for_each_bucket_what_it_chose_and_why(self):
        report = self.with_four("auto")
        tuner, buckets = report["tuner"], report["communication"]["buckets"]
        self.assertEqual((tuner["source"], tuner["file"], report["options"]), ("measured", None, {}))
        self.assertGreater(tuner["seconds"], 0)
        names = {"direct", "halving-doubling", "hierarchical-copy", "ring", "torus", "tree", "two-level"}
        for size in tuner["sizes"]:
            self.assertEqual({candidate["collective"] for candidate in size["candidates"]}, names)
            timed = {candidate["collective"]: candidate for candidate in size["candidates"] if candidate["rounds"]}
            if size["collective"] != "ring": # not by chance
                ring, best = timed["ring"], timed[size["collective"]]
                self.assertGreater(ring["seconds"] - best["seconds"], (ring["spread_seconds"] + best["spread_seconds"]) * 0.999)
                self.assertGreaterEqual(best["rounds"], 5)
                self.assertFalse(best["given_up"])
        chosen = {size["bytes"]: size["collective"] for size in tuner["sizes"]}
        for bucket in buckets:
            near = min(chosen, key=lambda bytes: max(bytes, bucket["bytes"]) / min(bytes, bucket["bytes"]))
            self.assertEqual(bucket["algorithm"], chosen[near])
        self.assertEqual({plugin["name"] for plugin in report["plugins"] if plugin["kind"] == "collective"},
                         {bucket["algorithm"] for bucket in buckets} | {"auto"})

    def test_auto_with_one_candidate_is_that_candidate(self):
        only, tree = self.with_four("auto:candidates=tree"), self.with_four("tree")
        self.assertEqual({bucket["algorithm"] for bucket in only["communication"]["buckets"]}, {"tree"})
        self.assertEqual(only["losses"], tree["losses"])
        self.assertEqual(only["parameter_hashes"], tree["parameter_hashes"])
        self.assertIsNone(tree["tuner"])

    def test_the_fixed_table_gives_the_same_bits_twice(self):
        first, second = self.with_four("local"), self.with_four("local")
        self.assertEqual(first["parameter_hashes"], second["parameter_hashes"])
        self.assertEqual(first["losses"], second["losses"])
        self.assertEqual((first["tuner"]["source"], first["tuner"]["seconds"]), ("fixed", 0))
        self.assertEqual(first["options"], {"collective.table": "fixed"})
        named = self.with_four("halving-doubling") # what the table has for four replicas
        self.assertEqual(first["parameter_hashes"], named["parameter_hashes"])
        self.assertEqual(self.with_four("auto:table=fixed")["parameter_hashes"], named["parameter_hashes"])

    def test_a_table_of_bench_gives_the_same_bits_twice(self):
        table = self.path("table.json")
        outcome = self.lockstep("bench", "--replicas=4", "--bytes=256K,1M", "--place=in", "--seconds=0.01", "--tune=" + table)
        self.assertEqual(outcome.code, DONE, outcome.err)
        written = read_json(table)
        self.assertEqual((written["world"], written["transport"], written["device"]), (4, "local", "host"))
        self.assertEqual([row["bytes"] for row in written["rows"]], [1 << 18, 1 << 20])
        first, second = self.with_four("auto:table=" + table), self.with_four("auto:table=" + table)
        self.assertEqual(first["parameter_hashes"], second["parameter_hashes"])
        self.assertEqual((first["tuner"]["source"], first["tuner"]["file"]), ("file", table))
        self.assertEqual([(size["bytes"], size["collective"]) for size in first["tuner"]["sizes"]],
                         [(row["bytes"], row["collective"]) for row in written["rows"]])
        self.refused(BAD_INPUT, "train", "--quiet", "--model=mlp", SYNTHETIC, "--replicas=2", "--strategy=auto:table=" + table,
                     says=("for 4 ranks", "--replicas=2 --tune"))

    def test_tables_name_collectives_with_options(self):
        table = self.path("table.json")
        row = {"bytes": 1 << 20, "collective": "hierarchical-copy:groups=2"}
        write_json(table, {"lockstep": "0.1.0", "transport": "local", "device": "host", "world": 4, "operation": "all_reduce", "rows": [row]})
        report = self.with_four("auto:table=" + table)
        self.assertEqual({bucket["algorithm"] for bucket in report["communication"]["buckets"]}, {row["collective"]})
        self.assertEqual(report["parameter_hashes"], self.with_four(row["collective"])["parameter_hashes"])

    def test_what_auto_cannot_do_is_said_before_training(self):
        for text, code, says in (("auto:network=flat", USAGE, "lockstep simulate"), ("auto:collective.network=flat", USAGE, "lockstep simulate"),
                                 ("local:network=flat", USAGE, "lockstep simulate"), ("auto:candidates=auto", USAGE, "itself"), ("auto:candidates=ring+ring", USAGE, "twice"),
                                 ("auto:table=", USAGE, "table= is empty"),
                                 ("auto:candidates=rign", UNAVAILABLE, "did you mean ring"), ("auto:groups=2", USAGE, "no option groups"),
                                 ("local:candidates=ring+tree", USAGE, "name auto"), ("auto:table=fixed,candidates=ring", USAGE, "leave one out"),
                                 ("auto:table=/none.json", BAD_INPUT, "bench --tune=FILE")):
            self.refused(code, "train", "--quiet", "--model=mlp", SYNTHETIC, "--replicas=2", "--strategy=" + text, says=(says,))
        self.refused(USAGE, "bench", "auto:network=flat", says=("lockstep simulate",))
        for command in ("verify", "simulate"):
            self.refused(USAGE, command, "auto", says=("no schedule of its own",))

    def test_options_go_to_the_one_that_declares_them(self):
        for text in ("hierarchical-copy:groups=3", "hierarchical-copy:collective.groups=3",
                     "mirrored:collective=hierarchical-copy,groups=3"):
            self.assertEqual(self.ran(text, "--replicas=4")[3]["collective.groups"], "3")

    def test_no_spelling_names_a_part_that_does_not_run(self):
        for text in ("mirrored:strategy.collective=tree", "mirrored:strategy.transport=nope", "ring:strategy.collective=tree"):
            self.refused(USAGE, "train", "--quiet", "--model=mlp", SYNTHETIC, "--replicas=2", "--strategy=" + text)
        self.assertNotIn("strategy.collective", self.ran("tree", "--replicas=2")[3])

    def test_without_a_name_it_is_one_device_or_mirrored(self):
        report = self.train("--model=mlp", SYNTHETIC, "--steps=1")
        self.assertEqual(report["strategy"], "one-device")
        report = self.train("--model=mlp", SYNTHETIC, "--steps=1", "--replicas=2")
        self.assertEqual((report["strategy"], report["collective"]), ("mirrored", "ring"))

    def test_the_first_line_says_what_runs(self):
        outcome = self.lockstep("train", "--model=mlp", SYNTHETIC, "--steps=1", "--replicas=2", "--threads=1")
        first = outcome.out.splitlines()[0]
        for text in ("mlp on synthetic", "2 replicas of 1 thread", "cpu", "mirrored (ring over local)"):
            self.assertIn(text, first)

    def test_checks_of_replicas_every_step(self):
        report = self.train("--model=mlp", SYNTHETIC, "--replicas=3", "--strategy=ring", "--check-replicas=1", "--epochs=2",
                            "--steps=5")
        self.assertEqual(report["steps"], 5)


class Weights(ProgramTest):
    def test_saved_weights_are_read_back_and_evaluate_alike(self):
        path = self.path("w.safetensors")
        report = self.train("--model=cnn", SYNTHETIC, "--replicas=2", "--save-weights=" + path)
        self.assertEqual({name: tuple(shape) for name, (shape, _) in tensors(path).items()}, {
            "conv2d/kernel": (3, 3, 1, 32), "conv2d/bias": (32,), "conv2d_1/kernel": (3, 3, 32, 64), "conv2d_1/bias": (64,),
            "dense/kernel": (1600, 128), "dense/bias": (128,), "dense_1/kernel": (128, 10), "dense_1/bias": (10,)})
        outcome = self.lockstep("evaluate", "--model=cnn", SYNTHETIC, "--initial-weights=" + path, "--quiet")
        self.assertEqual(outcome.code, DONE, outcome.err)
        epoch = report["epochs"][0]
        self.assertIn(f"loss: {epoch['val_loss']:.4f}", outcome.out)
        self.assertIn(f"accuracy: {epoch['val_accuracy']:.4f}", outcome.out)
        again = self.train("--model=cnn", SYNTHETIC, "--initial-weights=" + path, "--steps=1", "--optimizer=sgd:learning_rate=0",
                           "--save-weights=" + self.path("again.safetensors"))
        self.assertEqual(again["parameter_hashes"][0], report["parameter_hashes"][0])
        self.assertEqual(tensors(path), tensors(self.path("again.safetensors")))

    def test_evaluation_does_not_depend_on_replicas_or_batch(self):
        lines = set()
        for extra in ((), ("--replicas=3", "--strategy=ring"), ("--batch=7",), ("--replicas=8", "--batch=3")):
            outcome = self.lockstep("evaluate", "--model=cnn", "--dataset=synthetic:examples=500", *extra)
            self.assertEqual(outcome.code, DONE, outcome.err)
            lines.add(outcome.out.split(" - ", 2)[2])
        self.assertEqual(len(lines), 1, lines)

    def test_the_other_split(self):
        outcome = self.lockstep("evaluate", "--model=mlp", SYNTHETIC, "--split=train")
        self.assertTrue(outcome.out.startswith("400 examples"), outcome.out)
        self.refused(USAGE, "evaluate", "--model=mlp", SYNTHETIC, "--split=half", says=("half",))


class KerasModel(ProgramTest):
    def test_a_model_that_keras_wrote_trains(self):
        path = os.path.join(FIXTURES, "keras", "sequential-cnn.json")
        report = self.train("--model=" + path, "--dataset=synthetic:examples=200", "--replicas=2", "--strategy=ring")
        self.assertEqual(report["parameters"], 320 + (13 * 13 * 32 + 1) * 64 + 65 * 10)

    def test_a_functional_model_that_keras_wrote_trains(self):
        path = os.path.join(FIXTURES, "functional", "residual.json")
        report = self.train("--model=" + path, "--dataset=synthetic:shape=8x8x2,classes=5,examples=200", "--replicas=2",
                            "--strategy=ring")
        self.assertEqual(report["parameters"], (9 * 2 + 1) * 4 + (9 * 4 + 1) * 4 + (64 + 1) * 5)

    def test_a_residual_network_with_moving_statistics_trains(self):
        path = os.path.join(FIXTURES, "keras", "functional-residual.json")
        report = self.train("--model=" + path, "--dataset=synthetic:shape=20x20x3,classes=7,examples=200", "--replicas=2",
                            "--strategy=ring")
        self.assertEqual(report["parameters"], 1771)
        self.lockstep("summary", "--model=" + path)

    def test_summary_of_a_functional_model_says_what_is_connected(self):
        outcome = self.lockstep("summary", "--model=" + os.path.join(FIXTURES, "functional", "residual.json"))
        self.assertEqual(outcome.code, DONE)
        for text in ("Connected to", "first[0][0], second[0][0]", "Trainable params: 549 (2,196 bytes)",
                     "Non-trainable params: 0 (0 bytes)"):
            self.assertIn(text, outcome.out)

    def test_several_outputs_want_a_target_each(self):
        model = read_json(os.path.join(FIXTURES, "functional", "residual.json"))
        model["config"]["output_layers"] = [["scores", 0, 0], ["flat", 0, 0]]
        write_json(self.path("two.json"), model)
        self.assertEqual(self.lockstep("summary", "--model=" + self.path("two.json")).code, DONE)
        for command in ("train", "evaluate"):
            self.refused(USAGE, command, "--model=" + self.path("two.json"),
                         "--dataset=synthetic:shape=8x8x2,classes=5,examples=200", says=("1 target", "2 outputs with a loss"))

    def test_summary_is_a_table_like_that_of_keras(self):
        outcome = self.lockstep("summary", "--model=cnn")
        self.assertEqual(outcome.code, DONE)
        for text in ('Model: "cnn"', "conv2d_1 (Conv2D)", "(None, 11, 11, 64)", "18,496", "Total params: 225,034"):
            self.assertIn(text, outcome.out)


class BuiltInModels(ProgramTest):
    def table(self, label, rows=30):
        path = self.path("table.csv")
        with open(path, "w") as file:
            file.write("a,b,c,d,y\n" + "".join(f"{i % 3},{i % 5},{i},1,{label(i)}\n" for i in range(rows)))
        return path

    def test_take_shape_and_classes_from_the_data(self):
        path, weights = self.table(lambda i: "xyz"[i % 3]), self.path("w.safetensors")
        data = f"--dataset=csv:file={path},label=y"
        self.train("--model=mlp", data, "--epochs=1", "--save-weights=" + weights)
        self.assertEqual([shape[1] for name, (shape, _) in sorted(tensors(weights).items()) if name.endswith("/kernel")][-1], 3)
        # Data with fewer classes, or without labels, is for the weights that are there.
        few = self.table(lambda i: "xz"[i % 2])
        for command in (("evaluate",), ("predict", "--out=" + self.path("p.csv"))):
            outcome = self.lockstep(*command, "--model=mlp", f"--dataset=csv:file={few},label=y", "--initial-weights=" + weights)
            self.assertEqual(outcome.code, DONE, outcome.err)
        with open(self.path("p.csv")) as file:
            self.assertEqual(next(file), "x,y,z,class\n")
        for model, dataset, rows in (("cnn", "synthetic:shape=20x20x3,classes=7", ("(None, 18, 18, 32)", "896", "(None, 7)")),
                                     ("cnn", "synthetic:shape=784", ("(None, 26, 26, 32)", "(None, 10)")),  # reshaped
                                     ("cnn-small", "synthetic:shape=20x20,classes=7", ("(None, 18, 18, 32)", "(None, 7)")),
                                     ("resnet", "synthetic:shape=40x40x1,classes=3", ("(None, 40, 40, 1)", "(None, 3)")),
                                     ("mlp-dropout", "synthetic:shape=5x2", ("(None, 10)", "5,632")),
                                     ("mlp", "synthetic:shape=5,classes=0,outputs=4", ("(None, 5)", "(None, 4)")),
                                     ("mlp", "synthetic:shape=5,classes=100,limit=20", ("(None, 100)",)),  # fewer examples than classes
                                     ("mlp", f"csv:file={self.table(lambda i: i % 15)},label=y,limit=8", ("(None, 15)",))):
            with self.subTest(model=model, dataset=dataset):
                summary = self.lockstep("summary", "--model=" + model, "--dataset=" + dataset)
                self.assertEqual(summary.code, DONE, summary.err)
                for row in rows:
                    self.assertIn(row, summary.out)
        self.table(lambda i: "xyz"[i % 3])
        self.assertEqual(self.lockstep("compare", "--model=mlp", data, "--initial-weights=" + weights, "--strategies=ring", "--replicas=2",
                                       "--steps=2", "--speed-steps=0").code, DONE)
        self.refused(BAD_INPUT, "train", "--model=cnn", data, says=("--model=mlp takes any shape",))

    def test_whole_numbers_that_may_be_no_classes_are_asked_about(self):
        data = f"--dataset=csv:file={self.table(lambda i: 3 * i)},label=y"
        for command in ("train", "evaluate"):
            self.refused(BAD_INPUT, command, "--quiet", "--model=mlp", data, says=("go up to 87 in 30 examples", "a model with 88 units", "add targets=numbers"))
        self.refused(BAD_INPUT, "train", "--quiet", "--model=mlp", data, "--loss=mse", says=("add targets=numbers to the dataset",))
        self.assertEqual(self.lockstep("train", "--quiet", "--model=mlp", data + ",targets=numbers", "--epochs=1").code, DONE)
        few = f"--dataset=csv:file={self.table(lambda i: 2 * i, rows=4)},label=y"
        self.assertIn("(None, 7)", self.lockstep("summary", "--model=mlp", few).out)

    def test_one_output_is_not_for_classes(self):
        for label, code in ((lambda i: "xyz"[i % 3], USAGE), (lambda i: i % 3, USAGE), (lambda i: i / 7, DONE)):
            data = f"--dataset=csv:file={self.table(label)},label=y" + (",targets=numbers" if code == DONE else "")
            for command in ("train", "evaluate"):
                if code == USAGE:
                    self.refused(USAGE, command, "--quiet", "--model=linear", data, says=("3 classes", "take --model=mlp", "--loss=mean_squared_error"))
                else:
                    self.assertEqual(self.lockstep(command, "--quiet", "--model=linear", data).code, DONE)
                self.assertEqual(self.lockstep(command, "--quiet", "--model=linear", data, "--loss=mse").code, DONE)


class Plugins(ProgramTest):
    def test_list_names_kind_version_and_availability(self):
        lines = self.lockstep("plugins").out.splitlines()
        for kind, name in (("device", "cpu"), ("device", "reference"), ("transport", "local"), ("collective", "ring"),
                           ("collective", "hierarchical-copy"), ("strategy", "mirrored"), ("strategy", "one-device")):
            self.assertTrue(any(line.split() == [kind, name, "0.1.0", "available"] for line in lines), (kind, name, lines))

    def test_one_plugin_shows_options_and_traits(self):
        outcome = self.lockstep("plugins", "hierarchical-copy")
        self.assertEqual(outcome.code, DONE)
        for text in ("groups (integer", "operations:   all_reduce", "the same bits"):
            self.assertIn(text, outcome.out)
        self.refused(UNAVAILABLE, "plugins", "rign", says=("rign", "ring"))
        self.assertRegex(self.lockstep("plugins", "mirrored").out, r"options: .*\n +collective \(text, default ring\).*\n +transport \(text\): ")

    def test_lists_have_a_line_for_each_name(self):
        lists = dict(re.findall(r"^lockstep list (\w+) +names (.*)$", self.lockstep("list").out, re.MULTILINE))
        for name, row in (("models", r"cnn +2 Conv2D, 2 MaxPooling2D, Flatten, 2 Dense"), ("datasets", r"csv +a table of numbers .*"),
                          ("layers", r"Conv2D +\S.*"), ("layers", r"Matmul +operation: .*"), ("losses", r"huber +squared up to delta.*"),
                          ("metrics", r"huber +squared up to delta.*"), ("metrics", r"auc +area .*"), ("optimizers", r"lamb +Adam .*"),
                          ("callbacks", r"csv_logger +writes .*"), ("strategies", r"mirrored +a copy .*"),
                          ("strategies", r"ring +collective: .*"), ("strategies", r"nccl +collective: .*"),
                          ("filters", r"topk +\S.*")):
            with self.subTest(list=name):
                self.assertIn(name, lists)
                self.assertRegex(self.lockstep("list", name).out, r"(?m)^%s$" % row)
        self.assertEqual(len(lists), 9)
        for name in lists:  # every name has its text, in its line or in the next
            self.assertNotRegex(self.lockstep("list", name).out, r"(?m)^\S+ *$(?!\n +\S)")
        self.refused(USAGE, "list", "optimisers", says=("did you mean 'optimizers'?",))
        self.refused(USAGE, "list", "words", says=("there are: models, datasets, layers",))


class Progress(ProgramTest):
    def test_one_line_an_epoch_without_a_terminal(self):
        outcome = self.lockstep("train", "--model=mlp", SYNTHETIC, "--epochs=2", "--replicas=2")
        lines = outcome.out.splitlines()
        self.assertEqual(len(lines), 3, outcome.out)
        self.assertRegex(lines[1], r"^Epoch 1/2 - 4 steps - .* examples/s - loss: .* - accuracy: .* - val_loss: .* - val_accuracy: ")
        self.assertNotIn("\033", outcome.out)

    def shown(self, *arguments, columns=0, **environment):
        """By a training."""
        shown = self.on_terminal("train", "--validation=off", *arguments, columns=columns, environment={"TERM": "xterm", **environment})
        return shown.decode().replace("\r\n", "\n")

    def test_a_bar_on_a_terminal(self):
        shown = self.shown("--model=cnn", "--dataset=synthetic:examples=4000", columns=132, NO_COLOR="1")
        self.assertIn("Epoch 1/1", shown)
        self.assertRegex(shown, r"63/63 \[={30}\] - [\d.]+ s - \d+ ms/step - \d+ examples/s - loss: ")
        self.assertRegex(shown, r"\r\033\[K\d+/63 \[=*>\.*\] - \d+ ms/step - \d+ s left - loss: ")
        self.assertNotRegex(shown, r"\033\[[^K]")  # no colours, also without NO_COLOR

    def test_a_bar_on_a_narrow_terminal(self):
        shown = self.shown("--model=cnn", "--dataset=synthetic:examples=4000", columns=20)
        drawn = [line for line in shown.split("\r\033[K")[1:] if "\n" not in line]
        self.assertGreater(len(drawn), 1)
        for line in drawn:
            self.assertLess(len(line), 20)
            self.assertRegex(line, r"^\d+/63")

    def test_lines_on_a_terminal_where_they_are_asked_for_or_it_is_dumb(self):
        for arguments, kind in ((["--verbose=2"], "xterm"), (["--verbose=1"], "dumb")):
            shown = self.shown("--model=mlp", SYNTHETIC, *arguments, "--log-every=3", TERM=kind).splitlines()
            self.assertEqual(len(shown), 4, shown)
            for line, step in zip(shown[1:], (3, 6)):
                self.assertRegex(line, rf"^Epoch 1/1 - step {step}/7 - [\d.]+ [mu]?s/step - loss: [\d.]+ - accuracy: [\d.]+$")
            self.assertRegex(shown[3], r"^Epoch 1/1 - 7 steps - ")
        self.assertEqual(self.shown("--model=mlp", SYNTHETIC, "--verbose=0"), "")

    def test_what_says_nothing_and_what_does_not_go_together(self):
        for silent in ("--quiet", "--verbose=0"):
            self.refused(USAGE, "train", "--model=mlp", SYNTHETIC, silent, "--log-every=2", says=("--log-every and --", "exclude each other"))
        self.refused(USAGE, "train", "--model=mlp", SYNTHETIC, "--quiet", "--verbose=2", says=("exclude each other",))
        self.refused(USAGE, "train", "--model=mlp", SYNTHETIC, "--verbose=3", says=("--verbose=3: expected 0, 1 or 2, or no value",))
        self.assertEqual(self.lockstep("predict", "--model=mlp", SYNTHETIC, "--out=" + self.path("p.npy"), "--verbose=0").out, "")

    def test_devices_without_numbers_are_refused(self):
        for device in ("cpu", "reference"):
            self.refused(USAGE, "train", "--model=mlp", SYNTHETIC, "--device=" + device, "--devices=0",
                         says=(f"--devices: '0': device '{device}' is all processors", "--threads=N"))

    def test_verbose_says_where_the_time_goes(self):
        outcome = self.lockstep("train", "--model=cnn", SYNTHETIC, "--verbose", "--replicas=2", "--strategy=ring", "--validation=off")
        self.assertEqual(outcome.code, DONE, outcome.err)
        for text in ("bucket 0: ", " conversions of activations", "weights with a second layout", "conv2d_1 forward + relu",
                     "conv2d_1 backward weights", "optimizer update", "waiting for the reduction", "everything else", "MB planned"):
            self.assertIn(text, outcome.out)

    def test_the_rows_of_the_times_add_up_to_a_step(self):
        """They would not if kernels and steps were counted over different steps: what is left would be far below 0."""
        last_is_small = "--batch=190"  # of 400: two steps of 190, one of 20
        for arguments in (("--steps=1",), ("--steps=2",), (last_is_small,), (last_is_small, "--replicas=2", "--strategy=ring"),
                          (last_is_small, "--timeline=" + self.path("t.json")), ("--batch=63", "--microbatches=2"),
                          ("--batch=63", "--accumulate=3"), ("--batch=63", "--microbatches=2", "--replicas=2", "--strategy=ring")):
            with self.subTest(arguments):
                outcome = self.lockstep("train", "--model=cnn", SYNTHETIC, "--verbose", "--validation=off", "--threads=1", *arguments)
                self.assertEqual(outcome.code, DONE, outcome.err)
                table = outcome.out.partition("where the time of a step goes")[2].splitlines()[1:]
                rows = [re.match(r"(.*?) +(-?[\d.]+) +(-?[\d.]+)%", line).groups() for line in table if "%" in line]
                names, times = [name for name, _, _ in rows], [float(time) for _, time, _ in rows]
                self.assertEqual(names[-2:], ["everything else", "step (mean)"])
                self.assertAlmostEqual(sum(times[:-1]), times[-1], delta=0.1 * len(times))  # as far as they are printed
                self.assertGreaterEqual(times[-2], -0.001 * times[-1])


class Interruption(ProgramTest):
    def setUp(self):
        super().setUp()
        if os.environ.get("LOCKSTEP_SANITIZE") == "thread":
            self.skipTest("ThreadSanitizer holds signals back while the main thread waits")

    def start(self, *arguments):
        process = subprocess.Popen([LOCKSTEP, *ENDLESS, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        ready, _, _ = select.select([process.stdout], [], [], 60)
        self.assertTrue(ready)
        line = "Epoch"
        while line and not (line := process.stdout.readline()).startswith("Epoch"):
            pass
        self.assertTrue(line, process.communicate()[1] if not line else "")
        return process

    def end(self, process, number):
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        return err

    def test_ctrl_c_ends_the_step_and_writes_the_report(self):
        for extra in ((), ("--replicas=3", "--strategy=ring"), ("--replicas=2", "--strategy=hierarchical-copy", "--check-replicas=1")):
            path, weights = self.path("r.json"), self.path("w.safetensors")
            process = self.start("--report=" + path, "--save-weights=" + weights, *extra)
            err = self.end(process, signal.SIGINT)
            self.assertEqual(process.returncode, INTERRUPTED, err)
            self.assertIn("interrupted", err)
            report = read_json(path)
            self.assertEqual(report["status"], "interrupted")
            self.assertGreater(report["steps"], 0)
            self.assertEqual(len(set(report["parameter_hashes"])), 1)
            self.assertIn("dense/kernel", tensors(weights))

    def test_before_the_first_step_it_is_said_too(self):
        process = subprocess.Popen([LOCKSTEP, "train", "--model=mlp", "--dataset=synthetic:examples=30000"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        process.stderr.readline()  # that the data is made up: it is being made now
        err = self.end(process, signal.SIGINT)
        self.assertEqual(process.returncode, INTERRUPTED, err)
        self.assertIn("interrupted", err)

    def test_terminate_and_hangup_are_interruptions_too(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number.name):
                path, weights = self.path("r.json"), self.path("w.safetensors")
                process = self.start("--report=" + path, "--save-weights=" + weights, "--optimizer=sgd:use_ema=on")
                said = self.end(process, number)
                self.assertIn("the weights are those of the last step and not their averages", said)
                self.assertEqual(process.returncode, TERMINATED if number == signal.SIGTERM else INTERRUPTED)
                self.assertEqual(read_json(path)["status"], "interrupted")
                self.assertIn("dense/kernel", tensors(weights))
                os.unlink(weights)

    def test_one_signal_that_is_sent_twice_loses_nothing(self):
        """As timeout(1) does, and a terminal that goes away: to its foreground group, and by the shell."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number.name):
                path, weights = self.path("r.json"), self.path("w.safetensors")
                process = self.start("--report=" + path, "--save-weights=" + weights)
                process.send_signal(number)
                time.sleep(0.002)  # else the second is one with the first, which is pending still
                self.end(process, number)
                self.assertEqual(process.returncode, TERMINATED if number == signal.SIGTERM else INTERRUPTED)
                self.assertEqual(read_json(path)["status"], "interrupted")
                self.assertIn("dense/kernel", tensors(weights))
                os.unlink(weights)

    def test_a_second_one_of_another_kind_ends_at_once(self):
        process = self.start("--replicas=2", "--strategy=ring", "--report=" + self.path("r.json"))
        process.send_signal(signal.SIGSTOP)  # so that it cannot end its step between the two
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        self.end(process, signal.SIGCONT)
        self.assertIn(process.returncode, (-signal.SIGINT, -signal.SIGTERM))


class ClosedOutput(ProgramTest):
    def test_who_stops_reading_loses_no_files(self):
        path, weights = self.path("r.json"), self.path("w.safetensors")
        process = subprocess.Popen([LOCKSTEP, "train", "--model=mlp", SYNTHETIC, "--epochs=20", "--validation=off",
                                    "--report=" + path, "--save-weights=" + weights],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        self.assertTrue(process.stdout.readline())
        process.stdout.close()
        err = process.stderr.read()
        process.stderr.close()
        self.assertEqual(process.wait(60), -signal.SIGPIPE, err)  # as other programs, once the files are written
        self.assertNotIn("error", err)
        report = read_json(path)
        self.assertEqual((report["status"], len(report["epochs"])), ("done", 20))
        self.assertIn("dense/kernel", tensors(weights))

    def test_a_full_disk_behind_the_output_is_named(self):
        with open("/dev/full", "w") as full:
            for command in (("--version",), ("plugins",), ("train", "--help")):
                done = subprocess.run([LOCKSTEP, *command], stdout=full, stderr=subprocess.PIPE, text=True)
                self.assertEqual(done.returncode, FAILED)
                self.assertIn("No space left on device", done.stderr)

    def test_a_file_that_grows_too_large_is_named(self):
        # More than a buffer: the write that fails is not the last, and errno was changed since.
        path = self.path("r.json")
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
        done = subprocess.run([LOCKSTEP, "train", "--quiet", "--model=mlp", "--dataset=synthetic:examples=3000", "--batch=1",
                               "--validation=off", "--report=" + path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              text=True, preexec_fn=limit, cwd=self.folder)
        self.assertEqual(done.returncode, FAILED, done.stderr)
        self.assertIn("File too large", done.stderr)
        self.assertFalse(os.path.exists(path))


class RealData(ProgramTest):
    def test_two_epochs_of_the_cnn_on_fashion_mnist(self):
        self.need(FASHION + "/train-images-idx3-ubyte.gz")
        watched = os.environ.get("LOCKSTEP_SANITIZE", "none") != "none"  # ten times as slow: one epoch
        report = self.train("--model=cnn", "--dataset=fashion-mnist", "--strategy=ring", "--replicas=2", "--replica-batch=64",
                            f"--epochs={1 if watched else 2}", "--optimizer=adam:learning_rate=0.001", timeout=600)
        self.assertGreaterEqual(report["epochs"][-1]["val_accuracy"], 0.82 if watched else 0.85)
        if watched:
            self.skipTest("peak memory means nothing under a sanitizer; the training itself passed")
        self.assertLess(report["peak_rss_bytes"], 250e6)

    def test_mnist_from_a_folder(self):
        folder = os.path.join(LARGE_DATA, "mnist")
        self.need(folder)
        report = self.train("--model=mlp", "--dataset=mnist:dir=" + folder, "--replicas=2", "--strategy=hierarchical-copy",
                            "--replica-batch=64")
        self.assertGreaterEqual(report["epochs"][0]["val_accuracy"], 0.93)


if __name__ == "__main__":
    main()
