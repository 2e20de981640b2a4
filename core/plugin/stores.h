// SPDX-License-Identifier: Apache-2.0
// Stores of a strategy: variables that are kept on the host with their optimizer state, where no
// replica need hold them. core/plugin/strategy.h includes this header.
#ifndef LS_PLUGIN_STORES_H
#define LS_PLUGIN_STORES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ls_strategy_host; // core/plugin/strategy.h
struct ls_store; // the host's: a range of variables that is kept on the host

// Stores begin with the parameters that replica 0 begins with; their values are there from
// initialize_parameters on. They are opened in the strategy's open, and closed in its close, not
// earlier: when the run ends, the host takes the optimizer's state from them. A store is used by
// one thread at a time, not always the same one. [one thread at a time for a store]
struct ls_strategy_stores {
    uint32_t struct_size;
    uint32_t reserved;
    // Opens a store of `count` floats from float `first` of the flat buffer. `first` is a multiple
    // of 16, as the first float of every variable is.
    int32_t (*open)(const struct ls_strategy_host *host, uint64_t first, uint64_t count,
                    struct ls_store **out);
    void (*close)(const struct ls_strategy_host *host, struct ls_store *store); // takes NULL
    // The parameters of the store.
    float *(*values)(const struct ls_strategy_host *host, struct ls_store *store);
    // One step of the optimizer. `gradient` has `count` floats and need not be aligned to
    // LS_ALIGNMENT. `step` is the number of the step, as step->current says it, and larger than
    // that of the last update; 0: one more than the last of this store, or than the steps that the
    // model had made before.
    int32_t (*update)(const struct ls_strategy_host *host, struct ls_store *store,
                      const float *gradient, uint64_t step, double learning_rate);
    // Only if host->norms has LS_NORM_OF_ALL: measures what `update` will be given. In each step
    // all stores are measured before the first is updated; if another thread measures a store, its
    // call must have returned.
    int32_t (*measure)(const struct ls_strategy_host *host, struct ls_store *store,
                       const float *gradient);
};

#ifdef __cplusplus
}
#endif

#endif
