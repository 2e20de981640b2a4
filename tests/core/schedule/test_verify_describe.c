// SPDX-License-Identifier: Apache-2.0
// What the verifier makes of a build_schedule that does not end, fails or changes its mind, of each operation, and of cases
// that are none.
#include "tests/core/schedule/verifying.h"

// ---- Describe itself ----

static int32_t never_ends(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    while (ls_send(schedule, !call->rank, whole) == LS_OK)
        ls_end_round(schedule);
    return LS_OK;
}

static int32_t never_ends_empty(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    (void)call;
    while (ls_end_round(schedule) == LS_OK)
        ;
    return LS_OK;
}

static int32_t never_ends_dropped(const struct ls_collective_call *call,
                                  struct ls_schedule *schedule)
{
    while (ls_send(schedule, !call->rank, ls_data_range(0, 0)) == LS_OK)
        ;
    return LS_OK;
}

static int32_t wants_all_memory(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    (void)call;
    return ls_scratch(schedule, UINT64_MAX);
}

// Doubles its intervals with every copy.
static int32_t cuts_without_end(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    ls_scratch(schedule, UINT64_C(1) << 35);
    ls_copy(schedule, ls_scratch_range(1, 1), ls_data_range(7, 1));
    ls_copy(schedule, ls_scratch_range(0, 1), ls_data_range(3, 1));
    ls_end_round(schedule);
    for (uint64_t have = 2; have < UINT64_C(1) << 35; have *= 2) {
        ls_copy(schedule, ls_scratch_range(have, have), ls_scratch_range(0, have));
        ls_end_round(schedule);
    }
    (void)call;
    return LS_OK;
}

TEST(a_schedule_that_does_not_end_is_refused_at_the_limit)
{
    struct ls_verify_case verified = {.operation = LS_ALL_REDUCE,
                                      .world = 2,
                                      .count = COUNT,
                                      .element_bytes = 4,
                                      .most_steps = 1000};
    struct ls_verification found = verify_case(never_ends, &verified, 1);
    ck_assert_uint_eq(found.verdict, LS_VERDICT_LIMIT);
    ck_assert_uint_eq(found.round, 500);
    ck_assert_str_eq(
        found.reason,
        "rank 0, round 500: the ranks have described more than 1000 steps and rounds "
        "together; either this one never ends, or the schedule is too large to verify");
    found = verify_case(never_ends_empty, &verified, 1);
    ck_assert_uint_eq(found.verdict, LS_VERDICT_LIMIT);
    found = verify_case(never_ends_dropped, &verified, 1);
    ck_assert_uint_eq(found.verdict, LS_VERDICT_LIMIT);
    found = verify_case(wants_all_memory, &verified, 1);
    ck_assert_uint_eq(found.verdict, LS_VERDICT_DESCRIBE);
    verified.most_steps = 0;
    found = verify_case(never_ends, &verified, 1);
    ck_assert_uint_eq(found.verdict, LS_VERDICT_LIMIT);
    found = verify_case(cuts_without_end, &verified, 1);
    ck_assert_uint_eq(found.verdict, LS_VERDICT_LIMIT);
    ck_assert_ptr_nonnull(strstr(found.reason, "cuts the buffers"));
}

static uint32_t calls;

static int32_t deaf(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    (void)call;
    for (;;) {
        ls_end_round(schedule);
        calls++;
    }
    return LS_OK;
}

TEST(a_describe_that_goes_on_after_failures_is_left)
{
    const struct ls_verify_case verified = {.operation = LS_ALL_REDUCE,
                                            .world = 2,
                                            .count = COUNT,
                                            .element_bytes = 4,
                                            .most_steps = 10};
    ck_assert_uint_eq(verify_case(deaf, &verified, 1).verdict, LS_VERDICT_LIMIT);
    ck_assert_uint_gt(calls, 1000);
}

static int32_t declines(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    (void)schedule;
    return ls_host_fail(call->host, LS_USAGE, "world %u is no power of two", call->world);
}

static int32_t some_decline(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    return call->rank == 2 ? declines(call, schedule) : LS_OK;
}

static int32_t fails(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    (void)schedule;
    return call->rank == 1 ? ls_host_fail(call->host, LS_FAILED, "it rains") : LS_OK;
}

static int32_t fails_with_nothing(const struct ls_collective_call *call,
                                  struct ls_schedule *schedule)
{
    (void)schedule;
    return (call->host->fail)(call->host, LS_FAILED, NULL); // Check has a macro of that name
}

static int32_t changes_its_mind(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    static uint32_t times;
    star(call, schedule);
    if (times++ >= call->world)
        ls_end_round(schedule);
    return LS_OK;
}

TEST(what_describe_says_of_a_call_is_judged)
{
    struct ls_verification found = verify(declines, 3);
    ck_assert_uint_eq(found.verdict, LS_VERDICT_DECLINED);
    ck_assert_str_eq(found.reason, "world 3 is no power of two");
    refused(some_decline, 3, LS_VERDICT_DESCRIBE, 2, 0, 0, 0,
            "rank 2, round 0: declines what rank 0 describes");
    refused(fails, 3, LS_VERDICT_DESCRIBE, 1, 0, 0, 0,
            "rank 1, round 0: build_schedule fails: it rains");
    refused(fails_with_nothing, 3, LS_VERDICT_DESCRIBE, 0, 0, 0, 0,
            "rank 0, round 0: build_schedule fails: it gives no reason");
    refused(changes_its_mind, 3, LS_VERDICT_DESCRIBE, 0, 0, 0, 0,
            "rank 0, round 0: describes another schedule when it is asked a second time");
}

// ---- The other operations ----

static int32_t parts(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const uint32_t peer = !call->rank;
    switch (call->operation) {
    case LS_REDUCE_SCATTER:
        ls_send(schedule, peer, ls_chunk(call, peer));
        return ls_receive_and_reduce(schedule, peer, ls_chunk(call, call->rank));
    case LS_ALL_GATHER:
        ls_send(schedule, peer, ls_chunk(call, call->rank));
        return ls_receive(schedule, peer, ls_chunk(call, peer));
    case LS_BROADCAST:
        return call->rank == call->root ? ls_send(schedule, peer, whole)
                                        : ls_receive(schedule, peer, whole);
    case LS_REDUCE:
        return call->rank == call->root ? ls_receive_and_reduce(schedule, peer, whole)
                                        : ls_send(schedule, peer, whole);
    case LS_ALL_TO_ALL:
        ls_scratch(schedule, COUNT / 2);
        ls_send(schedule, peer, ls_block(call, peer));
        ls_receive(schedule, peer, ls_scratch_range(0, COUNT / 2));
        ls_end_round(schedule);
        return ls_copy(schedule, ls_block(call, peer), ls_scratch_range(0, COUNT / 2));
    default: return star(call, schedule);
    }
}

// The same with the parts, or the root, of the other rank.
static int32_t other_parts(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    struct ls_collective_call other = *call;
    const uint32_t peer = !call->rank;
    other.root = !call->root;
    if (call->operation == LS_ALL_GATHER) {
        ls_send(schedule, peer, ls_chunk(call, peer));
        return ls_receive(schedule, peer, ls_chunk(call, call->rank));
    }
    if (call->operation == LS_REDUCE_SCATTER) {
        ls_send(schedule, peer, ls_chunk(call, call->rank));
        return ls_receive_and_reduce(schedule, peer, ls_chunk(call, peer));
    }
    if (call->operation == LS_ALL_TO_ALL) {
        ls_send(schedule, peer, ls_block(call, call->rank));
        return ls_receive(schedule, peer, ls_block(call, peer));
    }
    return parts(&other, schedule);
}

TEST(each_operation_is_held_to_its_own_result)
{
    static const char *const reasons[] = {
        [LS_REDUCE_SCATTER] = "rank 0, in the end: elements 0 to 127 lack what rank 1 had",
        [LS_ALL_GATHER] =
            "rank 0, in the end: elements 0 to 127 are what rank 1 had instead of what rank 0 had",
        [LS_BROADCAST] =
            "rank 0, in the end: elements 0 to 255 are what rank 0 had instead of what rank 1 had",
        [LS_REDUCE] = "rank 1, in the end: elements 0 to 255 lack what rank 0 had",
        [LS_ALL_TO_ALL] = "rank 0, in the end: elements 128 to 255 are elements 128 to 255 of rank "
                          "1 instead of its elements 0 to 127",
    };
    for (uint32_t operation = LS_REDUCE_SCATTER; operation <= LS_ALL_TO_ALL; operation++) {
        const struct ls_verify_case verified = {.operation = operation,
                                                .world = 2,
                                                .root = operation == LS_BROADCAST ||
                                                        operation == LS_REDUCE,
                                                .count = COUNT,
                                                .element_bytes = 4};
        struct ls_verification found = verify_case(parts, &verified, 1);
        ck_assert_msg(found.verdict == LS_VERDICT_HOLDS, "%s", found.reason);
        found = verify_case(other_parts, &verified, 1);
        ck_assert_uint_eq(found.verdict, LS_VERDICT_RESULT);
        ck_assert_str_eq(found.reason, reasons[operation]);
    }
}

// ---- Words ----

// The last rank's first element is forgotten.
static int32_t lacks_one(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const struct ls_range rest = ls_data_range(1, COUNT - 1);
    for (uint32_t peer = 1; peer < call->world && !call->rank; peer++)
        ls_receive_and_reduce(schedule, peer, peer + 1 < call->world ? whole : rest);
    if (call->rank)
        ls_send(schedule, 0, call->rank + 1 < call->world ? whole : rest);
    ls_end_round(schedule);
    share_from_root(call, schedule);
    return LS_OK;
}

// An empty range behind the buffer on every rank, and then one that has elements on rank 1.
static int32_t empty_and_outside(const struct ls_collective_call *call,
                                 struct ls_schedule *schedule)
{
    const uint32_t peer = !call->rank;
    ls_send(schedule, peer, ls_data_range(COUNT + 64, 0));
    ls_receive(schedule, peer, ls_data_range(COUNT + 64, 0));
    star(call, schedule);
    ls_end_round(schedule);
    if (call->rank)
        ls_send(schedule, 0, ls_data_range(COUNT, 1));
    return LS_OK;
}

static int32_t empty_outside(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    ls_copy(schedule, ls_data_range(COUNT + 64, 0), ls_scratch_range(7, 0));
    return star(call, schedule);
}

// Each rank adds the others to its own, one after the other.
static int32_t own_order(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const struct ls_range all = ls_data_range(0, 1);
    ls_scratch(schedule, call->world);
    for (uint32_t peer = 0; peer < call->world; peer++)
        if (peer != call->rank) {
            ls_send(schedule, peer, all);
            ls_receive(schedule, peer, ls_scratch_range(peer, 1));
        }
    ls_end_round(schedule);
    for (uint32_t peer = 0; peer < call->world; peer++)
        if (peer != call->rank)
            ls_reduce(schedule, all, ls_scratch_range(peer, 1));
    return LS_OK;
}

TEST(one_element_lacks)
{
    refused(lacks_one, 3, LS_VERDICT_RESULT, 0, 2, 0, 1,
            "rank 0, in the end: element 0 lacks what rank 2 had");
}

TEST(out_of_bounds_is_shown_by_elements)
{
    refused(empty_and_outside, 2, LS_VERDICT_DESCRIBE, 1, 3, COUNT, 1,
            "rank 1, round 3: send of element 256: element 256 lies outside the buffer, which has "
            "256");
    ck_assert_uint_eq(verify(empty_outside, 2).verdict, LS_VERDICT_HOLDS);
}

TEST(an_order_that_is_cut_says_so)
{
    struct ls_verify_case verified = {
        .operation = LS_ALL_REDUCE, .world = 3, .count = 1, .element_bytes = 4};
    struct ls_verification found = verify_case(own_order, &verified, 1);
    ck_assert_uint_eq(found.verdict, LS_VERDICT_ORDER);
    ck_assert_str_eq(found.reason,
                     "rank 2, in the end: element 0 is added in another order than at "
                     "rank 0: (1 + (0 + 2)) here, (2 + (0 + 1)) there");
    verified.world = 40;
    found = verify_case(own_order, &verified, 1);
    ck_assert_uint_eq(found.verdict, LS_VERDICT_ORDER);
    ck_assert_ptr_nonnull(strstr(found.reason, "... here, "));
    ck_assert_str_eq(found.reason + strlen(found.reason) - strlen("... there"), "... there");
}

TEST(a_case_that_is_none_is_refused)
{
    const struct ls_collective_interface interface = {.struct_size = sizeof(interface),
                                                      .operations = 1u << LS_ALL_REDUCE,
                                                      .build_schedule = star};
    const struct ls_verify_case good = {
        .operation = LS_ALL_REDUCE, .world = 2, .count = 1, .element_bytes = 4};
    struct ls_verification found;
    struct ls_verify_case bad[] = {good, good, good, good, good, good, good};
    bad[0].operation = 9;
    bad[1].world = 0;
    bad[2].world = LS_VERIFY_WORLD + 1;
    bad[3].root = 2;
    bad[4].count = LS_VERIFY_COUNT + 1;
    bad[5].element_bytes = 0;
    bad[6].operation = LS_ALL_TO_ALL; // of no equal blocks
    test_log_begin();
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_int_eq(ls_verify_schedule(&interface, NULL, &bad[i], &found), LS_USAGE);
    ls_log_set_writer(NULL, NULL);
}

TEST_SECONDS(300);
