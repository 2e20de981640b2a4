// SPDX-License-Identifier: Apache-2.0
// First values of parameters: limits, moments, and that they depend on seed and name alone.
#include "tests/layers/support.h"

#include <math.h>
#include <string.h>

#define ROWS 400
#define COLUMNS 300
#define COUNT (ROWS * COLUMNS)
// Sampling error of a mean or a deviation over COUNT draws is below 0.3 % of the deviation; three times that.
#define TOLERANCE 0.01

static float values[COUNT], others[COUNT];

static struct ls_tensor parameter(const struct ls_initializer *initializer)
{
    static char name[] = "dense/kernel";
    return (struct ls_tensor){.role = LS_ROLE_PARAMETER,
                              .shape = {.ndims = 2, .dims = {ROWS, COLUMNS}},
                              .name = name,
                              .initializer = *initializer};
}

struct moments {
    double mean, deviation, smallest, largest;
};

static struct moments moments_of(const float *x, size_t count)
{
    struct moments m = {.smallest = x[0], .largest = x[0]};
    for (size_t i = 0; i < count; i++) {
        m.mean += x[i] / (double)count;
        m.smallest = fmin(m.smallest, x[i]);
        m.largest = fmax(m.largest, x[i]);
    }
    for (size_t i = 0; i < count; i++)
        m.deviation += (x[i] - m.mean) * (x[i] - m.mean) / (double)count;
    m.deviation = sqrt(m.deviation);
    return m;
}

static struct moments draw(const struct ls_initializer *initializer)
{
    const struct ls_tensor tensor = parameter(initializer);
    ls_initialize(&tensor, 7, values);
    return moments_of(values, COUNT);
}

static const struct {
    struct ls_initializer initializer;
    double fan;
} scalings[] = {
    {{.scale = 1, .mode = LS_FAN_AVERAGE, .distribution = LS_DISTRIBUTION_UNIFORM},
     (ROWS + COLUMNS) / 2.0},
    {{.scale = 1, .mode = LS_FAN_AVERAGE, .distribution = LS_DISTRIBUTION_TRUNCATED_NORMAL},
     (ROWS + COLUMNS) / 2.0},
    {{.scale = 2, .mode = LS_FAN_IN, .distribution = LS_DISTRIBUTION_UNIFORM}, ROWS},
    {{.scale = 2, .mode = LS_FAN_IN, .distribution = LS_DISTRIBUTION_TRUNCATED_NORMAL}, ROWS},
    {{.scale = 1, .mode = LS_FAN_OUT, .distribution = LS_DISTRIBUTION_NORMAL}, COLUMNS},
};

TABLE_TEST(variance_scaling_has_the_deviation_of_its_fan, scalings)
{
    struct ls_initializer initializer = scalings[_i].initializer;
    initializer.kind = LS_VARIANCE_SCALING;
    const struct moments m = draw(&initializer);
    const double deviation = sqrt(initializer.scale / scalings[_i].fan);
    ck_assert_double_eq_tol(m.deviation, deviation, TOLERANCE * deviation);
    ck_assert_double_eq_tol(m.mean, 0, TOLERANCE * deviation);

    const bool uniform = initializer.distribution == LS_DISTRIBUTION_UNIFORM;
    const double limit = uniform ? sqrt(3) * deviation : 2 * deviation / 0.87962566103423978;
    if (initializer.distribution != LS_DISTRIBUTION_NORMAL) {
        ck_assert_double_le(m.largest, limit * (1 + 1e-6));
        ck_assert_double_ge(m.smallest, -limit * (1 + 1e-6));
        ck_assert_double_ge(m.largest, 0.99 * limit);
        ck_assert_double_le(m.smallest, -0.99 * limit);
    } else {
        ck_assert_double_ge(m.largest, 3 * deviation);
    }
}

TEST(plain_distributions_have_their_limits_and_moments)
{
    struct moments m =
        draw(&(struct ls_initializer){.kind = LS_RANDOM_UNIFORM, .minimum = 1, .maximum = 3});
    ck_assert_double_eq_tol(m.mean, 2, TOLERANCE);
    ck_assert_double_eq_tol(m.deviation, 1 / sqrt(3), TOLERANCE);
    ck_assert_double_ge(m.smallest, 1);
    ck_assert_double_le(m.largest, 3);
    m = draw(&(struct ls_initializer){.kind = LS_RANDOM_NORMAL, .mean = -1, .deviation = 0.5});
    ck_assert_double_eq_tol(m.mean, -1, TOLERANCE);
    ck_assert_double_eq_tol(m.deviation, 0.5, TOLERANCE);
    ck_assert_double_gt(m.largest, 0.3);
    m = draw(&(struct ls_initializer){.kind = LS_TRUNCATED_NORMAL, .mean = 4, .deviation = 2});
    ck_assert_double_eq_tol(m.mean, 4, 2 * TOLERANCE);
    ck_assert_double_eq_tol(m.deviation, 2 * 0.87962566103423978, 2 * TOLERANCE);
    ck_assert_double_ge(m.smallest, 0);
    ck_assert_double_le(m.largest, 8);
}

// Of columns and of rows: their products with each other are 0, with themselves the gain's square.
TEST(orthogonal_vectors_are_orthogonal)
{
    const struct ls_initializer initializer = {.kind = LS_ORTHOGONAL, .scale = 2};
    for (int turned = 0; turned < 2; turned++) {
        const int64_t count = 30, length = 50, next = turned ? length : 1,
                      step = turned ? 1 : count;
        struct ls_tensor tensor = parameter(&initializer);
        tensor.shape = (struct ls_shape){
            .ndims = 2, .dims = {turned ? count : length, turned ? length : count}};
        ls_initialize(&tensor, 7, values);
        for (int64_t i = 0; i < count; i++)
            for (int64_t j = 0; j <= i; j++) {
                double sum = 0;
                for (int64_t k = 0; k < length; k++)
                    sum +=
                        (double)values[i * next + k * step] * (double)values[j * next + k * step];
                ck_assert_double_eq_tol(sum, i == j ? 4 : 0, 1e-5);
            }
    }
}

TEST(some_elements_begin_with_one)
{
    const struct ls_initializer initializer = {
        .kind = LS_CONSTANT, .value = 3, .ones_from = 2, .ones_to = 5};
    struct ls_tensor tensor = parameter(&initializer);
    tensor.shape = (struct ls_shape){.ndims = 1, .dims = {8}};
    ls_initialize(&tensor, 7, values);
    for (int i = 0; i < 8; i++)
        ck_assert(values[i] == (i >= 2 && i < 5 ? 1 : 3));
}

TEST(constants_are_what_they_say)
{
    struct moments m = draw(&(struct ls_initializer){.kind = LS_ZEROS});
    ck_assert(m.smallest == 0 && m.largest == 0);
    m = draw(&(struct ls_initializer){.kind = LS_ONES});
    ck_assert(m.smallest == 1 && m.largest == 1);
    m = draw(&(struct ls_initializer){.kind = LS_CONSTANT, .value = -2.5});
    ck_assert(m.smallest == -2.5 && m.largest == -2.5);
}

// Keras: a convolution's fans are its receptive field times the channels; a vector's are its length.
TEST(fans_of_kernels_and_vectors_are_those_of_keras)
{
    static const struct {
        struct ls_shape shape;
        double limit;
    } cases[] = {
        {{.ndims = 4, .dims = {3, 3, 32, 64}}, 0.08333333333}, // sqrt(6 / (9 * (32 + 64)))
        {{.ndims = 2, .dims = {784, 256}}, 0.07595545253}, // sqrt(6 / (784 + 256))
        {{.ndims = 1, .dims = {600}}, 0.07071067812}, // sqrt(6 / (600 + 600))
    };
    static float drawn[784 * 256];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct ls_initializer glorot = {.kind = LS_VARIANCE_SCALING,
                                              .scale = 1,
                                              .mode = LS_FAN_AVERAGE,
                                              .distribution = LS_DISTRIBUTION_UNIFORM};
        struct ls_tensor tensor = parameter(&glorot);
        tensor.shape = cases[i].shape;
        ls_initialize(&tensor, 0, drawn);
        const struct moments m = moments_of(drawn, (size_t)ls_shape_elements(&tensor.shape, 1));
        ck_assert_double_le(m.largest, cases[i].limit * (1 + 1e-6));
        ck_assert_double_ge(m.largest, cases[i].limit * 0.98);
    }
}

TEST(values_depend_on_seed_and_name_alone)
{
    const struct ls_initializer initializers[] = {
        {.kind = LS_RANDOM_UNIFORM, .maximum = 1},
        {.kind = LS_RANDOM_NORMAL, .deviation = 1},
        {.kind = LS_TRUNCATED_NORMAL, .deviation = 1},
    };
    for (size_t i = 0; i < sizeof(initializers) / sizeof(initializers[0]); i++) {
        static char renamed[] = "dense_1/kernel";
        struct ls_tensor tensor = parameter(&initializers[i]);
        ls_initialize(&tensor, 7, values);
        ls_initialize(&tensor, 7, others);
        ck_assert_mem_eq(values, others, sizeof(values));

        tensor.shape = (struct ls_shape){.ndims = 1, .dims = {1000}};
        memset(others, 0, sizeof(others));
        ls_initialize(&tensor, 7, others);
        ck_assert_mem_eq(values, others, 1000 * sizeof(float));

        ls_initialize(&tensor, 8, others);
        ck_assert_mem_ne(values, others, 8 * sizeof(float));
        tensor.name = renamed;
        ls_initialize(&tensor, 7, others);
        ck_assert_mem_ne(values, others, 8 * sizeof(float));
    }
}

TEST_SECONDS(100);
