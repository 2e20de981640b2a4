// SPDX-License-Identifier: Apache-2.0
// What this machine has, for programs. [main thread]
#ifndef LS_API_LISTING_H
#define LS_API_LISTING_H

#include "core/base/status.h"
#include "lockstep.h"

#include <stdbool.h>

// As ls_list_plugins and ls_list_devices, but may fail without a message (core/api/calls.c).
LS_STATUS ls_make_plugin_list(const char *plugin_path, const struct ls_listed_plugin **out,
                              size_t *count);
LS_STATUS ls_make_device_list(const char *plugin_path, const struct ls_listed_device **out,
                              size_t *count);

// Whether Lockstep has a layer, a loss, a metric or a dataset (enum ls_kind) of this name itself,
// which comes before every plugin.
bool ls_is_built_in(uint32_t kind, const char *name);

#endif
