// SPDX-License-Identifier: Apache-2.0
// Rows of a table by index, as an embedding reads them, and their gradient.
#include "plugins/device/reference/reference.h"

#include <math.h>

static bool is_row(const struct ls_tensor_desc *table, int32_t id)
{
    return id >= 0 && id < table->dims[0];
}

// ids, table -> y
static void forward_run(const struct reference_call *call)
{
    const struct ls_tensor_desc *desc = &call->input_descs[1];
    const int64_t count = (int64_t)ls_tensor_elements(&call->input_descs[0]);
    const int64_t width = desc->dims[1];
    const int32_t *ids = call->inputs[0];
    const float *table = call->inputs[1];

    for (int64_t i = 0; i < count; i++)
        for (int64_t k = 0; k < width; k++)
            call->results[0][i * width + k] =
                is_row(desc, ids[i]) ? (double)table[ids[i] * width + k] : (double)NAN;
}

// ids, dy -> dtable
static void backward_run(const struct reference_call *call)
{
    const struct ls_tensor_desc *desc = &call->output_descs[0];
    const int64_t count = (int64_t)ls_tensor_elements(&call->input_descs[0]);
    const int64_t width = desc->dims[1];
    const int32_t *ids = call->inputs[0];
    const float *dy = call->inputs[1];

    for (int64_t i = 0; i < count; i++)
        for (int64_t k = 0; k < width && is_row(desc, ids[i]); k++)
            call->results[0][ids[i] * width + k] += (double)dy[i * width + k];
}

const struct reference_operation reference_gather_rows = {
    .name = "gather_rows",
    .inputs = {2, 2},
    .outputs = {1, 1},
    .used_inputs = 3,
    .run = forward_run,
};

const struct reference_operation reference_gather_rows_backward = {
    .name = "gather_rows_backward",
    .inputs = {2, 2},
    .outputs = {1, 1},
    .used_inputs = 3,
    .run = backward_run,
};
