// SPDX-License-Identifier: Apache-2.0
// The kinds of plugins, how their files are named, and why one is refused.
#include "core/loader/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *ls_kind_text(uint32_t kind)
{
    switch (kind) {
    case LS_KIND_DEVICE: return "device";
    case LS_KIND_TRANSPORT: return "transport";
    case LS_KIND_COLLECTIVE: return "collective";
    case LS_KIND_STRATEGY: return "strategy";
    case LS_KIND_CALLBACK: return "callback";
    case LS_KIND_LAYER: return "layer";
    case LS_KIND_LOSS: return "loss";
    case LS_KIND_METRIC: return "metric";
    case LS_KIND_DATASET: return "dataset";
    case LS_KIND_FILTER: return "filter";
    default: return NULL;
    }
}

bool ls_refuse(struct ls_reason *reason, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(reason->text, sizeof(reason->text), format, list);
    va_end(list);
    return false;
}

bool ls_name_is_valid(const char *name)
{
    const size_t length = strlen(name);
    return length > 0 && length <= LS_LONGEST_NAME &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") ==
               length;
}

bool ls_file_name_split(const char *path, uint32_t *kind, char *name)
{
    const char *slash = strrchr(path, '/');
    const char *file = slash ? slash + 1 : path;
    const size_t length = strlen(file);
    if (length < 4 || strcmp(file + length - 3, ".so"))
        return false;
    for (uint32_t i = 1; i <= LS_KINDS; i++) {
        const char *text = ls_kind_text(i);
        const size_t prefix = strlen(text) + 1;
        if (length <= prefix + 3 || strncmp(file, text, prefix - 1) || file[prefix - 1] != '-')
            continue;
        const size_t name_length = length - prefix - 3;
        if (name_length > LS_LONGEST_NAME)
            return false;
        memcpy(name, file + prefix, name_length);
        name[name_length] = '\0';
        *kind = i;
        return ls_name_is_valid(name);
    }
    return false;
}
