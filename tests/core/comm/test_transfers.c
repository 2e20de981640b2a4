// SPDX-License-Identifier: Apache-2.0
// Transfers of messages that are under way when a peer is lost or all ends. The transport of this
// test touches what is posted as long as it may: until `test` says that a transfer is over, or the
// endpoint is closed.
#include "core/comm/messages.h"

#include "core/base/clock.h"
#include "tests/support/suite.h"

#include <stdlib.h>
#include <string.h>

#define WORLD 3
#define BYTES 64
#define MOST 64

// Of the one endpoint that a test has.
struct ls_transport {
    struct ls_transfer *posted[MOST];
    uint32_t count;
    bool lost[WORLD]; // peers
    bool holds; // what it has of payloads, whoever is lost
    bool aborted, stuck; // in an abort
    int32_t refuses; // what post answers; LS_OK: it posts
};

static struct ls_transport *transport;
static uint64_t touched; // so that reading is not left out

static uint32_t peer_of(const struct ls_transfer *transfer)
{
    return transfer->kind == LS_TRANSFER_SEND ? transfer->destination : transfer->source;
}

// As a part of a message that comes late, or is sent late.
static void touch_all(struct ls_transport *own)
{
    for (uint32_t i = 0; i < own->count; i++) {
        struct ls_transfer *transfer = own->posted[i];
        char *memory = transfer->memory;
        touched += transfer->receive_number + (unsigned char)memory[transfer->count - 1];
        if (transfer->kind == LS_TRANSFER_RECEIVE)
            memory[transfer->count - 1] = 'x';
    }
}

static int32_t fake_open(const struct ls_host *host, const struct ls_transport_config *config,
                         struct ls_transport *const *endpoints)
{
    (void)host;
    (void)config;
    transport = endpoints[0];
    return LS_OK;
}

static void fake_close(struct ls_transport *own)
{
    touch_all(own);
    own->count = 0;
}

static int32_t fake_post(struct ls_transport *own, struct ls_transfer *transfer)
{
    if (own->refuses)
        return own->refuses;
    ck_assert_uint_lt(own->count, MOST);
    own->posted[own->count++] = transfer;
    transfer->state = LS_TRANSFER_PENDING;
    return LS_OK;
}

static void let_go(struct ls_transport *own, const struct ls_transfer *transfer)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < own->count; i++)
        if (own->posted[i] != transfer)
            own->posted[kept++] = own->posted[i];
    ck_assert_uint_eq(kept + 1, own->count); // it was posted, once
    own->count = kept;
}

static int32_t fake_test(struct ls_transport *own, struct ls_transfer *transfer)
{
    touch_all(own);
    if (own->aborted)
        return own->stuck ? LS_PEER_LOST : LS_ABORTED;
    if (!own->lost[peer_of(transfer)] || (own->holds && transfer->count == BYTES))
        return LS_AGAIN;
    let_go(own, transfer);
    return LS_PEER_LOST;
}

static int32_t fake_wait_any(struct ls_transport *own, struct ls_transfer *const *transfers,
                             uint64_t count, uint64_t timeout_ns)
{
    (void)transfers;
    (void)count;
    (void)timeout_ns;
    if (!own->aborted)
        return LS_AGAIN;
    return own->stuck ? LS_PEER_LOST : LS_ABORTED;
}

static void fake_abort(struct ls_transport *own)
{
    own->aborted = true;
}

static int32_t fake_peer_state(struct ls_transport *own, uint32_t peer)
{
    return own->aborted ? LS_ABORTED : own->lost[peer] ? LS_PEER_LOST : LS_OK;
}

static const struct ls_transport_interface interface = {
    .struct_size = sizeof(interface),
    .scope = LS_SCOPE_NETWORK,
    .memory_kinds = 1u << LS_MEMORY_HOST,
    .state_bytes = sizeof(struct ls_transport),
    .open = fake_open,
    .close = fake_close,
    .post = fake_post,
    .test = fake_test,
    .wait_any = fake_wait_any,
    .abort = fake_abort,
    .peer_state = fake_peer_state,
};

// ---- Rank 0 of a communicator, which nobody but the test moves ----

static const struct ls_plugin plugin = {LS_PLUGIN_HEADER(LS_KIND_TRANSPORT), .name = "fake",
                                        .interface = &interface};
static const struct ls_opened_plugin opened = {.plugin = &plugin, .interface = &interface};
static struct ls_comm_ranks ranks;
static struct ls_comm *comm;
static char name[] = "post";

static void set_up(void)
{
    ranks = (struct ls_comm_ranks){
        .transport = &opened, .world = WORLD, .count = 1, .name = name, .deadline_ns = 60000000000};
    comm = calloc(1, sizeof(*comm));
    ck_assert_ptr_nonnull(comm);
    comm->ranks = &ranks;
    comm->forks = ls_fork_count();
    atomic_store(&comm->deadline_ns, ranks.deadline_ns);
    atomic_store(&comm->users, 1);
    ls_comm_works_init(comm);
    ck_assert_int_eq(ls_comm_messages_open(comm), LS_OK);
}

static void clean_up(void)
{
    ls_comm_messages_close(comm->messages);
    ls_comm_unref(comm);
}

static struct ls_comm_work *begin(enum ls_comm_kind kind, void *memory, uint64_t bytes,
                                  uint32_t peer, uint64_t tag)
{
    const struct ls_comm_request request = {
        .name = "a test", .kind = kind, .mine = memory, .count = bytes, .peer = peer, .tag = tag};
    struct ls_comm_work *work = ls_work_create(comm, &request);
    ck_assert_ptr_nonnull(work);
    work->begun_ns = ls_clock_ns();
    comm->messages->works++;
    ls_comm_messages_begin(comm->messages, work);
    return work;
}

// A header of `peer` arrives.
static void bring_header(uint32_t peer, uint64_t tag)
{
    const struct ls_header header = {.kind = LS_HEADER_MESSAGE, .tag = tag, .bytes = BYTES};
    for (uint32_t i = 0; i < transport->count; i++) {
        struct ls_transfer *transfer = transport->posted[i];
        if (transfer->kind != LS_TRANSFER_RECEIVE || transfer->source != peer ||
            transfer->count != sizeof(header))
            continue;
        memcpy(transfer->memory, &header, sizeof(header));
        transfer->state = LS_TRANSFER_COMPLETE;
        let_go(transport, transfer);
        ck_assert(ls_comm_messages_test(comm->messages));
        return;
    }
    ck_abort_msg("rank 0 does not listen to rank %u", peer);
}

static bool has(const void *memory)
{
    for (uint32_t i = 0; i < transport->count; i++)
        if (transport->posted[i]->memory == memory)
            return true;
    return false;
}

static void expect(struct ls_comm_work *work, enum ls_status status)
{
    ck_assert_int_eq(ls_comm_work_wait(work, 0), status);
    if (status != LS_AGAIN)
        ls_comm_work_free(work);
}

static void look(void)
{
    for (int i = 0; i < 3; i++)
        (void)ls_comm_messages_test(comm->messages);
}

// ---- A lost peer ----

TEST(sends_to_a_lost_peer_end_when_the_transport_has_let_go)
{
    static char one[BYTES], other[BYTES];
    struct ls_comm_work *works[2] = {begin(LS_COMM_SEND, one, BYTES, 1, 1),
                                     begin(LS_COMM_SEND, other, BYTES, 1, 2)};
    transport->holds = true;
    transport->lost[1] = true;
    look();
    ck_assert(has(one) && has(other));
    expect(works[0], LS_AGAIN);
    expect(works[1], LS_AGAIN);
    expect(begin(LS_COMM_SEND, one, BYTES, 1, 3), LS_PEER_LOST); // this one was never posted
    transport->holds = false;
    look();
    expect(works[0], LS_PEER_LOST);
    expect(works[1], LS_PEER_LOST);
    ck_assert(!has(one) && !has(other));
}

TEST(receives_of_a_lost_peer_end_when_the_transport_has_let_go)
{
    static char one[BYTES], other[BYTES];
    struct ls_comm_work *coming = begin(LS_COMM_RECEIVE, one, BYTES, 1, 1);
    struct ls_comm_work *waiting = begin(LS_COMM_RECEIVE, other, BYTES, 1, 2);
    struct ls_comm_work *of_another = begin(LS_COMM_RECEIVE, other, BYTES, 2, 2);
    bring_header(1, 1);
    ck_assert(has(one));
    transport->holds = true;
    transport->lost[1] = true;
    look();
    ck_assert(has(one));
    expect(coming, LS_AGAIN);
    expect(waiting, LS_PEER_LOST); // its memory was never posted
    transport->holds = false;
    look();
    expect(coming, LS_PEER_LOST);
    expect(of_another, LS_AGAIN);
    bring_header(2, 2); // others go on
    ck_assert(has(other));
    ls_comm_messages_fail_all(comm->messages, LS_ABORTED);
    expect(of_another, LS_ABORTED);
}

// Nobody waits for it, or somebody has come since.
TEST(unexpected_payloads_of_a_lost_peer_stay_until_the_transport_has_let_go)
{
    static char one[BYTES];
    struct ls_comm_work *claims = NULL;
    expect(begin(LS_COMM_SEND, one, 0, 0, 9), LS_OK); // to this rank itself, so that it listens
    bring_header(1, 1);
    bring_header(1, 2);
    claims = begin(LS_COMM_RECEIVE, one, BYTES, 1, 2);
    transport->holds = true;
    transport->lost[1] = true;
    look();
    expect(claims, LS_AGAIN);
    ck_assert_uint_eq(transport->count, 3); // both, and what is heard of rank 2
    transport->holds = false;
    look();
    expect(claims, LS_PEER_LOST);
    ck_assert_uint_eq(transport->count, 1);
    expect(begin(LS_COMM_RECEIVE, one, BYTES, 1, 1), LS_PEER_LOST); // nothing comes any more
}

// ---- All ends ----

// UCX may hold memory after an abort; works end all the same, because nothing more can be done for
// them.
LOOP_TEST(transfers_stay_until_the_endpoint_is_closed, 0, 2)
{
    static char one[BYTES];
    transport->stuck = _i;
    struct ls_comm_work *send = begin(LS_COMM_SEND, one, BYTES, 1, 1);
    struct ls_comm_work *receive = begin(LS_COMM_RECEIVE, one, BYTES, 1, 1);
    bring_header(2, 2);
    ls_comm_messages_fail_all(comm->messages, LS_ABORTED);
    expect(send, LS_ABORTED);
    expect(receive, LS_ABORTED);
    touch_all(transport);
    ls_comm_messages_fail_all(comm->messages, LS_ABORTED); // which changes nothing
    expect(begin(LS_COMM_SEND, one, BYTES, 2, 1), LS_ABORTED);
    look();
    ck_assert_uint_eq(transport->count,
                      5); // two of the send, two headers to come, the unexpected payload
}

// Somebody else has aborted it, and a peer does not let go: that is no lost peer.
LOOP_TEST(an_abort_that_leaves_memory_to_the_transport_ends_all, 0, 2)
{
    static char one[BYTES];
    struct ls_comm_work *send = begin(LS_COMM_SEND, one, BYTES, 1, 1);
    struct ls_comm_work *receive = begin(LS_COMM_RECEIVE, one, BYTES, 2, 1);
    const uint32_t count = transport->count;
    transport->aborted = true;
    transport->stuck = _i;
    look();
    ck_assert_int_ne(ls_comm_work_wait(send, 0), LS_AGAIN);
    ck_assert_int_ne(ls_comm_work_wait(receive, 0), LS_AGAIN);
    ck_assert_uint_eq(transport->count, count);
    touch_all(transport);
    ls_comm_work_free(send);
    ls_comm_work_free(receive);
}

// ---- What the transport does not take ----

static const enum ls_status answers[] = {LS_PEER_LOST, LS_OUT_OF_MEMORY};

LOOP_TEST(a_message_that_cannot_be_sent_ends, 0, 2)
{
    static char one[BYTES];
    struct ls_comm_work *receive = begin(LS_COMM_RECEIVE, one, BYTES, 1, 1);
    transport->refuses = (int32_t)answers[_i];
    expect(begin(LS_COMM_SEND, one, BYTES, 2, 1), answers[_i]);
    look();
    expect(receive, _i ? answers[_i] : LS_AGAIN);
    ls_comm_messages_fail_all(comm->messages, LS_ABORTED);
    if (!_i)
        expect(receive, LS_ABORTED);
}

LOOP_TEST(a_message_that_cannot_be_received_ends, 0, 2)
{
    static char one[BYTES];
    struct ls_comm_work *receive = begin(LS_COMM_RECEIVE, one, BYTES, 1, 1);
    transport->refuses = (int32_t)answers[_i];
    bring_header(1, 1);
    expect(receive, answers[_i]);
    ck_assert(!has(one));
}

// It is not kept for a receive that would wait for ever.
LOOP_TEST(an_unexpected_payload_that_cannot_be_received_is_dropped, 0, 2)
{
    static char one[BYTES];
    struct ls_comm_work *other = begin(LS_COMM_RECEIVE, one, BYTES, 1, 2);
    transport->refuses = (int32_t)answers[_i];
    bring_header(1, 1);
    expect(other, answers[_i]);
    expect(begin(LS_COMM_RECEIVE, one, BYTES, 1, 1), answers[_i]);
}

TEST_FIXTURE(set_up, clean_up);
