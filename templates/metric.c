// SPDX-License-Identifier: Apache-2.0
// my-plugin: the coefficient of determination, 1 - sum((t - p)^2) / sum((t - mean(t))^2).
#include "core/plugin/metric.h"

enum { ERRORS, TARGETS, SQUARES, SUMS };

// Three numbers of each example, of which the host adds up the means over its elements.
static int32_t build(const struct ls_host *host, const struct ls_composer *composer,
                     struct ls_tensor *predictions, struct ls_tensor *targets,
                     struct ls_tensor **values)
{
    struct ls_tensor *error = ls_compose_subtract(composer, targets, predictions);
    (void)host; // no options
    values[ERRORS] = composer->function(composer, "square", error);
    values[TARGETS] = ls_compose_scale(composer, targets, 1, 0);
    values[SQUARES] = composer->function(composer, "square", targets);
    return LS_OK;
}

static double result(const struct ls_host *host, const double *sums, double examples)
{
    const double all = sums[SQUARES] - sums[TARGETS] * sums[TARGETS] / examples;
    (void)host;
    return all > 0 ? 1 - sums[ERRORS] / all : 0;
}

static const struct ls_metric_interface interface = {
    .struct_size = sizeof(struct ls_metric_interface),
    .targets = LS_TARGETS_NUMBERS,
    .sums = SUMS,
    .upwards = 1,
    .build = build,
    .result = result,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_METRIC),
    .name = "my-plugin",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "the coefficient of determination, R2",
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
