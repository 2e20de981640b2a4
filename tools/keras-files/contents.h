// SPDX-License-Identifier: Apache-2.0
// What a file of Keras holds, as it is found: tensors and texts, with limits; and handing it over
// as safetensors. [main thread]
#ifndef LS_TOOLS_KERAS_FILES_CONTENTS_H
#define LS_TOOLS_KERAS_FILES_CONTENTS_H

#include "core/attributes.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Limits. All are checked against what headers say, before anything of that size is allocated.
// docs/weights.md has the table.
#define MOST_OBJECTS 200000 // groups, tensors and links of a file
#define MOST_DEPTH 64 // groups in one another
#define MOST_NAME 1000 // bytes of a path in the file
#define MOST_DIMS 8
#define MOST_TEXT (UINT64_C(64) << 20) // bytes of a model's JSON
#define MOST_CHUNK (UINT64_C(256) << 20) // bytes of a chunk of a dataset
#define LEAST_ALLOWED (UINT64_C(256) << 20) // bytes of data that any file may unpack to
#define MOST_EXPANSION 16 // what a larger one may unpack to, in sizes of the file
#define MOST_BYTES (UINT64_C(256) << 30) // of data, whatever the size of the file
#define MEMORY (UINT64_C(1) << 30) // of address space, beside the data

struct tensor {
    char *name; // path in the file
    const char *dtype; // of safetensors
    uint32_t ndims;
    uint64_t dims[MOST_DIMS];
    uint64_t bytes;
    uint64_t offset; // in the data that is handed over
    unsigned char *data; // where it is to be written; set by contents_hand_over
};

struct contents {
    uint64_t allowed; // bytes of data
    struct tensor *tensors;
    size_t count, room;
    uint64_t bytes;
    json_t *texts; // name -> string
    bool failed; // not the file's fault: why is what this process could not do
    char why[600]; // empty: nothing is wrong
};

// `file_bytes`: size of the file, by which it may unpack to less or more.
bool contents_init(struct contents *contents, uint64_t file_bytes);

// False, always, after noting why; the first reason stays.
LS_PRINTF(2, 3)
bool contents_refuse(struct contents *contents, const char *format, ...);
// Likewise for what is not the file's fault.
LS_PRINTF(2, 3)
bool contents_fail(struct contents *contents, const char *format, ...);

// Adds a tensor; its size is checked against what is allowed. `element_bytes`: of its dtype.
bool contents_add(struct contents *contents, const char *name, const char *dtype,
                  uint64_t element_bytes, uint32_t ndims, const uint64_t *dims);
bool contents_add_text(struct contents *contents, const char *name, const char *text);

// Makes room for everything in file `fd` and points the tensors at it. What is mapped is `*memory`
// of `*bytes`, for munmap.
bool contents_hand_over(struct contents *contents, int fd, void **memory, size_t *bytes);

#endif
