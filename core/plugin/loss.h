// SPDX-License-Identifier: Apache-2.0
// What a loss plugin implements: predictions and targets, composed (core/plugin/compose.h) into the
// loss of each example. The host weights, averages, scales and reduces it as any other loss, and
// differentiates it.
//
// --loss=NAME[:option=value,...] finds loss-NAME.so, and takes a path, too.
#ifndef LS_PLUGIN_LOSS_H
#define LS_PLUGIN_LOSS_H

#include "core/plugin/compose.h"

#ifdef __cplusplus
extern "C" {
#endif

// What targets a loss or a metric compares predictions with; they travel as uint32_t.
enum ls_targets {
    LS_TARGETS_NUMBERS = 0, // F32, as target_shape says
    // I32, a class for each position: the shape of predictions without the last dimension
    LS_TARGETS_CLASSES = 1,
};

// The table of a loss plugin.
struct ls_loss_interface {
    uint32_t struct_size;
    uint32_t targets; // enum ls_targets

    // The loss of an example is the mean over its elements of `values`, which is (B,...), float32.
    // `predictions` are the model's first output, float32, also of a model in halves. Pure.
    // [main thread]
    int32_t (*build)(const struct ls_host *host, const struct ls_composer *composer,
                     struct ls_tensor *predictions, struct ls_tensor *targets,
                     struct ls_tensor **values);

    // Optional, of LS_TARGETS_NUMBERS: the shape of targets where it is not that of predictions.
    // `dims` begins with LS_BATCH and has the predictions' `*ndims` dimensions; to be changed.
    // [main thread]
    int32_t (*target_shape)(const struct ls_host *host, uint32_t *ndims, int64_t dims[LS_MAX_DIMS]);
};

#ifdef __cplusplus
}
#endif

#endif
