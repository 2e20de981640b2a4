// SPDX-License-Identifier: Apache-2.0
// What the sides of tools/bench-collectives have in common: they read lines "BYTES CALLS BATCHES FRESH" and answer each
// with the median, over the batches, of the seconds a call, mean over the ranks, in place, on zeros. FRESH 0: the
// calls of a batch follow each other at once. FRESH 1: each rank writes its buffer before each call, and a
// barrier follows, both outside the time.
#ifndef LS_TOOLS_BENCH_SIDE_H
#define LS_TOOLS_BENCH_SIDE_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SIDE_BATCHES_MOST 4096
#define SIDE_WARMUP 3 // calls before the first batch

struct side_order {
    unsigned long long bytes, calls, batches, fresh;
};

static inline double side_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline bool side_read(struct side_order *out)
{
    return scanf("%llu %llu %llu %llu", &out->bytes, &out->calls, &out->batches, &out->fresh) ==
               4 &&
           out->bytes >= 4 && out->calls >= 1 && out->batches >= 1 &&
           out->batches <= SIDE_BATCHES_MOST;
}

static int side_compare(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static inline void side_answer(double *seconds, size_t count)
{
    qsort(seconds, count, sizeof(*seconds), side_compare);
    printf("%.9g\n", (seconds[count / 2] + seconds[(count - 1) / 2]) / 2);
    fflush(stdout);
}

#endif
