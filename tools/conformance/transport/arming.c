// SPDX-License-Identifier: Apache-2.0
// What a transport that can be armed promises: its file descriptor turns readable when something may move, each time.
#include "tools/conformance/transport/suite.h"

#include "core/base/clock.h"
#include "core/base/random.h"

#include <poll.h>

#define MESSAGES 40
#define LARGE_COUNT 70001 // elements: more than any transport takes in one piece

static uint32_t of_peer(const struct ls_transport_side *side, uint64_t message, uint64_t index)
{
    return ls_transport_value(side->trial, 1 - side->rank, message, index);
}

// Looks at the descriptor only, never because some time has passed. False: blamed, or told of the end (`status`).
static bool wait_armed(struct ls_transport_side *side, struct ls_transfer *const *pending,
                       uint64_t count, int32_t *status)
{
    struct ls_tally *tally = &side->trial->suite->tally;
    struct pollfd ready = {.fd = -1, .events = POLLIN};
    uint64_t glance_ns = 0;
    *status = side->trial->ops->arm(side->endpoint, pending, count, &ready.fd, &glance_ns);
    if (*status == LS_AGAIN)
        return true;
    if (*status)
        return false;
    if (ready.fd < 0 || !glance_ns)
        return ls_tally_blame(tally, "arm gives the file descriptor %d, and a glance of %.0f ns",
                              ready.fd, (double)glance_ns);
    // A descriptor that is not readable by then was forgotten.
    const uint64_t wake_ms = ls_transport_patience_ns(side->trial->suite) / 1000000;
    return poll(&ready, 1, (int)wake_ms) == 1 ||
           ls_tally_blame(tally,
                          "endpoint %u: armed, its file descriptor is not readable after %.3g s, "
                          "though its peer is done",
                          side->rank, (double)wake_ms * 1e-3);
}

// LS_OK: all are complete.
static int32_t complete_armed(struct ls_transport_side *side, struct ls_transfer *transfers,
                              uint64_t count)
{
    int32_t status = LS_AGAIN;
    while (status == LS_AGAIN || status == LS_OK) {
        struct ls_transfer *pending[2];
        uint64_t left = 0;
        for (uint64_t i = 0; i < count; i++) {
            if (transfers[i].state == LS_TRANSFER_COMPLETE)
                continue;
            status = side->trial->ops->test(side->endpoint, &transfers[i]);
            if (status && status != LS_AGAIN)
                return status;
            if (status)
                pending[left++] = &transfers[i];
        }
        if (!left)
            return LS_OK;
        if (!wait_armed(side, pending, left, &status))
            return status ? status : LS_TRANSPORT_NEVER;
    }
    return status;
}

// Messages both ways, each after a pause of its own, so that now one side waits and now the other.
static void armed_body(struct ls_transport_side *side)
{
    const struct ls_transport_trial *trial = side->trial;
    struct ls_tally *tally = &trial->suite->tally;
    const uint32_t peer = 1 - side->rank;
    const uint64_t key = ls_random_key(trial->suite->options.seed, 99 + side->rank);
    const uint64_t count = trial->variant;
    for (uint64_t number = 0; number < MESSAGES && !ls_tally_blamed(tally); number++) {
        struct ls_transport_buffer out, in;
        if (!ls_transport_buffer_init(side, &out, count, side->rank, number))
            return;
        if (!ls_transport_buffer_init(side, &in, count, side->rank, number + MESSAGES)) {
            ls_transport_buffer_finish(&out);
            return;
        }
        struct ls_transfer transfers[] = {ls_transport_send(peer, number, &out),
                                          ls_transport_receive(peer, number, &in)};
        ls_transport_pause(ls_random_u64(key, number) % 4);
        if (ls_transport_post(side, &transfers[0]) && ls_transport_post(side, &transfers[1])) {
            const int32_t status = complete_armed(side, transfers, 2);
            if (status && status != LS_TRANSPORT_NEVER)
                ls_tally_blame(tally, "endpoint %u, waiting armed: %s", side->rank,
                               ls_status_text((enum ls_status)status));
            if (!status)
                ls_transport_buffer_judge(side, &in, number, of_peer, "the message");
        }
        ls_transport_buffer_finish(&in);
        ls_transport_buffer_finish(&out);
    }
    if (ls_tally_blamed(tally))
        trial->ops->abort(side->endpoint);
}

// Rank 1 waits, armed, for what never comes; rank 0 aborts.
static void armed_abort_body(struct ls_transport_side *side)
{
    const struct ls_transport_trial *trial = side->trial;
    struct ls_transport_buffer buffer;
    if (side->rank == 0) {
        if (ls_transport_await(side, 1)) {
            ls_transport_pause(20);
            trial->ops->abort(side->endpoint);
        }
        return;
    }
    if (!ls_transport_buffer_init(side, &buffer, 100, side->rank, 0))
        return;
    struct ls_transfer never = ls_transport_receive(0, 0, &buffer);
    if (ls_transport_post(side, &never)) {
        ls_transport_advance(side);
        const int32_t status = complete_armed(side, &never, 1);
        if (status != LS_ABORTED && status != LS_PEER_LOST && status != LS_TRANSPORT_NEVER)
            ls_tally_blame(&trial->suite->tally, "an armed wait after an abort: %s",
                           ls_status_text((enum ls_status)status));
    }
    ls_transport_buffer_finish(&buffer);
}

void ls_transport_arming_cases(struct ls_transport_suite *suite)
{
    static const uint64_t counts[] = {1, 1009, LARGE_COUNT};
    struct ls_transport_trial trial = {.world = 2, .dtype = LS_F32};
    if (!suite->options.transport->arm || suite->devices.ops)
        return;
    trial.body = armed_body;
    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
        trial.variant = counts[i];
        ls_transport_case(suite, &trial, "armed count=%u", (unsigned)counts[i]);
    }
    trial.body = armed_abort_body;
    ls_transport_case(suite, &trial, "armed_abort");
}
