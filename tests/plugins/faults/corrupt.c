// SPDX-License-Identifier: Apache-2.0
// transport-corrupt, for tests: the local transport, but one bit of the first element of
// everything that is sent is changed before.
#include "core/plugin/transport.h"

const struct ls_plugin *local_plugin(void); // the local transport's own, under another name

static const struct ls_transport_interface *real;

static int32_t corrupt_post(struct ls_transport *transport, struct ls_transfer *transfer)
{
    if (transfer->kind == LS_TRANSFER_SEND && transfer->count)
        ((unsigned char *)transfer->memory)[ls_dtype_bytes(transfer->dtype) - 1] ^= 0x40;
    return real->post(transport, transfer);
}

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    static struct ls_transport_interface interface;
    static struct ls_plugin plugin;
    plugin = *local_plugin();
    real = plugin.interface;
    interface = *real;
    interface.post = corrupt_post;
    plugin.name = "corrupt";
    plugin.interface = &interface;
    return &plugin;
}
