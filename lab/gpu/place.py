# SPDX-License-Identifier: Apache-2.0
"""Where tools/gpu-check runs: the kit, its programs, what the machine is."""
import atexit
import datetime
import functools
import glob
import importlib.metadata
import json
import os
import platform
import re
import shutil
import sys
import tempfile
import time

from runner import NotRun, TimeOver, Wrong

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
RUN_DEVICE = os.path.join("tests", "support", "run-device", "run-device")
RUN_ON_DEVICE = os.path.join("tests", "support", "run-device", "run-on-device")

TOOLKIT = ("/usr/local/cuda/lib64", "/usr/local/cuda/extras/CUPTI/lib64", "/usr/local/nvidia/lib64")
ANSWER_SECONDS = 10  # of a question like nvidia-smi's, which hangs where the driver does
TRAINING_SECONDS, DEADLINE = 30, ["--deadline=20"]  # of one training; a wait that is over earlier says what was waited for


def executable(path):
    """Not every way of copying keeps the modes of files."""
    if not os.access(path, os.X_OK):
        os.chmod(path, 0o755)
    return path


class Place:
    """`double`: folders of the fake's plugins, for a dry run; empty on a GPU. `out`: where results go."""

    def __init__(self, runner, options, out):
        self.runner, self.kit, self.double, self.out = runner, options.kit, options.double, out
        self.nvidia_root, self.build_folder = options.nvidia_root, os.path.join(options.kit, "build")
        self.pack = self.read_pack()
        self.environment = self.make_environment()
        self.dataset = "fashion-mnist" + (":dir=" + self.carried("fashion-mnist") if self.carried("fashion-mnist") else "")
        self.scratch = tempfile.mkdtemp(prefix="gpu-check-")
        atexit.register(shutil.rmtree, self.scratch, True)

    def read_pack(self):
        try:
            with open(os.path.join(self.kit, "pack.json"), encoding="utf-8") as file:
                pack = json.load(file)
        except OSError as error:
            raise SystemExit("gpu-check: %s is no folder of --pack: %s" % (self.kit, error)) from error
        if pack["machine"] != platform.machine():
            raise SystemExit("gpu-check: the kit is for %s, this is %s" % (pack["machine"], platform.machine()))
        return pack

    def carried(self, *parts):
        path = os.path.join(self.kit, *parts)
        return path if os.path.exists(path) else None

    def make_environment(self):
        """cuDNN opens its own parts, and NVRTC, by the loader's path."""
        environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", LOCKSTEP_PLUGIN_PATH=self.path("plugins"),
                           LOCKSTEP_MODEL_PATH=self.carried("models") or os.path.join(ROOT, "models"))
        wheels = [path for folder in sys.path for path in sorted(glob.glob(os.path.join(folder, "nvidia", "*", "lib")))]
        toolkit = [path for path in TOOLKIT if os.path.isdir(path)]
        environment["LD_LIBRARY_PATH"] = ":".join(filter(None, [*wheels, *toolkit, environment.get("LD_LIBRARY_PATH")]))
        return environment

    # ---- Build, only where the binaries of the kit do not start ----

    def build(self):
        environment = dict(self.environment, PKG_CONFIG_PATH=os.path.join(self.kit, "prefix", "lib", "pkgconfig"))
        if not shutil.which("pkg-config"):
            environment["PKG_CONFIG"] = executable(os.path.join(HERE, "pkg-config"))
        self.build_folder = os.path.join(self.scratch, "build")
        setup = ["meson", "setup", self.build_folder, "-Dbuildtype=release", "-Dtests=disabled", "-Dcuda=enabled", "-Dcpu=disabled",
                 "-Dgpu_archs=" + self.pack["gpu_archs"], "-Dnvidia_root=" + self.nvidia_root]
        for command in (setup, ["ninja", "-C", self.build_folder, "all", RUN_DEVICE, RUN_ON_DEVICE]):
            outcome = self.runner.run(command, environment, cwd=ROOT)
            if outcome.code:
                raise Wrong("exit code %d from %s" % (outcome.code, " ".join(command[:2])), output=outcome.output)
        self.environment["LOCKSTEP_PLUGIN_PATH"] = self.path("plugins")

    # ---- Running ----

    def path(self, *parts):
        return os.path.join(self.build_folder, *parts)

    def program(self, *parts):
        path = self.path(*(parts or ("tools", "lockstep")))
        if not os.path.exists(path):
            raise NotRun("%s is not in the kit" % os.path.basename(path))
        return executable(path)

    def plugin_path(self):
        return ["--plugin-path=" + self.double] if self.double else []

    def suite_environment(self, **more):
        folders = [self.double] * bool(self.double) + [self.path("plugins")]
        return dict(self.environment, LOCKSTEP_PLUGIN_PATH=":".join(folders), **more)

    def lockstep(self, *arguments, environment=None, **more):
        """The outcome of the command; on the fake where this is a dry run."""
        return self.runner.run([self.program(), *arguments, *self.plugin_path()], dict(self.environment, **(environment or {})), **more)

    def train(self, *arguments, steps=None, device="cuda", environment=None):
        """The report of a training on the GPU."""
        path = os.path.join(self.scratch, "report.json")
        if os.path.exists(path):
            os.unlink(path)
        command = ["train", "--quiet", "--device=" + device, "--report=" + path, *DEADLINE, *arguments]
        if not any(word.startswith("--dataset=") for word in arguments):
            command.append("--dataset=" + self.dataset)
        try:
            outcome = self.lockstep(*command, *(["--steps=%d" % steps] if steps else []), environment=environment, limit=TRAINING_SECONDS)
        except TimeOver as error:
            if self.runner.left() <= 0:
                raise
            raise Wrong(str(error), output=error.output) from error
        if outcome.code:
            raise Wrong(outcome.ending(), output=outcome.output)
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    # ---- What is here ----

    def said(self, *command):
        """What a command says, or None."""
        try:
            outcome = self.runner.run(command, None, limit=ANSWER_SECONDS)
        except (OSError, TimeOver):
            return None
        return outcome.out.strip() if outcome.code == 0 else None

    @property
    def gpus(self):
        """How many there are."""
        return self.see_devices()[0]

    @functools.lru_cache(maxsize=None)
    def see_devices(self):
        """Number and names of the devices that Lockstep itself sees, and the seconds that it took the first time."""
        outcome = self.lockstep("plugins", "cuda")
        found = re.search(r"^hardware: +(.*), (\d+) devices?$", outcome.out, re.MULTILINE)
        if outcome.code or not found:
            raise Wrong("lockstep plugins cuda: " + outcome.ending(), output=outcome.output)
        return int(found[2]), found[1], outcome.seconds

    def seen_names(self):
        try:
            return [self.see_devices()[1]]
        except (OSError, NotRun, TimeOver, Wrong):
            return []

    def machine(self):
        """The binaries start, and Lockstep sees the GPUs; what cuDNN knows of them is kept, plans for them can then be made elsewhere."""
        figures = {"linked": {}, "built": False}
        try:
            started = self.lockstep("--version").code == 0
        except OSError:
            started = False
        if not started:
            self.build()
            figures["built"] = True
        for name in (self.program(), self.path("plugins", "cuda-engine.so")):
            missing = [line.strip() for line in (self.said("ldd", name) or "").splitlines() if "not found" in line]
            figures["linked"][os.path.basename(name)] = missing or "nothing is missing"
        figures["properties"] = self.save_properties()
        number, names, seconds = self.see_devices()
        figures["probe_seconds"] = round(seconds, 3)
        figures["plugins"] = self.lockstep("plugins").out.strip().splitlines()
        return "%d x %s, seen in %.2f s; cuDNN's properties: %s" % (number, names, figures["probe_seconds"], figures["properties"]), figures

    def save_properties(self):
        """cuDNN's own description of the GPU, as a file of the results."""
        try:
            outcome = self.runner.run([self.program("tools", "gpu-plans"), "--save-properties=" + os.path.join(self.out, "properties.json")], self.environment)
        except NotRun as error:
            return str(error)
        return "saved" if outcome.code == 0 else outcome.ending()

    def hardware(self):
        """Which card it is; where nvidia-smi does not say it, by its name as Lockstep sees it."""
        smi = self.said("nvidia-smi", "--format=csv,noheader",
                        "--query-gpu=name,driver_version,memory.total,compute_cap,pci.bus_id")
        links = self.said("nvidia-smi", "topo", "-m") if smi else None
        return {"gpus": smi.splitlines() if smi else self.seen_names(), "links": links.splitlines() if links else [],
                "processor": processor(), "cores": os.cpu_count(), "kernel": platform.release(),
                "machine": platform.machine()}

    def found(self):
        """What find_cuda.py found, as it prints it."""
        said_so = self.said(sys.executable, os.path.join(ROOT, "plugins", "device", "cuda", "find_cuda.py"), self.nvidia_root) or ""
        return dict(line.split("=", 1) for line in said_so.splitlines() if "=" in line)

    def runtime_library(self):
        """Path of libcudart; in a dry run the fake's, which its folder holds."""
        if not self.double:
            return self.found().get("cudart")
        paths = [os.path.join(folder, "libcuda-fake.so") for folder in self.double.split(":")]
        return next((path for path in paths if os.path.exists(path)), None)

    def software(self):
        found = self.found()
        nvcc = found.get("nvcc")
        version = self.said(nvcc, "--version") if nvcc else None
        return {"nvcc": version.splitlines()[-1] if version else None, "found": found,
                "gcc": (self.said("gcc", "--version") or "").splitlines()[:1], "python": platform.python_version(),
                "python_packages": python_packages(), "libc": " ".join(platform.libc_ver()), "brought_along": self.pack}


def python_packages():
    """Versions of PyTorch and of NVIDIA's wheels that this python has."""
    found = {package.metadata["Name"] or "": package.version for package in importlib.metadata.distributions()}
    return {name: found[name] for name in sorted(found) if name in ("torch", "triton") or name.startswith("nvidia-")}


def processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), None)
    except OSError:
        return None


def version():
    """Of the source, as meson.build has it."""
    with open(os.path.join(ROOT, "meson.build"), encoding="utf-8") as file:
        return re.search(r"version: '([^']+)'", file.read())[1]


def today():
    return datetime.datetime.now(datetime.timezone.utc)

