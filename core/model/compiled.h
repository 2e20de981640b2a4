// SPDX-License-Identifier: Apache-2.0
// What a model's own file says about its compilation. [main thread]
#ifndef LS_MODEL_COMPILED_H
#define LS_MODEL_COMPILED_H

#include "core/graph/layer.h"
#include "core/data/dataset.h"
#include "lockstep.h"

// Fills what is NULL in `options` from the model's file, where that says it, and logs what; what is JSON, an object of Keras as
// Keras writes it, becomes a text. `out` owns the texts.
LS_STATUS ls_compile_fill(const char *source, const json_t *model, struct ls_own_parts *parts,
                          struct ls_compile_options *options, struct ls_compile_config *out);

// The shape of an example of the first input; ndims 0: there is none.
void ls_model_input_shape(const struct ls_dataset_info *info, struct ls_shape *out);

// For a caller that has other processes train the model: logs all that keeps model `name` from being
// trained on `dataset`, and fills `options` as above. Reads no examples. `plugin_path` may be NULL.
LS_STATUS ls_model_look(const char *plugin_path, const char *name, const char *dataset,
                        struct ls_compile_options *options, struct ls_compile_config *out);
// What ls_run_data_open would open, from headers only.
LS_STATUS ls_data_look(const char *plugin_path, const char *dataset, enum ls_split split,
                       struct ls_dataset_info *out);

#endif
