# SPDX-License-Identifier: Apache-2.0
"""Times torch.distributed over backend lockstep beside gloo, in turn, two processes on this machine: examples a second of the
tutorials' CNN under DistributedDataParallel, and all_reduce of three sizes, also in memory that the group allocates. A benchmark,
not a test: end other programs first.

    LOCKSTEP_LIBRARY=build/liblockstep.so.0 python lab/bench/bench_torch_ddp.py [--rounds=5] [--seconds=3] [--json=FILE]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BACKENDS = ("gloo", "lockstep")
SIZES = {"4 KiB": 4 << 10, "1 MiB": 1 << 20, "64 MiB": 64 << 20}
ALLOCATED = " of the group"  # memory: gloo has none of its own, so its tensors are as before
CALLS = (*SIZES, "1 MiB" + ALLOCATED, "64 MiB" + ALLOCATED)
GOALS = {"CNN": 1.05, "4 KiB": 2, "1 MiB": 8, "64 MiB": 8}  # times gloo's speed
BATCH = 32
WARMUP = 5
SHARE = 0.15  # of the seconds, for each size


def timed(call, seconds):
    """Seconds a call, the median: as many calls on all ranks."""
    import torch
    import torch.distributed as dist

    for _ in range(WARMUP):
        call()
    begin = time.perf_counter()
    call()
    count = torch.tensor([max(5, int(seconds / (time.perf_counter() - begin)))])
    dist.broadcast(count, 0)
    times = []
    dist.barrier()
    for _ in range(min(int(count), 20000)):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def work(options):
    """One rank: prints what it measured, if it is the first."""
    import torch
    import torch.distributed as dist
    from torch import nn

    sys.path.insert(0, os.path.join(ROOT, "python"))
    if options.worker == "lockstep":
        import lockstep.torch  # noqa: F401, which makes the backend known
    torch.set_num_threads(1)
    dist.init_process_group(options.worker)
    found = {}
    for name in CALLS:
        count = SIZES[name.replace(ALLOCATED, "")] // 4
        data = torch.zeros(count)
        if name.endswith(ALLOCATED) and options.worker == "lockstep":
            data = dist.group.WORLD._get_backend(data.device).allocate_tensor(count, dtype=data.dtype).zero_()
        found[name] = 1 / timed(lambda: dist.all_reduce(data), SHARE * options.seconds)
    torch.manual_seed(7)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(1600, 128), nn.ReLU(), nn.Linear(128, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, labels = torch.randn(BATCH, 1, 28, 28), torch.randint(10, (BATCH,))

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()

    found["CNN"] = BATCH * dist.get_world_size() / timed(step, options.seconds)
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


def run_once(backend, options):
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, os.path.abspath(__file__), f"--worker={backend}", f"--seconds={options.seconds}"]
        store = dict(os.environ, WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), CUDA_VISIBLE_DEVICES="",
                     OMP_NUM_THREADS="1")
        ranks = [subprocess.Popen(command, env=dict(store, RANK=str(rank)), stdout=subprocess.PIPE, text=True, cwd=folder) for rank in range(2)]
        texts = [rank.communicate(timeout=600)[0] for rank in ranks]
        if any(rank.returncode for rank in ranks):
            raise SystemExit(f"bench_torch_ddp: a rank of {backend} failed")
        return json.loads(texts[0].strip().splitlines()[-1])


def free_port():
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def shown(name, speed):
    return f"{speed:10.0f} examples/s" if name == "CNN" else f"{1e6 / speed:10.1f} us a call"


def report(found, options):
    print(f"load of this machine: {os.getloadavg()[0]:.2f}")
    lines = {}
    for name in ("CNN", *CALLS):
        speeds = {backend: [one[name] for one in found[backend]] for backend in BACKENDS}
        ratios = [ours / theirs for ours, theirs in zip(speeds["lockstep"], speeds["gloo"])]
        lines[name] = {**speeds, "ratio": statistics.median(ratios), "goal": GOALS[name.replace(ALLOCATED, "")]}
        print(f"{name:19} gloo {shown(name, statistics.median(speeds['gloo']))}, lockstep {shown(name, statistics.median(speeds['lockstep']))}: "
              f"{statistics.median(ratios):.2f} times as fast ({min(ratios):.2f} to {max(ratios):.2f}; goal {lines[name]['goal']})")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(lines, file, indent=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--worker", choices=BACKENDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(options)
    found = {backend: [] for backend in BACKENDS}
    for turn in range(options.rounds):
        for backend in BACKENDS if turn % 2 == 0 else reversed(BACKENDS):
            found[backend].append(run_once(backend, options))
    return report(found, options)


if __name__ == "__main__":
    sys.exit(main())
