// SPDX-License-Identifier: Apache-2.0
// Turns what goes wrong into one message that names everybody concerned, and ends the communicator.
#include "core/collective/internal.h"

#include "core/base/caller.h"
#include "core/base/inside.h"
#include "core/base/log.h"

#include <inttypes.h>
#include <stdlib.h>

const char *ls_call_text(const struct ls_call_signature *signature, char text[static 160])
{
    return ls_call_signature_text(signature, text, 160);
}

// Waits until no peer touches memory of this rank any more. Only a peer that stays is worth an
// error: why the communicator ends has been said.
static void leave_transport(const struct ls_communicator *communicator)
{
    char *error = NULL;
    char **before = ls_log_keep(&error);
    const int32_t left =
        communicator->group->interface->wait_any(communicator->transport, NULL, 0, 0);
    ls_log_keep(before);
    if (left == LS_PEER_LOST)
        ls_log_write_kept(&error);
    free(error);
}

enum ls_status ls_communicator_give_up(struct ls_communicator *communicator, enum ls_status status)
{
    const struct ls_transport_interface *interface = communicator->group->interface;
    ls_stream_note_over(communicator);
    if (communicator->transport) {
        interface->abort(communicator->transport);
        leave_transport(communicator);
    }
    ls_library_abort(communicator->group);
    (void)ls_library_poll(communicator); // a library may end it only now
    ls_stream_drain(communicator);
    for (uint32_t i = 0; i < communicator->running_count; i++) {
        communicator->running[i]->running = false;
        communicator->running[i]->result = status;
    }
    communicator->running_count = communicator->unsynchronized_count = 0;
    communicator->status = LS_ABORTED;
    ls_flight_recorder_dump(communicator->recorder, communicator->group->name, communicator->rank);
    return status;
}

// True for the one rank that is to say what happened, before it ends with fail_first(). Others wait
// until it has, so that what follows from a failure is not said before it.
static bool is_first_to_fail(struct ls_communicator *communicator)
{
    struct ls_communicator_group *group = communicator->group;
    pthread_mutex_lock(&group->failure_lock);
    if (!atomic_load(&group->failed))
        return true;
    pthread_mutex_unlock(&group->failure_lock);
    return false;
}

static enum ls_status fail_first(struct ls_communicator *communicator, enum ls_status status)
{
    atomic_store(&communicator->group->failed, 1);
    pthread_mutex_unlock(&communicator->group->failure_lock);
    return ls_communicator_give_up(communicator, status);
}

bool ls_communicator_find_mismatch(struct ls_communicator *communicator,
                                   const struct ls_collective_plan *plan, uint32_t *rank,
                                   struct ls_call_signature *theirs)
{
    for (uint32_t i = 0; i < communicator->group->world; i++) {
        if (i != communicator->rank &&
            ls_ask_call(communicator->group, i, plan->sequence, theirs) &&
            !ls_call_signature_equal(theirs, &plan->signature)) {
            *rank = i;
            return true;
        }
    }
    return false;
}

enum ls_status ls_communicator_fail_mismatch(struct ls_communicator *communicator,
                                             const struct ls_collective_plan *plan, uint32_t peer)
{
    struct ls_call_signature theirs;
    char mine_text[160], their_text[160];
    if (!is_first_to_fail(communicator))
        return ls_communicator_give_up(communicator, LS_ABORTED);
    if (ls_communicator_find_mismatch(communicator, plan, &peer, &theirs))
        ls_error(communicator->group->scope,
                 "call %" PRIu64
                 " differs: rank %u calls %s, rank %u calls %s; all ranks must make the same "
                 "calls in the same order",
                 plan->sequence, communicator->rank, ls_call_text(&plan->signature, mine_text),
                 peer, ls_call_text(&theirs, their_text));
    else if (plan->check == LS_CHECK_VERIFIED && // so the messages of one call fit each other
             ls_ask_state(communicator->group, peer, plan->sequence) == LS_RANK_UNKNOWN)
        ls_error(communicator->group->scope,
                 "call %" PRIu64
                 " differs: rank %u calls %s, and rank %u, of another process, calls something "
                 "else; all ranks must make the same calls in the same order",
                 plan->sequence, communicator->rank, ls_call_text(&plan->signature, mine_text),
                 peer);
    else
        ls_error(communicator->group->scope,
                 "call %" PRIu64
                 ", %s: rank %u and rank %u disagree on their messages; collective %s is wrong",
                 plan->sequence, ls_call_text(&plan->signature, mine_text), communicator->rank,
                 peer, communicator->group->collective->name);
    return fail_first(communicator, LS_FAILED);
}

enum ls_status ls_communicator_fail_answer(struct ls_communicator *communicator,
                                           const struct ls_collective_plan *plan, uint64_t wrong,
                                           uint64_t first)
{
    char text[160];
    if (!is_first_to_fail(communicator))
        return ls_communicator_give_up(communicator, LS_ABORTED);
    ls_error(communicator->group->scope,
             "collective %s is wrong: %s on known values: rank %u has %" PRIu64
             " wrong element%s, the first is element %" PRIu64 "; choose another collective",
             communicator->group->collective->name, ls_call_text(&plan->signature, text),
             communicator->rank, wrong, wrong == 1 ? "" : "s", first);
    return fail_first(communicator, LS_FAILED);
}

enum ls_status ls_communicator_fail_overflow(struct ls_communicator *communicator,
                                             const struct ls_collective_plan *plan)
{
    const bool half = plan->signature.wire == LS_F16;
    char text[160];
    if (!is_first_to_fail(communicator))
        return ls_communicator_give_up(communicator, LS_ABORTED);
    ls_error(communicator->group->scope,
             "%s: rank %u has a value beyond %s, the largest that travels; use %s--wire=float32",
             ls_call_text(&plan->signature, text), communicator->rank, half ? "65504" : "3.39e38",
             half ? "--wire=bfloat16 or " : "");
    return fail_first(communicator, LS_FAILED);
}

// The rank that keeps the plan from ending: one that has not made the call, which is where all
// waits lead, else a peer of a pending transfer.
static uint32_t find_culprit(struct ls_communicator *communicator,
                             const struct ls_collective_plan *plan, enum ls_rank_state *state)
{
    const struct ls_communicator_group *group = communicator->group;
    uint32_t count = 0, culprit = communicator->rank;
    struct ls_transfer *const *pending =
        plan->running && plan->executor ? ls_executor_pending(plan->executor, &count) : NULL;
    for (uint32_t i = 0; i < count; i++) {
        const bool sends =
            pending[i]->kind == LS_TRANSFER_SEND || pending[i]->state == LS_TRANSFER_REDUCED;
        culprit = sends ? pending[i]->destination : pending[i]->source;
        if (!sends)
            break;
    }
    for (uint32_t i = 0; i < group->world; i++)
        if (ls_ask_state(group, i, plan->sequence) == LS_RANK_ABSENT) {
            *state = LS_RANK_ABSENT;
            return i;
        }
    *state = ls_ask_state(group, culprit, plan->sequence);
    return culprit;
}

enum ls_status ls_communicator_fail_deadline(struct ls_communicator *communicator,
                                             const struct ls_collective_plan *plan,
                                             uint64_t waited_ns)
{
    char text[160], where[256];
    static const char *const states[] = {
        [LS_RANK_UNKNOWN] = "it belongs to another process and its part has not come",
        [LS_RANK_ABSENT] = "it has not made this call",
        [LS_RANK_CALLED] = "it has not finished its part"};
    enum ls_rank_state state;
    struct ls_inside_call call;
    if (!is_first_to_fail(communicator))
        return ls_communicator_give_up(communicator, LS_ABORTED);
    communicator->late = true;
    ls_ask_all(communicator->group);
    const uint32_t culprit = find_culprit(communicator, plan, &state);
    const bool inside = ls_inside_of_replica(culprit, &call);
    if (culprit == communicator->rank) // all have come, and hosts have nothing to do any more
        ls_error(communicator->group->scope,
                 "rank %u waited %.1f s for its device in call %" PRIu64
                 ", %s: all ranks have made this call, but the device has not ended it; a device "
                 "hangs, or --deadline is too short for it",
                 communicator->rank, (double)waited_ns * 1e-9, plan->sequence,
                 ls_call_text(&plan->signature, text));
    else
        ls_error(communicator->group->scope,
                 "rank %u waited %.1f s for rank %u in call %" PRIu64
                 ", %s: %s%s%s (collective %s, transport %s); look there, or raise --deadline",
                 communicator->rank, (double)waited_ns * 1e-9, culprit, plan->sequence,
                 ls_call_text(&plan->signature, text), states[state], inside ? ", and is in " : "",
                 inside ? ls_inside_text(&call, where, sizeof(where)) : "",
                 communicator->group->collective->name,
                 communicator->group->transport ? communicator->group->transport->name : "none");
    return fail_first(communicator, LS_PEER_LOST);
}

// Before the rank leaves, when nobody can be asked any more.
static void note_lost(const struct ls_communicator *communicator)
{
    struct ls_communicator_group *group = communicator->group;
    for (uint32_t i = 0; communicator->transport && i < group->world; i++)
        if (group->interface->peer_state(communicator->transport, i) == LS_PEER_LOST) {
            atomic_store(&group->lost, i + 1);
            return;
        }
}

enum ls_status ls_communicator_fail(struct ls_communicator *communicator,
                                    const struct ls_collective_plan *plan, enum ls_status status)
{
    const struct ls_transfer *mismatch =
        plan->executor ? ls_executor_mismatch(plan->executor) : NULL;
    char text[160];
    if (mismatch)
        return ls_communicator_fail_mismatch(communicator, plan, mismatch->source);
    const bool elsewhere =
        status == LS_PEER_LOST && communicator->group->count < communicator->group->world;
    if (elsewhere) // the cluster names the process, maybe later: no plugin needs to say why
        ls_caller_note_reason();
    if (status == LS_ABORTED || !is_first_to_fail(communicator))
        return ls_communicator_give_up(communicator, status);
    if (elsewhere)
        note_lost(communicator);
    // A library has said why; of a lost process the cluster says it.
    if (communicator->library || elsewhere)
        ls_info(communicator->group->scope, "rank %u was in call %" PRIu64 ", %s",
                communicator->rank, plan->sequence, ls_call_text(&plan->signature, text));
    else
        ls_error(communicator->group->scope, "rank %u, call %" PRIu64 ", %s: %s",
                 communicator->rank, plan->sequence, ls_call_text(&plan->signature, text),
                 ls_status_text(status));
    return fail_first(communicator, status);
}
