// SPDX-License-Identifier: Apache-2.0
// A process that is a server of a job, as its launcher says: it opens a strategy, and a device that
// updates variables in host memory, but neither a model nor data.
#include "core/api/serve.h"

#include "core/base/log.h"
#include "core/strategy/server.h"

static struct ls_driver_plugin driver_plugin(const struct ls_opened_plugin *opened)
{
    return (struct ls_driver_plugin){opened->plugin, opened->host, opened->interface, NULL};
}

static enum ls_status store_device(void *context, struct ls_driver_plugin *out)
{
    const struct ls_run *run = context;
    const struct ls_opened_plugin *device;
    const enum ls_status status =
        ls_loader_open(run->loader, LS_KIND_DEVICE, "cpu", NULL, 0, &device);
    if (!status)
        *out = driver_plugin(device);
    return status;
}

enum ls_status ls_serve(struct ls_run *run)
{
    if (!ls_run_is_server(run)) {
        ls_error("serve", "this process is no server of a job: expected ls_run_is_server to be 1");
        return LS_USAGE;
    }
    const struct ls_server_options options = {.strategy = driver_plugin(run->strategy.strategy),
                                              .place = &run->workers.served,
                                              .secret = run->workers.secret,
                                              .insecure = run->workers.channels.insecure,
                                              .deadline_ns = run->deadline_ns,
                                              .store_device = store_device,
                                              .context = run,
                                              .interrupted = &run->interrupted};
    const enum ls_status status = ls_server_run(&options);
    ls_workers_note_served(run);
    return status;
}
