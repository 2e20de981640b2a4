// SPDX-License-Identifier: Apache-2.0
// Starts one process: its pipes, its environment, its group.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // pipe2, ptsname_r, cfmakeraw
#endif
#include "tools/launch/process.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/options.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

// ---- Names ----

void launch_signal_name(int number, char *name, size_t room)
{
    static const struct {
        int number;
        const char *name;
    } known[] = {
        {SIGABRT, "SIGABRT"}, {SIGALRM, "SIGALRM"}, {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
        {SIGHUP, "SIGHUP"},   {SIGILL, "SIGILL"},   {SIGINT, "SIGINT"},   {SIGKILL, "SIGKILL"},
        {SIGPIPE, "SIGPIPE"}, {SIGQUIT, "SIGQUIT"}, {SIGSEGV, "SIGSEGV"}, {SIGSTOP, "SIGSTOP"},
        {SIGSYS, "SIGSYS"},   {SIGTERM, "SIGTERM"}, {SIGTRAP, "SIGTRAP"}, {SIGTSTP, "SIGTSTP"},
        {SIGTTIN, "SIGTTIN"}, {SIGTTOU, "SIGTTOU"}, {SIGUSR1, "SIGUSR1"}, {SIGUSR2, "SIGUSR2"},
        {SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"},
    };
    snprintf(name, room, "signal %d", number);
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (known[i].number == number)
            snprintf(name, room, "%s", known[i].name);
}

void launch_process_name(const struct launch_process *process, char *name, size_t room)
{
    snprintf(name, room, "%s %u", process->server ? "server" : "worker", process->number);
}

void launch_process_describe(const struct launch_process *process, char *text, size_t room)
{
    char name[32], by[16];
    launch_process_name(process, name, sizeof(name));
    if (process->stopped_ns) {
        launch_signal_name(process->stop_signal, by, sizeof(by));
        snprintf(text, room, "%s was stopped by %s after %.1f s, and did not continue", name, by,
                 (double)(process->stopped_ns - process->started_ns) * 1e-9);
        return;
    }
    const double seconds = (double)(process->ended_ns - process->started_ns) * 1e-9;
    if (process->signal) {
        launch_signal_name(process->signal, by, sizeof(by));
        snprintf(text, room, "%s was killed by %s after %.1f s", name, by, seconds);
    } else {
        snprintf(text, room, "%s ended with exit code %d after %.1f s", name, process->code,
                 seconds);
    }
}

// ---- Outputs ----

// The ends of the channel that a process prints to, for the reader and for the process.
struct channel {
    int reader, writer;
    bool terminal;
};

static bool open_pipe(struct channel *channel)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return false;
    *channel = (struct channel){.reader = ends[0], .writer = ends[1]};
    return true;
}

static void copy_size(int terminal)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0)
        (void)ioctl(terminal, TIOCSWINSZ, &size);
}

// A terminal that changes no letter, so that the process prints as it would on ours: with colors
// and a progress bar.
static bool open_terminal(struct channel *channel)
{
    char name[64];
    struct termios mode;
    const int reader = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    int writer = -1;
    if (reader >= 0 && !grantpt(reader) && !unlockpt(reader) &&
        !ptsname_r(reader, name, sizeof(name)))
        writer = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (writer >= 0 && !tcgetattr(writer, &mode)) {
        cfmakeraw(&mode);
        if (!tcsetattr(writer, TCSANOW, &mode)) {
            copy_size(reader);
            *channel = (struct channel){.reader = reader, .writer = writer, .terminal = true};
            return true;
        }
    }
    if (reader >= 0)
        close(reader);
    if (writer >= 0)
        close(writer);
    return false;
}

void launch_process_resize(const struct launch_process *process)
{
    if (process->out.live && process->out.fd >= 0)
        copy_size(process->out.fd);
}

// ---- The process itself ----

static void set_number(const char *name, uint32_t number)
{
    char text[16];
    snprintf(text, sizeof(text), "%u", number);
    setenv(name, text, 1);
}

static void set_environment(const struct launch_process *process, const struct launch_place *place)
{
    char address[32];
    snprintf(address, sizeof(address), "127.0.0.1:%u", place->port);
    setenv("LOCKSTEP_ROLE", process->server ? "server" : "worker", 1);
    set_number("LOCKSTEP_RANK", process->number);
    set_number("LOCKSTEP_WORLD_SIZE", place->workers);
    set_number("LOCKSTEP_LOCAL_RANK", process->number);
    set_number("LOCKSTEP_LOCAL_WORLD_SIZE", process->server ? place->servers : place->workers);
    set_number("LOCKSTEP_SERVERS", place->servers);
    set_number("LOCKSTEP_RESTART_COUNT", place->restart + process->restarts);
    setenv("LOCKSTEP_ADDRESS", address, 1);
    setenv("LOCKSTEP_SECRET", place->secret, 1);
    unsetenv("LOCKSTEP_SECRET_FILE");
    unsetenv("LOCKSTEP_LISTEN_FD");
    unsetenv("LOCKSTEP_JOIN");
    unsetenv("LOCKSTEP_SERVER_ADDRESSES");
    unsetenv("LOCKSTEP_SERVER_FOLDER");
    if (place->elastic && process->restarts)
        setenv("LOCKSTEP_JOIN", "1", 1); // the others have gone on without this one
    if (place->server_addresses) {
        setenv("LOCKSTEP_SERVER_ADDRESSES", place->server_addresses, 1);
        setenv("LOCKSTEP_JOB", place->job, 1);
        setenv("LOCKSTEP_SERVER_FOLDER", place->folder, 1);
    }
    const int listener = process->server   ? place->server_listeners[process->number]
                         : process->number ? -1
                                           : place->listener;
    if (listener < 0)
        return;
    (void)fcntl(listener, F_SETFD, 0);
    set_number("LOCKSTEP_LISTEN_FD", (uint32_t)listener);
}

// In the child. Writes to `report` why the program could not be started.
static _Noreturn void become(const struct launch_process *process, const struct launch_place *place,
                             pid_t parent, const int files[3], int report)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) // it has ended before the call above
        _exit(EXIT_FAILURE);
    launch_guard_tell(place->guard, getpid(), true); // before there can be others in the group
    signal(SIGPIPE, SIG_DFL); // what this program ignores, others expect
    signal(SIGXFSZ, SIG_DFL);
    sigprocmask(SIG_SETMASK, place->mask, NULL);
    for (int fd = 0; fd < 3; fd++)
        dup2(files[fd], fd);
    set_environment(process, place);
    if (place->own) {
        size_t count = 0;
        while (place->words[count])
            count++;
        char **words = calloc(count + 2, sizeof(*words));
        if (words) {
            words[0] = (char[]){"lockstep"};
            memcpy(words + 1, place->words, count * sizeof(*words));
            execv("/proc/self/exe", words);
        }
    } else {
        execvp(place->words[0], place->words);
    }
    const int error = errno;
    launch_guard_tell(place->guard, getpid(), false);
    (void)!write(report, &error, sizeof(error));
    _exit(127);
}

static enum ls_status fail(const struct launch_process *process, int error)
{
    char name[32];
    launch_process_name(process, name, sizeof(name));
    ls_error("launch", "cannot start %s: %s%s", name, strerror(error),
             error == EMFILE || error == ENFILE ? "; each process needs two (ulimit -n)"
             : error == EAGAIN                  ? "; see ulimit -u"
                                                : "");
    return LS_FAILED;
}

// Forks, and waits until the program runs. Closes nothing.
static enum ls_status start(struct launch_process *process, const struct launch_place *place,
                            const int files[3])
{
    int report[2], error = 0;
    const pid_t parent = getpid();
    if (pipe2(report, O_CLOEXEC))
        return fail(process, errno);
    const pid_t pid = fork();
    if (pid == 0)
        become(process, place, parent, files, report[1]);
    const int fork_error = errno;
    close(report[1]);
    ssize_t got = 0;
    while (pid > 0 && (got = read(report[0], &error, sizeof(error))) < 0 && errno == EINTR)
        ;
    close(report[0]);
    if (pid < 0)
        return fail(process, fork_error);
    if (got == sizeof(error)) {
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
        const char *meant =
            strchr(place->words[0], '/') ? NULL : ls_nearest(place->words[0], place->commands);
        ls_error("launch", "cannot start '%s': %s%s%s%s", place->words[0], strerror(error),
                 meant ? "; did you mean '" : "", meant ? meant : "", meant ? "'?" : "");
        return LS_BAD_INPUT;
    }
    process->pid = pid;
    process->running = true;
    process->started_ns = ls_clock_ns();
    return LS_OK;
}

enum ls_status launch_process_start(struct launch_process *process,
                                    const struct launch_place *place, struct launch_output *output,
                                    const char *out_prefix, const char *err_prefix)
{
    struct channel out, err;
    const bool chief = !process->server && process->number == 0;
    const bool live = chief && output->out->terminal && !*out_prefix;
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing < 0)
        return fail(process, errno);
    if (!(live && open_terminal(&out)) && !open_pipe(&out)) {
        const int error = errno;
        close(nothing);
        return fail(process, error);
    }
    if (!open_pipe(&err)) {
        const int error = errno;
        close(nothing);
        close(out.reader);
        close(out.writer);
        return fail(process, error);
    }
    const int files[3] = {nothing, out.writer, err.writer};
    enum ls_status status = start(process, place, files);
    close(nothing);
    close(out.writer);
    close(err.writer);
    (void)fcntl(out.reader, F_SETFL, O_NONBLOCK);
    (void)fcntl(err.reader, F_SETFL, O_NONBLOCK);
    const enum ls_status first =
        launch_stream_open(&process->out, output->out, out.reader, out_prefix, out.terminal);
    const enum ls_status second =
        launch_stream_open(&process->err, output->err, err.reader, err_prefix, false);
    return status ? status : first ? first : second;
}

void launch_process_signal(const struct launch_process *process, int number)
{
    if (process->pid > 0)
        kill(-process->pid, number);
}
