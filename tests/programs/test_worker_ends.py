# SPDX-License-Identifier: Apache-2.0
"""How a training of several workers ends: together, whoever asked for it or failed; and what each of them says.

The workers are started by hand. What kills them has the machine for itself (programs/launch has the rest).
"""
import ctypes
import fcntl
import os
import random
import re
import shutil
import signal
import socket
import stat
import subprocess
import threading
import time
import unittest

from support import BAD_INPUT, DONE, FAILED, INTERRUPTED, LOCKSTEP, PEER_LOST, TERMINATED, USAGE, ProgramTest, free_ports, has_checkpoint, is_connected, main, read_json, tensors, write_json

SYNTHETIC = "--dataset=synthetic:shape=28x28x1,classes=10,examples=300"
MODEL = ("--model=mlp", SYNTHETIC, "--threads=1", "--batch=60", "--optimizer=sgd:learning_rate=0.01")
# Hours, if nobody ends it.
LONG = ("--model=mlp", "--dataset=synthetic:shape=28x28x1,classes=10,examples=20000", "--threads=1", "--epochs=100000", "--validation=off")
SECONDS = 60
FAULTS = os.environ.get("LOCKSTEP_FAULTS", "")
SANITIZE = os.environ.get("LOCKSTEP_SANITIZE", "none")


def shut_down_local_sockets(pid):
    """Those of another process, as its owner may."""
    process = os.pidfd_open(pid)
    for name in os.listdir(f"/proc/{pid}/fd"):
        copy = ctypes.CDLL(None).syscall(438, process, int(name), 0)  # pidfd_getfd
        if copy >= 0 and stat.S_ISSOCK(os.fstat(copy).st_mode):
            with socket.socket(fileno=copy) as own:
                if own.family == socket.AF_UNIX:
                    own.shutdown(socket.SHUT_RDWR)
        elif copy >= 0:
            os.close(copy)
    os.close(process)


class Workers(ProgramTest):
    folders = None  # of each worker; None: all have that of the test

    def start(self, *workers, **variables):
        """One process for each command line."""
        address = f"127.0.0.1:{free_ports(1)[0]}"
        self.processes = []
        for rank, arguments in enumerate(workers):
            own = dict(LOCKSTEP_RANK=str(rank), LOCKSTEP_WORLD_SIZE=str(len(workers)), LOCKSTEP_ADDRESS=address)
            self.processes.append(subprocess.Popen([LOCKSTEP, *arguments], env=dict(os.environ, **own, **variables), text=True,
                                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                                   cwd=self.folders[rank] if self.folders else self.folder))
        self.addCleanup(lambda: [process.kill() for process in self.processes])

    def finish(self):
        """Exit codes and what each has written to stderr."""
        self.texts = [process.communicate(timeout=SECONDS) for process in self.processes]
        return [process.returncode for process in self.processes], [text[1] for text in self.texts]

    def work(self, *workers):
        self.start(*workers)
        return self.finish()

    def report(self, name="report.json"):
        return read_json(self.path(name))

    def check_epochs(self, report, whole):
        """Every example of a step that was made counts once, whoever has computed it and is lost now. Sums of gradients in another
        order may turn one example whose largest predictions are equal up to rounding."""
        self.assertEqual(len(report["epochs"]), len(whole["epochs"]))
        for one, other in zip(report["epochs"], whole["epochs"]):
            for key in set(other) - {"seconds", "examples_per_second"} - {key for key in other if key.startswith("val_")}:
                self.assertAlmostEqual(one[key], other[key], delta=1e-5 + 1 / other["examples"], msg=f"{key} of epoch {other['epoch']}")

    def wait_for_steps(self, checkpoints="checkpoints"):
        """Until there is a checkpoint."""
        self.wait_for(lambda: has_checkpoint(self.path(checkpoints)), processes=self.processes)


class Differences(Workers):
    """What is not the same on all workers is refused by all, with both values."""

    def check(self, says, one, other):
        codes, errors = self.work(("train", *one), ("train", *other))
        self.assertEqual(codes, [USAGE, USAGE], errors)
        for error in errors:
            for text in says:
                self.assertIn(text, error)
            self.assertNotIn("lost", error)  # all end for the same reason

    def test_options(self):
        for says, more in ((("--batch", "64", "60"), "--batch=64"), (("--epochs", "2"), "--epochs=2"), (("--seed", "5"), "--seed=5"),
                           (("--shuffle", "off", "on"), "--shuffle=off"), (("--strategy", "tree"), "--strategy=tree"),
                           (("--optimizer", "adam", "sgd"), "--optimizer=adam"),
                           (("--optimizer", "momentum=0.9", "momentum=0"), "--optimizer=sgd:learning_rate=0.01,momentum=0.9"),
                           (("--optimizer", "global_clipnorm=1"), "--optimizer=sgd:learning_rate=0.01,global_clipnorm=1"),
                           (("--optimizer", "use_ema"), "--optimizer=sgd:learning_rate=0.01,use_ema=on"),
                           (("--learning-rate-schedule", "cosine_decay", "(none)"), "--learning-rate-schedule=cosine_decay:decay_steps=9"),
                           (("--callback early_stopping:monitor=loss,patience=3", "(none)"), "--callback=early_stopping:patience=3,monitor=loss"),
                           (("--accumulate", "2"), "--accumulate=2"),
                           (("--metrics", "sparse_top_k"), "--metrics=accuracy,sparse_top_k_categorical_accuracy:k=3")):
            with self.subTest(more=more):
                name = more.split("=")[0] + "="
                self.check(says, MODEL, [word for word in MODEL if not word.startswith(name)] + [more])

    def test_what_is_the_same_in_other_words(self):
        """And what only worker 0 has, because it only looks."""
        plateau = "--callback=reduce_lr_on_plateau:monitor=loss,"
        self.check(("reduce_lr_on_plateau:monitor=loss,factor=0.5", "reduce_lr_on_plateau:monitor=loss,factor=0.25"),
                   (*MODEL, plateau + "factor=0.5"), (*MODEL, plateau + "factor=0.25"))
        top = "--metrics=sparse_top_k_categorical_accuracy:name=top,k="
        self.check(("--metrics", "top"), (*MODEL, top + "3"), (*MODEL, top + "2"))
        codes, errors = self.work(("train", *MODEL, plateau + "factor=0.50,patience=2", "--callback=csv_logger:filename=log.csv", "--log-every=1",
                                   "--loss=sparse_categorical_crossentropy:from_logits=on"),
                                  ("train", *MODEL, plateau + "patience=2,cooldown=0,factor=.5", "--quiet"))
        self.assertEqual(codes, [DONE, DONE], errors)

    def test_models_and_data(self):
        self.check(("--model", "linear", "mlp", "parameters"), MODEL, ("--model=linear", *MODEL[1:]))
        self.check(("--dataset", "300", "200"), MODEL, (MODEL[0], SYNTHETIC.replace("300", "200"), *MODEL[2:]))
        self.check(("--dataset", "random_flip=horizontal", "whose examples are"), MODEL, (MODEL[0], SYNTHETIC + ",random_flip=horizontal", *MODEL[2:]))

    def test_what_is_in_files(self):
        """Files of the same name in the folder of each worker."""
        self.folders = [self.path("one"), self.path("other")]
        for seed, folder in enumerate(self.folders):
            os.mkdir(folder)
            self.train(*MODEL, "--epochs=1", f"--seed={seed}", f"--save-weights={folder}/w.safetensors")
            for name, number in (("same", 7), ("table", seed)):
                with open(f"{folder}/{name}.csv", "w") as file:
                    file.write("x,label\n" + "".join(f"{i / 4 + number},{i % 2}\n" for i in range(100)))
        weights = (*MODEL, "--initial-weights=w.safetensors")
        self.check(("--initial-weights w.safetensors (", "but worker 0 has w.safetensors ("), weights, weights)
        self.check(("--initial-weights (none), but worker 0 has w.safetensors (",), weights, MODEL)
        table = ("--model=mlp", "--dataset=csv:file=table.csv,label=label", "--threads=1")
        self.check(("--dataset csv:file=table.csv,label=label, whose examples are ",), table, table)
        os.rename(self.folders[1] + "/same.csv", self.folders[1] + "/copy.csv")
        same = [("train", *table[:1], "--dataset=csv:" + data, *table[2:])
                for data in (self.folders[0] + "/same.csv", f"label=label,file={self.folders[1]}/copy.csv")]
        same[0] = tuple(word.replace("csv:", "csv:label=label,file=") for word in same[0])
        codes, errors = self.work(*same)
        self.assertEqual(codes, [DONE, DONE], errors)

    def test_strategies_of_one_process_are_refused(self):
        for strategy in ("mirrored", "central-storage", "mirrored:collective=ring"):
            codes, errors = self.work(*[("train", *MODEL, "--strategy=" + strategy)] * 2)
            self.assertEqual(codes, [USAGE, USAGE])
            self.assertIn("--strategy=multi-worker-mirrored", errors[1])
        codes, errors = self.work(*[("train", *MODEL, "--strategy=ring:transport=local")] * 2)
        self.assertEqual(codes, [USAGE, USAGE])
        self.assertIn("shared-memory", errors[0])

    def test_alone_on_request(self):
        codes, errors = self.work(*[("train", *MODEL, "--cluster=none", "--quiet")] * 2)
        self.assertEqual(codes, [DONE, DONE], errors)


class Failures(Workers):
    def test_a_loss_that_is_not_finite_fails_on_all_alike(self):
        codes, errors = self.work(*[("train", *MODEL[:-1], "--optimizer=sgd:learning_rate=1e30", "--epochs=9")] * 3)
        self.assertEqual(codes, [FAILED] * 3, errors)
        steps = [error.split("step ")[1].split(":")[0] for error in errors]
        self.assertEqual(len(set(steps)), 1, errors)

    def test_one_that_fails_is_named_by_the_others(self):
        missing = ("--model=mlp", "--dataset=mnist:dir=nowhere", *MODEL[2:])
        codes, errors = self.work(("train", *MODEL), ("train", *missing), ("train", *MODEL))
        self.assertEqual(codes, [PEER_LOST, BAD_INPUT, PEER_LOST], errors)
        self.assertIn("nowhere", errors[1])
        for error in (errors[0], errors[2]):
            self.assertIn("worker 1", error)
            self.assertNotIn("without a reason", error)

    def test_wrong_collectives_are_refused_by_all(self):
        """They are in tests/plugins/faults; those that hang or never end are tested in one process."""
        for name in ("added-again", "deadlock", "fails-silently", "impure", "missing", "nothing", "one-declines", "outside", "shifted", "too-early",
                     "twice", "unwritten-scratch", "wrong-peer", "wrong-root"):
            with self.subTest(name):
                start = time.monotonic()
                codes, errors = self.work(*[("train", *MODEL, "--strategy=" + name, "--plugin-path=" + FAULTS)] * 3)
                self.assertLess(time.monotonic() - start, 20)
                self.assertIn(FAILED, codes)
                for code, error in zip(codes, errors):  # who hears of another one first may end with that
                    self.assertIn(code, (FAILED, PEER_LOST), error)
                    self.assertIn(f"collective {name} is wrong and was not run: " if code == FAILED else " lost: it failed; see its log", error)

    def test_one_that_does_not_come_is_named(self):
        codes, errors = self.work(("train", *MODEL, "--join-deadline=1"), ("--version",), ("train", *MODEL, "--join-deadline=1"))
        self.assertEqual(codes, [PEER_LOST, DONE, PEER_LOST], errors)
        self.assertIn("worker 1", errors[0])


class Ends(Workers):
    def lose(self, number, which, count=3):
        """Sends a signal to a worker in its steps; the seconds that the others take to end, and what they say."""
        self.start(*[("train", *LONG, "--report=report.json", "--checkpoint-dir=checkpoints", "--checkpoint-seconds=0.2", "--quiet")] * count)
        self.wait_for_steps()
        start = time.monotonic()
        self.processes[which].send_signal(number)
        others = [i for i in range(count) if i != which]
        for i in others:
            self.processes[i].wait(SECONDS)
        took = time.monotonic() - start
        if number == signal.SIGSTOP:
            self.processes[which].kill()
        codes, errors = self.finish()
        return took, [codes[i] for i in others], [errors[i] for i in others]

    def test_a_worker_or_the_chief_is_killed(self):
        for which in (2, 0):
            took, codes, errors = self.lose(signal.SIGKILL, which)
            self.assertEqual(codes, [PEER_LOST] * 2, errors)
            self.assertLess(took, 5)
            for error in errors:
                self.assertRegex(error, rf"worker {which} \(.*\) lost")
                self.assertEqual(error.count("lockstep: error: "), 1, error)  # nothing but that
            self.check_checkpoints()

    def test_a_worker_is_stopped(self):
        took, codes, errors = self.lose(signal.SIGSTOP, 1)
        self.assertEqual(codes, [PEER_LOST] * 2, errors)
        self.assertLess(took, 5)
        for error in errors:
            self.assertIn("worker 1", error)
            self.assertIn("silent", error)

    def test_sigterm_to_one_ends_all_at_the_same_step_with_a_checkpoint(self):
        _, codes, errors = self.lose(signal.SIGTERM, 1)
        self.assertEqual(codes, [TERMINATED] * 2, errors)
        self.assertEqual(self.processes[1].returncode, TERMINATED)
        report = self.report()
        self.assertEqual(report["status"], "interrupted")
        self.assertEqual(len(set(report["parameter_hashes"])), 1)
        self.assertIn(f"checkpoint-{report['steps']:08}.safetensors", os.listdir(self.path("checkpoints")))

    def interrupt_beside_a_stopped_one(self, *more):
        """Worker 2 cannot do its part of the step that is to be the last one."""
        self.start(*[("train", *LONG, "--checkpoint-dir=checkpoints", "--checkpoint-seconds=0.2", "--quiet", *more)] * 3)
        self.wait_for_steps()
        self.processes[2].send_signal(signal.SIGSTOP)
        time.sleep(0.2)
        self.processes[1].send_signal(signal.SIGTERM)

    def end_the_stopped_one(self):
        self.processes[2].kill()
        return self.finish()

    def test_a_lost_worker_wins_over_an_interruption(self):
        self.interrupt_beside_a_stopped_one()
        start = time.monotonic()
        for process in self.processes[:2]:
            process.wait(SECONDS)
        self.assertLess(time.monotonic() - start, 5)
        codes, errors = self.end_the_stopped_one()
        self.assertEqual(codes[:2], [PEER_LOST] * 2, errors)
        for error in errors[:2]:
            self.assertIn("worker 2", error)

    def test_a_second_sigterm_ends_at_once(self):
        self.interrupt_beside_a_stopped_one("--lost-after=60")
        time.sleep(0.7)  # a signal that comes twice within half a second is one
        self.processes[1].send_signal(signal.SIGTERM)
        start = time.monotonic()
        for process in self.processes[:2]:
            process.wait(SECONDS)
        self.assertLess(time.monotonic() - start, 5)
        codes, errors = self.end_the_stopped_one()
        self.assertEqual(codes[:2], [PEER_LOST, -signal.SIGTERM], errors)
        self.assertIn("worker 1", errors[0])

    def check_checkpoints(self):
        folder = self.path("checkpoints")
        files = [name for name in os.listdir(folder) if name.endswith(".safetensors")]
        self.assertTrue(files)
        for name in files:
            self.assertTrue(tensors(os.path.join(folder, name)))
            os.unlink(os.path.join(folder, name))


class CutOff(Workers):
    @unittest.skipUnless(hasattr(os, "pidfd_open") and os.uname().machine == "x86_64", "pidfd_getfd is called by its number")
    def test_a_worker_is_cut_off_and_the_store_hears_all(self):
        """Their own connections are shut down, and not those to the store. Who sees that names the other one."""
        for count in (2, 3):
            self.start(*[("train", *LONG, f"--checkpoint-dir=cut{count}", "--checkpoint-seconds=0.2", "--lost-after=1", "--quiet")] * count)
            self.wait_for_steps(f"cut{count}")
            shut_down_local_sockets(self.processes[-1].pid)
            codes, errors = self.finish()
            self.assertEqual(codes, [PEER_LOST] * count, errors)
            for error in errors:
                self.assertRegex(error, r"worker \d (cannot be reached from this worker|\(.*\) lost)")
            self.assertIn("cannot be reached from this worker, although both reach the store of worker 0", "".join(errors))


class ElasticWorkers(Workers):
    """The losses stay those of a training in which nobody was lost: the global batch stays, and no step is lost."""
    OPTIONS = ("--model=mlp", "--dataset=synthetic:shape=28x28x1,classes=10,examples=30000", "--threads=1", "--batch=60", "--epochs=3",
               "--optimizer=sgd:learning_rate=0.0001", "--metrics=accuracy,sparse_top_k_categorical_accuracy:k=3")

    def start_elastic(self, count, *more, least=1):
        self.elastic = ("train", *self.OPTIONS, f"--elastic={least}:4", "--report=" + self.path("elastic.json"), "--verbose=1", *more)
        self.address = f"127.0.0.1:{free_ports(1)[0]}"
        self.processes = []
        self.reads = threading.Event()
        self.reads.set()
        for rank in range(count):
            self.add(rank, count)
        self.addCleanup(lambda: [process.kill() for process in self.processes])

    def add(self, rank, count, **more):
        own = dict(LOCKSTEP_RANK=str(rank), LOCKSTEP_WORLD_SIZE=str(count), LOCKSTEP_ADDRESS=self.address, **more)
        self.processes.append(subprocess.Popen([LOCKSTEP, *self.elastic], env=dict(os.environ, **own), text=True, cwd=self.folder,
                                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        fcntl.fcntl(self.processes[-1].stdout, fcntl.F_SETPIPE_SZ, 4096)  # see join()

    def join(self, rank, count):
        """A new worker, for which the training waits, however long it takes to start: nobody reads the lines of the chief (--log-every=1)
        until it is there, and after some seventy steps these have nowhere to go."""
        self.reads.clear()
        self.add(rank, count, LOCKSTEP_JOIN="1")
        self.wait_for(lambda: is_connected(self.processes[-1].pid) or self.processes[-1].poll() is not None)  # one that is refused ends soon
        self.reads.set()

    def check_losses(self, workers):
        whole = self.train(*self.OPTIONS, "--replicas=3", "--strategy=ring")
        report = self.report("elastic.json")
        self.assertEqual((report["status"], report["workers"], report["steps"]), ("done", workers, whole["steps"]))
        self.assertEqual(len(set(report["parameter_hashes"])), 1)
        self.assertEqual(len(report["losses"]), len(whole["losses"]))
        for step, (one, other) in enumerate(zip(report["losses"], whole["losses"])):
            self.assertAlmostEqual(one, other, delta=1e-5, msg=f"step {step + 1}")
        self.check_epochs(report, whole)

    def lines_of_the_chief(self, number=0):
        """What it prints, and when; a list that grows while it trains."""
        lines = []

        def read(stream):
            for line in stream.buffer.raw:  # nothing is read ahead
                lines.append((time.monotonic(), line.decode()))
                self.reads.wait()

        threading.Thread(target=read, args=(self.processes[number].stdout,), daemon=True).start()
        return lines

    def await_lines(self, lines, count):
        self.wait_for(lambda: len(lines) >= count)


class Elastic(ElasticWorkers):
    def test_a_worker_and_then_the_chief_are_lost(self):
        self.start_elastic(3, "--checkpoint-dir=checkpoints", "--checkpoint-steps=100", "--log-every=100")
        self.wait_for(lambda: has_checkpoint(self.path("checkpoints")))
        self.processes[2].kill()
        time.sleep(0.3)
        self.processes[0].kill()
        codes, errors = self.finish()
        self.assertEqual((codes[0], codes[1], codes[2]), (-signal.SIGKILL, DONE, -signal.SIGKILL), errors)
        self.assertIn("worker 2", errors[1])
        self.assertIn("continuing after step", errors[1])
        self.assertNotIn("lockstep: error: ", errors[1])
        self.assertIn("Epoch 3/3 - step 400/500", self.texts[1][0])  # it prints now
        self.check_losses(1)
        changes = self.report("elastic.json")["elastic"]
        self.assertEqual([(change["lost"], change["joined"], change["workers"]) for change in changes], [(1, 0, 2), (1, 0, 1)])
        said = int(re.findall(r"continuing after step (\d+)", errors[1])[-1])  # by worker 0 of those that are left
        self.assertLessEqual(changes[0]["step"], changes[1]["step"])
        self.assertEqual(changes[1]["step"], said)
        self.assertGreater(changes[1]["seconds"], 0)
        if changes[0]["seconds"] is None: # the chief was lost before training went on
            self.assertEqual(changes[0]["step"], changes[1]["step"])
        else:
            self.assertGreater(changes[0]["seconds"], 0)
        self.assertTrue(any(name.startswith("checkpoint-00001500") for name in os.listdir(self.path("checkpoints"))))

    def test_a_new_worker_with_other_options_leaves_the_others_alone(self):
        self.start_elastic(2, "--log-every=1", "--checkpoint-dir=checkpoints", "--checkpoint-steps=100")
        self.lines_of_the_chief()
        self.wait_for(lambda: has_checkpoint(self.path("checkpoints")))
        self.elastic = (*self.elastic, "--microbatches=2")
        self.join(1, 2)
        codes, errors = self.finish()
        self.assertEqual(codes, [DONE, DONE, USAGE], errors)
        self.assertIn("--microbatches", errors[2])
        self.assertIn("1 new", errors[0])
        self.check_losses(2)

    def test_below_the_least_an_interruption_is_obeyed(self):
        """The deadline is 10 s."""
        for number, code in ((signal.SIGTERM, TERMINATED), (signal.SIGINT, INTERRUPTED)):
            folder = f"checkpoints{number}"
            self.start_elastic(2, "--checkpoint-dir=" + folder, "--checkpoint-steps=100", least=2)
            self.wait_for(lambda: has_checkpoint(self.path(folder)))
            self.processes[1].kill()
            time.sleep(0.5)
            start = time.monotonic()
            self.processes[0].send_signal(number)
            self.assertEqual(self.processes[0].wait(SECONDS), code)
            self.assertLess(time.monotonic() - start, 4)
            codes, errors = self.finish()
            self.assertIn("worker 1", errors[0])
            step = int(re.search(r"this worker was in step (\d+)", errors[0])[1])
            last = max(name for name in os.listdir(self.path(folder)) if name.endswith(".safetensors"))
            self.assertIn(last, [f"checkpoint-{done:08}.safetensors" for done in (step - 1, step)])
            self.assertNotIn("the report is in", errors[0])

    def test_of_four_one_is_lost_and_another_comes(self):
        self.start_elastic(4, "--log-every=1", "--checkpoint-dir=checkpoints")
        lines = self.lines_of_the_chief()
        self.await_lines(lines, 200)
        self.processes[1].kill()
        self.await_lines(lines, 600)
        self.elastic = (*self.elastic, "--resume")  # from what the others give it
        alone = len(lines)
        self.join(1, 4)
        for process in self.processes:
            process.wait(SECONDS)
        self.assertEqual([process.returncode for process in self.processes], [DONE, -signal.SIGKILL, DONE, DONE, DONE])
        error = self.processes[0].stderr.read()
        self.assertIn("3 workers (1 lost, 0 new)", error)
        self.assertIn("4 workers (0 lost, 1 new)", error)
        self.check_losses(4)
        self.assertGreater(sum(" - step " in line for _, line in lines), 1400)
        times = [when for when, _ in lines[:alone]]
        self.assertLess(max(after - before for before, after in zip(times, times[1:])), 3 if SANITIZE == "none" else 30)


class ElasticFilter(ElasticWorkers):
    OPTIONS = ("--model=mlp", "--dataset=synthetic:shape=4x4x1,classes=10,examples=30000", "--threads=1", "--batch=60", "--epochs=1",
               "--optimizer=sgd:learning_rate=0.0001", "--validation=off", "--compress=topk:fraction=1e-9")

    def owed(self, name):
        """The squares of what each rank owes, added up."""
        found = tensors(os.path.join(self.path("checkpoints"), name))
        ranks = sum(one.startswith("filter/residual_") for one in found)
        return [sum(value * value for value in found[f"filter/residual_{rank}"][1]) for rank in range(ranks)]

    def test_survivors_keep_what_they_owe(self):
        """One element of each variable is delivered in a step, and weights hardly change, so what a replica owes grows with each step."""
        self.start_elastic(3, "--log-every=1", "--checkpoint-dir=checkpoints", "--checkpoint-steps=20", "--checkpoint-keep=99",
                           "--checkpoint-name={step}")
        self.await_lines(self.lines_of_the_chief(), 110)
        self.processes[0].kill()
        self.processes[0].wait(SECONDS)
        self.await_lines(self.lines_of_the_chief(1), 60)
        self.join(0, 3)
        for process in self.processes:
            process.wait(SECONDS)
        self.assertEqual([process.returncode for process in self.processes], [-signal.SIGKILL, DONE, DONE, DONE])
        report = self.report("elastic.json")
        self.assertEqual((report["status"], len(report["losses"]), len(set(report["parameter_hashes"]))), ("done", 500, 1))
        loss, join = report["elastic"]
        self.assertEqual((loss["lost"], loss["joined"], join["lost"], join["joined"], join["residuals_lost"]), (1, 0, 0, 1, 0))
        self.assertIn(loss["residuals_lost"], (1, 2))  # one of both may not have completed the last step

        names = sorted((name for name in os.listdir(self.path("checkpoints")) if name.endswith(".safetensors")), key=lambda name: (int(name.split(".")[0]), len(name)))
        owed = [self.owed(name) for name in names]
        lost, joined = (next(i for i in range(1, len(owed)) if len(owed[i]) == ranks and len(owed[i - 1]) == 5 - ranks) for ranks in (2, 3))
        kept = sum(after >= 0.9 * before for before, after in zip(owed[lost - 1][1:], owed[lost]))
        self.assertEqual(kept, 3 - loss["residuals_lost"])
        self.assertLess(owed[joined][2], 0.5 * max(owed[joined]))  # it began with nothing
        self.assertTrue(all(after >= 0.9 * before for before, after in zip(owed[joined - 1], owed[joined])))
        self.assertGreater(len(owed) - joined, 5)

    def test_metrics_are_those_of_a_training_that_is_not_elastic(self):
        """Counts of metrics travel in each step, beside what the filter sums."""
        self.OPTIONS = (*self.OPTIONS[:-1], "--steps=20", "--metrics=accuracy,sparse_top_k_categorical_accuracy:k=3")
        for compress in ("int8", "powersgd:rank=2,start=5"):
            whole = self.train(*self.OPTIONS, "--replicas=2", "--strategy=ring", "--compress=" + compress)
            self.start_elastic(2, "--compress=" + compress)
            codes, errors = self.finish()
            self.assertEqual(codes, [DONE, DONE], errors)
            report = self.report("elastic.json")
            self.assertEqual(report["parameter_hashes"], whole["parameter_hashes"])
            self.check_epochs(report, whole)

    def test_what_a_filter_has_learnt_goes_to_a_worker_that_joins(self):
        """The thin matrices of powersgd, which are equal on all ranks, and not lost with one of them."""
        self.OPTIONS = (*self.OPTIONS[:-1], "--compress=powersgd:rank=2,start=2")
        self.start_elastic(3, "--log-every=1", "--checkpoint-dir=checkpoints", "--checkpoint-steps=20", "--checkpoint-keep=99",
                           "--checkpoint-name={step}")
        self.await_lines(self.lines_of_the_chief(), 50)
        self.processes[0].kill()
        self.processes[0].wait(SECONDS)
        self.await_lines(self.lines_of_the_chief(1), 60)
        self.join(0, 3)
        errors = [process.communicate(timeout=SECONDS)[1] for process in self.processes[2:]]
        self.processes[1].wait(SECONDS)
        errors.append(self.processes[1].stderr.read())
        self.assertEqual([process.returncode for process in self.processes], [-signal.SIGKILL, DONE, DONE, DONE], errors)
        for text in errors:
            self.assertNotIn("left out", text)
        report = self.report("elastic.json")
        self.assertEqual((report["status"], len(report["losses"]), len(set(report["parameter_hashes"]))), ("done", 500, 1))
        self.assertEqual([(change["lost"], change["joined"]) for change in report["elastic"]], [(1, 0), (0, 1)])
        found = [tensors(os.path.join(self.path("checkpoints"), name)) for name in os.listdir(self.path("checkpoints")) if name.endswith(".safetensors")]
        keys = {name for one in found for name in one if name.startswith("filter/shared_")}
        self.assertEqual(len(keys), 1, keys)
        for one in found:
            self.assertTrue(any(one[key][1] != (0.0,) * len(one[key][1]) for key in keys))


class ElasticRounds(ElasticWorkers):
    """Replicas with weights of their own between rounds: survivors keep theirs, and what the report says is left out is all that is."""
    STRATEGY = "lossy:steps=6,fragments=2,delay=1,mix=0.25,outer_learning_rate=0.5,outer_momentum=0.5"  # diloco (tests/plugins/faults/rounds.c)
    OPTIONS = ("--model=mlp", "--dataset=synthetic:shape=28x28x1,classes=10,examples=30000", "--threads=1", "--batch=60", "--epochs=1",
               "--optimizer=adam:learning_rate=0.0005", "--lost-after=3", "--log-every=1", "--callback=holds", "--plugin-path=" + FAULTS)

    def start_elastic(self, count, *more, least=1):
        for name in os.listdir(self.folder):
            if name.startswith(("made-", "stderr-")):
                os.unlink(self.path(name))
        super().start_elastic(count, *more, least=least)

    def add(self, rank, count, **more):
        """What it says goes to a file, which may be read while it trains."""
        own = dict(LOCKSTEP_RANK=str(rank), LOCKSTEP_WORLD_SIZE=str(count), LOCKSTEP_ADDRESS=self.address, **more)
        with open(self.path(f"stderr-{len(self.processes)}"), "w") as file:
            self.processes.append(subprocess.Popen([LOCKSTEP, *self.elastic], env=dict(os.environ, **own), text=True, cwd=self.folder,
                                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=file))

    def said(self, number):
        with open(self.path(f"stderr-{number}")) as file:
            return file.read()

    def hold(self, ms):
        """Each step takes longer from now on."""
        with open(self.path("hold.new"), "w") as file:
            file.write(str(ms))
        os.rename(self.path("hold.new"), self.path("hold"))

    def await_text(self, number, text):
        self.wait_for(lambda: text in self.said(number), said=lambda: self.said(number))

    def check(self, codes, changes, strategy, steps, lost_too=False):
        """All that the workers which are left ever had as the round after a turn is the same, and with `lost_too` what those had that are lost:
        else one of them may have made a turn of which nobody else has heard."""
        for rank, process in enumerate(self.processes):
            process.wait(4 * SECONDS)
            self.assertEqual(process.returncode, codes[rank], f"{strategy}, worker {rank}: {self.said(rank)}")
        report = self.report("elastic.json")
        self.assertEqual((report["status"], len(report["losses"]), len(set(report["parameter_hashes"]))), ("done", steps, 1), strategy)
        self.assertEqual([(change["lost"], change["joined"], change["workers"]) for change in report["elastic"]], changes, strategy)
        rounds = {}
        for number in (number for number, code in enumerate(codes) if lost_too or code == DONE):
            for turn, values in re.findall(r"^(?:made|regrouped): turn (\d+), (round \w+, momentum \w+)$", self.said(number), re.M):
                rounds.setdefault(int(turn), set()).add(values)
        self.assertEqual({turn: values for turn, values in rounds.items() if len(values) > 1}, {}, strategy)
        self.assertEqual(bool(rounds), strategy.startswith("lossy"), strategy)
        self.assertTrue(all(strategy.startswith("local") or "regrouped: turn" in self.said(number) for number, code in enumerate(codes) if code == DONE))
        return report

    def test_a_worker_and_then_the_chief_are_lost_and_another_comes(self):
        """At any moment of a round: of a lost rank at most six steps and the two around a broken exchange are left out, of a survivor one step."""
        for strategy in (self.STRATEGY, "local-sgd:steps=5", "lossy:steps=1,outer_learning_rate=1,outer_momentum=0"):
            with self.subTest(strategy=strategy):
                self.hold(20)
                self.start_elastic(3, "--strategy=" + strategy)
                lines = self.lines_of_the_chief()
                self.await_lines(lines, 20)
                self.processes[2].kill()
                self.processes[2].wait(SECONDS)
                self.await_text(0, "2 workers (1 lost, 0 new)")
                self.await_lines(lines, len(lines) + 20)
                self.processes[0].kill()
                self.hold(200)
                self.lines_of_the_chief(1)
                self.await_text(1, "lockstep: elastic: continuing after step")  # as worker 0
                self.add(0, 3, LOCKSTEP_JOIN="1")
                self.await_text(1, "2 workers (0 lost, 1 new)")
                os.unlink(self.path("hold"))
                report = self.check([-signal.SIGKILL, DONE, -signal.SIGKILL, DONE], [(1, 0, 2), (1, 0, 1), (0, 1, 2)], strategy, 500)
                lost, chief, join = report["elastic"]
                self.assertEqual(report["epochs"][0]["examples"], 30000)
                self.assertLess(report["losses"][-1], 0.5 * report["losses"][0])  # on examples that no worker's weights have seen
                self.assertLess(report["epochs"][0]["val_loss"], 0.5 * report["losses"][0])
                self.assertTrue(all(change["seconds"] > 0 for change in report["elastic"]))
                self.assertLessEqual(lost["examples_left_out"], 8 * 20 + 20)
                self.assertLessEqual(chief["examples_left_out"], 8 * 30 + 30)
                self.assertEqual(join["examples_left_out"], 0)

    def normalized(self):
        """With moving statistics, which are averaged with the weights."""
        layers = [{"class_name": "InputLayer", "config": {"batch_shape": [None, 8], "name": "input"}},
                  {"class_name": "Dense", "config": {"name": "hidden", "units": 16, "activation": "relu"}},
                  {"class_name": "BatchNormalization", "config": {"name": "normalized", "momentum": 0.5}},
                  {"class_name": "Dense", "config": {"name": "output", "units": 3, "activation": "softmax"}}]
        write_json(self.path("normalized.json"), {"class_name": "Sequential", "config": {"name": "normalized", "layers": layers}})
        return ("--model=" + self.path("normalized.json"), "--loss=sparse_categorical_crossentropy", "--dataset=synthetic:shape=8,classes=3,examples=402",
                "--threads=1", "--batch=62", "--epochs=3", "--optimizer=adam", "--lost-after=3", "--plugin-path=" + FAULTS)

    def test_an_interruption_below_the_least_keeps_the_round(self):
        """Whoever goes on from its file, elastic or not, has its weights of the round, their momentum and its own."""
        self.hold(50)
        self.start_elastic(2, "--strategy=" + self.STRATEGY, "--checkpoint-dir=checkpoints", least=2)
        self.await_lines(self.lines_of_the_chief(), 20)
        self.processes[1].kill()
        self.await_text(0, "worker 1")
        time.sleep(0.5)
        self.processes[0].send_signal(signal.SIGTERM)
        self.assertEqual(self.processes[0].wait(SECONDS), TERMINATED, self.said(0))
        rounds = re.findall(r"^made: (turn \d+, round \w+, momentum \w+)$", self.said(0), re.M)[-1]
        os.unlink(self.path("hold"))
        file = self.path("checkpoints/" + max(name for name in os.listdir(self.path("checkpoints")) if name.endswith(".safetensors")))
        saved, steps = tensors(file), int(re.search(r"checkpoint-(\d+)", file)[1])
        self.assertTrue(any(saved["round/momentum"][1]))
        self.assertTrue(any(saved["round/weights_0"][1]))
        for before, replicas in ((("launch", "-n2", "--"), "--elastic=1:2"), ((), "--replicas=2")):
            again = ("train", *self.OPTIONS, "--strategy=" + self.STRATEGY, replicas, "--checkpoint-dir=" + replicas, "--resume", f"--steps={steps + 9}")
            shutil.copytree(self.path("checkpoints"), self.path(replicas))
            outcome = self.lockstep(*before, *again)
            self.assertEqual(outcome.code, DONE, outcome.err)
            self.assertIn("regrouped: " + rounds, outcome.err)

    def test_the_furthest_worker_is_lost_before_the_others_go_on(self):
        """Turn 3, of the first fragment, is due at step 9; what it adds up is on its way since step 8. The last worker dies when one other has
        made it, and those that are to go on have not, or not even the step. An epoch has seven steps, the last of 30 examples, others of 62."""
        batches = {step: 62 if step % 7 else 30 for step in range(1, 22)}

        def share(step, world, rank):
            return batches[step] // world + (rank < batches[step] % world)

        def left_out(turn, survivors, world, last):
            """Of the fragment of this turn what came after it was taken, of the other one what came after turn `turn - 1` was."""
            taken = 3 * turn - 1
            return max(sum(batches[step] for step in range(first, taken + 2)) - sum(share(step, world, rank) for step in range(first, last + 1) for rank in survivors)
                       for first in (taken + 1, max(taken - 2, 1)))

        self.OPTIONS = self.normalized()
        for faults, turn, survivors in (
                (("", "unturned:3", "unturned:3", "turn:3"), 3, None),
                (("initialize:2", "unturned:3", "unturned:3", "turn:3"), 3, (1, 2)),
                (("unturned:3", "unturned:3", "initialize:2", "turn:3"), 3, (0, 1)),
                (("initialize:2", "unmade:9", "unmade:9", "turn:3"), 3, (1, 2)),
                (("unmade:9", "unmade:9", "regroup:1", "turn:3"), 3, (0, 1)),
                (("initialize:2", "unturned:1", "turn:1"), 1, (1,))):
            with self.subTest(faults=faults):
                world = len(faults)
                self.start_elastic(0, "--strategy=" + self.STRATEGY)
                for rank, fault in enumerate(faults):
                    self.add(rank, world, LOCKSTEP_LOSS=fault)
                codes = [DONE if rank in (survivors or range(world - 1)) else -signal.SIGKILL for rank in range(world)]
                changes = [(1, 0, world - 1)] + ([(1, 0, world - 2)] if survivors else [])
                report = self.check(codes, changes, self.STRATEGY, 21, lost_too=True)
                self.assertEqual([epoch["examples"] for epoch in report["epochs"]], [402] * 3)
                if survivors:
                    found = sum(change.get("examples_left_out", 0) for change in report["elastic"])
                    last = 3 * turn - any(fault.startswith("unmade") for fault in faults)
                    self.assertEqual(found, left_out(turn, survivors, world, last))


class ChiefComesBack(ElasticWorkers):
    def test_the_chief_is_stopped_and_another_worker_keeps_the_checkpoints(self):
        """And when it comes back, it finds nobody: neither a checkpoint nor the report nor the weights of its successor are its own then."""
        self.start_elastic(3, "--checkpoint-dir=checkpoints", "--checkpoint-steps=100", "--lost-after=1", "--save-weights=weights.safetensors")
        self.wait_for(lambda: has_checkpoint(self.path("checkpoints")))
        self.processes[0].send_signal(signal.SIGSTOP)
        for process in self.processes[1:]:
            process.wait(SECONDS)
        before = self.written()
        self.processes[0].send_signal(signal.SIGCONT)
        codes, errors = self.finish()
        self.assertEqual(codes, [PEER_LOST, DONE, DONE], errors)
        self.assertIn("this worker writes the checkpoints from now on", errors[1])
        self.assertIn("may have gone on while this process was stopped: this part ends; not here: worker 1", errors[0])
        self.assertIn("checkpoints/checkpoint-00001500.generation1.safetensors", before)
        self.assertEqual(self.written(), before)
        self.check_losses(2)

    def test_the_chief_is_stopped_and_ended_when_it_comes_back(self):
        """As batch systems do: SIGTERM, and SIGCONT so that it is heard. What its successor has written stays."""
        self.OPTIONS = (*self.OPTIONS, "--steps=500")
        self.start_elastic(3, "--checkpoint-dir=checkpoints", "--checkpoint-steps=100", "--lost-after=1", "--save-weights=weights.safetensors")
        self.wait_for(lambda: has_checkpoint(self.path("checkpoints")))
        self.processes[0].send_signal(signal.SIGSTOP)
        for process in self.processes[1:]:
            process.wait(SECONDS)
        before = self.written()
        self.processes[0].send_signal(signal.SIGTERM)
        self.processes[0].send_signal(signal.SIGCONT)
        codes, errors = self.finish()
        self.assertEqual(codes[1:], [DONE, DONE], errors)
        self.assertIn(codes[0], (PEER_LOST, TERMINATED), errors)
        after = self.written()
        self.assertEqual({name: after.get(name) for name in before}, before)

    def test_the_chief_is_stopped_after_its_last_step_and_another_worker_writes_the_results(self):
        self.OPTIONS = (*self.OPTIONS, "--steps=20")
        self.start_elastic(3, "--checkpoint-dir=checkpoints", "--lost-after=1", "--save-weights=weights.safetensors", "--plugin-path=" + FAULTS,
                           "--callback=stops")
        for process in self.processes[1:]:
            process.wait(SECONDS)
        before = self.written()
        self.processes[0].send_signal(signal.SIGCONT)
        codes, errors = self.finish()
        self.assertEqual(codes, [PEER_LOST, DONE, DONE], errors)
        self.assertEqual(self.report("elastic.json")["workers"], 2)
        self.assertIn("weights.safetensors", before)
        self.assertEqual(self.written(), before)

    def written(self):
        """When each file was written, but for the checkpoints of the first chief, which may come late."""
        return {os.path.relpath(os.path.join(folder, name), self.folder): os.stat(os.path.join(folder, name)).st_mtime_ns
                for folder, _, names in os.walk(self.folder) for name in names
                if name != ".lock" and ("generation" in name or not name.startswith("checkpoint"))}


class TooFew(ElasticWorkers):
    """Who is left waits for another one for a while, and then ends."""
    def test_below_the_least_it_ends(self):
        self.start_elastic(2, "--checkpoint-dir=checkpoints", "--checkpoint-steps=100", least=2)
        self.wait_for(lambda: has_checkpoint(self.path("checkpoints")))
        self.processes[0].kill()
        codes, errors = self.finish()
        self.assertEqual(codes[1], PEER_LOST, errors)


class ManyLost(ElasticWorkers):
    def test_every_example_counts_once(self):
        draw = random.Random(5)
        models = self.binary(40000), (self.OPTIONS[0], self.OPTIONS[1].replace("30000", "40000"), self.OPTIONS[-1])
        whole = {}
        for moment in range(20):
            self.OPTIONS = (*models[moment % 2], "--threads=1", "--batch=60", "--epochs=2", "--optimizer=sgd:learning_rate=0.0001",
                            f"--microbatches={1 + moment // 2 % 2}")
            if self.OPTIONS not in whole:
                whole[self.OPTIONS] = self.train(*self.OPTIONS, "--replicas=3", "--strategy=ring")
            with self.subTest(moment=moment):
                self.start_elastic(4, "--log-every=1", f"--replicas={1 + moment % 3 // 2}")
                lines = self.lines_of_the_chief()
                self.await_lines(lines, draw.randrange(20, 300))
                victims = draw.sample(range(4), 1 + moment % 2)
                for victim in victims:
                    self.processes[victim].kill()
                    time.sleep(draw.random() * 0.2)
                if moment % 3 == 1:
                    self.join(victims[0], 4)
                for process in self.processes[1:]:
                    process.communicate(timeout=SECONDS)  # whoever is the chief now prints a lot
                self.processes[0].wait(SECONDS)
                self.assertEqual(self.processes[victims[0]].returncode, -signal.SIGKILL)
                self.assertEqual({self.processes[rank].returncode for rank in range(4) if rank not in victims}, {DONE})
                report = self.report("elastic.json")
                self.assertEqual((report["status"], [epoch["examples"] for epoch in report["epochs"]]), ("done", [40000] * 2))
                self.check_epochs(report, whole[self.OPTIONS])


class GoingOn(Workers):
    def test_a_checkpoint_of_three_workers_is_one_of_two(self):
        model = (*MODEL, "--metrics=accuracy,sparse_top_k_categorical_accuracy:k=3")
        whole = self.train(*model, "--epochs=3", "--strategy=one-device")
        common = ("train", *model, "--checkpoint-dir=checkpoints", "--quiet")
        codes, errors = self.work(*[(*common, "--epochs=3", "--steps=8")] * 3)  # in the middle of an epoch
        self.assertEqual(codes, [DONE] * 3, errors)
        names = [name for name in os.listdir(self.path("checkpoints")) if name.endswith(".safetensors")]
        self.assertEqual([name.startswith("checkpoint-0000000") for name in names], [True, True], names)
        codes, errors = self.work(*[(*common, "--epochs=3", "--resume", "--report=" + self.path("resumed.json"))] * 2)
        self.assertEqual(codes, [DONE] * 2, errors)
        report = self.report("resumed.json")
        self.assertEqual(report["resumed_from_step"], 8)
        for one, other in zip(report["losses"], whole["losses"]):
            self.assertAlmostEqual(one, other, delta=5e-6)
        self.check_epochs(report, whole)

    def test_a_folder_that_only_one_sees_is_refused(self):
        common = ("train", *MODEL, "--quiet")
        self.assertEqual(self.lockstep(*common, "--checkpoint-dir=here").code, DONE)
        codes, errors = self.work((*common, "--checkpoint-dir=here", "--resume"), (*common, "--checkpoint-dir=there", "--resume"))
        self.assertEqual(codes, [USAGE] * 2, errors)
        for error in errors:
            self.assertIn("step 0, but worker 0 has step 5", error)


class Together(Workers):
    def test_only_the_chief_writes_and_callbacks_decide_alike(self):
        stops = "--callback=early_stopping:monitor=loss,patience=1,min_delta=100"
        log = "--callback=csv_logger:filename=log.csv"
        codes, errors = self.work(*[("train", *MODEL, "--epochs=9", stops, log, "--report=report.json", "--save-weights=w.safetensors")] * 3)
        self.assertEqual(codes, [DONE] * 3, errors)
        self.assertEqual([bool(text[0]) for text in self.texts], [True, False, False])
        report = self.report()
        self.assertEqual((report["status"], report["stopped_by"], len(report["epochs"])), ("stopped", "early_stopping", 2))
        with open(self.path("log.csv")) as file:
            self.assertEqual(len(file.readlines()), 3)

    def test_metrics_that_count_are_those_of_all_examples(self):
        options = (*MODEL, "--metrics=sparse_top_k_categorical_accuracy:k=3,accuracy", "--epochs=2")
        alone = self.train(*options)
        codes, errors = self.work(*[("train", *options, "--quiet", "--report=" + self.path("many.json"))] * 3)
        self.assertEqual(codes, [DONE] * 3, errors)
        for one, other in zip(self.report("many.json")["epochs"], alone["epochs"]):
            for key in ("sparse_top_k_categorical_accuracy", "accuracy", "val_accuracy", "val_loss"):
                self.assertAlmostEqual(one[key], other[key], delta=1e-5, msg=key)

    def test_evaluate_and_predict(self):
        self.train(*MODEL, "--epochs=1", "--save-weights=w.safetensors")
        common = (*MODEL[:4], "--initial-weights=w.safetensors")
        alone = self.lockstep("evaluate", *common)
        codes, errors = self.work(*[("evaluate", *common)] * 2)
        self.assertEqual(codes, [DONE] * 2, errors)
        self.assertEqual(self.texts[0][0].split(" - loss")[1], alone.out.split(" - loss")[1])
        self.assertEqual(self.texts[1][0], "")
        self.assertEqual(self.lockstep("predict", *common, "--out=one.csv").code, DONE)
        codes, errors = self.work(*[("predict", *common, "--out=many.csv")] * 3)
        self.assertEqual(codes, [DONE] * 3, errors)
        with open(self.path("one.csv")) as one, open(self.path("many.csv")) as many:
            rows = [[[float(value) for value in line.split(",")] for line in file.read().splitlines()[1:]] for file in (one, many)]
        self.assertEqual(len(rows[0]), len(rows[1]))
        for first, second in zip(*rows):
            for x, y in zip(first, second):
                self.assertAlmostEqual(x, y, delta=1e-4)


if __name__ == "__main__":
    main()
