// SPDX-License-Identifier: Apache-2.0
// What a metric plugin implements: it composes (core/plugin/compose.h) predictions and targets into
// numbers for each example, which the host sums over all examples of all replicas; and it computes
// the metric from these sums.
//
// --metrics=NAME[:option=value,...] finds metric-NAME.so. Metrics use the same targets as the
// model's loss. A metric that cannot be computed from up to LS_METRIC_SUMS sums over single
// examples (a median, a rank correlation) cannot be such a plugin. Metrics ignore the weights of
// examples.
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

    // Composes values[0] to values[sums - 1], each (B,...), float32. Sum i adds, over all examples,
    // the mean of the example's elements of values[i]. Pure. [main thread]
    int32_t (*build)(const struct ls_host *host, const struct ls_composer *composer,
                     struct ls_tensor *predictions, struct ls_tensor *targets,
                     struct ls_tensor **values);

    // Optional. Computes the metric. NULL: it is sums[0] / examples, a mean. Within a batch each
    // replica sums in float32; everything beyond is summed in float64. [any thread]
    double (*result)(const struct ls_host *host, const double *sums, double examples);
};

#ifdef __cplusplus
}
#endif

#endif
