// SPDX-License-Identifier: Apache-2.0
// Workers and servers over the real transport: values, waits, losses, refusals.
#include "tests/plugins/strategy/parameter-server/host.h"
#include "tests/support/suite.h"

#include <check.h>
#include <math.h>
#include <time.h>

static struct fake_host fake;

static void start(uint32_t replicas, uint32_t variables, uint64_t size, uint32_t per_bucket)
{
    fake_init(&fake, replicas, variables, size, per_bucket);
}

static void open_and_place(void)
{
    ck_assert_msg(fake_open(&fake) == LS_OK, "%s", fake.host.message);
    ck_assert_int_eq(fake_place(&fake), LS_OK);
}

// Every float of every replica is its first value less `less`; padding stays as it was. Stores subtract the gradient,
// whatever the learning rate is.
static void expect_values(float less)
{
    for (uint32_t replica = 0; replica < fake.core.replicas; replica++)
        for (uint64_t i = 0; i < fake.core.table.flat_count; i++) {
            const float expected = ls_fake_is_padding(&fake.core.model, i)
                                       ? 0.0f
                                       : ls_fake_first_parameter(&fake.core, 0, i) - less;
            ck_assert_msg(fake.core.replica[replica].parameters[i] == expected,
                          "replica %u, float %llu: %g, not %g", replica, (unsigned long long)i,
                          (double)fake.core.replica[replica].parameters[i], (double)expected);
        }
}

static const char *const modes[] = {"async", "bounded", "sync"};

// ---- Values ----

// Sums of whole numbers and halves are exact, so the order in which pushes are applied does not show.
LOOP_TEST(all_pushes_are_applied_and_all_replicas_equal, 0, 3)
{
    static const char *const servers[] = {"1", "2", "3", "4"};
    static const char *const shards[] = {"1", "256", "100000"};
    for (uint32_t replicas = 1; replicas <= FAKE_REPLICAS; replicas++)
        for (size_t s = 0; s < 4 * 3; s++) {
            start(replicas, 7, 100, 2);
            fake_option(&fake, "mode", modes[_i]);
            fake_option(&fake, "servers", servers[s % 4]);
            fake_option(&fake, "shard_bytes", shards[s / 4]);
            open_and_place();
            expect_values(0.0f);
            ck_assert_int_eq(fake_run(&fake, 5, true), LS_OK);
            const float sum = (float)(replicas * (replicas + 1)) / 2.0f;
            expect_values(5.0f * sum);
            ck_assert_int_eq(fake_run(&fake, 1, true), LS_OK);
            expect_values(6.0f * sum);
            fake_finish(&fake);
        }
}

LOOP_TEST(memory_that_cannot_be_reached_is_copied, 0, 3)
{
    start(2, 5, 100, 2);
    fake.core.own_memory = true;
    fake_option(&fake, "mode", modes[_i]);
    fake_option(&fake, "servers", "2");
    fake_option(&fake, "shard_bytes", "64");
    open_and_place();
    expect_values(0.0f);
    ck_assert_int_eq(fake_run(&fake, 3, true), LS_OK);
    expect_values(3.0f * 3.0f);
    ck_assert_uint_gt(fake.core.replica[1].changes, 0);
    fake_finish(&fake);
}

// More messages between two endpoints than a transport has under way at a time.
LOOP_TEST(a_model_of_very_many_variables, 0, 3)
{
    start(2, 700, 3, 350);
    fake_option(&fake, "mode", modes[_i]);
    open_and_place();
    ck_assert_int_eq(fake_run(&fake, 3, true), LS_OK);
    expect_values(3.0f * 3.0f);
    fake_finish(&fake);
}

TEST(sync_decides_on_the_sums_of_all_replicas)
{
    start(3, 4, 20, 2);
    fake_option(&fake, "mode", "sync");
    fake_option(&fake, "servers", "4"); // two of them have nothing of bucket 0
    open_and_place();
    ck_assert_int_eq(fake_run(&fake, 2, false), LS_OK);
    expect_values(2.0f * 6.0f); // without a meeting
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_float_eq(fake.core.replica[i].checked[LS_SUMS_EXAMPLES], 12.0f);
        ck_assert_uint_eq(fake.core.replica[i].checks, 1);
    }
    fake_finish(&fake);
}

TEST(a_worker_of_its_own_pace_decides_on_its_own_sums)
{
    start(2, 4, 20, 2);
    open_and_place();
    ck_assert_int_eq(fake_step(&fake, 0, 1.0f, 3.0f, 4.0f), LS_OK);
    ck_assert_float_eq(fake.core.replica[0].checked[LS_SUMS_LOSS], 3.0f);
    ck_assert_uint_eq(fake.core.replica[0].checks, 1);
    ck_assert_uint_eq(fake.core.replica[1].checks, 0);
    ck_assert_uint_gt(fake.core.replica[0].bytes, 4 * 20 * sizeof(float));
    ck_assert_int_eq(fake_meet(&fake), LS_OK);
    fake_finish(&fake);
}

TEST(a_loss_that_is_not_finite_is_not_pushed)
{
    start(2, 4, 20, 2);
    open_and_place();
    ck_assert_int_eq(fake_begin(&fake, 0), LS_OK);
    ck_assert_int_eq(fake_compute(&fake, 0, NAN, NAN, 4.0f), LS_FAILED);
    ck_assert_int_eq(fake_meet(&fake), LS_OK);
    expect_values(0.0f);
    fake_finish(&fake);
}

TEST(a_loss_that_is_not_finite_updates_nothing_in_sync)
{
    start(1, 4, 20, 2);
    fake_option(&fake, "mode", "sync");
    fake_option(&fake, "servers", "2");
    open_and_place();
    ck_assert_int_eq(fake_step(&fake, 0, 7.0f, INFINITY, 4.0f), LS_FAILED);
    expect_values(0.0f);
    fake_finish(&fake);
}

LOOP_TEST(a_share_without_examples_pushes_nothing, 0, 2)
{
    start(2, 4, 20, 2);
    fake_option(&fake, "mode", modes[_i]);
    open_and_place();
    ck_assert_int_eq(fake_step(&fake, 0, 7.0f, 0.0f, 0.0f), LS_OK);
    ck_assert_int_eq(fake_meet(&fake), LS_OK);
    expect_values(0.0f);
    fake_describe(&fake);
    ck_assert_double_eq(fake_number(&fake, "staleness.pushes"), 0.0);
    fake_finish(&fake);
}

// ---- Who waits ----

TEST(what_has_not_changed_is_not_sent_again)
{
    start(2, 4, 20, 2);
    open_and_place();
    ck_assert_int_eq(fake_begin(&fake, 0), LS_OK);
    ck_assert_int_eq(fake_begin(&fake, 1), LS_OK);
    fake_describe(&fake);
    ck_assert_double_eq(fake_number(&fake, "staleness.pulls"), 16.0); // 8 of them to place
    ck_assert_double_eq(fake_number(&fake, "staleness.pulls_unchanged"), 8.0);
    ck_assert_uint_eq(fake.core.replica[0].changes, 1);
    ck_assert_int_eq(fake_compute(&fake, 0, 1.0f, 1.0f, 4.0f), LS_OK);
    ck_assert_int_eq(fake_compute(&fake, 1, 1.0f, 1.0f, 4.0f), LS_OK);
    ck_assert_int_eq(fake_begin(&fake, 0), LS_OK);
    ck_assert_uint_eq(fake.core.replica[0].changes, 2);
    fake_finish(&fake);
}

TEST(updates_of_others_between_pull_and_push_are_counted)
{
    start(2, 4, 20, 4);
    open_and_place();
    ck_assert_int_eq(fake_begin(&fake, 0), LS_OK);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_int_eq(fake_step(&fake, 1, 1.0f, 1.0f, 4.0f), LS_OK);
    ck_assert_int_eq(fake_begin(&fake, 1), LS_OK); // so its pushes have arrived
    ck_assert_int_eq(fake_compute(&fake, 0, 1.0f, 1.0f, 4.0f), LS_OK);
    ck_assert_int_eq(fake_begin(&fake, 0), LS_OK);
    ck_assert_int_eq(fake_compute(&fake, 1, 1.0f, 1.0f, 4.0f), LS_OK); // misses one
    for (uint32_t i = 0; i < fake.core.table.replicas; i++)
        ck_assert_uint_eq(fake.core.replica[i].waits[LS_WAITED_FOR_REPLICAS], 0);
    ck_assert_int_eq(fake_meet(&fake), LS_OK);
    fake_describe(&fake);
    const struct fake_fact *missed = fake_fact(&fake, "staleness.missed_updates.histogram");
    ck_assert_ptr_nonnull(missed);
    ck_assert_uint_eq(missed->count, 4);
    ck_assert_double_eq(missed->values[0], 3 * 4);
    ck_assert_double_eq(missed->values[1], 4);
    ck_assert_double_eq(missed->values[2], 0);
    ck_assert_double_eq(missed->values[3], 4);
    ck_assert_double_eq(fake_number(&fake, "staleness.missed_updates.max"), 3);
    ck_assert_double_eq(fake_number(&fake, "staleness.missed_updates.mean"), 16.0 / 20.0);
    ck_assert_double_eq(fake_number(&fake, "staleness.lead.max"), 3);
    ck_assert_double_eq(fake_number(&fake, "staleness.waits"), 0);
    fake_finish(&fake);
}

struct runner {
    pthread_t thread;
    uint32_t steps;
    _Atomic uint32_t done;
    _Atomic int32_t status;
};

static void *run_ahead(void *argument)
{
    struct runner *runner = argument;
    while (runner->done < runner->steps && !runner->status) {
        runner->status = fake_step(&fake, 0, 1.0f, 1.0f, 4.0f);
        atomic_fetch_add(&runner->done, !runner->status);
    }
    return NULL;
}

static void nap(long milliseconds)
{
    nanosleep(&(struct timespec){.tv_nsec = milliseconds * 1000000}, NULL);
}

// Worker 0 wants eight steps. Worker 1 lets it make one more with each of its own.
LOOP_TEST(nobody_gets_further_ahead_than_the_bound, 0, 4)
{
    const uint32_t bound = (uint32_t)_i;
    char text[16];
    struct runner runner = {.steps = 8};
    start(2, 4, 20, 2);
    snprintf(text, sizeof(text), "%u", bound);
    fake_option(&fake, "mode", "bounded");
    fake_option(&fake, "staleness", text);
    fake_option(&fake, "servers", "2");
    open_and_place();
    ck_assert_int_eq(pthread_create(&runner.thread, NULL, run_ahead, &runner), 0);
    for (uint32_t ended = 0; ended < 8 - bound; ended++) {
        const uint32_t most = ended + bound + 1 < 8 ? ended + bound + 1 : 8;
        while (runner.done < most && !runner.status)
            nap(1);
        nap(5);
        ck_assert_int_eq(runner.status, LS_OK);
        ck_assert_uint_eq(runner.done, most);
        ck_assert_int_eq(fake_step(&fake, 1, 1.0f, 1.0f, 4.0f), LS_OK);
    }
    pthread_join(runner.thread, NULL);
    ck_assert_int_eq(runner.status, LS_OK);
    ck_assert_uint_ge(fake.core.replica[0].waits[LS_WAITED_FOR_REPLICAS], 8 - bound - 1);
    ck_assert_uint_eq(fake.core.replica[1].waits[LS_WAITED_FOR_REPLICAS], 0);
    ck_assert_int_eq(fake_meet(&fake), LS_OK);
    fake_describe(&fake);
    ck_assert_double_eq(fake_number(&fake, "staleness.bound"), bound);
    ck_assert_double_eq(fake_number(&fake, "staleness.lead.max"), bound);
    ck_assert_double_ge(fake_number(&fake, "staleness.waits"), 8 - bound - 1);
    ck_assert_double_gt(fake_number(&fake, "staleness.waits_seconds"), 0);
    fake_finish(&fake);
}

static void *meet_alone(void *argument)
{
    *(int32_t *)argument = fake.ops->synchronise(fake.strategy, 1);
    return NULL;
}

TEST(who_waits_in_a_meeting_holds_nobody_up)
{
    pthread_t thread;
    int32_t met = LS_FAILED;
    start(2, 4, 20, 2);
    fake_option(&fake, "mode", "bounded");
    fake_option(&fake, "staleness", "1");
    open_and_place();
    ck_assert_int_eq(pthread_create(&thread, NULL, meet_alone, &met), 0);
    for (uint32_t i = 0; i < 6; i++)
        ck_assert_int_eq(fake_step(&fake, 0, 1.0f, 1.0f, 4.0f), LS_OK);
    ck_assert_int_eq(fake.ops->synchronise(fake.strategy, 0), LS_OK);
    pthread_join(thread, NULL);
    ck_assert_int_eq(met, LS_OK);
    ck_assert_uint_eq(fake.core.replica[1].waits[LS_WAITED_FOR_REPLICAS], 1);
    expect_values(6.0f);
    // All begin again at zero.
    ck_assert_int_eq(fake_step(&fake, 1, 1.0f, 1.0f, 4.0f), LS_OK);
    ck_assert_int_eq(fake_step(&fake, 1, 1.0f, 1.0f, 4.0f), LS_OK);
    ck_assert_int_eq(fake_meet(&fake), LS_OK);
    fake_describe(&fake);
    ck_assert_double_le(fake_number(&fake, "staleness.lead.max"), 1);
    fake_finish(&fake);
}

// Until it makes a step again.
LOOP_TEST(who_rests_holds_nobody_up, 0, 2)
{
    start(2, 4, 20, 2);
    fake_option(&fake, "mode", modes[_i]);
    if (_i == 1)
        fake_option(&fake, "staleness", "0");
    open_and_place();
    ck_assert_int_eq(fake.ops->rest(fake.strategy, 1), LS_OK);
    for (uint32_t i = 0; i < 5; i++)
        ck_assert_int_eq(fake_step(&fake, 0, 1.0f, 1.0f, 4.0f), LS_OK);
    ck_assert_int_eq(fake_step(&fake, 1, 1.0f, 1.0f, 4.0f), LS_OK);
    ck_assert_int_eq(fake.ops->rest(fake.strategy, 0), LS_OK);
    ck_assert_int_eq(fake_step(&fake, 1, 1.0f, 1.0f, 4.0f), LS_OK);
    ck_assert_int_eq(fake_meet(&fake), LS_OK);
    expect_values(7.0f);
    fake_describe(&fake);
    if (_i == 1)
        ck_assert_double_eq(fake_number(&fake, "staleness.lead.max"), 0);
    fake_finish(&fake);
}

LOOP_TEST(the_late_one_is_named_after_the_deadline, 0, 3)
{
    start(2, 4, 20, 2);
    fake_option(&fake, "mode", modes[_i]);
    if (_i == 1)
        fake_option(&fake, "staleness", "0");
    fake.core.table.deadline_ns =
        UINT64_C(1000000000); // servers must answer in it on busy machines, too
    open_and_place();
    int32_t status = LS_OK;
    if (_i == 0)
        status = fake.ops->synchronise(fake.strategy, 0); // alone
    else
        for (uint32_t i = 0; i < 2 && !status; i++)
            status = fake_step(&fake, 0, 1.0f, 1.0f, 4.0f);
    ck_assert_int_eq(status, LS_PEER_LOST);
    ck_assert_msg(strstr(fake.host.message, "worker 0, step") != NULL, "%s", fake.host.message);
    ck_assert_msg(strstr(fake.host.message, "waited 1.") != NULL, "%s", fake.host.message);
    ck_assert_msg(strstr(fake.host.message, " s for worker 1") != NULL, "%s", fake.host.message);
    fake_finish(&fake);
}

// ---- Losses and ends ----

LOOP_TEST(a_worker_that_is_lost_is_not_waited_for, 0, 2)
{
    start(3, 6, 40, 2);
    fake_option(&fake, "mode", modes[_i]);
    fake_option(&fake, "servers", "2");
    open_and_place();
    struct ls_strategy_traits traits;
    fake.ops->find_traits(fake.strategy, &traits);
    ck_assert_uint_eq(traits.survives, 1);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_int_eq(fake_step(&fake, i, 1.0f, 1.0f, 4.0f), LS_OK);
    ck_assert_int_eq(fake_begin(&fake, 1), LS_OK);
    ls_fake_ready(&fake.core, 1, 0);
    ck_assert_int_eq(fake.ops->gradient_ready(fake.strategy, 1, 0), LS_OK); // and then it fails
    ck_assert_int_eq(fake.ops->lost(fake.strategy, 1), LS_OK);
    ck_assert_ptr_null(fake.core.endpoints[1]);
    for (uint32_t i = 0; i < 5; i++)
        for (uint32_t k = 0; k < 3; k += 2)
            ck_assert_int_eq(fake_step(&fake, k, 1.0f, 1.0f, 4.0f), LS_OK);
    for (uint32_t k = 0; k < 3; k += 2)
        ck_assert_int_eq(fake_begin(&fake, k), LS_OK); // so all pushes have arrived
    fake_describe(&fake);
    ck_assert_double_eq(fake_number(&fake, "staleness.pushes"), 13 * 6 + 2);
    fake_finish(&fake);
}

// Its transport fails in the middle of anything: at its next call.
LOOP_TEST(a_worker_whose_transport_fails_is_not_waited_for, 0, 4)
{
    start(2, 6, 40, 2);
    fake_option(&fake, "mode", modes[_i / 2]);
    open_and_place();
    ck_assert_int_eq(fake_step(&fake, 1, 1.0f, 1.0f, 4.0f), LS_OK);
    if (_i % 2)
        ck_assert_int_eq(fake_begin(&fake, 1), LS_OK);
    atomic_store(&fake.fails[1], 1);
    if (_i % 2)
        ck_assert_int_eq(fake_compute(&fake, 1, 1.0f, 1.0f, 4.0f), LS_FAILED);
    else
        ck_assert_int_eq(fake_begin(&fake, 1), LS_FAILED);
    ck_assert_int_eq(fake.ops->lost(fake.strategy, 1), LS_OK);
    for (uint32_t i = 0; i < 6; i++)
        ck_assert_int_eq(fake_step(&fake, 0, 1.0f, 1.0f, 4.0f), LS_OK);
    ck_assert_int_eq(fake.ops->synchronise(fake.strategy, 0), LS_OK);
    fake_describe(&fake);
    // What was on the way when its transport failed may be lost.
    ck_assert_double_ge(fake_number(&fake, "staleness.pushes"), (_i % 2 ? 7 : 6) * 6);
    ck_assert_double_le(fake_number(&fake, "staleness.pushes"), 7 * 6);
    fake_finish(&fake);
}

LOOP_TEST(a_request_that_a_server_does_not_know_ends_the_run, 0, 6)
{
    static const uint32_t kinds[] = {9, 77};
    start(2, 4, 20, 2);
    fake_option(&fake, "mode", modes[_i / 2]);
    open_and_place();
    atomic_store(&fake.asks[1], kinds[_i % 2]);
    int32_t status = fake_begin(&fake, 1);
    if (!status) // sync: its first request is a push
        status = fake_compute(&fake, 1, 1.0f, 1.0f, 4.0f);
    ck_assert_int_eq(status, LS_ABORTED);
    char expected[64];
    snprintf(expected, sizeof(expected), "server 0: worker 1 sends request %u,", kinds[_i % 2]);
    ck_assert_msg(strstr(fake.host.message, expected) != NULL, "%s", fake.host.message);
    fake_finish(&fake);
}

TEST(sync_does_not_survive_a_loss)
{
    struct ls_strategy_traits traits;
    start(2, 4, 20, 2);
    fake_option(&fake, "mode", "sync");
    open_and_place();
    fake.ops->find_traits(fake.strategy, &traits);
    ck_assert_uint_eq(traits.survives, 0);
    ck_assert_uint_eq(traits.divisor, LS_DIVISOR_GLOBAL);
    ck_assert_uint_eq(traits.equality, LS_EQUAL_EVERY_STEP);
    fake_finish(&fake);
}

static void *abort_soon(void *argument)
{
    (void)argument;
    nap(20);
    fake.transport.abort(fake.core.endpoints[1]);
    return NULL;
}

LOOP_TEST(an_abort_ends_all_waits_quietly, 0, 3)
{
    pthread_t thread;
    start(2, 4, 20, 2);
    fake_option(&fake, "mode", modes[_i]);
    open_and_place();
    ck_assert_int_eq(pthread_create(&thread, NULL, abort_soon, NULL), 0);
    if (_i == 2)
        ck_assert_int_eq(fake_step(&fake, 0, 1.0f, 1.0f, 4.0f), LS_ABORTED);
    else
        ck_assert_int_eq(fake.ops->synchronise(fake.strategy, 0), LS_ABORTED);
    pthread_join(thread, NULL);
    ck_assert_int_eq(fake_begin(&fake, 1), _i == 2 ? LS_OK : LS_ABORTED);
    fake_describe(&fake);
    ck_assert_uint_eq(fake.fact_count, 0);
    ck_assert_str_eq(fake.host.message, "");
    fake_finish(&fake);
}

TEST(the_report_says_what_each_server_has)
{
    start(2, 4, 32, 2);
    fake_option(&fake, "servers", "3");
    open_and_place();
    ck_assert_int_eq(fake_run(&fake, 2, true), LS_OK);
    fake_describe(&fake);
    static const char *const names[] = {"servers.parameters", "servers.shards",
                                        "servers.bytes_received", "servers.bytes_sent"};
    double sums[4] = {0};
    for (size_t k = 0; k < 4; k++) {
        const struct fake_fact *fact = fake_fact(&fake, names[k]);
        ck_assert_ptr_nonnull(fact);
        ck_assert_uint_eq(fact->count, 3);
        ck_assert_uint_eq(fact->list, 1);
        for (size_t i = 0; i < 3; i++)
            sums[k] += fact->values[i];
    }
    ck_assert_double_eq(sums[0], 4 * 32);
    ck_assert_double_eq(sums[1], 4);
    // Four pushes and at least two pulls of the whole model, and what goes with them.
    ck_assert_double_gt(sums[2], 4 * 4 * 32 * sizeof(float));
    ck_assert_double_lt(sums[2], 4 * 4 * 32 * sizeof(float) + 3 * 20 * 128);
    ck_assert_double_gt(sums[3], 2 * 4 * 32 * sizeof(float));
    fake_finish(&fake);
}

// ---- Refusals ----

TEST(bad_options_are_refused_before_anything_starts)
{
    static const struct {
        const char *options[2][2];
        const char *says;
    } cases[] = {
        {{{"servers", "0"}}, "servers=0: must be at least 1"},
        {{{"servers", "-1"}}, "servers=-1: must be at least 1"},
        {{{"servers", "5"}}, "fill only 4"},
        {{{"servers", "99999999999"}}, "must be at most"},
        {{{"servers", "4"}, {"shard_bytes", "-5"}}, "shard_bytes=-5: must be at least 1"},
        {{{"shard_bytes", "0"}}, "shard_bytes=0"},
        {{{"mode", "bounded"}, {"staleness", "-1"}}, "staleness=-1: must be at least 0"},
        {{{"staleness", "2"}}, "for mode=bounded only; the mode is async"},
        {{{"mode", "sync"}, {"staleness", "0"}}, "for mode=bounded only; the mode is sync"},
        {{{"delay_replica", "2"}, {"delay_ms", "1"}}, "delay_replica=2: must be at most 1"},
        {{{"delay_replica", "-1"}, {"delay_ms", "1"}}, "delay_replica=-1"},
        {{{"delay_replica", "1"}}, "belong together"},
        {{{"delay_ms", "1"}}, "belong together"},
        {{{"delay_ms", "-1"}, {"delay_replica", "1"}}, "delay_ms=-1: must be at least 0"},
        {{{"delay_ms", "10001"}, {"delay_replica", "1"}}, "delay_ms=10001: must be at most"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        start(2, 4, 32, 2);
        for (size_t k = 0; k < 2 && cases[i].options[k][0]; k++)
            fake_option(&fake, cases[i].options[k][0], cases[i].options[k][1]);
        ck_assert_int_eq(fake_open(&fake), LS_USAGE);
        ck_assert_msg(strstr(fake.host.message, cases[i].says) != NULL, "%s", fake.host.message);
        ck_assert_uint_eq(fake.core.endpoint_count, 0);
        fake_finish(&fake);
    }
}

TEST(more_servers_fit_when_shards_are_smaller)
{
    start(1, 1, 64, 1);
    fake_option(&fake, "servers", "4");
    ck_assert_int_eq(fake_open(&fake), LS_USAGE);
    ck_assert_msg(strstr(fake.host.message, "1 shard of at least shard_bytes=262144") != NULL, "%s",
                  fake.host.message);
    fake_option(&fake, "shard_bytes", "64");
    open_and_place();
    ck_assert_int_eq(fake_run(&fake, 2, true), LS_OK);
    expect_values(2.0f);
    fake_finish(&fake);
}

LOOP_TEST(memory_that_ends_anywhere_leaves_nothing_behind, 0, 3)
{
    uint32_t tries = 0;
    for (bool opened = false; !opened; tries++) {
        start(2, 4, 32, 2);
        fake_option(&fake, "mode", modes[_i]);
        fake_option(&fake, "servers", "2");
        fake.core.own_memory = true;
        fake.allocations_allowed = tries;
        const int32_t status = fake_open(&fake);
        opened = status == LS_OK;
        ck_assert(opened || status == LS_OUT_OF_MEMORY);
        fake.allocations_allowed = UINT32_MAX;
        fake_finish(&fake);
    }
    ck_assert_uint_gt(tries, 20);
}

LOOP_TEST(threads_that_do_not_start_leave_nothing_behind, 0, 3)
{
    start(2, 4, 32, 2);
    fake_option(&fake, "servers", "3");
    fake.core.threads_allowed = (uint32_t)_i;
    ck_assert_int_eq(fake_open(&fake), LS_OUT_OF_MEMORY);
    fake_finish(&fake);
}

TEST_SECONDS(120);

int main(void)
{
    if (!fake_plugins_open())
        return TEST_SKIPPED;
    return test_suite_run("plugins/strategy/parameter-server/protocol");
}
