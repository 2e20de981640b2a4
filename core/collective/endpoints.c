// SPDX-License-Identifier: Apache-2.0
// Opens and closes endpoints.
#include "core/collective/endpoints.h"

#include "core/base/memory.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

// All endpoints are in this process.
static int32_t exchange_alone(void *context, const void *own, uint64_t bytes, void *all)
{
    const struct ls_endpoints_options *options = context;
    memcpy(all, own, options->world * bytes);
    return LS_OK;
}

enum ls_status ls_endpoints_open(const struct ls_endpoints_options *options,
                                 struct ls_transport **out)
{
    const uint32_t world = options->world, count = options->own ? options->count : world;
    uint32_t *own = calloc(count, sizeof(*own)), *hosts = calloc(world, sizeof(*hosts));
    int32_t status = own && hosts ? LS_OK : LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        out[i] = ls_calloc_cacheline(1, options->transport->state_bytes);
        if (!out[i])
            status = LS_OUT_OF_MEMORY;
        if (own)
            own[i] = options->own ? options->own[i] : i;
    }
    if (hosts && options->hosts)
        memcpy(hosts, options->hosts, world * sizeof(*hosts));
    const bool alone = !options->exchange.call;
    const struct ls_transport_config config = {
        .struct_size = sizeof(config),
        .world = world,
        .count = count,
        .own = own,
        .hosts = hosts,
        .name = options->name,
        .places = options->places,
        .deadline_ns = options->deadline_ns,
        .context = alone ? (void *)(uintptr_t)options : options->exchange.context,
        .exchange = alone ? exchange_alone : options->exchange.call};
    if (!status)
        status = options->transport->open(options->host, &config, out);
    for (uint32_t i = 0; status && i < count; i++) {
        free(out[i]);
        out[i] = NULL;
    }
    free(own);
    free(hosts);
    return (enum ls_status)status;
}

void ls_endpoint_close(const struct ls_transport_interface *transport,
                       struct ls_transport *endpoint)
{
    if (endpoint)
        transport->close(endpoint);
    free(endpoint);
}
