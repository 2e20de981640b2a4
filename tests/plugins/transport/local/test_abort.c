// SPDX-License-Identifier: Apache-2.0
// After an abort, memory is its owner's again as soon as the owner has been told: a peer in the middle of reading
// it is waited for.
#include "core/base/threads.h"
#include "core/plugin/transport.h"
#include "plugins/transport/local/mailbox.h"
#include "tests/support/endpoints.h"
#include "tests/support/plugin.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdatomic.h>
#include <time.h>

#define COUNT (UINT64_C(32) << 20) // bytes: a pass of several milliseconds
#define TURNS 20
#define DEADLINE_NS UINT64_C(5000000000)

static const struct ls_plugin *plugin;

struct peer {
    const struct ls_transport_interface *interface;
    struct ls_transport *transport;
    unsigned char *memory;
    _Atomic int begun;
    int32_t status;
};

static void *receive(void *argument)
{
    struct peer *peer = argument;
    struct ls_transfer transfer = {
        .struct_size = sizeof(transfer),
        .kind = LS_TRANSFER_RECEIVE,
        .source = 0,
        .after = LS_TRANSFER_AT_ONCE,
        .memory = peer->memory,
        .count = COUNT,
        .dtype = LS_U8,
    };
    peer->status = peer->interface->post(peer->transport, &transfer);
    atomic_store(&peer->begun, 1);
    while (!peer->status && transfer.state != LS_TRANSFER_COMPLETE) {
        peer->status = peer->interface->test(peer->transport, &transfer);
        if (peer->status == LS_AGAIN)
            peer->status = LS_OK;
    }
    return NULL;
}

// Rank 0 offers its memory, aborts while rank 1 reads it, and overwrites it. True when rank 1 had begun.
static int abort_while_read(unsigned char *memory, unsigned char *copy, long delay_us)
{
    const struct ls_transport_interface *interface = plugin->interface;
    const struct timespec delay = {.tv_nsec = delay_us * 1000};
    struct ls_transport *endpoints[2];
    struct test_host host;
    pthread_t thread;
    test_host_init(&host, plugin);
    ck_assert_int_eq(test_endpoints_open(interface, &host.host, 2, DEADLINE_NS, endpoints), LS_OK);
    memset(memory, 1, COUNT);
    memset(copy, 0, COUNT);
    struct ls_transfer send = {
        .struct_size = sizeof(send),
        .kind = LS_TRANSFER_SEND,
        .destination = 1,
        .memory = memory,
        .count = COUNT,
        .dtype = LS_U8,
    };
    ck_assert_int_eq(interface->post(endpoints[0], &send), LS_OK);
    struct peer peer = {.interface = interface, .transport = endpoints[1], .memory = copy};
    ck_assert_int_eq(ls_thread_start(&thread, "peer", receive, &peer), LS_OK);
    while (!atomic_load(&peer.begun))
        nanosleep(&(struct timespec){.tv_nsec = 1000}, NULL);
    nanosleep(&delay, NULL);
    interface->abort(endpoints[0]);
    ck_assert_int_eq(interface->test(endpoints[0], &send), LS_ABORTED);
    memset(memory, 2, COUNT);
    pthread_join(thread, NULL);
    const int read = copy[0] != 0;
    if (read)
        ck_assert_msg(memchr(copy, 2, COUNT) == NULL,
                      "the peer still read after the abort had returned");
    test_endpoint_close(interface, endpoints[0]);
    test_endpoint_close(interface, endpoints[1]);
    return read;
}

TEST(a_peer_in_the_middle_of_reading_is_waited_for)
{
    unsigned char *memory = malloc(COUNT), *copy = malloc(COUNT);
    int read = 0;
    for (long turn = 0; turn < TURNS; turn++)
        read += abort_while_read(memory, copy, 50 * turn);
    ck_assert_int_gt(read, 0);
    free(memory);
    free(copy);
}

// One of three leaves: what waits for it ends, what the others send each other goes on.
TEST(an_endpoint_that_is_closed_leaves_the_others_alone)
{
    const struct ls_transport_interface *interface = plugin->interface;
    struct ls_transport *endpoints[3];
    struct test_host host;
    unsigned char from_lost[8] = {0}, to_lost[8] = {0}, sent[8] = {7}, received[8] = {0};
    test_host_init(&host, plugin);
    ck_assert_int_eq(test_endpoints_open(interface, &host.host, 3, DEADLINE_NS, endpoints), LS_OK);
    const struct ls_transfer message = {
        .struct_size = sizeof(message), .after = LS_TRANSFER_AT_ONCE, .count = 8, .dtype = LS_U8};
    struct ls_transfer waits = message, sends = message, out = message, in = message;
    waits.kind = in.kind = LS_TRANSFER_RECEIVE;
    sends.kind = out.kind = LS_TRANSFER_SEND;
    waits.source = sends.destination = 2;
    waits.memory = from_lost;
    sends.memory = to_lost;
    out.destination = 1;
    out.memory = sent;
    in.memory = received;
    ck_assert_int_eq(interface->post(endpoints[0], &waits), LS_OK);
    ck_assert_int_eq(interface->post(endpoints[0], &sends), LS_OK);
    ck_assert_int_eq(interface->test(endpoints[0], &waits), LS_AGAIN);
    test_endpoint_close(interface, endpoints[2]);

    struct ls_transfer *const both[] = {&waits, &sends};
    ck_assert_int_eq(interface->wait_any(endpoints[0], both, 2, UINT64_C(5000000000)), LS_OK);
    ck_assert_int_eq(interface->test(endpoints[0], &waits), LS_PEER_LOST);
    ck_assert_int_eq(interface->test(endpoints[0], &sends), LS_PEER_LOST);
    ck_assert_int_eq(interface->peer_state(endpoints[0], 2), LS_PEER_LOST);
    ck_assert_int_eq(interface->peer_state(endpoints[0], 1), LS_OK);
    ck_assert_int_eq(interface->post(endpoints[0], &out), LS_OK);
    ck_assert_int_eq(interface->post(endpoints[1], &in), LS_OK);
    ck_assert_int_eq(interface->test(endpoints[1], &in), LS_OK);
    ck_assert_int_eq(interface->test(endpoints[0], &out), LS_OK);
    ck_assert_int_eq(received[0], 7);
    test_endpoint_close(interface, endpoints[0]);
    test_endpoint_close(interface, endpoints[1]);
}

// A peer whose thread hangs in the middle of a pass is waited for until the deadline, not for ever.
TEST(a_peer_that_hangs_while_it_reads_is_given_up)
{
    const struct ls_transport_interface *interface = plugin->interface;
    struct ls_transport *endpoints[2];
    struct test_host host;
    test_host_init(&host, plugin);
    ck_assert_int_eq(test_endpoints_open(interface, &host.host, 2, UINT64_C(200000000), endpoints),
                     LS_OK);
    struct local_shared *shared = endpoints[0]->shared;
    atomic_store(&shared->endpoints[1].active, 1); // its thread is in a pass
    interface->abort(endpoints[0]);
    const uint64_t begin = host.host.clock_ns(&host.host);
    ck_assert_int_eq(interface->wait_any(endpoints[0], NULL, 0, 0), LS_PEER_LOST);
    ck_assert_msg(strstr(host.message, "endpoint 1 still reads memory of others 0.2 s after") &&
                      strstr(host.message, "endpoint 0 left"),
                  "%s", host.message);
    test_endpoint_close(interface, endpoints[0]);
    const uint64_t took = host.host.clock_ns(&host.host) - begin;
    ck_assert_uint_lt(took, UINT64_C(4000000000));
    ck_assert_uint_ge(took, UINT64_C(200000000));
    atomic_store(&shared->endpoints[1].active, 0); // it comes back: what it looks at is there
    test_endpoint_close(interface, endpoints[1]);
    free(shared->pairs); // that the transport leaves to the thread
    free(shared->endpoints);
    free(shared);
}

TEST_SECONDS(120);

int main(void)
{
    plugin = test_plugin_open("transport-local");
    if (!plugin)
        return TEST_SKIPPED;
    return test_suite_run("plugins/transport/local/abort");
}
