// SPDX-License-Identifier: Apache-2.0
// The files that a command writes.
#ifndef LS_TOOLS_OUTPUT_FILES_H
#define LS_TOOLS_OUTPUT_FILES_H

#include "tools/arguments.h"

// No two of these options (ends with NULL) may name one file, however it is written: "a.json" and "./a.json", or by a
// link. LS_USAGE, logged.
LS_STATUS output_files_check(const struct arguments *arguments, const char *const *names);

#endif
