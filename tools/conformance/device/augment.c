// SPDX-License-Identifier: Apache-2.0
// Cases of operations on images: another size, draws, transforms, colours, patches.
#include "core/operation/operation.h"
#include "core/plugin/augment.h"

#include "tools/conformance/device/suite.h"

#include <math.h>

static const struct {
    int64_t b, h, w, c, to_h, to_w;
} shapes[] = {
    {1, 1, 1, 1, 1, 1}, {2, 6, 5, 3, 4, 9},  {3, 8, 8, 1, 8, 8},     {1, 13, 17, 20, 29, 7},
    {5, 4, 4, 2, 3, 3}, {2, 9, 7, 17, 5, 6}, {7, 24, 31, 5, 32, 18},
};
enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

static struct ls_device_tolerance absolute(double tolerance)
{
    return (struct ls_device_tolerance){0, 0, tolerance};
}

static double between(struct ls_device_case *c, double low, double high)
{
    return low + (high - low) * ls_device_case_random(c);
}

// Factors of a transform that is not far from the identity, with perspective in every other image.
static void fill_transforms(struct ls_device_case *c, float *f, int64_t images, int64_t h,
                            int64_t w)
{
    for (int64_t b = 0; f && b < images; b++, f += LS_TRANSFORM_NUMBERS)
        for (int i = 0; i < LS_TRANSFORM_NUMBERS; i++) {
            const double near = i == 0 || i == 4 ? 1 : 0;
            const double far = i == 2 ? 0.6 * (double)w : i == 5 ? 0.6 * (double)h : 0.5;
            f[i] = (float)(i < 6 ? between(c, near - far, near + far) : b % 2 ? 0.01 : 0);
        }
}

static void fill_patches(struct ls_device_case *c, float *f, int64_t images, int64_t h, int64_t w)
{
    for (int64_t b = 0; f && b < images; b++, f += LS_ERASE_NUMBERS) {
        f[0] = (float)between(c, 0, (double)w / 2);
        f[1] = (float)between(c, (double)f[0], (double)w + 1);
        f[2] = (float)between(c, 0, (double)h / 2);
        f[3] = (float)between(c, (double)f[2], (double)h + 1);
    }
}

static void fill_colours(struct ls_device_case *c, float *f, int64_t images)
{
    for (int64_t b = 0; f && b < images; b++, f += LS_RECOLOUR_NUMBERS) {
        f[0] = (float)between(c, 0.2, 1.8);
        f[1] = (float)between(c, -0.4, 0.4);
    }
}

// Case `number`: the next shape and the next function, whose numbers have no common divisor.
static bool start(struct ls_device_case *c, uint32_t op, size_t number, uint32_t functions)
{
    const uint32_t function = (uint32_t)(number % functions);
    const size_t shape = number % SHAPES;
    if (number >= 2 * (size_t)(functions > SHAPES ? functions : SHAPES))
        return false;
    ls_device_case_start(c, op, "%s B=%lld %lldx%lldx%lld to %lldx%lld function %u", ls_op_name(op),
                         (long long)shapes[shape].b, (long long)shapes[shape].h,
                         (long long)shapes[shape].w, (long long)shapes[shape].c,
                         (long long)shapes[shape].to_h, (long long)shapes[shape].to_w, function);
    c->request.attributes.function = function;
    return true;
}

static struct ls_tensor_desc image(size_t number, bool large)
{
    const size_t shape = number % SHAPES;
    return LS_DEVICE_DESC(LS_F32, shapes[shape].b, large ? shapes[shape].to_h : shapes[shape].h,
                          large ? shapes[shape].to_w : shapes[shape].w, shapes[shape].c);
}

static void finish(struct ls_device_case *c, struct ls_tensor_desc y,
                   struct ls_device_tolerance tolerance, size_t number)
{
    ls_device_case_output(c, LS_DEVICE_ACTIVATION, y, tolerance);
    if (number % 3 == 1)
        ls_device_case_accumulate(c, 0);
}

static uint32_t uniform(struct ls_device_case *c, struct ls_tensor_desc desc)
{
    const uint32_t index = ls_device_case_input(c, LS_DEVICE_ACTIVATION, desc);
    ls_device_case_draw(c, index, LS_DEVICE_UNIFORM);
    return index;
}

bool ls_device_resize_case(struct ls_device_case *c, uint32_t op, size_t number)
{
    const bool forward = op == LS_OP_RESIZE2D;
    if (!start(c, op, number, LS_UPSAMPLE_COUNT))
        return false;
    uniform(c, image(number, !forward));
    finish(c, image(number, forward), absolute(forward ? 2e-6 : 5e-5), number);
    return true;
}

bool ls_device_resample_case(struct ls_device_case *c, uint32_t op, size_t number)
{
    const bool forward = op == LS_OP_RESAMPLE;
    const struct ls_tensor_desc x = image(number, false), y = image(number, true);
    if (!start(c, op, number, LS_RESAMPLE_COUNT))
        return false;
    c->request.attributes.offset = 0.75f;
    uniform(c, forward ? x : y);
    const uint32_t factors = ls_device_case_input(
        c, LS_DEVICE_ACTIVATION, LS_DEVICE_DESC(LS_F32, x.dims[0], LS_TRANSFORM_NUMBERS));
    ls_device_case_draw(c, factors, LS_DEVICE_UNIFORM);
    ls_device_case_values(c);
    fill_transforms(c, c->values[factors], x.dims[0], x.dims[1], x.dims[2]);
    // Weights of float32 coordinates, which both sides have to the bit; whole images may meet in
    // one pixel.
    finish(c, forward ? y : x, absolute(forward ? 2e-6 : 2e-4), number);
    return true;
}

bool ls_device_draw_case(struct ls_device_case *c, uint32_t op, size_t number)
{
    const struct ls_tensor_desc x = image(number, false);
    if (!start(c, op, number, LS_DRAW_COUNT))
        return false;
    struct ls_op_attributes *a = &c->request.attributes;
    const uint32_t function = a->function;
    const bool share = function == LS_DRAW_ERASE;
    a->key = (uint32_t)number;
    a->l1 = share ? 0.2f : -0.3f, a->l2 = 0.9f;
    a->beta1 = share ? 0.1f : -0.2f, a->beta2 = 0.4f;
    a->kernel[0] = (int32_t)(x.dims[1] + 1) / 2, a->kernel[1] = (int32_t)(x.dims[2] + 1) / 2;
    uniform(c, x);
    finish(c, LS_DEVICE_DESC(LS_F32, x.dims[0], ls_draw_numbers(function)), LS_DEVICE_ROUNDED,
           number);
    return true;
}

bool ls_device_recolour_case(struct ls_device_case *c, uint32_t op, size_t number)
{
    const struct ls_tensor_desc x = image(number, false);
    if (!start(c, op, number, LS_RECOLOUR_COUNT))
        return false;
    c->request.attributes.l1 = -2; // gradients end there: no rounding may decide it
    c->request.attributes.l2 = op == LS_OP_RECOLOUR ? 0.7f : 3;
    if (op == LS_OP_RECOLOUR_BACKWARD)
        uniform(c, x);
    uniform(c, x);
    const uint32_t factors = ls_device_case_input(
        c, LS_DEVICE_ACTIVATION, LS_DEVICE_DESC(LS_F32, x.dims[0], LS_RECOLOUR_NUMBERS));
    ls_device_case_draw(c, factors, LS_DEVICE_UNIFORM);
    ls_device_case_values(c);
    fill_colours(c, c->values[factors], x.dims[0]);
    finish(c, x, absolute(3e-6), number);
    return true;
}

bool ls_device_erase_case(struct ls_device_case *c, uint32_t op, size_t number)
{
    const struct ls_tensor_desc x = image(number, false);
    if (!start(c, op, number, LS_ERASE_COUNT))
        return false;
    struct ls_op_attributes *a = &c->request.attributes;
    a->offset = -0.5f, a->factor = 2, a->l1 = -1, a->l2 = 3, a->key = 5;
    uniform(c, x);
    const uint32_t factors = ls_device_case_input(
        c, LS_DEVICE_ACTIVATION, LS_DEVICE_DESC(LS_F32, x.dims[0], LS_ERASE_NUMBERS));
    ls_device_case_draw(c, factors, LS_DEVICE_UNIFORM);
    ls_device_case_values(c);
    fill_patches(c, c->values[factors], x.dims[0], x.dims[1], x.dims[2]);
    finish(c, x, absolute(1e-5), number); // of the noise
    return true;
}
