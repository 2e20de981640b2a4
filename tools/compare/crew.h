// SPDX-License-Identifier: Apache-2.0
// A comparison over several workers. On each of them the process that the launcher has started
// joins the others and then only passes on what is said. A child of it starts the processes of the
// runs, because a process that forks should have one thread, and the cluster has several. The child of worker
// 0 is the one that compares: it tells the others which process to start and when to end it. All
// others follow (tools/compare/follow.h). The processes of a run then are workers of their own.
#ifndef LS_TOOLS_COMPARE_CREW_H
#define LS_TOOLS_COMPARE_CREW_H

#include "core/cluster/cluster.h"
#include "tools/compare/list.h"
#include "tools/compare/race.h"

// Who takes part, as the child knows it.
struct compare_crew {
    uint32_t worker, count; // number of this one; of all
    uint32_t local_worker, local_workers; // on this host; local_workers 0: not known
    uint32_t hosts; // of all workers
    uint32_t crowd; // workers of the host that has most
    char host[64]; // where sockets of worker 0 listen, or are reached
    int line; // to the process that has joined
    const struct compare_list *strategies; // all have the same
    uint32_t runs; // that were started so far
};

struct compare_crew_options {
    const struct ls_worker_place *place; // one of several workers
    const struct ls_run_options *run; // deadlines, secret or not, and whether there is progress
    const struct ls_agreement *agreement;
    uint32_t agreements;
};

// From now on Ctrl-C, SIGTERM and SIGHUP (the terminal was closed) only count interruptions.
// SIGUSR1 means that a worker is lost: it counts as two of them, and a process that does not end
// within seconds is ended.
void compare_catch(void);
int compare_interrupted(void); // 0, 1, or more: how often
bool compare_lost(void);

// Divides this process in two. `passed_on`: this is the one that has joined, the comparison is
// over, and the status that of worker 0. Else `out` is filled. [main thread, the only one]
LS_STATUS compare_crew_divide(const struct compare_crew_options *options, struct compare_crew *out,
                              bool *passed_on);

// ---- For worker 0 ----

// A process on another worker that has failed, and not because it lost one.
struct compare_other {
    uint32_t worker; // 0: there is none
    enum compare_end end;
    int code, signal;
    char message[512]; // "worker 1: ..."; "": none
};

// All others start their process of a run. `number` is how they know it from now on, and `meeting`
// where this worker's own meets them. LS_FAILED, logged; LS_PEER_LOST: a worker is lost, or wants
// no more.
LS_STATUS compare_crew_start(struct compare_crew *workers, const struct compare_setting *setting,
                             const struct compare_entry *entry, uint32_t *number,
                             struct compare_meeting *meeting);
// Whether the process of another worker has ended, or nobody knows any more.
bool compare_crew_any_ended(const struct compare_crew *workers, uint32_t number);
// All others wait until their process has ended; after `patience_ns` they end it. Does nothing on
// them. `other` may be NULL.
LS_STATUS compare_crew_end(struct compare_crew *workers, uint32_t number, uint64_t patience_ns,
                           struct compare_other *other);

// In a child that is no part of this.
void compare_crew_leave(struct compare_crew *workers);

#endif
