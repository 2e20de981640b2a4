// SPDX-License-Identifier: Apache-2.0
// safetensors files: 8 bytes little-endian header length, a JSON header, then the tensors one after the other.
// Format: https://github.com/huggingface/safetensors (README, "Format"). Here: float32 only. [any thread]
#ifndef LS_FORMATS_SAFETENSORS_H
#define LS_FORMATS_SAFETENSORS_H

#include "core/base/status.h"

#include <stddef.h>
#include <stdint.h>

#define LS_SAFETENSORS_MAX_DIMS 8

struct ls_saved_tensor {
    const char *name;
    uint32_t ndims;
    int64_t dims[LS_SAFETENSORS_MAX_DIMS];
    const float *data; // C order
};

struct ls_safetensors; // an opened file: its header checked, its data mapped or read

// LS_BAD_INPUT, logged with path and position, for files that are too short, headers that are over
// 100 MB or not JSON, duplicate names, dtypes other than F32, and offsets that overlap, leave holes,
// or do not match the shape.
LS_STATUS ls_safetensors_open(const char *path, struct ls_safetensors **out);
void ls_safetensors_close(struct ls_safetensors *file);
size_t ls_safetensors_count(const struct ls_safetensors *file);
const struct ls_saved_tensor *ls_safetensors_get(const struct ls_safetensors *file, size_t index);
const struct ls_saved_tensor *ls_safetensors_find(const struct ls_safetensors *file,
                                                  const char *name); // NULL: none

// Writes to a temporary file beside `path`, flushes it to disk and renames it, so that `path` is
// either complete or unchanged. On LS_FAILED (logged: disk full, no permission, ...) no temporary
// file remains.
LS_STATUS ls_safetensors_write(const char *path, const struct ls_saved_tensor *tensors,
                               size_t count);

#endif
