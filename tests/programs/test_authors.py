# SPDX-License-Identifier: Apache-2.0
"""Writing a plugin as its author does: an empty folder, an installed Lockstep, nothing of its source or build tree. And
docs/plugin-authors.md, docs/checkpoints.md, docs/callbacks.md and docs/own-parts.md, every block of which is run in order."""
import os
import re
import shutil
import subprocess
import tempfile

from support import DONE, FASHION, ProgramTest, main, read_json

SOURCE = os.environ["LOCKSTEP_SOURCE"]
BUILD = os.environ["LOCKSTEP_BUILD"]
MESON = os.environ["LOCKSTEP_MESON"]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
NOT_BUILT = 77


class Authors(ProgramTest):
    root = None

    def setUp(self):
        super().setUp()
        for tool in (MESON, "pkg-config", "bash", "ninja"):
            if not shutil.which(tool):
                self.skipTest(f"{tool} is not here")
        if not self.root:
            self.install()
        self.work = self.path("work")
        os.mkdir(self.work)
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith("LOCKSTEP_") and name not in ("LD_LIBRARY_PATH", "PKG_CONFIG_SYSROOT_DIR")}
        self.environment = dict(kept, PATH=self.folder_of("lockstep", "bin") + os.pathsep + os.environ["PATH"],
                                PKG_CONFIG_PATH=self.folder_of("lockstep-plugin.pc", "pkgconfig"))

    @classmethod
    def install(cls):
        """Once for all tests, which only read it."""
        scratch = tempfile.TemporaryDirectory(prefix="lockstep-test-")
        cls.addClassCleanup(scratch.cleanup)
        built_for, cls.root = (os.path.join(scratch.name, name) for name in ("installed", "moved"))
        subprocess.run([MESON, "install", "--no-rebuild", "--quiet", "-C", BUILD, "--destdir", built_for], check=True,
                       stdout=subprocess.DEVNULL)
        # Moved after it was installed: nothing may name the place it was built for.
        os.rename(built_for, cls.root)

    def folder_of(self, name, folder):
        found = [place for place, _, files in os.walk(self.root) if name in files and os.path.basename(place) == folder]
        self.assertEqual(len(found), 1, found)
        return found[0]

    def run_script(self, text):
        return subprocess.run(["bash", "-e"], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              cwd=self.work, env=self.environment, timeout=600)

    def test_pkg_config_names_folders_that_are_there(self):
        for variable in ("plugindir", "bindir", "includedir"):
            done = self.run_script(f"pkg-config --variable={variable} lockstep-plugin")
            self.assertTrue(os.path.isdir(done.stdout.strip()), done.stdout)
            self.assertTrue(os.path.realpath(done.stdout.strip()).startswith(os.path.realpath(self.root)), done.stdout)

    def script_of(self, page):
        """The blocks of a page as one script: code goes to the file that its first line names, commands are run."""
        commands = set(re.findall(r"^  (\w+) ", subprocess.run(["lockstep", "--help"], stdout=subprocess.PIPE, text=True,
                                                               env=self.environment).stdout, re.M))
        lines, blocks = [], 0
        for language, text in BLOCK.findall(page):
            blocks += 1
            if language == "c":
                name = re.match(r"// ([\w/-]+\.c): ", text)
                self.assertTrue(name, text)
                lines += [f"cat > {name.group(1)} <<'END_OF_CODE'", text + "END_OF_CODE"]
                continue
            if language == "json":
                lines += ["cat > model.json <<'END_OF_CODE'", text + "END_OF_CODE"]
                continue
            self.assertEqual(language, "sh", text)
            for line in text.splitlines():
                word = re.match(r"(?:! )?lockstep (\w+)", line)
                if word and word.group(1) not in commands:
                    print(f"SKIP: lockstep {word.group(1)} is not built: {line}", flush=True)
                elif line.startswith("! "):
                    lines += [f"echo '$ {line[2:]}'", f"if {line[2:]}; then exit 90; else test $? = 1; fi"]
                else:
                    lines += [f"echo {line!r}", line]
        return blocks, "\n".join(lines) + "\n"

    def test_the_page_for_authors(self):
        if not any("device-cpu.so" in files for _, _, files in os.walk(self.root)):
            self.skipTest("device cpu is not built (libdnnl-dev)")
        with open(os.path.join(SOURCE, "docs", "plugin-authors.md")) as file:
            blocks, script = self.script_of(file.read())
        self.assertGreater(blocks, 6)
        # All cases of the star run in its `meson test`, those of the template in programs/plugin; here those of two ranks.
        check = "lockstep plugin check --quiet build/collective-star.so"
        self.assertIn("\nmeson test -C build\n", script)
        self.assertGreater(script.count(check), 2)
        doubling = check.replace("star", "doubling")
        self.assertEqual(script.count(doubling), 2)  # as it is run, and as it is shown before that
        script = script.replace(check, check + " --filter='ranks=2'").replace(doubling, doubling + " --filter='all_reduce ranks='")
        done = self.run_script(script)
        self.assertEqual(done.returncode, DONE, done.stdout)
        # Four commands make a plugin of each kind: new, setup, compile, check.
        for kind in ("collective-star", "strategy-my-steps", "transport-my-wires", "device-my-loops"):
            self.assertRegex(done.stdout, kind + r".so: \d+ passed, 0 failed")
        compiled = [line for line in done.stdout.splitlines() if "NOT REAL DATA" not in line]
        self.assertNotIn("warning:", "\n".join(compiled))
        self.assertRegex(done.stdout, r"collective-doubling.so: [1-9]\d* passed, 0 failed, [1-9]\d* refused")
        self.assertRegex(done.stdout, r"holds; declines \d+ cases: 3 ranks are no power of two")
        self.assertIn("mirrored (star over local)", done.stdout)
        self.assertRegex(done.stdout, r"FAILED +schedule +all-reduce ranks=2: .*rank 1, round")

    def test_the_page_on_checkpoints(self):
        if not any("device-cpu.so" in files for _, _, files in os.walk(self.root)):
            self.skipTest("device cpu is not built (libdnnl-dev)")
        with open(os.path.join(SOURCE, "docs", "checkpoints.md"), encoding="utf-8") as file:
            blocks, script = self.script_of(file.read())
        self.assertEqual(blocks, 1)
        done = self.run_script(script)
        self.assertEqual(done.returncode, DONE, done.stdout)
        last = [line for line in done.stdout.splitlines() if line.startswith("Epoch 6/6")]
        self.assertEqual(len(last), 2)
        self.assertEqual(*(line[line.index("loss:"):] for line in last))

    def test_the_page_on_callbacks(self):
        if not any("device-cpu.so" in files for _, _, files in os.walk(self.root)):
            self.skipTest("device cpu is not built (libdnnl-dev)")
        self.need(FASHION)
        with open(os.path.join(SOURCE, "docs", "callbacks.md"), encoding="utf-8") as file:
            blocks, script = self.script_of(file.read())
        self.assertEqual(blocks, 2)
        done = self.run_script(script)
        self.assertEqual(done.returncode, DONE, done.stdout)
        self.assertIn("early_stopping ended the training", done.stdout)
        self.assertIn("my-goal ended the training in epoch", done.stdout)

    def test_the_page_on_parts_of_ones_own(self):
        """Layer, loss, metric, dataset and callback as shared objects from an empty folder train one model together."""
        if not any("device-cpu.so" in files for _, _, files in os.walk(self.root)):
            self.skipTest("device cpu is not built (libdnnl-dev)")
        with open(os.path.join(SOURCE, "docs", "own-parts.md"), encoding="utf-8") as file:
            blocks, script = self.script_of(file.read())
        self.assertEqual(blocks, 5)
        done = self.run_script(script)
        self.assertEqual(done.returncode, DONE, done.stdout)
        self.assertNotIn("warning:", done.stdout)
        self.assertEqual(len(re.findall(r": \d+ passed, 0 failed", done.stdout)), 4, done.stdout)
        self.assertRegex(done.stdout, r"norm \(RMSNorm\) +\(None, 32\) +32")
        self.assertEqual(done.stdout.count("my-goal ended the training in epoch"), 2, done.stdout)
        reports = []
        for name in ("one", "two"):
            reports.append(read_json(os.path.join(self.work, name + ".json")))
        one, two = reports
        self.assertEqual([one["stopped_by"], one["loss"], one["replicas"], two["replicas"]], ["my-goal", "focal:gamma=1", 1, 2])
        self.assertEqual(len(one["losses"]), len(two["losses"]))
        self.assertGreater(len(one["losses"]), 50)
        for first, second in zip(one["losses"][:50], two["losses"]):
            self.assertLessEqual(abs(first - second), 1e-4 * (1 + abs(first)))
        self.assertGreater(one["epochs"][-1]["confidence"], 0.8)


if __name__ == "__main__":
    main()
