// SPDX-License-Identifier: Apache-2.0
// How a model was compiled, read from its file: what is supported becomes the words of the command
// line, what is not is refused by name.
#include "tests/layers/support.h"

#include <stdlib.h>
#include <string.h>

#define ALL (LS_COMPILE_OPTIMIZER | LS_COMPILE_LOSS | LS_COMPILE_METRICS)

// `text`: the value of `key`, in which ' stands for ".
static enum ls_status read_key(const char *key, const char *text, uint32_t parts,
                               struct ls_compile_config *out)
{
    char whole[2048];
    snprintf(whole, sizeof(whole), "{\"%s\": %s}", key, text);
    for (char *letter = whole; *letter; letter++)
        if (*letter == '\'')
            *letter = '"';
    json_error_t error;
    json_t *model = json_loads(whole, 0, &error);
    ck_assert_msg(model != NULL, "%s: %s", error.text, whole);
    capture_log();
    const enum ls_status status = ls_model_compile_config("model.json", model, parts, NULL, out);
    json_decref(model);
    return status;
}

static void expect(const char *found, const char *expected)
{
    if (expected)
        ck_assert_str_eq(found ? found : "nothing", expected);
    else
        ck_assert_msg(found == NULL, "expected nothing, got %s", found);
}

#define KERAS3(module, class_name, config)                                              \
    "{'module': 'keras." module "', 'class_name': '" class_name "', 'config': {" config \
    "}, 'registered_name': null}"
#define SGD_REST                                                                           \
    "'weight_decay': null, 'clipnorm': null, 'global_clipnorm': null, 'clipvalue': null, " \
    "'use_ema': false, 'ema_momentum': 0.99, 'ema_overwrite_frequency': null, "            \
    "'loss_scale_factor': null, 'gradient_accumulation_steps': null"

static const struct {
    const char *key, *text;
    const char *optimizer, *loss, *metrics;
    const char *warning; // NULL: none
} files[] = {
    // As Keras 3 writes it: model.compile(SGD(0.5), MeanSquaredError()).
    {"compile_config",
     "{'optimizer': " KERAS3(
         "optimizers", "SGD",
         "'name': 'SGD', 'learning_rate': 0.5, " SGD_REST
         ", 'momentum': 0.0, 'nesterov': false") ", 'loss': " KERAS3("losses", "MeanSquaredError",
                                                                     "'name': "
                                                                     "'mean_squared_error',"
                                                                     " 'reduction': "
                                                                     "'sum_over_batch_"
                                                                     "size'") ", "
                                                                              "'loss_"
                                                                              "weights': "
                                                                              "null, "
                                                                              "'metrics': "
                                                                              "null, "
                                                                              "'weighted_"
                                                                              "metrics': "
                                                                              "null, "
                                                                              "'run_"
                                                                              "eagerly': "
                                                                              "false, "
                                                                              "'steps_per_"
                                                                              "execution': "
                                                                              "1, "
                                                                              "'jit_"
                                                                              "compile': "
                                                                              "true}",
     "sgd:learning_rate=0.5,momentum=0,nesterov=off", "mean_squared_error", NULL},
    // Numbers of Keras are float32.
    {"compile_config",
     "{'optimizer': " KERAS3("optimizers", "Adam",
                             "'name': 'adam', 'learning_rate': "
                             "0.0010000000474974513, " SGD_REST
                             ", 'beta_1': 0.9, 'beta_2': 0.999, 'epsilon': 1e-07, "
                             "'amsgrad': false") ", 'loss': " KERAS3("losses",
                                                                     "SparseCategoricalCros"
                                                                     "sentropy",
                                                                     "'name': 'x', "
                                                                     "'reduction': "
                                                                     "'sum_over_batch_size'"
                                                                     ", 'from_logits': "
                                                                     "true, "
                                                                     "'ignore_class': "
                                                                     "null, 'axis': -1") ","
                                                                                         " "
                                                                                         "'"
                                                                                         "m"
                                                                                         "e"
                                                                                         "t"
                                                                                         "r"
                                                                                         "i"
                                                                                         "c"
                                                                                         "s"
                                                                                         "'"
                                                                                         ":"
                                                                                         " "
                                                                                         "["
                                                                                         "'"
                                                                                         "a"
                                                                                         "c"
                                                                                         "c"
                                                                                         "u"
                                                                                         "r"
                                                                                         "a"
                                                                                         "c"
                                                                                         "y"
                                                                                         "'"
                                                                                         "]"
                                                                                         ","
                                                                                         " "
                                                                                         "'"
                                                                                         "s"
                                                                                         "t"
                                                                                         "e"
                                                                                         "p"
                                                                                         "s"
                                                                                         "_"
                                                                                         "p"
                                                                                         "e"
                                                                                         "r"
                                                                                         "_"
                                                                                         "e"
                                                                                         "x"
                                                                                         "e"
                                                                                         "c"
                                                                                         "u"
                                                                                         "t"
                                                                                         "i"
                                                                                         "o"
                                                                                         "n"
                                                                                         "'"
                                                                                         ":"
                                                                                         " "
                                                                                         "8"
                                                                                         ","
                                                                                         " "
                                                                                         "'"
                                                                                         "r"
                                                                                         "u"
                                                                                         "n"
                                                                                         "_"
                                                                                         "e"
                                                                                         "a"
                                                                                         "g"
                                                                                         "e"
                                                                                         "r"
                                                                                         "l"
                                                                                         "y"
                                                                                         "'"
                                                                                         ":"
                                                                                         " "
                                                                                         "t"
                                                                                         "r"
                                                                                         "u"
                                                                                         "e"
                                                                                         ","
                                                                                         " "
                                                                                         "'"
                                                                                         "j"
                                                                                         "i"
                                                                                         "t"
                                                                                         "_"
                                                                                         "c"
                                                                                         "o"
                                                                                         "m"
                                                                                         "p"
                                                                                         "i"
                                                                                         "l"
                                                                                         "e"
                                                                                         "'"
                                                                                         ":"
                                                                                         " "
                                                                                         "'"
                                                                                         "a"
                                                                                         "u"
                                                                                         "t"
                                                                                         "o"
                                                                                         "'"
                                                                                         ","
                                                                                         " "
                                                                                         "'"
                                                                                         "a"
                                                                                         "u"
                                                                                         "t"
                                                                                         "o"
                                                                                         "_"
                                                                                         "s"
                                                                                         "c"
                                                                                         "a"
                                                                                         "l"
                                                                                         "e"
                                                                                         "_"
                                                                                         "l"
                                                                                         "o"
                                                                                         "s"
                                                                                         "s"
                                                                                         "'"
                                                                                         ":"
                                                                                         " "
                                                                                         "t"
                                                                                         "r"
                                                                                         "u"
                                                                                         "e"
                                                                                         "}",
     "adam:learning_rate=0.001,beta_1=0.9,beta_2=0.999,epsilon=1e-07",
     "sparse_categorical_crossentropy:from_logits=true", "accuracy"},
    // Names alone: model.compile("sgd", "sparse_categorical_crossentropy", ["acc"]).
    {"compile_config",
     "{'optimizer': 'sgd', 'loss': 'sparse_categorical_crossentropy', 'metrics': ['acc']}", "sgd",
     "sparse_categorical_crossentropy", "accuracy"},
    {"compile_config",
     "{'optimizer': 'Adam', 'loss': ['mse'], 'metrics': [" KERAS3(
         "metrics", "SparseCategoricalAccuracy", "'name': 'a', 'dtype': 'float32'") "]}",
     "adam", "mean_squared_error", "sparse_categorical_accuracy:name=a"},
    // Two of a kind, as Keras tells them apart; a name that is no word stays behind, which is said.
    {"compile_config",
     "{'metrics': [" KERAS3("metrics", "AUC", "'name': 'auc'") ", " KERAS3(
         "metrics", "AUC", "'name': 'auc_1', 'curve': 'PR'") ", " KERAS3("metrics", "Precision",
                                                                         "'name': 'a, b:c=d'") "]}",
     NULL, NULL, "auc,auc:curve=PR,name=auc_1,precision",
     "the name 'a, b:c=d' is no key of reports"},
    // Of several outputs, in their order or by their names.
    {"compile_config",
     "{'loss': ['mse', null, " KERAS3("losses", "Huber", "'delta': 2.0") "], 'loss_weights': [1, "
                                                                         "0.5, 2]}",
     NULL, "mean_squared_error,none,huber:delta=2", NULL},
    {"compile_config",
     "{'loss': {'a': 'mse', 'b': 'hinge'}, 'metrics': {'a': ['mae', 'mse'], 'b': null}, "
     "'loss_weights': {'b': 3}}",
     NULL, "a=mean_squared_error,b=hinge", "a=mae,mse"},
    // A function, as its author passes keras.losses.mean_squared_error.
    {"compile_config",
     "{'loss': {'module': 'builtins', 'class_name': 'function', 'config': "
     "'mean_squared_error', "
     "'registered_name': 'function'}}",
     NULL, "mean_squared_error", NULL},
    // Keras 2.
    {"training_config",
     "{'loss': {'class_name': 'SparseCategoricalCrossentropy', 'config': {'reduction': "
     "'auto', "
     "'name': 'x', 'from_logits': false, 'ignore_class': null}}, 'metrics': "
     "[[{'class_name': "
     "'MeanMetricWrapper', 'config': {'name': 'accuracy', 'dtype': 'float32', 'fn': "
     "'sparse_categorical_accuracy'}}]], 'weighted_metrics': null, 'loss_weights': null, "
     "'optimizer_config': {'class_name': 'SGD', 'config': {'name': 'SGD', 'learning_rate': "
     "0.009999999776482582, 'decay': 0.0, 'momentum': 0.8999999761581421, 'nesterov': "
     "true}}}",
     "sgd:learning_rate=0.01,momentum=0.9,nesterov=on", "sparse_categorical_crossentropy",
     "accuracy"},
    {"training_config",
     "{'optimizer_config': {'class_name': 'Adam', 'config': {'lr': 0.1, 'jit_compile': "
     "true, "
     "'is_legacy_optimizer': false}}}",
     "adam:learning_rate=0.1", NULL, NULL},
    // All that an optimizer may be told.
    {"compile_config",
     "{'optimizer': " KERAS3("optimizers", "AdamW",
                             "'learning_rate': 0.01, 'weight_decay': 0.02, 'clipnorm': 1.0, "
                             "'use_ema': true, 'ema_momentum': 0.5, 'ema_overwrite_frequency': 3, "
                             "'beta_1': 0.8, 'amsgrad': true") "}",
     "adamw:learning_rate=0.01,weight_decay=0.02,clipnorm=1,use_ema=on,ema_momentum=0.5,"
     "ema_overwrite_frequency=3,beta_1=0.8,amsgrad=on",
     NULL, NULL},
    {"compile_config",
     "{'optimizer': " KERAS3("optimizers", "RMSprop",
                             "'rho': 0.8, 'momentum': 0.5, 'centered': true, 'global_clipnorm': "
                             "0.5, 'weight_decay': null") "}",
     "rmsprop:rho=0.8,momentum=0.5,centered=on,global_clipnorm=0.5", NULL, NULL},
    {"compile_config", "{'optimizer': 'lamb', 'loss': 'hinge', 'metrics': ['mae', 'AUC']}", "lamb",
     "hinge", "mae,auc"},
    {"compile_config",
     "{'loss': " KERAS3("losses", "CategoricalCrossentropy",
                        "'name': 'x', 'from_logits': true, 'label_smoothing': 0.1") "}",
     NULL, "categorical_crossentropy:from_logits=true,label_smoothing=0.1", NULL},
    {"compile_config", "{'loss': " KERAS3("losses", "Huber", "'delta': 2.0") "}", NULL,
     "huber:delta=2", NULL},
    {"compile_config", "{'loss': " KERAS3("losses", "KLDivergence", "") "}", NULL, "kl_divergence",
     NULL},
    {"compile_config",
     "{'metrics': ['accuracy', " KERAS3(
         "metrics", "AUC",
         "'num_thresholds': 5, 'curve': 'PR', "
         "'summation_method': 'interpolation', 'multi_label': "
         "false, 'num_labels': null, 'thresholds': [0.25, 0.5, "
         "0.75]") ", " KERAS3("metrics", "Precision",
                              "'thresholds': 0.4, "
                              "'top_k': null") ", " KERAS3("metrics",
                                                           "TopKCate"
                                                           "goricalA"
                                                           "ccuracy",
                                                           "'k': 3") "]}",
     NULL, NULL,
     "accuracy,auc:num_thresholds=5,curve=PR,precision:thresholds=0.4,"
     "top_k_categorical_accuracy:k=3"},
    {"compile_config",
     "{'metrics': [" KERAS3("metrics", "AUC",
                            "'num_thresholds': 4, 'name': 'auc_of_thresholds_that_are_not_even', "
                            "'thresholds': [0.3, 0.5]") "]}",
     NULL, NULL, "auc:thresholds=0.3:0.5,name=auc_of_thresholds_that_are_not_even"},
    {"compile_config",
     "{'metrics': [" KERAS3("metrics", "PearsonCorrelation", "'axis': [-1]") ", " KERAS3(
         "metrics", "ConcordanceCorrelation", "'axis': [2]") "]}",
     NULL, NULL, "pearson_correlation,concordance_correlation:axis=2"},
    {"compile_config", "{'metrics': [" KERAS3("metrics", "BinaryAccuracy", "'threshold': 0") "]}",
     NULL, NULL, "binary_accuracy:threshold=0"},
    // What is not compiled.
    {"compile_config", "{}", NULL, NULL, NULL},
    {"compile_config", "null", NULL, NULL, NULL},
    {"something_else", "{'optimizer': 'rmsprop'}", NULL, NULL, NULL},
    {"compile_config", "{'optimizer': null, 'loss': null, 'metrics': [], 'weighted_metrics': []}",
     NULL, NULL, NULL},
};

TABLE_TEST(what_is_supported_becomes_options, files)
{
    struct ls_compile_config config;
    ck_assert_msg(read_key(files[_i].key, files[_i].text, ALL, &config) == LS_OK, "%s", logged);
    ck_assert_int_eq(logged_lines, files[_i].warning ? 1 : 0);
    if (files[_i].warning)
        ck_assert_msg(strstr(logged, files[_i].warning) != NULL, "%s", logged);
    expect(config.optimizer, files[_i].optimizer);
    expect(config.loss, files[_i].loss);
    expect(config.metrics, files[_i].metrics);
    ls_compile_config_finish(&config);
}

#define OPTIMIZER(class_name, config) "{'optimizer': " KERAS3("optimizers", class_name, config) "}"
#define METRIC(class_name, config) "{'metrics': [" KERAS3("metrics", class_name, config) "]}"
#define LOSS(class_name, config) "{'loss': " KERAS3("losses", class_name, config) "}"

static const struct {
    const char *text;
    uint32_t part; // without which nothing is wrong; 0: always wrong
    const char *line;
} refusals[] = {
    {OPTIMIZER("Ftrl", ""), LS_COMPILE_OPTIMIZER,
     "model.json: compile_config.optimizer: 'Ftrl' is not supported yet; supported: sgd, adam, "
     "adamw, rmsprop, adagrad, adadelta, adamax, nadam, lamb; --optimizer= overrides it"},
    {OPTIMIZER("Lion", ""), LS_COMPILE_OPTIMIZER, "'Lion' is not supported yet"},
    {"{'optimizer': 'addam'}", LS_COMPILE_OPTIMIZER, "'addam' is unknown; did you mean 'adam'?"},
    {"{'optimizer': 3}", LS_COMPILE_OPTIMIZER, "optimizer: expected one of Keras's, got 3"},
    {"{'optimizer': {'module': 'my', 'class_name': 'Adam', 'config': {}}}", LS_COMPILE_OPTIMIZER,
     "optimizer: expected one of Keras's, got {"},
    {OPTIMIZER("SGD", "'decay': 0.004"), LS_COMPILE_OPTIMIZER,
     "compile_config.optimizer.decay: 0.004 is not supported; --optimizer= overrides it"},
    {OPTIMIZER("SGD", "'clipnorm': -1.0"), LS_COMPILE_OPTIMIZER,
     "optimizer.clipnorm: expected a number from 0, got -1.0"},
    {OPTIMIZER("SGD", "'gradient_accumulation_steps': 4"), LS_COMPILE_OPTIMIZER,
     "gradient_accumulation_steps: 4 is not supported"},
    {OPTIMIZER("Nadam", "'amsgrad': true"), LS_COMPILE_OPTIMIZER,
     "optimizer.amsgrad: true is not supported"},
    {OPTIMIZER("Adam", "'momentum': 0.9"), LS_COMPILE_OPTIMIZER,
     "optimizer.momentum: 0.9 is not supported"},
    {OPTIMIZER("SGD", "'mine': 'x'"), LS_COMPILE_OPTIMIZER,
     "optimizer.mine: \"x\" is not supported"},
    {OPTIMIZER("SGD", "'learning_rate': " KERAS3("optimizers.schedules", "MyDecay",
                                                 "'initial_learning_rate': 0.1")),
     LS_COMPILE_OPTIMIZER,
     "optimizer.learning_rate: the schedule MyDecay is not supported; piecewise_constant_decay "
     "takes"},
    {OPTIMIZER("SGD", "'learning_rate': -1"), LS_COMPILE_OPTIMIZER,
     "optimizer.learning_rate: expected a number from 0, got -1"},
    {OPTIMIZER("SGD", "'learning_rate': 'x'"), LS_COMPILE_OPTIMIZER,
     "optimizer.learning_rate: expected a number from 0, got \"x\""},
    {OPTIMIZER("SGD", "'momentum': 1"), LS_COMPILE_OPTIMIZER,
     "optimizer.momentum: expected a number from 0 to below 1, got 1"},
    {OPTIMIZER("SGD", "'nesterov': 1"), LS_COMPILE_OPTIMIZER,
     "optimizer.nesterov: 1 is not supported"},
    {LOSS("Dice", ""), LS_COMPILE_LOSS, "model.json: compile_config.loss: 'Dice' is not supported"},
    {"{'loss': 'tversky'}", LS_COMPILE_LOSS, "loss: 'tversky' is not supported yet"},
    {LOSS("MeanSquaredError", "'reduction': 'sum'"), LS_COMPILE_LOSS,
     "compile_config.loss.reduction: \"sum\" is not supported; only the mean of the examples is "
     "computed; --loss= "
     "overrides it"},
    {LOSS("SparseCategoricalCrossentropy", "'ignore_class': 0"), LS_COMPILE_LOSS,
     "loss.ignore_class: 0 is not supported"},
    {LOSS("SparseCategoricalCrossentropy", "'axis': 1"), LS_COMPILE_LOSS,
     "loss.axis: 1 is not supported"},
    {LOSS("MeanSquaredError", "'dtype': 'float16'"), LS_COMPILE_LOSS,
     "loss.dtype: \"float16\" is not supported"},
    {"{'loss': ['mse', 'tversky']}", LS_COMPILE_LOSS, "loss: 'tversky' is not supported yet"},
    {"{'loss': {'a': 'mse', 'b': 3}}", LS_COMPILE_LOSS, "loss: expected one of Keras's, got 3"},
    {"{'loss_weights': [1, 'x']}", LS_COMPILE_LOSS, "loss_weights: [1, \"x\"] is not supported"},
    {"{'loss_weights': 2}", LS_COMPILE_LOSS, "loss_weights: 2 is not supported"},
    {"{'metrics': {'a': ['mae'], 'b': 'MeanRelativeError'}}", LS_COMPILE_METRICS,
     "'MeanRelativeError' is not"},
    {"{'metrics': [{'class_name': 'MeanIoU', 'config': {'name': 'm', 'dtype': 'float32', "
     "'num_classes': 3, 'sparse_y_pred': true}}]}",
     LS_COMPILE_METRICS, "sparse_y_pred"},
    {"{'metrics': [{'class_name': 'F1Score', 'config': {'name': 'f', 'average': null}}]}",
     LS_COMPILE_METRICS,
     "average: null gives one score for each column, and a metric is one number"},
    {"{'metrics': [{'class_name': 'R2Score', 'config': {'name': 'r', 'class_aggregation': null}}]}",
     LS_COMPILE_METRICS, "take uniform_average or variance_weighted_average"},
    {"{'metrics': [{'class_name': 'OneHotMeanIoU', 'config': {'name': 'm', 'dtype': 'float32', "
     "'num_classes': 3, 'sparse_y_pred': false, 'axis': 0}}]}",
     LS_COMPILE_METRICS, "axis: 0 is not supported"},
    {"{'metrics': ['accuracy', 'MeanRelativeError']}", LS_COMPILE_METRICS,
     "compile_config.metrics: 'MeanRelativeError' is not supported yet; supported: accuracy, "
     "binary_accuracy"},
    {"{'metrics': [" KERAS3("metrics", "Accuracy", "") "]}", LS_COMPILE_METRICS,
     "metrics: 'Accuracy' is unknown; did you mean 'accuracy'?"},
    // What a number that is 0, or a value that is not Keras's default, must not be taken for.
    {METRIC("Precision", "'class_id': 0"), LS_COMPILE_METRICS, "class_id: 0 is not supported"},
    {METRIC("Recall", "'top_k': 2"), LS_COMPILE_METRICS, "top_k: 2 is not supported"},
    {METRIC("AUC", "'thresholds': [0.3, 'x']"), LS_COMPILE_METRICS, "thresholds: expected numbers"},
    {METRIC("AUC", "'multi_label': true"), LS_COMPILE_METRICS, "multi_label: true is not"},
    {METRIC("AUC", "'summation_method': 'minoring'"), LS_COMPILE_METRICS, "summation_method: "},
    {METRIC("SparseCategoricalCrossentropy", "'ignore_class': 0"), LS_COMPILE_METRICS,
     "ignore_class: 0 is not supported"},
    {METRIC("CosineSimilarity", "'axis': 1"), LS_COMPILE_METRICS, "axis: 1 is not supported"},
    {METRIC("MeanSquaredError", "'reduction': 'sum'"), LS_COMPILE_METRICS, "reduction: "},
    {LOSS("SparseCategoricalCrossentropy", "'ignore_class': 0"), LS_COMPILE_LOSS,
     "ignore_class: 0 is not supported"},
    {LOSS("CosineSimilarity", "'axis': 1"), LS_COMPILE_LOSS, "axis: 1 is not supported"},
    {LOSS("BinaryFocalCrossentropy", "'gamma': 2.0"), LS_COMPILE_LOSS,
     "'BinaryFocalCrossentropy' is not supported yet"},
    {"{'weighted_metrics': ['accuracy']}", LS_COMPILE_METRICS,
     "compile_config.weighted_metrics: [\"accuracy\"] is not supported; --metrics= overrides it"},
    {"{'mine': 1}", 0, "compile_config.mine: 1 is not supported; remove it"},
    {"[1]", 0, "compile_config: expected an object"},
};

TABLE_TEST(what_is_not_supported_is_refused_unless_it_is_overridden, refusals)
{
    struct ls_compile_config config;
    ck_assert_int_eq(read_key("compile_config", refusals[_i].text, ALL, &config), LS_BAD_INPUT);
    ck_assert_int_eq(logged_lines, 1);
    ck_assert_msg(strstr(logged, refusals[_i].line) != NULL, "expected: %s\ngot: %s",
                  refusals[_i].line, logged);
    const uint32_t others = ALL & ~refusals[_i].part;
    ck_assert_int_eq(read_key("compile_config", refusals[_i].text, others, &config),
                     refusals[_i].part ? LS_OK : LS_BAD_INPUT);
    ck_assert_int_eq(logged_lines, refusals[_i].part ? 0 : 1);
    ls_compile_config_finish(&config);
}

TEST(all_that_is_not_supported_is_said_at_once)
{
    struct ls_compile_config config;
    ck_assert_int_eq(read_key("compile_config",
                              "{'optimizer': " KERAS3(
                                  "optimizers", "SGD",
                                  "'decay': 1, 'mine': true") ", "
                                                              "'loss': 'dice', 'metrics': ['iou', "
                                                              "'MeanRelativeError']}",
                              ALL, &config),
                     LS_BAD_INPUT);
    ck_assert_int_eq(logged_lines, 5);
    ck_assert_ptr_null(config.optimizer);
}

TEST(a_schedule_is_an_option_of_its_own)
{
    static const struct {
        const char *text, *schedule;
    } schedules[] = {
        {KERAS3("optimizers.schedules", "CosineDecay",
                "'initial_learning_rate': 0.01, 'decay_steps': 100, 'alpha': 0.0, 'name': "
                "'CosineDecay', 'warmup_target': null, 'warmup_steps': 0"),
         "cosine_decay:initial_learning_rate=0.01,decay_steps=100,alpha=0,warmup_steps=0"},
        {KERAS3("optimizers.schedules", "PiecewiseConstantDecay",
                "'boundaries': [100, 200], 'values': [0.1, 0.01, 0.001], 'name': 'x'"),
         "piecewise_constant_decay:boundaries=100:200,values=0.1:0.01:0.001"},
        {KERAS3("optimizers.schedules", "ExponentialDecay",
                "'initial_learning_rate': 0.1, 'decay_steps': 10, 'decay_rate': 0.5, 'staircase': "
                "true"),
         "exponential_decay:initial_learning_rate=0.1,decay_steps=10,decay_rate=0.5,"
         "staircase=on"},
    };
    for (size_t i = 0; i < sizeof(schedules) / sizeof(schedules[0]); i++) {
        struct ls_compile_config config;
        char text[1024];
        snprintf(text, sizeof(text),
                 "{'optimizer': {'module': 'keras.optimizers', 'class_name': 'SGD', 'config': "
                 "{'learning_rate': %s}}}",
                 schedules[i].text);
        ck_assert_msg(read_key("compile_config", text, ALL, &config) == LS_OK, "%s", logged);
        expect(config.optimizer, "sgd");
        expect(config.schedule, schedules[i].schedule);
        ls_compile_config_finish(&config);
    }
}

#define SCALED(config)                                                                    \
    "{'optimizer': " KERAS3("optimizers", "LossScaleOptimizer",                           \
                            "'name': 'loss_scale_optimizer', 'inner_optimizer': " KERAS3( \
                                "optimizers", "SGD",                                      \
                                "'name': 'sgd', 'learning_rate': 0.5, " SGD_REST) ", " config) "}"

// It is around another one.
TEST(a_loss_scale_is_an_option_of_its_own)
{
    static const struct {
        const char *text, *scale;
    } files_with_scales[] = {
        {SCALED("'initial_scale': 1024, 'dynamic_growth_steps': 3"),
         "dynamic:initial_scale=1024,dynamic_growth_steps=3"},
        {SCALED("'initial_scale': 32768.0, 'dynamic_growth_steps': 2000, 'learning_rate': 0.0, "
                "'clipnorm': null, 'use_ema': false, 'ema_momentum': 0.99"),
         "dynamic:initial_scale=32768,dynamic_growth_steps=2000"},
        {SCALED("'initial_scale': 64.0, 'dynamic_growth_steps': null, 'dynamic': false"), "64"},
        {"{'optimizer': " KERAS3("optimizers", "SGD",
                                 "'learning_rate': 0.5, 'loss_scale_factor': 128.0") "}",
         "128"},
    };
    struct ls_compile_config config;
    for (size_t i = 0; i < sizeof(files_with_scales) / sizeof(files_with_scales[0]); i++) {
        ck_assert_msg(read_key("compile_config", files_with_scales[i].text, ALL, &config) == LS_OK,
                      "%s", logged);
        expect(config.optimizer, "sgd:learning_rate=0.5");
        expect(config.loss_scale, files_with_scales[i].scale);
        ls_compile_config_finish(&config);
    }
    // That of an optimizer that is overridden is overridden with it.
    ck_assert_int_eq(
        read_key("compile_config", files_with_scales[0].text, LS_COMPILE_LOSS, &config), LS_OK);
    expect(config.loss_scale, NULL);
    ls_compile_config_finish(&config);
    ck_assert_int_eq(read_key("compile_config", SCALED("'clipnorm': 1.0"), ALL, &config),
                     LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(logged, "optimizer.clipnorm: 1.0 is not supported"));
    ck_assert_int_eq(read_key("compile_config",
                              "{'optimizer': {'class_name': 'LossScaleOptimizer', 'config': "
                              "{'initial_scale': 2}}}",
                              ALL, &config),
                     LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(logged, "optimizer: expected one of Keras's"));
}

// A damaged file may have tens of thousands of problems.
TEST(of_many_problems_the_first_are_said_and_the_others_counted)
{
    char text[1024] = "{'metrics': [";
    struct ls_compile_config config;
    unsigned lines = 0;
    for (int i = 0; i < 100; i++)
        strcat(text, i ? ", 0.5" : "0.5");
    strcat(text, "]}");
    ck_assert_int_eq(read_key("compile_config", text, ALL, &config), LS_BAD_INPUT);
    for (const char *at = logged; (at = strstr(at, "compile_config")); at++)
        lines++;
    ck_assert_uint_eq(lines, LS_GRAPH_PROBLEMS + 1);
    ck_assert_ptr_nonnull(strstr(logged, "and 80 more problems of compile_config"));
}

TEST_SECONDS(100);
