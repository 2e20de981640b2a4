// SPDX-License-Identifier: Apache-2.0
// Losses that have several functions, with weights or a mask, or one by one for each position,
// means of these, metrics (losses.cuh), and what regularized variables add to losses.
#include "plugins/device/cuda/engine/internal.h"

#define MOST_BLOCKS 64 // that count side by side
#define WEIGHING_BLOCKS 264 // two on each of 132 multiprocessors
#define WEIGHED_ITEMS 1024 // of a part of them, at least
#define SQUARED_ROWS 64 // of a part of them, at least
#define PENALTY_WIDTH 32768 // items that add side by side, four elements each at once

// ---- Losses and metrics ----

static struct cuda_losses losses_at(const struct ls_kernel *kernel, const struct cuda_call *launch)
{
    const bool labels = kernel->descs[1].dtype == LS_I32;
    struct cuda_losses l = *(const struct cuda_losses *)kernel->state;
    l.predictions = launch->arguments[0];
    l.targets = labels ? NULL : launch->arguments[1];
    l.labels = labels ? launch->arguments[1] : NULL;
    l.weights = kernel->request.input_count > 2 ? launch->arguments[2] : NULL;
    l.moments = kernel->request.input_count > 3 ? launch->arguments[3] : NULL;
    l.record = launch->record;
    l.sums = cuda_output(kernel, launch, 0);
    l.gradients = launch->gradient;
    return l;
}

static int32_t run_pairs(struct ls_device *device, const struct ls_kernel *kernel,
                         const struct cuda_call *launch)
{
    struct cuda_losses l = losses_at(kernel, launch);
    l.pairs = cuda_pairs_of(kernel, launch);
    return cuda_start_losses(device,
                             kernel->request.op != LS_OP_METRIC ? cuda_losses_loss
                             : l.function >= LS_METRIC_PEARSON  ? cuda_losses_correlation
                                                                : cuda_losses_metric,
                             &l);
}

static int32_t run_squares(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct cuda_call *launch)
{
    struct cuda_losses l = losses_at(kernel, launch);
    l.parts = launch->scratch;
    return cuda_start_losses(device, cuda_losses_squares, &l);
}

static int32_t run_bins(struct ls_device *device, const struct ls_kernel *kernel,
                        const struct cuda_call *launch)
{
    struct cuda_losses l = losses_at(kernel, launch);
    l.counts = launch->scratch;
    return cuda_start_losses(device, cuda_losses_bins, &l);
}

static int32_t run_weighed(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct cuda_call *launch)
{
    struct cuda_losses l = losses_at(kernel, launch);
    l.parts = launch->scratch;
    l.chosen = (int32_t *)(void *)((char *)launch->scratch + kernel->sums);
    const int32_t status = cuda_start_losses(device, cuda_losses_choose, &l);
    return status ? status : cuda_start_losses(device, cuda_losses_weigh, &l);
}

static int32_t run_gradient(struct ls_device *device, const struct ls_kernel *kernel,
                            const struct cuda_call *launch)
{
    struct cuda_losses l = losses_at(kernel, launch);
    l.gradients = cuda_output(kernel, launch, 0);
    return cuda_start_losses(device, cuda_losses_loss, &l);
}

// predictions, targets -> y, or with dy -> dpredictions
static int32_t run_positions(struct ls_device *device, const struct ls_kernel *kernel,
                             const struct cuda_call *launch)
{
    const bool backward = kernel->request.op == LS_OP_POSITION_LOSS_BACKWARD;
    struct cuda_losses l = losses_at(kernel, launch);
    l.weights = NULL;
    l.dy = backward ? launch->arguments[2] : NULL;
    l.each = backward ? NULL : cuda_output(kernel, launch, 0);
    l.gradients = backward ? cuda_output(kernel, launch, 0) : NULL;
    l.add = cuda_accumulates(kernel, 0);
    return cuda_start_losses(device, cuda_losses_loss, &l);
}

// Why this function or these targets are not for it; NULL: they are. Integers are labels here, one a position, and floats targets.
static const char *check_losses(struct ls_kernel *kernel, int64_t count, int64_t rows)
{
    const uint32_t function = kernel->request.attributes.function;
    const bool metric = kernel->request.op == LS_OP_METRIC;
    const bool labels = cuda_input_desc(kernel, 1)->dtype == LS_I32;
    if (function > (metric ? LS_METRIC_CONCORDANCE : LS_LOSS_VALUES))
        return "it does not know this function";
    if (!metric && labels != (function == LS_LOSS_SPARSE))
        return "labels are for the sparse loss only";
    if (cuda_elements(cuda_input_desc(kernel, 1)) != (labels ? rows : count))
        return "labels are integers, one a position, and targets floats, one a prediction";
    return NULL;
}

// Counts of elements, or what bins of weights need: with few bins more parts of the items.
static void prepare_bins(struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    struct cuda_losses *l = kernel->state;
    if (l->function != LS_METRIC_CLASSES && kernel->request.input_count == 2) {
        cuda_scratch(answer, (uint64_t)(l->bins * l->blocks) * sizeof(*l->counts));
        kernel->run = run_bins;
        return;
    }
    const int64_t tiles = (l->bins + CUDA_BLOCK - 1) / CUDA_BLOCK;
    const int64_t most = tiles < WEIGHING_BLOCKS ? WEIGHING_BLOCKS / tiles : 1;
    const int64_t useful = (l->items + WEIGHED_ITEMS - 1) / WEIGHED_ITEMS;
    l->blocks = (uint32_t)(useful < most ? useful : most);
    cuda_scratch(answer, (uint64_t)(l->bins * l->blocks) * sizeof(*l->parts));
    kernel->sums = cuda_scratch(answer, (uint64_t)l->items * sizeof(*l->chosen));
    kernel->run = run_weighed;
}

// Rows in parts, so many that there are threads enough beside each other.
static void prepare_squares(struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    struct cuda_losses *l = kernel->state;
    const int64_t threads = (int64_t)WEIGHING_BLOCKS * CUDA_BLOCK;
    const int64_t most = l->columns < threads ? threads / l->columns : 1;
    const int64_t useful = (l->rows + SQUARED_ROWS - 1) / SQUARED_ROWS;
    l->blocks = (uint32_t)(useful < most ? useful : most);
    cuda_scratch(answer, (uint64_t)(l->bins * l->blocks) * sizeof(*l->parts));
    kernel->run = run_squares;
}

int32_t cuda_prepare_losses(struct ls_device *device, struct ls_kernel *kernel,
                            struct ls_kernel_answer *answer)
{
    const struct ls_op_attributes *attributes = &kernel->request.attributes;
    const struct ls_tensor_desc *x = cuda_input_desc(kernel, 0);
    const int64_t count = cuda_elements(x), columns = x->dims[x->ndims - 1];
    const int64_t rows = count / columns, blocks = (count + CUDA_BLOCK - 1) / CUDA_BLOCK;
    const uint32_t op = kernel->request.op;
    const bool metric = op == LS_OP_METRIC;
    const bool weighted = kernel->request.input_count > 2 && op != LS_OP_POSITION_LOSS_BACKWARD;
    const char *why = check_losses(kernel, count, rows);
    if (why)
        return cuda_unsupported(device, kernel, why);
    struct cuda_losses *l = cuda_state(device, kernel, sizeof(*l));
    if (!l)
        return LS_OUT_OF_MEMORY;
    *l = (struct cuda_losses){.rows = rows,
                              .columns = columns,
                              .positions = metric ? 1 : rows / x->dims[0],
                              .bins = cuda_elements(cuda_output_desc(kernel, 0)),
                              .items = attributes->function == LS_METRIC_CLASSES ? rows : count,
                              .each_position =
                                  metric || (weighted && cuda_input_desc(kernel, 2)->ndims > 1),
                              .blocks = (uint32_t)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS),
                              .function = attributes->function,
                              .from_logits = attributes->from_logits,
                              .count = attributes->count,
                              .epsilon = attributes->epsilon,
                              .smoothing = attributes->smoothing,
                              .threshold = attributes->threshold};
    cuda_implementation(answer, "own");
    if (op == LS_OP_LOSS_BACKWARD)
        kernel->run = run_gradient;
    else if (op == LS_OP_POSITION_LOSS || op == LS_OP_POSITION_LOSS_BACKWARD)
        kernel->run = run_positions;
    else if (metric && attributes->function == LS_METRIC_SQUARES)
        prepare_squares(kernel, answer);
    else if (metric && attributes->function >= LS_METRIC_CONFUSION &&
             attributes->function < LS_METRIC_SQUARES)
        prepare_bins(kernel, answer);
    else {
        kernel->run = run_pairs;
        return cuda_prepare_pairs(device, kernel, answer);
    }
    return LS_OK;
}

// ---- Means of what a mask leaves ----

// x, mask, moments -> y
static int32_t run_masked_mean(struct ls_device *device, const struct ls_kernel *kernel,
                               const struct cuda_call *launch)
{
    struct cuda_losses l = *(const struct cuda_losses *)kernel->state;
    l.predictions = launch->arguments[0];
    l.weights = launch->arguments[1];
    l.moments = launch->arguments[2];
    l.each = cuda_output(kernel, launch, 0);
    return cuda_start_losses(device, cuda_losses_masked_mean, &l);
}

// dy, mask, moments -> dx
static int32_t run_masked_gradient(struct ls_device *device, const struct ls_kernel *kernel,
                                   const struct cuda_call *launch)
{
    struct cuda_losses l = *(const struct cuda_losses *)kernel->state;
    l.dy = launch->arguments[0];
    l.weights = launch->arguments[1];
    l.moments = launch->arguments[2];
    l.gradients = cuda_output(kernel, launch, 0);
    l.add = cuda_accumulates(kernel, 0);
    return cuda_start_losses(device, cuda_losses_masked_gradient, &l);
}

int32_t cuda_prepare_masked_mean(struct ls_device *device, struct ls_kernel *kernel,
                                 struct ls_kernel_answer *answer)
{
    const struct ls_tensor_desc *mask = cuda_input_desc(kernel, 1);
    struct cuda_losses *l = cuda_state(device, kernel, sizeof(*l));
    if (!l)
        return LS_OUT_OF_MEMORY;
    *l =
        (struct cuda_losses){.rows = mask->dims[0], .columns = cuda_elements(mask) / mask->dims[0]};
    return cuda_run_own(kernel, answer,
                        kernel->request.op == LS_OP_MASKED_MEAN ? run_masked_mean
                                                                : run_masked_gradient);
}

// ---- Penalties ----

// Elements of w in whatever order they lie.
static int32_t run_penalty(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct cuda_call *launch)
{
    struct cuda_arguments a = kernel->arguments;
    a.a = launch->arguments[1];
    a.pairs = cuda_pairs_of(kernel, launch);
    a.store = cuda_store_of(kernel, launch);
    return cuda_start(device, cuda_kernel_penalty, &a, a.width);
}

static int32_t run_penalty_gradient(struct ls_device *device, const struct ls_kernel *kernel,
                                    const struct cuda_call *launch)
{
    struct cuda_arguments a = kernel->arguments;
    a.a = launch->arguments[1];
    a.record = launch->record;
    a.store = cuda_store_of(kernel, launch);
    return cuda_start(device, cuda_kernel_penalty_backward, &a, kernel->items);
}

int32_t cuda_prepare_penalty(struct ls_device *device, struct ls_kernel *kernel,
                             struct ls_kernel_answer *answer)
{
    struct ls_tensor_desc *w = cuda_input_desc(kernel, 1), *out = cuda_output_desc(kernel, 0);
    const bool backward = kernel->request.op == LS_OP_PENALTY_BACKWARD;
    const int64_t count = cuda_elements(w);
    struct cuda_arguments *a = &kernel->arguments;
    // A gradient lies as its variable does: plain, or both turned.
    const bool turned =
        w->layout.kind == LS_LAYOUT_OWN || (backward && out->layout.kind == LS_LAYOUT_OWN);
    if (turned && (!cuda_layout_weights(w) || (backward && !cuda_layout_weights(out))))
        return cuda_unsupported(device, kernel, "a layout that is not of this device");
    answer->layouts[1] = w->layout;
    if (backward)
        answer->layouts[2] = out->layout;
    answer->used_inputs = 2;
    a->examples = cuda_input_desc(kernel, 0)->dims[0];
    a->alpha = kernel->request.attributes.l1;
    a->factor = kernel->request.attributes.l2;
    a->count = kernel->items = count;
    cuda_implementation(answer, "own");
    if (backward) {
        answer->in_place = 2;
        kernel->run = run_penalty_gradient;
        return LS_OK;
    }
    a->width = (count + 3) / 4 < PENALTY_WIDTH ? (count + 3) / 4 : PENALTY_WIDTH;
    kernel->run = run_penalty;
    return cuda_prepare_pairs(device, kernel, answer);
}
