# SPDX-License-Identifier: Apache-2.0
"""The peers of tools/bench-train --all: PyTorch of PyPI, PyTorch of Debian and TensorFlow, each in a process that
trains a line's model and answers how long a step takes (torch_line_peer.py, keras_line_peer.py).

What no rule decides is tried: channels_last or not, eager or compiled, and who allocates memory, in each precision.
"""
import glob
import json
import os
import select
import subprocess
import sys
import tempfile

import peers

HERE = os.path.dirname(os.path.abspath(__file__))
# What PyTorch's performance guide advises for jemalloc; tcmalloc needs nothing.
JEMALLOC = {"MALLOC_CONF": "oversize_threshold:1,background_thread:true,metadata_thp:auto,dirty_decay_ms:-1,muzzy_decay_ms:-1"}
KEPT = "glibc, memory kept"
LIBRARIES = {"jemalloc": "libjemalloc.so.2", "tcmalloc": "libtcmalloc_minimal.so.4"}
FOLDERS = ("/usr/lib/*", "/usr/local/lib", "/usr/lib")
PACKAGES = {"pytorch": ["torch", "numpy", "setuptools"], "tensorflow": ["tensorflow-cpu", "keras"]}


class PeerFailed(Exception):
    """The process did not start, or ended, or did not answer; the text says what it said last."""


def allocators(folder):
    """{name: environment} of those on this machine; `folder`: another one to look in."""
    found = {"glibc": {}, KEPT: dict(peers.KEEP_MEMORY)}
    for name, library in LIBRARIES.items():
        for place in ([folder] if folder else []) + list(FOLDERS):
            paths = glob.glob(os.path.join(place, library))
            if paths:
                found[name] = {"LD_PRELOAD": paths[0], **(JEMALLOC if name == "jemalloc" else {})}
                break
    return found


def make_environment(folder, peer, progress):
    """The Python of a virtual environment with the peer's newest version from PyPI, made where there is none."""
    place = os.path.join(folder, peer)
    python = os.path.join(place, "bin", "python")
    done = os.path.join(place, "complete")
    if not os.path.exists(done):
        progress("%s is installed from PyPI into %s, some GB for PyTorch" % (peer, place))
        with tempfile.TemporaryFile("w+") as log:
            for command in ([sys.executable, "-m", "venv", "--clear", place],
                            [python, "-m", "pip", "install", "--quiet"] + PACKAGES[peer]):
                if subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode:
                    log.seek(0)
                    said = log.read().strip().splitlines()
                    raise PeerFailed("cannot be installed: %s" % (said[-1] if said else "pip said nothing"))
        with open(done, "w"):
            pass
    return python


class LinePeer:
    """One running peer. `setting`: name of the peer, words for people, python, script, arguments, environment."""

    def __init__(self, setting, deadline):
        self.setting, self.deadline = setting, deadline
        self.said = tempfile.TemporaryFile("w+")
        try:
            self.process = subprocess.Popen(
                [setting["python"], os.path.join(HERE, setting["script"])] + setting["arguments"],
                bufsize=0, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=self.said, env={**os.environ, **setting["environment"]})
        except OSError as error:
            raise PeerFailed(str(error)) from error
        try:
            self.about = self.answer()
        except PeerFailed:
            self.close()
            raise

    def failed(self, what):
        self.said.seek(0)
        lines = [line for line in self.said.read().strip().splitlines() if line]
        return PeerFailed("%s: %s" % (what, lines[-1][:200] if lines else "it said nothing"))

    def answer(self):
        """The next JSON line; a peer prints nothing else that begins with a brace."""
        while True:
            if not select.select([self.process.stdout], [], [], self.deadline)[0]:
                raise PeerFailed("no answer in %g s" % self.deadline)
            line = self.process.stdout.readline()
            if not line:
                raise self.failed("ended with code %d" % self.process.wait())
            if line.startswith(b"{"):
                return json.loads(line)

    def ask(self, **command):
        try:
            self.process.stdin.write(json.dumps(command).encode() + b"\n")
        except BrokenPipeError:
            raise self.failed("ended with code %d" % self.process.wait()) from None
        return self.answer()

    def run(self, seconds):
        """Seconds of a step."""
        return self.ask(do="run", seconds=seconds)["seconds"]

    def close(self):
        try:
            self.process.stdin.close()
            self.process.wait(5)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.said.close()


def line_arguments(line, options, precision):
    common = ["--batch=%d" % line["batch"], "--threads=%d" % options.threads, "--precision=" + precision]
    if "length" in line:
        return common + ["--text=" + options.text, "--length=%d" % line["length"]]
    return common + ["--shape=" + line["shape"], "--examples=%d" % line["examples"]]


class Torch:
    """Set-ups of PyTorch to try. `debian`: the one without torch.compile and fused Adam, with OpenBLAS."""

    def __init__(self, name, python, line, options, precision="float32"):
        self.name, self.python, self.line, self.options, self.precision = name, python, line, options, precision
        self.allocators = allocators(options.allocator_dir)

    def setting(self, mode, layout, allocator, **environment):
        words = [mode] + ([layout] if len(self.layouts()) > 1 else []) + [allocator]
        words += ["bound"] * ("OMP_PROC_BIND" in environment)
        words += [environment["OPENBLAS_CORETYPE"] + " kernels"] if "OPENBLAS_CORETYPE" in environment else []
        return {"peer": self.name, "words": ", ".join(words), "python": self.python, "script": "torch_line_peer.py",
                "choice": (mode, layout), "arguments": line_arguments(self.line, self.options, self.precision) + [
                    "--model=" + self.line["like"], "--mode=" + mode, "--layout=" + layout],
                "environment": {**self.allocators[allocator], **environment,
                                "TORCHINDUCTOR_CACHE_DIR": os.path.join(self.options.peer_dir, "inductor")}}

    def layouts(self):
        return ("channels_last", "contiguous") if "x" in self.line.get("shape", "") else ("contiguous",)

    def stages(self):
        """Set-ups to try, and then, by the best so far, more of them."""
        if self.name == "debian":
            # The convolutions are oneDNN's; what OpenBLAS chooses matters where there are products alone.
            kinds = peers.CORE_TYPES if "length" in self.line else peers.CORE_TYPES[:1]
            return [lambda _best: [self.setting("eager", layout, KEPT, **peers.base_environment(kind))
                                   for layout in self.layouts() for kind in kinds]]
        return [lambda _best: [self.setting("eager", layout, KEPT) for layout in self.layouts()],
                lambda best: [self.setting("compile", best["choice"][1], KEPT)],
                lambda best: [self.setting(*best["choice"], name) for name in self.allocators if name != KEPT] +
                             [self.setting(*best["choice"], KEPT, **peers.BIND)]]


class TensorFlow:
    """Keras's train step on TensorFlow, compiled by XLA and not."""

    def __init__(self, name, python, line, options, precision):
        self.name, self.python, self.line, self.options, self.precision = name, python, line, options, precision

    def setting(self, jit):
        return {"peer": self.name, "words": "Keras, " + ("jit_compile" if jit else "graph"), "python": self.python,
                "script": "keras_line_peer.py", "arguments": line_arguments(self.line, self.options, self.precision) + [
                    "--model=" + self.line["file"], "--jit=%d" % jit],
                "environment": {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "",
                                **peers.KEEP_MEMORY}}

    def stages(self):
        return [lambda _best: [self.setting(jit) for jit in (0, 1)]]


KINDS = {"pytorch": Torch, "debian": Torch, "tensorflow": TensorFlow}


def python_of(peer, options, progress):
    if peer == "debian":
        return options.debian_python
    named = {"pytorch": options.pytorch_python, "tensorflow": options.tensorflow_python}[peer]
    return named or make_environment(options.peer_dir, peer, progress)
