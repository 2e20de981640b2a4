// SPDX-License-Identifier: Apache-2.0
// The libraries of this process in which kernels compute.
#ifndef LS_BASE_LIBRARIES_H
#define LS_BASE_LIBRARIES_H

#include <stddef.h>

// "libm 9f86d081, libdnnl.so.2 5feceb66, ...": those that are loaded, by name, each with the
// beginning of the identity that its linker gave it ("none": it has none). So two machines have the
// same text only if they have the same builds. [any thread]
void ls_libraries_text(char *text, size_t bytes);

#endif
