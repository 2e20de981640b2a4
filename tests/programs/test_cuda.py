# SPDX-License-Identifier: Apache-2.0
"""--device=cuda with the real command: on this machine as it is, and on the fake of CUDA, which is NOT A GPU.

The double (tests/support/cuda-fake) computes on host memory that the program itself cannot touch; training on it shows
that the host code of the device and the core keep to streams and copies. It shows nothing about a GPU.
"""
import array
import gzip
import os
import signal
import subprocess

from support import DONE, FAILED, FIXTURES, INTERRUPTED, KERAS_FILES, LOCKSTEP, PEER_LOST, UNAVAILABLE, USAGE, ProgramTest, has_driver, main, read_json, tensors, write_json

DOUBLE = os.environ["LOCKSTEP_CUDA_FAKE"]
BUILT = os.environ["LOCKSTEP_CUDA_BUILT"] == "true"
# float32 in another order: a few roundings a step, of losses near 2.3.
LOSS_TOLERANCE = 5e-6
WEIGHT_TOLERANCE = 1e-6


class Here(ProgramTest):
    """The device as it was built, on this machine."""

    def setUp(self):
        super().setUp()
        if not BUILT:
            self.skipTest("device cuda was not built: nvcc or a library is missing")
        if has_driver():
            self.skipTest("this machine has NVIDIA's driver: its absence cannot be tried")

    def test_the_device_says_in_one_line_what_is_missing(self):
        self.refused(UNAVAILABLE, "train", "--model=mlp", "--dataset=synthetic", "--device=cuda",
                     says=("device-cuda.so cannot run here", "no driver"))

    def test_the_list_of_plugins_has_it_with_the_reason(self):
        outcome = self.lockstep("plugins")
        self.assertEqual(outcome.code, DONE, outcome.err)
        lines = outcome.out.splitlines()
        at = next(i for i, line in enumerate(lines) if line.split()[:2] == ["device", "cuda"])
        self.assertIn("not available", lines[at])
        self.assertIn("no driver", lines[at + 1])
        self.assertFalse([line for line in lines if "engine" in line], "its heavy part is no plugin")

    def test_its_own_page_says_why_it_is_not_available(self):
        self.refused(UNAVAILABLE, "plugins", "cuda", says=("device 'cuda' is not available", "no driver"))

    def test_the_default_device_stays_the_cpu(self):
        report = self.train("--model=mlp", "--dataset=synthetic", "--steps=1")
        self.assertEqual(report["device"], "cpu")
        self.assertEqual(report["device_bytes"], 0)


class Double(ProgramTest):
    """On the fake: NOT A GPU."""

    def setUp(self):
        super().setUp()
        print("on the fake of CUDA, which is NOT A GPU:", self.id().split(".")[-1], flush=True)

    def on_double(self, arguments, settings):
        """Options and environment; `settings` are those of tests/support/cuda-fake/fake.h, and the device."""
        options = ["--plugin-path=" + DOUBLE, "--device=" + settings.pop("device", "cuda"), *arguments]
        if not any(option.startswith("--dataset") for option in arguments):
            options.append("--dataset=synthetic")
        return options, {"CUDA_FAKE_" + name.upper(): str(value) for name, value in settings.items()}

    def run_double(self, *arguments, **settings):
        options, environment = self.on_double(arguments, settings)
        return self.train(*options, environment=environment)

    # Of images so small that the updates of a training on the fake take no longer than the rest.
    IMAGES = "--dataset=synthetic:shape=16x16x1,classes=10,examples=96"

    def normalizing(self, **config):
        """A model with batch normalization."""
        path = os.path.join(self.folder, "normalizing.json")
        layers = [{"class_name": "Flatten"}, {"class_name": "BatchNormalization", "config": config},
                  {"class_name": "Dense", "config": {"units": 10}}]
        write_json(path, {"class_name": "Sequential", "config": {"layers": layers}})
        return "--model=" + path

    def test_convolutions_of_volumes_are_refused_by_name(self):
        model = self.sequential("volumes", ("InputLayer", {"batch_shape": [None, 4, 4, 4, 1]}), ("Conv3D", {"filters": 2, "kernel_size": 3}),
                                ("Flatten", {}), ("Dense", {"units": 2}))
        options, environment = self.on_double([model, "--dataset=synthetic:shape=4x4x4x1,classes=2,examples=20", "--batch=10", "--epochs=1"], {})
        self.refused(UNAVAILABLE, "train", "--validation=off", *options, environment=environment,
                     says=("conv3d", "no kernel for operation conv2d of these shapes", "use another device"))

    def sequential(self, name, *layers):
        path = os.path.join(self.folder, name + ".json")
        write_json(path, {"class_name": "Sequential", "config": {"layers": [{"class_name": kind, "config": config} for kind, config in layers]}})
        return "--model=" + path

    def test_recurrent_layers_masks_and_augmentation_train_as_on_the_reference_device(self):
        tagger = os.path.join(FIXTURES, "recurrent", "masked-tagger")
        # The layer before the images has weights, so gradients go through all of them.
        cases = ((True, self.sequential("recurrent", ("InputLayer", {"batch_shape": [None, 7, 3]}),
                                  ("LSTM", {"units": 4, "return_sequences": True, "recurrent_dropout": 0.25}),
                                  ("GRU", {"units": 4, "reset_after": False, "go_backwards": True}), ("Dense", {"units": 2})),
                  "synthetic:shape=7x3,classes=2,examples=24"),
                 (False, self.sequential("masked", ("InputLayer", {"batch_shape": [None, 7], "dtype": "int32"}),
                                  ("Embedding", {"input_dim": 9, "output_dim": 4, "mask_zero": True}),
                                  ("Dense", {"units": 4, "activation": "softmax"})),
                  f"arrays:x={tagger}-x1.npy,y={tagger}-y.npy"),
                 (True, self.sequential("images", ("InputLayer", {"batch_shape": [None, 8, 8, 3]}), ("Conv2D", {"filters": 3, "kernel_size": 1}),
                                  ("RandomFlip", {}), ("RandomRotation", {"factor": 0.1}), ("RandomContrast", {"factor": 0.2}),
                                  ("RandomErasing", {"factor": 0.9}), ("Resizing", {"height": 6, "width": 5}), ("Flatten", {}), ("Dense", {"units": 2})),
                  "synthetic:shape=8x8x3,classes=2,examples=24"))
        for recorded, model, data in cases:  # replicas add up how many steps a mask leaves, within the step
            for replicas in (1, 2):
                with self.subTest(model=model, replicas=replicas):
                    self.as_on_the_reference(model, "--dataset=" + data, "--steps=3", f"--replicas={replicas}", recorded=recorded)

    def test_categories_and_tied_embeddings_train_as_on_the_reference_device(self):
        """Numbers with a vocabulary, bins and codes, one hot, several or counted; and a language model that ends with its embedding in reverse."""
        if not KERAS_FILES:
            self.skipTest("files of Keras are not built in")
        folder = os.path.join(FIXTURES, "categories")
        for name, fields, loss in (("table", ("x", "x2", "x3"), ""), ("tied", ("x",), ":from_logits=true")):
            inputs = ",".join(f"{field}={folder}/{name}-x{field[1:] or 1}.npy" for field in fields)
            model = os.path.join(folder, name + ".keras")
            for replicas in (1, 2):
                with self.subTest(model=name, replicas=replicas):
                    self.as_on_the_reference("--model=" + model, "--initial-weights=" + model, f"--dataset=arrays:{inputs},y={folder}/{name}-y.npy",
                                             "--loss=sparse_categorical_crossentropy" + loss, "--epochs=2", f"--replicas={replicas}", recorded=False)

    def test_outputs_under_masks_train_as_on_the_reference_device(self):
        if not KERAS_FILES:
            self.skipTest("files of Keras are not built in")
        for name, inputs, targets in (("masked-heads", 1, 3), ("masked-masks", 2, 2)):
            file = os.path.join(FIXTURES, "outputs", name)
            fields = [f"{field}{i if i > 1 else ''}={file}-{field}{i}.npy" for field, count in (("x", inputs), ("y", targets)) for i in range(1, count + 1)]
            for replicas in (1, 2):  # they add up what the masks leave, within the step
                with self.subTest(model=name, replicas=replicas):
                    got, wanted = (report["epochs"] for report in self.as_on_the_reference(
                        f"--model={file}.keras", f"--initial-weights={file}.keras", "--dataset=arrays:" + ",".join(fields), "--epochs=3",
                        f"--replicas={replicas}"))
                    for one, other in zip(got, wanted):
                        losses = [key for key in other if key.endswith("loss")]
                        self.assertGreater(len(losses), targets)
                        for key in losses:
                            self.assertAlmostEqual(one[key], other[key], delta=1e-5, msg=key)

    def test_an_id_that_is_none_is_named(self):
        model = self.sequential("codes", ("InputLayer", {"batch_shape": [None, 7]}), ("Rescaling", {"scale": -20.0}),
                                ("CategoryEncoding", {"name": "codes", "num_tokens": 9, "output_mode": "count"}), ("Dense", {"units": 2}))
        options, environment = self.on_double([model, "--dataset=synthetic:shape=7,classes=2,examples=20", "--batch=10", "--epochs=1"], {})
        self.refused(FAILED, "train", "--validation=off", *options, environment=environment, says=("codes", "an id in the data is negative"))

    def test_metrics_of_columns_and_of_positions_are_those_of_the_reference_device(self):
        files = [self.path(name) for name in ("x.npy", "y.npy")]
        for file, factor in zip(files, (7, 5)):
            head = "{'descr': '<f4', 'fortran_order': False, 'shape': (200, 3), }".ljust(117) + "\n"
            with open(file, "wb") as out:
                out.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode())
                array.array("f", (i * i * factor % 101 / 50 - 1 for i in range(600))).tofile(out)
        names = ("r2_score", "pearson_correlation", "concordance_correlation")
        model = self.sequential("linear", ("InputLayer", {"batch_shape": [None, 3]}), ("Dense", {"units": 3}))
        got, wanted = (report["epochs"][0] for report in self.as_on_the_reference(
            model, f"--dataset=arrays:x={files[0]},y={files[1]}", "--loss=mean_squared_error", "--optimizer=sgd:learning_rate=0.01",
            "--metrics=" + ",".join(names), "--epochs=1"))
        for name in names:
            self.assertAlmostEqual(got[name], wanted[name], delta=1e-5, msg=name)
            self.assertNotEqual(wanted[name], 0)

    def u_net(self):
        """A model that goes down and up again, whose batch normalization is frozen, and a product of two tensors at its end."""
        same = {"kernel_size": 3, "padding": "same", "activation": "relu"}
        layers = (("InputLayer", {"batch_shape": [None, 28, 28, 1]}), ("Conv2D", {"filters": 4, **same}, 0), ("MaxPooling2D", {}, 1),
                  ("Conv2D", {"filters": 8, **same}, 2), ("BatchNormalization", {"trainable": False}, 3),
                  ("Conv2DTranspose", {"filters": 4, "strides": 2, **same}, 4), ("Add", {}, 1, 5), ("AveragePooling2D", {"pool_size": 7}, 6),
                  ("Reshape", {"target_shape": [4, 16]}, 7), ("Reshape", {"target_shape": [16, 4]}, 7), ("Matmul", {}, 8, 9),
                  ("Flatten", {}, 10), ("Dense", {"units": 10, "activation": "softmax"}, 11))
        written = []
        for i, (kind, config, *inputs) in enumerate(layers):
            tensors_of = [{"class_name": "__keras_tensor__", "config": {"keras_history": [str(source), 0, 0]}} for source in inputs]
            module = "keras.src.ops.numpy" if kind == "Matmul" else "keras.layers"
            written.append({"module": module, "class_name": kind, "name": str(i), "config": {"name": str(i), **config},
                            "inbound_nodes": [{"args": [tensors_of] if kind == "Add" else tensors_of, "kwargs": {}}] if inputs else []})
        write_json(self.path("u-net.json"), {"class_name": "Functional", "config": {"name": "u-net", "layers": written, "input_layers": [["0", 0, 0]],
                                                          "output_layers": [["12", 0, 0]]}})
        return "--model=" + self.path("u-net.json")

    def test_states_in_parts_have_the_bits_of_whole_ones(self):
        arguments = ("--model=mlp", "--dataset=synthetic:shape=8x8x1,classes=10,examples=96", "--batch=30", "--replicas=3", "--validation=off")
        for more in (("--optimizer=adam",), ("--optimizer=adam:global_clipnorm=0.1", "--loss-scale=dynamic")):
            for streams in ("thread", "deferred"):
                with self.subTest(more=more, streams=streams):
                    whole, parts = (self.run_double(*arguments, *more, "--strategy=" + strategy, devices=3, streams=streams)
                                    for strategy in ("mirrored:collective=ring", "sharded:late=on"))
                    for one, other in zip(whole["losses"], parts["losses"]):
                        self.assertAlmostEqual(one, other, delta=1e-6 * one if "--loss-scale=dynamic" in more else 0)
                    parameters = parts["parameters"]
                    self.assertLess(parts["device_bytes"], whole["device_bytes"] - 8 * parameters * 0.6)  # two thirds of two states

    def test_logical_shards_have_the_same_bits(self):
        """Their sums are made in host memory, whatever computes."""
        arguments = (self.normalizing(), "--dataset=synthetic:shape=8x8x1,classes=10,examples=100", "--batch=30", "--epochs=2", "--reproducible=4",
                     "--optimizer=adam:global_clipnorm=0.1", "--metrics=accuracy,sparse_categorical_crossentropy")

        def found(*more, **settings):
            report = self.run_double(*arguments, *more, **settings)
            return report["losses"], report["parameter_hashes"][0], [(epoch["val_loss"], epoch["accuracy"]) for epoch in report["epochs"]]

        wanted = found("--replicas=1")
        for strategy, replicas, devices, streams in (("ring", 2, 2, "thread"), ("tree", 3, 2, "deferred"), ("sharded", 3, 3, "deferred"),
                                                     ("one-device", 1, 1, "deferred")):
            with self.subTest(strategy=strategy):
                self.assertEqual(found(f"--replicas={replicas}", "--strategy=" + strategy, devices=devices, streams=streams), wanted)
        plain = self.run_double(*(option for option in arguments if option != "--reproducible=4"), "--replicas=2", "--strategy=ring", devices=2)
        self.assertNotEqual(plain["parameter_hashes"][0], wanted[1])
        options, environment = self.on_double((*arguments, "--strategy=central-storage", "--replicas=2"), {"devices": 2})
        self.refused(UNAVAILABLE, "train", "--quiet", *options, environment=environment,
                     says=("central-storage", "updates variables on the host, which rounds otherwise than device 'cuda'"))
        options, environment = self.on_double((self.normalizing(synchronized=True), *arguments[1:], "--reproducible=2", "--strategy=ring", "--replicas=2"),
                                              {"devices": 2})
        options.remove("--reproducible=4")
        self.refused(UNAVAILABLE, "train", "--quiet", *options, environment=environment, says=("(synchronized)", "in the memory of device 'cuda'"))
        for strategy in ("ring", "central-storage"):
            got, lines = self.trained_by_default("--model=mlp", "--reproducible=2", "--strategy=" + strategy, "--replicas=2", devices=2)
            self.assertEqual(got["device"], "cpu")
            self.assertIn("cpu, because cuda has other bits, so --reproducible takes it where it is named", lines[0])

    SHORT = ("--steps=4", "--batch=4", "--validation=off")

    def by_default(self, command, *arguments, code=DONE, **settings):
        """Without --device: what it has written, and its lines about the device."""
        environment = {"CUDA_FAKE_" + name.upper(): str(value) for name, value in settings.items()}
        outcome = self.lockstep(command, "--plugin-path=" + DOUBLE, "--dataset=synthetic:examples=64", *arguments,
                                environment=environment)
        self.assertEqual(outcome.code, code, outcome.err)
        return outcome, [line for line in outcome.err.splitlines() if "--device: " in line]

    def with_prelu(self):
        path = self.path("prelu.json")
        layers = [{"class_name": name, "config": {"units": 10} if name == "Dense" else {}} for name in ("Flatten", "PReLU", "Dense")]
        write_json(path, {"class_name": "Sequential", "config": {"layers": layers}})
        return "--model=" + path

    def trained_by_default(self, *arguments, **settings):
        path = self.path("default.json")
        lines = self.by_default("train", "--quiet", *self.SHORT, "--report=" + path, *arguments, **settings)[1]
        return read_json(path), lines

    def test_it_is_the_default_where_it_has_every_operation(self):
        for options, settings in (("--model=cnn-small", {}), ("--model=mlp", {"streams": "deferred", "devices": 2})):
            got, lines = self.trained_by_default(options, **settings)
            self.assertEqual((got["device"], got["replicas"], lines), ("cuda", settings.get("devices", 1), []))
            wanted = self.run_double("--dataset=synthetic:examples=64", *self.SHORT, options, **settings)
            self.assertEqual((got["losses"], got["parameter_hashes"]), (wanted["losses"], wanted["parameter_hashes"]))

    def test_the_cpu_is_the_default_where_it_lacks_an_operation(self):
        mlp = "--model=mlp"
        for options, devices, why in (
                ((self.with_prelu(),), 1, "has no operation prelu"),
                ((self.with_prelu(), "--replicas=2"), 2, "has no operation prelu"),
                ((mlp, "--wire=float16", "--replicas=2"), 2, "sends gradients as they are"),
                ((mlp, "--strategy=ring:transport=shared-memory", "--replicas=2"), 1, "has memory of its own")):
            with self.subTest(options=options):
                got, lines = self.trained_by_default(*options, devices=devices, lacks="prelu")
                self.assertEqual((got["device"], len(lines)), ("cpu", 1), lines)
                self.assertIn("warning: --device: cpu, because cuda " + why, lines[0])
                wanted = self.train("--device=cpu", "--dataset=synthetic:examples=64", *self.SHORT, *options)
                self.assertEqual((got["losses"], got["parameter_hashes"], got["strategy"]),
                                 (wanted["losses"], wanted["parameter_hashes"], wanted["strategy"]))

    def test_the_default_is_refused_where_gpus_are_numbered(self):
        self.assertIn("prelu", self.by_default("train", self.with_prelu(), "--devices=0", code=UNAVAILABLE, lacks="prelu")[0].err)

    def test_gpus_that_do_not_reach_each_other_are_no_default_for_two_replicas(self):
        got, lines = self.trained_by_default("--model=mlp", devices=2, no_peers=1)
        self.assertEqual((got["device"], got["replicas"], len(lines)), ("cpu", 2, 1))
        self.assertIn("does not go with the strategy (local: ", lines[0])
        self.assertTrue(lines[0].endswith("; --device=cpu --replicas=2 chooses it without this line"), lines[0])

    def test_evaluation_and_prediction_take_the_same_default(self):
        for command, options in (("evaluate", ()), ("predict", ("--out=" + self.path("found.csv"),))):
            self.assertEqual(self.by_default(command, "--model=cnn-small", *options)[1], [])
            # That it was cuda shows where it fails; and no other device takes its place then.
            outcome, lines = self.by_default(command, "--model=cnn-small", *options, code=FAILED, fail=3)
            self.assertIn("unspecified launch failure", outcome.err)
            self.assertEqual(lines, [])
            lines = self.by_default(command, self.with_prelu(), *options, lacks="prelu")[1]
            self.assertEqual(len(lines), 1)
            self.assertIn("cpu, because cuda has no operation prelu", lines[0])
        found = self.path("found.csv")
        with open(found) as file:
            ours = file.read()
        self.lockstep("predict", "--device=cpu", self.with_prelu(), "--dataset=synthetic:examples=64", "--out=" + found)
        with open(found) as file:
            self.assertEqual(ours, file.read())

    def test_a_comparison_has_one_device(self):
        report = self.path("comparison.json")
        lines = self.by_default("compare", self.with_prelu(), "--strategies=one-device,ring", "--replicas=2", *self.SHORT,
                                "--threads=1", "--speed-steps=0", "--report=" + report, lacks="prelu")[1]
        self.assertEqual(len(lines), 1, lines)
        comparison = read_json(report)
        self.assertEqual((comparison["device"], [run["status"] for run in comparison["runs"]]), ("cpu", ["done"] * 2))

    def test_failures_of_the_default_are_failures(self):
        for settings in ({"memory": 3000000}, {"pinned": 1000}, {"fail": 60}):
            outcome, lines = self.by_default("train", "--quiet", "--model=mlp", "--steps=9", "--batch=4", code=FAILED, **settings)
            self.assertEqual((len(outcome.err.splitlines()) <= 2, lines), (True, []), outcome.err)
        for settings in ({"init": 100}, {"capability": 75}):  # it cannot run here at all
            got, lines = self.trained_by_default("--model=mlp", **settings)
            self.assertEqual((got["device"], lines), ("cpu", []))

    def test_a_model_with_moving_statistics_is_evaluated(self):
        for synchronized in (False, True):
            options, environment = self.on_double([self.normalizing(synchronized=synchronized)], {})
            outcome = self.lockstep("evaluate", *options, environment=environment)
            self.assertEqual(outcome.code, DONE, outcome.err)
            self.assertIn("loss: ", outcome.out)

    def test_predictions_are_those_of_the_cpu(self):
        # Batches that are sent while others compute, as bytes and as float32, and no labels.
        found = {}
        for device in ("cpu", "cuda"):
            options, environment = self.on_double(["--model=cnn-small", "--dataset=synthetic:examples=200"], {"device": device})
            path = os.path.join(self.folder, device + ".csv")
            outcome = self.lockstep("predict", "--batch=7", "--replicas=2", "--out=" + path, *options, environment=environment)
            self.assertEqual(outcome.code, DONE, outcome.err)
            with open(path) as file:
                found[device] = [float(value) for line in list(file)[1:] for value in line.split(",")]
        self.assertGreater(len(found["cpu"]), 100)
        self.assertEqual(len(found["cpu"]), len(found["cuda"]))
        for one, other in zip(found["cpu"], found["cuda"]):
            self.assertAlmostEqual(one, other, delta=1e-5)

    def refused_double(self, code, *arguments, says=(), **settings):
        options, environment = self.on_double(arguments, settings)
        return self.refused(code, "train", "--quiet", "--model=mlp", "--steps=9", *options, says=says, environment=environment)

    def assert_close(self, losses, wanted, delta=LOSS_TOLERANCE):
        self.assertEqual(len(losses), len(wanted))
        for step, (a, b) in enumerate(zip(losses, wanted)):
            self.assertAlmostEqual(a, b, delta=delta, msg=f"step {step + 1}")

    def gpt(self, dropout=0.1):
        """Options for a GPT of two blocks, with dropout in its attention, and a text of its 19 characters."""
        with gzip.open(os.path.join(FIXTURES, "models", "gpt.json.gz"), "rt") as packed, open(self.path("gpt.json"), "w") as file:
            file.write(packed.read().replace('"dropout": 0.0', '"dropout": %g' % dropout))
        with open(self.path("text.txt"), "w") as file:
            file.write("".join(chr(ord("a") + i * i * 7 % 19 * (i % 3) % 19) for i in range(1000)))
        return ("--model=" + self.path("gpt.json"), "--dataset=text:length=12,stride=5,file=" + self.path("text.txt"),
                "--loss=sparse_categorical_crossentropy:from_logits=true", "--steps=8", "--batch=6", "--optimizer=sgd:learning_rate=0.05")

    def test_models_learn_as_on_the_reference_device(self):
        cnn = ("--model=cnn", self.IMAGES, "--steps=6", "--batch=12", "--optimizer=sgd:learning_rate=0.01")
        # Its batch normalization makes larger steps part at the first ReLU that a rounding turns over.
        resnet = ("--model=resnet", "--dataset=synthetic:shape=32x32x3", "--steps=10", "--optimizer=sgd:learning_rate=0.001,momentum=0.9")
        two = ("--batch=8", "--replicas=2", "--strategy=ring")
        some = ("--dataset=synthetic", "--steps=6", "--optimizer=sgd:learning_rate=0.01")
        for options, runs in ((cnn, (("thread", "on"), ("deferred", "on"))), ((*resnet, "--batch=4"), (("thread", "on"), ("deferred", "off"))),
                              ((*resnet, *two), (("deferred", "on"), ("thread", "off"))),
                              (self.gpt(), (("thread", "on"), ("deferred", "off"))),
                              ((self.u_net(), *some, "--batch=8"), (("thread", "on"), ("deferred", "off"))),
                              ((self.normalizing(synchronized=True), *some, *two), (("deferred", "on"), ("thread", "off")))):
            options += ("--validation=off",)
            wanted = self.train("--device=reference", "--save-weights=" + self.path("wanted.safetensors"), *options)
            for streams, recording in runs:
                with self.subTest(options=options, streams=streams, recording=recording):
                    got = self.run_double("--save-weights=" + self.path("got.safetensors"), *options, streams=streams,
                                          device="cuda:recording=" + recording)
                    self.assertEqual(got["device"], "cuda")
                    self.assertIn("NOT A GPU", got["hardware"])
                    self.assertGreater(got["device_bytes"], 0)
                    self.assertEqual(got["recording"].startswith("recorded "), recording == "on", got["recording"])
                    self.assertEqual(len(set(got["parameter_hashes"])), 1)
                    self.assert_close(got["losses"], wanted["losses"])
                    self.assert_same_weights("got.safetensors", "wanted.safetensors")

    def test_a_gpt_in_halves_learns_as_on_the_reference_device_by_cudnn_s_attention_and_without(self):
        options = (*self.gpt(dropout=0), "--precision=mixed_bfloat16", "--validation=off")
        wanted = self.train("--device=reference", *options)["losses"]
        losses = [self.run_double(*options, device="cuda" + option)["losses"] for option in ("", ":recording=off", ":fused_attention=off")]
        self.assertEqual(losses[0], losses[1])
        self.assertNotEqual(losses[0], losses[2]) # other roundings: they are two ways
        for some in losses[1:]:
            self.assert_close(some, wanted, 5e-3)

    def dense(self):
        """A model of two dense layers, the first with a penalty."""
        path = self.path("dense.json")
        penalty = {"class_name": "L1L2", "config": {"l1": 0.001, "l2": 0.01}}
        layers = [{"class_name": "Flatten"}, {"class_name": "Dense", "config": {"units": 5, "activation": "tanh", "kernel_regularizer": penalty}},
                  {"class_name": "Dense", "config": {"units": 10}}]
        write_json(path, {"class_name": "Sequential", "config": {"layers": layers}})
        return "--model=" + path

    def test_every_optimizer_updates_as_on_the_reference_device(self):
        for optimizer in ("rmsprop", "rmsprop:momentum=0.5,centered=on", "adagrad", "adadelta", "adamax", "nadam", "adamw", "adam:amsgrad=on",
                          "sgd:weight_decay=0.1,momentum=0.9", "lamb", "sgd:clipvalue=0.001", "adam:clipnorm=0.01", "sgd:global_clipnorm=0.1",
                          "sgd:use_ema=on,ema_momentum=0.5,ema_overwrite_frequency=2"):
            with self.subTest(optimizer):
                self.as_on_the_reference("--steps=3", "--optimizer=" + optimizer)

    def as_on_the_reference(self, *options, delta=LOSS_TOLERANCE, recorded=True, **settings):
        """Reports of the fake and of device reference, of the same training, whose losses and weights are the same."""
        if not any(option.startswith("--model") for option in options):
            options += (self.dense(), "--dataset=synthetic")
        options += ("--batch=8", "--validation=off")
        wanted = self.train("--device=reference", "--save-weights=" + self.path("wanted.safetensors"), *options)
        got = self.run_double("--save-weights=" + self.path("got.safetensors"), *options, **settings)
        self.assertTrue(got["recording"].startswith("recorded ") or not recorded, got["recording"])
        self.assert_close(got["losses"], wanted["losses"], delta)
        self.assert_same_weights("got.safetensors", "wanted.safetensors", WEIGHT_TOLERANCE if delta == LOSS_TOLERANCE else delta)
        return got, wanted

    def test_losses_weights_of_examples_and_metrics_are_those_of_the_reference_device(self):
        classes = ("--class-weight=0:2,3:0.5", "--metrics=sparse_top_k_categorical_accuracy", "--steps=6")
        for options in ((*self.binary(48), "--epochs=1"), classes):
            with self.subTest(options):
                got, wanted = (report["epochs"][0] for report in self.as_on_the_reference(*options))
                self.assertEqual(set(got), set(wanted))
                self.assertIn("auc" if options is not classes else "sparse_top_k_categorical_accuracy", got)
                for name, value in wanted.items():
                    if "second" not in name and isinstance(value, float):
                        self.assertAlmostEqual(got[name], value, delta=1e-5, msg=name)

    def test_a_loss_scale_skips_the_same_steps_as_the_reference_device(self):
        scaled = ("--steps=8", "--precision=mixed_float16", "--optimizer=sgd:learning_rate=0.01,momentum=0.9,global_clipnorm=1",
                  "--loss-scale=dynamic:initial_scale=4194304,dynamic_growth_steps=3")
        for options, settings in (((), {}), (("--replicas=2", "--strategy=ring"), {"devices": 2})):
            with self.subTest(options):
                got, wanted = self.as_on_the_reference(*scaled, *options, delta=1e-3, **settings)
                self.assertEqual((got["loss_scale"], got["skipped_steps"]), (wanted["loss_scale"], wanted["skipped_steps"]))
                self.assertTrue(0 < got["skipped_steps"] < 6, got["skipped_steps"])
                self.assertRegex(got["recording"], "recorded in [1-9][0-9]* parts")

    def assert_same_weights(self, got, wanted, delta=WEIGHT_TOLERANCE):
        ours, theirs = tensors(self.path(got)), tensors(self.path(wanted))
        self.assertEqual(sorted(ours), sorted(theirs))
        for name, (shape, values) in theirs.items():
            self.assertEqual(ours[name][0], shape)
            for a, b in zip(ours[name][1], values):
                self.assertAlmostEqual(a, b, delta=delta, msg=name)

    def test_a_loss_that_is_not_finite_is_named_as_on_the_reference_device(self):
        write_json(self.path("one.json"), {"class_name": "Sequential", "config": {"layers": [{"class_name": "Dense", "config": {"units": 1}}]}})
        options = ("train", "--quiet", "--model=" + self.path("one.json"), "--dataset=synthetic:shape=8,classes=2,examples=48", "--batch=8",
                   "--loss=mean_squared_error", "--optimizer=sgd:learning_rate=1e19")
        says = "step 2: the loss is not finite; the first value that is not finite is in 'mean_squared_error forward"
        self.refused(FAILED, *options, "--device=reference", says=(says + "'",))
        self.refused(FAILED, *options, "--device=cuda", "--plugin-path=" + DOUBLE, says=(says + " + gradient'",))

    def test_two_runs_have_the_same_bits(self):
        options = ("--model=cnn", self.IMAGES, "--steps=4", "--batch=8", "--validation=off")
        hashes = [self.run_double(*options, streams=streams)["parameter_hashes"] for streams in ("thread", "deferred")]
        self.assertEqual(hashes[0], hashes[1])

    def test_evaluation_and_an_uneven_last_batch_run(self):
        for dtype in ("uint8", "float32"):  # as bytes, converted there, and as they are
            options = ("--model=mlp", f"--dataset=synthetic:examples=100,dtype={dtype}", "--epochs=1", "--batch=32", "--microbatches=2")
            got = self.run_double(*options)
            wanted = self.train("--device=reference", *options)
            self.assert_close(got["losses"], wanted["losses"])
            self.assertAlmostEqual(got["epochs"][0]["val_loss"], wanted["epochs"][0]["val_loss"], delta=1e-5)

    def test_eight_bit_images_go_there_as_bytes(self):
        for dtype, says in ("uint8", f"{32 * (784 + 4)} bytes to the device, examples as bytes"), (
                "float32", f"{32 * 4 * (784 + 1)} bytes to the device, examples as float32"):
            options, environment = self.on_double(("--model=mlp", f"--dataset=synthetic:examples=64,dtype={dtype}", "--steps=1",
                                                   "--batch=32", "--validation=off", "--verbose"), {})
            outcome = self.lockstep("train", *options, environment=environment)
            self.assertEqual(outcome.code, DONE, outcome.err)
            self.assertIn("input of a step: " + says, outcome.out)

    def test_recorded_steps_change_no_bit(self):
        for streams, how, replicas in (("thread", "recorded whole", ()), ("deferred", "recorded whole", ("--microbatches=1",)),
                                       ("thread", "recorded in 4 parts", ("--replicas=3", "--strategy=ring")),
                                       ("deferred", "recorded in 2 parts", ("--replicas=3", "--strategy=central-storage"))):
            options = ("--model=mlp", "--dataset=synthetic:examples=100", "--epochs=3", "--batch=32", "--check-replicas=5", *replicas)
            plain = self.run_double(*options, device="cuda:recording=off")
            self.assertEqual(plain["recording"], "not recorded: recording=off")
            self.assertEqual((plain["steps"], len(plain["losses"])), (12, 12))
            got = self.run_double(*options, streams=streams)
            self.assertEqual(got["recording"], how)
            for member in "losses", "parameter_hashes", "steps":
                self.assertEqual(got[member], plain[member], member)
            for epoch, wanted in zip(got["epochs"], plain["epochs"]):
                self.assertEqual([epoch[name] for name in ("steps", "loss", "accuracy", "val_loss", "val_accuracy")],
                                 [wanted[name] for name in ("steps", "loss", "accuracy", "val_loss", "val_accuracy")])

    def test_the_order_in_which_streams_run_changes_no_bit(self):
        for strategy, replicas, recording in (("one-device", 1, "on"), ("ring", 3, "on"), ("direct", 2, "off"), ("central-storage", 2, "on")):
            options = ("--model=mlp", "--dataset=synthetic:examples=100", "--epochs=2", "--batch=32", "--strategy=" + strategy,
                       f"--replicas={replicas}")
            settings = {"device": "cuda:recording=" + recording, "devices": 2}
            wanted = self.run_double(*options, **settings)
            for seed in range(1, 8):
                with self.subTest(strategy=strategy, seed=seed):
                    got = self.run_double(*options, streams=f"random:{seed}", **settings)
                    self.assertEqual(got["losses"], wanted["losses"])
                    self.assertEqual(got["parameter_hashes"], wanted["parameter_hashes"])

    def longest_way(self, *options, **settings):
        """The report, and how many kernels of the largest recording run one after the other at least, of how many."""
        path = self.path("graphs")
        got = self.run_double(*options, graphs=path, **settings)
        with open(path) as file:
            kernels, way = max(tuple(map(int, line.split())) for line in file)
        os.remove(path)
        return got, way, kernels

    def test_gradients_of_weights_run_beside_those_of_data(self):
        # A step is replayed thirty times, each time in another order that its events allow.
        some = ("--steps=32", "--batch=2", "--validation=off", "--optimizer=sgd:learning_rate=0.001")
        for name, options in (("cnn", ("--model=cnn", self.IMAGES)),
                              ("resnet", ("--model=resnet", "--dataset=synthetic:examples=64,shape=8x8x3")), ("gpt", self.gpt()[:3])):
            with self.subTest(name):
                one, way_of_one, kernels = self.longest_way(*options, *some, device="cuda:branches=off")
                got, way, same = self.longest_way(*options, *some, streams="random:1")
                print(f"{name}: {kernels} kernels of a recorded step, {way_of_one} one after the other; with a branch {way}", flush=True)
                self.assertEqual((len(got["losses"]), way_of_one, same), (32, kernels, kernels))
                self.assertLess(way, 0.9 * kernels)
                self.assertLessEqual(got["device_bytes"], 1.1 * one["device_bytes"])
                for member in "losses", "parameter_hashes":
                    self.assertEqual(got[member], one[member], member)

    def test_a_branch_runs_unrecorded_too_and_in_parts(self):
        for replicas, device in (((), "recording=off,branches=on"), (("--replicas=2", "--strategy=ring"), "branches=on"),
                                 (("--microbatches=2",), "branches=on")):
            options = ("--model=cnn-small", self.IMAGES, "--steps=6", "--batch=4", "--validation=off", *replicas)
            wanted = self.run_double(*options, device="cuda:branches=off")
            for seed in 1, 2:
                with self.subTest(replicas=replicas, seed=seed):
                    got = self.run_double(*options, device="cuda:" + device, streams=f"random:{seed}")
                    self.assertEqual((got["losses"], got["parameter_hashes"]), (wanted["losses"], wanted["parameter_hashes"]))

    def test_an_interrupted_run_counts_the_steps_that_it_did(self):
        path = self.path("r.json")
        options, environment = self.on_double(("--model=mlp", "--dataset=synthetic:examples=640", "--epochs=100000", "--validation=off",
                                                "--report=" + path), {})
        process = subprocess.Popen([LOCKSTEP, "train", *options], env=os.environ | environment, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.kill)
        self.assertTrue(any(line.startswith("Epoch 1/") for line in process.stdout))
        process.send_signal(signal.SIGINT)
        err = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, INTERRUPTED, err)
        report = read_json(path)
        self.assertEqual(report["status"], "interrupted")
        self.assertEqual(min(report["steps"], 1000), len(report["losses"]))
        self.assertEqual(report["steps"], sum(epoch["steps"] for epoch in report["epochs"]))

    def test_replicas_of_one_gpu_and_of_two_equal_one(self):
        options = ("--model=cnn", self.IMAGES, "--steps=10", "--batch=4", "--validation=off", "--optimizer=sgd:learning_rate=0.01")
        wanted = self.run_double(*options)
        for devices, replicas, strategy, streams in (
                (2, 4, "central-storage", "thread"), (1, 4, "ring", "deferred"), (2, 4, "hierarchical-copy", "thread"),
                (2, 2, "direct", "thread")):
            with self.subTest(devices=devices, replicas=replicas, strategy=strategy):
                got = self.run_double(f"--replicas={replicas}", "--strategy=" + strategy, *options, devices=devices, streams=streams)
                self.assert_close(got["losses"], wanted["losses"])
                self.assertEqual(len(set(got["parameter_hashes"])), 1)

    def test_every_other_collective_reduces_there_too(self):
        options = ("--model=mlp", "--steps=3", "--batch=12", "--validation=off")
        wanted = self.run_double(*options)
        for strategy in ("tree", "halving-doubling", "torus", "two-level", "auto"):
            with self.subTest(strategy=strategy):
                got = self.run_double("--replicas=3", "--strategy=" + strategy, *options, devices=2)
                self.assert_close(got["losses"], wanted["losses"])
                self.assertEqual(len(set(got["parameter_hashes"])), 1)

    def test_without_a_number_every_gpu_has_a_replica(self):
        options = ("--model=mlp", "--steps=2", "--validation=off")
        for devices, strategy, replicas in ((1, "one-device", 1), (2, "central-storage", 2), (2, "one-device", 1)):
            got = self.run_double("--strategy=" + strategy, *options, devices=devices)
            self.assertEqual((got["replicas"], got["global_batch"]), (replicas, 64 * replicas))
        command, environment = self.on_double(("--strategy=central-storage", *options), {"devices": 2})
        said = self.lockstep("train", *command, environment=environment).out.splitlines()[0]
        self.assertIn("2 replicas on cuda", said)
        self.assertIn(", on 2 of its 2 devices, ", said)
        # Two of three, one of which has two replicas; and those that were not named are not used.
        command, environment = self.on_double(("--devices=2,0", "--replicas=3", *options), {"devices": 3})
        self.assertIn(", on 2 of its 3 devices (2,0), ", self.lockstep("train", *command, environment=environment).out)
        self.assertEqual(self.run_double("--devices=1", *options, devices=3)["replicas"], 1)
        for devices, says in (("3", "there is no cuda 3; this machine has 3, numbered from 0"), ("0,0", "0 is given twice"),
                              ("1,", "expected numbers of devices from 0, as in 0,1")):
            command, environment = self.on_double(("--quiet", "--devices=" + devices, *options), {"devices": 3})
            self.refused(USAGE, "train", *command, environment=environment, says=("--devices: ", says))
        command, environment = self.on_double(("--strategy=central-storage", "--model=mlp"), {"devices": 2})
        self.assertEqual(self.lockstep("evaluate", *command, environment=environment).code, DONE)

    def test_collectives_are_timed_in_its_memory(self):
        options, environment = self.on_double(("--replicas=3", "--bytes=64,100K", "--seconds=0", "--iterations=2", "--fresh"),
                                              {"devices": 2, "streams": "deferred"})
        rows = self.path("rows.json")
        outcome = self.lockstep("bench", "ring", "direct", "--json=" + rows, *options[:-1], environment=environment)
        self.assertEqual(outcome.code, DONE, outcome.err)
        self.assertIn("# in memory of device cuda: fake, NOT A GPU", outcome.out)
        rows = read_json(rows)["rows"]
        self.assertEqual([(row["device"], row["wrong"]) for row in rows], [("cuda", 0)] * 8)
        refused, environment = self.on_double(("--write-network=" + self.path("network.json"),), {})
        self.refused(USAGE, "bench", *refused[:-1], says=("host memory",), environment=environment)

    def test_a_gpu_that_hangs_in_a_job_of_two_is_named_after_the_deadline(self):
        options, environment = self.on_double(("--replicas=2", "--strategy=ring", "--deadline=1"), {"hang": 60, "devices": 2})
        said = self.refused(PEER_LOST, "train", "--quiet", "--model=mlp", "--steps=9", *options, environment=environment).err
        # Which of the two threads launches the kernel that hangs, and whether it is one before or after a sum, is chance.
        self.assertRegex(said, r"rank \d waited 1\.\d s for its device in call \d+, all-reduce \(sum\) of \d+ float32, bucket \d: "
                               r"all ranks have made this call|replica \d: the device is not done with step \d after 1\.\d s")

    def test_the_reasons_end_with_4(self):
        for settings, says in (({"init": 100}, "no device"), ({"init": 34}, "no driver"), ({"version": 12040}, "driver too old"),
                               ({"capability": 75}, "GPU too old"), ({"devices": 0}, "no device")):
            self.refused_double(UNAVAILABLE, says=(says,), **settings)

        self.refused_double(UNAVAILABLE, "--strategy=ring", "--replicas=2", devices=2, no_peers=1,
                            says=("cannot read the memory of rank", "nccl, central-storage and parameter-server do without"))

    def test_failures_are_one_line_each(self):
        self.refused_double(UNAVAILABLE, "--strategy=ring", "--replicas=2", "--wire=float16", devices=2,
                            says=("--wire: float16: gradients in the memory of device 'cuda' travel as they are",))
        self.refused_double(FAILED, memory=3000000, says=("the device has no", "a smaller batch needs less"))
        self.refused_double(FAILED, pinned=1000, says=("making pinned host memory",))
        self.refused_double(FAILED, fail=60, says=("unspecified launch failure", "launched last: a recorded step"))
        self.refused_double(FAILED, device="cuda:recording=off", fail=60, says=("unspecified launch failure", "launched last: "))
        self.refused_double(FAILED, "--replicas=3", "--strategy=ring", fail=203, devices=2, says=("unspecified launch failure",))
        self.refused_double(PEER_LOST, "--deadline=1", hang=60, says=("the device is not done with step", "after 1.0 s"))
        self.refused_double(USAGE, device="cuda:nothing=1", says=("nothing",))
        for seconds in ("0", "-1", "99999999999"):
            self.refused_double(USAGE, device="cuda:deadline=" + seconds, says=("deadline=%s: it is 1 to 1000000 seconds" % seconds,))


if __name__ == "__main__":
    main()
