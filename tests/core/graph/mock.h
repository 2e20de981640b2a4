// SPDX-License-Identifier: Apache-2.0
// A device that computes with another one's kernels but has layouts, refusals and fusion patterns of its own, as
// the policy says. Its layouts are the plain tensor in another order with zeros in front; a kernel that
// finds something else than zeros there fails.
#ifndef LS_TESTS_GRAPH_MOCK_H
#define LS_TESTS_GRAPH_MOCK_H

#include "tests/core/graph/harness.h"

struct mock_policy {
    const struct ls_fusion_pattern *patterns;
    uint32_t pattern_count;
    bool refuse_fused; // declared, but unsupported when prepared
    // Bit n: batch normalization that does the work of n more operations is so.
    uint32_t refused_norms, slow_norms;
    bool own_weights; // forward kernels choose a layout of their own for weights
    bool own_activations; // convolution, pooling and activations do for their outputs
    bool other_data; // backward-data wants weights in a second layout
    bool other_gradient; // backward-weights writes a second layout
    bool plain_dense; // dense operations want plain activations
    bool slow; // what is not wanted is slow instead of unsupported
    bool always_slow; // backward-data is slow, whatever the layout
    bool no_accumulate;
    bool no_halves;
    bool no_in_place;
    bool first_in_place; // outputs may replace the first input only
};

struct harness_device mock_open(struct harness_device inner, const struct mock_policy *policy);
void mock_close(struct harness_device *mock); // leaves the inner device open

#endif
