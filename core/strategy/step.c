// SPDX-License-Identifier: Apache-2.0
// One training step of one replica, from its batch to the sums that the caller gets:
//
//   ls_driver_step
//     begin                    hook begin_step
//     for each block           its input is brought to the device
//       forward                kernels up to the first backward one
//       backward               bucket by bucket:
//         run_section          kernels up to the end of the bucket; communication moves on between
//         gradient_ready       hook: the strategy begins to reduce the bucket
//     add_shards               with --reproducible: all sums in integers, before the hooks
//     apply                    hook end_step: the strategy waits for sums and makes the updates
//     finish                   loss scale, times, and the sums of this step or of an earlier one
//
// A custom loop makes the same calls one by one: ls_driver_forward, _backward, _apply. What a
// device can record is recorded as a whole, or section by section: capture(). [replica thread]
#include "core/replica/deferred_results.h"
#include "core/strategy/internal.h"

#include "core/base/caller.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/trace.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

// ---- Hooks of the strategy ----

static const struct ls_trace_label begin_span = {.category = "strategy", .name = "begin_step"};
static const struct ls_trace_label needed_span = {
    .category = "strategy", .name = "parameters_needed", .value = "bucket"};
static const struct ls_trace_label ready_span = {
    .category = "strategy", .name = "gradient_ready", .value = "bucket"};
static const struct ls_trace_label ahead_span = {
    .category = "strategy", .name = "parameters_ahead", .value = "bucket"};
static const struct ls_trace_label finish_span = {
    .category = "strategy", .name = "gradient_finish", .value = "bucket"};
static const struct ls_trace_label end_span = {.category = "strategy", .name = "end_step"};

static uint64_t update_ns(const struct ls_driver_member *member)
{
    return ls_replica_update_ns(member->replica) + member->own_update_ns;
}

// Updates that a hook makes do not count as its time.
static uint64_t clock_without_updates(const struct ls_driver_member *member)
{
    return ls_clock_ns() - update_ns(member);
}

static uint64_t enter_hook(const struct ls_driver_member *member,
                           const struct ls_trace_label *label, uint64_t value)
{
    const uint64_t start = clock_without_updates(member);
    ls_trace_begin(label, value);
    return start;
}

// LS_ABORTED and LS_UNSUPPORTED are explained elsewhere: by the rank that failed, or by whatever
// cannot record the step. Whether one of them did is known when all replicas have left the step.
static enum ls_status leave_hook(struct ls_driver_member *member, uint64_t start, int32_t status)
{
    ls_trace_end();
    member->hook_ns += clock_without_updates(member) - start;
    if (status == LS_UNSUPPORTED ||
        (status == LS_ABORTED && !atomic_load(&member->driver->aborted)))
        ls_driver_note_silent(member->driver, status);
    return (enum ls_status)status;
}

static enum ls_status run_bucket_hook(struct ls_driver_member *member,
                                      const struct ls_trace_label *label, uint32_t bucket,
                                      int32_t (*hook)(struct ls_strategy *strategy,
                                                      uint32_t replica, uint32_t bucket))
{
    if (!hook)
        return LS_OK;
    const uint64_t start = enter_hook(member, label, bucket);
    return leave_hook(member, start, hook(member->driver->strategy, member->index, bucket));
}

// What kernels read beside the parameters follows them.
static enum ls_status refresh(struct ls_driver_member *member)
{
    if (!member->touched)
        return LS_OK;
    member->touched = false;
    return ls_replica_refresh(member->replica);
}

// ---- Slots of gradients, where the replica holds parts ----

static bool has_slots(const struct ls_driver_member *member)
{
    return ls_replica_slot(member->replica, LS_HELD_GRADIENTS, 0) != LS_NO_SLOT;
}

static void empty_slots(struct ls_driver_member *member)
{
    for (uint32_t i = 0; i < member->driver->bucket_count; i++)
        member->in_slot[i] = member->driver->bucket_count;
}

// The gradients of the bucket are about to be written: its slot becomes free.
static enum ls_status take_slot(struct ls_driver_member *member, uint32_t bucket)
{
    struct ls_driver *driver = member->driver;
    uint32_t *in = &member->in_slot[ls_replica_slot(member->replica, LS_HELD_GRADIENTS, bucket)];
    const uint32_t before = *in;
    enum ls_status status = LS_OK;
    *in = bucket;
    if (before == bucket)
        return LS_OK;
    if (before < driver->bucket_count && member->pass.last && !ls_driver_has_taken(member, before))
        status = run_bucket_hook(member, &finish_span, before, driver->ops->gradient_finish);
    return status ? status : ls_replica_begin_bucket(member->replica, bucket);
}

// For the buckets that step `at` of the program is the first to write.
static enum ls_status take_slots(struct ls_driver_member *member, uint32_t at)
{
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && has_slots(member) && i < member->driver->bucket_count; i++)
        if (member->pass.writes[i] == at)
            status = take_slot(member, i);
    return status;
}

// ---- Slots of parameters ----

static void begin_walk(struct ls_driver_member *member, bool reduces)
{
    member->walk_started = member->walk_there = 0;
    member->walk_ready = reduces ? 0 : member->driver->bucket_count;
}

// Buckets that step `at` of the program reads are there, and those behind them are on their way as
// soon as there is a slot. An empty block reads nothing, and begins the same in the same order.
static enum ls_status walk(struct ls_driver_member *member, uint32_t at)
{
    const struct ls_strategy_interface *ops = member->driver->ops;
    const struct ls_pass *pass = &member->pass;
    enum ls_status status = LS_OK;
    for (const struct ls_walk *way = pass->walk; !status && way;) {
        const uint32_t there = member->walk_there, started = member->walk_started;
        if (there < way->count && way->list[there].ready <= member->walk_ready &&
            (!pass->program || pass->walk_needs[there] <= at)) {
            member->walk_there++;
            if (started == there)
                member->walk_started++;
            status = run_bucket_hook(member, &needed_span, way->list[there].bucket,
                                     ops->parameters_needed);
        } else if (started < way->count && way->list[started].ready <= member->walk_ready &&
                   pass->program && pass->walk_starts[started] <= at) {
            member->walk_started++;
            status = run_bucket_hook(member, &ahead_span, way->list[started].bucket,
                                     ops->parameters_ahead);
        } else {
            break;
        }
    }
    return status;
}

// What step `at` reads is there, or the step may not run.
static enum ls_status reach(struct ls_driver_member *member, uint32_t at)
{
    const struct ls_pass *pass = &member->pass;
    const enum ls_status status = walk(member, at);
    if (status || !pass->program || member->walk_there == pass->walk->count ||
        pass->walk_needs[member->walk_there] > at)
        return status;
    ls_error(ls_driver_name(member->driver),
             "bucket %u is read before the gradients of %u buckets are ready: an error of the core",
             pass->walk->list[member->walk_there].bucket,
             pass->walk->list[member->walk_there].ready);
    return LS_FAILED;
}

// ---- Kernels ----

// The hook for the buckets of which step `at` of the program is the first to read parameters; a
// forward pass reads the last bucket first. An empty block reads nothing, but every replica makes
// the same calls in every step. It does not know where totals stand between them, so with totals all
// buckets come before the first.
static enum ls_status need_parameters(struct ls_driver_member *member, uint32_t at)
{
    struct ls_driver *driver = member->driver;
    const struct ls_pass *pass = &member->pass;
    enum ls_status status = LS_OK;
    if (pass->walk)
        return reach(member, at);
    if (!driver->ops->parameters_needed || !pass->first ||
        ls_replica_normalized_kernel(member->replica))
        return LS_OK;
    for (uint32_t bucket = driver->bucket_count; !status && bucket-- > 0;) {
        if (pass->program && (driver->plan->total_count ? 0 : pass->needs[bucket]) != at)
            continue;
        const uint64_t start = enter_hook(member, &needed_span, bucket);
        status = leave_hook(
            member, start, driver->ops->parameters_needed(driver->strategy, member->index, bucket));
        if (!status)
            status = refresh(member);
    }
    return status;
}

// The next total of the pass.
static enum ls_status add_up(struct ls_driver_member *member)
{
    return ls_driver_add_total(member, member->total++);
}

// An empty block takes part in the totals with zeros: in those that others make before they
// complete bucket `bucket`, or in their forward pass. Libraries want one order of totals and
// buckets on all replicas.
static enum ls_status add_up_zeros(struct ls_driver_member *member, bool forward, uint32_t bucket)
{
    const struct ls_driver *driver = member->driver;
    const struct ls_parameter_plan *plan = driver->plan;
    uint32_t end = UINT32_MAX; // of the bucket, in places
    enum ls_status status = LS_OK;
    if (bucket < driver->bucket_count)
        end = driver->buckets->list[bucket].first_place + driver->buckets->list[bucket].place_count;
    while (!status && member->totals && member->total < plan->total_count) {
        const struct ls_total *next = &plan->totals[member->total];
        if (forward ? next->backward : next->place >= end)
            break;
        status = add_up(member);
    }
    return status;
}

// Whether something may be under way while kernels run: gradients, or parameters that forward waits
// for when it needs them; or slots have to be free before they are written.
static bool stops_between(const struct ls_driver_member *member)
{
    return member->under_way || member->driver->ops->parameters_needed || has_slots(member);
}

// Where the program stops next, on its way from step `at` to the end of the section: kernel by
// kernel where something is to be done in between, and after a step that makes a total.
static uint32_t next_stop(const struct ls_driver_member *member, uint32_t at)
{
    const struct ls_driver *driver = member->driver;
    const uint32_t end = stops_between(member) ? at + 1 : member->to;
    if (!member->totals || member->total == driver->plan->total_count)
        return end;
    const uint32_t total = member->pass.program->totals[member->total] + 1;
    return total < end ? total : end;
}

// Steps member->from to member->to of the program, which complete bucket member->bucket, if there
// is one. Communication that is under way moves on between kernels.
static enum ls_status run_section(void *context)
{
    struct ls_driver_member *member = context;
    const struct ls_driver *driver = member->driver;
    const struct ls_pass *pass = &member->pass;
    const bool moves = stops_between(member);
    enum ls_status status = LS_OK;
    for (uint32_t at = member->from, next; !status && at < member->to; at = next) {
        next = next_stop(member, at);
        status = need_parameters(member, at);
        if (!status)
            status = take_slots(member, at);
        if (status)
            break;
        const uint64_t start = ls_clock_ns();
        status = ls_program_run(pass->program, at, next, pass->timed);
        member->compute_ns += ls_clock_ns() - start;
        if (!status && member->totals && member->total < driver->plan->total_count &&
            pass->program->totals[member->total] + 1 == next)
            status = add_up(member);
        if (!status && moves && member->communicator && !member->recording)
            status = ls_communicator_progress(member->communicator);
    }
    status = ls_program_join(pass->program, status);
    if (status || member->bucket == driver->bucket_count)
        return status;
    const uint64_t start = ls_clock_ns();
    status = ls_replica_end_bucket(member->replica, pass, member->bucket);
    member->compute_ns += ls_clock_ns() - start;
    return status;
}

// ---- Recordings ----

// Runs a part of the step that puts the same work on the device's stream in every step: a section,
// or all of a pass. The first time it runs as it is, then it is recorded for each set of input
// (core/replica/capture.h), and from then on it is replayed. A whole step has the strategy's
// collectives in it: all replicas take the same turn in the same step, and the communicator is told
// what becomes of its starts.
static enum ls_status capture(struct ls_driver_member *member, struct ls_capture *what,
                              enum ls_status (*run)(void *member))
{
    struct ls_replica *replica = member->replica;
    struct ls_communicator *communicator =
        member->driver->capturable && member->pass.last ? member->communicator : NULL;
    const bool due = ls_capture_is_due(replica, what);
    bool on = false;
    enum ls_status status = LS_OK;
    // Collectives that run for the first time wait for all ranks; nothing else may be under way.
    if (communicator && what->runs == 0)
        status = ls_communicator_refresh(communicator);
    if (due && !status)
        status = ls_capture_begin(replica, &on);
    if (on) {
        if (communicator)
            ls_communicator_record(communicator, true);
        member->recording = true;
        status = run(member);
        member->recording = false;
        if (communicator)
            ls_communicator_record(communicator, false);
        status = ls_capture_end(replica, what, status);
    }
    // A device takes memory for a recording and waits then, so no other rank may run its own yet.
    if (due && communicator && !status)
        status = ls_communicator_barrier(communicator);
    if (status)
        return status;
    if (!ls_capture_is_ready(replica, what)) {
        what->runs++;
        return run(member);
    }
    const uint64_t start = ls_clock_ns();
    status = ls_capture_replay(replica, what);
    member->compute_ns += ls_clock_ns() - start;
    return status || !communicator ? status : ls_communicator_replayed(communicator);
}

// Whether sections may be recorded: nothing but the device acts within them.
static bool records_sections(const struct ls_driver_member *member)
{
    return member->pass.captures && !member->driver->ops->parameters_needed && !member->totals &&
           !has_slots(member) && !member->driver->options.shards &&
           ls_replica_may_record(member->replica);
}

// Whether the passes over this block are recorded as one: with the hooks, or a block without hooks.
static bool records_whole(const struct ls_driver_member *member)
{
    return member->driver->capturable ? member->pass.captures != NULL
                                      : !member->pass.last && records_sections(member);
}

// ---- Waits for the device, which ask the communicators meanwhile ----

static const struct ls_trace_label wait_span = {
    .category = "device", .name = "wait for the device", .value = "step"};

struct waiting {
    struct ls_driver_member *member;
    uint64_t start;
    bool polled; // what it waits for was not there at once
    bool explained; // by the communicator
};

static enum ls_status poll(void *context)
{
    struct waiting *waiting = context;
    waiting->polled = true;
    if (atomic_load(&waiting->member->driver->aborted))
        return LS_ABORTED;
    const uint64_t waited_ns = ls_clock_ns() - waiting->start;
    struct ls_communicator *communicator = waiting->member->communicator;
    struct ls_communicator *totals = waiting->member->total_communicator;
    enum ls_status status = totals ? ls_communicator_poll(totals, waited_ns) : LS_OK;
    if (!status && communicator)
        status = ls_communicator_progress(communicator);
    if (!status && communicator)
        status = ls_communicator_poll(communicator, waited_ns);
    waiting->explained = status != LS_OK;
    return status;
}

static struct waiting waiting_of(struct ls_driver_member *member)
{
    return (struct waiting){.member = member, .start = ls_clock_ns()};
}

static struct ls_wait wait_as(struct waiting *waiting)
{
    return (struct ls_wait){.deadline_ns = waiting->member->driver->options.deadline_ns,
                            .poll = poll,
                            .context = waiting};
}

// What was waited for is of `step`.
static void explain(const struct waiting *waiting, enum ls_status status, uint64_t step)
{
    const uint64_t deadline_ns = waiting->member->driver->options.deadline_ns;
    if (status == LS_PEER_LOST && waiting->polled && !waiting->explained)
        ls_error("train",
                 "replica %u: the device is not done with step %" PRIu64
                 " after %.1f s; it hangs, or --deadline is too short for it",
                 ls_replica_rank(waiting->member->replica), step, (double)deadline_ns * 1e-9);
    if (waiting->polled)
        ls_trace_span(&wait_span, waiting->start, ls_clock_ns(), step);
}

// ---- The parts of a step ----

// Kernels that a step normalizes are read before its passes, so that all buckets are needed now.
static enum ls_status normalize_kernels(struct ls_driver_member *member)
{
    const struct ls_driver *driver = member->driver;
    enum ls_status status = LS_OK;
    for (uint32_t bucket = driver->ops->parameters_needed ? driver->bucket_count : 0;
         !status && bucket-- > 0;) {
        const uint64_t start = enter_hook(member, &needed_span, bucket);
        status = leave_hook(
            member, start, driver->ops->parameters_needed(driver->strategy, member->index, bucket));
    }
    if (!status)
        status = ls_replica_normalize_kernels(member->replica);
    member->touched = true;
    return status;
}

// What replicas record may have to be the same.
static enum ls_step_recording recording_of(const struct ls_driver *driver,
                                           const struct ls_replica_batch *batch)
{
    if (!driver->capturable)
        return LS_RECORD_PARTS;
    return driver->records_alike && !batch->even ? LS_RECORD_NOTHING : LS_RECORD_WHOLE;
}

static enum ls_status begin(struct ls_driver_member *member, const struct ls_replica_batch *batch,
                            uint64_t step, double learning_rate, enum ls_step_recording recording)
{
    struct ls_driver *driver = member->driver;
    enum ls_status status = LS_OK;
    if (atomic_load(&driver->aborted))
        return LS_ABORTED;
    member->update_ns_before = ls_replica_update_ns(member->replica);
    member->compute_ns = member->hook_ns = member->own_update_ns = member->bytes = 0;
    member->step = step;
    member->filters =
        ls_driver_filters_update(driver, ls_driver_next_update(driver, member->index, step));
    member->learning_rate = learning_rate;
    if (batch->count < member->least_examples || !member->most_examples)
        member->least_examples = batch->count;
    if (batch->global_count > member->most_examples)
        member->most_examples = batch->global_count;
    member->not_finite = false;
    member->measured_count = 0;
    member->range_measures = 0;
    member->batch = *batch;
    if (driver->traits.divisor != LS_DIVISOR_GLOBAL)
        member->batch.global_count = batch->count;
    ls_driver_hide_round(member);
    ls_driver_set_current(member);
    if (driver->ops->begin_step) {
        const uint64_t start = enter_hook(member, &begin_span, 0);
        status =
            leave_hook(member, start, driver->ops->begin_step(driver->strategy, member->index));
    }
    if (!status && ls_replica_normalized_kernel(member->replica))
        status = normalize_kernels(member);
    if (!status)
        status = refresh(member);
    if (!status)
        ls_replica_begin_step(member->replica, &member->batch, step, learning_rate, recording);
    return status;
}

static enum ls_status begin_block(struct ls_driver_member *member, uint32_t block, bool stop)
{
    member->from = member->total = 0;
    member->forwarded = member->under_way = false;
    empty_slots(member);
    struct waiting waiting = waiting_of(member);
    const struct ls_wait wait = wait_as(&waiting);
    const enum ls_status status =
        ls_replica_begin_block(member->replica, &member->batch, block, stop, &wait, &member->pass);
    explain(&waiting, status, member->step);
    begin_walk(member, member->pass.last);
    return status;
}

// Up to the first backward step of the program.
static enum ls_status forward(struct ls_driver_member *member)
{
    const struct ls_program *program = member->pass.program;
    enum ls_status status = LS_OK;
    member->bucket = member->driver->bucket_count; // none is complete then
    member->from = 0;
    member->to = program ? program->forward_count : 0;
    member->forwarded = true;
    member->under_way = false;
    if (program) {
        status = run_section(member);
    } else {
        status = need_parameters(member, 0);
        if (!status)
            status = add_up_zeros(member, true, member->bucket);
    }
    member->from = member->to;
    return status;
}

// The gradients of the bucket are complete.
static enum ls_status gradient_ready(struct ls_driver_member *member, uint32_t bucket)
{
    struct ls_driver *driver = member->driver;
    const uint64_t start = enter_hook(member, &ready_span, bucket);
    member->under_way = true;
    return leave_hook(member, start,
                      driver->ops->gradient_ready(driver->strategy, member->index, bucket));
}

// Makes the gradients of a block, bucket by bucket. Where sections are recorded, that of the first
// bucket has the forward pass in it. Blocks but the last one have no hooks.
static enum ls_status backward(struct ls_driver_member *member)
{
    struct ls_driver *driver = member->driver;
    const struct ls_pass *pass = &member->pass;
    const struct ls_program *program = pass->program;
    const uint32_t count = driver->bucket_count;
    enum ls_status status = LS_OK;
    for (uint32_t bucket = 0; !status && bucket <= count; bucket++) {
        const uint32_t end = bucket < count ? pass->ends[bucket]
                             : program      ? program->step_count
                                            : 0;
        member->bucket = bucket;
        member->to = end > member->from ? end : member->from;
        const bool empty = member->to == member->from &&
                           (bucket == count || (program && pass->first && pass->last));
        if (!program)
            status = add_up_zeros(member, false, bucket);
        // Where the program writes none of it, zeros of its own are.
        if (!status && bucket < count && has_slots(member) &&
            (!program || pass->writes[bucket] == program->step_count))
            status = take_slot(member, bucket);
        if (!status && !empty)
            status = member->forwarded ? run_section(member)
                                       : capture(member, &pass->captures[bucket], run_section);
        if (!status && pass->walk)
            status = walk(member, member->to);
        if (!status && pass->last && bucket < count && !driver->options.shards)
            status = gradient_ready(member, bucket);
        if (pass->last)
            member->walk_ready = bucket + 1;
        member->from = member->to;
    }
    return status;
}

static const struct ls_trace_label integers_span = {.category = "strategy", .name = "add shards"};

// A logical shard is computed. After the last one of the replica those of all are added, which
// counts as communication, and only then the strategy has gradients.
static enum ls_status end_shard(struct ls_driver_member *member)
{
    enum ls_status status = ls_replica_keep_shard(member->replica, &member->pass);
    if (status || !member->pass.last)
        return status;
    const uint64_t start = enter_hook(member, &integers_span, 0);
    status = leave_hook(member, start, ls_driver_add_shards(member));
    for (uint32_t i = 0; !status && i < member->driver->bucket_count; i++)
        status = gradient_ready(member, i);
    return status;
}

// The strategy ends what it has begun, and updates the parameters.
static enum ls_status apply(struct ls_driver_member *member)
{
    struct ls_driver *driver = member->driver;
    member->late_count = 0;
    const uint64_t start = enter_hook(member, &end_span, 0);
    enum ls_status status =
        leave_hook(member, start, driver->ops->end_step(driver->strategy, member->index));
    if (!status)
        status = ls_driver_check_sums(member);
    for (uint32_t i = 0; !status && i < member->late_count; i++)
        status = ls_replica_update(member->replica, member->late[i]);
    if (status)
        return status;
    ls_driver_settle_filter(member);
    member->completed = member->step;
    return refresh(member);
}

uint64_t ls_driver_completed(const struct ls_driver *driver, uint32_t index)
{
    return driver->members[index].completed;
}

// What is recorded as one: both passes, and with the last block what the strategy does at the end.
static enum ls_status run_whole(void *context)
{
    struct ls_driver_member *member = context;
    enum ls_status status = forward(member);
    if (!status)
        status = backward(member);
    return status || !member->pass.last ? status : apply(member);
}

// ---- Whether the sums of a step are possible ----

#define ROUNDING (1 + 1e-3) // of a sum of shares of examples

// Sums that no step can have: what computed, reduced or carried them is wrong. Logged once.
static enum ls_status refuse_sums(struct ls_driver *driver, uint64_t step, double examples,
                                  double right)
{
    const struct ls_driver_options *options = &driver->options;
    ls_caller_note_reason();
    if (atomic_exchange(&driver->wrong_sums, true))
        return LS_FAILED;
    ls_error(ls_driver_name(driver),
             "step %" PRIu64 ": the sums of the step say %g examples, %g of them right, which no "
             "batch of this run has: an error of device %s, strategy %s%s%s%s%s",
             step, examples, right, ls_replica_device_name(driver->members[0].replica),
             ls_driver_name(driver), options->collective.plugin ? ", collective " : "",
             options->collective.plugin ? options->collective.plugin->name : "",
             options->transport.plugin ? " or transport " : "",
             options->transport.plugin ? options->transport.plugin->name : "");
    return LS_FAILED;
}

// Why is said by ls_driver_explain, when all replicas have left the step: which of them has the
// cause in its share is not known here, and the first that fails may wake the others before they
// look.
enum ls_status ls_driver_judge(struct ls_driver *driver, struct ls_driver_member *member,
                               uint64_t step)
{
    const double examples = (double)member->step_stats[LS_SUMS_EXAMPLES];
    const double right = (double)member->step_stats[LS_SUMS_RIGHT];
    if (isfinite(member->step_stats[LS_SUMS_LOSS])) {
        const bool possible = examples >= (double)member->least_examples &&
                              examples <= (double)member->most_examples && right >= 0 &&
                              right <= examples * ROUNDING;
        return possible ? LS_OK : refuse_sums(driver, step, examples, right);
    }
    if (ls_optimizer_scales(&driver->optimizer) && !driver->ends_at_nan) { // the step is skipped
        ls_replica_note_overflow(member->replica);
        return LS_OK;
    }
    ls_caller_note_reason();
    member->not_finite = true;
    if (!atomic_exchange(&driver->not_finite, true))
        atomic_store(&driver->not_finite_step, step);
    return LS_FAILED;
}

// ---- Sums that the host reads later (core/replica/deferred_results.h: how much, and why) ----

static void fill(const struct ls_driver_member *member, uint64_t step, struct ls_step_result *out)
{
    out->step = step;
    memcpy(out->sums, member->step_stats, sizeof(out->sums));
    out->stop = member->step_stats[LS_STEP_STATS_STOP] > 0;
}

static enum ls_status take(struct ls_driver_member *member, struct ls_step_result *out)
{
    struct waiting waiting = waiting_of(member);
    const struct ls_wait wait = wait_as(&waiting);
    uint64_t step = 0;
    ls_replica_pending_step_stats(member->replica, &step);
    enum ls_status status = ls_replica_take_step_stats(member->replica, &wait, member->step_stats);
    explain(&waiting, status, step);
    out->waited_ns = ls_clock_ns() - waiting.start;
    if (!status)
        status = ls_driver_judge(member->driver, member, step);
    if (!status)
        fill(member, step, out);
    return status;
}

// The step's work is on the stream: puts its sums behind it, and fills `out` with those of an
// earlier step, if one is due.
static enum ls_status look_back(struct ls_driver_member *member, struct ls_step_result *out)
{
    out->step = 0;
    out->stop = false;
    out->waited_ns = 0;
    if (!member->checked_late) {
        fill(member, member->step, out);
        return LS_OK;
    }
    const bool first = member->all_steps == 0; // waited for: it is when the run has started
    const enum ls_status status = ls_replica_put_step_stats(member->replica, member->step);
    if (status ||
        (!first && ls_replica_pending_step_stats(member->replica, NULL) <= LS_DEFERRED_STEPS))
        return status;
    return take(member, out);
}

enum ls_status ls_driver_collect(struct ls_driver *driver, uint32_t index,
                                 struct ls_step_result *out)
{
    struct ls_driver_member *member = &driver->members[index];
    out->step = 0;
    out->stop = false;
    if (!member->checked_late || ls_replica_pending_step_stats(member->replica, NULL) == 0)
        return LS_OK;
    return take(member, out);
}

// ---- The end of a step ----

// Where a strategy updates stores, replicas decide what these have done. The gradients of a step in
// which too many were skipped are as any other's: it ends the run as a loss that is not finite
// does.
static enum ls_status settle(struct ls_driver_member *member, struct ls_step_result *out)
{
    struct ls_driver *driver = member->driver;
    if (!ls_optimizer_scales(&driver->optimizer))
        return LS_OK;
    if (driver->stores.first)
        ls_replica_decide(member->replica, ls_stores_finite(&driver->stores));
    const struct ls_loss_scale_state *scale = ls_replica_scale(member->replica);
    out->skipped = scale->skipped_in_row > 0;
    if (scale->skipped_in_row < LS_MOST_SKIPS)
        return LS_OK;
    ls_caller_note_reason();
    member->not_finite = true;
    atomic_store(&driver->skipped_too_many, true);
    if (!atomic_exchange(&driver->not_finite, true))
        atomic_store(&driver->not_finite_step, member->step);
    return LS_FAILED;
}

static void add_times(struct ls_communicator *communicator, struct ls_communication_times *out)
{
    struct ls_communication_times times;
    ls_communicator_times(communicator, 1, &times);
    out->busy_ns += times.busy_ns;
    out->exposed_ns += times.exposed_ns;
}

static void note_times(struct ls_driver_member *member, struct ls_step_result *out)
{
    struct ls_communication_times communication = {0};
    if (member->communicator)
        ls_communicator_times(member->communicator, 1, &communication);
    else if (member->driver->world > 1 || member->bytes)
        communication.busy_ns = communication.exposed_ns = member->hook_ns;
    if (member->total_communicator)
        add_times(member->total_communicator, &communication);
    if (member->communicator && member->driver->integer_communicators)
        add_times(member->driver->integer_communicators[member->index], &communication);
    out->examples = member->batch.count;
    out->compute_ns = member->compute_ns;
    out->update_ns = update_ns(member) - member->update_ns_before;
    out->communication_ns = communication.busy_ns;
    out->exposed_ns = communication.exposed_ns;
}

// What ended it, where the strategy's own thread did.
static enum ls_status cause_of(struct ls_driver *driver, enum ls_status status)
{
    const int32_t failure = atomic_load(&driver->failure);
    return status == LS_ABORTED && failure ? (enum ls_status)failure : status;
}

static enum ls_status finish(struct ls_driver_member *member, enum ls_status status,
                             struct ls_step_result *out)
{
    ls_driver_set_current(NULL);
    if (!status)
        status = settle(member, out);
    if (!status)
        status = look_back(member, out);
    if (status)
        return cause_of(member->driver, status);
    note_times(member, out);
    member->all_bytes += member->bytes;
    member->all_steps++;
    return LS_OK;
}

// ---- A step ----

enum ls_status ls_driver_step(struct ls_driver *driver, uint32_t index,
                              const struct ls_replica_batch *batch, uint64_t step,
                              double learning_rate, bool stop, struct ls_step_result *out)
{
    struct ls_driver_member *member = &driver->members[index];
    const struct ls_pass *pass = &member->pass;
    const uint32_t blocks = ls_replica_block_count(member->replica);
    enum ls_status status = begin(member, batch, step, learning_rate, recording_of(driver, batch));
    for (uint32_t block = 0; !status && block < blocks; block++) {
        status = begin_block(member, block, stop);
        if (status)
            break;
        if (records_whole(member)) {
            status = capture(member, pass->captures, run_whole);
        } else {
            if (!records_sections(member))
                status = forward(member);
            if (!status)
                status = backward(member);
            if (!status && driver->options.shards)
                status = end_shard(member);
            if (!status && pass->last)
                status = apply(member);
        }
        if (!status)
            status = ls_replica_count_block(member->replica, pass);
        ls_replica_end_block(member->replica, pass);
    }
    ls_replica_end_step(member->replica, driver->capturable && blocks == 1);
    return finish(member, status, out);
}

// The same in the hands of a custom loop: one block, of which nothing is recorded.
enum ls_status ls_driver_forward(struct ls_driver *driver, uint32_t index,
                                 const struct ls_replica_batch *batch, uint64_t step,
                                 double learning_rate)
{
    struct ls_driver_member *member = &driver->members[index];
    enum ls_status status = begin(member, batch, step, learning_rate, LS_RECORD_PARTS);
    if (!status)
        status = begin_block(member, 0, false);
    if (!status)
        status = forward(member);
    ls_driver_set_current(NULL);
    return cause_of(driver, status);
}

enum ls_status ls_driver_backward(struct ls_driver *driver, uint32_t index)
{
    struct ls_driver_member *member = &driver->members[index];
    ls_driver_set_current(member);
    enum ls_status status = backward(member);
    if (!status && driver->options.shards)
        status = end_shard(member);
    ls_replica_end_block(member->replica, &member->pass);
    ls_replica_end_step(member->replica, false);
    ls_driver_set_current(NULL);
    return cause_of(driver, status);
}

enum ls_status ls_driver_apply(struct ls_driver *driver, uint32_t index, struct ls_step_result *out)
{
    struct ls_driver_member *member = &driver->members[index];
    ls_driver_set_current(member);
    const enum ls_status status = finish(member, apply(member), out);
    return status || !ls_driver_has_rounds(driver) ? status : ls_driver_rest(driver, index);
}

uint64_t ls_driver_next_update(const struct ls_driver *driver, uint32_t index, uint64_t step)
{
    return ls_optimizer_scales(&driver->optimizer)
               ? ls_replica_scale(driver->members[index].replica)->updates + 1
               : step;
}

// ---- Forward alone, with parameters in slots ----

static enum ls_status run_forward(struct ls_driver_member *member,
                                  const struct ls_replica_batch *batch, enum ls_purpose purpose)
{
    enum ls_status status =
        ls_replica_begin_forward(member->replica, batch, purpose, &member->pass);
    struct ls_program *program = member->pass.program;
    begin_walk(member, false);
    for (uint32_t at = 0; !status && program && at < program->step_count; at++) {
        status = reach(member, at);
        if (!status)
            status = ls_program_run(program, at, at + 1, false);
        if (!status && member->communicator)
            status = ls_communicator_progress(member->communicator);
    }
    status = ls_program_join(program, status);
    return status ? status : walk(member, program ? program->step_count : 0);
}

static bool has_all(const struct ls_driver_member *member)
{
    return ls_replica_slot(member->replica, LS_HELD_PARAMETERS, 0) == LS_NO_SLOT;
}

enum ls_status ls_driver_evaluate(struct ls_driver *driver, uint32_t index,
                                  const struct ls_replica_batch *batch, double *sums)
{
    struct ls_driver_member *member = &driver->members[index];
    if (has_all(member))
        return ls_replica_evaluate(member->replica, batch, sums);
    const enum ls_status status = run_forward(member, batch, LS_PURPOSE_EVALUATE);
    return status || !batch->count ? cause_of(driver, status)
                                   : ls_replica_end_evaluate(member->replica, sums);
}

enum ls_status ls_driver_predict(struct ls_driver *driver, uint32_t index,
                                 const struct ls_replica_batch *batch, float *out)
{
    struct ls_driver_member *member = &driver->members[index];
    if (has_all(member))
        return ls_replica_predict(member->replica, batch, out);
    const enum ls_status status = run_forward(member, batch, LS_PURPOSE_PREDICT);
    return status || !batch->count
               ? cause_of(driver, status)
               : ls_replica_end_predict(member->replica, &member->pass, batch->count, out);
}

// ---- Hooks outside of steps ----

static const struct ls_trace_label initialize_span = {.category = "strategy",
                                                      .name = "initialize_parameters"};
static const struct ls_trace_label rest_span = {.category = "strategy", .name = "rest"};
static const struct ls_trace_label synchronise_span = {.category = "strategy",
                                                       .name = "synchronise"};

static enum ls_status run_outside(struct ls_driver_member *member,
                                  const struct ls_trace_label *label,
                                  int32_t (*hook)(struct ls_strategy *strategy, uint32_t replica))
{
    struct ls_driver *driver = member->driver;
    // An interrupted one has left its step, and has what it had then.
    if (!hook || atomic_load(&driver->failure) == LS_INTERRUPTED)
        return LS_OK;
    const uint64_t start = enter_hook(member, label, 0);
    const enum ls_status status = leave_hook(member, start, hook(driver->strategy, member->index));
    return status ? cause_of(driver, status) : refresh(member);
}

enum ls_status ls_driver_initialize_parameters(struct ls_driver *driver, uint32_t index)
{
    struct ls_driver_member *member = &driver->members[index];
    enum ls_status status = ls_driver_try_collectives(member);
    if (!status)
        status = run_outside(member, &initialize_span, driver->ops->initialize_parameters);
    if (!status)
        ls_driver_begin_round(driver, index);
    return status;
}

enum ls_status ls_driver_synchronise(struct ls_driver *driver, uint32_t index)
{
    struct ls_driver_member *member = &driver->members[index];
    const enum ls_status status = run_outside(member, &synchronise_span, driver->ops->synchronise);
    return status ? status : ls_driver_show_last_round(driver, index);
}

enum ls_status ls_driver_show_last_round(struct ls_driver *driver, uint32_t index)
{
    struct ls_driver_member *member = &driver->members[index];
    ls_driver_show_round(member);
    return refresh(member);
}

enum ls_status ls_driver_workers_changed(struct ls_driver *driver, uint32_t replica,
                                         const struct ls_round_change *change)
{
    struct ls_driver_member *member = &driver->members[replica];
    if (!driver->ops->workers_changed) // a file of another strategy, which is elastic
        return LS_OK;
    ls_driver_hide_round(member);
    ls_driver_set_current(member);
    const int32_t status = driver->ops->workers_changed(driver->strategy, replica, change);
    ls_driver_set_current(NULL);
    return status ? (enum ls_status)status : ls_driver_show_last_round(driver, replica);
}

enum ls_status ls_driver_rest(struct ls_driver *driver, uint32_t index)
{
    return run_outside(&driver->members[index], &rest_span, driver->ops->rest);
}
