// SPDX-License-Identifier: Apache-2.0
// The host behind host.h.
#include "tests/plugins/strategy/parameter-server/host.h"
#include "plugins/strategy/parameter-server/wire.h"

#include <check.h>
#include <math.h>

static const struct ls_plugin *strategy_plugin, *transport_plugin;

bool fake_plugins_open(void)
{
    strategy_plugin = test_plugin_open("strategy-parameter-server");
    transport_plugin = test_plugin_open("transport-local");
    return strategy_plugin && transport_plugin;
}

// ---- The general host ----

static const char *option(const struct ls_host *host, const char *name)
{
    const struct fake_host *fake =
        (const struct fake_host *)(const void *)((const char *)host -
                                                 offsetof(struct fake_host, host));
    for (uint32_t i = 0; i < FAKE_OPTIONS && fake->options[i][0]; i++)
        if (strcmp(fake->options[i][0], name) == 0)
            return fake->options[i][1];
    return test_host_option(host, name);
}

static void *allocate(const struct ls_host *host, uint64_t bytes, uint64_t alignment)
{
    struct fake_host *fake =
        (struct fake_host *)(void *)((char *)(uintptr_t)host - offsetof(struct fake_host, host));
    if (atomic_fetch_add(&fake->allocations, 1) >= atomic_load(&fake->allocations_allowed))
        return NULL;
    return test_host_allocate(host, bytes, alignment);
}

static void metric(const struct ls_strategy_host *host, const char *name, const double *values,
                   uint64_t count, uint32_t list)
{
    struct fake_host *fake = host->context;
    ls_fake_report.metric(host, name, values, count, list);
    struct fake_fact *fact = &fake->facts[fake->fact_count++];
    snprintf(fact->name, sizeof(fact->name), "%s", name);
    memcpy(fact->values, values, count * sizeof(*values));
    fact->count = count;
    fact->list = list;
}

// ---- A transport that fails, or sends something else, for one replica ----

static struct fake_host *failing; // whose replicas; one test at a time

// The number of a replica with this endpoint that is to fail or to ask something else; else FAKE_REPLICAS. Servers call it
// all the time, so there is no lock before a test wants that: a replica that is lost closes its endpoint.
static uint32_t owner_of(const struct ls_transport *endpoint)
{
    struct ls_fake_host *core = &failing->core;
    uint32_t owner = FAKE_REPLICAS, broken = 0;
    for (uint32_t i = 0; i < FAKE_REPLICAS; i++)
        broken += atomic_load(&failing->fails[i]) || atomic_load(&failing->asks[i]);
    if (!broken)
        return owner;
    pthread_mutex_lock(&core->lock);
    for (uint32_t i = 0; core->endpoint_count && i < core->replicas; i++)
        if (core->endpoints[i] == endpoint)
            owner = i;
    pthread_mutex_unlock(&core->lock);
    return owner;
}

static bool fails(uint32_t owner)
{
    return owner < FAKE_REPLICAS && atomic_load(&failing->fails[owner]);
}

static int32_t broken_post(struct ls_transport *endpoint, struct ls_transfer *transfer)
{
    const struct ls_transport_interface *real = transport_plugin->interface;
    const uint32_t owner = owner_of(endpoint);
    const uint32_t asks = owner < FAKE_REPLICAS ? atomic_load(&failing->asks[owner]) : 0;
    if (fails(owner))
        return LS_FAILED;
    if (asks && transfer->kind == LS_TRANSFER_SEND && transfer->signature == SIGNATURE_REQUEST)
        ((struct request *)transfer->memory)->kind = asks;
    return real->post(endpoint, transfer);
}

static int32_t broken_test(struct ls_transport *endpoint, struct ls_transfer *transfer)
{
    const struct ls_transport_interface *real = transport_plugin->interface;
    return fails(owner_of(endpoint)) ? LS_FAILED : real->test(endpoint, transfer);
}

// ---- The life of a test's host ----

void fake_option(struct fake_host *fake, const char *name, const char *value)
{
    uint32_t i = 0;
    while (fake->options[i][0])
        i++;
    fake->options[i][0] = name;
    fake->options[i][1] = value;
}

void fake_init(struct fake_host *fake, uint32_t replicas, uint32_t variables, uint64_t size,
               uint32_t per_bucket)
{
    const struct ls_fake_model model = {
        .variables = variables, .per_bucket = per_bucket, .sizes = {size, size}};
    memset(fake, 0, sizeof(*fake));
    test_host_init(&fake->host, strategy_plugin);
    fake->host.host.option = option;
    fake->host.host.allocate = allocate;
    memcpy(&fake->transport, transport_plugin->interface, sizeof(fake->transport));
    fake->transport.post = broken_post;
    fake->transport.test = broken_test;
    fake->allocations_allowed = UINT32_MAX;
    fake->ops = strategy_plugin->interface;
    ls_tally_init(&fake->tally, NULL, NULL, NULL, NULL);
    ls_fake_host_init(&fake->core, &fake->tally, fake->ops, &fake->host.host,
                      &(struct ls_fake_transport){&fake->transport, &fake->host.host}, replicas,
                      &model, 1);
    fake->report = ls_fake_report;
    fake->report.metric = metric;
    fake->core.table.report = &fake->report;
    fake->core.table.collectives = NULL; // the strategy needs none
    fake->core.table.deadline_ns = UINT64_C(20000000000);
    fake->core.first_step = 1;
    failing = fake;
}

int32_t fake_open(struct fake_host *fake)
{
    const int32_t status = ls_fake_open(&fake->core, &fake->strategy);
    if (!status)
        ls_fake_read_traits(&fake->core, fake->strategy);
    return status;
}

void fake_finish(struct fake_host *fake)
{
    ls_fake_close(&fake->core, fake->strategy);
    ls_fake_host_finish(&fake->core);
    failing = NULL;
    ck_assert_msg(!ls_tally_blamed(&fake->tally), "%s", fake->tally.message);
    ls_tally_finish(&fake->tally);
}

// ---- Steps ----

int32_t fake_begin(struct fake_host *fake, uint32_t replica)
{
    ls_fake_begin(&fake->core, replica, (uint32_t)fake->steps[replica]++);
    return fake->ops->begin_step(fake->strategy, replica);
}

int32_t fake_compute(struct fake_host *fake, uint32_t replica, float gradient, float loss,
                     float examples)
{
    struct ls_fake_replica *own = &fake->core.replica[replica];
    int32_t status = LS_OK;
    pthread_mutex_lock(&fake->core.lock);
    memset(own->own_sums, 0, sizeof(own->own_sums));
    own->own_sums[LS_SUMS_LOSS] = loss;
    own->own_sums[LS_SUMS_EXAMPLES] = examples;
    pthread_mutex_unlock(&fake->core.lock);
    for (uint32_t bucket = 0; !status && bucket < fake->core.buckets; bucket++) {
        const struct ls_placed_range range = ls_fake_bucket(&fake->core.model, bucket);
        for (uint64_t i = range.first; i < range.first + range.count; i++)
            own->gradients[i] = gradient;
        ls_fake_ready(&fake->core, replica, bucket);
        status = fake->ops->gradient_ready(fake->strategy, replica, bucket);
    }
    ls_fake_enter(&fake->core, replica, LS_FAKE_STEP);
    if (!status)
        status = fake->ops->end_step(fake->strategy, replica);
    ls_fake_enter(&fake->core, replica, LS_FAKE_OUTSIDE);
    return status;
}

int32_t fake_step(struct fake_host *fake, uint32_t replica, float gradient, float loss,
                  float examples)
{
    const int32_t status = fake_begin(fake, replica);
    return status ? status : fake_compute(fake, replica, gradient, loss, examples);
}

struct turn {
    struct fake_host *fake;
    uint32_t replica, steps;
    bool places, meets;
    int32_t status;
};

static void *turn_main(void *argument)
{
    struct turn *turn = argument;
    struct fake_host *fake = turn->fake;
    turn->status = LS_OK;
    if (turn->places)
        turn->status = fake->ops->initialize_parameters(fake->strategy, turn->replica);
    for (uint32_t i = 0; !turn->status && i < turn->steps; i++)
        turn->status = fake_step(fake, turn->replica, (float)turn->replica + 1.0f, 1.0f, 4.0f);
    if (!turn->status && turn->meets)
        turn->status = fake->ops->synchronise(fake->strategy, turn->replica);
    return NULL;
}

static int32_t run_turns(struct fake_host *fake, struct turn turn)
{
    struct turn turns[FAKE_REPLICAS];
    pthread_t threads[FAKE_REPLICAS];
    int32_t status = LS_OK;
    for (uint32_t i = 0; i < fake->core.replicas; i++) {
        turns[i] = turn;
        turns[i].fake = fake;
        turns[i].replica = i;
        pthread_create(&threads[i], NULL, turn_main, &turns[i]);
    }
    for (uint32_t i = 0; i < fake->core.replicas; i++) {
        pthread_join(threads[i], NULL);
        if (turns[i].status)
            status = turns[i].status;
    }
    return status;
}

int32_t fake_run(struct fake_host *fake, uint32_t count, bool meets)
{
    return run_turns(fake, (struct turn){.steps = count, .meets = meets});
}

int32_t fake_place(struct fake_host *fake)
{
    return run_turns(fake, (struct turn){.places = true});
}

int32_t fake_meet(struct fake_host *fake)
{
    return run_turns(fake, (struct turn){.meets = true});
}

// ---- The report ----

void fake_describe(struct fake_host *fake)
{
    fake->fact_count = 0;
    ls_fake_report_metrics(&fake->core, fake->strategy);
}

const struct fake_fact *fake_fact(const struct fake_host *fake, const char *name)
{
    for (uint32_t i = 0; i < fake->fact_count; i++)
        if (strcmp(fake->facts[i].name, name) == 0)
            return &fake->facts[i];
    return NULL;
}

double fake_number(const struct fake_host *fake, const char *name)
{
    const struct fake_fact *fact = fake_fact(fake, name);
    return fact && !fact->list ? fact->values[0] : NAN;
}
