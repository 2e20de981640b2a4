// SPDX-License-Identifier: Apache-2.0
// Reads lists of numbers and ranges.
#include "tools/number_list.h"

#include "core/base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBERS_MOST 100000

static enum ls_status refuse(const char *option, const char *text, int64_t least, int64_t most,
                             bool with_world)
{
    ls_error("usage", "%s=%s: expected numbers or ranges from %" PRId64 " to %" PRId64 "%s", option,
             text, least, most,
             with_world ? ", or world, world-1, world+1 and the like, with commas between"
                        : " with commas between, as in 1-8,16");
    return LS_USAGE;
}

static bool read_integer(const char **text, int64_t *out)
{
    char *end;
    if (**text < '0' || **text > '9')
        return false;
    errno = 0;
    const long long value = strtoll(*text, &end, 10);
    if (errno)
        return false;
    *text = end;
    *out = value;
    return true;
}

static enum ls_status append(struct number_list *list, struct listed_number number)
{
    if ((list->count & (list->count - 1)) == 0) {
        const size_t capacity = list->count ? 2 * list->count : 1;
        void *larger = realloc(list->numbers, capacity * sizeof(*list->numbers));
        if (!larger)
            return LS_OUT_OF_MEMORY;
        list->numbers = larger;
    }
    list->numbers[list->count++] = number;
    return LS_OK;
}

// One item; `text` is moved behind it. LS_USAGE is not logged yet.
static enum ls_status read_item(const char **text, int64_t least, int64_t most, bool with_world,
                                struct number_list *list)
{
    int64_t first = 0, last;
    if (with_world && strncmp(*text, "world", 5) == 0) {
        *text += 5;
        const char sign = **text;
        if ((sign == '+' || sign == '-') && (++*text, !read_integer(text, &first) || first > most))
            return LS_USAGE;
        return append(list, (struct listed_number){sign == '-' ? -first : first, true});
    }
    if (!read_integer(text, &first))
        return LS_USAGE;
    last = first;
    if (**text == '-' && (++*text, !read_integer(text, &last)))
        return LS_USAGE;
    if (first < least || last > most || last < first ||
        last - first > NUMBERS_MOST - (int64_t)list->count)
        return LS_USAGE;
    enum ls_status status = LS_OK;
    for (int64_t number = first; !status && number <= last; number++)
        status = append(list, (struct listed_number){number, false});
    return status;
}

enum ls_status number_list_parse(const char *option, const char *text, int64_t least, int64_t most,
                                 bool with_world, struct number_list *out)
{
    struct number_list list = {0};
    const char *at = text;
    enum ls_status status = read_item(&at, least, most, with_world, &list);
    while (!status && *at == ',') {
        at++;
        status = read_item(&at, least, most, with_world, &list);
    }
    if (!status && *at)
        status = LS_USAGE;
    if (status) {
        number_list_finish(&list);
        return status == LS_USAGE ? refuse(option, text, least, most, with_world) : status;
    }
    *out = list;
    return LS_OK;
}

void number_list_finish(struct number_list *list)
{
    free(list->numbers);
    *list = (struct number_list){0};
}

uint64_t listed_number_get(const struct listed_number *number, uint32_t world)
{
    const int64_t value = number->of_world ? (int64_t)world + number->value : number->value;
    return value > 0 ? (uint64_t)value : 0;
}

const char *number_ranges_text(const uint32_t *numbers, size_t count, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < count;) {
        size_t last = i;
        char item[40];
        while (last + 1 < count && numbers[last + 1] == numbers[last] + 1)
            last++;
        if (last > i)
            snprintf(item, sizeof(item), "%s%u-%u", i ? ", " : "", numbers[i], numbers[last]);
        else
            snprintf(item, sizeof(item), "%s%u", i ? ", " : "", numbers[i]);
        if (used + strlen(item) + 5 > bytes) {
            snprintf(text + used, bytes - used, ", ...");
            break;
        }
        used += (size_t)snprintf(text + used, bytes - used, "%s", item);
        i = last + 1;
    }
    return text;
}
