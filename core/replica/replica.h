// SPDX-License-Identifier: Apache-2.0
// A replica: one copy of the model on one virtual device, with its programs, its flat buffers and
// its optimizer. It knows nothing of other replicas.
//
// Calls come from the replica's own thread, ls_replica_open and ls_replica_destroy included: a
// device chooses kernels by what that thread may use. While that thread rests (no ls_group_run is
// under way), the main thread may make the calls that take a const replica,
// ls_replica_find_not_finite and ls_replica_forget_recordings, and may copy between host memory and
// the buffers of ls_replica_memory.
#ifndef LS_REPLICA_REPLICA_H
#define LS_REPLICA_REPLICA_H

#include "core/graph/program.h"
#include "core/optimizer/optimizer.h"
#include "core/replica/buckets.h"
#include "core/replica/capture.h"
#include "core/replica/slots.h"
#include "core/replica/updater.h"
#include "core/replica/wait.h"

#define LS_REPLICA_INPUTS 8 // the most inputs that a model may have

struct ls_replica_options {
    const struct ls_device_interface *ops;
    const struct ls_host *host; // of the device plugin
    const char *device_name; // for messages; NULL: not known
    uint32_t rank; // of all replicas of the training
    uint32_t device_index;
    uint32_t threads;
    const struct ls_graph *graph; // differentiated; borrowed
    const struct ls_optimizer *optimizer; // NULL: never updated
    uint64_t seed;
    int64_t plan_batch; // for the choice of master layouts: the same on all replicas
    bool plain; // plain layouts
    // Of each input, what its 8-bit values are to be divided by; ls_replica_takes_bytes() then says
    // whether they come as bytes. 0: they come in the type of the input.
    float byte_divisors[LS_REPLICA_INPUTS];
    uint64_t first_bucket_bytes, bucket_bytes;
    bool timing; // per kernel
    uint64_t deadline_ns; // of a wait for the device
    char *lack; // as ls_device_options
};

// `count` floats of a bucket from float `first` of the flat buffers.
struct ls_held_range {
    uint64_t first, count;
};

// What both have; count 0: nothing.
static inline struct ls_held_range ls_held_common(struct ls_held_range a, struct ls_held_range b)
{
    const uint64_t first = a.first > b.first ? a.first : b.first;
    const uint64_t a_end = a.first + a.count, b_end = b.first + b.count;
    const uint64_t end = a_end < b_end ? a_end : b_end;
    return (struct ls_held_range){first, end > first ? end - first : 0};
}

// What a replica may hold in parts.
enum ls_held { LS_HELD_PARAMETERS, LS_HELD_GRADIENTS, LS_HELD_STATES, LS_HELD_KINDS };

// Which ranges of its flat buffers a replica holds.
struct ls_replica_placement {
    // By enum ls_held, of each bucket, which range it holds; count 0: nothing of it. NULL: all.
    // Read in ls_replica_allocate. Where gradients or parameters are not all held, whole buckets are
    // in slots while they are used (core/replica/slots.h).
    const struct ls_held_range *held[LS_HELD_KINDS];
    bool forward; // nothing is trained: it has no gradients
    // Zeroed memory of the caller's for LS_BUFFER_REDUCED; nowhere: the replica takes its own. When
    // it is gone, the replica may only be destroyed.
    struct ls_memory reduced;
};

// What is going to run: sizes of blocks and shares, by enum ls_purpose. A size of 0 is ignored.
struct ls_replica_need {
    struct ls_replica_sizes {
        const uint64_t *list;
        uint32_t count;
    } sizes[LS_PURPOSE_COUNT];
    // Blocks of a share in training, whose gradients are added; 0, 1: the whole share.
    uint32_t microbatches;
    // Logical shards of a batch over all replicas; blocks are kept as these instead of added, of
    // which there are always as many. 0: none.
    uint32_t shards;
};

// What a replica computes on.
struct ls_replica_batch {
    uint64_t count; // may be 0
    uint64_t global_count; // by which gradients are divided; 0 with `count` 0: by the own share
    uint64_t example_offset; // in the global batch
    bool even; // all replicas have as many examples as this one
    uint32_t bytes; // bit i: input i comes as bytes, else in the type of the graph's input
    // All in host memory, one example after the other.
    const void *inputs[LS_REPLICA_INPUTS]; // in the order of the graph's inputs
    const void *labels[LS_GRAPH_LOSSES]; // in the order of the graph's labels
    const float *weights; // of the examples in the loss; read where the graph has them
    // By block of the share: how many examples it has, and where the first is in the global batch.
    // NULL: the share is contiguous there, and is cut evenly.
    const uint64_t *block_counts, *block_offsets;
};

// What of a step is recorded, where the device records.
enum ls_step_recording {
    LS_RECORD_PARTS, // each by itself
    LS_RECORD_WHOLE, // all of it, with what replicas do together
    LS_RECORD_NOTHING, // replicas would have to record the same, and their shares differ
};

struct ls_replica;

// A replica's life:
//   ls_replica_open      opens the device, chooses layouts and buckets; nothing is allocated
//   ls_replica_allocate  the flat buffers, as far as `placement` says (NULL: all of them), zeroed
//   ls_replica_need      makes the programs that are not there yet; before steps, as often as needs
//                        change
//   ls_replica_destroy   takes NULL
LS_STATUS ls_replica_open(const struct ls_replica_options *options, struct ls_replica **out);
LS_STATUS ls_replica_allocate(struct ls_replica *replica,
                              const struct ls_replica_placement *placement);
// Programs, memory and kernels that are there already stay. `changed`: some were made, so that what
// was recorded must be forgotten on all replicas, as they record together. After a failure only
// destroy.
LS_STATUS ls_replica_need(struct ls_replica *replica, const struct ls_replica_need *need,
                          bool *changed);
void ls_replica_destroy(struct ls_replica *replica);
// Whether layouts that are chosen for blocks of `batch` examples are those of this replica.
// Prepares kernels. [replica thread]
LS_STATUS ls_replica_same_layouts(const struct ls_replica *replica, int64_t batch, bool *out);
// Nothing is recorded any more, and nothing counts as having run: what replicas have put into
// recordings together may go away, and steps that follow are recorded anew, by all replicas at the
// same step. [replica thread, or main thread while the replica rests]
void ls_replica_forget_recordings(struct ls_replica *replica);
// Somebody has waited in vain: nothing waits for what this replica has under way any more. Takes
// NULL. [any thread]
void ls_replica_abandon(struct ls_replica *replica);

// Bit i: input i must come as bytes, of which the device makes float32.
uint32_t ls_replica_takes_bytes(const struct ls_replica *replica);
// What a share of `count` examples sends to the device: bytes of inputs and labels. 0: it reads
// host memory.
uint64_t ls_replica_input_bytes(const struct ls_replica *replica, uint64_t count);

// The program that trains blocks of `count` examples; NULL: none was made. `runs` (may be NULL):
// how often its kernels ran one by one, so without replays, and without those of its first step,
// whose caches are cold, where there is another. Its runs and the times of its kernels count from
// the last ls_replica_forget_times.
struct ls_program *ls_replica_training_program(const struct ls_replica *replica, uint64_t count,
                                               uint64_t *runs);
// Runs and times of all programs count anew, as a fit begins. [main thread while the replica rests]
void ls_replica_forget_times(struct ls_replica *replica);

// Block `index` of a share of `count` examples: the first blocks are larger by at most one, the
// last may be empty.
void ls_microbatch(uint64_t count, uint32_t microbatches, uint32_t index, uint64_t *offset,
                   uint64_t *size);

// ---- A step ----
//
//   ls_replica_begin_step
//   for each block of the share
//       ls_replica_begin_block     its input is brought to the device
//       for each bucket            of what the program computes: ls_program_run up to its end, then
//           ls_replica_end_bucket
//       ls_replica_end_block
//   ls_replica_end_step            whatever became of it
//
// That fills the gradients (of the sum of the examples' losses divided by global_count) and the
// sums in the step's statistics. There are as many blocks as microbatches, whatever the size of the
// share; an empty block adds zeros. Blocks are added in a binary tree, ((0 + 1) + (2 + 3)) + ...
// core/strategy/step.c puts the strategy in between.

// A pass over one block: forward and backward.
struct ls_pass {
    struct ls_program *program; // NULL: the block is empty; its gradients and totals are zeros
    // Where parameters are in slots: the order in which it needs them, and by entry from which step
    // of the program on it may be begun and which is the first to read it.
    const struct ls_walk *walk;
    const uint32_t *walk_starts, *walk_needs;
    const uint32_t *writes; // by bucket: the first step of the program that writes its gradients
    const uint32_t *ends; // by bucket: the program's step after which it is complete, plus one
    const uint32_t *needs; // by bucket: the first step of the program that reads its parameters
    // Recordings: by bucket, and of what comes after the last. The first is also that of the pass
    // as a whole, where it is recorded so. NULL: this step runs as it is.
    struct ls_capture *captures;
    uint32_t block;
    bool first, last; // of the share
    bool own; // the last one of an empty share by whose examples gradients would be divided
    bool timed; // kernel by kernel
    bool replays; // its kernels have no times of their own
};

void ls_replica_begin_step(struct ls_replica *replica, const struct ls_replica_batch *batch,
                           uint64_t step, double learning_rate, enum ls_step_recording recording);
// Before a step: normalizes the kernels that the graph says (struct ls_spectral_norm), on the host.
// Every replica does the same with the same values, so that they stay equal to the bit. Parameters
// that a kernel reads a copy of must be refreshed. The replica must hold them whole.
LS_STATUS ls_replica_normalize_kernels(struct ls_replica *replica);
// Name of the first kernel that it would normalize; NULL: none.
const char *ls_replica_normalized_kernel(const struct ls_replica *replica);
uint32_t ls_replica_block_count(const struct ls_replica *replica);
// Block `index` of a share.
struct ls_replica_batch ls_replica_block(const struct ls_replica *replica,
                                         const struct ls_replica_batch *batch, uint32_t index);
// `stop` is added to the step's statistics with the last block. LS_FAILED, logged: no program was
// prepared for its size. Where the memory of an earlier block is still read, it waits as `wait`
// says: LS_PEER_LOST after the deadline, not logged.
LS_STATUS ls_replica_begin_block(struct ls_replica *replica, const struct ls_replica_batch *batch,
                                 uint32_t block, bool stop, const struct ls_wait *wait,
                                 struct ls_pass *out);
// The program is about to write the gradients of a bucket in its slot: what others left is cleared,
// as not everything is written. Nothing without slots.
LS_STATUS ls_replica_begin_bucket(struct ls_replica *replica, uint32_t bucket);
// The slot of a bucket's parameters gets the part that the replica holds, or has the parts of all
// ranks: then what depends on them follows. Nothing without slots.
LS_STATUS ls_replica_fill_slot(struct ls_replica *replica, uint32_t bucket);
LS_STATUS ls_replica_refresh_slot(struct ls_replica *replica, uint32_t bucket);
// The slot of a bucket's gradients has their sums: the part that the replica holds is kept.
LS_STATUS ls_replica_keep_gradients(struct ls_replica *replica, uint32_t bucket);
// What the program does for the bucket is done: its gradients are added to those of the other
// blocks, or zeroed.
LS_STATUS ls_replica_end_bucket(struct ls_replica *replica, const struct ls_pass *pass,
                                uint32_t bucket);
void ls_replica_end_block(struct ls_replica *replica, const struct ls_pass *pass);
// `whole`: nothing of it was outside of what may be recorded.
void ls_replica_end_step(struct ls_replica *replica, bool whole);
// What metrics have counted in the block; when the step is made, with the last of them, it joins
// what they counted before.
LS_STATUS ls_replica_count_block(struct ls_replica *replica, const struct ls_pass *pass);

// Logical shards, where the replica was made for them (need.shards), each of which is a block:
//   ls_replica_keep_shard    after the passes over each block
//   the magnitudes of ls_replica_largest become the maximum over all replicas (int32)
//   for each bucket          with bucket 0, the sums of the step and what metrics count, too
//       ls_replica_add_shards
//       its ls_replica_integers become the sum over all replicas (int64)
//       ls_replica_round_sums
// Then statistics, gradients and counts are those of the global batch, the same bits whichever
// replica computes which shard; NaN where an addend was not finite. `zero`: the replica has zeros
// instead, for a strategy that adds what replicas have, but counts are those of all.
LS_STATUS ls_replica_keep_shard(struct ls_replica *replica, const struct ls_pass *pass);
void ls_replica_add_shards(struct ls_replica *replica, uint32_t bucket);
LS_STATUS ls_replica_round_sums(struct ls_replica *replica, uint32_t bucket, bool zero);
// What travels, in host memory, and how many elements; at the same place in every step.
struct ls_memory ls_replica_largest(const struct ls_replica *replica, uint64_t *count);
struct ls_memory ls_replica_integers(const struct ls_replica *replica, uint32_t bucket,
                                     uint64_t *count);

// Where the graph has no loss but a seed (ls_graph_add_seed) the host gives the gradient of the
// model's first output between the two calls: it is written to ls_replica_output_gradient, plain,
// in host memory, with room for the share; then ls_replica_give_loss puts it and LS_SUMS sums of
// the `count` examples where the backward pass finds them. A loss scale is applied to it.
float *ls_replica_output_gradient(struct ls_replica *replica);
LS_STATUS ls_replica_give_loss(struct ls_replica *replica, uint64_t count, const float *sums);
// Where the model's first output for a share of `count` examples is after a forward pass that keeps
// it: device memory, plain.
LS_STATUS ls_replica_output(const struct ls_replica *replica, uint64_t count,
                            enum ls_purpose purpose, struct ls_memory *out);
// What metrics have counted in the last pass joins what they counted before: where the share is one
// block, instead of ls_replica_count_block. ls_replica_evaluate does it itself.
LS_STATUS ls_replica_count(struct ls_replica *replica);
// Brings what metrics have counted in all blocks of the step under way to LS_BUFFER_COUNTS; what is
// put in its place is what the step counts. Once bucket 0 is ready.
LS_STATUS ls_replica_step_counts(struct ls_replica *replica);
// How many floats that are.
uint32_t ls_replica_count_slots(const struct ls_replica *replica);
// Runs the optimizer on one bucket. Each bucket once a step, in their order: where the optimizer
// looks at all gradients together, the last one updates all, or none.
LS_STATUS ls_replica_update(struct ls_replica *replica, uint32_t bucket);
// Where it does, measures all gradients and updates nothing: for updaters of the caller's. `count`
// pairs, one of each trained variable in their order, are then where ls_replica_updater_memory has
// measures. Not together with ls_replica_update.
LS_STATUS ls_replica_measure(struct ls_replica *replica, uint64_t *count);

// Loss scales, where the optimizer has one. A step is decided once: by ls_replica_update of the
// last bucket, or by a caller that updates elsewhere. It is skipped where gradients are not finite,
// or the loss is not, as ls_replica_note_overflow says before the decision.
void ls_replica_set_scale(struct ls_replica *replica, const struct ls_loss_scale_state *state);
// While steps run, others than the replica's thread may look between its gradients and the
// decision.
const struct ls_loss_scale_state *ls_replica_scale(const struct ls_replica *replica);
// That with which the last step began: of a step that failed, some replicas may not have come to
// the decision.
const struct ls_loss_scale_state *ls_replica_scale_before(const struct ls_replica *replica);
void ls_replica_note_overflow(struct ls_replica *replica);
bool ls_replica_has_overflow(const struct ls_replica *replica);
// Does nothing in a step that is decided.
void ls_replica_decide(struct ls_replica *replica, bool finite);

// After the parameters changed: what depends on them.
LS_STATUS ls_replica_refresh(struct ls_replica *replica);
// The step_stats, in host memory: LS_STEP_STATS floats.
LS_STATUS ls_replica_read_step_stats(struct ls_replica *replica, float *out);

// Whether the host may learn of a step's sums later: the device then guards the updates itself.
bool ls_replica_may_defer(const struct ls_replica *replica);
// Puts on the stream: when the loss in the step's statistics is not finite, no update changes
// anything from here on, in no step.
LS_STATUS ls_replica_guard(struct ls_replica *replica);
// A replica that may defer keeps the step's statistics for the host, LS_DEFERRED_STEPS + 1 of them
// at most (core/replica/deferred_results.h): puts them behind what is on the stream.
LS_STATUS ls_replica_put_step_stats(struct ls_replica *replica, uint64_t step);
// How many were put and not taken yet. `step` (may be NULL): that of the oldest, where there is
// one.
uint64_t ls_replica_pending_step_stats(const struct ls_replica *replica, uint64_t *step);
// Waits for the oldest and takes them: LS_STEP_STATS floats. LS_PEER_LOST after the deadline, not
// logged.
LS_STATUS ls_replica_take_step_stats(struct ls_replica *replica, const struct ls_wait *wait,
                                     float *out);

// An evaluation or prediction whose program the caller runs: as it is to run, between the two, for a
// share that is not empty; then ls_replica_end_evaluate or _end_predict, which take what came of it.
LS_STATUS ls_replica_begin_forward(struct ls_replica *replica, const struct ls_replica_batch *batch,
                                   enum ls_purpose purpose, struct ls_pass *out);
LS_STATUS ls_replica_end_evaluate(struct ls_replica *replica, double *sums);
LS_STATUS ls_replica_end_predict(struct ls_replica *replica, const struct ls_pass *pass,
                                 uint64_t count, float *out);
// Forward pass for evaluation, where parameters are not in slots. The sums of this share are added
// to `sums` (LS_SUMS), at the latest by ls_replica_evaluate_end, which waits for those that are on
// their way, and forgets them where `sums` is NULL.
LS_STATUS ls_replica_evaluate(struct ls_replica *replica, const struct ls_replica_batch *batch,
                              double *sums);
LS_STATUS ls_replica_evaluate_end(struct ls_replica *replica, double *sums);

// What the metrics of the graph count (count_slots floats) is added up, in training and evaluation,
// until it is cleared. Adds it to `sums`. [any thread; cleared while the replica rests]
void ls_replica_add_counts(const struct ls_replica *replica, double *sums);
void ls_replica_clear_counts(struct ls_replica *replica);

// Forward pass for prediction: what the model's first output is for the examples of this share,
// `count` rows, plain, to host memory: the outputs of an example, one after the other. Labels of
// the batch may be NULL.
LS_STATUS ls_replica_predict(struct ls_replica *replica, const struct ls_replica_batch *batch,
                             float *out);

// How steps run, for people: "recorded whole", "recorded in 3 parts", "not recorded: " and why;
// NULL where the device computes on its thread, which is what recordings are for.
#define LS_RECORDING_TEXT 80 // bytes
const char *ls_replica_recording(const struct ls_replica *replica, char *text, size_t bytes);

bool ls_replica_replays(const struct ls_replica *replica);
// Whether nothing is against recordings so far.
bool ls_replica_may_record(const struct ls_replica *replica);

// Names the first operation of the last run whose output is not finite; empty text: none.
// [replica thread, or main thread while the replica rests]
LS_STATUS ls_replica_find_not_finite(struct ls_replica *replica, char *text, size_t bytes);

// ---- What it is made of ----

// Borrowed until the replica is destroyed; the same from ls_replica_open on. [any thread]
struct ls_device *ls_replica_device(const struct ls_replica *replica);
const char *ls_replica_device_name(const struct ls_replica *replica); // "?": not known
const struct ls_parameter_plan *ls_replica_plan(const struct ls_replica *replica);
const struct ls_buckets *ls_replica_buckets(const struct ls_replica *replica);
uint32_t ls_replica_rank(const struct ls_replica *replica); // of all replicas

// The flat buffers. LS_BUFFER_REDUCED is the step's statistics (LS_STEP_STATS floats) and behind
// them LS_BUFFER_GRADIENTS. LS_BUFFER_STATE + k is state k of the optimizer, k <
// LS_OPTIMIZER_STATES. All but the parameters end where frozen parameters begin (reduced_bytes of
// the plan).
enum {
    LS_BUFFER_PARAMETERS = 0,
    LS_BUFFER_STATE = 1,
    LS_BUFFER_GRADIENTS = 64,
    LS_BUFFER_REDUCED = 65,
    LS_BUFFER_TOTALS = 66, // float64, as the plan's totals say; nowhere where there are none
    LS_BUFFER_COUNTS = 67, // what metrics count in a step; nowhere where there are none
};
// A flat buffer in the device's memory; nowhere: the replica does not hold it, or only parts of it
// (ls_replica_held_memory). LS_BUFFER_REDUCED begins with the step's statistics all the same. A
// buffer does not move after ls_replica_allocate. Whoever writes parameters calls
// ls_replica_refresh before the next step. LS_STEP_STATS_BYTES in front of the parameters are the
// replica's, too, and hold nothing: so parameters are cut among ranks as gradients are, which have
// the sums of the step there. [any thread]
struct ls_memory ls_replica_memory(const struct ls_replica *replica, uint32_t buffer);
// The struct ls_step_record of the step under way in the device's memory: for kernels of the
// caller's. It may move in ls_replica_need.
struct ls_memory ls_replica_step_record(const struct ls_replica *replica);

// In the optimizer and in shadows, in all steps so far.
uint64_t ls_replica_update_ns(const struct ls_replica *replica);
// Where ranges of its buffers are that begin with float `first`, for an updater of the caller's,
// which has scratch memory of its own.
struct ls_updater_memory ls_replica_updater_memory(const struct ls_replica *replica,
                                                   uint64_t first);
// Which range of a bucket the replica holds of what is of this kind. [any thread]
struct ls_held_range ls_replica_held(const struct ls_replica *replica, enum ls_held kind,
                                     uint32_t bucket);
// Where all of a place of the plan is in a flat buffer; nowhere: the replica does not hold the
// buffer, or only parts of it. [any thread]
struct ls_memory ls_replica_place_memory(const struct ls_replica *replica, uint32_t buffer,
                                         uint32_t place);
// The slot that a bucket of gradients or parameters is in while it is used, from 0; LS_NO_SLOT: in
// the flat buffer, as all of them are held. [any thread]
#define LS_NO_SLOT UINT32_MAX
uint32_t ls_replica_slot(const struct ls_replica *replica, enum ls_held kind, uint32_t bucket);
// Where the whole bucket is, in the flat buffer or in its slot: of LS_BUFFER_PARAMETERS,
// LS_BUFFER_GRADIENTS or LS_BUFFER_REDUCED, of which bucket 0 begins with the step's statistics.
// [any thread]
struct ls_memory ls_replica_bucket_memory(const struct ls_replica *replica, uint32_t buffer,
                                          uint32_t bucket);
// Where it has that range of a buffer (LS_BUFFER_PARAMETERS, LS_BUFFER_GRADIENTS or
// LS_BUFFER_STATE + k): as many floats as it has, LS_ALIGNMENT bytes aligned; in the flat buffer,
// where all of that is held. [any thread]
struct ls_memory ls_replica_held_memory(const struct ls_replica *replica, uint32_t buffer,
                                        uint32_t bucket);
// Bytes of the device's memory: all that the replica has, and what activations take of it.
void ls_replica_bytes(const struct ls_replica *replica, uint64_t *all, uint64_t *activations);

// One parameter of a flat buffer, but of LS_BUFFER_REDUCED and those behind it, by its index in
// the graph, plain layout. A frozen parameter has zeros where there is none of it: as gradient and
// optimizer state, which cannot be set. After parameters were set: ls_replica_refresh. Of what it
// holds in parts, a replica takes its own part; it can give none back, but ls_replica_export does
// so with what all ranks hold.
LS_STATUS ls_replica_set_buffer(struct ls_replica *replica, uint32_t buffer, uint32_t index,
                                const float *values);
LS_STATUS ls_replica_get_buffer(struct ls_replica *replica, uint32_t buffer, uint32_t index,
                                float *out);
// A parameter, or its state, as it lies in a flat buffer, to the plain layout: the bytes of its
// place, in host memory, aligned to LS_ALIGNMENT. [replica thread]
LS_STATUS ls_replica_export(struct ls_replica *replica, uint32_t index, const float *from,
                            float *out);
// And back: `out`, too, is aligned, and what pads it keeps its values. [replica thread]
LS_STATUS ls_replica_import(struct ls_replica *replica, uint32_t index, const float *from,
                            float *out);
// Of a parameter of which the replica holds the same part in both buffers.
LS_STATUS ls_replica_copy_part(struct ls_replica *replica, uint32_t to, uint32_t from,
                               uint32_t index);
// LS_FAILED, not logged, when a value that the replica holds of the parameter is not finite.
// Overwrites activations.
LS_STATUS ls_replica_check_parameter(struct ls_replica *replica, uint32_t index);
LS_STATUS ls_values_check_finite(const float *values, size_t count); // the same of host memory
// Overwrites activations. XXH64 of all parameters as float32 in plain layout, in name order.
LS_STATUS ls_replica_hash(struct ls_replica *replica, uint64_t *out);
// That order: the indices of the parameters; the caller frees it. NULL: no memory. [any thread]
uint32_t *ls_replica_name_order(const struct ls_replica *replica);

#endif
