# SPDX-License-Identifier: Apache-2.0
"""Collectives that are wrong (tests/plugins/faults/collective.c): none trains, is timed or is simulated where it is wrong."""
import os
import time

from support import DONE, FAILED, PEER_LOST, ProgramTest, main, read_json

FAULTS = "--plugin-path=" + os.environ["LOCKSTEP_FAULTS"]
MLP = ("--model=mlp", "--dataset=synthetic:examples=600", "--validation=off", "--steps=2")

# Wrong with two replicas, or as many as it says, and what is said of it.
WRONG = {
    "twice": "adds to elements 0 to",
    "added-again": "which is already in there",
    "missing": "lack what rank",
    "nothing": "lack what rank 1 had",
    "one-forgotten": "lack what rank",
    "shifted": "what belongs to",
    "swapped": "what belongs to",
    "outside": "outside the buffer, which has",
    "unasked-scratch": "outside the buffer, which has 0",
    "unwritten-scratch": "which nobody has written",
    "other-length": "the two ranges differ in length",
    "deadlock": "deadlock: ",
    "overwrites": "which another step of the same round writes",
    "too-early": "which another step of the same round reads",
    "wrong-peer": "which receives less from rank 0",
    "never-sent": "which sends nothing to rank 0",
    "other-counts": "as that message",
    "to-itself": "its peer is the rank itself",
    "no-such-rank": "and the world has ranks 0 to",
    "no-such-step": "there is no such step",
    "impure": "describes another schedule when it is asked a second time",
    "one-declines": "declines what rank 0 describes",
    "fails-silently": "build_schedule fails: it gives no reason",
    "endless-steps": "steps and rounds",
    "endless-rounds": "steps and rounds",
    "endless-memory": "scratch",
}
# In worlds of three ranks.
WRONG_OF_3 = {
    "rest-forgotten": "lack",
    "three-ranks": "which is already in there",
    "other-order": "added in another order than at rank 0",
    "wrong-peer": "sends",
}


class Broken(ProgramTest):
    def refused_quickly(self, code, *arguments, says=()):
        begin = time.monotonic()
        outcome = self.lockstep(*arguments, FAULTS)
        self.assertEqual(outcome.code, code, outcome.out + outcome.err)
        # A line of progress comes after ten seconds, which a slow machine needs.
        errors = [line for line in outcome.err.splitlines() if "NOT REAL DATA" not in line and not line.endswith("being verified")]
        self.assertEqual(len(errors), 1, outcome.err)
        for text in says:
            self.assertIn(text, outcome.err)
        self.assertLess(time.monotonic() - begin, 60)
        return outcome

    def test_none_trains_or_is_timed(self):
        for name, says in WRONG.items():
            with self.subTest(name=name):
                world = 3 if name == "wrong-peer" else 2
                self.refused_quickly(FAILED, "train", "--quiet", "--strategy=mirrored:collective=" + name, f"--replicas={world}", *MLP,
                                     says=(name, says))
                self.refused_quickly(FAILED, "bench", name, "--bytes=4K", f"--replicas={world}", says=(name, says))
        for name, says in WRONG_OF_3.items():
            with self.subTest(name=name):
                self.refused_quickly(FAILED, "train", "--quiet", "--strategy=mirrored:collective=" + name, "--replicas=3", *MLP,
                                     says=(name, says))

    def test_none_is_simulated_where_it_is_wrong(self):
        for world, wrong in ((2, WRONG), (4, WRONG), (3, WRONG_OF_3)):
            for name in wrong:
                says = "the schedule never ends" if name in ("endless-steps", "endless-rounds") else "is wrong and is not simulated"
                if (name, world) != ("wrong-peer", 2):
                    with self.subTest(name=name, world=world):
                        self.refused_quickly(FAILED, "simulate", name, f"--world={world}", "--bytes=4000", says=(name, says))

    def test_a_describe_that_hangs_is_ended(self):
        says = ("collective hangs: build_schedule for rank 0 of 2 has not returned after 1 s",)
        self.refused_quickly(PEER_LOST, "train", "--quiet", "--strategy=mirrored:collective=hangs", "--replicas=2", "--deadline=1", *MLP,
                             says=says)
        self.refused_quickly(PEER_LOST, "bench", "hangs", "--bytes=4K", "--deadline=1", says=says)
        self.refused_quickly(FAILED, "simulate", "hangs", "--world=2", "--deadline=1", says=says)

    def test_a_broadcast_from_the_wrong_root_does_not_place_parameters(self):
        self.refused_quickly(FAILED, "train", "--quiet", "--strategy=mirrored:collective=wrong-root", "--replicas=2", *MLP,
                             says=("wrong-root", "broadcast", "root 0", "instead of what rank 0 had"))
        self.refused_quickly(FAILED, "simulate", "wrong-root", "--operation=broadcast", says=("wrong-root", "instead of what rank 0 had"))

    def test_one_that_is_right_in_its_world_trains_and_is_simulated_there(self):
        for name, worlds in (("three-ranks", (2, 4)), ("large-worlds", (2, 4)), ("few-elements", (2, 3)), ("other-order", (2,))):
            for world in worlds:
                with self.subTest(name=name, world=world):
                    report = self.train(FAULTS, "--strategy=mirrored:collective=" + name, f"--replicas={world}", *MLP)
                    self.assertEqual((report["collective"], report["schedule_check"]), (name, "verified"))
                    outcome = self.lockstep("simulate", name, f"--world={world}", "--bytes=4000", FAULTS)
                    self.assertEqual((outcome.code, outcome.err), (DONE, ""))
        self.refused_quickly(FAILED, "train", "--quiet", "--strategy=mirrored:collective=large-worlds", "--replicas=5", *MLP,
                             says=("large-worlds",))
        self.refused_quickly(FAILED, "simulate", "large-worlds", "--world=5", says=("large-worlds", "rank 0"))

    def test_one_that_is_wrong_for_some_counts_is_refused_for_these(self):
        for name, right, wrong in (("odd-counts", 4000, 4004), ("few-elements", 32, 12), ("rest-forgotten", 4000, 4012)):
            with self.subTest(name=name):
                outcome = self.lockstep("simulate", name, "--world=8", f"--bytes={right}", FAULTS)
                self.assertEqual((outcome.code, outcome.err), (DONE, ""))
                self.refused_quickly(FAILED, "simulate", name, "--world=8", f"--bytes={wrong}",
                                     says=(name, f"of {wrong // 4} elements"))

    def test_the_command_that_a_refusal_names_shows_it(self):
        """As it stands: with the file of a collective from --plugin-path, and with its options."""
        hostile = ("hostile-collective:fault=build_schedule-twice", "--plugin-path=" + os.environ["LOCKSTEP_HOSTILE_FOLDER"])
        for name, path in (("twice", FAULTS), hostile):
            for refused in (("train", "--quiet", "--strategy=" + name, "--replicas=2", *MLP),
                            ("simulate", name, "--world=4", "--bytes=4K"), ("bench", name, "--replicas=2", "--bytes=4K")):
                with self.subTest(name=name, command=refused[0]):
                    outcome = self.lockstep(*refused, path)
                    self.assertEqual(outcome.code, FAILED, outcome.err)
                    begin = outcome.err.index("lockstep verify ")
                    command = outcome.err[begin:outcome.err.index(" shows it")].split()[1:]
                    shown = self.lockstep(*command)
                    self.assertEqual(shown.code, FAILED, shown.err)
                    self.assertIn(outcome.err[:begin].rsplit(": ", 1)[1].split(";")[0], shown.err)


class Checked(ProgramTest):
    def test_the_report_says_how_the_schedules_were_checked(self):
        for replicas, strategy, expected in ((1, "one-device", "none"), (2, "ring", "verified"), (3, "mirrored:collective=tree", "verified"),
                                             (2, "central-storage", "none"), (2, "parameter-server", "none")):
            with self.subTest(strategy=strategy):
                report = self.train("--strategy=" + strategy, f"--replicas={replicas}", *MLP)
                self.assertEqual(report["schedule_check"], expected)

    def test_simulate_says_how_far_it_verified(self):
        path = self.path("rows.json")
        outcome = self.lockstep("simulate", "ring", "--world=2048", "--bytes=1M", "--json=" + path)
        self.assertEqual(outcome.code, DONE, outcome.err)
        self.assertIn("ring, 2048 ranks: verified up to 1024 ranks", outcome.err)
        self.assertEqual([row["verified_world"] for row in read_json(path)["rows"]], [1024])

    def test_a_world_too_large_for_the_memory_is_refused_at_once(self):
        begin = time.monotonic()
        outcome = self.lockstep("simulate", "ring", "--world=1048576", "--bytes=1G")
        self.assertEqual(outcome.code, 2, outcome.err)
        for text in ("ring: 1048576 ranks of 4194300 steps or more", "need at least 16384.0 GiB", "choose a smaller world"):
            self.assertIn(text, outcome.err)
        self.assertLess(time.monotonic() - begin, 60)  # all ranks take hours


if __name__ == "__main__":
    main()
