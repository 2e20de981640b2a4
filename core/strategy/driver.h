// SPDX-License-Identifier: Apache-2.0
// Drives a strategy plugin: calls its hooks at the right places of a step, and is the host that its table
// promises (collectives per bucket, decide, update). One a worker. [main thread, but where said]
#ifndef LS_STRATEGY_DRIVER_H
#define LS_STRATEGY_DRIVER_H

#include "core/collective/communicator.h"
#include "core/plugin/strategy.h"
#include "core/replica/replica.h"

#include <stdatomic.h>

// A plugin as the loader opened it.
struct ls_driver_plugin {
    const struct ls_plugin *plugin; // NULL: none
    const struct ls_host *host;
    const void *interface; // in the size of our headers
};

struct ls_driver_options {
    struct ls_driver_plugin strategy, collective, transport;
    uint64_t deadline_ns;
    struct ls_replica **replicas; // all of the job; borrowed
    uint32_t count;
};

// What one step of one replica took and found.
struct ls_step_result {
    float sums[LS_SUMS]; // of the global batch
    bool stop; // some rank asked to stop after this step
    uint64_t compute_ns, update_ns, communication_ns, exposed_ns;
};

struct ls_driver;

LS_STATUS ls_driver_open(const struct ls_driver_options *options, struct ls_driver **out);
void ls_driver_close(struct ls_driver *driver); // takes NULL; replicas must have left their steps

// Once, before the first step, on every replica: equal parameters everywhere. [replica thread]
LS_STATUS ls_driver_place(struct ls_driver *driver, uint32_t replica);

// One step. LS_FAILED when the loss is not finite; ls_driver_explain then says why. [replica thread]
LS_STATUS ls_driver_step(struct ls_driver *driver, uint32_t replica,
                         const struct ls_replica_batch *batch, uint64_t step, double learning_rate,
                         bool stop, struct ls_step_result *out);
// Before evaluation, weights are read or the run ends. [replica thread]
LS_STATUS ls_driver_synchronise(struct ls_driver *driver, uint32_t replica);

// After a failed step, when all replicas have left it and wait: names the first value that is not finite, if that was
// the reason; once.
void ls_driver_explain(struct ls_driver *driver);

// Wakes everybody who waits for a peer. [any thread]
void ls_driver_abort(struct ls_driver *driver);

// For the report. Bytes that rank 0 sends in a step, padding included; 0 without a collective.
uint64_t ls_driver_bytes_per_step(const struct ls_driver *driver);

#endif
