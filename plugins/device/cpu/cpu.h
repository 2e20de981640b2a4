// SPDX-License-Identifier: Apache-2.0
// What the files of device `cpu` share: the device, its kernels, the threads, and how each concern
// prepares an operation. Tensors are in the plain layout or in a layout of layout.h.
#ifndef LS_CPU_CPU_H
#define LS_CPU_CPU_H

#include "core/plugin/device.h"
#include "plugins/device/cpu/loops.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>

struct ls_device {
    const struct ls_host *host;
    uint32_t threads; // of every parallel loop; 1: no OpenMP region is ever entered
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    const struct cpu_loops *loops; // for this processor
    uint64_t limit,
        allocated; // option `memory` in bytes, 0: none; and what is in use, if there is one
};

#define CPU_MAX_ARGUMENTS 16 // of the operations that this device knows

// A launch, by addresses.
struct cpu_call {
    void *const *arguments; // inputs, then outputs
    void *scratch;
    const struct ls_step_record *record;
};

// What follows a kernel's own work, on its first output.
struct cpu_epilogue {
    uint32_t op; // LS_OP_NONE, LS_OP_ACTIVATION or LS_OP_ACTIVATION_BACKWARD
    uint32_t activation;
    float alpha;
    uint32_t input; // argument that holds y, for the backward one
};

struct ls_kernel {
    uint32_t op;
    uint32_t input_count, output_count;
    struct ls_op_attributes attributes;
    struct ls_tensor_desc arguments[CPU_MAX_ARGUMENTS]; // with the layouts that were answered
    struct cpu_epilogue epilogue;
    // Outputs that are computed into scratch and then added; set to 0 by who adds by itself.
    uint32_t accumulate;
    uint64_t accumulate_offset[CPU_MAX_ARGUMENTS]; // in scratch, bytes
    uint64_t scratch_bytes; // of the operation itself

    int32_t (*run)(struct ls_device *device, struct ls_kernel *kernel,
                   const struct cpu_call *launch);
    void (*finish)(struct ls_kernel *kernel); // NULL: nothing to free
    void *state; // each operation's own
};

// Every `prepare` finds `kernel` filled from the request and `answer` with these defaults: all
// inputs used, plain layouts where any is allowed, no scratch. It corrects what differs.
typedef int32_t cpu_prepare(struct ls_device *device, const struct ls_kernel_request *request,
                            struct ls_kernel *kernel, struct ls_kernel_answer *answer);
cpu_prepare cpu_convolution_forward, cpu_convolution_backward_data,
    cpu_convolution_backward_weights;
cpu_prepare cpu_dense_forward, cpu_dense_backward_data, cpu_dense_backward_weights;
cpu_prepare cpu_max_pool, cpu_max_pool_backward, cpu_average_pool, cpu_average_pool_backward;
cpu_prepare cpu_batch_normalization; // forward and backward, synchronized, too
cpu_prepare cpu_batch_statistics;
cpu_prepare cpu_elementwise; // activations, LS_OP_ADD, LS_OP_MAXIMUM, and the backward ones
cpu_prepare cpu_dropout, cpu_noise;
cpu_prepare cpu_function, cpu_function_backward;
cpu_prepare cpu_pair, cpu_pair_backward, cpu_reduce, cpu_reduce_backward;
cpu_prepare cpu_concatenate, cpu_concatenate_backward, cpu_take_part, cpu_put_part, cpu_transpose,
    cpu_upsample2d;
cpu_prepare cpu_softmax, cpu_softmax_backward, cpu_reshape, cpu_convert, cpu_from_bytes;
cpu_prepare cpu_cross_entropy, cpu_cross_entropy_backward, cpu_squared_error,
    cpu_squared_error_backward;
cpu_prepare cpu_flat_range; // updates, clipping, averages, measures
cpu_prepare cpu_loss, cpu_metric;
cpu_prepare cpu_masked_mean; // and the backward one
cpu_prepare cpu_layer_normalization, cpu_layer_normalization_backward;
cpu_prepare cpu_gather_rows, cpu_gather_rows_backward;
cpu_prepare cpu_recurrent, cpu_recurrent_backward, cpu_differs;
cpu_prepare cpu_categories; // LS_OP_BUCKET, LS_OP_LOOKUP, LS_OP_ENCODE
cpu_prepare cpu_dense_transposed; // and the backward ones
cpu_prepare cpu_augment; // all operations of core/plugin/augment.h
cpu_prepare cpu_attention, cpu_attention_backward, cpu_matmul; // and the backward ones of matmul
cpu_prepare cpu_convolution_transpose, cpu_convolution_transpose_backward_data,
    cpu_convolution_transpose_backward_weights;
cpu_prepare cpu_prelu, cpu_prelu_backward, cpu_penalty, cpu_penalty_backward;
// Any operation with halves among its arguments, by its float32 kernel between conversions.
cpu_prepare cpu_halves;
// What an operation that takes halves itself (operations of cpu.c) returns, with nothing logged,
// where it does not take these: cpu_halves() prepares them.
enum { CPU_COPIES = -1 };
// Once in a process for each half type: that computing in it is slower than in float32 here, where
// it is.
void cpu_say_slow(struct ls_device *device, uint32_t dtype);

// ---- prepare.c ----

// Each logs and returns its status.
int32_t cpu_fail_dnnl(struct ls_device *device, const char *what, dnnl_status_t status);
int32_t cpu_out_of_memory(struct ls_device *device);
// LS_UNSUPPORTED with "cpu: <op>: <why>".
int32_t cpu_unsupported(struct ls_device *device, const struct ls_kernel_request *request,
                        const char *why);
void *cpu_state(struct ls_device *device, uint64_t bytes); // zeroed; NULL: failed
void cpu_implementation(struct ls_device *device, struct ls_kernel_answer *answer,
                        const char *what);
// Layouts ANY become plain; LS_UNSUPPORTED where another one is fixed.
int32_t cpu_all_plain(struct ls_device *device, const struct ls_kernel_request *request,
                      struct ls_kernel *kernel);
// Gives all arguments in `mask`, of one floating type, the first fixed layout among them;
// LS_UNSUPPORTED: they have different ones.
int32_t cpu_same_layout(struct ls_device *device, const struct ls_kernel_request *request,
                        struct ls_kernel *kernel, uint32_t mask);

// ---- cpu.c ----

// The three calls of the plugin, for a kernel that is part of another one.
int32_t cpu_kernel_prepare(struct ls_device *device, const struct ls_kernel_request *request,
                           struct ls_kernel_answer *out);
int32_t cpu_kernel_launch(struct ls_device *device, const struct ls_kernel *kernel,
                          const struct ls_launch *launch);
void cpu_kernel_release(struct ls_kernel *kernel); // takes NULL

// ---- threads ----

// One part of a loop over `count` items. Parts are contiguous and disjoint.
typedef void cpu_body(void *context, int64_t begin, int64_t end);
// Runs all of it, in parallel when `work` (about nanoseconds on one thread) is worth it. Parts
// begin at multiples of `grain`.
void cpu_parallel(const struct ls_device *device, int64_t count, int64_t grain, double work,
                  cpu_body *body, void *context);
bool cpu_worth_threads(const struct ls_device *device, double work);

// ---- flat.c ----

// float32, which the loops have as it lies, or halves, which pass a chunk at a time through a
// thread's own `room` in its first cache.
struct cpu_tensor {
    void *at;
    uint32_t dtype;
};
enum { CPU_CHUNK = 1024 }; // elements that a room holds

// Elements begin .. begin + n. `room` holds n of them, and is not used for float32.
const float *cpu_read(const struct ls_device *device, struct cpu_tensor tensor, int64_t begin,
                      int64_t n, float *room);
// Where a loop writes them, and what has to be called when it has.
float *cpu_target(struct cpu_tensor tensor, int64_t begin, float *room);
void cpu_written(const struct ls_device *device, struct cpu_tensor tensor, int64_t begin, int64_t n,
                 const float *room);

// A loop over elements: `in` and `out` begin at the same element, `n` of them. An output may lie
// where an input lies.
typedef void cpu_flat_loop(const void *context, const float *const *in, float *const *out,
                           int64_t n);
enum { CPU_FLAT_INPUTS = 3, CPU_FLAT_OUTPUTS = 2 };
// Runs it over whole tensors of one type as they lie in memory; what is not used has no address.
struct cpu_flat {
    cpu_flat_loop *loop;
    const void *context;
    uint32_t dtype;
    uint64_t count;
    const void *in[CPU_FLAT_INPUTS];
    void *out[CPU_FLAT_OUTPUTS];
};
// `cost`: nanoseconds an element on one thread, roughly.
void cpu_flat_run(const struct ls_device *device, const struct cpu_flat *flat, double cost);

// A loop over rows first .. first + rows: `in` and `out` begin at the first of them.
typedef void cpu_row_loop(const void *context, const float *const *in, float *out, int64_t first,
                          int64_t rows);
enum { CPU_ROW_INPUTS = 2 };
// Runs it over rows of plain tensors of one type, float32 as it lies, all rows at once, and halves
// some rows at a time; what is not used has no address. The output may lie where an input lies.
struct cpu_row_pass {
    cpu_row_loop *loop;
    const void *context;
    uint32_t dtype;
    int64_t columns;
    const void *in[CPU_ROW_INPUTS];
    void *out;
    void *rooms; // of cpu_row_rooms() bytes, for all threads
};
uint64_t cpu_row_rooms(const struct ls_device *device, uint32_t dtype, int64_t columns);
// Rows begin .. end, in their order, by the calling thread.
void cpu_row_pass_run(const struct ls_device *device, const struct cpu_row_pass *pass,
                      int64_t begin, int64_t end);

// ---- element-wise, whole tensors in memory order ----

// The kernel's epilogue on its first output, `bytes` long as it lies in memory.
void cpu_epilogue_run(struct ls_device *device, const struct ls_kernel *kernel,
                      const struct cpu_call *launch, void *output);
// into += from; both as `desc` has them
void cpu_add_into(struct ls_device *device, const struct ls_tensor_desc *desc, const void *from,
                  void *into);
// True when a function keeps 0 as it is, so that padding stays zero.
bool cpu_activation_keeps_zero(uint32_t activation);

static inline void *cpu_output(const struct ls_kernel *kernel, const struct cpu_call *launch,
                               uint32_t i)
{
    return launch->arguments[kernel->input_count + i];
}

static inline struct ls_tensor_desc *cpu_output_desc(struct ls_kernel *kernel, uint32_t i)
{
    return &kernel->arguments[kernel->input_count + i];
}

// The address `bytes` behind the start of scratch, which is NULL where a kernel needs none: C does not allow adding to
// NULL, not even 0.
static inline char *cpu_past(void *scratch, uint64_t bytes)
{
    return bytes ? (char *)scratch + bytes : (char *)scratch;
}

// Rounded up, so that an aligned array can follow.
static inline uint64_t cpu_aligned(uint64_t bytes)
{
    return (bytes + LS_ALIGNMENT - 1) / LS_ALIGNMENT * LS_ALIGNMENT;
}

// Of a tensor as it lies in memory, padding included.
static inline uint64_t cpu_elements(const struct ls_tensor_desc *desc)
{
    return desc->layout.bytes / ls_dtype_bytes(desc->dtype);
}

#endif
