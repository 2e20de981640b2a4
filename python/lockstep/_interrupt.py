# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while the library works.

Python runs a handler of a signal only when its main thread is back from C, which is after the training. But its C handler writes the
number of the signal to the wakeup file descriptor at once. So a thread waits there and asks the library to end after the current step;
when the call has returned, the handler that was there before runs, and raises KeyboardInterrupt.
"""
import os
import signal
import threading
from types import FrameType
from typing import Any, Callable, Optional


class Interruptible:
    """`with Interruptible(interrupt):` around a call of the main thread; elsewhere, and where the program ignores SIGINT, it does
    nothing. `interrupt` is called by another thread, at most once for each signal."""

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self.interrupt = interrupt
        self.signalled = False
        self.in_python = False  # a callback of the program runs on the main thread
        self.before: Any = None
        self.wakeup_before = -1
        self.thread: Optional[threading.Thread] = None

    def __enter__(self) -> "Interruptible":
        if threading.current_thread() is not threading.main_thread() or not callable(signal.getsignal(signal.SIGINT)):
            return self
        self.before = signal.signal(signal.SIGINT, self.note)
        self.read, self.write = os.pipe()
        os.set_blocking(self.write, False)
        self.wakeup_before = signal.set_wakeup_fd(self.write, warn_on_full_buffer=False)
        self.thread = threading.Thread(target=self.watch, name="lockstep-interrupt", daemon=True)
        self.thread.start()
        return self

    def note(self, number: int, frame: Optional[FrameType]) -> None:
        """The handler of the call. In a callback the program is interrupted where it is."""
        self.signalled = True
        if self.in_python:
            self.before(number, frame)

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
        if not self.thread:
            return
        signal.set_wakeup_fd(self.wakeup_before)
        os.close(self.write)
        self.thread.join()
        os.close(self.read)
        signal.signal(signal.SIGINT, self.before)
        if self.signalled and error is None:
            self.before(int(signal.SIGINT), None)
