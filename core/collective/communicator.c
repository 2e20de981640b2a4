// SPDX-License-Identifier: Apache-2.0
// Communicators and plans: opens the transport, draws and compiles schedules, drives the runs under way,
// and turns what goes wrong into one message that names everybody concerned.
#include "core/collective/communicator.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/collective/compile.h"
#include "core/collective/executor.h"
#include "core/collective/recorder.h"
#include "core/plugin/device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// While a rank waits it looks this often whether the others have called the same.
#define GLANCE_NS UINT64_C(20000000)

// Turns without a move before a wait looks at the clock: about a microsecond, the time in which a peer on another
// core answers.
#define EAGER_TURNS 32

// What the ranks of one process have in common.
struct group {
    const struct ls_plugin *collective;
    const struct ls_host *collective_host;
    const struct ls_collective_interface *algorithm;
    const struct ls_transport_interface *interface;
    uint32_t world;
    uint64_t deadline_ns;
    uint64_t segment_bytes;
    char *name;
    _Atomic uint32_t failed; // the first rank that fails says why
    _Atomic uint32_t open;
    struct ls_recorder *recorders; // of each rank
};

struct ls_communicator {
    struct group *group;
    uint32_t rank;
    enum ls_status status; // LS_OK, or LS_ABORTED once anything failed
    struct ls_transport *transport; // NULL in a world of one
    struct ls_message_numbers numbers;
    uint64_t sequence; // of the next call
    struct ls_collective_plan **running; // in the order in which they began
    uint32_t running_count, running_capacity;
    struct ls_transfer **waiting; // room for all pending transfers of all plans
    uint32_t waiting_capacity, operation_count; // the latter over all plans
    struct ls_communication_times times;
};

struct ls_collective_plan {
    struct ls_communicator *communicator;
    struct ls_call_signature signature;
    struct ls_compiled_schedule compiled;
    struct ls_executor *executor;
    void *scratch;
    uint64_t sequence; // of the last run
    bool running;
    enum ls_status result; // of the last run
};

// ---- Failing ----

static const char *call_text(const struct ls_call_signature *signature, char text[static 160])
{
    return ls_call_signature_text(signature, text, 160);
}

// Ends everything on all ranks. Returns once no peer touches this rank's memory.
static enum ls_status give_up(struct ls_communicator *communicator, enum ls_status status)
{
    const struct ls_transport_interface *interface = communicator->group->interface;
    if (communicator->transport) {
        interface->abort(communicator->transport);
        (void)interface->wait_any(communicator->transport, NULL, 0, 0);
    }
    for (uint32_t i = 0; i < communicator->running_count; i++) {
        communicator->running[i]->running = false;
        communicator->running[i]->result = status;
    }
    communicator->running_count = 0;
    communicator->status = LS_ABORTED;
    ls_recorder_dump(&communicator->group->recorders[communicator->rank], communicator->group->name,
                     communicator->rank);
    return status;
}

// True for the one rank that is to say what happened.
static bool is_first_to_fail(struct ls_communicator *communicator)
{
    return atomic_exchange(&communicator->group->failed, 1) == 0;
}

// A rank that made this call differently; false: none is known to have.
static bool find_mismatch(struct ls_communicator *communicator,
                          const struct ls_collective_plan *plan, uint32_t *rank,
                          struct ls_call_signature *theirs)
{
    for (uint32_t i = 0; i < communicator->group->world; i++) {
        if (i != communicator->rank &&
            ls_recorder_get(&communicator->group->recorders[i], plan->sequence, theirs) &&
            !ls_call_signature_equal(theirs, &plan->signature)) {
            *rank = i;
            return true;
        }
    }
    return false;
}

static enum ls_status fail_mismatch(struct ls_communicator *communicator,
                                    const struct ls_collective_plan *plan, uint32_t peer)
{
    struct ls_call_signature theirs;
    char mine_text[160], their_text[160];
    if (!is_first_to_fail(communicator))
        return give_up(communicator, LS_ABORTED);
    if (find_mismatch(communicator, plan, &peer, &theirs))
        ls_error(communicator->group->name,
                 "call %" PRIu64
                 " differs: rank %u calls %s, rank %u calls %s; all ranks must make the same "
                 "calls in the same order",
                 plan->sequence, communicator->rank, call_text(&plan->signature, mine_text), peer,
                 call_text(&theirs, their_text));
    else
        ls_error(communicator->group->name,
                 "call %" PRIu64
                 ", %s: rank %u and rank %u disagree on their messages; collective %s is wrong",
                 plan->sequence, call_text(&plan->signature, mine_text), communicator->rank, peer,
                 communicator->group->collective->name);
    return give_up(communicator, LS_FAILED);
}

// Who keeps the plan from ending: a rank that has not come, else a peer of a pending transfer.
static uint32_t find_culprit(struct ls_communicator *communicator,
                             const struct ls_collective_plan *plan, bool *absent)
{
    uint32_t count, culprit = communicator->rank;
    struct ls_transfer *const *pending = ls_executor_pending(plan->executor, &count);
    for (uint32_t i = 0; i < count; i++) {
        const bool sends =
            pending[i]->kind == LS_TRANSFER_SEND || pending[i]->state == LS_TRANSFER_REDUCED;
        culprit = sends ? pending[i]->destination : pending[i]->source;
        if (!sends)
            break;
    }
    *absent = false;
    for (uint32_t i = 0; !*absent && i < communicator->group->world; i++) {
        *absent = atomic_load(&communicator->group->recorders[i].begun) <= plan->sequence;
        if (*absent)
            culprit = i;
    }
    return culprit;
}

static enum ls_status fail_deadline(struct ls_communicator *communicator,
                                    const struct ls_collective_plan *plan, uint64_t waited_ns)
{
    char text[160];
    bool absent;
    if (!is_first_to_fail(communicator))
        return give_up(communicator, LS_ABORTED);
    const uint32_t culprit = find_culprit(communicator, plan, &absent);
    ls_error(communicator->group->name,
             "rank %u waited %.1f s for rank %u in call %" PRIu64
             ", %s: %s; look there, or raise --deadline",
             communicator->rank, (double)waited_ns * 1e-9, culprit, plan->sequence,
             call_text(&plan->signature, text),
             absent ? "it has not made this call" : "it has not finished its part");
    return give_up(communicator, LS_PEER_LOST);
}

static enum ls_status fail(struct ls_communicator *communicator,
                           const struct ls_collective_plan *plan, enum ls_status status)
{
    const struct ls_transfer *mismatch = ls_executor_mismatch(plan->executor);
    char text[160];
    if (mismatch)
        return fail_mismatch(communicator, plan, mismatch->source);
    if (status != LS_ABORTED && is_first_to_fail(communicator))
        ls_error(communicator->group->name, "rank %u, call %" PRIu64 ", %s: %s", communicator->rank,
                 plan->sequence, call_text(&plan->signature, text), ls_status_text(status));
    return give_up(communicator, status);
}

// ---- Running ----

static void end_run(struct ls_collective_plan *plan)
{
    plan->running = false;
    plan->result = LS_OK;
}

// One turn over all runs under way.
static enum ls_status advance(struct ls_communicator *communicator, bool *moved)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < communicator->running_count; i++) {
        struct ls_collective_plan *plan = communicator->running[i];
        const enum ls_status status = ls_executor_advance(plan->executor, moved);
        if (status) {
            while (i < communicator->running_count)
                communicator->running[kept++] = communicator->running[i++];
            communicator->running_count = kept;
            return fail(communicator, plan, status);
        }
        if (ls_executor_done(plan->executor))
            end_run(plan);
        else
            communicator->running[kept++] = plan;
    }
    communicator->running_count = kept;
    return LS_OK;
}

enum ls_status ls_collective_start(struct ls_collective_plan *plan)
{
    struct ls_communicator *communicator = plan->communicator;
    if (communicator->status)
        return communicator->status;
    if (plan->running) {
        char text[160];
        ls_error(communicator->group->name, "rank %u starts %s again before it waited for it",
                 communicator->rank, call_text(&plan->signature, text));
        return LS_FAILED;
    }
    const uint64_t begin = ls_clock_ns();
    plan->sequence = communicator->sequence++;
    ls_recorder_begin(&communicator->group->recorders[communicator->rank], plan->sequence,
                      &plan->signature, begin);
    plan->running = true;
    communicator->running[communicator->running_count++] = plan;
    const enum ls_status status = ls_executor_begin(
        plan->executor, communicator->group->interface, communicator->transport,
        &communicator->numbers, ls_call_signature_hash(&plan->signature, plan->sequence));
    if (status)
        return fail(communicator, plan, status);
    if (ls_executor_done(plan->executor)) {
        communicator->running_count--;
        end_run(plan);
    }
    // Posting alone costs less than another look at the clock.
    if (ls_executor_progressed(plan->executor))
        communicator->times.busy_ns += ls_clock_ns() - begin;
    return LS_OK;
}

enum ls_status ls_communicator_progress(struct ls_communicator *communicator)
{
    bool moved = false;
    if (communicator->status || !communicator->running_count)
        return communicator->status;
    const uint64_t begin = ls_clock_ns();
    const enum ls_status status = advance(communicator, &moved);
    communicator->times.busy_ns += ls_clock_ns() - begin;
    return status;
}

// Waits until something can move, at most until the next glance at the others.
static enum ls_status wait_for_peers(struct ls_communicator *communicator, uint64_t timeout_ns)
{
    uint32_t count = 0, total = 0;
    struct ls_transfer *const *pending = NULL;
    for (uint32_t i = 0; i < communicator->running_count; i++) {
        pending = ls_executor_pending(communicator->running[i]->executor, &count);
        if (communicator->running_count > 1)
            memcpy(communicator->waiting + total, pending, count * sizeof(struct ls_transfer *));
        total += count;
    }
    if (communicator->running_count > 1)
        pending = communicator->waiting;
    return (enum ls_status)communicator->group->interface->wait_any(communicator->transport,
                                                                    pending, total, timeout_ns);
}

static enum ls_status wait_step(struct ls_communicator *communicator,
                                const struct ls_collective_plan *plan, uint64_t blocked_since,
                                uint64_t now)
{
    const uint64_t deadline = communicator->group->deadline_ns, waited = now - blocked_since;
    uint32_t peer;
    struct ls_call_signature theirs;
    if (waited >= deadline)
        return fail_deadline(communicator, plan, waited);
    const uint64_t left = deadline - waited;
    const enum ls_status status = wait_for_peers(communicator, left < GLANCE_NS ? left : GLANCE_NS);
    if (status == LS_AGAIN)
        return find_mismatch(communicator, plan, &peer, &theirs)
                   ? fail_mismatch(communicator, plan, peer)
                   : LS_OK;
    return status ? fail(communicator, plan, status) : LS_OK;
}

// Advances until the plan has ended, or nothing has moved for a number of turns.
static enum ls_status advance_eagerly(struct ls_communicator *communicator,
                                      const struct ls_collective_plan *plan, bool *moved)
{
    enum ls_status status = LS_OK;
    *moved = false;
    for (uint32_t still = 0; !status && plan->running && still < EAGER_TURNS; still++) {
        bool turn_moved = false;
        status = advance(communicator, &turn_moved);
        if (turn_moved) {
            *moved = true;
            still = 0;
        }
    }
    return status;
}

enum ls_status ls_collective_wait(struct ls_collective_plan *plan)
{
    struct ls_communicator *communicator = plan->communicator;
    const uint64_t begin = ls_clock_ns();
    uint64_t idle = 0, blocked_since = 0;
    enum ls_status status = LS_OK;
    while (!status && plan->running) {
        bool moved;
        status = advance_eagerly(communicator, plan, &moved);
        if (status || !plan->running)
            break;
        const uint64_t now = ls_clock_ns();
        if (moved || !blocked_since)
            blocked_since = now;
        status = wait_step(communicator, plan, blocked_since, now);
        idle += ls_clock_ns() - now;
    }
    const uint64_t end = ls_clock_ns();
    communicator->times.exposed_ns += end - begin;
    communicator->times.busy_ns += end - begin - idle;
    if (!status && !plan->result)
        ls_recorder_end(&communicator->group->recorders[communicator->rank], plan->sequence, end);
    return status ? status : plan->result;
}

void ls_communicator_abort(struct ls_communicator *communicator)
{
    atomic_store(&communicator->group->failed, 1); // who aborts has said why
    if (communicator->transport)
        communicator->group->interface->abort(communicator->transport);
}

void ls_communicator_times(struct ls_communicator *communicator, int32_t reset,
                           struct ls_communication_times *out)
{
    *out = communicator->times;
    if (reset)
        communicator->times = (struct ls_communication_times){0};
}

// ---- Plans ----

static enum ls_status check_plan(const struct ls_communicator *communicator, uint32_t operation,
                                 const void *buffer, uint64_t count, uint32_t dtype,
                                 uint32_t reduction, uint32_t root)
{
    const struct group *group = communicator->group;
    const struct ls_collective_interface *algorithm = group->algorithm;
    const uint64_t element_bytes = ls_dtype_bytes(dtype);
    const char *problem = NULL;
    if (!ls_collective_operation_text(operation))
        problem = "there is no such operation";
    else if (!element_bytes || (algorithm->dtypes && !(algorithm->dtypes & 1u << dtype)))
        problem = "the collective does not do this element type";
    else if (reduction < LS_SUM || reduction > LS_MEAN ||
             (algorithm->reductions && !(algorithm->reductions & 1u << reduction)))
        problem = "the collective does not do this reduction";
    else if (root >= group->world)
        problem = "the root is no rank";
    else if (count > UINT64_MAX / 16 || (count && !buffer))
        problem = "there is no such buffer";
    else if ((uintptr_t)buffer % element_bytes)
        problem = "the buffer is not aligned to its elements";
    if (!problem)
        return LS_OK;
    ls_error(group->name,
             "collective %s: operation %u on %" PRIu64
             " elements of type %u, reduction %u, root %u of %u: %s",
             group->collective->name, operation, count, dtype, reduction, root, group->world,
             problem);
    return LS_USAGE;
}

// The part of the buffer in which this rank gets a mean; empty where there is none.
static struct ls_range mean_range(const struct ls_collective_call *call, uint32_t reduction)
{
    const bool reduces = call->operation == LS_ALL_REDUCE || call->operation == LS_REDUCE_SCATTER ||
                         (call->operation == LS_REDUCE && call->rank == call->root);
    if (reduction != LS_MEAN || !reduces)
        return ls_data_range(0, 0);
    return call->operation == LS_REDUCE_SCATTER ? ls_chunk(call, call->rank)
                                                : ls_data_range(0, call->count);
}

static enum ls_status compile_plan(struct ls_collective_plan *plan)
{
    const struct ls_communicator *communicator = plan->communicator;
    const struct group *group = communicator->group;
    const struct ls_call_signature *signature = &plan->signature;
    const uint32_t element_bytes = (uint32_t)ls_dtype_bytes(signature->dtype);
    const struct ls_collective_call call = {
        .struct_size = sizeof(call),
        .operation = signature->operation,
        .rank = communicator->rank,
        .world = group->world,
        .root = signature->root,
        .ranks_per_host = group->world,
        .count = signature->count,
        .element_bytes = element_bytes,
        .host = group->collective_host,
    };
    const struct ls_compile_options options = {
        .name = group->collective->name,
        .rank = communicator->rank,
        .world = group->world,
        .element_bytes = element_bytes,
        .segment_bytes = group->segment_bytes,
        .divide = mean_range(&call, signature->reduction),
    };
    struct ls_drawn_schedule drawn;
    enum ls_status status =
        ls_schedule_draw(group->algorithm, group->collective->name, &call, &drawn);
    if (status)
        return status;
    if (group->world > 1)
        status = ls_compile_schedule(&drawn, &options, &plan->compiled);
    ls_drawn_schedule_finish(&drawn);
    return status;
}

static enum ls_status create_executor(struct ls_collective_plan *plan, void *buffer)
{
    const struct ls_call_signature *signature = &plan->signature;
    const uint64_t bytes = plan->compiled.scratch_count * ls_dtype_bytes(signature->dtype);
    if (plan->compiled.scratch_count > (UINT64_MAX >> 4))
        return LS_OUT_OF_MEMORY;
    if (bytes && posix_memalign(&plan->scratch, LS_ALIGNMENT, bytes)) {
        plan->scratch = NULL;
        return LS_OUT_OF_MEMORY;
    }
    const struct ls_executor_memory memory = {
        .buffers = {buffer, plan->scratch},
        .dtype = signature->dtype,
        .reduction = signature->reduction == LS_MEAN ? LS_SUM : signature->reduction,
        .divisor = plan->communicator->group->world,
    };
    return ls_executor_create(&plan->compiled, &memory, &plan->executor);
}

// One more plan may run, and its transfers be waited for.
static enum ls_status make_room(struct ls_communicator *communicator, uint32_t operation_count)
{
    const uint32_t plans = communicator->running_capacity + 1;
    const uint32_t operations = communicator->operation_count + operation_count;
    struct ls_collective_plan **running =
        realloc(communicator->running, plans * sizeof(struct ls_collective_plan *));
    if (!running)
        return LS_OUT_OF_MEMORY;
    communicator->running = running;
    struct ls_transfer **waiting =
        realloc(communicator->waiting, ((size_t)operations + 1) * sizeof(struct ls_transfer *));
    if (!waiting)
        return LS_OUT_OF_MEMORY;
    communicator->waiting = waiting;
    communicator->running_capacity = plans;
    communicator->operation_count = operations;
    return LS_OK;
}

enum ls_status ls_collective_plan_create(struct ls_communicator *communicator, uint32_t operation,
                                         void *buffer, uint64_t count, uint32_t dtype,
                                         uint32_t reduction, uint32_t root, const char *label,
                                         struct ls_collective_plan **out)
{
    enum ls_status status =
        check_plan(communicator, operation, buffer, count, dtype, reduction, root);
    if (status)
        return status;
    struct ls_collective_plan *plan = calloc(1, sizeof(*plan));
    if (!plan)
        return LS_OUT_OF_MEMORY;
    plan->communicator = communicator;
    plan->signature = (struct ls_call_signature){.operation = operation,
                                                 .dtype = dtype,
                                                 .reduction = reduction,
                                                 .root = root,
                                                 .count = count};
    ls_call_signature_label(&plan->signature, label);

    status = compile_plan(plan);
    if (!status)
        status = create_executor(plan, buffer);
    if (!status)
        status = make_room(communicator, plan->compiled.operation_count);
    if (status) {
        ls_collective_plan_destroy(plan);
        return status;
    }
    *out = plan;
    return LS_OK;
}

void ls_collective_plan_destroy(struct ls_collective_plan *plan)
{
    if (!plan)
        return;
    if (plan->running) {
        ls_communicator_abort(plan->communicator);
        (void)give_up(plan->communicator, LS_ABORTED);
    }
    ls_executor_destroy(plan->executor);
    ls_compiled_schedule_finish(&plan->compiled);
    free(plan->scratch);
    free(plan);
}

uint64_t ls_collective_plan_bytes(const struct ls_collective_plan *plan)
{
    return plan->compiled.sent_bytes;
}

uint32_t ls_collective_plan_rounds(const struct ls_collective_plan *plan)
{
    return plan->compiled.round_count;
}

// ---- Opening and closing ----

static void group_destroy(struct group *group)
{
    if (!group)
        return;
    free(group->recorders);
    free(group->name);
    free(group);
}

static enum ls_status group_create(const struct ls_communicator_options *options,
                                   struct group **out)
{
    struct group *group = calloc(1, sizeof(*group));
    if (!group)
        return LS_OUT_OF_MEMORY;
    group->collective = options->collective;
    group->collective_host = options->collective_host;
    group->algorithm = options->collective->interface;
    group->interface = options->transport ? options->transport->interface : NULL;
    group->world = options->world;
    group->deadline_ns = options->deadline_ns;
    group->segment_bytes = options->segment_bytes;
    group->name = strdup(options->name ? options->name : "collective");
    void *recorders = NULL;
    const size_t bytes = options->world * sizeof(*group->recorders);
    if (group->name && !posix_memalign(&recorders, 64, bytes)) {
        memset(recorders, 0, bytes);
        group->recorders = recorders;
        atomic_store(&group->open, options->world);
        *out = group;
        return LS_OK;
    }
    group_destroy(group);
    return LS_OUT_OF_MEMORY;
}

static void communicator_close(struct ls_communicator *communicator)
{
    if (!communicator)
        return;
    struct group *group = communicator->group;
    if (communicator->transport)
        group->interface->close(communicator->transport);
    free(communicator->numbers.next_send);
    free(communicator->numbers.next_receive);
    free(communicator->running);
    free(communicator->waiting);
    free(communicator);
    if (atomic_fetch_sub(&group->open, 1) == 1)
        group_destroy(group);
}

static enum ls_status check_options(const struct ls_communicator_options *options)
{
    const char *name = options->name ? options->name : "collective";
    const struct ls_collective_interface *algorithm = options->collective->interface;
    if (options->world == 0 || (options->world > 1 && !options->transport)) {
        ls_error(name, "%u ranks and %s transport do not make a communicator", options->world,
                 options->transport ? "a" : "no");
        return LS_USAGE;
    }
    if (algorithm->maximum_world && options->world > algorithm->maximum_world) {
        ls_error(name, "collective %s serves at most %u ranks, not %u; choose another",
                 options->collective->name, algorithm->maximum_world, options->world);
        return LS_UNSUPPORTED;
    }
    return LS_OK;
}

// Options that do not fit the world are refused here, once, and not by every rank that makes a plan.
static enum ls_status try_collective(const struct ls_communicator_options *options)
{
    const struct ls_collective_call call = {
        .struct_size = sizeof(call),
        .operation = LS_ALL_REDUCE,
        .world = options->world,
        .ranks_per_host = options->world,
        .count = UINT64_C(1) << 20, // a usual size
        .element_bytes = 4,
        .host = options->collective_host,
    };
    struct ls_drawn_schedule drawn;
    const enum ls_status status =
        ls_schedule_draw(options->collective->interface, options->collective->name, &call, &drawn);
    if (!status)
        ls_drawn_schedule_finish(&drawn);
    return status;
}

static struct ls_communicator *communicator_create(struct group *group, uint32_t rank)
{
    struct ls_communicator *communicator = calloc(1, sizeof(*communicator));
    if (!communicator)
        return NULL;
    communicator->group = group;
    communicator->rank = rank;
    communicator->numbers.next_send = calloc(group->world, sizeof(uint64_t));
    communicator->numbers.next_receive = calloc(group->world, sizeof(uint64_t));
    if (communicator->numbers.next_send && communicator->numbers.next_receive)
        return communicator;
    free(communicator->numbers.next_send);
    free(communicator->numbers.next_receive);
    free(communicator);
    return NULL;
}

static enum ls_status open_transport(const struct ls_communicator_options *options,
                                     struct group *group, struct ls_communicator **communicators)
{
    const struct ls_transport_config config = {.struct_size = sizeof(config),
                                               .world = options->world,
                                               .first = 0,
                                               .count = options->world};
    struct ls_transport **endpoints = calloc(options->world, sizeof(struct ls_transport *));
    if (!endpoints)
        return LS_OUT_OF_MEMORY;
    const enum ls_status status =
        (enum ls_status)group->interface->open(options->transport_host, &config, endpoints);
    for (uint32_t i = 0; !status && i < options->world; i++)
        communicators[i]->transport = endpoints[i];
    free(endpoints);
    return status;
}

enum ls_status ls_communicators_open(const struct ls_communicator_options *options,
                                     struct ls_communicator **out)
{
    struct group *group;
    enum ls_status status = check_options(options);
    if (!status)
        status = try_collective(options);
    if (!status)
        status = group_create(options, &group);
    if (status)
        return status;
    struct ls_communicator **communicators =
        calloc(options->world, sizeof(struct ls_communicator *));
    uint32_t created = 0;
    while (communicators && created < options->world &&
           (communicators[created] = communicator_create(group, created)))
        created++;
    if (created < options->world) {
        atomic_fetch_sub(&group->open, options->world - created);
        if (!created)
            group_destroy(group);
        status = LS_OUT_OF_MEMORY;
    } else if (options->world > 1) {
        status = open_transport(options, group, communicators);
    }
    if (status)
        ls_communicators_close(communicators, created);
    else
        memcpy(out, communicators, options->world * sizeof(struct ls_communicator *));
    free(communicators);
    return status;
}

void ls_communicators_close(struct ls_communicator **communicators, uint32_t world)
{
    for (uint32_t i = 0; i < world; i++)
        communicator_close(communicators[i]);
}
