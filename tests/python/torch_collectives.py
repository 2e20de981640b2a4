# SPDX-License-Identifier: Apache-2.0
"""Collectives of torch.distributed in every dtype and reduction, by all the ways in which PyTorch calls them. What is expected is
made in PyTorch from all ranks' values, which each rank can make itself."""
import fractions

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
COMPLEX = (torch.complex64, torch.complex128)
SHAPES = ((), (0,), (1,), (63,), (5, 7), (1000, 3))
TOLERANCE = {torch.float16: 2e-2, torch.bfloat16: 2e-1}  # the order of a sum is free: some last digits of these
Op = dist.ReduceOp


def values(rank, shape, dtype):
    generator = torch.Generator().manual_seed(rank + 10)
    if dtype is torch.bool:
        return torch.randint(2, shape, generator=generator).bool()
    if dtype in INTEGERS:
        return torch.randint(1, 4, shape, generator=generator).to(dtype)
    if dtype in COMPLEX:
        return torch.complex(torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)).to(dtype)
    return torch.randn(shape, generator=generator).to(dtype)


def expected(all_values, op):
    """By the widest type of the kind."""
    dtype, row = all_values[0].dtype, torch.stack(all_values)
    if op in (Op.BAND, Op.BOR, Op.BXOR):
        pair = {Op.BAND: torch.bitwise_and, Op.BOR: torch.bitwise_or, Op.BXOR: torch.bitwise_xor}[op]
        result = row[0]
        for other in row[1:]:
            result = pair(result, other)
        return result
    if dtype is torch.bool:
        return row.any(0) if op in (Op.SUM, Op.MAX) else row.all(0)
    wide = row.double() if dtype in FLOATS else row.to(torch.complex128) if dtype in COMPLEX else row.long()
    if op == Op.AVG:
        return (wide.sum(0) / len(row) if not dtype in INTEGERS else torch.div(wide.sum(0), len(row), rounding_mode="trunc")).to(dtype)
    made = {Op.SUM: lambda: wide.sum(0), Op.PRODUCT: lambda: wide.prod(0), Op.MIN: lambda: wide.amin(0), Op.MAX: lambda: wide.amax(0)}
    return made[op]().to(dtype)


def pairs():
    for dtype in (*FLOATS, *INTEGERS):
        for op in (Op.SUM, Op.AVG, Op.MIN, Op.MAX, Op.PRODUCT):
            yield dtype, op
    for dtype in (*INTEGERS, torch.bool):
        for op in (Op.BAND, Op.BOR, Op.BXOR):
            yield dtype, op
    for op in (Op.SUM, Op.MIN, Op.MAX, Op.PRODUCT):
        yield torch.bool, op
    for dtype in COMPLEX:
        for op in (Op.SUM, Op.AVG):
            yield dtype, op


def same(found, right):
    if found.dtype is not right.dtype or found.shape != right.shape:
        return False
    if found.dtype in TOLERANCE:
        return torch.allclose(found.float(), right.float(), rtol=TOLERANCE[found.dtype], atol=TOLERANCE[found.dtype])
    return torch.allclose(found, right, rtol=1e-5, atol=1e-6) if found.dtype in (*FLOATS, *COMPLEX) else torch.equal(found, right)


class Judge:
    def __init__(self):
        self.wrong, self.checks = [], 0

    def __call__(self, what, found, right):
        self.checks += 1
        if not same(found, right):
            self.wrong.append(f"{what}: {found.flatten()[:4].tolist()}, expected {right.flatten()[:4].tolist()}")

    def raises(self, what, kinds, call):
        self.checks += 1
        try:
            call()
        except kinds:
            return
        self.wrong.append(f"{what}: expected {kinds}")


def reductions(judge, rank, size):
    for dtype, op in pairs():
        for shape in SHAPES:
            every = [values(peer, shape, dtype) for peer in range(size)]
            right, what = expected(every, op), f"{op} of {dtype} {shape}"
            mine = every[rank].clone()
            dist.all_reduce(mine, op)
            judge("all_reduce, " + what, mine, right)
            mine = every[rank].clone()
            dist.reduce(mine, size - 1, op)
            judge("reduce, " + what, mine, right if rank == size - 1 else every[rank])
    judge.raises("band of float32", ValueError, lambda: dist.all_reduce(torch.ones(3), Op.BAND))
    judge.raises("max of complex64", ValueError, lambda: dist.all_reduce(torch.ones(3, dtype=torch.complex64), Op.MAX))


def means(judge, rank, size):
    """The mean of values that a type holds is one that it holds, also where their sum is not; rounded once, towards zero if whole."""
    kinds = [(dtype, row) for dtype in INTEGERS for top in [torch.iinfo(dtype).max] for row in ([top], [top, top - 3], [top - 4, 0])]
    kinds += [(dtype, row) for dtype in INTEGERS for low in [torch.iinfo(dtype).min] if low for row in ([low], [low, low + 3], [low, -low - 1], [3, -4])]
    kinds += [(dtype, row) for dtype in (torch.float16, torch.bfloat16) for top in [torch.finfo(dtype).max]
              for row in ([top], [top, -top], [top, top / 2], [2048., 1.], [257., 2.], [2047., 2.])]
    for dtype, row in kinds:
        every = [torch.tensor([value], dtype=dtype) for value in (row * size)[:size]]
        exact = sum(fractions.Fraction(one.item()) for one in every) / size
        right = torch.tensor([float(exact) if dtype.is_floating_point else int(exact)], dtype=dtype).expand(65).clone()
        for name, found in averaged(every[rank].expand(65).clone(), rank, size):
            judge.checks += 1
            if not torch.equal(found, right):
                judge.wrong.append(f"{name}, AVG of {dtype} {row}: {found[0].item()}, expected {right[0].item()}")


def averaged(mine, rank, size):
    """By each call that averages: (its name, what this rank has)."""
    one = mine.clone()
    dist.all_reduce(one, Op.AVG)
    yield "all_reduce", one
    begun = mine.clone()
    dist.all_reduce(begun, Op.AVG, async_op=True).wait()
    yield "all_reduce that goes on by itself", begun
    several = [mine.clone() for _ in range(2)]
    dist.all_reduce_coalesced(several, Op.AVG)
    yield "all_reduce of several", several[1]
    one = mine.clone()
    dist.reduce(one, 0, Op.AVG)
    if rank == 0:
        yield "reduce", one
    one = torch.empty_like(mine)
    dist.reduce_scatter(one, [mine.clone() for _ in range(size)], Op.AVG)
    yield "reduce_scatter", one
    one = torch.empty_like(mine)
    dist.reduce_scatter_tensor(one, mine.repeat(size), Op.AVG)
    yield "reduce_scatter_tensor", one
    yield "functional all_reduce", functional.all_reduce(mine, "avg", dist.group.WORLD) + 0
    yield "functional reduce_scatter", functional.reduce_scatter_tensor_coalesced([mine.repeat(size)], "avg", [0], dist.group.WORLD)[0] + 0


def scattered(judge, rank, size):
    for dtype, op in pairs():
        every = [values(peer, (size, 5), dtype) for peer in range(size)]
        right = expected(every, op)[rank]
        mine = torch.empty(5, dtype=dtype)
        dist.reduce_scatter_tensor(mine, every[rank].flatten(), op)
        judge(f"reduce_scatter_tensor, {op} of {dtype}", mine, right)
        mine = torch.empty(5, dtype=dtype)
        dist.reduce_scatter(mine, list(every[rank].clone()), op)
        judge(f"reduce_scatter, {op} of {dtype}", mine, right)


def copies(judge, rank, size):
    for dtype in (*FLOATS, *INTEGERS, *COMPLEX, torch.bool):
        for shape in SHAPES:
            every, what = [values(peer, shape, dtype) for peer in range(size)], f"{dtype} {shape}"
            mine = every[rank].clone()
            dist.broadcast(mine, size - 1)
            judge("broadcast, " + what, mine, every[-1])
            out = [torch.empty_like(mine) for _ in range(size)]
            dist.all_gather(out, every[rank])
            judge("all_gather, " + what, torch.stack(out), torch.stack(every))
            row = torch.empty((size, *shape), dtype=dtype)
            dist.all_gather(list(row.unbind(0)), every[rank])
            judge("all_gather into a row, " + what, row, torch.stack(every))
            out = [torch.empty_like(mine) for _ in range(size)] if rank == 0 else None
            dist.gather(every[rank], out)
            if rank == 0:
                judge("gather, " + what, torch.stack(out), torch.stack(every))
            mine = torch.empty_like(every[0])
            dist.scatter(mine, [one.clone() for one in every] if rank == 0 else None)
            judge("scatter, " + what, mine, every[rank])
            out = [torch.empty_like(mine) for _ in range(size)]
            dist.all_to_all(out, [every[rank].clone() for _ in range(size)])
            judge("all_to_all, " + what, torch.stack(out), torch.stack(every))
        row = torch.empty(size * 6, dtype=dtype)
        dist.all_gather_into_tensor(row, values(rank, (6,), dtype))
        judge(f"all_gather_into_tensor, {dtype}", row, torch.cat([values(peer, (6,), dtype) for peer in range(size)]))
        sent = torch.stack([values(rank + 7 * peer, (6,), dtype) for peer in range(size)])
        right = torch.stack([values(peer + 7 * rank, (6,), dtype) for peer in range(size)])
        dist.all_to_all_single(row, sent.reshape(-1))
        judge(f"all_to_all_single, {dtype}", row, right.reshape(-1))
        row = torch.empty((6, size), dtype=dtype).t()
        dist.all_to_all_single(row, sent.t().contiguous().t())
        judge(f"all_to_all_single of what is not contiguous, {dtype}", row, right)


def splits(judge, rank, size):
    """Rank r sends r + q + 1 numbers to rank q."""
    sent = torch.cat([torch.full((rank + peer + 1, 2), float(100 * rank + peer)) for peer in range(size)])
    right = torch.cat([torch.full((rank + peer + 1, 2), float(100 * peer + rank)) for peer in range(size)])
    counts = [rank + peer + 1 for peer in range(size)]
    mine = torch.empty_like(right)
    dist.all_to_all_single(mine, sent, counts, counts)
    judge("all_to_all_single, split", mine, right)
    judge("functional all_to_all_single", functional.all_to_all_single(sent, counts, counts, dist.group.WORLD), right)


def coalesced(judge, rank, size):
    for large in (False, True):
        shapes = ((3,), (4, 5), (100000 if large else 7,))
        mine = [torch.full(shape, float(rank + i)) for i, shape in enumerate(shapes)]
        with dist._coalescing_manager():
            for one in mine:
                dist.all_reduce(one)
        for i, one in enumerate(mine):
            judge(f"all_reduce of several {i}", one, torch.full(shapes[i], float(sum(range(size)) + i * size)))
    ones = [torch.full((2,), float(rank + i)) for i in range(3)]
    out = functional.all_gather_into_tensor_coalesced(ones, dist.group.WORLD)
    for i, one in enumerate(out):
        judge(f"all_gather of several {i}", one + 0, torch.cat([torch.full((2,), float(peer + i)) for peer in range(size)]))
    out = functional.reduce_scatter_tensor_coalesced([torch.ones(size * 2) * i for i in range(3)], "sum", [0] * 3, dist.group.WORLD)
    for i, one in enumerate(out):
        judge(f"reduce_scatter of several {i}", one + 0, torch.full((2,), float(i * size)))


def strided(judge, rank, size):
    wide = torch.zeros(4, 6)
    part = wide[:, ::2]
    part.copy_(torch.arange(12.).view(4, 3) + rank)
    dist.all_reduce(part)
    judge("all_reduce of a part", part + 0, torch.arange(12.).view(4, 3) * size + sum(range(size)))
    judge("what is between", wide[:, 1::2] + 0, torch.zeros(4, 3))
    sparse = torch.sparse_coo_tensor([[rank, size]], [1., 2.], (size + 1,))
    dist.all_reduce(sparse)
    judge("all_reduce of sparse", sparse.to_dense(), torch.tensor([1.] * size + [2. * size]))


def wrapped():
    """Whether PyTorch has a layer of its own around works, which knows neither whether they are over nor whose message came."""
    return not hasattr(dist.group.WORLD, "_core")


def messages(judge, rank, size):
    later, earlier = torch.zeros(3), torch.zeros(100000)
    following, before = (rank + 1) % size, (rank - 1) % size
    works = [dist.isend(torch.full((100000,), float(rank)), following, tag=1), dist.isend(torch.full((3,), float(-rank)), following, tag=2),
             dist.irecv(later, before, tag=2), dist.irecv(earlier, before, tag=1)]
    for work in works:
        work.wait()
    judge("message, tag 2", later, torch.full((3,), float(-before)))
    judge("message, tag 1", earlier, torch.full((100000,), float(before)))
    if wrapped():
        return
    judge.checks += 1
    if not all(work.is_completed() and work.is_success() for work in works):
        judge.wrong.append("works that are over")
    if rank == 0:
        sources = {dist.recv(torch.zeros(1)) for _ in range(size - 1)}
        judge.checks += 1
        if sources != set(range(1, size)):
            judge.wrong.append(f"any source: {sources}")
    else:
        dist.send(torch.ones(1), 0)


def works(judge, rank, size):
    many = [torch.full((1000 * (i + 1),), float(rank)) for i in range(20)]
    begun = [dist.all_reduce(one, async_op=True) for one in many]
    for one, work in zip(many, begun):
        if len(one) % 3000:
            work.wait()
        else:
            judge("a future's value", work.get_future().wait()[0], torch.full_like(one, float(sum(range(size)))))
        judge("a work", one, torch.full_like(one, float(sum(range(size)))))
    chained = dist.all_reduce(torch.ones(5), async_op=True).get_future().then(lambda future: future.value()[0] * 2)
    judge("then", chained.wait(), torch.full((5,), 2. * size))


    def again(future):  # as DDP's hook for PowerSGD does it
        return dist.all_reduce(future.value()[0], async_op=True).get_future().wait()[0]

    def twice(future):
        return dist.all_reduce(future.value()[0], async_op=True).get_future().then(again).wait()

    for function, factor in ((again, size), (twice, size * size)):
        chained = dist.all_reduce(torch.ones(400000), async_op=True).get_future().then(function)
        judge("a callback that waits", chained.wait(), torch.full((400000,), float(size * factor)))
    for _ in range(100):
        dist.all_reduce(torch.ones(10000), async_op=True)  # nobody waits, and nobody keeps the tensor
    judge("functional all_reduce", functional.all_reduce(torch.ones(5), "sum", dist.group.WORLD) + 0, torch.full((5,), float(size)))


def negative_views(judge, rank, size, negative):
    total = float(sum(range(1, size + 1)))
    for op, right in ((Op.SUM, -total), (Op.MAX, -1.), (Op.MIN, -float(size))):
        found = negative()
        dist.all_reduce(found, op=op)
        judge(f"{op} of a negative view", found, torch.full((4,), right))
        found = negative()
        dist.reduce(found, 0, op=op)
        judge(f"{op} of a negative view at rank 0", found, torch.full((4,), -rank - 1. if rank else right))
    found = negative()
    dist.broadcast(found, 0)
    judge("broadcast of a negative view", found, torch.full((4,), -1.))
    if rank == 0:
        dist.send(negative(), 1)
    elif rank == 1:
        found = negative()
        dist.recv(found, 0)
        judge("a message into a negative view", found, torch.full((4,), -1.))


def careless(judge, rank, size):
    """What autograd watches is sent and overwritten as other tensors are, what is received depends on nothing, and what cannot be
    reduced is refused before anything is sent."""
    total = float(sum(range(1, size + 1)))
    sent = torch.arange(2. * size).requires_grad_() + rank
    received = torch.zeros(2 * size)
    dist.all_to_all_single(received, sent)
    judge("all_to_all of what has a gradient", received, torch.cat([torch.arange(2. * rank, 2 * rank + 2) + peer for peer in range(size)]))
    strided = torch.nn.Parameter(torch.full((2, 3), rank + 1.).t())
    dist.all_reduce(strided)
    judge("a parameter that is not contiguous", strided.detach(), torch.full((3, 2), total))
    several = [torch.nn.Parameter(torch.full((2,), rank + 1.)) for _ in range(3)]
    dist.all_reduce_coalesced(several)
    for one in several:
        judge("parameters at once", one.detach(), torch.full((2,), total))

    def negative():  # a view
        return torch.complex(torch.zeros(4), torch.full((4,), rank + 1.)).conj().imag

    several = [torch.zeros(4) for _ in range(size)]
    dist.all_gather(several, negative())
    for peer, one in enumerate(several):
        judge("all_gather of a negative view", one, torch.full((4,), -peer - 1.))
    if not wrapped():  # else PyTorch's dispatcher hands over a copy of the view, and the result is lost there
        negative_views(judge, rank, size, negative)
    for dtype, op in ((torch.bool, Op.AVG), (torch.uint16, Op.SUM), (torch.float8_e4m3fn, Op.MAX)):
        judge.checks += 1
        try:
            dist.all_reduce(torch.ones(3).to(dtype), op=op)
            judge.wrong.append(f"{op} of {dtype} was not refused")
        except ValueError as error:
            if "convert the tensor" not in str(error):
                judge.wrong.append(str(error))
    judge.checks += 1
    if received.requires_grad or not strided.requires_grad:
        judge.wrong.append("requires_grad has changed")


def find_wrong():
    """(what is wrong, how many checks)"""
    judge, rank, size = Judge(), dist.get_rank(), dist.get_world_size()
    for part in (reductions, means, scattered, copies, splits, coalesced, strided, messages, works, careless):
        part(judge, rank, size)
    dist.barrier()
    dist.monitored_barrier()
    everybody = [None] * size
    dist.all_gather_object(everybody, judge.wrong)
    return [[f"rank {peer}: {one}" for peer, wrong in enumerate(everybody) for one in wrong], judge.checks]
