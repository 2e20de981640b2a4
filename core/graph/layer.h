// SPDX-License-Identifier: Apache-2.0
// What a layer is to the core: a class name, the options of its Keras configuration, and a function
// that adds its operations to a graph. layers/ defines the table; core/ only walks it. [main thread]
#ifndef LS_GRAPH_LAYER_H
#define LS_GRAPH_LAYER_H

#include "core/graph/graph.h"

#include <jansson.h>

#define LS_LAYER_INPUTS 256 // most tensors that one call takes
#define LS_LAYER_OUTPUTS 64 // most that it makes

// One use of a layer on tensors. A shared layer is used several times.
struct ls_layer_kind;
struct ls_inner_model; // layers/kinds.h
struct ls_layer_call {
    const struct ls_layer_kind *kind; // of the layer
    const json_t *config; // Keras's "config" object, never NULL; missing keys mean Keras's defaults
    // The tensors among the arguments, in order. NULL: a layer before this one was refused, and
    // `build` only checks the options.
    struct ls_tensor *const *inputs;
    uint32_t input_count;
    // What the model passes to this call: a list and an object; NULL: nothing besides `inputs`.
    // A tensor among them is {"tensor": its index in `inputs`}; see ls_call_argument.
    const json_t *args, *kwargs;
    bool inference; // as in predict, also when the model is trained: training=False
    struct ls_inner_model *model; // that TimeDistributed has inside; NULL: a layer
};

// As in Keras.
enum ls_layer_mask {
    LS_MASK_ENDS, // its outputs have none
    LS_MASK_PASSES, // its outputs have it, too; of several inputs where all have one
    LS_MASK_OWN, // `build` reads those of the inputs and gives its outputs theirs
    LS_MASK_REFUSED, // Keras's layer computes something else, which is not supported
};

struct ls_layer_kind {
    const char *class_name; // as in Keras: "Conv2D"
    const char *summary; // one line
    uint32_t least_inputs, most_inputs; // tensors of one call; both 0: exactly one
    // Names of all configuration keys that `build` looks at, ends with NULL. Keys outside it and
    // outside those of every layer (name, trainable, dtype, ...) are refused by name.
    const char *const *keys;
    // Names of the keyword arguments of a call that `build` looks at, ends with NULL; NULL: none.
    // Others are refused by name, unless their value is null. `training` is never among them: see
    // `inference`.
    const char *const *arguments;
    // An operation or an input: it has the types of its inputs, or what its options say, where not
    // all is computed in float32.
    bool no_policy;
    // Keras writes training=True into its calls, which model.predict() overrides: it means nothing.
    bool says_training;
    // What it does where its input has a mask (see struct ls_tensor): enum ls_layer_mask.
    uint8_t mask;
    bool own; // the user's: none of Keras's
    // Its key axis names dimensions, which `build` finds as the last ones, in their order.
    bool moves_axes;
    // What tells apart kinds that share one `build`: the dimensions of space, and an operation or a
    // function of one.
    uint32_t axes, function;
    // Adds the operations of one call. The reader has checked the number of inputs. `outputs` has
    // LS_LAYER_OUTPUTS elements, all NULL; a layer with one output writes the first. Errors through
    // ls_graph_fail.
    enum ls_status (*build)(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs);
};

// All layers, ends with NULL. Defined in layers/.
extern const struct ls_layer_kind *const ls_layer_kinds[];
// Operations of Keras 3 that a functional model has among its layers: keras.ops.add and others. Ends
// with one that has no class name.
extern const struct ls_layer_kind ls_node_kinds[];

// Where a model finds what Lockstep does not have itself. Defined by who owns it.
struct ls_own_parts {
    // The layer of this class, which lasts as long as the parts; NULL in `out`: there is none. Errors
    // are logged.
    enum ls_status (*find_layer)(struct ls_own_parts *parts, const char *class_name,
                                 const struct ls_layer_kind **out);
    // Whether there is a loss or a metric (enum ls_kind) of this name.
    bool (*has)(const struct ls_own_parts *parts, uint32_t kind, const char *name);
    // "a plugin layer-RMSNorm.so would provide it; there is none in /a, /b"
    void (*hint)(const struct ls_own_parts *parts, uint32_t kind, const char *name, char *text,
                 size_t bytes);
};

// What a plugin composes operations with, around one call of its build function. Defined in layers/.
struct ls_composition {
    struct ls_composer composer; // for the plugin
    struct ls_graph *graph;
    const char *what; // "loss 'focal'", in messages; NULL: the layer that is being built
    uint32_t constants; // so far
    enum ls_status status; // of the first call that failed
};
void ls_composition_begin(struct ls_composition *composition, struct ls_graph *graph,
                          const char *what, bool inference);
// What came of it: `answer` of build, or the first call that failed. Each of `count` results must be
// there and have a row for each example.
LS_STATUS ls_composition_end(struct ls_composition *composition, int32_t answer,
                             struct ls_tensor *const *results, uint32_t count);

// Builds a graph from a Keras model (Sequential; the JSON of Keras 2 or 3, parsed). `source` names
// it in errors: file or built-in name. Errors are logged and name layer, input shape and what was
// expected. `input_shape`: used when the model has no InputLayer and no batch shape (NULL: then that
// is LS_BAD_INPUT). Layers compute in what their dtype policies say. Defined in layers/.
LS_STATUS ls_model_build(const char *source, const json_t *model,
                         const struct ls_shape *input_shape, struct ls_graph **out);
// The same with a policy for the layers whose own is float32 (with LS_PRECISION_FLOAT32 for all), and
// with layers that are found elsewhere.
LS_STATUS ls_model_build_with(const char *source, const json_t *model,
                              const struct ls_shape *input_shape, enum ls_precision precision,
                              struct ls_own_parts *parts, struct ls_graph **out);
// Parses a model's JSON within the limits of core/base/json_size.h. LS_BAD_INPUT, with line and
// column, logged; `part` says where in the file the text is; NULL: it is the file. Dropped with
// json_decref. Defined in layers/.
LS_STATUS ls_model_parse(const char *path, const char *part, const char *text, size_t bytes,
                         json_t **out);
// Reads and parses a file. Defined in layers/.
LS_STATUS ls_model_read(const char *path, json_t **out);
// Reads the file, then builds.
LS_STATUS ls_model_build_file(const char *path, const struct ls_shape *input_shape,
                              struct ls_graph **out);

// Optimizer, loss and metrics as the model's own file has them, in the words of the command line:
// "sgd:learning_rate=0.5". NULL: the file does not say it. Only those of `parts` are looked at; a
// mistake in another one is none.
enum { LS_COMPILE_OPTIMIZER = 1, LS_COMPILE_LOSS = 2, LS_COMPILE_METRICS = 4 };
struct ls_compile_config {
    char *optimizer, *loss, *metrics;
    char *loss_weights; // of several outputs; NULL: nothing is said
    char *schedule; // of the optimizer's learning rate; NULL: it is constant
    char *loss_scale; // of the optimizer; NULL: nothing is said
};
// What of it is not supported is LS_BAD_INPUT, logged with the option that takes its place. Losses
// and metrics may also be found in `own`. Defined in layers/.
LS_STATUS ls_model_compile_config(const char *source, const json_t *model, uint32_t parts,
                                  struct ls_own_parts *own, struct ls_compile_config *out);
// The same of what a program gives for `model`: {"optimizer": ..., "loss": ..., "metrics": ...}, as
// Keras writes them. What is not supported is LS_USAGE.
LS_STATUS ls_compile_config_given(const char *source, const json_t *model, const json_t *given,
                                  struct ls_own_parts *own, struct ls_compile_config *out);
void ls_compile_config_finish(struct ls_compile_config *config);

// Whether a built model asks for something that Lockstep does not do when it computes the loss
// (regularizers), or, with `fit`, when it trains (synchronized statistics, constraints):
// LS_BAD_INPUT, one line for each of them all. Predictions do not depend on any. Defined in
// layers/.
LS_STATUS ls_model_check_training(const char *source, const json_t *model, bool fit);

struct ls_layer; // layers.h, at the root: a layer as a C program writes it

// Symbols: the inputs of functional models that a C program writes, and what its calls of layers
// make. They and what they refer to live as long as `struct ls_symbols`. Defined in layers/.
struct ls_symbols;
struct ls_symbol; // lockstep.h
LS_STATUS ls_symbols_create(void *owner, struct ls_symbols **out);
void *ls_symbol_owner(const struct ls_symbol *symbol);
void ls_symbols_destroy(struct ls_symbols *symbols); // takes NULL
LS_STATUS ls_symbols_input(struct ls_symbols *symbols, const struct ls_layer *input,
                           struct ls_symbol **out);
LS_STATUS ls_symbols_call(const struct ls_layer *layer, struct ls_symbol *const *inputs,
                          uint32_t count, struct ls_symbol **out);
// The layer that made `made`, with its variables, on other inputs.
LS_STATUS ls_symbols_call_again(const struct ls_symbol *made, struct ls_symbol *const *inputs,
                                uint32_t count, struct ls_symbol **out);
struct ls_symbols_model {
    const char *name;
    const json_t *json;
    uint32_t input_count, output_count;
    const void *key; // calls with the same key share their variables
};
// `outputs` has room for all of the model's.
LS_STATUS ls_symbols_call_model(const struct ls_symbols_model *model,
                                struct ls_symbol *const *inputs, uint32_t count,
                                struct ls_symbol **outputs);
// The key may become another model's.
void ls_symbols_forget_model(struct ls_symbols *symbols, const void *key);

struct ls_model_ends {
    struct ls_symbol *const *inputs, *const *outputs;
    uint32_t input_count, output_count;
};
// The JSON, in Keras 3's form, of the functional model `name` (NULL: "functional") between inputs
// and outputs; ls_model_build takes it. The caller drops it with json_decref. Defined in layers/.
LS_STATUS ls_functional_json(const char *name, const struct ls_model_ends *ends, json_t **out);

// The JSON, in Keras 3's form, of the Sequential model `name` (NULL: "sequential") made of `layers`
// (ends with LS_END); ls_model_build takes it. The caller drops it with json_decref. Defined in
// layers/.
LS_STATUS ls_sequential_json(const char *name, const struct ls_layer *layers, json_t **out);

#endif
