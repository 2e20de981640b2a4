// SPDX-License-Identifier: Apache-2.0
// Ranges of the flat buffers, for strategies whose ranks hold parts of them: what a rank holds, and
// collectives and operations on a range. core/plugin/strategy.h includes this header.
//
// Such a strategy says in `placement` what each rank holds. It prepares its collectives in
// initialize_parameters. In each step `gradient_ready` reduces the gradients of a bucket to the
// ranks that hold its parts, end_step calls step->update_range for those of this rank, and their new
// parameters are gathered there, or in `parameters_needed` before the next forward pass reads them.
//
// A replica has memory for the states of its own ranges alone, the host collects them for
// checkpoints, and a run of such a strategy is not elastic. Where ranks hold parts of gradients, a
// replica has slots, in which whole buckets are while they are used: a collective is of a whole
// bucket, and when it was waited for, the host keeps what the rank holds. Updates read that, and the
// calls of `memory` refuse such a buffer. Where they hold parts of parameters, it is the same with
// slots of these: an all-gather of a whole bucket begins with what the rank holds, and leaves the
// bucket in its slot until the host needs that for another.
#ifndef LS_PLUGIN_SHARDING_H
#define LS_PLUGIN_SHARDING_H

#include "core/plugin/operations.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ls_strategy_collective; // the host's: a collective on a range

// `count` floats from float `first` of a buffer.
struct ls_placed_range {
    uint64_t first, count; // in floats
};

// What a rank holds of a bucket, in floats of the flat buffers. The host fills it with the whole
// bucket before it asks.
struct ls_strategy_placement {
    uint32_t struct_size;
    uint32_t reserved;
    // What the rank holds of each. Of a frozen bucket there are parameters alone.
    struct ls_placed_range parameters, gradients;
    // Of the optimizer; count 0: none. Within what the rank holds of the others.
    struct ls_placed_range states;
};

// For collectives->prepare, on a range. Reductions are sums, those of gradients and of
// LS_REPLICA_DIFFERENCE perhaps made by a filter (filter.h); an all-to-all has equal blocks.
struct ls_strategy_operation {
    uint32_t struct_size;
    uint32_t operation; // enum ls_collective_operation. Rank r's part is ls_part(range, r, world)
    uint32_t memory; // enum ls_replica_memory
    uint32_t root; // a rank; of broadcast and reduce, else 0
    uint64_t first, count; // the range, in floats
};

// An element-wise operation on a range of a buffer, in place, for memory->run: y = op(x).
struct ls_strategy_range_operation {
    uint32_t struct_size;
    uint32_t op; // enum ls_op, with one input and one output
    struct ls_op_attributes attributes; // of the operation
    uint32_t memory; // LS_REPLICA_PARAMETERS or LS_REPLICA_GRADIENTS
    uint32_t reserved;
    uint64_t first, count; // the range, in floats
};

#ifdef __cplusplus
}
#endif

#endif
