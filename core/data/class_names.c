// SPDX-License-Identifier: Apache-2.0
// Keeps the names of classes, in memory and as JSON, and gives a dataset the numbers of another.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // qsort_r
#endif
#include "core/data/class_names.h"

#include "core/base/dtype.h"
#include "core/base/json_size.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_NAMES 65536

// ---- Names ----

static int compare_numbers(const void *a, const void *b, void *names)
{
    char *const *all = names;
    return strcmp(all[*(const uint32_t *)a], all[*(const uint32_t *)b]);
}

enum ls_status ls_class_names_copy(const char *const *names, uint32_t count,
                                   struct ls_class_names **out)
{
    if (count == 0 || count > MOST_NAMES)
        return LS_BAD_INPUT;
    struct ls_class_names *copy = calloc(1, sizeof(*copy));
    if (!copy)
        return LS_OUT_OF_MEMORY;
    copy->names = calloc(count, sizeof(*copy->names));
    copy->sorted = calloc(count, sizeof(*copy->sorted));
    enum ls_status status = copy->names && copy->sorted ? LS_OK : LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < count; i++) {
        copy->names[i] = strdup(names[i]);
        copy->sorted[i] = i;
        copy->count++;
        status = copy->names[i] ? LS_OK : LS_OUT_OF_MEMORY;
    }
    if (!status)
        qsort_r(copy->sorted, count, sizeof(*copy->sorted), compare_numbers, copy->names);
    for (uint32_t i = 1; !status && i < count; i++)
        if (strcmp(copy->names[copy->sorted[i - 1]], copy->names[copy->sorted[i]]) == 0)
            status = LS_BAD_INPUT;
    if (status)
        ls_class_names_destroy(copy);
    else
        *out = copy;
    return status;
}

void ls_class_names_destroy(struct ls_class_names *names)
{
    if (!names)
        return;
    for (uint32_t i = 0; i < names->count; i++)
        free(names->names[i]);
    free(names->names);
    free(names->sorted);
    free(names);
}

bool ls_class_names_same(const struct ls_class_names *one, const struct ls_class_names *other)
{
    bool same = one->count == other->count;
    for (uint32_t i = 0; same && i < one->count; i++)
        same = strcmp(one->names[i], other->names[i]) == 0;
    return same;
}

const char *ls_class_name_shown(const char *name, char out[static 128])
{
    char *end = out;
    for (size_t i = 0; name[i] && i < 40; i++) {
        const unsigned char byte = (unsigned char)name[i];
        if (byte < ' ' || byte == 0x7f)
            end += sprintf(end, "\\x%02x", byte);
        else
            *end++ = (char)byte;
    }
    *end = '\0';
    return out;
}

const char *ls_class_names_list(const struct ls_class_names *names, char *out, size_t room)
{
    char name[128];
    size_t used = 0;
    uint32_t i = 0;
    for (; i < names->count; i++) {
        ls_class_name_shown(names->names[i], name);
        if (used + strlen(name) + 32 >= room)
            break;
        used += (size_t)snprintf(out + used, room - used, "%s'%s'", i ? ", " : "", name);
    }
    if (i < names->count)
        snprintf(out + used, room - used, " and %u others", names->count - i);
    return out;
}

// -1: it is not among them.
static int64_t find_number(const struct ls_class_names *names, const char *name)
{
    uint32_t low = 0, high = names->count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2, number = names->sorted[middle];
        const int order = strcmp(names->names[number], name);
        if (order == 0)
            return number;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

// ---- As JSON ----

static json_t *name_json(const char *name)
{
    json_t *json = json_string(name);
    if (json)
        return json;
    json = json_array();
    for (; *name; name++)
        json_array_append_new(json, json_integer((unsigned char)*name));
    return json;
}

char *ls_class_names_text(const struct ls_class_names *names)
{
    json_t *list = json_array();
    bool whole = list != NULL;
    for (uint32_t i = 0; whole && i < names->count; i++)
        whole = json_array_append_new(list, name_json(names->names[i])) == 0;
    char *text = whole ? json_dumps(list, JSON_COMPACT) : NULL;
    json_decref(list);
    return text;
}

// Freed by the caller. NULL: it is no name, or there is no memory.
static char *read_name(const json_t *json)
{
    const size_t length = json_array_size(json);
    if (json_is_string(json))
        return strdup(json_string_value(json));
    char *name = length ? calloc(length + 1, 1) : NULL;
    for (size_t i = 0; name && i < length; i++) {
        const json_int_t byte = json_integer_value(json_array_get(json, i));
        if (byte < 1 || byte > 255) {
            free(name);
            return NULL;
        }
        name[i] = (char)byte;
    }
    return name;
}

enum ls_status ls_class_names_parse(const char *text, struct ls_class_names **out)
{
    json_t *list = ls_json_fits(text, strlen(text)) ? json_loads(text, 0, NULL) : NULL;
    const size_t count = json_array_size(list);
    char **names = count && count <= MOST_NAMES ? calloc(count, sizeof(*names)) : NULL;
    bool whole = names != NULL;
    for (size_t i = 0; whole && i < count; i++) {
        names[i] = read_name(json_array_get(list, i));
        whole = names[i] != NULL;
    }
    const enum ls_status status =
        whole ? ls_class_names_copy((const char *const *)names, (uint32_t)count, out)
              : LS_BAD_INPUT;
    for (size_t i = 0; names && i < count; i++)
        free(names[i]);
    free(names);
    json_decref(list);
    return status;
}

// ---- Datasets ----

const struct ls_field *ls_dataset_named_target(const struct ls_dataset *dataset)
{
    const struct ls_field *target =
        ls_field_find(dataset->fields, dataset->field_count, LS_FIELD_TARGET, 0);
    return target && target->by_name && target->class_names && target->values ? target : NULL;
}

void ls_numbered_dataset_destroy(struct ls_numbered_dataset *numbered)
{
    if (!numbered)
        return;
    ls_class_names_destroy(numbered->names);
    free(numbered->values);
    free(numbered);
}

// The number that each number of the target becomes; -1: none. `*same`: all stay as they are.
static int64_t *make_map(const struct ls_field *target, const struct ls_class_names *names,
                         bool *same)
{
    int64_t *map = calloc((size_t)target->class_count + 1, sizeof(*map));
    *same = map != NULL;
    for (uint32_t i = 0; map && i < target->class_count; i++) {
        map[i] = find_number(names, target->class_names[i]);
        if (target->dtype == LS_U8 && map[i] > UINT8_MAX)
            map[i] = -1;
        *same = *same && map[i] == i;
    }
    return map;
}

// The values of all fields by name, which are of one type and may overlap: those of a text do.
static void find_values(const struct ls_dataset *dataset, const char **first, const char **end)
{
    const uint64_t examples = dataset->count / (dataset->repeat > 1 ? dataset->repeat : 1);
    *first = *end = NULL;
    for (uint32_t i = 0; i < dataset->field_count; i++) {
        const struct ls_field *field = &dataset->fields[i];
        if (!field->by_name)
            continue;
        const char *from = field->values;
        const char *to = from + (examples - 1) * field->stride +
                         ls_field_elements(field) * ls_dtype_bytes(field->dtype);
        *first = !*first || from < *first ? from : *first;
        *end = to > *end ? to : *end;
    }
}

// A number without a name among those known; LS_OK: there is none.
static enum ls_status map_values(const struct ls_field *target, const int64_t *map,
                                 const char *from, uint64_t bytes, void *to, uint32_t *unknown)
{
    const uint64_t size = ls_dtype_bytes(target->dtype);
    for (uint64_t i = 0; i < bytes / size; i++) {
        const uint32_t number = size == 1 ? (uint32_t)((const uint8_t *)from)[i]
                                          : (uint32_t)((const int32_t *)(const void *)from)[i];
        if (number >= target->class_count || map[number] < 0) {
            *unknown = number;
            return LS_BAD_INPUT;
        }
        if (size == 1)
            ((uint8_t *)to)[i] = (uint8_t)map[number];
        else
            ((int32_t *)to)[i] = (int32_t)map[number];
    }
    return LS_OK;
}

enum ls_status ls_dataset_renumber(const struct ls_dataset *dataset,
                                   const struct ls_class_names *names,
                                   struct ls_numbered_dataset **out, const char **unknown)
{
    const struct ls_field *target = ls_dataset_named_target(dataset);
    const char *first, *end;
    uint32_t number = 0;
    bool same = true;
    *out = NULL;
    int64_t *map = target ? make_map(target, names, &same) : NULL;
    if (!map || same) {
        free(map);
        return target && !map ? LS_OUT_OF_MEMORY : LS_OK;
    }
    find_values(dataset, &first, &end);
    struct ls_numbered_dataset *numbered = calloc(1, sizeof(*numbered));
    enum ls_status status = numbered ? ls_class_names_copy((const char *const *)names->names,
                                                           names->count, &numbered->names)
                                     : LS_OUT_OF_MEMORY;
    if (!status) {
        numbered->values = malloc((size_t)(end - first));
        status = numbered->values ? LS_OK : LS_OUT_OF_MEMORY;
    }
    if (!status) {
        status = map_values(target, map, first, (uint64_t)(end - first), numbered->values, &number);
        if (status)
            *unknown = number < target->class_count ? target->class_names[number] : "?";
    }
    free(map);
    if (status) {
        ls_numbered_dataset_destroy(numbered);
        return status;
    }
    numbered->dataset = *dataset;
    numbered->dataset.close = NULL;
    for (uint32_t i = 0; i < dataset->field_count; i++) {
        struct ls_field *field = &numbered->dataset.fields[i];
        if (!field->by_name)
            continue;
        field->values = (char *)numbered->values + ((const char *)field->values - first);
        if (field->role != LS_FIELD_TARGET)
            continue;
        field->class_names = (const char *const *)numbered->names->names;
        field->class_count = names->count;
    }
    *out = numbered;
    return LS_OK;
}
