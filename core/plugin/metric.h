// SPDX-License-Identifier: Apache-2.0
// What a metric plugin implements: predictions and targets, composed (core/plugin/compose.h) into
// numbers for each example, which the host adds up over all examples of all replicas; and the value
// of the metric as a function of these sums.
//
// --metrics=NAME[:option=value,...] finds metric-NAME.so. Metrics go by the same targets as the
// model's loss. What cannot be said by up to LS_METRIC_SUMS sums of numbers of single examples (a
// median, a rank correlation) cannot be such a metric. Weights of examples do not count in metrics.
#ifndef LS_PLUGIN_METRIC_H
#define LS_PLUGIN_METRIC_H

#include "core/plugin/loss.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LS_METRIC_SUMS 8 // at most

// The table of a metric plugin.
struct ls_metric_interface {
    uint32_t struct_size;
    uint32_t targets; // enum ls_targets: must be those of the loss
    uint32_t sums; // how many; 0 is 1
    uint32_t upwards; // 1: more is better, for callbacks with mode=auto

    // Fills values[0] to values[sums - 1], each (B,...), float32. Sum i is over the examples of the
    // mean over the example's elements of values[i]. Pure. [main thread]
    int32_t (*build)(const struct ls_host *host, const struct ls_composer *composer,
                     struct ls_tensor *predictions, struct ls_tensor *targets,
                     struct ls_tensor **values);

    // Optional: the metric. NULL: sums[0] / examples, a mean. Sums were added in float32 on each
    // replica within a batch, and in float64 beyond. [any thread]
    double (*result)(const struct ls_host *host, const double *sums, double examples);
};

#ifdef __cplusplus
}
#endif

#endif
