# SPDX-License-Identifier: Apache-2.0
"""tools/gpu-check --pack: the kit, which a machine with a GPU is brought beside the source.

    build/           as a build folder has them, stripped: the command, plugins, run-device, run-on-device, gpu-plans, kernel-time.so
    prefix/          jansson, zlib, xxHash, libsodium: shared libraries, and headers for the case that a build is needed there
    fashion-mnist/   the four files, with 40,000 of the 60,000 images for training
    models/, letters.txt   the built-in models, EfficientNetB0, the GPT and those below, and random letters
    cpu/             losses of device cpu from these weights, recorded now: the arguments after `train`, and what came out
    pack.json        for which processor and commit, the oldest glibc that does, and from which packages
"""
import gzip
import json
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import tempfile

import bench_lines
from runner import NotRun, end_group, say

LIBRARIES = {  # of a .pc file: package with headers, library
    "jansson": ("libjansson-dev", "jansson"), "zlib": ("zlib1g-dev", "z"), "libxxhash": ("libxxhash-dev", "xxhash"),
    "libsodium": ("libsodium-dev", "sodium"),
}
REFERENCE = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tests", "data", "reference")  # weights
SGD, CIFAR_LIKE = "--optimizer=sgd:learning_rate=0.01", "--dataset=synthetic:shape=32x32x3,classes=10"
LETTERS = "--dataset=text:file={kit}/letters.txt,length=128,stride=64"
IMAGES = "--dataset=synthetic:shape=64x64x3,classes=10,examples=256"
SEQUENCES = "--dataset=synthetic:shape=24x16,classes=10,examples=1280"
CPU_RUNS = {  # name: what differs, and weights to begin with; of each ten steps of 128 in the order of the file
    "cnn_sgd": (["--model=cnn", SGD], "cnn_sgd.safetensors"),
    "mlp_adam": (["--model=mlp", "--optimizer=adam:learning_rate=0.001"], None),
    # A larger step would tell nothing: rounding alone (device cpu against reference) grows to 1e-2 in four steps of 0.01 here.
    "resnet_sgd": (["--model=resnet", "--optimizer=sgd:learning_rate=0.0001", CIFAR_LIKE], None),
    "gpt_adamw": (["--model=gpt", "--optimizer=adamw:learning_rate=0.001,weight_decay=0.1", LETTERS, "--batch=16"], None),
    "gpt_bfloat16": (["--model=gpt", "--optimizer=adam:learning_rate=0.001", "--precision=mixed_bfloat16", LETTERS, "--batch=16"], None),
    "efficientnet_sgd": (["--model=EfficientNetB0", "--optimizer=sgd:learning_rate=0.0001", IMAGES, "--batch=16"], None),
    "cnn_float16": (["--model=cnn", SGD, "--precision=mixed_float16"], "cnn_sgd.safetensors"),  # with its loss scale
    "recurrent_adam": (["--model=recurrent", "--optimizer=adam:learning_rate=0.001", SEQUENCES], None),
    "masked_adam": (["--model=masked", "--optimizer=adam:learning_rate=0.001", LETTERS, "--batch=16"], None),
    "augmented_sgd": (["--model=augmented", SGD, CIFAR_LIKE], None),
}
MODELS = ("EfficientNetB0",)  # of tests/data/models
SMALL_MODELS = {
    "recurrent": (("InputLayer", {"batch_shape": [None, 24, 16]}), ("LSTM", {"units": 32, "return_sequences": True, "recurrent_dropout": 0.25}),
                  ("GRU", {"units": 32, "return_sequences": True}), ("GRU", {"units": 32, "reset_after": False}), ("Dense", {"units": 10})),
    "masked": (("InputLayer", {"batch_shape": [None, 128], "dtype": "int32"}), ("Embedding", {"input_dim": 65, "output_dim": 32, "mask_zero": True}),
               ("LSTM", {"units": 32, "return_sequences": True}), ("Dense", {"units": 65, "activation": "softmax"})),
    # The layer before the images has weights, so gradients go through all of them.
    "augmented": (("InputLayer", {"batch_shape": [None, 32, 32, 3]}), ("Conv2D", {"filters": 8, "kernel_size": 1}), ("RandomFlip", {}),
                  ("RandomRotation", {"factor": 0.1}), ("RandomContrast", {"factor": 0.2}), ("RandomErasing", {"factor": 0.5}),
                  ("Resizing", {"height": 24, "width": 20}), ("Rescaling", {"scale": 0.004}), ("Flatten", {}), ("Dense", {"units": 10})),
}
CPU_STEPS = 10
MNIST = "/usr/share/datasets/fashion-mnist"
TRAINED = 40000  # of its images
MOST_BYTES = 64 << 20  # of kit and source: what a visit brings along
# Of the build: device cpu needs oneDNN, which is larger than all the rest; its losses are recorded with a build of its own.
PROGRAMS = ("tools/lockstep", "tests/support/run-device/run-device", "tests/support/run-device/run-on-device")
OPTIONAL = ("tools/gpu-plans", "tools/kernel-time.so")
LEFT_OUT = ("device-cpu.so", "transport-ucx.so", "collective-mpi.so")
ORIGINS = ("$ORIGIN/../../prefix/lib", "$ORIGIN/../../../../prefix/lib")  # of a binary in build/tools or plugins, of one in build/tests/support/*
BUILD = """. tools/packages.sh
packages_install build data >&2
folder=$1; shift
build_folder "$folder" -Dbuildtype=release -Dtests=disabled -Dcuda=enabled -Dkeras_files=disabled -Dimages=disabled "$@" >&2
ninja -C "$folder" all tests/support/run-device/run-device tests/support/run-device/run-on-device >&2"""


def output_of(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def commit_of(root):
    """The commit, and a `+` where the tree is not quite that; None without git."""
    try:
        commit = output_of("git", "-C", root, "rev-parse", "HEAD")
        return commit + "+" * bool(output_of("git", "-C", root, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.CalledProcessError):
        return None


def run_group(command, folder):
    """The exit code. Compilers end with this program."""
    with subprocess.Popen(command, cwd=folder, stdout=sys.stderr, start_new_session=True) as process:
        try:
            return process.wait()
        except BaseException:
            end_group(process)
            raise


def copy_library(prefix, pc_name, package, name):
    """Headers, and the library by the name that programs ask for; no links, which not every way of copying keeps."""
    files = output_of("dpkg", "-L", package).splitlines()
    for path in files:
        if path.startswith("/usr/include/") and path.endswith(".h"):
            below = re.sub(r"^/usr/include/([a-z0-9_]+-linux-gnu[a-z0-9]*/)?", "", path)
            target = os.path.join(prefix, "include", below)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(path, target)
    real = os.path.realpath(next(path for path in files if os.path.basename(path) == "lib%s.so" % name))
    soname = output_of("sh", "-c", 'objdump -p "$1" | sed -n "s/ *SONAME *//p"', "sh", real)
    shutil.copy(real, os.path.join(prefix, "lib", soname))
    version = output_of("dpkg-query", "-W", "-f", "${Version}", package)
    with open(os.path.join(prefix, "lib", "pkgconfig", pc_name + ".pc"), "w", encoding="utf-8") as file:
        file.write("prefix=${pcfiledir}/../..\nName: %s\nDescription: carried along\nVersion: %s\n"
                   "Libs: ${prefix}/lib/%s\nCflags: -I${prefix}/include\n" % (
                       pc_name, re.match(r"(\d+:)?([\d.]+)", version)[2], soname))
    return version


def copy_prefix(folder):
    prefix = os.path.join(folder, "prefix")
    for sub in ("include", "lib/pkgconfig"):
        os.makedirs(os.path.join(prefix, sub))
    return {package: copy_library(prefix, pc_name, package, name) for pc_name, (package, name) in LIBRARIES.items()}


def copy_binaries(built, folder):
    """Stripped; returns the newest version of glibc that one of them asks for."""
    target = os.path.join(folder, "build")
    plugins = sorted(name for name in os.listdir(os.path.join(built, "plugins"))
                     if name.endswith(".so") and name not in LEFT_OUT)
    names = [*PROGRAMS, *(name for name in OPTIONAL if os.path.exists(os.path.join(built, name))),
             *(os.path.join("plugins", name) for name in plugins)]
    needed = set()
    for name in names:
        path = os.path.join(target, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        subprocess.run(["strip", "-o", path, os.path.join(built, name)], check=True)
        needed |= {tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_(\d+\.\d+)", output_of("objdump", "-T", path))}
    return ".".join(map(str, max(needed)))


def copy_images(folder):
    """Of the files for training the first TRAINED images or labels, behind 8 bytes and for images two more numbers."""
    shutil.copytree(MNIST, folder)
    for name, head, each in (("train-images-idx3-ubyte.gz", 16, 28 * 28), ("train-labels-idx1-ubyte.gz", 8, 1)):
        with gzip.open(os.path.join(MNIST, name), "rb") as file:
            whole = file.read(head + TRAINED * each)
        with gzip.open(os.path.join(folder, name), "wb") as file:
            file.write(whole[:4] + struct.pack(">I", TRAINED) + whole[8:])


def copy_models(root, folder):
    shutil.copytree(os.path.join(root, "models"), os.path.join(folder, "models"))
    for name in MODELS:
        with gzip.open(os.path.join(root, "tests", "data", "models", name + ".json.gz"), "rb") as packed, \
                open(os.path.join(folder, "models", name + ".json"), "wb") as file:
            shutil.copyfileobj(packed, file)
    shutil.copy(os.path.join(root, "lab", "bench", "gpt.json"), os.path.join(folder, "models"))
    for name, layers in SMALL_MODELS.items():
        with open(os.path.join(folder, "models", name + ".json"), "w", encoding="utf-8") as file:
            json.dump({"class_name": "Sequential", "config": {"layers": [{"class_name": kind, "config": config} for kind, config in layers]}}, file)
    with open(os.path.join(folder, "letters.txt"), "w", encoding="utf-8") as file:
        file.write(bench_lines.random_letters(20000))


def record_cpu(lockstep, folder):
    os.makedirs(os.path.join(folder, "cpu"))
    for name, (words, weights) in CPU_RUNS.items():
        arguments = [*words, "--steps=%d" % CPU_STEPS, "--shuffle=off", "--validation=off", "--seed=0"]
        arguments += [] if any(word.startswith("--batch=") for word in words) else ["--batch=128"]
        given = any(word.startswith("--dataset=") for word in words)
        more = [] if given else ["--dataset=fashion-mnist:dir=" + os.path.join(folder, "fashion-mnist")]
        more += ["--initial-weights=" + os.path.join(REFERENCE, weights)] if weights else []
        with tempfile.TemporaryDirectory() as scratch:
            report = os.path.join(scratch, "report.json")
            subprocess.run([lockstep, "train", "--quiet", "--device=cpu", "--replicas=1", "--report=" + report, *more,
                            *(word.replace("{kit}", folder) for word in arguments)],
                           check=True, env=dict(os.environ, LOCKSTEP_MODEL_PATH=os.path.join(folder, "models")))
            with open(report, encoding="utf-8") as file:
                losses = json.load(file)["losses"]
        with open(os.path.join(folder, "cpu", name + ".json"), "w", encoding="utf-8") as file:
            json.dump({"arguments": arguments, "weights": weights, "losses": losses}, file, indent=1)


def size_of(folder):
    return sum(os.path.getsize(os.path.join(path, name)) for path, _, names in os.walk(folder) for name in names)


def pack(root, folder, gpu_archs, nvidia_root):
    """Makes the folder anew; the build lies beside it."""
    if os.path.exists(folder) and os.listdir(folder) and not os.path.exists(os.path.join(folder, "pack.json")):
        raise NotRun("%s is there and was not made by this script" % folder)
    built = folder + "-build"
    code = run_group(["sh", "-euc", BUILD, "sh", built, "-Dgpu_archs=" + gpu_archs, "-Dnvidia_root=" + nvidia_root,
                      "-Dc_link_args=-Wl,-rpath," + ":".join(ORIGINS)], root)
    if code:
        raise NotRun("packages or build: exit code %d; what they said is above" % code)
    part = folder + ".part"
    shutil.rmtree(part, ignore_errors=True)
    os.makedirs(part)
    say("copying binaries, data and libraries")
    glibc = copy_binaries(built, part)
    copy_images(os.path.join(part, "fashion-mnist"))
    copy_models(root, part)
    about = {"machine": platform.machine(), "glibc": glibc, "packages": copy_prefix(part), "gpu_archs": gpu_archs, "commit": commit_of(root)}
    say("training on the CPU, whose losses are taken along")
    record_cpu(os.path.join(built, "tools", "lockstep"), part)
    with open(os.path.join(part, "pack.json"), "w", encoding="utf-8") as file:
        json.dump(about, file, indent=1)
    shutil.rmtree(folder, ignore_errors=True)
    os.rename(part, folder)
    tracked = output_of("git", "-C", root, "ls-files", "-z").split("\0")
    whole = size_of(folder) + sum(os.path.getsize(os.path.join(root, name)) for name in tracked if os.path.isfile(os.path.join(root, name)))
    print("%s: %.1f MB, with the source %.1f MB, for %s with glibc %s or newer; run there:\n    tools/gpu-check --stage=find --out=DIR --kit=%s" % (
        folder, size_of(folder) / 1e6, whole / 1e6, about["machine"], glibc, os.path.relpath(folder)))
    if whole > MOST_BYTES:
        raise NotRun("kit and source are more than the %.1f MB that a visit may bring along" % (MOST_BYTES / 1e6))
