# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while the library works: KeyboardInterrupt after the step under way, and the model goes on."""
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy_python
from support import ProgramTest, main

SECONDS = 60  # for what takes one
BEGIN = """
import os, signal, sys, threading, time
import numpy, lockstep
L = lockstep.layers
random = numpy.random.default_rng(3)
x, y = random.random((256, 8), dtype="float32"), random.integers(0, 4, 256)
model = lockstep.Sequential([L.Input((8,)), L.Dense(4)], device="cpu", threads=1, seed=5)
endless = dict(epochs=10**7, verbose=0)

def say(*words):
    print(*words, flush=True)

def works_on():
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.set_wakeup_fd(-1) == -1
    assert len(model.fit(x, y, epochs=2, verbose=0).epoch) == 2
    assert model.predict(x).shape == (256, 4)
    say("works on with", threading.active_count(), "thread")
"""


class Interruption(ProgramTest):
    def start(self, text):
        path = self.path("script.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(BEGIN + textwrap.dedent(text))
        process = subprocess.Popen([sys.executable, path], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=dict(os.environ, PYTHONPATH=numpy_python.PACKAGE))
        self.addCleanup(process.kill)
        return process

    def interrupt(self, text, signals=1):
        """A program that says "ready" each time it is to be interrupted; what it says afterwards."""
        process, begin = self.start(text), time.monotonic()
        for _ in range(signals):
            self.assertEqual(process.stdout.readline(), "ready\n", "the program ended")
            time.sleep(0.2)
            begin = time.monotonic()
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=SECONDS)
        self.assertEqual(process.returncode, 0, out + err)
        self.assertLess(time.monotonic() - begin, SECONDS)
        self.assertNotIn("Traceback", err)
        return out.splitlines()

    def test_fit_ends_and_keeps_what_it_learnt(self):
        said = self.interrupt("""
            before = model.get_weights()[0]
            for _ in range(2):
                try:
                    model.fit(x, y, callbacks=[lockstep.Callback(on_train_begin=lambda logs: say("ready"))], **endless)
                except KeyboardInterrupt:
                    assert len(model.history().losses) > 0
                    assert (model.get_weights()[0] != before).any()
            works_on()
            """, signals=2)
        self.assertEqual(said, ["works on with 1 thread"])

    def test_handlers_of_other_signals_run_between_epochs(self):
        """One that goes on, and one that ends the call, with a callback and without."""
        process = self.start("""
            class Preempted(Exception):
                pass

            def preempt(number, frame):
                raise Preempted(number)

            seen = []
            signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
            signal.signal(signal.SIGTERM, preempt)

            def later():
                for number in (signal.SIGUSR1, signal.SIGTERM):
                    time.sleep(0.2)
                    os.kill(os.getpid(), number)

            for call in (lambda: model.fit(x, y, **endless), lambda: model.fit(x, y, **dict(endless, verbose=1)),
                         lambda: model.fit(x, y, callbacks=[lockstep.Callback(on_epoch_end=lambda *_: None)], **endless)):
                threading.Thread(target=later).start()
                begin = time.monotonic()
                try:
                    call()
                except Preempted as error:
                    assert error.args == (signal.SIGTERM,) and time.monotonic() - begin < 20
                    sys.stderr.write("preempted\\n")
            assert signal.getsignal(signal.SIGTERM) is preempt and len(seen) == 3
            works_on()
            """)
        out, err = process.communicate(timeout=2 * SECONDS)
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual(err.splitlines(), 3 * ["preempted"], err)
        self.assertTrue(out.endswith("works on with 1 thread\n"), out[-200:])

    def test_evaluate_and_predict_end(self):
        said = self.interrupt("""
            big = numpy.zeros((2_000_000, 8), dtype="float32")
            for call in (lambda: model.predict(big), lambda: model.evaluate(big, numpy.zeros(len(big), dtype="int32"), verbose=0)):
                say("ready")
                try:
                    while True:
                        call()
                except KeyboardInterrupt:
                    pass
            works_on()
            """, signals=2)
        self.assertEqual(said, ["works on with 1 thread"])

    def test_none_is_lost_between_calls(self):
        """Whether Python or C runs when it comes, such as C that gives arrays back."""
        said = self.interrupt("""
            caught = threading.Event()

            def send():
                for number in range(1000):
                    time.sleep(0.003 * random.random())
                    caught.clear()
                    os.kill(os.getpid(), signal.SIGINT)
                    if not caught.wait(30):
                        say("signal", number, "was lost")
                        os._exit(1)
                say("all were caught")
                os._exit(0)

            model.evaluate(x, y, verbose=0)
            threading.Thread(target=send).start()
            while True:
                try:
                    while True:
                        model.evaluate(x, y, verbose=0)
                except KeyboardInterrupt:
                    caught.set()
            """, signals=0)
        self.assertEqual(said, ["all were caught"])

    def test_a_callback_is_interrupted_where_it_is(self):
        said = self.interrupt("""
            def sleep(epoch, logs):
                say("ready")
                try:
                    time.sleep(1000)
                except KeyboardInterrupt:
                    say("in the callback")
                    raise
            try:
                model.fit(x, y, callbacks=[sleep], **endless)
            except KeyboardInterrupt:
                works_on()
            """)
        self.assertEqual(said, ["in the callback", "works on with 1 thread"])

    def test_a_generator_does_not_keep_it_from_ending(self):
        said = self.interrupt("""
            def slow():
                while True:
                    time.sleep(0.01)
                    yield x[:32], y[:32]
            say("ready")
            try:
                model.fit(slow, steps_per_epoch=100, batch_size=32, **endless)
            except KeyboardInterrupt:
                works_on()
            """)
        self.assertEqual(said, ["works on with 1 thread"])

    def test_a_handler_of_the_program_hears_of_it_and_so_does_its_wakeup(self):
        said = self.interrupt("""
            read, write = os.pipe()
            os.set_blocking(write, False)
            signal.set_wakeup_fd(write)
            signal.signal(signal.SIGINT, lambda number, frame: say("heard", number))
            try:
                model.fit(x, y, callbacks=[lockstep.Callback(on_train_begin=lambda logs: say("ready"))], **endless)
            except KeyboardInterrupt:
                say("ended", os.read(read, 9))
            assert signal.set_wakeup_fd(-1) == write
            """)
        self.assertEqual(said, [f"heard {int(signal.SIGINT)}", "ended b'\\x02'"])

    def test_who_ignores_it_is_not_interrupted(self):
        said = self.interrupt("""
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            say("ready")
            began = time.monotonic()
            while time.monotonic() < began + 1:
                model.fit(x, y, epochs=20, verbose=0)
            say("done")
            """)
        self.assertEqual(said, ["done"])

    def test_interruptions_at_any_moment_leave_no_trace(self):
        """Many fits that end at about the time at which the signal comes."""
        process = self.start("""
            inside = False
            def raise_in_fit(number, frame):
                global inside
                if inside:
                    inside = False
                    raise KeyboardInterrupt
            signal.signal(signal.SIGINT, raise_in_fit)
            say("ready")
            interrupted = done = 0
            end = time.monotonic() + 3
            while time.monotonic() < end:
                try:
                    inside = True
                    model.fit(x, y, verbose=0)
                    inside = False
                    done += 1
                except KeyboardInterrupt:
                    interrupted += 1
            say("quiet")
            time.sleep(1)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            assert interrupted > 20 and done > 20, (interrupted, done)
            works_on()
            """)
        self.assertEqual(process.stdout.readline(), "ready\n")
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            process.send_signal(signal.SIGINT)
            time.sleep(0.013)
        self.assertEqual(process.stdout.readline(), "quiet\n")
        out, err = process.communicate(timeout=SECONDS)
        self.assertEqual((process.returncode, out.splitlines()[-1:]), (0, ["works on with 1 thread"]), out + err)

    def test_commands_end_with_the_program(self):
        said = self.interrupt("""
            from lockstep import _native
            say("ready")
            try:
                lockstep.compare("mlp", "synthetic:examples=60000", steps=10**6, strategies="ring", speed_steps=0)
            except KeyboardInterrupt:
                say("ended")
            """)
        self.assertEqual(said, ["ended"])


if __name__ == "__main__":
    main()
