// SPDX-License-Identifier: Apache-2.0
// Where Keras's files keep the parameters of a model. Keras 3 names neither layers nor variables: a
// layer's group is called by its class and counted in its model ("layers/dense_1"; a model inside a
// model has "layers" of its own), its variables are numbered, trainable ones first. Private to
// train/. [main thread]
#ifndef LS_MODEL_KERAS_LAYOUT_H
#define LS_MODEL_KERAS_LAYOUT_H

#include "core/base/status.h"
#include "core/graph/graph.h"

#include <jansson.h>

// A layer that has variables, or a part of one that Keras keeps in a group of its own.
struct ls_keras_store {
    char *group; // "layers/functional/layers/conv2d_1"
    // The same, but only layers with variables are counted, and the count is always there:
    // "layers/functional@0/layers/conv2d@1".
    char *counted;
    char *layer; // name in the model: "encoder/conv2d_2"
    const char *name; // the layer's own, with which `layer` ends; Keras 2 allows slashes in it
    uint32_t top; // index of the model's own layer that it belongs to
    size_t top_length; // letters of that layer's name, with which `layer` begins
    bool counts_examples; // of Normalization: the last variable in a file is a count, and no weight
    uint32_t first, count; // in `parameters`
};

struct ls_keras_layout {
    struct ls_keras_store *stores; // in the order of the model's layers
    uint32_t count;
    uint32_t *parameters; // of the graph, in Keras's order; one that two groups have is there twice
    uint32_t parameter_count; // constants of the graph are none
};

// `model`: the Keras model that `graph` was built from. LS_BAD_INPUT, logged with `source`, where
// layers of the JSON and parameters of the graph do not belong together.
LS_STATUS ls_keras_layout_create(const char *source, const json_t *model,
                                 const struct ls_graph *graph, struct ls_keras_layout *out);
void ls_keras_layout_finish(struct ls_keras_layout *layout); // takes a zeroed one

// The part of a parameter's or a variable's name behind the last slash: "kernel".
const char *ls_keras_last_part(const char *name);
// Whether a variable of this name is trained by nothing: "moving_mean".
bool ls_keras_is_statistic(const char *name);

#endif
