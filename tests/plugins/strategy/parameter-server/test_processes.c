// SPDX-License-Identifier: Apache-2.0
// Workers and servers as processes that are killed and started again: each step of each worker reaches each shard
// exactly once. The gradients are whole numbers, another one for each step and worker, so every sum is exact and shows
// a push that is missing, counted twice or taken for another.
//
//     test_parameter_server_processes            some kills, in every run
//     test_parameter_server_processes long       hundreds
#include "core/strategy/internal.h"
#include "core/strategy/server.h"
#include "core/strategy/description.h"
#include "tests/plugins/strategy/parameter-server/host.h"
#include "tests/support/crew.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORKERS 3
#define SERVERS 2
#define VARIABLES 5
#define SIZE 125 // with its gap a multiple of a line
#define STRIDE 128

static const char secret[] = "a secret of this very job";
static bool is_long;

// Shared by all processes.
static struct common {
    _Atomic int finishing[WORKERS]; // it has all values, and is about to leave
    _Atomic uint64_t steps[WORKERS];
    _Atomic int wrong[WORKERS]; // 1: values, 2: a call failed
    _Atomic uint64_t updates;
    double tally[LS_SUMS];
    float seen[WORKERS], expected[WORKERS];
    char text[WORKERS][512];
} * common;

static struct job {
    int listeners[SERVERS];
    char addresses[256], folder[64];
    uint64_t steps;
    const char *mode;
    uint64_t deadline_ns;
    pid_t workers[WORKERS], servers[SERVERS];
} job;

static struct ls_tensor tensors[VARIABLES];
static struct ls_parameter_place places[VARIABLES];
static struct ls_parameter_plan plan;
static struct ls_optimizer optimizer;

static enum ls_status make_plan(void)
{
    static char names[VARIABLES][16];
    for (uint32_t i = 0; i < VARIABLES; i++) {
        snprintf(names[i], sizeof(names[i]), "variable %u", i);
        tensors[i] = (struct ls_tensor){.name = names[i], .zone = LS_ZONE_TRAINED};
        places[i] = (struct ls_parameter_place){.parameter = &tensors[i],
                                                .offset = i * STRIDE * sizeof(float),
                                                .bytes = SIZE * sizeof(float)};
    }
    plan = (struct ls_parameter_plan){.places = places,
                                      .place_count = VARIABLES,
                                      .reduced_count = VARIABLES,
                                      .reduced_bytes = VARIABLES * STRIDE * sizeof(float)};
    return ls_optimizer_parse("sgd:learning_rate=0.5", &optimizer);
}

static struct ls_worker_place place_of(enum ls_worker_role role, uint32_t number)
{
    struct ls_worker_place place = {.resolver = "launch",
                                    .role = role,
                                    .number = number,
                                    .workers = WORKERS,
                                    .servers = SERVERS,
                                    .listen_fd = -1};
    snprintf(place.server_addresses, sizeof(place.server_addresses), "%s", job.addresses);
    return place;
}

// ---- A server ----

static struct test_host device_host;

static enum ls_status store_device(void *context, struct ls_driver_plugin *out)
{
    const struct ls_plugin *plugin = test_plugin_open("device-cpu");
    (void)context;
    if (!plugin)
        return LS_UNAVAILABLE;
    test_host_init(&device_host, plugin);
    *out = (struct ls_driver_plugin){
        .plugin = plugin, .host = &device_host.host, .interface = plugin->interface};
    return LS_OK;
}

static struct fake_host fake;

static _Noreturn void be_server(uint32_t number)
{
    struct ls_worker_place place = place_of(LS_ROLE_SERVER, number);
    fake_init(&fake, 1, VARIABLES, SIZE, 2);
    fake_option(&fake, "folder", job.folder);
    place.listen_fd = job.listeners[number];
    place.own_port = (uint16_t)(1 + number);
    const struct ls_server_options options = {
        .strategy = {.plugin = fake.host.plugin,
                     .host = &fake.host.host,
                     .interface = fake.host.plugin->interface},
        .place = &place,
        .secret = secret,
        .deadline_ns = job.deadline_ns,
        .store_device = store_device};
    const enum ls_status status = ls_server_run(&options);
    if (status)
        fprintf(stderr, "server %u: status %d: %s\n", number, status, fake.host.message);
    _exit((int)status);
}

// ---- A worker ----

static struct ls_driver driver; // for its channels alone
static struct ls_strategy_channels real, own;

static int32_t connect_server(const struct ls_strategy_host *host, uint32_t server,
                              struct ls_strategy_channel **out)
{
    (void)host;
    return real.connect(&driver.table, server, out);
}

static int32_t describe(const struct ls_strategy_host *host, void *out, uint64_t room,
                        uint64_t *bytes)
{
    (void)host;
    return real.describe(&driver.table, out, room, bytes);
}

static void go_on(const struct ls_strategy_host *host, uint64_t steps)
{
    (void)host;
    fake.steps[0] = steps;
}

// Of step `step` of worker `worker`: an even number, another one than that of the steps around it.
// Half of it is taken off each value, and the sum of all stays below 2^24, so it is exact.
static float gradient_of(uint32_t worker, uint64_t step)
{
    return (float)(2 * ((step * 7 + worker * 3) % 251 + 1));
}

// The sums of a step: its gradient, and one example.
static int32_t read_tally(const struct ls_strategy_host *host, uint64_t *epoch, float *out)
{
    (void)host;
    *epoch = 1;
    if (!out)
        return LS_OK;
    memset(out, 0, own.tally_count * sizeof(*out));
    out[LS_SUMS_LOSS] = gradient_of(own.worker, fake.steps[0]);
    out[LS_SUMS_EXAMPLES] = 1;
    return LS_OK;
}

static void give_tally(const struct ls_strategy_host *host, uint64_t epoch, const double *sums)
{
    (void)host;
    ck_assert_uint_eq(epoch, 1);
    memcpy(common->tally, sums, sizeof(common->tally));
}

static void open_channels(const struct ls_worker_place *place)
{
    const struct ls_channels_options channels = {.place = place, .secret = secret};
    driver.ops = fake.host.plugin->interface;
    driver.options = (struct ls_driver_options){.channels = &channels,
                                                .deadline_ns = job.deadline_ns,
                                                .parts = &(struct ls_driver_part){.plan = &plan},
                                                .seed = 7,
                                                .agreement = "1000 examples"};
    driver.table.context = &driver;
    driver.plan = &plan;
    driver.optimizer = optimizer;
    ck_assert_int_eq(ls_driver_open_channels(&driver), LS_OK);
    real = own = *driver.table.channels;
    own.connect = connect_server;
    own.describe = describe;
    own.go_on = go_on;
    own.read_tally = read_tally;
    own.give_tally = give_tally;
    ck_assert_uint_eq(own.tally_count, LS_SUMS);
    fake.core.table.channels = &own;
    fake.core.table.deadline_ns = job.deadline_ns;
}

// What all values have lost when all steps are made.
static float sum_of_all(void)
{
    double sum = 0;
    for (uint32_t worker = 0; worker < WORKERS; worker++)
        for (uint64_t step = 1; step <= job.steps; step++)
            sum += 0.5 * (double)gradient_of(worker, step);
    return (float)sum;
}

static void check_values(uint32_t worker)
{
    const float less = sum_of_all();
    for (uint64_t i = 0; i < fake.core.table.flat_count; i++) {
        const float expected = ls_fake_is_padding(&fake.core.model, i) ? 0.0f : (float)i - less;
        if (fake.core.replica[0].parameters[i] == expected || common->wrong[worker])
            continue;
        common->seen[worker] = fake.core.replica[0].parameters[i];
        common->expected[worker] = expected;
        common->wrong[worker] = 1;
    }
}

static _Noreturn void be_worker(uint32_t number)
{
    struct ls_worker_place place = place_of(LS_ROLE_WORKER, number);
    fake_init(&fake, 1, VARIABLES, SIZE, 2);
    fake_option(&fake, "shard_bytes", "256");
    fake_option(&fake, "mode", job.mode);
    open_channels(&place);
    for (uint64_t i = 0; i < fake.core.table.flat_count; i++)
        fake.core.replica[0].parameters[i] =
            ls_fake_is_padding(&fake.core.model, i) ? 0.0f : (float)i;
    int32_t status = fake_open(&fake);
    if (!status)
        status = fake.ops->initialize_parameters(fake.strategy, 0);
    while (!status && fake.steps[0] < job.steps) {
        status = fake_step(&fake, 0, gradient_of(number, fake.steps[0] + 1), 1, 1);
        common->steps[number] = fake.steps[0];
    }
    if (!status)
        status = fake.ops->synchronise(fake.strategy, 0);
    if (!status) {
        check_values(number);
        if (number == 0) {
            fake_describe(&fake);
            common->updates = (uint64_t)fake_number(&fake, "staleness.pushes");
        }
        common->finishing[number] = 1;
    } else {
        snprintf(common->text[number], sizeof(common->text[number]), "%s", fake.host.message);
        common->wrong[number] = 2;
    }
    fake_finish(&fake);
    _exit((int)status);
}

// ---- The job ----

static void start_server(uint32_t number)
{
    job.servers[number] = fork();
    if (job.servers[number] == 0)
        be_server(number);
}

static void start_worker(uint32_t number)
{
    job.workers[number] = fork();
    if (job.workers[number] == 0)
        be_worker(number);
}

// Listening sockets stay open here, as under `lockstep launch`: whoever connects while a server is away waits.
static void begin_job(uint64_t steps, const char *mode)
{
    size_t length = 0;
    memset(common, 0, sizeof(*common));
    memset(&job, 0, sizeof(job));
    job.steps = steps;
    job.mode = mode;
    job.deadline_ns = 30 * SECOND;
    snprintf(job.folder, sizeof(job.folder), "/tmp/lockstep-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(job.folder));
    for (uint32_t i = 0; i < SERVERS; i++) {
        uint16_t port;
        job.listeners[i] = crew_listen(&port);
        length += (size_t)snprintf(job.addresses + length, sizeof(job.addresses) - length,
                                   "%s127.0.0.1:%u", i ? "," : "", port);
    }
    for (uint32_t i = 0; i < SERVERS; i++)
        start_server(i);
    for (uint32_t i = 0; i < WORKERS; i++)
        start_worker(i);
}

static void kill_process(pid_t pid)
{
    int status;
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
}

static int exit_of(pid_t pid)
{
    int status = 0;
    for (int i = 0; i < 6000; i++) {
        if (waitpid(pid, &status, WNOHANG) == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        nap_ms(10);
    }
    kill_process(pid);
    return -1;
}

static void end_job(void)
{
    for (uint32_t i = 0; i < SERVERS; i++)
        close(job.listeners[i]);
    ck_assert_msg(rmdir(job.folder) == 0, "a file was left in %s", job.folder);
}

static void expect_success(void)
{
    for (uint32_t i = 0; i < WORKERS; i++)
        ck_assert_msg(exit_of(job.workers[i]) == 0, "worker %u: %s", i, common->text[i]);
    for (uint32_t i = 0; i < SERVERS; i++)
        ck_assert_int_eq(exit_of(job.servers[i]), 0);
    for (uint32_t i = 0; i < WORKERS; i++)
        ck_assert_msg(!common->wrong[i], "worker %u has %.9g instead of %.9g", i,
                      (double)common->seen[i], (double)common->expected[i]);
    // Whoever was killed, worker 0 has the sums of all steps, each once.
    ck_assert_double_eq(common->tally[LS_SUMS_LOSS], 2 * (double)sum_of_all());
    ck_assert_double_eq(common->tally[LS_SUMS_EXAMPLES], (double)(WORKERS * job.steps));
    // Each variable has one shard on each server.
    ck_assert_uint_eq(common->updates, WORKERS * job.steps * VARIABLES);
    end_job();
}

START_TEST(all_pushes_are_applied)
{
    static const char *const modes[] = {"async", "bounded"};
    begin_job(60, modes[_i]);
    expect_success();
}
END_TEST

static uint64_t draw(uint64_t *state)
{
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state >> 11;
}

static bool any_finishing(void)
{
    for (uint32_t i = 0; i < WORKERS; i++)
        if (common->finishing[i])
            return true;
    return false;
}

// Workers and servers are killed at any moment, also while others are away.
LOOP_TEST(whoever_is_killed_comes_back_and_no_push_is_lost_or_counted_twice, 0, 2)
{
    static const char *const modes[] = {"async", "bounded"};
    uint64_t state = 1234567 + (uint64_t)_i;
    uint32_t kills = 0;
    begin_job(is_long ? 20000 : 300, modes[_i % 2]);
    const uint32_t most = is_long ? 400 : 8;
    for (; kills < most; kills++) {
        nap_ms((long)(draw(&state) % 40));
        const bool server = draw(&state) % 2;
        const uint32_t number = (uint32_t)(draw(&state) % (server ? SERVERS : WORKERS));
        if (any_finishing()) // a server that has ended its work would wait for another training
            break;
        kill_process(server ? job.servers[number] : job.workers[number]);
        nap_ms((long)(draw(&state) % 20));
        if (server)
            start_server(number);
        else
            start_worker(number);
    }
    ck_assert_uint_ge(kills, is_long ? 50 : 2);
    expect_success();
}

// ---- Whoever does not come back ----

START_TEST(a_server_ends_when_all_workers_are_gone)
{
    begin_job(UINT64_MAX / 2, "async");
    for (int i = 0; i < 2000 && !common->steps[0]; i++)
        nap_ms(5);
    ck_assert_uint_gt(common->steps[0], 0);
    for (uint32_t i = 0; i < SERVERS; i++)
        kill_process(job.servers[i]);
    job.deadline_ns = SECOND;
    for (uint32_t i = 0; i < SERVERS; i++)
        start_server(i);
    for (uint32_t i = 0; i < WORKERS; i++)
        kill_process(job.workers[i]);
    for (uint32_t i = 0; i < SERVERS; i++)
        ck_assert_int_eq(exit_of(job.servers[i]), LS_PEER_LOST);
    char command[128];
    snprintf(command, sizeof(command), "rm %s/lockstep-*", job.folder);
    ck_assert_int_eq(system(command), 0); // what they know stays
    end_job();
}
END_TEST

START_TEST(a_worker_that_does_not_come_back_is_named)
{
    begin_job(200, "async");
    kill_process(job.workers[2]);
    for (uint32_t i = 0; i < SERVERS; i++)
        kill_process(job.servers[i]);
    job.deadline_ns = SECOND;
    for (uint32_t i = 0; i < SERVERS; i++)
        start_server(i);
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_int_eq(exit_of(job.workers[i]), LS_PEER_LOST);
        ck_assert_msg(strstr(common->text[i], "worker 2") != NULL, "%s", common->text[i]);
    }
    for (uint32_t i = 0; i < SERVERS; i++)
        ck_assert_int_eq(exit_of(job.servers[i]), LS_PEER_LOST);
    char command[128];
    snprintf(command, sizeof(command), "rm -f %s/lockstep-*", job.folder);
    ck_assert_int_eq(system(command), 0);
    end_job();
}
END_TEST

int main(int argc, char **argv)
{
    is_long = argc > 1 && strcmp(argv[1], "long") == 0;
    if (!fake_plugins_open() || !test_plugin_open("device-cpu"))
        return TEST_SKIPPED;
    common = crew_memory(sizeof(*common));
    if (make_plan())
        return EXIT_FAILURE;
    tcase_set_timeout(test_registered(), is_long ? 280 : 60);
    if (!is_long) {
        tcase_add_loop_test(test_registered(), all_pushes_are_applied, 0, 2);
        tcase_add_test(test_registered(), a_server_ends_when_all_workers_are_gone);
        tcase_add_test(test_registered(), a_worker_that_does_not_come_back_is_named);
    }
    return test_suite_run("processes");
}
