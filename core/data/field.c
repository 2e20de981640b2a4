// SPDX-License-Identifier: Apache-2.0
// What is asked of the fields of a dataset, and its end.
#include "core/data/dataset.h"

#include "core/base/log.h"

#include <inttypes.h>

uint64_t ls_field_elements(const struct ls_field *field)
{
    uint64_t elements = 1;
    for (uint32_t i = 0; i < field->ndims; i++)
        elements *= (uint64_t)field->dims[i];
    return elements;
}

const struct ls_field *ls_field_find(const struct ls_field *fields, uint32_t count,
                                     enum ls_field_role role, uint32_t index)
{
    for (uint32_t i = 0; i < count; i++)
        if (fields[i].role == role && index-- == 0)
            return &fields[i];
    return NULL;
}

enum ls_status ls_field_check_labels(const char *scope, const struct ls_field *field,
                                     uint64_t first, uint64_t count, const void *values)
{
    const uint64_t elements = ls_field_elements(field);
    for (uint64_t i = 0; field->class_count && i < count * elements; i++) {
        const int64_t label =
            field->dtype == LS_U8 ? ((const uint8_t *)values)[i] : ((const int32_t *)values)[i];
        if (label >= 0 && label < field->class_count)
            continue;
        ls_error(scope, "example %" PRIu64 " has the label %" PRId64 "; the classes are 0 to %u",
                 first + i / elements, label, field->class_count - 1);
        return LS_BAD_INPUT;
    }
    return LS_OK;
}

void ls_dataset_close(struct ls_dataset *dataset)
{
    if (dataset)
        dataset->close(dataset);
}
