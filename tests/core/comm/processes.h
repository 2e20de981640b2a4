// SPDX-License-Identifier: Apache-2.0
// For tests of jobs: processes forked by a test, each of which does the same work with another
// rank. What they find lies in memory that they share with the test.
#ifndef LS_TESTS_TRAIN_PROCESSES_H
#define LS_TESTS_TRAIN_PROCESSES_H

#include "core/base/clock.h"
#include "lockstep.h"

#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Of the communicators of a test; NULL: as hosts have it.
static const char *crew_transport;

#define MOST_PROCESSES 4
#define SECOND UINT64_C(1000000000)
#define LONGEST_S 100 // of a process; it is killed then

struct crew {
    uint32_t size;
    char address[64];
    int listener;
    _Atomic int states[MOST_PROCESSES]; // for the test: how far each is
    pid_t pids[MOST_PROCESSES];
    int exits[MOST_PROCESSES];
    char logs[MOST_PROCESSES][8192]; // errors and warnings
};

// What a process has: its rank, and the job that it is in.
struct hand {
    uint32_t rank, size;
    struct crew *crew;
    struct ls_job *job;
};

// In a process: ends it with the line, where the condition does not hold.
#define NEED(condition)      \
    do {                     \
        if (!(condition))    \
            return __LINE__; \
    } while (0)

static inline void nap_ms(long milliseconds)
{
    nanosleep(
        &(struct timespec){.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000},
        NULL);
}

static inline struct crew *crew_create(uint32_t size)
{
    struct crew *crew =
        mmap(NULL, sizeof(*crew), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(at);
    ck_assert_ptr_ne(crew, MAP_FAILED);
    crew->size = size;
    crew->listener = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_gt(crew->listener, 0);
    ck_assert_int_eq(bind(crew->listener, (struct sockaddr *)&at, sizeof(at)), 0);
    ck_assert_int_eq(listen(crew->listener, SOMAXCONN), 0);
    ck_assert_int_eq(getsockname(crew->listener, (struct sockaddr *)&at, &bytes), 0);
    snprintf(crew->address, sizeof(crew->address), "127.0.0.1:%u", ntohs(at.sin_port));
    return crew;
}

static inline void crew_destroy(struct crew *crew)
{
    close(crew->listener);
    munmap(crew, sizeof(*crew));
}

static inline struct ls_job_options crew_options(const struct crew *crew, uint32_t rank)
{
    return (struct ls_job_options){.rank = rank,
                                   .size = crew->size,
                                   .address = crew->address,
                                   .listen_fd = rank ? 0 : crew->listener,
                                   .secret = "a secret of this very job",
                                   .join_seconds = 30,
                                   .lost_after_seconds = 1};
}

static inline void crew_note_line(void *context, uint32_t level, const char *line)
{
    char *log = context;
    const size_t length = strlen(log);
    if (level <= LS_LOG_WARN)
        snprintf(log + length, sizeof(((struct crew *)0)->logs[0]) - length, "%s\n", line);
}

static inline void crew_start_one(struct crew *crew, uint32_t rank, int (*work)(struct hand *))
{
    crew->exits[rank] = -1;
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid) {
        crew->pids[rank] = pid;
        return;
    }
    struct hand hand = {.rank = rank, .size = crew->size, .crew = crew};
    alarm(LONGEST_S);
    ls_set_log(crew_note_line, crew->logs[rank]);
    if (rank)
        close(crew->listener);
    const int line = work(&hand);
    char text[64];
    snprintf(text, sizeof(text), "ended in line %d", line);
    if (line)
        crew_note_line(crew->logs[rank], 0, text);
    _exit(line ? 1 : 0);
}

// The process is in the job.
static inline int join_job(struct hand *hand)
{
    const struct ls_job_options options = crew_options(hand->crew, hand->rank);
    NEED(!ls_job_open(&options, &hand->job));
    return 0;
}

static inline void crew_start(struct crew *crew, int (*work)(struct hand *))
{
    fflush(NULL);
    for (uint32_t i = 0; i < crew->size; i++)
        crew_start_one(crew, i, work);
}

static inline void crew_await_state(struct crew *crew, uint32_t rank, int state)
{
    const uint64_t end = ls_clock_ns() + 60 * SECOND;
    while (crew->states[rank] < state && ls_clock_ns() < end)
        nap_ms(1);
    ck_assert_int_ge(crew->states[rank], state);
}

static inline int crew_wait_one(struct crew *crew, uint32_t rank)
{
    if (crew->exits[rank] < 0)
        ck_assert_int_eq(waitpid(crew->pids[rank], &crew->exits[rank], 0), crew->pids[rank]);
    return crew->exits[rank];
}

// All but `but` end by themselves, and well.
static inline void crew_wait(struct crew *crew, uint32_t but)
{
    for (uint32_t i = 0; i < crew->size; i++)
        if (i != but)
            ck_assert_msg(crew_wait_one(crew, i) == 0, "process %u of %u: status %x, log:\n%s", i,
                          crew->size, (unsigned)crew->exits[i], crew->logs[i]);
}

#define NOBODY UINT32_MAX

static inline void crew_run(uint32_t size, int (*work)(struct hand *))
{
    struct crew *crew = crew_create(size);
    crew_start(crew, work);
    crew_wait(crew, NOBODY);
    crew_destroy(crew);
}

#endif
