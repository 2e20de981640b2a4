// SPDX-License-Identifier: Apache-2.0
// The endpoints of a transport that this process has, with the memory of their states, which the
// host allocates.
#ifndef LS_COLLECTIVE_ENDPOINTS_H
#define LS_COLLECTIVE_ENDPOINTS_H

#include "core/base/status.h"
#include "core/plugin/transport.h"

// How a process tells the others something while it opens what they share: as struct
// ls_transport_config says of its `exchange`. `call` is NULL where there is one process.
struct ls_exchange {
    int32_t (*call)(void *context, const void *own, uint64_t bytes, void *all);
    void *context;
    // As struct ls_collective_config says; NULL: nobody knows.
    int32_t (*check)(void *context);
};

struct ls_endpoints_options {
    const struct ls_transport_interface *transport;
    const struct ls_host *host;
    uint32_t world; // endpoints of all processes
    const uint32_t *own; // numbers of those of this process, ascending; NULL: all
    uint32_t count; // of `own`
    const uint32_t *hosts; // number of each endpoint's host; NULL: all on one
    const char *name; // of the communicator
    const struct ls_transport_place *places; // one an own endpoint; NULL: host memory
    struct ls_exchange exchange; // between processes
    uint64_t deadline_ns;
};

// Opens the endpoints of this process into `out`, in the order of `own`. When it fails, `out` is
// filled with NULL. [main thread]
LS_STATUS ls_endpoints_open(const struct ls_endpoints_options *options, struct ls_transport **out);
// Takes NULL. May wait, for the deadline at most. [any thread]
void ls_endpoint_close(const struct ls_transport_interface *transport,
                       struct ls_transport *endpoint);

#endif
