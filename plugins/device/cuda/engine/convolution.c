// SPDX-License-Identifier: Apache-2.0
// Convolutions by cuDNN: plans of its graph API (plan.c), else its calls of version 7. NHWC, sums in
// float32, TF32 only where it was asked for, and only algorithms that give the same bits each time.
// A transposed convolution is the same three operations: its x is the convolution's y, here "y" or the gradient, its y the image,
// here "x". Weights lie turned (engine.h); plain ones are turned in scratch memory first. What is not padded
// alike on both sides is padded by a kernel of our own: version 7 cannot, and with plans of cuDNN
// 9.19 gradients were wrong on an H200. Where cuDNN has nothing, own kernels run, which are slow.
#include "plugins/device/cuda/engine/internal.h"

#include <string.h>

#define MOST_CHOICES 16 // each algorithm may be there twice: with tensor cores and without

struct convolution {
    struct cuda_window window;
    int64_t filters, groups;
    bool turned; // the weights of the request lie as cuDNN wants them
    bool padded; // x is copied with its padding
    bool widened; // x and dy are copied as float32: cuDNN makes no float32 gradient of halves
    unsigned type; // cudnnDataType_t of what cuDNN sees
    bool fused; // bias and ReLU by cuDNN
    bool post; // something is left after cuDNN: bias, epilogue, addition, padding, layout
    bool redirect; // and its result cannot lie in the output meanwhile
    const struct cuda_plan *plan; // NULL: calls of version 7, for which what follows is
    struct cudnnTensorStruct *x, *y, *bias;
    struct cudnnFilterStruct *w;
    struct cudnnConvolutionStruct *convolution;
    struct cudnnActivationStruct *relu;
    unsigned algorithm;
    uint64_t workspace_bytes;
    uint64_t workspace, weights, image, gradient, result; // offsets in the scratch memory
};

static void convolution_finish(struct ls_device *device, struct ls_kernel *kernel)
{
    const struct cuda_calls *calls = device->calls;
    struct convolution *c = kernel->state;
    if (!c)
        return;
    if (c->x)
        calls->cudnnDestroyTensorDescriptor(c->x);
    if (c->y)
        calls->cudnnDestroyTensorDescriptor(c->y);
    if (c->bias)
        calls->cudnnDestroyTensorDescriptor(c->bias);
    if (c->w)
        calls->cudnnDestroyFilterDescriptor(c->w);
    if (c->convolution)
        calls->cudnnDestroyConvolutionDescriptor(c->convolution);
    if (c->relu)
        calls->cudnnDestroyActivationDescriptor(c->relu);
}

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

static bool find_shape(struct ls_kernel *kernel, struct convolution *c)
{
    const struct ls_op_attributes *a = &kernel->request.attributes;
    const struct ls_tensor_desc *in = kernel->descs, *out = cuda_output_desc(kernel, 0);
    const struct ls_tensor_desc *w = weights_of(kernel);
    const bool data = !is_forward(kernel) && !is_weights(kernel);
    const uint32_t image = cuda_image_input(kernel);
    const struct ls_tensor_desc *x = data ? out : &in[image];
    const struct ls_tensor_desc *y = is_weights(kernel) ? &in[1 - image] : data ? &in[0] : out;
    c->groups = a->groups > 0 ? a->groups : 1;
    if (w->ndims != 4 || !cuda_window_of(a, w->dims[0], w->dims[1], x, y, &c->window))
        return false;
    c->filters = y->dims[3];
    if (x->dims[3] % c->groups || c->filters % c->groups || w->dims[2] != x->dims[3] / c->groups ||
        w->dims[3] != c->filters)
        return false;
    const int64_t biases = biases_image(kernel) ? x->dims[3] : c->filters;
    if (cuda_has_bias(kernel) && (int64_t)ls_tensor_elements(&in[2]) != biases)
        return false;
    return !cuda_has_bias_gradient(kernel) || (int64_t)ls_tensor_elements(&out[1]) == biases;
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

// x as cuDNN sees it: with the padding that it cannot do by itself.
static int64_t height_of(const struct convolution *c)
{
    const struct cuda_window *w = &c->window;
    return c->padded ? w->height + w->before[0] + w->after[0] : w->height;
}

static int64_t width_of(const struct convolution *c)
{
    const struct cuda_window *w = &c->window;
    return c->padded ? w->width + w->before[1] + w->after[1] : w->width;
}

static int64_t image_elements(const struct convolution *c)
{
    return c->window.batch * height_of(c) * width_of(c) * c->window.channels;
}

static uint64_t bytes_of(const struct convolution *c, int64_t elements)
{
    return (uint64_t)elements * (c->type == CUDNN_DATA_FLOAT ? sizeof(float) : sizeof(uint16_t));
}

// How cuDNN's results and copies for it lie: enum cuda_type.
static uint32_t inner_type(const struct convolution *c)
{
    return c->type == CUDNN_DATA_HALF       ? CUDA_F16
           : c->type == CUDNN_DATA_BFLOAT16 ? CUDA_BF16
                                            : CUDA_FLOAT;
}

static int64_t outputs_of(const struct convolution *c)
{
    return c->window.batch * c->window.out_height * c->window.out_width * c->filters;
}

static void find_type(struct ls_kernel *kernel, struct convolution *c)
{
    const uint32_t x = cuda_input_desc(kernel, 0)->dtype, y = cuda_output_desc(kernel, 0)->dtype;
    c->widened = x != y;
    c->type = cuda_dnn_type(y);
}

static bool is_countable(const struct convolution *c)
{
    const struct cuda_window *w = &c->window;
    const int64_t sizes[] = {w->batch,     height_of(c),   width_of(c),    w->channels,
                             c->filters,   w->size[0],     w->size[1],     w->stride[0],
                             w->stride[1], w->dilation[0], w->dilation[1], c->groups};
    return cuda_dnn_counts(sizes, sizeof(sizes) / sizeof(sizes[0]));
}

// What cuDNN may do with the factors of products. Halves go to tensor cores as they are. So may float32 as TF32, which rounds
// to 10 bits, where that was asked for, and where they are halves made wider, for those have no more bits.
static unsigned math_of(const struct ls_device *device, const struct convolution *c)
{
    if (c->type != CUDNN_DATA_FLOAT)
        return CUDNN_TENSOR_OP_MATH;
    return device->tf32 || c->widened ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
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
    q.type = c->type;
    q.fused = c->fused;
    q.tensor_cores = math_of(device, c) != CUDNN_FMA_MATH;
    memcpy(q.x, (int64_t[]){w->batch, w->channels, height_of(c), width_of(c)}, sizeof(q.x));
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

// With bias and ReLU where cuDNN has that, else without. Where it has no plan at all, its calls of version 7 are asked.
static int32_t find_plan(struct ls_device *device, struct ls_kernel *kernel)
{
    struct convolution *c = kernel->state;
    if (!device->plans || !is_countable(c))
        return LS_OK;
    struct cuda_plan_question question = question_of(device, kernel);
    int32_t status = cuda_plan_get(device, &question, &c->plan);
    if (status || c->plan || !c->fused)
        return status;
    question.fused = 0;
    status = cuda_plan_get(device, &question, &c->plan);
    c->fused = !c->plan;
    return status;
}

// ---- Preparing: descriptors ----

static unsigned make_tensors(const struct cuda_calls *calls, struct convolution *c)
{
    const struct cuda_window *w = &c->window;
    const int64_t x[] = {w->batch, height_of(c), width_of(c), w->channels};
    const int64_t y[] = {w->batch, w->out_height, w->out_width, c->filters};
    const int64_t bias[] = {1, 1, 1, c->filters};
    unsigned error = cuda_dnn_tensor(calls, c->type, x, &c->x);
    if (!error)
        error = cuda_dnn_tensor(calls, c->type, y, &c->y);
    if (!error)
        error = cuda_dnn_tensor(calls, c->type, bias, &c->bias);
    if (!error)
        error = calls->cudnnCreateFilterDescriptor(&c->w);
    if (!error)
        error = calls->cudnnSetFilter4dDescriptor(c->w, c->type, CUDNN_TENSOR_NHWC, (int)c->filters,
                                                  (int)(w->channels / c->groups), (int)w->size[0],
                                                  (int)w->size[1]);
    return error;
}

static unsigned make_convolution(const struct ls_device *device, struct convolution *c)
{
    const struct cuda_calls *calls = device->calls;
    const struct cuda_window *w = &c->window;
    unsigned error = calls->cudnnCreateConvolutionDescriptor(&c->convolution);
    if (!error)
        error = calls->cudnnSetConvolution2dDescriptor(
            c->convolution, c->padded ? 0 : (int)w->before[0], c->padded ? 0 : (int)w->before[1],
            (int)w->stride[0], (int)w->stride[1], (int)w->dilation[0], (int)w->dilation[1],
            CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
    if (!error)
        error = calls->cudnnSetConvolutionGroupCount(c->convolution, (int)c->groups);
    if (!error)
        error = calls->cudnnSetConvolutionMathType(c->convolution, math_of(device, c));
    if (!error && c->fused)
        error = calls->cudnnCreateActivationDescriptor(&c->relu);
    if (!error && c->fused)
        error = calls->cudnnSetActivationDescriptor(c->relu, CUDNN_ACTIVATION_RELU,
                                                    CUDNN_PROPAGATE_NAN, 0);
    return error;
}

// ---- Preparing: the algorithm ----

static unsigned list_choices(struct ls_device *device, const struct ls_kernel *kernel,
                             struct cuda_convolution_choice *choices, int *found)
{
    const struct cuda_calls *calls = device->calls;
    const struct convolution *c = kernel->state;
    switch (cuda_convolution_of(kernel->request.op)) {
    case LS_OP_CONV2D:
        return calls->cudnnGetConvolutionForwardAlgorithm_v7(
            device->dnn, c->x, c->w, c->convolution, c->y, MOST_CHOICES, found, choices);
    case LS_OP_CONV2D_BACKWARD_DATA:
        return calls->cudnnGetConvolutionBackwardDataAlgorithm_v7(
            device->dnn, c->w, c->y, c->convolution, c->x, MOST_CHOICES, found, choices);
    default:
        return calls->cudnnGetConvolutionBackwardFilterAlgorithm_v7(
            device->dnn, c->x, c->y, c->convolution, c->w, MOST_CHOICES, found, choices);
    }
}

static unsigned workspace_of(struct ls_device *device, const struct ls_kernel *kernel,
                             unsigned algorithm, size_t *bytes)
{
    const struct cuda_calls *calls = device->calls;
    const struct convolution *c = kernel->state;
    switch (cuda_convolution_of(kernel->request.op)) {
    case LS_OP_CONV2D:
        return calls->cudnnGetConvolutionForwardWorkspaceSize(
            device->dnn, c->x, c->w, c->convolution, c->y, algorithm, bytes);
    case LS_OP_CONV2D_BACKWARD_DATA:
        return calls->cudnnGetConvolutionBackwardDataWorkspaceSize(
            device->dnn, c->w, c->y, c->convolution, c->x, algorithm, bytes);
    default:
        return calls->cudnnGetConvolutionBackwardFilterWorkspaceSize(
            device->dnn, c->x, c->y, c->convolution, c->w, algorithm, bytes);
    }
}

// Whether it gives the same bits each time and rounds no float32 to halves; where the descriptor forbids TF32, nothing with
// tensor cores. The default arithmetic is what the descriptor says.
static bool is_good(const struct ls_device *device, const struct convolution *c,
                    const struct cuda_convolution_choice *choice)
{
    const unsigned math = choice->mathType;
    return !choice->status && choice->determinism == CUDNN_DETERMINISTIC &&
           (math == CUDNN_FMA_MATH || math == CUDNN_DEFAULT_MATH ||
            (math == CUDNN_TENSOR_OP_MATH && math_of(device, c) != CUDNN_FMA_MATH));
}

// Takes the choice when its workspace is not too large. An algorithm runs with the arithmetic that it was offered with; where the
// descriptor forbids TF32 it stays so.
static bool take(struct ls_device *device, struct ls_kernel *kernel,
                 const struct cuda_convolution_choice *choice)
{
    struct convolution *c = kernel->state;
    size_t bytes = 0;
    if (math_of(device, c) != CUDNN_FMA_MATH &&
        device->calls->cudnnSetConvolutionMathType(c->convolution, choice->mathType))
        return false;
    if (workspace_of(device, kernel, choice->algo, &bytes) || bytes > device->most_workspace)
        return false;
    c->algorithm = choice->algo;
    c->workspace_bytes = bytes;
    return true;
}

// The first, by cuDNN's own estimate the fastest, that is good.
static bool choose(struct ls_device *device, struct ls_kernel *kernel)
{
    struct cuda_convolution_choice choices[MOST_CHOICES];
    int found = 0;
    memset(choices, 0, sizeof(choices));
    if (list_choices(device, kernel, choices, &found))
        return false;
    for (int i = 0; i < found && i < MOST_CHOICES; i++)
        if (is_good(device, kernel->state, &choices[i]) && take(device, kernel, &choices[i]))
            return true;
    return false;
}

static bool library_knows(struct ls_device *device, struct ls_kernel *kernel)
{
    struct convolution *c = kernel->state;
    return is_countable(c) && !make_tensors(device->calls, c) && !make_convolution(device, c) &&
           choose(device, kernel);
}

// ---- Running ----

static void *at(const struct cuda_call *launch, uint64_t offset)
{
    return (char *)launch->scratch + offset;
}

// Weights, turned; x, with its padding: into scratch memory where they do not lie so.
static int32_t ready_weights(struct ls_device *device, const struct ls_kernel *kernel,
                             const struct cuda_call *launch, const void **out)
{
    const struct convolution *c = kernel->state;
    *out = launch->arguments[1];
    if (c->turned)
        return LS_OK;
    const struct cuda_window *w = &c->window;
    const struct cuda_arguments a = {
        .a = launch->arguments[1],
        .a_type = inner_type(c),
        .rows = w->size[0] * w->size[1] * (w->channels / c->groups),
        .columns = c->filters,
        .store = {.out = at(launch, c->weights), .type = inner_type(c)},
    };
    *out = a.store.out;
    return cuda_start(device, cuda_kernel_transpose, &a, a.rows * a.columns);
}

static int32_t ready_image(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct cuda_call *launch, const void **out)
{
    const struct convolution *c = kernel->state;
    const uint32_t image = cuda_image_input(kernel);
    *out = launch->arguments[image];
    if (!c->padded && !c->widened)
        return LS_OK;
    const struct cuda_arguments a = {
        .a = launch->arguments[image],
        .a_type = cuda_type_of(&kernel->descs[image]),
        .window = c->window,
        .store = {.out = at(launch, c->image), .type = inner_type(c)},
    };
    *out = a.store.out;
    return cuda_start(device, c->padded ? cuda_kernel_pad : cuda_kernel_finish, &a,
                      image_elements(c));
}

static int32_t ready_gradient(struct ls_device *device, const struct ls_kernel *kernel,
                              const struct cuda_call *launch, const void **out)
{
    const struct convolution *c = kernel->state;
    const uint32_t gradient = 1 - cuda_image_input(kernel);
    *out = launch->arguments[gradient];
    if (!c->widened)
        return LS_OK;
    const struct cuda_arguments a = {
        .a = launch->arguments[gradient],
        .a_type = cuda_type_of(&kernel->descs[gradient]),
        .store = {.out = at(launch, c->gradient)},
    };
    *out = a.store.out;
    return cuda_start(device, cuda_kernel_finish, &a, outputs_of(c));
}

// What cuDNN's result lacks to be the output.
static int32_t run_post(struct ls_device *device, const struct ls_kernel *kernel,
                        const struct cuda_call *launch, const void *result)
{
    const struct convolution *c = kernel->state;
    const struct cuda_window *w = &c->window;
    struct cuda_arguments a = {.a = result,
                               .a_type = inner_type(c),
                               .window = *w,
                               .columns = biases_image(kernel) ? w->channels : c->filters,
                               .bias = cuda_has_bias(kernel) ? launch->arguments[2] : NULL,
                               .store = cuda_store_of(kernel, launch)};
    if (is_forward(kernel))
        return cuda_start(device, cuda_kernel_finish, &a, outputs_of(c));
    if (!is_weights(kernel))
        return cuda_start(device, c->padded ? cuda_kernel_crop : cuda_kernel_finish, &a,
                          w->batch * w->height * w->width * w->channels);
    const int64_t taps = w->size[0] * w->size[1] * (w->channels / c->groups);
    a.rows = c->filters;
    a.columns = taps;
    return cuda_start(device, c->turned ? cuda_kernel_finish : cuda_kernel_transpose, &a,
                      taps * c->filters);
}

static int32_t run_plan(struct ls_device *device, const struct ls_kernel *kernel,
                        const struct cuda_call *launch, const void *x, const void *w, const void *y)
{
    const struct convolution *c = kernel->state;
    const struct cuda_plan_memory memory = {
        .x = x,
        .w = w,
        .y = y,
        .bias = c->fused ? launch->arguments[2] : NULL,
        .workspace = cuda_workspace_at(launch, c->workspace),
    };
    return cuda_plan_run(device, c->plan, &memory, kernel->operation->name);
}

static const float one = 1, zero = 0;

static int32_t run_forward(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct cuda_call *launch, void *result)
{
    const struct cuda_calls *calls = device->calls;
    struct convolution *c = kernel->state;
    const void *x = NULL, *w = NULL;
    int32_t status = ready_image(device, kernel, launch, &x);
    if (!status)
        status = ready_weights(device, kernel, launch, &w);
    if (status)
        return status;
    if (c->plan)
        return run_plan(device, kernel, launch, x, w, result);
    if (c->fused) {
        const unsigned error = calls->cudnnConvolutionBiasActivationForward(
            device->dnn, &one, c->x, x, c->w, w, c->convolution, c->algorithm,
            cuda_workspace_at(launch, c->workspace), c->workspace_bytes, &zero, c->y, result,
            c->bias, launch->arguments[2], c->relu, c->y, result);
        if (!error || !cuda_dnn_refuses(error))
            return cuda_check_dnn(device, error, kernel->operation->name);
        // It can only be asked by trying, and not every algorithm takes a ReLU that keeps NaN.
        c->fused = false;
        c->post = true;
        cuda_log(device, LS_LOG_DEBUG,
                 "GPU %u: cuDNN algorithm %u takes no bias and ReLU (%s): they are a pass of their "
                 "own",
                 device->index, c->algorithm, calls->cudnnGetErrorString(error));
    }
    return cuda_check_dnn(device,
                          calls->cudnnConvolutionForward(device->dnn, &one, c->x, x, c->w, w,
                                                         c->convolution, c->algorithm,
                                                         cuda_workspace_at(launch, c->workspace),
                                                         c->workspace_bytes, &zero, c->y, result),
                          kernel->operation->name);
}

static int32_t run_data(struct ls_device *device, const struct ls_kernel *kernel,
                        const struct cuda_call *launch, void *result)
{
    const struct convolution *c = kernel->state;
    const void *w = NULL;
    const int32_t status = ready_weights(device, kernel, launch, &w);
    if (!status && c->plan)
        return run_plan(device, kernel, launch, result, w, launch->arguments[0]);
    return status ? status
                  : cuda_check_dnn(device,
                                   device->calls->cudnnConvolutionBackwardData(
                                       device->dnn, &one, c->w, w, c->y, launch->arguments[0],
                                       c->convolution, c->algorithm,
                                       cuda_workspace_at(launch, c->workspace), c->workspace_bytes,
                                       &zero, c->x, result),
                                   kernel->operation->name);
}

static int32_t run_weights(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct cuda_call *launch, void *result)
{
    const struct convolution *c = kernel->state;
    const void *x = NULL, *dy = NULL;
    int32_t status = ready_image(device, kernel, launch, &x);
    if (!status)
        status = ready_gradient(device, kernel, launch, &dy);
    if (!status && c->plan)
        return run_plan(device, kernel, launch, x, result, dy);
    return status ? status
                  : cuda_check_dnn(device,
                                   device->calls->cudnnConvolutionBackwardFilter(
                                       device->dnn, &one, c->x, x, c->y, dy, c->convolution,
                                       c->algorithm, cuda_workspace_at(launch, c->workspace),
                                       c->workspace_bytes, &zero, c->w, result),
                                   kernel->operation->name);
}

static int32_t run_library(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct cuda_call *launch)
{
    const struct convolution *c = kernel->state;
    void *result = c->redirect ? at(launch, c->result) : cuda_output(kernel, launch, 0);
    int32_t status = is_forward(kernel)   ? run_forward(device, kernel, launch, result)
                     : is_weights(kernel) ? run_weights(device, kernel, launch, result)
                                          : run_data(device, kernel, launch, result);
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
    if (c->plan)
        c->workspace_bytes = c->plan->workspace_bytes;
    c->workspace = cuda_workspace(answer, c->workspace_bytes);
    if ((c->padded && !crop) || c->widened)
        c->image = cuda_scratch(answer, bytes_of(c, image_elements(c)));
    if (c->widened)
        c->gradient = cuda_scratch(answer, bytes_of(c, outputs_of(c)));
    if (!is_weights(kernel) && !c->turned)
        c->weights = cuda_scratch(answer, weights_of(kernel)->layout.bytes);
    if (c->redirect)
        c->result = cuda_scratch(
            answer, bytes_of(c, crop ? image_elements(c)
                                     : (int64_t)ls_tensor_elements(cuda_output_desc(kernel, 0))));
    kernel->run = run_library;
    snprintf(answer->implementation, sizeof(answer->implementation), "cuDNN %s %lld%s%s%s",
             c->plan ? "engine" : "algorithm",
             (long long)(c->plan ? c->plan->engine : c->algorithm),
             c->fused     ? " + bias + relu"
             : c->widened ? " of float32"
                          : "",
             c->padded ? ", padded before" : "", c->turned ? "" : ", weights turned");
}

int32_t cuda_prepare_conv2d(struct ls_device *device, struct ls_kernel *kernel,
                            struct ls_kernel_answer *answer)
{
    const struct ls_op_attributes *a = &kernel->request.attributes;
    struct convolution *c = cuda_state(device, kernel, sizeof(*c));
    if (!c)
        return LS_OUT_OF_MEMORY;
    kernel->finish = convolution_finish;
    if (!find_shape(kernel, c))
        return cuda_unsupported(device, kernel, "shapes and attributes do not belong together");
    find_type(kernel, c);
    if (!find_layout(kernel, c, answer))
        return cuda_unsupported(device, kernel, "weights of another device's layout");
    c->padded = !cuda_dnn_pads(&c->window);
    c->fused = is_forward(kernel) && cuda_has_bias(kernel) && !cuda_accumulates(kernel, 0) &&
               a->epilogue == LS_OP_ACTIVATION && a->epilogue_activation == LS_RELU;
    const struct cuda_direct direct = {.window = c->window,
                                       .filters = c->filters,
                                       .groups = c->groups,
                                       .turned = c->turned,
                                       .library = "cuDNN"};
    if (cuda_use_taps(kernel, answer, &direct))
        return LS_OK;
    cuda_use_direct(kernel, answer, &direct);
    const int32_t status = find_plan(device, kernel);
    if (status)
        return status;
    answer->slow = !c->plan && !library_knows(device, kernel);
    if (!answer->slow)
        plan_library(kernel, answer);
    return LS_OK;
}
