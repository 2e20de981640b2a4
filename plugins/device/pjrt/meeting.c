// SPDX-License-Identifier: Apache-2.0
// Where threads meet.
#include "plugins/device/pjrt/meeting.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int32_t pjrt_meeting_init(struct pjrt_meeting *meeting, uint32_t count)
{
    pthread_condattr_t clock;
    *meeting = (struct pjrt_meeting){.count = count, .brought = calloc(count, sizeof(void *))};
    if (!meeting->brought)
        return LS_OUT_OF_MEMORY;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&meeting->lock, NULL);
    pthread_cond_init(&meeting->changed, &clock);
    pthread_condattr_destroy(&clock);
    return LS_OK;
}

void pjrt_meeting_finish(struct pjrt_meeting *meeting)
{
    if (!meeting->brought)
        return;
    pthread_cond_destroy(&meeting->changed);
    pthread_mutex_destroy(&meeting->lock);
    free(meeting->brought);
    *meeting = (struct pjrt_meeting){0};
}

struct timespec pjrt_end_of_wait(uint64_t deadline_ns)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    const uint64_t ns = (uint64_t)end.tv_nsec + deadline_ns;
    end.tv_sec += (time_t)(ns / 1000000000);
    end.tv_nsec = (long)(ns % 1000000000);
    return end;
}

// Until the meeting is over, aborted, or late; false: late. The lock is held. What was brought is
// in use while the last one acts.
static bool wait_for_end(struct pjrt_meeting *meeting, uint64_t number, uint64_t deadline_ns)
{
    const struct timespec end = pjrt_end_of_wait(deadline_ns);
    bool late = false;
    while (meeting->over == number && (meeting->acting || (!meeting->aborted && !late))) {
        if (meeting->acting || !deadline_ns)
            pthread_cond_wait(&meeting->changed, &meeting->lock);
        else
            late = pthread_cond_timedwait(&meeting->changed, &meeting->lock, &end) == ETIMEDOUT;
    }
    return !late || meeting->over != number || meeting->aborted;
}

static int32_t act_for_all(struct pjrt_meeting *meeting, pjrt_meeting_act act, void *context)
{
    meeting->acting = true;
    pthread_mutex_unlock(&meeting->lock);
    const int32_t result = act(context, meeting->brought);
    pthread_mutex_lock(&meeting->lock);
    for (uint32_t i = 0; i < meeting->count; i++)
        meeting->brought[i] = NULL;
    meeting->result = result;
    meeting->came = 0;
    meeting->acting = false;
    meeting->over++;
    pthread_cond_broadcast(&meeting->changed);
    return result;
}

int32_t pjrt_meet(struct pjrt_meeting *meeting, uint32_t member, void *brings, uint64_t deadline_ns,
                  pjrt_meeting_act act, void *context)
{
    int32_t status = LS_ABORTED;
    pthread_mutex_lock(&meeting->lock);
    const uint64_t number = meeting->over;
    if (!meeting->aborted) {
        meeting->brought[member] = brings;
        if (++meeting->came == meeting->count) {
            status = act_for_all(meeting, act, context);
        } else if (!wait_for_end(meeting, number, deadline_ns)) {
            status = LS_PEER_LOST; // who is missing stays to be seen
            meeting->aborted = true;
            pthread_cond_broadcast(&meeting->changed);
        } else if (meeting->over != number) {
            status = meeting->result;
        }
    }
    pthread_mutex_unlock(&meeting->lock);
    return status;
}

void pjrt_meeting_abort(struct pjrt_meeting *meeting)
{
    pthread_mutex_lock(&meeting->lock);
    meeting->aborted = true;
    pthread_cond_broadcast(&meeting->changed);
    pthread_mutex_unlock(&meeting->lock);
}

bool pjrt_meeting_is_aborted(struct pjrt_meeting *meeting)
{
    pthread_mutex_lock(&meeting->lock);
    const bool aborted = meeting->aborted;
    pthread_mutex_unlock(&meeting->lock);
    return aborted;
}

void pjrt_meeting_missing(struct pjrt_meeting *meeting, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    pthread_mutex_lock(&meeting->lock);
    for (uint32_t i = 0; i < meeting->count && used + 16 < bytes; i++)
        if (!meeting->brought[i])
            used += (size_t)snprintf(text + used, bytes - used, "%s%u", used ? ", " : "", i);
    pthread_mutex_unlock(&meeting->lock);
}
