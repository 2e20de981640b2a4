# SPDX-License-Identifier: Apache-2.0
"""tools/compare-builds finds what differs: on builds whose program is a small script that writes a report.

usage: compare_builds.py ROOT
"""
import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else pathlib.Path.cwd()
sys.path.insert(0, str(ROOT / "lab" / "bench"))
import compare_builds  # noqa: E402

ONLY = "mlp/tree/3/adam"
PROGRAM = """#!/bin/sh
echo run >>"{folder}/runs"
for argument; do
    case $argument in
    --help) echo "lockstep train --help=all explains all options"; exit 0 ;;
    --help=all) echo "  --microbatches=N"; exit 0 ;;
    --slices=*) echo "lockstep: error: --slices: unknown" >&2; exit 2 ;;
    --report=*) cp "{folder}/canned.json" "${{argument#--report=}}" ;;
    esac
done
exit {code}
"""


class CompareBuilds(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="lockstep-test-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.report = {"losses": [1 / (i + 1) for i in range(40)], "parameter_hashes": ["aa", "aa", "aa"],
                       "epochs": [{"steps": 40, "examples": 4000, "loss": 1.5, "accuracy": 0.5}]}

    def build(self, name, report=None, code=0):
        folder = self.folder / name
        (folder / "tools").mkdir(parents=True)
        (folder / "canned.json").write_text(json.dumps(report or self.report))
        (folder / "tools" / "lockstep").write_text(PROGRAM.format(folder=folder, code=code))
        (folder / "tools" / "lockstep").chmod(0o755)
        return folder

    def changed(self, **values):
        return {**self.report, **values}

    def compare(self, old, new, *more):
        done = subprocess.run([sys.executable, ROOT / "lab/bench/compare_builds.py", old, new, "--bits",
                               *(more or ["--only=" + ONLY])], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=60)
        return done.returncode, done.stdout

    def finds(self, what, report):
        code, said = self.compare(self.build("old"), self.build("new", report))
        self.assertEqual(code, 1, said)
        self.assertIn(what, said)
        self.assertIn("0 of 1 runs equal", said)

    def test_equal_reports_are_equal(self):
        code, said = self.compare(self.build("old"), self.build("new"))
        self.assertEqual(code, 0, said)
        self.assertIn("1 of 1 runs equal", said)
        self.assertNotIn("differs", said)

    def test_a_loss_in_its_last_bit(self):
        losses = list(self.report["losses"])
        losses[7] += 2.0 ** -30
        self.finds(f"differs: {ONLY}: losses[7] was 0.125, is", self.changed(losses=losses))

    def test_a_parameter_hash(self):
        self.finds(f"differs: {ONLY}: parameter_hashes[2] was aa, is ab", self.changed(parameter_hashes=["aa", "aa", "ab"]))

    def test_an_accuracy(self):
        epoch = dict(self.report["epochs"][0], accuracy=0.25)
        self.finds(f"differs: {ONLY}: epochs[0].accuracy was 0.5, is 0.25", self.changed(epochs=[epoch]))

    def test_a_value_that_is_gone(self):
        epoch = {key: value for key, value in self.report["epochs"][0].items() if key != "accuracy"}
        self.finds("the old build reports epochs[0].accuracy where the new one reports", self.changed(epochs=[epoch]))

    def test_a_replica_less(self):
        self.finds("the old build reports 47 values, the new one 46", self.changed(parameter_hashes=["aa", "aa"]))

    def test_reports_that_prove_nothing_are_not_equal(self):
        for number, report in enumerate([self.changed(parameter_hashes=[]), self.changed(losses=[]),
                                         self.changed(losses=self.report["losses"][1:])]):
            code, said = self.compare(self.build(f"old {number}", report), self.build(f"new {number}", report))
            self.assertEqual(code, 1, said)
            self.assertIn(f"failed: {ONLY}: the old build: the report has", said)

    def test_a_run_that_fails(self):
        code, said = self.compare(self.build("old"), self.build("new", code=1))
        self.assertEqual(code, 1, said)
        self.assertIn(f"failed: {ONLY}: the new build: exit code 1", said)

    def test_microbatches_may_differ_and_have_a_later_name(self):
        new = self.build("new", self.changed(parameter_hashes=["ab", "ab", "ab"]))
        code, said = self.compare(self.build("old"), new, "--only=mlp/ring/2/adam/2 microbatches")
        self.assertEqual(code, 0, said)
        self.assertIn("microbatches: may differ: 0 of 1 runs equal", said)

    def test_what_both_builds_refuse_in_the_same_words_is_listed(self):
        old, new = self.build("old", code=2), self.build("new", code=2)
        code, said = self.compare(old, new)
        self.assertEqual(code, 0, said)
        self.assertIn(f"refused: {ONLY}: exit code 2: it said nothing", said)
        self.assertIn("0 of 0 runs equal, 1 refused by both", said)
        code, said = self.compare(old, self.build("other", code=3))
        self.assertEqual(code, 1, said)
        self.assertIn(f"failed: {ONLY}: the old build: exit code 2", said)

    def test_the_reason_is_that_of_the_worker_that_knows_it(self):
        said = "x: error: cluster: worker 1 lost\nx: error: launch: worker 1 ended\n x: error: strategy: no\n | x: error: last\n"
        self.assertEqual(compare_builds.first_error(said), " x: error: strategy: no")
        self.assertEqual(compare_builds.first_error(""), "it said nothing")

    def checkpoint(self, name, training, tensors=b"1234"):
        head = json.dumps({"__metadata__": {"lockstep_training": json.dumps(training), "lockstep_xxh64": name}, "w": [0, 4]})
        path = self.folder / name
        path.write_bytes(len(head).to_bytes(8, "little") + head.encode() + tensors)
        return compare_builds.file_hash(path)

    def test_checkpoints_are_equal_but_for_names_and_times(self):
        first = self.checkpoint("a", {"steps": 5, "training": "one", "epochs": [{"loss": 1, "seconds": 2}]})
        self.assertEqual(first, self.checkpoint("b", {"steps": 5, "training": "two", "epochs": [{"loss": 1, "seconds": 3}]}))
        self.assertNotEqual(first, self.checkpoint("c", {"steps": 6, "training": "one", "epochs": [{"loss": 1}]}))
        self.assertNotEqual(first, self.checkpoint("d", {"steps": 5, "epochs": [{"loss": 1}]}, b"1235"))

    def test_files_and_examples_of_replicas_are_compared(self):
        wanted = compare_builds.Case("", "x", 1, [], "loop")
        report = {"losses": ["0x1p+0"], "examples": ["7", "8"], "files": {"weights": "aa"}}
        self.assertIn("examples of replica 1 was 8, is 9",
                      compare_builds.first_difference(report, {**report, "examples": ["7", "9"]}, wanted))
        self.assertIn("file weights was aa, is ab",
                      compare_builds.first_difference(report, {**report, "files": {"weights": "ab"}}, wanted))

    def test_all_runs_of_the_house_have_names_of_their_own(self):
        names = [case.name for case in compare_builds.house_cases()]
        self.assertEqual(len(names), len(set(names)))

    def test_a_second_run_reads_the_cache(self):
        old, new, cache = self.build("old"), self.build("new"), "--cache=" + str(self.folder / "cache")
        self.compare(old, new, "--only=" + ONLY, cache)
        self.compare(old, new, "--only=" + ONLY, cache)
        self.assertEqual((old / "runs").read_text(), "run\n")
        program = new / "tools" / "lockstep"
        program.write_text(program.read_text() + "# another build\n")
        code, said = self.compare(old, new, "--only=" + ONLY, cache)
        self.assertEqual(code, 0, said)
        self.assertIn("runs made: 0 with the old build, 1 with the new one", said)

    def test_no_such_run(self):
        code, said = self.compare(self.build("old"), self.build("new"), "--only=nothing")
        self.assertEqual(code, 1, said)
        self.assertIn("no run has that in its name", said)

    def test_no_build_folder(self):
        code, said = self.compare(self.build("old"), self.folder / "new")
        self.assertEqual(code, 2, said)
        self.assertIn("give a build folder", said)

    def test_the_build_that_goes_first_alternates(self):
        order, times = [], {}

        def measure(which):
            order.append(which)
            return {"step": len(order)}
        for number in range(2):
            compare_builds.measure_round(number, [measure], times)
        self.assertEqual(order, ["old", "new", "new", "old"])
        self.assertEqual(times, {"step": {"old": [1, 4], "new": [2, 3]}})

    def test_a_slower_new_build_has_a_ratio_below_1(self):
        same = [1.0] * 12
        rows = self.printed(compare_builds.print_speed, {
            "few": {"old": [1.0, 1.0, 1.0], "new": [2.0, 1.0, 1.25]},
            "slower": {"old": same, "new": [1.02, 1.03] * 6}, "wide": {"old": same, "new": [0.8, 1.25] * 6},
            "close": {"old": same, "new": [1.0, 1.01] * 6},
            "fit: loop": {"old": [2.0], "new": [1.05]}, "fit: long": {"old": [1.0], "new": [1.0]}}, 1.5)
        self.assertEqual(rows[0]["ratios"], [0.5, 1.0, 0.8])
        self.assertEqual({row["name"]: row["verdict"] for row in rows[:-2]},
                         {"few": "not settled", "slower": "SLOWER", "wide": "not settled", "close": "as fast"})
        self.assertEqual([(row["ratios"], row["met"]) for row in rows[-2:]], [([2.0], False), ([1.05], True)])

    def test_the_interval_of_a_median_is_taken_from_the_order(self):
        self.assertIsNone(compare_builds.interval([1.0] * 7))
        self.assertEqual(compare_builds.interval([6, 1, 2, 3, 5, 4, 8, 7]), (1, 8))
        self.assertEqual(compare_builds.interval(range(1, 101)), (40, 61))

    def test_a_measurement_ends_when_its_interval_is_narrow(self):
        for new, settled in ((1.02, True), (1.05, False)):
            times = {"old": [1.0] * 20, "new": [1.0, new] * 10}
            self.assertEqual(compare_builds.is_settled(times, 1.5), settled, new)

    def test_auto_is_held_against_the_collective_with_the_least_median(self):
        row = self.printed(compare_builds.auto_row, "new", 1024,
                           {"auto": [2.0, 2.0, 4.0], "ring": [9.0, 1.0, 1.0], "tree": [0.5, 3.0, 3.0]})
        self.assertEqual((row["best"], row["ratios"], row["verdict"]), ("ring", [4.5, 0.5, 0.25], "within the spread"))

    def printed(self, function, *arguments):
        with contextlib.redirect_stdout(io.StringIO()):
            return function(*arguments)


if __name__ == "__main__":
    unittest.main()
