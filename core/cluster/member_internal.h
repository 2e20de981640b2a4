// SPDX-License-Identifier: Apache-2.0
// The parts of a member: member.c (opening, its thread), member_receive.c (what the store says),
// member_calls.c (calls that wait for it).
#ifndef LS_CLUSTER_MEMBER_INTERNAL_H
#define LS_CLUSTER_MEMBER_INTERNAL_H

#include "core/cluster/liveness.h"
#include "core/cluster/member.h"
#include "core/cluster/store.h"
#include "core/wire/frame.h"

#include <pthread.h>
#include <stdatomic.h>

enum ls_member_phase {
    LS_MEMBER_JOINING,
    LS_MEMBER_FORMED,
    LS_MEMBER_ENDED, // worker 0 has ended in order
    LS_MEMBER_FAILED, // `status` and `text` say how
};

// A thread that waits for the other members of a meeting; on its stack.
struct ls_meet_call {
    uint64_t sequence;
    char *all;
    size_t bytes, arrived; // of all members
    bool waits;
    enum ls_status status; // LS_OK, or why it failed; `text` says it
    char text[LS_TEXT_BYTES];
    struct ls_meet_call *next;
};

struct ls_member {
    struct ls_connection connection; // received from by the thread; sent to under the lock
    int wake;
    int reserve; // borrowed; -1: none. Under the lock
    pthread_t thread;
    bool threadless; // it could not be started again
    uint32_t number, workers; // number: among all members
    uint32_t generation;
    bool elastic; // a loss is no error
    uint64_t deadline_ns, silence_ns, beat_ns;
    const atomic_bool *interrupted; // NULL: never
    void (*lost)(void *context, const char *text);
    void (*departed)(void *context, uint32_t worker, bool lost, const char *text);
    void (*told)(void *context, uint32_t worker, const char *key, const char *text);
    void *context;
    char address[LS_HOST_BYTES + 16]; // of the store
    struct ls_said said;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    _Atomic uint32_t phase; // enum ls_member_phase; changes under the lock
    bool formed; // all were there once, whatever came after
    bool claimed; // somebody is reporting the failure
    bool chief_lost; // the connection, or who was at its other end
    bool stood; // and this process was stopped then, so that it may be who was lost
    bool cast_out; // the others go on without this worker
    bool reforming; // the main thread waits for a new generation
    bool joins; // a training that has begun takes this worker in when it forms anew
    bool outside; // it knows
    enum ls_status reform_status; // why it will not form anew
    enum ls_status status;
    char text[LS_TEXT_BYTES + LS_WHERE_BYTES + 64];
    bool closing; // in order, with a goodbye
    bool leaving; // the thread ends, because the connection will be replaced
    char chief_host[LS_NAME_BYTES];
    struct ls_welcome welcome;
    // The exchange under way.
    bool wants_result;
    uint64_t sequence;
    uint8_t *result;
    size_t result_room, result_bytes, result_total;
    struct ls_meet_call *meetings; // that are waited for
    uint64_t meeting_sequence;
    struct ls_frame frame; // to send; under the lock

    // The thread's own.
    struct ls_own_clock clock;
    uint64_t heard_ns, beat_at_ns; // own clock
    struct ls_spot chief; // where worker 0 was
    uint8_t plain[LS_FRAME_PLAIN];
};

// The first failure is reported, before anybody sees that there is one. [any thread, without the
// lock]
void ls_member_fail(struct ls_member *member, enum ls_status status, const char *text);
// Worker 0 is gone, or its store is.
void ls_member_lose_chief(struct ls_member *member, const char *why);
// Sends member->frame, under the lock. What the socket does not take now, the thread sends later.
void ls_member_send(struct ls_member *member);
// Waits until the store forms a new generation (member->reforming), or not.
LS_STATUS ls_member_wait_reform(struct ls_member *member, uint64_t deadline_ns,
                                const struct ls_welcome **out);
void ls_welcome_finish(struct ls_welcome *welcome); // takes a zeroed one
// Reads all that is there. False: the connection is over.
bool ls_member_read(struct ls_member *member);

#endif
