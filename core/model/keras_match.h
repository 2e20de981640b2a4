// SPDX-License-Identifier: Apache-2.0
// Which tensor of a file of Keras is which parameter of a model. [main thread]
#ifndef LS_MODEL_KERAS_MATCH_H
#define LS_MODEL_KERAS_MATCH_H

#include "core/formats/safetensors.h"
#include "core/model/model.h"

#define LS_NO_TENSOR SIZE_MAX

// Finds the tensor of each parameter of the model's graph: its index in `file`, or LS_NO_TENSOR
// for a constant, which Keras's layer does not have. `known` is set for tensors that belong to a
// layer of the model, though to no parameter. LS_BAD_INPUT, logged with `path`, where a variable
// is missing.
LS_STATUS ls_keras_match(const struct ls_model *model, const char *path,
                         const struct ls_safetensors *file, size_t *out, bool *known);

#endif
