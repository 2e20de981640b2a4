// SPDX-License-Identifier: Apache-2.0
// The one fake of a strategy's host: small numbers in place of tensors, replicas that meet in
// memory, and a judge of every call. The strategy suite runs on it, tools/conformance/instance and
// tests of single strategies, too.
#ifndef LS_TOOLS_CONFORMANCE_STRATEGY_SUITE_H
#define LS_TOOLS_CONFORMANCE_STRATEGY_SUITE_H

#include "tools/conformance/strategy.h"
#include "tools/conformance/tally.h"

#include <pthread.h>

#define LS_FAKE_REPLICAS 8
#define LS_FAKE_BUCKETS 7
#define LS_FAKE_STEPS 3
#define LS_FAKE_CALLS 256 // all-reduces of one replica that are remembered
#define LS_FAKE_STORES 1024
#define LS_FAKE_RANGES 32 // collectives on ranges
#define LS_FAKE_THREADS 16
#define LS_FAKE_FLOATS 48 // most of a bucket that is all-reduced
#define LS_FAKE_FLAT 11264 // most of a model
#define LS_FAKE_ROUNDS (LS_REPLICA_NOTES - LS_REPLICA_ROUND + 1)
#define LS_FAKE_RATE \
    0.5 // what `current` answers as learning rate; stores subtract the gradient, whatever it is

// Calls of the host that can be made to fail.
enum ls_fake_call {
    LS_FAKE_NONE,
    LS_FAKE_BROADCAST,
    LS_FAKE_START,
    LS_FAKE_WAIT,
    LS_FAKE_CHECK_STEP,
    LS_FAKE_UPDATE,
    LS_FAKE_READ_SUMS,
    LS_FAKE_CHECK_STEP_ON,
    LS_FAKE_BARRIER,
    LS_FAKE_READ,
    LS_FAKE_WRITE,
    LS_FAKE_STORE_UPDATE,
};

// The number of the first step: the model was trained before.
#define LS_FAKE_FIRST_STEP 41

// Of a strategy with rounds, so that the default round of ours ends.
#define LS_FAKE_FIRST_STEP_OF_ROUNDS 48

// Which hook a replica is in.
enum ls_fake_hook { LS_FAKE_OUTSIDE, LS_FAKE_INITIALIZE, LS_FAKE_READY, LS_FAKE_STEP };

// Variables of these sizes in turn. Each begins at a multiple of 16 floats; the padding between
// them is zero.
struct ls_fake_model {
    uint32_t variables;
    uint32_t per_bucket; // even where the sizes differ
    uint64_t sizes[2];
};

struct ls_fake_bucket {
    bool ready, started, waited;
    uint32_t updates; // in this step
};

struct ls_fake_replica {
    union { // LS_REPLICA_ROOM_AND_PARAMETERS
        _Alignas(64) float room_and_parameters[LS_STRATEGY_SUMS + LS_FAKE_FLAT];
        struct {
            float room[LS_STRATEGY_SUMS];
            float parameters[LS_FAKE_FLAT];
        };
    };
    union { // LS_REPLICA_SUMS_AND_GRADIENTS: its own, or what a collective made of them
        _Alignas(64) float sums_and_gradients[LS_STRATEGY_SUMS + LS_FAKE_FLAT];
        struct {
            float sums[LS_STRATEGY_SUMS];
            float gradients[LS_FAKE_FLAT];
        };
    };
    float seen[LS_FAKE_FLAT]; // parameters when the last hook ended
    uint32_t changes,
        judged; // how often the strategy said that it changed them; and until the last hook
    struct ls_fake_bucket buckets[LS_FAKE_BUCKETS];
    uint32_t order[LS_FAKE_CALLS]; // buckets, as they were started
    uint32_t started; // of `order`
    uint32_t step; // from 0
    uint32_t checks; // in this step
    uint32_t broadcasts, root;
    enum ls_fake_hook hook;
    uint32_t failures; // host calls that were made to fail
    uint32_t updates_after_failure;
    bool gone; // lost
    bool came; // to the barrier
    float own_sums[LS_STRATEGY_SUMS]; // of each of its steps, unless a test changes them
    float checked[LS_STRATEGY_SUMS]; // by check_step_on, last
    uint64_t bytes; // that it said it has sent
    uint32_t waits[LS_WAITED_FOR_SERVERS + 1]; // by whom it waited for
    bool sums_waited; // in this step
    bool ranged; // updates ranges instead of buckets
    uint32_t prepared; // collectives on ranges
    // Of strategies with rounds, from LS_REPLICA_ROUND on; the last are their notes.
    _Alignas(64) float rounds[LS_FAKE_ROUNDS][LS_FAKE_FLAT];
};

// A collective on a range, of all replicas.
struct ls_strategy_collective {
    struct ls_strategy_operation operation;
    bool prepared;
    uint32_t started[LS_FAKE_REPLICAS], waited[LS_FAKE_REPLICAS]; // runs
    float *values[2][LS_FAKE_REPLICAS]; // that each gave, of the last two runs
};

struct ls_fake_host;

struct ls_store {
    struct ls_fake_host *fake; // NULL: free
    uint64_t first, count;
    uint32_t updates;
    uint64_t steps; // that the state of its optimizer has had
    uint32_t busy; // calls on it now
    float *values;
};

struct ls_strategy_thread {
    struct ls_fake_host *fake; // NULL: free
    pthread_t thread;
    int32_t (*run)(void *context);
    void *context;
    int32_t status;
};

// The host of one strategy: numbers, and the barrier of its replicas.
struct ls_fake_host {
    struct ls_strategy_host table;
    struct ls_tally *tally;
    const struct ls_strategy_interface *strategy;
    struct ls_strategy_traits traits; // of the instance, once it is open
    struct ls_fake_transport transport;
    uint64_t seed;
    uint32_t replicas, buckets;
    struct ls_fake_model model;
    uint64_t bucket_floats; // of each but the last
    uint64_t first_step; // the number of step 0
    uint32_t threads_allowed;
    bool lenient; // what is wrong is left to others to say: calls do nothing
    bool own_memory; // of the devices: `map` answers NULL
    pthread_mutex_t lock; // of all below
    pthread_cond_t changed;
    struct ls_fake_replica replica[LS_FAKE_REPLICAS];
    // The n-th all-reduce of each replica meets those of the others.
    uint32_t arrived[LS_FAKE_CALLS];
    float sums[LS_FAKE_CALLS][LS_FAKE_FLOATS];
    float roots[LS_FAKE_FLAT]; // parameters of the root
    bool root_came;
    uint32_t met; // barriers that have ended
    uint32_t ended; // replicas that have made their steps
    bool aborted;
    bool reporting;
    struct ls_strategy_collective ranges[LS_FAKE_RANGES];
    struct ls_store stores[LS_FAKE_STORES];
    uint32_t store_count; // that were opened
    struct ls_strategy_thread threads[LS_FAKE_THREADS];
    struct ls_transport **endpoints;
    uint32_t endpoint_count;
    int32_t thread_failure; // what a thread of the strategy's ended with
    enum ls_fake_call fails; // which call fails,
    uint32_t fails_at; // of which replica,
    int32_t fails_with; // and how
    uint32_t failures_elsewhere; // on threads of the strategy's
};

// The model of the suite.
struct ls_fake_model ls_fake_small_model(uint32_t buckets);
// `transport` may be zeroed: then a strategy cannot open endpoints.
void ls_fake_host_init(struct ls_fake_host *fake, struct ls_tally *tally,
                       const struct ls_strategy_interface *strategy, const struct ls_host *host,
                       const struct ls_fake_transport *transport, uint32_t replicas,
                       const struct ls_fake_model *model, uint64_t seed);
// Blames what the strategy has left open.
void ls_fake_host_finish(struct ls_fake_host *fake);

// Opens the strategy in memory of the host's. LS_OK: `out` is to be closed by ls_fake_close.
int32_t ls_fake_open(struct ls_fake_host *fake, struct ls_strategy **out);
void ls_fake_close(struct ls_fake_host *fake, struct ls_strategy *strategy);
// After `open`.
void ls_fake_read_traits(struct ls_fake_host *fake, struct ls_strategy *strategy);
// The next step begins for this replica. [its thread]
void ls_fake_begin(struct ls_fake_host *fake, uint32_t replica, uint32_t step);
// After begin_step: new gradients. [its thread]
void ls_fake_compute(struct ls_fake_host *fake, uint32_t replica);
void ls_fake_enter(struct ls_fake_host *fake, uint32_t replica, enum ls_fake_hook hook);
void ls_fake_ready(struct ls_fake_host *fake, uint32_t replica, uint32_t bucket);
// Nobody waits for it any more. [its thread]
void ls_fake_lose(struct ls_fake_host *fake, uint32_t replica);
// Waits until all replicas have made their steps, as the core does before `synchronise`.
int32_t ls_fake_end(struct ls_fake_host *fake);
void ls_fake_report_metrics(struct ls_fake_host *fake, struct ls_strategy *strategy);
// All waits end with LS_ABORTED. [any thread]
void ls_fake_abort(struct ls_fake_host *fake);

// Whole numbers, so that sums are exact in any order; 0 for padding. `index` in the flat buffer.
float ls_fake_gradient(const struct ls_fake_host *fake, uint32_t replica, uint32_t step,
                       uint64_t index);
float ls_fake_first_parameter(const struct ls_fake_host *fake, uint32_t replica, uint64_t index);
bool ls_fake_is_padding(const struct ls_fake_model *model, uint64_t index);
struct ls_placed_range ls_fake_variable(const struct ls_fake_model *model, uint32_t variable);
struct ls_placed_range ls_fake_bucket(const struct ls_fake_model *model, uint32_t bucket);

// ---- Private to the fake host ----

// Tables of the host.
extern const struct ls_strategy_layout ls_fake_layout; // memory.c
extern const struct ls_strategy_memory ls_fake_memory;
extern const struct ls_strategy_stores ls_fake_stores;
extern const struct ls_strategy_threads ls_fake_threads; // point_to_point.c
extern const struct ls_strategy_endpoints ls_fake_endpoints;
extern const struct ls_strategy_report ls_fake_report;
void ls_fake_own_sums(uint32_t replica, float out[LS_STRATEGY_SUMS]); // memory.c
// Of the step table.
int32_t ls_fake_read_sums(const struct ls_strategy_host *host, uint32_t replica, float *out);
int32_t ls_fake_check_step_on(const struct ls_strategy_host *host, uint32_t replica,
                              const float *sums);
void ls_fake_current(const struct ls_strategy_host *host, uint32_t replica, uint64_t *number,
                     double *learning_rate);
// Which replica this thread is.
void ls_fake_set_thread(uint32_t replica); // memory.c
void ls_fake_finish_peers(struct ls_fake_host *fake);

// Whether the numbers of a call are those of a replica and a bucket. A plugin that names others
// would write past a model's buffers.
bool ls_fake_known(struct ls_fake_host *fake, uint32_t replica, uint32_t bucket, const char *call);
int32_t ls_fake_refusal(const struct ls_fake_host *fake); // what a call with wrong numbers answers
// The status of a call that is to fail here; with the lock held. `replica` UINT32_MAX: a call of no
// replica.
int32_t ls_fake_failure(struct ls_fake_host *fake, enum ls_fake_call call, uint32_t replica);
// Waits for a change until `end`; false: it has passed. With the lock held.
struct timespec ls_fake_deadline(void);
bool ls_fake_wait(struct ls_fake_host *fake, const struct timespec *end);
void ls_fake_checked(struct ls_fake_host *fake, uint32_t replica);

#endif
