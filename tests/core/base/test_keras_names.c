// SPDX-License-Identifier: Apache-2.0
// A name that Keras has is never taken for a misspelling of another.
#include "core/base/keras_names.h"

#include "tests/support/suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static const char *const activations[] = {"linear", "relu", "elu", "tanh", "softmax", NULL};

TEST(classes_and_functions_are_the_same_names)
{
    ck_assert(ls_keras_has(LS_KERAS_ACTIVATION, "gelu"));
    ck_assert(ls_keras_has(LS_KERAS_ACTIVATION, "hard_sigmoid"));
    ck_assert(ls_keras_has(LS_KERAS_ACTIVATION, "HardSigmoid"));
    ck_assert(ls_keras_has(LS_KERAS_LAYER, "ActivityRegularization")); // the first of its list
    ck_assert(ls_keras_has(LS_KERAS_LAYER, "ZeroPadding3D")); // the last one
    ck_assert(ls_keras_has(LS_KERAS_LAYER, "BatchNormalization"));
    ck_assert(ls_keras_has(LS_KERAS_OPTIMIZER, "AdamW"));
    ck_assert(ls_keras_has(LS_KERAS_LOSS, "KLDivergence"));
    ck_assert(ls_keras_has(LS_KERAS_METRIC, "AUC"));
    ck_assert(ls_keras_has(LS_KERAS_INITIALIZER, "OrthogonalInitializer"));
}

TEST(parts_of_names_and_other_kinds_are_not_names)
{
    ck_assert(!ls_keras_has(LS_KERAS_ACTIVATION, ""));
    ck_assert(!ls_keras_has(LS_KERAS_ACTIVATION, "gel"));
    ck_assert(!ls_keras_has(LS_KERAS_ACTIVATION, "gelus"));
    ck_assert(!ls_keras_has(LS_KERAS_ACTIVATION, "gelu glu"));
    ck_assert(!ls_keras_has(LS_KERAS_LAYER, "Conv2d")); // supported as Conv2D
    ck_assert(!ls_keras_has(LS_KERAS_OPTIMIZER, "gelu"));
}

static void expect(enum ls_keras_kind kind, const char *name, const char *refusal)
{
    char text[300];
    ck_assert_str_eq(ls_keras_refusal(kind, name, activations, text, sizeof(text)), refusal);
}

TEST(only_a_misspelling_gets_a_suggestion)
{
    expect(LS_KERAS_ACTIVATION, "gelu",
           "is not supported yet; supported: linear, relu, elu, tanh, softmax");
    expect(LS_KERAS_ACTIVATION, "SELU",
           "is not supported yet; supported: linear, relu, elu, tanh, softmax");
    expect(LS_KERAS_ACTIVATION, "rellu", "is unknown; did you mean 'relu'?");
    expect(LS_KERAS_ACTIVATION, "ReLU", "is unknown; did you mean 'relu'?");
    expect(LS_KERAS_ACTIVATION, "mine", "is unknown; supported: linear, relu, elu, tanh, softmax");
}

TEST(a_class_or_a_short_name_of_what_is_supported_is_named)
{
    static const char *const losses[] = {"mse", "kl_divergence", "binary_crossentropy", NULL};
    static const char *const found[][2] = {{"KLD", "kl_divergence"},
                                           {"KLDivergence", "kl_divergence"},
                                           {"bce", "binary_crossentropy"},
                                           {"BinaryCrossentropy", "binary_crossentropy"},
                                           {"MSE", "mse"}};
    for (size_t i = 0; i < sizeof(found) / sizeof(found[0]); i++) {
        char text[200], expected[100];
        snprintf(expected, sizeof(expected), "is unknown; did you mean '%s'?", found[i][1]);
        ck_assert_str_eq(ls_keras_refusal(LS_KERAS_LOSS, found[i][0], losses, text, sizeof(text)),
                         expected);
    }
}

TEST(a_list_that_does_not_fit_is_cut)
{
    for (size_t bytes = 1; bytes < 80; bytes++) {
        char text[100];
        memset(text, '#', sizeof(text));
        ls_keras_refusal(LS_KERAS_ACTIVATION, "mine", activations, text, bytes);
        ck_assert_uint_lt(strlen(text), bytes);
        ck_assert_int_eq(text[bytes], '#');
    }
}
