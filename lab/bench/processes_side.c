// SPDX-License-Identifier: Apache-2.0
// An all-reduce of Lockstep between processes, float32, in place. Answers the orders of side.h, which rank 0 reads and passes on.
//   processes-side RANKS TRANSPORT COLLECTIVE [copied]     copied: buffers that peers cannot map
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // sched_setaffinity
#endif
#include "lab/bench/processes.h"
#include "lab/bench/side.h"

#include "core/base/shared_memory.h"

#include <sched.h>
#include <string.h>

struct sides {
    const struct ls_opened_plugin *transport, *collective;
    bool copied;
};

struct orders {
    struct side_order order;
    double seconds[64];
};

// A core for each rank, where there are as many.
static void take_core(const struct process *process)
{
    cpu_set_t cores, own;
    uint32_t seen = 0;
    CPU_ZERO(&own);
    if (sched_getaffinity(0, sizeof(cores), &cores) || process->world > (uint32_t)CPU_COUNT(&cores))
        return;
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &cores) && seen++ == process->rank)
            CPU_SET(core, &own);
    sched_setaffinity(0, sizeof(own), &own);
}

static bool next_order(struct process *process, struct orders *orders)
{
    if (process->rank == 0 && !side_read(&orders->order))
        orders->order.bytes = 0;
    // The others sleep meanwhile, so that an idle side takes no core from those that are timed.
    return process_barrier_within(process, UINT64_MAX) && orders->order.bytes;
}

static bool call_many(struct process *process, struct process_reduction *reduction, float *data,
                      const struct side_order *order, unsigned long long calls, double *seconds)
{
    double spent = 0, begin = side_now();
    bool good = true;
    for (unsigned long long i = 0; good && i < calls; i++) {
        if (order->fresh) {
            memset(data, 0, order->bytes);
            good = process_barrier(process);
            begin = side_now();
        }
        good = good && process_reduction_run(reduction) == LS_OK;
        if (order->fresh)
            spent += side_now() - begin;
    }
    *seconds = order->fresh ? spent : side_now() - begin;
    return good;
}

static bool run_order(struct process *process, const struct sides *sides, struct orders *orders)
{
    static double means[SIDE_BATCHES_MOST];
    const struct side_order order = orders->order;
    struct process_reduction reduction;
    double seconds = 0;
    const size_t bytes = (order.bytes + 4095) / 4096 * 4096;
    float *data = sides->copied ? aligned_alloc(4096, bytes) : ls_segment_allocate(bytes, 4096);
    if (!data)
        return false;
    memset(data, 0, bytes);
    bool good = process_reduction_create(process, sides->collective, data, order.bytes / 4, LS_F32,
                                         LS_SUM, &reduction) == LS_OK &&
                call_many(process, &reduction, data, &order, SIDE_WARMUP, &seconds);
    for (unsigned long long batch = 0; good && batch < order.batches; batch++) {
        good = process_barrier(process) &&
               call_many(process, &reduction, data, &order, order.calls, &seconds);
        orders->seconds[process->rank] = seconds / (double)order.calls / process->world;
        good = good && process_barrier(process);
        means[batch] = 0;
        for (uint32_t i = 0; i < process->world; i++)
            means[batch] += orders->seconds[i];
    }
    if (good && process->rank == 0)
        side_answer(means, order.batches);
    process_reduction_destroy(&reduction);
    if (sides->copied)
        free(data);
    else
        ls_segment_free(data);
    return good;
}

static int serve(struct process *process, void *argument)
{
    const struct sides *sides = argument;
    bool good = true;
    take_core(process);
    if (!sides->copied && ls_segment_open())
        return 1;
    if (process_open(process, sides->transport))
        return 1;
    while (good && next_order(process, process->shared))
        good = run_order(process, sides, process->shared);
    process_close(process);
    return !good;
}

int main(int count, char **words)
{
    struct sides sides = {.copied = count > 4 && strcmp(words[4], "copied") == 0};
    struct ls_loader *loader = NULL;
    const int ranks = count > 3 ? atoi(words[1]) : 0;
    if (ranks < 1 || ls_loader_create(NULL, &loader) ||
        ls_loader_open_text(loader, "transport", LS_KIND_TRANSPORT, words[2], &sides.transport) ||
        ls_loader_open_scheduled(loader, "collective", words[3], &sides.collective)) {
        fprintf(stderr, "usage: processes-side RANKS TRANSPORT COLLECTIVE [copied]\n");
        return 2;
    }
    const uint32_t failed = processes_run((uint32_t)ranks, sizeof(struct orders), serve, &sides);
    ls_loader_destroy(loader);
    return failed ? 1 : 0;
}
