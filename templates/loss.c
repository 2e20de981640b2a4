// SPDX-License-Identifier: Apache-2.0
// my-plugin: the quantile (pinball) loss, of which the quantile of the targets is the least.
#include "core/plugin/loss.h"

// What users may write behind the name: --loss=my-plugin:quantile=0.9
static const struct ls_plugin_option options[] = {
    {"quantile", "number", "0.5", "above 0 and below 1"},
    {NULL, NULL, NULL, NULL},
};

// max(q e, (q - 1) e) of each e = target - prediction; the host takes the mean over an example.
static int32_t build(const struct ls_host *host, const struct ls_composer *composer,
                     struct ls_tensor *predictions, struct ls_tensor *targets,
                     struct ls_tensor **values)
{
    const double quantile = ls_host_number(host, "quantile");
    if (!(quantile > 0 && quantile < 1))
        return ls_compose_fail(composer, "quantile=%g: expected a number between 0 and 1",
                               quantile);
    struct ls_tensor *error = ls_compose_subtract(composer, targets, predictions);
    values[0] =
        ls_compose_pair(composer, LS_PAIR_MAXIMUM, ls_compose_scale(composer, error, quantile, 0),
                        ls_compose_scale(composer, error, quantile - 1, 0));
    return LS_OK;
}

static const struct ls_loss_interface interface = {
    .struct_size = sizeof(struct ls_loss_interface),
    .targets = LS_TARGETS_NUMBERS, // LS_TARGETS_CLASSES: composer->one_hot makes numbers of them
    .build = build,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_LOSS),
    .name = "my-plugin",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "the quantile loss",
    .options = options,
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
