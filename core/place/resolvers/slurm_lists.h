// SPDX-License-Identifier: Apache-2.0
// The two notations of Slurm's variables. [any thread]
#ifndef LS_PLACE_RESOLVERS_SLURM_LISTS_H
#define LS_PLACE_RESOLVERS_SLURM_LISTS_H

#include "core/place/resolve.h"

// Host `index` of a list such as "n[1-2,07-09],login" or "rack[0-1]n[1-4]", and how many hosts
// there are. An `index` beyond them leaves `host` empty. False: it is not such a list, or has more
// than LS_MOST_WORKERS hosts.
bool ls_slurm_host(const char *list, uint32_t index, char host[LS_HOST_BYTES], uint32_t *count);

// The tasks of node `node` in a list such as "2(x2),1" (2, 2 and 1), how many there are altogether,
// and how many nodes. False: it is not such a list, or has more than LS_MOST_WORKERS of them.
bool ls_slurm_tasks(const char *list, uint32_t node, uint32_t *tasks, uint32_t *total,
                    uint32_t *nodes);

#endif
