// SPDX-License-Identifier: Apache-2.0
// Whether other workers are alive: every worker tells the store twice a second where it is, the
// store tells every worker where worker 0 is, and one that misses six of these beats is lost. A
// closed connection is a lost worker at once.
#ifndef LS_CLUSTER_LIVENESS_H
#define LS_CLUSTER_LIVENESS_H

#include "core/base/status.h"
#include "core/cluster/cluster.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LS_WHERE_BYTES 48 // a text for a place in a step, with its final zero
#define LS_NAME_BYTES 80 // of a machine
#define LS_TEXT_BYTES 1024 // a sentence

// Where a worker is: a step (or LS_NO_STEP), and a text; "": it did not say.
struct ls_spot {
    uint64_t step;
    char where[LS_WHERE_BYTES];
};

// The spot of this worker, written by any thread at any time, and read by the thread that tells the
// others. It takes no lock: where two write at once, one of them is dropped. Zeroed memory is "did
// not say".
struct ls_said {
    _Atomic uint32_t version; // odd while it is written
    _Atomic uint64_t step;
    _Atomic uint64_t where[LS_WHERE_BYTES / 8];
};

void ls_said_write(struct ls_said *said, uint64_t step, const char *where);
// Leaves `out` as it is where a write is under way.
void ls_said_read(struct ls_said *said, struct ls_spot *out);

// The time between two beats of a member that is lost after a silence of `silence_ns`: a sixth of
// it, at most half a second.
uint64_t ls_beat_ns(uint64_t silence_ns);
// After how long a time without a beat a process must take it that others have lost it: a beat less
// than that silence, and the same again, because beats may be late.
uint64_t ls_stand_ns(uint64_t silence_ns);

// A clock of the time that this thread could observe others: it goes on by at most `most_ns`
// between two looks. When this thread did not run for longer (the process was stopped, the machine
// was busy), then the silence of others is no sign, because they may have been stopped along with
// it.
struct ls_own_clock {
    uint64_t seen_ns; // of the clock of the machine, at the last look
    uint64_t now_ns;
    uint64_t stand_ns; // for ls_own_clock_stood; 0: nobody asks
    uint64_t awake_ns; // of the clock of the machine that counts its sleep, too, at the last look
    uint64_t stood_ns; // own clock, after a stand; 0: there was none
};

// Looks at the clock: how much it went on. The first look begins it.
uint64_t ls_own_clock_look(struct ls_own_clock *clock, uint64_t most_ns);

// Whether this thread has just not run for longer than `stand_ns`, or not long ago (3 times that,
// of its own time). Then the others may have taken this process for lost, and have gone on without
// it.
bool ls_own_clock_stood(const struct ls_own_clock *clock);

// "worker 2 (hostb)", "server 0 (hostb)"; in a cluster of processes that work apart "process 2
// (hostb)". Members are the workers and then the servers.
void ls_member_name(uint32_t member, uint32_t workers, bool apart, const char *host, char *out,
                    size_t bytes);
// "worker 2 (hostb) lost, last heard of in step 117, bucket 0: its connection closed".
void ls_lost_sentence(const char *name, const struct ls_spot *spot, const char *why, char *out,
                      size_t bytes);
// " in step 117, bucket 0"; "" where it did not say.
void ls_spot_text(const struct ls_spot *spot, char *out, size_t bytes);

// What tells the machine of this process from others, as far as shared memory and abstract sockets
// reach: the boot of the kernel, and the namespaces of network and processes.
void ls_machine_identity(char *out, size_t bytes);
void ls_machine_name(char out[LS_NAME_BYTES]);

#endif
