// SPDX-License-Identifier: Apache-2.0
// Parameters and optimizer states on their way to the replicas and back. These are the states that
// each replica holds parts of alone (core/plugin/sharding.h).
// While they lie on several workers, all of these make the same calls in the same order. The way to
// the replicas and back leads through gradients, which nobody needs between steps. [main thread,
// while the replicas rest, unless a comment says otherwise]
#ifndef LS_TRAIN_SESSION_VALUES_H
#define LS_TRAIN_SESSION_VALUES_H

#include "core/train/session.h"

// Copies the model's parameters and, where it has it, optimizer state to the replicas and stores.
LS_STATUS ls_session_give_weights(struct ls_session *session);

bool ls_session_spreads_states(const struct ls_session *session);
bool ls_session_spreads_over_workers(const struct ls_session *session);

// The replica takes its parts of a state of the model's. [replica thread]
LS_STATUS ls_states_give(const struct ls_session *session, uint32_t index, uint32_t state);

// Whether all workers are able: nobody is to wait for one that has no memory for a copy.
// LS_OUT_OF_MEMORY, not logged, on all of them where one is not; `unable` is the first such worker,
// and without one the number of workers.
LS_STATUS ls_states_agree(const struct ls_session *session, bool able, uint32_t *unable);
// Brings a state of one parameter, by its index in the graph, to the gradients of the first replica.
// `wanted`: false: this worker only sends what it holds.
LS_STATUS ls_states_collect(const struct ls_session *session, uint32_t parameter, uint32_t state,
                            bool wanted);

#endif
