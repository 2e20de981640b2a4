// SPDX-License-Identifier: Apache-2.0
// A metric that a callback watches: its value at the end of an epoch, and whether that is better than another one.
// Options and arithmetic are those of Keras's MonitorCallback.
#ifndef LS_PLUGINS_CALLBACK_MONITOR_H
#define LS_PLUGINS_CALLBACK_MONITOR_H

#include "core/plugin/callback.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MONITOR_OPTIONS(min_delta)                                                            \
    {"monitor", "text", "val_loss", "the metric to watch, as it is printed after an epoch"},  \
        {"min_delta", "number", min_delta, "the least change that counts as an improvement"}, \
    {                                                                                         \
        "mode", "one of: auto, min, max", "auto",                                             \
            "whether less or more is better; auto: by the metric"                             \
    }

struct monitor {
    const char *name;
    double min_delta;
    bool by_metric, upwards; // more is better
    bool has_best;
    double best;
    bool warned;
};

static inline double option_number(const struct ls_host *host, const char *name)
{
    return strtod(host->option(host, name), NULL);
}

static inline bool option_switch(const struct ls_host *host, const char *name)
{
    const char *text = host->option(host, name);
    return strcmp(text, "on") == 0 || strcmp(text, "true") == 0 || strcmp(text, "yes") == 0 ||
           strcmp(text, "1") == 0;
}

static inline void monitor_open(struct monitor *monitor, const struct ls_host *host)
{
    const char *mode = host->option(host, "mode");
    monitor->name = host->option(host, "monitor");
    monitor->min_delta = fabs(option_number(host, "min_delta"));
    monitor->by_metric = strcmp(mode, "auto") == 0;
    monitor->upwards = strcmp(mode, "max") == 0;
}

// The value after this epoch; false, with one warning, where the training has no such metric.
static inline bool monitor_read(struct monitor *monitor, const struct ls_host *host,
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
    if (!monitor->warned) {
        snprintf(message, sizeof(message),
                 "monitor=%s: this training has no such metric, so nothing is done; it has %s",
                 monitor->name, names);
        host->log(host, LS_LOG_WARN, message);
    }
    monitor->warned = true;
    return false;
}

// Keras compares in float32.
static inline bool monitor_is_better(const struct monitor *monitor, double value, double than)
{
    return monitor->upwards ? (float)(value - monitor->min_delta) > (float)than
                            : (float)(value + monitor->min_delta) < (float)than;
}

// Takes the value as the best one if it is.
static inline bool monitor_improves(struct monitor *monitor, double value)
{
    if (monitor->has_best && !monitor_is_better(monitor, value, monitor->best))
        return false;
    monitor->best = value;
    monitor->has_best = true;
    return true;
}

#endif
