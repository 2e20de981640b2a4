// SPDX-License-Identifier: Apache-2.0
// The table of losses.
#include "core/model/losses.h"

#include "core/base/keras_names.h"
#include "core/base/log.h"
#include "core/base/options.h"

#include <stdio.h>
#include <string.h>

static const struct ls_plugin_option sparse_options[] = {
    {"from_logits", "boolean", "off", "predictions are logits, not probabilities"},
    {NULL, NULL, NULL, NULL},
};
static const struct ls_plugin_option smoothed_options[] = {
    {"from_logits", "boolean", "off", "predictions are logits, not probabilities"},
    {"label_smoothing", "number", "0", "share of each target that is spread evenly, 0 to 1"},
    {NULL, NULL, NULL, NULL},
};
static const struct ls_plugin_option huber_options[] = {
    {"delta", "number", "1", "errors beyond it count in proportion, not squared"},
    {NULL, NULL, NULL, NULL},
};

// Each once: the table and the names in it.
#define LOSSES(LOSS)                                                                          \
    LOSS("sparse_categorical_crossentropy", LS_LOSS_SPARSE, sparse_options,                   \
         "of labels of classes: -log(probability of the class)")                              \
    LOSS("mean_squared_error", LS_LOSS_SQUARED, NULL, "the mean of (prediction - target)^2")  \
    LOSS("mse", LS_LOSS_SQUARED, NULL, "the same as mean_squared_error")                      \
    LOSS("categorical_crossentropy", LS_LOSS_CATEGORICAL, smoothed_options,                   \
         "of one-hot targets: -sum(target log(probability))")                                 \
    LOSS("binary_crossentropy", LS_LOSS_BINARY, smoothed_options,                             \
         "of targets 0 and 1, each prediction by itself")                                     \
    LOSS("mean_absolute_error", LS_LOSS_ABSOLUTE, NULL, "the mean of |prediction - target|")  \
    LOSS("mae", LS_LOSS_ABSOLUTE, NULL, "the same as mean_absolute_error")                    \
    LOSS("mean_absolute_percentage_error", LS_LOSS_PERCENTAGE, NULL,                          \
         "the mean of 100 |prediction - target| / |target|")                                  \
    LOSS("mape", LS_LOSS_PERCENTAGE, NULL, "the same as mean_absolute_percentage_error")      \
    LOSS("mean_squared_logarithmic_error", LS_LOSS_LOGARITHMIC, NULL,                         \
         "the mean of (log(1 + prediction) - log(1 + target))^2")                             \
    LOSS("msle", LS_LOSS_LOGARITHMIC, NULL, "the same as mean_squared_logarithmic_error")     \
    LOSS("huber", LS_LOSS_HUBER, huber_options, "squared up to delta, linear beyond it")      \
    LOSS("log_cosh", LS_LOSS_LOG_COSH, NULL, "the mean of log(cosh(prediction - target))")    \
    LOSS("kl_divergence", LS_LOSS_DIVERGENCE, NULL,                                           \
         "of distributions: sum(target log(target / prediction))")                            \
    LOSS("poisson", LS_LOSS_POISSON, NULL, "the mean of prediction - target log(prediction)") \
    LOSS("hinge", LS_LOSS_HINGE, NULL, "of targets -1 and 1: max(1 - target prediction, 0)")  \
    LOSS("squared_hinge", LS_LOSS_SQUARED_HINGE, NULL, "the square of hinge")                 \
    LOSS("categorical_hinge", LS_LOSS_CATEGORICAL_HINGE, NULL,                                \
         "of one-hot targets: the margin between the class and the best other one")           \
    LOSS("cosine_similarity", LS_LOSS_COSINE, NULL,                                           \
         "minus the cosine of the angle between prediction and target")
#define ENTRY(name, function, options, summary) {name, function, options, summary},
#define NAME(name, function, options, summary) name,

static const struct ls_loss_name losses[] = {LOSSES(ENTRY){NULL, 0, NULL, NULL}};
const char *const ls_loss_names[] = {LOSSES(NAME) NULL};

const struct ls_loss_name *ls_loss_find(const char *name)
{
    for (const struct ls_loss_name *loss = losses; loss->name; loss++)
        if (strcmp(loss->name, name) == 0)
            return loss;
    return NULL;
}

static enum ls_status read_options(const struct ls_spec *spec, struct ls_loss *out)
{
    const char *logits = ls_spec_get(spec, "from_logits");
    const char *smoothing = ls_spec_get(spec, "label_smoothing");
    const char *delta = ls_spec_get(spec, "delta");
    double value = 0;
    out->delta = 1;
    if (logits)
        (void)!ls_parse_boolean(logits, &out->from_logits);
    if (smoothing && (!ls_parse_number(smoothing, &value) || !(value >= 0 && value <= 1))) {
        ls_error("--loss", "label_smoothing=%s: expected a number from 0 to 1", smoothing);
        return LS_USAGE;
    }
    out->smoothing = (float)value;
    if (delta && (!ls_parse_number(delta, &value) || !((float)value > 0))) {
        ls_error("--loss", "delta=%s: expected a number above 0", delta);
        return LS_USAGE;
    }
    if (delta)
        out->delta = (float)value;
    return LS_OK;
}

bool ls_loss_takes_classes(const struct ls_loss *loss)
{
    return loss->composed ? loss->composed->classes : loss->kind == LS_LOSS_SPARSE_CROSS_ENTROPY;
}

static enum ls_status refuse_name(const struct ls_own_parts *parts, const char *name)
{
    char why[480], hint[420] = "; ";
    if (parts)
        parts->hint(parts, LS_KIND_LOSS, name, hint + 2, sizeof(hint) - 2);
    ls_error("--loss", "'%s' %s%s", name,
             ls_keras_refusal(LS_KERAS_LOSS, name, ls_loss_names, why, sizeof(why)),
             parts ? hint : "");
    return LS_USAGE;
}

enum ls_status ls_loss_parse(const char *text, struct ls_own_parts *parts, struct ls_loss *out)
{
    struct ls_spec spec = {0};
    struct ls_loss loss = {.kind = LS_LOSS_OTHER};
    if (strcmp(text, "none") == 0) {
        *out = (struct ls_loss){.kind = LS_LOSS_NONE};
        return LS_OK;
    }
    enum ls_status status = ls_spec_parse("--loss", text, &spec);
    if (status)
        return status;
    const struct ls_loss_name *entry = ls_loss_find(spec.name);
    if (!entry && parts && ls_own_part_is(parts, LS_KIND_LOSS, spec.name)) {
        loss.kind = LS_LOSS_COMPOSED;
        status = ls_own_part_open(parts, LS_KIND_LOSS, &spec, &loss.composed);
        if (!status)
            *out = loss;
        ls_spec_finish(&spec);
        return status;
    }
    if (!entry)
        status = refuse_name(parts, spec.name);
    if (!status)
        status = ls_spec_check("--loss", &spec, entry->options);
    if (!status)
        status = read_options(&spec, &loss);
    if (!status) {
        loss.function = entry->function;
        if (entry->function == LS_LOSS_SPARSE)
            loss.kind = LS_LOSS_SPARSE_CROSS_ENTROPY;
        else if (entry->function == LS_LOSS_SQUARED)
            loss.kind = LS_LOSS_MEAN_SQUARED_ERROR;
        *out = loss;
    }
    ls_spec_finish(&spec);
    return status;
}

static void add_option(char *text, size_t bytes, const char *format, double value)
{
    const size_t used = strlen(text);
    const int added = snprintf(text + used, bytes - used, "%c", strchr(text, ':') ? ',' : ':');
    if (used + (size_t)added < bytes)
        snprintf(text + used + added, bytes - used - (size_t)added, format, value);
}

void ls_loss_text(const struct ls_loss *loss, char *text, size_t bytes)
{
    if (loss->composed) {
        snprintf(text, bytes, "%s", loss->composed->text);
        return;
    }
    const bool sparse = loss->kind == LS_LOSS_SPARSE_CROSS_ENTROPY;
    const uint32_t function = sparse                                     ? LS_LOSS_SPARSE
                              : loss->kind == LS_LOSS_MEAN_SQUARED_ERROR ? LS_LOSS_SQUARED
                                                                         : loss->function;
    const struct ls_loss_name *entry = losses;
    while (entry->name && entry->function != function)
        entry++;
    snprintf(text, bytes, "%s",
             loss->kind == LS_LOSS_NONE ? "none"
             : entry->name              ? entry->name
                                        : "?");
    if (sparse)
        add_option(text, bytes, loss->from_logits ? "from_logits=true" : "from_logits=false", 0);
    else if (loss->from_logits)
        add_option(text, bytes, "from_logits=true", 0);
    if (loss->smoothing > 0)
        add_option(text, bytes, "label_smoothing=%.7g", (double)loss->smoothing);
    if (function == LS_LOSS_HUBER && loss->delta != 1)
        add_option(text, bytes, "delta=%.7g", (double)loss->delta);
}
