// SPDX-License-Identifier: Apache-2.0
// Shapes: their text, sizes, and what a moving window makes of an axis.
#include "core/operation/shape.h"

#include <stdio.h>
#include <string.h>

const char *ls_shape_text(const struct ls_shape *shape, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "(");
    for (uint32_t i = 0; i < shape->ndims && used < bytes; i++) {
        const char *comma = i > 0 ? ", " : "";
        int more;
        if (shape->dims[i] == LS_BATCH)
            more = snprintf(text + used, bytes - used, "%sNone", comma);
        else
            more = snprintf(text + used, bytes - used, "%s%lld", comma, (long long)shape->dims[i]);
        used += (size_t)more;
    }
    if (used < bytes)
        snprintf(text + used, bytes - used, shape->ndims == 1 ? ",)" : ")");
    return text;
}

int64_t ls_shape_elements(const struct ls_shape *shape, int64_t batch)
{
    int64_t count = 1;
    for (uint32_t i = 0; i < shape->ndims; i++)
        count *= shape->dims[i] == LS_BATCH ? batch : shape->dims[i];
    return count;
}

bool ls_shape_equal(const struct ls_shape *a, const struct ls_shape *b)
{
    return a->ndims == b->ndims && memcmp(a->dims, b->dims, a->ndims * sizeof(a->dims[0])) == 0;
}

static int64_t window_extent(int64_t kernel, int64_t dilation)
{
    return (kernel - 1) * dilation + 1;
}

void ls_same_padding(int64_t size, int64_t kernel, int64_t stride, int64_t dilation,
                     int32_t *before, int32_t *after)
{
    const int64_t count = (size + stride - 1) / stride;
    int64_t padding = (count - 1) * stride + window_extent(kernel, dilation) - size;

    if (padding < 0)
        padding = 0;
    *before = (int32_t)(padding / 2);
    *after = (int32_t)(padding - padding / 2);
}

int64_t ls_window_count(int64_t size, int64_t kernel, int64_t stride, int64_t dilation,
                        int64_t before, int64_t after)
{
    const int64_t room = size + before + after - window_extent(kernel, dilation);

    return room < 0 ? 0 : room / stride + 1;
}
