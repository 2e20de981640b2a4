// SPDX-License-Identifier: Apache-2.0
// Stores: ranges of the flat buffers kept on the host, each with the state of its optimizer, whose
// arithmetic is the operation of a device that computes in host memory. A driver has stores, and so
// has a server process, which has nothing else. [main thread, but where said]
#ifndef LS_STRATEGY_STORES_H
#define LS_STRATEGY_STORES_H

#include "core/strategy/driver.h"

#include <pthread.h>

struct ls_store;

struct ls_stores {
    const char *strategy; // its name, for messages
    const struct ls_parameter_plan *plan; // the layout of the flat buffers
    const struct ls_optimizer *optimizer; // zeroed: nothing is updated
    uint64_t seed; // of the training
    uint64_t steps_before; // that the states have had when the stores are attached
    uint32_t threads; // of a replica
    // Finds the device that updates; NULL: there is none.
    enum ls_status (*find_device)(void *context, struct ls_driver_plugin *out);
    void *context;
    struct ls_driver_plugin device; // NULL until it is needed

    pthread_mutex_t lock; // of the list
    struct ls_store *first; // a list; NULL: there are no stores
    double *measures; // of all stores' gradients; NULL: the optimizer needs none
    uint64_t measure_count; // pairs of doubles
};

// The members above the lock are the caller's to set, before the first store is opened.
void ls_stores_init(struct ls_stores *stores);
void ls_stores_clear(struct ls_stores *stores); // closes all stores
void ls_stores_finish(struct ls_stores *stores);

// A store of `count` values from `first`, in memory of a server process, which ls_store_place gives:
// `bytes` bytes, for its values and its states.
LS_STATUS ls_stores_open_placed(struct ls_stores *stores, uint64_t first, uint64_t count,
                                struct ls_store **out, uint64_t *bytes);
void ls_store_place(struct ls_store *store, void *memory);
// What a placed store begins with: these values, and the initial state of the optimizer.
void ls_stores_fill_placed(const struct ls_stores *stores, struct ls_store *store,
                           const float *values);

struct ls_store_step {
    uint64_t step; // 0: one more than the last
    double learning_rate;
    const struct ls_loss_scale_state *scale; // NULL: there is none
    bool on_replica; // by a replica's thread: as many threads as it has may work
};

// [one thread at a time for each store]
LS_STATUS ls_stores_update(struct ls_stores *stores, struct ls_store *store, const float *gradient,
                           const struct ls_store_step *step);
bool ls_stores_finite(const struct ls_stores *stores); // all gradients that were measured

#endif
