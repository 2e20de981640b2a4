// SPDX-License-Identifier: Apache-2.0
// Who this process is among the workers of a training, from what its launcher put into the
// environment: `lockstep launch`, TF_CONFIG, torchrun, PMIx, Open MPI, PMI, a Slurm step or
// Kubernetes. One file for each in core/place/resolvers. docs/cluster.md is the user's side of
// this.
#ifndef LS_PLACE_RESOLVE_H
#define LS_PLACE_RESOLVE_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LS_HOST_BYTES 256 // a host name or numeric address, with its final zero
#define LS_MOST_WORKERS 65536 // and most servers: more is taken for a mistake
#define LS_DEFAULT_PORT 29400 // of worker 0, where the launcher names a host but no port

// What a process does in a training.
enum ls_worker_role { LS_ROLE_WORKER, LS_ROLE_SERVER };

// The environment that resolvers read: texts "NAME=value", ended by NULL. Borrowed. NULL: that of
// this process, looked up each time, because libraries such as libpmix change it, which moves it.
struct ls_environment {
    const char *const *variables;
};

// The environment of this process.
struct ls_environment ls_environment_of_process(void);

// The value of a variable; NULL: not set. Borrowed.
const char *ls_environment_get(const struct ls_environment *environment, const char *name);

// The place of this process. A plain value: copy it freely, nothing has to be freed.
struct ls_worker_place {
    // Who was asked: "launch", "tf-config", "torchrun", "pmix", "openmpi", "pmi", "slurm",
    // "kubernetes"; "none": this process trains alone.
    const char *resolver;
    char taken[512]; // what was read: "RANK=1 WORLD_SIZE=4 MASTER_ADDR=10.0.0.1 MASTER_PORT=29500"
    char ignored[256]; // variables that look like a launcher's but are incomplete; "": none
    // Names the job where the launcher has a name for it, equal on all its processes: a stale or
    // neighbouring job that meets at the same address differs here. "": the launcher has none.
    char job[128];

    enum ls_worker_role role;
    uint32_t number; // among the processes of this role: 0 .. workers - 1, or 0 .. servers - 1
    uint32_t workers, servers; // at least 1 worker
    uint32_t local_worker,
        local_workers; // on this host; local_workers 0: the launcher does not say

    // Where the store of worker 0 is reached. Address "": worker 0 picks a port, and the workers
    // find it with ls_worker_place_meet(). Not set where this process trains alone.
    char address[LS_HOST_BYTES];
    uint16_t port;
    // On worker 0: a socket that already listens there, inherited from `launch`; -1: none. To be
    // closed by whoever takes it.
    int listen_fd;
    // On worker 0: other hosts reach the store, or may. `address` may stand for a loopback address
    // here: then the store must listen on all interfaces.
    bool reached_from_outside;
    // Where a server must listen, if the launcher says so (TF_CONFIG); "": on any port. The others
    // learn it through the store.
    char own_address[LS_HOST_BYTES];
    uint16_t own_port;
    // Where the servers are, "host:port,host:port"; "": there are none, or the launcher does not
    // say.
    char server_addresses[4096];
    char server_folder[512]; // for the servers' files, as long as the job lasts; "": none
    char pmix_name[256]; // PMIx's name of the job, where the address is found through PMIx

    // The training has begun already, and this process is a new worker for it (LOCKSTEP_JOIN=1):
    // it connects to the store, whatever its number is, and gets a number when the workers form
    // anew. `workers` is at least 2 then, and not the number of workers.
    bool joins;

    uint32_t restart; // how often the launcher has started this process again
};

// Finds the place of this process. `which` is the value of --cluster=: "none", "auto" (the first
// launcher whose variables are complete; none: this process trains alone) or the name of one.
// LS_USAGE, logged in one sentence that says what to do: an unknown name, variables that are
// incomplete and no complete set, variables that contradict each other or make no sense.
// May load libpmix, and then waits for its server 10 s at most. [main thread]
LS_STATUS ls_worker_place_resolve(const char *which, const struct ls_environment *environment,
                                  struct ls_worker_place *out);

// "worker 1 of 4 by torchrun (RANK=1 WORLD_SIZE=4 ...)", cut to `bytes`; those of launch only where
// the log has debug messages.
void ls_worker_place_describe(const struct ls_worker_place *place, char *out, size_t bytes);

// Where server `number` is. LS_USAGE, logged: the launcher does not say, or says it of more or
// fewer servers than there are.
LS_STATUS ls_worker_place_server(const struct ls_worker_place *place, uint32_t number,
                                 char address[LS_HOST_BYTES], uint16_t *port);

// For a place without an address: worker 0 listens on `port` of all its interfaces and tells the
// other workers so through PMIx; they learn the address, and `port` is ignored. Every worker calls
// this, once; servers have no such places. Does nothing where there is an address.
// LS_PEER_LOST, logged: nothing was heard within `deadline_ns` from now. [main thread]
LS_STATUS ls_worker_place_meet(struct ls_worker_place *place, uint16_t port, uint64_t deadline_ns);

// The names of all resolvers in the order in which `auto` asks them, ended by NULL.
const char *const *ls_resolver_names(void);

#endif
