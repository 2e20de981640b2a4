// SPDX-License-Identifier: Apache-2.0
// Sums of a step that the host looks at some steps later, so that it never waits for a number: the
// device's stream writes them into a ring of host memory, each followed by an event. Only for
// devices that compute beside the caller. [replica thread]
#ifndef LS_REPLICA_DEFERRED_RESULTS_H
#define LS_REPLICA_DEFERRED_RESULTS_H

#include "core/base/status.h"
#include "core/device/device.h"
#include "core/replica/buckets.h"
#include "core/replica/wait.h"

#include <stdbool.h>

// How many steps later. With 1 the device would have nothing left to do whenever the host is late
// by more than the rest of one step; with 2 it has a whole step in hand, however short its steps
// are. More would only add to what is done in vain before the host hears of a stop or of a loss
// that is not finite.
#define LS_DEFERRED_STEPS 2

struct ls_deferred_results {
    struct ls_device *device;
    char *slots; // pinned; NULL: the device has none of this
    struct ls_event *events[LS_DEFERRED_STEPS + 1];
    uint64_t steps[LS_DEFERRED_STEPS + 1]; // whose sums they are
    uint64_t put, taken; // slots, so far
};

// Does nothing on a device that computes on the calling thread, or has no events or host memory for
// it.
LS_STATUS ls_deferred_init(struct ls_deferred_results *late, struct ls_device *device);
// Takes a zeroed one. Nothing of it may be under way: the device is closed next, which waits for
// its stream.
void ls_deferred_finish(struct ls_deferred_results *late);

static inline bool ls_deferred_offered(const struct ls_deferred_results *late)
{
    return late->slots != NULL;
}

static inline uint64_t ls_deferred_pending(const struct ls_deferred_results *late)
{
    return late->put - late->taken;
}

// Puts LS_STEP_STATS floats of the device's memory behind what is on its stream. At most
// LS_DEFERRED_STEPS + 1 are pending.
LS_STATUS ls_deferred_put(struct ls_deferred_results *late, struct ls_memory from, uint64_t step);

// The step of the oldest.
static inline uint64_t ls_deferred_next(const struct ls_deferred_results *late)
{
    return late->steps[late->taken % (LS_DEFERRED_STEPS + 1)];
}

// Waits for the oldest.
LS_STATUS ls_deferred_wait(const struct ls_deferred_results *late, const struct ls_wait *wait);

// The oldest, when it is there. Valid until so many more were put.
const float *ls_deferred_take(struct ls_deferred_results *late);

#endif
