// SPDX-License-Identifier: Apache-2.0
// What a step function calls: the parts of a step, in their order, on the thread of its replica.
#include "core/loops/distributed.h"

#include "core/base/dtype.h"
#include "core/base/log.h"
#include "core/base/plain_locale.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t rank_of(const struct ls_replica_context *replica)
{
    return ls_session_rank(replica->dataset->model->session, replica->index);
}

static struct ls_replica *replica_of(const struct ls_replica_context *replica)
{
    return replica->dataset->model->session->replicas[replica->index];
}

static bool has_shards(const struct ls_replica_context *replica)
{
    return replica->dataset->model->run->shards > 0;
}

// What has failed once has failed, whatever the step function makes of it.
static enum ls_status fail(struct ls_replica_context *replica, enum ls_status status)
{
    if (status && !replica->failed)
        replica->failed = status;
    return status;
}

LS_PRINTF(3, 4)
static enum ls_status refuse(struct ls_replica_context *replica, const char *call,
                             const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    ls_error(call, "replica %u: %s", rank_of(replica), text);
    return fail(replica, LS_USAGE);
}

// Whether the call may be made at all; if not, LS_USAGE or what failed before.
static enum ls_status begin(struct ls_replica_context *replica, const char *call)
{
    if (!replica->active) {
        ls_error(call, "it was called outside of the step function that the context was given to");
        return LS_USAGE;
    }
    return replica->failed;
}

// ---- Who it is and what it has ----

uint32_t ls_context_rank(const struct ls_replica_context *replica)
{
    return rank_of(replica);
}

uint32_t ls_context_local_rank(const struct ls_replica_context *replica)
{
    return replica->index;
}

uint32_t ls_context_world(const struct ls_replica_context *replica)
{
    return ls_cluster_world(replica->dataset->model->run->workers.cluster);
}

uint32_t ls_context_is_chief(const struct ls_replica_context *replica)
{
    return rank_of(replica) == 0;
}

uint64_t ls_context_step(const struct ls_replica_context *replica)
{
    return replica->step;
}

uint64_t ls_context_examples(const struct ls_replica_context *replica)
{
    return replica->batch.count;
}

uint64_t ls_context_global_examples(const struct ls_replica_context *replica)
{
    return replica->batch.global_count;
}

static void describe(const struct ls_shape *shape, uint32_t dtype, uint64_t count,
                     const void *values, struct ls_array *out)
{
    *out =
        (struct ls_array){.dtype = ls_dtype_name(dtype), .ndims = shape->ndims, .values = values};
    for (uint32_t i = 0; i < shape->ndims && i < LS_ARRAY_DIMS; i++)
        out->dims[i] = shape->dims[i];
    out->dims[0] = (int64_t)count;
}

enum ls_status ls_context_input(struct ls_replica_context *replica, uint32_t index,
                                struct ls_array *out)
{
    const struct ls_graph *graph = replica->dataset->model->graph;
    const enum ls_status status = begin(replica, "ls_context_input");
    if (status)
        return status;
    if (index >= graph->input_count)
        return refuse(replica, "ls_context_input", "the model has %u input%s; there is no input %u",
                      graph->input_count, graph->input_count == 1 ? "" : "s", index);
    const bool bytes = replica->batch.bytes >> index & 1;
    describe(&graph->inputs[index]->shape, bytes ? LS_U8 : graph->inputs[index]->dtype,
             replica->batch.count, replica->batch.inputs[index], out);
    return LS_OK;
}

enum ls_status ls_context_target(struct ls_replica_context *replica, struct ls_array *out)
{
    const struct ls_model *model = replica->dataset->model;
    const struct ls_dataset_info *info = &replica->dataset->data->info;
    const struct ls_field *field =
        ls_field_find(info->fields, info->field_count, LS_FIELD_TARGET, 0);
    const enum ls_status status = begin(replica, "ls_context_target");
    if (status)
        return status;
    if (model->graph->label_count > 1)
        return refuse(
            replica, "ls_context_target",
            "model '%s' has %u outputs with a loss, and a step function reads the targets of "
            "one",
            model->source, model->graph->label_count);
    if (!field)
        return refuse(replica, "ls_context_target", "dataset '%s' has no targets",
                      replica->dataset->data->text);
    struct ls_shape shape = {.ndims = field->ndims + 1};
    memcpy(shape.dims + 1, field->dims, field->ndims * sizeof(shape.dims[0]));
    const bool classes = field->class_count || field->dtype == LS_I32;
    const uint32_t dtype = model->graph->label_count ? model->graph->labels[0]->dtype
                           : classes                 ? LS_I32
                                                     : LS_F32;
    describe(&shape, dtype, replica->batch.count, replica->batch.labels[0], out);
    return LS_OK;
}

// ---- Forward ----

// Where a replica has left without a step, this one would wait for it.
static enum ls_status join(struct ls_replica_context *replica)
{
    struct ls_distributed *dataset = replica->dataset;
    uint64_t seen = atomic_load(&dataset->begun_and_left);
    while (!(seen >> 32))
        if (atomic_compare_exchange_weak(&dataset->begun_and_left, &seen, seen + 1))
            return LS_OK;
    if (atomic_load(&dataset->status)) // which has said why
        return fail(replica, LS_ABORTED);
    return refuse(replica, "ls_context_forward",
                  "it begins a step, but on replica %u the step function has returned without one: "
                  "all replicas make it, or none",
                  ls_session_rank(dataset->model->session, (uint32_t)(seen >> 32) - 1));
}

static double rate_of(const struct ls_replica_context *replica)
{
    const struct ls_model *model = replica->dataset->model;
    return ls_optimizer_rate(
        &model->optimizer,
        ls_driver_next_update(model->session->driver, replica->index, replica->step));
}

static enum ls_status forward_training(struct ls_replica_context *replica)
{
    struct ls_driver *driver = replica->dataset->model->session->driver;
    float found[LS_STEP_STATS];
    if (replica->part != LS_PART_NONE)
        return refuse(replica, "ls_context_forward",
                      "the step function has made a step of this batch already; the next one "
                      "comes with the next ls_strategy_run");
    enum ls_status status = join(replica);
    if (status)
        return status;
    replica->part = LS_PART_FORWARD;
    status =
        ls_driver_forward(driver, replica->index, &replica->batch, replica->step, rate_of(replica));
    // Devices that compute beside this thread would be waited for.
    if (!status && ls_device_blocking(ls_replica_device(replica_of(replica)))) {
        status = ls_replica_read_step_stats(replica_of(replica), found);
        for (uint32_t i = 0; i < LS_SUMS; i++)
            replica->sums[i] = (double)found[i];
    }
    return status;
}

static enum ls_status forward_evaluation(struct ls_replica_context *replica)
{
    struct ls_replica *own = replica_of(replica);
    memset(replica->sums, 0, sizeof(replica->sums));
    const struct ls_session *session = replica->dataset->model->session;
    const enum ls_status joined = session->spread[LS_HELD_PARAMETERS] ? join(replica) : LS_OK;
    if (joined)
        return joined;
    const enum ls_status status =
        session->driver
            ? ls_driver_evaluate(session->driver, replica->index, &replica->batch, replica->sums)
            : ls_replica_evaluate(own, &replica->batch, replica->sums);
    const enum ls_status ended = ls_replica_evaluate_end(own, status ? NULL : replica->sums);
    return status ? status : ended;
}

enum ls_status ls_context_forward(struct ls_replica_context *replica)
{
    LS_PLAIN_LOCALE;
    enum ls_status status = begin(replica, "ls_context_forward");
    if (!status)
        status = fail(replica, replica->dataset->evaluates ? forward_evaluation(replica)
                                                           : forward_training(replica));
    replica->forwarded = !status;
    return status;
}

// Outputs and sums are in memory that the backward pass and the reduction write.
static enum ls_status need_forward(struct ls_replica_context *replica, const char *call)
{
    const enum ls_status status = begin(replica, call);
    if (status || replica->forwarded)
        return status;
    return refuse(replica, call, "call it after ls_context_forward%s",
                  replica->part > LS_PART_FORWARD ? ", before ls_context_gradients" : "");
}

enum ls_status ls_context_loss(struct ls_replica_context *replica, double *sum, double *examples)
{
    LS_PLAIN_LOCALE;
    float found[LS_STEP_STATS];
    enum ls_status status = need_forward(replica, "ls_context_loss");
    if (status)
        return status;
    if (!replica->dataset->evaluates && replica->dataset->model->graph->sums &&
        !ls_device_blocking(ls_replica_device(replica_of(replica)))) {
        status = ls_replica_read_step_stats(replica_of(replica), found);
        for (uint32_t i = 0; !status && i < LS_SUMS; i++)
            replica->sums[i] = (double)found[i];
    }
    if (!status && !replica->dataset->model->graph->sums && !replica->has_loss)
        return refuse(replica, "ls_context_loss",
                      "the model is compiled with loss none, and ls_context_set_loss has not said "
                      "it");
    if (sum)
        *sum = replica->sums[LS_SUMS_LOSS];
    if (examples)
        *examples = replica->sums[LS_SUMS_EXAMPLES];
    return fail(replica, status);
}

// ---- A loss of the step function's own ----

enum ls_status ls_context_output(struct ls_replica_context *replica, struct ls_array *out)
{
    LS_PLAIN_LOCALE;
    const struct ls_distributed *dataset = replica->dataset;
    const struct ls_graph *graph = dataset->model->graph;
    const uint64_t count = replica->batch.count,
                   bytes = count * ls_shape_elements(&graph->outputs[0]->shape, 1) * sizeof(float);
    const struct ls_replica *own = replica_of(replica);
    struct ls_memory memory = {NULL, 0};
    enum ls_status status = need_forward(replica, "ls_context_output");
    if (status)
        return status;
    if (graph->output_count > 1)
        return refuse(replica, "ls_context_output",
                      "the model has %u outputs, and a step function reads one",
                      graph->output_count);
    if (graph->sums && !graph->keeps_outputs)
        return refuse(replica, "ls_context_output",
                      "outputs of a model with a loss are not kept; compile it with keep_outputs");
    if (count)
        status = ls_replica_output(
            own, count, dataset->evaluates ? LS_PURPOSE_EVALUATE : LS_PURPOSE_TRAIN, &memory);
    const void *values = count ? ls_address(memory) : NULL;
    if (!status && count && !ls_device_in_host_memory(ls_replica_device(own))) {
        if (count > replica->output_room) {
            free(replica->outputs);
            replica->outputs = malloc(bytes);
            replica->output_room = replica->outputs ? count : 0;
        }
        status = replica->outputs
                     ? ls_device_copy(ls_replica_device(own), ls_host_memory(replica->outputs),
                                      memory, bytes, NULL)
                     : LS_OUT_OF_MEMORY;
        values = replica->outputs;
    }
    if (!status)
        describe(&graph->outputs[0]->shape, LS_F32, count, values, out);
    return fail(replica, status);
}

static enum ls_status need_own_loss(struct ls_replica_context *replica, const char *call)
{
    const enum ls_status status = need_forward(replica, call);
    if (status)
        return status;
    if (replica->dataset->model->graph->sums)
        return refuse(
            replica, call,
            "the model has the loss that ls_compile was given; compile it with loss none");
    return LS_OK;
}

enum ls_status ls_context_output_gradient(struct ls_replica_context *replica, float **out)
{
    const enum ls_status status = need_own_loss(replica, "ls_context_output_gradient");
    if (status)
        return status;
    if (replica->dataset->evaluates)
        return refuse(replica, "ls_context_output_gradient",
                      "the data is distributed for evaluation, which has no gradients");
    replica->has_gradient = true;
    *out = ls_replica_output_gradient(replica_of(replica));
    return LS_OK;
}

enum ls_status ls_context_set_loss(struct ls_replica_context *replica, double sum)
{
    const enum ls_status status = need_own_loss(replica, "ls_context_set_loss");
    if (status)
        return status;
    replica->has_loss = true;
    replica->sums[LS_SUMS_LOSS] = sum;
    replica->sums[LS_SUMS_EXAMPLES] = (double)replica->batch.count;
    return LS_OK;
}

static enum ls_status give_loss(struct ls_replica_context *replica)
{
    float sums[LS_SUMS];
    if (replica->dataset->model->graph->sums || !replica->batch.count)
        return LS_OK;
    if (!replica->has_loss || !replica->has_gradient)
        return refuse(replica, "ls_context_gradients",
                      "the model is compiled with loss none; call %s first",
                      replica->has_loss ? "ls_context_output_gradient" : "ls_context_set_loss");
    for (uint32_t i = 0; i < LS_SUMS; i++)
        sums[i] = (float)replica->sums[i];
    return ls_replica_give_loss(replica_of(replica), replica->batch.count, sums);
}

enum ls_status ls_context_update_metrics(struct ls_replica_context *replica)
{
    LS_PLAIN_LOCALE;
    const enum ls_status status = begin(replica, "ls_context_update_metrics");
    if (status || replica->updates_metrics)
        return status;
    if (!replica->forwarded && replica->part == LS_PART_NONE)
        return need_forward(replica, "ls_context_update_metrics");
    replica->updates_metrics = true;
    if (has_shards(replica)) // all have been counted when the gradients are there
        return replica->part == LS_PART_APPLIED
                   ? fail(replica, ls_replica_count(replica_of(replica)))
                   : LS_OK;
    // An evaluation has counted already, and an empty share has nothing to count.
    if (replica->dataset->evaluates || !replica->batch.count)
        return LS_OK;
    return fail(replica, ls_replica_count(replica_of(replica)));
}

// ---- Gradients and updates ----

enum ls_status ls_context_gradients(struct ls_replica_context *replica)
{
    LS_PLAIN_LOCALE;
    const struct ls_session *session = replica->dataset->model->session;
    enum ls_status status = begin(replica, "ls_context_gradients");
    if (status)
        return status;
    if (replica->dataset->evaluates)
        return refuse(replica, "ls_context_gradients",
                      "the data is distributed for evaluation; leave `evaluation` out of the "
                      "options of ls_distribute_dataset");
    if (replica->part != LS_PART_FORWARD)
        return refuse(replica, "ls_context_gradients",
                      replica->part == LS_PART_NONE ? "call ls_context_forward first"
                                                    : "the step has its gradients already");
    status = fail(replica, give_loss(replica));
    if (status)
        return status;
    replica->part = LS_PART_GRADIENTS;
    replica->forwarded = false;
    return fail(replica, ls_driver_backward(session->driver, replica->index));
}

enum ls_status ls_context_apply(struct ls_replica_context *replica)
{
    LS_PLAIN_LOCALE;
    struct ls_driver *driver = replica->dataset->model->session->driver;
    enum ls_status status = begin(replica, "ls_context_apply");
    if (status)
        return status;
    if (replica->part != LS_PART_GRADIENTS)
        return refuse(replica, "ls_context_apply",
                      replica->part == LS_PART_APPLIED ? "the gradients are applied already"
                                                       : "call ls_context_gradients first");
    status = ls_driver_apply(driver, replica->index, &replica->result);
    // What a device found of the step comes later.
    while (!status && replica->result.step == 0)
        status = ls_driver_collect(driver, replica->index, &replica->result);
    if (!status)
        replica->part = LS_PART_APPLIED;
    if (!status && replica->updates_metrics && has_shards(replica))
        status = ls_replica_count(replica_of(replica));
    return fail(replica, status);
}

enum ls_status ls_context_train(struct ls_replica_context *replica)
{
    struct ls_driver *driver = replica->dataset->model->session->driver;
    const enum ls_status status = join(replica);
    if (status)
        return status;
    replica->part = LS_PART_APPLIED;
    replica->updates_metrics = true;
    return fail(replica, ls_driver_step(driver, replica->index, &replica->batch, replica->step,
                                        rate_of(replica), false, &replica->result));
}

enum ls_status ls_context_minimize(struct ls_replica_context *replica)
{
    const enum ls_status status = ls_context_gradients(replica);
    return status ? status : ls_context_apply(replica);
}
