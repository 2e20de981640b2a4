// SPDX-License-Identifier: Apache-2.0
// Arrays as fields of a dataset.
#include "core/data/arrays.h"

#include "core/base/dtype.h"
#include "core/base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MOST_VALUES (UINT64_C(1) << 48) // of a field

static uint32_t stored_as(uint32_t dtype)
{
    return dtype == LS_F64 ? LS_F32 : dtype == LS_I64 ? LS_I32 : dtype;
}

enum ls_status ls_array_describe(const char *scope, const struct ls_field_array *array,
                                 struct ls_field *out, uint64_t *count)
{
    uint64_t values = array->ndims ? (uint64_t)array->dims[0] : 0;
    if (array->ndims < 1 || array->ndims > LS_MAX_DIMS) {
        ls_error(scope, "%s: %" PRIu32 " dimensions; expected 1 to %d, the first for the examples",
                 array->source, array->ndims, LS_MAX_DIMS);
        return LS_BAD_INPUT;
    }
    for (uint32_t i = 0; i < array->ndims; i++) {
        const int64_t dim = array->dims[i];
        if (i)
            values = dim > 0 && values <= MOST_VALUES / (uint64_t)dim ? values * (uint64_t)dim : 0;
        if (dim >= 1 && (i == 0 ? dim < UINT32_MAX : values > 0 && dim <= INT32_MAX))
            continue;
        ls_error(scope, "%s: dimension %" PRIu32 " is %" PRId64 ": %s", array->source, i, dim,
                 dim < 1 ? "there are no values" : "there are too many values");
        return LS_BAD_INPUT;
    }
    *out = (struct ls_field){.role = array->role,
                             .dtype = stored_as(array->dtype),
                             .ndims = array->ndims - 1,
                             .divisor = 1};
    snprintf(out->name, sizeof(out->name), "%s", array->name);
    memcpy(out->dims, array->dims + 1, (array->ndims - 1) * sizeof(out->dims[0]));
    if (array->ndims == 1 && array->role == LS_FIELD_INPUT) { // inputs have rows
        out->ndims = 1;
        out->dims[0] = 1;
    }
    out->stride = ls_field_elements(out) * ls_dtype_bytes(out->dtype);
    *count = (uint64_t)array->dims[0];
    return LS_OK;
}

// The number of values from the front that are int32.
static uint64_t narrow(const void *from, uint64_t count, int32_t *to)
{
    for (uint64_t i = 0; i < count; i++) {
        int64_t value;
        memcpy(&value, (const char *)from + i * sizeof(value), sizeof(value));
        if (value < INT32_MIN || value > INT32_MAX)
            return i;
        to[i] = (int32_t)value;
    }
    return count;
}

static void round_doubles(const void *from, uint64_t count, float *to)
{
    for (uint64_t i = 0; i < count; i++) {
        double value;
        memcpy(&value, (const char *)from + i * sizeof(value), sizeof(value));
        to[i] = (float)value;
    }
}

enum ls_status ls_array_convert(const char *scope, const struct ls_field_array *array,
                                uint64_t first, uint64_t count, const void *from, void *to)
{
    if (array->dtype == LS_I64) {
        const uint64_t fits = narrow(from, count, to);
        if (fits == count)
            return LS_OK;
        int64_t value;
        memcpy(&value, (const char *)from + fits * sizeof(value), sizeof(value));
        ls_error(scope,
                 "%s: value %" PRIu64 " is %" PRId64
                 ", which no int32 holds; if it is not an index "
                 "or a class, store float32",
                 array->source, first + fits, value);
        return LS_BAD_INPUT;
    }
    if (array->dtype == LS_F64)
        round_doubles(from, count, to);
    else if (array->boolean)
        for (uint64_t i = 0; i < count; i++)
            ((uint8_t *)to)[i] = ((const uint8_t *)from)[i] != 0;
    else
        memcpy(to, from, count * ls_dtype_bytes(array->dtype));
    return LS_OK;
}

void ls_array_count_classes(struct ls_field *field, uint64_t count)
{
    const uint64_t values = count * ls_field_elements(field);
    int32_t largest = -1;
    field->class_count = 0;
    field->counted_in = count;
    if (field->dtype != LS_U8 && field->dtype != LS_I32)
        return;
    for (uint64_t i = 0; i < values; i++) {
        const int32_t value = field->dtype == LS_U8 ? ((const uint8_t *)field->values)[i]
                                                    : ((const int32_t *)field->values)[i];
        if (value < 0)
            return;
        largest = value > largest ? value : largest;
    }
    field->class_count = (uint32_t)largest + 1;
}

bool ls_array_find_dtype(const char *name, struct ls_field_array *out)
{
    static const uint32_t dtypes[] = {LS_U8, LS_I32, LS_I64, LS_F32, LS_F64};
    out->boolean = name && strcmp(name, "bool") == 0;
    if (out->boolean)
        out->dtype = LS_U8;
    for (size_t i = 0; name && i < sizeof(dtypes) / sizeof(dtypes[0]); i++)
        if (strcmp(name, ls_dtype_name(dtypes[i])) == 0)
            out->dtype = dtypes[i];
    return out->dtype != 0;
}
