# SPDX-License-Identifier: Apache-2.0
"""Slurm on this machine, with two nodes that are two daemons: slurmctld, two slurmd and munged, everything in a folder of its
own, on ports of its own. Needs root and the Debian packages slurm-wlm and munge.

    with Slurm(folder) as slurm:
        done = slurm.run("srun", "-N2", "-n4", "hostname")
"""
import os
import shutil
import socket
import subprocess
import time

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "sinfo", "unshare", "mount")
SECONDS = 30  # to start

CONFIGURATION = """ClusterName=test
SlurmctldHost=localhost
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/%n
SlurmdPidFile={folder}/%n.pid
SlurmdLogFile={folder}/%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
ReturnToService=2
KillWait=2
NodeName=n[1-2] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{ports[1]}-{ports[2]}] CPUs=4 RealMemory=1000
PartitionName=p Nodes=n[1-2] Default=YES OverSubscribe=FORCE:4 MaxTime=INFINITE State=UP
"""


def missing():
    """Why Slurm cannot run here, or None."""
    if os.geteuid() != 0:
        return "Slurm's daemons are started as root only"
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    lacking = [name for name in PROGRAMS if not shutil.which(name, path=path)]
    if lacking:
        return f"{', '.join(lacking)} not found (packages slurm-wlm and munge)"
    if subprocess.run(["unshare", "--mount", "true"], stderr=subprocess.DEVNULL).returncode:
        return "no mount namespace can be made"
    return None


def free_ports(count):
    """`count` ports in a row that nobody has, below those that systems give to clients."""
    for first in range(21000 + os.getpid() % 1000 * 5, 32000, count):
        sockets = []
        try:
            for port in range(first, first + count):
                sockets.append(socket.socket())
                sockets[-1].bind(("127.0.0.1", port))
            return list(range(first, first + count))
        except OSError:
            pass
        finally:
            for one in sockets:
                one.close()
    raise OSError("no free ports")


class Slurm:
    def __init__(self, folder):
        self.folder = folder
        self.daemons = []
        self.environment = dict(os.environ, SLURM_CONF=os.path.join(folder, "slurm.conf"),
                                PATH=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
        for name in [name for name in self.environment if name.startswith("SLURM_") and name != "SLURM_CONF"]:
            del self.environment[name]

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, text, mode=0o600):
        with open(self.path(name), "w") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text)

    def start(self, *command):
        with open(self.path(os.path.basename(command[0]) + f"-{len(self.daemons)}.out"), "w") as out:
            self.daemons.append(subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=out,
                                                 stderr=subprocess.STDOUT, start_new_session=True))

    # Its names of nodes are names of this host, for the daemons and what they start alone.
    def start_with_names(self, *command):
        self.start("unshare", "--mount", "sh", "-c", f'mount --bind {self.path("hosts")} /etc/hosts && exec "$@"', "sh", *command)

    def __enter__(self):
        try:
            self.begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def begin(self):
        os.chmod(self.folder, 0o755)
        for name in ("munge", "state", "n1", "n2"):
            os.mkdir(self.path(name), 0o755)
        self.write("munge/key", os.urandom(64).hex())
        with open("/etc/hosts") as file:
            self.write("hosts", file.read() + "\n127.0.0.1 n1 n2\n", 0o644)
        self.write("slurm.conf", CONFIGURATION.format(folder=self.folder, ports=free_ports(3)), 0o644)
        self.start("munged", "--foreground", "--force", f"--socket={self.path('munge/socket')}", f"--key-file={self.path('munge/key')}",
                   f"--pid-file={self.path('munge/pid')}", f"--seed-file={self.path('munge/seed')}", f"--log-file={self.path('munge/log')}")
        self.wait_for("munged", lambda: os.path.exists(self.path("munge/socket")))
        self.start("slurmctld", "-D", "-c")
        for node in ("n1", "n2"):
            self.start_with_names("slurmd", "-D", "-N", node)
        self.wait_for("the nodes", lambda: self.run("sinfo", "-h", "-N", "-o", "%T").stdout.split() == ["idle", "idle"])

    def wait_for(self, what, is_there):
        end = time.monotonic() + SECONDS
        while not is_there():
            for daemon in self.daemons:
                if daemon.poll() is not None:
                    raise RuntimeError(f"{daemon.args[0]} ended with {daemon.returncode}: {self.logs()}")
            if time.monotonic() > end:
                raise RuntimeError(f"{what} did not start in {SECONDS} s: {self.logs()}")
            time.sleep(0.1)

    def logs(self):
        text = ""
        for name in sorted(os.listdir(self.folder)):
            if name.endswith((".log", ".out")):
                with open(self.path(name), errors="replace") as file:
                    text += f"\n{name}: {file.read()[-1500:]}"
        return text

    # The names of the nodes are those of this host here, too.
    def run(self, *command, timeout=60, environment=None, cwd=None):
        variables = dict(self.environment, **(environment or {}))
        return subprocess.run(["unshare", "--mount", "sh", "-c", f'mount --bind {self.path("hosts")} /etc/hosts && exec "$@"', "sh", *command],
                              env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=timeout, cwd=cwd)

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            if daemon.poll() is None:
                daemon.terminate()
                try:
                    daemon.wait(10)
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()
