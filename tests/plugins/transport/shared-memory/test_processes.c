// SPDX-License-Identifier: Apache-2.0
// A process that is killed in the middle of a reduction leaves the others with an error; aborts that are told half way; more
// processes than cores. That all collectives reduce exactly is looked at by tests/plugins/collective/test_between_processes.c.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // struct sigevent
#endif
#include "core/base/clock.h"
#include "core/base/random.h"
#include "core/base/shared_memory.h"
#include "core/plugin/device.h"
#include "plugins/transport/shared-memory/shared_memory.h"
#include "tests/support/suite.h"
#include "lab/bench/processes.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KILLS 6 // at different moments

static struct ls_loader *loader;
static const struct ls_opened_plugin *transport;

enum memory { MAPPED, COPIED };

struct parts {
    const struct ls_opened_plugin *collective;
    enum memory memory;
    uint64_t delay_us; // of a kill
};

static void open_parts(const char *collective, struct parts *out)
{
    ck_assert_int_eq(ls_loader_create(NULL, &loader), LS_OK);
    ck_assert_int_eq(
        ls_loader_open(loader, LS_KIND_TRANSPORT, "shared-memory", NULL, 0, &transport), LS_OK);
    ck_assert_int_eq(
        ls_loader_open(loader, LS_KIND_COLLECTIVE, collective, NULL, 0, &out->collective), LS_OK);
}

// ---- Deaths ----

// Reduces until something happens. Rank 1 is killed at a random moment, by a timer: nothing in it can see that coming.
static int reduce_until_lost(struct process *process, void *argument)
{
    const struct parts *parts = argument;
    const uint64_t count = 300007;
    struct process_reduction run;
    if (parts->memory == MAPPED && ls_segment_open())
        return 1;
    float *data = ls_segment_allocate(count * sizeof(*data), LS_ALIGNMENT);
    if (!data || process_open(process, transport) ||
        process_reduction_create(process, parts->collective, data, count, LS_F32, LS_MAX, &run))
        return 1;
    memset(data, 0, count * sizeof(*data));
    enum ls_status status = process_reduction_run(&run);
    if (process->rank == 1) {
        const struct itimerspec when = {.it_value = {.tv_nsec = (long)parts->delay_us * 1000 + 1}};
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
        timer_t timer;
        if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &when, NULL))
            return 1;
    }
    const uint64_t begin_ns = ls_clock_ns();
    while (!status && ls_clock_ns() - begin_ns < UINT64_C(5000000000))
        status = process_reduction_run(&run);
    const double took = (double)(ls_clock_ns() - begin_ns) * 1e-9;
    // Who waits for another survivor is not told by the transport; as a communicator does, the first one to know aborts.
    const struct ls_transport_interface *interface = process->opened->interface;
    interface->abort(process->endpoint);
    process_reduction_destroy(&run);
    process_close(process);
    ls_segment_free(data);
    if (took < 8 && (status == LS_PEER_LOST || status == LS_ABORTED)) // else a deadline has told it
        return 0;
    fprintf(stderr, "rank %u of %u ended after %.1f s: %s\n", process->rank, process->world, took,
            ls_status_text(status));
    return 1;
}

static const uint32_t worlds[] = {2, 3};

LOOP_TEST(a_process_that_is_killed_in_a_pass_is_an_error_for_the_others, 0, 4)
{
    struct parts parts;
    open_parts(_i % 2 ? "direct" : "ring", &parts);
    parts.memory = _i % 4 < 2 ? MAPPED : COPIED;
    for (uint64_t turn = 0; turn < KILLS; turn++) {
        const uint32_t world = worlds[turn % 2];
        parts.delay_us = ls_random_u64(ls_random_key(5, (uint64_t)_i), turn) % 4000;
        ck_assert_msg(processes_run(world, 0, reduce_until_lost, &parts) == 1,
                      "turn %u: more than the one that was killed did not end well",
                      (unsigned)turn);
    }
    ls_loader_destroy(loader);
}

// ---- Aborts ----

static struct shm_header *header_of(const struct process *process, uint32_t rank)
{
    const struct shm_shared *shared = process->endpoint->shared;
    return (struct shm_header *)(void *)shared->processes[shared->process_of[rank]].arena;
}

// Rank 2 aborts, but dies when only rank 0 has heard of it. Before rank 0 may free its memory, nobody begins another pass.
static int abort_half_way(struct process *process, void *argument)
{
    (void)argument;
    if (process_open(process, transport))
        return 1;
    const struct ls_transport_interface *interface = transport->interface;
    struct ls_transport *endpoint = process->endpoint;
    if (process->rank == 2)
        atomic_store(&header_of(process, 0)->aborted, 1);
    bool good = process_barrier(process);
    if (process->rank == 0)
        good &= interface->wait_any(endpoint, NULL, 0, 0) == LS_ABORTED;
    good &= process_barrier(process);
    if (process->rank == 1)
        good &= interface->peer_state(endpoint, 0) == LS_ABORTED;
    good &= process_barrier(process);
    process_close(process);
    return !good;
}

TEST(an_abort_that_was_told_to_one_reaches_all)
{
    struct parts parts;
    open_parts("ring", &parts);
    ck_assert_uint_eq(processes_run(3, 0, abort_half_way, NULL), 0);
    ls_loader_destroy(loader);
}

// Rank 1 is stopped in the middle of a pass. Rank 0 waits for its end once, however many calls there are.
static int leave_a_pass_that_never_ends(struct process *process, void *argument)
{
    (void)argument;
    process->deadline_ns = UINT64_C(400000000);
    if (process_open(process, transport))
        return 1;
    const struct ls_transport_interface *interface = transport->interface;
    struct ls_transport *endpoint = process->endpoint;
    if (process->rank == 1)
        atomic_store(&endpoint->own->active, 1);
    bool good = process_barrier(process);
    const uint64_t begin_ns = ls_clock_ns();
    if (process->rank == 0) {
        interface->abort(endpoint);
        for (int i = 0; i < 10; i++)
            good &= interface->wait_any(endpoint, NULL, 0, 0) == LS_PEER_LOST;
        good &= ls_clock_ns() - begin_ns < 3 * process->deadline_ns;
    }
    good &= process_barrier_within(process, UINT64_C(10000000000));
    process_close(process);
    return !good;
}

TEST(a_pass_that_never_ends_is_waited_for_once)
{
    struct parts parts;
    open_parts("ring", &parts);
    ck_assert_uint_eq(processes_run(2, 0, leave_a_pass_that_never_ends, NULL), 0);
    ls_loader_destroy(loader);
}

// ---- More processes than cores ----

// Who sleeps is woken: no run takes as long as its deadline, though most processes have no core most of the time.
static int reduce_often(struct process *process, void *argument)
{
    const struct parts *parts = argument;
    const uint64_t counts[] = {1, 20011};
    if (ls_segment_open() || process_open(process, transport))
        return 1;
    float *data = ls_segment_allocate(20011 * sizeof(*data), LS_ALIGNMENT);
    enum ls_status status = data ? LS_OK : LS_OUT_OF_MEMORY;
    for (int i = 0; i < 2 && !status; i++) {
        struct process_reduction run;
        status = process_reduction_create(process, parts->collective, data, counts[i], LS_F32,
                                          LS_SUM, &run);
        for (uint32_t turn = 0; turn < 200 && !status; turn++) {
            data[0] = data[counts[i] - 1] = (float)(process->rank + turn);
            status = process_reduction_run(&run);
            const float sum =
                (float)(process->world * (process->world - 1) / 2 + turn * process->world);
            if (data[0] != sum || data[counts[i] - 1] != sum)
                status = LS_FAILED;
        }
        process_reduction_destroy(&run);
    }
    ls_segment_free(data);
    process_close(process);
    return (int)status;
}

LOOP_TEST(eight_processes_share_few_cores, 0, 2)
{
    struct parts parts;
    open_parts(_i ? "direct" : "ring", &parts);
    ck_assert_uint_eq(processes_run(8, 0, reduce_often, &parts), 0);
    ls_loader_destroy(loader);
}

TEST_SECONDS(120);
