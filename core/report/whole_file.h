// SPDX-License-Identifier: Apache-2.0
// A file that is either complete or unchanged: written beside its path, then renamed. [main thread]
#ifndef LS_REPORT_WHOLE_FILE_H
#define LS_REPORT_WHOLE_FILE_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stdio.h>

struct ls_whole_file {
    FILE *stream;
    char *path;
    char *temporary;
    const char *scope;
};

// `scope` (borrowed) is what messages name: "--json". LS_FAILED, logged.
LS_STATUS ls_whole_file_open(const char *scope, const char *path, struct ls_whole_file *out);
// Flushes the file and gives it its name. LS_FAILED, logged. In both cases the file is closed.
LS_STATUS ls_whole_file_commit(struct ls_whole_file *file);
void ls_whole_file_discard(struct ls_whole_file *file); // takes a zeroed or committed one

// Whether two paths name one file, which need not be there yet, also by links. [any thread]
bool ls_whole_file_same(const char *a, const char *b);

#endif
