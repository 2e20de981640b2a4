// SPDX-License-Identifier: Apache-2.0
// Builds a case: names it, describes its arguments, draws its values. The draws depend on the name
// alone, so that a case is the same whichever others run.
#include "tools/conformance/device/suite.h"

#include "core/operation/operation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void ls_device_case_start(struct ls_device_case *c, uint32_t op, const char *format, ...)
{
    *c = (struct ls_device_case){
        .request = {.op = op},
        .record = {.step = 3,
                   .update = 3,
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
    case LS_SOFTSIGN: return x / (1 + fabs(x));
    case LS_SELU: return LS_SELU_SCALE * (x > 0 ? x : LS_SELU_ALPHA * expm1(x));
    case LS_HARD_SIGMOID: return fmin(fmax(3 * x + 3, 0), 6) / 6;
    default: return x;
    }
}

static void draw_floats(struct ls_device_case *c, const struct ls_device_draw *d, float *values)
{
    const struct ls_tensor_desc *desc = &c->request.arguments[d->argument];
    const uint64_t count = ls_tensor_elements(desc);
    const int64_t classes = desc->dims[desc->ndims - 1];
    if (d->kind == LS_DEVICE_PROBABILITIES) {
        for (uint64_t i = 0; i < count; i += (uint64_t)classes)
            draw_distribution(c, values + i, classes);
        return;
    }
    for (uint64_t i = 0; i < count; i++)
        values[i] = draw(c, d->kind);
    for (uint64_t i = 0; d->kind == LS_DEVICE_ACTIVATED && i < count; i++)
        values[i] = (float)activated(d->activation, (double)d->alpha, 3 * (double)values[i]);
}

void ls_device_case_values(struct ls_device_case *c)
{
    for (uint32_t k = 0; k < c->draw_count; k++) {
        const struct ls_device_draw *d = &c->draws[k];
        const uint64_t count = ls_tensor_elements(&c->request.arguments[d->argument]);
        void *values = malloc(count * sizeof(float)); // labels are as large
        c->values[d->argument] = values; // NULL: the trial fails for want of memory
        if (values && d->kind != LS_DEVICE_LABELS)
            draw_floats(c, d, values);
        for (uint64_t i = 0; values && d->kind == LS_DEVICE_LABELS && i < count; i++)
            ((int32_t *)values)[i] = (int32_t)(ls_device_case_random(c) * (double)d->classes);
    }
    c->draw_count = 0;
    if (c->derive)
        c->derive(c);
    c->derive = NULL;
}

static void draw_later(struct ls_device_case *c, struct ls_device_draw later)
{
    c->draws[c->draw_count++] = later;
}

void ls_device_case_draw(struct ls_device_case *c, uint32_t argument, enum ls_device_values kind)
{
    draw_later(c, (struct ls_device_draw){.argument = argument, .kind = kind});
}

void ls_device_case_draw_labels(struct ls_device_case *c, uint32_t argument, int64_t classes)
{
    draw_later(c, (struct ls_device_draw){
                      .argument = argument, .kind = LS_DEVICE_LABELS, .classes = classes});
}

void ls_device_case_draw_activated(struct ls_device_case *c, uint32_t argument, uint32_t activation,
                                   float alpha)
{
    draw_later(c, (struct ls_device_draw){.argument = argument,
                                          .kind = LS_DEVICE_ACTIVATED,
                                          .activation = activation,
                                          .alpha = alpha});
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
             ls_activation_name(epilogue->activation));
}

void ls_device_case_finish(struct ls_device_case *c)
{
    for (uint32_t i = 0; i < LS_DEVICE_ARGUMENTS; i++) {
        free(c->values[i]);
        c->values[i] = NULL;
    }
}
