// SPDX-License-Identifier: Apache-2.0
// Writes a line of metrics for each epoch, in the form of keras.callbacks.CSVLogger: epochs from 0, then the metrics by
// their names in order; without a validation a column "val_..." for each, which says NA.
#include "core/plugin/callback.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct ls_callback {
    const struct ls_host *host;
    const struct ls_fit_calls *calls;
    const char *filename, *separator;
    bool append, begun; // whether a line of this training is there
    FILE *file;
    uint64_t length; // of the file when a checkpoint was last written, which keeps this
    char *names[2 * LS_METRICS]; // of the columns, as the first epoch had them
    uint32_t count;
};

static const struct ls_plugin_option options[] = {
    {"filename", "text", "training.csv", "the file"},
    {"separator", "text", ",", "between two values, one letter"},
    {"append", "boolean", "false", "add lines to the file if it exists, instead of replacing it"},
    {NULL, NULL, NULL, NULL},
};

static enum ls_status fail(const struct ls_callback *callback, const char *doing)
{
    return (enum ls_status)ls_host_fail(callback->host, LS_BAD_INPUT, "cannot %s '%s': %s", doing,
                                        callback->filename, strerror(errno));
}

static void forget_columns(struct ls_callback *callback)
{
    while (callback->count)
        free(callback->names[--callback->count]);
}

static void write_header(const struct ls_callback *callback)
{
    fputs("epoch", callback->file);
    for (uint32_t i = 0; i < callback->count; i++)
        fprintf(callback->file, "%s%s", callback->separator, callback->names[i]);
    fputs("\r\n", callback->file);
}

// What is there is cleared when the first line is written: a training that goes on keeps it.
static enum ls_status on_train_begin(void *context, const struct ls_fit_state *state)
{
    struct ls_callback *callback = context;
    (void)state;
    forget_columns(callback);
    callback->begun = false;
    callback->file = fopen(callback->filename, "a+");
    return callback->file ? LS_OK : fail(callback, "write");
}

static enum ls_status begin_file(struct ls_callback *callback)
{
    callback->begun = true;
    if (!callback->append && ftruncate(fileno(callback->file), 0))
        return fail(callback, "write to");
    rewind(callback->file);
    const bool empty = fgetc(callback->file) == EOF;
    fseek(callback->file, 0, SEEK_END);
    if (empty)
        write_header(callback);
    return LS_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

// Sorted by name; where nothing is validated, the names of a validation behind them.
static bool note_columns(struct ls_callback *callback, const struct ls_metrics *metrics)
{
    bool validated = false;
    for (uint32_t i = 0; i < metrics->count; i++) {
        validated = validated || strncmp(metrics->list[i].name, "val_", 4) == 0;
        callback->names[callback->count] = strdup(metrics->list[i].name);
        if (!callback->names[callback->count++])
            return false;
    }
    qsort(callback->names, callback->count, sizeof(*callback->names), compare_names);
    const uint32_t trained = callback->count;
    for (uint32_t i = 0; !validated && i < trained; i++) {
        const size_t bytes = strlen(callback->names[i]) + sizeof("val_");
        char *name = malloc(bytes);
        if (!name)
            return false;
        snprintf(name, bytes, "val_%s", callback->names[i]);
        callback->names[callback->count++] = name;
    }
    return true;
}

static enum ls_status on_epoch_end(void *context, const struct ls_fit_state *state)
{
    struct ls_callback *callback = context;
    const struct ls_metrics *metrics = &state->epoch.metrics;
    if (!callback->count && !note_columns(callback, metrics))
        return LS_OUT_OF_MEMORY;
    const enum ls_status status = callback->begun ? LS_OK : begin_file(callback);
    if (status)
        return status;
    fprintf(callback->file, "%llu", (unsigned long long)state->epoch.epoch - 1);
    for (uint32_t i = 0; i < callback->count; i++) {
        const double value = callback->calls->metric_value(metrics, callback->names[i]);
        if (isnan(value))
            fprintf(callback->file, "%sNA", callback->separator);
        else
            fprintf(callback->file, "%s%.9g", callback->separator, value);
    }
    fputs("\r\n", callback->file);
    return fflush(callback->file) ? fail(callback, "write to") : LS_OK;
}

static enum ls_status on_train_end(void *context, const struct ls_fit_state *state)
{
    struct ls_callback *callback = context;
    FILE *file = callback->file;
    (void)state;
    callback->file = NULL;
    return file && fclose(file) ? fail(callback, "write to") : LS_OK;
}

static enum ls_status save_state(void *context, struct ls_callback_state *out)
{
    struct ls_callback *callback = context;
    const long length = callback->begun ? ftell(callback->file) : 0;
    callback->length = length > 0 ? (uint64_t)length : 0;
    *out = (struct ls_callback_state){&callback->length, sizeof(callback->length)};
    return LS_OK;
}

// Lines of epochs after the checkpoint are written again.
static enum ls_status load_state(void *context, const struct ls_callback_state *state)
{
    struct ls_callback *callback = context;
    uint64_t length = 0;
    if (state->bytes != sizeof(length))
        return (enum ls_status)ls_host_fail(
            callback->host, LS_BAD_INPUT,
            "the checkpoint is damaged: what it has of csv_logger makes no sense");
    memcpy(&length, state->data, sizeof(length));
    if (length == 0)
        return LS_OK;
    fseek(callback->file, 0, SEEK_END);
    const long end = ftell(callback->file);
    if (end < 0 || (uint64_t)end < length || fseek(callback->file, (long)length - 1, SEEK_SET) ||
        fgetc(callback->file) != '\n')
        return LS_OK; // it is another file
    callback->begun = true;
    if (ftruncate(fileno(callback->file), (off_t)length))
        return fail(callback, "write to");
    fseek(callback->file, 0, SEEK_END);
    return LS_OK;
}

static int32_t open_callback(const struct ls_host *host, const struct ls_fit_calls *calls,
                             struct ls_callback *callback, struct ls_callbacks *out)
{
    callback->host = host;
    callback->calls = calls;
    callback->filename = host->option(host, "filename");
    callback->separator = host->option(host, "separator");
    callback->append = ls_host_is_on(host, "append");
    if (!*callback->filename)
        return ls_host_fail(host, LS_USAGE, "filename is empty: csv_logger:filename=log.csv");
    if (strlen(callback->separator) != 1)
        return ls_host_fail(host, LS_USAGE, "separator='%s': expected one letter",
                            callback->separator);
    out->on_train_begin = on_train_begin;
    out->on_epoch_end = on_epoch_end;
    out->on_train_end = on_train_end;
    out->save_state = save_state;
    out->load_state = load_state;
    return LS_OK;
}

static void close_callback(struct ls_callback *callback)
{
    forget_columns(callback);
    if (callback->file)
        fclose(callback->file);
}

static const struct ls_callback_interface interface = {
    .struct_size = sizeof(interface),
    .chief_only = 1,
    .state_bytes = sizeof(struct ls_callback),
    .open = open_callback,
    .close = close_callback,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_CALLBACK),
    .name = "csv_logger",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "writes the metrics of each epoch to a CSV file",
    .options = options,
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
