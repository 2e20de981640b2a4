// SPDX-License-Identifier: Apache-2.0
// ls_train_on_batch and its relatives, which may fail without a message here (core/api/calls.c).
// [main thread]
#ifndef LS_LOOPS_ON_BATCH_H
#define LS_LOOPS_ON_BATCH_H

#include "core/model/model.h"

LS_STATUS ls_train_batch(struct ls_model *model, const struct ls_batch_arrays *batch,
                         struct ls_metrics *out);
LS_STATUS ls_test_batch(struct ls_model *model, const struct ls_batch_arrays *batch,
                        struct ls_metrics *out);
LS_STATUS ls_predict_batch(struct ls_model *model, const struct ls_array *inputs,
                           uint32_t input_count, float *out);

#endif
