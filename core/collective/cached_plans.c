// SPDX-License-Identifier: Apache-2.0
// Operations on buffers that are given with each call. Behind each is a plan, which is kept and
// given another buffer when the same operation on as many elements comes again.
#include "core/collective/internal.h"

#include "core/base/log.h"

#include <stdlib.h>
#include <string.h>

static bool is_of(const struct ls_call_signature *signature,
                  const struct ls_communicator_call *call)
{
    return signature->operation == call->operation && signature->dtype == call->dtype &&
           signature->mean_of == call->mean_of && signature->reduction == call->reduction &&
           signature->root == call->root && signature->count == call->count;
}

// A plan that nobody uses now; NULL: there is none.
static struct ls_cached_plan *find_plan(struct ls_communicator *communicator,
                                        const struct ls_communicator_call *call)
{
    for (uint32_t i = 0; i < communicator->cached_count; i++) {
        struct ls_cached_plan *cached = &communicator->cached[i];
        if (!cached->used && is_of(&cached->plan->signature, call))
            return cached;
    }
    return NULL;
}

// Room for one more: at the end, or that of the plan that was used longest ago. NULL: all are in
// use.
static struct ls_cached_plan *find_room(struct ls_communicator *communicator)
{
    struct ls_cached_plan *oldest = NULL;
    if (!communicator->cached)
        communicator->cached = calloc(LS_CACHED_PLANS, sizeof(*communicator->cached));
    if (communicator->cached && communicator->cached_count < LS_CACHED_PLANS)
        return &communicator->cached[communicator->cached_count++];
    for (uint32_t i = 0; communicator->cached && i < LS_CACHED_PLANS; i++) {
        struct ls_cached_plan *cached = &communicator->cached[i];
        if (!cached->used && (!oldest || cached->turn < oldest->turn))
            oldest = cached;
    }
    if (oldest) {
        ls_collective_plan_destroy(oldest->plan);
        oldest->plan = NULL;
    }
    return oldest;
}

// Every rank finds the same here: which calls it has made before does not depend on what it kept.
static enum ls_status check_once(struct ls_communicator *communicator,
                                 struct ls_collective_plan *plan)
{
    struct ls_call_signature *known;
    if (plan->check != LS_CHECK_MISSING)
        return LS_OK;
    for (uint32_t i = 0; i < communicator->known_count; i++)
        if (ls_call_signature_equal(&communicator->known[i], &plan->signature)) {
            plan->check = LS_CHECK_KNOWN_ANSWER;
            return LS_OK;
        }
    known = realloc(communicator->known, (communicator->known_count + 1) * sizeof(*known));
    if (!known)
        return LS_OUT_OF_MEMORY;
    communicator->known = known;
    known[communicator->known_count++] = plan->signature;
    return ls_collective_known_answer(plan);
}

static enum ls_status make_plan(struct ls_communicator *communicator,
                                const struct ls_communicator_call *call,
                                struct ls_cached_plan **out)
{
    struct ls_cached_plan *cached = find_room(communicator);
    if (!cached) {
        ls_error(communicator->group->scope,
                 "rank %u has %u operations under way on buffers of its own; wait for some first",
                 communicator->rank, LS_CACHED_PLANS);
        return LS_USAGE;
    }
    enum ls_status status = ls_collective_plan_open(communicator, call, NULL, &cached->plan);
    if (!status)
        status = check_once(communicator, cached->plan);
    if (!status) {
        *out = cached;
        return LS_OK;
    }
    ls_collective_plan_destroy(cached->plan);
    *cached = communicator->cached[--communicator->cached_count];
    return status;
}

enum ls_status ls_communicator_start(struct ls_communicator *communicator,
                                     const struct ls_communicator_call *call,
                                     struct ls_collective_plan **out)
{
    struct ls_cached_plan *cached = find_plan(communicator, call);
    enum ls_status status = LS_OK;
    if (!cached)
        status = make_plan(communicator, call, &cached);
    else if (!ls_memory_is_same(cached->plan->buffer, call->buffer))
        status = ls_collective_plan_move(cached->plan, call->buffer);
    if (status)
        return status;
    cached->turn = ++communicator->turn;
    status = ls_collective_start(cached->plan);
    if (status)
        return status;
    cached->used = true;
    *out = cached->plan;
    return LS_OK;
}

enum ls_status ls_communicator_wait_until(struct ls_communicator *communicator,
                                          struct ls_collective_plan *plan, uint64_t end_ns)
{
    const enum ls_status status = ls_collective_wait_until(plan, end_ns);
    for (uint32_t i = 0; status != LS_AGAIN && i < communicator->cached_count; i++)
        if (communicator->cached[i].plan == plan)
            communicator->cached[i].used = false;
    return status;
}

bool ls_communicator_is_prepared(struct ls_communicator *communicator,
                                 const struct ls_communicator_call *call)
{
    return find_plan(communicator, call) != NULL;
}

void ls_communicator_forget_calls(struct ls_communicator *communicator)
{
    for (uint32_t i = 0; i < communicator->cached_count; i++)
        ls_collective_plan_destroy(communicator->cached[i].plan);
    free(communicator->cached);
    free(communicator->known);
    communicator->cached = NULL;
    communicator->known = NULL;
    communicator->cached_count = communicator->known_count = 0;
}
