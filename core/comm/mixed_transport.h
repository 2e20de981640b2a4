// SPDX-License-Identifier: Apache-2.0
// The transports between processes, by their hosts: shared-memory on one host, ucx between hosts,
// and both as one where some processes share a host and others do not.
#ifndef LS_COMM_MIXED_TRANSPORT_H
#define LS_COMM_MIXED_TRANSPORT_H

#include "core/collective/route.h"
#include "core/loader/loader.h"

#define LS_NEAR_TRANSPORT "shared-memory" // between processes of one host
#define LS_FAR_TRANSPORT "ucx"

// Zeroed: there is none.
struct ls_mixed_transport {
    struct ls_route *route;
    const struct ls_opened_plugin *near, *far; // what it is made of
    struct ls_opened_plugin opened; // it, in the form of one that was loaded
};

// Of `far`, and of LS_NEAR_TRANSPORT, which is opened. Closed before the loader.
LS_STATUS ls_mixed_transport_open(struct ls_loader *loader, const struct ls_opened_plugin *far,
                                  struct ls_mixed_transport *out);
void ls_mixed_transport_close(struct ls_mixed_transport *mixed); // takes a zeroed one

#endif
