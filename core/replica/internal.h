// SPDX-License-Identifier: Apache-2.0
// What a replica is inside. Private to core/replica and the tests of its insides; all others have
// the accessors of replica.h.
#ifndef LS_REPLICA_INTERNAL_H
#define LS_REPLICA_INTERNAL_H

#include "core/replica/capture.h"
#include "core/replica/deferred_results.h"
#include "core/replica/replica.h"
#include "core/replica/slots.h"
#include "core/replica/updater.h"

#include <stdatomic.h>

#define LS_TREE_LEVELS 32 // 2^32 blocks
#define LS_STEP_KINDS 2 // global batches of an epoch have two sizes: all but the last, and the last

// Which pass over the share a program makes; what it puts on the stream depends on it.
enum {
    LS_PASS_WHOLE, // the whole share at once; or an evaluation
    LS_PASS_LAST, // of several blocks
    LS_PASS_ADDED, // plus k: an earlier block, added to the sums of 1, 2, ... 2^(k-1) blocks
    LS_PASS_COUNT = LS_PASS_ADDED + LS_TREE_LEVELS,
};

// One program and where it may be cut.
struct ls_replica_program {
    struct ls_program *program; // NULL: of an empty block, which zeroes its gradients
    uint32_t *bucket_ends; // for each bucket: the step after which it is complete, plus one
    uint32_t *bucket_needs; // for each bucket: the first step that reads its parameters
    // By entry of the walk through slots of parameters: from which step on it may be begun, and the
    // step that reads it; NULL: there are none.
    uint32_t *walk_starts, *walk_needs;
    uint32_t *bucket_writes; // for each bucket: the first step that writes its gradients
    enum ls_purpose purpose; // a replica has one program for each {batch, purpose}
    // Of each input: makes float32 of values that come as bytes; NULL: none.
    struct ls_kernel *from_bytes[LS_REPLICA_INPUTS];
    uint64_t runs; // in which its kernels were timed, so no replays
    uint64_t
        first_step; // number of the step in which it ran first in this fit; 0: it did not run yet
    bool warm; // it has run in a later one, since when its kernels' times are kept
    // By kind of step, by pass, then by bucket (and what comes after the last).
    struct ls_capture *captures;
};

struct ls_recorder {
    const char *refusal; // why nothing is recorded; NULL: nothing is against it
    bool
        together; // nothing within the step under way is recorded by itself: all of it is, or nothing
    bool whole; // the last step was one section
    // Steps that are recorded together: the size of the global batch, of each kind, and the kind of
    // this step. All replicas see the same sizes, while their own shares may fall together: a share
    // of 2 is the usual one of this replica in a batch of 5, and that of another in the last batch
    // only. What they do together they must record together.
    uint64_t kinds[LS_STEP_KINDS];
    uint32_t kind;
    bool
        as_it_is; // this step is not recorded: it may not be, or is of one kind more than there are
    bool differed; // some step was not recorded because the shares of replicas differed
    uint32_t replays, parts; // in this step so far; the most in one
};

// Device memory that grows with the programs.
struct ls_replica_room {
    struct ls_memory memory;
    uint64_t bytes;
};

// The gradient of the model's first output, which the host gives where the graph has a seed.
struct ls_seed {
    struct ls_memory memory; // that programs read
    float *values; // that the host writes: the same memory, or where the device has its own, a copy
    uint64_t bytes;
};

struct ls_replica {
    const struct ls_host *host;
    struct ls_device *device;
    const char *device_name;
    uint32_t rank;
    const struct ls_graph *graph;
    struct ls_optimizer optimizer;
    struct ls_parameter_plan *plan;
    struct ls_buckets buckets;
    struct ls_replica_program **programs; // in the order in which they were needed
    uint32_t program_count;
    struct ls_replica_program empty; // of an empty block
    struct ls_replica_program *current; // that ran last; NULL: none, or the empty one
    uint64_t steps; // begun
    struct ls_branch *branch; // of training programs; NULL: they have none
    bool branch_always; // else only where they are recorded

    // Device memory.
    struct ls_memory parameters; // LS_STEP_STATS_BYTES behind the start of `room`
    struct ls_memory
        room; // of parameters: as `reduced` is of gradients, so that both are cut alike
    struct ls_memory reduced; // the step's statistics and gradients: what buckets are made of
    bool reduced_is_lent; // it is the caller's memory
    // LS_STEP_STATS_BYTES behind the start of `reduced`: the flat buffer, or slots
    struct ls_memory gradients;
    struct ls_memory totals; // as the plan has them; nowhere without
    struct ls_memory states[LS_OPTIMIZER_STATES]; // the ranges that are held, one after the other
    struct ls_held_part { // of a bucket, in floats
        struct ls_held_range range; // of the flat buffers
        uint64_t at; // where it begins in memory that has the ranges one after the other
    } * held[LS_HELD_KINDS]; // one a bucket
    bool holds_all[LS_HELD_KINDS];
    struct ls_memory parts[LS_HELD_KINDS]; // of parameters or gradients; nowhere: flat buffers
    struct ls_slots slots[LS_HELD_KINDS]; // of parameters or gradients in parts: whole buckets
    struct ls_walk walks[2]; // of training, and of forward alone, through slots of parameters
    uint64_t *shadows_at; // by shadow of the plan, where parameters are in slots: bytes
    struct ls_replica_room shadows;
    struct ls_replica_room arena;
    struct ls_replica_room scratch; // of shadows, updates and sums of blocks
    struct ls_memory evaluation_sums;
    struct ls_memory counts; // of the last pass: floats that metrics count in
    float *found; // the same on the host
    double *found_before; // in the blocks of the step before the last pass
    bool counts_whole; // `counts` has those of these blocks too
    _Atomic double *counted; // of all passes since they were cleared
    struct ls_memory record; // a struct ls_step_record
    struct ls_input *input; // the way of batches to the device (input.h)
    uint32_t set; // of the input that is read
    bool may_stop; // `reduced` may have a stop that is not this step's

    uint32_t microbatches; // of this fit
    uint32_t levels; // of the tree in which blocks are added, that there is memory for
    struct ls_memory accumulated[LS_TREE_LEVELS]; // sums and gradients of 1, 2, 4, ... blocks
    struct ls_shard_sums *shard_sums; // NULL: there are no logical shards, and blocks are added
    struct ls_kernel **adds; // one a bucket: two ranges of its size into the first; NULL: not yet
    struct ls_updater **updates; // one a bucket; NULL without an optimizer
    struct ls_memory measures; // those of an updater's own, then of each place that is reduced
    double *measured; // the latter on the host, where there is a loss scale
    struct ls_loss_scale_state scale, scale_before;
    bool overflow, decided; // of the step under way, where there is a loss scale
    struct ls_kernel *guard; // of the loss; NULL: the device has none
    struct ls_memory failed; // an I32: a loss was not finite
    struct ls_deferred_results deferred; // sums on their way to the host
    struct ls_recorder recorder;
    struct ls_seed seed;
    struct ls_capture *update_captures; // one a bucket, and one of all after a decision
    struct ls_capture shadows_capture;
    uint64_t deadline_ns;
    uint64_t scratch_bytes, arena_bytes; // that the programs need
    uint64_t device_bytes; // allocated
    uint64_t label_bytes; // of one example, all labels together
    uint64_t largest_batch;
    struct ls_step_record host_record;
    uint64_t update_ns; // in all steps so far
    bool timing;
};

// ---- capture.c ----
// Whether the device records, and the user has not said that it should not. After the device was
// opened.
void ls_recorder_init(struct ls_replica *replica, const struct ls_host *host);
// A step of training begins.
void ls_recorder_begin_step(struct ls_replica *replica, uint64_t global_count,
                            enum ls_step_recording recording);
void ls_captures_release(struct ls_replica *replica, struct ls_capture *captures, uint32_t count);

#endif
