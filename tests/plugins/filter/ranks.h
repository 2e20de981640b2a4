// SPDX-License-Identifier: Apache-2.0
// A filter on several ranks in one thread, step by step, with plain sums and copies in place of
// collectives.
#ifndef LS_TESTS_PLUGINS_FILTER_RANKS_H
#define LS_TESTS_PLUGINS_FILTER_RANKS_H

#include "core/filter/filter.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_MOST 4

struct rank {
    float *x, *result, *delivered, *residual;
    uint8_t *scratch, *shared;
};

struct ranks {
    struct ls_filter_plan *plan;
    uint32_t world;
    struct rank of[RANKS_MOST];
};

static void *ranks_memory(uint64_t bytes)
{
    const uint64_t all = (bytes + 64) / 64 * 64;
    void *memory = aligned_alloc(64, all);
    ck_assert_ptr_nonnull(memory);
    return memset(memory, 0, all);
}

static void ranks_open(struct ranks *ranks, const struct ls_filter_interface *interface,
                       const struct ls_host *host, uint32_t world,
                       const struct ls_filter_variable *variables, uint32_t count,
                       const uint64_t *ends)
{
    *ranks = (struct ranks){.world = world};
    ck_assert_int_eq(ls_filter_plan_create(interface, host, "filter", world, variables, count, ends,
                                           &ranks->plan),
                     LS_OK);
    const uint64_t vector = ranks->plan->call.count * sizeof(float);
    for (uint32_t i = 0; i < world; i++)
        ranks->of[i] = (struct rank){.x = ranks_memory(vector),
                                     .result = ranks_memory(vector),
                                     .delivered = ranks_memory(vector),
                                     .residual = ranks_memory(vector),
                                     .scratch = ranks_memory(ranks->plan->scratch_bytes),
                                     .shared = ranks_memory(ranks->plan->shared_bytes)};
}

static void ranks_close(struct ranks *ranks)
{
    for (uint32_t i = 0; i < ranks->world; i++) {
        struct rank *rank = &ranks->of[i];
        void *const memory[] = {rank->x,        rank->result,  rank->delivered,
                                rank->residual, rank->scratch, rank->shared};
        for (size_t k = 0; k < sizeof(memory) / sizeof(*memory); k++)
            free(memory[k]);
    }
    ls_filter_plan_destroy(ranks->plan);
}

// Copies of bytes in equal blocks, and sums of floats.
static void ranks_exchange(struct ranks *ranks, const struct ls_filter_stage *stage)
{
    const uint64_t bytes = stage->count * ls_dtype_bytes(stage->dtype);
    const uint64_t block = bytes / ranks->world;
    uint8_t *all = ranks_memory(ranks->world * bytes);
    float *sums = ranks_memory(bytes);
    for (uint32_t i = 0; i < ranks->world; i++) {
        memcpy(all + i * bytes, ranks->of[i].scratch + stage->offset, bytes);
        for (uint64_t k = 0; stage->operation == LS_ALL_REDUCE && k < stage->count; k++)
            sums[k] += ((const float *)(const void *)(all + i * bytes))[k];
    }
    for (uint32_t i = 0; i < ranks->world; i++) {
        uint8_t *to = ranks->of[i].scratch + stage->offset;
        if (stage->operation == LS_ALL_REDUCE)
            memcpy(to, sums, bytes);
        for (uint32_t k = 0; stage->operation != LS_ALL_REDUCE && k < ranks->world; k++)
            memcpy(to + k * block,
                   all + k * bytes + (stage->operation == LS_ALL_TO_ALL ? i : k) * block, block);
    }
    free(all);
    free(sums);
}

// From x to the sum, and what is owed then.
static void ranks_step(struct ranks *ranks)
{
    const struct ls_filter_plan *plan = ranks->plan;
    for (uint32_t number = 0; number < plan->stage_count; number++) {
        const struct ls_filter_stage *stage = &plan->stages[number];
        if (stage->collective)
            ranks_exchange(ranks, stage);
        for (uint32_t i = 0; !stage->collective && i < ranks->world; i++) {
            const struct rank *rank = &ranks->of[i];
            const struct ls_filter_memory memory = {.struct_size = sizeof(memory),
                                                    .rank = i,
                                                    .x = rank->x,
                                                    .result = rank->result,
                                                    .delivered = rank->delivered,
                                                    .scratch = rank->scratch,
                                                    .shared = rank->shared};
            ck_assert_int_eq(plan->interface->run(&plan->call, &memory, stage->function), LS_OK);
        }
    }
    for (uint32_t i = 0; i < ranks->world; i++)
        for (uint64_t k = 0; k < plan->call.count; k++)
            ranks->of[i].residual[k] = ranks->of[i].x[k] - ranks->of[i].delivered[k];
}

#endif
