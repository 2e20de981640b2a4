# SPDX-License-Identifier: Apache-2.0
"""tools/gpu-check as a program, on the fake of CUDA, which is NOT A GPU; and what it makes of figures and of other
programs' words. Its checks themselves are those of other tests; here it is about how they are run and reported."""
import gzip
import json
import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
import types
import unittest
import unittest.mock

from support import ProgramTest, main, read_json, write_json

SOURCE = os.environ["LOCKSTEP_SOURCE"]
BUILD = os.environ["LOCKSTEP_BUILD"]
DOUBLE = os.environ["LOCKSTEP_CUDA_FAKE"] + ":" + os.environ["LOCKSTEP_NCCL_FAKE"]
SCRIPT = os.path.join(SOURCE, "tools", "gpu-check")
PKG_CONFIG = os.path.join(SOURCE, "lab", "gpu", "pkg-config")
sys.path[:0] = [os.path.join(SOURCE, "lab", "gpu"), os.path.join(SOURCE, "lab", "bench")]


class Script(ProgramTest):
    def setUp(self):
        super().setUp()
        self.kit = self.path("kit")
        os.makedirs(os.path.join(self.kit, "cpu"))
        os.symlink(BUILD, os.path.join(self.kit, "build"))
        write_json(os.path.join(self.kit, "pack.json"), {"machine": os.uname().machine, "gpu_archs": "90"})

    def check(self, only, *arguments, environment=None):
        """Exit code, the checks by name, and what was printed."""
        out = self.path("out")
        command = [sys.executable, SCRIPT, "--stage=find", "--kit=" + self.kit, "--out=" + out, "--only=" + only, "--double=" + DOUBLE]
        done = subprocess.run([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=dict(os.environ, **(environment or {})), timeout=120, check=False)
        path = os.path.join(out, "find.json")
        if not os.path.exists(path):
            return done.returncode, {}, done.stdout + done.stderr
        self.document = read_json(path)
        return done.returncode, {entry["name"]: entry for entry in self.document["checks"]}, done.stdout

    def fake(self, name, text):
        """A program of that name first on PATH."""
        path = self.path(name)
        with open(path, "w") as file:
            file.write("#!/bin/sh\n" + text)
        os.chmod(path, stat.S_IRWXU)
        return {"PATH": self.folder + ":" + os.environ["PATH"]}

    def test_what_is_asked_for_is_run(self):
        code, checks, said = self.check("machine,refusal,suite")
        self.assertEqual(code, 0, said)
        self.assertEqual({name: entry["status"] for name, entry in checks.items()}, {
            "machine": "passed", "refusal": "passed", "suite": "passed"})
        self.assertIn("both on GPU 0", checks["refusal"]["detail"])
        self.assertGreater(checks["suite"]["figures"]["passed"], 20)
        self.assertGreater(os.path.getsize(os.path.join(self.path("out"), "suite.log")), 1000)
        self.assertEqual(self.check("spede")[0], 2)
        self.assertIn("NOT A GPU", self.document["on"])
        self.assertIn("NOT A GPU", said)
        self.assertNotIn(SOURCE, json.dumps(self.document["checks"]))

    def test_a_failure_stops_nothing_and_is_asked_about(self):
        code, checks, said = self.check("start,refusal", environment={"CUDA_FAKE_PINNED": "1000"})
        self.assertEqual(code, 1, said)
        self.assertEqual([checks[name]["status"] for name in ("start", "refusal")], ["failed", "failed"])
        self.assertIn("pinned", checks["start"]["detail"])
        with open(os.path.join(self.path("out"), "start.log")) as file:
            self.assertIn("pinned", file.read())

    def test_a_collective_is_measured_beside_a_copy(self):
        code, checks, said = self.check("bench")
        self.assertEqual(code, 0, said)
        figures = checks["bench"]["figures"]
        self.assertEqual({row["replicas"] for row in figures["rows"]}, {2, 4})
        self.assertGreater(figures["copy"]["gb_s"], 0)
        row = figures["rows"][0]
        self.assertAlmostEqual(row["least_gb_s"], 2e-9 * row["replicas"] * row["bytes"] / row["seconds"])

    def test_plans_come_out_of_a_file(self):
        code, checks, said = self.check("plans")
        self.assertEqual(code, 0, said)
        self.assertRegex(checks["plans"]["detail"], "^[1-9][0-9]* plans in the file$")

    def test_ten_losses_are_those_of_the_cpu(self):
        arguments = ["--model=mlp", "--optimizer=sgd:learning_rate=0.01", "--batch=16", "--steps=3", "--shuffle=off", "--seed=0",
                     "--dataset=synthetic", "--validation=off"]
        losses = self.train(*arguments, "--device=cpu")["losses"]
        for factor, status in ((1.0, "passed"), (1.001, "failed")):
            write_json(os.path.join(self.kit, "cpu", "mlp_adam.json"), {"arguments": arguments, "weights": None, "losses": [loss * factor for loss in losses]})
            _, checks, said = self.check("losses")
            self.assertEqual(checks["losses"]["status"], status, said)
            self.assertEqual([(row["strategy"], row["recording"].split()[0]) for row in checks["losses"]["figures"]["rows"]],
                             [("one-device", how) for how in ("recorded", "not", "recorded")] +
                             [(name, how) for name in ("ring", "hierarchical-copy", "nccl") for how in ("recorded", "not")])

    def test_compute_sanitizer_is_believed(self):
        cases = (("echo 'passed  a'; echo '==== ERROR SUMMARY: 0 errors'", "passed", "1 cases"),
                 ("echo '==== ERROR SUMMARY: 0 errors'", "failed", "0 cases"),
                 ("echo 'passed  a'; echo '==== Invalid __global__ read'; echo '==== ERROR SUMMARY: 3 errors'; exit 86", "failed", "3 errors"),
                 ("echo '==== Error: Device not supported. See'; exit 1", "not run", "refused on this machine: Error: Device not supported"),
                 ("[ \"$1\" = --help ] || { echo 'passed  a'; sleep 60; }", "not run", "nothing was reported in the first 1 cases"))
        for text, status, detail in cases:
            seconds = 8 if "sleep" in text else 120  # the one that does not end takes all of it
            _, checks, said = self.check("memcheck", "--seconds=%d" % seconds, environment=self.fake("compute-sanitizer", text + "\n"))
            self.assertEqual(checks["memcheck"]["status"], status, said)
            self.assertIn(detail, checks["memcheck"]["detail"])

    def test_cases_that_failed_are_run_again(self):
        earlier = self.path("earlier.json")
        for lines, status in ((["FAILED softmax B=5 10: wrong", "FAILED softmax B=3 33: wrong"], "passed"), ([], "not run")):
            write_json(earlier, {"checks": [{"name": "suite", "figures": {"lines": lines}}]})
            _, checks, said = self.check("again", "--again=" + earlier)
            self.assertEqual(checks["again"]["status"], status, said)
            self.assertEqual(checks["again"].get("figures", {}).get("passed", 0), len(lines))

    def test_the_time_is_kept_where_the_driver_hangs(self):
        begin = time.monotonic()
        code, checks, said = self.check("machine", "--seconds=4", environment=self.fake("nvidia-smi", "sleep 50\n"))
        self.assertEqual((code, checks["machine"]["status"]), (1, "not run"), said)
        self.assertLess(time.monotonic() - begin, 40)

    def test_which_card_it_was_is_said_without_nvidia_smi(self):
        self.check("refusal", environment=self.fake("nvidia-smi", "exit 1\n"))
        self.assertIn("fake, NOT A GPU", self.document["hardware"]["gpus"][0])

    def test_a_signal_keeps_what_was_done(self):
        out, begun = self.path("out"), self.path("begun")
        environment = self.fake("compute-sanitizer", "[ \"$1\" = --help ] || { echo $$ > %s; sleep 100; }\n" % begun)
        with subprocess.Popen([sys.executable, SCRIPT, "--stage=sanitize", "--kit=" + self.kit, "--out=" + out, "--only=machine,memcheck",
                               "--double=" + DOUBLE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=dict(os.environ, **environment)) as process:
            self.wait_for(lambda: os.path.exists(begun) and os.path.getsize(begun))
            process.send_signal(signal.SIGTERM)
            said = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 130, said)
        self.assertIn("ended; what was done is in", said)
        self.assertEqual([(entry["name"], entry["status"], entry["detail"][:5]) for entry in read_json(os.path.join(out, "sanitize.json"))["checks"]],
                         [("machine", "passed", "1 x f"), ("memcheck", "not run", "ended")])
        with open(begun) as file, self.assertRaises(ProcessLookupError):
            os.kill(int(file.read()), 0)

    def test_what_cannot_be_meant_is_refused_at_once(self):
        for wrong in ("--seconds=nan", "--seconds=0", "--only=,", "--again=/nowhere", "--stage=all"):
            self.assertEqual(self.check("machine", wrong)[:2], (2, {}), wrong)
        with open(self.path("out"), "w"):
            code, _, said = self.check("machine")
        self.assertEqual(code, 1)
        self.assertIn("gpu-check: --out: ", said)
        self.assertNotIn("Traceback", said)

    def test_what_the_double_says_is_no_result(self):
        folder = os.path.join(SOURCE, "docs", "results", "x")
        refused = [sys.executable, SCRIPT, "--double=" + DOUBLE, "--stage=find", "--kit=" + self.kit]
        for more in ([], ["--out=" + folder]):
            self.assertEqual(subprocess.run(refused + more, stderr=subprocess.PIPE, check=False).returncode, 2)
        self.assertFalse(os.path.exists(folder))


class Written(ProgramTest):
    def test_a_full_folder_ends_nothing_and_loses_nothing(self):
        import runner
        path = self.path("find.json")

        def names():
            with open(path) as file:
                return [entry["name"] for entry in json.load(file, parse_constant=self.fail)["checks"]]

        made = runner.Runner(60, path, {}, [])
        with open(os.devnull, "w") as nobody, unittest.mock.patch.multiple(sys, stdout=nobody, stderr=nobody):
            made.check("first", 9, lambda: ("done", {"figure": float("inf")}))
            self.assertEqual((names(), made.unwritten), (["first"], False))
            os.mkdir(path + ".part")  # in the way
            made.check("second", 9, lambda: ("done", {}))
            self.assertEqual((names(), made.unwritten), (["first"], True))
            os.rmdir(path + ".part")
            made.check("third", 9, lambda: ("done", {}))
            self.assertEqual((names(), made.unwritten), (["first", "second", "third"], False))

    def test_failed_cases_come_before_slow_ones(self):
        import checks
        slow = ["passed  a %d: (slow)" % i for i in range(300)]
        lines = checks.telling_lines("\n".join(slow + ["passed  b: x", "FAILED  c: y", "FAILED  d: z"]))
        self.assertEqual(lines[:3], ["FAILED  c: y", "FAILED  d: z", slow[0]])
        self.assertEqual(len(lines), 102)


class Parts(unittest.TestCase):
    def test_losses_and_hashes(self):
        import checks
        from runner import Wrong
        self.assertAlmostEqual(max(checks.deviations([1.0, 2.002], [1.0, 2.0])), 1e-3)
        for losses in ([1.0], [1.0, float("nan")], [1.0, None]):
            self.assertEqual(max(checks.deviations(losses, [1.0, 2.0])), float("inf"))
        row = {"run": "cnn_sgd", "recording": "recorded whole", "parameter_hashes": ["a", "a"], "replicas": 2, "largest_deviation": 0.9e-4}
        checks.judge_row(row, "on")
        checks.judge_row(dict(row, run="gpt_bfloat16", largest_deviation=4.9e-3), "on")
        for changed in ({"parameter_hashes": ["a"]}, {"parameter_hashes": ["a", "b"]}, {"largest_deviation": 1.1e-4},
                        {"largest_deviation": float("nan")}, {"recording": "not recorded: a call"}):
            with self.assertRaises(Wrong):
                checks.judge_row(dict(row, **changed), "on")

    def test_what_is_said_of_speed(self):
        from measures import Measures
        from runner import NotRun, Wrong

        def row(status="measured", why="", **more):
            lockstep = {"status": status, "why": why, "images_per_second": {"median": 7.0}}
            return dict({"case": "cnn", "sides": {"lockstep": lockstep, "eager": {"status": "not run", "why": "no module named torch"}},
                         "ratios": {"eager": {"median": 3.1}}, "goal": {"wanted": 3.0, "ratio_to": "eager"}, "roofline": {"reached": 0.625}}, **more)

        self.assertEqual(Measures.judge_speed([row()], [])[0], "cnn: 7 images/s, 3.10 x eager, goal 3.00 x eager, 62 % of the roofline")
        for why in ("exit code 4: no moving statistics", "no time was left"):
            self.assertIn(why, Measures.judge_speed([row(), row("not run", why)], [])[0])
        for rows, wrong, says in (([row("not run", "exit code 1: x")], [], "exit code 1: x"), ([row()], ["not over after 9 s"], "after 9 s")):
            with self.assertRaisesRegex(Wrong, says):
                Measures.judge_speed(rows, wrong)
        with self.assertRaisesRegex(NotRun, "no module named torch"):
            Measures.judge_speed([row(ratios={}, goal=None)], [])

    def test_steps_that_were_not_recorded_prove_no_recording(self):
        import checks
        from runner import Wrong
        checks.judge_recording({"recording": "recorded in 4 parts"}, "on")
        checks.judge_recording({"recording": "not recorded: recording=off"}, "off")
        for expected, said in (("on", "not recorded: a call cannot be"), ("off", "recorded whole")):
            with self.assertRaises(Wrong):
                checks.judge_recording({"recording": said}, expected)

    def test_the_report_of_compute_sanitizer_is_kept_without_what_passed(self):
        import sanitizer
        said = "passed  a\n========= Invalid __global__ read of size 4\n=========     at x\npassed  b\nFAILED  c\n"
        self.assertEqual(sanitizer.report_of(said).splitlines(),
                         ["========= Invalid __global__ read of size 4", "=========     at x", "FAILED  c"])
        self.assertTrue(sanitizer.REPORTED.search("x\n========= Warning: Race reported between"))
        self.assertFalse(sanitizer.REPORTED.search("========= Warning: Detected overlap"))

    def test_the_kit_has_the_first_images_for_training(self):
        import pack
        files = {"train-images-idx3-ubyte.gz": [0x803, 3, 28, 28], "train-labels-idx1-ubyte.gz": [0x801, 3], "t10k-labels-idx1-ubyte.gz": [0x801, 3]}
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        some = os.path.join(folder.name, "some")
        for name, numbers in files.items():
            with gzip.open(os.path.join(folder.name, name), "wb") as file:
                file.write(struct.pack(">%dI" % len(numbers), *numbers) + bytes(range(3)) * (28 * 28 if len(numbers) > 2 else 1))
        with unittest.mock.patch.multiple(pack, MNIST=folder.name, TRAINED=2):
            pack.copy_images(some)
        for name, count in zip(files, (2, 2, 3)):
            with gzip.open(os.path.join(some, name)) as file:
                made = file.read()
            numbers = [files[name][0], count, *files[name][2:]]
            self.assertEqual(made[:4 * len(numbers)], struct.pack(">%dI" % len(numbers), *numbers))
            self.assertEqual(made[4 * len(numbers):], (bytes(range(3)) * 28 * 28)[:count * (28 * 28 if len(numbers) > 2 else 1)])

    def test_kernels_of_a_step(self):
        import kernel_table
        self.assertEqual(kernel_table.union([(4, 5), (0, 2), (1, 3)]), 4)
        made = kernel_table.table([("a", 0, 4, "1 x 32"), ("Memcpy", 4, 5, None), ("b", 7, 8, None), ("a", 2, 6, "1 x 32"), ("a", 9, 10, "2 x 32")],
                                  2, "hand")
        self.assertEqual({key: made[key] for key in made if key.endswith("_per_step")}, {
            "kernels_per_step": 2.0, "kernel_seconds_per_step": 5.0, "kernel_union_seconds_per_step": 4.0, "recorded_idle_per_step": 1.0,
            "copies_per_step": 0.5, "copy_seconds_per_step": 0.5})
        self.assertEqual(made["longest"], [{"name": "a", "count": 1.5, "seconds": 4.5, "idle_before": 0.5, "shapes": ["1 x 32", "2 x 32"]},
                                           {"name": "b", "count": 0.5, "seconds": 0.5, "idle_before": 0.5, "shapes": []}])

    def test_kernels_of_the_first_epoch_do_not_count(self):
        import bench_gpu
        def kernel(name, begin):
            return [name, 10 ** 18 + begin, 10 ** 18 + begin + 400, "1 x 32"]

        def steps(kernels):
            """Seven, of so many kernels each, behind what is computed before."""
            return [kernel(0, 0)] + [kernel(k == 1, 10000 * (s + 1) + 1000 * k) for s, count in enumerate(kernels) for k in range(count)]

        events, lost = steps([5] * 7), 0

        def train(side):
            write_json(side.environment["LOCKSTEP_KERNEL_TIME"] + ".7", {"names": ["gemm", "run<&cuda_body_guard>"], "events": events, "lost": lost})
            side.report = {"epochs": [{"seconds": 1.0, "steps": 3}, {"seconds": 2e-6, "steps": 4}]}

        side = bench_gpu.Lockstep.__new__(bench_gpu.Lockstep)
        side.environment = {}
        with unittest.mock.patch.object(bench_gpu.lockstep_side.Lockstep, "open", train):
            made = side.watch("kernel-time.so")
            self.assertEqual((made["kernels_per_step"], made["lost_records"]), (5, 0))
            self.assertAlmostEqual(made["kernel_seconds_per_step"], 2e-6)
            for events, lost, says in ((events, 4, "CUPTI lost 4 records"), (events[:-6], 0, "records of 6 of 7 steps"),
                                       (steps([5, 5, 5, 5, 2, 5, 5]), 0, "records of 2 kernels of a step, and 5 of most others"),
                                       ([], 0, "there is no kernel-time.so")):
                with self.assertRaisesRegex(bench_gpu.NotMeasured, says):
                    side.watch("kernel-time.so")
        self.assertEqual(side.environment, {})

    def test_goals_follow_how_busy_eager_keeps_the_gpu(self):
        import bench_gpu
        case = bench_gpu.Case(types.SimpleNamespace(limit=64, data="x", modes="eager,graph"), "cnn:64:float32")
        case.rates = {"lockstep": [640.0, 640.0], "eager": [128.0, 320.0], "graph": [640.0, 640.0]}
        case.about = {name: {} for name in case.rates}
        for busy, wanted in ((0.29, ("eager", 3.0)), (0.31, ("eager", 2.0)), (0.46, ("graph", 0.95))):
            step = 64 / 224  # of eager's median
            case.kernels = {"eager": {"kernel_seconds_per_step": busy * (0.5 + 0.2) / 2, "kernel_union_seconds_per_step": step}}
            goal = case.result("adam", 3000.0)["goal"]
            self.assertEqual((goal["ratio_to"], goal["wanted"]), wanted)
            self.assertAlmostEqual(goal["eager_busy"], busy)
            self.assertAlmostEqual(goal["reached"], 3.5 if wanted[0] == "eager" else 1.0)

    def test_the_least_time_of_a_step_of_cnn(self):
        import roofline
        document = read_json(os.path.join(SOURCE, "models", "cnn.json"))
        # By hand. Elements: image 784, after the convolutions 26 26 32 = 21632 and 11 11 64 = 7744, after pooling 5408 and 1600.
        rows = {row["kernel"]: (row["bytes"], row["step_bytes"], row["operations"]) for row in roofline.kernels(document)}
        wanted = {"conv2d, forward": (4 * (784 + 21632), 4 * 320, 2 * 21632 * 9), "max_pooling2d, forward": (4 * (21632 + 5408) + 5408, 0, 0),
                  "conv2d_1, forward": (4 * (5408 + 7744), 4 * 18496, 2 * 7744 * 288), "dense_1, backward data": (4 * (10 + 2 * 128), 4 * 1290, 2560),
                  "dense, backward data": (4 * (128 + 1600), 4 * 204928, 2 * 128 * 1600), "dense, backward weights": (6912, 4 * 204928, 409600),
                  "max_pooling2d, backward": (4 * (5408 + 21632) + 5408, 0, 0), "adam, update": (0, 7 * 4 * 225034, 0)}
        self.assertEqual({name: rows[name] for name in wanted}, wanted)
        self.assertNotIn("conv2d, backward data", rows)
        self.assertEqual(sum(row[2] for row in rows.values()), 6 * (4460544 // 2 + 204800 + 1280) + 2 * 389376)
        self.assertEqual(sum(row[0] for row in rows.values()), 665144 + 80)
        # 10 GB/s and 1 TFLOP/s: conv2d_1 takes 446.1 us for its operations of 100 examples, 533.5 us for its bytes.
        least = {row["kernel"]: row["seconds"] for row in roofline.timed(roofline.kernels(document), 100, 10.0, 1.0)[0]}
        self.assertAlmostEqual(least["conv2d_1, forward"], (5260800 + 73984) / 1e10)
        self.assertAlmostEqual({row["kernel"]: row["seconds"] for row in roofline.timed(roofline.kernels(document), 100, 100.0, 1.0)[0]}[
            "conv2d_1, forward"], 446.0544e-6)
        halves = {row["kernel"]: row["bytes"] for row in roofline.kernels(document, "mixed_bfloat16")}
        self.assertEqual(halves["max_pooling2d, forward"], 2 * (21632 + 5408) + 5408)

    def test_the_least_time_with_batch_normalization_and_additions(self):
        import roofline
        rows = {row["kernel"]: row["bytes"] for row in roofline.kernels(read_json(os.path.join(SOURCE, "models", "resnet.json")))}
        size = 4 * 8 * 8 * 64  # of the first block: a projection is added to it, then a second block to its sum
        self.assertNotIn("add, forward", rows)
        self.assertEqual([rows[name] for name in ("batch_normalization_3, normalize", "batch_normalization_1, normalize")], [2 * size, 3 * size])
        self.assertEqual(rows["batch_normalization_1, backward data"], 5 * size)  # x, dy, y, and two gradients
        self.assertEqual(rows["conv2d_4, backward data"], 3 * size)  # adds to the gradient that the second sum left
        self.assertEqual(rows["batch_normalization_2, backward data"], 3 * size)  # x says where its ReLU was 0
        with gzip.open(os.path.join(SOURCE, "tests", "data", "models", "MobileNetV2.json.gz")) as file:
            rows = {row["kernel"]: (row["bytes"], row["operations"]) for row in roofline.kernels(json.load(file))}
        self.assertEqual(rows["block_1_pad, forward"], (4 * 96 * (32 * 32 + 33 * 33), 0))
        self.assertEqual(rows["block_1_depthwise, forward"], (4 * 96 * (33 * 33 + 16 * 16), 2 * 9 * 96 * 16 * 16))
        unknown = {"config": {"layers": [{"class_name": "InputLayer", "config": {"name": "a", "batch_shape": [None, 4]}},
                                         {"class_name": "LSTM", "config": {"name": "b"}}]}}
        with self.assertRaisesRegex(ValueError, "LSTM"):
            roofline.kernels(unknown)

    def test_the_least_time_of_a_step_of_a_gpt(self):
        import roofline
        rows = {row["kernel"]: (row["bytes"], row["step_bytes"], row["operations"]) for row in roofline.kernels(read_json(os.path.join(SOURCE, "lab", "bench", "gpt.json")))}
        size, square = 4 * 128 * 256, 256 * 256  # bytes of an activation of a window; a weight between activations
        wanted = {"position_embedding, forward": (4 * 128 + size, 4 * 128 * 256, 0), "norm_2b, forward": (2 * size, 4 * 512, 0),
                  "attention_2 query, key, value, forward": (4 * size, 4 * (3 * square + 768), 2 * 128 * 3 * square),
                  # Queries by keys and scores by values, of which a causal mask leaves half.
                  "attention_2 attention, forward": (4 * size, 0, 2 * 128 * 128 * 256),
                  "attention_2 attention, backward": (7 * size, 0, 4 * 128 * 128 * 256),
                  "attention_2 output, backward weights": (2 * size, 4 * (square + 256), 2 * 128 * square),
                  "norm_2b, backward": (4 * size, 0, 0),  # x, its gradient and dy, and the gradient again with what is added
                  "down_2, backward data": (9 * size, 4 * (4 * square + 256), 2 * 128 * 4 * square)}  # by the derivative of y, too
        self.assertEqual({name: rows[name] for name in wanted}, wanted)
        self.assertNotIn("residual_2b, backward", rows)
        products = 4 * 12 * square + 65 * 256
        self.assertEqual(sum(row[2] for row in rows.values()), 3 * (2 * 128 * products + 4 * 2 * 128 * 128 * 256))

    def test_what_lockstep_refuses_is_not_asked_of_pytorch(self):
        import bench_gpu
        for code, given_up in ((4, ["eager", "lockstep"]), (1, ["lockstep"])):
            case = bench_gpu.Case(types.SimpleNamespace(limit=64, data="x", modes="eager"), "cnn:64:float32")
            with unittest.mock.patch.object(bench_gpu, "Lockstep", side_effect=bench_gpu.lockstep_side.Failed("exit code %d: x" % code, code)):
                case.open(types.SimpleNamespace(pytorch_only=False))
            self.assertEqual(sorted(case.why), given_up)


# Started as the Python of PyTorch: answers without training anything.
PEER = """#!%s
import json, sys
compiled = "--compiler=compile" in sys.argv
print(json.dumps({"torch": "0.0"}), flush=True)
for line in sys.stdin:
    c = json.loads(line)
    if c["do"] == "compile":
        answer = {"failed": "g++ is missing"} if c["case"] == "mlp:8:float32" else {}
    elif c["do"] == "build":
        graph = "no layout was chosen" if compiled and c["layout"] != "NCHW" else None if compiled else "capture failed"
        answer = {"layout": "NCHW", "set_up": "made up", "modes": {mode: graph if "graph" in mode else None for mode in c["modes"]}}
    elif c["do"] == "busy":
        answer = {"kernels_per_step": 2, "kernel_seconds_per_step": 0.1, "kernel_union_seconds_per_step": 0.1, "longest": []}
    else:
        answer = {"seconds_per_step": 0.25 if "compile" in c.get("mode", "") else 0.5}
    print(json.dumps(answer), flush=True)
"""
# libcupti without a GPU: the records of two kernels and a copy, whose fields lie where CUPTI's header has them. UNTIMED: a kernel has
# no times; UNFINISHED: a record behind them is not complete.
CUPTI = """
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
static void (*request)(uint8_t **, size_t *, size_t *);
static void (*complete)(void *, uint32_t, uint8_t *, size_t, size_t);
static void make(uint8_t *record, uint32_t kind, uint64_t begin, uint64_t end, int32_t grid, const char *name)
{
    const int32_t shape[6] = {grid, 1, 1, 256, 2, 1};
    memset(record, 0, 512);
    memcpy(record, &kind, 4);
    memcpy(record + 16, &begin, 8);
    memcpy(record + 24, &end, 8);
    if (name)
        memcpy(record + 52, shape, sizeof(shape)), memcpy(record + 104, &name, 8);
}
int cuptiActivityRegisterCallbacks(void *a, void *b) { request = a, complete = b; return 0; }
int cuptiActivityEnable(int kind) { return kind != 1 && kind != 2 && kind != 10; }
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped) { *dropped = 0; return 0; }
int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, void **record)
{
    static int count;
    static uint8_t made[512];
    const uint64_t day = 1700000000000000000;
    const uint64_t later = getenv("UNTIMED") && count == 2 ? 0 : day + 1000 * count;
    if (count == 3)
        return getenv("UNFINISHED") ? 21 : 12;
    if (count == 1)
        make(made, 1, day + 500, day + 510, 0, 0);
    else
        make(made, 10, later, later ? later + 400 : 0, count + 7, count ? "_ZN3own4bodyEv" : "gemm");
    count++;
    *record = made;
    return 0;
}
int cuptiActivityFlushAll(uint32_t how)
{
    uint8_t *buffer;
    size_t bytes, most;
    request(&buffer, &bytes, &most);
    complete(0, 0, buffer, bytes, bytes);
    return 0;
}
"""


class Speed(ProgramTest):
    def bench(self, *arguments, limit=32):
        """Rows by case."""
        path = self.path("rows.json")
        done = subprocess.run([sys.executable, os.path.join(SOURCE, "lab", "bench", "bench_train.py"), "--device=cuda", "--json=" + path,
                               "--lockstep=" + os.environ["LOCKSTEP_PROGRAM"], "--plugin-path=" + DOUBLE, "--torch-device=cpu", "--seconds=0.01",
                               "--limit=%d" % limit, "--idle=0", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=240, check=False)
        self.said = done.stdout + done.stderr
        document = read_json(path)
        self.assertTrue(document["dry_run"])
        return {row["case"]: row for row in document["rows"]}

    def made_up(self):
        path = self.path("python")
        with open(path, "w") as file:
            file.write(PEER % sys.executable)
        os.chmod(path, stat.S_IRWXU)
        return "--python=" + path

    def test_cases_in_turn_beside_a_peer_that_is_made_up(self):
        self.need("/usr/share/datasets/fashion-mnist")
        rows = self.bench(self.made_up(), "--cases=cnn:4:tf32,mlp:8:float32", "--rounds=2", "--copy-gb-s=3000", "--modes=eager,compile,graph,compile+graph")
        first, second = rows["cnn, batch 4, tf32"], rows["mlp, batch 8, float32"]
        self.assertEqual(first["sides"]["graph"]["why"], "capture failed")
        self.assertEqual(first["sides"]["compile+graph"]["status"], "measured", first["sides"]["compile+graph"])
        self.assertEqual({second["sides"][mode]["why"] for mode in ("compile", "compile+graph")}, {"g++ is missing"})
        rates = first["sides"]["lockstep"]["images_per_second"]["values"]
        self.assertEqual(first["ratios"]["compile"]["values"], [rate / 16 for rate in rates])
        self.assertEqual([row["best_of_pytorch"] for row in rows.values()], ["compile", "eager"])
        self.assertAlmostEqual(first["sides"]["eager"]["busy"], 0.2)
        self.assertEqual(first["goal"]["wanted"], 3.0)
        self.assertIn("goal: 3.00 x eager", self.said)
        line = first["roofline"]
        self.assertAlmostEqual(line["reached"], line["seconds_per_step"] / first["sides"]["lockstep"]["step_seconds"]["median"])

    def test_what_no_time_was_left_for_is_named(self):
        self.need("/usr/share/datasets/fashion-mnist")
        rows = self.bench(self.made_up(), "--model=mlp", "--batches=8", "--modes=eager", "--budget=0.01")
        self.assertEqual({name: side["why"] for name, side in rows["mlp, batch 8, float32"]["sides"].items()}, {
            "lockstep": "no time was left", "eager": "no time was left"})

    def test_pytorch_on_the_cpu(self):
        python = os.environ.get("LOCKSTEP_TORCH_PYTHON", sys.executable)
        if subprocess.run([python, "-c", "import torch"], stderr=subprocess.DEVNULL, check=False).returncode:
            self.skipTest("no Python with torch (LOCKSTEP_TORCH_PYTHON)")
        self.need("/usr/share/datasets/fashion-mnist")
        rows = self.bench("--python=" + python, "--cases=mlp:8:float32,mlp:16:float32", "--rounds=1", "--modes=eager,compile")
        for row in rows.values():
            sides = row["sides"]
            self.assertEqual((sides["lockstep"]["status"], sides["eager"]["status"]), ("measured", "measured"))
            self.assertTrue(sides["compile"]["status"] == "measured" or "C++" in sides["compile"]["why"], sides["compile"])
            self.assertIn("no kernels of a GPU", sides["eager"]["kernels"]["not_measured"])

    def test_records_of_kernels_are_written_at_the_end(self):
        import kernel_table
        library = os.path.join(BUILD, "tools", "kernel-time.so")
        if not os.path.exists(library) or not shutil.which("gcc"):
            self.skipTest("no kernel-time.so, which is built where CUPTI is, or no gcc")
        with open(self.path("cupti.c"), "w") as file:
            file.write(CUPTI)
        needed = subprocess.run(["objdump", "-p", library], stdout=subprocess.PIPE, text=True, check=True).stdout
        name = next(word for word in needed.split() if word.startswith("libcupti"))
        subprocess.run(["gcc", "-shared", "-fPIC", self.path("cupti.c"), "-Wl,-soname," + name, "-o", self.path(name)], check=True)

        def written(prefix, **more):
            subprocess.run([sys.executable, "-c", "import ctypes; ctypes.CDLL('%s').InitializeInjection()" % library], check=True,
                           env=dict(os.environ, LD_LIBRARY_PATH=self.folder, LOCKSTEP_KERNEL_TIME=self.path(prefix), **more))
            return kernel_table.read(self.path(next(name for name in os.listdir(self.folder) if name.startswith(prefix + "."))))

        for prefix, count in (("UNTIMED", 2), ("UNFINISHED", 3)):
            records, lost = written(prefix, **{prefix: "1"})
            self.assertEqual((len(records), lost), (count, 1))
        records, lost = written("kernels")
        self.assertEqual(lost, 0)
        self.assertEqual([(name, shape) for name, _, _, shape in records], [
            ("gemm", "7,1,1 x 256,2,1"), ("Memcpy", "0,0,0 x 0,0,0"), ("own::body()", "9,1,1 x 256,2,1")])
        for record, wanted in zip(records, ((0, 4e-7), (5e-7, 5.1e-7), (2e-6, 2.4e-6))):
            self.assertAlmostEqual(record[1], wanted[0], delta=1e-12)
            self.assertAlmostEqual(record[2], wanted[1], delta=1e-12)


    def test_the_longest_kernels_of_the_profiler(self):
        import sanitizer
        head = '"ID","Kernel Name","Block Size","Grid Size","Section Name","Metric Name","Metric Value"\n'
        row = '"%d","%s","(256, 1, 1)","(1, 1, 1)","GPU Speed Of Light Throughput","%s","%s"\n'
        table = "==PROF== Connected\n" + head + "".join(row % values for values in (
            (0, "a", "Duration", "1,500"), (1, "b", "Duration", "900"), (2, "a", "Duration", "2,000"), (2, "a", "DRAM Throughput", "42.5"),
            (3, "b", "Elapsed Cycles", "9,999,999")))
        kernels = sanitizer.longest(table)
        self.assertEqual([(kernel["kernel"], kernel["microseconds"]) for kernel in kernels], [("a", 2.0), ("b", 0.9)])
        self.assertEqual(kernels[0]["memory_percent"], 42.5)
        self.assertEqual(sanitizer.longest("==ERROR== no counters\n"), [])


class PkgConfig(ProgramTest):
    def ask(self, *arguments):
        done = subprocess.run([sys.executable, PKG_CONFIG, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=dict(os.environ, PKG_CONFIG_PATH="/nowhere:" + self.folder), check=False)
        return done.returncode, done.stdout.strip()

    def test_it_answers_what_meson_asks(self):
        with open(self.path("zlib.pc"), "w") as file:
            file.write("prefix=${pcfiledir}/../..\nName: zlib\nVersion: 1.2.13\nLibs: -L${prefix}/lib -lz\nCflags: -I${prefix}/include\n")
        prefix = self.folder + "/../.."
        self.assertEqual(self.ask("--modversion", "zlib"), (0, "1.2.13"))
        self.assertEqual(self.ask("--cflags", "zlib"), (0, "-I%s/include" % prefix))
        self.assertEqual(self.ask("--libs", "zlib"), (0, "-L%s/lib -lz" % prefix))
        self.assertEqual(self.ask("--variable=prefix", "zlib"), (0, prefix))
        self.assertEqual(self.ask("--modversion", "nothing")[0], 1)


if __name__ == "__main__":
    main()
