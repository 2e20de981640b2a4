// SPDX-License-Identifier: Apache-2.0
// .npy: what NumPy wrote is read, and what is not whole and sound is refused.
#include "core/formats/npy.h"
#include "tests/core/data/capture.h"
#include "tests/support/suite.h"

#include <sys/stat.h>

static struct ls_npy_file *open_good(const char *path)
{
    struct ls_npy_file *file = NULL;
    ck_assert_msg(ls_npy_open(path, &file) == LS_OK, "%s: %s", path, captured);
    return file;
}

static void expect_bad(const char *path, const char *what)
{
    struct ls_npy_file *file = (void *)folder; // is not touched
    ck_assert_int_eq(ls_npy_open(path, &file), LS_BAD_INPUT);
    ck_assert_ptr_eq(file, folder);
    expect_error(path, what);
}

// ---- NumPy's files ----

static const struct {
    const char *name;
    uint32_t dtype;
    bool boolean;
} good[] = {{"bool", LS_U8, true},       {"uint8", LS_U8, false},    {"int32", LS_I32, false},
            {"int64", LS_I64, false},    {"float32", LS_F32, false}, {"float64", LS_F64, false},
            {"version-2", LS_I32, false}};

// Value `index`, as a double.
static double value_of(const void *values, uint32_t dtype, size_t index)
{
    switch (dtype) {
    case LS_U8: return ((const uint8_t *)values)[index];
    case LS_I32: return ((const int32_t *)values)[index];
    case LS_I64: return (double)((const int64_t *)values)[index];
    case LS_F32: return (double)((const float *)values)[index];
    default: return ((const double *)values)[index];
    }
}

TABLE_TEST(the_types_of_numpy_are_read, good)
{
    static const double expected[6] = {0, 1, 2, 250, 4, 5};
    char path[512];
    double values[6];
    snprintf(path, sizeof(path), "%s/npy/%s.npy", FIXTURES, good[_i].name);
    struct ls_npy_file *file = open_good(path);
    const struct ls_npy *header = ls_npy_header(file);
    ck_assert_uint_eq(header->dtype, good[_i].dtype);
    ck_assert_int_eq(header->boolean, good[_i].boolean);
    ck_assert_uint_eq(header->ndims, 2);
    ck_assert(header->dims[0] == 2 && header->dims[1] == 3);
    ck_assert_uint_eq(header->elements, 6);
    ck_assert_int_eq(ls_npy_read(file, values, 6 * ls_dtype_bytes(header->dtype)), LS_OK);
    for (size_t i = 0; i < 6; i++)
        ck_assert(value_of(values, header->dtype, i) ==
                  (header->boolean ? expected[i] != 0 : expected[i]));
    ck_assert_int_eq(ls_npy_read(file, values, 1), LS_BAD_INPUT);
    expect_error(path, "shrank");
    ls_npy_close(file);
}

LOOP_TEST(other_arrays_of_numpy_are_refused_by_name, 0, 4)
{
    static const char *const bad[][2] = {
        {"fortran", "Fortran order; save numpy.ascontiguousarray"},
        {"big-endian", "dtype '>f4'; expected bool, uint8, int32, int64, float32 or float64"},
        {"complex", "dtype '<c8'"},
        {"records", "records"}};
    char path[512];
    snprintf(path, sizeof(path), "%s/npy/%s.npy", FIXTURES, bad[_i][0]);
    expect_bad(path, bad[_i][1]);
}

TEST(one_dimension_and_none_are_read)
{
    struct ls_npy_file *file = open_good(FIXTURES "/npy/one-dimension.npy");
    ck_assert_uint_eq(ls_npy_header(file)->ndims, 1);
    ck_assert_int_eq(ls_npy_header(file)->dims[0], 5);
    ls_npy_close(file);
    file = open_good(FIXTURES "/npy/no-dimension.npy");
    ck_assert_uint_eq(ls_npy_header(file)->ndims, 0);
    ck_assert_uint_eq(ls_npy_header(file)->elements, 1);
    ls_npy_close(file);
}

// ---- Files of our own ----

// Version 1.0 unless `major` says otherwise; `length` is said of the header.
static const char *put(unsigned major, const char *header, size_t header_bytes, size_t length,
                       size_t data_bytes)
{
    char file[4096] = "\x93NUMPY";
    size_t used = 6;
    file[used++] = (char)major;
    file[used++] = 0;
    for (unsigned i = 0; i < (major > 1 ? 4 : 2); i++)
        file[used++] = (char)(length >> 8 * i & 0xff);
    memcpy(file + used, header, header_bytes);
    used += header_bytes;
    memset(file + used, 1, data_bytes);
    write_file("x.npy", file, used + data_bytes);
    return in_folder("x.npy");
}

static const char *put_header(const char *header, size_t data_bytes)
{
    return put(1, header, strlen(header), strlen(header), data_bytes);
}

#define DESCR "'descr': '|u1', "
#define ORDER "'fortran_order': False, "

LOOP_TEST(headers_are_read_as_python_reads_them, 0, 3)
{
    static const char *const headers[] = {
        "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }",
        "{'shape':(2,3),'descr':'|u1','fortran_order':False}",
        "{\"shape\" : ( 2 , 3 , ) , \"fortran_order\" : False , \"descr\" : \"|u1\" }   \n"};
    struct ls_npy_file *file = open_good(put_header(headers[_i], 6));
    ck_assert_uint_eq(ls_npy_header(file)->ndims, 2);
    ck_assert_uint_eq(ls_npy_header(file)->elements, 6);
    ls_npy_close(file);
}

TEST(headers_that_lie_are_refused)
{
    static const struct {
        const char *header, *what;
    } bad[] = {
        {"", "not a dictionary"},
        {"[]", "not a dictionary"},
        {"{", "not a dictionary of names"},
        {"{'descr': '|u1', 'fortran_order': False}", "lacks"},
        {"{" DESCR DESCR ORDER "'shape': (6,)}", "an unknown name, or one twice"},
        {"{" DESCR ORDER "'shape': (6,), 'more': 1}", "an unknown name"},
        {"{" DESCR ORDER "'shape': (6,)} x", "something follows"},
        {"{" DESCR "'fortran_order': 0, 'shape': (6,)}", "neither True nor False"},
        {"{'descr': '|u1\\'', " ORDER "'shape': (6,)}", "records"},
        {"{'descr': '|u1, ", "records"},
        {"{'descr': '\x01', " ORDER "'shape': (6,)}", "dtype '?'"},
        // Labels stay whole numbers, which losses of classes need.
        {"{'descr': '<i2', " ORDER "'shape': (3,)}", "save array.astype(numpy.int32)"},
        {"{'descr': '<u4', " ORDER "'shape': (1,)}", "save array.astype(numpy.int64)"},
        {"{'descr': '>f8', " ORDER "'shape': (1,)}", "save array.astype(numpy.float64)"},
        {"{'descr': '<f2', " ORDER "'shape': (3,)}", "save array.astype(numpy.float32)"},
        {"{'descr': '<U1', " ORDER "'shape': (1,)}", "return_inverse"},
        {"{" DESCR ORDER "'shape': 6}", "not a tuple"},
        {"{" DESCR ORDER "'shape': (6", "not a tuple"},
        {"{" DESCR ORDER "'shape': (-6,)}", "dimension 0 is not a number"},
        {"{" DESCR ORDER "'shape': (6, 99999999999999999999,)}", "dimension 1 is not a number"},
        {"{" DESCR ORDER "'shape': (1,1,1,1,1,1,1,1,6)}", "more than 8 dimensions"},
        {"{" DESCR ORDER "'shape': (4294967296, 4294967296)}", "more elements than any file"},
        {"{" DESCR ORDER "'shape': (7,)}", "too short: 6 bytes follow the header, expected 7"},
        {"{" DESCR ORDER "'shape': (1000000000000,)}", "expected 1000000000000"},
        {"{" DESCR ORDER "'shape': (5,)}", "too long: 6 bytes follow the header, expected 5"},
        {"{" DESCR ORDER "'shape': (0, 9000000000000000000)}", "too long"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        expect_bad(put_header(bad[i].header, 6), bad[i].what);
    expect_bad(put(1, "{'descr'\0: '|u1'}", 17, 17, 6), "zero byte");
}

TEST(files_that_are_no_npy_are_refused)
{
    static const char *const header = "{" DESCR ORDER "'shape': (6,)}";
    const size_t bytes = strlen(header);
    expect_bad(in_folder("none.npy"), "No such file");
    expect_bad(folder, "is a directory");
    write_file("x.npy", "", 0);
    expect_bad(in_folder("x.npy"), "does not begin with");
    write_file("x.npy", "\x93NUMPY\1\0", 8);
    expect_bad(in_folder("x.npy"), "too short: 8 bytes");
    write_file("x.npy", "PK\3\4 and so on for long", 24);
    expect_bad(in_folder("x.npy"), "is a ZIP archive");
    expect_bad(put(4, header, bytes, bytes, 6), "version 4.0");
    expect_bad(put(1, header, bytes, bytes + 7, 6), "too short");
    expect_bad(put(2, header, bytes, 65536, 6), "a header of 65536 bytes; at most 65535");
    expect_bad(put(2, header, bytes, 0xffffffff, 6), "a header of 4294967295 bytes");
    write_file("x.npy", "\x93NUMPY\2\0\1\0", 10);
    expect_bad(in_folder("x.npy"), "too short: 10 bytes");
    ck_assert_int_eq(mkfifo(in_folder("pipe.npy"), 0600), 0);
    expect_bad(in_folder("pipe.npy"), "a device or pipe");
}

TEST_FIXTURE(folder_make, folder_remove);
