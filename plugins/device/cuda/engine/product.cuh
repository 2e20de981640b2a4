// SPDX-License-Identifier: Apache-2.0
// Products of matrices where cuBLASLt has none: slow, for any steps, with sums in float32. An item is an element of the result.
#ifndef LS_DEVICE_CUDA_PRODUCT_CUH
#define LS_DEVICE_CUDA_PRODUCT_CUH

#include "plugins/device/cuda/engine/grid.cuh"
#include "plugins/device/cuda/engine/store_body.h"

namespace products {

constexpr int64_t terms = 64; // that are added in float32

__device__ inline void multiply(const struct cuda_multiplication *m, int64_t i)
{
    const int64_t line = cuda_quotient(i, m->columns), column = i - line * m->columns;
    const int64_t matrix = cuda_quotient(line, m->rows), row = line - matrix * m->rows;
    const int64_t a = matrix * m->a_steps[0] + row * m->a_steps[1];
    const int64_t b = matrix * m->b_steps[0] + column * m->b_steps[2];
    const int64_t d = matrix * m->d_steps[0] + row * m->d_steps[1] + column * m->d_steps[2];
    double sum = 0;
    for (int64_t first = 0; first < m->inner; first += terms) {
        float part = 0;
        for (int64_t k = first; k < first + terms && k < m->inner; k++)
            part += cuda_load(m->a, m->type, a + k * m->a_steps[2]) * cuda_load(m->b, m->type, b + k * m->b_steps[1]);
        sum += (double)part;
    }
    const float value = m->alpha * (float)sum;
    cuda_write(m->d, m->type, d, m->beta != 0 ? value + m->beta * cuda_load(m->d, m->type, d) : value);
}

} // namespace products

extern "C" unsigned cuda_multiplication_launch(const struct cuda_multiplication *m, struct CUstream_st *stream)
{
    return start<struct cuda_multiplication, products::multiply>(m, m->batch * m->rows * m->columns, stream);
}

#endif
