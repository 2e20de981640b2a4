// SPDX-License-Identifier: Apache-2.0
// Batch normalization by own kernels (normalization.cuh). A training's forward pass is three of them: what parts of the rows find out
// about each column, statistics of the channels of that, y; so x is read twice. Backward: sums of parts, sums of channels, dx.
// With given statistics it is one, and one for its gradient of x. With those of all replicas the kernels of channels give sums to the
// host, which adds them, and one of channels reads the sums. What a step contributes to moving statistics is one, too.
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

// Kernels that run one after the other. An argument has a letter: x; d: dy or the addend, which may be missing; y; g: gamma, b: beta,
// m: mean, v: variance; G, B: gradients of gamma and beta; s: sums of all replicas, two a channel and one more.
struct form {
    uint32_t op;
    const char *inputs, *outputs;
    bool parts, totals; // whether the scratch memory has them
    uint32_t count, kernels[3];
};

struct normalization {
    const struct form *form;
    struct cuda_normalization arguments; // without what a launch brings
    uint64_t parts, totals; // offsets in the scratch memory
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

// ---- The operations ----

#define STATISTICS cuda_normalization_moments, cuda_normalization_statistics
#define GRADIENTS cuda_normalization_products, cuda_normalization_gradients
#define Y cuda_normalization_normalize
#define DX cuda_normalization_normalize_backward
#define OF_ALL(kernel) cuda_normalization_shared_##kernel
#define FORM(op, ...)                 \
    {                                 \
        LS_OP_BATCH_##op, __VA_ARGS__ \
    }

static const struct form forms[] = {
    FORM(NORMALIZATION, "xgbd", "ymv", true, true, 3, {STATISTICS, Y}),
    FORM(NORMALIZATION_BACKWARD, "xgmvd", "yGB", true, true, 3, {GRADIENTS, DX}),
    FORM(NORMALIZATION_INFERENCE, "xgbmvd", "y", false, false, 1, {Y}),
    // dx is y of x = dy without mean and beta.
    FORM(NORMALIZATION_INFERENCE_BACKWARD_DATA, "xgv", "y", false, false, 1, {Y}),
    FORM(NORMALIZATION_INFERENCE_BACKWARD_WEIGHTS, "xmvd", "GB", true, true, 2, {GRADIENTS}),
    FORM(MOMENTS, "x", "s", true, false, 2, {STATISTICS}),
    FORM(NORMALIZATION_SYNCHRONIZED, "xgbsd", "ymv", false, true, 2, {OF_ALL(statistics), Y}),
    FORM(NORMALIZATION_SYNCHRONIZED_BACKWARD_SUMS, "xmvd", "GBs", true, false, 2, {GRADIENTS}),
    FORM(NORMALIZATION_SYNCHRONIZED_BACKWARD_DATA, "xgmvds", "y", false, true, 2,
         {OF_ALL(gradients), DX}),
};

static void bind(struct cuda_normalization *n, char letter, void *argument)
{
    switch (letter) {
    case 'x': n->x = argument; break;
    case 'd': n->other = argument; break;
    case 'g': n->gamma = argument; break;
    case 'b': n->beta = argument; break;
    case 'm': n->mean = argument; break;
    case 'v': n->variance = argument; break;
    case 'G': n->dgamma = argument; break;
    case 'B': n->dbeta = argument; break;
    case 's': n->moments = argument; break;
    default: break; // y, which the store has
    }
}

static int32_t run_normalization(struct ls_device *device, const struct ls_kernel *kernel,
                                 const struct cuda_call *launch)
{
    const struct normalization *state = kernel->state;
    const struct form *form = state->form;
    struct cuda_normalization n = state->arguments;
    char *scratch = launch->scratch;
    int32_t status = LS_OK;
    n.store = cuda_store_of(kernel, launch);
    n.parts = form->parts ? (double *)(void *)(scratch + state->parts) : NULL;
    n.totals = form->totals ? (double *)(void *)(scratch + state->totals) : NULL;
    for (uint32_t i = 0; i < cuda_inputs(kernel); i++)
        bind(&n, form->inputs[i], launch->arguments[i]);
    for (uint32_t i = 0; i < kernel->request.output_count; i++)
        bind(&n, form->outputs[i], cuda_output(kernel, launch, i));
    for (uint32_t i = 0; i < form->count && !status; i++)
        status = cuda_start_normalization(device, form->kernels[i], &n);
    return status;
}

// ---- Preparing ----

int32_t cuda_prepare_normalization(struct ls_device *device, struct ls_kernel *kernel,
                                   struct ls_kernel_answer *answer)
{
    const struct ls_tensor_desc *x = cuda_input_desc(kernel, 0);
    const int64_t channels = x->dims[x->ndims - 1];
    const struct form *form = forms;
    while (form->op != kernel->request.op)
        form++;
    const char *other = strchr(form->inputs, 'd');
    struct normalization *state = cuda_state(device, kernel, sizeof(*state));
    if (!state)
        return LS_OUT_OF_MEMORY;
    struct cuda_normalization *n = &state->arguments;
    const uint64_t pair = 2 * sizeof(double);
    state->form = form;
    n->type = cuda_type_of(x);
    n->epsilon = kernel->request.attributes.epsilon;
    for (uint32_t i = 0; i < 2; i++) // dgamma and dbeta are the first outputs, or follow dx
        n->add[i] = cuda_accumulates(kernel, i + (form->outputs[0] == 'y'));
    lay_out(n, cuda_elements(x) / channels, channels);
    if (form->parts)
        state->parts = cuda_scratch(answer, (uint64_t)(n->tiles.parts * n->tiles.columns) * pair);
    if (form->totals)
        state->totals = cuda_scratch(answer, (uint64_t)channels * pair);
    if (form->outputs[0] == 'y') {
        answer->in_place = 1;
        if (other && other - form->inputs < (ptrdiff_t)cuda_inputs(kernel))
            answer->in_place |= UINT32_C(1) << (other - form->inputs);
    }
    return cuda_run_own(kernel, answer, run_normalization);
}

// ---- Moving statistics ----

int32_t cuda_prepare_statistics(struct ls_device *device, struct ls_kernel *kernel,
                                struct ls_kernel_answer *answer)
{
    (void)device;
    kernel->arguments.factor = kernel->request.attributes.factor;
    kernel->arguments.add_first = cuda_accumulates(kernel, 1);
    cuda_use_own(kernel, answer, cuda_kernel_batch_statistics,
                 cuda_elements(cuda_input_desc(kernel, 0)));
    return LS_OK;
}
