// SPDX-License-Identifier: Apache-2.0
// Batch normalization by own kernels (normalization.cuh). A training's forward pass is three of them: what parts of the rows find out
// about each column, statistics of the channels of that, y; so x is read twice. Backward: sums of parts, sums of channels, dx.
// With given statistics it is one. What a step contributes to moving statistics is one, too.
#include "plugins/device/cuda/engine/internal.h"

#include <string.h>

enum {
    BLOCKS = 132 * CUDA_BLOCKS_BESIDE, // that 132 multiprocessors run at once
    THREADS = BLOCKS * CUDA_BLOCK,
    PACK = 4, // columns that a thread reads at once
    ROWS = 4, // that a thread has, at least where there are as many
    ACROSS = 32, // threads beside each other that read one row
    ACROSS_PARTS = 4, // and that read what parts have found, two doubles each
};

struct normalization {
    struct cuda_normalization arguments; // without what a launch brings
    uint64_t parts, totals; // offsets in the scratch memory
    uint32_t addend; // its number as an argument; 0: none
};

// ---- Who reads what ----

static int64_t divided_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t within(int64_t least, int64_t value, int64_t most)
{
    return value < least ? least : value > most ? most : value;
}

// Blocks over (rows, columns), `most` of them at most where one row does not need more. A part has at least ROWS turns.
static struct cuda_tiles tiles_of(int64_t rows, int64_t columns, int32_t pack, int64_t across,
                                  int64_t most)
{
    const int64_t threads = columns / pack;
    struct cuda_tiles t = {.rows = rows, .columns = columns, .pack = pack};
    t.tiles = divided_up(threads, across);
    t.across = (int32_t)divided_up(threads, t.tiles);
    t.down = (int32_t)within(1, CUDA_BLOCK / t.across, rows);
    t.parts = within(1, most / t.tiles, divided_up(rows, t.down * ROWS));
    return t;
}

// How many rows are read as one, so that a row has a multiple of PACK elements; 0: there is no such number.
static int64_t rows_beside(int64_t rows, int64_t channels)
{
    const int64_t beside = channels % PACK == 0 ? 1 : channels % 2 == 0 ? 2 : PACK;
    return rows % beside ? 0 : beside;
}

static void lay_out(struct cuda_normalization *n, int64_t rows, int64_t channels)
{
    const int64_t beside = rows_beside(rows, channels);
    n->channels = channels;
    n->share = 1 / (double)rows;
    if (beside)
        n->tiles = tiles_of(rows / beside, channels * beside, PACK, ACROSS, BLOCKS);
    else
        n->tiles = tiles_of(rows, channels, 1, ACROSS, BLOCKS);
    // Each channel gets all of its parts from one block.
    n->merged =
        tiles_of(n->tiles.parts * n->tiles.columns / channels, channels, 1, ACROSS_PARTS, 1);
    n->lanes =
        within(1, THREADS / (n->tiles.columns / n->tiles.pack), divided_up(n->tiles.rows, ROWS));
}

// ---- Launching ----

static int32_t start(struct ls_device *device, enum cuda_normalization_kernel which,
                     const struct cuda_normalization *n)
{
    return cuda_check(device, cuda_normalization_launch(which, n, device->stream),
                      "launching a kernel");
}

// Without parts and totals, as with given statistics.
static void fill(const struct ls_kernel *kernel, const struct cuda_call *launch,
                 struct cuda_normalization *out)
{
    const struct normalization *state = kernel->state;
    *out = state->arguments;
    out->store = cuda_store_of(kernel, launch);
    out->x = launch->arguments[0];
    out->gamma = launch->arguments[1];
    out->other = state->addend ? launch->arguments[state->addend] : NULL;
    out->parts = out->totals = NULL;
}

// Of a training: both lie in the scratch memory.
static void fill_training(const struct ls_kernel *kernel, const struct cuda_call *launch,
                          struct cuda_normalization *out)
{
    const struct normalization *state = kernel->state;
    char *scratch = launch->scratch;
    fill(kernel, launch, out);
    out->parts = (double *)(void *)(scratch + state->parts);
    out->totals = (double *)(void *)(scratch + state->totals);
}

static int32_t run_forward(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct cuda_call *launch)
{
    struct cuda_normalization n;
    fill_training(kernel, launch, &n);
    n.beta = launch->arguments[2];
    n.mean = cuda_output(kernel, launch, 1);
    n.variance = cuda_output(kernel, launch, 2);
    int32_t status = start(device, cuda_normalization_moments, &n);
    if (!status)
        status = start(device, cuda_normalization_statistics, &n);
    return status ? status : start(device, cuda_normalization_normalize, &n);
}

static int32_t run_backward(struct ls_device *device, const struct ls_kernel *kernel,
                            const struct cuda_call *launch)
{
    struct cuda_normalization n;
    fill_training(kernel, launch, &n);
    n.mean = launch->arguments[2];
    n.variance = launch->arguments[3];
    n.other = launch->arguments[4];
    n.dgamma = cuda_output(kernel, launch, 1);
    n.dbeta = cuda_output(kernel, launch, 2);
    int32_t status = start(device, cuda_normalization_products, &n);
    if (!status)
        status = start(device, cuda_normalization_gradients, &n);
    return status ? status : start(device, cuda_normalization_normalize_backward, &n);
}

static int32_t run_inference(struct ls_device *device, const struct ls_kernel *kernel,
                             const struct cuda_call *launch)
{
    struct cuda_normalization n;
    fill(kernel, launch, &n);
    n.beta = launch->arguments[2];
    n.mean = launch->arguments[3];
    n.variance = launch->arguments[4];
    return start(device, cuda_normalization_normalize, &n);
}

// ---- Preparing ----

static bool same_shape(const struct ls_tensor_desc *a, const struct ls_tensor_desc *b)
{
    return a->ndims == b->ndims && memcmp(a->dims, b->dims, a->ndims * sizeof(a->dims[0])) == 0;
}

// All arguments are shaped like x, or are as long as there are channels: of the inputs those from 1 on, `vectors` of them; of the
// outputs all but the first.
static bool shapes_fit(struct ls_kernel *kernel, uint32_t vectors)
{
    const struct ls_tensor_desc *x = cuda_input_desc(kernel, 0);
    const uint32_t inputs = cuda_inputs(kernel), first = kernel->request.input_count;
    const uint32_t end = first + kernel->request.output_count;
    for (uint32_t i = 0; i < end; i++) {
        const struct ls_tensor_desc *desc = &kernel->descs[i];
        const bool vector = (i >= 1 && i <= vectors) || i > first;
        const bool fits = vector ? desc->ndims == 1 && desc->dims[0] == x->dims[x->ndims - 1]
                                 : same_shape(desc, x);
        if (!fits && (i < inputs || i >= first)) // an epilogue's input has been looked at
            return false;
    }
    return true;
}

static int32_t prepare(struct ls_device *device, struct ls_kernel *kernel,
                       struct ls_kernel_answer *answer, uint32_t vectors)
{
    const struct ls_tensor_desc *x = cuda_input_desc(kernel, 0);
    const int64_t channels = x->dims[x->ndims - 1];
    if (!shapes_fit(kernel, vectors))
        return cuda_unsupported(device, kernel, "the shapes do not belong together");
    if (!(kernel->request.attributes.epsilon >= 0))
        return cuda_unsupported(device, kernel, "epsilon is negative");
    struct normalization *state = cuda_state(device, kernel, sizeof(*state));
    if (!state)
        return LS_OUT_OF_MEMORY;
    struct cuda_normalization *n = &state->arguments;
    n->type = cuda_type_of(x);
    n->epsilon = kernel->request.attributes.epsilon;
    lay_out(n, (int64_t)ls_tensor_elements(x) / channels, channels);
    answer->in_place = 1;
    if (cuda_inputs(kernel) > vectors + 1) {
        state->addend = vectors + 1; // backward: dy
        answer->in_place |= UINT32_C(1) << state->addend;
    }
    cuda_implementation(answer, "own");
    return LS_OK;
}

static void take_scratch(struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    struct normalization *state = kernel->state;
    const struct cuda_tiles *t = &state->arguments.tiles;
    const uint64_t pair = 2 * sizeof(double);
    state->parts = cuda_scratch(answer, (uint64_t)(t->parts * t->columns) * pair);
    state->totals = cuda_scratch(answer, (uint64_t)state->arguments.channels * pair);
}

int32_t cuda_prepare_normalization(struct ls_device *device, struct ls_kernel *kernel,
                                   struct ls_kernel_answer *answer)
{
    if (kernel->request.accumulate & 6)
        return cuda_unsupported(device, kernel, "mean and variance cannot be added to");
    const int32_t status = prepare(device, kernel, answer, 2);
    kernel->run = run_forward;
    if (!status)
        take_scratch(kernel, answer);
    return status;
}

int32_t cuda_prepare_normalization_backward(struct ls_device *device, struct ls_kernel *kernel,
                                            struct ls_kernel_answer *answer)
{
    const int32_t status = prepare(device, kernel, answer, 3);
    kernel->run = run_backward;
    if (status)
        return status;
    struct normalization *state = kernel->state;
    for (uint32_t i = 0; i < 2; i++)
        state->arguments.add[i] = cuda_accumulates(kernel, i + 1);
    take_scratch(kernel, answer);
    return LS_OK;
}

int32_t cuda_prepare_normalization_inference(struct ls_device *device, struct ls_kernel *kernel,
                                             struct ls_kernel_answer *answer)
{
    const int32_t status = prepare(device, kernel, answer, 4);
    kernel->run = run_inference;
    return status;
}

// ---- Moving statistics ----

static int32_t run_statistics(struct ls_device *device, const struct ls_kernel *kernel,
                              const struct cuda_call *launch)
{
    struct cuda_arguments a = kernel->arguments;
    cuda_fill(kernel, launch, &a);
    a.first = cuda_output(kernel, launch, 1);
    a.record = (const struct cuda_record *)launch->record;
    return cuda_start(device, cuda_kernel_batch_statistics, &a, kernel->items);
}

int32_t cuda_prepare_statistics(struct ls_device *device, struct ls_kernel *kernel,
                                struct ls_kernel_answer *answer)
{
    const struct ls_tensor_desc *mean = cuda_input_desc(kernel, 0);
    for (uint32_t i = 1; i < 4; i++)
        if (!same_shape(&kernel->descs[i], mean))
            return cuda_unsupported(device, kernel, "the shapes do not belong together");
    kernel->arguments.factor = kernel->request.attributes.factor;
    kernel->arguments.add_first = cuda_accumulates(kernel, 1);
    cuda_use_own(kernel, answer, cuda_kernel_batch_statistics, (int64_t)ls_tensor_elements(mean));
    kernel->run = run_statistics;
    return LS_OK;
}
