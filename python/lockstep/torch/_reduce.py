# SPDX-License-Identifier: Apache-2.0
"""Which reductions the library does itself, and the others, in PyTorch, over what all ranks gathered."""
from typing import Any, Callable, Dict, Tuple

import torch
from torch.distributed import ReduceOp

Kind = Any  # ReduceOp.RedOpType

DTYPES = {torch.float32: b"float32", torch.float64: b"float64", torch.float16: b"float16", torch.bfloat16: b"bfloat16",
          torch.int32: b"int32", torch.int64: b"int64", torch.uint8: b"uint8"}
REDUCTIONS = {ReduceOp.SUM: b"sum", ReduceOp.AVG: b"mean", ReduceOp.MIN: b"min", ReduceOp.MAX: b"max", ReduceOp.PRODUCT: b"product"}
REDUCED = (*DTYPES, torch.bool, torch.int8, torch.int16)  # by the library or by PyTorch
BITWISE = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)

# (dtype, reduction) -> what the library calls them. Truth values are bytes of 0 and 1: their sum is "or", their product "and".
NATIVE: Dict[Tuple[torch.dtype, Kind], Tuple[bytes, bytes]] = {
    (dtype, kind): (name, reduction) for dtype, name in DTYPES.items() for kind, reduction in REDUCTIONS.items()}
NATIVE.update({(torch.bool, kind): (b"uint8", reduction)
               for kind, reduction in ((ReduceOp.SUM, b"max"), (ReduceOp.MAX, b"max"), (ReduceOp.BOR, b"max"), (ReduceOp.PRODUCT, b"min"),
                                       (ReduceOp.MIN, b"min"), (ReduceOp.BAND, b"min"))})

PAIRS: Dict[Kind, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    ReduceOp.SUM: lambda sum, x: sum.add_(x), ReduceOp.AVG: lambda sum, x: sum.add_(x), ReduceOp.PRODUCT: lambda sum, x: sum.mul_(x),
    ReduceOp.MIN: lambda sum, x: torch.minimum(sum, x, out=sum), ReduceOp.MAX: lambda sum, x: torch.maximum(sum, x, out=sum),
    ReduceOp.BAND: lambda sum, x: sum.bitwise_and_(x), ReduceOp.BOR: lambda sum, x: sum.bitwise_or_(x),
    ReduceOp.BXOR: lambda sum, x: sum.bitwise_xor_(x)}


def kind_of(op: Any) -> Kind:
    """The enum in a ReduceOp, or the enum itself."""
    return op.op if isinstance(op, ReduceOp) else op


def real_view(tensor: torch.Tensor, kind: Kind, call: str) -> torch.Tensor:
    """Of complex numbers: sums and means are those of both parts."""
    if not tensor.is_complex():
        return tensor
    if kind not in (ReduceOp.SUM, ReduceOp.AVG):
        raise ValueError(f"{call} does not support {kind} on complex tensors")
    return torch.view_as_real(tensor)


def check(dtype: torch.dtype, kind: Kind) -> None:
    """Whether the pair makes sense."""
    if dtype not in REDUCED or (dtype is torch.bool and kind == ReduceOp.AVG):
        raise ValueError(f"lockstep: {str(kind).replace('RedOpType', 'ReduceOp')} of {dtype} is not supported; convert the tensor first")
    if kind not in PAIRS:
        raise ValueError(f"Cannot use {str(kind).replace('RedOpType', 'ReduceOp')} with lockstep")
    if kind in BITWISE and (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(f"Cannot use {str(kind).replace('RedOpType', 'ReduceOp')} with non-integral dtype")


def reduce_gathered(gathered: torch.Tensor, kind: Kind) -> torch.Tensor:
    """gathered: (ranks, ...), added up in the order of the ranks; overwrites its first row. The sum for a mean of whole numbers need
    not fit their type."""
    result, pair = gathered[0].to(torch.int64) if kind == ReduceOp.AVG else gathered[0], PAIRS[kind]
    for other in gathered[1:]:
        pair(result, other)
    if kind == ReduceOp.AVG:
        result = torch.div(result, gathered.shape[0], rounding_mode="trunc").to(gathered.dtype)
    return result
