// SPDX-License-Identifier: Apache-2.0
// Layouts of the device's own, shadows, conversions and fusion: whatever a device wants, the
// results are those of the reference device, which computes the numbers here in every case.
#include "tests/core/graph/pair.h"
#include "tests/support/suite.h"

#include <check.h>
#include <string.h>

static const struct ls_fusion_pattern patterns[] = {
    {LS_OP_CONV2D, LS_OP_ACTIVATION, 0xffffffff, 0},
    {LS_OP_DENSE, LS_OP_ACTIVATION, 1u << LS_RELU | 1u << LS_TANH, 0},
    {LS_OP_MAX_POOL2D_BACKWARD, LS_OP_ACTIVATION_BACKWARD, 1u << LS_RELU, 0},
    {LS_OP_CONV2D_BACKWARD_DATA, LS_OP_ACTIVATION_BACKWARD, 0xffffffff, 0},
    {LS_OP_DENSE_BACKWARD_DATA, LS_OP_ACTIVATION_BACKWARD, 0xffffffff, 0},
};
#define PATTERNS .patterns = patterns, .pattern_count = sizeof(patterns) / sizeof(patterns[0])

static uint32_t count_conversions(const struct ls_program *program)
{
    uint32_t count = 0;
    for (uint32_t s = 0; s < program->step_count; s++)
        count += program->steps[s].converts_activation;
    return count;
}

TEST(a_device_with_layouts_of_its_own_needs_no_conversion_of_activations)
{
    const struct mock_policy policy = {.own_weights = true, .own_activations = true};
    struct pair pair;
    pair_start(&pair, harness_cnn(), &policy, SAME_KERNELS);
    ck_assert_uint_eq(pair_count_steps(pair.run.program, "convert"), 0);
    ck_assert_uint_eq(pair.run.plan->shadow_count, 0);
    ck_assert_uint_eq(pair.run.program->step_count, pair.expected.program->step_count);
    pair_check_gradient_layouts(pair.run.program);
    for (uint32_t i = 0; i < pair.run.plan->place_count; i++) {
        const struct ls_parameter_place *place = &pair.run.plan->places[i];
        ck_assert_uint_eq(place->layout.kind,
                          place->parameter->shape.ndims > 1 ? LS_LAYOUT_OWN : LS_LAYOUT_PLAIN);
    }
    pair_stop(&pair);
}

static void check_second_layouts(bool slow)
{
    const struct mock_policy policy = {.own_weights = true,
                                       .own_activations = true,
                                       .other_data = true,
                                       .other_gradient = true,
                                       .slow = slow};
    struct pair pair;
    pair_start(&pair, harness_cnn(), &policy, SAME_KERNELS);
    ck_assert_uint_eq(pair.run.plan->shadow_count, 3); // every kernel but the first layer's
    ck_assert_uint_eq(pair_count_steps(pair.run.program, "weights convert"), 4);
    ck_assert_uint_eq(count_conversions(pair.run.program), 0);
    for (uint32_t s = 0; s < pair.run.program->step_count; s++)
        ck_assert(!pair.run.program->steps[s].slow);
    pair_stop(&pair);
}

TEST(a_weight_that_backward_wants_in_another_layout_gets_a_shadow)
{
    check_second_layouts(false);
}

// In a large model: the layout takes memory where activations are, and not for a whole step.
TEST(a_large_weight_is_converted_where_backward_reads_it)
{
    const struct mock_policy policy = {.own_weights = true, .other_data = true};
    struct ls_graph *graph = harness_graph((const int64_t[]){3}, 1);
    struct ls_tensor *x = harness_dense(graph, "small", graph->inputs[0], 2048);
    x = harness_dense(graph, "large", x, 2048);
    x = harness_dense(graph, "less", x, 31);
    harness_dense(graph, "last", x, 4);
    harness_finish(graph, LS_LOSS_SPARSE_CROSS_ENTROPY, true);
    struct pair pair;
    pair_start(&pair, graph, &policy, SAME_KERNELS);
    const struct ls_parameter_plan *plan = pair.run.plan;
    ck_assert_uint_eq(plan->shadow_count, 2);
    for (uint32_t i = 0; i < plan->shadow_count; i++)
        ck_assert_str_ne(plan->places[plan->shadows[i].place].parameter->name, "large/kernel");
    const int read = harness_find_step(pair.run.program, "large backward data");
    const int convert = harness_find_step(pair.run.program, "large backward data convert");
    ck_assert_int_ge(convert, 0);
    ck_assert_int_eq(read, convert); // the first that has the text
    ck_assert(!pair.run.program->steps[convert + 1].slow);
    ck_assert_uint_eq(count_conversions(pair.run.program), 0);
    pair_stop(&pair);
}

TEST(a_slow_kernel_is_avoided_with_a_second_layout)
{
    check_second_layouts(true);
}

TEST(a_kernel_that_is_slow_in_every_layout_stays_and_is_marked)
{
    const struct mock_policy policy = {.own_weights = true, .always_slow = true};
    struct pair pair;
    pair_start(&pair, harness_cnn(), &policy, SAME_KERNELS);
    ck_assert_uint_eq(pair.run.plan->shadow_count, 0);
    const int step = harness_find_step(pair.run.program, "conv2d_1 backward data");
    ck_assert_int_ge(step, 0);
    ck_assert(pair.run.program->steps[step].slow);
    pair_stop(&pair);
}

TEST(an_activation_is_converted_as_last_resort_and_counted)
{
    const struct mock_policy policy = {
        .own_weights = true, .own_activations = true, .plain_dense = true};
    struct pair pair;
    pair_start(&pair, harness_cnn(), &policy, SAME_KERNELS);
    // Into the first dense layer (forward and weights share one), its gradient out, and around
    // relu_2.
    ck_assert_uint_ge(count_conversions(pair.run.program), 2);
    ck_assert_uint_eq(count_conversions(pair.run.program),
                      pair_count_steps(pair.run.program, "convert"));
    pair_stop(&pair);
}

TEST(reshapes_of_layouts_of_the_devices_own_are_right)
{
    const struct mock_policy policy = {.own_weights = true,
                                       .own_activations = true,
                                       .other_data = true,
                                       .other_gradient = true,
                                       .plain_dense = true};
    struct pair pair;
    pair_start(&pair, harness_mixed(), &policy, SAME_KERNELS);
    pair_stop(&pair);
}

TEST(a_tied_gradient_is_added_however_the_device_can)
{
    const struct mock_policy policies[] = {
        {0},
        {.own_weights = true},
        {.no_accumulate = true},
        {.own_weights = true, .no_accumulate = true, .no_in_place = true},
        {.own_weights = true, .other_gradient = true, .other_data = true},
        {.own_weights = true, .other_gradient = true, .no_in_place = true},
    };
    for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
        struct pair pair;
        // Without accumulation the second gradient is rounded once more.
        pair_start(&pair, harness_tied(), &policies[i], i < 2 ? SAME_KERNELS : FUSED);
        ck_assert_uint_eq(pair_count_steps(pair.run.program, "weights add") > 0, i >= 2);
        ck_assert_uint_eq(pair_count_steps(pair.run.program, "weights copy") > 0,
                          policies[i].no_in_place);
        pair_stop(&pair);
    }
}

TEST(fused_chains_compute_the_same)
{
    const struct mock_policy policy = {PATTERNS};
    struct pair pair;
    pair_start(&pair, harness_cnn(), &policy, FUSED);
    ck_assert_uint_eq(pair.run.program->step_count + 6, pair.expected.program->step_count);
    ck_assert_int_ge(harness_find_step(pair.run.program, "conv2d forward + relu"), 0);
    ck_assert_int_ge(harness_find_step(pair.run.program, "dense forward + relu"), 0);
    ck_assert_int_ge(harness_find_step(pair.run.program, "max_pooling2d backward + relu"), 0);
    ck_assert_int_ge(harness_find_step(pair.run.program, "dense_1 backward data + relu"), 0);
    pair_stop(&pair);

    pair_start(&pair, harness_mixed(), &policy, FUSED);
    ck_assert_uint_lt(pair.run.program->step_count, pair.expected.program->step_count);
    pair_stop(&pair);
    pair_start(&pair, harness_tied(), &policy, FUSED);
    pair_stop(&pair);
}

TEST(a_fused_kernel_that_is_refused_is_taken_apart)
{
    const struct mock_policy policy = {PATTERNS, .refuse_fused = true};
    struct pair pair;
    pair_start(&pair, harness_cnn(), &policy, SAME_KERNELS);
    ck_assert_uint_eq(pair.run.program->step_count, pair.expected.program->step_count);
    ck_assert_int_lt(harness_find_step(pair.run.program, "+"), 0);
    pair_stop(&pair);
}

TEST(fusion_and_second_layouts_go_together)
{
    const struct mock_policy policy = {PATTERNS, .own_weights = true, .own_activations = true,
                                       .other_data = true, .other_gradient = true};
    struct pair pair;
    pair_start(&pair, harness_cnn(), &policy, FUSED);
    ck_assert_uint_eq(count_conversions(pair.run.program), 0);
    ck_assert_uint_eq(pair.run.plan->shadow_count, 3);
    pair_check_gradient_layouts(pair.run.program);
    pair_stop(&pair);
}

TEST(an_activation_is_fused_only_into_what_makes_its_own_gradient)
{
    const struct mock_policy policy = {PATTERNS};
    struct ls_graph *graph = harness_graph((const int64_t[]){6, 6, 2}, 3);
    struct ls_tensor *x = harness_conv(graph, "conv2d", graph->inputs[0], 2, 3, 1, true);
    x = harness_activation(graph, "relu", x, LS_RELU);
    x = harness_add(graph, "add", x, graph->inputs[0]);
    x = harness_pool(graph, "max_pooling2d", x, LS_OP_MAX_POOL2D, 2, 2);
    harness_dense(graph, "dense", harness_flatten(graph, "flatten", x), 3);
    harness_finish(graph, LS_LOSS_SPARSE_CROSS_ENTROPY, true);

    struct pair pair;
    pair_start(&pair, graph, &policy, FUSED);
    ck_assert_int_lt(harness_find_step(pair.run.program, "max_pooling2d backward + relu"), 0);
    pair_stop(&pair);
}

TEST(a_tensor_with_a_second_reader_is_not_fused_away)
{
    const struct mock_policy policy = {PATTERNS};
    for (int order = 0; order < 2; order++) {
        struct ls_graph *graph = harness_graph((const int64_t[]){6}, 1);
        struct ls_tensor *sum = harness_dense(graph, "dense", graph->inputs[0], 6), *x;
        if (order == 0) {
            x = harness_activation(graph, "tanh", sum, LS_TANH);
            x = harness_add(graph, "add", x, sum);
        } else {
            x = harness_add(graph, "aside", sum, sum);
            x = harness_add(graph, "add", x, harness_activation(graph, "tanh", sum, LS_TANH));
        }
        harness_dense(graph, "dense_1", x, 3);
        harness_finish(graph, LS_LOSS_SPARSE_CROSS_ENTROPY, true);

        struct pair pair;
        pair_start(&pair, graph, &policy, FUSED);
        ck_assert_int_lt(harness_find_step(pair.run.program, "dense forward + tanh"), 0);
        pair_stop(&pair);
    }
}

TEST(random_graphs_compute_the_same_whatever_the_device_wants)
{
    const struct mock_policy policies[] = {
        {PATTERNS},
        {PATTERNS, .own_weights = true, .own_activations = true, .other_data = true,
         .other_gradient = true},
        {.own_activations = true, .plain_dense = true, .no_in_place = true, .no_accumulate = true},
        {PATTERNS, .own_weights = true, .own_activations = true, .other_data = true, .slow = true,
         .plain_dense = true},
    };
    for (uint64_t seed = 0; seed < 32; seed++) {
        struct pair pair;
        pair_start(&pair, harness_random(seed), &policies[seed % 4], FUSED);
        pair_stop(&pair);
    }
}

TEST(plain_and_own_masters_have_different_fingerprints)
{
    const struct mock_policy policy = {.own_weights = true};
    struct harness_device reference;
    ck_assert(harness_open("reference", &reference));
    struct harness_device mock = mock_open(reference, &policy);
    struct ls_graph *graph = harness_cnn();
    struct ls_parameter_plan *own, *again, *plain;

    ck_assert_int_eq(ls_plan_create(graph, harness_face(mock), 4, false, &own), LS_OK);
    ck_assert_int_eq(ls_plan_create(graph, harness_face(mock), 4, false, &again), LS_OK);
    ck_assert_int_eq(ls_plan_create(graph, harness_face(mock), 4, true, &plain), LS_OK);
    ck_assert_uint_eq(ls_plan_fingerprint(own), ls_plan_fingerprint(again));
    ck_assert_uint_ne(ls_plan_fingerprint(own), ls_plan_fingerprint(plain));
    ls_plan_destroy(own);
    ls_plan_destroy(again);
    ls_plan_destroy(plain);
    ls_graph_destroy(graph);
    mock_close(&mock);
    harness_close(&reference);
}

// conv relu conv flatten dense over (6, 5, 2), in bfloat16.
static struct ls_graph *half_graph(void)
{
    struct ls_graph *graph = harness_graph((const int64_t[]){6, 5, 2}, 3);
    graph->compute = LS_BF16;
    struct ls_tensor *x = harness_conv(graph, "conv", graph->inputs[0], 4, 3, 1, true);
    x = harness_activation(graph, "relu", x, LS_RELU);
    x = harness_conv(graph, "conv_1", x, 3, 2, 1, false);
    harness_dense(graph, "dense", harness_flatten(graph, "flatten", x), 4);
    ck_assert_int_eq(ls_graph_float32_outputs(graph), LS_OK);
    harness_finish(graph, LS_LOSS_SPARSE_CROSS_ENTROPY, true);
    return graph;
}

// The master has the layout in which its gradient is written, in float32.
LOOP_TEST(halves_are_made_of_masters_in_any_layout, 0, 4)
{
    const struct mock_policy policies[] = {{PATTERNS},
                                           {.own_weights = true, .other_gradient = true},
                                           {.own_weights = true, .own_activations = true},
                                           {.no_accumulate = true, .no_in_place = true}};
    struct pair pair;
    pair_start(&pair, half_graph(), &policies[_i], SAME_KERNELS);
    ck_assert_uint_eq(pair.run.plan->shadow_count, 6);
    for (uint32_t i = 0; i < pair.run.plan->place_count; i++) {
        const struct ls_parameter_place *place = &pair.run.plan->places[i];
        const bool own = policies[_i].other_gradient && place->parameter->shape.ndims > 1;
        ck_assert_uint_eq(place->layout.kind, own ? LS_LAYOUT_OWN : LS_LAYOUT_PLAIN);
    }
    pair_stop(&pair);
}

#define CASTS(op)                          \
    {LS_OP_CONVERT, op, 0, 0},             \
    {                                      \
        LS_OP_CONVERT, op##_BACKWARD, 0, 0 \
    }
static const struct ls_fusion_pattern cast_patterns[] = {
    CASTS(LS_OP_LAYER_NORMALIZATION), CASTS(LS_OP_ATTENTION), CASTS(LS_OP_SPARSE_CROSS_ENTROPY)};

// dense, layer normalization, attention to itself, dense, in bfloat16. `shared`: queries, keys and
// values are the same tensor, so that their gradients are added in float32.
static struct ls_graph *cast_graph(bool shared)
{
    const struct ls_op_attributes norm = {.epsilon = 1e-3f}, attention = {.causal = 1};
    struct ls_graph *graph = harness_graph((const int64_t[]){5, 8}, 2);
    struct ls_tensor *x, *parts[3];
    graph->compute = LS_BF16;
    x = harness_dense(graph, "dense", graph->inputs[0], 8);
    ck_assert_int_eq(ls_graph_begin_layer(graph, "norm", "Test"), LS_OK);
    ck_assert_int_eq(ls_graph_add(graph, LS_OP_LAYER_NORMALIZATION, &norm, &x, 1, NULL, &x), LS_OK);
    ls_graph_end_layer(graph, x);
    static const char *const names[] = {"q", "k", "v"};
    for (int i = 0; i < 3; i++) {
        parts[i] = shared && i ? parts[0] : harness_dense(graph, names[i], x, 8);
        if (i == 0 || !shared)
            parts[i] = harness_reshape(graph, i ? i > 1 ? "heads_v" : "heads_k" : "heads_q",
                                       parts[i], (const int64_t[]){5, 2, 4}, 3);
    }
    ck_assert_int_eq(ls_graph_begin_layer(graph, "attention", "Test"), LS_OK);
    ck_assert_int_eq(ls_graph_add(graph, LS_OP_ATTENTION, &attention, parts, 3, NULL, &x), LS_OK);
    ls_graph_end_layer(graph, x);
    harness_dense(graph, "scores", harness_flatten(graph, "flatten", x), 4);
    ck_assert_int_eq(ls_graph_float32_outputs(graph), LS_OK);
    harness_finish(graph, LS_LOSS_SPARSE_CROSS_ENTROPY, true);
    return graph;
}

// What casts are left, the input's among them. What is computed is the same to the bit.
LOOP_TEST(casts_vanish_where_the_device_takes_halves, 0, 8)
{
    static const struct {
        uint32_t first, count; // of the patterns
        bool shared;
        uint32_t left;
    } rows[] = {
        {0, 0, false, 15}, // 4 of the norm, 8 of attention, 2 of the loss
        {0, 6, false, 1},  {0, 2, false, 11}, {2, 2, false, 7},
        {4, 2, false, 13}, {0, 1, false, 15}, {1, 1, false, 15}, // forward and backward go together
        {0, 6, true, 5}, // q, dy, y, and the sum of the gradients
    };
    const struct mock_policy policy = {.patterns = &cast_patterns[rows[_i].first],
                                       .pattern_count = rows[_i].count};
    struct pair pair;
    pair_start(&pair, cast_graph(rows[_i].shared), &policy, SAME_KERNELS);
    ck_assert_uint_eq(pair_count_steps(pair.run.program, "convert"), rows[_i].left);
    ck_assert_uint_eq(pair_count_steps(pair.expected.program, "convert"),
                      rows[_i].shared ? 11 : 15);
    pair_stop(&pair);
}

TEST(a_device_without_halves_is_named_before_training)
{
    const struct mock_policy policy = {.no_halves = true};
    struct harness_device reference;
    ck_assert(harness_open("reference", &reference));
    struct harness_device mock = mock_open(reference, &policy);
    struct ls_graph *graph = half_graph();
    struct ls_parameter_plan *plan;
    harness_capture_messages();
    ck_assert_int_eq(ls_plan_create(graph, harness_face(mock), 4, false, &plan), LS_UNAVAILABLE);
    ck_assert_msg(strstr(harness_message(),
                         "conv forward convert: the device has no kernel for operation convert in "
                         "bfloat16; use another device, or --precision=float32") != NULL,
                  "%s", harness_message());
    ls_graph_destroy(graph);
    mock_close(&mock);
    harness_close(&reference);
}
