// SPDX-License-Identifier: Apache-2.0
// Dependencies, segments and fused passes of compiled schedules, and rounds that contradict themselves.
#include "core/schedule/compile.h"
#include "tests/core/collective/support.h"

#define COUNT 4096

static enum ls_status compile_call(test_build_schedule build_schedule, uint32_t rank,
                                   uint32_t world, uint64_t count, uint64_t segment_bytes,
                                   struct ls_compiled_schedule *out)
{
    const struct ls_collective_interface interface = {.struct_size = sizeof(interface),
                                                      .operations = 1u << LS_ALL_REDUCE,
                                                      .build_schedule = build_schedule};
    const struct ls_collective_call call = {.struct_size = sizeof(call),
                                            .operation = LS_ALL_REDUCE,
                                            .rank = rank,
                                            .world = world,
                                            .count = count,
                                            .element_bytes = 4};
    const struct ls_compile_options options = {.name = "test",
                                               .rank = rank,
                                               .world = world,
                                               .element_bytes = 4,
                                               .count = count,
                                               .segment_bytes = segment_bytes};
    struct ls_drawn_schedule drawn;
    ck_assert_int_eq(ls_schedule_draw(&interface, "test", &call, &drawn), LS_OK);
    const enum ls_status status = ls_compile_schedule(&drawn, &options, out);
    ls_drawn_schedule_finish(&drawn);
    return status;
}

static enum ls_status compile(test_build_schedule build_schedule, uint32_t rank,
                              uint64_t segment_bytes, struct ls_compiled_schedule *out)
{
    return compile_call(build_schedule, rank, 3, COUNT, segment_bytes, out);
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

TEST(a_round_that_contradicts_itself_is_refused)
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

static int32_t overlaps_itself(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    (void)call;
    ls_end_round(schedule);
    ls_copy(schedule, ls_data_range(0, 1000), ls_data_range(999, 1000));
    return LS_OK;
}

TEST(a_step_that_overlaps_itself_is_refused)
{
    struct ls_compiled_schedule compiled;
    test_log_begin();
    ck_assert_int_eq(compile(overlaps_itself, 2, 256, &compiled), LS_FAILED);
    ls_log_set_writer(NULL, NULL);
    ck_assert_msg(strstr(test_log.text, "rank 2 of 3, round 1: copy of 1000 elements") != NULL,
                  "%s", test_log.text);
}

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

TEST(a_sum_and_its_send_are_one_pass)
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

TEST(a_receive_of_what_was_sent_there_is_posted_at_once)
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

TEST(segments_depend_on_their_own_range_only)
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

// Ranks 0 and 1 send each other a part of the buffer in pieces, to be added up.
static uint64_t pieces_of_part;

static int32_t describe_pieces(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    for (uint64_t i = 0; i < pieces_of_part; i++) {
        const uint32_t peer = !call->rank;
        for (uint64_t part = 0; part < 2 && call->rank < 2; part++) {
            const struct ls_range whole = ls_part(ls_data_range(0, call->count), part, call->world);
            const struct ls_range piece = ls_part(whole, i, pieces_of_part);
            if (part == call->rank)
                ls_receive_and_reduce(schedule, peer, piece);
            else
                ls_send(schedule, peer, piece);
        }
        ls_end_round(schedule);
    }
    return LS_OK;
}

// Messages of rank 0 to rank 1.
static uint32_t messages_of(uint32_t world, uint64_t count, uint64_t pieces)
{
    struct ls_compiled_schedule sides[2];
    pieces_of_part = pieces;
    for (uint32_t rank = 0; rank < 2; rank++) {
        ck_assert_int_eq(compile_call(describe_pieces, rank, world, count, 0, &sides[rank]), LS_OK);
        ck_assert_uint_eq(sides[rank].peer_count, 1);
    }
    const uint32_t messages = sides[0].peers[0].sends;
    ck_assert_uint_eq(sides[1].peers[0].receives, messages);
    for (uint32_t rank = 0; rank < 2; rank++)
        ls_compiled_schedule_finish(&sides[rank]);
    return messages;
}

TEST(what_a_schedule_has_cut_is_cut_less)
{
    static const struct {
        uint32_t world;
        uint64_t count, pieces; // of a rank's part
        uint32_t messages;
    } rows[] = {
        {2, 2 * 65536, 1, 1}, // 256 KiB
        {2, 2 * 65536 + 128, 1, 2}, {2, 12 << 20, 1, 16}, // the most of a step
        {8, 12 << 20, 1, 16},       {2, 12 << 20, 4, 64},  {8, 12 << 20, 4, 24},
        {2, 12 << 20, 5, 60},       {2, 12 << 20, 27, 54}, {2, 12 << 20, 100, 100},
        {2, 64 << 20, 16, 64},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        ck_assert_msg(messages_of(rows[i].world, rows[i].count, rows[i].pieces) == rows[i].messages,
                      "row %zu: %u messages", i,
                      messages_of(rows[i].world, rows[i].count, rows[i].pieces));
    for (uint64_t pieces = 1; pieces <= 64; pieces++)
        for (uint64_t count = 1 << 20; count <= 1 << 28; count *= 4)
            ck_assert_uint_le(messages_of(2, count + 7, pieces), 64); // and 64 answers
}

TEST(segments_are_chosen_by_size)
{
    ck_assert_uint_eq(ls_best_segments(1, UINT64_C(1) << 40), 1);
    ck_assert_uint_eq(ls_best_segments(2, 0), 1);
    ck_assert_uint_eq(ls_best_segments(2, 48 << 20), 27); // 27 x 27 <= 768
    ck_assert_uint_eq(ls_best_segments(2, UINT64_C(1) << 40), 1024);
    ck_assert_uint_eq(ls_best_segments(4, 48 << 20), 48);
}

TEST_SECONDS(300);
