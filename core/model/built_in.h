// SPDX-License-Identifier: Apache-2.0
// A built-in model takes the shape of its input and the number of its outputs from the data.
// [main thread]
#ifndef LS_MODEL_BUILT_IN_H
#define LS_MODEL_BUILT_IN_H

#include "core/data/data.h"
#include "core/formats/safetensors.h"

#include <jansson.h>

// Changes the JSON of the model. Where the examples have as many elements as its input, they are
// reshaped and the input stays. The number of outputs is that of `weights`, which are loaded next;
// else that of the classes, or of the targets, of the data. Either may be NULL.
void ls_built_in_take(json_t *model, const struct ls_data *data,
                      const struct ls_safetensors *weights);

#endif
