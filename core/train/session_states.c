// SPDX-License-Identifier: Apache-2.0
// States in parts: to the replicas, and back, one variable after the other.
#include "core/train/session_states.h"

#include <stdlib.h>

bool ls_session_spreads_states(const struct ls_session *session)
{
    return session->spread[LS_HELD_STATES] && session->model->optimizer.state_count;
}

bool ls_session_spreads_over_workers(const struct ls_session *session)
{
    return ls_session_spreads_states(session) && ls_cluster_workers(session->cluster) > 1;
}

static struct ls_memory gradients_at(const struct ls_replica *replica, uint64_t first)
{
    return ls_memory_at(ls_replica_memory(replica, LS_BUFFER_GRADIENTS), first * sizeof(float));
}

// ---- To the replicas ----

enum ls_status ls_states_give(const struct ls_session *session, uint32_t index, uint32_t state)
{
    const struct ls_model *model = session->model;
    struct ls_replica *replica = session->replicas[index];
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < model->graph->parameter_count; i++)
        status = ls_replica_set_buffer(replica, LS_BUFFER_GRADIENTS, i, model->states[state][i]);
    for (uint32_t i = 0; !status && i < ls_replica_buckets(replica)->count; i++) {
        const struct ls_held_range held = ls_replica_held(replica, LS_HELD_STATES, i);
        if (held.count)
            status =
                ls_device_copy(ls_replica_device(replica),
                               ls_replica_held_memory(replica, LS_BUFFER_STATE + state, i),
                               gradients_at(replica, held.first), held.count * sizeof(float), NULL);
    }
    return status;
}

// ---- Back ----

enum ls_status ls_states_agree(const struct ls_session *session, bool able, uint32_t *unable)
{
    const uint32_t workers = ls_cluster_workers(session->cluster);
    const unsigned char mine = able;
    *unable = able ? workers : ls_cluster_worker(session->cluster);
    if (workers == 1)
        return able ? LS_OK : LS_OUT_OF_MEMORY;
    unsigned char *all = calloc(workers, sizeof(*all));
    enum ls_status status = all ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status)
        status = ls_cluster_gather_workers(session->cluster, &mine, sizeof(mine), all);
    for (uint32_t i = 0; !status && i < workers; i++) {
        status = all[i] ? LS_OK : LS_OUT_OF_MEMORY;
        *unable = all[i] ? workers : i;
    }
    free(all);
    return status;
}

// A part of a parameter's state that a rank holds.
struct part {
    uint32_t rank, bucket, state;
    struct ls_held_range range, held; // the part, and all that the rank holds of the bucket
    float *values; // room for it
};

// From the rank that holds it to all workers.
static enum ls_status fetch(const struct ls_session *session, const struct part *part)
{
    const uint32_t first = ls_cluster_first_rank(session->cluster);
    const uint64_t bytes = part->range.count * sizeof(float);
    enum ls_status status = LS_OK;
    if (part->rank >= first && part->rank - first < session->count) {
        const struct ls_replica *replica = session->replicas[part->rank - first];
        const uint64_t at = (part->range.first - part->held.first) * sizeof(float);
        status = ls_device_copy(
            ls_replica_device(replica), ls_host_memory(part->values),
            ls_memory_at(
                ls_replica_held_memory(replica, LS_BUFFER_STATE + part->state, part->bucket), at),
            bytes, NULL);
    }
    if (!status && ls_cluster_workers(session->cluster) > 1)
        status = ls_cluster_broadcast(session->cluster, part->values, bytes,
                                      ls_cluster_rank_workers(session->cluster)[part->rank]);
    return status;
}

// What both have; count 0: nothing.
static struct ls_held_range common(struct ls_held_range a, struct ls_held_range b)
{
    const uint64_t first = a.first > b.first ? a.first : b.first;
    const uint64_t a_end = a.first + a.count, b_end = b.first + b.count;
    const uint64_t end = a_end < b_end ? a_end : b_end;
    return (struct ls_held_range){first, end > first ? end - first : 0};
}

static uint32_t bucket_of(const struct ls_buckets *buckets, uint32_t place)
{
    uint32_t bucket = 0;
    while (place >= buckets->list[bucket].first_place + buckets->list[bucket].place_count)
        bucket++;
    return bucket;
}

enum ls_status ls_states_collect(const struct ls_session *session, uint32_t parameter,
                                 uint32_t state, bool wanted)
{
    const struct ls_replica *first = session->replicas[0];
    const struct ls_parameter_plan *plan = ls_replica_plan(first);
    const uint32_t place = ls_plan_find(plan, session->model->graph->parameters[parameter]->name);
    if (place >= plan->reduced_count) // a frozen one has no states
        return LS_OK;
    const struct ls_held_range all = {plan->places[place].offset / sizeof(float),
                                      plan->places[place].bytes / sizeof(float)};
    struct part part = {.bucket = bucket_of(ls_replica_buckets(first), place), .state = state};
    part.values = malloc(plan->places[place].bytes + 1);
    enum ls_status status = part.values ? LS_OK : LS_OUT_OF_MEMORY;
    for (; !status && part.rank < ls_cluster_world(session->cluster); part.rank++) {
        struct ls_strategy_placement placement;
        status = ls_driver_placement(session->driver, part.rank, part.bucket, &placement);
        if (status)
            break;
        part.held = (struct ls_held_range){placement.states.first, placement.states.count};
        part.range = common(all, part.held);
        if (!part.range.count)
            continue;
        status = fetch(session, &part);
        if (!status && wanted)
            status =
                ls_device_copy(ls_replica_device(first), gradients_at(first, part.range.first),
                               ls_host_memory(part.values), part.range.count * sizeof(float), NULL);
    }
    free(part.values);
    if (status && status != LS_PEER_LOST) // others would wait for it
        ls_workers_give_up(session->run);
    return status;
}
