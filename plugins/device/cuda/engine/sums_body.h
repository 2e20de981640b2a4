// SPDX-License-Identifier: Apache-2.0
// Sums, as bodies.h has them and for it alone: in an order that only the shape decides.
#ifndef LS_DEVICE_CUDA_SUMS_BODY_H
#define LS_DEVICE_CUDA_SUMS_BODY_H

CUDA_BODY(add_pairs)
{
    double first = 0, second = 0;
    for (int64_t k = i; k < a->count; k += a->width) {
        first += a->pairs[2 * k];
        second += a->pairs[2 * k + 1];
    }
    a->sums[2 * i] = first;
    a->sums[2 * i + 1] = second;
}

// count pairs -> loss, right, examples, 0
CUDA_BODY(loss_sums)
{
    double loss = 0, right = 0;
    for (int64_t k = 0; k < a->count; k++) {
        loss += a->pairs[2 * k];
        right += a->pairs[2 * k + 1];
    }
    float *out = (float *)a->store.out + i; // i is 0
    out[0] = (float)(loss / (double)a->positions);
    out[1] = (float)(right / (double)a->positions);
    out[2] = (float)a->examples;
    out[3] = 0;
}

CUDA_BODY(measure)
{
    double sum = 0, others = 0;
    for (int64_t k = i; k < a->count; k += a->width) {
        const float x = cuda_a(a, k);
        if (isfinite(x))
            sum += (double)x * (double)x;
        else
            others++;
    }
    a->sums[2 * i] = sum;
    a->sums[2 * i + 1] = others;
}

CUDA_BODY(measure_sums)
{
    double sum = 0, others = 0;
    for (int64_t k = 0; k < a->count; k++) {
        sum += a->pairs[2 * k];
        others += a->pairs[2 * k + 1];
    }
    a->sums[2 * i] = sum;
    a->sums[2 * i + 1] = others;
}

#endif
