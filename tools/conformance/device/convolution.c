// SPDX-License-Identifier: Apache-2.0
// Cases of the convolutions: forward, backward to the data, backward to the weights.
#include "core/plugin/window.h"
#include "tools/conformance/device/suite.h"

#include <string.h>

struct shape {
    int64_t b, h, w, c, f, kh, kw;
    int32_t stride[2];
    char padding; // v: valid, s: same as in Keras, e: explicit
    int32_t edge[4]; // with e: top, bottom, left, right
    int32_t dilation;
    int32_t groups;
};

// Channels around the width of a vector register (8, 16), sizes that are prime, odd or one, everything
// that moves the edge; 10 million products at most, for the reference device is slow.
static const struct shape shapes[] = {
    {1, 1, 1, 1, 1, 1, 1, {1, 1}, 'v', {0}, 1, 1},
    {2, 28, 28, 1, 32, 3, 3, {1, 1}, 'v', {0}, 1, 1},
    {5, 26, 26, 8, 10, 3, 3, {1, 1}, 'v', {0}, 1, 1},
    {1, 13, 13, 32, 64, 3, 3, {1, 1}, 'v', {0}, 1, 1},
    {2, 11, 11, 64, 64, 3, 3, {1, 1}, 's', {0}, 1, 1},
    {5, 13, 11, 24, 33, 3, 3, {2, 2}, 's', {0}, 1, 1},
    {7, 28, 28, 1, 24, 5, 5, {1, 1}, 's', {0}, 1, 1},
    {2, 12, 12, 3, 16, 5, 5, {2, 1}, 's', {0}, 1, 1},
    {1, 29, 30, 3, 8, 7, 7, {2, 2}, 's', {0}, 1, 1},
    {2, 17, 19, 10, 17, 2, 3, {1, 1}, 'v', {0}, 1, 1},
    {5, 7, 5, 17, 16, 2, 3, {1, 1}, 's', {0}, 1, 1},
    {7, 9, 9, 16, 16, 1, 1, {1, 1}, 'v', {0}, 1, 1},
    {2, 14, 10, 33, 24, 1, 1, {2, 2}, 'v', {0}, 1, 1},
    {2, 10, 10, 16, 33, 1, 1, {3, 3}, 's', {0}, 1, 1},
    {1, 23, 7, 8, 3, 3, 3, {3, 2}, 'v', {0}, 1, 1},
    {2, 8, 8, 32, 1, 3, 3, {1, 1}, 's', {0}, 1, 1},
    {5, 3, 3, 64, 10, 3, 3, {1, 1}, 'v', {0}, 1, 1},
    {2, 6, 9, 17, 32, 3, 3, {1, 1}, 'e', {0, 2, 1, 0}, 1, 1},
    {1, 5, 5, 10, 8, 3, 3, {2, 1}, 'e', {2, 1, 0, 2}, 1, 1},
    {2, 15, 15, 8, 16, 3, 3, {1, 1}, 'v', {0}, 2, 1},
    {1, 16, 13, 16, 10, 3, 3, {1, 1}, 's', {0}, 2, 1},
    {2, 12, 11, 3, 17, 2, 3, {2, 1}, 's', {0}, 2, 1},
    {2, 9, 9, 16, 32, 3, 3, {1, 1}, 's', {0}, 1, 2},
    {1, 10, 7, 10, 6, 3, 3, {1, 1}, 'v', {0}, 1, 2},
    {2, 8, 8, 48, 48, 3, 3, {1, 1}, 's', {0}, 1, 3},
    {2, 13, 13, 24, 24, 3, 3, {1, 1}, 's', {0}, 1, 24},
    {5, 7, 7, 17, 17, 3, 3, {2, 2}, 's', {0}, 1, 17},
    {1, 9, 8, 8, 16, 3, 3, {1, 1}, 'v', {0}, 1, 8},
    {1, 30, 1, 3, 8, 5, 1, {1, 1}, 's', {0}, 1, 1},
    {2, 1, 23, 16, 3, 1, 5, {1, 2}, 's', {0}, 1, 1},
    {64, 5, 5, 8, 16, 3, 3, {1, 1}, 'v', {0}, 1, 1},
    {12, 13, 13, 16, 24, 3, 3, {1, 1}, 'v', {0}, 1, 1},
    {12, 20, 20, 1, 20, 3, 3, {1, 1}, 'v', {0}, 1, 1},
    // So few pixels that most of a kernel lies in the padding.
    {5, 2, 2, 32, 48, 3, 3, {1, 1}, 's', {0}, 1, 1},
    {3, 1, 2, 40, 24, 3, 3, {1, 1}, 's', {0}, 1, 1},
    {4, 3, 3, 16, 32, 5, 5, {2, 2}, 's', {0}, 1, 1},
    {2, 3, 2, 32, 16, 3, 3, {1, 1}, 's', {0}, 2, 1},
    {5, 2, 2, 48, 48, 3, 3, {1, 1}, 's', {0}, 1, 48},
    {4, 1, 3, 40, 40, 5, 3, {1, 1}, 's', {0}, 1, 40},
    // Few taps, as the first layers over gray and RGB images have: filters in fours and not, and more than 64.
    {3, 15, 17, 3, 32, 3, 3, {1, 1}, 's', {0}, 1, 1},
    {2, 26, 26, 1, 64, 3, 3, {1, 1}, 'v', {0}, 1, 1},
    {2, 21, 18, 3, 36, 3, 3, {2, 2}, 's', {0}, 1, 1},
    {2, 12, 13, 1, 100, 3, 3, {1, 2}, 'e', {0, 2, 1, 0}, 1, 1},
    {3, 14, 11, 2, 70, 3, 4, {2, 1}, 's', {0}, 2, 1},
    {9, 10, 12, 1, 7, 3, 3, {1, 1}, 's', {0}, 2, 1},
    {4, 9, 9, 4, 12, 2, 3, {1, 1}, 'v', {0}, 1, 1},
    {2, 13, 14, 1, 33, 5, 5, {1, 1}, 's', {0}, 1, 1},
    {3, 11, 9, 3, 64, 3, 3, {1, 1}, 'e', {1, 0, 2, 2}, 1, 1},
    {5, 8, 8, 1, 4, 1, 1, {1, 1}, 'v', {0}, 1, 1},
    {2, 7, 6, 5, 8, 2, 2, {1, 1}, 's', {0}, 1, 1},
    {9,
     131,
     130,
     1,
     3,
     1,
     2,
     {1, 1},
     'v',
     {0},
     1,
     1}, // and more positions than blocks have at once
    // Of one point: added with a bias, and not.
    {3, 6, 7, 12, 20, 1, 1, {1, 1}, 'v', {0}, 1, 1},
    {2, 5, 9, 24, 8, 1, 1, {1, 1}, 'v', {0}, 1, 1},
};

#define SHAPE_COUNT (sizeof(shapes) / sizeof(shapes[0]))

static void same_padding(int64_t size, int64_t kernel, int64_t stride, int64_t dilation,
                         int32_t *edges)
{
    const int64_t total =
        ((size + stride - 1) / stride - 1) * stride + (kernel - 1) * dilation + 1 - size;
    edges[0] = (int32_t)(total > 0 ? total / 2 : 0);
    edges[1] = (int32_t)(total > 0 ? total - total / 2 : 0);
}

static struct ls_op_attributes attributes_of(const struct shape *s)
{
    struct ls_op_attributes a = {
        .strides = {s->stride[0], s->stride[1]},
        .dilation = {s->dilation, s->dilation},
        .groups = s->groups,
    };
    if (s->padding == 'e')
        memcpy(a.padding, s->edge, sizeof(a.padding));
    if (s->padding == 's') {
        same_padding(s->h, s->kh, s->stride[0], s->dilation, &a.padding[0]);
        same_padding(s->w, s->kw, s->stride[1], s->dilation, &a.padding[2]);
    }
    return a;
}

static int64_t window_count(int64_t size, int64_t kernel, int32_t stride, int32_t dilation,
                            const int32_t *edges)
{
    return (size + edges[0] + edges[1] - (kernel - 1) * dilation - 1) / stride + 1;
}

static struct ls_device_linear linear_of(const struct shape *s)
{
    const struct ls_op_attributes a = attributes_of(s);
    const int64_t oh = window_count(s->h, s->kh, s->stride[0], s->dilation, &a.padding[0]);
    const int64_t ow = window_count(s->w, s->kw, s->stride[1], s->dilation, &a.padding[2]);
    char stride[32], dilation[32] = "", groups[32] = "", edges[64];
    snprintf(stride, sizeof(stride), s->stride[0] == s->stride[1] ? "s%d" : "s%dx%d", s->stride[0],
             s->stride[1]);
    if (s->dilation > 1)
        snprintf(dilation, sizeof(dilation), " d%d", s->dilation);
    if (s->groups > 1)
        snprintf(groups, sizeof(groups), " groups %d", s->groups);
    snprintf(edges, sizeof(edges), "pad %d,%d,%d,%d", s->edge[0], s->edge[1], s->edge[2],
             s->edge[3]);
    struct ls_device_linear linear = {
        .name = "conv2d",
        .forward = LS_OP_CONV2D,
        .backward_data = LS_OP_CONV2D_BACKWARD_DATA,
        .backward_weights = LS_OP_CONV2D_BACKWARD_WEIGHTS,
        .attributes = a,
        .x = LS_DEVICE_DESC(LS_F32, s->b, s->h, s->w, s->c),
        .w = LS_DEVICE_DESC(LS_F32, s->kh, s->kw, s->c / s->groups, s->f),
        .b = LS_DEVICE_DESC(LS_F32, s->f),
        .y = LS_DEVICE_DESC(LS_F32, s->b, oh, ow, s->f),
    };
    snprintf(linear.shape, sizeof(linear.shape),
             "B=%lld %lldx%lldx%lld -> %lld %lldx%lld %s %s%s%s", (long long)s->b, (long long)s->h,
             (long long)s->w, (long long)s->c, (long long)s->f, (long long)s->kh, (long long)s->kw,
             stride,
             s->padding == 's'   ? "same"
             : s->padding == 'v' ? "valid"
                                 : edges,
             dilation, groups);
    return linear;
}

// ---- Shapes at random ----

#define RANDOM_COUNT 24
#define MOST_PRODUCTS 4000000

static int64_t between(uint64_t *state, int64_t low, int64_t high)
{
    *state = ls_mix64(*state, 1);
    return low + (int64_t)(*state % (uint64_t)(high - low + 1));
}

static struct shape draw_shape(uint64_t *state)
{
    static const int64_t channels[] = {1, 3, 8, 10, 16, 17, 24, 32, 33, 64};
    struct shape s = {
        .b = between(state, 1, 7),
        .c = channels[between(state, 0, 9)],
        .f = channels[between(state, 0, 9)],
        .kh = between(state, 1, 5),
        .kw = between(state, 1, 5),
        .stride = {(int32_t)between(state, 1, 3), (int32_t)between(state, 1, 3)},
        .padding = 'e',
        .dilation = (int32_t)between(state, 1, 2),
        .groups = 1,
    };
    // At least as large as what the kernel spans.
    s.h = between(state, (s.kh - 1) * s.dilation + 1, 30);
    s.w = between(state, (s.kw - 1) * s.dilation + 1, 30);
    for (int i = 0; i < 4; i++)
        s.edge[i] = (int32_t)between(state, 0, (i < 2 ? s.kh : s.kw) - 1);
    if (s.c % 8 == 0 && s.f % 8 == 0 && between(state, 0, 2) == 0)
        s.groups = (int32_t)(s.c < s.f ? s.c : s.f) / (int32_t)between(state, 1, 2);
    return s;
}

// A group's channels and filters must come out even.
static bool is_usable(const struct shape *s, const struct ls_device_linear *linear)
{
    return s->c % s->groups == 0 && s->f % s->groups == 0 &&
           (int64_t)(ls_tensor_elements(&linear->y) * ls_tensor_elements(&linear->w)) / s->f <=
               MOST_PRODUCTS;
}

static void random_cases(struct ls_device_suite *suite, uint32_t op)
{
    uint64_t state = 5; // the same shapes for the three operations

    for (size_t i = 0; i < RANDOM_COUNT;) {
        const struct shape s = draw_shape(&state);
        const struct ls_device_linear linear = linear_of(&s);
        if (is_usable(&s, &linear))
            ls_device_linear_case(suite, &linear, op, i++, NULL);
    }
}

// ---- Volumes, which a device may refuse ----

static const struct volume {
    int64_t b, size[3], c, f;
    int64_t kernel[3];
    struct ls_moves moves[3];
    int32_t groups;
} volumes[] = {
    {1, {1, 1, 1}, 1, 1, {1, 1, 1}, {{1, 1, 0, 0}, {1, 1, 0, 0}, {1, 1, 0, 0}}, 1},
    {2, {7, 6, 9}, 1, 16, {3, 3, 3}, {{1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}}, 1},
    {3, {5, 8, 7}, 16, 24, {3, 2, 3}, {{1, 1, 0, 0}, {1, 1, 0, 1}, {1, 1, 1, 1}}, 1},
    {2, {9, 5, 6}, 3, 17, {3, 5, 2}, {{2, 1, 1, 0}, {1, 1, 2, 2}, {3, 1, 0, 0}}, 1},
    {1, {8, 7, 6}, 10, 8, {2, 3, 2}, {{1, 3, 0, 0}, {1, 1, 1, 1}, {1, 2, 2, 0}}, 1},
    {2, {4, 5, 6}, 8, 16, {3, 3, 1}, {{2, 1, 1, 1}, {2, 1, 1, 1}, {1, 1, 0, 0}}, 2},
    {2, {3, 4, 5}, 12, 12, {2, 2, 2}, {{1, 1, 0, 1}, {1, 1, 0, 1}, {1, 1, 0, 1}}, 12},
    {5, {2, 1, 3}, 33, 10, {3, 1, 3}, {{1, 1, 1, 1}, {1, 1, 0, 0}, {1, 1, 1, 1}}, 1},
};

static struct ls_device_linear linear_of_volume(const struct volume *v)
{
    struct ls_device_linear linear = {
        .name = "conv2d",
        .forward = LS_OP_CONV2D,
        .backward_data = LS_OP_CONV2D_BACKWARD_DATA,
        .backward_weights = LS_OP_CONV2D_BACKWARD_WEIGHTS,
        .attributes = {.groups = v->groups},
        .x = LS_DEVICE_DESC(LS_F32, v->b, v->size[0], v->size[1], v->size[2], v->c),
        .w = LS_DEVICE_DESC(LS_F32, v->kernel[0], v->kernel[1], v->kernel[2], v->c / v->groups,
                            v->f),
        .b = LS_DEVICE_DESC(LS_F32, v->f),
        .y = LS_DEVICE_DESC(LS_F32, v->b, 0, 0, 0, v->f),
    };
    for (uint32_t i = 0; i < 3; i++) {
        const struct ls_moves *m = &v->moves[i];
        const int32_t edges[2] = {m->before, m->after};
        ls_set_moves(&linear.attributes, 3, i, m);
        linear.y.dims[1 + i] =
            window_count(v->size[i], v->kernel[i], m->stride, m->dilation, edges);
    }
    snprintf(linear.shape, sizeof(linear.shape),
             "volumes B=%lld %lldx%lldx%lldx%lld -> %lld %lldx%lldx%lld s%dx%dx%d groups %d",
             (long long)v->b, (long long)v->size[0], (long long)v->size[1], (long long)v->size[2],
             (long long)v->c, (long long)v->f, (long long)v->kernel[0], (long long)v->kernel[1],
             (long long)v->kernel[2], v->moves[0].stride, v->moves[1].stride, v->moves[2].stride,
             v->groups);
    return linear;
}

static bool offers_volumes(struct ls_device_suite *suite)
{
    const struct ls_device_linear linear = linear_of_volume(&volumes[0]);
    const struct ls_device_request request = {.op = LS_OP_CONV2D,
                                              .attributes = linear.attributes,
                                              .input_count = 2,
                                              .output_count = 1,
                                              .arguments = {linear.x, linear.w, linear.y}};
    return ls_device_operation_offered(suite, "convolution of volumes", &request);
}

static void volume_cases(struct ls_device_suite *suite, uint32_t op,
                         const struct ls_device_epilogue *epilogue)
{
    for (size_t i = 0; i < sizeof(volumes) / sizeof(volumes[0]); i++) {
        const struct ls_device_linear linear = linear_of_volume(&volumes[i]);
        if (!epilogue || i == 1)
            ls_device_linear_case(suite, &linear, op, i, epilogue);
    }
}

void ls_device_convolution_cases(struct ls_device_suite *suite, uint32_t op,
                                 const struct ls_device_epilogue *epilogue)
{
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        if (epilogue && i % 5 != 1) // a few shapes are enough to see that it is applied, and where
            continue;
        const struct ls_device_linear linear = linear_of(&shapes[i]);
        ls_device_linear_case(suite, &linear, op, i, epilogue);
    }
    if (!epilogue)
        random_cases(suite, op);
    if (offers_volumes(suite))
        volume_cases(suite, op, epilogue);
}
