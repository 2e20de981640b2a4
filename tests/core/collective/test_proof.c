// SPDX-License-Identifier: Apache-2.0
// No plan runs whose schedule was not checked: it is verified, or held to a known answer.
#include "core/collective/known_values.h"
#include "core/schedule/schedule.h"
#include "tests/core/collective/support.h"

#define WORLD 3
#define COUNT 1000
#define DEADLINE_NS UINT64_C(1000000000)

// ---- Schedules ----

static _Atomic uint32_t describes;

static int32_t star(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const struct ls_range whole = ls_data_range(0, call->count);
    describes++;
    for (uint32_t peer = 1; peer < call->world && call->rank == 0; peer++)
        ls_receive_and_reduce(schedule, peer, whole);
    if (call->rank)
        ls_send(schedule, 0, whole);
    ls_end_round(schedule);
    for (uint32_t peer = 1; peer < call->world && call->rank == 0; peer++)
        ls_send(schedule, peer, whole);
    if (call->rank)
        ls_receive(schedule, 0, whole);
    return LS_OK;
}

// The last rank's is there twice.
static int32_t twice(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    if (call->rank == call->world - 1)
        ls_send(schedule, 0, ls_data_range(0, call->count));
    if (call->rank == 0)
        ls_receive_and_reduce(schedule, call->world - 1, ls_data_range(0, call->count));
    ls_end_round(schedule);
    return star(call, schedule);
}

// More rounds than are verified, without a step.
static void linger(struct ls_schedule *schedule)
{
    for (uint32_t i = 0; i < 1000000; i++)
        ls_end_round(schedule);
}

static int32_t long_star(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    linger(schedule);
    return star(call, schedule);
}

static int32_t long_twice(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    linger(schedule);
    return twice(call, schedule);
}

// Every chunk comes back one place further on.
static int32_t long_shifted(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    linger(schedule);
    star(call, schedule);
    ls_end_round(schedule);
    ls_scratch(schedule, call->count);
    ls_copy(schedule, ls_scratch_range(0, call->count), ls_data_range(0, call->count));
    ls_end_round(schedule);
    ls_copy(schedule, ls_data_range(64, call->count - 64), ls_scratch_range(0, call->count - 64));
    return LS_OK;
}

// As it was verified only as long as it is verified.
static int32_t changes(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    return describes > 1 + 2 * WORLD ? twice(call, schedule) : star(call, schedule);
}

static int32_t never_ends(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    while (call->count == COUNT)
        ls_end_round(schedule);
    return star(call, schedule);
}

static int32_t never_returns(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    volatile uint32_t turns = 0;
    while (call->count == COUNT && call->rank == 1)
        turns++;
    return star(call, schedule);
}

// ---- Plans of them ----

struct seen {
    enum ls_status made, started, answered, status;
    float data[COUNT];
    uint64_t wrong;
};

static void body(struct test_rank *rank)
{
    struct seen *seen = rank->context;
    struct ls_communicator *communicator = rank->collective->communicators[rank->number];
    const struct ls_known_call call = {.operation = LS_ALL_REDUCE,
                                       .dtype = LS_F32,
                                       .reduction = LS_SUM,
                                       .world = WORLD,
                                       .count = COUNT};
    struct ls_collective_plan *plan = NULL;
    ls_known_values_fill(&call, rank->number, seen->data);
    seen->made = ls_collective_plan_create(communicator, LS_ALL_REDUCE, ls_host_memory(seen->data),
                                           COUNT, LS_F32, LS_SUM, 0, "bucket 7", &plan);
    if (seen->made)
        return;
    seen->answered = ls_collective_known_answer(plan);
    if (!seen->answered)
        seen->started = ls_collective_start(plan);
    seen->status = seen->answered ? seen->answered : seen->started;
    if (!seen->status)
        seen->status = ls_collective_wait(plan);
    seen->wrong = seen->status ? 0 : ls_known_values_wrong(&call, rank->number, seen->data, NULL);
    ls_collective_plan_destroy(plan);
}

static struct seen seen[WORLD];
static enum ls_schedule_check checked;

static void run(test_build_schedule build_schedule)
{
    struct test_collective test;
    void *contexts[WORLD];
    memset(seen, 0, sizeof(seen));
    for (uint32_t i = 0; i < WORLD; i++)
        contexts[i] = &seen[i];
    describes = 0;
    test_log_begin();
    test_collective_open_as(&test, build_schedule, WORLD, 0, DEADLINE_NS, false);
    test_run_ranks(&test, body, contexts);
    checked = ls_communicator_check(test.communicators[0]);
    test_collective_close(&test);
    ls_log_set_writer(NULL, NULL);
}

// All is well, and checked in this way.
static void holds(test_build_schedule build_schedule, enum ls_schedule_check check)
{
    run(build_schedule);
    for (uint32_t i = 0; i < WORLD; i++) {
        ck_assert_msg(!seen[i].made && !seen[i].status, "%s", test_log.text);
        ck_assert_uint_eq(seen[i].wrong, 0);
    }
    ck_assert_int_eq(checked, check);
    ck_assert_str_eq(test_log.text, "");
}

// One line, with these words.
static void said(const char *words)
{
    ck_assert_msg(strstr(test_log.text, words) != NULL, "%s", test_log.text);
    ck_assert_ptr_eq(strchr(test_log.text, '\n') + 1, test_log.text + strlen(test_log.text));
}

TEST(what_is_verified_runs)
{
    holds(star, LS_CHECK_VERIFIED);
    ck_assert_str_eq(ls_schedule_check_text(checked), "verified");
}

TEST(what_is_proven_wrong_does_not)
{
    run(twice);
    for (uint32_t i = 0; i < WORLD; i++)
        ck_assert_int_eq(seen[i].made, LS_FAILED);
    said("test: collective test is wrong and was not run: all-reduce of 1000 elements, 3 ranks: "
         "rank 0, round 1: adds to "
         "elements 0 to 999 what rank 2 had, which is already in there; lockstep verify test "
         "--world=3 --count=1000 "
         "--ranks-per-host=3 --operation=all-reduce shows it");
}

TEST(what_was_verified_is_what_runs)
{
    holds(changes, LS_CHECK_VERIFIED);
}

TEST(what_is_too_large_is_held_to_a_known_answer)
{
    holds(long_star, LS_CHECK_KNOWN_ANSWER);
    ck_assert_str_eq(ls_schedule_check_text(checked), "known-answer");
}

static void answers_wrongly(test_build_schedule build_schedule)
{
    bool failed = false;
    run(build_schedule);
    for (uint32_t i = 0; i < WORLD; i++) {
        ck_assert(!seen[i].made && seen[i].answered);
        failed = failed || seen[i].answered == LS_FAILED;
    }
    ck_assert(failed);
    said("collective test is wrong: all-reduce (sum) of 1000 float32, bucket 7 on known values: "
         "rank ");
    said("; choose another collective");
}

TEST(a_wrong_known_answer_ends_it)
{
    answers_wrongly(long_twice);
    answers_wrongly(long_shifted);
}

static void start_at_once(struct test_rank *rank)
{
    struct seen *mine = rank->context;
    struct ls_collective_plan *plan = NULL;
    mine->made = ls_collective_plan_create(rank->collective->communicators[rank->number],
                                           LS_ALL_REDUCE, ls_host_memory(mine->data), COUNT, LS_F32,
                                           LS_SUM, 0, "bucket 7", &plan);
    if (!mine->made)
        mine->started = ls_collective_start(plan);
    ls_collective_plan_destroy(plan);
}

TEST(without_its_known_answer_no_such_plan_starts)
{
    struct test_collective test;
    void *contexts[WORLD] = {&seen[0], &seen[1], &seen[2]};
    test_log_begin();
    test_collective_open_as(&test, long_star, WORLD, 0, DEADLINE_NS, false);
    test_run_ranks(&test, start_at_once, contexts);
    for (uint32_t i = 0; i < WORLD; i++)
        ck_assert(!seen[i].made && seen[i].started == LS_FAILED);
    test_collective_close(&test);
    ls_log_set_writer(NULL, NULL);
}

TEST(a_schedule_without_end_is_refused)
{
    run(never_ends);
    for (uint32_t i = 0; i < WORLD; i++)
        ck_assert_int_eq(seen[i].made, LS_FAILED);
    ck_assert_ptr_nonnull(strstr(test_log.text, "steps and rounds: the schedule never ends"));
}

START_TEST(a_describe_that_never_returns_ends_the_process)
{
    run(never_returns);
}
END_TEST

// ---- The values ----

TEST(known_values_differ_and_sums_are_exact)
{
    static const uint32_t worlds[] = {2, 3, 8, 100, 256};
    for (size_t i = 0; i < sizeof(worlds) / sizeof(*worlds); i++)
        for (uint32_t dtype = LS_F32; dtype <= LS_F64; dtype++) {
            const struct ls_known_call call = {.operation = LS_ALL_REDUCE,
                                               .dtype = LS_F32,
                                               .reduction = dtype == LS_F32 ? LS_SUM : LS_MEAN,
                                               .world = worlds[i],
                                               .count = COUNT};
            static float one[COUNT], sum[COUNT], before[COUNT];
            uint32_t equal_ranks = 0, equal_elements = 0;
            memset(sum, 0, sizeof(sum));
            for (uint32_t rank = 0; rank < worlds[i]; rank++) {
                ls_known_values_fill(&call, rank, one);
                for (uint32_t k = 0; k < COUNT; k++) {
                    sum[k] += one[k];
                    equal_ranks += rank && one[k] == before[k];
                    equal_elements += k >= 64 && one[k] == one[k - 64];
                }
                memcpy(before, one, sizeof(before));
            }
            for (uint32_t k = 0; call.reduction == LS_MEAN && k < COUNT; k++)
                sum[k] /= (float)worlds[i];
            ck_assert_uint_eq(ls_known_values_wrong(&call, 0, sum, NULL), 0);
            if (call.reduction == LS_SUM) {
                ck_assert_uint_eq(equal_ranks, 0);
                ck_assert_uint_lt(equal_elements, COUNT * worlds[i] / 50);
            }
            sum[900] += 1;
            sum[901] += 1;
            uint64_t first = 0;
            ck_assert_uint_eq(ls_known_values_wrong(&call, 0, sum, &first), 2);
            ck_assert_uint_eq(first, 900);
        }
}

TEST_SECONDS(300);

int main(void)
{
    tcase_add_exit_test(test_registered(), a_describe_that_never_returns_ends_the_process,
                        LS_PEER_LOST);
    return test_plugin_open("transport-local") ? test_suite_run("proof") : TEST_SKIPPED;
}
