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
    "limit", "integer", NULL, "take only the first so many examples of each split"};

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
        ls_error(SCOPE, "there is no dataset %s; did you mean %s? There are: %s", name, nearest,
                 list);
    else
        ls_error(SCOPE, "there is no dataset %s; there are: %s", name, list);
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
                                  struct ls_dataset *dataset)
{
    if (limit > dataset->count && split == LS_TRAIN) {
        ls_error(SCOPE, "%s: limit=%" PRIu64 ", but there are only %" PRIu64 " training examples",
                 name, limit, dataset->count);
        return LS_USAGE;
    }
    if (limit && limit < dataset->count)
        dataset->count = limit;
    return LS_OK;
}

static enum ls_status open_kind(const struct ls_spec *spec, enum ls_split split,
                                struct ls_dataset **out)
{
    const struct ls_dataset_kind *kind = find_kind(spec->name);
    if (!kind)
        return unknown_kind(spec->name);
    uint64_t limit;
    enum ls_status status = check_options(kind, spec);
    if (!status)
        status = read_limit(spec, &limit);
    if (status)
        return status;
    struct ls_dataset *dataset;
    status = kind->open(spec, split, &dataset);
    if (status)
        return status;
    status = apply_limit(kind->name, split, limit, dataset);
    if (status)
        ls_dataset_close(dataset);
    else
        *out = dataset;
    return status;
}

enum ls_status ls_dataset_open(const char *text, enum ls_split split, struct ls_dataset **out)
{
    struct ls_spec spec;
    enum ls_status status = ls_spec_parse(SCOPE, text, &spec);
    if (status)
        return status;
    status = open_kind(&spec, split, out);
    ls_spec_finish(&spec);
    return status;
}

void ls_dataset_close(struct ls_dataset *dataset)
{
    if (dataset)
        dataset->close(dataset);
}
