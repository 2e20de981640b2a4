// SPDX-License-Identifier: Apache-2.0
// Our own kernels in the fake: kernels.cu itself, compiled for the CPU.
#include <cuda_runtime.h>

#include "plugins/device/cuda/engine/kernels.h"

template <typename type, typename function> static inline void double_member(type &member, function reach)
{
    if constexpr (std::is_array_v<type>) {
        for (auto &one : member)
            double_member(one, reach);
    } else if constexpr (std::is_pointer_v<type>)
        reach(member);
    else if constexpr (std::is_class_v<type> && !std::is_same_v<type, cuda_divisor>)
        double_pointers(&member, reach);
}

#include <pointers.h> // made of kernels.h by pointers.py

#include "plugins/device/cuda/engine/kernels.cu"
