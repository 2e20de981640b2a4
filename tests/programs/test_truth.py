# SPDX-License-Identifier: Apache-2.0
"""Truth: any number of replicas under any collective trains like one device."""
import gzip
import os
import struct
import tempfile

from support import FASHION, FIXTURES, ProgramTest, main, read_json, tensors

SGD = "--optimizer=sgd:learning_rate=0.01"
SETUPS = [(1, "ring"), (2, "ring"), (3, "ring"), (4, "ring"), (8, "ring"),
          (2, "hierarchical-copy"), (3, "hierarchical-copy"), (4, "hierarchical-copy"), (8, "hierarchical-copy"),
          (1, "central-storage"), (2, "central-storage"), (3, "central-storage"), (4, "central-storage"),
          (8, "central-storage")]
# Each strategy, each number of replicas.
SOME_SETUPS = [(1, "central-storage"), (2, "hierarchical-copy"), (3, "ring"), (4, "central-storage"), (8, "ring"), (8, "hierarchical-copy")]

# N replicas compute what one device computes in N microbatches, and add up the same N gradients, in another order: that is at most
# N - 1 roundings of 6e-8 a step, for eight replicas and ten steps 4.2e-6. Against the whole batch there is no such limit:
# where two values of a max-pooling window tie but for rounding, a gradient goes another way, and in a batch of two that is
# half of the update (one device in slices shows the same).
FIRST_TEN = 5e-6
FIRST_IMAGES = 1003


def deviations(losses, truth):
    return [abs(a - b) / abs(b) for a, b in zip(losses, truth)]


class TruthTest(ProgramTest):
    """Trains on the first images of Fashion-MNIST, in files of their own: reading all takes longer than the training."""

    first = None

    def setUp(self):
        super().setUp()
        self.need(FASHION + "/train-images-idx3-ubyte.gz")
        if not self.first:
            self.write_first_images()

    @classmethod
    def write_first_images(cls):
        scratch = tempfile.TemporaryDirectory(prefix="lockstep-test-")
        cls.addClassCleanup(scratch.cleanup)
        cls.first = scratch.name
        for name, header in (("train-images-idx3-ubyte", 16), ("train-labels-idx1-ubyte", 8),
                             ("t10k-images-idx3-ubyte", 16), ("t10k-labels-idx1-ubyte", 8)):
            with gzip.open(os.path.join(FASHION, name + ".gz")) as file, open(os.path.join(cls.first, name), "wb") as out:
                start = file.read(header)
                out.write(start[:4] + struct.pack(">I", FIRST_IMAGES) + start[8:])
                out.write(file.read(FIRST_IMAGES * (784 if header == 16 else 1)))

    def images(self, count):
        self.assertLessEqual(count, FIRST_IMAGES)
        return f"--dataset=fashion-mnist:dir={self.first},limit={count}"

    def run_once(self, strategy, replicas, *arguments):
        model = () if any(argument.startswith("--model=") for argument in arguments) else ("--model=cnn",)
        return self.train(*model, f"--strategy={strategy}", f"--replicas={replicas}", "--threads=1", "--validation=off",
                          *arguments)

    def check(self, *arguments, setups=SETUPS):
        truth = self.run_once("one-device", 1, *arguments)["losses"]
        parts = {1: truth}
        for replicas, strategy in setups:
            with self.subTest(replicas=replicas, strategy=strategy):
                if replicas not in parts:
                    parts[replicas] = self.run_once("one-device", 1, f"--microbatches={replicas}", *arguments)["losses"]
                report = self.run_once(strategy, replicas, *arguments)
                self.assertEqual(len(report["losses"]), len(truth))
                self.assertLessEqual(deviations(report["losses"], truth)[0], 1e-6)
                off = deviations(report["losses"], parts[replicas])
                self.assertLessEqual(max(off[:10]), FIRST_TEN)
                if replicas <= 2:  # two gradients have one sum
                    self.assertEqual(max(off), 0)
                print(f"{replicas} replicas, {strategy}: {max(off):.1e} from one device in slices", flush=True)
                self.assertEqual(len(report["parameter_hashes"]), replicas)
                self.assertEqual(len(set(report["parameter_hashes"])), 1)


class Counts:
    """Batches that replicas share unequally, for some of SETUPS or for all."""

    def test_global_batch_of_7_leaves_one_replica_of_eight_without_an_example(self):
        self.check(self.images(1000), SGD, "--batch=7", "--steps=12", setups=self.setups)
        report = self.run_once("ring", 8, self.images(70), SGD, "--batch=7")
        self.assertEqual(report["replica_batches"], [1, 1, 1, 1, 1, 1, 1, 0])

    def test_1003_examples_end_each_epoch_with_a_batch_of_3(self):
        arguments = (self.images(1003), SGD, "--batch=50", "--epochs=2")
        self.check(*arguments, setups=self.setups)
        report = self.run_once("ring", 2, *arguments)
        self.assertEqual([(epoch["steps"], epoch["examples"]) for epoch in report["epochs"]], [(21, 1003)] * 2)

    def test_tiny_batches_in_which_pooling_ties(self):
        for batch, seed in ((2, 0), (3, 1), (5, 2)):
            self.check("--model=cnn-small", self.images(1000), f"--batch={batch}", "--steps=12", f"--seed={seed}",
                       "--optimizer=sgd:learning_rate=0.05,momentum=0.9", setups=self.tiny)

    def test_one_whole_update_equals_that_of_one_device(self):
        for batch in (50, 7, 3):
            arguments = (self.images(1000), "--optimizer=sgd:learning_rate=1", f"--batch={batch}",
                         "--steps=1", "--save-weights=" + self.path("after.safetensors"))
            self.run_once("one-device", 1, *arguments)
            truth = tensors(self.path("after.safetensors"))
            self.run_once("one-device", 1, self.images(1000), "--optimizer=sgd:learning_rate=0",
                          "--steps=1", "--save-weights=" + self.path("before.safetensors"))
            before = tensors(self.path("before.safetensors"))
            largest = max(abs(a - b) for name in truth for a, b in zip(truth[name][1], before[name][1]))
            self.assertGreater(largest, 1e-4)
            for replicas, strategy in self.setups:
                with self.subTest(batch=batch, replicas=replicas, strategy=strategy):
                    self.run_once(strategy, replicas, *arguments)
                    found = tensors(self.path("after.safetensors"))
                    self.assertEqual(set(found), set(truth))
                    off = max(abs(a - b) for name in truth for a, b in zip(found[name][1], truth[name][1]))
                    self.assertLessEqual(off, 1e-5 * largest)


class Truth(Counts, TruthTest):
    setups, tiny = SOME_SETUPS, [(replicas, strategy) for replicas, strategy in SETUPS if replicas == 4]

    def test_one_replica_under_central_storage_is_one_device_to_the_bit(self):
        for optimizer in ("sgd:learning_rate=0.01,momentum=0.9", "adam"):
            arguments = (self.images(1003), "--optimizer=" + optimizer, "--batch=50", "--epochs=2")
            truth, found = (self.run_once(strategy, 1, *arguments) for strategy in ("one-device", "central-storage"))
            self.assertEqual(found["losses"], truth["losses"])
            self.assertEqual(found["parameter_hashes"], truth["parameter_hashes"])
            self.assertIsNone(found["collective"])
            self.assertIsNone(found["transport"])

    def test_central_storage_does_not_depend_on_who_comes_first(self):
        arguments = (self.images(500), "--optimizer=adam", "--batch=50", "--epochs=2")
        hashes = {tuple(self.run_once("central-storage", 3, *arguments)["parameter_hashes"]) for _ in range(3)}
        self.assertEqual(len(hashes), 1)

    def test_global_batch_of_50(self):
        self.check(self.images(1000), SGD, "--batch=50", "--steps=12")

    def test_dropout_does_not_depend_on_the_number_of_replicas(self):
        arguments = ("--model=mlp-dropout", self.images(500), SGD, "--batch=50", "--steps=10",
                     "--validation=off", "--threads=1")
        truth = self.train(*arguments)["losses"]
        for replicas in (2, 3, 8):
            losses = self.train(*arguments, "--strategy=ring", f"--replicas={replicas}")["losses"]
            self.assertLessEqual(max(deviations(losses, truth)), FIRST_TEN)

    def test_every_built_in_model_trains_alike_on_cpu_and_reference(self):
        for model, loss in (("mlp", ()), ("cnn", ()), ("mlp-dropout", ()), ("cnn-small", ()), ("linear", ("--loss=mse",))):
            with self.subTest(model=model):
                arguments = (f"--model={model}", *loss, self.images(40), "--optimizer=sgd:learning_rate=0.001",
                             "--batch=8", "--steps=3", "--replicas=2", "--threads=1", "--validation=off")
                fast = self.train(*arguments, "--device=cpu")
                plain = self.train(*arguments, "--device=reference")
                self.assertEqual((fast["device"], plain["device"]), ("cpu", "reference"))
                self.assertLessEqual(max(deviations(fast["losses"], plain["losses"])), 1e-5)

    def test_a_share_in_slices_is_the_same_share(self):
        arguments = ("--model=mlp-dropout", self.images(103), SGD, "--batch=25", "--validation=off",
                     "--threads=1", "--epochs=2")
        truth = self.train(*arguments)["losses"]
        for extra in (("--microbatches=2",), ("--microbatches=100",), ("--microbatches=3", "--replicas=4", "--strategy=ring")):
            self.assertLessEqual(max(deviations(self.train(*arguments, *extra)["losses"], truth)), 5e-6)

    def test_a_second_thread_changes_no_more_than_rounding(self):
        arguments = ("--model=cnn", self.images(500), SGD, "--batch=50", "--steps=10", "--validation=off")
        one = self.train(*arguments, "--threads=1")["losses"]
        two = self.train(*arguments, "--threads=2")["losses"]
        self.assertLessEqual(max(deviations(two, one)), 5e-6)


class EveryCount(Counts, TruthTest):
    """The whole matrix, which tools/test --long runs."""

    setups = tiny = SETUPS


class Reference(ProgramTest):
    """Losses that PyTorch computed from the same weights on the same batches."""

    def losses(self, name, model, optimizer, replicas, strategy):
        folder = os.path.join(FIXTURES, "reference")
        self.need(FASHION + "/train-images-idx3-ubyte.gz")
        truth = read_json(os.path.join(folder, name + ".json"))["losses"]
        report = self.train(f"--model={model}", "--dataset=fashion-mnist", f"--optimizer={optimizer}", "--batch=128",
                            "--steps=100", "--shuffle=off", "--validation=off", f"--replicas={replicas}",
                            f"--strategy={strategy}", "--threads=1",
                            "--initial-weights=" + os.path.join(folder, name + ".safetensors"))
        self.assertEqual(len(report["losses"]), 100)
        return deviations(report["losses"], truth)

    def test_cnn_under_sgd(self):
        for replicas, strategy in ((1, "one-device"), (2, "ring"), (3, "hierarchical-copy")):
            with self.subTest(replicas=replicas, strategy=strategy):
                off = self.losses("cnn_sgd", "cnn", "sgd:learning_rate=0.01", replicas, strategy)
                self.assertLessEqual(max(off), 1e-3)

    def test_mlp_under_adam(self):
        for replicas, strategy in ((1, "one-device"), (2, "hierarchical-copy"), (5, "ring")):
            with self.subTest(replicas=replicas, strategy=strategy):
                off = self.losses("mlp_adam", "mlp", "adam:learning_rate=0.001", replicas, strategy)
                self.assertLessEqual(max(off[:10]), 1e-3)
                self.assertLessEqual(max(off), 0.1)


if __name__ == "__main__":
    main()
