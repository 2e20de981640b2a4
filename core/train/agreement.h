// SPDX-License-Identifier: Apache-2.0
// What several workers must have alike before they do something together: else their replicas would drift apart, or they
// would wait for each other in vain. Each call is made by all workers; LS_USAGE, logged with both values on all of them,
// where they differ. With one worker each returns at once. Private to train/. [main thread]
#ifndef LS_TRAIN_AGREEMENT_H
#define LS_TRAIN_AGREEMENT_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct ls_data;
struct ls_fit;
struct ls_model;

// Model, data and batch; `scores`: also loss and metrics.
LS_STATUS ls_agree_on_evaluation(struct ls_model *model, const struct ls_data *data,
                                 uint64_t global_batch, bool scores);
// Also optimizer, order and weights, of a custom loop. `shuffle` NULL: data that is handed out once.
LS_STATUS ls_agree_on_loop(struct ls_model *model, const struct ls_data *data,
                           uint64_t global_batch, const char *shuffle);
// Also all options of a fit that change what is trained, with the callbacks that are plugins.
LS_STATUS ls_agree_on_fit(struct ls_fit *fit);

// That all workers have loaded the same weights, from `file` (NULL: none, on any worker), as the
// model has them now.
LS_STATUS ls_agree_on_loaded_weights(struct ls_model *model, const char *file);

#endif
