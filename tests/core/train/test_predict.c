// SPDX-License-Identifier: Apache-2.0
// ls_predict: models that are not compiled, sessions that go on, and what is refused.
#include "tests/core/train/fixture.h"

#define EXAMPLES 50
#define CLASSES 10

static struct ls_model *logits_of(struct ls_run *own)
{
    const struct ls_layer layers[] = {
        LS_INPUT(4, 4, 1), LS_CONV2D(3, 2, .activation = "relu"),
        LS_FLATTEN(),      LS_DROPOUT(0.5),
        LS_DENSE(CLASSES), LS_END,
    };
    struct ls_model *model = NULL;
    OK(ls_sequential_create(own, "small", layers, &model));
    return model;
}

static void check_same(const float *a, const float *b, float tolerance)
{
    for (int i = 0; i < EXAMPLES * CLASSES; i++)
        ck_assert_float_eq_tol(a[i], b[i], tolerance);
}

TEST(a_model_need_not_be_compiled)
{
    float before[EXAMPLES * CLASSES], after[EXAMPLES * CLASSES];
    struct ls_model *model = logits_of(run);
    int64_t dims[LS_ARRAY_DIMS] = {0};
    ck_assert_uint_eq(ls_model_output_elements(model), CLASSES);
    ck_assert_uint_eq(ls_model_output_shape(model, dims), 1);
    ck_assert_int_eq(dims[0], CLASSES);
    OK(ls_predict(model, train, 8, before));
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = "sgd"}));
    OK(ls_predict(model, train, 8, after));
    check_same(before, after, 1e-6f); // and dropout is not in it
    float largest = 0;
    for (int i = 0; i < EXAMPLES * CLASSES; i++)
        largest = fmaxf(largest, fabsf(before[i]));
    ck_assert_float_gt(largest, 0.01f);
    ck_assert_uint_eq(errors, 0);
    ls_model_close(model);
}

// Names of metrics do not go with the model.
TEST(scores_outlive_their_model)
{
    struct ls_model *model = logits_of(run);
    struct ls_scores scores;
    OK(ls_compile(model, &(struct ls_compile_options){
                             .optimizer = "sgd",
                             .metrics = "accuracy,sparse_top_k_categorical_accuracy:k=10"}));
    OK(ls_evaluate(model, train, 8, &scores));
    ls_model_close(model);
    ck_assert_uint_eq(scores.metrics.count, 3);
    ck_assert_str_eq(scores.metrics.list[1].name, "accuracy");
    ck_assert_double_eq(ls_metric_value(&scores.metrics, "sparse_top_k_categorical_accuracy"),
                        1); // of 10 classes
}

// Between two fits of one step: it takes the weights of the replicas and stores, and changes nothing.
LOOP_TEST(a_prediction_between_fits_changes_nothing, 0, 3)
{
    static const char *const strategies[] = {"ring", "central-storage",
                                             "parameter-server:mode=sync"};
    struct ls_run *own = run_of(strategies[_i], 3);
    struct ls_model *plain = model_of(own, "adam"), *asked = model_of(own, "adam");
    struct ls_model *other = model_of(run, "adam");
    float found[EXAMPLES * CLASSES], expected[EXAMPLES * CLASSES];
    char path[64];
    snprintf(path, sizeof(path), "/tmp/lockstep-predict-%ld.safetensors", (long)getpid());
    for (int step = 0; step < 9; step++) {
        const struct ls_fit_options options = {.batch = 8, .steps = 1, .epochs = 9};
        OK(ls_fit(plain, train, &options));
        OK(ls_fit(asked, train, &options));
        OK(ls_predict(asked, train, step % 2 ? 8 : 5, found));
    }
    ck_assert_double_eq(weight_difference(plain, asked), 0);
    OK(ls_save_weights(plain, path));
    OK(ls_load_weights(other, path));
    OK(ls_predict(other, train, EXAMPLES, expected));
    check_same(found, expected, 1e-6f);
    unlink(path);
    ls_model_close(plain);
    ls_model_close(asked);
    ls_model_close(other);
    ls_run_close(own);
}

// The second output is made on the way to the first.
TEST(several_outputs_of_an_example_are_one_row)
{
    float alone[EXAMPLES * CLASSES];
    struct ls_model *model = logits_of(run);
    OK(ls_predict(model, train, 8, alone));
    ls_model_close(model);
    model = logits_of(run);
    struct ls_tensor *outputs[2] = {model->graph->outputs[0],
                                    model->graph->operations[0].outputs[0]};
    OK(ls_graph_set_outputs(model->graph, outputs, 2));
    const uint64_t row = ls_model_output_elements(model);
    ck_assert_uint_eq(row, CLASSES + (uint64_t)ls_shape_elements(&outputs[1]->shape, 1));
    float *out = calloc(EXAMPLES * row, sizeof(*out));
    OK(ls_predict(model, train, 8, out));
    double sum = 0;
    for (uint64_t i = 0; i < EXAMPLES; i++) {
        for (uint64_t k = 0; k < CLASSES; k++)
            ck_assert_float_eq_tol(out[i * row + k], alone[i * CLASSES + k], 1e-6f);
        for (uint64_t k = CLASSES; k < row; k++)
            sum += fabs((double)out[i * row + k]);
    }
    ck_assert_double_gt(sum, 1);
    struct ls_output output;
    ck_assert_uint_eq(ls_output_count(model), 2);
    OK(ls_output_describe(model, 1, &output));
    ck_assert_str_eq(output.name, "conv2d");
    ck_assert_uint_eq(output.elements, row - CLASSES);
    free(out);
    ls_model_close(model);
}

TEST(data_that_does_not_fit_is_refused)
{
    float out[EXAMPLES * CLASSES];
    struct ls_model *model = logits_of(run);
    struct ls_data *larger = data_of("synthetic:shape=5x4x1,examples=50", "train");
    expect_error(ls_predict(model, larger, 8, out), LS_BAD_INPUT, "expects input");
    // Labels that the loss cannot take do not matter.
    OK(ls_compile(model, &(struct ls_compile_options){.loss = "mse", .metrics = "none"}));
    OK(ls_predict(model, train, 8, out));
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = "sgd"}));
    struct ls_data *targets = data_of("synthetic:shape=4x4x1,examples=50,classes=0", "train");
    OK(ls_predict(model, targets, 8, out));
    ls_data_close(targets);
    ls_data_close(larger);
    ls_model_close(model);
}

static enum ls_status predict_within(void *context, const struct ls_fit_state *state)
{
    float out[EXAMPLES * CLASSES];
    (void)context;
    expect_error(ls_predict(state->model, train, 8, out), LS_USAGE, "ls_predict");
    expect_error(ls_predict_to_file(state->model, train, 8, "/tmp/p.npy"), LS_USAGE,
                 "ls_predict_to_file");
    return LS_OK;
}

TEST(a_callback_of_its_own_fit_cannot_predict)
{
    const struct ls_callbacks callbacks = {.on_epoch_end = predict_within};
    struct ls_model *model = model_of(run, "sgd");
    OK(ls_fit(model, train,
              &(struct ls_fit_options){.batch = 8, .callbacks = &callbacks, .callback_count = 1}));
    ls_model_close(model);
}

TEST(an_interruption_ends_one_prediction)
{
    float out[EXAMPLES * CLASSES];
    struct ls_model *model = logits_of(run);
    ls_run_interrupt(run);
    ck_assert_int_eq(ls_predict(model, train, 8, out), LS_INTERRUPTED);
    OK(ls_predict(model, train, 8, out));
    ls_model_close(model);
}

TEST_FIXTURE(set_up, tear_down);
