// SPDX-License-Identifier: Apache-2.0
// Ends the training when a metric has not improved for some epochs, and may go back to the weights of the best one.
// Options, defaults and arithmetic are those of keras.callbacks.EarlyStopping.
#include "core/plugin/monitor.h"

#define MOST_EPOCHS (UINT64_C(1) << 53) // which a double counts

// What a checkpoint keeps, in one piece.
struct kept {
    uint64_t wait, best_epoch;
    uint64_t stopped; // 1: this has ended the training
    uint64_t has_best, has_weights; // 1: yes
    double best;
    float weights[]; // of the best epoch: all variables, one after the other
};

struct ls_callback {
    const struct ls_host *host;
    const struct ls_fit_calls *calls;
    struct ls_monitor monitor;
    struct ls_model *model; // of the fit
    double patience, start_from_epoch, baseline;
    bool has_baseline, restore;
    struct kept *kept; // NULL: no fit has begun
    uint64_t bytes; // of it
};

static const struct ls_plugin_option options[] = {
    LS_MONITOR_OPTIONS("0"),
    {"patience", "integer", "0", "epochs without an improvement after which to stop"},
    {"baseline", "number", NULL, "a value that has to be reached for an improvement to count"},
    {"restore_best_weights", "boolean", "false", "go back to the weights of the best epoch"},
    {"start_from_epoch", "integer", "0", "epochs that are not watched"},
    {NULL, NULL, NULL, NULL},
};

// ---- Weights ----

// Copies all variables, or sets them to the copy.
static int32_t copy_weights(const struct ls_callback *callback, struct ls_model *model,
                            bool restores)
{
    const struct ls_fit_calls *calls = callback->calls;
    float *at = callback->kept->weights;
    int32_t status = LS_OK;
    for (uint32_t i = 0; !status && i < calls->variable_count(model); i++) {
        struct ls_variable variable;
        status = (int32_t)calls->variable_describe(model, i, &variable);
        if (status)
            break;
        status = (int32_t)(restores ? calls->set_variable(model, i, at)
                                    : calls->get_variable(model, i, at));
        at += variable.elements;
    }
    return status;
}

static uint64_t count_elements(const struct ls_callback *callback, const struct ls_model *model)
{
    uint64_t elements = 0;
    for (uint32_t i = 0; i < callback->calls->variable_count(model); i++) {
        struct ls_variable variable;
        if (callback->calls->variable_describe(model, i, &variable) == LS_OK)
            elements += variable.elements;
    }
    return elements;
}

// ---- Moments ----

static enum ls_status on_train_begin(void *context, const struct ls_fit_state *state)
{
    struct ls_callback *callback = context;
    const uint64_t elements = callback->restore ? count_elements(callback, state->model) : 0;
    callback->host->release(callback->host, callback->kept);
    callback->bytes = sizeof(*callback->kept) + elements * sizeof(float);
    callback->kept = callback->host->allocate(callback->host, callback->bytes, 64);
    if (!callback->kept)
        return (enum ls_status)ls_host_fail(callback->host, LS_OUT_OF_MEMORY,
                                            "no memory for a copy of the weights (%llu MB)",
                                            (unsigned long long)(callback->bytes >> 20));
    memset(callback->kept, 0, callback->bytes);
    callback->monitor.has_best = false;
    callback->model = state->model;
    return LS_OK;
}

// Keras counts epochs from 0.
static enum ls_status on_epoch_end(void *context, const struct ls_fit_state *state)
{
    struct ls_callback *callback = context;
    struct kept *kept = callback->kept;
    const uint64_t epoch = state->epoch.epoch;
    double value;
    int32_t status = LS_OK;
    if (!ls_monitor_read(&callback->monitor, callback->host, state, &value) ||
        (double)epoch - 1 < callback->start_from_epoch)
        return LS_OK;
    kept->wait++;
    const bool better = ls_monitor_improves(&callback->monitor, value);
    if (callback->restore && (better || !kept->has_weights)) {
        status = copy_weights(callback, state->model, false);
        kept->has_weights = 1;
        kept->best_epoch = epoch;
    }
    if (better && (!callback->has_baseline ||
                   ls_monitor_is_better(&callback->monitor, value, callback->baseline)))
        kept->wait = 0;
    kept->stopped = !better && (double)kept->wait >= callback->patience && epoch > 1;
    if (kept->stopped)
        callback->calls->stop_training(state->model);
    return (enum ls_status)status;
}

static enum ls_status on_train_end(void *context, const struct ls_fit_state *state)
{
    const struct ls_callback *callback = context;
    char message[160];
    if (!callback->kept || !callback->kept->has_weights || state->status)
        return LS_OK;
    const int32_t status = copy_weights(callback, state->model, true);
    if (!status) {
        snprintf(message, sizeof(message), "the weights are those of epoch %llu, with %s %g",
                 (unsigned long long)callback->kept->best_epoch, callback->monitor.name,
                 callback->monitor.best);
        callback->host->log(callback->host, LS_LOG_INFO, message);
    }
    return (enum ls_status)status;
}

static enum ls_status save_state(void *context, struct ls_callback_state *out)
{
    const struct ls_callback *callback = context;
    callback->kept->has_best = callback->monitor.has_best;
    callback->kept->best = callback->monitor.best;
    *out = (struct ls_callback_state){callback->kept, callback->bytes};
    return LS_OK;
}

// A file says whatever it likes: weights that are not there would be read.
static bool is_sound(const struct ls_callback *callback, const struct ls_callback_state *state)
{
    const struct kept *kept = state->data;
    const uint64_t count = (state->bytes - sizeof(*kept)) / sizeof(float);
    if (kept->stopped > 1 || kept->has_best > 1 || kept->has_weights > callback->restore ||
        kept->wait > MOST_EPOCHS || kept->best_epoch > MOST_EPOCHS)
        return false;
    for (uint64_t i = 0; i < count; i++)
        if (!isfinite(kept->weights[i]))
            return false;
    return true;
}

// With more patience a training that was stopped goes on.
static enum ls_status load_state(void *context, const struct ls_callback_state *state)
{
    struct ls_callback *callback = context;
    if (state->bytes != callback->bytes)
        return (enum ls_status)ls_host_fail(
            callback->host, LS_USAGE,
            "the checkpoint was written with another restore_best_weights; give the same");
    if (!is_sound(callback, state))
        return (enum ls_status)ls_host_fail(
            callback->host, LS_BAD_INPUT,
            "the checkpoint is damaged: what it has of early_stopping makes no sense");
    memcpy(callback->kept, state->data, state->bytes);
    callback->monitor.has_best = callback->kept->has_best != 0;
    callback->monitor.best = callback->kept->best;
    if (callback->kept->stopped && (double)callback->kept->wait >= callback->patience)
        callback->calls->stop_training(callback->model);
    return LS_OK;
}

static int32_t open_callback(const struct ls_host *host, const struct ls_fit_calls *calls,
                             struct ls_callback *callback, struct ls_callbacks *out)
{
    callback->host = host;
    callback->calls = calls;
    ls_monitor_open(&callback->monitor, host);
    callback->patience = ls_host_number(host, "patience");
    callback->start_from_epoch = ls_host_number(host, "start_from_epoch");
    callback->has_baseline = host->option(host, "baseline") != NULL;
    callback->baseline = callback->has_baseline ? ls_host_number(host, "baseline") : 0;
    callback->restore = ls_host_is_on(host, "restore_best_weights");
    out->on_train_begin = on_train_begin;
    out->on_epoch_end = on_epoch_end;
    out->on_train_end = on_train_end;
    out->save_state = save_state;
    out->load_state = load_state;
    return LS_OK;
}

static void close_callback(struct ls_callback *callback)
{
    callback->host->release(callback->host, callback->kept);
}

static const struct ls_callback_interface interface = {
    .struct_size = sizeof(interface),
    .state_bytes = sizeof(struct ls_callback),
    .open = open_callback,
    .close = close_callback,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_CALLBACK),
    .name = "early_stopping",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "ends the training when a metric has not improved for some epochs",
    .options = options,
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
