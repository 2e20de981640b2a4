# SPDX-License-Identifier: Apache-2.0
"""What is installed: a program compiled with pkg-config alone, the command from anywhere, and both after a move."""
import gzip
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys

from support import DONE, FIXTURES, KERAS_FILES, UNAVAILABLE, ProgramTest, main, read_json

SOURCE = os.environ["LOCKSTEP_SOURCE"]
BUILD = os.environ["LOCKSTEP_BUILD"]
MESON = os.environ["LOCKSTEP_MESON"]
COMPILER = shlex.split(os.environ["LOCKSTEP_COMPILER"])
CXX = os.environ["LOCKSTEP_CXX"]
SANITIZE = os.environ["LOCKSTEP_SANITIZE"]
SYNTHETIC = "synthetic:examples=600"


def clean_environment(**more):
    """As a user has it: nothing of the build tree."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOCKSTEP_") and name != "LD_LIBRARY_PATH"}
    return dict(kept, **more)


class Installed(ProgramTest):
    def setUp(self):
        super().setUp()
        for tool in (MESON, "pkg-config"):
            if not shutil.which(tool):
                self.skipTest(f"{tool} is not here")
        self.root = self.path("installed")
        self.call(MESON, "install", "--no-rebuild", "--quiet", "-C", BUILD, "--destdir", self.root)
        self.bin, self.lib = self.folder_of("bin", "lockstep"), self.folder_of("lib", "liblockstep.so")

    def folder_of(self, top, name):
        found = [folder for folder, _, files in os.walk(self.root) if name in files and f"/{top}" in folder]
        self.assertEqual(len(found), 1, found)
        return found[0]

    def call(self, *command, **more):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder, timeout=300,
                              stdin=subprocess.DEVNULL, env=clean_environment(**more))
        self.assertEqual(done.returncode, DONE, f"{command}\n{done.stdout}{done.stderr}")
        return done

    def compile(self, source, *compiler):
        name = os.path.splitext(os.path.basename(source))[0]
        flags = self.call("pkg-config", "--cflags", "--libs", "lockstep", PKG_CONFIG_PATH=os.path.join(self.lib, "pkgconfig")).stdout
        sanitize = [] if SANITIZE == "none" else ["-fsanitize=" + SANITIZE]
        self.call(*compiler, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o", self.path(name), os.path.join(SOURCE, source),
                  *shlex.split(flags), "-lm", *sanitize)
        return self.path(name)

    def train(self, *arguments):
        """The installed command, with nothing that tells it where its parts are."""
        return self.call(os.path.join(self.bin, "lockstep"), "train", "--model=mlp", "--dataset=" + SYNTHETIC, "--steps=3",
                         "--threads=1", *arguments)

    def keras_model(self):
        with gzip.open(os.path.join(FIXTURES, "keras", "files", "small.keras.gz"), "rb") as packed, open(self.path("small.keras"), "wb") as file:
            file.write(packed.read())
        return self.path("small.keras")

    def test_the_command_and_a_program_run_from_where_they_were_put_and_after_a_move(self):
        program = self.compile("examples/train_cnn.c", *COMPILER, "-std=c11")
        for place in ("first", "moved"):
            if place == "moved":
                os.rename(self.root, self.path("elsewhere"))
                self.root = self.path("elsewhere")
                self.bin, self.lib = self.folder_of("bin", "lockstep"), self.folder_of("lib", "liblockstep.so")
            with self.subTest(place):
                self.assertIn("mirrored (ring over local)", self.train("--strategy=ring", "--replicas=2").stdout)
                plugins = self.call(os.path.join(self.bin, "lockstep"), "plugins").stdout
                for name in ("mirrored", "one-device", "ring", "hierarchical-copy", "local", "reference"):
                    self.assertRegex(plugins, rf"\b{name}\b")
                out = self.call(program, "ring", "2", SYNTHETIC, "3", LD_LIBRARY_PATH=self.lib).stdout
                self.assertIn("2 replicas", out)
                if KERAS_FILES:
                    done = self.call(os.path.join(self.bin, "lockstep"), "summary", "--model=" + self.keras_model(),
                                     LD_LIBRARY_PATH=os.environ.get("LD_LIBRARY_PATH", ""))
                    self.assertIn("Total params: 177", done.stdout)
                self.assertRegex(out, r"after 1 epoch\(s\): [0-9.]+ % of the test examples are right")

    def test_the_links_of_the_documents_lead_to_what_is_installed(self):
        pages = os.path.dirname(self.folder_of("share/doc/lockstep/docs", "weights.md"))
        done = self.call("python3", os.path.join(SOURCE, "tests", "house", "links.py"), pages)
        self.assertGreater(int(re.search(r"(\d+) links", done.stdout)[1]), 200, done.stdout)
        with open(os.path.join(pages, "docs", "plugin-authors.md"), encoding="utf-8") as file:
            self.assertIn("](../reference/plugin-plugin.md)", file.read())

    def test_what_the_build_of_a_package_lacks_is_said_at_once(self):
        os.mkdir(self.path("empty"))
        done = subprocess.run([sys.executable, "-B", "-c", "import package; package.build_source('build')"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, cwd=os.path.join(SOURCE, "packaging"), env={"PATH": self.path("empty")})
        self.assertEqual((done.returncode, done.stderr.count("\n")), (UNAVAILABLE, 1), done.stderr)
        for name in ("cc", "meson", "ninja", "pkg-config", "jansson.h", "sodium.h", "libjansson-dev", "libdnnl-dev", "libhdf5-dev"):
            self.assertRegex(done.stderr, rf"[ ,]{re.escape(name)}\b")
        with open(os.path.join(SOURCE, "tools", "packages"), encoding="utf-8") as file:
            known = set(file.read().split())
        self.assertEqual(set(done.stderr.split("apt-get install ")[1].split()) - known, set())

    def test_man_pages_and_completions_are_where_they_are_looked_for(self):
        for folder, name in (("man/man1", "lockstep.1"), ("man/man1", "lockstep-plugin-new.1"), ("bash-completion/completions", "lockstep"),
                             ("zsh/site-functions", "_lockstep"), ("fish/vendor_completions.d", "lockstep.fish")):
            self.assertTrue(self.folder_of("share/" + folder, name).endswith("/share/" + folder))

    def test_a_cpp_program_compiles_links_and_runs(self):
        if not CXX:
            self.skipTest("no C++ compiler (package g++) is here")
        done = self.call(self.compile("tests/programs/embed.cpp", CXX, "-std=c++17"), LD_LIBRARY_PATH=self.lib)
        self.assertRegex(done.stdout, r"^Lockstep [0-9.]+ from C\+\+: 3 steps\n$")
        self.assertEqual(done.stderr, "")

    def test_the_programs_of_the_page_on_custom_loops(self):
        with open(os.path.join(SOURCE, "docs", "custom-loops.md"), encoding="utf-8") as file:
            programs = re.findall(r"^```c\n(.*?)^```$", file.read(), re.M | re.S)
        printed = []
        for i, program in enumerate(programs):
            with open(self.path(f"program{i}.c"), "w", encoding="utf-8") as file:
                file.write(program)
            out = self.call(self.compile(self.path(f"program{i}.c"), *COMPILER, "-std=c11", "-pthread"), LD_LIBRARY_PATH=self.lib).stdout
            printed.append(out)
        self.assertEqual(len(printed), 3)
        losses = [float(loss) for loss in re.findall(r"^epoch \d: loss (\S+)$", printed[0], re.M)]
        self.assertEqual(len(losses), 5)
        self.assertLess(losses[4], 0.9 * losses[0])
        before, after = re.fullmatch(r"loss (\S+), after 16 steps (\S+)\n", printed[1]).groups()
        self.assertLess(float(after), float(before))
        self.assertEqual(printed[2], "mean of the ranks 1.5, the last has 30\n")

    def test_the_program_of_the_page_on_communicators(self):
        with open(os.path.join(SOURCE, "docs", "communicators.md"), encoding="utf-8") as file:
            program, = re.findall(r"^```c\n(.*?)^```$", file.read(), re.M | re.S)
        with open(self.path("program.c"), "w", encoding="utf-8") as file:
            file.write(program)
        compiled = self.compile(self.path("program.c"), *COMPILER, "-std=c11")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = "127.0.0.1:%d" % probe.getsockname()[1]
        processes = [subprocess.Popen([compiled], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
                                      env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "ADDRESS": address, "LD_LIBRARY_PATH": self.lib})
                     for rank in range(2)]
        out = [process.communicate(timeout=120) for process in processes]
        self.assertEqual(out[0], ("ring over shared-memory, 2 ranks, verified: 0.5\n", ""))
        self.assertEqual(out[1], ("", ""))

    def test_only_the_public_face_is_installed(self):
        headers = self.folder_of("include", "lockstep.h")
        found = {os.path.relpath(os.path.join(folder, name), headers) for folder, _, names in os.walk(headers) for name in names}
        plugin = {f"core/plugin/{name}.h" for name in ("augment", "callback", "collective", "compose", "dataset", "device", "filter", "half", "layer", "loss", "metric", "monitor", "operations", "optimizer", "plugin", "rank_order", "rounds", "servers", "sharding", "status", "stores", "strategy", "transport", "waiting", "window")}
        self.assertEqual(found, {"lockstep.h", "layers.h", "core/attributes.h"} | plugin)
        models = self.folder_of("share", "cnn.json")
        self.assertEqual(set(os.listdir(models)), set(os.listdir(os.path.join(SOURCE, "models"))) - {"meson.build"})


class Examples(ProgramTest):
    """As they are built in the tree."""

    def example(self, name, *arguments, expect=DONE):
        done = subprocess.run([os.path.join(BUILD, "examples", "example-" + name), *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, cwd=self.folder, timeout=300, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done

    def test_train_cnn(self):
        for strategy in (("one-device", "1"), ("ring", "2"), ("hierarchical-copy", "3")):
            self.assertIn("after 1 epoch(s)", self.example("train_cnn", *strategy, SYNTHETIC, "3").stdout)
        self.assertIn("did you mean ring", self.example("train_cnn", "rings", "2", SYNTHETIC, "3", expect=1).stderr)

    def test_residual(self):
        for strategy in (("one-device", "1"), ("ring", "2")):
            out = self.example("residual", *strategy, SYNTHETIC, "3").stdout
            for text in ("after 1 epoch(s)", "conv2d[0][0], conv2d_2[0][0]", "Add", "(None, 14, 14, 16)"):
                self.assertIn(text, out)

    def test_compare_by_hand(self):
        out = self.example("compare_by_hand", "4", SYNTHETIC).stdout
        differences = [float(line.split()[2]) for line in out.splitlines()[2:]]
        self.assertEqual(len(differences), 2)
        for difference in differences:
            self.assertLessEqual(difference, 5e-6)

    def test_estimator(self):
        """The loss of one weight and one bias under gradient descent: each step leaves a fifth of what was wrong."""
        for strategy, replicas in (("mirrored", 2), ("one-device", 1), ("central-storage", 2)):
            out = self.example("estimator", strategy, str(replicas)).stdout
            steps, first, last = re.search(r"trained (\d+) steps: loss (\d\.\d+), then (\d\.\d+)", out).groups()
            self.assertEqual(int(steps), 100 // replicas)
            self.assertGreater(float(first), 0.01)
            self.assertEqual(float(last), 0)
            self.assertIn("evaluated 100 examples: loss 0.000000\npredicted for 1: 1.000000\n", out)

    def test_accumulate(self):
        for strategy in (("one-device", "1"), ("ring", "2"), ("central-storage", "3")):
            out = self.example("accumulate", *strategy, SYNTHETIC).stdout
            self.assertEqual(len(re.findall(r"^ *\d+ +\d\.\d+ +\d\.\d+$", out, re.M)), 10, out)
            self.assertLessEqual(float(re.search(r"difference: (\S+)", out)[1]), 1e-5)

    def test_fit(self):
        done = self.example("fit", "ring", "2", self.path("checkpoints"), SYNTHETIC + ",validation_split=0.1")
        first, *both = re.findall(r"^epoch (\d): loss (\S+), val_loss (\S+)$", done.stdout, re.M)
        self.assertEqual([row[0] for row in both], ["1", "2"])
        self.assertEqual(both[0], first)  # the second training begins with what the first has done
        self.assertIn("resuming from", done.stderr)
        self.assertEqual(sorted(os.listdir(self.path("checkpoints"))), [".lock", "ckpt-1.safetensors", "ckpt-2.safetensors"])

    def test_generator(self):
        accuracy = re.fullmatch(r"accuracy on 2000 new points: (\d\.\d+)\n", self.example("generator").stdout)
        self.assertGreater(float(accuracy[1]), 0.9)

    def test_own_layer(self):
        losses = [re.findall(r"^loss of step \d+: (\d\.\d+)$", self.example("own_layer", *strategy, SYNTHETIC).stdout, re.M)
                  for strategy in (("one-device", "1"), ("ring", "2"))]
        self.assertEqual([len(found) for found in losses], [20, 20])
        for one, two in zip(*losses):
            self.assertAlmostEqual(float(one), float(two), delta=2e-5)

    def test_own_dataset(self):
        for strategy in (("one-device", "1"), ("ring", "2")):
            error = re.fullmatch(r"mean error of 500 angles: (\d\.\d+) of a turn\n", self.example("own_dataset", *strategy).stdout)
            self.assertLess(float(error[1]), 0.05)

    def test_custom_loop(self):
        """Its losses are those of `lockstep train`, bit for bit: strategies, replicas, and a last batch that is smaller."""
        with open(os.path.join(SOURCE, "examples", "custom_loop.c"), encoding="utf-8") as file:
            self.assertLessEqual(len(file.readlines()), 60)
        for strategy, replicas, model in (("mirrored", 1, "mlp"), ("ring", 2, "cnn"), ("direct", 3, "mlp"), ("central-storage", 2, "mlp"),
                                          ("parameter-server:mode=sync", 3, "mlp")):
            with self.subTest(strategy):
                out = self.example("custom_loop", strategy, str(replicas), "synthetic:examples=429", "2", model).stdout
                found = re.findall(r"^Epoch \d Step \d Loss (\S+) \((\S+)\)$", out, re.M)
                self.lockstep("train", "--quiet", "--model=" + model, "--dataset=synthetic:examples=429", "--strategy=" + strategy,
                              f"--replicas={replicas}", "--epochs=2", "--optimizer=sgd:learning_rate=0.001", "--validation=off",
                              "--report=" + self.path("report.json"))
                losses = read_json(self.path("report.json"))["losses"]
                self.assertGreater(len(losses), 3)
                self.assertEqual([exact for _, exact in found], [f"{loss:.9g}" for loss in losses])
                for rounded, exact in found:
                    self.assertAlmostEqual(float(rounded), float(exact), delta=6e-5)
        done = self.example("custom_loop", "parameter-server", "2", "synthetic:examples=400", "1", "mlp", expect=2)
        self.assertIn("each replica makes its own steps", done.stderr)

    def test_horovod_recipe(self):
        done = self.example("horovod_recipe", "3", "synthetic:examples=400", "4", self.path("w.safetensors"))
        self.assertIn("rank 2 of 3 on device 2\n", done.stderr)
        self.assertIn("rank 0 of 3 on device 0 saves the checkpoint\n", done.stderr)
        self.assertRegex(done.stdout, r"^3 workers, 4 steps: loss \d\.\d+, accuracy \d\.\d+, learning rate 0\.03\n$")
        self.assertGreater(os.path.getsize(self.path("w.safetensors")), 4 * 100000)

    def test_weights(self):
        out = self.example("weights", self.path("w.safetensors"), SYNTHETIC).stdout
        scores = re.findall(r"^(?:trained|loaded): +(loss .*)$", out, re.M)
        self.assertEqual(len(scores), 2, out)
        self.assertEqual(scores[0], scores[1])
        self.assertGreater(os.path.getsize(self.path("w.safetensors")), 4 * 100000)


if __name__ == "__main__":
    main()
