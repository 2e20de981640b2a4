// SPDX-License-Identifier: Apache-2.0
// The timeline of ls_fit: each fit its own, steps counted from 1, refused before any work.
#include "tests/core/train/support.h"
#include "tests/support/suite.h"

#include <jansson.h>
#include <stdio.h>

static struct ls_run *run;
static struct ls_data *train;
static char path[64];

static void set_up(void)
{
    forget_errors();
    run = run_of("ring", 2);
    train = data_of(DATA, "train");
    snprintf(path, sizeof(path), "/tmp/lockstep-timeline-XXXXXX");
    const int file = mkstemp(path);
    ck_assert_int_ge(file, 0);
    close(file);
}

static void tear_down(void)
{
    unlink(path);
    ls_data_close(train);
    ls_run_close(run);
}

// The file's facts and how many of its slices have `name`.
static int64_t read_fact(const char *fact, const char *name, uint32_t *count)
{
    json_t *content = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_ptr_nonnull(content);
    size_t i;
    json_t *event;
    *count = 0;
    json_array_foreach(json_object_get(content, "traceEvents"), i, event)
    {
        const char *own = json_string_value(json_object_get(event, "name"));
        *count += strcmp(own, name) == 0;
    }
    json_t *value = json_object_get(json_object_get(content, "otherData"), fact);
    ck_assert(json_is_integer(value));
    const int64_t number = json_integer_value(value);
    json_decref(content);
    return number;
}

TEST(every_fit_has_a_timeline_of_its_own_whose_steps_count_from_one)
{
    struct ls_model *model = model_of(run, "sgd");
    const struct ls_fit_options plain = {.batch = 10};
    struct ls_fit_options options = {.batch = 10, .timeline = path};
    uint32_t count;
    for (int i = 0; i < 2; i++) {
        OK(ls_fit(model, train, &options));
        ck_assert_int_eq(read_fact("last_step", "step 1", &count), 5);
        ck_assert_uint_eq(count, 2); // one a rank
        ck_assert_int_eq(read_fact("steps", "step 6", &count), 5);
        ck_assert_uint_eq(count, 0);
        OK(ls_fit(model, train, &plain));
    }
    options.timeline_first = 2;
    options.timeline_last = 3;
    OK(ls_fit(model, train, &options));
    ck_assert_int_eq(read_fact("first_step", "step 2", &count), 2);
    ck_assert_uint_eq(count, 2);
    ck_assert_int_eq(read_fact("last_step", "step 4", &count), 3);
    ck_assert_uint_eq(count, 0);
    options.timeline_first = 0; // from the first
    OK(ls_fit(model, train, &options));
    ck_assert_int_eq(read_fact("first_step", "step 1", &count), 1);
    ck_assert_uint_eq(count, 2);
    ls_model_close(model);
}

TEST(what_cannot_be_is_refused_before_any_step)
{
    struct ls_model *model = model_of(run, "sgd");
    struct ls_fit_options options = {.batch = 10, .timeline = "/tmp/no-such-folder/t.json"};
    size_t count;
    expect_error(ls_fit(model, train, &options), LS_BAD_INPUT, "--timeline");
    options.timeline = path;
    options.timeline_first = 5;
    options.timeline_last = 4;
    expect_error(ls_fit(model, train, &options), LS_USAGE, "--timeline-steps");
    ls_fit_losses(model, &count);
    ck_assert_uint_eq(count, 0);
    ls_model_close(model);
}

TEST_FIXTURE(set_up, tear_down);
TEST_SECONDS(120);
