// SPDX-License-Identifier: Apache-2.0
// Which call of which plugin a thread is in is known to itself and to others, and a call that does
// not return is found.
#include "core/base/caller.h"
#include "core/base/inside_internal.h"

#include "core/base/clock.h"
#include "core/base/compiling.h"
#include "core/base/log.h"
#include "core/base/threads.h"
#include "core/base/watchdog.h"
#include "tests/support/suite.h"

#include <check.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEADLINE_NS UINT64_C(50000000)
#define LONG_NS UINT64_C(1500000000) // more than deadline and slack
#define OUTER_NS UINT64_C(7500000000) // more than that of a call from which others are made
#define MOST_NS UINT64_C(20000000000)

static _Atomic uint32_t stuck_replica;
static atomic_uint stuck_calls;
static atomic_bool leave;
static char message[512], first_message[512];

static void note_stuck(uint32_t replica)
{
    atomic_store(&stuck_replica, replica);
    atomic_fetch_add(&stuck_calls, 1);
}

static void note_line(void *context, uint32_t level, const char *line)
{
    (void)context;
    (void)level;
    snprintf(message, sizeof(message), "%s", line);
    if (!first_message[0])
        snprintf(first_message, sizeof(first_message), "%s", line);
}

static void sleep_ns(uint64_t nanoseconds)
{
    const struct timespec time = {.tv_sec = (time_t)(nanoseconds / 1000000000),
                                  .tv_nsec = (long)(nanoseconds % 1000000000)};
    nanosleep(&time, NULL);
}

static void setup(void)
{
    atomic_store(&stuck_calls, 0);
    atomic_store(&stuck_replica, 77);
    atomic_store(&leave, false);
    message[0] = first_message[0] = '\0';
    ls_log_set_writer(note_line, NULL);
}

TEST(calls_nest_and_say_within_what)
{
    struct ls_inside_view seen;
    char text[256];
    ck_assert(!ls_inside_look(&seen));
    const struct ls_inside_call none = ls_inside_enter("strategy-a", "end_step");
    ls_inside_about("conv2d");
    const struct ls_inside_call outer = ls_inside_enter("device-b", "launch");
    ck_assert(ls_inside_look(&seen) && seen.under_way && seen.own);
    ck_assert_str_eq(
        ls_inside_text(&seen.call, text, sizeof(text)),
        "`launch` of plugin device-b (conv2d), within `end_step` of plugin strategy-a");
    ls_inside_leave(outer);
    ck_assert(ls_inside_look(&seen) && seen.under_way);
    ck_assert_str_eq(ls_inside_text(&seen.call, text, sizeof(text)),
                     "`end_step` of plugin strategy-a");
    ls_inside_leave(none);
    ck_assert(ls_inside_look(&seen) && !seen.under_way);
    ck_assert_str_eq(ls_inside_last_plugin(), "strategy-a");

    // Left by a jump: nobody says so.
    const struct ls_inside_call before = ls_inside_now();
    (void)ls_inside_enter("collective-c", "build_schedule");
    ls_inside_return(before);
    ck_assert(ls_inside_look(&seen) && !seen.under_way);
    ck_assert_str_eq(ls_inside_last_plugin(), "collective-c");
    ls_inside_return(before);
    ck_assert_str_eq(ls_inside_last_plugin(), "collective-c");
}

// The quick form, alone, within another call, and with another call within.
TEST(calls_of_sites_nest_like_others)
{
    static const struct ls_inside_site post = {"transport-t", "post"};
    struct ls_inside_view seen;
    char text[256];

    const struct ls_inside_site *alone = ls_inside_begin(&post);
    ck_assert(ls_inside_look(&seen) && seen.under_way);
    ck_assert_str_eq(ls_inside_text(&seen.call, text, sizeof(text)),
                     "`post` of plugin transport-t");
    const struct ls_inside_call within_post = ls_inside_enter("device-b", "copy");
    ck_assert(ls_inside_look(&seen) && seen.under_way);
    ck_assert_str_eq(ls_inside_text(&seen.call, text, sizeof(text)),
                     "`copy` of plugin device-b, within `post` of plugin transport-t");
    ls_inside_leave(within_post);
    ck_assert(ls_inside_look(&seen) && seen.under_way);
    ck_assert_str_eq(seen.call.plugin, "transport-t");
    ls_inside_end(&post, alone);
    ck_assert(ls_inside_look(&seen) && !seen.under_way);
    ck_assert_str_eq(ls_inside_last_plugin(), "transport-t");

    const struct ls_inside_call none = ls_inside_enter("strategy-a", "end_step");
    const struct ls_inside_call within_hook = ls_inside_now();
    const struct ls_inside_site *within = ls_inside_begin(&post);
    ck_assert(ls_inside_look(&seen) && seen.under_way);
    ck_assert_str_eq(ls_inside_text(&seen.call, text, sizeof(text)),
                     "`post` of plugin transport-t, within `end_step` of plugin strategy-a");
    ls_inside_end(&post, within);
    ck_assert(ls_inside_look(&seen) && seen.under_way);
    ck_assert_str_eq(ls_inside_text(&seen.call, text, sizeof(text)),
                     "`end_step` of plugin strategy-a");

    // Left by a jump, here out of the site's call.
    (void)ls_inside_begin(&post);
    ls_inside_return(within_hook);
    ck_assert(ls_inside_look(&seen) && seen.under_way);
    ck_assert_str_eq(ls_inside_text(&seen.call, text, sizeof(text)),
                     "`end_step` of plugin strategy-a");
    ls_inside_leave(none);
    ck_assert(ls_inside_look(&seen) && !seen.under_way);
}

TEST(an_error_that_is_logged_is_a_reason)
{
    const uint32_t own = ls_thread_reasons(), all = ls_caller_reasons();
    ls_warn("test", "a warning is none");
    ck_assert_uint_eq(ls_thread_reasons(), own);
    ls_error("test", "an error is one");
    ck_assert_uint_eq(ls_thread_reasons(), own + 1);
    ck_assert_uint_eq(ls_caller_reasons(), all + 1);
}

static void *hang(void *argument)
{
    (void)argument;
    ls_inside_set_replica(3);
    ls_inside_about("dense");
    const struct ls_inside_call none = ls_inside_enter("device-b", "launch");
    while (!atomic_load(&leave))
        sleep_ns(1000000);
    ls_inside_leave(none);
    return NULL;
}

static void *move(void *argument)
{
    (void)argument;
    ls_inside_set_replica(1);
    while (!atomic_load(&leave)) {
        const struct ls_inside_call none = ls_inside_enter("device-b", "launch");
        sleep_ns(10000000);
        ls_inside_leave(none);
    }
    return NULL;
}

static void *wait_for_data(void *argument)
{
    (void)argument;
    ls_inside_set_replica(2);
    const struct ls_inside_call none = ls_inside_enter("device-b", "launch");
    ls_inside_leave(none);
    while (!atomic_load(&leave))
        sleep_ns(1000000);
    return NULL;
}

TEST(a_replica_that_hangs_alone_is_named_with_call_and_operation)
{
    pthread_t thread;
    ck_assert_int_eq(ls_watchdog_start(DEADLINE_NS, note_stuck), LS_OK);
    ck_assert_int_eq(ls_thread_start(&thread, "hangs", hang, NULL), LS_OK);
    const uint64_t begin = ls_clock_ns();
    while (!atomic_load(&stuck_calls) && ls_clock_ns() - begin < MOST_NS)
        sleep_ns(1000000);
    ck_assert_uint_eq(atomic_load(&stuck_calls), 1);
    ck_assert_uint_eq(atomic_load(&stuck_replica), 3);
    ck_assert_ptr_nonnull(
        strstr(message, "replica 3 hangs: `launch` of plugin device-b (dense) has not returned"));
    atomic_store(&leave, true);
    pthread_join(thread, NULL);
    ls_watchdog_stop();
}

// Short calls one after the other are progress, though no other call is under way that could end.
static void *post_again_and_again(void *argument)
{
    static const struct ls_inside_site post = {"transport-t", "post"};
    (void)argument;
    ls_inside_set_replica(3);
    while (!atomic_load(&leave)) {
        const struct ls_inside_site *before = ls_inside_begin(&post);
        sleep_ns(5000000);
        ls_inside_end(&post, before);
    }
    return NULL;
}

TEST(a_replica_that_calls_a_site_again_and_again_does_not_hang)
{
    pthread_t thread;
    ck_assert_int_eq(ls_watchdog_start(DEADLINE_NS, note_stuck), LS_OK);
    ck_assert_int_eq(ls_thread_start(&thread, "posts", post_again_and_again, NULL), LS_OK);
    sleep_ns(OUTER_NS);
    ck_assert_uint_eq(atomic_load(&stuck_calls), 0);
    atomic_store(&leave, true);
    pthread_join(thread, NULL);
    ls_watchdog_stop();
}

// That it takes longer is said at the deadline.
TEST(a_call_that_compiles_hangs_later)
{
    ck_assert_int_eq(ls_watchdog_start(DEADLINE_NS, note_stuck), LS_OK);
    const struct ls_inside_call none = ls_inside_enter("device-b", LS_COMPILING);
    const uint64_t begin = ls_clock_ns();
    while (!atomic_load(&stuck_calls) && ls_clock_ns() - begin < MOST_NS)
        sleep_ns(1000000);
    ck_assert_uint_eq(atomic_load(&stuck_calls), 1);
    ck_assert_uint_ge(ls_clock_ns() - begin, LS_COMPILING_TIMES * DEADLINE_NS);
    ck_assert_ptr_nonnull(strstr(first_message, "`record_end` of plugin device-b has taken"));
    ck_assert_ptr_nonnull(strstr(message, "`record_end` of plugin device-b has not returned"));
    ls_inside_leave(none);
    ls_watchdog_stop();
}

TEST(the_thread_that_opened_the_run_is_watched_too)
{
    ck_assert_int_eq(ls_watchdog_start(DEADLINE_NS, note_stuck), LS_OK);
    const struct ls_inside_call none = ls_inside_enter("strategy-a", "open");
    const uint64_t begin = ls_clock_ns();
    while (!atomic_load(&stuck_calls) && ls_clock_ns() - begin < MOST_NS)
        sleep_ns(1000000);
    ls_inside_leave(none);
    ck_assert_uint_eq(atomic_load(&stuck_replica), LS_NO_REPLICA);
    ls_watchdog_stop();
}

TEST(nobody_hangs_while_another_replica_gets_on)
{
    pthread_t threads[2];
    ck_assert_int_eq(ls_watchdog_start(DEADLINE_NS, note_stuck), LS_OK);
    ck_assert_int_eq(ls_thread_start(&threads[0], "hangs", hang, NULL), LS_OK);
    ck_assert_int_eq(ls_thread_start(&threads[1], "moves", move, NULL), LS_OK);
    sleep_ns(LONG_NS);
    ck_assert_uint_eq(atomic_load(&stuck_calls), 0);
    atomic_store(&leave, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    ls_watchdog_stop();
}

TEST(who_waits_for_data_is_in_no_plugin)
{
    pthread_t thread;
    ck_assert_int_eq(ls_watchdog_start(DEADLINE_NS, note_stuck), LS_OK);
    ck_assert_int_eq(ls_thread_start(&thread, "waits", wait_for_data, NULL), LS_OK);
    sleep_ns(LONG_NS);
    ck_assert_uint_eq(atomic_load(&stuck_calls), 0);
    atomic_store(&leave, true);
    pthread_join(thread, NULL);
    ls_watchdog_stop();
}

// What another thread of the program does: it has a run of its own, whose replica 3 gets on or
// hangs.
struct other {
    void *(*replica)(void *);
    bool watch, names_replica;
};

static void *run_apart(void *argument)
{
    struct other *other = argument;
    pthread_t thread;
    struct ls_inside_call call;
    if (other->watch && ls_watchdog_start(DEADLINE_NS, note_stuck))
        return NULL;
    if (!ls_thread_start(&thread, "apart", other->replica, NULL)) {
        while (!atomic_load(&leave)) {
            other->names_replica = ls_inside_of_replica(3, &call);
            sleep_ns(1000000);
        }
        pthread_join(thread, NULL);
    }
    if (other->watch)
        ls_watchdog_stop();
    return argument;
}

TEST(a_replica_hangs_while_those_of_another_run_get_on)
{
    struct other hangs = {.replica = hang, .watch = true}, moves = {.replica = move, .watch = true};
    struct ls_inside_call call;
    pthread_t threads[2];
    void *done[2];
    ck_assert_int_eq(pthread_create(&threads[0], NULL, run_apart, &moves), 0);
    ck_assert_int_eq(pthread_create(&threads[1], NULL, run_apart, &hangs), 0);
    const uint64_t begin = ls_clock_ns();
    while (!atomic_load(&stuck_calls) && ls_clock_ns() - begin < MOST_NS)
        sleep_ns(1000000);
    ck_assert_uint_eq(atomic_load(&stuck_replica), 3);
    ck_assert(!ls_inside_of_replica(3, &call)); // this thread has none
    atomic_store(&leave, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], &done[i]);
    ck_assert(done[0] && done[1]);
    ck_assert(hangs.names_replica && !moves.names_replica);
    ck_assert_uint_eq(atomic_load(&stuck_calls), 1);
}

// A run without a watchdog is nobody's to watch.
TEST(a_replica_of_a_run_that_nobody_watches_may_hang)
{
    struct other hangs = {.replica = hang};
    pthread_t thread;
    ck_assert_int_eq(ls_watchdog_start(DEADLINE_NS, note_stuck), LS_OK);
    ck_assert_int_eq(pthread_create(&thread, NULL, run_apart, &hangs), 0);
    sleep_ns(LONG_NS);
    ck_assert_uint_eq(atomic_load(&stuck_calls), 0);
    atomic_store(&leave, true);
    pthread_join(thread, NULL);
    ls_watchdog_stop();
}

static void fail_stuck(uint32_t replica)
{
    (void)replica;
    _exit(EXIT_FAILURE);
}

// In a child: a call that takes a third of what the watchdog allows.
static void take_a_third(void)
{
    if (ls_watchdog_start(DEADLINE_NS, fail_stuck))
        _exit(2);
    const struct ls_inside_call none = ls_inside_enter("device-b", "launch");
    for (int i = 0; i < 12; i++)
        sleep_ns(DEADLINE_NS / 3);
    ls_inside_leave(none);
    ls_watchdog_stop();
    _exit(EXIT_SUCCESS);
}

TEST(the_time_that_a_process_was_stopped_does_not_count)
{
    int status = 0;
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0)
        take_a_third();
    sleep_ns(DEADLINE_NS);
    ck_assert_int_eq(kill(child, SIGSTOP), 0);
    sleep_ns(LONG_NS);
    ck_assert_int_eq(kill(child, SIGCONT), 0);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), EXIT_SUCCESS);
}

static void *end_here(void *argument)
{
    (void)argument;
    ls_inside_set_replica(4);
    (void)ls_inside_enter("device-b", "launch");
    pthread_exit(NULL);
}

TEST(a_plugin_that_ends_the_thread_is_named)
{
    pthread_t thread;
    ck_assert_int_eq(ls_watchdog_start(MOST_NS, note_stuck), LS_OK);
    ck_assert_int_eq(ls_thread_start(&thread, "ends", end_here, NULL), LS_OK);
    pthread_join(thread, NULL);
    ck_assert_uint_eq(atomic_load(&stuck_replica), 4);
    ck_assert_ptr_nonnull(strstr(message, "`launch` of plugin device-b ended the thread"));
    ls_watchdog_stop();
}

// As a program with several threads that forks: the C library gives the memory of the parent's
// other threads, with their records, to new threads of the child.
static int work_as_child(void)
{
    pthread_t threads[4];
    alarm(40);
    for (int i = 0; i < 4; i++)
        if (ls_thread_start(&threads[i], "moves", move, NULL))
            return 1;
    sleep_ns(30000000);
    atomic_store(&leave, true);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&leave, false);
    if (ls_watchdog_start(DEADLINE_NS, note_stuck) ||
        ls_thread_start(&threads[0], "hangs", hang, NULL))
        return 2;
    const uint64_t begin = ls_clock_ns();
    while (!atomic_load(&stuck_calls) && ls_clock_ns() - begin < MOST_NS)
        sleep_ns(1000000);
    atomic_store(&leave, true);
    pthread_join(threads[0], NULL);
    ls_watchdog_stop();
    ls_watchdog_stop(); // that of the parent, whose thread is not here
    return atomic_load(&stuck_calls) == 1 ? 0 : 3;
}

START_TEST(a_forked_child_has_threads_and_a_watchdog_of_its_own)
{
    pthread_t threads[4];
    int status = -1;
    ck_assert_int_eq(ls_watchdog_start(DEADLINE_NS, note_stuck), LS_OK);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(ls_thread_start(&threads[i], "moves", move, NULL), LS_OK);
    sleep_ns(30000000);
    const pid_t child = fork();
    if (child == 0)
        _exit(work_as_child());
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    atomic_store(&leave, true);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_eq(atomic_load(&stuck_calls), 0);
    ls_watchdog_stop();
}
END_TEST

// ---- Calls that must return by themselves ----

// The first call returns in time, the second one does not. Between start and the calls the watchdog sleeps.
static int describe(void)
{
    struct ls_expectation expectation = {.scope = "test",
                                         .name = "slow",
                                         .world = 8,
                                         .deadline_ns = DEADLINE_NS,
                                         .status = LS_PEER_LOST};
    alarm(40);
    if (ls_expectation_start(&expectation))
        return 100;
    const struct ls_expected nothing = ls_watchdog_expect(1);
    sleep_ns(4 * DEADLINE_NS);
    ls_watchdog_returned(&nothing);
    ls_expectation_enter(&expectation);
    const struct ls_expected first = ls_watchdog_expect(2);
    ls_watchdog_returned(&first);
    sleep_ns(4 * DEADLINE_NS);
    (void)ls_watchdog_expect(3);
    sleep_ns(MOST_NS);
    return 101;
}

TEST(a_call_that_is_expected_to_return_ends_the_process)
{
    int status = -1;
    const pid_t child = fork();
    if (child == 0)
        _exit(describe());
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), ls_status_exit_code(LS_PEER_LOST));
}

static struct ls_expectation of_parent = {
    .scope = "test", .name = "parent", .world = 8, .deadline_ns = MOST_NS, .status = LS_PEER_LOST};
static atomic_bool describes;

static void *describe_until_told(void *argument)
{
    (void)argument;
    ls_expectation_enter(&of_parent);
    const struct ls_expected call = ls_watchdog_expect(1);
    atomic_store(&describes, true);
    while (!atomic_load(&leave))
        sleep_ns(1000000);
    ls_watchdog_returned(&call);
    ls_expectation_leave(&of_parent);
    return NULL;
}

// The thread that describes is not in the child, so that nothing of it is late there.
static int expect_as_child(void)
{
    struct ls_expectation own = {
        .scope = "test", .name = "child", .deadline_ns = MOST_NS, .status = LS_FAILED};
    alarm(40);
    of_parent.deadline_ns = DEADLINE_NS;
    if (ls_expectation_start(&own))
        return 100;
    ls_expectation_enter(&own);
    sleep_ns(6 * DEADLINE_NS);
    ls_expectation_leave(&own);
    ls_expectation_stop(&own);
    ls_expectation_stop(&of_parent);
    return 0;
}

START_TEST(a_forked_child_expects_nothing_of_the_threads_of_its_parent)
{
    pthread_t thread;
    int status = -1;
    ck_assert_int_eq(ls_expectation_start(&of_parent), LS_OK);
    ck_assert_int_eq(ls_thread_start(&thread, "describes", describe_until_told, NULL), LS_OK);
    while (!atomic_load(&describes))
        sleep_ns(1000000);
    const pid_t child = fork();
    if (child == 0)
        _exit(expect_as_child());
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    atomic_store(&leave, true);
    pthread_join(thread, NULL);
    ls_expectation_stop(&of_parent);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
}
END_TEST

TEST(an_expectation_that_is_met_ends_with_the_watchdog)
{
    struct ls_expectation expectation = {.scope = "test", .name = "quick", .deadline_ns = MOST_NS};
    for (int i = 0; i < 50; i++) {
        ck_assert_int_eq(ls_expectation_start(&expectation), LS_OK);
        for (uint32_t rank = 0; rank < 20; rank++) {
            ls_expectation_enter(&expectation);
            const struct ls_expected outer = ls_watchdog_expect(rank);
            const struct ls_expected inner = ls_watchdog_expect(rank + 1);
            ls_watchdog_returned(&inner);
            ck_assert(atomic_load(&expectation.rank) == rank);
            ls_watchdog_returned(&outer);
            ck_assert_uint_eq(atomic_load(&expectation.began_ns), 0);
            ls_expectation_leave(&expectation);
        }
        ls_expectation_stop(&expectation);
        ls_expectation_stop(&expectation);
    }
}

// ThreadSanitizer ends a child that starts threads where its parent had threads, too.
#ifdef __SANITIZE_THREAD__
#define THREADS_AFTER_FORK false
#else
#define THREADS_AFTER_FORK true
#endif

TEST_FIXTURE(setup, NULL);

int main(void)
{
    if (THREADS_AFTER_FORK) {
        tcase_add_test(test_registered(), a_forked_child_has_threads_and_a_watchdog_of_its_own);
        tcase_add_test(test_registered(),
                       a_forked_child_expects_nothing_of_the_threads_of_its_parent);
    }
    return test_suite_run("core/base/inside");
}
