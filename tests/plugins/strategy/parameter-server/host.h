// SPDX-License-Identifier: Apache-2.0
// A host for the strategy alone: replicas are arrays, the optimizer is plain SGD, the transport is the real one. Any
// call can be made to fail, and replicas run on threads of the test.
#ifndef LS_TESTS_PARAMETER_SERVER_HOST_H
#define LS_TESTS_PARAMETER_SERVER_HOST_H

#include "core/plugin/strategy.h"
#include "tests/support/plugin.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define FAKE_REPLICAS 4
#define FAKE_SERVERS 4
#define FAKE_OPTIONS 8
#define FAKE_FACTS 32
#define FAKE_FACT_VALUES 512

struct fake_fact {
    char name[64];
    double values[FAKE_FACT_VALUES];
    uint64_t count;
    uint32_t list;
};

struct fake_replica {
    float *parameters, *gradients;
    float sums[LS_STRATEGY_SUMS]; // its own, of the step
    float decided[LS_STRATEGY_SUMS];
    uint32_t decisions, changes;
    uint64_t step;
    uint64_t bytes;
    uint32_t waits[LS_WAITED_FOR_SERVERS + 1]; // by whom it waited for
    _Atomic uint32_t fails; // its calls of the transport fail from now on
    _Atomic uint32_t asks; // the kind that its requests have from now on; 0: their own
};

struct fake_host {
    struct ls_strategy_host table;
    struct test_host host;
    struct ls_transport_interface transport; // the real one's, but for calls that fail
    const char *options[FAKE_OPTIONS][2]; // that the user gave
    // The model: variables of `size` floats, each followed by `gap` floats of padding.
    uint64_t size, gap, per_bucket;
    float learning_rate;
    bool mapped; // memory of replicas can be reached
    struct fake_replica replicas[FAKE_REPLICAS];
    struct ls_transport *endpoints[FAKE_REPLICAS + FAKE_SERVERS];
    bool closed[FAKE_REPLICAS + FAKE_SERVERS];
    uint32_t endpoint_count;
    struct ls_store *stores;
    uint32_t threads_started, threads_allowed;
    _Atomic uint32_t allocations, allocations_allowed;
    struct fake_fact facts[FAKE_FACTS];
    uint32_t fact_count;
    const struct ls_strategy_interface *ops;
    struct ls_strategy *strategy;
};

// Opens both plugins; false: one is not here (said).
bool fake_plugins_open(void);

// `variables` of `size` floats in buckets of `per_bucket`.
void fake_init(struct fake_host *fake, uint32_t replicas, uint32_t variables, uint64_t size,
               uint32_t per_bucket);
void fake_option(struct fake_host *fake, const char *name, const char *value);
int32_t fake_open(struct fake_host *fake);
// Closes the strategy, if it was opened.
void fake_finish(struct fake_host *fake);

// One step with all gradients `gradient`, sums of `examples` with this loss.
int32_t fake_step(struct fake_host *fake, uint32_t replica, float gradient, float loss,
                  float examples);
// The parts of it.
int32_t fake_begin(struct fake_host *fake, uint32_t replica);
int32_t fake_compute(struct fake_host *fake, uint32_t replica, float gradient, float loss,
                     float examples);
// All replicas at once, each `count` steps with gradient `rank + 1`, then a meeting if `meets`. The worst status.
int32_t fake_run(struct fake_host *fake, uint32_t count, bool meets);
// All replicas at once: place, and synchronise.
int32_t fake_place(struct fake_host *fake);
int32_t fake_meet(struct fake_host *fake);

// Asks for the report. NULL: there is no such fact.
void fake_describe(struct fake_host *fake);
const struct fake_fact *fake_fact(const struct fake_host *fake, const char *name);
double fake_number(const struct fake_host *fake, const char *name);

// The initial value of a float of the flat buffer.
float fake_initial(uint64_t index);
bool fake_is_padding(const struct fake_host *fake, uint64_t index);

#endif
