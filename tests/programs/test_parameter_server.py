# SPDX-License-Identifier: Apache-2.0
"""The strategy parameter-server in whole runs: equal to mirrored, asynchronous, slowed down, with replicas that fail."""
import os
import resource
import select
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from support import DONE, FAILED, FASHION, INTERRUPTED, LOCKSTEP, PEER_LOST, UNAVAILABLE, USAGE, ProgramTest, main, read_json, tensors

FAULTS = os.environ["LOCKSTEP_FAULTS"]
SYNTHETIC = "--dataset=synthetic:examples=400"
STRATEGY = "--strategy=parameter-server"
SGD = "--optimizer=sgd:learning_rate=0.01"
# Sums of two are the same in any order; what is left is rounding of averages in the report.
EQUAL = 1e-6
# Sums of three are not, and differences grow from step to step.
ROUNDING = 1e-5


class Sync(ProgramTest):
    """mode=sync makes the steps of mirrored."""

    def compare(self, tolerance, *arguments, modes=("mode=sync",), reference="ring"):
        expected_path, path = self.path("expected.safetensors"), self.path("w.safetensors")
        common = ("--validation=off", "--threads=1", *arguments)
        expected = self.train("--strategy=" + reference, "--save-weights=" + expected_path, *common)
        weights = tensors(expected_path)
        for mode in modes:
            report = self.train(f"{STRATEGY}:{mode}", "--save-weights=" + path, *common)
            self.assertEqual((report["strategy"], report["collective"]), ("parameter-server", None))
            self.assertEqual(len(report["losses"]), len(expected["losses"]))
            for ours, truth in zip(report["losses"], expected["losses"]):
                self.assertAlmostEqual(ours, truth, delta=tolerance)
            self.assertEqual(len(set(report["parameter_hashes"])), 1)
            found = tensors(path)
            self.assertEqual(set(found), set(weights))
            for name, (shape, values) in found.items():
                self.assertEqual(shape, weights[name][0])
                worst = max(abs(a - b) for a, b in zip(values, weights[name][1]))
                self.assertLessEqual(worst, tolerance, name)
            self.assertNotIn("lead", report["staleness"])
        return report

    def test_ten_steps_of_two_replicas_are_those_of_ring(self):
        self.need(FASHION)
        for optimizer in (SGD, "--optimizer=sgd:learning_rate=0.01,momentum=0.9", "--optimizer=adam"):
            report = self.compare(EQUAL, "--model=cnn", "--dataset=fashion-mnist", "--replicas=2", "--steps=10", optimizer,
                                  modes=("mode=sync", "mode=sync,servers=3,shard_bytes=4096"))
        # Each shard is pushed by both in each step.
        self.assertEqual(report["staleness"]["pushes"], 10 * 2 * sum(report["servers"]["shards"]))

    def test_uneven_and_empty_shares(self):
        for replicas, batch in ((3, 20), (4, 6), (4, 3)):
            self.compare(ROUNDING, "--model=mlp", "--dataset=synthetic:examples=50", f"--replicas={replicas}", f"--batch={batch}",
                         "--steps=9", SGD, modes=("mode=sync,servers=2",))

    def test_one_replica_is_one_device(self):
        self.compare(EQUAL, "--model=mlp", SYNTHETIC, "--steps=10", reference="one-device")

    def test_a_failing_replica_ends_the_run(self):
        outcome = self.lockstep("train", "--quiet", "--model=mlp", SYNTHETIC, "--replicas=2", "--plugin-path=" + FAULTS,
                                f"{STRATEGY}:mode=sync,transport=faulty,endpoint=1,after=100", "--epochs=20")
        self.assertEqual(outcome.code, FAILED, outcome.err)
        self.assertIn("[rank 1] faulty: the failure that was asked for", outcome.err)
        self.assertEqual(len(outcome.err.splitlines()), 1 + ("NOT REAL DATA" in outcome.err), outcome.err)


class Apart(ProgramTest):
    """async and bounded: each worker at its own pace."""

    def test_both_learn_and_end_with_equal_replicas(self):
        self.need(FASHION)
        for mode in ("async", "bounded", "bounded,staleness=0"):
            report = self.train("--model=mlp", "--dataset=fashion-mnist", f"{STRATEGY}:servers=2,mode={mode}", "--replicas=2",
                                "--epochs=1")
            epoch = report["epochs"][0]
            self.assertEqual((report["status"], epoch["examples"]), ("done", 60000))
            self.assertGreater(epoch["val_accuracy"], 0.8)
            self.assertEqual(len(set(report["parameter_hashes"])), 1)
            self.assertIn("lead", report["staleness"])

    def test_any_number_of_servers_and_replicas(self):
        for servers, replicas, more in ((1, 1, ""), (2, 1, ""), (3, 2, ""), (3, 4, ",shard_bytes=1"), (1, 4, ",shard_bytes=1"),
                                        (2, 2, f",shard_bytes={1 << 62}")):
            for mode in ("async", "bounded", "sync"):
                report = self.train("--model=mlp", SYNTHETIC, f"--replicas={replicas}", "--replica-batch=16", "--epochs=2",
                                    f"{STRATEGY}:servers={servers},mode={mode}{more}")
                self.assertEqual([epoch["examples"] for epoch in report["epochs"]], [400, 400])
                self.assertEqual(len(set(report["parameter_hashes"])), 1)
                of = report["servers"]
                for name in ("parameters", "shards", "bytes_received", "bytes_sent"):
                    self.assertEqual(len(of[name]), servers)
                    self.assertGreater(min(of[name]), 0)
                self.assertGreaterEqual(sum(of["parameters"]), report["parameters"])
                self.check_distributions(report["staleness"], mode)

    def check_distributions(self, staleness, mode):
        if mode == "sync":
            return
        for name in ("lead", "missed_updates"):
            part = staleness[name]
            total = sum(part["histogram"])
            self.assertEqual(len(part["histogram"]), part["max"] + 1)
            self.assertAlmostEqual(part["mean"], sum(i * n for i, n in enumerate(part["histogram"])) / total, places=6)
        self.assertEqual(sum(staleness["missed_updates"]["histogram"]), staleness["pushes"])
        self.assertLess(staleness["pulls_unchanged"], staleness["pulls"])

    def slowed(self, mode, *arguments):
        report = self.train("--model=mlp", "--dataset=synthetic:examples=320", "--replica-batch=16", "--replicas=2",
                            "--epochs=1", "--validation=off", f"{STRATEGY}:{mode},delay_replica=1,delay_ms=100", *arguments)
        self.assertEqual(len(set(report["parameter_hashes"])), 1)
        self.assertEqual(report["epochs"][0]["examples"], 320)
        return report["staleness"]

    def test_the_lead_over_a_slow_replica_is_bounded(self):
        # Ten steps of each, a second for the slow one: without a bound the fast one is through them long before.
        bounded = self.slowed("mode=bounded,staleness=2")
        self.assertEqual((bounded["bound"], bounded["lead"]["max"]), (2, 2))
        self.assertGreater(bounded["waits"], 3)
        self.assertGreater(bounded["waits_seconds"], 0)
        free = self.slowed("mode=async")
        self.assertGreater(free["lead"]["max"], 2)
        self.assertEqual(free["waits"], 0)
        self.assertNotIn("bound", free)

    def test_all_meet_for_a_check_of_the_replicas(self):
        for steps in (1, 3):
            self.assertLessEqual(self.slowed("mode=async", f"--check-replicas={steps}")["lead"]["max"], steps - 1)


class Faults(ProgramTest):
    """A replica whose device or transport fails is named, and its examples are trained by the others."""

    def survives(self, *arguments, replicas, examples=1000):
        path = self.path("r.json")
        outcome = self.lockstep("train", "--quiet", "--model=mlp", f"--dataset=synthetic:examples={examples}",
                                "--replica-batch=16", f"--replicas={replicas}", "--epochs=2", "--threads=1",
                                "--plugin-path=" + FAULTS, "--report=" + path, *arguments)
        self.assertEqual(outcome.code, DONE, outcome.err)
        report = read_json(path)
        self.assertEqual(report["status"], "done")
        self.assertEqual([epoch["examples"] for epoch in report["epochs"]], [examples, examples])
        self.assertEqual(len(report["lost_replicas"]), 1)
        lost = report["lost_replicas"][0]
        self.assertIn(f"[rank {lost}] faulty: the failure that was asked for", outcome.err)
        self.assertIn(f"replica {lost} failed at step", outcome.err)
        hashes = [value for i, value in enumerate(report["parameter_hashes"]) if i != lost]
        self.assertEqual(len(set(hashes)), 1)
        return lost

    def test_a_device_that_fails(self):
        for mode in ("async", "bounded"):
            self.survives("--device=faulty:after=400", f"{STRATEGY}:mode={mode},servers=2", replicas=3)

    def test_a_transport_that_fails(self):
        # In the middle of a step, whatever it does then: pull, push, end.
        for after in (150, 157, 163, 170):
            for mode in ("async", "bounded,staleness=1"):
                faulty = f"{STRATEGY}:mode={mode},transport=faulty,endpoint=1,after={after}"
                self.assertEqual(self.survives(faulty, replicas=2), 1)

    def test_one_that_fails_before_the_first_step_ends_the_run(self):
        for mode in ("async", "bounded", "sync"):
            self.refused(FAILED, "train", "--quiet", "--model=mlp", SYNTHETIC, "--replicas=2", "--plugin-path=" + FAULTS,
                         f"{STRATEGY}:mode={mode},transport=faulty,endpoint=1,after=0",
                         says=("[rank 1] faulty: the failure that was asked for",))

    def test_the_last_one_that_fails_ends_the_run(self):
        outcome = self.lockstep("train", "--quiet", "--model=mlp", SYNTHETIC, "--epochs=20", "--plugin-path=" + FAULTS,
                                f"{STRATEGY}:transport=faulty,endpoint=0,after=100")
        self.assertEqual(outcome.code, FAILED, outcome.err)
        self.assertIn("the failure that was asked for", outcome.err)


class Ends(ProgramTest):
    def test_ctrl_c_ends_it_and_the_report_is_written(self):
        if os.environ.get("LOCKSTEP_SANITIZE") == "thread":
            self.skipTest("ThreadSanitizer holds signals back while the main thread waits")
        for mode in ("async", "bounded", "sync"):
            path = self.path("r.json")
            process = subprocess.Popen([LOCKSTEP, "train", "--model=mlp", "--dataset=synthetic:examples=2000", "--epochs=1000000",
                                        "--validation=off", "--replicas=2", f"{STRATEGY}:mode={mode}", "--report=" + path],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.addCleanup(process.kill)
            self.assertTrue(select.select([process.stdout], [], [], 60)[0])
            line = "first"
            while line and not line.startswith("Epoch"):
                line = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, INTERRUPTED, err)
            self.assertIn("interrupted", err)
            report = read_json(path)
            self.assertEqual(report["status"], "interrupted")
            self.assertEqual(len(set(report["parameter_hashes"])), 1)
            self.assertGreater(report["staleness"]["pushes"], 0)

    def test_ctrl_c_waits_for_nobody_who_is_far_behind(self):
        self.need(FASHION)
        if os.environ.get("LOCKSTEP_SANITIZE") == "thread":
            self.skipTest("ThreadSanitizer holds signals back while the main thread waits")
        for mode in ("async", "bounded", "sync"):
            path = self.path("r.json")
            process = subprocess.Popen([LOCKSTEP, "train", "--model=mlp", "--dataset=fashion-mnist", "--validation=off",
                                        "--replicas=2", "--batch=32", "--threads=1", "--report=" + path,
                                        f"{STRATEGY}:mode={mode},delay_replica=1,delay_ms=50"],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.addCleanup(process.kill)
            self.assertTrue(process.stdout.readline())
            time.sleep(2)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, INTERRUPTED, err)
            report = read_json(path)
            self.assertEqual(report["status"], "interrupted")
            self.assertEqual(len(set(report["parameter_hashes"])), 1)
            self.assertEqual(len(report["losses"]), report["steps"])
            self.assertEqual(sum(epoch["examples"] for epoch in report["epochs"]), 32 * report["steps"])
            # Replica 0 was ahead, and replica 1 has not made up for that.
            both = 2 * report["steps"] * sum(report["servers"]["shards"])
            {"async": self.assertGreater, "bounded": self.assertGreaterEqual, "sync": self.assertEqual}[mode](
                report["staleness"]["pushes"], both)

    def test_a_loss_that_is_not_finite_ends_it(self):
        self.need(FASHION)
        for mode in ("async", "bounded", "sync"):
            path = self.path("r.json")
            outcome = self.refused(FAILED, "train", "--quiet", "--model=mlp", "--dataset=fashion-mnist:limit=500",
                                   "--validation=off", "--optimizer=sgd:learning_rate=1e30", "--replicas=2",
                                   f"{STRATEGY}:mode={mode}", "--report=" + path, says=("step ", "not finite"))
            self.assertNotIn("interrupted", outcome.err)
            self.assertEqual(read_json(path)["status"], "failed")

    def test_a_replica_that_is_late_is_named_after_the_deadline(self):
        for mode, what in (("bounded,staleness=1", "its step 1 since"), ("sync", "to push its gradients")):
            outcome = self.lockstep("train", "--quiet", "--model=mlp", SYNTHETIC, "--replicas=2", "--deadline=3",
                                    f"{STRATEGY}:mode={mode},delay_replica=1,delay_ms=10000", "--validation=off")
            self.assertEqual(outcome.code, PEER_LOST, outcome.err)
            errors = [line for line in outcome.err.splitlines() if "warning" not in line]
            self.assertEqual(len(errors), 1, outcome.err)
            self.assertRegex(errors[0], r"waited \d+\.\d s for worker 1")
            for text in ("worker 0, step", what, "--deadline"):
                self.assertIn(text, errors[0])

    def test_what_cannot_be_is_refused_before_training(self):
        for options, says in (
                ("mode=chaos", ("mode", "async", "bounded", "sync")),
                ("servers=0", ("servers=0", "at least 1")),
                ("servers=two", ("servers",)),
                ("servers=40", ("servers=40", "fill only", "shard_bytes=262144")),
                ("mode=bounded,staleness=-1", ("staleness=-1", "at least 0")),
                ("mode=bounded,staleness=x", ("staleness",)),
                ("staleness=2", ("staleness=2", "mode=bounded", "async")),
                ("mode=sync,staleness=2", ("staleness=2", "mode=bounded", "sync")),
                ("shard_bytes=0", ("shard_bytes=0", "at least 1")),
                ("delay_replica=2,delay_ms=5", ("delay_replica=2", "at most 1")),
                ("delay_replica=1", ("delay_replica and delay_ms belong together",)),
                ("delay_replica=0,delay_ms=-1", ("delay_ms=-1", "at least 0")),
                ("server=2", ("server", "servers")),
        ):
            self.refuse_options(options, says)
        self.refused(UNAVAILABLE, "train", "--quiet", "--model=mlp", SYNTHETIC, f"{STRATEGY}:transport=pigeons", says=("pigeons",))

    def test_too_many_servers_for_the_machine(self):
        if os.environ.get("LOCKSTEP_SANITIZE", "none") != "none":
            self.skipTest("sanitizers need more address space than the limit that stands for a small machine")
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))  # room for 250 stacks
        self.refused(FAILED, "train", "--quiet", "--model=mlp", SYNTHETIC, "--replicas=2", "--threads=1",
                     f"{STRATEGY}:servers=2000,shard_bytes=64", preexec_fn=limit,
                     says=("cannot start thread server ", "use fewer", "servers="))

    def refuse_options(self, options, says):
        outcome = self.lockstep("train", "--model=mlp", SYNTHETIC, "--replicas=2", f"{STRATEGY}:{options}")
        errors = [line for line in outcome.err.splitlines() if "error" in line]
        self.assertEqual(outcome.code, USAGE, outcome.err)
        self.assertEqual(len(errors), 1, outcome.err)
        for text in says:
            self.assertIn(text, errors[0])
        self.assertNotIn("Epoch", outcome.out)


class Hang(ProgramTest):
    def hang(self, strategy):
        return self.lockstep("train", "--quiet", "--model=mlp", SYNTHETIC, "--replicas=2", "--validation=off", "--threads=1",
                             "--plugin-path=" + FAULTS, "--device=faulty:after=100,hang=on", "--deadline=2", "--epochs=50",
                             "--strategy=" + strategy)

    def test_a_replica_that_never_comes_back_ends_the_program(self):
        if os.environ["LOCKSTEP_SANITIZE"] == "thread":
            self.skipTest("ThreadSanitizer counts the thread that hangs, and those that wait for it, as leaks")
        strategies = ("ring", "central-storage", "parameter-server", "parameter-server:mode=sync")
        with ThreadPoolExecutor() as pool:  # they only wait
            outcomes = list(pool.map(self.hang, strategies))
        for strategy, outcome in zip(strategies, outcomes):
            with self.subTest(strategy):
                self.assertEqual(outcome.code, PEER_LOST, outcome.err)
                lines = outcome.err.splitlines()
                self.assertRegex(lines[-1], r"replica [01] does not come back: it hangs in `launch` of plugin device-faulty")
                self.assertEqual(len([line for line in lines if "error" in line]), 2, outcome.err)


if __name__ == "__main__":
    main()
