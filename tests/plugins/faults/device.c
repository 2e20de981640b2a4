// SPDX-License-Identifier: Apache-2.0
// device-faulty, for tests: the reference device, but the first of its instances that comes to `after` launches fails at
// that one and all later ones, or never returns from it. `after` is more than a store's instance makes, so it is a replica's.
#include "core/plugin/device.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct ls_plugin *reference_plugin(void); // the reference device's own, under another name

#define MOST_INSTANCES 256

static struct instance {
    struct ls_device *_Atomic device;
    _Atomic int64_t launches;
} instances[MOST_INSTANCES];

static const struct ls_device_interface *real;
static const struct ls_host *_Atomic own_host;
static _Atomic int64_t after;
static struct ls_device *_Atomic faulty;

static int32_t faulty_open(const struct ls_host *host, const struct ls_device_config *config,
                           struct ls_device *device)
{
    const int32_t status = real->open(host, config, device);
    if (status)
        return status;
    if (!atomic_load(&after)) {
        atomic_store(&own_host, host);
        atomic_store(&after, strtoll(host->option(host, "after"), NULL, 10));
    }
    for (int i = 0; i < MOST_INSTANCES; i++) {
        struct ls_device *none = NULL;
        if (atomic_compare_exchange_strong(&instances[i].device, &none, device))
            break;
    }
    return LS_OK;
}

// One instance fails, and then for good.
static int fails(struct ls_device *device)
{
    if (atomic_load(&faulty))
        return atomic_load(&faulty) == device;
    for (int i = 0; i < MOST_INSTANCES; i++)
        if (atomic_load(&instances[i].device) == device) {
            struct ls_device *none = NULL;
            return atomic_fetch_add(&instances[i].launches, 1) >= atomic_load(&after) &&
                   (atomic_compare_exchange_strong(&faulty, &none, device) || none == device);
        }
    return 0;
}

static void faulty_close(struct ls_device *device)
{
    for (int i = 0; i < MOST_INSTANCES; i++)
        if (atomic_load(&instances[i].device) == device) {
            atomic_store(&instances[i].launches, 0);
            atomic_store(&instances[i].device, NULL);
        }
    real->close(device);
}

static int32_t faulty_launch(struct ls_device *device, const struct ls_kernel *kernel,
                             const struct ls_launch *launch)
{
    if (!fails(device))
        return real->kernels->launch(device, kernel, launch);
    const struct ls_host *host = atomic_load(&own_host);
    while (strcmp(host->option(host, "hang"), "on") == 0)
        pause();
    return ls_host_fail(host, LS_FAILED, "the failure that was asked for");
}

static const struct ls_plugin_option options[] = {
    {"after", "integer", "1000", "launches of one instance that do not fail"},
    {"hang", "one of: off, on", "off", "whether the next one never returns"},
    {NULL, NULL, NULL, NULL},
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    static struct ls_device_interface interface;
    static struct ls_device_kernels kernels;
    static struct ls_plugin plugin;
    plugin = *reference_plugin();
    real = plugin.interface;
    interface = *real;
    interface.open = faulty_open;
    interface.close = faulty_close;
    kernels = *real->kernels;
    kernels.launch = faulty_launch;
    interface.kernels = &kernels;
    plugin.name = "faulty";
    plugin.summary = "for tests: reference, with one instance that fails";
    plugin.options = options;
    plugin.interface = &interface;
    return &plugin;
}
