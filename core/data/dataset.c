// SPDX-License-Identifier: Apache-2.0
// Opens a dataset by its text: finds the kind, checks the options, applies `limit`.
#include "core/data/dataset.h"

#include "core/base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCOPE "--dataset"

static const struct ls_plugin_option limit_option = {
    "limit", "integer", NULL, "take only the first N examples of each split"};

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

// The options of the kind, and `limit`.
static enum ls_status check_options(const struct ls_dataset_kind *kind, const struct ls_spec *spec)
{
    size_t count = 0;
    while (kind->options && kind->options[count].name)
        count++;
    struct ls_plugin_option *table = calloc(count + 2, sizeof(*table));
    if (!table)
        return LS_OUT_OF_MEMORY;
    if (count)
        memcpy(table, kind->options, count * sizeof(*table));
    table[count] = limit_option;
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

static enum ls_status apply_limit(const char *name, enum ls_split split, uint64_t limit,
                                  uint64_t *count)
{
    if (limit > *count && split == LS_TRAIN) {
        ls_error(SCOPE, "%s: limit=%" PRIu64 ", but there are only %" PRIu64 " training examples",
                 name, limit, *count);
        return LS_USAGE;
    }
    if (limit && limit < *count)
        *count = limit;
    return LS_OK;
}

// A dataset as the user wrote it, checked.
struct wanted {
    struct ls_spec spec;
    const struct ls_dataset_kind *kind;
    uint64_t limit;
};

static enum ls_status parse(const char *text, struct wanted *out)
{
    enum ls_status status = ls_spec_parse(SCOPE, text, &out->spec);
    if (status)
        return status;
    out->kind = find_kind(out->spec.name);
    status = out->kind ? check_options(out->kind, &out->spec) : unknown_kind(out->spec.name);
    if (!status)
        status = read_limit(&out->spec, &out->limit);
    if (status)
        ls_spec_finish(&out->spec);
    return status;
}

enum ls_status ls_dataset_open(const char *text, enum ls_split split, struct ls_dataset **out)
{
    struct wanted wanted;
    struct ls_dataset *dataset = NULL;
    enum ls_status status = parse(text, &wanted);
    if (status)
        return status;
    status = wanted.kind->open(&wanted.spec, split, &dataset);
    if (!status)
        status = apply_limit(wanted.kind->name, split, wanted.limit, &dataset->count);
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
    enum ls_status status = parse(text, &wanted);
    if (status)
        return status;
    status = wanted.kind->describe(&wanted.spec, split, &info);
    if (!status)
        status = apply_limit(wanted.kind->name, split, wanted.limit, &info.count);
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
