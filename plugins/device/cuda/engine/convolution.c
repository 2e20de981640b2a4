// SPDX-License-Identifier: Apache-2.0
// Convolutions by plans of cuDNN's graph API (plan.c): NHWC, sums in float32, TF32 only where it was asked for.
// A transposed convolution is the same three operations: its x is the convolution's y, here "y" or the gradient, its y the image,
// here "x". Weights lie turned (engine.h); plain ones are turned in scratch memory first. What is not padded
// alike on both sides is padded by a kernel of our own: with plans of cuDNN
// 9.19 gradients were wrong on an H200. Where cuDNN has nothing, own kernels run, which are slow.
#include "plugins/device/cuda/engine/internal.h"

#include <stdlib.h>
#include <string.h>

struct convolution {
    struct cuda_window window;
    int64_t filters, groups;
    bool turned; // the weights of the request lie as cuDNN wants them
    bool padded; // x is copied with its padding
    int64_t height, width; // of x as cuDNN sees it: with that padding
    bool widened; // x and dy are copied as float32: cuDNN makes no float32 gradient of halves
    uint32_t dtype; // of what cuDNN sees
    bool fused; // bias and ReLU by cuDNN
    bool post; // something is left after cuDNN: bias, epilogue, addition, padding, layout
    bool redirect; // and its result cannot lie in the output meanwhile
    const struct cuda_plan *plan; // NULL: there is none
    uint64_t workspace, weights, image, gradient, result; // offsets in the scratch memory
};

// ---- Shapes ----

static bool is_forward(const struct ls_kernel *kernel)
{
    return cuda_convolution_of(kernel->request.op) == LS_OP_CONV2D;
}

static bool is_weights(const struct ls_kernel *kernel)
{
    return cuda_convolution_of(kernel->request.op) == LS_OP_CONV2D_BACKWARD_WEIGHTS;
}

// Whether bias and its gradient belong to the image, as in a transposed convolution.
static bool biases_image(const struct ls_kernel *kernel)
{
    return cuda_convolution_of(kernel->request.op) != kernel->request.op;
}

static struct ls_tensor_desc *weights_of(struct ls_kernel *kernel)
{
    return is_weights(kernel) ? cuda_output_desc(kernel, 0) : cuda_input_desc(kernel, 1);
}

static void find_shape(struct ls_kernel *kernel, struct convolution *c)
{
    const struct ls_op_attributes *a = &kernel->request.attributes;
    const struct ls_tensor_desc *in = kernel->descs, *out = cuda_output_desc(kernel, 0);
    const struct ls_tensor_desc *w = weights_of(kernel);
    const bool data = !is_forward(kernel) && !is_weights(kernel);
    const uint32_t image = cuda_image_input(kernel);
    const struct ls_tensor_desc *x = data ? out : &in[image];
    const struct ls_tensor_desc *y = is_weights(kernel) ? &in[1 - image] : data ? &in[0] : out;
    c->groups = a->groups > 0 ? a->groups : 1;
    c->window = cuda_window_of(a, w->dims[0], w->dims[1], x, y);
    c->filters = y->dims[3];
}

// Weights as they are fixed, else turned. cuda_layout_weights() leaves a plain one plain.
static bool find_layout(struct ls_kernel *kernel, struct convolution *c,
                        struct ls_kernel_answer *answer)
{
    struct ls_tensor_desc *w = weights_of(kernel);
    c->turned = cuda_layout_weights(w);
    if (c->turned)
        answer->layouts[w - kernel->descs] = w->layout;
    return c->turned || w->layout.kind == LS_LAYOUT_PLAIN;
}

static int64_t image_elements(const struct convolution *c)
{
    return c->window.batch * c->height * c->width * c->window.channels;
}

static uint64_t bytes_of(const struct convolution *c, int64_t elements)
{
    return (uint64_t)elements * ls_dtype_bytes(c->dtype);
}

static int64_t outputs_of(const struct convolution *c)
{
    return c->window.batch * c->window.out_height * c->window.out_width * c->filters;
}

// ---- Preparing: a plan ----

static struct cuda_plan_question question_of(const struct ls_device *device,
                                             const struct ls_kernel *kernel)
{
    const struct convolution *c = kernel->state;
    const struct cuda_window *w = &c->window;
    struct cuda_plan_question q;
    memset(&q, 0, sizeof(q));
    q.op = cuda_convolution_of(kernel->request.op);
    q.type = cuda_dnn_type(c->dtype);
    q.fused = c->fused;
    // Halves go through them as they are. So may float32 as TF32, which rounds to 10 bits, where that was asked for, and where they are
    // halves made wider, for those have no more bits.
    q.tensor_cores = c->dtype != LS_F32 || device->tf32 || c->widened;
    memcpy(q.x, (int64_t[]){w->batch, w->channels, c->height, c->width}, sizeof(q.x));
    memcpy(q.w, (int64_t[]){c->filters, w->channels / c->groups, w->size[0], w->size[1]},
           sizeof(q.w));
    memcpy(q.y, (int64_t[]){w->batch, c->filters, w->out_height, w->out_width}, sizeof(q.y));
    for (int i = 0; i < 2; i++) {
        q.padding[i] = c->padded ? 0 : w->before[i];
        q.stride[i] = w->stride[i];
        q.dilation[i] = w->dilation[i];
    }
    return q;
}

// With bias and ReLU where cuDNN has that, else without.
static int32_t find_plan(struct ls_device *device, struct ls_kernel *kernel)
{
    struct convolution *c = kernel->state;
    struct cuda_plan_question question = question_of(device, kernel);
    int32_t status = cuda_plan_get(device, &question, &c->plan);
    if (status || c->plan || !c->fused)
        return status;
    question.fused = 0;
    status = cuda_plan_get(device, &question, &c->plan);
    c->fused = !c->plan;
    return status;
}

// ---- Running ----

static void *at(const struct cuda_call *launch, uint64_t offset)
{
    return (char *)launch->scratch + offset;
}

static int64_t taps_of(const struct convolution *c)
{
    return c->window.size[0] * c->window.size[1] * (c->window.channels / c->groups);
}

// Makes an argument in scratch memory what cuDNN wants; `out` is there then.
static int32_t copy(struct ls_device *device, const struct ls_kernel *kernel,
                    const struct cuda_call *launch, uint32_t input, enum cuda_kernel how,
                    int64_t items, uint64_t offset, const void **out)
{
    const struct convolution *c = kernel->state;
    const struct cuda_arguments a = {
        .a = launch->arguments[input],
        .a_type = cuda_type_of(&kernel->descs[input]),
        .window = c->window,
        .rows = taps_of(c),
        .columns = c->filters,
        .store = {.out = at(launch, offset), .type = cuda_type(c->dtype)},
    };
    *out = a.store.out;
    return cuda_start(device, how, &a, items);
}

// What cuDNN's result lacks to be the output.
static int32_t run_post(struct ls_device *device, const struct ls_kernel *kernel,
                        const struct cuda_call *launch, const void *result)
{
    const struct convolution *c = kernel->state;
    const struct cuda_window *w = &c->window;
    struct cuda_arguments a = {.a = result,
                               .a_type = cuda_type(c->dtype),
                               .window = *w,
                               .columns = biases_image(kernel) ? w->channels : c->filters,
                               .bias = cuda_has_bias(kernel) ? launch->arguments[2] : NULL,
                               .store = cuda_store_of(kernel, launch)};
    if (is_forward(kernel))
        return cuda_start(device, cuda_kernel_finish, &a, outputs_of(c));
    if (!is_weights(kernel))
        return cuda_start(device, c->padded ? cuda_kernel_crop : cuda_kernel_finish, &a,
                          w->batch * w->height * w->width * w->channels);
    a.rows = c->filters;
    a.columns = taps_of(c);
    return cuda_start(device, c->turned ? cuda_kernel_finish : cuda_kernel_transpose, &a,
                      a.rows * a.columns);
}

static int32_t run_plan(struct ls_device *device, const struct ls_kernel *kernel,
                        const struct cuda_call *launch, const void *x, const void *w, const void *y)
{
    const struct convolution *c = kernel->state;
    const struct cuda_plan_memory memory = {
        .tensors = {[CUDA_PLAN_X] = x,
                    [CUDA_PLAN_W] = w,
                    [CUDA_PLAN_Y] = y,
                    [CUDA_PLAN_BIAS] = c->fused ? launch->arguments[2] : NULL},
        .workspace = cuda_workspace_at(launch, c->workspace),
    };
    return cuda_plan_run(device, c->plan, &memory, kernel->operation->name);
}

static int32_t run_library(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct cuda_call *launch)
{
    const struct convolution *c = kernel->state;
    const bool forward = is_forward(kernel), weights = is_weights(kernel);
    const uint32_t image = cuda_image_input(kernel), gradient = weights ? 1 - image : 0;
    void *result = c->redirect ? at(launch, c->result) : cuda_output(kernel, launch, 0);
    const void *x = forward || weights ? launch->arguments[image] : result;
    const void *w = weights ? result : launch->arguments[1];
    const void *y = forward ? result : launch->arguments[gradient];
    int32_t status = LS_OK;
    if ((forward || weights) && (c->padded || c->widened))
        status =
            copy(device, kernel, launch, image, c->padded ? cuda_kernel_pad : cuda_kernel_finish,
                 image_elements(c), c->image, &x);
    if (!status && c->widened)
        status = copy(device, kernel, launch, gradient, cuda_kernel_finish, outputs_of(c),
                      c->gradient, &y);
    if (!status && !weights && !c->turned)
        status = copy(device, kernel, launch, 1, cuda_kernel_transpose, taps_of(c) * c->filters,
                      c->weights, &w);
    if (!status)
        status = run_plan(device, kernel, launch, x, w, y);
    if (!status && c->post)
        status = run_post(device, kernel, launch, result);
    if (!status && cuda_has_bias_gradient(kernel))
        status = cuda_run_bias_gradient(device, kernel, launch);
    return status;
}

// ---- Preparing ----

static void plan_library(struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    struct convolution *c = kernel->state;
    const struct ls_op_attributes *a = &kernel->request.attributes;
    const bool added = cuda_accumulates(kernel, 0);
    const bool crop = c->padded && !is_forward(kernel) && !is_weights(kernel);
    const bool turn = is_weights(kernel) && !c->turned;
    c->redirect = added || crop || turn;
    c->post = c->redirect || (!c->fused && (a->epilogue != LS_OP_NONE || cuda_has_bias(kernel)));
    c->workspace = cuda_workspace(answer, c->plan->workspace_bytes);
    if ((c->padded && !crop) || c->widened)
        c->image = cuda_scratch(answer, bytes_of(c, image_elements(c)));
    if (c->widened)
        c->gradient = cuda_scratch(answer, bytes_of(c, outputs_of(c)));
    if (!is_weights(kernel) && !c->turned)
        c->weights = cuda_scratch(answer, weights_of(kernel)->layout.bytes);
    if (c->redirect)
        c->result =
            cuda_scratch(answer, bytes_of(c, crop ? image_elements(c)
                                                  : cuda_elements(cuda_output_desc(kernel, 0))));
    kernel->run = run_library;
    snprintf(answer->implementation, sizeof(answer->implementation), "cuDNN engine %lld%s%s%s",
             (long long)c->plan->engine,
             c->fused     ? " + bias + relu"
             : c->widened ? " of float32"
                          : "",
             c->padded ? ", padded before" : "", c->turned ? "" : ", weights turned");
}

// A product of matrices, for which cuDNN has nothing in float32 that does not turn x and y to NCHW and back.
static bool is_dense(const struct ls_device *device, const struct ls_kernel *kernel,
                     const struct convolution *c)
{
    const struct cuda_window *w = &c->window;
    return !is_weights(kernel) && !biases_image(kernel) && c->dtype == LS_F32 && !device->tf32 &&
           c->groups == 1 && w->size[0] * w->size[1] == 1 && w->stride[0] * w->stride[1] == 1 &&
           w->out_height == w->height && w->out_width == w->width;
}

int32_t cuda_prepare_conv2d(struct ls_device *device, struct ls_kernel *kernel,
                            struct ls_kernel_answer *answer)
{
    const struct ls_op_attributes *a = &kernel->request.attributes;
    struct convolution *c = cuda_state(device, kernel, sizeof(*c));
    if (!c)
        return LS_OUT_OF_MEMORY;
    if (kernel->descs[0].ndims != 4)
        return cuda_unsupported(device, kernel, "convolutions of volumes are not supported");
    find_shape(kernel, c);
    c->dtype = cuda_output_desc(kernel, 0)->dtype;
    c->widened = c->dtype != cuda_input_desc(kernel, 0)->dtype;
    if (!find_layout(kernel, c, answer))
        return cuda_unsupported(device, kernel, "weights of another device's layout");
    const struct cuda_window *w = &c->window;
    c->padded = !cuda_dnn_pads(w);
    c->height = w->height + (c->padded ? w->before[0] + w->after[0] : 0);
    c->width = w->width + (c->padded ? w->before[1] + w->after[1] : 0);
    c->fused = is_forward(kernel) && cuda_has_bias(kernel) && !cuda_accumulates(kernel, 0) &&
               a->epilogue == LS_OP_ACTIVATION && a->epilogue_activation == LS_RELU;
    const struct cuda_direct direct = {.window = c->window,
                                       .filters = c->filters,
                                       .groups = c->groups,
                                       .turned = c->turned,
                                       .library = "cuDNN"};
    if (cuda_use_taps(kernel, answer, &direct))
        return LS_OK;
    if (is_dense(device, kernel, c)) {
        free(c);
        return cuda_prepare_dense(device, kernel, answer);
    }
    cuda_use_direct(kernel, answer, &direct);
    const int32_t status = find_plan(device, kernel);
    if (status)
        return status;
    answer->slow = !c->plan;
    if (c->plan)
        plan_library(kernel, answer);
    return LS_OK;
}
