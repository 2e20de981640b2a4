// SPDX-License-Identifier: Apache-2.0
// Cases of the operations over flat ranges: ten steps of each optimizer side by side, the measure and the
// guard.
#include "tools/conformance/device/suite.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 10
#define MAX_STATES 4

static const int64_t lengths[] = {1, 3, 15, 16, 17, 1000, 65537};
#define LENGTH_COUNT (sizeof(lengths) / sizeof(lengths[0]))

struct optimizer {
    const char *name;
    uint32_t op;
    uint32_t states; // outputs: parameter and what the optimizer keeps
    struct ls_op_attributes attributes;
    uint64_t before; // updates that were made before
};

static const struct optimizer optimizers[] = {
    {"sgd_update", LS_OP_SGD_UPDATE, 1, {.momentum = 0}},
    {"average_update", LS_OP_AVERAGE_UPDATE, 1, {.momentum = 0.99f}},
    {"average_update of the last alone", LS_OP_AVERAGE_UPDATE, 1, {.momentum = 0}},
    {"sgd_update momentum", LS_OP_SGD_UPDATE, 2, {.momentum = 0.9f}},
    {"sgd_update nesterov", LS_OP_SGD_UPDATE, 2, {.momentum = 0.8f, .nesterov = 1}},
    {"adam_update", LS_OP_ADAM_UPDATE, 3, {.beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-7f}},
    {"adam_update large epsilon",
     LS_OP_ADAM_UPDATE,
     3,
     {.beta1 = 0.5f, .beta2 = 0.9f, .epsilon = 0.1f}},
#define UPDATE(name_, function_, states_, ...)                               \
    {                                                                        \
        "update " name_, LS_OP_UPDATE, states_,                              \
        {                                                                    \
            .function = LS_UPDATE_##function_, .epsilon = 1e-7f, __VA_ARGS__ \
        }                                                                    \
    }
    UPDATE("sgd decay", SGD, 1, .weight_decay = 0.1f),
    UPDATE("sgd momentum decay", SGD, 2, .weight_decay = 0.1f, .momentum = 0.9f),
    UPDATE("sgd nesterov", SGD, 2, .momentum = 0.8f, .nesterov = 1),
    UPDATE("adam decay", ADAM, 3, .weight_decay = 0.1f, .beta1 = 0.9f, .beta2 = 0.999f),
    UPDATE("amsgrad", AMSGRAD, 4, .beta1 = 0.9f, .beta2 = 0.5f),
    UPDATE("rmsprop", RMSPROP, 2, .beta2 = 0.9f),
    UPDATE("rmsprop momentum", RMSPROP, 3, .beta2 = 0.9f, .momentum = 0.5f),
    UPDATE("rmsprop centered", RMSPROP_CENTERED, 3, .beta2 = 0.9f, .weight_decay = 0.1f),
    UPDATE("rmsprop centered momentum", RMSPROP_CENTERED, 4, .beta2 = 0.9f, .momentum = 0.5f),
    UPDATE("adagrad", ADAGRAD, 2, .weight_decay = 0.1f),
    UPDATE("adadelta", ADADELTA, 3, .beta2 = 0.95f),
    UPDATE("adamax", ADAMAX, 3, .beta1 = 0.9f, .beta2 = 0.999f),
    UPDATE("nadam", NADAM, 3, .beta1 = 0.9f, .beta2 = 0.999f),
    {"update nadam later",
     LS_OP_UPDATE,
     3,
     {.function = LS_UPDATE_NADAM, .beta1 = 0.999f, .beta2 = 0.999f, .epsilon = 1e-7f},
     .before = 1019},
    {"lamb_direction",
     LS_OP_LAMB_DIRECTION,
     4,
     {.beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-6f, .weight_decay = 0.1f}},
    {"ema_update", LS_OP_EMA_UPDATE, 2, {.momentum = 0.99f}},
    {"ema_update overwrites", LS_OP_EMA_UPDATE, 2, {.momentum = 0.9f, .count = 3}},
};

// ---- Ten steps ----

// The same steps on the two sides.
struct race {
    struct ls_device_case c;
    struct ls_device_session sessions[2]; // tested, reference
    float *gradient;
    float *got, *wanted;
    uint32_t states;
};

// Every fifth element is what padding is: all zero, and stays so.
static bool is_padding(int64_t i)
{
    return i % 5 == 4;
}

static void draw_gradient(struct race *race, int64_t length)
{
    for (int64_t i = 0; i < length; i++) {
        const double u = 2 * ls_device_case_random(&race->c) - 1;
        race->gradient[i] = is_padding(i) ? 0 : (float)(i % 7 == 3 ? 1e-6 * u : u);
    }
}

static bool race_open(struct ls_device_suite *suite, struct race *race, int64_t length)
{
    struct ls_device_side *const sides[2] = {suite->tested, suite->reference};
    const size_t bytes = (size_t)length * sizeof(float);
    race->gradient = malloc(bytes);
    race->got = malloc(bytes);
    race->wanted = malloc(bytes);
    if (!race->gradient || !race->got || !race->wanted)
        return ls_device_suite_fail(suite, "no host memory");

    for (int side = 0; side < 2; side++) {
        struct ls_device_request request = race->c.request;
        for (uint32_t i = 0; i < request.input_count + request.output_count; i++)
            request.arguments[i].layout = ls_device_plain_layout(&request.arguments[i]);
        const int32_t status =
            ls_device_session_prepare(&race->sessions[side], suite, sides[side], &request);
        if (status == LS_UNSUPPORTED && side == 0)
            return ls_device_suite_refuse(suite, "", sides[side]->message);
        if (status == LS_UNSUPPORTED)
            return ls_device_suite_fail(suite, "the reference device refuses it: %s",
                                        sides[side]->message);
        if (status || !ls_device_session_allocate(&race->sessions[side]))
            return false;
        for (uint32_t i = 0; i < race->states; i++)
            if (!ls_device_session_write(&race->sessions[side], 1 + i, race->c.values[1 + i]))
                return false;
    }
    return true;
}

static void race_close(struct race *race)
{
    ls_device_session_close(&race->sessions[0]);
    ls_device_session_close(&race->sessions[1]);
    free(race->gradient);
    free(race->got);
    free(race->wanted);
    ls_device_case_finish(&race->c);
}

static bool race_step(struct race *race, int64_t length, const struct ls_step_record *record)
{
    draw_gradient(race, length);
    for (int side = 0; side < 2; side++) {
        struct ls_device_session *session = &race->sessions[side];
        if (!ls_device_session_record(session, record) ||
            !ls_device_session_write(session, 0, race->gradient) ||
            !ls_device_session_launch(session))
            return false;
    }
    return true;
}

// Parameters move by the learning rate; each step may add an error of 1e-5 of that, and a rounding.
static bool race_compare(struct ls_device_suite *suite, struct race *race, int64_t length,
                         uint32_t steps)
{
    for (uint32_t state = 0; state < race->states; state++) {
        if (!ls_device_session_read(&race->sessions[0], 1 + state,
                                    &race->sessions[0].buffers[1 + state], race->got) ||
            !ls_device_session_read(&race->sessions[1], 1 + state,
                                    &race->sessions[1].buffers[1 + state], race->wanted))
            return false;
        for (int64_t i = 0; i < length; i++) {
            const double wanted = (double)race->wanted[i], got = (double)race->got[i];
            const double slack = is_padding(i) ? 0 : steps * (1e-6 * fabs(wanted) + 1e-7);
            if (!(fabs(got - wanted) <= slack))
                return ls_device_suite_fail(
                    suite,
                    "step %u, output %u at (%lld): got %.9g, expected %.9g, tolerance %.2g; %s",
                    steps, state, (long long)i, got, wanted, slack,
                    race->sessions[0].answer.implementation);
        }
    }
    return true;
}

// With skip = 1 not a bit may change.
static bool race_skip(struct ls_device_suite *suite, struct race *race, int64_t length)
{
    const struct ls_step_record record = {
        .step = STEPS + 1, .update = STEPS + 1, .learning_rate = 0.5f, .skip = 1};
    struct ls_device_session *session = &race->sessions[0];

    for (uint32_t state = 0; state < race->states; state++) {
        const struct ls_device_buffer *buffer = &session->buffers[1 + state];
        if (!ls_device_session_read(session, 1 + state, buffer, race->wanted) ||
            !race_step(race, length, &record) ||
            !ls_device_session_read(session, 1 + state, buffer, race->got))
            return false;
        if (memcmp(race->got, race->wanted, (size_t)length * sizeof(float)) != 0)
            return ls_device_suite_fail(suite, "skip = 1 changes output %u", state);
    }
    return true;
}

static void optimizer_case(struct ls_device_suite *suite, const struct optimizer *optimizer,
                           int64_t length)
{
    struct race race = {.states = optimizer->states};
    struct ls_device_case *c = &race.c;

    ls_device_case_start(c, optimizer->op, "%s N=%lld, %d steps", optimizer->name,
                         (long long)length, STEPS);
    c->request.attributes = optimizer->attributes;
    ls_device_case_input(c, LS_DEVICE_PLAIN, LS_DEVICE_DESC(LS_F32, length));
    for (uint32_t i = 0; i < optimizer->states; i++) {
        ls_device_case_output(c, LS_DEVICE_PLAIN, LS_DEVICE_DESC(LS_F32, length),
                              LS_DEVICE_ROUNDED);
        ls_device_case_draw(c, 1 + i, LS_DEVICE_UNIFORM);
        ls_device_case_values(c);
        float *values = c->values[1 + i];
        for (int64_t k = 0; values && k < length; k++)
            values[k] = i > 0 || is_padding(k) ? 0 : values[k]; // the optimizer's own begin at zero
    }
    if (ls_device_suite_begin(suite, c->name)) {
        bool good = race_open(suite, &race, length);
        for (uint32_t step = 1; good && step <= STEPS; step++) {
            // Steps that were skipped count in `step` only: Adam goes by the updates.
            const struct ls_step_record record = {.step = optimizer->before + 100 + step,
                                                  .update = optimizer->before + step,
                                                  .learning_rate = 0.01f / (float)(1 + step % 3)};
            good = race_step(&race, length, &record) && race_compare(suite, &race, length, step);
        }
        if (good)
            race_skip(suite, &race, length);
        snprintf(suite->note, sizeof(suite->note), "%s", race.sessions[0].answer.implementation);
        ls_device_suite_end(suite, c->name, NULL);
    }
    race_close(&race);
}

// ---- Measure ----

static void measure_case(struct ls_device_suite *suite, int64_t length, bool finite)
{
    struct ls_device_case c;
    ls_device_case_start(&c, LS_OP_MEASURE, "measure N=%lld%s", (long long)length,
                         finite ? "" : " with NaN and Inf");
    ls_device_case_input(&c, LS_DEVICE_PLAIN, LS_DEVICE_DESC(LS_F32, length));
    ls_device_case_draw(&c, 0, LS_DEVICE_WIDE);
    ls_device_case_output(&c, LS_DEVICE_PLAIN, LS_DEVICE_DESC(LS_F64, 2), LS_DEVICE_ROUNDED);
    ls_device_case_values(&c);
    float *values = c.values[0];
    if (values && !finite) {
        values[0] = INFINITY;
        values[length / 2] = -INFINITY;
        values[length - 1] = NAN;
    }
    ls_device_case_run(suite, &c);
}

// ---- Clipping, LAMB: with norms that are given ----

// Sets the pairs of measures of argument 1: squares of norms, and how many values were not finite.
static void give_measures(struct ls_device_case *c, int64_t count, double largest)
{
    double *measures = malloc((size_t)count * sizeof(*measures));
    for (int64_t i = 0; measures && i < count; i++)
        measures[i] = i % 2 ? 0 : largest * ls_device_case_random(c);
    c->values[1] = measures; // NULL: the case fails for want of memory
}

static void clip_case(struct ls_device_suite *suite, int64_t length, int64_t pairs, double largest)
{
    struct ls_device_case c;
    ls_device_case_start(&c, LS_OP_CLIP, "clip N=%lld by %s, measures up to %g", (long long)length,
                         pairs ? "norm" : "value", largest);
    c.request.attributes.function = pairs ? LS_CLIP_NORM : LS_CLIP_VALUE;
    c.request.attributes.threshold = 0.5f;
    ls_device_case_input(&c, LS_DEVICE_PLAIN, LS_DEVICE_DESC(LS_F32, length));
    if (pairs)
        ls_device_case_input(&c, LS_DEVICE_PLAIN, LS_DEVICE_DESC(LS_F64, 2 * pairs));
    ls_device_case_output(&c, LS_DEVICE_PLAIN, LS_DEVICE_DESC(LS_F32, length), LS_DEVICE_ROUNDED);
    ls_device_case_draw(&c, 0, LS_DEVICE_UNIFORM);
    ls_device_case_values(&c);
    if (pairs)
        give_measures(&c, 2 * pairs, largest);
    ls_device_case_run(suite, &c);
}

static void unscale_case(struct ls_device_suite *suite, int64_t length, float scale)
{
    struct ls_device_case c;
    ls_device_case_start(&c, LS_OP_UNSCALE, "unscale N=%lld by %g", (long long)length,
                         (double)scale);
    ls_device_case_input(&c, LS_DEVICE_PLAIN, LS_DEVICE_DESC(LS_F32, length));
    ls_device_case_output(&c, LS_DEVICE_PLAIN, LS_DEVICE_DESC(LS_F32, length), LS_DEVICE_ROUNDED);
    ls_device_case_draw(&c, 0, LS_DEVICE_WIDE);
    ls_device_case_values(&c);
    float *values = c.values[0];
    if (values && length > 2) { // what is not finite stays so: it is looked for afterwards
        values[0] = INFINITY;
        values[length - 1] = NAN;
    }
    c.record.loss_scale = scale;
    ls_device_case_run(suite, &c);
}

static void lamb_case(struct ls_device_suite *suite, int64_t length, double largest)
{
    struct ls_device_case c;
    ls_device_case_start(&c, LS_OP_LAMB_UPDATE, "lamb_update N=%lld, measures up to %g",
                         (long long)length, largest);
    ls_device_case_input(&c, LS_DEVICE_PLAIN, LS_DEVICE_DESC(LS_F32, length));
    ls_device_case_input(&c, LS_DEVICE_PLAIN, LS_DEVICE_DESC(LS_F64, 4));
    ls_device_case_output(&c, LS_DEVICE_PLAIN, LS_DEVICE_DESC(LS_F32, length),
                          (struct ls_device_tolerance){0, 1e-6, 1e-6});
    ls_device_case_draw(&c, 0, LS_DEVICE_UNIFORM);
    ls_device_case_draw(&c, 2, LS_DEVICE_UNIFORM);
    ls_device_case_values(&c);
    give_measures(&c, 4, largest);
    c.record.learning_rate = 0.1f;
    ls_device_case_run(suite, &c);
}

// ---- Guard ----

struct flags {
    int32_t flag, skip;
};

static bool guard_step(struct ls_device_session *session, const float *values, struct flags before,
                       struct flags wanted)
{
    struct flags got = before;
    if (!ls_device_session_write(session, 0, values) ||
        !ls_device_session_write(session, 1, &got.flag) ||
        !ls_device_session_write(session, 2, &got.skip) || !ls_device_session_launch(session) ||
        !ls_device_session_read(session, 1, &session->buffers[1], &got.flag) ||
        !ls_device_session_read(session, 2, &session->buffers[2], &got.skip))
        return false;
    return (got.flag == wanted.flag && got.skip == wanted.skip) ||
           ls_device_suite_fail(
               session->suite, "flag and skip were %d and %d and are %d and %d; expected %d and %d",
               before.flag, before.skip, got.flag, got.skip, wanted.flag, wanted.skip);
}

static void guard_steps(struct ls_device_session *session)
{
    static const struct flags none = {0, 0}, skipped = {0, 1}, flagged = {1, 0}, both = {1, 1};
    const float others[] = {NAN, INFINITY, -INFINITY};
    float values[3] = {1, -FLT_MAX, 0};
    bool good = ls_device_session_allocate(session) && guard_step(session, values, none, none) &&
                guard_step(session, values, skipped, skipped) &&
                guard_step(session, values, flagged, both);
    for (size_t i = 0; good && i < 3; i++) {
        values[i] = others[i];
        good = guard_step(session, values, none, both) && guard_step(session, values, both, both);
        values[i] = 0;
    }
}

// A device may lack it: then the host waits for each step.
static void guard_case(struct ls_device_suite *suite)
{
    struct ls_device_case c;
    struct ls_device_session session = {0};
    ls_device_case_start(&c, LS_OP_GUARD, "guard");
    ls_device_case_input(&c, LS_DEVICE_PLAIN, LS_DEVICE_DESC(LS_F32, 3));
    for (uint32_t i = 0; i < 2; i++)
        ls_device_case_output(&c, LS_DEVICE_PLAIN, LS_DEVICE_DESC(LS_I32, 1), LS_DEVICE_EXACT);
    for (uint32_t i = 0; i < 3; i++)
        c.request.arguments[i].layout = ls_device_plain_layout(&c.request.arguments[i]);
    if (ls_device_suite_begin(suite, c.name)) {
        const int32_t status =
            ls_device_session_prepare(&session, suite, suite->tested, &c.request);
        if (!status)
            guard_steps(&session);
        ls_device_suite_end(suite, c.name,
                            status == LS_UNSUPPORTED ? suite->tested->message : NULL);
        ls_device_session_close(&session);
    }
    ls_device_case_finish(&c);
}

// A device may lack the update of moving statistics, and trains no model that has them then; and all
// optimizers but SGD and Adam.
static bool offers(struct ls_device_suite *suite, const struct optimizer *optimizer)
{
    struct ls_device_request request = {.op = optimizer->op,
                                        .attributes = optimizer->attributes,
                                        .input_count = 1,
                                        .output_count = optimizer->states};
    for (uint32_t i = 0; i <= optimizer->states; i++)
        request.arguments[i] = LS_DEVICE_DESC(LS_F32, 3);
    return optimizer->op == LS_OP_SGD_UPDATE || optimizer->op == LS_OP_ADAM_UPDATE ||
           ls_device_operation_offered(suite, optimizer->name, &request);
}

static bool offers_with_measures(struct ls_device_suite *suite, const char *name, uint32_t op)
{
    const struct ls_device_request request = {
        .op = op,
        .attributes = {.function = op == LS_OP_CLIP ? LS_CLIP_NORM : 0, .threshold = 1},
        .input_count = 2,
        .output_count = 1,
        .arguments = {LS_DEVICE_DESC(LS_F32, 3), LS_DEVICE_DESC(LS_F64, 4),
                      LS_DEVICE_DESC(LS_F32, 3)}};
    return ls_device_operation_offered(suite, name, &request);
}

void ls_device_update_cases(struct ls_device_suite *suite)
{
    for (size_t o = 0; o < sizeof(optimizers) / sizeof(optimizers[0]); o++) {
        const bool offered = offers(suite, &optimizers[o]);
        for (size_t i = 0; i < LENGTH_COUNT && offered; i++)
            optimizer_case(suite, &optimizers[o], lengths[i]);
    }
    const bool clips = offers_with_measures(suite, "clip", LS_OP_CLIP);
    const bool lamb = offers_with_measures(suite, "lamb_update", LS_OP_LAMB_UPDATE);
    for (size_t i = 0; i < LENGTH_COUNT; i++) {
        for (int64_t pairs = 0; clips && pairs < 4; pairs++)
            clip_case(suite, lengths[i], pairs, pairs == 1 ? 0.1 : 10);
        if (lamb) {
            lamb_case(suite, lengths[i], 4);
            lamb_case(suite, lengths[i], 0);
        }
    }
    const bool unscales = ls_device_operation_offered(
        suite, "unscale",
        &(struct ls_device_request){
            .op = LS_OP_UNSCALE,
            .input_count = 1,
            .output_count = 1,
            .arguments = {LS_DEVICE_DESC(LS_F32, 3), LS_DEVICE_DESC(LS_F32, 3)}});
    for (size_t i = 0; i < LENGTH_COUNT && unscales; i++)
        unscale_case(suite, lengths[i], i % 2 ? 1000.0f : 32768.0f);
    for (size_t i = 0; i < LENGTH_COUNT; i++) {
        measure_case(suite, lengths[i], true);
        measure_case(suite, lengths[i], false);
    }
    guard_case(suite);
}
