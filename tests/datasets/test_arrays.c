// SPDX-License-Identifier: Apache-2.0
// arrays: files of NumPy's types and of safetensors as fields, taken as they are; one split, which
// validation_split divides; and everything that does not fit is refused by name.
#include "core/formats/npy.h"
#include "core/formats/safetensors.h"
#include "tests/datasets/dataset_checks.h"
#include "tests/support/suite.h"

// A .npy file of `descr`; the shape as Python writes it.
static void put_npy(const char *name, const char *descr, const char *shape, const void *data,
                    size_t bytes)
{
    char file[8192] = "\x93NUMPY\1\0";
    const int length = snprintf(
        file + 10, 500, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n", descr, shape);
    file[8] = (char)length;
    memcpy(file + 10 + length, data, bytes);
    write_file(name, file, 10 + (size_t)length + bytes);
}

// "arrays:" and the options, in which @ stands for the folder.
static const char *text_of(const char *options)
{
    static char text[1024];
    size_t used = (size_t)snprintf(text, sizeof(text), "arrays:");
    for (; *options; options++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, *options == '@' ? "%s/" : "%.1s",
                                 *options == '@' ? folder : options);
    return text;
}

static struct ls_dataset *open_split(const char *options, enum ls_split split)
{
    struct ls_dataset *dataset = dataset_opened(text_of(options), split);
    ck_assert(dataset->real);
    return dataset;
}

static void expect_refused(const char *options, enum ls_status status, const char *one,
                           const char *other)
{
    dataset_unopened(text_of(options), LS_TRAIN, status, one, other);
}

static float value_of(const struct ls_dataset *dataset, uint32_t field, uint32_t example,
                      uint32_t index)
{
    float values[64];
    ls_gather(&dataset->fields[field], LS_F32, &example, 1, values);
    return values[index];
}

// ---- Values ----

static const uint8_t bytes[6] = {0, 1, 2, 250, 4, 5};
static const int32_t ints[6] = {0, 1, 2, 250, -4, 5};
static const int64_t longs[6] = {0, 1, 2, 250, -4, INT32_MAX};
static const float floats[6] = {0, 1.5f, 2, 250, -4, 5};
static const double doubles[6] = {0, 0.1, 2, 1e300, -4, 5};

static const struct {
    const char *descr;
    const void *data;
    size_t size;
    uint32_t dtype; // as stored
} types[] = {{"|b1", bytes, 1, LS_U8},  {"|u1", bytes, 1, LS_U8},   {"<i4", ints, 4, LS_I32},
             {"<i8", longs, 8, LS_I32}, {"<f4", floats, 4, LS_F32}, {"<f8", doubles, 8, LS_F32}};

LOOP_TEST(values_are_taken_as_they_are, 0, 6)
{
    put_npy("x.npy", types[_i].descr, "(3, 2)", types[_i].data, 6 * types[_i].size);
    struct ls_dataset *dataset = open_split("x=@x.npy", LS_TRAIN);
    ck_assert_uint_eq(dataset->count, 3);
    ck_assert_uint_eq(dataset->field_count, 1); // y may be missing
    ck_assert_int_eq(dataset->fields[0].role, LS_FIELD_INPUT);
    ck_assert_uint_eq(dataset->fields[0].dtype, types[_i].dtype);
    ck_assert(dataset->fields[0].divisor == 1);
    for (uint32_t i = 0; i < 6; i++) {
        const float expected[] = {bytes[i] != 0,   bytes[i],  (float)ints[i],
                                  (float)longs[i], floats[i], (float)doubles[i]};
        ck_assert(value_of(dataset, 0, i / 2, i % 2) == expected[_i]);
    }
    ls_dataset_close(dataset);
}

// More values than are converted at a time.
TEST(long_arrays_are_converted_whole)
{
    enum { COUNT = 20001 };
    static int64_t values[COUNT];
    char header[128] = "\x93NUMPY\1\0";
    for (int i = 0; i < COUNT; i++)
        values[i] = i * 3 - COUNT;
    header[8] = (char)snprintf(header + 10, 100,
                               "{'descr': '<i8', 'fortran_order': False, 'shape': (20001,)}");
    FILE *file = fopen(in_folder("x.npy"), "wb");
    ck_assert_uint_eq(fwrite(header, 1, 10 + (size_t)header[8], file), 10 + (size_t)header[8]);
    ck_assert_uint_eq(fwrite(values, 8, COUNT, file), COUNT);
    ck_assert_int_eq(fclose(file), 0);
    struct ls_dataset *dataset = open_split("x=@x.npy", LS_TRAIN);
    ck_assert_uint_eq(dataset->fields[0].ndims, 1); // (examples, 1)
    for (int i = 0; i < COUNT; i++)
        ck_assert_int_eq(((const int32_t *)dataset->fields[0].values)[i], values[i]);
    ls_dataset_close(dataset);
    values[9000] = INT64_C(1) << 31;
    file = fopen(in_folder("x.npy"), "r+b");
    ck_assert_int_eq(fseek(file, 10 + header[8] + 9000 * 8, SEEK_SET), 0);
    ck_assert_uint_eq(fwrite(&values[9000], 8, 1, file), 1);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(ls_dataset_open(text_of("x=@x.npy"), LS_TRAIN, &dataset), LS_BAD_INPUT);
    expect_error("x.npy", "value 9000 is 2147483648, which no int32 holds");
}

TEST(fields_come_in_the_order_of_the_inputs)
{
    put_npy("a.npy", "<i4", "(3, 2)", ints, 24);
    put_npy("b.npy", "<f4", "(3, 2, 1)", floats, 24);
    put_npy("c.npy", "|u1", "(3,)", bytes, 3);
    struct ls_dataset *dataset = open_split("y=@c.npy,x2=@b.npy,x=@a.npy", LS_TRAIN);
    ck_assert_uint_eq(dataset->field_count, 3);
    ck_assert_str_eq(dataset->fields[0].name, "x");
    ck_assert_str_eq(dataset->fields[1].name, "x2");
    ck_assert_uint_eq(dataset->fields[1].ndims, 2);
    ck_assert_int_eq(dataset->fields[2].role, LS_FIELD_TARGET);
    ck_assert_uint_eq(dataset->fields[2].ndims, 0);
    ck_assert_uint_eq(dataset->fields[2].class_count, 3); // 0, 1, 2
    ls_dataset_close(dataset);
}

LOOP_TEST(targets_are_classes_or_numbers, 0, 4)
{
    static const struct {
        const char *descr;
        const void *data;
        size_t size;
        uint32_t classes;
    } targets[] = {{"|b1", bytes, 1, 2},
                   {"|u1", bytes, 1, 251},
                   {"<i4", ints, 4, 0}, // one is negative
                   {"<f4", floats, 4, 0}};
    put_npy("x.npy", "<f4", "(6, 1)", floats, 24);
    put_npy("y.npy", targets[_i].descr, "(6,)", targets[_i].data, 6 * targets[_i].size);
    struct ls_dataset *dataset = open_split("x=@x.npy,y=@y.npy", LS_TRAIN);
    ck_assert_uint_eq(dataset->fields[1].class_count, targets[_i].classes);
    ls_dataset_close(dataset);
}

// Tensors by the names of the options, or the only one, behind one whose size leaves them without
// alignment.
TEST(safetensors_are_read)
{
    const char *header = "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                         "\"y\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[1,17]},"
                         "\"x\":{\"dtype\":\"F64\",\"shape\":[2,1],\"data_offsets\":[17,33]}}";
    const int64_t labels[2] = {4, 1};
    char file[512];
    const uint64_t length = strlen(header);
    memcpy(file, &length, 8);
    memcpy(file + 8, header, length);
    file[8 + length] = 9;
    memcpy(file + 9 + length, labels, 16);
    memcpy(file + 25 + length, doubles, 16);
    write_file("both.safetensors", file, 41 + length);
    struct ls_dataset *dataset = open_split("x=@both.safetensors,y=@both.safetensors", LS_TRAIN);
    ck_assert_uint_eq(dataset->count, 2);
    ck_assert(value_of(dataset, 0, 1, 0) == 0.1f);
    ck_assert_int_eq(((const int32_t *)dataset->fields[1].values)[0], 4);
    ck_assert_uint_eq(dataset->fields[1].class_count, 5);
    ls_dataset_close(dataset);
    expect_refused("x=@both.safetensors,x2=@both.safetensors", LS_BAD_INPUT, "both.safetensors",
                   "3 tensors, and none is called x2");
    const struct ls_saved_tensor only = {
        .name = "images", .ndims = 2, .dims = {3, 2}, .data = floats};
    ck_assert_int_eq(ls_safetensors_write(in_folder("only.safetensors"), &only, 1), LS_OK);
    dataset = open_split("x=@only.safetensors", LS_TRAIN);
    ck_assert(value_of(dataset, 0, 1, 1) == 250);
    ls_dataset_close(dataset);
}

// ---- Splits ----

TEST(it_is_one_split_that_validation_split_divides)
{
    struct ls_dataset_info info;
    put_npy("x.npy", "<i4", "(6,)", ints, 24);
    put_npy("y.npy", "|u1", "(6,)", bytes, 6);
    for (int split = LS_TRAIN; split <= LS_TEST; split++) {
        struct ls_dataset *dataset = open_split("x=@x.npy,y=@y.npy", (enum ls_split)split);
        ck_assert_uint_eq(dataset->count, 6);
        ls_dataset_close(dataset);
    }
    ck_assert_int_eq(ls_dataset_describe(text_of("x=@x.npy,y=@y.npy"), LS_VALIDATION, &info),
                     LS_OK);
    ck_assert_uint_eq(info.count, 0);
    const char *divided = "x=@x.npy,y=@y.npy,validation_split=0.4"; // 6 * 0.6 = 3.6: 3 and 3
    struct ls_dataset *dataset = open_split(divided, LS_TRAIN);
    ck_assert_uint_eq(dataset->count, 3);
    ck_assert_int_eq(((const int32_t *)dataset->fields[0].values)[2], 2);
    ck_assert_uint_eq(dataset->fields[1].class_count, 251); // of all examples
    ls_dataset_close(dataset);
    for (int split = LS_TEST; split <= LS_VALIDATION; split++) {
        dataset = open_split(divided, (enum ls_split)split);
        ck_assert_uint_eq(dataset->count, 3);
        ck_assert_int_eq(((const int32_t *)dataset->fields[0].values)[0], 250);
        ck_assert_int_eq(((const uint8_t *)dataset->fields[1].values)[2], 5);
        ls_dataset_close(dataset);
    }
    dataset = open_split("x=@x.npy,limit=4,validation_split=0.5", LS_VALIDATION);
    ck_assert_uint_eq(dataset->count, 2);
    ck_assert_int_eq(((const int32_t *)dataset->fields[0].values)[1], 250);
    ls_dataset_close(dataset);
}

// ---- What is refused ----

TEST(what_does_not_fit_is_refused_by_name)
{
    put_npy("x.npy", "<f4", "(6, 1)", floats, 24);
    put_npy("five.npy", "<f4", "(5,)", floats, 20);
    put_npy("none.npy", "<f4", "(0, 3)", floats, 0);
    put_npy("empty.npy", "<f4", "(3, 0)", floats, 0);
    put_npy("scalar.npy", "<f4", "()", floats, 4);
    put_npy("deep.npy", "<f4", "(1,1,1,1,1,1,6)", floats, 24);
    put_npy("half.npy", "<f2", "(6,)", floats, 12);
    expect_refused("y=@x.npy", LS_USAGE, "x is missing", "arrays:x=FILE");
    expect_refused("x=@x.npy,x3=@x.npy", LS_USAGE, "x2 is missing", "arrays:x=FILE");
    expect_refused("x=@x.npy,z=@x.npy", LS_USAGE, "option z", "y");
    expect_refused("x=@x.npy,y=@five.npy", LS_BAD_INPUT, "five.npy has 5 examples, but", "has 6");
    expect_refused("x=@none.npy", LS_BAD_INPUT, "none.npy", "dimension 0 is 0");
    expect_refused("x=@empty.npy", LS_BAD_INPUT, "empty.npy", "dimension 1 is 0");
    expect_refused("x=@scalar.npy", LS_BAD_INPUT, "scalar.npy", "0 dimensions; expected 1 to 6");
    expect_refused("x=@deep.npy", LS_BAD_INPUT, "deep.npy", "7 dimensions; expected 1 to 6");
    expect_refused("x=@half.npy", LS_BAD_INPUT, "half.npy", "dtype '<f2'");
    expect_refused("x=@missing.npy", LS_BAD_INPUT, "missing.npy", "No such file");
    expect_refused("x=@x.npy,validation_split=0.9", LS_USAGE, "validation_split=0.9 of 6",
                   "none to train on");
    expect_refused("x=@x.npy,validation_split=1e-20", LS_USAGE, "validation_split=1e-20 of 6",
                   "none to validate on");
    expect_refused("x=@x.npy,validation_split=1", LS_USAGE, "between 0 and 1", "not 1");
}

TEST_FIXTURE(folder_make, folder_remove);
