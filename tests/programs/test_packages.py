# SPDX-License-Identifier: Apache-2.0
"""Lockstep as others get it: found by CMake, as a subproject of meson, from Debian packages, from a Python wheel. Each is built,
put into an empty prefix and run there, with nothing that tells it where its parts are."""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

from support import DONE, ProgramTest, main, read_json, write_json

SOURCE = os.environ["LOCKSTEP_SOURCE"]
BUILD = os.environ["LOCKSTEP_BUILD"]
MESON = os.environ["LOCKSTEP_MESON"]
COMPILER = shlex.split(os.environ["LOCKSTEP_COMPILER"])
NOT_AVAILABLE = 4
TRAIN = ("train", "--model=mlp", "--dataset=synthetic:examples=600", "--steps=3", "--threads=1", "--device=reference", "--strategy=ring",
         "--replicas=2")
ESTIMATOR = "evaluated 100 examples: loss 0.000000\npredicted for 1: 1.000000\n"  # examples/estimator.c


def clean_environment(**more):
    """As a user has it: nothing of the build tree."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("LOCKSTEP_", "PKG_CONFIG", "PYTHON")) and name != "LD_LIBRARY_PATH"}
    return dict(kept, **more)


class Package(ProgramTest):
    needs = {}  # tool: the Debian package that has it

    def setUp(self):
        super().setUp()
        if os.environ["LOCKSTEP_SANITIZE"] != "none":
            self.skipTest("packages are made of builds without sanitizers")
        for tool, package in {MESON or "meson": "meson", **self.needs}.items():
            if not shutil.which(tool):
                self.skipTest(f"{tool} (package {package}) is not here")

    def call(self, *command, expect=DONE, cwd=None, **more):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd or self.folder, timeout=600,
                              stdin=subprocess.DEVNULL, env=clean_environment(**more))
        self.assertEqual(done.returncode, expect, f"{command}\n{done.stdout}{done.stderr}")
        return done

    def made_once(self, make):
        """A folder for all tests of the class, which `make` fills before the first."""
        if "made" not in vars(type(self)):
            type(self).made = tempfile.TemporaryDirectory(prefix="lockstep-test-")
            self.addClassCleanup(self.made.cleanup)
            make(self.made.name)
        return self.made.name

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def file_below(self, root, name):
        found = [os.path.join(folder, name) for folder, _, files in os.walk(root) if name in files]
        self.assertEqual(len(found), 1, found)
        return found[0]

    def command_works(self, command, **more):
        self.assertIn("mirrored (ring over local)", self.call(*command, *TRAIN, **more).stdout)
        self.assertIn("Total params", self.call(*command, "summary", "--model=cnn", **more).stdout)
        self.assertIn("us", self.call(*command, "simulate", "ring", "--world=4", "--bytes=1M", "--network=flat", **more).stdout)
        self.call(*command, "plugin", "new", "my-reduce", "--kind=collective", **more)
        self.assertTrue(os.path.exists(self.path("my-reduce/my-reduce.c")))

    def program_works(self, prefix):
        """One that is compiled by what pkg-config says."""
        folder = os.path.dirname(self.file_below(prefix, "lockstep.pc"))
        flags = self.call("pkg-config", "--cflags", "--libs", "lockstep", PKG_CONFIG_PATH=folder).stdout
        self.call(*COMPILER, "-o", self.path("estimator"), os.path.join(SOURCE, "examples", "estimator.c"), *shlex.split(flags))
        library = self.call("pkg-config", "--variable=libdir", "lockstep", PKG_CONFIG_PATH=folder).stdout.strip()
        self.assertTrue(os.path.realpath(library).startswith(os.path.realpath(prefix)), library)
        self.assertTrue(self.call(self.path("estimator"), LD_LIBRARY_PATH=library).stdout.endswith(ESTIMATOR))


class Cmake(Package):
    needs = {"cmake": "cmake"}
    PROJECT = """cmake_minimum_required(VERSION 3.16)
project(user C)
find_package(Lockstep {version} CONFIG REQUIRED)
add_executable(estimator {source}/examples/estimator.c)
target_link_libraries(estimator PRIVATE Lockstep::lockstep)
lockstep_add_plugin(collective my-reduce my-reduce/my-reduce.c)
message(STATUS "plugins: ${{Lockstep_PLUGIN_DIR}}")
"""

    def setUp(self):
        super().setUp()
        self.call(MESON, "install", "--no-rebuild", "--quiet", "-C", BUILD, "--destdir", self.path("installed"))
        os.rename(self.path("installed"), self.path("moved"))
        self.prefix = os.path.dirname(os.path.dirname(self.file_below(self.path("moved"), "lockstep")))
        self.command = os.path.join(self.prefix, "bin", "lockstep")

    def configure(self, version, **more):
        shutil.rmtree(self.path("build"), ignore_errors=True)
        self.write("CMakeLists.txt", self.PROJECT.format(version=version, source=SOURCE))
        return self.call("cmake", "-S", ".", "-B", "build", "-DCMAKE_PREFIX_PATH=" + self.prefix, **more)

    def test_a_program_and_a_plugin(self):
        self.call(self.command, "plugin", "new", "my-reduce", "--kind=collective")
        plugins = re.search(r"plugins: (.*)", self.configure("0.1").stdout)[1]
        self.assertTrue(os.path.exists(os.path.join(plugins, "collective-ring.so")), plugins)
        self.call("cmake", "--build", "build")
        self.assertTrue(self.call(self.path("build/estimator")).stdout.endswith(ESTIMATOR))
        self.call(self.command, "verify", self.path("build/collective-my-reduce.so"), "--world=2,3")
        self.assertIn("my-reduce over local", self.call(self.command, *TRAIN[:-2], "--strategy=my-reduce", "--replicas=2",
                                                        "--plugin-path=" + self.path("build")).stdout)

    def test_another_version_is_not_taken(self):
        self.assertIn("0.1.0", self.configure("9.0", expect=1).stderr)
        os.remove(self.file_below(self.prefix, "lockstep.h"))
        self.assertRegex(self.configure("0.1", expect=1).stderr, r"lockstep\.h\s+is\s+missing")


class Subproject(Package):
    needs = {"ninja": "ninja-build"}
    PROJECT = """project('user', 'c')
lockstep = dependency('lockstep', version: '>=0.1')
executable('estimator', 'estimator.c', dependencies: lockstep)
"""

    def test_a_program_of_another_project(self):
        self.write("meson.build", self.PROJECT)
        shutil.copy(os.path.join(SOURCE, "examples", "estimator.c"), self.path("estimator.c"))
        os.mkdir(self.path("subprojects"))
        shutil.copy(os.path.join(SOURCE, "packaging", "lockstep.wrap"), self.path("subprojects"))
        os.symlink(SOURCE, self.path("subprojects/lockstep"))
        self.call(MESON, "setup", "build", "--force-fallback-for=lockstep", "-Doptimization=0", "-Ddebug=false",
                  *(f"-Dlockstep:{part}=disabled" for part in ("cpu", "cuda", "images", "keras_files")), CC=" ".join(COMPILER))
        plugins = (f"subprojects/lockstep/plugins/{name}.so"
                   for name in ("device-reference", "strategy-mirrored", "collective-ring", "transport-local"))
        self.call("ninja", "-C", "build", "estimator", *plugins)
        out = self.call(self.path("build/estimator"), "mirrored:collective=ring", "2", "reference").stdout
        self.assertTrue(out.endswith(ESTIMATOR), out)


class Debian(Package):
    needs = {"dpkg-deb": "dpkg", "dpkg-shlibdeps": "dpkg-dev", "strip": "binutils", "pkg-config": "pkg-config"}

    def setUp(self):
        super().setUp()
        out = self.made_once(lambda out: self.call(sys.executable, os.path.join(SOURCE, "packaging", "package.py"), "deb",
                                                   "--build=" + BUILD, "--out=" + out))
        made = {name.split("_")[0]: os.path.join(out, name) for name in os.listdir(out)}
        self.assertEqual(set(made), {"lockstep", "lockstep-dev"})
        self.packages = [made["lockstep"], made["lockstep-dev"]]

    def install(self, root):
        """By dpkg, with a database of its own; only root may do that."""
        if os.geteuid():
            print("SKIP: dpkg installs as root only: packages are unpacked", flush=True)
            for path in self.packages:
                self.call("dpkg-deb", "--extract", path, root)
            return
        for folder in ("info", "updates", "triggers"):
            os.makedirs(os.path.join(root, "var/lib/dpkg", folder))
        for file in ("status", "available"):
            self.write(os.path.join(root, "var/lib/dpkg", file), "")
        self.call("dpkg", "--root=" + root, "--force-depends", "--log=/dev/null", "--install", *self.packages)
        self.assertIn("lockstep-dev", self.call("dpkg-query", "--admindir=" + os.path.join(root, "var/lib/dpkg"), "--show").stdout)

    def test_the_packages_are_installed_and_run(self):
        root = self.path("root")
        os.mkdir(root)
        self.install(root)
        self.command_works([os.path.join(root, "usr/bin/lockstep")])
        self.program_works(root)
        self.assertTrue(os.path.exists(os.path.join(root, "usr/share/doc/lockstep-dev/reference/lockstep.md")))
        self.assertTrue({"lockstep.1.gz", "lockstep-train.1.gz"} <= set(os.listdir(os.path.join(root, "usr/share/man/man1"))))

    def test_depends_names_the_packages_of_all_libraries(self):
        depends = self.call("dpkg-deb", "--field", self.packages[0], "Depends").stdout
        named = {entry.split()[0] for entry in depends.split(",")}
        self.call("dpkg-deb", "--extract", self.packages[0], "tree")
        libraries = set()
        for folder, _, names in os.walk(self.path("tree")):
            for name in set(names) - {"cuda-engine.so"}:  # NVIDIA's libraries are in no Debian package
                with open(os.path.join(folder, name), "rb") as file:
                    if file.read(4) == b"\x7fELF":
                        file = os.path.join(folder, name)
                        libraries |= set(re.findall(r"\(NEEDED\).*\[(.*)\]", self.call("readelf", "-d", file).stdout))
        self.assertIn("libjansson.so.4", libraries)
        for library in libraries - {"liblockstep.so.0"}:
            owners = {line.split(":")[0] for line in self.call("dpkg-query", "--search", "*/" + library).stdout.splitlines()}
            self.assertTrue(owners & named, f"{library} is of {owners}; Depends: {depends}")
        self.assertEqual(self.call("dpkg-deb", "--field", self.packages[1], "Depends").stdout.strip(), "lockstep (= 0.1.0)")

    def test_lintian_finds_no_error(self):
        if not shutil.which("lintian"):
            self.skipTest("lintian (package lintian) is not here")
        self.call("lintian", "--no-cfg", "--allow-root", "--fail-on=error", *self.packages)


class Wheel(Package):
    needs = {"strip": "binutils", "readelf": "binutils", "pkg-config": "pkg-config"}

    def setUp(self):
        super().setUp()
        self.venv = self.path("venv")
        made = subprocess.run([sys.executable, "-m", "venv", self.venv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        if made.returncode:
            self.skipTest(f"no virtual environment (package python3-venv) can be made: {made.stdout.strip().splitlines()[-1:]}")
        out = self.made_once(lambda out: self.call(self.program("pip"), "wheel", "--quiet", "--no-index", "--no-deps",
                                                   "--config-settings=build=" + BUILD, "--wheel-dir=" + out, SOURCE))
        wheels = os.listdir(out)
        self.assertEqual(len(wheels), 1, wheels)
        self.assertRegex(wheels[0], r"^lockstep-0\.1\.0-py3-none-linux_\w+\.whl$")
        self.call(self.program("pip"), "install", "--quiet", "--no-index", "--no-deps", os.path.join(out, wheels[0]))

    def program(self, name):
        return os.path.join(self.venv, "bin", name)

    def test_the_wheel_is_installed_and_runs(self):
        self.command_works([self.program("lockstep")])
        self.program_works(self.venv)
        self.assertIn("lockstep 0.1.0", self.call(self.program("python"), "-m", "lockstep", "--version").stdout)
        self.assertEqual(self.call(self.program("lockstep"), "train", "--no-such-option", expect=2).stdout, "")
        path = self.call(self.program("lockstep"), "--pkg-config-path").stdout.strip()
        self.assertTrue(os.path.exists(os.path.join(path, "lockstep.pc")), path)
        self.call(self.program("pip"), "uninstall", "--quiet", "--yes", "lockstep")
        self.assertFalse([name for _, _, names in os.walk(self.venv) for name in names if "liblockstep" in name])

    FIT = """
import numpy, lockstep
L = lockstep.layers
x, y = numpy.random.default_rng(0).random((200, 8), dtype="float32"), numpy.arange(200) % 4
model = lockstep.Sequential([L.Input((8,)), L.Dense(4)], strategy="ring", replicas=2, threads=1)
history = model.fit(x, y, batch_size=50, epochs=2, verbose=0)
assert len(history.losses) == 8 and model.predict(x).shape == (200, 4)
assert lockstep.verify("ring", world=3)["passed"]
assert lockstep.Model("cnn").output_shape == (None, 10)
print(lockstep.__file__, lockstep.__version__)
"""

    def test_the_package_trains_on_arrays(self):
        done = subprocess.run([self.program("pip"), "install", "--quiet", "--retries=1", "--timeout=15", "numpy"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=600)
        if done.returncode:
            self.skipTest(f"NumPy could not be had from PyPI: {done.stdout.strip().splitlines()[-1:]}")
        self.assertIn("numpy", self.call(self.program("pip"), "show", "lockstep").stdout)
        self.assertEqual(self.call(self.program("pip"), "check").stdout.strip(), "No broken requirements found.")
        place, version = self.call(self.program("python"), "-c", self.FIT).stdout.split()
        self.assertEqual((version, os.path.realpath(place).startswith(os.path.realpath(self.venv))), ("0.1.0", True), place)

    def test_a_library_that_is_not_here_is_named_with_its_package(self):
        list_file = self.file_below(self.venv, "libraries.json")
        libraries = read_json(list_file)
        self.assertEqual(libraries["libjansson.so.4"], {"for": "command", "package": "libjansson4"})
        with open(os.path.join(SOURCE, "docs", "packages.md"), encoding="utf-8") as file:
            named = set(re.search(r"apt-get install (libjansson4 .*)", file.read())[1].split())
        self.assertEqual(named, {entry["package"] for entry in libraries.values() if entry["for"] != "device-cuda"})
        for part, expect in (("keras-files", DONE), ("command", NOT_AVAILABLE)):
            libraries["libnowhere.so.7"] = {"for": part, "package": "libnowhere7"}
            write_json(list_file, libraries)
            done = self.call(self.program("lockstep"), "summary", "--model=cnn", expect=expect)
            self.assertRegex(done.stderr, r"^lockstep: (warning|error): libnowhere\.so\.7: not on this machine; .*; on Debian: apt-get install "
                                          r"libnowhere7\n$")
            self.assertEqual("Total params" in done.stdout, expect == DONE)


class Source(Package):
    needs = {"git": "git"}

    def test_a_release_has_what_is_committed_and_the_same_bytes_twice(self):
        if not os.path.exists(os.path.join(SOURCE, ".git")):
            self.skipTest("the source is no clone of git")
        tracked = self.call("git", "-C", SOURCE, "ls-files").stdout.splitlines()
        if self.call("git", "-C", SOURCE, "status", "--porcelain", "--untracked-files=no").stdout:
            done = self.call(os.path.join(SOURCE, "tools", "package"), "source", "--out=one", expect=3)
            self.assertIn("not committed", done.stderr)
            self.skipTest("the source has changes that are not committed")
        made = [self.call(os.path.join(SOURCE, "tools", "package"), "source", "--out=" + folder).stdout.strip() for folder in ("one", "two")]
        one, two = (open(path, "rb").read() for path in made)
        self.assertEqual(one, two)
        self.call("tar", "xf", made[0])
        folder = os.path.basename(made[0])[:-len(".tar.gz")]
        unpacked = [os.path.relpath(os.path.join(place, name), self.path(folder))
                    for place, folders, names in os.walk(self.path(folder)) for name in names]
        self.assertEqual(sorted(unpacked), sorted([*tracked, "COMMIT", "PKG-INFO"]))
        self.call(MESON or "meson", "setup", "build", folder, "-Dtests=disabled", "-Dcuda=disabled")
        self.assertIn(f"lockstep-{self.call(MESON or 'meson', 'introspect', '--projectinfo', 'build').stdout.split(chr(34))[3]}", folder)


class Installs(Package):
    """tools/test on a machine that lacks everything: dpkg-query knows no package, apt-get installs none."""

    def test_what_is_installed_is_said_first(self):
        for tool in ("dpkg-query", "apt-get", "sudo"):
            self.write("bin/" + tool, "#!/bin/sh\nexit 1\n")
            os.chmod(self.path("bin/" + tool), 0o755)
        for options, more in (("--release", False), ("--all", True)):
            done = self.call(os.path.join(SOURCE, "tools", "test"), options, expect=NOT_AVAILABLE, PATH=self.path("bin") + ":" + os.environ["PATH"])
            first = done.stdout.splitlines()[0]
            self.assertRegex(first, r"^tools/test installs on this machine, as root by apt-get: .*\blibjansson-dev\b")
            for package in ("chromium", "slurm-wlm", "openmpi-bin"):
                self.assertEqual(package in first.split(), more, first)


if __name__ == "__main__":
    main()
