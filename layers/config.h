// SPDX-License-Identifier: Apache-2.0
// Reading the values of a Keras configuration. A missing key means the default that is named in the
// call. A value that does not fit is logged with its layer and key, and `status` stays
// LS_BAD_INPUT; the reader returns a default, so that a layer reads all it needs, says all that is
// wrong, and looks at the status once. [main thread]
#ifndef LS_LAYERS_CONFIG_H
#define LS_LAYERS_CONFIG_H

#include "core/graph/layer.h"

#define LS_CONFIG_LARGEST INT32_MAX // of a number of units, filters, elements along an axis
#define LS_CONFIG_WINDOW 32767 // of a kernel, stride or dilation: two of them multiply to an int32
#define LS_CONFIG_NONE INT64_MIN // as a default: the key must be there

struct ls_config {
    const struct ls_graph *graph; // the layer begun last is the one that is read
    const json_t *object; // the "config"
    const char *parent; // key of the value that the object belongs to; NULL: the layer itself
    bool
        penalized; // a layer inside, whose output is that of the layer: its activity_regularizer counts
    enum ls_status status;
};

// An element-wise function, or softmax.
struct ls_layer_activation {
    bool softmax;
    bool needs_input; // its derivative does: it is an enum ls_function
    uint32_t function; // enum ls_activation
    float alpha;
};

// A value as JSON, shortened to fit; "nothing" when NULL. Returns `text`.
const char *ls_json_text(const json_t *value, char *text, size_t bytes);
// "linear, relu, ..." of a list that ends with NULL, shortened to fit. Returns `text`.
const char *ls_name_list(const char *const *names, char *text, size_t bytes);
// Whether a serialized object says that it is no class of Keras itself.
bool ls_json_is_custom(const json_t *object);
// Whether it is an operation of Keras 3 (keras.ops) rather than a layer.
bool ls_json_is_operation(const json_t *object);
// Whether a dtype is "float32", or a policy of that name. A map of policies and a quantized policy
// have no name.
bool ls_json_is_float32(const json_t *dtype);
const char *ls_json_dtype(const json_t *dtype); // its name; "": it has none
// The policy of a layer's "dtype"; missing and null are float32. LS_PRECISION_OF_FILE: it is none
// that is supported; `why` says what to do.
enum ls_precision ls_json_precision(const json_t *dtype, char *why, size_t bytes);

// Logs "<parent>.<key>: <message>" with the layer; sets the status.
LS_PRINTF(3, 4)
void ls_config_fail(struct ls_config *config, const char *key, const char *format, ...);

// Refuses keys outside `keys` (ends with NULL) and those that every layer may have, and a dtype
// that is no supported policy, unless "dtype" is in `keys`. What only training would have to obey
// (regularizers, constraints) is ls_model_check_training's.
void ls_config_check(struct ls_config *config, const char *const *keys);

int64_t ls_config_integer(struct ls_config *config, const char *key, int64_t minimum,
                          int64_t maximum, int64_t missing);
double ls_config_number(struct ls_config *config, const char *key, double minimum, double maximum,
                        double missing);
bool ls_config_boolean(struct ls_config *config, const char *key, bool missing);
// One integer for all `count` dimensions of space, or a list of as many, at most 3: planes, rows,
// columns. `missing` 0: the key must be there.
void ls_config_sizes(struct ls_config *config, const char *key, uint32_t count, int32_t missing,
                     int32_t *out);
// padding of a sequence: whether it is "same" or "causal" rather than "valid".
void ls_config_padding_steps(struct ls_config *config, bool *same, bool *causal);
// Elements before and behind each of `axes` dimensions: one integer for all, a list of one for each
// dimension, or of lists of two; for one axis an integer or a list of two. `missing` for all where
// the key is not there.
void ls_config_borders(struct ls_config *config, const char *key, uint32_t axes, int32_t missing,
                       int32_t out[][2]);
// A number, or a list of numbers (as Keras writes one, or an array): the caller frees `values`.
struct ls_numbers {
    float *values;
    int64_t count; // 0: not given, or null
    bool list;
};
void ls_config_numbers(struct ls_config *config, const char *key, struct ls_numbers *out);
// The index of the value, a name in any case of letters, in `names` (ends with NULL).
uint32_t ls_config_choice(struct ls_config *config, const char *key, const char *const *names,
                          uint32_t missing);
// padding: whether it is "same" rather than "valid", in any case of letters.
bool ls_config_padding_same(struct ls_config *config);
// data_format: whether it is one. ls_layer_build sees to it that `build` gets channels last.
void ls_config_data_format(struct ls_config *config);
// Refuses any value but null.
void ls_config_null(struct ls_config *config, const char *key);
// seed: refuses one of the layer's own.
void ls_config_seed(struct ls_config *config);
// Shape of one example from a shape with batch dimension; the batch dimension may be null or any size.
void ls_config_shape(struct ls_config *config, const char *key, struct ls_shape *out);

// Whether the value of a key "..._regularizer" is one of Keras's l1, l2 and l1_l2, and its factors.
bool ls_json_regularizer(const json_t *value, float *l1, float *l2);
// Gives the graph's parameters from `first` on the regularizers that the configuration of their
// layer has. What it does not know is left to ls_model_check_training.
void ls_add_regularizers(struct ls_graph *graph, const json_t *config, uint32_t first);

// Gives what a layer has made the penalty that its activity_regularizer asks for, as above. LS_BAD_INPUT,
// logged: not in 16 bits.
LS_STATUS ls_add_activity_regularizer(const struct ls_graph *graph, const json_t *config,
                                      struct ls_tensor *const outputs[LS_LAYER_OUTPUTS]);

// By name, or as an object in the forms of Keras 2 and 3. Missing or null: linear.
struct ls_layer_activation ls_config_activation(struct ls_config *config, const char *key);
extern const char *const ls_activation_names[]; // ends with NULL
struct ls_initializer ls_config_initializer(struct ls_config *config, const char *key,
                                            const char *missing);
extern const char *const ls_initializer_names[]; // ends with NULL

// The only input of a layer that takes one; NULL: only the options are checked.
static inline struct ls_tensor *ls_call_input(const struct ls_layer_call *call)
{
    return call->inputs ? call->inputs[0] : NULL;
}
// An argument of the call, by its position (LS_BY_NAME: it has none) or its name; NULL: not given.
const json_t *ls_call_argument(const struct ls_layer_call *call, size_t position, const char *name);
#define LS_BY_NAME SIZE_MAX
// "l2" stays a name; "constant:value=0.1" becomes {"class_name": "constant", "config": {...}}.
LS_STATUS ls_config_put_spec(json_t *config, const char *key, const char *text);
// The tensor that an argument is; NULL: it is none.
struct ls_tensor *ls_call_tensor(const struct ls_layer_call *call, const json_t *argument);

// Adds the operation; linear adds none and answers its input.
LS_STATUS ls_activation_add(struct ls_graph *graph, const struct ls_layer_activation *activation,
                            struct ls_tensor *input, struct ls_tensor **out);

#endif
