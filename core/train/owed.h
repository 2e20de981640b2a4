// SPDX-License-Identifier: Apache-2.0
// What replicas still owe to the sums of gradients under a filter (--compress), in checkpoints.
// Private to train/. A session may be NULL, after one was closed: nothing is owed then. [main
// thread, while the replicas rest]
#ifndef LS_TRAIN_OWED_H
#define LS_TRAIN_OWED_H

#include "core/model/checkpoint_file.h"
#include "core/train/fit.h"

// Whether workers have to meet for it: a checkpoint then needs all of them.
bool ls_owed_over_workers(const struct ls_session *session);
// Of all ranks, one after the other; `*out` stays NULL where there is no filter. All workers call
// it; the caller frees it.
LS_STATUS ls_owed_collect(const struct ls_session *session, float **out);
// Adds it to a checkpoint, and says in `state`, the state of the fit, what it is.
LS_STATUS ls_owed_save(const struct ls_session *session, const float *owed,
                       struct ls_checkpoint_image *image, json_t *state);
// From the checkpoint that the fit goes on from. The same ranks go on to the bit; of another number
// of ranks each takes an equal part of all that was owed. LS_BAD_INPUT, logged: it is damaged.
LS_STATUS ls_owed_resume(struct ls_fit *fit);

#endif
