// SPDX-License-Identifier: Apache-2.0
// Windows over rows and columns, and pooling with them. cuDNN makes means, both ways, and the largest of each window where
// nothing is kept for a backward pass. Own kernels, one pass each way, do the rest:
// - What cuDNN has not: padding that is not alike on both sides, and epilogues.
// - Max-pooling in training. Forward saves which element of each window won: a byte, or four where the window is larger. So
//   backward reads dy and that byte instead of x, y and dy, about a third less traffic for both passes together, and each
//   gradient goes to the first largest element, as the contract says. cuDNN promises neither that nor, for this backward pass,
//   the same bits each time: of its pooling, NVIDIA names CUDNN_POOLING_MAX backward alone as one that adds by atomics.
//   The derivative of a ReLU behind it needs x where an element won, and there x is y: so y is read, which is smaller, and nobody
//   keeps x.
#include "plugins/device/cuda/engine/internal.h"

#include <limits.h>

#ifndef CUDA_POOLING_PACKS
#define CUDA_POOLING_PACKS INT32_MAX // that a launch counts; the tests have fewer
#endif

struct pooling {
    struct cudnnTensorStruct *x, *y; // what cuDNN is told
    struct cudnnPoolingStruct *window;
    struct cuda_pooling own; // of the largest, without what a launch brings
    int64_t x_elements, y_elements, items; // of an example
    int64_t examples; // of a launch
};

struct cuda_window cuda_window_of(const struct ls_op_attributes *attributes, int64_t rows,
                                  int64_t columns, const struct ls_tensor_desc *x,
                                  const struct ls_tensor_desc *y)
{
    struct cuda_window out = {
        .batch = x->dims[0],
        .height = x->dims[1],
        .width = x->dims[2],
        .channels = x->dims[3],
        .out_height = y->dims[1],
        .out_width = y->dims[2],
        .size = {rows, columns},
        .before = {attributes->padding[0], attributes->padding[2]},
        .after = {attributes->padding[1], attributes->padding[3]},
    };
    for (int i = 0; i < 2; i++) {
        out.stride[i] = attributes->strides[i];
        out.dilation[i] = attributes->dilation[i] > 0 ? attributes->dilation[i] : 1;
    }
    return out;
}

static bool is_backward(const struct ls_kernel *kernel)
{
    const uint32_t op = kernel->request.op;
    return op == LS_OP_MAX_POOL2D_BACKWARD || op == LS_OP_AVERAGE_POOL2D_BACKWARD;
}

static bool is_largest(const struct ls_kernel *kernel)
{
    const uint32_t op = kernel->request.op;
    return op == LS_OP_MAX_POOL2D || op == LS_OP_MAX_POOL2D_BACKWARD;
}

// ---- By cuDNN ----

static void pooling_finish(struct ls_device *device, struct ls_kernel *kernel)
{
    const struct cuda_calls *calls = device->calls;
    const struct pooling *p = kernel->state;
    if (p->x)
        calls->cudnnDestroyTensorDescriptor(p->x);
    if (p->y)
        calls->cudnnDestroyTensorDescriptor(p->y);
    if (p->window)
        calls->cudnnDestroyPoolingDescriptor(p->window);
}

// What is asked of cuDNN at all. It adds into its output in float32; for halves nothing says whether it rounds once.
static bool is_for_library(struct ls_kernel *kernel)
{
    const struct ls_kernel_request *request = &kernel->request;
    const struct cuda_window *w = &kernel->arguments.window;
    const int64_t sizes[] = {w->batch,     w->height,  w->width,   w->channels,  w->out_height,
                             w->out_width, w->size[0], w->size[1], w->stride[0], w->stride[1]};
    int64_t largest = 0; // cuDNN counts in int
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        largest = sizes[i] > largest ? sizes[i] : largest;
    const bool saved = is_largest(kernel) && (is_backward(kernel) || request->output_count == 2);
    return !saved && request->attributes.epilogue == LS_OP_NONE && cuda_dnn_pads(w) &&
           (!cuda_accumulates(kernel, 0) || cuda_output_desc(kernel, 0)->dtype == LS_F32) &&
           largest <= INT_MAX;
}

// A descriptor of a tensor (B, H, W, C). The status is cuDNN's; what was made is the caller's in any case.
static unsigned make_tensor(const struct cuda_calls *calls, unsigned type, const int64_t *dims,
                            struct cudnnTensorStruct **out)
{
    const unsigned error = calls->cudnnCreateTensorDescriptor(out);
    return error ? error
                 : calls->cudnnSetTensor4dDescriptor(*out, CUDNN_TENSOR_NHWC, type, (int)dims[0],
                                                     (int)dims[3], (int)dims[1], (int)dims[2]);
}

static unsigned make_descriptors(const struct cuda_calls *calls, struct ls_kernel *kernel)
{
    const struct cuda_window *w = &kernel->arguments.window;
    const int64_t x[] = {w->batch, w->height, w->width, w->channels};
    const int64_t y[] = {w->batch, w->out_height, w->out_width, w->channels};
    const unsigned type = cuda_dnn_type(cuda_input_desc(kernel, 0)->dtype);
    struct pooling *p = kernel->state;
    unsigned error = make_tensor(calls, type, x, &p->x);
    if (!error)
        error = make_tensor(calls, type, y, &p->y);
    if (!error)
        error = calls->cudnnCreatePoolingDescriptor(&p->window);
    // A NaN comes out wherever it lies in the window; own kernels, like `reference`, keep one only where it comes first. The
    // contract leaves that open, and nothing that went wrong is hidden so.
    return error ? error
                 : calls->cudnnSetPooling2dDescriptor(
                       p->window,
                       is_largest(kernel) ? CUDNN_POOLING_MAX
                                          : CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING,
                       CUDNN_PROPAGATE_NAN, (int)w->size[0], (int)w->size[1], (int)w->before[0],
                       (int)w->before[1], (int)w->stride[0], (int)w->stride[1]);
}

// cuDNN finds the size of y by itself.
static bool library_knows(const struct cuda_calls *calls, struct ls_kernel *kernel)
{
    const struct cuda_window *w = &kernel->arguments.window;
    const struct pooling *p = kernel->state;
    int n, c, height, width;
    return !make_descriptors(calls, kernel) &&
           !calls->cudnnGetPooling2dForwardOutputDim(p->window, p->x, &n, &c, &height, &width) &&
           n == w->batch && c == w->channels && height == w->out_height && width == w->out_width;
}

static int32_t run_library(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct cuda_call *launch)
{
    static const float one = 1, zero = 0;
    const struct cuda_calls *calls = device->calls;
    const struct pooling *p = kernel->state;
    const void *in = launch->arguments[0];
    void *out = cuda_output(kernel, launch, 0);
    const float *beta = cuda_accumulates(kernel, 0) ? &one : &zero;
    // The gradient of a mean depends neither on y nor on x, but cuDNN wants addresses of both: dy and dx are as large.
    return cuda_check_dnn(
        device,
        is_backward(kernel)
            ? calls->cudnnPoolingBackward(device->dnn, p->window, &one, p->y, in, p->y, in, p->x,
                                          out, beta, p->x, out)
            : calls->cudnnPoolingForward(device->dnn, p->window, &one, p->x, in, beta, p->y, out),
        kernel->operation->name);
}

// Where cuDNN refuses at a launch, what was planned before runs.
static void plan_library(struct ls_device *device, struct ls_kernel *kernel,
                         struct ls_kernel_answer *answer)
{
    if (!is_for_library(kernel) || !library_knows(device->calls, kernel))
        return;
    kernel->otherwise = kernel->run;
    kernel->run = run_library;
    cuda_implementation(answer, "cuDNN");
}

// ---- By own kernels ----

enum { DY = 1, X = 2, Y = 4, SAVED = 8 }; // bits of the inputs of max-pooling, backward

// Whether y stands for x in the derivative of what follows. Where no element won, the gradient is 0 in any case.
static bool reads_largest(const struct ls_kernel *kernel)
{
    const struct ls_op_attributes *a = &kernel->request.attributes;
    return kernel->request.op == LS_OP_MAX_POOL2D_BACKWARD && !cuda_accumulates(kernel, 0) &&
           a->epilogue == LS_OP_ACTIVATION_BACKWARD &&
           (a->epilogue_activation == LS_RELU || a->epilogue_activation == LS_RELU6);
}

static const void *moved(const void *values, int64_t bytes)
{
    return values ? (const char *)values + bytes : NULL;
}

// As many examples at once as the kernel can count.
static int32_t run_largest(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct cuda_call *launch)
{
    const struct pooling *p = kernel->state;
    const bool backward = is_backward(kernel);
    const struct cuda_store store = cuda_store_of(kernel, launch);
    const int64_t size = store.type == CUDA_FLOAT ? 4 : 2;
    const int64_t in = size * (backward ? p->y_elements : p->x_elements);
    const int64_t out = size * (backward ? p->x_elements : p->y_elements);
    const int64_t saved_size = p->y_elements * (p->own.wide ? 4 : 1);
    const void *saved = backward                            ? launch->arguments[3]
                        : kernel->request.output_count == 2 ? cuda_output(kernel, launch, 1)
                                                            : NULL;
    int32_t status = LS_OK;
    for (int64_t b = 0; !status && b < kernel->arguments.window.batch; b += p->examples) {
        const int64_t left = kernel->arguments.window.batch - b;
        struct cuda_pooling own = p->own;
        own.store = store;
        own.store.out = (void *)moved(store.out, b * out);
        own.store.y = moved(store.y, b * out);
        own.in = moved(launch->arguments[0], b * in);
        own.saved = (void *)moved(saved, b * saved_size);
        own.largest = reads_largest(kernel) ? moved(launch->arguments[2], b * in) : NULL;
        own.items = (uint32_t)(p->items * (left < p->examples ? left : p->examples));
        status = cuda_start_pooling(device, kernel->own, &own);
    }
    return status;
}

// What is saved, and which inputs backward reads.
static const char *plan_saved(struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const struct pooling *p = kernel->state;
    const uint64_t saved =
        (uint64_t)(kernel->arguments.window.batch * p->y_elements * (p->own.wide ? 4 : 1));
    if (is_backward(kernel)) {
        answer->used_inputs =
            reads_largest(kernel) ? DY | Y | SAVED : answer->used_inputs & ~(X | Y);
        return cuda_layout_saved(cuda_input_desc(kernel, 3), saved)
                   ? NULL
                   : "`saved` is not what forward leaves";
    }
    if (kernel->request.output_count == 2) {
        answer->saved_bytes = saved;
        cuda_output_desc(kernel, 1)->layout =
            (struct ls_layout){.kind = LS_LAYOUT_PLAIN, .bytes = saved};
    }
    return NULL;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// Windows that do not overlap are counted, with those that would be all padding, over the columns of x.
static const char *plan_largest(struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const struct cuda_window *w = &kernel->arguments.window;
    struct pooling *p = kernel->state;
    const bool wide = w->size[0] * w->size[1] > 256;
    const int64_t pack = wide || w->channels % 4 ? 1 : 4, channels = w->channels / pack;
    const bool apart = w->stride[0] >= w->size[0] && w->stride[1] >= w->size[1];
    const int64_t steps = (w->width + w->before[1] + w->stride[1] - 1) / w->stride[1];
    p->x_elements = w->height * w->width * w->channels;
    p->y_elements = w->out_height * w->out_width * w->channels;
    p->items = is_backward(kernel) ? (apart ? w->height * steps * channels : p->x_elements / pack)
                                   : p->y_elements / pack;
    const int64_t packs = larger(p->x_elements, p->y_elements) / pack;
    const int64_t span = larger(w->height + w->before[0], w->width + w->before[1]);
    const int64_t most = larger(larger(p->items, packs), span);
    if (most > INT32_MAX || cuda_input_desc(kernel, 0)->dtype != cuda_output_desc(kernel, 0)->dtype)
        return "an example has too many elements, or x and y are not of one type";
    p->examples = most < CUDA_POOLING_PACKS ? CUDA_POOLING_PACKS / most : 1;
    p->own = (struct cuda_pooling){
        .rows = cuda_divisor_of((uint32_t)w->height),
        .columns = cuda_divisor_of((uint32_t)w->width),
        .channels = cuda_divisor_of((uint32_t)channels),
        .out_rows = cuda_divisor_of((uint32_t)w->out_height),
        .out_columns = cuda_divisor_of((uint32_t)w->out_width),
        .strides = {cuda_divisor_of((uint32_t)w->stride[0]),
                    cuda_divisor_of((uint32_t)w->stride[1])},
        .steps = cuda_divisor_of((uint32_t)steps),
        .size = {(int32_t)w->size[0], (int32_t)w->size[1]},
        .before = {(int32_t)w->before[0], (int32_t)w->before[1]},
        .pack = (uint32_t)pack,
        .wide = wide,
    };
    kernel->own = !is_backward(kernel) ? cuda_pooling_forward
                  : apart              ? cuda_pooling_apart
                                       : cuda_pooling_overlapping;
    kernel->run = run_largest;
    return plan_saved(kernel, answer);
}

static const char *plan_own(struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const struct cuda_window *w = &kernel->arguments.window;
    if (w->size[0] * w->size[1] > INT32_MAX)
        return "the window has too many elements";
    cuda_use_own(kernel, answer,
                 is_backward(kernel) ? cuda_kernel_average_pool_backward : cuda_kernel_average_pool,
                 cuda_elements(cuda_output_desc(kernel, 0)));
    return is_largest(kernel) ? plan_largest(kernel, answer) : NULL;
}

int32_t cuda_prepare_pooling(struct ls_device *device, struct ls_kernel *kernel,
                             struct ls_kernel_answer *answer)
{
    const struct ls_op_attributes *a = &kernel->request.attributes;
    const struct ls_tensor_desc *in = kernel->descs, *out = cuda_output_desc(kernel, 0);
    const bool backward = is_backward(kernel);
    if (!cuda_state(device, kernel, sizeof(struct pooling)))
        return LS_OUT_OF_MEMORY;
    kernel->arguments.window =
        cuda_window_of(a, a->kernel[0], a->kernel[1], backward ? out : in, backward ? in : out);
    kernel->finish = pooling_finish;
    const char *why = plan_own(kernel, answer);
    if (why)
        return cuda_unsupported(device, kernel, why);
    plan_library(device, kernel, answer);
    return LS_OK;
}
