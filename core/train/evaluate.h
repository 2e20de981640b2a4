// SPDX-License-Identifier: Apache-2.0
// Evaluation and prediction by themselves. Private to train/. [main thread]
#ifndef LS_TRAIN_EVALUATE_H
#define LS_TRAIN_EVALUATE_H

#include "core/base/status.h"
#include "lockstep.h"

// As ls_evaluate, ls_predict and ls_predict_to_file, but may fail without a message (calls.c).
LS_STATUS ls_evaluate_model(struct ls_model *model, struct ls_data *data, uint64_t batch,
                            struct ls_scores *out);
LS_STATUS ls_predict_model(struct ls_model *model, struct ls_data *data, uint64_t batch,
                           float *out);
LS_STATUS ls_predict_model_to_file(struct ls_model *model, struct ls_data *data, uint64_t batch,
                                   const char *path);
// As ls_set_callbacks, of tables that have `bytes` each in the program.
LS_STATUS ls_take_model_callbacks(struct ls_model *model, const struct ls_callbacks *callbacks,
                                  size_t bytes, uint32_t count);

#endif
