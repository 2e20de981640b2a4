# SPDX-License-Identifier: Apache-2.0
"""Layers, losses, metrics and datasets of one's own: beside those of Lockstep that do the same, and when they go wrong."""
import os
import shlex
import subprocess
import unittest

from support import BAD_INPUT, DONE, FAILED, UNAVAILABLE, UNTIMED, USAGE, ProgramTest, main, tensors, write_json

SOURCE = os.environ["LOCKSTEP_SOURCE"]
COMPILER = shlex.split(os.environ["LOCKSTEP_COMPILER"])
SANITIZE = os.environ["LOCKSTEP_SANITIZE"]

PLUGIN = """#include "core/plugin/%(kind)s.h"
%(body)s
static const struct ls_plugin_option options[] = {%(options)s{NULL, NULL, NULL, NULL}};
static const struct ls_%(kind)s_interface interface = {.struct_size = sizeof(struct ls_%(kind)s_interface), %(interface)s};
static const struct ls_plugin plugin = {LS_PLUGIN_HEADER(LS_KIND_%(KIND)s), .name = "%(name)s", .version = "1", .licence = "MIT",
    .summary = "of a test", .options = options, .interface = &interface};
LS_EXPORT const struct ls_plugin *lockstep_plugin(void) { return &plugin; }
"""
LAYER = """static int32_t build(const struct ls_host *host, const struct ls_composer *c, struct ls_tensor *const *inputs, uint32_t count,
    struct ls_tensor **outputs) { (void)host; (void)count; struct ls_tensor *x = inputs[0]; %s return LS_OK; }"""
LOSS = """static int32_t build(const struct ls_host *host, const struct ls_composer *c, struct ls_tensor *p, struct ls_tensor *t,
    struct ls_tensor **values) { (void)host; (void)t; %s return LS_OK; }"""
# Dense, with Keras's names of its weights.
DENSE = LAYER % """
    const struct ls_weight kernel = {.name = "kernel", .ndims = 2, .dims = {ls_compose_channels(c, x), (int64_t)ls_host_number(host, "units")}};
    const struct ls_weight bias = {.name = "bias", .ndims = 1, .dims = {kernel.dims[1]}, .initializer = host->option(host, "bias_initializer")};
    struct ls_tensor *k = c->weight(c, &kernel), *b = c->weight(c, &bias);
    outputs[0] = c->function(c, host->option(host, "activation"), ls_compose_dense(c, x, k, b));"""
DENSE_OPTIONS = '{"units", "integer", NULL, "how many"}, {"activation", "text", "linear", "after it"}, {"bias_initializer", "text", "zeros", "of the bias"},'
# As sparse_categorical_crossentropy of probabilities.
ENTROPY = LOSS % """
    struct ls_tensor *right = ls_compose_multiply(c, p, c->one_hot(c, t, ls_compose_channels(c, p)));
    struct ls_tensor *sum = ls_compose_reduce(c, LS_REDUCE_TO_SUM, right, ls_compose_last(c, p));
    values[0] = ls_compose_scale(c, c->function(c, "log", sum), -ls_host_number(host, "factor"), 0);"""
ENTROPY_OPTIONS = '{"factor", "number", "1", "times"},'
ABSOLUTE = LOSS % 'values[0] = c->function(c, "abs", ls_compose_subtract(c, p, t));'
DATASET = """static double number(const struct ls_host *host, const char *name) { return ls_host_number(host, name); }
struct ls_dataset_state { const struct ls_host *host; };
static int32_t open_it(const struct ls_host *host, const char *split, struct ls_dataset_state *state, struct ls_dataset_description *out) {
    state->host = host; out->examples = (uint64_t)number(host, "examples") / (strcmp(split, "test") ? 1 : 4);
    out->field_count = 2; out->identity = (uint64_t)number(host, "identity");
    out->fields[0] = (struct ls_dataset_field){.name = "x", .role = LS_FIELD_INPUT, .dtype = LS_U8, .ndims = 1, .dims = {6}, .divisor = 255};
    out->fields[1] = (struct ls_dataset_field){.name = "y", .role = LS_FIELD_TARGET, .dtype = LS_I32, .classes = 3};
    return LS_OK; }
static int32_t load(struct ls_dataset_state *state, uint64_t example, void *const *fields) {
    for (int i = 0; i < 6; i++) ((uint8_t *)fields[0])[i] = (uint8_t)(example * 37 + (uint64_t)i * (example %% 11) * 13);
    *(int32_t *)fields[1] = (int32_t)(example %% 3);
    %s return state ? LS_OK : LS_FAILED; }"""
DATASET_OPTIONS = '{"examples", "integer", "90", "of training"}, {"identity", "integer", "0", "of the examples"},'
DATASET_TABLE = ".state_bytes = sizeof(struct ls_dataset_state), .open = open_it, .load = load"


def layer_json(class_name, config, **more):
    return {"module": "keras.layers", "class_name": class_name, "config": config, "registered_name": None, **more}


class OwnTest(ProgramTest):
    def plugin(self, kind, name, body, interface=".build = build", options=""):
        folder = self.path("plugins")
        os.makedirs(folder, exist_ok=True)
        text, path = os.path.join(folder, "source.c"), os.path.join(folder, f"{kind}-{name}.so")
        with open(text, "w", encoding="utf-8") as file:
            file.write(PLUGIN % {"kind": kind, "KIND": kind.upper(), "name": name, "body": body, "interface": interface, "options": options})
        sanitize = [] if SANITIZE == "none" else ["-fsanitize=" + SANITIZE]
        subprocess.run([*COMPILER, "-std=c11", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-I", SOURCE, "-o", path, text, *sanitize], check=True)
        return path

    def model(self, *layers, name="model.json", shape=(6,), **more):
        layers = [layer_json("InputLayer", {"batch_shape": [None, *shape], "name": "input"}), *layers]
        write_json(self.path(name), {"class_name": "Sequential", "config": {"name": "own", "layers": layers}, **more})
        return "--model=" + self.path(name)

    @property
    def found(self):
        return "--plugin-path=" + self.path("plugins")

    def near(self, one, other, tolerance):
        self.assertEqual(len(one), len(other))
        for a, b in zip(one, other):
            self.assertLessEqual(abs(a - b), tolerance * (1 + abs(a)))


DATA = "--dataset=synthetic:shape=6,classes=3,examples=100"
STEPS = ("--batch=30", "--epochs=2", "--threads=1", "--optimizer=sgd:learning_rate=0.1", "--validation=off")


class Layers(OwnTest):
    def models(self):
        self.plugin("layer", "OwnDense", DENSE, options=DENSE_OPTIONS)
        last = layer_json("Dense", {"units": 3, "activation": "softmax", "name": "last"})
        config = {"units": 5, "activation": "tanh", "name": "first"}
        return (self.model(layer_json("Dense", config), last, name="keras.json"),
                self.model(layer_json("OwnDense", config, module="mine", registered_name="mine>OwnDense"), last, name="own.json"))

    def test_one_like_dense_gives_its_bits_and_its_weights(self):
        keras, own = self.models()
        for strategy in (("--strategy=one-device",), ("--strategy=ring", "--replicas=2"), ("--strategy=central-storage", "--replicas=3")):
            with self.subTest(strategy):
                expected = self.train(keras, DATA, *STEPS, *strategy)
                found = self.train(own, DATA, *STEPS, *strategy, self.found, "--save-weights=" + self.path("w.safetensors"))
                self.assertEqual(found["losses"], expected["losses"])
                self.assertEqual(found["parameter_hashes"], expected["parameter_hashes"])
        saved = tensors(self.path("w.safetensors"))
        self.assertEqual({name: tuple(shape) for name, (shape, _) in saved.items()},
                         {"first/kernel": (6, 5), "first/bias": (5,), "last/kernel": (5, 3), "last/bias": (3,)})
        scores = [self.lockstep("evaluate", "--quiet", model, DATA, self.found, "--threads=1", "--initial-weights=" + self.path("w.safetensors")).out.partition("loss: ")[2]
                  for model in (keras, own)]
        self.assertTrue(scores[0])
        self.assertEqual(*scores)

    def test_mixed_precision_and_resuming(self):
        keras, own = self.models()
        half = ("--precision=mixed_bfloat16",)
        self.assertEqual(self.train(own, DATA, *STEPS, *half, self.found)["losses"], self.train(keras, DATA, *STEPS, *half)["losses"])
        kept = (*STEPS, self.found, "--checkpoint-dir=" + self.path("kept"), "--checkpoint-steps=3")
        whole = self.train(own, DATA, *STEPS, self.found)
        self.train(own, DATA, *kept, "--steps=6")
        resumed = self.train(own, DATA, *kept, "--resume")
        self.assertEqual(resumed["resumed_from_step"], 6)
        self.assertEqual(resumed["parameter_hashes"], whole["parameter_hashes"])

    def test_a_shared_layer_in_a_functional_model(self):
        self.plugin("layer", "OwnDense", DENSE, options=DENSE_OPTIONS)
        tensor = lambda name, node=0: {"class_name": "__keras_tensor__", "config": {"shape": [None, 6], "dtype": "float32", "keras_history": [name, node, 0]}}
        call = lambda *inputs: {"args": [inputs[0] if len(inputs) == 1 else list(inputs)], "kwargs": {}}
        model = {"class_name": "Functional", "config": {"name": "twice", "input_layers": [["a", 0, 0]], "output_layers": [["sum", 0, 0]], "layers": [
            {"class_name": "InputLayer", "name": "a", "config": {"batch_shape": [None, 6], "name": "a"}, "inbound_nodes": []},
            {"class_name": "mine>OwnDense", "name": "own", "config": {"units": 6, "name": "own"}, "inbound_nodes": [call(tensor("a")), call(tensor("own"))]},
            {"class_name": "Add", "name": "sum", "config": {"name": "sum"}, "inbound_nodes": [call(tensor("own"), tensor("own", 1))]}]}}
        write_json(self.path("twice.json"), model)
        outcome = self.lockstep("summary", "--model=" + self.path("twice.json"), self.found)
        self.assertRegex(outcome.out, r"own \(mine>OwnDense\) +\(None, 6\) +42")
        self.assertIn("Total params: 42 ", outcome.out)
        # Two inputs, two outputs: their sum and their difference.
        self.plugin("layer", "Both", LAYER % "outputs[0] = ls_compose_add(c, x, inputs[1]); outputs[1] = ls_compose_subtract(c, x, inputs[1]);",
                    ".least_inputs = 2, .most_inputs = 2, .build = build")
        both = {"class_name": "Both", "name": "both", "config": {"name": "both"}, "inbound_nodes": [call(tensor("a"), tensor("own"))]}
        ends = [tensor("both"), tensor("both")]
        ends[1]["config"]["keras_history"] = ["both", 0, 1]
        layers = model["config"]["layers"]
        layers[1:] = [dict(layers[1], inbound_nodes=layers[1]["inbound_nodes"][:1]), both,
                      dict(layers[2], inbound_nodes=[call(*ends)])]
        write_json(self.path("both.json"), model)
        data = ("--dataset=synthetic:shape=6,classes=6,examples=60", "--save-weights=" + self.path("both.safetensors"))
        report = self.train("--model=" + self.path("both.json"), *data, *STEPS, self.found)
        # (a + own(a)) + (a - own(a)) is 2 a, so nothing is learnt.
        weights = tensors(self.path("both.safetensors"))
        self.assertEqual(set(weights["own/bias"][1]), {0.0})
        self.near(report["losses"], self.train("--model=" + self.path("both.json"), *data, *STEPS, self.found, "--strategy=ring", "--replicas=2")["losses"], 1e-5)
        both["inbound_nodes"] = [call(tensor("a"))]
        write_json(self.path("both.json"), model)
        self.refused(BAD_INPUT, "summary", "--model=" + self.path("both.json"), self.found, says=("both", "expected exactly 2 input tensors, got 1"))

    def test_what_is_wrong_is_one_line(self):
        _, own = self.models()
        model = lambda config, class_name="OwnDense": self.model(layer_json(class_name, {"name": "first", **config}, module="mine"))
        self.refused(BAD_INPUT, "summary", own, says=("layer 'first' (OwnDense)", "layer-OwnDense.so", "there is none in", "plugins"))
        self.refused(BAD_INPUT, "summary", self.model(layer_json("NoSuchLayer", {"name": "x"})), self.found,
                     says=("layer 'x' (NoSuchLayer)", "a plugin layer-NoSuchLayer.so could provide it; there is none in " + self.path("plugins")))
        self.refused(BAD_INPUT, "summary", model({"units": "many"}), self.found, says=("first", "units: expected an integer, got 'many'"))
        self.refused(BAD_INPUT, "summary", model({"units": 3, "unit": 3}), self.found, says=("unit: unknown option; did you mean 'units'",))
        self.refused(BAD_INPUT, "summary", model({"units": 3, "activation": "rellu"}), self.found, says=("layer 'first'", "rellu"))
        self.refused(BAD_INPUT, "summary", model({"units": -3}), self.found, says=("layer 'first'",))
        self.plugin("layer", "Broken", LAYER % "int *nowhere = 0; outputs[*nowhere] = x; (void)c;")
        if SANITIZE == "none":
            outcome = self.lockstep("summary", model({}, "Broken"), self.found)
            self.assertLess(outcome.code, 0)
            self.assertIn("layer-Broken", outcome.err)
        for body, says in (("(void)x; (void)c; (void)outputs;", "output 1 of 1 is NULL"), ("outputs[0] = (struct ls_tensor *)host; (void)c; (void)x;", "not of this model"),
                           ('outputs[0] = ls_compose_number(c, 1); (void)x;', "has no row for each example"),
                           ("outputs[0] = c->operation(c, LS_OP_LOSS, NULL, &x, 1, 0, NULL);", "is not one that layers use"),
                           ("outputs[0] = c->operation(c, LS_OP_BATCH_NORMALIZATION, NULL, &x, 1, 0, NULL);", "which only BatchNormalization can"),
                           ('(void)x; (void)outputs; return ls_compose_fail(c, "not today");', "layer 'first' (Wrong): not today"),
                           ('(void)x; (void)outputs; (void)c; return LS_FAILED;', "without giving a reason"),
                           ("outputs[0] = ls_compose_add(c, x, c->weight(c, &(struct ls_weight){.name = \"a/b\"}));", "expected letters, digits")):
            with self.subTest(says):
                self.plugin("layer", "Wrong", LAYER % body)
                outcome = self.refused(FAILED if "reason" in says else BAD_INPUT, "summary", model({}, "Wrong"), self.found, says=(says,))
                self.assertIn("Wrong", outcome.err)


class Losses(OwnTest):
    def setUp(self):
        super().setUp()
        self.plugin("loss", "entropy", ENTROPY, ".targets = LS_TARGETS_CLASSES, .build = build", ENTROPY_OPTIONS)
        self.plugin("loss", "absolute", ABSOLUTE)
        self.plugin("metric", "distance", ABSOLUTE)
        self.plugin("metric", "likelihood", ENTROPY, ".targets = LS_TARGETS_CLASSES, .build = build", ENTROPY_OPTIONS)
        self.classes = self.model(layer_json("Dense", {"units": 3, "activation": "softmax", "name": "last"}), name="classes.json")
        self.numbers = self.model(layer_json("Dense", {"units": 2, "name": "last"}), name="numbers.json")

    def test_they_equal_those_of_lockstep(self):
        numbers = "--dataset=synthetic:shape=6,classes=0,outputs=2,examples=100"
        for strategy in ((), ("--strategy=ring", "--replicas=2"), ("--strategy=central-storage", "--replicas=3"), ("--device=reference",),
                         ("--accumulate=2",), ("--class-weight=0:2,2:0.5",)):
            with self.subTest(strategy):
                expected = self.train(self.classes, DATA, *STEPS, *strategy, "--metrics=sparse_categorical_crossentropy")
                found = self.train(self.classes, DATA, *STEPS, *strategy, self.found, "--loss=entropy", "--metrics=likelihood")
                self.near(expected["losses"], found["losses"], 1e-5)
                # The loss of the built-in one comes from logits; the metric is of the same probabilities.
                self.near([epoch["sparse_categorical_crossentropy"] for epoch in expected["epochs"]],
                          [epoch["likelihood"] for epoch in found["epochs"]], 1e-5)
                if "class" in str(strategy):
                    continue
                expected = self.train(self.numbers, numbers, *STEPS, *strategy, "--loss=mae", "--metrics=mse")
                found = self.train(self.numbers, numbers, *STEPS, *strategy, self.found, "--loss=absolute", "--metrics=distance,mse")
                self.near(expected["losses"], found["losses"], 1e-6)
                self.near([epoch["loss"] for epoch in found["epochs"]], [epoch["distance"] for epoch in found["epochs"]], 1e-6)
                self.assertEqual(found["loss"], "absolute")

    def test_options_and_checkpoints(self):
        own = (*STEPS, self.found, "--loss=entropy:factor=2")
        twice = self.train(self.classes, DATA, *own)
        self.near(twice["losses"][:1], [2 * self.train(self.classes, DATA, *STEPS, "--steps=1")["losses"][0]], 1e-5)
        epoch = self.train(self.classes, DATA, *own, "--metrics=likelihood,likelihood:factor=2,name=double")["epochs"][0]
        self.near([2 * epoch["likelihood"]], [epoch["double"]], 1e-6)
        kept = ("--checkpoint-dir=" + self.path("kept"), "--checkpoint-steps=2")
        self.train(self.classes, DATA, *own, "--steps=4", *kept)
        resumed = self.train(self.classes, DATA, *own, *kept, "--resume")
        self.assertEqual(resumed["resumed_from_step"], 4)
        self.assertEqual(resumed["losses"], twice["losses"])
        self.assertEqual(resumed["parameter_hashes"], twice["parameter_hashes"])

    def test_targets_of_another_shape(self):
        self.plugin("loss", "gauss", LOSS % """
            struct ls_op_attributes from = {0}; const int64_t one[2] = {LS_BATCH, 1};
            struct ls_tensor *mean = c->operation(c, LS_OP_SLICE, &from, &p, 1, 2, one); from.axes[1] = 1;
            struct ls_tensor *log_variance = c->operation(c, LS_OP_SLICE, &from, &p, 1, 2, one);
            struct ls_tensor *error = c->function(c, "square", ls_compose_subtract(c, t, mean));
            values[0] = ls_compose_add(c, log_variance, ls_compose_multiply(c, error, c->function(c, "exp", c->function(c, "negative", log_variance))));"""
            + """static int32_t shape(const struct ls_host *host, uint32_t *ndims, int64_t dims[LS_MAX_DIMS]) {
            if (dims[*ndims - 1] != 2) return ls_host_fail(host, LS_BAD_INPUT, "expected 2 units: mean and logarithm of the variance");
            dims[*ndims - 1] = 1; return LS_OK; }""", ".build = build, .target_shape = shape")
        data = "--dataset=synthetic:shape=6,classes=0,outputs=1,examples=100"
        one = self.train(self.numbers, data, *STEPS, self.found, "--loss=gauss")
        two = self.train(self.numbers, data, *STEPS, self.found, "--loss=gauss", "--strategy=ring", "--replicas=2")
        self.assertLess(one["losses"][-1], one["losses"][0])
        self.near(one["losses"], two["losses"], 1e-5)
        self.refused(BAD_INPUT, "train", self.classes, data, self.found, "--loss=gauss", says=("expected 2 units",))

    def test_compile_config_names_them(self):
        config = {"optimizer": {"class_name": "SGD", "config": {"learning_rate": 0.1}},
                  "loss": {"module": "mine", "class_name": "entropy", "config": {"name": "entropy", "factor": 3.0, "reduction": "sum_over_batch_size"},
                           "registered_name": "mine>entropy"}, "metrics": ["accuracy", "likelihood"]}
        model = self.model(layer_json("Dense", {"units": 3, "activation": "softmax", "name": "last"}), name="compiled.json", compile_config=config)
        steps = ("--batch=30", "--steps=3", "--threads=1", "--validation=off")
        found = self.train(model, DATA, *steps, self.found)
        expected = self.train(self.classes, DATA, *steps, self.found, "--loss=entropy:factor=3", "--optimizer=sgd:learning_rate=0.1", "--metrics=accuracy,likelihood")
        self.assertEqual([found["losses"], found["loss"], sorted(found["epochs"][0])], [expected["losses"], "entropy:factor=3", sorted(expected["epochs"][0])])
        self.refused(BAD_INPUT, "train", model, DATA, *steps, "--metrics=none", says=("compile_config.loss", "--loss= overrides it"))

    def test_what_is_wrong_is_one_line(self):
        train = ("train", self.classes, DATA, *STEPS, self.found)
        self.refused(USAGE, *train, "--loss=entropie", says=("'entropie'", "loss-entropie.so could provide it; there is none in " + self.path("plugins")))
        self.refused(USAGE, *train, "--metrics=distanz", says=("'distanz'", "metric-distanz.so could provide it"))
        self.refused(USAGE, *train, "--loss=entropy:faktor=2", says=("did you mean factor",))
        self.refused(USAGE, *train, "--metrics=distance", says=("distance needs a target for each prediction",))
        self.refused(BAD_INPUT, *train, "--loss=" + self.path("plugins/no.so"), says=("no.so",))
        self.refused(UNAVAILABLE, *train, "--loss=" + self.path("plugins/metric-distance.so"), says=("is a metric, not a loss",))
        self.refused(USAGE, *train, "--metrics=likelihood,likelihood", says=("given twice",))
        self.plugin("loss", "constant", LOSS % "values[0] = c->function(c, \"square\", t); (void)p;")
        self.refused(BAD_INPUT, "train", self.numbers, "--dataset=synthetic:shape=6,classes=0,outputs=2,examples=100", *STEPS, self.found, "--loss=constant",
                     says=("the loss does not depend on variable",))

    def test_plugins_lists_them(self):
        out = self.lockstep("plugins", self.found).out
        for kind, name in (("loss", "entropy"), ("metric", "distance")):
            self.assertRegex(out, rf"(?m)^{kind} +{name} +1 +available$")
        self.assertRegex(self.lockstep("plugins", self.found, "entropy").out, r"(?s)loss 'entropy' 1: of a test.*factor \(number, default 1\).*targets: +classes")

    def test_compare_holds_strategies_against_one_device(self):
        self.plugin("layer", "OwnDense", DENSE, options=DENSE_OPTIONS)
        self.plugin("dataset", "bytes", DATASET % "", DATASET_TABLE, DATASET_OPTIONS)
        model = self.model(layer_json("OwnDense", {"units": 3, "activation": "softmax", "name": "last"}))
        outcome = self.lockstep("compare", model, "--dataset=bytes", self.found, "--loss=entropy", "--strategies=one-device,ring", "--replicas=2", "--batch=30",
                                "--steps=3", UNTIMED, "--report=" + self.path("compare.json"))
        self.assertEqual(outcome.code, DONE, outcome.out + outcome.err)


CALLBACK = """struct ls_callback { const struct ls_host *host; };
static enum ls_status say(void *context, const char *what) {
    const struct ls_host *host = ((struct ls_callback *)context)->host; host->log(host, LS_LOG_WARN, what); return LS_OK; }
static enum ls_status on_test_end(void *context, const struct ls_fit_state *state) { (void)state; return say(context, "has tested"); }
static enum ls_status on_predict_end(void *context, const struct ls_fit_state *state) { (void)state; return say(context, "has predicted"); }
static int32_t open_it(const struct ls_host *host, const struct ls_fit_calls *calls, struct ls_callback *callback, struct ls_callbacks *out) {
    (void)calls; callback->host = host; out->on_test_end = on_test_end; out->on_predict_end = on_predict_end; return LS_OK; }"""


class Callbacks(OwnTest):
    def test_evaluate_and_predict_tell_them(self):
        self.plugin("callback", "listener", CALLBACK, ".state_bytes = sizeof(struct ls_callback), .open = open_it")
        for command, says in (("evaluate", "has tested"), ("predict", "has predicted")):
            out = ("--out=" + self.path("p.csv"),) if command == "predict" else ()
            outcome = self.lockstep(command, "--model=mlp", "--dataset=synthetic:examples=100", self.found, "--callback=listener", "--callback=csv_logger", *out)
            self.assertEqual(outcome.code, DONE, outcome.err)
            self.assertIn("listener: " + says, outcome.err)
            self.assertIn(f"warning: --callback: csv_logger has nothing to do in a{'n evaluation' if out == () else ' prediction'}", outcome.err)
            self.refused(UNAVAILABLE, command, "--model=mlp", "--dataset=synthetic:examples=100", "--callback=listner", self.found, *out, says=("listner",))


class Datasets(OwnTest):
    def setUp(self):
        super().setUp()
        self.classes = self.model(layer_json("Dense", {"units": 3, "activation": "softmax", "name": "last"}))
        self.steps = (self.classes, "--batch=30", "--epochs=3", "--threads=1", self.found)

    def bytes(self, code=""):
        return self.plugin("dataset", "bytes", DATASET % code, DATASET_TABLE, DATASET_OPTIONS)

    def test_examples_options_and_strategies(self):
        path = self.bytes()
        one = self.train(*self.steps, "--dataset=bytes")
        self.assertEqual([epoch["examples"] for epoch in one["epochs"]], [90] * 3)
        self.assertIn("val_loss", one["epochs"][0])
        self.assertEqual(one["losses"], self.train(*self.steps, "--dataset=" + path)["losses"])
        self.assertEqual(one["losses"], self.train(*self.steps, "--dataset=bytes:cache=memory")["losses"])
        self.near(one["losses"], self.train(*self.steps, "--dataset=bytes", "--strategy=ring", "--replicas=2")["losses"], 1e-5)
        self.assertEqual(one["losses"], self.train(*self.steps, "--dataset=bytes:identity=7,cache=" + self.path("cache"))["losses"])
        self.assertTrue(os.path.exists(self.path("cache.train")))
        self.assertEqual(one["losses"], self.train(*self.steps, "--dataset=bytes:identity=7,cache=" + self.path("cache"))["losses"])
        few = self.train(*self.steps, "--dataset=bytes:examples=60,skip=10,validation_split=0.2,repeat=2")
        self.assertEqual([epoch["examples"] for epoch in few["epochs"]], [80] * 3)
        predicted = self.lockstep("predict", self.classes, self.found, "--dataset=bytes", "--split=test", "--out=" + self.path("p.csv"))
        self.assertEqual(predicted.code, DONE, predicted.err)
        with open(self.path("p.csv"), encoding="utf-8") as file:
            self.assertEqual(len(file.readlines()), 1 + 22)

    def test_what_is_wrong_is_one_line(self):
        self.bytes('if (example == 5) return ls_host_fail(state->host, LS_BAD_INPUT, "the file ends");')
        self.refused(BAD_INPUT, "train", *self.steps, "--quiet", "--dataset=bytes", says=("bytes: example 5: the file ends",))
        self.bytes("if (example == 7) *(int32_t *)fields[1] = 3;")
        self.refused(BAD_INPUT, "train", *self.steps, "--quiet", "--dataset=bytes", says=("bytes: example 7 has the label 3; the classes are 0 to 2",))
        self.bytes()
        self.refused(USAGE, "train", *self.steps, "--dataset=bytes:exampels=3", says=("did you mean examples",))
        for given, says in (("t.csv", "'t.csv' is a file; it is read by --dataset=csv:file=t.csv,label=COLUMN"),
                            (self.path("t.csv"), f"it is read by --dataset=csv:file={self.path('t.csv')},"), (self.path("."), "is a folder"), ("csv:t.csv", "did you mean csv:file=t.csv?"),
                            ("images:photos", "did you mean images:dir=photos?")):
            self.refused(USAGE, "train", *self.steps, "--dataset=" + given, says=(says,))
        self.refused(USAGE, "train", *self.steps, "--dataset=bites", says=("unknown dataset bites", "dataset-NAME.so"))
        self.refused(USAGE, "train", *self.steps, "--dataset=bytes:cache=" + self.path("cache"), says=("identity", "cache=memory"))
        self.refused(BAD_INPUT, "train", *self.steps, "--dataset=bytes:examples=0", says=("plugin dataset-bytes describes 0 examples",))
        self.refused(BAD_INPUT, "train", *self.steps, "--dataset=bytes:examples=99999999999", says=("describes 99999999999 examples",))
        source = DATASET % ""
        for old, new, says in ((".dims = {6}", ".dims = {-6}", "field 'x' with a dimension of -6"), ("LS_FIELD_INPUT", "LS_FIELD_TARGET", "0 inputs"),
                               ("LS_I32,", "LS_F32,", "field 'y' with classes"), ("LS_U8", "LS_F16", "field 'x' of type float16"), ('"x"', '""', "field 0 without a name"),
                               ("field_count = 2", "field_count = 12", "12 fields"), ("= 255", "= -1", "the divisor -1")):
            with self.subTest(says):
                self.assertIn(old, source)
                self.plugin("dataset", "bytes", source.replace(old, new, 1), DATASET_TABLE, DATASET_OPTIONS)
                self.refused(BAD_INPUT, "train", *self.steps, "--dataset=bytes", says=("plugin dataset-bytes describes", says))

    @unittest.skipUnless(SANITIZE == "none", "a sanitizer slows it down")
    def test_a_load_that_hangs_is_said(self):
        self.bytes("for (uint64_t begin = state->host->clock_ns(state->host); example == 40 && state->host->clock_ns(state->host) < begin + 2500000000;) continue;")
        outcome = self.lockstep("train", self.classes, "--batch=45", "--epochs=1", "--threads=1", self.found, "--quiet", "--dataset=bytes:limit=45", "--deadline=1",
                                "--validation=off")
        self.assertEqual(outcome.code, DONE, outcome.err)
        self.assertRegex(outcome.err, r"warning: data: no examples for 1.0 s: `load` of plugin dataset-bytes has not returned")


if __name__ == "__main__":
    main()
