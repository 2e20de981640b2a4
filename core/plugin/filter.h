// SPDX-License-Identifier: Apache-2.0
// What a filter plugin implements: how the sum of gradients over all ranks is made with fewer
// bytes.
//
// A filter replaces the all-reduce of a bucket by a list of stages. A stage is *local*, a function
// of the plugin on this rank's values, or *collective*, an operation on the filter's own scratch
// memory that the run's collective makes. What the strategy sees does not change: afterwards the
// gradients of the bucket are the sum, the same bits on all ranks.
//
// Error feedback is the host's. What a rank gives is x, its gradient and what it still owes:
//   x = gradient + residual;   afterwards, if the step counts, residual = x - delivered
// The filter says what the rank has delivered: what of x has gone into the sum. What all ranks have
// delivered adds up to the sum, so nothing is lost. What is rounded after it was added is therefore
// taken from what one of them has delivered. A residual that is not finite is left out. Where the
// loss has a scale, x has it, too, and the residual has none.
//
// What does not go through the filter travels as it is, in one plain all-reduce of the bucket: the
// sums of the step, moving statistics, and variables that `takes` declines.
//
// Where each rank needs the sum of its own part of the bucket alone (strategy `sharded`), a filter
// that `scatters` is asked for that, and another for all of the sum. In place of gradients there
// may be what replicas have changed of their weights in a round (`diloco`).
//
// Such a plugin has no instances. Its calls depend on nothing but their arguments and the options,
// and `takes`, `plan` and `begins` say the same on all ranks. Where ranks compute a value that must
// be equal on all of them, its bits must not depend on the processor: sums go in the order of
// ranks, and no product and sum are contracted to one rounding (compile with -ffp-contract=off).
// Where x has values that are not finite, the result has some, too.
//
// What a filter learns from step to step is in shared memory. All ranks must compute the same bits
// for it. The host keeps it in checkpoints, and what a step has written there that does not count
// is undone. It is zeros where the filter begins, which may be again in the middle of a training:
// after a change of options or of what is summed together, and where no worker is left that had it.
#ifndef LS_PLUGIN_FILTER_H
#define LS_PLUGIN_FILTER_H

#include "core/plugin/collective.h"
#include "core/plugin/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LS_FILTER_STAGES 16 // the most that a plan may have

// A variable of the bucket.
struct ls_filter_variable {
    uint32_t struct_size;
    uint32_t ndims; // at most LS_MAX_DIMS
    int64_t dims[LS_MAX_DIMS]; // as Keras has them; behind `ndims` 0
    uint64_t count; // floats, padding of the device's layout included
    uint64_t first; // in x; 0 for `takes`
    // 1: the values are in the order of `dims`, the last one innermost, without padding; the host
    // brings them into it where a device has an order of its own. 0: in that of the device.
    uint32_t plain;
    uint32_t reserved;
};

// What is to be summed. All of it is equal on all ranks.
struct ls_filter_call {
    uint32_t struct_size;
    uint32_t operation; // LS_ALL_REDUCE; with `scatters` LS_REDUCE_SCATTER, too
    uint32_t world; // at least 1
    uint32_t variable_count; // at least 1
    const struct ls_filter_variable *variables; // those that the filter takes, one after the other
    uint64_t count; // floats of x: of all of them
    const struct ls_host *host; // options, fail
    // Of a reduce-scatter, else NULL: `world` + 1 places in x that do not descend. The part of rank
    // r is from parts[r] to parts[r + 1], perhaps empty.
    const uint64_t *parts;
};

// The list of stages while `plan` writes it: a table of the host. After a failure all later calls
// return it and do nothing, and the host reports it.
struct ls_filter_stages {
    uint32_t struct_size;
    uint32_t reserved;
    void *context; // the host's own
    // Asks for scratch memory, in bytes.
    int32_t (*scratch)(struct ls_filter_stages *stages, uint64_t bytes);
    // Appends a call of `run` with this number.
    int32_t (*local)(struct ls_filter_stages *stages, uint32_t function);
    // Appends an operation (enum ls_collective_operation, without a root) on `count` elements of
    // `dtype` from byte `offset` of the scratch memory, in place. `reduction`: LS_SUM, LS_MAX, ...;
    // of copies, LS_SUM. The blocks of an all-to-all are equal, and so are the parts of an
    // all-gather and of a reduce-scatter, which take a multiple of LS_CHUNK_ALIGNMENT elements for
    // each rank.
    int32_t (*collective)(struct ls_filter_stages *stages, uint32_t operation, uint32_t dtype,
                          uint32_t reduction, uint64_t offset, uint64_t count);
    // Asks for shared memory, in bytes.
    int32_t (*shared)(struct ls_filter_stages *stages, uint64_t bytes);
};

// A rank's memory, aligned to 64 bytes, the same in all stages of a step. `result` and `delivered`
// must be complete after the last stage.
struct ls_filter_memory {
    uint32_t struct_size;
    uint32_t rank; // this one, 0 .. world - 1
    const float *x; // what this rank gives
    float *result; // out: the sum over all ranks; of a reduce-scatter, of the own part
    float *delivered; // out: what of x has gone into it
    uint8_t *scratch; // undefined at first
    uint8_t *shared; // as the last step that counts left it, or zeros; equal on all ranks
};

// The table of a filter plugin.
struct ls_filter_interface {
    uint32_t struct_size;
    // 1: `plan` knows reduce-scatters, of elements in any order.
    uint32_t scatters;
    // Optional. 1: the filter takes this variable; 0: it is to travel as it is. NULL: it takes all.
    // [any thread]
    uint32_t (*takes)(const struct ls_host *host, const struct ls_filter_variable *variable);
    // Writes the stages. The last one is local; without any stage the bucket travels as it is.
    // LS_USAGE: options that make no sense. [any thread]
    int32_t (*plan)(const struct ls_filter_call *call, struct ls_filter_stages *stages);
    // Runs a local stage. [replica thread]
    int32_t (*run)(const struct ls_filter_call *call, const struct ls_filter_memory *memory,
                   uint32_t function);
    // Optional. How many updates of the weights are made before the filter begins to work: their
    // buckets travel as they are, and nothing is owed. They are counted from the beginning of the
    // training, also where one goes on from a checkpoint. NULL: 0. [any thread]
    uint64_t (*begins)(const struct ls_host *host);
};

// How many elements a rank's part or block has, to hold `count`.
static inline uint64_t ls_filter_part(uint64_t count)
{
    return (count + LS_CHUNK_ALIGNMENT - 1) / LS_CHUNK_ALIGNMENT * LS_CHUNK_ALIGNMENT;
}

#ifdef __cplusplus
}
#endif

#endif
