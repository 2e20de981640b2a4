// SPDX-License-Identifier: Apache-2.0
// Dependencies, segments and fused passes of compiled schedules, and rounds that contradict themselves.
#include "core/schedule/compile.h"
#include "tests/core/collective/support.h"

#define COUNT 4096

static enum ls_status compile(test_build_schedule build_schedule, uint32_t rank,
                              uint64_t segment_bytes, struct ls_compiled_schedule *out)
{
    const struct ls_collective_interface interface = {.struct_size = sizeof(interface),
                                                      .operations = 1u << LS_ALL_REDUCE,
                                                      .build_schedule = build_schedule};
    const struct ls_collective_call call = {.struct_size = sizeof(call),
                                            .operation = LS_ALL_REDUCE,
                                            .rank = rank,
                                            .world = 3,
                                            .count = COUNT,
                                            .element_bytes = 4};
    const struct ls_compile_options options = {.name = "test",
                                               .rank = rank,
                                               .world = 3,
                                               .element_bytes = 4,
                                               .segment_bytes = segment_bytes};
    struct ls_drawn_schedule drawn;
    ck_assert_int_eq(ls_schedule_draw(&interface, "test", &call, &drawn), LS_OK);
    const enum ls_status status = ls_compile_schedule(&drawn, &options, out);
    ls_drawn_schedule_finish(&drawn);
    return status;
}

// The first step of rank 0, then the second one, in one round or in two.
static struct {
    struct ls_step steps[2];
    int two_rounds;
} pair;

static int32_t describe_pair(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    (void)call;
    ls_scratch(schedule, COUNT);
    schedule->add(schedule, &pair.steps[0]);
    if (pair.two_rounds)
        ls_end_round(schedule);
    schedule->add(schedule, &pair.steps[1]);
    ls_end_round(schedule);
    return LS_OK;
}

static struct ls_step step(uint32_t kind, uint64_t first, uint64_t count, uint64_t from)
{
    return (struct ls_step){.struct_size = sizeof(struct ls_step),
                            .kind = kind,
                            .peer = kind < LS_STEP_REDUCE,
                            .range = ls_data_range(first, count),
                            .from = ls_data_range(from, kind < LS_STEP_REDUCE ? 0 : count)};
}

static void check_pair(struct ls_step first, struct ls_step second, const char *refusal)
{
    struct ls_compiled_schedule compiled;
    pair.steps[0] = first;
    pair.steps[1] = second;
    test_log_begin();
    pair.two_rounds = 0;
    const enum ls_status status = compile(describe_pair, 0, 0, &compiled);
    ls_log_set_writer(NULL, NULL);
    ck_assert_int_eq(status, refusal ? LS_FAILED : LS_OK);
    if (refusal)
        ck_assert_msg(strstr(test_log.text, refusal) &&
                          strstr(test_log.text, "rank 0 of 3, round 0"),
                      "%s", test_log.text);
    else
        ls_compiled_schedule_finish(&compiled);
    pair.two_rounds = 1;
    ck_assert_int_eq(compile(describe_pair, 0, 0, &compiled), LS_OK);
    ls_compiled_schedule_finish(&compiled);
}

START_TEST(a_round_that_contradicts_itself_is_refused)
{
    const uint32_t send = LS_STEP_SEND, receive = LS_STEP_RECEIVE, add = LS_STEP_RECEIVE_AND_REDUCE;
    check_pair(step(send, 0, 100, 0), step(receive, 99, 10, 0),
               "writes what another of the same round reads");
    check_pair(step(receive, 99, 10, 0), step(send, 0, 100, 0),
               "reads what another of the same round writes");
    check_pair(step(add, 0, 10, 0), step(send, 5, 10, 0),
               "reads what another of the same round writes");
    check_pair(step(send, 5, 10, 0), step(add, 0, 10, 0),
               "writes what another of the same round reads");
    check_pair(step(receive, 0, 10, 0), step(receive, 9, 10, 0), "two steps of one round write it");
    check_pair(step(receive, 0, 10, 0), step(add, 9, 10, 0), "two steps of one round write it");
    check_pair(step(LS_STEP_COPY, 0, 10, 100), step(LS_STEP_COPY, 105, 10, 200),
               "writes what another of the same round reads");
    check_pair(step(add, 0, 10, 0), step(add, 5, 10, 0), NULL);
    check_pair(step(add, 0, 10, 0), step(LS_STEP_REDUCE, 5, 10, 100), NULL);
    check_pair(step(send, 0, 10, 0), step(send, 5, 10, 0), NULL);
    check_pair(step(send, 0, 10, 0), step(receive, 10, 10, 0), NULL);
}
END_TEST

static int32_t overlaps_itself(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    (void)call;
    ls_end_round(schedule);
    ls_copy(schedule, ls_data_range(0, 1000), ls_data_range(999, 1000));
    return LS_OK;
}

START_TEST(a_step_that_overlaps_itself_is_refused)
{
    struct ls_compiled_schedule compiled;
    test_log_begin();
    ck_assert_int_eq(compile(overlaps_itself, 2, 256, &compiled), LS_FAILED);
    ls_log_set_writer(NULL, NULL);
    ck_assert_msg(strstr(test_log.text, "rank 2 of 3, round 1: copy of 1000 elements") != NULL,
                  "%s", test_log.text);
}
END_TEST

static int32_t add_and_return(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const struct ls_range range = ls_data_range(0, 1024);
    if (call->rank == 0)
        ls_receive_and_reduce(schedule, 1, range);
    else if (call->rank == 1)
        ls_send(schedule, 0, range);
    ls_end_round(schedule);
    if (call->rank == 0) {
        ls_send(schedule, 1, range);
        ls_send(schedule, 2, range);
    } else {
        ls_receive(schedule, 0, range);
    }
    ls_end_round(schedule);
    return LS_OK;
}

START_TEST(a_sum_and_its_send_are_one_pass)
{
    struct ls_compiled_schedule compiled;
    ck_assert_int_eq(compile(add_and_return, 0, 0, &compiled), LS_OK);
    ck_assert_uint_eq(compiled.operation_count, 3);
    const struct ls_compiled_operation *operations = compiled.operations;
    ck_assert_uint_eq(operations[0].kind, LS_TRANSFER_RECEIVE_REDUCE_SEND);
    ck_assert_uint_eq(operations[0].fused_send, 1);
    ck_assert_uint_eq(operations[0].destination, 1);
    ck_assert_uint_eq(compiled.first_count, 1); // the fused send is not posted
    ck_assert_uint_eq(operations[2].waits_for, 1);
    ck_assert_uint_eq(compiled.sent_bytes, 2 * 1024 * 4);
    ck_assert_uint_eq(compiled.round_count, 2);
    ls_compiled_schedule_finish(&compiled);
}
END_TEST

START_TEST(a_receive_of_what_was_sent_there_is_posted_at_once)
{
    struct ls_compiled_schedule compiled;
    ck_assert_int_eq(compile(add_and_return, 1, 0, &compiled), LS_OK);
    ck_assert_uint_eq(compiled.operation_count, 2);
    ck_assert_uint_eq(compiled.operations[1].waits_for, 0);
    ck_assert_uint_eq(compiled.operations[1].after, 0);
    ck_assert_uint_eq(compiled.first_count, 2);
    ck_assert_uint_eq(compiled.first[0], 1); // receives first
    ls_compiled_schedule_finish(&compiled);
}
END_TEST

START_TEST(segments_depend_on_their_own_range_only)
{
    struct ls_compiled_schedule compiled;
    ck_assert_int_eq(compile(add_and_return, 0, 1024, &compiled), LS_OK);
    ck_assert_uint_eq(compiled.operation_count, 12);
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert_uint_eq(compiled.operations[i].range.offset, 256 * i);
        ck_assert_uint_eq(compiled.operations[i].receive_number, i);
        ck_assert_uint_eq(compiled.operations[i].fused_send, 4 + i);
        ck_assert_uint_eq(compiled.operations[8 + i].waits_for, 1);
    }
    ck_assert_uint_eq(compiled.peer_count, 2);
    ck_assert_uint_eq(compiled.peers[0].sends, 4);
    ck_assert_uint_eq(compiled.peers[0].receives, 4);
    ck_assert_uint_eq(compiled.peers[1].sends, 4);
    ls_compiled_schedule_finish(&compiled);
}
END_TEST

static void add_tests(TCase *test_case)
{
    tcase_add_test(test_case, a_round_that_contradicts_itself_is_refused);
    tcase_add_test(test_case, a_step_that_overlaps_itself_is_refused);
    tcase_add_test(test_case, a_sum_and_its_send_are_one_pass);
    tcase_add_test(test_case, a_receive_of_what_was_sent_there_is_posted_at_once);
    tcase_add_test(test_case, segments_depend_on_their_own_range_only);
}

int main(void)
{
    return test_main("core/schedule/compile", add_tests, 0);
}
