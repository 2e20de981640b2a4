// SPDX-License-Identifier: Apache-2.0
// Cases of tiles: a device that asks for them computes on a part of the examples, in the same memory, what it computes on all.
#include "tools/conformance/device/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 6, TILE = 2 };
#define TOLERANCE 1e-5 // of the largest element: a smaller batch may be summed in another order

struct tiling {
    struct ls_device_suite *suite;
    uint32_t batched; // bit i: argument i has examples
    struct ls_device_session forward; // of a backward operation that reads `saved`
    struct ls_device_session whole, tile;
    struct ls_device_buffer results[LS_DEVICE_ARGUMENTS]; // outputs of all tiles
};

static bool draw(struct ls_device_session *session, uint32_t argument)
{
    const uint64_t count = ls_tensor_elements(&session->request.arguments[argument]);
    float *values = malloc((count + 1) * sizeof(*values));
    bool good = values || ls_device_suite_fail(session->suite, "no host memory");
    for (uint64_t i = 0; good && i < count; i++)
        values[i] = (float)((i * 7919 + argument * 104729) % 2001) / 1000 - 1;
    good = good && ls_device_session_write(session, argument, values);
    free(values);
    return good;
}

// Prepares, and gives all inputs that are floats values.
static bool open_session(struct tiling *tiling, struct ls_device_session *session,
                         const struct ls_device_request *request)
{
    struct ls_device_suite *suite = tiling->suite;
    const int32_t status = ls_device_session_prepare(session, suite, suite->tested, request);
    if (status == LS_UNSUPPORTED)
        return ls_device_suite_refuse(suite, "", suite->tested->message);
    bool good = !status && ls_device_session_allocate(session);
    for (uint32_t i = 0; good && i < request->input_count; i++)
        good = request->arguments[i].dtype == LS_U8 || draw(session, i);
    return good;
}

// Max pooling's backward operation: x, y and saved are those of forward.
static bool run_forward(struct tiling *tiling, struct ls_device_request *request)
{
    const struct ls_device_request forward = {
        .op = LS_OP_MAX_POOL2D,
        .attributes = request->attributes,
        .input_count = 1,
        .output_count = 2,
        .arguments = {request->arguments[1], request->arguments[2], request->arguments[3]}};
    if (!open_session(tiling, &tiling->forward, &forward) ||
        !ls_device_session_launch(&tiling->forward))
        return false;
    for (uint32_t i = 0; i < 3; i++)
        request->arguments[1 + i].layout = tiling->forward.request.arguments[i].layout;
    return true;
}

static bool run_whole(struct tiling *tiling, struct ls_device_request request)
{
    const bool saved = request.op == LS_OP_MAX_POOL2D_BACKWARD;
    if ((saved && !run_forward(tiling, &request)) ||
        !open_session(tiling, &tiling->whole, &request))
        return false;
    for (uint32_t i = 0; saved && i < 3; i++)
        tiling->whole.memory[1 + i] = tiling->forward.memory[i];
    return ls_device_session_launch(&tiling->whole);
}

static uint64_t example_bytes(const struct tiling *tiling, uint32_t argument)
{
    return tiling->whole.request.arguments[argument].layout.bytes / BATCH;
}

// The request of a tile: the layouts of the whole batch, for fewer examples.
static bool shorten(const struct tiling *tiling, struct ls_device_request *out)
{
    *out = tiling->whole.request;
    for (uint32_t i = 0; i < out->input_count + out->output_count; i++) {
        struct ls_tensor_desc *desc = &out->arguments[i];
        if ((tiling->batched >> i & 1) == 0)
            continue;
        if (desc->layout.bytes % BATCH != 0)
            return ls_device_suite_fail(tiling->suite,
                                        "argument %u: %llu bytes are not %d equal examples", i,
                                        (unsigned long long)desc->layout.bytes, BATCH);
        desc->layout.bytes = desc->layout.bytes / BATCH * TILE;
        desc->dims[0] = desc->dtype == LS_U8 ? (int64_t)desc->layout.bytes : TILE;
        if (desc->dtype == LS_U8 && i >= out->input_count)
            desc->layout = (struct ls_layout){0};
    }
    return true;
}

static bool open_tile(struct tiling *tiling)
{
    struct ls_device_suite *suite = tiling->suite;
    struct ls_device_request request;
    if (!shorten(tiling, &request))
        return false;
    const int32_t status = ls_device_session_prepare(&tiling->tile, suite, suite->tested, &request);
    if (status == LS_UNSUPPORTED)
        ls_device_suite_fail(suite, "%d of %d examples in the same layouts are refused: %s", TILE,
                             BATCH, suite->tested->message);
    bool good =
        !status &&
        ls_device_session_record(
            &tiling->tile, &(struct ls_step_record){.step = 1, .update = 1, .gradient_scale = 1});
    for (uint32_t i = request.input_count; good && i < request.input_count + request.output_count;
         i++)
        good = ls_device_buffer_create(suite, suite->tested, example_bytes(tiling, i) * BATCH,
                                       &tiling->results[i]);
    return good;
}

static bool run_tiles(struct tiling *tiling)
{
    const struct ls_device_request *request = &tiling->tile.request;
    for (uint32_t t = 0; t < BATCH / TILE; t++) {
        for (uint32_t i = 0; i < request->input_count + request->output_count; i++) {
            const struct ls_memory start = i < request->input_count
                                               ? tiling->whole.memory[i]
                                               : ls_device_buffer_memory(&tiling->results[i]);
            const bool batched = (tiling->batched >> i & 1) != 0;
            tiling->tile.memory[i] =
                ls_memory_at(start, batched ? t * TILE * example_bytes(tiling, i) : 0);
        }
        if (!ls_device_session_launch(&tiling->tile))
            return false;
    }
    return true;
}

// Memory against memory: equal layouts hold equal elements at equal places.
static bool compare(const struct tiling *tiling, uint32_t argument, const void *whole,
                    const void *tiles)
{
    const struct ls_tensor_desc *desc = &tiling->whole.request.arguments[argument];
    const uint64_t bytes = desc->layout.bytes;
    const float *p = whole, *q = tiles;
    double largest = 0, difference = 0;
    if (desc->dtype == LS_U8 && memcmp(whole, tiles, bytes) != 0)
        return ls_device_suite_fail(tiling->suite, "what is saved differs from the whole batch's");
    for (uint64_t i = 0; desc->dtype == LS_F32 && i < bytes / sizeof(float); i++) {
        const double apart = fabs((double)p[i] - (double)q[i]);
        largest = fmax(largest, fabs((double)p[i]));
        difference = isnan(apart) ? INFINITY : fmax(difference, apart);
    }
    return difference <= TOLERANCE * largest ||
           ls_device_suite_fail(
               tiling->suite, "output %u: %d examples at a time, an element is off by %g of %g",
               argument - tiling->whole.request.input_count, TILE, difference, largest);
}

static bool check_output(struct tiling *tiling, uint32_t argument)
{
    struct ls_device_suite *suite = tiling->suite;
    const uint64_t bytes = example_bytes(tiling, argument) * BATCH;
    char *images = malloc(2 * bytes + 1);
    const bool good = (images || ls_device_suite_fail(suite, "no host memory")) &&
                      ls_device_buffer_read(suite, suite->tested, &tiling->whole.buffers[argument],
                                            "an output", images) &&
                      ls_device_buffer_read(suite, suite->tested, &tiling->results[argument],
                                            "an output of tiles", images + bytes) &&
                      compare(tiling, argument, images, images + bytes);
    free(images);
    return good;
}

static void tile_case(struct ls_device_suite *suite, const char *name, uint32_t batched,
                      const struct ls_device_request *request)
{
    struct tiling tiling = {.suite = suite, .batched = batched};
    if (!ls_device_suite_begin(suite, name))
        return;
    bool good = run_whole(&tiling, *request) && open_tile(&tiling) && run_tiles(&tiling);
    for (uint32_t i = 0; good && i < request->output_count; i++)
        good = check_output(&tiling, request->input_count + i);
    snprintf(suite->note, sizeof(suite->note), "%s", tiling.whole.answer.implementation);
    for (uint32_t i = 0; i < LS_DEVICE_ARGUMENTS; i++)
        ls_device_buffer_destroy(suite->tested, &tiling.results[i]);
    ls_device_session_close(&tiling.tile);
    ls_device_session_close(&tiling.whole);
    ls_device_session_close(&tiling.forward);
    ls_device_suite_end(suite, name, NULL);
}

// Channels that are whole blocks and some that are not.
static void convolution_cases(struct ls_device_suite *suite, int64_t channels, int64_t filters)
{
    const struct ls_tensor_desc x = LS_DEVICE_DESC(LS_F32, BATCH, 9, 8, channels),
                                w = LS_DEVICE_DESC(LS_F32, 3, 3, channels, filters),
                                b = LS_DEVICE_DESC(LS_F32, filters),
                                y = LS_DEVICE_DESC(LS_F32, BATCH, 7, 6, filters);
    struct ls_device_request request = {
        .op = LS_OP_CONV2D,
        .attributes = {.strides = {1, 1}, .dilation = {1, 1}, .groups = 1},
        .input_count = 3,
        .output_count = 1,
        .arguments = {x, w, b, y}};
    char name[96];
    snprintf(name, sizeof(name), "conv2d in tiles, %lld channels, %lld filters",
             (long long)channels, (long long)filters);
    tile_case(suite, name, 1 | 8, &request);
    request.op = LS_OP_CONV2D_BACKWARD_DATA;
    request.input_count = 2;
    request.arguments[0] = y;
    request.arguments[2] = x;
    snprintf(name, sizeof(name), "conv2d_backward_data in tiles, %lld channels, %lld filters",
             (long long)channels, (long long)filters);
    tile_case(suite, name, 1 | 4, &request);
}

static void pooling_cases(struct ls_device_suite *suite, int64_t channels)
{
    const struct ls_tensor_desc x = LS_DEVICE_DESC(LS_F32, BATCH, 9, 8, channels),
                                y = LS_DEVICE_DESC(LS_F32, BATCH, 4, 4, channels),
                                saved = LS_DEVICE_DESC(LS_U8, 0);
    const struct {
        const char *name;
        uint32_t op, inputs, outputs, batched;
        struct ls_tensor_desc arguments[5];
    } cases[] = {
        {"max_pool2d", LS_OP_MAX_POOL2D, 1, 2, 7, {x, y, saved}},
        {"max_pool2d_backward", LS_OP_MAX_POOL2D_BACKWARD, 4, 1, 31, {y, x, y, saved, x}},
        {"average_pool2d", LS_OP_AVERAGE_POOL2D, 1, 1, 3, {x, y}},
        {"average_pool2d_backward", LS_OP_AVERAGE_POOL2D_BACKWARD, 1, 1, 3, {y, x}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ls_device_request request = {.op = cases[i].op,
                                            .attributes = {.kernel = {2, 2}, .strides = {2, 2}},
                                            .input_count = cases[i].inputs,
                                            .output_count = cases[i].outputs};
        char name[96];
        memcpy(request.arguments, cases[i].arguments, sizeof(cases[i].arguments));
        snprintf(name, sizeof(name), "%s in tiles, %lld channels", cases[i].name,
                 (long long)channels);
        tile_case(suite, name, cases[i].batched, &request);
    }
}

static void activation_cases(struct ls_device_suite *suite)
{
    const struct ls_tensor_desc x = LS_DEVICE_DESC(LS_F32, BATCH, 5, 7, 3);
    struct ls_device_request request = {.op = LS_OP_ACTIVATION,
                                        .attributes = {.activation = LS_TANH},
                                        .input_count = 1,
                                        .output_count = 1,
                                        .arguments = {x, x, x}};
    tile_case(suite, "activation in tiles", 3, &request);
    request.op = LS_OP_ACTIVATION_BACKWARD;
    request.input_count = 2;
    tile_case(suite, "activation_backward in tiles", 7, &request);
}

void ls_device_tile_cases(struct ls_device_suite *suite)
{
    const struct ls_device_interface *d = suite->tested->interface;
    if (!d->kernels->tile_bytes || d->kernels->tile_bytes(suite->tested->device) == 0)
        return;
    convolution_cases(suite, 1, 32);
    convolution_cases(suite, 32, 48);
    convolution_cases(suite, 5, 7);
    pooling_cases(suite, 32);
    pooling_cases(suite, 5);
    activation_cases(suite);
}
