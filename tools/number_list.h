// SPDX-License-Identifier: Apache-2.0
// Lists of numbers as users write them: "1-64,128"; where a world is known, also "world", "world-1", "world+1".
#ifndef LS_TOOLS_NUMBER_LIST_H
#define LS_TOOLS_NUMBER_LIST_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct listed_number {
    int64_t value;
    bool of_world; // `value` is added to the world
};

struct number_list {
    struct listed_number *numbers; // in the order written
    size_t count;
};

// LS_USAGE, logged with the option's name. `with_world`: whether the word world is allowed.
LS_STATUS number_list_parse(const char *option, const char *text, int64_t least, int64_t most,
                            bool with_world, struct number_list *out);
void number_list_finish(struct number_list *list); // takes a zeroed one

// Never negative.
uint64_t listed_number_get(const struct listed_number *number, uint32_t world);

// "1-4, 6, 8-9" of increasing numbers; cut with "..." where it does not fit. Returns `text`.
const char *number_ranges_text(const uint32_t *numbers, size_t count, char *text, size_t bytes);

#endif
