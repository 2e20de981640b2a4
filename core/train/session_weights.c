// SPDX-License-Identifier: Apache-2.0
// Parameters and optimizer state on their way between model and replicas, and whether replicas
// still agree.
#include "core/train/session.h"

#include "core/base/log.h"
#include "core/base/trace.h"

#include <math.h>
#include <stdlib.h>

static const struct ls_trace_label hash_span = {.category = "check", .name = "hash parameters"};

enum ls_status ls_model_need_states(struct ls_model *model, uint32_t index)
{
    if (model->states[index])
        return LS_OK;
    const uint32_t count = model->graph->parameter_count;
    const float initial = model->optimizer.initial[index];
    model->states[index] = calloc((size_t)count + 1, sizeof(float *));
    if (!model->states[index])
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        const struct ls_shape *shape = &model->graph->parameters[i]->shape;
        model->states[index][i] = calloc((size_t)ls_shape_elements(shape, 1) + 1, sizeof(float));
        if (!model->states[index][i])
            return LS_OUT_OF_MEMORY;
        for (int64_t k = 0; initial > 0 && k < ls_shape_elements(shape, 1); k++)
            model->states[index][i][k] = initial;
    }
    return LS_OK;
}

// ---- To the replicas ----

// [replica thread]
static enum ls_status give_weights(void *context, uint32_t index)
{
    const struct ls_session *session = context;
    const struct ls_model *model = session->model;
    struct ls_replica *replica = session->replicas[index];
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < model->graph->parameter_count; i++) {
        status = ls_replica_set_buffer(replica, LS_BUFFER_PARAMETERS, i, model->weights[i]);
        for (uint32_t k = 0; !status && k < model->optimizer.state_count; k++)
            if (model->states[k] &&
                !ls_memory_is_null(ls_replica_memory(replica, LS_BUFFER_STATE + k)))
                status =
                    ls_replica_set_buffer(replica, LS_BUFFER_STATE + k, i, model->states[k][i]);
    }
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
        if (!model->states[k])
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
    enum ls_status status =
        ls_session_run(session, "preparing the replicas", give_weights, session);
    if (!status && session->driver && ls_driver_has_stores(session->driver))
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

// `hashes`: of all ranks; 0: lost.
static enum ls_status compare(struct ls_session *session, const uint64_t *hashes)
{
    const uint32_t world = ls_cluster_world(session->cluster);
    uint32_t first = 0;
    while (first + 1 < world && !hashes[first])
        first++;
    for (uint32_t i = first + 1; i < world; i++)
        if (hashes[i] && hashes[i] != hashes[first]) {
            ls_error("train",
                     "replicas %u and %u have different parameters: hashes %016llx and %016llx; "
                     "the %s does not give all ranks the same bits",
                     first, i, (unsigned long long)hashes[first], (unsigned long long)hashes[i],
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
    return status ? status : compare(session, out);
}

// ---- To the host ----

// The last update is followed by no loss that would show what it ruined.
static enum ls_status check_parameter(struct ls_replica *replica, const struct ls_graph *graph,
                                      uint32_t index)
{
    const struct ls_tensor *parameter = graph->parameters[index];
    const size_t count = (size_t)ls_shape_elements(&parameter->shape, 1);
    float *values = malloc((count + 1) * sizeof(*values));
    if (!values)
        return LS_OUT_OF_MEMORY;
    enum ls_status status = ls_replica_get_buffer(replica, LS_BUFFER_PARAMETERS, index, values);
    for (size_t i = 0; !status && i < count; i++)
        if (!isfinite(values[i]))
            status = LS_FAILED;
    if (status == LS_FAILED)
        ls_error("train", "after the last step '%s' is not finite; try a smaller learning rate",
                 parameter->name);
    free(values);
    return status;
}

// Of the first replica that is left, or of the stores by its gradients. [replica thread]
static enum ls_status take_weights(void *context, uint32_t index)
{
    struct ls_session *session = context;
    struct ls_model *model = session->model;
    struct ls_replica *replica = session->replicas[index];
    const bool stores = session->driver && ls_driver_has_stores(session->driver);
    const uint32_t parameters = model->graph->parameter_count;
    enum ls_status status = LS_OK;
    if (index != ls_session_first(session))
        return LS_OK;
    if (stores)
        status = ls_driver_read_stores(session->driver, index, LS_BUFFER_PARAMETERS,
                                       LS_BUFFER_PARAMETERS);
    for (uint32_t i = 0; !status && i < parameters; i++)
        status = check_parameter(replica, model->graph, i);
    for (uint32_t k = 0; !status && k < model->optimizer.state_count; k++)
        status = ls_model_need_states(model, k);
    for (uint32_t i = 0; !status && i < parameters; i++)
        status = ls_replica_get_buffer(replica, LS_BUFFER_PARAMETERS, i, model->weights[i]);
    for (uint32_t k = 0; !status && k < model->optimizer.state_count; k++) {
        if (stores)
            status = ls_driver_read_stores(session->driver, index, LS_BUFFER_STATE + k,
                                           LS_BUFFER_GRADIENTS);
        for (uint32_t i = 0; !status && i < parameters; i++)
            status =
                ls_replica_get_buffer(replica, stores ? LS_BUFFER_GRADIENTS : LS_BUFFER_STATE + k,
                                      i, model->states[k][i]);
    }
    return status;
}

enum ls_status ls_session_take_weights(struct ls_session *session)
{
    struct ls_model *model = session->model;
    const enum ls_status status =
        ls_session_run(session, "taking the weights back", take_weights, session);
    if (status)
        return status;
    model->on_host.steps_done = model->steps_done;
    model->on_host.scale = model->scale;
    model->on_host.order = model->order;
    model->ahead = false;
    return LS_OK;
}

void ls_model_say_back(const struct ls_model *model, uint64_t steps)
{
    if (model->steps_done < steps)
        ls_warn("train", "model '%s' is what it was after step %llu again, not after step %llu",
                model->source, (unsigned long long)model->steps_done, (unsigned long long)steps);
}

void ls_model_give_up(struct ls_model *model)
{
    if (!model->ahead)
        return;
    model->steps_done = model->on_host.steps_done;
    model->scale = model->on_host.scale;
    model->order = model->on_host.order;
    model->ahead = false;
}

enum ls_status ls_model_take_weights(struct ls_model *model)
{
    if (!model->ahead)
        return LS_OK;
    const uint64_t steps = model->steps_done;
    const enum ls_status status = ls_session_take_weights(model->session);
    const enum ls_status closed = status ? ls_session_close(model) : LS_OK;
    ls_model_say_back(model, steps);
    return closed ? closed : status;
}
