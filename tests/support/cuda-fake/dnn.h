// SPDX-License-Identifier: Apache-2.0
// cuDNN in the fake: what convolutions (dnn.c) and pooling (pool.c) share.
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

uint32_t double_dnn_type(unsigned type); // enum cuda_type
// Descriptors, counted. `out` is a pointer to the pointer.
unsigned double_dnn_make(void *out, size_t bytes);
unsigned double_dnn_unmake(void *memory);

#endif
