// SPDX-License-Identifier: Apache-2.0
// What a layer plugin implements: one function that composes operations (core/plugin/compose.h).
//
// The plugin's name is the class name of the layer: a model's file names layer-RMSNorm.so by
// {"class_name": "RMSNorm"}, or by "registered_name": "package>RMSNorm". The options of the plugin
// are the keys of the layer's "config", each with its type and default; a list or an object comes
// as JSON in an option of type "text". The host handles name, trainable, dtype and the regularizers
// of weights ("kernel_regularizer" of the weight "kernel"), so the plugin has no options for them.
#ifndef LS_PLUGIN_LAYER_H
#define LS_PLUGIN_LAYER_H

#include "core/plugin/compose.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LS_LAYER_MOST_OUTPUTS 8 // of one call

// The table of a layer plugin.
struct ls_layer_interface {
    uint32_t struct_size;
    uint32_t least_inputs, most_inputs; // tensors of one call; both 0: exactly one
    uint32_t reserved;

    // Composes one call of the layer. `outputs` has LS_LAYER_MOST_OUTPUTS places, all NULL; a layer
    // with one output fills in the first. host->option has the options; nothing is kept between
    // calls. Pure: the same options and shapes give the same operations. [main thread]
    int32_t (*build)(const struct ls_host *host, const struct ls_composer *composer,
                     struct ls_tensor *const *inputs, uint32_t input_count,
                     struct ls_tensor **outputs);
};

#ifdef __cplusplus
}
#endif

#endif
