// SPDX-License-Identifier: Apache-2.0
// Parameters and optimizer state on their way between model and replicas, and whether replicas
// still agree.
#include "core/train/session.h"

#include "core/base/log.h"
#include "core/base/memory.h"
#include "core/base/trace.h"

#include <stdlib.h>

static const struct ls_trace_label hash_span = {.category = "check", .name = "hash parameters"};

static bool has_stores(const struct ls_session *session)
{
    return session->driver && ls_driver_has_stores(session->driver);
}

// ---- To the replicas ----

// One parameter, or all that the host has.
struct giving {
    struct ls_session *session;
    uint32_t parameter;
    const float *values; // NULL: all
};

// [replica thread]
static enum ls_status give_weights(void *context, uint32_t index)
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
        status = ls_session_run(session, "preparing the replicas", give_weights, &giving);
    }
    free(values);
    return status;
}

// [replica thread]
static enum ls_status give_states(void *context, uint32_t index)
{
    const struct ls_session *session = context;
    const struct ls_model *model = session->model;
    struct ls_replica *replica = session->replicas[index];
    enum ls_status status = LS_OK;
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
        model->weights ? ls_session_run(session, "preparing the replicas", give_weights, &all)
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

// ---- Whether they agree ----

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

// ---- To the host ----

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
    for (uint32_t k = 0; !status && k < session->model->optimizer.state_count; k++)
        if (copying->to->states[k])
            status = copy_state(session, index, k, copying->to->states[k]);
    return status;
}

enum ls_status ls_session_copy(struct ls_session *session, const struct ls_values *to)
{
    struct copying copying = {session, to};
    const enum ls_status status = ls_session_synchronise(session);
    return status ? status : ls_session_run(session, "taking the weights back", copy, &copying);
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
