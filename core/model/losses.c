// SPDX-License-Identifier: Apache-2.0
// The table of losses.
#include "core/model/losses.h"

#include "core/base/keras_names.h"
#include "core/base/log.h"
#include "core/base/options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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

// ---- Of a model with several outputs ----

uint32_t ls_output_named(const struct ls_graph *graph, const char *text, size_t *length)
{
    for (uint32_t i = 0; i < graph->output_count && i < LS_GRAPH_LOSSES; i++) {
        const char *name = ls_graph_output_name(graph, i);
        *length = strlen(name) + 1;
        if (strncmp(text, name, *length - 1) == 0 && text[*length - 1] == '=')
            return i;
    }
    return LS_GRAPH_LOSSES;
}

enum ls_status ls_output_refuse(const char *scope, const struct ls_graph *graph, const char *text)
{
    char names[300] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < graph->output_count && used < sizeof(names); i++)
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "",
                                 ls_graph_output_name(graph, i));
    ls_error(scope, "'%.*s' is no output of the model; it has %s", (int)strcspn(text, "=:,;"), text,
             names);
    return LS_USAGE;
}

// What a model without a named loss is trained on, by the last layer before an output.
static struct ls_loss by_layer(const struct ls_graph *graph, uint32_t output)
{
    const struct ls_shape *shape = &graph->outputs[output]->shape;
    int32_t last = graph->outputs[output]->producer;
    while (last >= 0 && (ls_operation_has(graph->operations[last].op, LS_TRAIT_TRAINING_ONLY) ||
                         ls_operation_has(graph->operations[last].op, LS_TRAIT_VIEW)))
        last = graph->operations[last].inputs[0]->producer;
    if (last >= 0 && ls_operation_has(graph->operations[last].op, LS_TRAIT_PROBABILITIES))
        return (struct ls_loss){.kind = LS_LOSS_SPARSE_CROSS_ENTROPY};
    if (shape->dims[shape->ndims - 1] > 1)
        return (struct ls_loss){.kind = LS_LOSS_SPARSE_CROSS_ENTROPY, .from_logits = true};
    return (struct ls_loss){.kind = LS_LOSS_MEAN_SQUARED_ERROR};
}

// Up to the comma before the next loss: what follows a comma is an option of the loss before it,
// unless it names an output, or has no equals sign before a colon.
static size_t length_of_loss(const struct ls_graph *graph, const char *text)
{
    size_t length = strcspn(text, ","), name;
    while (text[length]) {
        const char *next = text + length + 1;
        const size_t more = strcspn(next, ","), equals = strcspn(next, "="),
                     colon = strcspn(next, ":");
        if (ls_output_named(graph, next, &name) < LS_GRAPH_LOSSES || equals >= more ||
            colon < equals || !memchr(text, ':', length))
            break;
        length += 1 + more;
    }
    return length;
}

// What is given for outputs by their names, or for all of them in their order, one after the other.
struct given {
    const char *scope; // "--loss"
    const struct ls_graph *graph;
    const char *named[LS_GRAPH_LOSSES]; // of each output; NULL: nothing. Parts of `copy`.
    uint32_t count;
    bool by_name;
    char *copy;
};

static enum ls_status refuse_count(const struct given *given)
{
    ls_error(given->scope,
             "%u are given, and the model has %u outputs; name those that are meant, "
             "as in %s=...",
             given->count, given->graph->output_count, ls_graph_output_name(given->graph, 0));
    return LS_USAGE;
}

static enum ls_status take_part(struct given *given, const char *part)
{
    const struct ls_graph *graph = given->graph;
    size_t name = 0;
    const uint32_t output = ls_output_named(graph, part, &name);
    const bool named = output < LS_GRAPH_LOSSES;
    const size_t equals = strcspn(part, "=:");
    if (!named && part[equals] == '=')
        return ls_output_refuse(given->scope, graph, part);
    if (given->count && named != given->by_name) {
        ls_error(given->scope, "'%s': name all outputs or none", part);
        return LS_USAGE;
    }
    if (named && given->named[output]) {
        ls_error(given->scope, "output '%s' is given twice", ls_graph_output_name(graph, output));
        return LS_USAGE;
    }
    if (!named && given->count == graph->output_count)
        given->count++; // too many, of which nothing is kept
    else
        given->named[named ? output : given->count++] = part + (named ? name : 0);
    given->by_name = named;
    given->count += named;
    return LS_OK;
}

static enum ls_status read_given(const char *text,
                                 size_t (*length_of)(const struct ls_graph *graph,
                                                     const char *text),
                                 struct given *out)
{
    char *at = out->copy = strdup(text);
    enum ls_status status = at ? LS_OK : LS_OUT_OF_MEMORY;
    while (!status && at) {
        const size_t length = length_of(out->graph, at);
        char *next = at[length] ? at + length + 1 : NULL;
        at[length] = '\0';
        status = take_part(out, at);
        at = next;
    }
    return status;
}

static size_t length_of_number(const struct ls_graph *graph, const char *text)
{
    (void)graph;
    return strcspn(text, ",");
}

static enum ls_status parse_losses(const char *text, const struct ls_graph *graph,
                                   struct ls_own_parts *parts, struct ls_loss_set *out)
{
    struct given given = {.scope = "--loss", .graph = graph};
    size_t name;
    if (graph->output_count == 1 && ls_output_named(graph, text, &name) == LS_GRAPH_LOSSES)
        return ls_loss_parse(text, parts, &out->list[0]);
    enum ls_status status = read_given(text, length_of_loss, &given);
    if (!status && !given.by_name && given.count != 1 && given.count != graph->output_count)
        status = refuse_count(&given);
    for (uint32_t i = 0; !status && i < out->count; i++) {
        const char *one = given.named[!given.by_name && given.count == 1 ? 0 : i];
        status = ls_loss_parse(one ? one : "none", parts, &out->list[i]);
    }
    free(given.copy);
    return status;
}

static enum ls_status parse_weights(const char *text, const struct ls_graph *graph,
                                    struct ls_loss_set *out)
{
    struct given given = {.scope = "--loss-weights", .graph = graph};
    enum ls_status status = read_given(text, length_of_number, &given);
    if (!status && !given.by_name && given.count != graph->output_count)
        status = refuse_count(&given);
    for (uint32_t i = 0; !status && i < out->count; i++) {
        double factor = 1;
        if (!given.named[i])
            continue;
        if (!ls_parse_number(given.named[i], &factor) || !isfinite((float)factor)) {
            ls_error(given.scope, "'%s': expected a number", given.named[i]);
            status = LS_USAGE;
        } else if (out->list[i].kind == LS_LOSS_NONE) {
            ls_error(given.scope, "output '%s' has no loss", ls_graph_output_name(graph, i));
            status = LS_USAGE;
        }
        out->list[i].factor = (float)factor;
        out->list[i].scaled = (float)factor < 1 || (float)factor > 1;
    }
    free(given.copy);
    return status;
}

enum ls_status ls_loss_set_parse(const char *text, const char *weights,
                                 const struct ls_graph *graph, struct ls_own_parts *parts,
                                 struct ls_loss_set *out)
{
    struct ls_loss_set set = {.count = graph->output_count};
    enum ls_status status = LS_OK;
    if (graph->output_count > LS_GRAPH_LOSSES) {
        ls_error("--loss", "the model has %u outputs; at most %d can be trained",
                 graph->output_count, LS_GRAPH_LOSSES);
        return LS_USAGE;
    }
    for (uint32_t i = 0; !text && i < set.count; i++)
        set.list[i] = by_layer(graph, i);
    if (text)
        status = parse_losses(text, graph, parts, &set);
    for (uint32_t i = 0; i < set.count; i++)
        set.list[i].by_layer = !text;
    if (!status && weights)
        status = parse_weights(weights, graph, &set);
    if (!status && set.count > 1 && ls_loss_set_is_none(&set)) {
        ls_error("--loss",
                 "none: the program computes the loss of a model with one output only; "
                 "this one has %u",
                 set.count);
        status = LS_USAGE;
    }
    if (!status)
        *out = set;
    return status;
}

bool ls_loss_set_is_none(const struct ls_loss_set *set)
{
    for (uint32_t i = 0; i < set->count; i++)
        if (set->list[i].kind != LS_LOSS_NONE)
            return false;
    return true;
}

uint32_t ls_loss_set_only(const struct ls_loss_set *set)
{
    uint32_t only = LS_GRAPH_LOSSES;
    for (uint32_t i = 0; i < set->count; i++) {
        if (set->list[i].kind == LS_LOSS_NONE)
            continue;
        if (only < LS_GRAPH_LOSSES)
            return LS_GRAPH_LOSSES;
        only = i;
    }
    return only;
}

void ls_loss_set_text(const struct ls_loss_set *set, const struct ls_graph *graph, char *text,
                      size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < set->count && used < bytes; i++) {
        char loss[256];
        ls_loss_text(&set->list[i], loss, sizeof(loss));
        if (set->count > 1 && set->list[i].kind == LS_LOSS_NONE)
            continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s%s%s", used ? "," : "",
                                 set->count > 1 ? ls_graph_output_name(graph, i) : "",
                                 set->count > 1 ? "=" : "", loss);
    }
}
