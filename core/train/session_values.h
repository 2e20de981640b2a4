// SPDX-License-Identifier: Apache-2.0
// Parameters and optimizer states on their way to the replicas and back, where each replica may hold
// parts of them alone (core/plugin/sharding.h). While these lie on several workers, all of these
// make the same calls in the same order. What all of train/ uses is in session.h. [main thread,
// while the replicas rest]
#ifndef LS_TRAIN_SESSION_VALUES_H
#define LS_TRAIN_SESSION_VALUES_H

#include "core/train/session.h"

// Copies the model's parameters and, where it has it, optimizer state to the replicas and stores.
LS_STATUS ls_session_give_weights(struct ls_session *session);

bool ls_session_spreads_parameters(const struct ls_session *session);
// Parameters or states.
bool ls_session_spreads_over_workers(const struct ls_session *session);
// Whether replicas hold parts of what the host does not have.
bool ls_session_ahead_in_parts(const struct ls_session *session, enum ls_take what);

// Where parameters are in parts, each replica's own become the averages that its optimizer keeps of
// them.
LS_STATUS ls_session_take_averages(struct ls_session *session);

// Whether all workers are able: nobody is to wait for one that has no memory for a copy.
// LS_OUT_OF_MEMORY, not logged, on all of them where one is not; `unable` is the first such worker,
// and without one the number of workers.
LS_STATUS ls_session_agree(const struct ls_session *session, bool able, uint32_t *unable);
// The same before what is in parts is read one by one. LS_FAILED (logged) when a parameter in parts
// is not finite, on all workers.
LS_STATUS ls_session_begin_reading(struct ls_session *session, bool able, uint32_t *unable);
// A parameter (`state` -1) or a state of one, by its index in the graph, of the first replica, or
// of all that hold parts of it. `out`: NULL: this worker only sends what it holds.
LS_STATUS ls_session_read(struct ls_session *session, uint32_t parameter, int state, float *out);

// A parameter of parts that the host does not have, once steps have ended. LS_FAILED (logged): it is
// not finite.
LS_STATUS ls_session_read_parameter(struct ls_session *session, uint32_t parameter, float *out);
// Each replica takes its part of the values, which all workers give, once steps have ended.
LS_STATUS ls_session_write_parameter(struct ls_session *session, uint32_t parameter,
                                     const float *values);
// After a failure: says so where parts lie on several workers, and these have not made the same
// calls. Takes NULL.
void ls_session_say_who_reads(const struct ls_session *session, const char *scope);

// All workers copy or take what is in parts at the same place of the training. One that needs no
// copy, where others write a file, lends what it holds; one that should write it and cannot declines,
// and says why itself: then none is made. Both do nothing where nothing is in parts elsewhere.
LS_STATUS ls_session_lend(struct ls_session *session, enum ls_take what);
void ls_session_decline(struct ls_session *session, enum ls_take what);

#endif
