// SPDX-License-Identifier: Apache-2.0
// Guards: functions that replace a plugin's own in its table. Each records that the thread is in
// the plugin (core/base/inside.h), calls the plugin, and checks the answer: OK without the
// requested object, a number that is no status, impossible sizes, and a failure without a reason
// are logged as errors with the names of plugin and call. So no caller has to check them, and none
// can forget to. One table of guards serves all plugins of a kind: a guard finds the plugin by the
// state or the host that it is called with (core/base/instance.h). The guards of devices are the
// functions of core/device/device.h.
#ifndef LS_LOADER_GUARD_H
#define LS_LOADER_GUARD_H

#include "core/base/instance.h"
#include "core/device/device.h"

// Replaces the functions of `interface`, our copy of a plugin's table, with guards, except NULL
// ones.
void ls_guard_table(uint32_t kind, void *interface);

// The plugin whose table is `own`. A plugin that is opened again, by another loader too, is the one
// that it was: its code is never unloaded, and calls of it may be under way. NULL: no memory.
const struct ls_known_plugin *ls_plugin_know(uint32_t kind, const char *name, const void *own);

// A copy of the plugin's table and its small tables, in our size: members that it does not have are
// NULL or 0.
void ls_device_tables_copy(const struct ls_device_interface *theirs, struct ls_device_tables *out);

#endif
