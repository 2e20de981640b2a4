// SPDX-License-Identifier: Apache-2.0
// What the two files of a server process share: its setup and shards (remote_shards.c), and how it
// answers (remote_server.c).
#ifndef LS_PARAMETER_SERVER_REMOTE_SERVER_H
#define LS_PARAMETER_SERVER_REMOTE_SERVER_H

#include "plugins/strategy/parameter-server/internal.h"
#include "plugins/strategy/parameter-server/remote.h"
#include "plugins/strategy/parameter-server/shard_file.h"

#define NO_PEER UINT32_MAX

// A worker, whether it is connected or not.
struct remote_worker {
    uint32_t peer; // NO_PEER: it is not connected
    bool welcome; // it has been answered its hello
    bool done; // it has made all its steps, and left
    bool rests; // its user ends it: nobody waits for its steps before it comes back
    uint64_t reached; // steps that are pushed, as far as is known
    uint64_t heard_ns;
    uint64_t *sent; // version of each shard that its connection has brought, plus one; 0: none
    struct remote_hello hello; // of its connection
    uint32_t waits; // for an answer to REMOTE_PULL or REMOTE_MEET; 0: for nothing
    struct remote_request request;
    uint64_t waits_since_ns, told_ns;
    uint32_t held_back;
};

// A shard where it is kept.
struct remote_held {
    struct remote_shard shard;
    struct ls_store *store;
};

struct remote_server {
    const struct ls_server_host *host;
    struct settings settings;
    struct shard_file file;
    uint64_t job; // 0: no setup yet
    bool goes_on; // with what a server before this one has left in the file
    struct remote_agreed agreed;
    struct remote_held *held;
    uint32_t held_count;
    uint32_t tally_count; // of the tally that is kept with the first shard; 0: none
    uint64_t tally_at; // bytes from the first shard's values
    // The setup that worker 0 is sending.
    uint8_t *setup;
    uint64_t setup_bytes;
    uint32_t setup_peer; // NO_PEER: none
    uint32_t initials; // shards whose values have come
    struct remote_worker *workers;
    struct pace pace;
    struct remote_counts counts;
    uint64_t alone_since_ns; // 0: somebody is connected
    uint64_t interrupted_ns; // when the user ended this process; 0: not yet
};

void *remote_allocate(const struct remote_server *server, uint64_t count, uint64_t bytes);
void remote_release(const struct remote_server *server, void *memory);

// Opens the file, and goes on with what is in it.
int32_t remote_shards_open(struct remote_server *server);
void remote_shards_close(struct remote_server *server, bool remove);
// LS_BAD_INPUT: it makes no sense; other errors end the server.
int32_t remote_shards_setup(struct remote_server *server, const void *data, uint64_t bytes);
int32_t remote_shards_initial(struct remote_server *server, const void *data, uint64_t bytes);
int32_t remote_shards_push(struct remote_server *server, uint32_t worker, const void *data,
                           uint64_t bytes);
// The least and the largest number of this worker's last pushes to the shards.
void remote_shards_position(const struct remote_server *server, uint32_t worker, uint64_t *least,
                            uint64_t *most);
// The sums of the epoch; zeros: no push of it has come.
void remote_shards_tally(const struct remote_server *server, uint64_t epoch, double *out);
uint64_t remote_shards_updates(const struct remote_server *server);
// The largest message that a worker may send now.
uint64_t remote_shards_most(const struct remote_server *server);

#endif
