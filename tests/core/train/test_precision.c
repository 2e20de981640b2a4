// SPDX-License-Identifier: Apache-2.0
// Mixed precision: models with dtype policies against Keras (tests/data/precision/make.py), gradients
// against those of float32, and what holds of them whatever the number of replicas.
#include "tests/core/train/of_keras.h"

#include "core/formats/safetensors.h"
#include "core/plugin/half.h"
#include "core/model/model.h"

#define MOST 2048

// What one rounding costs, relative to the value.
#define BFLOAT16 0x1p-9
#define FLOAT16 0x1p-12
// A prediction comes of some ten roundings of values up to 4, of which not all have the same sign; a
// loss is the mean of several. Each step of training adds the differences of the gradients.
#define PREDICTION 8
#define LOSS 8
#define LATER_LOSS 24

static struct ls_run *open_run(const char *strategy, const char *device, uint32_t replicas,
                               const char *precision)
{
    struct ls_run *run = NULL;
    OK(ls_run_open(&(struct ls_run_options){.strategy = strategy,
                                            .device = device,
                                            .replicas = replicas,
                                            .threads = 1,
                                            .seed = 3,
                                            .precision = precision},
                   &run));
    return run;
}

// ---- Keras ----

static struct ls_data *data_for(const json_t *c)
{
    float x[MOST], y[MOST];
    int32_t ids[MOST], labels[MOST];
    const size_t xs = flatten(json_object_get(fixture, text_of(c, "inputs")), x);
    const size_t ys = flatten(json_object_get(fixture, "labels"), y);
    const bool tokens = strcmp(text_of(c, "inputs"), "ids") == 0;
    const int64_t count = (int64_t)ys;
    for (size_t i = 0; i < ys; i++)
        labels[i] = (int32_t)y[i];
    for (size_t i = 0; i < xs && tokens; i++)
        ids[i] = (int32_t)x[i];
    const struct ls_array images = {"float32", 4, {count, 6, 6, 2}, x};
    const struct ls_array rows = {"int32", 2, {count, 5}, ids};
    const struct ls_array numbered = {"int32", 1, {count}, labels};
    struct ls_data *data = NULL;
    OK(ls_data_from_memory(tokens ? &rows : &images, 1, &numbered, &data));
    return data;
}

static struct ls_model *model_for(struct ls_run *run, const json_t *c, struct ls_data *data)
{
    char path[64], optimizer[64];
    struct ls_model *model = NULL;
    snprintf(path, sizeof(path), "test-precision-%ld.json", (long)getpid());
    ck_assert_int_eq(json_dump_file(json_object_get(c, "model"), path, 0), 0);
    const enum ls_status status = ls_model_open(run, path, data, &model);
    remove(path);
    ck_assert_msg(status == LS_OK, "%s: %s", text_of(c, "name"), message);
    snprintf(optimizer, sizeof(optimizer), "sgd:learning_rate=%g",
             json_number_value(json_object_get(fixture, "rate")));
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = optimizer}));
    OK(ls_model_need_weights(model));
    const json_t *weights = json_object_get(c, "weights");
    uint32_t used = 0;
    for (uint32_t i = 0; i < model->graph->parameter_count; i++)
        if (!model->graph->parameters[i]->constant) {
            const json_t *values = json_array_get(weights, used++);
            ck_assert_uint_eq(json_array_size(values), elements_of(model, i));
            (void)flatten(values, model->weights[i]);
        }
    ck_assert_uint_eq(used, json_array_size(weights));
    return model;
}

static void check(const json_t *c, const char *what, size_t i, double got, double expected,
                  double roundings)
{
    const double one = strstr(text_of(c, "name"), "mixed_bfloat16") ? BFLOAT16 : FLOAT16;
    ck_assert_msg(fabs(got - expected) <= roundings * one * fmax(1, fabs(expected)),
                  "%s: %s %zu is %.7g, Keras has %.7g: %.1f roundings", text_of(c, "name"), what, i,
                  got, expected, fabs(got - expected) / one);
}

static const char *const devices[] = {"reference", "cpu"};

LOOP_TEST(policies_are_those_of_keras, 0, 2)
{
    const json_t *c, *cases = json_object_get(fixture, "cases");
    float predictions[MOST], expected[MOST];
    size_t k, count;
    forget_errors();
    struct ls_run *run = open_run(NULL, devices[_i], 1, NULL);
    ck_assert_uint_gt(json_array_size(cases), 0);
    json_array_foreach((json_t *)cases, k, c)
    {
        struct ls_data *data = data_for(c);
        struct ls_model *model = model_for(run, c, data);
        const char *policy =
            strstr(text_of(c, "name"), "mixed_bfloat16") ? "mixed_bfloat16" : "mixed_float16";
        ck_assert_str_eq(ls_graph_precision(model->graph), policy);
        OK(ls_predict(model, data, 8, predictions));
        const size_t made = flatten(json_object_get(c, "predictions"), expected);
        for (size_t i = 0; i < made; i++)
            check(c, "prediction", i, (double)predictions[i], (double)expected[i], PREDICTION);
        OK(ls_fit(model, data,
                  &(struct ls_fit_options){.batch = 8, .epochs = 2, .shuffle = "off"}));
        const float *losses = ls_fit_losses(model, &count);
        const json_t *wanted = json_object_get(c, "losses");
        ck_assert_uint_eq(count, json_array_size(wanted));
        for (size_t i = 0; i < count; i++)
            check(c, "loss", i, (double)losses[i], json_number_value(json_array_get(wanted, i)),
                  i == 0 ? LOSS : LATER_LOSS);
        ls_model_close(model);
        ls_data_close(data);
    }
    ls_run_close(run);
}

// Casts become part of a kernel on one device and are steps of their own on the other.
TEST(losses_on_cpu_are_those_of_reference)
{
    const json_t *c;
    size_t k;
    forget_errors();
    json_array_foreach(json_object_get(fixture, "cases"), k, c)
    {
        float found[2][16];
        size_t count = 0;
        for (size_t d = 0; d < 2; d++) {
            struct ls_run *run = open_run(NULL, devices[d], 1, NULL);
            struct ls_data *data = data_for(c);
            struct ls_model *model = model_for(run, c, data);
            const struct ls_fit_options options = {
                .batch = 8, .steps = 10, .epochs = 10, .shuffle = "off"};
            OK(ls_fit(model, data, &options));
            const float *losses = ls_fit_losses(model, &count);
            ck_assert_uint_le(count, 16);
            memcpy(found[d], losses, count * sizeof(*losses));
            ls_model_close(model);
            ls_data_close(data);
            ls_run_close(run);
        }
        ck_assert_uint_ge(count, 10);
        const double one = strstr(text_of(c, "name"), "mixed_bfloat16") ? BFLOAT16 : FLOAT16;
        for (size_t i = 0; i < count; i++)
            ck_assert_msg(fabs((double)found[0][i] - (double)found[1][i]) <= LATER_LOSS * one,
                          "%s: loss %zu is %.7g, on reference %.7g", text_of(c, "name"), i,
                          (double)found[1][i], (double)found[0][i]);
    }
}

// ---- Gradients ----

// Each kind of operation once: those of halves, those in float32 between casts, a second use of
// variables as halves (constants in pairs), and sums of gradients.
static struct ls_model *layers_model(struct ls_run *run, const char *optimizer)
{
    const struct ls_layer layers[] = {
        LS_INPUT(8, 8, 2),
        LS_RESCALING(0.5f, .offset = 0.25f),
        LS_CONV2D(6, 3, .padding = "same"),
        LS_BATCH_NORMALIZATION(),
        LS_ACTIVATION("tanh"),
        LS_AVERAGE_POOLING2D(2),
        LS_LAYER_NORMALIZATION(),
        LS_FLATTEN(),
        LS_DENSE(12, .activation = "gelu"),
        LS_DENSE(4, .activation = "softmax"),
        LS_END,
    };
    struct ls_model *model = NULL;
    OK(ls_sequential_create(run, "layers", layers, &model));
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = optimizer}));
    return model;
}

#define LAYERS_DATA "synthetic:shape=8x8x2,examples=24,classes=4"

// What one step of SGD with the rate 1 adds: the gradients, from the first parameter to the last.
static size_t gradients(const char *device, const char *precision, float *out)
{
    struct ls_run *run = open_run(NULL, device, 1, precision);
    struct ls_data *data = data_of(LAYERS_DATA, "train");
    struct ls_model *model = layers_model(run, "sgd:learning_rate=1");
    size_t used = 0;
    OK(ls_model_need_weights(model));
    for (uint32_t i = 0; i < model->graph->parameter_count; i++)
        for (size_t k = 0; k < elements_of(model, i); k++)
            out[used++] = model->weights[i][k];
    OK(ls_fit(model, data, &(struct ls_fit_options){.batch = 24, .steps = 1}));
    OK(ls_model_take(model, LS_TAKE_ALL));
    used = 0;
    for (uint32_t i = 0; i < model->graph->parameter_count; i++)
        for (size_t k = 0; k < elements_of(model, i); k++, used++)
            out[used] = model->weights[i][k] - out[used];
    ls_model_close(model);
    ls_data_close(data);
    ls_run_close(run);
    return used;
}

static double length(const float *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)values[i] * (double)values[i];
    return sqrt(sum);
}

// Roundings are as good as random: the difference of all gradients together is some roundings of
// their length, each of which went through several operations. Between the devices a sum in another
// order may be rounded to the other side, so that is no smaller.
LOOP_TEST(gradients_are_those_of_float32_but_for_roundings, 0, 2)
{
    static const struct {
        const char *precision;
        double rounding;
    } types[] = {{"mixed_bfloat16", BFLOAT16}, {"mixed_float16", FLOAT16}};
    static float exact[1 << 14], mixed[1 << 14];
    forget_errors();
    const size_t count = gradients("reference", "float32", exact);
    for (size_t t = 0; t < 2; t++) {
        ck_assert_uint_eq(gradients(devices[_i], types[t].precision, mixed), count);
        bool same = true;
        for (size_t i = 0; i < count; i++) {
            same &= mixed[i] == exact[i];
            mixed[i] -= exact[i];
        }
        const double difference = length(mixed, count) / length(exact, count);
        ck_assert_msg(!same, "%s computes in float32", types[t].precision);
        ck_assert_msg(difference <= 12 * types[t].rounding, "%s: %.1f roundings",
                      types[t].precision, difference / types[t].rounding);
    }
}

// ---- Replicas ----

// ls_fit fails where the replicas' parameters are not the same bits in the end.
LOOP_TEST(replicas_agree_under_every_strategy, 0, 6)
{
    static const char *const strategies[] = {"ring", "central-storage",
                                             "parameter-server:mode=sync"};
    static const char *const precisions[] = {"mixed_bfloat16", "mixed_float16"};
    const char *precision = precisions[_i % 2];
    struct ls_data *data = data_of(DATA, "train");
    struct ls_run *alone = open_run(NULL, "cpu", 1, precision);
    struct ls_run *together = open_run(strategies[_i / 2], "cpu", 2, precision);
    struct ls_model *one = model_of(alone, "adam"), *two = model_of(together, "adam");
    const struct ls_fit_options options = {.batch = 10, .epochs = 2, .check_replicas = 3};
    size_t count, other;
    forget_errors();
    OK(ls_fit(one, data, &options));
    OK(ls_fit(two, data, &options));
    const float *a = ls_fit_losses(one, &count), *b = ls_fit_losses(two, &other);
    ck_assert_uint_eq(count, other);
    for (size_t i = 0; i < count; i++) // examples are computed one by one; only sums are not
        ck_assert_double_le(fabs((double)a[i] - (double)b[i]), LATER_LOSS * BFLOAT16);
    ls_model_close(one);
    ls_model_close(two);
    ls_run_close(alone);
    ls_run_close(together);
    ls_data_close(data);
}

// ---- Variables and outputs ----

TEST(variables_and_outputs_are_float32)
{
    struct ls_run *run = open_run(NULL, "cpu", 1, "mixed_float16"), *plain = NULL;
    struct ls_data *data = data_of(LAYERS_DATA, "train");
    struct ls_model *model = layers_model(run, "adam"), *other;
    const struct ls_safetensors *file = NULL;
    char path[64];
    forget_errors();
    OK(ls_fit(model, data, &(struct ls_fit_options){.batch = 24, .steps = 2}));
    ck_assert(ls_graph_computes_in(model->graph, LS_F16));
    ck_assert(!ls_graph_computes_in(model->graph, LS_BF16));
    for (uint32_t i = 0; i < model->graph->parameter_count; i++)
        ck_assert_uint_eq(model->graph->parameters[i]->dtype, LS_F32);
    ck_assert_uint_eq(model->graph->outputs[0]->dtype, LS_F32);

    snprintf(path, sizeof(path), "test-precision-%ld.safetensors", (long)getpid());
    OK(ls_save_weights(model, path));
    struct ls_safetensors *opened = NULL;
    OK(ls_safetensors_open(path, &opened));
    file = opened;
    ck_assert_uint_gt(ls_safetensors_count(file), 0);
    for (size_t i = 0; i < ls_safetensors_count(file); i++)
        ck_assert_str_eq(ls_safetensors_get(file, i)->dtype, "F32");
    ls_safetensors_close(opened);

    // A model of float32 takes them as they are.
    plain = open_run(NULL, "cpu", 1, "float32");
    other = layers_model(plain, "adam");
    OK(ls_load_weights(other, path));
    ck_assert_double_eq(weight_difference(model, other), 0);
    ck_assert_str_eq(ls_graph_precision(other->graph), "float32");
    remove(path);
    ls_model_close(model);
    ls_model_close(other);
    ls_run_close(run);
    ls_run_close(plain);
    ls_data_close(data);
}

TEST(probabilities_come_from_float32)
{
    struct ls_run *run = open_run(NULL, "reference", 1, "mixed_bfloat16");
    struct ls_data *data = data_of(LAYERS_DATA, "train");
    struct ls_model *model = layers_model(run, "sgd");
    float p[24 * 4];
    forget_errors();
    OK(ls_predict(model, data, 8, p));
    bool finer = false;
    for (int i = 0; i < 24; i++) {
        const double sum =
            (double)p[4 * i] + (double)p[4 * i + 1] + (double)p[4 * i + 2] + (double)p[4 * i + 3];
        ck_assert_double_le(fabs(sum - 1), 1e-6); // of bfloat16 they would add up to 1 +- 0.002
        finer |= p[4 * i] != ls_half_get(LS_BF16, ls_half_of(LS_BF16, p[4 * i]));
    }
    ck_assert(finer);
    for (uint32_t i = 0; i < model->graph->operation_count; i++) {
        const struct ls_operation *operation = &model->graph->operations[i];
        if (operation->op == LS_OP_SPARSE_CROSS_ENTROPY)
            ck_assert_uint_eq(operation->inputs[0]->dtype, LS_F32);
    }
    ls_model_close(model);
    ls_run_close(run);
    ls_data_close(data);
}

// bfloat16 ends where float32 does.
LOOP_TEST(the_first_halves_that_are_not_finite_are_named, 0, 2)
{
    const struct ls_layer layers[] = {
        LS_INPUT(4, 4, 1),
        LS_RESCALING(1e-3f),
        LS_RESCALING(1e38f, .name = "much"),
        LS_RESCALING(1e38f, .name = "too_much"),
        LS_FLATTEN(),
        LS_DENSE(10),
        LS_END,
    };
    struct ls_run *run = open_run(NULL, devices[_i], 1, "mixed_bfloat16");
    struct ls_data *data = data_of(DATA, "train");
    struct ls_model *model = NULL;
    OK(ls_sequential_create(run, "large", layers, &model));
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = "sgd"}));
    forget_errors();
    expect_error(ls_fit(model, data, &(struct ls_fit_options){.batch = 10, .steps = 2}), LS_FAILED,
                 "too_much forward");
    ls_model_close(model);
    ls_run_close(run);
    ls_data_close(data);
}

TEST(other_precisions_are_refused)
{
    static const char *const wrong[] = {"float16", "bfloat16", "float64", "half", ""};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct ls_run *run = NULL;
        forget_errors();
        expect_error(ls_run_open(&(struct ls_run_options){.precision = wrong[i]}, &run), LS_USAGE,
                     "expected float32, mixed_bfloat16 or mixed_float16");
    }
}

// The policy of the run is for layers whose own is float32; float32 is for all.
TEST(the_run_decides_for_layers_that_do_not_say_it)
{
    static const struct {
        const char *run, *precision;
    } cases[] = {{NULL, "mixed_float16"},
                 {"float32", "float32"},
                 {"mixed_float16", "mixed_float16"},
                 {"mixed_bfloat16", "mixed_bfloat16 and mixed_float16"}};
    const struct ls_layer layers[] = {LS_INPUT(5), LS_DENSE(4, .dtype = "mixed_float16"),
                                      LS_DENSE(3), LS_END};
    const struct ls_layer rounded[] = {LS_LAYER("InputLayer", .shape = {5}, .dtype = "float16"),
                                       LS_DENSE(4), LS_END};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ls_run *run = open_run(NULL, "reference", 1, cases[i].run);
        struct ls_model *model = NULL;
        forget_errors();
        OK(ls_sequential_create(run, "two", layers, &model));
        ck_assert_str_eq(ls_graph_precision(model->graph), cases[i].precision);
        ls_model_close(model);
        OK(ls_sequential_create(run, "rounded", rounded, &model));
        ck_assert_str_eq(ls_graph_precision(model->graph), cases[i].precision);
        ck_assert_uint_eq(model->graph->inputs[0]->dtype, LS_F32);
        ls_model_close(model);
        ls_run_close(run);
    }
}

TEST_SECONDS(100);

int main(void)
{
    return run_with_fixture(PRECISION, "precision");
}
