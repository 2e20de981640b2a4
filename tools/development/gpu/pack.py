# SPDX-License-Identifier: Apache-2.0
"""tools/gpu-check --pack=DIR: what a machine with a GPU, but without a network and Debian's packages, is to be brought.

    fashion-mnist/   the four files
    prefix/          jansson, zlib, xxHash, libsodium, oneDNN: headers, shared libraries (those of some size as .xz), and .pc
                     files that say where they lie
    tools/           meson (Python) and ninja, used where that machine has none
    reference/       losses that PyTorch computed, and the weights they begin with (tests/data/reference)
    cpu/             losses of device cpu, recorded now: the arguments after `train`, and what came out
    pack.json        for which processor and commit, and from which packages
"""
import json
import lzma
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile

from runner import NotRun, say

LIBRARIES = {  # of a .pc file: package with headers, library
    "jansson": ("libjansson-dev", "jansson"), "zlib": ("zlib1g-dev", "z"), "libxxhash": ("libxxhash-dev", "xxhash"),
    "libsodium": ("libsodium-dev", "sodium"), "dnnl": ("libdnnl-dev", "dnnl"),
}
NEEDED_BY_THEM = ("libOpenCL.so.1",)  # Debian's oneDNN is linked with it
LARGE = 4 << 20  # bytes; larger libraries are compressed
CPU_RUNS = {  # name: model and optimizer; of both 100 steps of 128 in the order of the file
    "cnn_sgd": ("cnn", "sgd:learning_rate=0.01"), "mlp_adam": ("mlp", "adam:learning_rate=0.001"),
}
CPU_STEPS = 100
MNIST = "/usr/share/datasets/fashion-mnist"
BUILD = """. tools/packages.sh
packages_install build data >&2
build_folder "$1" -Dtests=disabled >&2 && ninja -C "$1" >&2"""


def output_of(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def commit_of(root):
    """The commit, and a `+` where the tree is not quite that; None without git."""
    try:
        commit = output_of("git", "-C", root, "rev-parse", "HEAD")
        return commit + "+" * bool(output_of("git", "-C", root, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.CalledProcessError):
        return None


def library_path(name):
    """Where the dynamic linker finds it."""
    listed = output_of("sh", "-c", "/sbin/ldconfig -p")
    return re.search(r"^\s*%s .*=> (\S+)$" % re.escape(name), listed, re.MULTILINE)[1]


def put_library(path, target):
    if os.path.getsize(path) < LARGE:
        shutil.copy(path, target)
        return
    with open(path, "rb") as file, lzma.open(target + ".xz", "wb", preset=9) as packed:
        shutil.copyfileobj(file, packed)


def copy_library(prefix, pc_name, package, name):
    """Headers, and the library by the name that programs ask for; no links, which not every way of copying keeps."""
    files = output_of("dpkg", "-L", package).splitlines()
    for path in files:
        if path.startswith("/usr/include/") and path.endswith((".h", ".hpp")):
            below = re.sub(r"^/usr/include/([a-z0-9_]+-linux-gnu[a-z0-9]*/)?", "", path)
            target = os.path.join(prefix, "include", below)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(path, target)
    link = next(path for path in files if os.path.basename(path) == "lib%s.so" % name)
    real = os.path.realpath(link)
    soname = output_of("sh", "-c", 'objdump -p "$1" | sed -n "s/ *SONAME *//p"', "sh", real)
    put_library(real, os.path.join(prefix, "lib", soname))
    version = output_of("dpkg-query", "-W", "-f", "${Version}", package)
    with open(os.path.join(prefix, "lib", "pkgconfig", pc_name + ".pc"), "w") as file:
        file.write("prefix=${pcfiledir}/../..\nName: %s\nDescription: carried along\nVersion: %s\n"
                   "Libs: ${prefix}/lib/%s\nCflags: -I${prefix}/include\n" % (
                       pc_name, re.match(r"(\d+:)?([\d.]+)", version)[2], soname))
    return version


def copy_prefix(folder):
    prefix = os.path.join(folder, "prefix")
    for sub in ("include", "lib/pkgconfig"):
        os.makedirs(os.path.join(prefix, sub))
    for name in NEEDED_BY_THEM:
        shutil.copy(library_path(name), os.path.join(prefix, "lib"))
    return {package: copy_library(prefix, pc_name, package, name) for pc_name, (package, name) in LIBRARIES.items()}


def copy_tools(folder):
    """meson as the package that Debian's python sees, and ninja's program."""
    tools = os.path.join(folder, "tools")
    os.makedirs(tools)
    meson = output_of("/usr/bin/python3", "-c", "import mesonbuild; print(list(mesonbuild.__path__)[0])")
    shutil.copytree(meson, os.path.join(tools, "mesonbuild"), ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(shutil.which("ninja"), tools)
    return {"meson": output_of("meson", "--version"), "ninja": output_of("ninja", "--version")}


def copy_reference(root, folder):
    target = os.path.join(folder, "reference")
    os.makedirs(target)
    for name in ("cnn_sgd.json", "cnn_sgd.safetensors"):
        shutil.copy(os.path.join(root, "tests", "data", "reference", name), target)
    return "PyTorch's"


def cpu_arguments(model, optimizer):
    return ["--model=" + model, "--optimizer=" + optimizer, "--batch=128", "--steps=%d" % CPU_STEPS, "--shuffle=off",
            "--validation=off", "--seed=0"]


def record_cpu(lockstep, folder):
    os.makedirs(os.path.join(folder, "cpu"))
    for name, (model, optimizer) in CPU_RUNS.items():
        arguments = cpu_arguments(model, optimizer)
        with tempfile.TemporaryDirectory() as scratch:
            report = os.path.join(scratch, "report.json")
            subprocess.run([lockstep, "train", "--quiet", "--device=cpu", "--replicas=1", "--report=" + report,
                            "--dataset=fashion-mnist:dir=" + os.path.join(folder, "fashion-mnist"), *arguments], check=True)
            with open(report) as file:
                losses = json.load(file)["losses"]
        with open(os.path.join(folder, "cpu", name + ".json"), "w") as file:
            json.dump({"arguments": arguments, "losses": losses}, file, indent=1)


def size_of(folder):
    return sum(os.path.getsize(os.path.join(path, name)) for path, _, names in os.walk(folder) for name in names)


def pack(root, folder, build):
    """Makes the folder anew."""
    if os.path.exists(folder) and os.listdir(folder) and not os.path.exists(os.path.join(folder, "pack.json")):
        raise NotRun("%s is there and was not made by this script" % folder)
    done = subprocess.run(["sh", "-euc", BUILD, "sh", build], cwd=root, check=False, stdout=sys.stderr)
    if done.returncode:
        raise NotRun("packages or build: exit code %d; what they said is above" % done.returncode)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    say("copying data, libraries and tools")
    shutil.copytree(MNIST, os.path.join(folder, "fashion-mnist"))
    about = {"machine": platform.machine(), "libc": " ".join(platform.libc_ver()), "packages": copy_prefix(folder),
             "tools": copy_tools(folder), "reference": copy_reference(root, folder), "commit": commit_of(root)}
    say("training on the CPU, whose losses are carried along")
    record_cpu(os.path.join(root, build, "tools", "lockstep"), folder)
    with open(os.path.join(folder, "pack.json"), "w") as file:
        json.dump(about, file, indent=1)
    print("%s: %.1f MB for %s; take it along with the source and run there:\n    tools/gpu-check --carry=%s" % (
        folder, size_of(folder) / 1e6, about["machine"], folder))
