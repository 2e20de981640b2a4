// SPDX-License-Identifier: Apache-2.0
// What moves elements: concatenation, parts, transposition, upsampling.
#include "plugins/device/pjrt/operations.h"

#include <math.h>

// ---- Concatenation ----

static uint32_t axis_of(const struct pjrt_call *call)
{
    uint32_t axis = 0;
    while (!call->attributes->axes[axis])
        axis++;
    return axis;
}

void pjrt_concatenate(struct pjrt_call *call)
{
    call->outputs[0] = hlo_concatenate(call->h, call->inputs, call->input_count, axis_of(call));
}

void pjrt_concatenate_backward(struct pjrt_call *call)
{
    const struct hlo_value dy = call->inputs[0];
    const uint32_t axis = axis_of(call);
    int64_t first[HLO_MAX_DIMS] = {0}, limit[HLO_MAX_DIMS];
    memcpy(limit, dy.shape.dims, sizeof(limit));
    for (uint32_t k = 0; k < call->output_count; k++) {
        limit[axis] = first[axis] + pjrt_output_shape(call, k).dims[axis];
        call->outputs[k] = hlo_slice(call->h, dy, first, limit, NULL);
        first[axis] = limit[axis];
    }
}

// ---- Parts ----

// whole -> part
void pjrt_take_part(struct pjrt_call *call)
{
    const struct hlo_shape part = pjrt_output_shape(call, 0);
    int64_t first[HLO_MAX_DIMS], limit[HLO_MAX_DIMS];
    for (uint32_t i = 0; i < part.ndims; i++) {
        first[i] = call->attributes->axes[i];
        limit[i] = first[i] + part.dims[i];
    }
    call->outputs[0] = hlo_slice(call->h, call->inputs[0], first, limit, NULL);
}

// part -> whole
void pjrt_put_part(struct pjrt_call *call)
{
    const struct hlo_shape whole = pjrt_output_shape(call, 0);
    const struct hlo_value part = call->inputs[0];
    int64_t low[HLO_MAX_DIMS], high[HLO_MAX_DIMS];
    for (uint32_t i = 0; i < whole.ndims; i++) {
        low[i] = call->attributes->axes[i];
        high[i] = whole.dims[i] - part.shape.dims[i] - low[i];
    }
    call->outputs[0] = hlo_pad(call->h, part, 0, low, high, NULL);
}

// ---- Transposition ----

void pjrt_transpose(struct pjrt_call *call)
{
    int64_t order[HLO_MAX_DIMS];
    for (uint32_t i = 0; i < call->inputs[0].shape.ndims; i++)
        order[i] = call->attributes->axes[i];
    call->outputs[0] = hlo_transpose(call->h, call->inputs[0], order);
}

void pjrt_transpose_backward(struct pjrt_call *call)
{
    int64_t order[HLO_MAX_DIMS];
    for (uint32_t i = 0; i < call->inputs[0].shape.ndims; i++)
        order[call->attributes->axes[i]] = i;
    call->outputs[0] = hlo_transpose(call->h, call->inputs[0], order);
}

// ---- Upsampling: along rows, then along columns ----

// The share that element i of x has in element o of y, along an axis: a constant matrix (large,
// small).
static struct hlo_value weights(struct hlo *h, const struct ls_op_attributes *a, int axis,
                                int64_t small)
{
    const int64_t factor = a->strides[axis], large = small * factor;
    const struct hlo_value w = hlo_new(h, LS_F32, HLO_SHAPE(large, small));
    hlo_print(h, "%%%u = stablehlo.constant dense<[", w.id);
    for (int64_t o = 0; o < large; o++) {
        const double at = ((double)o + 0.5) / (double)factor - 0.5, right = at - floor(at);
        const int64_t before = (int64_t)floor(at);
        const int64_t first = before < 0 ? 0 : before,
                      second = before + 1 > small - 1 ? small - 1 : before + 1;
        hlo_print(h, "%s[", o ? ", " : "");
        for (int64_t i = 0; i < small; i++) {
            double share = (i == first ? 1 - right : 0) + (i == second ? right : 0);
            if (a->function == LS_UPSAMPLE_NEAREST)
                share = i == o / factor;
            hlo_print(h, "%s%.9e", i ? ", " : "", share);
        }
        hlo_print(h, "]");
    }
    hlo_print(h, "]> : ");
    hlo_print_type(h, &w);
    hlo_print(h, "\n");
    return w;
}

// x (B,H,W,C): sums over its rows, which the dot puts last, and over its columns.
static struct hlo_value resampled(struct hlo *h, struct hlo_value x, struct hlo_value rows,
                                  struct hlo_value columns, uint32_t from)
{
    static const int64_t back[4] = {0, 2, 3, 1};
    const struct hlo_value tall = hlo_dot(h, x, rows, 0, 1, from); // (B,W,C,OH)
    return hlo_transpose(h, hlo_dot(h, tall, columns, 0, 1, from), // (B,C,OH,OW)
                         back);
}

void pjrt_upsample2d(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value x = call->inputs[0];
    call->outputs[0] = resampled(h, x, weights(h, call->attributes, 0, x.shape.dims[1]),
                                 weights(h, call->attributes, 1, x.shape.dims[2]), 1);
}

void pjrt_upsample2d_backward(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_shape x = pjrt_output_shape(call, 0);
    call->outputs[0] = resampled(h, call->inputs[0], weights(h, call->attributes, 0, x.dims[1]),
                                 weights(h, call->attributes, 1, x.dims[2]), 0);
}

const char *pjrt_upsample_refusal(const struct ls_kernel_request *request)
{
    return request->attributes.function < LS_UPSAMPLE_COUNT ? NULL : "a function it does not know";
}
