// SPDX-License-Identifier: Apache-2.0
// Rows of a table by index, as an embedding reads them, and their gradient.
#include "plugins/device/reference/reference.h"

#include <math.h>

// The row of a position; -1: there is none.
static int64_t row_of(const struct reference_call *call, const struct ls_tensor_desc *table,
                      int64_t i)
{
    if (call->input_descs[0].dtype == LS_I32) {
        const int32_t id = ((const int32_t *)call->inputs[0])[i];
        return id >= 0 && id < table->dims[0] ? id : -1;
    }
    const double id = trunc((double)((const float *)call->inputs[0])[i]);
    return id >= 0 && id < (double)table->dims[0] ? (int64_t)id : -1;
}

// ids, table -> y
void reference_gather_rows(const struct reference_call *call)
{
    const struct ls_tensor_desc *desc = &call->input_descs[1];
    const int64_t count = (int64_t)ls_tensor_elements(&call->input_descs[0]);
    const int64_t width = desc->dims[1];
    const float *table = call->inputs[1];

    for (int64_t i = 0; i < count; i++) {
        const int64_t row = row_of(call, desc, i);
        for (int64_t k = 0; k < width; k++)
            call->results[0][i * width + k] =
                row >= 0 ? (double)table[row * width + k] : (double)NAN;
    }
}

// ids, dy -> dtable
void reference_gather_rows_backward(const struct reference_call *call)
{
    const struct ls_tensor_desc *desc = &call->output_descs[0];
    const int64_t count = (int64_t)ls_tensor_elements(&call->input_descs[0]);
    const int64_t width = desc->dims[1];
    const float *dy = call->inputs[1];

    for (int64_t i = 0; i < count; i++) {
        const int64_t row = row_of(call, desc, i);
        for (int64_t k = 0; k < width && row >= 0; k++)
            call->results[0][row * width + k] += (double)dy[i * width + k];
    }
}

// x -> y: whether elements, or any of a row, differ from the offset
void reference_differs(const struct reference_call *call)
{
    const uint64_t count = ls_tensor_elements(&call->input_descs[0]);
    const uint64_t width = count / ls_tensor_elements(&call->output_descs[0]);
    const double offset = (double)call->attributes->offset;

    for (uint64_t i = 0; i < count; i++) {
        const double x = call->input_descs[0].dtype == LS_I32
                             ? (double)((const int32_t *)call->inputs[0])[i]
                             : (double)((const float *)call->inputs[0])[i];
        if (x != offset)
            call->results[0][i / width] = 1;
    }
}
