// SPDX-License-Identifier: Apache-2.0
// Parameters and optimizer state on their way between model and replicas, and whether replicas still agree.
#include "core/train/trainer.h"

#include "core/base/log.h"
#include "core/base/trace.h"

#include <math.h>
#include <stdlib.h>

static const struct ls_trace_label hash_slice = {.category = "check", .name = "hash parameters"};

enum ls_status ls_trainer_give_weights(struct ls_trainer *trainer, uint32_t rank)
{
    const struct ls_model *model = trainer->model;
    struct ls_replica *replica = trainer->replicas[rank];
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < model->graph->parameter_count; i++) {
        status = ls_replica_set_buffer(replica, LS_BUFFER_PARAMETERS, i, model->weights[i]);
        for (uint32_t k = 0; !status && k < replica->optimizer.state_count; k++)
            if (model->states[k])
                status =
                    ls_replica_set_buffer(replica, LS_BUFFER_STATE + k, i, model->states[k][i]);
    }
    return status ? status : ls_replica_refresh(replica);
}

struct hashing {
    struct ls_trainer *trainer;
    uint64_t *hashes;
};

// [replica thread]
static enum ls_status hash_replica(void *context, uint32_t rank)
{
    const struct hashing *hashing = context;
    enum ls_status status = LS_OK;
    hashing->hashes[rank] = 0;
    if (ls_trainer_is_lost(hashing->trainer, rank))
        return LS_OK;
    if (hashing->trainer->driver)
        status = ls_driver_synchronise(hashing->trainer->driver, rank);
    ls_trace_begin(&hash_slice, 0);
    if (!status)
        status = ls_replica_hash(hashing->trainer->replicas[rank], &hashing->hashes[rank]);
    ls_trace_end();
    return status;
}

enum ls_status ls_trainer_hashes(struct ls_trainer *trainer, uint64_t *out)
{
    struct hashing hashing = {trainer, out};
    const enum ls_status status =
        ls_trainer_run(trainer, "comparing the replicas", hash_replica, &hashing);
    if (status)
        return status;
    const uint32_t first = ls_trainer_first(trainer);
    for (uint32_t i = first + 1; i < trainer->count; i++)
        if (!ls_trainer_is_lost(trainer, i) && out[i] != out[first]) {
            ls_error("train",
                     "replicas %u and %u have different parameters: hashes %016llx and %016llx; "
                     "the %s does not give all ranks the same bits",
                     first, i, (unsigned long long)out[first], (unsigned long long)out[i],
                     trainer->run->strategy.collective ? "collective" : "strategy");
            return LS_FAILED;
        }
    return LS_OK;
}

static enum ls_status need_states(struct ls_model *model, uint32_t index)
{
    if (model->states[index])
        return LS_OK;
    const uint32_t count = model->graph->parameter_count;
    model->states[index] = calloc((size_t)count + 1, sizeof(float *));
    if (!model->states[index])
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        const struct ls_shape *shape = &model->graph->parameters[i]->shape;
        model->states[index][i] = calloc((size_t)ls_shape_elements(shape, 1) + 1, sizeof(float));
        if (!model->states[index][i])
            return LS_OUT_OF_MEMORY;
    }
    return LS_OK;
}

// The last update is followed by no loss that would show what it ruined.
static enum ls_status check_parameter(struct ls_replica *replica, uint32_t index)
{
    const struct ls_tensor *parameter = replica->graph->parameters[index];
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

// [replica thread]
static enum ls_status take_weights(void *context, uint32_t rank)
{
    struct ls_trainer *trainer = context;
    struct ls_model *model = trainer->model;
    struct ls_replica *replica = trainer->replicas[rank];
    enum ls_status status = LS_OK;
    if (rank != ls_trainer_first(trainer))
        return LS_OK;
    if (trainer->driver)
        status = ls_driver_gather_states(trainer->driver, rank);
    for (uint32_t i = 0; !status && i < model->graph->parameter_count; i++)
        status = check_parameter(replica, i);
    for (uint32_t k = 0; !status && k < replica->optimizer.state_count; k++)
        status = need_states(model, k);
    for (uint32_t i = 0; !status && i < model->graph->parameter_count; i++) {
        status = ls_replica_get_buffer(replica, LS_BUFFER_PARAMETERS, i, model->weights[i]);
        for (uint32_t k = 0; !status && k < replica->optimizer.state_count; k++)
            status = ls_replica_get_buffer(replica, LS_BUFFER_STATE + k, i, model->states[k][i]);
    }
    const uint64_t steps = trainer->driver ? ls_driver_store_steps(trainer->driver) : 0;
    if (!status && steps > model->steps_done)
        model->steps_done = steps;
    return status;
}

enum ls_status ls_trainer_take_weights(struct ls_trainer *trainer)
{
    return ls_trainer_run(trainer, "taking the weights back", take_weights, trainer);
}
