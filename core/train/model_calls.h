// SPDX-License-Identifier: Apache-2.0
// Calls that replace what a model is, or write it. What its replicas have learnt comes to the host
// before, and its session ends where it would be another model's. They may fail without a message
// (core/api/calls.c). [main thread]
#ifndef LS_TRAIN_MODEL_CALLS_H
#define LS_TRAIN_MODEL_CALLS_H

#include "core/model/checkpoint_file.h"
#include "core/model/model.h"

// As ls_compile, ls_load_weights, ls_save_weights, ls_model_save and ls_model_load.
LS_STATUS ls_compile_model(struct ls_model *model, const struct ls_compile_options *options);
LS_STATUS ls_read_weights(struct ls_model *model, const char *path);
LS_STATUS ls_write_weights(struct ls_model *model, const char *path);
// On a worker that writes no weights, where another one writes them: it sends what it holds of them.
LS_STATUS ls_lend_weights(struct ls_model *model);
LS_STATUS ls_save_model(struct ls_model *model, const char *path);
LS_STATUS ls_load_model(struct ls_model *model, const char *path);

// From here on each example has a weight in the loss, until the model is compiled anew.
LS_STATUS ls_model_need_weighted(struct ls_model *model);

// Copies the model with its optimizer, from the replicas where they are ahead of the host.
// LS_FAILED, logged: replicas differ, or a parameter is not finite. [while the replicas rest]
// The copy may be one with a source, which the session is: it is written while the replicas rest.
// After a failure, and where it is not written, ls_session_decline.
LS_STATUS ls_checkpoint_take(struct ls_model *model, struct ls_checkpoint_image *image);
// The model becomes that of an opened checkpoint. Errors as of ls_checkpoint_match.
LS_STATUS ls_checkpoint_restore(struct ls_model *model, const char *path,
                                struct ls_safetensors *file, const json_t *state);

#endif
