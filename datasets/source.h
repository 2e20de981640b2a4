// SPDX-License-Identifier: Apache-2.0
// The bytes of a file, plain or gzip (told by its first bytes, not by its name), read from front to back.
// [any thread, one at a time]
#ifndef LS_DATASETS_SOURCE_H
#define LS_DATASETS_SOURCE_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ls_source;

// LS_BAD_INPUT, logged under `scope`: missing, unreadable, a directory or anything but a regular file.
LS_STATUS ls_source_open(const char *scope, const char *path, struct ls_source **out);
void ls_source_close(struct ls_source *source); // takes NULL

// Reads until `bytes` are there or the file ends; `got` says how many. LS_BAD_INPUT, logged: the gzip stream is
// damaged, breaks off, has a wrong check sum, or is followed by something else.
LS_STATUS ls_source_read(struct ls_source *source, void *buffer, size_t bytes, size_t *got);

bool ls_source_is_gzip(const struct ls_source *source);
// The most bytes that can come out of the whole file, so that a lying header does not make us allocate the world.
uint64_t ls_source_most_bytes(const struct ls_source *source);
uint64_t ls_source_file_bytes(const struct ls_source *source); // as it is on the disk

#endif
