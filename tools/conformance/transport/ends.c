// SPDX-License-Identifier: Apache-2.0
// What a transport promises when a side is late, differs, aborts or leaves.
#include "tools/conformance/transport/suite.h"

#include "core/base/clock.h"
#include "core/collective/endpoints.h"

#include <string.h>

#define COUNT 1009

static uint32_t of_zero(const struct ls_transport_side *side, uint64_t message, uint64_t index)
{
    return ls_transport_value(side->trial, 0, message, index);
}

static const char *text_of(int32_t status)
{
    return status == LS_TRANSPORT_NEVER ? "still waiting when its time is over"
                                        : ls_status_text((enum ls_status)status);
}

// One message from 0 to 1; variant: the rank that is late.
static void late_body(struct ls_transport_side *side)
{
    const struct ls_transport_trial *trial = side->trial;
    struct ls_transport_buffer buffer;
    if (!ls_transport_buffer_init(side, &buffer, COUNT, side->rank, 0))
        return;
    struct ls_transfer transfer =
        side->rank ? ls_transport_receive(0, 0, &buffer) : ls_transport_send(1, 0, &buffer);
    struct ls_transfer *const list[] = {&transfer};
    if (side->rank == trial->variant) {
        ls_transport_await(side, 1);
    } else if (ls_transport_post(side, &transfer)) {
        const uint64_t begin_ns = ls_clock_ns();
        const int32_t status = trial->ops->wait_any(side->endpoint, list, 1, 30000000);
        const uint64_t took_ns = ls_clock_ns() - begin_ns;
        if (status != LS_AGAIN && side->rank == 1) // a sender's memory may be taken at once
            ls_tally_blame(&trial->suite->tally,
                           "wait_any for a message that nobody has sent: %s, not LS_AGAIN",
                           text_of(status));
        if (status == LS_AGAIN && took_ns < 20000000)
            ls_tally_blame(&trial->suite->tally, "wait_any of 30 ms came back after %.1f ms",
                           (double)took_ns * 1e-6);
        ls_transport_advance(side);
    }
    if (side->rank != trial->variant || ls_transport_post(side, &transfer))
        if (ls_transport_expect_complete(side, &transfer, 1, "a message to or from a late peer"))
            ls_transport_buffer_judge(side, &buffer, 0, of_zero, "the message");
    ls_transport_buffer_finish(&buffer);
}

// How a call ends that waits for `from` when `aborting` aborts: LS_ABORTED in the process of that endpoint, and elsewhere
// that, or LS_PEER_LOST.
static bool ends_by_abort(const struct ls_transport_side *side, uint32_t aborting, int32_t status)
{
    return status == LS_ABORTED ||
           (status == LS_PEER_LOST && !ls_transport_together(side->trial, side->rank, aborting));
}

// What is posted after an abort ends so, too. In a process that heard of it as a lost peer, other peers go on.
static void post_late(struct ls_transport_side *side, struct ls_transport_buffer *buffer,
                      uint32_t aborting)
{
    const struct ls_transport_trial *trial = side->trial;
    struct ls_tally *tally = &trial->suite->tally;
    const bool elsewhere = !ls_transport_together(trial, side->rank, aborting);
    const uint32_t peer = elsewhere ? aborting : (side->rank + 1) % trial->world;
    struct ls_transfer later = ls_transport_send(peer, 5, buffer);
    int32_t status = trial->ops->post(side->endpoint, &later);
    if (!status)
        status = ls_transport_complete(side, &later, 1);
    if (!ends_by_abort(side, aborting, status))
        ls_tally_blame(tally, "endpoint %u: a send posted after abort: %s, not LS_ABORTED",
                       side->rank, text_of(status));
    status = trial->ops->peer_state(side->endpoint, aborting);
    if (status == LS_OK)
        ls_tally_blame(tally, "peer_state after abort is LS_OK");
}

// Rank 1 waits for a message that never comes; rank 0 aborts (variant 0), or rank 2 does, whom it does not concern.
static void abort_body(struct ls_transport_side *side)
{
    const struct ls_transport_trial *trial = side->trial;
    struct ls_tally *tally = &trial->suite->tally;
    const uint32_t aborting = trial->variant ? 2 : 0;
    struct ls_transport_buffer buffer;
    if (!ls_transport_buffer_init(side, &buffer, COUNT, side->rank, 0))
        return;
    // An abort by another process need not reach who does not wait for that one.
    const uint32_t awaited = ls_transport_together(trial, 1, aborting) ? 0 : aborting;
    struct ls_transfer transfer = ls_transport_receive(awaited, 0, &buffer);
    if (side->rank == 1) {
        if (ls_transport_post(side, &transfer)) {
            ls_transport_advance(side);
            const int32_t status = ls_transport_complete(side, &transfer, 1);
            if (!ends_by_abort(side, aborting, status))
                ls_tally_blame(tally, "a wait under way after abort: %s, not LS_ABORTED",
                               text_of(status));
        }
    } else if (side->rank == aborting) {
        ls_transport_await(side, 1);
        ls_transport_pause(20);
        trial->ops->abort(side->endpoint);
        ls_transport_advance(side);
    }
    if (ls_transport_await(side, 2))
        post_late(side, &buffer, aborting);
    ls_transport_buffer_finish(&buffer);
}

// Rank 0 leaves while rank 1 waits for it.
static void closed_body(struct ls_transport_side *side)
{
    const struct ls_transport_trial *trial = side->trial;
    struct ls_tally *tally = &trial->suite->tally;
    struct ls_transport_buffer buffer;
    if (side->rank == 0) {
        ls_transport_await(side, 1);
        ls_transport_pause(20);
        ls_endpoint_close(trial->ops, side->endpoint);
        side->endpoint = NULL;
        return;
    }
    if (!ls_transport_buffer_init(side, &buffer, COUNT, 1, 0))
        return;
    struct ls_transfer transfer = ls_transport_receive(0, 0, &buffer);
    int32_t status = trial->ops->peer_state(side->endpoint, 0);
    if (status)
        ls_tally_blame(tally, "peer_state of a peer that is there: %s", text_of(status));
    if (ls_transport_post(side, &transfer)) {
        ls_transport_advance(side);
        status = ls_transport_complete(side, &transfer, 1);
        const bool told = status == LS_ABORTED || status == LS_PEER_LOST;
        if (!told)
            ls_tally_blame(tally, "a wait for an endpoint that was closed: %s", text_of(status));
        status = trial->ops->peer_state(side->endpoint, 0);
        if (status != LS_PEER_LOST && status != LS_ABORTED)
            ls_tally_blame(tally, "peer_state of an endpoint that was closed: %s", text_of(status));
    }
    ls_transport_buffer_finish(&buffer);
}

// Rank 0 leaves; 1 and 2, who are told LS_PEER_LOST of it, go on. One who is told LS_ABORTED can do nothing more.
static void closed_body_of_three(struct ls_transport_side *side)
{
    const struct ls_transport_trial *trial = side->trial;
    struct ls_tally *tally = &trial->suite->tally;
    struct ls_transport_buffer lost, buffer;
    if (side->rank == 0) {
        ls_transport_await(side, 2); // both wait
        ls_transport_pause(20);
        ls_endpoint_close(trial->ops, side->endpoint);
        side->endpoint = NULL;
        return;
    }
    if (!ls_transport_buffer_init(side, &lost, COUNT, side->rank, 0))
        return;
    if (!ls_transport_buffer_init(side, &buffer, COUNT, 2 - side->rank, 0)) {
        ls_transport_buffer_finish(&lost);
        return;
    }
    // 1 has sent what 0 never takes, 2 waits for what 0 never sends.
    struct ls_transfer never =
        side->rank == 1 ? ls_transport_send(0, 0, &lost) : ls_transport_receive(0, 0, &lost);
    struct ls_transfer transfer =
        side->rank == 2 ? ls_transport_send(1, 0, &buffer) : ls_transport_receive(2, 0, &buffer);
    if (ls_transport_post(side, &never)) {
        ls_transport_advance(side);
        const int32_t status = ls_transport_complete(side, &never, 1);
        const bool told = trial->ops->peer_state(side->endpoint, 0) == status;
        if ((status != LS_PEER_LOST && status != LS_ABORTED) || !told)
            ls_tally_blame(tally, "a message to or from an endpoint that was closed: %s%s",
                           text_of(status), told ? "" : ", but peer_state says something else");
        if (status == LS_PEER_LOST && ls_transport_post(side, &transfer) &&
            ls_transport_expect_complete(side, &transfer, 1, "a message after a third has left"))
            ls_transport_buffer_judge(side, &buffer, 0, of_zero,
                                      "a message after a third has left");
    }
    ls_transport_buffer_finish(&buffer);
    ls_transport_buffer_finish(&lost);
}

// Signatures (variant 0) or sizes (variant 1) differ: the receiver says so.
static void mismatch_body(struct ls_transport_side *side)
{
    const struct ls_transport_trial *trial = side->trial;
    struct ls_tally *tally = &trial->suite->tally;
    struct ls_transport_buffer buffer;
    const uint64_t count = trial->variant && side->rank ? COUNT + 1 : COUNT;
    if (!ls_transport_buffer_init(side, &buffer, count, side->rank, 0))
        return;
    struct ls_transfer transfer =
        side->rank ? ls_transport_receive(0, 0, &buffer) : ls_transport_send(1, 0, &buffer);
    transfer.signature = trial->variant ? 9 : side->rank;
    if (ls_transport_post(side, &transfer)) {
        const int32_t status = ls_transport_complete(side, &transfer, 1);
        const bool named = status == LS_FAILED && transfer.state == LS_TRANSFER_MISMATCH;
        if (side->rank == 1 && !named)
            ls_tally_blame(tally,
                           "a message that differs: %s and state %u, not LS_FAILED and "
                           "LS_TRANSFER_MISMATCH",
                           text_of(status), transfer.state);
        if (side->rank == 1)
            trial->ops->abort(side->endpoint);
        else if (!ends_by_abort(side, 1, status) && !(status == LS_FAILED && named))
            ls_tally_blame(tally, "the sender of a message that differs: %s", text_of(status));
    }
    ls_transport_buffer_finish(&buffer);
}

// Two sets of endpoints know nothing of each other: an abort in one does not reach the other.
static void two_body(struct ls_transport_side *side)
{
    const struct ls_transport_trial *trial = side->trial;
    const struct ls_endpoints_options options = {.transport = trial->ops,
                                                 .host = trial->suite->options.host,
                                                 .world = 2,
                                                 .name = "check.others",
                                                 .deadline_ns =
                                                     ls_transport_patience_ns(trial->suite)};
    struct ls_transport *others[2] = {NULL, NULL};
    struct ls_transport_buffer buffer;
    if (side->rank == 0) {
        const int32_t status = (int32_t)ls_endpoints_open(&options, others);
        if (status) {
            ls_tally_blame(&trial->suite->tally, "a second open: %s", text_of(status));
        } else {
            trial->ops->abort(others[0]);
            ls_endpoint_close(trial->ops, others[0]);
            ls_endpoint_close(trial->ops, others[1]);
        }
        ls_transport_advance(side);
    }
    if (!ls_transport_await(side, 1) ||
        !ls_transport_buffer_init(side, &buffer, COUNT, side->rank, 0))
        return;
    struct ls_transfer transfer =
        side->rank ? ls_transport_receive(0, 0, &buffer) : ls_transport_send(1, 0, &buffer);
    if (ls_transport_post(side, &transfer) &&
        ls_transport_expect_complete(side, &transfer, 1, "a message after another set's abort"))
        ls_transport_buffer_judge(side, &buffer, 0, of_zero, "the message");
    ls_transport_buffer_finish(&buffer);
}

void ls_transport_end_cases(struct ls_transport_suite *suite)
{
    const struct {
        const char *name;
        uint32_t world;
        void (*body)(struct ls_transport_side *side);
        uint64_t variant;
    } cases[] = {
        {"late_sender", 2, late_body, 0},
        {"late_receiver", 2, late_body, 1},
        {"abort_by_the_peer", 3, abort_body, 0},
        {"abort_by_another", 3, abort_body, 1},
        {"closed_peer", 2, closed_body, 0},
        {"closed_third", 3, closed_body_of_three, 0},
        {"other_signature", 2, mismatch_body, 0},
        {"other_size", 2, mismatch_body, 1},
        {"two_sets", 2, two_body, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct ls_transport_trial trial = {.world = cases[i].world,
                                           .body = cases[i].body,
                                           .dtype = LS_F32,
                                           .variant = cases[i].variant};
        ls_transport_case(suite, &trial, "%s", cases[i].name);
    }
}
