// SPDX-License-Identifier: Apache-2.0
// One transport made of two.
#include "core/comm/mixed_transport.h"

#include <string.h>

enum ls_status ls_mixed_transport_open(struct ls_loader *loader, const struct ls_opened_plugin *far,
                                       struct ls_mixed_transport *out)
{
    const struct ls_opened_plugin *near;
    struct ls_route *route;
    enum ls_status status =
        ls_loader_open(loader, LS_KIND_TRANSPORT, LS_NEAR_TRANSPORT, NULL, 0, &near);
    if (!status)
        status = ls_route_make(near->plugin, near->host, far->plugin, far->host, &route);
    if (status)
        return status;
    *out = (struct ls_mixed_transport){.route = route,
                                       .near = near,
                                       .far = far,
                                       .opened = {.plugin = ls_route_plugin(route),
                                                  .host = ls_route_host(route),
                                                  .interface = ls_route_plugin(route)->interface}};
    return LS_OK;
}

void ls_mixed_transport_close(struct ls_mixed_transport *mixed)
{
    ls_route_destroy(mixed->route);
    memset(mixed, 0, sizeof(*mixed));
}
