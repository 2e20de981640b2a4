// SPDX-License-Identifier: Apache-2.0
// The tuner: what was measured decides, noise does not, and all ranks hear the same.
#include "core/schedule/schedule.h"
#include "core/collective/tuner.h"
#include "tests/core/collective/support.h"

#include <math.h>

#define CANDIDATES 4
#define WORLD 4

static const char *const names[CANDIDATES] = {"direct", "halving-doubling", "ring", "tree"};
static struct test_host hosts[CANDIDATES];
static struct ls_candidate candidates[CANDIDATES];
static struct test_host auto_host, transport_host;
static const struct ls_plugin auto_plugin = {LS_PLUGIN_HEADER(LS_KIND_COLLECTIVE), .name = "auto"};
static const struct ls_plugin *local;

// ---- A clock that goes on with every message, so that times are those of schedules alone ----

static _Thread_local uint64_t messages;
static struct ls_transport_interface counting_interface;
static struct ls_plugin counting;

static int32_t count_post(struct ls_transport *transport, struct ls_transfer *transfer)
{
    const struct ls_transport_interface *interface = local->interface;
    messages++;
    return interface->post(transport, transfer);
}

static uint64_t message_clock(const struct ls_host *host)
{
    (void)host;
    return messages * 10000;
}

// All batches take the same time by it.
static uint64_t ticking_clock(const struct ls_host *host)
{
    static _Thread_local uint64_t ticks;
    (void)host;
    return ++ticks * 50000;
}

static bool open_all(void)
{
    for (int i = 0; i < CANDIDATES; i++) {
        char name[64];
        snprintf(name, sizeof(name), "collective-%s", names[i]);
        const struct ls_plugin *plugin = test_plugin_open(name);
        if (!plugin)
            return false;
        test_host_init(&hosts[i], plugin);
        candidates[i] =
            (struct ls_candidate){.plugin = plugin, .host = &hosts[i].host, .name = names[i]};
    }
    local = test_plugin_open("transport-local");
    if (!local)
        return false;
    memcpy(&counting_interface, local->interface, sizeof(counting_interface));
    counting_interface.post = count_post;
    counting = *local;
    counting.interface = &counting_interface;
    test_host_init(&transport_host, local);
    test_host_init(&auto_host, NULL);
    return true;
}

static struct ls_tuner *create(const struct ls_candidate *which, size_t count)
{
    struct ls_tuner *tuner = NULL;
    ck_assert_int_eq(ls_tuner_create(&auto_plugin, &auto_host.host, which, count, &tuner), LS_OK);
    return tuner;
}

static void open_communicators(const struct ls_tuner *tuner, uint32_t world,
                               struct ls_communicator **out)
{
    const struct ls_communicator_options options = {.collective = ls_tuner_plugin(tuner),
                                                    .collective_host = ls_tuner_host(tuner),
                                                    .transport = &counting,
                                                    .transport_host = &transport_host.host,
                                                    .world = world,
                                                    .deadline_ns = UINT64_C(30000000000),
                                                    .name = "test"};
    ck_assert_int_eq(ls_communicators_open(&options, out), LS_OK);
}

static enum ls_status measure(struct ls_tuner *tuner, struct ls_communicator *const *communicators,
                              uint32_t count, const uint64_t *counts, size_t size_count)
{
    const struct ls_tuner_task task = {.operation = LS_ALL_REDUCE,
                                       .dtype = LS_F32,
                                       .reduction = LS_SUM,
                                       .counts = counts,
                                       .size_count = size_count};
    return ls_tuner_measure(tuner, &task, communicators, count);
}

static struct ls_collective_call call_of(const struct ls_tuner *tuner, uint32_t operation,
                                         uint32_t world, uint64_t count)
{
    return (struct ls_collective_call){.struct_size = sizeof(struct ls_collective_call),
                                       .operation = operation,
                                       .world = world,
                                       .count = count,
                                       .element_bytes = 4,
                                       .host = ls_tuner_host(tuner)};
}

static const char *chosen(const struct ls_tuner *tuner, uint32_t operation, uint32_t world,
                          uint64_t count)
{
    const struct ls_collective_call call = call_of(tuner, operation, world, count);
    return ls_tuner_choose(tuner, &call);
}

// ---- What noise hides ----

static double uniform(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(*state >> 11) * 0x1p-53;
}

// Seconds as a machine takes them: some microseconds, and now and then very many.
static double noisy(uint64_t *state, double seconds)
{
    const double outlier = uniform(state) < 0.05 ? 50 : 0;
    return seconds * (1 + 0.1 * uniform(state) + outlier);
}

static size_t decide_noisy(uint64_t *state, uint32_t rounds, const double *seconds, size_t count)
{
    double samples[8][32];
    struct ls_tuner_time times[8];
    for (uint32_t round = 0; round < rounds; round++)
        for (size_t i = 0; i < count; i++)
            samples[i][round] = noisy(state, seconds[i]);
    for (size_t i = 0; i < count; i++)
        times[i] = ls_tuner_summarise(samples[i], samples[0], rounds);
    return ls_tuner_decide(times, count);
}

TEST(noise_keeps_the_baseline)
{
    static const double equal[7] = {1e-5, 1e-5, 1e-5, 1e-5, 1e-5, 1e-5, 1e-5};
    uint64_t state = 1;
    int wrong = 0;
    for (int i = 0; i < 1000; i++)
        wrong += decide_noisy(&state, 32, equal, 7) != 0;
    ck_assert_int_le(wrong, 10);
    for (int i = wrong = 0; i < 1000; i++) // the baseline and a copy of it, with few rounds
        wrong += decide_noisy(&state, 5, equal, 2) != 0;
    ck_assert_int_le(wrong, 50);
}

TEST(what_is_clearly_faster_is_chosen)
{
    static const double seconds[4] = {1e-5, 2e-5, 7e-6, 8e-6};
    uint64_t state = 2;
    for (int i = 0; i < 100; i++) {
        const size_t found = decide_noisy(&state, 32, seconds, 4);
        ck_assert(found == 2 || found == 3 ||
                  found == 0); // an outlier in five of 32 rounds keeps 0
        ck_assert_uint_ne(found, 1);
    }
    const struct ls_tuner_time times[3] = {
        {.seconds = 10, .spread = 1, .rounds = 16},
        {.seconds = 6, .spread = 1, .rounds = 16, .faster = 16},
        {.seconds = 5, .spread = 1, .rounds = 16, .faster = 14},
    };
    ck_assert_uint_eq(ls_tuner_decide(times, 2), 1);
    ck_assert_uint_eq(ls_tuner_decide(times, 3), 2);
}

TEST(what_is_not_beyond_the_noise_is_not_chosen)
{
    const struct ls_tuner_time base = {.seconds = 10, .spread = 1, .rounds = 16};
    const struct ls_tuner_time times[][2] = {
        {base, {.seconds = 8.5, .spread = 1, .rounds = 16, .faster = 16}}, // within both spreads
        {base, {.seconds = 5, .spread = 1, .rounds = 16, .faster = 13}}, // not often enough
        {base, {.seconds = 5, .spread = 1, .rounds = 4, .faster = 4}}, // too few rounds
        {base, {.seconds = 5, .spread = 1, .rounds = 16, .faster = 16, .dropped = true}},
        {{.seconds = 10, .rounds = 4}, {.seconds = 5, .rounds = 16, .faster = 16}},
        {base, {.rounds = 0}}, // never timed
    };
    for (size_t i = 0; i < sizeof(times) / sizeof(*times); i++)
        ck_assert_uint_eq(ls_tuner_decide(times[i], 2), 0);
}

TEST(median_and_spread_are_those_of_the_rounds)
{
    const double samples[5] = {5, 1, 3, 2, 100}, baseline[5] = {4, 4, 4, 4, 4};
    const struct ls_tuner_time time = ls_tuner_summarise(samples, baseline, 5);
    ck_assert_double_eq(time.seconds, 3);
    ck_assert_double_eq(time.spread, 1.5);
    ck_assert_uint_eq(time.rounds, 5);
    ck_assert_uint_eq(time.faster, 3);
    ck_assert_uint_eq(ls_tuner_summarise(samples, baseline, 0).rounds, 0);
}

// ---- Measured on communicators ----

TEST(the_fewest_messages_win_where_time_is_messages)
{
    static const uint64_t counts[] = {65536, 1024};
    struct ls_communicator *communicators[WORLD];
    size_t count = 0;
    auto_host.host.clock_ns = message_clock;
    struct ls_tuner *tuner = create(candidates, CANDIDATES);
    open_communicators(tuner, WORLD, communicators);
    ck_assert_int_eq(measure(tuner, communicators, WORLD, counts, 2), LS_OK);
    const struct ls_tuner_row *rows = ls_tuner_rows(tuner, &count);
    ck_assert_uint_eq(count, 2);
    ck_assert_str_eq(ls_tuner_candidate(tuner, 0), "ring"); // the baseline, wherever it was named
    for (size_t i = 0; i < count; i++) {
        const struct ls_tuner_time *times = rows[i].times;
        ck_assert_uint_gt(times[0].rounds, 4);
        for (size_t j = 0; j < CANDIDATES; j++)
            if (times[j].rounds > 4)
                ck_assert_double_ge(times[j].seconds, times[rows[i].candidate].seconds);
    }
    ck_assert_uint_eq(rows[0].bytes, 4096);
    ck_assert_str_ne(chosen(tuner, LS_ALL_REDUCE, WORLD, 1024), "ring");
    ck_assert_double_le(rows[0].times[rows[0].candidate].seconds, 0.8 * rows[0].times[0].seconds);
    ls_communicators_close(communicators, WORLD);
    ls_tuner_destroy(tuner);
}

TEST(where_all_take_the_same_time_the_baseline_stays)
{
    static const uint64_t counts[] = {1000};
    struct ls_communicator *communicators[WORLD];
    size_t count = 0;
    auto_host.host.clock_ns = ticking_clock;
    struct ls_tuner *tuner = create(candidates, CANDIDATES);
    open_communicators(tuner, WORLD, communicators);
    ck_assert_int_eq(measure(tuner, communicators, WORLD, counts, 1), LS_OK);
    ck_assert_uint_gt(ls_tuner_rows(tuner, &count)->times[0].rounds, 3);
    ck_assert_str_eq(chosen(tuner, LS_ALL_REDUCE, WORLD, 1000), "ring");
    ls_communicators_close(communicators, WORLD);
    ls_tuner_destroy(tuner);
}

// A ring that is gone through many times, the sum of which is put together anew only the last time.
static int32_t slow(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const uint32_t next = (call->rank + 1) % call->world;
    const uint32_t previous = (call->rank + call->world - 1) % call->world;
    ls_scratch(schedule, call->count);
    for (int i = 0; i < 200 && call->world > 1; i++) {
        ls_send(schedule, next, ls_data_range(0, call->count));
        ls_receive(schedule, previous, ls_scratch_range(0, call->count));
        ls_end_round(schedule);
    }
    struct ls_collective_call passed = *call;
    passed.host = candidates[2].host;
    return ls_schedule_build(candidates[2].plugin->interface, &passed, schedule);
}

static const struct ls_collective_interface slow_interface = {.struct_size = sizeof(slow_interface),
                                                              .operations = 1u << LS_ALL_REDUCE,
                                                              .deterministic = 1,
                                                              .build_schedule = slow};
static const struct ls_plugin slow_plugin = {.name = "slow", .interface = &slow_interface};

TEST(a_slow_candidate_is_never_chosen)
{
    static const uint64_t counts[] = {16, 1000, 40000};
    struct ls_communicator *communicators[WORLD];
    const struct ls_candidate two[] = {{&slow_plugin, &auto_host.host, "slow"}, candidates[2]};
    auto_host.host.clock_ns = test_host_clock; // also by the real clock
    struct ls_tuner *tuner = create(two, 2);
    open_communicators(tuner, WORLD, communicators);
    ck_assert_int_eq(measure(tuner, communicators, WORLD, counts, 3), LS_OK);
    ck_assert_double_gt(ls_tuner_seconds(tuner), 0);
    for (int i = 0; i < 3; i++)
        ck_assert_str_eq(chosen(tuner, LS_ALL_REDUCE, WORLD, counts[i]), "ring");
    ls_communicators_close(communicators, WORLD);
    ls_tuner_destroy(tuner);
}

// Two pairs; one of each sends the sum of both to the other pair, and has rounded it when it travels in
// 16 bits, which its partner has not.
static int32_t unequal(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const struct ls_range all = ls_data_range(0, call->count);
    const struct ls_range other = ls_scratch_range(0, call->count);
    const uint32_t rank = call->rank;
    if (call->world != 4 || call->operation != LS_ALL_REDUCE)
        return LS_UNSUPPORTED;
    ls_scratch(schedule, call->count);
    ls_send(schedule, rank ^ 1, all);
    ls_receive(schedule, rank ^ 1, other);
    ls_end_round(schedule);
    ls_reduce(schedule, all, other);
    ls_end_round(schedule);
    for (uint32_t i = 0; rank % 2 == 0 && i < 2; i++)
        ls_send(schedule, 2 - rank + i, all);
    ls_receive(schedule, rank < 2 ? 2 : 0, other);
    ls_end_round(schedule);
    ls_reduce(schedule, all, other);
    ls_end_round(schedule);
    return LS_OK;
}

static const struct ls_collective_interface unequal_interface = {.struct_size =
                                                                     sizeof(unequal_interface),
                                                                 .operations = 1u << LS_ALL_REDUCE,
                                                                 .deterministic = 1,
                                                                 .build_schedule = unequal};
static const struct ls_plugin unequal_plugin = {.name = "unequal", .interface = &unequal_interface};

TEST(a_candidate_that_cannot_send_16_bits_is_left_out)
{
    static const uint64_t counts[] = {16, 1000, 40000};
    const struct ls_candidate two[] = {{&unequal_plugin, &auto_host.host, "unequal"},
                                       candidates[3]};
    auto_host.host.clock_ns = test_host_clock;
    for (uint32_t wire = 0; wire < 2; wire++) {
        struct ls_communicator *communicators[WORLD];
        const struct ls_tuner_task task = {.operation = LS_ALL_REDUCE,
                                           .dtype = LS_F32,
                                           .reduction = LS_SUM,
                                           .wire = wire ? LS_BF16 : 0,
                                           .counts = counts,
                                           .size_count = 3};
        size_t count = 0;
        struct ls_tuner *tuner = create(two, 2);
        open_communicators(tuner, WORLD, communicators);
        test_log_begin();
        ck_assert_int_eq(ls_tuner_measure(tuner, &task, communicators, WORLD), LS_OK);
        const char *said = strstr(test_log.text, "unequal is left out, as it cannot send 16 bits");
        ck_assert_msg(!said == !wire, "%s", test_log.text);
        const struct ls_tuner_row *rows = ls_tuner_rows(tuner, &count);
        for (size_t i = 0; wire && i < count; i++)
            ck_assert_uint_eq(rows[i].times[0].rounds, 0);
        for (int i = 0; wire && i < 3; i++)
            ck_assert_str_eq(chosen(tuner, LS_ALL_REDUCE, WORLD, counts[i]), "tree");
        ls_communicators_close(communicators, WORLD);
        ls_tuner_destroy(tuner);
    }
}

TEST(the_choice_is_kept)
{
    static const uint64_t first[] = {1024}, second[] = {1024, 1100, 1 << 20};
    struct ls_communicator *communicators[WORLD];
    size_t count = 0;
    auto_host.host.clock_ns = message_clock;
    struct ls_tuner *tuner = create(candidates, CANDIDATES);
    open_communicators(tuner, WORLD, communicators);
    ck_assert_int_eq(measure(tuner, communicators, WORLD, first, 1), LS_OK);
    ls_communicators_close(communicators, WORLD);
    const struct ls_tuner_row before = *ls_tuner_rows(tuner, &count);
    auto_host.host.clock_ns = ticking_clock; // by which nothing would be chosen but the baseline
    open_communicators(tuner, WORLD, communicators);
    ck_assert_int_eq(measure(tuner, communicators, WORLD, second, 3), LS_OK);
    ls_communicators_close(communicators, WORLD);
    const struct ls_tuner_row *rows = ls_tuner_rows(tuner, &count);
    ck_assert_uint_eq(count, 2); // only the size of another class is new
    ck_assert_mem_eq(&rows[0], &before, sizeof(before));
    ck_assert_str_eq(chosen(tuner, LS_ALL_REDUCE, WORLD, 1100),
                     ls_tuner_candidate(tuner, before.candidate));
    ck_assert_str_eq(chosen(tuner, LS_ALL_REDUCE, WORLD, 1 << 20), "ring");
    ls_tuner_destroy(tuner);
}

struct worker {
    struct ls_tuner *tuner;
    struct ls_communicator **communicators;
    enum ls_status status;
};

static void *run_worker(void *argument)
{
    static const uint64_t counts[] = {1024, 50000};
    struct worker *worker = argument;
    worker->status = measure(worker->tuner, worker->communicators, WORLD / 2, counts, 2);
    return NULL;
}

// Each half of the ranks has a tuner of its own, as workers that are different processes have.
TEST(workers_hear_what_rank_0_decided)
{
    struct ls_communicator *communicators[WORLD];
    size_t counts[2] = {0, 0};
    pthread_t thread;
    auto_host.host.clock_ns = message_clock;
    struct worker workers[2] = {
        {create(candidates, CANDIDATES), communicators, LS_FAILED},
        {create(candidates, CANDIDATES), communicators + WORLD / 2, LS_FAILED}};
    open_communicators(workers[0].tuner, WORLD, communicators);
    ck_assert_int_eq(ls_thread_start(&thread, "worker", run_worker, &workers[1]), LS_OK);
    run_worker(&workers[0]);
    pthread_join(thread, NULL);
    const struct ls_tuner_row *first = ls_tuner_rows(workers[0].tuner, &counts[0]);
    const struct ls_tuner_row *second = ls_tuner_rows(workers[1].tuner, &counts[1]);
    ck_assert_uint_eq(counts[0], 2);
    ck_assert_uint_eq(counts[1], 2);
    ck_assert_uint_ne(first[0].candidate, 0);
    for (size_t i = 0; i < 2; i++) {
        ck_assert_int_eq(workers[i].status, LS_OK);
        ck_assert_uint_eq(first[i].bytes, second[i].bytes);
        ck_assert_uint_eq(first[i].candidate, second[i].candidate);
        ck_assert_uint_gt(first[i].times[0].rounds, 0);
        ck_assert_uint_eq(second[i].times[0].rounds, 0); // it was told, and decided nothing
    }
    ls_communicators_close(communicators, WORLD);
    for (size_t i = 0; i < 2; i++)
        ls_tuner_destroy(workers[i].tuner);
}

// Sums less than it says: rank 0 never receives what the last rank has.
static int32_t wrong(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    (void)call;
    return ls_end_round(schedule);
}

TEST(a_wrong_candidate_is_named_before_it_runs)
{
    static const struct ls_collective_interface interface = {.struct_size = sizeof(interface),
                                                             .operations = 1u << LS_ALL_REDUCE,
                                                             .deterministic = 1,
                                                             .build_schedule = wrong};
    static const struct ls_plugin plugin = {.name = "wrong", .interface = &interface};
    static const uint64_t counts[] = {100};
    struct ls_communicator *communicators[WORLD];
    const struct ls_candidate two[] = {candidates[2], {&plugin, &auto_host.host, "wrong"}};
    auto_host.host.clock_ns = test_host_clock;
    struct ls_tuner *tuner = create(two, 2);
    open_communicators(tuner, WORLD, communicators);
    test_log_begin();
    ck_assert_int_eq(measure(tuner, communicators, WORLD, counts, 1), LS_FAILED);
    ck_assert_ptr_nonnull(strstr(test_log.text, "collective wrong is wrong and was not run"));
    ls_communicators_close(communicators, WORLD);
    ls_tuner_destroy(tuner);
}

// ---- A given table, and its schedules ----

TEST(a_row_takes_the_sizes_nearest_to_it)
{
    struct ls_tuner *tuner = create(candidates, CANDIDATES);
    ck_assert_int_eq(ls_tuner_add(tuner, "test", 5, 4096, "direct"), LS_OK);
    ck_assert_int_eq(ls_tuner_add(tuner, "test", 5, 1 << 20, "tree"), LS_OK);
    ck_assert_str_eq(chosen(tuner, LS_ALL_REDUCE, 5, 0), "direct");
    ck_assert_str_eq(chosen(tuner, LS_ALL_REDUCE, 5, 1024), "direct");
    ck_assert_str_eq(chosen(tuner, LS_ALL_REDUCE, 5, 4096), "direct");
    ck_assert_str_eq(chosen(tuner, LS_ALL_REDUCE, 5, 65536), "tree");
    ck_assert_str_eq(chosen(tuner, LS_ALL_REDUCE, 5, 1 << 30), "tree");
    ck_assert_str_eq(chosen(tuner, LS_BROADCAST, 5, 1024), "direct"); // by the rows of all-reduce
    test_log_begin();
    ck_assert_int_eq(ls_tuner_add(tuner, "test", 5, 4096, "torus"), LS_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(test_log.text, "torus"));
    ls_tuner_destroy(tuner);
}

static bool same_schedule(const struct ls_drawn_schedule *a, const struct ls_drawn_schedule *b)
{
    if (a->step_count != b->step_count || a->round_count != b->round_count ||
        a->scratch_count != b->scratch_count)
        return false;
    for (size_t i = 0; i < a->step_count; i++)
        if (a->steps[i].round != b->steps[i].round ||
            memcmp(&a->steps[i].step, &b->steps[i].step, sizeof(struct ls_step)) != 0)
            return false;
    return true;
}

TEST(every_rank_gets_the_schedule_of_the_chosen_one)
{
    struct ls_tuner *tuner = create(candidates, CANDIDATES);
    for (int i = 0; i < CANDIDATES; i++)
        ck_assert_int_eq(ls_tuner_add(tuner, "test", 5, UINT64_C(16) << 5 * i, names[i]), LS_OK);
    for (uint64_t count = 1; count <= 1 << 20; count *= 32) {
        const char *name = chosen(tuner, LS_ALL_REDUCE, 5, count);
        int index = 0;
        while (strcmp(names[index], name) != 0)
            index++;
        for (uint32_t rank = 0; rank < 5; rank++) {
            struct ls_collective_call call = call_of(tuner, LS_ALL_REDUCE, 5, count);
            struct ls_drawn_schedule mine, expected;
            call.rank = rank;
            ck_assert_str_eq(ls_tuner_name(ls_tuner_plugin(tuner), &call), name);
            ck_assert_ptr_eq(ls_tuner_drawer(ls_tuner_plugin(tuner), &call),
                             candidates[index].host);
            ck_assert_int_eq(
                ls_schedule_draw(ls_tuner_plugin(tuner)->interface, "auto", &call, &mine), LS_OK);
            call.host = candidates[index].host;
            ck_assert_int_eq(
                ls_schedule_draw(candidates[index].plugin->interface, name, &call, &expected),
                LS_OK);
            ck_assert(same_schedule(&mine, &expected));
            ls_drawn_schedule_finish(&mine);
            ls_drawn_schedule_finish(&expected);
        }
    }
    ls_tuner_destroy(tuner);
}

static int32_t refuse(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    (void)schedule;
    return ls_host_fail(call->host, LS_USAGE, "not this world");
}

TEST(who_does_not_do_a_call_is_not_chosen)
{
    static const struct ls_collective_interface refusing = {.struct_size = sizeof(refusing),
                                                            .operations = 1u << LS_ALL_REDUCE,
                                                            .deterministic = 1,
                                                            .build_schedule = refuse};
    static const uint64_t counts[] = {100};
    const struct ls_plugin plugin = {.name = "refusing", .interface = &refusing};
    const struct ls_candidate two[] = {{&plugin, &auto_host.host, "refusing"}, candidates[3]};
    struct ls_communicator *communicators[WORLD];
    test_log_begin();
    auto_host.host.clock_ns = test_host_clock;
    struct ls_tuner *tuner = create(two, 2);
    ck_assert_str_eq(chosen(tuner, LS_ALL_REDUCE, 4, 100), "tree");
    open_communicators(tuner, WORLD, communicators);
    ck_assert_int_eq(measure(tuner, communicators, WORLD, counts, 1), LS_OK);
    ck_assert_str_eq(chosen(tuner, LS_ALL_REDUCE, 4, 100), "tree");
    ck_assert_str_eq(test_log.text, ""); // that was no error
    ls_communicators_close(communicators, WORLD);
    ls_tuner_destroy(tuner);

    tuner = create(two, 1);
    ck_assert_ptr_null(chosen(tuner, LS_ALL_REDUCE, 4, 100));
    ck_assert_ptr_nonnull(strstr(test_log.text, "none of the candidates does all-reduce on 4"));
    ls_tuner_destroy(tuner);
    ls_tuner_destroy(NULL);
}

TEST(who_does_not_do_everything_is_no_candidate)
{
    struct ls_collective_interface partial =
        *(const struct ls_collective_interface *)candidates[0].plugin->interface;
    const struct ls_plugin plugin = {.name = "partial", .interface = &partial};
    const struct ls_candidate one = {&plugin, &auto_host.host, "partial"};
    struct ls_tuner *tuner = NULL;
    test_log_begin();
    partial.dtypes = 1u << LS_F32;
    ck_assert_int_eq(ls_tuner_create(&auto_plugin, &auto_host.host, &one, 1, &tuner),
                     LS_UNAVAILABLE);
    partial.dtypes = 0;
    partial.deterministic = 0;
    ck_assert_int_eq(ls_tuner_create(&auto_plugin, &auto_host.host, &one, 1, &tuner),
                     LS_UNAVAILABLE);
    ck_assert_ptr_null(tuner);
    ck_assert_ptr_nonnull(strstr(test_log.text, "equal bits"));
}

TEST_SECONDS(300);

int main(void)
{
    return open_all() ? test_suite_run("tuner") : TEST_SKIPPED;
}
