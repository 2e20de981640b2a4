// SPDX-License-Identifier: Apache-2.0
// Recognizes the kind of a file from its first bytes, for error messages. [any thread]
#ifndef LS_BASE_FILE_KIND_H
#define LS_BASE_FILE_KIND_H

#include <stdbool.h>
#include <stddef.h>

#define LS_FILE_KIND_BYTES 16 // that ls_file_kind reads

// "a ZIP archive, as .keras and .npz are", from the first `bytes` of a file; NULL: unknown kind.
const char *ls_file_kind(const void *start, size_t bytes);

// Whether it begins as files that Keras writes do: HDF5 or ZIP.
bool ls_file_is_keras(const void *start, size_t bytes);

#endif
