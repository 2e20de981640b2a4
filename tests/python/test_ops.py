# SPDX-License-Identifier: Apache-2.0
"""lockstep.ops: each operation beside NumPy, and losses, metrics and layers of the program beside the same in C and beside Lockstep's own."""
import json
import math
import os
import shlex
import statistics
import subprocess
import time

import numpy_python
import numpy
from support import ProgramTest, main, write_json

import lockstep
from lockstep import layers, ops

SOURCE = os.environ["LOCKSTEP_SOURCE"]
COMPILER = shlex.split(os.environ["LOCKSTEP_COMPILER"])
TURNS = 5
PLUGIN = """#include "core/plugin/%(kind)s.h"
%(body)s
static const struct ls_%(kind)s_interface interface = {.struct_size = sizeof(struct ls_%(kind)s_interface), .build = build};
static const struct ls_plugin_option options[] = {{"units", "integer", "4", "how many"}, {NULL, NULL, NULL, NULL}};
static const struct ls_plugin plugin = {LS_PLUGIN_HEADER(LS_KIND_%(KIND)s), .name = "%(name)s", .version = "1", .licence = "MIT", .summary = "of a test",
    .options = options, .interface = &interface};
LS_EXPORT const struct ls_plugin *lockstep_plugin(void) { return &plugin; }
"""
# The mean squared error, and the same gated layer as Gated below.
C_LOSS = """static int32_t build(const struct ls_host *host, const struct ls_composer *c, struct ls_tensor *p, struct ls_tensor *t, struct ls_tensor **values) {
    struct ls_tensor *square = c->function(c, "square", ls_compose_subtract(c, p, t));
    (void)host; values[0] = ls_compose_reduce(c, LS_REDUCE_TO_MEAN, square, ls_compose_last(c, square)); return LS_OK; }"""
C_LAYER = """static int32_t build(const struct ls_host *host, const struct ls_composer *c, struct ls_tensor *const *inputs, uint32_t count,
    struct ls_tensor **outputs) {
    const int64_t units = (int64_t)ls_host_number(host, "units");
    const struct ls_weight kernel = {.name = "kernel", .ndims = 2, .dims = {ls_compose_channels(c, inputs[0]), units}};
    const struct ls_weight gate = {.name = "gate", .ndims = 2, .dims = {kernel.dims[0], units}};
    struct ls_tensor *x = ls_compose_dense(c, inputs[0], c->weight(c, &kernel), NULL);
    struct ls_tensor *g = c->function(c, "sigmoid", ls_compose_dense(c, inputs[0], c->weight(c, &gate), NULL));
    (void)count; outputs[0] = ls_compose_scale(c, ls_compose_multiply(c, x, g), 2, 0); return LS_OK; }"""


class Gated(ops.Layer):
    """As in Keras: its arguments are its options."""

    def __init__(self, units=4, name=None):
        super().__init__(name)
        self.units = units

    def build(self, input_shape):
        self.kernel = self.add_weight((input_shape[-1], self.units), name="kernel")
        self.gate = self.add_weight((input_shape[-1], self.units), name="gate")

    def call(self, inputs):
        return inputs @ self.kernel * ops.sigmoid(inputs @ self.gate) * 2


def squared(y_true, y_pred):
    return ops.mean(ops.square(y_pred - y_true), axis=-1)


X = numpy.random.default_rng(5).uniform(-2, 2, (6, 4, 6)).astype("float32")
W = numpy.random.default_rng(6).uniform(-1, 1, (6, 3)).astype("float32")
KERNEL = numpy.arange(8, dtype="float32").reshape(1, 2, 2, 2) / 8


def norm(x, epsilon):
    return (x - x.mean(-1, keepdims=True)) / numpy.sqrt(x.var(-1, keepdims=True) + epsilon)


def elu(x, alpha=1.0):
    return numpy.where(x > 0, x, alpha * numpy.expm1(x))


def logistic(x):
    return 1 / (1 + numpy.exp(-x))


def relu6(x):
    return numpy.clip(x, 0, 6)


def softmax(x, axis):
    return numpy.exp(x) / numpy.exp(x).sum(axis, keepdims=True)


# What is composed of an input, and the same by NumPy, with the defaults of keras.ops 3.15. python/keras has keras.ops itself in these rows.
EACH = {
    "add": (lambda x: x + x[:, :1] + 1.5, lambda x: x + x[:, :1] + 1.5),
    "subtract": (lambda x: 2 - x - W[0].mean() - x[..., 3:4], lambda x: 2 - x - W[0].mean() - x[..., 3:4]),
    "multiply": (lambda x: 3 * x * numpy.ones(6) * x, lambda x: 3 * x * x),
    "divide": (lambda x: x / 4 + 1 / (x * x + 1) - x / 3, lambda x: x / 4 + 1 / (x * x + 1) - x / 3),
    "power": (lambda x: x ** 5 + (x ** 2) ** 0.5 - -x, lambda x: x ** 5 + numpy.abs(x) + x),
    "power of a float": (lambda x: x ** 2.0 + ops.power(x, 3) + (x * x + 1) ** -1.5 + abs(x) ** 0.7 + x ** 0 + x ** -1,
                         lambda x: x ** 2 + x ** 3 + (x * x + 1) ** -1.5 + abs(x) ** 0.7 + 1 + 1 / x),
    "power of a tensor": (lambda x: 2 ** x + ops.power(x * x + 1, x) + ops.power(0.5, x), lambda x: 2 ** x + (x * x + 1) ** x + 0.5 ** x),
    "reciprocal": (lambda x: ops.reciprocal(x) + ops.rsqrt(ops.square(x) + 1), lambda x: 1 / x + 1 / numpy.sqrt(x * x + 1)),
    "clip": (lambda x: ops.clip(x, -1, 0.5), lambda x: numpy.clip(x, -1, 0.5)),
    "maximum": (lambda x: ops.maximum(x, x[:, ::1, :1]), lambda x: numpy.maximum(x, x[:, :, :1])),
    "minimum": (lambda x: ops.minimum(x, x[:, :, :1]) + ops.minimum(0.5, x), lambda x: numpy.minimum(x, x[:, :, :1]) + numpy.minimum(0.5, x)),
    "absolute": (lambda x: ops.absolute(x) + 2 * ops.abs(x) + 3 * abs(x), lambda x: 6 * numpy.abs(x)),
    "exp": (lambda x: ops.exp(x) + ops.log(ops.square(x) + 1), lambda x: numpy.exp(x) + numpy.log(x * x + 1)),
    "relu": (lambda x: ops.relu(x) + ops.relu6(4 * x), lambda x: numpy.maximum(x, 0) + relu6(4 * x)),
    "activation": (lambda x: ops.activation(x, "relu6") + ops.activation(x, "gelu") + ops.activation(x, None),
                   lambda x: relu6(x) + x * (1 + numpy.vectorize(math.erf)(x / numpy.sqrt(2))) / 2 + x),
    "leaky_relu": (lambda x: ops.leaky_relu(x) + ops.leaky_relu(x, negative_slope=0) + ops.leaky_relu(x, -0.5),
                   lambda x: numpy.where(x > 0, 3 * x, (0.2 - 0.5) * x)),
    "elu": (lambda x: ops.elu(x) + ops.elu(x, alpha=0.5) + ops.elu(x, -1), lambda x: elu(x) + elu(x, 0.5) + elu(x, -1)),
    "selu": (lambda x: ops.selu(x), lambda x: 1.0507009873554805 * elu(x, 1.6732632423543772)),
    "hard_sigmoid": (lambda x: ops.hard_sigmoid(2 * x) + ops.hard_silu(2 * x), lambda x: relu6(2 * x + 3) / 6 * (1 + 2 * x)),
    "softsign": (lambda x: ops.softsign(x), lambda x: x / (1 + numpy.abs(x))),
    "sigmoid": (lambda x: ops.sigmoid(x) + ops.silu(x) + ops.log_sigmoid(x), lambda x: logistic(x) * (1 + x) + numpy.log(logistic(x))),
    "tanh": (lambda x: ops.tanh(x) + ops.softplus(x), lambda x: numpy.tanh(x) + numpy.log1p(numpy.exp(x))),
    "gelu": (lambda x: ops.gelu(x), lambda x: x * (1 + numpy.tanh(numpy.sqrt(2 / numpy.pi) * (x + 0.044715 * x ** 3))) / 2),
    "gelu, exact": (lambda x: ops.gelu(x, approximate=False), lambda x: x * (1 + numpy.vectorize(math.erf)(x / numpy.sqrt(2))) / 2),
    "softmax": (lambda x: ops.softmax(x), lambda x: softmax(x, -1)),
    "softmax of axes": (lambda x: ops.softmax(x, axis=1) + ops.softmax(x, (1, 2)), lambda x: softmax(x, 1) + softmax(x, (1, 2))),
    "log_softmax": (lambda x: ops.log_softmax(100 * x) + ops.log_softmax(x, axis=-2),
                    lambda x: 100 * (x - x.max(-1, keepdims=True)) - numpy.log(numpy.exp(100 * (x - x.max(-1, keepdims=True))).sum(-1, keepdims=True))
                    + numpy.log(softmax(x, 1))),
    "sum": (lambda x: ops.sum(x, axis=-1), lambda x: x.sum(-1)),
    "sum of all": (lambda x: ops.sum(x, keepdims=True), lambda x: x.sum((1, 2), keepdims=True)),
    "mean": (lambda x: ops.mean(x, axis=(1, 2))[:, None], lambda x: x.mean((1, 2))[:, None]),
    "max": (lambda x: ops.max(x, axis=1, keepdims=True), lambda x: x.max(1, keepdims=True)),
    "min": (lambda x: ops.min(x, axis=1), lambda x: x.min(1)),
    "var": (lambda x: ops.var(x, axis=1, keepdims=True) + ops.std(x, axis=-1, keepdims=True), lambda x: x.var(1, keepdims=True) + x.std(-1, keepdims=True)),
    "logsumexp": (lambda x: ops.logsumexp(x * 100, axis=-1), lambda x: numpy.log(numpy.exp(100 * (x - x.max(-1, keepdims=True))).sum(-1)) + 100 * x.max(-1)),
    "reshape": (lambda x: ops.reshape(x, (None, 2, -1)), lambda x: x.reshape(6, 2, 12)),
    "transpose": (lambda x: ops.transpose(x, (0, 2, 1)), lambda x: x.transpose(0, 2, 1)),
    "concatenate": (lambda x: ops.concatenate([x, x[:, 1:3], -x], axis=1), lambda x: numpy.concatenate([x, x[:, 1:3], -x], 1)),
    "slice": (lambda x: x[:, -1, 2:5], lambda x: x[:, -1, 2:5]),
    "new dimensions": (lambda x: x[:, None] * x[:, :, None] + x[:, 1:2, None, :1] + x[:, 0, None, None], lambda x: x[:, None] * x[:, :, None] + x[:, 1:2, None, :1] + x[:, 0, None, None]),
    "expand_dims": (lambda x: ops.squeeze(ops.expand_dims(x, (1, -1)), 1) * ops.squeeze(x[:, None])[..., None], lambda x: (x * x)[..., None]),
    "matmul": (lambda x: x @ ops.transpose(x, (0, 2, 1)), lambda x: x @ x.transpose(0, 2, 1)),
    "dense": (lambda x: ops.dense(x, x.composition.constant(W), x.composition.constant(W[0])) + ops.dense(x, x.composition.constant(W)),
              lambda x: 2 * (x @ W.astype("float64")) + W[0]),
    "layer_normalization": (lambda x: ops.layer_normalization(x) + ops.layer_normalization(x, epsilon=0.1), lambda x: norm(x, 1e-7) + norm(x, 0.1)),
    "one_hot": (lambda x: ops.one_hot(ops.maximum(x, 0) * 0 + 1, 3), lambda x: numpy.eye(3)[numpy.ones(x.shape, dtype=int)]),
    "conv": (lambda x: ops.conv(ops.reshape(x, (None, 4, 2, 3))[..., :2], x.composition.constant(KERNEL), padding="same")[:, :, :1],
             lambda x: numpy.einsum("bhwc,wcf->bhf", x.reshape(6, 4, 2, 3)[..., :2], KERNEL[0])[:, :, None]),
    "max_pool": (lambda x: ops.max_pool(ops.reshape(x, (-1, 4, 6, 1)), (2, 3)), lambda x: x.reshape(6, 2, 2, 2, 3).max((2, 4))[..., None]),
    "average_pool": (lambda x: ops.average_pool(ops.reshape(x, (-1, 4, 6, 1)), 2), lambda x: x.reshape(6, 2, 2, 3, 2).mean((2, 4))[..., None]),
}


class Rows(ops.Layer):
    def call(self, inputs):
        return ops.take(self.add_weight((5, 3), name="table"), inputs, axis=0)


class Dropped(ops.Layer):
    def call(self, inputs, training=None):
        return ops.dropout(inputs * self.add_weight((8,), "ones"), 0.5)


class Doubled(ops.Layer):
    def call(self, inputs, training=None):
        return inputs * 2 if training else inputs


class Equal(ops.Layer):
    def __init__(self, value=True, name=None):
        super().__init__(name)
        self.value = value

    def call(self, inputs, training=None):
        return inputs * 2 if training == self.value else inputs


def squares(y_true, y_pred):
    return ops.mean(ops.square(y_pred), axis=-1)


class Row(ops.Layer):
    """One of EACH, of the input and a weight that is 0."""

    def __init__(self, row, name=None):
        super().__init__(name)
        self.row = row

    def call(self, inputs):
        return EACH[self.row][0](inputs + self.add_weight(inputs.shape[1:], "zeros", name="shift"))


def slopes(function, x, step=1e-6):
    """The gradient by this weight of the squared outputs, added up, of an example on average."""
    made = numpy.empty(x.shape[1:])
    for index in numpy.ndindex(made.shape):
        moved = [x.copy(), x.copy()]
        for one, sign in zip(moved, (1, -1)):
            one[(slice(None), *index)] += sign * step
        made[index] = numpy.subtract(*((function(one) ** 2).sum() for one in moved)) / (2 * step * len(x))
    return made


WEIGHT = {}  # what Weighted gives to add_weight


class Weighted(ops.Layer):
    def call(self, inputs):
        return inputs * WEIGHT.get("made", lambda weight: weight)(self.add_weight(*WEIGHT["given"], **WEIGHT["keywords"]))


class Options(ops.Layer):
    def __init__(self, factor=1.0, shift=None, kind="plain", doubled=False, **others):
        super().__init__(**others)
        self.given = factor, shift, kind, doubled

    def call(self, inputs):
        factor, shift, kind, doubled = self.given
        made = inputs * factor * (2 if doubled else 1) + (shift[1] if shift else 0)
        return made if kind == "plain" else [made, made]


@ops.loss(targets="classes")
def entropy(y_true, y_pred):
    return -ops.log(ops.sum(y_pred * ops.one_hot(y_true, y_pred.shape[-1]), axis=-1))


@ops.metric(sums=2, result=lambda sums, examples: sums[0] / sums[1], upwards=True)
def quotient(y_true, y_pred):
    return ops.mean(y_true), ops.mean(y_true) + 0 * ops.mean(y_pred)


class OpsTest(ProgramTest):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(2)
        self.x, self.y, self.labels = random.random((120, 8), dtype="float32"), random.random((120, 3), dtype="float32"), random.integers(0, 3, 120)

    @staticmethod
    def model(made, last="linear", **options):
        return lockstep.Sequential([layers.Input((8,)), made, layers.Dense(3, activation=last, name="last")],
                                   **{"device": "cpu", "threads": 1, "seed": 4, **options})

    def losses(self, model, loss, y, **options):
        model.compile("sgd:learning_rate=0.1", loss, **options)
        return model.fit(self.x, y, batch_size=24, epochs=2, verbose=0)

    def plugins(self):
        """The folder of the C ones."""
        for kind, name, body in (("loss", "squared-in-c", C_LOSS), ("layer", "GatedInC", C_LAYER)):
            text = self.path(name + ".c")
            with open(text, "w", encoding="utf-8") as file:
                file.write(PLUGIN % {"kind": kind, "KIND": kind.upper(), "name": name, "body": body})
            subprocess.run([*COMPILER, "-std=c11", "-O1", "-fPIC", "-shared", "-I", SOURCE, "-o", self.path(f"{kind}-{name}.so"), text], check=True)
        return self.folder


class Operations(OpsTest):
    def test_each_is_numpys(self):
        for row, (_, expected) in EACH.items():
            with self.subTest(row):
                model = lockstep.Sequential([layers.Input(X.shape[1:]), Row(row)], device="cpu", threads=1)
                numpy.testing.assert_allclose(model.predict(X), expected(X.astype("float64")), rtol=2e-5, atol=2e-5)
                if row == "one_hot":  # whose derivative is 0, and no variable is left
                    continue
                model.compile("sgd:learning_rate=1", lambda y_true, y_pred: ops.sum(ops.square(y_pred)), metrics="none")
                model.train_on_batch(X, numpy.zeros_like(model.predict(X)))
                gradient = slopes(expected, X.astype("float64"))
                numpy.testing.assert_allclose(-model.get_weights()[0], gradient, rtol=1e-4, atol=1e-4 * numpy.abs(gradient).max())

    def test_take(self):
        """Rows of a weight, and their gradient."""
        ids, table = numpy.array([[1, 4], [4, 0], [4, 4]]), W[:5]
        model = lockstep.Sequential([layers.Input((2,), dtype="int32"), Rows()], device="cpu", threads=1)
        model.set_weights([table])
        numpy.testing.assert_array_equal(model.predict(ids), table[ids])
        model.compile("sgd:learning_rate=1", lambda y_true, y_pred: ops.sum(y_pred), metrics="none")
        model.train_on_batch(ids, numpy.zeros((3, 2, 3), dtype="float32"))
        numpy.testing.assert_allclose(model.get_weights()[0], table - numpy.bincount(ids.ravel(), minlength=5)[:, None] / 3, rtol=1e-6)

    def test_dropout(self):
        """Half of the elements are 0 in training, and the others twice as large; in an evaluation and a prediction all are as they were."""
        x = numpy.ones((50, 8), dtype="float32")
        model = lockstep.Sequential([layers.Input((8,)), Dropped()], device="cpu", threads=1)
        model.compile("sgd:learning_rate=0", lambda y_true, y_pred: ops.mean(y_pred, axis=-1), metrics=[squares])
        mean, of_squares = model.train_on_batch(x, x)
        self.assertTrue(0.8 < mean < 1.2, mean)
        self.assertAlmostEqual(of_squares, 2 * mean, 5)
        self.assertEqual(model.test_on_batch(x, x), [1, 1])
        numpy.testing.assert_array_equal(model.predict(x), x)

    def test_training_is_known_only_where_the_model_says_it(self):
        def config(training):
            history = {"class_name": "__keras_tensor__", "config": {"shape": [None, 8], "dtype": "float32", "keras_history": ["in", 0, 0]}}
            made = [("InputLayer", "in", {"batch_shape": [None, 8]}, []), ("Doubled", "own", {}, [{"args": [history], "kwargs": {"training": training}}])]
            return {"class_name": "Functional", "config": {
                "name": "f", "input_layers": [["in", 0, 0]], "output_layers": [["own", 0, 0]],
                "layers": [{"class_name": kind, "name": name, "config": {"name": name, **options}, "inbound_nodes": nodes} for kind, name, options, nodes in made]}}

        x = numpy.ones((4, 8), dtype="float32")
        numpy.testing.assert_array_equal(lockstep.Model(config(False), custom_objects=[Doubled], device="cpu").predict(x), x)
        for model in (lambda: lockstep.Model(config(None), custom_objects=[Doubled]), lambda: lockstep.Sequential([layers.Input((8,)), Doubled()]),
                      lambda: lockstep.Sequential([layers.Input((8,)), Equal()]), lambda: lockstep.Sequential([layers.Input((8,)), Equal(False)])):
            with self.assertRaisesRegex(lockstep.UsageError, "composed once, for training and predictions"):
                model()

    def test_what_they_refuse(self):
        for compose, says in ((lambda x: ops.sum(x, axis=0), "axis 0 .* has the examples"), (lambda x: ops.sum(x, axis=3), "axis=3"),
                              (lambda x: x[1:], "all examples are taken"), (lambda x: x[:, ::2], "has steps"), (lambda x: x[:, 3:3], "is empty"),
                              (lambda x: ops.reshape(x, (-1, -1, -1)), "at most one of them -1"),
                              (lambda x: x if x else -x, "instead of if"), (lambda x: (-2) ** x, "a base above 0"), (lambda x: ops.softmax(x, axis=0), "axis 0 .* has the examples"),
                              (lambda x: x[None], "all examples are taken"), (lambda x: x[:, x], "are taken by ops.take"), (lambda x: x[:, 0, 0, 0], "at most a part of each"),
                              (lambda x: ops.concatenate([x, x]), "give the axis"), (lambda x: ops.expand_dims(x, 0), "behind the examples"),
                              (lambda x: ops.squeeze(x, 1), "of size 1"), (lambda x: ops.take(x, x), "expected axis=0 of a weight"),
                              (lambda x: ops.layer_normalization(x, axis=1), "expected -1"), (lambda x: 7, "returned 7: expected 1 to 8 tensors"),
                              (lambda x: ops.add(1, 2), "expected a tensor"), (numpy.mean, "numpy.mean: .*: take ops.mean \\(from"),
                              (lambda x: numpy.log(x), "numpy.log: .*: take ops.log "), (lambda x: numpy.log1p(x), "write ops.log\\(1 \\+ x\\)"), (lambda x: len(x), "has no values while"),
                              (lambda x: numpy.ones(6) < x, "cannot be compared"), (lambda x: numpy.ones((6, 6)) @ x, "take ops.matmul"), (lambda x: ops.max_pool(x, 2, padding="all"), "padding='all'"),
                              (lambda x: x[:, numpy.array([1, 2])], "are taken by ops.take"), (lambda x: x[:, numpy.array([1])], "are taken by ops.take"),
                              (lambda x: x @ ops.reshape(x, (None, 6, 4))[:, :3], "Row")):
            EACH["wrong"] = (compose, None)
            with self.subTest(says), self.assertRaisesRegex(lockstep.LockstepError, says) as raised:
                lockstep.Sequential([layers.Input(X.shape[1:]), Row("wrong")], device="cpu")
            self.assertNotIn("\n", str(raised.exception))
        for compose in (ops.tanh, ops.leaky_relu, ops.softmax, ops.sum, ops.logsumexp, lambda w: ops.mean(w, axis=0), lambda w: ops.reshape(w, (None, 6)), lambda w: w[:2],
                        lambda w: ops.concatenate([w, w]), lambda w: ops.expand_dims(w, -1), ops.squeeze, lambda w: ops.squeeze(w, 0), lambda w: ops.transpose(w, (1, 0)),
                        lambda w: (w * w)[None], lambda w: w ** 2):
            WEIGHT.update(given=[(6, 4)], keywords={}, made=compose)
            with self.assertRaisesRegex(lockstep.UsageError, r"\(6, 4\)> has no examples: a weight is only added, .* with a tensor of examples first"):
                lockstep.Sequential([layers.Input((6, 4)), Weighted()], device="cpu")
        WEIGHT.update(given=[(6, 4), "ones"], keywords={}, made=lambda w: ops.maximum(2 * w - w / 4, 0.5))
        self.assertEqual(lockstep.Sequential([layers.Input((6, 4)), Weighted()], device="cpu").predict(numpy.ones((1, 6, 4)))[0, 0, 0], 1.75)
        del WEIGHT["made"]
        EACH["wrong"] = (lambda x: kept.append(x) or x, None)
        kept = []
        lockstep.Sequential([layers.Input(X.shape[1:]), Row("wrong")], device="cpu")
        with self.assertRaisesRegex(lockstep.UsageError, "after the function .* has returned"):
            kept[0] + kept[0]


    def test_names_of_keras_that_are_not_there(self):
        for name, says in (("where", "lockstep.ops has no where; compose ops.maximum"), ("cast", "tensors are float32"), ("sinh", "has no sinh$"), ("sin", "has no sin$"),
                           ("cos", "has no cos$"), ("round", "has no round$"), ("tan", "has no tan; ops.tanh is .*another function$"), ("Softplus", "did you mean softplus.$"),
                           ("softmaxx", "did you mean softmax.$")):
            with self.assertRaisesRegex(AttributeError, says):
                getattr(ops, name)
        self.assertEqual([name for name in dir(ops) if name[0] == "_" or name in ("ctypes", "Refused", "INSTEAD")], [])
        self.assertLessEqual({"Layer", "Tensor", "loss", "mean"}, set(dir(ops)))


class BesideOthers(OpsTest):
    def test_a_loss_and_a_layer_equal_those_in_c_to_the_bit(self):
        folder = self.plugins()
        for strategy, replicas in (("one-device", 1), ("ring", 2), ("tree", 3), ("central-storage", 2), ("mirrored", 2), ("multi-worker-mirrored", 2)):
            with self.subTest(strategy):
                options = {"strategy": strategy, "replicas": replicas}
                found = []
                for layer, loss, more in ((Gated(5, name="own"), squared, {}),
                                          (layers.Layer("GatedInC", units=5, name="own"), "squared-in-c", {"plugin_path": folder})):
                    model = self.model(layer, **options, **more)
                    history = self.losses(model, loss, self.y)
                    found.append((history.losses.tobytes(), [weights.tobytes() for weights in model.get_weights()]))
                    self.assertEqual([variable.name for variable in model.variables][:2], ["own/kernel", "own/gate"])
                self.assertEqual(*found)
                self.assertLess(history.losses[-1], history.losses[0])

    def test_they_equal_those_of_lockstep(self):
        for loss, built_in, y, last in ((squared, "mean_squared_error", self.y, "linear"), (entropy, "sparse_categorical_crossentropy", self.labels, "softmax")):
            dense = layers.Dense(5, activation="tanh")
            ours, theirs = (self.losses(self.model(dense, last), one, y).losses for one in (loss, built_in))
            numpy.testing.assert_allclose(ours, theirs, rtol=1e-5)

    def test_workers_of_a_launcher(self):
        script = self.path("train.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write("import os, sys\nsys.path[:0] = os.environ['LOCKSTEP_FOLDERS'].split(':')\nimport test_ops\ntest_ops.of_a_worker()\n")
        folders = ":".join([os.path.join(SOURCE, "python"), os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.abspath(numpy_python.__file__)),
                            os.path.join(SOURCE, "tests", "programs")])
        done = self.lockstep("launch", "-n", "2", "--", numpy_python.sys.executable, script, environment={"LOCKSTEP_FOLDERS": folders})
        self.assertEqual(done.code, 0, done.err)
        alone = self.model(Gated(), strategy="ring", replicas=2)
        self.assertIn(repr(self.losses(alone, squared, self.y).losses.tolist()), done.out)

    def test_speed(self):
        """Steps a second, in turn, of which none is asserted; what was timed is the same training."""
        random = numpy.random.default_rng(1)
        x, y = random.random((4096, 64), dtype="float32"), random.random((4096, 64), dtype="float32")
        models = {}
        folder = self.plugins()
        for name, loss, layer in (("Python", squared, Gated(128, name="own")), ("C", "squared-in-c", layers.Layer("GatedInC", units=128, name="own")),
                                  ("the fused loss", "mean_squared_error", Gated(128, name="own"))):
            model = lockstep.Sequential([layers.Input((64,)), layer, layers.Dense(64)], strategy="ring", replicas=2, threads=1, device="cpu",
                                        plugin_path=folder)
            model.compile("sgd", loss)
            models[name] = model
        seconds = {name: [] for name in models}
        for turn in range(TURNS + 1):
            for name, model in models.items():
                begin = time.perf_counter()
                model.fit(x, y, batch_size=128, epochs=2, verbose=0)
                seconds[name] += [time.perf_counter() - begin] if turn else []
        best = {name: min(times) for name, times in seconds.items()}
        middle = {name: statistics.median(times) for name, times in seconds.items()}
        print("; ".join(f"{name}: {64 / best[name]:.0f} steps/s at best, {64 / middle[name]:.0f} in the middle, of which Python has "
                        f"{best[name] / best['Python']:.3f} and {middle[name] / middle['Python']:.3f}" for name in models), flush=True)
        weights = {name: numpy.concatenate([one.ravel() for one in model.get_weights()]) for name, model in models.items()}
        numpy.testing.assert_array_equal(weights["Python"], weights["C"])
        numpy.testing.assert_allclose(weights["Python"], weights["the fused loss"], rtol=1e-3, atol=1e-5)


class Parts(OpsTest):
    def test_metrics(self):
        found = self.losses(self.model(layers.Dense(4), strategy="ring", replicas=2), squared, self.y, metrics=[squared, quotient, "mae"])
        self.assertEqual(list(found.history), ["loss", "squared", "quotient", "mae"])
        numpy.testing.assert_allclose(found.history["squared"], found.history["loss"], rtol=1e-5)
        numpy.testing.assert_allclose(found.history["quotient"], [1, 1], rtol=1e-6)

    def test_a_metric_whose_result_fails_is_nan(self):
        broken = ops.metric(squared.__call__, sums=1, result=lambda sums, examples: {}[0], name="broken")
        before, numpy_python.sys.excepthook = numpy_python.sys.excepthook, lambda *error: seen.append(error[0])
        seen = []
        try:
            found = self.losses(self.model(layers.Dense(4)), squared, self.y, metrics=[broken])
        finally:
            numpy_python.sys.excepthook = before
        self.assertTrue(numpy.isnan(found.history["broken"]).all())
        self.assertEqual(set(seen), {KeyError})

    def test_two_of_a_name_and_the_same_twice(self):
        model = self.model(layers.Dense(4))
        one, other = lambda t, p: ops.square(t - p), lambda t, p: ops.absolute(t - p)
        first = [self.losses(model, loss, self.y, metrics=[loss]).history for loss in (one, other, one)]
        self.assertEqual([list(history) for history in first], [["loss", "lambda"], ["loss", "lambda_2"], ["loss", "lambda"]])
        numpy.testing.assert_allclose(first[1]["loss"], first[1]["lambda_2"], rtol=1e-5)

    def test_what_they_raise_comes_out(self):
        model = self.model(layers.Dense(4))
        for loss, error, says in ((lambda t, p: 1 / 0, ZeroDivisionError, "zero"), (lambda t, p: p.no, AttributeError, "no"), (lambda t: t, TypeError, "positional"),
                                  (lambda t, p: 0, lockstep.UsageError, "returned 0: expected a tensor of lockstep.ops"),
                                  (lambda t, p: t @ p, lockstep.InputError, "cannot be multiplied")):
            with self.subTest(says), self.assertRaisesRegex(error, says):
                self.losses(model, loss, self.y)
        self.assertTrue(len(self.losses(model, squared, self.y).losses))
        for given, says in (({"loss": squared, "optimizer": lambda a, b: 0}, "optimizer: .*'adam:learning_rate=0.01'"), ({"loss": 3}, "or a function of y_true"),
                            ({"loss": Gated}, "or a function of y_true")):
            with self.assertRaisesRegex(lockstep.UsageError, says):
                model.compile(**{"optimizer": "sgd", **given})
        with self.assertRaisesRegex(lockstep.UsageError, "targets='class'"):
            ops.loss(targets="class")(squared)

    def test_the_command_has_none_of_them(self):
        model = self.model(layers.Dense(4))
        self.losses(model, squared, self.y)
        for given, more in ((model, {}), (self.model(Gated()), {}), ("mlp", {"loss": squared}), ("mlp", {"metrics": ["mae", quotient]})):
            with self.assertRaisesRegex(lockstep.UsageError, "'(squared|Gated|quotient)' is written in this program"):
                lockstep.compare(given, self.x, self.y, steps=2, speed_steps=0, **more)

    def test_layers_by_their_options(self):
        x = numpy.ones((4, 8), dtype="float32")
        for layer, expected in ((Options(), 1), (Options(2.5, doubled=True, name="o"), 5), (Options(shift=[1, 3]), 4), (Options(kind="plain"), 1)):
            model = lockstep.Sequential([layers.Input((8,)), layer], device="cpu")
            numpy.testing.assert_array_equal(model.predict(x), numpy.full((4, 8), expected))
        with self.assertRaisesRegex(lockstep.InputError, "unknown option; did you mean 'factor'"):
            lockstep.Model(json.dumps(layers.sequential_config([layers.Input((8,)), layers.Layer("Options", factr=2)], "m")), custom_objects=[Options])
        with self.assertRaises(TypeError):
            Options(fast=True)
        dense = type("Dense", (ops.Layer,), {"call": lambda self, inputs: inputs})
        with self.assertRaisesRegex(lockstep.UsageError, "Lockstep has a layer Dense itself"):
            lockstep.Sequential([layers.Input((8,)), dense()], device="cpu")
        with self.assertRaisesRegex(NotImplementedError, "Empty has no call"):
            lockstep.Sequential([layers.Input((8,)), type("Empty", (ops.Layer,), {})()], device="cpu")
        with self.assertRaisesRegex(lockstep.UsageError, "add_weight is for build and call"):
            Gated().add_weight((2,))

    def test_what_add_weight_takes(self):
        """As Keras's: a text, an object of Keras, its class or its JSON."""
        constant = type("Constant", (), {"__module__": "keras.src.initializers", "__init__": lambda self, value=0.0: setattr(self, "value", value),
                                         "get_config": lambda self: {"value": self.value}})
        WEIGHT.update(given=((8,), "ones"), keywords={"trainable": False, "name": "w"})
        for initializer, expected in (("constant:value=0.5", 0.5), (constant(0.25), 0.25), (constant, 0), ({"class_name": "Constant", "config": {"value": 2}}, 2)):
            WEIGHT["given"] = ((8,), initializer, "float32")
            model = lockstep.Sequential([layers.Input((8,)), Weighted()], device="cpu")
            numpy.testing.assert_array_equal(model.get_weights()[0], numpy.full(8, expected, dtype="float32"))
            self.assertEqual(model.variables[0], ("weighted/w", (8,), False))
        for given, keywords, says in ((((8,), lambda shape, dtype: 0), {}, "expected a text, such as 'zeros'"), (((8,), "zeroes"), {}, "zeroes.*zeros"),
                                      (((8,), numpy.ones(8)), {}, "set_weights sets numbers"), (("kernel", (8,)), {}, "expected the sizes first"),
                                      (((8,), "ones", "float16"), {}, "dtype='float16'"), (((8,),), {"regularizer": "l2"}, "weight_decay"),
                                      (((8,),), {"constraint": "non_neg"}, "constraint='non_neg'")):
            WEIGHT.update(given=given, keywords=keywords)
            with self.subTest(says), self.assertRaisesRegex(lockstep.LockstepError, says):
                lockstep.Sequential([layers.Input((8,)), Weighted()], device="cpu")

    def test_a_model_of_a_file(self):
        model = self.model(Gated(5))
        self.losses(model, squared, self.y)
        model.save_weights(self.path("w.safetensors"))
        config = layers.sequential_config([layers.Input((8,)), Gated(5), layers.Dense(3, name="last")], "mine")
        write_json(self.path("m.json"), config)
        for given in ([Gated], {"Gated": Gated}):
            again = lockstep.Model(self.path("m.json"), custom_objects=given, device="cpu", threads=1)
            again.load_weights(self.path("w.safetensors"))
            numpy.testing.assert_array_equal(again.predict(self.x), model.predict(self.x))
            self.assertEqual([layer.class_name for layer in again.layers], ["Gated", "Dense"])
        with self.assertRaisesRegex(lockstep.InputError, "Gated"):
            lockstep.Model(self.path("m.json"))
        with self.assertRaisesRegex(lockstep.UsageError, "custom_objects: .* expected classes of lockstep.ops.Layer"):
            lockstep.Model(self.path("m.json"), custom_objects=[squared])


def of_a_worker():
    """What test_workers_of_a_launcher starts."""
    test = OpsTest()
    OpsTest.setUp(test)
    model = test.model(Gated(), strategy="ring")
    losses = test.losses(model, squared, test.y).losses.tolist()
    if model.is_chief:
        print(losses)


if __name__ == "__main__":
    main()
