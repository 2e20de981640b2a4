// SPDX-License-Identifier: Apache-2.0
// The optimizers of device `reference` against Keras's formulas, and its measure.
#include "tests/plugins/device/reference/operation.h"

#define ROUNDING 1e-6

TEST(plain_sgd_subtracts_rate_times_gradient)
{
    float g[] = {1, -2}, w[] = {10, 20};
    struct operation o = {.op = LS_OP_SGD_UPDATE,
                          .record = {.step = 1, .update = 1, .learning_rate = 0.25f},
                          .inputs = 1,
                          .outputs = 1,
                          .arguments = {F32(g, 2), F32(w, 2)}};
    operation_run(&o);
    assert_values(w, (float[]){9.75f, 20.5f}, 2, 0);
}

TEST(momentum_keeps_a_velocity)
{
    // v1 = -0.5 * 2 = -1, w = 9; v2 = 0.5 * -1 - 0.5 * 4 = -2.5, w = 6.5
    float g[] = {2}, w[] = {10}, v[] = {0};
    struct operation o = {.op = LS_OP_SGD_UPDATE,
                          .attributes = {.momentum = 0.5f},
                          .record = {.step = 1, .update = 1, .learning_rate = 0.5f},
                          .inputs = 1,
                          .outputs = 2,
                          .arguments = {F32(g, 1), F32(w, 1), F32(v, 1)}};
    operation_run(&o);
    assert_values(w, (float[]){9}, 1, 0);
    g[0] = 4;
    operation_run(&o);
    assert_values(w, (float[]){6.5f}, 1, 0);
    assert_values(v, (float[]){-2.5f}, 1, 0);
}

TEST(nesterov_looks_ahead)
{
    // v = -1, w += 0.5 * -1 - 1 = -1.5; then v = -0.5 - 2 = -2.5, w += -1.25 - 2 = -3.25
    float g[] = {2}, w[] = {10}, v[] = {0};
    struct operation o = {.op = LS_OP_SGD_UPDATE,
                          .attributes = {.momentum = 0.5f, .nesterov = 1},
                          .record = {.step = 1, .update = 1, .learning_rate = 0.5f},
                          .inputs = 1,
                          .outputs = 2,
                          .arguments = {F32(g, 1), F32(w, 1), F32(v, 1)}};
    operation_run(&o);
    assert_values(w, (float[]){8.5f}, 1, 0);
    g[0] = 4;
    operation_run(&o);
    assert_values(w, (float[]){5.25f}, 1, 0);
}

TEST(adam_takes_its_first_step_by_the_rate)
{
    // m = 0.1 g, v = 0.001 g^2, alpha = lr sqrt(0.001) / 0.1; hence w -= lr g / (|g| + epsilon / sqrt(0.001))
    float g[] = {4, -0.001f, 0}, w[] = {1, 1, 1}, m[3] = {0}, v[3] = {0};
    struct operation o = {.op = LS_OP_ADAM_UPDATE,
                          .attributes = {.beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-7f},
                          .record = {.step = 1, .update = 1, .learning_rate = 0.01f},
                          .inputs = 1,
                          .outputs = 3,
                          .arguments = {F32(g, 3), F32(w, 3), F32(m, 3), F32(v, 3)}};
    operation_run(&o);
    const float outside = 1e-7f / sqrtf(0.001f);
    assert_values(w, (float[]){0.99f, 1 + 0.01f * 0.001f / (0.001f + outside), 1}, 3, ROUNDING);
    assert_values(m, (float[]){0.4f, -0.0001f, 0}, 3, ROUNDING);
    assert_values(v, (float[]){0.016f, 1e-9f, 0}, 3, ROUNDING);
}

// keras.optimizers.Adam written down again, in double precision, for one element.
TEST(adam_follows_keras_for_many_steps)
{
    float g[1], w[] = {0.5f}, m[] = {0}, v[] = {0};
    double ww = 0.5, mm = 0, vv = 0;
    struct operation o = {.op = LS_OP_ADAM_UPDATE,
                          .attributes = {.beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-7f},
                          .inputs = 1,
                          .outputs = 3,
                          .arguments = {F32(g, 1), F32(w, 1), F32(m, 1), F32(v, 1)}};
    for (uint64_t step = 1; step <= 100; step++) {
        draw(g, 1, step);
        o.record =
            (struct ls_step_record){.step = 100 + step, .update = step, .learning_rate = 0.001f};
        operation_run(&o);
        mm = 0.9 * mm + 0.1 * (double)g[0];
        vv = 0.999 * vv + 0.001 * (double)g[0] * (double)g[0];
        ww -= 0.001 * sqrt(1 - pow(0.999, (double)step)) / (1 - pow(0.9, (double)step)) * mm /
              (sqrt(vv) + 1e-7);
        assert_values(w, (float[]){(float)ww}, 1, 1e-5);
    }
}

TEST(a_skipped_step_leaves_everything)
{
    float g[] = {NAN, 3}, w[] = {1, 2}, v[] = {3, 4};
    struct operation o = {.op = LS_OP_SGD_UPDATE,
                          .attributes = {.momentum = 0.9f},
                          .record = {.step = 1, .update = 1, .learning_rate = 1, .skip = 1},
                          .inputs = 1,
                          .outputs = 2,
                          .arguments = {F32(g, 2), F32(w, 2), F32(v, 2)}};
    operation_run(&o);
    assert_values(w, (float[]){1, 2}, 2, 0);
    assert_values(v, (float[]){3, 4}, 2, 0);
}

TEST(measure_sums_squares_and_counts_what_is_not_finite)
{
    float x[] = {3, NAN, 4, INFINITY, -INFINITY};
    double out[2];
    struct operation o = {
        .op = LS_OP_MEASURE, .inputs = 1, .outputs = 1, .arguments = {F32(x, 5), F64(out, 2)}};
    operation_run(&o);
    ck_assert_double_eq(out[0], 25);
    ck_assert_double_eq(out[1], 3);
}

int main(void)
{
    return operation_device() ? test_suite_run("reference updates") : TEST_SKIPPED;
}
