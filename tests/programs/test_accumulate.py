# SPDX-License-Identifier: Apache-2.0
"""lockstep train --accumulate=N: N batches make one step, as one batch of all their examples does."""
from support import USAGE, ProgramTest, main

# 300 examples: the last step of an epoch has 44 of 128, which is one whole batch of 32 and a part of another.
MODEL = ("--model=mlp", "--dataset=synthetic:examples=300", "--optimizer=sgd:learning_rate=0.01", "--threads=1", "--epochs=3",
         "--validation=off")
WAYS = (("one-device", 1), ("ring", 2), ("ring", 3), ("hierarchical-copy", 3), ("tree", 2), ("central-storage", 2),
        ("parameter-server:mode=sync", 3))


class Accumulating(ProgramTest):
    def test_four_batches_of_32_are_one_of_128_under_every_synchronous_strategy(self):
        whole = self.train(*MODEL, "--batch=128")
        self.assertEqual((len(whole["losses"]), whole["accumulate"]), (9, 1))
        for strategy, replicas in WAYS:
            with self.subTest(strategy=strategy, replicas=replicas):
                report = self.train(*MODEL, "--batch=32", "--accumulate=4", "--strategy=" + strategy, f"--replicas={replicas}")
                self.assertEqual((report["global_batch"], report["accumulate"], report["steps"]), (128, 4, 9))
                for one, other in zip(report["losses"], whole["losses"]):
                    self.assertAlmostEqual(one, other, delta=1e-5 * other)

    def test_blocks_of_a_share_are_kept(self):
        report = self.train(*MODEL, "--batch=32", "--accumulate=3", "--microbatches=2", "--replicas=2", "--strategy=ring")
        self.assertEqual((report["global_batch"], report["accumulate"], report["microbatches"]), (96, 3, 6))

    def test_numbers_that_make_no_sense_are_refused(self):
        for value, says in (("0", "--accumulate=0"), ("x", "--accumulate=x"), ("4000000000", "too many for one step")):
            outcome = self.lockstep("train", *MODEL, "--microbatches=9", "--accumulate=" + value)
            self.assertEqual(outcome.code, USAGE, outcome.err)
            self.assertIn(says, outcome.err)


if __name__ == "__main__":
    main()
