// SPDX-License-Identifier: Apache-2.0
// Reads a file of Keras in a process that is of no other use. [main thread]
#ifndef LS_TOOLS_KERAS_FILES_KERAS_READ_H
#define LS_TOOLS_KERAS_FILES_KERAS_READ_H

#include "tools/keras-files/contents.h"

// Limits this process for ever, to `seconds` of processor time among others, then hands over in
// file `output` what file `input` holds. After hdf5_prepare(). False: contents->why says why.
bool keras_read(int input, int output, uint32_t seconds, struct contents *contents);

#endif
