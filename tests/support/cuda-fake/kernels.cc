// SPDX-License-Identifier: Apache-2.0
// Our own kernels in the fake: kernels.cu itself, compiled for the CPU.
#include <cuda_runtime.h>

#include "plugins/device/cuda/engine/kernels.h"

#define REACH(member) reach(arguments->member);
#define STRUCT(name, pointers)                                              \
    template <typename function>                                            \
    static inline void double_pointers(struct name *arguments, function reach) \
    {                                                                       \
        pointers(REACH)                                                     \
    }
CUDA_ARGUMENT_STRUCTS(STRUCT)

#include "plugins/device/cuda/engine/kernels.cu"
