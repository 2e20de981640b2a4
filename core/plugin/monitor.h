// SPDX-License-Identifier: Apache-2.0
// For callbacks that watch a metric: its value at the end of an epoch, and whether one value is
// better than another. Options and arithmetic are those of Keras's MonitorCallback.
#ifndef LS_PLUGIN_MONITOR_H
#define LS_PLUGIN_MONITOR_H

#include "core/plugin/callback.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

// Entries of a table of options: monitor, min_delta (with its default as text), mode.
#define LS_MONITOR_OPTIONS(min_delta)                                                         \
    {"monitor", "text", "val_loss", "the metric to watch, as it is printed after an epoch"},  \
        {"min_delta", "number", min_delta, "the least change that counts as an improvement"}, \
    {                                                                                         \
        "mode", "one of: auto, min, max", "auto",                                             \
            "whether less or more is better; auto: by the metric"                             \
    }

// A metric that is watched, and its best value so far.
struct ls_monitor {
    const char *name; // of the metric; borrowed from the host
    double min_delta; // the least change that counts
    bool by_metric, upwards; // more is better
    bool has_best; // `best` has a value
    double best; // the best value so far
    bool warned; // the warning that the training lacks this metric was logged
};

// Reads the options. `monitor` is zeroed.
static inline void ls_monitor_open(struct ls_monitor *monitor, const struct ls_host *host)
{
    const char *mode = host->option(host, "mode");
    monitor->name = host->option(host, "monitor");
    monitor->min_delta = fabs(ls_host_number(host, "min_delta"));
    monitor->by_metric = strcmp(mode, "auto") == 0;
    monitor->upwards = strcmp(mode, "max") == 0;
}

// The value after this epoch. False, with one warning, if the training has no such metric. An
// interrupted epoch has no validation, which is no reason to warn.
static inline bool ls_monitor_read(struct ls_monitor *monitor, const struct ls_host *host,
                                   const struct ls_fit_state *state, double *out)
{
    const struct ls_metrics *metrics = &state->epoch.metrics;
    char names[512] = "", message[768];
    size_t used = 0;
    for (uint32_t i = 0; i < metrics->count; i++) {
        const struct ls_metric *metric = &metrics->list[i];
        if (strcmp(metric->name, monitor->name) == 0) {
            if (monitor->by_metric)
                monitor->upwards = metric->upwards;
            *out = metric->value;
            return true;
        }
        if (used < sizeof(names))
            used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "",
                                     metric->name);
    }
    if (strncmp(monitor->name, "val_", 4) == 0 && state->epoch.steps < state->epoch_steps)
        return false;
    if (!monitor->warned) {
        snprintf(message, sizeof(message),
                 "monitor=%s: this training has no such metric, so nothing is done; it has %s",
                 monitor->name, names);
        host->log(host, LS_LOG_WARN, message);
    }
    monitor->warned = true;
    return false;
}

// Whether `value` is better than `than`. As in Keras, compares in float32.
static inline bool ls_monitor_is_better(const struct ls_monitor *monitor, double value, double than)
{
    return monitor->upwards ? (float)(value - monitor->min_delta) > (float)than
                            : (float)(value + monitor->min_delta) < (float)than;
}

// Keeps the value if it is the best so far, and returns whether it is.
static inline bool ls_monitor_improves(struct ls_monitor *monitor, double value)
{
    if (monitor->has_best && !ls_monitor_is_better(monitor, value, monitor->best))
        return false;
    monitor->best = value;
    monitor->has_best = true;
    return true;
}

#endif
