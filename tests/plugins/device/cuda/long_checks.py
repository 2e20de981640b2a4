#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Device `cuda` on the fake, which is NOT A GPU: what takes too long for each day.

usage: long_checks.py orders SOURCE FOLDER | long_checks.py mutants SOURCE FOLDER [NAME...] | long_checks.py fit SOURCE

orders   The device suite under AddressSanitizer and UndefinedBehaviorSanitizer, with threads of kernels forwards, backwards and in random
         orders, each with ten seeds of the streams' order. FOLDER keeps the build.
mutants  Builds a copy of SOURCE in FOLDER with each patch of tests/support/cuda-fake/mutants in turn, and runs what the patch names with
         `run:`. All of it must pass without a patch, and something must fail with each: else the fake does not find such a mistake.
fit      Whether the patches fit the source as it is, which takes no time: so a patch is renewed with what it changes.
"""
import concurrent.futures
import datetime
import os
import pathlib
import shutil
import subprocess
import sys
import time

SEEDS = range(1, 11)
RUN_SECONDS = 900  # one suite under sanitizers on a busy machine
SANITIZERS = {"ASAN_OPTIONS": "abort_on_error=1:detect_stack_use_after_return=1:intercept_tls_get_addr=0",
              "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}
FAKE = "tests/support/cuda-fake"
PROGRAMS = {"run-device": "tests/support/run-device/run-device", "test-cuda-normalization": "tests/plugins/device/cuda/test-cuda-normalization",
            "test_replica_input": "tests/core/replica/test_replica_input"}
FOR_SUITE = [FAKE + "/cuda-engine.so", FAKE + "/device-cuda.so", "plugins/device-reference.so", PROGRAMS["run-device"]]


def ninja(build, targets):
    """The output of a build that failed; None: it is done."""
    done = subprocess.run(["ninja", "-C", build, *targets], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return "\n".join(done.stdout.splitlines()[-30:]) if done.returncode else None


def make_build(source, build, options):
    if not (build / "build.ninja").exists():
        subprocess.run(["meson", "setup", build, source, "-Dbuildtype=debugoptimized", "-Dcuda=disabled", "-Dtests=enabled", *options],
                       check=True, stdout=subprocess.DEVNULL)


def environment_of(source, build, settings):
    """With the plugins of the build, and nothing of the fake's settings but these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_FAKE_", "LOCKSTEP_"))}
    return kept | {"LOCKSTEP_PLUGIN_PATH": f"{build / FAKE}:{build / 'plugins'}", "LOCKSTEP_PROGRAM": str(build / "tools/lockstep"),
                   "LOCKSTEP_CUDA_FAKE": str(build / FAKE), "LOCKSTEP_NCCL_FAKE": str(build / "tests/support/nccl-fake"),
                   "LOCKSTEP_CUDA_BUILT": "false", "LOCKSTEP_MODEL_PATH": str(source / "models"), "CK_TIMEOUT_MULTIPLIER": "5",
                   "LSAN_OPTIONS": f"suppressions={source / 'tests/lsan.supp'}:print_suppressions=0"} | SANITIZERS | settings


def run(source, build, line):
    """Runs `NAME=VALUE... PROGRAM ARGUMENT...`, or a test of tests/programs as `unittest FILE.CLASS.TEST`: (whether it passed, its last
    lines)."""
    words = line.split()
    settings = dict(word.split("=", 1) for word in words if word.startswith("CUDA_FAKE_"))
    program, *arguments = words[len(settings):]
    command = [build / PROGRAMS[program]] if program in PROGRAMS else [sys.executable, "-m", "unittest"]
    try:
        done = subprocess.run([*command, *arguments], env=environment_of(source, build, settings), cwd=source / "tests/programs",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=RUN_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False, f"no end after {RUN_SECONDS} s"
    if done.returncode == 77:
        sys.exit(f"{line}: skipped, which shows nothing:\n{done.stdout}")
    return done.returncode == 0, "\n".join(done.stdout.splitlines()[-5:])


def orders(source, folder):
    make_build(source, folder, ["-Db_sanitize=address,undefined", "-Db_lundef=false"])
    failure = ninja(folder, FOR_SUITE)
    if failure:
        sys.exit(failure)

    def suite(pair):
        seed, order = pair
        start = time.monotonic()
        passed, said = run(source, folder, f"CUDA_FAKE_DEVICES=2 CUDA_FAKE_STREAMS=random:{seed} CUDA_FAKE_THREADS="
                           + (f"random:{seed}" if order == "random" else order) + " run-device cuda:arena=off")
        print(f"{'passed' if passed else 'FAILED'}: threads {order}, seed {seed}, {time.monotonic() - start:.0f} s: "
              + (said.splitlines() or ["nothing"])[-1], flush=True)
        if not passed:
            print(said, flush=True)
        return passed

    start = time.monotonic()
    pairs = [(seed, order) for seed in SEEDS for order in ("forward", "backward", "random")]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        passed = sum(pool.map(suite, pairs))
    print(f"{datetime.date.today()}: {passed} of {len(pairs)} orders passed in {time.monotonic() - start:.0f} s")
    return passed == len(pairs)


def copy_source(source, to):
    """Without what lies at its top beside the source: repositories, builds."""
    def left_out(folder, names):
        top = pathlib.Path(folder) == source
        return [name for name in names if top and name.startswith((".", "build")) or os.path.isdir(os.path.join(folder, name, "meson-private"))]
    shutil.copytree(source, to, symlinks=True, ignore=left_out, dirs_exist_ok=True)


def patch(source, file, *options):
    done = subprocess.run(["patch", "--strip=1", "--silent", "--batch", "--no-backup-if-mismatch", "--reject-file=-", "--input=" + str(file), *options],
                          cwd=source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.exit(f"{file} does not fit the source any more. Make that mistake anew, or one of its kind:\n{done.stdout}")


def patches(source, names=()):
    if not shutil.which("patch"):
        print("SKIP: the program `patch` (package patch) is not here")
        sys.exit(77)
    files = sorted(file for file in (source / FAKE / "mutants").glob("*.patch") if not names or file.stem in names)
    return files or sys.exit("there are no patches")


def fit(source):
    files = patches(source)
    for file in files:
        patch(source, file, "--dry-run")
    print(f"{len(files)} mutants fit")
    return True


def lines_of(file):
    text = file.read_text(encoding="utf-8").split("\n--- ")[0]
    return [line.removeprefix("run: ") for line in text.splitlines() if line.startswith("run: ")]


def mutants(source, folder, names):
    files = patches(source, names)
    copy, build = folder / "source", folder / "build"
    copy_source(source, copy)
    make_build(copy, build, [])
    known = subprocess.run(["ninja", "-C", build, "-t", "targets", "all"], stdout=subprocess.PIPE, text=True, check=True).stdout
    plugins = [name for name in (line.split(":")[0] for line in known.splitlines()) if name.startswith("plugins/") and name.endswith(".so")]
    nccl = ["tests/support/nccl-fake/collective-nccl.so", "tests/support/nccl-fake/libnccl-fake.so"]
    targets = FOR_SUITE + plugins + list(PROGRAMS.values()) + ["tools/lockstep"] + nccl
    failure = ninja(build, targets)
    if failure:
        sys.exit(failure)
    for line in sorted({line for file in files for line in lines_of(file)}):
        passed, said = run(copy, build, line)
        if not passed:
            sys.exit(f"{line}: fails without a mutant:\n{said}")
    survived = 0
    for file in files:
        patch(copy, file)
        failure = ninja(build, targets)
        if failure:
            sys.exit(f"{file.name} does not compile:\n{failure}")
        found = [(line, said) for line in lines_of(file) for passed, said in [run(copy, build, line)] if not passed]
        patch(copy, file, "--reverse")
        survived += not found
        print(f"{'found' if found else 'SURVIVED'}: {file.stem}" + "".join(f"\n  {line}\n    " + said.replace("\n", "\n    ") for line, said in found),
              flush=True)
    print(f"{datetime.date.today()}: {len(files) - survived} of {len(files)} mutants found")
    return not survived


def main():
    what, source = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    if what == "fit":
        return fit(source)
    folder = pathlib.Path(sys.argv[3]).resolve()
    return orders(source, folder) if what == "orders" else mutants(source, folder, sys.argv[4:])


sys.exit(0 if main() else 1)
