// SPDX-License-Identifier: Apache-2.0
// The steps of replicas that do not wait for each other. Each goes through its own shares; a step is counted when the
// shares of all replicas were trained. The shares of a replica that is lost are trained by the others, beside their own.
// Private to train/.
#ifndef LS_TRAIN_ASYNC_STEPS_H
#define LS_TRAIN_ASYNC_STEPS_H

#include "core/base/status.h"

#include <stdint.h>

struct ls_fit;
struct ls_async_steps;

// Before the first step. [main thread]
LS_STATUS ls_async_steps_create(struct ls_fit *fit, struct ls_async_steps **out);
void ls_async_steps_destroy(struct ls_async_steps *steps); // takes NULL

// The steps of fit->segment, as far as they are this replica's. LS_OK for a replica that was lost, while there are
// others. [replica thread]
LS_STATUS ls_async_steps_run(struct ls_async_steps *steps, uint32_t index);

#endif
