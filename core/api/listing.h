// SPDX-License-Identifier: Apache-2.0
// What this machine has, for programs. [main thread]
#ifndef LS_API_LISTING_H
#define LS_API_LISTING_H

#include "core/base/status.h"
#include "lockstep.h"

// As ls_list_plugins and ls_list_devices, but may fail without a message (calls.c).
LS_STATUS ls_make_plugin_list(const char *plugin_path, const struct ls_listed_plugin **out,
                              size_t *count);
LS_STATUS ls_make_device_list(const char *plugin_path, const struct ls_listed_device **out,
                              size_t *count);

#endif
