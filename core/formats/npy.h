// SPDX-License-Identifier: Apache-2.0
// .npy files, one array each: a magic number, a header that is a dictionary of Python, then the
// values. Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html. Little
// endian, C order. [any thread]
#ifndef LS_FORMATS_NPY_H
#define LS_FORMATS_NPY_H

#include "core/base/status.h"
#include "core/plugin/plugin.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LS_NPY_MAX_DIMS 8

// What a header says.
struct ls_npy {
    uint32_t dtype; // LS_U8, LS_I32, LS_I64, LS_F32 or LS_F64
    bool boolean; // bytes that are truth values
    uint32_t ndims;
    int64_t dims[LS_NPY_MAX_DIMS];
    uint64_t elements;
};

struct ls_npy_file;

// Reads the header and checks it against the size of the file. LS_BAD_INPUT, logged with the path:
// what is not a .npy file, a header over 65,535 bytes, other types, Fortran order, big endian, more
// than LS_NPY_MAX_DIMS dimensions, files that are too short or too long.
LS_STATUS ls_npy_open(const char *path, struct ls_npy_file **out);
void ls_npy_close(struct ls_npy_file *file); // takes NULL
const struct ls_npy *ls_npy_header(const struct ls_npy_file *file);
// The next `bytes` of the values. LS_BAD_INPUT, logged: the file has shrunk meanwhile.
LS_STATUS ls_npy_read(struct ls_npy_file *file, void *out, uint64_t bytes);

#endif
