// SPDX-License-Identifier: Apache-2.0
// Finds what is installed as data: built-in models and networks. [any thread]
#ifndef LS_TRAIN_PLACES_H
#define LS_TRAIN_PLACES_H

#include "core/base/status.h"

// A model: a built-in name, or a file. Built-in ones are looked for in LOCKSTEP_MODEL_PATH, then beside the program in
// the build tree or the installed prefix. Unknown names are LS_USAGE (nearest suggested), logged under "--model".
// Freed by the caller.
LS_STATUS ls_model_find(const char *name, char **out);

// A network likewise, in LOCKSTEP_NETWORK_PATH; logged under `scope` ("--network").
LS_STATUS ls_network_find(const char *scope, const char *name, char **out);

#endif
