#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds nvcc, the headers and the libraries of CUDA: in a toolkit, in Debian's folders, or in NVIDIA's Python wheels.

find_cuda.py ROOT, where ROOT is meson's -Dnvidia_root= or empty. First hit wins, in this order: ROOT (a toolkit, or the
folder `nvidia` of wheels), CUDA_PATH, CUDA_HOME, the toolkit of the nvcc on PATH, /usr/local/cuda, the wheels that this
python sees, /usr. Prints one `name=value` a line; what is missing has an empty value, and `missing=` names it. NCCL, which
only the collective `nccl` uses, is found or not.
"""
import glob
import os
import re
import shutil
import subprocess
import sys

WHEELS = ("cu13", "cudnn", "nccl", "cuda_nvcc", "cuda_runtime", "cublas", "cu12")
PARTS = (  # name, header, library, the wheel that brings it; "": not needed by the device
    ("cudart", "cuda_runtime.h", "libcudart.so", "nvidia-cuda-runtime"),
    ("cublasLt", "cublasLt.h", "libcublasLt.so", "nvidia-cublas"),
    ("cudnn", "cudnn.h", "libcudnn.so", "nvidia-cudnn-cu13"),
    ("nccl", "nccl.h", "libnccl.so", ""),
)


def parts_of(root):
    """The root itself, and the wheels below it."""
    return [root] + [os.path.join(root, wheel) for wheel in WHEELS if os.path.isdir(os.path.join(root, wheel))]


def find_roots(wanted):
    """Every folder that may hold bin, include and lib."""
    roots = [wanted] if wanted else []
    roots += [os.environ[name] for name in ("CUDA_PATH", "CUDA_HOME") if os.environ.get(name)]
    on_path = shutil.which("nvcc")
    if on_path:
        roots.append(os.path.dirname(os.path.dirname(os.path.realpath(on_path))))
    roots.append("/usr/local/cuda")
    roots += [os.path.join(folder, "nvidia") for folder in sys.path if os.path.isdir(os.path.join(folder, "nvidia"))]
    roots.append("/usr")
    return [part for root in roots for part in parts_of(root)]


def first(candidates):
    return next((os.path.realpath(path) if path.endswith(".so") else path for path in candidates if os.path.exists(path)), "")


def find_header(roots, name):
    return first(os.path.join(root, folder, name) for root in roots
                 for folder in ("include", "include/x86_64-linux-gnu", "include/aarch64-linux-gnu"))


def find_library(roots, name):
    folders = ("lib64", "lib", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu")
    return first(path for root in roots for folder in folders
                 for path in [os.path.join(root, folder, name)] + sorted(glob.glob(os.path.join(root, folder, name + ".*"))))


def release_of(nvcc):
    """13000 for CUDA 13.0; 0 when nvcc does not say it."""
    try:
        text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
    except OSError:
        return 0
    found = re.search(r"release (\d+)\.(\d+)", text)
    return int(found[1]) * 1000 + int(found[2]) * 10 if found else 0


def soname_of(path):
    """libcudart.so.13 for libcudart.so.13.0.96: what the dynamic linker is asked for."""
    found = re.match(r"(lib\w+\.so\.\d+)", os.path.basename(path))
    return found[1] if found else os.path.basename(path)


def main():
    roots = find_roots(sys.argv[1] if len(sys.argv) > 1 else "")
    nvcc = first(os.path.join(root, "bin", "nvcc") for root in roots)
    includes, missing = [], []
    release = release_of(nvcc) if nvcc else 0
    if not release:
        missing.append("nvcc (nvidia-cuda-nvcc)")
    for name, header, library, package in PARTS:
        found, file = find_header(roots, header), find_library(roots, library)
        if package and not (found and file):
            missing.append(f"{name} ({package})")
        if found and os.path.dirname(found) not in includes:
            includes.append(os.path.dirname(found))
        print(f"{name}={file}")
        print(f"{name}_header={found}")
        print(f"{name}_name={soname_of(file)}")
    print(f"nvcc={nvcc}")
    print(f"release={release}")
    print(f"includes={';'.join(includes)}")
    print(f"missing={', '.join(missing)}")


if __name__ == "__main__":
    main()
