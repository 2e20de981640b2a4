// SPDX-License-Identifier: Apache-2.0
// Cases that misbehave, each in a process of its own: what is said of each, and that the others go on.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // setenv
#endif
#include "tools/conformance/isolate.h"

#include "core/base/log.h"
#include "tests/support/suite.h"

#include <check.h>
#include <fenv.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 32

// What a case does; it then reports that it passed.
struct act {
    const char *name;
    void (*run)(void);
};

static void crash(void)
{
    raise(SIGKILL);
}

static void hang(void)
{
    for (;;)
        pause();
}

static void leave(void)
{
    exit(0);
}

static void print(void)
{
    puts("hello there");
}

static void complain(void)
{
    fputs("woe\n", stderr);
}

static void handle(void)
{
    signal(SIGUSR1, SIG_IGN);
}

static void set_variable(void)
{
    setenv("LOCKSTEP_TEST_VARIABLE", "1", 1);
}

static void round_up(void)
{
    fesetround(FE_UPWARD);
}

static void log_error(void)
{
    ls_error("test", "the cause");
}

static void nothing(void)
{
}

struct played {
    const struct act *acts;
    size_t count;
};

static enum ls_status play(void *argument, ls_conformance_wanted wanted,
                           ls_conformance_report report, void *context)
{
    const struct played *played = argument;
    for (size_t i = 0; i < played->count; i++) {
        const struct act *act = &played->acts[i];
        const bool silent = strcmp(act->name, "silent") == 0;
        const bool fails = strncmp(act->name, "fails", 5) == 0;
        const struct ls_conformance_result result = {
            act->name, fails ? LS_CONFORMANCE_FAILED : LS_CONFORMANCE_PASSED, fails ? "bad" : ""};
        if (!wanted(context, act->name))
            continue;
        act->run();
        if (!silent)
            report(context, &result);
    }
    return LS_OK;
}

static struct {
    char name[64], message[512];
    enum ls_conformance_outcome outcome;
} heard[MOST];
static size_t heard_count;

static void hear(void *context, const struct ls_conformance_result *result)
{
    (void)context;
    ck_assert_uint_lt(heard_count, MOST);
    snprintf(heard[heard_count].name, sizeof(heard[0].name), "%s", result->name);
    snprintf(heard[heard_count].message, sizeof(heard[0].message), "%s", result->message);
    heard[heard_count++].outcome = result->outcome;
}

static enum ls_status isolate(const struct act *acts, size_t count,
                              struct ls_conformance_counts *counts)
{
    struct played played = {acts, count};
    const struct ls_isolated_suite suite = {
        .run = play, .argument = &played, .deadline_ns = UINT64_C(700000000)};
    heard_count = 0;
    return ls_isolate_suite(&suite, hear, NULL, counts);
}

static void expect(size_t index, const char *name, enum ls_conformance_outcome outcome,
                   const char *part)
{
    ck_assert_uint_lt(index, heard_count);
    ck_assert_str_eq(heard[index].name, name);
    ck_assert_msg(heard[index].outcome == outcome && strstr(heard[index].message, part),
                  "%s: outcome %d, \"%s\", expected \"%s\"", name, (int)heard[index].outcome,
                  heard[index].message, part);
}

TEST(each_misdeed_is_the_verdict_of_its_own_case)
{
    static const struct act acts[] = {
        {"fine", nothing},           {"crashes", crash},      {"exits", leave},
        {"prints", print},           {"complains", complain}, {"handles", handle},
        {"variable", set_variable},  {"rounds", round_up},    {"fails", nothing},
        {"fails, logs", log_error},  {"silent", nothing},     {"hangs", hang},
        {"fine after all", nothing},
    };
    struct ls_conformance_counts counts;
    ck_assert_int_eq(isolate(acts, sizeof(acts) / sizeof(*acts), &counts), LS_FAILED);
    ck_assert_uint_eq(heard_count, sizeof(acts) / sizeof(*acts));
    expect(0, "fine", LS_CONFORMANCE_PASSED, "");
    expect(1, "crashes", LS_CONFORMANCE_FAILED, "crashed: signal 9");
    expect(2, "exits", LS_CONFORMANCE_FAILED, "ended the process");
    expect(3, "prints", LS_CONFORMANCE_FAILED, "printed on standard output: hello there");
    expect(4, "complains", LS_CONFORMANCE_FAILED, "printed on standard error: woe");
    expect(5, "handles", LS_CONFORMANCE_FAILED, "changed the handler of signal 10");
    expect(6, "variable", LS_CONFORMANCE_FAILED, "LOCKSTEP_TEST_VARIABLE");
    expect(7, "rounds", LS_CONFORMANCE_FAILED, "floating-point mode");
    expect(8, "fails", LS_CONFORMANCE_FAILED, "bad");
    expect(9, "fails, logs", LS_CONFORMANCE_FAILED, "test: the cause)");
    expect(10, "silent", LS_CONFORMANCE_FAILED, "no verdict");
    expect(11, "hangs", LS_CONFORMANCE_FAILED, "did not end within 0.7 s");
    expect(12, "fine after all", LS_CONFORMANCE_PASSED, "");
    ck_assert_uint_eq(counts.passed, 2);
    ck_assert_uint_eq(counts.failed, 11);
    ck_assert_ptr_null(getenv("LOCKSTEP_TEST_VARIABLE"));
}

TEST(a_suite_that_only_hangs_is_left_after_three)
{
    static const struct act acts[] = {{"a", hang}, {"b", nothing}, {"c", hang},
                                      {"d", hang}, {"e", hang},    {"f", nothing}};
    struct ls_conformance_counts counts;
    ck_assert_int_eq(isolate(acts, 6, &counts), LS_FAILED);
    ck_assert_uint_eq(heard_count, 5);
    expect(1, "b", LS_CONFORMANCE_PASSED, "");
    expect(4, "2 more cases", LS_CONFORMANCE_FAILED, "not run: 3 cases did not end");
}

TEST(no_cases_are_no_failure)
{
    struct ls_conformance_counts counts;
    ck_assert_int_eq(isolate(NULL, 0, &counts), LS_OK);
    ck_assert_uint_eq(heard_count, 0);
}
