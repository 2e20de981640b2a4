# SPDX-License-Identifier: Apache-2.0
"""--reproducible: the same bits for any number of replicas and workers, under every strategy whose replicas step together."""
import fcntl
import os
import signal
import subprocess
import time

from support import DONE, LOCKSTEP, USAGE, ProgramTest, free_ports, is_connected, main, read_json, write_json

SECONDS = 120
REPLICAS = (1, 2, 3, 4, 8)
STRATEGIES = ("tree", "two-level", "hierarchical-copy", "halving-doubling", "direct", "torus", "central-storage",
              "parameter-server:mode=sync", "sharded:late=on")
RESULTS = ("losses", "parameter_hashes", "epochs")


def layer(class_name, **config):
    return {"class_name": class_name, "config": config}


class Reproducible(ProgramTest):
    # 117 examples in batches of 26: shards of 4 and 3 examples; at the end of an epoch 13, shards of 2 and 1.
    EXAMPLES, BATCH = 117, 26

    def setUp(self):
        super().setUp()
        self.write_model("model.json", False)

    def write_model(self, name, synchronized):
        write_json(self.path(name), layer("Sequential", name="model", layers=[
            layer("InputLayer", batch_shape=[None, 6, 6, 2]),
            layer("Conv2D", name="conv", filters=5, kernel_size=[3, 3]),
            layer("BatchNormalization", name="first", momentum=0.8, synchronized=synchronized),
            layer("Activation", name="relu", activation="relu"),
            layer("Flatten", name="flat"),
            layer("Dense", name="dense", units=23, activation="tanh"),
            layer("Dropout", name="dropout", rate=0.3),
            layer("Dense", name="scores", units=3, activation="softmax")]))

    def options(self, steps=50, model="model.json", clipping="global_clipnorm=0.5"):
        """With all that could tell one number of replicas from another: dropout, batch normalization, uneven batches, a norm of all
        gradients, metrics of every kind, and callbacks that act on a validation loss."""
        epochs = -(-steps // -(-self.EXAMPLES // self.BATCH))
        return ("--model=" + self.path(model), f"--dataset=synthetic:shape=6x6x2,classes=3,examples={self.EXAMPLES}",
                f"--batch={self.BATCH}", f"--epochs={epochs}", "--optimizer=adam:learning_rate=0.003," + clipping,
                "--metrics=accuracy,sparse_top_k_categorical_accuracy:k=2,sparse_categorical_crossentropy",
                "--callback=reduce_lr_on_plateau:patience=1,factor=0.5,min_delta=0.02",
                f"--callback=early_stopping:patience={epochs}", "--shuffle=20")

    def results(self, *options, workers=1, **more):
        report = self.train(*options, under=("launch", f"-n{workers}", "--") if workers > 1 else (), **more)
        for epoch in report["epochs"]:
            epoch.pop("seconds")
            epoch.pop("examples_per_second")
        self.assertEqual(len(set(report["parameter_hashes"])), 1)
        report["parameter_hashes"] = report["parameter_hashes"][:1]
        return {name: report[name] for name in RESULTS}

    def check_same(self, found, wanted, **setting):
        with self.subTest(**setting):
            for name in RESULTS:
                self.assertEqual(found[name], wanted[name])


class Ring(Reproducible):
    def test_the_bits_are_those_of_one_replica(self):
        wanted = self.results(*self.options(), "--reproducible", "--replicas=1")
        self.assertGreaterEqual(len(wanted["losses"]), 50)
        rates = {epoch["learning_rate"] for epoch in wanted["epochs"]}
        self.assertGreater(len(rates), 1)  # the plateau has been one
        for replicas in REPLICAS:
            self.check_same(self.results(*self.options(), "--reproducible=8", f"--replicas={replicas}", "--strategy=ring"), wanted,
                            replicas=replicas)
        for workers, replicas in ((4, 1), (2, 2)):
            self.check_same(self.results(*self.options(), "--reproducible", f"--replicas={replicas}", workers=workers), wanted,
                            workers=workers, replicas=replicas)
        # Without it they are others: the comparison sees what it is there for.
        plain = [self.results(*self.options(), f"--replicas={replicas}", "--strategy=ring") for replicas in (2, 3)]
        self.assertNotEqual(plain[0]["parameter_hashes"], plain[1]["parameter_hashes"])

    def test_other_numbers_of_shards_hold_too(self):
        for shards, replicas in ((1, (1,)), (5, (2, 5)), (16, (3,))):
            wanted = self.results(*self.options(10), f"--reproducible={shards}")
            for count in replicas:
                self.check_same(self.results(*self.options(10), f"--reproducible={shards}", f"--replicas={count}", "--strategy=ring"),
                                wanted, shards=shards, replicas=count)

    def test_a_loss_scale_skips_the_same_steps(self):
        options = (*self.options(20), "--precision=mixed_float16", "--reproducible", "--loss-scale=dynamic:initial_scale=1e9,dynamic_growth_steps=3")
        wanted = self.results(*options)
        for strategy in ("ring", "sharded"):
            self.check_same(self.results(*options, "--replicas=3", "--strategy=" + strategy), wanted, strategy=strategy)

    def test_early_stopping_ends_after_the_same_epoch(self):
        options = (*self.options(100)[:-2], "--callback=early_stopping:patience=2,min_delta=0.3,restore_best_weights=on", "--reproducible")
        wanted = self.results(*options)
        self.assertLess(len(wanted["epochs"]), 20)
        self.check_same(self.results(*options, "--replicas=4", "--strategy=ring"), wanted)

    def test_it_goes_on_from_a_checkpoint_with_other_replicas(self):
        wanted = self.results(*self.options(20), "--reproducible")
        folder = ("--checkpoint-dir=" + self.path("checkpoints"), "--resume")
        self.train(*self.options(20), "--reproducible", "--replicas=3", "--strategy=ring", *folder, "--steps=8")
        self.check_same(self.results(*self.options(20), "--reproducible", "--replicas=2", "--strategy=tree", *folder), wanted)
        self.refused(USAGE, "train", "--quiet", *self.options(25), "--reproducible=4", *folder,
                     says=("--reproducible=8", "this training has 4"))
        self.refused(USAGE, "train", "--quiet", *self.options(25), *folder, says=("--reproducible=8", "this training has none"))

    def test_what_cannot_be_the_same_is_refused(self):
        self.write_model("synchronized.json", True)
        for code, options, says in (
                (USAGE, (*self.options(), "--replicas=9", "--strategy=ring"), ("8 logical shards are too few for 9 replicas", "use at most 8 replicas, or begin with --reproducible=9")),
                (USAGE, ("--model=mlp", "--dataset=synthetic:examples=50", "--strategy=parameter-server", "--replicas=2"),
                 ("parameter-server", "steps of their own")),
                (USAGE, (*self.options(), "--microbatches=2"), ("--microbatches",)),
                (USAGE, (*self.options(), "--accumulate=2"), ("--accumulate",)),
                (USAGE, (*self.options(), "--share=2,1", "--replicas=2"), ("--share",)),
                (USAGE, (*self.options(), "--wire=bfloat16", "--replicas=2"), ("--wire",)),
                (USAGE, (*self.options(), "--lr-scaling=linear", "--replicas=2"), ("--lr-scaling",)),
                (USAGE, (*self.options(), "--lr-scaling=linear"), ("--lr-scaling",)),
                (USAGE, self.options(model="synchronized.json"), ("first", "synchronized", "there is 1 for 8; use --reproducible=1"))):
            with self.subTest(options=options[-1]):
                self.refused(code, "train", "--quiet", "--reproducible", *options, says=says)
        self.refused(USAGE, "train", "--quiet", "--reproducible=0", *self.options(), says=("--reproducible=0",))
        self.refused(USAGE, "train", "--quiet", "--reproducible=1", *self.options(), "--replicas=2", "--strategy=ring",
                     says=("1 logical shard is too few for 2 replicas; use at most 1 replica, or begin with --reproducible=2",))

    def test_a_worker_too_many_for_an_elastic_training(self):
        outcome = self.lockstep("launch", "-n2", "--", LOCKSTEP, "train", "--quiet", "--reproducible=1", "--elastic=1:2", *self.options(3))
        self.assertEqual(outcome.code, USAGE, outcome.err)
        self.assertIn("1 logical shard is too few for the 2 replicas that there are with this worker; give --elastic=MIN:MAX a lower MAX, "
                      "or begin with --reproducible=2", outcome.err)

    def test_statistics_of_all_shards_are_not_for_an_elastic_training(self):
        self.write_model("synchronized.json", True)
        outcome = self.lockstep("launch", "-n1", "--", LOCKSTEP, "train", "--quiet", "--reproducible=1", "--elastic=1:1",
                                *self.options(3, model="synchronized.json"))
        self.assertEqual(outcome.code, USAGE, outcome.err)
        self.assertIn("layer 'first' normalizes by the statistics of all replicas", outcome.err)
        self.assertIn("leave --elastic out", outcome.err)

    def test_options_that_change_nothing_are_accepted(self):
        wanted = self.results(*self.options(3), "--reproducible")
        self.check_same(self.results(*self.options(3), "--reproducible", "--replicas=2", "--microbatches=1", "--accumulate=1", "--wire=float32",
                                     "--share=1,1"), wanted)
        self.results(*self.options(3), "--reproducible=off", "--replicas=2", "--microbatches=2", "--wire=bfloat16")

    def test_on_and_off(self):
        for text, same in (("on", "=8"), ("off", None)):
            wanted = self.results(*self.options(3), *([] if same is None else ["--reproducible" + same]))
            self.check_same(self.results(*self.options(3), "--reproducible=" + text, "--lr-scaling=none"), wanted, text=text)

    def test_workers_that_would_compute_other_bits_are_refused(self):
        for script, says in (("--threads=$((LOCKSTEP_RANK + 1)) --reproducible", "--threads (with --reproducible)"),
                             ("--reproducible=$((LOCKSTEP_RANK + 4))", "--reproducible")):
            command = " ".join((LOCKSTEP, "train", "--quiet", *self.options(1), script))
            outcome = self.lockstep("launch", "-n2", "sh", "-c", "exec " + command)
            self.assertEqual(outcome.code, USAGE, outcome.err)
            self.assertIn(says, outcome.err)

    def test_the_first_line_says_it(self):
        outcome = self.lockstep("train", *self.options(1), "--reproducible")
        self.assertEqual(outcome.code, DONE, outcome.err)
        self.assertIn("in 8 logical shards (reproducible; each has its own statistics of BatchNormalization)", outcome.out)
        self.assertIn("1 replica of 1 thread", outcome.out)


class Synchronized(Reproducible):
    SHARDS = 3

    def test_statistics_of_all_shards_have_the_same_bits_where_each_replica_has_one(self):
        self.write_model("synchronized.json", True)
        options = (*self.options(20, model="synchronized.json"), f"--reproducible={self.SHARDS}")
        wanted = self.results(*options, f"--replicas={self.SHARDS}", "--strategy=ring")
        self.assertNotEqual(wanted["parameter_hashes"], self.results(*self.options(20), f"--reproducible={self.SHARDS}")["parameter_hashes"])
        for strategy in ("tree", "two-level", "sharded", "central-storage", "parameter-server:mode=sync"):
            self.check_same(self.results(*options, f"--replicas={self.SHARDS}", "--strategy=" + strategy), wanted, strategy=strategy)
        self.check_same(self.results(*options, workers=self.SHARDS), wanted, workers=self.SHARDS)

    def test_replicas_without_examples_ask_for_parameters_and_totals_in_the_order_of_the_others(self):
        """The variables before the statistics are in another bucket than those behind them."""
        write_json(self.path("model.json"), layer("Sequential", name="model", layers=[
            layer("InputLayer", batch_shape=[None, 28, 28, 1]),
            layer("Conv2D", name="conv", filters=4, kernel_size=[3, 3], strides=[2, 2]),
            layer("BatchNormalization", name="first", synchronized=True),
            layer("Flatten", name="flat"),
            layer("Dense", name="scores", units=10, activation="softmax")]))
        options = ("--model=" + self.path("model.json"), "--dataset=synthetic:shape=28x28x1,classes=10,examples=40", "--batch=4", "--replicas=8",
                   "--deadline=10")
        wanted = self.results(*options, "--strategy=sharded:bucket=512")
        self.check_same(self.results(*options, "--strategy=sharded:bucket=512,late=on"), wanted)


class Strategies(Reproducible):
    def test_all_strategies_have_the_same_bits(self):
        wanted = self.results(*self.options(), "--reproducible")
        for number, strategy in enumerate(STRATEGIES):
            replicas = REPLICAS[1:][number % 4]
            self.check_same(self.results(*self.options(), "--reproducible", f"--replicas={replicas}", "--strategy=" + strategy), wanted,
                            strategy=strategy, replicas=replicas)
        for strategy in ("tree", "sharded"):
            self.check_same(self.results(*self.options(), "--reproducible", "--strategy=" + strategy, "--replicas=2", workers=2), wanted,
                            strategy=strategy, workers=2)

    def test_sharded_has_them_with_any_number_of_replicas(self):
        wanted = self.results(*self.options(), "--reproducible")
        for replicas in REPLICAS:
            self.check_same(self.results(*self.options(), "--reproducible", f"--replicas={replicas}", "--strategy=sharded"), wanted,
                            replicas=replicas)


class All(Reproducible):
    def test_all_strategies_and_replicas(self):
        wanted = self.results(*self.options(), "--reproducible")
        for strategy in STRATEGIES:
            for replicas in REPLICAS:
                self.check_same(self.results(*self.options(), "--reproducible", f"--replicas={replicas}", "--strategy=" + strategy),
                                wanted, strategy=strategy, replicas=replicas)

    def test_all_strategies_over_processes(self):
        wanted = self.results(*self.options(), "--reproducible")
        for strategy in ("tree", "two-level", "sharded", "sharded:late=on,collective=tree"):
            for workers, replicas in ((4, 1), (2, 2), (3, 1)):
                self.check_same(self.results(*self.options(), "--reproducible", f"--replicas={replicas}", "--strategy=" + strategy, workers=workers),
                                wanted, strategy=strategy, workers=workers, replicas=replicas)

    def test_the_norm_of_each_variable(self):
        options = (*self.options(clipping="clipnorm=0.05"), "--reproducible")
        wanted = self.results(*options)
        self.assertNotEqual(wanted["parameter_hashes"], self.results(*self.options(), "--reproducible")["parameter_hashes"])
        for strategy in ("ring", *STRATEGIES):
            for replicas in REPLICAS if not strategy.startswith("sharded") else ():  # which cuts variables
                self.check_same(self.results(*options, f"--replicas={replicas}", "--strategy=" + strategy), wanted,
                                strategy=strategy, replicas=replicas)

    def test_early_stopping_under_all_strategies(self):
        options = (*self.options(100)[:-2], "--callback=early_stopping:patience=2,min_delta=0.3,restore_best_weights=on", "--reproducible")
        wanted = self.results(*options)
        self.assertLess(len(wanted["epochs"]), 20)
        for number, strategy in enumerate(STRATEGIES):
            self.check_same(self.results(*options, f"--replicas={REPLICAS[1:][number % 4]}", "--strategy=" + strategy), wanted, strategy=strategy)

    def test_500_steps_under_ring(self):
        wanted = self.results(*self.options(500), "--reproducible")
        self.assertGreaterEqual(len(wanted["losses"]), 500)
        for replicas in REPLICAS:
            self.check_same(self.results(*self.options(500), "--reproducible", f"--replicas={replicas}", "--strategy=ring"), wanted,
                            replicas=replicas)
        for workers, replicas in ((4, 1), (2, 2)):
            self.check_same(self.results(*self.options(500), "--reproducible", f"--replicas={replicas}", workers=workers), wanted,
                            workers=workers, replicas=replicas)


class ElasticTest(Reproducible):
    """A worker is killed, and another one comes."""
    EXAMPLES, BATCH = 1170, 13

    def add(self, rank, **more):
        own = dict(LOCKSTEP_RANK=str(rank), LOCKSTEP_WORLD_SIZE="3", LOCKSTEP_ADDRESS=self.address, **more)
        process = subprocess.Popen([LOCKSTEP, "train", *self.elastic], env=dict(os.environ, **own), text=True, cwd=self.folder,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)  # see join()
        self.addCleanup(process.kill)
        self.processes.append(process)

    def join(self, rank):
        """A new worker, for which the training waits: nobody reads the lines of the chief until it is there."""
        self.add(rank, LOCKSTEP_JOIN="1")
        self.wait_for(lambda: is_connected(self.processes[-1].pid), SECONDS)

    def await_lines(self, count):
        end = time.monotonic() + SECONDS
        for _ in range(count):
            self.assertTrue(self.processes[0].stdout.readline())
            self.assertLess(time.monotonic(), end)

    def check_three_two_three(self, strategy):
        wanted = self.results(*self.options(1800), "--reproducible")
        self.address, self.processes = f"127.0.0.1:{free_ports(1)[0]}", []
        self.elastic = (*self.options(1800), "--reproducible", "--elastic=1:3", "--strategy=" + strategy, "--log-every=1", "--verbose=2",
                        "--report=" + self.path("elastic.json"))
        for rank in range(3):
            self.add(rank)
        self.await_lines(100)
        self.processes[2].kill()
        self.await_lines(300)
        self.join(2)
        out, error = self.processes[0].communicate(timeout=SECONDS)
        codes = [process.wait(SECONDS) for process in self.processes]
        self.assertEqual(codes, [DONE, DONE, -signal.SIGKILL, DONE], error)
        self.assertIn("2 workers (1 lost, 0 new)", error)
        self.assertIn("3 workers (0 lost, 1 new)", error)
        report = read_json(self.path("elastic.json"))
        for epoch in report["epochs"]:
            epoch.pop("seconds")
            epoch.pop("examples_per_second")
        report["parameter_hashes"] = report["parameter_hashes"][:1]
        self.check_same(report, wanted, strategy=strategy)


class Elastic(ElasticTest):
    def test_three_two_three(self):
        self.check_three_two_three("multi-worker-mirrored")


class ElasticAll(ElasticTest):
    def test_three_two_three_under_other_collectives(self):
        for strategy in ("tree", "two-level"):
            self.check_three_two_three(strategy)


if __name__ == "__main__":
    main()
