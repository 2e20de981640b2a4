# SPDX-License-Identifier: Apache-2.0
"""`lockstep compare`: figures that are those of `train`, a row for what does not run, and nothing left behind."""
import json
import math
import os
import select
import shlex
import signal
import subprocess
import time

from support import (BAD_INPUT, DONE, FAILED, FASHION, INTERRUPTED, LOCKSTEP, UNAVAILABLE, UNTIMED, USAGE, Outcome, ProgramTest,
                     main, tensors, read_json, write_json)

SOURCE = os.environ["LOCKSTEP_SOURCE"]
COMPILER = shlex.split(os.environ["LOCKSTEP_COMPILER"])
SANITIZE = os.environ.get("LOCKSTEP_SANITIZE", "none")
SGD = "--optimizer=sgd:learning_rate=0.01"
SMALL = ("--model=mlp", "--dataset=synthetic:examples=256", "--batch=32")
FIRST_TEN = 5e-6  # what rounding may do before it has grown
SPREADS = 10  # one difference by rounding tells the size of another, not its bound

# Keys of the report, which scripts and the page rely on.
ROOT_KEYS = {"lockstep", "made", "command", "status", "model", "dataset", "optimizer", "device", "hardware", "workers", "seed", "global_batch",
             "steps", "reproducible", "target", "reference", "simulated", "rounding_spread", "rounding_spread_first_two", "rounding_spread_first_ten", "rounding_spread_parameters",
             "rounding_spread_of",
             "runs", "comparisons", "reference_comparisons", "scaling", "verdict", "suggestions"}
RUN_KEYS = {"strategy", "workers", "replicas", "threads", "global_batch", "status", "reason", "synchronous", "way", "examples_per_second",
            "examples_per_second_low", "examples_per_second_high", "round_examples_per_second",
            "process_examples_per_second", "timed_steps", "step_seconds",
            "bytes_per_step_per_rank", "peak_rss_bytes", "replica_bytes", "final_loss", "final_accuracy", "val_loss", "val_accuracy",
            "max_loss_deviation", "max_loss_deviation_first_two", "max_loss_deviation_first_ten", "reference_shares", "max_parameter_deviation", "replicas_equal", "same_bits",
            "target_seconds", "target_examples", "simulated", "curve", "epochs", "buckets", "report"}
COMPARISON_KEYS = {"a", "b", "a_replicas", "b_replicas", "ratio", "low", "high", "p", "different"}
TIME_KEYS = {"median", "input", "compute", "communication", "exposed_communication", "update", "device", "other"}
POINT_KEYS = {"step", "examples", "seconds", "loss", "accuracy", "val_loss", "val_accuracy"}

# A strategy for one device that fails in its fourth step, in the way that an option says.
FAULTY = r"""
#include "core/plugin/strategy.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
struct ls_strategy { const struct ls_strategy_host *host; int steps; };
static const struct ls_strategy_host *the_host;
static const struct ls_plugin_option options[] = {
    {"fault", "one of: crash, exit, hang, slow, fail, early, late, later-crash, none", "none", "what happens"}, {NULL, NULL, NULL, NULL}};
static int is(const char *fault)
{
    const char *given = the_host->host->option(the_host->host, "fault");
    return given && !strcmp(given, fault);
}
static int32_t faulty_open(const struct ls_strategy_host *host, struct ls_strategy *s)
{
    s->host = the_host = host;
    if (is("early"))
        abort();
    return LS_OK;
}
static int32_t place(struct ls_strategy *s, uint32_t r) { (void)s; (void)r; return LS_OK; }
static int32_t ready(struct ls_strategy *s, uint32_t r, uint32_t b) { (void)s; (void)r; (void)b; return LS_OK; }
static int32_t end_step(struct ls_strategy *s, uint32_t r)
{
    if (++s->steps == 20) {
        if (is("later-crash"))
            abort();
        if (is("late")) {
            s->host->host->log(s->host->host, LS_LOG_ERROR, "the step is one too many");
            return LS_FAILED;
        }
    }
    if (s->steps == 4) {
        if (is("crash"))
            abort();
        if (is("exit"))
            exit(0);
        while (is("hang"))
            sleep(1);
        if (is("slow"))
            sleep(2);
        if (is("fail")) {
            s->host->host->log(s->host->host, LS_LOG_ERROR, "the fourth step is one too many");
            return LS_FAILED;
        }
    }
    int32_t status = s->host->step->check_step(s->host, r);
    for (uint32_t b = 0; !status && b < s->host->bucket_count; b++)
        status = s->host->step->update(s->host, r, b);
    return status;
}
static const struct ls_strategy_interface interface = {
    .struct_size = sizeof(interface), .maximum_replicas = 1, .state_bytes = sizeof(struct ls_strategy),
    .traits = {.struct_size = sizeof(interface.traits), .divisor = LS_DIVISOR_GLOBAL, .equality = LS_EQUAL_EVERY_STEP},
    .open = faulty_open, .initialize_parameters = place, .gradient_ready = ready, .end_step = end_step};
int32_t absent(char *reason, uint64_t bytes);
int32_t absent(char *reason, uint64_t bytes) { snprintf(reason, bytes, "the reason"); return LS_UNAVAILABLE; }
static const struct ls_plugin plugin = {LS_PLUGIN_HEADER(LS_KIND_STRATEGY), .name = "faulty", .version = "1",
    .licence = "Apache-2.0", .summary = "fails", .options = options, .interface = &interface};
LS_EXPORT const struct ls_plugin *lockstep_plugin(void);
LS_EXPORT const struct ls_plugin *lockstep_plugin(void) { return &plugin; }
"""


class CompareTest(ProgramTest):
    def setUp(self):
        super().setUp()
        # What a comparison leaves behind would be here.
        self.temporary = self.path("temporary")
        os.mkdir(self.temporary)
        self.environment = {"TMPDIR": self.temporary}

    def compare(self, *arguments, expect=DONE, **more):
        report, page = self.path("compare.json"), self.path("compare.html")
        for path in (report, page):
            if os.path.exists(path):
                os.unlink(path)
        outcome = self.lockstep("compare", "--report=" + report, "--html=" + page, *arguments, environment=self.environment, **more)
        self.assertEqual(outcome.code, expect, outcome.err)
        outcome.report = read_json(report)
        self.assertEqual(os.listdir(self.temporary), [])
        outcome.runs = {(run["strategy"], run["replicas"]): run for run in outcome.report["runs"]}
        return outcome

    def refuse(self, code, *arguments, says=()):
        outcome = self.refused(code, "compare", *arguments, says=says, environment=self.environment)
        self.assertEqual(outcome.out, "")
        self.assertEqual(os.listdir(self.temporary), [])

    def check_form(self, report):
        """Every key is there, also where nothing is known."""
        self.assertEqual(set(report), ROOT_KEYS)
        for run in report["runs"]:
            self.assertEqual(set(run), RUN_KEYS)
            self.assertEqual(set(run["step_seconds"]), TIME_KEYS)
            for point in run["curve"]:
                self.assertEqual(set(point), POINT_KEYS)
            self.assertLessEqual(len(run["curve"]), 410)
            self.assertIn(run["status"], ("done", "unavailable", "failed", "interrupted"))
            self.assertEqual(run["reason"] is None, run["status"] in ("done", "interrupted"))
        for pair in report["comparisons"]:
            self.assertEqual(set(pair), COMPARISON_KEYS | (set() if pair["different"] else {"needed_steps"}))

    def plugin(self, name="faulty", fault="none", probe=None):
        folder = self.path("plugins")
        os.mkdir(folder)
        text, path = os.path.join(folder, "faulty.c"), os.path.join(folder, f"strategy-{name}.so")
        with open(text, "w") as file:
            file.write(FAULTY.replace('"faulty"', f'"{name}"').replace('"none", "what happens"', f'"{fault}", "what happens"')
                       .replace(".summary", ".probe = absent, .summary" if probe else ".summary")
                       .replace("the reason", probe or "the reason"))
        sanitize = [] if SANITIZE == "none" else ["-fsanitize=" + SANITIZE]
        subprocess.run([*COMPILER, "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-I",
                        SOURCE, "-o", path, text, *sanitize], check=True)
        os.chmod(path, 0o755)
        return "--plugin-path=" + folder


class Truth(CompareTest):
    def setUp(self):
        super().setUp()
        self.need(FASHION + "/train-images-idx3-ubyte.gz")

    def test_every_strategy_is_held_against_one_device(self):
        strategies = ["one-device", "ring", "hierarchical-copy", "central-storage", "parameter-server:mode=sync",
                      "parameter-server:mode=async"]
        outcome = self.compare("--model=cnn", "--dataset=fashion-mnist:limit=3000", SGD, "--strategies=" + ",".join(strategies),
                               "--replicas=2", "--steps=24", UNTIMED)
        report, runs = outcome.report, outcome.report["runs"]
        self.check_form(report)
        self.assertEqual([run["strategy"] for run in runs], strategies)
        self.assertEqual([run["replicas"] for run in runs], [1, 2, 2, 2, 2, 2])
        self.assertEqual(report["reference"], 0)
        self.assertEqual((report["status"], report["steps"], report["global_batch"]), ("done", 24, 128))
        self.assertLessEqual(report["rounding_spread_first_ten"], FIRST_TEN)
        self.assertGreater(report["rounding_spread"], 0)
        for run in runs:
            with self.subTest(run["strategy"]):
                self.assertEqual(run["status"], "done")
                self.assertTrue(run["replicas_equal"])
                self.assertEqual(run["synchronous"], run["strategy"] != "parameter-server:mode=async")
                self.assertEqual(len(run["report"]["losses"]), 24)
                self.assertEqual(run["curve"][-1]["examples"], 24 * 128 - 72)  # the epoch ends with a smaller batch
                self.assertEqual(run["curve"][-1]["val_accuracy"], run["val_accuracy"])
                self.assertLessEqual(run["examples_per_second_low"], run["examples_per_second_high"])
                self.assertEqual(run["buckets"], run["report"]["communication"]["buckets"])
                if run["synchronous"]:
                    self.assertLessEqual(run["max_loss_deviation_first_ten"], FIRST_TEN)
                    self.assertLessEqual(run["max_loss_deviation"], max(FIRST_TEN, SPREADS * report["rounding_spread"]))
                else:
                    self.assertGreater(run["max_loss_deviation"], FIRST_TEN)
        self.assertEqual(runs[0]["max_loss_deviation"], 0)
        self.assertEqual(runs[0]["max_parameter_deviation"], 0)
        for text in ("one-device (reference)", "rounding spread", "asynchronous", "Verdict", "What to try", "equally correct"):
            self.assertIn(text, outcome.out)
        for strategy in strategies:
            self.assertIn("\n" + strategy + " ", outcome.out)
        with open(self.path("compare.html")) as file:
            self.assertIn("hierarchical-copy", file.read())

    def test_a_run_is_what_train_does(self):
        setting = ("--model=cnn", "--dataset=fashion-mnist:limit=1000", SGD, "--threads=1", "--batch=100", "--epochs=2")
        report = self.compare(*setting, "--strategies=ring,tree", "--replicas=2", "--round-steps=3", UNTIMED).report
        self.assertEqual([run["strategy"] for run in report["runs"]], ["one-device", "ring", "tree"])
        weights = self.path("weights.safetensors")
        for run, replicas in zip(report["runs"], (1, 2, 2)):
            train = self.train(*setting, "--strategy=" + run["strategy"], f"--replicas={replicas}", "--save-weights=" + weights)
            self.assertEqual(run["report"]["losses"], train["losses"])
            self.assertEqual(run["report"]["parameter_hashes"], train["parameter_hashes"])
            self.assertEqual([epoch["val_accuracy"] for epoch in run["epochs"]],
                             [epoch["val_accuracy"] for epoch in train["epochs"]])
        truth = [tensor for _, values in sorted(tensors(weights).items()) for tensor in values[1]]
        self.train(*setting, "--strategy=one-device", "--save-weights=" + weights)
        reference = [tensor for _, values in sorted(tensors(weights).items()) for tensor in values[1]]
        off = max(abs(a - b) for a, b in zip(truth, reference))
        self.assertTrue(math.isclose(report["runs"][2]["max_parameter_deviation"], off, rel_tol=1e-6, abs_tol=1e-12))
        losses, base = report["runs"][2]["report"]["losses"], report["runs"][0]["report"]["losses"]
        off = max(abs(a - b) / abs(b) for a, b in zip(losses, base))
        # Losses are written with nine digits.
        self.assertTrue(math.isclose(report["runs"][2]["max_loss_deviation"], off, rel_tol=1e-3, abs_tol=5e-9))

    def test_time_to_a_target(self):
        setting = ("--model=mlp", "--dataset=fashion-mnist:limit=6000", "--strategies=one-device,ring", "--epochs=2")
        for metric, value in (("val_accuracy", 0.6), ("accuracy", 0.6), ("val_loss", 1.0), ("loss", 1.0)):
            with self.subTest(metric):
                report = self.compare(*setting, f"--target={metric}:{value}", UNTIMED).report
                self.assertEqual(report["target"], {"metric": metric, "value": value})
                for run in report["runs"]:
                    self.assertGreater(run["target_seconds"], 0)
                    if metric.startswith("val"):
                        self.assertEqual(run["target_examples"] % 6000, 0)
                self.assertTrue(any("was the first at " + metric in sentence for sentence in report["verdict"]))
        report = self.compare(*setting, "--target=val_accuracy:0.999", UNTIMED).report
        self.assertIsNone(report["runs"][0]["target_seconds"])
        self.assertTrue(any("None reached val_accuracy 0.999" in sentence for sentence in report["verdict"]))

    def test_several_counts_of_replicas(self):
        outcome = self.compare("--model=mlp", "--dataset=fashion-mnist:limit=2000", "--strategies=one-device,ring,tree",
                               "--replicas=1,2,4", "--steps=16", UNTIMED)
        report = outcome.report
        self.check_form(report)
        self.assertEqual(set(outcome.runs), {("one-device", 1)} | {(name, count) for name in ("ring", "tree") for count in (1, 2, 4)})
        self.assertEqual(report["global_batch"], 256)
        self.assertEqual(len({run["threads"] for run in report["runs"]}), 1)  # a replica is the same at every count
        scaling = {row["strategy"]: [point["replicas"] for point in row["points"]] for row in report["scaling"]}
        self.assertEqual(scaling, {"one-device": [1], "ring": [1, 2, 4], "tree": [1, 2, 4]})
        for run in report["runs"]:
            self.assertEqual(run["global_batch"], 256)
            self.assertIsNotNone(run["max_loss_deviation"])

    def test_with_logical_shards_every_bit_counts(self):
        outcome = self.compare(*SMALL, "--reproducible=4", "--strategies=ring,tree,sharded,central-storage,parameter-server:mode=sync", "--replicas=1,3",
                               "--steps=8", UNTIMED)
        self.check_form(outcome.report)
        self.assertEqual((outcome.report["reproducible"], outcome.report["rounding_spread"]), (4, None))
        for run in outcome.report["runs"]:
            self.assertEqual((run["threads"], run["same_bits"], run["max_loss_deviation"], run["max_parameter_deviation"]), (1, True, 0, 0),
                             run["strategy"])
        self.assertEqual(len({json.dumps(run["report"]["losses"]) for run in outcome.report["runs"]}), 1)
        trained = self.train(*SMALL, "--reproducible=4", "--strategy=ring", "--replicas=2", "--steps=8")
        self.assertEqual(outcome.runs["tree", 3]["report"]["losses"], trained["losses"])
        self.assertRegex(outcome.out, r"\ntree +3 .* same\n")
        self.assertIn("have the bits of one device", " ".join(outcome.out.split()))
        self.assertIn("--reproducible=4 ", outcome.out)  # of the command that trains so
        self.assertNotIn("rounding", outcome.out)
        with open(self.path("compare.html"), encoding="utf-8") as file:
            self.assertRegex(page := file.read(), "same bits")
        self.assertNotIn("rounding spread", page.lower())
        self.assertEqual(self.compare(*SMALL, "--reproducible=off", "--strategies=ring", "--steps=2", UNTIMED).runs["ring", 2]["same_bits"], None)

    def test_what_has_no_bits_of_its_own_is_refused_where_it_is_named(self):
        setting = (*SMALL, "--reproducible", "--steps=2", UNTIMED)
        for arguments, says in ((("--strategies=ring,parameter-server",), ("--strategies: parameter-server: --reproducible", "steps of their own")),
                                (("--strategies=ring", "--replicas=9"), ("8 logical shards are too few for 9 replicas",)),
                                (("--strategies=ring", "--wire=bfloat16"), ("--reproducible: --wire",))):
            self.refuse(USAGE, *setting, *arguments, says=says)
        self.refuse(USAGE, "--model=mlp", "--dataset=synthetic:examples=50", "--strategies=ring", "--reproducible", "--replica-batch=8",
                    says=("--reproducible: --replica-batch", "use --batch"))
        runs = self.compare(*setting).runs  # of the usual list one cannot
        self.assertIn("steps of their own", runs["parameter-server", 2]["reason"])
        self.assertEqual([run["same_bits"] for run in runs.values()], [True, True, True, True, None])

    def test_a_batch_that_grows_is_compared_where_it_is_the_same(self):
        outcome = self.compare("--model=mlp", "--dataset=fashion-mnist:limit=2000", "--strategies=ring", "--replicas=1,2",
                               "--replica-batch=32", "--steps=12", UNTIMED)
        self.assertEqual(outcome.report["global_batch"], 64)
        self.assertEqual(outcome.runs["ring", 1]["global_batch"], 32)
        self.assertIsNone(outcome.runs["ring", 1]["max_loss_deviation"])
        self.assertIsNone(outcome.runs["ring", 1]["max_parameter_deviation"])
        self.assertLessEqual(outcome.runs["ring", 2]["max_loss_deviation_first_ten"], FIRST_TEN)
        self.assertIn("another global batch", outcome.out)


class Statistics(CompareTest):
    """Models that normalize by statistics of the batch: the reference takes the same shares."""

    def write_model(self, first, second):
        layers = [("InputLayer", {"batch_shape": [None, 6, 6, 2]}),
                  ("Conv2D", {"filters": 4, "kernel_size": [3, 3]}),
                  ("BatchNormalization", {"synchronized": first, "momentum": 0.8}),
                  ("Activation", {"activation": "relu"}), ("Dropout", {"rate": 0.2}), ("Flatten", {}),
                  ("Dense", {"units": 8}), ("BatchNormalization", {"synchronized": second}),
                  ("Dense", {"units": 10})]
        write_json(self.path("model.json"), {"class_name": "Sequential", "config": {"name": "m", "layers": [
            {"class_name": name, "config": {"name": f"l{i}", **config}} for i, (name, config) in enumerate(layers)]}})

    def compare_model(self, first, second, *arguments):
        self.write_model(first, second)
        outcome = self.compare("--model=" + self.path("model.json"), "--dataset=synthetic:shape=6x6x2,examples=100",
                               "--optimizer=sgd:learning_rate=0.05,momentum=0.9", "--batch=31", "--steps=16", UNTIMED,
                               "--validation=off", *arguments)
        self.check_form(outcome.report)
        return outcome

    def test_replicas_with_statistics_of_their_own_are_held_against_the_same_shares(self):
        wrong = [f"wrong:fault={fault}" for fault in ("scaled", "forgotten")]
        # Batches of 31 and 7 have uneven shares; for three replicas they are added in several orders.
        outcome = self.compare_model(False, False, "--replicas=1,2,3", "--plugin-path=" + os.environ["LOCKSTEP_FAULTS"],
                                     "--strategies=" + ",".join(["one-device", "ring", "central-storage", "wrong", *wrong]))
        report, verdict = outcome.report, outcome.report["verdict"]
        self.assertEqual(report["rounding_spread_of"], "one device, the same shares, the learning rate off by a last bit")
        self.assertGreater(report["rounding_spread"], 0)
        self.assertLessEqual(report["rounding_spread_first_two"], FIRST_TEN / SPREADS)
        for (strategy, replicas), run in outcome.runs.items():
            with self.subTest(strategy=strategy, replicas=replicas):
                self.assertEqual(run["status"], "done")
                self.assertEqual(run["reference_shares"], replicas)
                self.assertTrue(run["replicas_equal"])
                name = f"{strategy} with {replicas} replica{'s' * (replicas > 1)}"
                off = any(sentence.startswith(name + " differs from one device that takes the same shares")
                          for sentence in verdict)
                self.assertEqual(off, strategy in wrong, verdict)
                if strategy in wrong:
                    self.assertGreater(run["max_loss_deviation_first_two"], FIRST_TEN)
                elif replicas < 3:  # two gradients have one sum; moving statistics are among the parameters
                    self.assertEqual((run["max_loss_deviation"], run["max_parameter_deviation"]), (0, 0))
                else:
                    self.assertLessEqual(run["max_loss_deviation_first_two"], FIRST_TEN)
        one, two = outcome.runs["one-device", 1], outcome.runs["ring", 2]
        self.assertGreater(abs(one["final_loss"] - two["final_loss"]), 1e-4)  # they are other functions
        self.assertIn("one device with the same shares, twice", outcome.out)
        self.assertIn("first two", outcome.out)
        with open(self.path("compare.html")) as file:
            self.assertIn("Losses of the first two steps", file.read())

    def test_synchronized_statistics_are_those_of_whole_batches(self):
        """Not in halves, which have others; asynchronous servers are none for such a model."""
        outcome = self.compare_model(True, True)
        report = outcome.report
        self.assertEqual(report["rounding_spread_of"], "one device, the initial weights off by their last bits")
        self.assertLessEqual(report["rounding_spread_first_ten"], 1e-4)
        refused = outcome.runs["parameter-server", 2]
        self.assertEqual(refused["status"], "unavailable")
        self.assertIn("parameter-server:mode=sync", refused["reason"])
        for strategy in ("ring", "hierarchical-copy", "central-storage"):
            self.assertEqual(outcome.runs[strategy, 2]["reference_shares"], 1)
        self.assertTrue(any("hierarchical-copy and central-storage are equally correct" in sentence for sentence in report["verdict"]),
                        report["verdict"])
        self.refuse(USAGE, "--model=" + self.path("model.json"), "--dataset=synthetic:shape=6x6x2,examples=100", "--steps=2",
                    "--strategies=ring,parameter-server", says=("parameter-server", "synchronized"))
        self.refuse(USAGE, "--model=" + self.path("model.json"), "--dataset=synthetic:shape=6x6x2,classes=10,examples=200", "--strategies=ring",
                    "--reproducible=2", says=("the reference is one device, which cannot have these shards; leave --reproducible out",))

    def test_sixteen_bits_are_judged_by_what_they_round(self):
        """In the model and on the wire, with halves and with shares: right strategies are right, wrong ones are not."""
        wrong = "wrong:fault=forgotten"
        self.write_model(False, False)
        for model, options in (("mlp", ("--precision=mixed_float16", "--loss-scale=dynamic:initial_scale=1024")),
                               ("mlp", ("--wire=bfloat16",)),
                               (self.path("model.json"), ("--precision=mixed_bfloat16", "--wire=float16"))):
            with self.subTest(model=model, options=options):
                shape = "" if model == "mlp" else "shape=6x6x2,"
                outcome = self.compare("--model=" + model, f"--dataset=synthetic:{shape}examples=100", "--replicas=3",
                                       "--optimizer=sgd:learning_rate=0.05,momentum=0.9", "--batch=31", "--steps=12", UNTIMED,
                                       "--strategies=ring,tree," + wrong, "--validation=off",
                                       "--plugin-path=" + os.environ["LOCKSTEP_FAULTS"], *options)
                self.check_form(outcome.report)
                report, verdict = outcome.runs["ring", 3]["report"], outcome.report["verdict"]
                self.assertEqual(report["wire"], options[-1][7:] if options[-1].startswith("--wire") else "float32")
                self.assertEqual(outcome.report["rounding_spread_of"], "one device, "
                                 + ("each batch in two halves" if model == "mlp" else "the same shares")
                                 + ", the learning rate off by a rounding to "
                                 + ("bfloat16" if "bfloat16" in str(options) else "float16"))
                self.assertTrue(any(sentence.startswith("ring and tree are equally correct") for sentence in verdict), verdict)
                self.assertTrue(any(sentence.startswith(wrong + " differs") for sentence in verdict), verdict)

    def test_a_strategy_without_a_wire_is_refused_where_it_is_named(self):
        self.refuse(USAGE, *SMALL, "--steps=2", "--strategies=central-storage", "--wire=float16",
                    says=("--strategies: central-storage: --wire: float16: strategy 'central-storage' sends no gradients",))
        self.refuse(USAGE, *SMALL, "--steps=2", "--wire=int8", says=("--wire: 'int8': expected float32, bfloat16 or float16",))
        self.refuse(USAGE, *SMALL, "--steps=2", "--precision=half", says=("--precision", "'half'"))

    def test_what_no_single_device_computes_is_not_judged(self):
        outcome = self.compare_model(True, False, "--strategies=ring")
        self.assertIsNone(outcome.runs["ring", 2]["max_loss_deviation"])
        self.assertIsNone(outcome.runs["ring", 2]["reference_shares"])
        self.assertIsNone(outcome.report["rounding_spread"])
        self.assertTrue(any("ring was not compared with one device" in sentence for sentence in outcome.report["verdict"]))


class Elsewhere(CompareTest):
    """Runs that make other updates than one device, and what all of them would take on a network that is not here."""

    # 2 ms a message, a megabyte a second, and what a rank adds costs nothing.
    LATENCY, BANDWIDTH = 2e-3, 1e6
    SETTING = ("--dataset=synthetic:examples=256", "--batch=16", "--replicas=2", "--threads=1", "--validation=off", UNTIMED)

    def network(self):
        path = self.path("network.json")
        write_json(path, {"name": "by-hand", "about": "a test", "sources": ["none"], "topology": "flat",
                   "latency_us": self.LATENCY * 1e6, "bandwidth_gb_s": self.BANDWIDTH / 1e9, "reduction_gb_s": 1e6})
        return path

    def simulated(self, exchange):
        """What `lockstep simulate` says of an exchange of a timeline."""
        path = self.path("rows.json")
        size = exchange["bytes"] // exchange["elements"]
        outcome = self.lockstep("simulate", exchange["algorithm"], "--world=2", f"--bytes={exchange['bytes']}",
                                "--operation=" + exchange["operation"].replace("-", "_"), "--network=" + self.network(),
                                "--dtype=" + {1: "uint8", 4: "float32"}[size], "--json=" + path)
        self.assertEqual(outcome.code, DONE, outcome.err)
        row, = read_json(path)["rows"]
        self.assertEqual(row["bytes"], exchange["bytes"])
        return row["seconds"]

    def exchanges(self, model, steps, *arguments):
        """Those that rank 0 begins in the steps of a timeline, one after the other."""
        path = self.path("timeline.json")
        self.train("--model=" + model, *self.SETTING[:5], f"--timeline={path}", f"--timeline-steps=5:{4 + steps}", "--steps=12", *arguments)
        events = read_json(path)["traceEvents"]
        return [event["args"] for event in events if event["ph"] == "X" and event["pid"] == 2 and event["cat"] == "communication"
                and "operation" in event["args"] and not event["name"].startswith("wait for ")]

    def test_a_step_there_is_added_up_from_work_and_simulated_exchanges(self):
        strategies = ["ring", "ring+int8", "local-sgd:steps=4", "central-storage"]
        outcome = self.compare("--model=linear", *self.SETTING, "--steps=12", "--strategies=" + ",".join(strategies),
                               "--simulate-network=" + self.network())
        self.check_form(outcome.report)
        self.assertEqual(outcome.report["simulated"]["network"], "by-hand")
        self.assertEqual(outcome.report["simulated"]["compute"], "compute as measured on this CPU")
        ring, int8, rounds, central = (outcome.runs[strategy, 2]["simulated"] for strategy in strategies)
        # By hand: one bucket in two chunks of whole blocks of 64 floats, which travel twice, both ways at once.
        size, = (bucket["bytes"] for bucket in outcome.runs["ring", 2]["buckets"])
        larger = 4 * 64 * math.ceil(size / 4 / 64 / 2)
        self.assertTrue(math.isclose(ring["exchange_seconds"], 2 * (self.LATENCY + larger / self.BANDWIDTH), rel_tol=1e-6))
        for run, steps, count, arguments in ((ring, 1, 1, ("--strategy=ring",)), (int8, 1, 3, ("--strategy=ring", "--compress=int8")),
                                             (rounds, 4, 5, ("--strategy=local-sgd:steps=4",))):
            with self.subTest(arguments):
                begun = self.exchanges("linear", steps, *arguments)
                self.assertEqual(len(begun), count)
                self.assertTrue(math.isclose(run["exchange_seconds"], sum(map(self.simulated, begun)) / steps, rel_tol=1e-6))
                self.assertGreaterEqual(run["step_seconds"], max(run["exchange_seconds"], run["work_seconds"]))
                self.assertLessEqual(run["step_seconds"], 1.000001 * (run["exchange_seconds"] + run["work_seconds"]))
                self.assertEqual(run["recorded_steps"], 12)
                self.assertTrue(math.isclose(run["goal_seconds"], run["goal_step"] * run["step_seconds"], rel_tol=1e-6))
        self.assertIsNone(central["step_seconds"])
        self.assertIn("no collective that describes a schedule", central["reason"])
        one = outcome.runs["one-device", 1]["simulated"]
        self.assertEqual((one["exchange_seconds"], one["step_seconds"]), (0, one["work_seconds"]))
        for text in ("On by-hand, ms", "Simulated, compute as measured on this CPU", "not simulated: it uses no collective"):
            self.assertIn(text, outcome.out)
        with open(self.path("compare.html")) as file:
            page = file.read()
        for text in ("compute as measured on this CPU", "was not simulated", "Training loss against simulated time"):
            self.assertIn(text, page)

    def test_its_machines_compute_as_fast_as_they_are_said_to(self):
        fast, slow = (self.compare("--model=linear", *self.SETTING, "--steps=8", "--strategies=ring", "--simulate-network=" + self.network(),
                                   "--target=loss:1e-9", option) for option in ("--compute-scale=1e6", "--step-seconds=2"))
        run = fast.runs["ring", 2]["simulated"]
        self.assertTrue(math.isclose(run["step_seconds"], run["exchange_seconds"], rel_tol=1e-2))
        self.assertEqual(fast.report["simulated"]["compute_scale"], 1e6)
        self.assertIsNone(run["goal_seconds"])  # of a target that is never reached
        self.assertIn("no run over several ranks reaches loss 1e-09", " ".join(fast.report["verdict"]))
        run = slow.runs["ring", 2]["simulated"]
        self.assertGreaterEqual(run["work_seconds"], 2)
        self.assertGreaterEqual(run["step_seconds"], run["work_seconds"])
        self.assertIn("forward and backward in 2 s", slow.out)

    def test_steps_before_a_filter_begins_take_what_they_send(self):
        late, rounds = "ring+powersgd:rank=1,start=4", "local-sgd:steps=2+powersgd:rank=1,start=3"
        outcome = self.compare("--model=mlp", *self.SETTING, "--steps=12", f"--strategies=ring,{late},{rounds}",
                               "--simulate-network=" + self.network(), "--compute-scale=1e6")
        ring = outcome.runs["ring", 2]["simulated"]
        for name, steps, arguments in ((late, 1, ("--strategy=ring", "--compress=powersgd:rank=1,start=4")),
                                       (rounds, 2, ("--strategy=local-sgd:steps=2", "--compress=powersgd:rank=1,start=3"))):
            with self.subTest(name):
                run, begun = outcome.runs[name, 2]["simulated"], self.exchanges("mlp", steps, *arguments)
                self.assertTrue(math.isclose(run["exchange_seconds"], sum(map(self.simulated, begun)) / steps, rel_tol=1e-6))
                self.assertLess(run["step_seconds"], 0.1 * ring["step_seconds"])
                self.assertEqual(run["unfiltered_steps"], 4 if name == late else 0)  # three steps are less than two rounds
                unfiltered = min(run["goal_step"], run["unfiltered_steps"])
                self.assertTrue(math.isclose(run["goal_seconds"], unfiltered * (run["unfiltered_step_seconds"] or 0) +
                                             (run["goal_step"] - unfiltered) * run["step_seconds"], rel_tol=1e-6))
        begun_late = outcome.runs[late, 2]["simulated"]
        self.assertTrue(math.isclose(begun_late["unfiltered_step_seconds"], ring["step_seconds"], rel_tol=1e-2))  # sends the same
        self.assertIn(f"Of {late}, the first 4 steps are not filtered and take ", outcome.out)

    def test_plain_ring_is_better_inside_a_node_and_diloco_over_the_internet(self):
        diloco = "diloco:steps=8,outer_momentum=0"
        for network, first, says in (("nvlink-ndr", "ring", "Sending less does not pay there: " + diloco),
                                     ("internet", diloco, "; ring, which computes what one device does, after ")):
            with self.subTest(network):
                outcome = self.compare("--model=mlp", "--dataset=synthetic:examples=2560", *self.SETTING[2:], "--batch=256", "--epochs=8",
                                       "--steps=64", "--optimizer=sgd:learning_rate=0.05", "--strategies=ring," + diloco,
                                       "--simulate-network=" + network)
                times = {name: outcome.runs[name, 2]["simulated"]["goal_seconds"] for name in ("ring", diloco)}
                self.assertEqual(min(times, key=times.get), first)
                sentence, = (text for text in outcome.report["verdict"] if text.startswith(f"On network {network} "))
                self.assertIn(first + " would reach a loss of ", sentence)
                self.assertIn(says, sentence)

    def test_filters_and_rounds_are_judged_by_what_they_reach(self):
        strategies = ["ring", "ring+int8", "ring+topk:fraction=0.1", "local-sgd:steps=4"]
        outcome = self.compare(*SMALL, "--replicas=2", "--steps=8", UNTIMED, "--strategies=" + ",".join(strategies))
        self.check_form(outcome.report)
        self.assertEqual([outcome.runs[strategy, 2]["way"] for strategy in strategies], ["plain", "filtered", "filtered", "rounds"])
        self.assertTrue(all(run["replicas_equal"] and run["synchronous"] and run["simulated"] is None for run in outcome.report["runs"]))
        sent = [outcome.runs[strategy, 2]["bytes_per_step_per_rank"] for strategy in strategies]
        self.assertTrue(sent[0] > 3 * sent[1] and sent[0] > 4 * sent[2] and sent[0] > 3 * sent[3], sent)
        verdict = outcome.report["verdict"]
        self.assertTrue(any(text.startswith("ring is as correct as one device") for text in verdict), verdict)
        for strategy in strategies[1:]:
            self.assertTrue(any(text.startswith(strategy + " ") and "it ended with a loss of" in text for text in verdict), verdict)
        train = self.train(*SMALL, "--replicas=2", "--threads=1", "--steps=8", "--strategy=ring", "--compress=topk:fraction=0.1")
        self.assertEqual(outcome.runs["ring+topk:fraction=0.1", 2]["report"]["parameter_hashes"], train["parameter_hashes"])

    def test_mistakes_are_refused_before_any_training(self):
        tiny = ("--model=linear", "--dataset=synthetic:examples=40", "--steps=2")
        for arguments, code, says in ((("--strategies=ring+int9",), USAGE, "no filter is called 'int9'"),
                                      (("--strategies=ring+",), USAGE, "no name given"),
                                      (("--strategies=ring+int8:nix=2",), USAGE, "int8 has no option nix"),
                                      (("--strategies=central-storage+int8",), USAGE, "--compress"),
                                      (("--simulate-network=intranet",), USAGE, "did you mean 'internet'"),
                                      (("--simulate-network=./none.json",), BAD_INPUT, "none.json"),
                                      (("--compute-scale=2",), USAGE, "--simulate-network"),
                                      (("--simulate-network=internet", "--compute-scale=0"), USAGE, "expected a number from 1e-09 to 1e+09"),
                                      (("--simulate-network=internet", "--step-seconds=nan"), USAGE, "--step-seconds=nan")):
            with self.subTest(arguments):
                self.refuse(code, *tiny, *(() if "strategies" in arguments[0] else ("--strategies=ring",)), *arguments, says=(says,))

    def test_what_was_not_seen_is_not_simulated(self):
        reasons = {"local-sgd:steps=4": "what it sends did not repeat in 8 steps; train more than two rounds",
                   "ring+powersgd:rank=1": "its filter begins after 1000 updates; 8 were recorded",
                   "local-sgd:steps=2+powersgd:rank=1": "its filter begins after 1000 updates; 8 were recorded"}
        outcome = self.compare("--model=linear", *self.SETTING, "--steps=8", "--strategies=ring," + ",".join(reasons),
                               "--simulate-network=" + self.network())
        for strategy, reason in reasons.items():
            run = outcome.runs[strategy, 2]["simulated"]
            self.assertIsNone(run["step_seconds"])
            self.assertEqual(run["reason"], reason)
        self.assertIn("ring+powersgd:rank=1 was not filtered in these steps: its filter begins after 1000 updates",
                      " ".join(outcome.report["verdict"]))

    def test_steps_are_recorded_though_many_messages_are_under_way(self):
        outcome = self.compare("--model=mlp", *self.SETTING[:2], "--replicas=4", *self.SETTING[3:], "--steps=12", "--strategies=tree", "--simulate-network=internet")
        self.assertEqual(outcome.runs["tree", 4]["simulated"]["recorded_steps"], 12)
        self.assertIsNotNone(outcome.runs["tree", 4]["simulated"]["step_seconds"])

    def test_where_each_run_has_one_replica_nothing_travels(self):
        outcome = self.compare("--model=linear", *self.SETTING[:2], "--replicas=1", *self.SETTING[3:], "--steps=4", "--strategies=ring",
                               "--simulate-network=internet")
        self.assertIn("nothing would travel, because each run has one replica; compare with --replicas=2.", " ".join(outcome.report["verdict"]))


class Speed(CompareTest):
    PROCESSES = 10

    def check_speeds(self, outcome, pairs):
        report = outcome.report
        self.check_form(report)
        self.assertEqual([(pair["a"], pair["b"]) for pair in report["comparisons"]], pairs)
        speeds = {run["strategy"]: run for run in report["runs"]}
        for run in report["runs"]:
            self.assertEqual(run["report"]["steps"], 8)
            self.assertGreaterEqual(len(run["round_examples_per_second"]), 2 * self.PROCESSES)
            self.assertGreaterEqual(run["timed_steps"], 3 * len(run["round_examples_per_second"]))
        for pair in report["comparisons"]:
            quotient = speeds[pair["a"]]["examples_per_second"] / speeds[pair["b"]]["examples_per_second"]
            self.assertTrue(math.isclose(pair["ratio"], quotient, rel_tol=1e-6))
            self.assertLess(pair["low"], pair["ratio"])
            self.assertGreater(pair["high"], pair["ratio"])
            self.assertEqual(pair["different"], pair["p"] <= 0.01)
        self.assertIn("of the training of 8 steps", " ".join(outcome.out.split()))
        return speeds

    def test_runs_are_timed_in_fresh_processes_and_more_steps_on_request(self):
        setting = (*SMALL, "--threads=1", "--steps=8", "--validation=off")
        outcome = self.compare(*setting, "--strategies=ring,mirrored")
        speeds = self.check_speeds(outcome, [("ring", "mirrored")])  # the reference is timed, too, but was not asked for
        self.assertEqual([len(run["process_examples_per_second"]) for run in speeds.values()], [self.PROCESSES] * 3)
        self.assertIn(f"mean (geometric) of {self.PROCESSES} processes of each run", outcome.out)
        more = min(run["timed_steps"] for run in speeds.values()) * 5 // 4
        outcome = self.compare(*setting, "--strategies=one-device,ring,mirrored", f"--speed-steps={more}")
        speeds = self.check_speeds(outcome, [("one-device", "ring"), ("one-device", "mirrored"), ("ring", "mirrored")])
        for run in speeds.values():
            self.assertGreaterEqual(run["timed_steps"], more)
            self.assertGreaterEqual(len(run["process_examples_per_second"]), self.PROCESSES)

    def test_none_are_timed_on_request(self):
        report = self.compare(*SMALL, "--strategies=ring,tree", "--steps=8", "--validation=off", UNTIMED).report
        self.assertEqual([run["timed_steps"] for run in report["runs"]], [0, 0, 0])
        [pair] = report["comparisons"]
        self.assertEqual((pair["p"], pair["different"], pair["needed_steps"]), (None, False, None))
        self.assertIn("The fastest is not known", report["verdict"][0])

    def test_processes_that_end_while_they_are_timed(self):
        """A failure within the steps that the run trains is one of the run; later it is said, and the run counts. A crash is
        always one of the run."""
        path = self.plugin()
        outcome = self.compare(*SMALL, "--threads=1", path, "--strategies=ring,faulty:fault=late,faulty:fault=later-crash", "--steps=8",
                               "--validation=off")
        self.assertEqual(outcome.runs["faulty:fault=late", 1]["status"], "done")
        self.assertIn("faulty:fault=late: its speed is not known from all processes: after more than 8 steps one ended with: "
                      "faulty: the step is one too many", outcome.err)
        self.assertEqual(outcome.err.count("one too many"), 1)
        self.assertIsNone(outcome.report["comparisons"][0]["p"])
        run = outcome.runs["faulty:fault=later-crash", 1]
        self.assertEqual(run["status"], "failed")
        if SANITIZE == "none":
            self.assertIn("plugin strategy-faulty crashed (SIGABRT) in `end_step`", run["reason"])


class Rows(CompareTest):
    def test_what_cannot_run_here_is_a_row(self):
        path = self.plugin("absent", probe="the moon is in the wrong place")
        outcome = self.compare(*SMALL, path, "--strategies=ring,absent", "--steps=8", "--validation=off", UNTIMED)
        self.check_form(outcome.report)
        self.assertEqual([run["status"] for run in outcome.report["runs"]], ["done", "done", "unavailable"])
        self.assertIn("the moon is in the wrong place", outcome.report["runs"][2]["reason"])
        self.assertIn("not available: ", outcome.out)
        for line in outcome.out.splitlines():
            if not line.startswith(("comparing ", "  lockstep train ")):
                self.assertLess(len(line), 120, line)
        self.assertTrue(any("absent could not run here" in sentence for sentence in outcome.report["verdict"]))
        self.assertEqual(len([line for line in outcome.err.splitlines() if "error" in line]), 0, outcome.err)

    def test_nothing_that_runs_is_a_failure(self):
        path = self.plugin("absent", probe="the moon is in the wrong place")
        outcome = self.compare(*SMALL, path, "--strategies=absent", "--steps=2", "--validation=off", UNTIMED, expect=UNAVAILABLE)
        self.assertEqual(outcome.report["status"], "failed")
        self.assertIn("no strategy could be trained", outcome.err)

    def test_a_process_that_fails_is_a_row(self):
        path = self.plugin()
        faults = {"crash": "crashed (SIGABRT) in `end_step`", "exit": "called exit(0)", "fail": "one too many", "early": "crashed (SIGABRT) in `open`"}
        items = ",".join("faulty:fault=" + fault for fault in faults)
        outcome = self.compare(*SMALL, path, "--strategies=ring,faulty," + items, "--steps=8", "--validation=off",
                               "--round-steps=2", UNTIMED)
        self.check_form(outcome.report)
        self.assertEqual(outcome.runs["ring", 2]["status"], "done")
        self.assertEqual(outcome.runs["faulty", 1]["status"], "done")
        self.assertEqual(outcome.runs["faulty", 1]["max_loss_deviation"], 0)
        for fault, reason in faults.items():
            run = outcome.runs["faulty:fault=" + fault, 1]
            self.assertEqual(run["status"], "failed")
            if SANITIZE == "none":
                self.assertIn(reason, run["reason"])

    def test_without_the_reference_nothing_is_called_correct(self):
        outcome = self.compare(*SMALL, self.plugin("one-device", "fail"), "--strategies=ring,tree", "--steps=8", "--validation=off", UNTIMED,
                               expect=FAILED)
        report = outcome.report
        self.check_form(report)
        self.assertEqual([run["status"] for run in report["runs"]], ["failed", "done", "done"])
        self.assertEqual(report["status"], "failed")
        self.assertIn("the reference failed, so that correctness could not be judged", outcome.err)
        self.assertTrue(any("Correctness could not be judged" in sentence for sentence in report["verdict"]))
        self.assertIsNone(report["rounding_spread"])
        for run in report["runs"]:
            self.assertIsNone(run["max_loss_deviation"])
            self.assertIsNone(run["max_parameter_deviation"])
        self.assertNotIn("0.0e+00", outcome.out)
        self.assertNotIn("as correct as", outcome.out)

    def test_a_process_that_hangs_is_a_row(self):
        if SANITIZE != "none":
            self.skipTest("seconds of patience, spent once without a sanitizer")
        path = self.plugin()
        outcome = self.compare(*SMALL, path, "--strategies=ring,faulty:fault=hang", "--steps=8", "--validation=off",
                               "--round-steps=2", "--deadline=2", UNTIMED)
        self.assertEqual(outcome.runs["ring", 2]["status"], "done")
        self.assertEqual(outcome.runs["faulty:fault=hang", 1]["status"], "failed")
        reason = outcome.runs["faulty:fault=hang", 1]["reason"]
        self.assertRegex(reason, r"`end_step` of plugin strategy-faulty has not returned.*--deadline")

    def test_a_short_deadline_ends_no_healthy_run(self):
        """It is for waiting for other replicas: preparing and computing may take longer."""
        outcome = self.compare(*SMALL, self.plugin(), "--strategies=faulty:fault=slow", "--steps=4", "--validation=off", UNTIMED,
                               "--deadline=0.02")
        run = outcome.runs["faulty:fault=slow", 1]
        self.assertEqual(run["status"], "done", run["reason"])

    def test_a_loss_that_is_not_finite_is_said(self):
        outcome = self.compare(*SMALL, "--optimizer=sgd:learning_rate=1e30", "--strategies=ring", "--steps=8", UNTIMED,
                               "--validation=off", expect=FAILED)
        for run in outcome.report["runs"]:
            self.assertEqual(run["status"], "failed")
            self.assertIn("not finite", run["reason"])
            self.assertIsNone(run["max_loss_deviation"])
        self.assertIsNone(outcome.report["rounding_spread"])
        self.assertIsNone(outcome.report["rounding_spread_first_ten"])
        self.assertTrue(any("Correctness could not be judged" in sentence for sentence in outcome.report["verdict"]))
        self.assertNotIn("0.0e+00", outcome.out)
        for text in ("Time of a step", "Truth", "What to try", "--replicas=1,2,4"):
            self.assertNotIn(text, outcome.out)

    def check_no_results(self, outcome, cause):
        self.assertEqual(outcome.code, FAILED, outcome.err)
        self.assertEqual(os.listdir(self.temporary), [])
        text = " ".join(outcome.out.split())
        for name in ("one-device", "ring"):
            self.assertIn(f"{name} failed: it could not write its results: {cause} in '{self.temporary}'; set TMPDIR to another folder", text)
        self.assertNotIn("equal", outcome.out.split("Verdict")[0])

    def test_a_file_that_cannot_be_kept_says_where(self):
        arguments = (*SMALL, "--strategies=ring", "--steps=4", "--validation=off", "--quiet", UNTIMED)
        done = subprocess.run(["sh", "-c", 'ulimit -f 100; exec "$0" "$@"', LOCKSTEP, "compare", *arguments], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, **self.environment))
        self.check_no_results(Outcome(done.returncode, done.stdout, done.stderr), "File too large")

    def test_a_full_disk_says_where(self):
        if os.system(f"mount -t tmpfs -o size=16k tmpfs {self.temporary} 2>/dev/null") != 0:
            self.skipTest("a small file system cannot be mounted here")
        try:
            outcome = self.lockstep("compare", *SMALL, "--strategies=ring", "--steps=4", "--validation=off", "--quiet",
                                    environment=self.environment)
            self.check_no_results(outcome, "No space left on device")
        finally:
            os.system(f"umount {self.temporary}")

    def test_waiting_for_a_turn_is_no_lost_peer(self):
        """Turns of the others take longer than the deadline."""
        strategies = "ring,tree,central-storage,parameter-server:mode=sync,parameter-server:mode=async"
        outcome = self.compare("--model=cnn", "--dataset=synthetic:examples=4096", "--batch=512", "--strategies=" + strategies,
                               "--steps=16", "--round-steps=8", "--validation=off", UNTIMED, "--deadline=" + ("3" if SANITIZE == "none" else "60"))
        for run in outcome.report["runs"]:
            self.assertEqual(run["status"], "done", run["reason"])


class Advice(CompareTest):
    def test_its_command_trains_what_was_measured(self):
        folder = self.path("it's a folder")
        os.mkdir(folder)
        weights = self.path("start here.safetensors")
        small = ("--model=mlp", "--dataset=synthetic:examples=256")
        self.train(*small, "--steps=1", "--seed=9", "--validation=off", "--save-weights=" + weights)
        outcome = self.compare(*small, "--batch=32", "--strategies=ring", "--steps=8", "--validation=off", "--seed=5", UNTIMED,
                               "--device=reference", "--shuffle=20", "--initial-weights=" + weights, "--plugin-path=" + folder,
                               "--loss=sparse_categorical_crossentropy:from_logits=true", "--metrics=none", "--deadline=50",
                               "--optimizer=sgd:learning_rate=0.1", "--precision=mixed_bfloat16", "--loss-scale=8",
                               "--wire=bfloat16")
        lines = [line.strip() for line in outcome.out.splitlines() if line.startswith("  lockstep train ")]
        self.assertEqual(len(lines), 1, outcome.out)
        self.assertTrue(any(lines[0] in sentence for sentence in outcome.report["suggestions"]))
        words = shlex.split(lines[0])
        report = self.path("r.json")
        done = self.lockstep(*words[1:], "--quiet", "--report=" + report)
        self.assertEqual(done.code, DONE, done.err)
        train = read_json(report)
        runs = [run for run in outcome.report["runs"] if f"--strategy={run['strategy']}" in words]
        self.assertEqual(len(runs), 1)
        self.assertEqual(train["losses"], runs[0]["report"]["losses"])
        self.assertEqual(train["parameter_hashes"], runs[0]["report"]["parameter_hashes"])


    def test_programs_give_names_and_get_their_own_words(self):
        setting = ("--model=linear", "--dataset=synthetic:examples=40", "--batch=10", "--strategies=ring", "--steps=2", UNTIMED)
        plain = self.compare(*setting)
        named = self.compare(*setting, "--model-name=mine", "--dataset-name=theirs", "--advice=python")
        self.assertEqual((plain.report["model"], plain.report["dataset"]), ("linear", "synthetic:examples=40"))
        self.assertEqual((named.report["model"], named.report["dataset"]), ("mine", "theirs"))
        self.assertIn("lockstep train --model=linear", plain.out)
        self.assertIn("lockstep.Model(", named.out)
        self.assertNotIn("lockstep train", named.out)


class Refused(CompareTest):
    def test_before_any_training_starts(self):
        for code, arguments, says in (
                (USAGE, ("--strategies=",), ("--strategies", "empty")),
                (USAGE, ("--strategies=ring,,tree",), ("empty item",)),
                (USAGE, ("--strategies=mode=sync,ring",), ("mode=sync",)),
                (USAGE, ("--strategies=ring,tree,ring",), ("'ring'", "twice")),
                (USAGE, ("--strategies=tree,ring:groups=x",), ("ring:groups=x", "no option groups")),
                (USAGE, ("--strategies=ring,rign",), ("rign", "did you mean ring?")),
                (USAGE, ("--strategies=ring,mirrored:collective=nothing",), ("collective=nothing", "no collective is called")),
                (USAGE, ("--strategies=ring:transport=locl",), ("locl", "did you mean local?")),
                (USAGE, ("--speed-steps=-1",), ("--speed-steps=-1",)),
                (USAGE, ("--strategies=parameter-server:mode=later",), ("mode", "later")),
                (USAGE, ("--strategies=parameter-server:servers=5000",), ("servers=5000",)),
                (USAGE, ("--strategies=parameter-server:mode=bounded,staleness=-1",), ("staleness",)),
                (USAGE, ("--target=val_acuracy:0.8",), ("val_accuracy",)),
                (USAGE, ("--target=val_accuracy",), ("val_accuracy:0.88",)),
                (USAGE, ("--target=val_accuracy:0.8", "--validation=off"), ("--validation=off",)),
                (USAGE, ("--target=accuracy:0.8", "--metrics=none"), ("without accuracy",)),
                (USAGE, ("--replicas=2,2",), ("twice",)),
                (USAGE, ("--replicas=0",), ("--replicas=0",)),
                (USAGE, ("--batch=8", "--replica-batch=4"), ("exclude",)),
                (USAGE, ("--optimizer=adm",), ("adam",)),
                (USAGE, ("--stepps=3",), ("--steps",)),
                (BAD_INPUT, ("--html=/nowhere/page.html",), ("--html", "/nowhere")),
                (BAD_INPUT, ("--report=/nowhere/x.json",), ("--report", "/nowhere")),
                (UNAVAILABLE, ("--device=abacus",), ("abacus",))):
            with self.subTest(arguments):
                self.refuse(code, "--model=mlp", "--dataset=synthetic:examples=64", "--steps=2", *arguments, says=says)

    def test_one_file_for_two_results(self):
        path = self.path("same")
        self.refuse(USAGE, "--model=mlp", "--dataset=synthetic:examples=64", "--report=" + path, "--html=" + path, says=("same file",))
        self.assertFalse(os.path.exists(path))
        self.refuse(USAGE, "--model=mlp", "--dataset=synthetic:examples=64", "--report=" + path, "--html=" + self.path("./same"),
                    says=("same file",))
        self.assertFalse(os.path.exists(path))

    def test_model_and_dataset_are_needed(self):
        self.refuse(USAGE, "--dataset=synthetic:examples=64", says=("--model is missing",))
        self.refuse(USAGE, "--model=mlp", says=("--dataset is missing",))
        self.refuse(USAGE, "--model=mpl", "--dataset=synthetic:examples=64", says=("error: --model: ", "mlp"))
        self.refuse(USAGE, "--model=mlp", "--dataset=synthetc", says=("synthetic",))

    def test_it_explains_itself(self):
        outcome = self.lockstep("compare", "--help=all")
        self.assertEqual((outcome.code, outcome.err), (DONE, ""))
        for text in ("usage: lockstep compare", "--strategies", "--target", "--html", "reference"):
            self.assertIn(text, outcome.out)


class Progress(CompareTest):
    ARGUMENTS = (*SMALL, "--strategies=ring", "--steps=4", "--validation=off")

    def shown(self, columns=0, arguments=ARGUMENTS):
        return self.on_terminal("compare", *arguments, columns=columns, environment=self.environment)

    def test_one_line_on_a_terminal(self):
        shown = self.shown()
        for text in (b"preparing one-device", b"round 4 of 4: ring, 2 replicas", b"in two halves\r\033[K",
                     b"speed: process 1 of 10 of each run\r\033[K", b"speed: process 10 of 10", b"Verdict"):
            self.assertIn(text, shown)

    def test_it_fits_in_a_narrow_terminal(self):
        shown = self.shown(30, (*SMALL, "--strategies=hierarchical-copy:groups=1", "--steps=4", "--validation=off", UNTIMED))
        lines = [part.split(b"\r")[0] for part in shown.split(b"Speed")[0].split(b"\r\033[K")[1:]]
        self.assertIn(b"preparing hierarchical-copy:g", lines)
        self.assertIn(b"round 1 of 4: hierarchical-co", lines)
        for line in lines:
            if not line.startswith(b"comparing "):  # stays, and may take several lines
                self.assertLess(len(line), 30)

    def test_elsewhere_there_is_none(self):
        outcome = self.lockstep("compare", *self.ARGUMENTS, UNTIMED, environment=self.environment)
        self.assertTrue(outcome.out.startswith("comparing 2 runs of mlp on synthetic:examples=256"), outcome.out)
        self.assertNotIn("\033", outcome.out)
        self.assertNotIn("round 1 of", outcome.out)
        self.assertEqual(outcome.err.count("NOT REAL DATA"), 1)
        self.assertNotIn("progress: ", outcome.err)
        outcome = self.lockstep("compare", "--quiet", "--progress", *self.ARGUMENTS, UNTIMED, environment=self.environment)
        self.assertTrue(outcome.out.startswith("\nSpeed"), outcome.out)
        self.assertRegex(outcome.err, r"(?m)^progress: round 4 of 4: ring, 2 replicas$")


class Interruption(CompareTest):
    def setUp(self):
        super().setUp()
        if SANITIZE == "thread":
            self.skipTest("ThreadSanitizer holds signals back while the main thread waits")

    def start(self, *arguments):
        """A comparison without end, in a process group of its own, that has begun to train."""
        process = subprocess.Popen([LOCKSTEP, "compare", *SMALL, "--strategies=ring,tree", "--epochs=1000000", "--round-steps=5",
                                    *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                                   env=dict(os.environ, **self.environment))
        self.addCleanup(self.end_group, process.pid)
        ready, _, _ = select.select([process.stdout], [], [], 120)
        self.assertTrue(ready)
        self.assertIn("comparing", process.stdout.readline())
        time.sleep(1)  # a turn at least: five steps of a small network
        return process

    def end_group(self, group):
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def assert_gone(self, group, patience=10):
        end = time.monotonic() + patience
        while time.monotonic() < end:
            try:
                os.killpg(group, 0)
            except ProcessLookupError:
                return
            time.sleep(0.05)
        self.fail("a process was left behind")

    def test_ctrl_c_shows_what_there_is(self):
        path = self.path("r.json")
        for everyone in (False, True):  # the terminal tells all processes of the group
            with self.subTest(everyone=everyone):
                process = self.start("--report=" + path)
                (os.killpg if everyone else os.kill)(process.pid, signal.SIGINT)
                out, err = process.communicate(timeout=60)
                self.assertEqual(process.returncode, INTERRUPTED, err)
                self.assert_gone(process.pid)
                self.assertEqual(os.listdir(self.temporary), [])
                self.assertIn("interrupted", err)
                self.assertIn("Verdict", out)
                report = read_json(path)
                self.check_form(report)
                self.assertEqual(report["status"], "interrupted")
                for run in report["runs"]:
                    self.assertEqual(run["status"], "interrupted")
                    self.assertEqual(run["report"]["status"], "interrupted")
                self.assertGreater(sum(run["report"]["steps"] for run in report["runs"]), 0)

    def test_ctrl_c_while_runs_are_timed_keeps_what_they_trained(self):
        path = self.path("r.json")
        process = subprocess.Popen([LOCKSTEP, "compare", *SMALL, "--strategies=ring,tree", "--steps=8", "--validation=off",
                                    "--speed-steps=1000000000", "--report=" + path], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, start_new_session=True,
                                   env=dict(os.environ, **self.environment))
        self.addCleanup(self.end_group, process.pid)
        process.stdout.readline()
        time.sleep(4)  # the training takes a fraction of that, the timing an hour
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, INTERRUPTED, err)
        self.assert_gone(process.pid)
        self.assertEqual(os.listdir(self.temporary), [])
        self.assertIn("Verdict", out)
        report = read_json(path)
        self.check_form(report)
        self.assertEqual((report["status"], [run["status"] for run in report["runs"]]), ("interrupted", ["done"] * 3))
        self.assertEqual([run["report"]["steps"] for run in report["runs"]], [8] * 3)
        self.assertEqual(len(report["comparisons"]), 1)

    def test_a_terminal_that_is_gone_is_an_interruption(self):
        process = self.start()
        os.killpg(process.pid, signal.SIGHUP)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, INTERRUPTED, err)
        self.assert_gone(process.pid)
        self.assertEqual(os.listdir(self.temporary), [])

    def test_a_second_one_ends_at_once(self):
        process = self.start()
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, INTERRUPTED, err)
        self.assert_gone(process.pid)
        self.assertEqual(os.listdir(self.temporary), [])

    def test_before_the_first_step(self):
        process = subprocess.Popen([LOCKSTEP, "compare", "--model=mlp", "--dataset=synthetic:examples=60000", "--strategies=ring"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                                   env=dict(os.environ, **self.environment))
        self.addCleanup(self.end_group, process.pid)
        self.wait_for(lambda: os.listdir(self.temporary))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, INTERRUPTED, err)
        self.assertIn("interrupted before the first step", err)
        self.assertEqual(out, "")
        self.assert_gone(process.pid)
        self.assertEqual(os.listdir(self.temporary), [])

    def test_children_do_not_outlive_their_parent(self):
        process = self.start()
        process.kill()
        process.communicate(timeout=60)
        self.assert_gone(process.pid)


if __name__ == "__main__":
    main()
