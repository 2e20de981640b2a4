// SPDX-License-Identifier: Apache-2.0
// The cases of the strategy suite: steps of several replicas, a late one, and host calls that fail.
#include "tools/conformance/strategy.h"

#include "core/base/threads.h"
#include "tools/conformance/strategy/suite.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct suite {
    const struct ls_strategy_conformance_options *options;
    struct ls_tally tally;
};

// A replica with its thread.
struct worker {
    struct ls_fake_host *fake;
    struct ls_strategy *strategy;
    uint32_t replica;
    uint32_t late; // 1 + the replica that comes late; 0: none
    uint32_t lost; // 1 + the replica whose second step fails; 0: none
    int32_t status; // of the hook that ended it
    pthread_t thread;
};

// ---- One replica ----

static int32_t run_hook(struct worker *worker, enum ls_fake_hook hook,
                        int32_t (*call)(struct ls_strategy *strategy, uint32_t replica))
{
    ls_fake_enter(worker->fake, worker->replica, hook);
    const int32_t status = call ? call(worker->strategy, worker->replica) : LS_OK;
    ls_fake_enter(worker->fake, worker->replica, LS_FAKE_OUTSIDE);
    return status;
}

static int32_t run_ready(struct worker *worker)
{
    const struct ls_strategy_interface *ops = worker->fake->strategy;
    int32_t status = LS_OK;
    for (uint32_t bucket = 0; !status && bucket < worker->fake->buckets; bucket++) {
        // As a host does that has two places for buckets.
        ls_fake_enter(worker->fake, worker->replica, LS_FAKE_STEP);
        if (bucket >= 2 && ops->gradient_finish)
            status = ops->gradient_finish(worker->strategy, worker->replica, bucket - 2);
        ls_fake_ready(worker->fake, worker->replica, bucket);
        if (!status)
            status = ops->gradient_ready(worker->strategy, worker->replica, bucket);
    }
    ls_fake_enter(worker->fake, worker->replica, LS_FAKE_OUTSIDE);
    return status;
}

// After a step that ended well.
static void judge_step(struct worker *worker, uint32_t step)
{
    struct ls_fake_host *fake = worker->fake;
    const struct ls_fake_replica *own = &fake->replica[worker->replica];
    // What is kept in stores is updated there.
    const uint32_t updates = fake->store_count ? 0 : 1;
    if (own->checks != 1)
        ls_tally_blame(fake->tally, "replica %u checked the sums of step %u %u times, not once",
                       worker->replica, step, own->checks);
    for (uint32_t i = 0; !own->ranged && i < fake->buckets; i++)
        if (own->buckets[i].updates != updates)
            ls_tally_blame(fake->tally, "replica %u updated bucket %u %u times in step %u, not %s",
                           worker->replica, i, own->buckets[i].updates, step,
                           updates ? "once" : "in its store alone");
}

static int32_t run_step(struct worker *worker, uint32_t step)
{
    const struct ls_strategy_interface *ops = worker->fake->strategy;
    const struct timespec late = {.tv_nsec = 30000000};
    ls_fake_begin(worker->fake, worker->replica, step);
    int32_t status = run_hook(worker, LS_FAKE_STEP, ops->begin_step);
    ls_fake_enter(worker->fake, worker->replica, LS_FAKE_STEP);
    for (uint32_t i = worker->fake->buckets; !status && i-- > 0;) {
        if (ops->parameters_ahead)
            status = ops->parameters_ahead(worker->strategy, worker->replica, i);
        if (!status && ops->parameters_needed)
            status = ops->parameters_needed(worker->strategy, worker->replica, i);
    }
    ls_fake_enter(worker->fake, worker->replica, LS_FAKE_OUTSIDE);
    ls_fake_compute(worker->fake, worker->replica);
    if (worker->late == worker->replica + 1)
        nanosleep(&late, NULL);
    if (!status)
        status = run_ready(worker);
    if (!status)
        status = run_hook(worker, LS_FAKE_STEP, ops->end_step);
    if (!status)
        judge_step(worker, step);
    return status;
}

// A step that fails in the device, after the first bucket: the replica is lost.
static int32_t lose(struct worker *worker, uint32_t step)
{
    const struct ls_strategy_interface *ops = worker->fake->strategy;
    ls_fake_begin(worker->fake, worker->replica, step);
    int32_t status = run_hook(worker, LS_FAKE_STEP, ops->begin_step);
    ls_fake_compute(worker->fake, worker->replica);
    ls_fake_ready(worker->fake, worker->replica, 0);
    if (!status)
        status = ops->gradient_ready(worker->strategy, worker->replica, 0);
    if (status)
        return status;
    ls_fake_lose(worker->fake, worker->replica);
    return ops->lost(worker->strategy, worker->replica);
}

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    const struct ls_strategy_interface *ops = worker->fake->strategy;
    const bool is_lost = worker->lost == worker->replica + 1;
    ls_fake_set_thread(worker->replica);
    struct ls_fake_replica *own = &worker->fake->replica[worker->replica];
    worker->status = run_hook(worker, LS_FAKE_INITIALIZE, ops->initialize_parameters);
    memcpy(own->rounds[0], own->parameters, sizeof(own->rounds[0]));
    for (uint32_t step = 0; !worker->status && step < (is_lost ? 1 : LS_FAKE_STEPS); step++)
        worker->status = run_step(worker, step);
    if (!worker->status && is_lost)
        worker->status = lose(worker, 1);
    if (!worker->status)
        worker->status = ls_fake_end(worker->fake);
    if (!worker->status && !is_lost)
        worker->status = run_hook(worker, LS_FAKE_STEP, ops->synchronise);
    if (ops->rounds) // the weights of the last round are shown
        memcpy(own->parameters, own->rounds[0], sizeof(own->rounds[0]));
    if (worker->status)
        ls_fake_abort(worker->fake); // as the core does
    return NULL;
}

// ---- All replicas ----

static void run_workers(struct ls_fake_host *fake, struct worker *workers)
{
    uint32_t started = 0;
    while (started < fake->replicas &&
           !ls_thread_start(&workers[started].thread, "replica", worker_main, &workers[started]))
        started++;
    if (started < fake->replicas) {
        ls_tally_blame(fake->tally, "no thread for replica %u", started);
        ls_fake_abort(fake);
    }
    for (uint32_t i = 0; i < started; i++)
        pthread_join(workers[i].thread, NULL);
}

static bool is_kept(const struct ls_fake_host *fake, uint64_t index)
{
    for (uint32_t i = 0; i < LS_FAKE_STORES; i++) {
        const struct ls_store *store = &fake->stores[i];
        if (store->fake && index >= store->first && index < store->first + store->count)
            return true;
    }
    return false;
}

// Where there are stores, every variable is kept in one, and updated once a step.
static void judge_stores(struct ls_fake_host *fake)
{
    const bool whole = !fake->aborted && fake->traits.divisor == LS_DIVISOR_GLOBAL;
    for (uint32_t i = 0; i < LS_FAKE_STORES; i++) {
        const struct ls_store *store = &fake->stores[i];
        if (!store->fake || !store->count)
            continue;
        if (whole && store->updates != LS_FAKE_STEPS)
            ls_tally_blame(fake->tally,
                           "the store from %" PRIu64 " was updated %u times in %u steps",
                           store->first, store->updates, LS_FAKE_STEPS);
    }
    for (uint64_t i = 0; fake->store_count && i < fake->table.flat_count; i++)
        if (!ls_fake_is_padding(&fake->model, i) && !is_kept(fake, i)) {
            ls_tally_blame(fake->tally, "float %" PRIu64 " of %" PRIu64 " is in no store", i,
                           fake->table.flat_count);
            return;
        }
}

// Opens the strategy, runs its replicas and closes it; false: it did not open.
static bool run_strategy(struct suite *suite, struct ls_fake_host *fake, uint32_t late,
                         uint32_t lost, struct worker *workers)
{
    struct ls_strategy *strategy = NULL;
    const int32_t status = ls_fake_open(fake, &strategy);
    if (status)
        return ls_tally_blame(&suite->tally, "open for %u replicas: %s", fake->replicas,
                              ls_status_text((enum ls_status)status));
    ls_fake_read_traits(fake, strategy);
    if (lost && !fake->traits.survives)
        ls_tally_refuse(&suite->tally, "the failure of a replica ends the run");
    for (uint32_t i = 0; i < fake->replicas; i++)
        workers[i] = (struct worker){.fake = fake,
                                     .strategy = strategy,
                                     .replica = i,
                                     .late = late,
                                     .lost = fake->traits.survives ? lost : 0};
    run_workers(fake, workers);
    judge_stores(fake);
    ls_fake_report_metrics(fake, strategy);
    ls_fake_close(fake, strategy);
    return true;
}

// What the parameters are after all steps, where every replica is a copy.
static float expected_parameter(const struct ls_fake_host *fake, uint64_t index)
{
    float value = ls_fake_first_parameter(fake, 0, index);
    for (uint32_t step = 0; step < LS_FAKE_STEPS; step++)
        for (uint32_t replica = 0; replica < fake->replicas; replica++)
            value -= ls_fake_gradient(fake, replica, step, index);
    return value;
}

static bool differ(float a, float b)
{
    return a < b || a > b;
}

static void judge_replica(struct ls_fake_host *fake, uint32_t replica, uint32_t first, bool whole)
{
    const struct ls_fake_replica *own = &fake->replica[replica];
    for (uint64_t i = 0; i < fake->table.flat_count; i++) {
        const uint32_t bucket = (uint32_t)(i / fake->bucket_floats);
        if (differ(own->parameters[i], fake->replica[first].parameters[i])) {
            ls_tally_blame(fake->tally, "bucket %u of replica %u differs from that of replica %u",
                           bucket, replica, first);
            return;
        }
        if (whole && differ(own->parameters[i], expected_parameter(fake, i))) {
            ls_tally_blame(fake->tally,
                           "bucket %u of replica %u is not rank 0's first parameters less the "
                           "sums of all gradients",
                           bucket, replica);
            return;
        }
    }
}

// Also where replicas do not wait for each other: the updates here are such that their order does not matter.
static void judge_parameters(struct ls_fake_host *fake)
{
    bool whole = !fake->strategy->rounds; // all gradients came in, and what became of them is known
    uint32_t first = fake->replicas; // that was not lost
    for (uint32_t i = 0; i < fake->replicas; i++) {
        whole = whole && !fake->replica[i].gone;
        first = first == fake->replicas && !fake->replica[i].gone ? i : first;
    }
    for (uint32_t i = first; i < fake->replicas; i++)
        if (!fake->replica[i].gone)
            judge_replica(fake, i, first, whole);
}

static bool serves(const struct suite *suite, uint32_t replicas)
{
    const uint32_t most = suite->options->strategy->maximum_replicas;
    return !most || replicas <= most;
}

static void init_host(struct suite *suite, struct ls_fake_host *fake, uint32_t replicas,
                      uint32_t buckets)
{
    const struct ls_fake_model model = ls_fake_small_model(buckets);
    ls_fake_host_init(fake, &suite->tally, suite->options->strategy, suite->options->host,
                      &suite->options->transport, replicas, &model, suite->options->seed);
}

struct steps {
    const char *name;
    uint32_t replicas, buckets;
    uint32_t late, lost; // 1 + replica; 0: none
    bool own_memory;
};

static void steps_case(struct suite *suite, const struct steps *steps)
{
    static struct ls_fake_host fake;
    const uint32_t replicas = steps->replicas;
    struct worker workers[LS_FAKE_REPLICAS] = {0};
    if (!ls_tally_begin(&suite->tally, "%s replicas=%u buckets=%u", steps->name, replicas,
                        steps->buckets))
        return;
    if (!serves(suite, replicas)) {
        ls_tally_refuse(&suite->tally, "more replicas than it serves");
        ls_tally_end(&suite->tally);
        return;
    }
    init_host(suite, &fake, replicas, steps->buckets);
    fake.own_memory = steps->own_memory;
    if (run_strategy(suite, &fake, steps->late, steps->lost, workers)) {
        for (uint32_t i = 0; i < replicas; i++)
            if (workers[i].status)
                ls_tally_blame(&suite->tally, "replica %u: %s", i,
                               ls_status_text((enum ls_status)workers[i].status));
        judge_parameters(&fake);
    }
    ls_fake_host_finish(&fake);
    ls_tally_end(&suite->tally);
}

// ---- Failures ----

static void judge_failure(struct suite *suite, struct ls_fake_host *fake,
                          const struct worker *workers)
{
    const uint32_t at = fake->fails_at;
    if (fake->failures_elsewhere) {
        if (fake->fails_with != LS_ABORTED && fake->thread_failure != fake->fails_with)
            ls_tally_blame(&suite->tally,
                           "its thread ended with: %s, not with what the host answered: %s",
                           ls_status_text((enum ls_status)fake->thread_failure),
                           ls_status_text((enum ls_status)fake->fails_with));
        return;
    }
    if (!fake->replica[at].failures) {
        ls_tally_refuse(&suite->tally, "it does not make this call");
        return;
    }
    if (workers[at].status != fake->fails_with)
        ls_tally_blame(&suite->tally,
                       "its hook ended with: %s, not with what the host answered: %s",
                       ls_status_text((enum ls_status)workers[at].status),
                       ls_status_text((enum ls_status)fake->fails_with));
    if (fake->replica[at].updates_after_failure)
        ls_tally_blame(&suite->tally, "it went on to update after the host call had failed");
    for (uint32_t i = 0; fake->traits.divisor == LS_DIVISOR_GLOBAL && i < fake->replicas; i++)
        if (!workers[i].status)
            ls_tally_blame(&suite->tally,
                           "replica %u went through all steps, though another failed", i);
}

static void failure_case(struct suite *suite, const char *name, enum ls_fake_call call,
                         uint32_t replicas, int32_t status)
{
    static struct ls_fake_host fake;
    struct worker workers[LS_FAKE_REPLICAS] = {0};
    if (!ls_tally_begin(&suite->tally, "%s_%s replicas=%u", name,
                        status == LS_ABORTED ? "aborted" : "fails", replicas))
        return;
    if (!serves(suite, replicas)) {
        ls_tally_refuse(&suite->tally, "more replicas than it serves");
        ls_tally_end(&suite->tally);
        return;
    }
    init_host(suite, &fake, replicas, 3);
    fake.own_memory = call == LS_FAKE_READ || call == LS_FAKE_WRITE;
    fake.fails = call;
    fake.fails_at = replicas - 1;
    fake.fails_with = status;
    if (run_strategy(suite, &fake, 0, 0, workers))
        judge_failure(suite, &fake, workers);
    ls_fake_host_finish(&fake);
    ls_tally_end(&suite->tally);
}

#define OF_COLLECTIVES 5 // of the calls below

static void failure_cases(struct suite *suite)
{
    static const struct {
        const char *name;
        enum ls_fake_call call;
    } calls[] = {
        {"broadcast", LS_FAKE_BROADCAST},
        {"all_reduce_start", LS_FAKE_START},
        {"all_reduce_wait", LS_FAKE_WAIT},
        {"check_step", LS_FAKE_CHECK_STEP},
        {"update", LS_FAKE_UPDATE},
        // Of strategies that move numbers themselves.
        {"read_sums", LS_FAKE_READ_SUMS},
        {"check_step_on", LS_FAKE_CHECK_STEP_ON},
        {"barrier", LS_FAKE_BARRIER},
        {"read", LS_FAKE_READ},
        {"write", LS_FAKE_WRITE},
        {"store_update", LS_FAKE_STORE_UPDATE},
    };
    const size_t count = suite->options->strategy->needs_collective
                             ? OF_COLLECTIVES
                             : sizeof(calls) / sizeof(*calls);
    for (size_t i = 0; i < count; i++)
        for (uint32_t replicas = 1; replicas <= 3; replicas += 2) {
            failure_case(suite, calls[i].name, calls[i].call, replicas, LS_FAILED);
            failure_case(suite, calls[i].name, calls[i].call, replicas, LS_ABORTED);
        }
}

enum ls_status ls_conformance_strategy(const struct ls_strategy_conformance_options *options,
                                       ls_conformance_report report, void *context,
                                       struct ls_conformance_counts *counts)
{
    static const uint32_t replicas[] = {1, 2, 3, 4, 8}, buckets[] = {1, 2, 7};
    struct suite suite = {.options = options};
    ls_tally_init(&suite.tally, options->only, options->wanted, report, context);
    for (size_t i = 0; i < sizeof(replicas) / sizeof(*replicas); i++)
        for (size_t k = 0; k < sizeof(buckets) / sizeof(*buckets); k++)
            steps_case(&suite, &(struct steps){"steps", replicas[i], buckets[k], 0, 0, false});
    steps_case(&suite, &(struct steps){"late_replica", 3, 7, 1, 0, false});
    steps_case(&suite, &(struct steps){"late_replica", 3, 7, 3, 0, false});
    for (size_t i = 0; !options->strategy->needs_collective && i < 3; i++)
        steps_case(&suite, &(struct steps){"own_memory", replicas[i], buckets[i], 0, 0, true});
    for (uint32_t i = 1; options->strategy->lost && i <= 3; i++)
        steps_case(&suite, &(struct steps){"lost_replica", 3, 7, 0, i, false});
    failure_cases(&suite);
    if (counts)
        *counts = suite.tally.counts;
    ls_tally_finish(&suite.tally);
    return suite.tally.counts.failed ? LS_FAILED : LS_OK;
}
