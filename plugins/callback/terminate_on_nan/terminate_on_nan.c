// SPDX-License-Identifier: Apache-2.0
// Ends the training where the loss of a step is not finite, with the weights from before that step; without it such a
// training fails.
#include "core/plugin/callback.h"

struct ls_callback {
    uint32_t nothing;
};

static int32_t open_callback(const struct ls_host *host, const struct ls_fit_calls *calls,
                             struct ls_callback *callback, struct ls_callbacks *out)
{
    (void)host;
    (void)calls;
    (void)callback;
    out->terminate_on_nan = 1;
    return LS_OK;
}

static const struct ls_callback_interface interface = {
    .struct_size = sizeof(interface),
    .state_bytes = sizeof(struct ls_callback),
    .open = open_callback,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_CALLBACK),
    .name = "terminate_on_nan",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "ends the training, without failing, where the loss is not finite",
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
