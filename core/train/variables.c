// SPDX-License-Identifier: Apache-2.0
// The variables of a model one by one, as programs and callbacks read and set them.
#include "core/train/variables.h"

#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/plugin/strategy.h"
#include "core/train/session_values.h"
#include "core/model/learned_classes.h"

#include <stdlib.h>
#include <string.h>

static bool is_variable(const struct ls_tensor *parameter)
{
    return !parameter->constant;
}

uint32_t ls_variable_count(const struct ls_model *model)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < model->graph->parameter_count; i++)
        count += is_variable(model->graph->parameters[i]);
    return count;
}

// The place of a variable among the parameters of the graph.
static enum ls_status find_place(const struct ls_model *model, uint32_t index, uint32_t *out)
{
    const struct ls_graph *graph = model->graph;
    uint32_t left = index;
    for (uint32_t i = 0; i < graph->parameter_count; i++)
        if (is_variable(graph->parameters[i]) && left-- == 0) {
            *out = i;
            return LS_OK;
        }
    ls_error("variable", "model '%s' has %u variables, counted from 0: there is no number %u",
             model->source, ls_variable_count(model), index);
    return LS_USAGE;
}

static size_t variable_bytes(const struct ls_model *model, uint32_t place)
{
    return (size_t)ls_shape_elements(&model->graph->parameters[place]->shape, 1) * sizeof(float);
}

enum ls_status ls_variable_describe(const struct ls_model *model, uint32_t index,
                                    struct ls_variable *out)
{
    uint32_t place = 0;
    const enum ls_status status = find_place(model, index, &place);
    if (status)
        return status;
    const struct ls_tensor *parameter = model->graph->parameters[place];
    const struct ls_shape *shape = ls_variable_shape(parameter);
    *out = (struct ls_variable){.name = parameter->name,
                                .ndims = shape->ndims,
                                .trained = parameter->zone == LS_ZONE_TRAINED,
                                .elements = (uint64_t)ls_shape_elements(shape, 1)};
    for (uint32_t i = 0; i < shape->ndims; i++)
        out->dims[i] = shape->dims[i];
    return LS_OK;
}

// LS_USAGE, logged: one is NULL. Callbacks that are plugins call what follows, too.
static enum ls_status need(const char *call, const struct ls_model *model, const void *values,
                           const char *what)
{
    if (model && values)
        return LS_OK;
    ls_error(call, "expected %s, got NULL", model ? what : "a model");
    return LS_USAGE;
}

// What the replicas have, during a fit: its session stays open, whatever fails.
static enum ls_status take_during_fit(struct ls_model *model)
{
    // Nobody asks for states: what other workers hold of them stays there.
    const bool parts = ls_session_spreads_over_workers(model->session);
    const enum ls_status status = ls_session_compare(model->session);
    return status ? status : ls_session_take(model->session, parts ? LS_TAKE_WEIGHTS : LS_TAKE_ALL);
}

enum ls_status ls_variables_check_resting(const struct ls_model *model)
{
    if (!model->stepping)
        return LS_OK;
    ls_error("variable", "replicas are in their steps; read and set variables in "
                         "on_segment_end or on_epoch_end, not in on_train_batch_end");
    return LS_USAGE;
}

// During a fit all comes.
enum ls_status ls_bring_variables(struct ls_model *model)
{
    enum ls_status status = ls_variables_check_resting(model);
    if (status)
        return status;
    if (model->fitting != LS_FIT_TRAINS)
        status = ls_model_take(model, LS_TAKE_WEIGHTS);
    else if (model->ahead)
        status = take_during_fit(model);
    return status ? status : ls_model_need_weights(model);
}

// One that no replica has as a whole comes by itself.
static enum ls_status read_in_parts(struct ls_model *model, uint32_t place, float *out)
{
    enum ls_status status = ls_variables_check_resting(model);
    if (status)
        return status;
    status = ls_session_read_parameter(model->session, place, out);
    if (status)
        ls_session_say_who_reads(model->session, "variable");
    return status;
}

enum ls_status ls_read_variable(struct ls_model *model, uint32_t index, float *out)
{
    uint32_t place = 0;
    enum ls_status status = need("ls_get_variable", model, out, "room for its values");
    if (!status)
        status = find_place(model, index, &place);
    if (!status && model->session && ls_session_ahead_in_parts(model->session, LS_TAKE_WEIGHTS))
        return read_in_parts(model, place, out);
    if (!status)
        status = ls_bring_variables(model);
    if (!status)
        memcpy(out, model->weights[place], variable_bytes(model, place));
    return status;
}

// Whether each replica has the whole sum of each gradient after a step.
static bool replicas_have_sums(const struct ls_session *session)
{
    return !ls_driver_has_stores(session->driver) && !ls_driver_asynchronous(session->driver) &&
           !ls_driver_has_rounds(session->driver) && !session->spread[LS_HELD_STATES];
}

uint32_t ls_has_gradients(const struct ls_model *model)
{
    return model->fitting == LS_FIT_TRAINS && model->session && model->session->driver &&
           replicas_have_sums(model->session);
}

struct reading {
    struct ls_session *session;
    uint32_t place;
    float *out;
};

// [replica thread]
static enum ls_status read_gradient(void *context, uint32_t index)
{
    const struct reading *reading = context;
    return index == 0 ? ls_replica_get_buffer(reading->session->replicas[0], LS_BUFFER_GRADIENTS,
                                              reading->place, reading->out)
                      : LS_OK;
}

enum ls_status ls_read_gradient(struct ls_model *model, uint32_t index, float *out)
{
    struct reading reading = {.out = out};
    enum ls_status status = need("ls_get_gradient", model, out, "room for its values");
    if (!status)
        status = find_place(model, index, &reading.place);
    if (status)
        return status;
    reading.session = model->session;
    if (model->fitting != LS_FIT_TRAINS || model->stepping || !reading.session ||
        !reading.session->driver) {
        ls_error("gradient", "gradients are there between the steps of a fit: read them in "
                             "on_segment_end or on_epoch_end");
        return LS_USAGE;
    }
    if (!replicas_have_sums(reading.session)) {
        ls_error("gradient",
                 "strategy '%s' leaves no replica with the sums of all gradients; use mirrored, "
                 "under which each replica has them",
                 reading.session->run->strategy.strategy->plugin->name);
        return LS_USAGE;
    }
    return ls_session_run(reading.session, "reading a gradient", read_gradient, &reading);
}

enum ls_status ls_write_variable(struct ls_model *model, uint32_t index, const float *values)
{
    uint32_t place = 0;
    enum ls_status status = need("ls_set_variable", model, values, "values");
    if (!status)
        status = find_place(model, index, &place);
    // What no replica has as a whole goes to its parts, and nothing else comes to the host.
    const bool parts =
        !status && model->session && ls_session_ahead_in_parts(model->session, LS_TAKE_WEIGHTS);
    if (!status)
        status = parts ? ls_variables_check_resting(model) : ls_bring_variables(model);
    if (!status && parts)
        status = ls_session_write_parameter(model->session, place, values);
    if (status)
        return status;
    if (!parts)
        memcpy(model->weights[place], values, variable_bytes(model, place));
    struct ls_hash *hash = ls_hash_create();
    if (!hash)
        return LS_OUT_OF_MEMORY;
    ls_hash_add(hash, values, variable_bytes(model, place));
    model->set_key = ls_random_key(ls_random_key(model->set_key, place + 1), ls_hash_get(hash));
    ls_hash_destroy(hash);
    model->assigned = model->assigned || !parts;
    ls_model_learn_numbers(model);
    return LS_OK;
}
