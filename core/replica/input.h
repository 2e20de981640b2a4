// SPDX-License-Identifier: Apache-2.0
// The way of a step's input to a device: the inputs of the model, labels, the step record and the
// first values of the step's statistics. Private to replica/. [replica thread]
//
// Three ways: a device that computes in host memory reads batches where they are; others get copies
// on their own stream; a device with streams that take kernels gets them on another one, beside
// what it computes, from pinned memory. These have LS_INPUT_SETS sets of memory in turn, and a
// recording for each, so that a step reads its input where it arrives.
#ifndef LS_REPLICA_INPUT_H
#define LS_REPLICA_INPUT_H

#include "core/replica/internal.h"

// Decides which inputs come as bytes: a device without the operation gets float32. LS_BAD_INPUT
// (logged): more than LS_REPLICA_INPUTS.
LS_STATUS ls_input_open(struct ls_replica *replica, const float *byte_divisors);
void ls_input_close(struct ls_replica *replica);
// Of one example of an input, as it comes.
uint64_t ls_input_example_bytes(const struct ls_replica *replica, uint32_t input);
// Of one example of a label, as it comes and as programs read it.
uint64_t ls_input_label_bytes(const struct ls_graph *graph, uint32_t label);
// For a program that was made: its kernels that make float32 of bytes.
LS_STATUS ls_input_prepare(struct ls_replica *replica, struct ls_replica_program *entry);
// Memory for batches of replica->largest_batch, and replica->record. LS_OUT_OF_MEMORY is not
// logged.
LS_STATUS ls_input_make_room(struct ls_replica *replica);

// Before each batch: it gets set `number` modulo their number, and replica->record is there from
// now on. What is on the own stream reads the set before.
LS_STATUS ls_input_choose(struct ls_replica *replica, uint64_t number);

// Brings replica->host_record and the batch to where `entry` reads them, and the step's statistics
// (LS_STEP_STATS: zeros, or a stop; NULL: not wanted) to the start of replica->reduced. All of it
// is there for what is put on the device's own stream from now on; the caller's memory may be
// changed at once. `entry` is NULL for an empty batch. It waits for the set's memory as `wait`
// says: LS_PEER_LOST after the deadline, not logged.
LS_STATUS ls_input_write(struct ls_replica *replica, const struct ls_replica_program *entry,
                         const struct ls_replica_batch *batch, const float *step_stats,
                         const struct ls_wait *wait);

// ---- The gradient of the model's first output, which the host gives where there is a seed ----

// For replica->largest_batch examples; nothing where the graph has a loss. LS_OUT_OF_MEMORY is not
// logged.
LS_STATUS ls_seed_make_room(struct ls_replica *replica);
void ls_seed_bind(const struct ls_replica *replica, struct ls_program *program);
void ls_seed_release(struct ls_replica *replica);

#endif
