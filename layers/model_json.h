// SPDX-License-Identifier: Apache-2.0
// A Keras model as its JSON says it, Sequential and functional alike: layers, and which outputs of
// which calls each call of a layer takes. model_json.c and nodes.c read it, model_build.c makes the
// graph from it. [main thread]
#ifndef LS_LAYERS_MODEL_JSON_H
#define LS_LAYERS_MODEL_JSON_H

#include "layers/config.h"

#define LS_MOST_LAYERS 10000 // of a model with all models inside it
#define LS_MOST_CALLS 20000 // of layers, those of models inside at each of their calls
#define LS_MOST_NESTED 16 // models inside one another
#define LS_LONGEST_NAME 200 // of a layer
#define LS_LONGEST_PATH 400 // "model/model/layer"

// One output of one call of a layer: what Keras calls a history.
struct ls_reference {
    uint32_t layer, call, output;
    const char *key; // of an end of the model that is in an object; NULL: in a list
};

// One call of a layer: an element of "inbound_nodes".
struct ls_call_json {
    json_t *args, *kwargs; // a tensor is {"tensor": its index in `inputs`}; owned; NULL: none
    struct ls_reference *inputs;
    uint32_t input_count;
    bool inference; // training=False
};

struct ls_model_json;

// An element of "layers": a layer, an operation, or a model inside the model. TimeDistributed over
// a model has both a kind and a model.
struct ls_layer_json {
    const struct ls_layer_kind *kind; // NULL: a model, or a class that does not exist
    struct ls_model_json *model; // NULL: a layer
    const char *class_name;
    const json_t *object, *config; // `config` NULL: none
    bool custom; // a class of the user's own
    bool first_unknown; // the first layer or operation of its model whose class does not exist
    const char *given; // name in the JSON; NULL: none
    char name[LS_LONGEST_NAME]; // the given one, or as Keras would call it
    struct ls_call_json *calls; // of a functional model
    uint32_t call_count;
    bool legacy; // its calls are written as in Keras 2
    bool counts_own_node; // see nodes.c
    // While the graph is made:
    uint32_t connected; // calls that the summary has
    bool built; // called before: the next call uses its variables again
    bool refused; // said once
};

struct ls_model_json {
    const char *source;
    char path[LS_LONGEST_PATH + 1]; // "outer/inner"; "" of the outermost model
    const char *name;
    bool functional;
    uint32_t depth; // 0: the outermost model
    uint32_t *total; // layers of all models so far
    struct ls_own_parts *parts; // layers of the user's own; NULL: none
    const json_t *object, *config; // `config` is NULL where Keras 2 wrote a list
    struct ls_layer_json *layers;
    uint32_t count;
    json_t *numbers; // of a functional model: index of each layer by its name
    struct ls_reference *inputs, *outputs; // of a functional model
    uint32_t input_count, output_count;
};

// Reads `model->object`; source, path, depth and total are set. All that is wrong with the
// structure is LS_BAD_INPUT, one line; options of layers are not looked at.
LS_STATUS ls_model_json_read(struct ls_model_json *model);
void ls_model_json_finish(struct ls_model_json *model);

// Logs "<source>: [model 'a/b': ]<message>". Returns LS_BAD_INPUT.
LS_PRINTF(2, 3)
LS_STATUS ls_model_json_fail(const struct ls_model_json *model, const char *format, ...);
// "outer/inner/dense" of a layer of this model. LS_BAD_INPUT, logged: too long.
LS_STATUS ls_model_json_path(const struct ls_model_json *model, const char *name,
                             char out[LS_LONGEST_PATH + 1]);
// A name that no layer has: dense, dense_1, ...
void ls_model_json_name(const struct ls_model_json *model, uint32_t index, const char *class_name,
                        char *name);
bool ls_is_model_class(const char *class_name);
// "RMSNorm" of what is registered as "package>RMSNorm".
const char *ls_layer_json_own_name(const struct ls_layer_json *layer);

// nodes.c: the calls of all layers, and the model's inputs and outputs.
LS_STATUS ls_nodes_read(struct ls_model_json *model);
void ls_nodes_finish(struct ls_model_json *model);

#endif
