// SPDX-License-Identifier: Apache-2.0
// Threads that share the items of a piece of work, such as the examples of a batch.
#ifndef LS_DATA_CREW_H
#define LS_DATA_CREW_H

#include "core/base/status.h"

#include <stdatomic.h>
#include <stdint.h>

struct ls_crew;

// Worker 0 is whoever calls ls_crew_run; the others are threads. `workers` is at least 1.
LS_STATUS ls_crew_create(uint32_t workers, struct ls_crew **out);
void ls_crew_destroy(struct ls_crew *crew); // takes NULL
uint32_t ls_crew_workers(const struct ls_crew *crew);

// Calls `work` once for each item, 0 to count - 1; workers take the items in this order. After a
// failure no further item is begun. Status and log are those of the first item that fails, so they
// do not depend on the number of workers. LS_ABORTED: `*stop` became 1; NULL: nobody stops it.
// [one thread at a time]
LS_STATUS ls_crew_run(struct ls_crew *crew,
                      enum ls_status (*work)(void *context, uint32_t worker, uint64_t item),
                      void *context, uint64_t count, const _Atomic uint32_t *stop);

// The same with a crew of as many threads as there are cores, for this call alone.
LS_STATUS ls_crew_run_once(enum ls_status (*work)(void *context, uint32_t worker, uint64_t item),
                           void *context, uint64_t count);

#endif
