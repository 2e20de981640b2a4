// SPDX-License-Identifier: Apache-2.0
// The host behind host.h.
#include "tests/plugins/strategy/parameter-server/host.h"
#include "plugins/strategy/parameter-server/wire.h"
#include "tests/support/endpoints.h"

#include <math.h>

static const struct ls_plugin *strategy_plugin, *transport_plugin;

struct ls_store {
    struct ls_store *next;
    struct fake_host *fake;
    uint64_t first, count, updates;
    float *values;
};

struct ls_strategy_thread {
    struct fake_host *fake;
    pthread_t thread;
    int32_t (*run)(void *context);
    void *context;
    int32_t status;
};

static struct fake_host *fake_of(const struct ls_strategy_host *host)
{
    return host->context;
}

bool fake_plugins_open(void)
{
    strategy_plugin = test_plugin_open("strategy-parameter-server");
    transport_plugin = test_plugin_open("transport-local");
    return strategy_plugin && transport_plugin;
}

float fake_initial(uint64_t index)
{
    return (float)(index % 1000) / 8.0f;
}

bool fake_is_padding(const struct fake_host *fake, uint64_t index)
{
    return index % (fake->size + fake->gap) >= fake->size;
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

// ---- Memory of replicas ----

static void bucket_range(const struct ls_strategy_host *host, uint32_t bucket, uint64_t *first,
                         uint64_t *count)
{
    const struct fake_host *fake = fake_of(host);
    const uint64_t bytes = (fake->size + fake->gap) * fake->per_bucket;
    *first = bytes * bucket;
    *count = bucket + 1 == host->bucket_count ? host->flat_count - *first : bytes;
}

static void variable_range(const struct ls_strategy_host *host, uint32_t variable, uint64_t *first,
                           uint64_t *count)
{
    const struct fake_host *fake = fake_of(host);
    *first = (fake->size + fake->gap) * variable;
    *count = fake->size;
}

static float *buffer_of(const struct ls_strategy_host *host, uint32_t replica, uint32_t memory)
{
    struct fake_replica *own = &fake_of(host)->replicas[replica];
    return memory == LS_REPLICA_PARAMETERS ? own->parameters : own->gradients;
}

static float *map(const struct ls_strategy_host *host, uint32_t replica, uint32_t memory)
{
    return fake_of(host)->mapped ? buffer_of(host, replica, memory) : NULL;
}

static int32_t read_range(const struct ls_strategy_host *host, uint32_t replica, uint32_t memory,
                          uint64_t first, uint64_t count, float *out)
{
    memcpy(out, buffer_of(host, replica, memory) + first, count * sizeof(float));
    return LS_OK;
}

static void changed(const struct ls_strategy_host *host, uint32_t replica)
{
    fake_of(host)->replicas[replica].changes++;
}

static int32_t write_range(const struct ls_strategy_host *host, uint32_t replica, uint32_t memory,
                           uint64_t first, uint64_t count, const float *in)
{
    memcpy(buffer_of(host, replica, memory) + first, in, count * sizeof(float));
    changed(host, replica);
    return LS_OK;
}

static int32_t read_sums(const struct ls_strategy_host *host, uint32_t replica, float *out)
{
    const struct fake_replica *own = &fake_of(host)->replicas[replica];
    memcpy(out, own->sums, sizeof(own->sums));
    return LS_OK;
}

static int32_t check_step_on(const struct ls_strategy_host *host, uint32_t replica,
                             const float *sums)
{
    struct fake_replica *own = &fake_of(host)->replicas[replica];
    memcpy(own->decided, sums, sizeof(own->decided));
    own->decisions++;
    return isfinite(sums[LS_SUMS_LOSS]) ? LS_OK : LS_FAILED;
}

static void step_of(const struct ls_strategy_host *host, uint32_t replica, uint64_t *number,
                    double *learning_rate)
{
    *number = fake_of(host)->replicas[replica].step;
    *learning_rate = (double)fake_of(host)->learning_rate;
}

static void count_bytes(const struct ls_strategy_host *host, uint32_t replica, uint64_t bytes)
{
    fake_of(host)->replicas[replica].bytes += bytes;
}

static void waited(const struct ls_strategy_host *host, uint32_t replica, uint32_t whom,
                   uint64_t since_ns)
{
    (void)since_ns;
    fake_of(host)->replicas[replica].waits[whom]++;
}

// ---- Stores, threads, endpoints ----

static int32_t store_open(const struct ls_strategy_host *host, uint64_t first, uint64_t count,
                          struct ls_store **out)
{
    struct fake_host *fake = fake_of(host);
    struct ls_store *store = calloc(1, sizeof(*store));
    *store = (struct ls_store){.next = fake->stores, .fake = fake, .first = first, .count = count};
    store->values = malloc(count * sizeof(float));
    for (uint64_t i = 0; i < count; i++)
        store->values[i] = fake_initial(first + i);
    fake->stores = store;
    *out = store;
    return LS_OK;
}

static void store_close(const struct ls_strategy_host *host, struct ls_store *store)
{
    struct ls_store **place = &fake_of(host)->stores;
    if (!store)
        return;
    while (*place != store)
        place = &(*place)->next;
    *place = store->next;
    free(store->values);
    free(store);
}

static float *store_values(const struct ls_strategy_host *host, struct ls_store *store)
{
    (void)host;
    return store->values;
}

static int32_t store_update(const struct ls_strategy_host *host, struct ls_store *store,
                            const float *gradient, uint64_t step, double learning_rate)
{
    (void)host;
    if (step != ++store->updates && step) // 0: the next one
        return store->fake->host.host.fail(&store->fake->host.host, LS_FAILED, "wrong step");
    for (uint64_t i = 0; i < store->count; i++)
        store->values[i] -= (float)learning_rate * gradient[i];
    return LS_OK;
}

static void *thread_main(void *argument)
{
    struct ls_strategy_thread *thread = argument;
    struct fake_host *fake = thread->fake;
    thread->status = thread->run(thread->context);
    if (thread->status && thread->status != LS_ABORTED) // the run ends
        fake->transport.abort(fake->endpoints[0]);
    return NULL;
}

static int32_t thread_start(const struct ls_strategy_host *host, const char *name,
                            int32_t (*run)(void *context), void *context,
                            struct ls_strategy_thread **out)
{
    struct fake_host *fake = fake_of(host);
    (void)name;
    if (fake->threads_started >= fake->threads_allowed)
        return LS_FAILED;
    struct ls_strategy_thread *thread = calloc(1, sizeof(*thread));
    thread->fake = fake;
    thread->run = run;
    thread->context = context;
    if (pthread_create(&thread->thread, NULL, thread_main, thread)) {
        free(thread);
        return LS_FAILED;
    }
    fake->threads_started++;
    *out = thread;
    return LS_OK;
}

static int32_t thread_join(const struct ls_strategy_host *host, struct ls_strategy_thread *thread)
{
    pthread_join(thread->thread, NULL);
    const int32_t status = thread->status;
    free(thread);
    fake_of(host)->threads_started--;
    return status;
}

static int32_t endpoints_open(const struct ls_strategy_host *host, uint32_t servers,
                              struct ls_transport **endpoints)
{
    struct fake_host *fake = fake_of(host);
    const struct ls_transport_interface *real = transport_plugin->interface;
    const int32_t status =
        test_endpoints_open(real, host->host, host->world + servers, host->deadline_ns, endpoints);
    if (status)
        return status;
    fake->endpoint_count = host->world + servers;
    memcpy(fake->endpoints, endpoints, fake->endpoint_count * sizeof(*endpoints));
    return LS_OK;
}

static void endpoint_close(const struct ls_strategy_host *host, uint32_t endpoint)
{
    struct fake_host *fake = fake_of(host);
    test_endpoint_close(&fake->transport, fake->endpoints[endpoint]);
    fake->closed[endpoint] = true;
}

static void metric(const struct ls_strategy_host *host, const char *name, const double *values,
                   uint64_t count, uint32_t list)
{
    struct fake_host *fake = fake_of(host);
    struct fake_fact *fact = &fake->facts[fake->fact_count++];
    snprintf(fact->name, sizeof(fact->name), "%s", name);
    memcpy(fact->values, values, count * sizeof(*values));
    fact->count = count;
    fact->list = list;
}

// ---- A transport that fails, or sends something else, for one replica ----

static struct fake_host *failing; // whose replicas; one test at a time

// NULL: a server's endpoint.
static struct fake_replica *owner_of(const struct ls_transport *endpoint)
{
    for (uint32_t i = 0; failing && i < failing->table.world; i++)
        if (failing->endpoints[i] == endpoint)
            return &failing->replicas[i];
    return NULL;
}

static int32_t broken_post(struct ls_transport *endpoint, struct ls_transfer *transfer)
{
    const struct ls_transport_interface *real = transport_plugin->interface;
    struct fake_replica *owner = owner_of(endpoint);
    if (owner && atomic_load(&owner->fails))
        return LS_FAILED;
    if (owner && atomic_load(&owner->asks) && transfer->kind == LS_TRANSFER_SEND &&
        transfer->signature == SIGNATURE_REQUEST)
        ((struct request *)transfer->memory)->kind = atomic_load(&owner->asks);
    return real->post(endpoint, transfer);
}

static int32_t broken_test(struct ls_transport *endpoint, struct ls_transfer *transfer)
{
    const struct ls_transport_interface *real = transport_plugin->interface;
    const struct fake_replica *owner = owner_of(endpoint);
    return owner && atomic_load(&owner->fails) ? LS_FAILED : real->test(endpoint, transfer);
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

static const struct ls_strategy_layout layout = {
    .struct_size = sizeof(layout), .bucket_range = bucket_range, .variable_range = variable_range};
static const struct ls_strategy_step step = {.struct_size = sizeof(step),
                                             .current = step_of,
                                             .read_sums = read_sums,
                                             .check_step_on = check_step_on};
static const struct ls_strategy_memory memory = {.struct_size = sizeof(memory),
                                                 .map = map,
                                                 .read = read_range,
                                                 .write = write_range,
                                                 .changed = changed};
static const struct ls_strategy_stores stores = {.struct_size = sizeof(stores),
                                                 .open = store_open,
                                                 .close = store_close,
                                                 .values = store_values,
                                                 .update = store_update};
static const struct ls_strategy_threads threads_table = {
    .struct_size = sizeof(threads_table), .start = thread_start, .join = thread_join};
static const struct ls_strategy_endpoints endpoints_table = {
    .struct_size = sizeof(endpoints_table), .open = endpoints_open, .close = endpoint_close};
static const struct ls_strategy_report report = {
    .struct_size = sizeof(report), .count_bytes = count_bytes, .waited = waited, .metric = metric};

static void make_table(struct fake_host *fake, uint32_t replicas, uint32_t variables)
{
    const uint32_t buckets =
        (variables + (uint32_t)fake->per_bucket - 1) / (uint32_t)fake->per_bucket;
    fake->table = (struct ls_strategy_host){.struct_size = sizeof(fake->table),
                                            .replicas = replicas,
                                            .world = replicas,
                                            .bucket_count = buckets,
                                            .variable_count = variables,
                                            .flat_count = (fake->size + fake->gap) * variables,
                                            .deadline_ns = UINT64_C(20000000000),
                                            .context = fake,
                                            .host = &fake->host.host,
                                            .layout = &layout,
                                            .step = &step,
                                            .memory = &memory,
                                            .stores = &stores,
                                            .threads = &threads_table,
                                            .endpoints = &endpoints_table,
                                            .report = &report,
                                            .transport = &fake->transport};
}

void fake_init(struct fake_host *fake, uint32_t replicas, uint32_t variables, uint64_t size,
               uint32_t per_bucket)
{
    memset(fake, 0, sizeof(*fake));
    test_host_init(&fake->host, strategy_plugin);
    fake->host.host.option = option;
    fake->host.host.allocate = allocate;
    memcpy(&fake->transport, transport_plugin->interface, sizeof(fake->transport));
    fake->transport.post = broken_post;
    fake->transport.test = broken_test;
    fake->size = size;
    fake->gap = 3;
    fake->per_bucket = per_bucket;
    fake->learning_rate = 0.5f;
    fake->mapped = true;
    fake->threads_allowed = fake->allocations_allowed = UINT32_MAX;
    make_table(fake, replicas, variables);
    for (uint32_t i = 0; i < replicas; i++) {
        fake->replicas[i].parameters = calloc(fake->table.flat_count, sizeof(float));
        fake->replicas[i].gradients = calloc(fake->table.flat_count, sizeof(float));
    }
    failing = fake;
}

int32_t fake_open(struct fake_host *fake)
{
    fake->ops = strategy_plugin->interface;
    struct ls_strategy *strategy = calloc(1, fake->ops->state_bytes);
    const int32_t status = fake->ops->open(&fake->table, strategy);
    if (status)
        free(strategy);
    else
        fake->strategy = strategy;
    return status;
}

void fake_finish(struct fake_host *fake)
{
    if (fake->strategy)
        fake->ops->close(fake->strategy);
    free(fake->strategy);
    failing = NULL;
    for (uint32_t i = 0; i < fake->endpoint_count; i++)
        if (!fake->closed[i])
            test_endpoint_close(&fake->transport, fake->endpoints[i]);
    for (uint32_t i = 0; i < FAKE_REPLICAS; i++) {
        free(fake->replicas[i].parameters);
        free(fake->replicas[i].gradients);
    }
}

// ---- Steps ----

int32_t fake_begin(struct fake_host *fake, uint32_t replica)
{
    fake->replicas[replica].step++;
    return fake->ops->begin_step(fake->strategy, replica);
}

int32_t fake_compute(struct fake_host *fake, uint32_t replica, float gradient, float loss,
                     float examples)
{
    struct fake_replica *own = &fake->replicas[replica];
    int32_t status = LS_OK;
    own->sums[LS_SUMS_LOSS] = loss;
    own->sums[LS_SUMS_EXAMPLES] = examples;
    for (uint32_t bucket = 0; !status && bucket < fake->table.bucket_count; bucket++) {
        uint64_t first, count;
        bucket_range(&fake->table, bucket, &first, &count);
        for (uint64_t i = first; i < first + count; i++)
            own->gradients[i] = gradient;
        status = fake->ops->gradient_ready(fake->strategy, replica, bucket);
    }
    return status ? status : fake->ops->end_step(fake->strategy, replica);
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
    for (uint32_t i = 0; i < fake->table.world; i++) {
        turns[i] = turn;
        turns[i].fake = fake;
        turns[i].replica = i;
        pthread_create(&threads[i], NULL, turn_main, &turns[i]);
    }
    for (uint32_t i = 0; i < fake->table.world; i++) {
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
    fake->ops->report_metrics(fake->strategy);
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
