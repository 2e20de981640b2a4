// SPDX-License-Identifier: Apache-2.0
// What `lockstep compare` found as one HTML page: the verdict in words, then speed, time of a step, curves, deviation,
// scaling, buckets, the full table, and how it was measured. The page needs no network and no script, follows the
// light or dark theme of the reader, and can be read from 400 to 1400 pixels; it is well-formed XML too. [main thread]
#ifndef LS_TOOLS_COMPARE_PAGE_H
#define LS_TOOLS_COMPARE_PAGE_H

#include "core/base/status.h"

#include <jansson.h>

// `comparison` is the object that `lockstep compare --report` writes (borrowed). Missing and null
// fields are left out or shown as a dash; a run without result is a row with the reason. The file is
// either complete or unchanged.
// LS_FAILED, logged under --html; LS_OUT_OF_MEMORY.
LS_STATUS ls_compare_page_write(const char *path, const json_t *comparison);

#endif
