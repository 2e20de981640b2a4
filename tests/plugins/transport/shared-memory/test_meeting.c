// SPDX-License-Identifier: Apache-2.0
// How processes find each other when strangers knock, signals come, descriptors run out, a process has gone wrong, or dies.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // struct sigevent, memfd_create
#endif
#include "core/base/clock.h"
#include "core/base/random.h"
#include "core/base/shared_memory.h"
#include "core/plugin/device.h"
#include "plugins/transport/shared-memory/shared_memory.h"
#include "tests/support/suite.h"
#include "lab/bench/processes.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define COUNT 1009
#define KINDS 5 // of strangers
#define OPENS 20
#define KILLS 10

struct parts {
    const struct ls_opened_plugin *transport, *collective;
    uint64_t delay_us; // of a kill
};

static struct ls_loader *loader;

static void open_parts(struct parts *out)
{
    ck_assert_int_eq(ls_loader_create(NULL, &loader), LS_OK);
    ck_assert_int_eq(
        ls_loader_open(loader, LS_KIND_TRANSPORT, "shared-memory", NULL, 0, &out->transport),
        LS_OK);
    ck_assert_int_eq(ls_loader_open(loader, LS_KIND_COLLECTIVE, "ring", NULL, 0, &out->collective),
                     LS_OK);
}

// Every rank has its number and 1; 0, or what was wrong.
static int reduce(struct process *process, const struct parts *parts)
{
    const float sum = (float)(process->world * (process->world + 1)) / 2;
    float *data = ls_segment_allocate(COUNT * sizeof(*data), LS_ALIGNMENT);
    struct process_reduction run;
    if (!data ||
        process_reduction_create(process, parts->collective, data, COUNT, LS_F32, LS_SUM, &run))
        return 2;
    for (int i = 0; i < COUNT; i++)
        data[i] = (float)(process->rank + 1);
    enum ls_status status = process_reduction_run(&run);
    for (int i = 0; i < COUNT && !status; i++)
        status = data[i] == sum ? LS_OK : LS_FAILED;
    process_reduction_destroy(&run);
    ls_segment_free(data);
    return (int)status;
}

// ---- Strangers ----

struct meeting {
    struct process *process;
    uint32_t turn; // of its exchanges
    int strangers[8][KINDS];
};

static int connect_stranger(const struct shm_card *card)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, card->name, card->name_bytes);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd >= 0 &&
        connect(fd, (struct sockaddr *)&address,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + card->name_bytes)) == 0)
        return fd;
    perror("a stranger cannot connect");
    close(fd);
    return -1;
}

// Whom it is meant for and who sends it; then descriptors of files that may be anything.
static bool send_words(int fd, const unsigned char *to, const unsigned char *from, size_t bytes,
                       int files)
{
    unsigned char words[2 * SHM_TOKEN_BYTES + 64] = {0};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {0};
    int fds[8];
    for (int i = 0; i < 8; i++)
        fds[i] = STDERR_FILENO;
    memcpy(words, to, SHM_TOKEN_BYTES);
    memcpy(words + SHM_TOKEN_BYTES, from, SHM_TOKEN_BYTES);
    struct iovec part = {words, bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (files) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE((size_t)files * sizeof(int));
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN((size_t)files * sizeof(int));
        memcpy(CMSG_DATA(rights), fds, (size_t)files * sizeof(int));
    }
    return sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)bytes;
}

// One of each kind knocks before the peers do. The last one is silent.
static bool send_strangers(const struct shm_card *card, int out[KINDS])
{
    static const unsigned char unknown[SHM_TOKEN_BYTES] = {1, 2, 3};
    const size_t bytes = 2 * SHM_TOKEN_BYTES;
    bool good = true;
    for (int i = 0; i < KINDS; i++) {
        out[i] = connect_stranger(card);
        good &= out[i] >= 0;
    }
    return good && send_words(out[0], unknown, unknown, bytes, 2) &&
           send_words(out[1], card->token, unknown, bytes, 2) && // knows whom, but is nobody
           send_words(out[2], card->token, unknown, bytes + 64, 8) &&
           send_words(out[3], unknown, card->token, 3, 0);
}

static int32_t exchange_with_strangers(void *context, const void *own, uint64_t bytes, void *all)
{
    struct meeting *meeting = context;
    struct process *process = meeting->process;
    int32_t status = process_exchange(process, own, bytes, all);
    if (status || meeting->turn++)
        return status;
    const struct shm_card *cards = all;
    if (bytes != sizeof(*cards))
        return LS_FAILED;
    for (uint32_t i = 0; process->rank == 0 && i < process->world; i++)
        if (!send_strangers(&cards[i], meeting->strangers[i]))
            status = LS_FAILED;
    return process_barrier(process) ? status : (int32_t)LS_PEER_LOST;
}

// Nobody has answered, and all connections are closed.
static bool are_turned_away(const struct meeting *meeting, uint32_t world)
{
    bool good = true;
    for (uint32_t i = 0; i < world; i++)
        for (int k = 0; k < KINDS; k++) {
            char answer;
            const ssize_t bytes = recv(meeting->strangers[i][k], &answer, 1, 0);
            if (bytes > 0 || (bytes < 0 && errno != ECONNRESET)) {
                fprintf(stderr, "stranger %d of process %u was answered\n", k, i);
                good = false;
            }
            close(meeting->strangers[i][k]);
        }
    return good;
}

static int meet_strangers(struct process *process, void *argument)
{
    const struct parts *parts = argument;
    struct meeting meeting = {.process = process};
    process->exchange = (struct ls_exchange){.call = exchange_with_strangers, .context = &meeting};
    if (ls_segment_open() || process_open(process, parts->transport))
        return 1;
    const int wrong = reduce(process, parts);
    const bool away = process->rank || are_turned_away(&meeting, process->world);
    process_close(process);
    return wrong || !away;
}

TEST(strangers_are_turned_away_and_disturb_nobody)
{
    struct parts parts;
    open_parts(&parts);
    ck_assert_uint_eq(processes_run(3, 0, meet_strangers, &parts), 0);
    ls_loader_destroy(loader);
}

// ---- Signals ----

static void ignore(int signal)
{
    (void)signal;
}

// What waits is interrupted again and again, by a handler that restarts nothing.
static int meet_under_signals(struct process *process, void *argument)
{
    const struct parts *parts = argument;
    const struct sigaction action = {.sa_handler = ignore};
    const struct itimerval often = {{0, 150}, {0, 150}};
    int wrong = 0;
    if (ls_segment_open() || sigaction(SIGALRM, &action, NULL) ||
        setitimer(ITIMER_REAL, &often, NULL))
        return 1;
    for (int i = 0; i < OPENS && !wrong; i++) {
        wrong = process_open(process, parts->transport) || reduce(process, parts);
        process_close(process);
    }
    return wrong;
}

TEST(signals_do_not_disturb_a_meeting)
{
    struct parts parts;
    open_parts(&parts);
    ck_assert_uint_eq(processes_run(4, 0, meet_under_signals, &parts), 0);
    ls_loader_destroy(loader);
}

// ---- Too few descriptors ----

// Rank 0 has none left for a connection. It knows why, and the others are told.
static int meet_without_descriptors(struct process *process, void *argument)
{
    const struct parts *parts = argument;
    struct rlimit most;
    const int next = dup(STDERR_FILENO);
    close(next);
    process->deadline_ns = UINT64_C(500000000);
    if (getrlimit(RLIMIT_NOFILE, &most))
        return 1;
    most.rlim_cur = (rlim_t)next + 2; // arena and socket
    if (process->rank == 0 && setrlimit(RLIMIT_NOFILE, &most))
        return 1;
    const enum ls_status status = process_open(process, parts->transport);
    free(process->numbers.next_send);
    free(process->numbers.next_receive);
    return process->rank == 0 ? status != LS_UNAVAILABLE : status == LS_OK;
}

TEST(without_descriptors_a_meeting_fails_and_says_why)
{
    struct parts parts;
    open_parts(&parts);
    ck_assert_uint_eq(processes_run(2, 0, meet_without_descriptors, &parts), 0);
    ls_loader_destroy(loader);
}

// ---- A process that went wrong ----

static int32_t exchange_wrongly(void *context, const void *own, uint64_t bytes, void *all)
{
    struct meeting *meeting = context;
    const int32_t status = process_exchange(meeting->process, own, bytes, all);
    struct shm_card *cards = all;
    if (!status && !meeting->turn++ && meeting->process->rank == 0)
        cards[1].arena_bytes -= 65536;
    return status;
}

static int meet_one_that_is_wrong(struct process *process, void *argument)
{
    const struct parts *parts = argument;
    struct meeting meeting = {.process = process};
    process->exchange = (struct ls_exchange){.call = exchange_wrongly, .context = &meeting};
    process->deadline_ns = UINT64_C(2000000000);
    const enum ls_status status = process_open(process, parts->transport);
    if (process->rank == 0)
        return status != LS_FAILED;
    const int wrong = status || reduce(process, parts) != LS_PEER_LOST;
    process_close(process);
    return wrong;
}

TEST(an_arena_of_another_size_is_refused)
{
    struct parts parts;
    open_parts(&parts);
    ck_assert_uint_eq(processes_run(2, 0, meet_one_that_is_wrong, &parts), 0);
    ls_loader_destroy(loader);
}

// ---- Deaths ----

// Opens, reduces and closes until rank 1 is killed, somewhere in there. Whoever waits for it is told within the deadline.
static int meet_until_lost(struct process *process, void *argument)
{
    const struct parts *parts = argument;
    const struct itimerspec when = {.it_value = {.tv_nsec = (long)parts->delay_us * 1000 + 1}};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    timer_t timer;
    int wrong = 0;
    process->deadline_ns = UINT64_C(400000000);
    if (ls_segment_open() || !process_barrier(process))
        return 1;
    if (process->rank == 1 &&
        (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &when, NULL)))
        return 1;
    const uint64_t begin_ns = ls_clock_ns();
    while (!wrong && ls_clock_ns() - begin_ns < UINT64_C(5000000000)) {
        wrong = process_open(process, parts->transport);
        if (!wrong)
            wrong = reduce(process, parts);
        process_close(process);
        process->endpoint = NULL;
    }
    const bool late = ls_clock_ns() - begin_ns > UINT64_C(4000000000);
    return late || (wrong != LS_PEER_LOST && wrong != LS_ABORTED && wrong != LS_UNAVAILABLE);
}

TEST(a_process_that_is_killed_in_a_meeting_is_an_error_for_the_others)
{
    struct parts parts;
    open_parts(&parts);
    for (uint64_t turn = 0; turn < KILLS; turn++) {
        parts.delay_us = ls_random_u64(ls_random_key(11, 0), turn) % 4000;
        ck_assert_msg(processes_run(3, 0, meet_until_lost, &parts) == 1,
                      "turn %u: more than the one that was killed did not end well",
                      (unsigned)turn);
    }
    ls_loader_destroy(loader);
}
