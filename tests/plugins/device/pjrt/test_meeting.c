// SPDX-License-Identifier: Apache-2.0
// Threads that meet: the last one acts for all, nobody waits beyond a deadline or an abort.
#include "plugins/device/pjrt/meeting.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>

enum { MEMBERS = 4, ROUNDS = 200 };
#define PATIENT_NS UINT64_C(600000000000) // is never waited for
#define BRIEF_NS UINT64_C(20000000)

struct member {
    struct pjrt_meeting *meeting;
    uint32_t number;
    uint64_t deadline_ns;
    int value; // what it brings, and gets
    int32_t status;
    pthread_t thread;
};

static int acts;

// Everybody gets the sum of what all have brought.
static int32_t add(void *context, void *const *brought)
{
    int sum = 0;
    for (int i = 0; i < MEMBERS; i++)
        sum += ((const struct member *)brought[i])->value;
    for (int i = 0; i < MEMBERS; i++)
        ((struct member *)brought[i])->value = sum;
    acts++;
    return *(const int32_t *)context;
}

static void *meet_often(void *argument)
{
    struct member *member = argument;
    int32_t answer = LS_OK;
    for (int i = 0; !member->status && i < ROUNDS; i++) {
        member->value = (int)member->number + i;
        member->status =
            pjrt_meet(member->meeting, member->number, member, member->deadline_ns, add, &answer);
        if (!member->status && member->value != MEMBERS * (MEMBERS - 1) / 2 + MEMBERS * i)
            member->status = LS_FAILED;
    }
    return NULL;
}

static void *meet_once(void *argument)
{
    struct member *member = argument;
    int32_t answer = LS_UNSUPPORTED;
    member->status =
        pjrt_meet(member->meeting, member->number, member, member->deadline_ns, add, &answer);
    return NULL;
}

static void start(struct pjrt_meeting *meeting, struct member *members, uint32_t count,
                  uint64_t deadline_ns, void *(*run)(void *))
{
    for (uint32_t i = 0; i < count; i++) {
        members[i] = (struct member){.meeting = meeting, .number = i, .deadline_ns = deadline_ns};
        ck_assert_int_eq(pthread_create(&members[i].thread, NULL, run, &members[i]), 0);
    }
}

static void join(struct member *members, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        ck_assert_int_eq(pthread_join(members[i].thread, NULL), 0);
}

TEST(the_last_one_acts_for_all_again_and_again)
{
    struct pjrt_meeting meeting;
    struct member members[MEMBERS];
    ck_assert_int_eq(pjrt_meeting_init(&meeting, MEMBERS), LS_OK);
    acts = 0;
    start(&meeting, members, MEMBERS, PATIENT_NS, meet_often);
    join(members, MEMBERS);
    for (int i = 0; i < MEMBERS; i++)
        ck_assert_int_eq(members[i].status, LS_OK);
    ck_assert_int_eq(acts, ROUNDS);
    pjrt_meeting_finish(&meeting);
}

TEST(all_get_what_the_act_returns)
{
    struct pjrt_meeting meeting;
    struct member members[MEMBERS];
    ck_assert_int_eq(pjrt_meeting_init(&meeting, MEMBERS), LS_OK);
    start(&meeting, members, MEMBERS, 0, meet_once); // without a deadline
    join(members, MEMBERS);
    for (int i = 0; i < MEMBERS; i++)
        ck_assert_int_eq(members[i].status, LS_UNSUPPORTED);
    pjrt_meeting_finish(&meeting);
}

TEST(who_waits_too_long_is_told_and_the_others_are_woken)
{
    struct pjrt_meeting meeting;
    struct member members[MEMBERS];
    char missing[32];
    uint32_t lost = 0, aborted = 0;
    ck_assert_int_eq(pjrt_meeting_init(&meeting, MEMBERS), LS_OK);
    start(&meeting, members, MEMBERS - 1, BRIEF_NS, meet_once);
    join(members, MEMBERS - 1);
    for (int i = 0; i < MEMBERS - 1; i++) {
        lost += members[i].status == LS_PEER_LOST;
        aborted += members[i].status == LS_ABORTED;
    }
    ck_assert_uint_eq(lost, 1);
    ck_assert_uint_eq(aborted, MEMBERS - 2);
    pjrt_meeting_missing(&meeting, missing, sizeof(missing));
    ck_assert_msg(strchr(missing, '3') != NULL, "%s", missing);
    members[3] = (struct member){.meeting = &meeting, .number = 3};
    meet_once(&members[3]); // comes too late
    ck_assert_int_eq(members[3].status, LS_ABORTED);
    pjrt_meeting_finish(&meeting);
}

TEST(an_abort_wakes_all_now_and_later)
{
    struct pjrt_meeting meeting;
    struct member members[MEMBERS];
    ck_assert_int_eq(pjrt_meeting_init(&meeting, MEMBERS), LS_OK);
    start(&meeting, members, MEMBERS - 1, PATIENT_NS, meet_once);
    ck_assert(!pjrt_meeting_is_aborted(&meeting));
    pjrt_meeting_abort(&meeting);
    join(members, MEMBERS - 1);
    ck_assert(pjrt_meeting_is_aborted(&meeting));
    start(&meeting, members, MEMBERS, PATIENT_NS, meet_once);
    join(members, MEMBERS);
    for (int i = 0; i < MEMBERS; i++)
        ck_assert_int_eq(members[i].status, LS_ABORTED);
    pjrt_meeting_finish(&meeting);
}
