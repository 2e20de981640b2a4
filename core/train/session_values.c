// SPDX-License-Identifier: Apache-2.0
// Parameters and states of a session: to the replicas, whether these agree, and to the host. All of
// it goes one variable after the other, so that no worker needs room for a model of which replicas
// hold parts.
#include "core/train/session_values.h"

#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/memory.h"
#include "core/base/trace.h"

#include <stdlib.h>
#include <string.h>

static const struct ls_trace_label hash_span = {.category = "check", .name = "hash parameters"};

static bool has_stores(const struct ls_session *session)
{
    return session->driver && ls_driver_has_stores(session->driver);
}

static uint64_t elements_of(const struct ls_session *session, uint32_t parameter)
{
    return (uint64_t)ls_shape_elements(&session->model->graph->parameters[parameter]->shape, 1);
}

static uint64_t most_elements(const struct ls_session *session)
{
    uint64_t most = 1;
    for (uint32_t i = 0; i < session->model->graph->parameter_count; i++)
        most = elements_of(session, i) > most ? elements_of(session, i) : most;
    return most;
}

// ---- Parts ----

static bool spreads_states(const struct ls_session *session)
{
    return session->spread[LS_HELD_STATES] && session->model->optimizer.state_count;
}

bool ls_session_spreads_parameters(const struct ls_session *session)
{
    return session->spread[LS_HELD_PARAMETERS];
}

bool ls_session_spreads_over_workers(const struct ls_session *session)
{
    return (ls_session_spreads_parameters(session) || spreads_states(session)) &&
           ls_cluster_workers(session->cluster) > 1;
}

bool ls_session_ahead_in_parts(const struct ls_session *session, enum ls_take what)
{
    const struct ls_model *model = session->model;
    return (model->ahead && ls_session_spreads_parameters(session)) ||
           (what == LS_TAKE_ALL && model->states_ahead && spreads_states(session));
}

enum ls_status ls_session_agree(const struct ls_session *session, bool able, uint32_t *unable)
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

// What a rank holds of a parameter, or of a state of it.
struct part {
    uint32_t rank, bucket, buffer;
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
            ls_memory_at(ls_replica_held_memory(replica, part->buffer, part->bucket), at), bytes,
            NULL);
    }
    if (!status && ls_cluster_workers(session->cluster) > 1)
        status = ls_cluster_broadcast(session->cluster, part->values, bytes,
                                      ls_cluster_rank_workers(session->cluster)[part->rank]);
    return status;
}

static struct ls_held_range held_of(const struct ls_strategy_placement *placement, uint32_t buffer)
{
    const struct ls_placed_range *range =
        buffer == LS_BUFFER_PARAMETERS ? &placement->parameters : &placement->states;
    return (struct ls_held_range){range->first, range->count};
}

// Puts together what ranks hold of a parameter, or of a state of a trained one, as it lies in the
// flat buffers. `place`: of the plan; `values`: room for its bytes.
static enum ls_status collect(const struct ls_session *session, uint32_t place, uint32_t buffer,
                              float *values)
{
    const struct ls_replica *first = session->replicas[0];
    const struct ls_parameter_place *whole = &ls_replica_plan(first)->places[place];
    const struct ls_held_range all = {whole->offset / sizeof(float), whole->bytes / sizeof(float)};
    struct part part = {.bucket = ls_buckets_find(ls_replica_buckets(first), place),
                        .buffer = buffer};
    enum ls_status status = LS_OK;
    for (; !status && part.rank < ls_cluster_world(session->cluster); part.rank++) {
        struct ls_strategy_placement placement;
        status = ls_driver_placement(session->driver, part.rank, part.bucket, &placement);
        if (status)
            break;
        part.held = held_of(&placement, buffer);
        part.range = ls_held_common(all, part.held);
        part.values = values + (part.range.first - all.first);
        if (part.range.count)
            status = fetch(session, &part);
    }
    return status;
}

struct reading {
    const struct ls_session *session;
    uint32_t buffer, parameter;
    const float *collected; // NULL: the first replica has it as a whole
    float *out;
};

// [replica thread]
static enum ls_status read_first(void *context, uint32_t index)
{
    const struct reading *reading = context;
    struct ls_replica *replica = reading->session->replicas[0];
    if (index)
        return LS_OK;
    return reading->collected
               ? ls_replica_export(replica, reading->parameter, reading->collected, reading->out)
               : ls_replica_get_buffer(replica, reading->buffer, reading->parameter, reading->out);
}

enum ls_status ls_session_read(struct ls_session *session, uint32_t parameter, int state,
                               float *out)
{
    const struct ls_parameter_plan *plan = ls_replica_plan(session->replicas[0]);
    const uint32_t place = ls_plan_find(plan, session->model->graph->parameters[parameter]->name);
    const bool parts = state < 0 ? session->spread[LS_HELD_PARAMETERS]
                                 : session->spread[LS_HELD_STATES] && place < plan->reduced_count;
    struct reading reading = {.session = session,
                              .buffer = state < 0 ? LS_BUFFER_PARAMETERS
                                                  : LS_BUFFER_STATE + (uint32_t)state,
                              .parameter = parameter,
                              .out = out};
    enum ls_status status = LS_OK;
    float *collected = parts ? ls_malloc_aligned(plan->places[place].bytes) : NULL;
    if (parts) {
        status = collected ? collect(session, place, reading.buffer, collected) : LS_OUT_OF_MEMORY;
        reading.collected = collected;
    }
    if (status && status != LS_PEER_LOST) // others would wait for it
        ls_workers_give_up(session->run);
    if (!status && out)
        status = ls_session_run(session, "taking the weights back", read_first, &reading);
    free(collected);
    return status;
}

// ---- To the replicas ----

// Of one parameter, its values and those of its states; NULL: replicas keep what they have.
struct giving {
    struct ls_session *session;
    uint32_t parameter;
    const float *values[1 + LS_OPTIMIZER_STATES];
};

// [replica thread]
static enum ls_status give_parameter(void *context, uint32_t index)
{
    const struct giving *giving = context;
    struct ls_replica *replica = giving->session->replicas[index];
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i <= LS_OPTIMIZER_STATES; i++)
        if (giving->values[i])
            status =
                ls_replica_set_buffer(replica, i ? LS_BUFFER_STATE + i - 1 : LS_BUFFER_PARAMETERS,
                                      giving->parameter, giving->values[i]);
    return status;
}

// Room for saved or first values of a parameter or of a state, which are read or made for the
// replicas alone, and one parameter after the other: a copy of all on the host would be needed by
// nobody.
static enum ls_status make_room(const struct ls_session *session, float **room)
{
    if (!*room)
        *room = ls_malloc_aligned(most_elements(session) * sizeof(**room));
    return *room ? LS_OK : LS_OUT_OF_MEMORY;
}

static enum ls_status find_weights(const struct ls_session *session, uint32_t parameter,
                                   float **room, const float **out)
{
    const struct ls_model *model = session->model;
    *out = model->weights ? model->weights[parameter] : NULL;
    if (*out)
        return LS_OK;
    const enum ls_status status = make_room(session, room);
    *out = *room;
    return status ? status : ls_model_read_values(model, parameter, -1, *room);
}

// Memory for states is zeroed.
static enum ls_status find_state(const struct ls_session *session, uint32_t parameter,
                                 uint32_t state, float **room, const float **out)
{
    const struct ls_model *model = session->model;
    *out = NULL;
    if (model->states_ahead)
        return LS_OK;
    if (model->states[state])
        *out = model->states[state][parameter];
    if (*out || (!(model->optimizer.initial[state] > 0) &&
                 !ls_model_has_saved(model, parameter, (int)state)))
        return LS_OK;
    const enum ls_status status = make_room(session, room);
    *out = *room;
    return status ? status : ls_model_read_values(model, parameter, (int)state, *room);
}

static enum ls_status give_parameters(struct ls_session *session)
{
    const struct ls_model *model = session->model;
    float *rooms[1 + LS_OPTIMIZER_STATES] = {0};
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < model->graph->parameter_count; i++) {
        struct giving giving = {.session = session, .parameter = i};
        status = find_weights(session, i, &rooms[0], &giving.values[0]);
        for (uint32_t k = 0; !status && k < model->optimizer.state_count; k++)
            status = find_state(session, i, k, &rooms[1 + k], &giving.values[1 + k]);
        if (!status)
            status = ls_session_run(session, "preparing the replicas", give_parameter, &giving);
    }
    for (uint32_t i = 0; i <= LS_OPTIMIZER_STATES; i++)
        free(rooms[i]);
    return status;
}

enum ls_status ls_session_write_parameter(struct ls_session *session, uint32_t parameter,
                                          const float *values)
{
    struct giving giving = {.session = session, .parameter = parameter, .values = {values}};
    const enum ls_status status = ls_session_synchronise(session);
    return status ? status : ls_session_run(session, "setting a variable", give_parameter, &giving);
}

// [replica thread]
static enum ls_status note_given(void *context, uint32_t index)
{
    const struct ls_session *session = context;
    ls_replica_set_scale(session->replicas[index], &session->model->scale);
    if (session->driver)
        ls_driver_begin_round(session->driver, index);
    return ls_replica_refresh(session->replicas[index]);
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
    // Only where nobody is to have the whole model, a file is kept open in place of a copy.
    enum ls_status status =
        ls_session_spreads_parameters(session) ? LS_OK : ls_model_settle_saved(model);
    for (uint32_t k = 0; has_stores(session) && !status && k < model->optimizer.state_count; k++)
        if (model->optimizer.initial[k] > 0)
            status = ls_model_need_states(model, k);
    if (!status)
        status = give_parameters(session);
    if (!status)
        status = ls_session_run(session, "preparing the replicas", note_given, session);
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

// [replica thread]
static enum ls_status average_parts(void *context, uint32_t index)
{
    const struct ls_session *session = context;
    const uint32_t averages = LS_BUFFER_STATE + session->model->optimizer.own_states;
    struct ls_replica *replica = session->replicas[index];
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < session->model->graph->parameter_count; i++)
        if (session->model->graph->parameters[i]->zone == LS_ZONE_TRAINED)
            status = ls_replica_copy_part(replica, LS_BUFFER_PARAMETERS, averages, i);
    return status ? status : ls_replica_refresh(replica);
}

enum ls_status ls_session_take_averages(struct ls_session *session)
{
    return ls_session_run(session, "averaging the weights", average_parts, session);
}

// ---- Whether replicas agree ----

struct hashing {
    struct ls_session *session;
    uint64_t *own; // by index
};

// Of replicas that have all parameters. [replica thread]
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
    if (status || ls_session_spreads_parameters(session))
        return status;
    ls_trace_begin(&hash_span, 0);
    status = ls_replica_hash(session->replicas[index], &hashing->own[index]);
    ls_trace_end();
    return status;
}

// Of parameters in parts, of which there is one copy: what ls_replica_hash would find.
static enum ls_status hash_parts(struct ls_session *session, uint64_t *out)
{
    uint32_t *order = ls_replica_name_order(session->replicas[0]), unable;
    float *values = ls_malloc_aligned(most_elements(session) * sizeof(*values));
    struct ls_hash *hash = ls_hash_create();
    ls_trace_begin(&hash_span, 0);
    enum ls_status status = ls_session_agree(session, order && values && hash, &unable);
    for (uint32_t i = 0; !status && i < session->model->graph->parameter_count; i++) {
        status = ls_session_read(session, order[i], -1, values);
        if (!status)
            ls_hash_add(hash, values, elements_of(session, order[i]) * sizeof(*values));
    }
    for (uint32_t i = 0; !status && i < session->count; i++)
        out[i] = ls_hash_get(hash);
    ls_trace_end();
    ls_hash_destroy(hash);
    free(values);
    free(order);
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
    if (!status && ls_session_spreads_parameters(session))
        status = hash_parts(session, hashing.own);
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

// ---- Whether they are finite ----

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

struct checking {
    struct ls_session *session;
    uint32_t *found; // by index: the first parameter that is not finite; UINT32_MAX: none
};

// [replica thread]
static enum ls_status check_own_parts(void *context, uint32_t index)
{
    const struct checking *checking = context;
    const struct ls_session *session = checking->session;
    uint32_t *found = &checking->found[index];
    enum ls_status status = LS_OK;
    *found = UINT32_MAX;
    for (uint32_t i = 0; !status && i < session->model->graph->parameter_count; i++) {
        status = ls_replica_check_parameter(session->replicas[index], i);
        if (status == LS_FAILED) {
            *found = i;
            return LS_OK; // the workers tell each other
        }
    }
    return status;
}

// Each replica looks at its own; all workers name the same parameter.
static enum ls_status check_parts(struct ls_session *session)
{
    const uint32_t world = ls_cluster_world(session->cluster);
    struct checking checking = {session, calloc(session->count, sizeof(*checking.found))};
    uint32_t *all = calloc(world, sizeof(*all)), first = UINT32_MAX;
    enum ls_status status = checking.found && all ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status)
        status = ls_session_run(session, "looking at the weights", check_own_parts, &checking);
    if (!status)
        status = ls_cluster_gather(session->cluster, checking.found, sizeof(*all), all);
    for (uint32_t i = 0; !status && i < world; i++)
        first = all[i] < first ? all[i] : first;
    free(checking.found);
    free(all);
    if (status || first == UINT32_MAX)
        return status;
    session->broken = true;
    return say_not_finite(session->model->graph->parameters[first], LS_FAILED);
}

enum ls_status ls_session_check_replica(struct ls_session *session)
{
    return ls_session_spreads_parameters(session)
               ? check_parts(session)
               : ls_session_run(session, "looking at the weights", check_replica, session);
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
    if (status)
        return status;
    return ls_session_spreads_parameters(session)
               ? check_parts(session)
               : ls_session_run(session, "looking at the weights", check_weights, session);
}

// ---- To the host ----

enum ls_status ls_session_read_parameter(struct ls_session *session, uint32_t parameter, float *out)
{
    enum ls_status status = ls_session_synchronise(session);
    if (!status)
        status = ls_session_read(session, parameter, -1, out);
    return status ? status
                  : say_not_finite(session->model->graph->parameters[parameter],
                                   ls_values_check_finite(out, elements_of(session, parameter)));
}

void ls_session_say_who_reads(const struct ls_session *session, const char *scope)
{
    if (!session || !ls_session_spreads_over_workers(session) ||
        !ls_cluster_check(session->cluster, NULL))
        return;
    const char *name = session->run->strategy.strategy->plugin->name;
    if (ls_session_spreads_parameters(session))
        ls_error(scope,
                 "under strategy '%s' all workers read variables, save weights and save the model "
                 "at the same place of the program",
                 name);
    else
        ls_error(scope,
                 "under strategy '%s' all workers save the model at the same place of the program "
                 "(save_weights may be the chief's alone)",
                 name);
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

// What the first replica that is left has as a whole. [replica thread]
static enum ls_status copy(void *context, uint32_t index)
{
    const struct copying *copying = context;
    struct ls_session *session = copying->session;
    enum ls_status status = LS_OK;
    if (index != ls_session_first(session))
        return LS_OK;
    if (copying->to->weights && !ls_session_spreads_parameters(session))
        status = copy_weights(session, index, copying->to->weights);
    for (uint32_t k = 0; !status && k < session->model->optimizer.state_count; k++)
        if (copying->to->states[k] && !spreads_states(session))
            status = copy_state(session, index, k, copying->to->states[k]);
    return status;
}

enum ls_status ls_session_begin_reading(struct ls_session *session, bool able, uint32_t *unable)
{
    const struct ls_model *model = session->model;
    const enum ls_status status = ls_session_agree(session, able, unable);
    return !status && model->ahead && ls_session_spreads_parameters(session) ? check_parts(session)
                                                                             : status;
}

// What is in parts and ahead of the host, in the order of a file. `to`: NULL: this worker only sends
// what it holds.
static enum ls_status read_parts(struct ls_session *session, enum ls_take what,
                                 const struct ls_values *to)
{
    const struct ls_model *model = session->model;
    const bool weights = model->ahead && ls_session_spreads_parameters(session);
    const bool states = what == LS_TAKE_ALL && model->states_ahead && spreads_states(session);
    uint32_t unable;
    enum ls_status status = ls_session_begin_reading(session, true, &unable);
    for (uint32_t i = 0; !status && i < model->graph->parameter_count; i++) {
        if (weights && (!to || to->weights[i]))
            status = ls_session_read(session, i, -1, to ? to->weights[i] : NULL);
        for (uint32_t k = 0; !status && states && k < model->optimizer.state_count; k++)
            status = ls_session_read(session, i, (int)k, to ? to->states[k][i] : NULL);
    }
    return status;
}

static bool is_elsewhere(const struct ls_session *session, enum ls_take what)
{
    return session && ls_session_ahead_in_parts(session, what) &&
           ls_cluster_workers(session->cluster) > 1;
}

enum ls_status ls_session_lend(struct ls_session *session, enum ls_take what)
{
    if (!is_elsewhere(session, what))
        return LS_OK;
    enum ls_status status = ls_session_synchronise(session);
    if (status)
        ls_session_decline(session, what);
    else
        status = read_parts(session, what, NULL);
    return status == LS_OUT_OF_MEMORY ? LS_OK : status;
}

void ls_session_decline(struct ls_session *session, enum ls_take what)
{
    uint32_t unable;
    if (is_elsewhere(session, what))
        (void)!ls_session_agree(session, false, &unable);
}

enum ls_status ls_session_copy(struct ls_session *session, const struct ls_values *to)
{
    const enum ls_take what = to->states[0] ? LS_TAKE_ALL : LS_TAKE_WEIGHTS;
    struct copying copying = {session, to};
    enum ls_status status = ls_session_synchronise(session);
    if (!status)
        status = ls_session_run(session, "taking the weights back", copy, &copying);
    if (!ls_session_ahead_in_parts(session, what))
        return status;
    if (!status)
        return read_parts(session, what, to);
    ls_session_decline(session, what);
    return status;
}

enum ls_status ls_session_take(struct ls_session *session, enum ls_take what)
{
    struct ls_model *model = session->model;
    const bool states = what == LS_TAKE_ALL && model->states_ahead;
    struct ls_values to = {0};
    float **first = NULL; // the first weights that the host has
    // Before anything on the host is overwritten.
    enum ls_status status = model->ahead && !ls_session_spreads_parameters(session)
                                ? ls_session_check_weights(session)
                                : LS_OK;
    if (!status && model->ahead && !model->weights)
        status = ls_model_allocate(model, &first);
    if (model->ahead)
        to.weights = first ? first : model->weights;
    for (uint32_t k = 0; !status && states && k < model->optimizer.state_count; k++) {
        status = ls_model_need_states(model, k);
        to.states[k] = model->states[k];
    }
    if (status)
        ls_session_decline(session, what);
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

void ls_session_rescue(struct ls_session *session)
{
    if (!session->hung && ls_cluster_workers(session->cluster) == 1 &&
        ls_session_ahead_in_parts(session, LS_TAKE_WEIGHTS))
        (void)!ls_session_take(session, LS_TAKE_ALL);
}
