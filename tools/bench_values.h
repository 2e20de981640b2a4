// SPDX-License-Identifier: Apache-2.0
// Inputs of a collective whose results are exact in every element type, and the count of what came out wrong.
#ifndef LS_TOOLS_BENCH_VALUES_H
#define LS_TOOLS_BENCH_VALUES_H

#include <stdint.h>

#define BENCH_WORLD_MOST 256 // sums of more ranks would not be exact in bfloat16

struct bench_call {
    uint32_t operation; // enum ls_collective_operation; root 0
    uint32_t dtype;
    uint32_t reduction;
    uint32_t world;
    uint64_t count; // elements of the whole buffer
};

// What `rank` has before the call.
void bench_values_fill(const struct bench_call *call, uint32_t rank, void *data);
// Elements of the result of `rank` that are not what they must be.
uint64_t bench_values_wrong(const struct bench_call *call, uint32_t rank, const void *data);

#endif
