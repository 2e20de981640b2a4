# SPDX-License-Identifier: Apache-2.0
"""Training loops of a program in Python: beside fit, bit for bit, and when they go wrong."""
import gc
import os

import numpy_python
import numpy
from support import ProgramTest, main, tensors

import lockstep
from lockstep import layers, ops


def train_step(replica):
    loss, gradients = replica.value_and_grad()
    replica.apply_gradients(gradients)
    return loss


def squared(y_true, y_pred):
    """By hand: the losses, and their derivatives."""
    return ((y_pred - y_true) ** 2).mean(-1), 2 * (y_pred - y_true) / y_pred.shape[-1]


def model_of(outputs=3, **options):
    return lockstep.Sequential([layers.Input((8,)), layers.Dense(16, "relu"), layers.Dropout(0.2), layers.Dense(outputs)],
                               **{"strategy": "ring", "replicas": 2, "threads": 1, "seed": 3, "device": "cpu", **options})


class Loops(ProgramTest):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(0)
        self.x, self.labels = random.random((200, 8), dtype="float32"), random.integers(0, 3, 200)
        self.y = random.random((200, 2), dtype="float32")

    def steps(self, model, y, step, epochs=2, x=None, **options):
        """The losses of a loop, and its metrics after each epoch."""
        strategy = model.strategy
        dataset = strategy.experimental_distribute_dataset(self.x if x is None else x, y, batch_size=64, **options)
        losses, metrics = [], []
        for _ in range(epochs):
            dataset.reset_metrics()
            for batch in dataset:
                losses.append(strategy.reduce("sum", strategy.run(step, args=(batch,))))
                self.assertAlmostEqual(losses[-1], dataset.metrics(step=True)["loss"], 5)
            metrics.append(dataset.metrics())
        self.assertEqual(len(losses), epochs * len(dataset))
        return losses, metrics

    def beside_fit(self, ours, theirs, y, step, fit_loss=None):
        history = theirs.fit(self.x, y, batch_size=64, epochs=2, verbose=0)
        losses, metrics = self.steps(ours, y, step)
        numpy.testing.assert_allclose(losses, history.losses, rtol=1e-6)
        for name, values in history.history.items():
            numpy.testing.assert_allclose([epoch[name] for epoch in metrics], values, rtol=1e-6)
        return [(one.tobytes(), other.tobytes()) for one, other in zip(ours.get_weights(), theirs.get_weights())]

    def test_a_loop_is_fit_to_the_bit(self):
        for strategy, replicas in (("one-device", 1), ("ring", 2), ("central-storage", 3), ("mirrored", 2), ("multi-worker-mirrored", 2),
                                   ("parameter-server:mode=sync", 2)):
            with self.subTest(strategy):
                ours, theirs = (model_of(strategy=strategy, replicas=replicas) for _ in range(2))
                for model in (ours, theirs):
                    model.compile("adam", metrics=["accuracy"])
                for one, other in self.beside_fit(ours, theirs, self.labels, train_step):
                    self.assertEqual(one, other)
                self.assertEqual(ours.strategy.num_replicas_in_sync, replicas)

    def test_gradients_in_fewer_bytes(self):
        """What was not finite in one step is not owed in the next ones."""
        def step(replica, derivative=1.0):
            loss, gradients = replica.value_and_grad(lambda y_true, y_pred: tuple(numpy.float32(factor) * part for factor, part in
                                                                                  zip((1, derivative), squared(y_true, y_pred))))
            replica.apply_gradients(gradients)
            return loss

        for compress in ("int8", "topk:fraction=0.05"):
            ours, theirs, by_hand = (model_of(2, compress=compress) for _ in range(3))
            for model in (ours, theirs):
                model.compile("sgd", "mean_squared_error")
            by_hand.compile("sgd", "none", metrics="none")
            for one, other in self.beside_fit(ours, theirs, self.y, train_step):
                self.assertEqual(one, other)
            self.steps(by_hand, self.y, step, 1)
            weights = by_hand.get_weights()
            dataset = by_hand.strategy.experimental_distribute_dataset(self.x, self.y, batch_size=200)
            for batch in dataset:
                by_hand.strategy.run(lambda replica: step(replica, numpy.inf), args=(batch,))
            with self.assertRaisesRegex(lockstep.LockstepError, "after the last step 'dense/kernel' is not finite"):
                by_hand.get_weights()
            by_hand.set_weights(weights)
            self.steps(by_hand, self.y, step, 1)
            self.assertTrue(all(numpy.isfinite(weight).all() for weight in by_hand.get_weights()))

    def test_another_batch_keeps_what_is_owed(self):
        """Weights hardly change, so that one step owes what two steps owe more than the other one. Each delivers an element of each kernel."""
        def fit(model, folder, count):
            model.fit(self.x[:count], self.y[:count], batch_size=count, verbose=0, checkpoints=self.path(folder))
            name, = (name for name in os.listdir(self.path(folder)) if name.endswith(".safetensors"))
            found = tensors(os.path.join(self.path(folder), name))
            return sum(numpy.array(found[f"filter/residual_{rank}"][1]) for rank in range(2))

        one, other = (lockstep.Sequential([layers.Input((8,)), layers.Dense(16, "relu"), layers.Dense(2)], strategy="ring", replicas=2,
                                          threads=1, seed=3, device="cpu", compress="topk:fraction=1e-9") for _ in range(2))
        for model in (one, other):
            model.compile("sgd:learning_rate=1e-6", "mean_squared_error")
        first, both, second = fit(one, "first", 4), fit(one, "both", 200), fit(other, "second", 200)
        self.assertGreater(numpy.abs(first).max(), 1e-3)
        different = numpy.abs(both - first - second) > 1e-4 * numpy.abs(both).max()
        self.assertLessEqual(different.sum(), 3 * 2 * 2)

    def test_with_a_logical_shard_for_each_replica(self):
        results = []
        for strategy in ("ring", "tree", "central-storage", "sharded"):
            ours, theirs = (model_of(strategy=strategy, replicas=3, reproducible=3) for _ in range(2))
            for model in (ours, theirs):
                model.compile("adam", metrics=["accuracy", "sparse_categorical_crossentropy"])
            for one, other in self.beside_fit(ours, theirs, self.labels, train_step):
                self.assertEqual(one, other)
            results.append(([weight.tobytes() for weight in ours.get_weights()], self.steps(ours, self.labels, train_step, 1)))
        for result in results[1:]:
            self.assertEqual(result, results[0])

    def test_other_numbers_of_logical_shards_are_refused(self):
        model = model_of(reproducible=4)
        model.compile("adam")
        with self.assertRaisesRegex(lockstep.UsageError, "takes one replica for each logical shard, and there are 2 for 4; use reproducible=2"):
            model.strategy.experimental_distribute_dataset(self.x, self.labels, batch_size=64)
        model = model_of(reproducible=2)
        model.compile("adam")
        with self.assertRaisesRegex(lockstep.UsageError, "step functions of an evaluation"):
            model.strategy.experimental_distribute_dataset(self.x, self.labels, batch_size=64, training=False)

    def test_a_rate_by_replicas_is_refused_with_logical_shards(self):
        model = model_of(reproducible=2)
        model.compile("adam", lr_scaling="linear")
        for train in (lambda: model.train_on_batch(self.x, self.labels), lambda: model.fit(self.x, self.labels),
                      lambda: model.strategy.experimental_distribute_dataset(self.x, self.labels, batch_size=64)):
            with self.assertRaisesRegex(lockstep.UsageError, "lr.scaling makes the learning rate depend on the number of replicas; use none"):
                train()

    def test_the_first_data_shows_the_shape_and_inputs_have_names(self):
        for x, y in ((self.x, self.labels), ({"input_layer": self.x}, self.labels)):
            model = lockstep.Model("mlp", device="cpu", threads=1)
            self.steps(model, y, train_step, epochs=1, x=x)
            self.assertEqual((model.variables[0].shape[0], model.output_shape), (8, (None, 3)))
        left, right = layers.Input((8,), name="left"), layers.Input((8,), name="right")
        model = lockstep.Model([left, right], layers.Dense(3)(layers.Concatenate()([left, right])), device="cpu", threads=1)
        self.steps(model, self.labels, train_step, epochs=1, x={"right": self.x, "left": self.x})
        with self.assertRaisesRegex(lockstep.UsageError, "expected arrays for the inputs left, right"):
            model.strategy.experimental_distribute_dataset({"left": self.x}, self.labels)

    def test_a_loss_of_operations_and_one_by_hand(self):
        theirs = model_of(2)
        theirs.compile("sgd", "mean_squared_error")
        by_hand = model_of(2)
        by_hand.compile("sgd", "none", metrics="none")

        def step(replica):
            loss, gradients = replica.value_and_grad(squared)
            replica.apply_gradients(gradients)
            return loss

        for one, other in self.beside_fit(by_hand, theirs, self.y, step):
            numpy.testing.assert_allclose(numpy.frombuffer(one, "float32"), numpy.frombuffer(other, "float32"), rtol=1e-4, atol=1e-6)
        composed = [model_of(2) for _ in range(2)]
        for model in composed:
            model.compile("sgd", lambda y_true, y_pred: ops.mean(ops.square(y_pred - y_true), axis=-1))
        for one, other in self.beside_fit(*composed, self.y, train_step):
            self.assertEqual(one, other)

    def test_a_replica_has_its_share(self):
        model, seen = model_of(), []
        model.compile("sgd", keep_outputs=1)
        strategy = model.strategy
        dataset = strategy.experimental_distribute_dataset(self.x, self.labels, batch_size=64, shuffle=False)

        def step(replica, word):
            replica.forward()
            seen.append((replica.rank, replica.local_rank, replica.is_chief, replica.step, replica.examples, replica.global_examples, word))
            shares[replica.rank] = (replica.input(), replica.target, replica.output)
            replica.minimize()
            return [replica.rank, 1.0]

        shares = {}
        for batch in dataset:
            returned = strategy.run(step, args=(batch, "word"))
            break
        self.assertEqual(sorted(seen), [(0, 0, True, 1, 32, 64, "word"), (1, 1, False, 1, 32, 64, "word")])
        numpy.testing.assert_array_equal(numpy.concatenate([shares[0][0], shares[1][0]]), self.x[:64])
        numpy.testing.assert_array_equal(numpy.concatenate([shares[0][1], shares[1][1]]), self.labels[:64])
        self.assertEqual(shares[0][2].shape, (32, 3))
        self.assertEqual(returned, [[0, 1.0], [1, 1.0]])
        numpy.testing.assert_array_equal(strategy.reduce("MEAN", returned), [0.5, 1])
        self.assertEqual(strategy.gather([5, 6]), [5.0, 6.0])

    def test_evaluation(self):
        model = model_of()
        model.compile("sgd", metrics=["accuracy"])
        losses, metrics = self.steps(model, self.labels, lambda replica: (replica.forward(), replica.loss())[1], 1, training=False)
        expected = model.evaluate(self.x, self.labels, return_dict=True, verbose=0)
        numpy.testing.assert_allclose([metrics[0][name] for name in expected], list(expected.values()), rtol=1e-6)

    def test_evaluation_under_masks_of_several_outputs(self):
        ids = (1 + numpy.arange(50 * 5).reshape(50, 5) % 7).astype("int32")
        for i, row in enumerate(ids):
            row[i * 7 % 6:] = 0
        y = [(ids % 3).astype("int32"), self.x[:50, :1]]
        expected = None
        for strategy, replicas in (("one-device", 1), ("ring", 3)):
            x = layers.Input((5,), dtype="int32")
            words = layers.Embedding(8, 4, mask_zero=True)(x)
            outputs = [layers.Dense(3, activation="softmax", name="tag")(words), layers.Dense(1, name="size")(layers.LSTM(3)(words))]
            model = lockstep.Model(x, outputs, strategy=strategy, replicas=replicas, threads=1, seed=3, device="cpu")
            model.compile("sgd", loss=["sparse_categorical_crossentropy", "mse"], loss_weights=[0.5, 2], metrics=[["accuracy"], ["mae"]])
            dataset = model.strategy.experimental_distribute_dataset(ids, y, batch_size=12, training=False)
            for batch in dataset:
                model.strategy.run(lambda replica: (replica.forward(), replica.loss())[1], args=(batch,))
            found = model.evaluate(ids, y, batch_size=12, return_dict=True, verbose=0)
            expected = expected or found
            for scores in (dataset.metrics(), found):
                numpy.testing.assert_allclose([scores[name] for name in expected], list(expected.values()), rtol=1e-6)

    def test_what_goes_wrong(self):
        model = model_of()
        model.compile("adam")
        strategy = model.strategy
        dataset = strategy.experimental_distribute_dataset(self.x, self.labels, batch_size=64)
        kept = []

        def on_one(replica):
            if replica.rank == 1:
                raise KeyError("mine")
            train_step(replica)

        for step, error, says in ((on_one, KeyError, "mine"), (lambda replica: replica.value_and_grad(), lockstep.UsageError, "after value_and_grad, without apply_gradients"),
                                  (lambda replica: replica.output, lockstep.UsageError, "call it after forward"), (lambda: 0, TypeError, "positional"),
                                  (lambda replica: model.get_weights(), lockstep.UsageError, "another thread uses this model"),
                                  (lambda replica: kept.append(replica), None, "")):
            with self.subTest(says):
                if error is None:
                    with self.assertRaisesRegex(lockstep.UsageError, "after its step function has returned"):
                        strategy.run(step, args=(next(iter(dataset)),))
                        kept[0].rank
                    continue
                with self.assertRaisesRegex(error, says) as raised:
                    strategy.run(step, args=(next(iter(dataset)),))
                self.assertNotIn("ls_", str(raised.exception))
        for args in ((), (1,), (next(iter(model_of().strategy.experimental_distribute_dataset(self.x, self.labels))),)):
            with self.assertRaisesRegex(lockstep.UsageError, "expected one batch of a distributed dataset of this model"):
                strategy.run(train_step, args=args)
        with self.assertRaisesRegex(lockstep.UsageError, "before the next one is taken"):
            list(dataset)
        batch, later = next(iter(dataset)), next(iter(dataset))
        strategy.run(train_step, args=(later,))
        for given in (batch, later):
            with self.assertRaisesRegex(lockstep.UsageError, "this batch has been run, or another one was taken"):
                strategy.run(train_step, args=(given,))
        with self.assertRaisesRegex(lockstep.UsageError, "nothing has been run yet"):
            model_of().strategy.reduce("sum", [1, 2])
        strategy.run(train_step, args=(next(iter(dataset)),))  # it goes on
        for reduce_op, values, axis, says in (("max", [1, 2], None, "expected sum or mean"), ("sum", [1, [2, 3]], None, "an array of one shape"),
                                              ("sum", [1], None, "1 values; expected one for each of the 2 replicas"),
                                              ("sum", [1, 2, 3], None, "3 values"), ("sum", [1, 2], 0, "axis=0; expected None")):
            with self.assertRaisesRegex(lockstep.UsageError, says):
                strategy.reduce(reduce_op, values, axis)
        model.close()
        with self.assertRaisesRegex(lockstep.UsageError, "the model is closed"):
            len(dataset)

    def test_a_batch_that_failed_comes_again(self):
        """Also where the program catches what the step raises, inside the loop or by a second run of the same batch."""
        models, losses = [model_of(), model_of()], ([], [])
        for model, found in zip(models, losses):
            model.compile("adam")
            dataset = model.strategy.experimental_distribute_dataset(self.x, self.labels, batch_size=64)
            failing = iter([0, 1, 1, 0, 1]) if model is models[1] else iter([])

            def step(replica):
                if fails:
                    raise KeyError("now and then")
                return train_step(replica)

            for batch in dataset:
                for _ in range(2):
                    fails = next(failing, 0)
                    try:
                        found.append(model.strategy.reduce("sum", model.strategy.run(step, args=(batch,))))
                        break
                    except KeyError:
                        pass
            self.assertEqual(len(found), len(dataset))
        self.assertEqual(*losses)

    def test_break(self):
        """The rest of the epoch comes next, and a whole one after a break at its end."""
        model = model_of()
        model.compile("sgd")
        strategy = model.strategy
        dataset = strategy.experimental_distribute_dataset(self.x, self.labels, batch_size=64)

        def taken(most):
            for number, batch in enumerate(dataset, 1):
                strategy.run(train_step, args=(batch,))
                if number == most:
                    break
            return number

        self.assertEqual([len(dataset), taken(9), taken(3), taken(9), taken(4), taken(9)], [4, 4, 3, 1, 4, 4])

    def test_datasets_are_closed_when_nobody_has_them(self):
        model = model_of()
        for _ in range(3):
            dataset = model.strategy.experimental_distribute_dataset(self.x, self.labels)
            del dataset
            gc.collect()
        self.assertEqual(len(model._distributed), 1)

    def test_workers_of_a_launcher(self):
        script = self.path("train.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write(f"import os, sys\nsys.path[:0] = {[numpy_python.PACKAGE, os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.abspath(main.__code__.co_filename))]!r}\n"
                       "import test_loops\ntest_loops.of_a_worker()\n")
        done = self.lockstep("launch", "-n", "2", "--", numpy_python.sys.executable, script)
        self.assertEqual(done.code, 0, done.err)
        model = model_of()
        model.compile("adam")
        self.assertIn(repr(self.steps(model, self.labels, train_step)[0]), done.out)


def of_a_worker():
    """What test_workers_of_a_launcher starts."""
    test = Loops()
    Loops.setUp(test)
    model = model_of(replicas=1)
    model.compile("adam")
    losses = test.steps(model, test.labels, train_step)[0]
    if model.is_chief:
        print(losses)


if __name__ == "__main__":
    main()
