// SPDX-License-Identifier: Apache-2.0
// The names that Keras defines, so that messages can tell a name that Lockstep does not support
// from a misspelling.
#ifndef LS_BASE_KERAS_NAMES_H
#define LS_BASE_KERAS_NAMES_H

#include <stdbool.h>
#include <stddef.h>

enum ls_keras_kind {
    LS_KERAS_LAYER,
    LS_KERAS_ACTIVATION,
    LS_KERAS_INITIALIZER,
    LS_KERAS_LOSS,
    LS_KERAS_METRIC,
    LS_KERAS_OPTIMIZER,
};

// Whether Keras 2 or 3 defines something of this kind and name. Case and underscores are ignored,
// so that a class (HardSigmoid) and a function (hard_sigmoid) have the same name.
bool ls_keras_has(enum ls_keras_kind kind, const char *name);

// Writes why `name` is refused where only `supported` (ends with NULL) names are allowed; the text
// follows the name in a message. For a name of Keras: "is not supported yet; supported: linear,
// relu". For a misspelling: "is unknown; did you mean 'relu'?". For any other name: "is unknown;
// supported: linear, relu". Returns `text`, cut to fit.
const char *ls_keras_refusal(enum ls_keras_kind kind, const char *name,
                             const char *const *supported, char *text, size_t bytes);

// Keras's default name for objects of a class, cut to fit: Conv2D: conv2d, MaxPooling2D:
// max_pooling2d, LeakyReLU: leaky_re_lu.
void ls_keras_snake_case(const char *class_name, char *out, size_t bytes);
// What a model of the class (Sequential, Functional, or Keras 2's Model) is called without a name.
const char *ls_keras_model_name(const char *class_name);

#endif
