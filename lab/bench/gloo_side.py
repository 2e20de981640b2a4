# SPDX-License-Identifier: Apache-2.0
"""torch.distributed's all_reduce over gloo, float32, in place: one process a rank. Reads lines "BYTES CALLS BATCHES
FRESH" (side.h) and answers each with the median over the batches of the seconds a call on this rank.
"""
import datetime
import statistics
import sys
import time

import torch
import torch.distributed as dist

WARMUP = 3


def call_many(data, calls, fresh):
    """Seconds."""
    spent, begin = 0.0, time.perf_counter()
    for _ in range(calls):
        if fresh:
            data.zero_()
            dist.barrier()
            begin = time.perf_counter()
        dist.all_reduce(data)
        if fresh:
            spent += time.perf_counter() - begin
    return spent if fresh else time.perf_counter() - begin


def main():
    rank, ranks, meeting = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=ranks,
                            timeout=datetime.timedelta(seconds=60))
    for line in sys.stdin:
        size, calls, batches, fresh = (int(word) for word in line.split())
        data = torch.zeros(size // 4)
        call_many(data, WARMUP, fresh)
        times = []
        for _ in range(batches):
            dist.barrier()
            times.append(call_many(data, calls, fresh) / calls)
        print("%.9g" % statistics.median(times), flush=True)


if __name__ == "__main__":
    main()
