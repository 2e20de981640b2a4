// SPDX-License-Identifier: Apache-2.0
// Names that Keras has, so that one that Lockstep does not support is not taken for a misspelling
// of another.
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

// Whether Keras 2 or 3 has something of that kind and name. Case and underscores do not count, so
// that a class (HardSigmoid) and a function (hard_sigmoid) are the same name.
bool ls_keras_has(enum ls_keras_kind kind, const char *name);

// Why `name` is refused where only `supported` (ends with NULL) are; the text follows the name. One
// that Keras has: "is not supported yet; supported: linear, relu". A misspelling: "is unknown; did
// you mean 'relu'?". Another one: "is unknown; supported: linear, relu". Returns `text`, cut to
// fit.
const char *ls_keras_refusal(enum ls_keras_kind kind, const char *name,
                             const char *const *supported, char *text, size_t bytes);

#endif
