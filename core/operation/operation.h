// SPDX-License-Identifier: Apache-2.0
// The table of operations: one row an operation, with everything that the core needs to know of it.
// What each one computes is said in core/plugin/operations.h. Nothing else in the core asks which
// operation it has: it asks the row. [any thread]
#ifndef LS_OPERATION_OPERATION_H
#define LS_OPERATION_OPERATION_H

#include "core/base/status.h"
#include "core/operation/shape.h"

// ---- Arguments ----

enum ls_argument_kind {
    LS_ARGUMENT_NONE, // ends a list
    LS_ARGUMENT_TENSOR, // an activation, or the gradient of one: one row an example
    LS_ARGUMENT_PARAMETER, // of a layer, or its gradient
    LS_ARGUMENT_EITHER, // an activation or a parameter, or the gradient of one
    LS_ARGUMENT_ADDEND, // added to the first output; only fusion brings it
    LS_ARGUMENT_STATISTIC, // a vector that the operation makes of the whole batch
    LS_ARGUMENT_LABEL, // what the examples are expected to become
    LS_ARGUMENT_SUMS, // of a loss
    LS_ARGUMENT_SAVED, // what the backward operation reads again
    LS_ARGUMENT_FLAT, // a range of a flat buffer; an output of this kind is read, too
    LS_ARGUMENT_RESULT, // a few numbers of fixed count
    LS_ARGUMENT_TOTAL, // sums of this share, which become those of all replicas
};

enum ls_argument_type {
    LS_TYPE_FLOATING, // F32, BF16 or F16: the same for all arguments of this type
    LS_TYPE_OWN_FLOATING, // F32, BF16 or F16, whatever the others have
    LS_TYPE_GRADIENT, // as LS_TYPE_FLOATING, or F32 for all of this type beside halves
    LS_TYPE_F32,
    LS_TYPE_F64,
    LS_TYPE_I32,
    LS_TYPE_INDEX, // I32 or F32
    LS_TYPE_U8,
};

// What an argument of a backward operation is to the forward operation.
enum ls_argument_source {
    LS_SOURCE_SELF, // an operation that is no backward operation
    LS_SOURCE_INPUT,
    LS_SOURCE_OUTPUT,
    LS_SOURCE_INPUT_GRADIENT,
    LS_SOURCE_OUTPUT_GRADIENT,
};

struct ls_argument {
    const char *name; // "x"; of a gradient: what it is the gradient of
    uint8_t kind; // enum ls_argument_kind
    uint8_t type; // enum ls_argument_type
    bool optional; // optional arguments are the last ones
    bool any_shape; // only its elements in plain order count, not how they are shaped
    bool opaque; // size and content are the device's own: the dimensions are not read
    uint8_t source; // enum ls_argument_source
    uint8_t source_index; // of the input or output
};

// ---- Rows ----

enum ls_operation_trait {
    LS_TRAIT_LAYER = 1, // layers add it to a graph
    LS_TRAIT_LOSS = 2, // ends a forward run; its backward operation starts the gradients
    LS_TRAIT_VIEW = 4, // the same elements in another shape: no work where both are plain
    // Where nothing is trained it passes its first input on, or `otherwise`, its third.
    LS_TRAIT_TRAINING_ONLY = 8,
    LS_TRAIT_PROBABILITIES = 16, // a loss of its output is better computed from its input (logits)
    LS_TRAIT_ACTIVATION = 32, // `activation` of the attributes says which function it is
    LS_TRAIT_EPILOGUE = 64, // an epilogue may follow on its first output
    LS_TRAIT_UPDATE = 128, // of parameters: its outputs are read and written
};

// How the examples of a batch take part in it.
enum ls_operation_examples {
    LS_EXAMPLES_TOGETHER, // some output depends on all, or on an example's place in the batch
    LS_EXAMPLES_APART, // each example of the outputs depends on the same example of the inputs
    LS_EXAMPLES_SUMMED, // the outputs are sums over the examples
};

// What it becomes when it is fused into the operation that makes its input.
enum ls_operation_fusion {
    LS_FUSION_NONE,
    LS_FUSION_EPILOGUE,
    LS_FUSION_EPILOGUE_OF_GRADIENT, // its second input becomes one more input of the producer
    LS_FUSION_ADDEND, // its other input becomes the producer's argument of kind ADDEND
};

// Where the gradients of its inputs come from, where no operation makes them.
enum ls_operation_gradient {
    LS_GRADIENT_NONE, // it has none
    LS_GRADIENT_SAME_OPERATION, // itself, on the gradient of its output
    LS_GRADIENT_PASSED_ON, // the gradient of its output is that of each input
    // Its output is read by an operation that also takes its input, whose rule makes the whole
    // gradient of that input.
    LS_GRADIENT_OF_READER,
    LS_GRADIENT_ZERO, // none goes through it: its output is constant wherever it is smooth
};

#define LS_MAX_BACKWARD 2

// What a shape rule reads and writes.
struct ls_shape_call {
    const struct ls_op_attributes *attributes;
    struct ls_shape inputs[LS_MAX_ARGUMENTS];
    uint32_t input_count;
    // The shape that output 0 is to have, for operations that make any; ndims 0: not said.
    struct ls_shape asked;
    struct ls_shape outputs[LS_MAX_ARGUMENTS]; // the answer
    char why[200]; // the answer when they do not fit, without a full stop
};

struct ls_operation_row {
    const char *name; // of a backward operation: that of the forward one, '_', which
    struct ls_argument inputs[LS_MAX_ARGUMENTS], outputs[LS_MAX_ARGUMENTS];
    uint32_t traits; // enum ls_operation_trait
    enum ls_operation_examples examples;
    enum ls_operation_fusion fusion;
    uint32_t backward_of; // LS_OP_NONE: no backward operation
    // The operations that make the gradients of its inputs, in the order in which they run; their
    // arguments say the rest. None: `gradient` says where they come from.
    uint32_t backward[LS_MAX_BACKWARD];
    enum ls_operation_gradient gradient;
    // The operation that takes statistics of training where this one finds those of the batch: its
    // inputs are those of this one, then a parameter for each output of kind STATISTIC. LS_OP_NONE:
    // there is none.
    uint32_t given;
    // Names of the functions that `function` of the attributes chooses from; NULL: it has none. A
    // backward operation has those of its forward operation.
    const char *const *functions;
    uint32_t function_count;
    // Whether inputs and attributes fit; fills the outputs' shapes. Dimensions are at least 1, the
    // first may be LS_BATCH. NULL for a backward operation: the rule of its forward operation
    // holds.
    bool (*shapes)(struct ls_shape_call *call);
};

const struct ls_operation_row *ls_operation_row(uint32_t op); // NULL: no such operation
bool ls_operation_has(uint32_t op, enum ls_operation_trait trait); // false: no such operation, too

// Argument `index` of inputs or outputs; kind NONE behind the last. Of a backward operation what it
// is follows from the forward operation; an optional input's gradient is optional, too.
struct ls_argument ls_operation_argument(const struct ls_operation_row *row, uint32_t index,
                                         bool output);
// Whether it is an activation or the gradient of one, whose casts a device may declare to take.
bool ls_argument_is_cast(const struct ls_argument *argument);
// How many inputs or outputs there are at least and at most, the input of an epilogue not counted.
void ls_operation_count(const struct ls_operation_row *row, bool output, uint32_t *least,
                        uint32_t *most);
// Index of the input of this kind; UINT32_MAX: none.
uint32_t ls_operation_input(const struct ls_operation_row *row, enum ls_argument_kind kind);

// The shape rule of a forward operation, and whether `function` of the attributes is one of its.
bool ls_operation_shapes(const struct ls_operation_row *row, struct ls_shape_call *call);

// Whether y is x, so that the operation can be left out.
bool ls_operation_is_identity(uint32_t op, const struct ls_op_attributes *attributes,
                              const struct ls_shape *x, const struct ls_shape *y, bool training);

// ---- Names ----

// "conv2d", "dense_backward_data", ... Never NULL.
const char *ls_op_name(uint32_t op);
// "relu". Never NULL.
const char *ls_activation_name(uint32_t activation);
// What the operation is called beside others of its layer: the name of the activation or function
// where it has one.
const char *ls_operation_label(uint32_t op, const struct ls_op_attributes *attributes);

// ---- Checking ----

bool ls_type_is_half(uint32_t dtype); // LS_BF16 or LS_F16

// Whether a device can be asked for this kernel: number, types and shapes of its arguments,
// attributes, epilogue and which outputs are added to are as the table and core/plugin/operations.h
// say. LS_UNSUPPORTED with the reason in `why` ("conv2d: ..."); nothing is logged. A device may
// refuse more than this. `casts`: activations may be halves where they are float32 otherwise.
LS_STATUS ls_operation_check(const struct ls_kernel_request *request, bool casts, char *why,
                             size_t bytes);

#endif
