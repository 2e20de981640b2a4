// SPDX-License-Identifier: Apache-2.0
#include "core/base/dtype.h"

#include <stddef.h>

const char *ls_dtype_name(uint32_t dtype)
{
    static const char *const names[] = {"unknown",  "float32", "float64", "float16",
                                        "bfloat16", "int32",   "int64",   "uint8"};
    return names[dtype < sizeof(names) / sizeof(names[0]) ? dtype : 0];
}
