// SPDX-License-Identifier: Apache-2.0
// The file of the PJRT plugin, where the option `plugin` does not name it.
#ifndef LS_DEVICE_PJRT_FIND_H
#define LS_DEVICE_PJRT_FIND_H

#include "core/plugin/plugin.h"

#include <stdbool.h>

// Writes the file that is found first: TPU_LIBRARY_PATH; libtpu.so, where the machine has TPUs;
// xla_cuda_plugin.so. The last two are looked for in the Python packages of VIRTUAL_ENV,
// CONDA_PREFIX, PYTHONPATH, of the python3 in PATH and of the system, libtpu.so also in /usr/lib
// and /lib. False: there is none. [any thread]
bool pjrt_find_plugin(char *out, size_t bytes);

// What to do where none was found, in words.
extern const char pjrt_none_found[];

#endif
