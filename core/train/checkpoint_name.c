// SPDX-License-Identifier: Apache-2.0
// Names of checkpoints, from a template such as checkpoint-{step:08} or {epoch:03}-{val_loss:.2f}.
#include "core/train/checkpoints.h"
#include "core/train/fit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LONGEST_FORMAT 6 // "10.4f"

bool ls_checkpoint_knows_metric(const struct ls_fit *fit, const char *name)
{
    for (uint32_t i = 0; i < fit->model->metrics.count; i++)
        if (strcmp(fit->model->metrics.list[i].name, name) == 0 ||
            strcmp(fit->model->metrics.list[i].validation_name, name) == 0)
            return true;
    return false;
}

// One {key} or {key:format} of the template; false: it makes no sense.
static bool expand_key(const struct ls_fit *fit, const char *key, const char *format, char *out,
                       size_t bytes)
{
    const bool counts = strcmp(key, "step") == 0 || strcmp(key, "epoch") == 0;
    const size_t width = strspn(format, "0123456789");
    const size_t digits =
        format[width] == '.' ? width + 1 + strspn(format + width + 1, "0123456789") : width;
    char conversion[32];
    if (strlen(format) > LONGEST_FORMAT || (!counts && !ls_checkpoint_knows_metric(fit, key)))
        return false;
    if (counts && format[digits] == '\0' && !strchr(format, '.')) {
        snprintf(conversion, sizeof(conversion), "%%%s" PRIu64, format);
        const uint64_t value = strcmp(key, "step") == 0 ? fit->steps : fit->state.epoch.epoch;
        snprintf(out, bytes, conversion, value);
        return true;
    }
    if (counts || (format[digits] && (strchr("fge", format[digits]) == NULL || format[digits + 1])))
        return false;
    snprintf(conversion, sizeof(conversion), "%%%.*s%c", (int)digits, format,
             format[digits] ? format[digits] : 'g');
    snprintf(out, bytes, conversion, ls_metric_value(&fit->state.epoch.metrics, key));
    return true;
}

bool ls_checkpoint_name(const struct ls_fit *fit, const char *name, char *out, size_t bytes)
{
    size_t used = 0;
    while (*name && used + 1 < bytes) {
        char key[64], value[96], *format;
        const size_t length = strcspn(name, "}");
        if (*name != '{') {
            out[used++] = *name++;
            continue;
        }
        if (name[length] != '}' || length >= sizeof(key))
            return false;
        memcpy(key, name + 1, length - 1);
        key[length - 1] = '\0';
        format = strchr(key, ':');
        if (format)
            *format++ = '\0';
        if (!expand_key(fit, key, format ? format : "", value, sizeof(value)))
            return false;
        used += (size_t)snprintf(out + used, bytes - used, "%s", value);
        name += length + 1;
    }
    if (used + strlen(LS_CHECKPOINT_SUFFIX) >= bytes || *name)
        return false;
    out[used] = '\0';
    const size_t suffix = strlen(LS_CHECKPOINT_SUFFIX);
    if (used < suffix || strcmp(out + used - suffix, LS_CHECKPOINT_SUFFIX) != 0)
        snprintf(out + used, bytes - used, LS_CHECKPOINT_SUFFIX);
    return used > 0 && !strchr(out, '/') && out[0] != '.';
}
