// SPDX-License-Identifier: Apache-2.0
// my-plugin: ends the training when a metric has reached a goal.
#include "core/plugin/callback.h"

// The state of one opened callback.
struct ls_callback {
    const struct ls_host *host;
    const struct ls_fit_calls *calls;
    const char *metric;
    double goal;
};

// What users may write behind the name: --callback=my-plugin:metric=val_accuracy,goal=0.95
static const struct ls_plugin_option options[] = {
    {"metric", "text", "val_accuracy", "the metric to watch, as it is printed after an epoch"},
    {"goal", "number", "0.9", "the value at which the training ends"},
    {NULL, NULL, NULL, NULL},
};

// After each epoch, on the main thread; core/plugin/callback.h has the other moments. A metric that
// there is not is NaN, which reaches no goal.
static enum ls_status on_epoch_end(void *context, const struct ls_fit_state *state)
{
    const struct ls_callback *callback = context;
    const double value = callback->calls->metric_value(&state->epoch.metrics, callback->metric);
    if (value >= callback->goal)
        callback->calls->stop_training(state->model);
    return LS_OK;
}

// `callback` is zeroed memory of `state_bytes`; the host frees it. What open takes beside it, close gives back.
static int32_t open_callback(const struct ls_host *host, const struct ls_fit_calls *calls,
                             struct ls_callback *callback, struct ls_callbacks *out)
{
    callback->host = host;
    callback->calls = calls;
    callback->metric = host->option(host, "metric");
    callback->goal = ls_host_number(host, "goal");
    out->on_epoch_end = on_epoch_end;
    return LS_OK;
}

static const struct ls_callback_interface interface = {
    .struct_size = sizeof(struct ls_callback_interface),
    .state_bytes = sizeof(struct ls_callback),
    .open = open_callback,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_CALLBACK),
    .name = "my-plugin",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "ends the training when a metric has reached a goal",
    .options = options,
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
