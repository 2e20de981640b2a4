// SPDX-License-Identifier: Apache-2.0
// Schedules are recorded as they were written; what cannot be meant is refused with rank, round and range.
#include "core/schedule/schedule.h"
#include "tests/core/collective/support.h"

static struct ls_collective_interface offering(test_build_schedule build_schedule)
{
    return (struct ls_collective_interface){.struct_size = sizeof(struct ls_collective_interface),
                                            .operations = 1u << LS_ALL_REDUCE,
                                            .build_schedule = build_schedule};
}

static struct ls_collective_call call_of(uint32_t operation, uint32_t rank, uint32_t world,
                                         uint64_t count)
{
    return (struct ls_collective_call){.struct_size = sizeof(struct ls_collective_call),
                                       .operation = operation,
                                       .rank = rank,
                                       .world = world,
                                       .count = count,
                                       .element_bytes = 4};
}

static enum ls_status draw(test_build_schedule build_schedule, struct ls_drawn_schedule *out)
{
    const struct ls_collective_interface interface = offering(build_schedule);
    const struct ls_collective_call call = call_of(LS_ALL_REDUCE, 1, 3, 100);
    return ls_schedule_draw(&interface, "test", &call, out);
}

static int32_t three_rounds(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    (void)call;
    ls_scratch(schedule, 10);
    ls_scratch(schedule, 7);
    ls_send(schedule, 0, ls_data_range(0, 100));
    ls_receive(schedule, 2, ls_data_range(100, 0));
    ls_end_round(schedule);
    ls_end_round(schedule);
    ls_add_step(schedule, LS_STEP_COPY, 77, ls_scratch_range(5, 5), ls_data_range(95, 5));
    return LS_OK;
}

TEST(steps_are_recorded_with_their_round_and_empty_ones_dropped)
{
    struct ls_drawn_schedule drawn;
    ck_assert_int_eq(draw(three_rounds, &drawn), LS_OK);
    ck_assert_uint_eq(drawn.step_count, 2);
    ck_assert_uint_eq(drawn.round_count, 3);
    ck_assert_uint_eq(drawn.scratch_count, 10);
    ck_assert_uint_eq(drawn.steps[0].step.kind, LS_STEP_SEND);
    ck_assert_uint_eq(drawn.steps[0].round, 0);
    ck_assert_uint_eq(drawn.steps[1].step.kind, LS_STEP_COPY);
    ck_assert_uint_eq(drawn.steps[1].round, 2);
    ck_assert_uint_eq(drawn.steps[1].step.peer, 0); // it has none, whatever the plugin says
    ls_drawn_schedule_finish(&drawn);
}

static int32_t peer_outside(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    (void)call;
    ls_end_round(schedule);
    ls_send(schedule, 3, ls_data_range(10, 20));
    ls_send(schedule, 99, ls_data_range(10, 20)); // only the first is reported
    return LS_OK;
}

static int32_t peer_itself(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    ls_receive(schedule, call->rank, ls_data_range(0, 1));
    return LS_OK;
}

static int32_t range_outside(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    (void)call;
    ls_receive(schedule, 0, ls_data_range(99, 2));
    return LS_OK;
}

static int32_t range_wraps(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    (void)call;
    ls_receive(schedule, 0, ls_data_range(2, UINT64_MAX));
    return LS_OK;
}

static int32_t scratch_not_asked_for(const struct ls_collective_call *call,
                                     struct ls_schedule *schedule)
{
    (void)call;
    ls_receive(schedule, 0, ls_scratch_range(0, 1));
    return LS_OK;
}

static int32_t lengths_differ(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    (void)call;
    ls_reduce(schedule, ls_data_range(0, 10), ls_data_range(20, 9));
    return LS_OK;
}

static int32_t unknown_step(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    (void)call;
    ls_add_step(schedule, 17, 0, ls_data_range(0, 1), ls_data_range(0, 0));
    return LS_OK;
}

static int32_t unknown_buffer(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const struct ls_range range = {.buffer = 2, .offset = 0, .count = 1};
    (void)call;
    ls_send(schedule, 0, range);
    return LS_OK;
}

static void check_refused(test_build_schedule build_schedule, const char *words)
{
    struct ls_drawn_schedule drawn = {.round_count = 42};
    test_log_begin();
    ck_assert_int_eq(draw(build_schedule, &drawn), LS_FAILED);
    ls_log_set_writer(NULL, NULL);
    ck_assert_msg(strstr(test_log.text, words) != NULL, "%s: %s", words, test_log.text);
    ck_assert_msg(strstr(test_log.text, "rank 1 of 3") != NULL, "%s", test_log.text);
    ck_assert_ptr_eq(strchr(test_log.text, '\n') + 1,
                     test_log.text + strlen(test_log.text)); // one line
    ck_assert_uint_eq(drawn.round_count, 42);
}

TEST(what_cannot_be_meant_is_refused)
{
    check_refused(peer_outside,
                  "round 1: send of 20 elements from 10 of the data buffer, peer 3: the peer is no "
                  "other rank");
    check_refused(peer_itself, "the peer is no other rank");
    check_refused(range_outside, "outside its buffer");
    check_refused(range_wraps, "outside its buffer");
    check_refused(scratch_not_asked_for, "outside its buffer");
    check_refused(lengths_differ, "differ in length");
    check_refused(unknown_step, "no such step");
    check_refused(unknown_buffer, "outside its buffer");
}

static int32_t fails(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    (void)call;
    ls_send(schedule, 0, ls_data_range(0, 1));
    return LS_USAGE;
}

TEST(what_describe_returns_is_passed_on)
{
    struct ls_drawn_schedule drawn;
    ck_assert_int_eq(draw(fails, &drawn), LS_USAGE);
}

// In each round of the tree, ranks that have the data send it to one that has not.
TEST(the_default_broadcast_reaches_every_rank_once)
{
    const struct ls_collective_interface interface = offering(three_rounds);
    for (uint32_t world = 1; world <= 9; world++) {
        for (uint32_t root = 0; root < world; root++) {
            uint32_t sends = 0, rounds = 0;
            for (uint32_t rank = 0; rank < world; rank++) {
                struct ls_drawn_schedule drawn;
                struct ls_collective_call call = call_of(LS_BROADCAST, rank, world, 100);
                uint32_t receives = 0;
                call.root = root;
                ck_assert_int_eq(ls_schedule_draw(&interface, "test", &call, &drawn), LS_OK);
                for (size_t i = 0; i < drawn.step_count; i++) {
                    receives += drawn.steps[i].step.kind == LS_STEP_RECEIVE;
                    sends += drawn.steps[i].step.kind == LS_STEP_SEND;
                }
                ck_assert_uint_eq(receives, rank != root);
                rounds = drawn.round_count;
                ls_drawn_schedule_finish(&drawn);
            }
            ck_assert_uint_eq(sends, world - 1);
            ck_assert_uint_le(1u << rounds, 2 * world - (world > 1));
        }
    }
}

TEST(parts_are_even_disjoint_and_complete)
{
    static const uint64_t counts[] = {
        0, 1, 63, 64, 65, 1000, 65537, UINT64_C(1) << 40, (UINT64_C(1) << 60) - 1};
    for (size_t k = 0; k < sizeof(counts) / sizeof(*counts); k++) {
        for (uint32_t world = 1; world < 40; world++) {
            const struct ls_collective_call call = call_of(LS_ALL_REDUCE, 0, world, counts[k]);
            uint64_t next = 0, largest = 0, smallest = UINT64_MAX;
            for (uint32_t i = 0; i < world; i++) {
                const struct ls_range part = ls_chunk(&call, i);
                ck_assert_uint_eq(part.offset, next);
                ck_assert(part.count == 0 || part.offset % LS_CHUNK_ALIGNMENT == 0);
                next += part.count;
                largest = part.count > largest ? part.count : largest;
                smallest = part.count < smallest ? part.count : smallest;
            }
            ck_assert_uint_eq(next, counts[k]);
            ck_assert_uint_lt(largest - smallest, 2 * LS_CHUNK_ALIGNMENT);
        }
    }
}

TEST_SECONDS(300);
