// SPDX-License-Identifier: Apache-2.0
// Keeps the examples that a dataset makes on demand: in memory, or in a file that later trainings
// use, too.
#ifndef LS_DATA_CACHE_H
#define LS_DATA_CACHE_H

#include "core/data/dataset.h"

// Makes all examples now, with a thread for each core, and replaces `*dataset` by one that has them
// in memory. On failure `*dataset` is as it was. [any thread]
LS_STATUS ls_cache_in_memory(const char *scope, struct ls_dataset **dataset);

// Replaces `*dataset` by one that reads its examples from `path`. The file is made now, where there
// is none, or one of other examples: `key` says which they are, and a changed `identity` of the
// dataset counts, too. A file that is no cache is not overwritten: LS_BAD_INPUT. [any thread]
LS_STATUS ls_cache_in_file(const char *scope, const char *path, uint64_t key,
                           struct ls_dataset **dataset);

#endif
