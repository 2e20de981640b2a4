// SPDX-License-Identifier: Apache-2.0
// Categories: the bucket of a number, the value that a table has for it, ids as zeros and ones.
#include "plugins/device/reference/reference.h"

#include <math.h>

static double number(const struct reference_call *call, int64_t i)
{
    return call->input_descs[0].dtype == LS_I32 ? (double)((const int32_t *)call->inputs[0])[i]
                                                : (double)((const float *)call->inputs[0])[i];
}

// x, boundaries -> y
void reference_bucket(const struct reference_call *call)
{
    const int64_t count = (int64_t)ls_tensor_elements(&call->input_descs[0]);
    const float *boundaries = call->inputs[1];

    for (int64_t i = 0; i < count; i++)
        for (int64_t k = 0; k < call->input_descs[1].dims[0]; k++)
            call->results[0][i] += !((float)number(call, i) < boundaries[k]);
}

// x, table -> y
void reference_lookup(const struct reference_call *call)
{
    const int64_t count = (int64_t)ls_tensor_elements(&call->input_descs[0]);
    const int64_t rows = call->input_descs[1].dims[0], remainders = call->attributes->count;
    const float *table = call->inputs[1];

    for (int64_t i = 0; i < count; i++) {
        const double x = trunc(number(call, i));
        const bool whole = x >= -0x1p63 && x < 0x1p63;
        double found = (double)NAN;
        if (whole && remainders > 0) {
            const int64_t remainder = (int64_t)x % remainders;
            found = (double)call->attributes->offset +
                    (double)(remainder < 0 ? remainder + remainders : remainder);
        }
        for (int64_t row = 0; row < rows; row++)
            if (65536 * (double)table[3 * row] + (double)table[3 * row + 1] == x)
                found = (double)table[3 * row + 2];
        call->results[0][i] = found;
    }
}

// ids (B,T,R) -> y (B,R,N)
void reference_encode(const struct reference_call *call)
{
    const struct ls_tensor_desc *ids = &call->input_descs[0];
    const uint32_t function = call->attributes->function;
    const int64_t total = (int64_t)ls_tensor_elements(ids), n = call->attributes->count;
    const int64_t together = function >= LS_ENCODE_MULTI_HOT ? ids->dims[1] : 1;
    const int64_t rest = function >= LS_ENCODE_MULTI_HOT ? total / (ids->dims[0] * together) : 1;

    for (int64_t i = 0; i < total; i++) {
        double *row = call->results[0] + (i / (together * rest) * rest + i % rest) * n;
        const double id = trunc(number(call, i));
        if (isnan(id) || (id < 0 && function != LS_ENCODE_ONE_HOT))
            for (int64_t k = 0; k < n; k++)
                row[k] = (double)NAN;
        else if (id >= 0 && id < (double)n)
            row[(int64_t)id] =
                function == LS_ENCODE_COUNTS || isnan(row[(int64_t)id]) ? row[(int64_t)id] + 1 : 1;
    }
}
