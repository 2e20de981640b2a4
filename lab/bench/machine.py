# SPDX-License-Identifier: Apache-2.0
"""What this machine is, and what else runs on it while a benchmark measures."""
import contextlib
import os
import platform
import subprocess
import sys
import time


def describe():
    """The processor's name, how many this process may use, and the system."""
    with open("/proc/cpuinfo") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return "%s, %d processors, Linux %s, %s" % (names[0] if names else "unknown processor", len(os.sched_getaffinity(0)),
                                                platform.release(), system())


def bfloat16_unit():
    """What this processor multiplies bfloat16 by, the faster of two: "amx_bf16", "avx512_bf16" or None."""
    with open("/proc/cpuinfo") as file:
        flags = next((line.split(":", 1)[1].split() for line in file if line.startswith("flags")), [])
    return next((unit for unit in ("amx_bf16", "avx512_bf16") if unit in flags), None)


@contextlib.contextmanager
def busy(count):
    """So many other processes that compute without end."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def system():
    try:
        with open("/etc/os-release") as file:
            named = dict(line.strip().split("=", 1) for line in file if "=" in line)
        return named.get("PRETTY_NAME", "unknown system").strip('"')
    except OSError:
        return "unknown system"


def processor_times():
    with open("/proc/stat") as file:
        return [int(word) for word in file.readline().split()[1:9]]


idle_seconds = 20.0  # the longest wait; 0 or less: none, and whatever runs is no disturbance


def wait_until_idle(limit_seconds=None):
    """Waits for other programs to end, so that they do not spoil a window; False when they go on."""
    limit_seconds = idle_seconds if limit_seconds is None else limit_seconds
    if limit_seconds <= 0:
        return True
    deadline = time.monotonic() + limit_seconds
    while time.monotonic() < deadline:
        before = processor_times()
        time.sleep(0.4)
        spent = [after - first for first, after in zip(before, processor_times())]
        if spent[3] + spent[4] >= 0.9 * sum(spent):
            return True
    return False


class Theft:
    """What the host of a virtual machine takes of its processors for others in the meantime (`steal` in /proc/stat)."""
    ALLOWED = 0.02  # of all processor time; less is the noise of the clock's ticks

    def __init__(self):
        self.before = processor_times()

    def spoils(self):
        spent = [after - first for first, after in zip(self.before, processor_times())]
        return spent[7] > self.ALLOWED * sum(spent)
