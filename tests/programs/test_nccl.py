# SPDX-License-Identifier: Apache-2.0
"""--strategy=nccl with the real command: on this machine as it is, and on the fakes of CUDA and NCCL, which are
NEITHER A GPU NOR NCCL (tests/support/nccl-fake).
"""
import ctypes
import os
import unittest

from support import DONE, FAILED, PEER_LOST, UNAVAILABLE, USAGE, ProgramTest, main

DOUBLES = os.environ["LOCKSTEP_NCCL_FAKE"] + ":" + os.environ["LOCKSTEP_CUDA_FAKE"]
MLP = ("--model=mlp", "--dataset=synthetic", "--validation=off")
LOSS_TOLERANCE = 5e-6  # float32, added in another order


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


class Here(ProgramTest):
    """The collective as it was built, on this machine."""

    def setUp(self):
        super().setUp()
        if has_driver():
            self.skipTest("this machine has NVIDIA's driver: its absence cannot be tried")

    def test_it_says_in_one_line_what_is_missing(self):
        self.refused(UNAVAILABLE, "train", "--strategy=nccl", *MLP, says=("collective-nccl.so cannot run here", "no driver"))
        listed = self.lockstep("plugins").out.splitlines()
        at = next(i for i, line in enumerate(listed) if line.split()[:2] == ["collective", "nccl"])
        self.assertIn("not available", listed[at])
        self.assertIn("no driver", listed[at + 1])


class Fakes(ProgramTest):
    """On the fakes: NEITHER A GPU NOR NCCL."""

    def setUp(self):
        super().setUp()
        print("on the fakes, which are NEITHER A GPU NOR NCCL:", self.id().split(".")[-1], flush=True)

    def environment(self, settings):
        settings = {"CUDA_FAKE_DEVICES": 2, **settings}
        return {name: str(value) for name, value in settings.items()}

    def on_doubles(self, *arguments, strategy="nccl", **settings):
        return self.train("--plugin-path=" + DOUBLES, "--device=cuda", "--strategy=" + strategy, *arguments,
                          environment=self.environment(settings))

    def refused_on_doubles(self, code, *arguments, says=(), **settings):
        return self.refused(code, *arguments, "--plugin-path=" + DOUBLES, says=says, environment=self.environment(settings))

    def test_two_gpus_train_as_one(self):
        # The last: shares of 3 and 2, and in the last batch of an epoch of 2 and 2, which both ranks must record at once.
        for streams, model, dataset, batch in (("thread", "cnn", "synthetic", 6), ("deferred", "mlp", "synthetic", 6),
                                               ("thread", "mlp", "synthetic:examples=14", 5)):
            options = ("--model=" + model, "--dataset=" + dataset, "--validation=off", "--epochs=4", "--steps=10", f"--batch={batch}",
                       "--optimizer=sgd:learning_rate=0.01")
            wanted = self.train("--device=reference", *options)["losses"]
            got = self.on_doubles("--replicas=2", *options, CUDA_FAKE_STREAMS=streams)
            self.assertEqual((got["strategy"], got["collective"]), ("mirrored", "nccl"))
            self.assertEqual(got["recording"], "recorded whole")
            self.assertIsNone(got["transport"])
            self.assertEqual(got["schedule_check"], "known-answer")
            self.assertEqual(len(set(got["parameter_hashes"])), 1)
            self.assertEqual(len(got["parameter_hashes"]), 2)
            self.assertIn("NCCL 2.28.9", [plugin.get("library") for plugin in got["plugins"]])
            for step, (a, b) in enumerate(zip(got["losses"], wanted)):
                self.assertAlmostEqual(a, b, delta=LOSS_TOLERANCE, msg=f"step {step + 1}")

    def test_two_replicas_on_one_gpu_are_refused_by_name(self):
        self.refused_on_doubles(UNAVAILABLE, "train", "--strategy=nccl", "--device=cuda", "--replicas=2", *MLP, CUDA_FAKE_DEVICES=1,
                                says=("rank 0 and rank 1 are both on GPU 0; use hierarchical-copy, or one replica a GPU",))

    def test_16_bits_on_the_wire_are_refused_by_name(self):
        self.refused_on_doubles(USAGE, "train", "--strategy=nccl", "--device=cuda", "--replicas=2", *MLP, "--wire=bfloat16",
                                CUDA_FAKE_DEVICES=2, says=("--wire: bfloat16: collective 'nccl' is native and decides itself",))

    def test_memory_of_the_host_is_refused_by_name(self):
        self.refused_on_doubles(UNAVAILABLE, "train", "--strategy=nccl", "--device=cpu", "--replicas=2", *MLP, says=("--device=cuda",))

    def test_a_transport_has_no_place_in_it(self):
        self.refused_on_doubles(USAGE, "train", "--strategy=nccl:transport=local", "--device=cuda", *MLP,
                                says=("is native and uses no transport",))

    def test_a_lost_connection_ends_the_run_with_one_line(self):
        self.refused_on_doubles(PEER_LOST, "train", "--quiet", "--strategy=nccl", "--device=cuda", "--replicas=2", "--steps=30", *MLP,
                                NCCL_FAKE_ERROR=11, says=("remote process exited",))

    def test_a_loss_that_is_not_finite_is_explained_though_a_rank_is_ahead(self):
        for streams in ("deferred", "thread"):
            self.refused_on_doubles(FAILED, "train", "--quiet", "--strategy=nccl", "--device=cuda", "--replicas=2", "--steps=20", "--batch=6",
                                    *MLP, "--optimizer=sgd:learning_rate=1e30", CUDA_FAKE_STREAMS=streams,
                                    says=("step 2: the loss is not finite; the first value that is not finite is in",))

    def test_a_library_that_adds_wrongly_does_not_train_and_is_not_timed(self):
        said = ("collective nccl is wrong: all-reduce (sum) of", "on known values: rank ", "the first is element ")
        for streams in ("deferred", "thread"):
            self.refused_on_doubles(FAILED, "train", "--quiet", "--strategy=nccl", "--device=cuda", "--replicas=2", "--steps=3",
                                    *MLP, NCCL_FAKE_TWICE=1, CUDA_FAKE_STREAMS=streams, says=said)
        self.refused_on_doubles(FAILED, "bench", "nccl", "--device=cuda", "--bytes=4K", NCCL_FAKE_TWICE=1, says=said)

    def test_a_rank_that_never_joins_ends_it_at_the_deadline(self):
        self.refused_on_doubles(PEER_LOST, "train", "--quiet", "--strategy=nccl", "--device=cuda", "--replicas=2", "--deadline=1", *MLP,
                                NCCL_FAKE_MISSING=1, says=("not connected after 1.0 s",))

    def test_its_traits_are_listed_and_it_has_no_schedule(self):
        shown = self.lockstep("plugins", "nccl", "--plugin-path=" + DOUBLES, environment=self.environment({}))
        self.assertEqual(shown.code, DONE, shown.err)
        for text in ("runs:         NCCL 2.28.9", "memory:       cuda", "ranks:        one on a device"):
            self.assertIn(text, shown.out)
        for command in ("verify", "simulate"):
            self.refused_on_doubles(UNAVAILABLE, command, "nccl", says=("nccl is native: it has no schedule",))


if __name__ == "__main__":
    main()
