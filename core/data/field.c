// SPDX-License-Identifier: Apache-2.0
// What is asked of the fields of a dataset.
#include "core/data/dataset.h"

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
