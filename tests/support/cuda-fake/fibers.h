// SPDX-License-Identifier: Apache-2.0
// Kernels on the CPU: a grid of blocks, whose threads are fibers of the thread that runs the kernel. What a kernel sees of it is
// in cuda_runtime.h. A thread runs until it ends or waits; then the next one of the block does, in the order that
// CUDA_FAKE_THREADS names; but a warp comes as far as it can before another one has its turn. Misuse that a GPU answers by hanging or
// by wrong numbers ends the process with a line.
#ifndef LS_TESTS_CUDA_FAKE_FIBERS_H
#define LS_TESTS_CUDA_FAKE_FIBERS_H

#include "tests/support/cuda-fake/fake.h"

enum { DOUBLE_WARP = 32, DOUBLE_BLOCK = 1024, DOUBLE_SHARED = 48 << 10 };

struct double_dim {
    unsigned x, y, z;
};

struct double_grid {
    struct double_dim blocks, threads;
    size_t dynamic; // bytes of dynamic shared memory
    void (*kernel)(const void *launch); // called once for each thread
    char *(*shared)(void); // any thread-local memory of the library that has the kernel
};

// Where the calling thread is. Only kernels read them.
#define DOUBLE_THREAD_LOCAL \
    __attribute__((visibility("default"), tls_model("initial-exec"))) extern __thread
DOUBLE_THREAD_LOCAL struct double_dim threadIdx, blockIdx, blockDim, gridDim;

// Puts the grid on the stream; `launch` begins with it and is copied. 0, or an error of the runtime.
DOUBLE_EXPORT unsigned double_launch(struct CUstream_st *stream, const struct double_grid *launch,
                                     size_t bytes);

// What the lanes of a warp show each other.
struct double_lanes {
    uint64_t values[DOUBLE_WARP];
    uint32_t present; // a bit for each lane that took part
};

// Waits for all threads of the block, or for those of the warp that `mask` names; place: where the source says so.
struct double_place {
    const char *file;
    int line;
};
DOUBLE_EXPORT void double_wait_for_block(struct double_place place);
DOUBLE_EXPORT const struct double_lanes *double_wait_for_warp(struct double_place place,
                                                              uint32_t mask, uint64_t value);
// Number of the calling thread in its warp.
DOUBLE_EXPORT unsigned double_lane(void);
// Dynamic shared memory of the block.
DOUBLE_EXPORT void *double_dynamic(void);

#endif
