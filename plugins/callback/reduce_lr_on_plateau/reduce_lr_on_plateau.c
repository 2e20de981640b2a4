// SPDX-License-Identifier: Apache-2.0
// Multiplies the learning rate by a factor when a metric has not improved for some epochs. Options, defaults and
// arithmetic are those of keras.callbacks.ReduceLROnPlateau.
#include "core/plugin/monitor.h"

#define MOST_EPOCHS (INT64_C(1) << 53) // which a double counts

// What a checkpoint keeps.
struct kept {
    uint64_t has_best; // 1: yes
    double best;
    int64_t wait, resting;
};

struct ls_callback {
    const struct ls_host *host;
    const struct ls_fit_calls *calls;
    struct ls_monitor monitor;
    double factor, min_lr;
    int64_t patience, cooldown, wait, resting; // epochs
    struct kept kept; // when it was last asked for
};

static const struct ls_plugin_option options[] = {
    LS_MONITOR_OPTIONS("0.0001"),
    {"factor", "number", "0.1", "what the learning rate is multiplied by, less than 1"},
    {"patience", "integer", "10", "epochs without an improvement after which to do so"},
    {"cooldown", "integer", "0", "epochs after that in which nothing is counted"},
    {"min_lr", "number", "0", "the least learning rate"},
    {NULL, NULL, NULL, NULL},
};

static enum ls_status on_train_begin(void *context, const struct ls_fit_state *state)
{
    struct ls_callback *callback = context;
    callback->monitor.has_best = false;
    callback->wait = callback->resting = 0;
    // A schedule decides the rate itself, which is said before anything is trained.
    return callback->calls->set_learning_rate(state->model,
                                              callback->calls->learning_rate(state->model));
}

static enum ls_status reduce(struct ls_callback *callback, const struct ls_fit_state *state)
{
    const double old = callback->calls->learning_rate(state->model);
    const double product = (double)(float)old * callback->factor;
    const double rate = product > callback->min_lr ? product : callback->min_lr;
    const int64_t waited = callback->wait;
    char message[200];
    if (!((float)old > (float)callback->min_lr))
        return LS_OK;
    const enum ls_status status = callback->calls->set_learning_rate(state->model, rate);
    if (status)
        return status;
    callback->resting = callback->cooldown;
    callback->wait = 0;
    snprintf(message, sizeof(message),
             "epoch %llu: %s has not improved for %lld epoch%s: the learning rate is %g now",
             (unsigned long long)state->epoch.epoch, callback->monitor.name, (long long)waited,
             waited == 1 ? "" : "s", rate);
    callback->host->log(callback->host, LS_LOG_INFO, message);
    return LS_OK;
}

static enum ls_status on_epoch_end(void *context, const struct ls_fit_state *state)
{
    struct ls_callback *callback = context;
    double value;
    if (!ls_monitor_read(&callback->monitor, callback->host, state, &value))
        return LS_OK;
    if (callback->resting > 0) {
        callback->resting--;
        callback->wait = 0;
    }
    if (ls_monitor_improves(&callback->monitor, value)) {
        callback->wait = 0;
        return LS_OK;
    }
    if (callback->resting > 0 || ++callback->wait < callback->patience)
        return LS_OK;
    return reduce(callback, state);
}

static enum ls_status save_state(void *context, struct ls_callback_state *out)
{
    struct ls_callback *callback = context;
    callback->kept = (struct kept){.has_best = callback->monitor.has_best,
                                   .best = callback->monitor.best,
                                   .wait = callback->wait,
                                   .resting = callback->resting};
    *out = (struct ls_callback_state){&callback->kept, sizeof(callback->kept)};
    return LS_OK;
}

static enum ls_status load_state(void *context, const struct ls_callback_state *state)
{
    struct ls_callback *callback = context;
    const struct kept *kept = state->data;
    if (state->bytes != sizeof(*kept) || kept->has_best > 1 || kept->wait < 0 ||
        kept->wait > MOST_EPOCHS || kept->resting < 0 || kept->resting > MOST_EPOCHS)
        return (enum ls_status)ls_host_fail(
            callback->host, LS_BAD_INPUT,
            "the checkpoint is damaged: what it has of reduce_lr_on_plateau makes no sense");
    callback->monitor.has_best = kept->has_best != 0;
    callback->monitor.best = kept->best;
    callback->wait = kept->wait;
    callback->resting = kept->resting;
    return LS_OK;
}

static int32_t open_callback(const struct ls_host *host, const struct ls_fit_calls *calls,
                             struct ls_callback *callback, struct ls_callbacks *out)
{
    callback->host = host;
    callback->calls = calls;
    ls_monitor_open(&callback->monitor, host);
    callback->factor = ls_host_number(host, "factor");
    callback->min_lr = ls_host_number(host, "min_lr");
    callback->patience = (int64_t)ls_host_number(host, "patience");
    callback->cooldown = (int64_t)ls_host_number(host, "cooldown");
    if (!(callback->factor < 1))
        return ls_host_fail(host, LS_USAGE, "factor=%g: expected less than 1, or the rate grows",
                            callback->factor);
    out->on_train_begin = on_train_begin;
    out->on_epoch_end = on_epoch_end;
    out->save_state = save_state;
    out->load_state = load_state;
    return LS_OK;
}

static const struct ls_callback_interface interface = {
    .struct_size = sizeof(interface),
    .state_bytes = sizeof(struct ls_callback),
    .open = open_callback,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_CALLBACK),
    .name = "reduce_lr_on_plateau",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "lowers the learning rate when a metric has not improved for some epochs",
    .options = options,
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
