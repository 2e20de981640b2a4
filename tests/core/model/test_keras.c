// SPDX-License-Identifier: Apache-2.0
// Models from files of Keras: their compile configuration, their input's shape, what keeps them
// from being trained.
#include "core/formats/safetensors.h"
#include "tests/core/train/fixture.h"

#include <stdarg.h>
#include <stdio.h>

#define SGD                                                                               \
    "{\"class_name\": \"SGD\", \"config\": {\"learning_rate\": 0.5, \"momentum\": 0.25, " \
    "\"nesterov\": false, \"weight_decay\": null}}"
#define MSE "{\"class_name\": \"MeanSquaredError\", \"config\": {}}"

static char path[] = "/tmp/lockstep-keras-XXXXXX";
static char infos[1024];
static unsigned info_count;

// Errors go to `message` as always, information to `infos`.
static void keep_line(void *context, uint32_t level, const char *line)
{
    keep_error(context, level, line);
    if (level != LS_LOG_INFO)
        return;
    info_count++;
    snprintf(infos, sizeof(infos), "%s", line);
}

// A model of one Dense layer with `units` on an input of `shape`, from a file; `options` of the
// layer and what stands behind "config" of the model begin with a comma.
static struct ls_model *open_file(const char *shape, int units, const char *options,
                                  const char *more)
{
    struct ls_model *model = NULL;
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fprintf(file,
            "{\"class_name\": \"Sequential\", \"config\": {\"name\": \"m\", \"layers\": ["
            "{\"class_name\": \"InputLayer\", \"config\": {\"batch_shape\": [null, %s]}},"
            "{\"class_name\": \"Flatten\", \"config\": {}},"
            "{\"class_name\": \"Dense\", \"config\": {\"name\": \"d\", \"units\": %d%s}}]}%s}",
            shape, units, options, more);
    ck_assert_int_eq(fclose(file), 0);
    OK(ls_model_open(run, path, NULL, &model));
    ls_log_set_writer(keep_line, NULL);
    infos[0] = '\0';
    info_count = 0;
    return model;
}

static void open_path(void)
{
    set_up();
    const int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
}

static void remove_path(void)
{
    unlink(path);
    strcpy(path + strlen(path) - 6, "XXXXXX");
    tear_down();
}

static void fit(struct ls_model *model)
{
    OK(ls_fit(model, train, &(struct ls_fit_options){.batch = 10, .epochs = 2}));
}

// ---- compile_config ----

#define COMPILED \
    ", \"compile_config\": {\"optimizer\": " SGD ", \"loss\": " MSE ", \"metrics\": null}"

TEST(what_the_caller_leaves_open_is_the_files)
{
    struct ls_model *from_file = open_file("4, 4, 1", 1, "", COMPILED);
    struct ls_model *by_hand = open_file("4, 4, 1", 1, "", COMPILED);
    OK(ls_compile(from_file, NULL));
    ck_assert_uint_eq(info_count, 1);
    ck_assert_ptr_nonnull(strstr(infos, path));
    ck_assert_ptr_nonnull(
        strstr(infos, ": from the file's compile_config: optimizer "
                      "sgd:learning_rate=0.5,momentum=0.25,nesterov=off, loss mean_squared_error"));
    OK(ls_compile(by_hand,
                  &(struct ls_compile_options){.optimizer = "sgd:learning_rate=0.5,momentum=0.25",
                                               .loss = "mse",
                                               .metrics = "none"}));
    ck_assert_uint_eq(info_count, 1); // nothing is the file's
    ck_assert_double_eq(from_file->optimizer.learning_rate, 0.5);
    fit(from_file);
    fit(by_hand);
    ck_assert_double_eq(weight_difference(from_file, by_hand), 0);
    ls_model_close(from_file);
    ls_model_close(by_hand);
}

TEST(what_the_caller_says_overrides_the_file)
{
    static const char unsupported[] =
        ", \"compile_config\": {\"optimizer\": \"ftrl\", \"loss\": \"dice\", \"metrics\": "
        "[\"iou\"], \"loss_weights\": [1.0], \"weighted_metrics\": [\"mae\"]}";
    struct ls_model *model = open_file("4, 4, 1", 10, "", unsupported);
    ck_assert_int_eq(ls_compile(model, NULL), LS_BAD_INPUT);
    ck_assert_uint_eq(errors, 4); // one loss_weight is fine
    forget_errors();
    ck_assert_int_eq(
        ls_compile(model, &(struct ls_compile_options){.optimizer = "adam", .loss = "mse"}),
        LS_BAD_INPUT);
    ck_assert_uint_eq(errors, 2); // both metrics
    forget_errors();
    OK(ls_compile(model, &(struct ls_compile_options){
                             .optimizer = "adam", .loss = "mse", .metrics = "none"}));
    ls_model_close(model);
}

TEST(only_what_is_overridden_is_left_out)
{
    static const char unsupported[] =
        ", \"compile_config\": {\"optimizer\": \"ftrl\", \"metrics\": [\"accuracy\"]}";
    struct ls_model *model = open_file("4, 4, 1", 10, "", unsupported);
    expect_error(ls_compile(model, &(struct ls_compile_options){.metrics = "none"}), LS_BAD_INPUT,
                 "compile_config.optimizer: 'ftrl' is not supported yet; supported: sgd, adam");
    ls_log_set_writer(keep_line, NULL);
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = "sgd"}));
    ck_assert_ptr_nonnull(strstr(infos, "compile_config: metrics accuracy"));
    ck_assert(ls_metric_set_has(&model->metrics, "accuracy"));
    expect_error(ls_compile(model, &(struct ls_compile_options){.optimizer = "sgd", .loss = "mse"}),
                 LS_BAD_INPUT, "compile_config.metrics: accuracy needs classes");
    ls_model_close(model);
}

// ---- What only training minds ----

TEST(a_frozen_layer_is_evaluated_but_not_trained)
{
    struct ls_model *model = open_file("4, 4, 1", 10, ", \"trainable\": false", "");
    struct ls_scores scores;
    OK(ls_compile(model, NULL));
    OK(ls_evaluate(model, test, 0, &scores));
    expect_error(ls_fit(model, train, NULL), LS_BAD_INPUT,
                 "are frozen; set trainable to true in those to train");
    ls_model_close(model);
}

TEST(a_regularizer_changes_the_loss_of_an_evaluation_too)
{
    struct ls_model *model = open_file(
        "4, 4, 1", 10, ", \"kernel_regularizer\": {\"class_name\": \"OrthogonalRegularizer\"}", "");
    expect_error(ls_compile(model, NULL), LS_BAD_INPUT,
                 "layer 'd' (Dense): kernel_regularizer: OrthogonalRegularizer is not supported");
    ls_model_close(model);
}

// ---- Shapes ----

// The examples are 4x4x1.
TEST(examples_are_reshaped_into_an_input_of_as_many_elements)
{
    static const char *const shapes[] = {"16", "4, 4", "1, 4, 4", "2, 8", "8, 1, 2"};
    struct ls_model *same = open_file("4, 4, 1", 10, "", "");
    struct ls_scores scores[2];
    OK(ls_compile(same, NULL));
    fit(same);
    OK(ls_evaluate(same, test, 0, &scores[0]));
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct ls_model *model = open_file(shapes[i], 10, "", "");
        OK(ls_compile(model, NULL));
        fit(model);
        OK(ls_evaluate(model, test, 0, &scores[1]));
        ck_assert_double_eq(weight_difference(same, model), 0);
        ck_assert_double_eq(ls_metric_value(&scores[0].metrics, "loss"),
                            ls_metric_value(&scores[1].metrics, "loss"));
        ls_model_close(model);
    }
    ls_model_close(same);
}

TEST(examples_of_another_size_are_refused_with_both_shapes)
{
    struct ls_model *model = open_file("15", 10, "", "");
    struct ls_scores scores;
    OK(ls_compile(model, NULL));
    expect_error(ls_fit(model, train, NULL), LS_BAD_INPUT,
                 "expects input 'input_layer' (None, 15), but field 'x' of '" DATA
                 "' is (None, 4, 4, 1)");
    expect_error(ls_evaluate(model, test, 0, &scores), LS_BAD_INPUT, "(None, 15)");
    ls_model_close(model);
}

// A reshape of rows x columns x channels into channels x rows x columns would tear the pixels
// apart.
TEST(the_same_sizes_in_another_order_are_refused)
{
    static const char *const orders[] = {"3, 4, 5", "5, 4, 3", "4, 3, 5", "3, 1, 4, 5"};
    struct ls_data *data = data_of("synthetic:shape=4x5x3,examples=20", "train");
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
        struct ls_model *model = open_file(orders[i], 10, "", "");
        OK(ls_compile(model, NULL));
        expect_error(ls_fit(model, data, NULL), LS_BAD_INPUT, "is (None, 4, 5, 3)");
        ls_model_close(model);
    }
    ls_data_close(data);
}

// ---- Names of weights ----

// Writes the weights of `model` to the path, each name with `before` and `behind` it; of `twice`
// also under that prefix.
static void write_named(struct ls_model *model, const char *before, const char *behind,
                        const char *twice)
{
    struct ls_saved_tensor tensors[4];
    char names[4][64];
    size_t count = 0;
    OK(ls_model_take(model, LS_TAKE_WEIGHTS));
    for (int copy = 0; copy < (twice ? 2 : 1); copy++)
        for (uint32_t i = 0; i < model->graph->parameter_count; i++, count++) {
            const struct ls_tensor *parameter = model->graph->parameters[i];
            snprintf(names[count], sizeof(names[count]), "%s%s%s", copy ? twice : before,
                     parameter->name, behind);
            tensors[count] = (struct ls_saved_tensor){
                .name = names[count], .ndims = parameter->shape.ndims, .data = model->weights[i]};
            memcpy(tensors[count].dims, parameter->shape.dims, sizeof(parameter->shape.dims));
        }
    OK(ls_safetensors_write(path, tensors, count));
}

static const struct {
    const char *before, *behind;
} namings[] = {{"", ""},   {"sequential/", ""},       {"m/", ""},
               {"", ":0"}, {"sequential_1/m/", ":0"}, {"d/", ""}};

TABLE_TEST(weights_with_the_name_of_their_model_in_front_are_read, namings)
{
    struct ls_model *trained = open_file("4, 4, 1", 10, "", "");
    struct ls_model *other = open_file("4, 4, 1", 10, "", "");
    OK(ls_compile(trained, NULL));
    fit(trained);
    write_named(trained, namings[_i].before, namings[_i].behind, NULL);
    OK(ls_load_weights(other, path));
    ck_assert_double_eq(weight_difference(trained, other), 0);
    ls_model_close(trained);
    ls_model_close(other);
}

TEST(weights_of_two_models_are_refused)
{
    struct ls_model *model = open_file("4, 4, 1", 10, "", "");
    OK(ls_model_need_weights(model));
    write_named(model, "student/", "", "teacher/");
    expect_error(ls_load_weights(model, path), LS_BAD_INPUT, "has the tensors of model '");
    write_named(model, "", "", "teacher/");
    expect_error(ls_load_weights(model, path), LS_BAD_INPUT, "has the tensors of model '");
    ls_model_close(model);
}

static char warning[512]; // the last

static void keep_warning(void *context, uint32_t level, const char *line)
{
    (void)context;
    if (level == LS_LOG_WARN)
        snprintf(warning, sizeof(warning), "%s", line);
}

// As in a checkpoint, or a model whose last layers were cut off.
TEST(tensors_that_the_model_does_not_have_are_named_and_left)
{
    struct ls_model *trained = open_file("4, 4, 1", 10, "", "");
    struct ls_model *other = open_file("4, 4, 1", 10, "", "");
    OK(ls_compile(trained, NULL));
    fit(trained);
    OK(ls_model_take(trained, LS_TAKE_WEIGHTS));
    struct ls_saved_tensor tensors[7];
    char names[7][64];
    const struct ls_graph *graph = trained->graph;
    for (uint32_t i = 0; i < 5 + graph->parameter_count; i++) {
        const uint32_t k = i < 5 ? 0 : i - 5;
        const struct ls_tensor *parameter = graph->parameters[k];
        snprintf(names[i], sizeof(names[i]), i < 5 ? "optimizer/%u" : "%.0u%s", i < 5 ? i : 0,
                 parameter->name);
        tensors[i] = (struct ls_saved_tensor){
            .name = names[i], .ndims = parameter->shape.ndims, .data = trained->weights[k]};
        memcpy(tensors[i].dims, parameter->shape.dims, sizeof(parameter->shape.dims));
    }
    OK(ls_safetensors_write(path, tensors, 5 + graph->parameter_count));
    ls_log_set_writer(keep_warning, NULL);
    OK(ls_load_weights(other, path));
    ck_assert_msg(strstr(warning, "does not have 5 of the file's tensors: 'optimizer/0', "
                                  "'optimizer/1', 'optimizer/2', ...") != NULL,
                  "%s", warning);
    ck_assert_double_eq(weight_difference(trained, other), 0);
    ls_model_close(trained);
    ls_model_close(other);
}

TEST(weights_with_other_names_are_refused)
{
    static const char *const others[][2] = {{"x", ""}, {"", "s"}, {"", ":1"}, {"", ":0/x"}};
    struct ls_model *model = open_file("4, 4, 1", 10, "", "");
    OK(ls_model_need_weights(model));
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        write_named(model, others[i][0], others[i][1], NULL);
        expect_error(ls_load_weights(model, path), LS_BAD_INPUT, "has no tensor 'd/kernel', which");
    }
    ls_model_close(model);
}

TEST_FIXTURE(open_path, remove_path);
TEST_SECONDS(100);
