// SPDX-License-Identifier: Apache-2.0
// The libraries of NVIDIA as a table of calls, found with dlopen when the device is opened. None is needed to compile.
#ifndef LS_DEVICE_CUDA_CALLS_H
#define LS_DEVICE_CUDA_CALLS_H

#include <stddef.h>
#include <stdint.h>

struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;
struct cublasLtContext;
struct cudnnContext;
struct cudnnTensorStruct;
struct cudnnPoolingStruct;

// Opaque to us: only pointers to them are held. The names are NVIDIA's, and so are the types without a tag below.
typedef struct cuda_matmul_desc cublasLtMatmulDescOpaque_t;
typedef struct cuda_matrix_layout cublasLtMatrixLayoutOpaque_t;
typedef struct cuda_matmul_preference cublasLtMatmulPreferenceOpaque_t;

typedef struct {
    uint64_t data[8];
} cublasLtMatmulAlgo_t;

typedef struct {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    unsigned state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;

struct cudaPointerAttributes {
    unsigned type;
    int device;
    void *devicePointer;
    void *hostPointer;
    long reserved[8];
};

enum {
#define CUDA_CONSTANT(name, value) name = (value),
#include "plugins/device/cuda/engine/calls_list.h"
};

struct cuda_calls {
#define CUDA_CALL(library, result, name, arguments) result(*name) arguments;
#include "plugins/device/cuda/engine/calls_list.h"
};

// Opens the libraries once in the process. NULL: `reason` says which one or what is missing. [any thread]
const struct cuda_calls *cuda_calls_get(char *reason, size_t bytes);

#endif
