// SPDX-License-Identifier: Apache-2.0
// Cases of dropout: which elements are kept is fixed by the contract to the bit, and depends on an
// example's place in the global batch, never on how the batch is split.
#include "tools/conformance/device/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    uint32_t ndims;
    int64_t dims[4];
} shapes[] = {{2, {5, 128}},      {2, {1, 1}},        {2, {7, 33}},
              {4, {2, 7, 5, 17}}, {4, {3, 4, 4, 24}}, {3, {2, 5, 10}}};

static const float rates[] = {0, 0.2f, 0.5f, 0.9f};

static void plain_case(struct ls_device_suite *suite, size_t shape, float rate)
{
    const struct ls_tensor_desc desc =
        ls_device_desc(LS_F32, shapes[shape].ndims, shapes[shape].dims);
    struct ls_device_case c;

    ls_device_case_start(&c, LS_OP_DROPOUT, "dropout rate %.1f B=%lld of %llu", (double)rate,
                         (long long)desc.dims[0],
                         (unsigned long long)(ls_tensor_elements(&desc) / (uint64_t)desc.dims[0]));
    c.request.attributes = (struct ls_op_attributes){.rate = rate, .key = (uint32_t)shape + 1};
    ls_device_case_draw(&c, ls_device_case_input(&c, LS_DEVICE_ACTIVATION, desc), LS_DEVICE_WIDE);
    ls_device_case_output(&c, LS_DEVICE_ACTIVATION, desc, LS_DEVICE_ROUNDED);
    ls_device_case_run(suite, &c);
}

// Elements along some dimensions share one draw.
static void shared_cases(struct ls_device_suite *suite)
{
    static const struct {
        size_t shape;
        int32_t axes[4];
    } shared[] = {{3, {0, 1, 1}}, {4, {0, 1, 1}}, {3, {0, 1, 1, 1}}, {0, {0, 1}},
                  {5, {0, 1}},    {5, {0, 0, 1}}, {4, {0, 0, 1}},    {4, {0, 0, 0, 1}}};

    for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]); i++) {
        const struct ls_tensor_desc desc =
            ls_device_desc(LS_F32, shapes[shared[i].shape].ndims, shapes[shared[i].shape].dims);
        struct ls_device_case c;
        ls_device_case_start(&c, LS_OP_DROPOUT, "dropout shared along %d%d%d of %llu",
                             shared[i].axes[1], shared[i].axes[2], shared[i].axes[3],
                             (unsigned long long)ls_tensor_elements(&desc));
        c.request.attributes = (struct ls_op_attributes){.rate = 0.4f, .key = 3};
        memcpy(c.request.attributes.axes, shared[i].axes, sizeof(shared[i].axes));
        ls_device_case_draw(&c, ls_device_case_input(&c, LS_DEVICE_ACTIVATION, desc),
                            LS_DEVICE_WIDE);
        ls_device_case_output(&c, LS_DEVICE_ACTIVATION, desc, LS_DEVICE_ROUNDED);
        struct ls_device_case asked = c;
        if (i == 0 && !ls_device_case_offered(suite, &asked, "dropout with shared draws"))
            return;
        ls_device_case_run(suite, &c);
    }
}

// A standard deviation of 1.5 adds up to 10; cos and log of float32 are off by some 1e-7 of that.
static const struct ls_device_tolerance noise_tolerance = {0, 1e-5, 1e-5};

static void noise_cases(struct ls_device_suite *suite)
{
    for (size_t shape = 0; shape < sizeof(shapes) / sizeof(shapes[0]); shape++) {
        const struct ls_tensor_desc desc =
            ls_device_desc(LS_F32, shapes[shape].ndims, shapes[shape].dims);
        struct ls_device_case c;
        ls_device_case_start(
            &c, LS_OP_NOISE, "noise B=%lld of %llu", (long long)desc.dims[0],
            (unsigned long long)(ls_tensor_elements(&desc) / (uint64_t)desc.dims[0]));
        c.request.attributes = (struct ls_op_attributes){.rate = 1.5f, .key = (uint32_t)shape + 1};
        ls_device_case_draw(&c, ls_device_case_input(&c, LS_DEVICE_ACTIVATION, desc),
                            LS_DEVICE_UNIFORM);
        ls_device_case_output(&c, LS_DEVICE_ACTIVATION, desc, noise_tolerance);
        struct ls_device_case asked = c;
        if (shape == 0 && !ls_device_case_offered(suite, &asked, "noise"))
            return;
        ls_device_case_run(suite, &c);
    }
}

// ---- Splitting the batch ----

#define UNITS 97
#define WHOLE 5
#define PART 3 // of WHOLE, the rest follows

// Runs dropout on ones for the examples from `first`, of a layer, in a step.
static bool keep(struct ls_device_suite *suite, int64_t first, int64_t examples, uint32_t key,
                 uint64_t step, float *out)
{
    struct ls_device_case c;
    struct ls_device_trial trial;
    void *outputs[LS_DEVICE_ARGUMENTS] = {out};

    ls_device_case_start(&c, LS_OP_DROPOUT, "part of a dropout case");
    c.request.attributes = (struct ls_op_attributes){.rate = 0.4f, .key = key};
    c.record.step = step;
    c.record.example_offset = 100 + (uint64_t)first;
    ls_device_case_input(&c, LS_DEVICE_ACTIVATION, LS_DEVICE_DESC(LS_F32, examples, UNITS));
    ls_device_case_draw(&c, 0, LS_DEVICE_UNIFORM);
    ls_device_case_values(&c);
    float *values = c.values[0];
    for (int64_t i = 0; values && i < examples * UNITS; i++)
        values[i] = 1;
    ls_device_case_output(&c, LS_DEVICE_ACTIVATION, LS_DEVICE_DESC(LS_F32, examples, UNITS),
                          LS_DEVICE_EXACT);

    const int32_t status =
        ls_device_trial_open(&trial, suite, suite->tested, &c, LS_DEVICE_ALL_ANY);
    if (status == LS_UNSUPPORTED)
        ls_device_suite_refuse(suite, "", suite->tested->message);
    const bool good = !status && ls_device_trial_run(&trial, false, -1, outputs);
    ls_device_trial_close(&trial);
    ls_device_case_finish(&c);
    return good;
}

static void split_case(struct ls_device_suite *suite)
{
    const char *name = "dropout of a batch in two parts";
    static float whole[WHOLE * UNITS], parts[WHOLE * UNITS];

    if (!ls_device_suite_begin(suite, name))
        return;
    if (keep(suite, 0, WHOLE, 7, 3, whole) && keep(suite, 0, PART, 7, 3, parts) &&
        keep(suite, PART, WHOLE - PART, 7, 3, parts + (size_t)PART * UNITS) &&
        memcmp(whole, parts, sizeof(whole)) != 0)
        ls_device_suite_fail(suite, "%d examples at once and as %d + %d keep other elements", WHOLE,
                             PART, WHOLE - PART);
    ls_device_suite_end(suite, name, NULL);
}

static void fresh_case(struct ls_device_suite *suite)
{
    const char *name = "dropout of another step, layer and example";
    static float first[UNITS], other[UNITS];
    static const struct {
        const char *what;
        int64_t example;
        uint32_t key;
        uint64_t step;
    } others[] = {{"step", 0, 7, 4}, {"layer", 0, 8, 3}, {"example", 1, 7, 3}};

    if (!ls_device_suite_begin(suite, name))
        return;
    bool good = keep(suite, 0, 1, 7, 3, first);
    for (size_t i = 0; good && i < sizeof(others) / sizeof(others[0]); i++) {
        good = keep(suite, others[i].example, 1, others[i].key, others[i].step, other);
        if (good && memcmp(first, other, sizeof(first)) == 0)
            good =
                ls_device_suite_fail(suite, "another %s keeps the same elements", others[i].what);
    }
    ls_device_suite_end(suite, name, NULL);
}

// The share of kept elements: 4 deviations of a binomial are missed once in 16,000 seeds; the seed is fixed.
static void share_case(struct ls_device_suite *suite)
{
    const char *name = "dropout keeps its share";
    enum { EXAMPLES = 1000 };
    float *out = malloc(sizeof(float) * EXAMPLES * UNITS);
    const double count = (double)EXAMPLES * UNITS, share = 1 - (double)0.4f;
    double kept = 0;

    if (!out || !ls_device_suite_begin(suite, name)) {
        free(out);
        return;
    }
    if (keep(suite, 0, EXAMPLES, 7, 3, out)) {
        for (int64_t i = 0; i < (int64_t)EXAMPLES * UNITS; i++)
            kept += out[i] != 0;
        if (fabs(kept / count - share) > 4 * sqrt(share * (1 - share) / count))
            ls_device_suite_fail(suite, "keeps %.4f of %.0f elements, expected %.4f", kept / count,
                                 count, share);
    }
    ls_device_suite_end(suite, name, NULL);
    free(out);
}

void ls_device_dropout_cases(struct ls_device_suite *suite)
{
    for (size_t shape = 0; shape < sizeof(shapes) / sizeof(shapes[0]); shape++)
        for (size_t rate = 0; rate < sizeof(rates) / sizeof(rates[0]); rate++)
            plain_case(suite, shape, rates[rate]);
    shared_cases(suite);
    noise_cases(suite);
    if (suite->dtype)
        return;
    split_case(suite);
    fresh_case(suite);
    share_case(suite);
}
