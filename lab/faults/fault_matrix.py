#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What happens when a worker, the chief or a parameter server of a training is lost, at every moment of the training; and when a
worker or the chief of an elastic one is.

    fault_matrix.py --lockstep=build/tools/lockstep                       the whole matrix, once
    fault_matrix.py --lockstep=... --rounds=5 --update=docs/results/faults.md      five times, into a page
    fault_matrix.py --lockstep=... --only=kill,reduction                  the cells that have all these words
    fault_matrix.py --lockstep=... --calm=3600 --workers=8      no fault for an hour, on cores that are busy with other things

Each cell trains with several workers, strikes one process, and then looks: how all ended (the exit code, and whether the
survivors name the one that was struck, and where it was), how long that took, and what was left behind (processes, shared
memory, files that cannot be read). Faults: `kill` (SIGKILL) and `stop` (SIGSTOP) under `lockstep launch`; `cut` takes down the
cable of a host, and `delay` holds every frame on that cable for 200 ms from that moment on, both ways, which nobody may notice.
These hosts are network namespaces (root and ip are needed), and processes on them are started by hand. Moments: while the
processes meet (start), in forward, in the reduction (a model of many parameters and batch 1), while a checkpoint is written, and
at the end of an epoch (in the validation). When exactly within such a moment is drawn from --seed, the cell and the round.

Exit codes: 0 every cell as expected, 1 one was not, 2 usage, 77 nothing could be run (no root for `cut` and `delay`, say).
"""
import argparse
import json
import os
import random
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import uuid

import namespaces

VICTIMS = ("chief", "worker", "server", "elastic-chief", "elastic-worker")
MOMENTS = ("start", "forward", "reduction", "checkpoint", "epoch")
FAULTS = ("kill", "stop", "cut", "delay")
PEER_LOST = 5
UNAVAILABLE = 4  # also of a process whose network device has gone before it was opened
WAIT = 60  # seconds for what must happen before a fault
DELAY_SECONDS = 0.2
RESTARTED_STEPS = 300  # and after a server was started again
SERVER_DEADLINE = 4  # seconds for which workers wait for a server, and it for them
SERVER_SILENCE = 12  # until the kernel of a server that is cut off gives its connections up
SAME_LOSS = 1e-3  # of trainings whose sums are added in another order from some step on
DELAYED_STEPS = 6  # that a training does after the delay began: each takes seconds then
HEARD_SECONDS = 1.2  # after the first step: every worker has heard of it from all others by then
PORT = 29400



def wide(units):
    """Wide layers: a step with one example is nearly all reduction."""
    return {"class_name": "Sequential", "config": {"name": "wide", "layers": [
        {"class_name": "InputLayer", "config": {"batch_input_shape": [None, units], "dtype": "float32", "name": "input"}},
        {"class_name": "Dense", "config": {"name": "dense", "units": units, "activation": "relu"}},
        {"class_name": "Dense", "config": {"name": "dense_1", "units": units, "activation": "relu"}},
        {"class_name": "Dense", "config": {"name": "dense_2", "units": 10}}]}, "keras_version": "2.15.0", "backend": "tensorflow"}


def progress(text):
    print(text, file=sys.stderr, flush=True)


def wait_until(what, seconds=WAIT):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.01)
    return None


class Failed(Exception):
    """A cell that is not as it must be."""


# ---- Processes ----

class Output:
    """Lines of a process, with their times, read beside."""

    def __init__(self, stream):
        self.lines, self.stream = [], stream
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        for line in self.stream:
            self.lines.append((time.monotonic(), line.rstrip("\n")))

    def find(self, pattern, begin=0):
        for at, line in self.lines[begin:]:
            if re.search(pattern, line):
                return at, line
        return None

    def text(self):
        return "\n".join(line for _, line in self.lines)


def environment_of(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def marked(mark):
    return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and mark.encode() in environment_of(pid)]


def variable(pid, name):
    return next((text.split("=", 1)[1] for text in map(bytes.decode, environment_of(pid)) if text.startswith(name + "=")), None)


class Job:
    """The processes of a training. They bear a mark in their environment, by which they are found, with all that they start."""

    def __init__(self, cell):
        self.mark = "LOCKSTEP_FAULT_MARK=" + uuid.uuid4().hex
        self.cell = cell
        self.processes, self.outs, self.errs = [], [], []

    def start(self, command, folder, **variables):
        name, value = self.mark.split("=")
        process = subprocess.Popen(command, cwd=folder, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=dict(os.environ, **variables, **{name: value}))
        self.processes.append(process)
        self.outs.append(Output(process.stdout))
        self.errs.append(Output(process.stderr))

    def find_victim(self):
        """The process that is to be struck, once it is there."""
        def look():
            for pid in marked(self.mark):
                try:
                    program = os.readlink(f"/proc/{pid}/exe")
                except OSError:
                    continue
                if os.path.basename(program) == "lockstep" and variable(pid, "LOCKSTEP_RANK") == str(self.cell.number) \
                        and variable(pid, "LOCKSTEP_ROLE") == self.cell.role:
                    return pid
            return None
        pid = wait_until(look)
        if not pid:
            raise Failed("the process that is to be struck has not appeared")
        return pid

    def has_ended(self):
        return all(process.poll() is not None for process in self.processes)

    def end(self, seconds):
        limit = time.monotonic() + seconds
        for process in self.processes:
            try:
                process.wait(max(0.01, limit - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise Failed(f"hangs: not ended after {seconds:g} s: {self.everything()[-1500:]}") from None
        for output in self.outs + self.errs:
            output.thread.join(5)

    def everything(self):
        return "\n".join(output.text() for output in self.errs)

    def close(self):
        for process in self.processes:
            process.kill()
        for pid in marked(self.mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass


class Launched(Job):
    """A training by `lockstep launch`."""

    def __init__(self, arguments, cell, folder, words):
        super().__init__(cell)
        self.start([arguments.lockstep, "launch", f"-n{arguments.workers}", f"--servers={cell.servers}",
                    f"--restart={int(cell.survives and not cell.elastic)}", "--", *words], folder)

    def strike(self):
        os.kill(self.find_victim(), signal.SIGKILL if self.cell.fault == "kill" else signal.SIGSTOP)

    def find(self, pattern):
        return self.outs[0].find(pattern)

    def codes(self):
        return {"launch": self.processes[0].returncode}

    def said_by(self, role, number):
        prefix = f"[{number}] " if role == "worker" else f"[server {number}] "
        return "\n".join(line[len(prefix):] for _, line in self.errs[0].lines if line.startswith(prefix))

    def check_cause(self):
        what = "was killed by SIGKILL" if self.cell.fault == "kill" else "was stopped by SIGSTOP"
        if not self.errs[0].find(rf"error: launch: {self.cell.name} {what}"):
            raise Failed(f"launch does not name the cause: {self.everything()[-800:]!r}")


class OnHosts(Job):
    """A training whose processes are started by hand, each on a host of its own."""

    def __init__(self, arguments, cell, folder, words):
        super().__init__(cell)
        self.processes_of = [("worker", i) for i in range(arguments.workers)] + [("server", i) for i in range(cell.servers)]
        self.victim = self.processes_of.index((cell.role, cell.number))
        self.hosts = namespaces.Hosts(len(self.processes_of), relayed=(self.victim,) if cell.fault == "delay" else ())
        if cell.fault == "delay" and cell.moment == "start":
            self.hosts.relays[self.victim].seconds = DELAY_SECONDS
        secret = os.urandom(32).hex()
        servers = {"LOCKSTEP_SERVERS": str(cell.servers), "LOCKSTEP_JOB": "matrix", "LOCKSTEP_SERVER_ADDRESSES": ",".join(
            f"{self.hosts.address(arguments.workers + i)}:{PORT}" for i in range(cell.servers))} if cell.servers else {}
        for host, (role, number) in enumerate(self.processes_of):
            self.start([*self.hosts.words(host), arguments.lockstep, *words, *arguments.network_option], folder,
                       LOCKSTEP_ROLE=role, LOCKSTEP_RANK=str(number), LOCKSTEP_WORLD_SIZE=str(arguments.workers),
                       **servers, LOCKSTEP_ADDRESS=f"{self.hosts.address(0)}:{PORT}", LOCKSTEP_SECRET=secret)

    def strike(self):
        if self.cell.fault == "cut":
            self.hosts.cut(self.victim)
        else:
            self.hosts.relays[self.victim].seconds = DELAY_SECONDS

    def find(self, pattern):
        return self.outs[0].find(pattern)

    def codes(self):
        return {f"{role} {number}": process.returncode for (role, number), process in zip(self.processes_of, self.processes)}

    def said_by(self, role, number):
        return self.errs[self.processes_of.index((role, number))].text()

    def check_cause(self):
        pass

    def close(self):
        super().close()
        self.hosts.close()


# ---- Cells ----

class Cell:
    def __init__(self, victim, fault, moment):
        self.victim, self.fault, self.moment = victim, fault, moment
        self.role = "server" if victim == "server" else "worker"
        self.number = 1 if victim.endswith("worker") else 0
        self.servers = 1 if victim == "server" else 0
        self.name = f"{self.role} {self.number}"
        self.on_hosts = fault in ("cut", "delay")
        # An elastic training goes on without the one that is lost, once it has begun, and ends with 5 before.
        self.elastic = victim.startswith("elastic")
        self.goes_on = self.elastic and fault != "delay"
        # A server that launch starts again goes on where it was, and so does the training.
        self.survives = fault == "delay" or self.goes_on or (victim == "server" and fault in ("kill", "stop"))

    def words(self):
        return {self.victim, self.fault, self.moment}

    def __str__(self):
        return f"{self.victim}, {self.fault}, {self.moment}"


def all_cells():
    for fault in FAULTS:
        for moment in MOMENTS:
            for victim in VICTIMS:
                yield Cell(victim, fault, moment)


def training(cell, arguments, folder, last_step):
    """The command line of the training in which the moment is long, and comes often. One that survives ends by itself."""
    images = "synthetic:shape=28x28x1,classes=10"
    delayed = cell.survives
    strategy = f"{arguments.server_strategy}:folder={folder}" if cell.servers else arguments.strategy
    words = ["train", "--strategy=" + strategy, *([f"--deadline={SERVER_DEADLINE}"] if cell.servers and cell.fault == "cut" else []), "--threads=1", "--verbose=2",
             "--seed=1", "--log-every=1", *([f"--elastic=1:{arguments.workers}"] if cell.elastic else []),
             *(["--report=report.json"] if cell.goes_on else []), *arguments.option]
    if cell.moment == "epoch":
        # So many steps in an epoch that a delayed one, too, has an end soon.
        examples = arguments.workers * 8 * last_step if delayed else 600
        return words + ["--model=mlp" if delayed else "--model=cnn", "--replica-batch=8", f"--epochs={2 if delayed else 100}",
                        f"--dataset={images},examples={int(examples / (0.3 if delayed else 0.03))},validation_split={0.7 if delayed else 0.97}"]
    limit = [f"--steps={last_step}"] if delayed else []
    if cell.moment in ("start", "forward"):
        return words + limit + ["--model=mlp" if delayed else "--model=cnn", f"--dataset={images},examples=10000", "--validation=off",
                                "--replica-batch=128", "--epochs=1000"]
    units = 400 if delayed else 2000
    with open(os.path.join(folder, "wide.json"), "w") as file:
        json.dump(wide(units), file)
    words += limit + ["--model=wide.json", f"--dataset=synthetic:shape={units},classes=10,examples=20000", "--validation=off",
                      "--replica-batch=1"]
    if cell.servers:  # their shards are always being written
        return words
    return words + (["--checkpoint-dir=checkpoints", "--checkpoint-steps=2", "--resume"] if cell.moment == "checkpoint" else [])


def wait_for_step(job, step):
    """Waits until that step of the training is reported, and returns the time of a step."""
    found = wait_until(lambda: job.find(rf"step {step}/") or job.has_ended())
    if not found or found is True:
        raise Failed(f"step {step} was never done: {job.outs[0].text()[-500:]} {job.everything()[-1500:]}")
    first = job.find(r"step 1/")
    return (found[0] - first[0]) / (step - 1)


def being_written(folder):
    path = os.path.join(folder, "checkpoints")
    return os.path.isdir(path) and any(name.endswith(".tmp") for name in os.listdir(path))


def wait_for_moment(job, cell, folder, numbers, step):
    if cell.moment == "start":
        job.find_victim()
        time.sleep(numbers.uniform(0, 0.4))
        return
    seconds = wait_for_step(job, step)
    if not cell.survives:  # workers tell each other twice a second where they are
        time.sleep(max(0, job.find(r"step 1/")[0] + HEARD_SECONDS - time.monotonic()))
    if cell.moment in ("forward", "reduction"):
        time.sleep(numbers.uniform(0, seconds))
    elif cell.moment == "checkpoint" and not cell.servers:
        if not wait_until(lambda: being_written(folder)):
            raise Failed("no checkpoint is written")
        time.sleep(numbers.uniform(0, 0.02))
    elif cell.moment == "epoch":  # the last step, then validation
        if not wait_until(lambda: job.find(r"Epoch 1/\d+ - step (\d+)/\1\b")):
            raise Failed("the first epoch does not end")
        time.sleep(numbers.uniform(0, 0.3))


def check_files(folder):
    """Every complete checkpoint can be read: its header says where its tensors lie."""
    path = os.path.join(folder, "checkpoints")
    names = [name for name in os.listdir(path) if name.endswith(".safetensors")] if os.path.isdir(path) else []
    for name in names:
        with open(os.path.join(path, name), "rb") as file:
            data = file.read()
        try:
            size = struct.unpack("<Q", data[:8])[0]
            header = json.loads(data[8:8 + size])
            ends = [entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"]
        except (struct.error, ValueError, KeyError) as error:
            raise Failed(f"checkpoint {name} cannot be read: {error}") from error
        if 8 + size + max(ends) != len(data):
            raise Failed(f"checkpoint {name} is not complete")
    return len(names)


def check_names(job, cell, arguments):
    """Each survivor says which process it lost, and in which step, or whom it waited for when they had not all met."""
    if cell.moment == "start" or cell.servers:
        expected = rf"{cell.name}\b"
    else:
        expected = rf"{cell.name}\b.* lost, last heard of in step \d+, \w+"
    for number in range(arguments.workers):
        if (cell.role, cell.number) != ("worker", number) and not re.search(expected, job.said_by("worker", number)):
            raise Failed(f"worker {number} does not say {expected!r}: {job.said_by('worker', number)[-800:]!r}")
    job.check_cause()


def check_trained(job, cell):
    """Nobody noticed."""
    job.end(4 * WAIT)
    if any(job.codes().values()):
        raise Failed(f"ended with {job.codes()}: {job.everything()[-1500:]}")
    if cell.fault == "delay":
        late = job.hosts.relays[job.victim].late
        if late < 50:
            raise Failed(f"only {late} frames were late: the training had ended")
    elif not job.errs[0].find(rf"{cell.name} was .* it is started again"):
        raise Failed(f"{cell.name} was not started again: the training had ended")


def check_gone_on(job, cell, arguments):
    """The others have trained to the end, and know whom they lost. One that is cut off ends: it cannot know what they do. Returns
    whether they have."""
    job.end(4 * WAIT)
    expected = {name: PEER_LOST if name == cell.name else 0 for name in job.codes()}
    if (cell.fault, cell.moment) == ("cut", "start") and job.codes()[cell.name] == UNAVAILABLE:
        expected[cell.name] = UNAVAILABLE
    if cell.moment == "start" and all(code == PEER_LOST for code in job.codes().values()):
        return False
    if job.codes() != expected:
        raise Failed(f"ended with {job.codes()}, expected {expected}: {job.everything()[-1500:]}")
    for number in range(arguments.workers):
        if number != cell.number and not re.search(rf"{cell.name}\b.* lost", job.said_by("worker", number)):
            raise Failed(f"worker {number} does not say that it lost {cell.name}: {job.said_by('worker', number)[-800:]!r}")
    return True


def check_losses(arguments, folder, words):
    """They are those of a training in which nobody was lost."""
    own = ("--strategy", "--elastic", "--report", "--checkpoint", "--resume")
    done = subprocess.run([arguments.lockstep, *(word for word in words if not word.startswith(own)), "--strategy=ring", "--cluster=none",
                           f"--replicas={arguments.workers}", "--report=whole.json"], cwd=folder, capture_output=True, text=True,
                          timeout=4 * WAIT, check=False)
    if done.returncode:
        raise Failed(f"the undisturbed training ended with {done.returncode}: {done.stderr[-800:]}")
    losses = []
    for name in ("report.json", "whole.json"):
        with open(os.path.join(folder, name)) as file:
            losses.append(json.load(file)["losses"])
    if len(losses[0]) != len(losses[1]):
        raise Failed(f"{len(losses[0])} steps, expected {len(losses[1])}")
    difference = max(abs(one - other) for one, other in zip(*losses))
    if not difference < SAME_LOSS:
        raise Failed(f"losses differ by {difference:g} from those of the undisturbed training")


def check_lost(job, cell, arguments):
    """All ended with a named error, in time."""
    begin = time.monotonic()
    # Who has not connected yet is missed at the deadline of the meeting; launch knows better.
    limit = arguments.limit + (arguments.join_seconds if cell.moment == "start" and cell.on_hosts else 0) + \
        (SERVER_DEADLINE + SERVER_SILENCE if cell.servers else 0)
    job.end(limit + 10)
    seconds = time.monotonic() - begin
    codes = job.codes()
    if (cell.fault, cell.moment) == ("cut", "start") and codes.get(cell.name) == UNAVAILABLE:
        codes = {**codes, cell.name: PEER_LOST}
    if any(code != PEER_LOST for code in codes.values()):
        raise Failed(f"ended with {codes}, expected {PEER_LOST}: {job.everything()[-1500:]}")
    if seconds > limit:
        raise Failed(f"took {seconds:.1f} s, expected at most {limit:g} s: {job.everything()[-1500:]}")
    # Under launch, those that have not met are ended by launch, which alone knows whom they wait for.
    if cell.moment == "start" and not cell.on_hosts:
        job.check_cause()
    else:
        check_names(job, cell, arguments)
    return seconds


def shared_memory(but):
    """What is in /dev/shm, and mapped by no process: others may use it beside this program."""
    found = {name for name in set(os.listdir("/dev/shm")) - but if not name.startswith("__KMP_")}  # LLVM's OpenMP, in other programs
    for pid in filter(str.isdigit, os.listdir("/proc") if found else []):
        try:
            with open(f"/proc/{pid}/maps", errors="replace") as file:
                text = file.read()
        except OSError:
            continue
        found = {name for name in found if f"/dev/shm/{name}" not in text}
    return sorted(name for name in found if os.path.exists(f"/dev/shm/{name}"))


def run_cell(cell, arguments, number):
    """Returns the seconds from the fault to the end of all processes."""
    numbers = random.Random(f"{arguments.seed}/{cell}/{number}")
    step = numbers.randint(4, 8)
    folder = tempfile.mkdtemp(prefix="lockstep-fault-")
    shared_before = set(os.listdir("/dev/shm"))
    job = None
    try:
        kind = OnHosts if cell.on_hosts else Launched
        more = DELAYED_STEPS if cell.fault == "delay" else RESTARTED_STEPS
        # Small reductions would be over before the fault.
        words = training(cell, arguments, folder, step + (10 * more if cell.goes_on and cell.moment == "reduction" and not cell.on_hosts else more))
        job = kind(arguments, cell, folder, words)
        wait_for_moment(job, cell, folder, numbers, step)
        begin = time.monotonic()
        job.strike()
        if cell.goes_on:
            trained = check_gone_on(job, cell, arguments)
            seconds = time.monotonic() - begin
            if trained and not cell.on_hosts:  # there the one that is cut off has the same file
                check_losses(arguments, folder, words)
        elif cell.survives:
            check_trained(job, cell)
            seconds = time.monotonic() - begin
        else:
            seconds = check_lost(job, cell, arguments)
        if not wait_until(lambda: not marked(job.mark), 2):
            raise Failed(f"processes are left: {marked(job.mark)}")
        if not wait_until(lambda: not shared_memory(shared_before), 2):
            raise Failed(f"shared memory is left: {shared_memory(shared_before)}")
        if check_files(folder) and not cell.survives:
            resume(arguments, folder)
        return seconds
    finally:
        if job:
            job.close()
        shutil.rmtree(folder, ignore_errors=True)


def resume(arguments, folder):
    """A training of one process goes on from what is there."""
    done = subprocess.run([arguments.lockstep, "train", "--cluster=none", "--model=wide.json", "--quiet", "--validation=off", "--seed=1",
                           "--dataset=synthetic:shape=2000,classes=10,examples=20000", f"--batch={arguments.workers}",
                           "--checkpoint-dir=checkpoints", "--resume", "--steps=1"], cwd=folder, capture_output=True,
                          text=True, timeout=WAIT, check=False)
    if done.returncode:
        raise Failed(f"--resume ended with {done.returncode}: {done.stderr[-800:]}")


def calm(arguments):
    """Nobody is lost while more workers than cores train beside programs that never wait."""
    folder = tempfile.mkdtemp(prefix="lockstep-calm-")
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count())]
    job = None
    try:
        cell = Cell("worker", "none", "forward")
        job = Launched(arguments, cell, folder, [word for word in training(cell, arguments, folder, 0)
                                                   if not word.startswith("--epochs")] + ["--epochs=1000000000"])
        ended = wait_until(job.has_ended, arguments.calm)
        if not ended:
            job.processes[0].send_signal(signal.SIGTERM)
        job.end(WAIT)
        steps = [int(match) for match in re.findall(r"step (\d+)/", job.outs[0].text())]
        if ended or job.codes() != {"launch": 128 + signal.SIGTERM} or " lost" in job.everything() or not steps:
            raise Failed(f"ended with {job.codes()} after {len(steps)} steps: {job.everything()[-1500:]}")
        return max(steps)
    finally:
        for process in busy:
            process.kill()
        if job:
            job.close()
        shutil.rmtree(folder, ignore_errors=True)


# ---- The table ----

def outcome(cell_results, cell):
    """What a cell of the table says: seconds, or the failures."""
    seconds = [seconds for seconds, _ in cell_results]
    if None in seconds:
        reasons = "; ".join(dict.fromkeys(reason.split(":")[0] for _, reason in cell_results if reason))
        return f"**failed** {seconds.count(None)} of {len(seconds)}: {reasons}"
    if cell.goes_on and cell.moment == "start":
        return f"code 5, or trained to the end, after {statistics.median(seconds):.0f} s"
    if cell.survives:
        return f"trained to the end, {statistics.median(seconds):.0f} s later"
    return f"code 5 after {statistics.median(seconds):.1f} s" + (f" (at most {max(seconds):.1f} s)" if len(seconds) > 1 else "")


def table(results):
    """`results`: (cell, seconds or None, why it failed)."""
    lines = ["| fault | moment | chief | worker | server | elastic: chief | elastic: worker |", "|---|---|---|---|---|---|---|"]
    for fault, moment in dict.fromkeys((cell.fault, cell.moment) for cell, _, _ in results):
        row = []
        for victim in VICTIMS:
            found = [(seconds, why) for cell, seconds, why in results if (cell.victim, cell.fault, cell.moment) == (victim, fault, moment)]
            row.append(outcome(found, Cell(victim, fault, moment)) if found else "not run")
        lines.append(f"| {fault} | {moment} | {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def update(path, text):
    begin, end = "<!-- fault-matrix -->\n", "<!-- /fault-matrix -->"
    with open(path) as file:
        page = file.read()
    if begin not in page or end not in page:
        sys.exit(f"{path} has no lines {begin.strip()} and {end}")
    before, after = page.split(begin)[0], page.split(end)[1]
    with open(path, "w") as file:
        file.write(before + begin + "\n" + text + "\n" + end + after)


def finish(arguments, results):
    """Prints the table, and ends."""
    text = table(results)
    print(text, end="")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump([{"victim": cell.victim, "fault": cell.fault, "moment": cell.moment, "seconds": seconds, "failure": why}
                       for cell, seconds, why in results], file, indent=1)
    if arguments.update:
        update(arguments.update, text)
    sys.exit(1 if any(seconds is None for _, seconds, _ in results) else 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", help="the program")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=1, help="how often each cell is run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=5, help="seconds from the fault to the end of all")
    parser.add_argument("--join-seconds", type=float, default=60, help="for how long processes wait for each other in the beginning")
    parser.add_argument("--strategy", default="multi-worker-mirrored", help="what the chief and workers train with")
    parser.add_argument("--server-strategy", default="parameter-server", help="and what where a server is struck")
    parser.add_argument("--only", default="", help="words that a cell must have, with commas")
    parser.add_argument("--without", default="", help="words that no cell may have, with commas, such as server")
    parser.add_argument("--option", action="append", default=[], help="one more option of train; may be given several times")
    parser.add_argument("--network-option", action="append", default=["--network=private"], help="the same, on several hosts only [--network=private]")
    parser.add_argument("--calm", type=float, help="only train for so many seconds; nobody may be lost")
    parser.add_argument("--json", help="write the results to this file")
    parser.add_argument("--read", action="append", default=[], help="take results from such a file instead; may be given several times")
    parser.add_argument("--update", help="write the table into this page, between its marks")
    arguments = parser.parse_args()
    if not arguments.lockstep and not arguments.read:
        parser.error("--lockstep names the program")
    arguments.lockstep = os.path.abspath(arguments.lockstep or "lockstep")
    if arguments.calm:
        try:
            print(f"{arguments.workers} workers on {os.cpu_count()} busy cores: {calm(arguments)} steps in {arguments.calm:g} s, nobody was lost")
        except Failed as failure:
            sys.exit(f"{arguments.workers} workers on {os.cpu_count()} busy cores: FAILED: {failure}")
        return
    wanted = set(filter(None, arguments.only.split(",")))
    unwanted = set(filter(None, arguments.without.split(",")))
    cells = [cell for cell in all_cells() if wanted <= cell.words() and not unwanted & cell.words()]
    if not cells:
        parser.error(f"no cell has all of {sorted(wanted)} and none of {sorted(unwanted)}")
    if arguments.workers < 2:
        parser.error("--workers: at least 2")
    if arguments.read:
        found = []
        for path in arguments.read:
            with open(path) as file:
                found += json.load(file)
        finish(arguments, [(cell, one["seconds"], one["failure"]) for cell in cells for one in found
                           if (one["victim"], one["fault"], one["moment"]) == (cell.victim, cell.fault, cell.moment)])
    reason = namespaces.missing()
    if reason:
        skipped = [cell for cell in cells if cell.on_hosts]
        cells = [cell for cell in cells if not cell.on_hosts]
        if skipped:
            print(f"SKIP: {len(skipped)} cells on several hosts: {reason}", flush=True)
    if not cells:
        sys.exit(77)
    results = []
    for number in range(arguments.rounds):
        for cell in cells:
            try:
                results.append((cell, run_cell(cell, arguments, number), None))
                progress(f"{cell}: {results[-1][1]:.2f} s")
            except Failed as failure:
                results.append((cell, None, str(failure)))
                progress(f"{cell}, round {number}: FAILED: {failure}")
    finish(arguments, results)


if __name__ == "__main__":
    main()
