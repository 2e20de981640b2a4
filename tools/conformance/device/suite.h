// SPDX-License-Identifier: Apache-2.0
// Inside of the device suite. From below: a *side* is one of the two devices with its memory; a *session*
// is a prepared kernel with guarded buffers for its arguments; a *case* is one operation with its values;
// a *trial* is a case in a session on one side; the engine compares the trials of both sides.
#ifndef LS_TOOLS_CONFORMANCE_DEVICE_SUITE_H
#define LS_TOOLS_CONFORMANCE_DEVICE_SUITE_H

#include "core/attributes.h"
#include "tools/conformance/device.h"

#include <stdbool.h>

#define LS_DEVICE_ARGUMENTS 16 // of the operations of the suite

// As struct ls_kernel_request, with room for the arguments, so that cases can be copied and changed.
struct ls_device_request {
    uint32_t op;
    struct ls_op_attributes attributes;
    uint32_t input_count, output_count;
    struct ls_tensor_desc arguments[LS_DEVICE_ARGUMENTS];
    const struct ls_kernel *forward;
    uint32_t accumulate;
};

static inline struct ls_kernel_request ls_device_kernel_request(
    const struct ls_device_request *request)
{
    return (struct ls_kernel_request){.struct_size = sizeof(struct ls_kernel_request),
                                      .op = request->op,
                                      .attributes = request->attributes,
                                      .input_count = request->input_count,
                                      .output_count = request->output_count,
                                      .arguments = request->arguments,
                                      .forward = request->forward,
                                      .accumulate = request->accumulate};
}

// ---- Sides: side.c ----

struct ls_device_side {
    struct ls_host
        host; // first: the suite's own, in front of `outer`: it keeps messages and counts
    const struct ls_host *outer;
    const struct ls_device_interface *interface;
    struct ls_device *device;
    char message[512]; // of the last failure
    uint64_t allocations; // of host memory, so far
};

struct ls_device_suite {
    struct ls_device_side *tested;
    struct ls_device_side *reference;
    struct ls_device_conformance_options options;
    ls_conformance_report report;
    void *context;
    struct ls_conformance_counts counts;
    char message[512]; // the first failure of the running case; empty: none
    char note[128]; // of a case that passes
    uint32_t dtype; // of the floating tensors of the cases that follow; 0: float32
    bool missing; // the device has not offered that type: it must refuse each case
    uint32_t met[2]
                [LS_OP_COUNT]; // cases in that type of each operation, without and with an epilogue
    bool excused; // the running case is one that the device does not know
};

// Opens the device; the status of the plugin, its text in side->message.
int32_t ls_device_side_open(struct ls_device_side *side,
                            const struct ls_device_interface *interface,
                            const struct ls_host *outer, uint32_t threads);
int32_t ls_device_side_open_at(struct ls_device_side *side,
                               const struct ls_device_interface *interface,
                               const struct ls_host *outer, uint32_t index, uint32_t threads);
void ls_device_side_close(struct ls_device_side *side);

// Keeps the text unless there is an earlier one; returns false.
LS_PRINTF(2, 3) bool ls_device_suite_fail(struct ls_device_suite *suite, const char *format, ...);
// The tested device refuses what the suite needs: the case fails, or is reported as refused where devices may know only
// a part of the operations. `where` is "" or begins the message. Returns false.
bool ls_device_suite_refuse(struct ls_device_suite *suite, const char *where, const char *reason);
// Whether cases of this name shall run; clears the message.
bool ls_device_suite_begin(struct ls_device_suite *suite, const char *name);
// Reports the running case: failed when there is a message, refused when `refused` is not NULL.
void ls_device_suite_end(struct ls_device_suite *suite, const char *name, const char *refused);

// Device memory between two guards, which nobody may write to.
struct ls_device_buffer {
    struct ls_buffer *base; // NULL: none
    uint64_t bytes;
    uint64_t guard; // bytes before and behind
};

bool ls_device_buffer_create(struct ls_device_suite *suite, struct ls_device_side *side,
                             uint64_t bytes, struct ls_device_buffer *out);
void ls_device_buffer_destroy(struct ls_device_side *side, struct ls_device_buffer *buffer);
struct ls_memory ls_device_buffer_memory(const struct ls_device_buffer *buffer);
// NULL: poison, every byte 0xff, which reads as NaN.
bool ls_device_buffer_write(struct ls_device_suite *suite, struct ls_device_side *side,
                            const struct ls_device_buffer *buffer, const void *values);
// Fails when a guard has changed; `what` names the buffer then. `values` may be NULL.
bool ls_device_buffer_read(struct ls_device_suite *suite, struct ls_device_side *side,
                           const struct ls_device_buffer *buffer, const char *what, void *values);

// ---- Sessions: session.c ----

struct ls_device_session {
    struct ls_device_suite *suite;
    struct ls_device_side *side;
    struct ls_device_request request; // with the layouts that were answered
    struct ls_kernel_answer answer; // kernel NULL: not prepared
    struct ls_layout layouts[LS_DEVICE_ARGUMENTS]; // of the answer
    struct ls_device_buffer buffers[LS_DEVICE_ARGUMENTS];
    struct ls_device_buffer scratch, record;
    struct ls_memory memory[LS_DEVICE_ARGUMENTS]; // what is launched; the buffers unless changed
};

// LS_OK; LS_UNSUPPORTED with a text in side->message; anything else has failed the case. The answer is
// checked against the contract.
int32_t ls_device_session_prepare(struct ls_device_session *session, struct ls_device_suite *suite,
                                  struct ls_device_side *side,
                                  const struct ls_device_request *request);
bool ls_device_session_allocate(struct ls_device_session *session);
bool ls_device_session_record(struct ls_device_session *session,
                              const struct ls_step_record *record);
// Values in plain order, brought into the argument's layout; NULL: poison.
bool ls_device_session_write(struct ls_device_session *session, uint32_t argument,
                             const void *values);
// With poisoned scratch; checks all guards and that no host memory was allocated.
bool ls_device_session_launch(struct ls_device_session *session);
// Values of the argument, found in `buffer`, in plain order; checks the padding of an own layout.
bool ls_device_session_read(struct ls_device_session *session, uint32_t argument,
                            const struct ls_device_buffer *buffer, void *values);
void ls_device_session_close(struct ls_device_session *session);
// Whether the tested device has an operation that a device may lack, asked with plain layouts. Where
// it has not, that is one case of the float32 ones.
bool ls_device_operation_offered(struct ls_device_suite *suite, const char *name,
                                 const struct ls_device_request *request);

struct ls_layout ls_device_plain_layout(const struct ls_tensor_desc *desc);
uint64_t ls_device_plain_bytes(const struct ls_tensor_desc *desc);

// ---- Cases: case.c ----

enum ls_device_role {
    LS_DEVICE_PLAIN, // always in the plain layout: labels, sums, flat ranges
    LS_DEVICE_ACTIVATION, // also in the layout that an operation before would leave it in
    LS_DEVICE_WEIGHTS, // plain, or as the device likes
    LS_DEVICE_SAVED, // the device's own bytes
};

// How far a result may be from the wanted one.
struct ls_device_tolerance {
    double
        of_magnitude; // times the sum of the magnitudes of all terms, found by the reference device
    double relative; // times the wanted result
    double absolute;
};

// float32 sums in any order: the error of n terms is about sqrt(n) 2^-24 of the sum of magnitudes, which
// is 4e-6 for n = 5000; one term of n missing would be 1/n, far more.
#define LS_DEVICE_SUM ((struct ls_device_tolerance){1e-5, 0, 1e-30})
// exp, tanh and their relatives as polynomials in float32; cancellation near zero leaves 2^-23 or so.
#define LS_DEVICE_FUNCTION ((struct ls_device_tolerance){0, 1e-5, 1e-6})
// A few float32 roundings.
#define LS_DEVICE_ROUNDED ((struct ls_device_tolerance){0, 1e-6, 1e-30})
// Copies and choices.
#define LS_DEVICE_EXACT ((struct ls_device_tolerance){0, 0, 0})

enum ls_device_values {
    LS_DEVICE_UNIFORM, // between -1 and 1
    LS_DEVICE_TIES, // few different values, many zeros
    LS_DEVICE_NEGATIVE, // between -2 and -1
    LS_DEVICE_WIDE, // between -8 and 8, some far out
    LS_DEVICE_PROBABILITIES, // rows that sum to 1, some of only 0 and 1
    LS_DEVICE_LABELS, // of `classes`
    LS_DEVICE_ACTIVATED, // as an activation leaves them, for the operations that take y
};

// Values that are still to be drawn.
struct ls_device_draw {
    uint32_t argument;
    enum ls_device_values kind;
    int64_t classes;
    uint32_t activation;
    float alpha;
};

struct ls_device_case {
    char name[192];
    uint64_t random; // state of the values drawn
    struct ls_device_request request; // layouts are set by the trial
    enum ls_device_role roles[LS_DEVICE_ARGUMENTS];
    struct ls_device_draw draws[LS_DEVICE_ARGUMENTS]; // made by ls_device_case_values()
    uint32_t draw_count;
    // NULL, or called once the values were drawn: changes those that follow from others.
    void (*derive)(struct ls_device_case *c);
    void *values[LS_DEVICE_ARGUMENTS]; // owned, plain order; NULL: an output that is only written
    struct ls_device_tolerance tolerances[LS_DEVICE_ARGUMENTS]; // of outputs
    double inside
        [LS_DEVICE_ARGUMENTS]; // what outputs of float16 may be off by for values between; of bfloat16 8 times as much
    uint32_t magnitude_inputs; // bit i: the result is linear in input i
    struct ls_step_record record;

    bool has_forward; // the kernel of `forward` is given as a hint
    struct ls_device_request forward; // its roles are those of the arguments below
    enum ls_device_role forward_roles[LS_DEVICE_ARGUMENTS];
    uint8_t
        from_forward[LS_DEVICE_ARGUMENTS]; // 1 + the argument of forward that has the same layout
    bool
        saved_from_forward; // forward runs first, on the values of the same arguments; saved is taken over
};

// The text is the name; op and attributes follow in case->request.
LS_PRINTF(3, 4)
void ls_device_case_start(struct ls_device_case *c, uint32_t op, const char *format, ...);
// Inputs first, then outputs. Values are NULL at first. Returns the argument's index.
uint32_t ls_device_case_input(struct ls_device_case *c, enum ls_device_role role,
                              struct ls_tensor_desc desc);
uint32_t ls_device_case_output(struct ls_device_case *c, enum ls_device_role role,
                               struct ls_tensor_desc desc, struct ls_device_tolerance tolerance);
// Has the values of an F32 argument drawn, once for each argument.
void ls_device_case_draw(struct ls_device_case *c, uint32_t argument, enum ls_device_values kind);
void ls_device_case_draw_labels(struct ls_device_case *c, uint32_t argument, int64_t classes);
void ls_device_case_draw_activated(struct ls_device_case *c, uint32_t argument, uint32_t activation,
                                   float alpha);
// Draws what is to be drawn, in the order in which that was said: late, for most cases of a run may not be wanted.
// ls_device_case_run() does it; whoever looks at `values` before calls it.
void ls_device_case_values(struct ls_device_case *c);
// Output `output` is added to; draws what is there before.
void ls_device_case_accumulate(struct ls_device_case *c, uint32_t output);
double ls_device_case_random(struct ls_device_case *c); // from 0 to 1
void ls_device_case_finish(struct ls_device_case *c);

struct ls_tensor_desc ls_device_desc(uint32_t dtype, uint32_t ndims, const int64_t *dims);
#define LS_DEVICE_DESC(dtype, ...)                                                        \
    ls_device_desc(dtype, (uint32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
                   (const int64_t[]){__VA_ARGS__})

// ---- Trials: trial.c; the engine: engine.c ----

enum ls_device_variant {
    LS_DEVICE_ALL_PLAIN,
    LS_DEVICE_PLAIN_INPUTS, // weights and outputs as the device likes
    LS_DEVICE_UPSTREAM, // activations as the operation before leaves them
    LS_DEVICE_ALL_ANY, // everything as the device likes
    LS_DEVICE_VARIANT_COUNT,
};

struct ls_device_trial {
    const struct ls_device_case *c;
    enum ls_device_variant variant;
    struct ls_device_session forward, session;
    bool own_fixed; // the request fixed a layout of the device's own
};

// LS_OK, LS_UNSUPPORTED (text in side->message), or anything else: the case has failed.
int32_t ls_device_trial_open(struct ls_device_trial *trial, struct ls_device_suite *suite,
                             struct ls_device_side *side, const struct ls_device_case *c,
                             enum ls_device_variant variant);
// Writes all arguments, launches and reads the outputs (each allocated by the caller, plain order).
// `null_unused`: inputs said to be unused are NULL, else poison. `in_place`: the input where output 0
// lies, or -1.
bool ls_device_trial_run(struct ls_device_trial *trial, bool null_unused, int32_t in_place,
                         void *const *outputs);
void ls_device_trial_close(struct ls_device_trial *trial);

// Whether the tested device has a kernel for the case in float32 and plain layouts. If not, reports
// one refused case called `name` (NULL: it was reported before). Finishes the case.
bool ls_device_case_offered(struct ls_device_suite *suite, struct ls_device_case *c,
                            const char *name);
// Runs the case in every variant, reports it, and finishes it.
void ls_device_case_run(struct ls_device_suite *suite, struct ls_device_case *c);

// ---- Devices that compute beside the caller: streams.c ----

enum ls_device_calls {
    LS_DEVICE_STREAMS, // and events
    LS_DEVICE_HOST_MEMORY,
    LS_DEVICE_COLLECTIVES,
    LS_DEVICE_RECORDING,
};

// Whether the device has the table.
bool ls_device_group(const struct ls_device_interface *d, enum ls_device_calls calls);
// Where it is not offered, that is reported as the one case `name`.
bool ls_device_group_offered(struct ls_device_suite *suite, const char *name,
                             enum ls_device_calls calls);

// Adds 1 to all elements of its memory, on the own stream or on another, so that lost or early work is seen.
struct ls_device_adder {
    struct ls_device_suite *suite;
    struct ls_device_side *side;
    struct ls_device_session session;
    void *stream; // beside the own one
    struct ls_event *event, *back;
};

bool ls_device_adder_open(struct ls_device_suite *suite, struct ls_device_side *side,
                          struct ls_device_adder *out);
void ls_device_adder_close(struct ls_device_adder *adder);
bool ls_device_adder_set(struct ls_device_adder *adder, float value);
bool ls_device_adder_step(struct ls_device_adder *adder, void *stream);
// What comes on `to` runs after what is on `from`.
bool ls_device_adder_join(struct ls_device_adder *adder, struct ls_event *event, void *from,
                          void *to);
bool ls_device_adder_is(struct ls_device_adder *adder, void *stream, double wanted);

// ---- Half types: halves.c ----

// Makes of a case in float32 the one that the tested device runs in suite->dtype, yet without values. False: this one is left
// out, for one in several is enough.
bool ls_device_case_narrow(struct ls_device_suite *suite, const struct ls_device_case *c,
                           struct ls_device_case *out);
// Whether the tested device says that it takes halves in an operation that is float32 otherwise.
bool ls_device_takes_halves(const struct ls_device_suite *suite, uint32_t op);
// Rounds the values of `c` to what the type holds, so that both have the same. False: there is no memory.
bool ls_device_case_narrow_values(struct ls_device_case *c, struct ls_device_case *out);
// Half of the distance between two neighbours at `value`: what one rounding can cost; 0 for other types.
double ls_device_rounding(uint32_t dtype, double value);
// From where on a result is infinite.
double ls_device_overflow(uint32_t dtype);
const char *ls_device_dtype_name(uint32_t dtype);

// ---- The cases, one file a group ----

// A fused element-wise operation to try on the cases of a group; NULL: none.
struct ls_device_epilogue {
    uint32_t op; // LS_OP_ACTIVATION or LS_OP_ACTIVATION_BACKWARD
    uint32_t activation;
};

// After all arguments: sets the epilogue and adds its input, if any. Outputs must not be there yet for
// the backward one, so it is called between inputs and outputs with the shape of output 0.
void ls_device_case_epilogue(struct ls_device_case *c, const struct ls_device_epilogue *epilogue,
                             struct ls_tensor_desc output);

// A layer that is linear in its data and in its weights: linear.c.
struct ls_device_linear {
    const char *name; // of the operation
    char shape[320]; // as the names of cases say it
    uint32_t forward, backward_data, backward_weights; // operations
    struct ls_op_attributes attributes;
    struct ls_tensor_desc x, w, b, y;
    bool data_as_forward; // backward to the data reads w, and leaves dx, in the layouts of forward
};

// The case of `op`. `number` says which of bias and accumulation it has.
void ls_device_linear_case(struct ls_device_suite *suite, const struct ls_device_linear *linear,
                           uint32_t op, size_t number, const struct ls_device_epilogue *epilogue);

void ls_device_memory_cases(struct ls_device_suite *suite);
void ls_device_convolution_cases(struct ls_device_suite *suite, uint32_t op,
                                 const struct ls_device_epilogue *epilogue);
void ls_device_dense_cases(struct ls_device_suite *suite, uint32_t op,
                           const struct ls_device_epilogue *epilogue);
void ls_device_pooling_cases(struct ls_device_suite *suite, uint32_t op,
                             const struct ls_device_epilogue *epilogue);
void ls_device_maximum_cases(struct ls_device_suite *suite, uint32_t op);
void ls_device_elementwise_cases(struct ls_device_suite *suite, uint32_t op,
                                 const struct ls_device_epilogue *epilogue);
void ls_device_function_cases(struct ls_device_suite *suite, uint32_t op);
void ls_device_pair_cases(struct ls_device_suite *suite, uint32_t op);
void ls_device_reduction_operation_cases(struct ls_device_suite *suite, uint32_t op);
void ls_device_move_cases(struct ls_device_suite *suite, uint32_t op);
void ls_device_batch_normalization_cases(struct ls_device_suite *suite, uint32_t op,
                                         const struct ls_device_epilogue *epilogue);
// Whether the device has the operation at all; if not, why is in tested->message.
// Through the form with given statistics, and what a step contributes to moving ones.
void ls_device_given_backward_cases(struct ls_device_suite *suite);
void ls_device_statistics_cases(struct ls_device_suite *suite);
// With the statistics of all replicas: all of it, and the forward operation with an epilogue.
void ls_device_synchronized_cases(struct ls_device_suite *suite);
bool ls_device_synchronized_offered(struct ls_device_suite *suite); // the forward operation
void ls_device_synchronized_forward_cases(struct ls_device_suite *suite,
                                          const struct ls_device_epilogue *epilogue);
bool ls_device_batch_normalization_offered(struct ls_device_suite *suite, uint32_t op);
void ls_device_layer_cases(struct ls_device_suite *suite);
// Start case `number` of an operation on images; false: there are no more.
bool ls_device_resize_case(struct ls_device_case *c, uint32_t op, size_t number);
bool ls_device_resample_case(struct ls_device_case *c, uint32_t op, size_t number);
bool ls_device_draw_case(struct ls_device_case *c, uint32_t op, size_t number);
bool ls_device_recolour_case(struct ls_device_case *c, uint32_t op, size_t number);
bool ls_device_erase_case(struct ls_device_case *c, uint32_t op, size_t number);
// Likewise of an operation on categories, and of one with a transposed kernel.
bool ls_device_bucket_case(struct ls_device_case *c, uint32_t op, size_t number);
bool ls_device_lookup_case(struct ls_device_case *c, uint32_t op, size_t number);
bool ls_device_encode_case(struct ls_device_case *c, uint32_t op, size_t number);
bool ls_device_transposed_case(struct ls_device_case *c, uint32_t op, size_t number);
void ls_device_bytes_cases(struct ls_device_suite *suite);
void ls_device_loss_cases(struct ls_device_suite *suite);
void ls_device_update_cases(struct ls_device_suite *suite);
void ls_device_dropout_cases(struct ls_device_suite *suite);
void ls_device_fusion_cases(struct ls_device_suite *suite);
// All of it for the half types that the device offers; `run_groups` runs the cases that know them.
void ls_device_half_cases(struct ls_device_suite *suite,
                          void (*run_groups)(struct ls_device_suite *suite));
void ls_device_thread_cases(struct ls_device_suite *suite);
// Of devices that ask for tiles.
void ls_device_tile_cases(struct ls_device_suite *suite);
void ls_device_stream_cases(struct ls_device_suite *suite);
void ls_device_reduction_cases(struct ls_device_suite *suite);
void ls_device_recording_cases(struct ls_device_suite *suite);

#endif
