// SPDX-License-Identifier: Apache-2.0
// Lists of sizes as users write them: "8,64K,1M", or "8:1M", which doubles from one to the other;
// K, M and G are KiB, MiB and GiB.
#ifndef LS_TOOLS_SIZE_LIST_H
#define LS_TOOLS_SIZE_LIST_H

#include "core/base/status.h"

#include <stddef.h>
#include <stdint.h>

#define SIZES_MOST 64

struct size_list {
    uint64_t bytes[SIZES_MOST]; // in the order written
    size_t count;
};

// LS_USAGE, logged with the option's name.
LS_STATUS size_list_parse(const char *option, const char *text, uint64_t least, uint64_t most,
                          struct size_list *out);

// "64 MiB", "1000 B": exact. Returns `text`.
const char *size_text(uint64_t bytes, char *text, size_t room);

#endif
