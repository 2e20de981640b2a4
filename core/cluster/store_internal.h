// SPDX-License-Identifier: Apache-2.0
// The parts of the store, from its ground: store_peers.c (connections), store_meet.c (exchanges of
// some workers), store_members.c (who takes part), store_reform.c (the next generation of an
// elastic cluster), store.c (its thread, exchanges of all). All of it belongs to the store's
// thread.
#ifndef LS_CLUSTER_STORE_INTERNAL_H
#define LS_CLUSTER_STORE_INTERNAL_H

#include "core/cluster/frames.h"
#include "core/cluster/liveness.h"
#include "core/cluster/store.h"
#include "core/wire/connection.h"
#include "core/wire/door.h"

#include <pthread.h>
#include <stdatomic.h>

#define LS_IDENTITY_BYTES 160
#define LS_NO_MEMBER UINT32_MAX

enum ls_peer_stage {
    LS_PEER_OPEN, // knows the secret; its first frame is awaited
    LS_PEER_MEMBER,
    LS_PEER_WAITING, // a new worker; a member when the others form anew
    LS_PEER_LEAVING, // was told why it may not join; closes when it has heard that
    LS_PEER_GONE, // to be freed after the events at hand
};

// One connection.
struct ls_peer {
    struct ls_connection connection;
    enum ls_peer_stage stage;
    uint32_t member; // of LS_PEER_MEMBER
    struct ls_store_member *joiner; // of LS_PEER_WAITING: what it will be
    uint64_t arrival; // new workers come in in this order
    bool own; // of the worker of this process, which is as alive as the store
    uint64_t since_ns; // own clock: when it connected, and for a member when it was last heard
    bool watched_for_writing;
    struct ls_peer *next;
};

// A process that has a number.
struct ls_store_member {
    struct ls_peer *peer; // NULL: not there, or gone
    bool left; // after a goodbye
    uint32_t count, restart;
    uint64_t process;
    char identity[LS_IDENTITY_BYTES], host[LS_NAME_BYTES];
    uint8_t *agreement; // as it arrived: names and values
    size_t agreement_bytes;
    struct ls_spot spot;
    // Elastic. No worker is struck off before the next generation, in which numbers are others.
    struct ls_reserve reserve;
    uint32_t former; // its number in the last generation, or LS_NO_WORKER
    bool gone; // lost, whether it knows or not
    bool dead; // nobody listens at its reserve any more
    // It may all the same have gone on, and have ended: it was lost when this process had just been
    // stopped, and may have been taken for lost by it.
    bool doubtful;
    bool ready; // waits for the next generation
    int probe; // a connection to its reserve that is being made; -1: none
    bool probed; // that was tried
    uint64_t probe_since_ns, probe_at_ns; // own clock
    uint64_t unreachable_ns; // own clock, since when; 0: it is not
    bool has_block;
    size_t block_bytes; // in `blocks` of the store
};

enum ls_store_phase {
    LS_STORE_JOINING,
    LS_STORE_FORMED,
    LS_STORE_REFUSED, // everybody was told why the training does not begin
    LS_STORE_LOST, // a member is lost; everybody was told. An elastic cluster forms anew then
};

struct ls_store {
    int epoll, wake;
    struct ls_door *door;
    pthread_t thread;
    atomic_bool stopping;
    uint32_t workers, servers, members;
    uint64_t join_deadline_ns, deadline_ns, silence_ns, beat_ns;
    char address[LS_HOST_BYTES + 16];
    char begin_host[64]; // where it shall listen, too, as long as it does not; else ""
    uint16_t begin_port;
    uint64_t begin_at_ns; // own clock: when that is tried again

    struct ls_own_clock clock;
    uint64_t beat_at_ns, say_at_ns, refuse_at_ns; // own clock; 0: not
    enum ls_store_phase phase;
    char refusal[LS_TEXT_BYTES]; // why the training will be refused at refuse_at_ns
    enum ls_status refusal_status;
    uint32_t joined;
    uint32_t least_workers, most_workers; // most_workers 0: not elastic
    bool apart; // a loss concerns only the workers that meet the lost one
    uint32_t generation, survivors; // survivors: of the last generation
    bool reforming; // somebody waits for the next generation
    uint64_t reform_since_ns, reform_deadline_ns, arrivals;
    _Atomic uint32_t waiting; // new workers for which there is room

    struct ls_peer *peers; // all connections

    struct ls_store_member *member; // `members` of them
    // The exchange under way.
    uint64_t sequence;
    uint32_t blocks_here;
    uint8_t operation;
    uint32_t root, first_member; // first_member: the worker that began it
    uint64_t operation_bytes, exchange_since_ns;
    size_t part; // room of a block
    uint8_t *blocks; // workers x part
    uint8_t *result; // what is sent to all

    struct ls_store_meeting *meetings; // under way
    size_t meeting_bytes; // of all

    struct ls_frame frame; // to send
    uint8_t plain[LS_FRAME_PLAIN]; // that arrived
};

// store_peers.c
// epoll_ctl; `what` comes with the events.
void ls_store_watch(struct ls_store *store, int operation, int fd, uint32_t events, void *what);
// Takes the connection, also where it fails; `own`: of the worker of this process.
LS_STATUS ls_peer_add(struct ls_store *store, struct ls_connection *connection, bool own);
void ls_peer_flush(struct ls_store *store, struct ls_peer *peer);
void ls_peer_send(struct ls_store *store,
                  struct ls_peer *peer); // store->frame; a failure shows later
// The peer is told store->frame, and its connection ends when it has heard it. A member's entry no
// longer has it.
void ls_peer_dismiss(struct ls_store *store, struct ls_peer *peer);
// Ends the connection; the struct stays until the events at hand are done, because one may name it.
void ls_peer_end(struct ls_store *store, struct ls_peer *peer);
void ls_store_free_gone(struct ls_store *store); // those that have ended; after all events
void ls_store_tell_all(struct ls_store *store); // store->frame, to all members
void ls_store_tell_waiting(struct ls_store *store); // the same to new workers that wait
void ls_store_name_member(const struct ls_store *store, uint32_t number, char *out, size_t bytes);

// store_members.c
// `generation`: of the frame.
bool ls_store_join(struct ls_store *store, struct ls_peer *peer, uint32_t generation,
                   struct ls_frame_reader *reader);
void ls_store_leave_early(struct ls_store *store, uint32_t member); // before the training began
void ls_store_watch_joining(struct ls_store *store); // at each tick: deadline, progress
void ls_store_refuse(struct ls_store *store, enum ls_status status, const char *text);
void ls_store_welcome(struct ls_store *store); // tells all members which workers take part
// Whether a new worker differs from those that train; then it is told so.
bool ls_store_differs(struct ls_store *store, struct ls_peer *peer);
void ls_store_lose(struct ls_store *store, uint32_t member, const char *why);
// Ends the generation. `member`: that the text is about, or LS_NO_MEMBER.
void ls_store_tell_lost(struct ls_store *store, enum ls_status status, uint32_t member,
                        const char *text);

// store_reform.c
bool ls_store_take_reform(struct ls_store *store, uint32_t member, struct ls_frame_reader *reader);
// After all events.
void ls_store_watch_reform(struct ls_store *store);
void ls_store_count_waiting(struct ls_store *store);

// store.c. False: the frame makes no sense. `late`: it is of an earlier generation.
bool ls_store_serve(struct ls_store *store, struct ls_peer *peer, uint8_t kind, bool late,
                    struct ls_frame_reader *reader);
// At each tick. `all_read`: nothing that arrived is still unread.
void ls_store_watch_members(struct ls_store *store, bool all_read);

// store_meet.c. False: the frame makes no sense.
bool ls_store_meet(struct ls_store *store, uint32_t number, struct ls_frame_reader *reader);
bool ls_store_pass_on(struct ls_store *store, uint32_t number, struct ls_frame_reader *reader);
// A member is gone: what it takes part in ends, for the reason given.
void ls_store_end_meetings(struct ls_store *store, uint32_t number, const char *text);
void ls_store_watch_meetings(struct ls_store *store); // at each tick: deadlines
void ls_store_finish_meetings(struct ls_store *store);

#endif
