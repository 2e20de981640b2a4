// SPDX-License-Identifier: Apache-2.0
// A launch from its start to its exit code.
#include "tools/launch/job.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "tools/launch/watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

// ---- Reports ----

static void print_last_lines(struct launch_job *job, const struct launch_process *process)
{
    const struct launch_stream *stream = process->err.lines ? &process->err : &process->out;
    const uint64_t first =
        stream->lines > LAUNCH_LAST_LINES ? stream->lines - LAUNCH_LAST_LINES : 0;
    for (uint64_t i = first; i < stream->lines; i++) {
        char line[LAUNCH_LAST_LETTERS + 8];
        snprintf(line, sizeof(line), "  | %s", stream->last[i % LAUNCH_LAST_LINES]);
        ls_log_replace_control_characters(line);
        launch_output_say(&job->output, LS_LOG_ERROR, line);
    }
}

// The cause stands below what the others had to say.
static void report_failure(struct launch_job *job, bool is_final)
{
    char text[128];
    if (job->state.failure > LAUNCH_FAILURE_ASKED) {
        const struct launch_process *cause = job->state.cause;
        const bool mute = !cause->out.lines && !cause->err.lines;
        launch_process_describe(cause, text, sizeof(text));
        (is_final ? ls_error : ls_warn)(
            "launch", mute ? "%s; it printed nothing" : "%s; its last lines:", text);
        print_last_lines(job, cause);
    } else if (job->state.timed_out) {
        ls_error("launch", "not done after %.9g s (--timeout): all processes were ended",
                 (double)job->options->timeout_ns * 1e-9);
    } else if (job->state.late) {
        ls_error("launch",
                 "a process had to be killed, because it did not end within %.9g s "
                 "(--stop-grace): what it wanted to write may be missing",
                 (double)job->options->stop_grace_ns * 1e-9);
    } else if (job->state.signal) {
        launch_signal_name(job->state.signal, text, sizeof(text));
        ls_warn("launch", "interrupted by %s: all processes have ended", text);
    }
}

static int exit_code_of(const struct launch_job *job)
{
    if (job->state.failure > LAUNCH_FAILURE_ASKED)
        return job->state.failure == LAUNCH_FAILURE_OWN ? job->state.cause->code
                                                        : ls_status_exit_code(LS_PEER_LOST);
    if (job->state.timed_out || job->state.late)
        return ls_status_exit_code(LS_PEER_LOST);
    if (job->state.signal)
        return job->state.signal == SIGTERM ? 128 + SIGTERM : ls_status_exit_code(LS_INTERRUPTED);
    return job->state.failure == LAUNCH_FAILURE_ASKED ? job->state.cause->code : 0;
}

bool launch_is_refused(const struct launch_job *job, const struct launch_process *process,
                       enum launch_failure failure)
{
    const int code = process->code;
    return job->options->own && failure == LAUNCH_FAILURE_OWN &&
           (code == ls_status_exit_code(LS_USAGE) || code == ls_status_exit_code(LS_BAD_INPUT) ||
            code == ls_status_exit_code(LS_UNAVAILABLE));
}

static bool may_restart(const struct launch_job *job)
{
    return !launch_goes_on(job) && job->place.restart < job->options->restarts &&
           !job->state.signal && !job->state.timed_out &&
           job->state.failure > LAUNCH_FAILURE_ASKED &&
           !launch_is_refused(job, job->state.cause, job->state.failure);
}

static enum ls_status run(struct launch_job *job, int *code)
{
    for (;;) {
        memset(&job->state, 0, sizeof(job->state));
        const enum ls_status status = launch_start_all(job);
        if (status) {
            launch_abandon(job);
            return status;
        }
        launch_watch(job);
        if (!may_restart(job))
            break;
        report_failure(job, false);
        job->place.restart++;
        ls_warn("launch", "all processes are started again (%u of %u)", job->place.restart,
                job->options->restarts);
    }
    report_failure(job, true);
    *code = exit_code_of(job);
    if (job->state.failure <= LAUNCH_FAILURE_ASKED && !job->state.timed_out && !job->state.late)
        return *code ? LS_INTERRUPTED : LS_OK;
    return LS_FAILED;
}

// ---- Around it ----

// From here on the kernel hands signals to the loop. Those that are ignored (nohup) stay so.
static enum ls_status open_signals(struct launch_job *job)
{
    static const int numbers[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGWINCH};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        struct sigaction now;
        if (!sigaction(numbers[i], NULL, &now) && now.sa_handler != SIG_IGN)
            sigaddset(&set, numbers[i]);
    }
    signal(SIGCHLD, SIG_DFL); // whoever ignores it gets no exit codes
    sigaddset(&set, SIGCHLD);
    job->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (job->signals < 0) {
        ls_error("launch", "cannot wait for signals: %s", strerror(errno));
        return LS_FAILED;
    }
    sigprocmask(SIG_BLOCK, &set, NULL);
    return LS_OK;
}

static void close_job(struct launch_job *job)
{
    launch_guard_close(&job->guard);
    if (job->signals >= 0)
        close(job->signals);
    launch_forget_servers(&job->place);
    free(job->processes);
    free(job->polled);
}

enum ls_status launch_run(const struct launch_options *options, int *code)
{
    sigset_t mask;
    const uint32_t count = options->workers + options->servers;
    struct launch_job job = {
        .options = options,
        .guard = {.pipe_end = -1},
        .place = {.guard = &job.guard,
                  .words = options->words,
                  .own = options->own,
                  .elastic = options->elastic,
                  .workers = options->workers,
                  .servers = options->servers,
                  .listener = -1,
                  .mask = &mask},
        .processes = calloc(count, sizeof(*job.processes)),
        .count = count,
        .polled = calloc(2 * (size_t)count + 3, sizeof(*job.polled)),
        .signals = -1,
        .began_ns = ls_clock_ns(),
    };
    if (!job.processes || !job.polled) {
        close_job(&job);
        return LS_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < count; i++)
        job.processes[i].out.fd = job.processes[i].err.fd = -1;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    enum ls_status status = options->servers ? launch_make_folder(&job.place) : LS_OK;
    if (!status)
        status = launch_guard_open(&job.guard, job.place.folder);
    if (!status)
        status = open_signals(&job);
    if (!status) {
        prctl(PR_SET_CHILD_SUBREAPER, 1L);
        launch_output_init(&job.output);
        ls_log_set_writer(launch_output_say, &job.output);
        status = run(&job, code);
        ls_log_set_writer(NULL, NULL);
        sigprocmask(SIG_SETMASK, &mask, NULL);
        launch_output_finish(&job.output, !job.state.at_once);
        if (!status && job.output.out->error) {
            ls_error("launch", "cannot write to standard output: %s",
                     strerror(job.output.out->error));
            status = LS_FAILED;
        }
    }
    close_job(&job);
    return status;
}
