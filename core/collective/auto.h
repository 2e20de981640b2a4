// SPDX-License-Identifier: Apache-2.0
// `auto`: a collective that is another one for every size. Each call gets the schedule of the candidate whose
// simulated time on a given network is least (core/collective/simulate.h). Everything that decides is equal on all ranks
// (operation, world, count, network, candidates), and the decision is made once for all ranks of a process.
#ifndef LS_COLLECTIVE_AUTO_H
#define LS_COLLECTIVE_AUTO_H

#include "core/collective/network.h"
#include "core/plugin/collective.h"

#include <stddef.h>

struct ls_candidate {
    const struct ls_plugin *plugin; // kind collective
    const struct ls_host *host;
};

struct ls_auto;

// Candidates that do not do all types and reductions, or do not promise equal bits, are left out; LS_UNAVAILABLE,
// logged, when none is left. `plugin` and `host` are those of `auto` as the loader opened it. [main thread]
LS_STATUS ls_auto_create(const struct ls_plugin *plugin, const struct ls_host *host,
                         const struct ls_candidate *candidates, size_t count,
                         const struct ls_network *network, struct ls_auto **out);
void ls_auto_destroy(struct ls_auto *choice); // takes NULL; nothing may draw its schedules any more

// What a communicator is opened with, in place of a collective's own. Owned by `choice`.
const struct ls_plugin *ls_auto_plugin(const struct ls_auto *choice);
const struct ls_host *ls_auto_host(const struct ls_auto *choice);

// Which candidate a call gets (its rank does not matter), by name; of equal ones the first. LS_UNSUPPORTED, logged,
// when no candidate does the call; LS_BAD_INPUT when the network does not fit the world. [any thread]
LS_STATUS ls_auto_choose(struct ls_auto *choice, const struct ls_collective_call *call,
                         const char **name);

// Who draws the schedule of a call that is made through `collective` and its host: that one, or what `auto` chose for
// it. After the schedule was drawn. [any thread]
const char *ls_auto_name(const struct ls_plugin *collective, const struct ls_collective_call *call);

#endif
