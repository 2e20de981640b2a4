// SPDX-License-Identifier: Apache-2.0
// What replaces a model, or writes it, beside its session: replicas may be ahead of the host.
#include "core/train/model_calls.h"

#include "core/base/log.h"
#include "core/base/plain_locale.h"
#include "core/model/weights.h"
#include "core/train/session_values.h"
#include "core/train/variables.h"

#include <stdlib.h>

void ls_model_close(struct ls_model *model)
{
    LS_PLAIN_LOCALE;
    if (!model || ls_model_check_idle(model, "ls_model_close"))
        return;
    (void)!ls_session_close(model);
    ls_model_destroy(model);
}

// ---- Compiling ----

enum ls_status ls_compile_model(struct ls_model *model, const struct ls_compile_options *options)
{
    struct ls_compilation compilation;
    enum ls_status status = ls_compilation_create(model, options, &compilation);
    if (!status)
        status = ls_model_take(model, LS_TAKE_WEIGHTS);
    if (!status)
        status = ls_session_close(model);
    if (!status)
        status = ls_model_take_compilation(model, &compilation);
    ls_compilation_finish(&compilation);
    return status;
}

enum ls_status ls_model_need_weighted(struct ls_model *model)
{
    struct ls_compilation compilation;
    if (model->graph->weights || ls_loss_set_is_none(&model->loss))
        return LS_OK;
    enum ls_status status = ls_compilation_weigh(model, &compilation);
    if (!status)
        status = ls_model_take(model, LS_TAKE_ALL);
    if (!status)
        status = ls_session_close(model);
    if (!status)
        ls_model_take_weighted(model, &compilation);
    ls_compilation_finish(&compilation);
    return status;
}

// ---- Weights ----

enum ls_status ls_read_weights(struct ls_model *model, const char *path)
{
    struct ls_safetensors *file = NULL;
    struct ls_found_weights found = {0};
    bool keras;
    enum ls_status status = ls_weights_open(path, &keras, &file);
    if (!status)
        status = ls_weights_match(model, path, file, keras, &found);
    if (!status)
        status = ls_model_take(model, LS_TAKE_ALL); // the optimizer's state stays
    if (!status)
        status = ls_session_close(model);
    if (!status)
        status = ls_model_need_weights(model);
    if (!status)
        status = ls_weights_take(model, &found);
    ls_found_weights_finish(&found);
    ls_safetensors_close(file);
    return status;
}

// ---- Weights, optimizer, and where the training is ----

static enum ls_status begin_reading(void *context, bool able)
{
    const struct ls_model *model = context;
    uint32_t unable;
    return ls_session_begin_reading(model->session, able, &unable);
}

// Where each worker may write a file of its own.
static enum ls_status begin_saving(void *context, bool able)
{
    const struct ls_model *model = context;
    uint32_t unable;
    const enum ls_status status = ls_session_begin_reading(model->session, able, &unable);
    if (!able || status != LS_OUT_OF_MEMORY ||
        unable == ls_cluster_workers(model->session->cluster))
        return status;
    ls_error("checkpoint", "worker %u could not make its file; see its log", unable);
    return LS_FAILED;
}

static enum ls_status read_values(void *context, uint32_t parameter, int state, float *out)
{
    const struct ls_model *model = context;
    if (state >= 0 || model->ahead)
        return ls_session_read(model->session, parameter, state, out);
    memcpy(out, model->weights[parameter],
           (size_t)ls_shape_elements(&model->graph->parameters[parameter]->shape, 1) *
               sizeof(*out));
    return LS_OK;
}

// From replicas that hold parts; other formats than safetensors take a copy of all.
static enum ls_status write_parts(struct ls_model *model, const char *path)
{
    const struct ls_value_source source = {begin_saving, read_values, model};
    const struct ls_graph *graph = model->graph;
    float **copy = NULL;
    if (ls_weights_written_in_turn(path))
        return ls_weights_write(model, NULL, &source, path);
    enum ls_status status = ls_model_allocate(model, &copy);
    const enum ls_status begun = begin_saving(model, !status);
    status = status ? status : begun;
    for (uint32_t i = 0; !status && i < graph->parameter_count; i++)
        status = read_values(model, i, -1, copy[i]);
    if (!status)
        status = ls_weights_write(model, copy, NULL, path);
    ls_model_free(model, copy);
    return status;
}

enum ls_status ls_write_weights(struct ls_model *model, const char *path)
{
    const bool parts = model->session && ls_session_ahead_in_parts(model->session, LS_TAKE_WEIGHTS);
    enum ls_status status = ls_weights_check_path("weights", path);
    if (!parts) {
        status = status ? status : ls_bring_variables(model);
        return status ? status : ls_weights_write(model, model->weights, NULL, path);
    }
    if (!status)
        status = ls_variables_check_resting(model);
    if (!status)
        status = ls_session_synchronise(model->session);
    if (!status)
        status = write_parts(model, path);
    else
        ls_session_decline(model->session, LS_TAKE_WEIGHTS);
    if (status)
        ls_session_say_who_reads(model->session, "weights");
    return status;
}

enum ls_status ls_lend_weights(struct ls_model *model)
{
    return model->session ? ls_session_lend(model->session, LS_TAKE_WEIGHTS) : LS_OK;
}

// Where replicas hold parts of the model, no worker needs to have room for all of it.
static enum ls_status take_source(struct ls_model *model, struct ls_checkpoint_image *image)
{
    const struct ls_value_source source = {begin_reading, read_values, model};
    enum ls_status status = ls_session_compare(model->session); // synchronises, too
    if (!status && !model->ahead)
        status = ls_model_need_weights(model);
    else if (!status && !ls_session_spreads_parameters(model->session))
        status = ls_session_check_weights(model->session);
    return status ? status : ls_checkpoint_begin_from(model, &source, image);
}

enum ls_status ls_checkpoint_take(struct ls_model *model, struct ls_checkpoint_image *image)
{
    struct ls_values to;
    if (model->session && ls_session_ahead_in_parts(model->session, LS_TAKE_ALL))
        return take_source(model, image);
    enum ls_status status = model->states_ahead ? LS_OK : ls_model_need_saved_states(model);
    if (!status)
        status = ls_checkpoint_begin(model, image, &to);
    if (status)
        return status;
    float **pointers = to.weights;
    if (!model->ahead) // also those that were set since the last step
        status = ls_model_need_weights(model);
    if (!status)
        ls_checkpoint_copy(model, &to);
    if (!model->ahead)
        to.weights = NULL;
    if (!status && model->states_ahead)
        status = ls_session_compare(model->session);
    if (!status && model->states_ahead)
        status = ls_session_copy(model->session, &to);
    free(pointers);
    return status;
}

enum ls_status ls_checkpoint_restore(struct ls_model *model, const char *path,
                                     struct ls_safetensors *file, const json_t *state)
{
    struct ls_found_checkpoint found;
    enum ls_status status = ls_checkpoint_match(model, path, file, state, &found);
    if (!status) {
        model->ahead = model->states_ahead = false; // all of it is replaced
        status = ls_session_close(model);
    }
    if (!status)
        status = ls_model_take_checkpoint(model, &found);
    ls_found_checkpoint_finish(&found);
    return status;
}

enum ls_status ls_save_model(struct ls_model *model, const char *path)
{
    struct ls_checkpoint_image image = {0};
    enum ls_status status = ls_model_check_usable(model, "checkpoint");
    if (!status)
        status = ls_checkpoint_take(model, &image);
    if (!status)
        status = ls_checkpoint_describe(model, NULL, &image);
    if (image.source.begin)
        image.source.begin = begin_saving;
    if (!status)
        status = ls_checkpoint_write(&image, path);
    else if (model->session)
        ls_session_decline(model->session, LS_TAKE_ALL);
    ls_checkpoint_finish(&image);
    if (status)
        ls_session_say_who_reads(model->session, "checkpoint");
    return status;
}

enum ls_status ls_load_model(struct ls_model *model, const char *path)
{
    struct ls_safetensors *file = NULL;
    json_t *state = NULL;
    enum ls_status status = ls_model_check_usable(model, "checkpoint");
    if (!status)
        status = ls_checkpoint_open(path, &file, &state);
    if (status == LS_UNSUPPORTED) {
        ls_error("checkpoint", "'%s' has no optimizer: read it with ls_load_weights", path);
        return LS_BAD_INPUT;
    }
    if (status)
        return status;
    const bool parts = model->session && ls_session_spreads_parameters(model->session);
    status = ls_checkpoint_restore(model, path, file, state);
    if (!status && !parts) // the program may write the file again
        status = ls_model_settle_saved(model);
    json_decref(state);
    ls_safetensors_close(file);
    return status;
}
