// SPDX-License-Identifier: Apache-2.0
// What each rank has of its own beside the parameters and the optimizer that a model has: residuals
// of a filter (--compress), and under rounds (core/plugin/rounds.h) weights, optimizer states and
// notes. In a checkpoint they are tensors of one dimension beside the model's, float32:
//
//   round/weights_R      of rank R, between two rounds; the model's are those of the last round
//   round/optimizer_K_R  state K of rank R, from rank 1 on: the model's are those of rank 0
//   round/notes_R        of the strategy on rank R
//   round/momentum, round/difference  of all ranks
//   filter/residual_R    what rank R still owes to the sums of gradients
//   round/residual_R     with rounds: to the sums of differences
//   filter/shared_KEY    what a filter keeps, equal on all ranks (core/train/filter_memory.h)
//   ranks/variables      1 for each parameter of the graph that has values in them; 0: it is frozen
//
// Values of variables are plain, one variable after the other in the order of the graph, so that
// they are the same for any device and batch. In the same world a training goes on to the bit. In
// another one each rank takes an equal part of the sum of all residuals, and ranks that were not
// there take the rest from rank 0. Rounds need the same variables, else one begins (a warning); of
// residuals a variable that was frozen has none. Only one rank's values at a time are moved, and
// those of all ranks are together only in the image of a file.
//
// A session may be NULL, after one was closed: it has no such values, and nothing is done. [main
// thread, while the replicas rest]
#ifndef LS_TRAIN_RANK_VALUES_H
#define LS_TRAIN_RANK_VALUES_H

#include "core/model/checkpoint_file.h"
#include "core/train/session.h"

// Whether workers have to meet for a checkpoint of them.
bool ls_rank_values_over_workers(const struct ls_session *session);

// Adds those of all ranks to `image`. All workers call it at the same place of the training; those
// that write no file give NULL. One that has no memory, or that should write and cannot (`able`
// false), tells the others: all of them return LS_OUT_OF_MEMORY then, not logged.
LS_STATUS ls_rank_values_save(struct ls_session *session, bool able,
                              struct ls_checkpoint_image *image);
// Before the first step. What the file does not have begins anew; what it has and nobody needs is
// left out (a warning). LS_BAD_INPUT, logged: the file is damaged.
LS_STATUS ls_rank_values_resume(struct ls_session *session, const struct ls_safetensors *file);

// Those of this worker's replicas, in memory, from one session to the next, without other workers:
// adds them to `kept` as those of ranks 0, 1 and so on. LS_OUT_OF_MEMORY, not logged.
LS_STATUS ls_rank_values_keep(struct ls_session *session, struct ls_checkpoint_image *kept);
// Before the first step of the next session, which has as many replicas. `rounds` false: variables
// were set meanwhile, so a round begins.
LS_STATUS ls_rank_values_put_back(struct ls_session *session, bool rounds,
                                  const struct ls_checkpoint_image *kept);
// The same when the workers have changed: what is the same on all ranks stays as it is.
LS_STATUS ls_rank_values_put_back_own(struct ls_session *session,
                                      const struct ls_checkpoint_image *kept);
// Adds to `image` what was kept and is the same on all ranks: it belongs to the state that the worker
// has, and goes with it to the others. `own`: and what its replicas have, for a file of this worker
// alone, from which a training goes on as if the others had been lost then.
LS_STATUS ls_rank_values_share(const struct ls_checkpoint_image *kept, bool own,
                               struct ls_checkpoint_image *image);
// Whether it is such a file, and has rounds.
bool ls_rank_values_are_shared(const struct ls_safetensors *file);
// The worker has taken the state of another one from `file`, and what is the same on all ranks with
// it, so that it can hand both on, should others be lost before the next session goes on from them.
// What was kept of its own replicas stays.
LS_STATUS ls_rank_values_adopt(const struct ls_safetensors *file, struct ls_checkpoint_image *kept);
// With rounds: the notes of the replica whose weights of the round these are. NULL: nothing was kept.
const float *ls_rank_values_furthest(const struct ls_checkpoint_image *kept);

#endif
