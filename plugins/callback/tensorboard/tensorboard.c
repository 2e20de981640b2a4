// SPDX-License-Identifier: Apache-2.0
// Writes what TensorBoard shows, under the tags and in the folders that keras.callbacks.TensorBoard uses: scalars of
// each epoch or of every so many steps, and histograms of the variables.
#include "core/plugin/callback.h"
#include "plugins/callback/tensorboard/events.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST_TAG 256

enum gradients { GRADIENTS_OFF, GRADIENTS_ON, GRADIENTS_AUTO };

struct ls_callback {
    const struct ls_host *host;
    const struct ls_fit_calls *calls;
    const char *log_dir;
    uint64_t histogram_freq; // epochs; 0: no histograms
    uint64_t update_freq; // steps; 0: scalars of epochs only
    bool steps_per_second;
    enum gradients gradients; // with the histograms of the variables
    bool writes_gradients;
    struct events train, validation;
    uint64_t steps, epochs; // of earlier fits: another one goes on behind them
};

static const struct ls_plugin_option options[] = {
    {"log_dir", "text", "logs", "the folder, with train/ and validation/ in it"},
    {"histogram_freq", "integer", "0", "epochs between histograms of the variables; 0: none"},
    {"update_freq", "text", "epoch", "epoch, batch, or the number of steps between scalars"},
    {"write_grads", "text", "false",
     "true: histograms of the gradients, too; auto: where the replicas have them"},
    {"write_steps_per_second", "boolean", "false", "write how many steps a second there were"},
    {NULL, NULL, NULL, NULL},
};

static enum ls_status fail(const struct ls_callback *callback, const char *path)
{
    return (enum ls_status)ls_host_fail(callback->host, LS_BAD_INPUT, "cannot write '%s': %s", path,
                                        strerror(errno));
}

static enum ls_status open_events(const struct ls_callback *callback, struct events *events,
                                  const char *split)
{
    char folder[4096];
    if (events->file)
        return LS_OK;
    if (snprintf(folder, sizeof(folder), "%s/%s", callback->log_dir, split) >=
        (int)sizeof(folder)) {
        errno = ENAMETOOLONG;
        return fail(callback, callback->log_dir);
    }
    return events_open(events, folder) ? LS_OK : fail(callback, events->path);
}

// Where the chief cannot read variables, that is said before the first step.
static enum ls_status try_to_read(const struct ls_callback *callback, struct ls_model *model)
{
    struct ls_variable variable;
    enum ls_status status = callback->calls->variable_describe(model, 0, &variable);
    if (status)
        return status;
    float *values = callback->host->allocate(callback->host, variable.elements * sizeof(float), 64);
    if (!values)
        return LS_OUT_OF_MEMORY;
    status = callback->calls->get_variable(model, 0, values);
    callback->host->release(callback->host, values);
    return status;
}

static enum ls_status on_train_begin(void *context, const struct ls_fit_state *state)
{
    struct ls_callback *callback = context;
    const bool has = callback->calls->has_gradients(state->model);
    if (callback->gradients == GRADIENTS_ON && !has)
        return (enum ls_status)ls_host_fail(
            callback->host, LS_USAGE,
            "write_grads=on: under this strategy no replica has the sums of all gradients; use "
            "mirrored, or write_grads=auto");
    if (callback->histogram_freq && callback->calls->variable_count(state->model)) {
        const enum ls_status status = try_to_read(callback, state->model);
        if (status)
            return status;
    }
    callback->writes_gradients = has && callback->gradients != GRADIENTS_OFF;
    return open_events(callback, &callback->train, "train");
}

// "val_accuracy" is "epoch_accuracy" of the folder validation, as in Keras.
static enum ls_status write_metrics(struct ls_callback *callback, const struct ls_metrics *metrics,
                                    const char *prefix, uint64_t step)
{
    char tag[LONGEST_TAG];
    for (uint32_t i = 0; i < metrics->count; i++) {
        const char *name = metrics->list[i].name;
        const bool validates = strncmp(name, "val_", 4) == 0;
        struct events *events = validates ? &callback->validation : &callback->train;
        const enum ls_status status =
            validates ? open_events(callback, events, "validation") : LS_OK;
        if (status)
            return status;
        snprintf(tag, sizeof(tag), "%s_%s", prefix, name + (validates ? 4 : 0));
        if (!events_scalar(events, tag, (int64_t)step, metrics->list[i].value))
            return fail(callback, events->path);
    }
    return LS_OK;
}

// [a replica thread]
static enum ls_status on_train_batch_end(void *context, const struct ls_fit_state *state)
{
    struct ls_callback *callback = context;
    if (state->steps_done % callback->update_freq)
        return LS_OK;
    struct ls_metrics trained = state->epoch.metrics;
    return write_metrics(callback, &trained, "batch", callback->steps + state->steps_done);
}

static enum ls_status write_histogram(struct ls_callback *callback, const char *tag, int64_t step,
                                      const float *values, uint64_t count)
{
    return events_histogram(&callback->train, tag, step, values, count)
               ? LS_OK
               : fail(callback, callback->train.path);
}

static enum ls_status write_histograms(struct ls_callback *callback, struct ls_model *model,
                                       int64_t step)
{
    const struct ls_fit_calls *calls = callback->calls;
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < calls->variable_count(model); i++) {
        struct ls_variable variable;
        char tag[LONGEST_TAG];
        status = calls->variable_describe(model, i, &variable);
        if (status)
            return status;
        float *values =
            callback->host->allocate(callback->host, variable.elements * sizeof(float), 64);
        if (!values)
            return LS_OUT_OF_MEMORY;
        snprintf(tag, sizeof(tag), "%.240s/histogram", variable.name);
        status = calls->get_variable(model, i, values);
        if (!status)
            status = write_histogram(callback, tag, step, values, variable.elements);
        if (!status && callback->writes_gradients && variable.trained) {
            snprintf(tag, sizeof(tag), "%.230s_grad/histogram", variable.name);
            status = calls->get_gradient(model, i, values);
            if (!status)
                status = write_histogram(callback, tag, step, values, variable.elements);
        }
        callback->host->release(callback->host, values);
    }
    return status;
}

static enum ls_status on_epoch_end(void *context, const struct ls_fit_state *state)
{
    struct ls_callback *callback = context;
    const struct ls_epoch *epoch = &state->epoch;
    const int64_t step = (int64_t)(callback->epochs + epoch->epoch - 1); // Keras counts from 0
    struct events *train = &callback->train;
    enum ls_status status = write_metrics(callback, &epoch->metrics, "epoch", (uint64_t)step);
    bool written =
        status || (events_scalar(train, "epoch_learning_rate", step, epoch->learning_rate) &&
                   events_scalar(train, "epoch_seconds", step, epoch->seconds));
    if (!status && written && callback->steps_per_second && epoch->seconds > 0)
        written = events_scalar(train, "epoch_steps_per_second", step,
                                (double)epoch->steps / epoch->seconds);
    if (!written)
        return fail(callback, train->path);
    if (!status && callback->histogram_freq && (uint64_t)step % callback->histogram_freq == 0)
        status = write_histograms(callback, state->model, step);
    if (!status && !events_flush(train))
        status = fail(callback, train->path);
    if (!status && callback->validation.file && !events_flush(&callback->validation))
        status = fail(callback, callback->validation.path);
    return status;
}

static enum ls_status on_train_end(void *context, const struct ls_fit_state *state)
{
    struct ls_callback *callback = context;
    callback->steps += state->steps_done;
    callback->epochs += state->epoch.epoch;
    const bool train = events_close(&callback->train);
    const bool validation = events_close(&callback->validation);
    return train && validation
               ? LS_OK
               : fail(callback, train ? callback->validation.path : callback->train.path);
}

static int32_t read_update_freq(struct ls_callback *callback, struct ls_callbacks *out)
{
    const char *text = callback->host->option(callback->host, "update_freq");
    char *end;
    if (strcmp(text, "epoch") == 0)
        return LS_OK;
    callback->update_freq = strcmp(text, "batch") == 0 ? 1 : strtoull(text, &end, 10);
    if (callback->update_freq == 0 || (callback->update_freq > 1 && *end))
        return ls_host_fail(callback->host, LS_USAGE,
                            "update_freq=%s: expected epoch, batch or a number of steps", text);
    out->on_train_batch_end = on_train_batch_end;
    return LS_OK;
}

static int32_t read_write_grads(struct ls_callback *callback)
{
    static const char *const texts[] = {"false", "true", "auto", "off", "on"};
    const char *given = callback->host->option(callback->host, "write_grads");
    uint32_t i = 0;
    while (i < 5 && strcmp(given, texts[i]) != 0)
        i++;
    if (i == 5)
        return ls_host_fail(callback->host, LS_USAGE,
                            "write_grads=%s: expected true, false or auto", given);
    callback->gradients = (enum gradients)(i % 3);
    if (callback->gradients && !callback->histogram_freq)
        return ls_host_fail(callback->host, LS_USAGE,
                            "write_grads needs histogram_freq, the epochs between histograms");
    return LS_OK;
}

static int32_t open_callback(const struct ls_host *host, const struct ls_fit_calls *calls,
                             struct ls_callback *callback, struct ls_callbacks *out)
{
    callback->host = host;
    callback->calls = calls;
    callback->log_dir = host->option(host, "log_dir");
    callback->histogram_freq = strtoull(host->option(host, "histogram_freq"), NULL, 10);
    callback->steps_per_second = ls_host_is_on(host, "write_steps_per_second");
    out->on_train_begin = on_train_begin;
    out->on_epoch_end = on_epoch_end;
    out->on_train_end = on_train_end;
    const int32_t status = read_write_grads(callback);
    return status ? status : read_update_freq(callback, out);
}

static void close_callback(struct ls_callback *callback)
{
    (void)events_close(&callback->train);
    (void)events_close(&callback->validation);
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
    .name = "tensorboard",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "writes scalars and histograms that TensorBoard shows",
    .options = options,
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
