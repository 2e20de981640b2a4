// SPDX-License-Identifier: Apache-2.0
// Our own declarations of NVIDIA's calls (calls_list.h) against NVIDIA's headers: it compiles, or it says where they part.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <stddef.h>
#include <stdint.h>

#define CUDA_CALL(library, result, name, arguments)                                              \
    _Static_assert(__builtin_types_compatible_p(__typeof__(name), __typeof__(result arguments)), \
                   #name " is declared otherwise");
#include "plugins/device/cuda/engine/calls_list.h"

#define CUDA_CONSTANT(name, value) \
    _Static_assert((long long)(name) == (value), #name " has another value");
#include "plugins/device/cuda/engine/calls_list.h"

// The structs that calls.h declares anew; it cannot be included beside NVIDIA's.
#define SAME(type, mine, member) \
    _Static_assert(offsetof(type, member) == offsetof(struct mine, member), #type "." #member)

struct heuristic {
    uint64_t algo[8];
    size_t workspaceSize;
    unsigned state;
    float wavesCount;
    int reserved[4];
};

_Static_assert(sizeof(cublasLtMatmulHeuristicResult_t) == sizeof(struct heuristic), "heuristic");
SAME(cublasLtMatmulHeuristicResult_t, heuristic, workspaceSize);
SAME(cublasLtMatmulHeuristicResult_t, heuristic, state);

struct pointer {
    unsigned type;
    int device;
    void *devicePointer, *hostPointer;
    long reserved[8];
};

_Static_assert(sizeof(struct cudaPointerAttributes) <= sizeof(struct pointer),
               "pointer attributes");
SAME(struct cudaPointerAttributes, pointer, type);
SAME(struct cudaPointerAttributes, pointer, device);

int main(void)
{
    return 0;
}
