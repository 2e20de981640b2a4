// SPDX-License-Identifier: Apache-2.0
// Reads the list of strategies and the target.
#include "tools/compare/list.h"

#include "core/base/log.h"
#include "core/base/options.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EXAMPLE "--strategies=one-device,ring,mirrored:collective=tree"

// ---- Strategies ----

static bool continues_options(const char *part, size_t length)
{
    const char *equals = memchr(part, '=', length);
    const char *colon = memchr(part, ':', length);
    return equals && (!colon || equals < colon);
}

const char *compare_item_filter(const char *item)
{
    for (const char *plus = strchr(item, '+'); plus; plus = strchr(plus + 1, '+'))
        if (!isdigit((unsigned char)plus[1]) && plus[1] != '.')
            return plus + 1;
    return NULL;
}

char *compare_item_strategy(const char *item)
{
    const char *filter = compare_item_filter(item);
    return filter ? strndup(item, (size_t)(filter - item) - 1) : strdup(item);
}

// "b:x=1" and "y=2" make "b:x=1,y=2"; the first option of an item, or of its filter, follows a
// colon.
static enum ls_status append_options(struct compare_list *list, const char *part, size_t length)
{
    if (list->count == 0) {
        ls_error("--strategies", "'%.*s' is an option, but no strategy precedes it: " EXAMPLE,
                 (int)length, part);
        return LS_USAGE;
    }
    char *item = list->items[list->count - 1];
    const size_t before = strlen(item);
    char *longer = realloc(item, before + length + 2);
    if (!longer)
        return LS_OUT_OF_MEMORY;
    const char *filter = compare_item_filter(longer);
    longer[before] = strchr(filter ? filter : longer, ':') ? ',' : ':';
    memcpy(longer + before + 1, part, length);
    longer[before + 1 + length] = '\0';
    list->items[list->count - 1] = longer;
    return LS_OK;
}

static enum ls_status append_item(struct compare_list *list, const char *part, size_t length)
{
    if (list->count == COMPARE_STRATEGIES_MOST) {
        ls_error("--strategies", "more than %d strategies; compare fewer at a time",
                 COMPARE_STRATEGIES_MOST);
        return LS_USAGE;
    }
    list->items[list->count] = strndup(part, length);
    if (!list->items[list->count])
        return LS_OUT_OF_MEMORY;
    list->count++;
    return LS_OK;
}

static enum ls_status check_twice(const struct compare_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        for (size_t j = 0; j < i; j++)
            if (strcmp(list->items[i], list->items[j]) == 0) {
                ls_error("--strategies", "'%s' is given twice", list->items[i]);
                return LS_USAGE;
            }
    return LS_OK;
}

enum ls_status compare_list_parse(const char *text, struct compare_list *out)
{
    struct compare_list list = {0};
    enum ls_status status = LS_OK;
    for (const char *part = text; !status && part;) {
        const size_t length = strcspn(part, ",");
        if (length == 0) {
            ls_error("--strategies", "%s: " EXAMPLE,
                     *text ? "the list has an empty item" : "the list is empty");
            status = LS_USAGE;
        } else if (continues_options(part, length)) {
            status = append_options(&list, part, length);
        } else {
            status = append_item(&list, part, length);
        }
        part = part[length] ? part + length + 1 : NULL;
    }
    if (!status)
        status = check_twice(&list);
    if (status)
        compare_list_finish(&list);
    else
        *out = list;
    return status;
}

void compare_list_finish(struct compare_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i]);
    *list = (struct compare_list){0};
}

// ---- Target ----

static const char *const metrics[] = {"loss", "accuracy", "val_loss", "val_accuracy", NULL};

const char *compare_metric_text(enum compare_metric metric)
{
    return metric == COMPARE_NO_METRIC ? NULL : metrics[metric - COMPARE_LOSS];
}

static bool is_accuracy(enum compare_metric metric)
{
    return metric == COMPARE_ACCURACY || metric == COMPARE_VAL_ACCURACY;
}

static enum ls_status find_metric(const char *name, enum compare_metric *out)
{
    for (int i = 0; metrics[i]; i++)
        if (strcmp(metrics[i], name) == 0) {
            *out = (enum compare_metric)(COMPARE_LOSS + i);
            return LS_OK;
        }
    const char *nearest = ls_nearest(name, metrics);
    ls_error("--target", "unknown metric '%s'; %s%s", name,
             nearest ? "did you mean " : "available: ",
             nearest ? nearest : "loss, accuracy, val_loss, val_accuracy");
    return LS_USAGE;
}

enum ls_status compare_target_parse(const char *text, struct compare_target *out)
{
    struct compare_target target = {0};
    const size_t length = strcspn(text, ":");
    char *name = strndup(text, length);
    if (!name)
        return LS_OUT_OF_MEMORY;
    enum ls_status status = find_metric(name, &target.metric);
    free(name);
    if (status)
        return status;
    const bool number = text[length] == ':' && ls_parse_number(text + length + 1, &target.value);
    if (!number || !isfinite(target.value) || target.value < 0 ||
        (is_accuracy(target.metric) && target.value > 1)) {
        ls_error("--target", "'%s': expected a metric and its value%s, as in val_accuracy:0.88",
                 text, is_accuracy(target.metric) ? " from 0 to 1" : "");
        return LS_USAGE;
    }
    *out = target;
    return LS_OK;
}

bool compare_target_reached(const struct compare_target *target, double value)
{
    return is_accuracy(target->metric) ? value >= target->value : value <= target->value;
}
