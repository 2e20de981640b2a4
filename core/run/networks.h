// SPDX-License-Identifier: Apache-2.0
// Finds a network by name or file. [any thread]
#ifndef LS_RUN_NETWORKS_H
#define LS_RUN_NETWORKS_H

#include "core/topology/network.h"

// `text` is the name of a network that comes with Lockstep, or a file (with '/' or ending in
// ".json"). Names are looked for in LOCKSTEP_NETWORK_PATH, then beside the program in the build
// tree or the installed prefix; an unknown one is LS_USAGE (nearest suggested), logged under
// `scope` ("--network") with what `text` may be beside a name (`else_what`). Else as
// ls_network_read.
#define LS_NETWORK_ELSE "a file of your own"
LS_STATUS ls_network_open(const char *scope, const char *text, const char *else_what,
                          struct ls_network *out);

#endif
