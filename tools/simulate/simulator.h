// SPDX-License-Identifier: Apache-2.0
// The state of a simulation, and what follows its messages. Private to the engine.
#ifndef LS_TOOLS_SIMULATE_SIMULATOR_H
#define LS_TOOLS_SIMULATE_SIMULATOR_H

#include "tools/simulate/simulation.h"
#include "tools/simulate/fabric.h"
#include "tools/simulate/outline.h"
#include "tools/simulate/queue.h"

#define LS_STEP_DONE UINT32_MAX // in `states`; outline.h has the bits of those that are not

struct flow {
    uint32_t state; // enum flow_state of events.c
    uint32_t from, to; // ranks
    uint32_t send, receive; // steps
    uint32_t next; // waits behind it, or is free
    uint32_t hop_count;
    uint32_t settled; // when its rate was last found: number of a settling
    uint64_t pair;
    double left, rate, since; // bytes; bytes a second; seconds
    double latency;
    double slowness; // factor of stragglers
    double longer; // factor of jitter
};

// A flow on one of its links; the list of a link.
struct hop {
    uint32_t link;
    uint32_t next, previous; // hops: flow * longest + number
};

struct link {
    uint32_t first; // hop
    uint32_t flows;
    uint32_t changed; // number of a settling
    uint64_t bytes; // that have passed
};

struct simulator {
    const struct ls_simulation *simulation;
    struct ls_fabric fabric;
    struct ls_outline outline;
    struct ls_queue queue;
    uint32_t *states; // of all steps of all ranks
    uint32_t *last_waiting; // by pair: the flow at the end of the line, NONE: nothing is under way
    struct flow *flows;
    struct hop *hops;
    uint32_t flow_count, flow_capacity, free_flow;
    struct link *links;
    uint32_t *changed; // links
    uint32_t changed_count, settling;
    double *send_free, *receive_free, *compute_free; // by rank: until when it is busy
    double *slowness; // by rank
    double stretch; // how many times as long messages take as the links say
    double latency; // seconds that each takes beside
    uint32_t *route; // scratch
    uint64_t jitter_key;
    double now;
    uint64_t steps_done, messages, sent_bytes;
    uint64_t memory_limit;
    enum ls_status status;
};

// From the first post until nothing more happens. A schedule that is wrong is logged and leaves `status`.
void ls_simulator_run(struct simulator *simulator);

static inline uint32_t *ls_simulator_state(const struct simulator *simulator, uint32_t rank,
                                           uint32_t step)
{
    return &simulator->states[simulator->outline.ranks[rank].first_state + step];
}

#endif
