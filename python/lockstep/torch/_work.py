# SPDX-License-Identifier: Apache-2.0
"""What a collective or a message returns: an operation that goes on by itself in C, and the torch.distributed.Work over it."""
import threading
import time
from typing import Any, Callable, List, Optional

import torch
import torch.distributed as dist
from torch.futures import Future

from .. import _comm, _native
from .._errors import LockstepError, PeerLostError

POLL = 0.02  # seconds: how late the future of an operation may be whose predecessor is not over
STOP = 5.0  # seconds, at most, until the thread of futures has ended
MANY = 32  # operations that nobody waited for, before it is looked which are over


class Operation:
    """Handles of works in C, what they need until they are over (`keep`), and what then remains to be done (`finish`)."""

    __slots__ = ("communicator", "handles", "keep", "finish", "error", "over", "begin", "limit", "lock")

    def __init__(self, communicator: _comm.Communicator, handles: List[Any], keep: Any, finish: Optional[Callable[[], Any]]) -> None:
        self.communicator = communicator
        self.handles = handles
        self.keep = keep
        self.finish = finish
        self.error: Optional[BaseException] = None
        self.over = False
        self.begin = time.monotonic()
        self.limit = communicator.deadline
        self.lock = threading.Lock()

    def poll(self, seconds: float) -> bool:
        """Whether it is over, after at most so many seconds. [any thread]"""
        if self.over:
            return True
        wait = self.communicator.calls.work_wait
        end = time.monotonic() + seconds if seconds else 0.0
        for handle in self.handles:
            status = wait(handle, seconds)
            if status == _comm.AGAIN:
                return False
            if status:
                self._fail(status)
                return True
            if seconds:
                seconds = max(0.0, end - time.monotonic())
        self._finish()
        return True

    def wait(self, seconds: Optional[float] = None) -> None:
        """Raises what went wrong. In slices, so that Ctrl-C is heard."""
        if not self.over:
            end = None if seconds is None else time.monotonic() + seconds
            while not self.poll(_comm.SLICE if end is None else max(0.0, min(_comm.SLICE, end - time.monotonic()))):
                if end is not None and time.monotonic() >= end:
                    raise RuntimeError(f"Timed out waiting {round(seconds * 1000)}ms for an operation of the process group")
        if self.error is not None:
            raise self.error

    def _fail(self, status: int) -> None:
        with self.lock:
            if not self.over:
                self.error = failure(self.communicator, status, time.monotonic() - self.begin, self.limit)
                self._hand_over()
                self.finish = None
                self.over = True

    def _hand_over(self) -> None:
        """Of several handles others may go on, and need their buffers until their own end."""
        _unsettled[:] = [one for one in _unsettled if not one.poll(0.0)]
        rest = [handle for handle in self.handles if self.communicator.calls.work_wait(handle, 0.0) == _comm.AGAIN]
        if rest:
            self.handles = [handle for handle in self.handles if handle not in rest]
            _unsettled.append(Operation(self.communicator, rest, self.keep, None))
        self.keep = None

    def _finish(self) -> None:
        with self.lock:
            if self.over:
                return
            try:
                if self.finish is not None:
                    with torch.no_grad():
                        self.finish()
            except BaseException as error:  # whoever waits gets it, on whatever thread the end was seen
                self.error = error
            self.keep = self.finish = None
            self.over = True


_unsettled: List[Operation] = []


def failure(communicator: _comm.Communicator, status: int, seconds: float, limit: float) -> BaseException:
    """The exception for a status; that of a passed deadline says "Timed out waiting", for which programs look."""
    error = _native.error_of(status)
    if isinstance(error, LockstepError):
        error.reword("raise deadline_seconds", "raise the timeout of the process group")
    if status == _comm.PEER_LOST and seconds + 2 * _comm.SLICE >= limit and not communicator.job.lost():
        name, _, sentence = str(error).partition(": ")
        return PeerLostError(f"{name}: Timed out waiting {round(limit * 1000)}ms: {sentence}")
    return error


class Work(dist.Work):
    """torch.distributed.Work over an operation. `outputs` is its result."""

    def __init__(self, operation: Operation, outputs: Any, waiter: "Waiter") -> None:
        super().__init__()
        self._operation = operation
        self._outputs = outputs
        self._waiter = waiter
        self._future: Optional[Future] = None

    def wait(self, timeout: Any = None) -> bool:
        seconds = timeout.total_seconds() if timeout is not None else 0.0
        self._operation.wait(seconds if seconds > 0 else None)
        return True

    def is_completed(self) -> bool:
        return self._operation.poll(0.0)

    def is_success(self) -> bool:
        return self._operation.over and self._operation.error is None

    def exception(self) -> Optional[BaseException]:
        return self._operation.error

    def synchronize(self) -> None:
        self.wait()

    def source_rank(self) -> int:
        """Of a receive that is over."""
        operation = self._operation
        return int(operation.communicator.calls.work_source(operation.handles[0]))

    _source_rank = source_rank

    def result(self) -> Any:
        self.wait()
        return self._outputs

    def get_future(self) -> Future:
        if self._future is None:
            self._future = self._waiter.future(self._operation, self._outputs)
        return self._future

    def get_future_result(self) -> Future:
        return self.get_future()

    def abort(self) -> None:
        self._operation.communicator.abort()


class Waiter:
    """Completes futures of a process group. Of its threads one looks which operation is over, and leaves that to another one before it
    completes the future: functions that were given to `then` run on the thread that does, and may wait for other futures."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # of what follows
        self._waiting: List[Any] = []  # (operation, future), in the order in which they came
        self._threads: List[threading.Thread] = []
        self._free = 0  # of these: that neither look nor complete a future
        self._looking = False
        self._stopped = False

    def future(self, operation: Operation, outputs: Any) -> Future:
        begun: Future = Future()

        def result(_: Future) -> Any:  # only a callback that raises makes C++ see an error in a future
            if operation.error is not None:
                raise operation.error
            if not operation.over:
                raise RuntimeError("the process group was closed before the operation was over")
            return outputs

        future = begun.then(result)
        if operation.poll(0.0):
            begun.set_result(None)
            return future
        with self._changed:
            self._waiting.append((operation, begun))
            self._need_thread()
        return future

    def stop(self) -> None:
        """After the operations have ended. A thread that Python's end finds in C++ would abort the process, so it is waited for."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            threads = list(self._threads)
        end = time.monotonic() + STOP
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))

    def _need_thread(self) -> None:
        """The lock is held."""
        if self._looking or not self._waiting:
            return
        if self._free:
            self._changed.notify()
            return
        self._free += 1
        thread = threading.Thread(target=self._run, name="lockstep-futures", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self) -> None:
        while self._take_turn():
            begun = self._look()
            with self._changed:
                self._looking = False
                self._need_thread()
            begun.set_result(None)
            del begun  # with what its functions keep
            with self._changed:
                self._free += 1

    def _take_turn(self) -> bool:
        """Whether this thread is to look; else there is nothing left to do."""
        with self._changed:
            while self._looking or not self._waiting:
                if self._stopped:
                    return False
                self._changed.wait()
            self._looking = True
            self._free -= 1
            return True

    def _look(self) -> Future:
        """The future of an operation that is over."""
        while True:
            with self._changed:
                waiting, stopped = list(self._waiting), self._stopped
            # The first one is usually the next to end; others, behind a message that does not come, are looked at in between.
            waiting[0][0].poll(1.0 if stopped else POLL)
            for entry in waiting:
                if entry[0].poll(0.0) or stopped:
                    with self._changed:
                        self._waiting.remove(entry)
                    return entry[1]
