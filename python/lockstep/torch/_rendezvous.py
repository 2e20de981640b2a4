# SPDX-License-Identifier: Apache-2.0
"""How the processes of a group find each other: through PyTorch's own store, they learn where process 0 of the job listens."""
import atexit
import ctypes
import os
import secrets
import socket
import sys
import threading
from datetime import timedelta
from typing import Any, Dict, List, Optional, Set

import torch.distributed as dist

from .. import _comm, _native
from ._group import Core
from ._options import Settings
from ._work import Operation

BOOT = "/proc/sys/kernel/random/boot_id"
LOOPBACK = "127.0.0.1"
PROBE = 1000  # elements
JOIN_SECONDS = 60.0  # at most, to connect, once everybody is known to be there

_lock = threading.Lock()
_default: Optional["SharedJob"] = None  # that of the default group, in which groups of some of its processes live
_turns: Dict[str, int] = {}
_open: Set[Core] = set()  # C++ keeps only its own half of a Python object: what is here keeps the other, until it is closed


class SharedJob:
    """A job, closed with the last of the groups that use it."""

    def __init__(self, job: _comm.Job) -> None:
        self.job = job
        self.groups = 0

    def leave(self) -> None:
        global _default
        with _lock:
            self.groups -= 1
            last = self.groups == 0
            if last and _default is self:
                _default = None
        if last:
            self.job.close()


def host_identity() -> str:
    """The same for processes that reach each other by loopback."""
    try:
        with open(BOOT, encoding="ascii") as file:
            boot = file.read().strip()
    except OSError:
        boot = ""
    try:
        boot += ":" + os.readlink("/proc/self/ns/net")
    except OSError:
        pass
    return f"{socket.gethostname()}:{boot}"


def store_host(store: Any) -> Optional[str]:
    """The host of a TCPStore behind any prefixes."""
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    return store.host if isinstance(store, dist.TCPStore) else None


def own_address(store: Any) -> str:
    """The address by which this process reaches the store, which is one by which the others reach this process."""
    host = store_host(store) or socket.gethostname()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))
            return probe.getsockname()[0]
        except OSError as error:
            raise _native.UnavailableError(f"lockstep: no address of this host is known to the other ranks: {host}: {error}; name one by "
                                           f"MASTER_ADDR") from None


def listen(address: str) -> socket.socket:
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address, 0))
    server.listen(1024)
    return server


def meet(store: Any, rank: int, size: int, timeout: timedelta, settings: Settings) -> _comm.Job:
    """Opens the job of `size` processes. What is in the store of it must be of this time, see turn_of."""
    if size == 1:
        return _comm.Job(0, 1, network=settings.network, plugin_path=settings.plugin_path)
    _comm.calls()  # a library that is not here is said before others wait
    seconds = min(JOIN_SECONDS, timeout.total_seconds())
    common = {"join_seconds": seconds, "network": settings.network, "plugin_path": settings.plugin_path}
    store.set(f"host/{rank}", host_identity())
    if rank:
        address, secret = store.get("address").decode().split(" ")
        return _comm.Job(rank, size, address=address, secret=secret, **common)
    hosts = {bytes(store.get(f"host/{peer}")) for peer in range(size)}
    server = listen(LOOPBACK if len(hosts) == 1 else own_address(store))
    host, port = server.getsockname()
    secret = secrets.token_hex(16)
    store.set("address", f"{host}:{port} {secret}")
    return _comm.Job(0, size, address=f"{host}:{port}", secret=secret, listen_fd=server.detach(), **common)


def turn_of(name: str) -> int:
    """How often this process has met for a group of this name: stores may outlive a group and its successor of the same name."""
    _turns[name] = _turns.get(name, 0) + 1
    return _turns[name]


def job_for(opts: Any, members: List[int], settings: Settings) -> "tuple[SharedJob, List[int]]":
    """The default group's job for groups within it, else one of the group's own; and the group's members in it."""
    global _default
    with _lock:
        if members and _default is not None:
            _default.groups += 1
            return _default, members
    store = dist.PrefixStore(f"lockstep/{turn_of(str(opts.group_id))}", opts.store)
    shared = SharedJob(meet(store, opts.group_rank, opts.group_size, opts.timeout, settings))
    with _lock:
        shared.groups += 1
        if not members:
            _default = shared
    return shared, []


def open_group(opts: Any, settings: Settings) -> Core:
    """The communicator of a new process group, with what closes it."""
    for core in [core for core in _open if core.aborted]:
        core.close()
    shared, members = job_for(opts, list(opts.global_ranks_in_group), settings)
    try:
        communicator = _comm.Communicator(shared.job, f"process group {opts.group_id}", members, collective=settings.collective,
                                          transport=settings.transport, plugin_path=settings.plugin_path,
                                          deadline=opts.timeout.total_seconds())
    except BaseException:
        shared.leave()
        raise

    def close() -> None:
        _open.discard(core)
        communicator.close()
        shared.leave()

    core = Core(communicator, opts.group_rank, opts.group_size, opts.timeout, close)
    _open.add(core)
    try:
        prove(core)
    except BaseException:
        core.close()
        raise
    return core


def prove(core: Core) -> None:
    """A first sum: the library refuses a wrong collective when it is first asked, which here is before the first step."""
    numbers = (ctypes.c_float * PROBE)()
    handle = core.start(core.calls.start_all_reduce, ctypes.addressof(numbers), PROBE, b"float32", b"sum")
    Operation(core.communicator, [handle], numbers, None).wait()


@atexit.register
def _close_all() -> None:
    """For programs that end without destroy_process_group. After an exception the others hear of it at once."""
    why = getattr(sys, "last_value", None)
    for core in list(_open):
        if core.communicator.ours():
            if why is not None:
                core.communicator.job.give_up(f"it ended by {type(why).__name__}: {why}".splitlines()[0])
            core.close()
