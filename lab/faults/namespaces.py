# SPDX-License-Identifier: Apache-2.0
"""Hosts on this machine: a network namespace each, joined by cables (veth) to a bridge in one more. Needs root and ip (iproute2).

    with Hosts(4, relayed=(1,)) as hosts:
        subprocess.run([*hosts.words(2), "ping", "-c1", hosts.address(0)])
        hosts.cut(2)
        hosts.relays[1].seconds = 0.2  # from now on
"""
import array
import collections
import ctypes
import fcntl
import itertools
import os
import select
import shutil
import socket
import struct
import subprocess
import threading
import time

CLONE_NEWNET = 0x40000000
SIOCETHTOOL = 0x8946
# What a network card would do at the end of a cable: checksums, and frames that are larger than the cable takes.
OFFLOADS = {"checksums": 0x17, "scatter and gather": 0x19, "TCP segments": 0x1F, "segments": 0x24}
PACKET_OUTGOING = 4
numbers = itertools.count()


def missing():
    """Why there can be none here, or None."""
    if os.geteuid():
        return "network namespaces are made by root only"
    if not shutil.which("ip"):
        return "ip is not here (package iproute2)"
    try:
        with Hosts(1):
            return None
    except OSError as error:
        return str(error)


def inside(namespace, function):
    """Runs a function in a network namespace, by a thread that ends with it."""
    result = []

    def enter():
        with open(f"/run/netns/{namespace}") as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
                result.append(OSError(ctypes.get_errno(), "setns"))
                return
        try:
            result.append(function())
        except OSError as error:
            result.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if isinstance(result[0], OSError):
        raise result[0]
    return result[0]


def switch_off_offloads(device):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for command in OFFLOADS.values():
            value = array.array("B", struct.pack("II", command, 0))
            fcntl.ioctl(any_socket, SIOCETHTOOL, struct.pack("16sP", device.encode(), value.buffer_info()[0]))


class Relay:
    """Between two cables: it hands on each frame `seconds` after it came, 0 in the beginning. `late` counts those that waited."""

    def __init__(self, namespace, ends):
        def open_end(device):
            end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))  # ETH_P_ALL
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
            end.bind((device, 0))
            return end

        self.seconds, self.late, self.over = 0, 0, False
        self.ends = inside(namespace, lambda: [open_end(device) for device in ends])
        self.threads = [threading.Thread(target=self.pump, args=pair, daemon=True) for pair in (self.ends, self.ends[::-1])]
        for thread in self.threads:
            thread.start()

    def pump(self, source, sink):
        waiting = collections.deque()
        while not self.over:
            pause = min(0.1, max(0, waiting[0][0] - time.monotonic())) if waiting else 0.1
            if select.select([source], [], [], pause)[0]:
                try:
                    frame, (_, _, kind, *_) = source.recvfrom(1 << 16)
                except OSError:
                    continue
                if kind != PACKET_OUTGOING:
                    waiting.append((time.monotonic() + self.seconds, frame))
                    self.late += self.seconds > 0
            while waiting and waiting[0][0] <= time.monotonic():
                frame = waiting.popleft()[1]
                try:
                    sink.send(frame)
                except OSError:  # the cable is out
                    pass

    def close(self):
        self.over = True
        for thread in self.threads:
            thread.join()
        for end in self.ends:
            end.close()


class Hosts:
    def __init__(self, count, relayed=()):
        self.name, self.count, self.made = f"ls{os.getpid()}n{next(numbers)}", count, []
        self.relays = {}
        try:
            self.make(self.name)
            self.run("-n", self.name, "link", "add", "bridge", "type", "bridge")
            self.run("-n", self.name, "link", "set", "bridge", "up")
            for i in range(count):
                self.add(i, i in relayed)
                if relayed:
                    inside(f"{self.name}h{i}", lambda: switch_off_offloads("eth0"))
        except BaseException:
            self.close()
            raise

    def make(self, name):
        self.run("netns", "add", name)
        self.made.append(name)

    def add(self, i, relayed):
        host = f"{self.name}h{i}"
        self.make(host)
        self.run("-n", self.name, "link", "add", f"port{i}", "type", "veth", "peer", "name", "eth0", "netns", host)
        if relayed:
            self.run("-n", self.name, "link", "set", f"port{i}", "up")
            self.run("-n", self.name, "link", "add", f"in{i}", "type", "veth", "peer", "name", f"out{i}")
            self.run("-n", self.name, "link", "set", f"out{i}", "up")
            self.run("-n", self.name, "link", "set", f"in{i}", "master", "bridge", "up")
            self.relays[i] = Relay(self.name, (f"port{i}", f"out{i}"))
        else:
            self.run("-n", self.name, "link", "set", f"port{i}", "master", "bridge", "up")
        self.run("-n", host, "address", "add", f"{self.address(i)}/24", "dev", "eth0")
        self.run("-n", host, "link", "set", "eth0", "up")
        self.run("-n", host, "link", "set", "lo", "up")

    @staticmethod
    def run(*words):
        done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")

    @staticmethod
    def address(i):
        return f"10.77.0.{i + 1}"

    def words(self, i):
        """What a command begins with that runs on host i. Its name is that of this machine; its /dev/shm and files, too."""
        return ["ip", "netns", "exec", f"{self.name}h{i}"]

    def cut(self, i):
        self.run("-n", self.name, "link", "set", f"port{i}", "down")

    def close(self):
        for relay in self.relays.values():
            relay.close()
        while self.made:
            subprocess.run(["ip", "netns", "delete", self.made.pop()], stderr=subprocess.DEVNULL, check=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
