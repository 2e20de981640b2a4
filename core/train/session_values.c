// SPDX-License-Identifier: Apache-2.0
// Parameters and states of a session: to the replicas, whether these agree, and to the host. What
// replicas hold in parts goes one variable after the other.
#include "core/train/session_values.h"

#include "core/base/log.h"
#include "core/base/memory.h"
#include "core/base/trace.h"

#include <stdlib.h>

static const struct ls_trace_label hash_span = {.category = "check", .name = "hash parameters"};

static bool has_stores(const struct ls_session *session)
{
    return session->driver && ls_driver_has_stores(session->driver);
}

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

// ---- States in parts: to the replicas ----

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

// ---- States in parts: to the host ----

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

// ---- Parameters: to the replicas ----

// One parameter, or all that the host has.
struct giving {
    struct ls_session *session;
    uint32_t parameter;
    const float *values; // NULL: all
};

// [replica thread]
static enum ls_status give_parameters(void *context, uint32_t index)
{
    const struct giving *giving = context;
    const struct ls_model *model = giving->session->model;
    struct ls_replica *replica = giving->session->replicas[index];
    enum ls_status status = LS_OK;
    if (giving->values)
        return ls_replica_set_buffer(replica, LS_BUFFER_PARAMETERS, giving->parameter,
                                     giving->values);
    for (uint32_t i = 0; !status && i < model->graph->parameter_count; i++)
        status = ls_replica_set_buffer(replica, LS_BUFFER_PARAMETERS, i, model->weights[i]);
    return status;
}

// First values are made for the replicas alone, and one parameter after the other: a copy of all on
// the host would be needed by nobody.
static enum ls_status give_first_weights(struct ls_session *session)
{
    const struct ls_graph *graph = session->model->graph;
    int64_t largest = 0;
    for (uint32_t i = 0; i < graph->parameter_count; i++) {
        const int64_t count = ls_shape_elements(&graph->parameters[i]->shape, 1);
        largest = count > largest ? count : largest;
    }
    float *values = ls_malloc_aligned((size_t)largest * sizeof(*values));
    enum ls_status status = values ? LS_OK : LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < graph->parameter_count; i++) {
        struct giving giving = {session, i, values};
        ls_initialize(graph->parameters[i], session->run->seed, values);
        status = ls_session_run(session, "preparing the replicas", give_parameters, &giving);
    }
    free(values);
    return status;
}

// [replica thread]
static enum ls_status give_states(void *context, uint32_t index)
{
    const struct ls_session *session = context;
    const bool parts = ls_session_spreads_states(session);
    const struct ls_model *model = session->model;
    struct ls_replica *replica = session->replicas[index];
    enum ls_status status = LS_OK;
    for (uint32_t k = 0; parts && !status && k < model->optimizer.state_count; k++)
        if (model->states[k] && !model->states_ahead)
            status = ls_states_give(session, index, k);
    for (uint32_t i = 0; !status && i < model->graph->parameter_count; i++)
        for (uint32_t k = 0; !status && k < model->optimizer.state_count; k++)
            if (model->states[k] && !model->states_ahead &&
                !ls_memory_is_null(ls_replica_memory(replica, LS_BUFFER_STATE + k)))
                status =
                    ls_replica_set_buffer(replica, LS_BUFFER_STATE + k, i, model->states[k][i]);
    ls_replica_set_scale(replica, &model->scale);
    return status ? status : ls_replica_refresh(replica);
}

// What stores keep goes through the gradients of the first replica, which nobody needs between
// steps. [replica thread]
static enum ls_status fill_stores(void *context, uint32_t index)
{
    const struct ls_session *session = context;
    const struct ls_model *model = session->model;
    struct ls_replica *replica = session->replicas[index];
    enum ls_status status = LS_OK;
    if (index)
        return LS_OK;
    status =
        ls_driver_fill_stores(session->driver, index, LS_BUFFER_PARAMETERS, LS_BUFFER_PARAMETERS);
    for (uint32_t k = 0; !status && k < model->optimizer.state_count; k++) {
        if (!model->states[k] || model->states_ahead)
            continue;
        for (uint32_t i = 0; !status && i < model->graph->parameter_count; i++)
            status = ls_replica_set_buffer(replica, LS_BUFFER_GRADIENTS, i, model->states[k][i]);
        if (!status)
            status = ls_driver_fill_stores(session->driver, index, LS_BUFFER_STATE + k,
                                           LS_BUFFER_GRADIENTS);
    }
    return status;
}

enum ls_status ls_session_give_weights(struct ls_session *session)
{
    struct ls_model *model = session->model;
    for (uint32_t k = 0; k < model->optimizer.state_count; k++) {
        const enum ls_status needed =
            model->optimizer.initial[k] > 0 ? ls_model_need_states(model, k) : LS_OK;
        if (needed)
            return needed;
    }
    struct giving all = {.session = session};
    enum ls_status status =
        model->weights ? ls_session_run(session, "preparing the replicas", give_parameters, &all)
                       : give_first_weights(session);
    if (!status)
        status = ls_session_run(session, "preparing the replicas", give_states, session);
    if (!status && has_stores(session))
        status = ls_session_run(session, "preparing the replicas", fill_stores, session);
    if (!status)
        model->assigned = false;
    return status;
}

enum ls_status ls_session_give_assigned(struct ls_session *session)
{
    return session->model->assigned ? ls_session_give_weights(session) : LS_OK;
}

// ---- Parameters: whether replicas agree ----

struct hashing {
    struct ls_session *session;
    uint64_t *own; // by index
};

// [replica thread]
static enum ls_status hash_replica(void *context, uint32_t index)
{
    const struct hashing *hashing = context;
    const struct ls_session *session = hashing->session;
    enum ls_status status = LS_OK;
    hashing->own[index] = 0;
    if (ls_session_is_lost(session, index))
        return LS_OK;
    if (session->driver)
        status = ls_driver_synchronise(session->driver, index);
    ls_trace_begin(&hash_span, 0);
    if (!status)
        status = ls_replica_hash(session->replicas[index], &hashing->own[index]);
    ls_trace_end();
    return status;
}

// `hashes`: of `count` ranks from `rank` on; 0: lost.
static enum ls_status compare(struct ls_session *session, const uint64_t *hashes, uint32_t rank,
                              uint32_t count)
{
    uint32_t first = 0;
    while (first + 1 < count && !hashes[first])
        first++;
    for (uint32_t i = first + 1; i < count; i++)
        if (hashes[i] && hashes[i] != hashes[first]) {
            ls_error("train",
                     "replicas %u and %u have different parameters: hashes %016llx and %016llx; "
                     "the %s does not give all ranks the same bits",
                     rank + first, rank + i, (unsigned long long)hashes[first],
                     (unsigned long long)hashes[i],
                     session->run->strategy.collective ? "collective" : "strategy");
            session->broken = session->differ = true;
            return LS_FAILED;
        }
    return LS_OK;
}

enum ls_status ls_session_hashes(struct ls_session *session, uint64_t *out)
{
    struct hashing hashing = {session, calloc(session->count, sizeof(*hashing.own))};
    enum ls_status status = hashing.own ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status)
        status = ls_session_run(session, "comparing the replicas", hash_replica, &hashing);
    if (!status)
        status = ls_cluster_gather(session->cluster, hashing.own, sizeof(*out), out);
    free(hashing.own);
    return status ? status : compare(session, out, 0, ls_cluster_world(session->cluster));
}

enum ls_status ls_session_compare(struct ls_session *session)
{
    struct hashing hashing = {session, calloc(session->count, sizeof(*hashing.own))};
    enum ls_status status = hashing.own ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status)
        status = ls_session_run(session, "comparing the replicas", hash_replica, &hashing);
    if (!status)
        status = compare(session, hashing.own, ls_session_rank(session, 0), session->count);
    free(hashing.own);
    return status;
}

// ---- Parameters: to the host ----

// The last update is followed by no loss that would show what it ruined.
static enum ls_status say_not_finite(const struct ls_tensor *parameter, enum ls_status status)
{
    if (status == LS_FAILED)
        ls_error("train",
                 "after the last step '%s' is not finite; try a smaller learning rate, or check "
                 "the data",
                 parameter->name);
    return status;
}

// Of the first replica that is left. [replica thread]
static enum ls_status check_replica(void *context, uint32_t index)
{
    struct ls_session *session = context;
    const struct ls_graph *graph = session->model->graph;
    enum ls_status status = LS_OK;
    if (index != ls_session_first(session))
        return LS_OK;
    for (uint32_t i = 0; !status && i < graph->parameter_count; i++)
        status = say_not_finite(graph->parameters[i],
                                ls_replica_check_parameter(session->replicas[index], i));
    return status;
}

enum ls_status ls_session_check_replica(struct ls_session *session)
{
    return ls_session_run(session, "looking at the weights", check_replica, session);
}

// The same, of what stores have where there are any. [replica thread]
static enum ls_status check_weights(void *context, uint32_t index)
{
    struct ls_session *session = context;
    enum ls_status status = LS_OK;
    if (index == ls_session_first(session) && has_stores(session))
        status = ls_driver_read_stores(session->driver, index, LS_BUFFER_PARAMETERS,
                                       LS_BUFFER_PARAMETERS);
    return status ? status : check_replica(session, index);
}

enum ls_status ls_session_check_weights(struct ls_session *session)
{
    const enum ls_status status = ls_session_synchronise(session);
    return status ? status
                  : ls_session_run(session, "looking at the weights", check_weights, session);
}

struct copying {
    struct ls_session *session;
    const struct ls_values *to;
};

// [replica thread]
static enum ls_status copy_weights(struct ls_session *session, uint32_t index, float **to)
{
    const struct ls_graph *graph = session->model->graph;
    enum ls_status status = LS_OK;
    if (has_stores(session))
        status = ls_driver_read_stores(session->driver, index, LS_BUFFER_PARAMETERS,
                                       LS_BUFFER_PARAMETERS);
    for (uint32_t i = 0; !status && i < graph->parameter_count; i++) {
        const size_t count = (size_t)ls_shape_elements(&graph->parameters[i]->shape, 1);
        if (!to[i])
            continue;
        status = ls_replica_get_buffer(session->replicas[index], LS_BUFFER_PARAMETERS, i, to[i]);
        if (!status)
            status = say_not_finite(graph->parameters[i], ls_values_check_finite(to[i], count));
    }
    return status;
}

// Of the stores by the gradients. [replica thread]
static enum ls_status copy_state(struct ls_session *session, uint32_t index, uint32_t state,
                                 float **to)
{
    const bool stores = has_stores(session);
    const uint32_t buffer = stores ? LS_BUFFER_GRADIENTS : LS_BUFFER_STATE + state;
    enum ls_status status = LS_OK;
    if (stores)
        status = ls_driver_read_stores(session->driver, index, LS_BUFFER_STATE + state, buffer);
    for (uint32_t i = 0; !status && i < session->model->graph->parameter_count; i++)
        if (to[i])
            status = ls_replica_get_buffer(session->replicas[index], buffer, i, to[i]);
    return status;
}

// Of the first replica that is left. [replica thread]
static enum ls_status copy(void *context, uint32_t index)
{
    const struct copying *copying = context;
    struct ls_session *session = copying->session;
    enum ls_status status = LS_OK;
    if (index != ls_session_first(session))
        return LS_OK;
    if (copying->to->weights)
        status = copy_weights(session, index, copying->to->weights);
    const bool parts = ls_session_spreads_states(session); // which are collected
    for (uint32_t k = 0; !status && !parts && k < session->model->optimizer.state_count; k++)
        if (copying->to->states[k])
            status = copy_state(session, index, k, copying->to->states[k]);
    return status;
}

// ---- Copies ----

struct reading {
    const struct ls_session *session;
    uint32_t buffer, parameter;
    float *out;
};

// [replica thread]
static enum ls_status read_first(void *context, uint32_t index)
{
    const struct reading *reading = context;
    return index ? LS_OK
                 : ls_replica_get_buffer(reading->session->replicas[0], reading->buffer,
                                         reading->parameter, reading->out);
}

enum ls_status ls_session_read_parameter(struct ls_session *session, uint32_t parameter, float *out)
{
    struct reading reading = {session, LS_BUFFER_PARAMETERS, parameter, out};
    return ls_session_run(session, "taking the weights back", read_first, &reading);
}

enum ls_status ls_session_read_state(struct ls_session *session, uint32_t parameter, uint32_t state,
                                     float *out)
{
    struct reading reading = {session, LS_BUFFER_GRADIENTS, parameter, out};
    const enum ls_status status = ls_states_collect(session, parameter, state, out != NULL);
    return status || !out ? status
                          : ls_session_run(session, "taking the states back", read_first, &reading);
}

// `to`: NULL: this worker only sends what it holds.
static enum ls_status read_states(struct ls_session *session, const struct ls_values *to)
{
    uint32_t unable;
    enum ls_status status = ls_states_agree(session, true, &unable);
    for (uint32_t i = 0; !status && i < session->model->graph->parameter_count; i++)
        for (uint32_t k = 0; !status && k < session->model->optimizer.state_count; k++)
            status = ls_session_read_state(session, i, k, to ? to->states[k][i] : NULL);
    return status;
}

static bool has_states_elsewhere(const struct ls_session *session)
{
    return session->model->states_ahead && ls_session_spreads_over_workers(session);
}

enum ls_status ls_session_lend_states(struct ls_session *session)
{
    if (!has_states_elsewhere(session))
        return LS_OK;
    enum ls_status status = ls_session_synchronise(session);
    if (status)
        ls_session_decline_states(session);
    else
        status = read_states(session, NULL);
    return status == LS_OUT_OF_MEMORY ? LS_OK : status;
}

void ls_session_decline_states(struct ls_session *session)
{
    uint32_t unable;
    if (has_states_elsewhere(session))
        (void)!ls_states_agree(session, false, &unable);
}

enum ls_status ls_session_copy(struct ls_session *session, const struct ls_values *to)
{
    struct copying copying = {session, to};
    enum ls_status status = ls_session_synchronise(session);
    if (!status)
        status = ls_session_run(session, "taking the weights back", copy, &copying);
    if (!to->states[0] || !ls_session_spreads_states(session))
        return status;
    if (!status)
        return read_states(session, to);
    ls_session_decline_states(session);
    return status;
}

enum ls_status ls_session_take(struct ls_session *session, enum ls_take what)
{
    struct ls_model *model = session->model;
    const bool states = what == LS_TAKE_ALL && model->states_ahead;
    struct ls_values to = {0};
    float **first = NULL; // the first weights that the host has
    // Before anything on the host is overwritten.
    enum ls_status status = model->ahead ? ls_session_check_weights(session) : LS_OK;
    if (!status && model->ahead && !model->weights)
        status = ls_model_allocate(model, &first);
    if (model->ahead)
        to.weights = first ? first : model->weights;
    for (uint32_t k = 0; !status && states && k < model->optimizer.state_count; k++) {
        status = ls_model_need_states(model, k);
        to.states[k] = model->states[k];
    }
    if (status && states)
        ls_session_decline_states(session);
    if (!status)
        status = ls_session_copy(session, &to);
    if (status) {
        ls_model_free(model, first);
        return status;
    }
    if (first)
        model->weights = first;
    model->on_host.steps_done = model->steps_done;
    model->on_host.scale = model->scale;
    model->on_host.order = model->order;
    model->ahead = false;
    model->states_ahead = model->states_ahead && !states;
    return LS_OK;
}

enum ls_status ls_model_take(struct ls_model *model, enum ls_take what)
{
    if (!model->ahead && (what == LS_TAKE_WEIGHTS || !model->states_ahead))
        return LS_OK;
    const uint64_t steps = model->steps_done;
    const enum ls_status status = ls_session_take(model->session, what);
    const enum ls_status closed = status ? ls_session_close(model) : LS_OK;
    ls_model_say_back(model, steps);
    return closed ? closed : status;
}
