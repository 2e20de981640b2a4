// SPDX-License-Identifier: Apache-2.0
// What signals do before a run, in it, and when it has ended. Each case is a process of its own.
#include "core/run/run.h"
#include "tests/support/suite.h"
#include "tools/interrupt.h"

#include <check.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OWN_CODE 7 // of a process that no signal has ended

// The run, as far as interrupt.c knows it.
static uint32_t asked_by;

void ls_run_interrupt_by(struct ls_run *run, uint32_t signal)
{
    (void)run;
    asked_by = signal;
}

uint32_t ls_run_interrupted_by(const struct ls_run *run)
{
    (void)run;
    return asked_by;
}

// A signal that comes twice within half a second counts once.
static void wait_for_no_echo(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 600000000}, NULL);
}

enum when { BEFORE, IN, AFTER, TWICE_AFTER };

static void die(enum when when, int number)
{
    static struct ls_run run;
    interrupt_catch();
    if (when != BEFORE)
        interrupt_run(&run);
    if (when >= AFTER)
        interrupt_run(NULL);
    raise(number);
    if (when == TWICE_AFTER) {
        wait_for_no_echo();
        raise(number);
    }
    _exit(when == IN && asked_by != (uint32_t)number ? 1 : OWN_CODE);
}

// The exit code, or 1000 and the signal; `said`: what it wrote to stderr.
static int end_of(enum when when, int number, char said[256])
{
    int ends[2], status = 0;
    ck_assert_int_eq(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        signal(number, SIG_DFL);
        dup2(ends[1], STDERR_FILENO);
        die(when, number);
    }
    close(ends[1]);
    const ssize_t got = read(ends[0], said, 255);
    said[got > 0 ? got : 0] = '\0';
    close(ends[0]);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(what_a_signal_does)
{
    static const struct {
        enum when when;
        int number, code;
        const char *said;
    } cases[] = {
        {BEFORE, SIGTERM, 143, "lockstep: error: interrupted before the first step\n"},
        {BEFORE, SIGINT, 130, "lockstep: error: interrupted before the first step\n"},
        {IN, SIGTERM, OWN_CODE, ""},
        // An engine ends all workers when one has ended; these may be about to end with a code of
        // their own.
        {AFTER, SIGTERM, OWN_CODE, ""},
        {AFTER, SIGINT, OWN_CODE, ""},
        {TWICE_AFTER, SIGTERM, 1000 + SIGTERM, ""},
    };
    char said[256];
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        ck_assert_int_eq(end_of(cases[i].when, cases[i].number, said), cases[i].code);
        ck_assert_str_eq(said, cases[i].said);
    }
}
