// SPDX-License-Identifier: Apache-2.0
// Cases of the functions of elements whose derivative needs x.
#include "tools/conformance/device/suite.h"

#include "core/operation/operation.h"

static const struct {
    uint32_t ndims;
    int64_t dims[4];
} shapes[] = {{2, {1, 1}},          {2, {7, 33}},       {4, {5, 5, 5, 64}}, {4, {1, 7, 3, 24}},
              {4, {2, 13, 11, 17}}, {3, {2, 1031, 10}}, {2, {64, 1000}},    {1, {29}}};

#define SHAPE_COUNT (sizeof(shapes) / sizeof(shapes[0]))

static void build(struct ls_device_case *c, uint32_t op, uint32_t function, size_t shape)
{
    const struct ls_op_attributes attributes = {
        .function = function,
        .factor = function == LS_SCALE ? -1.7f : 0,
        .offset = function == LS_SCALE         ? 0.3f
                  : function == LS_SQUARE_ROOT ? 0.8f
                                               : 0,
    };
    const struct ls_tensor_desc desc =
        ls_device_desc(LS_F32, shapes[shape].ndims, shapes[shape].dims);
    const bool backward = op == LS_OP_FUNCTION_BACKWARD;

    ls_device_case_start(
        c, op, "%s %s %llux%lld", ls_op_name(op), ls_operation_label(op, &attributes),
        (unsigned long long)(ls_tensor_elements(&desc) / (uint64_t)desc.dims[desc.ndims - 1]),
        (long long)desc.dims[desc.ndims - 1]);
    c->request.attributes = attributes;
    if (backward)
        ls_device_case_draw(c, ls_device_case_input(c, LS_DEVICE_ACTIVATION, desc),
                            LS_DEVICE_UNIFORM);
    ls_device_case_draw(c, ls_device_case_input(c, LS_DEVICE_ACTIVATION, desc), LS_DEVICE_WIDE);
    ls_device_case_output(c, LS_DEVICE_ACTIVATION, desc, LS_DEVICE_FUNCTION);
    if (backward && shape % 2 == 1)
        ls_device_case_accumulate(c, 0);
}

// A function that the device lacks has one case, in which it says so.
void ls_device_function_cases(struct ls_device_suite *suite, uint32_t op)
{
    for (uint32_t function = 0; function < LS_FUNCTION_COUNT; function++) {
        struct ls_device_case c;
        char name[64];
        build(&c, op, function, 0);
        snprintf(name, sizeof(name), "%s %s", ls_op_name(op),
                 ls_operation_label(op, &c.request.attributes));
        for (size_t i = 0; i < SHAPE_COUNT && (i || ls_device_case_offered(suite, &c, name)); i++) {
            build(&c, op, function, i);
            ls_device_case_run(suite, &c);
        }
    }
}
