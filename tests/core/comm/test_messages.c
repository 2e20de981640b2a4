// SPDX-License-Identifier: Apache-2.0
// Messages between processes: matched by source and tag, whoever comes first.
#include "tests/core/comm/processes.h"
#include "tests/support/suite.h"

#define HUGE_BYTES ((size_t)20 << 20)

static int open_all(struct hand *hand, double deadline, struct ls_comm **out)
{
    TRY(join_job(hand));
    NEED(!ls_comm_open(&(struct ls_comm_options){.job = hand->job,
                                                 .name = "post",
                                                 .transport = crew_transport,
                                                 .messages = 1,
                                                 .deadline_seconds = deadline},
                       out));
    return 0;
}

static int close_all(struct hand *hand, struct ls_comm *comm)
{
    NEED(!ls_comm_barrier(comm));
    ls_comm_close(comm);
    ls_job_close(hand->job);
    return 0;
}

static enum ls_status send_now(struct ls_comm *comm, const void *data, uint64_t bytes,
                               uint32_t peer, uint64_t tag)
{
    struct ls_comm_work *work;
    const enum ls_status status = ls_comm_start_send(comm, data, bytes, peer, tag, &work);
    return status ? status : end(work);
}

static enum ls_status receive_now(struct ls_comm *comm, void *data, uint64_t bytes, uint32_t peer,
                                  uint64_t tag)
{
    struct ls_comm_work *work;
    const enum ls_status status = ls_comm_start_receive(comm, data, bytes, peer, tag, &work);
    return status ? status : end(work);
}

// ---- All is well ----

// A token goes around many times, and each waits for the one before it.
static int go_around(struct hand *hand)
{
    struct ls_comm *comm;
    uint64_t token = 0;
    const uint32_t next = (hand->rank + 1) % hand->size,
                   last = (hand->rank + hand->size - 1) % hand->size;
    const int opened = open_all(hand, 60, &comm);
    if (opened)
        return opened;
    for (uint64_t i = 0; i < 200; i++) {
        if (hand->rank == 0)
            NEED(!send_now(comm, &token, sizeof(token), next, i));
        NEED(!receive_now(comm, &token, sizeof(token), last, i));
        token++;
        if (hand->rank)
            NEED(!send_now(comm, &token, sizeof(token), next, i));
    }
    NEED(hand->rank || token == 200ul * hand->size);
    return close_all(hand, comm);
}

LOOP_TEST(a_token_goes_around, 0, 2)
{
    crew_run(2 + (uint32_t)_i, go_around);
}

#define TAGS 300

// Rank 0 sends tags upwards, each twice; the others receive them downwards, some before they come
// and some afterwards.
static int mix_tags(struct hand *hand)
{
    struct ls_comm *comm;
    struct ls_comm_work *works[2 * TAGS];
    static uint32_t values[2 * TAGS];
    const int opened = open_all(hand, 60, &comm);
    if (opened)
        return opened;
    if (hand->rank == 0) {
        for (uint32_t peer = 1; peer < hand->size; peer++) {
            for (uint32_t i = 0; i < 2 * TAGS; i++) {
                values[i] = 1000 * peer + i;
                NEED(!ls_comm_start_send(comm, &values[i], 4, peer, i % TAGS, &works[i]));
            }
            for (uint32_t i = 0; i < 2 * TAGS; i++)
                NEED(!end(works[i]));
        }
        return close_all(hand, comm);
    }
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t i = TAGS; i-- > 0;) {
            uint32_t *value = &values[round * TAGS + i];
            NEED(!ls_comm_start_receive(comm, value, 4, i % 2 ? 0 : LS_ANY_RANK, i,
                                        &works[round * TAGS + i]));
            if (i % 50 == 0)
                nap_ms(1);
        }
    for (uint32_t i = 0; i < 2 * TAGS; i++) {
        NEED(!ls_comm_work_wait(works[i], 60));
        NEED(ls_comm_work_source(works[i]) == 0);
        NEED(values[i] == 1000 * hand->rank + i);
        ls_comm_work_free(works[i]);
    }
    return close_all(hand, comm);
}

LOOP_TEST(tags_are_received_in_any_order_and_equal_ones_in_theirs, 0, 2)
{
    crew_run(2 + (uint32_t)_i, mix_tags);
}

// Rank 0 takes one message of each other, from whoever comes first.
static int take_from_any(struct hand *hand)
{
    struct ls_comm *comm;
    uint32_t seen = 0;
    const int opened = open_all(hand, 60, &comm);
    if (opened)
        return opened;
    for (uint32_t i = 1; i < hand->size && hand->rank == 0; i++) {
        uint32_t value;
        struct ls_comm_work *work;
        NEED(!ls_comm_start_receive(comm, &value, 4, LS_ANY_RANK, 7, &work));
        NEED(!ls_comm_work_wait(work, 60));
        NEED(value == 100 + ls_comm_work_source(work));
        seen |= 1u << ls_comm_work_source(work);
        ls_comm_work_free(work);
    }
    const uint32_t value = 100 + hand->rank;
    NEED(hand->rank == 0 ? seen == (1u << hand->size) - 2 : !send_now(comm, &value, 4, 0, 7));
    return close_all(hand, comm);
}

TEST(whoever_sends_is_known)
{
    crew_run(3, take_from_any);
}

static void fill(unsigned char *data, size_t bytes, uint32_t seed)
{
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(i * 7 + i / 4099 + seed);
}

static bool is_filled(const unsigned char *data, size_t bytes, uint32_t seed)
{
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != (unsigned char)(i * 7 + i / 4099 + seed))
            return false;
    return true;
}

// Large, empty, odd and misaligned ones, both ways at once; also before the receives are there.
static int exchange_sizes(struct hand *hand)
{
    static const size_t sizes[] = {HUGE_BYTES, 0, 1, 65537, HUGE_BYTES + 3};
    struct ls_comm *comm;
    unsigned char *out = malloc(HUGE_BYTES + 8), *in = malloc(HUGE_BYTES + 8);
    const uint32_t other = 1 - hand->rank;
    const int opened = open_all(hand, 60, &comm);
    if (opened)
        return opened;
    for (uint32_t k = 0; k < 10; k++) {
        const size_t bytes = sizes[k % 5];
        struct ls_comm_work *send, *receive;
        fill(out + k % 3, bytes, k + hand->rank);
        if (k >= 5) // nobody waits for it yet
            NEED(!ls_comm_start_send(comm, out + k % 3, bytes, other, k, &send));
        if (k >= 5)
            nap_ms(20);
        NEED(!ls_comm_start_receive(comm, in + k % 2, bytes, other, k, &receive));
        if (k < 5)
            NEED(!ls_comm_start_send(comm, out + k % 3, bytes, other, k, &send));
        NEED(!end(receive));
        NEED(!end(send));
        NEED(is_filled(in + k % 2, bytes, k + other));
    }
    free(in);
    free(out);
    return close_all(hand, comm);
}

TEST(messages_of_any_size_cross_each_other)
{
    crew_run(2, exchange_sizes);
}

static int talk_to_oneself(struct hand *hand)
{
    struct ls_comm *comm;
    struct ls_comm_work *receive;
    uint64_t in = 0, out = 42;
    const int opened = open_all(hand, 60, &comm);
    if (opened)
        return opened;
    NEED(!send_now(comm, &out, 8, hand->rank, 1)); // before
    NEED(!receive_now(comm, &in, 8, hand->rank, 1));
    NEED(in == 42);
    out = 43;
    NEED(!ls_comm_start_receive(comm, &in, 8, LS_ANY_RANK, 2, &receive)); // and afterwards
    NEED(!send_now(comm, &out, 8, hand->rank, 2));
    NEED(!ls_comm_work_wait(receive, 60));
    NEED(in == 43 && ls_comm_work_source(receive) == hand->rank);
    ls_comm_work_free(receive);
    NEED(!send_now(comm, NULL, 0, hand->rank, 3));
    NEED(!receive_now(comm, NULL, 0, hand->rank, 3));
    return close_all(hand, comm);
}

LOOP_TEST(a_rank_sends_to_itself, 0, 2)
{
    crew_run(1 + (uint32_t)_i, talk_to_oneself);
}

// Collectives and messages go on at the same time.
static int do_both(struct hand *hand)
{
    struct ls_comm *comm;
    const uint32_t other = 1 - hand->rank;
    const int opened = open_all(hand, 60, &comm);
    if (opened)
        return opened;
    for (uint32_t i = 0; i < 50; i++) {
        struct ls_comm_work *reduce, *send, *receive;
        static float values[100000];
        uint32_t in = 0, out = i + hand->rank;
        values[99999] = 1;
        NEED(!ls_comm_start_receive(comm, &in, 4, other, 5, &receive));
        NEED(!ls_comm_start_all_reduce(comm, values, 100000, "float32", "sum", &reduce));
        NEED(!ls_comm_start_send(comm, &out, 4, other, 5, &send));
        NEED(!end(receive));
        NEED(!end(reduce));
        NEED(!end(send));
        NEED(in == i + other && values[99999] == 2);
    }
    return close_all(hand, comm);
}

TEST(messages_and_collectives_go_on_together)
{
    crew_run(2, do_both);
}

// ---- What goes wrong ----

static int differ(struct hand *hand)
{
    struct ls_comm *comm;
    struct ls_comm_work *work;
    char data[200] = {0};
    const int opened = open_all(hand, 60, &comm);
    if (opened)
        return opened;
    NEED(ls_comm_start_send(comm, data, 1, hand->size, 0, &work) == LS_USAGE);
    NEED(ls_comm_start_receive(comm, NULL, 1, 0, 0, &work) == LS_USAGE);
    if (hand->rank == 0) {
        NEED(!ls_comm_start_receive(comm, data, 100, 1, 1, &work));
        NEED(!ls_comm_barrier(comm));
        NEED(end(work) == LS_FAILED);
        NEED(says("rank 1 sends 200 bytes, but rank 0 expects 100"));
        NEED(!ls_comm_barrier(comm));
        NEED(receive_now(comm, data, 50, 1, 2) == LS_FAILED); // which has been taken already
        NEED(says("rank 1 sends 60 bytes, but rank 0 expects 50"));
        NEED(!receive_now(comm, data, 7, 1, 3)); // and the next one comes
    } else {
        NEED(!ls_comm_barrier(comm));
        NEED(send_now(comm, data, 200, 0, 1) == LS_FAILED);
        NEED(says("rank 1 sends 200 bytes, but rank 0 expects 100"));
        NEED(!send_now(comm, data, 60, 0, 2));
        NEED(!ls_comm_barrier(comm));
        NEED(!send_now(comm, data, 7, 0, 3));
    }
    return close_all(hand, comm);
}

TEST(other_sizes_are_told_to_both)
{
    crew_run(2, differ);
}

static int wait_in_vain(struct hand *hand)
{
    struct ls_comm *comm;
    struct ls_comm_work *work, *other;
    uint32_t value;
    const int opened = open_all(hand, 60, &comm);
    if (opened)
        return opened;
    if (hand->rank == 0) {
        ls_comm_set_deadline(comm, 0.3);
        NEED(!ls_comm_start_receive(comm, &value, 4, 1, 1, &work));
        ls_comm_set_deadline(comm, 60);
        NEED(!ls_comm_start_receive(comm, &value, 4, 1, 2, &other));
        NEED(ls_comm_work_wait(work, 0.05) == LS_AGAIN);
        NEED(ls_comm_work_wait(work, 0) == LS_AGAIN);
        NEED(end(work) == LS_PEER_LOST);
        NEED(says("for rank 1: a message of 4 bytes, tag 1, was not sent"));
        NEED(says("or raise --deadline"));
        NEED(!ls_comm_barrier(comm));
        NEED(!end(other)); // which waits on
        ls_comm_set_deadline(comm, 0.3);
        NEED(send_now(comm, &value, 4, 2, 9) == LS_PEER_LOST); // rank 2 takes nothing
        NEED(says("for rank 2: a message of 4 bytes, tag 9, was not taken"));
        NEED(ls_comm_start_send(comm, &value, 4, 2, 9, &work) == LS_OK);
        NEED(end(work) == LS_PEER_LOST); // nor later
        ls_comm_close(comm);
        ls_job_close(hand->job);
        return 0;
    }
    NEED(!ls_comm_barrier(comm));
    if (hand->rank == 1)
        NEED(!send_now(comm, &value, 4, 0, 2));
    crew_await(&hand->crew->processes[0].state, 1);
    ls_comm_close(comm);
    ls_job_close(hand->job);
    return 0;
}

TEST(a_message_that_does_not_come_is_named)
{
    struct crew *crew = crew_create(3);
    crew_start(crew, wait_in_vain);
    ck_assert_msg(crew_wait(&crew->processes[0]) == 0, "%s", crew->processes[0].log);
    crew->processes[0].state = 1;
    crew_wait_all(crew, NOBODY);
    crew_destroy(crew);
}

// Rank 2 dies; messages between the others end, too, as it is a member.
static int lose_one(struct hand *hand)
{
    struct ls_comm *comm;
    struct ls_comm_work *works[3];
    uint32_t value;
    const int opened = open_all(hand, 60, &comm);
    if (opened)
        return opened;
    NEED(!ls_comm_barrier(comm));
    if (hand->rank == 2) {
        NEED(!ls_comm_start_receive(comm, &value, 4, 0, 3, &works[0]));
        hand->crew->processes[2].state = 1;
        for (;;)
            pause();
    }
    NEED(!ls_comm_start_receive(comm, &value, 4, 2, 1, &works[0]));
    NEED(!ls_comm_start_receive(comm, &value, 4, LS_ANY_RANK, 1, &works[1]));
    NEED(!ls_comm_start_receive(comm, &value, 4, 1 - hand->rank, 1, &works[2]));
    hand->crew->processes[hand->rank].state = 1;
    for (int i = 0; i < 3; i++) {
        NEED(end(works[i]) == LS_PEER_LOST);
        NEED(says("process 2 ("));
    }
    NEED(send_now(comm, &value, 4, 2, 1) == LS_PEER_LOST);
    ls_comm_close(comm);
    ls_job_close(hand->job);
    return 0;
}

LOOP_TEST(messages_of_a_lost_process_end, 0, 2)
{
    struct crew *crew = crew_create(3);
    crew_start(crew, lose_one);
    for (uint32_t i = 0; i < 3; i++)
        crew_await_state(crew, i, 1);
    const uint64_t begin = ls_clock_ns();
    kill(crew->processes[2].pid, _i ? SIGSTOP : SIGKILL);
    crew_wait_all(crew, 2);
    ck_assert_uint_lt(ls_clock_ns() - begin, (_i ? 8 : 3) * SECOND);
    kill(crew->processes[2].pid, SIGKILL);
    crew_destroy(crew);
}

// Works that are not over when the communicator is closed.
static int close_early(struct hand *hand)
{
    struct ls_comm *comm;
    struct ls_comm_work *work, *send;
    static uint32_t value;
    const int opened = open_all(hand, 60, &comm);
    if (opened)
        return opened;
    NEED(!ls_comm_start_receive(comm, &value, 4, 1 - hand->rank, 1, &work));
    if (hand->rank == 0) {
        NEED(!ls_comm_start_send(comm, &value, 4, 1, 2, &send));
        nap_ms(10);
        ls_comm_close(comm);
        const enum ls_status status = end(send); // which may have been taken
        NEED(end(work) == LS_ABORTED && (status == LS_OK || status == LS_ABORTED));
    } else {
        const enum ls_status status = end(work);
        NEED(status == LS_ABORTED || status == LS_PEER_LOST);
        ls_comm_close(comm);
    }
    ls_job_close(hand->job);
    return 0;
}

TEST(closing_ends_messages)
{
    crew_run(2, close_early);
}

// Rank 1 closes, with messages to and from it under way; what the others send each other goes on.
static int outlast_one(struct hand *hand)
{
    struct ls_comm *comm;
    struct ls_comm_work *works[6];
    unsigned char *data = calloc(6, HUGE_BYTES);
    uint32_t value = 0;
    const int opened = open_all(hand, 60, &comm);
    if (opened)
        return opened;
    NEED(data && !ls_comm_barrier(comm));
    if (hand->rank == 1) {
        crew_await(&hand->crew->processes[0].state, 1);
        ls_comm_close(comm);
        crew_await(&hand->crew->processes[0].state,
                   2); // who leaves the job, too, has another message
        ls_job_close(hand->job);
        free(data);
        return 0;
    }
    for (uint32_t i = 0; i < 6 && hand->rank == 0; i++)
        NEED(!(i % 2
                   ? ls_comm_start_receive(comm, data + i * HUGE_BYTES, HUGE_BYTES, 1, i, &works[i])
                   : ls_comm_start_send(comm, data + i * HUGE_BYTES, HUGE_BYTES, 1, i, &works[i])));
    hand->crew->processes[hand->rank].state = 1;
    for (uint32_t i = 0; i < 6 && hand->rank == 0; i++) {
        NEED(end(works[i]) == LS_PEER_LOST);
        NEED(says("rank 1, tag") && says("it has closed the communicator"));
    }
    free(data); // nobody has it any more
    hand->crew->processes[hand->rank].state = 2;
    if (hand->rank == 0)
        NEED(send_now(comm, &value, 4, 1, 9) == LS_PEER_LOST);
    for (value = 0; value < 20; value++) {
        uint32_t got = 0;
        NEED(!(hand->rank ? receive_now(comm, &got, 4, 0, 1) : send_now(comm, &value, 4, 2, 1)));
        NEED(!hand->rank || got == value);
    }
    ls_comm_close(comm);
    ls_job_close(hand->job);
    return 0;
}

TEST(who_closes_ends_only_messages_with_itself)
{
    crew_run(3, outlast_one);
}

TEST_SECONDS(LONGEST_S);

int main(int count, char **words)
{
    if (!crew_begin(count, words))
        return TEST_SKIPPED;
    return test_suite_run("core/comm/messages");
}
