// SPDX-License-Identifier: Apache-2.0
// Weights and models of Keras in files. [main thread]
#ifndef LS_MODEL_WEIGHTS_H
#define LS_MODEL_WEIGHTS_H

#include "core/base/status.h"
#include "core/formats/safetensors.h"
#include "lockstep.h"

#include <jansson.h>
#include <stdbool.h>

// Opens a file of weights, by what it holds. `keras`: it is one of Keras, as ls_keras_file_read
// hands it over. Errors are logged.
LS_STATUS ls_weights_open(const char *path, bool *keras, struct ls_safetensors **out);

// What a file has for a model. Zeroed: nothing.
struct ls_found_weights {
    const char *path; // for messages
    const struct ls_safetensors *file;
    bool keras;
    size_t *tensors; // of each parameter; LS_NO_TENSOR: none
    struct ls_class_names *names;
};
// Finds the model's parameters in an opened file, which stays open until `out` is finished,
// whatever the status is. LS_BAD_INPUT, logged: one is missing, or has another shape.
LS_STATUS ls_weights_match(const struct ls_model *model, const char *path,
                           const struct ls_safetensors *file, bool keras,
                           struct ls_found_weights *out);
// The model's weights, which are there (ls_model_need_weights), become those. It has no session.
LS_STATUS ls_weights_take(struct ls_model *model, struct ls_found_weights *found);
void ls_found_weights_finish(struct ls_found_weights *found); // takes a zeroed one

struct ls_value_source;
// Writes weights, by parameter of the graph, in the format that the suffix of the name says; where
// that is written in turn, `weights` may be NULL, and they come from `source` one after the other.
// Errors are logged.
LS_STATUS ls_weights_write(const struct ls_model *model, float *const *weights,
                           const struct ls_value_source *source, const char *path);
bool ls_weights_written_in_turn(const char *path); // safetensors

// Reads a model: its JSON, and of a file of Keras that holds weights, too, `*weights` (else NULL).
LS_STATUS ls_read_model(const char *path, json_t **model, struct ls_safetensors **weights);

// Whether weights can be written to `path`, as far as one can know before; errors are logged under
// `scope`: LS_USAGE for a name of another format, LS_UNAVAILABLE where there is no program for it.
LS_STATUS ls_weights_check_path(const char *scope, const char *path);

#endif
