// SPDX-License-Identifier: Apache-2.0
// A model as operations on tensors, written forward only; ls_graph_differentiate() appends the
// backward operations. Shapes are in the plain layout (see core/plugin/operations.h); the first
// dimension of everything that has one example per row is LS_BATCH until a program binds it. [main
// thread]
#ifndef LS_GRAPH_GRAPH_H
#define LS_GRAPH_GRAPH_H

#include "core/base/status.h"
#include "core/operation/operation.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ls_tensor_role {
    LS_ROLE_ACTIVATION, // made by an operation, forward
    LS_ROLE_GRADIENT, // made by an operation, backward
    LS_ROLE_INPUT, // the examples of a batch
    LS_ROLE_LABEL, // their labels or targets
    LS_ROLE_WEIGHT, // how much each example counts in the loss
    LS_ROLE_SEED, // a gradient that is given from outside, where backward begins
    LS_ROLE_PARAMETER,
    LS_ROLE_PARAMETER_GRADIENT,
    LS_ROLE_SUMS, // the loss operation's sums
    LS_ROLE_COUNTS, // what a metric counts
    LS_ROLE_SAVED, // what a forward kernel leaves for its backward; opaque
    LS_ROLE_TOTAL, // sums of this replica's share until all replicas have added theirs
};

// How a parameter gets its first values. Names, formulas and defaults are Keras's.
enum ls_initializer_kind {
    LS_ZEROS,
    LS_ONES,
    LS_CONSTANT, // value
    LS_RANDOM_UNIFORM, // minimum, maximum
    LS_RANDOM_NORMAL, // mean, deviation
    LS_TRUNCATED_NORMAL, // mean, deviation; redrawn beyond two deviations
    LS_VARIANCE_SCALING, // scale, mode, distribution; Glorot, He, LeCun are these
    LS_VALUES, // values: one an element
    LS_ORTHOGONAL, // scale: rows or columns, the fewer, are orthogonal and of this length
};
enum ls_variance_mode { LS_FAN_IN, LS_FAN_OUT, LS_FAN_AVERAGE };
enum ls_variance_distribution {
    LS_DISTRIBUTION_TRUNCATED_NORMAL,
    LS_DISTRIBUTION_NORMAL,
    LS_DISTRIBUTION_UNIFORM
};

struct ls_initializer {
    enum ls_initializer_kind kind;
    double value, minimum, maximum, mean, deviation, scale;
    enum ls_variance_mode mode;
    enum ls_variance_distribution distribution;
    float *values; // the tensor's, who frees them
    int64_t ones_from, ones_to; // these elements are 1 whatever the others are
};

// What training does with a parameter. In the flat buffers parameters come in this order.
enum ls_zone {
    LS_ZONE_STATISTICS, // an average of what forward passes find, such as a moving mean: the pass
    // writes where a gradient would be, LS_OP_AVERAGE_UPDATE follows
    LS_ZONE_TRAINED, // backward writes its gradient, the optimizer follows
    LS_ZONE_FROZEN, // nothing: it has neither a gradient nor a state of the optimizer
};

struct ls_tensor {
    uint32_t id; // its index in the graph
    enum ls_tensor_role role;
    uint32_t dtype; // enum ls_dtype
    struct ls_shape shape; // LS_ROLE_SAVED: ndims 0, known only after prepare
    char *name; // "conv2d/kernel" for parameters, else layer name; owned by the graph
    int32_t producer; // index of the operation that makes it, -1: none
    const struct ls_tensor *gradient_of; // for gradients: the tensor that it is the gradient of
    uint32_t slot; // of LS_ROLE_COUNTS: where in the counts it begins
    // Which steps of a sequence count, (B,T) of 1 and 0, where Keras keeps a mask with it; NULL:
    // all.
    struct ls_tensor *mask;
    float l1, l2; // what the loss is added: l1 sum(|w|) + l2 sum(w^2)
    // Of parameters:
    struct ls_initializer initializer;
    enum ls_zone zone;
    bool constant; // has its first value for ever; files of weights do not have it
    double momentum; // of the average, in LS_ZONE_STATISTICS
    struct ls_shape variable; // see ls_graph_set_variable_shape(); ndims 0: `shape`
    bool scalar; // Keras's variable has no dimensions
};

// The shape of a parameter as Keras's variable has it.
static inline const struct ls_shape *ls_variable_shape(const struct ls_tensor *parameter)
{
    return parameter->variable.ndims > 0 || parameter->scalar ? &parameter->variable
                                                              : &parameter->shape;
}

#define LS_NO_LAYER UINT32_MAX
#define LS_GRAPH_LOSSES 8 // outputs of a model with a loss, at most

struct ls_operation {
    uint32_t op; // enum ls_op
    struct ls_op_attributes attributes;
    uint32_t input_count, output_count;
    struct ls_tensor *inputs[LS_MAX_ARGUMENTS];
    struct ls_tensor *outputs[LS_MAX_ARGUMENTS];
    bool backward;
    int32_t forward; // of a backward operation: index of its forward one; -1: none
    uint32_t layer; // index of the layer it belongs to; LS_NO_LAYER: the loss
};

// A kernel that a step of training replaces, before its passes, by itself divided by an estimate of
// its largest singular value: kernel / (v W u^T), where W is the kernel as rows of its last size,
// and u and v are made by power iterations, v = unit(u W^T), u = unit(v W); u stays for the next
// step. A kernel of zeros stays, and so does its u. As Keras's SpectralNormalization on TensorFlow
// and PyTorch.
struct ls_spectral_norm {
    uint32_t kernel, vector; // parameters of the graph; vector: (1, last size of the kernel)
    uint32_t iterations;
};

struct ls_graph_layer {
    char *name; // "conv2d_1"
    char *class_name; // "Conv2D"
    struct ls_shape output; // as built, for the summary
    uint64_t parameters; // elements; constants do not count
    uint64_t untrained; // of these, those without a gradient: frozen ones and statistics
    // What its calls take in a functional model: "add[0][0], dense[1][0]"; NULL: in a Sequential
    // model, what the layer before it makes.
    char *connected;
    size_t connected_length, connected_room;
    uint32_t first_parameter, parameter_count; // in the graph's list
    bool frozen; // not trained: ls_graph_freeze_layer
};

// Of a graph whose operations are not cast: their inputs have to agree.
#define LS_COMPUTE_UNCAST 0
// Of an operation that is no layer: the type of its inputs, float32 where they differ.
#define LS_COMPUTE_AS_INPUTS UINT32_MAX

struct ls_graph {
    char *name; // of the model
    char *source; // file or built-in name that ls_graph_fail puts first; NULL: none; owned
    uint32_t *
        problems; // counts what is refused; only the first LS_GRAPH_PROBLEMS are logged. NULL: all are
    struct ls_tensor **tensors;
    uint32_t tensor_count;
    struct ls_operation *operations; // in an order in which they can run
    uint32_t operation_count;
    struct ls_graph_layer *layers;
    uint32_t layer_count;
    uint32_t layer; // the one that operations are added to; LS_NO_LAYER: none yet
    uint32_t reused; // how many of its parameters the layer has been given again
    bool reusing; // the layer had been built before
    // Of the layer that is being built: its parameters are called "layer/part/..."; NULL: none.
    const char *part;
    // What the layer computes in: LS_F32, LS_BF16, LS_F16, or one of LS_COMPUTE_...
    uint32_t compute;
    struct ls_tensor **parameters; // in the order in which layers added them
    uint32_t parameter_count;
    struct ls_spectral_norm *spectral_norms;
    uint32_t spectral_norm_count;
    struct ls_tensor **inputs; // of the model, in the order in which they were added
    uint32_t input_count;
    struct ls_tensor **outputs; // of the model: its predictions
    char **output_names; // as Keras has them, those of their layers; NULL: those of the tensors
    uint32_t output_count;
    struct ls_tensor **seeds;
    uint32_t seed_count;
    struct ls_tensor *labels[LS_GRAPH_LOSSES]; // in the order of the outputs with a loss
    uint32_t label_count;
    // By output, with a loss: what it is compared with, and where the loss of the model is made of
    // several, its loss of each example (B,1), with a mask of each position (B,...,1); NULL: none.
    struct ls_tensor *label_of[LS_GRAPH_LOSSES], *loss_of[LS_GRAPH_LOSSES];
    // By output, with a loss and a mask: the moments of the mask, which all replicas add up.
    struct ls_tensor *moments_of[LS_GRAPH_LOSSES];
    struct ls_tensor *weights; // of the examples in the loss; NULL: all count once
    struct ls_tensor *sums; // with a loss
    bool keeps_outputs; // they can be read after any pass
    uint32_t count_slots; // floats that metrics count in
    uint32_t dropout_count; // keys given so far
};

LS_STATUS ls_graph_create(const char *name, struct ls_graph **out);
void ls_graph_destroy(struct ls_graph *graph);

// What follows belongs to a new layer. Names must be unique: LS_BAD_INPUT, logged. The layer's
// output shape is set by ls_graph_end_layer; this output is the model's only one until another
// layer ends.
LS_STATUS ls_graph_begin_layer(struct ls_graph *graph, const char *name, const char *class_name);
void ls_graph_end_layer(struct ls_graph *graph, const struct ls_tensor *output);

// The layer under way is not trained: `trainable` is false in Keras. Before its first parameter.
void ls_graph_freeze_layer(struct ls_graph *graph);

// The layer that is built also takes `from`, for the summary.
LS_STATUS ls_graph_connect_layer(struct ls_graph *graph, const char *from);

// What follows is one more use of a layer that was built before, on another input: each call of
// ls_graph_parameter returns the parameter that the layer has already, in the same order, so that
// the gradients of all uses add up. LS_BAD_INPUT (logged) when there is no such layer.
LS_STATUS ls_graph_reuse_layer(struct ls_graph *graph, const char *name);

// The model's outputs, where they are not just the last layer's. They are copied.
LS_STATUS ls_graph_set_outputs(struct ls_graph *graph, struct ls_tensor *const *outputs,
                               uint32_t count);
// Their names, which are copied, in the same order.
LS_STATUS ls_graph_name_outputs(struct ls_graph *graph, const char *const *names);
const char *ls_graph_output_name(const struct ls_graph *graph, uint32_t output);
// Floats of all outputs of an example.
uint64_t ls_graph_output_elements(const struct ls_graph *graph);

#define LS_GRAPH_PROBLEMS 20

// Logs "layer 'conv2d_1' (Conv2D): input shape (None, 5, 5, 64): <message>" and returns
// LS_BAD_INPUT; the scope is the graph's source, else its name. `input` may be NULL.
LS_PRINTF(3, 4)
LS_STATUS ls_graph_fail(const struct ls_graph *graph, const struct ls_tensor *input,
                        const char *format, ...);

// One more input of the model: shape without the batch dimension. Float32. They are called "input",
// "input_1", ...
LS_STATUS ls_graph_input(struct ls_graph *graph, const struct ls_shape *example,
                         struct ls_tensor **out);
// The same of another type: LS_F32, or LS_I32 (token ids, positions).
LS_STATUS ls_graph_typed_input(struct ls_graph *graph, uint32_t dtype,
                               const struct ls_shape *example, struct ls_tensor **out);

// A parameter of the current layer; `name` is its part after the slash ("kernel"). It is trained,
// unless the layer is frozen.
LS_STATUS ls_graph_parameter(struct ls_graph *graph, const char *name, const struct ls_shape *shape,
                             const struct ls_initializer *initializer, struct ls_tensor **out);

// A parameter that no gradient changes: frozen, until ls_graph_batch_normalization contributes to it.
LS_STATUS ls_graph_statistic(struct ls_graph *graph, const char *name, const struct ls_shape *shape,
                             const struct ls_initializer *initializer, struct ls_tensor **out);

// What an operation takes as a parameter but no layer has as one: all elements are `value`, which is
// neither trained nor saved. It counts as one of the layer's own where the layer is used again.
LS_STATUS ls_graph_constant(struct ls_graph *graph, const char *name, const struct ls_shape *shape,
                            double value, struct ls_tensor **out);

// The same with a value for each element, which are copied.
LS_STATUS ls_graph_constant_values(struct ls_graph *graph, const char *name,
                                   const struct ls_shape *shape, const float *values,
                                   struct ls_tensor **out);

// Batch normalization of x with gamma, beta, moving mean and moving variance, the five `inputs`. In
// training it takes the statistics of the pass and each step moves the moving ones towards them:
// m s + (1 - m) found, with m = `momentum`; several uses of a layer follow each other in that, as
// in Keras. `synchronized`: the statistics of the pass are those of all replicas together, forward
// and backward, else those of a replica's own share. Programs that do not train, and frozen layers,
// take the moving ones.
LS_STATUS ls_graph_batch_normalization(struct ls_graph *graph,
                                       const struct ls_op_attributes *attributes,
                                       struct ls_tensor *const inputs[static 5], double momentum,
                                       bool synchronized, struct ls_tensor **out);

// Steps of training normalize `kernel` with `vector`, both parameters: see struct ls_spectral_norm.
LS_STATUS ls_graph_add_spectral_norm(struct ls_graph *graph, const struct ls_tensor *kernel,
                                     const struct ls_tensor *vector, uint32_t iterations);

// Whether all replicas add up statistics within a pass; those of layers, not of a mask.
bool ls_graph_has_totals(const struct ls_graph *graph);
bool ls_graph_has_layer_totals(const struct ls_graph *graph);

// Where operations see a parameter in another shape than Keras's variable has, of the same elements in
// plain order: the variable's. Weights files and the first values go by it.
void ls_graph_set_variable_shape(struct ls_tensor *parameter, const struct ls_shape *variable);

// Adds an operation that layers may add: checks the number, types and shapes of its inputs by the
// table of operations, infers the outputs and returns the first in `out`. `output_shape` only where
// the operation can make several of the same inputs, else NULL. Optional inputs are left out.
// LS_BAD_INPUT (logged through ls_graph_fail) when something does not fit.
LS_STATUS ls_graph_add(struct ls_graph *graph, uint32_t op,
                       const struct ls_op_attributes *attributes, struct ls_tensor *const *inputs,
                       uint32_t input_count, const struct ls_shape *output_shape,
                       struct ls_tensor **out);

// The same elements as another floating type: LS_F32, LS_BF16 or LS_F16.
LS_STATUS ls_graph_convert(struct ls_graph *graph, struct ls_tensor *x, uint32_t dtype,
                           struct ls_tensor **out);

// ---- Mixed precision ----

// Keras's dtype policies. With a mixed one a layer computes in 16 bits and keeps its variables in
// float32: it casts what it reads, and what no kernel does in halves is computed in float32 and
// then rounded.
enum ls_precision {
    LS_PRECISION_OF_FILE, // not said: what the model's file says
    LS_PRECISION_FLOAT32,
    LS_PRECISION_MIXED_BFLOAT16,
    LS_PRECISION_MIXED_FLOAT16,
};
enum ls_precision ls_precision_find(const char *name); // LS_PRECISION_OF_FILE: no such policy
uint32_t ls_precision_dtype(enum ls_precision precision); // that layers compute in

// Whether any tensor of the graph is of this type: LS_F16, LS_BF16.
bool ls_graph_computes_in(const struct ls_graph *graph, uint32_t dtype);
// "mixed_bfloat16" where some layer computes so, "float32" where none computes in halves.
const char *ls_graph_precision(const struct ls_graph *graph);

// At the end of a model: outputs that are halves become float32. A softmax or another activation
// that makes one is computed from float32, so that neither losses nor predictions come from
// probabilities of 16 bits.
LS_STATUS ls_graph_float32_outputs(struct ls_graph *graph);

// The losses. From probabilities: when the output comes straight from a softmax, its logits are
// used instead (as Keras on TensorFlow does), and the softmax operation stays for prediction.
enum ls_loss_kind {
    LS_LOSS_SPARSE_CROSS_ENTROPY,
    LS_LOSS_MEAN_SQUARED_ERROR,
    LS_LOSS_OTHER,
    LS_LOSS_COMPOSED,
    LS_LOSS_NONE, // the program computes it, and gives its gradient by a seed
};

// A loss or a metric that its owner composes of operations; it lasts as long as what names it.
struct ls_composed {
    const char *name;
    const char *text; // with its options: "focal:gamma=2"
    bool classes; // its labels are I32, one a position, else numbers
    uint32_t count; // of the tensors that it makes
    // The shape of its labels, where they are numbers; NULL: that of the predictions.
    enum ls_status (*label_shape)(const struct ls_composed *composed,
                                  const struct ls_shape *predictions, struct ls_shape *out);
    // Makes `count` float32 tensors with a row for each example. Errors are logged.
    enum ls_status (*compose)(const struct ls_composed *composed, struct ls_graph *graph,
                              struct ls_tensor *predictions, struct ls_tensor *labels,
                              struct ls_tensor **out);
};

struct ls_loss {
    enum ls_loss_kind kind;
    bool from_logits;
    uint32_t function; // enum ls_loss_function, of LS_LOSS_OTHER
    float delta; // of Huber's
    float smoothing; // of labels
    bool weighted; // each example has a weight
    bool by_layer; // nobody gave it: the last layer decided
    bool scaled; // it counts `factor` times in the loss of the model, else once
    float factor;
    const struct ls_composed *composed; // of LS_LOSS_COMPOSED
};
// Adds the loss of the model: the sum of those of its `count` outputs (LS_LOSS_NONE: it has none).
// Label tensors, the loss operation and its sums, and the penalties of parameters that are trained.
// The loss of an output with a mask is as in Keras the mean over the steps that it leaves in the
// whole batch: all replicas count them before the loss is computed.
LS_STATUS ls_graph_add_losses(struct ls_graph *graph, const struct ls_loss *losses, uint32_t count);
// The same of a model with one output.
static inline enum ls_status ls_graph_add_loss(struct ls_graph *graph, const struct ls_loss *loss)
{
    return ls_graph_add_losses(graph, loss, 1);
}
// Whether one of the outputs with a loss has a mask.
bool ls_graph_masks_losses(const struct ls_graph *graph, const struct ls_loss *losses,
                           uint32_t count);
// The same of a graph with its loss. Without backward operations the loss of such an output is the
// mean over what the mask leaves of a replica's share, times the examples, and the fourth sum says
// how much that is: of the model's loss, or where that is made of several, of what the metric of
// the output counts.
bool ls_graph_loss_is_masked(const struct ls_graph *graph);

// What a metric counts: an LS_OP_METRIC, or an LS_OP_LOSS whose sums it is the mean of.
struct ls_count {
    uint32_t op;
    struct ls_op_attributes attributes;
    uint32_t slots; // floats
    uint32_t slot; // the answer: where they begin
    uint32_t output; // which one of the model is compared with its labels
    struct ls_tensor *of; // an LS_OP_LOSS of these values alone; NULL: of output and labels
    bool weighted; // examples count by their weights, where they have some
    // Only what the output's mask leaves counts, with `weighted` as in a loss: by the moments of
    // the mask, too. The answer: and it has a mask.
    bool masked;
};
// What a composed loss or metric makes of an output of the model and its labels, which are there.
LS_STATUS ls_graph_compose(struct ls_graph *graph, const struct ls_composed *composed,
                           uint32_t output, struct ls_tensor **out);
// Adds what is counted of outputs and labels, after the loss.
LS_STATUS ls_graph_add_counts(struct ls_graph *graph, struct ls_count *counts, uint32_t count);

// Where a gradient comes from outside instead of from a loss: adds a tensor for the gradient of
// `of`, which ls_graph_differentiate starts from. A program is given its values with each batch.
LS_STATUS ls_graph_add_seed(struct ls_graph *graph, struct ls_tensor *of, struct ls_tensor **out);

// Appends the backward operations for every parameter, from the loss and the seeds. Parameters
// without a gradient are LS_BAD_INPUT, by name. Tensors with several users get their gradients
// added. A parameter has one gradient tensor: of several operations that write it, the first
// overwrites and the others add to it.
LS_STATUS ls_graph_differentiate(struct ls_graph *graph);

// First values of a parameter, plain layout, elements(shape) floats, keyed by (seed, its name).
void ls_initialize(const struct ls_tensor *parameter, uint64_t seed, float *out);

#endif
