// SPDX-License-Identifier: Apache-2.0
// cifar10 and cifar100 on small files of our own, and where they are installed, on the files of
// their authors.
#include "tests/datasets/dataset_checks.h"
#include "tests/support/suite.h"

#include <stdbool.h>
#include <sys/stat.h>

#define PICTURE 3072

// Pixel p of channel c of record r, from `seed` on.
static uint8_t pixel(uint32_t seed, uint32_t record, uint32_t channel, uint32_t place)
{
    return (uint8_t)((seed + record) * 31 + channel * 7 + place % 253);
}

// `labels` has `label_bytes` for each record.
static void put_file(const char *name, uint32_t seed, const uint8_t *labels, uint32_t label_bytes,
                     uint32_t records)
{
    FILE *file = fopen(in_folder(name), "wb");
    ck_assert_ptr_nonnull(file);
    for (uint32_t r = 0; r < records; r++) {
        ck_assert_uint_eq(fwrite(labels + r * label_bytes, 1, label_bytes, file), label_bytes);
        for (uint32_t c = 0; c < 3; c++)
            for (uint32_t p = 0; p < 1024; p++)
                fputc(pixel(seed, r, c, p), file);
    }
    ck_assert_int_eq(fclose(file), 0);
}

static struct ls_dataset *open_split(const char *pattern, enum ls_split split)
{
    struct ls_dataset *dataset = dataset_open(pattern, split);
    ck_assert_uint_eq(dataset->fields[0].ndims, 3);
    ck_assert(dataset->fields[0].dims[0] == 32 && dataset->fields[0].dims[1] == 32 &&
              dataset->fields[0].dims[2] == 3);
    return dataset;
}

// Example `index` is record `record` of the file with that seed, rows by columns by channels.
static void expect_picture(const struct ls_dataset *dataset, uint32_t index, uint32_t seed,
                           uint32_t record)
{
    static float values[PICTURE];
    ls_gather(&dataset->fields[0], LS_F32, &index, 1, values);
    for (uint32_t p = 0; p < 1024; p++)
        for (uint32_t c = 0; c < 3; c++)
            ck_assert(values[p * 3 + c] == (float)pixel(seed, record, c, p) / 255.0f);
}

static void expect_refused(const char *pattern, enum ls_split split, enum ls_status status,
                           const char *one, const char *other)
{
    struct ls_dataset *dataset = (void *)folder; // is not touched
    ck_assert_int_eq(ls_dataset_open(dataset_text(pattern), split, &dataset), status);
    expect_error(one, other);
    ck_assert_ptr_eq(dataset, folder);
}

static const uint8_t five[] = {3, 0, 9, 4, 8};

static void put_all_batches(void)
{
    for (uint32_t i = 1; i <= 5; i++) {
        char name[32];
        snprintf(name, sizeof(name), "data_batch_%u.bin", i);
        put_file(name, 10 * i, five, 1, i);
    }
    put_file("test_batch.bin", 90, five, 1, 2);
}

TEST(the_known_files_are_read_in_order)
{
    put_all_batches();
    struct ls_dataset *dataset = open_split("cifar10:dir=@", LS_TRAIN);
    ck_assert_uint_eq(dataset->count, 15);
    ck_assert_uint_eq(dataset->fields[1].class_count, 10);
    ck_assert_str_eq(dataset->fields[1].class_names[9], "truck");
    const uint8_t *labels = dataset->fields[1].values;
    for (uint32_t file = 1, index = 0; file <= 5; file++)
        for (uint32_t record = 0; record < file; record++, index++) {
            expect_picture(dataset, index, 10 * file, record);
            ck_assert_uint_eq(labels[index], five[record]);
        }
    ls_dataset_close(dataset);
    dataset = open_split("cifar10:dir=@", LS_TEST);
    ck_assert_uint_eq(dataset->count, 2);
    expect_picture(dataset, 1, 90, 1);
    ls_dataset_close(dataset);
    dataset = open_split("cifar10:dir=@,validation_split=0.2", LS_VALIDATION);
    ck_assert_uint_eq(dataset->count, 3);
    expect_picture(dataset, 0, 50, 2); // the last 3 of the training pictures
    ls_dataset_close(dataset);
    dataset = open_split("cifar10:dir=@", LS_VALIDATION); // the test split
    ck_assert_uint_eq(dataset->count, 2);
    ls_dataset_close(dataset);
}

TEST(missing_files_are_named)
{
    put_file("data_batch_2.bin", 1, five, 1, 1);
    put_file("data_batch_5.bin", 1, five, 1, 1);
    for (int split = LS_TRAIN; split <= LS_TEST; split++) {
        expect_refused("cifar10:dir=@", (enum ls_split)split, LS_BAD_INPUT, "data_batch_1.bin, ",
                       "/data_batch_4.bin, ");
        expect_refused("cifar10:dir=@", (enum ls_split)split, LS_BAD_INPUT, "data_batch_3.bin, ",
                       "/test_batch.bin; name the files that you have: train=FILE+FILE");
    }
    struct ls_dataset *dataset =
        open_split("cifar10:dir=@,train=data_batch_5.bin+data_batch_2.bin", LS_TRAIN);
    ck_assert_uint_eq(dataset->count, 2);
    ls_dataset_close(dataset);
    expect_refused("cifar10:dir=@,train=data_batch_5.bin", LS_TEST, LS_BAD_INPUT,
                   "missing: ", "/test_batch.bin;");
    expect_refused("cifar10:dir=@,train=data_batch_5.bin+other.bin", LS_TRAIN, LS_BAD_INPUT,
                   "missing: ", "/other.bin;");
    dataset = open_split("cifar10:train=@/data_batch_5.bin,test=@/data_batch_2.bin", LS_TEST);
    ck_assert_uint_eq(dataset->count, 1);
    ls_dataset_close(dataset);
    expect_refused("cifar10", LS_TRAIN, LS_USAGE, "the option dir is missing", "cifar10:dir=PATH");
    expect_refused("cifar10:test=@/data_batch_2.bin", LS_TRAIN, LS_USAGE,
                   "the option dir is missing", "cifar10:dir=PATH");
    expect_refused("cifar10:dir=@,train=data_batch_5.bin+", LS_TRAIN, LS_USAGE, "cifar10",
                   "an empty file name");
}

TEST(cifar100_has_fine_and_coarse_labels)
{
    static const uint8_t labels[] = {19, 99, 0, 7, 3, 50};
    put_file("train.bin", 5, labels, 2, 3);
    put_file("test.bin", 6, labels, 2, 1);
    struct ls_dataset *dataset = open_split("cifar100:dir=@", LS_TRAIN);
    ck_assert_uint_eq(dataset->count, 3);
    ck_assert_uint_eq(dataset->fields[1].class_count, 100);
    ck_assert_uint_eq(((const uint8_t *)dataset->fields[1].values)[2], 50);
    expect_picture(dataset, 2, 5, 2);
    ls_dataset_close(dataset);
    dataset = open_split("cifar100:dir=@,labels=coarse", LS_TEST);
    ck_assert_uint_eq(dataset->count, 1);
    ck_assert_uint_eq(dataset->fields[1].class_count, 20);
    ck_assert_uint_eq(((const uint8_t *)dataset->fields[1].values)[0], 19);
    ls_dataset_close(dataset);
}

TEST(files_that_are_no_records_are_refused)
{
    static const uint8_t bad[] = {3, 10};
    static const uint8_t gzip[] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3};
    const char *text = "cifar10:dir=@,train=x.bin";
    put_file("x.bin", 0, bad, 1, 2);
    expect_refused(text, LS_TRAIN, LS_BAD_INPUT, "x.bin", "label 1 is 10; the classes are 0 to 9");
    write_file("x.bin", bad, 2);
    expect_refused(text, LS_TRAIN, LS_BAD_INPUT, "x.bin: 2 bytes",
                   "not whole records of 3073 bytes");
    write_file("x.bin", bad, 0);
    expect_refused(text, LS_TRAIN, LS_BAD_INPUT, "x.bin: 0 bytes", "not whole records");
    write_file("x.bin", gzip, sizeof(gzip));
    expect_refused(text, LS_TRAIN, LS_BAD_INPUT, "x.bin", "is compressed; unpack it first");
    ck_assert_int_eq(unlink(in_folder("x.bin")), 0);
    ck_assert_int_eq(mkdir(in_folder("x.bin"), 0700), 0);
    expect_refused(text, LS_TRAIN, LS_BAD_INPUT, "x.bin", "is a directory");
}

// The first pictures of the training and the test set, by their labels and the sum of their pixels.
START_TEST(the_real_files_are_read)
{
    const char *data = getenv("LOCKSTEP_LARGE_DATA");
    char text[700];
    snprintf(text, sizeof(text),
             "cifar10:dir=%s/cifar-10-batches-bin,train=data_batch_1.bin,"
             "test=%s/cifar-10-test-first1000/test_batch_first1000.bin",
             data, data);
    for (int split = LS_TRAIN; split <= LS_TEST; split++) {
        static const uint8_t first[2][5] = {{6, 9, 9, 4, 1}, {3, 8, 8, 0, 6}};
        struct ls_dataset *dataset = open_split(text, (enum ls_split)split);
        const uint8_t *labels = dataset->fields[1].values;
        uint32_t counts[10] = {0};
        ck_assert_uint_eq(dataset->count, split == LS_TRAIN ? 10000 : 1000);
        ck_assert_mem_eq(labels, first[split], 5);
        for (uint64_t i = 0; i < dataset->count; i++)
            counts[labels[i]]++;
        for (int i = 0; i < 10; i++)
            ck_assert_uint_gt(counts[i], dataset->count / 12);
        ls_dataset_close(dataset);
    }
}
END_TEST

TEST_FIXTURE(folder_make, folder_remove);

int main(void)
{
    const char *data = getenv("LOCKSTEP_LARGE_DATA");
    char path[600];
    snprintf(path, sizeof(path), "%s/cifar-10-batches-bin/data_batch_1.bin", data ? data : "");
    if (data && access(path, R_OK) == 0)
        tcase_add_test(test_registered(), the_real_files_are_read);
    else
        printf("SKIP: %s is not there\n", path);
    return test_suite_run("datasets/cifar");
}
