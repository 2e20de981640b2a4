// SPDX-License-Identifier: Apache-2.0
// Attention in the fake of cuDNN: what dnn_graph.c has read of a graph, and what runs it.
#ifndef LS_TESTS_CUDA_DNN_ATTENTION_H
#define LS_TESTS_CUDA_DNN_ATTENTION_H

#include "tests/support/cuda-fake/dnn.h"

#include <stdbool.h>

#define DNN_WALK_STEPS 24
#define DNN_WALK_TENSORS 48

struct dnn_walk_tensor {
    int64_t id;
    unsigned type; // cudnnDataType_t
    bool between, by_value;
    int64_t dims[4], strides[4]; // (B, H, rows, columns)
    void *address; // once it runs
    float number; // by value
};

struct dnn_walk_step {
    char
        what; // x: product, t: turned, S: sum of a row, M: its largest, r and c: number of row and column, ?: select, e: exp, l: log
    int x, b, mask, y; // of the tensors; -1: none
};

struct dnn_walk {
    int step_count, tensor_count; // no steps: it is a convolution
    struct dnn_walk_step steps[DNN_WALK_STEPS];
    struct dnn_walk_tensor tensors[DNN_WALK_TENSORS];
    bool backward, causal, tf32, loses_nan;
    unsigned type; // of q
    void *workspace;
};

// Whether cuDNN has engines for it; fills `backward`, `causal` and `type`, and writes down what it was asked for then.
bool double_walk_knows(struct dnn_walk *walk);
void double_walk_run(const void *walk);

#endif
