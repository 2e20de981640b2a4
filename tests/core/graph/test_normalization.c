// SPDX-License-Identifier: Apache-2.0
// Batch normalization in programs: what is fused into it and what not, and that nothing of that
// changes a number.
#include "tests/core/graph/pair.h"
#include "tests/support/suite.h"

#include <check.h>
#include <string.h>

static const struct ls_fusion_pattern patterns[] = {
    {LS_OP_BATCH_NORMALIZATION, LS_OP_ADD, 0, 0},
    {LS_OP_BATCH_NORMALIZATION, LS_OP_ACTIVATION, 1u << LS_RELU, 0},
};
#define PATTERNS .patterns = patterns, .pattern_count = sizeof(patterns) / sizeof(patterns[0])

static const struct ls_program_step *step_of(const struct ls_program *program, const char *label)
{
    for (uint32_t s = 0; s < program->step_count; s++)
        if (strcmp(program->steps[s].label, label) == 0)
            return &program->steps[s];
    return NULL;
}

static bool has_step(const struct ls_program *program, const char *label)
{
    return step_of(program, label) != NULL;
}

TEST(a_sum_becomes_the_addend_and_then_an_activation_the_epilogue)
{
    const struct mock_policy policy = {PATTERNS};
    struct pair pair;
    pair_start(&pair, harness_residual(LS_RELU), &policy, FUSED);
    const struct ls_program *program = pair.run.program, *plain = pair.expected.program;
    const struct ls_program_step *block = step_of(program, "block_norm forward + add + relu");
    ck_assert_ptr_nonnull(block);
    ck_assert_uint_eq(block->input_count, 4);
    ck_assert_str_eq(block->tensors[3]->name, "stem_act");
    ck_assert_str_eq(block->tensors[4]->name, "block_act");
    ck_assert_uint_eq(block->attributes.epilogue, LS_OP_ACTIVATION);
    const struct ls_program_step *join = step_of(program, "long_norm forward + add + relu");
    ck_assert_ptr_nonnull(join);
    ck_assert_str_eq(join->tensors[3]->name, "short_norm");
    ck_assert(has_step(program, "stem_norm forward + relu"));
    ck_assert(has_step(program, "input_norm forward"));
    ck_assert(has_step(program, "short_norm forward"));
    // stem_act; block_add and block_act; join and join_act
    ck_assert_uint_eq(program->step_count + 5, plain->step_count);
    ck_assert_int_lt(harness_find_step(plain, "+"), 0);
    pair_stop(&pair);
}

TEST(only_what_the_device_declares_is_fused)
{
    for (int i = 0; i < 2; i++) {
        const struct mock_policy policy = {.patterns = &patterns[i], .pattern_count = 1};
        struct pair pair;
        pair_start(&pair, harness_residual(LS_RELU), &policy, FUSED);
        const struct ls_program *program = pair.run.program;
        ck_assert_int_eq(has_step(program, "stem_norm forward + relu"), i == 1);
        ck_assert_int_eq(has_step(program, "block_norm forward + add"), i == 0);
        ck_assert_int_eq(has_step(program, "block_norm forward"), i == 1);
        ck_assert_int_eq(has_step(program, "block_add forward"), i == 1);
        ck_assert(has_step(program, "block_act forward"));
        ck_assert_uint_eq(pair_count_steps(program, "+"), i == 0 ? 2 : 1);
        pair_stop(&pair);
    }
}

// Bits of the policy: 1 nothing fused, 2 one operation, 4 two. Wanted: how many steps do how much
// more.
static const struct {
    uint32_t refused, slow;
    uint32_t twice, once;
} refusals[] = {
    {0, 0, 2, 1}, {4, 0, 0, 3}, {6, 0, 0, 0}, {0, 4, 0, 3}, {0, 6, 0, 0},
    {0, 7, 2, 1}, {4, 3, 0, 3}, {2, 4, 0, 0}, {2, 5, 2, 0},
};

TABLE_TEST(what_is_refused_or_slow_is_taken_apart_from_behind, refusals)
{
    const struct mock_policy policy = {PATTERNS, .refused_norms = refusals[_i].refused,
                                       .slow_norms = refusals[_i].slow};
    struct pair pair;
    pair_start(&pair, harness_residual(LS_RELU), &policy, FUSED);
    const struct ls_program *program = pair.run.program;
    const uint32_t twice = pair_count_steps(program, "+ add + relu");
    const uint32_t once = pair_count_steps(program, "+") - twice;
    ck_assert_uint_eq(twice, refusals[_i].twice);
    ck_assert_uint_eq(once, refusals[_i].once);
    ck_assert_uint_eq(program->step_count + 2 * twice + once, pair.expected.program->step_count);
    ck_assert_int_eq(has_step(program, "block_norm forward + add"),
                     once == 3); // the relu was taken back, not the sum
    pair_stop(&pair);
}

// norm(x) and tanh(x), made in either order, and their sum.
static void check_order(bool term_first, bool norm_is_first_term)
{
    const struct mock_policy policy = {PATTERNS};
    struct ls_graph *graph = harness_graph((const int64_t[]){4}, 1);
    struct ls_tensor *x = harness_dense(graph, "dense", graph->inputs[0], 4), *y = NULL;
    struct ls_tensor *term = term_first ? harness_activation(graph, "tanh", x, LS_TANH) : NULL;
    y = harness_norm(graph, "norm", x);
    if (!term)
        term = harness_activation(graph, "tanh", x, LS_TANH);
    harness_add(graph, "add", norm_is_first_term ? y : term, norm_is_first_term ? term : y);
    harness_finish(graph, LS_LOSS_MEAN_SQUARED_ERROR, false);

    struct pair pair;
    pair_start(&pair, graph, &policy, FUSED);
    ck_assert_int_eq(has_step(pair.run.program, "norm forward + add"), term_first);
    ck_assert_int_eq(has_step(pair.run.program, "add forward"), !term_first);
    pair_stop(&pair);
}

TEST(a_term_that_is_made_later_is_not_an_addend)
{
    for (int i = 0; i < 4; i++)
        check_order(i & 1, i & 2);
}

TEST(a_norm_that_is_read_twice_is_not_fused)
{
    const struct mock_policy policy = {PATTERNS};
    for (int i = 0; i < 2; i++) {
        struct ls_graph *graph = harness_graph((const int64_t[]){4}, 1);
        struct ls_tensor *x = harness_dense(graph, "dense", graph->inputs[0], 4);
        struct ls_tensor *y = harness_norm(graph, "norm", x);
        struct ls_tensor *sum = harness_add(graph, "add", y, i == 0 ? y : x);
        if (i == 1)
            harness_add(graph, "again", sum, harness_activation(graph, "tanh", y, LS_TANH));
        harness_finish(graph, LS_LOSS_MEAN_SQUARED_ERROR, false);

        struct pair pair;
        pair_start(&pair, graph, &policy, FUSED);
        ck_assert(has_step(pair.run.program, "norm forward"));
        ck_assert(has_step(pair.run.program, "add forward"));
        pair_stop(&pair);
    }
}

// An activation comes before the sum: what is added is added to its result.
TEST(nothing_is_added_behind_an_epilogue)
{
    const struct mock_policy policy = {PATTERNS};
    struct ls_graph *graph = harness_graph((const int64_t[]){4}, 1);
    struct ls_tensor *x = harness_dense(graph, "dense", graph->inputs[0], 4);
    struct ls_tensor *y =
        harness_activation(graph, "relu", harness_norm(graph, "norm", x), LS_RELU);
    harness_add(graph, "add", y, x);
    harness_finish(graph, LS_LOSS_MEAN_SQUARED_ERROR, false);

    struct pair pair;
    pair_start(&pair, graph, &policy, FUSED);
    ck_assert(has_step(pair.run.program, "norm forward + relu"));
    ck_assert(has_step(pair.run.program, "add forward"));
    pair_stop(&pair);
}

TEST(layouts_of_the_devices_own_go_through)
{
    const struct mock_policy policies[] = {
        {.own_weights = true, .own_activations = true},
        {PATTERNS, .own_weights = true, .own_activations = true, .other_data = true,
         .other_gradient = true},
        {PATTERNS, .own_activations = true, .refused_norms = 4, .no_in_place = true},
        {PATTERNS, .own_activations = true, .refused_norms = 6},
    };
    for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
        struct pair pair;
        pair_start(&pair, harness_residual(LS_RELU), &policies[i], i == 0 ? SAME_KERNELS : FUSED);
        pair_check_gradient_layouts(pair.run.program);
        pair_stop(&pair);
    }
}

TEST(gradients_of_gamma_and_beta_are_added_however_the_device_can)
{
    const struct mock_policy policies[] = {
        {0}, {.no_accumulate = true}, {.no_accumulate = true, .no_in_place = true}};
    for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
        struct pair pair;
        pair_start(&pair, harness_tied_norm(), &policies[i], i == 0 ? SAME_KERNELS : FUSED);
        ck_assert_uint_eq(pair_count_steps(pair.run.program, "norm backward add"), i == 0 ? 0 : 2);
        pair_stop(&pair);
    }
}

TEST(a_program_without_backward_takes_the_statistics_of_its_batch)
{
    struct harness_device device;
    struct harness_run train, evaluate;
    struct ls_graph *graph = harness_residual(LS_RELU);
    ck_assert(harness_open("reference", &device));
    harness_start(&train, device, graph, NULL,
                  (struct ls_program_options){.batch = 4, .purpose = LS_PURPOSE_TRAIN});
    harness_start(&evaluate, device, graph, train.plan,
                  (struct ls_program_options){.batch = 4, .purpose = LS_PURPOSE_EVALUATE});
    harness_step(&train);
    harness_step(&evaluate);
    ck_assert_float_eq(harness_loss(&train), harness_loss(&evaluate));
    ck_assert_uint_lt(evaluate.program->arena_bytes, train.program->arena_bytes);
    harness_stop(&evaluate, false);
    harness_stop(&train, true);
    harness_close(&device);
    ls_graph_destroy(graph);
}

// Statistics are variables here, as moving ones will be.
static struct ls_graph *inference_graph(void)
{
    const struct ls_op_attributes attributes = {.epsilon = 1e-3f};
    const struct ls_initializer ones = {.kind = LS_ONES};
    struct ls_graph *graph = harness_graph((const int64_t[]){4}, 1);
    struct ls_tensor *term = harness_dense(graph, "dense", graph->inputs[0], 4), *y;
    struct ls_tensor *inputs[5] = {harness_activation(graph, "tanh", term, LS_TANH)};
    static const char *const names[] = {"gamma", "beta", "moving_mean", "moving_variance"};
    ck_assert_int_eq(ls_graph_begin_layer(graph, "norm", "BatchNormalization"), LS_OK);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(ls_graph_parameter(graph, names[i],
                                            &(struct ls_shape){.ndims = 1, .dims = {4}}, &ones,
                                            &inputs[1 + i]),
                         LS_OK);
    ck_assert_int_eq(
        ls_graph_add(graph, LS_OP_BATCH_NORMALIZATION_INFERENCE, &attributes, inputs, 5, NULL, &y),
        LS_OK);
    ls_graph_end_layer(graph, y);
    harness_activation(graph, "relu", harness_add(graph, "add", y, term), LS_RELU);
    return graph;
}

TEST(the_inference_form_takes_an_addend_too)
{
    static const struct ls_fusion_pattern given[] = {
        {LS_OP_BATCH_NORMALIZATION_INFERENCE, LS_OP_ADD, 0, 0},
        {LS_OP_BATCH_NORMALIZATION_INFERENCE, LS_OP_ACTIVATION, 1u << LS_RELU, 0},
    };
    const struct mock_policy policy = {.patterns = given, .pattern_count = 2};
    const struct ls_program_options options = {.batch = 3, .purpose = LS_PURPOSE_PREDICT};
    struct harness_device device;
    struct harness_run apart, fused;
    struct ls_graph *graph = inference_graph();
    ck_assert(harness_open("reference", &device));
    struct harness_device mock = mock_open(device, &policy);
    harness_start(&apart, device, graph, NULL, options);
    harness_start(&fused, mock, graph, NULL, options);
    // A variance below zero is none.
    for (int i = 0; i < 2; i++) {
        const float variance[] = {0.5f, 1, 2, 3};
        harness_write(i ? &fused : &apart, harness_parameter(graph, "norm/moving_variance"),
                      variance);
    }
    harness_step(&apart);
    harness_step(&fused);
    ck_assert(has_step(apart.program, "norm forward"));
    ck_assert(has_step(fused.program, "norm forward + add + relu"));
    const float *a = ls_address(ls_program_output(apart.program, 0)),
                *b = ls_address(ls_program_output(fused.program, 0));
    float largest = 0;
    for (int i = 0; i < 12; i++) {
        ck_assert_float_eq_tol(a[i], b[i], 1e-6f); // one rounding less
        largest = a[i] > largest ? a[i] : largest;
    }
    ck_assert_float_gt(largest, 0);
    harness_stop(&fused, true);
    harness_stop(&apart, true);
    mock_close(&mock);
    harness_close(&device);
    ls_graph_destroy(graph);
}
