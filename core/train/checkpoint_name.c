// SPDX-License-Identifier: Apache-2.0
// Names of checkpoints, from a template such as checkpoint-{step:08} or {epoch:03}-{val_loss:.2f}.
#include "core/train/checkpoints.h"
#include "core/train/fit.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define LONGEST_FORMAT 6 // "10.4f"

bool ls_checkpoint_is_keras(const char *name)
{
    static const char *const suffixes[] = {".keras", ".h5", ".hdf5", ".ckpt"};
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        const size_t length = strlen(name), bytes = strlen(suffixes[i]);
        if (length >= bytes && strcmp(name + length - bytes, suffixes[i]) == 0)
            return true;
    }
    return false;
}
#define GENERATION ".generation" // and its number, behind the stem

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
        const uint64_t value = strcmp(key, "step") == 0 ? fit->done.steps : fit->state.epoch.epoch;
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

// Without the suffix, where it is there.
static size_t stem_length(const char *name, size_t length)
{
    const size_t suffix = strlen(LS_CHECKPOINT_SUFFIX);
    const bool has =
        length >= suffix && strncmp(name + length - suffix, LS_CHECKPOINT_SUFFIX, suffix) == 0;
    return has ? length - suffix : length;
}

bool ls_checkpoint_name(const struct ls_fit *fit, const char *name, uint64_t generation, char *out,
                        size_t bytes)
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
    char end[64] = LS_CHECKPOINT_SUFFIX;
    if (generation)
        snprintf(end, sizeof(end), GENERATION "%" PRIu64 LS_CHECKPOINT_SUFFIX, generation);
    if (*name)
        return false;
    used = stem_length(out, used);
    if (used + strlen(end) >= bytes)
        return false;
    snprintf(out + used, bytes - used, "%s", end);
    return used > 0 && !strchr(out, '/') && out[0] != '.';
}

bool ls_checkpoint_is_name(const char *name, const char *file)
{
    char stem[NAME_MAX + 1];
    const size_t length = stem_length(file, strlen(file));
    if (file[length] == '\0' || length > NAME_MAX)
        return false;
    snprintf(stem, sizeof(stem), "%.*s", (int)length, file);
    char *generation = strstr(stem, GENERATION);
    if (generation)
        *generation = '\0';
    // What is in braces may be anything; the last pair takes in more where the rest does not fit.
    const char *end = name + stem_length(name, strlen(name)), *behind = NULL, *from = NULL;
    for (const char *at = stem;;) {
        if (name < end && *name == '{') {
            const char *close = memchr(name, '}', (size_t)(end - name));
            name = behind = close ? close + 1 : end;
            from = at;
        } else if (*at && name < end && *name == *at) {
            name++;
            at++;
        } else if (!*at && name == end) {
            return true;
        } else if (behind && *from) {
            name = behind;
            at = ++from;
        } else {
            return false;
        }
    }
}
