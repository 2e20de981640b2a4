// SPDX-License-Identifier: Apache-2.0
// Calls of a worker that wait for the store, and those that only leave a note.
#include "core/cluster/member_internal.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/threads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_NS UINT64_C(2000000000) // for the store's own message about a deadline
#define WELCOME_PATIENCE_NS UINT64_C(3000000000)
#define LOOK_NS UINT64_C(200000000) // how often a waiting call looks at its clock
#define SAY_AFTER_NS UINT64_C(5000000000)
#define SAY_EVERY_NS UINT64_C(1000000000)

// ---- Waiting ----

// Until *waits is false. The lock is held. Time counts only as far as this thread runs, so that a
// job that was stopped as a whole, and continues, has lost nothing. LS_AGAIN: the deadline passed.
static enum ls_status wait_while(struct ls_member *member, const bool *waits, uint64_t deadline_ns)
{
    struct ls_own_clock clock = {0};
    ls_own_clock_look(&clock, 0);
    while (*waits) {
        if (member->phase == LS_MEMBER_FAILED)
            return member->status;
        if (member->phase == LS_MEMBER_ENDED)
            return LS_PEER_LOST;
        if (clock.now_ns >= deadline_ns)
            return LS_AGAIN;
        const uint64_t left = deadline_ns - clock.now_ns;
        ls_condition_wait(&member->changed, &member->lock, left < LOOK_NS ? left : LOOK_NS);
        ls_own_clock_look(&clock, 2 * LOOK_NS);
    }
    return LS_OK;
}

// The store ends exchanges whose deadline has passed, and says for whom it waited; this worker
// waits a little longer, so that it hears that.
static enum ls_status end_exchange(struct ls_member *member, enum ls_status status,
                                   const char *operation)
{
    char text[LS_TEXT_BYTES];
    if (status != LS_AGAIN && atomic_load(&member->phase) != LS_MEMBER_ENDED)
        return status;
    if (status == LS_AGAIN)
        snprintf(text, sizeof(text), "%s: worker 0 (%s) did not answer within %.1f s", operation,
                 member->chief_host, (double)(member->deadline_ns + PATIENCE_NS) * 1e-9);
    else
        snprintf(text, sizeof(text), "%s: worker 0 (%s) has ended, but this worker waits for it",
                 operation, member->chief_host);
    ls_member_fail(member, LS_PEER_LOST, text);
    return LS_PEER_LOST;
}

// Says for what it waits: a new worker is told nothing until the others form anew.
static void say_outside(const struct ls_member *member, uint64_t passed_ns, uint64_t deadline_ns,
                        uint64_t *say_at)
{
    if (!member->outside || passed_ns < *say_at)
        return;
    *say_at = passed_ns + SAY_EVERY_NS;
    ls_info("cluster", "waiting until the training at %s takes this worker in, %.0f s of %g s",
            member->address, (double)passed_ns * 1e-9, (double)deadline_ns * 1e-9);
}

enum ls_status ls_member_wait_welcome(struct ls_member *member, uint64_t deadline_ns,
                                      const struct ls_welcome **out)
{
    uint64_t say_at = SAY_AFTER_NS;
    char text[LS_TEXT_BYTES];
    pthread_mutex_lock(&member->lock);
    enum ls_status status = LS_OK;
    struct ls_own_clock clock = {0};
    ls_own_clock_look(&clock, 0);
    // The store tells by itself when its deadline passed, but tells a new worker nothing.
    const uint64_t patience = member->joins ? 0 : WELCOME_PATIENCE_NS;
    while (member->phase == LS_MEMBER_JOINING && clock.now_ns < deadline_ns + patience &&
           !(member->joins && member->chief_lost)) {
        ls_condition_wait(&member->changed, &member->lock, LOOK_NS);
        ls_own_clock_look(&clock, 2 * LOOK_NS);
        say_outside(member, clock.now_ns, deadline_ns, &say_at);
    }
    if (member->phase == LS_MEMBER_JOINING && member->joins && member->chief_lost)
        status = LS_AGAIN;
    const bool waited_in_vain = !status && member->phase == LS_MEMBER_JOINING;
    const bool outside = member->outside;
    if (member->phase == LS_MEMBER_FAILED && !member->formed)
        status = member->status;
    pthread_mutex_unlock(&member->lock);
    if (waited_in_vain && outside) {
        snprintf(text, sizeof(text), "the training at %s did not take this worker in within %g s",
                 member->address, (double)deadline_ns * 1e-9);
        ls_member_fail(member, LS_PEER_LOST, text);
    } else if (waited_in_vain) {
        ls_member_lose_chief(member, "its store does not answer");
    }
    if (waited_in_vain)
        status = LS_PEER_LOST;
    if (!status)
        *out = &member->welcome;
    return status;
}

// ---- A new generation ----

enum ls_status ls_member_wait_reform(struct ls_member *member, uint64_t deadline_ns,
                                     const struct ls_welcome **out)
{
    struct ls_own_clock clock = {0};
    enum ls_status status = LS_OK;
    ls_own_clock_look(&clock, 0);
    pthread_mutex_lock(&member->lock);
    while (!status && member->reforming) {
        if (member->reform_status) {
            status = member->reform_status;
        } else if (member->interrupted && atomic_load(member->interrupted)) {
            status = LS_INTERRUPTED;
        } else if (member->chief_lost) {
            status = LS_AGAIN;
        } else if (clock.now_ns >= deadline_ns + PATIENCE_NS) {
            status = LS_PEER_LOST;
            ls_error("cluster", "the workers did not form anew within %g s: %s says nothing",
                     (double)clock.now_ns * 1e-9, member->address);
        } else {
            ls_condition_wait(&member->changed, &member->lock, LOOK_NS);
            ls_own_clock_look(&clock, 2 * LOOK_NS);
        }
    }
    if (!status)
        *out = &member->welcome;
    pthread_mutex_unlock(&member->lock);
    return status;
}

enum ls_status ls_member_reform(struct ls_member *member, uint64_t deadline_ns,
                                const struct ls_welcome **out)
{
    pthread_mutex_lock(&member->lock);
    const bool cast_out = member->cast_out;
    const bool reachable = !member->chief_lost && member->phase != LS_MEMBER_ENDED;
    member->reforming = reachable && !cast_out;
    member->reform_status = LS_OK;
    if (member->reforming) {
        ls_frame_begin(&member->frame, LS_FRAME_REFORM, member->generation);
        ls_frame_put_u64(&member->frame, deadline_ns);
        ls_member_send(member);
    }
    pthread_mutex_unlock(&member->lock);
    if (cast_out) {
        ls_error("cluster", "the others go on without this worker: start it again to join them");
        return LS_PEER_LOST;
    }
    return reachable ? ls_member_wait_reform(member, deadline_ns, out) : LS_AGAIN;
}

bool ls_member_is_gone(struct ls_member *member, uint32_t worker, struct ls_reserve *out)
{
    pthread_mutex_lock(&member->lock);
    const bool gone = member->welcome.gone[worker];
    *out = member->welcome.reserves[worker];
    pthread_mutex_unlock(&member->lock);
    return gone;
}

bool ls_member_stood(struct ls_member *member)
{
    pthread_mutex_lock(&member->lock);
    const bool stood = member->stood;
    pthread_mutex_unlock(&member->lock);
    return stood;
}

// ---- Exchanges ----

enum ls_status ls_member_exchange(struct ls_member *member, enum ls_operation operation,
                                  uint32_t root, uint64_t bytes, const void *data, size_t part,
                                  const uint8_t **result, size_t *result_bytes)
{
    static const char *const names[] = {"", "gather", "broadcast", "barrier"};
    pthread_mutex_lock(&member->lock);
    member->result_bytes = 0;
    member->wants_result = true;
    ls_frame_begin(&member->frame, LS_FRAME_BLOCK, member->generation);
    ls_frame_put_u64(&member->frame, member->sequence);
    ls_frame_put_u8(&member->frame, (uint8_t)operation);
    ls_frame_put_u32(&member->frame, root);
    ls_frame_put_u64(&member->frame, bytes);
    ls_frame_put_bytes(&member->frame, data, part);
    if (member->phase == LS_MEMBER_FORMED)
        ls_member_send(member);
    enum ls_status status =
        wait_while(member, &member->wants_result, member->deadline_ns + PATIENCE_NS);
    member->wants_result = false;
    member->sequence++;
    pthread_mutex_unlock(&member->lock);
    if (status)
        return end_exchange(member, status, names[operation]);
    *result = member->result;
    *result_bytes = member->result_total;
    return LS_OK;
}

static void begin_meeting(struct ls_member *member, const struct ls_meeting *meeting,
                          const void *own, size_t bytes, struct ls_meet_call *call)
{
    struct ls_frame *frame = &member->frame;
    call->sequence = ++member->meeting_sequence;
    call->next = member->meetings;
    member->meetings = call;
    ls_frame_begin(frame, LS_FRAME_MEET, member->generation);
    ls_frame_put_u64(frame, call->sequence);
    ls_frame_put_u64(frame, meeting->deadline_ns);
    ls_frame_put_text(frame, meeting->key);
    ls_frame_put_u32(frame, (uint32_t)bytes);
    ls_frame_put_u32(frame, meeting->count);
    for (uint32_t i = 0; i < meeting->count; i++)
        ls_frame_put_u32(frame, meeting->members[i]);
    ls_frame_put_bytes(frame, own, bytes);
    if (member->phase == LS_MEMBER_FORMED)
        ls_member_send(member);
}

static void end_meeting(struct ls_member *member, const struct ls_meet_call *call)
{
    struct ls_meet_call **link = &member->meetings;
    while (*link != call)
        link = &(*link)->next;
    *link = call->next;
}

// The store ends a meeting whose deadline has passed, and says who did not come; this worker waits
// a little longer, so that it hears that.
enum ls_status ls_member_meet(struct ls_member *member, const struct ls_meeting *meeting,
                              const void *own, size_t bytes, char *all)
{
    struct ls_meet_call call = {.all = all, .bytes = meeting->count * bytes, .waits = bytes > 0};
    pthread_mutex_lock(&member->lock);
    begin_meeting(member, meeting, own, bytes, &call);
    enum ls_status status = wait_while(member, &call.waits, meeting->deadline_ns + PATIENCE_NS);
    end_meeting(member, &call);
    const bool ended = member->phase == LS_MEMBER_ENDED;
    pthread_mutex_unlock(&member->lock);
    if (!status && !call.status)
        return LS_OK;
    if (call.status)
        ls_error("cluster", "%s: %s", meeting->key, call.text);
    else if (status == LS_AGAIN || ended)
        ls_error("cluster", "%s: process 0 (%s) %s, and the others meet at its store", meeting->key,
                 member->chief_host, ended ? "has left the job" : "does not answer");
    else
        ls_error("cluster", "%s: %s", meeting->key, member->text);
    return call.status ? call.status : status == LS_AGAIN ? LS_PEER_LOST : status;
}

void ls_member_tell(struct ls_member *member, const char *key, const uint32_t *members,
                    uint32_t count, const char *text)
{
    char news[LS_TEXT_BYTES];
    snprintf(news, sizeof(news), "%s", text);
    pthread_mutex_lock(&member->lock);
    if (member->phase == LS_MEMBER_FORMED) {
        ls_frame_begin(&member->frame, LS_FRAME_TELL, member->generation);
        ls_frame_put_text(&member->frame, key);
        ls_frame_put_text(&member->frame, news);
        ls_frame_put_u32(&member->frame, count);
        for (uint32_t i = 0; i < count; i++)
            ls_frame_put_u32(&member->frame, members[i]);
        ls_member_send(member);
    }
    pthread_mutex_unlock(&member->lock);
}

// ---- Any thread ----

void ls_member_say(struct ls_member *member, uint64_t step, const char *where)
{
    ls_said_write(&member->said, step, where);
}

// The text is written before the phase, and then stays.
enum ls_status ls_member_check(struct ls_member *member, const char **text)
{
    if (atomic_load(&member->phase) != LS_MEMBER_FAILED)
        return LS_OK;
    if (text)
        *text = member->text;
    return member->status;
}

// The reason was said by the caller, so that this worker says no more.
void ls_member_give_up(struct ls_member *member, const char *why)
{
    char text[LS_TEXT_BYTES / 2];
    snprintf(text, sizeof(text), "%s", why);
    pthread_mutex_lock(&member->lock);
    if (member->phase == LS_MEMBER_FORMED && !member->claimed) {
        ls_frame_begin(&member->frame, LS_FRAME_GIVE_UP, member->generation);
        ls_frame_put_text(&member->frame, text);
        ls_member_send(member);
        member->claimed = true;
        member->status = LS_FAILED;
        snprintf(member->text, sizeof(member->text), "%s", text);
        atomic_store(&member->phase, LS_MEMBER_FAILED);
        pthread_cond_broadcast(&member->changed);
    }
    pthread_mutex_unlock(&member->lock);
}
