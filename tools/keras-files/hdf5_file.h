// SPDX-License-Identifier: Apache-2.0
// HDF5 files of Keras: read into contents, written from safetensors. [main thread]
#ifndef LS_TOOLS_KERAS_FILES_HDF5_FILE_H
#define LS_TOOLS_KERAS_FILES_HDF5_FILE_H

#include "core/formats/safetensors.h"
#include "tools/keras-files/contents.h"

// The library says nothing by itself, loads no plugins and locks no files. Before its first use.
bool hdf5_prepare(void);

// Reads what the headers of file `fd` say into `contents`, hands it over in file `out`, then reads
// the data. False: contents->why says why.
bool hdf5_read(int fd, int out, struct contents *contents);

// Writes tensors "GROUP/vars/N" and the names of LS_KERAS_NAMES. False: contents->why says why.
bool hdf5_write(int fd, const struct ls_safetensors *saved, struct contents *contents);

#endif
