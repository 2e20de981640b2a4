// SPDX-License-Identifier: Apache-2.0
// The names of element types.
#ifndef LS_BASE_DTYPE_H
#define LS_BASE_DTYPE_H

#include <stdint.h>

// "float32"; "unknown" for what is no enum ls_dtype. [any thread]
const char *ls_dtype_name(uint32_t dtype);

#endif
