// SPDX-License-Identifier: Apache-2.0
// Who connects to the store and is no worker: it learns nothing, and the training goes on.
//
//     test_cluster_strangers            in every run
//     test_cluster_strangers long       10,000 connections
#include "core/cluster/frames.h"
#include "core/cluster/store.h"
#include "core/wire/reach.h"
#include "tests/core/cluster/processes.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>

static const char secret[] = "a secret of this very job";

// A training that goes on until job->go: gathers, and counts them.
static void keep_training(struct process *process)
{
    struct ls_cluster *cluster = process_join(process);
    if (!cluster)
        return;
    process->own.state = 1;
    for (bool goes_on = true; goes_on && !process->status;) {
        uint64_t mine = process->own.index ? 0 : !process->job->go, all[2];
        process->status = ls_cluster_gather(cluster, &mine, sizeof(mine), all);
        goes_on = all[0];
        process->numbers[0]++;
        nap_ms(1);
    }
    process->numbers[1] = ls_cluster_strangers(cluster);
    ls_cluster_close(cluster);
}

static struct job *begin_training(void)
{
    struct job *job = job_create(2);
    job_start(job, 2, keep_training);
    for (uint32_t i = 0; i < 2; i++)
        crew_await(&job->process[i].own.state, 1);
    return job;
}

// The training has gone on, and `strangers` were counted.
static void end_training(struct job *job, uint64_t strangers)
{
    const uint64_t before = job->process[0].numbers[0];
    for (int i = 0; i < 20000 && job->process[0].numbers[0] == before; i++)
        nap_ms(1);
    ck_assert_uint_gt(job->process[0].numbers[0], before);
    job->go = 1;
    job_wait(job, 2);
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_int_eq(job->process[i].status, LS_OK);
        ck_assert_uint_eq(job->process[i].lost_calls, 0);
    }
    ck_assert_uint_eq(job->process[0].numbers[1], strangers);
    ck_assert_uint_eq(job->process[1].numbers[1], 0);
    assert_log_empty(&job->process[1]);
}

static int connect_to(const struct job *job)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons(job->port)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    return fd;
}

// What the store says until it closes the connection, which it must.
static size_t read_to_end(int fd, void *data, size_t room)
{
    size_t bytes = 0;
    for (;;) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        ck_assert_int_eq(poll(&wait, 1, 5000), 1);
        const ssize_t got = recv(fd, (char *)data + bytes, room - bytes, 0);
        if (got <= 0)
            return bytes;
        bytes += (size_t)got;
    }
}

static size_t say_and_listen(const struct job *job, const void *text, size_t length, void *answer,
                             size_t room)
{
    const int fd = connect_to(job);
    ck_assert_int_eq(send(fd, text, length, MSG_NOSIGNAL), (ssize_t)length);
    const size_t bytes = read_to_end(fd, answer, room);
    close(fd);
    return bytes;
}

SIDE_TEST(a_port_scan_and_a_web_browser_learn_nothing, 0, 1)
{
    struct job *job = begin_training();
    static const char request[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    static const uint8_t length[] = {0, 0, 0, 0x40, 'x'}; // of 1 GiB
    char answer[256];
    close(connect_to(job));
    ck_assert_uint_eq(say_and_listen(job, request, sizeof(request) - 1, answer, sizeof(answer)), 0);
    ck_assert_uint_eq(say_and_listen(job, length, sizeof(length), answer, sizeof(answer)), 0);
    end_training(job, 3);
    assert_log_has(&job->process[0], "it does not speak as a worker does");
    job_destroy(job);
}

SIDE_TEST(who_says_too_little_is_dropped_after_two_seconds, 0, 1)
{
    struct job *job = begin_training();
    char answer[256];
    const uint64_t begin = ls_clock_ns();
    const int silent = connect_to(job);
    ck_assert_uint_eq(say_and_listen(job, "LSTORE1\n", 8, answer, sizeof(answer)), 0);
    ck_assert_uint_eq(read_to_end(silent, answer, sizeof(answer)), 0);
    ck_assert_uint_gt(ls_clock_ns() - begin, 3 * SECOND / 2);
    close(silent);
    end_training(job, 2);
    assert_log_has(&job->process[0], "it did not show within 2 s who it is");
    job_destroy(job);
}

SIDE_TEST(another_secret_learns_that_it_is_another, 0, 1)
{
    struct job *job = begin_training();
    uint8_t key[LS_SECURE_KEY];
    struct ls_connection connection;
    ck_assert_int_eq(ls_secure_key("another secret of a stranger", key), LS_OK);
    ck_assert_int_eq(ls_connection_init(&connection, connect_to(job), key), LS_OK);
    ck_assert_int_eq(ls_shake_hands(&connection, 5 * SECOND, NULL), LS_USAGE);
    ls_connection_finish(&connection);
    end_training(job, 1);
    assert_log_has(&job->process[0], "it has another secret");
    job_destroy(job);
}

SIDE_TEST(a_recorded_handshake_is_worth_nothing, 0, 1)
{
    struct job *job = begin_training();
    uint8_t key[LS_SECURE_KEY], greeting[LS_SECURE_GREETING], proof[LS_SECURE_PROOF], answer[256];
    struct ls_secure secure;
    ck_assert_int_eq(ls_secure_key(secret, key), LS_OK);
    ls_secure_init(&secure, key);
    ls_secure_greet(&secure, greeting);
    for (int turn = 0; turn < 2; turn++) { // 0: the true worker; 1: who repeats what it sent
        const int fd = connect_to(job);
        ck_assert_int_eq(send(fd, greeting, sizeof(greeting), 0), sizeof(greeting));
        ck_assert_int_eq(recv(fd, answer, LS_SECURE_NONCE, MSG_WAITALL), LS_SECURE_NONCE);
        if (turn == 0)
            ls_secure_prove(&secure, answer, proof);
        ck_assert_int_eq(send(fd, proof, sizeof(proof), 0), sizeof(proof));
        ck_assert_int_eq(recv(fd, answer, LS_SECURE_PROOF, MSG_WAITALL), LS_SECURE_PROOF);
        static const uint8_t zeros[LS_SECURE_PROOF];
        ck_assert_int_eq(memcmp(answer, zeros, sizeof(zeros)) == 0, turn == 1);
        if (turn == 1)
            ck_assert_uint_eq(read_to_end(fd, answer, sizeof(answer)), 0);
        close(fd);
    }
    end_training(job, 2);
    job_destroy(job);
}

// Who knows the secret and then sends nonsense.
static void connect_as_worker(const struct job *job, struct ls_connection *connection)
{
    uint8_t key[LS_SECURE_KEY];
    ck_assert_int_eq(ls_secure_key(secret, key), LS_OK);
    ck_assert_int_eq(ls_connection_init(connection, connect_to(job), key), LS_OK);
    ck_assert_int_eq(ls_shake_hands(connection, 5 * SECOND, NULL), LS_OK);
}

static void send_raw(const struct ls_connection *connection, const void *data, size_t bytes)
{
    ck_assert_int_eq(send(connection->fd, data, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
}

SIDE_TEST(oversized_unsealed_and_malformed_messages_are_dropped, 0, 1)
{
    struct job *job = begin_training();
    static const uint8_t huge[] = {0, 0, 0, 0x40}, none[] = {0, 0, 0, 0}, forged[64] = {60};
    static struct ls_frame frame;
    char answer[256];
    for (int turn = 0; turn < 5; turn++) {
        struct ls_connection connection;
        connect_as_worker(job, &connection);
        switch (turn) {
        case 0: send_raw(&connection, huge, sizeof(huge)); break;
        case 1: send_raw(&connection, none, sizeof(none)); break;
        case 2: send_raw(&connection, forged, sizeof(forged)); break;
        default:
            ls_frame_begin(&frame, turn == 3 ? LS_FRAME_JOIN : LS_FRAME_BLOCK, 0);
            ls_frame_put_u64(&frame, UINT64_MAX);
            ck_assert_int_eq(ls_connection_send(&connection, frame.data, frame.bytes), LS_OK);
            ck_assert_int_eq(ls_connection_flush(&connection), LS_OK);
        }
        ck_assert_uint_eq(read_to_end(connection.fd, answer, sizeof(answer)), 0);
        ls_connection_finish(&connection);
    }
    end_training(job, 5);
    assert_log_has(&job->process[0], "its message makes no sense");
    job_destroy(job);
}

// `count` strangers at once, who stay as long as the store lets them, or until job->cut.
static void crowd(struct job *job, int count)
{
    static const char greeting[LS_SECURE_GREETING] = "LSTORE1\n";
    int *fds = calloc((size_t)count, sizeof(*fds));
    ck_assert_ptr_nonnull(fds);
    for (int i = 0; i < count; i++) {
        fds[i] = connect_to(job);
        if (i % 3)
            (void)!send(fds[i], greeting, i % 3 == 1 ? 8 : sizeof(greeting), MSG_NOSIGNAL);
        if (i >= 900) { // a process has so many descriptors
            close(fds[i - 900]);
            fds[i - 900] = -1;
        }
        if (i + 1 == count || i == 2000) // the kernel keeps some thousands that nobody has accepted
            job->process[2].own.state = 1;
    }
    while (!job->cut)
        nap_ms(1);
    free(fds);
}

// They are there before the store is, and stand before its own worker's connection.
START_TEST(a_crowd_of_strangers_keeps_no_worker_out)
{
    struct job *job = job_create(2);
    const pid_t strangers = fork();
    if (strangers == 0) {
        alarm(LONGEST_S);
        crowd(job, _i);
        _exit(0);
    }
    crew_await(&job->process[2].own.state, 1);
    job_start(job, 2, keep_training);
    for (uint32_t i = 0; i < 2; i++)
        crew_await(&job->process[i].own.state, 1);
    int status = -1;
    job->cut = 1;
    ck_assert_int_eq(waitpid(strangers, &status, 0), strangers);
    ck_assert_int_eq(status, 0);
    nap_ms(300);
    job->go = 1;
    job_wait(job, 2);
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_int_eq(job->process[i].joined, LS_OK);
        ck_assert_int_eq(job->process[i].status, LS_OK);
    }
    ck_assert_uint_ge(job->process[0].numbers[1], (uint64_t)_i);
    ck_assert_uint_lt(job->process[0].numbers[1], (uint64_t)_i + 50); // tries of the true worker
    assert_log_has(&job->process[0], "more of them are only counted");
    assert_log_has(&job->process[0], "1000 connections to 127.0.0.1:");
    assert_log_has(&job->process[0], "were dropped, 0 of them had another secret");
    assert_log_empty(&job->process[1]);
    job_destroy(job);
}
END_TEST

int main(int argc, char **argv)
{
    const bool is_long = argc > 1 && strcmp(argv[1], "long") == 0;
    const int strangers = is_long ? 10000 : 1500;
    if (is_long)
        side_test_count = 0; // that alone
    side_test_add(a_crowd_of_strangers_keeps_no_worker_out, strangers, strangers + 1);
    return sides_run("strangers");
}
