// SPDX-License-Identifier: Apache-2.0
// Copies selected examples and labels of a dataset into a batch, in the types that graph programs
// read, or as bytes for devices with the operation LS_OP_FROM_BYTES.
#ifndef LS_DATA_GATHER_H
#define LS_DATA_GATHER_H

#include "core/data/dataset.h"

#include <stdint.h>

uint64_t ls_dataset_example_elements(const struct ls_dataset *dataset);

// out: (count, example), float32: (float)stored / divisor, rounded once. [any thread]
void ls_gather_examples(const struct ls_dataset *dataset, const uint32_t *order, uint64_t count,
                        float *out);
// out: (count, example) as stored: for 8-bit examples. [any thread]
void ls_gather_bytes(const struct ls_dataset *dataset, const uint32_t *order, uint64_t count,
                     void *out);
// out: (count) int32 of classes, or (count, label_elements) float32. [any thread]
void ls_gather_labels(const struct ls_dataset *dataset, const uint32_t *order, uint64_t count,
                      void *out);

#endif
