// SPDX-License-Identifier: Apache-2.0
// Recordings. What puts the same work on the device's stream whenever it runs is run kernel by
// kernel the first time, because libraries make things ready at their first call, which cannot be
// recorded. After that it is recorded once for each set of input that it reads (input.h), and
// replayed with one call from then on. [replica thread]
#ifndef LS_REPLICA_CAPTURE_H
#define LS_REPLICA_CAPTURE_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct ls_replica;

// Of a device that gets input while it computes: while one is read, one is under way and one is
// written. Others have one.
#define LS_INPUT_SETS 3

// Recordings, or what comes before them.
struct ls_capture {
    struct ls_recording *recordings[LS_INPUT_SETS]; // NULL: not yet
    uint32_t runs; // without one
};

// All of the above for work that needs nothing in between. Within a step that is recorded as one
// it runs as it is.
LS_STATUS ls_capture_run(struct ls_replica *replica, struct ls_capture *capture,
                         enum ls_status (*run)(void *context), void *context);

// The same in parts, for a caller that has more to do: a step, whose replicas record together
// (core/strategy/step.c).
//
// Whether it is to be recorded now: it has run, and the device records.
bool ls_capture_is_due(const struct ls_replica *replica, const struct ls_capture *capture);
// `*on`: what is put on the stream from now on is recorded, and does not run, until ls_capture_end.
// Else the device cannot record now, and is not asked again: the work must run as it is.
LS_STATUS ls_capture_begin(struct ls_replica *replica, bool *on);
// `status` is that of the work, which is passed on; LS_OK, and no recording, where the device could
// not record it.
LS_STATUS ls_capture_end(struct ls_replica *replica, struct ls_capture *capture,
                         enum ls_status status);
// Whether there is a recording to be replayed.
bool ls_capture_is_ready(const struct ls_replica *replica, const struct ls_capture *capture);
LS_STATUS ls_capture_replay(struct ls_replica *replica, const struct ls_capture *capture);

#endif
