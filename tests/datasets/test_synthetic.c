// SPDX-License-Identifier: Apache-2.0
// synthetic: made from the seed, of any shape, learnable, and never taken for real.
#include "tests/datasets/dataset_checks.h"
#include "tests/support/suite.h"

#include <math.h>
#include <stdbool.h>

static struct ls_dataset *open_split(const char *text, enum ls_split split)
{
    struct ls_dataset *dataset = dataset_opened(text, split);
    ck_assert(!dataset->real);
    return dataset;
}

static uint64_t example_bytes(const struct ls_dataset *dataset)
{
    return dataset->count * dataset->fields[0].stride;
}

static bool same(const char *one, enum ls_split split, const char *other, enum ls_split other_split)
{
    struct ls_dataset *a = open_split(one, split), *b = open_split(other, other_split);
    const uint64_t shorter =
        example_bytes(a) < example_bytes(b) ? example_bytes(a) : example_bytes(b);
    const bool equal = !memcmp(a->fields[0].values, b->fields[0].values, shorter);
    ls_dataset_close(a);
    ls_dataset_close(b);
    return equal;
}

// First, because it is said once a process.
TEST(it_says_once_that_it_is_not_real)
{
    struct ls_dataset *train = open_split("synthetic:examples=3", LS_TRAIN);
    ck_assert_uint_eq(captured_warnings, 1);
    ck_assert_ptr_nonnull(strstr(captured, "NOT REAL DATA"));
    struct ls_dataset *test = open_split("synthetic:examples=3", LS_TEST);
    ck_assert_uint_eq(captured_warnings, 1);
    ls_dataset_close(train);
    ls_dataset_close(test);
}

TEST(it_is_made_from_the_seed_alone)
{
    ck_assert(same("synthetic:examples=50", LS_TRAIN, "synthetic:examples=50,seed=0", LS_TRAIN));
    ck_assert(same("synthetic:examples=50", LS_TRAIN, "synthetic:examples=70", LS_TRAIN));
    ck_assert(!same("synthetic:examples=50", LS_TRAIN, "synthetic:examples=50,seed=1", LS_TRAIN));
    ck_assert(!same("synthetic:examples=50", LS_TRAIN, "synthetic:examples=500", LS_TEST));
}

TEST(the_defaults_have_the_shape_of_mnist)
{
    struct ls_dataset *dataset = open_split("synthetic", LS_TRAIN);
    ck_assert_uint_eq(dataset->count, 10000);
    ck_assert_uint_eq(dataset->fields[0].ndims, 3);
    ck_assert(dataset->fields[0].dims[0] == 28 && dataset->fields[0].dims[1] == 28 &&
              dataset->fields[0].dims[2] == 1);
    ck_assert_uint_eq(dataset->fields[1].class_count, 10);
    ck_assert_uint_eq(dataset->fields[0].dtype, LS_F32);
    ls_dataset_close(dataset);
    dataset = open_split("synthetic:shape=5x1x2x3,examples=11,classes=2,dtype=uint8", LS_TEST);
    ck_assert_uint_eq(dataset->count, 2);
    ck_assert_uint_eq(dataset->fields[0].ndims, 4);
    ck_assert_uint_eq(ls_field_elements(&dataset->fields[0]), 30);
    ck_assert_uint_eq(dataset->fields[0].dtype, LS_U8);
    ls_dataset_close(dataset);
}

// The class of a test example is that of the nearest mean of training examples.
LOOP_TEST(classes_are_learnable, 0, 2)
{
    const char *texts[2] = {"synthetic:shape=6x6,classes=7,examples=2000",
                            "synthetic:shape=6x6,classes=7,examples=2000,dtype=uint8"};
    struct ls_dataset *train = open_split(texts[_i], LS_TRAIN),
                      *test = open_split(texts[_i], LS_TEST);
    float means[7][36] = {{0}}, x[36];
    uint32_t counts[7] = {0};
    for (uint32_t i = 0; i < train->count; i++) {
        const int32_t label = ((const int32_t *)train->fields[1].values)[i];
        ls_gather(&train->fields[0], LS_F32, &i, 1, x);
        ck_assert(label >= 0 && label < 7);
        counts[label]++;
        for (int e = 0; e < 36; e++) {
            ck_assert(x[e] >= 0 && x[e] <= 1);
            means[label][e] += x[e];
        }
    }
    uint32_t right = 0;
    for (uint32_t i = 0; i < test->count; i++) {
        ls_gather(&test->fields[0], LS_F32, &i, 1, x);
        int best = -1;
        float least = INFINITY;
        for (int c = 0; c < 7; c++) {
            float distance = 0;
            for (int e = 0; e < 36; e++)
                distance += powf(x[e] - means[c][e] / (float)counts[c], 2);
            if (distance < least) {
                least = distance;
                best = c;
            }
        }
        right += best == ((const int32_t *)test->fields[1].values)[i];
    }
    ck_assert_uint_gt(right * 10, test->count * 9);
    for (int c = 0; c < 7; c++)
        ck_assert_uint_gt(counts[c], 200); // of 286
    ls_dataset_close(train);
    ls_dataset_close(test);
}

// A linear model by gradient descent explains the targets of the other split but for the noise (0.01 squared).
TEST(targets_are_a_linear_map_of_the_example)
{
    const char *text = "synthetic:shape=3,classes=0,outputs=2,examples=1000";
    struct ls_dataset *train = open_split(text, LS_TRAIN), *test = open_split(text, LS_TEST);
    ck_assert_uint_eq(train->fields[1].class_count, 0);
    ck_assert_uint_eq(ls_field_elements(&train->fields[1]), 2);
    ck_assert_uint_eq(train->fields[1].dtype, LS_F32);
    const float *x = train->fields[0].values, *y = train->fields[1].values;
    double w[2][4] = {{0}};
    for (int pass = 0; pass < 60; pass++)
        for (uint64_t i = 0; i < train->count; i++)
            for (int o = 0; o < 2; o++) {
                double error = w[o][3] - y[2 * i + (uint64_t)o];
                for (int e = 0; e < 3; e++)
                    error += w[o][e] * x[3 * i + (uint64_t)e];
                for (int e = 0; e < 3; e++)
                    w[o][e] -= 0.1 * error * x[3 * i + (uint64_t)e];
                w[o][3] -= 0.1 * error;
            }
    double squares = 0, variance = 0;
    x = test->fields[0].values, y = test->fields[1].values;
    for (uint64_t i = 0; i < 2 * test->count; i++) {
        const double *v = w[i % 2];
        double error = v[3] - y[i];
        for (int e = 0; e < 3; e++)
            error += v[e] * x[i / 2 * 3 + (uint64_t)e];
        squares += error * error;
        variance += (double)y[i] * y[i];
    }
    const double count = 2.0 * (double)test->count;
    ck_assert_msg(squares / count < 3e-4, "%g", squares / count);
    ck_assert_msg(variance / count > 0.1, "%g", variance / count);
    ls_dataset_close(train);
    ls_dataset_close(test);
}

static void expect_usage(const char *text, const char *what)
{
    struct ls_dataset *dataset;
    ck_assert_int_eq(ls_dataset_open(text, LS_TRAIN, &dataset), LS_USAGE);
    expect_error("", what);
}

TEST(options_that_cannot_be_are_refused)
{
    expect_usage("synthetic:shape=", "shape");
    expect_usage("synthetic:shape=28x", "shape");
    expect_usage("synthetic:shape=x28", "shape");
    expect_usage("synthetic:shape=28X28", "shape");
    expect_usage("synthetic:shape=0x3", "shape");
    expect_usage("synthetic:shape=-1", "shape");
    expect_usage("synthetic:shape=1x1x1x1x1x1", "shape");
    expect_usage("synthetic:shape=2147483647x2147483647", "shape");
    expect_usage("synthetic:shape=99999999999999999999", "shape");
    expect_usage("synthetic:classes=-1", "classes");
    expect_usage("synthetic:examples=0", "examples");
    expect_usage("synthetic:examples=4294967295", "examples");
    expect_usage("synthetic:seed=-1", "seed");
    expect_usage("synthetic:outputs=2", "classes=0");
    expect_usage("synthetic:classes=0,outputs=0", "outputs");
    expect_usage("synthetic:dtype=int8", "dtype");
    expect_usage("synthetic:colour=red", "colour");
}

TEST(more_than_there_is_memory_is_refused)
{
    struct ls_dataset *dataset;
    ck_assert_int_eq(
        ls_dataset_open("synthetic:shape=65535x65537,examples=4294967294", LS_TRAIN, &dataset),
        LS_OUT_OF_MEMORY);
    expect_error("synthetic", "no memory");
}

TEST_FIXTURE(capture_reset, NULL);
