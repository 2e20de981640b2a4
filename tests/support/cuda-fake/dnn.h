// SPDX-License-Identifier: Apache-2.0
// cuDNN in the fake: what convolutions (dnn.c), its graph API (dnn_graph.c) and pooling (pool.c) share.
#ifndef LS_TESTS_CUDA_DNN_H
#define LS_TESTS_CUDA_DNN_H

#include "tests/support/cuda-fake/fake.h"

// A wrong call ends the run, so that a test sees it: after CUDNN_STATUS_BAD_PARAM the engine would
// go on.
enum { DNN_MISUSED = 4000, DNN_EXECUTION_FAILED = 5000 };

struct cudnnContext {
    struct CUstream_st *stream;
};

struct cudnnTensorStruct {
    int64_t n, c, h, w;
    unsigned type;
};

struct cudnnFilterStruct {
    int64_t k, c, h, w;
    unsigned type;
};

struct cudnnConvolutionStruct {
    int64_t pad[2], stride[2], dilation[2];
    int groups;
    unsigned math;
};

// A convolution that runs.
enum dnn_direction { DNN_FORWARD, DNN_DATA, DNN_WEIGHTS };

struct dnn_job {
    enum dnn_direction direction;
    struct cudnnTensorStruct x_desc, y_desc;
    struct cudnnFilterStruct w_desc;
    struct cudnnConvolutionStruct convolution;
    void *x, *w, *y, *bias, *workspace; // bias: NULL where there is none
    uint32_t type; // enum cuda_type
    int tf32;
    int relu, loses_nan; // the latter: ReLU makes 0 of a NaN
    int slow; // it takes milliseconds more
};

#define DNN_WORKSPACE 2048 // bytes that it writes

int double_dnn_fits(const struct cudnnTensorStruct *x, const struct cudnnFilterStruct *w,
                    const struct cudnnConvolutionStruct *c, const struct cudnnTensorStruct *y);
// Whether cuDNN has anything for it; writes down what it was asked for then.
int double_dnn_knows(const struct dnn_job *job);
// Puts it on the handle's stream; the addresses are those of the GPU.
unsigned double_dnn_enqueue(struct cudnnContext *handle, struct dnn_job *job);

uint32_t double_dnn_type(unsigned type); // enum cuda_type
// Descriptors, counted. `out` is a pointer to the pointer.
unsigned double_dnn_make(void *out, size_t bytes);
unsigned double_dnn_unmake(void *memory);

#endif
