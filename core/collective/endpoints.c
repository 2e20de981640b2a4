// SPDX-License-Identifier: Apache-2.0
// Opens and closes endpoints.
#include "core/collective/endpoints.h"

#include "core/base/caller.h"
#include "core/base/instance.h"
#include "core/base/shared_memory.h"

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

// Why it fails is said where that is noticed, maybe on another thread, and not by the plugin that asked for it.
static int32_t exchange_with_others(void *context, const void *own, uint64_t bytes, void *all)
{
    const struct ls_exchange *exchange = context;
    const int32_t status = exchange->call(exchange->context, own, bytes, all);
    if (status)
        ls_caller_note_reason();
    return status;
}

enum ls_status ls_endpoints_open(const struct ls_endpoints_options *options,
                                 struct ls_transport **out)
{
    const uint32_t world = options->world, count = options->own ? options->count : world;
    uint32_t *own = calloc(count, sizeof(*own)), *hosts = calloc(world, sizeof(*hosts));
    int32_t status = own && hosts ? LS_OK : LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        out[i] = ls_instance_create(options->transport, options->transport->state_bytes);
        if (!out[i])
            status = LS_OUT_OF_MEMORY;
        if (own)
            own[i] = options->own ? options->own[i] : i;
    }
    if (hosts && options->hosts)
        memcpy(hosts, options->hosts, world * sizeof(*hosts));
    const bool alone = !options->exchange.call;
    struct ls_segment open = {0};
    const bool shares = !alone && ls_segment_get(&open);
    const struct ls_transport_segment segment = {
        .struct_size = sizeof(segment), .fd = open.fd, .base = open.base, .bytes = open.bytes};
    const struct ls_transport_config config = {
        .struct_size = sizeof(config),
        .world = world,
        .count = count,
        .own = own,
        .hosts = hosts,
        .name = options->name,
        .places = options->places,
        .deadline_ns = options->deadline_ns,
        .context = alone ? (void *)(uintptr_t)options : (void *)(uintptr_t)&options->exchange,
        .exchange = alone ? exchange_alone : exchange_with_others,
        .segment = shares ? &segment : NULL};
    if (!status)
        status = options->transport->open(options->host, &config, out);
    for (uint32_t i = 0; status && i < count; i++) {
        ls_instance_destroy(out[i]);
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
    ls_instance_destroy(endpoint);
}
