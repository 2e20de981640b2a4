// SPDX-License-Identifier: Apache-2.0
// callback-holds, for tests: while there is a file `hold`, each step takes as many milliseconds
// longer as it says. So a training is still under way when a test has seen what it waits for, on
// any machine, and is over soon after that.
#include "core/plugin/callback.h"

#include <stdio.h>
#include <time.h>

struct ls_callback {
    char none;
};

static enum ls_status on_train_batch_end(void *context, const struct ls_fit_state *state)
{
    unsigned ms = 0;
    FILE *file = fopen("hold", "r");
    (void)context;
    (void)state;
    if (!file)
        return LS_OK;
    if (fscanf(file, "%u", &ms) != 1)
        ms = 0;
    fclose(file);
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    nanosleep(&pause, NULL);
    return LS_OK;
}

static int32_t open_callback(const struct ls_host *host, const struct ls_fit_calls *calls,
                             struct ls_callback *callback, struct ls_callbacks *out)
{
    (void)host;
    (void)calls;
    (void)callback;
    out->on_train_batch_end = on_train_batch_end;
    return LS_OK;
}

static const struct ls_callback_interface interface = {
    .struct_size = sizeof(interface),
    .state_bytes = sizeof(struct ls_callback),
    .open = open_callback,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_CALLBACK),
    .name = "holds",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "for tests: steps take longer while there is a file `hold`",
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void);
LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
