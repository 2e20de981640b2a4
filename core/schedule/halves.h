// SPDX-License-Identifier: Apache-2.0
// Float32 values and their halves (bfloat16 or float16), range by range, in host memory. [any
// thread]
#ifndef LS_SCHEDULE_HALVES_H
#define LS_SCHEDULE_HALVES_H

#include <stdbool.h>
#include <stdint.h>

// `dtype` is LS_BF16 or LS_F16. Each value becomes the nearest half, ties to even, in both places.
// True: a finite value was too large for that, and has become infinite.
bool ls_halves_round(uint32_t dtype, float *values, uint16_t *halves, uint64_t count);
// The same, and the values stay.
void ls_halves_narrow(uint32_t dtype, const float *values, uint16_t *halves, uint64_t count);
void ls_halves_widen(uint32_t dtype, const uint16_t *halves, float *values, uint64_t count);
void ls_halves_add(uint32_t dtype, const uint16_t *halves, float *values, uint64_t count);

#endif
