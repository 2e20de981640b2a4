// SPDX-License-Identifier: Apache-2.0
// A worker's connections with servers that are processes. [replica thread]
#ifndef LS_PARAMETER_SERVER_REMOTE_LINK_H
#define LS_PARAMETER_SERVER_REMOTE_LINK_H

#include "plugins/strategy/parameter-server/internal.h"
#include "plugins/strategy/parameter-server/remote.h"

#include <stdbool.h>

// A worker's side of one server.
struct remote_link {
    struct ls_strategy_channel *channel; // NULL: not connected
    const struct shard **shards; // of this server, in their order
    uint32_t shard_count;
    uint64_t *versions; // that this connection has brought
    uint64_t *news; // those of an answer
    bool asked; // the request under way was sent over this connection
    uint64_t failing_since_ns; // 0: the last request was answered
};

struct remote {
    struct ls_strategy *strategy;
    const struct ls_strategy_channels *ops;
    struct remote_link *links; // one a server
    struct worker *worker; // step, learning rate, memory: as of servers that are threads
    struct remote_agreed agreed;
    void *description;
    uint64_t description_bytes;
    uint64_t job; // 0: not known yet
    uint64_t acknowledged; // steps that all servers have applied
    // What a server may not have yet: so many buckets of a step. The next step has a number already
    // when it asks for values, and these are not its gradients.
    uint32_t pushed;
    uint64_t pushed_step, pushed_epoch;
    float *tally; // sums of that step
    double pushed_rate;
    bool silent; // this step's share has no examples: nothing is pushed
    bool met; // all steps are pushed, and all servers said so
    bool rests; // the user ends this worker, before its last step maybe
    bool over; // what failed was said, and there is no sense in trying again
    bool set_up; // some server had nothing, and was told what to keep
};

static inline const struct ls_strategy_host *remote_host(const struct remote *remote)
{
    return remote->strategy->host;
}

static inline uint64_t remote_now_ns(const struct remote *remote)
{
    const struct ls_host *host = remote_host(remote)->host;
    return host->clock_ns(host);
}

static inline uint32_t remote_server_number(const struct remote *remote,
                                            const struct remote_link *link)
{
    return (uint32_t)(link - remote->links);
}

// Whether this server has the first shard of all.
static inline bool remote_keeps_tally(const struct remote *remote, const struct remote_link *link)
{
    return link->shard_count && link->shards[0] == &remote->strategy->plan.shards[0];
}

int32_t remote_send(const struct remote *remote, const struct remote_link *link, uint32_t kind,
                    const void *data, uint64_t bytes);
// The connection is of no use any more, but the server may come back.
bool remote_is_loss(const struct remote *remote, int32_t status);
int32_t remote_say_silent(struct remote *remote, const struct remote_link *link);
// Sends the gradients of a bucket's shards that this server has.
int32_t remote_push_bucket(struct remote *remote, struct remote_link *link, uint32_t bucket);

// Connects until the server welcomes this worker; `again`: and has what this step had pushed.
// LS_PEER_LOST, said: not within the deadline.
int32_t remote_reach(struct remote *remote, struct remote_link *link, bool again,
                     struct remote_welcome *out);
// The server was lost in the middle of something. Then it has all pushes of this step again.
int32_t remote_reach_again(struct remote *remote, struct remote_link *link);

#endif
