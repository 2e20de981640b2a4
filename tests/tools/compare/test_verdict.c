// SPDX-License-Identifier: Apache-2.0
// What is said of a comparison, on made-up figures.
#include "core/plugin/device.h"
#include "tools/compare/sentences.h"
#include "tests/support/suite.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 8
#define MADE_MOST 8

// A run that was measured, whose processes lie within 1 % of `rate`; those of two runs go up and down differently.
static struct ls_compared_run measured(const char *strategy, uint32_t replicas, double rate)
{
    static double pool[MADE_MOST][BLOCKS];
    static size_t made;
    const size_t number = made++ % MADE_MOST;
    double *rounds = pool[number];
    for (size_t i = 0; i < BLOCKS; i++)
        rounds[i] = rate * (1 + 0.01 * (i >> number % 3 & 1 ? 1 : -1));
    return (struct ls_compared_run){
        .strategy = (char *)strategy,
        .replicas = replicas,
        .threads = 1,
        .cores = replicas,
        .global_batch = 128,
        .rate = rate,
        .rate_low = 0.99 * rate,
        .rate_high = 1.01 * rate,
        .round_rates = rounds,
        .round_count = BLOCKS,
        .process_rates = rounds,
        .process_count = BLOCKS,
        .timed_steps = BLOCKS * 500,
        .times = {.median = 10e-3,
                  .compute = 9e-3,
                  .input = 0,
                  .communication = 2e-3,
                  .exposed_communication = 0.2e-3,
                  .update = 0.3e-3,
                  .other = 0.5e-3},
        .final_loss = 0.5,
        .final_accuracy = 0.8,
        .val_loss = NAN,
        .val_accuracy = NAN,
        .loss_deviation = 1e-4,
        .loss_deviation_first_two = NAN,
        .loss_deviation_first_ten = 1e-6,
        .parameter_deviation = 1e-4,
        .replicas_equal = 1,
        .target_seconds = NAN,
        .target_examples = NAN,
    };
}

static struct ls_comparison of(struct ls_compared_run *runs, size_t count)
{
    return (struct ls_comparison){.status = "done",
                                  .model = "cnn",
                                  .dataset = "fashion-mnist",
                                  .optimizer = "sgd",
                                  .global_batch = 128,
                                  .runs = runs,
                                  .run_count = count,
                                  .reference = 0,
                                  .rounding_spread = 1e-4,
                                  .rounding_spread_first_two = NAN,
                                  .rounding_spread_first_ten = 1e-7,
                                  .rounding_spread_parameters = 1e-4};
}

static bool has(const struct ls_sentences *sentences, const char *part)
{
    for (size_t i = 0; i < sentences->count; i++)
        if (strstr(sentences->list[i], part))
            return true;
    return false;
}

typedef enum ls_status sentences_of(const struct ls_comparison *, struct ls_sentences *);

static bool some_have(sentences_of *what, const struct ls_comparison *comparison, const char *part)
{
    struct ls_comparison measured_too = *comparison;
    struct ls_sentences sentences = {0};
    ck_assert_int_eq(ls_comparison_measure(&measured_too), LS_OK);
    ck_assert_int_eq(what(&measured_too, &sentences), LS_OK);
    const bool found = has(&sentences, part);
    ls_sentences_finish(&sentences);
    free(measured_too.differences);
    return found;
}

static bool verdict_has(const struct ls_comparison *comparison, const char *part)
{
    return some_have(ls_verdict, comparison, part);
}

static bool suggestions_have(const struct ls_comparison *comparison, const char *part)
{
    return some_have(ls_suggestions, comparison, part);
}

// As text, to be freed.
static char *table_of(const struct ls_comparison *comparison)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    ck_assert_ptr_nonnull(out);
    ck_assert_int_eq(ls_comparison_print(comparison, out), LS_OK);
    fclose(out);
    return text;
}

TEST(the_fastest_is_named_with_its_lead)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000), measured("ring", 2, 1900),
                                     measured("tree", 2, 1500)};
    const struct ls_comparison comparison = of(runs, 3);
    ck_assert(verdict_has(&comparison, "ring is the fastest: 1,900 examples/s"));
    ck_assert(verdict_has(&comparison, "That is 1.27 times tree (95 % confidence: 1.25 to 1.28), "
                                       "the next."));
    ck_assert(suggestions_have(&comparison, "The fastest synchronous strategy: "));
}

TEST(what_chance_may_do_is_no_difference)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000), measured("ring", 2, 1500),
                                     measured("tree", 2, 1490)};
    const struct ls_comparison comparison = of(runs, 3);
    ck_assert(verdict_has(&comparison, "No difference in speed was measured between ring and tree: "
                                       "1,490 to 1,500 examples/s."));
    ck_assert(verdict_has(&comparison, "ring at 1.01 times tree (95 % confidence: "));
    ck_assert(verdict_has(&comparison,
                          "a difference counts where p is at most 0.01. To see one of 1 % on this "
                          "machine as it was, "
                          "--speed-steps="));
    ck_assert(verdict_has(&comparison, "would be needed (4000 were timed)."));
    ck_assert(verdict_has(&comparison, "ring is faster than the others: 1.50 times one-device"));
    ck_assert(!verdict_has(&comparison, "is the fastest"));
    ck_assert(!suggestions_have(&comparison, "The fastest"));
    ck_assert(suggestions_have(&comparison, "No synchronous strategy was measured to be "
                                            "faster than ring: lockstep train"));
}

TEST(where_nothing_differs_the_reference_is_advised)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000), measured("ring", 2, 1010)};
    const struct ls_comparison comparison = of(runs, 2);
    ck_assert(verdict_has(&comparison, "No difference in speed was measured"));
    ck_assert(suggestions_have(&comparison,
                               "No strategy was measured to be faster than the others; one-device "
                               "is the simplest: lockstep train"));
    ck_assert(!suggestions_have(&comparison, "ring"));
}

// Nobody who is level with the best may be said to be level with everyone who is, too.
TEST(level_with_the_best_is_not_level_with_each_other)
{
    struct ls_compared_run runs[] = {measured("noisy", 2, 1100), measured("ring", 2, 1090),
                                     measured("tree", 2, 1040)};
    double rates[BLOCKS] = {800, 1500, 900, 1400, 850, 1450, 950, 1200};
    runs[0].process_rates = rates;
    const struct ls_comparison comparison = of(runs, 3);
    ck_assert(verdict_has(&comparison, "No difference in speed was measured between noisy and each "
                                       "of ring and tree: 1,040 to 1,100"));
    runs[2].rate = 1090;
    runs[2].process_rates = runs[1].process_rates;
    ck_assert(verdict_has(&comparison, "between noisy, ring and tree: 1,090 to 1,100"));
}

// The machine gets ten times slower: quartiles overlap, but one is faster in every block.
TEST(a_drifting_machine_hides_no_difference)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000), measured("ring", 2, 1100)};
    for (size_t i = 0; i < BLOCKS; i++) {
        runs[0].process_rates[i] *= 1 / (1 + 2 * (double)i);
        runs[1].process_rates[i] *= 1 / (1 + 2 * (double)i);
    }
    runs[0].rate_low = runs[1].rate_low = 100;
    runs[0].rate_high = runs[1].rate_high = 900;
    const struct ls_comparison comparison = of(runs, 2);
    ck_assert(verdict_has(&comparison, "ring is the fastest"));
    ck_assert(verdict_has(&comparison, "That is 1.10 times one-device"));
}

TEST(a_few_processes_tell_nothing)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000), measured("ring", 2, 1500)};
    runs[1].process_count = 2;
    const struct ls_comparison comparison = of(runs, 2);
    ck_assert(verdict_has(&comparison,
                          "The fastest is not known, because too few processes were timed: "
                          "ring had 1,500 examples/s and one-device 1,000 examples/s."));
    ck_assert(!verdict_has(&comparison, "is the fastest:"));
    ck_assert(!verdict_has(&comparison, "No difference"));
    runs[1].process_count = runs[0].process_count = 0; // interrupted before the first block
    ck_assert(verdict_has(&comparison, "too few processes were timed"));
    ck_assert(!verdict_has(&comparison, "No difference"));
}

// Whoever cannot tell chance does not call a difference chance.
TEST(a_few_processes_are_not_called_chance)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000), measured("ring", 2, 1200),
                                     measured("tree", 2, 800)};
    for (size_t i = 0; i < 3; i++) {
        runs[i].process_count = 2;
        runs[i].cores = 2;
    }
    const struct ls_comparison two = of(runs, 2), three = of(runs, 3);
    ck_assert(verdict_has(&two, "ring is 1.20 times as fast as one-device on the same 2 cores: 2 "
                                "replicas of 1 thread against one of 1."));
    ck_assert(verdict_has(&three, "ring 1.20, tree 0.80 times as fast."));
    ck_assert(!verdict_has(&three, "difference was measured"));
}

TEST(without_a_reference_nothing_is_called_correct)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, NAN), measured("ring", 2, 1900)};
    runs[0].status = LS_COMPARED_FAILED;
    runs[0].reason = (char *)"crashed";
    runs[1].loss_deviation = runs[1].loss_deviation_first_ten = 0;
    const struct ls_comparison comparison = of(runs, 2);
    ck_assert(verdict_has(&comparison, "Correctness could not be judged: the reference "
                                       "(one-device) failed."));
    ck_assert(!verdict_has(&comparison, "as correct as"));
}

TEST(the_advised_command_is_the_one_that_was_measured)
{
    const struct ls_compared_option options[] = {
        {"model", "my net.json"}, {"dataset", "mnist:dir=it's"}, {"seed", "7"}, {"loss", ""}};
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000),
                                     measured("parameter-server:mode=sync", 2, 1900)};
    struct ls_comparison comparison = of(runs, 2);
    comparison.options = options;
    comparison.option_count = sizeof(options) / sizeof(options[0]);
    const char *command =
        "lockstep train --model='my net.json' --dataset='mnist:dir=it'\\''s' --seed=7 --loss='' "
        "--strategy=parameter-server:mode=sync --replicas=2 --threads=1 --batch=128";
    ck_assert(suggestions_have(&comparison, command));
    char *text = table_of(&comparison);
    ck_assert_ptr_nonnull(strstr(text, command)); // on one line, to be copied
    free(text);
    comparison.for_python = true;
    ck_assert(suggestions_have(&comparison,
                               "lockstep.Model(..., strategy=\"parameter-server:mode=sync\", "
                               "replicas=2, threads=1).fit(..., batch_size=128)"));
    ck_assert(!suggestions_have(&comparison, "--"));
}

TEST(where_nothing_ran_there_is_nothing_to_try)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000), measured("ring", 2, NAN)};
    runs[1].status = LS_COMPARED_FAILED;
    const struct ls_comparison comparison = of(runs, 2);
    ck_assert(!suggestions_have(&comparison, "--replicas=1,2,4"));
    ck_assert(!suggestions_have(&comparison, "lockstep train"));
    runs[0].status = LS_COMPARED_FAILED;
    runs[0].rate = 1000; // whatever is known of it
    char *text = table_of(&comparison);
    ck_assert_ptr_null(strstr(text, "Time of a step"));
    ck_assert_ptr_null(strstr(text, "Truth"));
    ck_assert_ptr_null(strstr(text, "What to try"));
    ck_assert_ptr_null(strstr(text, "0.0e+00"));
    free(text);
}

TEST(a_long_reason_is_cut_in_the_table_and_whole_in_the_verdict)
{
    char reason[400] = "no strategy is called so;";
    while (strlen(reason) < 380)
        strcat(reason, " another");
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000), measured("rign", 2, NAN)};
    runs[1].status = LS_COMPARED_UNAVAILABLE;
    runs[1].reason = reason;
    const struct ls_comparison comparison = of(runs, 2);
    ck_assert(verdict_has(&comparison, reason));
    char *text = table_of(&comparison);
    ck_assert_ptr_nonnull(strstr(text, "not available: no strategy is called so; another"));
    ck_assert_ptr_nonnull(strstr(text, " another...\n"));
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        ck_assert_uint_lt(strcspn(line, "\n"), 120);
    }
    free(text);
}

TEST(an_asynchronous_winner_is_told_from_the_synchronous_one)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000), measured("ring", 2, 1500),
                                     measured("parameter-server", 2, 1800)};
    runs[2].way = LS_WAY_ASYNCHRONOUS;
    runs[2].loss_deviation = runs[2].loss_deviation_first_ten = 0.3;
    const struct ls_comparison comparison = of(runs, 3);
    ck_assert(verdict_has(&comparison, "parameter-server is the fastest: 1,800"));
    ck_assert(
        verdict_has(&comparison, "of the synchronous strategies, ring is the fastest with 1,500"));
    ck_assert(
        verdict_has(&comparison, "parameter-server is asynchronous, so its losses cannot be"));
    ck_assert(!verdict_has(&comparison, "more than rounding"));
    ck_assert(suggestions_have(&comparison, "--strategy=ring"));
}

TEST(a_filter_and_rounds_are_judged_by_what_they_reach)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000),
                                     measured("ring+int8", 2, 1500), measured("diloco", 2, 1800)};
    runs[1].way = LS_WAY_FILTERED;
    runs[2].way = LS_WAY_ROUNDS;
    runs[1].loss_deviation_first_ten = runs[2].loss_deviation_first_ten = 0.3;
    runs[2].final_loss = 0.625;
    const struct ls_comparison comparison = of(runs, 3);
    ck_assert(verdict_has(&comparison, "ring+int8 sends gradients through a filter, so its losses "
                                       "cannot be compared step by step; it ended with a loss of "
                                       "0.5000 (one device: 0.5000)"));
    ck_assert(verdict_has(&comparison, "diloco lets each replica train weights of its own between "
                                       "rounds"));
    ck_assert(verdict_has(&comparison, "loss of 0.6250 (one device: 0.5000)"));
    ck_assert(!verdict_has(&comparison, "more than rounding"));
    ck_assert(suggestions_have(&comparison, "--strategy=one-device")); // of those that are plain
}

TEST(a_filter_that_has_not_begun_is_said)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000),
                                     measured("ring+powersgd", 2, 1500),
                                     measured("diloco+powersgd", 2, 1800)};
    struct ls_comparison comparison = of(runs, 3);
    comparison.steps = 1000;
    runs[1].way = LS_WAY_FILTERED;
    runs[2].way = LS_WAY_ROUNDS;
    runs[1].filter_begins = runs[2].filter_begins = 1000;
    ck_assert(verdict_has(&comparison, "ring+powersgd was not filtered in these steps: its filter "
                                       "begins after 1000 updates; it ended with a loss"));
    ck_assert(verdict_has(&comparison, "diloco+powersgd lets each replica train weights of its own "
                                       "between rounds, so its losses cannot be compared step by "
                                       "step; it was not filtered in these steps"));
    comparison.steps = 1001;
    ck_assert(!verdict_has(&comparison, "was not filtered"));
}

static void takes_there(struct ls_compared_run *run, double step, uint64_t goal_step)
{
    run->elsewhere =
        (struct ls_compared_elsewhere){.step_seconds = step,
                                       .work_seconds = step,
                                       .goal_seconds = goal_step ? step * (double)goal_step : NAN};
    run->goal_step = goal_step;
}

TEST(on_another_network_the_first_at_the_goal_is_named)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000), measured("ring", 2, 1500),
                                     measured("diloco", 2, 1800)};
    struct ls_comparison comparison = of(runs, 3);
    runs[2].way = LS_WAY_ROUNDS;
    for (size_t i = 0; i < 3; i++)
        takes_there(&runs[i], 1, 0);
    ck_assert(!verdict_has(&comparison, "On network"));
    comparison.network = "internet";
    comparison.compute_scale = comparison.compute_seconds = NAN;
    comparison.goal_loss = 0.25;
    ck_assert(verdict_has(&comparison, "On network internet (simulated, compute as measured on "
                                       "this CPU), no run over several ranks reaches a loss of "
                                       "0.25."));
    comparison.goal_loss = NAN;
    ck_assert(verdict_has(&comparison, "reaches a common loss (none: no run trained to its end)."));
    comparison.goal_loss = 0.25;
    runs[1].elsewhere.step_seconds = runs[2].elsewhere.step_seconds = NAN;
    ck_assert(verdict_has(&comparison, "no run over several ranks was simulated."));
    takes_there(&runs[2], 1, 0);
    runs[1].replicas = runs[2].replicas = 1;
    ck_assert(verdict_has(&comparison, "nothing would travel, because each run has one replica; "
                                       "compare with --replicas=2."));
    runs[1].replicas = runs[2].replicas = 2;
    takes_there(&runs[1], 0.5, 100);
    takes_there(&runs[2], 0.1, 200);
    ck_assert(verdict_has(&comparison, "diloco would reach a loss of 0.25 first, after 20 s (200 "
                                       "steps of 100 ms); ring, which computes what one device "
                                       "does, after 50 s (100 steps of 500 ms), 2.5 times as "
                                       "long."));
    ck_assert(!verdict_has(&comparison, "one machine"));
    takes_there(&runs[0], 0.1, 100);
    ck_assert(verdict_has(&comparison, "No run over that network would be as fast as one machine: "
                                       "one-device with 1 thread takes 10 s."));
    takes_there(&runs[1], 0.21, 100);
    ck_assert(
        verdict_has(&comparison, "no difference worth another algorithm: ring is the better"));
    takes_there(&runs[1], 0.105, 400);
    ck_assert(verdict_has(&comparison, "2.1 times as long. Sending less makes no step shorter"));
    takes_there(&runs[1], 0.15, 100);
    comparison.compute_scale = 8;
    ck_assert(verdict_has(&comparison, "(simulated, compute 8 times as fast as measured here), "
                                       "ring would reach a loss of 0.25 first, after 15 s (100 "
                                       "steps of 150 ms). Sending less does not pay there: diloco "
                                       "would take 20 s (200 steps of 100 ms)."));
    runs[2].elsewhere.goal_seconds = 30; // of 200 steps, some before its filter began
    ck_assert(verdict_has(&comparison, "diloco would take 30 s (200 steps of 150 ms)."));
    comparison.target_metric = "val_loss";
    comparison.target_value = 0.5;
    ck_assert(verdict_has(&comparison, "ring would reach val_loss 0.5 first"));
}

TEST(gains_are_held_against_one_replica)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1100), measured("ring", 1, 1000),
                                     measured("ring", 2, 1800), measured("ring", 4, 3000)};
    const struct ls_comparison comparison = of(runs, 4);
    ck_assert(verdict_has(&comparison, "ring with 4 replicas gains 3.00 times one replica's speed, "
                                       "of 4.0 possible (75 %)"));
    ck_assert(!verdict_has(&comparison, "ring with 2 replicas gains"));
    ck_assert(!suggestions_have(&comparison, "--replicas=1,2,4"));
}

TEST(a_gain_that_chance_may_make_is_none)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1100), measured("ring", 1, 1000),
                                     measured("ring", 2, 1200)};
    double rates[BLOCKS] = {800, 1800, 900, 1700, 850, 1650, 950, 1250};
    runs[2].process_rates = rates;
    const struct ls_comparison comparison = of(runs, 3);
    ck_assert(verdict_has(&comparison, "No gain from the 2 replicas of ring with 2 replicas was "
                                       "measured: it was at 1.18 times ring with 1 replica (95 %"));
    ck_assert(!verdict_has(&comparison, "gains"));
}

TEST(a_model_may_be_too_small_for_its_replicas)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000), measured("ring", 4, 900)};
    runs[1].times = (struct ls_compared_times){.median = 1e-3,
                                               .compute = 0.2e-3,
                                               .communication = 0.7e-3,
                                               .exposed_communication = 0.7e-3};
    const struct ls_comparison comparison = of(runs, 2);
    ck_assert(
        verdict_has(&comparison, "the model is too small to gain from 4 replicas (0.90 times"));
    ck_assert(verdict_has(&comparison, "ring is bound by communication: it waits 70 %"));
    ck_assert(suggestions_have(&comparison, "ring would gain from a larger --batch"));
}

TEST(the_same_cores_divided_otherwise_are_no_gain)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000), measured("ring", 2, 1200)};
    runs[0].threads = 2;
    runs[0].cores = 2;
    const struct ls_comparison comparison = of(runs, 2);
    ck_assert(verdict_has(&comparison,
                          "ring is 1.20 times as fast as one-device on the same 2 cores: "
                          "2 replicas of 1 thread against one of 2."));
}

TEST(hidden_communication_is_said_to_hide)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000), measured("ring", 2, 1900)};
    const struct ls_comparison comparison = of(runs, 2);
    runs[0].times.communication = runs[0].times.exposed_communication = 0;
    ck_assert(verdict_has(&comparison,
                          "ring is compute-bound: kernels take 90 % of a step; "
                          "communication hides under backward (0.20 of 2.00 ms show)"));
}

TEST(waiting_for_data_is_input_bound)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000), measured("ring", 2, 1010)};
    runs[1].times = (struct ls_compared_times){.median = 10e-3, .input = 6e-3, .compute = 4e-3};
    const struct ls_comparison comparison = of(runs, 2);
    ck_assert(verdict_has(&comparison, "ring is input-bound: it waits 60 % of a step for data"));
    ck_assert(
        verdict_has(&comparison, "gains nothing from 2 replicas (1.01 times one): they wait"));
    ck_assert(suggestions_have(&comparison, "ring would gain from a faster input"));
}

TEST(limits_are_what_takes_the_step)
{
    const double step = 1e-3;
    ck_assert_int_eq(ls_verdict_limit(&(struct ls_compared_times){step, .compute = 0.9 * step}),
                     LS_LIMIT_COMPUTE);
    ck_assert_int_eq(ls_verdict_limit(&(struct ls_compared_times){step, .compute = 0.4 * step,
                                                                  .update = 0.5 * step}),
                     LS_LIMIT_UPDATE);
    ck_assert_int_eq(ls_verdict_limit(&(struct ls_compared_times){
                         step, .compute = 0.3 * step, .exposed_communication = 0.34 * step,
                         .other = 0.36 * step}),
                     LS_LIMIT_OVERHEAD);
    ck_assert_int_eq(ls_verdict_limit(&(struct ls_compared_times){
                         step, .compute = 0.1 * step, .device = 0.8 * step, .other = 0.1 * step}),
                     LS_LIMIT_DEVICE);
    ck_assert_int_eq(ls_verdict_limit(&(struct ls_compared_times){NAN, .compute = NAN}),
                     LS_LIMIT_UNKNOWN);
}

TEST(rounding_is_told_from_mistakes)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000), measured("ring", 2, 1900),
                                     measured("broken", 2, 1901)};
    runs[2].loss_deviation_first_ten = 2e-3;
    runs[2].loss_deviation = 0.1;
    const struct ls_comparison comparison = of(runs, 3);
    ck_assert(ls_verdict_is_rounding(&comparison, &runs[1]));
    ck_assert(!ls_verdict_is_rounding(&comparison, &runs[2]));
    ck_assert(verdict_has(&comparison, "ring is as correct as one device: losses differ by at most "
                                       "1.0e-06 in the first ten steps and 1.0e-04 over all"));
    ck_assert(verdict_has(&comparison, "broken differs from one device by more than rounding"));
    ck_assert(!suggestions_have(&comparison, "--strategy=broken"));
}

TEST(rounding_to_16_bits_is_named)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000), measured("ring", 2, 1900)};
    struct ls_comparison comparison = of(runs, 2);
    char text[LS_TWIN_BYTES];
    comparison.nudge_dtype = LS_BF16;
    ck_assert(verdict_has(&comparison,
                          "rounding alone (one device, each batch in two halves, the "
                          "learning rate off by a rounding to bfloat16) accounts for"));
    comparison.basis = LS_BASIS_WHOLE;
    comparison.nudge_dtype = LS_F16;
    ck_assert_str_eq(
        ls_twin_text(&comparison, text),
        "one device, the initial weights off by their last bits, the learning rate off "
        "by a rounding to float16");
    // 8 and 11 significant bits.
    ck_assert_double_eq(ls_rounding_of(LS_BF16), 1.0 / 256);
    ck_assert_double_eq(ls_rounding_of(LS_F16), 1.0 / 2048);
}

TEST(runs_with_shares_of_their_own_are_held_against_the_same_shares)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000), measured("ring", 2, 1900),
                                     measured("broken", 2, 1901)};
    struct ls_comparison comparison = of(runs, 3);
    comparison.basis = LS_BASIS_SHARES;
    comparison.rounding_spread_first_two = 1e-7;
    comparison.rounding_spread_first_ten = comparison.rounding_spread = 0.1;
    for (size_t i = 0; i < 3; i++) { // what was enough while only these were looked at
        runs[i].loss_deviation_first_ten = runs[i].loss_deviation = 0.05;
        runs[i].loss_deviation_first_two = i == 2 ? 2e-4 : 2e-7;
        runs[i].loss_excess = i == 2 ? 40 : 0.04;
    }
    ck_assert(ls_verdict_is_rounding(&comparison, &runs[1]));
    ck_assert(!ls_verdict_is_rounding(&comparison, &runs[2]));
    ck_assert(verdict_has(&comparison,
                          "ring is as correct as one device that takes the same shares: "
                          "losses differ by at most 2.0e-07 in the first two steps, "
                          "5.0e-02 in the first ten and 5.0e-02 over all"));
    ck_assert(verdict_has(&comparison,
                          "broken differs from one device that takes the same shares by "
                          "more than rounding explains: losses by 2.0e-04 in the first "
                          "two steps"));
    ck_assert(verdict_has(&comparison, "each run was compared with one device that takes the same "
                                       "shares."));
    comparison.shares_failed = (char *)"out of memory";
    for (size_t i = 1; i < 3; i++)
        runs[i].loss_deviation = runs[i].loss_excess = NAN;
    ck_assert(verdict_has(&comparison, "Correctness could not be judged: one device that takes the "
                                       "same shares failed: out of memory."));
    ck_assert(!verdict_has(&comparison, "as correct as"));
    comparison.shares_failed = NULL; // not on the heap
}

TEST(with_logical_shards_nothing_but_the_same_bits_is_correct)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000), measured("ring", 2, 1900),
                                     measured("tree", 2, 1901), measured("broken", 2, 1902),
                                     measured("stopped", 2, 1903)};
    struct ls_comparison comparison = of(runs, 5);
    comparison.basis = LS_BASIS_BITS;
    comparison.rounding_spread = comparison.rounding_spread_first_ten = NAN;
    for (size_t i = 0; i < 5; i++) {
        runs[i].loss_deviation_first_ten = runs[i].loss_deviation = 0;
        runs[i].same_bits = i == 4 ? -1 : i != 3;
    }
    runs[3].parameter_deviation = 1e-9; // which rounding would explain
    ck_assert(ls_verdict_is_rounding(&comparison, &runs[1]));
    ck_assert(!ls_verdict_is_rounding(&comparison, &runs[3]));
    ck_assert(verdict_has(&comparison, "ring and tree have the bits of one device: the losses of "
                                       "all steps, and all parameters at the end."));
    ck_assert(verdict_has(&comparison, "broken does not have the bits of one device, as it has to: "
                                       "losses differ by 0 in the first ten steps and 0 over all, "
                                       "parameters by 1.0e-09."));
    ck_assert(!verdict_has(&comparison, "stopped has"));
    ck_assert(!verdict_has(&comparison, "rounding"));
}

TEST(what_no_single_device_computes_is_not_judged)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000), measured("ring", 2, 1900)};
    struct ls_comparison comparison = of(runs, 2);
    comparison.basis = LS_BASIS_MIXED;
    comparison.rounding_spread = comparison.rounding_spread_first_ten = NAN;
    runs[1].loss_deviation = runs[1].loss_deviation_first_ten = NAN;
    ck_assert(verdict_has(&comparison, "ring was not compared with one device"));
    ck_assert(!verdict_has(&comparison, "as correct as"));
}

TEST(several_are_equally_correct)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000), measured("ring", 2, 1900),
                                     measured("tree", 2, 1800), measured("direct", 2, 1700)};
    const struct ls_comparison comparison = of(runs, 4);
    ck_assert(verdict_has(&comparison,
                          "ring, tree and direct are equally correct, and as correct as "
                          "one device"));
}

TEST(another_batch_is_not_compared)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000), measured("ring", 2, 1900)};
    runs[1].global_batch = 64;
    runs[1].loss_deviation = runs[1].loss_deviation_first_ten = NAN;
    const struct ls_comparison comparison = of(runs, 2);
    ck_assert(verdict_has(&comparison, "ring had another global batch than the reference"));
    ck_assert(!verdict_has(&comparison, "correct"));
}

TEST(who_reached_the_target_first_is_named)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000), measured("ring", 2, 1900)};
    struct ls_comparison comparison = of(runs, 2);
    comparison.target_metric = "val_accuracy";
    comparison.target_value = 0.88;
    ck_assert(verdict_has(&comparison, "None reached val_accuracy 0.88."));
    runs[0].target_seconds = 20;
    runs[1].target_seconds = 11.5;
    runs[1].target_examples = 60000;
    ck_assert(verdict_has(&comparison, "ring was the first at val_accuracy 0.88: after 11.5 s of "
                                       "training and 60,000 examples."));
}

TEST(what_is_alike_shares_a_sentence)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000), measured("ring", 2, 1200),
                                     measured("tree", 2, 1100), measured("direct", 2, 1000)};
    struct ls_comparison comparison = of(runs, 4);
    runs[0].cores = runs[0].threads = 2;
    runs[0].times.communication = runs[0].times.exposed_communication = 0;
    runs[2].times.compute = 8e-3;
    runs[3].times.compute = 3e-3;
    runs[3].times.exposed_communication = runs[3].times.communication = 6e-3;
    ck_assert(verdict_has(
        &comparison,
        "On the same 2 cores, 2 replicas of 1 thread against one-device with one "
        "of 2: ring 1.20, tree 1.10 times as fast; no difference was measured for direct."));
    ck_assert(
        verdict_has(&comparison, "one-device is compute-bound: kernels take 90 % of a step."));
    ck_assert(verdict_has(&comparison,
                          "ring and tree are compute-bound: kernels take 80 to 90 % of a step; "
                          "communication hides under backward (0.20 of 2.00 ms show)."));
    ck_assert(verdict_has(&comparison, "direct is bound by communication: it waits 60 % of a step "
                                       "for it or for other replicas; all communication (6.00 of "
                                       "6.00 ms) is exposed"));
}

TEST(what_did_not_run_says_why)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000), measured("nccl", 2, NAN),
                                     measured("mine", 2, NAN)};
    runs[1].status = LS_COMPARED_UNAVAILABLE;
    runs[1].reason = (char *)"no CUDA driver on this machine";
    runs[2].status = LS_COMPARED_FAILED;
    runs[2].reason = (char *)"crashed";
    runs[1].loss_deviation = runs[2].loss_deviation = NAN;
    runs[1].loss_deviation_first_ten = runs[2].loss_deviation_first_ten = NAN;
    const struct ls_comparison comparison = of(runs, 3);
    ck_assert(verdict_has(&comparison, "one-device is the only one that was measured"));
    ck_assert(verdict_has(&comparison, "nccl could not run here: no CUDA driver on this machine."));
    ck_assert(verdict_has(&comparison, "mine failed: crashed."));
}

TEST(unequal_replicas_are_said)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000), measured("ring", 2, 1900)};
    runs[1].replicas_equal = 0;
    const struct ls_comparison comparison = of(runs, 2);
    ck_assert(verdict_has(&comparison, "ring ended with replicas that are not equal."));
    ck_assert(!suggestions_have(&comparison, "--strategy=ring"));
}

TEST(noise_is_advised_against)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000), measured("ring", 2, 1900)};
    runs[1].rate_low = 1500;
    const struct ls_comparison comparison = of(runs, 2);
    ck_assert(suggestions_have(&comparison, "ring was measured with much noise"));
}

TEST(without_runs_there_is_little_to_say)
{
    struct ls_comparison comparison = of(NULL, 0);
    struct ls_sentences sentences = {0};
    comparison.reference = LS_COMPARISON_NONE;
    ck_assert_int_eq(ls_verdict(&comparison, &sentences), LS_OK);
    ck_assert_uint_eq(sentences.count, 0);
    ls_sentences_finish(&sentences);
}

// ---- JSON and table ----

TEST(json_has_null_for_what_is_not_known)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000),
                                     measured("ring", 2, INFINITY)};
    struct ls_comparison comparison = of(runs, 2);
    comparison.rounding_spread = NAN;
    json_t *root = NULL;
    ck_assert_int_eq(ls_comparison_json(&comparison, &root), LS_OK);
    const json_t *run = json_array_get(json_object_get(root, "runs"), 1);
    ck_assert(json_is_null(json_object_get(run, "examples_per_second")));
    ck_assert(json_is_null(json_object_get(run, "val_accuracy")));
    ck_assert(json_is_null(json_object_get(run, "report")));
    ck_assert(json_is_null(json_object_get(root, "rounding_spread")));
    ck_assert(json_is_null(json_object_get(root, "target")));
    ck_assert_int_eq(json_integer_value(json_object_get(root, "reference")), 0);
    json_decref(root);
}

TEST(json_compares_every_pair_that_was_named)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000), measured("ring", 2, 1500),
                                     measured("tree", 2, 1490), measured("direct", 2, 1200),
                                     measured("nccl", 2, NAN)};
    runs[4].status = LS_COMPARED_UNAVAILABLE;
    struct ls_comparison comparison = of(runs, 5);
    for (int extra = 0; extra <= 1; extra++) {
        json_t *root = NULL, *row;
        size_t i;
        comparison.reference_is_extra = extra;
        ck_assert_int_eq(ls_comparison_measure(&comparison), LS_OK);
        ck_assert_uint_eq(comparison.difference_count, 6);
        ck_assert_int_eq(ls_comparison_json(&comparison, &root), LS_OK);
        const json_t *list = json_object_get(root, "comparisons");
        ck_assert_uint_eq(json_array_size(list), extra ? 3 : 6);
        json_array_foreach(list, i, row)
        {
            const double ratio = json_number_value(json_object_get(row, "ratio"));
            const double low = json_number_value(json_object_get(row, "low"));
            const double high = json_number_value(json_object_get(row, "high"));
            const bool different = json_is_true(json_object_get(row, "different"));
            const double p = json_number_value(json_object_get(row, "p"));
            ck_assert(low <= ratio + 1e-9 && ratio <= high + 1e-9);
            ck_assert_int_eq(different, p <= 0.01);
            ck_assert_int_eq(!different, json_is_integer(json_object_get(row, "needed_steps")));
        }
        row = json_array_get(list, extra ? 0 : 3);
        ck_assert_str_eq(json_string_value(json_object_get(row, "a")), "ring");
        ck_assert_str_eq(json_string_value(json_object_get(row, "b")), "tree");
        ck_assert(json_is_false(json_object_get(row, "different")));
        ck_assert_double_eq_tol(json_number_value(json_object_get(row, "ratio")), 1500.0 / 1490,
                                1e-3);
        json_decref(root);
    }
    free(comparison.differences);
}

TEST(a_table_says_what_was_not_reached_and_what_was_not_recorded)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000),
                                     measured("ring+powersgd", 2, 1900)};
    struct ls_comparison comparison = of(runs, 2);
    comparison.network = "internet";
    comparison.goal_loss = comparison.compute_scale = comparison.compute_seconds = NAN;
    comparison.steps = 100;
    for (size_t i = 0; i < 2; i++) {
        takes_there(&runs[i], 1, 0);
        runs[i].status = LS_COMPARED_INTERRUPTED;
        runs[i].elsewhere.recorded_steps = 100;
    }
    char *text = table_of(&comparison);
    ck_assert(!strstr(text, "never") && !strstr(text, "nan") && !strstr(text, "were recorded"));
    free(text);
    runs[1].status = LS_COMPARED_DONE;
    runs[1].elsewhere.recorded_steps = 80;
    runs[1].elsewhere.unfiltered_steps = 50;
    runs[1].elsewhere.unfiltered_seconds = 2;
    text = table_of(&comparison);
    ck_assert_ptr_nonnull(strstr(text, "never\n"));
    ck_assert_ptr_nonnull(strstr(text,
                                 "\nOf ring+powersgd, the first 50 steps are not filtered and "
                                 "take 2 s each.\nOf ring+powersgd, the first 80 of 100 "
                                 "steps were recorded.\n"));
    free(text);
}

TEST(a_table_has_a_row_for_every_run)
{
    struct ls_compared_run runs[] = {measured("one-device", 1, 1000), measured("ring", 2, 1900),
                                     measured("nccl", 2, NAN)};
    runs[2].status = LS_COMPARED_UNAVAILABLE;
    runs[2].reason = (char *)"/plugins/collective-nccl.so cannot run here: no driver";
    const struct ls_comparison comparison = of(runs, 3);
    char *text = table_of(&comparison);
    ck_assert_ptr_nonnull(strstr(text, "one-device (reference)"));
    ck_assert_ptr_nonnull(strstr(text, "\nring "));
    ck_assert_ptr_nonnull(strstr(text, "not available: no driver\n"));
    ck_assert_ptr_nonnull(strstr(text, "rounding spread"));
    ck_assert_ptr_nonnull(strstr(text, "\nVerdict\n"));
    free(text);
}
