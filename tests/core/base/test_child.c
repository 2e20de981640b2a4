// SPDX-License-Identifier: Apache-2.0
// How the work of a child process can end, and that nothing of it is left.
#include "core/base/child.h"
#include "tests/support/suite.h"

#include <check.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LONG UINT64_C(30000000000)
#define SHORT UINT64_C(200000000)

struct shared {
    volatile uint64_t beat;
    volatile pid_t started;
};

static struct ls_child_end run(void (*work)(void *argument, void *shared), struct shared *shared,
                               uint64_t deadline_ns, bool beats)
{
    const struct ls_child_work all = {.scope = "test",
                                      .run = work,
                                      .shared = shared,
                                      .beat = beats ? &shared->beat : NULL,
                                      .deadline_ns = deadline_ns};
    struct ls_child_end end = {0};
    ck_assert_int_eq(ls_child_run(&all, &end), LS_OK);
    return end;
}

static void nap(long milliseconds)
{
    nanosleep(&(struct timespec){.tv_nsec = milliseconds * 1000000}, NULL);
}

static void hang(void)
{
    for (;;)
        pause();
}

static void do_return(void *argument, void *shared)
{
    (void)argument;
    ((struct shared *)shared)->beat = 7;
}

static void do_leave(void *argument, void *shared)
{
    do_return(argument, shared);
    ls_child_leave();
}

static void do_exit(void *argument, void *shared)
{
    do_return(argument, shared);
    exit(0);
}

static void do_crash(void *argument, void *shared)
{
    do_return(argument, shared);
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
}

static void do_hang(void *argument, void *shared)
{
    do_return(argument, shared);
    hang();
}

LOOP_TEST(each_end_has_a_name, 0, 5)
{
    static const struct {
        void (*work)(void *argument, void *shared);
        struct ls_child_end expected;
    } cases[] = {
        {do_return, {LS_CHILD_DONE, 0, 0}},
        {do_leave, {LS_CHILD_DONE, 0, 0}},
        {do_exit, {LS_CHILD_EXITED, 0, EXIT_FAILURE}}, // exit(0) of a plugin is no success
        {do_crash, {LS_CHILD_CRASHED, SIGSEGV, 0}},
        {do_hang, {LS_CHILD_HUNG, 0, 0}},
    };
    struct shared *shared = ls_child_memory_create(sizeof(*shared));
    ck_assert_ptr_nonnull(shared);
    const bool hangs = cases[_i].work == do_hang;
    const struct ls_child_end end = run(cases[_i].work, shared, hangs ? SHORT : LONG, false);
    ck_assert_int_eq(end.result, cases[_i].expected.result);
    ck_assert_int_eq(end.signal, cases[_i].expected.signal);
    if (end.result == LS_CHILD_EXITED)
        ck_assert_int_eq(end.code, cases[_i].expected.code);
    ck_assert_uint_eq(shared->beat, 7);
    ls_child_memory_destroy(shared, sizeof(*shared));
}

static void beat_for_long(void *argument, void *shared)
{
    (void)argument;
    for (uint32_t i = 0; i < 50; i++) {
        ((struct shared *)shared)->beat++;
        nap(20);
    }
}

// The whole work takes five times the deadline.
TEST(progress_puts_the_deadline_off)
{
    struct shared *shared = ls_child_memory_create(sizeof(*shared));
    ck_assert_int_eq(run(beat_for_long, shared, SHORT, true).result, LS_CHILD_DONE);
    ck_assert_uint_eq(shared->beat, 50);
    ck_assert_int_eq(run(beat_for_long, shared, SHORT, false).result, LS_CHILD_HUNG);
    ls_child_memory_destroy(shared, sizeof(*shared));
}

static void start_another(void *argument, void *shared)
{
    (void)argument;
    const pid_t process = fork();
    if (!process)
        hang();
    ((struct shared *)shared)->started = process;
}

// It keeps the pipe open, too, by which the end of the child is seen.
TEST(what_the_child_started_ends_with_it)
{
    struct shared *shared = ls_child_memory_create(sizeof(*shared));
    ck_assert_int_eq(run(start_another, shared, LONG, false).result, LS_CHILD_DONE);
    ck_assert_int_gt(shared->started, 0);
    // It is killed, and then reaped by whoever has inherited it.
    char path[64], line[256] = "";
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)shared->started);
    for (uint32_t i = 0; i < 1000; i++) {
        FILE *file = fopen(path, "r");
        if (!file)
            break;
        const bool read = fgets(line, sizeof(line), file) != NULL;
        fclose(file);
        if (!read || strstr(line, ") Z "))
            break;
        ck_assert_int_lt(i, 999);
        nap(10);
    }
    ls_child_memory_destroy(shared, sizeof(*shared));
}

static void print(void *argument, void *shared)
{
    (void)argument;
    (void)shared;
    printf("printed");
    fflush(stdout);
    fprintf(stderr, "complained");
}

TEST(what_it_prints_goes_where_it_should)
{
    FILE *file = tmpfile();
    char text[64] = "";
    struct ls_child_end end;
    const struct ls_child_work work = {
        .scope = "test", .run = print, .deadline_ns = LONG, .errors = fileno(file)};
    fflush(NULL);
    ck_assert_int_eq(ls_child_run(&work, &end), LS_OK);
    ck_assert_int_eq(end.result, LS_CHILD_DONE);
    rewind(file);
    ck_assert_ptr_nonnull(fgets(text, sizeof(text), file));
    ck_assert_str_eq(text, "complained");
    fclose(file);
}

TEST_SECONDS(100);
