// SPDX-License-Identifier: Apache-2.0
// multi-worker-mirrored: a copy of all variables on every replica of all workers.
#include "plugins/strategy/mirrored/hooks.h"

static const struct ls_strategy_interface interface = {MIRRORED_TABLE, .all_here = 0};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_STRATEGY),
    .name = "multi-worker-mirrored",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "a copy of all variables on every replica of all processes, gradients summed by a "
               "collective",
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
