// SPDX-License-Identifier: Apache-2.0
// As ls_get_variable, ls_set_variable and ls_get_gradient, but may fail without a message (calls.c). Private to
// train/.
#ifndef LS_TRAIN_VARIABLES_H
#define LS_TRAIN_VARIABLES_H

#include "core/train/session.h"

// LS_USAGE (logged): replicas are in their steps.
LS_STATUS ls_variables_check_resting(const struct ls_model *model);
// The weights on the host become those of the replicas, also between the steps of a fit.
LS_STATUS ls_bring_variables(struct ls_model *model);
LS_STATUS ls_read_variable(struct ls_model *model, uint32_t index, float *out);
LS_STATUS ls_write_variable(struct ls_model *model, uint32_t index, const float *values);
LS_STATUS ls_read_gradient(struct ls_model *model, uint32_t index, float *out);

#endif
