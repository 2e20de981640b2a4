// SPDX-License-Identifier: Apache-2.0
// Messages meet by their number, whatever the order in which the sides post; many may be under way at a time.
#include "tools/conformance/transport/suite.h"

#include "core/base/random.h"

#include <stdlib.h>

#define BLOCK 8 // messages that are posted in any order
#define MANY 600 // more than a window is likely to have
#define ROUNDS 40

static uint32_t of_peer(const struct ls_transport_side *side, uint64_t message, uint64_t index)
{
    return ls_transport_value(side->trial, 1 - side->rank, message, index);
}

static uint32_t of_own(const struct ls_transport_side *side, uint64_t message, uint64_t index)
{
    return ls_transport_value(side->trial, side->rank, message, index);
}

// Both sides send and receive `count` messages, numbered from `first`, posted in the given order.
static bool exchange(struct ls_transport_side *side, uint64_t first, uint32_t count,
                     const uint32_t *order, uint64_t elements)
{
    const uint32_t peer = 1 - side->rank;
    struct ls_transfer *transfers = calloc(2 * (size_t)count, sizeof(*transfers));
    struct ls_transport_buffer *buffers = calloc(2 * (size_t)count, sizeof(*buffers));
    bool good = transfers && buffers;
    for (uint32_t i = 0; good && i < 2 * count; i++) {
        const uint64_t message = first + i / 2;
        good = ls_transport_buffer_init(
            side, &buffers[i], (elements + message) % (2 * elements + 1), side->rank, message);
        transfers[i] = i % 2 ? ls_transport_receive(peer, message, &buffers[i])
                             : ls_transport_send(peer, message, &buffers[i]);
        transfers[i].signature = message + 1;
    }
    for (uint32_t i = 0; good && i < 2 * count; i++)
        good = ls_transport_post(side, &transfers[order[i]]);
    good = good && ls_transport_expect_complete(side, transfers, 2 * (size_t)count, "messages");
    for (uint32_t i = 0; good && i < 2 * count; i++)
        ls_transport_buffer_judge(side, &buffers[i], first + i / 2, i % 2 ? of_peer : of_own,
                                  i % 2 ? "what was received" : "what was sent");
    for (uint32_t i = 0; buffers && i < 2 * count; i++)
        ls_transport_buffer_finish(&buffers[i]);
    free(buffers);
    free(transfers);
    return good;
}

static void shuffled_body(struct ls_transport_side *side)
{
    uint32_t order[2 * BLOCK];
    for (uint64_t round = 0; round < ROUNDS; round++) {
        const uint64_t key =
            ls_random_key(side->trial->suite->options.seed, 77 + round * 2 + side->rank);
        for (uint32_t i = 0; i < 2 * BLOCK; i++)
            order[i] = i;
        ls_random_permutation(key, order, 2 * BLOCK);
        if (!exchange(side, round * BLOCK, BLOCK, order, 50))
            return;
    }
}

static void many_body(struct ls_transport_side *side)
{
    uint32_t order[2 * MANY];
    for (uint32_t i = 0; i < 2 * MANY; i++) // rank 0: sends first
        order[i] = side->rank ? i : (i < MANY ? 2 * i : 2 * (i - MANY) + 1);
    exchange(side, 0, MANY, order, 20);
}

// Everybody sends to everybody, sizes at random, several times.
static void all_to_all_body(struct ls_transport_side *side)
{
    const struct ls_transport_trial *trial = side->trial;
    struct ls_transfer transfers[2 * LS_TRANSPORT_MOST_ENDPOINTS];
    struct ls_transport_buffer buffers[2 * LS_TRANSPORT_MOST_ENDPOINTS];
    for (uint64_t round = 0; round < ROUNDS; round++) {
        size_t used = 0;
        bool good = true;
        for (uint32_t peer = 0; good && peer < trial->world; peer++) {
            if (peer == side->rank)
                continue;
            for (int way = 0; good && way < 2; way++, used++) {
                const uint32_t from = way ? peer : side->rank, to = way ? side->rank : peer;
                const uint64_t key =
                    ls_random_key(trial->suite->options.seed, (round * 64 + from) * 64 + to);
                good = ls_transport_buffer_init(side, &buffers[used], ls_random_u64(key, 0) % 5000,
                                                side->rank, round);
                transfers[used] = way ? ls_transport_receive(peer, round, &buffers[used])
                                      : ls_transport_send(peer, round, &buffers[used]);
                transfers[used].signature = key;
            }
        }
        for (size_t i = 0; good && i < used; i++)
            good = ls_transport_post(side, &transfers[i]);
        good = good && ls_transport_expect_complete(side, transfers, used, "all to all");
        for (size_t i = 0; good && i < used; i++)
            if (i % 2 == 1) { // compare with what that peer had
                struct ls_transport_side as_peer = {.trial = side->trial,
                                                    .rank = transfers[i].source};
                ls_transport_buffer_judge(&as_peer, &buffers[i], round, of_own,
                                          "what came from it");
            }
        for (size_t i = 0; i < used; i++)
            ls_transport_buffer_finish(&buffers[i]);
        if (!good)
            return;
    }
}

void ls_transport_order_cases(struct ls_transport_suite *suite)
{
    const struct {
        const char *name;
        uint32_t world;
        void (*body)(struct ls_transport_side *side);
    } cases[] = {
        {"posted_in_any_order", 2, shuffled_body},
        {"more_than_a_window", 2, many_body},
        {"all_to_all endpoints=3", 3, all_to_all_body},
        {"all_to_all endpoints=8", 8, all_to_all_body},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct ls_transport_trial trial = {
            .world = cases[i].world, .body = cases[i].body, .dtype = LS_I32};
        ls_transport_case(suite, &trial, "%s", cases[i].name);
    }
}
