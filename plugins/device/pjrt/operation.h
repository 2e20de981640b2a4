// SPDX-License-Identifier: Apache-2.0
// What the emitters of operations share. An emitter writes the StableHLO of one operation: it reads
// the values of the inputs in their shapes and sets those of the outputs. What all operations have
// in common (adding to an output, leaving everything as it is in a step that is skipped) is written
// around it, in kernel.c.
#ifndef LS_DEVICE_PJRT_OPERATION_H
#define LS_DEVICE_PJRT_OPERATION_H

#include "plugins/device/pjrt/hlo.h"

#define PJRT_MAX_ARGUMENTS 16 // of an operation

struct pjrt_call {
    struct hlo *h;
    const struct ls_op_attributes *attributes;
    const struct ls_tensor_desc *descs; // inputs, then outputs
    uint32_t input_count, output_count;
    struct hlo_value inputs[PJRT_MAX_ARGUMENTS]; // those that are used
    struct hlo_value old[PJRT_MAX_ARGUMENTS]; // outputs before, of an operation that updates them
    struct hlo_value outputs[PJRT_MAX_ARGUMENTS]; // set by the emitter; none: it is not written
    struct hlo_value record; // the words of the step record
};

typedef void pjrt_emitter(struct pjrt_call *call);
// NULL, or why the device cannot do this.
typedef const char *pjrt_refusal(const struct ls_kernel_request *request);

struct pjrt_operation {
    const char *name;
    uint32_t used_inputs; // bit i: reads input i
    pjrt_emitter *emit;
    uint32_t updates; // bit i: reads what output i was before
    bool record; // reads the step record
    bool skips; // leaves all outputs as they are where record->skip is set
    pjrt_refusal *refusal; // NULL: the device can do it always
};

// NULL: there is none.
const struct pjrt_operation *pjrt_operation_of(uint32_t op);

// ---- What emitters ask ----

static inline struct hlo_shape pjrt_output_shape(const struct pjrt_call *call, uint32_t output)
{
    return hlo_shape_of(&call->descs[call->input_count + output]);
}

// A field of the step record as a scalar, `type` LS_F32, LS_I32, HLO_U64; `offset` in bytes.
struct hlo_value pjrt_record_field(struct pjrt_call *call, size_t offset, uint32_t type);
#define PJRT_RECORD(call, field, type) \
    pjrt_record_field(call, offsetof(struct ls_step_record, field), type)

// The activations, and their derivatives expressed through the result y (enum ls_activation).
struct hlo_value pjrt_activate(struct hlo *h, uint32_t activation, double alpha,
                               struct hlo_value x);
struct hlo_value pjrt_activation_slope(struct hlo *h, uint32_t activation, double alpha,
                                       struct hlo_value y);
pjrt_refusal pjrt_activation_refusal;

// Numerically safe forms.
struct hlo_value pjrt_sigmoid(struct hlo *h, struct hlo_value x);
struct hlo_value pjrt_softplus(struct hlo *h, struct hlo_value x);
struct hlo_value pjrt_softmax(struct hlo *h, struct hlo_value x); // over the last dimension

// 1 / (1 - rate) or 0 for each element: what dropout multiplies by. `element` (ui32) is the index
// within the example, in a shape whose first dimension are the examples.
struct hlo_value pjrt_kept(struct pjrt_call *call, struct hlo_value element);

// The value of `sums`: {loss, right, examples, left}; left none: 0.
struct hlo_value pjrt_sums(struct hlo *h, struct hlo_value loss, struct hlo_value right,
                           double examples, struct hlo_value left);

#endif
