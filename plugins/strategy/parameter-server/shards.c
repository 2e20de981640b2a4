// SPDX-License-Identifier: Apache-2.0
// The shard plan behind shards.h.
#include "plugins/strategy/parameter-server/shards.h"

uint32_t shard_parts(uint64_t count, uint64_t least_bytes, uint32_t servers)
{
    const uint64_t grains = (count + SHARD_GRAIN - 1) / SHARD_GRAIN;
    const uint64_t least = least_bytes ? least_bytes : 1;
    uint64_t parts = count * sizeof(float) / least;
    if (parts > servers)
        parts = servers;
    if (parts > grains)
        parts = grains;
    return parts ? (uint32_t)parts : 1;
}

struct range shard_part(struct range variable, uint32_t parts, uint32_t index)
{
    const uint64_t grains = (variable.count + SHARD_GRAIN - 1) / SHARD_GRAIN;
    const uint64_t each = grains / parts, more = grains % parts;
    const uint64_t begin = (each * index + (index < more ? index : more)) * SHARD_GRAIN;
    uint64_t end = begin + (each + (index < more)) * SHARD_GRAIN;
    if (end > variable.count)
        end = variable.count;
    return (struct range){variable.first + begin, end - begin};
}

// ---- Cutting ----

static uint32_t count_shards(const struct range *variables, uint32_t count, uint64_t least_bytes,
                             uint32_t servers)
{
    uint32_t shards = 0;
    for (uint32_t i = 0; i < count; i++)
        if (variables[i].count)
            shards += shard_parts(variables[i].count, least_bytes, servers);
    return shards;
}

static int32_t cut(const struct range *variables, uint32_t variable_count,
                   const struct range *buckets, uint32_t bucket_count, uint64_t least_bytes,
                   uint32_t servers, struct shard_plan *plan)
{
    uint32_t bucket = 0;
    for (uint32_t i = 0; i < variable_count; i++) {
        const struct range variable = variables[i];
        while (bucket < bucket_count &&
               buckets[bucket].first + buckets[bucket].count <= variable.first)
            bucket++;
        if (!variable.count)
            continue;
        if (bucket == bucket_count || variable.first < buckets[bucket].first ||
            variable.first + variable.count > buckets[bucket].first + buckets[bucket].count)
            return LS_BAD_INPUT;
        const uint32_t parts = shard_parts(variable.count, least_bytes, servers);
        for (uint32_t k = 0; k < parts; k++) {
            const struct range part = shard_part(variable, parts, k);
            plan->shards[plan->count++] = (struct shard){.range = part, .bucket = bucket};
            if (part.count > plan->largest)
                plan->largest = part.count;
        }
    }
    return LS_OK;
}

// ---- Spreading ----

#define UNPLACED UINT32_MAX

// Of the shards not yet placed the largest, of equal ones the first; UNPLACED: none is left. Quadratic in all, for some
// thousands of shards, once.
static uint32_t largest_left(const struct shard_plan *plan)
{
    uint32_t best = UNPLACED;
    for (uint32_t i = 0; i < plan->count; i++)
        if (plan->shards[i].server == UNPLACED &&
            (best == UNPLACED || plan->shards[i].range.count > plan->shards[best].range.count))
            best = i;
    return best;
}

static void spread(struct shard_plan *plan, uint64_t *loads, uint32_t servers)
{
    for (uint32_t i = 0; i < servers; i++)
        loads[i] = 0;
    for (uint32_t i = 0; i < plan->count; i++)
        plan->shards[i].server = UNPLACED;
    for (uint32_t i; (i = largest_left(plan)) != UNPLACED;) {
        uint32_t lightest = 0;
        for (uint32_t k = 1; k < servers; k++)
            if (loads[k] < loads[lightest])
                lightest = k;
        plan->shards[i].server = lightest;
        loads[lightest] += plan->shards[i].range.count;
    }
}

int32_t shard_plan_create(const struct ls_host *host, const struct range *variables,
                          uint32_t variable_count, const struct range *buckets,
                          uint32_t bucket_count, uint64_t least_bytes, uint32_t servers,
                          struct shard_plan *out)
{
    const uint32_t count = count_shards(variables, variable_count, least_bytes, servers);
    struct shard_plan plan = {0};
    plan.shards = (struct shard *)host->allocate(host, (count ? count : 1) * sizeof(*plan.shards),
                                                 sizeof(void *));
    uint64_t *loads = (uint64_t *)host->allocate(host, servers * sizeof(*loads), sizeof(*loads));
    int32_t status = plan.shards && loads ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status)
        status = cut(variables, variable_count, buckets, bucket_count, least_bytes, servers, &plan);
    if (!status)
        spread(&plan, loads, servers);
    host->release(host, loads);
    if (status)
        host->release(host, plan.shards);
    else
        *out = plan;
    return status;
}
