// SPDX-License-Identifier: Apache-2.0
// .keras archives: a ZIP with the model's JSON, its weights as HDF5, and metadata. [main thread]
#ifndef LS_TOOLS_KERAS_FILES_ARCHIVE_H
#define LS_TOOLS_KERAS_FILES_ARCHIVE_H

#include "core/formats/safetensors.h"
#include "tools/keras-files/contents.h"

// Adds the texts of the archive to `contents`, and opens its weights as a file in memory. Nothing
// is written to disk, whatever names the archive has. False: contents->why says why.
bool archive_open(int fd, struct contents *contents, int *weights);

// Writes an archive of the HDF5 file `weights` and the texts of `saved`.
bool archive_write(int fd, int weights, const struct ls_safetensors *saved,
                   struct contents *contents);

#endif
