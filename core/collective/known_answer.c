// SPDX-License-Identifier: Apache-2.0
// Plans whose schedules were not verified, and those of collectives that run themselves, are run once on values whose
// result is known, where they will run: the same buffers, counts, types, devices and communicators.
#include "core/collective/internal.h"

#include "core/base/clock.h"
#include "core/collective/known_values.h"

#include <stdlib.h>
#include <string.h>

static enum ls_status run(struct ls_collective_plan *plan)
{
    enum ls_status status = ls_collective_start(plan);
    if (!status)
        status = ls_collective_wait(plan);
    return status ? status : ls_communicator_synchronize(plan->communicator);
}

static enum ls_status answer(struct ls_collective_plan *plan, void *image, size_t bytes)
{
    const struct ls_call_signature *signature = &plan->signature;
    const struct ls_known_call call = {.operation = signature->operation,
                                       .dtype = signature->dtype,
                                       .reduction = signature->reduction,
                                       .world = plan->communicator->group->world,
                                       .root = signature->root,
                                       .count = signature->count,
                                       .wire = signature->wire};
    const uint32_t rank = plan->communicator->rank;
    uint64_t first = 0;
    ls_known_values_fill(&call, rank, image);
    enum ls_status status =
        ls_communicator_copy(plan->communicator, plan->buffer, ls_host_memory(image), bytes);
    if (!status)
        status = run(plan);
    if (!status)
        status =
            ls_communicator_copy(plan->communicator, ls_host_memory(image), plan->buffer, bytes);
    const uint64_t wrong = status ? 0 : ls_known_values_wrong(&call, rank, image, &first);
    return wrong ? ls_communicator_fail_answer(plan->communicator, plan, wrong, first) : status;
}

enum ls_status ls_collective_known_answer(struct ls_collective_plan *plan)
{
    struct ls_communicator_group *group = plan->communicator->group;
    const size_t bytes = plan->signature.count * ls_dtype_bytes(plan->signature.dtype);
    struct ls_communication_times times;
    if (plan->check != LS_CHECK_MISSING)
        return LS_OK;
    const uint64_t begin = ls_clock_ns();
    void *saved = malloc(bytes + 1), *image = malloc(bytes + 1);
    enum ls_status status = saved && image ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status)
        status =
            ls_communicator_copy(plan->communicator, ls_host_memory(saved), plan->buffer, bytes);
    plan->check = LS_CHECK_KNOWN_ANSWER;
    if (!status)
        status = answer(plan, image, bytes);
    if (!status)
        status =
            ls_communicator_copy(plan->communicator, plan->buffer, ls_host_memory(saved), bytes);
    free(saved);
    free(image);
    ls_communicator_times(plan->communicator, 1, &times); // it is no part of a step
    atomic_fetch_or(&group->checks, 1u << LS_CHECK_KNOWN_ANSWER);
    if (plan->communicator->rank == 0)
        atomic_fetch_add(&group->check_ns, ls_clock_ns() - begin);
    return status;
}

enum ls_schedule_check ls_communicator_check(const struct ls_communicator *communicator)
{
    const uint32_t checks = atomic_load(&communicator->group->checks);
    return checks >> LS_CHECK_KNOWN_ANSWER & 1 ? LS_CHECK_KNOWN_ANSWER
           : checks >> LS_CHECK_VERIFIED & 1   ? LS_CHECK_VERIFIED
                                               : LS_CHECK_NONE;
}

uint64_t ls_communicator_check_ns(const struct ls_communicator *communicator)
{
    return atomic_load(&communicator->group->check_ns);
}

const char *ls_schedule_check_text(enum ls_schedule_check check)
{
    return check == LS_CHECK_VERIFIED       ? "verified"
           : check == LS_CHECK_KNOWN_ANSWER ? "known-answer"
                                            : "none";
}
