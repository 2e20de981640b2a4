# SPDX-License-Identifier: Apache-2.0
"""--compress: replicas stay equal, fewer bytes travel, a resumed training goes on to the bit, and what cannot be is refused."""
import os
import shlex
import shutil
import subprocess

from support import DONE, UNAVAILABLE, USAGE, ProgramTest, main, tensors, write_json

SOURCE = os.environ["LOCKSTEP_SOURCE"]
COMPILER = shlex.split(os.environ["LOCKSTEP_COMPILER"])
SANITIZE = os.environ["LOCKSTEP_SANITIZE"]
DILOCO = "--strategy=diloco:steps=4,fragments=2,delay=1,mix=0.5"
FILTERS = ("int8:block=100", "fp8:format=e4m3", "fp8:format=e5m2,block=1000", "topk:fraction=0.05", "powersgd:rank=3,start=2")
POWERSGD = FILTERS[4]
SAME = ("losses", "parameter_hashes")


class CompressTest(ProgramTest):
    def options(self, steps, *more, model="mlp"):
        """Shares of 13 and of 12 examples, and an empty one at the end of an epoch of 26."""
        return ("--model=" + model, "--dataset=synthetic:examples=26", "--batch=25", "--threads=1", f"--epochs={-(-steps // 2)}",
                f"--steps={steps}", "--validation=off", "--seed=3", *more)

    def run_it(self, steps, *more, workers=1, **what):
        report = self.train(*self.options(steps, *more, **what), under=("launch", f"-n{workers}", "--") if workers > 1 else ())
        self.assertEqual(len(set(report["parameter_hashes"])), 1)
        return report

    def build(self, name, source):
        """A plugin in the test's folder."""
        with open(self.path(name + ".c"), "w", encoding="ascii") as file:
            file.write(source)
        sanitize = [] if SANITIZE == "none" else ["-fsanitize=" + SANITIZE]
        subprocess.run([*COMPILER, "-std=c11", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-I", SOURCE, "-o", self.path(name + ".so"),
                        self.path(name + ".c"), *sanitize], check=True)

    def hash_and_losses(self, report):
        return report["parameter_hashes"][0], report["losses"]


class Compress(CompressTest):
    def test_replicas_and_processes_are_equal_and_fewer_bytes_travel(self):
        plain = self.run_it(12, "--replicas=2")
        self.assertIsNone(plain["compress"])
        for text in FILTERS:
            with self.subTest(text):
                alone = self.run_it(12, "--replicas=2", "--compress=" + text)
                apart = self.run_it(12, "--compress=" + text, workers=2)
                self.assertEqual(self.hash_and_losses(alone), self.hash_and_losses(apart))
                self.assertNotEqual(alone["parameter_hashes"], plain["parameter_hashes"])
                self.assertEqual(alone["compress"], text)
                self.assertIn(text.split(":")[0], [plugin["name"] for plugin in alone["plugins"] if plugin["kind"] == "filter"])
                self.assertLess(alone["communication"]["bytes_per_step_per_rank"], 0.3 * plain["communication"]["bytes_per_step_per_rank"])
                self.assertLess(alone["losses"][-1], 0.9 * alone["losses"][0])

    def test_collectives_and_numbers_of_replicas(self):
        for strategy in ("ring", "tree", "direct", "halving-doubling", "two-level", "mirrored:bucket=300000"):
            with self.subTest(strategy):
                self.run_it(3, "--replicas=3", "--strategy=" + strategy, "--compress=int8")
        self.run_it(3, "--replicas=8", "--compress=topk", "--device=reference")

    def test_a_resumed_training_has_the_same_bits(self):
        """That of diloco goes on while a difference is under way."""
        for text, workers, strategy in (("int8", 1, "ring"), ("topk:fraction=0.01", 2, "ring"), ("int8", 2, "sharded:stage=3"),
                                        (POWERSGD, 2, "sharded:stage=2"), ("powersgd:rank=3,start=6", 1, "ring"), ("int8", 1, DILOCO[11:])):
            with self.subTest(text=text, strategy=strategy):
                more = ("--compress=" + text, "--strategy=" + strategy, *(() if workers > 1 else ("--replicas=2",)))
                folder = "--checkpoint-dir=" + self.path(strategy[:4] + text[:4])
                whole = self.run_it(8, *more, workers=workers)
                self.run_it(5, *more, folder, workers=workers)
                rest = self.run_it(8, *more, folder, "--resume", workers=workers)
                self.assertEqual(self.hash_and_losses(whole), self.hash_and_losses(rest))

    def test_a_filter_that_begins_later(self):
        """Before, a training has the bits and the bytes of one without a filter."""
        for strategy in ("ring", "sharded:stage=2"):
            plain = self.run_it(8, "--replicas=2", "--strategy=" + strategy)
            begun = self.run_it(8, "--replicas=2", "--strategy=" + strategy, "--compress=powersgd:start=5")
            self.assertEqual(begun["losses"][:6], plain["losses"][:6])
            self.assertNotEqual(begun["losses"][6:], plain["losses"][6:])
            never = self.run_it(8, "--replicas=2", "--strategy=" + strategy, "--compress=powersgd:start=8")
            self.assertEqual(self.hash_and_losses(never), self.hash_and_losses(plain))
            self.assertEqual(never["communication"]["bytes_per_step_per_rank"], plain["communication"]["bytes_per_step_per_rank"])

    def test_what_was_owed_is_not_forgotten_in_silence(self):
        folder = "--checkpoint-dir=" + self.path("owed")
        self.run_it(2, "--replicas=2", "--compress=int8", folder)
        outcome = self.lockstep("train", *self.options(3), "--replicas=2", folder, "--resume")
        self.assertEqual(outcome.code, DONE)
        self.assertIn("what replicas owed to the sums of gradients (--compress) is left out: this training has no filter", outcome.err)

    def test_rounds(self):
        plain = self.run_it(12, "--replicas=2", DILOCO)
        self.assertEqual(plain["communication"]["filter_bytes"], 0)
        for text in FILTERS[:1] + FILTERS[3:]:
            with self.subTest(text):
                alone = self.run_it(12, "--replicas=2", DILOCO, "--compress=" + text)
                apart = self.run_it(12, DILOCO, "--compress=" + text, workers=2)
                self.assertEqual(self.hash_and_losses(alone), self.hash_and_losses(apart))
                self.assertLess(alone["communication"]["bytes_per_step_per_rank"], 0.3 * plain["communication"]["bytes_per_step_per_rank"])
                self.assertLess(alone["losses"][-1], 0.9 * alone["losses"][0])

    def test_what_cannot_be_compressed_is_refused_by_name(self):
        for more, says in ((("--strategy=central-storage",), "strategy 'central-storage'"),
                           (("--strategy=parameter-server",), "strategy 'parameter-server'"), (("--wire=bfloat16",), "--wire"),
                           (("--reproducible",), "--reproducible")):
            with self.subTest(says):
                self.refused(USAGE, "train", *self.options(1, "--replicas=2", "--compress=int8", *more), says=(says,))
        for text, code, says in (("int8:block=0", USAGE, "block=0: expected 1 to"), ("topk:fraction=2", USAGE, "fraction=2"),
                                 ("fp8:format=e1m6", USAGE, "e4m3, e5m2"), ("int8:blok=9", USAGE, "block"),
                                 ("powersgd:start=1", USAGE, "start=1: expected 2 updates or more"), ("powersgd:rank=0", USAGE, "rank=0: expected 1 to"),
                                 ("dgc", UNAVAILABLE, "filters fp8, int8, powersgd, topk")):
            with self.subTest(text):
                self.refused(code, "train", *self.options(1, "--replicas=2", "--compress=" + text), says=(says,))


class Owed(CompressTest):
    """What is left of gradients, from step to step, and in checkpoints of other trainings."""

    def files(self, folder):
        return [os.path.join(self.path(folder), name) for name in sorted(os.listdir(self.path(folder))) if name.endswith(".safetensors")]

    def owed_by(self, file):
        return [values for name, (_, values) in sorted(tensors(file).items()) if name.startswith(("filter/residual_", "round/residual_"))]

    def owed(self, folder):
        """By all ranks together, element by element."""
        ranks = self.owed_by(self.files(folder)[-1])
        return [sum(values) for values in zip(*ranks)], len(ranks)

    def test_in_another_world_or_layout_all_that_was_owed_is_still_owed(self):
        """All go on with the same weights and the same batch, so that all gradients together are the same, and so is what all ranks
        owe after a step, but where some rank has delivered. The reference device has parameters in another order."""
        found = {}
        for replicas, device in ((2, "cpu"), (4, "cpu"), (2, "reference")):
            folder = f"world{replicas}{device}"
            self.run_it(3, "--replicas=2", "--compress=topk:fraction=1e-9", "--checkpoint-dir=" + self.path(folder))
            self.run_it(4, f"--replicas={replicas}", "--device=" + device, "--compress=topk:fraction=1e-9",
                        "--checkpoint-dir=" + self.path(folder), "--resume")
            found[replicas, device], ranks = self.owed(folder)
            self.assertEqual(ranks, replicas)
        wanted = found.pop((2, "cpu"))
        scale = max(map(abs, wanted))
        self.assertGreater(scale, 1e-3)
        for case, values in found.items():
            same = sum(abs(a - b) <= 1e-5 * scale for a, b in zip(wanted, values))
            self.assertGreaterEqual(same, len(wanted) - 6 * 3, case)

    def frozen(self, name):
        layers = [{"class_name": "InputLayer", "config": {"batch_shape": [None, 8], "name": "input"}}]
        layers += [{"class_name": "Dense", "config": {"name": one, "units": 8, "trainable": one != name}} for one in ("one", "two", "three")]
        write_json(self.path("frozen.json"), {"class_name": "Sequential", "config": {"name": "frozen", "layers": layers}})
        return ("--model=" + self.path("frozen.json"), "--dataset=synthetic:shape=8,classes=8,examples=26", "--batch=25", "--epochs=2",
                "--loss=sparse_categorical_crossentropy:from_logits=on", "--validation=off", "--replicas=2", "--compress=topk:fraction=1e-9")

    def test_other_frozen_layers_leave_the_rest_owed(self):
        """Kernels of one shape change places, so that the values of one would be taken for those of the other."""
        found = {}
        for now in ("one", "two"):
            folder = "--checkpoint-dir=" + self.path(now)
            self.train(*self.frozen("one"), "--steps=3", folder)
            self.train(*self.frozen(now), "--steps=4", folder, "--resume")
            found[now] = self.owed(now)[0]
        marks = {now: tensors(self.files(now)[-1])["ranks/variables"][1] for now in found}
        self.assertEqual(sorted(map(sum, marks.values())), [4, 4])
        self.assertNotEqual(marks["one"], marks["two"])
        self.assertEqual([len(values) for values in found.values()], [144, 144])
        # Those of the layer that both have are the last 72, and the gradients of the step are the same; each rank has delivered one.
        scale = max(map(abs, found["one"]))
        same = sum(abs(a - b) <= 1e-5 * scale for a, b in zip(found["one"][72:], found["two"][72:]))
        self.assertGreaterEqual(same, 72 - 2 * 2 * 2)

    def shared(self, folder):
        found = {name: values for name, (_, values) in tensors(self.files(folder)[-1]).items() if name.startswith("filter/shared_")}
        self.assertEqual(len(found), 1)
        return found

    def test_what_a_filter_keeps_goes_to_another_world_but_not_to_other_options(self):
        """The same weights, batch and Q make the same Q for two replicas and for three, but for roundings; what is owed is little, as the
        filter has made one step."""
        left_out = "what the filter had learnt (--compress) is left out"
        self.run_it(3, "--replicas=2", "--compress=" + POWERSGD, "--checkpoint-dir=" + self.path("begun"))
        kept, found = self.shared("begun"), {}
        self.assertGreater(sum(value != 0 for value in list(kept.values())[0]), 100)
        for replicas, device, text in ((2, "cpu", POWERSGD), (3, "cpu", POWERSGD), (2, "reference", POWERSGD), (2, "cpu", POWERSGD + "1")):
            case = f"{replicas}{device}{len(text)}"
            shutil.copytree(self.path("begun"), self.path(case))
            outcome = self.lockstep("train", *self.options(4), f"--replicas={replicas}", "--device=" + device, "--compress=" + text,
                                    "--checkpoint-dir=" + self.path(case), "--resume")
            self.assertEqual(outcome.code, DONE, outcome.err)
            self.assertEqual(left_out in outcome.err, text != POWERSGD, outcome.err)
            found[case] = self.shared(case)
        wanted, *others, anew = found.values()
        self.assertEqual(wanted.keys(), kept.keys())
        values = list(wanted.values())[0]
        for other in others:
            self.assertEqual(other.keys(), kept.keys())
            difference = max(abs(a - b) for a, b in zip(values, list(other.values())[0]))
            self.assertLess(difference, 1e-3 * max(map(abs, values)))
        self.assertEqual(set(list(anew.values())[0]), {0.0}) # it begins after 21 updates

    def test_what_a_round_leaves_out_is_owed(self):
        """In the first round replicas train the same with a filter and without, so weights differ by just what is owed: of shares of
        13 and 12 examples, and one and none, weighted by examples."""
        found = {}
        for compress in ((), ("--compress=topk:fraction=1e-9",)):
            self.run_it(2, "--replicas=2", "--strategy=local-sgd:steps=2", "--checkpoint-dir=" + self.path(f"round{len(compress)}"), *compress)
            found[len(compress)] = tensors(self.files(f"round{len(compress)}")[-1])
        owed, ranks = self.owed("round1")
        self.assertEqual(ranks, 2)
        differences = [b - a for name, (_, one) in found[0].items() if name.endswith(("/kernel", "/bias")) for a, b in zip(one, found[1][name][1])]
        self.assertGreater(sum(value != 0 for value in differences), len(differences) / 2)
        for power in (1, 2):
            self.assertAlmostEqual(sum(value ** power for value in differences) / sum(value ** power for value in owed), 1, delta=1e-3)

    def test_a_loss_scale_changes_nothing_of_what_is_owed(self):
        """A power of two that grows in between; x and what is left of it have exponents of their own."""
        for strategy in ("mirrored", "sharded:stage=2"):
            for text in ("int8", "topk:fraction=0.01", POWERSGD):
                with self.subTest(strategy=strategy, text=text):
                    plain, scaled = (self.run_it(10, "--replicas=2", "--strategy=" + strategy, "--compress=" + text, *more)
                                     for more in ((), ("--loss-scale=dynamic:initial_scale=1024,dynamic_growth_steps=3",)))
                    self.assertEqual(self.hash_and_losses(plain), self.hash_and_losses(scaled))
                    self.assertEqual((scaled["loss_scale"], scaled["skipped_steps"]), (8192, 0))

    def test_a_step_that_a_loss_scale_skips_leaves_what_is_owed(self):
        for strategy in ("mirrored", "sharded:stage=2"):
            with self.subTest(strategy):
                folder = strategy[:4]
                report = self.run_it(16, "--replicas=2", "--device=reference", "--precision=mixed_float16", "--compress=int8", "--strategy=" + strategy,
                                     "--loss-scale=dynamic:initial_scale=262144,dynamic_growth_steps=1", "--checkpoint-steps=1",
                                     "--checkpoint-keep=99", "--checkpoint-dir=" + self.path(folder), model="linear")
                owed = [self.owed_by(file) for file in self.files(folder)]
                self.assertEqual(len(owed), 16)
                nothing = [(0.0,) * len(values) for values in owed[0]]
                same = sum(one == other for one, other in zip([nothing, *owed], owed))
                self.assertGreater(report["skipped_steps"], 2)
                self.assertLess(report["skipped_steps"], 14)
                self.assertEqual(same, report["skipped_steps"])
                self.assertLess(report["losses"][-1], report["losses"][0])

    def test_what_a_round_leaves_out_is_no_gradient(self):
        """Residuals of sharded are those of mirrored, but those of a round have another unit."""
        for before, after, kept in (("mirrored", "sharded:stage=3", True), ("local-sgd:steps=2", "mirrored", False), ("mirrored", "local-sgd:steps=2", False)):
            with self.subTest(before=before, after=after):
                more = ("--replicas=2", "--compress=topk", "--checkpoint-dir=" + self.path(before[:1] + after[:1]))
                self.run_it(2, *more, "--strategy=" + before)
                outcome = self.lockstep("train", *self.options(3), *more, "--strategy=" + after, "--resume")
                self.assertEqual(outcome.code, DONE, outcome.err)
                self.assertEqual("what replicas owed" in outcome.err, not kept, outcome.err)


class Parts(CompressTest):
    """Plugins that know parts and stages, and those that do not."""

    def test_parts_are_summed_alone(self):
        """The gradients of sharded travel in half of the bytes of mirrored, where a filter knows parts; all stages have the same bits."""
        plain = self.run_it(1, "--replicas=3", "--strategy=sharded:bucket=300000")["communication"]["bytes_per_step_per_rank"]
        for text in FILTERS[:2] + FILTERS[3:]:
            whole = self.run_it(6, "--replicas=3", "--strategy=mirrored:bucket=300000", "--compress=" + text)
            runs = [self.run_it(6, f"--strategy=sharded:stage={stage},bucket=300000,late={late}", "--compress=" + text,
                                *(("--replicas=3",) if workers == 1 else ()), workers=workers)
                    for stage, workers, late in ((1, 3, "off"), (1, 1, "on"), (2, 1, "off"), (3, 1, "on"))]
            with self.subTest(text):
                self.assertEqual(len({str(self.hash_and_losses(run)) for run in runs}), 1)
                bytes_of = [run["communication"]["bytes_per_step_per_rank"] for run in (whole, runs[0])]
                if text.startswith(("topk", "powersgd")): # which know no parts
                    self.assertEqual(self.hash_and_losses(runs[0]), self.hash_and_losses(whole))
                else:
                    self.assertLess(bytes_of[1] - plain / 2, 0.52 * bytes_of[0])
                    self.assertLess(abs(runs[0]["losses"][-1] - whole["losses"][-1]), 0.05 * whole["losses"][-1])
                self.assertGreater(whole["communication"]["filter_bytes"], 16 * 269000)  # of the parameters that are no biases

    def test_strategies_of_others(self):
        """One whose ranks hold parts and sum all of each bucket has the bits of mirrored; what no filter can do is refused."""
        with open(os.path.join(SOURCE, "plugins", "strategy", "sharded", "sharded.c"), encoding="ascii") as file:
            source = file.read()
        prepared = "status = prepare_bucket(strategy, replica, LS_REDUCE_SCATTER, LS_REPLICA_GRADIENTS,"
        started = "host->collectives->start(host, replica, shard->scatter)"
        for name, old, new in (("whole", prepared, prepared.replace("REDUCE_SCATTER", "ALL_REDUCE")),
                               ("buckets", started, "host->collectives->all_reduce_start(host, replica, bucket)"),
                               ("twice", prepared, f"{prepared} LS_REPLICA_SUMS_AND_GRADIENTS, bucket, &shard->gather); if (!status) {prepared}")):
            self.assertEqual(source.count(old), 1)
            self.build("strategy-" + name, source.replace(old, new).replace('.name = "sharded"', f'.name = "{name}"'))
        found = {strategy: str(self.hash_and_losses(self.run_it(6, "--replicas=3", "--compress=int8", "--plugin-path=" + self.folder,
                                                                f"--strategy={strategy},bucket=300000")))
                 for strategy in ("mirrored:collective=ring", "whole:stage=1", "whole:stage=2", "whole:stage=3")}
        self.assertEqual(len(set(found.values())), 1, found)
        for name, says in (("buckets", "sums whole buckets, too"), ("twice", "in two ranges")):
            self.refused(USAGE, "train", *self.options(1, "--replicas=2", "--compress=int8", "--plugin-path=" + self.folder, "--strategy=" + name),
                         says=(says,))

    def test_a_filter_without_stages_changes_no_bit(self):
        with open(os.path.join(SOURCE, "templates", "filter.c"), encoding="ascii") as file:
            source = file.read()
        stages = "    stages->scratch(stages, bytes);"
        self.assertIn(stages, source)
        for name, text in (("none", source.replace(stages, "    if (bytes)\n        return LS_OK;\n" + stages)), ("halves", source)):
            self.build("filter-" + name, text.replace("my-plugin", name))
        for more in (DILOCO, "--strategy=sharded:stage=3", "--strategy=mirrored"):
            plain = self.run_it(6, "--replicas=3", more)
            none = self.run_it(6, "--replicas=3", more, "--plugin-path=" + self.folder, "--compress=none")
            self.assertEqual({name: plain[name] for name in SAME}, {name: none[name] for name in SAME})
            self.assertEqual(plain["communication"], none["communication"])
        halves = self.run_it(6, "--replicas=3", "--plugin-path=" + self.folder, "--compress=halves")
        self.assertNotEqual(plain["parameter_hashes"], halves["parameter_hashes"])
        for a, b in zip(plain["losses"], halves["losses"]):
            self.assertAlmostEqual(a, b, delta=0.02 * plain["losses"][0])

    def test_a_network_of_convolutions(self):
        """Whose kernels the device keeps in an order of its own."""
        runs = [self.run_it(6, "--replicas=2", "--device=" + device, "--compress=" + text, model="cnn-small")
                for text, device in ((POWERSGD, "cpu"), (POWERSGD, "reference"), ("powersgd:start=99", "cpu"))]
        for a, b in zip(*(run["losses"] for run in runs[:2])):
            self.assertAlmostEqual(a, b, delta=1e-3 * a)
        self.assertLess(runs[0]["communication"]["bytes_per_step_per_rank"], 0.6 * runs[2]["communication"]["bytes_per_step_per_rank"])
        self.assertNotEqual(runs[0]["losses"], runs[2]["losses"])
        self.assertLess(runs[0]["losses"][-1], 0.9 * runs[0]["losses"][0])


if __name__ == "__main__":
    main()
