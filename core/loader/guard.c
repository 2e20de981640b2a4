// SPDX-License-Identifier: Apache-2.0
// One table of guards for each kind of plugin, and the plugins that this process has opened. The
// guards of devices are in core/device/device.c.
#include "core/loader/guard.h"

#include "core/attributes.h"
#include "core/base/instance.h"
#include "core/base/log.h"
#include "core/loader/internal.h"
#include "core/loader/loader.h"
#include "core/plugin/callback.h"
#include "core/plugin/collective.h"
#include "core/plugin/dataset.h"
#include "core/plugin/filter.h"
#include "core/plugin/layer.h"
#include "core/plugin/loss.h"
#include "core/plugin/metric.h"
#include "core/plugin/strategy.h"
#include "core/plugin/transport.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- Calls that a collective makes several times in a microsecond: entered and left inline ----

struct often {
    const struct ls_inside_site *site, *before;
};

LS_ALWAYS_INLINE struct often enter_often(const struct ls_inside_site *site)
{
    return (struct often){site, ls_inside_begin(site)};
}

// The communicator says what keeps a transfer from ending.
static bool is_said_elsewhere(int32_t status, const struct ls_transfer *transfer)
{
    return status != LS_FAILED || (transfer && transfer->state == LS_TRANSFER_MISMATCH);
}

LS_ALWAYS_INLINE int32_t answer_often(const struct often often, const struct ls_instance *instance,
                                      int32_t status, const struct ls_transfer *transfer)
{
    ls_inside_end(often.site, often.before);
    if (status == LS_OK || status == LS_AGAIN)
        return status;
    return ls_guard_judge(instance->plugin, often.site->name, ls_guard_reasons_entered(), status,
                          !is_said_elsewhere(status, transfer));
}

// ---- Transports ----

static int32_t transport_open(const struct ls_host *host, const struct ls_transport_config *config,
                              struct ls_transport *const *endpoints)
{
    for (uint32_t i = 0; i < config->count; i++)
        ls_instance_claim(endpoints[i], host);
    const struct ls_guarded_call call = ls_guard_enter_host(host, "open");
    const struct ls_transport_interface *own = call.own;
    return ls_guard_opened(&call, own->open(host, config, endpoints));
}

static void transport_close(struct ls_transport *transport)
{
    const struct ls_guarded_call call = ls_guard_enter(transport, "close");
    const struct ls_transport_interface *own = call.own;
    own->close(transport);
    ls_guard_leave(&call);
}

static int32_t transport_post(struct ls_transport *transport, struct ls_transfer *transfer)
{
    const struct ls_instance *instance = ls_instance_in_front(transport);
    const struct ls_transport_interface *own = instance->own;
    const struct often call = enter_often(&instance->plugin->often[LS_OFTEN_POST]);
    return answer_often(call, instance, own->post(transport, transfer), transfer);
}

static int32_t transport_test(struct ls_transport *transport, struct ls_transfer *transfer)
{
    const struct ls_instance *instance = ls_instance_in_front(transport);
    const struct ls_transport_interface *own = instance->own;
    const struct often call = enter_often(&instance->plugin->often[LS_OFTEN_TEST]);
    return answer_often(call, instance, own->test(transport, transfer), transfer);
}

static int32_t transport_wait_any(struct ls_transport *transport,
                                  struct ls_transfer *const *transfers, uint64_t count,
                                  uint64_t timeout_ns)
{
    const struct ls_instance *instance = ls_instance_in_front(transport);
    const struct ls_transport_interface *own = instance->own;
    const struct often call = enter_often(&instance->plugin->often[LS_OFTEN_WAIT_ANY]);
    return answer_often(call, instance, own->wait_any(transport, transfers, count, timeout_ns),
                        NULL);
}

static void transport_abort(struct ls_transport *transport)
{
    const struct ls_guarded_call call = ls_guard_enter(transport, "abort");
    const struct ls_transport_interface *own = call.own;
    own->abort(transport);
    ls_guard_leave(&call);
}

static int32_t transport_peer_state(struct ls_transport *transport, uint32_t peer)
{
    const struct ls_guarded_call call = ls_guard_enter(transport, "peer_state");
    const struct ls_transport_interface *own = call.own;
    return ls_guard_answer(&call, own->peer_state(transport, peer), false);
}

static int32_t transport_arm(struct ls_transport *transport, struct ls_transfer *const *transfers,
                             uint64_t count, int32_t *fd, uint64_t *glance_ns)
{
    const struct ls_instance *instance = ls_instance_in_front(transport);
    const struct ls_transport_interface *own = instance->own;
    const struct often call = enter_often(&instance->plugin->often[LS_OFTEN_ARM]);
    return answer_often(call, instance, own->arm(transport, transfers, count, fd, glance_ns), NULL);
}

static const struct ls_transport_interface transport_guards = {
    .open = transport_open,
    .close = transport_close,
    .post = transport_post,
    .test = transport_test,
    .wait_any = transport_wait_any,
    .abort = transport_abort,
    .peer_state = transport_peer_state,
    .arm = transport_arm,
};

// ---- Collectives ----

// A caller that only tries whether a collective can build a schedule for a call gives it a silent
// host: no reason is expected then.
static int32_t collective_build_schedule(const struct ls_collective_call *what,
                                         struct ls_schedule *schedule)
{
    const struct ls_guarded_call call = ls_guard_enter_host(what->host, "build_schedule");
    const struct ls_collective_interface *own = call.own;
    return ls_guard_answer(&call, own->build_schedule(what, schedule),
                           ls_host_is_loaders(what->host));
}

static int32_t collective_open(const struct ls_host *host,
                               const struct ls_collective_config *config,
                               struct ls_collective *const *collectives)
{
    for (uint32_t i = 0; i < config->count; i++)
        ls_instance_claim(collectives[i], host);
    const struct ls_guarded_call call = ls_guard_enter_host(host, "open");
    const struct ls_collective_interface *own = call.own;
    return ls_guard_opened(&call, own->open(host, config, collectives));
}

static void collective_close(struct ls_collective *collective)
{
    const struct ls_guarded_call call = ls_guard_enter(collective, "close");
    const struct ls_collective_interface *own = call.own;
    own->close(collective);
    ls_guard_leave(&call);
}

static int32_t collective_run(struct ls_collective *collective, const struct ls_collective_run *run)
{
    const struct ls_guarded_call call = ls_guard_enter(collective, "run");
    const struct ls_collective_interface *own = call.own;
    return ls_guard_answer(&call, own->run(collective, run), false);
}

static int32_t collective_done(struct ls_collective *collective, uint64_t *ended)
{
    const struct ls_guarded_call call = ls_guard_enter(collective, "done");
    const struct ls_collective_interface *own = call.own;
    return ls_guard_answer(&call, own->done(collective, ended), false);
}

static int32_t collective_poll(struct ls_collective *collective)
{
    const struct ls_guarded_call call = ls_guard_enter(collective, "poll");
    const struct ls_collective_interface *own = call.own;
    return ls_guard_answer(&call, own->poll(collective), false);
}

static void collective_abort(struct ls_collective *collective)
{
    const struct ls_guarded_call call = ls_guard_enter(collective, "abort");
    const struct ls_collective_interface *own = call.own;
    own->abort(collective);
    ls_guard_leave(&call);
}

static int32_t collective_allocate(struct ls_collective *collective, uint64_t bytes, void **out)
{
    const struct ls_guarded_call call = ls_guard_enter(collective, "allocate");
    const struct ls_collective_interface *own = call.own;
    void *memory = NULL;
    const int32_t status = ls_guard_answer(&call, own->allocate(collective, bytes, &memory), true);
    *out = status ? NULL : memory;
    if (status || (uintptr_t)memory % LS_ALIGNMENT == 0)
        return status;
    ls_error(call.plugin->name, "plugin %s: `%s` returned memory that is not aligned to %d bytes",
             call.plugin->label, call.name, LS_ALIGNMENT);
    own->release(collective, memory);
    *out = NULL;
    return LS_FAILED;
}

static void collective_release(struct ls_collective *collective, void *memory)
{
    const struct ls_guarded_call call = ls_guard_enter(collective, "release");
    const struct ls_collective_interface *own = call.own;
    own->release(collective, memory);
    ls_guard_leave(&call);
}

static const struct ls_collective_interface collective_guards = {
    .build_schedule = collective_build_schedule,
    .open = collective_open,
    .close = collective_close,
    .run = collective_run,
    .done = collective_done,
    .poll = collective_poll,
    .abort = collective_abort,
    .allocate = collective_allocate,
    .release = collective_release,
};

// ---- Strategies ----

static int32_t strategy_open(const struct ls_strategy_host *host, struct ls_strategy *strategy)
{
    ls_instance_claim(strategy, host->host);
    const struct ls_guarded_call call = ls_guard_enter_host(host->host, "open");
    const struct ls_strategy_interface *own = call.own;
    return ls_guard_opened(&call, own->open(host, strategy));
}

static void strategy_close(struct ls_strategy *strategy)
{
    const struct ls_guarded_call call = ls_guard_enter(strategy, "close");
    const struct ls_strategy_interface *own = call.own;
    own->close(strategy);
    ls_guard_leave(&call);
}

static int32_t strategy_initialize_parameters(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_guarded_call call = ls_guard_enter(strategy, "initialize_parameters");
    const struct ls_strategy_interface *own = call.own;
    return ls_guard_answer(&call, own->initialize_parameters(strategy, replica), true);
}

static int32_t strategy_begin_step(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_guarded_call call = ls_guard_enter(strategy, "begin_step");
    const struct ls_strategy_interface *own = call.own;
    return ls_guard_answer(&call, own->begin_step(strategy, replica), true);
}

static int32_t strategy_parameters_needed(struct ls_strategy *strategy, uint32_t replica,
                                          uint32_t bucket)
{
    const struct ls_guarded_call call = ls_guard_enter(strategy, "parameters_needed");
    const struct ls_strategy_interface *own = call.own;
    return ls_guard_answer(&call, own->parameters_needed(strategy, replica, bucket), true);
}

static int32_t strategy_gradient_ready(struct ls_strategy *strategy, uint32_t replica,
                                       uint32_t bucket)
{
    const struct ls_guarded_call call = ls_guard_enter(strategy, "gradient_ready");
    const struct ls_strategy_interface *own = call.own;
    return ls_guard_answer(&call, own->gradient_ready(strategy, replica, bucket), true);
}

static int32_t strategy_end_step(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_guarded_call call = ls_guard_enter(strategy, "end_step");
    const struct ls_strategy_interface *own = call.own;
    return ls_guard_answer(&call, own->end_step(strategy, replica), true);
}

static int32_t strategy_synchronise(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_guarded_call call = ls_guard_enter(strategy, "synchronise");
    const struct ls_strategy_interface *own = call.own;
    return ls_guard_answer(&call, own->synchronise(strategy, replica), true);
}

static void strategy_find_traits(struct ls_strategy *strategy, struct ls_strategy_traits *out)
{
    const struct ls_guarded_call call = ls_guard_enter(strategy, "find_traits");
    const struct ls_strategy_interface *own = call.own;
    own->find_traits(strategy, out);
    ls_guard_leave(&call);
}

static int32_t strategy_lost(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_guarded_call call = ls_guard_enter(strategy, "lost");
    const struct ls_strategy_interface *own = call.own;
    return ls_guard_answer(&call, own->lost(strategy, replica), true);
}

static void strategy_report_metrics(struct ls_strategy *strategy)
{
    const struct ls_guarded_call call = ls_guard_enter(strategy, "report_metrics");
    const struct ls_strategy_interface *own = call.own;
    own->report_metrics(strategy);
    ls_guard_leave(&call);
}

static int32_t strategy_rest(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_guarded_call call = ls_guard_enter(strategy, "rest");
    const struct ls_strategy_interface *own = call.own;
    return ls_guard_answer(&call, own->rest(strategy, replica), true);
}

static void strategy_placement(struct ls_strategy *strategy, uint32_t rank, uint32_t bucket,
                               struct ls_strategy_placement *out)
{
    const struct ls_guarded_call call = ls_guard_enter(strategy, "placement");
    const struct ls_strategy_interface *own = call.own;
    own->placement(strategy, rank, bucket, out);
    ls_guard_leave(&call);
}

static const struct ls_strategy_interface strategy_guards = {
    .open = strategy_open,
    .close = strategy_close,
    .initialize_parameters = strategy_initialize_parameters,
    .begin_step = strategy_begin_step,
    .parameters_needed = strategy_parameters_needed,
    .gradient_ready = strategy_gradient_ready,
    .end_step = strategy_end_step,
    .synchronise = strategy_synchronise,
    .find_traits = strategy_find_traits,
    .lost = strategy_lost,
    .report_metrics = strategy_report_metrics,
    .rest = strategy_rest,
    .placement = strategy_placement,
};

// ---- Callbacks: opening and closing; core/train enters the record for the moments of a fit ----

static int32_t callback_open(const struct ls_host *host, const struct ls_fit_calls *calls,
                             struct ls_callback *callback, struct ls_callbacks *out)
{
    ls_instance_claim(callback, host);
    const struct ls_guarded_call call = ls_guard_enter_host(host, "open");
    const struct ls_callback_interface *own = call.own;
    return ls_guard_opened(&call, own->open(host, calls, callback, out));
}

static void callback_close(struct ls_callback *callback)
{
    const struct ls_guarded_call call = ls_guard_enter(callback, "close");
    const struct ls_callback_interface *own = call.own;
    own->close(callback);
    ls_guard_leave(&call);
}

static const struct ls_callback_interface callback_guards = {
    .open = callback_open,
    .close = callback_close,
};

// ---- Layers, losses, metrics, datasets ----

static int32_t layer_build(const struct ls_host *host, const struct ls_composer *composer,
                           struct ls_tensor *const *inputs, uint32_t input_count,
                           struct ls_tensor **outputs)
{
    const struct ls_guarded_call call = ls_guard_enter_host(host, "build");
    const struct ls_layer_interface *own = call.own;
    return ls_guard_opened(&call, own->build(host, composer, inputs, input_count, outputs));
}

static const struct ls_layer_interface layer_guards = {.build = layer_build};

static int32_t loss_build(const struct ls_host *host, const struct ls_composer *composer,
                          struct ls_tensor *predictions, struct ls_tensor *targets,
                          struct ls_tensor **values)
{
    const struct ls_guarded_call call = ls_guard_enter_host(host, "build");
    const struct ls_loss_interface *own = call.own;
    return ls_guard_opened(&call, own->build(host, composer, predictions, targets, values));
}

static int32_t loss_target_shape(const struct ls_host *host, uint32_t *ndims,
                                 int64_t dims[LS_MAX_DIMS])
{
    const struct ls_guarded_call call = ls_guard_enter_host(host, "target_shape");
    const struct ls_loss_interface *own = call.own;
    return ls_guard_opened(&call, own->target_shape(host, ndims, dims));
}

static const struct ls_loss_interface loss_guards = {
    .build = loss_build,
    .target_shape = loss_target_shape,
};

static int32_t metric_build(const struct ls_host *host, const struct ls_composer *composer,
                            struct ls_tensor *predictions, struct ls_tensor *targets,
                            struct ls_tensor **values)
{
    const struct ls_guarded_call call = ls_guard_enter_host(host, "build");
    const struct ls_metric_interface *own = call.own;
    return ls_guard_opened(&call, own->build(host, composer, predictions, targets, values));
}

static double metric_result(const struct ls_host *host, const double *sums, double examples)
{
    const struct ls_guarded_call call = ls_guard_enter_host(host, "result");
    const struct ls_metric_interface *own = call.own;
    const double value = own->result(host, sums, examples);
    ls_guard_leave(&call);
    return value;
}

static const struct ls_metric_interface metric_guards = {
    .build = metric_build,
    .result = metric_result,
};

static int32_t dataset_open(const struct ls_host *host, const char *split,
                            struct ls_dataset_state *state, struct ls_dataset_description *out)
{
    ls_instance_claim(state, host);
    const struct ls_guarded_call call = ls_guard_enter_host(host, "open");
    const struct ls_dataset_interface *own = call.own;
    return ls_guard_opened(&call, own->open(host, split, state, out));
}

static int32_t dataset_load(struct ls_dataset_state *state, uint64_t example, void *const *fields)
{
    const struct ls_guarded_call call = ls_guard_enter(state, "load");
    const struct ls_dataset_interface *own = call.own;
    return ls_guard_opened(&call, own->load(state, example, fields));
}

static void dataset_close(struct ls_dataset_state *state)
{
    const struct ls_guarded_call call = ls_guard_enter(state, "close");
    const struct ls_dataset_interface *own = call.own;
    own->close(state);
    ls_guard_leave(&call);
}

static const struct ls_dataset_interface dataset_guards = {
    .open = dataset_open,
    .load = dataset_load,
    .close = dataset_close,
};

static uint32_t filter_takes(const struct ls_host *host, const struct ls_filter_variable *variable)
{
    const struct ls_guarded_call call = ls_guard_enter_host(host, "takes");
    const struct ls_filter_interface *own = call.own;
    const uint32_t takes = own->takes(host, variable);
    ls_guard_leave(&call);
    return takes;
}

static int32_t filter_plan(const struct ls_filter_call *what, struct ls_filter_stages *stages)
{
    const struct ls_guarded_call call = ls_guard_enter_host(what->host, "plan");
    const struct ls_filter_interface *own = call.own;
    return ls_guard_answer(&call, own->plan(what, stages), ls_host_is_loaders(what->host));
}

static int32_t filter_run(const struct ls_filter_call *what, const struct ls_filter_memory *memory,
                          uint32_t function)
{
    const struct ls_guarded_call call = ls_guard_enter_host(what->host, "run");
    const struct ls_filter_interface *own = call.own;
    return ls_guard_answer(&call, own->run(what, memory, function), ls_host_is_loaders(what->host));
}

static uint64_t filter_begins(const struct ls_host *host)
{
    const struct ls_guarded_call call = ls_guard_enter_host(host, "begins");
    const struct ls_filter_interface *own = call.own;
    const uint64_t begins = own->begins(host);
    ls_guard_leave(&call);
    return begins;
}

static const struct ls_filter_interface filter_guards = {
    .takes = filter_takes,
    .plan = filter_plan,
    .run = filter_run,
    .begins = filter_begins,
};

// ---- The tables ----

static const struct guards {
    const void *table;
    size_t bytes;
} guards_of[LS_KINDS + 1] = {
    [LS_KIND_DEVICE] = {&ls_device_guards, sizeof(ls_device_guards)},
    [LS_KIND_TRANSPORT] = {&transport_guards, sizeof(transport_guards)},
    [LS_KIND_COLLECTIVE] = {&collective_guards, sizeof(collective_guards)},
    [LS_KIND_STRATEGY] = {&strategy_guards, sizeof(strategy_guards)},
    [LS_KIND_CALLBACK] = {&callback_guards, sizeof(callback_guards)},
    [LS_KIND_LAYER] = {&layer_guards, sizeof(layer_guards)},
    [LS_KIND_LOSS] = {&loss_guards, sizeof(loss_guards)},
    [LS_KIND_METRIC] = {&metric_guards, sizeof(metric_guards)},
    [LS_KIND_DATASET] = {&dataset_guards, sizeof(dataset_guards)},
    [LS_KIND_FILTER] = {&filter_guards, sizeof(filter_guards)},
};

// Callers ask the table which functions a plugin has: where it has none, ours has none. Members
// that are not functions are 0 in the table of guards, and stay as they are.
void ls_guard_table(uint32_t kind, void *interface)
{
    const struct guards *guards = &guards_of[kind];
    void (*function)(void), (*own)(void);
    for (size_t at = 0; at + sizeof(function) <= guards->bytes; at += sizeof(function)) {
        memcpy(&function, (const char *)guards->table + at, sizeof(function));
        memcpy(&own, (const char *)interface + at, sizeof(own));
        if (function && own)
            memcpy((char *)interface + at, &function, sizeof(function));
    }
}

// ---- The plugins that are known ----

struct known {
    struct ls_known_plugin plugin;
    struct known *_Atomic next; // of its kind, in the order in which they were opened
};

static struct known *_Atomic known[LS_KINDS + 1];
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;

static struct known *create_known(uint32_t kind, const char *name, const void *own)
{
    static const char *const often[LS_OFTEN_CALLS] = {
        [LS_OFTEN_POST] = "post",
        [LS_OFTEN_TEST] = "test",
        [LS_OFTEN_WAIT_ANY] = "wait_any",
        [LS_OFTEN_ARM] = "arm",
    };
    struct known *one = calloc(1, sizeof(*one));
    if (!one)
        return NULL;
    struct ls_known_plugin *plugin = &one->plugin;
    snprintf(plugin->label, sizeof(plugin->label), "%s-%s", ls_kind_text(kind), name);
    plugin->kind = kind;
    plugin->name = plugin->label + strlen(ls_kind_text(kind)) + 1;
    plugin->own = own;
    for (int i = 0; i < LS_OFTEN_CALLS; i++)
        plugin->often[i] = (struct ls_inside_site){plugin->label, often[i]};
    return one;
}

const struct ls_known_plugin *ls_plugin_know(uint32_t kind, const char *name, const void *own)
{
    pthread_mutex_lock(&known_lock);
    struct known *_Atomic *place = &known[kind];
    struct known *one = atomic_load(place);
    while (one && one->plugin.own != own) {
        place = &one->next;
        one = atomic_load(place);
    }
    if (!one) {
        one = create_known(kind, name, own);
        atomic_store(place, one);
    }
    pthread_mutex_unlock(&known_lock);
    return one ? &one->plugin : NULL;
}

const char *ls_loader_opened_name(size_t index)
{
    for (size_t kind = 0; kind <= LS_KINDS; kind++)
        for (const struct known *one = atomic_load(&known[kind]); one;
             one = atomic_load(&one->next))
            if (index-- == 0)
                return one->plugin.label;
    return NULL;
}

// `about` has neither a state nor a host, by which a guard could find the plugin.
void ls_collective_about(const struct ls_opened_plugin *opened, char *text, uint64_t bytes)
{
    const struct ls_collective_interface *collective = opened->interface;
    text[0] = '\0';
    if (!collective->about)
        return;
    const struct ls_guarded_call call = ls_guard_enter_host(opened->host, "about");
    collective->about(text, bytes);
    text[bytes - 1] = '\0';
    ls_guard_leave(&call);
}
