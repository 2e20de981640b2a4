// SPDX-License-Identifier: Apache-2.0
// The hooks of a strategy around a replica's step. The host table behind them is in host.c, stores.c, threads.c,
// endpoints.c, facts.c.
#include "core/strategy/internal.h"

#include "core/base/clock.h"
#include "core/base/inside.h"
#include "core/base/log.h"
#include "core/base/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local struct ls_driver_member *current;

struct ls_driver_member *ls_driver_current(void)
{
    return current;
}

// ---- Opening ----

// Elements that one all-reduce of a bucket has: the first one carries the sums of the step, too.
static uint64_t bucket_elements(const struct ls_replica *replica, uint32_t bucket)
{
    return replica->buckets.list[bucket].bytes / sizeof(float) + (bucket == 0 ? LS_TAIL_FLOATS : 0);
}

// Times the candidates of `auto` for the sizes of the buckets.
static enum ls_status tune(const struct ls_driver *driver, struct ls_tuner *tuner)
{
    uint64_t *counts = calloc(driver->bucket_count + 1, sizeof(*counts));
    if (!counts)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < driver->bucket_count; i++)
        counts[i] = bucket_elements(driver->members[0].replica, i);
    const struct ls_tuner_task task = {.operation = LS_ALL_REDUCE,
                                       .dtype = LS_F32,
                                       .reduction = LS_SUM,
                                       .counts = counts,
                                       .size_count = driver->bucket_count};
    const enum ls_status status =
        ls_tuner_measure(tuner, &task, driver->communicators, driver->count);
    free(counts);
    return status;
}

static enum ls_status create_plans(struct ls_driver *driver, uint32_t index)
{
    struct ls_driver_member *member = &driver->members[index];
    const struct ls_replica *replica = member->replica;
    for (uint32_t i = 0; i < driver->bucket_count; i++) {
        const struct ls_bucket *bucket = &replica->buckets.list[i];
        float *start =
            i == 0 ? replica->reduced : replica->gradients + bucket->offset / sizeof(float);
        const uint64_t count = bucket_elements(replica, i);
        char label[32];
        snprintf(label, sizeof(label), "bucket %u", i);
        const enum ls_status status =
            ls_collective_plan_create(member->communicator, LS_ALL_REDUCE, start, count, LS_F32,
                                      LS_SUM, 0, label, &member->reduce[i]);
        if (status)
            return status;
    }
    return LS_OK;
}

static struct ls_communicator_place *list_places(const struct ls_driver_options *options)
{
    struct ls_communicator_place *places = calloc(options->count, sizeof(*places));
    for (uint32_t i = 0; places && i < options->count; i++)
        places[i] = (struct ls_communicator_place){.ops = options->replicas[i]->ops,
                                                   .device = options->replicas[i]->device};
    return places;
}

static enum ls_status open_communicators(struct ls_driver *driver,
                                         const struct ls_driver_options *options)
{
    struct ls_communicator_place *places = list_places(options);
    const struct ls_communicator_options communicator = {
        .collective = options->collective.plugin,
        .collective_host = options->collective.host,
        .collective_text = options->collective.text,
        .transport = options->transport.plugin,
        .transport_host = options->transport.host,
        .world = options->count,
        .deadline_ns = options->deadline_ns,
        .name = "gradients",
        .places = places,
    };
    driver->communicators = calloc(driver->count, sizeof(*driver->communicators));
    enum ls_status status = places && driver->communicators
                                ? ls_communicators_open(&communicator, driver->communicators)
                                : LS_OUT_OF_MEMORY;
    free(places);
    if (!status && options->tuner)
        status = tune(driver, options->tuner);
    for (uint32_t i = 0; !status && i < driver->count; i++) {
        driver->members[i].communicator = driver->communicators[i];
        status = create_plans(driver, i);
    }
    return status;
}

// Flat buffers can be reduced as they are only where they lie alike.
static enum ls_status check_plans(const struct ls_driver_options *options)
{
    for (uint32_t i = 1; i < options->count; i++)
        if (ls_plan_fingerprint(options->replicas[i]->plan) !=
            ls_plan_fingerprint(options->replicas[0]->plan)) {
            ls_error("strategy", "replicas 0 and %u keep their parameters in different layouts", i);
            return LS_FAILED;
        }
    return LS_OK;
}

// A collective works on the gradients where they lie: the transport must reach that memory.
static enum ls_status check_memory(const struct ls_driver *driver,
                                   const struct ls_driver_options *options)
{
    const struct ls_transport_interface *transport = options->transport.interface;
    const uint32_t kind = options->replicas[0]->ops->memory_kind;
    if (!driver->ops->needs_collective || options->count < 2 || !transport ||
        transport->memory_kinds >> kind & 1)
        return LS_OK;
    ls_error("--strategy",
             "strategy '%s' adds gradients in the device's memory, which transport '%s' cannot "
             "reach; take transport local, or central-storage or parameter-server, which keep "
             "variables on the host",
             options->strategy.plugin->name, options->transport.plugin->name);
    return LS_UNAVAILABLE;
}

static enum ls_status check_needs(const struct ls_driver *driver,
                                  const struct ls_driver_options *options)
{
    const uint32_t most = driver->ops->maximum_replicas;
    if (most && options->count > most) {
        ls_error("--replicas",
                 "strategy '%s' runs at most %u replica%s, not %u; choose another strategy or "
                 "fewer replicas",
                 options->strategy.plugin->name, most, most == 1 ? "" : "s", options->count);
        return LS_USAGE;
    }
    if (driver->ops->needs_collective && !options->collective.plugin) {
        ls_error("--strategy", "strategy '%s' needs a collective", options->strategy.plugin->name);
        return LS_USAGE;
    }
    if (driver->ops->needs_transport && !options->transport.plugin) {
        ls_error("--strategy", "strategy '%s' needs a transport", options->strategy.plugin->name);
        return LS_USAGE;
    }
    return check_memory(driver, options);
}

static enum ls_status create_members(struct ls_driver *driver,
                                     const struct ls_driver_options *options)
{
    driver->members = calloc(options->count, sizeof(*driver->members));
    if (!driver->members)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < options->count; i++) {
        struct ls_driver_member *member = &driver->members[i];
        member->replica = options->replicas[i];
        member->reduce = calloc(driver->bucket_count, sizeof(struct ls_collective_plan *));
        member->broadcast = calloc(options->count, sizeof(struct ls_collective_plan *));
        if (!member->reduce || !member->broadcast)
            return LS_OUT_OF_MEMORY;
    }
    return LS_OK;
}

static void make_table(struct ls_driver *driver)
{
    const struct ls_parameter_plan *plan = driver->members[0].replica->plan;
    driver->table = (struct ls_strategy_host){.struct_size = sizeof(driver->table),
                                              .replicas = driver->count,
                                              .world = driver->count,
                                              .bucket_count = driver->bucket_count,
                                              .context = driver,
                                              .host = driver->options.strategy.host,
                                              .flat_count = plan->flat_bytes / sizeof(float),
                                              .variable_count = plan->place_count,
                                              .deadline_ns = driver->options.deadline_ns};
    ls_driver_offer_data(&driver->table);
    ls_driver_offer_stores(&driver->table);
    ls_driver_offer_threads(&driver->table);
    ls_driver_offer_endpoints(&driver->table);
    ls_driver_offer_facts(&driver->table);
}

static enum ls_status read_traits(struct ls_driver *driver)
{
    const struct ls_strategy_interface *ops = driver->ops;
    struct ls_strategy_traits *traits = &driver->traits;
    *traits = (struct ls_strategy_traits){
        .struct_size = sizeof(*traits), .divisor = ops->divisor, .equality = ops->equality};
    if (ops->traits)
        ops->traits(driver->strategy, traits);
    const bool divides = traits->divisor == LS_DIVISOR_GLOBAL || traits->divisor == LS_DIVISOR_OWN;
    const bool equals =
        traits->equality == LS_EQUAL_EVERY_STEP || traits->equality == LS_EQUAL_AT_SYNCHRONISE;
    if (divides && equals)
        return LS_OK;
    ls_error("strategy", "strategy '%s' answers the unknown traits %u and %u",
             driver->options.strategy.plugin->name, traits->divisor, traits->equality);
    return LS_FAILED;
}

void ls_driver_note_silent(struct ls_driver *driver, int32_t status)
{
    int32_t none = LS_OK;
    atomic_compare_exchange_strong(&driver->silent, &none, status);
}

void ls_driver_fail(struct ls_driver *driver, enum ls_status status)
{
    int32_t none = LS_OK;
    atomic_compare_exchange_strong(&driver->failure, &none, (int32_t)status);
    ls_driver_abort(driver);
}

static enum ls_status open_strategy(struct ls_driver *driver)
{
    struct ls_strategy *strategy = NULL;
    const enum ls_status status = (enum ls_status)driver->ops->open(&driver->table, &strategy);
    if (status)
        return status;
    driver->strategy = strategy;
    const enum ls_status read = read_traits(driver);
    driver->late = !read && ls_driver_may_be_late(driver);
    driver->capturable = driver->late && !driver->ops->begin_step;
    for (uint32_t i = 0; driver->communicators && i < driver->count; i++)
        driver->capturable =
            driver->capturable && ls_communicator_capturable(driver->communicators[i]);
    return read;
}

enum ls_status ls_driver_open(const struct ls_driver_options *options, struct ls_driver **out)
{
    struct ls_driver *driver = calloc(1, sizeof(*driver));
    if (!driver)
        return LS_OUT_OF_MEMORY;
    driver->options = *options;
    driver->reasons = ls_inside_all_reasons();
    driver->ops = options->strategy.interface;
    driver->count = options->count;
    driver->bucket_count = options->replicas[0]->buckets.count;
    pthread_mutex_init(&driver->lock, NULL);
    enum ls_status status = check_needs(driver, options);
    if (!status)
        status = check_plans(options);
    if (!status)
        status = create_members(driver, options);
    if (!status)
        status = ls_meeting_init(&driver->meeting, ls_driver_name(driver), driver->count);
    if (!status && options->collective.plugin)
        status = open_communicators(driver, options);
    if (!status) {
        make_table(driver);
        status = open_strategy(driver);
    }
    if (status) {
        ls_driver_close(driver);
        return status;
    }
    *out = driver;
    return LS_OK;
}

static void close_members(struct ls_driver *driver)
{
    for (uint32_t i = 0; driver->members && i < driver->count; i++) {
        struct ls_driver_member *member = &driver->members[i];
        for (uint32_t bucket = 0; member->reduce && bucket < driver->bucket_count; bucket++)
            ls_collective_plan_destroy(member->reduce[bucket]);
        for (uint32_t root = 0; member->broadcast && root < driver->count; root++)
            ls_collective_plan_destroy(member->broadcast[root]);
        free(member->reduce);
        free(member->broadcast);
    }
    free(driver->members);
}

// All replicas have left their steps. What they had under way together ends, or is aborted.
static void end_communicators(struct ls_driver *driver)
{
    for (uint32_t i = 0; driver->communicators && i < driver->count; i++)
        if (driver->communicators[i])
            ls_communicator_end(driver->communicators[i]);
}

bool ls_driver_close(struct ls_driver *driver)
{
    if (!driver)
        return true;
    if (driver->strategy)
        driver->ops->close(driver->strategy);
    ls_driver_close_threads(driver);
    if (driver->hangs)
        return false; // the thread may use all of it
    ls_driver_close_stores(driver);
    ls_driver_close_endpoints(driver);
    ls_driver_close_facts(driver);
    // A collective may only be closed when no recording has operations of it.
    end_communicators(driver);
    for (uint32_t i = 0; driver->capturable && driver->communicators && i < driver->count; i++)
        ls_replica_forget_recordings(driver->members[i].replica);
    close_members(driver);
    if (driver->communicators)
        ls_communicators_close(driver->communicators, driver->count);
    free(driver->communicators);
    ls_meeting_finish(&driver->meeting);
    pthread_mutex_destroy(&driver->lock);
    free(driver);
    return true;
}

// ---- A step ----

static uint64_t update_ns(const struct ls_driver_member *member)
{
    return member->replica->times.update_ns + member->store_ns;
}

static const struct ls_trace_label place_slice = {.category = "strategy", .name = "place"};
static const struct ls_trace_label begin_slice = {.category = "strategy", .name = "begin_step"};
static const struct ls_trace_label end_slice = {.category = "strategy", .name = "end_step"};
static const struct ls_trace_label ready_slice = {
    .category = "strategy", .name = "gradient_ready", .value = "bucket"};
static const struct ls_trace_label rest_slice = {.category = "strategy", .name = "rest"};
static const struct ls_trace_label synchronise_slice = {.category = "strategy",
                                                        .name = "synchronise"};

// 'aborted' and 'not supported' are explained elsewhere: by the rank that failed, or by whoever cannot record the step.
// Whether one of them did is known when all have left the step.
static int32_t note_silent(struct ls_driver *driver, int32_t status)
{
    if (status == LS_UNSUPPORTED || (status == LS_ABORTED && !atomic_load(&driver->aborted)))
        ls_driver_note_silent(driver, status);
    return status;
}

// Runs a hook and notes the time that it took beside updates.
static int32_t run_hook(struct ls_driver *driver, uint32_t index,
                        const struct ls_trace_label *slice,
                        int32_t (*hook)(struct ls_strategy *strategy, uint32_t replica))
{
    struct ls_driver_member *member = &driver->members[index];
    if (!hook)
        return LS_OK;
    const uint64_t start = ls_clock_ns(), updates = update_ns(member);
    ls_trace_begin(slice, 0);
    const int32_t status = note_silent(driver, hook(driver->strategy, index));
    ls_trace_end();
    member->hook_ns += ls_clock_ns() - start - (update_ns(member) - updates);
    return status;
}

static enum ls_status bucket_ready(void *context, struct ls_replica *replica, uint32_t bucket)
{
    struct ls_driver *driver = context;
    struct ls_driver_member *member = &driver->members[replica->rank];
    const uint64_t start = ls_clock_ns(), updates = update_ns(member);
    ls_trace_begin(&ready_slice, bucket);
    const int32_t status =
        note_silent(driver, driver->ops->gradient_ready(driver->strategy, replica->rank, bucket));
    ls_trace_end();
    member->hook_ns += ls_clock_ns() - start - (update_ns(member) - updates);
    return (enum ls_status)status;
}

static enum ls_status progress(void *context, struct ls_replica *replica)
{
    struct ls_communicator *communicator =
        ((struct ls_driver *)context)->members[replica->rank].communicator;
    return communicator ? ls_communicator_progress(communicator) : LS_OK;
}

// What kernels read beside the parameters follows them.
static enum ls_status refresh(struct ls_driver_member *member)
{
    if (!member->touched)
        return LS_OK;
    member->touched = false;
    return ls_replica_refresh(member->replica);
}

static enum ls_status begin_step(struct ls_driver *driver, uint32_t index)
{
    const int32_t status = run_hook(driver, index, &begin_slice, driver->ops->begin_step);
    return status ? (enum ls_status)status : refresh(&driver->members[index]);
}

static enum ls_status end_step(void *context, struct ls_replica *replica)
{
    struct ls_driver *driver = context;
    const int32_t status = run_hook(driver, replica->rank, &end_slice, driver->ops->end_step);
    return status ? (enum ls_status)status : refresh(&driver->members[replica->rank]);
}

static void recording(void *context, struct ls_replica *replica, bool on)
{
    const struct ls_driver *driver = context;
    if (driver->communicators)
        ls_communicator_record(driver->communicators[replica->rank], on);
}

static enum ls_status replayed(void *context, struct ls_replica *replica)
{
    const struct ls_driver *driver = context;
    return driver->communicators ? ls_communicator_replayed(driver->communicators[replica->rank])
                                 : LS_OK;
}

static enum ls_status ready(void *context, struct ls_replica *replica, bool fresh)
{
    const struct ls_driver *driver = context;
    struct ls_communicator *communicator =
        driver->communicators ? driver->communicators[replica->rank] : NULL;
    if (!communicator)
        return LS_OK;
    return fresh ? ls_communicator_refresh(communicator) : ls_communicator_meet(communicator);
}

static enum ls_status run_step(struct ls_driver *driver, uint32_t index,
                               const struct ls_replica_batch *batch, bool stop)
{
    struct ls_driver_member *member = &driver->members[index];
    const struct ls_replica_hooks hooks = {
        .context = driver,
        .bucket_ready = bucket_ready,
        .progress = progress,
        .end = end_step,
        .capturable = driver->capturable,
        .recording = recording,
        .replayed = replayed,
        .ready = ready,
    };
    struct ls_replica_batch divided = *batch;
    if (driver->traits.divisor == LS_DIVISOR_OWN && batch->count)
        divided.global_count = batch->count;
    enum ls_status status = begin_step(driver, index);
    if (!status)
        status = ls_replica_run(member->replica, &divided, member->step, member->learning_rate,
                                stop ? 1.0f : 0.0f, &hooks);
    return status;
}

// What ended it, where the strategy's own thread did.
static enum ls_status cause_of(struct ls_driver *driver, enum ls_status status)
{
    const int32_t failure = atomic_load(&driver->failure);
    return status == LS_ABORTED && failure ? (enum ls_status)failure : status;
}

static void note_times(const struct ls_driver *driver, struct ls_driver_member *member,
                       struct ls_step_result *out)
{
    struct ls_communication_times communication = {0};
    if (member->communicator)
        ls_communicator_times(member->communicator, 1, &communication);
    else if (driver->count > 1 || member->bytes)
        communication.busy_ns = communication.exposed_ns = member->hook_ns;
    out->compute_ns = member->replica->times.compute_ns;
    out->update_ns = update_ns(member);
    out->communication_ns = communication.busy_ns;
    out->exposed_ns = communication.exposed_ns;
}

enum ls_status ls_driver_step(struct ls_driver *driver, uint32_t index,
                              const struct ls_replica_batch *batch, uint64_t step,
                              double learning_rate, bool stop, struct ls_step_result *out)
{
    struct ls_driver_member *member = &driver->members[index];
    if (atomic_load(&driver->aborted))
        return cause_of(driver, LS_ABORTED);
    member->replica->times = (struct ls_replica_times){0};
    member->hook_ns = member->store_ns = member->bytes = 0;
    member->step = step;
    member->learning_rate = learning_rate;
    if (batch->count < member->least_examples || !member->most_examples)
        member->least_examples = batch->count;
    if (batch->global_count > member->most_examples)
        member->most_examples = batch->global_count;
    member->not_finite = false;
    current = member;
    enum ls_status status = run_step(driver, index, batch, stop);
    current = NULL;
    if (!status)
        status = ls_driver_look_back(driver, member, out);
    if (status)
        return cause_of(driver, status);
    note_times(driver, member, out);
    member->all_bytes += member->bytes;
    member->all_steps++;
    return LS_OK;
}

static enum ls_status run_outside(struct ls_driver *driver, uint32_t index,
                                  const struct ls_trace_label *slice,
                                  int32_t (*hook)(struct ls_strategy *strategy, uint32_t replica))
{
    if (!hook)
        return LS_OK;
    ls_trace_begin(slice, 0);
    const int32_t status = note_silent(driver, hook(driver->strategy, index));
    ls_trace_end();
    return status ? cause_of(driver, (enum ls_status)status) : refresh(&driver->members[index]);
}

// Nothing is reduced by a collective that was not checked.
static enum ls_status try_collective(struct ls_driver *driver, uint32_t replica)
{
    const struct ls_driver_member *member = &driver->members[replica];
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && member->communicator && i < driver->bucket_count; i++)
        status = ls_collective_known_answer(member->reduce[i]);
    return status;
}

enum ls_status ls_driver_place(struct ls_driver *driver, uint32_t replica)
{
    const enum ls_status status = try_collective(driver, replica);
    return status ? status : run_outside(driver, replica, &place_slice, driver->ops->place);
}

enum ls_status ls_driver_synchronise(struct ls_driver *driver, uint32_t replica)
{
    return run_outside(driver, replica, &synchronise_slice, driver->ops->synchronise);
}

enum ls_status ls_driver_rest(struct ls_driver *driver, uint32_t replica)
{
    return run_outside(driver, replica, &rest_slice, driver->ops->rest);
}

// ---- Ends ----

// Where the host looked later, the replica has the parameters of that step, but the examples of another.
static void say_nothing_found(const struct ls_driver *driver, unsigned long long step,
                              unsigned long long looked)
{
    if (driver->late && looked != step)
        ls_error("train",
                 "step %llu: the loss is not finite; the parameters are, and with the examples of "
                 "step %llu all values are: check the data of step %llu, or try a smaller learning "
                 "rate",
                 step, looked, step);
    else
        ls_error("train",
                 "step %llu: the loss is not finite, though all values that it is made of are: the "
                 "sum overflows; try a smaller learning rate, or check the data",
                 step);
}

void ls_driver_explain(struct ls_driver *driver)
{
    const int32_t silent = atomic_load(&driver->silent);
    if (silent && driver->reasons == ls_inside_all_reasons())
        ls_error(ls_driver_name(driver),
                 "a call of strategy %s answered '%s', and no reason was given",
                 ls_driver_name(driver), ls_status_text((enum ls_status)silent));
    if (!atomic_exchange(&driver->not_finite, false))
        return;
    // One replica may be steps ahead of another that has left: nothing on its device ends before that is aborted.
    end_communicators(driver);
    const unsigned long long step = atomic_load(&driver->not_finite_step);
    char text[128] = "", whose[32] = "";
    uint32_t i = 0;
    for (; i < driver->count && !text[0]; i++)
        if (ls_replica_find_not_finite(driver->members[i].replica, text, sizeof(text)))
            text[0] = '\0';
    if (!text[0]) {
        say_nothing_found(driver, step, driver->members[0].step);
        return;
    }
    if (driver->count > 1)
        snprintf(whose, sizeof(whose), " of replica %u", i - 1);
    ls_error("train",
             "step %llu: the loss is not finite; the first value that is not finite is in '%s'%s; "
             "try a smaller learning rate, or check the data",
             step, text, whose);
}

void ls_driver_abort(struct ls_driver *driver)
{
    atomic_store(&driver->aborted, true);
    ls_meeting_abort(&driver->meeting);
    ls_driver_abort_endpoints(driver);
    for (uint32_t i = 0; driver->communicators && i < driver->count; i++)
        if (driver->communicators[i])
            ls_communicator_abort(driver->communicators[i]);
}

bool ls_driver_aborted(const struct ls_driver *driver)
{
    return atomic_load(&driver->aborted);
}

static uint32_t count_left(const struct ls_driver *driver)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < driver->count; i++)
        count += !atomic_load(&driver->members[i].lost);
    return count;
}

bool ls_driver_survives(const struct ls_driver *driver)
{
    return driver->traits.survives && driver->ops->lost && driver->count > 1 &&
           ls_driver_asynchronous(driver);
}

bool ls_driver_survive(struct ls_driver *driver, uint32_t index, enum ls_status status)
{
    struct ls_driver_member *member = &driver->members[index];
    if (!ls_driver_survives(driver) || status == LS_ABORTED || status == LS_INTERRUPTED ||
        status == LS_PEER_LOST || member->not_finite || atomic_load(&driver->aborted))
        return false;
    pthread_mutex_lock(&driver->lock);
    const bool last = count_left(driver) == 1;
    if (!last)
        atomic_store(&member->lost, true);
    pthread_mutex_unlock(&driver->lock);
    if (last)
        return false;
    ls_meeting_leave(&driver->meeting, index);
    return driver->ops->lost(driver->strategy, index) == LS_OK;
}

bool ls_driver_is_lost(const struct ls_driver *driver, uint32_t replica)
{
    return atomic_load(&driver->members[replica].lost);
}

bool ls_driver_asynchronous(const struct ls_driver *driver)
{
    return driver->traits.divisor == LS_DIVISOR_OWN;
}

const char *ls_driver_schedule_check(const struct ls_driver *driver, double *seconds)
{
    const struct ls_communicator *first = driver->communicators ? driver->communicators[0] : NULL;
    if (seconds)
        *seconds = first ? (double)ls_communicator_check_ns(first) * 1e-9 : 0;
    return ls_schedule_check_text(first ? ls_communicator_check(first) : LS_CHECK_NONE);
}

uint64_t ls_driver_bytes_per_step(const struct ls_driver *driver)
{
    const struct ls_driver_member *first = &driver->members[0];
    uint64_t bytes = 0;
    for (uint32_t i = 0; driver->communicators && i < driver->bucket_count; i++)
        bytes += ls_collective_plan_bytes(first->reduce[i]);
    return bytes + (first->all_steps ? first->all_bytes / first->all_steps : 0);
}
