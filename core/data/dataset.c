// SPDX-License-Identifier: Apache-2.0
// Opens a dataset by its text: finds the kind, checks the options, applies `limit`.
#include "core/data/dataset.h"

#include "core/base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCOPE "--dataset"

static const struct ls_plugin_option common[] = {
    {"limit", "integer", NULL, "take only the first N examples of each split"},
    {"validation_split", "number", NULL,
     "validate on this last part of the training examples, from 0 to 1"},
};

static enum ls_status unknown_kind(const char *name)
{
    const char *names[64];
    char list[512] = "";
    size_t count = 0, length = 0;
    for (; ls_dataset_kinds[count] && count < 63; count++) {
        names[count] = ls_dataset_kinds[count]->name;
        if (length < sizeof(list))
            length += (size_t)snprintf(list + length, sizeof(list) - length, "%s%s",
                                       count ? ", " : "", names[count]);
    }
    names[count] = NULL;
    const char *nearest = ls_nearest(name, names);
    if (nearest)
        ls_error(SCOPE, "unknown dataset %s; did you mean %s? Available: %s", name, nearest, list);
    else
        ls_error(SCOPE, "unknown dataset %s; available: %s", name, list);
    return LS_USAGE;
}

static const struct ls_dataset_kind *find_kind(const char *name)
{
    for (size_t i = 0; ls_dataset_kinds[i]; i++)
        if (!strcmp(ls_dataset_kinds[i]->name, name))
            return ls_dataset_kinds[i];
    return NULL;
}

// The options of the kind, and the common ones.
static enum ls_status check_options(const struct ls_dataset_kind *kind, const struct ls_spec *spec)
{
    size_t count = 0;
    while (kind->options && kind->options[count].name)
        count++;
    struct ls_plugin_option *table =
        calloc(count + sizeof(common) / sizeof(common[0]) + 1, sizeof(*table));
    if (!table)
        return LS_OUT_OF_MEMORY;
    if (count)
        memcpy(table, kind->options, count * sizeof(*table));
    memcpy(table + count, common, sizeof(common));
    const enum ls_status status = ls_spec_check(SCOPE, spec, table);
    free(table);
    return status;
}

// 0: none given.
static enum ls_status read_limit(const struct ls_spec *spec, uint64_t *out)
{
    const char *text = ls_spec_get(spec, "limit");
    int64_t limit = 0;
    if (text && (!ls_parse_integer(text, &limit) || limit < 1)) {
        ls_error(SCOPE, "%s: limit must be at least 1, not %s", spec->name, text);
        return LS_USAGE;
    }
    *out = (uint64_t)limit;
    return LS_OK;
}

// 0: none given.
static enum ls_status read_validation_split(const struct ls_spec *spec, double *out)
{
    const char *text = ls_spec_get(spec, "validation_split");
    double part = 0;
    if (text && (!ls_parse_number(text, &part) || !(part > 0 && part < 1))) {
        ls_error(SCOPE, "%s: validation_split must be between 0 and 1, not %s", spec->name, text);
        return LS_USAGE;
    }
    *out = part;
    return LS_OK;
}

// A dataset as the user wrote it, checked, and which of its examples are asked for.
struct wanted {
    struct ls_spec spec;
    const struct ls_dataset_kind *kind;
    uint64_t limit;
    double validation_split;
    enum ls_split split; // that its reader is asked for
    bool divided, last_part; // by validation_split; the part behind the cut
    bool none; // there are no such examples
};

static void choose_split(enum ls_split split, struct wanted *wanted)
{
    const bool one = wanted->kind->one_split, cut = wanted->validation_split > 0;
    wanted->last_part = cut && (split == LS_VALIDATION || (split == LS_TEST && one));
    wanted->divided = cut && (split == LS_TRAIN || wanted->last_part);
    wanted->split = one || split == LS_TRAIN || wanted->last_part ? LS_TRAIN : LS_TEST;
    wanted->none = one && !cut && split == LS_VALIDATION;
}

static enum ls_status parse(const char *text, enum ls_split split, struct wanted *out)
{
    enum ls_status status = ls_spec_parse(SCOPE, text, &out->spec);
    if (status)
        return status;
    out->kind = find_kind(out->spec.name);
    status = out->kind ? check_options(out->kind, &out->spec) : unknown_kind(out->spec.name);
    if (!status)
        status = read_limit(&out->spec, &out->limit);
    if (!status)
        status = read_validation_split(&out->spec, &out->validation_split);
    if (status)
        ls_spec_finish(&out->spec);
    else
        choose_split(split, out);
    return status;
}

// The examples that are asked for, of the `count` that the reader has: `count` from `first` on.
static enum ls_status choose_examples(const struct wanted *wanted, uint64_t *first, uint64_t *count)
{
    const char *name = wanted->kind->name;
    if (wanted->limit > *count && wanted->split == LS_TRAIN) {
        ls_error(SCOPE, "%s: limit=%" PRIu64 ", but there are only %" PRIu64 " training examples",
                 name, wanted->limit, *count);
        return LS_USAGE;
    }
    if (wanted->limit && wanted->limit < *count)
        *count = wanted->limit;
    *first = 0;
    if (!wanted->divided)
        return LS_OK;
    const uint64_t cut = (uint64_t)((double)*count * (1.0 - wanted->validation_split)); // as Keras
    if (cut == 0 || cut >= *count) {
        ls_error(SCOPE,
                 "%s: validation_split=%s of %" PRIu64 " examples leaves none to %s; give more "
                 "examples or another part",
                 name, ls_spec_get(&wanted->spec, "validation_split"), *count,
                 cut ? "validate on" : "train on");
        return LS_USAGE;
    }
    *first = wanted->last_part ? cut : 0;
    *count = wanted->last_part ? *count - cut : cut;
    return LS_OK;
}

enum ls_status ls_dataset_open(const char *text, enum ls_split split, struct ls_dataset **out)
{
    struct wanted wanted;
    struct ls_dataset *dataset = NULL;
    uint64_t first = 0;
    enum ls_status status = parse(text, split, &wanted);
    if (status)
        return status;
    status = wanted.kind->open(&wanted.spec, wanted.split, &dataset);
    if (!status)
        status = choose_examples(&wanted, &first, &dataset->count);
    for (uint32_t i = 0; !status && first && i < dataset->field_count; i++)
        dataset->fields[i].values =
            (const char *)dataset->fields[i].values + first * dataset->fields[i].stride;
    ls_spec_finish(&wanted.spec);
    if (status)
        ls_dataset_close(dataset);
    else
        *out = dataset;
    return status;
}

enum ls_status ls_dataset_describe(const char *text, enum ls_split split,
                                   struct ls_dataset_info *out)
{
    struct wanted wanted;
    struct ls_dataset_info info = {0};
    uint64_t first;
    enum ls_status status = parse(text, split, &wanted);
    if (status)
        return status;
    status = wanted.kind->describe(&wanted.spec, wanted.split, &info);
    if (!status)
        status = choose_examples(&wanted, &first, &info.count);
    if (wanted.none)
        info.count = 0;
    ls_spec_finish(&wanted.spec);
    if (!status)
        *out = info;
    return status;
}

void ls_dataset_close(struct ls_dataset *dataset)
{
    if (dataset)
        dataset->close(dataset);
}
