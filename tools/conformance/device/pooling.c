// SPDX-License-Identifier: Apache-2.0
// Cases of pooling: largest and mean, forward and backward, with ties, negative inputs and padding.
#include "tools/conformance/device/suite.h"

#include <string.h>

struct shape {
    int64_t b, h, w, c;
    int32_t kernel[2], stride[2], padding[4];
    enum ls_device_values values;
};

static const struct shape shapes[] = {
    {1, 1, 1, 1, {1, 1}, {1, 1}, {0}, LS_DEVICE_UNIFORM},
    {5, 26, 26, 32, {2, 2}, {2, 2}, {0}, LS_DEVICE_TIES},
    {2, 11, 11, 64, {2, 2}, {2, 2}, {0}, LS_DEVICE_UNIFORM},
    {7, 13, 11, 17, {2, 2}, {2, 2}, {0}, LS_DEVICE_TIES},
    {2, 24, 24, 24, {3, 3}, {2, 2}, {0}, LS_DEVICE_TIES},
    {2, 13, 7, 33, {3, 3}, {2, 2}, {1, 1, 1, 1}, LS_DEVICE_NEGATIVE},
    {1, 12, 12, 3, {3, 3}, {2, 2}, {0, 1, 0, 1}, LS_DEVICE_TIES},
    {2, 9, 9, 8, {3, 3}, {1, 1}, {1, 1, 1, 1}, LS_DEVICE_NEGATIVE},
    {5, 10, 17, 10, {2, 3}, {1, 2}, {0, 1, 1, 1}, LS_DEVICE_TIES},
    {1, 7, 23, 16, {2, 2}, {3, 3}, {0}, LS_DEVICE_UNIFORM},
    {2, 5, 5, 16, {5, 5}, {1, 1}, {2, 2, 2, 2}, LS_DEVICE_TIES},
    {2, 7, 7, 33, {7, 7}, {7, 7}, {0}, LS_DEVICE_TIES},
    {1, 20, 19, 1, {4, 2}, {4, 2}, {0}, LS_DEVICE_TIES},
    {1, 30, 29, 10, {17, 16}, {5, 3}, {8, 8, 3, 9}, LS_DEVICE_TIES},
    {2, 9, 7, 8, {2, 2}, {2, 2}, {1, 0, 0, 1}, LS_DEVICE_NEGATIVE},
    {1, 40, 37, 4, {17, 16}, {17, 18}, {3, 2, 5, 0}, LS_DEVICE_TIES},
    {3, 10, 11, 12, {2, 3}, {3, 4}, {1, 0, 1, 1}, LS_DEVICE_NEGATIVE},
    {3, 8, 9, 6, {1, 1}, {2, 3}, {0}, LS_DEVICE_UNIFORM},
    {2, 9, 10, 12, {3, 3}, {2, 4}, {1, 1, 0, 0}, LS_DEVICE_TIES},
    {2, 8, 9, 7, {2, 2}, {2, 3}, {0, 1, 1, 0}, LS_DEVICE_TIES},
};

#define SHAPE_COUNT (sizeof(shapes) / sizeof(shapes[0]))

static void start(struct ls_device_case *c, const struct shape *s, uint32_t op, const char *op_name)
{
    static const char *const kinds[] = {"", " ties", " negative"};
    ls_device_case_start(c, op, "%s B=%lld %lldx%lldx%lld %dx%d s%dx%d pad %d,%d,%d,%d%s", op_name,
                         (long long)s->b, (long long)s->h, (long long)s->w, (long long)s->c,
                         s->kernel[0], s->kernel[1], s->stride[0], s->stride[1], s->padding[0],
                         s->padding[1], s->padding[2], s->padding[3], kinds[s->values]);
    c->request.attributes = (struct ls_op_attributes){
        .kernel = {s->kernel[0], s->kernel[1]},
        .strides = {s->stride[0], s->stride[1]},
        .padding = {s->padding[0], s->padding[1], s->padding[2], s->padding[3]},
    };
}

static struct ls_tensor_desc x_of(const struct shape *s)
{
    return LS_DEVICE_DESC(LS_F32, s->b, s->h, s->w, s->c);
}

static struct ls_tensor_desc y_of(const struct shape *s)
{
    const int64_t oh = (s->h + s->padding[0] + s->padding[1] - s->kernel[0]) / s->stride[0] + 1;
    const int64_t ow = (s->w + s->padding[2] + s->padding[3] - s->kernel[1]) / s->stride[1] + 1;
    return LS_DEVICE_DESC(LS_F32, s->b, oh, ow, s->c);
}

// Of a size that only the device knows.
static struct ls_tensor_desc saved_desc(void)
{
    return LS_DEVICE_DESC(LS_U8, 0);
}

static void max_forward(struct ls_device_suite *suite, const struct shape *s, size_t number,
                        const struct ls_device_epilogue *epilogue)
{
    struct ls_device_case c;
    start(&c, s, LS_OP_MAX_POOL2D, number % 4 == 2 ? "max_pool2d alone" : "max_pool2d");
    ls_device_case_draw(&c, ls_device_case_input(&c, LS_DEVICE_ACTIVATION, x_of(s)), s->values);
    ls_device_case_epilogue(&c, epilogue, y_of(s));
    ls_device_case_output(&c, LS_DEVICE_ACTIVATION, y_of(s), LS_DEVICE_EXACT);
    if (number % 4 != 2)
        ls_device_case_output(&c, LS_DEVICE_SAVED, saved_desc(), LS_DEVICE_EXACT);
    ls_device_case_run(suite, &c);
}

// The y of a backward epilogue is the tensor that the operation makes the gradient of: here its x.
static void share_values(struct ls_device_case *c, uint32_t x, uint32_t y)
{
    ls_device_case_values(c);
    if (c->values[x] && c->values[y])
        memcpy(c->values[x], c->values[y], ls_device_plain_bytes(&c->request.arguments[x]));
}

static void max_backward(struct ls_device_suite *suite, const struct shape *s, size_t number,
                         const struct ls_device_epilogue *epilogue)
{
    struct ls_device_case c;
    start(&c, s, LS_OP_MAX_POOL2D_BACKWARD, "max_pool2d_backward");
    ls_device_case_draw(&c, ls_device_case_input(&c, LS_DEVICE_ACTIVATION, y_of(s)),
                        LS_DEVICE_UNIFORM);
    ls_device_case_draw(&c, ls_device_case_input(&c, LS_DEVICE_ACTIVATION, x_of(s)), s->values);
    ls_device_case_input(&c, LS_DEVICE_ACTIVATION, y_of(s));
    ls_device_case_input(&c, LS_DEVICE_SAVED, saved_desc());
    c.magnitude_inputs = 1;
    c.has_forward = c.saved_from_forward = true;
    c.forward = (struct ls_device_request){
        .op = LS_OP_MAX_POOL2D,
        .attributes = c.request.attributes,
        .input_count = 1,
        .output_count = 2,
        .arguments = {x_of(s), y_of(s), saved_desc()},
    };
    c.forward_roles[0] = c.forward_roles[1] = LS_DEVICE_ACTIVATION;
    c.forward_roles[2] = LS_DEVICE_SAVED;
    for (uint8_t i = 1; i <= 3; i++)
        c.from_forward[i] = i;
    ls_device_case_epilogue(&c, epilogue, x_of(s));
    if (epilogue && epilogue->op == LS_OP_ACTIVATION_BACKWARD)
        share_values(&c, 1, c.request.input_count - 1);
    ls_device_case_output(&c, LS_DEVICE_ACTIVATION, x_of(s), LS_DEVICE_SUM);
    if (!epilogue && number % 5 == 4)
        ls_device_case_accumulate(&c, 0);
    ls_device_case_run(suite, &c);
}

static void average(struct ls_device_suite *suite, const struct shape *s, size_t number,
                    uint32_t op, const struct ls_device_epilogue *epilogue)
{
    const bool backward = op == LS_OP_AVERAGE_POOL2D_BACKWARD;
    struct ls_device_case c;
    start(&c, s, op, backward ? "average_pool2d_backward" : "average_pool2d");
    ls_device_case_draw(
        &c, ls_device_case_input(&c, LS_DEVICE_ACTIVATION, backward ? y_of(s) : x_of(s)),
        s->values);
    c.magnitude_inputs = 1;
    ls_device_case_epilogue(&c, epilogue, backward ? x_of(s) : y_of(s));
    ls_device_case_output(&c, LS_DEVICE_ACTIVATION, backward ? x_of(s) : y_of(s), LS_DEVICE_SUM);
    if (!epilogue && number % 3 == 1)
        ls_device_case_accumulate(&c, 0);
    ls_device_case_run(suite, &c);
}

void ls_device_pooling_cases(struct ls_device_suite *suite, uint32_t op,
                             const struct ls_device_epilogue *epilogue)
{
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        if (epilogue && i % 3 != 1)
            continue;
        switch (op) {
        case LS_OP_MAX_POOL2D: max_forward(suite, &shapes[i], i, epilogue); break;
        case LS_OP_MAX_POOL2D_BACKWARD: max_backward(suite, &shapes[i], i, epilogue); break;
        default: average(suite, &shapes[i], i, op, epilogue); break;
        }
    }
}
