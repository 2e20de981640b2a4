// SPDX-License-Identifier: Apache-2.0
// Limits of JSON that comes from files. A parser needs up to 110 bytes of memory for each byte of a
// hostile text ("[{},{},..."), so the values are counted before it begins. [any thread]
#ifndef LS_BASE_JSON_SIZE_H
#define LS_BASE_JSON_SIZE_H

#include <stdbool.h>
#include <stddef.h>

#define LS_JSON_MOST_MIB 64 // of a model
#define LS_JSON_MOST_VALUES 4000000 // lists, objects and what is in them: at most 1 GiB when parsed

// Whether a text has at most LS_JSON_MOST_VALUES. It need not be well-formed.
bool ls_json_fits(const char *text, size_t bytes);

#endif
