// SPDX-License-Identifier: Apache-2.0
// For tests of jobs: processes that a test forks, each of which does the same work with another rank.
#ifndef LS_TESTS_TRAIN_PROCESSES_H
#define LS_TESTS_TRAIN_PROCESSES_H

#include "core/base/clock.h"
#include "lockstep.h"
#include "tests/support/crew.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

// Of the communicators of a test; NULL: as hosts have it.
static const char *crew_transport;

#define MOST_PROCESSES 4
#define LONGEST_S 100 // of a process; it is killed then

struct crew {
    uint32_t size;
    char address[64];
    int listener;
    struct crew_process processes[MOST_PROCESSES]; // their logs: errors and warnings
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

// In a process: does a part of its work, which ends it in the same way.
#define TRY(call)              \
    do {                       \
        const int line = call; \
        if (line)              \
            return line;       \
    } while (0)

static inline bool says(const char *text)
{
    return strstr(ls_last_error(), text) != NULL;
}

static inline enum ls_status end(struct ls_comm_work *work)
{
    const enum ls_status status = ls_comm_work_wait(work, 60);
    ls_comm_work_free(work);
    return status;
}

// `words` of main may name the transport. False: it cannot be here, which is said.
static inline bool crew_begin(int count, char **words)
{
    crew_transport = count > 1 ? words[1] : NULL;
    return !crew_transport || !strstr(crew_transport, "ucx") || !test_lacks(TEST_NETWORKS, "UCX");
}

static inline struct crew *crew_create(uint32_t size)
{
    struct crew *crew = crew_memory(sizeof(*crew));
    uint16_t port;
    crew->size = size;
    crew->listener = crew_listen(&port);
    snprintf(crew->address, sizeof(crew->address), "127.0.0.1:%u", port);
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

static inline void crew_note_warning(void *process, uint32_t level, const char *line)
{
    if (level <= LS_LOG_WARN)
        crew_note_line(process, level, line);
}

static inline void crew_start_one(struct crew *crew, uint32_t rank, int (*work)(struct hand *))
{
    struct crew_process *process = &crew->processes[rank];
    struct hand hand = {.rank = rank, .size = crew->size, .crew = crew};
    if (!crew_fork(process, LONGEST_S))
        return;
    ls_set_log(crew_note_warning, process);
    if (rank)
        close(crew->listener);
    const int line = work(&hand);
    char text[64];
    snprintf(text, sizeof(text), "ended in line %d", line);
    if (line)
        crew_note_line(process, 0, text);
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
    crew_await(&crew->processes[rank].state, state);
    ck_assert_int_ge(crew->processes[rank].state, state);
}

// All but `but` end by themselves, and well.
static inline void crew_wait_all(struct crew *crew, uint32_t but)
{
    for (uint32_t i = 0; i < crew->size; i++)
        if (i != but)
            ck_assert_msg(crew_wait(&crew->processes[i]) == 0,
                          "process %u of %u: status %x, log:\n%s", i, crew->size,
                          (unsigned)crew->processes[i].exit_status, crew->processes[i].log);
}

#define NOBODY UINT32_MAX

static inline void crew_run(uint32_t size, int (*work)(struct hand *))
{
    struct crew *crew = crew_create(size);
    crew_start(crew, work);
    crew_wait_all(crew, NOBODY);
    crew_destroy(crew);
}

#endif
