# SPDX-License-Identifier: Apache-2.0
"""tools/gpu-check as a program, on the fake of CUDA, which is NOT A GPU; and what it makes of figures and of other
programs' words. Its checks themselves are those of other tests; here it is about how they are run and reported."""
import json
import os
import stat
import subprocess
import sys
import tempfile
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
    def check(self, *arguments, environment=None, double=True):
        """Exit code, the checks by name, and what was printed."""
        path = self.path("result.json")
        command = [sys.executable, SCRIPT, "--json=" + path, "--build=" + BUILD, *arguments]
        done = subprocess.run(command + ["--double=" + DOUBLE] * double, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=dict(os.environ, **(environment or {})), timeout=120, check=False)
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

    def test_what_is_asked_for_is_run_and_the_rest_says_why_not(self):
        code, checks, said = self.check("--part=devices,nccl-refusal,nccl-all-gpus,speed", "--without=speed,memory")
        self.assertEqual(code, 0, said)
        self.assertEqual([checks[name]["status"] for name in ("devices", "nccl-refusal", "nccl-all-gpus", "speed")],
                         ["passed", "passed", "not run", "not run"])
        self.assertIn("both on GPU 0", checks["nccl-refusal"]["detail"])
        self.assertIn("one GPU", checks["nccl-all-gpus"]["detail"])
        self.assertIn("--without", checks["speed"]["detail"])
        self.assertEqual(self.check("--without=spede")[0], 2)
        self.assertIn("NOT A GPU", self.document["on"])
        self.assertIn("NOT A GPU", said)
        self.assertNotIn(SOURCE, json.dumps(self.document["checks"]))

    def test_ranks_on_two_gpus_and_a_failure_that_stops_nothing(self):
        code, checks, said = self.check("--part=nccl-all-gpus,recording", environment={
            "CUDA_FAKE_DEVICES": "2", "CUDA_FAKE_PINNED": "1000"})
        self.assertEqual(code, 1, said)
        self.assertEqual([checks[name]["status"] for name in ("nccl-all-gpus", "recording")], ["failed", "failed"])
        self.assertIn("pinned", checks["recording"]["detail"])

    def test_a_collective_is_measured_beside_a_copy(self):
        code, checks, said = self.check("--part=bench")
        self.assertEqual(code, 0, said)
        figures = checks["bench"]["figures"]
        self.assertEqual({row["replicas"] for row in figures["rows"]}, {2, 4})
        self.assertGreater(figures["copy"]["gb_s"], 0)
        row = figures["rows"][0]
        self.assertAlmostEqual(row["least_gb_s"], 2e-9 * row["replicas"] * row["bytes"] / row["seconds"])

    def test_ten_losses_are_those_of_the_cpu(self):
        carry = self.path("carry")
        os.makedirs(os.path.join(carry, "cpu"))
        with open(os.path.join(carry, "pack.json"), "w") as file:
            json.dump({"machine": os.uname().machine}, file)
        arguments = ["--model=mlp", "--optimizer=sgd:learning_rate=0.01", "--batch=16", "--steps=3", "--shuffle=off", "--seed=0",
                     "--dataset=synthetic", "--validation=off"]
        losses = self.train(*arguments, "--device=cpu")["losses"]
        for factor, status in ((1.0, "passed"), (1.001, "failed")):
            with open(os.path.join(carry, "cpu", "cnn_sgd.json"), "w") as file:
                json.dump({"arguments": arguments, "losses": [loss * factor for loss in losses]}, file)
            _, checks, said = self.check("--part=ten-losses", "--carry=" + carry)
            self.assertEqual(checks["ten-losses"]["status"], status, said)
            if status == "passed":
                self.assertEqual([(row["strategy"], row["recording"].split()[0]) for row in checks["ten-losses"]["figures"]["rows"]],
                                 [(name, how) for name in ("nccl", "ring", "hierarchical-copy") for how in ("recorded", "not")])

    def test_compute_sanitizer_is_believed(self):
        cases = (("echo 'passed  a'; echo '==== ERROR SUMMARY: 0 errors'", "passed", "1 cases"),
                 ("echo 'passed  a'; echo '==== Invalid __global__ read'; echo '==== ERROR SUMMARY: 3 errors'; exit 86", "failed", "3 errors"),
                 ("echo '==== Error: Device not supported. See'; exit 1", "not run", "refused on this machine: Error: Device not supported"),
                 ("echo 'passed  a'; sleep 60", "not run", "nothing was reported in the first 1 cases"))
        for text, status, detail in cases:
            seconds = 8 if "sleep" in text else 120  # the one that does not end takes all of it
            _, checks, said = self.check("--part=memcheck", "--time=%d" % seconds, environment=self.fake("compute-sanitizer", text + "\n"))
            self.assertEqual(checks["memcheck"]["status"], status, said)
            self.assertIn(detail, checks["memcheck"]["detail"])

    def test_results_of_several_calls_are_joined(self):
        self.check("--part=devices")
        first = self.path("first.json")
        os.rename(self.path("result.json"), first)
        self.check("--part=nccl-refusal")
        code, checks, said = self.check("--join", first, self.path("result.json"), double=False)
        self.assertEqual(code, 0, said)
        self.assertEqual([checks[name]["status"] for name in ("devices", "nccl-refusal", "memory")], ["passed", "passed", "not run"])
        self.document["commit"] = "another"
        with open(first, "w") as file:
            json.dump(self.document, file)
        self.assertNotEqual(self.check("--join", first, self.path("result.json"), double=False)[0], 0)

    def test_what_the_double_says_is_no_result(self):
        refused = [sys.executable, SCRIPT, "--double=" + DOUBLE, "--part=devices"]
        for more in ([], ["--json=" + os.path.join(SOURCE, "docs", "results", "x.json")]):
            self.assertEqual(subprocess.run(refused + more, stderr=subprocess.PIPE, check=False).returncode, 2)
        self.assertFalse(os.path.exists(os.path.join(SOURCE, "docs", "results", "x.json")))


class Parts(unittest.TestCase):
    def test_losses_and_hashes(self):
        import checks
        from runner import Wrong
        self.assertAlmostEqual(checks.judge_losses([1.0, 2.002], [1.0, 2.0], 1.1e-3, 2), 1e-3)
        for losses in ([1.0, 2.1], [1.0], [1.0, float("nan")], [1.0, None]):
            with self.assertRaises(Wrong):
                checks.judge_losses(losses, [1.0, 2.0], 1e-3, 2)
        self.assertEqual(checks.judge_hashes({"parameter_hashes": ["a", "a"]}, 2), "a")
        for hashes in (["a"], ["a", "b"]):
            with self.assertRaises(Wrong):
                checks.judge_hashes({"parameter_hashes": hashes}, 2)

    def test_goals_of_speed(self):
        import measures
        from runner import NotRun, Wrong
        place = types.SimpleNamespace(double="")
        judge = measures.Measures(place, types.SimpleNamespace(sizes=None), None).judge_speed

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

    def test_large_libraries_travel_compressed(self):
        import lzma
        import pack
        import place
        with tempfile.TemporaryDirectory() as folder:
            here = os.path.join(folder, "prefix", "lib")
            os.makedirs(here)
            for name, size in (("liblarge.so.1", pack.LARGE), ("libsmall.so.1", 10)):
                with open(os.path.join(folder, name), "wb") as file:
                    file.write(b"ab" * (size // 2))
                pack.put_library(os.path.join(folder, name), os.path.join(here, name))
            self.assertEqual(sorted(os.listdir(here)), ["liblarge.so.1.xz", "libsmall.so.1"])
            there = types.SimpleNamespace(build_folder=os.path.join(folder, "build"), carried=lambda name: os.path.join(folder, name))
            prefix = place.Place.unpack_prefix(there)
            self.assertEqual(sorted(os.listdir(here)), ["liblarge.so.1.xz", "libsmall.so.1"])
            for name in ("liblarge.so.1", "libsmall.so.1"):
                with open(os.path.join(prefix, "lib", name), "rb") as one, open(os.path.join(folder, name), "rb") as other:
                    self.assertEqual(one.read(), other.read())

    def test_the_report_of_compute_sanitizer_is_kept_without_what_passed(self):
        import measures
        said = "passed  a\n========= Invalid __global__ read of size 4\n=========     at x\npassed  b\nFAILED  c\n"
        self.assertEqual(measures.report_of(said).splitlines(),
                         ["========= Invalid __global__ read of size 4", "=========     at x", "FAILED  c"])
        self.assertTrue(measures.REPORTED.search("x\n========= Warning: Race reported between"))
        self.assertFalse(measures.REPORTED.search("========= Warning: Detected overlap"))

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
