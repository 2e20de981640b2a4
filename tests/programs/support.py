# SPDX-License-Identifier: Apache-2.0
"""What the whole-program tests share: running the real `lockstep`, reading its report, counting skips.

Each test file is a unittest module run by itself; a check whose data is missing prints a line `SKIP ...`, is
counted, and the file ends with 77 when nothing but skips remains.
"""
import concurrent.futures
import ctypes
import fcntl
import io
import json
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

LOCKSTEP = os.environ["LOCKSTEP_PROGRAM"]
FIXTURES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data")
LARGE_DATA = os.environ.get("LOCKSTEP_LARGE_DATA", "")  # what is too large for FIXTURES, and not in the repository
KERAS_FILES = os.environ.get("LOCKSTEP_KERAS_BUILT") == "true"  # whether the program for files of Keras was built
FASHION = "/usr/share/datasets/fashion-mnist"

# Who runs tests in the background or under nohup ignores these, and would have the programs ignore them, too.
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)

# `lockstep compare` times each run for four seconds, unless it is told not to.
UNTIMED = "--speed-steps=0"

# Exit codes of the command.
DONE, FAILED, USAGE, BAD_INPUT, UNAVAILABLE, PEER_LOST, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 4, 5, 130, 143


# A model of two classes with one output, and metrics of every kind: what the step's sums say, and what replicas count.
BINARY = {"class_name": "Sequential", "config": {"name": "binary", "layers": [
    {"class_name": "InputLayer", "config": {"batch_shape": [None, 8], "name": "input"}},
    {"class_name": "Dense", "config": {"name": "hidden", "units": 16, "activation": "relu"}},
    {"class_name": "Dense", "config": {"name": "output", "units": 1, "activation": "sigmoid"}}]}}
COUNTED = ("--loss=binary_crossentropy", "--metrics=accuracy,auc,auc:curve=PR,name=pr,precision,recall,mse", "--class-weight=0:2.5,1:0.3")


class Outcome:
    def __init__(self, code, out, err, report=None):
        self.code, self.out, self.err, self.report = code, out, err, report


class ProgramTest(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="lockstep-test-")
        self.folder = self.scratch.name
        self.addCleanup(self.scratch.cleanup)

    def path(self, name):
        return os.path.join(self.folder, name)

    def binary(self, examples):
        """The options that train BINARY on so many examples, with the metrics COUNTED."""
        write_json(self.path("binary.json"), BINARY)
        return ("--model=" + self.path("binary.json"), f"--dataset=synthetic:shape=8,classes=2,examples={examples}", *COUNTED)

    def lockstep(self, *arguments, environment=None, timeout=300, cwd=None, **more):
        variables = dict(os.environ, **(environment or {}))
        done = subprocess.run([LOCKSTEP, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=variables, timeout=timeout, cwd=cwd or self.folder, stdin=subprocess.DEVNULL, **more)
        return Outcome(done.returncode, done.stdout, done.stderr)

    def train(self, *arguments, expect=DONE, under=(), **more):
        """Trains quietly, `under` a launcher, and returns the report."""
        path = self.path("report.json")
        if os.path.exists(path):
            os.unlink(path)
        outcome = self.lockstep(*under, "train", "--quiet", "--report=" + path, *arguments, **more)
        self.assertEqual(outcome.code, expect, outcome.err)
        outcome.report = read_json(path)
        return outcome.report

    def refused(self, code, *arguments, says=(), **more):
        """The command ends with `code` and one line on stderr that has every text of `says`."""
        outcome = self.lockstep(*arguments, **more)
        self.assertEqual(outcome.code, code, outcome.err)
        lines = [line for line in outcome.err.splitlines() if "warning" not in line]
        self.assertEqual(len(lines), 1, outcome.err)
        self.assertTrue(lines[0].startswith("lockstep: error: "), lines[0])
        for text in says:
            self.assertIn(text, lines[0])
        return outcome

    def need(self, path):
        """Skips the test, counted, when `path` is not there."""
        if not os.path.exists(path):
            self.skipTest(f"{path} is not here")

    def terminal(self):
        """Both ends of a pseudo-terminal; skips the test, counted, in a root without devpts."""
        try:
            return pty.openpty()
        except OSError as error:
            self.skipTest(f"there are no pseudo-terminals: {error}")

    def on_terminal(self, *command, columns=0, environment=None, **more):
        """What a command writes to a terminal that is so wide. It succeeds."""
        master, slave = self.terminal()
        if columns:
            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen([LOCKSTEP, *command], stdout=slave, stdin=subprocess.DEVNULL, env=dict(os.environ, **(environment or {})),
                                   **{"stderr": subprocess.DEVNULL, **more})
        os.close(slave)
        shown = b""
        try:
            while part := os.read(master, 65536):
                shown += part
        except OSError:  # nobody has the terminal open any more
            pass
        os.close(master)
        self.assertEqual(process.wait(60), DONE, shown)
        return shown

    def wait_for(self, happened, seconds=60, processes=(), said=lambda: None):
        """Until `happened()`, which is returned. It is a failure when that takes longer, or one of the processes ends."""
        end = time.monotonic() + seconds
        while not (found := happened()):
            self.assertLess(time.monotonic(), end, said())
            self.assertTrue(all(process.poll() is None for process in processes))
            time.sleep(0.01)
        return found


def has_driver():
    """Whether this machine has NVIDIA's driver."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def has_checkpoint(folder):
    return os.path.isdir(folder) and any(name.endswith(".safetensors") for name in os.listdir(folder))


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def write_json(path, content):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file)


def tensors(path):
    """A safetensors file as {name: (shape, [floats])}, read independently of Lockstep."""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    result = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            result[name] = (entry["shape"], struct.unpack(f"<{(end - begin) // 4}f", data[begin:end]))
    return result


def is_connected(pid):
    """Whether a process has a connection by TCP to another one, or to itself."""
    try:
        with open(f"/proc/{pid}/net/tcp", encoding="ascii") as file:
            established = {f"socket:[{fields[9]}]" for fields in map(str.split, file) if fields[3] == "01"}
    except FileNotFoundError:
        return False  # it has ended
    folder = f"/proc/{pid}/fd"
    for name in os.listdir(folder):
        try:
            if os.readlink(os.path.join(folder, name)) in established:
                return True
        except FileNotFoundError:
            pass  # closed since
    return False


class Result(unittest.TextTestResult):
    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        print(f"SKIP {test.id()}: {reason}", flush=True)


def each_test(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from each_test(test)
        else:
            yield test


class Threads(unittest.TextTestRunner):
    """Runs several tests at a time, those that mostly wait. They must have no setUpClass and no setUpModule."""

    def __init__(self, count):
        super().__init__(verbosity=2, resultclass=Result)
        self.count = count

    def run(self, suite):
        def run_one(test):
            mine = Result(unittest.runner._WritelnDecorator(io.StringIO()), True, 2)
            test.run(mine)
            return mine

        whole = self._makeResult()
        with concurrent.futures.ThreadPoolExecutor(self.count) as pool:
            for result in pool.map(run_one, each_test(suite)):
                self.stream.write(result.stream.getvalue())
                whole.testsRun += result.testsRun
                for kind in ("failures", "errors", "skipped", "expectedFailures", "unexpectedSuccesses"):
                    getattr(whole, kind).extend(getattr(result, kind))
        whole.printErrors()
        self.stream.writeln(f"Ran {whole.testsRun} tests")
        return whole


def main(threads=1):
    """Runs the tests of the module; with arguments those of the classes named, or with `--without` those of the others."""
    module, names = sys.modules["__main__"], sys.argv[1:]
    others = names[:1] == ["--without"]
    for name in names[others:]:
        getattr(module, name)  # a class that is gone would run nothing, or what another process runs
    suite = unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromTestCase(case) for case in vars(module).values()
                               if isinstance(case, type) and issubclass(case, unittest.TestCase)
                               and (not names or (case.__name__ in names) != others))
    result = (Threads(threads) if threads > 1 else unittest.TextTestRunner(verbosity=2, resultclass=Result)).run(suite)
    if not result.wasSuccessful() or not result.testsRun:
        sys.exit(1)
    sys.exit(77 if len(result.skipped) == result.testsRun else 0)
