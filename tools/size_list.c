// SPDX-License-Identifier: Apache-2.0
// Reads lists of sizes.
#include "tools/size_list.h"

#include "core/base/log.h"
#include "core/base/options.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

// The factor that `text` ends with, which is cut off.
static uint64_t take_suffix(char *text)
{
    static const char *const suffixes[] = {"KiB", "MiB", "GiB", "K", "M", "G", "B", NULL};
    static const uint64_t factors[] = {1 << 10, 1 << 20, 1 << 30, 1 << 10, 1 << 20, 1 << 30, 1};
    const size_t length = strlen(text);
    for (size_t i = 0; suffixes[i]; i++) {
        const size_t suffix = strlen(suffixes[i]);
        if (length > suffix && strcmp(text + length - suffix, suffixes[i]) == 0) {
            text[length - suffix] = '\0';
            return factors[i];
        }
    }
    return 1;
}

static enum ls_status refuse(const char *option, const char *text, uint64_t least, uint64_t most)
{
    ls_error(
        "usage",
        "--%s=%s: expected sizes from %llu to %llu bytes, separated by commas, or from:to, which "
        "doubles; K, M, G are KiB, MiB, GiB",
        option, text, (unsigned long long)least, (unsigned long long)most);
    return LS_USAGE;
}

// One size, `length` letters of `text`.
static bool read_size(const char *text, size_t length, uint64_t least, uint64_t most, uint64_t *out)
{
    char one[32];
    int64_t value;
    if (length >= sizeof(one))
        return false;
    memcpy(one, text, length);
    one[length] = '\0';
    const uint64_t factor = take_suffix(one);
    if (!ls_parse_integer(one, &value) || value < 0 || (uint64_t)value > most / factor ||
        (uint64_t)value * factor < least)
        return false;
    *out = (uint64_t)value * factor;
    return true;
}

// "1K", or "1K:64K": 1K, 2K, 4K, ... up to 64K.
static bool read_part(const char *text, size_t length, uint64_t least, uint64_t most,
                      struct size_list *list)
{
    const char *colon = memchr(text, ':', length);
    const size_t first_length = colon ? (size_t)(colon - text) : length;
    uint64_t first, last;
    if (!read_size(text, first_length, least, most, &first))
        return false;
    last = first;
    if (colon && (!read_size(colon + 1, length - first_length - 1, first, most, &last) || !first))
        return false;
    for (uint64_t bytes = first;; bytes *= 2) {
        if (list->count == SIZES_MOST)
            return false;
        list->bytes[list->count++] = bytes;
        if (!bytes || bytes > last / 2)
            return true;
    }
}

enum ls_status size_list_parse(const char *option, const char *text, uint64_t least, uint64_t most,
                               struct size_list *out)
{
    struct size_list list = {.count = 0};
    const char *part = text;
    for (bool more = true; more;) {
        const size_t length = strcspn(part, ",");
        if (!read_part(part, length, least, most, &list))
            return refuse(option, text, least, most);
        more = part[length] == ',';
        part += length + more;
    }
    *out = list;
    return LS_OK;
}

const char *size_text(uint64_t bytes, char *text, size_t room)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
    size_t unit = 0;
    while (unit < 3 && bytes && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, room, "%llu %s", (unsigned long long)bytes, units[unit]);
    return text;
}
