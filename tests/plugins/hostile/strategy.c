// SPDX-License-Identifier: Apache-2.0
// strategy-hostile, for tests: mirrored, with one hook that does harm.
#include "tests/plugins/hostile/hostile.h"

#include "core/plugin/strategy.h"

#include <math.h>

const struct ls_plugin *mirrored_plugin(void); // mirrored's own, under another name

static const struct ls_strategy_interface *real;
static const struct ls_strategy_host *_Atomic table;

#define NOBODY 77 // a replica, bucket, variable that there is not

// ---- Threads ----

static struct ls_strategy_thread *thread;

static int32_t run_for_ever(void *context)
{
    (void)context;
    for (;;)
        pause();
    return LS_OK;
}

static int32_t run_wrong(void *context)
{
    (void)context;
    return hostile_call("run");
}

static int32_t start_thread(const struct ls_strategy_host *host)
{
    const char *fault = host->host->option(host->host, "fault");
    if (strcmp(fault, "thread-ends-never") == 0)
        return host->threads->start(host, "for ever", run_for_ever, NULL, &thread);
    if (strncmp(fault, "run-", 4) == 0)
        return host->threads->start(host, "wrong", run_wrong, NULL, &thread);
    return LS_OK;
}

// ---- Hooks ----

static int32_t open_strategy(const struct ls_strategy_host *host, struct ls_strategy *strategy)
{
    struct ls_store *store = NULL;
    atomic_store(&hostile_host, host->host);
    atomic_store(&table, host);
    const int32_t wrong = hostile_call("open");
    if (wrong)
        return wrong;
    if (hostile_is("open-store"))
        return host->stores->open(host, UINT64_MAX - 7, 16, &store);
    if (hostile_is("open-bucket")) {
        uint64_t first = 0, count = 0;
        host->layout->bucket_range(host, NOBODY, &first, &count);
        host->layout->variable_range(host, NOBODY, &first, &count);
        return LS_FAILED;
    }
    const int32_t status = start_thread(host);
    return status ? status : real->open(host, strategy);
}

static void close_strategy(struct ls_strategy *strategy)
{
    const struct ls_strategy_host *host = atomic_load(&table);
    (void)hostile_call("close");
    if (thread)
        host->threads->join(host, thread);
    if (real->close)
        real->close(strategy);
}

static void find_traits(struct ls_strategy *strategy, struct ls_strategy_traits *out)
{
    (void)hostile_call("traits");
    if (hostile_is("traits-numbers"))
        out->divisor = out->equality = 99;
    else if (real->find_traits)
        real->find_traits(strategy, out);
}

static int32_t place(struct ls_strategy *strategy, uint32_t replica)
{
    const int32_t wrong = hostile_call("place");
    return wrong ? wrong : real->initialize_parameters(strategy, replica);
}

static int32_t gradient_ready(struct ls_strategy *strategy, uint32_t replica, uint32_t bucket)
{
    const struct ls_strategy_host *host = atomic_load(&table);
    const int32_t wrong = hostile_call("gradient_ready");
    if (wrong)
        return wrong;
    if (hostile_is("host-start"))
        return host->collectives->all_reduce_start(host, NOBODY, bucket);
    if (hostile_is("host-start-bucket"))
        return host->collectives->all_reduce_start(host, replica, NOBODY);
    return real->gradient_ready(strategy, replica, bucket);
}

// Calls of the host for a replica that there is not. Those that answer nothing must do nothing, too.
static int32_t call_for_nobody(const struct ls_strategy_host *host)
{
    float values[LS_STRATEGY_SUMS] = {0};
    uint64_t number = 0;
    double rate = 0;
    if (hostile_is("host-wait"))
        return host->collectives->all_reduce_wait(host, NOBODY, 0);
    if (hostile_is("host-broadcast"))
        return host->collectives->broadcast_parameters(host, NOBODY, 0);
    if (hostile_is("host-decide"))
        return host->step->check_step(host, NOBODY);
    if (hostile_is("host-update"))
        return host->step->update(host, NOBODY, 0);
    if (hostile_is("host-read"))
        return host->memory->read(host, NOBODY, LS_REPLICA_PARAMETERS, 0, 4, values);
    if (hostile_is("host-write"))
        return host->memory->write(host, NOBODY, LS_REPLICA_PARAMETERS, 0, 4, values);
    if (hostile_is("host-sums"))
        return host->step->read_sums(host, NOBODY, values);
    if (hostile_is("host-decide-on"))
        return host->step->check_step_on(host, NOBODY, values);
    if (hostile_is("host-meet"))
        return host->threads->barrier(host, NOBODY);
    if (hostile_is("host-map"))
        return host->memory->map(host, NOBODY, LS_REPLICA_PARAMETERS) ? LS_OK : LS_FAILED;
    if (hostile_is("host-changed"))
        host->memory->changed(host, NOBODY);
    if (hostile_is("host-step"))
        host->step->current(host, NOBODY, &number, &rate);
    if (hostile_is("host-bytes"))
        host->report->count_bytes(host, NOBODY, 1);
    if (hostile_is("host-close"))
        host->endpoints->close(host, NOBODY);
    return LS_OK;
}

static int32_t decide_wrong(const struct ls_strategy_host *host, uint32_t replica)
{
    float sums[LS_STRATEGY_SUMS] = {1, 1, 64};
    const int32_t status = host->step->read_sums(host, replica, sums);
    if (hostile_is("sums-negative"))
        sums[LS_SUMS_EXAMPLES] = -1e30f;
    if (hostile_is("sums-none"))
        sums[LS_SUMS_EXAMPLES] = 0;
    if (hostile_is("sums-many"))
        sums[LS_SUMS_EXAMPLES] = 1e30f;
    if (hostile_is("sums-nan"))
        sums[LS_SUMS_EXAMPLES] = NAN;
    if (hostile_is("sums-right"))
        sums[LS_SUMS_RIGHT] = -1e30f;
    return status ? status : host->step->check_step_on(host, replica, sums);
}

static int32_t end_step(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_strategy_host *host = atomic_load(&table);
    const char *fault = host->host->option(host->host, "fault");
    int32_t wrong = hostile_call("end_step");
    if (!wrong)
        wrong = call_for_nobody(host);
    if (wrong)
        return wrong;
    if (hostile_is("meet-alone") && replica == 0)
        return host->threads->barrier(host, replica);
    while (hostile_is("host-endless"))
        (void)host->step->current(host, replica, NULL, NULL);
    while (hostile_is("meet-endless"))
        if ((wrong = host->threads->barrier(host, replica)))
            return wrong;
    const int32_t status = real->end_step(strategy, replica);
    return !status && strncmp(fault, "sums-", 5) == 0 ? decide_wrong(host, replica) : status;
}

static int32_t synchronise(struct ls_strategy *strategy, uint32_t replica)
{
    const int32_t wrong = hostile_call("synchronise");
    (void)replica;
    return wrong || !real->synchronise ? wrong : real->synchronise(strategy, replica);
}

static void report_metrics(struct ls_strategy *strategy)
{
    const struct ls_strategy_host *host = atomic_load(&table);
    const double values[1] = {NAN};
    (void)strategy;
    (void)hostile_call("describe");
    if (hostile_is("report-name"))
        host->report->metric(host, NULL, values, 1, 0);
}

static const struct ls_plugin_option options[] = HOSTILE_OPTIONS;

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    static struct ls_strategy_interface interface;
    static struct ls_plugin plugin;
    hostile_early("entry");
    plugin = *mirrored_plugin();
    real = plugin.interface;
    interface = *real;
    interface.open = open_strategy;
    interface.close = close_strategy;
    interface.find_traits = find_traits;
    interface.initialize_parameters = place;
    interface.gradient_ready = gradient_ready;
    interface.end_step = end_step;
    interface.synchronise = synchronise;
    interface.report_metrics = report_metrics;
    plugin.name = "hostile";
    plugin.summary = "for tests: mirrored, with one hook that does harm";
    plugin.options = options;
    plugin.interface = &interface;
    return &plugin;
}
