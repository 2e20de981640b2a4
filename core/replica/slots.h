// SPDX-License-Identifier: Apache-2.0
// Slots: fixed places in which whole buckets are while they are used, where a replica holds parts of
// them alone. Two slots are enough for a chain of layers: bucket b is in slot b mod 2. Buckets that
// are used together, as their variables are, get slots of their own.
#ifndef LS_REPLICA_SLOTS_H
#define LS_REPLICA_SLOTS_H

#include "core/replica/buckets.h"

struct ls_slots {
    uint32_t count; // 0: there are none, and buckets are where the flat buffer has them
    uint32_t *of; // by bucket: its slot. Bucket 0 is in slot 0
    uint64_t *at; // by bucket: bytes from the start of slot 0
    uint64_t *places_at; // by place of the plan: likewise
    uint32_t *buckets; // by place of the plan: its bucket
    bool *shared; // by bucket: others are in its slot, too
    uint64_t bytes; // of all slots
};

// In which order a pass over the model needs buckets of parameters in slots that others take in
// between: the same on all replicas, whatever their programs are.
struct ls_walk {
    struct ls_walk_entry {
        uint32_t bucket;
        uint32_t ready; // it is begun when the gradients of so many buckets are ready, not before
    } * list;
    uint32_t count;
};

// For parameters of the graph, and the ways through training and through forward alone.
LS_STATUS ls_slots_of_parameters(const struct ls_parameter_plan *plan, const struct ls_graph *graph,
                                 const struct ls_buckets *buckets, struct ls_slots *out,
                                 struct ls_walk *training, struct ls_walk *forward);

// For gradients of the graph, which is differentiated.
LS_STATUS ls_slots_of_gradients(const struct ls_parameter_plan *plan, const struct ls_graph *graph,
                                const struct ls_buckets *buckets, struct ls_slots *out);
void ls_slots_finish(struct ls_slots *slots);

#endif
