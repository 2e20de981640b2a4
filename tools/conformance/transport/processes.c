// SPDX-License-Identifier: Apache-2.0
// Runs a case in several processes, children of this one, which meet in memory that all of them share.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // pid_t, kill
#endif
#include "tools/conformance/transport/suite.h"

#include "core/base/child.h"
#include "core/base/clock.h"
#include "core/base/shared_memory.h"
#include "core/base/threads.h"
#include "tools/conformance/process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_BYTES (UINT64_C(64) << 10) // that an endpoint gives in one exchange

struct ls_transport_meeting {
    _Atomic uint32_t stage; // of the case
    _Atomic uint32_t arrived, turn; // of an exchange
    _Atomic uint32_t blamed; // the first process that blames writes what follows
    uint32_t refused;
    char message[512];
    char given[LS_TRANSPORT_MOST_ENDPOINTS][MOST_BYTES];
};

// ---- In the children ----

// Until all processes are here.
static bool meet(struct ls_transport_trial *trial, uint64_t end_ns)
{
    struct ls_transport_meeting *meeting = trial->meeting;
    const uint32_t turn = atomic_load(&meeting->turn);
    if (atomic_fetch_add(&meeting->arrived, 1) + 1 == trial->processes) {
        atomic_store(&meeting->arrived, 0);
        atomic_fetch_add(&meeting->turn, 1);
        return true;
    }
    while (atomic_load(&meeting->turn) == turn) {
        if (ls_clock_ns() > end_ns)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    return true;
}

static int32_t exchange(void *context, const void *own, uint64_t bytes, void *all)
{
    struct ls_transport_trial *trial = context;
    const uint64_t end_ns =
        ls_clock_ns() +
        (trial->deadline_ns ? trial->deadline_ns : ls_transport_patience_ns(trial->suite));
    if (bytes > MOST_BYTES) {
        ls_tally_blame(&trial->suite->tally, "it exchanges %llu bytes an endpoint: too many",
                       (unsigned long long)bytes);
        return LS_FAILED;
    }
    const char *next = own;
    for (uint32_t i = trial->process; i < trial->world; i += trial->processes, next += bytes)
        memcpy(trial->meeting->given[i], next, bytes);
    if (!meet(trial, end_ns))
        return LS_PEER_LOST;
    for (uint32_t i = 0; i < trial->world; i++)
        memcpy((char *)all + i * bytes, trial->meeting->given[i], bytes);
    return meet(trial, end_ns) ? LS_OK : LS_PEER_LOST; // all have read
}

struct ls_exchange ls_transport_meeting_exchange(struct ls_transport_trial *trial)
{
    return (struct ls_exchange){.call = exchange, .context = trial};
}

static void *do_nothing(void *argument)
{
    return argument;
}

// ThreadSanitizer has a thread of its own, which a child lacks until it starts its first thread.
static void start_first_thread(void)
{
    pthread_t thread;
    if (!ls_thread_start(&thread, "first", do_nothing, NULL))
        pthread_join(thread, NULL);
}

static void run_process(struct ls_transport_trial *trial)
{
    struct ls_tally *tally = &trial->suite->tally;
    struct ls_transport_meeting *meeting = trial->meeting;
    struct ls_process_state before;
    char text[256];
    const enum ls_transport_spread spread = trial->suite->spread;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if ((spread == LS_SPREAD_MAPPED || (spread == LS_SPREAD_MIXED && trial->process == 1)) &&
        ls_segment_open())
        ls_tally_refuse(tally, "this machine has no memory that processes share");
    start_first_thread();
    const bool known = !ls_process_state_init(&before);
    ls_transport_sides_run(trial);
    if (known && !tally->message[0] &&
        !ls_process_state_holds(&before, LS_PROCESS_ALWAYS | LS_PROCESS_THREADS | LS_PROCESS_FILES,
                                text, sizeof(text)))
        ls_tally_blame(tally, "it %s", text);
    if (tally->message[0] && !atomic_exchange(&meeting->blamed, 1)) {
        meeting->refused = tally->refused;
        memcpy(meeting->message, tally->message, sizeof(meeting->message));
    }
}

// ---- In the parent ----

// A wait for what must come may be in it twice.
static uint64_t run_deadline_ns(const struct ls_transport_trial *trial)
{
    return 3 * ls_transport_patience_ns(trial->suite);
}

static bool start_processes(struct ls_transport_trial *trial, pid_t *children)
{
    fflush(NULL); // or the children would write it again
    for (uint32_t i = 0; i < trial->processes; i++) {
        trial->process = i;
        children[i] = fork();
        if (children[i] == 0) {
            run_process(trial);
            _exit(0);
        }
        if (children[i] < 0)
            return ls_tally_blame(&trial->suite->tally, "cannot start a process: %s",
                                  strerror(errno));
    }
    return true;
}

static void have_accident(const struct ls_transport_trial *trial, pid_t victim)
{
    const uint64_t end_ns = ls_clock_ns() + run_deadline_ns(trial) / 2;
    while (atomic_load(trial->stage) == 0 && ls_clock_ns() < end_ns)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    const uint64_t begin_ns = ls_clock_ns();
    while (ls_clock_ns() - begin_ns < trial->accident.delay_us * 1000)
        ;
    kill(victim, trial->accident.signal);
    atomic_fetch_add(trial->stage, LS_TRANSPORT_HAPPENED);
}

// How the process of index `i` ended; `status` as of waitpid().
static void judge_end(struct ls_transport_trial *trial, uint32_t i, int status)
{
    const bool victim = trial->accident.signal && i == trial->accident.victim % trial->processes;
    if (WIFSIGNALED(status) && !victim)
        ls_tally_blame(&trial->suite->tally, "the process of endpoint %u crashed: signal %d (%s)",
                       i, WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (WIFEXITED(status) && WEXITSTATUS(status))
        ls_tally_blame(&trial->suite->tally,
                       "it ended the process of endpoint %u (exit code %d); a plugin must never do "
                       "that",
                       i, WEXITSTATUS(status));
}

// A process that was stopped ends with the others.
static bool all_ended(const struct ls_transport_trial *trial, const pid_t *children)
{
    const uint32_t stopped = trial->accident.signal == SIGSTOP
                                 ? trial->accident.victim % trial->processes
                                 : LS_TRANSPORT_NOBODY;
    for (uint32_t i = 0; i < trial->processes; i++)
        if (children[i] > 0 && i != stopped)
            return false;
    return true;
}

static void await_processes(struct ls_transport_trial *trial, pid_t *children)
{
    const uint64_t end_ns = ls_clock_ns() + run_deadline_ns(trial);
    while (!all_ended(trial, children) && ls_clock_ns() < end_ns) {
        for (uint32_t i = 0; i < trial->processes; i++) {
            int status = 0;
            if (children[i] <= 0 || waitpid(children[i], &status, WNOHANG) != children[i])
                continue;
            children[i] = 0;
            judge_end(trial, i, status);
        }
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    if (!all_ended(trial, children))
        ls_tally_blame(&trial->suite->tally, "not all processes ended within %.3g s",
                       (double)run_deadline_ns(trial) * 1e-9);
    for (uint32_t i = 0; i < trial->processes; i++)
        if (children[i] > 0) {
            kill(children[i], SIGKILL);
            waitpid(children[i], NULL, 0);
        }
}

void ls_transport_processes_run(struct ls_transport_trial *trial)
{
    struct ls_tally *tally = &trial->suite->tally;
    pid_t children[LS_TRANSPORT_MOST_ENDPOINTS] = {0};
    struct ls_transport_meeting *meeting = ls_child_memory_create(sizeof(*meeting));
    if (!meeting) {
        ls_tally_blame(tally, "no memory that processes share");
        return;
    }
    trial->meeting = meeting;
    trial->stage = &meeting->stage;
    if (start_processes(trial, children) && trial->accident.signal)
        have_accident(trial, children[trial->accident.victim % trial->processes]);
    await_processes(trial, children);
    if (atomic_load(&meeting->blamed) && meeting->refused)
        ls_tally_refuse(tally, "%s", meeting->message);
    else if (atomic_load(&meeting->blamed))
        ls_tally_blame(tally, "%s", meeting->message);
    ls_child_memory_destroy(meeting, sizeof(*meeting));
    trial->meeting = NULL;
}
