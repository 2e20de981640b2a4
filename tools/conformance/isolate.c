// SPDX-License-Identifier: Apache-2.0
// A first child runs the suite without wanting any case, which lists them; then each has a child of its own, which
// wants that case alone. Results come back in shared memory.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // memfd_create, MAP_ANONYMOUS
#endif
#include "tools/conformance/isolate.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "tools/conformance/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SCOPE "plugin check"
#define NAME_BYTES 192
#define MESSAGE_BYTES 768
#define MOST_HUNG 3
#define NO_CASE UINT32_MAX

// What a child leaves for its parent.
struct report {
    volatile uint32_t asked; // cases seen so far
    volatile uint32_t began; // 1: the wanted case was reached
    volatile uint32_t reported; // 1: outcome and message are there
    volatile uint32_t done; // 1: the child ended as it should
    int32_t status; // what the suite returned
    uint32_t outcome;
    char name[NAME_BYTES];
    char message[MESSAGE_BYTES];
    char logged[256]; // the first error that was logged
};

struct runner {
    const struct ls_isolated_suite *suite;
    uint32_t wanted; // index of the case; NO_CASE: list them
    struct report *shared;
    uint64_t deadline_ns;
};

// How a child ended.
struct end {
    bool in_time;
    int status; // of waitpid
};

// ---- In the child ----

static struct report *own_report; // of this child, for the log

static bool want(void *context, const char *name)
{
    struct runner *runner = context;
    const uint32_t index = runner->shared->asked++;
    if (index != runner->wanted)
        return false;
    snprintf(runner->shared->name, NAME_BYTES, "%s", name);
    runner->shared->began = 1;
    return true;
}

static void keep_result(void *context, const struct ls_conformance_result *result)
{
    struct runner *runner = context;
    runner->shared->outcome = result->outcome;
    snprintf(runner->shared->message, MESSAGE_BYTES, "%s", result->message ? result->message : "");
    runner->shared->reported = 1;
}

static void keep_log(void *context, uint32_t level, const char *line)
{
    (void)context;
    if (level == 0 && !own_report->logged[0])
        snprintf(own_report->logged, sizeof(own_report->logged), "%s", line);
}

static void leave(void)
{
    _exit(EXIT_FAILURE);
}

// The child ends with its parent, leaves no core, and what it prints goes to files that are looked at.
static void settle(const int prints[2])
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    const int nowhere = open("/dev/null", O_RDONLY);
    if (nowhere >= 0 && nowhere != STDIN_FILENO) {
        dup2(nowhere, STDIN_FILENO);
        close(nowhere);
    }
    dup2(prints[0], STDOUT_FILENO);
    dup2(prints[1], STDERR_FILENO);
    ls_log_set_writer(keep_log, NULL);
    atexit(leave);
}

static void blame(struct report *report, const char *text)
{
    if (report->outcome == LS_CONFORMANCE_FAILED)
        return;
    report->outcome = LS_CONFORMANCE_FAILED;
    snprintf(report->message, MESSAGE_BYTES, "it %s", text);
}

static void run_child(struct runner *runner, const int prints[2])
{
    struct ls_process_state before;
    char text[256];
    own_report = runner->shared;
    settle(prints);
    const bool known = !ls_process_state_init(&before);
    runner->shared->status = runner->suite->run(runner->suite->argument, want, keep_result, runner);
    if (known && runner->shared->reported && !runner->suite->looks_itself &&
        !ls_process_state_holds(&before, LS_PROCESS_ALWAYS, text, sizeof(text)))
        blame(runner->shared, text);
    fflush(NULL);
    runner->shared->done = 1;
    _exit(EXIT_SUCCESS);
}

// ---- In the parent ----

static enum ls_status no_child(void)
{
    ls_error(SCOPE, "cannot run a case in a child process: %s", strerror(errno));
    return LS_FAILED;
}

// Waits for the end of the child, and ends it when the deadline has passed, with all that it started.
static struct end wait_for(pid_t child, int pipe_end, uint64_t deadline_ns)
{
    const uint64_t end_ns = ls_clock_ns() + deadline_ns;
    struct end end = {.in_time = true};
    for (;;) {
        struct pollfd closed = {.fd = pipe_end, .events = POLLIN};
        siginfo_t info = {.si_pid = 0};
        const uint64_t now = ls_clock_ns();
        const uint64_t left_ms = now < end_ns ? (end_ns - now) / 1000000 + 1 : 0;
        const int ready = poll(&closed, 1, left_ms < 20 ? (int)left_ms : 20);
        if (!waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) && info.si_pid == child)
            break;
        if (!left_ms) {
            end.in_time = false;
            break;
        }
        if (ready > 0) {
            const struct timespec moment = {.tv_nsec = 50000};
            nanosleep(&moment, NULL);
        }
    }
    kill(-child, SIGKILL);
    kill(child, SIGKILL);
    while (waitpid(child, &end.status, 0) < 0 && errno == EINTR)
        ;
    return end;
}

// The first line of what was written to `fd` (not a ruler of ===, as sanitizers draw); empty: nothing.
static void first_line(int fd, char *text, size_t bytes)
{
    const ssize_t got = pread(fd, text, bytes - 1, 0);
    text[got > 0 ? got : 0] = '\0';
    const size_t ruler = strspn(text, "=");
    if (text[ruler] == '\n' && text[ruler + 1])
        memmove(text, text + ruler + 1, strlen(text + ruler + 1) + 1);
    text[strcspn(text, "\n")] = '\0';
    if (got > 0 && !*text)
        snprintf(text, bytes, "(an empty line)");
}

static const char *seconds(uint64_t nanoseconds, char text[32])
{
    snprintf(text, 32, "%.3g s", (double)nanoseconds * 1e-9);
    return text;
}

// What happened, where the child itself could not say so.
static void judge_end(const struct runner *runner, const struct end *end, const char *printed)
{
    struct report *report = runner->shared;
    char limit[32];
    report->outcome = LS_CONFORMANCE_FAILED;
    const char *hint = *printed ? printed : report->logged;
    if (!end->in_time)
        snprintf(report->message, MESSAGE_BYTES, "did not end within %s%s%s",
                 seconds(runner->deadline_ns, limit), *hint ? "; " : "", hint);
    else if (WIFSIGNALED(end->status))
        snprintf(report->message, MESSAGE_BYTES, "crashed: signal %d (%s)%s%s",
                 WTERMSIG(end->status), strsignal(WTERMSIG(end->status)), *hint ? "; " : "", hint);
    else
        snprintf(report->message, MESSAGE_BYTES,
                 "ended the process (exit code %d); a plugin must never do that%s%s",
                 WEXITSTATUS(end->status), *hint ? "; " : "", hint);
}

static void judge(const struct runner *runner, const struct end *end, const int prints[2])
{
    struct report *report = runner->shared;
    char out[160], errors[160];
    first_line(prints[0], out, sizeof(out));
    first_line(prints[1], errors, sizeof(errors));
    if (!end->in_time || !report->done) {
        judge_end(runner, end, *errors ? errors : out);
    } else if (report->reported && report->outcome != LS_CONFORMANCE_FAILED &&
               !runner->suite->looks_itself && (*out || *errors)) {
        report->outcome = LS_CONFORMANCE_FAILED;
        snprintf(report->message, MESSAGE_BYTES, "it printed on %s: %s",
                 *out ? "standard output" : "standard error", *out ? out : errors);
    } else if (report->reported && report->outcome == LS_CONFORMANCE_FAILED && report->logged[0]) {
        const size_t used = strlen(report->message);
        snprintf(report->message + used, MESSAGE_BYTES - used, " (%s)", report->logged);
    }
}

static enum ls_status fork_and_wait(struct runner *runner, const int prints[2], struct end *end)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return no_child();
    fflush(NULL); // or the child would write it again
    const pid_t child = fork();
    if (child < 0) {
        close(ends[0]);
        close(ends[1]);
        return no_child();
    }
    if (!child) {
        close(ends[0]);
        run_child(runner, prints);
    }
    close(ends[1]);
    *end = wait_for(child, ends[0], runner->deadline_ns);
    close(ends[0]);
    return LS_OK;
}

// One child; afterwards the shared report says all.
static enum ls_status run_once(struct runner *runner, bool *hung)
{
    struct end end = {0};
    const int prints[2] = {memfd_create("out", MFD_CLOEXEC), memfd_create("err", MFD_CLOEXEC)};
    enum ls_status status = prints[0] >= 0 && prints[1] >= 0 ? LS_OK : no_child();
    memset(runner->shared, 0, sizeof(*runner->shared));
    if (!status)
        status = fork_and_wait(runner, prints, &end);
    if (!status)
        judge(runner, &end, prints);
    *hung = !status && !end.in_time;
    for (int i = 0; i < 2; i++)
        if (prints[i] >= 0)
            close(prints[i]);
    return status;
}

static void tell(const struct runner *runner, ls_conformance_report report, void *context,
                 struct ls_conformance_counts *counts)
{
    const struct ls_conformance_result result = {
        runner->shared->name,
        (enum ls_conformance_outcome)runner->shared->outcome,
        runner->shared->message,
    };
    counts->passed += result.outcome == LS_CONFORMANCE_PASSED;
    counts->failed += result.outcome == LS_CONFORMANCE_FAILED;
    counts->refused += result.outcome == LS_CONFORMANCE_REFUSED;
    if (report)
        report(context, &result);
}

// How many cases there are. Where the suite cannot even be listed, that is a failed case of its own.
static enum ls_status list_cases(struct runner *runner, ls_conformance_report report, void *context,
                                 struct ls_conformance_counts *counts, uint32_t *out)
{
    bool hung;
    runner->wanted = NO_CASE;
    const enum ls_status status = run_once(runner, &hung);
    if (status)
        return status;
    struct report *shared = runner->shared;
    *out = shared->done ? shared->asked : 0;
    if (shared->done && !shared->status)
        return LS_OK;
    if (shared->done)
        snprintf(shared->message, MESSAGE_BYTES, "%s%s%s",
                 ls_status_text((enum ls_status)shared->status), shared->logged[0] ? ": " : "",
                 shared->logged);
    *out = 0;
    shared->outcome = LS_CONFORMANCE_FAILED;
    snprintf(shared->name, NAME_BYTES, "getting ready");
    tell(runner, report, context, counts);
    return LS_OK;
}

static void run_case(struct runner *runner, uint32_t index, bool *hung, enum ls_status *status)
{
    runner->wanted = index;
    *status = run_once(runner, hung);
    struct report *shared = runner->shared;
    if (*status || shared->reported || !shared->done)
        return;
    shared->outcome = LS_CONFORMANCE_FAILED; // it ended well and said nothing
    snprintf(shared->message, MESSAGE_BYTES, "no verdict: %s%s%s",
             ls_status_text((enum ls_status)shared->status), shared->logged[0] ? ": " : "",
             shared->logged);
}

static enum ls_status run_cases(struct runner *runner, uint32_t count, ls_conformance_report report,
                                void *context, struct ls_conformance_counts *counts)
{
    const uint32_t most = runner->suite->most_hung ? runner->suite->most_hung : MOST_HUNG;
    uint32_t hung_cases = 0;
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < count; i++) {
        bool hung = false;
        run_case(runner, i, &hung, &status);
        if (status)
            break;
        if (!runner->shared->began)
            snprintf(runner->shared->name, NAME_BYTES, "case %u, getting ready", i + 1);
        tell(runner, report, context, counts);
        hung_cases += hung;
        if (hung_cases < most || i + 1 == count)
            continue;
        snprintf(runner->shared->name, NAME_BYTES, "%u more cases", count - i - 1);
        snprintf(runner->shared->message, MESSAGE_BYTES,
                 "not run: %u cases did not end, each within its deadline", hung_cases);
        runner->shared->outcome = LS_CONFORMANCE_FAILED;
        tell(runner, report, context, counts);
        break;
    }
    return status;
}

enum ls_status ls_isolate_suite(const struct ls_isolated_suite *suite, ls_conformance_report report,
                                void *context, struct ls_conformance_counts *counts)
{
    struct runner runner = {.suite = suite, .deadline_ns = suite->deadline_ns};
    struct ls_conformance_counts own = {0};
    uint32_t count = 0;
    runner.shared = mmap(NULL, sizeof(*runner.shared), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (runner.shared == MAP_FAILED)
        return no_child();
    enum ls_status status = list_cases(&runner, report, context, &own, &count);
    if (!status)
        status = run_cases(&runner, count, report, context, &own);
    munmap(runner.shared, sizeof(*runner.shared));
    if (counts)
        *counts = own;
    return status ? status : own.failed ? LS_FAILED : LS_OK;
}
