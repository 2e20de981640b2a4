// SPDX-License-Identifier: Apache-2.0
// Convolutions with few taps by own kernels (taps.cuh): the first layer of a model of gray or RGB images. An element of y or dy then
// stands for at most 27 products. A GPU of the Hopper generation makes about 7 products of float32 in the time in which it moves a
// byte, so up to 27 taps in float32, and 13 in halves, memory decides how long that takes, and such kernels come near to it. cuDNN's
// want channels in packs of 4 or 8: with one channel its gradient of the weights took 35 times as long as reading dy, and the
// convolution 4 times as long as writing y (H200). With more channels its packs are full, and with more taps products decide: those
// stay with cuDNN.
#include "plugins/device/cuda/engine/internal.h"

enum {
    CHANNELS = 4, // more fill cuDNN's packs
    ACROSS = 16, // threads over filters: 64 filters, two or four lines of the cache
    MULTIPROCESSORS = 132, // of an H100
    CHUNKS = 2, // that a block has at least, for its end costs as much as one
    MOST_ELEMENTS = 1 << 30, // numbers of elements are int
    MOST_FILTERS = 1 << 20, // the grid has 65535 blocks over filters
};

static int64_t quotient_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

// How blocks and threads lie over filters and positions. The order of adding follows from it, so it may depend on the shape only.
static void divide(struct cuda_taps *t)
{
    const int64_t lanes = quotient_up(t->filters, CUDA_TAPS_FOUR);
    const int64_t tiles = quotient_up(lanes, ACROSS), across = quotient_up(lanes, tiles);
    const int64_t most_down = CUDA_TAPS_THREADS / CUDA_TAPS_FOUR, down = CUDA_TAPS_THREADS / across;
    t->tiles = (int32_t)tiles;
    t->across = (int32_t)across;
    t->down = (int32_t)(down < most_down ? down : most_down);
    t->size = CUDA_TAPS_THREADS / (CUDA_TAPS_FOUR * t->down) * CUDA_TAPS_FOUR * t->down;

    const int64_t chunks = quotient_up(t->positions, t->size);
    const int64_t beside = t->taps <= CUDA_TAPS_FEW ? CUDA_TAPS_BESIDE_FEW : CUDA_TAPS_BESIDE_MOST;
    const int64_t blocks = beside * MULTIPROCESSORS / tiles;
    const int64_t each = quotient_up(chunks, blocks > 0 ? blocks : 1);
    const int64_t parts = quotient_up(chunks, each > CHUNKS ? each : CHUNKS);
    t->chunks = (int32_t)chunks;
    t->part_count = (int32_t)parts;

    const int64_t step = parts * t->size, lines = step / t->out_width;
    t->step[0] = (int32_t)(lines / t->out_height);
    t->step[1] = (int32_t)(lines % t->out_height);
    t->step[2] = (int32_t)(step % t->out_width);
}

// Those that are not there are in a row that no image has.
static void list_taps(const struct cuda_window *w, struct cuda_taps *t)
{
    for (int32_t tap = t->taps; tap < CUDA_TAPS_MOST; tap++)
        t->row[tap] = MOST_ELEMENTS;
    for (int32_t tap = 0; tap < t->taps; tap++) {
        const int64_t place = tap / w->channels, channel = tap % w->channels;
        const int64_t row = place / w->size[1] * w->dilation[0];
        const int64_t column = place % w->size[1] * w->dilation[1];
        t->row[tap] = (int32_t)row;
        t->column[tap] = (int32_t)column;
        t->offset[tap] = (int32_t)((row * w->width + column) * w->channels + channel);
    }
}

static void shape_of(const struct ls_kernel *kernel, struct cuda_taps *out)
{
    const struct cuda_arguments *a = &kernel->arguments;
    const struct cuda_window *w = &a->window;
    *out = (struct cuda_taps){
        .type = cuda_type_of(&kernel->descs[0]),
        .batch = (int32_t)w->batch,
        .height = (int32_t)w->height,
        .width = (int32_t)w->width,
        .channels = (int32_t)w->channels,
        .out_height = (int32_t)w->out_height,
        .out_width = (int32_t)w->out_width,
        .positions = (int32_t)(w->batch * w->out_height * w->out_width),
        .filters = (int32_t)a->filters,
        .aligned = a->filters % CUDA_TAPS_FOUR == 0,
        .stride = {(int32_t)w->stride[0], (int32_t)w->stride[1]},
        .before = {(int32_t)w->before[0], (int32_t)w->before[1]},
        .taps = (int32_t)(w->size[0] * w->size[1] * w->channels),
        .tap_step = (int32_t)a->tap_step,
        .filter_step = (int32_t)a->filter_step,
    };
    out->rows = out->taps + cuda_has_bias_gradient(kernel);
    divide(out);
    list_taps(w, out);
}

static int32_t run_forward(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct cuda_call *launch)
{
    struct cuda_taps taps;
    shape_of(kernel, &taps);
    taps.store = cuda_store_of(kernel, launch);
    taps.x = launch->arguments[0];
    taps.w = launch->arguments[1];
    taps.bias = cuda_has_bias(kernel) ? launch->arguments[2] : NULL;
    return cuda_start_taps(device, cuda_taps_forward, &taps);
}

static int32_t run_weights(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct cuda_call *launch)
{
    struct cuda_taps taps;
    shape_of(kernel, &taps);
    taps.x = launch->arguments[0];
    taps.dy = launch->arguments[1];
    taps.parts = (float *)((char *)launch->scratch + kernel->sums);
    taps.store = cuda_store_of(kernel, launch);
    if (cuda_has_bias_gradient(kernel))
        taps.bias_store = cuda_bias_store(kernel, launch);
    const int32_t status = cuda_start_taps(device, cuda_taps_weights, &taps);
    return status ? status : cuda_start_taps(device, cuda_taps_total, &taps);
}

static bool is_for_taps(const struct cuda_direct *how)
{
    const struct cuda_window *w = &how->window;
    const int64_t ends[2] = {(w->size[0] - 1) * w->dilation[0], (w->size[1] - 1) * w->dilation[1]};
    return how->groups == 1 && w->channels <= CHANNELS && how->filters <= MOST_FILTERS &&
           w->size[0] * w->size[1] * w->channels <= CUDA_TAPS_MOST &&
           w->batch * w->height * w->width * w->channels <= MOST_ELEMENTS &&
           w->batch * w->out_height * w->out_width * how->filters <= MOST_ELEMENTS &&
           (ends[0] + 1) * w->width * w->channels <= MOST_ELEMENTS && ends[1] <= MOST_ELEMENTS;
}

bool cuda_use_taps(struct ls_kernel *kernel, struct ls_kernel_answer *answer,
                   const struct cuda_direct *how)
{
    const uint32_t op = cuda_convolution_of(kernel->request.op);
    if (op == LS_OP_CONV2D_BACKWARD_DATA || cuda_image_input(kernel) || !is_for_taps(how))
        return false;
    struct cuda_taps taps;
    kernel->arguments = cuda_direct_arguments(how);
    shape_of(kernel, &taps);
    kernel->run = op == LS_OP_CONV2D ? run_forward : run_weights;
    if (op != LS_OP_CONV2D)
        kernel->sums = cuda_scratch(answer, (uint64_t)taps.part_count * (uint64_t)taps.rows *
                                                (uint64_t)taps.filters * sizeof(float));
    cuda_implementation(answer, "own");
    return true;
}
