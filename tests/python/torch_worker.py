# SPDX-License-Identifier: Apache-2.0
"""One rank of what test_torch.py starts under torchrun: `torch_worker.py BACKEND FOLDER SCENARIO...`. Rank 0 writes what each
scenario found as JSON into the folder."""
import json
import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

STEPS = 10
BATCH = 8
LETTERS, LENGTH, WIDTH, HEADS, LAYERS = 64, 32, 64, 4, 2


class CNN(nn.Sequential):
    """models/cnn.json, of the tutorials."""

    def __init__(self):
        super().__init__(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(1600, 128), nn.ReLU(), nn.Linear(128, 10))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.dense = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        heads = [part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.attention(self.before(x)).chunk(3, -1)]
        x = x + self.out(functional.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.dense(self.between(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters, self.places = nn.Embedding(LETTERS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, LETTERS)

    def forward(self, x):
        x = self.letters(x) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return self.head(x).flatten(0, 1)


def batches(kind):
    """This rank's examples: (input, labels) a step."""
    generator = torch.Generator().manual_seed(100 + dist.get_rank())
    for _ in range(STEPS):
        if kind is CNN:
            yield torch.randn(BATCH, 1, 28, 28, generator=generator), torch.randint(10, (BATCH,), generator=generator)
        else:
            text = torch.randint(LETTERS, (BATCH, LENGTH + 1), generator=generator)
            yield text[:, :-1], text[:, 1:].flatten()


def fit(model, kind):
    """The mean loss of all ranks at each step."""
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-3), []
    for x, labels in batches(kind):
        loss = functional.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / dist.get_world_size())
    return losses


def make(kind):
    torch.manual_seed(7)
    return kind()


def ddp_cnn(_folder):
    return fit(DistributedDataParallel(make(CNN), bucket_cap_mb=0.25), CNN)


def ddp_gpt(_folder):
    return fit(DistributedDataParallel(make(GPT)), GPT)


def sharded_gpt():
    from torch.distributed.fsdp import fully_shard

    model = make(GPT)
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def fsdp_gpt(_folder):
    return fit(sharded_gpt(), GPT)


def allocated(_folder):
    """FSDP2 whose buffers are the group's, and a sum in such a tensor, with how long it takes beside other memory."""
    group, count = dist.group.WORLD, 1 << 22
    backend = group._get_backend(torch.device("cpu"))
    sums = []
    for tensor in (backend.allocate_tensor((2, count // 2), dtype=torch.float32), torch.empty(2, count // 2)):
        tensor.fill_(dist.get_rank() + 1)
        dist.all_reduce(tensor)
        sums.append([tensor.min().item(), tensor.max().item()])
    model = sharded_gpt()
    model.set_allocate_memory_from_process_group_for_comm(True)
    return [sums, fit(model, GPT)]


def checkpoint(folder):
    """What two models predict, of which the second had loaded what the first had saved."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

    first, path = sharded_gpt(), os.path.join(folder, "checkpoint")
    fit(first, GPT)
    dcp.save({"model": get_model_state_dict(first)}, checkpoint_id=path)
    second = sharded_gpt()
    loaded = {"model": get_model_state_dict(second)}
    x, _ = next(batches(GPT))
    begun = second(x).sum().item()
    dcp.load(loaded, checkpoint_id=path)
    set_model_state_dict(second, loaded["model"])
    return [first(x).sum().item(), second(x).sum().item(), begun]


def dtensor(_folder):
    """The product of two matrices, sharded by rows and by columns, and its sum."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(3)
    a, b = torch.randn(6, 4), torch.randn(4, 8)
    product = distribute_tensor(a, mesh, [Shard(0)]) @ distribute_tensor(b, mesh, [Shard(1)])
    error = (product.redistribute(mesh, [Replicate()]).to_local() - a @ b).abs().max().item()
    return [error, product.sum().full_tensor().item() - (a @ b).sum().item()]


def collectives(_folder):
    """What is wrong, of collectives in every dtype and reduction, compared with what PyTorch makes of all ranks' values."""
    import torch_collectives

    return torch_collectives.find_wrong()


def about(_folder):
    import lockstep.torch

    return [lockstep.torch.about(), lockstep.torch.schedule_check()]


def meet_by_store():
    store = dist.distributed_c10d._get_default_store()
    store.add("here", 1)
    while store.add("here", 0) < dist.get_world_size():
        time.sleep(0.01)


def again(_folder):
    """Destroyed or aborted and made anew, in the same process, by the same store and by a new one, with groups of some ranks."""
    sums = []
    for turn in range(3):
        if turn == 1:
            meet_by_store()  # an abort may end a barrier that others have not left yet
            dist.distributed_c10d._abort_process_group()
        else:
            dist.destroy_process_group()
        method = f"file://{FOLDER}/again" if turn == 2 else "env://"
        dist.init_process_group(BACKEND, init_method=method, rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
        alone = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
        value = torch.full((1000,), float(dist.get_rank() + turn))
        dist.all_reduce(value, group=alone[dist.get_rank()])
        dist.all_reduce(value)
        sums.append(value[0].item())
    return sums


def loaders(_folder):
    """Data loaders fork processes while a group is open, which end without it."""
    sums = []
    for _ in range(2):
        loader = torch.utils.data.DataLoader([float(i + dist.get_rank()) for i in range(20)], batch_size=4, num_workers=2)
        for batch in loader:
            dist.all_reduce(batch)
            sums.append(batch.sum().item())
    return sums


def refused(_folder):
    """What a child process, a closed group and tensors of another device are told, and a sum after it."""
    import lockstep.torch

    said = []

    def hear(call):
        try:
            call()
        except (RuntimeError, ValueError) as error:
            said.append(str(error))

    read, write = os.pipe()
    child = os.fork()
    if not child:
        hear(lambda: dist.all_reduce(torch.ones(1)))
        os.write(write, "".join(said).encode())
        os._exit(0)
    os.waitpid(child, 0)
    said.append(os.read(read, 1000).decode())
    group = dist.new_group()
    dist.destroy_process_group(group)
    hear(lambda: lockstep.torch.about(group))
    hear(lambda: group.barrier(timeout=timedelta(seconds=7)))
    elsewhere = torch.empty(4, device="meta")
    hear(lambda: dist.all_to_all_single(elsewhere, elsewhere))
    total = torch.ones(1)
    dist.all_reduce(total)
    return [said, total.item()]


def futures(_folder):
    """What functions of `then` get that wait for other futures: made before, made within, and such as wait themselves."""
    group, other, many = dist.group.WORLD, 1 - dist.get_rank(), range(50)

    def get(done):
        return done.wait()[0].item()

    if dist.get_rank() == 0:
        first, second, third = (group.recv([torch.zeros(1)], other, tag).get_future() for tag in (1, 2, 3))
        both = second.then(lambda done: [get(done), get(third)])
        found = first.then(lambda done: [get(done), both.wait(), get(dist.all_reduce(torch.ones(1), async_op=True).get_future())])
    else:
        for tag in (1, 2, 3):
            time.sleep(0.3)  # so that the futures are not there when `then` is called
            group.send([torch.full((1,), 10.0 * tag)], other, tag).wait()
        found = dist.all_reduce(torch.ones(1), async_op=True).get_future()
    result = found.wait()
    sums = [dist.all_reduce(torch.full((1,), float(i)), async_op=True).get_future().then(get) for i in many]
    return [result if dist.get_rank() == 0 else None, [one.wait() for one in sums]]


def different(_folder):
    """What each rank is told where sparse tensors differ in dtype, then in shape; and a sum after it."""
    said, shapes = [], [(3, 4), (4, 3)]
    for dtype, shape in ((torch.float64, (3, 4)), (torch.float32, (4, 3))):
        mine = (torch.float32, (3, 4)) if dist.get_rank() == 0 else (dtype, shape)
        try:
            dist.all_reduce(torch.ones(mine[1], dtype=mine[0]).to_sparse())
        except ValueError as error:
            said.append(str(error))
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, said)
    return every


def limits(_folder):
    """What timeouts are refused, when a group is made and later, and with what a group within the default one is refused."""
    import lockstep.torch

    said = []

    def hear(call):
        try:
            call()
            said.append(None)
        except ValueError as error:
            said.append(str(error))

    for timeout in (timedelta(days=30), timedelta(0), timedelta(days=11)):
        hear(lambda: dist.new_group(timeout=timeout))
        hear(lambda: dist.distributed_c10d._set_pg_timeout(timeout, dist.group.WORLD))
    hear(lambda: dist.monitored_barrier(timeout=timedelta(days=30)))
    for network in ("private", None):
        hear(lambda: dist.new_group(pg_options=lockstep.torch.Options(network=network)))
    return said


def alone(_folder):
    """What is said of a group of one rank."""
    import lockstep.torch

    group = dist.new_group([dist.get_rank()], use_local_synchronization=True)
    return [lockstep.torch.about(group), lockstep.torch.schedule_check(group)]


def lost(folder):
    """The last rank ends in the way that LOST says; what the first one is told, and after how many seconds."""
    ddp = DistributedDataParallel(make(GPT))
    for x, labels in batches(GPT):
        functional.cross_entropy(ddp(x), labels).backward()
        break
    dist.barrier()
    if dist.get_rank() == dist.get_world_size() - 1:
        with open(os.path.join(folder, "pid"), "w") as file:
            file.write(str(os.getpid()))
        os.kill(os.getpid(), getattr(signal, os.environ["LOST"]))
        time.sleep(60)
    begin = time.monotonic()
    try:
        while True:
            functional.cross_entropy(ddp(x), labels).backward()
    except RuntimeError as error:
        return [type(error).__name__, str(error), time.monotonic() - begin]


def interrupted(_folder):
    """How long a wait lasts that Ctrl-C ends."""
    if dist.get_rank():
        time.sleep(3)
        return None
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    begin = time.monotonic()
    try:
        dist.recv(torch.zeros(3), 1)
    except KeyboardInterrupt:
        return time.monotonic() - begin


def pretend():
    """That this rank is on another host, or comes late to where ranks meet."""
    from lockstep.torch import _rendezvous

    host, seconds = os.environ["PRETEND_HOST"], float(os.environ.get("PRETEND_LATE", 0))
    _rendezvous.host_identity = lambda: time.sleep(seconds) or host


def main():
    global BACKEND, FOLDER
    BACKEND, FOLDER, names = sys.argv[1], sys.argv[2], sys.argv[3:]
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    torch.set_num_threads(1)
    if "lockstep" in BACKEND and "FOUND_BY_PYTORCH" not in os.environ:
        import lockstep.torch  # noqa: F401, which makes the backend known
    if "PRETEND_HOST" in os.environ:
        pretend()
    dist.init_process_group(BACKEND, timeout=timedelta(seconds=float(os.environ.get("GROUP_SECONDS", 60))))
    for name in names:
        found = globals()[name](FOLDER)
        if dist.get_rank() == 0:
            with open(os.path.join(FOLDER, f"{name}.json"), "w") as file:
                json.dump(found, file)
    if names[-1] not in ("lost", "interrupted"):
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
