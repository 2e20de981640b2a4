// SPDX-License-Identifier: Apache-2.0
// What a file of another kind is, by its first bytes. [any thread]
#ifndef LS_BASE_FILE_KIND_H
#define LS_BASE_FILE_KIND_H

#include <stddef.h>

#define LS_FILE_KIND_BYTES 16 // as many are looked at

// "a ZIP archive, as .keras and .npz are", from the first `bytes` of a file; NULL: not known.
const char *ls_file_kind(const void *start, size_t bytes);

#endif
