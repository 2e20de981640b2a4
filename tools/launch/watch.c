// SPDX-License-Identifier: Apache-2.0
// One loop over signals, pipes and deadlines.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // WCONTINUED, WNOWAIT
#endif
#include "tools/launch/watch.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "tools/interrupt.h"
#include "tools/launch/leftover.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)
#define TERMINATE_NS (2 * SECOND) // from SIGTERM to SIGKILL after a failure
#define KILL_NS (5 * SECOND) // for the kernel to end what was killed
#define AGAIN_NS (SECOND / 5) // from the end of a process to its next start
#define SETTLE_NS (SECOND / 10) // failures within it are one: the kernel tells of them in any order
#define POLL_MS 100
#define POLL_END_MS 20 // when the processes have ended

// ---- Ending ----

static uint64_t later(uint64_t now, uint64_t wait)
{
    return wait ? now + wait : UINT64_MAX;
}

static void signal_all(struct launch_job *job, int number)
{
    for (uint32_t i = 0; i < job->count; i++) {
        if (!job->processes[i].running)
            continue;
        job->processes[i].told = true;
        launch_process_signal(&job->processes[i], number);
    }
}

static void terminate_all(struct launch_job *job, uint64_t end_ns, enum launch_stage stage)
{
    signal_all(job, SIGTERM);
    signal_all(job, SIGCONT); // one that is stopped could not obey
    job->state.told = true;
    job->state.stage = stage;
    job->state.stage_end_ns = end_ns;
}

static void kill_all(struct launch_job *job, uint64_t now)
{
    signal_all(job, SIGKILL);
    job->state.stage = LAUNCH_KILLED;
    job->state.stage_end_ns = now + KILL_NS;
}

// The cause is what failed first. But one that lost another is never the cause where that other one
// is known, and what fails at the same time is told in any order.
static void consider(struct launch_job *job, struct launch_process *process,
                     enum launch_failure failure, uint64_t now)
{
    const bool is_first = job->state.failure == LAUNCH_FAILURE_NONE;
    const bool explains =
        failure > job->state.failure &&
        (job->state.failure <= LAUNCH_FAILURE_PEER || now - job->state.failed_ns <= SETTLE_NS);
    if (!is_first && !explains)
        return;
    if (is_first)
        job->state.failed_ns = now;
    job->state.cause = process;
    job->state.failure = failure;
}

// The others are given a moment. Those that are stopped cannot use it.
static void fail(struct launch_job *job, struct launch_process *process,
                 enum launch_failure failure, uint64_t now)
{
    if (job->state.stage >= LAUNCH_TERMINATED)
        return;
    consider(job, process, failure, now);
    if (failure == LAUNCH_FAILURE_ASKED) {
        if (job->state.stage == LAUNCH_RUNNING) {
            job->state.stage = LAUNCH_WAITING;
            job->state.stage_end_ns = later(now, job->options->stop_grace_ns);
        }
        return;
    }
    for (uint32_t i = 0; i < job->count; i++) {
        struct launch_process *other = &job->processes[i];
        if (!other->running || !other->stopped_ns)
            continue;
        consider(job, other, LAUNCH_FAILURE_LOST, now);
        other->told = true;
        launch_process_signal(other, SIGKILL);
    }
    const uint64_t end = now + job->options->failure_grace_ns;
    if (job->state.stage == LAUNCH_RUNNING || end < job->state.stage_end_ns)
        job->state.stage_end_ns = end;
    job->state.stage = LAUNCH_WAITING;
}

static enum launch_failure judge(const struct launch_process *process)
{
    const int code = process->code, number = process->signal;
    if (process->lost && number == SIGKILL)
        return LAUNCH_FAILURE_LOST;
    if (process->told && (number == SIGTERM || number == SIGKILL))
        return LAUNCH_FAILURE_NONE;
    if (number)
        return LAUNCH_FAILURE_LOST;
    if (code == 128 + SIGTERM || code == 128 + SIGINT)
        return process->told ? LAUNCH_FAILURE_NONE : LAUNCH_FAILURE_ASKED;
    return code == 0              ? LAUNCH_FAILURE_NONE
           : code == LS_PEER_LOST ? LAUNCH_FAILURE_PEER
                                  : LAUNCH_FAILURE_OWN;
}

static bool any_runs(const struct launch_job *job, bool servers)
{
    for (uint32_t i = 0; i < job->count; i++)
        if ((job->processes[i].running || job->processes[i].again) &&
            (servers || !job->processes[i].server))
            return true;
    return false;
}

// ---- Going on ----

static uint32_t workers_left(const struct launch_job *job)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < job->count; i++)
        left += !job->processes[i].server && (job->processes[i].running || job->processes[i].again);
    return left;
}

bool launch_goes_on(const struct launch_job *job)
{
    return job->options->servers || job->options->elastic;
}

// Whether the others go on without this one, or with the same one, started again. They do not where
// it was asked to end, nor where it waited for a server in vain.
static bool others_go_on(struct launch_job *job, struct launch_process *process,
                         enum launch_failure failure, uint64_t now)
{
    const struct launch_options *options = job->options;
    char text[128];
    if (!launch_goes_on(job) || job->state.stage != LAUNCH_RUNNING ||
        failure < (options->elastic ? LAUNCH_FAILURE_PEER : LAUNCH_FAILURE_OWN) ||
        launch_is_refused(job, process, failure))
        return false;
    launch_process_describe(process, text, sizeof(text));
    if (job->restarted < options->restarts) {
        process->again = true;
        process->ended_ns = now;
        ls_warn("launch", "%s; it is started again (%u of %u)", text, ++job->restarted,
                options->restarts);
        return true;
    }
    const uint32_t left = workers_left(job);
    if (process->server || !options->elastic || left < options->least_workers)
        return false;
    ls_warn("launch", "%s; the others go on: %u of at least %u", text, left,
            options->least_workers);
    return true;
}

// What they still had to print is waited for, and a little longer, for those that fail at once.
static void start_again(struct launch_job *job, uint64_t now)
{
    for (uint32_t i = 0; i < job->count; i++) {
        struct launch_process *process = &job->processes[i];
        if (!process->again)
            continue;
        const uint64_t passed = now - process->ended_ns;
        const bool silent = process->out.fd < 0 && process->err.fd < 0;
        if (job->state.stage != LAUNCH_RUNNING) {
            process->again = false;
        } else if (passed > AGAIN_NS && (silent || passed > SECOND)) {
            if (launch_start_again(job, process)) {
                process->code = LS_FAILED;
                fail(job, process, LAUNCH_FAILURE_OWN, now);
            }
        }
    }
}

// What it has left behind in its group ends with it, except where all have been asked to end and
// may need their time.
static void end_group(struct launch_job *job, struct launch_process *process)
{
    if (job->state.told || job->state.failure == LAUNCH_FAILURE_ASKED)
        return;
    launch_process_signal(process, SIGKILL);
    launch_guard_tell(&job->guard, process->pid, false);
}

static struct launch_process *find(struct launch_job *job, pid_t pid)
{
    for (uint32_t i = 0; i < job->count; i++)
        if (job->processes[i].running && job->processes[i].pid == pid)
            return &job->processes[i];
    return NULL;
}

static void note_end(struct launch_job *job, struct launch_process *process, const siginfo_t *info,
                     uint64_t now)
{
    process->running = false;
    process->ended_ns = now;
    process->code = info->si_code == CLD_EXITED ? info->si_status : 0;
    process->signal = info->si_code == CLD_EXITED ? 0 : info->si_status;
    if (!process->told && !process->lost) // else it was ended because it was stopped
        process->stopped_ns = 0;
    end_group(job, process);
    const enum launch_failure failure = judge(process);
    if (failure && !others_go_on(job, process, failure, now))
        fail(job, process, failure, now);
}

// Processes that lost their parent become children of this program (PR_SET_CHILD_SUBREAPER), and
// are reaped, too. A process of ours is reaped after its group was killed, so that the number of
// the group still means this group.
static void reap(struct launch_job *job, uint64_t now)
{
    siginfo_t info;
    for (;;) {
        info.si_pid = 0;
        if (waitid(P_ALL, 0, &info, WSTOPPED | WCONTINUED | WNOHANG) || !info.si_pid)
            break;
        struct launch_process *process = find(job, info.si_pid);
        if (process) {
            process->stopped_ns = info.si_code == CLD_STOPPED ? now : 0;
            process->stop_signal = info.si_status;
        }
    }
    for (;;) {
        info.si_pid = 0;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) || !info.si_pid)
            break;
        struct launch_process *process = find(job, info.si_pid);
        if (process)
            note_end(job, process, &info, now);
        (void)waitid(P_PID, (id_t)info.si_pid, &info, WEXITED | WNOHANG);
    }
}

// ---- Time ----

static void warn_of_late_ones(const struct launch_job *job, const char *what)
{
    for (uint32_t i = 0; i < job->count; i++) {
        char name[32];
        launch_process_name(&job->processes[i], name, sizeof(name));
        if (job->processes[i].running)
            ls_warn("launch", "%s has not ended by itself: %s", name, what);
    }
}

static void end_stage(struct launch_job *job, uint64_t now)
{
    if (job->state.stage == LAUNCH_WAITING && !job->state.told) {
        warn_of_late_ones(job, "it gets SIGTERM");
        terminate_all(job, now + TERMINATE_NS, LAUNCH_TERMINATED);
    } else if (job->state.stage != LAUNCH_KILLED) {
        job->state.late = job->state.late || (job->state.signal && any_runs(job, true));
        warn_of_late_ones(job, "it gets SIGKILL");
        kill_all(job, now);
    }
}

static void check_time(struct launch_job *job, uint64_t now)
{
    const struct launch_options *options = job->options;
    for (uint32_t i = 0;
         i < job->count && job->state.stage == LAUNCH_RUNNING && options->stopped_ns; i++) {
        struct launch_process *process = &job->processes[i];
        if (process->running && process->stopped_ns &&
            now - process->stopped_ns > options->stopped_ns) {
            process->lost = true;
            launch_process_signal(process, SIGKILL);
        }
    }
    if (options->timeout_ns && !job->state.timed_out && !job->state.signal &&
        job->state.failure == LAUNCH_FAILURE_NONE && any_runs(job, true) &&
        now - job->began_ns > options->timeout_ns) {
        job->state.timed_out = true;
        terminate_all(job, later(now, options->stop_grace_ns), LAUNCH_WAITING);
    }
    // Servers may wait for more work than there is.
    if (job->state.stage == LAUNCH_RUNNING && !any_runs(job, false) && any_runs(job, true)) {
        job->state.stage = LAUNCH_WAITING;
        job->state.stage_end_ns = now + options->failure_grace_ns;
    }
    if (job->state.stage != LAUNCH_RUNNING && now >= job->state.stage_end_ns)
        end_stage(job, now);
    if (job->state.failure > LAUNCH_FAILURE_ASKED && !job->state.announced && any_runs(job, true) &&
        now - job->state.failed_ns > SETTLE_NS) {
        char text[128];
        launch_process_describe(job->state.cause, text, sizeof(text));
        ls_warn("launch", "%s; the others have %.3g s to end", text,
                (double)options->failure_grace_ns * 1e-9);
        job->state.announced = true;
    }
}

// ---- Signals to this program ----

static void on_signal(struct launch_job *job, int number, uint64_t now)
{
    if (number == SIGCHLD)
        return;
    if (number == SIGWINCH) {
        launch_process_resize(&job->processes[0]);
        return;
    }
    if (interrupt_is_echo(number))
        return;
    if (!job->state.signal &&
        (job->state.stage == LAUNCH_RUNNING || job->state.failure == LAUNCH_FAILURE_ASKED)) {
        job->state.signal = number;
        if (job->state.stage == LAUNCH_RUNNING)
            terminate_all(job, later(now, job->options->stop_grace_ns), LAUNCH_WAITING);
        return;
    }
    job->state.signal = job->state.signal ? job->state.signal : number;
    if (!job->state.at_once)
        ls_warn("launch", "interrupted: what is still running gets SIGKILL");
    job->state.at_once = true;
    kill_all(job, now);
}

static void read_signals(struct launch_job *job, uint64_t now)
{
    struct signalfd_siginfo info;
    while (read(job->signals, &info, sizeof(info)) == sizeof(info))
        on_signal(job, (int)info.ssi_signo, now);
}

// ---- The loop ----

static size_t add_stream(struct launch_job *job, size_t used, struct launch_stream *stream,
                         uint64_t now)
{
    if (stream->fd >= 0 && launch_stream_has_room(stream, now))
        job->polled[used++] = (struct pollfd){.fd = stream->fd, .events = POLLIN};
    return used;
}

// Waits until something happens.
static void wait_for_events(struct launch_job *job, uint64_t now)
{
    size_t used = 0;
    job->polled[used++] = (struct pollfd){.fd = job->signals, .events = POLLIN};
    for (size_t i = 0; i < 2; i++)
        if (job->output.sinks[i].end)
            job->polled[used++] = (struct pollfd){.fd = job->output.sinks[i].fd, .events = POLLOUT};
    for (uint32_t i = 0; i < job->count; i++) {
        used = add_stream(job, used, &job->processes[i].out, now);
        used = add_stream(job, used, &job->processes[i].err, now);
    }
    (void)poll(job->polled, used, any_runs(job, true) ? POLL_MS : POLL_END_MS);
}

static bool read_one(struct launch_stream *stream, uint64_t now)
{
    return stream->fd < 0 ||
           (launch_stream_has_room(stream, now) && !launch_stream_read(stream, now));
}

// Whether there is nothing left to read.
static bool read_streams(struct launch_job *job, uint64_t now)
{
    bool all = true;
    for (uint32_t i = 0; i < job->count; i++) {
        all = read_one(&job->processes[i].out, now) && all;
        all = read_one(&job->processes[i].err, now) && all;
    }
    return all;
}

// When the processes have ended: whether what they have started has, too.
static bool end_leftovers(struct launch_job *job, uint64_t now)
{
    if (!launch_has_children())
        return true;
    if (job->state.told && job->state.stage == LAUNCH_WAITING)
        return false; // they may use their time
    if (job->state.stage != LAUNCH_KILLED)
        kill_all(job, now);
    launch_kill_children();
    return now >= job->state.stage_end_ns;
}

// What the kernel cannot end is left behind.
static bool is_over(struct launch_job *job, uint64_t now)
{
    if (any_runs(job, true))
        return job->state.stage == LAUNCH_KILLED && now >= job->state.stage_end_ns;
    if (!end_leftovers(job, now))
        return false;
    // Nobody prints any more, so what is there now is all there is.
    const bool all_read = read_streams(job, now);
    return job->state.at_once || (all_read && launch_output_is_written(&job->output));
}

void launch_watch(struct launch_job *job)
{
    uint64_t now;
    do {
        wait_for_events(job, ls_clock_ns());
        now = ls_clock_ns();
        read_signals(job, now);
        reap(job, now);
        (void)read_streams(job, now);
        check_time(job, now);
        start_again(job, now);
        launch_output_write(&job->output);
    } while (!is_over(job, now));
    for (uint32_t i = 0; i < job->count; i++) {
        launch_stream_close(&job->processes[i].out);
        launch_stream_close(&job->processes[i].err);
        launch_guard_tell(&job->guard, job->processes[i].pid, false);
    }
    launch_name_children();
}

void launch_abandon(struct launch_job *job)
{
    kill_all(job, ls_clock_ns());
    launch_watch(job);
}
