// SPDX-License-Identifier: Apache-2.0
// The option `groups`: any number from 1 to the world gives the sum, others are refused; and the work is shared
// evenly where the groups are equal.
#include "core/base/threads.h"
#include "core/collective/communicator.h"
#include "core/schedule/schedule.h"
#include "tests/support/plugin.h"
#include "tests/support/errors.h"
#include "tests/support/suite.h"

#include <check.h>

#define RANKS 13
#define COUNT 20011

static const struct ls_plugin *transport;
static const char *groups;

static const char *option(const struct ls_host *host, const char *name)
{
    (void)host;
    return strcmp(name, "groups") == 0 ? groups : NULL;
}

struct job {
    struct ls_communicator *communicator;
    uint32_t rank;
    enum ls_status status;
    int64_t data[COUNT];
};

static struct job jobs[RANKS];

static void *run(void *argument)
{
    struct job *job = argument;
    struct ls_collective_plan *plan = NULL;
    for (uint32_t i = 0; i < COUNT; i++)
        job->data[i] = (int64_t)(job->rank + 1) * i;
    job->status =
        ls_collective_plan_create(job->communicator, LS_ALL_REDUCE, ls_host_memory(job->data),
                                  COUNT, LS_I64, LS_SUM, 0, "sum", &plan);
    if (!job->status)
        job->status = ls_collective_start(plan);
    if (!job->status)
        job->status = ls_collective_wait(plan);
    if (job->status)
        ls_communicator_abort(job->communicator);
    ls_collective_plan_destroy(plan);
    return NULL;
}

static enum ls_status open_with(const char *value, uint32_t world, struct test_host hosts[2],
                                struct ls_communicator **out)
{
    const struct ls_plugin *collective = test_plugin_open("collective-hierarchical-copy");
    ck_assert_ptr_nonnull(collective);
    test_host_init(&hosts[0], collective);
    test_host_init(&hosts[1], transport);
    hosts[0].host.option = option;
    groups = value;
    const struct ls_communicator_options options = {
        .collective = collective,
        .collective_host = &hosts[0].host,
        .transport = transport,
        .transport_host = &hosts[1].host,
        .world = world,
        .deadline_ns = UINT64_C(30000000000),
        .name = "test",
        .segment_bytes = 4096,
    };
    return ls_communicators_open(&options, out);
}

static void check_sum(const char *value, uint32_t world)
{
    struct test_host hosts[2];
    struct ls_communicator *communicators[RANKS];
    pthread_t threads[RANKS];
    ck_assert_int_eq(open_with(value, world, hosts, communicators), LS_OK);
    for (uint32_t i = 0; i < world; i++) {
        jobs[i].communicator = communicators[i];
        jobs[i].rank = i;
        ck_assert_int_eq(ls_thread_start(&threads[i], "rank", run, &jobs[i]), LS_OK);
    }
    for (uint32_t i = 0; i < world; i++)
        pthread_join(threads[i], NULL);
    ls_communicators_close(communicators, world);
    for (uint32_t i = 0; i < world; i++) {
        ck_assert_int_eq(jobs[i].status, LS_OK);
        for (uint32_t k = 0; k < COUNT; k++)
            ck_assert_int_eq(jobs[i].data[k], (int64_t)world * (world + 1) / 2 * k);
    }
}

TEST(any_number_of_groups_up_to_the_world_gives_the_sum)
{
    static const uint32_t worlds[] = {1, 2, 3, 5, 7, 13};
    for (size_t i = 0; i < sizeof(worlds) / sizeof(*worlds); i++) {
        for (uint32_t count = 1; count <= worlds[i]; count++) {
            char text[16];
            snprintf(text, sizeof(text), "%u", count);
            check_sum(text, worlds[i]);
        }
        check_sum(NULL, worlds[i]);
        check_sum("0", worlds[i]); // one host, so one group
    }
}

TEST(groups_that_do_not_fit_are_refused_once_by_name)
{
    struct test_host hosts[2];
    struct ls_communicator *communicators[RANKS];
    forget_errors();
    expect_error(open_with("5", 4, hosts, communicators), LS_USAGE,
                 "hierarchical-copy: groups=5 does not fit 4 ranks; choose 1 to 4, or 0 where "
                 "hosts are known");
    ck_assert_int_eq(open_with("-1", 4, hosts, communicators), LS_USAGE);
    ck_assert_int_eq(open_with("99999999999999999999", 4, hosts, communicators), LS_USAGE);
}

TEST(equal_groups_share_the_work_evenly)
{
    const struct ls_plugin *collective = test_plugin_open("collective-hierarchical-copy");
    struct test_host host;
    test_host_init(&host, collective);
    for (uint32_t world = 2; world <= 16; world += 2) {
        uint64_t least = UINT64_MAX, most = 0;
        for (uint32_t rank = 0; rank < world; rank++) {
            const struct ls_collective_call call = {.struct_size = sizeof(call),
                                                    .operation = LS_ALL_REDUCE,
                                                    .rank = rank,
                                                    .world = world,
                                                    .count = 64 * 16 * world,
                                                    .element_bytes = 4,
                                                    .host = &host.host};
            struct ls_drawn_schedule drawn;
            uint64_t sent = 0;
            ck_assert_int_eq(ls_schedule_draw(collective->interface, "test", &call, &drawn), LS_OK);
            for (size_t i = 0; i < drawn.step_count; i++)
                if (drawn.steps[i].step.kind == LS_STEP_SEND)
                    sent += drawn.steps[i].step.range.count;
            ls_drawn_schedule_finish(&drawn);
            least = sent < least ? sent : least;
            most = sent > most ? sent : most;
        }
        ck_assert_uint_eq(least, most);
    }
}

TEST_SECONDS(300);

int main(void)
{
    transport = test_plugin_open("transport-local");
    if (!transport)
        return TEST_SKIPPED;
    return test_suite_run("plugins/collective/hierarchical-copy");
}
