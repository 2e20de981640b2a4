# SPDX-License-Identifier: Apache-2.0
"""The Lockstep side of tools/bench-train: runs `lockstep train` and reads its report."""
import json
import os
import subprocess
import tempfile


class Failed(Exception):
    """A run that did not end well; the text has its code, its command and, where it was kept, what it said."""


class Lockstep:
    """One configuration. `epochs` grows until the measured ones last about `seconds`."""

    def __init__(self, program, options, replicas, threads, seconds, device="cpu"):
        self.program, self.options, self.replicas, self.threads = program, options, replicas, threads
        self.device, self.epochs = device, 2
        self.report = self.train(1)
        epoch = self.report["epochs"][-1]["seconds"]
        self.epochs = 1 + max(1, round(seconds / max(epoch, 1e-3)))

    def command(self, seed, report):
        return [self.program, "train", "--model=" + self.options.model, "--dataset=" + self.options.dataset,
                "--device=" + self.device, "--strategy=" + (self.options.strategy if self.replicas > 1 else "one-device"),
                "--replicas=%d" % self.replicas, "--threads=%d" % self.threads,
                "--replica-batch=%d" % self.options.replica_batch, "--optimizer=" + self.options.optimizer,
                "--epochs=%d" % self.epochs, "--validation=off", "--seed=%d" % seed, "--quiet", "--report=" + report]

    def start(self, command):
        code = subprocess.run(command).returncode
        if code:
            raise Failed("exit code %d from %s" % (code, " ".join(command)))

    def train(self, seed):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "report.json")
            self.start(self.command(seed, path))
            with open(path) as file:
                return json.load(file)

    def run(self, seed):
        """Images per second over all epochs but the first, which warms up."""
        self.report = self.train(seed)
        measured = self.report["epochs"][1:]
        return sum(e["examples"] for e in measured) / sum(e["seconds"] for e in measured)
