// SPDX-License-Identifier: Apache-2.0
// The shares of a batch where that takes more than a gather: examples that the dataset makes on
// demand, that are augmented, or that are repeated. Private to core/data.
#ifndef LS_DATA_MAKING_H
#define LS_DATA_MAKING_H

#include "core/data/stream.h"

#include <stdatomic.h>

struct ls_making;

// What one replica gets.
struct ls_making_share {
    uint64_t first, count; // places in the epoch's order
    char *fields[LS_MAX_FIELDS]; // where its fields are written; NULL: left out
};

// Whether a gather would not do.
bool ls_making_is_needed(const struct ls_dataset *dataset, const struct ls_stream_options *options);
// With the threads that it takes: one for each core where examples are made in any order. `options`
// are complete; both are borrowed.
LS_STATUS ls_making_create(const struct ls_dataset *dataset,
                           const struct ls_stream_options *options, struct ls_making **out);
void ls_making_destroy(struct ls_making *making); // takes NULL

// Writes the shares of a batch. What it fails with is logged. LS_ABORTED: `*stop` became 1.
LS_STATUS ls_making_write(struct ls_making *making, uint64_t epoch, const uint32_t *order,
                          const struct ls_making_share *shares, uint32_t share_count,
                          const _Atomic uint32_t *stop);

#endif
