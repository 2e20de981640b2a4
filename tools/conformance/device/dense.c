// SPDX-License-Identifier: Apache-2.0
// Cases of the dense layer: forward, backward to the data, backward to the weights. x may have any
// dimensions: (B,H,W,C) is the flatten before it, in a device's own layout too; (B,T,C) has M = B T.
#include "tools/conformance/device/suite.h"

struct shape {
    uint32_t ndims;
    int64_t x[4];
    int64_t k, n;
};

static const struct shape shapes[] = {
    {2, {1, 1}, 1, 1},
    {2, {5, 784}, 784, 128},
    {2, {32, 784}, 784, 256},
    {2, {7, 128}, 128, 10},
    {2, {2, 17}, 17, 100},
    {2, {64, 33}, 33, 17},
    {2, {1, 1600}, 1600, 128},
    {4, {5, 5, 5, 64}, 1600, 128},
    {4, {2, 13, 13, 24}, 4056, 10},
    {4, {7, 3, 5, 17}, 255, 100},
    {4, {1, 7, 7, 33}, 1617, 17},
    {4, {2, 1, 1, 8}, 8, 256},
    {4, {3, 2, 3, 1}, 6, 10},
    {3, {2, 7, 33}, 33, 17},
    {3, {5, 3, 16}, 16, 128},
    {3, {2, 9, 10}, 90, 10},
    {2, {128, 16}, 16, 1},
    {2, {100, 256}, 256, 10},
    {2, {150, 3}, 3, 259},
    {2, {6, 2}, 2, 1028},
};

#define SHAPE_COUNT (sizeof(shapes) / sizeof(shapes[0]))

struct tensors {
    struct ls_tensor_desc x, w, b, y;
};

// y has the dimensions of x up to where K begins, then N.
static struct tensors tensors_of(const struct shape *s)
{
    int64_t dims[LS_MAX_DIMS], rest = 1;
    uint32_t kept = s->ndims;

    while (rest < s->k)
        rest *= s->x[--kept];
    if (kept == s->ndims) // K is 1 and not a dimension of its own only when the last one is 1
        kept--;
    for (uint32_t i = 0; i < kept; i++)
        dims[i] = s->x[i];
    dims[kept] = s->n;
    return (struct tensors){
        .x = ls_device_desc(LS_F32, s->ndims, s->x),
        .w = LS_DEVICE_DESC(LS_F32, s->k, s->n),
        .b = LS_DEVICE_DESC(LS_F32, s->n),
        .y = ls_device_desc(LS_F32, kept + 1, dims),
    };
}

static void start(struct ls_device_case *c, const struct shape *s, uint32_t op, const char *op_name,
                  const char *more)
{
    char x[64] = "";
    size_t length = 0;
    for (uint32_t i = 1; i < s->ndims; i++)
        length += (size_t)snprintf(x + length, sizeof(x) - length, "%s%lld", i > 1 ? "x" : "",
                                   (long long)s->x[i]);
    ls_device_case_start(c, op, "%s B=%lld %s K=%lld -> %lld%s", op_name, (long long)s->x[0], x,
                         (long long)s->k, (long long)s->n, more);
}

static void add_forward(struct ls_device_case *c, const struct tensors *t)
{
    c->has_forward = true;
    c->forward = (struct ls_device_request){
        .op = LS_OP_DENSE,
        .input_count = 2,
        .output_count = 1,
        .arguments = {t->x, t->w, t->y},
    };
    c->forward_roles[0] = LS_DEVICE_ACTIVATION;
    c->forward_roles[1] = LS_DEVICE_WEIGHTS;
    c->forward_roles[2] = LS_DEVICE_ACTIVATION;
}

static void forward(struct ls_device_suite *suite, const struct shape *s, size_t number,
                    const struct ls_device_epilogue *epilogue)
{
    const struct tensors t = tensors_of(s);
    const bool bias = number % 3 != 2, accumulate = !epilogue && number % 8 == 3;
    struct ls_device_case c;

    start(&c, s, LS_OP_DENSE, "dense",
          bias         ? accumulate ? " bias added" : " bias"
          : accumulate ? " added"
                       : "");
    ls_device_case_draw(&c, ls_device_case_input(&c, LS_DEVICE_ACTIVATION, t.x), LS_DEVICE_UNIFORM);
    ls_device_case_draw(&c, ls_device_case_input(&c, LS_DEVICE_WEIGHTS, t.w), LS_DEVICE_UNIFORM);
    if (bias)
        ls_device_case_draw(&c, ls_device_case_input(&c, LS_DEVICE_WEIGHTS, t.b),
                            LS_DEVICE_UNIFORM);
    c.magnitude_inputs = bias ? 7 : 3;
    ls_device_case_epilogue(&c, epilogue, t.y);
    ls_device_case_output(&c, LS_DEVICE_ACTIVATION, t.y, LS_DEVICE_SUM);
    if (accumulate)
        ls_device_case_accumulate(&c, 0);
    ls_device_case_run(suite, &c);
}

static void backward_data(struct ls_device_suite *suite, const struct shape *s, size_t number,
                          const struct ls_device_epilogue *epilogue)
{
    const struct tensors t = tensors_of(s);
    const bool accumulate = !epilogue && number % 4 == 1;
    struct ls_device_case c;

    start(&c, s, LS_OP_DENSE_BACKWARD_DATA, "dense_backward_data", accumulate ? " added" : "");
    ls_device_case_draw(&c, ls_device_case_input(&c, LS_DEVICE_ACTIVATION, t.y), LS_DEVICE_UNIFORM);
    ls_device_case_draw(&c, ls_device_case_input(&c, LS_DEVICE_WEIGHTS, t.w), LS_DEVICE_UNIFORM);
    c.magnitude_inputs = 3;
    ls_device_case_epilogue(&c, epilogue, t.x);
    const uint32_t dx = ls_device_case_output(&c, LS_DEVICE_ACTIVATION, t.x, LS_DEVICE_SUM);
    if (accumulate)
        ls_device_case_accumulate(&c, 0);
    add_forward(&c, &t);
    c.from_forward[1] = 2; // w as forward reads it
    c.from_forward[dx] = 1; // dx as x lies
    ls_device_case_run(suite, &c);
}

static void backward_weights(struct ls_device_suite *suite, const struct shape *s, size_t number,
                             const struct ls_device_epilogue *epilogue)
{
    const struct tensors t = tensors_of(s);
    const bool bias = number % 3 != 1, accumulate = !epilogue && number % 4 == 2;
    struct ls_device_case c;

    start(&c, s, LS_OP_DENSE_BACKWARD_WEIGHTS, "dense_backward_weights",
          bias         ? accumulate ? " bias added" : " bias"
          : accumulate ? " added"
                       : "");
    ls_device_case_draw(&c, ls_device_case_input(&c, LS_DEVICE_ACTIVATION, t.x), LS_DEVICE_UNIFORM);
    ls_device_case_draw(&c, ls_device_case_input(&c, LS_DEVICE_ACTIVATION, t.y), LS_DEVICE_UNIFORM);
    c.magnitude_inputs = 3;
    ls_device_case_epilogue(&c, epilogue, t.w);
    const uint32_t dw = ls_device_case_output(&c, LS_DEVICE_WEIGHTS, t.w, LS_DEVICE_SUM);
    if (bias)
        ls_device_case_output(&c, LS_DEVICE_WEIGHTS, t.b, LS_DEVICE_SUM);
    for (uint32_t i = 0; accumulate && i < c.request.output_count; i++)
        ls_device_case_accumulate(&c, i);
    add_forward(&c, &t);
    c.from_forward[0] = 1;
    c.from_forward[dw] = 2;
    ls_device_case_run(suite, &c);
}

void ls_device_dense_cases(struct ls_device_suite *suite, uint32_t op,
                           const struct ls_device_epilogue *epilogue)
{
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        if (epilogue && i % 3 != 1)
            continue;
        if (op == LS_OP_DENSE)
            forward(suite, &shapes[i], i, epilogue);
        else if (op == LS_OP_DENSE_BACKWARD_DATA)
            backward_data(suite, &shapes[i], i, epilogue);
        else
            backward_weights(suite, &shapes[i], i, epilogue);
    }
}
