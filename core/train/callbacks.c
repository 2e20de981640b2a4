// SPDX-License-Identifier: Apache-2.0
// The list of a fit's clients.
#include "core/train/callbacks.h"

#include "core/base/log.h"
#include "core/base/plain_locale.h"
#include "core/model/model.h"

#include <stdatomic.h>
#include <stdio.h>

// Calls one function of a table; `name` is what messages call the function.
static enum ls_status call(const struct ls_callbacks *table, enum ls_moment moment,
                           const struct ls_fit_state *state, const char **name)
{
    enum ls_status (*function)(void *context, const struct ls_fit_state *state) = NULL;
#define MOMENT(number, member)    \
    case number:                  \
        function = table->member; \
        *name = #member;          \
        break
    switch (moment) {
        MOMENT(LS_ON_TRAIN_BEGIN, on_train_begin);
        MOMENT(LS_ON_TRAIN_END, on_train_end);
        MOMENT(LS_ON_EPOCH_BEGIN, on_epoch_begin);
        MOMENT(LS_ON_EPOCH_END, on_epoch_end);
        MOMENT(LS_ON_SEGMENT_END, on_segment_end);
        MOMENT(LS_ON_TRAIN_BATCH_END, on_train_batch_end);
        MOMENT(LS_ON_TEST_BEGIN, on_test_begin);
        MOMENT(LS_ON_TEST_END, on_test_end);
        MOMENT(LS_ON_TRAIN_BATCH_BEGIN, on_train_batch_begin);
        MOMENT(LS_ON_TEST_BATCH_BEGIN, on_test_batch_begin);
        MOMENT(LS_ON_TEST_BATCH_END, on_test_batch_end);
        MOMENT(LS_ON_PREDICT_BEGIN, on_predict_begin);
        MOMENT(LS_ON_PREDICT_END, on_predict_end);
        MOMENT(LS_ON_PREDICT_BATCH_BEGIN, on_predict_batch_begin);
        MOMENT(LS_ON_PREDICT_BATCH_END, on_predict_batch_end);
    }
#undef MOMENT
    return function ? function(table->context, state) : LS_OK;
}

const char *ls_clients_name(const struct ls_clients *clients, uint32_t index, char text[static 64])
{
    if (clients->tables[index].name)
        snprintf(text, 64, "%s", clients->tables[index].name);
    else
        snprintf(text, 64, "callbacks[%u]", index);
    return text;
}

static enum ls_status check_answer(const struct ls_clients *clients, uint32_t table,
                                   const char *function, enum ls_status status)
{
    const char *doing = clients->call ? clients->call : "fit";
    char name[64];
    status = ls_status_of_program(status);
    if (status == LS_OK || status == LS_INTERRUPTED)
        return status;
    ls_error(doing, "%s.%s failed (%s), so the %s fails", ls_clients_name(clients, table, name),
             function, ls_status_text(status), doing);
    return status;
}

// A failure counts more than an interruption, and the first one more than those after it.
static enum ls_status worse(enum ls_status first, enum ls_status next)
{
    return first == LS_OK || (first == LS_INTERRUPTED && next) ? next : first;
}

enum ls_status ls_clients_call(struct ls_clients *clients, enum ls_moment moment,
                               const struct ls_fit_state *state)
{
    enum ls_status status = LS_OK;
    const char *name = "";
    for (uint32_t i = 0; i < clients->count; i++)
        status = worse(status, call(&clients->list[i].callbacks, moment, state, &name));
    if (moment == LS_ON_TRAIN_END && !clients->begun)
        return status;
    clients->begun = true;
    for (uint32_t i = 0; i < clients->table_count; i++) {
        const bool stopped = atomic_load(&state->model->stop_training);
        const locale_t own = ls_locale_enter_program(); // plugins leave it again
        const enum ls_status answer = call(&clients->tables[i], moment, state, &name);
        ls_locale_return(own);
        status = worse(status, check_answer(clients, i, name, answer));
        if (!stopped && atomic_load(&state->model->stop_training))
            ls_clients_name(clients, i, clients->stopped_by);
    }
    return status;
}

enum ls_status ls_clients_begin_segment(struct ls_clients *clients,
                                        const struct ls_fit_state *state, uint64_t *steps)
{
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; i < clients->table_count; i++) {
        const struct ls_callbacks *table = &clients->tables[i];
        uint64_t most = *steps;
        if (!table->on_segment_begin)
            continue;
        const locale_t own = ls_locale_enter_program();
        const enum ls_status answer = table->on_segment_begin(table->context, state, &most);
        ls_locale_return(own);
        status = worse(status, check_answer(clients, i, "on_segment_begin", answer));
        *steps = most < *steps ? most : *steps;
        if (most == 0)
            ls_clients_name(clients, i, clients->stopped_by);
    }
    return status;
}

enum ls_status ls_clients_load_state(struct ls_clients *clients, uint32_t index,
                                     const struct ls_fit_state *fit,
                                     const struct ls_callback_state *state)
{
    const struct ls_callbacks *table = &clients->tables[index];
    const bool stopped = atomic_load(&fit->model->stop_training);
    const locale_t own = ls_locale_enter_program();
    const enum ls_status status = table->load_state(table->context, state);
    ls_locale_return(own);
    if (!stopped && atomic_load(&fit->model->stop_training))
        ls_clients_name(clients, index, clients->stopped_by);
    return check_answer(clients, index, "load_state", status);
}

const char *ls_clients_terminate_on_nan(const struct ls_clients *clients)
{
    for (uint32_t i = 0; i < clients->table_count; i++)
        if (clients->tables[i].terminate_on_nan)
            return clients->tables[i].name ? clients->tables[i].name : "terminate_on_nan";
    return NULL;
}

void ls_clients_step_times(const struct ls_clients *clients, const struct ls_step_result *times,
                           uint64_t step_ns, uint64_t input_ns)
{
    for (uint32_t i = 0; i < clients->count; i++)
        if (clients->list[i].on_step_times)
            clients->list[i].on_step_times(clients->list[i].callbacks.context, times, step_ns,
                                           input_ns);
}

void ls_clients_device_wait(const struct ls_clients *clients, uint64_t steps, uint64_t wait_ns)
{
    for (uint32_t i = 0; i < clients->count; i++)
        if (clients->list[i].on_device_wait)
            clients->list[i].on_device_wait(clients->list[i].callbacks.context, steps, wait_ns);
}
