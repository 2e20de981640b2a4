// SPDX-License-Identifier: Apache-2.0
// Cases of layers that are linear in their data and in their weights, dense and convolution:
// forward, backward to the data, backward to the weights.
#include "tools/conformance/device/suite.h"

static void start(struct ls_device_case *c, const struct ls_device_linear *l, uint32_t op,
                  const char *suffix, bool bias, bool accumulate)
{
    ls_device_case_start(c, op, "%s%s %s%s%s", l->name, suffix, l->shape, bias ? " bias" : "",
                         accumulate ? " added" : "");
    c->request.attributes = l->attributes;
    c->magnitude_inputs = 3;
}

static void input(struct ls_device_case *c, enum ls_device_role role, struct ls_tensor_desc desc)
{
    ls_device_case_draw(c, ls_device_case_input(c, role, desc), LS_DEVICE_UNIFORM);
}

// The forward kernel as a hint for a backward case.
static void add_forward(struct ls_device_case *c, const struct ls_device_linear *l)
{
    c->has_forward = true;
    c->forward = (struct ls_device_request){
        .op = l->forward,
        .attributes = l->attributes,
        .input_count = 2,
        .output_count = 1,
        .arguments = {l->x, l->w, l->y},
    };
    c->forward_roles[0] = LS_DEVICE_ACTIVATION;
    c->forward_roles[1] = LS_DEVICE_WEIGHTS;
    c->forward_roles[2] = LS_DEVICE_ACTIVATION;
}

static void forward(struct ls_device_suite *suite, const struct ls_device_linear *l, size_t number,
                    const struct ls_device_epilogue *epilogue)
{
    const bool bias = number % 3 != 2, accumulate = !epilogue && number % 8 == 3;
    struct ls_device_case c;

    start(&c, l, l->forward, "", bias, accumulate);
    input(&c, LS_DEVICE_ACTIVATION, l->x);
    input(&c, LS_DEVICE_WEIGHTS, l->w);
    if (bias)
        input(&c, LS_DEVICE_WEIGHTS, l->b);
    c.magnitude_inputs = bias ? 7 : 3;
    ls_device_case_epilogue(&c, epilogue, l->y);
    ls_device_case_output(&c, LS_DEVICE_ACTIVATION, l->y, LS_DEVICE_SUM);
    if (accumulate)
        ls_device_case_accumulate(&c, 0);
    ls_device_case_run(suite, &c);
}

static void backward_data(struct ls_device_suite *suite, const struct ls_device_linear *l,
                          size_t number, const struct ls_device_epilogue *epilogue)
{
    const bool accumulate = !epilogue && number % 4 == 1;
    struct ls_device_case c;

    start(&c, l, l->backward_data, "_backward_data", false, accumulate);
    input(&c, LS_DEVICE_ACTIVATION, l->y);
    input(&c, LS_DEVICE_WEIGHTS, l->w);
    ls_device_case_epilogue(&c, epilogue, l->x);
    const uint32_t dx = ls_device_case_output(&c, LS_DEVICE_ACTIVATION, l->x, LS_DEVICE_SUM);
    if (accumulate)
        ls_device_case_accumulate(&c, 0);
    add_forward(&c, l);
    if (l->data_as_forward) {
        c.from_forward[1] = 2; // w
        c.from_forward[dx] = 1;
    }
    ls_device_case_run(suite, &c);
}

static void backward_weights(struct ls_device_suite *suite, const struct ls_device_linear *l,
                             size_t number, const struct ls_device_epilogue *epilogue)
{
    const bool bias = number % 3 != 1, accumulate = !epilogue && number % 4 == 2;
    struct ls_device_case c;

    start(&c, l, l->backward_weights, "_backward_weights", bias, accumulate);
    input(&c, LS_DEVICE_ACTIVATION, l->x);
    input(&c, LS_DEVICE_ACTIVATION, l->y);
    ls_device_case_epilogue(&c, epilogue, l->w);
    const uint32_t dw = ls_device_case_output(&c, LS_DEVICE_WEIGHTS, l->w, LS_DEVICE_SUM);
    if (bias)
        ls_device_case_output(&c, LS_DEVICE_WEIGHTS, l->b, LS_DEVICE_SUM);
    for (uint32_t i = 0; accumulate && i < c.request.output_count; i++)
        ls_device_case_accumulate(&c, i);
    add_forward(&c, l);
    c.from_forward[0] = 1; // x in the layout in which forward reads it
    c.from_forward[dw] = 2; // dw in the layout of w, so that the update runs on both as they are
    ls_device_case_run(suite, &c);
}

void ls_device_linear_case(struct ls_device_suite *suite, const struct ls_device_linear *linear,
                           uint32_t op, size_t number, const struct ls_device_epilogue *epilogue)
{
    if (op == linear->forward)
        forward(suite, linear, number, epilogue);
    else if (op == linear->backward_data)
        backward_data(suite, linear, number, epilogue);
    else
        backward_weights(suite, linear, number, epilogue);
}
