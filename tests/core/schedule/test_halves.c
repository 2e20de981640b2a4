// SPDX-License-Identifier: Apache-2.0
// Messages of 16 bits: the conversions, and what is refused: schedules that would not leave equal values, values that are too
// large, calls that cannot travel so, and ranks that disagree.
#include "core/schedule/halves.h"
#include "core/schedule/verify.h"
#include "core/plugin/half.h"
#include "tests/core/collective/support.h"

#include <math.h>

#define COUNT 512

// ---- Conversions ----

static const uint32_t types[] = {LS_BF16, LS_F16};

LOOP_TEST(every_half_is_itself_and_values_between_go_to_the_nearer, 0, 2)
{
    static float values[65536], sums[65536];
    static uint16_t halves[65536], again[65536];
    const uint32_t type = types[_i];
    for (uint32_t i = 0; i < 65536; i++)
        halves[i] = (uint16_t)i;
    ls_halves_widen(type, halves, values, 65536);
    for (uint32_t i = 0; i < 65536; i++) {
        const float expected = ls_half_get(type, (uint16_t)i);
        ck_assert(isnan(values[i]) ? isnan(expected) : values[i] == expected);
        sums[i] = 1.5f;
    }
    ck_assert(!ls_halves_round(type, values, again, 65536));
    for (uint32_t i = 0; i < 65536; i++)
        ck_assert(again[i] == i || isnan(values[i]));
    ls_halves_add(type, halves, sums, 65536);
    for (uint32_t i = 0; i < 65536; i++)
        ck_assert(sums[i] == 1.5f + values[i] || isnan(values[i]));

    // And what lies between: every float32 of some steps.
    for (uint64_t first = 0; first < UINT32_C(0xfe000000); first += UINT32_C(0x03ffff00)) {
        for (uint32_t i = 0; i < 65536; i++) {
            const uint32_t bits = (uint32_t)first + i * 251;
            memcpy(&values[i], &bits, sizeof(bits));
            sums[i] = values[i];
        }
        (void)ls_halves_round(type, values, again, 65536);
        for (uint32_t i = 0; i < 65536; i++) {
            const uint16_t half = ls_half_of(type, sums[i]);
            const float back = ls_half_get(type, half);
            if (again[i] != half || (isnan(sums[i]) ? !isnan(values[i]) : values[i] != back))
                ck_abort_msg("%a: %x, %a is not %x, %a", (double)sums[i], again[i],
                             (double)values[i], half, (double)back);
        }
    }

    float between[] = {1.0f + 0x1p-9f, 1.0f + 0x1p-12f, -3.14159265f, 1e-30f, 0x1p-25f};
    float rounded[] = {1.0f, 1.0f, -3.140625f, 0, 0};
    if (type == LS_F16)
        rounded[0] = 1.0f + 0x1p-9f;
    if (type == LS_BF16) {
        rounded[3] = 0x1.44p-100f;
        rounded[4] = 0x1p-25f;
    }
    ck_assert(!ls_halves_round(type, between, again, 5));
    for (uint32_t i = 0; i < 5; i++)
        ck_assert_msg(between[i] == rounded[i], "%u: %a is not %a", i, (double)between[i],
                      (double)rounded[i]);
}

LOOP_TEST(a_finite_value_that_becomes_infinite_is_told, 0, 2)
{
    const float largest = types[_i] == LS_BF16 ? 0x1.fep127f : 65504.0f;
    const float beyond = types[_i] == LS_BF16 ? 0x1.fffffep127f : 65520.0f;
    float values[3] = {1, INFINITY, NAN}, fits[2] = {largest, -largest}, large[2] = {0, -beyond};
    uint16_t halves[3];
    ck_assert(!ls_halves_round(types[_i], values, halves, 3));
    ck_assert(isinf(values[1]) && isnan(values[2]));
    ck_assert(!ls_halves_round(types[_i], fits, halves, 2));
    ck_assert(fits[0] == largest && fits[1] == -largest);
    ck_assert(ls_halves_round(types[_i], large, halves, 2));
    ck_assert(isinf(large[1]) && large[1] < 0);
}

// ---- Schedules ----

// Ranks 0 and 1 both have the sum of theirs, and so have 2 and 3; then one of each pair sends it to the other pair. Who sends
// has rounded it, its partner has not.
static int32_t send_for_both(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const struct ls_range all = ls_data_range(0, call->count);
    const struct ls_range other = ls_scratch_range(0, call->count);
    const uint32_t rank = call->rank;
    ls_scratch(schedule, call->count);
    ls_send(schedule, rank ^ 1, all);
    ls_receive(schedule, rank ^ 1, other);
    ls_end_round(schedule);
    ls_reduce(schedule, all, other);
    ls_end_round(schedule);
    for (uint32_t i = 0; rank % 2 == 0 && i < 2; i++)
        ls_send(schedule, 2 - rank + i, all);
    ls_receive(schedule, rank < 2 ? 2 : 0, other);
    ls_end_round(schedule);
    ls_reduce(schedule, all, other);
    ls_end_round(schedule);
    return LS_OK;
}

static int32_t star(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const struct ls_range all = ls_data_range(0, call->count);
    for (uint32_t peer = 1; peer < call->world; peer++) {
        if (call->rank == 0)
            ls_receive_and_reduce(schedule, peer, all);
        else if (call->rank == peer)
            ls_send(schedule, 0, all);
        ls_end_round(schedule);
    }
    for (uint32_t peer = 1; peer < call->world; peer++) {
        if (call->rank == 0)
            ls_send(schedule, peer, all);
        else if (call->rank == peer)
            ls_receive(schedule, 0, all);
    }
    return LS_OK;
}

static const struct ls_communicator_call usual = {
    .operation = LS_ALL_REDUCE, .dtype = LS_F32, .reduction = LS_SUM, .count = COUNT};

struct run {
    struct ls_communicator_call call;
    enum ls_status status;
    float data[COUNT];
};

static void run_rank(struct test_rank *rank)
{
    struct run *run = rank->context;
    struct ls_collective_plan *plan = NULL;
    run->call.buffer = ls_host_memory(run->data);
    run->status = ls_collective_plan_open(rank->collective->communicators[rank->number], &run->call,
                                          "gradients", &plan);
    if (!run->status)
        run->status = ls_collective_start(plan);
    if (!run->status)
        run->status = ls_collective_wait(plan);
    if (run->status)
        ls_communicator_abort(rank->collective->communicators[rank->number]);
    ls_collective_plan_destroy(plan);
}

static struct run runs[TEST_RANKS];

// What is logged meanwhile is in test_log.
static void run_all(test_build_schedule build_schedule, uint32_t world)
{
    struct test_collective test;
    void *contexts[TEST_RANKS];
    test_collective_open_as(&test, build_schedule, world, 0, 0, false);
    for (uint32_t i = 0; i < world; i++)
        contexts[i] = &runs[i];
    test_log_begin();
    test_run_ranks(&test, run_rank, contexts);
    ls_log_set_writer(NULL, NULL);
    test_collective_close(&test);
}

TEST(a_schedule_that_would_leave_unequal_values_is_refused)
{
    for (uint32_t i = 0; i < 4; i++)
        runs[i].call = usual;
    run_all(send_for_both, 4);
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_int_eq(runs[i].status, LS_OK);
    for (uint32_t i = 0; i < 4; i++)
        runs[i].call.wire = LS_BF16;
    run_all(send_for_both, 4);
    uint32_t refused = 0;
    for (uint32_t i = 0; i < 4; i++)
        refused += runs[i].status == LS_UNAVAILABLE;
    ck_assert_uint_ge(refused, 1);
    ck_assert_msg(strstr(test_log.text, "collective test cannot send 16 bits: 4 ranks would not "
                                        "end with equal values: rank 1") &&
                      strstr(test_log.text, "(~: rounded)"),
                  "%s", test_log.text);
}

TEST(the_proof_knows_which_schedules_round_alike)
{
    const struct ls_collective_interface interface[] = {
        {.struct_size = sizeof(*interface), .deterministic = 1, .build_schedule = star},
        {.struct_size = sizeof(*interface), .deterministic = 1, .build_schedule = send_for_both}};
    for (uint32_t i = 0; i < 4; i++) {
        const struct ls_verify_case verified = {.operation = LS_ALL_REDUCE,
                                                .world = 4,
                                                .count = COUNT,
                                                .element_bytes = 4,
                                                .halves = i / 2};
        struct ls_verification found;
        ck_assert_int_eq(ls_verify_schedule(&interface[i % 2], NULL, &verified, &found), LS_OK);
        ck_assert_uint_eq(found.verdict, i == 3 ? LS_VERDICT_ROUNDING : LS_VERDICT_HOLDS);
        if (i == 3)
            ck_assert_msg(strstr(found.reason, "here, ") && strstr(found.reason, "~(~0 + ~1)"),
                          "%s", found.reason);
    }
}

TEST(a_value_beyond_float16_ends_the_run)
{
    for (uint32_t type = 0; type < 2; type++) {
        for (uint32_t i = 0; i < 3; i++) {
            runs[i].call = usual;
            runs[i].call.wire = types[type];
            for (uint32_t e = 0; e < COUNT; e++) // what rank 0 adds up is too large
                runs[i].data[e] = e == 300 ? 40000 : 1;
        }
        run_all(star, 3);
        if (types[type] == LS_BF16) {
            for (uint32_t i = 0; i < 3; i++)
                ck_assert_int_eq(runs[i].status, LS_OK);
            ck_assert_float_eq_tol(runs[1].data[300], 120000, 600);
            continue;
        }
        ck_assert_int_eq(runs[0].status, LS_FAILED);
        ck_assert_msg(strstr(test_log.text,
                             "all-reduce (sum) of 512 float32 as float16, gradients: rank 0 "
                             "has a value beyond 65504, the largest that travels; use "
                             "--wire=bfloat16 or --wire=float32"),
                      "%s", test_log.text);
    }
}

TEST(a_caller_may_look_for_infinite_values_itself)
{
    for (uint32_t i = 0; i < 3; i++) {
        runs[i].call = usual;
        runs[i].call.wire = LS_F16;
        runs[i].call.keeps_infinite = true;
        for (uint32_t e = 0; e < COUNT; e++)
            runs[i].data[e] = e == 300 ? -40000 : 1;
    }
    run_all(star, 3);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_int_eq(runs[i].status, LS_OK);
        ck_assert(isinf(runs[i].data[300]) && runs[i].data[300] < 0 && runs[i].data[0] == 3);
    }
}

TEST(what_cannot_travel_in_16_bits_is_refused)
{
    static const struct {
        uint32_t operation, dtype, reduction, wire;
        const char *reason;
    } wrong[] = {
        {LS_BROADCAST, LS_F32, LS_SUM, LS_BF16, "only sums of float32"},
        {LS_ALL_GATHER, LS_F32, LS_SUM, LS_F16, "only sums of float32"},
        {LS_ALL_REDUCE, LS_F64, LS_SUM, LS_BF16, "only sums of float32"},
        {LS_ALL_REDUCE, LS_F32, LS_MAX, LS_BF16, "only sums of float32"},
        {LS_ALL_REDUCE, LS_F32, LS_SUM, LS_U8, "messages are of float16 or bfloat16"},
    };
    static double memory[16];
    struct test_collective test;
    test_collective_open(&test, star, 2, 0, 0);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        struct ls_communicator_call call = {.operation = wrong[i].operation,
                                            .dtype = wrong[i].dtype,
                                            .reduction = wrong[i].reduction,
                                            .buffer = ls_host_memory(memory),
                                            .count = 16,
                                            .wire = wrong[i].wire};
        struct ls_collective_plan *plan = NULL;
        test_log_begin();
        ck_assert_int_eq(ls_collective_plan_open(test.communicators[0], &call, "x", &plan),
                         LS_USAGE);
        ls_log_set_writer(NULL, NULL);
        ck_assert_msg(strstr(test_log.text, wrong[i].reason) != NULL, "%s", test_log.text);
    }
    test_collective_close(&test);
}

TEST(ranks_that_disagree_on_the_type_are_named)
{
    for (uint32_t i = 0; i < 2; i++) {
        runs[i].call = usual;
        runs[i].call.wire = types[i];
    }
    run_all(star, 2);
    ck_assert_msg(strstr(test_log.text, "differs") &&
                      strstr(test_log.text, "float32 as bfloat16") &&
                      strstr(test_log.text, "float32 as float16"),
                  "%s", test_log.text);
}

TEST_SECONDS(300);

int main(void)
{
    return test_plugin_open("transport-local") ? test_suite_run("core/schedule/halves")
                                               : TEST_SKIPPED;
}
