// SPDX-License-Identifier: Apache-2.0
// cuDNN in the fake: pooling over NHWC, as plain loops in double precision: the largest forward, means both ways. Nothing else
// is asked of it, and what else comes is an error.
#include "tests/support/cuda-fake/dnn.h"
#include "tests/support/cuda-fake/numbers.h"

#include <math.h>
#include <stdlib.h>

#define PACK 16 // bytes that a GPU loads at once; a tensor begins at a multiple of them

struct cudnnPoolingStruct {
    int64_t window[2], pad[2], stride[2];
    unsigned mode;
};

unsigned cudnnCreatePoolingDescriptor(struct cudnnPoolingStruct **desc)
{
    return double_dnn_make(desc, sizeof(**desc));
}

unsigned cudnnDestroyPoolingDescriptor(struct cudnnPoolingStruct *desc)
{
    return double_dnn_unmake(desc);
}

unsigned cudnnSetPooling2dDescriptor(struct cudnnPoolingStruct *desc, unsigned mode, unsigned nan,
                                     int window_h, int window_w, int pad_h, int pad_w, int stride_h,
                                     int stride_w)
{
    *desc = (struct cudnnPoolingStruct){.window = {window_h, window_w},
                                        .pad = {pad_h, pad_w},
                                        .stride = {stride_h, stride_w},
                                        .mode = mode};
    const int known =
        mode == CUDNN_POOLING_MAX || mode == CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING;
    for (int d = 0; d < 2; d++)
        if (desc->stride[d] < 1 || desc->pad[d] < 0 || desc->pad[d] >= desc->window[d])
            return DNN_MISUSED;
    return known && nan == CUDNN_PROPAGATE_NAN ? 0 : DNN_MISUSED;
}

static int64_t outputs(const struct cudnnPoolingStruct *pooling, int d, int64_t in)
{
    return (in + 2 * pooling->pad[d] - pooling->window[d]) / pooling->stride[d] + 1;
}

unsigned cudnnGetPooling2dForwardOutputDim(struct cudnnPoolingStruct *desc,
                                           struct cudnnTensorStruct *x, int *n, int *c, int *h,
                                           int *w)
{
    if (desc->stride[0] < 1 || x->n < 1)
        return DNN_MISUSED; // not set
    if (double_setting("CUDA_FAKE_NO_CUDNN", 0) ||
        (x->type != CUDNN_DATA_FLOAT && double_setting("CUDA_FAKE_NO_HALVES", 0)))
        return CUDNN_STATUS_NOT_SUPPORTED;
    *n = (int)x->n;
    *c = (int)x->c;
    *h = (int)outputs(desc, 0, x->h);
    *w = (int)outputs(desc, 1, x->w);
    return 0;
}

// ---- Pooling ----

struct job {
    struct cudnnPoolingStruct pooling;
    struct cudnnTensorStruct x, y;
    const void *in;
    void *out;
    uint32_t type; // enum cuda_type
    int backward, add;
};

// One window at a time, over one channel: rows and columns that are not padding.
struct place {
    int64_t rows[2], columns[2], y, x; // x: of element (0, 0) of the example and channel
};

static void clip(const struct cudnnPoolingStruct *p, int d, int64_t at, int64_t limit, int64_t *out)
{
    const int64_t start = at * p->stride[d] - p->pad[d], end = start + p->window[d];
    out[0] = start < 0 ? 0 : start;
    out[1] = end > limit ? limit : end;
}

static struct place place_of(const struct job *job, int64_t i)
{
    const struct cudnnTensorStruct *x = &job->x, *y = &job->y;
    const int64_t at = i / y->c;
    struct place out = {.y = i, .x = at / y->w / y->h * x->h * x->w * x->c + i % y->c};
    clip(&job->pooling, 0, at / y->w % y->h, x->h, out.rows);
    clip(&job->pooling, 1, at % y->w, x->w, out.columns);
    return out;
}

static void visit(const struct job *job, const struct place *place, double *sums)
{
    const int largest = job->pooling.mode == CUDNN_POOLING_MAX;
    const double count =
        (double)((place->rows[1] - place->rows[0]) * (place->columns[1] - place->columns[0]));
    double best = -INFINITY, sum = 0;
    for (int64_t h = place->rows[0]; h < place->rows[1]; h++)
        for (int64_t w = place->columns[0]; w < place->columns[1]; w++) {
            const int64_t at = place->x + (h * job->x.w + w) * job->x.c;
            if (job->backward) {
                sums[at] += (double)double_get(job->in, job->type, (uint64_t)place->y) / count;
                continue;
            }
            const double value = (double)double_get(job->in, job->type, (uint64_t)at);
            best = value > best || isnan(value) ? value : best;
            sum += value;
        }
    if (!job->backward)
        sums[place->y] = largest ? best : sum / count;
}

static void run_job(const void *data)
{
    const struct job *job = data;
    const struct cudnnTensorStruct *y = &job->y, *out = job->backward ? &job->x : y;
    const int64_t count = out->n * out->h * out->w * out->c;
    double *sums = calloc((size_t)count, sizeof(*sums));
    if (!sums)
        abort();
    for (int64_t i = 0; i < y->n * y->h * y->w * y->c; i++) {
        const struct place place = place_of(job, i);
        visit(job, &place, sums);
    }
    for (int64_t i = 0; i < count; i++) {
        const float old = job->add ? double_get(job->out, job->type, (uint64_t)i) : 0;
        double_put(job->out, job->type, (uint64_t)i, (float)(sums[i] + (double)old));
    }
    free(sums);
}

// Where a tensor lies, which is memory of the GPU from its first to its last byte.
static int reach(const struct cudnnContext *handle, const struct cudnnTensorStruct *desc,
                 const void *memory, void **out)
{
    const int64_t bytes =
        desc->n * desc->c * desc->h * desc->w * (desc->type == CUDNN_DATA_FLOAT ? 4 : 2);
    if (!memory || (uintptr_t)memory % PACK)
        return 0;
    *out = double_reach_on(handle->stream, memory);
    double_reach_on(handle->stream, (const char *)memory + bytes - 1);
    return 1;
}

// `alpha` is 1; `beta` is 0, or 1 for float32: the plugin asks for nothing else.
static unsigned enqueue(const struct cudnnContext *handle, struct job *job, const void *alpha,
                        const void *beta)
{
    const struct cudnnTensorStruct *x = &job->x, *y = &job->y;
    const float one = *(const float *)alpha, old = *(const float *)beta;
    job->type = double_dnn_type(x->type);
    job->add = old > 0;
    if (one < 1 || one > 1 || old < 0 || old > 1 || (job->add && (old < 1 || job->type)))
        return DNN_MISUSED;
    if (x->type != y->type || x->n != y->n || x->c != y->c ||
        y->h != outputs(&job->pooling, 0, x->h) || y->w != outputs(&job->pooling, 1, x->w))
        return DNN_MISUSED;
    if (double_setting("CUDA_FAKE_REFUSE", 0))
        return CUDNN_STATUS_NOT_SUPPORTED + 1; // one of its reasons
    return double_enqueue(handle->stream, run_job, job, sizeof(*job), 1) ? DNN_EXECUTION_FAILED : 0;
}

unsigned cudnnPoolingForward(struct cudnnContext *handle, struct cudnnPoolingStruct *pooling,
                             const void *alpha, struct cudnnTensorStruct *x_desc, const void *x,
                             const void *beta, struct cudnnTensorStruct *y_desc, void *y)
{
    struct job job = {.pooling = *pooling, .x = *x_desc, .y = *y_desc};
    void *in;
    if (!reach(handle, x_desc, x, &in) || !reach(handle, y_desc, y, &job.out))
        return DNN_MISUSED;
    job.in = in;
    return enqueue(handle, &job, alpha, beta);
}

// x and y must be there, and a mean does not look at them.
unsigned cudnnPoolingBackward(struct cudnnContext *handle, struct cudnnPoolingStruct *pooling,
                              const void *alpha, struct cudnnTensorStruct *y_desc, const void *y,
                              struct cudnnTensorStruct *dy_desc, const void *dy,
                              struct cudnnTensorStruct *x_desc, const void *x, const void *beta,
                              struct cudnnTensorStruct *dx_desc, void *dx)
{
    struct job job = {.pooling = *pooling, .x = *dx_desc, .y = *dy_desc, .backward = 1};
    void *in, *unused;
    if (pooling->mode == CUDNN_POOLING_MAX || x_desc != dx_desc || y_desc != dy_desc)
        return DNN_MISUSED;
    if (!reach(handle, dy_desc, dy, &in) || !reach(handle, dx_desc, dx, &job.out) ||
        !reach(handle, x_desc, x, &unused) || !reach(handle, y_desc, y, &unused))
        return DNN_MISUSED;
    job.in = in;
    return enqueue(handle, &job, alpha, beta);
}
