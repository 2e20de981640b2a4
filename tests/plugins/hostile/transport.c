// SPDX-License-Identifier: Apache-2.0
// transport-hostile-transport, for tests: the local transport with one call that does harm.
#include "tests/plugins/hostile/hostile.h"

#include "core/plugin/transport.h"

const struct ls_plugin *local_plugin(void); // the local transport's own, under another name

static const struct ls_transport_interface *real;

static int32_t open_transport(const struct ls_host *host, const struct ls_transport_config *config,
                              struct ls_transport *const *endpoints)
{
    atomic_store(&hostile_host, host);
    const int32_t wrong = hostile_call("open");
    return wrong ? wrong : real->open(host, config, endpoints);
}

static void close_transport(struct ls_transport *transport)
{
    (void)hostile_call("close");
    real->close(transport);
}

static int32_t post(struct ls_transport *transport, struct ls_transfer *transfer)
{
    const int32_t wrong = hostile_call("post");
    if (hostile_is("post-state")) {
        transfer->state = 4711;
        return LS_OK;
    }
    return wrong ? wrong : real->post(transport, transfer);
}

static int32_t test(struct ls_transport *transport, struct ls_transfer *transfer)
{
    const int32_t wrong = hostile_call("test");
    return hostile_is("test-never") ? LS_AGAIN : wrong ? wrong : real->test(transport, transfer);
}

static int32_t wait_any(struct ls_transport *transport, struct ls_transfer *const *transfers,
                        uint64_t count, uint64_t timeout_ns)
{
    const int32_t wrong = hostile_call("wait_any");
    if (hostile_is("test-never"))
        return LS_OK;
    return wrong ? wrong : real->wait_any(transport, transfers, count, timeout_ns);
}

static void end(struct ls_transport *transport)
{
    (void)hostile_call("abort");
    real->abort(transport);
}

static const struct ls_plugin_option options[] = HOSTILE_OPTIONS;

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    static struct ls_transport_interface interface;
    static struct ls_plugin plugin;
    hostile_early("entry");
    plugin = *local_plugin();
    real = plugin.interface;
    interface = *real;
    interface.open = open_transport;
    interface.close = close_transport;
    interface.post = post;
    interface.test = test;
    interface.wait_any = wait_any;
    interface.abort = end;
    plugin.name = "hostile-transport";
    plugin.summary = "for tests: local, with one call that does harm";
    plugin.options = options;
    plugin.interface = &interface;
    return &plugin;
}
