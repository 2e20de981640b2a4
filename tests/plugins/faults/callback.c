// SPDX-License-Identifier: Apache-2.0
// callback-stops, for tests: the process of the chief is stopped (SIGSTOP) after its last step, as by a debugger or
// a machine that swaps.
#include "core/plugin/callback.h"

#include <signal.h>

struct ls_callback {
    char none;
};

static enum ls_status on_epoch_end(void *context, const struct ls_fit_state *state)
{
    (void)context;
    if (state->steps_done == state->steps)
        raise(SIGSTOP);
    return LS_OK;
}

static int32_t open_callback(const struct ls_host *host, const struct ls_fit_calls *calls,
                             struct ls_callback *callback, struct ls_callbacks *out)
{
    (void)host;
    (void)calls;
    (void)callback;
    out->on_epoch_end = on_epoch_end;
    return LS_OK;
}

static const struct ls_callback_interface interface = {
    .struct_size = sizeof(interface),
    .chief_only = 1,
    .state_bytes = sizeof(struct ls_callback),
    .open = open_callback,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_CALLBACK),
    .name = "stops",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "stops the process after the last step",
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void);
LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
