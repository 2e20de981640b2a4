// SPDX-License-Identifier: Apache-2.0
// Streams: every example once an epoch, the same order for every world, waiting, stopping.
#include "core/data/stream.h"
#include "tests/core/data/capture.h"
#include "tests/support/suite.h"

#include <pthread.h>
#include <time.h>

#define MOST_EXAMPLES 300
#define ELEMENTS 3

// Example i is (i, i + 0.25, i + 0.5) and its label i.
static float examples[MOST_EXAMPLES][ELEMENTS];
static int32_t labels[MOST_EXAMPLES];

static struct ls_dataset numbers(uint64_t count)
{
    for (int i = 0; i < MOST_EXAMPLES; i++) {
        labels[i] = i;
        for (int e = 0; e < ELEMENTS; e++)
            examples[i][e] = (float)i + 0.25f * (float)e;
    }
    return (struct ls_dataset){.count = count,
                               .field_count = 2,
                               .fields = {{.name = "x",
                                           .role = LS_FIELD_INPUT,
                                           .dtype = LS_F32,
                                           .ndims = 1,
                                           .dims = {ELEMENTS},
                                           .divisor = 1,
                                           .values = examples,
                                           .stride = sizeof(examples[0])},
                                          {.name = "y",
                                           .role = LS_FIELD_TARGET,
                                           .dtype = LS_I32,
                                           .divisor = 1,
                                           .class_count = MOST_EXAMPLES,
                                           .values = labels,
                                           .stride = sizeof(labels[0])}}};
}

// Reads one epoch of all ranks of a worker and writes the labels in order of the global batches.
// Looks at everything that a batch says about itself.
static void read_epoch(struct ls_stream *stream, const struct ls_stream_options *options,
                       uint64_t count, uint64_t epoch, int32_t *out)
{
    const uint64_t steps = ls_stream_steps(count, options->global_batch);
    for (uint64_t step = 0; step < steps; step++) {
        const uint64_t before = step * options->global_batch;
        const uint64_t wanted =
            count - before < options->global_batch ? count - before : options->global_batch;
        for (uint32_t i = 0; i < options->rank_count; i++) {
            struct ls_batch batch;
            const uint32_t rank = options->first_rank + i;
            ck_assert_int_eq(ls_stream_next(stream, rank, &batch, NULL), LS_OK);
            const uint32_t blocks = options->blocks ? options->blocks : 1;
            uint64_t offset, size, k = 0;
            ls_share(&options->shares, wanted, blocks, rank, &offset, &size);
            ck_assert_uint_eq(batch.count, size);
            ck_assert_uint_eq(batch.example_offset, offset);
            ck_assert(!batch.block_counts ==
                      !(options->shares.blocks_first || options->shares.shards));
            ck_assert_uint_eq(batch.global_count, wanted);
            ck_assert_uint_eq(batch.epoch, epoch);
            ck_assert_uint_eq(batch.step, step);
            ck_assert_uint_eq((uintptr_t)batch.fields[0] % LS_ALIGNMENT, 0);
            const int32_t *classes = batch.fields[1];
            for (uint32_t block = 0; block < blocks; block++) {
                ls_share_block(&options->shares, wanted, blocks, rank, block, &offset, &size);
                if (batch.block_counts) {
                    ck_assert_uint_eq(batch.block_counts[block], size);
                    ck_assert_uint_eq(batch.block_offsets[block], offset);
                }
                for (uint64_t at = 0; at < size; at++, k++) {
                    ck_assert_mem_eq((const float *)batch.fields[0] + k * ELEMENTS,
                                     examples[classes[k]], sizeof(examples[0]));
                    out[before + offset + at] = classes[k];
                }
            }
            ck_assert_uint_eq(k, batch.count);
        }
    }
}

static void expect_each_once(const int32_t *seen, uint64_t count)
{
    uint8_t found[MOST_EXAMPLES] = {0};
    for (uint64_t i = 0; i < count; i++)
        ck_assert_uint_eq(found[seen[i]]++, 0);
}

// Sizes that leave every remainder, worlds of 1 to 8, blocks that are cut first or last, logical
// shards: each example once, in the order of ls_stream_order.
LOOP_TEST(every_example_comes_once_an_epoch_in_the_same_order_for_every_world, 1, 9)
{
    const uint32_t world = (uint32_t)_i;
    for (uint64_t count = 1; count <= 40; count += count < 20 ? 1 : 7)
        for (uint64_t global = 1; global <= 12; global++) {
            const struct ls_dataset dataset = numbers(count);
            const bool shards = global % 3 == 2;
            struct ls_stream_options options = {
                .global_batch = global,
                .shares = {.world = world,
                           .blocks_first = global % 3 == 1,
                           .shards = shards ? world + (uint32_t)(count % 4) : 0},
                .rank_count = world,
                .blocks = (uint32_t)(count % 5),
                .shuffle = LS_SHUFFLE_ALL,
                .seed = 5};
            if (shards)
                options.blocks = ls_most_shards(&options.shares);
            struct ls_stream *stream;
            ck_assert_int_eq(ls_stream_open(&dataset, &options, &stream), LS_OK);
            for (uint64_t epoch = 1; epoch <= 3; epoch++) {
                int32_t seen[MOST_EXAMPLES];
                uint32_t order[MOST_EXAMPLES];
                read_epoch(stream, &options, count, epoch, seen);
                expect_each_once(seen, count);
                ck_assert_int_eq(ls_stream_order(&options, count, epoch, order), LS_OK);
                for (uint64_t i = 0; i < count; i++)
                    ck_assert_int_eq(seen[i], (int32_t)order[i]);
            }
            ls_stream_close(stream);
        }
}

// Whatever the world, the shards of a batch are the same: each once, in order, of one rank.
LOOP_TEST(logical_shards_do_not_depend_on_the_world, 1, 14)
{
    const uint32_t shards = (uint32_t)_i;
    for (uint64_t batch = 0; batch < 40; batch += 1 + batch / 3)
        for (uint32_t world = 1; world <= shards; world++) {
            const struct ls_shares shares = {.world = world, .shards = shards};
            const struct ls_shares one = {.world = 1, .shards = shards};
            const uint32_t blocks = ls_most_shards(&shares);
            uint64_t end = 0;
            uint32_t shard = 0;
            for (uint32_t rank = 0; rank < world; rank++) {
                uint64_t first, whole, offset, size, wanted, wanted_size, sum = 0;
                ls_share(&shares, batch, 1, rank, &first, &whole);
                ck_assert_uint_eq(first, end);
                ck_assert_uint_le(whole, ls_largest_share(&shares, batch, 1));
                for (uint32_t block = 0; block < blocks; block++) {
                    const bool own = block < shards / world + (rank < shards % world);
                    ls_share_block(&shares, batch, blocks, rank, block, &offset, &size);
                    ck_assert(own || size == 0);
                    ck_assert_uint_le(size, ls_largest_block(&shares, batch, blocks));
                    if (!own)
                        continue;
                    ls_share_block(&one, batch, shards, 0, shard++, &wanted, &wanted_size);
                    ck_assert_uint_eq(offset, wanted);
                    ck_assert_uint_eq(size, wanted_size);
                    sum += size;
                }
                ck_assert_uint_eq(sum, whole);
                end += whole;
            }
            ck_assert_uint_eq(shard, shards);
            ck_assert_uint_eq(end, batch);
        }
}

TEST(eight_bit_examples_come_as_stored_when_bytes_are_wanted)
{
    uint8_t stored[7][ELEMENTS];
    struct ls_dataset dataset = numbers(7);
    struct ls_stream_options options = {.global_batch = 4, .shares.world = 1, .rank_count = 1};
    for (int i = 0; i < 7 * ELEMENTS; i++)
        stored[i / ELEMENTS][i % ELEMENTS] = (uint8_t)(255 - 11 * i);
    for (int wanted = 0; wanted < 3; wanted++) { // not, of bytes, of floats
        struct ls_stream *stream;
        struct ls_batch batch;
        options.dtypes[0] = wanted == 1 ? LS_U8 : 0;
        dataset.fields[0].dtype = wanted < 2 ? LS_U8 : LS_F32;
        dataset.fields[0].values = wanted < 2 ? (const void *)stored : examples;
        dataset.fields[0].stride = wanted < 2 ? sizeof(stored[0]) : sizeof(examples[0]);
        ck_assert_int_eq(ls_stream_open(&dataset, &options, &stream), LS_OK);
        for (uint64_t first = 0; first < 7; first += 4) {
            ck_assert_int_eq(ls_stream_next(stream, 0, &batch, NULL), LS_OK);
            ck_assert_uint_eq(batch.dtypes[0], wanted == 1 ? LS_U8 : LS_F32);
            const uint64_t count = batch.count * ELEMENTS;
            if (wanted == 1)
                ck_assert_mem_eq(batch.fields[0], stored[first], count);
            else if (wanted == 2)
                ck_assert_mem_eq(batch.fields[0], examples[first], count * sizeof(float));
            else
                ck_assert_float_eq(((const float *)batch.fields[0])[count - 1],
                                   (float)stored[first + batch.count - 1][ELEMENTS - 1]);
        }
        ls_stream_close(stream);
    }
}

// A picture, a window of a text whose windows overlap, a class and a weight: all of the same example, in shares of
// every size.
LOOP_TEST(all_fields_of_an_example_come_together, 1, 7)
{
    enum { PIXELS = 5, LENGTH = 4, STRIDE = 3 };
    static uint8_t pixels[MOST_EXAMPLES][PIXELS], classes[MOST_EXAMPLES];
    static int32_t text[MOST_EXAMPLES * STRIDE + LENGTH];
    static float weights[MOST_EXAMPLES];
    const uint64_t count = 23;
    const uint32_t world = (uint32_t)_i;
    for (int i = 0; i < MOST_EXAMPLES; i++) {
        classes[i] = (uint8_t)(i % 251);
        weights[i] = 1 / (1 + (float)i);
        for (int e = 0; e < PIXELS; e++)
            pixels[i][e] = (uint8_t)(i * 7 + e);
    }
    for (int i = 0; i < MOST_EXAMPLES * STRIDE + LENGTH; i++)
        text[i] = 1000 + i;
    const struct ls_dataset dataset = {.count = count,
                                       .field_count = 4,
                                       .fields = {{.name = "x",
                                                   .role = LS_FIELD_INPUT,
                                                   .dtype = LS_U8,
                                                   .ndims = 1,
                                                   .dims = {PIXELS},
                                                   .divisor = 255,
                                                   .values = pixels,
                                                   .stride = PIXELS},
                                                  {.name = "x2",
                                                   .role = LS_FIELD_INPUT,
                                                   .dtype = LS_I32,
                                                   .ndims = 1,
                                                   .dims = {LENGTH},
                                                   .divisor = 1,
                                                   .values = text,
                                                   .stride = 4 * STRIDE},
                                                  {.name = "y",
                                                   .role = LS_FIELD_TARGET,
                                                   .dtype = LS_U8,
                                                   .divisor = 1,
                                                   .class_count = 251,
                                                   .values = classes,
                                                   .stride = 1},
                                                  {.name = "weight",
                                                   .role = LS_FIELD_WEIGHT,
                                                   .dtype = LS_F32,
                                                   .divisor = 1,
                                                   .values = weights,
                                                   .stride = 4}}};
    struct ls_stream_options options = {
        .global_batch = 5, .shares.world = world, .rank_count = world, .shuffle = LS_SHUFFLE_ALL};
    for (int bytes = 0; bytes < 2; bytes++) {
        struct ls_stream *stream;
        uint32_t order[MOST_EXAMPLES];
        uint64_t seen = 0, empty = 0;
        options.dtypes[0] = bytes ? LS_U8 : LS_F32;
        ck_assert_int_eq(ls_stream_open(&dataset, &options, &stream), LS_OK);
        ck_assert_int_eq(ls_stream_order(&options, count, 1, order), LS_OK);
        while (seen < count) {
            for (uint32_t rank = 0; rank < world; rank++) {
                struct ls_batch batch;
                ck_assert_int_eq(ls_stream_next(stream, rank, &batch, NULL), LS_OK);
                ck_assert_ptr_eq(batch.dataset, &dataset);
                ck_assert(batch.dtypes[1] == LS_I32 && batch.dtypes[2] == LS_I32 &&
                          batch.dtypes[3] == LS_F32);
                empty += batch.count == 0;
                for (uint64_t k = 0; k < batch.count; k++) {
                    const uint32_t example = order[seen++];
                    for (uint32_t field = 0; field < 4; field++)
                        ck_assert_uint_eq((uintptr_t)batch.fields[field] % LS_ALIGNMENT, 0);
                    if (bytes)
                        ck_assert_mem_eq((const uint8_t *)batch.fields[0] + k * PIXELS,
                                         pixels[example], PIXELS);
                    for (int e = 0; !bytes && e < PIXELS; e++)
                        ck_assert(((const float *)batch.fields[0])[k * PIXELS + (uint64_t)e] ==
                                  (float)pixels[example][e] / 255);
                    ck_assert_mem_eq((const int32_t *)batch.fields[1] + k * LENGTH,
                                     text + example * STRIDE, LENGTH * sizeof(int32_t));
                    ck_assert_int_eq(((const int32_t *)batch.fields[2])[k], classes[example]);
                    ck_assert(((const float *)batch.fields[3])[k] == weights[example]);
                }
            }
        }
        ck_assert_uint_eq(seen, count);
        ck_assert((empty > 0) == (world > 3)); // the last batch has 3 examples
        ls_stream_close(stream);
    }
}

// One worker's replicas after the other's, also where a share is empty.
TEST(weighted_shares_give_every_example_once_in_the_same_order)
{
    static const struct ls_share_group groups[] = {{2, 5}, {1, 2}, {1, 1000}, {2, 1}};
    const struct ls_dataset dataset = numbers(101);
    int32_t seen[MOST_EXAMPLES];
    uint32_t order[MOST_EXAMPLES];
    struct ls_stream_options options = {.global_batch = 11,
                                        .shares = {.world = 6, .group_count = 4, .groups = groups},
                                        .shuffle = LS_SHUFFLE_ALL,
                                        .seed = 5};
    for (uint32_t i = 0; i < 4; i++) {
        struct ls_stream *stream;
        options.rank_count = groups[i].ranks;
        ck_assert_int_eq(ls_stream_open(&dataset, &options, &stream), LS_OK);
        read_epoch(stream, &options, 101, 1, seen);
        ls_stream_close(stream);
        options.first_rank += groups[i].ranks;
    }
    expect_each_once(seen, 101);
    ck_assert_int_eq(ls_stream_order(&options, 101, 1, order), LS_OK);
    for (int i = 0; i < 101; i++)
        ck_assert_int_eq(seen[i], (int32_t)order[i]);
}

// The last replica takes 5 of 39 examples, but 6 of the 38 at the end of the epoch: more bytes than
// those of a whole batch, rounded up.
TEST(a_smaller_batch_may_have_a_larger_share)
{
    static const struct ls_share_group groups[] = {{1, 3}, {1, 3}, {1, 1}};
    const struct ls_dataset dataset = numbers(2 * 39 - 1);
    const struct ls_stream_options options = {
        .global_batch = 39,
        .shares = {.world = 3, .group_count = 3, .groups = groups},
        .first_rank = 2,
        .rank_count = 1};
    struct ls_stream *stream;
    int32_t seen[MOST_EXAMPLES];
    uint64_t offset, whole, last;
    ls_share(&options.shares, 39, 1, 2, &offset, &whole);
    ls_share(&options.shares, 38, 1, 2, &offset, &last);
    ck_assert_uint_eq(whole, 5);
    ck_assert_uint_eq(last, 6);
    ck_assert_int_eq(ls_stream_open(&dataset, &options, &stream), LS_OK);
    for (uint64_t epoch = 1; epoch <= 3; epoch++)
        read_epoch(stream, &options, dataset.count, epoch, seen);
    ls_stream_close(stream);
}

TEST(workers_that_hold_some_of_the_ranks_get_their_shares)
{
    const struct ls_dataset dataset = numbers(50);
    int32_t seen[MOST_EXAMPLES];
    uint32_t order[MOST_EXAMPLES];
    const uint32_t ranks[3] = {3, 1, 4};
    struct ls_stream_options options = {
        .global_batch = 11, .shares.world = 8, .shuffle = LS_SHUFFLE_BUFFER, .shuffle_buffer = 20};
    for (int worker = 0; worker < 3; worker++) {
        struct ls_stream *stream;
        options.rank_count = ranks[worker];
        ck_assert_int_eq(ls_stream_open(&dataset, &options, &stream), LS_OK);
        read_epoch(stream, &options, 50, 1, seen);
        struct ls_batch batch;
        ck_assert_int_eq(
            ls_stream_next(stream, options.first_rank + options.rank_count, &batch, NULL),
            LS_USAGE);
        ls_stream_close(stream);
        options.first_rank += ranks[worker];
    }
    expect_each_once(seen, 50);
    ck_assert_int_eq(ls_stream_order(&options, 50, 1, order), LS_OK);
    for (int i = 0; i < 50; i++)
        ck_assert_int_eq(seen[i], (int32_t)order[i]);
}

TEST(two_epochs_differ_and_a_seed_repeats)
{
    const struct ls_dataset dataset = numbers(MOST_EXAMPLES);
    const struct ls_stream_options options = {.global_batch = 64,
                                              .shares.world = 2,
                                              .rank_count = 2,
                                              .shuffle = LS_SHUFFLE_ALL,
                                              .seed = 7};
    int32_t seen[2][2][MOST_EXAMPLES];
    for (int run = 0; run < 2; run++) {
        struct ls_stream *stream;
        ck_assert_int_eq(ls_stream_open(&dataset, &options, &stream), LS_OK);
        for (uint64_t epoch = 1; epoch <= 2; epoch++)
            read_epoch(stream, &options, MOST_EXAMPLES, epoch, seen[run][epoch - 1]);
        ls_stream_close(stream);
    }
    ck_assert_mem_eq(seen[0], seen[1], sizeof(seen[0]));
    ck_assert_mem_ne(seen[0][0], seen[0][1], sizeof(seen[0][0]));
}

TEST(more_replicas_than_examples_of_a_batch_leave_some_with_none)
{
    const struct ls_dataset dataset = numbers(8);
    const struct ls_stream_options options = {
        .global_batch = 7, .shares.world = 8, .rank_count = 8};
    struct ls_stream *stream;
    ck_assert_int_eq(ls_stream_open(&dataset, &options, &stream), LS_OK);
    for (uint32_t rank = 0; rank < 8; rank++) {
        struct ls_batch batch;
        ck_assert_int_eq(ls_stream_next(stream, rank, &batch, NULL), LS_OK);
        ck_assert_uint_eq(batch.count, rank < 7);
        ck_assert_uint_eq(batch.global_count, 7);
        ck_assert_int_eq(ls_stream_next(stream, rank, &batch, NULL), LS_OK);
        ck_assert_uint_eq(batch.count, rank < 1); // the last batch has one example
        ck_assert_uint_eq(batch.global_count, 1);
    }
    ls_stream_close(stream);
}

TEST(a_ring_of_any_size_gives_the_same)
{
    const struct ls_dataset dataset = numbers(101);
    const uint64_t prefetch[5] = {1, 700, 5000, 100000, 0};
    int32_t seen[5][MOST_EXAMPLES];
    for (int i = 0; i < 5; i++) {
        const struct ls_stream_options options = {.global_batch = 6,
                                                  .shares.world = 3,
                                                  .rank_count = 3,
                                                  .shuffle = LS_SHUFFLE_ALL,
                                                  .prefetch_bytes = prefetch[i]};
        struct ls_stream *stream;
        ck_assert_int_eq(ls_stream_open(&dataset, &options, &stream), LS_OK);
        for (uint64_t epoch = 1; epoch <= 60; epoch++)
            read_epoch(stream, &options, 101, epoch, seen[i]);
        ls_stream_close(stream);
        ck_assert_mem_eq(seen[i], seen[0], 101 * sizeof(int32_t));
    }
}

// ---- Threads ----

struct replica {
    struct ls_stream *stream;
    uint32_t rank;
    uint64_t steps; // UINT64_MAX: until aborted
    _Atomic uint64_t read;
    uint64_t examples;
    uint64_t waited_ns;
    double label_sum;
    enum ls_status status;
};

static void *run_replica(void *argument)
{
    struct replica *replica = argument;
    for (; replica->read < replica->steps; replica->read++) {
        struct ls_batch batch;
        replica->status =
            ls_stream_next(replica->stream, replica->rank, &batch, &replica->waited_ns);
        if (replica->status)
            break;
        replica->examples += batch.count;
        for (uint64_t k = 0; k < batch.count; k++)
            replica->label_sum += ((const int32_t *)batch.fields[1])[k];
    }
    return NULL;
}

LOOP_TEST(replicas_in_threads_read_whole_epochs, 0, 2)
{
    const struct ls_dataset dataset = numbers(MOST_EXAMPLES);
    const struct ls_stream_options options = {.global_batch = 7,
                                              .shares.world = 4,
                                              .rank_count = 4,
                                              .shuffle = LS_SHUFFLE_ALL,
                                              .prefetch_bytes = _i ? 1 : 0};
    const uint64_t epochs = 200;
    struct ls_stream *stream;
    ck_assert_int_eq(ls_stream_open(&dataset, &options, &stream), LS_OK);
    struct replica replicas[4];
    pthread_t threads[4];
    for (uint32_t i = 0; i < 4; i++) {
        replicas[i] = (struct replica){
            .stream = stream, .rank = i, .steps = epochs * ls_stream_steps(MOST_EXAMPLES, 7)};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run_replica, &replicas[i]), 0);
    }
    uint64_t total = 0;
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_int_eq(replicas[i].status, LS_OK);
        total += replicas[i].examples;
        sum += replicas[i].label_sum;
    }
    ck_assert_uint_eq(total, epochs * MOST_EXAMPLES);
    ck_assert(sum == (double)epochs * MOST_EXAMPLES * (MOST_EXAMPLES - 1) / 2);
    ls_stream_close(stream);
}

static void let_pass(long nanoseconds)
{
    nanosleep(&(struct timespec){.tv_nsec = nanoseconds}, NULL);
}

// Ends from whatever state it happens to be in: replicas reading, waiting, or gone.
TEST(abort_and_close_end_everyone)
{
    const struct ls_dataset dataset = numbers(MOST_EXAMPLES);
    for (int round = 0; round < 60; round++) {
        const struct ls_stream_options options = {.global_batch = 5,
                                                  .shares.world = 3,
                                                  .rank_count = 3,
                                                  .prefetch_bytes = round % 2 ? 1 : 0};
        struct ls_stream *stream;
        ck_assert_int_eq(ls_stream_open(&dataset, &options, &stream), LS_OK);
        struct replica replicas[3];
        pthread_t threads[3];
        for (uint32_t i = 0; i < 3; i++) { // the third stops early, so the ring fills up
            replicas[i] = (struct replica){
                .stream = stream, .rank = i, .steps = i < 2 ? UINT64_MAX : (uint64_t)round};
            ck_assert_int_eq(pthread_create(&threads[i], NULL, run_replica, &replicas[i]), 0);
        }
        let_pass(round % 7 * 300000);
        ls_stream_abort(stream);
        ls_stream_abort(stream);
        for (int i = 0; i < 3; i++)
            pthread_join(threads[i], NULL);
        ck_assert_int_eq(replicas[0].status, LS_ABORTED);
        ck_assert_int_eq(replicas[1].status, LS_ABORTED);
        struct ls_batch batch;
        ck_assert_int_eq(ls_stream_next(stream, 0, &batch, NULL), LS_ABORTED);
        ls_stream_close(stream);
    }
}

TEST(close_while_a_replica_waits_ends_it)
{
    const struct ls_dataset dataset = numbers(MOST_EXAMPLES);
    for (int round = 0; round < 20; round++) {
        const struct ls_stream_options options = {.global_batch = 5,
                                                  .shares.world = 2,
                                                  .rank_count = 2,
                                                  .prefetch_bytes = 1,
                                                  .patience_ns = round == 0 ? 500000000 : 0};
        struct ls_stream *stream;
        capture_reset();
        ck_assert_int_eq(ls_stream_open(&dataset, &options, &stream), LS_OK);
        // Rank 1 never reads: rank 0 gets what the ring holds and then sleeps in its next. The data
        // are not late, and nothing is said of them.
        struct replica replica = {.stream = stream, .steps = UINT64_MAX};
        pthread_t thread;
        ck_assert_int_eq(pthread_create(&thread, NULL, run_replica, &replica), 0);
        while (replica.read < 3) // on a busy machine the thread comes late
            let_pass(1000000);
        let_pass(round == 0 ? 700000000 : 20000000);
        ls_stream_close(stream);
        pthread_join(thread, NULL);
        ck_assert_int_eq(replica.status, LS_ABORTED);
        ck_assert_uint_eq(replica.read, 3);
        ck_assert_uint_gt(replica.waited_ns, 0);
        ck_assert_uint_eq(captured_warnings, 0);
    }
}

TEST(open_and_close_at_once_is_clean)
{
    const struct ls_dataset dataset = numbers(MOST_EXAMPLES);
    const struct ls_stream_options options = {
        .global_batch = 5, .shares.world = 2, .rank_count = 2};
    for (int round = 0; round < 100; round++) {
        struct ls_stream *stream;
        ck_assert_int_eq(ls_stream_open(&dataset, &options, &stream), LS_OK);
        ls_stream_close(stream);
    }
    ls_stream_close(NULL);
}

// A reader that lets the input thread fall asleep again and again is always woken in time.
TEST(a_slow_replica_and_a_sleeping_input_thread_find_each_other)
{
    const struct ls_dataset dataset = numbers(MOST_EXAMPLES);
    const struct ls_stream_options options = {
        .global_batch = 5, .shares.world = 1, .rank_count = 1, .prefetch_bytes = 1};
    struct ls_stream *stream;
    ck_assert_int_eq(ls_stream_open(&dataset, &options, &stream), LS_OK);
    for (uint64_t i = 0; i < 300; i++) {
        struct ls_batch batch;
        ck_assert_int_eq(ls_stream_next(stream, 0, &batch, NULL), LS_OK);
        ck_assert_uint_eq(batch.step, i % 60);
        const int32_t first = *(const int32_t *)batch.fields[1];
        let_pass(i % 3 * 200000);
        ck_assert_int_eq(first, *(const int32_t *)batch.fields[1]); // not written over meanwhile
    }
    ls_stream_close(stream);
}

// ---- Options ----

static void expect_refused(const struct ls_dataset *dataset, struct ls_stream_options options,
                           const char *what)
{
    struct ls_stream *stream;
    capture_reset();
    ck_assert_int_eq(ls_stream_open(dataset, &options, &stream), LS_USAGE);
    expect_error("data", what);
}

TEST(a_stream_may_begin_within_an_epoch)
{
    const struct ls_dataset dataset = numbers(50);
    uint32_t order[MOST_EXAMPLES];
    struct ls_stream_options options = {.global_batch = 8,
                                        .shares.world = 3,
                                        .rank_count = 3,
                                        .shuffle = LS_SHUFFLE_ALL,
                                        .seed = 2,
                                        .epochs_before = 4};
    for (uint64_t first = 0; first < 50; first += 7) {
        struct ls_stream *stream;
        int32_t seen[MOST_EXAMPLES];
        options.first_example = first;
        ck_assert_int_eq(ls_stream_open(&dataset, &options, &stream), LS_OK);
        read_epoch(stream, &options, 50 - first, 5, seen);
        ck_assert_int_eq(ls_stream_order(&options, 50, 5, order), LS_OK);
        for (uint64_t i = first; i < 50; i++)
            ck_assert_int_eq(seen[i - first], (int32_t)order[i]);
        read_epoch(stream, &options, 50, 6, seen); // the next one is whole
        ck_assert_int_eq(ls_stream_order(&options, 50, 6, order), LS_OK);
        for (uint64_t i = 0; i < 50; i++)
            ck_assert_int_eq(seen[i], (int32_t)order[i]);
        ls_stream_close(stream);
    }
}

TEST(options_that_cannot_be_are_refused)
{
    const struct ls_dataset dataset = numbers(10), empty = numbers(0);
    const struct ls_stream_options good = {.global_batch = 2, .shares.world = 2, .rank_count = 2};
    struct ls_stream_options options = good;
    expect_refused(&empty, options, "no examples");
    options.global_batch = 0;
    expect_refused(&dataset, options, "at least 1 example");
    options = good;
    options.rank_count = 3;
    expect_refused(&dataset, options, "ranks");
    options = good;
    options.first_rank = 1;
    expect_refused(&dataset, options, "ranks");
    options = good;
    options.rank_count = 0;
    expect_refused(&dataset, options, "ranks");
    options = good;
    options.shuffle = LS_SHUFFLE_BUFFER;
    expect_refused(&dataset, options, "shuffle buffer");
    options = good;
    options.first_example = 10;
    expect_refused(&dataset, options, "no examples left");
    options.first_example = 0;
    options.dtypes[0] = LS_I32;
    expect_refused(&dataset, options, "field 'x' is float32, and cannot be delivered as int32");
}

TEST(a_batch_larger_than_the_set_is_the_set)
{
    const struct ls_dataset dataset = numbers(10);
    const struct ls_stream_options options = {
        .global_batch = UINT64_MAX, .shares.world = 3, .rank_count = 3};
    struct ls_stream *stream;
    int32_t seen[MOST_EXAMPLES];
    ck_assert_int_eq(ls_stream_open(&dataset, &options, &stream), LS_OK);
    read_epoch(stream, &options, 10, 1, seen);
    read_epoch(stream, &options, 10, 2, seen);
    expect_each_once(seen, 10);
    ls_stream_close(stream);
}
