# SPDX-License-Identifier: Apache-2.0
"""compare, verify, simulate and bench as functions."""
import contextlib
import io
import json
import os
import sys
import tempfile
import unittest.mock
import warnings

import numpy_python  # noqa: F401  (first: it may go on in another Python)
import numpy
from support import ProgramTest, main

import lockstep
from lockstep import laboratory, layers

TEXT = "synthetic:shape=4x4x1,classes=4,examples=200"


def tiny():
    return lockstep.Sequential([layers.Input((4, 4, 1)), layers.Flatten(), layers.Dense(4)], device="cpu", threads=1)


class Compare(ProgramTest):
    OPTIONS = {"strategies": ["ring", "central-storage"], "steps": 4, "speed_steps": 0, "batch": 20, "threads": 1}

    def test_the_report_the_table_and_the_page(self):
        found = lockstep.compare("mlp", "synthetic:examples=200", **self.OPTIONS)
        self.assertEqual([run["strategy"] for run in found["runs"]], ["one-device", "ring", "central-storage"])
        self.assertEqual(found.report["command"], "compare")
        self.assertEqual(repr(found), "<Comparison of mlp on synthetic:examples=200: 3 runs>")
        self.assertRegex(str(found), r"(?s)Truth.*\nring .*\n.*Verdict")
        shown = found._repr_html_()
        self.assertTrue(shown.startswith('<iframe srcdoc="&lt;!') and shown.endswith("</iframe>"), shown[:80])
        found.save(self.path("page.html"))
        with open(self.path("page.html"), encoding="utf-8") as file:
            self.assertEqual(file.read(), found.page)

    def test_a_model_and_arrays(self):
        random = numpy.random.default_rng(1)
        x, y = random.random((200, 4, 4, 1), dtype="float32"), random.integers(0, 4, 200)
        config = layers.sequential_config([layers.Input((4, 4, 1)), layers.Flatten(), layers.Dense(4)], "sequential")
        models = [config] + ([tiny()] if os.environ["LOCKSTEP_KERAS_BUILT"] == "true" else [])
        for model in models:
            with self.subTest(type(model).__name__):
                runs = lockstep.compare(model, x, y, **self.OPTIONS)["runs"]
                self.assertEqual([run["status"] for run in runs], ["done"] * 3)
        with self.assertRaisesRegex(lockstep.UsageError, "has its own targets"):
            lockstep.compare(config, TEXT, y)

    def test_nothing_names_files_that_are_gone(self):
        ours = os.path.join(tempfile.gettempdir(), "lockstep-")
        found = lockstep.compare(tiny_config(), numpy.ones((200, 2)), numpy.zeros(200, dtype="int32"), **self.OPTIONS)
        self.assertEqual((found["model"], found["dataset"]), ("sequential", "200 examples"))
        self.assertIn("sequential on 200 examples", found.page)
        for text in (str(found), found.page, json.dumps(found.report)):
            self.assertNotIn(ours, text)
        for one in (found.report, *(run["report"] for run in found.report["runs"])):
            self.assertEqual(one["made"]["command_line"], sys.argv)
        for name, says in (("mine", "mine"), ("mi/ne", "model"), ("x.npy", "model")):
            wrong = layers.sequential_config([layers.Input((2,)), layers.Dense(4, activation="rely")], name)
            for data in ((TEXT,), (numpy.ones((200, 2)), numpy.zeros(200, dtype="int32"))):
                with self.assertRaisesRegex(lockstep.InputError, f"^{says}: layer 'dense' .*rely"):
                    lockstep.compare(wrong, *data, **self.OPTIONS)
        with self.assertRaisesRegex(lockstep.InputError, "^model: "):
            lockstep.compare('{"class_name": 3}', TEXT, **self.OPTIONS)

    def test_advice_is_what_a_program_would_write(self):
        found = lockstep.compare(tiny_config(), numpy.ones((200, 2)), numpy.zeros(200, dtype="int32"), **self.OPTIONS)
        self.assertNotRegex(str(found), "lockstep train|--[a-z]")
        self.assertNotIn("lockstep train", found.page)
        self.assertIn('<code class="command"><span>lockstep.Model(...,</span>', found.page)
        self.assertRegex(str(found), r'lockstep.Model\(..., strategy="[a-z-]+", replicas=\d, threads=1\).fit\(..., batch_size=20\)')
        self.assertIn("replicas=[1, 2, 4] shows", str(found))

    def test_bits_are_compared(self):
        found = lockstep.compare("mlp", "synthetic:examples=200", reproducible=True, **self.OPTIONS)
        self.assertEqual([run["same_bits"] for run in found["runs"]], [True] * 3)
        self.assertRegex(str(found), r"threads=1, reproducible=8\)\.fit")

    def test_progress_goes_to_stderr_when_it_is_wanted(self):
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            lockstep.compare(tiny_config(), "csv:file=" + self.table(), **self.OPTIONS)
        self.assertEqual(err.getvalue(), "")
        with contextlib.redirect_stderr(err):
            lockstep.compare(tiny_config(), "csv:file=" + self.table(), verbose=True, **self.OPTIONS)
        self.assertRegex(err.getvalue(), r"(?m)^round 4 of 4: ring")
        err = io.StringIO()
        err.isatty = lambda: True
        with contextlib.redirect_stderr(err), unittest.mock.patch.dict(os.environ, TERM="xterm"):
            found = lockstep.compare(tiny_config(), "csv:file=" + self.table(), **self.OPTIONS)
        self.assertRegex(err.getvalue(), r"^\r\033\[Kpreparing [^\n]*\r\033\[Kround 4 of 4: ring[^\n]*\r\033\[K$")
        self.assertNotIn("round 4", str(found))

    def table(self):
        with open(self.path("table.csv"), "w", encoding="utf-8") as file:
            for row in range(200):
                file.write(f"{row % 3},{row % 5},{row % 4}\n")
        return self.path("table.csv")


def tiny_config():
    return layers.sequential_config([layers.Input((2,)), layers.Dense(4)], "sequential")


class Tables(ProgramTest):
    def test_verify(self):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            found = lockstep.verify("ring", "tree", world=[2, 3], count=64)
        self.assertEqual(warned, [])  # of pipes that nobody closes, too
        self.assertTrue(found["passed"])
        self.assertEqual({(row["collective"], row["worlds"]) for row in found["rows"]}, {("ring", "2-3"), ("tree", "2-3")})

    def test_simulate(self):
        found = lockstep.simulate("ring", world=range(4, 6), bytes="1M", network="flat")
        self.assertEqual([row["world"] for row in found["rows"]], [4, 5])
        self.assertGreater(found["rows"][0]["seconds"], 0)

    def test_bench(self):
        row = lockstep.bench("ring", bytes="4K", seconds=0.05, place="in", pin=False)["rows"][0]
        self.assertEqual((row["bytes"], row["replicas"], row["wrong"]), (4096, 2, 0))

    def test_errors_are_exceptions(self):
        for call, kind, says in ((lambda: lockstep.verify("no-such"), lockstep.UnavailableError, "no-such"),
                                 (lambda: lockstep.bench("ring", no_such=3), lockstep.UsageError, "unknown option no_such"),
                                 (lambda: lockstep.simulate("ring", deadline=0), lockstep.UsageError, "usage: deadline=0: "),
                                 (lambda: lockstep.simulate("ring", network=self.path("no.json")), lockstep.InputError, "no.json"),
                                 (lambda: lockstep.compare("mlp", "arrays:x=no.npy,y=no.npy"), lockstep.InputError, "no.npy")):
            with self.assertRaisesRegex(kind, says) as caught:
                call()
            self.assertNotIn("lockstep: error", str(caught.exception))

    def test_options_in_messages_are_keywords_but_between_quotes(self):
        for said, message in (("the replicas' --speed-steps isn't 'x'", "the replicas' speed_steps isn't 'x'"),
                              ("'--speed-steps' and `--no-such`, not --wire-check", "'--speed-steps' and `--no-such`, not wire_check")):
            self.assertEqual(str(laboratory._error("verify", 2, ["lockstep: error: " + said])), message)

    def test_a_command_line_that_is_too_long_is_left_out(self):
        before = sys.argv
        try:
            for words, count in ((["a.py", 7], 1), (["a.py", "x" * 200_000], 0), (["a.py"] * 60_000, 0)):
                sys.argv = words
                self.assertEqual(len(laboratory._command_line()), count)
                self.assertTrue(lockstep.verify("ring", world=2, count=8)["passed"])
        finally:
            sys.argv = before

    def test_what_does_not_hold_is_a_result(self):
        row = lockstep.verify(os.path.join(os.environ["LOCKSTEP_FAULTS"], "collective-twice.so"), world=4, operation="all-reduce", deadline=5)
        self.assertFalse(row["passed"])
        self.assertFalse(row["rows"][0]["passed"])
        self.assertTrue(row["rows"][0]["reason"])

    def test_a_command_that_is_not_there_is_named(self):
        before = os.environ["LOCKSTEP_PROGRAM"]
        os.environ["LOCKSTEP_PROGRAM"] = "/nowhere/lockstep"
        try:
            with self.assertRaisesRegex(lockstep.UnavailableError, "LOCKSTEP_PROGRAM names the command"):
                lockstep.verify("ring")
        finally:
            os.environ["LOCKSTEP_PROGRAM"] = before

    def test_arguments(self):
        self.assertEqual([laboratory._argument(*pair) for pair in (("speed_steps", 0), ("fresh", True), ("pin", False), ("world", (2, 3)))],
                         ["--speed-steps=0", "--fresh", "--pin=off", "--world=2,3"])
        self.assertEqual(laboratory._quoted('/a b/c,d+e:[1]"'), '/a b/c\\,d\\+e\\:\\[1\\]\\"')


if __name__ == "__main__":
    main()
