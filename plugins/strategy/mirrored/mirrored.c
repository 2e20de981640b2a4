// SPDX-License-Identifier: Apache-2.0
// mirrored: a copy of all variables on every replica of one process.
#include "plugins/strategy/mirrored/hooks.h"

static const struct ls_strategy_interface interface = {MIRRORED_TABLE, .all_here = 1};

static const struct ls_plugin_option options[] = {
    {LS_BUCKET_OPTION, "integer", NULL, "the most bytes of a bucket; 26214400 if not given"},
    {NULL, NULL, NULL, NULL},
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_STRATEGY),
    .name = "mirrored",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "a copy of all variables on every replica of this process, gradients summed by a "
               "collective",
    .options = options,
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
