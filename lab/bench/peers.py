# SPDX-License-Identifier: Apache-2.0
"""Starts PyTorch for tools/bench-train, tuned as well as it can be on this machine, and talks to it.

As installed, Debian's PyTorch is not a fair peer (docs/performance.md says why). Two set-ups are measured:
"tuned" has the right BLAS, its best kernels for this processor, AVX-512 and channels_last; "tuned+malloc" in
addition keeps freed memory (glibc otherwise returns the large activations to the kernel and faults them in again
every step) and binds threads to processors. What no rule decides (kernels, thread count, foreach, jit) is tried.
"""
import functools
import glob
import json
import os
import subprocess
import sys

import machine

PEER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_peer.py")
CORE_TYPES = ("SkylakeX", "Cooperlake", "Zen", "Haswell")  # kernels that OpenBLAS 0.3.21 has for x86-64
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(1 << 32), "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
               "MALLOC_TOP_PAD_": str(64 << 20)}
BIND = {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores"}
PROBE_SECONDS = 0.7


class Peer:
    """One running torch_peer.py. `setting`: environment, threads, world, variant."""

    def __init__(self, python, arguments, setting):
        self.setting = setting
        command = [python, PEER, "--threads=%d" % setting["threads"], "--world=%d" % setting["world"]] + arguments
        if setting.get("pin"):
            command.append("--pin")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **setting["environment"]})
        self.version = self.answer()["torch"]
        self.build(setting["variant"])

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("bench-train: PyTorch ended with code %s; its message is above" % self.process.wait())
        return json.loads(line)

    def ask(self, **command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def build(self, variant):
        self.setting = {**self.setting, "variant": variant}
        self.ask(do="build", variant=variant)

    def run(self, seconds):
        return self.ask(do="run", seconds=seconds)["images_per_second"]

    def probe(self):
        machine.wait_until_idle()
        return max(self.run(PROBE_SECONDS) for _ in range(3))

    def close(self):
        self.process.stdin.close()
        self.process.wait()


@functools.lru_cache(None)
def openblas_folder():
    folders = glob.glob("/usr/lib/*/openblas-openmp")
    if not folders:
        print("bench-train: no OpenMP build of OpenBLAS (libopenblas0-openmp); PyTorch is slower without it",
              file=sys.stderr)
    return folders[0] if folders else None


def base_environment(core_type):
    environment = {"ATEN_CPU_CAPABILITY": "avx512", "GLOO_SOCKET_IFNAME": "lo"}
    if openblas_folder():
        environment["LD_LIBRARY_PATH"] = openblas_folder()
    if core_type:
        environment["OPENBLAS_CORETYPE"] = core_type
    return environment


def describe(setting):
    words = ["%d process%s x %d thread%s" % (setting["world"], "es" * (setting["world"] > 1), setting["threads"],
                                             "s" * (setting["threads"] > 1))]
    words.append(setting["environment"].get("OPENBLAS_CORETYPE", "default") + " kernels")
    if setting["environment"].get("MALLOC_TRIM_THRESHOLD_"):
        words.append("memory kept")
    if setting["environment"].get("OMP_PROC_BIND") or setting.get("pin"):
        words.append("bound")
    return ", ".join(words + [name for name, value in setting["variant"].items() if value])


class Search:
    """Tries settings one change at a time and keeps the fastest."""

    def __init__(self, python, arguments, progress):
        self.python, self.arguments, self.progress = python, arguments, progress
        self.best, self.best_rate = None, 0.0

    def try_setting(self, setting):
        peer = Peer(self.python, self.arguments, setting)
        self.note(setting, peer.probe())
        peer.close()

    def note(self, setting, rate):
        self.progress("  tuning PyTorch: %8.0f images/s  %s" % (rate, describe(setting)))
        if rate > self.best_rate:
            self.best, self.best_rate = setting, rate

    def try_variants(self):
        """Those that one running process can change."""
        names = ("foreach", "static_graph") if self.best["world"] > 1 else ("foreach", "jit")
        peer = Peer(self.python, self.arguments, self.best)
        for name in names:
            variant = {**self.best["variant"], name: True}
            peer.build(variant)
            self.note({**self.best, "variant": variant}, peer.probe())
        peer.close()


def tune(python, arguments, world, threads, core_types, progress, variants=True):
    """The two set-ups, {"tuned": setting, "tuned+malloc": setting}, each the fastest found of its kind."""
    kept = Search(python, arguments, progress)
    for core_type in core_types:
        environment = {**base_environment(core_type), **KEEP_MEMORY}
        kept.try_setting({"environment": environment, "threads": threads, "world": world, "variant": {}})
    if world > 1:
        kept.try_setting({**kept.best, "pin": True})
    else:
        kept.try_setting({**kept.best, "environment": {**kept.best["environment"], **BIND}})

    plain = Search(python, arguments, progress)
    environment = base_environment(kept.best["environment"].get("OPENBLAS_CORETYPE"))
    plain.try_setting({"environment": environment, "threads": threads, "world": world, "variant": {}})
    for search in (kept, plain):
        if world == 1 and threads > 1:
            search.try_setting({**search.best, "threads": 1})
        if variants:
            search.try_variants()
    return {"tuned": plain.best, "tuned+malloc": kept.best}
