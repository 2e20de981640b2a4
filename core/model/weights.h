// SPDX-License-Identifier: Apache-2.0
// Weights and models of Keras in files. [main thread]
#ifndef LS_MODEL_WEIGHTS_H
#define LS_MODEL_WEIGHTS_H

#include "core/base/status.h"
#include "core/formats/safetensors.h"
#include "lockstep.h"

#include <jansson.h>
#include <stdbool.h>

// As ls_load_weights and ls_save_weights, but may fail without a message (calls.c). Files are
// read by what they hold, and written by the suffix of their names.
LS_STATUS ls_read_weights(struct ls_model *model, const char *path);
LS_STATUS ls_write_weights(struct ls_model *model, const char *path);

// The model's weights become those of an opened file, whose `path` is for messages. `keras`: it is
// one of Keras, as ls_keras_file_read hands it over.
LS_STATUS ls_take_weights(struct ls_model *model, const char *path,
                          const struct ls_safetensors *file, bool keras);

// Reads a model: its JSON, and of a file of Keras that holds weights, too, `*weights` (else NULL).
LS_STATUS ls_read_model(const char *path, json_t **model, struct ls_safetensors **weights);

// Whether weights can be written to `path`, as far as one can know before; errors are logged under
// `scope`: LS_USAGE for a name of another format, LS_UNAVAILABLE where there is no program for it.
LS_STATUS ls_weights_check_path(const char *scope, const char *path);

#endif
