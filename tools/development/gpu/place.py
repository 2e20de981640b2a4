# SPDX-License-Identifier: Apache-2.0
"""Where tools/gpu-check runs: what was brought along, how to build there, what the machine is."""
import datetime
import glob
import importlib.metadata
import json
import lzma
import os
import platform
import re
import shutil
import subprocess
import sys

from runner import NotRun, Wrong

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
RUN_DEVICE = os.path.join("tests", "support", "run-device", "run-device")


def executable(path):
    """Not every way of copying keeps the modes of files."""
    if not os.access(path, os.X_OK):
        os.chmod(path, 0o755)
    return path


def said(*command):
    """What a command says, or None."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


class Place:
    """`double`: folders of the fake's plugins, for a dry run; empty on a GPU."""

    def __init__(self, runner, options):
        self.runner, self.carry, self.double = runner, options.carry, options.double
        self.build_folder, self.nvidia_root = os.path.abspath(options.build), options.nvidia_root
        self.pack = self.read_pack()
        self.environment = self.make_environment()
        self.dataset = "fashion-mnist" + (":dir=" + self.carried("fashion-mnist") if self.carried("fashion-mnist") else "")
        self.seen = None

    def read_pack(self):
        if not self.carry:
            return {}
        try:
            with open(os.path.join(self.carry, "pack.json"), encoding="utf-8") as file:
                pack = json.load(file)
        except OSError as error:
            raise SystemExit("gpu-check: --carry=%s is no folder of --pack: %s" % (self.carry, error)) from error
        if pack["machine"] != platform.machine():
            raise SystemExit("gpu-check: what was brought along is for %s, this is %s" % (
                pack["machine"], platform.machine()))
        return pack

    def unpack_prefix(self):
        """A copy of what was brought along, beside the build folder: large libraries travel compressed."""
        carried = self.carried("prefix")
        if not carried:
            return None
        target = self.build_folder + "-prefix"
        shutil.copytree(carried, target, dirs_exist_ok=True)
        for packed in glob.glob(os.path.join(target, "lib", "*.xz")):
            with lzma.open(packed) as file, open(packed[:-3], "wb") as whole:
                shutil.copyfileobj(file, whole)
            os.unlink(packed)
        return target

    def carried(self, *parts):
        path = os.path.join(self.carry, *parts) if self.carry else ""
        return path if path and os.path.exists(path) else None

    def make_environment(self):
        environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
        prefix = self.unpack_prefix()
        if not prefix:
            return environment
        for name, path in (("LD_LIBRARY_PATH", os.path.join(prefix, "lib")),
                           ("PKG_CONFIG_PATH", os.path.join(prefix, "lib", "pkgconfig"))):
            environment[name] = path + ":" + environment[name] if environment.get(name) else path
        if not shutil.which("pkg-config"):
            environment["PKG_CONFIG"] = executable(os.path.join(HERE, "pkg-config"))
        return environment

    # ---- Build ----

    def meson(self):
        """The command, and what the environment needs for it."""
        if shutil.which("meson"):
            return ["meson"], {}
        module = [sys.executable, "-m", "mesonbuild.mesonmain"]
        if said(sys.executable, "-c", "import mesonbuild") is not None:
            return module, {}
        if self.carried("tools", "mesonbuild"):
            return module, {"PYTHONPATH": self.carried("tools") + ":" + os.environ.get("PYTHONPATH", "")}
        raise Wrong("meson is neither here nor in what was brought along")

    def ninja(self):
        program = shutil.which("ninja") or self.carried("tools", "ninja")
        if not program:
            raise Wrong("ninja is neither here nor in what was brought along")
        return executable(program)

    def architectures(self):
        """Of the GPUs that are here, oldest first: nothing else need be compiled. None: meson's default."""
        found = said("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader")
        numbers = sorted({int(text.replace(".", "")) for text in (found or "").split() if re.fullmatch(r"\d+\.\d", text)})
        return ",".join(str(number) for number in numbers) or None

    def build(self):
        meson, extra = self.meson()
        environment = dict(self.environment, NINJA=self.ninja(), **extra)
        options = ["-Dbuildtype=release", "-Dtests=disabled", "-Dcuda=" + ("auto" if self.double else "enabled"),
                   "-Dnvidia_root=" + self.nvidia_root]
        if self.architectures():
            options.append("-Dgpu_archs=" + self.architectures())
        if not os.path.exists(os.path.join(self.build_folder, "build.ninja")):
            self.build_step(meson + ["setup", self.build_folder, *options], environment)
        self.build_step([environment["NINJA"], "-C", self.build_folder, "all", RUN_DEVICE], environment)
        built = os.path.exists(self.path("plugins", "device-cuda.so")) or self.double
        if not built:
            raise Wrong("device cuda was not built")
        cpu = os.path.exists(self.path("plugins", "device-cpu.so"))
        return "release build with %s, with%s device cpu" % (
            self.architectures() or "the default architectures", "" if cpu else "out"), {}

    def build_step(self, command, environment):
        outcome = self.runner.run(command, environment, cwd=ROOT)
        if outcome.code:
            raise Wrong("exit code %d from %s" % (outcome.code, " ".join(command[:2])), output=outcome.output)

    # ---- Running ----

    def path(self, *parts):
        return os.path.join(self.build_folder, *parts)

    def program(self):
        path = self.path("tools", "lockstep")
        if not os.path.exists(path):
            raise NotRun("nothing was built")
        return path

    def plugin_path(self):
        return ["--plugin-path=" + self.double] if self.double else []

    def lockstep(self, *arguments, **more):
        """The outcome of the command; on the fake where this is a dry run."""
        return self.runner.run([self.program(), *arguments, *self.plugin_path()], self.environment, **more)

    def train(self, *arguments, steps=None, device="cuda"):
        """The report of a training on the GPU."""
        path = self.path("gpu-check-report.json")
        if os.path.exists(path):
            os.unlink(path)
        command = ["train", "--quiet", "--device=" + device, "--report=" + path, *arguments]
        if not any(word.startswith("--dataset=") for word in arguments):
            command.append("--dataset=" + self.dataset)
        outcome = self.lockstep(*command, *(["--steps=%d" % steps] if steps else []))
        if outcome.code:
            raise Wrong(outcome.ending(), output=outcome.output)
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    # ---- What is here ----

    @property
    def gpus(self):
        """How many there are; without one, nothing else can be run."""
        try:
            if self.seen is None:
                self.see_devices()
        except Wrong as error:
            raise NotRun("Lockstep sees no GPU: %s" % error) from error
        return self.seen

    def see_devices(self):
        """What Lockstep itself sees."""
        outcome = self.lockstep("plugins", "cuda")
        found = re.search(r"^hardware: +(.*), (\d+) devices?$", outcome.out, re.MULTILINE)
        if outcome.code or not found:
            raise Wrong("lockstep plugins cuda: " + outcome.ending(), output=outcome.output)
        self.seen = int(found[2])
        listed = self.lockstep("plugins")
        return "%d x %s" % (self.seen, found[1]), {"gpus": self.seen, "plugins": listed.out.strip().splitlines()}

    def hardware(self):
        smi = said("nvidia-smi", "--format=csv,noheader",
                   "--query-gpu=name,driver_version,memory.total,compute_cap,pci.bus_id")
        links = said("nvidia-smi", "topo", "-m")
        return {"gpus": smi.splitlines() if smi else [], "links": links.splitlines() if links else [],
                "processor": processor(), "cores": os.cpu_count(), "kernel": platform.release(),
                "machine": platform.machine()}

    def found(self):
        """What find_cuda.py found, as it prints it."""
        said_so = said(sys.executable, os.path.join(ROOT, "plugins", "device", "cuda", "find_cuda.py"), self.nvidia_root) or ""
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
        version = said(nvcc, "--version") if nvcc else None
        return {"nvcc": version.splitlines()[-1] if version else None, "found": found,
                "gcc": (said("gcc", "--version") or "").splitlines()[:1], "python": platform.python_version(),
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


def words(text):
    """"NVIDIA H200" as part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
