// SPDX-License-Identifier: Apache-2.0
// What the files of the plugin share: the ranks of this process, which are opened and closed
// together, and one of them.
#ifndef LS_COLLECTIVE_NCCL_INTERNAL_H
#define LS_COLLECTIVE_NCCL_INTERNAL_H

#include "core/plugin/collective.h"
#include "plugins/collective/nccl/calls.h"

#include <stdatomic.h>
#include <stdbool.h>

// One rank. Its calls into NCCL come from one thread at a time: that of the rank, after that
// whoever closes the last one.
struct ls_collective {
    struct nccl_family *family;
    struct ls_collective_member member;
    struct ls_native_stream native;
    struct ncclComm *comm; // NULL once aborted
    struct nccl_memory *memory; // a list (memory.c)
};

// The ranks that one process has opened together.
struct nccl_family {
    const struct ls_host *host;
    const struct nccl_calls *calls;
    ncclConfig_t config; // of all communicators
    bool windows; // memory is registered,
    bool needs_windows; // or it is an error
    uint64_t deadline_ns; // of every wait
    int32_t (*check)(void *context); // as struct ls_collective_config says
    void *context;
    uint32_t world, count;
    _Atomic uint32_t open; // ranks not yet closed
    atomic_bool
        aborted; // by somebody, or since one of them failed; then nothing of any rank goes on
    struct ls_collective *ranks[]; // theirs stay until all are closed
};

// ---- communicator.c ----

// As collective.h says them.
int32_t nccl_open(const struct ls_host *host, const struct ls_collective_config *config,
                  struct ls_collective *const *ranks);
void nccl_close(struct ls_collective *collective);
int32_t nccl_poll(struct ls_collective *collective);
void nccl_abort(struct ls_collective *collective);

// Waits until NCCL has put on the stream what it was given: no other call may come before. `error`
// is what it answered.
int32_t nccl_synchronize(struct ls_collective *collective, unsigned error, const char *what);

// ---- pin.c ----

// Puts the options `algorithm` and `protocol` where NCCL finds them: into its environment
// variables.
int32_t nccl_pin(const struct ls_host *host, int version);

// ---- config.c ----

// The options of the communicators. After nccl_pin.
int32_t nccl_configure(const struct ls_host *host, struct nccl_family *family);

// ---- memory.c ----

// As collective.h says them.
int32_t nccl_allocate(struct ls_collective *collective, uint64_t bytes, void **out);
void nccl_release(struct ls_collective *collective, void *memory);

// ---- point_to_point.c ----

// What each rank tells the others before there is a communicator.
struct nccl_peer {
    int32_t status; // LS_OK; else it cannot take part, and has said why
    int32_t version; // of its NCCL
    uint32_t index; // of its GPU in its process
    uint32_t process; // the first rank of its process
    char host[80], gpu[64]; // the same for two ranks: they share it
    char algorithm[64], protocol[32]; // of its environment; "": NCCL chooses
};

void nccl_peer_fill(struct nccl_peer *peer, int32_t status, int version,
                    const struct ls_native_stream *native);
// Whether these ranks can be one communicator; else says which two cannot, and why.
int32_t nccl_peers_check(const struct ls_host *host, const struct nccl_peer *peers, uint32_t world);

// "2.28.9"
void nccl_version_text(int version, char *text, size_t bytes);

#endif
