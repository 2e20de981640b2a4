// SPDX-License-Identifier: Apache-2.0
// safetensors files: 8 bytes little-endian header length, a JSON header, then the tensors one
// after the other. Format: https://github.com/huggingface/safetensors (README, "Format").
// Written: float32. Read: every floating type as float32; of other types only names and shapes.
// [any thread]
#ifndef LS_FORMATS_SAFETENSORS_H
#define LS_FORMATS_SAFETENSORS_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LS_SAFETENSORS_MAX_DIMS 8

struct ls_saved_tensor {
    const char *name;
    uint32_t ndims;
    int64_t dims[LS_SAFETENSORS_MAX_DIMS];
    const float *data; // C order; NULL: of a type that is not read
    const void *values; // as in the file, of any type and alignment; the writer does not look at it
    const char *dtype; // as the file names it: "F32", "BF16", "I64"; the writer does not look at it
};

// A text of the metadata: the names of the classes that the weights have learnt, by number
// (core/data/class_names.h).
#define LS_CLASS_NAMES "lockstep_class_names"

// A text of the header's metadata.
struct ls_saved_text {
    const char *name, *text;
};

// What a file is to hold.
struct ls_saved {
    const struct ls_saved_tensor *tensors;
    size_t count;
    const struct ls_saved_text *texts;
    size_t text_count;
    // The values go past the page cache, where the file system can do that: for a file that is written
    // beside other work and not read soon.
    bool uncached;
    // Asked for the values of each tensor, in their order, while the file is written; they are
    // borrowed until the next call. It may answer NULL, and says itself why. NULL: tensors have data.
    const float *(*values)(void *context, size_t index);
    // With `values`: a text of the metadata that is known in the end; `finish` overwrites its letters.
    const char *late;
    void (*finish)(void *context, char *text);
    void *context;
};

struct ls_safetensors; // an opened file: its header checked, its data read

// LS_BAD_INPUT, logged with path and position, for files that are too short, headers that are over
// 100 MB or not JSON, duplicate names, numbers that are too large for float32, and offsets that
// overlap, leave holes, or do not match the shape.
LS_STATUS ls_safetensors_open(const char *path, struct ls_safetensors **out);
// Likewise what a descriptor refers to, from its beginning; `path` is its name in messages.
LS_STATUS ls_safetensors_open_from(int fd, const char *path, struct ls_safetensors **out);
// The same without the data: tensors have neither `data` nor `values`, and are read one by one while
// the file is open.
LS_STATUS ls_safetensors_open_unread(const char *path, struct ls_safetensors **out);
// The values of an F32 tensor of such a file: `tensor` is what ls_safetensors_get or _find
// answered, not a copy of it. LS_BAD_INPUT, logged: it is of another type, or the file is shorter
// than it was. [one thread at a time]
LS_STATUS ls_safetensors_read(const struct ls_safetensors *file,
                              const struct ls_saved_tensor *tensor, float *out);
// Another one that closes it. Returns `file`. [one thread at a time]
struct ls_safetensors *ls_safetensors_hold(struct ls_safetensors *file);
void ls_safetensors_close(struct ls_safetensors *file); // takes NULL
size_t ls_safetensors_count(const struct ls_safetensors *file);
const struct ls_saved_tensor *ls_safetensors_get(const struct ls_safetensors *file, size_t index);
const struct ls_saved_tensor *ls_safetensors_find(const struct ls_safetensors *file,
                                                  const char *name); // NULL: none
// A text of the header's metadata; NULL: there is none of this name.
const char *ls_safetensors_text(const struct ls_safetensors *file, const char *name);

// Writes to a temporary file beside `path`, flushes it to disk and renames it, so that `path` is
// either complete or unchanged. On LS_FAILED (logged: disk full, no permission, ...) no temporary
// file remains.
LS_STATUS ls_safetensors_write(const char *path, const struct ls_saved_tensor *tensors,
                               size_t count);
LS_STATUS ls_safetensors_write_saved(const char *path, const struct ls_saved *saved);
// Writes to a descriptor; `path` is its name in messages.
LS_STATUS ls_safetensors_write_to(int fd, const char *path, const struct ls_saved *saved);

#endif
