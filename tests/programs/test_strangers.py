# SPDX-License-Identifier: Apache-2.0
"""Trainings beside a process of another user that does not know the secret: it keeps 1,000 connections open to every port of theirs, and
opens new ones as fast as it can. All of them go on within --join-deadline, and say how many strangers came.

usage: test_strangers.py [CLASS] [COUNT]
"""
import os
import signal
import socket
import subprocess
import sys
import time

from support import DONE, LOCKSTEP, TERMINATED, ProgramTest, has_checkpoint, main

COUNT = int(sys.argv.pop()) if sys.argv[-1].isdigit() else 2
JOIN_SECONDS = 20
MODEL = ("--model=mlp", "--dataset=synthetic:shape=28x28x1,classes=10,examples=300", "--threads=1", "--batch=60", "--validation=off",
         f"--join-deadline={JOIN_SECONDS}")
# As nobody, if it may. Reads ports from its input, a line at a time, until that ends; every second connection greets as a worker does.
FLOOD = r"""
import collections, os, select, socket, sys
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
held, ports, tries, greeting = collections.deque(), [], 0, b"LSTORE1\n" + bytes(32)
while True:
    if tries % 200 == 0 and select.select([sys.stdin], [], [], 0 if ports else None)[0]:
        line = sys.stdin.readline()
        if not line:
            break
        ports = [int(port) for port in line.split()]
        continue
    tries += 1
    stranger = socket.socket()
    stranger.setblocking(False)
    stranger.connect_ex(("127.0.0.1", ports[tries % len(ports)]))
    try:
        if tries // 4 % 2:
            stranger.send(greeting)
    except OSError:
        pass
    held.append(stranger)
    if len(held) > 1000:
        held.popleft().close()
print(tries)
"""


def ports_of(processes):
    """Where these processes listen."""
    own, found = set(), []
    for process in processes:
        folder = f"/proc/{process.pid}/fd"
        for name in os.listdir(folder):
            try:
                own.add(os.readlink(os.path.join(folder, name)))
            except OSError:  # it was closed in the meantime
                pass
    with open("/proc/net/tcp") as table:
        for line in table.readlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                found.append(int(fields[1].split(":")[1], 16))
    return found


class Strangers(ProgramTest):
    def setUp(self):
        super().setUp()
        self.flood = subprocess.Popen([sys.executable, "-c", FLOOD], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.processes, self.took = [], []
        self.addCleanup(self.end)

    def end(self):
        for process in [*self.processes, self.flood]:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.flood.stdout.close()
        self.flood.stdin.close()

    def send_flood_to(self, *ports):
        self.flood.stdin.write(" ".join(map(str, ports)) + "\n")
        self.flood.stdin.flush()

    def start(self, count, *more, servers=()):
        """By hand, with listening sockets that are there before the processes, as under `lockstep launch`: strangers wait there already."""
        listeners = [socket.create_server(("127.0.0.1", 0), backlog=4096) for _ in (0, *servers)]
        ports = [listener.getsockname()[1] for listener in listeners]
        self.send_flood_to(*ports)
        time.sleep(0.2)
        common = dict(os.environ, LOCKSTEP_WORLD_SIZE=str(count), LOCKSTEP_ADDRESS=f"127.0.0.1:{ports[0]}", LOCKSTEP_SECRET="a secret of this job",
                      LOCKSTEP_SERVERS=str(len(servers)), LOCKSTEP_SERVER_ADDRESSES=",".join(f"127.0.0.1:{port}" for port in ports[1:]))
        self.processes = []
        for number in range(count + len(servers)):
            server = number - count
            own = dict(LOCKSTEP_RANK=str(number if server < 0 else server), LOCKSTEP_ROLE="worker" if server < 0 else "server")
            listener = listeners[0] if number == 0 else listeners[1 + server] if server >= 0 else None
            if listener:
                own["LOCKSTEP_LISTEN_FD"] = str(listener.fileno())
            self.processes.append(subprocess.Popen([LOCKSTEP, "train", *MODEL, *more], env=dict(common, **own), cwd=self.folder, text=True,
                                                   pass_fds=[listener.fileno()] if listener else [], stdin=subprocess.DEVNULL,
                                                   stdout=subprocess.DEVNULL, stderr=open(self.path(f"{number}.log"), "w")))
        for listener in listeners:
            listener.close()

    def log(self, number):
        with open(self.path(f"{number}.log")) as file:
            return file.read()

    def codes(self):
        return [process.wait(4 * JOIN_SECONDS) for process in self.processes]

    def check_count(self, text):
        """That of the flood is in the log, in a few lines."""
        self.assertRegex(text, r"\d\d\d+ connections to 127\.0\.0\.1:\d+ were dropped, 0 of them had another secret")
        self.assertLess(text.count("dropped"), 12, text)

    def say(self, what):
        self.flood.stdin.close()
        tries = int(self.flood.stdout.read())
        self.assertGreater(tries, 1000)
        self.took.sort()
        print(f"{COUNT} {what} beside {tries} strangers: median {self.took[len(self.took) // 2]:.2f} s, at most {self.took[-1]:.2f} s")


class Starts(Strangers):
    def test_all_begin(self):
        for turn in range(COUNT):
            begin = time.monotonic()
            self.start(2)
            self.assertEqual(self.codes(), [DONE] * 2, self.log(0) + self.log(1))
            self.took.append(time.monotonic() - begin)
            self.check_count(self.log(0))
        self.say("starts")

    def test_servers_serve(self):
        for turn in range(COUNT):
            begin = time.monotonic()
            self.start(2, "--strategy=parameter-server", "--epochs=3", servers=(0, 1))
            self.assertEqual(self.codes(), [DONE] * 4, "".join(self.log(i) for i in range(4)))
            self.took.append(time.monotonic() - begin)
            for number in (2, 3):
                self.check_count(self.log(number))
        self.say("trainings with servers")


class TakesOver(Strangers):
    def await_it(self, happened):
        self.wait_for(happened, JOIN_SECONDS, said=lambda: self.log(1) + self.log(2))

    def test_the_others_go_on(self):
        for turn in range(COUNT):
            self.start(3, "--epochs=1000000", "--elastic=2:3", "--checkpoint-dir=" + self.path(f"checkpoints{turn}"), "--checkpoint-steps=10")
            folder = self.path(f"checkpoints{turn}")
            self.await_it(lambda: has_checkpoint(folder))
            ports = ports_of(self.processes)
            self.assertEqual(len(ports), 4)  # the store's, and one that each worker keeps for the case that it has to open one
            self.send_flood_to(*ports)
            time.sleep(1)
            self.processes[0].kill()
            begin = time.monotonic()
            self.await_it(lambda: "continuing after step" in self.log(1))
            self.took.append(time.monotonic() - begin)
            time.sleep(0.5)
            for process in self.processes[1:]:
                process.terminate()
            self.assertEqual(self.codes(), [-signal.SIGKILL, TERMINATED, TERMINATED], self.log(1) + self.log(2))
            self.check_count(self.log(1))
        self.say("takeovers")


if __name__ == "__main__":
    main()
