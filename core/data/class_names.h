// SPDX-License-Identifier: Apache-2.0
// The names of classes in the order of their numbers. Readers number the names that are in their
// files; another file may have fewer, and would give them other numbers. So what has learnt classes
// keeps their names, and other data gets its numbers. [any thread]
#ifndef LS_DATA_CLASS_NAMES_H
#define LS_DATA_CLASS_NAMES_H

#include "core/data/dataset.h"

struct ls_class_names {
    uint32_t count;
    char **names; // by number
    uint32_t *sorted; // numbers, in the order of their names
};

// LS_BAD_INPUT, not logged: there are none, or one of them twice.
LS_STATUS ls_class_names_copy(const char *const *names, uint32_t count,
                              struct ls_class_names **out);
void ls_class_names_destroy(struct ls_class_names *names); // takes NULL
bool ls_class_names_same(const struct ls_class_names *one, const struct ls_class_names *other);
// A name in a message, cut to 40 bytes, without what would break the line; returns `out`.
const char *ls_class_name_shown(const char *name, char out[static 128]);
// "'ant', 'bee', 'cat' and 4 others"; returns `out`.
const char *ls_class_names_list(const struct ls_class_names *names, char *out, size_t room);

// As JSON, for files: a list of texts; a name that is not UTF-8 is a list of its bytes. NULL: no
// memory.
char *ls_class_names_text(const struct ls_class_names *names);
// LS_BAD_INPUT, not logged: it is no such list.
LS_STATUS ls_class_names_parse(const char *text, struct ls_class_names **out);

// The target whose numbers follow the names in the files (ls_field.by_name); NULL: there is none.
const struct ls_field *ls_dataset_named_target(const struct ls_dataset *dataset);

// A dataset with the numbers of `names`. It reads from the other one, which must outlast it, and
// has no `close` of its own.
struct ls_numbered_dataset {
    struct ls_dataset dataset;
    struct ls_class_names *names;
    void *values; // of the fields by name
    struct ls_numbered_dataset *next; // the owner's
};

// `*out` is NULL where the numbers are those of `names` already, or follow no names. LS_BAD_INPUT,
// not logged: an example has a class that is not among `names`, which `unknown` then is.
LS_STATUS ls_dataset_renumber(const struct ls_dataset *dataset, const struct ls_class_names *names,
                              struct ls_numbered_dataset **out, const char **unknown);
void ls_numbered_dataset_destroy(struct ls_numbered_dataset *numbered); // takes NULL

#endif
