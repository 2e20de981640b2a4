# SPDX-License-Identifier: Apache-2.0
"""Exceptions: one for each status that a call of Lockstep returns."""
from typing import Dict, Type


class LockstepError(RuntimeError):
    """What every failure of Lockstep is. `message` is its line, `status` the number of enum ls_status."""

    status = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message

    def reword(self, old: str, new: str) -> None:
        """Says it in the words of the caller."""
        self.message = self.message.replace(old, new)
        self.args = (self.message,)

    def add(self, more: str) -> None:
        """Says more of it."""
        self.message += more
        self.args = (self.message,)


class UsageError(LockstepError, ValueError):
    """An option, a value, a model, loss, metric or optimizer that does not exist."""

    status = 2


class InputError(LockstepError, ValueError):
    """A file or an array that is missing, malformed or does not fit."""

    status = 3


class UnavailableError(LockstepError):
    """A plugin (also a strategy, collective, device or callback by a wrong name), library or hardware that is not here."""

    status = 4


class PeerLostError(LockstepError):
    """A peer died, or a deadline passed."""

    status = 5


class OutOfMemoryError(LockstepError, MemoryError):
    """There is no memory for this."""

    status = 6


class AbortedError(LockstepError):
    """Another rank failed first, which has said why."""

    status = 7


class UnsupportedError(LockstepError):
    """Well-formed, but not done by this part of Lockstep."""

    status = 8


class CommandError(LockstepError):
    """The command `lockstep` ended with an exit code that has no exception of its own, which is `status`."""

    def __init__(self, message: str = "", status: int = 1) -> None:
        super().__init__(message)
        self.status = status


BY_STATUS: Dict[int, Type[LockstepError]] = {
    error.status: error
    for error in (LockstepError, UsageError, InputError, UnavailableError, PeerLostError, OutOfMemoryError, AbortedError, UnsupportedError)
}

for _error in (*BY_STATUS.values(), CommandError):
    _error.__module__ = "lockstep"  # where programs find them
