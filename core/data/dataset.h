// SPDX-License-Identifier: Apache-2.0
// A dataset: examples and labels in memory, in the types of their file format, and the divisor that
// turns them into float32. datasets/ defines the readers; core/data/ shuffles, shards and gathers.
#ifndef LS_DATA_DATASET_H
#define LS_DATA_DATASET_H

#include "core/base/options.h"
#include "core/base/status.h"
#include "core/plugin/device.h"

#include <stdbool.h>
#include <stdint.h>

enum ls_split { LS_TRAIN = 0, LS_TEST = 1 };

// Read-only once opened, shared by all threads.
struct ls_dataset {
    uint64_t count; // examples
    uint32_t ndims; // of one example, plain layout
    int64_t dims[LS_MAX_DIMS];
    uint32_t example_dtype; // LS_U8 or LS_F32, as stored
    const void *examples; // count x dims
    float divisor; // float32 example = (float)stored value / divisor, rounded once
    uint32_t label_dtype; // LS_U8 or LS_I32 (class numbers) or LS_F32 (targets)
    const void *labels; // count x label_elements
    uint64_t label_elements; // 1 for class numbers
    uint32_t class_count; // 0: targets
    const char *const *class_names; // NULL: none
    bool real; // false: synthetic, which is logged
    void *storage; // the reader's own
    void (*close)(struct ls_dataset *dataset);
};

// The facts about a split that are known before its examples are read.
struct ls_dataset_info {
    uint64_t count;
    uint32_t ndims; // of one example, plain layout
    int64_t dims[LS_MAX_DIMS];
    uint32_t example_dtype; // LS_U8 or LS_F32, as stored; 0: not known
    float divisor;
    uint64_t label_elements;
    uint32_t class_count; // 0: targets
};

struct ls_dataset_kind {
    const char *name;
    const char *summary;
    const struct ls_plugin_option *options; // ends with a NULL name; `limit` is known to all
    // Opens one split. Errors are logged with file and position: LS_BAD_INPUT for files that are
    // missing (the message says which package or option provides them) or malformed. [any thread]
    enum ls_status (*open)(const struct ls_spec *spec, enum ls_split split,
                           struct ls_dataset **out);
    // Reads only headers and options; errors as in `open`. [any thread]
    enum ls_status (*describe)(const struct ls_spec *spec, enum ls_split split,
                               struct ls_dataset_info *out);
};

// All datasets, ends with NULL. Defined in datasets/.
extern const struct ls_dataset_kind *const ls_dataset_kinds[];

// Opens "fashion-mnist:dir=/data,limit=1000": finds the kind (unknown: LS_USAGE, and the message
// suggests the nearest name), checks the options and opens the split. `limit=N` keeps the first N
// examples of each split. A limit above the size of the training set is LS_USAGE (the message says
// the size); a test set that is smaller than the limit is kept whole.
LS_STATUS ls_dataset_open(const char *text, enum ls_split split, struct ls_dataset **out);
// Describes the result of ls_dataset_open from headers only, so that a model can be prepared while
// files are read.
LS_STATUS ls_dataset_describe(const char *text, enum ls_split split, struct ls_dataset_info *out);
void ls_dataset_close(struct ls_dataset *dataset); // takes NULL

#endif
