// SPDX-License-Identifier: Apache-2.0
// Optimizers by name: Keras's defaults, what is refused and in which words, and learning-rate scaling.
#include "core/base/log.h"
#include "core/plugin/plugin.h"
#include "core/base/options.h"
#include "core/optimizer/optimizer.h"
#include "tests/support/suite.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static unsigned errors;
static char message[512];

static void keep(void *context, uint32_t level, const char *line)
{
    (void)context;
    errors += level == LS_LOG_ERROR;
    snprintf(message, sizeof(message), "%s", line);
}

static void set_up(void)
{
    errors = 0;
    message[0] = '\0';
    ls_log_set_writer(keep, NULL);
}

static struct ls_optimizer parsed(const char *text)
{
    struct ls_optimizer optimizer;
    ck_assert_int_eq(ls_optimizer_parse(text, &optimizer), LS_OK);
    return optimizer;
}

// One line that has all these words; the result is not touched.
static void refused(const char *text, const char *one, const char *other)
{
    struct ls_optimizer optimizer = {.state_count = 77};
    set_up();
    ck_assert_int_eq(ls_optimizer_parse(text, &optimizer), LS_USAGE);
    ck_assert_uint_eq(optimizer.state_count, 77);
    ck_assert_uint_eq(errors, 1);
    ck_assert_msg(strstr(message, "--optimizer: ") != NULL, "%s: %s", text, message);
    ck_assert_msg(strstr(message, one) != NULL, "%s: %s", text, message);
    ck_assert_msg(strstr(message, other) != NULL, "%s: %s", text, message);
}

TEST(defaults_are_those_of_keras)
{
    const struct ls_optimizer adam = parsed("adam"), sgd = parsed("sgd");
    ck_assert_str_eq(adam.name, "adam");
    ck_assert_uint_eq(adam.op, LS_OP_ADAM_UPDATE);
    ck_assert_uint_eq(adam.state_count, 2);
    ck_assert_uint_eq(adam.option_count, 3);
    ck_assert_str_eq(adam.options[1].name, "beta_2");
    ck_assert_double_eq(adam.options[1].value, 0.999);
    ck_assert_uint_eq(sgd.option_count, 2);
    ck_assert_double_eq(adam.learning_rate, 0.001);
    ck_assert_float_eq(adam.attributes.beta1, 0.9f);
    ck_assert_float_eq(adam.attributes.beta2, 0.999f);
    ck_assert_float_eq(adam.attributes.epsilon, 1e-7f);
    ck_assert_str_eq(sgd.name, "sgd");
    ck_assert_uint_eq(sgd.op, LS_OP_SGD_UPDATE);
    ck_assert_uint_eq(sgd.state_count, 0);
    ck_assert_double_eq(sgd.learning_rate, 0.01);
    ck_assert_float_eq(sgd.attributes.momentum, 0);
    ck_assert_uint_eq(sgd.attributes.nesterov, 0);
}

TEST(every_option_is_read)
{
    const struct ls_optimizer adam =
        parsed("adam:epsilon=1e-3,beta_2=0.5,beta_1=0,learning_rate=2");
    ck_assert_float_eq(adam.attributes.beta1, 0);
    ck_assert_float_eq(adam.attributes.beta2, 0.5f);
    ck_assert_float_eq(adam.attributes.epsilon, 1e-3f);
    ck_assert_double_eq(adam.learning_rate, 2);
    const struct ls_optimizer sgd = parsed("sgd:learning_rate=0,momentum=0.9,nesterov=on");
    ck_assert_float_eq(sgd.attributes.momentum, 0.9f);
    ck_assert_uint_eq(sgd.attributes.nesterov, 1);
    ck_assert_uint_eq(sgd.state_count, 1);
    ck_assert_double_eq(sgd.learning_rate, 0);
}

TEST(unknown_names_are_refused_with_the_nearest)
{
    refused("adamm", "did you mean 'adam'", "adamm");
    refused("ftrl", "ftrl", "sgd, adam, adamw, rmsprop");
    refused("adam:learning_rat=1", "learning_rate", "learning_rat");
    refused("sgd:beta_1=0.9", "beta_1", "sgd");
    refused("", "", "");
}

TEST(values_out_of_range_are_refused)
{
    refused("sgd:momentum=1", "momentum=1", "below 1");
    refused("sgd:momentum=-0.1", "momentum=-0.1", "from 0");
    refused("sgd:momentum=nine", "momentum", "nine");
    refused("sgd:nesterov=maybe", "nesterov", "maybe");
    refused("adam:beta_1=1", "beta_1=1", "below 1");
    refused("adam:beta_2=1.5", "beta_2=1.5", "below 1");
    refused("adam:epsilon=-1", "epsilon=-1", "at least 0");
    refused("adam:learning_rate=-1", "learning_rate=-1", "at least 0");
    refused("adam:learning_rate=nan", "learning_rate", "nan");
    refused("adam:learning_rate=inf", "learning_rate", "inf");
    refused("adam:learning_rate=1,learning_rate=2", "learning_rate", "twice");
}

// Devices compute in float32, where these are 1 and infinity: the update would divide by zero.
TEST(values_that_round_out_of_range_are_refused)
{
    refused("adam:beta_1=0.999999999", "beta_1=1", "below 1");
    refused("adam:beta_2=0.9999999999", "beta_2=1", "below 1");
    refused("sgd:momentum=0.9999999999", "momentum=1", "below 1");
    refused("sgd:learning_rate=1e39", "learning_rate", "finite");
    refused("adam:epsilon=1e300", "epsilon", "finite");
}

TEST(every_default_of_the_tables_is_accepted)
{
    unsigned count = 0;
    for (const struct ls_optimizer_kind *kind = ls_optimizer_kinds(); kind->name; kind++, count++) {
        ck_assert_ptr_nonnull(kind->summary);
        for (const struct ls_plugin_option *option = kind->options; option->name; option++) {
            char text[128];
            ck_assert_ptr_nonnull(option->help);
            snprintf(text, sizeof(text), "%s:%s=%s", kind->name, option->name,
                     option->default_value);
            const struct ls_optimizer a = parsed(text), b = parsed(kind->name);
            ck_assert_mem_eq(&a.attributes, &b.attributes, sizeof(a.attributes));
            ck_assert_double_eq(a.learning_rate, b.learning_rate);
        }
    }
    ck_assert_uint_eq(count, 9);
}

// The words of a warning; "": there is none.
static void warned(bool schedule, const char *text, const char *words)
{
    struct ls_optimizer optimizer;
    struct ls_rate_schedule rates;
    set_up();
    ck_assert_int_eq(schedule ? ls_rate_schedule_parse(text, 0.1, &rates)
                              : ls_optimizer_parse(text, &optimizer),
                     LS_OK);
    ck_assert_uint_eq(errors, 0);
    ck_assert_msg(*words ? strstr(message, words) != NULL : !*message, "%s: %s", text, message);
}

TEST(options_that_change_nothing_are_said)
{
    warned(false, "adam:ema_momentum=0.5", "ema_momentum= changes nothing without use_ema=on");
    warned(false, "sgd:ema_overwrite_frequency=3,use_ema=off", "ema_overwrite_frequency= changes");
    warned(false, "adam:ema_momentum=0.5,use_ema=on", "");
    warned(true, "cosine_decay:decay_steps=9,warmup_steps=3",
           "warmup_steps=3 changes nothing without warmup_target=");
    warned(true, "cosine_decay:decay_steps=9,warmup_steps=0", "");
    warned(true, "cosine_decay:decay_steps=9,warmup_steps=3,warmup_target=1", "");
}

TEST(the_learning_rate_scales_with_the_replicas)
{
    double scale = 0;
    ck_assert_int_eq(ls_learning_rate_scale("none", 9, &scale), LS_OK);
    ck_assert_double_eq(scale, 1);
    ck_assert_int_eq(ls_learning_rate_scale("sqrt", 9, &scale), LS_OK);
    ck_assert_double_eq(scale, 3);
    ck_assert_int_eq(ls_learning_rate_scale("linear", 9, &scale), LS_OK);
    ck_assert_double_eq(scale, 9);
    const char *const rules[] = {"none", "sqrt", "linear"};
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(ls_learning_rate_scale(rules[i], 1, &scale), LS_OK);
        ck_assert_double_eq(scale, 1);
    }
    scale = 5;
    ck_assert_int_eq(ls_learning_rate_scale("linaer", 2, &scale), LS_USAGE);
    ck_assert_ptr_nonnull(strstr(message, "did you mean linear"));
    ck_assert_int_eq(ls_learning_rate_scale("cubic", 2, &scale), LS_USAGE);
    ck_assert_ptr_nonnull(strstr(message, "none, sqrt, linear"));
    ck_assert_double_eq(scale, 5);
}

TEST_FIXTURE(set_up, NULL);
