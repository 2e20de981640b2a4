// SPDX-License-Identifier: Apache-2.0
// Ends the training when a metric has not improved for some epochs, and may go back to the weights of the best one.
// Options, defaults and arithmetic are those of keras.callbacks.EarlyStopping.
#include "core/plugin/monitor.h"

struct ls_callback {
    const struct ls_host *host;
    const struct ls_fit_calls *calls;
    struct ls_monitor monitor;
    double patience, start_from_epoch, baseline;
    bool has_baseline, restore;
    uint64_t wait, best_epoch;
    float *best; // all variables, one after the other; NULL: none yet
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

static int32_t describe(const struct ls_callback *callback, const struct ls_model *model,
                        uint64_t *elements)
{
    int32_t status = LS_OK;
    *elements = 0;
    for (uint32_t i = 0; !status && i < callback->calls->variable_count(model); i++) {
        struct ls_variable variable;
        status = (int32_t)callback->calls->variable_describe(model, i, &variable);
        *elements += status ? 0 : variable.elements;
    }
    return status;
}

static int32_t keep_weights(struct ls_callback *callback, struct ls_model *model, uint64_t epoch)
{
    const struct ls_host *host = callback->host;
    uint64_t elements = 0;
    int32_t status = describe(callback, model, &elements);
    if (!status && !callback->best)
        callback->best = host->allocate(host, elements * sizeof(float), 64);
    if (!status && !callback->best)
        status =
            ls_host_fail(host, LS_OUT_OF_MEMORY, "no memory for a copy of the weights (%llu MB)",
                         (unsigned long long)(elements * sizeof(float) >> 20));
    float *at = callback->best;
    for (uint32_t i = 0; !status && i < callback->calls->variable_count(model); i++) {
        struct ls_variable variable;
        status = (int32_t)callback->calls->variable_describe(model, i, &variable);
        if (!status)
            status = (int32_t)callback->calls->get_variable(model, i, at);
        at += status ? 0 : variable.elements;
    }
    callback->best_epoch = epoch;
    return status;
}

static int32_t restore_weights(const struct ls_callback *callback, struct ls_model *model)
{
    const float *at = callback->best;
    int32_t status = LS_OK;
    for (uint32_t i = 0; !status && i < callback->calls->variable_count(model); i++) {
        struct ls_variable variable;
        status = (int32_t)callback->calls->variable_describe(model, i, &variable);
        if (!status)
            status = (int32_t)callback->calls->set_variable(model, i, at);
        at += status ? 0 : variable.elements;
    }
    return status;
}

// ---- Moments ----

static void forget(struct ls_callback *callback)
{
    callback->host->release(callback->host, callback->best);
    callback->best = NULL;
    callback->wait = 0;
    callback->monitor.has_best = false;
}

static enum ls_status on_train_begin(void *context, const struct ls_fit_state *state)
{
    (void)state;
    forget(context);
    return LS_OK;
}

// Keras counts epochs from 0.
static enum ls_status on_epoch_end(void *context, const struct ls_fit_state *state)
{
    struct ls_callback *callback = context;
    const uint64_t epoch = state->epoch.epoch;
    double value;
    int32_t status = LS_OK;
    if (!ls_monitor_read(&callback->monitor, callback->host, state, &value) ||
        (double)epoch - 1 < callback->start_from_epoch)
        return LS_OK;
    callback->wait++;
    const bool better = ls_monitor_improves(&callback->monitor, value);
    if (callback->restore && (better || !callback->best))
        status = keep_weights(callback, state->model, epoch);
    if (better && (!callback->has_baseline ||
                   ls_monitor_is_better(&callback->monitor, value, callback->baseline)))
        callback->wait = 0;
    if (!better && (double)callback->wait >= callback->patience && epoch > 1)
        callback->calls->stop_training(state->model);
    return (enum ls_status)status;
}

static enum ls_status on_train_end(void *context, const struct ls_fit_state *state)
{
    struct ls_callback *callback = context;
    char message[160];
    if (!callback->best || state->status)
        return LS_OK;
    const int32_t status = restore_weights(callback, state->model);
    if (!status) {
        snprintf(message, sizeof(message), "the weights are those of epoch %llu, with %s %g",
                 (unsigned long long)callback->best_epoch, callback->monitor.name,
                 callback->monitor.best);
        callback->host->log(callback->host, LS_LOG_INFO, message);
    }
    forget(callback);
    return (enum ls_status)status;
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
    return LS_OK;
}

static void close_callback(struct ls_callback *callback)
{
    callback->host->release(callback->host, callback->best);
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
