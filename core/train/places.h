// SPDX-License-Identifier: Apache-2.0
// Where installed data lies. [any thread]
#ifndef LS_TRAIN_PLACES_H
#define LS_TRAIN_PLACES_H

#include "core/base/status.h"

// The path of a model: a built-in name, or a file (a name with '/' or ending in ".json"). Built-in models are
// looked for in LOCKSTEP_MODEL_PATH, then beside the program in the build tree or the installed prefix.
// Unknown names are LS_USAGE (nearest suggested), logged. Freed by the caller.
LS_STATUS ls_model_find(const char *name, char **out);

#endif
