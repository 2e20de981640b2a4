// SPDX-License-Identifier: Apache-2.0
// What a loss plugin implements: it composes (core/plugin/compose.h) predictions and targets into
// the loss of each example. The host weights, averages, scales, reduces and differentiates it as
// any other loss.
//
// --loss=NAME[:option=value,...] finds loss-NAME.so; NAME may also be a path.
#ifndef LS_PLUGIN_LOSS_H
#define LS_PLUGIN_LOSS_H

#include "core/plugin/compose.h"

#ifdef __cplusplus
extern "C" {
#endif

// The targets that a loss or a metric compares predictions with; they travel as uint32_t.
enum ls_targets {
    LS_TARGETS_NUMBERS = 0, // F32, in the shape of target_shape
    // I32, a class for each position: the shape of predictions without the last dimension
    LS_TARGETS_CLASSES = 1,
};

// The table of a loss plugin.
struct ls_loss_interface {
    uint32_t struct_size;
    uint32_t targets; // enum ls_targets

    // Composes `values`, (B,...), float32; the loss of an example is the mean over its elements of
    // them. `predictions` are the model's first output, which is float32 even if the model computes
    // in halves. Pure. [main thread]
    int32_t (*build)(const struct ls_host *host, const struct ls_composer *composer,
                     struct ls_tensor *predictions, struct ls_tensor *targets,
                     struct ls_tensor **values);

    // Optional, for LS_TARGETS_NUMBERS: the shape of targets, if it is not that of predictions. At
    // first `*ndims` and `dims` are those of the predictions, beginning with LS_BATCH; the function
    // changes them. [main thread]
    int32_t (*target_shape)(const struct ls_host *host, uint32_t *ndims, int64_t dims[LS_MAX_DIMS]);
};

#ifdef __cplusplus
}
#endif

#endif
