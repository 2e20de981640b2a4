// SPDX-License-Identifier: Apache-2.0
// A dataset: a number of examples in memory, each with several fields (what a model reads, what its
// output is compared with, how much the example counts), in the types of their file format.
// datasets/ defines the readers; core/data/ shuffles, shards and gathers.
#ifndef LS_DATA_DATASET_H
#define LS_DATA_DATASET_H

#include "core/base/options.h"
#include "core/base/status.h"
#include "core/plugin/dataset.h"

#include <stdbool.h>
#include <stdint.h>

struct ls_hash;

enum ls_split {
    LS_TRAIN = 0,
    LS_TEST = 1,
    LS_VALIDATION = 2, // what a training is validated on; readers are never asked for it
};

#define LS_MAX_FIELDS LS_DATASET_FIELDS
#define LS_MAX_INPUTS (LS_MAX_FIELDS - 2) // at most, beside a target and a weight

// One part of every example. The values of one example are contiguous, in plain layout.
struct ls_field {
    char name[32]; // "x", for messages
    enum ls_field_role role;
    bool optional; // a model may do without this input and those behind it
    uint32_t dtype; // as stored: LS_U8, LS_I32 or LS_F32; 0: not known before it is read
    uint32_t ndims; // of one example; 0: a single value
    int64_t dims[LS_MAX_DIMS];
    float divisor; // float32 value = (float)stored value / divisor, rounded once; 1: as stored
    uint32_t class_count; // of a target; 0: numbers, not classes
    // In how many examples `class_count` was the largest label, and one; 0: the dataset says how many there are.
    uint64_t counted_in;
    const char *const *class_names; // NULL: none
    bool text; // of a target: classes are the bytes of a text, and class_names is its vocabulary
    // The numbers are places among the names of the target, in the order that these have in the
    // files: other files may number them otherwise (class_names.h). Of the target, which then has
    // class_names and values, and of inputs of the same type.
    bool by_name;
    const void *values; // NULL: only described
    // Bytes from one example to the next. Fewer than an example has, where examples overlap, as
    // windows of a text do.
    uint64_t stride;
};

// What happens to the first input of training examples, at random (augment.h).
struct ls_augmentation {
    bool flip_rows, flip_columns;
    uint32_t crop; // rows and columns of zeros on each side
    double translation; // part of height and width
    double rotation; // part of a turn
};

// Read-only once opened, shared by all threads.
struct ls_dataset {
    uint64_t count; // examples of an epoch
    uint64_t repeat; // an epoch has count / repeat examples, this many times; 0: as 1
    uint32_t field_count; // at most LS_MAX_FIELDS; one WEIGHT at most, a TARGET an output
    struct ls_field fields[LS_MAX_FIELDS];
    bool real; // false: synthetic, which is logged
    struct ls_augmentation augmentation; // of batches that are trained on
    // Makes the fields without values; NULL: all have values. Writes them, as they would be stored,
    // of `count` examples from `first` on to `fields` (by field, one example after the other), or
    // logs why not. `count` is 1 unless `in_order`. An example is the same whenever it is made,
    // but for the `epoch` of a dataset in order. [any thread, several at once; in order: one]
    enum ls_status (*load)(const struct ls_dataset *dataset, uint64_t epoch, uint64_t first,
                           uint64_t count, void *const *fields);
    uint64_t first; // what `load` knows as `first` is example 0: those before it are left out
    bool in_order; // examples are never shuffled
    uint64_t identity; // of the files that `load` reads: another one when they change
    // Adds what tells the example that `load` knows as `example` from others, without its making:
    // how its file is called below the folder of the dataset, how large it is, and with `whole` what
    // is in it. NULL: `load` makes it to be looked at, but not of a dataset in order. [any thread]
    enum ls_status (*identify)(const struct ls_dataset *dataset, uint64_t example, bool whole,
                               struct ls_hash *hash);
    // The name of that example's file below the folder of the dataset. NULL: they have none. [any thread]
    const char *(*name)(const struct ls_dataset *dataset, uint64_t example);
    const struct ls_dataset *made; // of a cache: what it keeps
    uint64_t contents; // ls_dataset_contents, where it is known already; 0: not yet
    void *storage; // the reader's own
    void (*close)(struct ls_dataset *dataset);
};

// What is known about a split before its examples are read: the fields have no values yet.
struct ls_dataset_info {
    uint64_t count;
    uint32_t field_count;
    struct ls_field fields[LS_MAX_FIELDS];
    bool on_demand; // some fields are made by `load`
};

// The file that example `example` of an epoch in order comes from; NULL: it has none of its own.
const char *ls_dataset_example_name(const struct ls_dataset *dataset, uint64_t example);

uint64_t ls_field_elements(const struct ls_field *field); // of one example
// Field `index` of that role among `count` fields; NULL: there are fewer.
const struct ls_field *ls_field_find(const struct ls_field *fields, uint32_t count,
                                     enum ls_field_role role, uint32_t index);
// LS_BAD_INPUT, logged under `scope`: a label of these examples is no class. It would be an address
// outside of the loss.
LS_STATUS ls_field_check_labels(const char *scope, const struct ls_field *field, uint64_t first,
                                uint64_t count, const void *values);

struct ls_dataset_kind {
    const char *name;
    const char *summary;
    const struct ls_plugin_option *options; // ends with a NULL name; common ones are known to all
    bool one_split; // train and test are the same examples, unless `validation_split` divides them
    // The same where the options decide; NULL: they do not. [any thread]
    bool (*is_one_split)(const struct ls_spec *spec);
    // Opens one split. Errors are logged with file and position: LS_BAD_INPUT for files that are
    // missing (the message says which package or option provides them) or malformed. [any thread]
    enum ls_status (*open)(const struct ls_spec *spec, enum ls_split split,
                           struct ls_dataset **out);
    // Reads only headers and options; errors as in `open`. NULL: what there is is known only once
    // all is read. [any thread]
    enum ls_status (*describe)(const struct ls_spec *spec, enum ls_split split,
                               struct ls_dataset_info *out);
    // Of one of the user's own, which knows itself by `kind`, in place of both. [any thread]
    enum ls_status (*open_own)(const struct ls_dataset_kind *kind, const struct ls_spec *spec,
                               enum ls_split split, struct ls_dataset **out);
};

// Whether datasets/ has one of this name.
bool ls_dataset_is_known(const char *name);
// LS_USAGE, logged. `registered`: ls_loader_registered_text(), or "".
LS_STATUS ls_dataset_refuse_unknown(const char *name, const char *registered);

// LS_USAGE, logged with what reads it: the unknown name is that of a file or a folder.
LS_STATUS ls_dataset_refuse_path(const char *name);
// LS_USAGE, logged with the option that is meant: "csv:table.csv".
LS_STATUS ls_dataset_refuse_bare_path(const char *text);

// All datasets, ends with NULL. Defined in datasets/.
extern const struct ls_dataset_kind *const ls_dataset_kinds[];

// Opens "fashion-mnist:dir=/data,limit=1000": finds the kind (unknown: LS_USAGE, and the message
// suggests the nearest name), checks the options and opens the split. Options of all kinds:
// - `skip=N` leaves out the first N examples of each split, then `limit=N` (or `take=N`) keeps the
//   first N. More than the training set has is LS_USAGE (the message says its size); a test set that
//   is smaller than the limit is kept whole.
// - `validation_split=F` makes the last part F of the training examples, before they are shuffled,
//   those that a training is validated on. LS_USAGE where either part would be empty.
// - `repeat=N` gives each training example N times in an epoch.
// - `cache=memory` and `cache=FILE` keep what `load` makes (cache.h).
// - `random_flip=` and its relatives (augment.h) change training images.
// LS_VALIDATION is that last part, else the test split. A dataset of one split has no other test
// split than that part; without it LS_VALIDATION has no examples, and is only to be described.
LS_STATUS ls_dataset_open(const char *text, enum ls_split split, struct ls_dataset **out);
// The same of a kind that is given (NULL: by its name).
LS_STATUS ls_dataset_open_as(const struct ls_dataset_kind *kind, const char *text,
                             enum ls_split split, struct ls_dataset **out);
// Describes the result of ls_dataset_open from headers only, so that a model can be prepared while
// files are read.
LS_STATUS ls_dataset_describe(const char *text, enum ls_split split, struct ls_dataset_info *out);
LS_STATUS ls_dataset_describe_as(const struct ls_dataset_kind *kind, const char *text,
                                 enum ls_split split, struct ls_dataset_info *out);
// Whether describing it would read all of it, so that it is better opened at once. Not of a split
// without examples. Errors of the text are logged.
LS_STATUS ls_dataset_reads_to_describe(const struct ls_dataset_kind *kind, const char *text,
                                       enum ls_split split, bool *out);
// What an opened dataset is. `class_names` are not taken, because they end with the dataset.
void ls_dataset_take_description(const struct ls_dataset *dataset, struct ls_dataset_info *out);
// What tells the examples from others, never 0: a hash of all values that are in memory, of shapes, types and
// divisors, of the names of classes, in their order, and of repeat= and the augmentation; where examples are made
// on demand, of what `identify` says, whole for 4,096 of them at equal distances. Neither folders nor the user's
// text count, nor a cache. [any thread]
LS_STATUS ls_dataset_contents(const struct ls_dataset *dataset, uint64_t *out);
void ls_dataset_close(struct ls_dataset *dataset); // takes NULL

#endif
