// SPDX-License-Identifier: Apache-2.0
// IDX, the format of MNIST (http://yann.lecun.com/exdb/mnist, "FILE FORMATS"): two zero bytes, a byte for the element
// type, one for the number of dimensions, each dimension as a big-endian 32-bit number, then the elements in C order.
// Here: unsigned bytes (type 8), plain or gzip. [any thread]
#ifndef LS_DATASETS_IDX_H
#define LS_DATASETS_IDX_H

#include "core/base/status.h"

#include <stddef.h>
#include <stdint.h>

#define LS_IDX_MAX_DIMS 4

struct ls_idx {
    uint32_t ndims;
    uint32_t dims[LS_IDX_MAX_DIMS];
    uint8_t *data; // `bytes` long: the product of dims
    size_t bytes;
};

// Reads the whole file; it must have `ndims` dimensions, none of them 0. LS_BAD_INPUT, logged under `scope` with the
// path: wrong magic, short file, bytes left over, dimensions that cannot be.
LS_STATUS ls_idx_read(const char *scope, const char *path, uint32_t ndims, struct ls_idx *out);
// Reads the header only: ndims and dims of `out`; nothing to finish.
LS_STATUS ls_idx_read_header(const char *scope, const char *path, uint32_t ndims,
                             struct ls_idx *out);
void ls_idx_finish(struct ls_idx *idx); // takes a zeroed one

#endif
