// SPDX-License-Identifier: Apache-2.0
// Every kind of transfer moves and reduces what it should, in every type, at sizes 0, 1, prime and large.
#include "tools/conformance/transport/suite.h"

static const uint64_t counts[] = {0, 1, 31, 1009, 65537};
#define COUNTS (sizeof(counts) / sizeof(*counts))

static const char *const dtype_names[] = {"",         "float32", "float64", "float16",
                                          "bfloat16", "int32",   "int64",   "uint8"};
static const char *const reduction_names[] = {"", "sum", "product", "min", "max"};

// ---- What is expected ----

static uint32_t of_zero(const struct ls_transport_side *side, uint64_t message, uint64_t index)
{
    return ls_transport_value(side->trial, 0, message, index);
}

static uint32_t of_zero_and_one(const struct ls_transport_side *side, uint64_t message,
                                uint64_t index)
{
    const struct ls_transport_trial *trial = side->trial;
    return ls_transport_combine(trial->reduction, ls_transport_value(trial, 1, message, index),
                                ls_transport_value(trial, 0, message, index));
}

// ---- Bodies ----

// 0 sends to 1, which receives, or reduces what comes into its own.
static void pair_body(struct ls_transport_side *side, bool reduces)
{
    const struct ls_transport_trial *trial = side->trial;
    for (uint64_t i = 0; i < COUNTS; i++) {
        struct ls_transport_buffer buffer;
        if (!ls_transport_buffer_init(side, &buffer, counts[i], side->rank, i))
            return;
        struct ls_transfer transfer = side->rank == 0 ? ls_transport_send(1, i, &buffer)
                                                      : ls_transport_receive(0, i, &buffer);
        if (side->rank == 1 && reduces) {
            transfer.kind = LS_TRANSFER_RECEIVE_REDUCE;
            transfer.reduction = trial->reduction;
        }
        if (ls_transport_post(side, &transfer) &&
            ls_transport_expect_complete(side, &transfer, 1, "a message from 0 to 1"))
            ls_transport_buffer_judge(side, &buffer, i,
                                      side->rank == 1 && reduces ? of_zero_and_one : of_zero,
                                      side->rank ? "what was received" : "what was sent");
        ls_transport_buffer_finish(&buffer);
    }
}

static void receive_body(struct ls_transport_side *side)
{
    pair_body(side, false);
}

static void receive_reduce_body(struct ls_transport_side *side)
{
    pair_body(side, true);
}

// 0 sends to 1, which reduces and sends on to 2, which has posted before (variant 0) or posts late (variant 1).
static void relay_body(struct ls_transport_side *side)
{
    const struct ls_transport_trial *trial = side->trial;
    for (uint64_t i = 0; i < COUNTS; i++) {
        struct ls_transport_buffer buffer;
        if (!ls_transport_buffer_init(side, &buffer, counts[i], side->rank, i))
            return;
        struct ls_transfer transfer = side->rank == 2
                                          ? ls_transport_receive(1, i, &buffer)
                                          : ls_transport_send(side->rank + 1, i, &buffer);
        if (side->rank == 1) {
            transfer.kind = LS_TRANSFER_RECEIVE_REDUCE_SEND;
            transfer.source = 0;
            transfer.receive_number = i;
            transfer.reduction = trial->reduction;
        }
        const bool waits = trial->variant ? side->rank == 2 : side->rank == 0;
        if (waits)
            ls_transport_pause(5);
        if (ls_transport_post(side, &transfer) &&
            ls_transport_expect_complete(side, &transfer, 1, "a message from 0 over 1 to 2"))
            ls_transport_buffer_judge(side, &buffer, i, side->rank ? of_zero_and_one : of_zero,
                                      "a message that was passed on");
        ls_transport_buffer_finish(&buffer);
    }
}

// 1 reduces what 0 sends and sends the sum back into the very memory that 0 sent: the rule of `after`.
static void return_body(struct ls_transport_side *side)
{
    const struct ls_transport_trial *trial = side->trial;
    for (uint64_t i = 0; i < COUNTS; i++) {
        struct ls_transport_buffer buffer;
        struct ls_transfer transfers[2];
        size_t used = 1;
        if (!ls_transport_buffer_init(side, &buffer, counts[i], side->rank, i))
            return;
        transfers[0] = ls_transport_send(1 - side->rank, i, &buffer);
        if (side->rank == 0) {
            transfers[used] = ls_transport_receive(1, i, &buffer);
            transfers[used++].after = i;
        } else {
            transfers[0].kind = LS_TRANSFER_RECEIVE_REDUCE_SEND;
            transfers[0].source = 0;
            transfers[0].receive_number = i;
            transfers[0].reduction = trial->reduction;
        }
        bool good = true;
        for (size_t k = used; good && k > 0; k--) // receives first
            good = ls_transport_post(side, &transfers[k - 1]);
        if (good && ls_transport_expect_complete(side, transfers, used, "there and back"))
            ls_transport_buffer_judge(side, &buffer, i, of_zero_and_one,
                                      "what came back into the memory that was sent");
        ls_transport_buffer_finish(&buffer);
    }
}

// REDUCE, COPY and DIVIDE need no peer.
static void alone_body(struct ls_transport_side *side)
{
    const struct ls_transport_trial *trial = side->trial;
    for (uint64_t i = 0; i < COUNTS; i++) {
        struct ls_transport_buffer own, other;
        if (!ls_transport_buffer_init(side, &own, counts[i], 1, i) ||
            !ls_transport_buffer_init(side, &other, counts[i], 0, i))
            return;
        struct ls_transfer transfer = ls_transport_send(0, 0, &own);
        transfer.kind = (uint32_t)trial->variant;
        transfer.from = other.data;
        transfer.reduction = trial->reduction;
        transfer.divisor = 2;
        for (uint64_t k = 0; transfer.kind == LS_TRANSFER_DIVIDE && k < counts[i]; k++)
            ls_transport_encode(own.values, k, trial->dtype,
                                2 * ls_transport_value(trial, 0, i, k));
        if (ls_transport_buffer_push(side, &own) && ls_transport_post(side, &transfer) &&
            ls_transport_expect_complete(side, &transfer, 1, "a transfer without a peer"))
            ls_transport_buffer_judge(
                side, &own, i, transfer.kind == LS_TRANSFER_REDUCE ? of_zero_and_one : of_zero,
                "a transfer without a peer");
        ls_transport_buffer_finish(&own);
        ls_transport_buffer_finish(&other);
    }
}

// Integers are divided towards zero, floats rounded once.
static void rounding_body(struct ls_transport_side *side)
{
    int32_t whole[2] = {-7, 7};
    float single[1] = {1};
    struct ls_transfer transfer = {.struct_size = sizeof(transfer),
                                   .kind = LS_TRANSFER_DIVIDE,
                                   .memory = whole,
                                   .count = 2,
                                   .dtype = LS_I32,
                                   .divisor = 2};
    if (!ls_transport_post(side, &transfer) ||
        !ls_transport_expect_complete(side, &transfer, 1, "divide"))
        return;
    if (whole[0] != -3 || whole[1] != 3)
        ls_tally_blame(&side->trial->suite->tally, "-7 / 2 is %d and 7 / 2 is %d, not -3 and 3",
                       whole[0], whole[1]);
    transfer = (struct ls_transfer){.struct_size = sizeof(transfer),
                                    .kind = LS_TRANSFER_DIVIDE,
                                    .memory = single,
                                    .count = 1,
                                    .dtype = LS_F32,
                                    .divisor = 3};
    if (ls_transport_post(side, &transfer) &&
        ls_transport_expect_complete(side, &transfer, 1, "divide") && single[0] != 1.0f / 3.0f)
        ls_tally_blame(&side->trial->suite->tally, "1 / 3 in float32 is %.9g, not %.9g",
                       (double)single[0], (double)(1.0f / 3.0f));
}

// ---- Cases ----

static void value_case(struct ls_transport_suite *suite, const char *name, uint32_t dtype,
                       uint32_t reduction, uint32_t world,
                       void (*body)(struct ls_transport_side *side), uint64_t variant)
{
    struct ls_transport_trial trial = {
        .world = world, .body = body, .dtype = dtype, .reduction = reduction, .variant = variant};
    ls_transport_case(suite, &trial, "%s %s%s%s", name, dtype_names[dtype], reduction ? " " : "",
                      reduction_names[reduction]);
}

void ls_transport_value_cases(struct ls_transport_suite *suite)
{
    for (uint32_t dtype = LS_F32; dtype <= LS_U8; dtype++) {
        value_case(suite, "receive", dtype, 0, 2, receive_body, 0);
        value_case(suite, "copy", dtype, 0, 1, alone_body, LS_TRANSFER_COPY);
        value_case(suite, "divide", dtype, 0, 1, alone_body, LS_TRANSFER_DIVIDE);
        for (uint32_t reduction = LS_SUM; reduction <= LS_MAX; reduction++) {
            value_case(suite, "receive_reduce", dtype, reduction, 2, receive_reduce_body, 0);
            value_case(suite, "reduce", dtype, reduction, 1, alone_body, LS_TRANSFER_REDUCE);
            value_case(suite, "relay", dtype, reduction, 3, relay_body, 0);
            value_case(suite, "relay_to_late", dtype, reduction, 3, relay_body, 1);
            value_case(suite, "there_and_back", dtype, reduction, 2, return_body, 0);
        }
    }
    // In host memory: what a device rounds, its own suite looks at.
    struct ls_transport_trial trial = {.world = 1, .body = rounding_body, .dtype = LS_F32};
    if (!suite->devices.ops)
        ls_transport_case(suite, &trial, "divide_rounding");
}
