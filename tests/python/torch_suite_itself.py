# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own tests of torch.distributed with backend lockstep, two and three ranks, against torch_suite_expected.json: what gloo
passes there must pass here, but for the tests that the file lists with their reasons."""
import os
import subprocess
import sys

SOURCE = os.environ["LOCKSTEP_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "programs"))
import keras_python  # noqa: E402
from support import ProgramTest, main, read_json  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
SUITE = os.path.join(SOURCE, "lab", "fixtures", "torch_suite.py")
SECONDS = 3000
AGAIN = 2  # times a test may run anew: some of PyTorch's have short deadlines of their own


class Suite(ProgramTest):
    def setUp(self):
        super().setUp()
        self.python, reason = keras_python.python_with(("torch", "numpy", "expecttest"), "TORCH")
        if not self.python:
            self.skipTest(reason)
        self.expected = read_json(os.path.join(HERE, "torch_suite_expected.json"))

    def run_suite(self, run, names=()):
        """{test: {"outcome": ..., "reason": ...}}"""
        path = self.path("results.json")
        only = ["--only=^(" + "|".join(names) + ")$"] if names else []
        subprocess.run([self.python, SUITE, "--backend=lockstep", f"--world={run['world']}", f"--in-place-of={run['in_place_of']}",
                        f"--json={path}", *only], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=SECONDS, cwd=self.folder,
                       check=False)
        return read_json(path)["tests"]

    def test_what_gloo_passes_passes_here(self):
        for run in self.expected["runs"]:
            with self.subTest(world=run["world"], in_place_of=run["in_place_of"]):
                results = self.run_suite(run)
                here = [name for name in run["gloo_passes"] if name in results]
                self.assertGreater(len(here), 0.9 * len(run["gloo_passes"]), "another PyTorch has other tests: make the list anew")
                missed = [name for name in here if results[name]["outcome"] != "passed"]
                for _ in range(AGAIN):
                    if missed:
                        again = self.run_suite(run, missed)
                        missed = [name for name in missed if again[name]["outcome"] != "passed"]
                outcomes = [one["outcome"] for one in results.values()]
                print(f"{run['world']} ranks, in place of {run['in_place_of']}: {outcomes.count('passed')} passed, "
                      f"{outcomes.count('failed')} failed, {outcomes.count('skipped')} skipped by PyTorch; {len(here) - len(missed)} of the "
                      f"{len(here)} that gloo passes", flush=True)
                self.assertEqual({name: results[name]["reason"] for name in missed if name not in run["lockstep_fails"]}, {})
                self.assertEqual(sorted(set(run["lockstep_fails"]) - set(missed)), [], "these pass now: take them from the list")


if __name__ == "__main__":
    main()
