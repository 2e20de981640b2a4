// SPDX-License-Identifier: Apache-2.0
// Finds JSON files that are installed with Lockstep: the built-in models. [any thread]
#ifndef LS_RUN_RESOURCE_FILES_H
#define LS_RUN_RESOURCE_FILES_H

#include "core/base/status.h"

#define LS_RESOURCES_MOST 64

// A folder of files of one kind, without sub-folders.
struct ls_resource_folder {
    const char *what; // "model"
    const char *folder; // in the build tree
    const char *variable; // of the environment: another folder
    const char *from_program, *from_library; // installed, by its path from either
    const char *else_what; // what a name may be beside one of these: "a file of your own"
};

// The path of `name`: a built-in name, or a file (with '/' or ending in ".json"). Built-in ones are
// looked for in the folder that the variable names, then beside the program in the build tree or
// the installed prefix. Unknown names are LS_USAGE (nearest suggested), logged under `scope`
// ("--network"). Freed by the caller.
LS_STATUS ls_resource_find(const struct ls_resource_folder *kind, const char *scope,
                           const char *name, char **out);

// Likewise a model, in LOCKSTEP_MODEL_PATH; logged under "--model".
LS_STATUS ls_model_find(const char *name, char **out);

// The names of the built-in models, sorted; ends with NULL. `names` has room for LS_RESOURCES_MOST + 1;
// the caller frees them.
LS_STATUS ls_model_list(char **names);

#endif
