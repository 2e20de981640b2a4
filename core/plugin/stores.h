// SPDX-License-Identifier: Apache-2.0
// Stores of a strategy: variables that are kept on the host. core/plugin/strategy.h includes this header.
#ifndef LS_PLUGIN_STORES_H
#define LS_PLUGIN_STORES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ls_strategy_host; // core/plugin/strategy.h
struct ls_store; // the host's: variables that are kept on the host

// Ranges of variables that are kept on the host with their optimizer state. They begin with the
// parameters that replica 0 begins with. `open` is called in the strategy's open only, with `first`
// a multiple of 16 floats, as all variables begin at one; the values are there from
// initialize_parameters on. All must be closed before the strategy's close returns, but not
// earlier: when the run ends, the host takes the optimizer's state from them. [one thread at a time
// for a store, which may change]
struct ls_strategy_stores {
    uint32_t struct_size;
    uint32_t reserved;
    // A store of `count` floats from float `first` of the flat buffer.
    int32_t (*open)(const struct ls_strategy_host *host, uint64_t first, uint64_t count,
                    struct ls_store **out);
    void (*close)(const struct ls_strategy_host *host, struct ls_store *store); // takes NULL
    // The parameters of the store.
    float *(*values)(const struct ls_strategy_host *host, struct ls_store *store);
    // One step of the optimizer. `gradient` has `count` floats and need not be aligned to
    // LS_ALIGNMENT. `step` is its number, as step->current says it, and larger than the last; 0:
    // the one after the last of this store, or the first after those that the model had before.
    int32_t (*update)(const struct ls_strategy_host *host, struct ls_store *store,
                      const float *gradient, uint64_t step, double learning_rate);
    // Only where host->norms has LS_NORM_OF_ALL: what `update` is going to be given. In each step
    // all stores are measured before any is updated; a measure that another thread makes must have
    // returned.
    int32_t (*measure)(const struct ls_strategy_host *host, struct ls_store *store,
                       const float *gradient);
};

#ifdef __cplusplus
}
#endif

#endif
