// SPDX-License-Identifier: Apache-2.0
// A ring of pinned host memory with an event a slot.
#include "core/replica/deferred_results.h"

#include "core/base/log.h"

#define SLOTS (LS_DEFERRED_STEPS + 1)

enum ls_status ls_deferred_init(struct ls_deferred_results *late, struct ls_device *device)
{
    *late = (struct ls_deferred_results){.device = device};
    if (!ls_device_has_staging(device))
        return LS_OK;
    late->slots = ls_device_allocate_host(device, SLOTS * LS_STEP_STATS_BYTES);
    if (!late->slots) {
        ls_error("replica", "the device has no host memory left for the sums of a step");
        return LS_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < SLOTS; i++) {
        const enum ls_status status = ls_device_event_open(device, &late->events[i]);
        if (status)
            return status;
    }
    return LS_OK;
}

void ls_deferred_finish(struct ls_deferred_results *late)
{
    if (!late->slots)
        return;
    for (uint32_t i = 0; i < SLOTS; i++)
        ls_device_event_close(late->device, late->events[i]);
    ls_device_release_host(late->device, late->slots);
    late->slots = NULL;
}

enum ls_status ls_deferred_put(struct ls_deferred_results *late, struct ls_memory from,
                               uint64_t step)
{
    const uint32_t slot = (uint32_t)(late->put % SLOTS);
    enum ls_status status =
        ls_device_copy_async(late->device, ls_host_memory(late->slots + slot * LS_STEP_STATS_BYTES),
                             from, LS_STEP_STATS_BYTES, NULL);
    if (!status)
        status = ls_device_event_record(late->device, late->events[slot], NULL);
    if (status)
        return status;
    late->steps[slot] = step;
    late->put++;
    return LS_OK;
}

enum ls_status ls_deferred_wait(const struct ls_deferred_results *late, const struct ls_wait *wait)
{
    return ls_wait_for_event(late->device, late->events[late->taken % SLOTS], wait);
}

const float *ls_deferred_take(struct ls_deferred_results *late)
{
    const uint32_t slot = (uint32_t)(late->taken++ % SLOTS);
    return (const float *)(const void *)(late->slots + slot * LS_STEP_STATS_BYTES);
}
