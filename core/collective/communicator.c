// SPDX-License-Identifier: Apache-2.0
// Communicators: open the transport, and drive the runs under way.
#include "core/collective/internal.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/memory.h"

#include <stdlib.h>
#include <string.h>

// While a rank waits it looks this often whether the others have called the same.
#define GLANCE_NS UINT64_C(20000000)

// Turns without a move before a wait looks at the clock: about a microsecond, the time in which a peer on another
// core answers.
#define EAGER_TURNS 32

static const struct ls_trace_label progress_slice = {
    .category = "communication", .name = "move buckets", .value = "under way"};

// ---- Running ----

static void begin_recording(struct ls_collective_plan *plan)
{
    struct ls_communicator *communicator = plan->communicator;
    if (!communicator->track)
        communicator->track = ls_trace_open_track("communication");
    plan->started_ns = ls_clock_ns();
}

static void end_run(struct ls_collective_plan *plan)
{
    if (ls_trace_on())
        ls_trace_slice_on(plan->communicator->track, plan->run_slice, plan->started_ns,
                          ls_clock_ns(), plan->sequence);
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
            return ls_communicator_fail(communicator, plan, status);
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
                 communicator->rank, ls_call_text(&plan->signature, text));
        return LS_FAILED;
    }
    plan->sequence = communicator->sequence++;
    ls_recorder_begin(&communicator->group->recorders[communicator->rank], plan->sequence,
                      &plan->signature);
    if (ls_trace_on())
        begin_recording(plan);
    plan->running = true;
    communicator->running[communicator->running_count++] = plan;
    const enum ls_status status = ls_executor_begin(
        plan->executor, communicator->group->interface, communicator->transport,
        &communicator->numbers, ls_call_signature_hash(&plan->signature, plan->sequence));
    if (status)
        return ls_communicator_fail(communicator, plan, status);
    if (ls_executor_done(plan->executor)) {
        communicator->running_count--;
        end_run(plan);
    }
    return LS_OK;
}

enum ls_status ls_communicator_progress(struct ls_communicator *communicator)
{
    bool moved = false;
    if (communicator->status || !communicator->running_count)
        return communicator->status;
    const uint32_t under_way = communicator->running_count;
    const uint64_t begin = ls_clock_ns();
    const enum ls_status status = advance(communicator, &moved);
    const uint64_t end = ls_clock_ns();
    communicator->times.busy_ns += end - begin;
    if (moved)
        ls_trace_slice(&progress_slice, begin, end, under_way);
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
        return ls_communicator_fail_deadline(communicator, plan, waited);
    const uint64_t left = deadline - waited;
    const enum ls_status status = wait_for_peers(communicator, left < GLANCE_NS ? left : GLANCE_NS);
    if (status == LS_AGAIN)
        return ls_communicator_find_mismatch(communicator, plan, &peer, &theirs)
                   ? ls_communicator_fail_mismatch(communicator, plan, peer)
                   : LS_OK;
    return status ? ls_communicator_fail(communicator, plan, status) : LS_OK;
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
    communicator->times.busy_ns += end - begin;
    ls_trace_slice(plan->wait_slice, begin, end, plan->sequence);
    if (!status && !plan->result)
        ls_recorder_end(&communicator->group->recorders[communicator->rank], plan->sequence,
                        end - begin);
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

// ---- Opening and closing ----

static void group_destroy(struct ls_communicator_group *group)
{
    if (!group)
        return;
    free(group->recorders);
    free(group->name);
    free(group);
}

static enum ls_status group_create(const struct ls_communicator_options *options,
                                   struct ls_communicator_group **out)
{
    struct ls_communicator_group *group = calloc(1, sizeof(*group));
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
    struct ls_communicator_group *group = communicator->group;
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

static struct ls_communicator *communicator_create(struct ls_communicator_group *group,
                                                   uint32_t rank)
{
    struct ls_communicator *communicator = ls_calloc_apart(1, sizeof(*communicator));
    if (!communicator)
        return NULL;
    communicator->group = group;
    communicator->rank = rank;
    communicator->numbers.next_send = ls_calloc_apart(group->world, sizeof(uint64_t));
    communicator->numbers.next_receive = ls_calloc_apart(group->world, sizeof(uint64_t));
    if (communicator->numbers.next_send && communicator->numbers.next_receive)
        return communicator;
    free(communicator->numbers.next_send);
    free(communicator->numbers.next_receive);
    free(communicator);
    return NULL;
}

static enum ls_status open_transport(const struct ls_communicator_options *options,
                                     struct ls_communicator_group *group,
                                     struct ls_communicator **communicators)
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
    struct ls_communicator_group *group;
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
