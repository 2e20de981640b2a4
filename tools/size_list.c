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
    ls_error("usage",
             "--%s=%s: wanted sizes from %llu to %llu bytes, separated by commas; K, M, G are "
             "KiB, MiB, GiB",
             option, text, (unsigned long long)least, (unsigned long long)most);
    return LS_USAGE;
}

enum ls_status size_list_parse(const char *option, const char *text, uint64_t least, uint64_t most,
                               struct size_list *out)
{
    struct size_list list = {.count = 0};
    const char *part = text;
    for (bool more = true; more;) {
        char one[32];
        const size_t length = strcspn(part, ",");
        int64_t value;
        if (length >= sizeof(one) || list.count == SIZES_MOST)
            return refuse(option, text, least, most);
        memcpy(one, part, length);
        one[length] = '\0';
        const uint64_t factor = take_suffix(one);
        if (!ls_parse_integer(one, &value) || value < 0 || (uint64_t)value > most / factor ||
            (uint64_t)value * factor < least)
            return refuse(option, text, least, most);
        list.bytes[list.count++] = (uint64_t)value * factor;
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
