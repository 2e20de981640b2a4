// SPDX-License-Identifier: Apache-2.0
// Who wants to know how a fit gets on, and to say when it may: `lockstep compare` lets several take turns. Given as
// ls_fit_options.watch.
#ifndef LS_TRAIN_WATCH_H
#define LS_TRAIN_WATCH_H

#include <stdbool.h>
#include <stdint.h>

// Known when everything is prepared.
struct ls_watch_facts {
    uint64_t steps; // that the fit is going to do
    uint64_t global_batch;
    uint64_t epoch_steps;
    bool accuracy; // whether the model has that metric
    bool asynchronous; // replicas do not wait for each other
};

// One step, over the global batch.
struct ls_watch_step {
    double loss; // mean over the examples
    double right; // examples predicted rightly; 0 without accuracy
    double examples;
};

// Times at which the fit is told to wait count nowhere: not in epochs, not in steps.
struct ls_fit_watch {
    void *context;
    // Everything is prepared, nothing was trained. [main thread]
    void (*prepared)(void *context, const struct ls_watch_facts *facts);
    // The most steps that may be done now; may wait for that. 0: end here as if interrupted. [main thread]
    uint64_t (*wait)(void *context);
    // The steps begin now, and have ended on all replicas. What is between two stretches is no step: waiting,
    // validation, checks of the replicas. [main thread]
    void (*begin)(void *context);
    void (*end)(void *context);
    // A step is done. [the thread of replica 0]
    void (*step)(void *context, const struct ls_watch_step *step);
    // Validation begins. [main thread]
    void (*validate)(void *context);
};

#endif
