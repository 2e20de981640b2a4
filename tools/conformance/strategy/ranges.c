// SPDX-License-Identifier: Apache-2.0
// The fake host's collectives and updates on ranges.
#include "tools/conformance/strategy/suite.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static struct ls_fake_host *fake_of(const struct ls_strategy_host *host)
{
    return host->context;
}

static float *find_range(struct ls_fake_host *fake, uint32_t replica, uint32_t memory,
                         uint64_t first, uint64_t count, const char *call)
{
    const uint64_t all = memory == LS_REPLICA_SUMS ? LS_STRATEGY_SUMS : fake->table.flat_count;
    struct ls_fake_replica *own = &fake->replica[replica];
    if (memory < LS_REPLICA_PARAMETERS || memory > LS_REPLICA_SUMS || first > all ||
        count > all - first) {
        ls_tally_blame(fake->tally, "%s of %" PRIu64 " floats from %" PRIu64 " of memory %u", call,
                       count, first, memory);
        return NULL;
    }
    if (memory == LS_REPLICA_SUMS)
        return own->sums + first;
    return (memory == LS_REPLICA_PARAMETERS ? own->parameters : own->gradients) + first;
}

static bool equal(const struct ls_strategy_operation *a, const struct ls_strategy_operation *b)
{
    return a->operation == b->operation && a->memory == b->memory && a->root == b->root &&
           a->first == b->first && a->count == b->count;
}

static bool take_memory(struct ls_strategy_collective *range, uint32_t replica, uint64_t count)
{
    for (uint32_t i = 0; i < 2; i++) {
        range->values[i][replica] = calloc(count + 1, sizeof(float));
        if (!range->values[i][replica])
            return false;
    }
    return true;
}

void ls_fake_release_ranges(struct ls_fake_host *fake)
{
    for (uint32_t i = 0; i < LS_FAKE_RANGES; i++)
        for (uint32_t k = 0; k < 2 * LS_FAKE_REPLICAS; k++)
            free(fake->ranges[i].values[k % 2][k / 2]);
}

// The n-th that one replica prepares is the n-th of all.
int32_t ls_fake_prepare(const struct ls_strategy_host *host, uint32_t replica,
                        const struct ls_strategy_operation *operation,
                        struct ls_strategy_collective **out)
{
    struct ls_fake_host *fake = fake_of(host);
    if (!ls_fake_known(fake, replica, 0, "prepare") ||
        !ls_fake_known(fake, operation->root, 0, "prepare: the root"))
        return ls_fake_refusal(fake);
    if (!find_range(fake, replica, operation->memory, operation->first, operation->count,
                    "prepare"))
        return LS_FAILED;
    pthread_mutex_lock(&fake->lock);
    struct ls_fake_replica *own = &fake->replica[replica];
    const uint32_t number = own->prepared;
    const bool room =
        number < LS_FAKE_RANGES && take_memory(&fake->ranges[number], replica, operation->count);
    if (own->hook != LS_FAKE_INITIALIZE && !fake->lenient)
        ls_tally_blame(fake->tally, "prepare outside of initialize_parameters");
    if (room) {
        struct ls_strategy_collective *range = &fake->ranges[number];
        if (range->prepared && !equal(&range->operation, operation))
            ls_tally_blame(fake->tally,
                           "prepare number %u of replica %u is not that of the others; the order "
                           "must be the same",
                           number, replica);
        range->operation = *operation;
        range->prepared = true;
        own->prepared++;
        *out = range;
    }
    pthread_mutex_unlock(&fake->lock);
    return room ? LS_OK : LS_OUT_OF_MEMORY;
}

// A replica may be one run ahead of another, never two: so two copies of what each gave are enough.
int32_t ls_fake_range_start(const struct ls_strategy_host *host, uint32_t replica,
                            struct ls_strategy_collective *range)
{
    struct ls_fake_host *fake = fake_of(host);
    if (!ls_fake_known(fake, replica, 0, "start"))
        return ls_fake_refusal(fake);
    pthread_mutex_lock(&fake->lock);
    const struct ls_strategy_operation *of = &range->operation;
    const float *from = find_range(fake, replica, of->memory, of->first, of->count, "start");
    const uint32_t run = range->started[replica]++;
    if (range->waited[replica] != run)
        ls_tally_blame(fake->tally, "replica %u starts a collective again before it waited for it",
                       replica);
    memcpy(range->values[run % 2][replica], from, of->count * sizeof(float));
    pthread_cond_broadcast(&fake->changed);
    pthread_mutex_unlock(&fake->lock);
    return LS_OK;
}

static void take_result(const struct ls_fake_host *fake, const struct ls_strategy_collective *range,
                        uint32_t run, uint32_t replica, float *to)
{
    const struct ls_strategy_operation *of = &range->operation;
    const uint32_t world = fake->replicas;
    for (uint32_t rank = 0; rank < world; rank++) {
        const struct ls_range part = ls_part(ls_data_range(0, of->count), rank, world);
        const bool gathers = of->operation == LS_ALL_GATHER || of->operation == LS_BROADCAST;
        const uint32_t source = of->operation == LS_BROADCAST ? of->root : rank;
        const bool keeps = (of->operation == LS_REDUCE_SCATTER && rank != replica) ||
                           (of->operation == LS_REDUCE && replica != of->root);
        for (uint64_t i = part.offset; !keeps && i < part.offset + part.count; i++) {
            float sum = gathers ? range->values[run % 2][source][i] : 0;
            for (uint32_t k = 0; !gathers && k < world; k++)
                sum += range->values[run % 2][k][i];
            to[i] = sum;
        }
    }
}

int32_t ls_fake_range_wait(const struct ls_strategy_host *host, uint32_t replica,
                           struct ls_strategy_collective *range)
{
    struct ls_fake_host *fake = fake_of(host);
    const struct timespec end = ls_fake_deadline();
    int32_t status = LS_OK;
    if (!ls_fake_known(fake, replica, 0, "wait"))
        return ls_fake_refusal(fake);
    pthread_mutex_lock(&fake->lock);
    struct ls_fake_replica *own = &fake->replica[replica];
    const struct ls_strategy_operation *of = &range->operation;
    const uint32_t run = range->waited[replica];
    if (own->hook == LS_FAKE_READY && fake->replicas > 1)
        ls_tally_blame(fake->tally, "gradient_ready of replica %u waits for other replicas",
                       replica);
    if (range->started[replica] == run) {
        ls_tally_blame(fake->tally, "replica %u waits for a collective that it has not started",
                       replica);
        status = LS_FAILED;
    }
    for (uint32_t i = 0; !status && i < fake->replicas;) {
        if (range->started[i] > run)
            i++;
        else if (fake->aborted)
            status = LS_ABORTED;
        else if (!ls_fake_wait(fake, &end))
            status = LS_PEER_LOST;
    }
    if (!status) {
        take_result(fake, range, run, replica,
                    find_range(fake, replica, of->memory, of->first, of->count, "wait"));
        range->waited[replica]++;
        own->sums_waited |= of->memory == LS_REPLICA_SUMS;
        own->changes += of->memory == LS_REPLICA_PARAMETERS;
    }
    pthread_mutex_unlock(&fake->lock);
    return status;
}

int32_t ls_fake_update_range(const struct ls_strategy_host *host, uint32_t replica, uint64_t first,
                             uint64_t count)
{
    struct ls_fake_host *fake = fake_of(host);
    if (!ls_fake_known(fake, replica, 0, "update_range"))
        return ls_fake_refusal(fake);
    pthread_mutex_lock(&fake->lock);
    struct ls_fake_replica *own = &fake->replica[replica];
    const float *gradients =
        find_range(fake, replica, LS_REPLICA_GRADIENTS, first, count, "update_range");
    own->updates_after_failure += own->failures > 0;
    if (!own->checks)
        ls_tally_blame(fake->tally, "replica %u updates a range before check_step", replica);
    for (uint64_t i = 0; gradients && i < count; i++)
        own->parameters[first + i] -= gradients[i];
    own->changes++;
    own->ranged = true;
    pthread_mutex_unlock(&fake->lock);
    return gradients ? LS_OK : LS_FAILED;
}
