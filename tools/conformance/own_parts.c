// SPDX-License-Identifier: Apache-2.0
// Layers, losses and metrics in small models: gradients against differences, the same bits twice,
// replicas with uneven and empty shares, both devices.
#include "tools/conformance/own_parts.h"

#include "core/plugin/layer.h"
#include "core/plugin/metric.h"
#include "lockstep.h"
#include "tools/conformance/tally.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXAMPLES = 7, MOST_INPUTS = 8, MOST_ELEMENTS = 512, CLASSES = 3 };

#define AGREES 2e-4 // of losses and variables after a few steps, whatever adds them in which order
#define RETURNS 1e-5 // of a value that is only added in another order

// The shape of an example that a layer is called with, or how many units a loss has before it.
static const struct shape {
    const char *name;
    int64_t dims[6];
} shapes[] = {{"7", {7}}, {"5x4", {5, 4}}, {"6x6x3", {6, 6, 3}}};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

struct suite {
    struct ls_tally tally;
    const struct ls_opened_plugin *plugin;
    uint64_t seed;
};

// A model with the plugin in it, and data that it fits.
struct trial {
    struct suite *suite;
    const char *device, *strategy, *precision, *options; // options: of the layer, JSON
    uint32_t replicas;
    const struct shape *shape;
    struct ls_run *run;
    struct ls_model *model;
    struct ls_data *data;
    float values[(MOST_INPUTS + 1) * EXAMPLES * MOST_ELEMENTS];
};

static void say_nothing(void *context, uint32_t level, const char *line)
{
    (void)context;
    (void)level;
    (void)line;
}

// From -1 to 1, by seed and place alone (splitmix64's finaliser).
static float draw(uint64_t seed, uint64_t place)
{
    uint64_t z = (seed * UINT64_C(0x632be59bd9b4e019) + place + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (float)((double)((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1);
}

static uint32_t kind_of(const struct trial *trial)
{
    return trial->suite->plugin->plugin->kind;
}

static bool takes_classes(const struct trial *trial)
{
    const void *interface = trial->suite->plugin->interface;
    if (kind_of(trial) == LS_KIND_LOSS)
        return ((const struct ls_loss_interface *)interface)->targets == LS_TARGETS_CLASSES;
    return kind_of(trial) == LS_KIND_METRIC &&
           ((const struct ls_metric_interface *)interface)->targets == LS_TARGETS_CLASSES;
}

// ---- Models ----

static uint32_t inputs_of(const struct trial *trial)
{
    const struct ls_layer_interface *layer = trial->suite->plugin->interface;
    if (kind_of(trial) != LS_KIND_LAYER || !layer->most_inputs)
        return 1;
    return layer->least_inputs > 1 ? layer->least_inputs : 1;
}

// A dense layer before the plugin's, so that the gradient of its input matters, too.
static enum ls_status make_layer_model(struct trial *trial, int64_t channels)
{
    const struct ls_layer layer = {.class_name = trial->suite->plugin->plugin->name,
                                   .name = "tested",
                                   .options = trial->options};
    struct ls_layer front = {.class_name = "Dense", .units = channels};
    struct ls_layer input = {.class_name = "InputLayer"};
    struct ls_symbol *inputs[MOST_INPUTS], *calls[MOST_INPUTS], *y;
    const uint32_t count = inputs_of(trial);
    enum ls_status status = LS_OK;
    memcpy(input.shape, trial->shape->dims, sizeof(input.shape));
    for (uint32_t i = 0; !status && i < count; i++) {
        status = ls_input(trial->run, &input, &inputs[i]);
        if (!status)
            status = ls_layer_call(&front, &inputs[i], 1, &calls[i]);
    }
    const struct ls_layer flatten = LS_FLATTEN(), scores = LS_DENSE(CLASSES);
    if (!status)
        status = ls_layer_call(&layer, calls, count, &y);
    if (!status)
        status = ls_layer_call(&flatten, &y, 1, &y);
    if (!status)
        status = ls_layer_call(&scores, &y, 1, &y);
    return status ? status : ls_model_create("tested", inputs, count, &y, 1, &trial->model);
}

static enum ls_status make_model(struct trial *trial, int64_t channels)
{
    const char *end = takes_classes(trial) ? "softmax" : "sigmoid";
    const struct ls_layer layers[] = {{.class_name = "InputLayer", .shape = {4}},
                                      {.class_name = "Dense", .units = 5, .activation = "tanh"},
                                      {.class_name = "Dense", .units = CLASSES, .activation = end},
                                      LS_END};
    return kind_of(trial) == LS_KIND_LAYER
               ? make_layer_model(trial, channels)
               : ls_sequential_create(trial->run, "tested", layers, &trial->model);
}

// ---- Data ----

// The elements of an example's targets; 0: more than there is room for.
static uint64_t targets_of(const struct trial *trial)
{
    const struct ls_opened_plugin *plugin = trial->suite->plugin;
    const struct ls_loss_interface *loss = plugin->interface;
    int64_t dims[LS_MAX_DIMS] = {LS_BATCH, CLASSES};
    uint32_t ndims = 2;
    uint64_t elements = 1;
    if (kind_of(trial) != LS_KIND_LOSS || !loss->target_shape)
        return CLASSES;
    if (loss->target_shape(plugin->host, &ndims, dims) || ndims < 1 || ndims > LS_MAX_DIMS)
        return 0;
    for (uint32_t i = 1; i < ndims; i++)
        elements *= (uint64_t)(dims[i] > 0 ? dims[i] : 0);
    return elements <= MOST_ELEMENTS ? elements : 0;
}

static uint64_t elements_of(const struct shape *shape)
{
    uint64_t elements = 1;
    for (size_t i = 0; shape->dims[i]; i++)
        elements *= (uint64_t)shape->dims[i];
    return elements;
}

// Of `count` examples from `first` on, in the order of their numbers times `stride`.
static enum ls_status make_data(struct trial *trial, uint64_t first, uint64_t count,
                                uint64_t stride, const float *weights, struct ls_data **out)
{
    static const struct shape four = {"4", {4}};
    const bool classes = takes_classes(trial), layer = kind_of(trial) == LS_KIND_LAYER;
    const struct shape *shape = layer ? trial->shape : &four;
    const uint64_t elements = elements_of(shape), targets = classes ? 1 : targets_of(trial);
    const uint32_t inputs = inputs_of(trial);
    struct ls_array arrays[MOST_INPUTS];
    int32_t labels[EXAMPLES];
    float *target = trial->values + (uint64_t)MOST_INPUTS * EXAMPLES * MOST_ELEMENTS;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t example = (first + i) * stride % EXAMPLES;
        for (uint32_t k = 0; k < inputs; k++)
            for (uint64_t e = 0; e < elements; e++)
                trial->values[(k * count + i) * elements + e] =
                    draw(trial->suite->seed + k, example * elements + e);
        for (uint64_t e = 0; e < targets; e++) // from 0 to 1
            target[i * targets + e] =
                0.5f + 0.5f * draw(trial->suite->seed + 99, example * targets + e);
        labels[i] = (int32_t)(example * 2 % CLASSES);
    }
    for (uint32_t k = 0; k < inputs; k++) {
        arrays[k] = (struct ls_array){.dtype = "float32",
                                      .ndims = 1,
                                      .dims = {(int64_t)count},
                                      .values = trial->values + k * count * elements};
        for (size_t i = 0; shape->dims[i]; i++)
            arrays[k].dims[arrays[k].ndims++] = shape->dims[i];
    }
    const struct ls_array numbers = {"float32", 2, {(int64_t)count, (int64_t)targets}, target};
    const struct ls_array of_classes = {"int32", 1, {(int64_t)count}, labels};
    const struct ls_array weighing = {"float32", 1, {(int64_t)count}, weights};
    return ls_data_from_memory_weighted(arrays, inputs, classes ? &of_classes : &numbers,
                                        weights ? &weighing : NULL, out);
}

// ---- Trials ----

static const char *loss_of(const struct trial *trial)
{
    return kind_of(trial) == LS_KIND_LOSS ? trial->suite->plugin->plugin->name
           : takes_classes(trial)         ? "sparse_categorical_crossentropy"
                                          : "mse";
}

static void trial_close(struct trial *trial)
{
    ls_model_close(trial->model);
    ls_data_close(trial->data);
    ls_run_close(trial->run);
    free(trial);
}

// NULL: with why in the log's last error.
static struct trial *trial_open(struct suite *suite, const struct trial *like)
{
    struct trial *trial = calloc(1, sizeof(*trial));
    if (!trial)
        return NULL;
    trial->suite = suite;
    trial->shape = like->shape ? like->shape : &shapes[0];
    trial->options = like->options;
    char *folder = strdup(suite->plugin->file);
    char *slash = folder ? strrchr(folder, '/') : NULL;
    if (slash)
        *slash = '\0';
    const struct ls_run_options options = {.plugin_path = slash ? folder : ".",
                                           .device = like->device,
                                           .strategy = like->strategy,
                                           .precision = like->precision,
                                           .replicas = like->replicas ? like->replicas : 1,
                                           .threads = 1,
                                           .seed = suite->seed};
    const struct ls_compile_options compile = {
        .optimizer = "sgd:learning_rate=0.1",
        .loss = loss_of(trial),
        .metrics = kind_of(trial) == LS_KIND_METRIC ? suite->plugin->plugin->name : "none",
        .loss_scale = "none"};
    int64_t channels = 1;
    for (size_t i = 0; trial->shape->dims[i]; i++)
        channels = trial->shape->dims[i];
    enum ls_status status = ls_run_open(&options, &trial->run);
    free(folder);
    if (!status)
        status = make_model(trial, channels);
    if (!status)
        status = ls_compile(trial->model, &compile);
    if (!status)
        status = make_data(trial, 0, EXAMPLES, 1, NULL, &trial->data);
    if (!status)
        return trial;
    trial_close(trial);
    return NULL;
}

static bool fit(struct trial *trial, uint64_t steps, uint64_t batch, struct ls_tally *tally)
{
    const struct ls_fit_options options = {.steps = steps, .batch = batch, .shuffle = "off"};
    return !ls_fit(trial->model, trial->data, &options) ||
           ls_tally_blame(tally, "training failed: %s", ls_last_error());
}

static bool evaluate(struct trial *trial, struct ls_data *data, uint64_t batch, const char *metric,
                     double *out, struct ls_tally *tally)
{
    struct ls_scores scores = {0};
    if (ls_evaluate(trial->model, data, batch, &scores))
        return ls_tally_blame(tally, "evaluation failed: %s", ls_last_error());
    *out = ls_metric_value(&scores.metrics, metric);
    return isfinite(*out) || ls_tally_blame(tally, "%s of %llu examples is %g", metric,
                                            (unsigned long long)scores.examples, *out);
}

static bool loss_now(struct trial *trial, double *out, struct ls_tally *tally)
{
    return evaluate(trial, trial->data, EXAMPLES, "loss", out, tally);
}

// All variables one after the other, `*count` of them; the caller frees them.
static float *read_variables(struct trial *trial, uint64_t *count)
{
    struct ls_variable variable;
    uint64_t all = 0;
    for (uint32_t i = 0; i < ls_variable_count(trial->model); i++)
        all += ls_variable_describe(trial->model, i, &variable) ? 0 : variable.elements;
    float *values = malloc((all + 1) * sizeof(*values));
    *count = 0;
    for (uint32_t i = 0; values && i < ls_variable_count(trial->model); i++)
        if (!ls_variable_describe(trial->model, i, &variable) &&
            !ls_get_variable(trial->model, i, values + *count))
            *count += variable.elements;
    return values;
}

// ---- Gradients ----

// What `gradient` says of one direction of a variable, and what the loss does along it.
static bool compare_slope(struct trial *trial, uint32_t index, const float *at,
                          const float *gradient, const float *direction, uint64_t n,
                          struct ls_tally *tally)
{
    static const double lengths[] = {1e-2, 2e-3};
    struct ls_variable variable = {0};
    double expected = 0, size = 0, wrong = INFINITY, found = 0, loss[2] = {0};
    float *moved = malloc(n * sizeof(*moved));
    for (uint64_t i = 0; i < n; i++) {
        expected += (double)gradient[i] * (double)direction[i];
        size += (double)gradient[i] * (double)gradient[i];
    }
    for (size_t k = 0; moved && k < 2; k++) { // a kink may lie within the longer step
        for (int side = 0; side < 2; side++) {
            for (uint64_t i = 0; i < n; i++)
                moved[i] = at[i] + (float)(side ? -lengths[k] : lengths[k]) * direction[i];
            if (ls_set_variable(trial->model, index, moved) ||
                !loss_now(trial, &loss[side], tally)) {
                free(moved);
                return false;
            }
        }
        const double slope = (loss[0] - loss[1]) / (2 * lengths[k]);
        const double rounding = 1e-6 * (1 + fabs(loss[0])) / lengths[k];
        const double off = fabs(slope - expected) - rounding;
        if (off < wrong) {
            wrong = off;
            found = slope;
        }
    }
    const bool back = moved && !ls_set_variable(trial->model, index, at);
    free(moved);
    if (back && wrong <= 0.02 * fabs(expected) + 5e-3 * sqrt(size))
        return true;
    (void)!ls_variable_describe(trial->model, index, &variable);
    return ls_tally_blame(tally,
                          "variable %s: the gradient says %.5g where the loss changes by %.5g: "
                          "gradients are not those of the values",
                          variable.name, expected, found);
}

static bool compare_variable(struct trial *trial, uint32_t index, const float *before,
                             const float *after, uint64_t n, struct ls_tally *tally)
{
    float *gradient = malloc(2 * (n + 1) * sizeof(*gradient)), *direction = gradient + n;
    double size = 0;
    bool same = gradient != NULL;
    for (uint64_t i = 0; same && i < n; i++) {
        gradient[i] = (before[i] - after[i]) / 0.1f; // the learning rate
        size += (double)gradient[i] * (double)gradient[i];
    }
    for (uint64_t i = 0; same && i < n; i++)
        direction[i] = size > 0 ? gradient[i] / (float)sqrt(size) : 0;
    same = same && compare_slope(trial, index, before, gradient, direction, n, tally);
    for (uint64_t i = 0; same && i < n; i++)
        direction[i] =
            draw(trial->suite->seed + 7, i) > 0 ? 1 / sqrtf((float)n) : -1 / sqrtf((float)n);
    same = same && compare_slope(trial, index, before, gradient, direction, n, tally);
    free(gradient);
    return same;
}

// Whether it acts in training as in evaluation: dropout does not.
static bool is_the_same_in_training(struct trial *trial, double before)
{
    size_t count = 0;
    const float *losses = ls_fit_losses(trial->model, &count);
    return count == 1 && fabs((double)losses[0] - before) <= RETURNS * (1 + fabs(before));
}

static void gradient_case(struct suite *suite, const char *device, const struct shape *shape)
{
    struct ls_tally *tally = &suite->tally;
    if (!ls_tally_begin(tally, "gradients against differences, %s%s%s", device, shape ? ", " : "",
                        shape ? shape->name : ""))
        return;
    struct trial *trial = trial_open(suite, &(struct trial){.device = device, .shape = shape});
    uint64_t count = 0, after_count = 0, at = 0;
    double loss = 0;
    float *before = NULL, *after = NULL;
    bool good = trial != NULL;
    if (!trial && shape)
        ls_tally_refuse(tally, "%s", ls_last_error());
    else if (!trial)
        ls_tally_blame(tally, "%s", ls_last_error());
    good = good && loss_now(trial, &loss, tally);
    before = good ? read_variables(trial, &count) : NULL;
    good = good && fit(trial, 1, EXAMPLES, tally);
    after = good ? read_variables(trial, &after_count) : NULL;
    if (good && !is_the_same_in_training(trial, loss)) {
        ls_tally_refuse(tally, "it acts at random in training, so there is no one gradient");
        good = false;
    }
    for (uint32_t i = 0; good && before && after && i < ls_variable_count(trial->model); i++) {
        struct ls_variable variable; // all are what they were before the step
        good = !ls_variable_describe(trial->model, i, &variable) &&
               !ls_set_variable(trial->model, i, before + at);
        at += good ? variable.elements : 0;
    }
    for (uint32_t i = 0, from = 0; good && i < ls_variable_count(trial->model); i++) {
        struct ls_variable variable;
        good = !ls_variable_describe(trial->model, i, &variable);
        if (good && variable.trained)
            good =
                compare_variable(trial, i, before + from, after + from, variable.elements, tally);
        from += (uint32_t)variable.elements;
    }
    free(before);
    free(after);
    if (trial)
        trial_close(trial);
    ls_tally_end(tally);
}

// ---- Two trainings that must be alike ----

// How far the variables of two trainings are apart: `tolerance` 0: not a bit.
static void compare_trainings(struct suite *suite, const struct trial *one,
                              const struct trial *other, double tolerance)
{
    struct ls_tally *tally = &suite->tally;
    const struct trial *const likes[2] = {one, other};
    float *values[2] = {NULL, NULL};
    uint64_t counts[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        struct trial *trial = trial_open(suite, likes[i]);
        if (!trial)
            ls_tally_blame(tally, "%s", ls_last_error());
        // Batches of 5 and 2: with three replicas one of them has none of the second.
        if (trial && fit(trial, 4, 5, tally))
            values[i] = read_variables(trial, &counts[i]);
        if (trial)
            trial_close(trial);
    }
    if (values[0] && values[1] && counts[0] != counts[1])
        ls_tally_blame(tally, "%llu elements of variables, then %llu",
                       (unsigned long long)counts[0], (unsigned long long)counts[1]);
    for (uint64_t i = 0; values[0] && values[1] && i < counts[0] && i < counts[1]; i++) {
        const double a = (double)values[0][i], b = (double)values[1][i];
        if (!isfinite(a) || !(fabs(a - b) <= tolerance * (1 + fabs(a))))
            ls_tally_blame(tally, "after 4 steps element %llu of the variables is %.9g and %.9g",
                           (unsigned long long)i, a, b);
    }
    free(values[0]);
    free(values[1]);
}

static void alike_case(struct suite *suite, const char *name, const struct shape *shape,
                       struct trial one, struct trial other, double tolerance)
{
    if (!ls_tally_begin(&suite->tally, "%s%s%s", name, shape ? ", " : "", shape ? shape->name : ""))
        return;
    one.shape = other.shape = shape;
    struct trial *trial = trial_open(suite, &one);
    if (!trial && shape)
        ls_tally_refuse(&suite->tally, "%s", ls_last_error());
    else if (!trial)
        ls_tally_blame(&suite->tally, "%s", ls_last_error());
    if (trial) {
        trial_close(trial);
        compare_trainings(suite, &one, &other, tolerance);
    }
    ls_tally_end(&suite->tally);
}

static void training_cases(struct suite *suite, const struct shape *shape)
{
    const struct trial one = {.device = "cpu"};
    alike_case(suite, "the same bits twice", shape, one, one, 0);
    alike_case(suite, "reference and cpu agree", shape, one, (struct trial){.device = "reference"},
               AGREES);
    alike_case(suite, "ring of 2 replicas, uneven shares", shape, one,
               (struct trial){.device = "cpu", .strategy = "ring", .replicas = 2}, AGREES);
    alike_case(suite, "ring of 3 replicas, an empty share", shape, one,
               (struct trial){.device = "cpu", .strategy = "ring", .replicas = 3}, AGREES);
}

// ---- Layers ----

// The defaults of the options as a JSON object; the caller frees it.
static char *default_options(const struct ls_plugin *plugin)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    fputc('{', out);
    const char *gap = "";
    for (const struct ls_plugin_option *option = plugin->options; option && option->name;
         option++) {
        const char *value = option->default_value;
        const bool number =
            strcmp(option->type, "integer") == 0 || strcmp(option->type, "number") == 0;
        if (!value)
            continue;
        fprintf(out, "%s\"%s\": ", gap, option->name);
        gap = ", ";
        if (strcmp(option->type, "boolean") == 0)
            fputs(strchr("otyOTY1", value[0]) && strcmp(value, "off") != 0 ? "true" : "false", out);
        else if (number && (isdigit((unsigned char)value[0]) || value[0] == '-'))
            fputs(value, out);
        else if (value[0] == '{' || value[0] == '[')
            fputs(value, out);
        else
            fprintf(out, "\"%s\"", value);
    }
    fputc('}', out);
    fclose(out);
    return text;
}

// Whether models of data can have the tensors that it takes.
static bool inputs_case(struct suite *suite)
{
    const uint32_t least =
        ((const struct ls_layer_interface *)suite->plugin->interface)->least_inputs;
    if (!ls_tally_begin(&suite->tally, "takes at most %d tensors", MOST_INPUTS))
        return least <= MOST_INPUTS;
    if (least > MOST_INPUTS)
        ls_tally_blame(&suite->tally,
                       "it takes at least %u, and data has at most %d inputs, so nothing can be "
                       "checked",
                       least, MOST_INPUTS);
    ls_tally_end(&suite->tally);
    return least <= MOST_INPUTS;
}

static void shape_case(struct suite *suite)
{
    char why[256] = "";
    bool any = false;
    if (!ls_tally_begin(&suite->tally, "takes examples of 7, 5x4 or 6x6x3"))
        return;
    for (size_t i = 0; !any && i < SHAPES; i++) {
        struct trial *trial =
            trial_open(suite, &(struct trial){.device = "reference", .shape = &shapes[i]});
        any = trial != NULL;
        if (trial)
            trial_close(trial);
        else
            snprintf(why, sizeof(why), "%s", ls_last_error());
    }
    if (!any)
        ls_tally_blame(&suite->tally,
                       "none of them, with its default options, so nothing can be checked: %s",
                       why);
    ls_tally_end(&suite->tally);
}

static void layer_cases(struct suite *suite)
{
    if (!inputs_case(suite))
        return;
    char *options = default_options(suite->plugin->plugin);
    shape_case(suite);
    for (size_t i = 0; i < SHAPES; i++) {
        const struct trial one = {.device = "cpu"};
        gradient_case(suite, "reference", &shapes[i]);
        gradient_case(suite, "cpu", &shapes[i]);
        training_cases(suite, &shapes[i]);
        alike_case(suite, "options as their defaults", &shapes[i], one,
                   (struct trial){.device = "cpu", .options = options}, 0);
        alike_case(suite, "mixed_bfloat16 on both devices", &shapes[i],
                   (struct trial){.device = "cpu", .precision = "mixed_bfloat16"},
                   (struct trial){.device = "reference", .precision = "mixed_bfloat16"}, 0.1);
    }
    free(options);
}

// ---- Losses ----

// The loss of a batch is the mean of what each example has alone, times its weight.
static void loss_of_one_case(struct suite *suite)
{
    struct ls_tally *tally = &suite->tally;
    float weights[EXAMPLES];
    double whole = 0, weighted = 0, sum = 0, weighted_sum = 0, loss = 0;
    if (!ls_tally_begin(tally, "each example by itself, and its weight"))
        return;
    struct trial *trial = trial_open(suite, &(struct trial){.device = "cpu"});
    bool good = trial || ls_tally_blame(tally, "%s", ls_last_error());
    good = good && loss_now(trial, &whole, tally);
    for (uint64_t i = 0; good && i < EXAMPLES; i++) {
        struct ls_data *alone = NULL;
        weights[i] = (float)(i % 3);
        good = !make_data(trial, i, 1, 1, NULL, &alone) &&
               evaluate(trial, alone, 1, "loss", &loss, tally);
        sum += loss / EXAMPLES;
        weighted_sum += (double)weights[i] * loss / EXAMPLES;
        ls_data_close(alone);
    }
    if (good && !(fabs(whole - sum) <= RETURNS * (1 + fabs(sum))))
        good = ls_tally_blame(tally, "the loss of %d examples is %.8g, but their mean is %.8g",
                              EXAMPLES, whole, sum);
    struct ls_data *data = NULL;
    good = good && !make_data(trial, 0, EXAMPLES, 1, weights, &data) &&
           evaluate(trial, data, 3, "loss", &weighted, tally);
    if (good && !(fabs(weighted - weighted_sum) <= RETURNS * (1 + fabs(weighted_sum))))
        ls_tally_blame(tally, "with weights of examples it is %.8g, expected %.8g", weighted,
                       weighted_sum);
    ls_data_close(data);
    if (trial)
        trial_close(trial);
    ls_tally_end(tally);
}

static void loss_cases(struct suite *suite)
{
    gradient_case(suite, "reference", NULL);
    gradient_case(suite, "cpu", NULL);
    training_cases(suite, NULL);
    alike_case(suite, "mixed_bfloat16 on both devices", NULL,
               (struct trial){.device = "cpu", .precision = "mixed_bfloat16"},
               (struct trial){.device = "reference", .precision = "mixed_bfloat16"}, 0.1);
    loss_of_one_case(suite);
}

// ---- Metrics ----

static void metric_case(struct suite *suite, const char *name, struct trial like, uint64_t batch,
                        uint64_t stride)
{
    struct ls_tally *tally = &suite->tally;
    const char *metric = suite->plugin->plugin->name;
    double whole = 0, parts = 0;
    if (!ls_tally_begin(tally, "%s", name))
        return;
    struct trial *one = trial_open(suite, &(struct trial){.device = "reference"});
    struct trial *other = one ? trial_open(suite, &like) : NULL;
    struct ls_data *data = NULL;
    bool good = other || ls_tally_blame(tally, "%s", ls_last_error());
    good = good && !make_data(other, 0, EXAMPLES, stride, NULL, &data) &&
           evaluate(one, one->data, EXAMPLES, metric, &whole, tally) &&
           evaluate(other, data, batch, metric, &parts, tally);
    if (good && !(fabs(whole - parts) <= AGREES * (1 + fabs(whole))))
        ls_tally_blame(tally, "of all examples at once it is %.8g, otherwise %.8g", whole, parts);
    ls_data_close(data);
    if (one)
        trial_close(one);
    if (other)
        trial_close(other);
    ls_tally_end(tally);
}

static void metric_cases(struct suite *suite)
{
    metric_case(suite, "reference and cpu agree", (struct trial){.device = "cpu"}, EXAMPLES, 1);
    metric_case(suite, "batches of 2", (struct trial){.device = "cpu"}, 2, 1);
    metric_case(suite, "examples in another order", (struct trial){.device = "cpu"}, 3, 3);
    metric_case(suite, "ring of 2 replicas, uneven shares",
                (struct trial){.device = "cpu", .strategy = "ring", .replicas = 2}, 5, 1);
    metric_case(suite, "ring of 3 replicas, an empty share",
                (struct trial){.device = "cpu", .strategy = "ring", .replicas = 3}, 5, 1);
}

// ---- All ----

enum ls_status ls_conformance_own_part(const struct ls_own_conformance_options *options,
                                       ls_conformance_report report, void *context,
                                       struct ls_conformance_counts *counts)
{
    struct suite suite = {.plugin = options->plugin, .seed = options->seed};
    ls_tally_init(&suite.tally, options->only, options->wanted, report, context);
    ls_set_log(say_nothing, NULL); // what fails is the message of its case
    switch (options->plugin->plugin->kind) {
    case LS_KIND_LAYER: layer_cases(&suite); break;
    case LS_KIND_LOSS: loss_cases(&suite); break;
    default: metric_cases(&suite); break;
    }
    ls_set_log(NULL, NULL);
    if (counts)
        *counts = suite.tally.counts;
    const enum ls_status status = suite.tally.counts.failed ? LS_FAILED : LS_OK;
    ls_tally_finish(&suite.tally);
    return status;
}
