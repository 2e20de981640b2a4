// SPDX-License-Identifier: Apache-2.0
// What the calls of lockstep.h do, for those that can fail; arguments and results are theirs. Where memory is short, or a
// plugin fails without a word, these may return without one, too: calls.c then says it. Private to train/. [main thread]
#ifndef LS_TRAIN_CALLS_H
#define LS_TRAIN_CALLS_H

#include "core/base/status.h"
#include "lockstep.h"

LS_STATUS ls_open_run(const struct ls_run_options *options, struct ls_run **out);
LS_STATUS ls_open_data(const char *text, const char *split, struct ls_data **out);
LS_STATUS ls_create_sequential(struct ls_run *run, const char *name, const struct ls_layer *layers,
                               struct ls_model **out);
LS_STATUS ls_open_model(struct ls_run *run, const char *name, const struct ls_data *data,
                        struct ls_model **out);
LS_STATUS ls_compile_model(struct ls_model *model, const struct ls_compile_options *options);
LS_STATUS ls_fit_model(struct ls_model *model, struct ls_data *train,
                       const struct ls_fit_options *options);
LS_STATUS ls_evaluate_model(struct ls_model *model, struct ls_data *data, uint64_t batch,
                            struct ls_scores *out);
LS_STATUS ls_read_weights(struct ls_model *model, const char *path);
LS_STATUS ls_write_weights(struct ls_model *model, const char *path);

#endif
