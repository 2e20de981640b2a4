// SPDX-License-Identifier: Apache-2.0
// Weights of a model in files. Private to train/. [main thread]
#ifndef LS_TRAIN_WEIGHTS_H
#define LS_TRAIN_WEIGHTS_H

#include "core/base/status.h"
#include "lockstep.h"

// As ls_load_weights and ls_save_weights, but may fail without a message (calls.c).
LS_STATUS ls_read_weights(struct ls_model *model, const char *path);
LS_STATUS ls_write_weights(struct ls_model *model, const char *path);

#endif
