// SPDX-License-Identifier: Apache-2.0
// The page of a comparison: its parts, and what it does with what is missing, failed or hostile. A browser looks at it in
// tests/programs/test_compare_page.py.
#include "tools/compare/page.h"

#include "core/base/log.h"
#include "tools/report/chart_scale.h"
#include "tests/support/suite.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64], path[128];
static unsigned errors;

static void keep(void *context, uint32_t level, const char *line)
{
    (void)context;
    (void)level;
    errors += strstr(line, "--html") != NULL;
}

static void set_up(void)
{
    snprintf(folder, sizeof(folder), "/tmp/lockstep-page-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/page.html", folder);
    errors = 0;
    ls_log_set_writer(keep, NULL);
}

static void tear_down(void)
{
    unlink(path);
    ck_assert_int_eq(rmdir(folder), 0); // nothing else was left behind
    ls_log_set_writer(NULL, NULL);
}

// The page as text, to be freed. `comparison` is consumed.
static char *page_of(json_t *comparison)
{
    ck_assert_ptr_nonnull(comparison);
    ck_assert_int_eq(ls_compare_page_write(path, comparison), LS_OK);
    json_decref(comparison);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    char *text = NULL;
    size_t bytes = 0;
    ck_assert_int_ge(getdelim(&text, &bytes, '\0', file), 0);
    fclose(file);
    return text;
}

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;
    for (; (text = strstr(text, part)); text += strlen(part))
        count++;
    return count;
}

// A run that is done, with a curve of `steps` points.
static json_t *run_of(const char *strategy, int replicas, double speed, int steps)
{
    json_t *curve = json_array();
    for (int i = 1; i <= steps; i++)
        json_array_append_new(curve,
                              json_pack("{s:i, s:i, s:f, s:f, s:n, s:n, s:n}", "step", i,
                                        "examples", 64 * i, "seconds", i * 64 / speed, "loss",
                                        2.3 / i, "accuracy", "val_loss", "val_accuracy"));
    return json_pack("{s:s, s:i, s:i, s:s, s:n, s:b, s:f, s:f, s:f, s:[f,f,f],"
                     " s:{s:f,s:f,s:f,s:f,s:f,s:f,s:f}, s:i, s:f, s:f, s:b, s:o, s:[{s:i,s:s}]}",
                     "strategy", strategy, "replicas", replicas, "threads", 1, "status", "done",
                     "reason", "synchronous", 1, "examples_per_second", speed,
                     "examples_per_second_low", speed * 0.99, "examples_per_second_high",
                     speed * 1.01, "round_examples_per_second", speed * 0.99, speed, speed * 1.01,
                     "step_seconds", "median", 0.02, "input", 0.001, "compute", 0.015,
                     "communication", 0.004, "exposed_communication", 0.001, "update", 0.002,
                     "other", 0.001, "bytes_per_step_per_rank", 901000, "max_loss_deviation", 1e-6,
                     "max_loss_deviation_first_ten", 0.0, "replicas_equal", 1, "curve", curve,
                     "buckets", "bytes", 901000, "algorithm", "ring");
}

static json_t *pair_of(const char *a, const char *b, double p, int different)
{
    return json_pack("{s:s, s:i, s:s, s:i, s:f, s:b}", "a", a, "a_replicas", 2, "b", b,
                     "b_replicas", 2, "p", p, "different", different);
}

static json_t *comparison_of(json_t *runs)
{
    return json_pack("{s:s, s:s, s:i, s:f, s:f, s:o, s:[s,s], s:[s]}", "model", "cnn", "status",
                     "done", "reference", 0, "rounding_spread", 2e-6, "rounding_spread_first_ten",
                     5e-7, "runs", runs, "verdict", "ring is fastest.", "It hides.", "suggestions",
                     "More.");
}

TEST(bars_say_where_no_difference_was_found)
{
    json_t *comparison = comparison_of(
        json_pack("[o,o,o,o]", run_of("one-device", 1, 24000, 9), run_of("ring", 2, 48000, 9),
                  run_of("tree", 2, 47900, 9), run_of("direct", 2, 40000, 9)));
    json_object_set_new(comparison, "comparisons",
                        json_pack("[o,o,o]", pair_of("ring", "tree", 0.8, 0),
                                  pair_of("ring", "direct", 0.001, 1),
                                  pair_of("tree", "direct", 0.2, 0)));
    json_t *with_reference = pair_of("one-device", "direct", 0.3, 0);
    json_object_set_new(with_reference, "a_replicas", json_integer(1));
    json_object_set_new(comparison, "reference_comparisons", json_pack("[o]", with_reference));
    char *page = page_of(comparison);
    ck_assert_uint_eq(count_of(page, "no significant difference from"), 2);
    const char *direct = strstr(page, "<b>40,000</b>");
    ck_assert(
        direct &&
        strstr(direct, "no significant difference from <span class=\"name\">one-<wbr/>device<"));
    ck_assert_uint_eq(count_of(direct, "\xc3\x97\xc2\xa0reference"), 0); // nor a ratio
    const char *tree = strstr(page, "<b>47,900</b>"),
               *said = strstr(page, "no significant difference from <span class=\"name\">ring<");
    ck_assert(tree && said > tree && said < strstr(page, "<b>40,000</b>"));
    free(page);
}

TEST(the_page_begins_with_the_verdict_and_has_every_part)
{
    json_t *comparison = comparison_of(
        json_pack("[o,o]", run_of("one-device", 1, 24145, 300), run_of("ring", 2, 48000, 300)));
    json_object_set_new(comparison, "scaling",
                        json_pack("[{s:s, s:[{s:i,s:f,s:f,s:f},{s:i,s:f,s:f,s:f}]}]", "strategy",
                                  "ring", "points", "replicas", 1, "examples_per_second", 24000.0,
                                  "low", 23000.0, "high", 25000.0, "replicas", 2,
                                  "examples_per_second", 48000.0, "low", 47000.0, "high", 49000.0));
    char *page = page_of(comparison);
    const char *const parts[] = {"<h1>ring is fastest.</h1>",
                                 "id=\"speed\"",
                                 "id=\"steps\"",
                                 "id=\"curves\"",
                                 "id=\"deviation\"",
                                 "id=\"scaling\"",
                                 "id=\"buckets\"",
                                 "id=\"table\"",
                                 "id=\"method\""};
    const char *from = page;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        from = strstr(from, parts[i]);
        ck_assert_msg(from != NULL, "%s is missing or in another place", parts[i]);
    }
    ck_assert_ptr_nonnull(strstr(page, "<b>24,145</b> examples/s"));
    ck_assert_ptr_nonnull(strstr(page, "901 kB"));
    ck_assert_ptr_nonnull(strstr(page, "<b>20 ms</b> a step"));
    ck_assert_uint_eq(count_of(page, "<svg class=\"plot\""), 3); // the loss twice, and scaling
    ck_assert_uint_eq(count_of(page, "<svg"), count_of(page, "</svg>"));
    ck_assert_ptr_null(strstr(page, "<script"));
    ck_assert_ptr_null(strstr(page, "http://"));
    ck_assert_ptr_null(strstr(page, "https://"));
    free(page);
}

TEST(a_run_that_could_not_run_says_why_wherever_it_is_a_row)
{
    json_t *absent = json_pack("{s:s, s:i, s:s, s:s, s:b, s:n}", "strategy", "nccl", "replicas", 2,
                               "status", "unavailable", "reason", "no CUDA driver", "synchronous",
                               1, "examples_per_second");
    char *page =
        page_of(comparison_of(json_pack("[o,o]", run_of("one-device", 1, 100, 5), absent)));
    // The speeds, the step times and the table; the verdict would name it too.
    ck_assert_uint_eq(count_of(page, "unavailable: no CUDA driver"), 3);
    free(page);
}

TEST(the_page_says_what_a_simulation_was_made_from)
{
    json_t *runs = json_pack("[o,o,o]", run_of("one-device", 1, 24000, 9),
                             run_of("late", 2, 48000, 9), run_of("central-storage", 2, 40000, 9));
    static const char *const simulated[] = {
        "{'recorded_steps': 100, 'step_seconds': 0.1, 'unfiltered_steps': 0}",
        "{'recorded_steps': 80, 'step_seconds': 0.1, 'unfiltered_steps': 50, "
        "'unfiltered_step_seconds': 2.5}",
        "{'recorded_steps': 80, 'step_seconds': null, 'reason': 'no schedule'}"};
    for (size_t i = 0; i < 3; i++) {
        char text[160];
        snprintf(text, sizeof(text), "%s", simulated[i]);
        for (char *quote = text; (quote = strchr(quote, '\''));)
            *quote = '"';
        json_object_set_new(json_array_get(runs, i), "simulated", json_loads(text, 0, NULL));
    }
    json_t *comparison = comparison_of(runs);
    json_object_set_new(comparison, "steps", json_integer(100));
    json_object_set_new(comparison, "simulated",
                        json_pack("{s:s, s:s, s:s}", "network", "internet", "compute",
                                  "compute as measured", "goal", "a loss of 1"));
    char *page = page_of(comparison);
    ck_assert_ptr_nonnull(strstr(page, "late</span>, the first 50 steps are not filtered and take "
                                       "2.5 s each.</p>"));
    ck_assert_ptr_nonnull(
        strstr(page, "late</span>, the first 80 of 100 steps were recorded.</p>"));
    ck_assert_uint_eq(count_of(page, "steps were recorded"), 1);
    ck_assert_uint_eq(count_of(page, "are not filtered"), 1);
    ck_assert_ptr_nonnull(strstr(page, " was not simulated: no schedule.</p>"));
    free(page);
}

TEST(texts_are_escaped_wherever_they_come_from)
{
    const char *hostile = "<script>alert(1)</script>&\"'\x01\n\xe2\x80\xae\xe2\x80\x94";
    json_t *run = run_of(hostile, 1, 100, 5);
    json_t *broken =
        json_pack("{s:s, s:s, s:s}", "strategy", hostile, "status", hostile, "reason", hostile);
    json_object_set_new(run, "buckets",
                        json_pack("[{s:i, s:s}]", "bytes", 10, "algorithm", hostile));
    json_t *comparison = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:{s:s,s:f}, s:i, s:[o,o], s:[s], s:[s], s:f}", "model",
        hostile, "dataset", hostile, "optimizer", hostile, "device", hostile, "hardware", hostile,
        "status", hostile, "target", "metric", hostile, "value", 0.5, "reference", 0, "runs", run,
        broken, "verdict", hostile, "suggestions", hostile, "rounding_spread", 1e-6);
    char *page = page_of(comparison);
    ck_assert_ptr_null(strstr(page, "<script"));
    ck_assert_ptr_null(strstr(page, "\x01"));
    ck_assert_ptr_null(strstr(page, "\xe2\x80\xae")); // it would turn what we say about
    ck_assert_ptr_nonnull(strstr(page, "&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;'"));
    free(page);
}

TEST(nothing_known_is_a_page_too)
{
    static const char *const comparisons[] = {
        "{}",
        "[]",
        "{\"runs\": []}",
        "{\"runs\": [null, 3, \"x\", []], \"reference\": 7, \"scaling\": [null, {\"points\": "
        "[1]}]}",
        "{\"runs\": [{\"curve\": [null, {}, {\"loss\": 1}], \"buckets\": [null, {\"bytes\": -1}],"
        " \"step_seconds\": 4, \"round_examples_per_second\": [\"x\"]}], \"reference\": -1}",
        "{\"verdict\": null, \"suggestions\": \"x\", \"runs\": {\"a\": 1}, \"target\": 3}",
    };
    for (size_t i = 0; i < sizeof(comparisons) / sizeof(comparisons[0]); i++) {
        char *page = page_of(json_loads(comparisons[i], 0, NULL));
        ck_assert_ptr_nonnull(strstr(page, "There is no verdict"));
        ck_assert_ptr_nonnull(strstr(page, "</html>"));
        ck_assert_ptr_null(strstr(page, "nan"));
        ck_assert_ptr_null(strstr(page, "=\"inf"));
        free(page);
    }
}

TEST(a_page_says_when_it_was_made_and_not_where)
{
    char *page = page_of(json_pack("{s:{s:s, s:[s], s:s}}", "made", "date", "2026-11-27T12:40:00Z",
                                   "command_line", "my-program", "host", "my-machine"));
    ck_assert_ptr_nonnull(strstr(page, "<dt>made</dt><dd>2026-11-27T12:40:00Z</dd>"));
    ck_assert_ptr_null(strstr(page, "my-"));
    free(page);
}

TEST(runs_of_one_strategy_are_told_apart_by_their_replicas)
{
    char *page =
        page_of(comparison_of(json_pack("[o,o,o]", run_of("one-device", 1, 100, 5),
                                        run_of("ring", 2, 190, 5), run_of("ring", 4, 350, 5))));
    ck_assert_ptr_nonnull(strstr(page, "ring</span> <small>\xc3\x97\xc2\xa0"
                                       "2</small>"));
    ck_assert_ptr_nonnull(strstr(page, "ring \xc3\x97 4: "));
    ck_assert_ptr_null(strstr(page, "device</span> <small>\xc3\x97"));
    // One colour for both, and other dashes.
    ck_assert_ptr_nonnull(strstr(page, "run1 colour1 dash1"));
    ck_assert_ptr_nonnull(strstr(page, "run2 colour1 dash2"));
    free(page);
}

TEST(a_bucket_plan_that_runs_share_is_shown_once)
{
    json_t *other = run_of("ring", 8, 600, 5);
    json_object_set_new(other, "buckets", json_pack("[{s:i}, {s:i}]", "bytes", 5, "bytes", 6));
    char *page = page_of(
        comparison_of(json_pack("[o,o,o,o]", run_of("one-device", 1, 100, 5),
                                run_of("ring", 2, 190, 5), run_of("ring", 4, 350, 5), other)));
    ck_assert_uint_eq(count_of(page, "<rect class=\"bucket "), 4);
    ck_assert_ptr_nonnull(strstr(page, "2</small><small>, 4</small></div>"));
    free(page);
}

TEST(other_strategies_with_other_counts_are_no_scaling)
{
    json_t *comparison = comparison_of(
        json_pack("[o,o]", run_of("one-device", 1, 100, 5), run_of("ring", 2, 190, 5)));
    json_object_set_new(comparison, "scaling",
                        json_pack("[{s:s, s:[{s:i,s:f}]}, {s:s, s:[{s:i,s:f}]}]", "strategy",
                                  "one-device", "points", "replicas", 1, "examples_per_second",
                                  100.0, "strategy", "ring", "points", "replicas", 2,
                                  "examples_per_second", 190.0));
    char *page = page_of(comparison);
    ck_assert_ptr_null(strstr(page, "id=\"scaling\""));
    free(page);
}

TEST(figures_that_cannot_be_added_are_left_out)
{
    json_t *run = run_of("ring", 2, 1e308, 5);
    json_object_set_new(
        run, "step_seconds",
        json_pack("{s:f, s:f, s:f}", "input", 1e308, "compute", 1.7e308, "update", -1e308));
    json_object_set_new(run, "buckets",
                        json_pack("[{s:f}, {s:f}]", "bytes", 1e-320, "bytes", 1e308));
    char *page =
        page_of(comparison_of(json_pack("[o,o]", run_of("one-device", 1, 1e-320, 5), run)));
    ck_assert_ptr_null(strstr(page, "inf%"));
    ck_assert_ptr_null(strstr(page, "nan"));
    free(page);
}

TEST(a_measure_of_one_point_is_no_curve)
{
    char *page = page_of(comparison_of(json_pack("[o]", run_of("one-device", 1, 100, 1))));
    ck_assert_ptr_null(strstr(page, "id=\"curves\""));
    free(page);
}

TEST(long_curves_are_means_of_neighbours)
{
    char *page = page_of(comparison_of(json_pack("[o]", run_of("one-device", 1, 100, 10000))));
    ck_assert_ptr_nonnull(strstr(page, "A point is the mean of up to 84 steps."));
    ck_assert_uint_lt(strlen(page), 60000);
    free(page);
}

TEST(a_page_that_cannot_be_written_is_told_once)
{
    json_t *comparison = comparison_of(json_array());
    ck_assert_int_eq(ls_compare_page_write("/nonexistent/page.html", comparison), LS_FAILED);
    ck_assert_uint_eq(errors, 1);
    json_decref(comparison);
}

TEST(values_of_axes_are_written_for_people)
{
    static const struct {
        enum ls_chart_unit unit;
        double value;
        const char *text;
    } cases[] = {
        {LS_CHART_NUMBER, 0, "0"},          {LS_CHART_NUMBER, 0.25, "0.25"},
        {LS_CHART_NUMBER, 999, "999"},      {LS_CHART_NUMBER, 1000, "1,000"},
        {LS_CHART_NUMBER, 24145, "24,145"}, {LS_CHART_NUMBER, -1.5e6, "-1.5 M"},
        {LS_CHART_NUMBER, 2e12, "2 T"},     {LS_CHART_NUMBER, 1e20, "1e20"},
        {LS_CHART_PLAIN, 1e-6, "1e-6"},     {LS_CHART_PLAIN, 1.5e10, "1.5e10"},
        {LS_CHART_PLAIN, 1e100, "1e100"},
    };
    char text[48];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        ck_assert_str_eq(ls_chart_value_text(cases[i].unit, cases[i].value, text, sizeof(text)),
                         cases[i].text);
}

TEST_FIXTURE(set_up, tear_down);
