# SPDX-License-Identifier: Apache-2.0
"""Runs the checks of tools/gpu-check one after the other, each under a time limit, and keeps the JSON file up to date."""
import json
import math
import os
import re
import signal
import subprocess
import sys
import time

OUTPUT_LINES = 200  # of what a command said, kept where it did not pass
LOG_BYTES = 4 << 20  # of a log beside the JSON file, the end
PRINTED_LINES = 25  # of these
LEAST_SECONDS = 2.0  # with less than that left, nothing is begun
GRACE_SECONDS = 10.0  # for a process to end that was killed, where that many are left
HOME = re.compile(r"(?<![\w.])/(?:home|root|work|Users)/(?=[A-Za-z])")


class NotRun(Exception):
    """A check that could not be made here, or not all of it; the text says why."""

    def __init__(self, why, figures=None):
        super().__init__(why)
        self.figures = figures or {}


class Wrong(Exception):
    """A check that was made and did not hold."""

    def __init__(self, detail, figures=None, output=""):
        super().__init__(detail)
        self.figures, self.output = figures or {}, output


class TimeOver(Exception):
    """A command that was not over in time. `own`: at its own limit, not at that of the whole call."""

    def __init__(self, seconds, own, output):
        super().__init__("not over after %.0f s%s" % (seconds, "" if own else ", when the time of this call was"))
        self.own, self.output = own, output


class Ended(BaseException):
    """Somebody ends the program."""


class Outcome:
    def __init__(self, code, out, err, seconds):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds

    @property
    def output(self):
        return self.out + self.err

    def last_line(self):
        """The last error of it, or what it said last."""
        lines = self.err.strip().splitlines() or self.out.strip().splitlines() or ["it said nothing"]
        return next((line for line in reversed(lines) if " error: " in line), lines[-1]).strip()

    def ending(self):
        how = "exit code %d" % self.code if self.code >= 0 else "ended by signal %d" % -self.code
        return "%s: %s" % (how, self.last_line())


def end_group(process):
    """Nothing that the command started may hold the GPU afterwards."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def said_until_killed(process, left):
    """A process that hangs in the driver does not end by SIGKILL either, and one that left its group keeps the pipes."""
    try:
        return process.communicate(timeout=min(GRACE_SECONDS, max(left, 0.5)))
    except subprocess.TimeoutExpired:
        return "", "it does not end by SIGKILL, or something that it started does not: the driver may hang\n"


def keep(path, text):
    """A log that cannot be written fails no check."""
    if not path:
        return
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text[-LOG_BYTES:])
    except OSError as error:
        say("gpu-check: a log is not written: %s" % error)


class Runner:
    """`budget`: seconds of the whole call. `places`: (folder, word) pairs, by which texts of results name folders."""

    def __init__(self, budget, path, document, places):
        self.end, self.path, self.document, self.places = time.monotonic() + budget, path, document, places
        self.limit_end = self.end
        self.process = None  # the one that runs
        self.partial = {}  # figures of the check that runs, for the case that it does not end
        self.unwritten = False  # whether the file does not have what was found
        document["checks"] = []

    # ---- Commands ----

    def left(self):
        """Seconds that the check which runs still has."""
        return self.limit_end - time.monotonic()

    def run(self, command, environment, on_line=None, output=None, limit=None, **more):
        """The outcome of a command within the check's limit, and its own. `on_line`: gets each line of its stdout when it comes. `output`: a file
        that keeps all it said, also where it does not end in time."""
        left = min(self.left(), limit or self.left())
        if left <= 0:
            raise TimeOver(0, self.limit_end < self.end, "")
        begin = time.monotonic()
        self.process = process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, errors="replace", env=environment, start_new_session=True, **more)
        try:
            if on_line:
                return self.follow(process, begin, left, on_line)
            out, err = process.communicate(timeout=left)
            keep(output, out + err)
        except subprocess.TimeoutExpired:
            end_group(process)
            out, err = said_until_killed(process, self.end - time.monotonic())
            keep(output, out + err)
            raise TimeOver(left, self.limit_end < self.end, out + err) from None
        except BaseException:
            end_group(process)
            said_until_killed(process, self.end - time.monotonic())
            raise
        end_group(process)
        return Outcome(process.returncode, out, err, time.monotonic() - begin)

    def follow(self, process, begin, left, on_line):
        """stderr of such a command must be short."""
        signal.setitimer(signal.ITIMER_REAL, left)
        lines = []
        try:
            for line in process.stdout:
                lines.append(line)
                on_line(line)
            err = process.stderr.read()
            process.wait()
        except AlarmRang:
            raise subprocess.TimeoutExpired(process.args, left) from None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return Outcome(process.returncode, "".join(lines), err, time.monotonic() - begin)

    # ---- Checks ----

    def clean(self, text):
        """Results name no folder of one machine."""
        for folder, word in self.places:
            text = text.replace(folder, word)
        return HOME.sub("~/", text)

    def clean_all(self, value):
        """JSON has no numbers that are not finite."""
        if isinstance(value, str):
            return self.clean(value)
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        if isinstance(value, dict):
            return {key: self.clean_all(part) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.clean_all(part) for part in value]
        return value

    def write(self):
        """Anew and whole: who ends meanwhile, or a folder that is full, leaves what was there before."""
        part = self.path + ".part"
        try:
            with open(part, "w", encoding="utf-8") as file:
                json.dump(self.clean_all(self.document), file, indent=1, allow_nan=False)
                file.write("\n")
            os.replace(part, self.path)
            self.unwritten = False
        except OSError as error:
            self.unwritten = True
            say("gpu-check: results are not written: %s" % error)
            try:
                os.unlink(part)
            except OSError:
                pass

    def put(self, name, status, seconds, detail, figures=None, output=""):
        entry = {"name": name, "status": status, "seconds": round(seconds, 2), "detail": detail}
        if figures:
            entry["figures"] = figures
        if output and status != "passed":
            entry["output"] = output.strip().splitlines()[-OUTPUT_LINES:]
        self.document["checks"].append(entry)
        self.write()
        print("%-8s %-24s %6.1f s  %s" % (status, name, seconds, self.clean(detail)), flush=True)
        for line in entry.get("output", ())[-PRINTED_LINES:] if status == "failed" else ():
            print("         | " + self.clean(line), flush=True)

    def check(self, name, limit, function):
        """`function` returns (detail, figures), or raises. A failure stops no other check."""
        begin = time.monotonic()
        if self.end - begin < LEAST_SECONDS:
            self.put(name, "not run", 0, "the time of this call was over (--seconds)")
            return
        self.limit_end, self.partial = min(begin + limit, self.end), {}
        try:
            detail, figures = function()
            self.put(name, "passed", time.monotonic() - begin, detail, figures)
        except NotRun as error:
            self.put(name, "not run", time.monotonic() - begin, str(error), error.figures)
        except Wrong as error:
            self.put(name, "failed", time.monotonic() - begin, str(error), error.figures, error.output)
        except TimeOver as error:
            self.put(name, "failed" if error.own else "not run", time.monotonic() - begin, str(error), self.partial, error.output)
        except Exception as error:  # pylint: disable=broad-except  # a report is not as it should be, say
            self.put(name, "failed", time.monotonic() - begin, "%s: %s" % (type(error).__name__, error), self.partial)
        except Ended:
            self.put(name, "not run", time.monotonic() - begin, "ended by a signal", self.partial)
            raise

    def counts(self):
        states = [entry["status"] for entry in self.document["checks"]]
        return {status: states.count(status) for status in ("passed", "failed", "not run")}


class AlarmRang(Exception):
    pass


def catch_signals():
    def end(number, frame):
        raise Ended(number)

    def ring(number, frame):
        raise AlarmRang

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    signal.signal(signal.SIGALRM, ring)


def say(text):
    print(text, file=sys.stderr, flush=True)
