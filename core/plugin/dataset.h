// SPDX-License-Identifier: Apache-2.0
// What a dataset plugin implements. It describes its examples, and loads them one by one.
//
// --dataset=NAME[:option=value,...] finds dataset-NAME.so; NAME may also be a path. The host
// handles the options that all datasets have (limit, skip, validation_split, repeat, cache,
// random_flip, ...), so the plugin has no options of these names.
//
// The life of a source, of which there may be several at a time:
//   open    [any thread] reads as little as it needs to describe the split
//   load    [any thread] several at once
//   close   [any thread] when no load is under way
#ifndef LS_PLUGIN_DATASET_H
#define LS_PLUGIN_DATASET_H

#include "core/plugin/device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LS_DATASET_FIELDS 10 // at most

// What a field of the examples is for; they travel as uint32_t.
enum ls_field_role {
    LS_FIELD_INPUT, // read by the model: the first field by its first input, and so on
    LS_FIELD_TARGET, // what the loss compares the output with: classes or numbers
    LS_FIELD_WEIGHT, // how much the example counts in the loss
};

// A field: one part of every example.
struct ls_dataset_field {
    const char *name; // "x", for messages: at most 31 bytes; lives as long as the source
    uint32_t role; // enum ls_field_role; at most one target and one weight (a single F32)
    uint32_t dtype; // LS_U8, LS_I32 or LS_F32
    uint32_t classes; // of a target, LS_U8 or LS_I32: how many there are; 0: numbers
    uint32_t ndims; // of one example; 0: a single value
    int64_t dims[LS_MAX_DIMS]; // `ndims` of them, at most LS_MAX_DIMS - 1
    // The model reads value / divisor, as float32: 255 of images; 0: as stored.
    float divisor;
    uint32_t reserved;
};

// What a split has.
struct ls_dataset_description {
    uint64_t examples; // 1 to 4,294,967,294
    // A number that changes when the examples change; cache=FILE depends on it. 0: not known, and
    // cache=FILE is refused.
    uint64_t identity;
    uint32_t field_count; // 1 to LS_DATASET_FIELDS, at least one of them an input
    uint32_t reserved;
    struct ls_dataset_field fields[LS_DATASET_FIELDS]; // in the order in which load writes them
};

struct ls_dataset_state; // of an opened split, each plugin's own: `state_bytes` of zeroed memory

// The table of a dataset plugin.
struct ls_dataset_interface {
    uint32_t struct_size;
    // 1: there are no separate test examples; validation_split= divides the only ones.
    uint32_t one_split;
    uint64_t state_bytes; // of an opened split

    // Opens the split "train" or "test". `out` is zeroed.
    int32_t (*open)(const struct ls_host *host, const char *split, struct ls_dataset_state *state,
                    struct ls_dataset_description *out);

    // Writes example number `example` (from 0), as stored, to fields[0], fields[1], ..., in the
    // order of the description; elements are in plain order. The same number always gives the same
    // example. Errors go to host->fail.
    int32_t (*load)(struct ls_dataset_state *state, uint64_t example, void *const *fields);

    void (*close)(struct ls_dataset_state *state); // optional
};

#ifdef __cplusplus
}
#endif

#endif
