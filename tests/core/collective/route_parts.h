// SPDX-License-Identifier: Apache-2.0
// A route of shared-memory and ucx, whose hosts are only said to be several: all of it is on this
// one, over loopback.
#ifndef LS_TESTS_ROUTE_PARTS_H
#define LS_TESTS_ROUTE_PARTS_H

#include "core/collective/route.h"
#include "core/loader/loader.h"
#include "tests/support/plugin.h"

#include <stdio.h>
#include <stdlib.h>

struct route_parts {
    struct ls_loader *loader;
    const struct ls_opened_plugin *near, *far;
    struct ls_route *route;
    struct ls_opened_plugin opened; // the route, as if it had been loaded
};

// An exit code, after it was said why: TEST_SKIPPED where transport ucx was not built.
static inline int route_parts_open(struct route_parts *out)
{
    setenv("UCX_NET_DEVICES", "lo", 1);
    setenv("UCX_TLS", "tcp", 1);
    if (ls_loader_create(NULL, &out->loader) ||
        ls_loader_open_text(out->loader, "test", LS_KIND_TRANSPORT, "shared-memory", &out->near))
        return 1;
    if (ls_loader_open_text(out->loader, "test", LS_KIND_TRANSPORT, "ucx:network=insecure",
                            &out->far)) {
        printf("SKIP: transport ucx was not built, or UCX is not here (Debian: libucx-dev)\n");
        return TEST_SKIPPED;
    }
    if (ls_route_make(out->near->plugin, out->near->host, out->far->plugin, out->far->host,
                      &out->route))
        return 1;
    out->opened = (struct ls_opened_plugin){.plugin = ls_route_plugin(out->route),
                                            .host = ls_route_host(out->route),
                                            .interface = ls_route_plugin(out->route)->interface};
    return 0;
}

static inline void route_parts_close(struct route_parts *parts)
{
    ls_route_destroy(parts->route);
    ls_loader_destroy(parts->loader);
}

#endif
