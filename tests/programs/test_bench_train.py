# SPDX-License-Identifier: Apache-2.0
"""tools/bench-train and tools/bench-collectives as programs; with a peer that is made up, what becomes of its figures."""
import os
import re
import shutil
import stat
import subprocess
import sys
import unittest.mock

from support import DONE, FAILED, LOCKSTEP, USAGE, ProgramTest, main, read_json, write_json

TOOLS = os.path.join(os.environ["LOCKSTEP_SOURCE"], "tools")
PARAMETERS = 32 * 32 * 3 * 10 + 10  # of small_model(32)
# Started as a peer's Python: answers without training anything. The seconds are by the number of the question.
PEER = """#!%s
import json, os, sys
if "--mode=compile" in sys.argv:
    sys.exit("g++ is missing")
print("a line that is no answer", flush=True)
parameters = %d - ("--layout=contiguous" in sys.argv)
print(json.dumps({"version": "0.0", "parameters": parameters}), flush=True)
for number, line in enumerate(sys.stdin):
    print(json.dumps({"seconds": [0.5, 0.25, 5.0][number %% 3]}), flush=True)
"""


def small_model(size, channels=3):
    return {"class_name": "Sequential", "config": {"name": "small", "layers": [
        {"class_name": "InputLayer", "config": {"batch_shape": [None, size, size, channels], "name": "image"}},
        {"class_name": "Flatten", "config": {"name": "flat"}},
        {"class_name": "Dense", "config": {"name": "dense", "units": 10}}]}}


class BenchTrain(ProgramTest):
    def bench(self, *arguments, expect=DONE):
        self.json = self.path("rows.json")
        done = subprocess.run([os.path.join(TOOLS, "bench-train"), "--lockstep=" + LOCKSTEP, "--json=" + self.json, *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, expect, done.stderr)
        return done

    def line(self, *arguments, size=32):
        """The row of one line, measured on a small model for its images."""
        write_json(self.path("small.json"), small_model(size))
        self.done = self.bench("--line-model=" + self.path("small.json"), "--seconds=0.01", "--idle=0",
                               "--allocator-dir=" + self.folder, "--peer-dir=" + self.folder, *arguments)
        rows = read_json(self.json)["rows"]
        self.assertEqual(len(rows), 1)
        return rows[0]

    def test_help_needs_no_build(self):
        for name in ("bench-train", "bench-collectives"):
            done = subprocess.run([os.path.join(TOOLS, name), "--help"], stdout=subprocess.PIPE, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, DONE)
            self.assertIn("usage: " + name, done.stdout)

    def test_a_line_without_peers(self):
        row = self.line("--lines=resnet", "--peers=", "--rounds=2", "--markdown")
        single, halves = (row["seconds"]["lockstep " + precision]["values"] for precision in ("float32", "mixed_bfloat16"))
        self.assertEqual(len(single), 2)
        self.assertGreater(min(single + halves), 0)
        self.assertEqual(list(row["comparisons"]), ["halves"])
        for ratio, a, b in zip(row["comparisons"]["halves"]["ratio"]["values"], single, halves):
            self.assertAlmostEqual(ratio, a / b)
        self.assertIsNone(row["met"])
        self.assertIn("| %s |" % row["title"], self.done.stdout)
        # 10 products of 3072 an example, three times; everything is larger by its bytes than by its operations.
        least, copied = row["roofline"]["float32"], row["rates"]["copy_gb_s"] * 1e9
        bytes_of_step = 64 * 4 * (2 * 3082 + 2 * 10) + 4 * 9 * PARAMETERS
        self.assertGreaterEqual(least["seconds"], 0.999 * bytes_of_step / copied)
        self.assertAlmostEqual(least["share"], least["seconds"] / row["seconds"]["lockstep float32"]["median"])

    def test_the_figures_of_a_peer(self):
        python = self.path("python")
        with open(python, "w") as file:
            file.write(PEER % (sys.executable, PARAMETERS))
        os.chmod(python, stat.S_IRWXU)
        row = self.line("--lines=resnet", "--peers=pytorch", "--pytorch-python=" + python, "--rounds=3")
        for precision in "float32", "mixed_bfloat16":
            own, peer = (row["seconds"]["%s %s" % (side, precision)]["values"] for side in ("lockstep", "pytorch"))
            self.assertEqual(peer, [0.5, 0.25])
            for ratio, a, b in zip(row["ratios"]["pytorch " + precision]["values"], own, peer):
                self.assertAlmostEqual(ratio, b / a)
        self.assertEqual(row["comparisons"]["float32"]["below"], "pytorch float32")
        self.assertEqual(row["met"], all(x["ratio"]["median"] >= 1.3 for what, x in row["comparisons"].items() if what != "halves"))
        self.assertEqual({x["set_up"].split(",")[1].strip() for x in row["tried"]}, {"channels_last"})
        notes = "\n".join(row["notes"])
        self.assertIn("round 3 discarded: collapsed to 5000 ms", notes)
        self.assertIn("trains %d parameters, Lockstep %d" % (PARAMETERS - 1, PARAMETERS), notes)
        self.assertIn("g++ is missing", notes)
        self.assertIn("trying pytorch", self.done.stderr)
        os.rename(self.json, self.path("set-ups.json"))
        again = self.line("--lines=resnet", "--peers=pytorch", "--rounds=1", "--set-ups=" + self.path("set-ups.json"))
        self.assertNotIn("trying pytorch", self.done.stderr)
        self.assertEqual((again["tried"], again["peers"]), (row["tried"], row["peers"]))

    def test_the_gpt_of_another_width(self):
        sys.path.insert(0, os.path.join(TOOLS, "..", "lab", "bench"))
        import bench_lines
        with open(os.path.join(TOOLS, "..", "lab", "bench", "gpt.json")) as file:
            text = bench_lines.gpt_of_width(file.read(), 768)
        with open(self.path("gpt768.json"), "w") as file:
            file.write(text)
        words, width = 65, 768
        self.assertEqual(bench_lines.trained_parameters(LOCKSTEP, self.path("gpt768.json")),
                         (words + 128) * width + 4 * (12 * width * width + 13 * width) + 2 * width + (width + 1) * words)

    def test_two_replicas_beside_the_noise(self):
        row = self.line("--lines=resnet50-replicas", "--rounds=1", "--peers=", size=64)
        seconds = {side: values["values"][0] for side, values in row["seconds"].items()}
        for key, above in ("ratio", "lockstep 2 x 1"), ("half", "lockstep 2 x 1, half"), ("noise", "lockstep 1 x 2 again"):
            self.assertAlmostEqual(row[key]["median"], seconds["lockstep 1 x 2"] / seconds[above])

    def test_quick_replaces_defaults_only(self):
        sys.path.insert(0, os.path.join(TOOLS, "..", "lab", "bench"))
        import bench_train
        for given, expected in (([], [2, 0.5, 0.5, 0]), (["--rounds=3", "--seconds=7", "--trial-seconds=8", "--idle=9"], [3, 7, 8, 9])):
            with unittest.mock.patch.object(sys, "argv", ["bench-train", "--lines=resnet", "--quick", *given]):
                options = bench_train.parse_arguments()
            self.assertEqual([options.rounds, options.seconds, options.trial_seconds, options.idle], expected)

    def test_what_cannot_be_measured(self):
        self.assertIn("there is no vgg", self.bench("--lines=vgg", expect=USAGE).stderr)
        self.assertIn("there is no float8", self.bench("--lines=resnet", "--precisions=float8", expect=USAGE).stderr)
        self.assertIn("there is no mxnet", self.bench("--lines=resnet", "--peers=mxnet", expect=USAGE).stderr)
        self.assertIn("none.txt", self.bench("--lines=gpt", "--text=none.txt", expect=USAGE).stderr)
        for text in '{"rows": [{"kind": "speed", "line": "resnet", "tried": [], "kept": {}}]}', "[]", "not JSON":  # the first is an older one
            with open(self.path("old.json"), "w") as file:
                file.write(text)
            refused = self.bench("--lines=resnet", "--set-ups=" + self.path("old.json"), expect=USAGE)
            self.assertRegex(refused.stderr, r"error: --set-ups: .*old\.json is not what --json of this version writes; leave it out")
        with open(self.path("bad.json"), "w") as file:
            file.write("{}")
        refused = self.bench("--lines=resnet", "--peers=", "--line-model=" + self.path("bad.json"), expect=FAILED)
        self.assertIn("exit code 3", refused.stderr)


# The commands of the documents, with what makes them small, and the peers that need more than Debian's Python left out.
QUICK = ["--lockstep=" + LOCKSTEP, "--rounds=1", "--seconds=0.01", "--idle=0", "--limit=600"]
DOCUMENTED = {
    "bench-train --all --json=speed.json": ["--peers=", *QUICK],
    "bench-train --small --json=small.json": QUICK,
    "bench-train --model=mine.json --replicas=2 --threads=1": ["--against=itself", *QUICK],
    "bench-collectives": ["--build=.", "--sides=two-phase,fused", "--bytes=8,4K", "--rounds=1", "--seconds=0.001", "--patience=0"],
}
PRINTS = {"bench-train --all": "GPT, 4 layers", "bench-train --small": "cnn, 1 replica", "bench-train --model": "ratio to 2 processes",
          "bench-collectives": "auto ("}


class Documented(ProgramTest):
    """tools/house-figures, compare-builds, gpu-check and package have tests of their own."""

    def run_line(self, line):
        write_json(self.path("mine.json"), small_model(28, 1))
        words = line.split()
        done = subprocess.run([os.path.join(TOOLS, words[0]), *words[1:], *DOCUMENTED[line]], cwd=self.folder, timeout=900,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertIn(next(text for begin, text in PRINTS.items() if line.startswith(begin)), done.stdout)
        for name in re.findall(r"--json=(\S+)", line):
            self.assertTrue(read_json(self.path(name))["rows"])

    def test_every_command_of_the_documents_is_here(self):
        shown = set()
        for name in ("bench.md", "performance.md"):
            with open(os.path.join(TOOLS, "..", "docs", name)) as file:
                shown |= set(re.findall(r"^    \./tools/(bench-[^#\n]*?) *(?:#.*)?$", file.read(), re.MULTILINE))
        self.assertEqual(shown, set(DOCUMENTED))

    def test_collectives(self):
        if not shutil.which("gcc"):
            self.skipTest("no gcc, which compiles the bounds")
        os.mkdir(self.path("tools"))
        os.symlink(LOCKSTEP, self.path("tools/lockstep"))
        subprocess.run(["gcc", "-std=c11", "-O1", "-pthread", "-D_POSIX_C_SOURCE=200809L", "-I", os.path.join(TOOLS, ".."), "-o",
                        self.path("bounds"), os.path.join(os.path.dirname(TOOLS), "lab", "bench", "bounds.c")], check=True)
        self.run_line("bench-collectives")

    def test_a_model_of_ones_own(self):
        self.need("/usr/share/datasets/fashion-mnist")
        self.run_line("bench-train --model=mine.json --replicas=2 --threads=1")


class DocumentedLong(Documented):
    test_every_command_of_the_documents_is_here = test_collectives = test_a_model_of_ones_own = None

    def test_all_lines(self):
        self.run_line("bench-train --all --json=speed.json")

    def test_small_models(self):
        if subprocess.run(["/usr/bin/python3", "-c", "import torch"], stderr=subprocess.DEVNULL, check=False).returncode:
            self.skipTest("Debian's Python has no torch (python3-torch)")
        self.run_line("bench-train --small --json=small.json")

    def test_quickstart(self):
        self.need("/usr/share/datasets/fashion-mnist")
        tree = self.path("tree")
        shutil.copytree(os.path.join(TOOLS, ".."), tree, symlinks=True,
                        ignore=lambda folder, names: [name for name in names if name.startswith(("build", "."))])
        done = subprocess.run([os.path.join(tree, "tools", "quickstart")], env=dict(os.environ, LOCKSTEP_NO_INSTALL="1"),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1800, check=False)
        self.assertEqual(done.returncode, DONE, done.stdout)
        self.assertRegex(done.stdout, r"validation accuracy 0\.[89]")
        following = done.stdout.split("Next, for example:\n")[1]
        subprocess.run(["bash", "-ec", following], cwd=self.path(""), timeout=600, check=True, stdout=subprocess.DEVNULL)
        self.assertTrue(os.path.exists(self.path("compare.html")))


if __name__ == "__main__":
    main()
