# SPDX-License-Identifier: Apache-2.0
"""Jobs and communicators of lockstep.h (ls_job_..., ls_comm_...) for Python: processes that communicate without a model.

Buffers are addresses (int). A call that starts an operation fills in a Work; until that is over its buffers must stay.
"""
import ctypes
import weakref
from ctypes import POINTER, byref, c_char_p, c_double, c_int32, c_size_t, c_ubyte, c_uint32, c_uint64, c_void_p
from os import getpid
from typing import Any, Optional, Sequence

from . import _native

OK = 0
PEER_LOST = 5
AGAIN = 9
ANY_RANK = 0xFFFFFFFF
LONGEST = 1e6  # seconds: of a deadline
SLICE = 0.1  # seconds: how long a wait stays in C, where Python's signal handlers do not run


class JobOptions(ctypes.Structure):
    _fields_ = [("rank", c_uint32), ("size", c_uint32), ("address", c_char_p), ("listen_fd", c_int32), ("secret", c_char_p),
                ("insecure", c_uint32), ("join_seconds", c_double), ("deadline_seconds", c_double), ("lost_after_seconds", c_double),
                ("network", c_char_p), ("plugin_path", c_char_p)]


class CommOptions(ctypes.Structure):
    _fields_ = [("collective", c_char_p), ("transport", c_char_p), ("plugin_path", c_char_p), ("size", c_uint32),
                ("deadline_seconds", c_double), ("name", c_char_p), ("job", c_void_p), ("members", POINTER(c_uint32)),
                ("messages", c_uint32)]


OUT = POINTER(c_void_p)
BUFFER = (c_void_p, c_void_p, c_uint64, c_char_p)  # communicator, buffer, count, dtype
SIGNATURES = {
    "ls_job_open_sized": (c_int32, (POINTER(JobOptions), c_size_t, OUT)),
    "ls_job_close": (None, (c_void_p,)),
    "ls_job_lost": (c_char_p, (c_void_p,)),
    "ls_job_give_up": (None, (c_void_p, c_char_p)),
    "ls_job_allocate": (c_int32, (c_void_p, c_uint64, OUT)),
    "ls_job_free": (None, (c_void_p,)),
    "ls_comm_open_sized": (c_int32, (POINTER(CommOptions), c_size_t, OUT)),
    "ls_comm_close": (None, (c_void_p,)),
    "ls_comm_abort": (None, (c_void_p,)),
    "ls_comm_about": (c_char_p, (c_void_p,)),
    "ls_comm_set_deadline": (None, (c_void_p, c_double)),
    "ls_comm_start_all_reduce": (c_int32, (*BUFFER, c_char_p, OUT)),
    "ls_comm_start_reduce": (c_int32, (*BUFFER, c_char_p, c_uint32, OUT)),
    "ls_comm_start_broadcast": (c_int32, (*BUFFER, c_uint32, OUT)),
    "ls_comm_start_all_gather": (c_int32, (*BUFFER, c_void_p, OUT)),
    "ls_comm_start_reduce_scatter": (c_int32, (*BUFFER, c_char_p, c_void_p, OUT)),
    "ls_comm_start_barrier": (c_int32, (c_void_p, OUT)),
    "ls_comm_start_send": (c_int32, (c_void_p, c_void_p, c_uint64, c_uint32, c_uint64, OUT)),
    "ls_comm_start_receive": (c_int32, (c_void_p, c_void_p, c_uint64, c_uint32, c_uint64, OUT)),
    "ls_comm_work_wait": (c_int32, (c_void_p, c_double)),
    "ls_comm_work_source": (c_uint32, (c_void_p,)),
    "ls_comm_work_free": (None, (c_void_p,)),
}


class _Calls:
    """The functions above, without their prefix, once the library is open."""

    def __init__(self) -> None:
        library = _native.library()
        for name, (result, arguments) in SIGNATURES.items():
            try:
                function = library[name]  # an object of its own: the signature stays ours
            except AttributeError:
                raise _native.UnavailableError(f"{_native.library_path()} has no {name}: it is older than this package") from None
            function.restype, function.argtypes = result, arguments
            setattr(self, name[len("ls_"):].replace("comm_", "", 1), function)


_calls: Optional[_Calls] = None


def calls() -> "_Calls":
    global _calls
    if _calls is None:
        _calls = _Calls()
        Work.free = staticmethod(_calls.work_free)
    return _calls


def _text(value: Optional[str]) -> Optional[bytes]:
    return _native.encode(value) if value else None


def check_deadline(seconds: float) -> None:
    if seconds > LONGEST:
        raise _native.UsageError(f"a timeout of {seconds:.0f} s: expected at most {LONGEST:.0f} s, which is eleven days")


class Work(c_void_p):
    """ls_comm_work: freed with the last reference to it, so never while a thread waits for it."""

    process = 0
    free: Any = None

    def __del__(self) -> None:
        if self.process == getpid():  # not in a forked child
            self.free(self)


class _Opened:
    """What this process opened. A forked child has neither its threads nor its connections, so it closes nothing."""

    def __init__(self) -> None:
        self.calls = calls()
        self.handle = c_void_p()
        self.process = getpid()

    def ours(self) -> bool:
        return bool(self.handle) and self.process == getpid()

    def need(self, what: str) -> None:
        """In a child an operation would take the place of one of the parent's, which would have a wrong result."""
        if not self.handle:
            raise _native.UsageError(f"the {what} is closed: make a new one")
        if self.process != getpid():
            raise _native.UsageError(f"a forked process has no part in the {what} of its parent: make a new one")


class Job(_Opened):
    """ls_job: this process among others."""

    def __init__(self, rank: int, size: int, address: Optional[str] = None, listen_fd: int = 0, secret: Optional[str] = None,
                 join_seconds: float = 0, lost_after_seconds: float = 0, network: Optional[str] = None,
                 plugin_path: Optional[str] = None) -> None:
        super().__init__()
        options = JobOptions(rank=rank, size=size, address=_text(address), listen_fd=listen_fd, secret=_text(secret),
                             join_seconds=join_seconds, lost_after_seconds=lost_after_seconds, network=_text(network),
                             plugin_path=_text(plugin_path))
        _native.check(self.calls.job_open_sized(byref(options), ctypes.sizeof(options), byref(self.handle)))

    def lost(self) -> Optional[str]:
        """The sentence that names who is lost."""
        said = self.calls.job_lost(self.handle) if self.handle else None
        return said.decode("utf-8", "replace") if said else None

    def give_up(self, why: str) -> None:
        if self.ours():
            self.calls.job_give_up(self.handle, why.encode())

    def allocate(self, bytes: int) -> ctypes.Array:
        """Memory that the other processes of this host reach. It lives as long as something refers to the array."""
        self.need("process group")
        address = c_void_p()
        _native.check(self.calls.job_allocate(self.handle, bytes, byref(address)))
        memory = (c_ubyte * bytes).from_address(address.value or 0)
        weakref.finalize(memory, self.calls.job_free, address.value).atexit = False  # the process ends with it
        return memory

    def close(self) -> None:
        if self.ours():
            self.calls.job_close(self.handle)
        self.handle = c_void_p()


class Communicator(_Opened):
    """ls_comm of one process: of `members` of a job in the order of their ranks, or of all."""

    def __init__(self, job: Job, name: str, members: Sequence[int] = (), collective: Optional[str] = None, transport: Optional[str] = None,
                 plugin_path: Optional[str] = None, deadline: float = 0) -> None:
        super().__init__()
        self.job = job
        self.deadline = deadline
        numbers = (c_uint32 * len(members))(*members) if members else None
        options = CommOptions(collective=_text(collective), transport=_text(transport), plugin_path=_text(plugin_path),
                              size=len(members), deadline_seconds=deadline, name=_text(name), job=job.handle, members=numbers, messages=1)
        _native.check(self.calls.open_sized(byref(options), ctypes.sizeof(options), byref(self.handle)))

    def start(self, call: Any, *arguments: Any) -> Work:
        """By one of the functions start_..., which may refuse: then LockstepError."""
        if not self.ours():
            self.need("process group")
        work = Work()
        status = call(self.handle, *arguments, byref(work))
        if status:
            raise _native.error_of(status)
        work.process = self.process
        return work

    def about(self) -> str:
        self.need("process group")
        return self.calls.about(self.handle).decode("utf-8", "replace")

    def set_deadline(self, seconds: float) -> None:
        """Of operations that begin from now on."""
        if seconds != self.deadline and self.ours():
            check_deadline(seconds)
            self.deadline = seconds
            self.calls.set_deadline(self.handle, seconds)

    def abort(self) -> None:
        if self.ours():
            self.calls.abort(self.handle)

    def close(self) -> None:
        if self.ours():
            self.calls.close(self.handle)
        self.handle = c_void_p()
