// SPDX-License-Identifier: Apache-2.0
// A fit whose workers change: the survivors of a loss and new workers form the next generation, the
// most advanced of them says where the training is, and all go on from there, as from a checkpoint
// that is in memory. The global batch stays; the shares are divided anew. Private to train/. [main
// thread]
#ifndef LS_TRAIN_ELASTIC_H
#define LS_TRAIN_ELASTIC_H

#include "core/train/fit.h"

// Whether this worker has come to a training under way.
bool ls_elastic_is_new(const struct ls_fit *fit);

// Whether the fit goes on after train() has returned `status`: a worker was lost, or new ones wait,
// and the training is elastic.
bool ls_elastic_may_go_on(const struct ls_fit *fit, enum ls_status status);

// The model comes to the host as the first replica has it, what each replica has of its own is kept
// in memory, the session is closed, and the workers form anew.
LS_STATUS ls_elastic_leave(struct ls_fit *fit);

// All workers of the new generation, new ones too: the model and the fit become those of the most
// advanced. Then the fit is planned, and prepared, again.
LS_STATUS ls_elastic_go_on(struct ls_fit *fit);

// When it is prepared: callbacks and replicas get what they had. A replica that was lost takes with
// it what it owed to the sums of gradients. One that had not completed the step that others have
// does not know what of it they have got, and drops it; the report counts both. A new one owes
// nothing.
LS_STATUS ls_elastic_begin(struct ls_fit *fit);

// Then, new workers too: a strategy with rounds counts what is in none of them (rounds.h), and the
// report says how many examples are left out. Nothing before the first change.
LS_STATUS ls_elastic_regroup(struct ls_fit *fit);

#endif
