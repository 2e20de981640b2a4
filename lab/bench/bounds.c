// SPDX-License-Identifier: Apache-2.0
// Two bounds for an all-reduce between threads, with nothing around the loops: no messages, no checks, no deadlines.
//
//     bounds RANKS two-phase    each thread adds up its part of all buffers, then copies the other parts
//     bounds RANKS fused        each thread adds up its part and writes it into all buffers, in one pass
//
// Answers the orders of side.h. A call begins and ends with a barrier, as every all-reduce must: not before the others'
// buffers are ready, and not after with the others still reading.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // pthread_setaffinity_np
#endif
#include "lab/bench/side.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#define RANKS_MOST 64
#define SPINS 4000
#define LINE 64 // floats: parts do not share cache lines
#define TILE 1024 // floats of the sum of many ranks, kept in the first-level cache

static int ranks;
static bool fused;
static float *buffers[RANKS_MOST];
static struct side_order order;
static double times[RANKS_MOST][SIDE_BATCHES_MOST];
static _Alignas(64) atomic_int come;
static _Alignas(64) atomic_int passed;

static void barrier(void)
{
    const int before = atomic_load_explicit(&passed, memory_order_acquire);
    if (atomic_fetch_add_explicit(&come, 1, memory_order_acq_rel) == ranks - 1) {
        atomic_store_explicit(&come, 0, memory_order_relaxed);
        atomic_store_explicit(&passed, before + 1, memory_order_release);
        return;
    }
    for (int i = 0; atomic_load_explicit(&passed, memory_order_acquire) == before; i++)
        if (i >= SPINS)
            sched_yield();
}

static size_t begin_of(int rank)
{
    const size_t count = order.bytes / sizeof(float), lines = (count + LINE - 1) / LINE;
    const size_t begin = lines * (size_t)rank / (size_t)ranks * LINE;
    return begin < count ? begin : count;
}

static void add_to(float *restrict sum, const float *restrict more, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sum[i] += more[i];
}

static void two_phase(int rank)
{
    const size_t begin = begin_of(rank), end = begin_of(rank + 1);
    barrier();
    for (int i = 1; i < ranks; i++)
        add_to(buffers[rank] + begin, buffers[(rank + i) % ranks] + begin, end - begin);
    barrier();
    for (int i = 1; i < ranks; i++) {
        const int peer = (rank + i) % ranks;
        const size_t from = begin_of(peer);
        memcpy(buffers[rank] + from, buffers[peer] + from,
               (begin_of(peer + 1) - from) * sizeof(float));
    }
    barrier();
}

static void add_pair(float *restrict one, float *restrict other, size_t count)
{
    for (size_t i = 0; i < count; i++)
        one[i] = other[i] = one[i] + other[i];
}

static void add_all(size_t begin, size_t end)
{
    float sum[TILE];
    for (; begin < end; begin += TILE) {
        const size_t count = end - begin < TILE ? end - begin : TILE;
        memcpy(sum, buffers[0] + begin, count * sizeof(float));
        for (int i = 1; i < ranks; i++)
            add_to(sum, buffers[i] + begin, count);
        for (int i = 0; i < ranks; i++)
            memcpy(buffers[i] + begin, sum, count * sizeof(float));
    }
}

static void one_pass(int rank)
{
    const size_t begin = begin_of(rank), end = begin_of(rank + 1);
    barrier();
    if (ranks == 2)
        add_pair(buffers[0] + begin, buffers[1] + begin, end - begin);
    else
        add_all(begin, end);
    barrier();
}

static void call_once(int rank)
{
    if (fused)
        one_pass(rank);
    else
        two_phase(rank);
}

// Seconds.
static double call_many(int rank, unsigned long long calls)
{
    double spent = 0, begin = side_now();
    for (unsigned long long i = 0; i < calls; i++) {
        if (order.fresh) {
            memset(buffers[rank], 0, order.bytes);
            barrier();
            begin = side_now();
        }
        call_once(rank);
        if (order.fresh)
            spent += side_now() - begin;
    }
    return order.fresh ? spent : side_now() - begin;
}

// Keeps the thread on a core of its own, where there are enough.
static void pin(int rank)
{
    cpu_set_t set;
    int left = rank, core = 0;
    if (sched_getaffinity(0, sizeof(set), &set) || CPU_COUNT(&set) < ranks)
        return;
    while (!CPU_ISSET(core, &set) || left-- > 0)
        core++;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    (void)pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

static void *run_rank(void *argument)
{
    const int rank = (int)((float **)argument - buffers);
    pin(rank);
    memset(buffers[rank], 0, order.bytes);
    (void)call_many(rank, SIDE_WARMUP);
    for (unsigned long long batch = 0; batch < order.batches; batch++) {
        barrier();
        times[rank][batch] = call_many(rank, order.calls) / (double)order.calls;
    }
    return NULL;
}

static bool run_order(void)
{
    pthread_t threads[RANKS_MOST];
    for (int i = 0; i < ranks; i++)
        if (!(buffers[i] = aligned_alloc(4096, (order.bytes + 4095) / 4096 * 4096)))
            return false;
    for (int i = 0; i < ranks; i++)
        if (pthread_create(&threads[i], NULL, run_rank, &buffers[i]))
            return false;
    for (int i = 0; i < ranks; i++) {
        pthread_join(threads[i], NULL);
        free(buffers[i]);
    }
    for (unsigned long long batch = 0; batch < order.batches; batch++) {
        for (int i = 1; i < ranks; i++)
            times[0][batch] += times[i][batch];
        times[0][batch] /= ranks;
    }
    side_answer(times[0], order.batches);
    return true;
}

int main(int count, char **words)
{
    ranks = count == 3 ? atoi(words[1]) : 0;
    if (ranks < 1 || ranks > RANKS_MOST ||
        (strcmp(words[2], "fused") != 0 && strcmp(words[2], "two-phase") != 0)) {
        fputs("usage: bounds RANKS two-phase|fused\n", stderr);
        return 2;
    }
    fused = strcmp(words[2], "fused") == 0;
    while (side_read(&order))
        if (!run_order())
            return 1;
    return 0;
}
