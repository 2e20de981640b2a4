# SPDX-License-Identifier: Apache-2.0
"""The sum of sparse tensors (COO): all ranks' coordinates and values are gathered, and equal coordinates added up."""
from typing import Any, Optional

import torch
from torch.distributed import ReduceOp

from . import _reduce
from ._work import Operation, Work


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


def allreduce(core: Any, tensor: torch.Tensor, opts: Any) -> Optional[Work]:
    """How many values each rank has is gathered at once, because it says how large the buffers are."""
    if not tensor.is_cpu or tensor.layout is not torch.sparse_coo:
        raise ValueError(f"lockstep allreduce: unsupported layout {tensor.layout}")
    if _reduce.kind_of(opts.reduceOp) != ReduceOp.SUM:
        raise ValueError("lockstep allreduce: only the sum of sparse tensors is supported")
    core.deadline(opts.timeout)
    own = tensor.coalesce()
    shape = torch.tensor([own.sparse_dim(), own.dense_dim(), *own.shape, own._nnz()], dtype=torch.int64)
    shapes = gather_now(core, shape)
    if not torch.equal(shapes[:, :-1], shapes[:1, :-1].expand(core.size, -1)):
        raise ValueError("lockstep allreduce: the ranks' sparse tensors differ in shape")
    counts = shapes[:, -1].tolist()
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
