// SPDX-License-Identifier: Apache-2.0
// tfrecord: files that TensorFlow wrote (tests/data/tfrecord/make.py), feature by feature; damage of
// any kind is refused with the number of the record.
#include "datasets/tfrecord_example.h"
#include "tests/datasets/dataset_checks.h"
#include "tests/support/suite.h"

#define EXAMPLES 7
#define PLAIN "file=" FIXTURES "/tfrecord/plain.tfrecord"
#define PACKED "file=" FIXTURES "/tfrecord/compressed.tfrecord.gz"
#define BOTH "file=" FIXTURES "/tfrecord/*.tfrecord*"

static const char *const files[] = {PLAIN, PACKED, BOTH};

static struct ls_dataset *open_features(int file, const char *options)
{
    char text[512];
    snprintf(text, sizeof(text), "tfrecord:%s,%s", files[file], options);
    struct ls_dataset *dataset = dataset_open(text, LS_TRAIN);
    ck_assert_uint_eq(dataset->count, file == 2 ? 2 * EXAMPLES : EXAMPLES);
    return dataset;
}

LOOP_TEST(numbers_are_those_that_were_written, 0, 3)
{
    folder_make();
    struct ls_dataset *dataset = open_features(_i, "x=values,x2=counts,x3=raw,y=label,shape=2x3");
    ck_assert_uint_eq(dataset->field_count, 4);
    ck_assert_uint_eq(dataset->fields[0].ndims, 2);
    ck_assert_int_eq(dataset->fields[0].dims[1], 3);
    ck_assert_uint_eq(dataset->fields[1].dtype, LS_I32);
    ck_assert_uint_eq(dataset->fields[2].dtype, LS_U8);
    ck_assert_uint_eq(dataset->fields[3].class_count, 3);
    ck_assert_uint_eq(dataset->fields[3].ndims, 0);
    for (uint64_t i = 0; i < dataset->count; i++) {
        const float n = (float)(i % EXAMPLES);
        for (uint64_t k = 0; k < 6; k++)
            ck_assert_float_eq(dataset_value(dataset, 0, i, k), n + 0.25f * (float)k);
        ck_assert_float_eq(dataset_value(dataset, 1, i, 1), -n);
        ck_assert_float_eq(dataset_value(dataset, 1, i, 2), n * 1000);
        ck_assert_float_eq(dataset_value(dataset, 2, i, 11), n * 10 + 11);
        ck_assert_float_eq(dataset_value(dataset, 3, i, 0), (float)(i % EXAMPLES % 3));
    }
    ls_dataset_close(dataset);
    folder_remove();
}

LOOP_TEST(images_are_decoded, 0, 3)
{
    folder_make();
    struct ls_dataset *dataset = open_features(_i, "x=image,x2=score,y=score,channels=1");
    ck_assert_int_eq(dataset->fields[0].dims[0], 4);
    ck_assert_int_eq(dataset->fields[0].dims[1], 5);
    ck_assert_int_eq(dataset->fields[0].dims[2], 1);
    ck_assert_uint_eq(dataset->fields[2].class_count, 0);
    for (uint64_t i = 0; i < dataset->count; i++) {
        for (uint64_t k = 0; k < 20; k++)
            ck_assert_float_eq(dataset_value(dataset, 0, i, k),
                               (float)(i % EXAMPLES * 20 + k / 5 * 3 + k % 5) / 255);
        ck_assert_float_eq(dataset_value(dataset, 2, i, 0), (float)(i % EXAMPLES) / 8);
    }
    ls_dataset_close(dataset);
    folder_remove();
}

static const struct {
    const char *options, *one, *other;
    enum ls_status status;
} refused[] = {
    {PLAIN, "x is missing", "x=FEATURE", LS_USAGE},
    {"x=values", "expected tfrecord:file=FILE", "", LS_USAGE},
    {PLAIN ",x=values,x3=counts", "x2 is missing", "", LS_USAGE},
    {PLAIN ",x=pixels,y=label", "record 1: there is no feature 'pixels'", "counts, image, label",
     LS_BAD_INPUT},
    {PLAIN ",x=several", "record 1: feature 'several'", "one string of bytes", LS_BAD_INPUT},
    {PLAIN ",x=large", "record 1: feature 'large'", "no int32", LS_BAD_INPUT},
    {PLAIN ",x=length", "record 2: feature 'length' has 2 values", "1 in the first", LS_BAD_INPUT},
    {PLAIN ",x=values,y=name", "record 1: feature 'name'", "integers or floats", LS_BAD_INPUT},
    {PLAIN ",x=values,shape=7", "shape=7", "6 values", LS_USAGE},
    {PLAIN ",x=values,shape=2x", "shape=2x", "6 values", LS_USAGE},
    {PLAIN ",x=values,shape=6x", "shape=6x", "6 values", LS_USAGE},
    {PLAIN ",x=image,shape=20", "shape is not for", "resize=", LS_USAGE},
    {"file=/nowhere/*.tfrecord,x=values", "/nowhere/*.tfrecord", "no file", LS_BAD_INPUT},
    {"file=/nowhere/a.tfrecord,x=values", "/nowhere/a.tfrecord", "No such file", LS_BAD_INPUT},
};

TABLE_TEST(what_does_not_fit_is_refused, refused)
{
    char text[512];
    folder_make();
    snprintf(text, sizeof(text), "tfrecord:%s", refused[_i].options);
    dataset_refused(text, LS_TRAIN, refused[_i].status, refused[_i].one, refused[_i].other);
    folder_remove();
}

// Every bit of the first two records is looked at by a check sum; every length is cut.
TEST(damage_is_refused_with_the_number_of_the_record)
{
    static uint8_t data[8192], damaged[8192];
    FILE *file = fopen(FIXTURES "/tfrecord/plain.tfrecord", "rb");
    ck_assert_ptr_nonnull(file);
    const size_t bytes = fread(data, 1, sizeof(data), file);
    fclose(file);
    const size_t record = data[0] + 256u * data[1] + 16;
    const char *text = "tfrecord:file=@/t,x=values,y=label";
    folder_make();
    for (size_t i = 0; i < 2 * record; i += i % record < 14 ? 1 : 13) {
        memcpy(damaged, data, bytes);
        damaged[i] ^= (uint8_t)(1 << i % 8);
        write_file("t", damaged, bytes);
        dataset_refused(text, LS_TRAIN, LS_BAD_INPUT, "/t: record ",
                        i < record ? "record 1:" : "record 2:");
    }
    for (size_t length = record + 1; length < 2 * record; length += 11) {
        write_file("t", data, length);
        dataset_refused(text, LS_TRAIN, LS_BAD_INPUT, "/t: record 2:", "cut off");
    }
    write_file("t", "", 0);
    dataset_refused(text, LS_TRAIN, LS_BAD_INPUT, "/t", "no records");
    folder_remove();
}

// A record of `length` bytes whose check sums are right.
static void put_record(const char *name, uint64_t length, const uint8_t *data, size_t bytes)
{
    uint8_t file[256];
    memcpy(file, &length, 8);
    uint32_t sum = ls_masked_crc32c(file, 8);
    memcpy(file + 8, &sum, 4);
    memcpy(file + 12, data, bytes);
    sum = ls_masked_crc32c(data, bytes);
    memcpy(file + 12 + bytes, &sum, 4);
    write_file(name, file, 16 + bytes);
}

TEST(lies_with_right_check_sums_are_refused)
{
    static const uint8_t group[] = {0x0b, 0x0c}; // wire types that proto3 does not have
    static const uint8_t longer[] = {0x0a, 0x7f, 0x0a};
    static const uint8_t endless[] = {0x0a, 0xff, 0xff, 0xff, 0xff, 0xff,
                                      0xff, 0xff, 0xff, 0xff, 0xff, 0x01};
    folder_make();
    const char *text = "tfrecord:file=@/t,x=values";
    put_record("t", UINT64_C(1) << 40, group, sizeof(group));
    dataset_refused(text, LS_TRAIN, LS_BAD_INPUT, "record 1", "at most 1 GiB");
    put_record("t", 1 << 20, group, sizeof(group));
    dataset_refused(text, LS_TRAIN, LS_BAD_INPUT, "record 1", "not so large");
    put_record("t", sizeof(group), group, sizeof(group));
    dataset_refused(text, LS_TRAIN, LS_BAD_INPUT, "record 1", "no tf.train.Example");
    put_record("t", sizeof(longer), longer, sizeof(longer));
    dataset_refused(text, LS_TRAIN, LS_BAD_INPUT, "record 1", "no tf.train.Example");
    put_record("t", sizeof(endless), endless, sizeof(endless));
    dataset_refused(text, LS_TRAIN, LS_BAD_INPUT, "record 1", "no tf.train.Example");
    put_record("t", 0, endless, 0);
    dataset_refused(text, LS_TRAIN, LS_BAD_INPUT, "record 1", "no feature 'values'");
    folder_remove();
}

// The value of RFC 3720, B.4, for 32 bytes of zeros, unmasked by hand.
TEST(the_check_sum_is_castagnolis)
{
    const uint8_t zeros[32] = {0};
    const uint32_t crc = 0x8a9136aa;
    ck_assert_uint_eq(ls_masked_crc32c(zeros, sizeof(zeros)), (crc >> 15 | crc << 17) + 0xa282ead8);
}
