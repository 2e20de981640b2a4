// SPDX-License-Identifier: Apache-2.0
// Replaces a file as a whole: the new file is written beside the path, flushed to disk and renamed,
// so that the path names either the old file or the complete new one. [any thread]
#ifndef LS_FORMATS_REPLACEMENT_H
#define LS_FORMATS_REPLACEMENT_H

#include "core/base/status.h"

struct ls_replacement {
    const char *scope; // borrowed: the scope of messages
    const char *path; // borrowed
    char *temporary;
    int fd; // for reading and writing
};

// LS_FAILED, logged, when no file can be created in the folder of `path`.
LS_STATUS ls_replacement_open(const char *scope, const char *path, struct ls_replacement *out);
// Flushes the new file and gives it its name. On LS_FAILED (logged) the old file is unchanged. In
// both cases the replacement is finished.
LS_STATUS ls_replacement_commit(struct ls_replacement *replacement);
// Removes the new file. Takes a zeroed or a committed one.
void ls_replacement_discard(struct ls_replacement *replacement);

// Logs "PATH: cannot WHAT: <errno>", and that the file was left as it was where there is one, and
// returns LS_FAILED. Only `scope` and `path` are looked at.
LS_STATUS ls_replacement_fail(const struct ls_replacement *replacement, const char *what);

#endif
