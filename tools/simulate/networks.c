// SPDX-License-Identifier: Apache-2.0
// Opens networks by name or file.
#include "core/train/networks.h"

#include "core/train/places.h"

#include <stdlib.h>

enum ls_status ls_network_open(const char *scope, const char *text, struct ls_network *out)
{
    char *path = NULL;
    enum ls_status status = ls_network_find(scope, text, &path);
    if (!status)
        status = ls_network_read(path, out);
    free(path);
    return status;
}
