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
    return (size_t)double_setting("CUDA_FAKE_CUDNN_VERSION", 91900);
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

// ---- What it knows ----

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

// ---- Convolving ----

// What is multiplied, and the sums. The innermost loops go over filters, but over channels for the
// gradient of data, whose terms come filter by filter; weights are kept in that order: (taps,
// channels, filters), for data as in memory.
struct numbers {
    double *x, *w, *y;
};

static double *make_numbers(int64_t count)
{
    double *out = calloc((size_t)count, sizeof(*out));
    if (!out)
        abort();
    return out;
}

// Factors, as the unit that multiplies sees them; NULL: zeros, to be sums.
static double *unpack(const struct dnn_job *job, const void *values, int64_t count)
{
    double *out = make_numbers(count);
    for (int64_t i = 0; values && i < count; i++) {
        const float value = double_get(values, job->type, (uint64_t)i);
        out[i] = (double)(job->tf32 ? double_tf32(value) : value);
    }
    return out;
}

// (filters, taps and channels) from or to (taps and channels, filters): `rows` of what is read.
static double *turn(double *values, int64_t rows, int64_t columns)
{
    double *out = make_numbers(rows * columns);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t column = 0; column < columns; column++)
            out[column * rows + row] = values[row * columns + column];
    free(values);
    return out;
}

static void add_products(double *restrict sums, double factor, const double *restrict values,
                         int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        sums[i] += factor * values[i];
}

// Sums of one point of the kernel over the channels of each filter.
static void visit(const struct dnn_job *job, int64_t x_at, int64_t tap, int64_t y_at,
                  const struct numbers *n)
{
    const int64_t groups = job->convolution.groups, channels = job->w_desc.c;
    const int64_t filters = job->w_desc.k / groups, taps = job->w_desc.h * job->w_desc.w;
    for (int64_t g = 0; g < groups; g++) {
        double *x = n->x + x_at + g * channels, *y = n->y + y_at + g * filters;
        for (int64_t f = 0; job->direction == DNN_DATA && f < filters; f++)
            add_products(x, y[f], n->w + ((g * filters + f) * taps + tap) * channels, channels);
        for (int64_t c = 0; job->direction != DNN_DATA && c < channels; c++) {
            double *w = n->w + (tap * channels + c) * job->w_desc.k + g * filters;
            const int forward = job->direction == DNN_FORWARD;
            add_products(forward ? y : w, x[c], forward ? w : y, filters);
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
                visit(job, ((n * x->h + h) * x->w + column) * x->c, tap, at * y->c, numbers);
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
    struct numbers numbers = {unpack(job, backward ? NULL : job->x, x_count),
                              unpack(job, forward || backward ? job->w : NULL, w_count),
                              unpack(job, forward ? NULL : job->y, y_count)};
    if (forward)
        numbers.w = turn(numbers.w, w->k, w_count / w->k);
    memset(job->workspace, 0x66, DNN_WORKSPACE);
    visit_all(job, &numbers);
    if (!forward && !backward)
        numbers.w = turn(numbers.w, w_count / w->k, w->k);
    const double *sums = forward ? numbers.y : backward ? numbers.x : numbers.w;
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
