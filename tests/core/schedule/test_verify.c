// SPDX-License-Identifier: Apache-2.0
// Schedules that are broken in one place are refused there, in words.
#include "tests/core/schedule/verifying.h"

#define CHUNK 64

TEST(a_star_holds_and_its_rounds_and_bytes_are_counted)
{
    const struct ls_verification found = verify(star, 4);
    ck_assert_msg(found.verdict == LS_VERDICT_HOLDS, "%s", found.reason);
    ck_assert_uint_eq(found.rounds, 2);
    ck_assert_uint_eq(found.steps, 12);
    ck_assert_uint_eq(found.messages_at_once, 3);
    ck_assert_uint_eq(found.least_rounds, 1);
    ck_assert_uint_eq(found.most_bytes, 3 * COUNT * 4);
    ck_assert_double_eq(found.least_bytes, 2 * 0.75 * COUNT * 4);
    ck_assert(found.same_order);
    ck_assert_uint_ne(found.fingerprint, verify(star, 3).fingerprint);
}

// ---- Messages ----

static int32_t missing_receive(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    if (call->rank == 2) {
        add_at_root(call, schedule);
        return LS_OK;
    }
    return star(call, schedule);
}

static int32_t missing_send(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    if (call->rank != 2)
        return star(call, schedule);
    ls_end_round(schedule);
    share_from_root(call, schedule);
    return LS_OK;
}

TEST(a_message_that_one_side_does_not_know_is_refused)
{
    refused(
        missing_receive, 4, LS_VERDICT_MATCH, 0, 1, 0, COUNT,
        "rank 0, round 1: sends elements 0 to 255 to rank 2, which receives nothing from rank 0 in "
        "its round 1");
    refused(
        missing_send, 4, LS_VERDICT_MATCH, 0, 0, 0, COUNT,
        "rank 0, round 0: receives elements 0 to 255 from rank 2, which sends nothing to rank 0 in "
        "its round 0");
}

// The plugin's ring with its second half begun at the wrong peer.
static int32_t wrong_peer(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const uint32_t world = call->world, rank = call->rank;
    for (uint32_t round = 0; round + 1 < world; round++) {
        const uint32_t next = round == 1 && rank == 3 ? 1 : (rank + 1) % world;
        ls_send(schedule, next, ls_chunk(call, rank + 2 * world - round - 1));
        ls_receive_and_reduce(schedule, (rank + world - 1) % world,
                              ls_chunk(call, rank + 2 * world - round - 2));
        ls_end_round(schedule);
    }
    return LS_OK;
}

TEST(a_peer_that_is_one_off_is_refused_where_it_is)
{
    refused(
        wrong_peer, 4, LS_VERDICT_MATCH, 0, 1, 64, CHUNK,
        "rank 0, round 1: receives elements 64 to 127 from rank 3, which sends nothing to rank 0 "
        "in its round 1 (in all, 2 are sent and 3 are received)");
}

static int32_t wrong_count(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    if (call->rank != 2)
        return star(call, schedule);
    ls_send(schedule, 0, ls_data_range(0, COUNT - 1));
    ls_end_round(schedule);
    share_from_root(call, schedule);
    return LS_OK;
}

TEST(a_message_of_two_lengths_is_refused)
{
    refused(wrong_count, 4, LS_VERDICT_MATCH, 0, 0, 0, COUNT,
            "rank 0, round 0: receives elements 0 to 255 from rank 2, which sends elements 0 to "
            "254 as that "
            "message (number 0 between the two) in its round 0: 256 and 255 elements");
}

// Two messages of one pair, sent in one order and received in the other.
static int32_t wrong_order(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const struct ls_range low = ls_data_range(0, 128), high = ls_data_range(128, 128);
    add_at_root(call, schedule);
    if (call->rank) {
        ls_receive(schedule, 0, call->rank == 2 ? high : low);
        ls_receive(schedule, 0, call->rank == 2 ? low : high);
        return LS_OK;
    }
    for (uint32_t peer = 1; peer < call->world; peer++) {
        ls_send(schedule, peer, low);
        ls_send(schedule, peer, high);
    }
    return LS_OK;
}

TEST(two_messages_of_a_pair_in_the_wrong_order_are_refused)
{
    refused(wrong_order, 4, LS_VERDICT_RESULT, 2, 2, 0, 128,
            "rank 2, in the end: elements 0 to 127 have what belongs to elements 128 to 255");
}

// ---- Deadlocks ----

// Each of two ranks sends to the other in one round and receives in the next.
static int32_t both_send_first(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const uint32_t other = 1 - call->rank;
    ls_scratch(schedule, COUNT);
    ls_send(schedule, other, whole);
    ls_end_round(schedule);
    ls_receive(schedule, other, ls_scratch_range(0, COUNT));
    ls_end_round(schedule);
    return ls_reduce(schedule, whole, ls_scratch_range(0, COUNT));
}

// A ring in which all receive before they send.
static int32_t all_receive_first(const struct ls_collective_call *call,
                                 struct ls_schedule *schedule)
{
    ls_scratch(schedule, COUNT);
    ls_receive(schedule, (call->rank + 1) % call->world, ls_scratch_range(0, COUNT));
    ls_end_round(schedule);
    return ls_send(schedule, (call->rank + call->world - 1) % call->world, whole);
}

// Rank 0 adds first what rank 1 sends, in its second round, after it has heard from rank 2, which first wants rid
// of its own part.
static int32_t order_of_reductions(const struct ls_collective_call *call,
                                   struct ls_schedule *schedule)
{
    const struct ls_range one = ls_scratch_range(0, 1);
    ls_scratch(schedule, 1);
    if (call->rank == 0)
        return ls_receive_and_reduce(schedule, 1, whole), ls_receive_and_reduce(schedule, 2, whole);
    if (call->rank == 2) {
        ls_send(schedule, 0, whole);
        ls_end_round(schedule);
        return ls_send(schedule, 1, ls_data_range(0, 1));
    }
    ls_receive(schedule, 2, one);
    ls_end_round(schedule);
    return ls_send(schedule, 0, whole);
}

TEST(ranks_that_wait_for_each_other_are_refused)
{
    refused(both_send_first, 2, LS_VERDICT_DEADLOCK, 0, 0, 0, COUNT,
            "rank 0, round 0: deadlock: sends elements 0 to 255 to rank 1, which receives it only "
            "in its "
            "round 1 and cannot leave its round 0; each waits for the next: ranks 0, 1, 0");
    refused(all_receive_first, 12, LS_VERDICT_DEADLOCK, 0, 0, 0, COUNT,
            "rank 0, round 0: deadlock: receives elements 0 to 255 of scratch from rank 1, which "
            "sends it "
            "only in its round 1 and cannot leave its round 0; each waits for the next: ranks 0, "
            "1, 2, 3, "
            "4, 5, 6, 7, ... (12 in all)");
    refused(
        order_of_reductions, 3, LS_VERDICT_DEADLOCK, 0, 0, 0, COUNT,
        "rank 0, round 0: deadlock: receives elements 0 to 255 from rank 1, which sends it only in "
        "its round 1 and cannot leave its round 0; each waits for the next: ranks 0, 1, 2, 0");
}

// ---- Within a round ----

static int32_t reads_what_it_writes(const struct ls_collective_call *call,
                                    struct ls_schedule *schedule)
{
    const uint32_t other = 1 - call->rank;
    ls_send(schedule, other, whole);
    return ls_receive_and_reduce(schedule, other, ls_data_range(100, 156)),
           ls_receive_and_reduce(schedule, other, ls_data_range(0, 100));
}

static int32_t matched_but_read_and_written(const struct ls_collective_call *call,
                                            struct ls_schedule *schedule)
{
    const uint32_t other = 1 - call->rank;
    ls_send(schedule, other, ls_data_range(0, 200));
    ls_receive_and_reduce(schedule, other, ls_data_range(56, 200));
    return LS_OK;
}

static int32_t copies_onto_itself(const struct ls_collective_call *call,
                                  struct ls_schedule *schedule)
{
    if (call->rank == 1) {
        ls_end_round(schedule);
        ls_copy(schedule, ls_data_range(10, 20), ls_data_range(0, 20));
    }
    return LS_OK;
}

static int32_t written_twice(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    add_at_root(call, schedule);
    if (call->rank != 1)
        return share_from_root(call, schedule), LS_OK;
    ls_scratch(schedule, 1);
    ls_copy(schedule, ls_scratch_range(0, 1), ls_data_range(0, 1));
    ls_end_round(schedule);
    ls_receive(schedule, 0, whole);
    ls_copy(schedule, ls_data_range(255, 1), ls_scratch_range(0, 1));
    return LS_OK;
}

TEST(an_element_read_and_written_in_one_round_is_refused)
{
    ck_assert_uint_eq(verify(reads_what_it_writes, 2).verdict, LS_VERDICT_MATCH);
    refused(
        matched_but_read_and_written, 2, LS_VERDICT_CONFLICT, 0, 0, 56, 144,
        "rank 0, round 0: one step reduces into elements 56 to 199, which another step of the same "
        "round reads");
    refused(
        copies_onto_itself, 2, LS_VERDICT_CONFLICT, 1, 1, 10, 10,
        "rank 1, round 1: one step writes elements 10 to 19, which the very same step of the same "
        "round reads");
    refused(written_twice, 3, LS_VERDICT_CONFLICT, 1, 2, 255, 1,
            "rank 1, round 2: one step writes element 255, which another step of the same round "
            "writes");
}

// ---- Contributions ----

static int32_t adds_twice(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    add_at_root(call, schedule);
    if (call->rank == 2)
        ls_send(schedule, 0, ls_data_range(64, 64));
    else if (call->rank == 0)
        ls_receive_and_reduce(schedule, 2, ls_data_range(64, 64));
    ls_end_round(schedule);
    share_from_root(call, schedule);
    return LS_OK;
}

static int32_t forgets_one(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    if (call->rank == 0) {
        ls_receive_and_reduce(schedule, 1, whole);
        ls_receive_and_reduce(schedule, 2, ls_data_range(0, 200));
    } else if (call->rank == 1) {
        ls_send(schedule, 0, whole);
    } else if (call->rank == 2) {
        ls_send(schedule, 0, ls_data_range(0, 200));
    }
    ls_end_round(schedule);
    share_from_root(call, schedule);
    return LS_OK;
}

static int32_t adds_other_elements(const struct ls_collective_call *call,
                                   struct ls_schedule *schedule)
{
    if (call->rank == 0) {
        ls_receive_and_reduce(schedule, 1, ls_data_range(0, 128));
        ls_receive_and_reduce(schedule, 1, ls_data_range(128, 128));
    } else {
        ls_send(schedule, 0, ls_data_range(128, 128));
        ls_send(schedule, 0, ls_data_range(0, 128));
    }
    ls_end_round(schedule);
    share_from_root(call, schedule);
    return LS_OK;
}

static int32_t result_on_some(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    add_at_root(call, schedule);
    if (call->rank == 0)
        ls_send(schedule, 1, whole);
    else if (call->rank == 1)
        ls_receive(schedule, 0, whole);
    return LS_OK;
}

TEST(contributions_missing_or_there_twice_are_refused)
{
    refused(
        adds_twice, 4, LS_VERDICT_RESULT, 0, 1, 64, 64,
        "rank 0, round 1: adds to elements 64 to 127 what rank 2 had, which is already in there");
    refused(forgets_one, 5, LS_VERDICT_RESULT, 0, 2, 0, 200,
            "rank 0, in the end: elements 0 to 199 lack what ranks 3 and 4 had");
    refused(adds_other_elements, 2, LS_VERDICT_RESULT, 0, 0, 0, 128,
            "rank 0, round 0: adds other elements to elements 0 to 127 of the result");
    refused(result_on_some, 3, LS_VERDICT_RESULT, 2, 1, 0, COUNT,
            "rank 2, in the end: elements 0 to 255 lack what ranks 0 and 1 had");
}

// ---- The order of additions ----

// Everybody sends to everybody; each rank adds the others in rank order to its own.
static int32_t own_first(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    ls_scratch(schedule, COUNT * call->world);
    for (uint32_t i = 1; i < call->world; i++) {
        const uint32_t from = (call->rank + call->world - i) % call->world;
        ls_send(schedule, (call->rank + i) % call->world, whole);
        ls_receive(schedule, from, ls_scratch_range((uint64_t)from * COUNT, COUNT));
    }
    ls_end_round(schedule);
    for (uint32_t peer = 0; peer < call->world; peer++)
        if (peer != call->rank)
            ls_reduce(schedule, whole, ls_scratch_range((uint64_t)peer * COUNT, COUNT));
    return LS_OK;
}

TEST(ranks_that_add_in_different_orders_are_refused_only_where_equal_bits_are_claimed)
{
    refused(own_first, 3, LS_VERDICT_ORDER, 2, 2, 0, COUNT,
            "rank 2, in the end: elements 0 to 255 are added in another order than at rank 0: (1 + "
            "(0 + "
            "2)) here, (2 + (0 + 1)) there");
    const struct ls_verify_case verified = {
        .operation = LS_ALL_REDUCE, .world = 3, .count = COUNT, .element_bytes = 4};
    const struct ls_verification found = verify_case(own_first, &verified, 0);
    ck_assert_uint_eq(found.verdict, LS_VERDICT_HOLDS);
    ck_assert(!found.same_order);
    // Of two, both orders are the same: a + b = b + a.
    ck_assert_uint_eq(verify(own_first, 2).verdict, LS_VERDICT_HOLDS);
}

// ---- Steps that mean nothing ----

static int32_t peer_outside(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    ls_end_round(schedule);
    return ls_send(schedule, call->rank + 1, whole);
}

static int32_t sends_to_itself(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    return ls_send(schedule, call->rank / 2, ls_data_range(3, 1));
}

static int32_t range_outside(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    if (call->rank == 1)
        ls_send(schedule, 0, ls_data_range(200, 57));
    return LS_OK;
}

static int32_t range_overflows(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    (void)call;
    ls_scratch(schedule, 10);
    return ls_copy(schedule, ls_scratch_range(UINT64_MAX, 2), ls_data_range(0, 2));
}

static int32_t lengths_differ(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    (void)call;
    return ls_copy(schedule, ls_data_range(0, 4), ls_data_range(8, 5));
}

static int32_t unknown_step(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    (void)call;
    return ls_add_step(schedule, 77, 0, whole, whole);
}

static int32_t unknown_buffer(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    return ls_send(schedule, !call->rank, (struct ls_range){7, 0, 0, 1});
}

TEST(steps_that_mean_nothing_are_refused)
{
    refused(peer_outside, 1, LS_VERDICT_DESCRIBE, 0, 1, 0, COUNT,
            "rank 0, round 1: send of elements 0 to 255: its peer is rank 1, and the world has "
            "ranks 0 to "
            "0");
    refused(sends_to_itself, 4, LS_VERDICT_DESCRIBE, 0, 0, 3, 1,
            "rank 0, round 0: send of element 3: its peer is the rank itself");
    refused(
        range_outside, 2, LS_VERDICT_DESCRIBE, 1, 0, 200, 57,
        "rank 1, round 0: send of elements 200 to 256: elements 200 to 256 lie outside the buffer, "
        "which has 256");
    refused(range_overflows, 2, LS_VERDICT_DESCRIBE, 0, 0, UINT64_MAX, 2,
            "rank 0, round 0: copy of elements 18446744073709551615 to 0 of scratch: elements "
            "18446744073709551615 to 0 of scratch lie outside the buffer, which has 10");
    refused(lengths_differ, 2, LS_VERDICT_DESCRIBE, 0, 0, 0, 4,
            "rank 0, round 0: copy of elements 0 to 3: the two ranges differ in length");
    refused(unknown_step, 2, LS_VERDICT_DESCRIBE, 0, 0, 0, COUNT,
            "rank 0, round 0: unknown step of elements 0 to 255: there is no such step");
    refused(unknown_buffer, 2, LS_VERDICT_DESCRIBE, 0, 0, 0, 1,
            "rank 0, round 0: send of element 0 of an unknown buffer: there is no buffer 7");
}

// ---- Scratch ----

static int32_t reads_scratch(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    add_at_root(call, schedule);
    ls_scratch(schedule, 100);
    if (call->rank == 2)
        ls_copy(schedule, ls_scratch_range(0, 40), ls_data_range(0, 40));
    ls_end_round(schedule);
    if (call->rank == 2)
        ls_send(schedule, 1, ls_scratch_range(0, 50));
    else if (call->rank == 1)
        ls_receive(schedule, 2, ls_scratch_range(0, 50));
    ls_end_round(schedule);
    share_from_root(call, schedule);
    return LS_OK;
}

static int32_t reduces_into_scratch(const struct ls_collective_call *call,
                                    struct ls_schedule *schedule)
{
    ls_scratch(schedule, 100);
    if (call->rank == 1)
        return ls_reduce(schedule, ls_scratch_range(20, 10), ls_data_range(20, 10));
    return LS_OK;
}

TEST(scratch_that_nobody_has_written_is_not_read)
{
    refused(reads_scratch, 3, LS_VERDICT_UNDEFINED, 2, 2, 40, 10,
            "rank 2, round 2: reads elements 40 to 49 of scratch, which nobody has written");
    refused(reduces_into_scratch, 2, LS_VERDICT_UNDEFINED, 1, 0, 20, 10,
            "rank 1, round 0: reads elements 20 to 29 of scratch, which nobody has written");
}

TEST_SECONDS(300);
