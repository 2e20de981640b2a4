// SPDX-License-Identifier: Apache-2.0
// Endpoints of a transport plugin in tests, in memory of the test.
#ifndef LS_TESTS_SUPPORT_ENDPOINTS_H
#define LS_TESTS_SUPPORT_ENDPOINTS_H

#include "core/plugin/transport.h"

#include <stdlib.h>
#include <string.h>

#define TEST_MOST_ENDPOINTS 16

static inline int32_t test_endpoints_exchange(void *context, const void *own, uint64_t bytes,
                                              void *all)
{
    memcpy(all, own, *(const uint32_t *)context * bytes);
    return LS_OK;
}

static inline int32_t test_endpoints_open(const struct ls_transport_interface *transport,
                                          const struct ls_host *host, uint32_t world,
                                          uint64_t deadline_ns, struct ls_transport **out)
{
    uint32_t own[TEST_MOST_ENDPOINTS], hosts[TEST_MOST_ENDPOINTS] = {0};
    const struct ls_transport_config config = {.struct_size = sizeof(config),
                                               .world = world,
                                               .count = world,
                                               .own = own,
                                               .hosts = hosts,
                                               .name = "test",
                                               .deadline_ns = deadline_ns,
                                               .context = &world,
                                               .exchange = test_endpoints_exchange};
    if (world > TEST_MOST_ENDPOINTS)
        return LS_USAGE;
    for (uint32_t i = 0; i < world; i++) {
        own[i] = i;
        out[i] = (struct ls_transport *)calloc(1, transport->state_bytes);
    }
    const int32_t status = transport->open(host, &config, out);
    for (uint32_t i = 0; status && i < world; i++)
        free(out[i]);
    return status;
}

static inline void test_endpoint_close(const struct ls_transport_interface *transport,
                                       struct ls_transport *endpoint)
{
    transport->close(endpoint);
    free(endpoint);
}

#endif
