# SPDX-License-Identifier: Apache-2.0
"""Plugins that answer nothing, hang, end the program, crash, or lie about numbers: `lockstep train` ends in time, with the
right exit code and a line that names the plugin."""
import os
import re
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from support import (DONE, FAILED, LOCKSTEP, PEER_LOST, UNTIMED, ProgramTest, main)

HOSTILE = os.environ["LOCKSTEP_HOSTILE_FOLDER"]
SANITIZE = os.environ["LOCKSTEP_SANITIZE"]
DEADLINE = 2
GRACE = 10  # seconds after the deadline
AT_ONCE = 2  # cases that end by themselves
WAITING_AT_ONCE = 12  # cases that sleep until the deadline, and would end in the same way on a busy machine

# How a plugin of each kind is named, and what the line that names it has.
KINDS = {
    "device": ("--device=hostile-device:fault={}", "--strategy=ring", "hostile-device"),
    "transport": ("--strategy=hostile-transport:fault={}", None, "hostile-transport"),
    "collective": ("--strategy=hostile-collective:fault={}", None, "hostile-collective"),
    "strategy": ("--strategy=hostile:fault={},collective=ring", None, "hostile"),
}

CRASHES = {"crash": signal.SIGSEGV, "abort": signal.SIGABRT, "bus": signal.SIGBUS, "divide": signal.SIGFPE,
           "illegal": signal.SIGILL, "overflow": signal.SIGSEGV, "thread": signal.SIGSEGV}

EITHER = (FAILED, PEER_LOST)

# kind: call: {exit code: deeds}. Deeds of CRASHES end by their signal.
CASES = {
    "device": {
        "describe": {FAILED: "silent exit unknown", PEER_LOST: "hang", None: "crash"},
        "open": {FAILED: "silent exit leave quick again aborted huge memory interrupted unsupported",
                 PEER_LOST: "hang end lost", None: "crash"},
        "allocate": {FAILED: "null odd exit", PEER_LOST: "hang", None: "crash"},
        "prepare": {FAILED: "null scratch saved place kind layout small silent exit unknown again",
                    PEER_LOST: "hang spin", None: "divide"},
        "launch": {FAILED: "silent unknown exit leave quick interrupted memory again aborted",
                   PEER_LOST: "hang spin first end lost", None: "crash abort bus divide illegal overflow thread"},
        "copy": {FAILED: "silent exit", PEER_LOST: "hang", None: "crash"},
        "release_kernel": {FAILED: "exit", PEER_LOST: "hang", None: "crash"},
        "release": {FAILED: "exit"},
        "close": {FAILED: "exit", PEER_LOST: "hang", None: "crash"},
    },
    "transport": {
        "open": {FAILED: "silent exit", PEER_LOST: "hang", None: "crash"},
        "post": {FAILED: "silent unknown exit", PEER_LOST: "hang spin first", None: "crash"},
        "test": {FAILED: "silent unknown exit", PEER_LOST: "never hang", None: "crash"},
        "wait_any": {FAILED: "silent unknown", PEER_LOST: "hang first", None: "crash"},
        "close": {FAILED: "exit", PEER_LOST: "hang", None: "crash"},
    },
    "collective": {
        # Schedules are refused before they run, or end by the deadline.
        "build_schedule": {FAILED: "silent unknown exit leave nothing peer outside scratch wrap twice",
                     EITHER: "endless rounds deadlock hang spin", None: "crash overflow"},
    },
    "strategy": {
        "open": {FAILED: "silent exit leave store bucket unsupported", PEER_LOST: "hang", None: "crash abort"},
        "traits": {FAILED: "numbers exit", None: "crash"},
        "place": {FAILED: "silent exit aborted", PEER_LOST: "hang first", None: "crash"},
        "gradient_ready": {FAILED: "silent exit unsupported", PEER_LOST: "hang", None: "crash"},
        "end_step": {FAILED: "silent unknown huge exit leave aborted again interrupted", PEER_LOST: "hang first end spin",
                     None: "crash thread"},
        "host": {FAILED: "start start-bucket wait broadcast decide update read write sums decide-on meet map changed step "
                         "bytes close", PEER_LOST: "endless"},
        "meet": {PEER_LOST: "alone endless"},
        "sums": {FAILED: "negative none many nan right"},
        "synchronise": {FAILED: "silent exit", PEER_LOST: "hang", None: "crash"},
        "thread": {PEER_LOST: "ends-never"},
        "run": {FAILED: "silent exit", None: "crash"},
        "describe": {FAILED: "exit", PEER_LOST: "hang", None: "crash"},
        "close": {FAILED: "exit leave", PEER_LOST: "hang", None: "crash"},
    },
}


def cases():
    for kind, calls in CASES.items():
        for call, codes in calls.items():
            for code, deeds in codes.items():
                for deed in deeds.split():
                    yield kind, f"{call}-{deed}", -CRASHES[deed] if code is None else code


def train(kind, fault, report, environment=None, more=()):
    """Trains with the fault; (exit code, lines on stderr, seconds)."""
    plugin, other, _ = KINDS[kind]
    command = [LOCKSTEP, "train", "--quiet", "--model=mlp", "--dataset=synthetic:examples=128,shape=28x28x1,classes=10",
               "--replicas=2", "--batch=32", "--threads=1", "--validation=off", "--plugin-path=" + HOSTILE,
               f"--deadline={DEADLINE}", plugin.format(fault),
               "--report=" + report]
    command += [other] if other else []
    command += [] if kind == "device" else ["--device=reference"]
    begin = time.monotonic()
    done = subprocess.run(command + list(more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                          stdin=subprocess.DEVNULL, timeout=DEADLINE + 3 * GRACE,
                          env=dict(os.environ, **(environment or {})))
    lines = [line for line in done.stderr.splitlines() if "NOT REAL DATA" not in line]
    return done.returncode, lines, time.monotonic() - begin


def is_the_sanitizers(fault):
    """Crashes are reported by the sanitizer, which also has an exit() of its own."""
    deed = fault.rsplit("-", 1)[1]
    return SANITIZE != "none" and (deed in CRASHES or deed in ("exit", "leave", "quick"))


class Hostile(ProgramTest):
    def judge(self, kind, fault, expect, outcome):
        code, lines, seconds = outcome
        text = "\n".join(lines)
        self.assertLess(seconds, DEADLINE + GRACE, text)
        self.assertNotEqual(code, DONE, text)
        self.assertTrue(lines, "nothing was said")
        self.assertIn(code, expect if isinstance(expect, tuple) else (expect,), text)
        for line in lines:
            self.assertRegex(line, r"^lockstep: (error|warning): ", text)
        named = [line for line in lines if KINDS[kind][2] in line]
        self.assertTrue(named, text)

    def all_end(self, chosen, by_environment=False):
        """Runs each (kind, fault, expected exit code), the fault as an option or by the environment; {fault: outcome}."""
        chosen, outcomes = list(chosen), {}
        left_out = [case for case in chosen if is_the_sanitizers(case[1])]
        if left_out:
            print(f"SKIP {len(left_out)} crashes and ends of {left_out[0][0]}s: the sanitizer reports them", flush=True)
            chosen = [case for case in chosen if case not in left_out]

        def run(case):
            kind, fault, _ = case
            environment = {"LOCKSTEP_HOSTILE": fault} if by_environment else None
            outcomes[fault] = train(kind, fault, self.path(f"{kind}-{fault}.json"), environment)

        for waits, at_once in ((True, WAITING_AT_ONCE), (False, AT_ONCE)):
            with ThreadPoolExecutor(at_once) as pool:
                list(pool.map(run, [case for case in chosen if (case[2] == PEER_LOST) == waits]))
        for kind, fault, expect in chosen:
            with self.subTest(f"{kind} {fault}"):
                self.judge(kind, fault, expect, outcomes[fault])
        return outcomes

    def test_there_are_many(self):
        self.assertGreaterEqual(len(list(cases())), 60)

    def test_devices(self):
        self.all_end(case for case in cases() if case[0] == "device")

    def test_transports(self):
        self.all_end(case for case in cases() if case[0] == "transport")

    def test_collectives(self):
        self.all_end(case for case in cases() if case[0] == "collective")

    def test_strategies(self):
        self.all_end(case for case in cases() if case[0] == "strategy")

    def test_before_any_option_is_known(self):
        """In the process that wants to work with the plugin: the child that tries it sees nothing wrong."""
        deeds = (("exit", FAILED), ("leave", FAILED), ("crash", -signal.SIGSEGV), ("hang", PEER_LOST))
        self.all_end([("device", f"{call}-{deed}", expect) for call in ("constructor", "entry") for deed, expect in deeds],
                     by_environment=True)

    def test_after_main(self):
        outcomes = self.all_end([("device", "destructor-crash", -signal.SIGSEGV), ("device", "destructor-hang", PEER_LOST)],
                                by_environment=True)
        for fault, event in (("destructor-crash", "crashed (SIGSEGV)"), ("destructor-hang", "hangs")):
            if fault in outcomes:
                self.assertRegex(outcomes[fault][1][-1], r"^lockstep: error: one of the plugins [\w, -]+ and [\w-]+ "
                                 + re.escape(event) + " while the program ended$")

    def test_a_crash_after_main_where_one_plugin_was_loaded(self):
        if SANITIZE != "none":
            self.skipTest("the sanitizer reports it")
        for command in ("verify", "simulate"):
            outcome = self.lockstep(command, os.path.join(HOSTILE, "collective-hostile-collective.so"), "--world=2",
                                    environment={"LOCKSTEP_HOSTILE": "destructor-crash"})
            self.assertEqual((outcome.code, outcome.err), (-signal.SIGSEGV, "lockstep: error: plugin collective-hostile-collective "
                                                           "crashed (SIGSEGV) while the program ended\n"), command)

    def test_the_watchdog_leaves_slow_ones_alone(self):
        """A step that takes longer than the deadline, in calls that do not."""
        code, lines, seconds = train("device", "launch-slow", self.path("r.json"))
        self.assertEqual((code, lines), (DONE, []))
        self.assertGreater(seconds, DEADLINE)

    def test_a_wait_that_fails_is_said_once(self):
        """Though a rank asks the transport again, to leave it. Both ranks may have been waiting when it failed."""
        for deed in ("silent", "unknown"):
            code, lines, _ = train("transport", f"wait_any-{deed}", self.path("r.json"))
            self.assertEqual(code, FAILED, lines)
            said_by = [re.search(r"\[rank \d\]", line).group() for line in lines if "`wait_any`" in line]
            self.assertTrue(said_by, lines)
            self.assertEqual(len(said_by), len(set(said_by)), lines)

    def test_texts_of_a_plugin_move_no_cursor(self):
        for command in (("plugins",), ("plugins", "hostile-device")):
            outcome = self.lockstep(*command, "--plugin-path=" + HOSTILE)
            self.assertEqual(outcome.code, DONE, outcome.err)
            self.assertIn("hostile-device", outcome.out)
            self.assertFalse([letter for letter in outcome.out if ord(letter) < 32 and letter != "\n"])
            self.assertIn("1?[31m", outcome.out)


class OtherCommands(ProgramTest):
    """Who ends the program ends no command with 0."""

    def setUp(self):
        super().setUp()
        if SANITIZE != "none":
            self.skipTest("the sanitizer has an exit() of its own")

    def test_a_collective(self):
        path = os.path.join(HOSTILE, "collective-hostile-collective.so")
        for deed in ("exit", "leave"):
            name = f"hostile-collective:fault=build_schedule-{deed}"
            for command in (("simulate", name, "--network=flat", "--world=4", "--bytes=1K"),
                            ("bench", name, "--replicas=2", "--bytes=1K"),
                            ("verify", name, "--world=2")):
                with self.subTest(f"{command[0]} {deed}"):
                    outcome = self.lockstep(*command, "--plugin-path=" + HOSTILE, timeout=60)
                    self.assertNotEqual(outcome.code, DONE, outcome.out)
                    self.assertIn("hostile-collective", outcome.err + outcome.out)
                    self.assertRegex(outcome.err + outcome.out, "exit|ended")
            self.assertTrue(os.path.exists(path))

    def test_a_child_of_a_plugin_may_end_as_it_likes(self):
        outcome = self.lockstep("train", "--model=mlp", "--dataset=synthetic:examples=64", "--replicas=2", "--steps=1",
                                "--strategy=hostile:fault=open-child", "--plugin-path=" + HOSTILE, "--threads=1",
                                "--validation=off", timeout=120)
        self.assertEqual(outcome.code, DONE, outcome.err)
        self.assertNotIn("exit", outcome.err)

    def test_compare_says_which_run_ended(self):
        for deed in ("exit", "leave"):
            with self.subTest(deed):
                outcome = self.lockstep("compare", "--model=mlp", "--dataset=synthetic:examples=64", "--replicas=2",
                                        f"--strategies=ring,hostile:fault=end_step-{deed}", "--steps=3", UNTIMED,
                                        "--plugin-path=" + HOSTILE, "--threads=1", "--validation=off", timeout=120)
                said = " ".join((outcome.out + outcome.err).split())
                self.assertIn(f"hostile:fault=end_step-{deed} failed: ", said)
                self.assertIn("plugin strategy-hostile called exit(0), which ends the program, in `end_step`", said)

    def test_plugin_check(self):
        path = os.path.join(HOSTILE, "device-hostile-device.so")
        for call in ("constructor", "entry", "probe"):
            with self.subTest(call):
                outcome = self.lockstep("plugin", "check", path, environment={"LOCKSTEP_HOSTILE": call + "-leave"}, timeout=120)
                self.assertNotEqual(outcome.code, DONE, outcome.out)
                self.assertTrue(outcome.err + outcome.out)


if __name__ == "__main__":
    main()
