// SPDX-License-Identifier: Apache-2.0
// Files of other kinds are known by their first bytes, and only by those.
#include "core/base/file_kind.h"

#include "tests/support/suite.h"

#include <check.h>
#include <string.h>

static const struct {
    const char *start;
    size_t bytes;
    const char *kind; // a part of it; NULL: not known
} files[] = {
    {"PK\3\4\x14\0\0\0\0\0\0\0\0\0\0\0", 16, ".keras"},
    {"\x89HDF\r\n\x1a\n\0\0\0\0\0\x08\x08\0", 16, "HDF5"},
    {"\x93NUMPY\1\0v\0{'descr", 16, "NumPy"},
    {"\x1f\x8b\x08\0\0\0\0\0\0\0\0\0\0\0\0\0", 16, "gzip"},
    {"\x80\4\x95\x2c\0\0\0\0\0\0\0]\x94(K\1", 16, "pickle"},
    {"version https://git-lfs", 16, "Git LFS"},
    {"\x40\1\0\0\0\0\0\0{\"a\": {}", 16, "a safetensors file"},
    {"\x80\2\0\0\0\0\0\0{\"a\": {}", 16, "a safetensors file"}, // a header of 640 bytes, no pickle
    {"{\"class_name\": 1", 16, "JSON"},
    {"\n \t{", 4, "JSON"},
    {"\xef\xbb\xbf {", 5, "JSON"}, // behind a byte order mark
    {"\xff\xfe{\0", 4, "UTF-16"},
    {"PK\3", 3, NULL},
    {"\x89HDF", 4, NULL},
    {"version 1.2.3.45", 16, NULL},
    {"    ", 4, NULL},
    {"", 0, NULL},
    {"model", 5, NULL},
};

TABLE_TEST(a_kind_is_known_by_the_first_bytes, files)
{
    const char *kind = ls_file_kind(files[_i].start, files[_i].bytes);
    if (files[_i].kind)
        ck_assert_msg(kind && strstr(kind, files[_i].kind), "got %s, expected %s",
                      kind ? kind : "nothing", files[_i].kind);
    else
        ck_assert_msg(!kind, "got %s", kind);
}
