// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules: what they are called, what they are told, what they answer.
#include "core/optimizer/rate_schedule.h"

#include "core/base/log.h"
#include "core/base/options.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SCOPE "--learning-rate-schedule"
#define PI 3.14159265358979323846

#define INITIAL                                                                                   \
    {                                                                                             \
        "initial_learning_rate", "number", NULL, "rate at step 0; default: that of the optimizer" \
    }
#define END_OF_OPTIONS         \
    {                          \
        NULL, NULL, NULL, NULL \
    }

static const struct ls_plugin_option rate_options[] = {
    INITIAL,
    {"decay_steps", "number", NULL, "steps after which the rate has been decayed once"},
    {"decay_rate", "number", NULL, "how much it is decayed"},
    {"staircase", "boolean", "off", "decays only after whole decay_steps"},
    END_OF_OPTIONS,
};
static const struct ls_plugin_option piecewise_options[] = {
    {"boundaries", "text", NULL, "steps up to which each value holds, such as 100:200"},
    {"values", "text", NULL, "rates, one more than boundaries, such as 0.1:0.01:0.001"},
    END_OF_OPTIONS,
};
static const struct ls_plugin_option polynomial_options[] = {
    INITIAL,
    {"decay_steps", "number", NULL, "steps until the end is reached"},
    {"end_learning_rate", "number", "0.0001", "rate at the end"},
    {"power", "number", "1", "of the polynomial; 1: a line"},
    {"cycle", "boolean", "off", "begins again beyond decay_steps, with more of them"},
    END_OF_OPTIONS,
};
static const struct ls_plugin_option cosine_options[] = {
    INITIAL,
    {"decay_steps", "number", NULL, "steps until the end is reached, after those of the warm-up"},
    {"alpha", "number", "0", "share of the rate that is left at the end"},
    {"warmup_target", "number", NULL, "rate that the warm-up reaches; without it there is none"},
    {"warmup_steps", "number", "0", "steps of the warm-up, from initial_learning_rate"},
    END_OF_OPTIONS,
};
static const struct ls_plugin_option restarts_options[] = {
    INITIAL,
    {"first_decay_steps", "number", NULL, "steps until the first restart"},
    {"t_mul", "number", "2", "each period is so many times as long as the one before"},
    {"m_mul", "number", "1", "each period begins with so many times the rate of the one before"},
    {"alpha", "number", "0", "share of the rate that is left at the end of a period"},
    END_OF_OPTIONS,
};

static const struct {
    const char *name;
    enum ls_rate_kind kind;
    const struct ls_plugin_option *options;
} schedules[] = {
    {"exponential_decay", LS_RATE_EXPONENTIAL, rate_options},
    {"inverse_time_decay", LS_RATE_INVERSE_TIME, rate_options},
    {"piecewise_constant_decay", LS_RATE_PIECEWISE, piecewise_options},
    {"polynomial_decay", LS_RATE_POLYNOMIAL, polynomial_options},
    {"cosine_decay", LS_RATE_COSINE, cosine_options},
    {"cosine_decay_restarts", LS_RATE_RESTARTS, restarts_options},
    {NULL, LS_RATE_CONSTANT, NULL},
};

// ---- Reading ----

static enum ls_status find(const char *name, size_t *out)
{
    const char *names[sizeof(schedules) / sizeof(schedules[0])] = {NULL};
    char all[256] = "";
    for (size_t i = 0; schedules[i].name; i++) {
        names[i] = schedules[i].name;
        if (strcmp(names[i], name) == 0) {
            *out = i;
            return LS_OK;
        }
        const size_t used = strlen(all);
        snprintf(all + used, sizeof(all) - used, "%s%s", used ? ", " : "", names[i]);
    }
    const char *nearest = ls_nearest(name, names);
    ls_error(SCOPE, "there is no schedule '%s'; %s%s%s: %s", name, nearest ? "did you mean '" : "",
             nearest ? nearest : "", nearest ? "'? Available" : "available", all);
    return LS_USAGE;
}

// What a schedule is read from; `status` keeps the first failure.
struct reader {
    const struct ls_spec *spec;
    const struct ls_plugin_option *options;
    enum ls_status status;
};

// `missing` where the option is not given and has no default; NaN: it must be given.
static double number(struct reader *reader, const char *name, double missing, double least)
{
    const char *text = ls_spec_get(reader->spec, name);
    double value = missing;
    if (!text)
        text = ls_option_find(reader->options, name)->default_value;
    if (text)
        (void)!ls_parse_number(text, &value);
    if (reader->status || (value >= least && isfinite((float)value)))
        return value;
    if (isnan(value))
        ls_error(SCOPE, "%s needs %s=", reader->spec->name, name);
    else
        ls_error(SCOPE, "%s=%g: expected a finite number of at least %g", name, value, least);
    reader->status = LS_USAGE;
    return value;
}

static double above_zero(struct reader *reader, const char *name)
{
    const double value = number(reader, name, (double)NAN, 0);
    if (!reader->status && !(value > 0)) {
        ls_error(SCOPE, "%s=%g: expected a number above 0", name, value);
        reader->status = LS_USAGE;
    }
    return value;
}

static bool boolean(const struct reader *reader, const char *name)
{
    const char *text = ls_spec_get(reader->spec, name);
    bool value = false;
    if (text)
        (void)!ls_parse_boolean(text, &value);
    return value;
}

// "0.1:0.01:0.001". How many; 0: refused.
static uint32_t list(struct reader *reader, const char *name, double *out)
{
    const char *text = ls_spec_get(reader->spec, name);
    uint32_t count = 0;
    for (const char *at = text; at && count < LS_RATE_VALUES; at++) {
        char word[64];
        const size_t length = strcspn(at, ":");
        snprintf(word, sizeof(word), "%.*s", (int)(length < 63 ? length : 63), at);
        if (!ls_parse_number(word, &out[count]) || !(out[count] >= 0))
            break;
        count++;
        at += length;
        if (!*at)
            return count;
    }
    ls_error(SCOPE,
             "%s=%s: expected at most %d numbers of at least 0 with colons between them, such as "
             "100:200",
             name, text ? text : "", LS_RATE_VALUES);
    reader->status = LS_USAGE;
    return 0;
}

static void read_piecewise(struct reader *reader, struct ls_rate_schedule *out)
{
    const uint32_t boundaries = list(reader, "boundaries", out->boundaries);
    if (!reader->status)
        out->count = list(reader, "values", out->values);
    for (uint32_t i = 1; !reader->status && i < boundaries; i++)
        if (out->boundaries[i] <= out->boundaries[i - 1]) {
            ls_error(SCOPE, "boundaries must increase, but %g follows %g", out->boundaries[i],
                     out->boundaries[i - 1]);
            reader->status = LS_USAGE;
        }
    if (!reader->status && out->count != boundaries + 1) {
        ls_error(SCOPE, "there are %u boundaries and %u values; expected one value more",
                 boundaries, out->count);
        reader->status = LS_USAGE;
    }
}

static void read_options(struct reader *reader, double rate, struct ls_rate_schedule *out)
{
    if (out->kind == LS_RATE_PIECEWISE) {
        read_piecewise(reader, out);
        return;
    }
    const bool restarts = out->kind == LS_RATE_RESTARTS;
    out->initial = number(reader, "initial_learning_rate", rate, 0);
    out->decay_steps = above_zero(reader, restarts ? "first_decay_steps" : "decay_steps");
    if (out->kind == LS_RATE_EXPONENTIAL || out->kind == LS_RATE_INVERSE_TIME) {
        out->decay_rate = number(reader, "decay_rate", (double)NAN, 0);
        out->staircase = boolean(reader, "staircase");
    } else if (out->kind == LS_RATE_POLYNOMIAL) {
        out->end = number(reader, "end_learning_rate", 0, 0);
        out->power = number(reader, "power", 1, 0);
        out->cycle = boolean(reader, "cycle");
    } else {
        out->alpha = number(reader, "alpha", 0, 0);
    }
    if (restarts) {
        out->t_mul = number(reader, "t_mul", 2, 1);
        out->m_mul = number(reader, "m_mul", 1, 0);
    }
    if (out->kind == LS_RATE_COSINE && ls_spec_get(reader->spec, "warmup_target")) {
        out->warms_up = true;
        out->warmup_target = number(reader, "warmup_target", 0, 0);
        out->warmup_steps = number(reader, "warmup_steps", 0, 0);
    } else if (out->kind == LS_RATE_COSINE && number(reader, "warmup_steps", 0, 0) > 0) {
        ls_warn(SCOPE, "warmup_steps=%s changes nothing without warmup_target=",
                ls_spec_get(reader->spec, "warmup_steps"));
    }
}

enum ls_status ls_rate_schedule_parse(const char *text, double rate, struct ls_rate_schedule *out)
{
    struct ls_spec spec = {0};
    struct ls_rate_schedule schedule = {0};
    size_t index = 0;
    enum ls_status status = ls_spec_parse(SCOPE, text, &spec);
    if (!status)
        status = find(spec.name, &index);
    if (!status)
        status = ls_spec_check(SCOPE, &spec, schedules[index].options);
    if (!status) {
        struct reader reader = {&spec, schedules[index].options, LS_OK};
        schedule.kind = schedules[index].kind;
        schedule.name = schedules[index].name;
        read_options(&reader, rate, &schedule);
        status = reader.status;
    }
    if (!status)
        *out = schedule;
    ls_spec_finish(&spec);
    return status;
}

// ---- Rates ----

static double piecewise(const struct ls_rate_schedule *s, double step)
{
    uint32_t i = 0;
    while (i + 1 < s->count && step > s->boundaries[i])
        i++;
    return s->values[i];
}

static double polynomial(const struct ls_rate_schedule *s, double step)
{
    double steps = s->decay_steps;
    if (s->cycle)
        steps *= step > 0 ? ceil(step / steps) : 1;
    else if (step > steps)
        step = steps;
    return (s->initial - s->end) * pow(1 - step / steps, s->power) + s->end;
}

static double cosine(const struct ls_rate_schedule *s, double step)
{
    double from = s->initial;
    if (s->warms_up && step < s->warmup_steps)
        return (s->warmup_target - s->initial) * step / s->warmup_steps + s->initial;
    if (s->warms_up) {
        from = s->warmup_target;
        step -= s->warmup_steps;
    }
    if (step > s->decay_steps)
        step = s->decay_steps;
    return from * ((1 - s->alpha) * 0.5 * (1 + cos(PI * step / s->decay_steps)) + s->alpha);
}

// In float32, as in Keras: at a restart the logarithms decide, by their rounding.
static double restarts(const struct ls_rate_schedule *s, double step)
{
    const float t_mul = (float)s->t_mul;
    float done = (float)step / (float)s->decay_steps, periods;
    if (s->t_mul <= 1) {
        periods = floorf(done);
        done -= periods;
    } else {
        periods = floorf(logf(1.0f - done * (1.0f - t_mul)) / logf(t_mul));
        const float length = powf(t_mul, periods);
        done = (done - (1.0f - length) / (1.0f - t_mul)) / length;
    }
    const double largest = pow(s->m_mul, (double)periods);
    return s->initial * ((1 - s->alpha) * 0.5 * largest * (1 + cos(PI * (double)done)) + s->alpha);
}

double ls_rate_at(const struct ls_rate_schedule *schedule, uint64_t step)
{
    const double at = (double)step, periods = at / schedule->decay_steps;
    const double p = schedule->staircase ? floor(periods) : periods;
    switch (schedule->kind) {
    case LS_RATE_EXPONENTIAL: return schedule->initial * pow(schedule->decay_rate, p);
    case LS_RATE_INVERSE_TIME: return schedule->initial / (1 + schedule->decay_rate * p);
    case LS_RATE_PIECEWISE: return piecewise(schedule, at);
    case LS_RATE_POLYNOMIAL: return polynomial(schedule, at);
    case LS_RATE_COSINE: return cosine(schedule, at);
    case LS_RATE_RESTARTS: return restarts(schedule, at);
    case LS_RATE_CONSTANT: break;
    }
    return schedule->initial;
}
