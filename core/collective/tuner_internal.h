// SPDX-License-Identifier: Apache-2.0
// What the files behind tuner.h share.
#ifndef LS_COLLECTIVE_TUNER_INTERNAL_H
#define LS_COLLECTIVE_TUNER_INTERNAL_H

#include "core/collective/tuner.h"

#include <stdatomic.h>

struct ls_tuner_host {
    struct ls_host host; // whose context is this
    struct ls_tuner *tuner;
    size_t candidate; // that draws all calls; SIZE_MAX: the one that the table names
};

struct ls_tuner {
    struct ls_plugin plugin;
    struct ls_collective_interface interface;
    const struct ls_host *base; // as the loader made it
    struct ls_candidate candidates[LS_TUNER_CANDIDATES];
    size_t count;
    const uint32_t *hosts; // of calls that do not say; borrowed
    atomic_bool left_out[LS_TUNER_CANDIDATES]; // cannot send 16 bits, which the run asks for
    struct ls_tuner_host drawers[LS_TUNER_CANDIDATES + 1]; // one a candidate, and that of the table
    struct ls_tuner_row *rows;
    size_t row_count;
    uint64_t spent_ns; // on measurements
};

// Whether a candidate does a call at all, whatever its rank and host.
bool ls_tuner_does(const struct ls_tuner *tuner, size_t index,
                   const struct ls_collective_call *call);
// Sizes of one class, which is a power of two with what is nearer to it than to the next one,
// share a row.
int ls_tuner_class(uint64_t bytes);
// The row of `operation` whose size is nearest in proportion; NULL: there is none.
const struct ls_tuner_row *ls_tuner_nearest(const struct ls_tuner *tuner, uint32_t operation,
                                            uint64_t bytes);
LS_STATUS ls_tuner_append(struct ls_tuner *tuner, const struct ls_tuner_row *row);

#endif
