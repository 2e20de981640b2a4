// SPDX-License-Identifier: Apache-2.0
// transport-faulty, for tests: the local transport, but for one endpoint whose calls fail from the `after`-th on.
#include "core/plugin/transport.h"

#include <stdatomic.h>
#include <stdlib.h>

const struct ls_plugin *local_plugin(void); // the local transport's own, under another name

static const struct ls_transport_interface *real;
static const struct ls_host *own_host;
static struct ls_transport *_Atomic faulty;
static _Atomic int64_t calls_left;

static int32_t faulty_open(const struct ls_host *host, const struct ls_transport_config *config,
                           struct ls_transport *const *endpoints)
{
    const int64_t endpoint = strtoll(host->option(host, "endpoint"), NULL, 10);
    const int32_t status = real->open(host, config, endpoints);
    // Communicators have endpoints too; those of a strategy, with its servers, are opened last.
    if (!status && endpoint >= 0 && endpoint < (int64_t)config->count) {
        own_host = host;
        calls_left = strtoll(host->option(host, "after"), NULL, 10);
        faulty = endpoints[endpoint];
    }
    return status;
}

static int32_t fails(const struct ls_transport *transport)
{
    if (transport != atomic_load(&faulty) || atomic_fetch_sub(&calls_left, 1) > 0)
        return LS_OK;
    return ls_host_fail(own_host, LS_FAILED, "the failure that was asked for");
}

static int32_t faulty_post(struct ls_transport *transport, struct ls_transfer *transfer)
{
    const int32_t status = fails(transport);
    return status ? status : real->post(transport, transfer);
}

static int32_t faulty_test(struct ls_transport *transport, struct ls_transfer *transfer)
{
    const int32_t status = fails(transport);
    return status ? status : real->test(transport, transfer);
}

static const struct ls_plugin_option options[] = {
    {"endpoint", "integer", "-1", "whose calls fail"},
    {"after", "integer", "0", "so many calls that do not"},
    {NULL, NULL, NULL, NULL},
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    static struct ls_transport_interface interface;
    static struct ls_plugin plugin;
    plugin = *local_plugin();
    real = plugin.interface;
    interface = *real;
    interface.open = faulty_open;
    interface.post = faulty_post;
    interface.test = faulty_test;
    plugin.name = "faulty";
    plugin.summary = "for tests: local, with one endpoint that fails";
    plugin.options = options;
    plugin.interface = &interface;
    return &plugin;
}
