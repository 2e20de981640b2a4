# SPDX-License-Identifier: Apache-2.0
"""How the processes of a group find each other: through PyTorch's own store, they learn where process 0 of the job listens."""
import atexit
import contextlib
import ctypes
import ipaddress
import os
import secrets
import socket
import sys
import threading
import time
from datetime import timedelta
from typing import Any, Dict, Iterator, List, Optional, Set

import torch.distributed as dist

from .. import _comm, _native
from .._errors import BY_STATUS, LockstepError
from ._group import Core, seconds_of
from ._options import Settings, settings_of
from ._work import Operation

BOOT = "/proc/sys/kernel/random/boot_id"
LOOPBACKS = ("127.0.0.1", "::1")
FAR = ("192.0.2.1", "2001:db8::1")  # of nobody (RFC 5737, RFC 3849): they are reached by the default route
PROBE = 1000  # elements
JOIN_SECONDS = 60.0  # at most, to connect, once everybody is known to be there
LEAST_SECONDS = 1.0  # to connect
ADDRESS = "address"  # the key under which rank 0 says where it listens
FAILED = "failed "  # begins what a rank says instead of what others wait for

_lock = threading.Lock()
_default: Optional["SharedJob"] = None  # that of the default group, in which groups of some of its processes live
_turns: Dict[str, int] = {}
_open: Set[Core] = set()  # C++ keeps only its own half of a Python object: what is here keeps the other, until it is closed


class SharedJob:
    """A job, closed with the last of the groups that use it."""

    def __init__(self, job: _comm.Job, network: Optional[str]) -> None:
        self.job = job
        self.network = network
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
    """The address by which the other hosts reach this process: that by which it reaches the store. Where that is one of this host alone (the
    store is here, and Debian gives a host's own name 127.0.1.1), or the store has no host, that of the default route."""
    named = store_host(store) or socket.gethostname()
    why: Any = "it leads to this host alone, and there is no default route"
    for host in (named, *FAR):
        try:
            found = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)
        except OSError as error:
            found, why = [], error
        for family, kind, _, _, address in sorted(found, key=lambda one: one[0] != socket.AF_INET):
            with contextlib.suppress(OSError), socket.socket(family, kind) as probe:
                probe.connect(address)  # sends nothing
                own = str(probe.getsockname()[0])
                if not ipaddress.ip_address(own.partition("%")[0]).is_loopback:
                    return own
    raise _native.UnavailableError(f"lockstep: no address of this host is known to the other ranks: {named}: {why}; name one by MASTER_ADDR")


def listen(*addresses: str) -> socket.socket:
    """At the first of these addresses that this host has."""
    why: Optional[OSError] = None
    for address in addresses:
        family, kind, _, _, place = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)[0]
        try:
            server = socket.socket(family, kind)
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(place)
            server.listen(1024)
            return server
        except OSError as error:
            why = why or error
    raise _native.UnavailableError(f"lockstep: rank 0 cannot listen at {addresses[0]}: {why}")


# ---- What ranks say to each other by the store ----

@contextlib.contextmanager
def told(store: Any, rank: int) -> Iterator[None]:
    """What fails here is said under the keys for which others wait, and they raise it, too."""
    try:
        yield
    except BaseException as error:
        words = str(error) if getattr(error, "of_another_rank", False) else f"rank {rank} failed: {error or type(error).__name__}"
        text = f"{FAILED}{getattr(error, 'status', 1)} {words}"
        with contextlib.suppress(Exception):  # the store may be what failed
            for key in (f"host/{rank}", ADDRESS):
                store.set(key, text)
        raise


def hear(store: Any, key: str, size: int, timeout: timedelta, end: float) -> str:
    """What another rank says under this key."""
    try:
        store.wait([key], timedelta(seconds=max(1e-3, end - time.monotonic())))
    except RuntimeError:
        if time.monotonic() < end:
            raise
        raise too_late(store, size, timeout) from None
    text = bytes(store.get(key)).decode()
    if not text.startswith(FAILED):
        return text
    status, words = text[len(FAILED):].split(" ", 1)
    error = BY_STATUS.get(int(status), LockstepError)(words)
    error.of_another_rank = True
    raise error


def too_late(store: Any, size: int, timeout: timedelta) -> LockstepError:
    missing = [str(peer) for peer in range(size) if not store.check([f"host/{peer}"])]
    who = f"rank{'s' if len(missing) > 1 else ''} {', '.join(missing)} to come" if missing else "rank 0 to say where it listens"
    return _native.PeerLostError(f"lockstep: Timed out waiting {round(timeout.total_seconds() * 1000)}ms for {who}; raise the timeout of the "
                                 f"process group if ranks start later than that")


def meet(store: Any, rank: int, size: int, timeout: timedelta, settings: Settings) -> _comm.Job:
    """Opens the job of `size` processes. What is in the store of it must be of this time, see turn_of."""
    common = {"network": settings.network, "plugin_path": settings.plugin_path}
    if size == 1:
        return _comm.Job(0, 1, **common)
    end = time.monotonic() + seconds_of(timeout)
    _comm.calls()  # a library that is not here is said before others wait
    store.set(f"host/{rank}", host_identity())
    if rank:
        address, secret = hear(store, ADDRESS, size, timeout, end).split(" ")
    else:
        hosts = {host_identity(), *(hear(store, f"host/{peer}", size, timeout, end) for peer in range(1, size))}
        server = listen(*(LOOPBACKS if len(hosts) == 1 else [own_address(store)]))
        host, port = server.getsockname()[:2]
        address, secret = f"[{host}]:{port}" if ":" in host else f"{host}:{port}", secrets.token_hex(16)
        store.set(ADDRESS, f"{address} {secret}")
        common["listen_fd"] = server.detach()
    left = max(LEAST_SECONDS, min(JOIN_SECONDS, end - time.monotonic()))
    return _comm.Job(rank, size, address=address, secret=secret, join_seconds=left, **common)


def turn_of(name: str) -> int:
    """How often this process has met for a group of this name: stores may outlive a group and its successor of the same name."""
    _turns[name] = _turns.get(name, 0) + 1
    return _turns[name]


def job_for(opts: Any, store: Any, members: List[int], network: Optional[str], settings: Settings) -> "tuple[SharedJob, List[int]]":
    """The default group's job for groups within it, else one of the group's own; and the group's members in it. `network`: that of the
    group's own Options."""
    global _default
    with _lock:
        if members and _default is not None:
            if network not in (None, _default.network):
                raise _native.UsageError(f"process group {opts.group_id}: Options(network={network!r}): the default group, by whose network it "
                                         f"communicates, has {_default.network or 'none'}; give that one the option")
            _default.groups += 1
            return _default, members
    shared = SharedJob(meet(store, opts.group_rank, opts.group_size, opts.timeout, settings), settings.network)
    with _lock:
        shared.groups += 1
        if not members:
            _default = shared
    return shared, []


def open_group(opts: Any, given: Any) -> Core:
    """The communicator of a new process group, with what closes it. `given`: what the program says as pg_options."""
    for core in [core for core in _open if core.aborted]:
        core.close()
    store = dist.PrefixStore(f"lockstep/{turn_of(str(opts.group_id))}", opts.store)
    with told(store, opts.group_rank):
        settings = settings_of(given)
        seconds = seconds_of(opts.timeout)
        shared, members = job_for(opts, store, list(opts.global_ranks_in_group), getattr(given, "network", None), settings)
    try:
        communicator = _comm.Communicator(shared.job, f"process group {opts.group_id}", members, collective=settings.collective,
                                          transport=settings.transport, plugin_path=settings.plugin_path,
                                          deadline=seconds)
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
