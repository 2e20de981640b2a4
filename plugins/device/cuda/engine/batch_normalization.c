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

struct form;

struct normalization {
    const struct form *form;
    struct cuda_normalization arguments; // without what a launch brings
    uint64_t parts, totals; // offsets in the scratch memory
    uint32_t other; // number of the argument that is dy or the addend; 0: none
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

// What most operations have at these places.
static void fill(const struct ls_kernel *kernel, const struct cuda_call *launch,
                 struct cuda_normalization *out)
{
    const struct normalization *state = kernel->state;
    char *scratch = launch->scratch;
    *out = state->arguments;
    out->store = cuda_store_of(kernel, launch);
    out->x = launch->arguments[0];
    out->gamma = launch->arguments[1];
    out->other = state->other ? launch->arguments[state->other] : NULL;
    out->parts = scratch ? (double *)(void *)(scratch + state->parts) : NULL;
    out->totals = scratch ? (double *)(void *)(scratch + state->totals) : NULL;
}

static int32_t run_forward(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct cuda_call *launch)
{
    struct cuda_normalization n;
    fill(kernel, launch, &n);
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
    fill(kernel, launch, &n);
    n.mean = launch->arguments[2];
    n.variance = launch->arguments[3];
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

// dx is y of x = dy without mean and beta.
static int32_t run_given_data(struct ls_device *device, const struct ls_kernel *kernel,
                              const struct cuda_call *launch)
{
    struct cuda_normalization n;
    fill(kernel, launch, &n);
    n.variance = launch->arguments[2];
    return start(device, cuda_normalization_normalize, &n);
}

// dgamma and dbeta, and with a third output their sums for all replicas.
static int32_t run_weights(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct cuda_call *launch)
{
    struct cuda_normalization n;
    fill(kernel, launch, &n);
    n.mean = launch->arguments[1];
    n.variance = launch->arguments[2];
    n.dgamma = cuda_output(kernel, launch, 0);
    n.dbeta = cuda_output(kernel, launch, 1);
    n.moments = kernel->request.output_count > 2 ? cuda_output(kernel, launch, 2) : NULL;
    const int32_t status = start(device, cuda_normalization_products, &n);
    return status ? status : start(device, cuda_normalization_gradients, &n);
}

static int32_t run_moments(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct cuda_call *launch)
{
    struct cuda_normalization n;
    fill(kernel, launch, &n);
    n.moments = cuda_output(kernel, launch, 0);
    const int32_t status = start(device, cuda_normalization_moments, &n);
    return status ? status : start(device, cuda_normalization_statistics, &n);
}

static int32_t run_synchronized(struct ls_device *device, const struct ls_kernel *kernel,
                                const struct cuda_call *launch)
{
    struct cuda_normalization n;
    fill(kernel, launch, &n);
    n.beta = launch->arguments[2];
    n.moments = launch->arguments[3];
    n.mean = cuda_output(kernel, launch, 1);
    n.variance = cuda_output(kernel, launch, 2);
    const int32_t status = start(device, cuda_normalization_shared_statistics, &n);
    return status ? status : start(device, cuda_normalization_normalize, &n);
}

static int32_t run_synchronized_data(struct ls_device *device, const struct ls_kernel *kernel,
                                     const struct cuda_call *launch)
{
    struct cuda_normalization n;
    fill(kernel, launch, &n);
    n.mean = launch->arguments[2];
    n.variance = launch->arguments[3];
    n.moments = launch->arguments[5];
    const int32_t status = start(device, cuda_normalization_shared_gradients, &n);
    return status ? status : start(device, cuda_normalization_normalize_backward, &n);
}

// ---- Preparing ----

// A letter for each argument: x: like x; v: a number a channel; m: two numbers a channel and one more. A request may lack the last
// input of LIKE_X, an addend.
struct form {
    uint32_t op;
    const char *inputs, *outputs;
    int32_t (*run)(struct ls_device *device, const struct ls_kernel *kernel,
                   const struct cuda_call *launch);
    uint32_t other; // dy or the addend
    uint32_t kept; // bit i: output i is never added to
    uint32_t dgamma; // number of this output, which dbeta follows
    bool parts, totals;
};

static const struct form forms[] = {
    {LS_OP_BATCH_NORMALIZATION, "xvvx", "xvv", run_forward, 3, 6, 0, true, true},
    {LS_OP_BATCH_NORMALIZATION_BACKWARD, "xvvvx", "xvv", run_backward, 4, 0, 1, true, true},
    {LS_OP_BATCH_NORMALIZATION_INFERENCE, "xvvvvx", "x", run_inference, 5, 0, 0, false, false},
    {LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_DATA, "xvv", "x", run_given_data, 0, 0, 0, false,
     false},
    {LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_WEIGHTS, "xvvx", "vv", run_weights, 3, 0, 0, true,
     true},
    {LS_OP_BATCH_MOMENTS, "x", "m", run_moments, 0, 1, 0, true, false},
    {LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED, "xvvmx", "xvv", run_synchronized, 4, 6, 0, false,
     true},
    {LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_SUMS, "xvvx", "vvm", run_weights, 3, 4, 0,
     true, false},
    {LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_DATA, "xvvvxm", "x", run_synchronized_data, 4,
     0, 0, false, true},
};

static const struct form *form_of(uint32_t op)
{
    const struct form *form = forms;
    while (form->op != op)
        form++;
    return form;
}

static bool same_shape(const struct ls_tensor_desc *a, const struct ls_tensor_desc *b)
{
    return a->ndims == b->ndims && memcmp(a->dims, b->dims, a->ndims * sizeof(a->dims[0])) == 0;
}

static bool fits(char letter, const struct ls_tensor_desc *desc, const struct ls_tensor_desc *x)
{
    const int64_t channels = x->dims[x->ndims - 1];
    return letter == 'x'
               ? same_shape(desc, x)
               : desc->ndims == 1 && desc->dims[0] == (letter == 'v' ? channels : 2 * channels + 1);
}

// An epilogue's input has been looked at.
static bool shapes_fit(struct ls_kernel *kernel, const struct form *form)
{
    const struct ls_tensor_desc *x = cuda_input_desc(kernel, 0);
    for (uint32_t i = 0; i < cuda_inputs(kernel); i++)
        if (!fits(form->inputs[i], cuda_input_desc(kernel, i), x))
            return false;
    for (uint32_t i = 0; i < kernel->request.output_count; i++)
        if (!fits(form->outputs[i], cuda_output_desc(kernel, i), x))
            return false;
    return true;
}

static void take_scratch(struct normalization *state, struct ls_kernel_answer *answer)
{
    const struct cuda_tiles *t = &state->arguments.tiles;
    const uint64_t pair = 2 * sizeof(double);
    if (state->form->parts)
        state->parts = cuda_scratch(answer, (uint64_t)(t->parts * t->columns) * pair);
    if (state->form->totals)
        state->totals = cuda_scratch(answer, (uint64_t)state->arguments.channels * pair);
}

int32_t cuda_prepare_normalization(struct ls_device *device, struct ls_kernel *kernel,
                                   struct ls_kernel_answer *answer)
{
    const struct ls_tensor_desc *x = cuda_input_desc(kernel, 0);
    const int64_t channels = x->dims[x->ndims - 1];
    const struct form *form = form_of(kernel->request.op);
    if (kernel->request.accumulate & form->kept)
        return cuda_unsupported(device, kernel, "statistics cannot be added to");
    if (!shapes_fit(kernel, form))
        return cuda_unsupported(device, kernel, "the shapes do not belong together");
    if (!(kernel->request.attributes.epsilon >= 0))
        return cuda_unsupported(device, kernel, "epsilon is negative");
    struct normalization *state = cuda_state(device, kernel, sizeof(*state));
    if (!state)
        return LS_OUT_OF_MEMORY;
    struct cuda_normalization *n = &state->arguments;
    state->form = form;
    state->other = form->other < cuda_inputs(kernel) ? form->other : 0;
    n->type = cuda_type_of(x);
    n->epsilon = kernel->request.attributes.epsilon;
    for (uint32_t i = 0; i < 2; i++)
        n->add[i] = cuda_accumulates(kernel, form->dgamma + i);
    lay_out(n, (int64_t)ls_tensor_elements(x) / channels, channels);
    take_scratch(state, answer);
    if (form->outputs[0] == 'x')
        answer->in_place = state->other ? UINT32_C(1) << state->other | 1 : 1;
    kernel->run = form->run;
    cuda_implementation(answer, "own");
    return LS_OK;
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
