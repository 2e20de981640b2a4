# SPDX-License-Identifier: Apache-2.0
"""local-sgd and diloco: replicas with weights of their own, which are brought together every so many steps."""
import array
import glob
import shutil

from support import DONE, USAGE, ProgramTest, main, tensors, write_json

# Trajectories of pytorch/torchft (test_fixtures/, torchft.diloco_regression_test.DiLoCoMockedUpdateTest.test_diloco_mocked_updates_0
# to 5, BSD 3-Clause, Copyright (c) Meta Platforms, Inc. and affiliates, and Tristan Rice): two weights that begin with 1 and have
# gradient 2 in every step; steps=6, two fragments, both rates and no momentum. Delay, mix, the weight of each fragment after steps
# 1 to 15, and what the rounds have after 3, 6, 9 and 12.
TRAJECTORIES = (
    (0, 0, (-1, -3, -11, -13, -15, -17, -19, -21, -35, -37, -39, -41, -43, -45, -59),
     (-1, -3, -5, -7, -9, -23, -25, -27, -29, -31, -33, -47, -49, -51, -53), (-11, -11, -35, -35), (1, -23, -23, -47)),
    (0, 0.5, (-1, -3, -8, -10, -12, -14, -16, -18, -24.5, -26.5, -28.5, -30.5, -32.5, -34.5, -40.25),
     (-1, -3, -5, -7, -9, -17, -19, -21, -23, -25, -27, -32, -34, -36, -38), (-11, -11, -29, -29), (1, -23, -23, -35)),
    (0, 1, (-1, -3, -5, -7, -9, -11, -13, -15, -17, -19, -21, -23, -25, -27, -29),
     (-1, -3, -5, -7, -9, -11, -13, -15, -17, -19, -21, -23, -25, -27, -29), (-11, -11, -23, -23), (1, -23, -23, -23)),
    (1, 0, (-1, -3, -7, -9, -11, -13, -15, -17, -27, -29, -31, -33, -35, -37, -47),
     (-1, -3, -5, -7, -9, -19, -21, -23, -25, -27, -29, -39, -41, -43, -45), (-7, -7, -27, -27), (1, -19, -19, -39)),
    (1, 0.5, (-1, -3, -6, -8, -10, -12, -14, -16, -21.5, -23.5, -25.5, -27.5, -29.5, -31.5, -35.75),
     (-1, -3, -5, -7, -9, -15, -17, -19, -21, -23, -25, -29, -31, -33, -35), (-7, -7, -25, -25), (1, -19, -19, -31)),
    (1, 1, (-1, -3, -5, -7, -9, -11, -13, -15, -17, -19, -21, -23, -25, -27, -29),
     (-1, -3, -5, -7, -9, -11, -13, -15, -17, -19, -21, -23, -25, -27, -29), (-7, -7, -23, -23), (1, -19, -19, -23)),
)
# As uneven as it gets: at the end of an epoch there is one example for three replicas.
EXAMPLES, BATCH, REPLICAS, STEPS, RATE = 22, 7, 3, 19, 0.05
UNEVEN = "diloco:steps=4,fragments=2,delay=1,mix=0.25,outer_learning_rate=0.6,outer_momentum=0.8"
MLP = ("--model=mlp", "--dataset=synthetic:examples=300", "--optimizer=adam", "--threads=1", "--batch=56", "--epochs=5")
DILOCO = "--strategy=diloco:steps=4,fragments=2,delay=1,mix=0.5"


def single(value):
    return array.array("f", [value])[0]


class Rounds(ProgramTest):
    def model(self):
        """Two layers of one weight each, whose outputs are added."""
        def layer(kind, name, inputs, **config):
            sources = [{"class_name": "__keras_tensor__", "config": {"shape": [None, 1], "dtype": "float32", "keras_history": [one, 0, 0]}}
                       for one in inputs]
            return {"class_name": kind, "name": name, "config": {"name": name, **config},
                    "inbound_nodes": [{"args": [sources] if kind == "Add" else sources, "kwargs": {}}] if inputs else []}
        dense = {"units": 1, "use_bias": False, "kernel_initializer": {"class_name": "Ones", "config": {}}}
        layers = [layer("InputLayer", "x", [], batch_shape=[None, 1]), layer("InputLayer", "z", [], batch_shape=[None, 1]),
                  layer("Dense", "first", ["x"], **dense), layer("Dense", "second", ["z"], **dense), layer("Add", "sum", ["first", "second"])]
        write_json(self.path("model.json"), {"class_name": "Functional", "config": {
            "name": "two", "layers": layers, "input_layers": [["x", 0, 0], ["z", 0, 0]], "output_layers": [["sum", 0, 0]]}})
        return "--model=" + self.path("model.json")

    def npy(self, name, values):
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({len(values)}, 1), }}\n".encode()
        with open(self.path(name), "wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
            array.array("f", values).tofile(file)
        return self.path(name)

    def data(self, x, z, y):
        return f"--dataset=arrays:x={self.npy('x.npy', x)},x2={self.npy('z.npy', z)},y={self.npy('y.npy', y)}"

    def checkpoint(self, folder, step):
        return {name: values for name, (_, values) in tensors(glob.glob(f"{self.path(folder)}/*{step:08}.safetensors")[0]).items()}


class Trajectories(Rounds):
    def test_those_of_torchft_are_ours(self):
        data = self.data([2] * 4, [2] * 4, [-1e6] * 4)  # the error is positive, so that its gradient is 2 times 1
        for delay, mix, first, second, first_round, second_round in TRAJECTORIES:
            with self.subTest(delay=delay, mix=mix):
                self.train(self.model(), data, "--loss=mean_absolute_error", "--optimizer=sgd:learning_rate=1", "--batch=4",
                           "--epochs=15", "--validation=off", "--replicas=2", "--checkpoint-dir=" + self.path(f"{delay}-{mix}"),
                           "--checkpoint-steps=1", "--checkpoint-keep=99",
                           f"--strategy=diloco:steps=6,fragments=2,outer_learning_rate=2,outer_momentum=0,delay={delay},mix={mix}")
                for step in range(1, 16):
                    found = self.checkpoint(f"{delay}-{mix}", step)
                    for rank in (0, 1):
                        self.assertEqual(found[f"round/weights_{rank}"], (first[step - 1], second[step - 1]), step)
                    if step < 15:
                        turns = step // 3
                        wanted = (first_round[turns - 1], second_round[turns - 1]) if turns else (1, 1)
                        self.assertEqual((found["first/kernel"][0], found["second/kernel"][0]), wanted, step)


class Computed(Rounds):
    X = [single(0.1 * (i % 5) - 0.3) for i in range(EXAMPLES)]
    Z = [single(0.2 * (i % 7) - 0.5) for i in range(EXAMPLES)]
    Y = [single(0.3 * (i % 4) + 0.1) for i in range(EXAMPLES)]

    def wanted(self, steps, fragments, delay, mix, rate, momentum):
        """The rule, written again: losses, and each rank's weights."""
        own, outer, speed, taken = [[1.0, 1.0] for _ in range(REPLICAS)], [1.0, 1.0], [0.0, 0.0], None
        trained, losses = [[0] * REPLICAS for _ in range(2)], []
        starts = [epoch + first for epoch in range(0, 99 * EXAMPLES, EXAMPLES) for first in range(0, EXAMPLES, BATCH)]
        for step in range(1, STEPS + 1):
            first = starts[step - 1] % EXAMPLES
            count, loss = min(BATCH, EXAMPLES - first), 0
            for rank in range(REPLICAS):
                share = count // REPLICAS + (rank < count % REPLICAS)
                part = range(first, first + share)
                first += share
                errors = [own[rank][0] * self.X[i] + own[rank][1] * self.Z[i] - self.Y[i] for i in part]
                loss += sum(error * error for error in errors)
                for k, inputs in enumerate((self.X, self.Z)):
                    trained[k][rank] += share
                    if share:
                        own[rank][k] -= RATE * 2 * sum(error * inputs[i] for error, i in zip(errors, part)) / share
            losses.append(loss / count)
            period = steps // fragments
            if (step + delay) % period == 0:
                turn = ((step + delay) // period - 1) % fragments
                taken = {k: sum(trained[k][r] * (outer[k] - own[r][k]) for r in range(REPLICAS)) / sum(trained[k])
                         for k in range(2) if fragments == 1 or k == turn}
                for k in taken:
                    trained[k] = [0] * REPLICAS
            if step % period == 0 and taken:
                for k, change in taken.items():
                    speed[k] = momentum * speed[k] + change
                    outer[k] -= rate * (change + momentum * speed[k])
                    for weights in own:
                        weights[k] = (1 - mix) * outer[k] + mix * weights[k]
                taken = None
        return losses, own, outer

    def check(self, strategy, *rule):
        losses, own, outer = self.wanted(*rule)
        report = self.train(self.model(), self.data(self.X, self.Z, self.Y), "--loss=mean_squared_error", f"--batch={BATCH}",
                            f"--optimizer=sgd:learning_rate={RATE}", "--epochs=9", f"--steps={STEPS}", "--validation=off", "--shuffle=off",
                            f"--replicas={REPLICAS}", "--strategy=" + strategy, "--checkpoint-dir=" + self.path(strategy[:5]))
        self.assertEqual(len(report["losses"]), STEPS)
        for found, wanted in zip(report["losses"], losses):
            self.assertAlmostEqual(found, wanted, delta=1e-5)
        found = self.checkpoint(strategy[:5], STEPS)
        for rank in range(REPLICAS):
            for k in range(2):
                self.assertAlmostEqual(found[f"round/weights_{rank}"][k], own[rank][k], delta=1e-5)
        self.assertAlmostEqual(found["first/kernel"][0], outer[0], delta=1e-5)
        self.assertAlmostEqual(found["second/kernel"][0], outer[1], delta=1e-5)
        self.assertEqual(len(set(report["parameter_hashes"])), 1)

    def test_uneven_and_empty_shares_are_weighted_by_examples(self):
        self.check("local-sgd:steps=5", 5, 1, 0, 0, 1, 0)

    def test_fragments_with_momentum_delay_and_mix(self):
        self.check(UNEVEN, 4, 2, 1, 0.25, 0.6, 0.8)

    def test_one_step_a_round_is_data_parallel(self):
        options = ("--model=mlp", "--dataset=synthetic:examples=300", "--optimizer=sgd:learning_rate=0.05", "--threads=1", "--batch=56",
                   "--epochs=2", "--validation=off", "--replicas=3")
        wanted = self.train(*options, "--strategy=mirrored")["losses"]
        for strategy in ("local-sgd:steps=1", "diloco:steps=1,outer_learning_rate=1,outer_momentum=0"):
            found = self.train(*options, "--strategy=" + strategy)["losses"]
            self.assertEqual(len(found), 12)
            for one, other in zip(found, wanted):
                self.assertAlmostEqual(one, other, delta=1e-6 * other)


class Weights(Rounds):
    def test_processes_and_replicas_have_the_same_bits(self):
        wanted = self.train(*MLP, DILOCO, "--replicas=4", "--steps=13", "--validation=off")
        self.assertEqual(len(set(wanted["parameter_hashes"])), 1)
        for workers, replicas in ((2, 2), (4, 1)):
            found = self.train(*MLP, DILOCO, f"--replicas={replicas}", "--steps=13", "--validation=off", under=("launch", f"-n{workers}", "--"))
            self.assertEqual(found["losses"], wanted["losses"])
            self.assertEqual(found["parameter_hashes"], wanted["parameter_hashes"])

    def test_evaluation_and_saving_show_the_last_round_and_do_not_end_it(self):
        options = (*MLP, "--strategy=local-sgd:steps=13", "--replicas=2")
        found = self.train(*options, "--steps=18", "--save-weights=" + self.path("now.safetensors"))
        self.assertEqual(found["losses"], self.train(*options, "--steps=18", "--validation=off")["losses"])
        values = [epoch["val_loss"] for epoch in found["epochs"]]  # of steps 6, 12 and 18; the round ended at 13
        self.assertEqual(values[0], values[1])
        self.assertNotEqual(values[1], values[2])
        self.train(*options, "--steps=13", "--save-weights=" + self.path("round.safetensors"), "--validation=off")
        self.assertEqual(tensors(self.path("now.safetensors")), tensors(self.path("round.safetensors")))

    def test_a_loss_that_is_not_finite_leaves_the_last_round(self):
        options = (*MLP[:2], "--threads=1", "--batch=56", "--epochs=5", "--validation=off", "--strategy=local-sgd:steps=50", "--replicas=2")
        for name, more in (("first.safetensors", ("--steps=1",)), ("last.safetensors", ("--steps=20", "--optimizer=sgd:learning_rate=1e20", "--callback=terminate_on_nan"))):
            report = self.train(*options, *more, "--save-weights=" + self.path(name))
            self.assertLess(report["steps"], 20)
        self.assertEqual(tensors(self.path("first.safetensors")), tensors(self.path("last.safetensors")))

    def test_bytes_are_those_of_a_round(self):
        options = ("--model=mlp", "--dataset=synthetic:examples=300", "--batch=56", "--threads=1", "--replicas=2", "--epochs=20",
                   "--validation=off", "--steps=100")
        whole = self.train(*options, "--strategy=mirrored")["communication"]["bytes_per_step_per_rank"]
        part = self.train(*options, "--strategy=diloco:steps=50,fragments=2")["communication"]["bytes_per_step_per_rank"]
        self.assertLessEqual(abs(part - whole / 50), 64 + 1)  # the sums of a step are 16 floats

    def test_moving_statistics_become_their_mean(self):
        def layer(kind, **config):
            return {"class_name": kind, "config": config}
        write_json(self.path("bn.json"), layer("Sequential", name="bn", layers=[
            layer("InputLayer", batch_shape=[None, 4]), layer("BatchNormalization", name="bn", momentum=0.5),
            layer("Dense", name="scores", units=3, activation="softmax")]))
        options = ("--model=" + self.path("bn.json"), "--dataset=synthetic:shape=4,classes=3,examples=40", "--batch=8", "--shuffle=off",
                   "--optimizer=sgd", "--replicas=2", "--validation=off", "--steps=3", "--checkpoint-dir=" + self.path("bn"),
                   "--checkpoint-steps=1", "--strategy=local-sgd:steps=3")
        self.train(*options)
        before, after = self.checkpoint("bn", 2), self.checkpoint("bn", 3)
        self.assertNotEqual(before["round/weights_0"], before["round/weights_1"])
        self.assertEqual(after["round/weights_0"], after["round/weights_1"])
        self.assertEqual(before["bn/moving_variance"], (1, 1, 1, 1))
        self.assertNotEqual(after["bn/moving_variance"], (1, 1, 1, 1))


class GoesOn(Rounds):
    def go_on(self, folder, strategy, replicas, steps=17, under=(), **more):
        """From a copy of the folder."""
        shutil.rmtree(self.path("copy"), ignore_errors=True)
        shutil.copytree(self.path(folder), self.path("copy"))
        return self.train(*MLP, strategy, f"--replicas={replicas}", f"--steps={steps}", "--validation=off", "--resume",
                          "--checkpoint-dir=" + self.path("copy"), under=under, **more)

    def test_the_same_world_to_the_bit_and_any_other(self):
        wanted = self.train(*MLP, DILOCO, "--replicas=3", "--steps=17", "--validation=off")
        for step in (7, 8):  # with a difference under way, and after a round
            self.train(*MLP, DILOCO, "--replicas=3", f"--steps={step}", "--validation=off", "--checkpoint-dir=" + self.path(str(step)))
            for under, replicas in (((), 3), (("launch", "-n3", "--"), 1)):
                found = self.go_on(str(step), DILOCO, replicas, under=under)
                self.assertEqual(found["losses"], wanted["losses"], step)
                self.assertEqual(found["parameter_hashes"], wanted["parameter_hashes"], step)
        self.train(*MLP, DILOCO, "--replicas=1", "--steps=7", "--validation=off", "--checkpoint-dir=" + self.path("processes"),
                   "--checkpoint-steps=7", under=("launch", "-n3", "--"))
        self.assertEqual(self.checkpoint("processes", 7), self.checkpoint("7", 7))
        for strategy, replicas in ((DILOCO, 4), (DILOCO, 1), ("--strategy=mirrored", 2), ("--strategy=local-sgd:steps=5", 3)):
            found = self.go_on("7", strategy, replicas)
            self.assertEqual(found["losses"][:7], wanted["losses"][:7])
            self.assertEqual((len(found["losses"]), len(set(found["parameter_hashes"]))), (17, 1))

    def test_a_rank_that_joins_begins_as_rank_0(self):
        self.train(*MLP, DILOCO, "--replicas=2", "--steps=6", "--validation=off", "--checkpoint-dir=" + self.path("two"))
        self.go_on("two", DILOCO, 3, steps=7)
        old, new = self.checkpoint("two", 6), self.checkpoint("copy", 7)
        self.assertIn("round/optimizer_0_2", new)
        self.assertNotIn("round/optimizer_0_2", old)
        # One step of Adam is at most about its rate from where rank 0 was, but rank 1 was elsewhere by more.
        def distance(rank):
            return max(abs(a - b) for a, b in zip(new["round/weights_2"], old[f"round/weights_{rank}"]))
        self.assertLess(distance(0), 0.0015)
        self.assertGreater(distance(1), 2 * distance(0))

    def test_other_frozen_layers_begin_a_round(self):
        """Kernels of one shape change places: as many values, of which none is that of the same variable."""
        def train(frozen, steps, *more):
            layers = [{"class_name": "InputLayer", "config": {"batch_shape": [None, 8], "name": "input"}}]
            layers += [{"class_name": "Dense", "config": {"name": name, "units": 8, "trainable": name != frozen}} for name in ("one", "two")]
            write_json(self.path("frozen.json"), {"class_name": "Sequential", "config": {"name": "frozen", "layers": layers}})
            return self.lockstep("train", "--model=" + self.path("frozen.json"), "--dataset=synthetic:shape=8,classes=8,examples=40",
                                 "--loss=sparse_categorical_crossentropy:from_logits=on", "--optimizer=adam", "--batch=8", "--epochs=9",
                                 f"--steps={steps}", "--replicas=2", "--validation=off", "--strategy=local-sgd:steps=3",
                                 "--checkpoint-dir=" + self.path("frozen"), *more)
        self.assertEqual(train("one", 7).code, DONE)
        before = self.checkpoint("frozen", 7)
        resumed = train("two", 8, "--resume")
        self.assertEqual(resumed.code, DONE, resumed.err)
        self.assertIn("other layers were frozen when the checkpoint was written: a round begins", resumed.err)
        after = self.checkpoint("frozen", 8)
        for name in ("one/kernel", "two/kernel"):  # of the last round, which has not ended
            self.assertEqual(after[name], before[name])
        moved = max(abs(a - b) for a, b in zip(after["round/weights_1"], before["one/bias"] + before["one/kernel"]))
        other = max(abs(a - b) for a, b in zip(after["round/weights_1"], before["one/kernel"] + before["one/bias"]))
        self.assertLess(min(moved, other), 0.0015)  # one step of Adam from there

    def test_after_data_parallel(self):
        self.train(*MLP, "--strategy=mirrored", "--replicas=2", "--steps=6", "--validation=off", "--checkpoint-dir=" + self.path("before"))
        found = self.go_on("before", DILOCO, 2)
        self.assertEqual((len(found["losses"]), len(set(found["parameter_hashes"]))), (17, 1))


class Refused(Rounds):
    def test_by_name(self):
        for strategy, options, says in (
                ("diloco:steps=5,fragments=2", (), "a multiple of fragments=2"),
                ("diloco:fragments=30", (), "fragments=30: must be from 1 to 29"),
                ("diloco:steps=50,fragments=10", (), "the model has 6 trained variables"),
                ("diloco:steps=4,fragments=2,delay=2", (), "below steps / fragments, which is 2"),
                ("diloco:mix=1.5", (), "mix=1.5: must be from 0 to 1"),
                ("diloco:outer_momentum=1", (), "outer_momentum=1"),
                ("diloco:outer_learning_rate=0", (), "outer_learning_rate=0"),
                ("local-sgd:steps=0", (), "steps=0: must be at least 1"),
                ("diloco", ("--wire=bfloat16",), "--wire: under strategy 'diloco'"),
                ("diloco", ("--reproducible",), "--reproducible: under strategy 'diloco'"),
                ("local-sgd", ("--optimizer=adam:use_ema=on",), "use_ema=on"),
                ("local-sgd", ("--precision=mixed_float16",), "a loss scale needs replicas that make their steps together")):
            with self.subTest(strategy=strategy, options=options):
                self.refused(USAGE, "train", "--model=mlp", "--dataset=synthetic:examples=64", "--steps=1", "--quiet", "--replicas=2",
                             "--validation=off", "--strategy=" + strategy, *options, says=(says,))


    def test_elastic(self):
        for more, says in (("--compress=int8", "what a filter has delivered of an exchange that breaks off is not known"), ("--replicas=2", "one replica a worker")):
            done = self.lockstep("launch", "-n2", "--", "train", *MLP, "--strategy=diloco", "--elastic=1:2", "--steps=2", more)
            self.assertEqual(done.code, USAGE, done.err)
            self.assertIn("--elastic: under strategy 'diloco' replicas have weights of their own between rounds", done.err)
            self.assertIn(says, done.err)


if __name__ == "__main__":
    main()
