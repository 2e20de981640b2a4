// SPDX-License-Identifier: Apache-2.0
// Functional models that a C program writes: symbols, shared layers, models as layers.
#include "tests/core/train/fixture.h"

#include <stdio.h>

#define LAYER(...) (&(const struct ls_layer)__VA_ARGS__)
#define IMAGE LAYER(LS_INPUT(4, 4, 1))
#define SGD                                  \
    &(struct ls_compile_options)             \
    {                                        \
        .optimizer = "sgd:learning_rate=0.1" \
    }

static struct ls_symbol *input(const struct ls_layer *layer)
{
    struct ls_symbol *out = NULL;
    OK(ls_input(run, layer, &out));
    return out;
}

static struct ls_symbol *call(const struct ls_layer *layer, struct ls_symbol *x)
{
    struct ls_symbol *out = NULL;
    OK(ls_layer_call(layer, &x, 1, &out));
    return out;
}

static struct ls_symbol *again(const struct ls_symbol *made, struct ls_symbol *x)
{
    struct ls_symbol *out = NULL;
    OK(ls_layer_call_again(made, &x, 1, &out));
    return out;
}

static struct ls_symbol *call_model(const struct ls_model *model, struct ls_symbol *x)
{
    struct ls_symbol *out = NULL;
    OK(ls_model_call(model, &x, 1, &out, 1));
    return out;
}

static struct ls_model *create(const char *name, struct ls_symbol *x, struct ls_symbol *y)
{
    struct ls_model *model = NULL;
    OK(ls_model_create(name, &x, 1, &y, 1, &model));
    return model;
}

static void fit(struct ls_model *model)
{
    OK(ls_compile(model, SGD));
    OK(ls_fit(model, train, &(struct ls_fit_options){.batch = 10, .epochs = 2}));
}

static void check_variables(const struct ls_model *model, const char *const *names)
{
    uint32_t count = 0;
    for (; names[count]; count++) {
        ck_assert_uint_lt(count, model->graph->parameter_count);
        ck_assert_str_eq(model->graph->parameters[count]->name, names[count]);
    }
    ck_assert_uint_eq(model->graph->parameter_count, count);
}

TEST(a_chain_trains_as_the_same_sequential_model)
{
    const struct ls_layer layers[] = {LS_INPUT(4, 4, 1), LS_CONV2D(3, 2, .activation = "relu"),
                                      LS_FLATTEN(),      LS_DENSE(6, .activation = "tanh"),
                                      LS_DENSE(10),      LS_END};
    struct ls_symbol *x = input(&layers[0]), *y = x;
    for (int i = 1; i < 5; i++)
        y = call(&layers[i], y);
    struct ls_model *model = create("chain", x, y), *chain = NULL;
    OK(ls_sequential_create(run, "chain", layers, &chain));
    static const char *const names[] = {
        "conv2d/kernel", "conv2d/bias", "dense/kernel", "dense/bias", "dense_1/kernel",
        "dense_1/bias",  NULL};
    check_variables(model, names);
    fit(model);
    fit(chain);
    ck_assert_double_eq(weight_difference(model, chain), 0);
    ls_model_close(model);
    ls_model_close(chain);
}

TEST(a_layer_that_is_called_again_has_its_weights_once)
{
    struct ls_symbol *x = input(IMAGE);
    struct ls_symbol *flat = call(LAYER(LS_FLATTEN()), x);
    struct ls_symbol *once = call(LAYER(LS_DENSE(16, .activation = "tanh")), flat);
    struct ls_symbol *other = call(LAYER(LS_DENSE(16)), again(once, again(once, once)));
    struct ls_model *model = create("again", x, call(LAYER(LS_DENSE(10, .name = "top")), other));
    static const char *const names[] = {
        "dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias", "top/kernel",
        "top/bias",     NULL};
    check_variables(model, names);
    fit(model);
    ls_model_close(model);
}

TEST(a_model_is_called_as_a_layer_and_may_be_closed)
{
    const struct ls_layer layers[] = {LS_INPUT(16), LS_DENSE(16, .activation = "relu"),
                                      LS_DENSE(16, .frozen = true), LS_END};
    struct ls_model *base = NULL, *copy = NULL;
    OK(ls_sequential_create(run, "base", layers, &base));
    struct ls_symbol *x = input(IMAGE);
    struct ls_symbol *flat = call(LAYER(LS_FLATTEN()), x);
    struct ls_symbol *one = call_model(base, call_model(base, flat));
    ls_model_close(base);
    // A model at the same address is another one.
    OK(ls_sequential_create(run, "copy", layers, &copy));
    struct ls_symbol *two = call_model(copy, one);
    ls_model_close(copy);
    struct ls_model *model = create("outer", x, call(LAYER(LS_DENSE(10)), two));
    static const char *const names[] = {"base/dense/kernel",
                                        "base/dense/bias",
                                        "base/dense_1/kernel",
                                        "base/dense_1/bias",
                                        "copy/dense/kernel",
                                        "copy/dense/bias",
                                        "copy/dense_1/kernel",
                                        "copy/dense_1/bias",
                                        "dense/kernel",
                                        "dense/bias",
                                        NULL};
    check_variables(model, names);
    for (uint32_t i = 0; i < model->graph->layer_count; i++)
        ck_assert(model->graph->layers[i].frozen ==
                  (strstr(model->graph->layers[i].name, "/dense_1") != NULL));
    ls_model_close(model);
}

// As in transfer learning: the model inside keeps its weights, the layer behind it learns.
TEST(a_frozen_model_inside_keeps_its_weights)
{
    struct ls_symbol *x = input(IMAGE);
    struct ls_symbol *flat = call(LAYER(LS_FLATTEN()), x);
    struct ls_symbol *cold = call(LAYER(LS_DENSE(8, .activation = "tanh", .frozen = true)), flat);
    struct ls_model *base = create("base", x, cold);
    struct ls_symbol *y = input(IMAGE);
    struct ls_symbol *top = call(LAYER(LS_DENSE(10, .name = "top")), call_model(base, y));
    struct ls_model *trained = create("outer", y, top), *same = create("outer", y, top);
    OK(ls_model_need_weights(same)); // the same first values
    fit(trained);
    OK(ls_model_take(trained, LS_TAKE_ALL));
    for (uint32_t i = 0; i < trained->graph->parameter_count; i++) {
        const bool frozen = strncmp(trained->graph->parameters[i]->name, "base/dense/", 11) == 0;
        double difference = 0;
        for (size_t k = 0; k < elements_of(trained, i); k++)
            difference = fmax(difference,
                              fabs((double)trained->weights[i][k] - (double)same->weights[i][k]));
        ck_assert_msg(frozen ? difference == 0 : difference > 0, "%s: %g",
                      trained->graph->parameters[i]->name, difference);
    }
    char text[4096] = "";
    FILE *file = tmpfile();
    ls_model_summary(trained, file);
    rewind(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    ck_assert_ptr_nonnull(strstr(text, "Trainable params: 90 (360 bytes)"));
    ck_assert_ptr_nonnull(strstr(text, "Non-trainable params: 136 (544 bytes)"));
    ck_assert_ptr_nonnull(strstr(text, "base/flatten[0][0]"));
    ls_model_close(base);
    ls_model_close(trained);
    ls_model_close(same);
}

TEST(a_functional_model_of_two_inputs_and_outputs_is_a_layer)
{
    struct ls_symbol *u = input(LAYER(LS_INPUT(3))), *v = input(LAYER(LS_INPUT(4)));
    struct ls_symbol *ends[2] = {v, u},
                     *made[2] = {call(LAYER(LS_DENSE(2)), u), call(LAYER(LS_DENSE(5)), v)};
    struct ls_model *inner = NULL, *outer = NULL;
    OK(ls_model_create("inner", ends, 2, made, 2, &inner));
    OK(ls_compile(inner, NULL)); // each output has a loss
    struct ls_symbol *x = input(LAYER(LS_INPUT(4))), *y = input(LAYER(LS_INPUT(3)));
    struct ls_symbol *outputs[2], *inputs[2] = {x, y};
    OK(ls_model_call(inner, inputs, 2, outputs, 2));
    OK(ls_model_create("outer", inputs, 2, outputs, 2, &outer));
    ck_assert_int_eq(outer->graph->outputs[0]->shape.dims[1], 2);
    ck_assert_int_eq(outer->graph->outputs[1]->shape.dims[1], 5);
    ck_assert_int_eq(outer->graph->inputs[0]->shape.dims[1], 4);
    expect_error(ls_model_call(inner, inputs, 1, outputs, 2), LS_BAD_INPUT,
                 "inner: the model has 2 inputs, not 1");
    expect_error(ls_model_call(inner, inputs, 2, outputs, 1), LS_BAD_INPUT,
                 "inner: the model has 2 outputs, not 1");
    ls_model_close(inner);
    ls_model_close(outer);
}

// Symbols may be in several models, each with names and weights of its own.
TEST(models_between_the_same_symbols_are_independent)
{
    struct ls_symbol *x = input(IMAGE);
    struct ls_symbol *flat = call(LAYER(LS_FLATTEN()), x);
    struct ls_symbol *unused = call(LAYER(LS_DENSE(3)), flat);
    struct ls_symbol *a = call(LAYER(LS_DENSE(10)), flat);
    struct ls_model *first = create("first", x, a), *second = create("second", x, unused);
    ck_assert_str_eq(first->graph->parameters[0]->name, "dense/kernel");
    ck_assert_str_eq(second->graph->parameters[0]->name, "dense/kernel");
    ck_assert_int_eq(second->graph->parameters[0]->shape.dims[1], 3);
    ls_model_close(first);
    ls_model_close(second);
}

TEST(tokens_are_integers)
{
    struct ls_symbol *x = input(LAYER(LS_LAYER("InputLayer", .shape = {7}, .dtype = "int32")));
    struct ls_model *model = create("tokens", x, call(LAYER(LS_FLATTEN()), x));
    ck_assert_uint_eq(model->graph->inputs[0]->dtype, LS_I32);
    ls_model_close(model);
}

// A change of the last token changes the scores of the last position alone.
TEST(causal_attention_does_not_look_ahead)
{
    enum { LENGTH = 5, SCORES = 3 };
    const int32_t tokens[2][LENGTH] = {{1, 4, 2, 0, 3}, {1, 4, 2, 0, 5}};
    const struct ls_array array = {
        .values = tokens, .dtype = "int32", .ndims = 2, .dims = {2, LENGTH}};
    float scores[2][LENGTH][SCORES];
    for (int causal = 0; causal < 2; causal++) {
        struct ls_symbol *x =
            input(LAYER(LS_LAYER("InputLayer", .shape = {LENGTH}, .dtype = "int32")));
        struct ls_symbol *hidden = call(LAYER(LS_EMBEDDING(6, 8)), x), *both[] = {hidden, hidden};
        struct ls_symbol *attended = NULL;
        OK(ls_layer_call(LAYER(LS_MULTI_HEAD_ATTENTION(2, 4, .causal = causal)), both, 2,
                         &attended));
        struct ls_model *model = create("tokens", x, call(LAYER(LS_DENSE(SCORES)), attended));
        struct ls_data *data = NULL;
        OK(ls_data_from_memory(&array, 1, NULL, &data));
        OK(ls_predict(model, data, 2, &scores[0][0][0]));
        for (int i = 0; i < LENGTH - 1; i++)
            ck_assert_int_eq(memcmp(scores[0][i], scores[1][i], sizeof(scores[0][i])) == 0, causal);
        ck_assert_int_ne(memcmp(scores[0][LENGTH - 1], scores[1][LENGTH - 1], sizeof(scores[0][0])),
                         0);
        ls_model_close(model);
        ls_data_close(data);
    }
    ck_assert_uint_eq(errors, 0);
}

TEST(what_cannot_be_called_is_refused)
{
    struct ls_symbol *x = input(IMAGE), *out = NULL, *none = NULL;
    struct ls_symbol *flat = call(LAYER(LS_FLATTEN()), x);
    struct ls_model *model = NULL;
    expect_error(ls_input(run, LAYER(LS_DENSE(3)), &out), LS_BAD_INPUT,
                 "ls_input takes an LS_INPUT, not 'Dense'");
    expect_error(ls_input(run, LAYER(LS_END), &out), LS_BAD_INPUT, "not 'LS_END'");
    expect_error(ls_layer_call(IMAGE, &x, 1, &out), LS_BAD_INPUT,
                 "'InputLayer' is no layer that can be called");
    expect_error(ls_layer_call(LAYER(LS_DENSE(3)), &x, 0, &out), LS_BAD_INPUT,
                 "Dense: a call takes 1 to 256 symbols, not 0");
    expect_error(ls_layer_call(LAYER(LS_DENSE(3)), &none, 1, &out), LS_BAD_INPUT,
                 "Dense: input 0 is NULL");
    expect_error(ls_layer_call_again(x, &flat, 1, &out), LS_BAD_INPUT,
                 "InputLayer: only what a layer has made");
    expect_error(ls_layer_call(LAYER(LS_DROPOUT(NAN)), &x, 1, &out), LS_BAD_INPUT,
                 "rate: not a finite number");
    expect_error(ls_model_create("m", &flat, 1, &flat, 1, &model), LS_BAD_INPUT,
                 "m: input 0 was made by a layer (Flatten), not by ls_input");
    expect_error(ls_model_create("m", &x, 1, &flat, 0, &model), LS_BAD_INPUT,
                 "m: a call takes 1 to 256 symbols, not 0");
    ck_assert_ptr_null(out);
    // Options and shapes: when the model is created.
    struct ls_symbol *wrong = call(LAYER(LS_CONV2D(3, 2)), flat);
    expect_error(ls_model_create("m", &x, 1, &wrong, 1, &model), LS_BAD_INPUT,
                 "m: layer 'conv2d' (Conv2D): input shape (None, 16): expected 4 dimensions");
    struct ls_symbol *other = input(IMAGE), *two[] = {x, other};
    struct ls_symbol *unknown = NULL;
    OK(ls_layer_call(LAYER({.class_name = "Concat"}), two, 2, &unknown));
    expect_error(ls_model_create("m", &x, 1, &unknown, 1, &model), LS_BAD_INPUT,
                 "m: input_layers: InputLayer 'input_layer_1' is missing");
    ck_assert_ptr_null(model);
}

TEST(symbols_of_two_runs_do_not_mix)
{
    struct ls_run *second = run_of(NULL, 1);
    struct ls_symbol *x = input(IMAGE), *y = NULL, *out = NULL;
    struct ls_model *model = NULL;
    OK(ls_input(second, IMAGE, &y));
    struct ls_symbol *two[] = {x, y};
    expect_error(ls_layer_call(LAYER({.class_name = "Concat"}), two, 2, &out), LS_BAD_INPUT,
                 "Concat: input 1 is of another run than the first");
    struct ls_symbol *flat = call(LAYER(LS_FLATTEN()), x);
    expect_error(ls_layer_call_again(flat, &y, 1, &out), LS_BAD_INPUT,
                 "Flatten: the inputs are of another run than the layer");
    expect_error(ls_model_create("m", &y, 1, &flat, 1, &model), LS_BAD_INPUT,
                 "m: inputs and outputs are of different runs");
    ls_run_close(second);
}

TEST_FIXTURE(set_up, tear_down);
