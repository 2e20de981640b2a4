// SPDX-License-Identifier: Apache-2.0
// Lets into a process only peers that know the secret of its job: the store of worker 0 has a door,
// and so has a server process. A door listens, accepts, shakes hands, and hands out each connection
// that has proved itself. All others are strangers. They stand in queues of a bounded length, whose
// oldest makes room for the next one, and are dropped and counted; none of them costs more than two
// hashes and some system calls. Connections that were handed out are none of the door's business,
// so no number of strangers pushes out a worker that has come in. It never waits. [one thread, but
// for the counts]
#ifndef LS_WIRE_DOOR_H
#define LS_WIRE_DOOR_H

#include "core/wire/connection.h"

#define LS_MOST_STRANGERS 256 // that have said as much of the handshake as each other
#define LS_STRANGER_NS UINT64_C(2000000000) // that they have for it

struct ls_door;

enum ls_stranger_reason {
    LS_STRANGER_SILENT, // closed before it had said what it is
    LS_STRANGER_GREETING, // said something else than a worker does
    LS_STRANGER_SECRET, // does not know the secret (a replay does not either)
    LS_STRANGER_SLOW, // was not ready within LS_STRANGER_NS
    LS_STRANGER_CROWDED, // made room for another one
    LS_STRANGER_MALFORMED, // knew the secret, but its message makes no sense
    LS_STRANGER_SURPLUS, // knew the secret, but there are as many as there can be
    LS_STRANGER_REASONS
};

// LS_FAILED, logged: the system gives no descriptor for it.
LS_STATUS ls_door_open(const uint8_t key[LS_SECURE_KEY], struct ls_door **out);
// Says how many were dropped. Takes NULL.
void ls_door_close(struct ls_door *door);
// One more socket that listens, non-blocking; at most two. Taken, also where it fails.
LS_STATUS ls_door_listen(struct ls_door *door, int listener);
// Can be read while there is something to do for ls_door_next.
int ls_door_fd(const struct ls_door *door);
// The next connection that has proved to know the secret. LS_AGAIN: none now. To be called several
// times a second, because it drops those that are late, too.
LS_STATUS ls_door_next(struct ls_door *door, struct ls_connection *out);
// Connections have waited for a second for which this process has no descriptor.
bool ls_door_is_starved(const struct ls_door *door);
// Counts a connection that ls_door_next has handed out as a stranger's, after all.
void ls_door_count(struct ls_door *door, const struct ls_connection *connection,
                   enum ls_stranger_reason reason);

// Connections that were dropped. [any thread]
uint64_t ls_door_strangers(const struct ls_door *door, enum ls_stranger_reason reason);
uint64_t ls_door_all_strangers(const struct ls_door *door);

#endif
