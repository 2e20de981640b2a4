// SPDX-License-Identifier: Apache-2.0
// Kernels that only try what the fake of CUDA does with kernels (test_fibers.c).
#ifndef LS_TESTS_FIBER_KERNELS_H
#define LS_TESTS_FIBER_KERNELS_H

#include <stddef.h>
#include <stdint.h>

struct CUstream_st;

enum fiber_kernel {
    FIBER_VISIT, // element of the thread, counted over the grid: + 1
    FIBER_SUM, // per block: sum of the threads' numbers, by shared memory and barriers
    FIBER_SUM_WITHOUT_BARRIER,
    FIBER_SUM_DYNAMIC, // in dynamic shared memory
    FIBER_EXCHANGES, // per thread: what it was shown by the warps of its block, one time after the other
    FIBER_EXCHANGES_WITHOUT_BARRIER, // between one time and the next
    FIBER_SHUFFLE, // per thread: what four kinds of shuffles bring, 4 numbers
    FIBER_SHUFFLE_EIGHTS, // in groups of 8 lanes
    FIBER_VOTES, // per thread: any, all, ballot of odd lanes
    FIBER_ATOMICS, // all threads at one place: sum, least, largest, float sum, the last who came
    FIBER_UNWRITTEN, // per block: whether shared memory holds numbers of the block before
    FIBER_BARRIER_AFTER_END,
    FIBER_TWO_BARRIERS,
    FIBER_LANE_MISSING,
    FIBER_MASK_WITHOUT_ITSELF,
    FIBER_UNALIGNED, // loads four numbers at the second one
    FIBER_INDEX_BEYOND, // of a shared array
    FIBER_KERNELS
};

// blocks and threads: x, y, z. 0, or an error of the runtime.
unsigned fiber_launch(enum fiber_kernel kernel, const unsigned *blocks, const unsigned *threads,
                      size_t dynamic, int32_t *out, struct CUstream_st *stream);

#endif
