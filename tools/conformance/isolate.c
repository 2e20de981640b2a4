// SPDX-License-Identifier: Apache-2.0
// A first child runs the suite without wanting any case, which lists them; then each has a child of its own, which
// wants that case alone. Results come back in shared memory.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // memfd_create
#endif
#include "tools/conformance/isolate.h"

#include "core/base/child.h"
#include "core/base/log.h"
#include "tools/conformance/process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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

static void blame(struct report *report, const char *text)
{
    if (report->outcome == LS_CONFORMANCE_FAILED)
        return;
    report->outcome = LS_CONFORMANCE_FAILED;
    snprintf(report->message, MESSAGE_BYTES, "it %s", text);
}

static void run_child(void *argument, void *shared)
{
    struct runner *runner = argument;
    struct ls_process_state before;
    char text[256];
    own_report = shared;
    ls_log_set_writer(keep_log, NULL);
    const bool known = !ls_process_state_init(&before);
    runner->shared->status = runner->suite->run(runner->suite->argument, want, keep_result, runner);
    if (known && runner->shared->reported && !runner->suite->looks_itself &&
        !ls_process_state_holds(&before, LS_PROCESS_ALWAYS, text, sizeof(text)))
        blame(runner->shared, text);
    fflush(NULL);
}

// ---- In the parent ----

static enum ls_status no_child(void)
{
    ls_error(SCOPE, "cannot run a case in a child process: %s", strerror(errno));
    return LS_FAILED;
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
static void judge_end(const struct runner *runner, const struct ls_child_end *end,
                      const char *printed)
{
    struct report *report = runner->shared;
    char limit[32];
    report->outcome = LS_CONFORMANCE_FAILED;
    const char *hint = *printed ? printed : report->logged;
    if (end->result == LS_CHILD_HUNG)
        snprintf(report->message, MESSAGE_BYTES, "did not end within %s%s%s",
                 seconds(runner->deadline_ns, limit), *hint ? "; " : "", hint);
    else if (end->result == LS_CHILD_CRASHED)
        snprintf(report->message, MESSAGE_BYTES, "crashed: signal %d (%s)%s%s", end->signal,
                 strsignal(end->signal), *hint ? "; " : "", hint);
    else
        snprintf(report->message, MESSAGE_BYTES,
                 "ended the process (exit code %d); a plugin must never do that%s%s", end->code,
                 *hint ? "; " : "", hint);
}

static void judge(const struct runner *runner, const struct ls_child_end *end, const int prints[2])
{
    struct report *report = runner->shared;
    char out[160], errors[160];
    first_line(prints[0], out, sizeof(out));
    first_line(prints[1], errors, sizeof(errors));
    if (end->result != LS_CHILD_DONE) {
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

static enum ls_status fork_and_wait(struct runner *runner, const int prints[2],
                                    struct ls_child_end *end)
{
    const struct ls_child_work work = {.scope = SCOPE,
                                       .run = run_child,
                                       .argument = runner,
                                       .shared = runner->shared,
                                       .deadline_ns = runner->deadline_ns,
                                       .output = prints[0],
                                       .errors = prints[1]};
    fflush(NULL); // or the child would write it again
    return ls_child_run(&work, end);
}

// One child; afterwards the shared report says all.
static enum ls_status run_once(struct runner *runner, struct ls_child_end *end)
{
    const int prints[2] = {memfd_create("out", MFD_CLOEXEC), memfd_create("err", MFD_CLOEXEC)};
    enum ls_status status = prints[0] >= 0 && prints[1] >= 0 ? LS_OK : no_child();
    memset(runner->shared, 0, sizeof(*runner->shared));
    if (!status)
        status = fork_and_wait(runner, prints, end);
    if (!status)
        judge(runner, end, prints);
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
    struct ls_child_end end;
    runner->wanted = NO_CASE;
    const enum ls_status status = run_once(runner, &end);
    if (status)
        return status;
    const bool done = end.result == LS_CHILD_DONE;
    struct report *shared = runner->shared;
    *out = done ? shared->asked : 0;
    if (done && !shared->status)
        return LS_OK;
    if (done)
        snprintf(shared->message, MESSAGE_BYTES, "%s%s%s",
                 ls_status_text((enum ls_status)shared->status), shared->logged[0] ? ": " : "",
                 shared->logged);
    *out = 0;
    shared->outcome = LS_CONFORMANCE_FAILED;
    snprintf(shared->name, NAME_BYTES, "getting ready");
    tell(runner, report, context, counts);
    return LS_OK;
}

static enum ls_status run_case(struct runner *runner, uint32_t index, bool *hung)
{
    struct ls_child_end end;
    runner->wanted = index;
    const enum ls_status status = run_once(runner, &end);
    struct report *shared = runner->shared;
    *hung = !status && end.result == LS_CHILD_HUNG;
    if (status || shared->reported || end.result != LS_CHILD_DONE)
        return status;
    shared->outcome = LS_CONFORMANCE_FAILED; // it ended well and said nothing
    snprintf(shared->message, MESSAGE_BYTES, "no verdict: %s%s%s",
             ls_status_text((enum ls_status)shared->status), shared->logged[0] ? ": " : "",
             shared->logged);
    return LS_OK;
}

static enum ls_status run_cases(struct runner *runner, uint32_t count, ls_conformance_report report,
                                void *context, struct ls_conformance_counts *counts)
{
    const uint32_t most = runner->suite->most_hung ? runner->suite->most_hung : MOST_HUNG;
    uint32_t hung_cases = 0;
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < count; i++) {
        bool hung = false;
        status = run_case(runner, i, &hung);
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
    runner.shared = ls_child_memory_create(sizeof(*runner.shared));
    if (!runner.shared)
        return no_child();
    enum ls_status status = list_cases(&runner, report, context, &own, &count);
    if (!status)
        status = run_cases(&runner, count, report, context, &own);
    ls_child_memory_destroy(runner.shared, sizeof(*runner.shared));
    if (counts)
        *counts = own;
    return status ? status : own.failed ? LS_FAILED : LS_OK;
}
