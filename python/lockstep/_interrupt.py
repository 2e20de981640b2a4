# SPDX-License-Identifier: Apache-2.0
"""Signals while the library works.

Python runs a handler of a signal only when its main thread is back from C, which is after the training. But its C handler writes the
number of the signal to the wakeup file descriptor at once. So a thread waits there for Ctrl-C and asks the library to end after the
current step; when the call has returned, the handler that was there before runs, and raises KeyboardInterrupt.

Handlers of other signals run where `handle` is called, in callbacks on the main thread, and after the call: only they know whether the
training is to end, by an exception, which comes out of the call.
"""
import os
import signal
import threading
from types import FrameType
from typing import Any, Callable, Dict, List, Optional


def handled_signals() -> List[int]:
    """Those other than SIGINT that the program has a handler for; none where it would not run: Python has them on the main thread."""
    if threading.current_thread() is not threading.main_thread():
        return []
    return [number for number in signal.valid_signals() if number != signal.SIGINT and callable(signal.getsignal(number))]


class Interruptible:
    """`with Interruptible(interrupt):` around a call of the main thread; elsewhere it does nothing. `interrupt` is called for each SIGINT,
    by another thread or before the call begins, unless the program ignores it."""

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self.interrupt = interrupt
        self.signalled = False  # by SIGINT
        self.in_python = False  # a callback of the program runs on the main thread
        self.before: Dict[int, Any] = {}  # the handlers
        self.pending: List[int] = []
        self.wakeup_before = -1
        self.thread: Optional[threading.Thread] = None

    def __enter__(self) -> "Interruptible":
        numbers = handled_signals()
        watches = threading.current_thread() is threading.main_thread() and callable(signal.getsignal(signal.SIGINT))
        if watches:
            numbers.insert(0, int(signal.SIGINT))
        for number in numbers:
            self.before[number] = signal.signal(number, self.note)
        if watches:
            self.read, self.write = os.pipe()
            os.set_blocking(self.write, False)
            self.wakeup_before = signal.set_wakeup_fd(self.write, warn_on_full_buffer=False)
            self.thread = threading.Thread(target=self.watch, name="lockstep-interrupt", daemon=True)
            self.thread.start()
            if self.signalled:  # before the thread could hear of it
                self.interrupt()
        return self

    def note(self, number: int, frame: Optional[FrameType]) -> None:
        """The handler of the call. A callback of the program is interrupted where it is."""
        if number == signal.SIGINT:
            self.signalled = True
        if self.in_python:
            self.before[number](number, frame)
        elif number != signal.SIGINT:
            self.pending.append(number)

    def handle(self) -> None:
        """Runs the handlers of signals other than SIGINT that have come. What they raise is the caller's."""
        while self.pending:
            number = self.pending.pop(0)
            self.before[number](number, None)

    def watch(self) -> None:
        while True:
            numbers = os.read(self.read, 64)
            if not numbers:
                return
            if signal.SIGINT in numbers:
                self.interrupt()
            if self.wakeup_before >= 0:
                try:
                    os.write(self.wakeup_before, numbers)
                except OSError:  # full, or closed meanwhile
                    pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self.thread:
            signal.set_wakeup_fd(self.wakeup_before)
            os.close(self.write)
            self.thread.join()
            os.close(self.read)
        for number, handler in self.before.items():
            signal.signal(number, handler)
        self.handle()
        if self.signalled and error is None:
            self.before[signal.SIGINT](int(signal.SIGINT), None)
