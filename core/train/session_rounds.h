// SPDX-License-Identifier: Apache-2.0
// Rounds in checkpoints, where replicas have weights of their own between two of them
// (core/plugin/rounds.h). The model of such a file is that of the last round with the optimizer of
// rank 0, so that any strategy can go on from it. What else the ranks have stands beside it, plain,
// one variable after the other in the order of the graph:
//
//   round/weights_R      of rank R
//   round/optimizer_K_R  state K of rank R, from rank 1 on
//   round/notes_R        of the strategy on rank R
//   round/momentum, round/difference  of all ranks
//   round/variables      1 for each variable that those have, 0 for one that was frozen
//
// [main thread, while the replicas rest]
#ifndef LS_TRAIN_SESSION_ROUNDS_H
#define LS_TRAIN_SESSION_ROUNDS_H

#include "core/model/checkpoint_file.h"
#include "core/train/session.h"

// A session may be NULL, after one was closed: it has none. Then ls_session_take_rounds does
// nothing.
bool ls_session_has_rounds(const struct ls_session *session);
// Adds them to `image`. All workers call it at the same place of the training; those that write no
// file give NULL, and one that should and cannot says so by `able`: then all of them are told
// LS_OUT_OF_MEMORY, not logged. Nothing without rounds.
LS_STATUS ls_session_take_rounds(struct ls_session *session, bool able,
                                 struct ls_checkpoint_image *image);
// Before the first step. A file that has no rounds, or those of other variables (a warning), begins
// one; ranks that it does not have take those of rank 0. LS_BAD_INPUT, logged: the file is damaged.
LS_STATUS ls_session_give_rounds(struct ls_session *session, const struct ls_safetensors *file);

#endif
