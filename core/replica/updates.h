// SPDX-License-Identifier: Apache-2.0
// What updates which part of the flat buffers. A range is cut into runs of places that one kernel can
// update: the same operation with the same coefficients. Most ranges are one run; moving statistics
// are averages, whatever the optimizer does beside them.
#ifndef LS_REPLICA_UPDATES_H
#define LS_REPLICA_UPDATES_H

#include "core/graph/program.h"
#include "core/optimizer/optimizer.h"

struct ls_update_run {
    uint64_t first, count; // floats of the flat buffers
    uint32_t op;
    struct ls_op_attributes attributes;
    uint32_t state_count; // states of the optimizer that the operation takes
};

// The run that begins with float `first` of a range that ends before `end`. Padding belongs to the
// place before it. The next run, if there is one, begins at a place: first + count is a multiple of
// LS_ALIGNMENT, unless it is `end`. [any thread]
struct ls_update_run ls_update_run_at(const struct ls_parameter_plan *plan,
                                      const struct ls_optimizer *optimizer, uint64_t first,
                                      uint64_t end);

#endif
