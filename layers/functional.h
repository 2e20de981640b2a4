// SPDX-License-Identifier: Apache-2.0
// What layers/ shares to make JSON of models that are written in C. [main thread]
#ifndef LS_LAYERS_FUNCTIONAL_H
#define LS_LAYERS_FUNCTIONAL_H

#include "core/graph/layer.h"

// The Keras "config" of a layer. The caller drops it with json_decref.
LS_STATUS ls_layer_config(const struct ls_layer *layer, json_t **out);

#endif
