// SPDX-License-Identifier: Apache-2.0
// A launch from its start to its exit code: starts all processes, watches them in one loop over
// signals, pipes and deadlines, and ends them where one has failed.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // SOCK_CLOEXEC, WCONTINUED, WNOWAIT
#endif
#include "tools/launch/job.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "tools/interrupt.h"
#include "tools/launch/leftover.h"
#include "tools/launch/process.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)
#define TERMINATE_NS (2 * SECOND) // from SIGTERM to SIGKILL after a failure
#define KILL_NS (5 * SECOND) // for the kernel to end what was killed
#define AGAIN_NS (SECOND / 5) // from the end of a process to its next start
#define SETTLE_NS (SECOND / 10) // failures within it are one: the kernel tells of them in any order
#define POLL_MS 100
#define POLL_END_MS 20 // when the processes have ended

// How a process went wrong; what explains more has the higher number.
enum launch_failure {
    LAUNCH_FAILURE_NONE,
    LAUNCH_FAILURE_ASKED, // ended with 130 or 143: somebody sent it a signal, and it obeyed
    LAUNCH_FAILURE_PEER, // ended with 5: it lost another one
    LAUNCH_FAILURE_OWN, // ended with another code
    LAUNCH_FAILURE_LOST, // killed by a signal, or stopped
};

enum launch_stage {
    LAUNCH_RUNNING,
    LAUNCH_WAITING, // for all to end by themselves
    LAUNCH_TERMINATED, // after SIGTERM
    LAUNCH_KILLED,
};

struct launch_job {
    const struct launch_options *options;
    struct launch_output output;
    struct launch_guard guard;
    struct launch_place place;
    struct launch_process *processes; // workers first
    uint32_t count;
    struct pollfd *polled; // room for 2 * count + 3
    int signals; // signalfd
    uint64_t began_ns;
    uint32_t restarted; // processes, each alone

    // How it goes. Zero in the beginning.
    struct {
        enum launch_stage stage;
        uint64_t stage_end_ns; // UINT64_MAX: never
        struct launch_process *cause;
        enum launch_failure failure;
        uint64_t failed_ns;
        bool announced; // the failure
        bool told; // all to end, by this program
        bool late; // one had to be killed that was only asked to end
        bool timed_out;
        bool at_once; // the user does not want to wait
        int signal; // that this program got; 0: none
    } state;
};

// ---- Starting ----

// The kernel chooses the port, and the process inherits the socket, so no other program can take it
// in between.
static enum ls_status listen_here(int *listener, uint16_t *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof(address);
    *listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*listener < 0 || bind(*listener, (struct sockaddr *)&address, sizeof(address)) ||
        listen(*listener, SOMAXCONN) ||
        getsockname(*listener, (struct sockaddr *)&address, &bytes)) {
        ls_error("launch", "cannot listen on 127.0.0.1: %s", strerror(errno));
        return LS_FAILED;
    }
    *port = ntohs(address.sin_port);
    return LS_OK;
}

// Servers keep their files there. It is made before the guard is opened, which removes it where
// this program cannot.
static enum ls_status make_folder(struct launch_place *place)
{
    const char *temporary = getenv("TMPDIR");
    if (!temporary || !*temporary)
        temporary = "/tmp";
    const int length =
        snprintf(place->folder, sizeof(place->folder), "%s/lockstep-launch-XXXXXX", temporary);
    if (length > 0 && (size_t)length < sizeof(place->folder) && mkdtemp(place->folder))
        return LS_OK;
    ls_error("launch", "cannot make a folder for the servers' files in %s: %s; set TMPDIR",
             temporary, strerror(errno));
    *place->folder = '\0';
    return LS_FAILED;
}

// Where the servers of the job are reached, whichever process is the server at the time.
static enum ls_status listen_for_servers(struct launch_place *place)
{
    const size_t each = sizeof("127.0.0.1:65535,"), bytes = place->servers * each + 1;
    enum ls_status status = LS_OK;
    size_t length = 0;
    if (!place->servers || place->server_addresses)
        return LS_OK;
    place->server_listeners = malloc(place->servers * sizeof(*place->server_listeners));
    place->server_addresses = calloc(1, bytes);
    if (!place->server_listeners || !place->server_addresses)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < place->servers; i++)
        place->server_listeners[i] = -1;
    for (uint32_t i = 0; i < place->servers && !status; i++) {
        uint16_t port = 0;
        status = listen_here(&place->server_listeners[i], &port);
        length += (size_t)snprintf(place->server_addresses + length, bytes - length,
                                   "%s127.0.0.1:%u", i ? "," : "", port);
    }
    snprintf(place->job, sizeof(place->job), "launch-%ld", (long)getpid());
    return status;
}

// Closes what they listen on, and removes their folder.
static void forget_servers(struct launch_place *place)
{
    for (uint32_t i = 0; place->server_listeners && i < place->servers; i++)
        if (place->server_listeners[i] >= 0)
            close(place->server_listeners[i]);
    free(place->server_listeners);
    free(place->server_addresses);
    launch_remove_folder(place->folder);
}

static void prefix_of(const struct launch_job *job, const struct launch_process *process,
                      bool is_error, char *prefix, size_t room)
{
    const enum launch_prefix kind = job->options->prefix;
    const bool chief = !process->server && process->number == 0;
    *prefix = '\0';
    if (kind == LAUNCH_PREFIX_NEVER)
        return;
    if (kind == LAUNCH_PREFIX_AUTO && (job->count == 1 || (chief && !is_error)))
        return;
    snprintf(prefix, room, "[%s%u] ", process->server ? "server " : "", process->number);
}

static enum ls_status start_one(struct launch_job *job, struct launch_process *process)
{
    char out[24], err[24];
    prefix_of(job, process, false, out, sizeof(out));
    prefix_of(job, process, true, err, sizeof(err));
    const enum ls_status status =
        launch_process_start(process, &job->place, &job->output, out, err);
    process->err.shares = *err && !process->server && job->options->workers > 1;
    process->err.worker = process->number;
    return status;
}

// All of them, with a new secret and a new port. LS_BAD_INPUT or LS_FAILED, logged: some may run.
static enum ls_status start_all(struct launch_job *job)
{
    const uint32_t workers = job->options->workers;
    enum ls_status status = ls_secret_draw(job->place.secret);
    if (!status)
        status = listen_here(&job->place.listener, &job->place.port);
    if (!status)
        status = listen_for_servers(&job->place);
    for (uint32_t i = 0; i < job->count && !status; i++) {
        struct launch_process *process = &job->processes[i];
        *process = (struct launch_process){.server = i >= workers,
                                           .number = i < workers ? i : i - workers,
                                           .out = {.fd = -1},
                                           .err = {.fd = -1}};
        status = start_one(job, process);
    }
    if (job->place.listener >= 0) // a process that connects when worker 0 has ended must be refused
        close(job->place.listener);
    job->place.listener = -1;
    return status;
}

// A process that has ended. What it printed and was not read is lost.
static enum ls_status restart(struct launch_job *job, struct launch_process *process)
{
    launch_stream_close(&process->out);
    launch_stream_close(&process->err);
    *process = (struct launch_process){.server = process->server,
                                       .number = process->number,
                                       .restarts = process->restarts + 1,
                                       .out = {.fd = -1},
                                       .err = {.fd = -1}};
    return start_one(job, process);
}

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

// Whether the training goes on when one of its processes ends.
static bool goes_on(const struct launch_job *job)
{
    return job->options->servers || job->options->elastic;
}

// Whether it is a command of ours that was refused (wrong options, bad input, not available), and
// would be refused again.
static bool is_refused(const struct launch_job *job, const struct launch_process *process,
                       enum launch_failure failure)
{
    const int code = process->code;
    return job->options->own && failure == LAUNCH_FAILURE_OWN &&
           (code == ls_status_exit_code(LS_USAGE) || code == ls_status_exit_code(LS_BAD_INPUT) ||
            code == ls_status_exit_code(LS_UNAVAILABLE));
}

// Whether the others go on without this one, or with the same one, started again. They do not where
// it was asked to end, nor where it waited for a server in vain.
static bool others_go_on(struct launch_job *job, struct launch_process *process,
                         enum launch_failure failure, uint64_t now)
{
    const struct launch_options *options = job->options;
    char text[128];
    if (!goes_on(job) || failure < (options->elastic ? LAUNCH_FAILURE_PEER : LAUNCH_FAILURE_OWN) ||
        is_refused(job, process, failure))
        return false;
    if (job->state.stage != LAUNCH_RUNNING) // after a signal, what would start again only ends
        return job->state.signal && failure != LAUNCH_FAILURE_LOST &&
               job->restarted < options->restarts;
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
    ls_warn("launch", "%s; the others continue: %u of at least %u", text, left,
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
            if (restart(job, process)) {
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

// What was refused has said why, and those that wait for it have nothing to add.
static void warn_of_late_ones(const struct launch_job *job, const char *what)
{
    if (job->state.cause && is_refused(job, job->state.cause, job->state.failure))
        return;
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
        !is_refused(job, job->state.cause, job->state.failure) &&
        now - job->state.failed_ns > SETTLE_NS && !launch_output_waits(&job->output)) {
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

// Returns when all processes have ended, with what they have started, and all that they printed is
// written.
static void watch_all(struct launch_job *job)
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
    launch_output_settle(&job->output);
    launch_name_children();
}

// Ends all at once, and then does the same.
static void abandon(struct launch_job *job)
{
    kill_all(job, ls_clock_ns());
    watch_all(job);
}

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

// The cause is printed below what the others had to say.
static void report_failure(struct launch_job *job, bool is_final)
{
    char text[128];
    if (job->state.failure > LAUNCH_FAILURE_ASKED) {
        const struct launch_process *cause = job->state.cause;
        const bool mute = !cause->out.lines && !cause->err.lines;
        const bool above = !cause->server && launch_output_ends_with(&job->output, cause->number);
        launch_process_describe(cause, text, sizeof(text));
        (is_final ? ls_error : ls_warn)("launch",
                                        mute    ? "%s; it printed nothing"
                                        : above ? "%s"
                                                : "%s; its last lines:",
                                        text);
        if (!above)
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

static bool may_restart(const struct launch_job *job)
{
    return !goes_on(job) && job->place.restart < job->options->restarts && !job->state.signal &&
           !job->state.timed_out && job->state.failure > LAUNCH_FAILURE_ASKED &&
           !is_refused(job, job->state.cause, job->state.failure);
}

static enum ls_status run(struct launch_job *job, int *code)
{
    for (;;) {
        memset(&job->state, 0, sizeof(job->state));
        const enum ls_status status = start_all(job);
        if (status) {
            abandon(job);
            return status;
        }
        watch_all(job);
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

// From here on the loop reads signals. Those that are ignored (nohup) stay ignored.
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
    signal(SIGCHLD, SIG_DFL); // a process that ignores it gets no exit codes
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
    forget_servers(&job->place);
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
                  .commands = options->commands,
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
    enum ls_status status = options->servers ? make_folder(&job.place) : LS_OK;
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
