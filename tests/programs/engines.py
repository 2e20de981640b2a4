# SPDX-License-Identifier: Apache-2.0
"""What starts the workers of a training: one class for each engine, all used in the same way.

    engine = engines.OpenMPI()
    engine.missing()                          # why it cannot be used here, or None
    done = engine.run([LOCKSTEP, "train", ...], workers=4, folder=folder)
    done.codes, done.out, done.err            # exit codes: of each worker where they are started by hand, else of the engine alone

Each engine takes a command line as it is, and gives workers nothing but what real ones give. `close()` ends what an engine has
started for good (the daemons of Slurm).
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import slurm
from support import LOCKSTEP

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lab", "faults"))
import namespaces  # noqa: E402

SECONDS = 120
# What is left of an engine that started the tests.
FOREIGN = re.compile(r"^(LOCKSTEP_(RANK|WORLD_SIZE|ADDRESS|LOCAL_.*|ROLE|SERVERS|SECRET.*|JOB|LISTEN_FD|RESTART_COUNT)|TF_CONFIG|RANK|WORLD_SIZE|"
                     r"LOCAL_.*|MASTER_.*|PMIX?_.*|OMPI_.*|SLURM_.*|JOB_COMPLETION_INDEX|PET_.*|LWS_.*|TORCHELASTIC_.*)$")


def environment(**more):
    return dict({name: value for name, value in os.environ.items() if not FOREIGN.match(name)}, **more)


class Done:
    def __init__(self, codes, out, err):
        self.codes, self.out, self.err = codes, out, err

    @property
    def code(self):
        """The code of the first that failed, in the order of the workers; 0: none."""
        return next((code for code in self.codes if code), 0)


class Group:
    """Processes that are started together, and end together at the latest after so many seconds."""

    def __init__(self):
        self.processes = []
        self.texts = []
        self.readers = []

    def start(self, command, folder, variables):
        process = subprocess.Popen(command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, start_new_session=True)
        texts = ["", ""]
        self.processes.append(process)
        self.texts.append(texts)

        def read(which, stream):
            texts[which] = stream.read()

        for which, stream in enumerate((process.stdout, process.stderr)):
            self.readers.append(threading.Thread(target=read, args=(which, stream), daemon=True))
            self.readers[-1].start()

    def end(self, timeout):
        end, late = time.monotonic() + timeout, []
        for process in self.processes:
            try:
                process.wait(max(0.01, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                late.append(process)
        for process in late:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for reader in self.readers:
            reader.join(10)
        done = Done([process.returncode for process in self.processes], *("".join(part) for part in zip(*self.texts)))
        if late:
            raise TimeoutError(f"{len(late)} of {len(self.processes)} processes did not end in {timeout} s: {done.out[-2000:]}{done.err[-4000:]}")
        return done


class Engine:
    name = ""
    options = ()  # what a training over its workers needs

    def missing(self):
        return None

    def run(self, command, workers, folder, timeout=SECONDS, **variables):
        group = Group()
        for words, own in self.starts(command, workers, folder):
            group.start(words, folder, environment(**variables, **own))
        return group.end(timeout)

    def starts(self, command, workers, folder):
        """What is started: command lines, each with variables of its own."""
        raise NotImplementedError

    def close(self):
        pass


class Alone(Engine):
    """One process, no engine."""
    name = "one process"

    def starts(self, command, workers, folder):
        assert workers == 1
        yield command, {}


class Launch(Engine):
    name = "lockstep launch"

    def starts(self, command, workers, folder):
        yield [LOCKSTEP, "launch", f"-n{workers}", "--", *command], {}


class OpenMPI(Engine):
    name = "mpirun"

    def missing(self):
        return None if shutil.which("mpirun") else "mpirun is not here (package openmpi-bin)"

    def starts(self, command, workers, folder):
        yield ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(workers), *command], {}


class Torchrun(Engine):
    """LOCKSTEP_TORCHRUN names a torchrun that is not in PATH. Debian's (1.13) ends with a Python error under Python 3.11."""
    name = "torchrun"

    def __init__(self):
        self.program = os.environ.get("LOCKSTEP_TORCHRUN") or shutil.which("torchrun")

    def missing(self):
        if not self.program:
            return "torchrun is not here (PyPI: torch), and LOCKSTEP_TORCHRUN names none"
        done = subprocess.run([self.program, "--standalone", "--nproc_per_node=1", "--no_python", "true"], env=environment(),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=SECONDS)
        if done.returncode:
            return f"{self.program} cannot start processes with this version of Python: {done.stderr.strip().splitlines()[-1]}"
        return None

    def starts(self, command, workers, folder):
        yield [self.program, "--standalone", f"--nproc_per_node={workers}", "--no_python", *command], {}


class TfConfig(Engine):
    """By hand, as it is written for Keras."""
    name = "TF_CONFIG"

    def starts(self, command, workers, folder):
        tasks = {"worker": [f"localhost:{port}" for port in slurm.free_ports(workers)]}
        for i in range(workers):
            yield command, {"TF_CONFIG": json.dumps({"cluster": tasks, "task": {"type": "worker", "index": i}})}


class Slurm(Engine):
    """Two nodes, which are two daemons. `srun` starts workers by Slurm's own variables, without PMIx."""
    name = "srun"

    def __init__(self, *distribution):
        self.distribution = distribution or ("-N2",)
        self.slurm = self.scratch = None

    def missing(self):
        return slurm.missing()

    def run(self, command, workers, folder, timeout=SECONDS, **variables):
        if not self.slurm:
            self.scratch = tempfile.TemporaryDirectory(prefix="lockstep-slurm-")
            self.slurm = slurm.Slurm(self.scratch.name)
            self.slurm.__enter__()
        quiet = {name: value for name, value in environment(**variables).items() if not name.startswith("SLURM_") and name != "PATH"}
        done = self.slurm.run("srun", *self.distribution, f"-n{workers}", *command, timeout=timeout, cwd=folder,
                              environment=dict(quiet, LOCKSTEP_SECRET_FILE=secret(folder)))
        return Done([done.returncode], done.stdout, done.stderr)

    def close(self):
        if self.slurm:
            self.slurm.__exit__()
            self.scratch.cleanup()
            self.slurm = None


class Hosts(Engine):
    """Each worker on a host of its own: a network namespace. They are started by hand."""
    name = "hosts"
    options = ("--network=private",)

    def __init__(self):
        self.hosts = None

    def missing(self):
        return namespaces.missing()

    def run(self, command, workers, folder, timeout=SECONDS, **variables):
        with namespaces.Hosts(workers) as self.hosts:
            return super().run(command, workers, folder, timeout, **variables)

    def starts(self, command, workers, folder):
        for i in range(workers):
            yield [*self.hosts.words(i), *command], {
                "LOCKSTEP_RANK": str(i), "LOCKSTEP_WORLD_SIZE": str(workers), "LOCKSTEP_SECRET_FILE": secret(folder),
                "LOCKSTEP_ADDRESS": f"{self.hosts.address(0)}:29400"}


def secret(folder):
    """A file with the secret of workers that can be reached from outside."""
    path = os.path.join(folder, "lockstep.secret")
    if not os.path.exists(path):
        subprocess.run([LOCKSTEP, "launch", "--make-secret=" + path], check=True, stdout=subprocess.DEVNULL)
    return path


ALL = (Launch, OpenMPI, Torchrun, TfConfig, Slurm, Hosts)
