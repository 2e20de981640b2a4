// SPDX-License-Identifier: Apache-2.0
// Names of metrics, and how they are made of what was counted.
#include "core/model/metrics.h"

#include "core/base/keras_names.h"
#include "core/model/class_metrics.h"
#include "core/base/log.h"
#include "core/base/options.h"
#include "core/plugin/strategy.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THRESHOLDS_MOST 10000
#define LONGEST_NAME 128 // bytes of a key, with "val_" and the zero behind it
#define KERAS_EPSILON 1e-7
#define KERAS_TOLERANCE 1e-5 // numpy.allclose, relative

static const struct ls_plugin_option threshold_options[] = {
    {"threshold", "number", "0.5", "predictions above it are 1"},
    {NULL, NULL, NULL, NULL},
};
static const struct ls_plugin_option thresholds_options[] = {
    {"thresholds", "number", "0.5",
     "predictions above it are positive; 0.2:0.5 is a metric for each, NAME_at_0.2 and so on"},
    {NULL, NULL, NULL, NULL},
};
static const struct ls_plugin_option top_options[] = {
    {"k", "integer", "5", "how many of the largest predictions may be the right one"},
    {NULL, NULL, NULL, NULL},
};
static const struct ls_plugin_option area_options[] = {
    {"num_thresholds", "integer", "200", "points of the curve"},
    {"curve", "one of: ROC, PR", "ROC", "true by false positives, or precision by recall"},
    {"thresholds", "text", NULL, "those of the points between 0 and 1 instead, as 0.2:0.5:0.9"},
    {NULL, NULL, NULL, NULL},
};

static const struct ls_plugin_option fbeta_options[] = {
    {"average", "one of: macro, micro, weighted", NULL,
     "the mean over classes, or over their targets, or one score of all counts"},
    {"beta", "number", "1", "how many times as much recall counts as precision"},
    {"threshold", "number", NULL, "predictions above it are positive, else the largest one is"},
    {NULL, NULL, NULL, NULL},
};
static const struct ls_plugin_option mean_union_options[] = {
    {"num_classes", "integer", NULL, "as many as the output has"},
    {NULL, NULL, NULL, NULL},
};
static const struct ls_plugin_option union_options[] = {
    {"num_classes", "integer", NULL, "as many as the output has"},
    {"target_class_ids", "text", NULL, "the classes that count, as 0:2"},
    {NULL, NULL, NULL, NULL},
};
static const struct ls_plugin_option binary_union_options[] = {
    {"threshold", "number", "0.5", "predictions above it are class 1"},
    {"target_class_ids", "text", "0:1", "the classes that count: 0, 1 or 0:1"},
    {NULL, NULL, NULL, NULL},
};
static const struct ls_plugin_option r2_options[] = {
    {"class_aggregation", "one of: uniform_average, variance_weighted_average", "uniform_average",
     "how the scores of several columns become one"},
    {"num_regressors", "integer", "0", "of the adjusted score; 0: it is not adjusted"},
    {NULL, NULL, NULL, NULL},
};
static const struct ls_plugin_option correlation_options[] = {
    {"axis", "integer", "-1", "the last one, along which predictions and targets are compared"},
    {NULL, NULL, NULL, NULL},
};
#define AT_OPTIONS(other)                                                                          \
    {                                                                                              \
        {other, "number", NULL, "the least at a point, from 0 to 1"},                              \
            {"num_thresholds", "integer", "200", "points of the curve"}, {NULL, NULL, NULL, NULL}, \
    }
static const struct ls_plugin_option at_recall_options[] = AT_OPTIONS("recall");
static const struct ls_plugin_option at_precision_options[] = AT_OPTIONS("precision");
static const struct ls_plugin_option at_specificity_options[] = AT_OPTIONS("specificity");
static const struct ls_plugin_option at_sensitivity_options[] = AT_OPTIONS("sensitivity");

struct metric_name {
    const char *name;
    const char *summary; // NULL: that of the loss
    const struct ls_plugin_option *options; // NULL: none, or those of the loss
};

#define OF_LOSS(METRIC, name) METRIC(name, NULL, NULL) // its mean, with the options that it has

// Each once: the table and the names in it.
#define METRICS(METRIC)                                                                            \
    METRIC("accuracy", "share of right predictions, counted as the shape of the output asks",      \
           NULL)                                                                                   \
    METRIC("none", "none but the loss", NULL)                                                      \
    METRIC("acc", "the same as accuracy", NULL)                                                    \
    METRIC("binary_accuracy", "share of right predictions, each 0 or 1", threshold_options)        \
    METRIC("categorical_accuracy", "share of right classes, of one-hot targets", NULL)             \
    METRIC("sparse_categorical_accuracy", "share of right classes, of labels", NULL)               \
    METRIC("top_k_categorical_accuracy",                                                           \
           "share of classes among the k largest predictions, of one-hot targets", top_options)    \
    METRIC("sparse_top_k_categorical_accuracy",                                                    \
           "share of classes among the k largest predictions, of labels", top_options)             \
    METRIC("auc", "area under the curve of true by false positives, or of precision by recall",    \
           area_options)                                                                           \
    METRIC("precision", "share of the positive predictions that are right", thresholds_options)    \
    METRIC("recall", "share of the positive targets that are predicted", thresholds_options)       \
    METRIC("true_positives", "predictions above the threshold that are right", thresholds_options) \
    METRIC("false_positives", "predictions above it that are wrong", thresholds_options)           \
    METRIC("false_negatives", "predictions below it that are wrong", thresholds_options)           \
    METRIC("true_negatives", "predictions below it that are right", thresholds_options)            \
    METRIC("f1_score", "harmonic mean of precision and recall of classes", fbeta_options)          \
    METRIC("fbeta_score", "mean of precision and recall of classes, weighted", fbeta_options)      \
    METRIC("mean_io_u", "mean over classes of what is right by what is predicted or a target",     \
           mean_union_options)                                                                     \
    METRIC("one_hot_mean_io_u", "the same as mean_io_u", mean_union_options)                       \
    METRIC("io_u", "the same of some classes", union_options)                                      \
    METRIC("one_hot_io_u", "the same as io_u", union_options)                                      \
    METRIC("binary_io_u", "the same of predictions that are 0 or 1", binary_union_options)         \
    METRIC("precision_at_recall", "largest precision where the recall is enough",                  \
           at_recall_options)                                                                      \
    METRIC("recall_at_precision", "largest recall where the precision is enough",                  \
           at_precision_options)                                                                   \
    METRIC("sensitivity_at_specificity", "largest sensitivity where the specificity is enough",    \
           at_specificity_options)                                                                 \
    METRIC("specificity_at_sensitivity", "largest specificity where the sensitivity is enough",    \
           at_sensitivity_options)                                                                 \
    METRIC("r2_score", "share of the variance of targets that predictions explain", r2_options)    \
    METRIC("pearson_correlation", "linear correlation of each example's targets and predictions",  \
           correlation_options)                                                                    \
    METRIC("concordance_correlation", "the same, lower where scale or mean differ",                \
           correlation_options)                                                                    \
    OF_LOSS(METRIC, "mean_absolute_error")                                                         \
    OF_LOSS(METRIC, "mae")                                                                         \
    OF_LOSS(METRIC, "mean_squared_error")                                                          \
    OF_LOSS(METRIC, "mse")                                                                         \
    METRIC("root_mean_squared_error", "the square root of the mean squared error", NULL)           \
    OF_LOSS(METRIC, "mean_absolute_percentage_error")                                              \
    OF_LOSS(METRIC, "mape")                                                                        \
    OF_LOSS(METRIC, "mean_squared_logarithmic_error")                                              \
    OF_LOSS(METRIC, "msle")                                                                        \
    OF_LOSS(METRIC, "huber")                                                                       \
    OF_LOSS(METRIC, "log_cosh")                                                                    \
    OF_LOSS(METRIC, "kl_divergence")                                                               \
    OF_LOSS(METRIC, "poisson")                                                                     \
    OF_LOSS(METRIC, "hinge")                                                                       \
    OF_LOSS(METRIC, "squared_hinge")                                                               \
    OF_LOSS(METRIC, "categorical_hinge")                                                           \
    OF_LOSS(METRIC, "cosine_similarity")                                                           \
    OF_LOSS(METRIC, "categorical_crossentropy")                                                    \
    OF_LOSS(METRIC, "binary_crossentropy")                                                         \
    OF_LOSS(METRIC, "sparse_categorical_crossentropy")
#define ENTRY(name, summary, options) {name, summary, options},
#define NAME(name, summary, options) name,

static const struct metric_name metric_names[] = {METRICS(ENTRY){NULL, NULL, NULL}};
const char *const ls_metric_names[] = {METRICS(NAME) NULL};

static const struct metric_name *find_metric(const char *name)
{
    for (const struct metric_name *metric = metric_names; metric->name; metric++)
        if (strcmp(metric->name, name) == 0)
            return metric;
    return NULL;
}

const char *ls_metric_summary(const char *name)
{
    const struct metric_name *metric = find_metric(name);
    const struct ls_loss_name *loss = ls_loss_find(name);
    return metric && metric->summary ? metric->summary : loss ? loss->summary : "";
}

// ---- Reading ----

// A set that is being read, and what it is for.
struct reading {
    const struct ls_graph *graph;
    const struct ls_loss_set *losses;
    uint32_t output; // that the next metric is of
    const struct ls_loss *loss; // of that output
    bool labels; // of classes, else a target for each prediction
    int64_t classes; // of the output
    struct ls_own_parts *parts;
    struct ls_metric_set *set;
    const char *suffix; // of the names, where one text is several metrics
};

static enum ls_status refuse(const char *name, const char *why)
{
    ls_error("--metrics", "%s %s", name, why);
    return LS_USAGE;
}

static double option_number(const struct ls_spec *spec, const struct ls_plugin_option *options,
                            const char *name)
{
    const char *text = ls_spec_get(spec, name);
    double value = 0;
    (void)!ls_parse_number(text ? text : ls_option_find(options, name)->default_value, &value);
    return value;
}

static struct ls_count counts_of(uint32_t function, uint32_t slots)
{
    return (struct ls_count){
        .op = LS_OP_METRIC, .attributes = {.function = function}, .slots = slots};
}

void ls_metric_count_right(struct ls_metric_source *source)
{
    const uint32_t output = source->counts.output;
    source->kind = LS_METRIC_SHARE;
    source->counts = counts_of(LS_METRIC_CATEGORICAL, 2);
    source->counts.output = output;
}

// In the order of LS_METRIC_CONFUSION.
static const char *const confusion[] = {"true_positives", "false_positives", "false_negatives",
                                        "true_negatives", NULL};

// Which of them it is; 4: none.
static uint32_t confusion_of(const char *name)
{
    uint32_t i = 0;
    while (confusion[i] && strcmp(confusion[i], name) != 0)
        i++;
    return i;
}

// "accuracy" goes by the shape of the output, as in Keras.
static enum ls_status read_accuracy(const struct reading *reading, struct ls_metric_source *out)
{
    // The operation of the only loss counts them.
    if (reading->loss->kind == LS_LOSS_SPARSE_CROSS_ENTROPY && !reading->loss->scaled &&
        ls_loss_set_only(reading->losses) == reading->output) {
        out->kind = LS_METRIC_OF_STATISTIC;
        out->statistic = LS_SUMS_RIGHT;
        return LS_OK;
    }
    if (reading->loss->kind == LS_LOSS_MEAN_SQUARED_ERROR)
        return refuse("accuracy", "needs classes, and mean_squared_error has none; leave it out");
    const bool binary = !reading->labels && reading->classes == 1;
    out->kind = LS_METRIC_SHARE;
    out->counts = counts_of(binary ? LS_METRIC_BINARY : LS_METRIC_CATEGORICAL, 2);
    out->counts.attributes.threshold = 0.5f;
    return LS_OK;
}

static enum ls_status read_classes(const struct reading *reading, const struct ls_spec *spec,
                                   bool sparse, bool top, struct ls_metric_source *out)
{
    const double k = top ? option_number(spec, top_options, "k") : 1;
    if (sparse != reading->labels)
        return refuse(spec->name, sparse ? "needs labels of classes, as those of "
                                           "sparse_categorical_crossentropy"
                                         : "needs a target for each prediction, not labels; take "
                                           "the one whose name begins with sparse_");
    if (!(k >= 1 && k < UINT32_MAX))
        return refuse(spec->name, "needs k of at least 1");
    out->kind = LS_METRIC_SHARE;
    out->counts = counts_of(top ? LS_METRIC_TOP : LS_METRIC_CATEGORICAL, 2);
    out->counts.attributes.count = (uint32_t)k;
    return LS_OK;
}

static enum ls_status read_threshold(const struct reading *reading, const struct ls_spec *spec,
                                     const struct ls_plugin_option *options, const char *option,
                                     uint32_t function, struct ls_metric_source *out)
{
    (void)reading;
    out->counts = counts_of(function, function == LS_METRIC_BINARY ? 2 : 4);
    out->counts.attributes.threshold = (float)option_number(spec, options, option);
    return LS_OK;
}

static int compare_numbers(const void *a, const void *b)
{
    const double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

// Whether Keras takes the thresholds, in order and without 0 and 1, for those of num_thresholds.
static bool are_even(const double *thresholds, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const double even = (double)((float)(i + 1) / (float)(count + 1));
        if (fabs(thresholds[i] - even) > KERAS_EPSILON + KERAS_TOLERANCE * even)
            return false;
    }
    return true;
}

// "0.2:0.5:0.9", in any order. Buckets count what is between even thresholds; at others each is counted by itself.
static enum ls_status read_thresholds(const struct ls_spec *spec, const char *text,
                                      struct ls_metric_source *out)
{
    const size_t most = THRESHOLDS_MOST - 2;
    double *numbers = malloc(most * sizeof(*numbers));
    uint32_t count = 0;
    bool good = numbers != NULL;
    if (!numbers)
        return LS_OUT_OF_MEMORY;
    while (good && text) {
        char part[64];
        const size_t length = strcspn(text, ":");
        snprintf(part, sizeof(part), "%.*s", (int)length, text);
        good = length < sizeof(part) && count < most && ls_parse_number(part, &numbers[count]) &&
               numbers[count] >= 0 && numbers[count] <= 1;
        count++;
        text = text[length] ? text + length + 1 : NULL;
    }
    if (good)
        qsort(numbers, count, sizeof(*numbers), compare_numbers);
    const bool even = good && are_even(numbers, count);
    const bool fits = even || count <= LS_METRIC_THRESHOLDS - 2;
    if (even) {
        out->counts = counts_of(LS_METRIC_BUCKETS, 2 * (count + 2));
        out->counts.attributes.count = count + 2;
    } else if (good && fits) {
        out->counts = counts_of(LS_METRIC_CONFUSION, 4);
        out->threshold_count = count + 2;
        out->thresholds[0] = (float)(0 - KERAS_EPSILON);
        for (uint32_t i = 0; i < count; i++)
            out->thresholds[i + 1] = (float)numbers[i];
        out->thresholds[count + 1] = (float)(1 + KERAS_EPSILON);
    }
    free(numbers);
    if (!good)
        return refuse(spec->name, "needs thresholds from 0 to 1, as in thresholds=0.2:0.5:0.9");
    return fits ? LS_OK
                : refuse(spec->name, "takes up to 64 thresholds that are not even; "
                                     "num_thresholds=N takes N even ones");
}

static enum ls_status read_area(const struct ls_spec *spec, struct ls_metric_source *out)
{
    const double count = option_number(spec, area_options, "num_thresholds");
    const char *curve = ls_spec_get(spec, "curve"), *list = ls_spec_get(spec, "thresholds");
    out->kind = curve && strcmp(curve, "PR") == 0 ? LS_METRIC_AREA_PR : LS_METRIC_AREA;
    if (list && ls_spec_get(spec, "num_thresholds"))
        return refuse(spec->name, "has num_thresholds or thresholds, not both");
    if (list)
        return read_thresholds(spec, list, out);
    if (!(count >= 2 && count <= THRESHOLDS_MOST))
        return refuse(spec->name, "needs num_thresholds from 2 to 10000");
    out->counts = counts_of(LS_METRIC_BUCKETS, 2 * (uint32_t)count);
    out->counts.attributes.count = (uint32_t)count;
    return LS_OK;
}

// ---- Of classes, and points of a curve ----

static enum ls_status needs_classes(const struct reading *reading, const struct ls_spec *spec,
                                    int64_t least, struct ls_metric_source *out)
{
    const char *said = ls_spec_get(spec, "num_classes");
    double number = (double)reading->classes;
    if (reading->classes < least || reading->classes > LS_METRIC_MOST_CLASSES)
        return refuse(spec->name, "needs an output of 2 to 1024 classes");
    if (said && (!ls_parse_number(said, &number) || number != (double)reading->classes))
        return refuse(spec->name, "needs num_classes as the output has");
    out->classes = (uint32_t)reading->classes;
    out->counts = counts_of(LS_METRIC_CLASSES, out->classes * out->classes);
    return LS_OK;
}

static enum ls_status read_fbeta(const struct reading *reading, const struct ls_spec *spec,
                                 struct ls_metric_source *out)
{
    const char *average = ls_spec_get(spec, "average"), *threshold = ls_spec_get(spec, "threshold");
    if (!average)
        return refuse(spec->name, "has one score for each class, and a metric is one number; add "
                                  "average=macro, micro or weighted");
    if (strcmp(spec->name, "f1_score") == 0 && ls_spec_get(spec, "beta"))
        return refuse(spec->name, "has beta 1; fbeta_score has others");
    if (reading->classes == 1 && !threshold)
        return refuse(spec->name, "of one output needs threshold=, as in threshold=0.5");
    const enum ls_status status = needs_classes(reading, spec, threshold ? 1 : 2, out);
    out->kind = LS_METRIC_FBETA;
    out->limit = option_number(spec, fbeta_options, "beta");
    out->average = strcmp(average, "micro") == 0      ? LS_AVERAGE_MICRO
                   : strcmp(average, "weighted") == 0 ? LS_AVERAGE_WEIGHTED
                                                      : LS_AVERAGE_MACRO;
    if (!status && !(out->limit > 0))
        return refuse(spec->name, "needs beta above 0");
    if (!status && threshold) {
        double value = 0;
        (void)!ls_parse_number(threshold, &value);
        out->counts = counts_of(LS_METRIC_EACH_CLASS, 3 * out->classes);
        out->counts.attributes.threshold = (float)value;
    }
    return status;
}

// "0:2"
static enum ls_status read_class_ids(const struct ls_spec *spec, struct ls_metric_source *out)
{
    const char *text = ls_spec_get(spec, "target_class_ids");
    bool good = true;
    for (out->class_count = 0; good && text;) {
        char part[16];
        double id = 0;
        const size_t length = strcspn(text, ":");
        snprintf(part, sizeof(part), "%.*s", (int)length, text);
        good = length > 0 && length < sizeof(part) && out->class_count < LS_METRIC_CLASS_IDS &&
               ls_parse_number(part, &id) && id >= 0 && id < out->classes && id == floor(id);
        if (good)
            out->class_ids[out->class_count++] = (uint32_t)id;
        text = text[length] ? text + length + 1 : NULL;
    }
    return good ? LS_OK
                : refuse(spec->name, "needs numbers of classes, at most 64, as in "
                                     "target_class_ids=0:2");
}

static enum ls_status read_union(const struct reading *reading, const struct ls_spec *spec,
                                 struct ls_metric_source *out)
{
    const bool mean = strstr(spec->name, "mean") != NULL;
    enum ls_status status = LS_OK;
    out->kind = LS_METRIC_UNION;
    if (strcmp(spec->name, "binary_io_u") == 0) {
        out->classes = 2;
        out->counts = counts_of(LS_METRIC_CONFUSION, 4);
        out->counts.attributes.threshold =
            (float)option_number(spec, binary_union_options, "threshold");
        return read_class_ids(spec, out);
    }
    status = needs_classes(reading, spec, 2, out);
    if (status || mean)
        return status;
    if (!ls_spec_get(spec, "target_class_ids"))
        return refuse(spec->name, "needs target_class_ids, as in target_class_ids=0:2");
    return read_class_ids(spec, out);
}

static const struct {
    const char *name, *other;
    enum ls_metric_kind kind;
} at_points[] = {{"precision_at_recall", "recall", LS_METRIC_PRECISION_AT},
                 {"recall_at_precision", "precision", LS_METRIC_RECALL_AT},
                 {"sensitivity_at_specificity", "specificity", LS_METRIC_SENSITIVITY_AT},
                 {"specificity_at_sensitivity", "sensitivity", LS_METRIC_SPECIFICITY_AT}};

static enum ls_status read_at(const struct ls_spec *spec, size_t which,
                              struct ls_metric_source *out)
{
    const double count = option_number(spec, at_recall_options, "num_thresholds");
    const char *limit = ls_spec_get(spec, at_points[which].other);
    out->kind = at_points[which].kind;
    if (!limit || !ls_parse_number(limit, &out->limit) || !(out->limit >= 0 && out->limit <= 1)) {
        ls_error("--metrics", "%s needs %s=, from 0 to 1", spec->name, at_points[which].other);
        return LS_USAGE;
    }
    if (!(count >= 3 && count <= THRESHOLDS_MOST))
        return refuse(spec->name, "needs num_thresholds from 3 to 10000");
    out->counts = counts_of(LS_METRIC_BUCKETS, 2 * (uint32_t)count);
    out->counts.attributes.count = (uint32_t)count;
    return LS_OK;
}

// ---- Of numbers ----

static uint32_t dimensions_of(const struct reading *reading)
{
    return reading->graph->outputs[reading->output]->shape.ndims;
}

static enum ls_status read_r2(const struct reading *reading, const struct ls_spec *spec,
                              struct ls_metric_source *out)
{
    const char *aggregation = ls_spec_get(spec, "class_aggregation");
    if (reading->labels)
        return refuse(spec->name, "needs a target for each prediction, not labels");
    if (dimensions_of(reading) != 2 || reading->classes > LS_METRIC_MOST_CLASSES)
        return refuse(spec->name, "needs an output of 1 to 1024 numbers for each example");
    out->kind = LS_METRIC_R2;
    out->limit = option_number(spec, r2_options, "num_regressors");
    if (!(out->limit >= 0))
        return refuse(spec->name, "needs num_regressors of at least 0");
    out->average = aggregation && aggregation[0] == 'v' ? LS_AVERAGE_WEIGHTED : LS_AVERAGE_MACRO;
    out->classes = (uint32_t)reading->classes;
    out->counts = counts_of(LS_METRIC_SQUARES, 5 * out->classes);
    return LS_OK;
}

static enum ls_status read_correlation(const struct reading *reading, const struct ls_spec *spec,
                                       uint32_t function, struct ls_metric_source *out)
{
    const double axis = option_number(spec, correlation_options, "axis");
    if (reading->labels)
        return refuse(spec->name, "needs a target for each prediction, not labels");
    if (axis != -1 && axis != (double)dimensions_of(reading) - 1)
        return refuse(spec->name, "compares along the last axis; leave axis out, or end the model "
                                  "with Permute");
    out->kind = LS_METRIC_SHARE;
    out->counts = counts_of(function, 2);
    return LS_OK;
}

// The mean of a loss that is not trained.
static enum ls_status read_loss(const struct reading *reading, const struct ls_spec *spec,
                                const struct ls_loss_name *entry, struct ls_metric_source *out)
{
    const bool sparse = entry->function == LS_LOSS_SPARSE;
    bool from_logits = false;
    const char *logits = ls_spec_get(spec, "from_logits");
    if (sparse != reading->labels)
        return refuse(spec->name, sparse ? "needs labels of classes"
                                         : "needs a target for each prediction, not labels");
    if (logits)
        (void)!ls_parse_boolean(logits, &from_logits);
    const bool huber = entry->function == LS_LOSS_HUBER;
    const bool smooth = ls_option_find(entry->options, "label_smoothing") != NULL;
    out->kind = LS_METRIC_OF_LOSS;
    out->counts = (struct ls_count){
        .op = LS_OP_LOSS,
        .attributes = {.function = entry->function,
                       .from_logits = from_logits,
                       .threshold = huber ? (float)option_number(spec, entry->options, "delta") : 0,
                       .smoothing =
                           smooth ? (float)option_number(spec, entry->options, "label_smoothing")
                                  : 0},
        .slots = 4};
    return LS_OK;
}

static bool is(const struct ls_spec *spec, const char *name)
{
    return strcmp(spec->name, name) == 0;
}

static const struct ls_plugin_option *options_of(const struct ls_spec *spec)
{
    const struct ls_loss_name *loss = ls_loss_find(spec->name);
    return loss ? loss->options : find_metric(spec->name)->options;
}

// One of the user's own.
static enum ls_status read_composed(const struct reading *reading, const struct ls_spec *spec,
                                    struct ls_metric_source *out)
{
    const enum ls_status status =
        ls_own_part_open(reading->parts, LS_KIND_METRIC, spec, &out->composed);
    if (status)
        return status;
    if (out->composed->classes != reading->labels)
        return refuse(
            out->composed->name,
            out->composed->classes
                ? "needs labels of classes, and the loss has a target for each prediction"
                : "needs a target for each prediction, and the loss has labels of classes");
    out->kind = LS_METRIC_COMPOSED;
    out->counts.slots = 4; // of each sum
    return LS_OK;
}

static enum ls_status refuse_name(const struct reading *reading, const char *name)
{
    char why[900], hint[420];
    reading->parts->hint(reading->parts, LS_KIND_METRIC, name, hint, sizeof(hint));
    ls_error("--metrics", "'%s' %s; %s", name,
             ls_keras_refusal(LS_KERAS_METRIC, name, ls_metric_names, why, sizeof(why)), hint);
    return LS_USAGE;
}

// Those of the metric, and name=, which all have.
static enum ls_status check_options(const struct ls_spec *spec)
{
    struct ls_plugin_option table[6] = {
        {"name", "text", NULL, "its key in reports, instead of its own name"}};
    const struct ls_plugin_option *own = options_of(spec);
    for (size_t i = 0; own && own[i].name; i++) {
        assert(i + 2 < sizeof(table) / sizeof(table[0]));
        table[i + 1] = own[i];
    }
    return ls_spec_check("--metrics", spec, table);
}

// What is written beside metrics must keep its key. Names of plugins have dashes, too.
static enum ls_status check_name(const char *name, bool plugin)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    static const char *const taken[] = {
        "epoch",   "steps",         "examples", "examples_per_second",
        "seconds", "learning_rate", "made",     "command",
        "model",   "dataset",       "split"};
    bool fits = name[0] && (plugin || strspn(name, letters) == strlen(name)) &&
                strncmp(name, "val_", 4) != 0;
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++)
        fits = fits && strcmp(name, taken[i]) != 0;
    if (fits)
        return LS_OK;
    ls_error("--metrics",
             "name=%s: expected letters, digits and underscores, and no key that reports have",
             name);
    return LS_USAGE;
}

static enum ls_status read_metric(const struct reading *reading, const struct ls_spec *spec,
                                  struct ls_metric_source *out)
{
    const struct ls_loss_name root = {"root_mean_squared_error", LS_LOSS_SQUARED, NULL, NULL};
    const struct ls_loss_name *loss = ls_loss_find(spec->name);
    const bool known = find_metric(spec->name); // else the name is wrong, whatever its options
    if (!known && ls_own_part_is(reading->parts, LS_KIND_METRIC, spec->name))
        return read_composed(reading, spec, out);
    enum ls_status status = known ? check_options(spec) : LS_OK;
    if (status)
        return status;
    if (is(spec, "accuracy") || is(spec, "acc"))
        return read_accuracy(reading, out);
    if (is(spec, "categorical_accuracy") || is(spec, "sparse_categorical_accuracy"))
        return read_classes(reading, spec, spec->name[0] == 's', false, out);
    if (is(spec, "top_k_categorical_accuracy") || is(spec, "sparse_top_k_categorical_accuracy"))
        return read_classes(reading, spec, spec->name[0] == 's', true, out);
    if (is(spec, "auc"))
        return read_area(spec, out);
    if (is(spec, "binary_accuracy")) {
        out->kind = LS_METRIC_SHARE;
        return read_threshold(reading, spec, threshold_options, "threshold", LS_METRIC_BINARY, out);
    }
    if (is(spec, "precision") || is(spec, "recall")) {
        out->kind = is(spec, "recall") ? LS_METRIC_RECALL : LS_METRIC_PRECISION;
        return read_threshold(reading, spec, thresholds_options, "thresholds", LS_METRIC_CONFUSION,
                              out);
    }
    if (confusion[confusion_of(spec->name)]) {
        out->kind = LS_METRIC_COUNT_OF;
        out->statistic = confusion_of(spec->name);
        return read_threshold(reading, spec, thresholds_options, "thresholds", LS_METRIC_CONFUSION,
                              out);
    }
    if (is(spec, "f1_score") || is(spec, "fbeta_score"))
        return read_fbeta(reading, spec, out);
    if (strstr(spec->name, "io_u"))
        return read_union(reading, spec, out);
    if (is(spec, "r2_score"))
        return read_r2(reading, spec, out);
    if (is(spec, "pearson_correlation"))
        return read_correlation(reading, spec, LS_METRIC_PEARSON, out);
    if (is(spec, "concordance_correlation"))
        return read_correlation(reading, spec, LS_METRIC_CONCORDANCE, out);
    for (size_t i = 0; i < sizeof(at_points) / sizeof(at_points[0]); i++)
        if (is(spec, at_points[i].name))
            return read_at(spec, i, out);
    if (loss)
        return read_loss(reading, spec, loss, out);
    if (is(spec, root.name)) {
        status = read_loss(reading, spec, &root, out);
        out->kind = LS_METRIC_OF_ROOT;
        return status;
    }
    if (is(spec, "none"))
        return refuse(spec->name, "cannot be combined with other metrics; leave it out");
    return refuse_name(reading, spec->name);
}

// The same text for the rest of the process, because results outlive the model that they are of. No
// more of them are made than metrics have names. NULL: no memory.
static const char *lasting(const char *prefix, const char *name)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct text {
        struct text *next;
        char text[LONGEST_NAME];
    } * first;
    char expected[LONGEST_NAME] = "";
    struct text *found;

    snprintf(expected, sizeof(expected), "%s%s", prefix, name); // fits: add() has looked
    pthread_mutex_lock(&lock);
    for (found = first; found && strcmp(found->text, expected) != 0;)
        found = found->next;
    if (!found && (found = malloc(sizeof(*found)))) {
        memcpy(found->text, expected, sizeof(expected));
        found->next = first;
        first = found;
    }
    pthread_mutex_unlock(&lock);
    return found ? found->text : NULL;
}

static enum ls_status say_twice(const char *name)
{
    ls_error("--metrics", "%s is given twice; name= gives one of them another key", name);
    return LS_USAGE;
}

// The key of a metric: behind the name of its output, where the model has several.
static enum ls_status make_key(const struct reading *reading, const char *name,
                               char key[LONGEST_NAME])
{
    const bool several = reading->losses->count > 1;
    const int bytes = snprintf(key, LONGEST_NAME, "%s%s%s%s",
                               several ? ls_graph_output_name(reading->graph, reading->output) : "",
                               several ? "_" : "", name, reading->suffix ? reading->suffix : "");
    if ((size_t)bytes + sizeof("val_") <= LONGEST_NAME)
        return ls_metric_set_has(reading->set, key) ? say_twice(key)
               : several                            ? check_name(key, true)
                                                    : LS_OK;
    ls_error("--metrics",
             "%.40s... has %d letters; a key of reports has at most %zu, and name= gives one", name,
             bytes, LONGEST_NAME - sizeof("val_"));
    return LS_USAGE;
}

static enum ls_status set_names(struct ls_metric_source *source, const char *key)
{
    source->name = lasting("", key);
    source->validation_name = lasting("val_", key);
    return source->name && source->validation_name ? LS_OK : LS_OUT_OF_MEMORY;
}

static enum ls_status check_room(const struct ls_metric_set *set)
{
    if (set->count < LS_METRICS / 2)
        return LS_OK;
    ls_error("--metrics", "more than %d metrics; leave some out", LS_METRICS / 2 - 1);
    return LS_USAGE;
}

static enum ls_status add(const struct reading *reading, const char *text)
{
    struct ls_metric_set *set = reading->set;
    struct ls_spec spec = {0};
    enum ls_status status = ls_spec_parse("--metrics", text, &spec);
    if (!status)
        status = check_room(set);
    struct ls_metric_source *out = &set->list[set->count];
    const char *given = status ? NULL : ls_spec_get(&spec, "name");
    const char *name = given ? given : spec.name;
    char key[LONGEST_NAME];
    if (!status && !find_metric(spec.name) && !reading->suffix && ls_metric_set_has(set, name))
        status = say_twice(name);
    if (!status)
        status = read_metric(reading, &spec, out);
    if (!status && out->composed && !given)
        name = out->composed->name; // of a file, too
    if (!status && (given || out->composed))
        status = check_name(name, !given);
    if (!status)
        status = make_key(reading, name, key);
    if (!status)
        status = set_names(out, key);
    out->counts.output = reading->output;
    if (!status)
        set->count++;
    ls_spec_finish(&spec);
    return status;
}

// "precision:thresholds=0.2:0.5" is a metric for each threshold, "precision_at_0.2" and so on. An area is of all.
static enum ls_status add_each(const struct reading *reading, const char *text)
{
    static const char option[] = "thresholds=";
    const char *list = strstr(text, option);
    const size_t before = list ? (size_t)(list - text) + strlen(option) : 0;
    const size_t all = list ? strcspn(text + before, ",") : 0;
    enum ls_status status = LS_OK;
    if (!list || list == text || !strchr(":,", list[-1]) || !memchr(text + before, ':', all) ||
        strncmp(text, "auc:", 4) == 0)
        return add(reading, text);
    char *each = malloc(strlen(text) + 1), *suffix = malloc(strlen(text) + sizeof("_at_"));
    if (!each || !suffix)
        status = LS_OUT_OF_MEMORY;
    for (size_t at = 0; !status && at <= all;) {
        const int length = (int)strcspn(text + before + at, ":,");
        struct reading one = *reading;
        sprintf(suffix, "_at_%.*s", length, text + before + at);
        snprintf(each, strlen(text) + 1, "%.*s%.*s%s", (int)before, text, length,
                 text + before + at, text + before + all);
        one.suffix = suffix;
        status = add(&one, each);
        at += (size_t)length + 1;
    }
    free(each);
    free(suffix);
    return status;
}

// "auc:curve=PR,num_thresholds=100,precision": what has an equals sign before any colon is an option
// of the metric before it.
static size_t length_of_metric(const struct ls_graph *graph, const char *text)
{
    size_t length = strcspn(text, ","), name;
    while (text[length]) {
        const char *next = text + length + 1;
        const size_t more = strcspn(next, ",");
        const size_t equals = strcspn(next, "="), colon = strcspn(next, ":");
        if (equals >= more || colon < equals || !memchr(text, ':', length) ||
            ls_output_named(graph, next, &name) < LS_GRAPH_LOSSES)
            break;
        length += 1 + more;
    }
    return length;
}

// What follows is of that output.
static enum ls_status choose_output(struct reading *reading, uint32_t output)
{
    const struct ls_shape *shape = &reading->graph->outputs[output]->shape;
    reading->output = output;
    reading->loss = &reading->losses->list[output];
    reading->labels = ls_loss_takes_classes(reading->loss);
    reading->classes = shape->dims[shape->ndims - 1];
    if (reading->loss->kind != LS_LOSS_NONE)
        return LS_OK;
    ls_error("--metrics", "output '%s' has no loss, and so no targets to compare it with",
             ls_graph_output_name(reading->graph, output));
    return LS_USAGE;
}

// "class=accuracy,auc,size=mae": a metric is of the output that is named last.
static enum ls_status read_list(struct reading *reading, const char *text, bool named)
{
    char *copy = strdup(text), *at = copy;
    enum ls_status status = copy ? LS_OK : LS_OUT_OF_MEMORY;
    while (!status && at) {
        size_t name = 0;
        const uint32_t output = ls_output_named(reading->graph, at, &name);
        if (output < LS_GRAPH_LOSSES) {
            status = choose_output(reading, output);
            named = true;
            at += name;
        }
        const size_t length = length_of_metric(reading->graph, at);
        char *next = at[length] ? at + length + 1 : NULL;
        at[length] = '\0';
        if (!status && at[strcspn(at, "=:")] == '=')
            status = ls_output_refuse("--metrics", reading->graph, at);
        if (!status && !named) {
            ls_error("--metrics", "'%s': the model has %u outputs; say of which one, as in %s=%s",
                     at, reading->losses->count, ls_graph_output_name(reading->graph, 0), at);
            status = LS_USAGE;
        }
        if (!status)
            status = add_each(reading, at);
        at = next;
    }
    free(copy);
    return status;
}

// "accuracy,auc;mae": lists of the outputs in their order, which may be empty.
static enum ls_status read_lists(struct reading *reading, const char *text)
{
    char *copy = strdup(text), *at = copy;
    enum ls_status status = copy ? LS_OK : LS_OUT_OF_MEMORY;
    uint32_t output = 0;
    for (; !status && at; output++) {
        char *end = strchr(at, ';'), *next = end ? end + 1 : NULL;
        if (end)
            *end = '\0';
        if (output < reading->losses->count && at[0])
            status = choose_output(reading, output);
        if (!status && output < reading->losses->count && at[0])
            status = read_list(reading, at, true);
        at = next;
    }
    if (!status && output != reading->losses->count) {
        ls_error("--metrics", "lists of %u outputs, and the model has %u", output,
                 reading->losses->count);
        status = LS_USAGE;
    }
    free(copy);
    return status;
}

// How often the loss of an output counts in that of the model, and how the graph counts it.
static void count_loss(const struct ls_loss_set *losses, uint32_t output,
                       struct ls_metric_source *out)
{
    out->factor = losses->list[output].scaled ? (double)losses->list[output].factor : 1;
    out->counts = (struct ls_count){.op = LS_OP_LOSS,
                                    .attributes = {.function = LS_LOSS_VALUES},
                                    .output = output,
                                    .weighted = true};
}

// The losses of the outputs, where that of the model is made of several.
static enum ls_status add_losses(struct reading *reading)
{
    const uint32_t only = ls_loss_set_only(reading->losses);
    enum ls_status status = LS_OK;
    if (only < LS_GRAPH_LOSSES)
        count_loss(reading->losses, only, &reading->set->list[0]);
    if (only < LS_GRAPH_LOSSES || reading->losses->count == 1)
        return LS_OK;
    for (uint32_t i = 0; !status && i < reading->losses->count; i++) {
        char key[LONGEST_NAME];
        if (reading->losses->list[i].kind == LS_LOSS_NONE)
            continue;
        status = check_room(reading->set);
        struct ls_metric_source *out = &reading->set->list[reading->set->count];
        reading->output = i;
        if (!status)
            status = make_key(reading, "loss", key);
        if (status)
            break;
        out->kind = LS_METRIC_OF_OUTPUT;
        count_loss(reading->losses, i, out);
        out->counts.slots = 4;
        status = set_names(out, key);
        reading->set->count++;
    }
    return status;
}

// Without a text: the accuracy of classes.
static enum ls_status add_default(struct reading *reading)
{
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < reading->losses->count; i++) {
        const struct ls_loss *loss = &reading->losses->list[i];
        const bool labels = ls_loss_takes_classes(loss) && !loss->composed;
        if (loss->kind == LS_LOSS_NONE ||
            !(labels || loss->function == LS_LOSS_CATEGORICAL || loss->function == LS_LOSS_BINARY))
            continue;
        status = choose_output(reading, i);
        if (!status)
            status = add(reading, "accuracy");
    }
    return status;
}

enum ls_status ls_metric_set_parse(const char *text, const struct ls_loss_set *losses,
                                   const struct ls_graph *graph, struct ls_own_parts *parts,
                                   struct ls_metric_set *out)
{
    struct ls_metric_set set = {.count = 1,
                                .list = {{.name = "loss",
                                          .validation_name = "val_loss",
                                          .kind = LS_METRIC_OF_MODEL,
                                          .statistic = LS_SUMS_LOSS}}};
    struct reading reading = {.graph = graph, .losses = losses, .parts = parts, .set = &set};
    const bool none = text && strcmp(text, "none") == 0, one = losses->count == 1;
    if (text && !none && ls_loss_set_is_none(losses))
        return refuse(text, "needs a loss that compares predictions and labels, and with loss none "
                            "the program does; use metrics none");
    enum ls_status status = add_losses(&reading);
    if (!status && !text)
        status = add_default(&reading);
    if (!status && text && !none && one)
        status = choose_output(&reading, 0);
    if (!status && text && !none)
        status = strchr(text, ';') ? read_lists(&reading, text) : read_list(&reading, text, one);
    if (!status)
        *out = set;
    return status;
}

bool ls_metric_set_has(const struct ls_metric_set *set, const char *name)
{
    for (uint32_t i = 0; i < set->count; i++)
        if (strcmp(set->list[i].name, name) == 0)
            return true;
    return false;
}

// The sums of one of the user's own, each of a tensor that it composes.
static enum ls_status add_composed(struct ls_metric_source *source, struct ls_graph *graph)
{
    struct ls_tensor *values[LS_METRIC_SUMS] = {NULL};
    struct ls_tensor *of = graph->outputs[source->counts.output];
    if (of->mask)
        return ls_graph_fail(graph, of,
                             "output '%s' of the model has a mask (mask_zero or Masking), which "
                             "metric '%s' of a plugin does not know; leave the metric out",
                             ls_graph_output_name(graph, source->counts.output), source->name);
    enum ls_status status =
        ls_graph_compose(graph, source->composed, source->counts.output, values);
    for (uint32_t i = 0; !status && i < source->composed->count; i++) {
        struct ls_count count = {.op = LS_OP_LOSS,
                                 .attributes = {.function = LS_LOSS_VALUES},
                                 .slots = source->counts.slots,
                                 .output = source->counts.output,
                                 .of = values[i]};
        status = ls_graph_add_counts(graph, &count, 1);
        source->slots[i] = count.slot;
    }
    return status;
}

// An area at thresholds of its own.
static enum ls_status add_thresholds(struct ls_metric_source *source, struct ls_graph *graph)
{
    enum ls_status status = LS_OK;
    struct ls_count count = source->counts;
    for (uint32_t i = 0; !status && i < source->threshold_count; i++) {
        count.attributes.threshold = source->thresholds[i];
        status = ls_graph_add_counts(graph, &count, 1);
        if (i == 0)
            source->counts.slot = count.slot;
        else if (i == 1)
            source->step = count.slot - source->counts.slot;
        assert(status || count.slot == source->counts.slot + i * source->step);
    }
    return status;
}

// Whether the graph counts a loss of values.
static bool is_loss(const struct ls_metric_source *source)
{
    return source->counts.slots &&
           (source->kind == LS_METRIC_OF_OUTPUT || source->kind == LS_METRIC_OF_MODEL);
}

enum ls_status ls_metric_set_add(struct ls_metric_set *set, struct ls_graph *graph)
{
    struct ls_count *only = &set->list[0].counts;
    enum ls_status status = LS_OK;
    if (only->op == LS_OP_LOSS && graph->loss_of[only->output] &&
        graph->outputs[only->output]->mask)
        only->slots = 4;
    for (uint32_t i = 0; i < set->count; i++)
        if (is_loss(&set->list[i]))
            set->list[i].counts.of = graph->loss_of[set->list[i].counts.output];
    for (uint32_t i = 0; !status && i < set->count; i++) {
        // Those that Keras makes of a function of targets and predictions; the others know no mask.
        set->list[i].counts.masked = set->list[i].kind == LS_METRIC_SHARE ||
                                     set->list[i].kind == LS_METRIC_OF_LOSS ||
                                     is_loss(&set->list[i]);
        if (set->list[i].kind == LS_METRIC_COMPOSED)
            status = add_composed(&set->list[i], graph);
        else if (set->list[i].threshold_count)
            status = add_thresholds(&set->list[i], graph);
        else if (set->list[i].counts.slots)
            status = ls_graph_add_counts(graph, &set->list[i].counts, 1);
    }
    return status;
}

static double quotient(double a, double b)
{
    return b > 0 ? a / b : 0; // as Keras divides them
}

#define OF_MASK 3 // the place of what a mask leaves in the sums of a loss

// ---- Losses under masks ----

static void add_sums(double *sums, const double *others)
{
    for (uint32_t k = 0; k < LS_STATISTICS; k++)
        sums[k] += others[k];
}

// The sums of a share, of a mean over what a mask leaves of it, such that those of shares add up.
static void add_masked(double *sums, const double *share)
{
    const double examples = share[LS_SUMS_EXAMPLES];
    const double loss = share[LS_SUMS_LOSS] * quotient(share[OF_MASK], examples);
    const double shared[LS_STATISTICS] = {[LS_SUMS_LOSS] = loss,
                                          [LS_SUMS_RIGHT] = share[LS_SUMS_RIGHT],
                                          [LS_SUMS_EXAMPLES] = examples,
                                          [OF_MASK] = share[OF_MASK]};
    if (examples > 0)
        add_sums(sums, shared);
}

// The same as one batch: its mean loss times its examples.
static double masked_loss(const double *sums)
{
    return quotient(sums[LS_SUMS_LOSS], sums[OF_MASK]) * sums[LS_SUMS_EXAMPLES];
}

static bool is_part_under_mask(const struct ls_metric_source *source)
{
    return is_loss(source) && source->counts.masked;
}

// Whether the model's loss is made of several.
static bool has_parts_under_masks(const struct ls_metric_set *set)
{
    for (uint32_t i = 0; i < set->count; i++)
        if (is_part_under_mask(&set->list[i]))
            return true;
    return false;
}

void ls_masked_sums_add(struct ls_masked_sums *sums, const struct ls_metric_set *set,
                        const double share[static LS_STATISTICS], double *counts)
{
    if (!has_parts_under_masks(set)) {
        add_masked(sums->total, share);
        return;
    }
    add_sums(sums->total, share);
    for (uint32_t i = 0; i < set->count; i++) {
        const struct ls_metric_source *source = &set->list[i];
        double *own = counts + source->counts.slot;
        if (!is_part_under_mask(source))
            continue;
        sums->total[LS_SUMS_LOSS] -= source->factor * own[LS_SUMS_LOSS];
        add_masked(sums->of[source->counts.output], own);
        memset(own, 0, LS_STATISTICS * sizeof(*own));
    }
}

void ls_masked_sums_merge(struct ls_masked_sums *sums, const struct ls_masked_sums *other)
{
    add_sums(sums->total, other->total);
    for (uint32_t i = 0; i < LS_GRAPH_LOSSES; i++)
        add_sums(sums->of[i], other->of[i]);
}

void ls_masked_sums_end(const struct ls_masked_sums *sums, const struct ls_metric_set *set,
                        double statistics[static LS_STATISTICS], double *counts)
{
    add_sums(statistics, sums->total);
    if (!has_parts_under_masks(set))
        statistics[LS_SUMS_LOSS] += masked_loss(sums->total) - sums->total[LS_SUMS_LOSS];
    for (uint32_t i = 0; i < set->count; i++) {
        const struct ls_metric_source *source = &set->list[i];
        if (!is_part_under_mask(source))
            continue;
        const double *of = sums->of[source->counts.output], loss = masked_loss(of);
        statistics[LS_SUMS_LOSS] += source->factor * loss;
        add_sums(counts + source->counts.slot, of);
        counts[source->counts.slot + LS_SUMS_LOSS] += loss - of[LS_SUMS_LOSS];
    }
}

// ---- Values of metrics ----

// The area under the ROC curve by trapezoids; under precision over recall by Keras's interpolation
// (Davis, Goadrich 2006).
static double area(const struct ls_metric_source *source, const double *counts)
{
    const bool each = source->threshold_count; // else buckets
    const uint32_t points = each ? source->threshold_count : source->counts.attributes.count;
    const double *positives = counts, *negatives = counts + points;
    double all = 0, none = 0, right = 0, wrong = 0, sum = 0;
    for (uint32_t i = 0; !each && i < points; i++) {
        all += positives[i];
        none += negatives[i];
    }
    if (each) {
        all = counts[0] + counts[2];
        none = counts[1] + counts[3];
    }
    // From the highest threshold, above which nothing is, to the lowest.
    for (uint32_t i = points; i-- > 0;) {
        const double true_before = right, false_before = wrong, before = right + wrong;
        right = each ? counts[i * source->step] : right + positives[i];
        wrong = each ? counts[i * source->step + 1] : wrong + negatives[i];
        const double now = right + wrong;
        if (each && i + 1 == points)
            continue; // the curve begins here
        if (source->kind == LS_METRIC_AREA) {
            sum += (quotient(wrong, none) - quotient(false_before, none)) *
                   (quotient(right, all) + quotient(true_before, all)) / 2;
        } else {
            const double slope = quotient(right - true_before, now - before);
            const double intercept = true_before - slope * before;
            const double ratio = before > 0 && now > 0 ? now / before : 1;
            sum += quotient(slope * (right - true_before + intercept * log(ratio)), all);
        }
    }
    return sum;
}

static double composed_value(const struct ls_metric_source *source, const double *counts)
{
    double sums[LS_METRIC_SUMS] = {0};
    for (uint32_t i = 0; i < source->composed->count; i++)
        sums[i] = counts[source->slots[i] + LS_SUMS_LOSS];
    return ls_own_metric_value(source->composed, sums, counts[source->slots[0] + LS_SUMS_EXAMPLES]);
}

static double value_of(const struct ls_metric_source *source, const double *statistics,
                       const double *counts)
{
    const double *own = counts ? counts + source->counts.slot : NULL;
    const bool counted = source->counts.slots > 0;
    if (!counted || source->kind == LS_METRIC_OF_MODEL)
        return statistics[source->statistic] / statistics[LS_SUMS_EXAMPLES];
    if (!own)
        return NAN;
    if (source->kind == LS_METRIC_COMPOSED)
        return composed_value(source, counts);
    // As in Keras the metric of this name is the similarity, while the loss is its negative.
    const double sign =
        source->counts.attributes.function == LS_LOSS_COSINE && source->counts.op == LS_OP_LOSS ? -1
                                                                                                : 1;
    switch (source->kind) {
    case LS_METRIC_OF_OUTPUT: return own[LS_SUMS_LOSS] / own[LS_SUMS_EXAMPLES];
    case LS_METRIC_OF_LOSS:
        return source->counts.masked ? sign * quotient(own[LS_SUMS_LOSS], own[OF_MASK])
                                     : sign * own[LS_SUMS_LOSS] / own[LS_SUMS_EXAMPLES];
    case LS_METRIC_OF_ROOT: return sqrt(own[LS_SUMS_LOSS] / own[LS_SUMS_EXAMPLES]);
    case LS_METRIC_PRECISION: return quotient(own[0], own[0] + own[1]);
    case LS_METRIC_RECALL: return quotient(own[0], own[0] + own[2]);
    case LS_METRIC_COUNT_OF: return own[source->statistic];
    case LS_METRIC_AREA:
    case LS_METRIC_AREA_PR: return area(source, own);
    case LS_METRIC_FBETA: return ls_metric_fbeta(source, own);
    case LS_METRIC_UNION: return ls_metric_union(source, own);
    case LS_METRIC_R2: return ls_metric_r2(source, own);
    case LS_METRIC_PRECISION_AT:
    case LS_METRIC_RECALL_AT:
    case LS_METRIC_SENSITIVITY_AT:
    case LS_METRIC_SPECIFICITY_AT: return ls_metric_at(source, own);
    default: return source->counts.masked ? quotient(own[0], own[1]) : own[0] / own[1];
    }
}

// Whether more of it is better.
static bool is_upwards(const struct ls_metric_source *source)
{
    switch (source->kind) {
    case LS_METRIC_OF_OUTPUT: return false;
    case LS_METRIC_OF_STATISTIC: return source->statistic == LS_SUMS_RIGHT;
    case LS_METRIC_OF_LOSS:
    case LS_METRIC_OF_ROOT: return source->counts.attributes.function == LS_LOSS_COSINE;
    case LS_METRIC_COMPOSED: return ls_own_metric_is_upwards(source->composed);
    case LS_METRIC_COUNT_OF: return strncmp(confusion[source->statistic], "true", 4) == 0;
    default: return true;
    }
}

void ls_metrics_append(struct ls_metrics *out, const struct ls_metric_set *set,
                       const double statistics[static LS_STATISTICS], const double *counts,
                       bool validation)
{
    assert(out->count + set->count <= LS_METRICS);
    for (uint32_t i = 0; i < set->count; i++) {
        const struct ls_metric_source *source = &set->list[i];
        out->list[out->count++] = (struct ls_metric){
            .name = validation ? source->validation_name : source->name,
            .value = value_of(source, statistics, counts),
            .upwards = i > 0 && is_upwards(source), // the loss is the first
        };
    }
}

void ls_metrics_of_step(struct ls_metrics *out, const struct ls_metric_set *set,
                        const double statistics[static LS_STATISTICS], const double *counts)
{
    out->count = 0;
    ls_metrics_append(out, set, statistics, counts, false);
    out->list[0].value = (double)(float)out->list[0].value;
}

double ls_metric_value(const struct ls_metrics *metrics, const char *name)
{
    for (uint32_t i = 0; i < metrics->count; i++)
        if (strcmp(metrics->list[i].name, name) == 0)
            return metrics->list[i].value;
    return NAN;
}
