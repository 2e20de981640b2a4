# SPDX-License-Identifier: Apache-2.0
"""One training over many workers: to the bit what the replicas of one process compute, and the same under every engine."""
import json
import os
import struct

import engines
from support import DONE, LOCKSTEP, USAGE, ProgramTest, main

# The sums of a batch that is divided unevenly are added up in another order than those of one device.
TOLERANCE = 5e-6
TRAINING = ("train", "--model=mlp", "--dataset=synthetic:shape=28x28x1,classes=10,examples=200", "--threads=1", "--epochs=2", "--seed=3",
            "--quiet")
CNN = ("train", "--model=cnn", "--dataset=synthetic:shape=28x28x1,classes=10,examples=96", "--threads=1", "--epochs=1", "--seed=3", "--quiet")


class Trained:
    def __init__(self, report, weights, done):
        self.report, self.weights, self.done = report, weights, done

    def values(self):
        """What must be equal to the bit."""
        return self.report["losses"], [(epoch["loss"], epoch.get("val_loss")) for epoch in self.report["epochs"]], self.weights


class Workers(ProgramTest):
    def run_training(self, engine, workers, replicas, *options, training=TRAINING):
        report, weights = self.path("report.json"), self.path("out.safetensors")
        for path in (report, weights):
            if os.path.exists(path):
                os.unlink(path)
        strategy = () if any(option.startswith("--strategy=") for option in options) else \
            ("--strategy=multi-worker-mirrored:collective=ring" if workers > 1 else "--strategy=ring",)
        done = engine.run([LOCKSTEP, *training, *strategy, f"--replicas={replicas}", "--report=" + report, "--save-weights=" + weights,
                           *engine.options, *options], workers, self.folder)
        self.assertEqual(set(done.codes), {DONE}, done.out + done.err)
        with open(report) as file, open(weights, "rb") as saved:
            return Trained(json.load(file), saved.read(), done)

    def check_all_took_part(self, trained, workers, replicas):
        report = trained.report
        self.assertEqual((report["status"], report["workers"], report["replicas"]), ("done", workers, workers * replicas))
        self.assertEqual(len(set(report["parameter_hashes"])), 1)
        of_workers = report["worker_reports"]
        self.assertEqual([one["worker"] for one in of_workers], list(range(workers)))
        self.assertEqual([one["first_rank"] for one in of_workers], [i * replicas for i in range(workers)])
        self.assertEqual([one["replicas"] for one in of_workers], [replicas] * workers)
        self.assertEqual([one["status"] for one in of_workers], ["done"] * workers)
        for one in of_workers:
            self.assertEqual(one["parameter_hashes"], report["parameter_hashes"][:1] * replicas)


class SameBits(Workers):
    """Who computes what does not matter where the order of the sums is the same."""

    def check_shapes(self, training, *options):
        expected = self.run_training(engines.Alone(), 1, 4, *options, training=training)
        self.assertEqual(len(set(expected.report["parameter_hashes"])), 1)
        for workers, replicas in ((2, 2), (4, 1)):
            with self.subTest(workers=workers, replicas=replicas):
                found = self.run_training(engines.Launch(), workers, replicas, *options, training=training)
                self.assertEqual(found.values()[:2], expected.values()[:2])
                self.assertTrue(found.weights == expected.weights, "the weights differ")
                self.assertEqual(found.report["parameter_hashes"][0], expected.report["parameter_hashes"][0])
                self.check_all_took_part(found, workers, replicas)

    def test_mlp(self):
        self.check_shapes(TRAINING, "--batch=32")

    def test_cnn_with_uneven_batches(self):
        self.check_shapes(CNN, "--batch=30")


class OneDevice(Workers):
    def test_uneven_batches_are_the_exact_mean(self):
        """30 and at last 20 examples for four workers, and for one device."""
        options = ("--batch=30", "--optimizer=sgd:learning_rate=0.05")
        expected = self.run_training(engines.Alone(), 1, 1, "--strategy=one-device", *options)
        found = self.run_training(engines.Launch(), 4, 1, *options)
        self.assertEqual(len(found.report["losses"]), len(expected.report["losses"]))
        for one, other in zip(found.report["losses"], expected.report["losses"]):
            self.assertAlmostEqual(one, other, delta=TOLERANCE)
        for one, other in zip(found.report["epochs"], expected.report["epochs"]):
            self.assertAlmostEqual(one["val_loss"], other["val_loss"], delta=TOLERANCE)


class Shares(Workers):
    """Who takes more or less of a batch does not change its mean."""
    OPTIONS = ("--batch=37", "--optimizer=sgd:learning_rate=0.05")  # 37, and at last 15 of 200 examples

    def check_one_device(self, found, shares):
        expected = self.run_training(engines.Alone(), 1, 1, "--strategy=one-device", *self.OPTIONS)
        self.assertEqual(found.report["replica_batches"], shares)
        self.assertEqual(len(set(found.report["parameter_hashes"])), 1)
        self.assertEqual(len(found.report["losses"]), len(expected.report["losses"]))
        for one, other in zip(found.report["losses"], expected.report["losses"]):
            self.assertAlmostEqual(one, other, delta=TOLERANCE)
        for one, other in zip(found.report["epochs"], expected.report["epochs"]):
            self.assertAlmostEqual(one["val_loss"], other["val_loss"], delta=TOLERANCE)

    def test_two_workers(self):
        self.check_one_device(self.run_training(engines.Launch(), 2, 1, *self.OPTIONS, "--share=3,1"), [28, 9])

    def test_two_replicas_of_each_worker(self):
        self.check_one_device(self.run_training(engines.Launch(), 2, 2, *self.OPTIONS, "--share=3,1"), [14, 14, 5, 4])

    def test_three_replicas(self):
        self.check_one_device(self.run_training(engines.Alone(), 1, 3, *self.OPTIONS, "--share=5,1,2"), [23, 5, 9])

    def test_microbatches(self):
        self.check_one_device(self.run_training(engines.Alone(), 1, 2, *self.OPTIONS, "--share=3,1", "--microbatches=3"), [28, 9])

    def test_a_server_that_waits_for_all(self):
        self.check_one_device(self.run_training(engines.Alone(), 1, 2, *self.OPTIONS, "--share=3,1", "--strategy=parameter-server:mode=sync"),
                              [28, 9])

    def test_empty_shares(self):
        """Also of the chief, which prints the plan of what it computes: nothing."""
        found = self.run_training(engines.Launch(), 2, 1, *self.OPTIONS, "--share=1,1000")
        self.assertIn("--share: 1 of the 2 replicas gets none of the 37 examples of a batch", found.done.err)
        self.check_one_device(found, [0, 37])
        done = self.lockstep(*TRAINING[:-1], *self.OPTIONS, "--replicas=2", "--share=1,1000", "--verbose")
        self.assertEqual(done.code, DONE, done.err)
        self.assertIn("37 examples a step in shares of 1,1000", done.out)
        self.assertNotIn("program for", done.out)

    def test_predictions_are_in_their_order(self):
        """37 examples of each batch from workers of unequal shares, put together by the chief."""
        found = []
        for workers, options in ((1, ("--strategy=one-device",)), (2, ("--share=3,1",))):
            path = self.path(f"{workers}.npy")
            engine = engines.Launch() if workers > 1 else engines.Alone()
            done = engine.run([LOCKSTEP, "predict", "--model=mlp", TRAINING[2], "--split=train", "--threads=1", "--seed=3", "--quiet", "--batch=37",
                               "--out=" + path, *engine.options, *options], workers, self.folder)
            self.assertEqual(set(done.codes), {DONE}, done.err)
            with open(path, "rb") as file:
                data = file.read()
            header = 10 + struct.unpack("<H", data[8:10])[0]
            found.append(struct.unpack(f"<{(len(data) - header) // 4}f", data[header:]))
        self.assertEqual(len(found[0]), 10 * 200)
        self.assertEqual(len(found[1]), len(found[0]))
        for one, other in zip(*found):
            self.assertAlmostEqual(one, other, delta=TOLERANCE)

    def test_weights_that_are_alike_are_none(self):
        expected = self.run_training(engines.Alone(), 1, 3, *self.OPTIONS)
        found = self.run_training(engines.Alone(), 1, 3, *self.OPTIONS, "--share=7,7,7")
        self.assertEqual(found.values()[:2], expected.values()[:2])
        self.assertTrue(found.weights == expected.weights, "the weights differ")

    def test_refused(self):
        for share, says in (("1", "1 weight, but 2 replicas"), ("1,2,3", "3 weights, but 2 replicas"), ("0,1", "'0' is no weight"),
                            ("-1,2", "'-1' is no weight"), ("1,1000001", "'1000001' is no weight"), ("1,,2", "'' is no weight"),
                            ("1,2.5", "'2.5' is no weight"), ("99999999999999999999,1", "is no weight")):
            with self.subTest(share):
                self.refused(USAGE, *TRAINING, "--replicas=2", "--share=" + share, says=("--share", says))
        self.refused(USAGE, *TRAINING, "--replicas=2", "--share=2,1", "--elastic=1:2", says=("--elastic", "weights"))
        self.refused(USAGE, *TRAINING, "--replicas=2", "--share=2,1", "--strategy=parameter-server",
                     says=("--share", "parameter-server", "--strategy=mirrored"))
        job = engines.environment(LOCKSTEP_RANK="0", LOCKSTEP_WORLD_SIZE="2", LOCKSTEP_SERVERS="1", LOCKSTEP_ADDRESS="127.0.0.1:29477")
        self.refused(USAGE, *TRAINING, "--share=2,1", environment=job, says=("--share", "server processes"))

    def test_workers_must_agree(self):
        done = engines.Launch().run([LOCKSTEP, *TRAINING, "--share=1,2,3"], 2, self.folder)
        self.assertEqual(done.codes, [USAGE])
        self.assertIn("3 weights, but 2 workers", done.err)
        each = '[ $LOCKSTEP_RANK = 0 ] && share=3,1 || share=1,3; exec "$@" --share=$share'
        done = engines.Launch().run(["sh", "-c", each, "sh", LOCKSTEP, *TRAINING], 2, self.folder)
        self.assertEqual(done.codes, [USAGE])
        self.assertIn("has --share 1,3, but worker 0", done.err)

    def test_classes_have_the_same_names_on_all(self):
        for worker, name in ((0, "cat"), (1, "cow")):
            os.mkdir(self.path(str(worker)))
            with open(self.path(f"{worker}/t.csv"), "w") as file:
                file.write(f"1,ant\n2,bee\n3,{name}\n")
        each = 'exec "$@" --dataset=csv:file=$PWD/$LOCKSTEP_RANK/t.csv'
        done = engines.Launch().run(["sh", "-c", each, "sh", LOCKSTEP, "train", "--model=linear", "--loss=mse", "--device=cpu"], 2, self.folder)
        self.assertEqual(done.codes, [USAGE])
        self.assertIn("whose examples are", done.err)


class EveryEngine(Workers):
    """Four workers under each engine train what four replicas of one process do."""

    def check_engine(self, engine):
        if reason := engine.missing():
            self.skipTest(reason)
        self.addCleanup(engine.close)
        expected = self.run_training(engines.Alone(), 1, 4, "--batch=32")
        found = self.run_training(engine, 4, 1, "--batch=32")
        self.assertEqual(found.values()[:2], expected.values()[:2])
        self.assertTrue(found.weights == expected.weights, "the weights differ")
        self.check_all_took_part(found, 4, 1)

    def test_launch(self):
        self.check_engine(engines.Launch())

    def test_mpirun(self):
        self.check_engine(engines.OpenMPI())

    def test_torchrun(self):
        self.check_engine(engines.Torchrun())

    def test_tf_config(self):
        self.check_engine(engines.TfConfig())

    def test_slurm_on_two_nodes(self):
        self.check_engine(engines.Slurm("-N2", "--ntasks-per-node=2"))

    def test_slurm_with_uneven_nodes(self):
        """Three tasks on the first node, one on the second."""
        self.check_engine(engines.Slurm("-N2"))

    def test_hosts(self):
        self.check_engine(engines.Hosts())

    def test_hosts_whose_network_may_be_public(self):
        engine = engines.Hosts()
        if reason := engine.missing():
            self.skipTest(reason)
        done = engine.run([LOCKSTEP, *TRAINING], 2, self.folder)
        self.assertEqual(done.codes, [USAGE] * 2, done.err)
        self.assertEqual(done.err.count("error: ucx: UCX neither asks who connects to its ports nor encrypts: between hosts it needs "
                                        "--network=private (only trusted machines reach this network) or --insecure\n"), 2, done.err)


if __name__ == "__main__":
    main()
