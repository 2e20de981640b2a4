# SPDX-License-Identifier: Apache-2.0
"""Collectives composed of messages, messages themselves, and the barrier that names who is late."""
import time
from typing import Any, List, Optional

import torch

from .. import _comm
from ._work import Operation, Work

# Tags of a program's own messages are numbers below this one; a collective has one of its own above.
RESERVED = 1 << 32
LEAST = 1e-3  # seconds: a deadline is above 0
GATHER, SCATTER, ALL_TO_ALL, ARRIVED, PASSED = (RESERVED * kind for kind in range(1, 6))


class Always:
    """Options of what always returns a Work."""

    asyncOp = True  # noqa: N815, PyTorch's name


def check_tensor(tensor: torch.Tensor, call: str) -> None:
    if not tensor.is_cpu or tensor.layout is not torch.strided:
        raise ValueError(f"lockstep {call}: expected a dense tensor in host memory, got {tensor.layout} on {tensor.device}; use another "
                         f"backend for it, as in \"cpu:lockstep,cuda:nccl\"")


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether its values lie in memory one behind the other. The imaginary part of a conjugate view has the other sign there."""
    return tensor.is_contiguous() and not tensor.is_neg()


def contiguous(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if is_plain(tensor) else tensor.resolve_neg().contiguous()


def start_send(core: Any, tensor: torch.Tensor, peer: int, tag: int) -> Any:
    """(handle, what to keep)"""
    buffer = contiguous(tensor)
    return core.start(core.calls.start_send, buffer.data_ptr(), buffer.nbytes, peer, tag), buffer


def start_receive(core: Any, tensor: torch.Tensor, peer: int, tag: int) -> Any:
    """(handle, the buffer, which is not the tensor where that is not contiguous)"""
    buffer = tensor if is_plain(tensor) else torch.empty(tensor.shape, dtype=tensor.dtype)
    return core.start(core.calls.start_receive, buffer.data_ptr(), buffer.nbytes, peer, tag), buffer


def check_peer(core: Any, peer: int, tag: int) -> None:
    if peer != _comm.ANY_RANK and not 0 <= peer < core.size:
        raise ValueError(f"lockstep: invalid rank {peer}: the group has {core.size}")
    if not 0 <= tag < RESERVED:
        raise ValueError(f"lockstep: invalid tag {tag}: expected 0 or more")


def send(core: Any, tensor: torch.Tensor, peer: int, tag: int) -> Work:
    check_peer(core, peer, tag)
    core.communicator.set_deadline(core.timeout)
    handle, buffer = start_send(core, tensor, peer, tag)
    return core.end(Always, [handle], (tensor, buffer), [tensor])


def receive(core: Any, tensor: torch.Tensor, peer: int, tag: int) -> Work:
    check_peer(core, peer, tag)
    core.communicator.set_deadline(core.timeout)
    handle, buffer = start_receive(core, tensor, peer, tag)
    finish = None if buffer is tensor else lambda: tensor.copy_(buffer)
    return core.end(Always, [handle], (tensor, buffer), [tensor], finish)


def exchange(core: Any, opts: Any, receives: List[Any], sends: List[Any], tag: int, outputs: Any) -> Optional[Work]:
    """receives, sends: a tensor for each rank, or None. What goes to this rank itself is copied, first: where that fails, nothing
    has begun."""
    core.deadline(opts.timeout)
    handles, keep, copies = [], [], []
    mine, own = (receives[core.rank], sends[core.rank]) if receives and sends else (None, None)
    if mine is not None and own is not None:
        with torch.no_grad():
            mine.copy_(own.reshape(mine.shape))
    for peer, tensor in enumerate(receives):
        if tensor is not None and peer != core.rank:
            handle, buffer = start_receive(core, tensor, peer, tag)
            handles.append(handle)
            keep += [tensor, buffer]
            if buffer is not tensor:
                copies.append((tensor, buffer))
    for peer, tensor in enumerate(sends):
        if tensor is not None and peer != core.rank:
            handle, buffer = start_send(core, tensor, peer, tag)
            handles.append(handle)
            keep += [tensor, buffer]

    def finish() -> None:
        for tensor, buffer in copies:
            tensor.copy_(buffer)

    return core.end(opts, handles, keep, outputs, finish if copies else None)


def check_list(tensors: Any, like: torch.Tensor, size: int, call: str, what: str) -> List[torch.Tensor]:
    """The one list of a list of lists."""
    if len(tensors) != 1 or len(tensors[0]) != size:
        raise ValueError(f"lockstep {call}: Incorrect {what} list size {[len(row) for row in tensors]}. {what.capitalize()} list size "
                         f"should be {size}, same as size of the process group")
    for i, tensor in enumerate(tensors[0]):
        check_tensor(tensor, call)
        if tensor.dtype is not like.dtype or tensor.numel() != like.numel():
            raise ValueError(f"lockstep {call}: invalid tensor at index {i} (expected {like.dtype} {tuple(like.shape)}, got {tensor.dtype} "
                             f"{tuple(tensor.shape)})")
    return list(tensors[0])


def only(core: Any, rank: int, tensor: torch.Tensor) -> List[Any]:
    return [tensor if peer == rank else None for peer in range(core.size)]


def gather(core: Any, outputs: Any, input: torch.Tensor, opts: Any) -> Optional[Work]:
    root = opts.rootRank
    if core.rank != root:
        if outputs:
            raise ValueError("lockstep gather: requires empty output on non-root")
        return exchange(core, opts, [], only(core, root, input), GATHER, [])
    rows = outputs if not outputs or isinstance(outputs[0], (list, tuple)) else [outputs]
    row = check_list(rows, input, core.size, "gather", "output")
    return exchange(core, opts, row, only(core, root, input), GATHER, row)


def scatter(core: Any, output: torch.Tensor, inputs: Any, opts: Any) -> Optional[Work]:
    root = opts.rootRank
    if core.rank != root:
        if inputs:
            raise ValueError("lockstep scatter: requires empty input on non-root")
        return exchange(core, opts, only(core, root, output), [], SCATTER, [output])
    rows = inputs if not inputs or isinstance(inputs[0], (list, tuple)) else [inputs]
    row = check_list(rows, output, core.size, "scatter", "input")
    return exchange(core, opts, only(core, root, output), row, SCATTER, [output])


def alltoall(core: Any, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any) -> Optional[Work]:
    for tensors, what in ((outputs, "output"), (inputs, "input")):
        if len(tensors) != core.size:
            raise ValueError(f"lockstep alltoall: expected {core.size} {what} tensors, one for each rank, got {len(tensors)}")
        for tensor in tensors:
            check_tensor(tensor, "alltoall")
    return exchange(core, opts, outputs, inputs, ALL_TO_ALL, outputs)


def splits(tensor: torch.Tensor, sizes: List[int], size: int) -> List[torch.Tensor]:
    rows = tensor.shape[0] if tensor.dim() else 0
    if not sizes:
        if rows % size:
            raise ValueError("Tensor's dim 0 does not divide equally across group size")
        sizes = [rows // size] * size
    if len(sizes) != size:
        raise ValueError("Number of tensor splits not equal to group size")
    if sum(sizes) != rows:
        raise ValueError("Split sizes doesn't match total dim 0 size")
    return list(tensor.split(sizes))


def alltoall_single(core: Any, output: torch.Tensor, input: torch.Tensor, output_sizes: List[int], input_sizes: List[int],
                    opts: Any) -> Optional[Work]:
    for tensor in (output, input):
        check_tensor(tensor, "alltoall")
    if output.dtype is not input.dtype:
        raise ValueError("Tensors are not equal in data type")
    return exchange(core, opts, splits(output, output_sizes, core.size), splits(input, input_sizes, core.size), ALL_TO_ALL, [output])


# ---- The barrier that names who is late ----

def monitored_barrier(core: Any, seconds: float, all_ranks: bool) -> None:
    core.barriers += 1  # what a failed one left behind is not taken for a later one's
    turn = core.barriers % RESERVED
    core.communicator.set_deadline(max(seconds, LEAST))
    if core.rank == 0:
        watch(core, seconds, all_ranks, turn)
    else:
        report_to_watcher(core, seconds, turn)


def operation(core: Any, started: Any) -> Operation:
    handle, buffer = started
    one = Operation(core.communicator, [handle], buffer, None)
    core.remember(one)
    return one


def report_to_watcher(core: Any, seconds: float, turn: int) -> None:
    token = torch.zeros(1, dtype=torch.uint8)
    try:
        operation(core, start_send(core, token, 0, ARRIVED + turn)).wait(seconds)
        operation(core, start_receive(core, token, 0, PASSED + turn)).wait(seconds)
    except RuntimeError as error:
        raise RuntimeError(f"Rank {core.rank} successfully reached monitoredBarrier, but received errors while waiting for send/recv from "
                           f"rank 0. Please check rank 0 logs for faulty rank.\n Original exception: \n{error}") from error


def watch(core: Any, seconds: float, all_ranks: bool, turn: int) -> None:
    if seconds <= 0:
        raise RuntimeError(f"[Rank 0]: Rank 0 timed out in monitoredBarrier after {round(seconds * 1000)} ms.\n"
                           " No ranks successfully processed in monitoredBarrier.")
    end = time.monotonic() + seconds
    token = torch.zeros(1, dtype=torch.uint8)
    arrivals = [operation(core, start_receive(core, token.clone(), peer, ARRIVED + turn)) for peer in range(1, core.size)]
    late, why = [], ""
    for peer, arrival in enumerate(arrivals, 1):
        try:
            arrival.wait(max(0.0, end - time.monotonic()))
        except RuntimeError as error:
            late.append(peer)
            why = why or str(error)
            if not all_ranks:
                break
    if late:
        who = f"Rank {late[0]}" if len(late) == 1 else "Ranks " + ", ".join(str(peer) for peer in late)
        raise RuntimeError(f"[Rank 0]: {who} failed to pass monitoredBarrier in {round(seconds * 1000)} ms\n Original exception: \n{why}")
    for passed in [operation(core, start_send(core, token, peer, PASSED + turn)) for peer in range(1, core.size)]:
        passed.wait(seconds)
