// SPDX-License-Identifier: Apache-2.0
// Batches of examples that are made on demand, augmented or repeated: the same bits whatever the
// number of replicas and the size of a batch, and errors that end the stream.
#include "core/data/cache.h"
#include "core/data/crew.h"
#include "core/data/stream.h"
#include "tests/core/data/capture.h"
#include "tests/support/suite.h"

#include <stdatomic.h>
#include <time.h>

#define EXAMPLES 23
#define SIDE 4
#define PIXELS (SIDE * SIDE)

const struct ls_dataset_kind *const ls_dataset_kinds[] = {NULL};

static int32_t labels[EXAMPLES * 2];
static atomic_uint loads;
static uint64_t bad_example;
static uint64_t seen_epoch, expected_next, longest; // of a dataset in order

// Pixel p of example i is i * 10 + p.
static enum ls_status load(const struct ls_dataset *dataset, uint64_t epoch, uint64_t first,
                           uint64_t count, void *const *fields)
{
    atomic_fetch_add(&loads, 1);
    ck_assert(dataset->in_order || count == 1);
    if (dataset->in_order) {
        ck_assert_uint_eq(first, epoch == seen_epoch ? expected_next : 0);
        seen_epoch = epoch;
        expected_next = first + count;
        longest = count > longest ? count : longest;
    }
    for (uint64_t i = 0; i < count; i++) {
        if (first + i >= bad_example) {
            if (first + i == bad_example) { // later ones fail sooner
                const struct timespec pause = {0, 3000000};
                nanosleep(&pause, NULL);
            }
            ls_error("test", "example %d is bad", (int)(first + i));
            return LS_BAD_INPUT;
        }
        for (int p = 0; p < PIXELS; p++)
            ((uint8_t *)fields[0])[i * PIXELS + (uint64_t)p] =
                (uint8_t)((first + i) * 10 + (uint64_t)p);
    }
    return LS_OK;
}

static void do_nothing(struct ls_dataset *dataset)
{
    (void)dataset;
}

static struct ls_dataset made(void)
{
    for (int i = 0; i < EXAMPLES * 2; i++)
        labels[i] = i;
    bad_example = UINT64_MAX;
    capture_reset();
    return (struct ls_dataset){.count = EXAMPLES,
                               .field_count = 2,
                               .load = load,
                               .close = do_nothing,
                               .fields = {{.name = "x",
                                           .role = LS_FIELD_INPUT,
                                           .dtype = LS_U8,
                                           .ndims = 3,
                                           .dims = {SIDE, SIDE, 1},
                                           .divisor = 2},
                                          {.name = "y",
                                           .role = LS_FIELD_TARGET,
                                           .dtype = LS_I32,
                                           .divisor = 1,
                                           .class_count = EXAMPLES * 2,
                                           .values = labels,
                                           .stride = sizeof(labels[0])}}};
}

struct made_example {
    float pixels[PIXELS];
    int32_t label;
};

// The examples of `epochs` epochs, in order, of `world` replicas. Batches are cut into three blocks
// first where there are more than two.
static void read_all(const struct ls_dataset *dataset, uint32_t world, uint64_t batch, bool augment,
                     uint64_t epochs, struct made_example *out)
{
    const struct ls_stream_options options = {.global_batch = batch,
                                              .shares = {.world = world, .blocks_first = world > 2},
                                              .rank_count = world,
                                              .blocks = world > 2 ? 3 : 1,
                                              .shuffle = LS_SHUFFLE_ALL,
                                              .seed = 3,
                                              .augment = augment};
    struct ls_stream *stream;
    ck_assert_int_eq(ls_stream_open(dataset, &options, &stream), LS_OK);
    for (uint64_t epoch = 0; epoch < epochs; epoch++, out += dataset->count)
        for (uint64_t step = 0; step < ls_stream_steps(dataset->count, batch); step++)
            for (uint32_t rank = 0; rank < world; rank++) {
                struct ls_batch share;
                ck_assert_int_eq(ls_stream_next(stream, rank, &share, NULL), LS_OK);
                for (uint64_t i = 0, block = 0, at = 0; i < share.count; i++, at++) {
                    while (share.block_counts && at == share.block_counts[block]) {
                        block++;
                        at = 0;
                    }
                    const uint64_t first =
                        share.block_offsets ? share.block_offsets[block] : share.example_offset;
                    struct made_example *example = &out[step * batch + first + at];
                    memcpy(example->pixels, (const float *)share.fields[0] + i * PIXELS,
                           sizeof(example->pixels));
                    example->label = ((const int32_t *)share.fields[1])[i];
                }
            }
    ls_stream_close(stream);
}

TEST(examples_are_made_as_they_are_asked_for)
{
    struct ls_dataset dataset = made();
    struct made_example examples[EXAMPLES - 3];
    dataset.first = 3; // examples 0 to 2 are left out
    dataset.count = EXAMPLES - 3;
    dataset.fields[1].values = labels + 3;
    atomic_store(&loads, 0);
    read_all(&dataset, 2, 6, false, 1, examples);
    ck_assert_uint_ge(loads, EXAMPLES - 3);
    for (int i = 0; i < EXAMPLES - 3; i++)
        for (int p = 0; p < PIXELS; p++)
            ck_assert_float_eq(examples[i].pixels[p],
                               (float)(uint8_t)(examples[i].label * 10 + p) / 2);
}

TEST(augmented_examples_are_the_same_for_every_world_and_batch)
{
    struct ls_dataset dataset = made();
    static struct made_example expected[2 * EXAMPLES], examples[2 * EXAMPLES];
    dataset.augmentation =
        (struct ls_augmentation){.flip_columns = true, .crop = 1, .rotation = 0.1};
    read_all(&dataset, 1, 5, true, 2, expected);
    read_all(&dataset, 1, 5, true, 2, examples);
    ck_assert_mem_eq(examples, expected, sizeof(expected));
    for (uint32_t world = 1; world <= 4; world++)
        for (uint64_t batch = 4; batch <= 8; batch += 2) {
            read_all(&dataset, world, batch, true, 2, examples);
            ck_assert_mem_eq(examples, expected, sizeof(expected));
        }
    int moved = 0, other = 0;
    read_all(&dataset, 1, 5, false, 2, examples);
    for (int i = 0; i < 2 * EXAMPLES; i++) {
        ck_assert_int_eq(examples[i].label, expected[i].label);
        moved += memcmp(examples[i].pixels, expected[i].pixels, sizeof(expected[i].pixels)) != 0;
        for (int k = EXAMPLES; i < EXAMPLES && k < 2 * EXAMPLES; k++) // the other epoch
            if (expected[k].label == expected[i].label)
                other +=
                    memcmp(expected[k].pixels, expected[i].pixels, sizeof(expected[i].pixels)) != 0;
    }
    ck_assert_int_ge(moved, EXAMPLES);
    ck_assert_int_ge(other, EXAMPLES / 2);
}

TEST(repeated_examples_are_augmented_each_in_its_own_way)
{
    struct ls_dataset dataset = made();
    static struct made_example examples[2 * EXAMPLES];
    int seen[EXAMPLES] = {0}, first[EXAMPLES], different = 0;
    dataset.repeat = 2;
    dataset.count *= 2;
    dataset.augmentation = (struct ls_augmentation){.crop = 2};
    read_all(&dataset, 2, 5, true, 1, examples);
    for (int i = 0; i < 2 * EXAMPLES; i++) {
        const int label = examples[i].label;
        ck_assert_int_lt(label, EXAMPLES);
        if (seen[label]++ == 0)
            first[label] = i;
        else
            different += memcmp(examples[i].pixels, examples[first[label]].pixels,
                                sizeof(examples[i].pixels)) != 0;
    }
    for (int i = 0; i < EXAMPLES; i++)
        ck_assert_int_eq(seen[i], 2);
    ck_assert_int_ge(different, EXAMPLES / 2);
}

TEST(a_dataset_in_order_is_asked_for_one_piece_after_the_other)
{
    struct ls_dataset dataset = made();
    static struct made_example examples[2 * EXAMPLES];
    dataset.in_order = true;
    for (uint32_t world = 2; world <= 3; world++) {
        seen_epoch = 1;
        expected_next = longest = 0;
        read_all(&dataset, world, 10, false, 2, examples); // looks at the order
        ck_assert_uint_eq(longest, world == 2 ? 5 : 2);
        for (int i = 0; i < 2 * EXAMPLES; i++)
            ck_assert_int_eq(examples[i].label, i % EXAMPLES);
    }
}

TEST(an_example_that_cannot_be_made_ends_the_stream_with_one_line)
{
    struct ls_dataset dataset = made();
    const struct ls_stream_options options = {
        .global_batch = 8, .shares.world = 2, .rank_count = 2};
    struct ls_stream *stream;
    struct ls_batch batch;
    bad_example = 18; // and those behind it, in the same batch
    ck_assert_int_eq(ls_stream_open(&dataset, &options, &stream), LS_OK);
    enum ls_status status = LS_OK;
    for (int step = 0; !status && step < 3; step++)
        for (uint32_t rank = 0; !status && rank < 2; rank++)
            status = ls_stream_next(stream, rank, &batch, NULL);
    ck_assert_int_eq(status, LS_BAD_INPUT);
    ck_assert_int_eq(ls_stream_next(stream, 1, &batch, NULL), LS_BAD_INPUT);
    ls_stream_close(stream);
    expect_error("example 18 is bad", "test");
}

// ---- Crew ----

static enum ls_status count_item(void *context, uint32_t worker, uint64_t item)
{
    atomic_uint *counts = context;
    ck_assert_uint_lt(worker, 5);
    atomic_fetch_add(&counts[item], 1);
    return LS_OK;
}

LOOP_TEST(a_crew_does_each_item_once, 1, 5)
{
    struct ls_crew *crew;
    static atomic_uint counts[1000];
    ck_assert_int_eq(ls_crew_create((uint32_t)_i, &crew), LS_OK);
    for (unsigned round = 1; round <= 20; round++) {
        ck_assert_int_eq(ls_crew_run(crew, count_item, counts, round * 50, NULL), LS_OK);
        for (unsigned i = 0; i < 1000; i++)
            ck_assert_uint_eq(counts[i], i < round * 50 ? round - i / 50 : 0);
    }
    ls_crew_destroy(crew);
}

// ---- Cache ----

static void expect_cached(struct ls_dataset *cached, unsigned loads_then)
{
    static struct made_example examples[EXAMPLES - 2];
    read_all(cached, 2, 6, false, 1, examples);
    ck_assert_uint_eq(loads, loads_then); // nothing is made again
    for (int i = 0; i < EXAMPLES - 2; i++)
        for (int p = 0; p < PIXELS; p++)
            ck_assert_float_eq(examples[i].pixels[p],
                               (float)(uint8_t)(examples[i].label * 10 + p) / 2);
    ls_dataset_close(cached);
}

static struct ls_dataset shortened(void)
{
    struct ls_dataset dataset = made();
    dataset.first = 2;
    dataset.count = EXAMPLES - 2;
    dataset.fields[1].values = labels + 2;
    return dataset;
}

TEST(a_cache_has_the_examples_that_were_made)
{
    struct ls_dataset dataset = shortened(), *cached = &dataset;
    folder_make();
    const char *path = in_folder("cache");
    atomic_store(&loads, 0);
    ck_assert_int_eq(ls_cache_in_memory("--dataset", &cached), LS_OK);
    ck_assert_uint_eq(loads, EXAMPLES - 2);
    expect_cached(cached, EXAMPLES - 2);
    cached = &dataset;
    ck_assert_int_eq(ls_cache_in_file("--dataset", path, 5, &cached), LS_OK);
    expect_cached(cached, 2 * (EXAMPLES - 2));
    cached = &dataset; // again: the file is there
    ck_assert_int_eq(ls_cache_in_file("--dataset", path, 5, &cached), LS_OK);
    expect_cached(cached, 2 * (EXAMPLES - 2));
    cached = &dataset; // other files
    dataset.identity = 7;
    ck_assert_int_eq(ls_cache_in_file("--dataset", path, 5, &cached), LS_OK);
    expect_cached(cached, 3 * (EXAMPLES - 2));
    cached = &dataset; // other options
    ck_assert_int_eq(ls_cache_in_file("--dataset", path, 6, &cached), LS_OK);
    expect_cached(cached, 4 * (EXAMPLES - 2));
    folder_remove();
}

TEST(a_file_that_is_no_cache_stays_as_it_is)
{
    struct ls_dataset dataset = shortened(), *cached = &dataset;
    char content[16] = "";
    folder_make();
    write_file("mine", "my own bytes", 12);
    ck_assert_int_eq(ls_cache_in_file("--dataset", in_folder("mine"), 5, &cached), LS_BAD_INPUT);
    expect_error("mine", "not overwritten");
    ck_assert_ptr_eq(cached, &dataset);
    FILE *file = fopen(in_folder("mine"), "rb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fread(content, 1, sizeof(content), file), 12);
    fclose(file);
    ck_assert_str_eq(content, "my own bytes");
    folder_remove();
}

TEST(a_failure_leaves_no_cache_behind)
{
    struct ls_dataset dataset = shortened(), *cached = &dataset;
    folder_make();
    bad_example = 9;
    ck_assert_int_eq(ls_cache_in_memory("--dataset", &cached), LS_BAD_INPUT);
    expect_error("example 9 is bad", "test");
    ck_assert_int_eq(ls_cache_in_file("--dataset", in_folder("cache"), 5, &cached), LS_BAD_INPUT);
    expect_error("example 9 is bad", "test");
    ck_assert_ptr_eq(cached, &dataset);
    ck_assert_int_ne(access(in_folder("cache"), F_OK), 0);
    ck_assert_int_eq(rmdir(folder), 0); // is empty
}
