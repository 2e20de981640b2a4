// SPDX-License-Identifier: Apache-2.0
// A wait for an event of a device, by a thread that asks something else meanwhile: whether the
// others are still there. Private to core.
#ifndef LS_REPLICA_WAIT_H
#define LS_REPLICA_WAIT_H

#include "core/base/status.h"
#include "core/device/device.h"

struct ls_wait {
    uint64_t deadline_ns;
    enum ls_status (*poll)(void *context); // NULL: none
    void *context;
};

// Waits for the event. `wait->poll` is called while it has not come, and ends the wait with any
// status but LS_OK. LS_PEER_LOST after the deadline; the caller says so. Then nothing waits for the
// device any more. [replica thread]
LS_STATUS ls_wait_for_event(struct ls_device *device, const struct ls_event *event,
                            const struct ls_wait *wait);

#endif
