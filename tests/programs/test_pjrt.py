# SPDX-License-Identifier: Apache-2.0
"""--device=pjrt with the real command: refusals, which need no plugin of XLA, and training on XLA's CPU plugins. These are
the files that LOCKSTEP_PJRT_PLUGINS names (with ':' between them), or those of pjrt-plugins.txt, which are installed from PyPI
once and then kept in LOCKSTEP_PJRT_FOLDER."""
import glob
import gzip
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

from support import DONE, FIXTURES, LOCKSTEP, PEER_LOST, UNAVAILABLE, UNTIMED, USAGE, ProgramTest, main, tensors, write_json

FAKES = os.environ["LOCKSTEP_PJRT_FAKES"]
# float32 in another order: a few roundings a step.
LOSS_TOLERANCE = 1e-5
WEIGHT_TOLERANCE = 1e-5
# Of ResNet after some steps: batch normalization of few examples makes runs part at the first ReLU that a rounding turns over.
# With two examples a replica, device cpu is 4.9e-4 from the reference within ten steps, and XLA 2.9e-4 and 6.6e-4 from the cpu.
LATER_TOLERANCE = 1e-3
MINUTES = 15


TRAIN = ("train", "--quiet", "--model=mlp", "--dataset=synthetic")
STUCK = f"--device=pjrt:plugin={FAKES}/pjrt-hangs.so"


class OfPlugin(ProgramTest):
    def refused_plugin(self, option, *says, environment=None):
        self.refused(UNAVAILABLE, *TRAIN, "--device=pjrt" + option, says=("pjrt: ", *says), environment=environment)


class Refused(OfPlugin):
    """One line, exit code 4."""

    def test_the_file_is_missing(self):
        self.refused_plugin(":plugin=/no/such.so", "plugin=/no/such.so: cannot be opened")

    def test_the_file_is_no_plugin_of_xla(self):
        file = os.path.join(os.environ["LOCKSTEP_PLUGIN_PATH"], "device-reference.so")
        self.refused_plugin(":plugin=" + file, "no PJRT plugin", "GetPjrtApi")

    def test_its_interface_is_too_old(self):
        self.refused_plugin(f":plugin={FAKES}/pjrt-too-old.so", "0.20, which is too old")

    def test_its_interface_has_another_major_version(self):
        self.refused_plugin(f":plugin={FAKES}/pjrt-another-major.so", "is 1.0; this program knows 0.")

    def test_it_shows_one_device_at_least(self):
        for count in ("0", "-1"):
            self.refused(USAGE, *TRAIN, f"{STUCK},cpu_device_count={count}", says=("pjrt: ", f"cpu_device_count={count}: expected at least 1"))

    def test_it_is_never_the_default_and_is_listed(self):
        for more in ((), ("pjrt",)):
            outcome = self.lockstep("plugins", *more)
            self.assertEqual(outcome.code, DONE, outcome.err)
            self.assertIn("pjrt", outcome.out)
        self.assertNotEqual(self.train("--model=mlp", "--dataset=synthetic", "--steps=1")["device"], "pjrt")

    def test_an_operation_is_refused_in_the_words_of_the_device(self):
        layers = [{"class_name": "InputLayer", "config": {"batch_shape": [None, 28, 28], "name": "x"}}, {"class_name": "LSTM", "config": {"units": 4, "name": "lstm"}},
                  {"class_name": "Dense", "config": {"units": 10, "name": "dense"}}]
        write_json(self.path("lstm.json"), {"class_name": "Sequential", "config": {"name": "words", "layers": layers}})
        self.refused(UNAVAILABLE, "train", "--model=" + self.path("lstm.json"), "--dataset=synthetic:shape=28x28", STUCK, "--replicas=1",
                     says=("lstm", "(pjrt: recurrent: it has no emitter; device cpu has it)", "use another device"))


class Found(OfPlugin):
    """The plugin's file where option `plugin` does not name it. What is found here is too old, and named for that."""

    def setUp(self):
        super().setUp()
        for name in ("TPU_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH"):
            self.empty = {**getattr(self, "empty", {}), name: ""}
        self.empty["PATH"] = self.path("bin")
        os.mkdir(self.path("bin"))

    def put(self, folder, name):
        file = os.path.join(self.folder, folder, name)
        os.makedirs(os.path.dirname(file), exist_ok=True)
        os.symlink(os.path.join(FAKES, "pjrt-too-old.so"), file)
        return file

    def finds(self, file, **environment):
        self.refused_plugin("", f"plugin={file}: its PJRT interface is 0.20", environment={**self.empty, **environment})

    def test_nothing_is_found(self):
        if any(glob.glob(at) for at in ("/usr/lib/libtpu.so", "/lib/libtpu.so", "/usr/lib/python3*/*-packages/libtpu", "/usr/local/lib/python3*/*-packages/libtpu",
                                        "/usr/lib/python3*/*-packages/jax_plugins", "/usr/local/lib/python3*/*-packages/jax_plugins")):
            self.skipTest("this machine has a plugin")
        self.refused_plugin("", "TPU_LIBRARY_PATH", "jax-cuda13-pjrt", "VIRTUAL_ENV", "--device=pjrt:plugin=FILE", environment=self.empty)

    def test_packages_of_a_virtual_environment(self):
        file = self.put("venv/lib/python3.11/site-packages", "jax_plugins/xla_cuda13/xla_cuda_plugin.so")
        self.put("venv/lib/python3.11/site-packages", "jax_plugins/xla_cuda12/xla_cuda_plugin.so")
        self.finds(file, VIRTUAL_ENV=self.path("venv"))
        self.finds(file, CONDA_PREFIX=self.path("venv"))

    def test_packages_beside_the_python_of_path_and_of_pythonpath(self):
        self.put("lib/python3.12/site-packages", "jax_plugins/xla_cuda12/xla_cuda_plugin.so")
        os.symlink(sys.executable, self.path("bin/python3"))
        self.finds(f"{self.folder}/bin/../lib/python3.12/site-packages/jax_plugins/xla_cuda12/xla_cuda_plugin.so")
        self.finds(self.put("more", "jax_plugins/xla_cuda13/xla_cuda_plugin.so"), PYTHONPATH="/nowhere::" + self.path("more"))

    def test_libtpu_waits_for_a_tpu_or_its_variable(self):
        cuda = self.put("venv/lib/python3.11/site-packages", "jax_plugins/xla_cuda13/xla_cuda_plugin.so")
        tpu = self.put("more", "libtpu/libtpu.so")
        packages = {"VIRTUAL_ENV": self.path("venv"), "PYTHONPATH": self.path("more")}
        self.finds(tpu if glob.glob("/dev/accel[0-9]*") + glob.glob("/dev/vfio/[0-9]*") else cuda, **packages)
        self.finds(tpu, TPU_LIBRARY_PATH=tpu, **packages)
        stuck = os.path.join(FAKES, "pjrt-hangs.so")
        outcome = self.lockstep("plugins", "pjrt", environment={**self.empty, "TPU_LIBRARY_PATH": stuck})
        self.assertRegex(outcome.out, f"hardware: +stuck by (\\.\\.\\.)?{re.escape(stuck[-80:])} .PJRT 0.90., 2 devices")
        self.refused_plugin("", "plugin=/no/libtpu.so: cannot be opened", environment={**self.empty, **packages, "TPU_LIBRARY_PATH": "/no/libtpu.so"})


class Stuck(ProgramTest):
    """A plugin whose devices never finish, and one that ends the process."""

    def test_a_check_of_xla_ends_the_process_and_the_operation_is_named(self):
        outcome = self.lockstep(*TRAIN, f"--device=pjrt:plugin={FAKES}/pjrt-aborts.so", "--replicas=1", "--validation=off")
        self.assertEqual(outcome.code, -signal.SIGABRT, outcome.err)
        self.assertIn("plugin device-pjrt crashed (SIGABRT) in `launch` (dense forward)", outcome.err)

    def test_a_wait_ends_at_the_deadline(self):
        for replicas in (1, 2):
            outcome = self.lockstep(*TRAIN, STUCK, "--deadline=1", f"--replicas={replicas}", "--validation=off")
            self.assertEqual(outcome.code, PEER_LOST, outcome.err)
            self.assertIn("has not finished dense within 1 s", outcome.err)

    def test_a_step_may_take_longer_to_compile(self):
        slowly = f"--device=pjrt:plugin={FAKES}/pjrt-compiles-slowly.so"
        # Replicas of two and of one example compile programs of their own, one behind the other.
        outcome = self.lockstep(*TRAIN, slowly, "--deadline=1", "--replicas=2", "--strategy=ring", "--batch=3", "--steps=3", "--validation=off")
        self.assertEqual(outcome.code, DONE, outcome.err)
        self.assertEqual(outcome.err.count("`record_end` of plugin device-pjrt has taken "), 1, outcome.err)

    def test_replicas_are_as_many_as_devices_and_threads_are_said_once(self):
        outcome = self.lockstep("train", "--model=mlp", "--dataset=synthetic", STUCK, "--deadline=1", "--threads=3", "--validation=off")
        self.assertEqual(outcome.code, PEER_LOST, outcome.err)
        self.assertIn("2 replicas on pjrt", outcome.out + outcome.err)
        self.assertEqual(outcome.err.count("--threads=3 has no effect on device 'pjrt'"), 1, outcome.err)

    def test_a_second_interrupt_ends_it_at_once(self):
        with open(self.path("said"), "w+") as said:
            process = subprocess.Popen([LOCKSTEP, "train", "--model=mlp", "--dataset=synthetic", STUCK, "--replicas=1", "--deadline=3000", "--validation=off"],
                                       stdout=said, stderr=subprocess.STDOUT, cwd=self.folder)
            try:
                while "replica" not in open(self.path("said")).read(): # it has begun
                    self.assertIsNone(process.poll(), open(self.path("said")).read())
                    time.sleep(0.1)
                while process.poll() is None:
                    process.send_signal(signal.SIGINT) # one that follows at once counts as the same
                    time.sleep(1)
                self.assertEqual(process.returncode, -signal.SIGINT)
            finally:
                process.kill()
                process.wait()


def installed():
    """Files of the plugins that pip has put into the folder, or None and why there are none."""
    folder = os.environ["LOCKSTEP_PJRT_FOLDER"]
    if not os.path.isdir(folder):
        wanted, new = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pjrt-plugins.txt"), f"{folder}.{os.getpid()}"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries=1", "--timeout=15", "--no-deps",
                   "--require-hashes", "--target=" + new, "--requirement=" + wanted]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60 * MINUTES)
        except subprocess.TimeoutExpired:
            return None, f"pip took more than {MINUTES} minutes"
        if done.returncode:
            return None, (done.stdout.strip().splitlines() or ["pip failed"])[-1]
        try:
            os.rename(new, folder)
        except OSError: # another test was faster
            shutil.rmtree(new)
    return sorted(glob.glob(os.path.join(folder, "*", "*pjrt*cpu*.so"))), None


def plugins():
    named = os.environ.get("LOCKSTEP_PJRT_PLUGINS")
    return (named.split(":"), None) if named else installed()


class OnXla(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.files, reason = plugins()
        if not cls.files:
            raise unittest.SkipTest(f"no plugin of XLA (LOCKSTEP_PJRT_PLUGINS): {reason}")

    def on_xla(self, file, *options, more=""):
        return self.train(f"--device=pjrt:plugin={file}{more}", *options, timeout=1200)


class Briefly(OnXla):
    """A small model on the first plugin: what the whole program does around it."""

    LINEAR = ("--model=linear", "--validation=off", "--optimizer=sgd:learning_rate=0.01")

    def assert_same(self, got, wanted, what):
        self.assertEqual(len(set(got["parameter_hashes"])), 1)
        for step, (a, b) in enumerate(zip(got["losses"], wanted["losses"])):
            self.assertAlmostEqual(a, b, delta=LOSS_TOLERANCE * max(1, abs(b)), msg=f"{what}, step {step + 1}")

    def same_as_on_the_cpu(self, *options, dataset="synthetic", more=""):
        options = (*self.LINEAR, "--dataset=" + dataset, *options)
        wanted = self.train("--device=cpu", *options)
        got = self.on_xla(self.files[0], *options, more=more)
        for key in ("replicas", "strategy", "steps"):
            self.assertEqual(got[key], wanted[key])
        self.assertEqual(got["device"], "pjrt")
        self.assert_same(got, wanted, options)

    def test_strategies_through_the_host(self):
        for options in (("--strategy=mirrored", "--replicas=3"), ("--strategy=tree", "--replicas=2"), ("--strategy=hierarchical-copy", "--replicas=4"),
                        ("--strategy=sharded:stage=1", "--replicas=2"), ("--strategy=central-storage", "--replicas=3")):
            with self.subTest(options): # 22 examples are 8, 7 and 7
                self.same_as_on_the_cpu("--steps=4", "--batch=22", *options)

    def test_a_replica_for_each_device(self):
        self.assertEqual(self.on_xla(self.files[0], *self.LINEAR, "--dataset=synthetic", "--steps=2", "--batch=16")["replicas"], 4)
        self.same_as_on_the_cpu("--steps=2", "--batch=16", "--replicas=6", more=",cpu_device_count=6")

    def test_batches_seen_once_and_empty_shares(self):
        self.same_as_on_the_cpu("--epochs=2", "--batch=3", "--replicas=4", dataset="synthetic:examples=10")

    def test_a_mask_of_the_output_is_that_of_all_replicas(self):
        layers = [{"class_name": "InputLayer", "config": {"batch_shape": [None, 6], "dtype": "int32", "name": "tokens"}},
                  {"class_name": "Embedding", "config": {"name": "embedding", "input_dim": 5, "output_dim": 4, "mask_zero": True}},
                  {"class_name": "Dense", "config": {"name": "dense", "units": 5}}]
        write_json(self.path("masked.json"), {"class_name": "Sequential", "config": {"name": "masked", "layers": layers}})
        with open(self.path("text.txt"), "w", encoding="ascii") as file:
            file.write("".join(chr(ord("a") + i * i % 5 * (i % 3) % 5) for i in range(200)))
        options = ("--model=" + self.path("masked.json"), f"--dataset=text:length=6,file={self.path('text.txt')}", "--steps=4", "--batch=7", "--replicas=2",
                   "--validation=off", "--loss=sparse_categorical_crossentropy:from_logits=true", "--metrics=accuracy", "--optimizer=sgd:learning_rate=0.1")
        wanted, got = self.train("--device=cpu", *options), self.on_xla(self.files[0], *options)
        self.assert_same(got, wanted, "masked")
        self.assertAlmostEqual(got["epochs"][0]["accuracy"], wanted["epochs"][0]["accuracy"], delta=1e-6)

    def test_compare_opens_it_in_children(self):
        outcome = self.lockstep("compare", *self.LINEAR, "--dataset=synthetic", "--strategies=mirrored,central-storage", "--replicas=2", "--steps=3", "--batch=8", UNTIMED,
                                f"--device=pjrt:plugin={self.files[0]}", timeout=1200)
        self.assertEqual(outcome.code, DONE, outcome.err)

    def test_it_goes_on_from_a_checkpoint_of_the_cpu(self):
        options = (*self.LINEAR, "--dataset=synthetic", "--batch=8", "--replicas=2")
        kept = (*options, "--checkpoint-dir=" + self.path("ck"))
        self.train("--device=cpu", *kept, "--steps=3")
        resumed = self.on_xla(self.files[0], *kept, "--steps=6", "--resume")
        wanted = self.train("--device=cpu", *options, "--steps=6")
        self.assert_same({**resumed, "losses": resumed["losses"][-3:]}, {**wanted, "losses": wanted["losses"][-3:]}, "resumed")


class Suite(OnXla):
    def test_no_operation_is_wrong_and_those_without_an_emitter_are_refused(self):
        environment = dict(os.environ, LOCKSTEP_TEST_REFUSED="^(bucket|lookup|encode|dense_transposed|recurrent|resize2d|draw|resample|recolour|erase|b?float16|reductions)")
        for file in self.files:
            with self.subTest(plugin=file):
                done = subprocess.run([os.environ["LOCKSTEP_RUN_DEVICE"], "pjrt:plugin=" + file], stdout=subprocess.PIPE, text=True,
                                      env=environment, timeout=3500)
                self.assertEqual(done.returncode, 0, done.stdout)
                self.assertRegex(done.stdout, r"device-pjrt: [0-9]{4} passed, 0 failed")


class Training(OnXla):
    def gpt(self):
        with gzip.open(os.path.join(FIXTURES, "models", "gpt.json.gz"), "rt") as packed, open(self.path("gpt.json"), "w") as file:
            file.write(packed.read().replace('"dropout": 0.0', '"dropout": 0.1'))
        with open(self.path("text.txt"), "w") as file:
            file.write("".join(chr(ord("a") + i * i * 7 % 19 * (i % 3) % 19) for i in range(1000)))
        return ("--model=" + self.path("gpt.json"), "--dataset=text:length=12,stride=5,file=" + self.path("text.txt"), "--batch=8",
                "--loss=sparse_categorical_crossentropy:from_logits=true", "--optimizer=sgd:learning_rate=0.05")

    def models(self):
        """Options by name: the tutorials' models, and a GPT with dropout in its attention."""
        images, small = ("--dataset=synthetic", "--batch=16"), "--optimizer=sgd:learning_rate=0.01"
        return {"mlp": ("--model=mlp", *images), "cnn": ("--model=cnn", *images, small), "dropout": ("--model=mlp-dropout", *images),
                "linear": ("--model=linear", *images, small), "gpt": self.gpt(),
                "resnet": ("--model=resnet", "--dataset=synthetic:shape=32x32x3", "--batch=8", "--optimizer=sgd:learning_rate=0.00002")}

    def assert_close(self, got, wanted, what, steps=None):
        """The first `steps` losses, or all, differ by roundings; the others by little."""
        self.assertEqual(len(got), len(wanted))
        for step, (a, b) in enumerate(zip(got, wanted)):
            delta = LOSS_TOLERANCE if steps is None or step < steps else LATER_TOLERANCE
            self.assertAlmostEqual(a, b, delta=delta * max(1, abs(b)), msg=f"{what}, step {step + 1}")

    def learns_as_on_the_cpu(self, name, steps=None):
        options = (*self.models()[name], "--steps=10", "--validation=off")
        for replicas in (1, 2, 4):
            more = (f"--replicas={replicas}", "--strategy=" + ("one-device" if replicas == 1 else "central-storage"))
            wanted = self.train("--device=cpu", *options, *more)["losses"]
            for file in self.files:
                with self.subTest(replicas=replicas, plugin=file):
                    got = self.on_xla(file, *options, *more)
                    self.assertEqual(got["device"], "pjrt")
                    self.assertTrue(got["recording"].startswith("recorded "), got["recording"])
                    self.assertEqual(len(set(got["parameter_hashes"])), 1)
                    self.assert_close(got["losses"], wanted, name, steps)

    def test_mlp(self):
        self.learns_as_on_the_cpu("mlp")

    def test_cnn(self):
        self.learns_as_on_the_cpu("cnn")

    def test_dropout(self):
        self.learns_as_on_the_cpu("dropout")

    def test_linear(self):
        self.learns_as_on_the_cpu("linear")

    def test_gpt(self):
        self.learns_as_on_the_cpu("gpt")

    def test_resnet(self):
        self.learns_as_on_the_cpu("resnet", steps=3)

    def test_steps_that_are_not_recorded_have_the_same_losses(self):
        options = (*self.models()["mlp"], "--steps=4", "--replicas=1", "--validation=off")
        whole, apart = (self.on_xla(self.files[0], *options, more=more)["losses"] for more in ("", ",recording=off"))
        self.assert_close(apart, whole, "recording=off")

    def test_replicas_stay_equal(self):
        report = self.on_xla(self.files[0], *self.models()["mlp"], "--steps=100", "--replicas=2", "--strategy=central-storage", "--check-replicas=10")
        self.assertEqual(len(set(report["parameter_hashes"])), 1)

    def test_more_replicas_than_devices_and_more_devices(self):
        options = (*self.models()["mlp"], "--steps=3", "--replicas=6", "--strategy=central-storage", "--validation=off")
        wanted = self.train("--device=cpu", *options)["losses"]
        for more in ("", ",cpu_device_count=6"):
            self.assert_close(self.on_xla(self.files[0], *options, more=more)["losses"], wanted, more)

    def test_memory_does_not_grow(self):
        peaks = [self.on_xla(self.files[0], *self.models()["mlp"], f"--steps={steps}", "--epochs=1000", "--replicas=1", "--validation=off")["peak_rss_bytes"]
                 for steps in (1000, 10000)]
        print(f"memory of mlp: {peaks[0] / 1e6:.1f} MB at step 1,000, {peaks[1] / 1e6:.1f} MB at step 10,000")
        self.assertLess(peaks[1], peaks[0] + 2e7) # the allocator's, and 1,000 losses; a buffer a step would be 10,000

    def test_every_optimizer_updates_as_on_the_cpu(self):
        for optimizer in ("rmsprop:momentum=0.5,centered=on", "adagrad", "adadelta", "adamax", "nadam", "adamw", "adam:amsgrad=on", "lamb",
                          "sgd:clipvalue=0.001", "adam:clipnorm=0.01", "sgd:global_clipnorm=0.1",
                          "sgd:use_ema=on,ema_momentum=0.5,ema_overwrite_frequency=2"):
            with self.subTest(optimizer):
                options = ("--model=linear", "--dataset=synthetic", "--batch=16", "--steps=3", "--replicas=1", "--validation=off", "--optimizer=" + optimizer)
                wanted = self.train("--device=cpu", *options)["losses"]
                self.assert_close(self.on_xla(self.files[0], *options)["losses"], wanted, optimizer)

    def test_checkpoints_go_to_the_cpu_and_back(self):
        plain = (*self.models()["mlp"], "--validation=off", "--replicas=1", "--optimizer=sgd:learning_rate=0.01,momentum=0.9")
        options = (*plain, "--checkpoint-steps=5", "--checkpoint-dir=" + self.path("ck"))
        whole = self.train("--device=cpu", *plain, "--steps=15", "--save-weights=" + self.path("wanted.safetensors"))
        for steps, device in ((5, "pjrt:plugin=" + self.files[0]), (10, "cpu"), (15, "pjrt:plugin=" + self.files[-1])):
            resumed = () if steps == 5 else ("--resume",)
            report = self.train("--device=" + device, *options, f"--steps={steps}", *resumed, "--save-weights=" + self.path("got.safetensors"), timeout=1200)
        self.assert_close(report["losses"][-5:], whole["losses"][-5:], "resumed")
        ours, theirs = tensors(self.path("got.safetensors")), tensors(self.path("wanted.safetensors"))
        self.assertEqual(sorted(ours), sorted(theirs))
        for name, (shape, values) in theirs.items():
            self.assertEqual(ours[name][0], shape)
            self.assertLess(max(abs(a - b) for a, b in zip(ours[name][1], values)), WEIGHT_TOLERANCE, name)


if __name__ == "__main__":
    main()
