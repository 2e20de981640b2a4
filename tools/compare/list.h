// SPDX-License-Identifier: Apache-2.0
// Parses the text options of `lockstep compare`: the list of strategies, and the target.
#ifndef LS_TOOLS_COMPARE_LIST_H
#define LS_TOOLS_COMPARE_LIST_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stddef.h>

#define COMPARE_STRATEGIES_MOST 32

// "a,b:x=1,y=2,c+f:z=3" in its items: "a", "b:x=1,y=2", "c+f:z=3", which is c with filter f.
struct compare_list {
    char *items[COMPARE_STRATEGIES_MOST];
    size_t count;
};

// A part with '=' and no ':' before it continues the options of the item before it. LS_USAGE, logged: an empty list or
// item, options without an item, the same item twice, too many.
LS_STATUS compare_list_parse(const char *text, struct compare_list *out);
void compare_list_finish(struct compare_list *list); // takes a zeroed one

// Where the filter of an item begins: "int8" of "ring+int8"; NULL: it has none. A '+' before a
// digit belongs to a number.
const char *compare_item_filter(const char *item);
// Its strategy alone; for free(). NULL: no memory.
char *compare_item_strategy(const char *item);

enum compare_metric {
    COMPARE_NO_METRIC,
    COMPARE_LOSS,
    COMPARE_ACCURACY,
    COMPARE_VAL_LOSS,
    COMPARE_VAL_ACCURACY,
};

// "val_accuracy:0.88"
struct compare_target {
    enum compare_metric metric;
    double value;
};

// LS_USAGE, logged: an unknown metric (the message suggests the nearest), or an impossible value.
LS_STATUS compare_target_parse(const char *text, struct compare_target *out);
const char *compare_metric_text(enum compare_metric metric); // "val_accuracy"; NULL: none
bool compare_target_reached(const struct compare_target *target, double value); // never by NaN

#endif
