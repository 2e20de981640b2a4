// SPDX-License-Identifier: Apache-2.0
// The shape rules of what one layer is made of: normalization of examples, rows by index,
// attention, products of activations, transposed convolution, PReLU.
#include "core/operation/rules.h"

#include <string.h>

// x (B,...,C), [gamma], [beta] -> y, saved
bool ls_shapes_of_layer_normalization(struct ls_shape_call *call)
{
    static const char *const names[] = {"x", "gamma", "beta"};
    const struct ls_op_attributes *attributes = call->attributes;
    const struct ls_shape *x = &call->inputs[0];

    if (x->ndims < 2)
        return refuse(call, "expected at least 2 dimensions");
    if (!(attributes->epsilon >= 0))
        return refuse(call, "epsilon must not be negative, it is %g", (double)attributes->epsilon);
    if (attributes->groups < 0 || (attributes->groups > 0 && last_dim(x) % attributes->groups != 0))
        return refuse(call, "%lld channels cannot be split into %d groups", (long long)last_dim(x),
                      attributes->groups);
    if (attributes->only_beta > 1 || (attributes->only_beta == 1 && call->input_count != 2))
        return refuse(call, "only_beta says what a single vector is");
    for (uint32_t i = 1; i < call->input_count; i++)
        if (ls_shape_elements(&call->inputs[i], 1) != last_dim(x))
            return refuse(call, "%s must have %lld elements, one a channel",
                          names[i + attributes->only_beta], (long long)last_dim(x));
    call->outputs[0] = *x;
    return true;
}

// ids (B,...), table (V,N) -> y (B,...,N)
bool ls_shapes_of_gather_rows(struct ls_shape_call *call)
{
    const struct ls_shape *ids = &call->inputs[0], *table = &call->inputs[1];

    if (table->ndims != 2)
        return refuse(call, "the table must have 2 dimensions, not %u", table->ndims);
    if (ids->ndims == LS_MAX_DIMS)
        return refuse(call, "expected at most %d dimensions", LS_MAX_DIMS - 1);
    call->outputs[0] = *ids;
    call->outputs[0].dims[call->outputs[0].ndims++] = table->dims[1];
    return true;
}

// q (B,T,H,D), k (B,S,H,D), v (B,S,H,E) -> y (B,T,H,E), saved
bool ls_shapes_of_attention(struct ls_shape_call *call)
{
    static const char *const names[] = {"q", "k", "v"};
    const struct ls_shape *q = &call->inputs[0], *k = &call->inputs[1], *v = &call->inputs[2];
    const float rate = call->attributes->rate;

    for (uint32_t i = 0; i < 3; i++)
        if (call->inputs[i].ndims != 4)
            return refuse(call, "%s must have 4 dimensions: batch, positions, heads, elements",
                          names[i]);
    if (k->dims[0] != q->dims[0] || v->dims[0] != q->dims[0] || k->dims[2] != q->dims[2] ||
        v->dims[2] != q->dims[2])
        return refuse(call, "q, k and v must have the same examples and heads");
    if (k->dims[3] != q->dims[3])
        return refuse(call, "q and k must have as many elements in a head, not %lld and %lld",
                      (long long)q->dims[3], (long long)k->dims[3]);
    if (v->dims[1] != k->dims[1])
        return refuse(call, "k and v must have as many positions, not %lld and %lld",
                      (long long)k->dims[1], (long long)v->dims[1]);
    if (call->attributes->causal > 1)
        return refuse(call, "causal must be 0 or 1");
    if (!(rate >= 0 && rate < 1))
        return refuse(call, "rate must be at least 0 and below 1, not %g", (double)rate);
    call->outputs[0] = *q;
    call->outputs[0].dims[3] = v->dims[3];
    return true;
}

// a (...,M,K), b (...,K,N) -> y (...,M,N)
bool ls_shapes_of_matmul(struct ls_shape_call *call)
{
    const struct ls_shape *a = &call->inputs[0], *b = &call->inputs[1];
    const uint32_t last = a->ndims - 1;
    char text[128];

    if (a->ndims < 2 || b->ndims != a->ndims || a->dims[last] != b->dims[last - 1] ||
        memcmp(a->dims, b->dims, (last - 1) * sizeof(a->dims[0])) != 0)
        return refuse(call, "cannot be multiplied by a tensor of %s",
                      ls_shape_text(b, text, sizeof(text)));
    call->outputs[0] = *a;
    call->outputs[0].dims[last] = b->dims[last];
    return true;
}

// The convolution of y that makes x has this window along the axis; y has `size` elements there.
static bool fits_window(struct ls_shape_call *call, uint32_t axis, int64_t size)
{
    const struct ls_op_attributes *attributes = call->attributes;
    const int64_t kernel = call->inputs[1].dims[axis];
    const int32_t *padding = &attributes->padding[2 * axis];
    const int32_t stride = attributes->strides[axis], dilation = attributes->dilation[axis];

    if (stride < 1 || dilation < 1 || padding[0] < 0 || padding[1] < 0)
        return refuse(call, "strides and dilation must be at least 1, padding at least 0");
    if (ls_window_count(size, kernel, stride, dilation, padding[0], padding[1]) !=
        call->inputs[0].dims[1 + axis])
        return refuse(call, "a window of %lld over %lld %s does not fit %lld times",
                      (long long)kernel, (long long)size, axis == 0 ? "rows" : "columns",
                      (long long)call->inputs[0].dims[1 + axis]);
    return true;
}

// x (B,H,W,C), w (KH,KW,F,C), [b (F)] -> y (B,OH,OW,F)
bool ls_shapes_of_conv2d_transpose(struct ls_shape_call *call)
{
    const struct ls_shape *x = &call->inputs[0], *w = &call->inputs[1], *y = &call->asked;

    if (x->ndims != 4 || w->ndims != 4)
        return refuse(call, "expected 4 dimensions: batch, rows, columns, channels");
    if (w->dims[3] != x->dims[3])
        return refuse(call, "the kernel is for %lld channels, the input has %lld",
                      (long long)w->dims[3], (long long)x->dims[3]);
    if (call->attributes->groups > 1)
        return refuse(call, "a transposed convolution has no groups");
    if (call->input_count > 2 && !is_vector(&call->inputs[2], w->dims[2]))
        return refuse(call, "the bias must have %lld elements", (long long)w->dims[2]);
    if (y->ndims != 4 || y->dims[0] != x->dims[0] || y->dims[3] != w->dims[2])
        return refuse(call, "a transposed convolution needs the shape to make");
    call->outputs[0] = *y;
    return fits_window(call, 0, y->dims[1]) && fits_window(call, 1, y->dims[2]);
}

// x (B,...), alpha -> y
bool ls_shapes_of_prelu(struct ls_shape_call *call)
{
    const struct ls_shape *x = &call->inputs[0], *alpha = &call->inputs[1];
    char text[128];
    bool fits = x->ndims >= 2 && alpha->ndims + 1 == x->ndims;

    for (uint32_t i = 0; fits && i < alpha->ndims; i++)
        fits = alpha->dims[i] == x->dims[i + 1] || alpha->dims[i] == 1;
    if (!fits)
        return refuse(call, "alpha cannot be %s", ls_shape_text(alpha, text, sizeof(text)));
    call->outputs[0] = *x;
    return true;
}

// x, w -> sums
bool ls_shapes_of_penalty(struct ls_shape_call *call)
{
    if (!(call->attributes->l1 >= 0) || !(call->attributes->l2 >= 0))
        return refuse(call, "l1 and l2 must not be negative, they are %g and %g",
                      (double)call->attributes->l1, (double)call->attributes->l2);
    call->outputs[0] = (struct ls_shape){.ndims = 1, .dims = {4}};
    return true;
}
