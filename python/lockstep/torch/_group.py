# SPDX-License-Identifier: Apache-2.0
"""A process group whose collectives run in the library: what torch.distributed, its reducer and its functional collectives call."""
from datetime import timedelta
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (AllgatherOptions, AllreduceCoalescedOptions, AllreduceOptions, AllToAllOptions, Backend,
                                        BarrierOptions, BroadcastOptions, GatherOptions, ReduceOptions, ReduceScatterOptions,
                                        ScatterOptions)

from .. import _comm, _native
from . import _messages, _reduce, _sparse
from ._messages import check_tensor, contiguous, is_plain
from ._work import MANY, Operation, Waiter, Work

COALESCED = 1 << 16  # bytes: several smaller tensors travel as one
NAME = "lockstep"
Tensors = Sequence[torch.Tensor]
Finish = Optional[Callable[[], Any]]


def seconds_of(timeout: timedelta) -> float:
    """Of a group, when it is made and later."""
    seconds = timeout.total_seconds()
    if seconds <= 0:
        raise _native.UsageError(f"a timeout of {seconds:g} s: expected above 0")
    _comm.check_deadline(seconds)
    return seconds


class Core:
    """One communicator and the operations that are under way in it; shared by the two faces that PyTorch has for a group."""

    def __init__(self, communicator: _comm.Communicator, rank: int, size: int, timeout: timedelta, close: Callable[[], None]) -> None:
        self.communicator = communicator
        self.calls = communicator.calls
        self.start = communicator.start
        self.rank = rank
        self.size = size
        self.timeout = seconds_of(timeout)
        self.waiter = Waiter()
        self.pending: Dict[Operation, None] = {}
        self.sequence = 0  # collectives begun
        self.aborted = False
        self.barriers = 0  # monitored ones
        self.faces: List[Any] = []  # Python's halves of what C++ holds
        self._close: Optional[Callable[[], None]] = close

    def deadline(self, limit: timedelta) -> None:
        """Of the collective that begins next: its own limit, else the group's."""
        self.communicator.set_deadline((limit.total_seconds() or _messages.LEAST) if limit.days >= 0 else self.timeout)
        self.sequence += 1

    def end(self, opts: Any, handles: List[_comm.Work], keep: Any, outputs: Any, finish: Finish = None) -> Optional[Work]:
        """Waits where the caller would, and returns None; else a Work."""
        asynchronous = opts.asyncOp
        if not asynchronous and finish is None and len(handles) == 1:
            try:
                status = self.calls.work_wait(handles[0], _comm.SLICE)  # the short way: most are over soon
            except BaseException:  # Ctrl-C: the buffers are still in use
                self.remember(Operation(self.communicator, handles, keep, finish))
                raise
            if status == _comm.OK:
                return None
        operation = Operation(self.communicator, handles, keep, finish)
        if asynchronous:
            self.remember(operation)
            return Work(operation, outputs, self.waiter)
        try:
            operation.wait()
        finally:
            if not operation.over:  # Ctrl-C: the buffers are still in use
                self.remember(operation)
        return None

    def remember(self, operation: Operation) -> None:
        """Keeps buffers of operations until they are over, also where the program drops the Work."""
        pending = self.pending
        for first in list(pending):  # several threads come here
            if not first.poll(0.0):
                break
            pending.pop(first, None)
        if len(pending) % MANY == MANY - 1:  # the first may be a message that does not come
            for one in [one for one in list(pending) if one.poll(0.0)]:
                pending.pop(one, None)
        pending[operation] = None

    def close(self) -> None:
        """Ends what is under way. Again: does nothing."""
        close, self._close = self._close, None
        if close is not None:
            close()
            self.waiter.stop()
            self.pending.clear()


def copy_back(buffer: torch.Tensor, tensor: torch.Tensor) -> Finish:
    """What remains to be done where a contiguous buffer stands in for a tensor."""
    return None if buffer is tensor else lambda: tensor.copy_(buffer.view(tensor.shape))


def both(first: Finish, second: Finish) -> Finish:
    if first is None or second is None:
        return first or second
    return lambda: (first(), second())


def address_of_row(tensors: Tensors) -> Optional[int]:
    """Where contiguous tensors of one size lie one behind the other, if they do."""
    base, bytes = tensors[0].data_ptr(), tensors[0].nbytes
    storage = tensors[0].untyped_storage().data_ptr()
    for i, tensor in enumerate(tensors):
        if tensor.data_ptr() != base + i * bytes or not is_plain(tensor) or tensor.untyped_storage().data_ptr() != storage:
            return None
    return base


def single(tensors: Any, call: str) -> torch.Tensor:
    """The one tensor of a list, or the tensor itself."""
    if isinstance(tensors, torch.Tensor):
        tensor = tensors
    elif len(tensors) != 1:
        raise ValueError(f"lockstep {call}: expected a single tensor, got {len(tensors)}")
    else:
        tensor = tensors[0]
    check_tensor(tensor, call)
    return tensor


def check_equal(tensors: Tensors, like: torch.Tensor, call: str, what: str) -> None:
    for i, tensor in enumerate(tensors):
        check_tensor(tensor, call)
        if tensor.dtype is not like.dtype:
            raise ValueError(f"lockstep {call}: invalid tensor type at {what} {i} (expected {like.dtype}, got {tensor.dtype})")
        if tensor.numel() != like.numel():
            raise ValueError(f"lockstep {call}: invalid tensor size at {what} {i} (expected {tuple(like.shape)}, got "
                             f"{tuple(tensor.shape)})")


def options(kind: Any, opts: Any, timeout: Optional[timedelta] = None, **fields: Any) -> Any:
    """What the caller gave, or a struct made of the single values that PyTorch's overloads take."""
    if isinstance(opts, kind):
        return opts
    made = kind()
    for name, value in fields.items():
        if value is not None:
            setattr(made, name, value)
    if timeout is not None:
        made.timeout = timeout
    return made


class Collectives:
    """The methods of both faces. Names and arguments are those of torch.distributed.ProcessGroup."""

    _core: Core

    # ---- Reductions ----

    def allreduce(self, tensors: Any, opts: Any = None, timeout: Optional[timedelta] = None, op: Any = None) -> Optional[Work]:
        if type(opts) is not AllreduceOptions:
            opts = options(AllreduceOptions, opts, timeout, reduceOp=op if op is not None else opts)
        core = self._core
        if not isinstance(tensors, torch.Tensor) and len(tensors) == 1 and tensors[0].layout is torch.sparse_coo:
            return _sparse.allreduce(core, tensors[0], opts)
        tensor = single(tensors, "allreduce")
        core.deadline(opts.timeout)
        return self._allreduce(tensor, _reduce.kind_of(opts.reduceOp), opts)

    def _allreduce(self, tensor: torch.Tensor, kind: Any, opts: Any) -> Optional[Work]:
        core = self._core
        native = _reduce.NATIVE.get((tensor.dtype, kind))
        if native is None or not is_plain(tensor):
            handles, keep, finish = self._start_allreduce(tensor, kind)
            return core.end(opts, handles, keep, [tensor], finish)
        handle = core.start(core.calls.start_all_reduce, tensor.data_ptr(), tensor.numel(), *native)
        return core.end(opts, [handle], tensor, [tensor])

    def _start_allreduce(self, tensor: torch.Tensor, kind: Any) -> Any:
        """(handles, what to keep, finish)"""
        core = self._core
        real = _reduce.real_view(tensor, kind, "all_reduce")
        _reduce.check(real.dtype, kind)
        buffer = contiguous(real)
        native = _reduce.NATIVE.get((buffer.dtype, kind))
        if native is not None:
            handle = core.start(core.calls.start_all_reduce, buffer.data_ptr(), buffer.numel(), *native)
            return [handle], (tensor, buffer), copy_back(buffer, real)
        gathered = torch.empty((core.size, *buffer.shape), dtype=buffer.dtype)
        handle = core.start(core.calls.start_all_gather, buffer.data_ptr(), buffer.nbytes, b"uint8", gathered.data_ptr())
        return [handle], (tensor, buffer, gathered), lambda: real.copy_(_reduce.reduce_gathered(gathered, kind))

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Optional[Work]:
        opts = options(AllreduceCoalescedOptions, opts)
        core, kind = self._core, _reduce.kind_of(opts.reduceOp)
        for tensor in tensors:
            check_tensor(tensor, "allreduce_coalesced")
        core.deadline(opts.timeout)
        dtypes = {tensor.dtype for tensor in tensors}
        if len(tensors) > 1 and len(dtypes) == 1 and sum(tensor.nbytes for tensor in tensors) <= COALESCED:
            row = torch.cat([tensor.reshape(-1) for tensor in tensors])
            handles, keep, finish = self._start_allreduce(row, kind)
            parts = row.split([tensor.numel() for tensor in tensors])

            def spread() -> None:
                for tensor, part in zip(tensors, parts):
                    tensor.copy_(part.view(tensor.shape))

            return core.end(opts, handles, (keep, tensors), list(tensors), both(finish, spread))
        started = [self._start_allreduce(tensor, kind) for tensor in tensors]
        return self._end_all(opts, started, list(tensors))

    def _end_all(self, opts: Any, started: List[Any], outputs: Any) -> Optional[Work]:
        finish: Finish = None
        for _, _, one in started:
            finish = both(finish, one)
        return self._core.end(opts, [handle for handles, _, _ in started for handle in handles], started, outputs, finish)

    def reduce(self, tensors: Any, opts: Any = None, op: Any = None, timeout: Optional[timedelta] = None,
               root: Any = None) -> Optional[Work]:
        opts = options(ReduceOptions, opts, timeout, rootRank=root if root is not None else opts, reduceOp=op)
        core, kind, tensor = self._core, _reduce.kind_of(opts.reduceOp), single(tensors, "reduce")
        self._check_root(opts.rootRank, "reduce")
        core.deadline(opts.timeout)
        here = opts.rootRank == core.rank
        real = _reduce.real_view(tensor, kind, "reduce")
        # The library may use the others' buffers on the way, and PyTorch's users expect theirs unchanged.
        buffer = contiguous(real) if here else contiguous(real.clone(memory_format=torch.contiguous_format))
        native = _reduce.NATIVE.get((buffer.dtype, kind))
        if native is None:
            handles, keep, finish = self._start_allreduce(buffer, kind)
            return core.end(opts, handles, (keep, tensor), [tensor], both(finish, copy_back(buffer, real)) if here else None)
        handle = core.start(core.calls.start_reduce, buffer.data_ptr(), buffer.numel(), *native, opts.rootRank)
        return core.end(opts, [handle], (tensor, buffer), [tensor], copy_back(buffer, real) if here else None)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Optional[Work]:
        opts = options(ReduceScatterOptions, opts)
        self._core.deadline(opts.timeout)
        return self._end_all(opts, [self._start_reduce_scatter(output, input, opts)], [output])

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Optional[Work]:
        opts = options(ReduceScatterOptions, opts)
        self._core.deadline(opts.timeout)
        started = [self._start_reduce_scatter(output, input, opts) for output, input in zip(outputs, inputs)]
        return self._end_all(opts, started, list(outputs))

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None, timeout: Optional[timedelta] = None,
                       op: Any = None) -> Optional[Work]:
        opts = options(ReduceScatterOptions, opts, timeout, reduceOp=op if op is not None else opts)
        output = single(outputs, "reduce_scatter")
        parts = list(inputs[0] if isinstance(inputs[0], (list, tuple)) else inputs)
        if len(parts) != self._core.size:
            raise ValueError(f"lockstep reduce_scatter: invalid input tensor list (expected length {self._core.size}, got {len(parts)})")
        check_equal(parts, output, "reduce_scatter", "index")
        self._core.deadline(opts.timeout)
        row = torch.cat([part.reshape(-1) for part in parts])
        return self._end_all(opts, [self._start_reduce_scatter(output, row, opts)], [output])

    def _start_reduce_scatter(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Any:
        """(handles, what to keep, finish)"""
        core, kind = self._core, _reduce.kind_of(opts.reduceOp)
        check_tensor(input, "reduce_scatter")
        check_tensor(output, "reduce_scatter")
        if input.dtype is not output.dtype:
            raise ValueError(f"output tensor must have the same type as input tensor, got {output.dtype} and {input.dtype}")
        if input.numel() != output.numel() * core.size:
            raise ValueError("input tensor must be the same size as output size times world size")
        real_in, real_out = (_reduce.real_view(tensor, kind, "reduce_scatter") for tensor in (input, output))
        _reduce.check(real_in.dtype, kind)
        source, target = contiguous(real_in), contiguous(real_out)
        native = _reduce.NATIVE.get((source.dtype, kind))
        if native is not None:
            handle = core.start(core.calls.start_reduce_scatter, source.data_ptr(), target.numel(), *native, target.data_ptr())
            return [handle], (source, target, output), copy_back(target, real_out)
        gathered = torch.empty((core.size, core.size, target.numel()), dtype=source.dtype)
        handle = core.start(core.calls.start_all_gather, source.data_ptr(), source.nbytes, b"uint8", gathered.data_ptr())

        def finish() -> None:
            mine = gathered[:, core.rank].clone()
            real_out.copy_(_reduce.reduce_gathered(mine, kind).view(real_out.shape))

        return [handle], (source, target, output, gathered), finish

    # ---- Copies ----

    def broadcast(self, tensors: Any, opts: Any = None, timeout: Optional[timedelta] = None, root: Any = None) -> Optional[Work]:
        if type(opts) is not BroadcastOptions:
            opts = options(BroadcastOptions, opts, timeout, rootRank=root if root is not None else opts)
        core, tensor = self._core, single(tensors, "broadcast")
        self._check_root(opts.rootRank, "broadcast")
        core.deadline(opts.timeout)
        buffer = contiguous(tensor)
        handle = core.start(core.calls.start_broadcast, buffer.data_ptr(), buffer.nbytes, b"uint8", opts.rootRank)
        return core.end(opts, [handle], (tensor, buffer), [tensor], copy_back(buffer, tensor))

    def _check_root(self, root: int, call: str) -> None:
        if not 0 <= root < self._core.size:
            raise ValueError(f"lockstep {call}: invalid root rank: {root}")

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Optional[Work]:
        opts = options(AllgatherOptions, opts)
        self._core.deadline(opts.timeout)
        return self._end_all(opts, [self._start_all_gather(output, input)], [output])

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Optional[Work]:
        opts = options(AllgatherOptions, opts)
        self._core.deadline(opts.timeout)
        return self._end_all(opts, [self._start_all_gather(output, input) for output, input in zip(outputs, inputs)], list(outputs))

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _start_all_gather(self, output: torch.Tensor, input: torch.Tensor) -> Any:
        """(handles, what to keep, finish)"""
        core = self._core
        check_tensor(input, "allgather")
        check_tensor(output, "allgather")
        if input.dtype is not output.dtype:
            raise ValueError(f"output tensor must have the same type as input tensor, got {output.dtype} and {input.dtype}")
        if output.numel() != input.numel() * core.size:
            raise ValueError("output tensor size must be equal to world_size times input tensor size")
        source, target = contiguous(input), contiguous(output)
        handle = core.start(core.calls.start_all_gather, source.data_ptr(), source.nbytes, b"uint8", target.data_ptr())
        return [handle], (source, target, output), copy_back(target, output)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None, timeout: Optional[timedelta] = None) -> Optional[Work]:
        opts = options(AllgatherOptions, opts, timeout)
        self._core.deadline(opts.timeout)
        lists, tensors = (outputs, inputs) if isinstance(inputs, (list, tuple)) else ([outputs], [inputs])
        if not tensors:
            raise ValueError("lockstep allgather: requires non-empty input tensor list")
        if len(lists) != len(tensors):
            raise ValueError("lockstep allgather: requires input/output tensor lists to have the same length")
        return self._end_all(opts, [self._start_gather_list(list(row), tensor) for row, tensor in zip(lists, tensors)], lists)

    def allgather_coalesced(self, lists: Any, inputs: Tensors, opts: Any = None) -> Optional[Work]:
        opts = options(AllgatherOptions, opts)
        if len(lists) != self._core.size:
            raise ValueError(f"lockstep allgather_coalesced: expected {self._core.size} output lists, one for each rank, got {len(lists)}")
        if any(len(row) != len(inputs) for row in lists):
            raise ValueError("lockstep allgather_coalesced: invalid output size: each list needs a tensor for each input")
        self._core.deadline(opts.timeout)
        return self._end_all(opts, [self._start_gather_list([row[i] for row in lists], tensor) for i, tensor in enumerate(inputs)], lists)

    def _start_gather_list(self, outputs: List[torch.Tensor], input: torch.Tensor) -> Any:
        """(handles, what to keep, finish)"""
        core = self._core
        check_tensor(input, "allgather")
        if len(outputs) != core.size:
            raise ValueError(f"lockstep allgather: invalid output tensor list at index 0 (expected length {core.size}, got {len(outputs)})")
        check_equal(outputs, input, "allgather", "index")
        source, row = contiguous(input), None
        address = address_of_row(outputs)
        if address is None:
            row = torch.empty((core.size, source.numel()), dtype=source.dtype)
            address = row.data_ptr()
        handle = core.start(core.calls.start_all_gather, source.data_ptr(), source.nbytes, b"uint8", address)

        def finish() -> None:
            for output, part in zip(outputs, row):
                output.copy_(part.view(output.shape))

        return [handle], (source, outputs, row), None if row is None else finish

    # ---- By messages ----

    def gather(self, outputs: Any, inputs: Any, opts: Any = None, timeout: Optional[timedelta] = None, root: Any = None) -> Optional[Work]:
        opts = options(GatherOptions, opts, timeout, rootRank=root if root is not None else opts)
        self._check_root(opts.rootRank, "gather")
        return _messages.gather(self._core, outputs, single(inputs, "gather"), opts)

    def gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Optional[Work]:
        opts = options(GatherOptions, opts)
        self._check_root(opts.rootRank, "gather")
        rows = []
        if self._core.rank == opts.rootRank:
            if output.numel() != input.numel() * self._core.size:
                raise ValueError("output tensor size must be equal to world_size times input tensor size")
            rows = [list(output.view(self._core.size, *input.shape))]
        return _messages.gather(self._core, rows, single(input, "gather"), opts)

    gather_into_tensor = gather_single

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None, timeout: Optional[timedelta] = None, root: Any = None) -> Optional[Work]:
        opts = options(ScatterOptions, opts, timeout, rootRank=root if root is not None else opts)
        self._check_root(opts.rootRank, "scatter")
        return _messages.scatter(self._core, single(outputs, "scatter"), inputs, opts)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None, timeout: Optional[timedelta] = None) -> Optional[Work]:
        return _messages.alltoall(self._core, list(outputs), list(inputs), options(AllToAllOptions, opts, timeout))

    def all_to_all_single(self, output: torch.Tensor, input: torch.Tensor, output_split_sizes: Sequence[int] = (),
                          input_split_sizes: Sequence[int] = (), opts: Any = None, timeout: Optional[timedelta] = None) -> Optional[Work]:
        return _messages.alltoall_single(self._core, output, input, list(output_split_sizes or ()), list(input_split_sizes or ()),
                                         options(AllToAllOptions, opts, timeout))

    alltoall_base = all_to_all_single

    def send(self, tensors: Any, peer: int, tag: int = 0) -> Work:
        return _messages.send(self._core, single(tensors, "send"), peer, tag)

    def recv(self, tensors: Any, peer: int, tag: int = 0) -> Work:
        return _messages.receive(self._core, single(tensors, "recv"), peer, tag)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Work:
        return _messages.receive(self._core, single(tensors, "recv"), _comm.ANY_RANK, tag)

    recvAnysource = recv_anysource

    # ---- Barriers ----

    def barrier(self, opts: Any = None, timeout: Optional[timedelta] = None) -> Optional[Work]:
        opts = options(BarrierOptions, opts, timeout)
        core = self._core
        core.deadline(opts.timeout)
        return core.end(opts, [core.start(core.calls.start_barrier)], None, [])

    def monitored_barrier(self, opts: Any = None, wait_all_ranks: bool = False) -> None:
        limit = opts if isinstance(opts, timedelta) else options(BarrierOptions, opts).timeout
        _messages.monitored_barrier(self._core, limit.total_seconds() if limit.days >= 0 else self._core.timeout, wait_all_ranks)

    # ---- The group ----

    def getBackendName(self) -> str:  # noqa: N802, PyTorch calls it so
        return NAME

    def supports_tensor_alloc(self, device: Any) -> bool:
        """The reducer of DistributedDataParallel asks with an index. PyTorch 2.15 cannot hand its next question, for a tensor with these
        options, to Python, so it is told no: its buckets are ordinary memory."""
        return not isinstance(device, int) and torch.device(device).type == "cpu"

    def allocate_tensor(self, size: Any, *, dtype: torch.dtype, device: Any = "cpu") -> torch.Tensor:
        """A tensor in memory that the other processes of this host reach: its collectives need no copies."""
        if not self.supports_tensor_alloc(device):
            raise ValueError(f"lockstep allocate_tensor: expected device cpu, got {device}")
        shape = torch.Size([size] if isinstance(size, int) else size)
        if shape.numel() <= 0:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(self._core.communicator.job.allocate(shape.numel() * dtype.itemsize), dtype=dtype).view(shape)

    def set_timeout(self, timeout: timedelta) -> None:
        self._core.timeout = seconds_of(timeout)

    _set_default_timeout = set_timeout

    def _add_ephemeral_timeout(self, timeout: timedelta) -> None:
        pass  # as backends do that have no such extension

    def _get_sequence_number_for_group(self) -> int:
        return self._core.sequence

    def abort(self) -> None:
        self._core.aborted = True
        self._core.communicator.abort()

    def shutdown(self) -> None:
        self._core.close()


class LockstepBackend(Collectives, Backend):
    """What a group has for a device: for groups of several backends, and for what asks a group for its backend."""

    # C++ asks for these as Python properties, and would find its own, which asks again.
    supports_splitting = supports_coalescing = supports_shrinking = supports_reconfigure = supports_window = property(lambda self: False)
    _supports_time_estimate = property(lambda self: False)

    def __init__(self, core: Core) -> None:
        Backend.__init__(self, core.rank, core.size)
        self._core = core
        core.faces.append(self)

    @property
    def options(self) -> Backend.Options:
        return Backend.Options(NAME, timedelta(seconds=self._core.timeout))

    def allreduce_sparse(self, tensors: Tensors, opts: Any) -> Optional[Work]:
        return _sparse.allreduce(self._core, tensors[0], opts)


class LockstepProcessGroup(Collectives, dist.ProcessGroup):
    """The group itself: Python reaches its methods without PyTorch's dispatcher, C++ through virtual functions."""

    def __init__(self, store: Any, core: Core) -> None:
        dist.ProcessGroup.__init__(self, store, core.rank, core.size)
        self._core = core
        core.faces.append(self)
        kind = dist.ProcessGroup.BackendType.CUSTOM
        self._set_default_backend(kind)
        self._register_backend(torch.device("cpu"), kind, LockstepBackend(core))
