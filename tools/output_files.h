// SPDX-License-Identifier: Apache-2.0
// The files that a command writes.
#ifndef LS_TOOLS_OUTPUT_FILES_H
#define LS_TOOLS_OUTPUT_FILES_H

#include "tools/arguments.h"

// Checks that no two options whose values are written (`writes` of the table; of --callback the
// options `filename` and `log_dir`) name the same file, even if they spell it differently
// ("a.json", "./a.json") or use a link, and that none of them is a file that the command reads: the
// model, weights or, among the options of a dataset, its files. LS_USAGE, logged.
LS_STATUS output_files_check(const struct arguments *arguments);

#endif
