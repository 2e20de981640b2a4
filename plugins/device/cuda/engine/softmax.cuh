// SPDX-License-Identifier: Apache-2.0
// Softmax of rows that threads work on together (teams.cuh). The largest element and the sum of exponentials are found in one pass: what
// was added is scaled anew where a larger element comes.
#ifndef LS_DEVICE_CUDA_SOFTMAX_CUH
#define LS_DEVICE_CUDA_SOFTMAX_CUH

#include "plugins/device/cuda/engine/teams.cuh"
#include "plugins/device/cuda/engine/store_body.h"

namespace softmax {

struct divisor {
    float largest, sum; // of exp(x - largest)

    __device__ float share(float x) const
    {
        return expf(x - largest) / sum;
    }
};

// found: the largest element and the sum of exp(x - largest). An element of minus infinity adds nothing; NaN stays in the sum.
__device__ inline void add_element(float (&found)[2], float x)
{
    if (x > found[0]) {
        found[1] = found[1] * expf(found[0] - x) + 1;
        found[0] = x;
    } else
        found[1] += x == -INFINITY ? 0 : expf(x - found[0]);
}

__device__ inline void add_found(float (&to)[2], const float (&from)[2])
{
    const bool larger = from[0] > to[0];
    const float largest = larger ? from[0] : to[0], other = larger ? to[0] : from[0];
    const float factor = other == -INFINITY ? 1 : expf(other - largest);
    to[1] = larger ? to[1] * factor + from[1] : to[1] + from[1] * factor;
    to[0] = largest;
}

// Of `count` elements, all of the same row; get(k) reads one.
template <unsigned group, typename function>
__device__ inline divisor divisor_of(int64_t count, function get)
{
    float found[2] = {-INFINITY, 0};
    for (int64_t k = teams::lane<group>(); k < count; k += group)
        add_element(found, get(k));
    teams::together<group, 2>(found, add_found);
    return {found[0], found[0] == INFINITY ? NAN : found[1]};
}

} // namespace softmax

#endif
