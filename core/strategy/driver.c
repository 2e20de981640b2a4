// SPDX-License-Identifier: Apache-2.0
// The hooks of a strategy around a replica's step. The host table behind them is in host.c, stores.c, threads.c,
// endpoints.c, metrics.c.
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

// ---- A step ----

// The local index of a replica, which hooks are given.
static uint32_t index_of(const struct ls_driver *driver, const struct ls_replica *replica)
{
    return ls_replica_rank(replica) - driver->first_rank;
}

static uint64_t update_ns(const struct ls_driver_member *member)
{
    return ls_replica_times(member->replica).update_ns + member->own_update_ns;
}

static const struct ls_trace_label initialize_span = {.category = "strategy",
                                                      .name = "initialize_parameters"};
static const struct ls_trace_label begin_span = {.category = "strategy", .name = "begin_step"};
static const struct ls_trace_label end_span = {.category = "strategy", .name = "end_step"};
static const struct ls_trace_label ready_span = {
    .category = "strategy", .name = "gradient_ready", .value = "bucket"};
static const struct ls_trace_label rest_span = {.category = "strategy", .name = "rest"};
static const struct ls_trace_label synchronise_span = {.category = "strategy",
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
    struct ls_driver_member *member = &driver->members[index_of(driver, replica)];
    const uint64_t start = ls_clock_ns(), updates = update_ns(member);
    ls_trace_begin(&ready_span, bucket);
    const int32_t status = note_silent(
        driver, driver->ops->gradient_ready(driver->strategy, index_of(driver, replica), bucket));
    ls_trace_end();
    member->hook_ns += ls_clock_ns() - start - (update_ns(member) - updates);
    return (enum ls_status)status;
}

static const struct ls_trace_label needed_span = {
    .category = "strategy", .name = "parameters_needed", .value = "bucket"};

static enum ls_status refresh(struct ls_driver_member *member);

static enum ls_status bucket_needed(void *context, struct ls_replica *replica, uint32_t bucket)
{
    struct ls_driver *driver = context;
    const uint32_t index = index_of(driver, replica);
    struct ls_driver_member *member = &driver->members[index];
    const uint64_t start = ls_clock_ns();
    ls_trace_begin(&needed_span, bucket);
    const int32_t status =
        note_silent(driver, driver->ops->parameters_needed(driver->strategy, index, bucket));
    ls_trace_end();
    member->hook_ns += ls_clock_ns() - start;
    return status ? (enum ls_status)status : refresh(member);
}

static enum ls_status progress(void *context, struct ls_replica *replica)
{
    const struct ls_driver *driver = context;
    struct ls_communicator *communicator = driver->members[index_of(driver, replica)].communicator;
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
    const int32_t status = run_hook(driver, index, &begin_span, driver->ops->begin_step);
    return status ? (enum ls_status)status : refresh(&driver->members[index]);
}

static enum ls_status end_step(void *context, struct ls_replica *replica)
{
    struct ls_driver *driver = context;
    struct ls_driver_member *member = &driver->members[index_of(driver, replica)];
    member->late_count = 0;
    enum ls_status status = (enum ls_status)run_hook(driver, index_of(driver, replica), &end_span,
                                                     driver->ops->end_step);
    for (uint32_t i = 0; !status && i < member->late_count; i++)
        status = ls_replica_update(replica, member->late[i]);
    return status ? status : refresh(member);
}

static void recording(void *context, struct ls_replica *replica, bool on)
{
    const struct ls_driver *driver = context;
    if (driver->communicators)
        ls_communicator_record(driver->communicators[index_of(driver, replica)], on);
}

static enum ls_status replayed(void *context, struct ls_replica *replica)
{
    const struct ls_driver *driver = context;
    return driver->communicators
               ? ls_communicator_replayed(driver->communicators[index_of(driver, replica)])
               : LS_OK;
}

static enum ls_status ready(void *context, struct ls_replica *replica, bool fresh)
{
    const struct ls_driver *driver = context;
    struct ls_communicator *communicator =
        driver->communicators ? driver->communicators[index_of(driver, replica)] : NULL;
    if (!communicator)
        return LS_OK;
    return fresh ? ls_communicator_refresh(communicator) : ls_communicator_barrier(communicator);
}

static struct ls_replica_hooks hooks_of(struct ls_driver *driver)
{
    return (struct ls_replica_hooks){
        .context = driver,
        .bucket_ready = bucket_ready,
        .progress = progress,
        .parameters_needed = driver->ops->parameters_needed ? bucket_needed : NULL,
        .add_up = driver->total_communicators ? ls_driver_add_up : NULL,
        .end = end_step,
        .capturable = driver->capturable,
        .recording = recording,
        .replayed = replayed,
        .ready = ready,
    };
}

static struct ls_replica_batch divide(const struct ls_driver *driver,
                                      const struct ls_replica_batch *batch)
{
    struct ls_replica_batch divided = *batch;
    if (driver->traits.divisor == LS_DIVISOR_OWN)
        divided.global_count = batch->count;
    return divided;
}

static enum ls_status run_step(struct ls_driver *driver, uint32_t index,
                               const struct ls_replica_batch *batch, bool stop)
{
    struct ls_driver_member *member = &driver->members[index];
    const struct ls_replica_hooks hooks = hooks_of(driver);
    const struct ls_replica_batch divided = divide(driver, batch);
    enum ls_status status = begin_step(driver, index);
    if (!status)
        status = ls_replica_run(member->replica, &divided, member->step, member->learning_rate,
                                stop ? 1.0f : 0.0f, &hooks);
    return status;
}

// Where a strategy updates stores, replicas decide what these have done. The gradients of a step in
// which too many were skipped are as any other's: it ends the run as a loss that is not finite does.
static enum ls_status settle(struct ls_driver *driver, struct ls_driver_member *member,
                             struct ls_step_result *out)
{
    if (!ls_optimizer_scales(&driver->optimizer))
        return LS_OK;
    if (driver->stores)
        ls_replica_decide(member->replica,
                          ls_measures_finite(driver->measures, driver->measure_count));
    const struct ls_loss_scale_state *scale = ls_replica_scale(member->replica);
    out->skipped = scale->skipped_in_row > 0;
    if (scale->skipped_in_row < LS_MOST_SKIPS)
        return LS_OK;
    ls_inside_note_reason();
    member->not_finite = true;
    atomic_store(&driver->skipped_too_many, true);
    if (!atomic_exchange(&driver->not_finite, true))
        atomic_store(&driver->not_finite_step, member->step);
    return LS_FAILED;
}

void ls_driver_end_at_nan(struct ls_driver *driver, bool ends)
{
    driver->ends_at_nan = ends;
}

uint64_t ls_driver_next_update(const struct ls_driver *driver, uint32_t index, uint64_t step)
{
    return ls_optimizer_scales(&driver->optimizer)
               ? ls_replica_scale(driver->members[index].replica)->updates + 1
               : step;
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
    else if (driver->world > 1 || member->bytes)
        communication.busy_ns = communication.exposed_ns = member->hook_ns;
    if (member->total_communicator) {
        struct ls_communication_times totals;
        ls_communicator_times(member->total_communicator, 1, &totals);
        communication.busy_ns += totals.busy_ns;
        communication.exposed_ns += totals.exposed_ns;
    }
    out->compute_ns =
        ls_replica_times(member->replica).compute_ns - member->times_before.compute_ns;
    out->update_ns = update_ns(member) - member->times_before.update_ns;
    out->communication_ns = communication.busy_ns;
    out->exposed_ns = communication.exposed_ns;
}

static void begin_member(struct ls_driver_member *member, const struct ls_replica_batch *batch,
                         uint64_t step, double learning_rate)
{
    member->times_before = ls_replica_times(member->replica);
    member->hook_ns = member->own_update_ns = member->bytes = 0;
    member->step = step;
    member->learning_rate = learning_rate;
    if (batch->count < member->least_examples || !member->most_examples)
        member->least_examples = batch->count;
    if (batch->global_count > member->most_examples)
        member->most_examples = batch->global_count;
    member->not_finite = false;
}

// Whatever is left of a step when its updates are made.
static enum ls_status finish_member(struct ls_driver *driver, struct ls_driver_member *member,
                                    enum ls_status status, struct ls_step_result *out)
{
    if (!status)
        status = settle(driver, member, out);
    if (!status)
        status = ls_driver_look_back(driver, member, out);
    if (status)
        return cause_of(driver, status);
    note_times(driver, member, out);
    member->all_bytes += member->bytes;
    member->all_steps++;
    return LS_OK;
}

enum ls_status ls_driver_step(struct ls_driver *driver, uint32_t index,
                              const struct ls_replica_batch *batch, uint64_t step,
                              double learning_rate, bool stop, struct ls_step_result *out)
{
    struct ls_driver_member *member = &driver->members[index];
    if (atomic_load(&driver->aborted))
        return cause_of(driver, LS_ABORTED);
    begin_member(member, batch, step, learning_rate);
    current = member;
    const enum ls_status status = run_step(driver, index, batch, stop);
    current = NULL;
    return finish_member(driver, member, status, out);
}

// ---- A step in parts ----

enum ls_status ls_driver_forward(struct ls_driver *driver, uint32_t index,
                                 const struct ls_replica_batch *batch, uint64_t step,
                                 double learning_rate)
{
    struct ls_driver_member *member = &driver->members[index];
    const struct ls_replica_batch divided = divide(driver, batch);
    if (atomic_load(&driver->aborted))
        return cause_of(driver, LS_ABORTED);
    begin_member(member, batch, step, learning_rate);
    member->hooks = hooks_of(driver);
    member->hooks.end = NULL;
    member->hooks.capturable = false;
    current = member;
    enum ls_status status = begin_step(driver, index);
    if (!status)
        status = ls_replica_forward(member->replica, &divided, step, learning_rate, &member->hooks);
    current = NULL;
    return status ? cause_of(driver, status) : LS_OK;
}

enum ls_status ls_driver_backward(struct ls_driver *driver, uint32_t index)
{
    struct ls_driver_member *member = &driver->members[index];
    current = member;
    const enum ls_status status = ls_replica_backward(member->replica);
    current = NULL;
    return status ? cause_of(driver, status) : LS_OK;
}

enum ls_status ls_driver_apply(struct ls_driver *driver, uint32_t index, struct ls_step_result *out)
{
    struct ls_driver_member *member = &driver->members[index];
    current = member;
    const enum ls_status status = end_step(driver, member->replica);
    current = NULL;
    return finish_member(driver, member, status, out);
}

static enum ls_status run_outside(struct ls_driver *driver, uint32_t index,
                                  const struct ls_trace_label *slice,
                                  int32_t (*hook)(struct ls_strategy *strategy, uint32_t replica))
{
    // An interrupted one has left its step, and has what it had then.
    if (!hook || atomic_load(&driver->failure) == LS_INTERRUPTED)
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
    for (uint32_t i = 0; !status && member->communicator && i < driver->bucket_count; i++) {
        if (member->whole[i])
            status = ls_collective_known_answer(member->whole[i]);
        if (!status && member->reduce[i])
            status = ls_collective_known_answer(member->reduce[i]);
    }
    if (!status && member->counts)
        status = ls_collective_known_answer(member->counts);
    return status ? status : ls_driver_try_totals(driver, replica);
}

enum ls_status ls_driver_initialize_parameters(struct ls_driver *driver, uint32_t replica)
{
    const enum ls_status status = try_collective(driver, replica);
    return status
               ? status
               : run_outside(driver, replica, &initialize_span, driver->ops->initialize_parameters);
}

enum ls_status ls_driver_synchronise(struct ls_driver *driver, uint32_t replica)
{
    return run_outside(driver, replica, &synchronise_span, driver->ops->synchronise);
}

enum ls_status ls_driver_rest(struct ls_driver *driver, uint32_t replica)
{
    return run_outside(driver, replica, &rest_span, driver->ops->rest);
}

// ---- Ends ----

// Where the host looked later, the replica has the parameters of that step, but the examples of another.
static void say_nothing_found(const struct ls_driver *driver, unsigned long long step,
                              unsigned long long looked)
{
    if (driver->defers && looked != step)
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

// Where the loss is finite, all values of the step that lead to it may be.
static void say_skipped(const struct ls_driver *driver, unsigned long long step, const char *text,
                        const char *whose)
{
    const struct ls_replica *replica = driver->members[0].replica;
    ls_error("train",
             "step %llu: %d steps in a row were skipped, as their gradients were not finite, the "
             "last with loss scale %g%s%s%s%s; try a smaller learning rate, or check the data",
             step, LS_MOST_SKIPS, (double)ls_replica_scale_before(replica)->scale,
             text[0] ? "; the first value that is not finite is in '" : "", text,
             text[0] ? "'" : "", whose);
}

uint64_t ls_driver_explain(struct ls_driver *driver)
{
    const int32_t silent = atomic_load(&driver->silent);
    const bool elsewhere = silent == LS_ABORTED && driver->count < driver->world; // its reason is
    if (silent && !elsewhere && driver->reasons == ls_inside_all_reasons())
        ls_error(ls_driver_name(driver),
                 "a call of strategy %s answered '%s', and no reason was given",
                 ls_driver_name(driver), ls_status_text((enum ls_status)silent));
    if (!atomic_exchange(&driver->not_finite, false))
        return 0;
    ls_driver_wait_for_threads(driver);
    // One replica may be steps ahead of another that has left: nothing on its device ends before that is aborted.
    ls_driver_end_communicators(driver);
    const unsigned long long step = atomic_load(&driver->not_finite_step);
    char text[128] = "", whose[32] = "";
    uint32_t i = 0;
    for (; i < driver->count && !text[0]; i++)
        if (ls_replica_find_not_finite(driver->members[i].replica, text, sizeof(text)))
            text[0] = '\0';
    if (!text[0] && !atomic_load(&driver->skipped_too_many)) {
        say_nothing_found(driver, step, driver->members[0].step);
        return step;
    }
    if (driver->world > 1 && text[0])
        snprintf(whose, sizeof(whose), " of replica %u", driver->first_rank + i - 1);
    if (atomic_load(&driver->skipped_too_many))
        say_skipped(driver, step, text, whose);
    else
        ls_error("train",
                 "step %llu: the loss is not finite; the first value that is not finite is in "
                 "'%s'%s; try a smaller learning rate, or check the data",
                 step, text, whose);
    return step;
}

void ls_driver_abort(struct ls_driver *driver)
{
    atomic_store(&driver->aborted, true);
    ls_barrier_abort(&driver->barrier);
    ls_driver_abort_endpoints(driver);
    for (uint32_t i = 0; driver->communicators && i < driver->count; i++)
        if (driver->communicators[i])
            ls_communicator_abort(driver->communicators[i]);
    for (uint32_t i = 0; driver->total_communicators && i < driver->count; i++)
        if (driver->total_communicators[i])
            ls_communicator_abort(driver->total_communicators[i]);
}

bool ls_driver_aborted(const struct ls_driver *driver)
{
    return atomic_load(&driver->aborted);
}

bool ls_driver_lost(const struct ls_driver *driver, uint32_t *rank)
{
    return (driver->communicators && ls_communicator_lost(driver->communicators[0], rank)) ||
           (driver->total_communicators &&
            ls_communicator_lost(driver->total_communicators[0], rank));
}

bool ls_driver_not_finite(const struct ls_driver *driver)
{
    return atomic_load(&driver->not_finite);
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
    ls_barrier_leave(&driver->barrier, index);
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

bool ls_driver_adds_counts(const struct ls_driver *driver)
{
    return driver->members[0].counts != NULL;
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
    for (uint32_t i = 0; driver->communicators && i < driver->bucket_count; i++) {
        if (first->whole[i])
            bytes += ls_collective_plan_bytes(first->whole[i]);
        if (first->reduce[i]) // else the driver could not be attached
            bytes += ls_collective_plan_bytes(first->reduce[i]);
    }
    if (first->counts)
        bytes += ls_collective_plan_bytes(first->counts);
    return bytes + (first->all_steps ? first->all_bytes / first->all_steps : 0);
}

struct ls_driver_totals ls_driver_totals(const struct ls_driver *driver)
{
    return (struct ls_driver_totals){.collective = driver->total_collective,
                                     .transport = driver->total_transport,
                                     .count = driver->plan->total_count,
                                     .bytes = ls_driver_total_bytes(driver)};
}
