// SPDX-License-Identifier: Apache-2.0
// Point to point for a strategy: endpoints of the run's transport, for ranks and servers.
#include "core/strategy/internal.h"

#include "core/base/log.h"
#include "core/collective/endpoints.h"

#include <stdlib.h>
#include <string.h>

static int32_t host_endpoints_open(const struct ls_strategy_host *table, uint32_t servers,
                                   struct ls_transport **endpoints)
{
    struct ls_driver *driver = ls_driver_of(table);
    if (!table->transport || driver->endpoints) {
        ls_error(ls_driver_name(driver), "endpoints->open %s",
                 table->transport ? "was called twice: an error of the plugin"
                                  : "without a transport: the plugin must set needs_transport");
        return LS_FAILED;
    }
    if (servers > UINT32_MAX - driver->world)
        return LS_USAGE;
    const uint32_t world = driver->world + servers;
    struct ls_transport **opened = calloc(world, sizeof(struct ls_transport *));
    uint32_t *hosts = calloc(world, sizeof(*hosts)); // servers are on the host of rank 0
    const struct ls_endpoints_options options = {.transport = table->transport,
                                                 .host = driver->options.transport.host,
                                                 .world = world,
                                                 .hosts = hosts,
                                                 .name = ls_driver_name(driver),
                                                 .deadline_ns = driver->options.deadline_ns};
    enum ls_status status = opened && hosts ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status) {
        memcpy(hosts, ls_cluster_hosts(driver->options.cluster), driver->world * sizeof(*hosts));
        status = ls_endpoints_open(&options, opened);
    }
    free(hosts);
    if (status) {
        free(opened);
        return (int32_t)status;
    }
    pthread_mutex_lock(&driver->lock);
    driver->endpoints = opened;
    driver->endpoint_count = world;
    if (atomic_load(&driver->aborted))
        table->transport->abort(opened[0]);
    pthread_mutex_unlock(&driver->lock);
    memcpy(endpoints, opened, world * sizeof(struct ls_transport *));
    return LS_OK;
}

static void host_endpoint_close(const struct ls_strategy_host *table, uint32_t endpoint)
{
    struct ls_driver *driver = ls_driver_of(table);
    if (endpoint >= driver->endpoint_count) {
        ls_error(ls_driver_name(driver),
                 "endpoints->close of endpoint %u: there are %u; an error of the plugin", endpoint,
                 driver->endpoint_count);
        ls_driver_fail(driver, LS_FAILED);
        return;
    }
    pthread_mutex_lock(&driver->lock);
    struct ls_transport *closed = driver->endpoints[endpoint];
    driver->endpoints[endpoint] = NULL;
    pthread_mutex_unlock(&driver->lock);
    // Without the lock, because closing may wait for a peer, and an abort, which ends that wait,
    // takes the lock.
    ls_endpoint_close(table->transport, closed);
}

const struct ls_strategy_endpoints ls_driver_endpoints = {
    .struct_size = sizeof(ls_driver_endpoints),
    .open = host_endpoints_open,
    .close = host_endpoint_close,
};

void ls_driver_close_endpoints(struct ls_driver *driver)
{
    for (uint32_t i = 0; i < driver->endpoint_count; i++)
        ls_endpoint_close(driver->table.transport, driver->endpoints[i]);
    free(driver->endpoints);
    driver->endpoints = NULL;
    driver->endpoint_count = 0;
}
