# SPDX-License-Identifier: Apache-2.0
"""The Lockstep side of tools/bench-train: runs `lockstep train` and reads its report."""
import json
import os
import socket
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Failed(Exception):
    """A run that did not end well; the text has its code and what it said last."""

    def __init__(self, text, code=None):
        super().__init__(text)
        self.code = code


def what_was_wrong(lines):
    errors = [line for line in lines if "error:" in line]
    return (errors or lines or ["it said nothing"])[-1]


def model_file(model):
    """Path of the model's JSON, which PyTorch's side reads too."""
    path = model if model.endswith(".json") else os.path.join(ROOT, "models", model + ".json")
    if not os.path.isfile(path):
        raise SystemExit("bench-train: there is no model %s (looked for %s)" % (model, path))
    return path


def read(path):
    with open(path) as file:
        return json.load(file)


def rate(report):
    """Images per second over all epochs but the first, which warms up."""
    measured = report["epochs"][1:]
    return sum(e["examples"] for e in measured) / sum(e["seconds"] for e in measured)


class Lockstep:
    """One configuration. `epochs` grows until the measured ones last about `seconds`."""

    def __init__(self, program, options, replicas, threads, seconds, device="cpu", strategy=None, more=()):
        self.program, self.options, self.replicas, self.threads, self.more = program, options, replicas, threads, list(more)
        self.strategy = strategy or (options.strategy if replicas > 1 else "one-device")
        self.device, self.seconds, self.epochs, self.environment, self.patience = device, seconds, 2, dict(os.environ), None
        self.open()

    def open(self):
        self.report = self.train(1)
        epoch = self.report["epochs"][-1]["seconds"]
        self.epochs = 1 + max(1, round(self.seconds / max(epoch, 1e-3)))

    def command(self, seed, report):
        return [self.program, "train", "--model=" + self.options.model, "--dataset=" + self.options.dataset,
                "--device=" + self.device, "--strategy=" + self.strategy,
                "--replicas=%d" % self.replicas, "--threads=%d" % self.threads,
                "--replica-batch=%d" % self.options.replica_batch, "--optimizer=" + self.options.optimizer,
                "--epochs=%d" % self.epochs, "--validation=off", "--seed=%d" % seed, "--quiet", "--report=" + report, *self.more]

    def train_at_once(self, seeds):
        """One process a seed, all at the same time; their reports."""
        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, "report%d.json" % i) for i in range(len(seeds))]
            commands = [self.command(seed, path) for seed, path in zip(seeds, paths)]
            processes = [subprocess.Popen(command, env=self.environment, stderr=subprocess.PIPE, text=True)
                         for command in commands]
            try:
                said = [process.communicate(timeout=self.patience)[1].strip().splitlines() for process in processes]
            except subprocess.TimeoutExpired:
                for process in processes:
                    process.kill()
                raise Failed("no end after %.0f s" % self.patience) from None
            for process, lines in zip(processes, said):
                if process.returncode:
                    raise Failed("exit code %d: %s" % (process.returncode, what_was_wrong(lines)), process.returncode)
            return [read(path) for path in paths]

    def train(self, seed):
        return self.train_at_once([seed])[0]

    def run(self, seed):
        self.report = self.train(seed)
        return rate(self.report)

    def run_as_workers(self, seed, count):
        """`count` workers with a replica each: processes that train together. The chief's rate is that of all."""
        with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            where = dict(LOCKSTEP_WORLD_SIZE=str(count), LOCKSTEP_ADDRESS="127.0.0.1:%d" % free.getsockname()[1])
            free.close()
            path = os.path.join(folder, "report.json")
            processes = [subprocess.Popen(self.command(seed, path), stderr=subprocess.PIPE, text=True,
                                          env=dict(self.environment, LOCKSTEP_RANK=str(rank), **where)) for rank in range(count)]
            said = [process.communicate()[1].strip().splitlines() for process in processes]
            for process, lines in zip(processes, said):
                if process.returncode:
                    raise Failed("exit code %d: %s" % (process.returncode, what_was_wrong(lines)), process.returncode)
            return rate(read(path))

    def run_at_once(self, seed, count):
        """Of `count` processes that know nothing of each other, together: what the machine gives to that many."""
        return sum(rate(report) for report in self.train_at_once([seed] * count))
