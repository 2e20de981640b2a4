# SPDX-License-Identifier: Apache-2.0
"""Runs out of memory at every place in turn: whatever fails says what failed, and nothing crashes or hangs.

usage: test_memory.py [CASES]     (60)

The k-th allocation of a command fails (support/fail-allocation), k spread evenly over all that it makes; then the next
command, and so on. A run that gets by without the memory, and ends with 0, is right, too.
"""
import os
import re
import sys

from support import BAD_INPUT, FAILED, KERAS_FILES, PEER_LOST, UNAVAILABLE, USAGE, ProgramTest, main

PRELOAD = os.environ["LOCKSTEP_FAIL_ALLOCATION_OBJECT"]
CASES = int(sys.argv.pop()) if len(sys.argv) > 1 else 60

DATA = "--dataset=synthetic:examples=20,shape=4x4x1"
MODEL = """{"module": "keras", "class_name": "Sequential", "config": {"name": "small", "layers": [
 {"class_name": "InputLayer", "config": {"batch_input_shape": [null, 4, 4, 1], "name": "input"}},
 {"class_name": "Conv2D", "config": {"name": "conv", "filters": 3, "kernel_size": [2, 2], "activation": "relu"}},
 {"class_name": "Flatten", "config": {"name": "flatten"}},
 {"class_name": "Dropout", "config": {"name": "dropout", "rate": 0.25}},
 {"class_name": "Dense", "config": {"name": "dense", "units": 10, "activation": "softmax"}}]}}"""
TRAIN = ("train", "--model=small.json", DATA, "--steps=2", "--batch=8", "--threads=1", "--deadline=5")
COMMANDS = [
    (*TRAIN, "--report=r.json", "--save-weights=w.safetensors"),
    (*TRAIN, "--replicas=2", "--strategy=ring", "--wire=bfloat16", "--report=r.json", "--timeline=t.json", "--check-replicas=1"),
    (*TRAIN, "--replicas=2", "--strategy=central-storage", "--quiet"),
    (*TRAIN, "--replicas=2", "--strategy=parameter-server", "--report=r.json"),
    (*TRAIN, "--replicas=2", "--strategy=auto", "--device=reference", "--microbatches=2", "--verbose"),
    ("evaluate", "--model=small.json", DATA, "--threads=1", "--replicas=2"),
    ("predict", "--model=small.json", DATA, "--threads=1", "--replicas=2", "--out=p.npy"),
    ("summary", "--model=small.json"),
    *([(*TRAIN, "--save-weights=w.keras"), ("summary", "--model=w.keras")] if KERAS_FILES else []),
    ("simulate", "ring", "--world=4", "--bytes=1M"),
    ("verify", "ring", "--world=2-4", "--count=0,5,64"),
    ("plugins",),
]


class OutOfMemory(ProgramTest):
    def setUp(self):
        super().setUp()
        with open(self.path("small.json"), "w") as file:
            file.write(MODEL)

    def run_with(self, command, number):
        mark = self.path("mark")
        if os.path.exists(mark):
            os.unlink(mark)
        outcome = self.lockstep(*command, timeout=60, environment={
            "LD_PRELOAD": PRELOAD, "LOCKSTEP_FAIL_ALLOCATION": str(number), "LOCKSTEP_FAIL_MARK": mark})
        outcome.mark = open(mark).read().split() if os.path.exists(mark) else []
        return outcome

    def test_a_step_that_sends_16_bits_allocates_no_more(self):
        made = {}
        for wire in ("float32", "bfloat16"):
            counts = []
            for steps in ("--steps=4", "--steps=34"):
                outcome = self.run_with(("train", "--model=small.json", "--dataset=synthetic:examples=400,shape=4x4x1", "--batch=9",
                                         "--threads=1", "--replicas=3", "--strategy=ring", "--wire=" + wire, steps, "--quiet"), 0)
                self.assertEqual(outcome.code, 0, outcome.err)
                counts.append(sum(map(int, outcome.mark)))
            self.assertGreater(counts[0], 100)
            made[wire] = counts[1] - counts[0]
        self.assertLess(made["bfloat16"], made["float32"] + 10)  # of 30 steps on 3 replicas

    def test_no_failure_is_silent(self):
        wrong, failed, injected = [], 0, 0
        each = max(1, CASES // len(COMMANDS))
        for command in COMMANDS:
            whole = self.run_with(command, 0)
            self.assertEqual(whole.code, 0, (command, whole.err))
            count = max(int(number) for number in whole.mark)
            self.assertGreater(count, each)
            for case in range(each):
                number = 1 + case * (count - 1) // max(1, each - 1)
                outcome = self.run_with(command, number)
                injected += bool(outcome.mark)
                if outcome.code == 0:
                    continue
                failed += 1
                said = re.search(r"^lockstep: error: \S+", outcome.err, re.M)
                if outcome.code not in (FAILED, USAGE, BAD_INPUT, UNAVAILABLE, PEER_LOST) or not said:
                    wrong.append(f"{' '.join(command)}: allocation {number} of {count} ({outcome.mark}): code {outcome.code}, "
                                 f"{outcome.err!r}")
        print(f"{injected} allocations failed, which {failed} runs did not get by", flush=True)
        self.assertEqual(wrong, [], "\n" + "\n".join(wrong))
        self.assertGreater(failed, len(COMMANDS) * each // 4)


if __name__ == "__main__":
    main()
