// SPDX-License-Identifier: Apache-2.0
// Endpoints of a transport, all in this process, with the memory of their states, which the host
// allocates.
#ifndef LS_COLLECTIVE_ENDPOINTS_H
#define LS_COLLECTIVE_ENDPOINTS_H

#include "core/base/status.h"
#include "core/plugin/transport.h"

struct ls_endpoints_options {
    const struct ls_transport_interface *transport;
    const struct ls_host *host;
    uint32_t world;
    const uint32_t *hosts; // number of each endpoint's host; NULL: all on one
    const char *name; // of the communicator
    const struct ls_transport_place *places; // one an endpoint; NULL: host memory
    uint64_t deadline_ns;
};

// Opens endpoints 0 .. world - 1 into `out`. When it fails, `out` is filled with NULL. [main
// thread]
LS_STATUS ls_endpoints_open(const struct ls_endpoints_options *options, struct ls_transport **out);
// Takes NULL. May wait, for the deadline at most. [any thread]
void ls_endpoint_close(const struct ls_transport_interface *transport,
                       struct ls_transport *endpoint);

#endif
