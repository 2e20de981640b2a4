// SPDX-License-Identifier: Apache-2.0
// Where threads meet: each comes with something, the last one to come acts for all, and the others
// wait for it.
#ifndef LS_DEVICE_PJRT_MEETING_H
#define LS_DEVICE_PJRT_MEETING_H

#include "core/plugin/plugin.h"

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

struct pjrt_meeting {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t count, came;
    uint64_t over; // meetings that are
    int32_t result; // of the last one
    bool acting; // all have come, and the last one acts
    bool aborted;
    void **brought; // by member; NULL: it is not here
};

// Acts for all with what they brought, in their order. No other call of the meeting may be made
// within it but pjrt_meeting_abort.
typedef int32_t (*pjrt_meeting_act)(void *context, void *const *brought);

// `count` members, at least 1. LS_OUT_OF_MEMORY.
int32_t pjrt_meeting_init(struct pjrt_meeting *meeting, uint32_t count);
void pjrt_meeting_finish(struct pjrt_meeting *meeting); // takes a zeroed one

// Comes with `brings`, which stays borrowed until the call returns. What `act` returns;
// LS_PEER_LOST if somebody has not come after the deadline (0: none): for the first who sees that,
// which then calls pjrt_meeting_missing. Everybody else gets LS_ABORTED then, and after
// pjrt_meeting_abort. While the last one acts, the others wait as long as that takes. [one thread a
// member]
int32_t pjrt_meet(struct pjrt_meeting *meeting, uint32_t member, void *brings, uint64_t deadline_ns,
                  pjrt_meeting_act act, void *context);

// Nobody waits any more, now and later. [any thread]
void pjrt_meeting_abort(struct pjrt_meeting *meeting);
bool pjrt_meeting_is_aborted(struct pjrt_meeting *meeting);

// Who was not here when a deadline had passed: "1, 3".
void pjrt_meeting_missing(struct pjrt_meeting *meeting, char *text, size_t bytes);

// When a wait that starts now ends, by CLOCK_MONOTONIC. [any thread]
struct timespec pjrt_end_of_wait(uint64_t deadline_ns);

#endif
