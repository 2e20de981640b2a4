// SPDX-License-Identifier: Apache-2.0
// The replica threads of a worker, kept for the whole run: the main thread hands all of them one
// function and waits until every one has returned. [main thread]
#ifndef LS_REPLICA_GROUP_H
#define LS_REPLICA_GROUP_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct ls_group;

// `failed` is called, once for each replica whose function does not return LS_OK, so that it can
// wake the others (on that replica's thread). Messages name replica i by its rank, first_rank + i.
LS_STATUS ls_group_create(uint32_t first_rank, uint32_t count,
                          void (*failed)(void *context, enum ls_status status), void *context,
                          struct ls_group **out);
void ls_group_destroy(struct ls_group *group);

// When a replica has failed and another does not come back for so long after, this is logged and
// `stuck` called, once a round, with the rank of the first of them (on the main thread, which then
// goes on waiting): its thread hangs in a kernel or a plugin, and nothing that it uses can be
// freed. Without it they are waited for without end.
void ls_group_set_patience(struct ls_group *group, uint64_t nanoseconds,
                           void (*stuck)(void *context, uint32_t rank));

// When a replica fails, its error is the last that is written: where devices work together, what
// goes wrong on one goes wrong on all, and once more when they are closed. Not where the others go
// on without it.
void ls_group_set_first_error_only(struct ls_group *group, bool on);
bool ls_group_has_logged(const struct ls_group *group); // takes NULL; between rounds

// Runs `function(context, index)` on every replica thread, from index 0. The worst of their
// answers: what another replica's failure caused (LS_ABORTED) counts less than its cause.
LS_STATUS ls_group_run(struct ls_group *group,
                       enum ls_status (*function)(void *context, uint32_t index), void *context);

#endif
