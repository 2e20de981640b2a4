// SPDX-License-Identifier: Apache-2.0
// What a layer is to the core: a class name, the options of its Keras configuration, and a function
// that adds its operations to a graph. layers/ defines the table; core/train/ only walks it. [main
// thread]
#ifndef LS_GRAPH_LAYER_H
#define LS_GRAPH_LAYER_H

#include "core/graph/graph.h"

#include <jansson.h>

struct ls_layer_kind {
    const char *class_name; // as in Keras: "Conv2D"
    const char *summary; // one line
    // Names of all configuration keys that `build` looks at, ends with NULL. Keys outside it and
    // outside those of every layer (name, trainable, dtype, ...) are refused by name.
    const char *const *keys;
    // Adds the layer's operations. `config` is the Keras "config" object (never NULL); missing keys
    // mean Keras's defaults. Errors through ls_graph_fail. `input` NULL, after a layer that was
    // refused: only checks the options.
    enum ls_status (*build)(struct ls_graph *graph, const json_t *config, struct ls_tensor *input,
                            struct ls_tensor **out);
};

// All layers, ends with NULL. Defined in layers/.
extern const struct ls_layer_kind *const ls_layer_kinds[];

// Builds a graph from a Keras model (Sequential; the JSON of Keras 2 or 3, parsed). `source` names
// it in errors: file or built-in name. Errors are logged and name layer, input shape and what was
// wanted. `input_shape`: used when the model has no InputLayer and no batch shape (NULL: then that
// is LS_BAD_INPUT). Defined in layers/.
LS_STATUS ls_model_build(const char *source, const json_t *model,
                         const struct ls_shape *input_shape, struct ls_graph **out);
// Reads and parses a file: LS_BAD_INPUT, with line and column, logged. Dropped with json_decref.
// Defined in layers/.
LS_STATUS ls_model_read(const char *path, json_t **out);
// Reads the file, then builds.
LS_STATUS ls_model_load(const char *path, const struct ls_shape *input_shape,
                        struct ls_graph **out);

// Optimizer, loss and metrics as the model's own file has them, in the words of the command line:
// "sgd:learning_rate=0.5". NULL: the file does not say it. Only those of `parts` are looked at; a
// mistake in another one is none.
enum { LS_COMPILE_OPTIMIZER = 1, LS_COMPILE_LOSS = 2, LS_COMPILE_METRICS = 4 };
struct ls_compile_config {
    char *optimizer, *loss, *metrics;
};
// What of it is not supported is LS_BAD_INPUT, logged with the option that takes its place. Defined
// in layers/.
LS_STATUS ls_model_compile_config(const char *source, const json_t *model, uint32_t parts,
                                  struct ls_compile_config *out);
void ls_compile_config_finish(struct ls_compile_config *config);

// Whether a built model asks for something that Lockstep does not do when it computes the loss
// (regularizers), or, with `fit`, when it trains (layers that are not trainable, constraints):
// LS_BAD_INPUT, one line for each of them all. Predictions do not depend on any. Defined in
// layers/.
LS_STATUS ls_model_check_training(const char *source, const json_t *model, bool fit);

struct ls_layer; // layers.h, at the root: a layer as a C program writes it

// The JSON, in Keras 3's form, of the Sequential model `name` (NULL: "sequential") made of `layers`
// (ends with LS_END); ls_model_build takes it. The caller drops it with json_decref. Defined in
// layers/.
LS_STATUS ls_sequential_json(const char *name, const struct ls_layer *layers, json_t **out);

#endif
