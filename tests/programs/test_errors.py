# SPDX-License-Identifier: Apache-2.0
"""Bad input: one line that says what and where, the right exit code, nothing half-written."""
import gzip
import json
import os
import re
import resource
import shutil
import struct
import subprocess

from support import BAD_INPUT, DONE, FAILED, FASHION, LOCKSTEP, PEER_LOST, UNAVAILABLE, UNTIMED, USAGE, ProgramTest, main, read_json

MODELS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "models")
FIXED = "--model=" + os.path.join(MODELS, "cnn.json")  # a file: it keeps its shape and classes, whatever the data
TRAIN = ("train", "--quiet", "--validation=off")
SYNTHETIC = "--dataset=synthetic:examples=200"


def idx_images(count, rows=28, columns=28, magic=0x803, elements=None):
    size = count * rows * columns if elements is None else elements
    return struct.pack(">IIII", magic, count, rows, columns) + bytes(i % 251 for i in range(size))


def idx_labels(labels, magic=0x801, count=None):
    return struct.pack(">II", magic, len(labels) if count is None else count) + bytes(labels)


class Usage(ProgramTest):
    def test_unknown_names_suggest_the_nearest(self):
        cases = [
            (UNAVAILABLE, "--strategy=rign", ("rign", "ring")),
            (USAGE, "--model=cnnn", ("cnnn", "'cnn'")),
            (USAGE, "--dataset=fashion-mnst", ("fashion-mnst", "fashion-mnist")),
            (UNAVAILABLE, "--device=cpuu", ("cpuu", "cpu")),
            (USAGE, "--optimizer=adm", ("adm", "adam")),
            (USAGE, "--optimizer=sgd:momentom=0.9", ("momentom", "momentum")),
            (USAGE, "--loss=mean_squared_eror", ("mean_squared_error",)),
            (USAGE, "--lr-scaling=linaer", ("linear",)),
            (USAGE, "--strategy=hierarchical-copy:gruops=2", ("gruops", "groups")),
            (USAGE, "--replicsa=2", ("--replicas",)),
            (USAGE, "--metrics=acuracy", ("accuracy",)),
        ]
        for code, option, says in cases:
            with self.subTest(option=option):
                arguments = {"--model": "--model=cnn", "--dataset": SYNTHETIC}
                arguments[option.split("=")[0]] = option
                self.refused(code, *TRAIN, *arguments.values(), says=says)

    def test_options_are_named_as_the_command_takes_them(self):
        """The same faults through C: tests/programs/option_words.c, through Python: tests/python/test_model.py."""
        for option, value in (("strategy", "rign"), ("optimizer", "adamm"), ("metrics", "acuracy"), ("precision", "float7"),
                              ("learning-rate-schedule", "exponential"), ("batch", "20000000")):
            with self.subTest(option=option):
                self.refused(UNAVAILABLE if option == "strategy" else USAGE, *TRAIN, "--model=mlp", SYNTHETIC, f"--{option}={value}",
                             says=(f"--{option}",))
        self.refused(PEER_LOST, *TRAIN, "--model=mlp", SYNTHETIC, "--strategy=hostile:fault=gradient_ready-hang,collective=ring", "--replicas=2",
                     "--device=reference", "--threads=1", "--deadline=1", "--plugin-path=" + os.environ["LOCKSTEP_HOSTILE_FOLDER"],
                     says=("if it is only slow, raise --deadline",))

    def test_names_from_elsewhere_are_answered_with_ours(self):
        cases = [
            (UNAVAILABLE, "--device=gpu", ("'gpu': NVIDIA GPUs are `cuda`. Available: devices ",)),
            (USAGE, "--device=GPU:0", ("'GPU:0'", "replica i computes on GPU i", "CUDA_VISIBLE_DEVICES")),
            (USAGE, "--device=cuda:0", ("'cuda:0'", "replica i computes on GPU i", "CUDA_VISIBLE_DEVICES")),
            (UNAVAILABLE, "--device=mps", ("not available", "`cpu`")),
            (UNAVAILABLE, "--strategy=ddp", ("data-parallel training is `mirrored` here", "`ring`")),
            (UNAVAILABLE, "--strategy=horovod", ("data-parallel training is `mirrored` here", "`ring`")),
            (UNAVAILABLE, "--strategy=adasum", ("not available; the nearest is `ring`",)),
            (UNAVAILABLE, "--strategy=MirroredStrategy", ("it is `mirrored` here. Available: strategies ",)),
            (UNAVAILABLE, "--strategy=tf.distribute.MirroredStrategy", ("it is `mirrored` here",)),
            (UNAVAILABLE, "--strategy=TPUStrategy", ("it is `tpu` here", "--device=pjrt")),
            (UNAVAILABLE, "--strategy=fsdp", ("it is `sharded` with stage=3 here",)),
            (UNAVAILABLE, "--strategy=deepspeed", ("its stages are those of `sharded` here (stage=1, 2 or 3)",)),
            (UNAVAILABLE, "--strategy=ring:transport=rdma", ("UCX does that: transport `ucx`",)),
            (USAGE, "--lr=0.1", ("unknown option --lr: ", "--optimizer=adam:learning_rate=0.001", "; --help=all lists all")),
            (USAGE, "--batch-size=32", ("--batch=N is the batch of all replicas", "--replica-batch=N that of each")),
            (USAGE, "--gpus=2", ("--device=cuda", "--replicas=N")),
            (USAGE, "--fp16", ("--precision=mixed_bfloat16",)),
            (USAGE, "--nproc_per_node=2", ("--replicas=N", "lockstep launch")),
        ]
        for code, option, says in cases:
            with self.subTest(option=option):
                self.refused(code, *TRAIN, "--model=mlp", SYNTHETIC, option, says=says)
        self.refused(UNAVAILABLE, "bench", "gloo", says=("`ring` and `halving-doubling`",))
        self.refused(UNAVAILABLE, "plugins", "gpu", says=("NVIDIA GPUs are `cuda`",))
        self.refused(USAGE, "simulate", "ring", "--nproc=4", says=("it is --world=N",))

    def test_an_unknown_option_lists_all_there_are(self):
        for command in ("train", "evaluate", "compare", "summary", "plugins", "simulate", "bench", "verify", "launch"):
            with self.subTest(command=command):
                help = self.lockstep(command, "--help=all").out
                options = re.findall(r"^  (--[a-z-]+)", help, re.MULTILINE)
                self.assertTrue(options)
                self.refused(USAGE, command, "--zebra", says=("unknown option --zebra; available: " + ", ".join(options),))
        self.refused(USAGE, *TRAIN, "--model=mlp", SYNTHETIC, "--optimizer=adam:lr=1",
                     says=("adam has no option lr; did you mean learning_rate? Available: learning_rate, beta_1, beta_2, epsilon",))

    def test_every_plugin_whose_file_is_missing_is_named_with_what_brings_it(self):
        build = os.path.dirname(os.path.dirname(LOCKSTEP))
        files = [name for name in sorted(os.listdir(os.path.join(build, "plugins"))) if
                 re.fullmatch(r"(device|transport|collective|strategy)-[a-z-]+\.so", name)]
        self.assertGreater(len(files), 10)
        os.mkdir(self.path("bin"))
        alone = self.path("bin/lockstep")  # finds no plugins of its own
        shutil.copy(LOCKSTEP, alone)
        for missing in files:
            kind, name = missing[:-3].split("-", 1)
            folder = self.path(name + "-is-missing")
            os.mkdir(folder)
            for file in files:
                if file != missing:
                    os.symlink(os.path.join(build, "plugins", file), os.path.join(folder, file))
            option = "--device=" + name if kind == "device" else "--strategy=mirrored:" + kind + "=" + name
            if kind == "strategy":
                option = "--strategy=" + name
            brings = {"cpu": ("libdnnl-dev", "-Dcpu=enabled"), "cuda": ("docs/gpu.md", "-Dcuda=enabled"),
                      "ucx": ("libucx-dev", "-Ducx=enabled")}
            for arguments in ((*TRAIN, "--model=mlp", SYNTHETIC, option), ("plugins", name)):
                with self.subTest(missing=missing, command=arguments[0]):
                    done = subprocess.run([alone, *arguments, "--plugin-path=" + folder], stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, text=True, timeout=60)
                    self.assertEqual(done.returncode, UNAVAILABLE, done.stderr)
                    self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                    for text in (f"is called '{name}': ", *brings.get(name, ("every build of Lockstep has it",))):
                        self.assertIn(text, done.stderr)

    def test_an_unknown_subcommand_suggests_the_nearest(self):
        self.refused(USAGE, "trian", says=("trian", "train"))

    def test_values_out_of_range(self):
        for option in ("--replicas=0", "--replicas=-1", "--replicas=two", "--threads=0", "--epochs=-1", "--steps=0",
                       "--batch=0", "--replica-batch=0", "--deadline=0", "--deadline=nan", "--seed=-1", "--seed=1.5",
                       "--shuffle=maybe", "--validation=perhaps", "--check-replicas=0", "--precision=float8",
                       "--optimizer=sgd:learning_rate=-1", "--optimizer=sgd:learning_rate=inf",
                       "--optimizer=sgd:momentum=1", "--optimizer=adam:beta_1=1.5", "--optimizer=adam:epsilon=x",
                       "--dataset=synthetic:limit=0", "--dataset=synthetic:shape=0x3", "--dataset=synthetic:classes=-1"):
            with self.subTest(option=option):
                name = option.split("=")[0]
                others = [a for a in ("--model=mlp", SYNTHETIC) if not a.startswith(name + "=")]
                self.refused(USAGE, "train", "--quiet", option, *others, says=(option.split("=")[-1],))

    def test_an_option_without_value_or_given_twice(self):
        self.refused(USAGE, "train", "--model", says=("--model",))
        self.refused(USAGE, "train", "--model=cnn", "--model=mlp", says=("twice",))
        self.refused(USAGE, "train", "--quiet=on", says=("no value",))
        self.refused(USAGE, "train", SYNTHETIC, says=("--model is missing",))
        self.refused(USAGE, "train", "--model=cnn", says=("--dataset is missing",))
        self.refused(USAGE, "train", "cnn", says=("'cnn'",))
        self.refused(USAGE, *TRAIN, "--model=mlp", SYNTHETIC, "--batch=4", "--replica-batch=4", says=("exclude",))

    def test_both_forms_of_an_option_mean_the_same(self):
        outcome = self.lockstep("train", "--model", "mlp", "--dataset", "synthetic:examples=20", "--steps", "1",
                                "--validation=off")
        self.assertEqual(outcome.code, DONE, outcome.err)

    def test_more_replicas_than_examples(self):
        self.refused(USAGE, *TRAIN, "--model=mlp", "--dataset=synthetic:examples=5", "--replicas=6", "--strategy=ring",
                     says=("6 replicas", "5 examples"))

    def test_more_replicas_than_examples_in_a_batch_is_allowed(self):
        self.train("--model=mlp", "--dataset=synthetic:examples=20", "--replicas=6", "--strategy=ring", "--batch=2")

    def test_one_device_refuses_a_second_replica(self):
        self.refused(USAGE, *TRAIN, "--model=mlp", SYNTHETIC, "--replicas=2", "--strategy=one-device",
                     says=("one-device", "2"))

    def test_groups_that_do_not_fit(self):
        self.refused(USAGE, *TRAIN, "--model=mlp", SYNTHETIC, "--replicas=2", "--strategy=hierarchical-copy:groups=3",
                     says=("groups=3",))

    def test_every_subcommand_explains_itself(self):
        for command in ([], ["train"], ["evaluate"], ["summary"], ["plugins"]):
            outcome = self.lockstep(*command, "--help")
            self.assertEqual(outcome.code, DONE)
            self.assertIn("usage: lockstep", outcome.out)
            self.assertEqual(outcome.err, "")


class Models(ProgramTest):
    def model(self, text, says, code=BAD_INPUT):
        path = self.path("model.json")
        with open(path, "w") as file:
            file.write(text if isinstance(text, str) else json.dumps(text))
        self.refused(code, *TRAIN, "--model=" + path, SYNTHETIC, says=says)

    def sequential(self, *layers):
        first = {"class_name": "InputLayer", "config": {"batch_shape": [None, 28, 28, 1]}}
        return {"class_name": "Sequential", "config": {"name": "m", "layers": [first, *layers]}}

    def test_malformed_json_names_line_and_column(self):
        self.model('{"class_name": "Sequential",\n "config": }', ("model.json:2:",))

    def test_an_unknown_layer_is_named(self):
        self.model(self.sequential({"class_name": "Conv2d", "config": {}}), ("Conv2d", "Conv2D"))

    def test_an_unknown_option_of_a_layer_is_named(self):
        self.model(self.sequential({"class_name": "Flatten", "config": {}},
                                   {"class_name": "Dense", "config": {"units": 3, "activaton": "relu"}}),
                   ("activaton", "activation"))

    def test_shapes_that_do_not_fit_name_layer_and_input(self):
        conv = {"class_name": "Conv2D", "config": {"name": "big", "filters": 2, "kernel_size": [29, 29]}}
        self.model(self.sequential(conv), ("big", "(None, 28, 28, 1)"))

    def test_hostile_models_are_one_line(self):
        """In little memory and time, whatever a file asks for."""
        def node(*names):
            return {"args": [[{"class_name": "__keras_tensor__", "config": {"keras_history": [name, 0, 0]}} for name in names]],
                    "kwargs": {}}

        def functional(*layers):
            first = [{"class_name": "InputLayer", "name": "x", "config": {"name": "x", "batch_shape": [None, 4]}, "inbound_nodes": []}]
            made = [{"class_name": kind, "name": name, "config": {"name": name}, "inbound_nodes": nodes} for kind, name, nodes in layers]
            return {"class_name": "Functional", "config": {"name": "m", "layers": first + made, "input_layers": [["x", 0, 0]],
                                                           "output_layers": [[layers[-1][1], 0, 0]]}}

        def dense(units):
            return self.sequential({"class_name": "Dense", "config": {"units": units}})

        def conv(**options):
            return self.sequential({"class_name": "Conv2D", "config": dict({"filters": 2, "kernel_size": 3}, **options)})

        big = 2 ** 31 - 1
        text = json.dumps(dense(3))
        cases = [
            (functional(("ReLU", "a", [node("b")]), ("ReLU", "b", [node("a")])), "the layers form a circle"),
            (functional(("ReLU", "a", [node("a")])), "needs its own output"),
            (functional(("ReLU", "a", [node("gone")])), "there is no layer 'gone'"),
            (functional(("ReLU", "a", [node("x")]), ("ReLU", "a", [node("x")])), "two layers are called 'a'"),
            (functional(*(("ReLU", f"l{i}", [node(f"l{i - 1}" if i else "x")]) for i in range(100000))), "100001 layers"),
            (functional(("ReLU", "a", [node("x")] * 100000)), "called 100000 times"),
            (functional(("Add", "a", [node(*["x"] * 100000)])), "more than 256 tensors"),
            (self.sequential(*[{"class_name": "ReLU", "config": {}}] * 100000), "100001 layers"),
            ('{"a":' * 100000, "maximum parsing depth"),
            ("[{}" + ",{}" * 4000000 + "]", "more than 4000000 values"),
            (dense(-1), "got -1"), (dense(0), "got 0"), (dense(1.5), "got 1.5"), (dense(1e308), "got 1e308"),
            (dense(2 ** 31), "at most 2147483647"), (dense(2 ** 63 - 1), "at most 2147483647"), (dense(2 ** 63), "too big integer"),
            (dense(float("nan")), "malformed JSON"), (dense([1] * 1000000), "got [1, 1, 1,"),
            (self.sequential(*[{"class_name": "Flatten", "config": {}}, *[{"class_name": "Dense", "config": {"units": big}}] * 2]),
             "more than 1099511627776 elements"),
            (conv(strides=-1), "strides"), (conv(dilation_rate=2 ** 40), "dilation_rate"), (conv(groups=big), "groups"),
            (conv(padding=7), "padding"), (conv(filters=big, kernel_size=28), "more than 1099511627776 elements"),
            (b'{"class_name": "\xff\xfe"}', "malformed JSON"), (b'{"class_name": "a\0b"}', "malformed JSON"),
            ('{"class_name": "a\\u0000b"}', "malformed JSON"), (text[:-1], "malformed JSON"), (b"", "malformed JSON"),
        ]
        limits = {} if os.environ["LOCKSTEP_SANITIZE"] != "none" else {
            "preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))}
        for content, says in cases:
            with self.subTest(says):
                if not isinstance(content, bytes):
                    content = (content if isinstance(content, str) else json.dumps(content)).encode()
                with open(self.path("model.json"), "wb") as file:
                    file.write(content)
                self.refused(BAD_INPUT, "summary", "--model=" + self.path("model.json"), says=("model.json", says), timeout=60, **limits)

    def test_a_missing_file(self):
        self.refused(BAD_INPUT, *TRAIN, "--model=./none.json", SYNTHETIC, says=("none.json",))

    def test_data_of_another_shape(self):
        self.refused(BAD_INPUT, *TRAIN, FIXED, "--dataset=synthetic:shape=5x5x1,examples=20",
                     says=("(None, 28, 28, 1)", "(None, 5, 5, 1)"))

    def test_more_classes_than_units(self):
        self.refused(BAD_INPUT, *TRAIN, FIXED, "--dataset=synthetic:classes=11,examples=20", says=("11", "10"))

    def test_targets_where_classes_are_wanted(self):
        self.refused(BAD_INPUT, *TRAIN, FIXED, "--dataset=synthetic:classes=0,examples=20",
                     says=("targets", "mean_squared_error"))


    def test_a_pipe_is_not_waited_for(self):
        os.mkfifo(self.path("pipe.json"))
        self.refused(BAD_INPUT, *TRAIN, "--model=" + self.path("pipe.json"), SYNTHETIC, says=("regular file",), timeout=30)


class Data(ProgramTest):
    def test_a_bad_test_split_is_said_before_training(self):
        for name, content in (("train-images-idx3-ubyte", idx_images(20)), ("train-labels-idx1-ubyte", idx_labels([1] * 20)),
                              ("t10k-images-idx3-ubyte", idx_images(3)), ("t10k-labels-idx1-ubyte", idx_labels([1, 10, 2]))):
            with open(self.path(name), "wb") as file:
                file.write(content)
        outcome = self.refused(BAD_INPUT, "train", "--model=mlp", "--dataset=mnist:dir=" + self.folder, says=("t10k-labels", "label 1"))
        self.assertEqual(outcome.out, "")

    def mnist(self, images, labels, says, code=BAD_INPUT):
        for name, content in (("train-images-idx3-ubyte", images), ("train-labels-idx1-ubyte", labels)):
            with open(self.path(name), "wb") as file:
                file.write(content)
        self.refused(code, *TRAIN, "--model=mlp", "--dataset=mnist:dir=" + self.folder, says=says)

    def test_good_files_train(self):
        for name, content in (("train-images-idx3-ubyte", idx_images(20)),
                              ("train-labels-idx1-ubyte.gz", gzip.compress(idx_labels([1] * 20)))):
            with open(self.path(name), "wb") as file:
                file.write(content)
        self.train("--model=mlp", "--dataset=mnist:dir=" + self.folder, "--validation=off")

    def test_two_bad_splits_are_one_line(self):
        for split in ("train", "t10k"):
            for name, content in (("images-idx3-ubyte", idx_images(3)), ("labels-idx1-ubyte", idx_labels([1, 99, 3]))):
                with open(self.path(split + "-" + name), "wb") as file:
                    file.write(content)
        for _ in range(5):
            self.refused(BAD_INPUT, "train", "--quiet", "--model=mlp", "--dataset=mnist:dir=" + self.folder, says=("train-labels", "99"))

    def test_wrong_magic(self):
        self.mnist(idx_images(3, magic=0x802), idx_labels([1, 2, 3]), ("train-images", "magic"))
        self.mnist(idx_images(3), idx_labels([1, 2, 3], magic=0x803), ("train-labels", "magic"))

    def test_a_short_file(self):
        self.mnist(idx_images(3, elements=2000), idx_labels([1, 2, 3]), ("train-images", "short"))
        self.mnist(idx_images(3), idx_labels([1, 2], count=3), ("train-labels", "short"))
        self.mnist(b"\0\0\x08", idx_labels([1]), ("train-images", "short"))

    def test_counts_that_disagree(self):
        self.mnist(idx_images(3), idx_labels([1, 2]), ("3", "2", "labels"))

    def test_a_label_outside_the_classes(self):
        self.mnist(idx_images(3), idx_labels([1, 10, 3]), ("label 1", "10"))

    def test_files_that_are_missing(self):
        self.refused(BAD_INPUT, *TRAIN, "--model=mlp", "--dataset=mnist:dir=" + self.folder, says=("train-images",))
        self.refused(USAGE, *TRAIN, "--model=mlp", "--dataset=mnist", says=("dir=",))

    def test_a_damaged_gzip_file(self):
        whole = gzip.compress(idx_images(30))
        with open(self.path("train-labels-idx1-ubyte"), "wb") as file:
            file.write(idx_labels([1] * 30))
        for content in (whole[:-20], whole[:200] + b"\xff\xff" + whole[202:], whole[:-8] + b"\0" * 8):
            with open(self.path("train-images-idx3-ubyte.gz"), "wb") as file:
                file.write(content)
            self.refused(BAD_INPUT, *TRAIN, "--model=mlp", "--dataset=mnist:dir=" + self.folder, says=("train-images",))

    def test_made_up_data_says_so_loudly(self):
        outcome = self.lockstep(*TRAIN, "--model=mlp", "--dataset=synthetic:examples=20")
        self.assertEqual(outcome.code, DONE)
        self.assertIn("NOT REAL DATA", outcome.err)


class Weights(ProgramTest):
    arguments = (*TRAIN, "--model=linear", "--dataset=synthetic:shape=4,classes=0,examples=20")

    def save(self, path):
        return self.lockstep(*self.arguments, "--save-weights=" + path)

    def test_of_another_model(self):
        self.assertEqual(self.save(self.path("w.safetensors")).code, DONE)
        self.refused(BAD_INPUT, *TRAIN, "--model=linear", "--dataset=synthetic:shape=5,classes=0,examples=20",
                     "--initial-weights=" + self.path("w.safetensors"), says=("dense/kernel", "(4, 1)", "(5, 1)"))
        self.refused(BAD_INPUT, *TRAIN, "--model=cnn", SYNTHETIC, "--initial-weights=" + self.path("w.safetensors"),
                     says=("conv2d/kernel",))

    def test_malformed(self):
        for content in (b"", b"12345678", b"\xff" * 40, struct.pack("<Q", 2) + b"[]"):
            with open(self.path("w.safetensors"), "wb") as file:
                file.write(content)
            self.refused(BAD_INPUT, *self.arguments, "--initial-weights=" + self.path("w.safetensors"), says=(self.path("w.safetensors"),))
        self.refused(BAD_INPUT, *self.arguments, "--initial-weights=/none/w", says=("/none/w",))

    def test_a_folder_that_is_not_there_is_refused_before_training(self):
        self.refused(BAD_INPUT, *self.arguments, "--save-weights=/none/w.safetensors", says=("/none",))
        self.refused(BAD_INPUT, *self.arguments, "--report=/none/r", says=("/none",))

    def test_names_of_files_that_cannot_be_meant(self):
        for option in ("--save-weights=", "--report="):
            self.refused(USAGE, *self.arguments, option, says=("empty",))
        self.refused(USAGE, *self.arguments, "--report=same.safetensors", "--save-weights=same.safetensors", says=("same",))

    def test_no_output_takes_the_place_of_an_input(self):
        shutil.copy(os.path.join(MODELS, "linear.json"), self.path("m.json"))
        self.assertEqual(self.save(self.path("w.safetensors")).code, DONE)
        weights = "--initial-weights=" + self.path("w.safetensors")
        before = {name: open(self.path(name), "rb").read() for name in ("m.json", "w.safetensors")}
        arguments = (*TRAIN, "--model=m.json", "--dataset=synthetic:shape=4,classes=0,examples=20", weights)
        for option, path, reader in (("report", "m.json", "model"), ("timeline", "./m.json", "model"),
                                     ("report", "w.safetensors", "initial-weights")):
            self.refused(USAGE, *arguments, f"--{option}={path}", says=(f"--{option}={path} ", f"--{reader} reads", "another name"))
        for dataset in ("arrays:x=w.safetensors,y=y.npy", "arrays:x=x.npy,y=./w.safetensors", "cifar10:train=a.bin+w.safetensors"):
            self.refused(USAGE, *TRAIN, "--model=m.json", "--dataset=" + dataset, "--save-weights=w.safetensors",
                         says=("--save-weights=w.safetensors ", "--dataset reads"))
        for name, content in before.items():
            with open(self.path(name), "rb") as file:
                self.assertEqual(file.read(), content)
        outcome = self.lockstep(*arguments, "--save-weights=w.safetensors")  # goes on with what it trained before
        self.assertEqual(outcome.code, DONE, outcome.err)

    def test_one_file_by_two_names(self):
        os.mkdir(self.path("sub"))
        os.symlink("sub", self.path("link"))
        for one, other in (("w.safetensors", "./w.safetensors"), ("w.safetensors", self.path("w.safetensors")),
                           ("sub/w.safetensors", "link/w.safetensors"), ("sub/../w.safetensors", "w.safetensors")):
            for option in ("--save-weights=", "--timeline="):
                self.refused(USAGE, *self.arguments, "--report=" + one, option + other, says=("same file",))
        self.refused(USAGE, *self.arguments, "--timeline=w.safetensors", "--save-weights=.//w.safetensors", says=("same file",))
        with open(self.path("a"), "w") as file:
            file.write("old")
        os.link(self.path("a"), self.path("b.safetensors"))
        self.refused(USAGE, *self.arguments, "--report=a", "--save-weights=b.safetensors", says=("same file",))
        os.unlink(self.path("b.safetensors"))
        outcome = self.lockstep(*self.arguments, "--report=w.safetensors", "--save-weights=sub/w.safetensors")
        self.assertEqual(outcome.code, DONE, outcome.err)

    def test_a_limit_on_file_sizes_leaves_nothing_behind(self):
        limited = subprocess.run(["sh", "-c", 'ulimit -f 100; exec "$0" "$@"', LOCKSTEP, *TRAIN, "--model=mlp", "--steps=1",
                                  SYNTHETIC, "--save-weights=" + self.path("w.safetensors")], stderr=subprocess.PIPE, text=True)
        self.assertEqual(limited.returncode, FAILED, limited.stderr)
        self.assertIn("File too large", limited.stderr)
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_full_disk_leaves_nothing_behind(self):
        if os.system(f"mount -t tmpfs -o size=64k tmpfs {self.folder} 2>/dev/null") != 0:
            self.skipTest("a small file system cannot be mounted here")
        try:
            with open(self.path("filler"), "wb", buffering=0) as file:
                while True:
                    try:
                        file.write(b"x" * 4096)
                    except OSError:
                        break
            for option in ("--save-weights=", "--report="):
                outcome = self.refused(FAILED, *TRAIN, "--model=mlp", "--steps=1", SYNTHETIC, option + self.path("out.safetensors"),
                                       says=(self.path("out.safetensors"), "No space left"), cwd="/")
                self.assertNotIn("as it was", outcome.err)  # there was none
                self.assertEqual(os.listdir(self.folder), ["filler"])
        finally:
            os.system(f"umount {self.folder}")

    def test_the_old_file_survives_a_failed_save(self):
        if os.system(f"mount -t tmpfs -o size=64k tmpfs {self.folder} 2>/dev/null") != 0:
            self.skipTest("a small file system cannot be mounted here")
        try:
            with open(self.path("out.safetensors"), "wb") as file:
                file.write(b"old")
            self.refused(FAILED, *TRAIN, "--model=cnn", "--steps=1", SYNTHETIC, "--save-weights=" + self.path("out.safetensors"),
                         says=("No space left", "the file was left as it was"), cwd="/")
            with open(self.path("out.safetensors"), "rb") as file:
                self.assertEqual(file.read(), b"old")
        finally:
            os.system(f"umount {self.folder}")


class Closed(ProgramTest):
    def test_standard_files_that_are_closed_are_no_files_of_others(self):
        small = ("--model=mlp", SYNTHETIC, "--validation=off")
        for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            for command in (("train",), ("compare", "--strategies=ring", UNTIMED)):
                with self.subTest(closed=closed, command=command):
                    path = self.path("r.json")
                    done = subprocess.run(["sh", "-c", 'exec "$0" "$@" ' + closed, LOCKSTEP, *command, *small, "--report=" + path],
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                                          timeout=120)
                    self.assertEqual(done.returncode, DONE, done.stderr)
                    report = read_json(path)
                    os.unlink(path)
                    self.assertEqual(report["status"], "done")
                    self.assertEqual([run["status"] for run in report.get("runs", [])],
                                     ["done"] * len(report.get("runs", [])))


class NotFinite(ProgramTest):
    def test_what_the_last_update_ruined_is_no_success(self):
        self.need(FASHION + "/train-images-idx3-ubyte.gz")
        weights = self.path("w.safetensors")
        # A huge but finite weight shows in validation; zero gradients without epsilon are 0 / 0.
        for options in (("--optimizer=sgd:learning_rate=1e38",), ("--optimizer=adam:epsilon=0", "--validation=off")):
            self.refused(FAILED, "train", "--quiet", "--model=mlp", "--dataset=fashion-mnist:limit=64", *options,
                         "--save-weights=" + weights, says=("not finite",))
            self.assertFalse(os.path.exists(weights))

    def test_a_loss_that_is_not_finite_names_step_and_operation(self):
        self.need(FASHION + "/train-images-idx3-ubyte.gz")
        for extra in ((), ("--replicas=3", "--strategy=ring")):
            report = self.path("r.json")
            self.refused(FAILED, *TRAIN, "--model=mlp", "--dataset=fashion-mnist:limit=500",
                         "--optimizer=sgd:learning_rate=1e30", "--report=" + report, *extra,
                         says=("step 2", "not finite", "dense"))
            written = read_json(report)
            self.assertEqual(written["status"], "failed")
            self.assertEqual(len(written["losses"]), 1)


if __name__ == "__main__":
    main()
