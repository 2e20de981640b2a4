// SPDX-License-Identifier: Apache-2.0
// Schedules made for the test, put to the verifier.
#ifndef LOCKSTEP_TESTS_CORE_SCHEDULE_VERIFYING_H
#define LOCKSTEP_TESTS_CORE_SCHEDULE_VERIFYING_H

#include "core/schedule/verify.h"
#include "tests/core/collective/support.h"

#define COUNT 256

static inline struct ls_verification verify_case(test_build_schedule build_schedule,
                                                 const struct ls_verify_case *verified,
                                                 uint32_t deterministic)
{
    const struct ls_collective_interface interface = {
        .struct_size = sizeof(interface),
        .operations = 1u << LS_ALL_REDUCE | 1u << LS_REDUCE_SCATTER | 1u << LS_ALL_GATHER |
                      1u << LS_BROADCAST | 1u << LS_REDUCE | 1u << LS_ALL_TO_ALL,
        .deterministic = deterministic,
        .build_schedule = build_schedule,
    };
    struct test_host host;
    struct ls_verification found;
    test_host_init(&host, NULL);
    ck_assert_int_eq(ls_verify_schedule(&interface, &host.host, verified, &found), LS_OK);
    return found;
}

static inline struct ls_verification verify(test_build_schedule build_schedule, uint32_t world)
{
    const struct ls_verify_case verified = {
        .operation = LS_ALL_REDUCE, .world = world, .count = COUNT, .element_bytes = 4};
    return verify_case(build_schedule, &verified, 1);
}

static inline void refused(test_build_schedule build_schedule, uint32_t world, uint32_t verdict,
                           uint32_t rank, uint32_t round, uint64_t offset, uint64_t count,
                           const char *reason)
{
    const struct ls_verification found = verify(build_schedule, world);
    ck_assert_msg(found.verdict == verdict, "verdict %u: %s", found.verdict, found.reason);
    ck_assert_msg(found.rank == rank && found.round == round, "%s", found.reason);
    ck_assert_msg(found.range.offset == offset && found.range.count == count, "%s", found.reason);
    ck_assert_str_eq(found.reason, reason);
}

// A star that holds, and what each test breaks in it.
static const struct ls_range whole = {LS_BUFFER_DATA, 0, 0, COUNT};

static inline void add_at_root(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    if (call->rank)
        ls_send(schedule, 0, whole);
    else
        for (uint32_t peer = 1; peer < call->world; peer++)
            ls_receive_and_reduce(schedule, peer, whole);
    ls_end_round(schedule);
}

static inline void share_from_root(const struct ls_collective_call *call,
                                   struct ls_schedule *schedule)
{
    if (call->rank)
        ls_receive(schedule, 0, whole);
    else
        for (uint32_t peer = 1; peer < call->world; peer++)
            ls_send(schedule, peer, whole);
    ls_end_round(schedule);
}

static inline int32_t star(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    add_at_root(call, schedule);
    share_from_root(call, schedule);
    return LS_OK;
}

#endif
