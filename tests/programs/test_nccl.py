# SPDX-License-Identifier: Apache-2.0
"""--strategy=nccl with the real command: on this machine as it is, and on the fakes of CUDA and NCCL, which are
NEITHER A GPU NOR NCCL (tests/support/nccl-fake).
"""
import fcntl
import os
import re
import signal
import subprocess
import time

from support import BAD_INPUT, DONE, FAILED, LOCKSTEP, PEER_LOST, TERMINATED, UNAVAILABLE, USAGE, ProgramTest, free_ports, has_checkpoint, has_driver, main, read_json

DOUBLES = os.environ["LOCKSTEP_NCCL_FAKE"] + ":" + os.environ["LOCKSTEP_CUDA_FAKE"]
MLP = ("--model=mlp", "--dataset=synthetic", "--validation=off")
LOSS_TOLERANCE = 5e-6  # float32, added in another order
WIRE_TOLERANCE = 5e-3  # gradients rounded to 2^-9 of them, at other places, over eight steps


class Here(ProgramTest):
    """The collective as it was built, on this machine."""

    def setUp(self):
        super().setUp()
        if has_driver():
            self.skipTest("this machine has NVIDIA's driver: its absence cannot be tried")

    def test_it_says_in_one_line_what_is_missing(self):
        self.refused(UNAVAILABLE, "train", "--strategy=nccl", *MLP, says=("collective-nccl.so cannot run here", "no driver"))
        timed = self.lockstep("bench", "--bytes=1K", "--seconds=0.01", "--replicas=2")
        self.assertRegex(timed.out, "(?m)^# nccl is left out: no driver: ")
        listed = self.lockstep("plugins").out.splitlines()
        at = next(i for i, line in enumerate(listed) if line.split()[:2] == ["collective", "nccl"])
        self.assertIn("not available", listed[at])
        self.assertIn("no driver", listed[at + 1])


class OnDoubles(ProgramTest):

    def setUp(self):
        super().setUp()
        print("on the fakes, which are NEITHER A GPU NOR NCCL:", self.id().split(".")[-1], flush=True)

    def environment(self, settings):
        settings = {"CUDA_FAKE_DEVICES": 2, **settings}
        return {name: str(value) for name, value in settings.items()}

    def on_doubles(self, *arguments, strategy="nccl", device="cuda", **settings):
        return self.train("--plugin-path=" + DOUBLES, "--device=" + device, "--strategy=" + strategy, *arguments,
                          environment=self.environment(settings))

    def refused_on_doubles(self, code, *arguments, says=(), **settings):
        return self.refused(code, *arguments, "--plugin-path=" + DOUBLES, says=says, environment=self.environment(settings))


class Fakes(OnDoubles):
    """On the fakes: NEITHER A GPU NOR NCCL."""

    def test_two_gpus_train_as_one(self):
        # The third: shares of 3 and 2, and in the last batch of an epoch of 2 and 2, which both ranks must record at once.
        # The last: evaluations on one rank alone, after which both must take the same set of input.
        for streams, model, dataset, batch, validation in (
                ("thread", "cnn", "synthetic", 6, "off"), ("deferred", "mlp", "synthetic", 6, "off"),
                ("thread", "mlp", "synthetic:examples=14", 5, "off"), ("thread", "mlp", "synthetic:examples=6", 2, "on")):
            options = ("--model=" + model, "--dataset=" + dataset, "--validation=" + validation, "--epochs=4", "--steps=10",
                       f"--batch={batch}", "--optimizer=sgd:learning_rate=0.01")
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

    def test_gradients_travel_in_16_bits_as_between_processors(self):
        options = ("--model=mlp", "--dataset=synthetic:examples=600", "--batch=63", "--steps=8", "--seed=3", "--validation=off",
                   "--check-replicas=1", "--replicas=2")
        whole = self.on_doubles(*options)
        for wire, symmetric, more in (("bfloat16", "on", ()), ("float16", "off", ("--loss-scale=dynamic",))):
            with self.subTest(wire):
                on_cpu = self.train("--device=cpu", "--strategy=ring", "--wire=" + wire, *options, *more)
                got = self.on_doubles("--wire=" + wire, *options, *more, strategy="nccl:symmetric=" + symmetric)
                self.assertEqual((got["wire"], got["collective"], got["schedule_check"]), (wire, "nccl", "known-answer"))
                self.assertEqual(len(set(got["parameter_hashes"])), 1)
                self.assertNotEqual(got["parameter_hashes"][0], whole["parameter_hashes"][0])
                # Losses travel as they are, and the weights before the first update are the same.
                self.assertAlmostEqual(got["losses"][0], whole["losses"][0], delta=LOSS_TOLERANCE)
                for one, other in zip(got["losses"], on_cpu["losses"]):
                    self.assertAlmostEqual(one, other, delta=WIRE_TOLERANCE)
                self.assertLess(got["communication"]["bytes_per_step_per_rank"], 0.51 * whole["communication"]["bytes_per_step_per_rank"])

    def test_what_nobody_would_see_does_not_travel_in_16_bits(self):
        for device in ((), ("--device=cuda",)):
            self.refused_on_doubles(USAGE, "train", "--strategy=nccl", *device, "--replicas=2", *MLP, "--wire=float16",
                                    says=("--wire: float16: a gradient beyond 65504 would become infinite in the memory of device 'cuda'",))
        got = self.train("--plugin-path=" + DOUBLES, "--strategy=nccl", "--replicas=2", "--steps=2", *MLP, "--wire=bfloat16",
                         environment=self.environment({}))
        self.assertEqual((got["device"], got["collective"], got["wire"]), ("cuda", "nccl", "bfloat16"))

    def test_symmetric_memory_changes_no_bits(self):
        options = (*MLP, "--steps=4", "--batch=8", "--optimizer=sgd:learning_rate=0.01")
        for replicas, device, recording, streams in ((2, "cuda", "recorded whole", "thread"), (4, "cuda", "recorded whole", "deferred"),
                                                     (2, "cuda:recording=off", "not recorded", "deferred")):
            with self.subTest(replicas=replicas, device=device):
                found = [self.on_doubles(*options, f"--replicas={replicas}", strategy="nccl:symmetric=" + symmetric, device=device,
                                         CUDA_FAKE_DEVICES=replicas, CUDA_FAKE_STREAMS=streams) for symmetric in ("on", "off")]
                self.assertTrue(all(report["recording"].startswith(recording) for report in found))
                self.assertEqual(len({hash for report in found for hash in report["parameter_hashes"]}), 1)

    def test_gradients_are_registered_or_it_is_an_error(self):
        for symmetric, windows, says in (("on", 1, "symmetric=on: NCCL makes no window on rank "),
                                         ("auto", 2, "registering memory (symmetric=off does without): NCCL answers")):
            self.refused_on_doubles(UNAVAILABLE if windows == 1 else FAILED, "train", "--quiet", "--strategy=nccl:symmetric=" + symmetric,
                                    "--device=cuda", "--replicas=2", *MLP, NCCL_FAKE_NO_WINDOWS=windows, says=(says,))

    def test_an_old_library_registers_nothing_and_says_so(self):
        old = {"NCCL_FAKE_VERSION": 22609}
        why = "gradients are not in symmetric memory: that needs NCCL 2.27 or newer, this is 2.26.9"
        run = self.lockstep("train", "--plugin-path=" + DOUBLES, "--strategy=nccl", "--device=cuda", "--replicas=2", "--steps=3", *MLP,
                            "--verbose", environment=self.environment(old))
        self.assertEqual((run.code, run.err.count(why)), (DONE, 1), run.err)
        for option in ("symmetric=on", "policy=efficiency"):
            self.refused_on_doubles(UNAVAILABLE, "train", "--strategy=nccl:" + option, "--device=cuda", "--replicas=2", *MLP,
                                    says=(option + " needs NCCL 2.27 or newer, this is 2.26.9",), **old)

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


class Workers(OnDoubles):
    """Workers that are started by hand, each with GPUs of its own: NEITHER A GPU NOR NCCL."""
    MODEL = ("--model=mlp", "--dataset=synthetic:shape=28x28x1,classes=10,examples=300", "--validation=off", "--threads=1",
             "--batch=60", "--optimizer=sgd:learning_rate=0.01")
    SECONDS = 60
    device = ("--device=cuda",)

    def start(self, *workers, **common):
        """One process for each: options and variables. Where no local rank is said, it is the rank."""
        address = f"127.0.0.1:{free_ports(1)[0]}"
        self.processes = []
        self.addCleanup(lambda: [process.kill() for process in self.processes])
        for rank, (options, variables) in enumerate(workers):
            own = {"LOCKSTEP_RANK": rank, "LOCKSTEP_WORLD_SIZE": len(workers), "LOCKSTEP_ADDRESS": address, "LOCKSTEP_LOCAL_RANK": rank,
                   "LOCKSTEP_LOCAL_WORLD_SIZE": len(workers), **common, **variables}
            own = {name: value for name, value in own.items() if value is not None}
            self.processes.append(subprocess.Popen(
                [LOCKSTEP, "train", "--plugin-path=" + DOUBLES, *self.device, *self.MODEL, *options], env={**os.environ, **self.environment(own)},
                text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.folder))

    def finish(self):
        """Exit codes, and what each worker has written to stderr."""
        errors = [process.communicate(timeout=self.SECONDS)[1] for process in self.processes]
        return [process.returncode for process in self.processes], errors

    def check_equal_to_one_process(self, replicas, *workers, **common):
        """The same bits as from as many replicas in one process, and the GPUs that each worker says that it takes."""
        alone = self.on_doubles(*self.MODEL, "--steps=4", f"--replicas={replicas}", CUDA_FAKE_DEVICES=replicas)
        path = self.path("workers.json")
        self.start(*[(("--report=" + path, "--verbose", "--steps=4", *options), variables) for options, variables in workers], **common)
        codes, errors = self.finish()
        self.assertEqual(codes, [DONE] * len(workers), errors)
        report = read_json(path)
        self.assertEqual((report["strategy"], report["collective"]), ("multi-worker-mirrored", "nccl"))
        self.assertEqual((report["workers"], report["replicas"]), (len(workers), replicas))
        self.assertEqual((report["recording"], report["schedule_check"]), ("recorded whole", "known-answer"))
        self.assertEqual(report["losses"], alone["losses"])
        self.assertEqual(report["parameter_hashes"], alone["parameter_hashes"])
        return [[line.split("takes ")[1].split(":")[0] for line in error.splitlines() if " takes " in line] for error in errors]

    def test_2_and_4_processes_have_the_bits_of_one(self):
        for count, streams in ((2, "thread"), (4, "deferred")):
            with self.subTest(count=count, streams=streams):
                taken = self.check_equal_to_one_process(count, *[((), {})] * count, CUDA_FAKE_DEVICES=count, CUDA_FAKE_STREAMS=streams)
                self.assertEqual(taken, [[f"1 of {count} devices, from number {i}"] for i in range(count)])

    def by_default(self, *options, workers=(((), {}),) * 2, **common):
        """Without --device: the report, and the lines about the device on each worker."""
        self.device = ()
        path = self.path("default.json")
        self.start(*[(("--report=" + path, "--steps=4", *options, *own), variables) for own, variables in workers], **common)
        codes, errors = self.finish()
        self.assertEqual(codes, [DONE] * len(workers), errors)
        return read_json(path), [[line for line in error.splitlines() if "--device: " in line] for error in errors]

    def test_without_a_device_all_workers_take_the_same(self):
        got, lines = self.by_default()
        self.assertEqual((got["device"], got["collective"], lines), ("cuda", "nccl", [[], []]))
        for options, gpus, why in (((), 1, "both on GPU"),
                                   (("--strategy=ring",), 2, "which 'shared-memory' does not reach"), (("--elastic=1:4",), 2, "--elastic")):
            with self.subTest(why=why):
                got, lines = self.by_default(*options, CUDA_FAKE_DEVICES=gpus)
                self.assertEqual((got["device"], got["collective"], got["transport"]), ("cpu", "ring", "shared-memory"))
                self.assertEqual((len(lines[0]), lines[1]), (1, []), lines)
                self.assertIn("cpu, because cuda ", lines[0][0])
                self.assertIn(why, lines[0][0])
                self.device = ("--device=cpu",)
                path = self.path("named.json")
                self.start(*[(("--report=" + path, "--steps=4", *options), {})] * 2)
                self.assertEqual(self.finish()[0], [DONE] * 2)
                self.assertEqual(got["parameter_hashes"], read_json(path)["parameter_hashes"])

    def test_a_worker_without_a_gpu_is_refused_by_name(self):
        self.device = ()
        self.start(((), {}), ((), {"CUDA_FAKE_INIT": 100}))
        codes, errors = self.finish()
        self.assertEqual(codes, [USAGE] * 2, errors)
        for error in errors:
            self.assertRegex(error, r"worker 1 \(.*\) has --device cpu, but worker 0 \(.*\) has cuda by default")

    def test_workers_of_a_host_share_its_gpus(self):
        for gpus, shares in ((4, ("2 of 4 devices, from number 0", "2 of 4 devices, from number 2")),
                             (3, ("2 of 3 devices, from number 0", "1 of 3 devices, from number 2"))):
            with self.subTest(gpus=gpus):
                taken = self.check_equal_to_one_process(gpus, ((), {}), ((), {}), CUDA_FAKE_DEVICES=gpus, CUDA_FAKE_STREAMS="deferred")
                self.assertEqual(taken, [[share] for share in shares])

    def test_devices_that_are_named_or_given_are_taken(self):
        taken = self.check_equal_to_one_process(3, (("--devices=1",), {}), (("--devices=2,0",), {}), CUDA_FAKE_DEVICES=3,
                                                CUDA_FAKE_STREAMS="deferred")
        self.assertEqual(taken, [[], []])
        # A launcher that shows each worker GPUs of its own, with and without its local rank.
        for local in ({}, {"LOCKSTEP_LOCAL_RANK": None, "LOCKSTEP_LOCAL_WORLD_SIZE": None}):
            self.check_equal_to_one_process(2, *[((), {"CUDA_FAKE_FIRST": i}) for i in (5, 3)], CUDA_FAKE_DEVICES=1, CUDA_FAKE_STREAMS="deferred", **local)

    def start_timing(self, *workers, options=()):
        """Two workers, of which one finds engine 7 of cuDNN slow and the other engine 9; options of the device and variables of each."""
        self.MODEL = ("--model=cnn", "--dataset=synthetic", "--validation=off", "--threads=1", "--batch=4", "--steps=3", "--quiet")
        self.device = ()
        for rank in range(2):
            with open(self.path(f"{rank}.engines"), "w"):
                pass
        self.start(*[(("--device=cuda:" + device, "--timeline=" + self.path("timeline.json"), *options),
                      {"CUDA_FAKE_SLOW_ENGINE": 7 + 2 * rank, "CUDA_FAKE_ENGINES": self.path(f"{rank}.engines"), **own})
                     for rank, (device, own) in enumerate(workers)], CUDA_FAKE_DEVICES=2)
        return self.finish()

    def chosen(self):
        """The engines by which worker 0 computes convolutions."""
        spans = read_json(self.path("timeline.json"))["traceEvents"]
        return {found[1] for found in (re.match("cuDNN engine ([0-9]+)", span.get("args", {}).get("implementation", "")) for span in spans) if found}

    def ran(self, rank):
        """The engines that ran on a worker, when it was timing, too."""
        with open(self.path(f"{rank}.engines")) as file:
            return set(file.read().split())

    def test_worker_0_times_plans_and_all_take_its_choice(self):
        codes, errors = self.start_timing(("timing=on", {}), ("timing=on", {}))
        self.assertEqual(codes, [DONE] * 2, errors)
        self.assertIn("9", self.chosen())
        self.assertEqual(self.ran(1), self.chosen())
        self.assertLess(self.chosen(), self.ran(0))
        # Out of a file of worker 0, and then nobody times anything; the other worker has no such file.
        files = [self.path("0.plans"), self.path("1.plans")]
        codes, errors = self.start_timing(*[("timing=on,plans=" + file, {}) for file in files])
        self.assertEqual(codes, [DONE] * 2, errors)
        self.assertEqual([os.path.exists(file) for file in files], [True, False])
        chosen = self.chosen()
        for device in ("plans=", "timing=on,plans="):
            codes, errors = self.start_timing(*[(device + file, {"CUDA_FAKE_SLOW_ENGINE": 9}) for file in files])
            self.assertEqual(codes, [DONE] * 2, errors)
            self.assertEqual((self.chosen(), self.ran(0), self.ran(1)), (chosen,) * 3)

    def test_all_take_what_worker_0_takes_by_the_heuristics(self):
        """Whatever a file of another worker has, and what worker 0 has not in its own."""
        codes, errors = self.start_timing(*[("timing=on,plans=7.plans", {"CUDA_FAKE_SLOW_ENGINE": 7})] * 2)
        self.assertEqual(codes, [DONE] * 2, errors)
        taken, none = {"7.plans": self.chosen()}, "there is no such file"
        for plans in (("none", "none"), ("none", "7.plans"), ("7.plans", "none")):
            with self.subTest(plans=plans):
                codes, errors = self.start_timing(*[("plans=" + file, {}) for file in plans])
                self.assertEqual(codes, [DONE] * 2, errors)
                self.assertEqual([none in error for error in errors], [plans[0] == "none", False], errors)
                chosen = self.chosen()
                self.assertEqual((self.ran(0), self.ran(1), chosen), (chosen, chosen, taken.setdefault(plans[0], chosen)))

    def test_what_worker_0_does_longer_than_the_deadline_is_said(self):
        with open(self.path("0.plans.new"), "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # for which worker 0 waits 2 s
            codes, errors = self.start_timing(*[("timing=on,plans=0.plans", {})] * 2, options=("--deadline=1",))
        self.assertEqual(codes, [PEER_LOST] * 2, errors)
        self.assertIn("lost, last heard of in the choice of kernels for all workers: it did not come to the broadcast", errors[1])
        self.assertIn("cuda: worker 0 chooses kernels for all workers (timing=on), which took longer than --deadline=1; raise it", errors[1])

    def test_a_worker_with_another_gpu_times_plans_itself_and_says_so(self):
        codes, errors = self.start_timing(("timing=on", {}), ("timing=on", {"CUDA_FAKE_MULTIPROCESSORS": 114}))
        self.assertEqual(codes, [DONE] * 2, errors)
        says = "GPU 1: worker 0 has another GPU or another cuDNN, so this worker chooses plans of cuDNN itself where it must"
        self.assertEqual([error.count(says) for error in errors], [0, 1], errors)
        self.assertEqual(self.ran(1), self.ran(0))

    def test_workers_that_would_choose_otherwise_are_refused_by_name(self):
        codes, errors = self.start_timing(("timing=on", {}), ("timing=off", {}))
        self.assertEqual(codes, [USAGE] * 2, errors)
        for error in errors:
            self.assertRegex(error, r"worker 1 \(.*\) has the choices of --device \(fixed\), but worker 0 \(.*\) has timing=on")

    def test_a_damaged_file_of_plans_ends_all_by_its_name(self):
        with open(self.path("0.plans"), "w") as file:
            file.write("plans\n")
        codes, errors = self.start_timing(("timing=on,plans=0.plans", {}), ("timing=on,plans=1.plans", {}))
        self.assertEqual(codes, [BAD_INPUT, PEER_LOST], errors)
        self.assertIn("plans=0.plans: line 1 is not what this version writes", errors[0])
        self.assertIn("worker 0", errors[1])

    def check_refused(self, says, *workers, **common):
        self.start(*workers, **common)
        codes, errors = self.finish()
        self.assertEqual(codes, [UNAVAILABLE] * len(workers), errors)
        for error in errors:
            self.assertEqual(error.count(says), 1, error)
            self.assertNotIn("Duplicate GPU", error)  # what the library says, which is not asked

    def test_two_ranks_on_one_gpu_are_refused_by_all(self):
        alone = {"LOCKSTEP_LOCAL_RANK": None, "LOCKSTEP_LOCAL_WORLD_SIZE": None}
        for says, workers, common in (
                ("rank 0 and rank 2, of two workers on one host, are both on GPU 0000:10:00.0; give each worker its own", [((), alone)] * 2, {}),
                ("rank 0 and rank 2, of two workers on one host, are both on GPU 0000:10:00.0", [((), {})] * 3, {}),
                ("rank 0 and rank 1, of two workers on one host, are both on GPU 0000:11:00.0", [(("--devices=1",), {})] * 2, {}),
                ("rank 1 and rank 2 are both on GPU 1; use hierarchical-copy, or one replica a GPU", [((), {}), (("--replicas=2",), {})], {})):
            with self.subTest(says=says):
                self.check_refused(says, *workers, **common)

    def test_elastic_is_refused_before_anybody_is_lost(self):
        self.start(*[(("--elastic=1:4",), {})] * 2)
        codes, errors = self.finish()
        self.assertEqual(codes, [USAGE] * 2, errors)
        for error in errors:
            self.assertIn("--elastic: '1:4': device 'cuda' has steps under way that cannot be taken back", error)

    def test_sigterm_to_one_ends_all_at_the_same_step(self):
        path = self.path("report.json")
        self.start(*[(("--epochs=100000", "--quiet", "--report=" + path, "--checkpoint-dir=checkpoints", "--checkpoint-seconds=0.1"), {})] * 2)
        self.wait_for(self.has_checkpoint, processes=self.processes)
        self.processes[1].terminate()
        codes, errors = self.finish()
        self.assertEqual(codes, [TERMINATED] * 2, errors)
        report = read_json(path)
        self.assertEqual(report["status"], "interrupted")
        self.assertEqual(len(set(report["parameter_hashes"])), 1)

    def has_checkpoint(self):
        return has_checkpoint(self.path("checkpoints"))

    def lose(self, number, which, *options, ready, **common):
        """A worker gets a signal; the seconds that the others take to end with PEER_LOST, and name it."""
        self.start(*[(("--epochs=100000", "--quiet", "--lost-after=1", *options), {})] * 3, CUDA_FAKE_DEVICES=3, **common)
        self.wait_for(ready, processes=self.processes)
        start = time.monotonic()
        self.processes[which].send_signal(number)
        others = [i for i in range(3) if i != which]
        for i in others:
            self.processes[i].wait(self.SECONDS)
        took = time.monotonic() - start
        self.processes[which].kill()
        codes, errors = self.finish()
        self.assertEqual([codes[i] for i in others], [PEER_LOST] * 2, errors)
        self.assertLess(took, 5)
        for i in others:
            self.assertRegex(errors[i], rf"worker {which} \(.*\) lost")
        self.assertEqual(self.sockets(), 0)

    def sockets(self):
        """What the fake of NCCL listens at: of these processes."""
        with open("/proc/net/unix") as file:
            names = file.read()
        return sum(f"@nccl-fake double {process.pid} " in names for process in self.processes)

    def test_a_worker_that_is_killed_or_stopped_is_named(self):
        folder = self.path("checkpoints")
        for number, which, streams, blocks in ((signal.SIGKILL, 1, "thread", 1), (signal.SIGKILL, 0, "deferred", 3), (signal.SIGSTOP, 2, "thread", 3),
                                               (signal.SIGKILL, 1, "thread", 8)):
            with self.subTest(number=number, which=which, streams=streams, blocks=blocks):
                self.lose(number, which, "--microbatches=%d" % blocks, "--checkpoint-dir=" + folder, "--checkpoint-seconds=0.1", ready=self.has_checkpoint, CUDA_FAKE_STREAMS=streams)
                for name in os.listdir(folder):
                    os.unlink(os.path.join(folder, name))

    def test_a_worker_that_is_lost_while_they_connect_is_named(self):
        for number in (signal.SIGKILL, signal.SIGSTOP):
            self.lose(number, 2, ready=lambda: self.sockets() == 1, NCCL_FAKE_MISSING=1)


if __name__ == "__main__":
    main()
