// SPDX-License-Identifier: Apache-2.0
// The checkpoints of a fit: when one is written, under which name, which are kept, and from which
// one a training goes on. Private to train/. [main thread]
#ifndef LS_TRAIN_CHECKPOINTS_H
#define LS_TRAIN_CHECKPOINTS_H

#include "core/base/status.h"
#include "core/model/checkpoint_file.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ls_fit;
struct ls_checkpoints;

// Looks at the folder. With `resume` the model becomes that of the newest good checkpoint, and
// fit->resumed.state its state. LS_USAGE, logged: options that make no sense; a folder that holds
// checkpoints, without `resume`.
LS_STATUS ls_checkpoints_open(struct ls_fit *fit);
// Waits for what is being written. Takes a fit without checkpoints.
void ls_checkpoints_close(struct ls_fit *fit);

// All workers go on from the same, and know the training by the same name. For every fit but that of
// a new worker, which is told.
LS_STATUS ls_checkpoints_agree(struct ls_fit *fit);

// The fit becomes the one that `file` and `state` describe, before it is planned; it closes `file`
// in ls_checkpoints_begin. Also for a fit that keeps no checkpoints. Errors are logged.
LS_STATUS ls_checkpoints_go_on_from(struct ls_fit *fit, const char *path,
                                    struct ls_safetensors *file, const json_t *state);
// Fills `image` with all that another process needs to go on; `ended` as in ls_fit_save_state.
LS_STATUS ls_checkpoints_take(struct ls_fit *fit, bool ended, struct ls_checkpoint_image *image);
// This worker may have become the chief, which writes them.
LS_STATUS ls_checkpoints_follow_chief(struct ls_fit *fit);

// After on_train_begin: callbacks get what they had kept.
LS_STATUS ls_checkpoints_begin(struct ls_fit *fit);

// The most steps that a segment may have.
uint64_t ls_checkpoints_most_steps(const struct ls_fit *fit);
// Write one where it is due. What fails is logged, and the training goes on: the last good one
// stays. Failures are those of taking the weights.
LS_STATUS ls_checkpoints_after_segment(struct ls_fit *fit);
// Where the training ends within an epoch: before its callbacks hear of an end, because one that
// goes on ends the epoch later.
LS_STATUS ls_checkpoints_within_epoch(struct ls_fit *fit);
LS_STATUS ls_checkpoints_after_epoch(struct ls_fit *fit);
LS_STATUS ls_checkpoints_at_end(struct ls_fit *fit);

// ---- checkpoint_name.c ----

#define LS_CHECKPOINT_SUFFIX ".safetensors"

// Whether the training has a metric of this name, of its own or of its validation.
bool ls_checkpoint_knows_metric(const struct ls_fit *fit, const char *name);
// What a checkpoint written now is called, with the suffix, and with the generation where that is
// not 0: "checkpoint-00000021.generation1.safetensors". False: the template makes no sense.
bool ls_checkpoint_name(const struct ls_fit *fit, const char *name, uint64_t generation, char *out,
                        size_t bytes);
// Whether a name is that of a file of Keras, which no checkpoint is.
bool ls_checkpoint_is_keras(const char *name);
// Whether a file of this name may be one of the template's.
bool ls_checkpoint_is_name(const char *name, const char *file);

// ---- resume.c: the state of a fit ----

// Where the fit is; `ended`: the epoch under way has had its validation and its callbacks. NULL: no
// memory.
json_t *ls_fit_save_state(struct ls_fit *fit, bool ended);
// The steps, the order and the first epoch of fit->resumed.state, before the fit is planned.
// LS_BAD_INPUT, LS_USAGE, logged: it is damaged; the training has another batch, seed or data.
LS_STATUS ls_fit_resume_steps(struct ls_fit *fit);
// Where the checkpoint has this callback: the first one of its name, or the second one, as it is in
// the options. The number of callbacks that it has: it does not have this one.
size_t ls_fit_find_callback(const struct ls_fit *fit, uint32_t index);
// Losses and epochs, once there is a history, and the sums of the epoch under way.
LS_STATUS ls_fit_resume_history(struct ls_fit *fit);

#endif
