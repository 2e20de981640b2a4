// SPDX-License-Identifier: Apache-2.0
// What the files behind device.h share.
#ifndef LS_DEVICE_INTERNAL_H
#define LS_DEVICE_INTERNAL_H

#include "core/plugin/device.h"

struct ls_virtual_device {
    const struct ls_device_interface *interface;
    struct ls_device *state; // the plugin's own
    char *lack; // as ls_device_options
};

#endif
