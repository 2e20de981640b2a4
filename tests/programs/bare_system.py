# SPDX-License-Identifier: Apache-2.0
"""Debian 12 with nothing on it: the smallest system that debootstrap makes, and the packages of tools/packages, so without dpkg-dev.
The source is built and installed there as README says, and a program and a plugin find it."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from support import ProgramTest, main

SOURCE = os.environ["LOCKSTEP_SOURCE"]
ENTER = 'mount --bind /proc "$0/proc" && mount --bind /dev "$0/dev" && exec chroot "$0" sh -euc "$1"'


class BareDebian(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if os.environ["LOCKSTEP_SANITIZE"] != "none":
            raise unittest.SkipTest("it builds Lockstep itself, without sanitizers")
        for tool, package in (("debootstrap", "debootstrap"), ("unshare", "util-linux"), ("git", "git")):
            if not shutil.which(tool):
                raise unittest.SkipTest(f"{tool} (package {package}) is not here")
        if os.geteuid() or subprocess.run(["unshare", "--mount", "mount", "--bind", "/proc", "/mnt"], stderr=subprocess.DEVNULL).returncode:
            raise unittest.SkipTest("only root that may mount can make a system of its own")
        made = tempfile.TemporaryDirectory(prefix="lockstep-bare-")
        cls.addClassCleanup(made.cleanup)
        cls.root = made.name
        done = subprocess.run(["debootstrap", "--variant=minbase", "bookworm", cls.root], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise unittest.SkipTest(f"debootstrap could not make a system: {done.stdout.strip().splitlines()[-1:]}")

    def enter(self, commands):
        """The output of shell commands in the system, which sees /proc and /dev and nothing else of this one."""
        done = subprocess.run(["unshare", "--mount", "sh", "-c", ENTER, self.root, commands], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=1500, stdin=subprocess.DEVNULL,
                              env={"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive"})
        self.assertEqual(done.returncode, 0, f"{commands}\n{done.stdout[-3000:]}")
        return done.stdout

    def test_what_is_installed_finds_itself(self):
        files = subprocess.run(["git", "-C", SOURCE, "ls-files", "-z"], stdout=subprocess.PIPE, check=True).stdout
        packed = subprocess.run(["tar", "-C", SOURCE, "--null", "-T", "-", "-c"], input=files, stdout=subprocess.PIPE, check=True).stdout
        os.mkdir(os.path.join(self.root, "lockstep"))
        subprocess.run(["tar", "-C", os.path.join(self.root, "lockstep"), "--no-same-owner", "-x"], input=packed, check=True)
        self.enter("cd /lockstep; . tools/packages.sh; apt-get -q update; apt-get -q -y install --no-install-recommends $(packages_of build)")
        self.assertFalse(os.path.exists(os.path.join(self.root, "usr/bin/dpkg-architecture")))
        said = self.enter("cd /lockstep; meson setup build >/dev/null; ninja -C build >/dev/null; meson install -C build")
        self.assertIn("Lockstep is in /usr/local, its documents in /usr/local/share/doc/lockstep.\nBegin with: lockstep train ", said)
        self.assertIn("val_accuracy", self.enter(re.search("^Begin with: (.*)$", said, re.M)[1]))
        self.enter("cd /root; lockstep plugin new my-reduce --kind=collective; cd my-reduce; meson setup build; meson test -C build")
        self.enter("cd /root; cc -o estimator /lockstep/examples/estimator.c $(pkg-config --cflags --libs lockstep) -lm; ./estimator mirrored 2")
        pages = self.enter("cd /usr/local/share/doc/lockstep; ls README.md docs/weights.md docs/gpu.md reference/lockstep.md")
        self.assertEqual(len(pages.split()), 4)


if __name__ == "__main__":
    main()
