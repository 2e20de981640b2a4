// SPDX-License-Identifier: Apache-2.0
// What the files of the strategy suite share; nobody else includes it.
#ifndef LS_CONFORMANCE_STRATEGY_SUITE_H
#define LS_CONFORMANCE_STRATEGY_SUITE_H

#include "core/conformance/strategy.h"
#include "core/conformance/tally.h"

#include <pthread.h>

#define LS_FAKE_REPLICAS 8
#define LS_FAKE_BUCKETS 7
#define LS_FAKE_STEPS 3
#define LS_FAKE_CALLS 256 // all-reduces of one replica that are remembered

// Calls of the host that can be made to fail.
enum ls_fake_call {
    LS_FAKE_NONE,
    LS_FAKE_BROADCAST,
    LS_FAKE_START,
    LS_FAKE_WAIT,
    LS_FAKE_DECIDE,
    LS_FAKE_UPDATE,
};

// Which hook a replica is in.
enum ls_fake_hook { LS_FAKE_OUTSIDE, LS_FAKE_PLACE, LS_FAKE_READY, LS_FAKE_STEP };

struct ls_fake_bucket {
    int64_t parameter;
    int64_t gradient; // of this replica; the sum once it was waited for
    bool ready, started, waited;
    uint32_t updates; // in this step
};

struct ls_fake_replica {
    struct ls_fake_bucket buckets[LS_FAKE_BUCKETS];
    uint32_t order[LS_FAKE_CALLS]; // buckets, as they were started
    uint32_t started; // of `order`
    uint32_t decisions; // in this step
    uint32_t broadcasts, root;
    enum ls_fake_hook hook;
    uint32_t failures; // host calls that were made to fail
    uint32_t updates_after_failure;
};

// The host of one strategy: numbers, and the meeting of its replicas.
struct ls_fake_host {
    struct ls_strategy_host table;
    struct ls_tally *tally;
    const struct ls_strategy_interface *strategy;
    uint64_t seed;
    uint32_t replicas, buckets;
    pthread_mutex_t lock; // of all below
    pthread_cond_t changed;
    struct ls_fake_replica replica[LS_FAKE_REPLICAS];
    // The n-th all-reduce of each replica meets those of the others.
    uint32_t arrived[LS_FAKE_CALLS];
    int64_t sums[LS_FAKE_CALLS];
    uint32_t broadcasts; // replicas that have come to it
    int64_t roots[LS_FAKE_BUCKETS]; // parameters of the root
    bool root_came;
    bool aborted;
    enum ls_fake_call fails; // which call fails,
    uint32_t fails_at; // of which replica,
    int32_t fails_with; // and how
};

void ls_fake_host_init(struct ls_fake_host *fake, struct ls_tally *tally,
                       const struct ls_strategy_interface *strategy, const struct ls_host *host,
                       uint32_t replicas, uint32_t buckets, uint64_t seed);
void ls_fake_host_finish(struct ls_fake_host *fake);

// The next step begins for this replica: new gradients. [its thread]
void ls_fake_begin(struct ls_fake_host *fake, uint32_t replica, uint32_t step);
void ls_fake_enter(struct ls_fake_host *fake, uint32_t replica, enum ls_fake_hook hook);
void ls_fake_ready(struct ls_fake_host *fake, uint32_t replica, uint32_t bucket);
// All waits end with LS_ABORTED. [any thread]
void ls_fake_abort(struct ls_fake_host *fake);

int64_t ls_fake_gradient(const struct ls_fake_host *fake, uint32_t replica, uint32_t step,
                         uint32_t bucket);
int64_t ls_fake_first_parameter(const struct ls_fake_host *fake, uint32_t replica, uint32_t bucket);

#endif
