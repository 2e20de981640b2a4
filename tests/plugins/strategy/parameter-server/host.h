// SPDX-License-Identifier: Apache-2.0
// The strategy alone, on the fake host of the conformance suite and the real transport. Memory, threads and calls of the
// transport can be made to fail, and what it reports is kept. Replicas run on threads of the test.
#ifndef LS_TESTS_PARAMETER_SERVER_HOST_H
#define LS_TESTS_PARAMETER_SERVER_HOST_H

#include "tests/support/plugin.h"
#include "tools/conformance/strategy/suite.h"

#include <stdatomic.h>

#define FAKE_REPLICAS 4
#define FAKE_OPTIONS 8
#define FAKE_FACTS 32
#define FAKE_FACT_VALUES 512

struct fake_fact {
    char name[64];
    double values[FAKE_FACT_VALUES];
    uint64_t count;
    uint32_t list;
};

struct fake_host {
    struct ls_fake_host core; // first: calls of its tables cast back
    struct ls_tally tally; // of what the fake host finds wrong
    struct test_host host;
    struct ls_transport_interface transport; // the real one's, but for calls that fail
    const char *options[FAKE_OPTIONS][2]; // that the user gave
    uint64_t steps[FAKE_REPLICAS]; // that each replica has begun
    _Atomic uint32_t fails[FAKE_REPLICAS]; // its calls of the transport fail from now on
    _Atomic uint32_t
        asks[FAKE_REPLICAS]; // the kind that its requests have from now on; 0: their own
    _Atomic uint32_t allocations, allocations_allowed;
    struct ls_strategy_report report;
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
// Closes the strategy, if it was opened. Nothing of it may be left, and no call may have been wrong.
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

#endif
