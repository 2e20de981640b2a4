// SPDX-License-Identifier: Apache-2.0
// Copies one field of selected examples into a batch, in the type that graph programs read, or as
// bytes for devices with the operation LS_OP_FROM_BYTES.
#ifndef LS_DATA_GATHER_H
#define LS_DATA_GATHER_H

#include "core/data/dataset.h"

// Whether values that are stored as `stored` can be delivered as `dtype`: float32 of anything,
// int32 of integers, bytes of bytes.
bool ls_can_gather(uint32_t stored, uint32_t dtype);

// out: (count, example) of `dtype`, of the examples whose numbers are in `order`. Float32 values are
// (float)stored / divisor, rounded once; integers are as stored. [any thread]
void ls_gather(const struct ls_field *field, uint32_t dtype, const uint32_t *order, uint64_t count,
               void *out);

// The same of one example, whose stored values are at `from`. [any thread]
void ls_deliver(const struct ls_field *field, uint32_t dtype, const void *from, uint64_t elements,
                void *to);

#endif
