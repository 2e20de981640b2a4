#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The true cuDNN, asked without a GPU: has it a plan for each convolution and attention that device `cuda` may ask for on a GPU of
a kind?

test_plans.py GPU_PLANS ATTENTION_PLANS DRIVER RUN_DEVICE SOURCE_ROOT KIND [LIST], where lab/gpu/properties has KIND.json. Those of the
device suite are what the fake of cuDNN writes down while the suite runs on it; those of models are in lab/gpu/shapes. With a LIST of
lab/gpu/shapes only its convolutions are asked for.
It shows what cuDNN takes, not that a GPU computes it.
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM, ATTENTION, DRIVER, RUN_DEVICE, ROOT, KIND = sys.argv[1:7]
LIST = sys.argv[7:]
FOLDER = os.path.join(ROOT, "lab", "gpu")
MOST_SECONDS = 1200  # for one call, which compiles kernels, on a machine that has other work
SUITE_LEAST = 100  # convolutions of the suite, at the least: fewer, and the fake wrote nothing down
TAKEN = re.compile(r"(\d+) convolutions, (\d+) questions: (\d+) plans finalised, (\d+) refused; (\d+) questions without a plan")
NOTES = re.compile(r"\[([^]]*)\]")


def ask(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=MOST_SECONDS, check=False)


class Plans(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.list = os.path.join(folder.name, "list.txt")
        self.properties = "--properties=" + os.path.join(FOLDER, "properties", KIND + ".json")

    def check_plans(self, *lists):
        """Every question has a plan; returns how many convolutions there were."""
        outcome = ask(self.properties, "--plans=1", *lists)
        lines = outcome.stdout.splitlines()
        found = TAKEN.fullmatch(lines[-1]) if lines else None
        self.assertTrue(found, outcome.stdout + outcome.stderr)
        print("%s, %s: %s" % (KIND, lines[0].split(",")[0], lines[-1]))
        print("\n".join(line for line in lines if " refused (" in line))
        self.assertEqual([line for line in lines if " no plan" in line], [])
        self.assertEqual((outcome.returncode, int(found[3]), int(found[5])), (0, int(found[2]), 0), outcome.stderr)
        self.check_notes(lines[1:-1])
        return int(found[1])

    def check_notes(self, lines):
        """What gives other bits or rounds more than was asked for is not taken."""
        for line in lines:
            notes = {note for part in NOTES.findall(line) for note in part.split(", ")}
            wrong = {"not deterministic", "inputs rounded", "sums rounded"} | ({"tensor cores"} if " float32:" in line else set())
            self.assertFalse(notes & wrong, line)

    def test_each_convolution_of_the_models_has_a_plan(self):
        self.check_plans(*(os.path.join(FOLDER, "shapes", name + ".txt") for name in LIST or ("cnn", "resnet50", "mobilenet_v2")))

    def test_each_convolution_that_the_suite_asks_the_fake_for_has_a_plan(self):
        written = self.list + ".written"
        subprocess.run([RUN_DEVICE, "cuda", "conv"], env=dict(os.environ, CUDA_FAKE_CONVOLUTIONS=written), timeout=MOST_SECONDS, check=True,
                       stdout=subprocess.DEVNULL)
        with open(written, encoding="utf-8") as file, open(self.list, "w", encoding="utf-8") as out:
            out.writelines(sorted(set(file)))
        self.assertGreater(self.check_plans(self.list), SUITE_LEAST)

    def attention_plans(self, path):
        """The answers, "engine 2 (256 bytes)" or "no plan", by the questions."""
        outcome = subprocess.run([ATTENTION, DRIVER, self.properties.partition("=")[2], path], capture_output=True, text=True, timeout=MOST_SECONDS,
                                 check=False)
        self.assertEqual(outcome.returncode, 0, outcome.stdout + outcome.stderr)
        print(outcome.stdout)
        return dict(line.split(": ") for line in outcome.stdout.splitlines())

    def test_each_attention_of_the_suite_and_of_the_gpts_has_a_plan(self):
        with open(os.path.join(FOLDER, "shapes", "attention.txt"), encoding="utf-8") as file:
            asked = {line for line in file if not line.startswith("#")}
        subprocess.run([RUN_DEVICE, "cuda", "float16 attention"], env=dict(os.environ, CUDA_FAKE_ATTENTIONS=self.list), timeout=MOST_SECONDS,
                       check=True, stdout=subprocess.DEVNULL)
        with open(self.list, encoding="utf-8") as file:
            written = {line for line in file if not line.endswith(" float32\n")}
        self.assertGreaterEqual(len(written), 4)
        with open(self.list, "w", encoding="utf-8") as out:
            out.writelines(sorted(asked | written))
        answers = self.attention_plans(self.list)
        self.assertEqual(len(answers), 2 * len(asked | written))
        self.assertEqual([question for question, answer in answers.items() if not answer.startswith("engine ")], [])

    def test_cudnn_refuses_the_attention_that_its_fake_refuses(self):
        with open(self.list, "w", encoding="utf-8") as out:
            out.write("2 5 7 3 12 8 0 bfloat16\n2 5 7 3 8 12 1 float16\n2 64 64 2 64 64 1 float32\n2 64 64 2 264 264 1 bfloat16\n")
        answers = self.attention_plans(self.list)
        self.assertEqual([question for question, answer in answers.items() if answer != "no plan"],
                         ["B=2 64 of 64, 2 heads of 264 and 264 causal, bfloat16, forward"])

    def test_a_convolution_without_a_plan_is_named_with_what_cudnn_says(self):
        with open(self.list, "w", encoding="utf-8") as out:
            out.write("uneven 2 8 8 3 8 3 3 1 1 1 1 1 1 2\n")  # 3 channels in 2 groups
        outcome = ask(self.properties, self.list)
        self.assertEqual(outcome.returncode, 1)
        self.assertIn("uneven forward float32: no plan: forward: CUDNN_STATUS_BAD_PARAM", outcome.stdout)
        self.assertIn("16 questions without a plan", outcome.stdout)

    def test_what_is_no_list_and_no_properties_is_refused(self):
        with open(self.list, "w", encoding="utf-8") as out:
            out.write("short 2 8 8 3 8\n")
        self.assertEqual(ask(self.properties, self.list).returncode, 2)
        self.assertEqual(ask("--properties=" + self.list, os.path.join(FOLDER, "shapes", "cnn.txt")).returncode, 1)

    def test_properties_are_saved_as_they_were_given(self):
        outcome = ask(self.properties, "--save-properties=" + self.list)
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        with open(self.list, encoding="utf-8") as saved, open(self.properties.partition("=")[2], encoding="utf-8") as given:
            self.assertEqual(saved.read(), given.read())


if __name__ == "__main__":
    said = ask().stderr
    if "usage" not in said:
        print("SKIP: cuDNN cannot be opened, so nothing was planned: %s" % said.strip())
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], defaultTest="Plans.test_each_convolution_of_the_models_has_a_plan" if LIST else None)
