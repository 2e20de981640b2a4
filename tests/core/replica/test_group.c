// SPDX-License-Identifier: Apache-2.0
// Replica threads: every one runs each round once, and the failure of one wakes the others.
#include "core/base/inside.h"
#include "core/base/log.h"
#include "core/base/threads.h"
#include "core/plugin/plugin.h"
#include "core/plugin/waiting.h"
#include "core/replica/group.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#define MOST 16
#define LONG_NS UINT64_C(10000000)

static struct job {
    enum ls_status answers[MOST];
    uint32_t calls[MOST]; // of each replica; plain on purpose: rounds must order them
    atomic_uint failures; // calls of `failed`
    atomic_uint woken; // 1: `failed` was called
    atomic_int seen; // by the last `failed`
    atomic_uint stuck, stuck_replica; // calls of `stuck`, and what the last named
} job;

static void note_failure(void *context, enum ls_status status)
{
    struct job *noted = context;
    atomic_fetch_add(&noted->failures, 1);
    atomic_store(&noted->seen, (int)status);
    atomic_store(&noted->woken, 1);
    ls_wake_word((const uint32_t *)&noted->woken);
}

static enum ls_status answer(void *context, uint32_t replica)
{
    struct job *asked = context;
    asked->calls[replica]++;
    return asked->answers[replica];
}

static struct ls_group *group_from(uint32_t first_rank, uint32_t count)
{
    struct ls_group *group = NULL;
    memset(&job, 0, sizeof(job));
    ck_assert_int_eq(ls_group_create(first_rank, count, note_failure, &job, &group), LS_OK);
    return group;
}

static struct ls_group *group_of(uint32_t count)
{
    return group_from(0, count);
}

LOOP_TEST(every_replica_runs_every_round_once, 1, MOST + 1)
{
    const uint32_t count = (uint32_t)_i;
    struct ls_group *group = group_of(count);
    for (uint32_t round = 1; round <= 300; round++) {
        ck_assert_int_eq(ls_group_run(group, answer, &job), LS_OK);
        for (uint32_t i = 0; i < MOST; i++)
            ck_assert_uint_eq(job.calls[i], i < count ? round : 0);
    }
    ck_assert_uint_eq(job.failures, 0);
    ls_group_destroy(group);
}

TEST(the_cause_counts_more_than_what_it_caused)
{
    struct ls_group *group = group_of(4);
    for (int cause = 0; cause < 4; cause++) {
        for (int i = 0; i < 4; i++)
            job.answers[i] = i == cause ? LS_BAD_INPUT : LS_ABORTED;
        ck_assert_int_eq(ls_group_run(group, answer, &job), LS_BAD_INPUT);
    }
    ck_assert_uint_eq(job.failures, 16);
    ls_group_destroy(group);
}

TEST(a_failure_of_one_round_is_forgotten_in_the_next)
{
    struct ls_group *group = group_of(3);
    job.answers[1] = LS_FAILED;
    ck_assert_int_eq(ls_group_run(group, answer, &job), LS_FAILED);
    ck_assert_int_eq(job.seen, LS_FAILED);
    job.answers[1] = LS_OK;
    ck_assert_int_eq(ls_group_run(group, answer, &job), LS_OK);
    job.answers[2] = LS_ABORTED;
    ck_assert_int_eq(ls_group_run(group, answer, &job), LS_ABORTED);
    ck_assert_uint_eq(job.failures, 2);
    ls_group_destroy(group);
}

// The last one fails at once; the others wait until they are woken.
static enum ls_status wait_for_failure(void *context, uint32_t replica)
{
    struct job *asked = context;
    if (replica == MOST - 1)
        return LS_PEER_LOST;
    while (!atomic_load(&asked->woken))
        ls_wait_word((const uint32_t *)&asked->woken, 0, LONG_NS);
    return LS_ABORTED;
}

TEST(a_failure_wakes_those_who_wait)
{
    struct ls_group *group = group_of(MOST);
    ck_assert_int_eq(ls_group_run(group, wait_for_failure, &job), LS_PEER_LOST);
    ck_assert_uint_eq(job.failures, MOST);
    ls_group_destroy(group);
}

// The last one fails at once; the first comes back only when somebody has said that it is stuck.
static enum ls_status hang_until_told(void *context, uint32_t replica)
{
    struct job *asked = context;
    if (replica == 2)
        return LS_PEER_LOST;
    while (replica == 1 && !atomic_load(&asked->stuck))
        ls_wait_word((const uint32_t *)&asked->stuck, 0, LONG_NS);
    return LS_ABORTED;
}

static void note_stuck(void *context, uint32_t replica)
{
    struct job *noted = context;
    atomic_fetch_add(&noted->stuck, 1);
    atomic_store(&noted->stuck_replica, replica);
    ls_wake_word((const uint32_t *)&noted->stuck);
}

TEST(who_does_not_come_back_after_a_failure_is_named)
{
    struct ls_group *group = group_of(3);
    ls_group_set_patience(group, 1000000, note_stuck);
    ck_assert_int_eq(ls_group_run(group, hang_until_told, &job), LS_PEER_LOST);
    ck_assert_uint_eq(job.stuck, 1);
    ck_assert_uint_eq(job.stuck_replica, 1);
    ls_group_destroy(group);
}

static char lines[4096];

static void keep_line(void *context, uint32_t level, const char *line)
{
    (void)context;
    if (level == LS_LOG_ERROR)
        snprintf(lines + strlen(lines), sizeof(lines) - strlen(lines), "%s|", line);
}

static enum ls_status say_and_answer(void *context, uint32_t replica)
{
    const struct job *asked = context;
    ls_error("test", "said by %u", replica);
    return asked->answers[replica];
}

static enum ls_status look_at_own_call(void *context, uint32_t replica)
{
    struct job *asked = context;
    struct ls_inside_call call = {0};
    const struct ls_inside_call before = ls_inside_enter("test", "call");
    asked->calls[replica] = ls_inside_of_replica(5 + replica, &call) && call.plugin;
    ls_inside_leave(before);
    return LS_OK;
}

TEST(messages_name_a_replica_by_its_rank)
{
    struct ls_group *group = group_from(5, 3);
    ls_group_set_patience(group, 1000000, note_stuck);
    ck_assert_int_eq(ls_group_run(group, hang_until_told, &job), LS_PEER_LOST);
    ck_assert_uint_eq(job.stuck_replica, 5 + 1);
    ck_assert_int_eq(ls_group_run(group, look_at_own_call, &job), LS_OK);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_uint_eq(job.calls[i], 1);
    job.answers[2] = LS_FAILED;
    lines[0] = '\0';
    ls_log_set_writer(keep_line, NULL);
    ls_group_set_first_error_only(group, true);
    job.answers[0] = job.answers[1] = LS_ABORTED;
    ck_assert_int_eq(ls_group_run(group, say_and_answer, &job), LS_FAILED);
    ck_assert_str_eq(lines, "lockstep: error: [rank 7] test: said by 2|");
    ls_group_destroy(group);
    ls_log_set_writer(NULL, NULL);
}

TEST(a_group_may_be_destroyed_before_it_ever_ran)
{
    for (uint32_t count = 1; count <= MOST; count++)
        ls_group_destroy(group_of(count));
    ls_group_destroy(NULL);
}

TEST(nobody_need_be_told_of_failures)
{
    struct ls_group *group = NULL;
    memset(&job, 0, sizeof(job));
    job.answers[0] = LS_FAILED;
    ck_assert_int_eq(ls_group_create(0, 2, NULL, NULL, &group), LS_OK);
    ck_assert_int_eq(ls_group_run(group, answer, &job), LS_FAILED);
    ls_group_destroy(group);
}

// ---- One voice ----

TEST(with_one_voice_nothing_is_said_after_the_first_failure)
{
    struct ls_group *group = group_of(4);
    lines[0] = '\0';
    ls_log_set_writer(keep_line, NULL);
    ls_group_set_first_error_only(group, true);
    ck_assert_int_eq(ls_group_run(group, say_and_answer, &job), LS_OK);
    ck_assert_uint_eq(strlen(lines), 4 * strlen("lockstep: error: [rank 0] test: said by 0|"));
    ck_assert(!ls_group_has_logged(group));
    lines[0] = '\0';
    for (uint32_t i = 0; i < 4; i++)
        job.answers[i] = i == 2 ? LS_FAILED : LS_ABORTED;
    ck_assert_int_eq(ls_group_run(group, say_and_answer, &job), LS_FAILED);
    ck_assert_str_eq(lines, "lockstep: error: [rank 2] test: said by 2|");
    ck_assert(ls_group_has_logged(group));
    job.answers[1] = LS_FAILED;
    ck_assert_int_eq(ls_group_run(group, say_and_answer, &job), LS_FAILED);
    ck_assert_str_eq(lines, "lockstep: error: [rank 2] test: said by 2|");
    ls_group_destroy(group);
    ls_log_set_writer(NULL, NULL);
}
