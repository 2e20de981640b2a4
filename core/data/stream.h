// SPDX-License-Identifier: Apache-2.0
// A dataset as a stream of global batches. An input thread gathers them ahead, divided into one
// share for each replica. The order of examples depends only on the seed and the epoch; the last
// batch of an epoch has the remaining examples. Shares of a batch, or of each of its blocks, are
// contiguous, in rank order. Without weights their sizes differ by at most one example (the first
// shares are larger), so with fewer examples than replicas the last replicas get none.
#ifndef LS_DATA_STREAM_H
#define LS_DATA_STREAM_H

#include "core/data/dataset.h"

enum ls_shuffle {
    LS_SHUFFLE_OFF,
    LS_SHUFFLE_ALL, // a new permutation of the whole set each epoch
    LS_SHUFFLE_BUFFER, // through a buffer of `shuffle_buffer` examples, as tf.data does
};

// Replicas that together take a part of each batch in proportion to a weight: those of a worker.
struct ls_share_group {
    uint32_t ranks; // at least 1
    uint32_t weight; // 1 to LS_MOST_SHARE_WEIGHT
};

#define LS_MOST_SHARE_WEIGHT 1000000

// Who shares a batch. A group's part is its quota, count x weight / sum of weights, rounded down;
// the examples that are left go one by one to the groups with the largest remainders, the first of
// equal ones. So a part is less than one example away from its quota, but a larger batch may have a
// smaller part. The ranks of a group share its part evenly.
struct ls_shares {
    uint32_t world; // replicas of the whole job
    uint32_t group_count; // 0: all replicas are one group
    const struct ls_share_group *groups; // in rank order, of all ranks; borrowed
    // A batch is first cut into its blocks, as one device cuts it, and each block is shared: so the
    // blocks of all ranks that are computed at the same time are together one device's. Else it is
    // shared first, and each share is cut.
    bool blocks_first;
    // A batch is cut into so many blocks, whatever the world: its logical shards. A rank has a
    // contiguous row of them, the first ranks one more than the others, and the rest of its blocks
    // are empty. At least `world`; without groups and `blocks_first`. 0: there are none.
    uint32_t shards;
};

struct ls_stream_options {
    uint64_t global_batch;
    struct ls_shares shares;
    uint32_t first_rank; // of this worker
    uint32_t rank_count; // of this worker
    uint32_t blocks; // that a share consists of; 0: 1
    enum ls_shuffle shuffle;
    uint64_t shuffle_buffer; // at least 1; used with LS_SHUFFLE_BUFFER only
    uint64_t seed;
    uint64_t epochs_before; // the first epoch of this stream has this number plus 1
    uint64_t first_example; // of the first epoch; the examples before it in that order are left out
    // What each field of the dataset is delivered as (see ls_can_gather): LS_U8 where the device
    // divides the bytes. 0: as int32 where it is stored so or has classes, else as float32.
    uint32_t dtypes[LS_MAX_FIELDS];
    uint32_t left_out; // bit i: field i is not delivered
    bool augment; // as the dataset says
    uint64_t patience_ns; // that replicas wait before a warning says so, once; 0: for ever
    uint64_t
        prefetch_bytes; // of all ranks of this worker; 0: default (4 MiB); never less than 3 batches
};

// One replica's share of one batch. Valid until its next ls_stream_next.
struct ls_batch {
    uint64_t count; // examples of this share; may be 0
    uint64_t global_count; // examples of the global batch
    uint64_t example_offset; // position of the share in the global batch
    bool even; // all ranks have as many examples
    uint64_t epoch; // from 1
    uint64_t step; // within the epoch, or within the part of it in this stream, from 0
    const struct ls_dataset *dataset; // whose fields follow
    const uint32_t *dtypes; // by field
    const void *fields[LS_MAX_FIELDS]; // by field: count x example, LS_ALIGNMENT; NULL: left out
    // By block, with `blocks_first` or `shards`: examples of this share, one block's after the
    // other's, and the position of the first in the global batch. NULL: the share is contiguous
    // there, and cut evenly.
    const uint64_t *block_counts, *block_offsets;
};

struct ls_stream;

// The share of `rank` in a batch of `count` examples: `blocks` blocks (at least 1). The
// part of its group is cut into that many for each of the group's ranks; they differ by at most one
// example, the first ones larger, and each rank has as many, one after the other. With
// `blocks_first` `offset` is that of the first block; with `shards` it does not matter how many
// blocks there are. Nothing else divides a batch among replicas. [any thread]
void ls_share(const struct ls_shares *shares, uint64_t count, uint32_t blocks, uint32_t rank,
              uint64_t *offset, uint64_t *size);
// Whether all ranks have as many examples of such a batch. [any thread]
bool ls_shares_are_even(const struct ls_shares *shares, uint64_t count);
// Block `index` of it. [any thread]
void ls_share_block(const struct ls_shares *shares, uint64_t count, uint32_t blocks, uint32_t rank,
                    uint32_t index, uint64_t *offset, uint64_t *size);
// The size of the largest share, and of the largest block. [any thread]
uint64_t ls_largest_share(const struct ls_shares *shares, uint64_t count, uint32_t blocks);
uint64_t ls_largest_block(const struct ls_shares *shares, uint64_t count, uint32_t blocks);
// The most shards of a rank: the blocks of a share; 0 where there are no shards. [any thread]
uint32_t ls_most_shards(const struct ls_shares *shares);
// Batches of one epoch: ceil(count / global_batch). [any thread]
uint64_t ls_stream_steps(uint64_t count, uint64_t global_batch);
// Writes the dataset index of each example of an epoch, in order. `order` has `count` entries.
// [any thread]
LS_STATUS ls_stream_order(const struct ls_stream_options *options, uint64_t count, uint64_t epoch,
                          uint32_t *order);

// Starts the input thread. The dataset is borrowed.
LS_STATUS ls_stream_open(const struct ls_dataset *dataset, const struct ls_stream_options *options,
                         struct ls_stream **out);
void ls_stream_close(struct ls_stream *stream); // takes NULL; any thread may be waiting in it

// The next share of `rank` (first_rank .. first_rank + rank_count - 1), epoch after epoch, without
// end. Waits for the input thread and adds the time to `waited_ns` (may be NULL). LS_ABORTED after
// close or abort; what the dataset failed with, when an example cannot be made (logged by one
// replica). [replica thread of `rank`]
LS_STATUS ls_stream_next(struct ls_stream *stream, uint32_t rank, struct ls_batch *out,
                         uint64_t *waited_ns);
void ls_stream_abort(struct ls_stream *stream); // wakes all waiters [any thread]

#endif
