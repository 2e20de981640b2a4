// SPDX-License-Identifier: Apache-2.0
// Workers that are real processes: a test forks them, and a cluster on this machine joins them.
#ifndef LS_TESTS_CLUSTER_PROCESSES_H
#define LS_TESTS_CLUSTER_PROCESSES_H

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/cluster/cluster.h"
#include "tests/support/crew.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_PROCESSES 10
#define LONGEST_S 50 // of a process; it is killed then

// One process of a job.
struct process {
    struct crew_process own;
    struct job *job;
    struct ls_worker_place place;
    struct ls_cluster_options options; // the test may change both before it forks
    struct ls_agreement agreement[4];
    // What it found.
    enum ls_status joined, status;
    uint64_t numbers[16];
    uint64_t took_ns;
    _Atomic uint32_t lost_calls;
    char lost_text[1024];
};

struct job {
    uint32_t count;
    uint16_t port;
    int listener;
    _Atomic int go; // set by the test
    int victim; // an index, for the test
    uint16_t relay_port; // where a relay listens that leads to worker 0
    _Atomic int cut; // the relay lets nothing through any more, and closes nothing
    uint64_t begin_ns;
    struct process process[MOST_PROCESSES];
};

// Tests that mostly wait: they run side by side, in a few processes. SIDE_TEST registers one for each `_i` from `first` to
// `end` - 1; side_test_add() does the same in main.
#define SIDES 12
#define SIDE_TEST(name, first, end)                                    \
    static const TTest *name;                                          \
    TEST_BEFORE_MAIN(name##_register, side_test_add(name, first, end)) \
    START_TEST(name)

static struct {
    const TTest *test;
    int first, end;
} side_tests[30];
static size_t side_test_count;
static const char *const side_names[SIDES] = {"1", "2", "3", "4",  "5",  "6",
                                              "7", "8", "9", "10", "11", "12"};

static inline void side_test_add(const TTest *test, int first, int end)
{
    if (side_test_count == sizeof(side_tests) / sizeof(side_tests[0]))
        abort(); // make the table larger
    side_tests[side_test_count].test = test;
    side_tests[side_test_count].first = first;
    side_tests[side_test_count++].end = end;
}

// What main returns.
static inline int sides_run(const char *name)
{
    Suite *suite = suite_create(name);
    TCase *cases[SIDES];
    int next = 0;
    for (int i = 0; i < SIDES; i++) {
        cases[i] = tcase_create(side_names[i]);
        tcase_set_timeout(cases[i], 60);
        suite_add_tcase(suite, cases[i]);
    }
    for (size_t k = 0; k < side_test_count; k++)
        for (int i = side_tests[k].first; i < side_tests[k].end; i++)
            tcase_add_loop_test(cases[next++ % SIDES], side_tests[k].test, i, i + 1);
    SRunner *runner = srunner_create(suite);
    pid_t pids[SIDES];
    int failed = 0;
    fflush(NULL);
    for (int i = 0; i < SIDES; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            srunner_run(runner, NULL, side_names[i], CK_ENV);
            exit(srunner_ntests_failed(runner) > 0);
        }
    }
    for (int i = 0; i < SIDES; i++) {
        int status = -1;
        failed += pids[i] < 0 || waitpid(pids[i], &status, 0) != pids[i] || status != 0;
    }
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

// A job of `count` workers that nothing is wrong with, each with one rank. Deadlines are short.
static inline struct job *job_create(uint32_t count)
{
    struct job *job = crew_memory(sizeof(*job));
    job->count = count;
    job->listener = crew_listen(&job->port);
    for (uint32_t i = 0; i < MOST_PROCESSES; i++) {
        struct process *process = &job->process[i];
        process->own.index = i;
        process->job = job;
        process->place = (struct ls_worker_place){.resolver = "launch",
                                                  .role = LS_ROLE_WORKER,
                                                  .number = i,
                                                  .workers = count,
                                                  .address = "127.0.0.1",
                                                  .port = job->port,
                                                  .listen_fd = i ? -1 : job->listener};
        process->agreement[0] = (struct ls_agreement){"--model", "cnn"};
        process->agreement[1] = (struct ls_agreement){"--batch-size", "64"};
        process->options = (struct ls_cluster_options){.place = &process->place,
                                                       .count = 1,
                                                       .join_deadline_ns = 20 * SECOND,
                                                       .deadline_ns = 20 * SECOND,
                                                       .silence_ns = 2 * SECOND,
                                                       .secret = "a secret of this very job",
                                                       .agreement = process->agreement,
                                                       .agreements = 2};
    }
    return job;
}

static inline void job_destroy(struct job *job)
{
    close(job->listener);
    munmap(job, sizeof(*job));
}

static inline void process_note_lost(void *context, const char *text)
{
    struct process *process = context;
    snprintf(process->lost_text, sizeof(process->lost_text), "%s", text);
    process->lost_calls++;
}

static inline struct ls_cluster *process_join(struct process *process)
{
    struct ls_cluster *cluster = NULL;
    const uint64_t begin = ls_clock_ns();
    process->joined = ls_cluster_join(&process->options, &cluster);
    process->took_ns = ls_clock_ns() - begin;
    return cluster;
}

// Joins, says so, and comes to a barrier when the test lets it go on.
static inline void stay_a_while(struct process *process)
{
    struct ls_cluster *cluster = process_join(process);
    if (!cluster)
        return;
    process->own.state = 1;
    crew_await(&process->job->go, 1);
    process->status = ls_cluster_barrier(cluster);
    ls_cluster_close(cluster);
}

static inline void job_start_one(struct job *job, uint32_t index, void (*work)(struct process *))
{
    struct process *process = &job->process[index];
    if (!crew_fork(&process->own, LONGEST_S))
        return;
    ls_log_set_writer(crew_note_line, &process->own);
    process->options.lost = process_note_lost;
    process->options.context = process;
    if (index)
        close(job->listener);
    work(process);
    _exit(0);
}

static inline void job_start(struct job *job, uint32_t processes, void (*work)(struct process *))
{
    job->begin_ns = ls_clock_ns();
    for (uint32_t i = 0; i < processes; i++)
        job_start_one(job, i, work);
}

// Waits for all; each must have ended by itself.
static inline void job_wait(struct job *job, uint32_t processes)
{
    for (uint32_t i = 0; i < processes; i++) {
        crew_wait(&job->process[i].own);
        ck_assert_msg(job->process[i].own.exit_status == 0, "process %u: status %d, log: %s", i,
                      job->process[i].own.exit_status, job->process[i].own.log);
    }
}

static inline void job_run(struct job *job, uint32_t processes, void (*work)(struct process *))
{
    job_start(job, processes, work);
    job_wait(job, processes);
}

// One way of the relay's cable. False: that end is closed.
static inline bool relay_bytes(const struct job *job, int from, int to)
{
    char data[4096];
    const ssize_t got = recv(from, data, sizeof(data), MSG_DONTWAIT);
    if (got <= 0)
        return got < 0;
    return job->cut || send(to, data, (size_t)got, MSG_NOSIGNAL) == got;
}

static inline void relay_run(const struct job *job, int listener)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons(job->port)};
    const int one = accept(listener, NULL, NULL), other = socket(AF_INET, SOCK_STREAM, 0);
    if (one < 0 || other < 0 || connect(other, (struct sockaddr *)&at, sizeof(at)))
        _exit(1);
    for (bool open = true; open;) {
        struct pollfd fds[] = {{.fd = one, .events = POLLIN}, {.fd = other, .events = POLLIN}};
        poll(fds, 2, 1000);
        open = (!fds[0].revents || relay_bytes(job, one, other)) &&
               (!fds[1].revents || relay_bytes(job, other, one));
    }
    while (job->cut)
        pause(); // what is closed behind a cut cable is not seen
}

// A process between worker `index` and worker 0; it ends with their connection, or is killed.
static inline pid_t job_start_relay(struct job *job, uint32_t index)
{
    const int listener = crew_listen(&job->relay_port);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        alarm(LONGEST_S);
        close(job->listener);
        relay_run(job, listener);
        _exit(0);
    }
    close(listener);
    job->process[index].place.port = job->relay_port;
    return pid;
}

static inline void assert_log_has(const struct process *process, const char *text)
{
    ck_assert_msg(strstr(process->own.log, text) != NULL, "process %u: '%s' is not in its log:\n%s",
                  process->own.index, text, process->own.log);
}

static inline void assert_log_empty(const struct process *process)
{
    ck_assert_msg(process->own.log[0] == '\0', "process %u logged:\n%s", process->own.index,
                  process->own.log);
}

#endif
