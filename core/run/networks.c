// SPDX-License-Identifier: Apache-2.0
// Opens networks by name or file.
#include "core/run/networks.h"

#include "core/run/resource_files.h"

#include <stdlib.h>

enum ls_status ls_network_open(const char *scope, const char *text, const char *else_what,
                               struct ls_network *out)
{
    const struct ls_resource_folder networks = {"network",
                                                "networks",
                                                "LOCKSTEP_NETWORK_PATH",
                                                LS_NETWORKS_FROM_PROGRAM,
                                                LS_NETWORKS_FROM_LIBRARY,
                                                else_what};
    char *path = NULL;
    enum ls_status status = ls_resource_find(&networks, scope, text, &path);
    if (!status)
        status = ls_network_read(path, out);
    free(path);
    return status;
}
