// SPDX-License-Identifier: Apache-2.0
// What a transport promises when the process of a peer is killed or stopped. Only between processes.
#include "tools/conformance/transport/suite.h"

#include "core/base/clock.h"
#include "core/base/random.h"
#include "core/collective/endpoints.h"

#include <signal.h>

#define COUNT 1009
#define LARGE (UINT64_C(1) << 20) // elements: a pass takes some time
#define TURNS 8 // kills at different moments
#define MOST_DELAY_US 3000

static uint32_t of_own(const struct ls_transport_side *side, uint64_t message, uint64_t index)
{
    return ls_transport_value(side->trial, side->rank, message, index);
}

static uint32_t of_two(const struct ls_transport_side *side, uint64_t message, uint64_t index)
{
    return ls_transport_value(side->trial, 2, message, index);
}

// Of endpoints whose peer may be stopped, which nothing but a deadline can tell.
static uint64_t stop_deadline_ns(const struct ls_transport_suite *suite)
{
    return ls_transport_patience_ns(suite) / 5;
}

static const char *text_of(int32_t status)
{
    return status == LS_TRANSPORT_NEVER ? "still waiting when its time is over"
                                        : ls_status_text((enum ls_status)status);
}

// Until it is killed.
static void wait_for_the_end(struct ls_transport_side *side)
{
    ls_transport_pause(2 * ls_transport_patience_ns(side->trial->suite) / 1000000);
    ls_tally_blame(&side->trial->suite->tally, "endpoint %u was not killed", side->rank);
}

// What waits for rank 0, which is killed, ends with LS_PEER_LOST (rank 1 receives, the others send); 1 and 2 go on.
static void killed_body(struct ls_transport_side *side)
{
    const struct ls_transport_trial *trial = side->trial;
    struct ls_tally *tally = &trial->suite->tally;
    struct ls_transport_buffer lost, buffer;
    if (side->rank == 0) {
        wait_for_the_end(side);
        return;
    }
    if (!ls_transport_buffer_init(side, &lost, COUNT, side->rank, 0))
        return;
    if (!ls_transport_buffer_init(side, &buffer, COUNT, side->rank, 0)) {
        ls_transport_buffer_finish(&lost);
        return;
    }
    struct ls_transfer never =
        side->rank == 1 ? ls_transport_receive(0, 0, &lost) : ls_transport_send(0, 0, &lost);
    if (ls_transport_post(side, &never)) {
        ls_transport_advance(side);
        int32_t status = ls_transport_complete(side, &never, 1);
        if (status != LS_PEER_LOST)
            ls_tally_blame(tally, "endpoint %u, a message to or from a process that was killed: %s",
                           side->rank, text_of(status));
        status = trial->ops->peer_state(side->endpoint, 0);
        if (status != LS_PEER_LOST)
            ls_tally_blame(tally, "peer_state of an endpoint whose process was killed: %s",
                           text_of(status));
    }
    if (trial->world > 2 && !ls_tally_blamed(tally)) {
        struct ls_transfer transfer = side->rank == 2 ? ls_transport_send(1, 0, &buffer)
                                                      : ls_transport_receive(2, 0, &buffer);
        if (ls_transport_post(side, &transfer) &&
            ls_transport_expect_complete(side, &transfer, 1, "a message after a third was killed"))
            ls_transport_buffer_judge(side, &buffer, 0, of_two,
                                      "a message after a third was killed");
    }
    ls_transport_buffer_finish(&buffer);
    ls_transport_buffer_finish(&lost);
}

// Moves both transfers on until they are complete. LS_TRANSPORT_NEVER: not within `limit_ns` after the accident.
static int32_t complete_both(struct ls_transport_side *side, struct ls_transfer transfers[2],
                             uint64_t limit_ns)
{
    const struct ls_transport_interface *ops = side->trial->ops;
    uint64_t begin_ns = ls_clock_ns();
    int32_t status = LS_OK;
    while (!status) {
        struct ls_transfer *pending[2];
        uint64_t count = 0;
        for (int i = 0; i < 2 && !status; i++) {
            if (transfers[i].state == LS_TRANSFER_COMPLETE)
                continue;
            status = ops->test(side->endpoint, &transfers[i]);
            if (status == LS_AGAIN) {
                pending[count++] = &transfers[i];
                status = LS_OK;
            }
        }
        if (status || !count)
            break;
        status = ops->wait_any(side->endpoint, pending, count, 20000000);
        if (atomic_load(side->trial->stage) < LS_TRANSPORT_HAPPENED)
            begin_ns = ls_clock_ns();
        if (status == LS_AGAIN)
            status = ls_clock_ns() - begin_ns < limit_ns ? LS_OK : LS_TRANSPORT_NEVER;
    }
    return status;
}

// Large messages both ways, one after the other, until something happens; returns what.
static int32_t stream(struct ls_transport_side *side, struct ls_transport_buffer *out,
                      struct ls_transport_buffer *in, struct ls_transfer transfers[2],
                      uint64_t limit_ns)
{
    const uint32_t peer = 1 - side->rank;
    int32_t status = LS_OK;
    for (uint64_t number = 0; !status; number++) {
        transfers[0] = ls_transport_send(peer, number, out);
        transfers[1] = ls_transport_receive(peer, number, in);
        transfers[1].kind = LS_TRANSFER_RECEIVE_REDUCE;
        transfers[1].reduction = LS_MAX;
        for (int i = 0; i < 2 && !status; i++)
            status = side->trial->ops->post(side->endpoint, &transfers[i]);
        if (!status)
            status = complete_both(side, transfers, limit_ns);
        if (number == 2)
            ls_transport_advance(side);
    }
    return status;
}

// Two exchange large messages when rank 1 is killed, or stopped: rank 0 is told of a death, and itself ends a wait that takes
// too long, as a communicator does. After its abort no peer touches its memory.
static void in_a_pass_body(struct ls_transport_side *side)
{
    const struct ls_transport_trial *trial = side->trial;
    struct ls_tally *tally = &trial->suite->tally;
    const bool stopped = trial->accident.signal == SIGSTOP;
    const uint64_t limit_ns = stopped && side->rank == 0 ? stop_deadline_ns(trial->suite) / 4
                                                         : ls_transport_patience_ns(trial->suite);
    struct ls_transfer transfers[2];
    struct ls_transport_buffer out, in;
    if (!ls_transport_buffer_init(side, &out, LARGE, side->rank, 0))
        return;
    if (!ls_transport_buffer_init(side, &in, LARGE, side->rank, 1)) {
        ls_transport_buffer_finish(&out);
        return;
    }
    const int32_t told = stream(side, &out, &in, transfers, limit_ns);
    if (told != (stopped ? LS_TRANSPORT_NEVER : LS_PEER_LOST))
        ls_tally_blame(tally, "the peer's process was %s: %s", stopped ? "stopped" : "killed",
                       text_of(told));
    const uint64_t begin_ns = ls_clock_ns();
    struct ls_transfer later = ls_transport_receive(1, 1000000, &in);
    trial->ops->abort(side->endpoint);
    int32_t status = trial->ops->post(side->endpoint, &later);
    if (!status)
        status = ls_transport_complete(side, &later, 1);
    if (status != LS_PEER_LOST && status != LS_ABORTED)
        ls_tally_blame(tally, "after an abort, with a peer that is %s: %s",
                       stopped ? "stopped" : "dead", text_of(status));
    if (ls_clock_ns() - begin_ns > 3 * stop_deadline_ns(trial->suite))
        ls_tally_blame(tally, "an abort with a peer that is %s takes longer than the deadline",
                       stopped ? "stopped" : "dead");
    if (!stopped || status == LS_ABORTED)
        ls_transport_buffer_judge(side, &out, 0, of_own, "memory that was sent");
    ls_transport_buffer_finish(&in);
    ls_transport_buffer_finish(&out);
}

void ls_transport_death_cases(struct ls_transport_suite *suite)
{
    if (suite->spread != LS_SPREAD_PROCESSES && suite->spread != LS_SPREAD_MAPPED)
        return;
    for (uint32_t world = 2; world <= 3; world++) {
        struct ls_transport_trial trial = {
            .world = world, .body = killed_body, .dtype = LS_F32, .accident = {SIGKILL, 0, 20000}};
        ls_transport_case(suite, &trial, "killed_peer endpoints=%u", world);
    }
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        const uint64_t key = ls_random_key(suite->options.seed, 4711 + turn);
        const uint64_t delay_us = ls_random_u64(key, 0) % MOST_DELAY_US;
        struct ls_transport_trial trial = {.world = 2,
                                           .body = in_a_pass_body,
                                           .dtype = LS_F32,
                                           .accident = {SIGKILL, 1, delay_us},
                                           .deadline_ns = stop_deadline_ns(suite)};
        ls_transport_case(suite, &trial, "killed_in_a_pass turn=%u", turn);
        if (turn % 4)
            continue;
        trial.accident.signal = SIGSTOP;
        ls_transport_case(suite, &trial, "stopped_in_a_pass turn=%u", turn);
    }
}
