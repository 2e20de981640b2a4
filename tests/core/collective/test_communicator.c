// SPDX-License-Identifier: Apache-2.0
// What a communicator says and does beside moving data: refusals, failures with their words, counts, times,
// the flight recorder.
#include "core/base/caller.h"
#include "core/base/log.h"
#include "core/collective/internal.h" // what it knows of other ranks is tested
#include "core/collective/recorder.h"
#include "tests/core/collective/support.h"

#include <time.h>

#define COUNT 1000

// Everybody sends to rank 0, which adds and sends back.
static int32_t star(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const struct ls_range all = ls_data_range(0, call->count);
    for (uint32_t peer = 1; peer < call->world; peer++) {
        if (call->rank == 0)
            ls_receive_and_reduce(schedule, peer, all);
        else if (call->rank == peer)
            ls_send(schedule, 0, all);
    }
    ls_end_round(schedule);
    for (uint32_t peer = 1; peer < call->world; peer++) {
        if (call->rank == 0)
            ls_send(schedule, peer, all);
        else if (call->rank == peer)
            ls_receive(schedule, 0, all);
    }
    ls_end_round(schedule);
    return LS_OK;
}

struct seen {
    enum ls_status status[4];
    float data[COUNT];
    uint64_t bytes;
    uint32_t rounds;
    struct ls_communication_times times[2];
    uint32_t absent; // this rank does not call
};

static struct seen seen[TEST_RANKS];

static void **contexts(void)
{
    static void *all[TEST_RANKS];
    memset(seen, 0, sizeof(seen));
    for (uint32_t i = 0; i < TEST_RANKS; i++)
        all[i] = &seen[i];
    return all;
}

static void run_once(struct test_rank *rank)
{
    struct seen *mine = rank->context;
    struct ls_communicator *communicator = rank->collective->communicators[rank->number];
    struct ls_collective_plan *plan = NULL;
    if (mine->absent)
        return;
    for (uint32_t i = 0; i < COUNT; i++)
        mine->data[i] = (float)(rank->number + i % 5);
    mine->status[0] =
        ls_collective_plan_create(communicator, LS_ALL_REDUCE, ls_host_memory(mine->data), COUNT,
                                  LS_F32, LS_SUM, 0, "bucket 3", &plan);
    if (mine->status[0])
        return;
    mine->bytes = ls_collective_plan_bytes(plan);
    mine->rounds = ls_collective_plan_rounds(plan);
    mine->status[1] = ls_collective_start(plan);
    mine->status[2] = ls_collective_wait(plan);
    mine->status[3] = ls_collective_wait(plan); // once more: the same answer
    ls_communicator_times(communicator, 1, &mine->times[0]);
    ls_communicator_times(communicator, 0, &mine->times[1]);
    ls_collective_plan_destroy(plan);
}

TEST(bytes_rounds_and_times_are_told)
{
    struct test_collective test;
    test_collective_open(&test, star, 3, 0, 0);
    test_run_ranks(&test, run_once, contexts());
    test_collective_close(&test);
    for (uint32_t rank = 0; rank < 3; rank++) {
        for (uint32_t i = 0; i < 4; i++)
            ck_assert_int_eq(seen[rank].status[i], LS_OK);
        ck_assert(seen[rank].data[7] == 3 + 3 * 2);
        ck_assert_uint_eq(seen[rank].bytes, (rank ? 1 : 2) * COUNT * sizeof(float));
        ck_assert_uint_eq(seen[rank].rounds, 2);
        ck_assert_uint_gt(seen[rank].times[0].exposed_ns, 0);
        ck_assert_uint_gt(seen[rank].times[0].busy_ns, 0);
        ck_assert_uint_eq(seen[rank].times[1].exposed_ns, 0);
    }
}

TEST(ranks_of_other_processes_need_an_exchange)
{
    static const struct ls_collective_interface interface = {.struct_size = sizeof(interface),
                                                             .operations = 1u << LS_ALL_REDUCE,
                                                             .build_schedule = star};
    const struct ls_plugin plugin = {LS_PLUGIN_HEADER(LS_KIND_COLLECTIVE), .name = "test",
                                     .interface = &interface};
    const struct ls_communicator_place places[2] = {{0}};
    const struct ls_communicator_options options = {.collective = &plugin,
                                                    .transport = &plugin,
                                                    .world = 4,
                                                    .first_rank = 2,
                                                    .count = 2,
                                                    .deadline_ns = UINT64_C(10000000000),
                                                    .name = "test",
                                                    .places = places};
    struct ls_communicator *communicators[4] = {NULL};
    char *error = NULL;
    ls_log_keep(&error);
    ck_assert_int_eq(ls_communicators_open(&options, communicators), LS_USAGE);
    ls_log_keep(NULL);
    ck_assert_ptr_nonnull(error);
    ck_assert_ptr_nonnull(strstr(error, "2 ranks from 2 of 4, and no other process"));
    ck_assert_ptr_null(communicators[0]);
    free(error);
}

// A transport that loses its peer while it waits. `aborts`: the communicator that the watch of
// processes ends first.
static struct ls_communicator *lost_one, *aborts;

static int32_t lose_open(const struct ls_host *host, const struct ls_transport_config *config,
                         struct ls_transport *const *transport)
{
    (void)host, (void)config, (void)transport;
    return LS_OK;
}

static void lose_close(struct ls_transport *transport)
{
    (void)transport;
}

static int32_t lose_post(struct ls_transport *transport, struct ls_transfer *transfer)
{
    (void)transport;
    transfer->state = LS_TRANSFER_PENDING;
    return LS_OK;
}

static int32_t lose_test(struct ls_transport *transport, struct ls_transfer *transfer)
{
    (void)transport, (void)transfer;
    return LS_AGAIN;
}

static int32_t lose_wait(struct ls_transport *transport, struct ls_transfer *const *transfers,
                         uint64_t count, uint64_t timeout_ns)
{
    (void)transport, (void)transfers, (void)count, (void)timeout_ns;
    if (aborts)
        ls_communicator_abort(aborts);
    return LS_PEER_LOST;
}

static void lose_abort(struct ls_transport *transport)
{
    (void)transport;
}

static int32_t lose_peer_state(struct ls_transport *transport, uint32_t peer)
{
    (void)transport;
    return peer == 1 ? LS_PEER_LOST : LS_OK;
}

static int32_t exchange_with_itself(void *context, const void *own, uint64_t bytes, void *all)
{
    (void)context;
    memcpy(all, own, bytes);
    memcpy((char *)all + bytes, own, bytes);
    return LS_OK;
}

// The cluster names the process. A plugin that passes the status on is not blamed for giving no
// reason.
TEST(a_lost_process_is_a_reason_and_no_line)
{
    static const struct ls_collective_interface interface = {.struct_size = sizeof(interface),
                                                             .operations = 1u << LS_ALL_REDUCE,
                                                             .build_schedule = star};
    static const struct ls_transport_interface loses = {.struct_size = sizeof(loses),
                                                        .state_bytes = 64,
                                                        .open = lose_open,
                                                        .close = lose_close,
                                                        .post = lose_post,
                                                        .test = lose_test,
                                                        .wait_any = lose_wait,
                                                        .abort = lose_abort,
                                                        .peer_state = lose_peer_state};
    const struct ls_plugin collective = {LS_PLUGIN_HEADER(LS_KIND_COLLECTIVE), .name = "test",
                                         .interface = &interface};
    const struct ls_plugin transport = {LS_PLUGIN_HEADER(LS_KIND_TRANSPORT), .name = "loses",
                                        .interface = &loses};
    const struct ls_communicator_options options = {.collective = &collective,
                                                    .transport = &transport,
                                                    .world = 2,
                                                    .count = 1,
                                                    .deadline_ns = UINT64_C(10000000000),
                                                    .name = "test",
                                                    .exchange = {.call = exchange_with_itself}};
    float data[3] = {1, 2, 3};
    for (int watched = 0; watched < 2; watched++) {
        struct ls_collective_plan *plan;
        ck_assert_int_eq(ls_communicators_open(&options, &lost_one), LS_OK);
        aborts = watched ? lost_one : NULL;
        ck_assert_int_eq(ls_collective_plan_create(lost_one, LS_ALL_REDUCE, ls_host_memory(data), 3,
                                                   LS_F32, LS_SUM, 0, NULL, &plan),
                         LS_OK);
        const uint32_t reasons = ls_thread_reasons();
        const uint64_t errors = ls_log_errors();
        uint32_t lost;
        ck_assert(!ls_communicator_lost(lost_one, &lost));
        ck_assert_int_eq(ls_collective_start(plan), LS_OK);
        ck_assert_int_eq(ls_collective_wait(plan), LS_PEER_LOST);
        // Who aborts has said why, so that nobody is asked.
        ck_assert_int_eq(ls_communicator_lost(lost_one, &lost), !watched);
        ck_assert(watched || lost == 1);
        ck_assert_uint_gt(ls_thread_reasons(), reasons);
        ck_assert_uint_eq(ls_log_errors(), errors);
        ls_collective_plan_destroy(plan);
        ls_communicators_close(&lost_one, 1);
    }
}

TEST(a_world_of_one_needs_nothing)
{
    static struct ls_collective_interface interface = {.struct_size = sizeof(interface),
                                                       .operations = 1u << LS_ALL_REDUCE,
                                                       .build_schedule = star};
    const struct ls_plugin plugin = {LS_PLUGIN_HEADER(LS_KIND_COLLECTIVE), .name = "test",
                                     .interface = &interface};
    const struct ls_communicator_options options = {
        .collective = &plugin, .world = 1, .deadline_ns = UINT64_C(10000000000)};
    struct ls_communicator *communicator;
    struct ls_collective_plan *plan;
    float data[3] = {1, 2, 3};
    ck_assert_int_eq(ls_communicators_open(&options, &communicator), LS_OK);
    for (uint32_t reduction = LS_SUM; reduction <= LS_MEAN; reduction++) {
        ck_assert_int_eq(ls_collective_plan_create(communicator, LS_ALL_REDUCE,
                                                   ls_host_memory(data), 3, LS_F32, reduction, 0,
                                                   NULL, &plan),
                         LS_OK);
        ck_assert_int_eq(ls_collective_start(plan), LS_OK);
        ck_assert_int_eq(ls_communicator_progress(communicator), LS_OK);
        ck_assert_int_eq(ls_collective_wait(plan), LS_OK);
        ck_assert_uint_eq(ls_collective_plan_bytes(plan), 0);
        ls_collective_plan_destroy(plan);
    }
    ck_assert(data[0] == 1 && data[1] == 2 && data[2] == 3);
    ls_communicators_close(&communicator, 1);
}

TEST(an_absent_rank_is_named_with_the_call_and_the_time)
{
    struct test_collective test;
    test_collective_open(&test, star, 4, 0, UINT64_C(200000000));
    void **all = contexts();
    seen[2].absent = 1;
    test_log_begin();
    test_run_ranks(&test, run_once, all);
    ls_log_set_writer(NULL, NULL);
    test_collective_close(&test);
    uint32_t lost = 0;
    for (uint32_t rank = 0; rank < 4; rank++) {
        if (rank == 2)
            continue;
        lost += seen[rank].status[2] == LS_PEER_LOST;
        ck_assert(seen[rank].status[2] == LS_PEER_LOST || seen[rank].status[2] == LS_ABORTED);
        ck_assert_int_eq(seen[rank].status[3], seen[rank].status[2]);
    }
    ck_assert_uint_eq(lost, 1); // it is said once
    const char *waited = strstr(test_log.text, "waited ");
    ck_assert_msg(strstr(test_log.text,
                         " s for rank 2 in call 0, all-reduce (sum) of 1000 float32, bucket 3: it "
                         "has not made this call") != NULL,
                  "%s", test_log.text);
    ck_assert(waited && atof(waited + strlen("waited ")) >= 0.2); // longer where cores are busy
}

// Rank 1's schedule receives what nobody sends.
static int32_t unmatched(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    if (call->rank == 1)
        ls_receive(schedule, 0, ls_data_range(0, call->count));
    return LS_OK;
}

TEST(a_peer_that_is_there_but_does_not_send_is_named)
{
    struct test_collective test;
    test_collective_open(&test, unmatched, 2, 0, UINT64_C(100000000));
    test_log_begin();
    test_run_ranks(&test, run_once, contexts());
    ls_log_set_writer(NULL, NULL);
    test_collective_close(&test);
    ck_assert_int_eq(seen[0].status[2], LS_OK);
    ck_assert_int_eq(seen[1].status[2], LS_PEER_LOST);
    ck_assert_msg(strstr(test_log.text, "for rank 0 in call 0") &&
                      strstr(test_log.text, "not finished its part"),
                  "%s", test_log.text);
}

// Both sides make the same call, but their messages differ in size.
static int32_t sizes_differ(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    if (call->rank == 0)
        ls_send(schedule, 1, ls_data_range(0, 10));
    else
        ls_receive(schedule, 0, ls_data_range(0, 11));
    return LS_OK;
}

TEST(messages_of_different_sizes_blame_the_collective)
{
    struct test_collective test;
    test_collective_open(&test, sizes_differ, 2, 0, 0);
    test_log_begin();
    test_run_ranks(&test, run_once, contexts());
    ls_log_set_writer(NULL, NULL);
    test_collective_close(&test);
    ck_assert_int_eq(seen[0].status[2], LS_ABORTED);
    ck_assert_int_eq(seen[1].status[2], LS_FAILED);
    ck_assert_msg(
        strstr(test_log.text,
               "rank 1 and rank 0 disagree on their messages; collective test is wrong") != NULL,
        "%s", test_log.text);
}

TEST(requests_that_do_not_fit_are_refused)
{
    struct test_collective test;
    struct ls_collective_plan *plan = NULL;
    float data[8];
    test_collective_open(&test, star, 2, 0, 0);
    test.interface.dtypes = 1u << LS_F32 | 1u << LS_F64;
    test.interface.reductions = 1u << LS_SUM;
    struct ls_communicator *communicator = test.communicators[0];
    test_log_begin();
    const struct {
        uint32_t operation;
        void *buffer;
        uint64_t count;
        uint32_t dtype, reduction, root;
    } wrong[] = {
        {0, data, 8, LS_F32, LS_SUM, 0},
        {LS_ALL_TO_ALL + 1, data, 8, LS_F32, LS_SUM, 0},
        {LS_ALL_TO_ALL, data, 7, LS_F32, LS_SUM, 0}, // no equal blocks
        {LS_ALL_REDUCE, data, 8, LS_I32, LS_SUM, 0},
        {LS_ALL_REDUCE, data, 8, 99, LS_SUM, 0},
        {LS_ALL_REDUCE, data, 8, LS_F32, LS_MAX, 0},
        {LS_ALL_REDUCE, data, 8, LS_F32, 0, 0},
        {LS_BROADCAST, data, 8, LS_F32, LS_SUM, 2},
        {LS_ALL_REDUCE, NULL, 8, LS_F32, LS_SUM, 0},
        {LS_ALL_REDUCE, (char *)data + 1, 7, LS_F32, LS_SUM, 0},
        {LS_ALL_REDUCE, data, UINT64_MAX, LS_F32, LS_SUM, 0},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        ck_assert_int_eq(ls_collective_plan_create(communicator, wrong[i].operation,
                                                   ls_host_memory(wrong[i].buffer), wrong[i].count,
                                                   wrong[i].dtype, wrong[i].reduction,
                                                   wrong[i].root, "x", &plan),
                         LS_USAGE);
    ck_assert_ptr_null(plan);
    test.interface.maximum_world = 1;
    const struct ls_communicator_options options = {.collective = &test.plugin,
                                                    .collective_host = &test.host.host,
                                                    .transport = &test.plugin,
                                                    .world = 2};
    ck_assert_int_eq(ls_communicators_open(&options, &communicator), LS_UNSUPPORTED);
    ls_log_set_writer(NULL, NULL);
    test_collective_close(&test);
}

TEST(a_plan_is_not_started_twice)
{
    struct test_collective test;
    struct ls_collective_plan *plan = NULL;
    float data[8] = {0};
    test_collective_open(&test, star, 2, 0, 0);
    ck_assert_int_eq(ls_collective_plan_create(test.communicators[1], LS_ALL_REDUCE,
                                               ls_host_memory(data), 8, LS_F32, LS_SUM, 0, "x",
                                               &plan),
                     LS_OK);
    ck_assert_int_eq(ls_collective_start(plan), LS_OK);
    test_log_begin();
    ck_assert_int_eq(ls_collective_start(plan), LS_FAILED);
    ls_log_set_writer(NULL, NULL);
    ck_assert_msg(strstr(test_log.text, "before it waited") != NULL, "%s", test_log.text);
    ls_collective_plan_destroy(plan); // under way: the communicator is given up
    struct ls_collective_plan *other = NULL;
    ck_assert_int_eq(ls_collective_plan_create(test.communicators[1], LS_ALL_REDUCE,
                                               ls_host_memory(data), 8, LS_F32, LS_SUM, 0, "y",
                                               &other),
                     LS_OK);
    ck_assert_int_eq(ls_collective_start(other), LS_ABORTED);
    ck_assert_int_eq(ls_communicator_progress(test.communicators[1]), LS_ABORTED);
    ls_collective_plan_destroy(other);
    test_collective_close(&test);
}

TEST(the_recorder_keeps_the_last_calls)
{
    static struct ls_flight_recorder recorder;
    struct ls_call_signature signature = {.operation = LS_BROADCAST,
                                          .dtype = LS_BF16,
                                          .reduction = LS_SUM,
                                          .root = 3,
                                          .count = 5},
                             found;
    char text[160];
    ls_call_signature_label(&signature, "a label that is longer than there is room for");
    for (uint64_t i = 0; i < LS_RECORDED_CALLS + 10; i++) {
        signature.count = i;
        ls_flight_recorder_begin(&recorder, i, &signature);
        ls_flight_recorder_end(&recorder, i, 1500);
    }
    ck_assert(!ls_flight_recorder_get(&recorder, 9, &found));
    ck_assert(!ls_flight_recorder_get(&recorder, LS_RECORDED_CALLS + 10, &found));
    ck_assert(ls_flight_recorder_get(&recorder, 10, &found));
    ck_assert_uint_eq(found.count, 10);
    ck_assert_str_eq(ls_call_signature_text(&found, text, sizeof(text)),
                     "broadcast (root 3) of 10 bfloat16, a label that is longer than the");
    ls_log_set_level(LS_LOG_DEBUG);
    test_log_begin();
    ls_flight_recorder_dump(&recorder, "test", 1);
    ls_log_set_writer(NULL, NULL);
    ls_log_set_level(LS_LOG_INFO);
    ck_assert_msg(strstr(test_log.text, "call 73: broadcast (root 3) of 73 bfloat16, a label that "
                                        "is longer than the: waited 1.5 us") != NULL,
                  "%s", test_log.text);
    signature = (struct ls_call_signature){.operation = LS_REDUCE,
                                           .dtype = LS_I64,
                                           .mean_of = LS_I64,
                                           .reduction = LS_SUM,
                                           .root = 2,
                                           .count = 14};
    ck_assert(!ls_call_signature_equal(&signature, &found));
    found = signature;
    found.mean_of = 0;
    ck_assert(!ls_call_signature_equal(&signature, &found));
    ck_assert_uint_ne(ls_call_signature_hash(&signature, 1), ls_call_signature_hash(&found, 1));
    memset(&recorder, 0, sizeof(recorder));
    ls_flight_recorder_begin(&recorder, 0, &signature);
    ck_assert(ls_flight_recorder_get(&recorder, 0, &found) && found.mean_of == LS_I64);
    ck_assert_str_eq(ls_call_signature_text(&found, text, sizeof(text)),
                     "reduce (mean, root 2) of 7 int64");
}

TEST(only_ranks_of_this_process_can_be_asked)
{
    static struct ls_flight_recorder recorders[2]; // of ranks 4 and 5 of 8
    const struct ls_communicator_group group = {
        .world = 8, .first_rank = 4, .count = 2, .recorders = recorders};
    const struct ls_call_signature called = {
        .operation = LS_ALL_REDUCE, .dtype = LS_F32, .count = 7};
    struct ls_call_signature found;
    ls_flight_recorder_begin(&recorders[1], 0, &called);
    for (uint32_t rank = 0; rank < 8; rank++) {
        const enum ls_rank_state expected = rank == 5   ? LS_RANK_CALLED
                                            : rank == 4 ? LS_RANK_ABSENT
                                                        : LS_RANK_UNKNOWN;
        ck_assert_int_eq(ls_ask_state(&group, rank, 0), expected);
        ck_assert_int_eq(ls_ask_call(&group, rank, 0, &found), rank == 5);
    }
    ck_assert(ls_call_signature_equal(&found, &called));
    ck_assert_int_eq(ls_ask_state(&group, 5, 1), LS_RANK_ABSENT);
}

TEST(signatures_differ_in_whatever_must_be_equal)
{
    const struct ls_call_signature one = {
        .operation = LS_REDUCE, .dtype = LS_F32, .reduction = LS_SUM, .root = 1, .count = 5};
    struct ls_call_signature others[5] = {one, one, one, one, one};
    others[0].operation = LS_ALL_REDUCE;
    others[1].dtype = LS_I32;
    others[2].reduction = LS_MAX;
    others[3].root = 2;
    others[4].count = 6;
    ck_assert(ls_call_signature_equal(&one, &one));
    ck_assert_uint_ne(ls_call_signature_hash(&one, 1), ls_call_signature_hash(&one, 2));
    for (uint32_t i = 0; i < 5; i++) {
        ck_assert(!ls_call_signature_equal(&one, &others[i]));
        ck_assert_uint_ne(ls_call_signature_hash(&one, 1), ls_call_signature_hash(&others[i], 1));
    }
}

TEST_SECONDS(300);

int main(void)
{
    return test_plugin_open("transport-local") ? test_suite_run("core/collective/communicator")
                                               : TEST_SKIPPED;
}
