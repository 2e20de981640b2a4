// SPDX-License-Identifier: Apache-2.0
// Damaged messages for a parameter server, damaged descriptions, and what strangers send to its port: refused or
// harmless. Run it under sanitizers.
//
//     fuzz_servers server|description|strangers SECONDS SEED
#include "core/base/log.h"
#include "core/strategy/description.h"
#include "core/strategy/stores.h"
#include "core/wire/service.h"
#include "plugins/strategy/parameter-server/remote_server.h"
#include "tests/fuzz/mutate.h"
#include "tests/support/plugin.h"

#include <arpa/inet.h>
#include <math.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORKERS 3
#define SERVERS 1
#define SHARDS 3
#define FLOATS 32 // of a shard
#define TALLY 20 // sums that the server keeps
#define PEERS 8
#define MESSAGES 120 // of a life of a server

static unsigned long taken, refused;

static void quiet(void *context, uint32_t level, const char *line)
{
    (void)context;
    (void)level;
    (void)line;
}

static void quiet_log(const struct ls_host *host, uint32_t level, const char *message)
{
    (void)host;
    (void)level;
    (void)message;
}

static int fail(uint64_t seed, const char *what)
{
    fprintf(stderr, "seed %llu: %s\n", (unsigned long long)seed, what);
    return 1;
}

// ---- A message ----

struct message {
    uint32_t kind;
    uint8_t *data;
    uint64_t bytes;
};

static uint8_t buffer[1 << 16];
static uint8_t description[4096];
static uint64_t description_bytes;

static struct ls_tensor tensors[SHARDS];
static struct ls_parameter_place places[SHARDS];

static int make_description(void)
{
    static char names[SHARDS][8];
    struct ls_optimizer optimizer;
    for (uint32_t i = 0; i < SHARDS; i++) {
        snprintf(names[i], sizeof(names[i]), "v%u", i);
        tensors[i] = (struct ls_tensor){.name = names[i], .zone = LS_ZONE_TRAINED};
        places[i] = (struct ls_parameter_place){.parameter = &tensors[i],
                                                .offset = i * FLOATS * sizeof(float),
                                                .bytes = FLOATS * sizeof(float)};
    }
    const struct ls_parameter_plan plan = {.places = places,
                                           .place_count = SHARDS,
                                           .reduced_count = SHARDS,
                                           .reduced_bytes = SHARDS * FLOATS * sizeof(float)};
    if (ls_optimizer_parse("adam", &optimizer))
        return 2;
    const struct ls_described described = {.plan = &plan, .optimizer = &optimizer, .seed = 1};
    return ls_describe(&described, description, sizeof(description), &description_bytes) ? 2 : 0;
}

static struct remote_agreed agreed(void)
{
    return (struct remote_agreed){.mode = MODE_BOUNDED, .staleness = 2, .shard_bytes = 64};
}

// A sensible message of this kind.
static uint64_t put_message(uint64_t *state, uint32_t kind, uint64_t step)
{
    memset(buffer, 0, 4096);
    switch (kind) {
    case REMOTE_HELLO: {
        const struct remote_hello hello = {.magic = REMOTE_MAGIC,
                                           .worker = (uint32_t)fuzz_below(state, WORKERS),
                                           .workers = WORKERS,
                                           .servers = SERVERS,
                                           .agreed = agreed()};
        memcpy(buffer, &hello, sizeof(hello));
        return sizeof(hello);
    }
    case REMOTE_SETUP: {
        const struct remote_setup setup = {.job = 5,
                                           .agreed = agreed(),
                                           .shards = SHARDS,
                                           .tally = TALLY,
                                           .description_bytes = description_bytes};
        struct remote_shard shards[SHARDS];
        for (uint32_t i = 0; i < SHARDS; i++)
            shards[i] =
                (struct remote_shard){.first = i * FLOATS, .count = FLOATS, .bucket = i / 2};
        memcpy(buffer, &setup, sizeof(setup));
        memcpy(buffer + sizeof(setup), shards, sizeof(shards));
        memcpy(buffer + sizeof(setup) + sizeof(shards), description, description_bytes);
        return sizeof(setup) + sizeof(shards) + description_bytes;
    }
    case REMOTE_INITIAL: {
        const struct remote_initial initial = {.shard = (uint32_t)step % SHARDS};
        memcpy(buffer, &initial, sizeof(initial));
        return sizeof(initial) + FLOATS * sizeof(float);
    }
    case REMOTE_PUSH: {
        const struct remote_push push = {.step = 1 + step,
                                         .learning_rate = 0.5,
                                         .bucket = (uint32_t)fuzz_below(state, 2),
                                         .epoch = 1 + step / 2};
        memcpy(buffer, &push, sizeof(push));
        return sizeof(push) +
               (push.bucket ? FLOATS : 2 * FLOATS + remote_tally_floats(TALLY)) * sizeof(float);
    }
    default: {
        const struct remote_request request = {.step = 1 + step, .done = step > 3};
        memcpy(buffer, &request, sizeof(request));
        return sizeof(request);
    }
    }
}

// A copy of just its bytes, damaged or not, so that a sanitizer sees what is read behind them.
static struct message make_message(uint64_t *state, uint32_t kind, uint64_t step, bool whole)
{
    uint64_t bytes = put_message(state, kind, step);
    if (!whole)
        bytes = fuzz_mutate(state, buffer, bytes);
    uint8_t *data = NULL;
    if (posix_memalign((void **)&data, 64, bytes ? bytes : 1))
        exit(2);
    memcpy(data, buffer, bytes);
    return (struct message){kind, data, bytes};
}

// ---- A server ----

static struct {
    struct ls_server_host table;
    struct test_host host;
    struct ls_stores stores;
    struct ls_description description;
    uint64_t state, seed;
    uint32_t left; // messages
    bool connected[PEERS], greeted[PEERS];
    uint32_t setup_peer, setup_sent; // who is asked for a setup, and how much of it was sent
    uint64_t now_ns, limits[PEERS];
    struct message last;
    uint64_t sent;
    char folder[64];
} life;

static uint64_t clock_ns(const struct ls_host *host)
{
    (void)host;
    return life.now_ns += 10000000;
}

static const char *option(const struct ls_host *host, const char *name)
{
    return strcmp(name, "folder") == 0 ? life.folder : test_host_option(host, name);
}

static int32_t host_next(const struct ls_server_host *host, uint64_t timeout_ns,
                         struct ls_server_event *out)
{
    static const uint32_t kinds[] = {REMOTE_HELLO, REMOTE_PUSH, REMOTE_PUSH,  REMOTE_PULL,
                                     REMOTE_MEET,  REMOTE_REST, REMOTE_LEAVE, REMOTE_STATISTICS,
                                     REMOTE_TALLY, REMOTE_SETUP};
    (void)host;
    (void)timeout_ns;
    free(life.last.data);
    life.last.data = NULL;
    if (life.left == 0) {
        life.now_ns += UINT64_C(6000000000); // later than workers may stay
        return LS_INTERRUPTED;
    }
    life.left--;
    const uint32_t peer = (uint32_t)fuzz_below(&life.state, PEERS);
    *out = (struct ls_server_event){.struct_size = sizeof(*out), .peer = peer};
    if (!life.connected[peer]) {
        life.connected[peer] = true;
        life.greeted[peer] = false;
        life.limits[peer] = LS_SERVICE_FIRST_MESSAGE;
        out->kind = LS_SERVER_OPENED;
        return LS_OK;
    }
    if (fuzz_below(&life.state, 20) == 0) {
        life.connected[peer] = false;
        out->kind = LS_SERVER_CLOSED;
        return LS_OK;
    }
    // Mostly what comes first is right, so that the rest meets a training that goes on.
    const bool sets_up = life.setup_peer == peer && life.setup_sent <= SHARDS;
    const bool early = !life.greeted[peer] || sets_up;
    uint64_t step = fuzz_below(&life.state, 6);
    uint32_t kind = kinds[fuzz_below(&life.state, sizeof(kinds) / sizeof(kinds[0]))];
    if (!life.greeted[peer]) {
        kind = REMOTE_HELLO;
    } else if (sets_up) {
        kind = life.setup_sent ? REMOTE_INITIAL : REMOTE_SETUP;
        step = life.setup_sent ? life.setup_sent - 1 : 0;
        life.setup_sent++;
    }
    life.greeted[peer] = true;
    if (fuzz_below(&life.state, 40) == 0)
        kind = (uint32_t)fuzz_random(&life.state);
    life.last = make_message(&life.state, kind, step, fuzz_below(&life.state, early ? 16 : 3) > 0);
    if (life.last.bytes > life.limits[peer]) {
        life.connected[peer] = false;
        out->kind = LS_SERVER_CLOSED;
        return LS_OK;
    }
    out->kind = LS_SERVER_MESSAGE;
    out->message = kind;
    out->data = life.last.data;
    out->bytes = life.last.bytes;
    return LS_OK;
}

// All that is sent is read, for a sanitizer to see.
static void host_send(const struct ls_server_host *host, uint32_t peer, uint32_t kind,
                      const struct ls_message_piece *pieces, uint32_t count)
{
    (void)host;
    if (peer >= PEERS || !life.connected[peer])
        exit(fail(life.seed, "an answer to nobody"));
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        for (uint64_t k = 0; k < pieces[i].bytes; k++)
            sum += ((const uint8_t *)pieces[i].data)[k];
    life.sent += sum;
    taken += kind != REMOTE_REFUSED;
    refused += kind == REMOTE_REFUSED;
    if (kind == REMOTE_WANTS_SETUP) {
        life.setup_peer = peer;
        life.setup_sent = 0;
    }
}

static void host_allow(const struct ls_server_host *host, uint32_t peer, uint64_t bytes)
{
    (void)host;
    life.limits[peer] = bytes;
}

static void host_drop(const struct ls_server_host *host, uint32_t peer)
{
    (void)host;
    life.connected[peer] = false;
    refused++;
}

static int32_t host_learn(const struct ls_server_host *host, const void *data, uint64_t bytes)
{
    (void)host;
    ls_stores_clear(&life.stores);
    ls_description_finish(&life.description);
    life.table.learnt_floats = 0;
    if (ls_description_read(data, bytes, &life.description))
        return LS_BAD_INPUT;
    life.table.learnt_floats = life.description.plan.reduced_bytes / sizeof(float);
    return LS_OK;
}

static int32_t host_open(const struct ls_server_host *host, uint64_t first, uint64_t count,
                         struct ls_store **out, uint64_t *bytes)
{
    const uint64_t all = host->learnt_floats;
    if (first > all || count > all - first || !count || first % 16)
        return LS_BAD_INPUT;
    return (int32_t)ls_stores_open_placed(&life.stores, first, count, out, bytes);
}

static void host_place(const struct ls_server_host *host, struct ls_store *store, void *memory)
{
    (void)host;
    ls_store_place(store, memory);
}

static void host_fill(const struct ls_server_host *host, struct ls_store *store,
                      const float *values)
{
    (void)host;
    ls_stores_fill_placed(&life.stores, store, values);
}

static int32_t host_update(const struct ls_server_host *host, struct ls_store *store,
                           const float *gradient, uint64_t step, double learning_rate)
{
    (void)host;
    const struct ls_store_step of_store = {.step = step, .learning_rate = learning_rate};
    return (int32_t)ls_stores_update(&life.stores, store, gradient, &of_store);
}

static struct test_host device_host;

static enum ls_status store_device(void *context, struct ls_driver_plugin *out)
{
    static const struct ls_plugin *plugin;
    (void)context;
    if (!plugin)
        plugin = test_plugin_open("device-reference");
    if (!plugin)
        exit(TEST_SKIPPED);
    test_host_init(&device_host, plugin);
    *out = (struct ls_driver_plugin){
        .plugin = plugin, .host = &device_host.host, .interface = plugin->interface};
    return LS_OK;
}

static int fuzz_server(double end_at, uint64_t seed)
{
    const struct ls_plugin *plugin = test_plugin_open("strategy-parameter-server");
    if (!plugin)
        return TEST_SKIPPED;
    const struct ls_strategy_interface *strategy = plugin->interface;
    test_host_init(&life.host, plugin);
    life.host.host.log = quiet_log;
    life.host.host.clock_ns = clock_ns;
    life.host.host.option = option;
    snprintf(life.folder, sizeof(life.folder), "/tmp/lockstep-fuzz-XXXXXX");
    if (!mkdtemp(life.folder))
        return 2;
    life.stores = (struct ls_stores){.strategy = "parameter-server",
                                     .plan = &life.description.plan,
                                     .optimizer = &life.description.optimizer,
                                     .threads = 1,
                                     .find_device = store_device};
    ls_stores_init(&life.stores);
    int status = 0;
    for (; !status && fuzz_clock() < end_at; seed++) {
        life.state = life.seed = seed;
        life.left = MESSAGES;
        memset(life.connected, 0, sizeof(life.connected));
        life.setup_peer = PEERS;
        life.table = (struct ls_server_host){.struct_size = sizeof(life.table),
                                             .servers = SERVERS,
                                             .workers = WORKERS,
                                             .deadline_ns = UINT64_C(2000000000),
                                             .host = &life.host.host,
                                             .job = "fuzz",
                                             .next = host_next,
                                             .send = host_send,
                                             .allow = host_allow,
                                             .drop = host_drop,
                                             .learn = host_learn,
                                             .open = host_open,
                                             .place = host_place,
                                             .fill = host_fill,
                                             .update = host_update};
        const int32_t served = strategy->serve(&life.table);
        if (served && served != LS_INTERRUPTED && served != LS_PEER_LOST)
            status = fail(seed, life.host.message);
        ls_stores_clear(&life.stores);
        ls_description_finish(&life.description);
        if (seed % 4 == 0) { // else the next one goes on with the file
            char command[128];
            snprintf(command, sizeof(command), "rm -f %s/lockstep-*", life.folder);
            if (system(command))
                status = 2;
        }
    }
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", life.folder);
    return system(command) ? 2 : status;
}

// ---- A description ----

static int fuzz_description(double end_at, uint64_t seed)
{
    for (; fuzz_clock() < end_at; seed++) {
        uint64_t state = seed;
        memcpy(buffer, description, description_bytes);
        const uint64_t bytes = fuzz_below(&state, 8)
                                   ? fuzz_mutate(&state, buffer, description_bytes)
                                   : description_bytes;
        uint8_t *exact = malloc(bytes ? bytes : 1);
        if (!exact)
            return 2;
        memcpy(exact, buffer, bytes);
        struct ls_description read;
        if (ls_description_read(exact, bytes, &read)) {
            refused++;
        } else {
            const struct ls_parameter_plan *plan = &read.plan;
            uint64_t end = 0;
            for (uint32_t i = 0; i < plan->place_count; i++) {
                if (plan->places[i].offset < end ||
                    plan->places[i].offset + plan->places[i].bytes > plan->reduced_bytes)
                    return fail(seed, "places overlap, or are beyond the buffer");
                end = plan->places[i].offset + plan->places[i].bytes;
            }
            taken++;
            ls_description_finish(&read);
        }
        free(exact);
    }
    return 0;
}

// ---- Strangers, and workers who send nonsense, at the port ----

static int listen_here(uint16_t *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(at);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (bind(fd, (struct sockaddr *)&at, sizeof(at)) || listen(fd, 128) ||
        getsockname(fd, (struct sockaddr *)&at, &bytes))
        exit(2);
    *port = ntohs(at.sin_port);
    return fd;
}

static int connect_here(uint16_t port)
{
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&at, sizeof(at)))
        exit(fail(0, "the server cannot be reached"));
    return fd;
}

static void serve_some(struct ls_service *service, int turns)
{
    struct ls_service_event event;
    for (int i = 0; i < turns; i++) {
        if (ls_service_next(service, 1000000, &event))
            continue;
        taken += event.kind == LS_SERVICE_MESSAGE;
        uint64_t sum = 0;
        for (uint64_t k = 0; k < event.bytes; k++)
            sum += event.data[k];
        const struct ls_channel_piece piece = {&sum, sizeof(sum)};
        if (event.kind == LS_SERVICE_MESSAGE)
            ls_service_send(service, event.peer, 2, &piece, 1);
    }
}

// Without waiting for what the other side says: the handshake is the service's, step by step.
static void be_a_stranger(uint64_t *state, struct ls_service *service, uint16_t port,
                          const uint8_t *key, bool sealed)
{
    struct ls_connection connection;
    struct ls_channel channel;
    uint8_t data[LS_SECURE_PROOF + LS_SECURE_GREETING], answer[LS_SECURE_NONCE];
    if (ls_connection_init(&connection, connect_here(port), key))
        exit(2);
    ls_channel_adopt(&channel, &connection, sealed);
    ls_secure_greet(&channel.connection.secure, data);
    const bool damaged = fuzz_below(state, 3) == 0;
    const size_t bytes =
        damaged ? fuzz_mutate(state, data, LS_SECURE_GREETING) : LS_SECURE_GREETING;
    (void)!send(channel.connection.fd, data, bytes, MSG_NOSIGNAL);
    serve_some(service, 3);
    if (damaged ||
        recv(channel.connection.fd, answer, sizeof(answer), 0) != (ssize_t)sizeof(answer)) {
        ls_channel_finish(&channel);
        serve_some(service, 2);
        return;
    }
    ls_secure_prove(&channel.connection.secure, answer, data);
    (void)!send(channel.connection.fd, data, LS_SECURE_PROOF, MSG_NOSIGNAL);
    serve_some(service, 2);
    const struct ls_channel_piece piece = {buffer, fuzz_below(state, 200)};
    if (ls_channel_queue(&channel, 1, &piece, 1) || ls_channel_queue(&channel, 1, &piece, 1))
        exit(2);
    if (fuzz_below(state, 2))
        fuzz_mutate(state, channel.connection.out, channel.connection.out_bytes);
    (void)!ls_connection_flush(&channel.connection);
    serve_some(service, 4);
    ls_channel_finish(&channel);
    serve_some(service, 2);
}

static int fuzz_strangers(double end_at, uint64_t seed)
{
    uint16_t ports[2];
    struct ls_service *services[2];
    struct ls_service_options options = {.most_peers = 4};
    for (int i = 0; i < 2; i++) {
        options.listener = listen_here(&ports[i]);
        options.sealed = i;
        if (ls_channel_key(i ? "a secret for damaged frames" : NULL, options.key) ||
            ls_service_open(&options, &services[i]))
            return 2;
    }
    for (; fuzz_clock() < end_at; seed++) {
        uint64_t state = seed;
        uint8_t key[LS_SECURE_KEY];
        const int i = seed % 2 ? 1 : 0;
        if (ls_channel_key(i ? "a secret for damaged frames" : NULL, key))
            return 2;
        be_a_stranger(&state, services[i], ports[i], key, i);
    }
    refused += ls_service_strangers(services[0]) + ls_service_strangers(services[1]);
    ls_service_close(services[0]);
    ls_service_close(services[1]);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 4 || make_description())
        return 2;
    const double end_at = fuzz_clock() + strtod(argv[2], NULL);
    const uint64_t seed = strtoull(argv[3], NULL, 10);
    ls_log_set_writer(quiet, NULL);
    const int status = strcmp(argv[1], "server") == 0        ? fuzz_server(end_at, seed)
                       : strcmp(argv[1], "description") == 0 ? fuzz_description(end_at, seed)
                                                             : fuzz_strangers(end_at, seed);
    printf("%lu taken, %lu refused\n", taken, refused);
    return status ? status : !taken || !refused;
}
