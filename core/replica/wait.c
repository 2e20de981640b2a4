// SPDX-License-Identifier: Apache-2.0
#include "core/replica/wait.h"

#include "core/base/clock.h"

#include <time.h>

// A step takes from tens of microseconds on: sleeping earlier would be seen in it.
#define SPIN_NS UINT64_C(200000)
#define SLEEP_NS 20000

enum ls_status ls_wait_for_event(struct ls_device *device, const struct ls_event *event,
                                 const struct ls_wait *wait)
{
    const uint64_t start = ls_clock_ns();
    for (;;) {
        enum ls_status status = ls_device_event_query(device, event);
        if (status != LS_AGAIN)
            return status;
        status = wait->poll ? wait->poll(wait->context) : LS_OK;
        const uint64_t waited = ls_clock_ns() - start;
        if (!status && waited > wait->deadline_ns)
            status = LS_PEER_LOST;
        if (status == LS_PEER_LOST)
            ls_device_abandon(device);
        if (status)
            return status;
        if (waited > SPIN_NS)
            nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    }
}
