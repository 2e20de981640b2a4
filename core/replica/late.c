// SPDX-License-Identifier: Apache-2.0
// A ring of pinned host memory with an event a slot.
#include "core/replica/late.h"

#include "core/base/clock.h"
#include "core/base/log.h"

#include <time.h>

#define SLOTS (LS_LATE_STEPS + 1)
#define TAIL_BYTES (LS_TAIL_FLOATS * sizeof(float))
#define SPIN_NS \
    UINT64_C(   \
        200000) // a step takes from tens of microseconds on: sleeping earlier would be seen in it
#define SLEEP_NS 20000

static bool is_offered(const struct ls_device_interface *ops)
{
    return !ops->blocking && ops->event_open && ops->event_record && ops->event_query &&
           ops->allocate_host && ops->copy_later;
}

enum ls_status ls_late_init(struct ls_late *late, const struct ls_device_interface *ops,
                            struct ls_device *device)
{
    *late = (struct ls_late){.ops = ops, .device = device};
    if (!is_offered(ops))
        return LS_OK;
    late->slots = ops->allocate_host(device, SLOTS * TAIL_BYTES);
    if (!late->slots) {
        ls_error("replica", "the device has no host memory left for the sums of a step");
        return LS_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < SLOTS; i++) {
        const int32_t status = ops->event_open(device, &late->events[i]);
        if (status)
            return (enum ls_status)status;
    }
    return LS_OK;
}

void ls_late_finish(struct ls_late *late)
{
    if (!late->slots)
        return;
    for (uint32_t i = 0; i < SLOTS; i++)
        late->ops->event_close(late->device, late->events[i]);
    late->ops->release_host(late->device, late->slots);
    late->slots = NULL;
}

enum ls_status ls_late_put(struct ls_late *late, const float *from, uint64_t step)
{
    const uint32_t slot = (uint32_t)(late->put % SLOTS);
    int32_t status = late->ops->copy_later(late->device, late->slots + slot * TAIL_BYTES, from,
                                           TAIL_BYTES, NULL);
    if (!status)
        status = late->ops->event_record(late->device, late->events[slot], NULL);
    if (status)
        return (enum ls_status)status;
    late->steps[slot] = step;
    late->put++;
    return LS_OK;
}

enum ls_status ls_late_ask(const struct ls_late *late)
{
    return (enum ls_status)late->ops->event_query(late->device, late->events[late->taken % SLOTS]);
}

enum ls_status ls_late_wait(const struct ls_late *late, uint64_t deadline_ns,
                            enum ls_status (*glance)(void *context), void *context)
{
    const uint64_t start = ls_clock_ns();
    for (;;) {
        enum ls_status status = ls_late_ask(late);
        if (status != LS_AGAIN)
            return status;
        status = glance ? glance(context) : LS_OK;
        const uint64_t waited = ls_clock_ns() - start;
        if (!status && waited > deadline_ns)
            status = LS_PEER_LOST;
        if (status == LS_PEER_LOST && late->ops->abandon)
            late->ops->abandon(late->device);
        if (status)
            return status;
        if (waited > SPIN_NS)
            nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    }
}

const float *ls_late_take(struct ls_late *late, uint64_t *step)
{
    const uint32_t slot = (uint32_t)(late->taken++ % SLOTS);
    *step = late->steps[slot];
    return (const float *)(const void *)(late->slots + slot * TAIL_BYTES);
}
