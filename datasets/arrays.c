// SPDX-License-Identifier: Apache-2.0
// arrays: one file for each input of the model and for each of its targets, .npy or .safetensors.
// Values are taken as they are.
#include "datasets/datasets.h"

#include "core/base/log.h"
#include "core/data/arrays.h"
#include "core/formats/npy.h"
#include "core/formats/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCOPE "arrays"
#define PIECE_VALUES 8192 // of 64 bits, that are converted at a time

static const struct ls_plugin_option options[] = {
    {"x", "text", NULL, "file of the model's first input, .npy or .safetensors"},
    {"x2", "text", NULL, "file of its second input"},
    {"x3", "text", NULL, "file of its third input; and so on"},
    {"x4", "text", NULL, NULL},
    {"x5", "text", NULL, NULL},
    {"x6", "text", NULL, NULL},
    {"x7", "text", NULL, NULL},
    {"x8", "text", NULL, NULL},
    {"y", "text", NULL, "file of the targets: classes from 0, or numbers; not needed to predict"},
    {"y2", "text", NULL, "file of the targets of the second output with a loss; and so on"},
    {"y3", "text", NULL, NULL},
    {"y4", "text", NULL, NULL},
    {"y5", "text", NULL, NULL},
    {"y6", "text", NULL, NULL},
    {"y7", "text", NULL, NULL},
    {"y8", "text", NULL, NULL},
    {"sample_weight", "text", NULL, "file of a number an example: how much it counts in the loss"},
    {0},
};
#define OPTIONS (sizeof(options) / sizeof(options[0]) - 1)
#define FIRST_TARGET 8 // of the options

// One file, its header read.
struct opened {
    struct ls_field_array array;
    int64_t dims[LS_SAFETENSORS_MAX_DIMS];
    struct ls_npy_file *npy; // either of the two
    struct ls_safetensors *tensors;
    const void *values; // of a tensor
};

static void close_file(struct opened *opened)
{
    ls_npy_close(opened->npy);
    ls_safetensors_close(opened->tensors);
}

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), wanted = strlen(end);
    return length > wanted && strcmp(text + length - wanted, end) == 0;
}

// Floating types come as float32.
static bool find_type(const struct ls_saved_tensor *tensor, struct opened *out)
{
    static const struct {
        const char *name;
        uint32_t dtype;
    } types[] = {{"I32", LS_I32}, {"I64", LS_I64}, {"U8", LS_U8}, {"BOOL", LS_U8}};
    out->values = tensor->data ? tensor->data : tensor->values;
    out->array.dtype = tensor->data ? LS_F32 : 0;
    out->array.boolean = strcmp(tensor->dtype, "BOOL") == 0;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(tensor->dtype, types[i].name) == 0)
            out->array.dtype = types[i].dtype;
    return out->array.dtype != 0;
}

// The tensor called like the option, or the only one of the file.
static enum ls_status open_tensor(const char *path, struct opened *out)
{
    enum ls_status status = ls_safetensors_open(path, &out->tensors);
    if (status)
        return status;
    const struct ls_saved_tensor *tensor = ls_safetensors_find(out->tensors, out->array.name);
    if (!tensor && ls_safetensors_count(out->tensors) == 1)
        tensor = ls_safetensors_get(out->tensors, 0);
    if (!tensor) {
        ls_error(SCOPE, "%s: %zu tensors, and none is called %s", path,
                 ls_safetensors_count(out->tensors), out->array.name);
        return LS_BAD_INPUT;
    }
    if (!find_type(tensor, out)) {
        ls_error(SCOPE, "%s: tensor %s: dtype %s; expected BOOL, U8, I32, I64 or a floating type",
                 path, tensor->name, tensor->dtype);
        return LS_BAD_INPUT;
    }
    out->array.ndims = tensor->ndims;
    memcpy(out->dims, tensor->dims, tensor->ndims * sizeof(out->dims[0]));
    return LS_OK;
}

static enum ls_status open_npy(const char *path, struct opened *out)
{
    const enum ls_status status = ls_npy_open(path, &out->npy);
    if (status)
        return status;
    const struct ls_npy *header = ls_npy_header(out->npy);
    out->array.dtype = header->dtype;
    out->array.boolean = header->boolean;
    out->array.ndims = header->ndims;
    memcpy(out->dims, header->dims, header->ndims * sizeof(out->dims[0]));
    return LS_OK;
}

static enum ls_status open_file(const char *name, const char *path, struct opened *out)
{
    *out = (struct opened){.array = {.name = name,
                                     .source = path,
                                     .role = name[0] == 'y'   ? LS_FIELD_TARGET
                                             : name[0] == 's' ? LS_FIELD_WEIGHT
                                                              : LS_FIELD_INPUT}};
    const enum ls_status status =
        ends_with(path, ".safetensors") ? open_tensor(path, out) : open_npy(path, out);
    out->array.dims = out->dims;
    return status;
}

// Values of 64 bits in pieces, others straight to where they stay.
static enum ls_status read_npy(const struct opened *opened, uint64_t count, char *to,
                               uint64_t stored_bytes)
{
    const uint64_t size = ls_dtype_bytes(opened->array.dtype);
    enum ls_status status = LS_OK;
    if (size == stored_bytes && !opened->array.boolean)
        return ls_npy_read(opened->npy, to, count * size);
    uint64_t *piece = malloc(PIECE_VALUES * sizeof(*piece));
    if (!piece)
        return LS_OUT_OF_MEMORY;
    for (uint64_t i = 0; !status && i < count; i += PIECE_VALUES) {
        const uint64_t values = count - i < PIECE_VALUES ? count - i : PIECE_VALUES;
        status = ls_npy_read(opened->npy, piece, values * size);
        if (!status)
            status =
                ls_array_convert(SCOPE, &opened->array, i, values, piece, to + i * stored_bytes);
    }
    free(piece);
    return status;
}

// The field's values, which `field` owns from now on, and its classes.
static enum ls_status read_values(const struct opened *opened, uint64_t count,
                                  struct ls_field *field)
{
    const uint64_t values = count * ls_field_elements(field);
    void *memory = malloc(count * field->stride);
    if (!memory) {
        ls_error(SCOPE, "%s: no memory for its %" PRIu64 " bytes", opened->array.source,
                 count * field->stride);
        return LS_OUT_OF_MEMORY;
    }
    field->values = memory;
    const enum ls_status status =
        opened->npy ? read_npy(opened, values, memory, ls_dtype_bytes(field->dtype))
                    : ls_array_convert(SCOPE, &opened->array, 0, values, opened->values, memory);
    if (!status && field->role == LS_FIELD_TARGET)
        ls_array_count_classes(field, count);
    return status;
}

static void free_values(struct ls_field *field)
{
    free((void *)(uintptr_t)field->values);
    field->values = NULL;
}

// What one file becomes. Without `values` only as far as the fields are described: of integer
// targets that takes the values, which say how many classes there are.
static enum ls_status read_file(const char *name, const char *path, bool values,
                                struct ls_field *out, uint64_t *count)
{
    struct opened opened;
    bool needed = values || name[0] == 'y';
    enum ls_status status = open_file(name, path, &opened);
    if (!status)
        status = ls_array_describe(SCOPE, &opened.array, out, count);
    if (!status && !values && out->dtype == LS_F32)
        needed = false;
    if (!status && needed)
        status = read_values(&opened, *count, out);
    close_file(&opened);
    if (status || !values)
        free_values(out);
    return status;
}

// Inputs come first, in their order, then targets; x is there, and none is left out before another.
static enum ls_status check_fields(const struct ls_spec *spec)
{
    bool ended = false;
    uint32_t count = 0;
    for (size_t i = 0; i < OPTIONS; i++) {
        const bool given = ls_spec_get(spec, options[i].name) != NULL;
        const bool first = i == FIRST_TARGET || i + 1 == OPTIONS;
        if (i == 0 ? !given : given && ended && !first) {
            ls_error(SCOPE,
                     "%s is missing; expected "
                     "arrays:x=FILE[,x2=FILE,...][,y=FILE,y2=FILE,...][,sample_weight=FILE]",
                     i ? options[i - 1].name : "x");
            return LS_USAGE;
        }
        ended = !given;
        count += given;
    }
    if (count <= LS_MAX_FIELDS)
        return LS_OK;
    ls_error(SCOPE, "%u files; expected at most %d inputs, targets and weights together", count,
             LS_MAX_FIELDS);
    return LS_USAGE;
}

static enum ls_status read_fields(const struct ls_spec *spec, bool values, struct ls_field *fields,
                                  uint32_t *field_count, uint64_t *count)
{
    enum ls_status status = check_fields(spec);
    for (size_t i = 0; !status && i < OPTIONS; i++) {
        const char *path = ls_spec_get(spec, options[i].name);
        uint64_t found;
        if (!path)
            continue;
        status = read_file(options[i].name, path, values, &fields[*field_count], &found);
        if (status)
            return status;
        if ((*field_count)++ == 0)
            *count = found;
        if (found == *count)
            continue;
        ls_error(SCOPE, "%s has %" PRIu64 " examples, but %s has %" PRIu64, path, found,
                 ls_spec_get(spec, "x"), *count);
        return LS_BAD_INPUT;
    }
    return status;
}

// The cut of validation_split moves `values`, so the memory is remembered apart.
struct storage {
    struct ls_dataset dataset;
    const void *memory[LS_MAX_FIELDS];
};

static void storage_close(struct ls_dataset *dataset)
{
    struct storage *storage = dataset->storage;
    for (size_t i = 0; i < LS_MAX_FIELDS; i++)
        free((void *)(uintptr_t)storage->memory[i]);
    free(storage);
}

static enum ls_status arrays_open(const struct ls_spec *spec, enum ls_split split,
                                  struct ls_dataset **out)
{
    (void)split; // it has but one
    struct storage *storage = calloc(1, sizeof(*storage));
    if (!storage)
        return LS_OUT_OF_MEMORY;
    struct ls_dataset *dataset = &storage->dataset;
    dataset->real = true;
    dataset->storage = storage;
    dataset->close = storage_close;
    const enum ls_status status =
        read_fields(spec, true, dataset->fields, &dataset->field_count, &dataset->count);
    for (uint32_t i = 0; i < dataset->field_count; i++)
        storage->memory[i] = dataset->fields[i].values;
    if (status)
        storage_close(dataset);
    else
        *out = dataset;
    return status;
}

static enum ls_status arrays_describe(const struct ls_spec *spec, enum ls_split split,
                                      struct ls_dataset_info *out)
{
    (void)split;
    struct ls_dataset_info info = {0};
    const enum ls_status status =
        read_fields(spec, false, info.fields, &info.field_count, &info.count);
    if (!status)
        *out = info;
    return status;
}

const struct ls_dataset_kind ls_dataset_arrays = {
    .name = "arrays",
    .summary = "arrays of your own, .npy or .safetensors: x=FILE,y=FILE",
    .options = options,
    .one_split = true,
    .open = arrays_open,
    .describe = arrays_describe,
};
