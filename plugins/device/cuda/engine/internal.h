// SPDX-License-Identifier: Apache-2.0
// What the files of the engine part share: one virtual device, its kernels, and how they reach the libraries.
#ifndef LS_DEVICE_CUDA_ENGINE_INTERNAL_H
#define LS_DEVICE_CUDA_ENGINE_INTERNAL_H

#include "core/plugin/device.h"
#include "plugins/device/cuda/engine/calls.h"
#include "plugins/device/cuda/engine/kernels.h"

#include <stdbool.h>

// Copies from and to host memory go through pinned memory: the caller's may be changed or freed at once, and a GPU reads
// only pinned memory by itself.
#define CUDA_SLOTS 32
#define CUDA_SLOT_BYTES (UINT64_C(256) << 10)

// A stream beside the device's own; the `stream` of the interface's calls.
struct cuda_stream {
    struct CUstream_st *native;
    struct cuda_stream *next;
};

// Numbers of a GPU and its cuDNN: compute capability, multiprocessors, bits of the memory's bus, GiB
// of it; version of cuDNN.
#define CUDA_HARDWARE 5

struct ls_event {
    struct CUevent_st *native;
};

// Its own stream and those beside it, and the libraries' handles. Several lie side by side on one GPU, in its primary context.
struct ls_device {
    const struct ls_host *host;
    const struct cuda_calls *calls;
    uint32_t index;
    uint64_t deadline_ns; // of a wait
    bool tf32; // the libraries may round the factors of float32 products to TF32
    bool timing; // the fastest of cuDNN's plans, else the first
    bool chooses; // since cuda_choices_read()
    const char *plans; // a file of them, the host's text; NULL: none
    int64_t hardware[CUDA_HARDWARE]; // by which choices of plans are told apart (choices.c)
    bool fused_attention; // by plans where cuDNN has some
    struct cuda_plan *first_plan; // those that were made (plan.c)
    struct CUstream_st *own;
    struct cuda_stream *streams; // beside it
    struct CUstream_st *stream; // that of the running call
    struct cublasLtContext *blas;
    struct cudnnContext *dnn;
    struct CUstream_st *dnn_stream; // where it works
    char *staging; // CUDA_SLOTS x CUDA_SLOT_BYTES, pinned
    struct CUevent_st *events[CUDA_SLOTS]; // when the slot is free again
    uint32_t slot; // the next one
    unsigned failure; // of the runtime, said last; 0: none. For cuda_said() alone
    bool hung; // a wait passed its deadline: no other is begun
    const char *refused; // the answer by which a library refused an operation; NULL: none did
    bool recording;
    int32_t spoilt; // why what is recorded cannot be kept; LS_OK: it can
    uint64_t reached; // bit i: memory of GPU i is read and written
    struct cuda_chunk *chunks; // arena.c
    uint64_t most_workspace; // bytes of a convolution's, at most
    bool alone; // each allocation is a chunk of its own
    uint64_t next_chunk, reserved, used; // bytes; 0: the first chunk's
    struct ls_recording *unreleased; // that hang, for good
    struct ls_device *next; // of those that were abandoned
    const char *
        last; // name of the operation launched last; NULL: none. For cuda_last() and cuda_launched()
};

#define CUDA_MAX_ARGUMENTS 16 // of the operations that this device knows
#define CUDA_LOSS_ARGUMENTS 6 // of a loss with a mask: four inputs, sums; and the gradient

// A launch, by addresses.
struct cuda_call {
    void *const *arguments; // inputs, then outputs
    void *scratch;
    const struct ls_step_record *record;
    void *gradient; // of a loss, made with it; NULL: it is not
};

typedef int32_t cuda_run(struct ls_device *device, const struct ls_kernel *kernel,
                         const struct cuda_call *launch);

struct cuda_operation {
    const char *name;
    bool epilogue; // may have one
    bool accumulate; // may add into its outputs
    int32_t (*prepare)(struct ls_device *device, struct ls_kernel *kernel,
                       struct ls_kernel_answer *answer);
};

struct ls_kernel {
    const struct cuda_operation *operation;
    struct ls_kernel_request request; // its arguments are `descs`
    struct ls_tensor_desc descs[CUDA_MAX_ARGUMENTS]; // with the layouts answered
    struct cuda_arguments arguments; // of an own kernel, without what a launch brings
    uint32_t own; // enum cuda_kernel that `cuda_run_own` launches
    int64_t items;
    uint64_t sums; // where the scratch memory of a bias gradient, or of parts of sums, begins
    struct ls_buffer *done; // blocks that are, where it adds up pairs; else NULL
    void *state; // of an operation that a library runs
    void (*finish)(struct ls_device *device, struct ls_kernel *kernel); // NULL: only free(state)
    cuda_run *run;
    // By own kernels, where a library said that it knows the operation, and refuses it when it runs; NULL: there is no such.
    cuda_run *otherwise;
    struct cuda_turn *turn; // what changes in it later
    // It is a segment: casts (casts.c), which of all the above have `state` only, or a loss with its
    // gradient (segment.c). NULL: it is none.
    int32_t (*run_segment)(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct ls_launch *launch);
    // Where the loss's arguments, and behind them its gradient, are in a launch of the segment.
    uint32_t places[CUDA_LOSS_ARGUMENTS];
};

struct cuda_turn {
    bool refused; // it runs `otherwise` from here on
};

// ---- failure.c ----

// The status for an error of the runtime, cuBLASLt or cuDNN; 0 is LS_OK. Fails the running call with a message.
int32_t cuda_check(struct ls_device *device, unsigned error, const char *what);
int32_t cuda_check_blas(struct ls_device *device, unsigned error, const char *what);
// Whether this error of the runtime was said last, or one that everything after it follows from. [any thread]
bool cuda_said(struct ls_device *device, unsigned error);
// What was launched last, for messages. [any thread]
void cuda_launched(struct ls_device *device, const char *name);
const char *cuda_last(const struct ls_device *device);
int32_t cuda_check_dnn(struct ls_device *device, unsigned error, const char *what);
// Whether cuDNN's answer says that it does not do that, or does not take what it was given, and so
// has not begun.
bool cuda_dnn_refuses(unsigned error);
// One line in the log, of a level of enum ls_log_level: something is done otherwise.
__attribute__((format(printf, 3, 4))) void cuda_log(struct ls_device *device, uint32_t level,
                                                    const char *format, ...);
int32_t cuda_unsupported(struct ls_device *device, const struct ls_kernel *kernel, const char *why);
// A recording goes wrong: what it has is not kept. Returns the status.
int32_t cuda_spoil(struct ls_device *device, int32_t status);
// Fails a call that cannot be recorded, while there is a recording.
int32_t cuda_check_recording(struct ls_device *device, const char *what);
// Makes the GPU that of the calling thread, and the stream that of the running call; every call from outside begins with it.
// NULL: the own one.
int32_t cuda_enter(struct ls_device *device, const void *stream);
// Until all that was put on one stream, on every stream of the device, is done, or until the event is; or the deadline has
// passed.
int32_t cuda_wait(struct ls_device *device, struct CUstream_st *stream, const char *what);
int32_t cuda_wait_all(struct ls_device *device, const char *what);
int32_t cuda_wait_event(struct ls_device *device, struct CUevent_st *event, const char *what);

// ---- segment.c, casts.c ----

int32_t cuda_prepare_segment(struct ls_device *device, const struct ls_segment_request *request,
                             struct ls_kernel_answer *out);
int32_t cuda_prepare_casts(struct ls_device *device, const struct ls_segment_request *request,
                           struct ls_kernel_answer *out);

// ---- streams.c ----

int32_t cuda_stream_open(struct ls_device *device, void **out);
int32_t cuda_stream_open_urgent(struct ls_device *device, void **out);
void cuda_stream_close(struct ls_device *device, void *stream);
void cuda_streams_finish(struct ls_device *device); // after a wait for all of them
int32_t cuda_stream_native(struct ls_device *device, void *stream, struct ls_native_stream *out);
int32_t cuda_event_open(struct ls_device *device, struct ls_event **out);
void cuda_event_close(struct ls_device *device, struct ls_event *event);
int32_t cuda_event_record(struct ls_device *device, struct ls_event *event, void *stream);
int32_t cuda_event_wait(struct ls_device *device, struct ls_event *event, void *stream);
int32_t cuda_event_query(struct ls_device *device, const struct ls_event *event);

// ---- recording.c ----

int32_t cuda_record_begin(struct ls_device *device);
int32_t cuda_record_end(struct ls_device *device, struct ls_recording **out);
int32_t cuda_replay(struct ls_device *device, const struct ls_recording *recording);
void cuda_release_recording(struct ls_device *device, struct ls_recording *recording);

// ---- arena.c ----

void *cuda_arena_take(struct ls_device *device, uint64_t bytes); // NULL: the GPU has not as much
void cuda_arena_give(struct ls_device *device, void *memory); // nothing may use it any more
void cuda_arena_finish(struct ls_device *device);
// How much of the GPU the device holds, and how much of that is given out.
void cuda_memory_use(const struct ls_device *device, uint64_t *reserved, uint64_t *used);

// ---- memory.c ----

int32_t cuda_staging_open(struct ls_device *device);
void cuda_staging_close(struct ls_device *device);
struct ls_buffer *cuda_allocate(struct ls_device *device, uint64_t bytes);
void cuda_release(struct ls_device *device, struct ls_buffer *buffer);
int32_t cuda_copy(struct ls_device *device, struct ls_memory to, struct ls_memory from,
                  uint64_t bytes, void *stream);
int32_t cuda_zero(struct ls_device *device, struct ls_memory memory, uint64_t bytes, void *stream);
void *cuda_allocate_host(struct ls_device *device, uint64_t bytes);
void cuda_release_host(struct ls_device *device, void *memory);
int32_t cuda_copy_async(struct ls_device *device, struct ls_memory to, struct ls_memory from,
                        uint64_t bytes, void *stream);

// ---- reduce.c ----

int32_t cuda_reduce(struct ls_device *device, const struct ls_device_reduction *call, void *stream);
int32_t cuda_can_access_peer(struct ls_device *device, struct ls_device *other);

// ---- kernel.c ----

int32_t cuda_prepare(struct ls_device *device, const struct ls_kernel_request *request,
                     struct ls_kernel_answer *out);
int32_t cuda_launch(struct ls_device *device, const struct ls_kernel *kernel,
                    const struct ls_launch *launch);
void cuda_release_kernel(struct ls_device *device, struct ls_kernel *kernel);

// ---- operation.c ----

// Inputs without that of an epilogue; descriptions; addresses at a launch.
uint32_t cuda_inputs(const struct ls_kernel *kernel);
struct ls_tensor_desc *cuda_input_desc(struct ls_kernel *kernel, uint32_t index);
struct ls_tensor_desc *cuda_output_desc(struct ls_kernel *kernel, uint32_t index);
void *cuda_output(const struct ls_kernel *kernel, const struct cuda_call *launch, uint32_t index);
bool cuda_accumulates(const struct ls_kernel *kernel, uint32_t output);
int64_t cuda_elements(const struct ls_tensor_desc *desc);
bool cuda_same_count(const struct ls_tensor_desc *a, const struct ls_tensor_desc *b);
// Where output 0 goes, with the epilogue and the addition of the request.
struct cuda_store cuda_store_of(const struct ls_kernel *kernel, const struct cuda_call *launch);
// enum cuda_type; float32 for all that is no half
uint32_t cuda_type(uint32_t dtype);
uint32_t cuda_type_of(const struct ls_tensor_desc *desc);
// The first two inputs, with their types, and where output 0 goes: what most own kernels are told.
void cuda_fill(const struct ls_kernel *kernel, const struct cuda_call *launch,
               struct cuda_arguments *out);
// Memory of the state of a kernel, zeroed; NULL after a failure was said.
void *cuda_state(struct ls_device *device, struct ls_kernel *kernel, size_t bytes);
// Adds to the scratch that the kernel wants; the offset of what was added.
uint64_t cuda_scratch(struct ls_kernel_answer *answer, uint64_t bytes);
// The same for the workspace of a library, which wants it aligned to more than the host aligns scratch memory to; and where that
// lies at a launch.
uint64_t cuda_workspace(struct ls_kernel_answer *answer, uint64_t bytes);
void *cuda_workspace_at(const struct cuda_call *launch, uint64_t offset);
void cuda_implementation(struct ls_kernel_answer *answer, const char *text);
int32_t cuda_start(struct ls_device *device, enum cuda_kernel which,
                   const struct cuda_arguments *arguments, int64_t items);
// cuda_start_move(device, &arguments), cuda_start_layer(device, kernel, &arguments), ...
#define CUDA_START(name)                                                                           \
    static inline int32_t cuda_start_##name(struct ls_device *device,                              \
                                            const struct cuda_##name *arguments)                   \
    {                                                                                              \
        return cuda_check(device, cuda_##name##_launch(arguments, device->stream), CUDA_STARTING); \
    }
#define CUDA_START_SEVERAL(name)                                                           \
    static inline int32_t cuda_start_##name(struct ls_device *device, uint32_t kernel,     \
                                            const struct cuda_##name *arguments)           \
    {                                                                                      \
        return cuda_check(device, cuda_##name##_launch(kernel, arguments, device->stream), \
                          CUDA_STARTING);                                                  \
    }
#define CUDA_STARTING "launching a kernel"
CUDA_FAMILIES(CUDA_START, CUDA_START_SEVERAL)

// An operation that own kernels are, which `run` launches. LS_OK.
int32_t cuda_run_own(struct ls_kernel *kernel, struct ls_kernel_answer *answer, cuda_run *run);
// An operation that is one own kernel: a and b are the inputs 0 and 1, `first` is output 1.
void cuda_use_own(struct ls_kernel *kernel, struct ls_kernel_answer *answer, enum cuda_kernel which,
                  int64_t items);
// Whether the call that failed is a library's, which refuses what it said it can do, and own kernels can take its place, now and
// from here on; that is said once.
bool cuda_turn_to_own(struct ls_device *device, const struct ls_kernel *kernel);

// Weights of a convolution as cuDNN wants them beside NHWC: (F, KH, KW, C/groups), which is the plain (KH, KW, C/groups, F)
// turned. Fixes the layout in `desc` when it is free; false: it is fixed to another.
bool cuda_layout_weights(struct ls_tensor_desc *desc);
bool cuda_layout_plain(struct ls_tensor_desc *desc);
bool cuda_layout_saved(struct ls_tensor_desc *desc, uint64_t bytes); // as so many bytes

// ---- product.c ----

// How far the next row, the next column and the next matrix of a batch are, in elements; one of the first two is 1.
struct cuda_matrix {
    int64_t row, column, next;
};

#define CUDA_MATRICES 3

// D (m,n) = alpha A (m,k) B (k,n) + beta D, for each of the batch.
struct cuda_product {
    int64_t m, n, k, batch;
    struct cuda_matrix a, b, d;
    float alpha, beta;
    uint32_t dtype, result; // of the factors, and of D
    uint32_t alignment; // of all addresses, in bytes
    uint32_t epilogue; // of cuBLASLt
    bool tf32; // tensor cores round factors of float32 to 11 bits, whatever was asked for
    cublasLtMatmulDescOpaque_t *matmul; // NULL: cuBLASLt does not know how
    cublasLtMatrixLayoutOpaque_t *layouts[CUDA_MATRICES];
    cublasLtMatmulHeuristicResult_t choice;
};

struct cuda_factors {
    const void *a, *b;
    void *d;
    const void *bias; // of the epilogue; its gradient is written
    void *workspace; // choice.workspaceSize bytes
};

// Whether cuBLASLt knows how; makes what it is told then.
bool cuda_product_choose(struct ls_device *device, struct cuda_product *p);
void cuda_product_finish(struct ls_device *device, struct cuda_product *p);
int32_t cuda_product_run(struct ls_device *device, const struct cuda_product *p,
                         const struct cuda_factors *of);
// The same, or by an own kernel where cuBLASLt does not know how or refuses. One type, without an epilogue.
int32_t cuda_product_multiply(struct ls_device *device, const struct ls_kernel *kernel,
                              const struct cuda_product *p, const struct cuda_factors *of);

// ---- sums.c ----

// Sums of the columns of `values` (rows, columns) into the store. Scratch: cuda_column_bytes().
struct cuda_columns {
    const void *values;
    uint32_t type; // enum cuda_type
    int64_t rows, columns;
    void *scratch;
};
uint64_t cuda_column_bytes(int64_t rows, int64_t columns);
int32_t cuda_column_sums(struct ls_device *device, const struct cuda_columns *columns,
                         const struct cuda_store *store);

// For a kernel that adds up pairs over its grid: memory for it. Where that is, at a launch.
int32_t cuda_prepare_pairs(struct ls_device *device, struct ls_kernel *kernel,
                           struct ls_kernel_answer *answer);
struct cuda_pairs cuda_pairs_of(const struct ls_kernel *kernel, const struct cuda_call *launch);

// ---- dnn.c ----

// cudnnDataType_t of an element type.
unsigned cuda_dnn_type(uint32_t dtype);
// Whether cuDNN pads as this window does: both sides alike.
bool cuda_dnn_pads(const struct cuda_window *window);
// cuDNN works on the stream of the running call from here on.
int32_t cuda_use_dnn(struct ls_device *device);

// ---- graph.c ----

// What cuDNN is asked for. Compared byte by byte: begin with memset.
struct cuda_plan_question {
    uint32_t op; // of enum ls_op: one of the three convolutions, attention or its gradients
    uint32_t type; // cudnnDataType_t of the tensors; sums are float32
    uint32_t fused; // 1: a convolution, and bias of `type` and ReLU after it
    uint32_t tensor_cores; // 1: factors may go through them; float32 ones then as TF32
    // (B, C, H, W), (F, C / groups, KH, KW), (B, F, H, W), NHWC in memory; q, k and v of attention: (B, H, positions, elements)
    int64_t x[4], w[4], y[4];
    int64_t padding[2], stride[2], dilation[2];
    uint32_t causal; // attention: 0 or 1
    float scale; // of its scores
};

// Unique ids of the tensors of a graph, and where plans find them.
enum cuda_plan_tensor {
    CUDA_PLAN_X = 1, // of a convolution
    CUDA_PLAN_W,
    CUDA_PLAN_Y,
    CUDA_PLAN_BIAS,
    CUDA_PLAN_Q = 1, // of attention
    CUDA_PLAN_K,
    CUDA_PLAN_V,
    CUDA_PLAN_ATTENDED, // y
    CUDA_PLAN_STATISTICS, // float32, (B, H, T): logarithm of the sum of a row's exponentials
    CUDA_PLAN_DY,
    CUDA_PLAN_DQ,
    CUDA_PLAN_DK,
    CUDA_PLAN_DV,
    CUDA_PLAN_SUMS, // float32, (B, H, T), for the plan alone
    CUDA_PLAN_SCALE, // three numbers, which plan.c brings
    CUDA_PLAN_HIDDEN,
    CUDA_PLAN_ONE,
    CUDA_PLAN_TENSORS
};

struct cuda_plan {
    struct cuda_plan_question question;
    void *plan; // NULL: cuDNN has none
    uint64_t workspace_bytes;
    int64_t engine; // cuDNN's number
    void *made[96]; // descriptors, in this order
    int made_count;
    struct cuda_plan *next;
};

// What a plan reads and writes, NULL where there is no such; the workspace is aligned as cuda_workspace_at() does.
struct cuda_plan_memory {
    const void *tensors[CUDA_PLAN_SCALE];
    void *workspace;
};

// Descriptors of cuDNN. NULL where cuDNN has not taken what one is made of, so only the last of a graph is looked at.
bool cuda_set_attribute(const struct ls_device *device, void *descriptor, unsigned name,
                        unsigned type, int64_t count, const void *values);
bool cuda_set_descriptor(const struct ls_device *device, void *descriptor, unsigned name,
                         void *value);
// The descriptor, when all was set and cuDNN takes it; else NULL.
void *cuda_finalize(const struct ls_device *device, void *descriptor, bool is_set);
void cuda_destroy(const struct ls_device *device, void *descriptor);
// The graph that the plan's question asks for; the plan keeps what it is made of.
void *cuda_graph_make(const struct ls_device *device, struct cuda_plan *plan);

// ---- plan.c ----

// The device's plan for a question, made when it is asked for first; `out` stays as it is where cuDNN has none. It may run
// on the GPU, so nothing may be recorded meanwhile.
int32_t cuda_plan_get(struct ls_device *device, const struct cuda_plan_question *question,
                      const struct cuda_plan **out);
int32_t cuda_plan_run(struct ls_device *device, const struct cuda_plan *plan,
                      const struct cuda_plan_memory *memory, const char *what);
void cuda_plans_finish(struct ls_device *device);

// ---- choices.c ----

#define CUDA_MOST_OFFERS 128 // of cuDNN for a question

// Which of the offers was taken.
struct cuda_choice {
    int place; // -1: none
    int64_t engine;
    const char *source; // who has taken it, for messages
    bool unwritten; // the device's file has it not, and should
};

// What was chosen before is found, and what is chosen anew is kept, by one thread at a time.
void cuda_choices_enter(void);
void cuda_choices_leave(void);
bool cuda_choice_find(struct ls_device *device, const struct cuda_plan_question *question,
                      struct cuda_choice *out);
// Before something is timed that cannot be kept.
int32_t cuda_choice_try(struct ls_device *device);
// Writes the device's file where it has timed and `lasting`: the choice is not for want of memory.
int32_t cuda_choice_keep(struct ls_device *device, const struct cuda_plan_question *question,
                         int place, int64_t engine, bool lasting);
// Reads the device's file, unless the process has read it as it is. cuda_choices_finish() may follow in any case.
int32_t cuda_choices_read(struct ls_device *device);
void cuda_choices_finish(struct ls_device *device);
// The calls of struct ls_device_choices that need this part.
int32_t cuda_choices_give(const struct ls_host *host, void *out, uint64_t bytes, uint64_t *needed);
int32_t cuda_choices_take(const struct ls_host *host, const void *choices, uint64_t bytes);

// ---- direct.c ----

// The convolution's operation that a transposed one is, with x and y in each other's place: its forward operation is the
// gradient of an image. Other operations are themselves. Then which input is the image where the gradient of weights is wanted.
uint32_t cuda_convolution_of(uint32_t op);
uint32_t cuda_image_input(const struct ls_kernel *kernel);
// Whether the operation is a product with a bias, or the backward one that makes the gradient of a bias.
bool cuda_has_bias(const struct ls_kernel *kernel);
bool cuda_has_bias_gradient(const struct ls_kernel *kernel);
struct cuda_store cuda_bias_store(const struct ls_kernel *kernel, const struct cuda_call *launch);
int32_t cuda_run_bias_gradient(struct ls_device *device, const struct ls_kernel *kernel,
                               const struct cuda_call *launch);

// A convolution or a dense layer by own kernels, at each launch or where the library refuses one. A dense layer is a
// convolution of one point.
struct cuda_direct {
    struct cuda_window window;
    int64_t filters, groups;
    bool turned; // w lies as cuda_layout_weights() says
    const char *library; // that is missing
};
struct cuda_arguments cuda_direct_arguments(const struct cuda_direct *how);
void cuda_use_direct(struct ls_kernel *kernel, struct ls_kernel_answer *answer,
                     const struct cuda_direct *how);

// ---- taps.c ----

// A convolution, or the gradient of its weights, by the own kernels for few taps; false: those are not for it.
bool cuda_use_taps(struct ls_kernel *kernel, struct ls_kernel_answer *answer,
                   const struct cuda_direct *how);

// ---- walk.c ----

// Tensors and their dimensions, from the last on, within those of a whole; where one has 1, or no more dimensions, it is repeated.
struct cuda_walked {
    const struct ls_tensor_desc *whole, *parts[CUDA_WALKED];
    uint32_t tensors;
};

// Fills in all but what is computed and where.
void cuda_broadcast_plan(struct cuda_broadcast *b, const struct cuda_walked *walked);
// `out` has the dimensions of the whole, or 1 where elements are folded; false: it has 2^31 elements or more, or one of them has.
bool cuda_fold_plan(struct cuda_fold *f, const struct cuda_walked *walked,
                    const struct ls_tensor_desc *out);
uint64_t cuda_fold_bytes(const struct cuda_fold *f); // of scratch memory
int32_t cuda_fold_run(struct ls_device *device, const struct cuda_fold *plan, void *scratch);

// ---- The operations ----

#define CUDA_PREPARE(name)                                                          \
    int32_t cuda_prepare_##name(struct ls_device *device, struct ls_kernel *kernel, \
                                struct ls_kernel_answer *answer);
CUDA_PREPARE(attention)
CUDA_PREPARE(augment)
CUDA_PREPARE(categories)
CUDA_PREPARE(concatenation)
CUDA_PREPARE(conv2d)
CUDA_PREPARE(convert)
CUDA_PREPARE(dense)
CUDA_PREPARE(differs)
CUDA_PREPARE(elementwise)
CUDA_PREPARE(function)
CUDA_PREPARE(gather)
CUDA_PREPARE(guard)
CUDA_PREPARE(layer)
CUDA_PREPARE(loss)
CUDA_PREPARE(losses)
CUDA_PREPARE(masked_mean)
CUDA_PREPARE(matmul)
CUDA_PREPARE(measure)
CUDA_PREPARE(normalization)
CUDA_PREPARE(pair)
CUDA_PREPARE(part)
CUDA_PREPARE(penalty)
CUDA_PREPARE(pooling)
CUDA_PREPARE(prelu)
CUDA_PREPARE(recurrent)
CUDA_PREPARE(reduction)
CUDA_PREPARE(statistics)
CUDA_PREPARE(transposition)
CUDA_PREPARE(update)
CUDA_PREPARE(upsampling)

// The window over x that makes y.
struct cuda_window cuda_window_of(const struct ls_op_attributes *attributes, int64_t rows,
                                  int64_t columns, const struct ls_tensor_desc *x,
                                  const struct ls_tensor_desc *y);

#endif
