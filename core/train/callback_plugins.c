// SPDX-License-Identifier: Apache-2.0
// Callbacks that are plugins: opened by name, and called with a record of which plugin the thread is in.
#include "core/train/callback_plugins.h"

#include "core/base/inside.h"
#include "core/base/instance.h"
#include "core/base/log.h"
#include "core/base/options.h"
#include "core/base/plain_locale.h"
#include "core/loader/loader.h"
#include "core/run/run.h"
#include "core/train/session.h"
#include "core/train/session_values.h"
#include "core/train/variables.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct opened_callback {
    struct ls_callbacks table; // what ls_fit calls; the first member, so that it leads here
    struct ls_callbacks theirs; // what that calls
    const struct ls_callback_interface *interface;
    struct ls_fit_calls calls; // that it may make
    struct ls_callback *state;
    const struct ls_opened_plugin *plugin; // NULL: only the chief has it
    struct opened_callback *next; // of all that are open
};

// Tables are copied, and a program fills in tables of its own.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct opened_callback *opened_callbacks;

// Programs' own callbacks are called in the program's locale, plugins are not.
struct entered {
    struct ls_inside_call call;
    locale_t locale;
};

static struct entered enter(const struct opened_callback *opened, const char *name)
{
    return (struct entered){
        ls_inside_enter(ls_instance_of(opened->state)->plugin->label, name),
        ls_locale_enter_plain(),
    };
}

static void leave(struct entered before)
{
    ls_locale_return(before.locale);
    ls_inside_leave(before.call);
}

// Each function of the table enters the plugin in the record of the thread.
#define MOMENT(moment)                                                                           \
    static enum ls_status on_##moment(void *context, const struct ls_fit_state *state)           \
    {                                                                                            \
        const struct opened_callback *opened = context;                                          \
        const struct entered before = enter(opened, "on_" #moment);                              \
        const enum ls_status status = opened->theirs.on_##moment(opened->theirs.context, state); \
        leave(before);                                                                           \
        return status;                                                                           \
    }

MOMENT(train_begin)
MOMENT(train_end)
MOMENT(epoch_begin)
MOMENT(epoch_end)
MOMENT(segment_end)
MOMENT(train_batch_end)
MOMENT(test_begin)
MOMENT(test_end)
MOMENT(train_batch_begin)
MOMENT(test_batch_begin)
MOMENT(test_batch_end)
MOMENT(predict_begin)
MOMENT(predict_end)
MOMENT(predict_batch_begin)
MOMENT(predict_batch_end)

static enum ls_status on_segment_begin(void *context, const struct ls_fit_state *state,
                                       uint64_t *steps)
{
    const struct opened_callback *opened = context;
    const struct entered before = enter(opened, "on_segment_begin");
    const enum ls_status status =
        opened->theirs.on_segment_begin(opened->theirs.context, state, steps);
    leave(before);
    return status;
}

static enum ls_status save_state(void *context, struct ls_callback_state *out)
{
    const struct opened_callback *opened = context;
    const struct entered before = enter(opened, "save_state");
    const enum ls_status status = opened->theirs.save_state(opened->theirs.context, out);
    leave(before);
    return status;
}

static enum ls_status load_state(void *context, const struct ls_callback_state *state)
{
    const struct opened_callback *opened = context;
    const struct entered before = enter(opened, "load_state");
    const enum ls_status status = opened->theirs.load_state(opened->theirs.context, state);
    leave(before);
    return status;
}

// A function that the plugin does not have is none of ours either: nobody waits for it.
static void fill_table(struct opened_callback *opened)
{
    const struct ls_callbacks *theirs = &opened->theirs;
    opened->table = (struct ls_callbacks){
        .context = opened,
        .name = theirs->name,
        .terminate_on_nan = theirs->terminate_on_nan,
        .on_train_begin = theirs->on_train_begin ? on_train_begin : NULL,
        .on_train_end = theirs->on_train_end ? on_train_end : NULL,
        .on_epoch_begin = theirs->on_epoch_begin ? on_epoch_begin : NULL,
        .on_epoch_end = theirs->on_epoch_end ? on_epoch_end : NULL,
        .on_segment_end = theirs->on_segment_end ? on_segment_end : NULL,
        .on_train_batch_end = theirs->on_train_batch_end ? on_train_batch_end : NULL,
        .on_test_begin = theirs->on_test_begin ? on_test_begin : NULL,
        .on_test_end = theirs->on_test_end ? on_test_end : NULL,
        .on_train_batch_begin = theirs->on_train_batch_begin ? on_train_batch_begin : NULL,
        .on_test_batch_begin = theirs->on_test_batch_begin ? on_test_batch_begin : NULL,
        .on_test_batch_end = theirs->on_test_batch_end ? on_test_batch_end : NULL,
        .on_predict_begin = theirs->on_predict_begin ? on_predict_begin : NULL,
        .on_predict_end = theirs->on_predict_end ? on_predict_end : NULL,
        .on_predict_batch_begin = theirs->on_predict_batch_begin ? on_predict_batch_begin : NULL,
        .on_predict_batch_end = theirs->on_predict_batch_end ? on_predict_batch_end : NULL,
        .on_segment_begin = theirs->on_segment_begin ? on_segment_begin : NULL,
        .save_state = theirs->save_state ? save_state : NULL,
        .load_state = theirs->load_state ? load_state : NULL,
    };
}

static const struct ls_fit_calls calls = {
    .struct_size = sizeof(calls),
    .metric_value = ls_metric_value,
    .stop_training = ls_stop_training,
    .learning_rate = ls_learning_rate,
    .set_learning_rate = ls_set_learning_rate,
    .variable_count = ls_variable_count,
    .variable_describe = ls_variable_describe,
    .get_variable = ls_read_variable,
    .set_variable = ls_write_variable,
    .get_gradient = ls_read_gradient,
    .has_gradients = ls_has_gradients,
};

// The chief alone would wait for parts that other workers have.
static enum ls_status read_alone(struct ls_model *model, uint32_t index, float *out)
{
    const struct ls_session *session = model->session;
    if (!session || !ls_session_spreads_parameters(session) ||
        !ls_session_spreads_over_workers(session))
        return ls_read_variable(model, index, out);
    ls_error("callback",
             "under strategy '%s' workers have parts of variables, and a callback that the chief "
             "alone has cannot read them; use --strategy=sharded:stage=2, or no histograms, as in "
             "--callback=tensorboard:log_dir=DIR",
             session->run->strategy.strategy->plugin->name);
    return LS_USAGE;
}

enum ls_status ls_open_callback(struct ls_run *run, const char *text, struct ls_callbacks **out)
{
    const struct ls_opened_plugin *plugin = NULL;
    enum ls_status status =
        ls_loader_open_text(run->loader, "--callback", LS_KIND_CALLBACK, text, &plugin);
    if (status)
        return status;
    const struct ls_callback_interface *interface = plugin->interface;
    struct opened_callback *opened = calloc(1, sizeof(*opened));
    struct ls_callback *state = ls_instance_create(interface, interface->state_bytes);
    if (opened)
        opened->state = state;
    if (opened && state && interface->chief_only && !ls_run_is_chief(run)) {
        opened->table.name = opened->theirs.name = plugin->plugin->name;
        opened->theirs.context = state;
        *out = &opened->table;
        return LS_OK;
    }
    if (opened && state) {
        opened->interface = interface;
        opened->calls = calls;
        if (interface->chief_only)
            opened->calls.get_variable = read_alone;
        opened->plugin = interface->chief_only ? NULL : plugin;
        opened->theirs = (struct ls_callbacks){.context = state, .name = plugin->plugin->name};
        status = interface->open(plugin->host, &opened->calls, state, &opened->theirs);
    } else {
        status = LS_OUT_OF_MEMORY;
    }
    if (status) {
        ls_instance_destroy(state);
        free(opened);
        return status;
    }
    fill_table(opened);
    pthread_mutex_lock(&lock);
    opened->next = opened_callbacks;
    opened_callbacks = opened;
    pthread_mutex_unlock(&lock);
    *out = &opened->table;
    return LS_OK;
}

// As all who mean the same value would write it.
static const char *plain_value(const char *type, const char *value, char text[static 32])
{
    const char *slash = strrchr(value, '/');
    double number;
    bool boolean;
    if (ls_parse_number(value, &number))
        snprintf(text, 32, "%.17g", number);
    else if (type && strcmp(type, "boolean") == 0 && ls_parse_boolean(value, &boolean))
        snprintf(text, 32, "%s", boolean ? "on" : "off");
    else
        return slash ? slash + 1 : value;
    return text;
}

void ls_callback_describe(const struct ls_callbacks *table, FILE *out)
{
    pthread_mutex_lock(&lock);
    const struct opened_callback *opened = opened_callbacks;
    while (opened && (void *)opened != table->context)
        opened = opened->next;
    pthread_mutex_unlock(&lock);
    if (!opened || !opened->plugin)
        return;
    const struct ls_plugin *plugin = opened->plugin->plugin;
    const struct ls_host *host = opened->plugin->host;
    char separator = ':';
    fprintf(out, "%s%s", ftell(out) > 0 ? " " : "", plugin->name);
    for (const struct ls_plugin_option *option = plugin->options; option && option->name;
         option++) {
        const char *given = host->option(host, option->name), *usual = option->default_value;
        char one[32], other[32];
        if (!given)
            continue;
        given = plain_value(option->type, given, one);
        if (usual && strcmp(given, plain_value(option->type, usual, other)) == 0)
            continue;
        fprintf(out, "%c%s=%s", separator, option->name, given);
        separator = ',';
    }
}

void ls_callback_close(struct ls_callbacks *callbacks)
{
    LS_PLAIN_LOCALE;
    struct opened_callback *opened = (struct opened_callback *)callbacks;
    if (!opened)
        return;
    pthread_mutex_lock(&lock);
    struct opened_callback **link = &opened_callbacks;
    while (*link && *link != opened)
        link = &(*link)->next;
    if (*link)
        *link = opened->next;
    pthread_mutex_unlock(&lock);
    if (opened->interface && opened->interface->close)
        opened->interface->close(opened->state);
    ls_instance_destroy(opened->state);
    free(opened);
}
