// SPDX-License-Identifier: Apache-2.0
// Builds a case: names it, describes its arguments, draws its values. The draws depend on the name
// alone, so that a case is the same whichever others run.
#include "core/conformance/device/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const ls_device_activation_names[LS_ACTIVATION_COUNT] = {
    "linear", "relu", "leaky_relu", "elu", "sigmoid", "tanh", "softplus", "exponential", "relu6",
};

void ls_device_case_start(struct ls_device_case *c, uint32_t op, const char *format, ...)
{
    *c = (struct ls_device_case){
        .request = {.struct_size = sizeof(c->request), .op = op},
        .record = {.step = 3,
                   .seed = 11,
                   .example_offset = 5,
                   .learning_rate = 0.01f,
                   .gradient_scale = 0.125f},
    };
    va_list list;
    va_start(list, format);
    vsnprintf(c->name, sizeof(c->name), format, list);
    va_end(list);
    for (const char *letter = c->name; *letter; letter++)
        c->random = ls_mix64(c->random, (unsigned char)*letter);
}

struct ls_tensor_desc ls_device_desc(uint32_t dtype, uint32_t ndims, const int64_t *dims)
{
    struct ls_tensor_desc desc = {.dtype = dtype, .ndims = ndims};
    memcpy(desc.dims, dims, ndims * sizeof(*dims));
    return desc;
}

uint32_t ls_device_case_input(struct ls_device_case *c, enum ls_device_role role,
                              struct ls_tensor_desc desc)
{
    const uint32_t index = c->request.input_count++;
    c->request.arguments[index] = desc;
    c->roles[index] = role;
    return index;
}

uint32_t ls_device_case_output(struct ls_device_case *c, enum ls_device_role role,
                               struct ls_tensor_desc desc, struct ls_device_tolerance tolerance)
{
    const uint32_t index = c->request.input_count + c->request.output_count++;
    c->request.arguments[index] = desc;
    c->roles[index] = role;
    c->tolerances[index] = tolerance;
    return index;
}

// ---- Values ----

double ls_device_case_random(struct ls_device_case *c)
{
    c->random = ls_mix64(c->random, 1);
    return (double)(c->random >> 11) * 0x1p-53;
}

static float draw(struct ls_device_case *c, enum ls_device_values kind)
{
    static const float ties[8] = {0, 0, 0, 0.5f, 0.5f, 1, -1, -0.5f};
    const double u = ls_device_case_random(c);

    switch (kind) {
    case LS_DEVICE_TIES: return ties[(int)(u * 8)];
    case LS_DEVICE_NEGATIVE: return (float)(-1 - u);
    case LS_DEVICE_WIDE: return (float)((u - 0.5) * (ls_device_case_random(c) < 0.1 ? 60 : 16));
    default: return (float)(2 * u - 1);
    }
}

// A row: now and then one-hot, so that the clip of the cross-entropy is met.
static void draw_distribution(struct ls_device_case *c, float *row, int64_t classes)
{
    const bool one_hot = ls_device_case_random(c) < 0.25;
    const int64_t hot = (int64_t)(ls_device_case_random(c) * (double)classes);
    double sum = 0;

    for (int64_t i = 0; i < classes; i++) {
        row[i] = one_hot ? (i == hot ? 1 : 0) : (float)exp(6 * ls_device_case_random(c));
        sum += (double)row[i];
    }
    for (int64_t i = 0; i < classes; i++)
        row[i] = (float)((double)row[i] / sum);
}

void ls_device_case_draw(struct ls_device_case *c, uint32_t argument, enum ls_device_values kind)
{
    const struct ls_tensor_desc *desc = &c->request.arguments[argument];
    const uint64_t count = ls_tensor_elements(desc);
    const int64_t classes = desc->dims[desc->ndims - 1];
    float *values = malloc(count * sizeof(*values));

    c->values[argument] = values; // NULL: the trial fails for want of memory
    if (!values)
        return;
    if (kind == LS_DEVICE_PROBABILITIES) {
        for (uint64_t i = 0; i < count; i += (uint64_t)classes)
            draw_distribution(c, values + i, classes);
        return;
    }
    for (uint64_t i = 0; i < count; i++)
        values[i] = draw(c, kind);
}

void ls_device_case_draw_labels(struct ls_device_case *c, uint32_t argument, int64_t classes)
{
    const uint64_t count = ls_tensor_elements(&c->request.arguments[argument]);
    int32_t *values = malloc(count * sizeof(*values));

    c->values[argument] = values;
    for (uint64_t i = 0; values && i < count; i++)
        values[i] = (int32_t)(ls_device_case_random(c) * (double)classes);
}

// Only what the suite needs: results that the function could have had, kinks included.
static double activated(uint32_t activation, double alpha, double x)
{
    switch (activation) {
    case LS_RELU: return fmax(x, 0);
    case LS_LEAKY_RELU: return x > 0 ? x : alpha * x;
    case LS_ELU: return x > 0 ? x : alpha * expm1(x);
    case LS_SIGMOID: return 1 / (1 + exp(-x));
    case LS_TANH: return tanh(x);
    case LS_SOFTPLUS: return log1p(exp(x));
    case LS_EXPONENTIAL: return exp(x);
    case LS_RELU6: return fmin(fmax(4 * x, 0), 6);
    default: return x;
    }
}

void ls_device_case_draw_activated(struct ls_device_case *c, uint32_t argument, uint32_t activation,
                                   float alpha)
{
    ls_device_case_draw(c, argument, LS_DEVICE_UNIFORM);
    float *values = c->values[argument];
    const uint64_t count = ls_tensor_elements(&c->request.arguments[argument]);
    for (uint64_t i = 0; values && i < count; i++)
        values[i] = (float)activated(activation, (double)alpha, 3 * (double)values[i]);
}

void ls_device_case_accumulate(struct ls_device_case *c, uint32_t output)
{
    c->request.accumulate |= 1u << output;
    ls_device_case_draw(c, c->request.input_count + output, LS_DEVICE_UNIFORM);
}

void ls_device_case_epilogue(struct ls_device_case *c, const struct ls_device_epilogue *epilogue,
                             struct ls_tensor_desc output)
{
    if (!epilogue)
        return;
    struct ls_op_attributes *attributes = &c->request.attributes;
    attributes->epilogue = epilogue->op;
    attributes->epilogue_activation = epilogue->activation;
    attributes->epilogue_alpha =
        epilogue->activation == LS_LEAKY_RELU || epilogue->activation == LS_ELU ? 0.3f : 0;
    if (epilogue->op == LS_OP_ACTIVATION_BACKWARD) {
        const uint32_t y = ls_device_case_input(c, LS_DEVICE_ACTIVATION, output);
        ls_device_case_draw_activated(c, y, epilogue->activation, attributes->epilogue_alpha);
    }
    const size_t length = strlen(c->name);
    snprintf(c->name + length, sizeof(c->name) - length, " + %s%s",
             epilogue->op == LS_OP_ACTIVATION ? "" : "backward of ",
             ls_device_activation_names[epilogue->activation]);
}

void ls_device_case_finish(struct ls_device_case *c)
{
    for (uint32_t i = 0; i < LS_MAX_ARGUMENTS; i++) {
        free(c->values[i]);
        c->values[i] = NULL;
    }
}
