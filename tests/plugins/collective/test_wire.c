// SPDX-License-Identifier: Apache-2.0
// Sums of float32 whose messages are of 16 bits, under every collective that describes its schedule: exact where the values
// are, else within the roundings on the way, and equal to the bit on all ranks.
#include "core/base/random.h"
#include "core/base/threads.h"
#include "core/collective/communicator.h"
#include "core/plugin/half.h"
#include "tests/support/plugin.h"
#include "tests/support/suite.h"

#include <check.h>
#include <math.h>

#define RANKS 8
#define COUNT 5003 // prime

static const struct ls_plugin *transport;

static const char *const collectives[] = {"collective-direct",   "collective-halving-doubling",
                                          "collective-ring",     "collective-hierarchical-copy",
                                          "collective-torus",    "collective-tree",
                                          "collective-two-level"};
static const uint64_t counts[] = {0, 1, 2, 63, 127, 1009, COUNT};

struct job {
    struct ls_communicator *communicator;
    uint32_t rank, wire, operation, rounds;
    uint64_t count, bytes;
    enum ls_status status;
    float given[COUNT], data[COUNT], again[COUNT];
};

static struct job jobs[RANKS];

static enum ls_status run_once(struct ls_collective_plan *plan)
{
    const enum ls_status status = ls_collective_start(plan);
    return status ? status : ls_collective_wait(plan);
}

static void *run(void *argument)
{
    struct job *job = argument;
    struct ls_collective_plan *plan = NULL;
    const struct ls_communicator_call call = {.operation = job->operation,
                                              .dtype = LS_F32,
                                              .reduction = LS_SUM,
                                              .buffer = ls_host_memory(job->data),
                                              .count = job->count,
                                              .wire = job->wire};
    job->status = ls_collective_plan_open(job->communicator, &call, "sum", &plan);
    for (uint32_t turn = 0; !job->status && turn < 2; turn++) {
        memcpy(job->again, job->data, sizeof(job->data));
        memcpy(job->data, job->given, sizeof(job->data));
        job->status = run_once(plan);
    }
    if (job->status)
        ls_communicator_abort(job->communicator);
    if (plan) {
        job->rounds = ls_collective_plan_rounds(plan);
        job->bytes = ls_collective_plan_bytes(plan);
    }
    ls_collective_plan_destroy(plan);
    return NULL;
}

static void run_all(const char *file, uint32_t world, uint64_t count, uint32_t wire,
                    uint32_t operation)
{
    const struct ls_plugin *collective = test_plugin_open(file);
    struct test_host hosts[2];
    struct ls_communicator *communicators[RANKS];
    pthread_t threads[RANKS];
    ck_assert_ptr_nonnull(collective);
    test_host_init(&hosts[0], collective);
    test_host_init(&hosts[1], transport);
    const struct ls_communicator_options options = {
        .collective = collective,
        .collective_host = &hosts[0].host,
        .transport = transport,
        .transport_host = &hosts[1].host,
        .world = world,
        .deadline_ns = UINT64_C(30000000000),
        .name = "test",
        .segment_bytes = 1024,
    };
    ck_assert_int_eq(ls_communicators_open(&options, communicators), LS_OK);
    for (uint32_t i = 0; i < world; i++) {
        jobs[i].communicator = communicators[i];
        jobs[i].rank = i;
        jobs[i].wire = wire;
        jobs[i].operation = operation;
        jobs[i].count = count;
        ck_assert_int_eq(ls_thread_start(&threads[i], "rank", run, &jobs[i]), LS_OK);
    }
    for (uint32_t i = 0; i < world; i++)
        pthread_join(threads[i], NULL);
    ls_communicators_close(communicators, world);
}

static void check_runs(const char *file, uint32_t world, uint64_t count)
{
    for (uint32_t i = 0; i < world; i++) {
        ck_assert_msg(jobs[i].status == LS_OK, "%s, rank %u of %u: status %d", file, i, world,
                      (int)jobs[i].status);
        ck_assert_msg(memcmp(jobs[i].data, jobs[0].data, count * sizeof(float)) == 0,
                      "%s, %u ranks, %u values: rank %u has other bits than rank 0", file, world,
                      (unsigned)count, i);
        ck_assert_mem_eq(jobs[i].data, jobs[i].again, count * sizeof(float));
    }
}

// Each loop has one collective.
TABLE_TEST(small_integers_are_added_exactly, collectives)
{
    for (uint32_t world = 1; world <= RANKS; world++)
        for (size_t k = 0; k < sizeof(counts) / sizeof(*counts); k++) {
            for (uint32_t i = 0; i < world; i++)
                for (uint64_t e = 0; e < COUNT; e++)
                    jobs[i].given[e] = (float)((e + 3 * i) % 29) - 7;
            run_all(collectives[_i], world, counts[k], k % 2 ? LS_BF16 : LS_F16, LS_ALL_REDUCE);
            check_runs(collectives[_i], world, counts[k]);
            for (uint64_t e = 0; e < counts[k]; e++) {
                float sum = 0;
                for (uint32_t i = 0; i < world; i++)
                    sum += jobs[i].given[e];
                ck_assert_msg(jobs[0].data[e] == sum, "%s, %u ranks, element %u: %g is not %g",
                              collectives[_i], world, (unsigned)e, jobs[0].data[e], sum);
            }
        }
}

static void check_near(const char *file, uint32_t world, uint32_t wire)
{
    const double unit = wire == LS_BF16 ? 0x1p-8 : 0x1p-11; // half of the distance to the next half
    uint32_t rounded = 0;
    for (uint64_t e = 0; e < COUNT; e++) {
        double sum = 0, size = 0;
        for (uint32_t i = 0; i < world; i++) {
            sum += (double)jobs[i].given[e];
            size += fabs((double)jobs[i].given[e]);
        }
        const double bound = (jobs[0].rounds + 1) * unit * size;
        const float result = jobs[0].data[e];
        ck_assert_msg(fabs((double)result - sum) <= bound,
                      "%s, %u ranks, element %u: %.9g is not %.9g, by more than %g", file, world,
                      (unsigned)e, (double)result, sum, bound);
        rounded += ls_half_get(wire, ls_half_of(wire, result)) == result;
    }
    ck_assert_msg(world == 1 || rounded == COUNT, "%s: results of more than 16 bits", file);
}

TABLE_TEST(sums_are_within_the_roundings_on_the_way, collectives)
{
    for (uint32_t world = 1; world <= RANKS; world++)
        for (uint32_t turn = 0; turn < 2; turn++) {
            const uint32_t wire = turn ? LS_BF16 : LS_F16;
            for (uint32_t i = 0; i < world; i++)
                for (uint64_t e = 0; e < COUNT; e++)
                    jobs[i].given[e] = (float)ls_random_normal(ls_random_key(world, i), e);
            run_all(collectives[_i], world, COUNT, wire, LS_ALL_REDUCE);
            check_runs(collectives[_i], world, COUNT);
            check_near(collectives[_i], world, wire);
        }
}

TABLE_TEST(messages_have_half_of_the_bytes, collectives)
{
    for (uint32_t wire = 0; wire <= LS_BF16; wire += LS_BF16) {
        static uint64_t whole;
        run_all(collectives[_i], 5, COUNT, wire, LS_ALL_REDUCE);
        ck_assert_int_eq(jobs[2].status, LS_OK);
        if (wire)
            ck_assert_uint_eq(2 * jobs[2].bytes, whole);
        whole = jobs[2].bytes;
        ck_assert_uint_gt(whole, 0);
    }
}

TEST_SECONDS(300);

int main(void)
{
    transport = test_plugin_open("transport-local");
    if (!transport)
        return TEST_SKIPPED;
    return test_suite_run("collective/wire");
}
