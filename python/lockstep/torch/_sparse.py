# SPDX-License-Identifier: Apache-2.0
"""The sum of sparse tensors (COO): all ranks' coordinates and values are gathered, and equal coordinates added up."""
from typing import Any, Optional

import torch
from torch.distributed import ReduceOp

from . import _reduce
from ._work import Operation, Work

NAME_BYTES = 32  # of a dtype, filled up with blanks


def gather_now(core: Any, tensor: torch.Tensor) -> torch.Tensor:
    """(ranks, ...)"""
    rows = torch.empty((core.size, *tensor.shape), dtype=tensor.dtype)
    handle = core.start(core.calls.start_all_gather, tensor.data_ptr(), tensor.nbytes, b"uint8", rows.data_ptr())
    operation = Operation(core.communicator, [handle], (tensor, rows), None)
    try:
        operation.wait()
    finally:
        if not operation.over:
            core.remember(operation)
    return rows


def padded(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    """With so many rows, of which those behind the tensor's own say nothing."""
    result = tensor.new_zeros((rows, *tensor.shape[1:]))
    result[:tensor.shape[0]] = tensor
    return result


def header(tensor: torch.Tensor) -> torch.Tensor:
    """What the ranks tell of their tensors, as whole numbers: the name of the dtype, the shape, and how many values there are."""
    name = torch.frombuffer(bytearray(str(tensor.dtype).ljust(NAME_BYTES).encode()), dtype=torch.int64)
    return torch.cat([name, torch.tensor([tensor.sparse_dim(), tensor.dense_dim(), *tensor.shape, tensor._nnz()], dtype=torch.int64)])


def check_alike(headers: torch.Tensor) -> None:
    """headers: (ranks, ...). What is refused is refused on all ranks, with one sentence."""
    names = [bytes(row[:NAME_BYTES // 8].view(torch.uint8).tolist()).decode().rstrip() for row in headers]
    other = next((rank for rank, name in enumerate(names) if name != names[0]), None)
    if other is not None:
        raise ValueError(f"lockstep allreduce: the ranks' sparse tensors differ in dtype: {names[0]} on rank 0, {names[other]} on rank {other}")
    if not torch.equal(headers[:, :-1], headers[:1, :-1].expand(len(names), -1)):
        raise ValueError("lockstep allreduce: the ranks' sparse tensors differ in shape")


def allreduce(core: Any, tensor: torch.Tensor, opts: Any) -> Optional[Work]:
    """How many values each rank has is gathered at once, because it says how large the buffers are."""
    if not tensor.is_cpu or tensor.layout is not torch.sparse_coo:
        raise ValueError(f"lockstep allreduce: unsupported layout {tensor.layout}")
    if _reduce.kind_of(opts.reduceOp) != ReduceOp.SUM:
        raise ValueError("lockstep allreduce: only the sum of sparse tensors is supported")
    core.deadline(opts.timeout)
    own = tensor.coalesce()
    headers = gather_now(core, header(own))
    check_alike(headers)
    counts = headers[:, -1].tolist()
    most = max(counts)
    indices, values = padded(own.indices().t().contiguous(), most), padded(own.values(), most)
    every_index = torch.empty((core.size, *indices.shape), dtype=indices.dtype)
    every_value = torch.empty((core.size, *values.shape), dtype=values.dtype)
    handles = [core.start(core.calls.start_all_gather, mine.data_ptr(), mine.nbytes, b"uint8", every.data_ptr())
               for mine, every in ((indices, every_index), (values, every_value))]

    def finish() -> None:
        at = torch.cat([every_index[rank, :count] for rank, count in enumerate(counts)])
        what = torch.cat([every_value[rank, :count] for rank, count in enumerate(counts)])
        total = torch.sparse_coo_tensor(at.t(), what, tensor.shape, check_invariants=True).coalesce()
        tensor.copy_(total)

    return core.end(opts, handles, (tensor, indices, values, every_index, every_value), [tensor], finish)
