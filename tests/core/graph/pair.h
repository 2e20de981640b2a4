// SPDX-License-Identifier: Apache-2.0
// One graph on the reference device and on a mock of it: both must compute the same.
#ifndef LS_TESTS_GRAPH_PAIR_H
#define LS_TESTS_GRAPH_PAIR_H

#include "tests/core/graph/mock.h"

// The same kernels on the same numbers in another order of memory: nothing rounds differently.
#define SAME_KERNELS 0.0
// A fused kernel does not round between producer and consumer.
#define FUSED 1e-5

struct pair {
    struct harness_device reference, mock;
    struct ls_graph *graph; // owned
    struct harness_run expected, run;
};

// Runs a training step on both and compares losses and all gradients.
void pair_start(struct pair *pair, struct ls_graph *graph, const struct mock_policy *policy,
                double tolerance);
void pair_stop(struct pair *pair);

// Steps whose labels contain `text`.
uint32_t pair_count_steps(const struct ls_program *program, const char *text);
// Gradients of activations lie as the activations themselves, also of those that were fused away.
void pair_check_gradient_layouts(const struct ls_program *program);

#endif
