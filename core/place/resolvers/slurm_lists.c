// SPDX-License-Identifier: Apache-2.0
// Expands Slurm's lists without making them: hosts are counted, and the one that is asked for is
// written.
#include "core/place/resolvers/slurm_lists.h"

#include "core/place/resolvers/resolver.h"

#include <stdio.h>
#include <string.h>

#define MOST_PARTS 16 // texts and brackets of one pattern
#define MOST_NUMBER 999999999

// A piece of "rack[0-1]n[1-4]": a text, or what is between brackets.
struct part {
    const char *begin, *end;
    uint32_t count; // of the numbers between brackets; 1: a text
    bool brackets;
};

// "7" or "07-09".
struct range {
    uint32_t first, last;
    int width; // of the first number, which may begin with zeros
};

// The range at `text`, which ends at a comma or at `end`.
static bool read_range(const char *text, const char *end, struct range *out, const char **next)
{
    const char *comma = memchr(text, ',', (size_t)(end - text));
    const char *stop = comma ? comma : end;
    const char *dash = memchr(text, '-', (size_t)(stop - text));
    const char *first_end = dash ? dash : stop;
    if (!ls_digits_parse(text, (size_t)(first_end - text), 0, MOST_NUMBER, &out->first))
        return false;
    out->last = out->first;
    if (dash && !ls_digits_parse(dash + 1, (size_t)(stop - dash - 1), 0, MOST_NUMBER, &out->last))
        return false;
    out->width = first_end - text > 9 ? 10 : (int)(first_end - text);
    *next = comma ? comma + 1 : NULL;
    return out->first <= out->last && first_end - text <= 10;
}

// How many numbers are between the brackets; 0: something else is.
static uint32_t count_numbers(const struct part *part)
{
    uint64_t count = 0;
    struct range range;
    const char *next = part->begin;
    while (next) {
        if (!read_range(next, part->end, &range, &next))
            return 0;
        count += range.last - range.first + 1;
        if (count > LS_MOST_WORKERS)
            return 0;
    }
    return (uint32_t)count;
}

// Reads a pattern up to a comma outside of brackets. Returns its end, or NULL.
static const char *read_pattern(const char *text, struct part *parts, size_t *part_count,
                                uint32_t *host_count)
{
    uint64_t count = 1;
    *part_count = 0;
    while (*text && *text != ',') {
        struct part *part = &parts[*part_count];
        if ((*part_count)++ == MOST_PARTS)
            return NULL;
        part->brackets = *text == '[';
        part->begin = text + part->brackets;
        part->end = part->begin + strcspn(part->begin, part->brackets ? "]" : "[],");
        if (part->brackets ? *part->end != ']' : *part->end == ']')
            return NULL;
        part->count = part->brackets ? count_numbers(part) : 1;
        count *= part->count;
        if (count == 0 || count > LS_MOST_WORKERS)
            return NULL;
        text = part->end + part->brackets;
    }
    *host_count = (uint32_t)count;
    return *part_count > 0 ? text : NULL;
}

static void write_number(const struct part *part, uint32_t index, char *text, size_t bytes)
{
    struct range range;
    const char *next = part->begin;
    while (next && read_range(next, part->end, &range, &next)) {
        if (index <= range.last - range.first) {
            snprintf(text, bytes, "%0*u", range.width, range.first + index);
            return;
        }
        index -= range.last - range.first + 1;
    }
}

// The last brackets count fastest.
static bool write_host(const struct part *parts, size_t part_count, uint32_t index, char *host)
{
    uint32_t numbers[MOST_PARTS];
    char text[2 * LS_HOST_BYTES] = "";
    size_t used = 0;
    for (size_t i = part_count; i-- > 0;) {
        numbers[i] = index % parts[i].count;
        index /= parts[i].count;
    }
    for (size_t i = 0; i < part_count && used < LS_HOST_BYTES; i++) {
        if (parts[i].brackets)
            write_number(&parts[i], numbers[i], text + used, sizeof(text) - used);
        else
            snprintf(text + used, sizeof(text) - used, "%.*s", (int)(parts[i].end - parts[i].begin),
                     parts[i].begin);
        used += strlen(text + used);
    }
    return ls_host_parse(text, used, host);
}

bool ls_slurm_host(const char *list, uint32_t index, char host[LS_HOST_BYTES], uint32_t *count)
{
    struct part parts[MOST_PARTS];
    size_t part_count;
    uint32_t hosts, total = 0;
    host[0] = '\0';
    for (;; list++) {
        char ignored[LS_HOST_BYTES];
        list = read_pattern(list, parts, &part_count, &hosts);
        if (!list || total + hosts > LS_MOST_WORKERS)
            return false;
        const bool here = index >= total && index - total < hosts;
        // Each pattern is checked, also where another host is asked for.
        if (!write_host(parts, part_count, here ? index - total : 0, here ? host : ignored))
            return false;
        total += hosts;
        if (!*list)
            break;
    }
    *count = total;
    return true;
}

bool ls_slurm_tasks(const char *list, uint32_t node, uint32_t *tasks, uint32_t *total,
                    uint32_t *nodes)
{
    uint64_t all_tasks = 0, all_nodes = 0;
    uint32_t found = 0;
    for (;; list++) {
        uint32_t each, times = 1;
        size_t digits = strspn(list, "0123456789");
        if (!ls_digits_parse(list, digits, 1, LS_MOST_WORKERS, &each))
            return false;
        list += digits;
        if (strncmp(list, "(x", 2) == 0) {
            list += 2;
            digits = strspn(list, "0123456789");
            if (!ls_digits_parse(list, digits, 1, LS_MOST_WORKERS, &times) || list[digits] != ')')
                return false;
            list += digits + 1;
        }
        if (node >= all_nodes && node - all_nodes < times)
            found = each;
        all_nodes += times;
        all_tasks += (uint64_t)each * times;
        if (all_nodes > LS_MOST_WORKERS || all_tasks > LS_MOST_WORKERS)
            return false;
        if (*list != ',')
            break;
    }
    if (*list)
        return false;
    *tasks = found;
    *total = (uint32_t)all_tasks;
    *nodes = (uint32_t)all_nodes;
    return true;
}
