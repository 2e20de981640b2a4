// SPDX-License-Identifier: Apache-2.0
// cuDNN in the fake: convolutions over NHWC, filters (K, R, S, C), as plain loops in double precision. Its tables of types for
// these calls have all tensors of one type, and sums in float32, for float32 and for both halves (PSEUDO_HALF_CONFIG,
// PSEUDO_BFLOAT16_CONFIG); float32 gradients of halves are in none.
#include "tests/support/cuda-fake/dnn.h"
#include "tests/support/cuda-fake/numbers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ALLOW_CONVERSION = 2, TENSOR_CORES = 3, CHOSEN = 5 };

struct cudnnActivationStruct {
    unsigned mode;
};

unsigned cudnnCreate(struct cudnnContext **handle)
{
    *handle = calloc(1, sizeof(**handle));
    double_add(&double_live.handles, 1);
    return 0;
}

unsigned cudnnDestroy(struct cudnnContext *handle)
{
    double_device_waits();
    free(handle);
    double_add(&double_live.handles, -1);
    return 0;
}

unsigned cudnnSetStream(struct cudnnContext *handle, struct CUstream_st *stream)
{
    handle->stream = stream;
    return 0;
}

const char *cudnnGetErrorString(unsigned status)
{
    return status == CUDNN_STATUS_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED"
                                                : "an error of the fake";
}

size_t cudnnGetVersion(void)
{
    return 91900;
}

unsigned double_dnn_make(void *out, size_t bytes)
{
    *(void **)out = calloc(1, bytes);
    double_add(&double_live.descriptors, 1);
    return *(void **)out ? 0 : 2002;
}

unsigned double_dnn_unmake(void *memory)
{
    free(memory);
    double_add(&double_live.descriptors, -1);
    return 0;
}

uint32_t double_dnn_type(unsigned type)
{
    return type == CUDNN_DATA_HALF       ? CUDA_F16
           : type == CUDNN_DATA_BFLOAT16 ? CUDA_BF16
                                         : CUDA_FLOAT;
}

static int is_type(unsigned type)
{
    return type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16;
}

unsigned cudnnCreateTensorDescriptor(struct cudnnTensorStruct **desc)
{
    return double_dnn_make(desc, sizeof(**desc));
}

unsigned cudnnDestroyTensorDescriptor(struct cudnnTensorStruct *desc)
{
    return double_dnn_unmake(desc);
}

unsigned cudnnSetTensor4dDescriptor(struct cudnnTensorStruct *desc, unsigned format, unsigned type,
                                    int n, int c, int h, int w)
{
    *desc = (struct cudnnTensorStruct){n, c, h, w, type};
    return format == CUDNN_TENSOR_NHWC && is_type(type) ? 0 : DNN_MISUSED;
}

unsigned cudnnCreateFilterDescriptor(struct cudnnFilterStruct **desc)
{
    return double_dnn_make(desc, sizeof(**desc));
}

unsigned cudnnDestroyFilterDescriptor(struct cudnnFilterStruct *desc)
{
    return double_dnn_unmake(desc);
}

unsigned cudnnSetFilter4dDescriptor(struct cudnnFilterStruct *desc, unsigned type, unsigned format,
                                    int k, int c, int h, int w)
{
    *desc = (struct cudnnFilterStruct){k, c, h, w, type};
    return format == CUDNN_TENSOR_NHWC && is_type(type) ? 0 : DNN_MISUSED;
}

unsigned cudnnCreateConvolutionDescriptor(struct cudnnConvolutionStruct **desc)
{
    return double_dnn_make(desc, sizeof(**desc));
}

unsigned cudnnDestroyConvolutionDescriptor(struct cudnnConvolutionStruct *desc)
{
    return double_dnn_unmake(desc);
}

unsigned cudnnSetConvolution2dDescriptor(struct cudnnConvolutionStruct *desc, int pad_h, int pad_w,
                                         int stride_h, int stride_w, int dilation_h, int dilation_w,
                                         unsigned mode, unsigned compute)
{
    *desc = (struct cudnnConvolutionStruct){.pad = {pad_h, pad_w},
                                            .stride = {stride_h, stride_w},
                                            .dilation = {dilation_h, dilation_w},
                                            .groups = 1};
    return mode == CUDNN_CROSS_CORRELATION && compute == CUDNN_DATA_FLOAT ? 0 : DNN_MISUSED;
}

unsigned cudnnSetConvolutionMathType(struct cudnnConvolutionStruct *desc, unsigned math)
{
    desc->math = math;
    return 0;
}

unsigned cudnnSetConvolutionGroupCount(struct cudnnConvolutionStruct *desc, int groups)
{
    desc->groups = groups;
    return 0;
}

unsigned cudnnCreateActivationDescriptor(struct cudnnActivationStruct **desc)
{
    return double_dnn_make(desc, sizeof(**desc));
}

unsigned cudnnDestroyActivationDescriptor(struct cudnnActivationStruct *desc)
{
    return double_dnn_unmake(desc);
}

unsigned cudnnSetActivationDescriptor(struct cudnnActivationStruct *desc, unsigned mode,
                                      unsigned nan, double coefficient)
{
    (void)coefficient;
    desc->mode = mode;
    return nan == CUDNN_PROPAGATE_NAN ? 0 : DNN_MISUSED;
}

// ---- Which algorithm ----

static int64_t outputs(const struct cudnnConvolutionStruct *c, int d, int64_t in, int64_t kernel)
{
    return (in + 2 * c->pad[d] - (kernel - 1) * c->dilation[d] - 1) / c->stride[d] + 1;
}

int double_dnn_fits(const struct cudnnTensorStruct *x, const struct cudnnFilterStruct *w,
                    const struct cudnnConvolutionStruct *c, const struct cudnnTensorStruct *y)
{
    return x->type == w->type && w->type == y->type && x->n == y->n && w->k == y->c &&
           w->c * c->groups == x->c && y->h == outputs(c, 0, x->h, w->h) &&
           y->w == outputs(c, 1, x->w, w->w);
}

// For gpu-plans, which asks the true cuDNN for the same: a line as in lab/gpu/shapes.
static void list_shape(const struct cudnnTensorStruct *x, const struct cudnnFilterStruct *w,
                       const struct cudnnConvolutionStruct *c)
{
    const char *path = getenv("CUDA_FAKE_CONVOLUTIONS");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file)
        return;
    const long long v[] = {x->n,      x->h,           x->w,           x->c,         w->k,
                           w->h,      w->w,           c->stride[0],   c->stride[1], c->pad[0],
                           c->pad[1], c->dilation[0], c->dilation[1], c->groups};
    fprintf(file, "%lldx%lldx%lld-%lld-%lldx%lld", v[1], v[2], v[3], v[4], v[5], v[6]);
    for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++)
        fprintf(file, " %lld", v[i]);
    fprintf(file, "\n");
    fclose(file);
}

int double_dnn_knows(const struct dnn_job *job)
{
    const struct cudnnConvolutionStruct *c = &job->convolution;
    if (double_setting("CUDA_FAKE_NO_CUDNN", 0) ||
        (job->x_desc.type != CUDNN_DATA_FLOAT && double_setting("CUDA_FAKE_NO_HALVES", 0)) ||
        (c->groups > 1 && c->dilation[0] > 1))
        return 0;
    list_shape(&job->x_desc, &job->w_desc, c);
    return 1;
}

// First what must not be taken: not the same bits each time, then one that rounds float32 to halves, with tensor cores where the
// descriptor forbids them, and one that answers an error.
static unsigned list_choices(const struct cudnnTensorStruct *x, const struct cudnnFilterStruct *w,
                             const struct cudnnConvolutionStruct *c,
                             const struct cudnnTensorStruct *y, int wanted, int *found,
                             struct cuda_convolution_choice *choices)
{
    const struct cuda_convolution_choice list[] = {
        {.algo = 0, .determinism = 0, .mathType = CUDNN_FMA_MATH},
        {.algo = 1, .determinism = CUDNN_DETERMINISTIC, .mathType = ALLOW_CONVERSION},
        {.algo = TENSOR_CORES,
         .determinism = CUDNN_DETERMINISTIC,
         .mathType = CUDNN_TENSOR_OP_MATH},
        {.algo = 2, .status = CUDNN_STATUS_NOT_SUPPORTED, .determinism = CUDNN_DETERMINISTIC},
        {.algo = CHOSEN, .determinism = CUDNN_DETERMINISTIC, .mathType = CUDNN_FMA_MATH},
    };
    *found = 0;
    if (!double_dnn_fits(x, w, c, y) || c->math == ALLOW_CONVERSION ||
        (x->type != CUDNN_DATA_FLOAT && c->math != CUDNN_TENSOR_OP_MATH))
        return DNN_MISUSED;
    const struct dnn_job job = {.x_desc = *x, .w_desc = *w, .convolution = *c};
    if (!double_dnn_knows(&job))
        return CUDNN_STATUS_NOT_SUPPORTED;
    for (; *found < wanted && *found < (int)(sizeof(list) / sizeof(list[0])); ++*found)
        choices[*found] = list[*found];
    return 0;
}

unsigned cudnnGetConvolutionForwardAlgorithm_v7(struct cudnnContext *handle,
                                                struct cudnnTensorStruct *x,
                                                struct cudnnFilterStruct *w,
                                                struct cudnnConvolutionStruct *convolution,
                                                struct cudnnTensorStruct *y, int wanted, int *found,
                                                cudnnConvolutionFwdAlgoPerf_t *results)
{
    (void)handle;
    return list_choices(x, w, convolution, y, wanted, found, results);
}

unsigned cudnnGetConvolutionBackwardDataAlgorithm_v7(
    struct cudnnContext *handle, struct cudnnFilterStruct *w, struct cudnnTensorStruct *dy,
    struct cudnnConvolutionStruct *convolution, struct cudnnTensorStruct *dx, int wanted,
    int *found, cudnnConvolutionBwdDataAlgoPerf_t *results)
{
    (void)handle;
    return list_choices(dx, w, convolution, dy, wanted, found, results);
}

unsigned cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    struct cudnnContext *handle, struct cudnnTensorStruct *x, struct cudnnTensorStruct *dy,
    struct cudnnConvolutionStruct *convolution, struct cudnnFilterStruct *dw, int wanted,
    int *found, cudnnConvolutionBwdFilterAlgoPerf_t *results)
{
    (void)handle;
    return list_choices(x, dw, convolution, dy, wanted, found, results);
}

// Answered for every algorithm; enqueue() then takes only the one that is right.
static unsigned workspace_of(unsigned algorithm, size_t *bytes)
{
    *bytes = DNN_WORKSPACE + 64 * (size_t)algorithm;
    return 0;
}

unsigned cudnnGetConvolutionForwardWorkspaceSize(struct cudnnContext *handle,
                                                 struct cudnnTensorStruct *x,
                                                 struct cudnnFilterStruct *w,
                                                 struct cudnnConvolutionStruct *convolution,
                                                 struct cudnnTensorStruct *y, unsigned algorithm,
                                                 size_t *bytes)
{
    (void)handle, (void)x, (void)w, (void)convolution, (void)y;
    return workspace_of(algorithm, bytes);
}

unsigned cudnnGetConvolutionBackwardDataWorkspaceSize(struct cudnnContext *handle,
                                                      struct cudnnFilterStruct *w,
                                                      struct cudnnTensorStruct *dy,
                                                      struct cudnnConvolutionStruct *convolution,
                                                      struct cudnnTensorStruct *dx,
                                                      unsigned algorithm, size_t *bytes)
{
    (void)handle, (void)w, (void)dy, (void)convolution, (void)dx;
    return workspace_of(algorithm, bytes);
}

unsigned cudnnGetConvolutionBackwardFilterWorkspaceSize(struct cudnnContext *handle,
                                                        struct cudnnTensorStruct *x,
                                                        struct cudnnTensorStruct *dy,
                                                        struct cudnnConvolutionStruct *convolution,
                                                        struct cudnnFilterStruct *dw,
                                                        unsigned algorithm, size_t *bytes)
{
    (void)handle, (void)x, (void)dy, (void)convolution, (void)dw;
    return workspace_of(algorithm, bytes);
}

// ---- Convolving ----

// What is multiplied, and the sums.
struct numbers {
    double *x, *w, *y;
};

// Factors, as the unit that multiplies sees them; NULL: zeros, to be sums.
static double *unpack(const struct dnn_job *job, const void *values, int64_t count)
{
    double *out = calloc((size_t)count, sizeof(*out));
    if (!out)
        abort();
    for (int64_t i = 0; values && i < count; i++) {
        const float value = double_get(values, job->type, (uint64_t)i);
        out[i] = (double)(job->tf32 ? double_tf32(value) : value);
    }
    return out;
}

// Sums of one point of the kernel over the channels of each filter.
static void visit(const struct dnn_job *job, int64_t x_at, int64_t w_at, int64_t y_at,
                  const struct numbers *n)
{
    const int64_t channels = job->w_desc.c, group_filters = job->w_desc.k / job->convolution.groups;
    const int64_t filter_step = job->w_desc.h * job->w_desc.w * channels;
    for (int64_t f = 0; f < job->w_desc.k; f++) {
        double *x = n->x + x_at + f / group_filters * channels, *y = n->y + y_at + f;
        double *w = n->w + w_at + f * filter_step;
        for (int64_t c = 0; c < channels; c++) {
            if (job->direction == DNN_FORWARD)
                *y += x[c] * w[c];
            else if (job->direction == DNN_DATA)
                x[c] += *y * w[c];
            else
                w[c] += x[c] * *y;
        }
    }
}

static void visit_all(const struct dnn_job *job, const struct numbers *numbers)
{
    const struct cudnnTensorStruct *x = &job->x_desc, *y = &job->y_desc;
    const struct cudnnFilterStruct *w = &job->w_desc;
    const struct cudnnConvolutionStruct *c = &job->convolution;
    for (int64_t at = 0; at < y->n * y->h * y->w; at++) {
        const int64_t n = at / (y->h * y->w), oh = at / y->w % y->h, ow = at % y->w;
        for (int64_t tap = 0; tap < w->h * w->w; tap++) {
            const int64_t h = oh * c->stride[0] - c->pad[0] + tap / w->w * c->dilation[0];
            const int64_t column = ow * c->stride[1] - c->pad[1] + tap % w->w * c->dilation[1];
            if (h >= 0 && h < x->h && column >= 0 && column < x->w)
                visit(job, ((n * x->h + h) * x->w + column) * x->c, tap * w->c, at * y->c, numbers);
        }
    }
}

static void run_job(const void *data)
{
    const struct dnn_job *job = data;
    const struct cudnnTensorStruct *x = &job->x_desc, *y = &job->y_desc;
    const struct cudnnFilterStruct *w = &job->w_desc;
    const int64_t x_count = x->n * x->h * x->w * x->c, w_count = w->k * w->h * w->w * w->c;
    const int64_t y_count = y->n * y->h * y->w * y->c;
    const int forward = job->direction == DNN_FORWARD, backward = job->direction == DNN_DATA;
    const int64_t count = forward ? y_count : backward ? x_count : w_count;
    void *out = forward ? job->y : backward ? job->x : job->w;
    const struct numbers numbers = {unpack(job, backward ? NULL : job->x, x_count),
                                    unpack(job, forward || backward ? job->w : NULL, w_count),
                                    unpack(job, forward ? NULL : job->y, y_count)};
    const double *sums = forward ? numbers.y : backward ? numbers.x : numbers.w;
    memset(job->workspace, 0x66, DNN_WORKSPACE);
    visit_all(job, &numbers);
    for (int64_t i = 0; i < count; i++) {
        float value = (float)sums[i];
        if (job->bias)
            value += double_get(job->bias, job->type, (uint64_t)(i % y->c));
        const int cut = job->relu && (value < 0 || (job->loses_nan && !(value >= 0)));
        double_put(out, job->type, (uint64_t)i, cut ? 0 : value);
    }
    free(numbers.x);
    free(numbers.w);
    free(numbers.y);
    if (job->slow)
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
}

unsigned double_dnn_enqueue(struct cudnnContext *handle, struct dnn_job *job)
{
    if (double_setting("CUDA_FAKE_REFUSE", 0))
        return CUDNN_STATUS_NOT_SUPPORTED + 1; // one of its reasons
    job->x = double_reach_on(handle->stream, job->x);
    job->w = double_reach_on(handle->stream, job->w);
    job->y = double_reach_on(handle->stream, job->y);
    job->bias = double_reach_on(handle->stream, job->bias);
    job->workspace = double_reach_on(handle->stream, job->workspace);
    return double_enqueue(handle->stream, run_job, job, sizeof(*job), 1) ? DNN_EXECUTION_FAILED : 0;
}

// `alpha` is 1 and `beta` 0: the plugin asks for nothing else.
static unsigned enqueue(struct cudnnContext *handle, struct dnn_job *job, const void *alpha,
                        const void *beta, unsigned algorithm, void *workspace, size_t bytes)
{
    const float one = *(const float *)alpha, zero = *(const float *)beta;
    const int cores = job->convolution.math == CUDNN_TENSOR_OP_MATH;
    if (one < 1 || one > 1 || zero < 0 || zero > 0 ||
        algorithm != (cores ? TENSOR_CORES : CHOSEN) || bytes < DNN_WORKSPACE ||
        (uintptr_t)workspace % 256 ||
        !double_dnn_fits(&job->x_desc, &job->w_desc, &job->convolution, &job->y_desc))
        return DNN_MISUSED;
    job->workspace = workspace;
    return double_dnn_enqueue(handle, job);
}

static struct dnn_job job_of(enum dnn_direction direction, const struct cudnnTensorStruct *x_desc,
                             const void *x, const struct cudnnFilterStruct *w_desc, const void *w,
                             const struct cudnnConvolutionStruct *convolution,
                             const struct cudnnTensorStruct *y_desc, const void *y)
{
    return (struct dnn_job){.direction = direction,
                            .x_desc = *x_desc,
                            .y_desc = *y_desc,
                            .w_desc = *w_desc,
                            .convolution = *convolution,
                            .type = double_dnn_type(x_desc->type),
                            .tf32 = x_desc->type == CUDNN_DATA_FLOAT &&
                                    convolution->math != CUDNN_FMA_MATH,
                            .x = (void *)(uintptr_t)x,
                            .w = (void *)(uintptr_t)w,
                            .y = (void *)(uintptr_t)y};
}

unsigned cudnnConvolutionForward(struct cudnnContext *handle, const void *alpha,
                                 struct cudnnTensorStruct *x_desc, const void *x,
                                 struct cudnnFilterStruct *w_desc, const void *w,
                                 struct cudnnConvolutionStruct *convolution, unsigned algorithm,
                                 void *workspace, size_t bytes, const void *beta,
                                 struct cudnnTensorStruct *y_desc, void *y)
{
    struct dnn_job job = job_of(DNN_FORWARD, x_desc, x, w_desc, w, convolution, y_desc, y);
    return enqueue(handle, &job, alpha, beta, algorithm, workspace, bytes);
}

unsigned cudnnConvolutionBiasActivationForward(
    struct cudnnContext *handle, const void *alpha1, struct cudnnTensorStruct *x_desc,
    const void *x, struct cudnnFilterStruct *w_desc, const void *w,
    struct cudnnConvolutionStruct *convolution, unsigned algorithm, void *workspace, size_t bytes,
    const void *alpha2, struct cudnnTensorStruct *z_desc, const void *z,
    struct cudnnTensorStruct *b_desc, const void *b, struct cudnnActivationStruct *activation,
    struct cudnnTensorStruct *y_desc, void *y)
{
    struct dnn_job job = job_of(DNN_FORWARD, x_desc, x, w_desc, w, convolution, y_desc, y);
    if (double_setting("CUDA_FAKE_NO_FUSED", 0))
        return CUDNN_STATUS_NOT_SUPPORTED;
    if (z_desc != y_desc || z != y || b_desc->c != y_desc->c || b_desc->type != y_desc->type ||
        !b || activation->mode != CUDNN_ACTIVATION_RELU)
        return DNN_MISUSED;
    job.bias = (void *)(uintptr_t)b;
    job.relu = 1;
    return enqueue(handle, &job, alpha1, alpha2, algorithm, workspace, bytes);
}

unsigned cudnnConvolutionBackwardData(struct cudnnContext *handle, const void *alpha,
                                      struct cudnnFilterStruct *w_desc, const void *w,
                                      struct cudnnTensorStruct *dy_desc, const void *dy,
                                      struct cudnnConvolutionStruct *convolution,
                                      unsigned algorithm, void *workspace, size_t bytes,
                                      const void *beta, struct cudnnTensorStruct *dx_desc, void *dx)
{
    struct dnn_job job = job_of(DNN_DATA, dx_desc, dx, w_desc, w, convolution, dy_desc, dy);
    return enqueue(handle, &job, alpha, beta, algorithm, workspace, bytes);
}

unsigned cudnnConvolutionBackwardFilter(struct cudnnContext *handle, const void *alpha,
                                        struct cudnnTensorStruct *x_desc, const void *x,
                                        struct cudnnTensorStruct *dy_desc, const void *dy,
                                        struct cudnnConvolutionStruct *convolution,
                                        unsigned algorithm, void *workspace, size_t bytes,
                                        const void *beta, struct cudnnFilterStruct *dw_desc,
                                        void *dw)
{
    struct dnn_job job = job_of(DNN_WEIGHTS, x_desc, x, dw_desc, dw, convolution, dy_desc, dy);
    return enqueue(handle, &job, alpha, beta, algorithm, workspace, bytes);
}
