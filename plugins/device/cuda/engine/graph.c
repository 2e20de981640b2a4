// SPDX-License-Identifier: Apache-2.0
// What cuDNN's graph API is asked: its descriptors, and the graph of a question (struct cuda_plan_question).
#include "plugins/device/cuda/engine/internal.h"

#define ALIGNMENT 16 // of tensors: vectors of a kernel's loads

enum { PRODUCT = CUDA_PLAN_BIAS + 1, SUM }; // ids of tensors that are not in memory

// ---- Descriptors ----

static void *make(const struct ls_device *device, struct cuda_plan *plan, unsigned type)
{
    void *made = NULL;
    const int most = (int)(sizeof(plan->made) / sizeof(plan->made[0]));
    if (plan->made_count == most || device->calls->cudnnBackendCreateDescriptor(type, &made))
        return NULL;
    plan->made[plan->made_count++] = made;
    return made;
}

bool cuda_set_attribute(const struct ls_device *device, void *descriptor, unsigned name,
                        unsigned type, int64_t count, const void *values)
{
    return descriptor &&
           !device->calls->cudnnBackendSetAttribute(descriptor, name, type, count, values);
}

bool cuda_set_descriptor(const struct ls_device *device, void *descriptor, unsigned name,
                         void *value)
{
    return value &&
           cuda_set_attribute(device, descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static bool set_integers(const struct ls_device *device, void *descriptor, unsigned name,
                         int64_t count, const int64_t *values)
{
    return cuda_set_attribute(device, descriptor, name, CUDNN_TYPE_INT64, count, values);
}

// The descriptor, when all was set and cuDNN takes it; else NULL.
void *cuda_finalize(const struct ls_device *device, void *descriptor, bool is_set)
{
    return is_set && !device->calls->cudnnBackendFinalize(descriptor) ? descriptor : NULL;
}

void cuda_destroy(const struct ls_device *device, void *descriptor)
{
    if (descriptor)
        device->calls->cudnnBackendDestroyDescriptor(descriptor);
}

// ---- The graph ----

// dims: (B, C, H, W); it is NHWC in memory.
static void *make_tensor(const struct ls_device *device, struct cuda_plan *plan, int64_t id,
                         const int64_t *dims)
{
    const int64_t strides[4] = {dims[1] * dims[2] * dims[3], 1, dims[3] * dims[1], dims[1]};
    const int64_t alignment = ALIGNMENT;
    const bool between = id >= PRODUCT;
    const unsigned type = between ? CUDNN_DATA_FLOAT : plan->question.type;
    void *d = make(device, plan, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    return cuda_finalize(
        device, d,
        cuda_set_attribute(device, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
                           &type) &&
            set_integers(device, d, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, dims) &&
            set_integers(device, d, CUDNN_ATTR_TENSOR_STRIDES, 4, strides) &&
            set_integers(device, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &id) &&
            set_integers(device, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &alignment) &&
            cuda_set_attribute(device, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1,
                               &between));
}

static void *make_window(const struct ls_device *device, struct cuda_plan *plan)
{
    const struct cuda_plan_question *q = &plan->question;
    const unsigned type = CUDNN_DATA_FLOAT, mode = CUDNN_CROSS_CORRELATION;
    const int64_t two = 2;
    void *d = make(device, plan, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    return cuda_finalize(
        device, d,
        cuda_set_attribute(device, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
                           &type) &&
            cuda_set_attribute(device, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE,
                               CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode) &&
            set_integers(device, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &two) &&
            set_integers(device, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2, q->padding) &&
            set_integers(device, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2, q->padding) &&
            set_integers(device, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2, q->stride) &&
            set_integers(device, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2, q->dilation));
}

// What the three operations call alike: the window, x, w, y, the factors of the result and of what was there.
struct names {
    unsigned type, window, x, w, y, alpha, beta;
};

static struct names names_of(uint32_t op)
{
    switch (op) {
    case LS_OP_CONV2D:
        return (struct names){CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case LS_OP_CONV2D_BACKWARD_DATA:
        return (struct names){CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    default:
        return (struct names){CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    }
}

static void *convolve(const struct ls_device *device, struct cuda_plan *plan, void *y)
{
    const struct cuda_plan_question *q = &plan->question;
    const struct names names = names_of(q->op);
    const float one = 1, zero = 0;
    void *window = make_window(device, plan);
    void *x = make_tensor(device, plan, CUDA_PLAN_X, q->x);
    void *w = make_tensor(device, plan, CUDA_PLAN_W, q->w);
    void *d = make(device, plan, names.type);
    return cuda_finalize(
        device, d,
        cuda_set_descriptor(device, d, names.window, window) &&
            cuda_set_descriptor(device, d, names.x, x) &&
            cuda_set_descriptor(device, d, names.w, w) &&
            cuda_set_descriptor(device, d, names.y, y) &&
            cuda_set_attribute(device, d, names.alpha, CUDNN_TYPE_FLOAT, 1, &one) &&
            cuda_set_attribute(device, d, names.beta, CUDNN_TYPE_FLOAT, 1, &zero));
}

// y = mode(x), or mode(x, b) where there is a b.
static void *pointwise(const struct ls_device *device, struct cuda_plan *plan, unsigned mode,
                       void *x, void *b, void *y)
{
    const unsigned type = CUDNN_DATA_FLOAT, nan = CUDNN_PROPAGATE_NAN;
    void *how = make(device, plan, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    how = cuda_finalize(device, how,
                        cuda_set_attribute(device, how, CUDNN_ATTR_POINTWISE_MODE,
                                           CUDNN_TYPE_POINTWISE_MODE, 1, &mode) &&
                            cuda_set_attribute(device, how, CUDNN_ATTR_POINTWISE_MATH_PREC,
                                               CUDNN_TYPE_DATA_TYPE, 1, &type) &&
                            (mode != CUDNN_POINTWISE_RELU_FWD ||
                             cuda_set_attribute(device, how, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION,
                                                CUDNN_TYPE_NAN_PROPOGATION, 1, &nan)));
    void *d = make(device, plan, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    return cuda_finalize(
        device, d,
        cuda_set_descriptor(device, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how) &&
            cuda_set_descriptor(device, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x) &&
            (!b || cuda_set_descriptor(device, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b)) &&
            cuda_set_descriptor(device, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y));
}

void *cuda_graph_make(const struct ls_device *device, struct cuda_plan *plan)
{
    const struct cuda_plan_question *q = &plan->question;
    void *operations[3], *y = make_tensor(device, plan, CUDA_PLAN_Y, q->y);
    int64_t count = 1;
    if (q->fused) {
        const int64_t dims[4] = {1, q->y[1], 1, 1};
        void *bias = make_tensor(device, plan, CUDA_PLAN_BIAS, dims);
        void *product = make_tensor(device, plan, PRODUCT, q->y);
        void *sum = make_tensor(device, plan, SUM, q->y);
        operations[0] = convolve(device, plan, product);
        operations[1] = pointwise(device, plan, CUDNN_POINTWISE_ADD, product, bias, sum);
        operations[2] = pointwise(device, plan, CUDNN_POINTWISE_RELU_FWD, sum, NULL, y);
        count = 3;
    } else {
        operations[0] = convolve(device, plan, y);
    }
    for (int i = 0; i < count; i++)
        if (!operations[i])
            return NULL;
    void *d = make(device, plan, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    return cuda_finalize(device, d,
                         cuda_set_attribute(device, d, CUDNN_ATTR_OPERATIONGRAPH_OPS,
                                            CUDNN_TYPE_BACKEND_DESCRIPTOR, count, operations) &&
                             cuda_set_attribute(device, d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE,
                                                CUDNN_TYPE_HANDLE, 1, &device->dnn));
}
