# SPDX-License-Identifier: Apache-2.0
"""tools/gpu-check as a program, on the fake of CUDA, which is NOT A GPU; and what it makes of figures and of other
programs' words. Its checks themselves are those of other tests; here it is about how they are run and reported."""
import json
import os
import stat
import subprocess
import sys
import types
import unittest

from support import ProgramTest, main

SOURCE = os.environ["LOCKSTEP_SOURCE"]
BUILD = os.environ["LOCKSTEP_BUILD"]
DOUBLE = os.environ["LOCKSTEP_CUDA_FAKE"] + ":" + os.environ["LOCKSTEP_NCCL_FAKE"]
SCRIPT = os.path.join(SOURCE, "tools", "gpu-check")
PKG_CONFIG = os.path.join(SOURCE, "tools", "development", "gpu", "pkg-config")
sys.path[:0] = [os.path.join(SOURCE, "tools", "development", "gpu"), os.path.join(SOURCE, "tools", "development")]


class Script(ProgramTest):
    def setUp(self):
        super().setUp()
        self.kit = self.path("kit")
        for name in ("cpu", "reference"):
            os.makedirs(os.path.join(self.kit, name))
        os.symlink(BUILD, os.path.join(self.kit, "build"))
        with open(os.path.join(self.kit, "pack.json"), "w") as file:
            json.dump({"machine": os.uname().machine, "gpu_archs": "90"}, file)

    def check(self, only, *arguments, environment=None):
        """Exit code, the checks by name, and what was printed."""
        out = self.path("out")
        command = [sys.executable, SCRIPT, "--stage=find", "--kit=" + self.kit, "--out=" + out, "--only=" + only, "--double=" + DOUBLE]
        done = subprocess.run([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=dict(os.environ, **(environment or {})), timeout=120, check=False)
        path = os.path.join(out, "find.json")
        if not os.path.exists(path):
            return done.returncode, {}, done.stdout + done.stderr
        with open(path) as file:
            self.document = json.load(file)
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

    def test_ten_losses_are_those_of_the_cpu(self):
        arguments = ["--model=mlp", "--optimizer=sgd:learning_rate=0.01", "--batch=16", "--steps=3", "--shuffle=off", "--seed=0",
                     "--dataset=synthetic", "--validation=off"]
        losses = self.train(*arguments, "--device=cpu")["losses"]
        for factor, status in ((1.0, "passed"), (1.001, "failed")):
            with open(os.path.join(self.kit, "cpu", "mlp_adam.json"), "w") as file:
                json.dump({"arguments": arguments, "weights": None, "losses": [loss * factor for loss in losses]}, file)
            _, checks, said = self.check("losses")
            self.assertEqual(checks["losses"]["status"], status, said)
            self.assertEqual([(row["strategy"], row["recording"].split()[0]) for row in checks["losses"]["figures"]["rows"]],
                             [(name, how) for name in ("one-device", "ring", "hierarchical-copy", "nccl") for how in ("recorded", "not")])

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
            with open(earlier, "w") as file:
                json.dump({"checks": [{"name": "suite", "figures": {"lines": lines}}]}, file)
            _, checks, said = self.check("again", "--again=" + earlier)
            self.assertEqual(checks["again"]["status"], status, said)
            self.assertEqual(checks["again"].get("figures", {}).get("passed", 0), len(lines))

    def test_what_the_double_says_is_no_result(self):
        folder = os.path.join(SOURCE, "docs", "results", "x")
        refused = [sys.executable, SCRIPT, "--double=" + DOUBLE, "--stage=find", "--kit=" + self.kit]
        for more in ([], ["--out=" + folder]):
            self.assertEqual(subprocess.run(refused + more, stderr=subprocess.PIPE, check=False).returncode, 2)
        self.assertFalse(os.path.exists(folder))


class Parts(unittest.TestCase):
    def test_losses_and_hashes(self):
        import checks
        from runner import Wrong
        self.assertAlmostEqual(max(checks.deviations([1.0, 2.002], [1.0, 2.0])), 1e-3)
        for losses in ([1.0], [1.0, float("nan")], [1.0, None]):
            self.assertEqual(max(checks.deviations(losses, [1.0, 2.0])), float("inf"))
        row = {"recording": "recorded whole", "parameter_hashes": ["a", "a"], "replicas": 2, "largest_deviation": 0.9e-4}
        checks.judge_row(row, "on")
        for changed in ({"parameter_hashes": ["a"]}, {"parameter_hashes": ["a", "b"]}, {"largest_deviation": 1.1e-4},
                        {"largest_deviation": float("nan")}, {"recording": "not recorded: a call"}):
            with self.assertRaises(Wrong):
                checks.judge_row(dict(row, **changed), "on")

    def test_goals_of_speed(self):
        import measures
        from runner import NotRun, Wrong
        place = types.SimpleNamespace(double="")
        judge = measures.Measures(place, types.SimpleNamespace(sizes=None)).judge_speed

        def row(model, eager, graph, status="measured", **more):
            ratios = {"eager": {"median": eager}, "graph": {"median": graph}, "compile": {"median": 9}, "compile+graph": {"median": 9}}
            sides = {name: {"status": "measured", "busy_union": 0.5} for name in ratios}
            sides["lockstep"] = {"status": status, "why": "no GPU", "busy_union": 0.5}
            return dict({"case": model, "model": model, "best_of_pytorch": "graph", "sides": sides, "ratios": ratios}, **more)

        self.assertIn("3.10 x eager", judge([row("cnn", 3.1, 1.3), row("mlp", 0.5, 0.4)], [])[0])
        few, blind = row("cnn", 3.1, 1.3), row("cnn", 3.1, 1.3)
        few["ratios"] = {"eager": {"median": 3.1}}
        few["sides"]["graph"] = {"status": "not run", "why": "capture failed"}
        blind["sides"]["lockstep"] = {"status": "measured", "kernels": {"not_measured": "CUPTI is not here"}}
        for rows, says in (([row("cnn", 2.9, 1.3)], "eager: 2.90"), ([row("cnn", 3.1, 1.1)], "best"), ([few], "capture failed"),
                           ([blind], "CUPTI is not here"), ([row("cnn", 3.1, 1.3), row("mlp", 3.1, 1.3, "not run")], "no GPU"),
                           ([], "no time was left")):
            with self.assertRaisesRegex(Wrong, says):
                judge(rows, [] if rows else ["cnn: no time was left"])
        with self.assertRaisesRegex(Wrong, "not over after 240 s"):
            judge([row("cnn", 3.1, 1.3)], ["cnn, batch 1024: not over after 240 s"])
        alone = dict(row("cnn", 1, 1), ratios={}, best_of_pytorch=None)
        alone["sides"]["eager"] = {"status": "not run", "why": "no module named torch"}
        with self.assertRaisesRegex(NotRun, "no module named torch"):
            judge([alone], [])

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

    def test_the_newest_record_of_a_header(self):
        import bench_gpu
        header = "} CUpti_ActivityKernel9;\n} CUpti_ActivityKernel10;\n} CUpti_ActivityMemset;\n"
        self.assertEqual(bench_gpu.newest(header, "CUpti_ActivityKernel"), "CUpti_ActivityKernel10")
        self.assertEqual(bench_gpu.newest(header, "CUpti_ActivityMemset"), "CUpti_ActivityMemset")
        with self.assertRaises(bench_gpu.NotMeasured):
            bench_gpu.newest(header, "CUpti_ActivityMemcpy")

    def test_time_that_kernels_cover(self):
        import spans_cover
        self.assertEqual(spans_cover.union([(4, 5), (0, 2), (1, 3)]), 4)


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
